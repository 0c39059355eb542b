#include "kernels/amx/ops.h"

#if defined(HA_ISA_AMX)
#include "kernels/amx/tile.h"

/* Six chains: an instruction takes less than four times as long as passes between two of them. */
double HA_AMX(flops_bf16)(size_t rounds)
{
    enum { CHAINS = 6, PAIR = 2, LANES = TILE_BYTES / 4 };
    static const uint16_t half = 0x3f00; /* 0.5 */
    uint16_t x[TILE_ROWS][LANES * PAIR];
    const struct amx_config whole = amx_whole();

    for (size_t i = 0; i < TILE_ROWS; i++)
        for (size_t j = 0; j < LANES * PAIR; j++) x[i][j] = half;
    amx_configure(&whole);
    amx_load(6, x, sizeof x[0]);
    amx_load(7, x, sizeof x[0]);
    for (size_t i = 0; i < rounds; i++) {
        amx_dot(0, 6, 7);
        amx_dot(1, 6, 7);
        amx_dot(2, 6, 7);
        amx_dot(3, 6, 7);
        amx_dot(4, 6, 7);
        amx_dot(5, 6, 7);
    }
    amx_release();
    return 2.0 * CHAINS * TILE_ROWS * TILE_ROWS * LANES * PAIR * (double)rounds;
}
#endif
