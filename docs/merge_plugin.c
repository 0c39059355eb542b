/* A merge that habench judges. Put yours into merge_row(), say in info() what it can do, and
 *
 *     cc -std=c17 -O2 -fPIC -shared -I HABENCH docs/merge_plugin.c -o mine.so -lm
 *     habench check lse_merge --device ./mine.so
 *
 * It needs the headers of harness/api alone and runs in a process of its own: it may crash. */

#include "harness/api/device.h"

#include <math.h>
#include <string.h>

enum { DIM_MAX = 1024 };

/* One row: M states (o, L) of one token and head, L = ln sum exp(score) over the state's keys. */
static void merge_row(const struct ha_merge *a, size_t token, size_t head)
{
    const float *last_o = NULL, *last_lse = NULL;
    float max = -INFINITY, sum = 0, o[DIM_MAX] = { 0 };
    float *out_o = (float *)a->out.o + token * a->out.o_token_stride + head * a->out.o_head_stride;
    float *out_lse = a->out.lse + token * a->out.lse_token_stride + head * a->out.lse_head_stride;
    size_t live = 0;
    for (int pass = 0; pass < 3; pass++) /* max L; sum exp(L - max); sum of weight * o */
        for (size_t m = 0; m < a->states_count; m++) {
            const struct ha_merge_state *s = &a->states[m]; /* each state has strides of its own, in elements */
            const float *state_o = (const float *)s->o + token * s->o_token_stride + head * s->o_head_stride;
            const float *lse = s->lse + token * s->lse_token_stride + head * s->lse_head_stride;
            /* no keys: its o is not read, and may be NaN */
            if (*lse == -INFINITY || (a->plus_inf_is_empty && *lse == INFINITY)) continue;
            if (pass == 0) {
                live++;
                last_o = state_o;
                last_lse = lse;
                if (*lse > max) max = *lse; /* a NaN is no maximum, and makes the sum NaN */
            } else if (pass == 1) sum += expf(*lse - max);
            else
                for (size_t d = 0; d < a->dim; d++) o[d] += expf(*lse - max) / sum * state_o[d];
        }

    if (live == 1 && isfinite(*last_lse)) { /* one state that has keys: its bits; it may lie where the result goes */
        memmove(out_o, last_o, a->dim * sizeof *out_o);
        *out_lse = *last_lse;
        return;
    }
    memcpy(out_o, o, a->dim * sizeof *out_o); /* none: o is 0, and L is -inf */
    *out_lse = live ? max + logf(sum) : -INFINITY;
}

/* dev and stream are NULL, all memory is the host's. HA_ERROR: it refuses. */
static enum ha_status merge(struct ha_stream *stream, const struct ha_merge *args)
{
    if (args->form != HA_FORM_NATURAL || args->dtype != HA_F32 || args->dim > DIM_MAX) return HA_ERROR;
    for (size_t t = 0; t < args->tokens; t++)
        for (size_t h = 0; h < args->heads; h++) merge_row(args, t, h);
    return HA_OK;
}

/* Only what is claimed is asked for, and the bound is computed from it (harness/api/merge.h says what each field
 * means). */
static void info(struct ha_device *dev, struct ha_device_info *out)
{
    out->merge = (struct ha_merge_traits){
        .forms = 1u << HA_FORM_NATURAL,
        .dtypes = 1u << HA_F32,
        .aliases = 1u << HA_ALIAS_NONE | 1u << HA_ALIAS_FIRST | 1u << HA_ALIAS_LAST,
        .o_strides = true,
        .plus_inf = true,
        .exp_eps = 0x1p-23,
        .log_eps = 0x1p-23,
    };
}

__attribute__((visibility("default"))) extern const struct ha_device_api ha_device_api;
const struct ha_device_api ha_device_api = {
    .abi = HA_DEVICE_ABI,
    .struct_bytes = sizeof(struct ha_device_api),
    .name = "mine",
    .info = info,
    .merge = merge,
};
