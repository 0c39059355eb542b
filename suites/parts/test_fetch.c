/* A fetch takes few calls; the host waits for none until buffers are used again, whatever becomes of the arguments; and
 * lists that cannot be are refused. What comes where `habench check` judges, of every variant that fetches. */

#include "harness/base/rng.h"
#include "harness/base/stores.h"
#include "suites/parts/fetch.h"
#include "suites/parts/test_instance.h"

enum { WAYS = HA_FETCH_STORES + 1, SEQS = 2, HEADS = 3, DIM = 8, HEAD = DIM * sizeof(float), ROW = HEADS * HEAD };
enum { TOKENS = 56, CAP = 128, LISTS_MAX = 8, SLOTS = 3 }; /* of a store; of a destination */

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
static enum ha_status move_rows(struct ha_stream *s, const struct ha_device_move *m)
{
    counted.moves++;
    counted.bytes += m->rows * m->row_bytes;
    return ha_device_host.move(s, m);
}
static bool gated; /* the stream waits until the test lets it go */
static struct ha_event *behind_gate[SLOTS];
static size_t behind_count;
static enum ha_status event_record(struct ha_event *event, struct ha_stream *s)
{
    counted.events++;
    if (gated) behind_gate[behind_count++ % SLOTS] = event;
    return ha_device_host.event_record(event, s);
}
static enum ha_status event_sync(struct ha_event *event)
{
    for (size_t i = 0; gated && i < behind_count && i < SLOTS; i++)
        if (behind_gate[i] == event) fail_msg("waits for a fetch that waits for the gate");
    return ha_device_host.event_sync(event);
}

static const struct ha_shape shape = { .batch = SEQS,
                                       .q_len = 1,
                                       .layers = 1,
                                       .q_heads = HEADS,
                                       .kv_heads = HEADS,
                                       .head_dim = DIM,
                                       .dtype = HA_F32,
                                       .scale = 1 };
static const struct ha_rule nothing = { .seq_bytes = 0 };
static struct {
    struct ha_device_api api;
    struct ha_kv from[SEQS], to[SEQS], vectors[SEQS]; /* which is `to` once more, by rows of a head */
    struct ha_fetch f;
} w;

/* Stores in the way's memory, each byte drawn, and destinations; of the embedded device both are host memory. */
static void open_fetch(enum ha_fetch_way way)
{
    memset(&w, 0, sizeof w);
    w.api = ha_device_host;
    w.api.copy_pieces = copy_pieces;
    w.api.copy = copy;
    w.api.copy_2d = copy_2d;
    w.api.move = move_rows;
    w.api.event_record = event_record;
    w.api.event_sync = event_sync;
    unwatched = true;
    open_context(&w.api, &shape, &nothing);
    for (size_t b = 0; b < SEQS; b++) {
        ok(ha_kv_create(&mine.ctx, ha_fetch_memory(way), TOKENS, &w.from[b], &why));
        ok(ha_kv_create(&mine.ctx, HA_MEM_DEVICE, CAP, &w.to[b], &why));
        w.vectors[b] = w.to[b];
        w.vectors[b].cap = CAP * HEADS;
        for (size_t i = 0; i < TOKENS * ROW; i++) {
            w.from[b].k[i] = (unsigned char)ha_rng_bits(1, 2 * b, i);
            w.from[b].v[i] = (unsigned char)ha_rng_bits(1, 2 * b + 1, i);
        }
    }
    ok(ha_fetch_create(&w.f, &mine.ctx, way, SLOTS, LISTS_MAX, LISTS_MAX * TOKENS, LISTS_MAX * CAP * ROW, &why));
}

static struct ha_fetch_list list_of(size_t from, size_t head, const uint32_t *index, size_t count)
{
    return (struct ha_fetch_list){ .from = &w.from[from],
                                   .to = &w.to[from],
                                   .head = head,
                                   .index = index,
                                   .count = count,
                                   .unit = 1,
                                   .k = w.to[from].k,
                                   .v = w.to[from].v };
}

/* As many fetches wait as there are slots, and the host for none of them; what they were told is gone by the time that
 * they run. Gather has read the stores, too. */
TEST(arguments_are_copied)
{
    enum { N = 3 };
    for (int way = 0; way < HA_FETCH_STORES; way++) {
        open_fetch((enum ha_fetch_way)way);
        uint32_t *gate = memory_of(HA_MEM_MAPPED, sizeof *gate);
        __atomic_store_n(gate, 0, __ATOMIC_RELEASE);
        memset(w.to[0].k, 0, CAP * ROW);
        ok(w.api.flag_wait(mine.ctx.stream, gate, 1));
        gated = true;
        behind_count = 0;
        for (uint32_t t = 0; t < SLOTS; t++) {
            uint32_t index[N] = { 3 + t, 9 + t, 40 + t }, slot[N] = { 5, 1, 2 };
            struct ha_fetch_list list = list_of(0, 1, index, N);
            list.slot = t % 2 ? slot : NULL;
            list.at = 10 * t;
            ok(ha_fetch_run(&w.f, mine.ctx.stream, &list, 1, &why));
            memset(index, 0, sizeof index);
            memset(slot, 0, sizeof slot);
            memset(&list, 0, sizeof list);
        }
        for (size_t i = 0; i < CAP * ROW; i++) assert_int_equal(w.to[0].k[i], 0);
        if (way == HA_FETCH_GATHER) memset(w.from[0].k, 0, TOKENS * ROW);
        gated = false;
        __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
        ok(mine.ctx.api->stream_sync(mine.ctx.stream));
        for (size_t t = 0; t < SLOTS; t++)
            for (size_t i = 0; i < N * HEAD; i++) {
                const size_t row = 10 * t + (t % 2 ? (size_t[N]){ 5, 1, 2 } : (size_t[N]){ 0, 1, 2 })[i / HEAD],
                             token = (size_t[N]){ 3, 9, 40 }[i / HEAD] + t;
                assert_int_equal(w.to[0].k[row * ROW + HEAD + i % HEAD],
                                 (unsigned char)ha_rng_bits(1, 0, token * ROW + HEAD + i % HEAD));
            }
        close_instance();
    }
}

