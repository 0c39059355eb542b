#include "suites/recency_split/context_cache.h"

#include "harness/base/arena.h"
#include "harness/base/order.h"
#include "harness/base/why.h"

#include <string.h>

static size_t entries(const struct ha_context_head *head) { return head->selected + head->padding; }
static size_t blocks_of(size_t count) { return (count + HA_PACK_KEYS - 1) / HA_PACK_KEYS; }

void ha_context_clear(struct ha_context_head *head) { head->selected = head->padding = head->copied = 0; }

static enum ha_status grow(const struct ha_context *ctx, unsigned char **at, size_t keep, size_t bytes,
                           struct ha_why *why)
{
    void *to = ha_grow(ctx->arena, *at, keep, bytes, HA_TAG_KV, why);
    if (!to) return HA_ERROR;
    *at = to;
    return HA_OK;
}

static enum ha_status grow_names(const struct ha_context *ctx, struct ha_context_head *head, size_t cap,
                                 struct ha_why *why)
{
    uint32_t *token = ha_grow(ctx->arena, head->token, entries(head) * sizeof *token, cap * sizeof *token, HA_TAG_META,
                              why);
    if (!token) return HA_ERROR;
    head->token = token;
    head->cap = cap;
    return HA_OK;
}

static enum ha_status grow_copies(const struct ha_context *ctx, struct ha_context_head *head, size_t count,
                                  struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    size_t row = ha_kv_head_bytes(s), block = ha_packed_block_bytes(s->head_dim, s->dtype), blocks = blocks_of(count);
    if (head->packed) {
        HA_TRY(grow(ctx, &head->blocks, blocks_of(head->copied) * block, blocks * block, why));
    } else {
        HA_TRY(grow(ctx, &head->k, head->copied * row, blocks * HA_PACK_KEYS * row, why));
        HA_TRY(grow(ctx, &head->v, head->copied * row, blocks * HA_PACK_KEYS * row, why));
    }
    head->room = blocks * HA_PACK_KEYS;
    return HA_OK;
}

enum ha_status ha_context_reserve(const struct ha_context *ctx, struct ha_context_head *head, size_t count,
                                  struct ha_why *why)
{
    if (count > head->cap) HA_TRY(grow_names(ctx, head, count, why));
    return count > head->room ? grow_copies(ctx, head, count, why) : HA_OK;
}

static enum ha_status put(const struct ha_context *ctx, struct ha_context_head *head, uint32_t token,
                          struct ha_why *why)
{
    size_t at = entries(head);
    if (at == head->cap) HA_TRY(grow_names(ctx, head, at ? 2 * at : 64, why));
    head->token[at] = token;
    return HA_OK;
}

enum ha_status ha_context_add(const struct ha_context *ctx, struct ha_context_head *head, uint32_t token,
                              struct ha_why *why)
{
    head->padding = 0;
    head->copied = ha_least(head->copied, head->selected);
    HA_TRY(put(ctx, head, token, why));
    head->selected++;
    return HA_OK;
}

enum ha_status ha_context_pad(const struct ha_context *ctx, struct ha_context_head *head, size_t tokens, size_t count,
                              struct ha_why *why)
{
    size_t next = head->selected;
    head->padding = 0;
    head->copied = ha_least(head->copied, head->selected);
    while (entries(head) < count && tokens > 0) {
        tokens--;
        if (next > 0 && head->token[next - 1] == tokens) {
            next--;
            continue;
        }
        HA_TRY(put(ctx, head, (uint32_t)tokens, why));
        head->padding++;
    }
    return HA_OK;
}

enum ha_status ha_context_copy(const struct ha_context *ctx, struct ha_context_head *head, const struct ha_rows *rows,
                               struct ha_why *why)
{
    size_t row = ha_kv_head_bytes(ctx->shape), count = entries(head);
    struct ha_rows named = *rows;
    named.index = head->token + head->copied;
    named.keys = count - head->copied;
    if (!named.keys) return HA_OK;
    if (count > head->room) HA_TRY(grow_copies(ctx, head, head->cap, why));
    if (head->blocks)
        ctx->kernels->pack(&(struct ha_pack){ .blocks = head->blocks,
                                              .at = head->copied,
                                              .rows = named,
                                              .head_dim = ctx->shape->head_dim,
                                              .dtype = ctx->shape->dtype });
    for (size_t i = head->copied; !head->blocks && i < count; i++) {
        const size_t from = head->token[i] * rows->k_stride_bytes;
        ha_order_thread_access("copy_entries", "K", HA_READ, (const unsigned char *)rows->k + from, 1, 0, row);
        ha_order_thread_access("copy_entries", "V", HA_READ, (const unsigned char *)rows->v + from, 1, 0, row);
        memcpy(head->k + i * row, (const unsigned char *)rows->k + head->token[i] * rows->k_stride_bytes, row);
        memcpy(head->v + i * row, (const unsigned char *)rows->v + head->token[i] * rows->v_stride_bytes, row);
    }
    head->copied = count;
    return HA_OK;
}

struct ha_packed ha_context_packed(const struct ha_context_head *head)
{
    return (struct ha_packed){ .blocks = head->blocks, .keys = head->blocks ? entries(head) : 0 };
}

struct ha_rows ha_context_rows(const struct ha_context *ctx, const struct ha_context_head *head)
{
    size_t row = ha_kv_head_bytes(ctx->shape);
    return (struct ha_rows){ .k = head->k,
                             .v = head->v,
                             .k_stride_bytes = row,
                             .v_stride_bytes = row,
                             .keys = head->blocks ? 0 : entries(head) };
}
