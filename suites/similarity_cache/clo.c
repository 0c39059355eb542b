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
#include "suites/parts/choose.h"
#include "suites/parts/kept.h"
#include "suites/parts/listed.h"
#include "suites/parts/query_labels.h"
#include "suites/parts/retrieve.h"
#include "suites/parts/reuse.h"
#include "suites/parts/transfer.h"
#include "suites/parts/vectors.h"

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
    [SHARE] = { "budget", 0.1, 1e-6, 1, "keys of a buffer (k), as a share of the context", .draw = "0.02 0.1 0.5 1" },
    [SINK] = { "sink", 4, 0, 1 << 24, "first tokens that stay on the device", .whole = true, .draw = "0..70",
               .fitted = true },
    [RECENT] = { "recent", 64, 0, 1 << 24, "last tokens that stay there", .whole = true, .draw = "0..70",
                 .fitted = true },
    [ETA] = { "eta", 0.8, -1, 1, "similarity that serves the most important head",
              .draw = "-1 -0.5 0 0.3 0.5 0.8 0.9 1" },
    [P] = { "p", 3, 0, 16, "power of a head's importance", .draw = "0 1 2 3 0.5" },
    [THRESHOLD] = { "threshold", ADAPTIVE, .word = threshold_word,
                    .doc = "what serves a head: by its importance, which a fit has, or eta for all" },
    [GROUP] = { "group", HARMONIC, .word = group_word,
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
    [EPS] = { "eps", 0.1, 0, 2, "by how much a head may miss on average and is not hard", .draw = "0 0.05 0.1 0.5" },
    [BUDGET] = { "device_budget_MB", 0, 0, 1e9, "of the heads whose keys are all on the device, 10^6 bytes; 0: any",
                 .draw = "0 0 0..1" },
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
    struct ha_kept kept;
    struct ha_vectors pool; /* device: of each KV head its buffer, or all tokens that are no sinks */
    struct ha_retrieve_index index;
    size_t *chosen_at; /* [kv_heads] tokens that there were when the buffer was chosen */
    uint32_t *choice;  /* prefetch=0: [kv_heads][1 + list_max] the last choice, behind how many there are */
    struct told *told; /* [kv_heads] */
};

/* What there is of a layer, for all sequences. */
struct heads {
    const bool *persistent; /* [kv_heads]: all keys are on the device; how many are */
    size_t count;
    uint32_t *here; /* device: [batch][kv_heads] the same */
    uint32_t *list; /* device: [batch][kv_heads][list_max] what is read, in entries of the pool */
    double encode_ns, offload_ns, hits, left_out;
    double similarity, labels; /* sum of a look-up's where there was a label; how many */
    struct shared {
        double units, of;
    } low, high;    /* by similarity, of new choices: the one before had; all */
    uint32_t asked; /* requests before the first step */
};

struct chooser {
    struct ha_retrieve retrieve;
    struct ha_query_labels labels;
    struct ha_transfer transfer;
    struct ha_ahead ahead;
    struct ha_reuse reuse;
    struct heads *heads; /* [layers] */
    size_t list_max;     /* units of a list */
    bool *had;           /* the engine's: [units of a sequence at most] */
    struct ha_kv stage;  /* device: part of a prefill */
    float *q;            /* device: of predict=cpu */
    uint32_t *known;     /* pinned: a layer's lists, where selections are recorded */
};

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static struct sequence *sequence(const struct ha_layer *l, size_t b) { return (struct sequence *)l->own + b; }
static struct heads *heads_of(const struct ha_layer *l) { return &((struct chooser *)l->shared)->heads[l->layer]; }
static bool any_offloaded(const struct ha_layer *l) { return heads_of(l)->count < l->ctx->shape->kv_heads; }
static bool has_next(const struct ha_layer *l) { return l->layer + 1 < l->ctx->shape->layers; }
static size_t whole(size_t tokens, size_t unit) { return (tokens + unit - 1) / unit; }

