#include "suites/merge/task.h"

#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct ha_merge_kind ha_merge_kinds[] = {
    { "natural", HA_FORM_NATURAL, HA_ORDER_FLAT, false }, { "base2", HA_FORM_BASE2, HA_ORDER_FLAT, false },
    { "direct", HA_FORM_DIRECT, HA_ORDER_FLAT, false },   { "max_sum", HA_FORM_MAX_SUM, HA_ORDER_FLAT, false },
    { "chain", HA_FORM_NATURAL, HA_ORDER_CHAIN, false },  { "in_place", HA_FORM_NATURAL, HA_ORDER_FLAT, true },
};

static const size_t state_counts[] = { 1, 2, 3, 5, 7, 16, 33, 133, 160, 512 };
static const size_t dims[] = { 128, 64, 256, 80, 96, 112, 192 };
enum { STATE_COUNTS = sizeof state_counts / sizeof *state_counts, DIMS = sizeof dims / sizeof *dims };

static bool named(const struct ha_merge_id *id, enum ha_merge_key key) { return id->set >> key & 1u; }

static enum ha_status add(struct ha_merge_tasks *tasks, const struct ha_merge_task *t, struct ha_why *why)
{
    if (tasks->count == tasks->room) {
        const size_t room = tasks->room ? 2 * tasks->room : 1024;
        struct ha_merge_task *grown = realloc(tasks->task, room * sizeof *grown);
        if (!grown) return ha_why(why, HA_ERROR, "out of memory");
        tasks->task = grown;
        tasks->room = room;
    }
    tasks->task[tasks->count++] = *t;
    return HA_OK;
}

void ha_merge_tasks_free(struct ha_merge_tasks *tasks)
{
    free(tasks->task);
    *tasks = (struct ha_merge_tasks){ 0 };
}

/* The k-th of the values of an axis that `bits` leaves (0: all), or the one that the id names. */
static unsigned turn(unsigned bits, unsigned count, size_t k, const struct ha_merge_id *only, enum ha_merge_key key,
                     unsigned value)
{
    unsigned left[8], n = 0;
    if (named(only, key)) return value;
    for (unsigned i = 0; i < count; i++)
        if (!bits || bits >> i & 1u) left[n++] = i;
    return left[k % n];
}

static size_t rows_of(const struct ha_merge_case *c, size_t states)
{
    const size_t rows = states > 100 ? 4 : 12;
    return c->rows && c->rows < rows ? c->rows : rows;
}

static bool allows(unsigned bits, unsigned i) { return !bits || bits >> i & 1u; }

/* Fewer rows where each is large. */
static void shorten(struct ha_merge_shape *s)
{
    enum { MOST = 1 << 22 };
    while (s->tokens > 1 && s->tokens * s->heads * s->states * s->dim > MOST) s->tokens /= 2;
    while (s->heads > 1 && s->tokens * s->heads * s->states * s->dim > MOST) s->heads /= 2;
}

/* One case, form, type and number of states, in each order. */
static enum ha_status add_orders(struct ha_merge_tasks *tasks, struct ha_merge_task t, const struct ha_merge_id *only,
                                 uint64_t seed, size_t *turns, struct ha_why *why)
{
    const struct ha_merge_case *c = t.c;
    struct ha_merge_shape *s = &t.shape;
    enum ha_status st = HA_OK;
    for (unsigned order = 0; order < HA_ORDER_COUNT && st == HA_OK; order++) {
        if (!allows(c->orders, order) || (named(only, HA_KEY_ORDER) && order != (unsigned)only->shape.order)) continue;
        if ((s->states < 2 || c->stage != HA_STAGE_PLAIN) && order != HA_ORDER_FLAT) continue;
        const size_t k = (*turns)++, rows = rows_of(c, s->states);
        s->order = (enum ha_order)order;
        s->dim = named(only, HA_KEY_DIM) ? only->shape.dim : dims[k % DIMS];
        s->alias = (enum ha_alias)turn(c->aliases, HA_ALIAS_COUNT, k, only, HA_KEY_ALIAS, only->shape.alias);
        s->layout = (enum ha_layout)turn(c->layouts, HA_LAYOUT_COUNT, k, only, HA_KEY_LAYOUT, only->shape.layout);
        s->heads = named(only, HA_KEY_ROWS) ? only->shape.heads : rows % 4 ? rows : 4;
        s->tokens = named(only, HA_KEY_ROWS) ? only->shape.tokens : rows / s->heads;
        if (!named(only, HA_KEY_ROWS)) shorten(s);
        t.seed = named(only, HA_KEY_SEED) ? only->seed : seed * 1000003 + k;
        st = add(tasks, &t, why);
    }
    return st;
}

