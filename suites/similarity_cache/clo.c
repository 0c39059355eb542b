/* CLO: the cache of a KV head is labelled with the query that filled it, and a query like that reads it as it is. The
 * device has, of each KV head, a label and the keys that were chosen by it, besides the first tokens and the last ones;
 * all KV is in host memory. While a layer attends, the next one's query is predicted and compared with the labels; where
 * it is not similar enough it becomes the label, and the keys that it chooses come over the link to where they are read
 * from (sections 3.1, 4.2). How similar it has to be depends on the importance of the head (section 3.2). KV heads that
 * are hard to serve so have all of their keys on the device, and choose by the layer's own query; so do the first
 * layer's, which nothing predicts (section 3.3).
 *
 * Nothing of it is waited for by the thread that launches: the look-up, the choice and the list of what is missing are
 * the device's, which sets a flag for the transfer engine and waits for another (section 4.4). */

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "harness/base/worker.h"
#include "suites/parts/ahead.h"
#include "suites/parts/listed.h"
#include "suites/parts/retrieve.h"
#include "suites/parts/reuse.h"
#include "suites/parts/transfer.h"

#include <math.h>
#include <string.h>

enum threshold { ADAPTIVE, FIXED };
HA_WORDS(threshold_word, [ADAPTIVE] = "adaptive", [FIXED] = "fixed")
enum group { HARMONIC, LEAST };
HA_WORDS(group_word, [HARMONIC] = "harmonic", [LEAST] = "min")
enum reads { TOPK, ALL };
HA_WORDS(reads_word, [TOPK] = "topk", [ALL] = "all")
HA_WORDS(predict_word, [HA_AHEAD_DEVICE] = "device", [HA_AHEAD_CPU] = "cpu", [HA_AHEAD_ORACLE] = "oracle")

enum {
    SHARE,
    SINK,
    RECENT,
    ETA,
    P,
    THRESHOLD,
    GROUP,
    PREFETCH,
    RETRIEVE,
    BITS,
    HASH,
    TRANSFER,
    STORES,
    SYNC,
    EPS,
    BUDGET,
    PERSISTENT,
    HARD,
    PREDICT
};
static const struct ha_param params[] = {
    [SHARE] = { "k", 0.1, 1e-6, 1, "keys of a buffer, as a share of the context", .draw = "0.02 0.1 0.5 1" },
    [SINK] = { "sink", 4, 0, 1 << 24, "first tokens that stay on the device", .whole = true, .draw = "0..70",
               .fitted = true },
    [RECENT] = { "recent", 64, 0, 1 << 24, "last tokens that stay there", .whole = true, .draw = "0..70",
                 .fitted = true },
    [ETA] = { "eta", 0.8, -1, 1, "similarity that serves the most important head", .draw = "-1..1" },
    [P] = { "p", 3, 0, 16, "power of a head's importance", .draw = "0..4" },
    [THRESHOLD] = { "threshold", ADAPTIVE, .word = threshold_word,
                    .doc = "what serves a head: by its importance, which a fit has, or eta for all" },
    [GROUP] = { "group", HARMONIC, .word = group_word, .fitted = true,
                .doc = "similarity of a KV head: mean of its query heads weighted by importance, or the least" },
    [PREFETCH] = { "prefetch", 1, 0, 1, "1: by the query predicted a layer ahead; 0: by the layer's own",
                   .whole = true },
    [RETRIEVE] = { "retrieve", HA_RETRIEVE_HATA, .word = ha_retrieve_word,
                   .doc = "keys are chosen by codes, by digests of blocks of 16 or by all of them" },
    [BITS] = { "bits", 256, 32, HA_CODE_BITS_MAX, "of a code", .whole = true, .power_of_2 = true },
    [HASH] = { "hash", HA_HASH_RANDOM, .word = ha_retrieve_hash_word,
               .doc = "what codes are made with: normal numbers, or what a fit has" },
    [TRANSFER] = HA_TRANSFER_WAY,
    [STORES] = { "stores", 4, 1, 8, "of transfer=stores: threads", .whole = true },
    [SYNC] = HA_TRANSFER_SYNC,
    [EPS] = { "eps", 0.1, 0, 2, "by how much a head may miss on average and is not hard", .draw = "0..0.5" },
    [BUDGET] = { "device_budget_MB", 0, 0, 1e9, "of the heads whose keys are all on the device, 10^6 bytes; 0: any" },
    [PERSISTENT] = { "persistent", TOPK, .word = reads_word, .doc = "what these read: the keys they choose, or all" },
    [HARD] = { "hard", 1, 0, 1, "0: no head of a later layer is one of them", .whole = true },
    [PREDICT] = { "predict", HA_AHEAD_DEVICE, .word = predict_word,
                  .doc = "where the next layer's query is computed; oracle: what it will be" },
};

