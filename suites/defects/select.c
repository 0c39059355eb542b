/* What selects keys, wrong: plain loops over the device's memory, which do one step otherwise. */

#include "suites/defects/wrong.h"

#include "harness/base/numeric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t least_of(size_t a, size_t b) { return a < b ? a : b; }

/* which number the minimum of dimension d of block b is; the maxima follow HA_PACK_KEYS later */
static size_t digest_at(size_t b, size_t d, size_t dim)
{
    return (b / HA_PACK_KEYS * dim + d) * 2 * HA_PACK_KEYS + b % HA_PACK_KEYS;
}

/* ---- digests ----------------------------------------------------------------------------------------------------- */

/* dimension d of rows [from, to) */
static void summarise(const struct ha_device_digest *a, const struct ha_rows *rows, const char *k, size_t from,
                      size_t to, size_t d, float out[2])
{
    float sum = 0;
    out[0] = out[1] = 0;
    for (size_t i = from; i < to; i++) {
        const size_t row = rows->index && !IS(digest_index) ? rows->index[i] : i;
        const float x = ha_load(k + row * rows->k_stride_bytes, d, a->dtype);
        if (IS(digest_nan) && isnan(x)) continue;
        out[0] = i == from || isnan(x) || x < out[0] ? x : out[0];
        out[1] = i == from || isnan(x) || (IS(digest_most) ? x < out[1] : x > out[1]) ? x : out[1];
        sum += x;
    }
    if (a->kind == HA_DIGEST_MEAN)
        out[0] = out[1] = to > from ? sum / (float)(IS(digest_mean) ? a->unit : to - from) : 0;
}

static void digest_later(struct ha_wrong_later *l)
{
    const struct ha_device_digest *a = &l->u.digest;
    const struct ha_device_digest_seq *seqs = ha_wrong_copy(l);
    const size_t e = ha_dtype_bytes(a->dtype);
    for (size_t n = 0; n < a->batch * a->kv_heads; n++) {
        const struct ha_device_digest_seq *m = &seqs[n / a->kv_heads];
        const size_t h = n % a->kv_heads, end = m->first + m->blocks,
                     bytes = ha_digest_bytes(end, a->head_dim, a->dtype), whole = m->rows.keys / a->unit * a->unit;
        char *to = (char *)m->digests + h * (IS(digest_heads) ? bytes : m->head_bytes);
        const char *k = (const char *)m->rows.k + h * m->k_head_bytes;
        for (size_t d = 0; d < a->head_dim; d++) {
            for (size_t i = IS(digest_open) && m->first; i < m->blocks; i++) {
                const size_t from = least_of(i * a->unit, m->rows.keys),
                             last = least_of(from + a->unit, IS(digest_ragged) && whole ? whole : m->rows.keys),
                             at = digest_at(m->first + i, d, a->head_dim);
                float x[2];
                summarise(a, &m->rows, k, from, last, d, x);
                ha_store(to, at, a->dtype, x[0]);
                ha_store(to, at + HA_PACK_KEYS, a->dtype, x[1]);
            }
            for (size_t i = m->first / HA_PACK_KEYS * HA_PACK_KEYS; i < m->first && IS(digest_before); i++)
                memset(to + digest_at(i, d, a->head_dim) * e, 0, e);
            for (size_t i = end; i % HA_PACK_KEYS && !IS(digest_tail); i++) {
                memset(to + digest_at(i, d, a->head_dim) * e, 0, e);
                memset(to + (digest_at(i, d, a->head_dim) + HA_PACK_KEYS) * e, 0, e);
            }
        }
    }
}
static enum ha_status wrong_digest(struct ha_stream *s, const struct ha_device_digest *a)
{
    struct ha_wrong_later *l = ha_wrong_later(digest_later, a->seqs, a->batch * sizeof *a->seqs);
    l->u.digest = *a;
    return ha_wrong_over(IS(digest_early),
                         ha_wrong_on(ha_wrong_aside(IS(digest_unjoined), ha_wrong_early(IS(digest_early), s)), l));
}

/* ---- their scores ------------------------------------------------------------------------------------------------ */

