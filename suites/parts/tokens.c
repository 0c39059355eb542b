#include "suites/parts/tokens.h"

#include "harness/base/arena.h"

enum ha_status ha_tokens_create(const struct ha_context *ctx, size_t cap, struct ha_tokens *out, struct ha_why *why)
{
    *out = (struct ha_tokens){ .cap = cap,
                               .token = ha_alloc(ctx->arena, cap * sizeof *out->token, HA_TAG_SCRATCH, why) };
    return out->token ? HA_OK : HA_ERROR;
}

void ha_tokens_add_range(struct ha_tokens *list, size_t first, size_t last)
{
    for (size_t t = first; t < last; t++) list->token[list->count++] = (uint32_t)t;
}

void ha_tokens_select_all(struct ha_tokens *list, size_t tokens, bool on_device, struct ha_selection *out)
{
    list->count = 0;
    ha_tokens_add_range(list, 0, tokens);
    *out = (struct ha_selection){ .parts = 1,
                                  .part = { { .token = list->token, .count = list->count, .on_device = on_device } } };
}
