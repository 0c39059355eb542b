/* The gallery: merges that are right but for one mistake, each of which has been made or is easily made. A check that
 * does not catch all of them is no check. They read and write only elements that the arguments name, so that a defect
 * shows in numbers and not as a crash. */

#include "suites/merge/merge_suite.h"

#include "harness/base/numeric.h"

#include <math.h>
#include <string.h>

/* What may be wrong in a plain two-pass merge. Zero is right, but where `right` says otherwise. */
struct steps {
    /* which states and elements are merged */
    size_t states_most;
    bool in_pairs; /* the odd last state is left out */
    size_t vector; /* whole vectors of so many elements */

    /* where a state's rows of o and its LSE are read */
    enum place { OWN, STRIDES_OF_FIRST, PACKED, IN_32_BITS, SWAPPED, OF_EVEN_HEAD } o_at, lse_at;

    /* LSE as it is understood */
    bool plus_inf_taken;
    float sentinel, tiny; /* no keys: LSE <= sentinel, |LSE| < tiny, */
    bool nan_is_empty;    /* and NaN */
    float empty_is;       /* the LSE that a state without keys gets */
    enum ha_dtype lse_type;

    /* a row of which no state has keys */
    bool nothing_unwritten;
    float nothing_o, nothing_lse;

    /* weights */
    enum { BY_MAX, BY_NONE, BY_MIN, BY_FIRST, BY_MAX_FROM_0, BY_MAX_SO_FAR } shift;
    enum { EXP, OTHER_EXP, NO_EXP, CLAMPED_EXP, COARSE_EXP } power;
    enum { LOG, OTHER_LOG, NO_LOG } log;
    bool sum_ignored; /* of a state, in HA_FORM_MAX_SUM */
    bool undivided;
    enum ha_dtype weight_type;
    bool reversed; /* the first state's o gets the last one's weight, and so on */

    /* o */
    bool empty_read, plus_inf_read; /* of those without keys all, or those marked with +inf */
    enum ha_dtype sum_type;
    enum { AS_IT_IS, DIVIDED, NAN_TO_0, FLUSHED, CUT_OFF } finish;
    bool lse_first; /* LSE is written before o is computed */
    enum { BY_SCALE, TIMES_SCALE, TOWARDS_ZERO, TIES_AWAY, BY_BF16, NOT_SATURATED, NAN_SATURATED, OTHER_BIAS } fp8;
};

static const struct steps right = {
    .states_most = SIZE_MAX, .vector = 1, .sentinel = -INFINITY, .empty_is = -INFINITY, .nothing_lse = -INFINITY
};

/* ---- the steps ------------------------------------------------------------------------------------------------ */

static size_t index_of(const struct ha_merge_state *s, bool lse, size_t t, size_t h)
{
    return lse ? t * s->lse_token_stride + h * s->lse_head_stride : t * s->o_token_stride + h * s->o_head_stride;
}

/* The element at which row (t, h) of a state begins. Wrong strides must show in the numbers and not as a crash: they do
 * not lead past the state's last row. */
static size_t place_of(const struct ha_merge *m, enum place place, bool lse, size_t state, size_t t, size_t h)
{
    const struct ha_merge_state *s = &m->states[state];
    const size_t own = index_of(s, lse, t, h), last = index_of(s, lse, m->tokens - 1, m->heads - 1);
    size_t at = own;
    switch (place) {
    case OWN: return own;
    case STRIDES_OF_FIRST: at = index_of(&m->states[0], lse, t, h); break;
    case PACKED: at = (t * m->heads + h) * (lse ? 1 : m->dim); break;
    case IN_32_BITS: return (uint32_t)own;
    case OF_EVEN_HEAD: return index_of(s, lse, t, h - h % 2);
    case SWAPPED: /* [tokens][heads] read as [heads][tokens], or the other way round, whichever it is */
        if (s->lse_head_stride <= s->lse_token_stride) {
            at = h * m->tokens + t;
            return index_of(s, lse, at / m->heads, at % m->heads);
        }
        at = t * m->heads + h;
        return index_of(s, lse, at % m->tokens, at / m->tokens);
    }
    return at < last ? at : last;
}

/* -inf: no keys */
static float lse_of(const struct ha_merge *m, const struct steps *by, size_t state, size_t t, size_t h)
{
    float lse = m->states[state].lse[place_of(m, by->lse_at, true, state, t, h)];
    if (m->plus_inf_is_empty && !by->plus_inf_taken && lse == INFINITY) lse = -INFINITY;
    if (lse <= by->sentinel || fabsf(lse) < by->tiny || (by->nan_is_empty && isnan(lse))) lse = -INFINITY;
    return lse == -INFINITY ? by->empty_is : ha_round(lse, by->lse_type);
}

