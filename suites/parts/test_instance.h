#ifndef HA_PARTS_TEST_INSTANCE_H
#define HA_PARTS_TEST_INSTANCE_H

/* For tests: one instance at a time, of a rule with the hooks that a test gives it, over the embedded device, with
 * nothing but what the rule makes. The history of the process (harness/base/order.h) says what is not ordered. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/order_api.h"
#include "harness/base/pool.h"
#include "harness/base/test.h"
#include "harness/base/worker.h"
#include "suites/parts/frame.h"

extern const struct ha_device_api ha_device_host;
extern const struct ha_kernels ha_kernels_c;

static struct ha_why why;
static inline void ok(enum ha_status status)
{
    if (status != HA_OK) fail_msg("%s", why.text);
}

static struct {
    struct ha_variant variant;
    struct ha_context ctx;
    struct ha_instance *frame;
} mine;

static bool unwatched; /* a test may set it: there is no history */

/* What create is given; a test may change it. api: the embedded device's table, or one that calls it. */
static inline void open_context(const struct ha_device_api *api, const struct ha_shape *shape,
                                const struct ha_rule *rule)
{
    const struct ha_device_config config = { .kernels = &ha_kernels_c, .wait_limit_ns = UINT64_MAX };
    if (!unwatched) ok(ha_order_begin(&why));
    memset(&mine, 0, sizeof mine);
    mine.variant = (struct ha_variant){ .name = "mine", .rule = rule };
    mine.ctx = (struct ha_context){
        .variant = &mine.variant, .shape = shape, .kernels = &ha_kernels_c, .api = unwatched ? api : ha_order_wrap(api)
    };
    ok(mine.ctx.api->open(&mine.ctx.device, &config, &why));
    ok(mine.ctx.api->stream_create(mine.ctx.device, "main", &mine.ctx.stream, &why));
    ok(ha_arena_create(&mine.ctx.arena, true, &why));
    ok(ha_device_arena_create(&mine.ctx.device_arena, mine.ctx.api, mine.ctx.device, &why));
    ok(ha_pool_create(&mine.ctx.pool, HA_TEAM_DEFAULT, 2, &why));
    ok(ha_worker_create(&mine.ctx.worker, &why));
}

static inline enum ha_status make_instance(void) { return ha_frame_create(&mine.frame, &mine.ctx, &why); }

static inline void open_instance(const struct ha_shape *shape, const struct ha_rule *rule)
{
    open_context(&ha_device_host, shape, rule);
    ok(make_instance());
}

/* whatever became of it */
static inline void end_instance(void)
{
    ha_frame_destroy(mine.frame);
    mine.ctx.api->stream_destroy(mine.ctx.stream);
    ha_worker_destroy(mine.ctx.worker);
    ha_pool_destroy(mine.ctx.pool);
    ha_device_arena_destroy(mine.ctx.device_arena);
    ok(ha_arena_check(mine.ctx.arena, &why));
    ha_arena_destroy(mine.ctx.arena);
    mine.ctx.api->close(mine.ctx.device);
    if (!unwatched) ha_order_end();
}

static inline void close_instance(void)
{
    if (!unwatched && ha_order_verdict(ha_order_now(), &why) != HA_OK) fail_msg("%s", why.text);
    const char *failure = mine.ctx.api->failure(mine.ctx.device);
    if (failure) fail_msg("%s", failure);
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
    end_instance();
}

static inline void *memory_of(enum ha_memory memory, size_t bytes)
{
    void *at = ha_device_alloc(mine.ctx.device_arena, memory, bytes, HA_TAG_SCRATCH, &why);
    if (!at) fail_msg("%s", why.text);
    return at;
}

/* to or from device memory, and it is there */
static inline void move(void *to, const void *from, size_t bytes, enum ha_direction direction)
{
    ok(mine.ctx.api->copy(mine.ctx.stream, to, from, bytes, direction));
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
}

/* the numbers of a digest at its place: smallest and largest of a dimension, or both the mean */
static inline size_t digest_at(size_t block, size_t dim, size_t head_dim, bool largest)
{
    return ((block / HA_PACK_KEYS * head_dim + dim) * 2 + largest) * HA_PACK_KEYS + block % HA_PACK_KEYS;
}

#endif