/* Of a KV head, what the last step has read, where selections are recorded. */
struct told {
    uint32_t *unit; /* [list_max] */
    uint32_t units, missed;
    float similarity;
};

struct sequence {
    size_t units;             /* of a buffer */
    struct ha_kv store, rest; /* host memory: all tokens; from the first on that is no sink */
    struct ha_kv kept; /* device: sink + recent rows, of a token t the sink's t, else sink + (t - sink) % recent */
    struct ha_kv pool; /* device: vectors; from the KV head's first on its buffer, or all tokens that are no sinks */
    size_t *first;     /* [kv_heads], whose distance from the head's number is a multiple of a unit */
    struct ha_retrieve_index index;
    float *label; /* device: [q_heads][head_dim] */
    struct told *told;
    uint64_t *chosen_at; /* [kv_heads] tokens that there were when the buffer was chosen */
};

/* What there is of a layer, for all sequences. */
struct labels {
    float *threshold, *importance; /* device: [kv_heads], below -1 of a persistent head; [q_heads] */
    float *similarity;             /* mapped: [batch][kv_heads] */
    uint32_t *own;                 /* device: [batch][kv_heads] 1: chooses by the layer's own query */
    uint32_t *list;                /* device: [batch][kv_heads][list_max] what is read, in units of the pool */
    size_t persistent;             /* KV heads */
    double encode_ns, offload_ns, hits, left_out;
    uint32_t asked; /* requests before the first step */
};

struct chooser {
    struct ha_retrieve retrieve;
    struct ha_transfer transfer;
    struct ha_ahead ahead;
    struct ha_reuse reuse;
    struct labels *labels;                /* [layers] */
    struct ha_device_similarity_seq *seq; /* [batch] */
    size_t list_max;                      /* units of a list */
    struct ha_kv stage;                   /* device: part of a prefill */
    float *zeros;                         /* pinned: [q_heads][head_dim] */
    float *q;                             /* device: of predict=cpu */
    uint32_t *known;                      /* pinned: a layer's lists, where selections are recorded */
};

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static struct sequence *sequence(const struct ha_layer *l, size_t b) { return (struct sequence *)l->own + b; }
static struct labels *labels_of(const struct ha_layer *l) { return &((struct chooser *)l->shared)->labels[l->layer]; }
static size_t unit_of(const struct ha_layer *l) { return ((struct chooser *)l->shared)->retrieve.unit; }
static bool is_persistent(const struct ha_layer *l, size_t head)
{
    const struct chooser *c = l->shared;
    return c->reuse.persistent[l->layer * l->ctx->shape->kv_heads + head];
}
static bool any_offloaded(const struct ha_layer *l) { return labels_of(l)->persistent < l->ctx->shape->kv_heads; }
static bool is_ahead(const struct ha_layer *l) { return option(l, PREFETCH) && l->layer > 0; }
static bool has_next(const struct ha_layer *l) { return l->layer + 1 < l->ctx->shape->layers; }
static size_t whole_units(size_t tokens, size_t unit) { return (tokens + unit - 1) / unit; }

/* tokens that are no sinks, of so many */
static size_t rest_of(const struct ha_layer *l, size_t tokens)
{
    return tokens > option(l, SINK) ? tokens - option(l, SINK) : 0;
}

/* ---- create ------------------------------------------------------------------------------------------------------ */

/* units of a buffer: no more than it can ever choose among */
static size_t buffer_units(const struct ha_context *ctx, const struct ha_retrieve *r, size_t b)
{
    const struct ha_shape *s = ctx->shape;
    return ha_least(whole_units(ha_share_of(ctx->param[SHARE], s->ctx[b]), r->unit),
                    ha_retrieve_units(r, ha_kv_max_tokens(s, b)));
}

static enum ha_status make_reuse(const struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = first->shared;
    struct ha_reuse_rule rule = { .eta = ctx->param[ETA],
                                  .p = ctx->param[P],
                                  .eps = ctx->param[EPS],
                                  .adaptive = option(first, THRESHOLD) == ADAPTIVE,
                                  .hard = option(first, HARD),
                                  .budget_bytes = ctx->param[BUDGET] * 1e6,
                                  .group = option(first, GROUP) == LEAST ? HA_SIMILAR_LEAST : HA_SIMILAR_HARMONIC };
    for (size_t b = 0; b < s->batch; b++) {
        const double key = 2 * (double)ha_kv_head_bytes(s);
        rule.buffer_bytes += key * (double)(buffer_units(ctx, &c->retrieve, b) * c->retrieve.unit);
        rule.whole_bytes += key * (double)ha_kv_max_tokens(s, b);
    }
    return ha_reuse_create(&c->reuse, ctx, &rule, why);
}

static void *numbers(const struct ha_context *ctx, enum ha_memory memory, size_t count, enum ha_tag tag,
                     struct ha_why *why)
{
    return ha_device_alloc(ctx->device_arena, memory, count * sizeof(uint32_t), tag, why);
}

