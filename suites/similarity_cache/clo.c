/* CLO: the cache of a KV head is labelled with the query that filled it, and a query like that reads it as it is. The
 * device has, of each KV head, a label and the keys that were chosen by it, besides the first tokens and the last ones;
 * all KV is in host memory. While a layer attends, the next one's query is predicted and compared with the labels;
 * where it is not similar enough it becomes the label, and the keys that it chooses come over the link to where they
 * are read from (sections 3.1, 4.2). How similar it has to be depends on the importance of the head (section 3.2). KV
 * heads that are hard to serve so have all of their keys on the device, and choose by the layer's own query; so do the
 * first layer's, which nothing predicts (section 3.3).
 *
 * Nothing of it is waited for by the thread that launches: the look-up, the choice and the list of what is missing are
 * the device's, which sets a flag for the transfer engine and waits for another (section 4.4). */

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "harness/base/worker.h"
#include "suites/parts/ahead.h"
#include "suites/similarity_cache/buffers.h"
#include "suites/parts/choose.h"
#include "suites/similarity_cache/look_ups.h"
#include "suites/similarity_cache/query_labels.h"
#include "suites/similarity_cache/retrieve.h"
#include "suites/parts/reuse.h"
#include "suites/similarity_cache/transfer.h"

#include <math.h>
#include <string.h>

enum threshold { ADAPTIVE, FIXED };
HA_WORDS(threshold_word, [ADAPTIVE] = "adaptive", [FIXED] = "fixed")
enum group { HARMONIC, LEAST };
HA_WORDS(group_word, [HARMONIC] = "harmonic", [LEAST] = "min")
enum reads { TOPK, ALL };
HA_WORDS(reads_word, [TOPK] = "topk", [ALL] = "all")
HA_WORDS(predict_word, [HA_AHEAD_DEVICE] = "device", [HA_AHEAD_CPU] = "cpu", [HA_AHEAD_ORACLE] = "oracle")

/* clang-format off */
enum { SHARE, SINK, RECENT, ETA, P, THRESHOLD, GROUP, PREFETCH, RETRIEVE, BITS, HASH, TRANSFER, STORES, SYNC, EPS,
       BUDGET, PERSISTENT, HARD, PREDICT };
/* clang-format on */
static const struct ha_param params[] = {
    [SHARE] = { "budget", 0.1, 1e-6, 1, "keys of a buffer (k), as a share of the context", .draw = "0.02 0.1 0.5 1" },
    [SINK] = HA_KEPT_SINK(.fitted = true),
    [RECENT] = HA_KEPT_RECENT(.fitted = true),
    [ETA] = { "eta", 0.8, -1, 1, "similarity that serves the most important head",
              .draw = "-1 -0.5 0 0.3 0.5 0.8 0.9 1" },
    [P] = { "p", 3, 0, 16, "power of a head's importance", .draw = "0 1 2 3 0.5" },
    [THRESHOLD] = { "threshold", ADAPTIVE, .word = threshold_word,
                    .doc = "what serves a head: by its importance, which a fit has, or eta for all" },
    [GROUP] = { "group", HARMONIC, .word = group_word,
                .doc = "similarity of a KV head: mean of its query heads weighted by importance, or the least" },
    [PREFETCH] = { "prefetch", 1, 0, 1, "1: by the query predicted a layer ahead; 0: by the layer's own",
                   .whole = true },
    [RETRIEVE] = HA_RETRIEVE_WAY,
    [BITS] = HA_RETRIEVE_BITS,
    [HASH] = HA_RETRIEVE_HASH,
    [TRANSFER] = HA_TRANSFER_WAY,
    [STORES] = { "stores", 4, 1, 8, "of transfer=stores: threads", .whole = true },
    [SYNC] = HA_TRANSFER_SYNC,
    [EPS] = { "eps", 0.1, 0, 2, "by how much a head may miss on average and is not hard", .draw = "0 0.05 0.1 0.5" },
    [BUDGET] = { "device_budget_MB", 0, 0, 1e9, "of the heads whose keys are all on the device, 10^6 bytes; 0: any",
                 .draw = "0 0 0..1" },
    [PERSISTENT] = { "persistent", TOPK, .word = reads_word, .doc = "what these read: the keys they choose, or all" },
    [HARD] = { "hard", 1, 0, 1, "0: no head of a later layer is one of them", .whole = true },
    [PREDICT] = { "predict", HA_AHEAD_DEVICE, .word = predict_word,
                  .doc = "where the next layer's query is computed; oracle: what it will be" },
};

