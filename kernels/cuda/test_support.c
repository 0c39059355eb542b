/* The emulated CUDA device, for the tests of kernels/host that name no device. */

#include "kernels/host/test_support.h"

extern const struct ha_device_api ha_device_api;
const struct ha_device_api *const api = &ha_device_api;
const struct ha_kernels test_kernels; /* it has its own */
const bool embedded = false;