/* tokens that are no sinks, of so many */
static size_t rest_of(const struct ha_layer *l, size_t tokens) { return tokens - ha_least(option(l, SINK), tokens); }

/* ---- create ------------------------------------------------------------------------------------------------------ */

/* units of a buffer: no more than it can ever choose among */
static size_t buffer_units(const struct ha_context *ctx, const struct ha_retrieve *r, size_t b)
{
    const struct ha_shape *s = ctx->shape;
    return ha_least(whole(ha_share_of(ctx->param[SHARE], s->ctx[b]), r->unit),
                    ha_retrieve_units(r, ha_kv_max_tokens(s, b)));
}

static enum ha_similar group_of(const double *param)
{
    return (int)param[GROUP] == LEAST ? HA_SIMILAR_LEAST : HA_SIMILAR_HARMONIC;
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
                                  .group = group_of(ctx->param) };
    for (size_t b = 0; b < s->batch; b++) {
        const double key = 2 * (double)ha_kv_head_bytes(s);
        rule.buffer_bytes += key * (double)(buffer_units(ctx, &c->retrieve, b) * c->retrieve.unit);
        rule.whole_bytes += key * (double)ha_kv_max_tokens(s, b);
    }
    HA_TRY(ha_reuse_create(&c->reuse, ctx, &rule, why));
    return ha_query_labels_create(&c->labels, ctx, &c->reuse, rule.group, why);
}

static uint32_t *numbers(const struct ha_context *ctx, enum ha_memory memory, size_t count, enum ha_tag tag,
                         struct ha_why *why)
{
    return ha_device_alloc(ctx->device_arena, memory, count * sizeof(uint32_t), tag, why);
}

static enum ha_status make_heads(const struct ha_context *ctx, const struct chooser *c, size_t layer, struct heads *of,
                                 struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    const size_t all = s->batch * s->kv_heads;
    of->persistent = c->reuse.persistent + layer * s->kv_heads;
    for (size_t h = 0; h < s->kv_heads; h++) of->count += of->persistent[h];
    of->list = numbers(ctx, HA_MEM_DEVICE, all * c->list_max, HA_TAG_META, why);
    of->here = of->list ? numbers(ctx, HA_MEM_DEVICE, all, HA_TAG_META, why) : NULL;
    uint32_t *here = of->here ? numbers(ctx, HA_MEM_PINNED, all, HA_TAG_SCRATCH, why) : NULL;
    if (!here) return HA_ERROR;
    for (size_t i = 0; i < all; i++) here[i] = of->persistent[i % s->kv_heads];
    HA_TRY(ctx->api->copy(ctx->stream, of->here, here, all * sizeof *here, HA_H2D));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    ha_device_free(ctx->device_arena, here);
    return HA_OK;
}

/* tokens that have left the window, of so many */
static size_t gone(const struct ha_layer *l, size_t tokens)
{
    return tokens - ha_least(option(l, SINK) + option(l, RECENT), tokens);
}

/* A new choice beside the one before it (figure 6), by how similar the queries are that they were made by. */
static void compare(const struct chooser *c, struct heads *of, uint32_t *before, const uint32_t *now, size_t units,
                    float similarity)
{
    struct shared *to = similarity >= 0.8F ? &of->high : similarity >= 0.4F && similarity < 0.6F ? &of->low : NULL;
    for (size_t i = 1; to && i <= before[0]; i++) c->had[before[i]] = true;
    for (size_t i = 0; to && i < units; i++) to->units += c->had[now[i]];
    for (size_t i = 1; to && i <= before[0]; i++) c->had[before[i]] = false;
    if (to) to->of += (double)units;
    before[0] = (uint32_t)units;
    memcpy(before + 1, now, units * sizeof *now);
}

/* What the engine has read of a request: how similar it is, who hits, and how many keys have left the window since
 * their choice. */
