#include "harness/base/numeric.h"
#include "kernels/c/ops.h"
#include "kernels/rows.h"

#include <string.h>

enum { COLUMNS = 64 };

/* columns [at, at + n): sums of HA_SUM_KEYS keys, then of these */
static void columns(const struct ha_weighted_sum *s, size_t r, size_t at, size_t n)
{
    float o[COLUMNS] = { 0 };
    for (size_t first = 0; first < s->rows.keys; first += HA_SUM_KEYS) {
        float part[COLUMNS] = { 0 };
        for (size_t i = first; i < first + ha_least(HA_SUM_KEYS, s->rows.keys - first); i++) {
            const float w = ha_load(s->w, r * s->w_stride + i, s->w_type);
            const char *v = ha_row_v(&s->rows, i);
            for (size_t d = 0; d < n; d++) part[d] += w * ha_load(v, at + d, s->dtype);
        }
        for (size_t d = 0; d < n; d++) o[d] += part[d];
    }
    memcpy(s->o + r * s->o_stride + at, o, n * sizeof *o);
}

void ha_c_weighted_sum(const struct ha_weighted_sum *s)
{
    for (size_t r = 0; r < s->q_rows; r++)
        for (size_t at = 0; at < s->head_dim; at += COLUMNS) columns(s, r, at, ha_least(COLUMNS, s->head_dim - at));
}
