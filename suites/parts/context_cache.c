#include "suites/parts/context_cache.h"

#include "harness/base/arena.h"
#include "harness/base/try.h"

#include <string.h>

void ha_context_clear(struct ha_context_head *head) { head->selected = head->padding = 0; }

static enum ha_status grow(const struct ha_context *ctx, struct ha_context_head *head, size_t cap, struct ha_why *why)
{
    size_t used = head->selected + head->padding, row = ha_kv_head_bytes(ctx->shape);
    unsigned char *k = ha_grow(ctx->arena, head->k, used * row, cap * row, HA_TAG_KV, why);
    if (!k) return HA_ERROR;
    head->k = k;
    unsigned char *v = ha_grow(ctx->arena, head->v, used * row, cap * row, HA_TAG_KV, why);
    if (!v) return HA_ERROR;
    head->v = v;
    uint32_t *token = ha_grow(ctx->arena, head->token, used * sizeof *token, cap * sizeof *token, HA_TAG_META, why);
    if (!token) return HA_ERROR;
    head->token = token;
    head->cap = cap;
    return HA_OK;
}

static enum ha_status put(const struct ha_context *ctx, struct ha_context_head *head, const struct ha_rows *rows, uint32_t token,
                          struct ha_why *why)
{
    size_t at = head->selected + head->padding, row = ha_kv_head_bytes(ctx->shape);
    if (at == head->cap) HA_TRY(grow(ctx, head, at ? 2 * at : 64, why));
    memcpy(head->k + at * row, (const unsigned char *)rows->k + token * rows->k_stride_bytes, row);
    memcpy(head->v + at * row, (const unsigned char *)rows->v + token * rows->v_stride_bytes, row);
    head->token[at] = token;
    return HA_OK;
}

enum ha_status ha_context_add(const struct ha_context *ctx, struct ha_context_head *head, const struct ha_rows *rows, uint32_t token,
                              struct ha_why *why)
{
    head->padding = 0;
    HA_TRY(put(ctx, head, rows, token, why));
    head->selected++;
    return HA_OK;
}

enum ha_status ha_context_pad(const struct ha_context *ctx, struct ha_context_head *head, const struct ha_rows *rows, size_t tokens,
                              size_t count, struct ha_why *why)
{
    size_t next = head->selected;
    head->padding = 0;
    while (head->selected + head->padding < count && tokens > 0) {
        tokens--;
        if (next > 0 && head->token[next - 1] == tokens) {
            next--;
            continue;
        }
        HA_TRY(put(ctx, head, rows, (uint32_t)tokens, why));
        head->padding++;
    }
    return HA_OK;
}

struct ha_rows ha_context_rows(const struct ha_context *ctx, const struct ha_context_head *head)
{
    size_t row = ha_kv_head_bytes(ctx->shape);
    return (struct ha_rows){ .k = head->k, .v = head->v, .k_stride_bytes = row, .v_stride_bytes = row,
                             .keys = head->selected + head->padding };
}
