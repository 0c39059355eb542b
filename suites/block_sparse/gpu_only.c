/* GPU-only sparse attention over KV in host memory (Fluxion, section 2.2 and figure 1a): the device has the digests of
 * all blocks and chooses by them; the chosen blocks come over the link in each step, and the CPU has no part in it.
 *
 * What the paper leaves open: tokens stay on the device until their block is whole; then it gets its digest there and
 * leaves for host memory. These newest tokens have no digest, are always read, and count in no budget.
 *
 * fetch=zero_copy is the paper's: attention itself reads the chosen blocks where they lie, by the list that the device
 * has made, and nothing is waited for. For the others the list comes down: pieces, a copy of each row to device memory,
 * handed over in one call; move, a kernel that does the same. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "suites/parts/block_store.h"
#include "suites/parts/fetch.h"

enum fetch { ZERO_COPY, MOVE, PIECES };
HA_WORDS(fetch_word, [ZERO_COPY] = "zero_copy", [MOVE] = "move", [PIECES] = "pieces")

enum { BLOCK, BUDGET, DIGEST, GROUP, FETCH };
static const struct ha_param params[] = {
    [BLOCK] = { "block", 16, 8, 128, "tokens of a block", .whole = true, .draw = "8 16 32 64 128" },
    [BUDGET] = { "budget", 0.05, 1e-6, 1, "share of the whole blocks that a head reads", .draw = "0.02 0.05 0.3 1" },
    [DIGEST] = HA_DIGEST_KIND,
    [GROUP] = HA_GROUP_RULE(HA_GROUP_HEAD, ha_group_of_device_word),
    [FETCH] = { "fetch", ZERO_COPY, .word = fetch_word,
                .doc =
                    "how blocks come over the link: read by the attention, moved by a kernel, or copied in one call" },
};

/* For all layers, which follow each other on one stream. */
struct chooser {
    struct ha_device_choice choice;
    /* where blocks are moved or copied to */
    struct ha_fetch fetch;
    struct ha_fetch_list *list; /* [batch][lists] */
    struct ha_kv *fetched;      /* [batch], device: of each KV head its lists, one after the other */
    uint32_t *place;            /* device: which blocks of `fetched` each list is */
};

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static bool is_fetched(const struct ha_layer *l) { return option(l, FETCH) != ZERO_COPY; }

/* blocks that a list has, of so many whole ones */
static size_t chosen(const struct ha_layer *l, size_t blocks) { return ha_share_of(l->ctx->param[BUDGET], blocks); }

/* ---- what is kept, and where ----------------------------------------------------------------------------------- */

static enum ha_status make_room(const struct ha_layer *l, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = l->shared;
    const size_t tokens = c->choice.lists / s->kv_heads * c->choice.list_max * option(l, BLOCK);
    HA_TRY(ha_fetch_create(&c->fetch, ctx, option(l, FETCH) == MOVE ? HA_FETCH_MOVE : HA_FETCH_PIECES, 2,
                           s->batch * c->choice.lists, s->batch * s->kv_heads * tokens, 0, why));
    c->list = ha_alloc(ctx->arena, s->batch * c->choice.lists * sizeof *c->list, HA_TAG_SCRATCH, why);
    c->fetched = c->list ? ha_alloc(ctx->arena, s->batch * sizeof *c->fetched, HA_TAG_META, why) : NULL;
    if (!c->fetched) return HA_ERROR;
    for (size_t b = 0; b < s->batch; b++) HA_TRY(ha_kv_create(ctx, HA_MEM_DEVICE, tokens, &c->fetched[b], why));
    return ha_fetch_name_rows(ctx, c->choice.lists * c->choice.list_max, tokens / option(l, BLOCK), &c->place, why);
}

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    struct chooser *c = first->shared;
    const size_t unit = option(first, BLOCK), blocks = ha_device_choice_blocks(first->ctx->shape, unit);
    HA_TRY(ha_kv_mapped(first->ctx, why)); /* kernels read the store */
    HA_TRY(ha_device_choice_create(&c->choice, first->ctx, (enum ha_group)option(first, GROUP),
                                   (enum ha_digest_kind)option(first, DIGEST), unit, chosen(first, blocks), why));
    return is_fetched(first) ? make_room(first, why) : HA_OK;
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct chooser *c = l->shared;
    const size_t unit = c->choice.unit, whole = ha_kv_max_tokens(l->ctx->shape, b) / unit * unit;
    struct ha_kv store;
    l->lists = c->choice.lists;
    HA_TRY(ha_kv_create(l->ctx, HA_MEM_MAPPED, whole, &store, why));
    return ha_block_store_open(l, b, unit, &store, why);
}

