#include "suites/parts/frame.h"

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/order.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"
#include "harness/base/worker.h"
#include "suites/parts/listed.h"
#include "suites/parts/places.h"

#include <math.h>
#include <string.h>

enum { STREAMS_MAX = 4 };

struct ha_instance {
    struct ha_context ctx;
    const struct ha_rule *rule;
    struct ha_layer *layer;       /* [layers] */
    struct ha_device_seq *device; /* [batch] */
    struct ha_cpu_attend cpu;
    struct ha_rows *run;          /* [cpu.units_max], one for each unit */
    float *q;                     /* pinned: [batch][q_len][q_heads][head_dim] */
    float *o_cpu[2], *lse_cpu[2]; /* pinned; mapped where the device reads them in the merge. The second of layers whose
                                   * CPU side is begun while the device merges that of the one before */
    struct ha_state states[HA_FRAME_STATES]; /* device; where they are merged */
    struct ha_state worked;                  /* device: what `work` has had it make */
    float *empty;                            /* device: [rows] LSEs of no keys */
    uint32_t *place;                         /* device: [steps][batch][q_len], where new tokens go; or NULL */
    uint32_t *all; /* 0, 1, ... to the longest sequence's end: what is reported where everything is used */
    struct ha_stream *stream[STREAMS_MAX], *post;
    struct ha_event *arrived; /* q is down */
    size_t streams;
    double settle_ns, selected_ns, steps, keys_cpu, keys_device; /* sums; keys over query heads too. NaN: the device
                                                                  * alone knows how long its lists are */
};

/* ---- lists of tokens ---------------------------------------------------------------------- */

static enum ha_status room(const struct ha_context *ctx, struct ha_positions *list, size_t count, struct ha_why *why)
{
    if (count <= list->cap) return HA_OK;
    size_t cap = ha_most(count, 2 * list->cap);
    uint32_t *token = ha_grow(ctx->arena, list->token, list->count * sizeof *token, cap * sizeof *token, HA_TAG_SCRATCH,
                              why);
    if (!token) return HA_ERROR;
    list->token = token;
    list->cap = cap;
    return HA_OK;
}

enum ha_status ha_positions_add(const struct ha_context *ctx, struct ha_positions *list, const uint32_t *token,
                                size_t count, struct ha_why *why)
{
    HA_TRY(room(ctx, list, list->count + count, why));
    for (size_t i = 0; i < count; i++) list->token[list->count++] = token[i];
    return HA_OK;
}

enum ha_status ha_positions_add_range(const struct ha_context *ctx, struct ha_positions *list, size_t first,
                                      size_t last, struct ha_why *why)
{
    if (first >= last) return HA_OK;
    HA_TRY(room(ctx, list, list->count + last - first, why));
    for (size_t t = first; t < last; t++) list->token[list->count++] = (uint32_t)t;
    return HA_OK;
}

enum ha_status ha_positions_add_blocks(const struct ha_context *ctx, struct ha_positions *list, size_t first,
                                       size_t unit, const uint32_t *block, size_t count, struct ha_why *why)
{
    for (size_t i = 0; i < count; i++) {
        const size_t begin = first + block[i] * unit;
        HA_TRY(ha_positions_add_range(ctx, list, begin, begin + unit, why));
    }
    return HA_OK;
}

/* ---- create and destroy --------------------------------------------------------------------- */

enum ha_status ha_frame_stream(const struct ha_layer *l, const char *name, struct ha_stream **stream,
                               struct ha_why *why)
{
    struct ha_instance *self = l->frame;
    if (self->streams == STREAMS_MAX) return ha_why(why, HA_ERROR, "more than %d streams", STREAMS_MAX);
    HA_TRY(l->ctx->api->stream_create(l->ctx->device, name, stream, why));
    self->stream[self->streams++] = *stream;
    return HA_OK;
}

/* META is what the rule keeps; what the frame does to run it is not */
static void *zeroed(const struct ha_context *ctx, size_t bytes, enum ha_tag tag, struct ha_why *why)
{
    void *x = ha_alloc(ctx->arena, bytes, tag, why);
    return x ? memset(x, 0, bytes) : NULL;
}

static enum ha_status floats(const struct ha_context *ctx, enum ha_memory memory, size_t count, float **out,
                             struct ha_why *why)
{
    *out = ha_device_alloc(ctx->device_arena, memory, count * sizeof **out, HA_TAG_SCRATCH, why);
    return *out ? HA_OK : HA_ERROR;
}

