/* map_device, and operands of moves, pieces and reads that are caught; what they move is the suite's: `habench check
 * device`. */

#include "kernels/host/test_fixture.h"

enum { ROWS = 40, ROW = 24, STRIDE = 32, BYTES = ROWS * STRIDE };

static char *device, *other, *pinned, *mapped, *pageable; /* [ROWS][STRIDE] */
static uint32_t *up, *down;                               /* [ROWS] indices, mapped and in device memory */

static int open_all(void **state)
{
    device_begin(state);
    device = device_alloc(dev, HA_MEM_DEVICE, BYTES);
    other = device_alloc(dev, HA_MEM_DEVICE, BYTES);
    pinned = device_alloc(dev, HA_MEM_PINNED, BYTES);
    mapped = device_alloc(dev, HA_MEM_MAPPED, BYTES);
    up = device_alloc(dev, HA_MEM_MAPPED, ROWS * sizeof *up);
    down = device_alloc(dev, HA_MEM_DEVICE, ROWS * sizeof *down);
    pageable = calloc(BYTES, 1);
    for (uint32_t i = 0; i < ROWS; i++) {
        up[i] = (i * 7 + 3) % ROWS;
        down[i] = (i * 11 + 5) % ROWS;
    }
    for (size_t i = 0; i < BYTES; i++) pinned[i] = mapped[i] = other[i] = (char)(i * 31 >> 2);
    return pageable ? 0 : -1;
}

static int close_all(void **state)
{
    free(pageable);
    return device_end(state);
}

static struct ha_device_move whole(const uint32_t *to, const uint32_t *from)
{
    return (struct ha_device_move){ .dst = device,
                                    .src = mapped,
                                    .dst_index = to,
                                    .src_index = from,
                                    .rows = ROWS,
                                    .row_bytes = ROW,
                                    .dst_stride_bytes = STRIDE,
                                    .src_stride_bytes = STRIDE };
}

/* no operand is looked at */
TEST_WITH(nothing_to_move, open_all, close_all)
{
    ok(api->move(stream, &(struct ha_device_move){ .rows = 9 }));
    ok(api->move(stream, &(struct ha_device_move){ .row_bytes = 9 }));
    ok(api->copy_pieces(stream, &(struct ha_device_pieces){ .count = 0 }, HA_H2D));
    ok(api->stream_sync(stream));
}

TEST_WITH(a_failed_device_stops_spinning, open_all, close_all)
{
    if (!embedded) skip(); /* nobody stops a kernel of a GPU */
    ok(api->spin(stream, UINT64_C(200000000000)));
    assert_int_equal(api->copy(stream, pinned, device, 8, HA_H2D), HA_ERROR);
    assert_int_equal(api->stream_sync(stream), HA_ERROR);
    failure = "copy H2D on stream main: destination";
}

TEST_WITH(stores_through_a_mapping, open_all, close_all)
{
    void *host;
    if (!embedded) skip(); /* a library that its own test stands in for */
    ok(api->map_device(dev, device + 64, BYTES - 64, &host, &why));
    memset(host, 0x11, BYTES - 64);
    ok(api->copy(stream, pageable, device + 64, BYTES - 64, HA_D2H));
    ok(api->stream_sync(stream));
    for (size_t i = 0; i < BYTES - 64; i++) assert_int_equal(pageable[i], 0x11);
    api->unmap_device(dev, host);
    api->unmap_device(dev, NULL);
    void *const wrong[] = { mapped, pageable, NULL, device + 65 };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(api->map_device(dev, wrong[i], BYTES - 64, &host, &why), HA_ERROR);
        assert_non_null(strstr(why.text, "not within an allocation of device memory"));
    }
    assert_no_failure(dev);
    api->unmap_device(dev, mapped);
    failure = "was not mapped";
}

/* Each does one wrong thing, which the call refuses or, where an index is to blame, the device finds as it runs. */
static void found_later(enum ha_status (*wrong)(void), const char *words)
{
    if (!embedded) skip();
    ok(wrong());
    assert_int_equal(api->stream_sync(stream), HA_ERROR);
    assert_failed(words);
}
#define WRONG(name, words) WRONG_USE(name, words, open_all, close_all, refused)
#define LATER(name, words) WRONG_USE(name, words, open_all, close_all, found_later)
#define MOVE(when, name, words, change)            \
    when(name, words)                              \
    {                                              \
        struct ha_device_move m = whole(NULL, up); \
        change;                                    \
        return api->move(stream, &m);              \
    }

