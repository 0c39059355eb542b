/* What is fetched is what was asked for, byte for byte, and nothing beside it, by every way; in how few calls; behind a
 * closed gate, whatever becomes of the arguments, unless the CPU stores them itself; and buffers that are still read
 * are not written (harness/base/order.h). Linked with the arenas' functions wrapped, so that each allocation is
 * counted. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/order_api.h"
#include "harness/base/pool.h"
#include "harness/base/rng.h"
#include "harness/base/stores.h"
#include "harness/base/test.h"
#include "suites/parts/fetch.h"

extern const struct ha_device_api ha_device_host;
extern const struct ha_kernels ha_kernels_c;

enum { WAYS = HA_FETCH_STORES + 1, SEQS = 2, HEADS = 3, DIM = 8, HEAD = DIM * sizeof(float), ROW = HEADS * HEAD };
/* tokens of a store; a destination has two parts */
enum { TOKENS = 56, PART = 64, CAP = 2 * PART, LISTS_MAX = HEADS + 1, SLOTS = 3, TURNS = SLOTS };
enum { ROWS_MAX = SEQS * LISTS_MAX * TOKENS, BYTES_MAX = SEQS * LISTS_MAX * PART * ROW };

static struct ha_why why;
static void ok(enum ha_status status)
{
    if (status != HA_OK) fail_msg("%s", why.text);
}

/* ---- a device that counts, and memory of it ---------------------------------------------------------------------- */

static struct counted {
    size_t pieces_calls, pieces, copies, copies_2d, moves, bytes, events;
} counted;

static enum ha_status copy_pieces(struct ha_stream *s, const struct ha_device_pieces *p, enum ha_direction dir)
{
    counted.pieces_calls++;
    counted.pieces += p->count;
    for (size_t i = 0; i < p->count; i++) counted.bytes += p->bytes[i];
    return ha_device_host.copy_pieces(s, p, dir);
}
static enum ha_status copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    counted.copies++;
    counted.bytes += bytes;
    return ha_device_host.copy(s, dst, src, bytes, dir);
}
static enum ha_status copy_2d(struct ha_stream *s, void *dst, size_t dst_stride, const void *src, size_t src_stride,
                              size_t row_bytes, size_t rows, enum ha_direction dir)
{
    counted.copies_2d++;
    counted.bytes += rows * row_bytes;
    return ha_device_host.copy_2d(s, dst, dst_stride, src, src_stride, row_bytes, rows, dir);
}
static enum ha_status move(struct ha_stream *s, const struct ha_device_move *m)
{
    counted.moves++;
    counted.bytes += m->rows * m->row_bytes;
    return ha_device_host.move(s, m);
}
static bool gated; /* the stream waits until the test lets it go */
static struct ha_event *behind_gate[TURNS];
static size_t behind_count;
static enum ha_status event_record(struct ha_event *event, struct ha_stream *s)
{
    counted.events++;
    if (gated) behind_gate[behind_count++ % TURNS] = event;
    return ha_device_host.event_record(event, s);
}
static enum ha_status event_sync(struct ha_event *event)
{
    for (size_t i = 0; gated && i < behind_count && i < TURNS; i++)
        if (behind_gate[i] == event) fail_msg("waits for a fetch that waits for the gate");
    return ha_device_host.event_sync(event);
}

static size_t taken; /* by whatever allocates, since it was set to 0 */
void *__real_ha_alloc(struct ha_arena *arena, size_t bytes, enum ha_tag tag, struct ha_why *reason);
void *__wrap_ha_alloc(struct ha_arena *arena, size_t bytes, enum ha_tag tag, struct ha_why *reason);
void *__wrap_ha_alloc(struct ha_arena *arena, size_t bytes, enum ha_tag tag, struct ha_why *reason)
{
    taken++;
    return __real_ha_alloc(arena, bytes, tag, reason);
}
void *__real_ha_grow(struct ha_arena *arena, void *ptr, size_t keep, size_t bytes, enum ha_tag tag,
                     struct ha_why *reason);
void *__wrap_ha_grow(struct ha_arena *arena, void *ptr, size_t keep, size_t bytes, enum ha_tag tag,
                     struct ha_why *reason);
