/* Exact top-k: all KV in host memory; the CPU scores every key, and the k of largest score come over the link for the
 * device to attend over, besides the step's own tokens. What selection alone can lose, and what the link makes of it.
 *
 * query=own: the layer waits for its scores and its keys. query=ahead: they are chosen by the query that the layer's
 * projection makes of the input of the layer before, while that one attends; its keys are then on their way before the
 * layer begins. The attention itself is by the layer's own query; the first layer is not predicted. */

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/order.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"
#include "suites/parts/ahead.h"
#include "suites/parts/choose.h"
#include "suites/parts/fetch.h"
#include "suites/parts/frame.h"

enum query { OWN, AHEAD };
static const char *query_word(size_t i)
{
    static const char *const word[] = { [OWN] = "own", [AHEAD] = "ahead" };
    return i < sizeof word / sizeof *word ? word[i] : NULL;
}

enum { K, QUERY, GROUP, FETCH, PREDICT };
static const struct ha_param params[] = {
    [K] = { "k", 256, 1, 1 << 24, "keys that are chosen, of those before the step", .whole = true, .draw = "1..2048" },
    [QUERY] = { "query", OWN, OWN, AHEAD, "by which they are: the layer's own, or one predicted a layer ahead",
                .whole = true, .draw = "*", .word = query_word },
    [GROUP] = HA_GROUP_RULE(HA_GROUP_UNION, ha_group_word),
    [FETCH] = HA_FETCH_WAY,
    [PREDICT] = HA_AHEAD_SIDE,
};

/* Where the keys of a layer arrive while those of the layer before are in use. */
enum { BUFFERS = 2 };
struct buffer {
    struct ha_kv *kv;        /* [batch], device: of each KV head its lists one after the other, then the new tokens */
    uint32_t *index, *count; /* [batch][kv_heads][lists][list_max] what was chosen; mapped: [batch][kv_heads][lists] */
    struct ha_event *loaded;
};

struct chooser {
    struct ha_choose choose;
    struct ha_ahead ahead;
    struct ha_fetch fetch;
    struct ha_fetch_list *list; /* [batch][kv_heads][lists] */
    struct buffer buffer[BUFFERS];
    struct ha_stream *link;
    uint32_t *row; /* device: which rows of a buffer the list of each query head is, or that of a KV head */
    float *q;      /* pinned: [batch][q_len][q_heads][head_dim], the layer's own */
    struct ha_event *came;
};

/* of a choice that is under way */
struct work {
    const struct ha_layer *l;
    const float *q;
    struct buffer *to;
};

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static bool is_ahead(const struct ha_layer *l) { return option(l, QUERY) == AHEAD && l->layer > 0; }
static struct buffer *buffer_of(const struct ha_layer *l)
{
    struct chooser *c = l->shared;
    return &c->buffer[l->layer % BUFFERS];
}
static size_t lists(const struct ha_layer *l)
{
    const struct chooser *c = l->shared;
    return l->ctx->shape->kv_heads * c->choose.lists;
}

static enum ha_status make_buffer(const struct ha_layer *l, struct buffer *to, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct chooser *c = l->shared;
    const size_t all = s->batch * lists(l);
    to->kv = ha_alloc(ctx->arena, s->batch * sizeof *to->kv, HA_TAG_META, why);
    to->index = ha_alloc(ctx->arena, all * c->choose.list_max * sizeof *to->index, HA_TAG_META, why);
    to->count = ha_device_alloc(ctx->device_arena, HA_MEM_MAPPED, all * sizeof *to->count, HA_TAG_META, why);
    if (!to->kv || !to->index || !to->count) return HA_ERROR;
    for (size_t b = 0; b < s->batch; b++)
        HA_TRY(ha_kv_create(ctx, HA_MEM_DEVICE, c->choose.lists * c->choose.list_max + s->q_len, &to->kv[b], why));
    return ha_device_event(ctx->device_arena, &to->loaded, why);
}

