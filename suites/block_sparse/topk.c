/* Exact top-k: all KV in host memory; the CPU scores every key, and the k of largest score come over the link for the
 * device to attend over, besides the step's own tokens. What selection alone can lose, and what the link makes of it.
 *
 * query=own: the layer waits for its scores and its keys. query=ahead: they are chosen by the query that the layer's
 * projection makes of the input of the layer before, while that one attends; its keys are then on their way before the
 * layer begins. The attention itself is by the layer's own query; the first layer is not predicted. */

#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "suites/parts/ahead.h"
#include "suites/parts/prefetch.h"

enum query { OWN, AHEAD };
HA_WORDS(query_word, [OWN] = "own", [AHEAD] = "ahead")

enum { K, QUERY, GROUP, FETCH, PREDICT };
static const struct ha_param params[] = {
    [K] = { "k", 256, 1, 1 << 24, "keys that are chosen, of those before the step", .whole = true, .draw = "1..2048" },
    [QUERY] = { "query", OWN, .doc = "by which they are: the layer's own, or one predicted a layer ahead",
                .word = query_word },
    [GROUP] = HA_GROUP_RULE(HA_GROUP_HEAD, ha_group_word),
    [FETCH] = HA_FETCH_WAY,
    [PREDICT] = HA_AHEAD_SIDE,
};

struct chooser {
    struct ha_prefetch prefetch;
    struct ha_choose choose;
    struct ha_ahead ahead;
    float *q; /* pinned: [batch][q_len][q_heads][head_dim], the layer's own */
    struct ha_event *came;
};
_Static_assert(offsetof(struct chooser, prefetch) == 0, "where the hooks of prefetch.h find it");

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static bool is_ahead(const struct ha_layer *l) { return option(l, QUERY) == AHEAD && l->layer > 0; }

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = first->shared;
    const enum ha_group group = (enum ha_group)option(first, GROUP);
    HA_TRY(ha_choose_create(&c->choose, ctx, group, option(first, K), ha_kv_longest(s), why));
    HA_TRY(ha_prefetch_create(&c->prefetch, first, (enum ha_fetch_way)option(first, FETCH), c->choose.lists,
                              c->choose.list_max, group == HA_GROUP_UNION, why));
    if (option(first, QUERY) == AHEAD)
        HA_TRY(ha_ahead_create(&c->ahead, first, (enum ha_ahead_side)option(first, PREDICT), true, why));
    c->q = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED,
                           s->batch * s->q_len * s->q_heads * s->head_dim * sizeof *c->q, HA_TAG_SCRATCH, why);
    return c->q ? ha_device_event(ctx->device_arena, &c->came, why) : HA_ERROR;
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct ha_kv *store = l->own;
    l->lists = option(l, GROUP) == HA_GROUP_HEAD ? l->ctx->shape->q_heads : l->ctx->shape->kv_heads;
    return ha_kv_create(l->ctx, ha_fetch_memory((enum ha_fetch_way)option(l, FETCH)),
                        ha_kv_max_tokens(l->ctx->shape, b), &store[b], why);
}

static enum ha_status topk_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_kv *store = l->own;
    return ha_kv_load(l->ctx, &store[b], 0, in, b, 0, l->ctx->shape->ctx[b]);
}

/* The keys of a layer, chosen by q, to its buffer. What came to the host in this step was behind the attention that
 * read that last. */
static enum ha_status request(const struct ha_layer *l, const float *q, struct ha_why *why)
{
    struct chooser *c = l->shared;
    const struct ha_prefetch_buffer *to = ha_prefetch_of(&c->prefetch, l);
    const uint64_t begin = ha_now_ns();
    ha_choose_keys(&c->choose, q, l->own, sizeof(struct ha_kv), l->tokens, to->index, to->count);
    ha_frame_selected(l, begin);
    return ha_prefetch_run(&c->prefetch, l, l->own, sizeof(struct ha_kv), why);
}

static enum ha_status before(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = l->shared;
    if (!is_ahead(l)) {
        HA_TRY(ctx->api->copy(ctx->stream, c->q, step->q,
                              s->batch * s->q_len * s->q_heads * s->head_dim * sizeof(float), HA_D2H));
        HA_TRY(ctx->api->event_record(c->came, ctx->stream));
    }
    if (option(l, QUERY) == AHEAD && l->layer + 1 < s->layers) HA_TRY(ha_ahead_begin(&c->ahead, step, l->tokens));
    if (!is_ahead(l)) {
        HA_TRY(ctx->api->event_sync(c->came));
        HA_TRY(request(l, c->q, why));
    }
    return ha_prefetch_wait(&c->prefetch, l);
}

/* The new tokens to the store; and beside the layer's attention, what the next one will read. */
static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct ha_kv *store = l->own;
    struct chooser *c = l->shared;
    for (size_t b = 0; b < s->batch; b++) {
        const struct ha_kv fresh = ha_kv_of_step(s, step, b);
        HA_TRY(ha_kv_copy(ctx, ctx->stream, &store[b], l->tokens[b] - s->q_len, &fresh, 0, s->q_len));
    }
    if (option(l, QUERY) != AHEAD || l->layer + 1 == s->layers) return HA_OK;
    HA_TRY(ha_ahead_end(&c->ahead));
    return request(l + 1, c->ahead.q, why);
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct ha_kv),
    .shared_bytes = sizeof(struct chooser),
    .share = share,
    .open = open,
    .prefill = topk_prefill,
    .before = before,
    HA_PREFETCH_HOOKS,
    .after = after,
};

extern const struct ha_variant ha_variant_topk;
const struct ha_variant ha_variant_topk = {
    .name = "topk",
    .family = "block_sparse",
    .doc = "all KV in host memory; the keys of largest score, by the CPU, come over the link for the device",
    .source = "the exact rule that Quest, InfiniGen and CLO approximate",
    .contract = HA_BOUNDED,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_COPY_2D,
    .counters = ha_frame_counters,
    .rewind = ha_frame_rewind,
    HA_FRAME(rule),
};
