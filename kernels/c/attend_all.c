#include "harness/base/pool.h"
#include "kernels/c/attend.h"
#include "kernels/c/ops.h"
#include "kernels/rows.h"

#include <stdatomic.h>

/* Keys of a part: with fewer, starting one costs too much of its time; with more, a worker that is late delays all.
 * Parts for each worker: where they are equal and come out even; where they do not. */
enum { PART_LEAST = 512, PART_MOST = 8192, EVEN_PARTS = 4, ODD_PARTS = 8, ENOUGH_PARTS = 16 };

/* A unit of more rows reads its keys several times, and states of so many rows cost more than they gain: it stays
 * whole. */
enum { CUT_ROWS = HA_CHUNK_ROWS };

/* What the calling thread does alone sooner than with others. */
enum { SMALL_NS = 20000 };

struct unit {
    size_t keys, first, count; /* the parts are [first, first + count) */
    uint64_t cost;             /* of them all: keys times rows */
    atomic_size_t left;        /* parts that are not done */
};

struct turn {
    uint64_t cost;
    size_t unit, part;
};

struct work {
    const struct ha_kernels *self;
    const struct ha_attend_all *all;
    struct unit *unit;           /* [count] */
    struct ha_attend_part *part; /* [parts], those of a unit together; a unit of one part has no state */
    struct turn *turn;           /* [parts], the largest first */
    size_t parts, scratch_bytes;
    char *scratch; /* [threads][scratch_bytes] */
    char *states;
    size_t bytes;
};

static size_t most(size_t a, size_t b) { return a > b ? a : b; }
static size_t quotient_up(size_t a, size_t b) { return (a + b - 1) / b; }