void *__wrap_ha_grow(struct ha_arena *arena, void *ptr, size_t keep, size_t bytes, enum ha_tag tag,
                     struct ha_why *reason)
{
    taken++;
    return __real_ha_grow(arena, ptr, keep, bytes, tag, reason);
}
void *__real_ha_device_alloc(struct ha_device_arena *arena, enum ha_memory kind, size_t bytes, enum ha_tag tag,
                             struct ha_why *reason);
void *__wrap_ha_device_alloc(struct ha_device_arena *arena, enum ha_memory kind, size_t bytes, enum ha_tag tag,
                             struct ha_why *reason);
void *__wrap_ha_device_alloc(struct ha_device_arena *arena, enum ha_memory kind, size_t bytes, enum ha_tag tag,
                             struct ha_why *reason)
{
    taken++;
    return __real_ha_device_alloc(arena, kind, bytes, tag, reason);
}
enum ha_status __real_ha_device_event(struct ha_device_arena *arena, struct ha_event **event, struct ha_why *reason);
enum ha_status __wrap_ha_device_event(struct ha_device_arena *arena, struct ha_event **event, struct ha_why *reason);
enum ha_status __wrap_ha_device_event(struct ha_device_arena *arena, struct ha_event **event, struct ha_why *reason)
{
    taken++;
    return __real_ha_device_event(arena, event, reason);
}

static const struct ha_shape shape = { .batch = SEQS,
                                       .q_len = 1,
                                       .layers = 1,
                                       .q_heads = HEADS,
                                       .kv_heads = HEADS,
                                       .head_dim = DIM,
                                       .dtype = HA_F32,
                                       .scale = 1 };
static struct {
    struct ha_device_api api;
    struct ha_context ctx;
    struct ha_kv from[SEQS], to[TURNS][SEQS], vectors[TURNS][SEQS]; /* which is `to` once more, by rows of a head */
    struct ha_fetch f;
    struct ha_crew crew;
} w;

/* the embedded device; watched: by the history of this process */
static void open_device(bool watched)
{
    memset(&w, 0, sizeof w);
    gated = false;
    w.api = ha_device_host;
    w.api.copy_pieces = copy_pieces;
    w.api.copy = copy;
    w.api.copy_2d = copy_2d;
    w.api.move = move;
    w.api.event_record = event_record;
    w.api.event_sync = event_sync;
    w.ctx = (struct ha_context){ .shape = &shape,
                                 .kernels = &ha_kernels_c,
                                 .api = watched ? ha_order_wrap(&w.api) : &w.api };
    const struct ha_device_config config = { .kernels = &ha_kernels_c, .wait_limit_ns = UINT64_MAX };
    ok(w.ctx.api->open(&w.ctx.device, &config, &why));
    ok(w.ctx.api->stream_create(w.ctx.device, "main", &w.ctx.stream, &why));
    ok(ha_arena_create(&w.ctx.arena, true, &why));
    ok(ha_device_arena_create(&w.ctx.device_arena, w.ctx.api, w.ctx.device, &why));
    ok(ha_pool_create(&w.ctx.pool, HA_TEAM_DEFAULT, 2, &why));
    ok(ha_crew_create(&w.crew, 3, &why));
}

/* stores in the way's memory, each byte drawn, and destinations; of the embedded device both are host memory */
static void fill_stores(void)
{
    for (size_t b = 0; b < SEQS; b++)
        for (size_t i = 0; i < TOKENS * ROW; i++) {
            w.from[b].k[i] = (unsigned char)ha_rng_bits(1, 2 * b, i);
            w.from[b].v[i] = (unsigned char)ha_rng_bits(1, 2 * b + 1, i);
        }
}
static void create(enum ha_fetch_way way, size_t slots)
{
    for (size_t b = 0; b < SEQS; b++) {
        ok(ha_kv_create(&w.ctx, ha_fetch_memory(way), TOKENS, &w.from[b], &why));
        for (int t = 0; t < TURNS; t++) {
            ok(ha_kv_create(&w.ctx, HA_MEM_DEVICE, CAP, &w.to[t][b], &why));
            w.vectors[t][b] = w.to[t][b];
            w.vectors[t][b].cap = CAP * HEADS;
        }
    }
    fill_stores();
    ok(ha_fetch_create(&w.f, &w.ctx, way, slots, SEQS * LISTS_MAX, ROWS_MAX, BYTES_MAX, &why));
    taken = 0;
}

