/* A cache of blocks on the device for each KV head, whose list the CPU keeps: what RetroInfer (lookup=cpu) and PQCache
 * (lookup=device) do, and CLO is measured against (CLO, section 2.2.2, figure 1, table 1). All KV is in host memory;
 * the first tokens and the last ones are on the device besides. In a step the device chooses blocks by their digests.
 * Cache look-up: an index map says which of them the cache has. Data access: these are read where they are; the others
 * come over the link to temporary blocks behind the slots, and attention reads both in place. Cache update: while it
 * does, the CPU promotes, replaces and inserts what was chosen in the list, and then the device copies the temporary
 * blocks into the slots that they got.
 *
 * What the paper leaves open is decided in docs/variants/lru_blocks.md. */

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/order.h"
#include "harness/base/why.h"
#include "harness/base/worker.h"
#include "suites/parts/block_cache.h"
#include "suites/parts/device_choice.h"
#include "suites/parts/fetch.h"
#include "suites/parts/kept.h"
#include "suites/parts/listed.h"

#include <string.h>

enum lookup { BY_CPU, BY_DEVICE };
HA_WORDS(lookup_word, [BY_CPU] = "cpu", [BY_DEVICE] = "device")

enum { BLOCK, BUDGET, CAPACITY, SINK, RECENT, POLICY, LOOKUP, DIGEST, FETCH };
static const struct ha_param params[] = {
    [BLOCK] = { "block", 16, 8, 128, "tokens of a block: 8, 16, 32, 64 or 128", .whole = true, .power_of_2 = true,
                .draw = "8 16 32 64 128" },
    [BUDGET] = { "budget", 0.1, 1e-6, 1, "share of the context's blocks that a KV head reads",
                 .draw = "0.02 0.1 0.5 1" },
    [CAPACITY] = { "capacity", 3, 1, 1e6, "blocks of a cache, times those that are read", .draw = "1..4" },
    [SINK] = { "sink", 4, 0, 1 << 24, "first tokens that stay on the device", .whole = true, .draw = "0..70" },
    [RECENT] = { "recent", 64, 0, 1 << 24, "last tokens that stay there", .whole = true, .draw = "0..70" },
    [POLICY] = HA_BLOCK_POLICY,
    [LOOKUP] = { "lookup", BY_CPU, .word = lookup_word,
                 .doc = "who looks up which blocks the cache has: the CPU, or the device by a copy of the index map" },
    [DIGEST] = HA_DIGEST_KIND,
    [FETCH] = HA_FETCH_WAY,
};

struct sequence {
    struct ha_kv store, rest; /* host memory: all tokens; from the first on that is no sink */
    struct ha_kept kept;
    struct ha_kv cache; /* device: slots, and behind them temporary blocks */
    struct ha_digests digests;
};

/* What there is of a layer. Lists are [batch][kv_heads][list_max]. */
struct cached {
    uint32_t *chosen;                 /* pinned: the lists of the step */
    size_t *count;                    /* [batch] of a list of the sequence, in the step */
    uint32_t *hits, *replaced;        /* [batch][kv_heads], in the step */
    uint32_t *map_device;             /* of lookup=device: the index maps as they were after the last step */
    struct ha_event *came, *attended; /* the lists are here; the attention has been */
    double all, found, evicted, lookup_ns, list_ns, merge_ns; /* sums since the prefill */
};

