#ifndef HA_KERNELS_CUDA_FAKE_NVML_H
#define HA_KERNELS_CUDA_FAKE_NVML_H

#include <stdbool.h>

struct fake_nvml {
    /* in */
    bool init_fails, unsupported;
    unsigned long long reasons, ecc_errors[2];
    unsigned ecc, ecc_pending, rows_pending, rows_failed, persistence, mig, power_limit_mW, busy_percent, processes;
    unsigned link_gen, link_width; /* now; 0: 4 and 8 */
    /* out */
    int users, link_reads;
};
#define FAKE_NVML_SYMBOL "fake_nvml"

#endif
