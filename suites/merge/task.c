#include "suites/merge/work.h"

#include "harness/base/array.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <stdlib.h>

const struct ha_merge_kind ha_merge_kinds[] = {
    { "natural", HA_FORM_NATURAL, HA_ORDER_FLAT, false }, { "base2", HA_FORM_BASE2, HA_ORDER_FLAT, false },
    { "direct", HA_FORM_DIRECT, HA_ORDER_FLAT, false },   { "max_sum", HA_FORM_MAX_SUM, HA_ORDER_FLAT, false },
    { "chain", HA_FORM_NATURAL, HA_ORDER_CHAIN, false },  { "in_place", HA_FORM_NATURAL, HA_ORDER_FLAT, true },
};

static const size_t state_counts[] = { 1, 2, 3, 5, 7, 16, 33, 133, 160, 512 };
static const size_t dims[] = { 128, 64, 256, 80, 96, 112, 192 };
enum { STATE_COUNTS = sizeof state_counts / sizeof *state_counts, DIMS = sizeof dims / sizeof *dims };

void ha_merge_tasks_free(struct ha_merge_tasks *tasks)
{
    free(tasks->task);
    *tasks = (struct ha_merge_tasks){ 0 };
}

/* The k-th of the values of an axis that `bits` leaves (0: all), or the one that is named. */
static unsigned turn(unsigned bits, unsigned count, size_t k, uint64_t named)
{
    unsigned left[8], n = 0;
    if (named) return (unsigned)named - 1;
    for (unsigned i = 0; i < count; i++)
        if (!bits || bits >> i & 1u) left[n++] = i;
    return left[k % n];
}

static size_t rows_of(const struct ha_merge_case *c, size_t states)
{
    const size_t rows = states > 100 ? 4 : 12;
    return c->rows && c->rows < rows ? c->rows : rows;
}

/* by the case, and by what is named */
static bool allows(unsigned bits, uint64_t named, size_t i)
{
    return (!bits || bits >> i & 1u) && (!named || named == i + 1);
}

/* Fewer rows where each is large. */
static void shorten(struct ha_merge_shape *s)
{
    enum { MOST = 1 << 22 };
    while (s->tokens > 1 && s->tokens * s->heads * s->states * s->dim > MOST) s->tokens /= 2;
    while (s->heads > 1 && s->tokens * s->heads * s->states * s->dim > MOST) s->heads /= 2;
}

/* ---- shapes of random rows ----------------------------------------------------------------------------------------
 * Batches go through all values of each axis, in an order that is another for each kind and type, so that values of two
 * axes meet in other pairs; in turns one axis has its value whatever it is, and the others what there is room for. */

struct stretch {
    size_t first, last, step;
};
static const struct stretch all_dims[] = { { 1, 136, 1 },   { 144, 576, 8 }, { 191, 193, 2 }, { 255, 257, 2 },
                                           { 319, 321, 2 }, { 511, 513, 2 }, { 575, 577, 2 }, { 640, 1024, 64 } },
                            all_heads[] = { { 1, 130, 1 }, { 144, 192, 16 }, { 255, 257, 1 }, { 511, 513, 1 } },
                            all_tokens[] = { { 1, 70, 1 },    { 96, 97, 1 },   { 127, 129, 1 },   { 191, 193, 1 },
                                             { 255, 257, 1 }, { 511, 513, 1 }, { 1023, 1025, 1 }, { 4095, 4097, 1 } },
                            all_states[] = { { 1, 70, 1 },    { 96, 97, 1 },     { 127, 130, 1 },   { 255, 257, 1 },
                                             { 511, 513, 1 }, { 1023, 1025, 1 }, { 2047, 2049, 1 }, { 4095, 4096, 1 } };
enum { AXES = 4, ROOM = 1 << 16, ROOM_OF_ONE = 1 << 20 };
static const struct {
    const struct stretch *stretch;
    size_t count;
} axes[AXES] = { { all_dims, sizeof all_dims / sizeof *all_dims },
                 { all_heads, sizeof all_heads / sizeof *all_heads },
                 { all_tokens, sizeof all_tokens / sizeof *all_tokens },
                 { all_states, sizeof all_states / sizeof *all_states } };