/* Entry i of list j of a KV head is row j * list_max + i. */
static enum ha_status name_rows(const struct ha_layer *l, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    struct chooser *c = l->shared;
    const size_t each = c->choose.list_max, all = option(l, GROUP) == HA_GROUP_HEAD ? lists(l) : 1,
                 bytes = all * each * sizeof *c->row;
    c->row = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_META, why);
    uint32_t *row = c->row ? ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, bytes, HA_TAG_SCRATCH, why) : NULL;
    if (!row) return HA_ERROR;
    for (size_t i = 0; i < all * each; i++) row[i] = (uint32_t)(i / each % c->choose.lists * each + i % each);
    HA_TRY(ctx->api->copy(ctx->stream, c->row, row, bytes, HA_H2D));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    ha_device_free(ctx->device_arena, row);
    return HA_OK;
}

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    struct chooser *c = first->shared;
    size_t longest = 0;
    for (size_t b = 0; b < s->batch; b++) longest = ha_most(longest, ha_kv_max_tokens(s, b));
    HA_TRY(ha_choose_create(&c->choose, ctx, (enum ha_group)option(first, GROUP), option(first, K), longest, why));
    const size_t all = s->batch * lists(first), q = s->batch * s->q_len * s->q_heads * s->head_dim * sizeof(float);
    HA_TRY(ha_fetch_create(&c->fetch, ctx, (enum ha_fetch_way)option(first, FETCH), all, all * c->choose.list_max,
                           s->batch * c->choose.lists * c->choose.list_max * ha_kv_token_bytes(s), why));
    if (option(first, QUERY) == AHEAD)
        HA_TRY(ha_ahead_create(&c->ahead, first, (enum ha_ahead_side)option(first, PREDICT), why));
    c->list = ha_alloc(ctx->arena, all * sizeof *c->list, HA_TAG_SCRATCH, why);
    c->q = c->list ? ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, q, HA_TAG_SCRATCH, why) : NULL;
    if (!c->q) return HA_ERROR;
    HA_TRY(ha_frame_stream(first, "fetch", &c->link, why));
    HA_TRY(ha_device_event(ctx->device_arena, &c->came, why));
    for (size_t i = 0; i < BUFFERS; i++) HA_TRY(make_buffer(first, &c->buffer[i], why));
    return name_rows(first, why);
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct ha_kv *store = l->own;
    l->lists = option(l, GROUP) == HA_GROUP_HEAD ? l->ctx->shape->q_heads : l->ctx->shape->kv_heads;
    return ha_kv_create(l->ctx, ha_fetch_memory((enum ha_fetch_way)option(l, FETCH)),
                        ha_kv_max_tokens(l->ctx->shape, b), &store[b], why);
}

static enum ha_status prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_kv *store = l->own;
    return ha_kv_load(l->ctx, &store[b], 0, in, b, 0, l->ctx->shape->ctx[b]);
}

/* One KV head of a sequence. */
static void choose_task(void *arg, size_t task, size_t worker)
{
    const struct work *w = arg;
    const struct ha_shape *s = w->l->ctx->shape;
    const struct chooser *c = w->l->shared;
    const struct ha_kv *store = w->l->own;
    const size_t b = task / s->kv_heads, head = task % s->kv_heads, first = task * c->choose.lists;
    const struct ha_rows keys = ha_kv_rows(s, &store[b], head, 0, w->l->tokens[b]);
    ha_order_thread_access("choose", "list_keys", HA_WRITE, w->to->count + first, 1, 0,
                           c->choose.lists * sizeof *w->to->count);
    ha_choose_keys(&c->choose, worker, w->q + b * s->q_len * s->q_heads * s->head_dim, head, &keys,
                   w->to->index + first * c->choose.list_max, w->to->count + first);
}

/* The keys of a layer, chosen by q, to its buffer. What came to the host in this step was behind the attention that
 * read that last. */
static enum ha_status request(const struct ha_layer *l, const float *q, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct ha_kv *store = l->own;
    struct chooser *c = l->shared;
    struct buffer *to = buffer_of(l);
    const uint64_t begin = ha_now_ns();
    ha_pool_run(ctx->pool, "choose", s->batch * s->kv_heads, choose_task, &(struct work){ l, q, to });
    ha_frame_selected(l, begin);
    for (size_t i = 0; i < s->batch * lists(l); i++) {
        const size_t b = i / lists(l), head = i % lists(l) / c->choose.lists, list = i % c->choose.lists;
        c->list[i] = (struct ha_fetch_list){ .from = &store[b],
                                             .to = &to->kv[b],
                                             .head = head,
                                             .index = to->index + i * c->choose.list_max,
                                             .count = to->count[i],
                                             .unit = 1,
                                             .at = list * c->choose.list_max };
    }
    HA_TRY(ha_fetch_run(&c->fetch, c->link, c->list, s->batch * lists(l), why));
    return ctx->api->event_record(to->loaded, c->link);
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
    return ctx->api->stream_wait(ctx->stream, buffer_of(l)->loaded);
}

/* behind the lists, for the step itself */
static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    const struct chooser *c = l->shared;
    return ha_kv_copy(l->ctx, l->ctx->stream, &buffer_of(l)->kv[b], c->choose.lists * c->choose.list_max, fresh, 0,
                      fresh->cap);
}

static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct chooser *c = l->shared;
    const struct buffer *from = buffer_of(l);
    const bool each = option(l, GROUP) == HA_GROUP_HEAD, varies = option(l, GROUP) == HA_GROUP_UNION;
    const size_t behind = c->choose.lists * c->choose.list_max;
    d->runs[0] = ha_kv_rows(s, &from->kv[b], 0, 0, varies ? c->choose.list_max : from->count[b * lists(l)]);
    d->runs[0].index = c->row;
    d->runs[1] = ha_kv_rows(s, &from->kv[b], 0, behind, step->q_len);
    d->runs_count = 2;
    d->list_stride = each ? c->choose.list_max : 0;
    d->list_keys = varies ? from->count + b * lists(l) : NULL;
}

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct chooser *c = l->shared;
    const struct buffer *from = buffer_of(l);
    const size_t list = b * lists(l) + q_head * lists(l) / s->q_heads;
    HA_TRY(ha_positions_add(l->ctx, &used->device, from->index + list * c->choose.list_max, from->count[list], why));
    return ha_positions_add_range(l->ctx, &used->device, l->tokens[b], l->tokens[b] + s->q_len, why);
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
    .prefill = prefill,
    .before = before,
    .append = append,
    .use = use,
    .device = device,
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
