#include "suites/merge/bundle.h"

enum { ROWS_EACH = 4, STATE_COUNTS = 6, SETS = 3, BUNDLES = SETS * STATE_COUNTS };
static const size_t state_counts[STATE_COUNTS] = { 1, 2, 3, 7, 33, 512 }, dims[] = { 64, 128, 80 };

/* may_reject: cases that may be refused go into bundles of their own, since a command refuses all rows or none */
static bool fits(const struct ha_merge_case *c, const struct ha_merge_shape *s, bool may_reject)
{
    const struct {
        unsigned bits, value;
    } axis[] = { { c->forms, s->form },
                 { c->dtypes, s->dtype },
                 { c->orders, s->order },
                 { c->aliases, s->alias },
                 { c->layouts, s->layout } };
    for (size_t i = 0; i < sizeof axis / sizeof *axis; i++)
        if (axis[i].bits && !(axis[i].bits >> axis[i].value & 1u)) return false;
    if (c->states_min && s->states < c->states_min) return false;
    if (c->states_max && s->states > c->states_max) return false;
    return c->stage == HA_STAGE_PLAIN && c->plus_inf == s->plus_inf && c->may_reject == may_reject;
}

/* Bundle k of cases: plain ones, then those that may be refused, then those of them that mark empty states with +inf.
 */
static void compose_cases(struct ha_merge_bundles *b, struct ha_merge_task *t, size_t k)
{
    struct ha_merge_bundle *all = &b->at_hand;
    struct ha_merge_shape *s = &t->shape;
    s->plus_inf = k / STATE_COUNTS == 2;
    s->states = state_counts[k % STATE_COUNTS];
    s->dim = dims[k % 3];
    t->seed = b->only->seed * 1000003 + k;
    t->bundle = all;
    all->count = 0;
    for (size_t i = 0; i < b->suite->cases_count && all->count < HA_BUNDLE_CASES; i++) {
        const struct ha_merge_case *c = &b->suite->cases[i];
        if (!b->asked[i] || !fits(c, s, k / STATE_COUNTS > 0)) continue;
        all->item[all->count] = i;
        all->c[all->count++] = c;
    }
    s->tokens = all->count;
    s->heads = ROWS_EACH;
}

/* Batch k of random rows; the first kinds are the forms, flat. */
static void compose_random(const struct ha_merge_bundles *b, struct ha_merge_task *t, size_t k)
{
    *t = ha_merge_random_task(b->suite, t->shape.form, t->shape.dtype, b->only, k);
    t->shape.order = HA_ORDER_FLAT;
    t->shape.alias = HA_ALIAS_NONE;
    t->shape.layout = HA_LAYOUT_PACKED;
    if (!b->asked[t->item]) t->shape.tokens = 0;
}

static size_t each_of(const struct ha_merge_bundles *b) { return b->batches ? b->batches : BUNDLES; }

size_t ha_merge_bundles_count(const struct ha_merge_bundles *b) { return HA_FORM_COUNT * HA_DTYPE_COUNT * each_of(b); }

struct ha_merge_task ha_merge_bundle_task(void *bundles, size_t i)
{
    struct ha_merge_bundles *b = bundles;
    const size_t k = i % each_of(b), form = i / each_of(b) / HA_DTYPE_COUNT, dtype = i / each_of(b) % HA_DTYPE_COUNT;
    struct ha_merge_task t = { .shape = { .form = (enum ha_form)form, .dtype = (enum ha_dtype)dtype },
                               .row = SIZE_MAX };
    if (b->only->form && b->only->form != 1 + form) return t;
    if (b->only->dtype && b->only->dtype != 1 + dtype) return t;
    if (b->batches) compose_random(b, &t, k);
    else compose_cases(b, &t, k);
    if (b->heads_first) t.shape.layout = HA_LAYOUT_HEADS_FIRST;
    return t;
}