/* For all layers. Each sequence of one has the index of its keys, a struct ha_retrieve_index. */
struct chooser {
    struct ha_retrieve retrieve;
    struct ha_query_labels labels;
    struct ha_transfer transfer;
    struct ha_ahead ahead;
    struct ha_reuse reuse;
    struct ha_buffers buffers;
    struct ha_look_ups look_ups;
    struct prefilled {
        double encode_ns, offload_ns;
        uint32_t asked; /* requests before the first step */
    } * prefilled;      /* [layers] */
    size_t list_max;    /* units of a list */
    float *q;           /* device: of predict=cpu */
};

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static struct ha_retrieve_index *index_of(const struct ha_layer *l, size_t b)
{
    return (struct ha_retrieve_index *)l->own + b;
}
static struct ha_buffers_layer *buffers_of(const struct ha_layer *l)
{
    return &((struct chooser *)l->shared)->buffers.layer[l->layer];
}
static struct ha_transfer_layer *moved_of(const struct ha_layer *l)
{
    return &((struct chooser *)l->shared)->transfer.layer[l->layer];
}
static bool any_offloaded(const struct ha_layer *l) { return ha_buffers_any(buffers_of(l)); }
static bool has_next(const struct ha_layer *l) { return l->layer + 1 < l->ctx->shape->layers; }
static size_t whole(size_t tokens, size_t unit) { return (tokens + unit - 1) / unit; }

/* ---- create ------------------------------------------------------------------------------------------------------ */

/* units of a buffer: no more than it can ever choose among */
static size_t buffer_units(const struct ha_context *ctx, const struct ha_retrieve *r, size_t b)
{
    const struct ha_shape *s = ctx->shape;
    return ha_least(whole(ha_share_of(ctx->param[SHARE], s->ctx[b]), r->unit),
                    ha_retrieve_units(r, ha_kv_max_tokens(s, b)));
}

static enum ha_status make_reuse(const struct ha_context *ctx, struct chooser *c, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    struct ha_reuse_rule rule = { .eta = ctx->param[ETA],
                                  .p = ctx->param[P],
                                  .eps = ctx->param[EPS],
                                  .adaptive = (int)ctx->param[THRESHOLD] == ADAPTIVE,
                                  .hard = (bool)ctx->param[HARD],
                                  .budget_bytes = ctx->param[BUDGET] * 1e6,
                                  .group = (int)ctx->param[GROUP] == LEAST ? HA_SIMILAR_LEAST : HA_SIMILAR_HARMONIC };
    for (size_t b = 0; b < s->batch; b++) {
        const double key = 2 * (double)ha_kv_head_bytes(s);
        rule.buffer_bytes += key * (double)(buffer_units(ctx, &c->retrieve, b) * c->retrieve.unit);
        rule.whole_bytes += key * (double)ha_kv_max_tokens(s, b);
    }
    HA_TRY(ha_reuse_create(&c->reuse, ctx, &rule, why));
    return ha_query_labels_create(&c->labels, ctx, &c->reuse, rule.group, why);
}

/* What the engine has read of a request. */
static void answered(void *arg, size_t layer, uint32_t request)
{
    const struct ha_layer *l = (struct ha_layer *)arg + layer;
    const struct ha_shape *s = l->ctx->shape;
    const struct chooser *c = l->shared;
    const struct ha_transfer_layer *moved = moved_of(l);
    const size_t new = (request - c->prefilled[layer].asked - 1) * s->q_len;
    for (size_t i = 0; i < s->batch * s->kv_heads; i++)
        if (!buffers_of(l)->whole[i % s->kv_heads])
            ha_look_ups_add(&c->look_ups, layer, i, s->ctx[i / s->kv_heads] + new, moved->missed[i],
                            c->labels.layer[layer].similarity[i], moved->index + i * c->list_max,
                            moved->count[i] / c->retrieve.unit);
}

