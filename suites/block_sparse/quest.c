/* Quest: all KV on the device; each step reads the blocks whose digests promise the largest scores, and the tokens
 * behind the last whole block. A digest is the smallest and the largest value of each dimension, so that a block's
 * score is not below that of any of its keys.
 *
 * Of the paper: it scores with a query head of its own per KV head; with grouped queries (`group`) each query head
 * chooses for itself, or the group by its largest score. The block that new tokens go to has no digest yet and is
 * always read; budgets count whole blocks and leave it out. The paper's first two layers read everything:
 * dense_layers=2. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "suites/parts/choose.h"
#include "suites/parts/digests.h"
#include "suites/parts/frame.h"

enum { BLOCK, BUDGET, DENSE_LAYERS, DIGEST, GROUP };
static const struct ha_param params[] = {
    [BLOCK] = { "block", 16, 8, 128, "tokens of a block", .whole = true, .draw = "8 16 32 64 128" },
    [BUDGET] = { "budget", 1024, 1, 1 << 24, "tokens of the blocks that a head reads", .whole = true,
                 .draw = "1..2048" },
    [DENSE_LAYERS] = { "dense_layers", 0, 0, 1 << 16, "so many first layers read everything", .whole = true,
                       .draw = "0..2" },
    [DIGEST] = HA_DIGEST_KIND,
    [GROUP] = HA_GROUP_RULE(HA_GROUP_MAX, ha_group_of_device_word),
};

struct sequence {
    struct ha_kv kv; /* device */
    struct ha_digests digests;
};

/* For all layers, which follow each other on one stream. */
struct choice {
    size_t lists, list_max, blocks_max;  /* lists of a sequence, entries of one, blocks of the longest sequence */
    float *score;                        /* device: [batch][q_heads][q_len][blocks_max] */
    uint32_t *index;                     /* device: [batch][lists][list_max] */
    uint32_t *known;                     /* pinned: the same, where selections are recorded */
    struct ha_device_digest_seq *digest; /* [batch] */
    struct ha_device_score_seq *by;      /* [batch] */
    struct ha_device_topk_seq *most;     /* [batch] */
};

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static bool is_dense(const struct ha_layer *l) { return l->layer < option(l, DENSE_LAYERS); }
/* blocks that a list has, of so many whole ones */
static size_t chosen(const struct ha_layer *l, size_t blocks)
{
    return ha_least(blocks, ha_most(option(l, BUDGET) / option(l, BLOCK), 1));
}

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    struct choice *c = first->shared;
    const size_t block = option(first, BLOCK);
    for (size_t b = 0; b < s->batch; b++) c->blocks_max = ha_most(c->blocks_max, ha_kv_max_tokens(s, b) / block);
    c->lists = option(first, GROUP) == HA_GROUP_HEAD ? s->q_heads : s->kv_heads;
    c->list_max = chosen(first, c->blocks_max);
    const size_t scores = s->batch * s->q_heads * s->q_len * c->blocks_max * sizeof *c->score,
                 entries = s->batch * c->lists * c->list_max * sizeof *c->index;
    c->score = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, scores, HA_TAG_SCRATCH, why);
    c->index = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, entries, HA_TAG_SCRATCH, why);
    c->known = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, entries, HA_TAG_SCRATCH, why);
    c->digest = ha_alloc(ctx->arena, s->batch * sizeof *c->digest, HA_TAG_SCRATCH, why);
    c->by = ha_alloc(ctx->arena, s->batch * sizeof *c->by, HA_TAG_SCRATCH, why);
    c->most = ha_alloc(ctx->arena, s->batch * sizeof *c->most, HA_TAG_SCRATCH, why);
    return c->score && c->index && c->known && c->digest && c->by && c->most ? HA_OK : HA_ERROR;
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct sequence *seq = (struct sequence *)l->own + b;
    const struct choice *c = l->shared;
    l->block = option(l, BLOCK);
    l->lists = is_dense(l) ? 0 : c->lists;
    HA_TRY(ha_kv_create(l->ctx, HA_MEM_DEVICE, ha_kv_max_tokens(l->ctx->shape, b), &seq->kv, why));
    return is_dense(l) ? HA_OK : ha_digests_create(l->ctx, HA_MEM_DEVICE, l->block, b, &seq->digests, why);
}

static enum ha_status prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct sequence *seq = (const struct sequence *)l->own + b;
    return ha_kv_load(l->ctx, &seq->kv, 0, in, b, 0, l->ctx->shape->ctx[b]);
}

/* The digests of the blocks that have become whole. */
static enum ha_status summarise(struct ha_layer *l)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct sequence *seq = l->own;
    struct choice *c = l->shared;
    size_t blocks = 0;
    if (is_dense(l)) return HA_OK;
    for (size_t b = 0; b < s->batch; b++) {
        c->digest[b] = ha_digests_due(s, &seq[b].digests, &seq[b].kv, l->tokens[b]);
        blocks += c->digest[b].blocks;
    }
    if (blocks == 0) return HA_OK;
    return ctx->api->digest(ctx->stream, &(struct ha_device_digest){ .batch = s->batch,
                                                                     .kv_heads = s->kv_heads,
                                                                     .head_dim = s->head_dim,
                                                                     .unit = l->block,
                                                                     .kind = (enum ha_digest_kind)option(l, DIGEST),
                                                                     .dtype = s->dtype,
                                                                     .seqs = c->digest });
}