static void close_device(void)
{
    const char *failure = w.ctx.api->failure(w.ctx.device);
    if (failure) fail_msg("%s", failure);
    ha_crew_end(&w.crew);
    w.ctx.api->stream_destroy(w.ctx.stream);
    ha_pool_destroy(w.ctx.pool);
    ha_device_arena_destroy(w.ctx.device_arena);
    ok(ha_arena_check(w.ctx.arena, &why));
    ha_arena_destroy(w.ctx.arena);
    w.ctx.api->close(w.ctx.device);
}

/* ---- lists, and what they ask for -------------------------------------------------------------------------------- */

enum { BLANK = 0x55 };
enum byte_is { OTHERS, ASKED, ANY };
struct asked {
    struct ha_fetch_list list[SEQS * LISTS_MAX];
    uint32_t index[SEQS * LISTS_MAX][TOKENS], slot[SEQS * LISTS_MAX][TOKENS];
    size_t count;
    unsigned char k[SEQS][CAP * ROW], v[SEQS][CAP * ROW]; /* what is in the destinations afterwards */
    unsigned char is[SEQS][CAP * ROW];                    /* enum byte_is */
};

static size_t rows_of(const struct ha_fetch_list *l) { return l->count * l->unit; }

/* Row by row, as the header says it. */
static void expect(struct asked *a, enum ha_fetch_way way)
{
    memset(a->k, BLANK, sizeof a->k);
    memset(a->v, BLANK, sizeof a->v);
    memset(a->is, OTHERS, sizeof a->is);
    for (size_t i = 0; i < a->count; i++) {
        const struct ha_fetch_list *l = &a->list[i];
        const size_t b = (size_t)(l->from - w.from), all = l->head == HA_FETCH_ALL_HEADS;
        const size_t offset = all ? 0 : l->head * HEAD, bytes = all ? ROW : HEAD;
        for (size_t r = 0; r < rows_of(l); r++) {
            const size_t from = (l->index[r / l->unit] * l->unit + r % l->unit) * ROW + offset,
                         row = l->at + (l->slot ? l->slot[r / l->unit] * l->unit + r % l->unit : r),
                         to = l->vectors ? row * HEAD : row * ROW + offset;
            memcpy(a->k[b] + to, w.from[b].k + from, bytes);
            memcpy(a->v[b] + to, w.from[b].v + from, bytes);
            memset(a->is[b] + to, ASKED, bytes);
        }
    }
    /* what gather may write besides */
    for (size_t b = 0; b < SEQS && way == HA_FETCH_GATHER; b++) {
        size_t first = CAP, end = 0;
        for (size_t i = 0; i < a->count; i++) {
            const struct ha_fetch_list *l = &a->list[i];
            if (l->from != &w.from[b] || l->slot || l->vectors || !l->count) continue;
            first = ha_least(first, l->at);
            end = ha_most(end, l->at + rows_of(l));
        }
        for (size_t x = first * ROW; x < end * ROW; x++)
            if (a->is[b][x] == OTHERS) a->is[b][x] = ANY;
    }
}

/* What lists are like. Vectors: those of one head; the rows of head h then are PART of the second half, those h * PART
 * behind the first. */
enum { SCATTERED = 1, VECTORS = 2, LIKES = 4 };

/* Adds a list: of each entry one in `of`, at random, rising or falling; of 0: none; 1: all. They go to that part of the
 * destination; scattered: to slots of it. */
static void add(struct asked *a, int turn, size_t b, size_t head, size_t unit, size_t of, size_t part, int like,
                uint64_t seed)
{
    const size_t i = a->count++, entries = TOKENS / unit, h = head % HEADS;
    const bool scattered = like & SCATTERED, vectors = like & VECTORS && head != HA_FETCH_ALL_HEADS;
    struct ha_fetch_list *l = &a->list[i];
    *l = (struct ha_fetch_list){ .from = &w.from[b],
                                 .to = vectors ? &w.vectors[turn][b] : &w.to[turn][b],
                                 .head = head,
                                 .vectors = vectors,
                                 .index = a->index[i],
                                 .unit = unit,
                                 .at = (vectors ? PART * (HEADS + h) : part * PART) + (scattered ? 0 : 2 * h),
                                 .slot = scattered ? a->slot[i] : NULL,
                                 .k = w.to[turn][b].k,
                                 .v = w.to[turn][b].v };
    for (size_t n = 0; n < entries; n++) {
        const size_t e = seed & 1 ? n : entries - 1 - n;
        if (!of || ha_rng_bits(seed, i, n) % of) continue;
        /* neither 1 nor 5 has a divisor in common with the slots of a part */
        a->slot[i][l->count] = (uint32_t)((e * (seed & 2 ? 1 : 5) + h) % (PART / unit));
        a->index[i][l->count++] = (uint32_t)e;
    }
}

