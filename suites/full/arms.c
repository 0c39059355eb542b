/* Bracketing arms: the link alone, the device alone and the CPU alone, each doing its share of
 * `offload` or `cpu` and nothing else. Together they bound what overlap can reach. Their output
 * is not attention over the context and is not checked. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "suites/parts/cpu_attend.h"
#include "suites/parts/needs.h"
#include "suites/parts/store.h"
#include "harness/base/try.h"

enum arm { ARM_COPY, ARM_DEVICE, ARM_CPU };
enum { BUFFERS = 2 };

struct ha_instance {
    struct ha_context ctx;
    enum arm arm;
    struct ha_kv *store;             /* [layers][batch] pinned: copy */
    struct ha_kv_store_layer *layer; /* [layers]: CPU */
    struct ha_kv *buffer[BUFFERS];   /* [batch] device: copy (both), device (the first) */
    size_t copied;                   /* layers copied so far */
    struct ha_stream *link;
    struct ha_event *loaded;
    struct ha_device_seq *seq; /* [batch] */
    struct ha_rows *rows;      /* [batch][kv_heads] */
    struct ha_cpu_attend cpu;
    float *q, *o, *lse;
};

static const char *needs_nothing(const struct ha_shape *shape, const double *param, const struct ha_device_api *api)
{
    (void)shape, (void)param, (void)api;
    return NULL;
}

static const char *needs_attend(const struct ha_shape *shape, const double *param, const struct ha_device_api *api)
{
    (void)shape, (void)param;
    return ha_needs(api, HA_NEEDS_ATTEND | HA_NEEDS_COPY_2D);
}

static enum ha_status create_cpu(struct ha_instance *self, struct ha_why *why)
{
    const struct ha_context *ctx = &self->ctx;
    const struct ha_shape *s = ctx->shape;
    size_t rows = s->batch * s->q_len * s->q_heads, longest = 0;
    self->rows = ha_alloc(ctx->arena, s->batch * s->kv_heads * sizeof *self->rows, HA_TAG_META, why);
    self->q = ha_alloc(ctx->arena, rows * s->head_dim * sizeof *self->q, HA_TAG_SCRATCH, why);
    self->o = ha_alloc(ctx->arena, rows * s->head_dim * sizeof *self->o, HA_TAG_SCRATCH, why);
    self->lse = ha_alloc(ctx->arena, rows * sizeof *self->lse, HA_TAG_SCRATCH, why);
    if (!self->rows || !self->q || !self->o || !self->lse) return HA_ERROR;
    /* any finite query costs the same */
    for (size_t i = 0; i < rows * s->head_dim; i++) self->q[i] = 1.0f;
    for (size_t b = 0; b < s->batch; b++) longest = ha_kv_max_tokens(s, b) > longest ? ha_kv_max_tokens(s, b) : longest;
    HA_TRY(ha_kv_store_layers_create(&self->ctx, true, s->layers, &self->layer, why));
    struct ha_rows run;
    struct ha_attend worst = ha_cpu_attend_group(s, 0, s->q_len, false, self->q, self->o, self->lse, &run, 1, NULL, 0);
    ha_kv_store_worst(s, &self->layer[0].seq[0], longest, &worst.packed, &run);
    return ha_cpu_attend_create(&self->cpu, ctx, s->batch * s->kv_heads, &worst, why);
}

