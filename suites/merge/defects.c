#include "suites/merge/defects.h"

#include "harness/base/numeric.h"

#include <math.h>
#include <string.h>

/* A plain two-pass merge in steps. A defect is the right steps with one of them replaced. */

enum { DIM = 256 };

struct range {
    float first, max, min; /* over the states that have keys; all -inf where none has */
};

struct steps {
    size_t (*count)(const struct ha_merge *m); /* of states that are merged */
    size_t (*dim)(const struct ha_merge *m);   /* of elements that are merged */
    size_t (*o_at)(const struct ha_merge *m, size_t state, size_t t,
                   size_t h); /* element at which a state's row begins */
    size_t (*lse_at)(const struct ha_merge *m, size_t state, size_t t, size_t h);
    float (*take)(const struct ha_merge *m, float lse);        /* LSE as it is understood; -inf: no keys */
    size_t (*partner)(const struct ha_merge *m, size_t state); /* the state whose weight the o of `state` gets */
    bool (*nothing)(float *o, float *lse); /* what a row without keys gives; false: it is not written */
    float (*shift)(const struct range *all, const struct range *so_far);
    float (*power)(const struct ha_merge *m, float x);
    float (*log)(const struct ha_merge *m, float x);
    float (*mass)(float sum); /* HA_FORM_MAX_SUM: of a state, over exp(max) */
    float (*share)(float weight, float sum);
    bool (*skips)(float lse); /* o is not read */
    void (*add)(float *acc, const float *x, size_t n, float share);
    void (*finish)(const struct ha_merge *m, float *acc, size_t n, float sum);
    bool lse_first; /* LSE is written before o is computed */
};

/* ---- the right steps ------------------------------------------------------------------------------------------ */

static size_t all_states(const struct ha_merge *m) { return m->states_count; }
static size_t all_elements(const struct ha_merge *m) { return m->dim; }

static size_t o_index(const struct ha_merge_state *s, size_t t, size_t h)
{
    return t * s->o_token_stride + h * s->o_head_stride;
}
static size_t lse_index(const struct ha_merge_state *s, size_t t, size_t h)
{
    return t * s->lse_token_stride + h * s->lse_head_stride;
}

static size_t own_o(const struct ha_merge *m, size_t state, size_t t, size_t h)
{
    return o_index(&m->states[state], t, h);
}
static size_t own_lse(const struct ha_merge *m, size_t state, size_t t, size_t h)
{
    return lse_index(&m->states[state], t, h);
}

static float as_agreed(const struct ha_merge *m, float lse)
{
    return m->plus_inf_is_empty && lse == INFINITY ? -INFINITY : lse;
}
static size_t itself(const struct ha_merge *m, size_t state) { return (void)m, state; }

static bool zero(float *o, float *lse)
{
    *o = 0;
    *lse = -INFINITY;
    return true;
}

static float by_max(const struct range *all, const struct range *so_far) { return (void)so_far, all->max; }
static float own_power(const struct ha_merge *m, float x) { return m->form == HA_FORM_BASE2 ? exp2f(x) : expf(x); }
static float own_log(const struct ha_merge *m, float x) { return m->form == HA_FORM_BASE2 ? log2f(x) : logf(x); }
static float own_mass(float sum) { return sum; }
static float of_sum(float weight, float sum) { return weight / sum; }
static bool empties(float lse) { return lse == -INFINITY; }

static void add_product(float *acc, const float *x, size_t n, float share)
{
    for (size_t i = 0; i < n; i++) acc[i] += share * x[i];
}

static void leave(const struct ha_merge *m, float *acc, size_t n, float sum) { (void)m, (void)acc, (void)n, (void)sum; }

static const struct steps right = { all_states, all_elements, own_o,    own_lse, as_agreed, itself,      zero,  by_max,
                                    own_power,  own_log,      own_mass, of_sum,  empties,   add_product, leave, false };

/* ---- the merge ------------------------------------------------------------------------------------------------ */

static float lse_of(const struct ha_merge *m, const struct steps *by, size_t state, size_t t, size_t h)
{
    return by->take(m, m->states[state].lse[by->lse_at(m, state, t, h)]);
}