struct range {
    float first, max, min; /* over the states that have keys; all -inf where none has */
};

/* The larger of two, and NaN where one of them is NaN. */
static void widen(struct range *r, float lse)
{
    if (lse == -INFINITY) return;
    if (r->max == -INFINITY) r->first = r->max = r->min = lse;
    if (lse > r->max || isnan(lse)) r->max = lse;
    if (lse < r->min) r->min = lse;
}

static float shift_of(const struct steps *by, const struct range *all, const struct range *so_far)
{
    switch (by->shift) {
    case BY_MAX: break;
    case BY_NONE: return 0;
    case BY_MIN: return all->min;
    case BY_FIRST: return all->first;
    case BY_MAX_FROM_0: return all->max < 0 ? 0 : all->max;
    case BY_MAX_SO_FAR: return so_far->max;
    }
    return all->max;
}

static float power_of(const struct ha_merge *m, const struct steps *by, float x)
{
    const bool base2 = m->form == HA_FORM_BASE2;
    const float least = base2 ? -29 : -20;
    if (by->power == NO_EXP) return x == -INFINITY ? 0 : isnan(x) ? x : 1;
    if (by->power == CLAMPED_EXP && x < least) x = least;
    const float power = base2 == (by->power != OTHER_EXP) ? exp2f(x) : expf(x);
    if (by->power != COARSE_EXP || x == 0) return power;
    /* up or down as the last bit of x says; exp(0) stays 1 */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return power * (1 + (bits & 1u ? 10 : -10) * 0x1p-23f);
}

static float log_of(const struct ha_merge *m, const struct steps *by, float x)
{
    if (by->log == NO_LOG) return isnan(x) ? x : 0;
    return (m->form == HA_FORM_BASE2) == (by->log != OTHER_LOG) ? log2f(x) : logf(x);
}

static float weight_of(const struct ha_merge *m, const struct steps *by, size_t state, size_t t, size_t h, float shift)
{
    const float lse = lse_of(m, by, state, t, h), w = power_of(m, by, lse - shift);
    if (m->form != HA_FORM_MAX_SUM || lse == -INFINITY) return w;
    const float sum = m->states[state].sum[place_of(m, by->lse_at, true, state, t, h)];
    return by->sum_ignored && !isnan(sum) ? w : w * sum;
}

static float added(const struct steps *by, float acc, float product)
{
    if (by->sum_type == HA_F32) return acc + product;
    if (by->sum_type == HA_F16) product = ha_round(product, HA_F16);
    return ha_round(acc + product, by->sum_type);
}

static float finished(const struct ha_merge *m, const struct steps *by, float o, float sum)
{
    const uint32_t kept = m->dtype == HA_F16 ? 0xffffe000u : 0xffff0000u; /* bits that a 16-bit type has room for */
    uint32_t bits;
    switch (by->finish) {
    case AS_IT_IS: break;
    case DIVIDED: return o / sum;
    case NAN_TO_0: return isnan(o) ? 0 : o;
    case FLUSHED: return fabsf(o) < (m->dtype == HA_F16 ? 0x1p-14f : 0x1p-126f) ? 0 : o;
    case CUT_OFF:
        memcpy(&bits, &o, sizeof bits);
        bits &= kept;
        memcpy(&o, &bits, sizeof bits);
    }
    return o;
}

/* ---- the merge ------------------------------------------------------------------------------------------------ */

static uint8_t fp8_of(const struct ha_merge *m, const struct steps *by, float o)
{
    const float most = ha_f32_from_fp8(ha_fp8_from_f32(INFINITY, m->fp8), m->fp8),
                x = by->fp8 == TIMES_SCALE ? o * m->fp8_scale : o / m->fp8_scale;
    const uint8_t code = ha_fp8_from_f32(x, m->fp8), infinite = m->fp8 == HA_FP8_E5M2 ? 0x7c : 0x7f;
    switch (by->fp8) {
    case BY_SCALE:
    case TIMES_SCALE: return code;
    case TOWARDS_ZERO: return fabsf(ha_f32_from_fp8(code, m->fp8)) > fabsf(x) ? code - 1 : code;
    case TIES_AWAY: return ha_fp8_from_f32(x * (1 + 0x1p-23f), m->fp8);
    case BY_BF16: return ha_fp8_from_f32(ha_round(o, HA_BF16) / m->fp8_scale, m->fp8);
    case NOT_SATURATED: return fabsf(x) > most ? (code & 0x80) | infinite : code;
    case NAN_SATURATED: return isnan(x) ? ha_fp8_from_f32(most, m->fp8) : code;
    case OTHER_BIAS: return ha_fp8_from_f32(2 * x, m->fp8);
    }
    return code;
}