enum { HEADS_APART, HEADS_TOGETHER, BOTH, KINDS };
static void ask(struct asked *a, enum ha_fetch_way way, int turn, int kind, size_t unit, size_t of, int like,
                uint64_t seed)
{
    a->count = 0;
    for (size_t b = 0; b < SEQS; b++) {
        /* of both, one with slots and one without: each in a part of its own */
        const bool together_first = seed & 4;
        if (kind == HEADS_TOGETHER || (kind == BOTH && together_first))
            add(a, turn, b, HA_FETCH_ALL_HEADS, unit, of, 0, like, seed);
        for (size_t h = 0; h < HEADS && kind != HEADS_TOGETHER; h++)
            add(a, turn, b, seed & 8 ? h : HEADS - 1 - h, unit, of, 1, kind == BOTH ? like ^ SCATTERED : like, seed);
        if (kind == BOTH && !together_first) add(a, turn, b, HA_FETCH_ALL_HEADS, unit, of, 0, like, seed);
        memset(w.to[turn][b].k, BLANK, CAP * ROW);
        memset(w.to[turn][b].v, BLANK, CAP * ROW);
    }
    expect(a, way);
}

static void assert_there(const struct asked *a, int turn)
{
    static const char *const kind[] = { [OTHERS] = "nobody asked for", [ASKED] = "was asked for" };
    ok(w.ctx.api->stream_sync(w.ctx.stream));
    for (size_t b = 0; b < SEQS; b++)
        for (int v = 0; v < 2; v++) {
            const unsigned char *got = v ? w.to[turn][b].v : w.to[turn][b].k, *want = v ? a->v[b] : a->k[b];
            for (size_t x = 0; x < CAP * ROW; x++)
                if (got[x] != want[x] && a->is[b][x] != ANY)
                    fail_msg("fetch=%s, %s of store %zu, row %zu of head %zu, which %s", ha_fetch_word(w.f.way),
                             v ? "V" : "K", b, x / ROW, x % ROW / HEAD, kind[a->is[b][x]]);
        }
}

/* no row is stored twice */
static void assert_stored(const struct asked *a, enum ha_fetch_way way)
{
    size_t bytes = 0;
    for (size_t i = 0; i < a->count; i++)
        bytes += 2 * rows_of(&a->list[i]) * (a->list[i].head == HA_FETCH_ALL_HEADS ? ROW : HEAD);
    assert_int_equal(ha_stores_take(), way == HA_FETCH_STORES ? bytes : 0);
}

static void run(const struct asked *a) { ok(ha_fetch_run(&w.f, w.ctx.stream, a->list, a->count, &why)); }

enum { SEEDS = HA_SANITIZED ? 2 : 5 };

/* ---- the tests --------------------------------------------------------------------------------------------------- */

TEST(test_every_byte)
{
    static struct asked a;
    static const size_t units[] = { 1, 8, TOKENS }, shares[] = { 0, 1, 2, 7 };
    for (int way = 0; way < WAYS; way++) {
        open_device(false);
        create((enum ha_fetch_way)way, SLOTS);
        ha_stores_take();
        for (size_t n = 0; n < COUNT(units) * COUNT(shares) * KINDS * LIKES; n++)
            for (uint64_t j = 0; j < SEEDS; j++) {
                const uint64_t seed = n + 5 * j; /* its low bits are orders */
                const size_t unit = units[n % COUNT(units)], of = shares[n / COUNT(units) % COUNT(shares)],
                             rest = n / COUNT(units) / COUNT(shares);
                w.f.crew = j % 2 ? &w.crew : NULL;
                ask(&a, (enum ha_fetch_way)way, 0, (int)(rest / LIKES), unit, of, (int)(rest % LIKES), seed);
                run(&a);
                assert_there(&a, 0);
                assert_stored(&a, (enum ha_fetch_way)way);
            }
        assert_int_equal(taken, 0);
        close_device();
    }
}

/* As many fetches wait as there are slots, and the host for none of them; what they were told is gone by the time that
 * they run. Gather has read the stores, too. */
