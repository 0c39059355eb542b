/* The registry under other names, to which the variant and its definition are added below. */
#define ha_variants_all      registered_variants
#define ha_variants_count    registered_variants_count
#define ha_definitions_all   registered_definitions
#define ha_definitions_count registered_definitions_count
#include "harness/program/registry.c"
#undef ha_variants_all
#undef ha_variants_count
#undef ha_definitions_all
#undef ha_definitions_count

#include "harness/base/arena.h"
#include "harness/base/fit.h"
#include "harness/base/why.h"
#include "suites/parts/frame.h"
#include "suites/variants/fake_learner.h"

#include <stdlib.h>
#include <string.h>

enum { SINK, SHARE, PARAMS };
static const struct ha_param params[PARAMS] = {
    [SINK] = { "sink", 4, 0, 1 << 20, "first tokens that stay", .whole = true },
    [SHARE] = { "share", 0.9, 0, 1, "of the mass, that the window holds", .fitted = true },
};

/* ---- learning ---------------------------------------------------------------------------------------------------- */

/* The least window of the last keys that has so much of the mass of all queries. weight: [keys] */
static size_t window_for(double share, const double *weight, size_t keys)
{
    double all = 0, sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < keys; i++) all += weight[i];
    while (n < keys && (n == 0 || sum < share * all)) sum += weight[keys - 1 - n++];
    return n;
}

static size_t window_of_head(const struct ha_fit_input *in, size_t layer, size_t head, double *weight)
{
    const struct ha_shape *s = in->shape;
    const struct ha_prefill *p = &in->layer[layer];
    size_t most = 1;
    for (size_t b = 0; b < s->batch; b++) {
        const size_t keys = s->ctx[b], observed = s->observed < keys ? s->observed : keys,
                     row = s->head_dim * ha_dtype_bytes(s->dtype), kv = head / ha_shape_group(s) * p->cap * row;
        for (size_t t = 0; t < observed; t++) {
            const struct ha_rows rows = { .k = (const unsigned char *)p->k[b] + kv,
                                          .v = (const unsigned char *)p->v[b] + kv,
                                          .k_stride_bytes = row,
                                          .v_stride_bytes = row,
                                          .keys = keys - observed + t + 1 };
            ha_ref_weights(p->q[b] + (t * s->q_heads + head) * s->head_dim, s->head_dim, (double)s->scale, &rows,
                           s->dtype, weight);
            most = ha_most(most, window_for(in->param[SHARE], weight, rows.keys));
        }
    }
    return most;
}

enum ha_status (*ha_fake_learner_fit)(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why);

static enum ha_status put_inputs(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why)
{
    const struct ha_shape *s = in->shape;
    const size_t observed = ha_least(s->observed, s->ctx[0]), numbers = observed * s->model_dim;
    if (!in->x) return HA_OK;
    float *x = ha_alloc(in->arena, s->layers * numbers * sizeof *x, HA_TAG_SCRATCH, why);
    if (!x) return HA_ERROR;
    for (size_t i = 0; i < s->layers; i++) memcpy(x + i * numbers, in->x[i * s->batch], numbers * sizeof *x);
    return ha_fit_put(out, &(struct ha_tensor){ "x", HA_T_F32, 3, { s->layers, observed, s->model_dim }, .data = x },
                      why);
}

static enum ha_status fit(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why)
{
    const struct ha_shape *s = in->shape;
    size_t keys = 0;
    if (ha_fake_learner_fit) return ha_fake_learner_fit(in, out, why);
    for (size_t b = 0; b < s->batch; b++) keys = ha_most(keys, s->ctx[b]);
    float *window = ha_alloc(in->arena, s->layers * s->q_heads * sizeof *window, HA_TAG_SCRATCH, why);
    double *weight = ha_alloc(in->arena, keys * sizeof *weight, HA_TAG_SCRATCH, why);
    if (!window || !weight) return HA_ERROR;
    for (size_t i = 0; i < s->layers * s->q_heads; i++)
        window[i] = (float)window_of_head(in, i / s->q_heads, i % s->q_heads, weight);
    HA_TRY(
        ha_fit_put(out, &(struct ha_tensor){ "window", HA_T_F32, 2, { s->layers, s->q_heads }, .data = window }, why));
    return put_inputs(in, out, why);
}

/* ---- the variant ------------------------------------------------------------------------------------------------- */

extern const struct ha_variant ha_variant_streaming;
extern const struct ha_definition ha_definition_streaming;

/* What streaming is given in place of its own. */
static enum ha_status params_of(const struct ha_fit *f, const struct ha_shape *s, const double *param, double out[2],
                                struct ha_why *why)
{
    struct ha_tensor t = { .name = "window", .type = HA_T_F32, .dims = 2, .dim = { s->layers, s->q_heads } };
    HA_TRY(ha_fit_get(f, &t, why));
    const float *window = t.data;
    out[0] = param[SINK];
    out[1] = 1;
    for (size_t i = 0; i < s->layers * s->q_heads; i++)
        if ((double)window[i] > out[1]) out[1] = (double)window[i];
    return HA_OK;
}

static enum ha_status create(struct ha_instance **self, const struct ha_context *ctx, struct ha_why *why)
{
    struct ha_context *with = ha_alloc(ctx->arena, sizeof *with, HA_TAG_META, why);
    double *param = ha_alloc(ctx->arena, 2 * sizeof *param, HA_TAG_META, why);
    if (!with || !param) return HA_ERROR;
    HA_TRY(params_of(ctx->fit, ctx->shape, ctx->param, param, why));
    *with = *ctx;
    with->variant = &ha_variant_streaming;
    with->param = param;
    return ha_variant_streaming.create(self, with, why);
}

/* It never waits for the link. */
static void pace_param(double *param) { (void)param; }

const struct ha_variant ha_fake_learner = {
    .name = "learner",
    .family = "recency_split",
    .doc = "for tests: streaming with a window that is learnt",
    .source = "none",
    .contract = HA_STATISTICAL,
    .checked = true,
    .params = params,
    .params_count = PARAMS,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_COPY_2D,
    .create = create,
    .prefill = ha_frame_prefill,
    .attend = ha_frame_attend,
    .selection = ha_frame_selection,
    .drain = ha_frame_drain,
    .destroy = ha_frame_destroy,
    .fit = fit,
    .pace_param = pace_param,
};

static enum ha_status define(struct ha_def **def, const struct ha_shape *s, const double *param, const struct ha_fit *f,
                             struct ha_why *why)
{
    double of[2];
    HA_TRY(params_of(f, s, param, of, why));
    return ha_definition_streaming.create(def, s, of, NULL, why);
}
static enum ha_status judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark, struct ha_why *why)
{
    return ha_definition_streaming.judge(def, h, mark, why);
}
static void destroy(struct ha_def *def) { ha_definition_streaming.destroy(def); }
static const struct ha_definition definition = {
    .variant = "learner", .create = define, .judge = judge, .destroy = destroy
};

/* ---- the registry ------------------------------------------------------------------------------------------------ */

#define HA_VARIANT(name) &ha_variant_##name,
const struct ha_variant *const ha_variants_all[] = {
#include "harness/program/registry.def"
    &ha_fake_learner,
};
const size_t ha_variants_count = sizeof ha_variants_all / sizeof *ha_variants_all;

#define HA_DEFINITION(name) &ha_definition_##name,
const struct ha_definition *const ha_definitions_all[] = {
#include "harness/program/registry.def"
    &definition,
};
const size_t ha_definitions_count = sizeof ha_definitions_all / sizeof *ha_definitions_all;
