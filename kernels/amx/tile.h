#ifndef HA_KERNELS_AMX_TILE_H
#define HA_KERNELS_AMX_TILE_H

/* The tile instructions, of 8 tiles of up to 16 rows of 64 bytes. Tiles are named by constants. */

#include <stddef.h>
#include <stdint.h>

enum { TILES = 8, TILE_ROWS = 16, TILE_BYTES = 64 };

struct amx_config {
    uint8_t palette, start_row, none[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

/* all tiles whole */
static inline struct amx_config amx_whole(void)
{
    struct amx_config c = { .palette = 1 };
    for (size_t t = 0; t < TILES; t++) c.bytes[t] = TILE_BYTES, c.rows[t] = TILE_ROWS;
    return c;
}

#if defined(HA_AMX_TWIN)
#include <math.h>
#include <string.h>

/* The plain C twin of the instructions, for tests on CPUs without them, after their description in Intel's manual. */
static _Thread_local struct {
    float f[TILE_ROWS][TILE_BYTES / 4];
    size_t rows;
} amx_twin[TILES];

static inline void amx_configure(const struct amx_config *c)
{
    memset(amx_twin, 0, sizeof amx_twin);
    for (size_t t = 0; t < TILES; t++) amx_twin[t].rows = c->rows[t];
}
static inline void amx_release(void) { memset(amx_twin, 0, sizeof amx_twin); }
static inline void amx_zero(int t) { memset(amx_twin[t].f, 0, sizeof amx_twin[t].f); }
/* rows that a tile does not have become zeros */
static inline void amx_load(int t, const void *p, size_t stride)
{
    amx_zero(t);
    for (size_t i = 0; i < amx_twin[t].rows; i++) memcpy(amx_twin[t].f[i], (const char *)p + i * stride, TILE_BYTES);
}
static inline void amx_store(int t, void *p, size_t stride)
{
    for (size_t i = 0; i < amx_twin[t].rows; i++) memcpy((char *)p + i * stride, amx_twin[t].f[i], TILE_BYTES);
}

/* denormals are zeros, of operands and of results */
static inline float amx_flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
static inline float amx_half(float pair, unsigned which)
{
    uint32_t u;
    memcpy(&u, &pair, sizeof u);
    u = which ? u & 0xffff0000 : u << 16;
    memcpy(&pair, &u, sizeof pair);
    return amx_flush(pair);
}

/* c += a b over pairs of bfloat16: the even and the odd products are summed by themselves from 0, by fused
 * multiply-adds that round to nearest even; then both sums are added, and then to c */
static inline void amx_dot(int c, int a, int b)
{
    enum { N = TILE_BYTES / 4 };
    float y[TILE_ROWS][2][N];
    for (size_t k = 0; k < TILE_ROWS; k++)
        for (size_t n = 0; n < N; n++)
            for (unsigned i = 0; i < 2; i++) y[k][i][n] = amx_half(amx_twin[b].f[k][n], i);
    for (size_t m = 0; m < amx_twin[c].rows; m++) {
        float sum[2][N] = { { 0 } };
        for (size_t k = 0; k < TILE_ROWS; k++)
            for (unsigned i = 0; i < 2; i++) {
                const float x = amx_half(amx_twin[a].f[m][k], i);
                for (size_t n = 0; n < N; n++) sum[i][n] = amx_flush(fmaf(x, y[k][i][n], sum[i][n]));
            }
        for (size_t n = 0; n < N; n++) {
            const float both = amx_flush(sum[0][n] + sum[1][n]);
            amx_twin[c].f[m][n] = amx_flush(amx_flush(amx_twin[c].f[m][n]) + both);
        }
    }
}
#else
#include <immintrin.h>

/* gcc writes the names of the tiles into the instructions: no brackets. It does not know that a load reads memory: what
 * was written there has to be so before. */
#define amx_configure(c) _tile_loadconfig(c)
#define amx_release()    _tile_release()
#define amx_zero(t)      _tile_zero(t)
#define amx_load(t, p, stride)             \
    do {                                   \
        __asm__ volatile("" ::: "memory"); \
        _tile_loadd(t, p, stride);         \
    } while (0)
#define amx_store(t, p, stride) _tile_stored(t, p, stride)
#define amx_dot(c, a, b)        _tile_dpbf16ps(c, a, b)
#endif

#endif