/* For all layers, which follow each other on one stream, and their updates on another. */
struct caches {
    struct ha_device_choice choice;
    struct ha_block_cache cache;
    struct ha_fetch fetch;
    struct cached *layer;          /* [layers] */
    size_t *most;                  /* [batch] blocks that a list chooses */
    size_t list_max;               /* the most of these */
    uint32_t *place, *to;          /* pinned, host: where the blocks of a list are read; which slots they get */
    uint32_t *place_device;        /* what attention reads by */
    uint32_t *missing;             /* mapped: lists of the blocks that the cache does not have */
    uint32_t *missing_count;       /* mapped: [batch][kv_heads] */
    struct ha_fetch_list *list;    /* [batch][kv_heads] */
    struct ha_event *begun, *made; /* the choice is */
    /* of lookup=device */
    struct ha_device_split_seq *split; /* [batch] */
    uint32_t *here_count, *name;       /* device: [batch][kv_heads]; 0, 1, ... */
    uint32_t *named, *named_to;        /* mapped: which of these become which entries of place_device */
    /* the update */
    struct ha_stream *merging;
    struct ha_event *merged;
    uint32_t *from, *into; /* mapped: rows of a head, of one sequence after the other */
    size_t *rows;          /* [batch] so many of them */
};

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static struct sequence *sequence(const struct ha_layer *l, size_t b) { return (struct sequence *)l->own + b; }
static struct cached *cached(const struct ha_layer *l) { return &((struct caches *)l->shared)->layer[l->layer]; }
static bool on_device(const struct ha_layer *l) { return option(l, LOOKUP) == BY_DEVICE; }
static size_t lists(const struct ha_layer *l) { return l->ctx->shape->batch * l->ctx->shape->kv_heads; }

/* blocks that begin behind the sinks and are whole before the last `recent` of so many tokens */
static size_t blocks_of(const struct ha_layer *l, size_t recent, size_t tokens)
{
    const size_t kept = option(l, SINK) + recent;
    return tokens > kept ? (tokens - kept) / option(l, BLOCK) : 0;
}
static size_t candidates(const struct ha_layer *l, size_t tokens) { return blocks_of(l, option(l, RECENT), tokens); }
static size_t slots_of(const struct caches *c, size_t layer, size_t b)
{
    return ha_block_list_of(&c->cache, layer, b, 0)->slots;
}

/* ---- create ------------------------------------------------------------------------------------------------------ */

static uint32_t *numbers(const struct ha_layer *l, enum ha_memory memory, size_t count, enum ha_tag tag,
                         struct ha_why *why)
{
    return ha_device_alloc(l->ctx->device_arena, memory, count * sizeof(uint32_t), tag, why);
}
static void *host(const struct ha_layer *l, size_t bytes, enum ha_tag tag, struct ha_why *why)
{
    void *x = ha_alloc(l->ctx->arena, bytes, tag, why);
    return x ? memset(x, 0, bytes) : NULL;
}

/* What of its blocks each sequence chooses, and how many it can have in its caches: no more than there ever are. */
static enum ha_status make_lists(const struct ha_layer *l, struct caches *c, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    size_t *slots = host(l, s->batch * sizeof *slots, HA_TAG_SCRATCH, why);
    c->most = slots ? host(l, s->batch * sizeof *c->most, HA_TAG_META, why) : NULL;
    if (!c->most) return HA_ERROR;
    c->list_max = 1;
    for (size_t b = 0; b < s->batch; b++) {
        const size_t ever = candidates(l, ha_kv_max_tokens(s, b)),
                     k = ha_most(ha_share_of(ctx->param[BUDGET], candidates(l, s->ctx[b])), 1);
        const double has = ctx->param[CAPACITY] * (double)k * (1 + 1e-12);
        c->most[b] = ha_least(k, ever);
        slots[b] = has < (double)ever ? ha_most((size_t)has, c->most[b]) : ever;
        c->list_max = ha_most(c->list_max, c->most[b]);
    }
    return ha_block_cache_create(&c->cache, ctx, option(l, POLICY), slots, ha_device_choice_blocks(s, option(l, BLOCK)),
                                 s->steps, why);
}