/* Of a layer's heads what the device looks up by. */
static enum ha_status make_labels(const struct ha_context *ctx, const struct chooser *c, size_t layer, struct labels *of,
                                  struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    const size_t heads = s->batch * s->kv_heads;
    const bool *persistent = c->reuse.persistent + layer * s->kv_heads;
    of->threshold = numbers(ctx, HA_MEM_DEVICE, s->kv_heads, HA_TAG_META, why);
    of->importance = of->threshold ? numbers(ctx, HA_MEM_DEVICE, s->q_heads, HA_TAG_META, why) : NULL;
    of->similarity = of->importance ? numbers(ctx, HA_MEM_MAPPED, heads, HA_TAG_META, why) : NULL;
    of->own = of->similarity ? numbers(ctx, HA_MEM_DEVICE, heads, HA_TAG_META, why) : NULL;
    of->list = of->own ? numbers(ctx, HA_MEM_DEVICE, heads * c->list_max, HA_TAG_META, why) : NULL;
    uint32_t *own = of->list ? numbers(ctx, HA_MEM_PINNED, heads + s->kv_heads + s->q_heads, HA_TAG_SCRATCH, why) : NULL;
    if (!own) return HA_ERROR;
    float *threshold = (float *)(void *)(own + heads), *importance = threshold + s->kv_heads;
    for (size_t i = 0; i < heads; i++) own[i] = persistent[i % s->kv_heads];
    for (size_t h = 0; h < s->kv_heads; h++) {
        of->persistent += persistent[h];
        threshold[h] = persistent[h] ? -2 : c->reuse.threshold[layer * s->kv_heads + h];
    }
    memcpy(importance, c->reuse.importance + layer * s->q_heads, s->q_heads * sizeof *importance);
    HA_TRY(ctx->api->copy(ctx->stream, of->own, own, heads * sizeof *own, HA_H2D));
    HA_TRY(ctx->api->copy(ctx->stream, of->threshold, threshold, s->kv_heads * sizeof *threshold, HA_H2D));
    HA_TRY(ctx->api->copy(ctx->stream, of->importance, importance, s->q_heads * sizeof *importance, HA_H2D));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    ha_device_free(ctx->device_arena, own);
    return HA_OK;
}

/* What the engine has read of a request: hits, and what they leave out. */
static void answered(void *arg, size_t layer, uint32_t request)
{
    struct ha_layer *l = (struct ha_layer *)arg + layer;
    const struct ha_shape *s = l->ctx->shape;
    const struct chooser *c = l->shared;
    struct labels *of = &c->labels[layer];
    const uint32_t *missed = c->transfer.layer[layer].missed;
    const size_t steps = request - of->asked - 1;
    for (size_t i = 0; i < s->batch * s->kv_heads; i++) {
        const size_t b = i / s->kv_heads, h = i % s->kv_heads, tokens = s->ctx[b] + steps * s->q_len;
        uint64_t *at = sequence(l, b)->chosen_at + h;
        if (is_persistent(l, h)) continue;
        if (missed[i]) *at = tokens;
        else of->hits += 1;
        of->left_out += (double)((ha_retrieve_units(&c->retrieve, tokens) - ha_retrieve_units(&c->retrieve, *at))
                                 * c->retrieve.unit);
    }
}

enum { STAGE_TOKENS = 2048 };

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = first->shared;
    const size_t width = s->q_heads * s->head_dim;
    HA_TRY(ha_retrieve_create(&c->retrieve, ctx,
                              &(struct ha_retrieve_rule){ .by = (enum ha_retrieve_by)option(first, RETRIEVE),
                                                          .hash = (enum ha_retrieve_hash)option(first, HASH),
                                                          .bits = option(first, BITS),
                                                          .sink = option(first, SINK),
                                                          .recent = option(first, RECENT) },
                              why));
    HA_TRY(make_reuse(first, why));
    for (size_t b = 0; b < s->batch; b++)
        c->list_max = ha_most(c->list_max, option(first, PERSISTENT) == ALL
                                               ? ha_retrieve_units(&c->retrieve, ha_kv_max_tokens(s, b))
                                               : buffer_units(ctx, &c->retrieve, b));
    c->list_max = ha_most(c->list_max, 1);
    HA_TRY(ha_transfer_create(&c->transfer, first, ha_transfer_way(option(first, TRANSFER)),
                              (enum ha_transfer_sync)option(first, SYNC), option(first, STORES), c->retrieve.unit,
                              c->list_max, why));
    c->transfer.answered = answered;
    c->transfer.arg = first;
    if (option(first, PREFETCH) && s->layers > 1)
        HA_TRY(ha_ahead_create(&c->ahead, first, (enum ha_ahead_side)option(first, PREDICT), false, why));
    c->labels = ha_alloc(ctx->arena, s->layers * sizeof *c->labels, HA_TAG_META, why);
    c->seq = c->labels ? ha_alloc(ctx->arena, s->batch * sizeof *c->seq, HA_TAG_SCRATCH, why) : NULL;
    c->zeros = c->seq ? numbers(ctx, HA_MEM_PINNED, width, HA_TAG_SCRATCH, why) : NULL;
    c->q = c->zeros ? numbers(ctx, HA_MEM_DEVICE, s->batch * s->q_len * width, HA_TAG_SCRATCH, why) : NULL;
    c->known = c->q ? numbers(ctx, HA_MEM_PINNED, s->batch * s->kv_heads * c->list_max, HA_TAG_SCRATCH, why) : NULL;
    if (!c->known) return HA_ERROR;
    memset(c->zeros, 0, width * sizeof *c->zeros);
    memset(c->labels, 0, s->layers * sizeof *c->labels);
    for (size_t i = 0; i < s->layers; i++) HA_TRY(make_labels(ctx, c, i, &c->labels[i], why));
    return ha_kv_create(ctx, HA_MEM_DEVICE, STAGE_TOKENS, &c->stage, why);
}

