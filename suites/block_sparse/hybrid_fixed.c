/* Block-sparse attention on both sides, with one block size and one budget for all heads: the first tokens (sink) and
 * the recent ones stay on the device, which attends over all of them; everything between is in host memory, where the
 * CPU scores blocks by their digests and attends over those of largest score. Merged on the device from the
 * log-sum-exps. What Fluxion is compared with, and, but for the fixed choice, what it consists of.
 *
 * On the critical path: q down; device attention over sink, recent and new tokens beside the CPU's choice and its
 * attention; merge with a zero-copy read of the CPU's part. Off it, in place before the layer's next step: a block that
 * is no longer recent goes to host memory, is packed, and gets its digest. */

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/why.h"
#include "suites/parts/choose.h"
#include "suites/parts/digests.h"
#include "suites/parts/frame.h"
#include "suites/parts/places.h"
#include "suites/parts/tail.h"

enum { SINK, RECENT, BLOCK, BUDGET, DIGEST, GROUP, LAYOUT };
static const struct ha_param params[] = {
    [SINK] = { "sink", 64, 0, 1 << 24, "first tokens that stay on the device", .whole = true, .draw = "0..128" },
    [RECENT] = { "recent", 256, 0, 1 << 24, "last tokens that stay on the device", .whole = true, .draw = "0..300" },
    [BLOCK] = { "block", 16, 8, 128, "tokens of a block; 8 where layout=natural", .whole = true, .power_of_2 = true,
                .draw = "16 32 64 128" },
    [BUDGET] = { "budget", 0.05, 1e-6, 1, "share of the blocks in host memory that a head reads",
                 .draw = "0.02 0.05 0.3 1" },
    [DIGEST] = HA_DIGEST_KIND,
    [GROUP] = HA_GROUP_RULE(HA_GROUP_HEAD, ha_group_word),
    [LAYOUT] = HA_KV_LAYOUT("K and V in host memory", HA_KV_PACKED),
};

/* Tokens [0, sinks), then blocks in the store, then the tail; but all of the sink before anything else. */
struct sequence {
    struct ha_kv sink; /* device */
    size_t sinks;      /* tokens in it */
    struct ha_tail tail;
    struct ha_kv_store store;
    struct ha_digests digests; /* of all that is in the store */
    double upkeep_ns;          /* of the digests, in all steps */
};

/* For all layers, which follow each other. */
struct chooser {
    struct ha_choose choose;
    size_t lists;            /* of a sequence */
    uint32_t *index, *count; /* [batch][lists][list_max], [batch][lists] */
};

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static bool by_head(const struct ha_context *ctx) { return (int)ctx->param[GROUP] == HA_GROUP_HEAD; }
static struct sequence *sequence(const struct ha_layer *l, size_t b) { return (struct sequence *)l->own + b; }

/* ---- before the first step ---------------------------------------------------------------- */

static enum ha_status agree(const double *param, struct ha_why *why)
{
    if (param[BLOCK] >= 16 || (enum ha_kv_layout)param[LAYOUT] == HA_KV_NATURAL) return HA_OK;
    return ha_why(why, HA_ERROR, "blocks of %.0f tokens: 16, 32, 64 or 128 where layout=packed", param[BLOCK]);
}

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = first->shared;
    const size_t blocks = ha_most(ha_kv_longest(s) / option(first, BLOCK), 1);
    HA_TRY(ha_choose_create(&c->choose, ctx, (enum ha_group)option(first, GROUP),
                            ha_share_of(ctx->param[BUDGET], blocks), blocks, why));
    c->choose.share = ctx->param[BUDGET];
    c->lists = s->kv_heads * c->choose.lists;
    c->index = ha_alloc(ctx->arena, s->batch * c->lists * c->choose.list_max * sizeof *c->index, HA_TAG_META, why);
    c->count = c->index ? ha_alloc(ctx->arena, s->batch * c->lists * sizeof *c->count, HA_TAG_META, why) : NULL;
    return c->count ? HA_OK : HA_ERROR;
}