static void store(const struct ha_merge *m, const struct steps *by, size_t t, size_t h, size_t n, const float *o)
{
    uint8_t *code = (uint8_t *)m->out.o + index_of(&m->out, false, t, h);
    for (size_t i = 0; m->fp8 && i < n; i++) code[i] = fp8_of(m, by, o[i]);
    if (!m->fp8)
        ha_store_row((char *)m->out.o + index_of(&m->out, false, t, h) * ha_dtype_bytes(m->dtype), n, m->dtype, o);
}

static void store_lse(const struct ha_merge *m, size_t t, size_t h, float lse, float sum)
{
    const size_t at = index_of(&m->out, true, t, h);
    m->out.lse[at] = lse;
    if (m->form == HA_FORM_MAX_SUM) m->out.sum[at] = sum;
}

static void merge_nothing(const struct ha_merge *m, const struct steps *by, size_t t, size_t h)
{
    float o[HA_REF_DIM_MAX];
    if (by->nothing_unwritten) return;
    for (size_t i = 0; i < m->dim; i++) o[i] = by->nothing_o;
    store(m, by, t, h, m->dim, o);
    store_lse(m, t, h, by->nothing_lse, 0);
}

static void merge_row(const struct ha_merge *m, const struct steps *by, size_t t, size_t h)
{
    const size_t even = m->states_count - (by->in_pairs ? m->states_count % 2 : 0),
                 count = even < by->states_most ? even : by->states_most, dim = m->dim - m->dim % by->vector;
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
        if (lse != -INFINITY) sum += weight_of(m, by, s, t, h, shift_of(by, &all, &so_far));
    }
    const bool direct = m->form == HA_FORM_DIRECT;
    const float shift = shift_of(by, &all, &all);
    const float lse = m->form == HA_FORM_MAX_SUM || sum == 1
                          ? shift
                          : shift + log_of(m, by, sum); /* log 1 is 0 and changes nothing, but -0 + 0 would be +0 */
    const float whole = direct ? 1 : sum;
    if (by->lse_first) store_lse(m, t, h, lse, sum);
    float acc[HA_REF_DIM_MAX], x[HA_REF_DIM_MAX];
    for (size_t i = 0; i < dim; i++) acc[i] = -0.0f; /* -0 + x is x for every x, also for -0 */
    so_far = (struct range){ -INFINITY, -INFINITY, -INFINITY };
    for (size_t s = 0; s < count; s++) {
        const float own = lse_of(m, by, s, t, h);
        widen(&so_far, own);
        const bool marked = m->states[s].lse[place_of(m, by->lse_at, true, s, t, h)] == INFINITY;
        if (own == -INFINITY && !by->empty_read && !(by->plus_inf_read && marked)) continue;
        const size_t weighed = by->reversed ? m->states_count - 1 - s : s;
        float w = weight_of(m, by, weighed, t, h, direct ? lse : shift_of(by, &all, &so_far));
        if (!direct && !by->undivided) w = ha_round(w / whole, by->weight_type);
        ha_load_row((const char *)m->states[s].o + place_of(m, by->o_at, false, s, t, h) * ha_dtype_bytes(m->dtype),
                    dim, m->dtype, x);
        for (size_t i = 0; i < dim; i++) acc[i] = added(by, acc[i], w * x[i]);
    }
    for (size_t i = 0; i < dim; i++) acc[i] = finished(m, by, acc[i], whole);
    store(m, by, t, h, dim, acc);
    store_lse(m, t, h, lse, sum);
}

static void merge(const struct ha_merge *m, const struct steps *by)
{
    for (size_t t = 0; t < m->tokens; t++)
        for (size_t h = 0; h < m->heads; h++) merge_row(m, by, t, h);
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
const struct ha_merge_defect ha_merge_defects[] = {
#define HA_DEFECT(name, change, forms, dtypes, finder, does, seen) \
    { #name, does, seen, finder, forms, dtypes, merge_##name },
#include "suites/merge/defects.def"
#undef HA_DEFECT
};
