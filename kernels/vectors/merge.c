/* merge in terms of vectors. The steps are those of kernels/c/merge.c, whose comments say why; the accumulators stay in
 * registers. */

#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
#include "harness/base/numeric.h"
#include "kernels/rows.h"
#include "kernels/states.h"
#include "kernels/specialised.h"

#include <math.h>

enum { STATES = 512, WIDE = 8, FEW = 3 };

struct row {
    const struct ha_merge *m;
    size_t t, h;
};

struct batch {
    size_t first, count;
    float from, w[STATES];
    const struct ha_merge_state *state[STATES];
};

static void weigh(const struct row *r, size_t first, float from, struct batch *b)
{
    const struct ha_merge *m = r->m;
    if (b->first == first && b->from == from) return;
    b->first = first;
    b->from = from;
    b->count = 0;
    for (size_t i = first; i < first + ha_least(STATES, m->states_count - first); i++) {
        const float level = ha_merge_level(m, &m->states[i], r->t, r->h);
        if (level == -INFINITY) continue;
        b->w[b->count] = level;
        b->state[b->count++] = &m->states[i];
    }
    /* a few by themselves: a vector of numbers just stored one by one has to wait for the stores */
    for (size_t i = 0; b->count <= FEW && i < b->count; i++) {
        const vec x = v_set(b->w[i] - from);
        float w[LANES];
        v_store(w, m->form == HA_FORM_BASE2 ? v_exp2(x) : v_exp(x));
        b->w[i] = w[0];
    }
    for (size_t i = 0; b->count > FEW && i < b->count; i += LANES) {
        const size_t lanes = ha_least(LANES, b->count - i);
        const vec x = v_sub(v_load_part(b->w + i, lanes, 0), v_set(from));
        v_store_part(b->w + i, m->form == HA_FORM_BASE2 ? v_exp2(x) : v_exp(x), lanes);
    }
    if (m->form == HA_FORM_MAX_SUM)
        for (size_t i = 0; i < b->count; i++) b->w[i] *= b->state[i]->sum[ha_merge_at(b->state[i], r->t, r->h)];
}

/* what a row is merged with once its levels are known */
struct scale {
    float from, divisor, start;
};

/* `wide` vectors of the row of o from element d on; of the last one the first `lanes` lanes */
ALWAYS void columns(const struct row *r, const struct scale *by, struct batch *b, size_t d, int wide, size_t lanes,
                    enum ha_dtype t, bool fp8)
{
    const size_t step = LANES * ha_dtype_bytes(t);
    vec acc[WIDE];
    for (int j = 0; j < wide; j++) acc[j] = v_set(by->start);
    for (size_t first = 0; first < r->m->states_count; first += STATES) {
        weigh(r, first, by->from, b);
        for (size_t i = 0; i < b->count; i++) {
            const char *x = ha_merge_o(r->m, b->state[i], r->t, r->h, d);
            const vec share = v_set(b->w[i] / by->divisor);
            for (int j = 0; j < wide; j++) {
                const char *at = x + (size_t)j * step;
                acc[j] = v_add(acc[j], v_mul(share, lanes == LANES ? v_widen(at, t) : v_widen_part(at, lanes, t)));
            }
        }
    }
    char *out = fp8 ? ha_merge_out(r->m, r->t, r->h, d) : ha_merge_o(r->m, &r->m->out, r->t, r->h, d);
    for (int j = 0; j < wide && fp8; j++) {
        float x[LANES];
        v_store(x, acc[j]);
        ha_fp8_store_row(out + j * LANES, lanes, r->m->fp8, r->m->fp8_scale, x);
    }
    for (int j = 0; j < wide && !fp8; j++) {
        if (lanes == LANES) v_narrow(out + (size_t)j * step, acc[j], t);
        else v_narrow_part(out + (size_t)j * step, acc[j], lanes, t);
    }
}

ALWAYS void merge_row(const struct row *r, enum ha_dtype t, bool fp8)
{
    const struct ha_merge *m = r->m;
    const float max = ha_merge_max(m, r->t, r->h);
    struct batch b;
    b.first = SIZE_MAX; /* holds nothing yet */
    b.count = 0;
    b.from = max;
    float sum = 0;
    for (size_t first = 0; first < m->states_count; first += STATES) {
        weigh(r, first, max, &b);
        for (size_t i = 0; i < b.count; i++) sum += b.w[i];
    }
    float lse = max;
    if (m->form != HA_FORM_MAX_SUM && sum != 1) lse += m->form == HA_FORM_BASE2 ? log2f(sum) : logf(sum);

    const bool direct = m->form == HA_FORM_DIRECT;
    const struct scale by = { .from = direct ? lse : max,
                              .divisor = direct ? 1 : sum,
                              .start = max == -INFINITY ? 0 : -0.0f };
    size_t d = 0;
    for (; m->dim - d >= WIDE * LANES; d += WIDE * LANES) columns(r, &by, &b, d, WIDE, LANES, t, fp8);
    /* the rest by its binary digits */
    const size_t rest = m->dim - d;
    if (rest & 4 * LANES) columns(r, &by, &b, d, 4, LANES, t, fp8);
    d += rest & 4 * LANES;
    if (rest & 2 * LANES) columns(r, &by, &b, d, 2, LANES, t, fp8);
    d += rest & 2 * LANES;
    if (rest & LANES) columns(r, &by, &b, d, 1, LANES, t, fp8);
    d += rest & LANES;
    if (d < m->dim) columns(r, &by, &b, d, 1, m->dim - d, t, fp8);

    const size_t at = ha_merge_at(&m->out, r->t, r->h);
    m->out.lse[at] = lse;
    if (m->form == HA_FORM_MAX_SUM) m->out.sum[at] = sum;
}

ALWAYS void merge_rows(const struct ha_merge *m, enum ha_dtype t, bool fp8)
{
    for (size_t i = 0; i < m->tokens; i++)
        for (size_t h = 0; h < m->heads; h++) merge_row(&(struct row){ m, i, h }, t, fp8);
}

ALWAYS void merge_to_dtype(const struct ha_merge *m, enum ha_dtype t) { merge_rows(m, t, false); }
ALWAYS void merge_to_fp8(const struct ha_merge *m, enum ha_dtype t) { merge_rows(m, t, true); }

void HA_KERNEL(merge)(const struct ha_merge *m)
{
    if (m->fp8) BY_DTYPE(merge_to_fp8, m)
    else BY_DTYPE(merge_to_dtype, m)
}
#endif
