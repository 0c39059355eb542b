/* What the meter counts, over the embedded device. */

#include "harness/base/stores.h"
#include "harness/measure/meter.h"
#include "harness/measure/test_host.h"

enum { BYTES = 4096 };

static const struct ha_device_api *api;
static struct ha_stream *stream;
static char *memory[3], *unknown; /* by kind; unknown: mapped, and not allocated through the meter */
static bool is_to_fail;

static int begin(void **state)
{
    void *ptr;
    open_host(state);
    if (host->mem_alloc(device, HA_MEM_MAPPED, BYTES, &ptr, &why) != HA_OK) return -1;
    unknown = ptr;
    api = ha_meter_wrap(host);
    for (int kind = 0; kind < 3; kind++) {
        if (api->mem_alloc(device, (enum ha_memory)kind, BYTES, &ptr, &why) != HA_OK) return -1;
        memory[kind] = ptr;
        memset(ptr, 0, BYTES);
    }
    memset(unknown, 0, BYTES);
    ha_meter_take();
    return api->stream_create(device, "main", &stream, &why) == HA_OK ? 0 : -1;
}

static int end(void **state)
{
    api->stream_destroy(stream);
    for (int kind = 0; kind < 3; kind++) api->mem_free(device, (enum ha_memory)kind, memory[kind]);
    const bool failed = api->failure(device) != NULL;
    api->mem_free(device, HA_MEM_MAPPED, unknown);
    close_host(state);
    return failed != is_to_fail;
}

static void counted(uint64_t h2d, uint64_t d2h, uint64_t copies, uint64_t zero_copy)
{
    assert_int_equal(api->stream_sync(stream), HA_OK);
    const struct ha_meter_count c = ha_meter_take();
    assert_int_equal(c.h2d_bytes, h2d);
    assert_int_equal(c.d2h_bytes, d2h);
    assert_int_equal(c.copies, copies);
    assert_int_equal(c.zero_copy_bytes, zero_copy);
}

TEST_WITH(copies_and_pieces, begin, end)
{
    char *up[3] = { memory[0], memory[0] + 100, memory[0] + 200 };
    const char *down[3] = { memory[1], memory[2], memory[1] + 100 };
    const size_t bytes[3] = { 10, 0, 7 };
    const struct ha_device_pieces pieces = { (void *const *)(void *)up, (const void *const *)(const void *)down, bytes,
                                             3 };
    assert_int_equal(api->copy(stream, memory[0], memory[1], 100, HA_H2D), HA_OK);
    counted(100, 0, 1, 0);
    assert_int_equal(api->copy_2d(stream, memory[1], 64, memory[0], 32, 16, 4, HA_D2H), HA_OK);
    counted(0, 64, 1, 0);
    assert_int_equal(api->copy_pieces(stream, &pieces, HA_H2D), HA_OK);
    counted(17, 0, 3, 0);
    counted(0, 0, 0, 0);
}

TEST_WITH(stores_count_beside_copies, begin, end)
{
    assert_int_equal(api->copy(stream, memory[0], memory[1], 100, HA_H2D), HA_OK);
    ha_stores_end(ha_stores_begin(), 4000);
    ha_stores_end(ha_stores_begin(), 96);
    counted(4196, 0, 1, 0);
    counted(0, 0, 0, 0);
}

static void move(char *dst, const char *src)
{
    assert_int_equal(
        api->move(
            stream,
            &(struct ha_device_move){
                .dst = dst, .src = src, .rows = 5, .row_bytes = 20, .dst_stride_bytes = 32, .src_stride_bytes = 24 }),
        HA_OK);
}

TEST_WITH(moves_over_the_link, begin, end)
{
    char *device_memory = memory[HA_MEM_DEVICE], *mapped = memory[HA_MEM_MAPPED];
    move(device_memory + 1000, device_memory);
    counted(0, 0, 0, 0);
    move(device_memory, mapped + BYTES - 5 * 24);
    counted(0, 0, 0, 100);
    move(mapped, device_memory);
    counted(0, 0, 0, 100);
    move(mapped, mapped + 1000);
    counted(0, 0, 0, 200);
    move(device_memory, unknown);
    counted(0, 0, 0, 0);
}

TEST_WITH(freed_memory_is_forgotten, begin, end)
{
    void *block[40];
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < 40; i++)
            assert_int_equal(api->mem_alloc(device, HA_MEM_MAPPED, 256, &block[i], &why), HA_OK);
        memset(block[17], 0, 256);
        move(memory[HA_MEM_DEVICE], block[17]);
        counted(0, 0, 0, 100);
        for (size_t i = 0; i < 40; i++) api->mem_free(device, HA_MEM_MAPPED, block[i * 7 % 40]);
    }
    move(memory[HA_MEM_DEVICE], memory[HA_MEM_MAPPED]);
    counted(0, 0, 0, 100);
    /* which the device refuses; the meter counts what is asked for */
    const struct ha_device_move freed = { .dst = memory[HA_MEM_DEVICE], .src = block[3], .rows = 1, .row_bytes = 8 };
    assert_int_equal(api->move(stream, &freed), HA_ERROR);
    assert_int_equal(ha_meter_take().zero_copy_bytes, 0);
    is_to_fail = true;
}