static bool by_head(const struct ha_instance *self) { return self->rule->by_head && self->rule->by_head(&self->ctx); }

static size_t outputs(const struct ha_instance *self) { return self->rule->early ? 2 : 1; }
static float *o_of(const struct ha_instance *self, size_t layer) { return self->o_cpu[layer % outputs(self)]; }
static float *lse_of(const struct ha_instance *self, size_t layer) { return self->lse_cpu[layer % outputs(self)]; }

static struct ha_attend unit_of(const struct ha_instance *self, size_t layer, const float *q, size_t b, size_t u,
                                const struct ha_rows *run)
{
    const struct ha_shape *s = self->ctx.shape;
    size_t at = b * s->q_len * s->q_heads, heads = by_head(self) ? 1 : ha_shape_group(s);
    /* the new tokens are on the device where there is a device side */
    bool causal = !self->rule->device && !self->rule->unlinked;
    return ha_cpu_attend_unit(s, u * heads, heads, s->q_len, causal, q + at * s->head_dim,
                              o_of(self, layer) + at * s->head_dim, lse_of(self, layer) + at, run);
}

static bool has_cpu(const struct ha_rule *rule) { return rule->cpu || rule->work; }
static size_t rows_of(const struct ha_shape *s) { return s->batch * s->q_len * s->q_heads; }

static enum ha_status create_state(const struct ha_context *ctx, struct ha_state *state, struct ha_why *why)
{
    const size_t rows = rows_of(ctx->shape);
    HA_TRY(floats(ctx, HA_MEM_DEVICE, rows * ctx->shape->head_dim, &state->o, why));
    return floats(ctx, HA_MEM_DEVICE, rows, &state->lse, why);
}

static enum ha_status create_work(struct ha_instance *self, struct ha_why *why)
{
    const struct ha_context *ctx = &self->ctx;
    const size_t rows = rows_of(ctx->shape);
    HA_TRY(create_state(ctx, &self->worked, why));
    HA_TRY(floats(ctx, HA_MEM_DEVICE, rows, &self->empty, why));
    for (size_t i = 0; i < rows; i++) self->lse_cpu[0][i] = -INFINITY;
    HA_TRY(ctx->api->copy(ctx->stream, self->empty, self->lse_cpu[0], rows * sizeof(float), HA_H2D));
    return ctx->api->stream_sync(ctx->stream);
}

static enum ha_status create_units(struct ha_instance *self, size_t longest, struct ha_why *why)
{
    const struct ha_context *ctx = &self->ctx;
    const struct ha_shape *s = ctx->shape;
    const size_t units = s->batch * (by_head(self) ? s->q_heads : s->kv_heads);
    self->run = zeroed(ctx, units * sizeof *self->run, HA_TAG_SCRATCH, why);
    if (!self->run) return HA_ERROR;
    /* more than any unit: all tokens packed, and as rows too */
    struct ha_rows run = { .keys = longest };
    struct ha_attend largest = unit_of(self, 0, self->q, 0, 0, &run);
    largest.packed.keys = longest;
    if (self->rule->weighs && s->q_len > 1) largest.weights = self->lse_cpu[0];
    HA_TRY(ha_cpu_attend_create(&self->cpu, ctx, units, &largest, why));
    if (self->rule->by_sequence && self->rule->by_sequence(ctx) && s->batch > 1)
        HA_TRY(ha_cpu_attend_in_groups(&self->cpu, units / s->batch, why));
    return HA_OK;
}

static enum ha_status create_cpu(struct ha_instance *self, size_t longest, struct ha_why *why)
{
    const struct ha_context *ctx = &self->ctx;
    const struct ha_rule *rule = self->rule;
    const size_t rows = rows_of(ctx->shape), dim = ctx->shape->head_dim;
    const enum ha_memory up = rule->device ? HA_MEM_MAPPED : HA_MEM_PINNED;
    HA_TRY(floats(ctx, HA_MEM_PINNED, rows * dim, &self->q, why));
    for (size_t i = 0; i < outputs(self); i++) {
        HA_TRY(floats(ctx, up, rows * dim, &self->o_cpu[i], why));
        HA_TRY(floats(ctx, up, rows, &self->lse_cpu[i], why));
    }
    /* any finite query costs the same */
    for (size_t i = 0; rule->unlinked && i < rows * dim; i++) self->q[i] = 1.0f;
    HA_TRY(rule->work ? create_work(self, why) : create_units(self, longest, why));
    if (rule->early || rule->work) HA_TRY(ha_pool_background(ctx->pool, why));
    return ha_device_event(ctx->device_arena, &self->arrived, why);
}

