/* move, copy_pieces, read, spin and map_device, and the operands that are caught. */

#include "kernels/host/test_support.h"

#include "harness/base/clock.h"

enum { ROWS = 40, ROW = 24, STRIDE = 32, BYTES = ROWS * STRIDE };

struct fixture {
    struct ha_device *dev;
    struct ha_stream *stream;
    char *device, *other, *pinned, *mapped, *pageable; /* [ROWS][STRIDE] */
    uint32_t *up, *down;                               /* [ROWS] indices, mapped and in device memory */
    const char *failure;                               /* that the test ends with */
};

static int open_all(void **state)
{
    static struct fixture f;
    f = (struct fixture){ .dev = device_open(0) };
    f.stream = device_stream(f.dev, "main");
    f.device = device_alloc(f.dev, HA_MEM_DEVICE, BYTES);
    f.other = device_alloc(f.dev, HA_MEM_DEVICE, BYTES);
    f.pinned = device_alloc(f.dev, HA_MEM_PINNED, BYTES);
    f.mapped = device_alloc(f.dev, HA_MEM_MAPPED, BYTES);
    f.up = device_alloc(f.dev, HA_MEM_MAPPED, ROWS * sizeof *f.up);
    f.down = device_alloc(f.dev, HA_MEM_DEVICE, ROWS * sizeof *f.down);
    f.pageable = calloc(BYTES, 1);
    for (uint32_t i = 0; i < ROWS; i++) {
        f.up[i] = (i * 7 + 3) % ROWS;
        f.down[i] = (i * 11 + 5) % ROWS;
    }
    for (size_t i = 0; i < BYTES; i++) f.pinned[i] = f.mapped[i] = f.other[i] = (char)(i * 31 >> 2);
    *state = &f;
    return f.pageable ? 0 : -1;
}

static int close_all(void **state)
{
    struct fixture *f = *state;
    device_close(f->dev, f->failure);
    free(f->pageable);
    return 0;
}

struct log {
    struct ha_span span[64];
    size_t count;
};
static void keep(void *self, const struct ha_span *span)
{
    struct log *log = self;
    if (log->count < 64) log->span[log->count++] = *span;
}

static struct ha_device_move whole(const struct fixture *f, const uint32_t *to, const uint32_t *from)
{
    return (struct ha_device_move){ .dst = f->device,
                                    .src = f->mapped,
                                    .dst_index = to,
                                    .src_index = from,
                                    .rows = ROWS,
                                    .row_bytes = ROW,
                                    .dst_stride_bytes = STRIDE,
                                    .src_stride_bytes = STRIDE };
}

TEST_WITH(moves_rows, open_all, close_all)
{
    struct fixture *f = *state;
    const uint32_t *const index[] = { NULL, f->up, f->down };
    for (size_t to = 0; to < 3; to++)
        for (size_t from = 0; from < 3; from++) {
            struct ha_device_move m = whole(f, index[to], index[from]);
            memset(f->device, 0x55, BYTES);
            ok(api->move(f->stream, &m));
            memset(&m, 0, sizeof m); /* the call has its copy */
            ok(api->stream_sync(f->stream));
            for (size_t i = 0; i < ROWS; i++) {
                const size_t at = (to ? index[to][i] : i) * STRIDE;
                assert_memory_equal(f->device + at, f->mapped + (from ? index[from][i] : i) * STRIDE, ROW);
                for (size_t b = ROW; b < STRIDE; b++) assert_int_equal(f->device[at + b], 0x55);
            }
        }
    /* the index as it is when the move runs; dense rows; one row to many */
    struct ha_device_move m = whole(f, NULL, f->up);
    m.dst_stride_bytes = ROW;
    ok(api->copy(f->stream, f->down, f->up, ROWS * sizeof *f->up, HA_H2D));
    m.src_index = f->down;
    ok(api->move(f->stream, &m));
    ok(api->stream_sync(f->stream));
    for (size_t i = 0; i < ROWS; i++) assert_memory_equal(f->device + i * ROW, f->mapped + f->up[i] * STRIDE, ROW);
    m.src_index = NULL;
    m.src_stride_bytes = 0;
    ok(api->move(f->stream, &m));
    ok(api->stream_sync(f->stream));
    for (size_t i = 0; i < ROWS; i++) assert_memory_equal(f->device + i * ROW, f->mapped, ROW);
    /* nothing to move: no operand is looked at */
    ok(api->move(f->stream, &(struct ha_device_move){ .rows = 9 }));
    ok(api->move(f->stream, &(struct ha_device_move){ .row_bytes = 9 }));
    ok(api->stream_sync(f->stream));
}

