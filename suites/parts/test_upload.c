/* Loads of a context: to their places, in pieces, and into device memory from pinned memory alone. */

#include "harness/base/arena.h"
#include "harness/base/why.h"
#include "suites/parts/test_instance.h"

enum { HEADS = 2, DIM = 256, CAP = 9000, AT = 3, FIRST = 5, COUNT_LOADED = 8900 };
static struct ha_shape shape = {
    .batch = 1,
    .q_len = 1,
    .layers = 1,
    .q_heads = HEADS,
    .kv_heads = HEADS,
    .head_dim = DIM,
    .dtype = HA_F32,
    .steps = 1,
    .ctx = { CAP },
};

static struct {
    char *at;
    size_t bytes;
} pinned;
static size_t copies;

static enum ha_status mem_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                struct ha_why *because)
{
    HA_TRY(ha_device_host.mem_alloc(dev, kind, bytes, ptr, because));
    if (kind != HA_MEM_PINNED) return HA_OK;
    assert_null(pinned.at); /* one for all loads */
    pinned.at = *ptr;
    pinned.bytes = bytes;
    return HA_OK;
}
static enum ha_status copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    if (dir == HA_H2D) {
        copies++;
        assert_in_range((uintptr_t)src, (uintptr_t)pinned.at, (uintptr_t)pinned.at + pinned.bytes - bytes);
    }
    return ha_device_host.copy(s, dst, src, bytes, dir);
}

static float number(size_t which, size_t head, size_t token, size_t d)
{
    return (float)(((which * HEADS + head) * CAP + token) * DIM + d);
}

static float *drawn(size_t which)
{
    float *x = ha_alloc(mine.ctx.arena, sizeof *x * HEADS * CAP * DIM, HA_TAG_SCRATCH, &why);
    assert_non_null(x);
    for (size_t h = 0; h < HEADS; h++)
        for (size_t t = 0; t < CAP; t++)
            for (size_t d = 0; d < DIM; d++) x[(h * CAP + t) * DIM + d] = number(which, h, t, d);
    return x;
}

static void assert_loaded(const struct ha_kv *kv)
{
    const size_t bytes = COUNT_LOADED * ha_kv_token_bytes(&shape);
    float *got = ha_alloc(mine.ctx.arena, bytes, HA_TAG_SCRATCH, &why);
    assert_non_null(got);
    for (size_t i = 0; i < 2; i++) {
        const unsigned char *from = (i ? kv->v : kv->k) + AT * ha_kv_token_bytes(&shape);
        if (kv->memory == HA_MEM_DEVICE) ok(ha_device_host.copy(mine.ctx.stream, got, from, bytes, HA_D2H));
        ok(mine.ctx.api->stream_sync(mine.ctx.stream));
        if (kv->memory != HA_MEM_DEVICE) memcpy(got, from, bytes);
        for (size_t t = 0; t < COUNT_LOADED; t++)
            for (size_t h = 0; h < HEADS; h++)
                for (size_t d = 0; d < DIM; d++)
                    if (got[(t * HEADS + h) * DIM + d] != number(i, h, FIRST + t, d))
                        fail_msg("%c of token %zu, head %zu", i ? 'V' : 'K', t, h);
    }
}

TEST(a_context_goes_up_by_way_of_pinned_memory)
{
    static const struct ha_rule rule = { 0 };
    struct ha_device_api api = ha_device_host;
    api.mem_alloc = mem_alloc;
    api.copy = copy;
    api.copy_2d = NULL;
    open_context(&api, &shape, &rule);
    ok(make_instance());
    const void *const k = drawn(0), *const v = drawn(1);
    const struct ha_prefill in = { .k = &k, .v = &v, .cap = CAP };
    struct ha_kv device, mapped;
    ok(ha_kv_create(&mine.ctx, HA_MEM_DEVICE, CAP, &device, &why));
    ok(ha_kv_create(&mine.ctx, HA_MEM_MAPPED, CAP, &mapped, &why));
    for (int times = 0; times < 2; times++) {
        copies = 0;
        ok(ha_kv_load(&mine.ctx, &device, AT, &in, 0, FIRST, COUNT_LOADED));
        assert_int_equal(copies, 2 * 5); /* pieces of 2,048 tokens: 8 MiB of K and V */
        assert_loaded(&device);
    }
    ok(ha_kv_load(&mine.ctx, &mapped, AT, &in, 0, FIRST, COUNT_LOADED));
    assert_loaded(&mapped);
    assert_true(pinned.bytes <= 16 << 20);
    close_instance();
}
