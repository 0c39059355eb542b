#include "harness/base/seq_attend.h"

struct ha_attend ha_seq_attend(const struct ha_device_attend *a, const struct ha_device_seq *seq, size_t kv_head,
                               struct ha_rows *runs)
{
    const size_t group = a->q_heads / a->kv_heads, first = kv_head * group;
    for (size_t r = 0; r < seq->runs_count; r++) {
        runs[r] = seq->runs[r];
        runs[r].k = (const char *)runs[r].k + kv_head * seq->k_head_bytes;
        runs[r].v = (const char *)runs[r].v + kv_head * seq->v_head_bytes;
    }
    return (struct ha_attend){
        .q = seq->q + first * a->head_dim,
        .q_len = a->q_len,
        .group = group,
        .head_dim = a->head_dim,
        .q_token_stride = a->q_heads * a->head_dim,
        .q_head_stride = a->head_dim,
        .runs = runs,
        .runs_count = seq->runs_count,
        .block = a->block,
        .dtype = a->dtype,
        .scale = a->scale,
        .causal = a->causal,
        .o = seq->o + first * a->head_dim,
        .lse = seq->lse + first,
        .lse_token_stride = a->q_heads,
        .lse_head_stride = 1,
        .weights = seq->weights ? seq->weights + first * seq->weights_stride : NULL,
        .weights_stride = seq->weights_stride,
    };
}