static enum ha_status make_look_up(const struct ha_layer *l, struct caches *c, struct ha_why *why)
{
    const size_t all = lists(l) * c->list_max;
    size_t named = 0;
    c->place = numbers(l, HA_MEM_PINNED, all, HA_TAG_SCRATCH, why);
    c->place_device = c->place ? numbers(l, HA_MEM_DEVICE, all, HA_TAG_SCRATCH, why) : NULL;
    c->missing = c->place_device ? numbers(l, HA_MEM_MAPPED, all, HA_TAG_SCRATCH, why) : NULL;
    c->missing_count = c->missing ? numbers(l, HA_MEM_MAPPED, lists(l), HA_TAG_SCRATCH, why) : NULL;
    c->list = c->missing_count ? host(l, lists(l) * sizeof *c->list, HA_TAG_SCRATCH, why) : NULL;
    if (!c->list || !on_device(l)) return c->list ? HA_OK : HA_ERROR;
    for (size_t b = 0; b < l->ctx->shape->batch; b++) named = ha_most(named, slots_of(c, 0, b) + c->most[b]);
    c->split = host(l, l->ctx->shape->batch * sizeof *c->split, HA_TAG_SCRATCH, why);
    c->here_count = c->split ? numbers(l, HA_MEM_DEVICE, lists(l), HA_TAG_SCRATCH, why) : NULL;
    c->named = c->here_count ? numbers(l, HA_MEM_MAPPED, all, HA_TAG_SCRATCH, why) : NULL;
    c->named_to = c->named ? numbers(l, HA_MEM_MAPPED, all, HA_TAG_SCRATCH, why) : NULL;
    if (!c->named_to) return HA_ERROR;
    return ha_fetch_name_rows(l->ctx, named, named + 1, &c->name, why);
}

static enum ha_status make_update(const struct ha_layer *l, struct caches *c, struct ha_why *why)
{
    const size_t all = lists(l) * c->list_max;
    c->to = host(l, all * sizeof *c->to, HA_TAG_SCRATCH, why);
    c->rows = c->to ? host(l, l->ctx->shape->batch * sizeof *c->rows, HA_TAG_SCRATCH, why) : NULL;
    c->from = c->rows ? numbers(l, HA_MEM_MAPPED, all * option(l, BLOCK), HA_TAG_SCRATCH, why) : NULL;
    c->into = c->from ? numbers(l, HA_MEM_MAPPED, all * option(l, BLOCK), HA_TAG_SCRATCH, why) : NULL;
    if (!c->into) return HA_ERROR;
    HA_TRY(ha_device_event(l->ctx->device_arena, &c->begun, why));
    HA_TRY(ha_device_event(l->ctx->device_arena, &c->made, why));
    HA_TRY(ha_device_event(l->ctx->device_arena, &c->merged, why));
    return ha_frame_stream(l, "merge", &c->merging, why);
}

static enum ha_status make_layer(const struct ha_layer *l, const struct caches *c, struct cached *of,
                                 struct ha_why *why)
{
    const size_t map = lists(l) * c->cache.blocks;
    of->chosen = numbers(l, HA_MEM_PINNED, lists(l) * c->list_max, HA_TAG_SCRATCH, why);
    of->count = of->chosen ? host(l, l->ctx->shape->batch * sizeof *of->count, HA_TAG_SCRATCH, why) : NULL;
    of->hits = of->count ? host(l, lists(l) * sizeof *of->hits, HA_TAG_SCRATCH, why) : NULL;
    of->replaced = of->hits ? host(l, lists(l) * sizeof *of->replaced, HA_TAG_SCRATCH, why) : NULL;
    if (!of->replaced) return HA_ERROR;
    if (on_device(l)) of->map_device = numbers(l, HA_MEM_DEVICE, map, HA_TAG_META, why);
    if (on_device(l) && !of->map_device) return HA_ERROR;
    HA_TRY(ha_device_event(l->ctx->device_arena, &of->came, why));
    return ha_device_event(l->ctx->device_arena, &of->attended, why);
}

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    struct caches *c = first->shared;
    if (on_device(first) && !ctx->api->split)
        return ha_why(why, HA_WAIVED, "the device has no operation split; lookup=cpu needs none");
    HA_TRY(ha_kv_mapped(ctx, why)); /* digests are made of the store */
    HA_TRY(make_lists(first, c, why));
    const size_t rows = lists(first) * c->list_max * option(first, BLOCK);
    HA_TRY(ha_device_choice_create(&c->choice, ctx, HA_GROUP_MAX, (enum ha_digest_kind)option(first, DIGEST),
                                   option(first, BLOCK), c->list_max, why));
    HA_TRY(ha_fetch_create(&c->fetch, ctx, (enum ha_fetch_way)option(first, FETCH), 2, lists(first), rows,
                           rows * ha_kv_head_bytes(s), why));
    HA_TRY(make_look_up(first, c, why));
    HA_TRY(make_update(first, c, why));
    c->layer = host(first, s->layers * sizeof *c->layer, HA_TAG_META, why);
    if (!c->layer) return HA_ERROR;
    for (size_t i = 0; i < s->layers; i++) HA_TRY(make_layer(first, c, &c->layer[i], why));
    return HA_OK;
}

