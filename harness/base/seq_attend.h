#ifndef HA_BASE_SEQ_ATTEND_H
#define HA_BASE_SEQ_ATTEND_H

/* A device's attention, one sequence and one unit at a time, as CPU kernels take it. A unit is the query heads that
 * read the same keys: those of a KV head, or of a list. */

#include "harness/api/device.h"
#include "harness/api/kernels.h"

static inline size_t ha_seq_units(const struct ha_device_attend *a) { return a->lists ? a->lists : a->kv_heads; }

/* from a token's q or o to the next one's; from a head's to the next one's */
static inline size_t ha_seq_token_stride(const struct ha_device_attend *a)
{
    return a->q_token_stride ? a->q_token_stride : a->q_heads * a->head_dim;
}
static inline size_t ha_seq_head_stride(const struct ha_device_attend *a)
{
    return a->q_head_stride ? a->q_head_stride : a->head_dim;
}

/* runs: [HA_RUNS_MAX], filled in; list_keys is read. Scratch memory is the caller's to add. */
struct ha_attend ha_seq_attend(const struct ha_device_attend *a, const struct ha_device_seq *seq, size_t unit,
                               struct ha_rows *runs);

#endif