static void answered(void *arg, size_t layer, uint32_t request)
{
    struct ha_layer *l = (struct ha_layer *)arg + layer;
    const struct ha_shape *s = l->ctx->shape;
    const struct chooser *c = l->shared;
    struct heads *of = heads_of(l);
    const struct ha_transfer_layer *moved = &c->transfer.layer[layer];
    const uint32_t *missed = moved->missed;
    for (size_t i = 0; i < s->batch * s->kv_heads; i++) {
        const size_t b = i / s->kv_heads, h = i % s->kv_heads,
                     tokens = s->ctx[b] + (request - of->asked - 1) * s->q_len;
        size_t *at = &sequence(l, b)->chosen_at[h];
        if (of->persistent[h]) continue;
        const float similarity = c->labels.layer[layer].similarity[i];
        of->labels += isfinite(similarity);
        of->similarity += isfinite(similarity) ? (double)similarity : 0;
        if (missed[i] && sequence(l, b)->choice)
            compare(c, of, sequence(l, b)->choice + h * (1 + c->list_max), moved->index + i * c->list_max,
                    moved->count[i] / c->retrieve.unit, similarity);
        if (missed[i]) *at = tokens;
        else of->hits++;
        of->left_out += (double)(gone(l, tokens) - gone(l, *at));
    }
}

enum { STAGE_TOKENS = 2048 };

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
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
    for (size_t b = 0; b < s->batch; b++)
        c->list_max = ha_most(c->list_max, option(first, PERSISTENT) == ALL
                                               ? ha_retrieve_units(&c->retrieve, ha_kv_max_tokens(s, b))
                                               : buffer_units(ctx, &c->retrieve, b));
    for (size_t b = 0; b < s->batch; b++) units = ha_most(units, whole(ha_kv_max_tokens(s, b), c->retrieve.unit));
    HA_TRY(ha_transfer_create(&c->transfer, first, ha_transfer_way(option(first, TRANSFER)),
                              (enum ha_transfer_sync)option(first, SYNC), option(first, STORES), c->retrieve.unit,
                              c->list_max, why));
    c->transfer.answered = answered;
    c->transfer.arg = first;
    if (option(first, PREFETCH) && s->layers > 1)
        HA_TRY(ha_ahead_create(&c->ahead, first, (enum ha_ahead_side)option(first, PREDICT), false, why));
    const size_t all = s->batch * s->kv_heads * c->list_max, q = s->batch * s->q_len * s->q_heads * s->head_dim;
    c->heads = ha_alloc(ctx->arena, s->layers * sizeof *c->heads, HA_TAG_META, why);
    c->had = c->heads ? ha_alloc(ctx->arena, units * sizeof *c->had, HA_TAG_SCRATCH, why) : NULL;
    c->q = c->had ? (float *)numbers(ctx, HA_MEM_DEVICE, q, HA_TAG_SCRATCH, why) : NULL;
    c->known = c->q ? numbers(ctx, HA_MEM_PINNED, all, HA_TAG_SCRATCH, why) : NULL;
    if (!c->known) return HA_ERROR;
    memset(c->heads, 0, s->layers * sizeof *c->heads);
    memset(c->had, 0, units * sizeof *c->had);
    for (size_t i = 0; i < s->layers; i++) HA_TRY(make_heads(ctx, c, i, &c->heads[i], why));
    return ha_kv_create(ctx, HA_MEM_DEVICE, STAGE_TOKENS, &c->stage, why);
}

static enum ha_status drain(struct ha_layer *first, struct ha_why *why)
{
    return ha_transfer_drain(&((struct chooser *)first->shared)->transfer, why);
}

static void end(struct ha_layer *first) { ha_transfer_end(&((struct chooser *)first->shared)->transfer); }