/* ---- what is kept, and where ------------------------------------------------------------------------------------- */

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct caches *c = l->shared;
    struct sequence *seq = sequence(l, b);
    l->lists = s->kv_heads;
    l->block = option(l, BLOCK);
    HA_TRY(ha_kv_create(ctx, HA_MEM_MAPPED, ha_kv_max_tokens(s, b), &seq->store, why));
    const size_t sinks = ha_least(option(l, SINK), seq->store.cap);
    seq->rest = seq->store;
    seq->rest.k += sinks * ha_kv_token_bytes(s);
    seq->rest.v += sinks * ha_kv_token_bytes(s);
    seq->rest.cap -= sinks;
    HA_TRY(ha_kept_create(ctx, option(l, SINK), option(l, RECENT), b, &seq->kept, why));
    HA_TRY(ha_kv_create(ctx, HA_MEM_DEVICE, (slots_of(c, l->layer, b) + c->most[b]) * l->block, &seq->cache, why));
    return ha_digests_create(ctx, HA_MEM_DEVICE, l->block, b, &seq->digests, why);
}

static enum ha_status prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const size_t tokens = ctx->shape->ctx[b];
    const struct sequence *seq = sequence(l, b);
    HA_TRY(ha_kv_load(ctx, &seq->store, 0, in, b, 0, tokens));
    return ha_kept_put(ctx, &seq->kept, &seq->store, 0, 0, tokens, tokens);
}

/* Enqueues the digests of blocks that have become whole. */
static enum ha_status digest(const struct ha_layer *l)
{
    const struct caches *c = l->shared;
    bool any;
    for (size_t b = 0; b < l->ctx->shape->batch; b++) {
        struct sequence *seq = sequence(l, b);
        const size_t tokens = l->tokens[b] - ha_least(option(l, SINK), l->tokens[b]);
        c->choice.digest[b] = ha_digests_due(l->ctx->shape, &seq->digests, &seq->rest, tokens);
    }
    return ha_device_choice_digest(&c->choice, &any);
}

/* A layer's index maps to the device. */
static enum ha_status tell(const struct ha_layer *l, struct ha_stream *stream)
{
    const struct caches *c = l->shared;
    const size_t bytes = lists(l) * c->cache.blocks * sizeof(uint32_t);
    if (!on_device(l) || !bytes) return HA_OK;
    return l->ctx->api->copy(stream, cached(l)->map_device, ha_block_map_of(&c->cache, l->layer), bytes, HA_H2D);
}

/* Before the first step the caches are empty. */
static enum ha_status ready(struct ha_layer *l, struct ha_why *why)
{
    struct caches *c = l->shared;
    struct cached *of = cached(l);
    of->all = of->found = of->evicted = of->lookup_ns = of->list_ns = of->merge_ns = 0;
    ha_block_cache_clear(&c->cache, l->layer);
    HA_TRY(tell(l, l->ctx->stream));
    HA_TRY(digest(l));
    return l->ctx->api->stream_sync(l->ctx->stream);
}

static enum ha_status rewind(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const size_t n = l->tokens[b];
    struct sequence *seq = sequence(l, b);
    const size_t window = ha_kept_window(&seq->kept, n);
    seq->digests.blocks = ha_least(seq->digests.blocks, blocks_of(l, 0, n));
    return ha_kept_put(l->ctx, &seq->kept, &seq->store, window, window, n - window, n);
}

