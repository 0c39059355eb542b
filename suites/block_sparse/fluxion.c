/* Fluxion: block-sparse attention over KV in host memory, with a block size and budgets of its own for each head, by
 * both sides. The first tokens (sink), the last ones of the context (recent) and all later ones are on the device; the
 * rest, whole blocks of every size, is in host memory.
 *
 * A step of a layer: the device attends over the sink and over the local tokens; from these states, the query and what
 * was learnt of the context a net says of each query head whether it streams, which is that the device's tokens are
 * enough, and what it has to read otherwise (section 5.2). For each KV head with a query head that does not stream the
 * CPU selects the block size by which they read least (section 5.3). Such KV heads are tasks: the CPU's workers and the
 * thread that launches work on the device take one after the other, the largest first (section 6.2). A task chooses
 * blocks by their digests and attends over them. The states of both are merged with the device's own. */

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"
#include "suites/parts/choose.h"
#include "suites/block_sparse/label_fit.h"
#include "suites/parts/places.h"
#include "suites/block_sparse/properties.h"
#include "suites/block_sparse/schedule.h"
#include "suites/block_sparse/segments.h"

#include <math.h>

enum { SINK, RECENT, DIGEST, PREDICT, BUDGET, CRITERION, TAU, GRANULARITY, SKIP, UNION, SCHEDULE, FETCH };
static const struct ha_param params[] = {
    [SINK] = { "sink", 64, 0, 1 << 24, "first tokens that stay on the device", .whole = true, .draw = "0..128",
               .fitted = true },
    [RECENT] = { "recent", 256, 0, 1 << 24, "last tokens of the context that stay on the device", .whole = true,
                 .draw = "0..300", .fitted = true },
    [DIGEST] = HA_DIGEST_KIND,
    [PREDICT] = HA_PROPERTY_BY,
    [BUDGET] = { "budget", 0.05, 1e-6, 1, "of predict=fixed: share of the keys in host memory that each head reads",
                 .draw = "0.02 0.05 0.3 1" },
    [CRITERION] = HA_CRITERION_RULE,
    [TAU] = HA_CRITERION_TAU,
    [GRANULARITY] = HA_GRANULARITY,
    [SKIP] = { "skip_streaming", 1, 0, 1, "1: heads that stream read nothing in host memory", .whole = true },
    [UNION] = { "union", 0, 0, 1, "1: a KV head's query heads read what any of them has chosen", .whole = true },
    [SCHEDULE] = HA_SCHEDULE_BY,
    [FETCH] = HA_SCHEDULE_FETCH,
};

/* What a query head was told in the last step. */
struct told {
    struct ha_property property;
    size_t block, blocks; /* 0: its KV head has no task; 0: it reads none */
    bool on_device;       /* the device did */
};

struct sequence {
    struct ha_segments segments;
    struct ha_features_kept kept;
    struct told *told; /* [q_heads] */
};

/* Sums over the steps of a layer, for what is counted. */
struct sums {
    double heads, streaming, groups, scheduled, block, readers, budget, lines, r2;
};

/* For all layers, which follow each other. */
struct chooser {
    struct ha_selector selector;
    struct ha_properties properties;
    struct ha_property_seq *seq; /* [batch] */
    struct ha_schedule schedule;
    struct sums *sums; /* [layers] */
};

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static struct sequence *sequence(const struct ha_layer *l, size_t b) { return (struct sequence *)l->own + b; }
static bool has_net(const struct ha_layer *l) { return option(l, PREDICT) == HA_PROPERTY_NET; }

/* ---- before the first step --------------------------------------------------------------------------------------- */

static bool varies(const double *param) { return (int)param[SCHEDULE] == HA_SCHEDULE_PRIORITY; }

static struct ha_labels labels_of(const double *param)
{
    return (struct ha_labels){ .digest = (enum ha_digest_kind)param[DIGEST],
                               .criterion = (enum ha_criterion)param[CRITERION],
                               .tau = param[TAU] };
}

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = first->shared;
    const struct ha_property fixed = { .bgt0 = (float)ctx->param[BUDGET] };
    const struct ha_labels labels = labels_of(ctx->param);
    size_t most = 0;
    for (size_t b = 0; b < s->batch; b++)
        most = ha_most(most, ha_label_host(s->ctx[b], option(first, SINK), option(first, RECENT)));
    c->selector = (struct ha_selector){ (enum ha_granularity)option(first, GRANULARITY), option(first, SKIP) };
    c->seq = ha_alloc(ctx->arena, s->batch * sizeof *c->seq, HA_TAG_SCRATCH, why);
    c->sums = c->seq ? ha_alloc(ctx->arena, s->layers * sizeof *c->sums, HA_TAG_SCRATCH, why) : NULL;
    if (!c->sums) return HA_ERROR;
    HA_TRY(ha_properties_create(&c->properties, first, (enum ha_property_by)option(first, PREDICT), &fixed, &labels,
                                most, why));
    return ha_schedule_create(&c->schedule, first, (enum ha_schedule_by)option(first, SCHEDULE),
                              (enum ha_schedule_fetch)option(first, FETCH), option(first, UNION), most,
                              HA_GRANULARITY_LEAST, why);
}