static enum ha_status create_layer(struct ha_instance *self, struct ha_layer *l, struct ha_why *why)
{
    const struct ha_context *ctx = &self->ctx;
    const struct ha_shape *s = ctx->shape;
    l->own = zeroed(ctx, s->batch * self->rule->seq_bytes, HA_TAG_META, why);
    l->tokens = l->own ? zeroed(ctx, s->batch * sizeof *l->tokens, HA_TAG_SCRATCH, why) : NULL;
    if (!l->tokens) return HA_ERROR;
    memcpy(l->tokens, s->ctx, s->batch * sizeof *l->tokens);
    if (ctx->record_selection && self->rule->use) {
        l->used = zeroed(ctx, s->batch * s->q_heads * sizeof *l->used, HA_TAG_SCRATCH, why);
        if (!l->used) return HA_ERROR;
    }
    if (self->rule->post) {
        HA_TRY(ha_device_event(ctx->device_arena, &l->attended, why));
        HA_TRY(ha_device_event(ctx->device_arena, &l->settled, why));
    }
    for (size_t b = 0; b < s->batch && self->rule->open; b++) HA_TRY(self->rule->open(l, b, why));
    return HA_OK;
}

enum ha_status ha_frame_create(struct ha_instance **out, const struct ha_context *ctx, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    const struct ha_rule *rule = ctx->variant->rule;
    struct ha_instance *self = zeroed(ctx, sizeof *self, HA_TAG_SCRATCH, why);
    if (!self) return HA_ERROR;
    self->ctx = *ctx;
    self->rule = rule;
    *out = self;
    void *shared = zeroed(ctx, rule->shared_bytes, HA_TAG_META, why);
    struct ha_layer *layer = shared ? zeroed(ctx, s->layers * sizeof *layer, HA_TAG_SCRATCH, why) : NULL;
    self->device = layer ? zeroed(ctx, s->batch * sizeof *self->device, HA_TAG_SCRATCH, why) : NULL;
    if (!self->device) return HA_ERROR;
    for (size_t i = 0; i < s->layers; i++)
        layer[i] = (struct ha_layer){ .ctx = &self->ctx, .frame = self, .layer = i, .shared = shared };
    self->layer = layer;
    if (rule->share) HA_TRY(rule->share(layer, why));
    if (rule->post) HA_TRY(ha_frame_stream(layer, "post", &self->post, why));
    for (size_t i = 0; i < s->layers; i++) HA_TRY(create_layer(self, &layer[i], why));
    if (rule->place) HA_TRY(ha_places_create(layer, rule->place, &self->place, why));

    const size_t longest = ha_kv_longest(s);
    if (has_cpu(rule)) HA_TRY(create_cpu(self, longest, why));
    if (has_cpu(rule) && rule->device) HA_TRY(create_state(ctx, &self->states[HA_FRAME_DEVICE], why));
    if (rule->sink) HA_TRY(create_state(ctx, &self->states[HA_FRAME_SINK], why));
    if (!ctx->record_selection || rule->use) return HA_OK;
    self->all = ha_alloc(ctx->arena, longest * sizeof *self->all, HA_TAG_SCRATCH, why);
    for (size_t t = 0; self->all && t < longest; t++) self->all[t] = (uint32_t)t;
    return self->all ? HA_OK : HA_ERROR;
}

/* returns when no job of any layer is left, whatever became of it; self may be half-made */
static void settle_all(struct ha_instance *self)
{
    ha_pool_wait(self->ctx.pool);
    for (size_t i = 0; self->layer && i < self->ctx.shape->layers; i++)
        ha_worker_wait(self->ctx.worker, self->layer[i].ticket);
}

static enum ha_status settled(const struct ha_layer *l, struct ha_why *why)
{
    ha_worker_wait(l->ctx->worker, l->ticket);
    return l->status == HA_OK ? HA_OK : ha_why(why, l->status, "%s", l->why.text);
}