/* ---- a step: the choice ------------------------------------------------------------------------------------------ */

/* The blocks of largest score, which come down; with lookup=device they are looked up there as well. */
static enum ha_status choose(const struct ha_layer *l, const float *q)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct caches *c = l->shared;
    const struct cached *of = cached(l);
    for (size_t b = 0; b < s->batch; b++) {
        struct ha_digests before = sequence(l, b)->digests; /* the recent tokens */
        before.blocks = candidates(l, l->tokens[b]);
        of->count[b] = ha_least(c->most[b], before.blocks);
        ha_device_choice_ask(&c->choice, b, q, &before, of->count[b]);
    }
    HA_TRY(ctx->api->event_record(c->begun, ctx->stream));
    HA_TRY(ha_device_choice_run(&c->choice));
    HA_TRY(ctx->api->event_record(c->made, ctx->stream));
    for (size_t b = 0; b < s->batch && on_device(l); b++) {
        const size_t list = b * s->kv_heads, at = list * c->list_max;
        c->split[b] = (struct ha_device_split_seq){ .index = c->choice.index + at,
                                                    .count = of->count[b],
                                                    .index_stride = c->list_max,
                                                    .slot = of->map_device + list * c->cache.blocks,
                                                    .blocks = c->cache.blocks,
                                                    .slot_stride = c->cache.blocks,
                                                    .here = c->place_device + at,
                                                    .here_count = c->here_count + list,
                                                    .missing = c->missing + at,
                                                    .missing_count = c->missing_count + list,
                                                    .out_stride = c->list_max };
    }
    const struct ha_device_split split = { s->batch, s->kv_heads, s->kv_heads, c->split };
    if (on_device(l)) HA_TRY(ctx->api->split(ctx->stream, &split));
    HA_TRY(
        ctx->api->copy(ctx->stream, of->chosen, c->choice.index, lists(l) * c->list_max * sizeof *of->chosen, HA_D2H));
    return ctx->api->event_record(of->came, ctx->stream);
}

/* A list of blocks that the device has made: what is looked up, read and written by it is looked at first. */
static enum ha_status check(const struct ha_layer *l, const char *what, const uint32_t *block, size_t count, size_t b,
                            struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const size_t most = cached(l)->count[b];
    ha_order_thread_access("look-up", what, HA_READ, block, 1, 0, count * sizeof *block);
    HA_TRY(ha_list_check(ctx, what, block, count, most, candidates(l, l->tokens[b]), why));
    for (size_t i = 1; i < count; i++)
        if (block[i] <= block[i - 1])
            return ha_list_refuse(ctx, why, "%s: a list does not rise: %u behind %u", what, (unsigned)block[i],
                                  (unsigned)block[i - 1]);
    return HA_OK;
}

/* ---- cache look-up: which blocks the cache has, and where attention reads each of the list ----------------------- */

static enum ha_status look_up_by_cpu(const struct ha_layer *l, struct ha_why *why)
{
    const struct caches *c = l->shared;
    const struct cached *of = cached(l);
    const size_t heads = l->ctx->shape->kv_heads, bytes = lists(l) * c->list_max * sizeof *c->place;
    ha_order_thread_access("look-up", "places", HA_WRITE, c->place, 1, 0, bytes);
    for (size_t i = 0; i < lists(l); i++) {
        const size_t b = i / heads, at = i * c->list_max;
        const struct ha_block_list *list = ha_block_list_of(&c->cache, l->layer, b, i % heads);
        c->missing_count[i] = (uint32_t)ha_block_list_find(list, of->chosen + at, of->count[b], c->place + at,
                                                           c->missing + at);
    }
    return l->ctx->api->copy(l->ctx->stream, c->place_device, c->place, bytes, HA_H2D);
}

