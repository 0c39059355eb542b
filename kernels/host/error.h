#ifndef HA_KERNELS_HOST_ERROR_H
#define HA_KERNELS_HOST_ERROR_H

/* How the parts of the embedded device say that something went wrong. Everything else of it stands above this. */

#include "harness/api/base.h"

struct ha_device;

/* Keeps the first failure. */
enum ha_status ha_host_fail(struct ha_device *dev, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, with what every stream is waiting for. */
void ha_host_fail_deadlock(struct ha_device *dev);

#endif