enum ha_status ha_frame_drain(struct ha_instance *self, struct ha_why *why)
{
    settle_all(self);
    for (size_t i = 0; self->layer && i < self->ctx.shape->layers; i++) HA_TRY(settled(&self->layer[i], why));
    if (self->rule->drain && self->layer) HA_TRY(self->rule->drain(self->layer, why));
    for (size_t i = 0; i < self->streams; i++) HA_TRY(self->ctx.api->stream_sync(self->stream[i]));
    return HA_OK;
}

void ha_frame_destroy(struct ha_instance *self)
{
    if (!self) return;
    settle_all(self);
    for (size_t i = 0; i < self->streams; i++) self->ctx.api->stream_destroy(self->stream[i]);
    if (self->rule->end && self->layer) self->rule->end(self->layer);
}

/* ---- prefill, and back to it ------------------------------------------------------------------ */

enum ha_status ha_frame_prefill(struct ha_instance *self, size_t layer, const struct ha_prefill *in, struct ha_why *why)
{
    struct ha_layer *l = &self->layer[layer];
    if (self->rule->device && !ha_kv_staging(&self->ctx, why)) return HA_ERROR;
    for (size_t b = 0; b < self->ctx.shape->batch; b++) HA_TRY(self->rule->prefill(l, b, in, why));
    return self->rule->ready ? self->rule->ready(l, why) : HA_OK;
}

/* After a drain that found nothing wrong no job is left, and the status of each is HA_OK. */
enum ha_status ha_frame_rewind(struct ha_instance *self, struct ha_why *why)
{
    const struct ha_shape *s = self->ctx.shape;
    for (size_t i = 0; i < s->layers; i++) {
        struct ha_layer *l = &self->layer[i];
        memcpy(l->tokens, s->ctx, s->batch * sizeof *s->ctx);
        for (size_t b = 0; b < s->batch && self->rule->rewind; b++) HA_TRY(self->rule->rewind(l, b, why));
        if (self->rule->ready) HA_TRY(self->rule->ready(l, why));
    }
    self->settle_ns = self->selected_ns = self->steps = self->keys_cpu = self->keys_device = 0;
    return self->ctx.api->stream_sync(self->ctx.stream);
}

/* ---- one step --------------------------------------------------------------------------------- */

static enum ha_status record(struct ha_instance *self, struct ha_layer *l, struct ha_why *why)
{
    const struct ha_shape *s = self->ctx.shape;
    for (size_t i = 0; l->used && i < s->batch * s->q_heads; i++) {
        struct ha_used *u = &l->used[i];
        u->device.count = u->host.count = u->padding = 0;
        HA_TRY(self->rule->use(l, i / s->q_heads, i % s->q_heads, u, why));
    }
    return HA_OK;
}

static enum ha_status attend_state(struct ha_instance *self, struct ha_layer *l, const struct ha_step *step,
                                   size_t state)
{
    const struct ha_context *ctx = &self->ctx;
    const struct ha_rule *rule = self->rule;
    const struct ha_shape *s = ctx->shape;
    const bool sink = state == HA_FRAME_SINK;
    const struct ha_state to = has_cpu(rule) ? self->states[state] : (struct ha_state){ step->o, step->lse };
    for (size_t b = 0; b < s->batch; b++) {
        size_t rows = b * s->q_len * s->q_heads, head = ha_kv_head_bytes(s);
        struct ha_device_seq *d = &self->device[b];
        *d = (struct ha_device_seq){ .q = step->q + rows * s->head_dim,
                                     .o = to.o + rows * s->head_dim,
                                     .lse = to.lse + rows,
                                     .k_head_bytes = head,
                                     .v_head_bytes = head };
        if (sink) rule->sink(l, b, d);
        else rule->device(l, step, b, d);
        for (size_t i = 0; i < d->runs_count; i++) self->keys_device += (double)(d->runs[i].keys * s->q_heads);
        if (d->list_keys) self->keys_device = (double)NAN;
    }
    struct ha_device_attend args = { .batch = s->batch,
                                     .q_len = s->q_len,
                                     .q_heads = s->q_heads,
                                     .kv_heads = rule->own_heads ? s->q_heads : s->kv_heads,
                                     .head_dim = s->head_dim,
                                     .dtype = s->dtype,
                                     .scale = s->scale,
                                     .causal = !sink,
                                     .seqs = self->device,
                                     .block = sink ? 0 : l->block,
                                     .lists = sink ? 0 : l->lists };
    return (ctx->variant->products ? ctx->api->attend_products : ctx->api->attend)(ctx->stream, &args);
}

