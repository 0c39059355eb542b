#ifndef HA_KERNELS_CUDA_FAKE_NVML_H
#define HA_KERNELS_CUDA_FAKE_NVML_H

#include <stdbool.h>

struct fake_nvml {
    /* in */
    bool init_fails, unsupported;
    unsigned long long reasons;
    /* out */
    int users, link_reads;
};
#define FAKE_NVML_SYMBOL "fake_nvml"

#endif