static void assert_counted(struct ha_fetch_list *list, size_t count, struct counted want)
{
    counted = (struct counted){ .events = 0 };
    ha_stores_take();
    ok(ha_fetch_run(&w.f, mine.ctx.stream, list, count, &why));
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
TEST(in_few_calls)
{
    static const uint32_t index[] = { 1, 2, 4, 5 }, slot[] = { 7, 8, 20, 9 };
    enum { N = COUNT(index), BYTES = 2 * N * ROW };
    for (int way = 0; way < WAYS; way++) {
        open_fetch((enum ha_fetch_way)way);
        struct ha_fetch_list heads[HEADS], all[SEQS + 1];
        for (size_t h = 0; h < HEADS; h++) heads[h] = list_of(0, h, index, N);
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
            heads[h].to = &w.vectors[0];
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
        for (size_t i = 0; i < SEQS + 1; i++) {
            all[i] = list_of(i / SEQS, HA_FETCH_ALL_HEADS, index, i == 1 ? 0 : N);
            all[i].at = 3;
        }
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
        ok(mine.ctx.api->stream_sync(mine.ctx.stream));
        close_instance();
    }
}

static void assert_refused(const struct ha_fetch_list *list, size_t count, const char *words)
{
    counted = (struct counted){ .events = 0 };
    assert_int_equal(ha_fetch_run(&w.f, mine.ctx.stream, list, count, &why), HA_ERROR);
    assert_string_equal(why.text, words);
    assert_int_equal(counted.pieces_calls + counted.copies + counted.copies_2d + counted.moves + counted.events, 0);
}

TEST(what_cannot_be_is_refused)
{
    static const uint32_t index[] = { 6, 5, TOKENS - 1, TOKENS }, one[] = { 1 }, last[] = { UINT32_MAX },
                          slot[] = { 0, 16, 1 }, few[] = { 0, 9, 1, 2 };
    for (int way = 0; way < WAYS; way++) {
        open_fetch((enum ha_fetch_way)way);
        ok(ha_fetch_create(&w.f, &mine.ctx, (enum ha_fetch_way)way, 1, 4, 8, 16 * ROW, &why));
        struct ha_fetch_list list[2];
        for (int i = 0; i < 2; i++) list[i] = list_of((size_t)i, 1, index, 3);
        ok(ha_fetch_run(&w.f, mine.ctx.stream, list, 2, &why)); /* which is right */

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
        ok(ha_fetch_run(&w.f, mine.ctx.stream, list, 2, &why));
        list[0].at = 0;
        list[0].unit = 8;
        list[0].count = 2;
        list[0].slot = slot;
        assert_refused(list, 1, "fetch: list 0 is of rows up to 56 of 56, to rows up to 136 of 128");

        list[0].slot = NULL;
        assert_refused(list, 1, "fetch: 16 rows, with room for 8");
        list[0].count = 1;
        ok(ha_fetch_run(&w.f, mine.ctx.stream, list, 1, &why));
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
        ok(ha_fetch_run(&w.f, mine.ctx.stream, list, 2, &why));
        list[1].at = 16;
        if (way == HA_FETCH_GATHER) assert_refused(list, 2, "fetch=gather: 1632 bytes, with room for 1536");
        else ok(ha_fetch_run(&w.f, mine.ctx.stream, list, 2, &why));

        /* with slots, only what it brings: of a head three rows, then four */
        ok(ha_fetch_create(&w.f, &mine.ctx, (enum ha_fetch_way)way, 1, 1, 4, 3 * HEAD, &why));
        list[0].slot = few;
        list[0].count = 3;
        ok(ha_fetch_run(&w.f, mine.ctx.stream, list, 1, &why));
        list[0].index = few;
        list[0].count = 4;
        if (way == HA_FETCH_GATHER) assert_refused(list, 1, "fetch=gather: 128 bytes, with room for 96");
        else ok(ha_fetch_run(&w.f, mine.ctx.stream, list, 1, &why));

        /* of vectors, as many as there are */
        list[0].vectors = true;
        list[0].to = &w.vectors[0];
        list[0].slot = NULL;
        list[0].count = 3;
        list[0].at = CAP * HEADS - 2;
        assert_refused(list, 1, "fetch: list 0 is of rows up to 10 of 56, to rows up to 385 of 384");
        list[0].at--;
        ok(ha_fetch_run(&w.f, mine.ctx.stream, list, 1, &why));
        ok(mine.ctx.api->stream_sync(mine.ctx.stream));
        close_instance();
    }
}