static enum ha_status attend_device(struct ha_instance *self, struct ha_layer *l, const struct ha_step *step,
                                    struct ha_why *why)
{
    if (self->rule->sink) HA_TRY(attend_state(self, l, step, HA_FRAME_SINK));
    if (self->rule->device) HA_TRY(attend_state(self, l, step, HA_FRAME_DEVICE));
    /* what the CPU side writes was last read by the merge before this */
    if (self->rule->asks_itself) HA_TRY(self->ctx.api->event_record(self->arrived, self->ctx.stream));
    return self->rule->ask ? self->rule->ask(l, step, why) : HA_OK;
}

/* Blocks by an index, which the device may have made. */
static enum ha_status check_unit(const struct ha_layer *l, size_t b, const struct ha_attend *a,
                                 const struct ha_rows *run, struct ha_why *why)
{
    if (!run->index || a->block < 2) return HA_OK;
    const size_t blocks = l->tokens[b] / a->block, most = l->list_max ? ha_least(l->list_max, blocks) : blocks;
    return ha_list_check(l->ctx, l->frame->rule->cpu_name, run->index, run->keys / a->block, most, blocks, why);
}

/* the units of a layer, by these queries */
static enum ha_status name_units(struct ha_instance *self, struct ha_layer *l, const float *q, struct ha_why *why)
{
    const struct ha_shape *s = self->ctx.shape;
    struct ha_cpu_attend *cpu = &self->cpu;
    cpu->units = 0;
    cpu->units_per_task = by_head(self) ? l->heads_per_task : 0;
    for (size_t b = 0; b < s->batch; b++)
        for (size_t u = 0; u < (by_head(self) ? s->q_heads : s->kv_heads); u++) {
            struct ha_rows *run = &self->run[cpu->units];
            struct ha_attend *a = &cpu->unit[cpu->units++];
            *a = unit_of(self, l->layer, q, b, u, run);
            self->rule->cpu(l, b, u, a, run);
            HA_TRY(check_unit(l, b, a, run, why));
            self->keys_cpu += (double)((ha_packed_listed(&a->packed) + run->keys) * a->group);
        }
    return HA_OK;
}

static bool is_early(const struct ha_layer *l)
{
    const struct ha_rule *rule = l->frame->rule;
    return l->layer > 0 && rule->early && rule->early(l);
}

static enum ha_status work(struct ha_instance *self, struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_state host = { o_of(self, l->layer), lse_of(self, l->layer) };
    const size_t rows = rows_of(self->ctx.shape);
    ha_order_thread_access("work", "LSE", HA_WRITE, host.lse, 1, 0, rows * sizeof *host.lse);
    for (size_t i = 0; i < rows; i++) host.lse[i] = -INFINITY;
    return self->rule->work(l, step, self->q, &host, &self->worked, why);
}

/* The layer's CPU side, to its end. */
static enum ha_status attend_cpu(struct ha_instance *self, struct ha_layer *l, const struct ha_step *step,
                                 struct ha_why *why)
{
    if (is_early(l)) {
        ha_pool_wait(self->ctx.pool);
        return HA_OK;
    }
    if (!self->rule->unlinked) HA_TRY(self->ctx.api->event_sync(self->arrived));
    if (self->rule->work) return work(self, l, step, why);
    if (self->rule->choose) HA_TRY(self->rule->choose(l, self->q, why));
    HA_TRY(name_units(self, l, self->q, why));
    ha_cpu_attend_run(&self->cpu, self->rule->cpu_name);
    return HA_OK;
}

/* That of the next layer, if it is due already. */
static enum ha_status begin_next(struct ha_instance *self, struct ha_layer *l, struct ha_why *why)
{
    struct ha_layer *next = l + 1;
    const float *q;
    if (l->layer + 1 == self->ctx.shape->layers || !is_early(next)) return HA_OK;
    HA_TRY(self->rule->foresee(next, &q, why));
    HA_TRY(name_units(self, next, q, why));
    ha_cpu_attend_start(&self->cpu, self->rule->cpu_name);
    return HA_OK;
}

static struct ha_merge_state as_merged(const struct ha_state *state, size_t dim)
{
    return (struct ha_merge_state){ .o = state->o,
                                    .lse = state->lse,
                                    .o_token_stride = dim,
                                    .o_head_stride = dim,
                                    .lse_token_stride = 1,
                                    .lse_head_stride = 1 };
}

