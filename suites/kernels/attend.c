#include "suites/kernels/attention.h"

#include "harness/base/try.h"

/* attend, append, blocks, gather: all through attend_all. */

enum { LISTS = 16 };

static size_t kv_bytes(const struct ha_cpu_work *w)
{
    const struct ha_cpu_point *p = &w->point;
    const size_t blocks = (p->ctx + HA_PACK_KEYS - 1) / HA_PACK_KEYS,
                 own = p->kernel == HA_KERNEL_APPEND ? p->q_len : 0;
    return p->layout == HA_CPU_PACKED ? blocks * ha_packed_block_bytes(p->head_dim, w->dtype)
                                      : 2 * (p->ctx + own) * p->head_dim * w->elem;
}

static enum ha_status open_lists(struct ha_cpu_work *w, size_t lists, struct ha_why *why)
{
    const struct ha_cpu_point *p = &w->point;
    struct ha_cpu_attention *a = w->own = ha_cpu_alloc(w, sizeof *a, why);
    if (!a) return HA_ERROR;
    HA_TRY(ha_cpu_attention_open(a, w, lists, why));
    const size_t most = a->chosen * p->block, own = p->kernel == HA_KERNEL_APPEND ? p->q_len : 0;
    const double keys = (double)((lists && most < p->ctx ? most : p->ctx) + own), row = (double)(p->head_dim * w->elem);
    w->bytes = 2 * keys * row * (double)w->units;
    /* of an append's own tokens, each query sees half */
    w->flop = 4 * (keys - (double)own / 2) * (double)(p->head_dim * p->q_len * p->q_heads * p->batch);
    return HA_OK;
}

static enum ha_status open_all(struct ha_cpu_work *w, struct ha_why *why) { return open_lists(w, 0, why); }
static enum ha_status open_some(struct ha_cpu_work *w, struct ha_why *why) { return open_lists(w, LISTS, why); }
static void turn(struct ha_cpu_work *w, size_t at) { ha_cpu_attention_turn(w->own, w, at); }
static void run(struct ha_cpu_work *w) { ha_cpu_attention_run(w->own, w); }
static enum ha_status check(struct ha_cpu_work *w, double *err_over_bound, struct ha_why *why)
{
    return ha_cpu_attention_check(w->own, w, err_over_bound, why);
}

const struct ha_cpu_subject ha_cpu_subjects_attend[4] = {
    { HA_KERNEL_ATTEND, ha_cpu_attention_lacks, kv_bytes, open_all, turn, check, { { run, false } }, 1 },
    { HA_KERNEL_APPEND, ha_cpu_attention_lacks, kv_bytes, open_all, turn, check, { { run, false } }, 1 },
    { HA_KERNEL_BLOCKS, ha_cpu_attention_lacks, kv_bytes, open_some, turn, check, { { run, false } }, 1 },
    { HA_KERNEL_GATHER, ha_cpu_attention_lacks, kv_bytes, open_some, turn, check, { { run, false } }, 1 },
};