/* The lists of offloaded heads never change: all of their buffers. */
static enum ha_status name_buffers(const struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct chooser *c = l->shared;
    const struct sequence *seq = sequence(l, b);
    const size_t all = ctx->shape->kv_heads * c->list_max;
    uint32_t *list = numbers(ctx, HA_MEM_PINNED, all, HA_TAG_SCRATCH, why);
    if (!list) return HA_ERROR;
    for (size_t i = 0; i < all; i++) {
        const size_t at = i % c->list_max;
        list[i] = ha_vectors_entry(&seq->pool, i / c->list_max) + (uint32_t)(at < seq->units ? at : 0);
    }
    HA_TRY(ctx->api->copy(ctx->stream, heads_of(l)->list + b * all, list, all * sizeof *list, HA_H2D));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    ha_device_free(ctx->device_arena, list);
    return HA_OK;
}

static enum ha_status make_told(const struct ha_layer *l, struct sequence *seq, struct ha_why *why)
{
    const struct chooser *c = l->shared;
    const size_t heads = l->ctx->shape->kv_heads;
    seq->told = ha_alloc(l->ctx->arena, heads * sizeof *seq->told, HA_TAG_SCRATCH, why);
    uint32_t *unit = seq->told ? ha_alloc(l->ctx->arena, heads * c->list_max * sizeof *unit, HA_TAG_SCRATCH, why)
                               : NULL;
    for (size_t h = 0; unit && h < heads; h++) seq->told[h].unit = unit + h * c->list_max;
    return unit ? HA_OK : HA_ERROR;
}

/* All tokens in host memory, if a head is there, and the pool on the device; what is in each head's part of it. */
static enum ha_status make_room(const struct ha_layer *l, size_t b, struct sequence *seq, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = l->shared;
    const size_t most = ha_kv_max_tokens(s, b), sinks = ha_least(option(l, SINK), most) * ha_kv_token_bytes(s);
    const enum ha_fetch_way way = ha_transfer_way(option(l, TRANSFER));
    const enum ha_memory memory = option(l, RETRIEVE) == HA_RETRIEVE_HATA ? ha_fetch_memory(way) : HA_MEM_MAPPED;
    size_t *rows = seq->chosen_at; /* not yet in use */
    if (any_offloaded(l)) HA_TRY(ha_kv_create(ctx, memory, most, &seq->store, why));
    if (any_offloaded(l))
        seq->rest = (struct ha_kv){ memory, seq->store.k + sinks, seq->store.v + sinks, rest_of(l, most) };
    for (size_t h = 0; h < s->kv_heads; h++)
        rows[h] = heads_of(l)->persistent[h] ? whole(rest_of(l, most), c->retrieve.unit) * c->retrieve.unit
                                             : seq->units * c->retrieve.unit;
    HA_TRY(ha_vectors_create(ctx, c->retrieve.unit, rows, &seq->pool, why));
    for (size_t h = 0; h < s->kv_heads; h++)
        c->transfer.layer[l->layer].place[b * s->kv_heads + h] = (struct ha_transfer_place){
            .from = heads_of(l)->persistent[h] ? NULL : &seq->rest, .to = &seq->pool.kv, .at = seq->pool.first[h]
        };
    return any_offloaded(l) ? ha_transfer_reach(&c->transfer, l->layer, &seq->pool.kv, why) : HA_OK;
}

static size_t choices(const struct ha_layer *l)
{
    return l->ctx->shape->kv_heads * (1 + ((const struct chooser *)l->shared)->list_max);
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = l->shared;
    struct sequence *seq = sequence(l, b);
    l->lists = s->kv_heads;
    l->block = c->retrieve.unit;
    seq->units = buffer_units(ctx, &c->retrieve, b);
    seq->chosen_at = ha_alloc(ctx->arena, s->kv_heads * sizeof *seq->chosen_at, HA_TAG_META, why);
    if (!seq->chosen_at) return HA_ERROR;
    HA_TRY(make_room(l, b, seq, why));
    if (!option(l, PREFETCH)) seq->choice = ha_alloc(ctx->arena, choices(l) * sizeof *seq->choice, HA_TAG_SCRATCH, why);
    if (!option(l, PREFETCH) && !seq->choice) return HA_ERROR;
    HA_TRY(ha_kept_create(ctx, option(l, SINK), option(l, RECENT), b, &seq->kept, why));
    HA_TRY(ha_retrieve_open(&c->retrieve, b, &seq->index, why));
    seq->index.rows = any_offloaded(l) ? ha_kv_rows(s, &seq->rest, 0, 0, 0)
                                       : ha_vectors_rows(s, &seq->pool, &seq->index.k_head_bytes);
    if (any_offloaded(l)) seq->index.k_head_bytes = ha_kv_head_bytes(s);
    HA_TRY(name_buffers(l, b, why));
    return ctx->record_selection ? make_told(l, seq, why) : HA_OK;
}