TEST_WITH(copies_pieces, open_all, close_all)
{
    struct fixture *f = *state;
    enum { N = 20 };
    void *dst[N];
    const void *src[N];
    size_t bytes[N];
    static const struct {
        enum ha_direction dir;
        int to, from;
    } way[] = {
        { HA_H2D, 0, 2 }, { HA_H2D, 0, 3 }, { HA_H2D, 0, 4 }, { HA_D2H, 2, 1 },
        { HA_D2H, 3, 1 }, { HA_D2H, 4, 1 }, { HA_D2D, 0, 1 },
    };
    char *const place[] = { f->device, f->other, f->pinned, f->mapped, f->pageable };
    for (size_t w = 0; w < COUNT(way); w++) {
        char *to = place[way[w].to], *from = place[way[w].from];
        for (size_t i = 0; i < BYTES; i++) from[i] = (char)(i * 13 + w);
        memset(to, 0x55, BYTES);
        for (size_t i = 0; i < N; i++) {
            bytes[i] = i % 5 * 7; /* some are empty */
            dst[i] = bytes[i] ? to + i * STRIDE : NULL;
            src[i] = bytes[i] ? from + (N - i) * STRIDE + i : NULL;
        }
        ok(api->copy_pieces(f->stream, &(struct ha_device_pieces){ dst, src, bytes, N }, way[w].dir));
        memset(dst, 0, sizeof dst); /* the call has its copy */
        memset(src, 0, sizeof src);
        memset(bytes, 0, sizeof bytes);
        ok(api->stream_sync(f->stream));
        for (size_t i = 0; i < N; i++) {
            assert_memory_equal(to + i * STRIDE, from + (N - i) * STRIDE + i, i % 5 * 7);
            assert_int_equal(to[i * STRIDE + i % 5 * 7], 0x55);
        }
    }
    ok(api->copy_pieces(f->stream, &(struct ha_device_pieces){ .count = 0 }, HA_H2D));
    ok(api->stream_sync(f->stream));
}

TEST_WITH(reads_and_sums, open_all, close_all)
{
    struct fixture *f = *state;
    static const size_t words[] = { 0, 1, 15, 16, 17, BYTES / 4 };
    uint32_t *sum = f->down;
    for (size_t i = 0; i < COUNT(words); i++) {
        uint32_t word, want = 41;
        for (size_t w = 0; w < words[i]; w++) {
            memcpy(&word, f->mapped + 4 * w, 4);
            want += word;
        }
        *sum = 41;
        ok(api->read(f->stream, f->mapped, 4 * words[i], sum));
        ok(api->stream_sync(f->stream));
        assert_int_equal(*sum, want);
    }
}

TEST_WITH(spins, open_all, close_all)
{
    struct fixture *f = *state;
    const uint64_t begin = ha_now_ns();
    ok(api->spin(f->stream, 20000000));
    ok(api->stream_sync(f->stream));
    assert_true(ha_now_ns() - begin >= 20000000);
}

TEST_WITH(a_failed_device_stops_spinning, open_all, close_all)
{
    struct fixture *f = *state;
    if (!embedded) skip(); /* nobody stops a kernel of a GPU */
    ok(api->spin(f->stream, UINT64_C(200000000000)));
    assert_int_equal(api->copy(f->stream, f->pinned, f->device, 8, HA_H2D), HA_ERROR);
    assert_int_equal(api->stream_sync(f->stream), HA_ERROR);
    f->failure = "copy H2D on stream main: destination";
}

TEST_WITH(spans_count_what_crosses_the_link, open_all, close_all)
{
    struct fixture *f = *state;
    struct log log = { .count = 0 };
    const struct ha_span_sink sink = { &log, keep };
    void *dst[2] = { f->device, f->device + 100 };
    const void *src[2] = { f->pinned, f->pageable };
    const size_t bytes[2] = { 100, 23 };
    if (!embedded) skip(); /* it tests its spans itself */
    struct ha_device_move down = whole(f, f->down, NULL);
    down.dst = f->mapped;
    down.src = f->device;
    struct ha_device_move across = whole(f, NULL, NULL);
    across.src = f->other;
    api->trace(f->dev, &sink);
    struct ha_device_move up = whole(f, NULL, f->up);
    ok(api->move(f->stream, &up));
    ok(api->move(f->stream, &down));
    ok(api->move(f->stream, &across));
    ok(api->copy_pieces(f->stream, &(struct ha_device_pieces){ dst, src, bytes, 2 }, HA_H2D));
    ok(api->read(f->stream, f->mapped, 64, f->down));
    ok(api->read(f->stream, f->device, 64, f->down));
    ok(api->spin(f->stream, 1000));
    ok(api->stream_sync(f->stream));
    api->trace(f->dev, NULL);
    static const struct {
        const char *name;
        enum ha_span_kind kind;
        uint64_t bytes, zero_copy;
    } want[] = {
        { "move", HA_SPAN_KERNEL, 0, ROWS * ROW + ROWS * 4 },
        { "move", HA_SPAN_KERNEL, 0, ROWS * ROW },
        { "move", HA_SPAN_KERNEL, 0, 0 },
        { "copy_pieces H2D", HA_SPAN_H2D, 123, 0 },
        { "read", HA_SPAN_KERNEL, 0, 64 },
        { "read", HA_SPAN_KERNEL, 0, 0 },
        { "spin", HA_SPAN_KERNEL, 0, 0 },
    };
    assert_int_equal(log.count, COUNT(want));
    for (size_t i = 0; i < log.count; i++) {
        assert_string_equal(log.span[i].name, want[i].name);
        assert_int_equal(log.span[i].kind, want[i].kind);
        assert_int_equal(log.span[i].bytes, want[i].bytes);
        assert_int_equal(log.span[i].zero_copy_bytes, want[i].zero_copy);
    }
}