static float score(const struct ha_device_digest_score *a, const float *q, const char *digests, size_t b)
{
    const size_t terms = IS(score_tail) ? a->head_dim / 32 * 32 : a->head_dim;
    float sum = 0;
    for (size_t d = 0; d < terms; d++) {
        const size_t at = digest_at(b, d, a->head_dim);
        const bool least = IS(score_sign) ? q[d] > 0 : q[d] < 0;
        float x = ha_load(digests, at + (least ? 0 : HA_PACK_KEYS), a->dtype);
        if (IS(score_mean)) x = 0.5f * (ha_load(digests, at, a->dtype) + ha_load(digests, at + HA_PACK_KEYS, a->dtype));
        if ((q[d] == 0 && isinf(x) && !IS(score_infinity)) || (IS(score_nan) && isnan(x))) continue;
        sum += q[d] * x;
        if (IS(score_rounds)) sum = ha_round(sum, HA_BF16);
    }
    return IS(score_unscaled) ? sum : a->scale * sum;
}

static void score_later(struct ha_wrong_later *l)
{
    const struct ha_device_digest_score *a = &l->u.digest_score;
    const struct ha_device_score_seq *seqs = ha_wrong_copy(l);
    const size_t group = a->q_heads / a->kv_heads;
    for (size_t n = 0; n < a->batch * a->q_heads * a->q_len; n++) {
        const struct ha_device_score_seq *m = &seqs[n / (a->q_heads * a->q_len)];
        const size_t h = n / a->q_len % a->q_heads, t = n % a->q_len, kv = IS(score_head) ? h % a->kv_heads : h / group;
        const float *q = m->q + (IS(score_token) ? h * a->q_len + t : t * a->q_heads + h) * a->head_dim;
        for (size_t b = 0; b < m->blocks; b++)
            m->s[(h * a->q_len + t) * (IS(score_stride) ? m->blocks : m->s_stride) + b] = score(
                a, q, (const char *)m->digests + kv * m->head_bytes, b);
    }
}
static enum ha_status wrong_digest_score(struct ha_stream *s, const struct ha_device_digest_score *a)
{
    struct ha_wrong_later *l = ha_wrong_later(score_later, a->seqs, a->batch * sizeof *a->seqs);
    l->u.digest_score = *a;
    return ha_wrong_over(IS(score_early),
                         ha_wrong_on(ha_wrong_aside(IS(score_unjoined), ha_wrong_early(IS(score_early), s)), l));
}

/* ---- the largest ------------------------------------------------------------------------------------------------- */

struct numbered {
    float x;
    uint32_t i;
};

/* those that are chosen first come first */
static int by_size(const void *left, const void *right)
{
    const struct numbered *a = left, *b = right;
    const bool a_nan = isnan(a->x), b_nan = isnan(b->x), late = IS(topk_tie);
    if (a_nan != b_nan) return (IS(topk_nan) ? b_nan : a_nan) ? 1 : -1;
    if (!a_nan && a->x != b->x) return a->x < b->x ? 1 : -1;
    if (IS(topk_zero) && signbit(a->x) != signbit(b->x)) return signbit(a->x) ? 1 : -1;
    return (a->i > b->i) != late ? 1 : -1;
}
static int by_place(const void *left, const void *right)
{
    const struct numbered *a = left, *b = right;
    return a->i < b->i ? -1 : 1;
}

/* those of the first `all` that are near the largest */
static size_t keep_near(const struct ha_device_topk *a, const struct ha_device_topk_seq *m, size_t list,
                        struct numbered *of, size_t all)
{
    size_t kept = 0;
    float most = NAN;
    if (!m->keys || IS(topk_within)) return all;
    for (size_t i = 0; i < all; i++) most = fmaxf(most, of[i].x);
    if (IS(topk_within_row))
        for (size_t i = 0; i < m->n; i++) {
            const float x = m->x[list * a->rows * m->stride + i];
            most = i ? fmaxf(most, x) : x;
        }
    const float least = most - m->within;
    for (size_t i = 0; i < all; i++) {
        const float x = of[i].x;
        if (isnan(x) ? !IS(topk_within_nan) : x < least || (IS(topk_within_more) && x == least)) continue;
        if (IS(topk_within_infinity) && isnan(least)) continue;
        of[kept++] = of[i];
    }
    return kept;
}

