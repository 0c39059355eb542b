#ifndef HA_PARTS_TOKENS_H
#define HA_PARTS_TOKENS_H

/* Lists of token positions, as selection() reports them. */

#include "harness/api/variant.h"

struct ha_tokens {
    uint32_t *token; /* [cap], from the context's arena */
    size_t count, cap;
};

enum ha_status ha_tokens_create(const struct ha_context *ctx, size_t cap, struct ha_tokens *out, struct ha_why *why);
/* appends first, first + 1, ..., last - 1; the list has room */
void ha_tokens_add_range(struct ha_tokens *list, size_t first, size_t last);

/* The selection of all tokens of a sequence, on one side; the list becomes theirs. */
void ha_tokens_select_all(struct ha_tokens *list, size_t tokens, bool on_device, struct ha_selection *out);

#endif