TEST_WITH(a_graph_keeps_moves_and_pieces, open_all, close_all)
{
    struct fixture *f = *state;
    struct ha_graph *graph;
    struct ha_why why;
    void *dst[1] = { f->other };
    const void *src[1] = { f->pinned };
    const size_t bytes[1] = { BYTES };
    struct ha_device_move m = whole(f, NULL, f->up);
    m.src = f->other;
    ok(api->graph_begin(f->stream));
    ok(api->copy_pieces(f->stream, &(struct ha_device_pieces){ dst, src, bytes, 1 }, HA_H2D));
    ok(api->move(f->stream, &m));
    ok(api->graph_end(f->stream, &graph, &why));
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < BYTES; i++) f->pinned[i] = (char)(i * 3 + (size_t)turn);
        ok(api->graph_launch(graph, f->stream));
        ok(api->stream_sync(f->stream));
        for (size_t i = 0; i < ROWS; i++)
            assert_memory_equal(f->device + i * STRIDE, f->pinned + f->up[i] * STRIDE, ROW);
    }
    api->graph_destroy(graph);
}

TEST_WITH(stores_through_a_mapping, open_all, close_all)
{
    struct fixture *f = *state;
    struct ha_why why = { "" };
    void *host;
    if (!embedded) skip(); /* a library that its own test stands in for */
    ok(api->map_device(f->dev, f->device + 64, BYTES - 64, &host, &why));
    memset(host, 0x11, BYTES - 64);
    ok(api->copy(f->stream, f->pageable, f->device + 64, BYTES - 64, HA_D2H));
    ok(api->stream_sync(f->stream));
    for (size_t i = 0; i < BYTES - 64; i++) assert_int_equal(f->pageable[i], 0x11);
    api->unmap_device(f->dev, host);
    api->unmap_device(f->dev, NULL);
    void *const wrong[] = { f->mapped, f->pageable, NULL, f->device + 65 };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(api->map_device(f->dev, wrong[i], BYTES - 64, &host, &why), HA_ERROR);
        assert_non_null(strstr(why.text, "not within an allocation of device memory"));
    }
    assert_no_failure(f->dev);
    api->unmap_device(f->dev, f->mapped);
    f->failure = "was not mapped";
}

/* Each does one wrong thing, which the call refuses or, where an index is to blame, the device finds as it runs. */
#define F(name) static enum ha_status name(struct fixture *f)
#define MOVE(name, change)                               \
    F(name)                                              \
    {                                                    \
        struct ha_device_move m = whole(f, NULL, f->up); \
        change;                                          \
        return api->move(f->stream, &m);                 \
    }

static uint32_t index_of_host[ROWS];
MOVE(move_of_pinned, m.src = f->pinned)
MOVE(move_to_pageable, m.dst = f->pageable)
MOVE(move_by_pinned_index, m.src_index = (const uint32_t *)(const void *)f->pinned)
MOVE(move_by_index_of_host, m.dst_index = index_of_host)
MOVE(move_past_the_end, m.dst_stride_bytes = STRIDE + 1)
MOVE(move_past_the_source, m.src_index = NULL; m.src = f->mapped + STRIDE)
MOVE(move_of_rows_that_overlap, m.dst_stride_bytes = ROW - 1)
MOVE(move_of_too_much, m.rows = SIZE_MAX / 8)
MOVE(move_by_stride_beyond, m.dst_stride_bytes = SIZE_MAX / 4)
MOVE(index_past_the_end, m.rows = ROWS + 1)
MOVE(index_past_the_source, f->up[7] = ROWS)
MOVE(index_half_past_the_source, m.src = f->mapped + (STRIDE - ROW) + 1)
MOVE(index_of_large_stride, m.src_stride_bytes = SIZE_MAX / 4)
MOVE(index_past_the_destination, m.dst_index = f->down; f->down[ROWS - 1] = UINT32_MAX)
MOVE(move_onto_itself, m.src_index = NULL; m.src = f->device + 8; m.rows = ROWS - 1)