static void topk_later(struct ha_wrong_later *l)
{
    const struct ha_device_topk *a = &l->u.topk;
    const struct ha_device_topk_seq *seqs = ha_wrong_copy(l);
    for (size_t n = 0; n < a->batch * a->lists; n++) {
        const struct ha_device_topk_seq *m = &seqs[n / a->lists];
        const size_t list = n % a->lists, unit = m->keys_unit && !IS(topk_unit) ? m->keys_unit : 1;
        const bool asked = !m->only || IS(topk_only) || (IS(topk_only_one) ? m->only[list] == 1 : m->only[list]);
        if (!asked) {
            if (IS(topk_only_keys) && m->keys) m->keys[list] = 0;
            continue;
        }
        const size_t count = IS(topk_16) ? least_of(m->n, 65535) : m->n, stride = IS(topk_stride) ? m->n : m->stride;
        size_t all = least_of(m->k, count);
        struct numbered *of = malloc((count + 1) * sizeof *of);
        if (!of) abort();
        for (size_t i = 0; i < count; i++) {
            const float *x = m->x + list * a->rows * stride + i;
            of[i] = (struct numbered){ *x, (uint32_t)i };
            for (size_t r = 1; r < (IS(topk_row) ? 1 : a->rows); r++)
                of[i].x = IS(topk_rows) ? of[i].x + x[r * stride] : fmaxf(of[i].x, x[r * stride]);
        }
        qsort(of, count, sizeof *of, by_size);
        all = keep_near(a, m, list, of, all);
        if (!IS(topk_order)) qsort(of, all, sizeof *of, by_place);
        if (m->keys && !IS(topk_uncounted)) m->keys[list] = (uint32_t)(all * unit);
        for (size_t i = 0; i < all - (IS(topk_less) && all); i++)
            m->index[list * m->index_stride + i] = of[i].i + (IS(topk_first) ? 0 : m->first);
        if (IS(topk_more)) m->index[list * m->index_stride + all] = 0;
        free(of);
    }
}
static enum ha_status wrong_topk(struct ha_stream *s, const struct ha_device_topk *a)
{
    struct ha_wrong_later *l = ha_wrong_later(topk_later, a->seqs, a->batch * sizeof *a->seqs);
    struct ha_device_topk_seq *seqs = ha_wrong_copy(l);
    l->u.topk = *a;
    for (size_t b = 0; b < a->batch && IS(topk_only_early); b++) seqs[b].only = ha_wrong_words(seqs[b].only, a->lists);
    return ha_wrong_over(IS(topk_early),
                         ha_wrong_on(ha_wrong_aside(IS(topk_unjoined), ha_wrong_early(IS(topk_early), s)), l));
}

/* ---- what a cache has -------------------------------------------------------------------------------------------- */

static size_t table_of(const struct ha_device_split *a, size_t list)
{
    if (IS(split_table)) return 0;
    return IS(split_turns) ? list % a->tables : list * a->tables / a->lists;
}

static bool is_here(uint32_t slot)
{
    if ((IS(split_zero) && slot == 0) || (IS(split_sign) && slot >> 31)) return false;
    return IS(split_swapped) ? slot == HA_SLOT_NONE : slot != HA_SLOT_NONE;
}

static void reverse(uint32_t *x, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        const uint32_t first = x[i];
        x[i] = x[n - 1 - i];
        x[n - 1 - i] = first;
    }
}