/* The output to where the step wants it: of all states merged, or the CPU's. */
static enum ha_status deliver(struct ha_instance *self, const struct ha_step *step)
{
    float *const o_cpu = o_of(self, step->layer), *const lse_cpu = lse_of(self, step->layer);
    const struct ha_context *ctx = &self->ctx;
    const struct ha_shape *s = ctx->shape;
    size_t rows = s->batch * s->q_len * s->q_heads;
    if (!self->rule->device) {
        HA_TRY(ctx->api->copy(ctx->stream, step->o, o_cpu, rows * s->head_dim * sizeof(float), HA_H2D));
        return ctx->api->copy(ctx->stream, step->lse, lse_cpu, rows * sizeof(float), HA_H2D);
    }
    struct ha_merge_state state[HA_FRAME_STATES + 2];
    size_t states = 0;
    if (self->rule->sink) state[states++] = as_merged(&self->states[HA_FRAME_SINK], s->head_dim);
    state[states++] = as_merged(&self->states[HA_FRAME_DEVICE], s->head_dim);
    state[states++] = as_merged(&(struct ha_state){ o_cpu, lse_cpu }, s->head_dim);
    if (self->rule->work) state[states++] = as_merged(&self->worked, s->head_dim);
    return ctx->api->merge(
        ctx->stream, &(struct ha_merge){ .form = HA_FORM_NATURAL,
                                         .dtype = HA_F32,
                                         .states = state,
                                         .states_count = states,
                                         .tokens = rows,
                                         .heads = 1,
                                         .dim = s->head_dim,
                                         .out = as_merged(&(struct ha_state){ step->o, step->lse }, s->head_dim) });
}

static void settle_job(void *arg)
{
    struct ha_layer *l = arg;
    struct ha_instance *self = l->frame;
    if (l->settled) l->status = l->ctx->api->event_sync(l->settled);
    uint64_t begin = ha_now_ns();
    if (l->status == HA_OK) l->status = self->rule->settle(l, &l->why);
    self->settle_ns += (double)(ha_now_ns() - begin);
}

struct ha_state ha_frame_state(const struct ha_layer *l, size_t state) { return l->frame->states[state]; }

void ha_frame_worked(const struct ha_layer *l, size_t host_keys, size_t device_keys)
{
    l->frame->keys_cpu += (double)host_keys;
    l->frame->keys_device += (double)device_keys;
}

void ha_frame_selected(const struct ha_layer *l, uint64_t begin_ns)
{
    l->frame->selected_ns += (double)(ha_now_ns() - begin_ns);
}

static enum ha_status append(struct ha_instance *self, struct ha_layer *l, const struct ha_step *step)
{
    const struct ha_shape *s = self->ctx.shape;
    l->placed = self->place != NULL;
    if (l->placed) HA_TRY(ha_places_put(l, self->rule->place, self->place, step));
    for (size_t b = 0; b < s->batch && self->rule->append; b++) {
        const struct ha_kv fresh = ha_kv_of_step(s, step, b);
        HA_TRY(self->rule->append(l, b, &fresh));
    }
    return HA_OK;
}

enum ha_status ha_frame_attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = &self->ctx;
    const struct ha_device_api *api = ctx->api;
    const struct ha_shape *s = ctx->shape;
    const struct ha_rule *rule = self->rule;
    struct ha_layer *l = &self->layer[step->layer];
    const bool linked = has_cpu(rule) && !rule->unlinked, asks = linked && !rule->asks_itself && !is_early(l);
    HA_TRY(settled(l, why));
    l->due = false;
    if (asks)
        HA_TRY(api->copy(ctx->stream, self->q, step->q, s->batch * s->q_len * s->q_heads * s->head_dim * sizeof(float),
                         HA_D2H));
    if (rule->before) HA_TRY(rule->before(l, step, why));
    if (!rule->appends_last) HA_TRY(append(self, l, step));
    if (asks && !rule->work) HA_TRY(api->event_record(self->arrived, ctx->stream));

    if (rule->post) HA_TRY(api->stream_wait(ctx->stream, l->settled));
    HA_TRY(attend_device(self, l, step, why));
    if (rule->work) {
        HA_TRY(api->copy(ctx->stream, self->worked.lse, self->empty, rows_of(s) * sizeof(float), HA_D2D));
        if (!rule->asks_itself) HA_TRY(api->event_record(self->arrived, ctx->stream));
    }
    if (has_cpu(rule)) HA_TRY(attend_cpu(self, l, step, why));
    HA_TRY(record(self, l, why));
    if (linked) HA_TRY(deliver(self, step));
    HA_TRY(begin_next(self, l, why));

    for (size_t b = 0; b < s->batch; b++) l->tokens[b] += s->q_len;
    if (rule->appends_last) HA_TRY(append(self, l, step));
    if (rule->after) HA_TRY(rule->after(l, step, why));
    if (rule->post) {
        HA_TRY(api->event_record(l->attended, ctx->stream));
        HA_TRY(api->stream_wait(self->post, l->attended));
        HA_TRY(rule->post(l, self->post, why));
        HA_TRY(api->event_record(l->settled, self->post));
    }
    self->steps += 1;
    l->ticket = l->due ? ha_worker_submit(ctx->worker, rule->settle_name, settle_job, l) : 0;
    return HA_OK;
}