static enum ha_status pieces_with(struct fixture *f, void *to, const void *from, size_t bytes, enum ha_direction dir)
{
    void *dst[3] = { f->device, to, f->device };
    const void *src[3] = { f->pinned, from, f->pinned };
    const size_t size[3] = { dir == HA_H2D ? 8 : 0, bytes, dir == HA_H2D ? 8 : 0 };
    return api->copy_pieces(f->stream, &(struct ha_device_pieces){ dst, src, size, 3 }, dir);
}
F(piece_to_host) { return pieces_with(f, f->pinned, f->pageable, 8, HA_H2D); }
F(piece_from_device) { return pieces_with(f, f->device, f->other, 8, HA_H2D); }
F(piece_past_the_end) { return pieces_with(f, f->device + 1, f->pinned, BYTES, HA_H2D); }
F(piece_past_the_source) { return pieces_with(f, f->pageable, f->device + 1, BYTES, HA_D2H); }
F(piece_from_null) { return pieces_with(f, f->device, NULL, 8, HA_H2D); }
F(piece_onto_itself) { return pieces_with(f, f->device, f->device + 8, 16, HA_D2D); }
F(read_of_pinned) { return api->read(f->stream, f->pinned, 8, f->down); }
F(read_past_the_end) { return api->read(f->stream, f->mapped, BYTES + 4, f->down); }
F(read_into_host)
{
    static uint32_t sum;
    return api->read(f->stream, f->mapped, 8, &sum);
}
F(read_of_bytes) { return api->read(f->stream, f->mapped, 7, f->down); }
F(read_of_shifted_words) { return api->read(f->stream, f->mapped + 2, 8, f->down); }

TEST(wrong_operands_are_caught)
{
    static const struct {
        enum ha_status (*wrong)(struct fixture *f);
        const char *words;
        bool later;
    } cases[] = {
        { move_of_pinned, "move on stream main: source", false },
        { move_to_pageable, "is pageable host memory and must be device or mapped memory", false },
        { move_by_pinned_index, "move on stream main: source index", false },
        { move_by_index_of_host, "move on stream main: destination index", false },
        { move_past_the_end, "move on stream main: destination", false },
        { move_past_the_source, "leaves the allocation of mapped memory", false },
        { move_of_rows_that_overlap, "rows of 24 bytes at stride 23 overlap", false },
        { move_of_too_much, "rows of 24 bytes", false },
        { move_by_stride_beyond, "move on stream main: destination", false },
        { index_past_the_end, "move on stream main: source index", false },
        { index_past_the_source, "row 40 of 24 bytes, which the source index names at 7, leaves", true },
        { index_half_past_the_source, "which the source index names", true },
        { index_of_large_stride, "which the source index names", true },
        { index_past_the_destination, "row 4294967295 of 24 bytes, which the destination index names at 39", true },
        { move_onto_itself, "which overlap", true },
        { piece_to_host, "copy_pieces H2D on stream main: destination", false },
        { piece_from_device, "copy_pieces H2D on stream main: source", false },
        { piece_past_the_end, "leaves the allocation of device memory", false },
        { piece_past_the_source, "copy_pieces D2H on stream main: source", false },
        { piece_from_null, "source is NULL", false },
        { piece_onto_itself, "overlap", false },
        { read_of_pinned, "read on stream main: source", false },
        { read_past_the_end, "leaves the allocation of mapped memory", false },
        { read_into_host, "read on stream main: sum", false },
        { read_of_bytes, "no array of 32-bit words", false },
        { read_of_shifted_words, "no array of 32-bit words", false },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        void *fresh;
        if (cases[i].later && !embedded) continue;
        assert_int_equal(open_all(&fresh), 0);
        struct fixture *f = fresh;
        memset(f->device, 0x55, BYTES);
        assert_int_equal(cases[i].wrong(f), cases[i].later ? HA_OK : HA_ERROR);
        assert_int_equal(api->stream_sync(f->stream), HA_ERROR);
        f->failure = cases[i].words;
        close_all(&fresh);
    }
}

int main(void)
{
    device_test_begin();
    return test_all("device: moves", NULL, NULL);
}
