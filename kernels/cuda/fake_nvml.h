#ifndef HA_KERNELS_CUDA_FAKE_NVML_H
#define HA_KERNELS_CUDA_FAKE_NVML_H

#include <stdbool.h>
#include <stddef.h>

struct fake_nvml {
    /* in */
    bool init_fails;
    int fails;            /* with this status, whatever is read; 0: nothing does */
    bool limited;         /* the caller has no privileges: of a device in parts the driver does not say who is on it */
    size_t process_bytes; /* from one entry of a list of processes to the next; 0: 24 */
    unsigned idle_after;  /* clocks and link have fallen when so much was read; 0: they stay */
    unsigned long long reasons, ecc_errors[2];
    unsigned ecc, ecc_pending, rows_pending, rows_failed, persistence, mig, power_limit_mW, busy_percent, processes;
    unsigned link_gen, link_width; /* now; 0: 4 and 8 */
    /* out */
    int users, link_reads;
    unsigned reads; /* of what falls when the device is idle */
};
#define FAKE_NVML_SYMBOL "fake_nvml"

#endif