static enum ha_status ready(struct ha_layer *l, struct ha_why *why) { return summarise(l); }
static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why) { return summarise(l); }

/* The blocks of largest score, by the digests of all that were whole before the step. */
static enum ha_status before(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct sequence *seq = l->own;
    struct choice *c = l->shared;
    if (is_dense(l)) return HA_OK;
    for (size_t b = 0; b < s->batch; b++) {
        const size_t rows = s->q_heads * s->q_len, blocks = seq[b].digests.blocks;
        float *score = c->score + b * rows * c->blocks_max;
        c->by[b] = (struct ha_device_score_seq){ .q = step->q + b * rows * s->head_dim,
                                                 .digests = seq[b].digests.bytes,
                                                 .head_bytes = seq[b].digests.head_bytes,
                                                 .blocks = blocks,
                                                 .s = score,
                                                 .s_stride = c->blocks_max };
        c->most[b] = (struct ha_device_topk_seq){ .x = score,
                                                  .n = blocks,
                                                  .k = chosen(l, blocks),
                                                  .stride = c->blocks_max,
                                                  .index = c->index + b * c->lists * c->list_max,
                                                  .index_stride = c->list_max };
    }
    HA_TRY(ctx->api->digest_score(ctx->stream, &(struct ha_device_digest_score){ .batch = s->batch,
                                                                                 .q_len = s->q_len,
                                                                                 .q_heads = s->q_heads,
                                                                                 .kv_heads = s->kv_heads,
                                                                                 .head_dim = s->head_dim,
                                                                                 .dtype = s->dtype,
                                                                                 .scale = s->scale,
                                                                                 .seqs = c->by }));
    HA_TRY(ctx->api->topk(ctx->stream, &(struct ha_device_topk){ .batch = s->batch,
                                                                 .lists = c->lists,
                                                                 .rows = s->q_heads / c->lists * s->q_len,
                                                                 .seqs = c->most }));
    if (!ctx->record_selection) return HA_OK;
    HA_TRY(
        ctx->api->copy(ctx->stream, c->known, c->index, s->batch * c->lists * c->list_max * sizeof *c->index, HA_D2H));
    return ctx->api->stream_sync(ctx->stream);
}

static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    const struct sequence *seq = (const struct sequence *)l->own + b;
    return ha_kv_copy(l->ctx, l->ctx->stream, &seq->kv, l->tokens[b], fresh, 0, fresh->cap);
}

static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct sequence *seq = (const struct sequence *)l->own + b;
    const struct choice *c = l->shared;
    const size_t open = is_dense(l) ? 0 : seq->digests.blocks * l->block;
    if (!is_dense(l)) {
        d->runs[d->runs_count] = ha_kv_rows(s, &seq->kv, 0, 0, chosen(l, seq->digests.blocks) * l->block);
        d->runs[d->runs_count++].index = c->index + b * c->lists * c->list_max;
        d->list_stride = c->list_max;
    }
    d->runs[d->runs_count++] = ha_kv_rows(s, &seq->kv, 0, open, l->tokens[b] + step->q_len - open);
}

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct sequence *seq = (const struct sequence *)l->own + b;
    const struct choice *c = l->shared;
    const size_t blocks = is_dense(l) ? 0 : seq->digests.blocks, list = q_head * c->lists / s->q_heads;
    const uint32_t *index = c->known + (b * c->lists + list) * c->list_max;
    for (size_t i = 0; i < chosen(l, blocks); i++)
        HA_TRY(ha_positions_add_range(l->ctx, &used->device, index[i] * l->block, (index[i] + 1) * l->block, why));
    return ha_positions_add_range(l->ctx, &used->device, blocks * l->block, l->tokens[b] + s->q_len, why);
}

static enum ha_status rewind_sequence(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct sequence *seq = (struct sequence *)l->own + b;
    seq->digests.blocks = ha_least(seq->digests.blocks, l->tokens[b] / l->block);
    return HA_OK;
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .shared_bytes = sizeof(struct choice),
    .share = share,
    .open = open,
    .prefill = prefill,
    .ready = ready,
    .before = before,
    .append = append,
    .use = use,
    .device = device,
    .after = after,
    .rewind = rewind_sequence,
};

extern const struct ha_variant ha_variant_quest;
const struct ha_variant ha_variant_quest = {
    .name = "quest",
    .family = "block_sparse",
    .doc = "all KV on the device, which reads the blocks whose digests promise the largest scores",
    .source = "Quest (Tang et al. 2024), section 3",
    .contract = HA_BOUNDED,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_COPY_2D | HA_NEEDS_DIGEST | HA_NEEDS_TOPK,
    .rewind = ha_frame_rewind,
    HA_FRAME(rule),
};