static size_t values_of(size_t axis)
{
    size_t n = 0;
    for (size_t i = 0; i < axes[axis].count; i++)
        n += (axes[axis].stretch[i].last - axes[axis].stretch[i].first) / axes[axis].stretch[i].step + 1;
    return n;
}
static size_t value_of(size_t axis, size_t at)
{
    for (size_t i = 0;; i++) {
        const struct stretch *s = &axes[axis].stretch[i];
        const size_t n = (s->last - s->first) / s->step + 1;
        if (at < n) return s->first + at * s->step;
        at -= n;
    }
}

/* the k-th value of an axis in the order of this item */
static size_t next_value(size_t axis, size_t item, uint64_t k)
{
    const size_t n = values_of(axis), steps[] = { 37, 41, 43, 47, 53, 59 }; /* n shares no divisor with one of them */
    size_t step = 0;
    while (n % steps[(step + item) % 6] == 0) step++;
    return value_of(axis, (size_t)((k * steps[(step + item) % 6] + 7 * item) % n));
}

/* One case, form, type and number of states, in each order. */
static enum ha_status add_orders(struct ha_merge_tasks *tasks, struct ha_merge_task t, const struct ha_merge_axes *only,
                                 size_t *turns, struct ha_why *why)
{
    const struct ha_merge_case *c = t.c;
    struct ha_merge_shape *s = &t.shape;
    for (unsigned order = 0; order < HA_ORDER_COUNT; order++) {
        if (!allows(c->orders, only->order, order)) continue;
        if ((s->states < 2 || c->stage != HA_STAGE_PLAIN) && order != HA_ORDER_FLAT) continue;
        static const size_t heads[] = { 4, 1, 2, 8 };
        const size_t k = (*turns)++, rows = rows_of(c, s->states), h = heads[k / HA_LAYOUT_COUNT % 4];
        s->order = (enum ha_order)order;
        s->dim = only->head_dim ? only->head_dim : c->fp8 ? next_value(0, t.item, k) : dims[k % DIMS];
        s->alias = (enum ha_alias)turn(c->aliases, HA_ALIAS_COUNT, k, only->alias);
        s->layout = (enum ha_layout)turn(c->layouts, HA_LAYOUT_COUNT, k, only->layout);
        s->heads = only->tokens ? only->heads : rows % h ? rows : h;
        s->tokens = only->tokens ? only->tokens : rows / s->heads;
        if (!only->tokens) shorten(s);
        t.seed = ha_merge_axes_whole(only) ? only->seed : only->seed * 1000003 + k;
        if (!ha_array_room(&tasks->task, &tasks->room, tasks->count + 1, sizeof *tasks->task))
            return ha_why(why, HA_ERROR, "out of memory");
        tasks->task[tasks->count++] = t;
    }
    return HA_OK;
}

enum ha_status ha_merge_tasks_of_case(struct ha_merge_tasks *tasks, size_t item, const struct ha_merge_axes *only,
                                      struct ha_why *why)
{
    const struct ha_merge_case *c = &ha_merge_cases[item];
    struct ha_merge_task t = {
        .c = c, .item = item, .shape = { .plus_inf = c->plus_inf, .fp8 = c->fp8 }, .row = only->row
    };
    const size_t low = c->states_min ? c->states_min : 1,
                 high = c->states_max ? c->states_max : state_counts[STATE_COUNTS - 1];
    size_t turns = 0;
    for (unsigned form = 0; form < HA_FORM_COUNT; form++)
        for (unsigned dtype = 0; dtype < HA_DTYPE_COUNT; dtype++) {
            if (!allows(c->forms, only->form, form) || !allows(c->dtypes, only->dtype, dtype)) continue;
            t.shape.form = (enum ha_form)form;
            t.shape.dtype = (enum ha_dtype)dtype;
            bool any = false;
            for (size_t i = 0; i < STATE_COUNTS; i++) {
                t.shape.states = only->states ? only->states : state_counts[i];
                if (t.shape.states < low || t.shape.states > high
                    || (any && (only->states || c->stage != HA_STAGE_PLAIN)))
                    continue;
                any = true;
                HA_TRY(add_orders(tasks, t, only, &turns, why));
            }
            t.shape.states = low; /* a number that is none of ours */
            if (!any && !only->states) HA_TRY(add_orders(tasks, t, only, &turns, why));
        }
    return HA_OK;
}