/* The larger of two, and NaN where one of them is NaN. */
static void widen(struct range *r, float lse)
{
    if (lse == -INFINITY) return;
    if (r->max == -INFINITY) r->first = r->max = r->min = lse;
    if (lse > r->max || isnan(lse)) r->max = lse;
    if (lse < r->min) r->min = lse;
}

static float weight_of(const struct ha_merge *m, const struct steps *by, size_t state, size_t t, size_t h, float lse,
                       float shift)
{
    const float w = by->power(m, lse - shift);
    return m->form == HA_FORM_MAX_SUM && lse != -INFINITY
               ? w * by->mass(m->states[state].sum[by->lse_at(m, state, t, h)])
               : w;
}

static void store(const struct ha_merge *m, size_t t, size_t h, size_t d, size_t n, const float *o)
{
    ha_store_row((char *)m->out.o + (o_index(&m->out, t, h) + d) * ha_dtype_bytes(m->dtype), n, m->dtype, o);
}

static void store_lse(const struct ha_merge *m, size_t t, size_t h, float lse, float sum)
{
    m->out.lse[lse_index(&m->out, t, h)] = lse;
    if (m->form == HA_FORM_MAX_SUM) m->out.sum[lse_index(&m->out, t, h)] = sum;
}

static void merge_nothing(const struct ha_merge *m, const struct steps *by, size_t t, size_t h)
{
    float o[DIM], lse;
    if (!by->nothing(&o[0], &lse)) return;
    for (size_t i = 1; i < DIM; i++) o[i] = o[0];
    for (size_t d = 0; d < m->dim; d += DIM) store(m, t, h, d, m->dim - d < DIM ? m->dim - d : DIM, o);
    store_lse(m, t, h, lse, 0);
}

static void merge_row(const struct ha_merge *m, const struct steps *by, size_t t, size_t h)
{
    const size_t count = by->count(m), dim = by->dim(m);
    struct range all = { -INFINITY, -INFINITY, -INFINITY }, so_far = all;
    for (size_t s = 0; s < count; s++) widen(&all, lse_of(m, by, s, t, h));
    if (all.max == -INFINITY) {
        merge_nothing(m, by, t, h);
        return;
    }
    float sum = 0;
    for (size_t s = 0; s < count; s++) {
        const float lse = lse_of(m, by, s, t, h);
        widen(&so_far, lse);
        if (lse != -INFINITY) sum += weight_of(m, by, s, t, h, lse, by->shift(&all, &so_far));
    }
    const bool direct = m->form == HA_FORM_DIRECT;
    const float shift = by->shift(&all, &all);
    const float lse = m->form == HA_FORM_MAX_SUM || sum == 1
                          ? shift
                          : shift + by->log(m, sum); /* log 1 is 0 and changes nothing, but -0 + 0 would be +0 */
    const float whole = direct ? 1 : sum;
    if (by->lse_first) store_lse(m, t, h, lse, sum);
    for (size_t d = 0; d < dim; d += DIM) {
        const size_t n = dim - d < DIM ? dim - d : DIM;
        float acc[DIM], x[DIM];
        for (size_t i = 0; i < n; i++) acc[i] = -0.0f; /* -0 + x is x for every x, also for -0 */
        so_far = (struct range){ -INFINITY, -INFINITY, -INFINITY };
        for (size_t s = 0; s < count; s++) {
            const float own = lse_of(m, by, s, t, h);
            widen(&so_far, own);
            if (by->skips(own)) continue;
            const size_t p = by->partner(m, s);
            const float against = direct ? lse : by->shift(&all, &so_far),
                        w = weight_of(m, by, p, t, h, lse_of(m, by, p, t, h), against);
            ha_load_row((const char *)m->states[s].o + (by->o_at(m, s, t, h) + d) * ha_dtype_bytes(m->dtype), n,
                        m->dtype, x);
            by->add(acc, x, n, direct ? w : by->share(w, whole));
        }
        by->finish(m, acc, n, whole);
        store(m, t, h, d, n, acc);
    }
    store_lse(m, t, h, lse, sum);
}

static void merge(const struct ha_merge *m, const struct steps *by)
{
    for (size_t t = 0; t < m->tokens; t++)
        for (size_t h = 0; h < m->heads; h++) merge_row(m, by, t, h);
}

/* ---- the wrong steps ------------------------------------------------------------------------------------------ */

