/* pq_score in terms of vectors. An entry of the table is the numbers of four rows, which one addition takes to their
 * sums, so that a code costs a load and an addition for four rows. So many groups' tables as fit into the first cache
 * pass over a span of keys, whose sums wait in memory between them; meanwhile the codes of the next span are asked for,
 * because a group's codes are no linear stream. */

#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
#include "kernels/four.inc"
#include "kernels/rows.h"
#include "kernels/specialised.h"

enum {
    SPAN = 4096,
    TILE = VECTORS / 2, /* keys whose sums are in registers */
    TABLES = 32 << 10,  /* bytes of the tables that pass together */
    TOGETHER = 8,       /* groups, at most */
    LINE = 64,
    CODED = 8, /* keys whose codes are taken apart at once */
};

struct span {
    const struct ha_pq_score *args;
    struct spread spread;
    size_t first, keys;
    const unsigned char *end; /* of all codes */
    float (*sum)[HA_PQ_ROWS];
};

/* where the entries of a group's codes of a block begin in its table */
ALWAYS void entries(const struct span *s, const unsigned char *codes, size_t bits, int up, size_t keys, uint32_t *at)
{
    for (size_t i = 0; i < HA_PQ_KEYS; i += CODED, codes += bits) {
        unsigned char whole[16] = { 0 };
        if (codes + sizeof whole <= s->end) spread_codes(&s->spread, codes, up, at + i);
        else {
            memcpy(whole, codes, bits);
            spread_codes(&s->spread, whole, up, at + i);
        }
    }
    for (size_t i = keys; i < HA_PQ_KEYS; i++) at[i] = 0;
}

/* adds `groups` groups from the first on to the sums of a block */
ALWAYS void block(const struct span *s, const char *table, const unsigned char *codes, size_t groups, bool begins,
                  size_t keys, float (*sum)[HA_PQ_ROWS], enum ha_dtype t)
{
    const struct ha_pq *pq = &s->args->pq;
    const size_t each = ha_pq_group_bytes(pq), entry = HA_PQ_ROWS * ha_dtype_bytes(t);
    uint32_t at[TOGETHER][HA_PQ_KEYS];
    for (size_t g = 0; g < groups; g++) entries(s, codes + g * each, pq->bits, t == HA_F16 ? 3 : 4, keys, at[g]);
    for (size_t k = 0; k < HA_PQ_KEYS; k += TILE) {
        four x[TILE];
        for (size_t i = 0; i < TILE; i++) x[i] = begins ? (four){ 0 } : four_load(sum[k + i]);
        for (size_t g = 0; g < groups; g++) {
            const char *of = table + g * pq->count * entry;
            for (size_t i = 0; i < TILE; i++) x[i] += four_widen(of + at[g][k + i], t);
        }
        for (size_t i = 0; i < TILE; i++) four_store(sum[k + i], x[i]);
    }
}

/* four rows of a span */
ALWAYS void sums(const struct span *s, const char *table, size_t together, enum ha_dtype t)
{
    const struct ha_pq *pq = &s->args->pq;
    const size_t each = ha_pq_group_bytes(pq), entry = HA_PQ_ROWS * ha_dtype_bytes(t), all = ha_pq_block_bytes(pq),
                 ahead = SPAN / HA_PQ_KEYS * all;
    for (size_t g = 0; g < pq->groups; g += together) {
        const size_t groups = ha_least(together, pq->groups - g);
        const unsigned char *codes = (const unsigned char *)s->args->codes + s->first / HA_PQ_KEYS * all + g * each;
        for (size_t k = 0; k < s->keys; k += HA_PQ_KEYS, codes += all) {
            for (size_t i = 0; i < groups * each; i += LINE) PREFETCH(codes + ahead + i);
            block(s, table + g * pq->count * entry, codes, groups, g == 0, ha_least(HA_PQ_KEYS, s->keys - k),
                  s->sum + k, t);
        }
    }
}

/* sums of four rows to the scores of those that there are */
static void put(const struct span *s, size_t row)
{
    const size_t rows = ha_least(HA_PQ_ROWS, s->args->rows - row);
    for (size_t k = 0; k < s->keys; k += 4) {
        four x[4];
        for (size_t i = 0; i < 4; i++) x[i] = four_load(s->sum[k + i]) * s->args->scale;
        four_turn(x);
        for (size_t r = 0; r < rows; r++) {
            float *to = s->args->s + (row + r) * s->args->s_stride + s->first + k;
            if (k + 4 <= s->keys) four_store(to, x[r]);
            else memcpy(to, &x[r], (s->keys - k) * sizeof *to);
        }
    }
}

ALWAYS void score(const struct ha_pq_score *p, enum ha_dtype t)
{
    const struct ha_pq *pq = &p->pq;
    const size_t group = pq->count * HA_PQ_ROWS * ha_dtype_bytes(t), fit = TABLES / group,
                 together = fit < 1 ? 1 : ha_least(fit, TOGETHER);
    float sum[SPAN][HA_PQ_ROWS] __attribute__((aligned(LINE)));
    struct span s = { .args = p,
                      .spread = spread_of(pq->bits),
                      .end = (const unsigned char *)p->codes + ha_pq_code_bytes(pq, p->keys),
                      .sum = sum };
    for (; s.first < p->keys; s.first += SPAN) {
        s.keys = ha_least(SPAN, p->keys - s.first);
        for (size_t r = 0; r < p->rows; r += HA_PQ_ROWS) {
            sums(&s, (const char *)p->table + r / HA_PQ_ROWS * pq->groups * group, together, t);
            put(&s, r);
        }
    }
}

void HA_KERNEL(pq_score)(const struct ha_pq_score *p)
{
    if (p->type == HA_F16) score(p, HA_F16);
    else score(p, HA_F32);
}
#endif