/* ---- reports ---------------------------------------------------------------------------------- */

void ha_frame_selection(struct ha_instance *self, size_t layer, size_t b, size_t q_head, struct ha_selection *out)
{
    const struct ha_layer *l = &self->layer[layer];
    if (!l->used) {
        const struct ha_part all = { .token = self->all,
                                     .count = l->tokens[b],
                                     .on_device = self->rule->device != NULL };
        *out = (struct ha_selection){ .parts = 1, .part = { all } };
        return;
    }
    const struct ha_used *u = &l->used[b * self->ctx.shape->q_heads + q_head];
    *out = (struct ha_selection){
        .parts = has_cpu(self->rule) ? 2 : 1,
        .part = { { .token = u->device.token, .count = u->device.count, .on_device = true },
                  { .token = u->host.token, .count = u->host.count, .padding = u->padding } },
    };
    if (self->rule->report) self->rule->report(l, b, q_head, out);
}

/* Columns that are sums over layers of what the rule counts. */
struct tally {
    double recalls, hits, misses, manage_ns; /* NaN: it does not */
};

static void add_counted(void *arg, const char *name, size_t layer, double value)
{
    struct tally *t = arg;
    const struct {
        const char *name;
        double *sum;
    } of[] = {
        { "recalls", &t->recalls }, { "hits", &t->hits }, { "misses", &t->misses }, { "manage_ns", &t->manage_ns }
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (!strcmp(name, of[i].name)) *of[i].sum = isnan(*of[i].sum) ? value : *of[i].sum + value;
}

void ha_frame_counters(struct ha_instance *self, struct ha_counters *out)
{
    const double unmeasured = (double)NAN, heads = (double)(self->ctx.shape->batch * self->ctx.shape->q_heads);
    struct tally counted = { unmeasured, unmeasured, unmeasured, unmeasured };
    ha_frame_count(self, add_counted, &counted); /* behind the background, which counts too */
    *out = (struct ha_counters){ unmeasured, unmeasured, unmeasured, unmeasured, unmeasured, unmeasured };
    out->recalls = counted.recalls;
    if (counted.hits + counted.misses > 0) out->hit_ratio = counted.hits / (counted.hits + counted.misses);
    /* with two sides the background selects for the next step, unless the CPU chooses in the step itself; then, or
     * with a CPU side alone, it keeps the store in order; and where the rule counts what that takes, it does nothing
     * else */
    const bool manages = !isnan(counted.manage_ns),
               selects = self->rule->device && !self->rule->choose && !self->rule->work && !manages;
    if (self->rule->device) out->select_ns = self->selected_ns + (selects ? self->settle_ns : 0);
    if (manages) out->manage_ns = counted.manage_ns;
    else if (!selects && self->rule->settle) out->manage_ns = self->settle_ns;
    if (self->rule->device && has_cpu(self->rule) && self->steps > 0) {
        out->cpu_tokens = self->keys_cpu / (self->steps * heads);
        out->cpu_ratio = self->keys_cpu / (self->keys_cpu + self->keys_device);
    }
}

void ha_frame_count(struct ha_instance *self, ha_count *say, void *arg)
{
    settle_all(self);
    for (size_t i = 0; i < self->ctx.shape->layers && self->rule->count; i++)
        self->rule->count(&self->layer[i], say, arg);
}
