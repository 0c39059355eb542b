#include "kernels/c/ops.h"

void ha_c_hamming(const struct ha_hamming *h)
{
    const size_t words = h->bits / 32, block = (words + 1) * HA_CODE_KEYS;
    for (size_t r = 0; r < h->q_rows; r++) {
        const uint32_t *q = (const uint32_t *)h->q + r / HA_CODE_KEYS * block + r % HA_CODE_KEYS;
        for (size_t i = 0; i < h->keys; i++) {
            const uint32_t *k = (const uint32_t *)h->codes + i / HA_CODE_KEYS * block + i % HA_CODE_KEYS;
            int differ = 0;
            for (size_t w = 0; w < words; w++) differ += __builtin_popcount(q[w * HA_CODE_KEYS] ^ k[w * HA_CODE_KEYS]);
            h->s[r * h->s_stride + i] = ((const float *)k)[words * HA_CODE_KEYS] * (float)((int)h->bits - 2 * differ);
        }
    }
}
