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
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "suites/parts/device_choice.h"
#include "suites/parts/kept.h"
#include "suites/parts/places.h"
#include "suites/parts/slots.h"

enum { BLOCK, BUDGET, CAPACITY, SINK, RECENT, POLICY, LOOKUP, DIGEST, FETCH };
static const struct ha_param params[] = {
    [BLOCK] = { "block", 16, 8, 128, "tokens of a block: 8, 16, 32, 64 or 128", .whole = true, .power_of_2 = true,
                .draw = "8 16 32 64 128" },
    [BUDGET] = { "budget", 0.1, 1e-6, 1, "share of the context's blocks that a KV head reads",
                 .draw = "0.02 0.1 0.5 1" },
    [CAPACITY] = { "capacity", 3, 1, 1e6, "blocks of a cache, times those that are read", .draw = "1..4" },
    [SINK] = HA_KEPT_SINK(),
    [RECENT] = HA_KEPT_RECENT(),
    [POLICY] = HA_BLOCK_POLICY(HA_BLOCK_LRU),
    [LOOKUP] = HA_SLOTS_LOOKUP(HA_LOOKUP_CPU),
    [DIGEST] = HA_DIGEST_KIND,
    [FETCH] = HA_FETCH_WAY,
};

struct sequence {
    struct ha_kv store, rest; /* host memory: all tokens; those that are no sinks */
    struct ha_kept kept;
    struct ha_digests digests;
};

/* For all layers, which follow each other on one stream, and their updates on another. */
struct caches {
    struct ha_slots slots; /* first */
    struct ha_device_choice choice;
};

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static struct sequence *sequence(const struct ha_layer *l, size_t b) { return (struct sequence *)l->own + b; }

/* blocks that begin behind the sinks and are whole before the last `recent` of so many tokens */
static size_t blocks_of(const struct ha_layer *l, size_t recent, size_t tokens)
{
    return ha_kept_gone(option(l, SINK), recent, tokens) / option(l, BLOCK);
}
static size_t candidates(const struct ha_layer *l, size_t tokens) { return blocks_of(l, option(l, RECENT), tokens); }

/* ---- what is kept, and where ------------------------------------------------------------------------------------- */

/* What of its blocks each sequence chooses, and how many it can have in its caches: no more than there ever are. */
static void size_caches(const struct ha_layer *l, size_t *most, size_t *has)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    for (size_t b = 0; b < s->batch; b++) {
        const size_t ever = candidates(l, ha_kv_max_tokens(s, b)),
                     k = ha_most(ha_share_of(ctx->param[BUDGET], candidates(l, s->ctx[b])), 1);
        const double wanted = ctx->param[CAPACITY] * (double)k * (1 + 1e-12);
        most[b] = ha_least(k, ever);
        has[b] = wanted < (double)ever ? ha_most((size_t)wanted, most[b]) : ever;
    }
}

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    struct caches *c = first->shared;
    HA_TRY(ha_kv_mapped(ctx, why)); /* digests are made of the store */
    size_t *most = ha_alloc(ctx->arena, 2 * ctx->shape->batch * sizeof *most, HA_TAG_META, why);
    if (!most) return HA_ERROR;
    size_t *has = most + ctx->shape->batch;
    size_caches(first, most, has);
    HA_TRY(ha_slots_create(&c->slots, first,
                           &(struct ha_slots_rule){ .by_device = option(first, LOOKUP) == HA_LOOKUP_DEVICE,
                                                    .policy = option(first, POLICY),
                                                    .unit = option(first, BLOCK),
                                                    .slots = has,
                                                    .most = most,
                                                    .blocks = ha_device_choice_blocks(ctx->shape, option(first, BLOCK)),
                                                    .way = (enum ha_fetch_way)option(first, FETCH) },
                           why));
    return ha_device_choice_create(&c->choice, ctx, HA_GROUP_MAX, (enum ha_digest_kind)option(first, DIGEST),
                                   option(first, BLOCK), c->slots.list_max, why);
}

static size_t rows(const struct ha_layer *l, size_t b, size_t piece)
{
    return ha_kept_cap(l->ctx->shape, option(l, SINK), option(l, RECENT), b);
}

static const unsigned char *place(const struct ha_layer *l, size_t b, size_t position)
{
    return ha_kept_place(l->ctx->shape, &sequence(l, b)->kept, position);
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    struct sequence *seq = sequence(l, b);
    l->lists = ctx->shape->kv_heads;
    l->block = option(l, BLOCK);
    HA_TRY(ha_kv_create(ctx, HA_MEM_MAPPED, ha_kv_max_tokens(ctx->shape, b), &seq->store, why));
    seq->kept = (struct ha_kept){ .sink = option(l, SINK), .recent = option(l, RECENT) };
    HA_TRY(ha_places_open(l, b, 1, rows, &seq->kept.kv, why));
    seq->rest = ha_kept_rest(ctx->shape, &seq->kept, &seq->store);
    HA_TRY(ha_slots_open(l, b, &seq->rest, why));
    return ha_digests_create(ctx, HA_MEM_DEVICE, l->block, b, &seq->digests, why);
}