enum { SINKS, TAIL, PIECES };
static size_t rows(const struct ha_layer *l, size_t b, size_t piece)
{
    const struct ha_shape *s = l->ctx->shape;
    const size_t all = ha_kv_max_tokens(s, b), sink = ha_least(option(l, SINK), all);
    return piece == SINKS ? sink : ha_tail_rows(s, option(l, BLOCK), option(l, RECENT), ha_most(all - sink, 1));
}

static const unsigned char *place(const struct ha_layer *l, size_t b, size_t position)
{
    const struct sequence *seq = sequence(l, b);
    if (position < seq->sink.cap) return seq->sink.k + position * ha_kv_token_bytes(l->ctx->shape);
    return ha_ring_place(l->ctx->shape, &seq->tail.ring, position - seq->sink.cap);
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    struct sequence *seq = sequence(l, b);
    struct ha_kv piece[PIECES];
    const size_t all = ha_kv_max_tokens(ctx->shape, b), block = option(l, BLOCK);
    HA_TRY(ha_places_open(l, b, PIECES, rows, piece, why));
    seq->sink = piece[SINKS];
    seq->tail = ha_tail_of(block, option(l, RECENT), &piece[TAIL]);
    HA_TRY(ha_kv_store_create_for(ctx, ha_kv_is_packed(ctx, option(l, LAYOUT)),
                                  ha_tail_gone(&seq->tail, all - seq->sink.cap) * block, ctx->shape->q_len + block - 1,
                                  &seq->store, why));
    return ha_digests_create(ctx, HA_MEM_PINNED, block, b, &seq->digests, why);
}

static void summarise(const struct ha_layer *l, struct sequence *seq)
{
    ha_digests_of_store(l->ctx, (enum ha_digest_kind)option(l, DIGEST), &seq->digests, &seq->store);
}

static enum ha_status hybrid_fixed_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in,
                                           struct ha_why *why)
{
    struct sequence *seq = sequence(l, b);
    seq->sinks = ha_least(seq->sink.cap, l->tokens[b]);
    HA_TRY(ha_kv_load(l->ctx, &seq->sink, 0, in, b, 0, seq->sinks));
    HA_TRY(ha_tail_load(l->ctx, &seq->tail, in, b, seq->sinks));
    HA_TRY(ha_kv_store_load_range(l->ctx, &seq->store, in, b, seq->sinks, seq->tail.ring.first));
    summarise(l, seq);
    return HA_OK;
}

/* ---- one step --------------------------------------------------------------------------------- */

static enum ha_status choose(struct ha_layer *l, const float *q, struct ha_why *why)
{
    const struct sequence *seq = l->own;
    const struct chooser *c = l->shared;
    const uint64_t begin = ha_now_ns();
    ha_choose_blocks(&c->choose, q, &seq->digests, sizeof *seq, c->index, c->count);
    ha_frame_selected(l, begin);
    return HA_OK;
}

/* Unit u has list u, of its query head or KV head. */
static void cpu(struct ha_layer *l, size_t b, size_t u, struct ha_attend *a, struct ha_rows *run)
{
    const struct chooser *c = l->shared;
    const size_t list = b * c->lists + u;
    ha_kv_store_blocks(l->ctx->shape, &sequence(l, b)->store, u / c->choose.lists, option(l, BLOCK),
                       c->index + list * c->choose.list_max, c->count[list], a, run);
}

/* dense attention over what is on the device and the new tokens */
static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct sequence *seq = sequence(l, b);
    const struct ha_kv fresh = ha_kv_of_step(s, step, b);
    d->runs[0] = ha_kv_rows(s, &seq->sink, 0, 0, seq->sinks);
    d->runs_count = 1 + ha_ring_runs(s, &seq->tail.ring, d->runs + 1);
    d->runs[d->runs_count++] = ha_kv_rows(s, &fresh, 0, 0, step->q_len);
}