/* What of the keys is kept where; list_max is set. */
static enum ha_status make_room(const struct ha_layer *first, struct chooser *c, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    const size_t q = s->batch * s->q_len * s->q_heads * s->head_dim;
    const enum ha_fetch_way way = ha_transfer_way(option(first, TRANSFER));
    const struct ha_buffers_rule room = {
        .unit = c->retrieve.unit,
        .list_max = c->list_max,
        .sink = option(first, SINK),
        .recent = option(first, RECENT),
        .memory = option(first, RETRIEVE) == HA_RETRIEVE_HATA ? ha_fetch_memory(way) : HA_MEM_MAPPED,
    };
    c->prefilled = ha_alloc(ctx->arena, s->layers * sizeof *c->prefilled, HA_TAG_META, why);
    c->q = c->prefilled ? ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, q * sizeof *c->q, HA_TAG_SCRATCH, why)
                        : NULL;
    if (!c->q) return HA_ERROR;
    memset(c->prefilled, 0, s->layers * sizeof *c->prefilled);
    return ha_buffers_create(&c->buffers, ctx, &room, c->reuse.persistent, why);
}

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    const bool ahead = option(first, PREFETCH);
    struct chooser *c = first->shared;
    HA_TRY(ha_retrieve_create(&c->retrieve, ctx,
                              &(struct ha_retrieve_rule){ .by = (enum ha_retrieve_by)option(first, RETRIEVE),
                                                          .hash = (enum ha_retrieve_hash)option(first, HASH),
                                                          .bits = option(first, BITS),
                                                          .sink = option(first, SINK),
                                                          .recent = option(first, RECENT) },
                              why));
    HA_TRY(make_reuse(ctx, c, why));
    size_t units = 1; /* that an index may name */
    c->list_max = 1;
    for (size_t b = 0; b < s->batch; b++) {
        const size_t most = ha_kv_max_tokens(s, b);
        c->list_max = ha_most(c->list_max, option(first, PERSISTENT) == ALL ? ha_retrieve_units(&c->retrieve, most)
                                                                            : buffer_units(ctx, &c->retrieve, b));
        units = ha_most(units, whole(most, c->retrieve.unit));
    }
    HA_TRY(ha_transfer_create(&c->transfer, first, ha_transfer_way(option(first, TRANSFER)),
                              (enum ha_transfer_sync)option(first, SYNC), option(first, STORES), c->retrieve.unit,
                              c->list_max, why));
    c->transfer.answered = answered;
    c->transfer.arg = first;
    if (ahead && s->layers > 1)
        HA_TRY(ha_ahead_create(&c->ahead, first, (enum ha_ahead_side)option(first, PREDICT), false, why));
    HA_TRY(ha_look_ups_create(&c->look_ups, ctx, option(first, SINK), option(first, RECENT), c->list_max, units, !ahead,
                              why));
    return make_room(first, c, why);
}

static enum ha_status drain(struct ha_layer *first, struct ha_why *why)
{
    return ha_transfer_drain(&((struct chooser *)first->shared)->transfer, why);
}

static void end(struct ha_layer *first) { ha_transfer_end(&((struct chooser *)first->shared)->transfer); }

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct ha_buffers_layer *on = buffers_of(l);
    struct chooser *c = l->shared;
    l->lists = s->kv_heads;
    l->block = c->retrieve.unit;
    HA_TRY(ha_buffers_open(on, b, buffer_units(l->ctx, &c->retrieve, b), why));
    HA_TRY(ha_retrieve_open(&c->retrieve, b, index_of(l, b), why));
    index_of(l, b)->rows = ha_buffers_keys(on, b, &index_of(l, b)->k_head_bytes);
    const struct ha_vectors *pool = &on->seq[b].pool;
    for (size_t h = 0; h < s->kv_heads; h++)
        moved_of(l)->place[b * s->kv_heads + h] = (struct ha_transfer_place){
            .from = on->whole[h] ? NULL : &on->seq[b].rest, .to = &pool->kv, .at = pool->first[h]
        };
    return any_offloaded(l) ? ha_transfer_reach(&c->transfer, l->layer, &pool->kv, why) : HA_OK;
}

/* ---- prefill, and back to it ------------------------------------------------------------------------------------- */

/* A prefill leaves K and V on the device: they are encoded there, and go to host memory beside that (section 4.2). */
static enum ha_status clo_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const size_t tokens = ctx->shape->ctx[b];
    struct chooser *c = l->shared;
    struct prefilled *of = &c->prefilled[l->layer];
    const struct ha_buffers_layer *on = buffers_of(l);
    const bool hata = option(l, RETRIEVE) == HA_RETRIEVE_HATA;
    for (size_t first = 0, n; first < tokens; first += n) {
        n = ha_least(c->buffers.stage.cap, tokens - first);
        HA_TRY(ha_kv_load(ctx, &c->buffers.stage, 0, in, b, first, n));
        HA_TRY(ha_buffers_put(on, b, &c->buffers.stage, 0, first, n, tokens));
        HA_TRY(ctx->api->stream_sync(ctx->stream));
        const uint64_t begin = ha_now_ns();
        if (any_offloaded(l))
            HA_TRY(ha_kv_copy(ctx, c->transfer.stream, &on->seq[b].store, first, &c->buffers.stage, 0, n));
        ha_retrieve_add(&c->retrieve, b, index_of(l, b), c->buffers.stage.k, first, n);
        if (hata) HA_TRY(ha_retrieve_encode(&c->retrieve, l->layer, ctx->stream, b, 1));
        HA_TRY(ctx->api->stream_sync(ctx->stream));
        of->encode_ns += (double)(ha_now_ns() - begin);
        HA_TRY(ctx->api->stream_sync(c->transfer.stream));
        of->offload_ns += (double)(ha_now_ns() - begin);
        /* digests are made of what has arrived there */
        if (!hata) HA_TRY(ha_retrieve_encode(&c->retrieve, l->layer, ctx->stream, b, 1));
    }
    return ctx->api->stream_sync(ctx->stream);
}