static enum ha_status lru_blocks_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const size_t tokens = l->ctx->shape->ctx[b];
    const struct sequence *seq = sequence(l, b);
    HA_TRY(ha_kv_load(l->ctx, &seq->store, 0, in, b, 0, tokens));
    return ha_kept_put(l->ctx, &seq->kept, &seq->store, 0, 0, tokens, tokens);
}

/* Enqueues the digests of blocks that have become whole. */
static enum ha_status digest(const struct ha_layer *l)
{
    const struct caches *c = l->shared;
    bool any;
    for (size_t b = 0; b < l->ctx->shape->batch; b++) {
        struct sequence *seq = sequence(l, b);
        const size_t tokens = ha_kept_gone(option(l, SINK), 0, l->tokens[b]);
        c->choice.digest[b] = ha_digests_due(l->ctx->shape, &seq->digests, &seq->rest, tokens);
    }
    return ha_device_choice_digest(&c->choice, &any);
}

/* Before the first step the caches are empty. */
static enum ha_status ready(struct ha_layer *l, struct ha_why *why)
{
    HA_TRY(ha_slots_clear(l));
    HA_TRY(digest(l));
    return l->ctx->api->stream_sync(l->ctx->stream);
}

static enum ha_status rewind(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct sequence *seq = sequence(l, b);
    seq->digests.blocks = ha_least(seq->digests.blocks, blocks_of(l, 0, l->tokens[b]));
    return ha_kept_rewind(l->ctx, &seq->kept, &seq->store, l->tokens[b]);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* The blocks of largest score before the recent tokens. */
static enum ha_status choose(const struct ha_layer *l, const float *q)
{
    const struct ha_context *ctx = l->ctx;
    const struct caches *c = l->shared;
    const struct ha_slots_layer *of = ha_slots_layer_of(l);
    for (size_t b = 0; b < ctx->shape->batch; b++) {
        struct ha_digests before = sequence(l, b)->digests;
        before.blocks = of->end[b] = candidates(l, l->tokens[b]);
        of->count[b] = ha_least(c->slots.rule.most[b], before.blocks);
        ha_device_choice_ask(&c->choice, b, q, &before, of->count[b]);
    }
    HA_TRY(ha_slots_begin(l));
    return ha_device_choice_run(&c->choice);
}

/* Cache look-up, and data access: what is missing comes to the temporary blocks. */
static enum ha_status before(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    HA_TRY(choose(l, step->q));
    return ha_slots_find(l, ((const struct caches *)l->shared)->choice.index, why);
}

/* Slots and temporary blocks, the kept tokens, and the step's own. */
static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    ha_slots_device(l, b, d);
    ha_kept_device(l, &sequence(l, b)->kept, step, b, d);
}

/* The new tokens to where they are kept, to host memory and into the digests. */
static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    HA_TRY(ha_slots_attended(l));
    for (size_t b = 0; b < ctx->shape->batch; b++) {
        const struct sequence *seq = sequence(l, b);
        const struct ha_kv fresh = ha_kv_of_step(ctx->shape, step, b);
        const size_t first = l->tokens[b] - step->q_len;
        if (!l->placed) HA_TRY(ha_kept_put(ctx, &seq->kept, &fresh, 0, first, step->q_len, l->tokens[b]));
        HA_TRY(ha_kv_copy(ctx, ctx->stream, &seq->store, first, &fresh, 0, step->q_len));
    }
    return digest(l);
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct ha_kept *kept = &sequence(l, b)->kept;
    const uint32_t *block = ha_slots_chosen(l, b, q_head);
    HA_TRY(ha_positions_add_blocks(l->ctx, &used->device, kept->sink, l->block, block, ha_slots_layer_of(l)->count[b],
                                   why));
    return ha_kept_use(l->ctx, kept, l->tokens[b], l->ctx->shape->q_len, &used->device, why);
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .shared_bytes = sizeof(struct caches),
    .share = share,
    .open = open,
    .prefill = lru_blocks_prefill,
    .ready = ready,
    .before = before,
    .use = use,
    .device = device,
    .place = place,
    .appends_last = true,
    .after = after,
    .rewind = rewind,
    HA_SLOTS_HOOKS,
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