static enum ha_status create(enum arm arm, struct ha_instance **out, const struct ha_context *ctx, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    struct ha_instance *self = ha_alloc(ctx->arena, sizeof *self, HA_TAG_META, why);
    if (!self) return HA_ERROR;
    *self = (struct ha_instance){ .ctx = *ctx, .arm = arm };
    *out = self;
    self->seq = ha_alloc(ctx->arena, s->batch * sizeof *self->seq, HA_TAG_META, why);
    if (!self->seq) return HA_ERROR;
    if (arm == ARM_COPY) {
        self->store = ha_alloc(ctx->arena, s->layers * s->batch * sizeof *self->store, HA_TAG_META, why);
        if (!self->store) return HA_ERROR;
        for (size_t i = 0; i < s->layers * s->batch; i++)
            HA_TRY(ha_kv_create(ctx, HA_MEM_PINNED, ha_kv_max_tokens(s, i % s->batch), &self->store[i], why));
    }
    for (size_t n = 0; n < (arm == ARM_COPY ? BUFFERS : arm == ARM_DEVICE ? 1u : 0u); n++) {
        self->buffer[n] = ha_alloc(ctx->arena, s->batch * sizeof *self->buffer[n], HA_TAG_META, why);
        if (!self->buffer[n]) return HA_ERROR;
        for (size_t b = 0; b < s->batch; b++)
            HA_TRY(ha_kv_create(ctx, HA_MEM_DEVICE, ha_kv_max_tokens(s, b), &self->buffer[n][b], why));
    }
    if (arm == ARM_CPU) return create_cpu(self, why);
    if (arm == ARM_DEVICE) return HA_OK;
    HA_TRY(ctx->api->stream_create(ctx->device, "load", &self->link, why));
    return ctx->api->event_create(ctx->device, &self->loaded, why);
}

static enum ha_status create_copy_only(struct ha_instance **out, const struct ha_context *ctx, struct ha_why *why)
{
    return create(ARM_COPY, out, ctx, why);
}
static enum ha_status create_device_only(struct ha_instance **out, const struct ha_context *ctx, struct ha_why *why)
{
    return create(ARM_DEVICE, out, ctx, why);
}
static enum ha_status create_cpu_only(struct ha_instance **out, const struct ha_context *ctx, struct ha_why *why)
{
    return create(ARM_CPU, out, ctx, why);
}

static enum ha_status prefill(struct ha_instance *self, size_t layer, const struct ha_prefill *in, struct ha_why *why)
{
    (void)why;
    const struct ha_shape *s = self->ctx.shape;
    if (self->layer) HA_TRY(ha_kv_store_layer_load(&self->layer[layer], in));
    for (size_t b = 0; b < s->batch; b++) {
        if (self->store)
            HA_TRY(ha_kv_load(&self->ctx, HA_MEM_PINNED, &self->store[layer * s->batch + b], 0, in, b, 0, s->ctx[b]));
        if (self->arm == ARM_DEVICE && layer == 0)
            HA_TRY(ha_kv_load(&self->ctx, HA_MEM_DEVICE, &self->buffer[0][b], 0, in, b, 0, s->ctx[b]));
    }
    return HA_OK;
}

static enum ha_status copy_layer(struct ha_instance *self, const struct ha_step *step)
{
    const struct ha_context *ctx = &self->ctx;
    struct ha_kv *to = self->buffer[self->copied++ % BUFFERS];
    for (size_t b = 0; b < ctx->shape->batch; b++)
        HA_TRY(ha_kv_copy(ctx, self->link, &to[b], 0, &self->store[step->layer * ctx->shape->batch + b], 0,
                          ctx->shape->ctx[b], HA_H2D));
    HA_TRY(ctx->api->event_record(self->loaded, self->link));
    return ctx->api->stream_wait(ctx->stream, self->loaded);
}

static enum ha_status compute_device(struct ha_instance *self, const struct ha_step *step)
{
    const struct ha_context *ctx = &self->ctx;
    const struct ha_shape *s = ctx->shape;
    for (size_t b = 0; b < s->batch; b++) {
        size_t tokens = s->ctx[b] + (step->step + 1) * step->q_len;
        struct ha_kv fresh = ha_kv_of_step(s, step, b);
        HA_TRY(ha_kv_copy(ctx, ctx->stream, &self->buffer[0][b], tokens - step->q_len, &fresh, 0, step->q_len, HA_D2D));
        self->seq[b] = ha_kv_device_seq(s, step, b, step->o, step->lse);
        self->seq[b].runs[self->seq[b].runs_count++] = ha_kv_rows(s, &self->buffer[0][b], 0, 0, tokens);
    }
    struct ha_device_attend args = ha_kv_device_attend(s, step->q_len, self->seq);
    return ctx->api->attend(ctx->stream, &args);
}