static void end(struct ha_layer *first) { ha_transfer_end(&((struct chooser *)first->shared)->transfer); }

/* Where each KV head's vectors begin. */
static size_t lay_pool(const struct ha_layer *l, size_t b, struct sequence *seq)
{
    const size_t unit = unit_of(l), most = rest_of(l, ha_kv_max_tokens(l->ctx->shape, b));
    size_t end_of = 0;
    for (size_t h = 0; h < l->ctx->shape->kv_heads; h++) {
        seq->first[h] = whole_units(end_of > h ? end_of - h : 0, unit) * unit + h;
        end_of = seq->first[h] + (is_persistent(l, h) ? whole_units(most, unit) : seq->units) * unit;
    }
    return end_of;
}

/* The lists of offloaded heads never change: all of their buffers. */
static enum ha_status name_buffers(const struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct chooser *c = l->shared;
    const struct sequence *seq = sequence(l, b);
    const size_t heads = ctx->shape->kv_heads, all = heads * c->list_max;
    uint32_t *list = numbers(ctx, HA_MEM_PINNED, all, HA_TAG_SCRATCH, why);
    if (!list) return HA_ERROR;
    for (size_t i = 0; i < all; i++) {
        const size_t h = i / c->list_max, at = i % c->list_max;
        list[i] = (uint32_t)((seq->first[h] - h) / c->retrieve.unit + (at < seq->units ? at : 0));
    }
    HA_TRY(ctx->api->copy(ctx->stream, labels_of(l)->list + b * all, list, all * sizeof *list, HA_H2D));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    ha_device_free(ctx->device_arena, list);
    return HA_OK;
}

static enum ha_status make_pool(const struct ha_layer *l, size_t rows, struct ha_kv *pool, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const size_t bytes = rows * ha_kv_head_bytes(ctx->shape);
    *pool = (struct ha_kv){ .memory = HA_MEM_DEVICE, .cap = rows };
    pool->k = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_KV, why);
    pool->v = pool->k ? ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_KV, why) : NULL;
    return pool->v ? HA_OK : HA_ERROR;
}

static enum ha_status make_told(const struct ha_layer *l, struct sequence *seq, struct ha_why *why)
{
    const struct chooser *c = l->shared;
    const size_t heads = l->ctx->shape->kv_heads;
    seq->told = ha_alloc(l->ctx->arena, heads * sizeof *seq->told, HA_TAG_SCRATCH, why);
    uint32_t *unit = seq->told ? ha_alloc(l->ctx->arena, heads * c->list_max * sizeof *unit, HA_TAG_SCRATCH, why) : NULL;
    for (size_t h = 0; unit && h < heads; h++) seq->told[h].unit = unit + h * c->list_max;
    return unit ? HA_OK : HA_ERROR;
}

