#ifndef HA_KERNELS_CUDA_FAKE_GDR_H
#define HA_KERNELS_CUDA_FAKE_GDR_H

struct fake_gdr {
    int fails;                           /* in: gdr_open 1, gdr_pin_buffer 2, gdr_map 3; or 0 */
    int opened, pinned, mapped, misused; /* out: under way; calls with wrong arguments */
};
#define FAKE_GDR_SYMBOL "fake_gdr"

#endif