static size_t common_divisor(size_t a, size_t b)
{
    while (b > 0) {
        const size_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* of one core, by and large: 16 bytes and 64 operations in a nanosecond */
static double time_ns(const struct ha_attend *a, size_t keys)
{
    return 2 * (double)keys * (double)a->head_dim
           * ((double)ha_dtype_bytes(a->dtype) / 16 + 2 * (double)(a->q_len * a->group) / 64);
}

static struct work lay(const struct ha_attend_all *all, size_t count, size_t threads, size_t parts,
                       size_t scratch_bytes, char *memory)
{
    struct work w = { .all = all, .parts = parts, .scratch_bytes = quotient_up(scratch_bytes, 64) * 64 };
    w.unit = ha_attend_carve(memory, &w.bytes, count, sizeof *w.unit);
    w.part = ha_attend_carve(memory, &w.bytes, parts, sizeof *w.part);
    w.turn = ha_attend_carve(memory, &w.bytes, parts, sizeof *w.turn);
    w.scratch = ha_attend_carve(memory, &w.bytes, threads, w.scratch_bytes);
    w.states = memory ? memory + w.bytes : NULL;
    return w;
}

size_t ha_c_attend_all_bytes(const struct ha_attend *largest, size_t count, size_t threads)
{
    struct ha_attend cut = *largest;
    cut.group = most(cut.group, ha_least(CUT_ROWS, cut.q_len * cut.group));
    cut.q_len = 1;
    const size_t keys = ha_attend_plan(largest).keys;
    const size_t parts = ha_least(count * most(1, keys / PART_LEAST),
                                  (ENOUGH_PARTS + EVEN_PARTS) * threads + count * (keys / PART_MOST + 2));
    return lay(NULL, count, threads, parts, ha_c_attend_scratch_bytes(largest), NULL).bytes
           + parts * ha_c_attend_state_bytes(&cut);
}

/* What all units together say about how to cut them. */
struct sum {
    uint64_t cost, largest, least;
    double ns;
    size_t count, threads, scratch_bytes;
};

/* unit: [count], where lay puts them */
static struct sum sum_of(const struct ha_attend_all *all, struct unit *unit)
{
    struct sum s = { .count = all->count, .threads = ha_pool_threads(all->pool), .least = UINT64_MAX };
    for (size_t i = 0; i < all->count; i++) {
        const struct ha_attend *a = &all->units[i];
        const size_t keys = ha_attend_plan(a).keys;
        const uint64_t cost = (uint64_t)keys * a->q_len * a->group;
        unit[i].keys = keys;
        unit[i].cost = cost;
        s.cost += cost;
        s.ns += time_ns(a, keys);
        s.largest = cost > s.largest ? cost : s.largest;
        s.least = cost < s.least ? cost : s.least;
        s.scratch_bytes = most(s.scratch_bytes, ha_c_attend_scratch_bytes(a));
    }
    return s;
}

/* How many parts to make of a unit. Equal units get so many that each worker has as many parts as the others, if that
 * takes few; of others none is larger than a fraction of a worker's share. */
static size_t parts_of(const struct sum *s, const struct ha_attend *a, const struct unit *u)
{
    const size_t rows = a->q_len * a->group, keys = u->keys, step = s->threads / common_divisor(s->count, s->threads);
    if (s->threads == 1 || !ha_c_attend_splits(a) || (a->q_len > 1 && rows > CUT_ROWS)
        || s->largest * s->threads * ENOUGH_PARTS <= s->cost)
        return 1;
    size_t parts;
    if (s->largest - s->least <= s->largest / 32 && s->count * step <= ENOUGH_PARTS * s->threads) {
        parts = quotient_up(EVEN_PARTS * s->threads, s->count * step) * step;
        if (parts > 1) parts = quotient_up(most(parts, quotient_up(keys, PART_MOST)), step) * step;
    } else {
        parts = (size_t)((double)u->cost * ODD_PARTS * (double)s->threads / (double)s->cost) + 1;
        if (parts > 1) parts = most(parts, quotient_up(keys, PART_MOST));
    }
    return ha_least(parts, most(1, keys / PART_LEAST));
}

/* Parts of a unit are equal but for HA_SPLIT_KEYS. */
static void cut(struct work *w, size_t i)
{
    const struct ha_attend *a = &w->all->units[i];
    struct unit *u = &w->unit[i];
    const size_t blocks = quotient_up(u->keys, HA_SPLIT_KEYS), state_bytes = ha_c_attend_state_bytes(a);
    u->first = w->parts;
    atomic_init(&u->left, u->count);
    for (size_t p = 0; p < u->count; p++, w->parts++) {
        const size_t first = blocks * p / u->count * HA_SPLIT_KEYS,
                     end = ha_least(blocks * (p + 1) / u->count * HA_SPLIT_KEYS, u->keys);
        w->part[w->parts] = (struct ha_attend_part){
            .attend = a, .first = first, .keys = end - first, .state = u->count > 1 ? w->states : NULL
        };
        w->turn[w->parts] = (struct turn){ .cost = (uint64_t)(end - first) * a->q_len * a->group,
                                           .unit = i,
                                           .part = w->parts };
        if (u->count > 1) w->states += state_bytes;
    }
}

/* a comes later than b */
static bool later(const struct turn *a, const struct turn *b)
{
    return a->cost < b->cost || (a->cost == b->cost && a->part > b->part);
}

static void sink(struct turn *x, size_t at, size_t n)
{
    for (size_t next; (next = 2 * at + 1) < n; at = next) {
        if (next + 1 < n && later(&x[next + 1], &x[next])) next++;
        if (!later(&x[next], &x[at])) return;
        const struct turn swap = x[at];
        x[at] = x[next];
        x[next] = swap;
    }
}

/* by heap: without memory, and the same for every library */
static void sort(struct turn *x, size_t n)
{
    for (size_t i = n / 2; i-- > 0;) sink(x, i, n);
    while (n-- > 1) {
        const struct turn swap = x[0];
        x[0] = x[n];
        x[n] = swap;
        sink(x, 0, n);
    }
}

static void run_turn(void *arg, size_t task, size_t worker)
{
    struct work *w = arg;
    const struct turn *turn = &w->turn[task];
    struct unit *u = &w->unit[turn->unit];
    char *scratch = w->scratch + worker * w->scratch_bytes;
    if (u->count == 1) {
        struct ha_attend a = w->all->units[turn->unit];
        a.scratch = scratch;
        w->self->attend(w->self, &a);
        return;
    }
    struct ha_attend_part *part = &w->part[turn->part];
    part->scratch = scratch;
    w->self->attend_part(w->self, part);
    if (atomic_fetch_sub_explicit(&u->left, 1, memory_order_acq_rel) > 1) return;
    const struct ha_attend_join join = { .attend = part->attend, .parts = w->part + u->first, .count = u->count };
    w->self->attend_join(w->self, &join);
}

static void run_units(void *arg, size_t task, size_t worker)
{
    const struct work *w = arg;
    for (size_t i = 0; i < w->all->count; i++) {
        struct ha_attend a = w->all->units[i];
        a.scratch = w->scratch + worker * w->scratch_bytes;
        w->self->attend(w->self, &a);
    }
}

void ha_c_attend_all(const struct ha_kernels *self, const struct ha_attend_all *all)
{
    struct unit *unit = all->work;
    const struct sum s = sum_of(all, unit);
    size_t parts = 0;
    for (size_t i = 0; i < all->count; i++) parts += unit[i].count = parts_of(&s, &all->units[i], &unit[i]);
    struct work w = lay(all, all->count, s.threads, parts, s.scratch_bytes, all->work);
    w.self = self;
    if (s.threads == 1 || !(s.ns > SMALL_NS)) {
        ha_pool_run(all->pool, all->name, all->count > 0, run_units, &w); /* one task stays on this thread */
        return;
    }
    w.parts = 0;
    for (size_t i = 0; i < all->count; i++) cut(&w, i);
    sort(w.turn, w.parts);
    ha_pool_run(all->pool, all->name, w.parts, run_turn, &w);
}