/* ---- prefill, and back to it ------------------------------------------------------------------------------------- */

/* Tokens [first, first + count), rows `from` and on of src, to where they are read on the device, of `tokens` in all.
 */
static enum ha_status put(const struct ha_layer *l, const struct sequence *seq, const struct ha_kv *src, size_t from,
                          size_t first, size_t count, size_t tokens)
{
    const size_t sinks = first < option(l, SINK) ? ha_least(option(l, SINK) - first, count) : 0;
    HA_TRY(ha_kept_put(l->ctx, &seq->kept, src, from, first, count, tokens));
    return ha_vectors_put(l->ctx, &seq->pool, heads_of(l)->persistent, src, from + sinks,
                          first + sinks - option(l, SINK), count - sinks);
}

/* A prefill leaves K and V on the device: they are encoded there, and go to host memory beside that (section 4.2). */
static enum ha_status prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const size_t tokens = ctx->shape->ctx[b];
    struct chooser *c = l->shared;
    struct sequence *seq = sequence(l, b);
    struct heads *of = heads_of(l);
    const bool hata = option(l, RETRIEVE) == HA_RETRIEVE_HATA;
    for (size_t first = 0, n; first < tokens; first += n) {
        n = ha_least(STAGE_TOKENS, tokens - first);
        HA_TRY(ha_kv_load(ctx, &c->stage, 0, in, b, first, n));
        HA_TRY(put(l, seq, &c->stage, 0, first, n, tokens));
        HA_TRY(ctx->api->stream_sync(ctx->stream));
        const uint64_t begin = ha_now_ns();
        if (any_offloaded(l)) HA_TRY(ha_kv_copy(ctx, c->transfer.stream, &seq->store, first, &c->stage, 0, n));
        ha_retrieve_add(&c->retrieve, b, &seq->index, c->stage.k, first, n);
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
    struct heads *of = heads_of(l);
    struct ha_transfer_layer *moved = &c->transfer.layer[l->layer];
    of->hits = of->left_out = of->similarity = of->labels = 0;
    of->low = of->high = (struct shared){ .of = 0 };
    of->asked = moved->asked;
    moved->moved = moved->bytes = 0;
    return ha_query_labels_clear(&c->labels, l->layer);
}