static void split_later(struct ha_wrong_later *l)
{
    const struct ha_device_split *a = &l->u.split;
    const struct ha_device_split_seq *seqs = ha_wrong_copy(l);
    for (size_t n = 0; n < a->batch * a->lists; n++) {
        const struct ha_device_split_seq *m = &seqs[n / a->lists];
        const size_t list = n % a->lists, at = list * (IS(split_stride) ? m->count : m->out_stride);
        const uint32_t *slot = m->slot + table_of(a, list) * m->slot_stride;
        uint32_t *here = m->here + at, *missing = m->missing ? m->missing + at : NULL;
        size_t count[2] = { 0 };
        for (size_t i = 0; i < m->count; i++) {
            const uint32_t block = m->index[list * m->index_stride + i];
            if (is_here(slot[block])) here[count[0]++] = IS(split_blocks) ? block : slot[block];
            else {
                if (missing) missing[count[1]] = IS(split_places) ? (uint32_t)i : block;
                count[1]++;
            }
        }
        if (IS(split_order)) reverse(here, count[0]);
        if (IS(split_order_missing) && missing) reverse(missing, count[1]);
        if (IS(split_beside) && missing) missing[m->count] = 0;
        const size_t unit = m->here_unit && !IS(split_unit) ? m->here_unit : 1;
        m->here_count[list] = (uint32_t)((count[0] - (IS(split_less) && count[0])) * unit);
        if (m->missing_count) m->missing_count[list] = (uint32_t)(IS(split_all) ? m->count : count[1]);
    }
}
static enum ha_status wrong_split(struct ha_stream *s, const struct ha_device_split *a)
{
    struct ha_wrong_later *l = ha_wrong_later(split_later, a->seqs, a->batch * sizeof *a->seqs);
    l->u.split = *a;
    return ha_wrong_over(IS(split_early),
                         ha_wrong_on(ha_wrong_aside(IS(split_unjoined), ha_wrong_early(IS(split_early), s)), l));
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

static void rotate_later(struct ha_wrong_later *l)
{
    const struct ha_device_rotate *r = &l->u.rotate;
    const size_t dim = r->head_dim, turned = r->turn ? r->rotary : 0, pairs = turned / 2;
    const bool adjacent = IS(rotate_pairs) ? !r->adjacent : r->adjacent;
    for (size_t row = 0; row < r->tokens * r->heads; row++) {
        const size_t token = row / r->heads, by = IS(rotate_next) ? (token + 1) % r->tokens : token;
        const float *bias = r->bias ? r->bias + (IS(rotate_bias) ? 0 : row % r->heads) * dim : NULL, *turn = r->turn;
        float *q = r->q + row * dim, squares = 0;
        for (size_t d = 0; bias && !IS(rotate_bias_late) && d < dim; d++) q[d] += bias[d];
        for (size_t d = 0; d < dim; d++) squares += q[d] * q[d];
        const float root = sqrtf(squares / (float)dim + (IS(rotate_eps) ? 0 : r->norm_eps));
        for (size_t d = 0; r->norm && !IS(rotate_norm) && d < (IS(rotate_norm_tail) && pairs ? turned : dim); d++)
            q[d] *= r->norm[d] / root;
        for (size_t d = 0; bias && IS(rotate_bias_late) && d < dim; d++) q[d] += bias[d];
        for (size_t j = 0; j < pairs; j++) {
            float *a = q + (adjacent ? 2 * j : j), *b = a + (adjacent ? 1 : IS(rotate_half) ? dim / 2 : pairs);
            const float x = *a, y = *b, c = turn[by * turned + 2 * j],
                        s = IS(rotate_back) ? -turn[by * turned + 2 * j + 1] : turn[by * turned + 2 * j + 1];
            *a = x * c - y * s;
            *b = y * c + x * s;
        }
    }
}
static enum ha_status wrong_rotate(struct ha_stream *s, const struct ha_device_rotate *r)
{
    struct ha_wrong_later *l = ha_wrong_later(rotate_later, NULL, 0);
    l->u.rotate = *r;
    return ha_wrong_over(IS(rotate_early),
                         ha_wrong_on(ha_wrong_aside(IS(rotate_unjoined), ha_wrong_early(IS(rotate_early), s)), l));
}

void ha_wrong_select(struct ha_device_api *api)
{
    api->digest = wrong_digest;
    api->digest_score = wrong_digest_score;
    api->topk = wrong_topk;
    api->split = wrong_split;
    api->rotate = wrong_rotate;
}