/* The device has written the slots of those that are there; the temporary blocks follow. */
static enum ha_status name_missing(const struct ha_layer *l, struct ha_why *why)
{
    const struct caches *c = l->shared;
    const size_t heads = l->ctx->shape->kv_heads, all = lists(l) * c->list_max;
    size_t n = 0;
    ha_order_thread_access("look-up", "missing", HA_READ, c->missing_count, 1, 0, lists(l) * sizeof *c->missing_count);
    ha_order_thread_access("look-up", "names", HA_WRITE, c->named, 1, 0, all * sizeof *c->named);
    ha_order_thread_access("look-up", "names", HA_WRITE, c->named_to, 1, 0, all * sizeof *c->named_to);
    for (size_t i = 0; i < lists(l); i++) {
        const size_t b = i / heads, count = cached(l)->count[b], missing = c->missing_count[i];
        HA_TRY(check(l, "blocks that the device misses", c->missing + i * c->list_max, missing, b, why));
        for (size_t j = 0; j < missing; j++, n++) {
            c->named[n] = (uint32_t)(slots_of(c, l->layer, b) + j);
            c->named_to[n] = (uint32_t)(i * c->list_max + count - missing + j);
        }
    }
    if (!n) return HA_OK;
    return l->ctx->api->move(l->ctx->stream, &(struct ha_device_move){ .dst = c->place_device,
                                                                       .src = c->name,
                                                                       .dst_index = c->named_to,
                                                                       .src_index = c->named,
                                                                       .rows = n,
                                                                       .row_bytes = sizeof *c->name,
                                                                       .dst_stride_bytes = sizeof *c->name,
                                                                       .src_stride_bytes = sizeof *c->name });
}

static enum ha_status look_up(const struct ha_layer *l, struct ha_why *why)
{
    const struct caches *c = l->shared;
    struct cached *of = cached(l);
    HA_TRY(on_device(l) ? name_missing(l, why) : look_up_by_cpu(l, why));
    for (size_t i = 0; i < lists(l); i++) {
        const size_t count = of->count[i / l->ctx->shape->kv_heads];
        of->hits[i] = (uint32_t)count - c->missing_count[i];
        of->all += (double)count;
        of->found += of->hits[i];
    }
    return HA_OK;
}

/* ---- data access: what is missing to the temporary blocks; attention over slots and these ------------------------ */

static enum ha_status fetch(const struct ha_layer *l, struct ha_why *why)
{
    struct caches *c = l->shared;
    const size_t heads = l->ctx->shape->kv_heads;
    for (size_t i = 0; i < lists(l); i++) {
        const struct sequence *seq = sequence(l, i / heads);
        c->list[i] = (struct ha_fetch_list){ .from = &seq->rest,
                                             .to = &seq->cache,
                                             .head = i % heads,
                                             .index = c->missing + i * c->list_max,
                                             .count = c->missing_count[i],
                                             .unit = l->block,
                                             .at = slots_of(c, l->layer, i / heads) * l->block };
    }
    return ha_fetch_run(&c->fetch, l->ctx->stream, c->list, lists(l), why);
}

/* The update after the step before is over: the frame has waited for it. */
static enum ha_status before(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_device_api *api = l->ctx->api;
    const struct caches *c = l->shared;
    struct cached *of = cached(l);
    HA_TRY(choose(l, step->q));
    HA_TRY(api->event_sync(c->begun));
    uint64_t begin = ha_now_ns();
    HA_TRY(api->event_sync(c->made));
    ha_frame_selected(l, begin);
    begin = ha_now_ns();
    HA_TRY(api->event_sync(of->came));
    for (size_t i = 0; i < lists(l); i++) {
        const size_t b = i / l->ctx->shape->kv_heads;
        HA_TRY(check(l, "blocks that the device chose", of->chosen + i * c->list_max, of->count[b], b, why));
    }
    HA_TRY(look_up(l, why));
    of->lookup_ns += (double)(ha_now_ns() - begin);
    return fetch(l, why);
}

