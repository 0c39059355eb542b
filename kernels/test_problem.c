#include "kernels/test_problem.h"

#include "harness/api/reference.h"
#include "harness/base/rng.h"
#include "kernels/rows.h"

#include <math.h>

enum { BLOCKS = 51, PARTS };

static size_t blocks_of(size_t keys, size_t size) { return (keys + size - 1) / size; }

static void lay_run(struct ha_test_problem *lay, const struct ha_test_kv *kv, size_t r, size_t first, size_t keys,
                    size_t *used)
{
    struct ha_rows *run = &lay->runs[r];
    *run = ha_test_rows_part(kv, first, keys);
    if (!lay->list) return; /* rows, or no key */
    const uint32_t *list = lay->list + *used;
    for (size_t i = 0; i < keys; i++) {
        const size_t to = list[i / lay->args.block] * lay->args.block + i % lay->args.block,
                     row = kv->dim * ha_dtype_bytes(kv->dtype);
        memcpy((char *)lay->k + to * run->k_stride_bytes, ha_row_k(run, i), row);
        memcpy((char *)lay->v + to * run->v_stride_bytes, ha_row_v(run, i), row);
    }
    *used += blocks_of(keys, lay->args.block);
    run->k = lay->k;
    run->v = lay->v;
    run->index = list;
}

static void lay_keys(struct ha_test_problem *lay, const struct ha_test_ask *ask, const struct ha_test_kv *kv)
{
    if (ask->packed > 0) lay->args.packed = ha_test_pack(kv, ask->packed, ask->unit, ask->seed, NULL);
    size_t lists = 0, used = 0, first = ask->packed;
    for (size_t r = 0; ask->block && r < ask->runs_count; r++) lists += blocks_of(ask->run[r], ask->block);
    if (lists > 0) {
        lay->list = ha_guard_alloc(lists * sizeof *lay->list);
        lay->k = ha_guard_alloc(2 * lists * ask->block * kv->rows.k_stride_bytes);
        lay->v = ha_guard_alloc(2 * lists * ask->block * kv->rows.v_stride_bytes);
        ha_test_choose(lay->list, lists, 2 * lists, false, ask->seed, BLOCKS);
    }
    for (size_t r = 0; r < ask->runs_count; first += ask->run[r], r++) lay_run(lay, kv, r, first, ask->run[r], &used);
}

void ha_test_problem_lay(struct ha_test_problem *p, const struct ha_test_ask *ask, const struct ha_test_kv *kv)
{
    const size_t gap = ask->strided, rows = ask->q_len * ask->group, row = ask->dim + gap, floats = rows * row - gap;
    *p = (struct ha_test_problem){ .ask = *ask, .q = ha_guard_alloc(floats * sizeof *p->q), .rows = rows };
    p->args = (struct ha_attend){
        .q = p->q,
        .q_len = ask->q_len,
        .group = ask->group,
        .head_dim = ask->dim,
        .q_token_stride = ask->strided ? row : ask->group * row,
        .q_head_stride = ask->strided ? ask->q_len * row : row,
        .runs = p->runs,
        .runs_count = ask->runs_count,
        .block = ask->block,
        .dtype = ask->dtype,
        .scale = ask->scale > 0 ? ask->scale : 1 / sqrtf((float)ask->dim),
        .causal = ask->causal,
        .o = ha_guard_alloc(floats * sizeof(float)),
        .lse = ha_guard_alloc(rows * sizeof(float)),
        .lse_token_stride = ask->strided ? 1 : ask->group,
        .lse_head_stride = ask->strided ? ask->q_len : 1,
        .weights = ask->weights ? ha_guard_alloc(ask->group * ask->keys * sizeof(float)) : NULL,
        .weights_stride = ask->keys,
    };
    for (size_t r = 0; r < rows; r++)
        ha_test_query(p->q + r / ask->group * p->args.q_token_stride + r % ask->group * p->args.q_head_stride,
                      ask->family, ask->dim, ask->dtype, ask->seed * 1000 + r);
    lay_keys(p, ask, kv);
}

void ha_test_problem_make(struct ha_test_problem *p, const struct ha_test_ask *ask)
{
    struct ha_test_kv kv;
    ha_test_kv_make(&kv, ask->layout, ask->family, ask->dim, ask->keys, ask->dtype, ask->seed);
    ha_test_problem_lay(p, ask, &kv);
    p->kv = kv;
}

static void attend_parts(const struct ha_kernels *t, const struct ha_attend *a, size_t keys, size_t most, uint64_t seed)
{
    enum { MOST = 16 };
    struct ha_attend_part part[MOST];
    void *scratch = ha_guard_alloc(t->attend_scratch_bytes(a));
    size_t count = 0;
    for (size_t first = 0; first < keys || count == 0; count++) {
        const size_t n = count + 1 == MOST ? keys : HA_SPLIT_KEYS * (1 + ha_rng_below(seed, PARTS, count, most));
        part[count] = (struct ha_attend_part){
            .attend = a,
            .first = first,
            .keys = ha_least(n, keys - first),
            .state = ha_guard_alloc(t->attend_state_bytes(a)),
            .scratch = scratch,
        };
        first += part[count].keys;
        if (keys == 0) first = 1;
    }
    /* in any order: here backwards */
    for (size_t i = count; i-- > 0;) t->attend_part(t, &part[i]);
    ha_guard_free(scratch);
    const struct ha_attend_join join = { .attend = a, .parts = part, .count = count };
    t->attend_join(t, &join);
    for (size_t i = 0; i < count; i++) ha_guard_free(part[i].state);
}

void ha_test_problem_poison(const struct ha_test_problem *p)
{
    const size_t gap = p->ask.strided;
    memset(p->args.o, 0xFF, (p->rows * (p->ask.dim + gap) - gap) * sizeof(float));
    memset(p->args.lse, 0xFF, p->rows * sizeof(float));
    if (p->args.weights) memset(p->args.weights, 0xFF, p->ask.group * p->ask.keys * sizeof(float));
}

struct ha_profile ha_test_problem_profile(const struct ha_test_problem *p, const struct ha_kernels *t)
{
    return p->ask.packed > 0 ? ha_profile_attend(t, p->ask.dtype) : t->profile;
}

void ha_test_problem_solve(struct ha_test_problem *p, const struct ha_kernels *t, size_t most)
{
    ha_test_problem_poison(p);
    if (most) {
        attend_parts(t, &p->args, p->ask.keys, most, p->ask.seed);
        return;
    }
    p->args.scratch = ha_guard_alloc(t->attend_scratch_bytes(&p->args));
    t->attend(t, &p->args);
    ha_guard_free(p->args.scratch);
}