bool ha_merge_random_fits(size_t item, const struct ha_merge_axes *only)
{
    const struct ha_merge_kind *k = &ha_merge_kinds[item / HA_DTYPE_COUNT];
    if (!allows(0, only->form, k->form) || !allows(0, only->dtype, item % HA_DTYPE_COUNT)) return false;
    if (only->order && (only->order == 1 + HA_ORDER_FLAT) != (k->order == HA_ORDER_FLAT)) return false;
    return !only->alias || (only->alias == 1 + HA_ALIAS_NONE) != k->in_place;
}

/* The first has many rows, of which what the traits let pass is asked. The second of each form, in one type, has more
 * than 16 bits count. */
static void draw_shape(struct ha_merge_shape *s, size_t item, uint64_t i, uint64_t seed)
{
    static const size_t most_tokens[HA_FORM_COUNT] = { 65537, 8200, 2050, 16400 };
    const size_t kind = item / HA_DTYPE_COUNT;
    if (i == 1 && kind < HA_FORM_COUNT && item % HA_DTYPE_COUNT == kind % HA_DTYPE_COUNT) {
        s->tokens = most_tokens[kind];
        s->heads = 65536 / s->tokens + 1;
        s->dim = 8;
        s->states = 2;
        return;
    }
    s->tokens = 32;
    s->heads = 8;
    s->dim = 128;
    s->states = ha_random_states(seed);
    if (i == 0) return;
    const size_t free_axis = i % AXES;
    size_t *const of[AXES] = { &s->dim, &s->heads, &s->tokens, &s->states };
    const size_t least[AXES] = { 8, 1, 1, 2 };
    for (size_t a = 0; a < AXES; a++)
        if (a < AXES - 1 || a == free_axis) *of[a] = next_value(a, item, i / AXES);
    const size_t room = free_axis == AXES - 1 ? ROOM_OF_ONE : ROOM;
    for (size_t a = 0; s->dim * s->heads * s->tokens * s->states > room && a < 4 * AXES; a++) {
        const size_t shrunk = (2 + a) % AXES; /* tokens first, then states, dimensions, heads */
        const size_t all = s->dim * s->heads * s->tokens * s->states, too_much = (all + room - 1) / room;
        if (shrunk == free_axis) continue;
        *of[shrunk] = *of[shrunk] / too_much > least[shrunk] ? *of[shrunk] / too_much : least[shrunk];
    }
}

struct ha_merge_task ha_merge_random_task(size_t item, const struct ha_merge_axes *only, uint64_t i)
{
    const struct ha_merge_kind *k = &ha_merge_kinds[item / HA_DTYPE_COUNT];
    struct ha_merge_task t = { .item = item, .row = only->row };
    struct ha_merge_shape *s = &t.shape;
    t.seed = ha_merge_axes_whole(only) ? only->seed : ha_rng_bits(only->seed, item, i) >> 1;
    *s = (struct ha_merge_shape){ .form = k->form, .dtype = (enum ha_dtype)(item % HA_DTYPE_COUNT), .order = k->order };
    draw_shape(s, item, i, t.seed);
    if (s->order != HA_ORDER_FLAT && i % 4 == 3) s->order = HA_ORDER_TREE;
    if (s->states < 2) s->order = HA_ORDER_FLAT;
    if (k->in_place) s->alias = i % 2 ? HA_ALIAS_FIRST : HA_ALIAS_LAST;
    /* most rows are packed, because laying out memory takes most of the time */
    s->layout = i % 5 ? HA_LAYOUT_PACKED : (enum ha_layout)(i / 5 % HA_LAYOUT_COUNT);
    if (only->head_dim) s->dim = only->head_dim;
    if (only->states) s->states = only->states;
    if (only->order) s->order = (enum ha_order)(only->order - 1);
    if (only->alias) s->alias = (enum ha_alias)(only->alias - 1);
    if (only->layout) s->layout = (enum ha_layout)(only->layout - 1);
    if (only->tokens) {
        s->tokens = only->tokens;
        s->heads = only->heads;
    } else shorten(s);
    return t;
}