static enum ha_status add_case(struct ha_merge_tasks *tasks, struct ha_merge_task t, const struct ha_merge_id *only,
                               uint64_t seed, struct ha_why *why)
{
    const struct ha_merge_case *c = t.c;
    const size_t low = c->states_min ? c->states_min : 1,
                 high = c->states_max ? c->states_max : state_counts[STATE_COUNTS - 1];
    size_t turns = 0;
    enum ha_status st = HA_OK;
    for (unsigned form = 0; form < HA_FORM_COUNT; form++)
        for (unsigned dtype = 0; dtype < HA_DTYPE_COUNT; dtype++) {
            if (!allows(c->forms, form) || (named(only, HA_KEY_FORM) && form != (unsigned)only->shape.form)) continue;
            if (!allows(c->dtypes, dtype) || (named(only, HA_KEY_DTYPE) && dtype != (unsigned)only->shape.dtype))
                continue;
            t.shape.form = (enum ha_form)form;
            t.shape.dtype = (enum ha_dtype)dtype;
            bool any = false;
            for (size_t i = 0; i < STATE_COUNTS && st == HA_OK; i++) {
                t.shape.states = named(only, HA_KEY_STATES) ? only->shape.states : state_counts[i];
                if (t.shape.states < low || t.shape.states > high
                    || (any && (named(only, HA_KEY_STATES) || c->stage != HA_STAGE_PLAIN)))
                    continue;
                any = true;
                st = add_orders(tasks, t, only, seed, &turns, why);
            }
            t.shape.states = low; /* a number that is not in state_counts */
            if (!any && st == HA_OK && !named(only, HA_KEY_STATES)) st = add_orders(tasks, t, only, seed, &turns, why);
        }
    return st;
}

enum ha_status ha_merge_tasks_of_cases(struct ha_merge_tasks *tasks, const struct ha_merge_suite *suite,
                                       const struct ha_merge_id *only, uint64_t seed, struct ha_why *why)
{
    enum ha_status st = HA_OK;
    for (size_t i = 0; i < suite->cases_count && st == HA_OK; i++) {
        const struct ha_merge_case *c = &suite->cases[i];
        if (only->what[0] && strcmp(only->what, c->name)) continue;
        st = add_case(tasks,
                      (struct ha_merge_task){ .c = c,
                                              .item = i,
                                              .shape = { .plus_inf = c->plus_inf },
                                              .row = named(only, HA_KEY_ROW) ? only->row : SIZE_MAX },
                      only, seed, why);
    }
    return st;
}

bool ha_merge_random_fits(size_t kind, enum ha_dtype dtype, const struct ha_merge_id *only)
{
    const struct ha_merge_kind *k = &ha_merge_kinds[kind];
    const bool flat = only->shape.order == HA_ORDER_FLAT, apart = only->shape.alias == HA_ALIAS_NONE;
    if (named(only, HA_KEY_FORM) && only->shape.form != k->form) return false;
    if (named(only, HA_KEY_DTYPE) && only->shape.dtype != dtype) return false;
    if (named(only, HA_KEY_ORDER) && flat != (k->order == HA_ORDER_FLAT)) return false;
    return !named(only, HA_KEY_ALIAS) || apart != k->in_place;
}

struct ha_merge_task ha_merge_random_task(const struct ha_merge_suite *suite, size_t kind, enum ha_dtype dtype,
                                          const struct ha_merge_id *only, uint64_t seed, uint64_t i)
{
    const struct ha_merge_kind *k = &ha_merge_kinds[kind];
    struct ha_merge_task t = { .item = kind * HA_DTYPE_COUNT + (size_t)dtype,
                               .row = named(only, HA_KEY_ROW) ? only->row : SIZE_MAX };
    struct ha_merge_shape *s = &t.shape;
    t.seed = named(only, HA_KEY_SEED) ? only->seed : ha_rng_bits(seed, t.item, i) >> 1;
    *s = (struct ha_merge_shape){ .tokens = 32,
                                  .heads = 8,
                                  .form = k->form,
                                  .dtype = dtype,
                                  .order = k->order,
                                  .dim = dims[i % DIMS],
                                  .states = suite->random_states(t.seed) };
    if (s->states > 64) s->tokens = 4;
    if (s->order != HA_ORDER_FLAT && i % 4 == 3) s->order = HA_ORDER_TREE;
    if (s->states < 2) s->order = HA_ORDER_FLAT;
    if (k->in_place) s->alias = i % 2 ? HA_ALIAS_FIRST : HA_ALIAS_LAST;
    /* most rows are packed, because laying out memory takes most of the time */
    s->layout = i % 16 ? HA_LAYOUT_PACKED : (enum ha_layout)(i / 16 % HA_LAYOUT_COUNT);
    if (named(only, HA_KEY_DIM)) s->dim = only->shape.dim;
    if (named(only, HA_KEY_STATES)) s->states = only->shape.states;
    if (named(only, HA_KEY_ORDER)) s->order = only->shape.order;
    if (named(only, HA_KEY_ALIAS)) s->alias = only->shape.alias;
    if (named(only, HA_KEY_LAYOUT)) s->layout = only->shape.layout;
    if (named(only, HA_KEY_ROWS)) {
        s->tokens = only->shape.tokens;
        s->heads = only->shape.heads;
    } else shorten(s);
    return t;
}

void ha_merge_task_print(const struct ha_merge_task *t, const char *by, size_t r, char out[HA_MERGE_ID_MAX])
{
    struct ha_merge_id id = { .set = (1u << (HA_KEY_SEED + 1)) - 1, .shape = t->shape, .seed = t->seed };
    snprintf(id.what, sizeof id.what, "%s", t->c ? t->c->name : "random");
    snprintf(id.by, sizeof id.by, "%s", by);
    if (r != SIZE_MAX) {
        id.set |= 1u << HA_KEY_ROW;
        id.row = r;
    }
    ha_merge_id_print(&id, out);
}