static size_t even_states(const struct ha_merge *m) { return m->states_count & ~(size_t)1; }
static size_t a_warp_of_states(const struct ha_merge *m) { return m->states_count < 32 ? m->states_count : 32; }
static size_t whole_vectors(const struct ha_merge *m) { return m->dim & ~(size_t)31; }

/* Wrong strides must show in the numbers and not as a crash: they do not lead past the state's last row. */
static size_t within(size_t index, size_t last) { return index < last ? index : last; }

static size_t o_strides_of_first(const struct ha_merge *m, size_t state, size_t t, size_t h)
{
    return within(o_index(&m->states[0], t, h), own_o(m, state, m->tokens - 1, m->heads - 1));
}

static size_t lse_strides_of_first(const struct ha_merge *m, size_t state, size_t t, size_t h)
{
    return within(lse_index(&m->states[0], t, h), own_lse(m, state, m->tokens - 1, m->heads - 1));
}

static size_t o_packed(const struct ha_merge *m, size_t state, size_t t, size_t h)
{
    return within((t * m->heads + h) * m->dim, own_o(m, state, m->tokens - 1, m->heads - 1));
}

static size_t lse_packed(const struct ha_merge *m, size_t state, size_t t, size_t h)
{
    return within(t * m->heads + h, own_lse(m, state, m->tokens - 1, m->heads - 1));
}

static size_t o_in_32_bits(const struct ha_merge *m, size_t state, size_t t, size_t h)
{
    return (uint32_t)own_o(m, state, t, h);
}

/* [tokens][heads] read as [heads][tokens], or the other way round, whichever it is */
static size_t lse_swapped(const struct ha_merge *m, size_t state, size_t t, size_t h)
{
    const bool heads_inside = m->states[state].lse_head_stride <= m->states[state].lse_token_stride;
    const size_t at = heads_inside ? h * m->tokens + t : t * m->heads + h;
    return heads_inside ? own_lse(m, state, at / m->heads, at % m->heads)
                        : own_lse(m, state, at % m->tokens, at / m->tokens);
}

static size_t lse_of_even_head(const struct ha_merge *m, size_t state, size_t t, size_t h)
{
    return own_lse(m, state, t, h - h % 2);
}

static float take_plus_inf(const struct ha_merge *m, float lse) { return (void)m, lse; }
static float take_above_sentinel(const struct ha_merge *m, float lse)
{
    return lse <= -5e4f ? -INFINITY : as_agreed(m, lse);
}
static float take_nan_for_empty(const struct ha_merge *m, float lse)
{
    return isnan(lse) ? -INFINITY : as_agreed(m, lse);
}
static float take_tiny_for_empty(const struct ha_merge *m, float lse)
{
    return fabsf(lse) < 1e-6f ? -INFINITY : as_agreed(m, lse);
}
static float take_f16(const struct ha_merge *m, float lse) { return ha_round(as_agreed(m, lse), HA_F16); }
static float take_bf16(const struct ha_merge *m, float lse) { return ha_round(as_agreed(m, lse), HA_BF16); }

static float take_empty_for(const struct ha_merge *m, float lse, float finite)
{
    const float l = as_agreed(m, lse);
    return l == -INFINITY ? finite : l;
}
static float take_empty_for_zero(const struct ha_merge *m, float lse) { return take_empty_for(m, lse, 0); }
static float take_empty_for_mask(const struct ha_merge *m, float lse) { return take_empty_for(m, lse, -1e4f); }

static size_t from_the_end(const struct ha_merge *m, size_t state) { return m->states_count - 1 - state; }

static bool nan_for_nothing(float *o, float *lse)
{
    *o = *lse = NAN;
    return true;
}

static bool plus_inf_for_nothing(float *o, float *lse)
{
    *o = 0;
    *lse = INFINITY;
    return true;
}

static bool sentinel_for_nothing(float *o, float *lse)
{
    *o = 0;
    *lse = -1e4f;
    return true;
}

static bool not_written(float *o, float *lse) { return (void)o, (void)lse, false; }

