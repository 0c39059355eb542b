#ifndef HA_BASE_SEQ_ATTEND_H
#define HA_BASE_SEQ_ATTEND_H

/* A device's attention, one sequence and KV head at a time, as CPU kernels take it. */

#include "harness/api/device.h"
#include "harness/api/kernels.h"

/* runs: [HA_RUNS_MAX], filled in. Scratch memory is the caller's to add. */
struct ha_attend ha_seq_attend(const struct ha_device_attend *a, const struct ha_device_seq *seq, size_t kv_head,
                               struct ha_rows *runs);

#endif