/* Of KV head 0 the K that kernels read, from the first token on that is no sink. */
static void name_keys(const struct ha_layer *l, struct sequence *seq)
{
    const struct ha_shape *s = l->ctx->shape;
    const size_t head = ha_kv_head_bytes(s);
    if (any_offloaded(l)) {
        seq->index.rows = ha_kv_rows(s, &seq->rest, 0, 0, 0);
        seq->index.k_head_bytes = head;
        return;
    }
    seq->index.rows = (struct ha_rows){ .k = seq->pool.k, .k_stride_bytes = head };
    seq->index.k_head_bytes = s->kv_heads > 1 ? (seq->first[1] - seq->first[0]) * head : 0;
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = l->shared;
    struct sequence *seq = sequence(l, b);
    const size_t most = ha_kv_max_tokens(s, b), sinks = ha_least(option(l, SINK), most);
    const enum ha_fetch_way way = ha_transfer_way(option(l, TRANSFER));
    const enum ha_memory memory = option(l, RETRIEVE) == HA_RETRIEVE_HATA ? ha_fetch_memory(way) : HA_MEM_MAPPED;
    l->lists = s->kv_heads;
    l->block = c->retrieve.unit > 1 ? c->retrieve.unit : 0;
    seq->units = buffer_units(ctx, &c->retrieve, b);
    seq->first = ha_alloc(ctx->arena, s->kv_heads * sizeof *seq->first, HA_TAG_META, why);
    seq->chosen_at = seq->first ? ha_alloc(ctx->arena, s->kv_heads * sizeof *seq->chosen_at, HA_TAG_META, why) : NULL;
    seq->label = seq->chosen_at ? numbers(ctx, HA_MEM_DEVICE, s->q_heads * s->head_dim, HA_TAG_META, why) : NULL;
    if (!seq->label) return HA_ERROR;
    if (any_offloaded(l)) {
        HA_TRY(ha_kv_create(ctx, memory, most, &seq->store, why));
        seq->rest = (struct ha_kv){ .memory = memory,
                                    .k = seq->store.k + sinks * ha_kv_token_bytes(s),
                                    .v = seq->store.v + sinks * ha_kv_token_bytes(s),
                                    .cap = most - sinks };
    }
    HA_TRY(ha_kv_create(ctx, HA_MEM_DEVICE, ha_most(ha_least(option(l, SINK) + option(l, RECENT), most), 1), &seq->kept,
                        why));
    HA_TRY(make_pool(l, ha_most(lay_pool(l, b, seq), s->kv_heads) + c->retrieve.unit, &seq->pool, why));
    HA_TRY(ha_retrieve_open(&c->retrieve, b, &seq->index, why));
    name_keys(l, seq);
    for (size_t h = 0; h < s->kv_heads; h++)
        c->transfer.layer[l->layer].place[b * s->kv_heads + h] = (struct ha_transfer_place){
            .from = is_persistent(l, h) ? NULL : &seq->rest, .to = &seq->pool, .at = seq->first[h]
        };
    if (any_offloaded(l)) HA_TRY(ha_transfer_reach(&c->transfer, &seq->pool, why));
    HA_TRY(name_buffers(l, b, why));
    return ctx->record_selection ? make_told(l, seq, why) : HA_OK;
}

/* ---- tokens to their places -------------------------------------------------------------------------------------- */

/* Rows [from, from + count) of src, tokens `first` and on: of those that are kept, tokens before `tokens`, to their
 * rows. */
static enum ha_status keep(const struct ha_layer *l, struct sequence *seq, const struct ha_kv *src, size_t from,
                           size_t first, size_t count, size_t tokens)
{
    const struct ha_context *ctx = l->ctx;
    const size_t sink = option(l, SINK), recent = option(l, RECENT), end_of = first + count;
    if (first < sink) HA_TRY(ha_kv_copy(ctx, ctx->stream, &seq->kept, first, src, from, ha_least(sink - first, count)));
    for (size_t t = ha_most(ha_most(first, sink), tokens > recent ? tokens - recent : 0), n; t < end_of; t += n) {
        const size_t row = (t - sink) % recent;
        n = ha_least(recent - row, end_of - t);
        HA_TRY(ha_kv_copy(ctx, ctx->stream, &seq->kept, sink + row, src, from + t - first, n));
    }
    return HA_OK;
}

/* Of persistent heads, those tokens that are no sinks to their vectors: of one head all tokens, or of one token all
 * heads that follow each other, by one copy. */
static enum ha_status scatter(const struct ha_layer *l, const struct sequence *seq, const struct ha_kv *src, size_t from,
                              size_t first, size_t count)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const size_t head = ha_kv_head_bytes(s), token = ha_kv_token_bytes(s), sink = option(l, SINK),
                 skip = first < sink ? ha_least(sink - first, count) : 0, rows = count - skip;
    for (size_t h = 0, n; h < s->kv_heads && rows; h += n) {
        n = 1;
        if (!is_persistent(l, h)) continue;
        while (rows == 1 && h + n < s->kv_heads && is_persistent(l, h + n)) n++;
        const size_t apart = n > 1 ? (seq->first[h + 1] - seq->first[h]) * head : head,
                     to = (seq->first[h] + first + skip - sink) * head, at = (from + skip) * token + h * head;
        for (int v = 0; v < 2; v++)
            HA_TRY(ctx->api->copy_2d(ctx->stream, (v ? seq->pool.v : seq->pool.k) + to, apart,
                                     (v ? src->v : src->k) + at, n > 1 ? head : token, head, n > 1 ? n : rows,
                                     HA_D2D));
    }
    return HA_OK;
}

