#include "suites/parts/head_rows.h"

#include "harness/base/device_arena.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"

#include <string.h>

enum ha_status ha_head_rows_create(const struct ha_context *ctx, enum ha_memory memory, size_t b,
                                   struct ha_head_rows *rows, struct ha_why *why)
{
    const size_t cap = ha_kv_max_tokens(ctx->shape, b), head = cap * ha_kv_head_bytes(ctx->shape);
    *rows = (struct ha_head_rows){ .memory = memory, .cap = cap, .head_bytes = head };
    rows->at = ha_device_alloc(ctx->device_arena, memory, ctx->shape->kv_heads * head, HA_TAG_KV, why);
    return rows->at ? HA_OK : HA_ERROR;
}

/* so many tokens of a head are a task */
enum { TASK_TOKENS = 4096 };

struct load {
    const struct ha_head_rows *to;
    const unsigned char *from;
    size_t at, from_head_bytes, row, count, tasks;
};

static void copy_task(void *arg, size_t task, size_t worker)
{
    const struct load *l = arg;
    const size_t head = task / l->tasks, first = task % l->tasks * TASK_TOKENS,
                 n = ha_least(TASK_TOKENS, l->count - first);
    memcpy(l->to->at + head * l->to->head_bytes + (l->at + first) * l->row,
           l->from + head * l->from_head_bytes + first * l->row, n * l->row);
}

enum ha_status ha_head_rows_load(const struct ha_context *ctx, const struct ha_head_rows *rows, size_t at,
                                 const void *from, size_t from_cap, size_t first, size_t count)
{
    const size_t row = ha_kv_head_bytes(ctx->shape), heads = ctx->shape->kv_heads;
    const struct load l = { .to = rows,
                            .from = (const unsigned char *)from + first * row,
                            .at = at,
                            .from_head_bytes = from_cap * row,
                            .row = row,
                            .count = count,
                            .tasks = (count + TASK_TOKENS - 1) / TASK_TOKENS };
    if (count == 0) return HA_OK;
    if (rows->memory != HA_MEM_DEVICE) {
        struct load task = l;
        ha_pool_run(ctx->pool, "load", heads * l.tasks, copy_task, &task);
        return HA_OK;
    }
    HA_TRY(ctx->api->copy_2d(ctx->stream, rows->at + at * row, rows->head_bytes, l.from, l.from_head_bytes, count * row,
                             heads, HA_H2D));
    return ctx->api->stream_sync(ctx->stream);
}

enum ha_status ha_head_rows_put(const struct ha_context *ctx, struct ha_stream *stream, const struct ha_head_rows *rows,
                                size_t at, const unsigned char *from, size_t count)
{
    const size_t row = ha_kv_head_bytes(ctx->shape), heads = ctx->shape->kv_heads;
    const enum ha_direction dir = rows->memory == HA_MEM_DEVICE ? HA_D2D : HA_D2H;
    for (size_t i = 0; i < count; i++)
        HA_TRY(ctx->api->copy_2d(stream, rows->at + (at + i) * row, rows->head_bytes, from + i * heads * row, row, row,
                                 heads, dir));
    return HA_OK;
}
