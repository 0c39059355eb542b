/* A plugin that is right unless the numbers tell it to do harm. */

#include "harness/api/device.h"
#include "harness/measure/eps.h"
#include "kernels/c/ops.h"
#include "suites/merge/test_hostile.h"

#include <fenv.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HA_AS_IS __attribute__((no_sanitize("undefined", "address")))

static volatile int zero;

static size_t o_end(const struct ha_merge *a, const struct ha_merge_state *s)
{
    return (a->tokens - 1) * s->o_token_stride + (a->heads - 1) * s->o_head_stride + a->dim;
}

HA_AS_IS static enum ha_status harm(enum hostile what, const struct ha_merge *a)
{
    volatile float *out = a->out.o, *in = a->states[0].o, *last = a->states[a->states_count - 1].o;
    switch (what) {
    case NULL_WRITE: *(volatile int *)(uintptr_t)(zero + 4) = 1; break;
    case HANGS:
        while (!zero) continue;
        break;
    case PAST_END: out[o_end(a, &a->out)] = 1; break;
    case BEFORE_START: out[-1] = 1; break;
    case FAR_BEFORE_START: out[-1024] = 1; break;
    case WRITES_INPUT: in[5] = 1; break;
    case READS_PAST_END: zero += last[o_end(a, &a->states[a->states_count - 1])] > 1; break;
    case WRITES_ARGUMENTS: *(volatile size_t *)(uintptr_t)&a->dim = 1; break;
    case BAD_STATUS: return (enum ha_status)77;
    case REFUSES: return HA_ERROR;
    case WAIVES: return HA_WAIVED;
    case EXITS: exit(5);
    case ABORTS: abort();
    case CLOSES_ALL:
        for (int fd = 0; fd < 64; fd++) close(fd);
        break;
    case KILLS_ITSELF: raise(SIGKILL); break;
    case LEAVES_A_GRANDCHILD:
        if (fork() == 0)
            for (;;) pause();
        break;
    case ANSWERS_TWICE: fork(); break;
    case TRAPS: __builtin_trap();
    case ROUNDS: fesetround(FE_TOWARDZERO); break;
    case WRONG_ANSWER: out[3] += 0.01f; break;
    default: break;
    }
    return HA_OK;
}

static enum hostile told(float x)
{
    return x > (float)HOSTILE_CODE && x < (float)(HOSTILE_CODE + HOSTILES) ? (enum hostile)(x - (float)HOSTILE_CODE)
                                                                           : BEHAVES;
}

static enum ha_status merge(struct ha_stream *stream, const struct ha_merge *a)
{
    const enum hostile what = told(*(const float *)a->states[0].o); /* which the merge may overwrite */
    if (a->tokens == HA_EPS_ARGUMENTS) {
        const char *how = getenv(HOSTILE_VARIABLE);
        if (how && !strcmp(how, "look exits")) exit(5);
        if (how && !strcmp(how, "look refuses")) return HA_ERROR;
    }
    ha_c_merge(a);
    return harm(what, a);
}

/* Not attention, but every argument takes part: o = q + the sum of all rows of V of its KV head, lse = the sum of K. */
HA_AS_IS static enum ha_status attend(struct ha_stream *stream, const struct ha_device_attend *a)
{
    const enum hostile what = told(a->seqs[0].q[0]);
    if (what == REFUSES) return HA_ERROR;
    if (what == BAD_STATUS) return (enum ha_status)77;
    if (what == WRITES_INPUT) *(volatile float *)(uintptr_t)a->seqs[0].q = 1;
    if (what == PAST_END) ((volatile float *)a->seqs[a->batch - 1].lse)[16] = 1;
    if (what == HANGS)
        while (!zero) continue;
    for (size_t b = 0; b < a->batch; b++) {
        const struct ha_device_seq *s = &a->seqs[b];
        for (size_t i = 0; i < a->q_len * a->q_heads; i++) {
            const size_t kv = i % a->q_heads / (a->q_heads / a->kv_heads);
            s->lse[i] = 0;
            for (size_t d = 0; d < a->head_dim; d++) s->o[i * a->head_dim + d] = s->q[i * a->head_dim + d];
            for (size_t r = 0; r < s->runs_count; r++)
                for (size_t n = 0; n < s->runs[r].keys; n++) {
                    const float *k = (const void *)((const char *)s->runs[r].k + kv * s->k_head_bytes
                                                    + n * s->runs[r].k_stride_bytes);
                    const float *v = (const void *)((const char *)s->runs[r].v + kv * s->v_head_bytes
                                                    + n * s->runs[r].v_stride_bytes);
                    for (size_t d = 0; d < a->head_dim; d++) {
                        s->o[i * a->head_dim + d] += v[d];
                        s->lse[i] += k[d];
                    }
                }
        }
        if (s->weights) s->weights[1] = 5;
    }
    return HA_OK;
}

HA_AS_IS static void info(struct ha_device *dev, struct ha_device_info *out)
{
    const char *text = getenv(HOSTILE_VARIABLE);
    const char *how = text ? text : "";
    strcpy(out->name, "hostile");
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++)
        out->profile[t] = (struct ha_profile){ .dot_lanes = 1, .sum_lanes = 1, .exp_eps = 0x1p-23, .log_eps = 0x1p-23 };
    out->merge = (struct ha_merge_traits){
        .forms = 1, .dtypes = 1, .aliases = 7, .o_strides = true, .exp_eps = 0x1p-23, .log_eps = 0x1p-23
    };
    if (!strcmp(how, "no forms")) out->merge.forms = 0;
    if (!strcmp(how, "other forms")) out->merge.forms = 0xA5;
    if (!strcmp(how, "no types")) out->merge.dtypes = 0;
    if (!strcmp(how, "no alias")) out->merge.aliases = 6;
    if (!strcmp(how, "nan")) out->merge.exp_eps = (double)NAN;
    if (!strcmp(how, "eps")) out->merge.log_eps = 0.5;
    if (!strcmp(how, "depth")) out->merge.depth_extra = -1;
    if (!strcmp(how, "rescales")) out->merge.rescales = 1e9;
    if (!strcmp(how, "states")) out->merge.states_max = 1;
    if (!strcmp(how, "many states")) out->merge.states_max = SIZE_MAX;
    if (!strcmp(how, "order")) out->merge.lse_order = (enum ha_lse_order)9;
    if (!strcmp(how, "name")) memset(out->name, 'x', sizeof out->name);
    if (!strcmp(how, "fill")) memset(out, 0xA5, sizeof *out);
    if (!strcmp(how, "bool")) memset(&out->merge.commutes, 0xA5, 1);
    if (!strcmp(how, "lanes")) out->profile[HA_F16].dot_lanes = 0;
    if (!strcmp(how, "crash")) *(volatile int *)(uintptr_t)(zero + 4) = 1;
    if (!strcmp(how, "hang"))
        while (!zero) continue;
    if (!strcmp(how, "exit")) exit(9);
}

__attribute__((constructor)) static void loaded(void)
{
    const char *how = getenv(HOSTILE_VARIABLE);
    if (how && !strcmp(how, "load")) abort();
}

__attribute__((visibility("default"))) extern const struct ha_device_api ha_device_api;
const struct ha_device_api ha_device_api = {
    .abi = HA_DEVICE_ABI,
    .struct_bytes = sizeof(struct ha_device_api),
    .name = "ho,stile=1",
    .info = info,
    .merge = merge,
    .attend = attend,
};