static float by_none(const struct range *all, const struct range *so_far) { return (void)all, (void)so_far, 0; }
static float by_min(const struct range *all, const struct range *so_far) { return (void)so_far, all->min; }
static float by_first(const struct range *all, const struct range *so_far) { return (void)so_far, all->first; }
static float by_max_from_zero(const struct range *all, const struct range *so_far)
{
    return (void)so_far, all->max < 0 ? 0 : all->max;
}
static float by_max_so_far(const struct range *all, const struct range *so_far) { return (void)all, so_far->max; }

static float other_power(const struct ha_merge *m, float x) { return m->form == HA_FORM_BASE2 ? expf(x) : exp2f(x); }
static float other_log(const struct ha_merge *m, float x) { return m->form == HA_FORM_BASE2 ? logf(x) : log2f(x); }
static float no_power(const struct ha_merge *m, float x) { return (void)m, x == -INFINITY ? 0 : isnan(x) ? x : 1; }
static float clamped_power(const struct ha_merge *m, float x)
{
    const float least = m->form == HA_FORM_BASE2 ? -29 : -20;
    return own_power(m, x < least ? least : x);
}
static float no_log(const struct ha_merge *m, float x) { return (void)m, isnan(x) ? x : 0; }
static float mass_of_one(float sum) { return isnan(sum) ? sum : 1; }

static float of_nothing(float weight, float sum) { return (void)sum, weight; }
/* up or down as the last bit of x says; exp(0) stays 1 */
static float coarse_power(const struct ha_merge *m, float x)
{
    union {
        float f;
        uint32_t u;
    } bits = { .f = x };
    return x == 0 ? 1 : own_power(m, x) * (1 + (bits.u & 1u ? 10 : -10) * 0x1p-23f);
}
static float of_sum_bf16(float weight, float sum) { return ha_round(weight / sum, HA_BF16); }
static bool none(float lse) { return (void)lse, false; }

static void add_f16(float *acc, const float *x, size_t n, float share)
{
    for (size_t i = 0; i < n; i++) acc[i] = ha_round(acc[i] + ha_round(share * x[i], HA_F16), HA_F16);
}

static void add_bf16(float *acc, const float *x, size_t n, float share)
{
    for (size_t i = 0; i < n; i++) acc[i] = ha_round(acc[i] + share * x[i], HA_BF16);
}

static void divide(const struct ha_merge *m, float *acc, size_t n, float sum)
{
    (void)m;
    for (size_t i = 0; i < n; i++) acc[i] /= sum;
}

static void nan_to_zero(const struct ha_merge *m, float *acc, size_t n, float sum)
{
    (void)m, (void)sum;
    for (size_t i = 0; i < n; i++) acc[i] = isnan(acc[i]) ? 0 : acc[i];
}

static void flush_subnormals(const struct ha_merge *m, float *acc, size_t n, float sum)
{
    (void)sum;
    const float smallest = m->dtype == HA_F16 ? 0x1p-14f : 0x1p-126f;
    for (size_t i = 0; i < n; i++) acc[i] = fabsf(acc[i]) < smallest ? 0 : acc[i];
}

/* the bits that the 16-bit type has no room for are cut off */
static void truncate(const struct ha_merge *m, float *acc, size_t n, float sum)
{
    (void)sum;
    const uint32_t kept = m->dtype == HA_F16 ? 0xffffe000u : 0xffff0000u;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &acc[i], sizeof bits);
        bits &= kept;
        memcpy(&acc[i], &bits, sizeof bits);
    }
}

/* ---- the gallery ---------------------------------------------------------------------------------------------- */

#define HA_DEFECT(name, change, ...)                   \
    static void merge_##name(const struct ha_merge *m) \
    {                                                  \
        struct steps by = right;                       \
        change;                                        \
        merge(m, &by);                                 \
    }
#include "suites/merge/defects.def"
#undef HA_DEFECT

#define F(form)  (1u << HA_FORM_##form)
#define D(dtype) (1u << HA_##dtype)
const struct ha_merge_defect ha_lse_merge_defects[] = {
#define HA_DEFECT(name, change, forms, dtypes, finder, does, seen) \
    { #name, does, seen, finder, forms, dtypes, merge_##name },
#include "suites/merge/defects.def"
#undef HA_DEFECT
};
const size_t ha_lse_merge_defects_count = sizeof ha_lse_merge_defects / sizeof ha_lse_merge_defects[0];