/* Slots and temporary blocks, the kept tokens, and the step's own. */
static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct caches *c = l->shared;
    const struct sequence *seq = sequence(l, b);
    const struct ha_kv fresh = ha_kv_of_step(s, step, b);
    d->runs[0] = ha_kv_rows(s, &seq->cache, 0, 0, cached(l)->count[b] * l->block);
    d->runs[0].index = c->place_device + b * s->kv_heads * c->list_max;
    d->list_stride = c->list_max;
    d->runs[1] = ha_kept_rows(s, &seq->kept, l->tokens[b]);
    d->runs[2] = ha_kv_rows(s, &fresh, 0, 0, step->q_len);
    d->runs_count = 3;
}

/* The new tokens to where they are kept, to host memory and into the digests. */
static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    HA_TRY(ctx->api->event_record(cached(l)->attended, ctx->stream));
    for (size_t b = 0; b < ctx->shape->batch; b++) {
        const struct sequence *seq = sequence(l, b);
        const struct ha_kv fresh = ha_kv_of_step(ctx->shape, step, b);
        const size_t first = l->tokens[b] - step->q_len;
        HA_TRY(ha_kept_put(ctx, &seq->kept, &fresh, 0, first, step->q_len, l->tokens[b]));
        HA_TRY(ha_kv_copy(ctx, ctx->stream, &seq->store, first, &fresh, 0, step->q_len));
    }
    l->due = true;
    return digest(l);
}

/* ---- cache update, in the background ----------------------------------------------------------------------------- */

/* Of a list: its temporary blocks are to be copied to the slots `to`. The number of rows. */
static size_t plan(const struct ha_layer *l, size_t list, size_t at)
{
    const struct caches *c = l->shared;
    const size_t heads = l->ctx->shape->kv_heads, b = list / heads, begin = at;
    size_t temporary = slots_of(c, l->layer, b);
    for (size_t i = 0; i < cached(l)->count[b]; i++) {
        const uint32_t slot = c->to[list * c->list_max + i];
        if (slot == HA_SLOT_NONE) continue;
        for (size_t t = 0; t < l->block; t++, at++) {
            c->from[at] = (uint32_t)((temporary * l->block + t) * heads + list % heads);
            c->into[at] = (uint32_t)((slot * l->block + t) * heads + list % heads);
        }
        temporary++;
    }
    return at - begin;
}

/* The CPU's part: lists and index maps. Whether any block came: if none did, the device has nothing to do. */
static bool update(const struct ha_layer *l)
{
    const struct caches *c = l->shared;
    struct cached *of = cached(l);
    const size_t heads = l->ctx->shape->kv_heads, bytes = lists(l) * c->list_max * l->block * sizeof *c->from;
    size_t at = 0;
    ha_order_thread_access("update", "index maps", HA_WRITE, ha_block_map_of(&c->cache, l->layer), 1, 0,
                           lists(l) * c->cache.blocks * sizeof(uint32_t));
    ha_order_thread_access("update", "plan", HA_WRITE, c->from, 1, 0, bytes);
    ha_order_thread_access("update", "plan", HA_WRITE, c->into, 1, 0, bytes);
    for (size_t i = 0; i < lists(l); i++) {
        const size_t b = i / heads;
        struct ha_block_list *list = ha_block_list_of(&c->cache, l->layer, b, i % heads);
        of->replaced[i] = (uint32_t)ha_block_list_use(list, of->chosen + i * c->list_max, of->count[b],
                                                      c->to + i * c->list_max);
        of->evicted += of->replaced[i];
        if (i % heads == 0) c->rows[b] = 0;
        const size_t rows = plan(l, i, at);
        c->rows[b] += rows;
        at += rows;
    }
    return at > 0;
}