TEST(test_arguments_are_copied)
{
    static struct asked a[TURNS], told;
    for (int way = 0; way < HA_FETCH_STORES; way++)
        for (int like = 0; like < LIKES; like++) {
            open_device(false);
            create((enum ha_fetch_way)way, SLOTS);
            uint32_t *gate = ha_device_alloc(w.ctx.device_arena, HA_MEM_MAPPED, sizeof *gate, HA_TAG_SCRATCH, &why);
            assert_non_null(gate);
            __atomic_store_n(gate, 0, __ATOMIC_RELEASE);
            for (int t = 0; t < TURNS; t++)
                ask(&a[t], (enum ha_fetch_way)way, t, BOTH, 1, t ? 3 : 2, like, 7 + (uint64_t)t);
            ok(w.api.flag_wait(w.ctx.stream, gate, 1));
            gated = true;
            behind_count = 0;
            for (int t = 0; t < TURNS; t++) {
                told = a[t];
                for (size_t i = 0; i < told.count; i++) {
                    told.list[i].index = told.index[i];
                    if (told.list[i].slot) told.list[i].slot = told.slot[i];
                }
                run(&told);
                memset(&told, 0, sizeof told);
            }
            for (size_t b = 0; b < SEQS; b++) assert_int_equal(w.to[0][b].k[0], BLANK);
            for (size_t b = 0; b < SEQS && way == HA_FETCH_GATHER; b++) memset(w.from[b].k, 0, TOKENS * ROW);
            gated = false;
            __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
            for (int t = 0; t < TURNS; t++) assert_there(&a[t], t);
            close_device();
        }
}

/* Without a wait of the caller's in between, buffers are used again, and each time what reads them is over. */
TEST(test_buffers_are_awaited)
{
    static struct asked a;
    for (int way = 0; way < WAYS; way++) {
        ok(ha_order_begin(&why));
        open_device(true);
        create((enum ha_fetch_way)way, SLOTS);
        ask(&a, (enum ha_fetch_way)way, 0, BOTH, 1, 2, VECTORS, 7);
        for (int n = 0; n < 3 * SLOTS; n++) run(&a);
        assert_there(&a, 0);
        if (ha_order_verdict(ha_order_now(), &why) != HA_OK) fail_msg("%s", why.text);
        close_device();
        ha_order_end();
    }
}

static void assert_counted(struct ha_fetch_list *list, size_t count, struct counted want)
{
    counted = (struct counted){ .events = 0 };
    ha_stores_take();
    ok(ha_fetch_run(&w.f, w.ctx.stream, list, count, &why));
    counted.bytes += ha_stores_take();
    assert_int_equal(counted.pieces_calls, want.pieces_calls);
    assert_int_equal(counted.pieces, want.pieces);
    assert_int_equal(counted.copies, want.copies);
    assert_int_equal(counted.copies_2d, want.copies_2d);
    assert_int_equal(counted.moves, want.moves);
    assert_int_equal(counted.bytes, want.bytes);
    assert_int_equal(counted.events, want.events);
}