/* The last tokens of the context again, from host memory or from the heads that have all. */
static enum ha_status rewind(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    struct chooser *c = l->shared;
    struct sequence *seq = sequence(l, b);
    const size_t n = ctx->shape->ctx[b], window = ha_kept_window(&seq->kept, n);
    ha_retrieve_rewind(&c->retrieve, &seq->index, n);
    if (any_offloaded(l)) return ha_kept_put(ctx, &seq->kept, &seq->store, window, window, n - window, n);
    for (size_t first = window, count; first < n; first += count) {
        count = ha_least(STAGE_TOKENS, n - first);
        HA_TRY(ha_vectors_get(ctx, &seq->pool, first - option(l, SINK), &c->stage, 0, count));
        HA_TRY(ha_kept_put(ctx, &seq->kept, &c->stage, 0, first, count, n));
    }
    return HA_OK;
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

/* Look-up of a layer's labels by queries, which become the labels of heads that miss; what these choose is sent for. */
static enum ha_status look_up(const struct ha_layer *l, const float *q, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    struct chooser *c = l->shared;
    const struct ha_transfer_layer *to = &c->transfer.layer[l->layer];
    HA_TRY(ha_query_labels_look_up(&c->labels, l->layer, q, to->missed));
    HA_TRY(ha_retrieve_score(&c->retrieve, l->layer, q, &sequence(l, 0)->index, sizeof(struct sequence), l->tokens,
                             to->missed));
    for (size_t i = 0; i < s->batch * s->kv_heads; i++) {
        const size_t b = i / s->kv_heads, h = i % s->kv_heads;
        if (!heads_of(l)->persistent[h])
            ha_retrieve_ask(&c->retrieve, b, h, l->tokens[b], sequence(l, b)->units, 0, to->index + i * c->list_max,
                            to->count + i, to->missed + i);
    }
    HA_TRY(ha_retrieve_run(&c->retrieve));
    return ha_transfer_ask(&c->transfer, l, why);
}

/* The choice of heads whose keys are all on the device, by the layer's own queries. */
static enum ha_status choose_here(const struct ha_layer *l, const float *q)
{
    const struct ha_shape *s = l->ctx->shape;
    struct chooser *c = l->shared;
    const struct heads *of = heads_of(l);
    HA_TRY(ha_retrieve_score(&c->retrieve, l->layer, q, &sequence(l, 0)->index, sizeof(struct sequence), l->tokens,
                             of->here));
    for (size_t i = 0; i < s->batch * s->kv_heads; i++) {
        const size_t b = i / s->kv_heads, h = i % s->kv_heads,
                     count = option(l, PERSISTENT) == ALL ? c->list_max : sequence(l, b)->units;
        if (of->persistent[h])
            ha_retrieve_ask(&c->retrieve, b, h, l->tokens[b], count, ha_vectors_entry(&sequence(l, b)->pool, h),
                            of->list + i * c->list_max, c->transfer.layer[l->layer].count + i, NULL);
    }
    return ha_retrieve_run(&c->retrieve);
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

/* The next layer's keys are sent for first, so that they come beside all that follows. */
static enum ha_status before(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    struct chooser *c = l->shared;
    const bool ahead = option(l, PREFETCH);
    if (ahead && has_next(l) && any_offloaded(l + 1)) HA_TRY(look_ahead(l, step, why));
    if (!ahead && any_offloaded(l)) HA_TRY(look_up(l, step->q, why));
    if (heads_of(l)->count) HA_TRY(choose_here(l, step->q));
    return any_offloaded(l) ? ha_transfer_wait(&c->transfer, l, why) : HA_OK;
}

/* Buffers and whole heads in place (section 5), the kept tokens, and the step's own. */
static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct chooser *c = l->shared;
    const struct sequence *seq = sequence(l, b);
    const struct ha_kv fresh = ha_kv_of_step(s, step, b);
    struct ha_rows *listed = &d->runs[d->runs_count++];
    *listed = ha_vectors_run(s, &seq->pool);
    listed->index = heads_of(l)->list + b * s->kv_heads * c->list_max;
    listed->keys = c->list_max * c->retrieve.unit;
    d->list_stride = c->list_max;
    d->list_keys = c->transfer.layer[l->layer].count + b * s->kv_heads;
    d->runs[d->runs_count++] = ha_kept_rows(s, &seq->kept, l->tokens[b]);
    d->runs[d->runs_count++] = ha_kv_rows(s, &fresh, 0, 0, step->q_len);
}

/* The new tokens to where they are kept, to host memory and into the index. */
static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    struct chooser *c = l->shared;
    for (size_t b = 0; b < ctx->shape->batch; b++) {
        struct sequence *seq = sequence(l, b);
        const struct ha_kv fresh = ha_kv_of_step(ctx->shape, step, b);
        const size_t first = l->tokens[b] - step->q_len;
        HA_TRY(put(l, seq, &fresh, 0, first, step->q_len, l->tokens[b]));
        if (any_offloaded(l)) HA_TRY(ha_kv_copy(ctx, ctx->stream, &seq->store, first, &fresh, 0, step->q_len));
        ha_retrieve_add(&c->retrieve, b, &seq->index, fresh.k, first, step->q_len);
    }
    return ha_retrieve_encode(&c->retrieve, l->layer, ctx->stream, 0, ctx->shape->batch);
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

/* What a layer's heads have read: of those that are on the device as a whole by their lists, which come down; of the
 * others what is in their places. */
static enum ha_status learn(const struct ha_layer *l, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = l->shared;
    const struct ha_transfer_layer *held = &c->transfer.layer[l->layer];
    const size_t all = s->batch * s->kv_heads;
    HA_TRY(ctx->api->copy(ctx->stream, c->known, heads_of(l)->list, all * c->list_max * sizeof *c->known, HA_D2H));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    for (size_t i = 0; i < all; i++) {
        const size_t b = i / s->kv_heads, h = i % s->kv_heads;
        const bool here = heads_of(l)->persistent[h];
        const uint32_t *unit = (here ? c->known : held->index) + i * c->list_max,
                       from = here ? ha_vectors_entry(&sequence(l, b)->pool, h) : 0;
        struct told *told = &sequence(l, b)->told[h];
        told->units = held->count[i] / (uint32_t)c->retrieve.unit;
        HA_TRY(ha_list_check(ctx, "keys that the device chose", unit, told->units, c->list_max,
                             from + ha_retrieve_units(&c->retrieve, l->tokens[b]), why));
        for (size_t j = 0; j < told->units; j++) told->unit[j] = unit[j] - from;
        told->missed = here ? 0 : held->missed[i];
        told->similarity = here ? 0 : c->labels.layer[l->layer].similarity[i];
    }
    return HA_OK;
}

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    const size_t sink = option(l, SINK), unit = ((struct chooser *)l->shared)->retrieve.unit;
    if (b == 0 && q_head == 0) HA_TRY(learn(l, why));
    const struct sequence *seq = sequence(l, b);
    const struct told *told = &seq->told[q_head / ha_shape_group(s)];
    for (size_t i = 0; i < told->units; i++) {
        const size_t first = sink + told->unit[i] * unit;
        HA_TRY(ha_positions_add_range(l->ctx, &used->device, first, first + unit, why));
    }
    return ha_kept_use(l->ctx, &seq->kept, l->tokens[b], s->q_len, &used->device, why);
}

