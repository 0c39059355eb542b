/* Full attention: every token so far is used by every head, once, wherever it lies; nothing is
 * padded. One rule for the placements: all on the device (resident, bmm), all on the host and
 * fetched (offload; FlexGen), all on the host and computed there (cpu). */

#include "reference/definitions.h"

static enum ha_status full_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                 struct ha_why *why)
{
    for (size_t j = 0; j < h->tokens; j++)
        if (mark[j] == HA_MARK_NONE) return ha_def_wrong(h, why, "key %zu is missing", j);
    return HA_OK;
}

const struct ha_definition ha_definition_resident = { .variant = "resident", .judge = full_judge };
const struct ha_definition ha_definition_bmm = { .variant = "bmm", .judge = full_judge };
const struct ha_definition ha_definition_offload = { .variant = "offload", .judge = full_judge };
const struct ha_definition ha_definition_cpu = { .variant = "cpu", .judge = full_judge };