/* The device's part: temporary blocks into their slots, and the index maps. */
static enum ha_status merge(const struct ha_layer *l)
{
    const struct ha_context *ctx = l->ctx;
    const struct caches *c = l->shared;
    const size_t row = ha_kv_head_bytes(ctx->shape);
    for (size_t b = 0, at = 0; b < ctx->shape->batch; at += c->rows[b++]) {
        const struct ha_kv *kv = &sequence(l, b)->cache;
        for (int v = 0; v < 2 && c->rows[b]; v++)
            HA_TRY(ctx->api->move(c->merging, &(struct ha_device_move){ .dst = v ? kv->v : kv->k,
                                                                        .src = v ? kv->v : kv->k,
                                                                        .dst_index = c->into + at,
                                                                        .src_index = c->from + at,
                                                                        .rows = c->rows[b],
                                                                        .row_bytes = row,
                                                                        .dst_stride_bytes = row,
                                                                        .src_stride_bytes = row }));
    }
    HA_TRY(tell(l, c->merging));
    HA_TRY(ctx->api->event_record(c->merged, c->merging));
    return ctx->api->event_sync(c->merged);
}

/* The list is kept while the link and the attention are at work; slots are written when nothing reads them. */
static enum ha_status settle(struct ha_layer *l, struct ha_why *why)
{
    struct cached *of = cached(l);
    uint64_t begin = ha_now_ns();
    const bool any = update(l);
    of->list_ns += (double)(ha_now_ns() - begin);
    if (!any) return HA_OK;
    HA_TRY(l->ctx->api->event_sync(of->attended));
    begin = ha_now_ns();
    HA_TRY(merge(l));
    of->merge_ns += (double)(ha_now_ns() - begin);
    return HA_OK;
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct caches *c = l->shared;
    const uint32_t *block = cached(l)->chosen + (b * s->kv_heads + q_head / ha_shape_group(s)) * c->list_max;
    for (size_t i = 0; i < cached(l)->count[b]; i++) {
        const size_t first = option(l, SINK) + block[i] * l->block;
        HA_TRY(ha_positions_add_range(l->ctx, &used->device, first, first + l->block, why));
    }
    return ha_kept_use(l->ctx, &sequence(l, b)->kept, l->tokens[b], s->q_len, &used->device, why);
}

/* Who was replaced is known when the update is over. */
static void report(const struct ha_layer *l, size_t b, size_t q_head, struct ha_selection *out)
{
    const struct ha_shape *s = l->ctx->shape;
    const size_t list = b * s->kv_heads + q_head / ha_shape_group(s);
    ha_worker_wait(l->ctx->worker, l->ticket);
    out->note[out->notes++] = (struct ha_note){ "hits", cached(l)->hits[list] };
    out->note[out->notes++] = (struct ha_note){ "replaced", cached(l)->replaced[list] };
}

static void count(const struct ha_layer *l, ha_count *say, void *arg)
{
    const struct cached *of = cached(l);
    say(arg, "hits", l->layer, of->found);
    say(arg, "misses", l->layer, of->all - of->found);
    say(arg, "replaced", l->layer, of->evicted);
    say(arg, "lookup_ns", l->layer, of->lookup_ns);
    say(arg, "list_ns", l->layer, of->list_ns);
    say(arg, "merge_ns", l->layer, of->merge_ns);
    say(arg, "manage_ns", l->layer, of->lookup_ns + of->list_ns + of->merge_ns);
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .shared_bytes = sizeof(struct caches),
    .share = share,
    .open = open,
    .prefill = prefill,
    .ready = ready,
    .before = before,
    .use = use,
    .report = report,
    .device = device,
    .after = after,
    .settle = settle,
    .count = count,
    .rewind = rewind,
    .settle_name = "cache update",
};

extern const struct ha_variant ha_variant_lru_blocks;
const struct ha_variant ha_variant_lru_blocks = {
    .name = "lru_blocks",
    .family = "similarity_cache",
    .doc = "all KV in host memory, a cache of blocks on the device whose LRU or LFU list the CPU keeps",
    .source = "CLO (Yi et al. 2025), section 2.2.2, of RetroInfer and PQCache",
    .contract = HA_BOUNDED,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_DIGEST | HA_NEEDS_TOPK | HA_NEEDS_MOVE,
    .counters = ha_frame_counters,
    .rewind = ha_frame_rewind,
    HA_FRAME(rule),
};