static void report(const struct ha_layer *l, size_t b, size_t q_head, struct ha_selection *out)
{
    const size_t head = q_head / ha_shape_group(l->ctx->shape);
    const struct told *told = &sequence(l, b)->told[head];
    const bool here = heads_of(l)->persistent[head];
    out->note[out->notes++] = (struct ha_note){ "persistent", here };
    if (here) return;
    out->note[out->notes++] = (struct ha_note){ "hit", !told->missed };
    out->note[out->notes++] = (struct ha_note){ "similarity",
                                                isfinite(told->similarity) ? (double)told->similarity : -2 };
}

static void count(const struct ha_layer *l, ha_count *say, void *arg)
{
    const struct chooser *c = l->shared;
    const struct heads *of = heads_of(l);
    const struct ha_transfer_layer *moved = &c->transfer.layer[l->layer];
    ha_worker_wait(l->ctx->worker, moved->ticket); /* of a step that is over */
    say(arg, "persistent", l->layer, (double)of->count);
    say(arg, "encode_ns", l->layer, of->encode_ns);
    say(arg, "offload_ns", l->layer, of->offload_ns);
    say(arg, "hits", l->layer, of->hits);
    say(arg, "misses", l->layer, moved->moved);
    say(arg, "left_out", l->layer, of->left_out);
    say(arg, "moved_bytes", l->layer, moved->bytes);
    if (of->labels > 0) say(arg, "similarity", l->layer, of->similarity / of->labels);
    if (of->low.of > 0) say(arg, "overlap_low", l->layer, of->low.units / of->low.of);
    if (of->high.of > 0) say(arg, "overlap_high", l->layer, of->high.units / of->high.of);
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .shared_bytes = sizeof(struct chooser),
    .share = share,
    .drain = drain,
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