static uint32_t index_of_host[ROWS];
MOVE(WRONG, move_of_pinned, "move on stream main: source", m.src = pinned)
MOVE(WRONG, move_to_pageable, "is pageable host memory and must be device or mapped memory", m.dst = pageable)
MOVE(WRONG, move_by_pinned_index, "move on stream main: source index",
     m.src_index = (const uint32_t *)(const void *)pinned)
MOVE(WRONG, move_by_index_of_host, "move on stream main: destination index", m.dst_index = index_of_host)
MOVE(WRONG, move_past_the_end, "move on stream main: destination", m.dst_stride_bytes = STRIDE + 1)
MOVE(WRONG, move_past_the_source, "leaves the allocation of mapped memory", m.src_index = NULL; m.src = mapped + STRIDE)
MOVE(WRONG, move_of_rows_that_overlap, "rows of 24 bytes at stride 23 overlap", m.dst_stride_bytes = ROW - 1)
MOVE(WRONG, move_of_too_much, "rows of 24 bytes", m.rows = SIZE_MAX / 8)
MOVE(WRONG, move_by_stride_beyond, "move on stream main: destination", m.dst_stride_bytes = SIZE_MAX / 4)
MOVE(WRONG, index_past_the_end, "move on stream main: source index", m.rows = ROWS + 1)
MOVE(LATER, index_past_the_source, "row 40 of 24 bytes, which the source index names at 7, leaves", up[7] = ROWS)
MOVE(LATER, index_half_past_the_source, "which the source index names", m.src = mapped + (STRIDE - ROW) + 1)
MOVE(LATER, index_of_large_stride, "which the source index names", m.src_stride_bytes = SIZE_MAX / 4)
MOVE(LATER, index_past_the_destination, "row 4294967295 of 24 bytes, which the destination index names at 39",
     m.dst_index = down;
     down[ROWS - 1] = UINT32_MAX)
MOVE(LATER, move_onto_itself, "which overlap", m.src_index = NULL; m.src = device + 8; m.rows = ROWS - 1)

static enum ha_status pieces_with(void *to, const void *from, size_t bytes, enum ha_direction dir)
{
    void *dst[3] = { device, to, device };
    const void *src[3] = { pinned, from, pinned };
    const size_t size[3] = { dir == HA_H2D ? 8 : 0, bytes, dir == HA_H2D ? 8 : 0 };
    return api->copy_pieces(stream, &(struct ha_device_pieces){ dst, src, size, 3 }, dir);
}
WRONG_CALL(piece_to_host, "copy_pieces H2D on stream main: destination", pieces_with(pinned, pageable, 8, HA_H2D))
WRONG_CALL(piece_from_device, "copy_pieces H2D on stream main: source", pieces_with(device, other, 8, HA_H2D))
WRONG_CALL(piece_past_the_end, "leaves the allocation of device memory", pieces_with(device + 1, pinned, BYTES, HA_H2D))
WRONG_CALL(piece_past_the_source, "copy_pieces D2H on stream main: source",
           pieces_with(pageable, device + 1, BYTES, HA_D2H))
WRONG_CALL(piece_from_null, "source is NULL", pieces_with(device, NULL, 8, HA_H2D))
WRONG_CALL(piece_onto_itself, "overlap", pieces_with(device, device + 8, 16, HA_D2D))
WRONG_CALL(read_of_pinned, "read on stream main: source", api->read(stream, pinned, 8, down))
WRONG_CALL(read_past_the_end, "leaves the allocation of mapped memory", api->read(stream, mapped, BYTES + 4, down))
WRONG(read_into_host, "read on stream main: sum")
{
    static uint32_t sum;
    return api->read(stream, mapped, 8, &sum);
}
WRONG_CALL(read_of_bytes, "no array of 32-bit words", api->read(stream, mapped, 7, down))
WRONG_CALL(read_of_shifted_words, "no array of 32-bit words", api->read(stream, mapped + 2, 8, down))
