#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "harness/base/test.h"

/* A device that has memory and events and nothing else; it counts what is out. */
struct ha_device {
    size_t limit, given, blocks[3], events;
};
struct ha_event {
    struct ha_device *dev;
};

static enum ha_status mem_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                struct ha_why *why)
{
    assert_true(bytes > 0);
    if (bytes > dev->limit) return ha_why(why, HA_ERROR, "only %zu bytes", dev->limit);
    *ptr = malloc(bytes);
    dev->blocks[kind]++;
    dev->given++;
    return HA_OK;
}

static void mem_free(struct ha_device *dev, enum ha_memory kind, void *ptr)
{
    assert_true(dev->blocks[kind] > 0);
    dev->blocks[kind]--;
    free(ptr);
}

static enum ha_status event_create(struct ha_device *dev, struct ha_event **event, struct ha_why *why)
{
    if (dev->events == dev->limit) return ha_why(why, HA_ERROR, "only %zu events", dev->limit);
    *event = malloc(sizeof **event);
    **event = (struct ha_event){ dev };
    dev->events++;
    return HA_OK;
}

static void event_destroy(struct ha_event *event)
{
    event->dev->events--;
    free(event);
}

static const struct ha_device_api api = { .name = "test",
                                          .mem_alloc = mem_alloc,
                                          .mem_free = mem_free,
                                          .event_create = event_create,
                                          .event_destroy = event_destroy };

TEST(owns_and_counts)
{
    struct ha_device dev = { .limit = 5000 };
    struct ha_device_arena *arena;
    struct ha_why why;
    assert_int_equal(ha_device_arena_create(&arena, &api, &dev, &why), HA_OK);
    void *a = ha_device_alloc(arena, HA_MEM_DEVICE, 1000, HA_TAG_KV, &why);
    void *b = ha_device_alloc(arena, HA_MEM_PINNED, 300, HA_TAG_KV, &why);
    void *c = ha_device_alloc(arena, HA_MEM_MAPPED, 200, HA_TAG_KV, &why);
    void *d = ha_device_alloc(arena, HA_MEM_DEVICE, 70, HA_TAG_META, &why);
    void *e = ha_device_alloc(arena, HA_MEM_DEVICE, 0, HA_TAG_META, &why);
    assert_true(a && b && c && d && e);
    assert_int_equal(dev.blocks[HA_MEM_DEVICE], 3);
    assert_int_equal(dev.blocks[HA_MEM_PINNED], 1);
    assert_int_equal(dev.blocks[HA_MEM_MAPPED], 1);
    assert_int_equal(ha_device_arena_peak_bytes(arena, HA_TAG_KV), 1000);
    assert_int_equal(ha_device_arena_peak_bytes(arena, HA_TAG_META), 70);
    assert_int_equal(ha_device_arena_peak_bytes(arena, HA_TAG_SCRATCH), 0);
    assert_int_equal(ha_pinned_peak_bytes(arena, HA_TAG_KV), 500);
    assert_int_equal(ha_pinned_peak_bytes(arena, HA_TAG_META), 0);

    ha_device_free(arena, c);
    ha_device_free(arena, NULL);
    assert_int_equal(dev.blocks[HA_MEM_MAPPED], 0);
    assert_non_null(ha_device_alloc(arena, HA_MEM_PINNED, 150, HA_TAG_KV, &why));
    assert_int_equal(ha_pinned_peak_bytes(arena, HA_TAG_KV), 500);
    assert_non_null(ha_device_alloc(arena, HA_MEM_PINNED, 60, HA_TAG_KV, &why));
    assert_int_equal(ha_pinned_peak_bytes(arena, HA_TAG_KV), 510);

    ha_device_arena_destroy(arena);
    ha_device_arena_destroy(NULL);
    assert_int_equal(dev.given, 7);
    assert_int_equal(dev.blocks[HA_MEM_DEVICE] + dev.blocks[HA_MEM_PINNED] + dev.blocks[HA_MEM_MAPPED], 0);
}

/* The only piece of device memory here is the host's. */
static enum ha_status copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    assert_true(stream && dir == HA_H2D);
    memcpy(dst, src, bytes);
    return HA_OK;
}
static enum ha_status sync(struct ha_stream *stream) { return HA_OK; }
static enum ha_status fails(struct ha_stream *stream) { return HA_ERROR; }

TEST(blocks_hold_and_begin_as_asked)
{
    enum { BYTES = 300000 };
    struct ha_device dev = { .limit = 1 << 20 };
    struct ha_device_api filler = { .copy = copy, .stream_sync = sync };
    struct ha_device_fill fill = { &filler, (struct ha_stream *)(void *)&dev, 0x47, 64 };
    struct ha_device_arena *arena;
    struct ha_why why;
    assert_int_equal(ha_device_arena_create(&arena, &api, &dev, &why), HA_OK);
    ha_device_arena_fill(arena, &fill);
    for (int kind = 0; kind < 3; kind++) {
        unsigned char *p = ha_device_alloc(arena, (enum ha_memory)kind, BYTES, HA_TAG_KV, &why);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 256, 64);
        for (size_t i = 0; i < BYTES; i++) assert_int_equal(p[i], 0x47);
        ha_device_free(arena, p);
        assert_int_equal(dev.blocks[kind], 0);
    }
    filler.stream_sync = fails;
    assert_null(ha_device_alloc(arena, HA_MEM_DEVICE, BYTES, HA_TAG_KV, &why));
    assert_non_null(strstr(why.text, "it could not be filled"));
    assert_int_equal(dev.blocks[HA_MEM_DEVICE], 0);
    ha_device_arena_destroy(arena);
}

TEST(owns_events)
{
    struct ha_device dev = { .limit = 3 };
    struct ha_device_arena *arena;
    struct ha_event *event[4] = { NULL };
    struct ha_why why;
    assert_int_equal(ha_device_arena_create(&arena, &api, &dev, &why), HA_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ha_device_event(arena, &event[i], &why), HA_OK);
        for (size_t j = 0; j < i; j++) assert_ptr_not_equal(event[i], event[j]);
    }
    assert_int_equal(ha_device_event(arena, &event[3], &why), HA_ERROR);
    assert_string_equal(why.text, "only 3 events");
    assert_int_equal(dev.events, 3);
    ha_device_arena_destroy(arena);
    assert_int_equal(dev.events, 0);
}

TEST(a_refusal_says_what_was_asked_and_why)
{
    struct ha_device dev = { .limit = 10 };
    struct ha_device_arena *arena;
    struct ha_why why;
    assert_int_equal(ha_device_arena_create(&arena, &api, &dev, &why), HA_OK);
    assert_null(ha_device_alloc(arena, HA_MEM_PINNED, 4096, HA_TAG_SCRATCH, &why));
    assert_string_equal(why.text, "out of pinned memory of device test: 4096 bytes (scratch): only 10 bytes");
    assert_int_equal(ha_pinned_peak_bytes(arena, HA_TAG_SCRATCH), 0);
    ha_device_arena_destroy(arena);
}