/* Four rows, two and two of which lie side by side, to slots of which the first two do. */
TEST(test_calls)
{
    static const uint32_t index[] = { 1, 2, 4, 5 }, slot[] = { 7, 8, 20, 9 };
    enum { N = COUNT(index), BYTES = 2 * N * ROW };
    for (int way = 0; way < WAYS; way++) {
        open_device(false);
        create((enum ha_fetch_way)way, SLOTS);
        struct ha_fetch_list heads[HEADS], all[SEQS + 1];
        for (size_t h = 0; h < HEADS; h++)
            heads[h] = (struct ha_fetch_list){ .from = w.from,
                                               .to = w.to[0],
                                               .head = h,
                                               .index = index,
                                               .count = N,
                                               .unit = 1,
                                               .k = w.to[0]->k,
                                               .v = w.to[0]->v };
        const struct counted apart[] = {
            { .pieces_calls = 1, .pieces = 2 * HEADS * N, .bytes = BYTES, .events = 1 },
            { .moves = 2, .bytes = BYTES, .events = 1 },
            { .copies = 2, .bytes = BYTES, .events = 1 },
            { .bytes = BYTES },
        };
        assert_counted(heads, HEADS, apart[way]);

        for (size_t h = 0; h < HEADS; h++) heads[h].slot = slot;
        const struct counted scattered[] = {
            apart[0],
            apart[1],
            { .copies = 2 * HEADS * 2, .copies_2d = 2 * HEADS, .bytes = BYTES, .events = 1 },
            apart[3],
        };
        assert_counted(heads, HEADS, scattered[way]);
        w.api.copy_2d = NULL;
        const struct counted by_row[] = {
            apart[0], apart[1], { .copies = 2 * HEADS * N, .bytes = BYTES, .events = 1 }, apart[3]
        };
        assert_counted(heads, HEADS, by_row[way]);

        /* vectors need no copy_2d: one copy of what is dense, and one for each of 7 and 8, 20, and 9 */
        for (size_t h = 0; h < HEADS; h++) {
            heads[h].vectors = true;
            heads[h].to = w.vectors[0];
            heads[h].at = 100 * h;
        }
        const struct counted of_slots[] = {
            apart[0], apart[1], { .copies = 2 * HEADS * 3, .bytes = BYTES, .events = 1 }, apart[3]
        };
        assert_counted(heads, HEADS, of_slots[way]);
        for (size_t h = 0; h < HEADS; h++) heads[h].slot = NULL;
        const struct counted dense[] = {
            apart[0], apart[1], { .copies = 2 * HEADS, .bytes = BYTES, .events = 1 }, apart[3]
        };
        assert_counted(heads, HEADS, dense[way]);

        /* all heads, of the first and the last of the stores; between them nothing of one */
        for (size_t i = 0; i < SEQS + 1; i++)
            all[i] = (struct ha_fetch_list){ .from = &w.from[i / SEQS],
                                             .to = &w.to[i == 1][i / SEQS],
                                             .head = HA_FETCH_ALL_HEADS,
                                             .index = index,
                                             .count = i == 1 ? 0 : N,
                                             .unit = 1,
                                             .at = 3,
                                             .k = w.to[i == 1][i / SEQS].k,
                                             .v = w.to[i == 1][i / SEQS].v };
        const struct counted together[] = {
            { .pieces_calls = 1, .pieces = 2 * 2 * 2, .bytes = 2 * BYTES, .events = 1 },
            { .moves = 2 * 2, .bytes = 2 * BYTES, .events = 1 },
            { .copies = 2 * 2, .bytes = 2 * BYTES, .events = 1 },
            { .bytes = 2 * BYTES },
        };
        assert_counted(all, SEQS + 1, together[way]);

        all[0].slot = slot;
        const struct counted to_slots[] = {
            { .pieces_calls = 1, .pieces = 2 * 3, .bytes = BYTES, .events = 1 },
            { .moves = 2, .bytes = BYTES, .events = 1 },
            { .copies = 2 * 3, .bytes = BYTES, .events = 1 },
            apart[3],
        };
        assert_counted(all, 1, to_slots[way]);

        assert_counted(&all[1], 1, (struct counted){ .bytes = 0 });
        assert_counted(NULL, 0, (struct counted){ .bytes = 0 });
        assert_int_equal(taken, 0);
        ok(w.ctx.api->stream_sync(w.ctx.stream));
        close_device();
    }
}

static void assert_refused(const struct ha_fetch_list *list, size_t count, const char *words)
{
    counted = (struct counted){ .events = 0 };
    assert_int_equal(ha_fetch_run(&w.f, w.ctx.stream, list, count, &why), HA_ERROR);
    assert_string_equal(why.text, words);
    assert_int_equal(counted.pieces_calls + counted.copies + counted.copies_2d + counted.moves + counted.events, 0);
}

