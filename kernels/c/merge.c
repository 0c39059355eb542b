#include "harness/base/numeric.h"
#include "kernels/c/ops.h"
#include "kernels/rows.h"
#include "kernels/states.h"

#include <math.h>

enum { STATES = 64, DIM = 256 };

struct row {
    const struct ha_merge *m;
    size_t t, h;
};

/* Those of the states [first, first + STATES) that have keys: w = exp(level - from), times the sum in HA_FORM_MAX_SUM.
 */
struct batch {
    size_t first, count;
    float from, w[STATES];
    const struct ha_merge_state *state[STATES];
};

static inline void weigh(const struct row *r, size_t first, float from, struct batch *b)
{
    const struct ha_merge *m = r->m;
    if (b->first == first && b->from == from) return;
    b->first = first;
    b->from = from;
    b->count = 0;
    for (size_t i = first; i < first + ha_least(STATES, m->states_count - first); i++) {
        const struct ha_merge_state *s = &m->states[i];
        const float level = ha_merge_level(m, s, r->t, r->h);
        if (level == -INFINITY) continue;
        const float w = m->form == HA_FORM_BASE2 ? exp2f(level - from) : expf(level - from);
        b->w[b->count] = m->form == HA_FORM_MAX_SUM ? w * s->sum[ha_merge_at(s, r->t, r->h)] : w;
        b->state[b->count++] = s;
    }
}

/* acc[n] = or += share * elements d.. of a state's row; product and sum are rounded apart, so that two states commute
 * bitwise */
static void add(const struct row *r, const struct ha_merge_state *s, float share, size_t d, size_t n, bool is_first,
                float *restrict acc)
{
    float wide[DIM];
    const float *x = ha_merge_o(r->m, s, r->t, r->h, d);
    if (r->m->dtype != HA_F32) {
        ha_load_row(x, n, r->m->dtype, wide);
        x = wide;
    }
    if (is_first)
        for (size_t i = 0; i < n; i++) acc[i] = share * x[i];
    else
        for (size_t i = 0; i < n; i++) acc[i] += share * x[i];
}

/* The weights are divided by their sum before they are used, so that states near FLT_MAX do not
 * overflow. The first state is not added to 0, which would turn its -0 into 0: one alone is copied. */
static void merge_row(const struct row *r)
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
    /* log 1 is not added: it would turn -0 into 0 */
    if (m->form != HA_FORM_MAX_SUM && sum != 1) lse += m->form == HA_FORM_BASE2 ? log2f(sum) : logf(sum);

    const float from = m->form == HA_FORM_DIRECT ? lse : max, divisor = m->form == HA_FORM_DIRECT ? 1 : sum;
    for (size_t d = 0; d < m->dim; d += DIM) {
        const size_t n = ha_least(DIM, m->dim - d);
        float acc[DIM];
        size_t used = 0;
        for (size_t first = 0; first < m->states_count; first += STATES) {
            weigh(r, first, from, &b);
            for (size_t i = 0; i < b.count; i++) add(r, b.state[i], b.w[i] / divisor, d, n, used++ == 0, acc);
        }
        for (size_t i = 0; used == 0 && i < n; i++) acc[i] = 0;
        void *out = ha_merge_out(m, r->t, r->h, d);
        if (m->fp8) ha_fp8_store_row(out, n, m->fp8, m->fp8_scale, acc);
        else ha_store_row(out, n, m->dtype, acc);
    }
    const size_t at = ha_merge_at(&m->out, r->t, r->h);
    m->out.lse[at] = lse;
    if (m->form == HA_FORM_MAX_SUM) m->out.sum[at] = sum;
}

void ha_c_merge(const struct ha_merge *m)
{
    for (size_t t = 0; t < m->tokens; t++)
        for (size_t h = 0; h < m->heads; h++) merge_row(&(struct row){ m, t, h });
}
