/* Of the embedded device: it computes with the portable kernels, whose table says more than they need, so that one can
 * tell whose profile it is. */

#include "kernels/c/ops.h"
#include "kernels/host/host.h"
#include "kernels/host/test_support.h"

const struct ha_device_api *const api = &ha_device_host;
const bool embedded = true;

/* Scratch that is smaller than it must be is overrun. */
static void attend(const struct ha_kernels *self, const struct ha_attend *a)
{
    memset(a->scratch, 0xFF, ha_c_attend_scratch_bytes(a));
    ha_c_attend(self, a);
}

static void net(const struct ha_net *n)
{
    if (n->layers > 1) memset(n->scratch, 0xFF, ha_net_scratch(n) * sizeof(float));
    ha_c_net(n);
}

const struct ha_kernels test_kernels = {
    .name = "test",
    .profile = { .dot_lanes = 7,
                 .dot_extra = 11,
                 .sum_lanes = 5,
                 .sum_extra = 31,
                 .exp_eps = 0x1p-22,
                 .log_eps = 0x1p-21,
                 .exact_joins = true },
    .traits = { .forms = 1u << HA_FORM_NATURAL | 1u << HA_FORM_MAX_SUM,
                .dtypes = 1u << HA_F32 | 1u << HA_BF16,
                .o_strides = true,
                .exp_eps = 3e-7,
                .log_eps = 4e-7,
                .depth_extra = 5 },
    .attend_chunk = ha_c_attend_chunk,
    .attend = attend,
    .attend_scratch_bytes = ha_c_attend_scratch_bytes,
    .merge = ha_c_merge,
    .topk = ha_c_topk,
    .digest = ha_c_digest,
    .digest_score = ha_c_digest_score,
    .score = ha_c_score,
    .net = net,
    .hash = ha_c_hash,
    .hamming = ha_c_hamming,
    .pq_encode = ha_c_pq_encode,
    .pq_table = ha_c_pq_table,
    .pq_score = ha_c_pq_score,
    .softmax = ha_c_softmax,
    .topp = ha_c_topp,
    .weighted_sum = ha_c_weighted_sum,
};