struct ha_merge_axes ha_merge_axes_of(const struct ha_merge_task *t, size_t r)
{
    const struct ha_merge_shape *s = &t->shape;
    return (struct ha_merge_axes){ .form = 1 + (uint64_t)s->form,
                                   .dtype = 1 + (uint64_t)s->dtype,
                                   .order = 1 + (uint64_t)s->order,
                                   .alias = 1 + (uint64_t)s->alias,
                                   .layout = 1 + (uint64_t)s->layout,
                                   .head_dim = s->dim,
                                   .states = s->states,
                                   .tokens = s->tokens,
                                   .heads = s->heads,
                                   .seed = t->seed,
                                   .row = r };
}

/* ---- bundles ----------------------------------------------------------------------------- */

static const size_t bundle_states[] = { 1, 2, 3, 7, 33, 512 };
enum { ROWS_EACH = 4, SETS = 5, BUNDLE_STATES = sizeof bundle_states / sizeof *bundle_states };

/* may_reject: cases that may be refused go into bundles of their own, since a command refuses all rows or none */
static bool fits(const struct ha_merge_case *c, const struct ha_merge_shape *s, bool may_reject)
{
    if (!allows(c->forms, 0, s->form) || !allows(c->dtypes, 0, s->dtype) || !allows(c->orders, 0, s->order)
        || !allows(c->aliases, 0, s->alias) || !allows(c->layouts, 0, s->layout))
        return false;
    if (c->states_min && s->states < c->states_min) return false;
    if (c->states_max && s->states > c->states_max) return false;
    return c->stage == HA_STAGE_PLAIN && c->plus_inf == s->plus_inf && c->fp8 == s->fp8 && c->may_reject == may_reject;
}

/* Bundle k of cases: plain ones, then those that may be refused, then those of them that mark empty states with +inf,
 * then those of each 8-bit result. */
static void compose_cases(struct ha_merge_bundles *b, struct ha_merge_task *t, size_t k)
{
    struct ha_merge_bundle *all = &b->at_hand;
    struct ha_merge_shape *s = &t->shape;
    const size_t set = k / BUNDLE_STATES;
    s->plus_inf = set == 2;
    s->fp8 = set > 2 ? (enum ha_fp8)(set - 2) : HA_FP8_NONE;
    s->states = bundle_states[k % BUNDLE_STATES];
    s->dim = s->fp8 ? next_value(0, s->form * HA_DTYPE_COUNT + s->dtype, k) : (size_t[]){ 64, 128, 80 }[k % 3];
    t->seed = b->only->seed * 1000003 + k;
    t->bundle = all;
    all->count = 0;
    for (size_t i = 0; i < HA_MERGE_CASES; i++)
        if (b->asked[i] && fits(&ha_merge_cases[i], s, set == 1 || set == 2)) all->item[all->count++] = i;
    s->tokens = all->count;
    s->heads = ROWS_EACH;
}

/* Batch k of random rows; the first kinds are the forms, flat. */
static void compose_random(const struct ha_merge_bundles *b, struct ha_merge_task *t, size_t k)
{
    *t = ha_merge_random_task(t->shape.form * HA_DTYPE_COUNT + t->shape.dtype, b->only, k);
    t->shape.order = HA_ORDER_FLAT;
    t->shape.alias = HA_ALIAS_NONE;
    t->shape.layout = HA_LAYOUT_PACKED;
    if (!b->asked[t->item]) t->shape.tokens = 0;
}

static size_t each_of(const struct ha_merge_bundles *b) { return b->batches ? b->batches : SETS * BUNDLE_STATES; }

size_t ha_merge_bundles_count(const struct ha_merge_bundles *b) { return HA_FORM_COUNT * HA_DTYPE_COUNT * each_of(b); }

struct ha_merge_task ha_merge_bundle_task(void *bundles, size_t i)
{
    struct ha_merge_bundles *b = bundles;
    const size_t k = i % each_of(b), form = i / each_of(b) / HA_DTYPE_COUNT, dtype = i / each_of(b) % HA_DTYPE_COUNT;
    struct ha_merge_task t = { .shape = { .form = (enum ha_form)form, .dtype = (enum ha_dtype)dtype },
                               .row = SIZE_MAX };
    if (!allows(0, b->only->form, form) || !allows(0, b->only->dtype, dtype)) return t;
    if (b->batches) compose_random(b, &t, k);
    else compose_cases(b, &t, k);
    if (b->heads_first) t.shape.layout = HA_LAYOUT_HEADS_FIRST;
    return t;
}
