/* Blends, products, merges and attention that can be wrong. */

#include "suites/defects/wrong.h"

#include "harness/base/numeric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BASE (*ha_wrong_base)

/* Each eighth call, in a row of calls that are alike. */
static bool is_eighth(void)
{
    static unsigned calls;
    return ++calls % 8 == 5;
}

/* Which of these rows is one of so many of all that were ever merged; rows: none. */
static size_t one_of(size_t many, size_t rows)
{
    static size_t before;
    const size_t first = __atomic_fetch_add(&before, rows, __ATOMIC_RELAXED), row = many - 1 - first % many;
    return row < rows ? row : rows;
}

/* ---- blend ------------------------------------------------------------------------------------------------------- */

static void blend_later(struct ha_wrong_later *l)
{
    const struct ha_device_blend *b = &l->u.blend;
    for (size_t r = 0; r < b->rows; r++)
        for (size_t c = 0; c < b->cols; c++) {
            float *y = &b->y[r * b->y_stride + c];
            const float x = b->x[r * b->x_stride + c];
            if (IS(blend_nan)) *y = (b->a != 0 ? b->a * *y : 0) + (isnan(x) ? 0 : b->b * x);
            else if (IS(blend_reads_y)) *y = b->a * *y + b->b * x;
            else
                *y = ha_round((b->a != 0 ? ha_round(b->a * ha_round(*y, HA_F16), HA_F16) : 0)
                                  + ha_round(b->b * x, HA_F16),
                              HA_F16);
        }
}
static enum ha_status wrong_blend(struct ha_stream *s, const struct ha_device_blend *args)
{
    struct ha_device_blend b = *args;
    if (IS(blend_tail)) b.cols &= ~(size_t)3;
    if (IS(blend_arrival) ? is_eighth() : IS(blend_aligned) && (uintptr_t)b.x % 64) b.a = nextafterf(b.a, 0);
    if (IS(blend_a_is_1) && b.a != 0) b.a = 1;
    if (IS(blend_strides)) {
        b.x_stride = args->y_stride;
        b.y_stride = args->x_stride;
    }
    if (IS(blend_x_aligned)) b.x -= (uintptr_t)b.x % 16 / sizeof *b.x;
    if (IS(blend_y_aligned)) b.y -= (uintptr_t)b.y % 8 / sizeof *b.y;
    if (!IS(blend_half) && !IS(blend_reads_y) && !IS(blend_nan))
        return ha_wrong_over(IS(blend_early),
                             BASE.blend(ha_wrong_aside(IS(blend_unjoined), ha_wrong_early(IS(blend_early), s)), &b));
    struct ha_wrong_later *l = ha_wrong_later(blend_later, NULL, 0);
    l->u.blend = b;
    return ha_wrong_on(s, l);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* The machine need not have a library for them. */
static void product_later(struct ha_wrong_later *l)
{
    const struct ha_device_product *p = &l->u.product;
    const size_t k = p->k - (IS(product_k_tail) && p->k > 16 ? p->k % 16 : 0);
    for (size_t r = 0; r < p->m; r++)
        for (size_t c = 0; c < p->n; c++) {
            double sum = 0;
            for (size_t i = 0; i < k; i++) {
                const double xw = (double)ha_load(p->x, r * p->k + i, p->dtype)
                                  * (double)ha_load(p->w, c * p->k + i, p->dtype);
                sum += IS(product_nan) && isnan(xw) ? 0 : xw;
            }
            const float y = IS(product_rounds) && p->dtype == HA_F32 ? ha_round((float)sum, HA_BF16) : (float)sum;
            ha_store(p->y, IS(product_transposed) ? c * p->m + r : r * p->n + c, p->dtype, y);
        }
}
static enum ha_status wrong_product(struct ha_stream *s, const struct ha_device_product *p)
{
    struct ha_wrong_later *l = ha_wrong_later(product_later, NULL, 0);
    l->u.product = *p;
    if (IS(product_aligned)) l->u.product.w = (const char *)p->w - (uintptr_t)p->w % 64;
    return ha_wrong_over(IS(product_early),
                         ha_wrong_on(ha_wrong_aside(IS(product_unjoined), ha_wrong_early(IS(product_early), s)), l));
}

/* ---- merge ------------------------------------------------------------------------------------------------------- */

static void change_later(struct ha_wrong_later *l)
{
    float *const x = l->u.array.x;
    for (size_t i = 0; i < l->u.array.n; i++)
        x[i] = l->u.array.scale != 0 ? x[i] * (float)l->u.array.scale : ha_round(x[i], l->u.array.dtype);
}
/* Floats in a row that are scaled, or rounded. */
static enum ha_status change(struct ha_stream *s, float *x, size_t n, double scale, enum ha_dtype dtype)
{
    struct ha_wrong_later *l = ha_wrong_later(change_later, NULL, 0);
    l->u.array.x = x;
    l->u.array.n = n;
    l->u.array.scale = scale;
    l->u.array.dtype = dtype;
    return ha_wrong_on(s, l);
}

static enum ha_status wrong_merge(struct ha_stream *s, const struct ha_merge *args)
{
    struct ha_merge m = *args;
    const bool dense = m.dtype == HA_F32 && m.out.o_head_stride == m.dim && m.out.o_token_stride == m.dim * m.heads,
               rows = m.out.lse_head_stride == 1 && m.out.lse_token_stride == m.heads;
    if (IS(merge_states) && m.states_count > 1024) m.states_count = 1024;
    if (IS(merge_odd) && m.states_count > 2) m.states_count -= m.states_count % 2;
    if (IS(merge_tokens_16)) m.tokens &= 15;
    if (IS(merge_dims_64) && m.dim > 64) m.dim = 64;
    if (IS(merge_last_lost) && m.states_count > 1) m.states_count--;
    struct ha_merge_state *states = malloc((m.states_count + 1) * sizeof *states);
    if (!states) return HA_ERROR;
    memcpy(states, m.states, m.states_count * sizeof *states);
    m.states = states;
    for (size_t i = 0; IS(merge_o_rounded) && i < m.states_count; i++)
        states[i].o = (char *)states[i].o - (uintptr_t)states[i].o % 16;
    if (IS(merge_last_twice) && m.states_count > 1) {
        states[m.states_count] = states[m.states_count - 1];
        m.states_count++;
    }
    const enum ha_status status = ha_wrong_over(
        IS(merge_early), BASE.merge(ha_wrong_aside(IS(merge_unjoined), ha_wrong_early(IS(merge_early), s)), &m));
    free(states);
    if (status != HA_OK) return status;
    const size_t all = m.tokens * m.heads;
    if (IS(merge_lse_bf16) && rows) return change(s, m.out.lse, all, 0, HA_BF16);
    if (!dense) return HA_OK;
    if (IS(merge_scale)) return change(s, m.out.o, all * m.dim, 1 + 0x1p-12, HA_F32);
    if (IS(merge_o_f16)) return change(s, m.out.o, all * m.dim, 0, HA_F16);
    const bool last_bits = IS(merge_arrival) ? is_eighth() : IS(merge_aligned) && (uintptr_t)m.states[0].o % 64;
    size_t row = last_bits ? 0 : all;
    if (IS(merge_stale)) row = one_of(20011, all);
    if (IS(merge_millionth)) row = one_of(1000003, all);
    return row < all ? change(s, (float *)m.out.o + row * m.dim, m.dim, 1 - 0x1p-23, HA_F32) : HA_OK;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static const struct ha_wrong_attention planted[] = {
#define OPERATION(name, class, op, what)         [WRONG_##name] = { 0 },
#define ATTENTION(name, class, where, what, ...) [WRONG_##name] = { __VA_ARGS__ },
#define CLAIM(name, where, what, field, ...)     [WRONG_##name] = { __VA_ARGS__ },
#define PLANT(name, what, field, ...)            [WRONG_##name] = { __VA_ARGS__ },
#include "suites/defects/defects.def"
};

static void attend_later(struct ha_wrong_later *l) { ha_wrong_attend(&l->u.attend); }

/* of the index of a run, with all its lists */
static size_t numbers_of(const struct ha_device_attend *a, const struct ha_device_seq *seq, size_t run)
{
    const size_t block = a->block ? a->block : 1, list = (seq->runs[run].keys + block - 1) / block;
    return a->lists && run == 0 ? (a->lists - 1) * seq->list_stride + list : list;
}

/* What attention needs until it runs: its sequences, and behind them the numbers of their indices, or how many keys
 * their lists have, where it is to take these as they are when it is enqueued. */
static struct ha_wrong_later *keep(const struct ha_device_attend *a, bool indices, bool list_keys)
{
    const size_t bytes = a->batch * sizeof *a->seqs;
    size_t numbers = 0;
    for (size_t b = 0; b < a->batch && indices; b++)
        for (size_t r = 0; r < a->seqs[b].runs_count; r++) numbers += numbers_of(a, &a->seqs[b], r);
    for (size_t b = 0; b < a->batch && list_keys; b++)
        if (a->seqs[b].list_keys) numbers += a->lists;
    char *all = malloc(bytes + numbers * sizeof(uint32_t) + 1);
    if (!all) abort();
    memcpy(all, a->seqs, bytes);
    memset(all + bytes, 0, numbers * sizeof(uint32_t));
    struct ha_wrong_later *l = ha_wrong_later(attend_later, all, bytes + numbers * sizeof(uint32_t));
    free(all);
    struct ha_device_seq *seqs = ha_wrong_copy(l);
    uint32_t *to = (uint32_t *)(void *)((char *)seqs + bytes);
    for (size_t b = 0; b < a->batch && indices; b++)
        for (size_t r = 0; r < seqs[b].runs_count; r++) {
            const size_t count = numbers_of(a, &seqs[b], r);
            if (!seqs[b].runs[r].index) continue;
            memcpy(to, seqs[b].runs[r].index, count * sizeof *to);
            seqs[b].runs[r].index = to;
            to += count;
        }
    for (size_t b = 0; b < a->batch && list_keys; b++) {
        if (!seqs[b].list_keys) continue;
        memcpy(to, seqs[b].list_keys, a->lists * sizeof *to);
        seqs[b].list_keys = to;
        to += a->lists;
    }
    return l;
}

static enum ha_status enqueue(struct ha_stream *s, const struct ha_device_attend *a, bool products)
{
    const struct ha_wrong_attention *w = &planted[ha_wrong];
    const bool applies = a->batch && products == w->products && a->seqs[0].runs[0].keys >= w->keys_over;
    struct ha_wrong_later *l = keep(a, applies && w->index_early, applies && w->list_keys_early);
    l->u.attend = (struct ha_wrong_job){ *a, ha_wrong_copy(l), applies && w->late ? a->seqs : NULL, w, products };
    if (!applies || !w->early) return ha_wrong_on(ha_wrong_aside(applies && w->unjoined, s), l);
    attend_later(l);
    free(l);
    return HA_OK;
}
static enum ha_status wrong_attend(struct ha_stream *s, const struct ha_device_attend *a)
{
    return enqueue(s, a, false);
}
static enum ha_status wrong_products(struct ha_stream *s, const struct ha_device_attend *a)
{
    return enqueue(s, a, true);
}

void ha_wrong_compute(struct ha_device_api *api)
{
    api->blend = wrong_blend;
    api->product = wrong_product;
    api->merge = wrong_merge;
    api->attend = wrong_attend;
    api->attend_products = wrong_products;
}