/* A prefill leaves K and V on the device: they are encoded there, and go to host memory beside that (section 4.2). */
static enum ha_status prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = l->shared;
    struct sequence *seq = sequence(l, b);
    struct labels *of = labels_of(l);
    const bool hata = option(l, RETRIEVE) == HA_RETRIEVE_HATA;
    for (size_t first = 0, n; first < s->ctx[b]; first += n) {
        n = ha_least(STAGE_TOKENS, s->ctx[b] - first);
        HA_TRY(ha_kv_load(ctx, &c->stage, 0, in, b, first, n));
        HA_TRY(keep(l, seq, &c->stage, 0, first, n, s->ctx[b]));
        HA_TRY(scatter(l, seq, &c->stage, 0, first, n));
        HA_TRY(ctx->api->stream_sync(ctx->stream));
        const uint64_t begin = ha_now_ns();
        ha_retrieve_add(&c->retrieve, b, &seq->index, c->stage.k, first, n);
        if (any_offloaded(l)) HA_TRY(ha_kv_copy(ctx, c->transfer.stream, &seq->store, first, &c->stage, 0, n));
        if (hata) HA_TRY(ha_retrieve_encode(&c->retrieve, l->layer, ctx->stream, b, 1));
        HA_TRY(ctx->api->stream_sync(ctx->stream));
        of->encode_ns += (double)(ha_now_ns() - begin);
        HA_TRY(ctx->api->stream_sync(c->transfer.stream));
        of->offload_ns += (double)(ha_now_ns() - begin);
        if (!hata) HA_TRY(ha_retrieve_encode(&c->retrieve, l->layer, ctx->stream, b, 1)); /* from there */
    }
    return ctx->api->stream_sync(ctx->stream);
}

/* Before the first step nothing has a label. */
static enum ha_status ready(struct ha_layer *l, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = l->shared;
    struct labels *of = labels_of(l);
    of->hits = of->left_out = 0;
    of->asked = c->transfer.layer[l->layer].asked;
    c->transfer.layer[l->layer].moved = c->transfer.layer[l->layer].bytes = 0;
    for (size_t b = 0; b < s->batch; b++)
        HA_TRY(ctx->api->copy(ctx->stream, sequence(l, b)->label, c->zeros, s->q_heads * s->head_dim * sizeof(float),
                              HA_H2D));
    return HA_OK;
}