static void end(struct ha_layer *first) { ha_properties_end(&((struct chooser *)first->shared)->properties); }

static size_t rows(const struct ha_layer *l, size_t b, size_t piece)
{
    return ha_segments_rows(l->ctx->shape, b, option(l, SINK), option(l, RECENT));
}

static const unsigned char *place(const struct ha_layer *l, size_t b, size_t position)
{
    const struct ha_segments *segments = &sequence(l, b)->segments;
    return segments->device.k + (position - segments->host) * ha_kv_token_bytes(l->ctx->shape);
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    struct sequence *seq = sequence(l, b);
    const enum ha_memory memory = ha_schedule_memory((enum ha_schedule_by)option(l, SCHEDULE),
                                                     (enum ha_schedule_fetch)option(l, FETCH));
    seq->told = ha_alloc(ctx->arena, ctx->shape->q_heads * sizeof *seq->told, HA_TAG_SCRATCH, why);
    if (!seq->told) return HA_ERROR;
    HA_TRY(ha_places_open(l, b, 1, rows, &seq->segments.device, why));
    HA_TRY(ha_segments_open(ctx, b, option(l, SINK), option(l, RECENT), memory, &seq->segments, why));
    return has_net(l) ? ha_features_open(ctx, &seq->kept, why) : HA_OK;
}

static enum ha_status fluxion_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    struct sequence *seq = sequence(l, b);
    struct ha_features *features = &((struct chooser *)l->shared)->properties.features;
    HA_TRY(ha_segments_prefill(l->ctx, b, in, (enum ha_digest_kind)option(l, DIGEST), &seq->segments, why));
    if (!has_net(l)) return HA_OK;
    return ha_features_prefill(features, l->ctx, l->layer, b, in, seq->segments.sinks, seq->segments.host, &seq->kept,
                               why);
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    return l->placed ? HA_OK : ha_segments_append(l->ctx, &sequence(l, b)->segments, l->tokens[b], fresh);
}

static void sink(struct ha_layer *l, size_t b, struct ha_device_seq *d)
{
    d->runs[d->runs_count++] = ha_segments_sink(l->ctx->shape, &sequence(l, b)->segments);
}

/* dense attention over the local tokens, the step's own among them */
static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    d->runs[d->runs_count++] = ha_segments_local(l->ctx->shape, &sequence(l, b)->segments, l->tokens[b] + step->q_len);
}

/* Asks what the query heads are like. */
static enum ha_status ask(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    struct chooser *c = l->shared;
    for (size_t b = 0; b < l->ctx->shape->batch; b++) {
        const struct sequence *seq = sequence(l, b);
        c->seq[b] = (struct ha_property_seq){ .segments = &seq->segments,
                                              .device_keys = l->tokens[b] + step->q_len - seq->segments.host,
                                              .kept = &seq->kept };
    }
    return ha_properties_ask(&c->properties, l, step, c->seq);
}

/* A KV head: the block size, what each of its query heads reads, and a task, unless none of them does. */
static void select_group(const struct ha_layer *l, size_t b, size_t head)
{
    const struct ha_shape *s = l->ctx->shape;
    struct chooser *c = l->shared;
    struct sums *sums = &c->sums[l->layer];
    const struct sequence *seq = sequence(l, b);
    const struct ha_segments *segments = &seq->segments;
    const size_t group = ha_shape_group(s), first = head * group;
    const struct ha_property *property = c->properties.of + b * s->q_heads + first;
    const struct ha_label *label = c->properties.label ? c->properties.label + b * s->q_heads + first : NULL;
    double volume;
    const size_t block = ha_selector_block(&c->selector, property, group, segments->host, &volume);
    for (size_t g = 0; g < group; g++) {
        const bool reads = block && ha_selector_reads(&c->selector, &property[g]);
        const size_t all = block ? segments->host / block : 0,
                     blocks = reads ? ha_share_of(ha_selector_budget(&property[g], block), all) : 0;
        seq->told[first + g] = (struct told){ .property = property[g], .block = block, .blocks = blocks };
        c->schedule.want[b * s->q_heads + first + g] = blocks;
        sums->streaming += property[g].s > 0;
        sums->readers += reads;
        sums->budget += reads ? (double)blocks / (double)all : 0;
        sums->lines += label && !isnan(label[g].r2);
        sums->r2 += label && !isnan(label[g].r2) ? (double)label[g].r2 : 0;
    }
    sums->heads += (double)group;
    sums->groups++;
    if (!block) return;
    sums->scheduled++;
    sums->block += (double)block;
    size_t i = 0;
    while (ha_granularity_block(i) != block) i++;
    ha_schedule_add(&c->schedule,
                    &(struct ha_schedule_task){ b, head, &segments->store, &segments->digests[i], volume });
}

