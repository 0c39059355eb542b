#include "harness/base/seq_attend.h"

struct ha_attend ha_seq_attend(const struct ha_device_attend *a, const struct ha_device_seq *seq, size_t unit,
                               struct ha_rows *runs)
{
    const size_t units = ha_seq_units(a), group = a->q_heads / units, first = unit * group,
                 kv_head = unit * a->kv_heads / units, head_stride = ha_seq_head_stride(a);
    for (size_t r = 0; r < seq->runs_count; r++) {
        runs[r] = seq->runs[r];
        runs[r].k = (const char *)runs[r].k + kv_head * seq->k_head_bytes;
        runs[r].v = (const char *)runs[r].v + kv_head * seq->v_head_bytes;
    }
    if (a->lists && seq->runs_count) {
        runs[0].index += unit * seq->list_stride;
        if (seq->list_keys && seq->list_keys[unit] < runs[0].keys) runs[0].keys = seq->list_keys[unit];
    }
    return (struct ha_attend){
        .q = seq->q + first * head_stride,
        .q_len = a->q_len,
        .group = group,
        .head_dim = a->head_dim,
        .q_token_stride = ha_seq_token_stride(a),
        .q_head_stride = head_stride,
        .runs = runs,
        .runs_count = seq->runs_count,
        .block = a->block,
        .dtype = a->dtype,
        .scale = a->scale,
        .causal = a->causal,
        .o = seq->o + first * head_stride,
        .lse = seq->lse + first,
        .lse_token_stride = a->q_heads,
        .lse_head_stride = 1,
        .weights = seq->weights ? seq->weights + first * seq->weights_stride : NULL,
        .weights_stride = seq->weights_stride,
    };
}