/* The window's tokens again, from host memory or from the heads that have all. */
static enum ha_status rewind(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = l->shared;
    struct sequence *seq = sequence(l, b);
    const size_t sink = option(l, SINK), recent = option(l, RECENT), n = s->ctx[b], head = ha_kv_head_bytes(s),
                 token = ha_kv_token_bytes(s);
    ha_transfer_end(&c->transfer);
    ha_retrieve_rewind(&c->retrieve, &seq->index, n);
    const size_t from = ha_most(n > recent ? n - recent : 0, ha_least(sink, n));
    if (any_offloaded(l)) return keep(l, seq, &seq->store, from, from, n - from, n);
    for (size_t t = from, rows; t < n; t += rows) {
        const size_t row = (t - sink) % recent;
        rows = ha_least(recent - row, n - t);
        for (size_t h = 0; h < s->kv_heads; h++)
            for (int v = 0; v < 2; v++)
                HA_TRY(ctx->api->copy_2d(ctx->stream, (v ? seq->kept.v : seq->kept.k) + (sink + row) * token + h * head,
                                         token, (v ? seq->pool.v : seq->pool.k) + (seq->first[h] + t - sink) * head,
                                         head, head, rows, HA_D2D));
    }
    return HA_OK;
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

/* Look-up of a layer's labels by a query, which becomes the label of those that miss; what these choose is asked for. */
static enum ha_status look_up(const struct ha_layer *l, const float *q, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = l->shared;
    const struct labels *of = labels_of(l);
    const struct ha_transfer_layer *to = &c->transfer.layer[l->layer];
    for (size_t b = 0; b < s->batch; b++)
        c->seq[b] = (struct ha_device_similarity_seq){ .q = q + b * s->q_len * s->q_heads * s->head_dim,
                                                       .label = sequence(l, b)->label,
                                                       .similarity = of->similarity + b * s->kv_heads,
                                                       .missed = to->missed + b * s->kv_heads };
    HA_TRY(ctx->api->similarity(
        ctx->stream,
        &(struct ha_device_similarity){ .batch = s->batch,
                                        .q_len = s->q_len,
                                        .q_heads = s->q_heads,
                                        .kv_heads = s->kv_heads,
                                        .head_dim = s->head_dim,
                                        .group = option(l, GROUP) == LEAST ? HA_SIMILAR_LEAST : HA_SIMILAR_HARMONIC,
                                        .importance = of->importance,
                                        .threshold = of->threshold,
                                        .seqs = c->seq }));
    HA_TRY(ha_retrieve_score(&c->retrieve, l->layer, q, &sequence(l, 0)->index, sizeof(struct sequence), l->tokens,
                             to->missed));
    for (size_t i = 0; i < s->batch * s->kv_heads; i++)
        if (!is_persistent(l, i % s->kv_heads))
            ha_retrieve_ask(&c->retrieve, i / s->kv_heads, i % s->kv_heads, l->tokens[i / s->kv_heads],
                            sequence(l, i / s->kv_heads)->units, 0, to->index + i * c->list_max, to->count + i,
                            to->missed + i);
    HA_TRY(ha_retrieve_run(&c->retrieve));
    return ha_transfer_ask(&c->transfer, l, why);
}

/* The choice of those heads whose keys are all on the device. */
static enum ha_status choose_here(const struct ha_layer *l, const float *q)
{
    const struct ha_shape *s = l->ctx->shape;
    struct chooser *c = l->shared;
    const struct labels *of = labels_of(l);
    HA_TRY(ha_retrieve_score(&c->retrieve, l->layer, q, &sequence(l, 0)->index, sizeof(struct sequence), l->tokens,
                             of->own));
    for (size_t i = 0; i < s->batch * s->kv_heads; i++) {
        const size_t b = i / s->kv_heads, h = i % s->kv_heads;
        if (is_persistent(l, h))
            ha_retrieve_ask(&c->retrieve, b, h, l->tokens[b],
                            option(l, PERSISTENT) == ALL ? c->list_max : sequence(l, b)->units,
                            (uint32_t)((sequence(l, b)->first[h] - h) / c->retrieve.unit), of->list + i * c->list_max,
                            c->transfer.layer[l->layer].count + i, NULL);
    }
    return ha_retrieve_run(&c->retrieve);
}

/* The next layer's look-up comes first, so that its keys are under way while this layer does all the rest. */
static enum ha_status before(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = l->shared;
    if (option(l, PREFETCH) && has_next(l) && any_offloaded(l + 1)) {
        HA_TRY(ha_ahead_begin(&c->ahead, step, l->tokens));
        if (c->ahead.side == HA_AHEAD_CPU) {
            HA_TRY(ha_ahead_end(&c->ahead));
            HA_TRY(ctx->api->copy(ctx->stream, c->q, c->ahead.q,
                                  s->batch * s->q_len * s->q_heads * s->head_dim * sizeof *c->q, HA_H2D));
        }
        HA_TRY(look_up(l + 1, c->ahead.side == HA_AHEAD_CPU ? c->q : c->ahead.q_device, why));
    }
    if (!is_ahead(l) && any_offloaded(l)) HA_TRY(look_up(l, step->q, why));
    if (labels_of(l)->persistent) HA_TRY(choose_here(l, step->q));
    return any_offloaded(l) ? ha_transfer_wait(&c->transfer, l, why) : HA_OK;
}

/* Both layouts in place (section 5): vectors by each KV head's list, then the kept tokens and the step's own. From one
 * KV head to the next is a vector, so a list counts from its head's number on. */
static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct chooser *c = l->shared;
    const struct sequence *seq = sequence(l, b);
    const struct ha_kv fresh = ha_kv_of_step(s, step, b);
    const size_t head = ha_kv_head_bytes(s), lists = b * s->kv_heads;
    d->runs[d->runs_count++] = (struct ha_rows){ .k = seq->pool.k,
                                                 .v = seq->pool.v,
                                                 .k_stride_bytes = head,
                                                 .v_stride_bytes = head,
                                                 .index = labels_of(l)->list + lists * c->list_max,
                                                 .keys = c->list_max * c->retrieve.unit };
    d->list_stride = c->list_max;
    d->list_keys = c->transfer.layer[l->layer].count + lists;
    d->runs[d->runs_count++] = ha_kv_rows(s, &seq->kept, 0, 0,
                                          ha_least(l->tokens[b], option(l, SINK) + option(l, RECENT)));
    d->runs[d->runs_count++] = ha_kv_rows(s, &fresh, 0, 0, step->q_len);
}

/* The new tokens to where they are kept, to host memory and into the index. */
static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = l->shared;
    for (size_t b = 0; b < s->batch; b++) {
        struct sequence *seq = sequence(l, b);
        const struct ha_kv fresh = ha_kv_of_step(s, step, b);
        const size_t first = l->tokens[b] - s->q_len;
        HA_TRY(keep(l, seq, &fresh, 0, first, s->q_len, l->tokens[b]));
        for (size_t t = 0; t < s->q_len; t++) HA_TRY(scatter(l, seq, &fresh, t, first + t, 1));
        if (any_offloaded(l)) HA_TRY(ha_kv_copy(ctx, ctx->stream, &seq->store, first, &fresh, 0, s->q_len));
        ha_retrieve_add(&c->retrieve, b, &seq->index, fresh.k, first, s->q_len);
    }
    return ha_retrieve_encode(&c->retrieve, l->layer, ctx->stream, 0, s->batch);
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