static enum ha_status gpu_only_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    return ha_block_store_prefill(l, b, in);
}

/* Of the context's blocks, where they lie. */
static enum ha_status ready(struct ha_layer *l, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    struct ha_block_store *seq = l->own;
    struct chooser *c = l->shared;
    bool any;
    for (size_t b = 0; b < s->batch; b++)
        c->choice.digest[b] = ha_digests_due(s, &seq[b].digests, &seq[b].kv, l->tokens[b]);
    return ha_device_choice_digest(&c->choice, &any);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* The lists' blocks to device memory. */
static enum ha_status fetch(const struct ha_layer *l, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct ha_block_store *seq = l->own;
    struct chooser *c = l->shared;
    const size_t each = c->choice.lists / s->kv_heads;
    for (size_t i = 0; i < s->batch * c->choice.lists; i++) {
        const size_t b = i / c->choice.lists, list = i % c->choice.lists;
        c->list[i] = (struct ha_fetch_list){ .from = &seq[b].kv,
                                             .to = &c->fetched[b],
                                             .head = list / each,
                                             .index = c->choice.known + i * c->choice.list_max,
                                             .count = chosen(l, seq[b].digests.blocks),
                                             .unit = l->block,
                                             .at = list % each * c->choice.list_max * l->block };
    }
    return ha_fetch_run(&c->fetch, l->ctx->stream, c->list, s->batch * c->choice.lists, why);
}

static enum ha_status before(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_block_store *seq = l->own;
    const struct chooser *c = l->shared;
    for (size_t b = 0; b < l->ctx->shape->batch; b++)
        ha_device_choice_ask(&c->choice, b, step->q, &seq[b].digests, chosen(l, seq[b].digests.blocks));
    HA_TRY(ha_device_choice_run(&c->choice));
    if (is_fetched(l) || l->ctx->record_selection) HA_TRY(ha_device_choice_down(&c->choice));
    return is_fetched(l) ? fetch(l, why) : HA_OK;
}

/* The chosen blocks, those of the tail, and the step's own tokens. */
static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct ha_block_store *seq = ha_block_store_of(l, b);
    const struct chooser *c = l->shared;
    const struct ha_kv *from = is_fetched(l) ? &c->fetched[b] : &seq->kv;
    d->runs[0] = ha_kv_rows(s, from, 0, 0, chosen(l, seq->digests.blocks) * l->block);
    d->runs[0].index = is_fetched(l) ? c->place : ha_device_choice_lists(&c->choice, b);
    d->list_stride = c->choice.list_max;
    d->runs_count = 1;
    ha_block_store_device(l, step, b, d);
}

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct ha_block_store *seq = ha_block_store_of(l, b);
    const struct chooser *c = l->shared;
    HA_TRY(ha_device_choice_use(&c->choice, b, q_head, chosen(l, seq->digests.blocks), &used->device, why));
    return ha_block_store_use(l, b, &used->device, why);
}

static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct chooser *c = l->shared;
    return ha_block_store_close(l, &c->choice);
}

static const struct ha_rule rule = {
    .shared_bytes = sizeof(struct chooser),
    .share = share,
    .open = open,
    .prefill = gpu_only_prefill,
    .ready = ready,
    .before = before,
    .use = use,
    .device = device,
    .after = after,
    HA_BLOCK_STORE_HOOKS,
};

extern const struct ha_variant ha_variant_gpu_only;
const struct ha_variant ha_variant_gpu_only = {
    .name = "gpu_only",
    .family = "block_sparse",
    .doc = "all KV in host memory, its digests on the device, which chooses blocks and fetches them over the link",
    .source = "Fluxion, section 2.2",
    .contract = HA_BOUNDED,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_COPY_2D | HA_NEEDS_DIGEST | HA_NEEDS_TOPK,
    .rewind = ha_frame_rewind,
    HA_FRAME(rule),
};
