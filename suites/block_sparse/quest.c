/* Quest: all KV on the device; each step reads the blocks whose digests promise the largest scores, and the tokens
 * behind the last whole block. A digest is the smallest and the largest value of each dimension, so that a block's
 * score is not below that of any of its keys.
 *
 * Of the paper: it scores with a query head of its own per KV head; with grouped queries (`group`) each query head
 * chooses for itself, or the group by its largest score. The block that new tokens go to has no digest yet and is
 * always read; budgets count whole blocks and leave it out. The paper's first two layers read everything:
 * dense_layers=2. */

#include "harness/base/why.h"
#include "suites/parts/device_choice.h"
#include "suites/parts/places.h"

enum { BLOCK, BUDGET, DENSE_LAYERS, DIGEST, GROUP };
static const struct ha_param params[] = {
    [BLOCK] = { "block", 16, 8, 128, "tokens of a block", .whole = true, .draw = "8 16 32 64 128" },
    [BUDGET] = { "budget", 1024, 1, 1 << 24, "tokens of the blocks that a head reads", .whole = true,
                 .draw = "1..2048" },
    [DENSE_LAYERS] = { "dense_layers", 0, 0, 1 << 16, "so many first layers read everything", .whole = true,
                       .draw = "0..2" },
    [DIGEST] = HA_DIGEST_KIND,
    [GROUP] = HA_GROUP_RULE(HA_GROUP_HEAD, ha_group_of_device_word),
};

struct sequence {
    struct ha_kv kv; /* device */
    struct ha_digests digests;
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
    const size_t unit = option(first, BLOCK), blocks = ha_device_choice_blocks(first->ctx->shape, unit);
    return ha_device_choice_create(first->shared, first->ctx, (enum ha_group)option(first, GROUP),
                                   (enum ha_digest_kind)option(first, DIGEST), unit, chosen(first, blocks), why);
}

static size_t rows(const struct ha_layer *l, size_t b, size_t piece) { return ha_kv_max_tokens(l->ctx->shape, b); }

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct sequence *seq = (struct sequence *)l->own + b;
    const struct ha_device_choice *c = l->shared;
    l->block = option(l, BLOCK);
    l->lists = is_dense(l) ? 0 : c->lists;
    HA_TRY(ha_places_open(l, b, 1, rows, &seq->kv, why));
    return is_dense(l) ? HA_OK : ha_digests_create(l->ctx, HA_MEM_DEVICE, l->block, b, &seq->digests, why);
}

static enum ha_status quest_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct sequence *seq = (const struct sequence *)l->own + b;
    return ha_kv_load(l->ctx, &seq->kv, 0, in, b, 0, l->ctx->shape->ctx[b]);
}

/* The digests of the blocks that have become whole. */
static enum ha_status summarise(struct ha_layer *l)
{
    const struct ha_shape *s = l->ctx->shape;
    struct sequence *seq = l->own;
    const struct ha_device_choice *c = l->shared;
    bool any;
    if (is_dense(l)) return HA_OK;
    for (size_t b = 0; b < s->batch; b++) c->digest[b] = ha_digests_due(s, &seq[b].digests, &seq[b].kv, l->tokens[b]);
    return ha_device_choice_digest(c, &any);
}

static enum ha_status ready(struct ha_layer *l, struct ha_why *why) { return summarise(l); }
static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why) { return summarise(l); }

/* The blocks of largest score, by the digests of all that were whole before the step. */
static enum ha_status before(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct sequence *seq = l->own;
    const struct ha_device_choice *c = l->shared;
    if (is_dense(l)) return HA_OK;
    for (size_t b = 0; b < l->ctx->shape->batch; b++)
        ha_device_choice_ask(c, b, step->q, &seq[b].digests, chosen(l, seq[b].digests.blocks));
    HA_TRY(ha_device_choice_run(c));
    return l->ctx->record_selection ? ha_device_choice_down(c) : HA_OK;
}

static const unsigned char *place(const struct ha_layer *l, size_t b, size_t position)
{
    const struct sequence *seq = (const struct sequence *)l->own + b;
    return seq->kv.k + position * ha_kv_token_bytes(l->ctx->shape);
}

static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    const struct sequence *seq = (const struct sequence *)l->own + b;
    if (l->placed) return HA_OK;
    return ha_kv_copy(l->ctx, l->ctx->stream, &seq->kv, l->tokens[b], fresh, 0, fresh->cap);
}

static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct sequence *seq = (const struct sequence *)l->own + b;
    const struct ha_device_choice *c = l->shared;
    const size_t open = is_dense(l) ? 0 : seq->digests.blocks * l->block;
    if (!is_dense(l)) {
        d->runs[d->runs_count] = ha_kv_rows(s, &seq->kv, 0, 0, chosen(l, seq->digests.blocks) * l->block);
        d->runs[d->runs_count++].index = ha_device_choice_lists(c, b);
        d->list_stride = c->list_max;
    }
    d->runs[d->runs_count++] = ha_kv_rows(s, &seq->kv, 0, open, l->tokens[b] + step->q_len - open);
}

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct sequence *seq = (const struct sequence *)l->own + b;
    const struct ha_device_choice *c = l->shared;
    const size_t blocks = is_dense(l) ? 0 : seq->digests.blocks;
    HA_TRY(ha_device_choice_use(c, b, q_head, chosen(l, blocks), &used->device, why));
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
    .shared_bytes = sizeof(struct ha_device_choice),
    .share = share,
    .open = open,
    .prefill = quest_prefill,
    .ready = ready,
    .before = before,
    .append = append,
    .place = place,
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