/* What the layer's heads have read: of persistent ones by the lists, which come down; of others what is in their
 * places. */
static enum ha_status learn(const struct ha_layer *l, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = l->shared;
    const struct ha_transfer_layer *held = &c->transfer.layer[l->layer];
    const struct labels *of = labels_of(l);
    const size_t all = s->batch * s->kv_heads;
    HA_TRY(ctx->api->copy(ctx->stream, c->known, of->list, all * c->list_max * sizeof *c->known, HA_D2H));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    for (size_t i = 0; i < all; i++) {
        const size_t b = i / s->kv_heads, h = i % s->kv_heads, units = held->count[i] / c->retrieve.unit;
        const bool here = is_persistent(l, h);
        const uint32_t *unit = (here ? c->known : held->index) + i * c->list_max,
                       from = here ? (uint32_t)((sequence(l, b)->first[h] - h) / c->retrieve.unit) : 0;
        struct told *told = &sequence(l, b)->told[h];
        HA_TRY(ha_list_check(ctx, "keys that the device chose", unit, units, c->list_max,
                             from + ha_retrieve_units(&c->retrieve, l->tokens[b]), why));
        told->units = (uint32_t)units;
        told->missed = here ? 0 : held->missed[i];
        told->similarity = here ? 0 : of->similarity[i];
        for (size_t j = 0; j < units; j++) told->unit[j] = unit[j] - from;
    }
    return HA_OK;
}

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    const size_t sink = option(l, SINK), unit = unit_of(l), n = l->tokens[b];
    if (b == 0 && q_head == 0) HA_TRY(learn(l, why));
    const struct told *told = &sequence(l, b)->told[q_head / ha_shape_group(s)];
    HA_TRY(ha_positions_add_range(l->ctx, &used->device, 0, ha_least(sink, n), why));
    for (size_t i = 0; i < told->units; i++)
        HA_TRY(ha_positions_add_range(l->ctx, &used->device, sink + told->unit[i] * unit,
                                      sink + (told->unit[i] + 1) * unit, why));
    const size_t window = n > option(l, RECENT) ? n - option(l, RECENT) : 0;
    return ha_positions_add_range(l->ctx, &used->device, ha_most(window, ha_least(sink, n)), n + s->q_len, why);
}

static void report(const struct ha_layer *l, size_t b, size_t q_head, struct ha_selection *out)
{
    const size_t head = q_head / ha_shape_group(l->ctx->shape);
    const struct told *told = &sequence(l, b)->told[head];
    out->note[out->notes++] = (struct ha_note){ "persistent", is_persistent(l, head) };
    if (is_persistent(l, head)) return;
    out->note[out->notes++] = (struct ha_note){ "hit", !told->missed };
    out->note[out->notes++] = (struct ha_note){ "similarity", isfinite(told->similarity) ? (double)told->similarity : -2 };
}

static void count(const struct ha_layer *l, ha_count *say, void *arg)
{
    const struct chooser *c = l->shared;
    const struct labels *of = labels_of(l);
    const struct ha_transfer_layer *moved = &c->transfer.layer[l->layer];
    ha_worker_wait(l->ctx->worker, moved->ticket);
    say(arg, "persistent", l->layer, (double)of->persistent);
    say(arg, "encode_ns", l->layer, of->encode_ns);
    if (!any_offloaded(l)) return;
    say(arg, "offload_ns", l->layer, of->offload_ns);
    say(arg, "hits", l->layer, of->hits);
    say(arg, "misses", l->layer, moved->moved);
    say(arg, "left_out", l->layer, of->left_out);
    say(arg, "moved_bytes", l->layer, moved->bytes);
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .shared_bytes = sizeof(struct chooser),
    .share = share,
    .end = end,
    .open = open,
    .prefill = prefill,
    .ready = ready,
    .before = before,
    .device = device,
    .use = use,
    .report = report,
    .after = after,
    .count = count,
    .rewind = rewind,
};

static enum ha_status fit(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why)
{
    return ha_reuse_fit(in, out, (size_t)in->param[SINK], (size_t)in->param[RECENT],
                        (int)in->param[GROUP] == LEAST ? HA_SIMILAR_LEAST : HA_SIMILAR_HARMONIC, why);
}

extern const struct ha_variant ha_variant_clo;
const struct ha_variant ha_variant_clo = {
    .name = "clo",
    .family = "similarity_cache",
    .doc = "all KV in host memory; what a query has chosen serves those like it, and what is missing comes a layer ahead",
    .source = "CLO (Yi et al. 2025), sections 3 and 4",
    .contract = HA_BOUNDED,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_COPY_2D | HA_NEEDS_TOPK | HA_NEEDS_LABELS,
    .counters = ha_frame_counters,
    .rewind = ha_frame_rewind,
    .fit = fit,
    HA_FRAME(rule),
};