static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    struct sequence *seq = sequence(l, b);
    const size_t sinks = ha_least(seq->sink.cap - seq->sinks, fresh->cap);
    if (!l->placed) HA_TRY(ha_kv_copy(l->ctx, l->ctx->stream, &seq->sink, seq->sinks, fresh, 0, sinks));
    seq->sinks += sinks;
    if (l->placed) seq->tail.ring.end += fresh->cap - sinks;
    if (l->placed) return HA_OK;
    return ha_ring_append(l->ctx, l->ctx->stream, &seq->tail.ring, fresh, sinks, fresh->cap - sinks);
}

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct sequence *seq = sequence(l, b);
    const struct chooser *c = l->shared;
    const size_t list = b * c->lists + q_head * c->lists / l->ctx->shape->q_heads, block = option(l, BLOCK);
    const uint32_t *index = c->index + list * c->choose.list_max;
    HA_TRY(ha_positions_add_range(l->ctx, &used->device, 0, seq->sinks, why));
    HA_TRY(ha_positions_add_range(l->ctx, &used->device, seq->sinks + seq->tail.ring.first,
                                  l->tokens[b] + l->ctx->shape->q_len, why));
    return ha_positions_add_blocks(l->ctx, &used->host, seq->sinks, block, index, c->count[list], why);
}

/* ---- off the critical path -------------------------------------------------------------------- */

/* Blocks that are no longer recent, to the store. */
static enum ha_status leave(struct ha_layer *l, struct ha_stream *post, struct ha_why *why)
{
    for (size_t b = 0; b < l->ctx->shape->batch; b++) {
        struct sequence *seq = sequence(l, b);
        size_t gone;
        HA_TRY(ha_tail_leave_to_store(l->ctx, post, &seq->tail, &seq->store, &gone));
        l->due |= gone > 0;
    }
    return HA_OK;
}

static enum ha_status settle(struct ha_layer *l, struct ha_why *why)
{
    for (size_t b = 0; b < l->ctx->shape->batch; b++) {
        struct sequence *seq = sequence(l, b);
        ha_kv_store_pack(l->ctx, &seq->store);
        const uint64_t begin = ha_now_ns();
        summarise(l, seq);
        seq->upkeep_ns += (double)(ha_now_ns() - begin);
    }
    return HA_OK;
}

static void hybrid_fixed_count(const struct ha_layer *l, ha_count *say, void *arg)
{
    double upkeep_ns = 0, blocks = 0;
    for (size_t b = 0; b < l->ctx->shape->batch; b++) {
        upkeep_ns += sequence(l, b)->upkeep_ns;
        blocks += (double)sequence(l, b)->digests.blocks;
    }
    say(arg, "digest_ns", l->layer, upkeep_ns);
    say(arg, "host_blocks", l->layer, blocks / (double)l->ctx->shape->batch);
}

static enum ha_status rewind_sequence(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct sequence *seq = sequence(l, b);
    seq->sinks = ha_least(seq->sink.cap, l->tokens[b]);
    HA_TRY(ha_tail_rewind_from_store(l->ctx, &seq->tail, &seq->store, seq->digests.row, l->tokens[b] - seq->sinks));
    ha_kv_store_rewind(l->ctx, &seq->store, seq->tail.ring.first);
    seq->digests.blocks = seq->tail.ring.first / seq->tail.unit;
    seq->upkeep_ns = 0;
    return HA_OK;
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .shared_bytes = sizeof(struct chooser),
    .share = share,
    .open = open,
    .prefill = hybrid_fixed_prefill,
    .append = append,
    .place = place,
    .appends_last = true,
    .use = use,
    .device = device,
    .choose = choose,
    .by_head = by_head,
    .cpu = cpu,
    .post = leave,
    .settle = settle,
    .count = hybrid_fixed_count,
    .rewind = rewind_sequence,
    .cpu_name = "sparse attend",
    .settle_name = "digest",
};

extern const struct ha_variant ha_variant_hybrid_fixed;
const struct ha_variant ha_variant_hybrid_fixed = {
    .name = "hybrid_fixed",
    .family = "block_sparse",
    .doc = "first and recent tokens on the device, blocks of the others chosen and attended over by the CPU, merged",
    .source = "Fluxion, section 8 (the baseline w/o Fluxion)",
    .contract = HA_BOUNDED,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_MERGE | HA_NEEDS_COPY_2D,
    .counters = ha_frame_counters,
    .rewind = ha_frame_rewind,
    .agree = agree,
    HA_FRAME(rule),
};