static enum ha_status compute_cpu(struct ha_instance *self, const struct ha_step *step)
{
    const struct ha_shape *s = self->ctx.shape;
    size_t per_seq = step->q_len * s->q_heads;
    self->cpu.units = 0;
    for (size_t b = 0; b < s->batch; b++)
        for (size_t h = 0; h < s->kv_heads; h++) {
            size_t at = b * per_seq;
            const struct ha_kv_store *store = &self->layer[step->layer].seq[b];
            struct ha_rows *run = &self->rows[b * s->kv_heads + h];
            struct ha_attend *unit = &self->cpu.unit[self->cpu.units++];
            *run = ha_kv_store_open(s, store, h);
            *unit = ha_cpu_attend_group(s, h, step->q_len, false, self->q + at * s->head_dim,
                                        self->o + at * s->head_dim, self->lse + at, run, 1, NULL, 0);
            unit->packed = ha_kv_store_packed(store, h);
        }
    ha_cpu_attend_run(&self->cpu, "attend");
    return HA_OK;
}

static enum ha_status attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    (void)why;
    return self->arm == ARM_COPY     ? copy_layer(self, step)
           : self->arm == ARM_DEVICE ? compute_device(self, step)
                                     : compute_cpu(self, step);
}

static void selection(struct ha_instance *self, size_t layer, size_t seq, size_t q_head, struct ha_selection *out)
{
    (void)self, (void)layer, (void)seq, (void)q_head;
    *out = (struct ha_selection){ .parts = 0 };
}

/* No arm changes what it was given: the CPU's appends nothing, the others write behind the context. */
static enum ha_status rewind_nothing(struct ha_instance *self, struct ha_why *why)
{
    (void)why;
    return self->link ? self->ctx.api->stream_sync(self->link) : HA_OK;
}

static void destroy(struct ha_instance *self)
{
    if (!self) return;
    if (self->link) self->ctx.api->stream_destroy(self->link);
    if (self->loaded) self->ctx.api->event_destroy(self->loaded);
}

extern const struct ha_variant ha_variant_copy_only, ha_variant_device_only, ha_variant_cpu_only;

const struct ha_variant ha_variant_copy_only = {
    .name = "copy_only",
    .family = "full",
    .doc = "bracketing arm: the loads of offload, no attention; output not checked",
    .source = "bracketing arm",
    .contract = HA_EXACT,
    .checked = false,
    .unsupported = needs_nothing,
    .create = create_copy_only,
    .prefill = prefill,
    .attend = attend,
    .selection = selection,
    .destroy = destroy,
    .rewind = rewind_nothing,
};
const struct ha_variant ha_variant_device_only = {
    .name = "device_only",
    .family = "full",
    .doc = "bracketing arm: device attention over one resident layer, no loads; output not checked",
    .source = "bracketing arm",
    .contract = HA_EXACT,
    .checked = false,
    .unsupported = needs_attend,
    .create = create_device_only,
    .prefill = prefill,
    .attend = attend,
    .selection = selection,
    .destroy = destroy,
    .rewind = rewind_nothing,
};
const struct ha_variant ha_variant_cpu_only = {
    .name = "cpu_only",
    .family = "full",
    .doc = "bracketing arm: CPU attention, nothing over the link; output not checked",
    .source = "bracketing arm",
    .contract = HA_EXACT,
    .checked = false,
    .unsupported = needs_nothing,
    .create = create_cpu_only,
    .prefill = prefill,
    .attend = attend,
    .selection = selection,
    .destroy = destroy,
    .rewind = rewind_nothing,
};