/* Before the first step nothing has a label. */
static enum ha_status ready(struct ha_layer *l, struct ha_why *why)
{
    const struct chooser *c = l->shared;
    struct ha_transfer_layer *moved = moved_of(l);
    ha_look_ups_clear(&c->look_ups, l->layer);
    c->prefilled[l->layer].asked = moved->asked;
    moved->moved = moved->bytes = 0;
    return ha_query_labels_clear(&c->labels, l->layer);
}

static enum ha_status rewind(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct chooser *c = l->shared;
    const size_t tokens = l->ctx->shape->ctx[b];
    ha_retrieve_rewind(&c->retrieve, index_of(l, b), tokens);
    return ha_buffers_rewind(buffers_of(l), b, tokens);
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

/* The keys of largest score by queries, of each KV head that is offloaded and has missed, or has all keys here. */
static enum ha_status choose(const struct ha_layer *l, const float *q, bool here)
{
    const struct ha_shape *s = l->ctx->shape;
    struct chooser *c = l->shared;
    const struct ha_buffers_layer *on = buffers_of(l);
    const struct ha_transfer_layer *to = moved_of(l);
    HA_TRY(ha_retrieve_score(&c->retrieve, l->layer, q, index_of(l, 0), sizeof(struct ha_retrieve_index), l->tokens,
                             here ? on->here : to->missed));
    for (size_t i = 0; i < s->batch * s->kv_heads; i++) {
        const size_t b = i / s->kv_heads, h = i % s->kv_heads, at = i * c->list_max, units = on->seq[b].units;
        if (on->whole[h] != here) continue;
        if (here)
            ha_retrieve_ask(&c->retrieve, b, h, l->tokens[b], option(l, PERSISTENT) == ALL ? c->list_max : units,
                            ha_vectors_entry(&on->seq[b].pool, h), on->list + at, to->count + i, NULL);
        else ha_retrieve_ask(&c->retrieve, b, h, l->tokens[b], units, 0, to->index + at, to->count + i, to->missed + i);
    }
    return ha_retrieve_run(&c->retrieve);
}

/* Look-up of a layer's labels by queries, which become the labels of heads that miss; what these choose is sent for. */
static enum ha_status look_up(const struct ha_layer *l, const float *q, struct ha_why *why)
{
    struct chooser *c = l->shared;
    HA_TRY(ha_query_labels_look_up(&c->labels, l->layer, q, moved_of(l)->missed));
    HA_TRY(choose(l, q, false));
    return ha_transfer_ask(&c->transfer, l, why);
}

/* Of the next layer, by the query that it will have. */
static enum ha_status look_ahead(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    struct chooser *c = l->shared;
    HA_TRY(ha_ahead_begin(&c->ahead, step, l->tokens));
    if (c->ahead.side != HA_AHEAD_CPU) return look_up(l + 1, c->ahead.q_device, why);
    HA_TRY(ha_ahead_end(&c->ahead));
    const size_t rows = ctx->shape->batch * ctx->shape->q_len * ctx->shape->q_heads;
    HA_TRY(ctx->api->copy(ctx->stream, c->q, c->ahead.q, rows * ctx->shape->head_dim * sizeof *c->q, HA_H2D));
    return look_up(l + 1, c->q, why);
}

/* The next layer's keys are sent for first, so that they come beside all that follows. Heads whose keys are all here
 * choose by the layer's own queries. */
static enum ha_status before(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    struct chooser *c = l->shared;
    const bool ahead = option(l, PREFETCH);
    if (ahead && has_next(l) && any_offloaded(l + 1)) HA_TRY(look_ahead(l, step, why));
    if (!ahead && any_offloaded(l)) HA_TRY(look_up(l, step->q, why));
    if (buffers_of(l)->count) HA_TRY(choose(l, step->q, true));
    return any_offloaded(l) ? ha_transfer_wait(&c->transfer, l, why) : HA_OK;
}

/* Buffers and whole heads in place (section 5), the kept tokens, and the step's own. */
static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    ha_buffers_device(buffers_of(l), l, step, b, moved_of(l)->count, d);
}