TEST(test_refused)
{
    static const uint32_t index[] = { 6, 5, TOKENS - 1, TOKENS }, one[] = { 1 }, last[] = { UINT32_MAX },
                          slot[] = { 0, 16, 1 }, few[] = { 0, 9, 1, 2 };
    for (int way = 0; way < WAYS; way++) {
        open_device(false);
        create((enum ha_fetch_way)way, SLOTS);
        ok(ha_fetch_create(&w.f, &w.ctx, (enum ha_fetch_way)way, 1, 4, 8, 16 * ROW, &why));
        struct ha_fetch_list list[2];
        for (int i = 0; i < 2; i++)
            list[i] = (struct ha_fetch_list){ .from = &w.from[i],
                                              .to = &w.to[0][i],
                                              .head = 1,
                                              .index = index,
                                              .count = 3,
                                              .unit = 1,
                                              .k = w.to[0][i].k,
                                              .v = w.to[0][i].v };
        ok(ha_fetch_run(&w.f, w.ctx.stream, list, 2, &why)); /* which is right */

        list[1].count = 4;
        assert_refused(list, 2, "fetch: list 1 is of rows up to 57 of 56, to rows up to 4 of 128");
        list[1].count = 1;
        list[1].unit = 8;
        list[1].at = CAP - 7;
        assert_refused(list, 2, "fetch: list 1 is of rows up to 56 of 56, to rows up to 129 of 128");
        list[1].at = 0;
        list[1].unit = 40;
        list[1].index = one;
        assert_refused(list, 2, "fetch: list 1 is of rows up to 80 of 56, to rows up to 40 of 128");
        list[1].unit = 8;
        list[1].index = last;
        assert_refused(list, 2, "fetch: list 1 is of rows up to 34359738368 of 56, to rows up to 8 of 128");
        list[1].index = index;
        list[1].count = 3;
        list[1].unit = 1;

        list[0].at = CAP - 2;
        assert_refused(list, 2, "fetch: list 0 is of rows up to 56 of 56, to rows up to 129 of 128");
        list[0].at--;
        ok(ha_fetch_run(&w.f, w.ctx.stream, list, 2, &why));
        list[0].at = 0;
        list[0].unit = 8;
        list[0].count = 2;
        list[0].slot = slot;
        assert_refused(list, 1, "fetch: list 0 is of rows up to 56 of 56, to rows up to 136 of 128");

        list[0].slot = NULL;
        assert_refused(list, 1, "fetch: 16 rows, with room for 8");
        list[0].count = 1;
        ok(ha_fetch_run(&w.f, w.ctx.stream, list, 1, &why));
        list[1].count = 1;
        assert_refused(list, 2, "fetch: 9 rows, with room for 8");
        assert_refused(list, 5, "fetch: 5 lists, with room for 4");
        list[0].unit = 0;
        assert_refused(list, 1, "fetch: list 0 has blocks of 0 tokens");

        /* by gather, what lies between the lists of a store takes room */
        list[0].unit = list[1].unit = 1;
        list[1].from = list[0].from;
        list[1].to = list[0].to;
        list[1].k = list[0].k;
        list[1].v = list[0].v;
        list[1].at = 15;
        ok(ha_fetch_run(&w.f, w.ctx.stream, list, 2, &why));
        list[1].at = 16;
        if (way == HA_FETCH_GATHER) assert_refused(list, 2, "fetch=gather: 1632 bytes, with room for 1536");
        else ok(ha_fetch_run(&w.f, w.ctx.stream, list, 2, &why));

        /* with slots, only what it brings: of a head three rows, then four */
        ok(ha_fetch_create(&w.f, &w.ctx, (enum ha_fetch_way)way, 1, 1, 4, 3 * HEAD, &why));
        list[0].slot = few;
        list[0].count = 3;
        ok(ha_fetch_run(&w.f, w.ctx.stream, list, 1, &why));
        list[0].index = few;
        list[0].count = 4;
        if (way == HA_FETCH_GATHER) assert_refused(list, 1, "fetch=gather: 128 bytes, with room for 96");
        else ok(ha_fetch_run(&w.f, w.ctx.stream, list, 1, &why));

        /* of vectors, as many as there are */
        list[0].vectors = true;
        list[0].to = &w.vectors[0][0];
        list[0].slot = NULL;
        list[0].count = 3;
        list[0].at = CAP * HEADS - 2;
        assert_refused(list, 1, "fetch: list 0 is of rows up to 10 of 56, to rows up to 385 of 384");
        list[0].at--;
        ok(ha_fetch_run(&w.f, w.ctx.stream, list, 1, &why));
        ok(w.ctx.api->stream_sync(w.ctx.stream));
        close_device();
    }
}

TEST(test_waived)
{
    static const char *const lacks[WAYS] = { "the device has no operation copy_pieces; another fetch needs none",
                                             "the device has no operation move; another fetch needs none", NULL, NULL };
    open_device(false);
    w.api.copy_pieces = NULL;
    w.api.move = NULL;
    for (int way = 0; way < WAYS; way++) {
        const enum ha_status want = lacks[way] ? HA_WAIVED : HA_OK;
        assert_int_equal(ha_fetch_create(&w.f, &w.ctx, (enum ha_fetch_way)way, 1, 1, 1, ROW, &why), want);
        if (lacks[way]) assert_string_equal(why.text, lacks[way]);
    }
    close_device();
}