static enum ha_status work(struct ha_layer *l, const struct ha_step *step, const float *q, const struct ha_state *host,
                           const struct ha_state *device_side, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    struct chooser *c = l->shared;
    const uint64_t begin = ha_now_ns();
    ha_properties_ready(&c->properties, q, c->seq);
    ha_schedule_begin(&c->schedule);
    for (size_t i = 0; i < s->batch * s->kv_heads; i++) select_group(l, i / s->kv_heads, i % s->kv_heads);
    ha_frame_selected(l, begin);
    return ha_schedule_run(&c->schedule, l, step, q, host, device_side, why);
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct sequence *seq = sequence(l, b);
    const struct chooser *c = l->shared;
    const size_t block = seq->told[q_head].block;
    size_t count;
    const uint32_t *index = ha_schedule_list(&c->schedule, b, q_head, block, &count);
    seq->told[q_head].on_device = ha_schedule_on_device(&c->schedule, b, q_head / ha_shape_group(l->ctx->shape));
    HA_TRY(ha_segments_use(l->ctx, &seq->segments, l->tokens[b] + l->ctx->shape->q_len, &used->device, why));
    return ha_positions_add_blocks(l->ctx, &used->host, seq->segments.sinks, block, index, count, why);
}

/* The sink and the local tokens are states of their own; a task's may be either side's. */
static void report(const struct ha_layer *l, size_t b, size_t q_head, struct ha_selection *out)
{
    const struct sequence *seq = sequence(l, b);
    const struct told *told = &seq->told[q_head];
    const size_t sinks = seq->segments.sinks;
    const struct ha_part device_part = out->part[0];
    out->parts = 3;
    out->part[2] = out->part[1];
    out->part[2].on_device = told->on_device;
    out->part[2].either_side = true;
    out->part[0].count = sinks;
    out->part[1] = device_part;
    out->part[1].token += sinks;
    out->part[1].count -= sinks;
    const struct ha_note notes[] = { { "bgt0", (double)told->property.bgt0 }, { "k", (double)told->property.k },
                                     { "s", (double)told->property.s },       { "streaming", told->property.s > 0 },
                                     { "block", (double)told->block },        { "blocks", (double)told->blocks } };
    out->notes = sizeof notes / sizeof *notes;
    for (size_t i = 0; i < out->notes; i++) out->note[i] = notes[i];
    if (!has_net(l)) return;
    out->learnt = seq->kept.learnt + q_head * HA_FEATURES;
    out->learnt_count = HA_FEATURES;
}

static void say_quotient(const struct ha_layer *l, ha_count *say, void *arg, const char *name, double sum, double of)
{
    if (of > 0) say(arg, name, l->layer, sum / of);
}

static void fluxion_count(const struct ha_layer *l, ha_count *say, void *arg)
{
    const struct sums *sums = &((const struct chooser *)l->shared)->sums[l->layer];
    say_quotient(l, say, arg, "streaming_heads", sums->streaming, sums->heads);
    say_quotient(l, say, arg, "groups_scheduled", sums->scheduled, sums->groups);
    say_quotient(l, say, arg, "block_mean", sums->block, sums->scheduled);
    say_quotient(l, say, arg, "budget_mean", sums->budget, sums->readers);
    say_quotient(l, say, arg, "line_r2", sums->r2, sums->lines);
}

/* After the prefill, or back to it. */
static enum ha_status ready(struct ha_layer *l, struct ha_why *why)
{
    ((struct chooser *)l->shared)->sums[l->layer] = (struct sums){ 0 };
    return HA_OK;
}

/* ---- offline: labels and features to train a net by -------------------------------------------------------------- */

static enum ha_status fit(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why)
{
    const struct ha_labels labels = labels_of(in->param);
    const struct ha_label_fit of = { .sink = (size_t)in->param[SINK],
                                     .recent = (size_t)in->param[RECENT],
                                     .digest = labels.digest,
                                     .criterion = labels.criterion,
                                     .tau = labels.tau };
    return ha_label_fit(in, &of, out, why);
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .shared_bytes = sizeof(struct chooser),
    .share = share,
    .end = end,
    .open = open,
    .prefill = fluxion_prefill,
    .ready = ready,
    .append = append,
    .place = place,
    .use = use,
    .report = report,
    .device = device,
    .sink = sink,
    .ask = ask,
    .work = work,
    .count = fluxion_count,
};

extern const struct ha_variant ha_variant_fluxion;
const struct ha_variant ha_variant_fluxion = {
    .name = "fluxion",
    .family = "block_sparse",
    .doc = "block size and budget of each head predicted by a net; its blocks attended over by whichever side is free",
    .source = "Fluxion, sections 5 and 6",
    .contract = HA_BOUNDED,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .varies = varies,
    .keeps_keys = true,
    .own_states = true,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_MERGE | HA_NEEDS_COPY_2D,
    .counters = ha_frame_counters,
    .rewind = ha_frame_rewind,
    .fit = fit,
    HA_FRAME(rule),
};