/* The new tokens to where they are kept, to host memory and into the index. */
static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_buffers_layer *on = buffers_of(l);
    struct chooser *c = l->shared;
    for (size_t b = 0; b < ctx->shape->batch; b++) {
        const struct ha_kv fresh = ha_kv_of_step(ctx->shape, step, b);
        const size_t first = l->tokens[b] - step->q_len;
        HA_TRY(ha_buffers_put(on, b, &fresh, 0, first, step->q_len, l->tokens[b]));
        if (any_offloaded(l)) HA_TRY(ha_kv_copy(ctx, ctx->stream, &on->seq[b].store, first, &fresh, 0, step->q_len));
        ha_retrieve_add(&c->retrieve, b, index_of(l, b), fresh.k, first, step->q_len);
    }
    return ha_retrieve_encode(&c->retrieve, l->layer, ctx->stream, 0, ctx->shape->batch);
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct ha_transfer_layer *held = moved_of(l);
    const size_t head = q_head / ha_shape_group(s);
    if (b == 0 && q_head == 0) HA_TRY(ha_buffers_learn(buffers_of(l), held->index, held->count, l->tokens, why));
    return ha_buffers_use(buffers_of(l), b, head, held->count[b * s->kv_heads + head], l->tokens[b], &used->device,
                          why);
}

static void report(const struct ha_layer *l, size_t b, size_t q_head, struct ha_selection *out)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct chooser *c = l->shared;
    const size_t head = q_head / ha_shape_group(s), list = b * s->kv_heads + head;
    const float similarity = c->labels.layer[l->layer].similarity[list];
    const bool here = buffers_of(l)->whole[head];
    out->note[out->notes++] = (struct ha_note){ "persistent", here };
    if (here) return;
    out->note[out->notes++] = (struct ha_note){ "hit", !moved_of(l)->missed[list] };
    out->note[out->notes++] = (struct ha_note){ "similarity", isfinite(similarity) ? (double)similarity : -2 };
}

static void clo_count(const struct ha_layer *l, ha_count *say, void *arg)
{
    const struct chooser *c = l->shared;
    const struct prefilled *of = &c->prefilled[l->layer];
    const struct ha_look_ups_layer *found = &c->look_ups.layer[l->layer];
    const struct ha_transfer_layer *moved = moved_of(l);
    ha_worker_wait(l->ctx->worker, moved->ticket); /* of a step that is over */
    const struct {
        const char *name;
        double value;
    } counters[] = { { "persistent", (double)buffers_of(l)->count },
                     { "encode_ns", of->encode_ns },
                     { "offload_ns", of->offload_ns },
                     { "hits", found->hits },
                     { "misses", moved->moved },
                     { "left_out", found->left_out },
                     { "moved_bytes", moved->bytes } };
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        say(arg, counters[i].name, l->layer, counters[i].value);
    ha_look_ups_count(&c->look_ups, l->layer, say, arg);
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct ha_retrieve_index),
    .shared_bytes = sizeof(struct chooser),
    .share = share,
    .drain = drain,
    .end = end,
    .open = open,
    .prefill = clo_prefill,
    .ready = ready,
    .before = before,
    .device = device,
    .use = use,
    .report = report,
    .after = after,
    .count = clo_count,
    .rewind = rewind,
};

static enum ha_status fit(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why)
{
    return ha_reuse_fit(in, out, (size_t)in->param[SINK], (size_t)in->param[RECENT], why);
}

/* Whatever is labelled serves, so that steps but the first move nothing. */
static void pace_param(double *param)
{
    param[ETA] = -1;
    param[THRESHOLD] = FIXED;
    param[HASH] = HA_HASH_RANDOM;
}

extern const struct ha_variant ha_variant_clo;
const struct ha_variant ha_variant_clo = {
    .name = "clo",
    .family = "similarity_cache",
    .doc =
        "all KV in host memory; what a query has chosen serves those like it, and what is missing comes a layer ahead",
    .source = "CLO (Yi et al. 2025), sections 3 and 4",
    .contract = HA_BOUNDED,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_COPY_2D | HA_NEEDS_TOPK | HA_NEEDS_LABELS,
    .counters = ha_frame_counters,
    .rewind = ha_frame_rewind,
    .fit = fit,
    .pace_param = pace_param,
    HA_FRAME(rule),
};
