/* All KV in host memory, all attention on the CPU: queries and new KV come down, outputs go up. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "suites/parts/cpu_attend.h"
#include "suites/parts/store.h"
#include "suites/parts/tokens.h"
#include "harness/base/try.h"

enum { LAYOUT };
static const struct ha_param params[] = {
    [LAYOUT] = { "layout", 1, 0, 1,
                 "of K and V: 0 natural rows, 1 packed where head_dim is a multiple of 8, at most 256", true },
};

struct ha_instance {
    struct ha_context ctx;
    struct ha_kv_store_layer *layer; /* [layers] */
    struct ha_rows *rows;            /* [batch][kv_heads] */
    struct ha_cpu_attend cpu;
    float *q, *o, *lse; /* pinned; [batch][q_len][q_heads][head_dim], lse without the last */
    struct ha_event *arrived;
    struct ha_tokens all;
};

static const char *unsupported(const struct ha_shape *shape, const double *param, const struct ha_device_api *api)
{
    (void)shape, (void)param, (void)api;
    return NULL;
}

static enum ha_status create(struct ha_instance **out, const struct ha_context *ctx, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    struct ha_instance *self = ha_alloc(ctx->arena, sizeof *self, HA_TAG_META, why);
    if (!self) return HA_ERROR;
    *self = (struct ha_instance){ .ctx = *ctx };
    *out = self;
    size_t rows = s->batch * s->q_len * s->q_heads, longest = 0;
    self->rows = ha_alloc(ctx->arena, s->batch * s->kv_heads * sizeof *self->rows, HA_TAG_META, why);
    self->q = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, rows * s->head_dim * sizeof *self->q, HA_TAG_SCRATCH,
                              why);
    self->o = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, rows * s->head_dim * sizeof *self->o, HA_TAG_SCRATCH,
                              why);
    self->lse = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, rows * sizeof *self->lse, HA_TAG_SCRATCH, why);
    if (!self->rows || !self->q || !self->o || !self->lse) return HA_ERROR;
    for (size_t b = 0; b < s->batch; b++) longest = ha_kv_max_tokens(s, b) > longest ? ha_kv_max_tokens(s, b) : longest;
    HA_TRY(ha_kv_store_layers_create(&self->ctx, ctx->param[LAYOUT] > 0, s->layers, &self->layer, why));
    struct ha_rows run;
    struct ha_attend worst = ha_cpu_attend_group(s, 0, s->q_len, true, self->q, self->o, self->lse, &run, 1, NULL, 0);
    ha_kv_store_worst(s, &self->layer[0].seq[0], longest, &worst.packed, &run);
    HA_TRY(ha_cpu_attend_create(&self->cpu, ctx, s->batch * s->kv_heads, &worst, why));
    HA_TRY(ctx->api->event_create(ctx->device, &self->arrived, why));
    return ctx->record_selection ? ha_tokens_create(ctx, longest, &self->all, why) : HA_OK;
}

static enum ha_status prefill(struct ha_instance *self, size_t layer, const struct ha_prefill *in, struct ha_why *why)
{
    (void)why;
    return ha_kv_store_layer_load(&self->layer[layer], in);
}

static enum ha_status attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    (void)why;
    const struct ha_context *ctx = &self->ctx;
    const struct ha_shape *s = ctx->shape;
    size_t per_seq = step->q_len * s->q_heads, rows = s->batch * per_seq;
    size_t o_bytes = rows * s->head_dim * sizeof(float);
    struct ha_kv_store_layer *layer = &self->layer[step->layer];

    ha_kv_store_layer_wait(layer);
    HA_TRY(ctx->api->copy(ctx->stream, self->q, step->q, o_bytes, HA_D2H));
    for (size_t b = 0; b < s->batch; b++) {
        struct ha_kv fresh = ha_kv_of_step(s, step, b);
        HA_TRY(ha_kv_store_append(ctx, ctx->stream, &layer->seq[b], &fresh, 0, step->q_len, HA_D2H));
    }
    HA_TRY(ctx->api->event_record(self->arrived, ctx->stream));
    HA_TRY(ctx->api->event_sync(self->arrived));

    self->cpu.units = 0;
    for (size_t b = 0; b < s->batch; b++)
        for (size_t h = 0; h < s->kv_heads; h++) {
            size_t at = b * per_seq;
            struct ha_rows *run = &self->rows[b * s->kv_heads + h];
            struct ha_attend *unit = &self->cpu.unit[self->cpu.units++];
            *run = ha_kv_store_open(s, &layer->seq[b], h);
            *unit = ha_cpu_attend_group(s, h, step->q_len, true, self->q + at * s->head_dim, self->o + at * s->head_dim,
                                        self->lse + at, run, 1, NULL, 0);
            unit->packed = ha_kv_store_packed(&layer->seq[b], h);
        }
    ha_cpu_attend_run(&self->cpu, "attend");

    HA_TRY(ctx->api->copy(ctx->stream, step->o, self->o, o_bytes, HA_H2D));
    HA_TRY(ctx->api->copy(ctx->stream, step->lse, self->lse, rows * sizeof(float), HA_H2D));
    ha_kv_store_layer_settle(layer);
    return HA_OK;
}

static void selection(struct ha_instance *self, size_t layer, size_t seq, size_t q_head, struct ha_selection *out)
{
    (void)q_head;
    ha_tokens_select_all(&self->all, self->layer[layer].seq[seq].tokens, false, out);
}

static void settle_all(struct ha_instance *self)
{
    for (size_t l = 0; self->layer && l < self->ctx.shape->layers; l++) ha_kv_store_layer_wait(&self->layer[l]);
}

static enum ha_status drain(struct ha_instance *self, struct ha_why *why)
{
    (void)why;
    settle_all(self);
    return HA_OK;
}

static enum ha_status rewind_stores(struct ha_instance *self, struct ha_why *why)
{
    (void)why;
    for (size_t l = 0; l < self->ctx.shape->layers; l++) ha_kv_store_layer_rewind(&self->layer[l]);
    return HA_OK;
}

static void counters(struct ha_instance *self, struct ha_counters *out)
{
    double unmeasured = __builtin_nan("");
    settle_all(self);
    *out = (struct ha_counters){ unmeasured, unmeasured, unmeasured, unmeasured, 0, unmeasured, 0 };
    for (size_t l = 0; l < self->ctx.shape->layers; l++) out->manage_ns += (double)self->layer[l].pack_ns;
}

static void destroy(struct ha_instance *self)
{
    if (!self) return;
    settle_all(self);
    if (self->arrived) self->ctx.api->event_destroy(self->arrived);
}

extern const struct ha_variant ha_variant_cpu;
const struct ha_variant ha_variant_cpu = {
    .name = "cpu",
    .family = "full",
    .doc = "all KV in host memory, all attention on the CPU",
    .source = "Vaswani et al. 2017, section 3.2.1",
    .contract = HA_EXACT,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .unsupported = unsupported,
    .create = create,
    .prefill = prefill,
    .attend = attend,
    .selection = selection,
    .counters = counters,
    .drain = drain,
    .destroy = destroy,
    .rewind = rewind_stores,
};
