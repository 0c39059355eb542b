/* ScoutAttention: the device has the digests of all whole blocks, a cache of blocks for each KV head, and the newest
 * tokens; host memory has all whole blocks. Of the blocks of largest score the device attends over those of the cache
 * and the CPU over the others, merged on the device. The CPU begins a layer early, with the query that the layer's
 * projection makes of the input of the layer before, and by that query's choice (Algorithm 1). Every so many steps the
 * cache is filled with the blocks that score highest then, which arrive by the layer's next step or a later one.
 *
 * Of the paper: its text lets the device attend over the chosen blocks of the cache, its algorithm over all of them
 * (`resident`). What it leaves open is decided in docs/variants/scout.md. */

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/fit.h"
#include "harness/base/order.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"
#include "suites/parts/ahead.h"
#include "suites/parts/choose.h"
#include "suites/parts/digests.h"
#include "suites/parts/drift.h"
#include "suites/parts/recall.h"
#include "suites/parts/tail.h"

#include <math.h>
#include <string.h>

enum { AHEAD, ORACLE };
static const char *predict_word(size_t i)
{
    static const char *const word[] = { [AHEAD] = "ahead", [ORACLE] = "oracle" };
    return i < sizeof word / sizeof *word ? word[i] : NULL;
}
enum { TOPK, ALL };
static const char *resident_word(size_t i)
{
    static const char *const word[] = { [TOPK] = "topk", [ALL] = "all" };
    return i < sizeof word / sizeof *word ? word[i] : NULL;
}
enum { NONE, SEQUENCE };
static const char *teams_word(size_t i)
{
    static const char *const word[] = { [NONE] = "none", [SEQUENCE] = "sequence" };
    return i < sizeof word / sizeof *word ? word[i] : NULL;
}
static const char *switch_word(size_t i)
{
    static const char *const word[] = { "off", "on" };
    return i < sizeof word / sizeof *word ? word[i] : NULL;
}
enum { RECALL_OFF, RECALL_ON, RECALL_WAIT };
static const char *recall_word(size_t i)
{
    static const char *const word[] = { [RECALL_OFF] = "off", [RECALL_ON] = "on", [RECALL_WAIT] = "wait" };
    return i < sizeof word / sizeof *word ? word[i] : NULL;
}

enum param {
    BLOCK,
    BUDGET,
    CACHE,
    DIGEST,
    GROUP,
    PRECOMPUTE,
    PREDICT,
    RESIDENT,
    RECALL,
    INTERVAL,
    RATIO,
    FETCH,
    TEAMS
};
static const struct ha_param params[] = {
    [BLOCK] = { "block", 32, 8, 128, "tokens of a block: 8, 16, 32, 64 or 128", .whole = true, .draw = "8 16 32 64 128",
                .fitted = true },
    [BUDGET] = { "budget", 2048, 1, 1 << 24, "tokens of the blocks that a list chooses", .whole = true,
                 .draw = "1..2048", .fitted = true },
    [CACHE] = { "cache", 0, 0, 1 << 24,
                "tokens that a KV head has on the device; 0: the budget, times the lists of a KV head", .whole = true,
                .draw = "0 0 1..2048", .fitted = true },
    [DIGEST] = HA_DIGEST_KIND,
    [GROUP] = { "group", HA_GROUP_MAX, HA_GROUP_HEAD, HA_GROUP_MAX,
                "who chooses: each query head, or those of a KV head together", .whole = true, .draw = "*",
                .word = ha_group_of_device_word, .fitted = true },
    [PRECOMPUTE] = { "precompute", 1, 0, 1, "the CPU begins a layer early (on), or with the layer's own query",
                     .whole = true, .draw = "*", .word = switch_word },
    [PREDICT] = { "predict", AHEAD, AHEAD, ORACLE,
                  "the query it begins with: from the input of the layer before, or the one that will come",
                  .whole = true, .draw = "*", .word = predict_word },
    [RESIDENT] = { "resident", TOPK, TOPK, ALL, "what the device reads of its cache: the chosen blocks, or all of them",
                   .whole = true, .draw = "*", .word = resident_word },
    [RECALL] = { "recall", RECALL_ON, RECALL_OFF, RECALL_WAIT,
                 "the cache is refreshed: what is recalled is used once it has arrived (on), or waited for",
                 .whole = true, .draw = "*", .word = recall_word },
    [INTERVAL] = { "interval", 8, 0, 1 << 24, "steps from one recall to the next; 0: of each layer, from the fit",
                   .whole = true, .draw = "1..20" },
    [RATIO] = { "ratio", 0.12, 0, 1, "for the fit: of the budget, what the CPU may read on average between two recalls",
                .draw = "0.12", .fitted = true },
    [FETCH] = HA_FETCH_WAY,
    [TEAMS] = { "teams", SEQUENCE, NONE, SEQUENCE,
                "the CPU's threads are in groups, one for each sequence; or all take what there is", .whole = true,
                .draw = "*", .word = teams_word },
};

struct sequence {
    struct ha_tail tail;
    struct ha_digests digests; /* device */
};

/* What the CPU reads of a layer: lists of blocks that its device does not have. */
struct missing {
    uint32_t *block, *count; /* mapped: [batch][lists][list_max], [batch][lists] */
    float *q;                /* pinned: [batch][q_len][q_heads][head_dim], of predict=oracle */
};

/* What is recorded of a step, in host memory, by lists. */
struct record {
    uint32_t *here, *here_count; /* pinned: as on the device */
    uint32_t *chosen;            /* pinned: by the step's own query */
    float *q;                    /* pinned: the step's own */
};

struct level {
    size_t interval, since; /* steps since the last recall was issued, this one with them */
    bool due, landed;
    uint32_t *all_device, *all_count_device; /* of resident=all: [batch][kv_heads][slots], [batch][kv_heads] */
    uint32_t *all, *all_count;               /* pinned: the same */
    struct ha_event *uploaded;
    uint32_t *first; /* [batch][kv_heads][slots] blocks that are resident after the prefill */

    float *q;         /* what was predicted, for the report: [batch][q_heads][q_len][head_dim] */
    uint32_t *before; /* what was chosen in the last step, [batch][lists][list_max], and of how many blocks */
    size_t *before_blocks;
    double steps, cpu_tokens, recalls, recalled; /* sums */
    double cosine, cosines, changed, changes;
};

/* For all layers, which follow each other on one stream. */
struct scout {
    size_t block, k, lists, list_max; /* lists of a sequence, blocks of one */
    struct ha_recall recall;
    struct ha_ahead ahead;
    float *score;                        /* device: [batch][q_heads][q_len][blocks_max] */
    uint32_t *index, *here, *here_count; /* device: [batch][lists][list_max], the same, [batch][lists] keys */
    uint32_t *wanted_device, *wanted;    /* device, pinned: [batch][kv_heads][slots] */
    struct ha_event *foreseen, *wanted_came;
    struct missing missing[2]; /* of layers 0, 2, ...; of the others */
    struct record record;
    struct level *level;            /* [layers] */
    size_t *blocks;                 /* [batch] */
    struct ha_device_score_seq *by; /* [batch] each */
    struct ha_device_topk_seq *most;
    struct ha_device_split_seq *split;
    struct ha_device_digest_seq *digest;
};

static size_t option(const struct ha_layer *l, enum param i) { return (size_t)l->ctx->param[i]; }
static struct sequence *sequence(const struct ha_layer *l, size_t b) { return (struct sequence *)l->own + b; }
static struct level *level(const struct ha_layer *l) { return &((struct scout *)l->shared)->level[l->layer]; }
static struct missing *missing_of(const struct ha_layer *l)
{
    return &((struct scout *)l->shared)->missing[l->layer % 2];
}
static bool is_ahead(const struct ha_layer *l) { return option(l, PRECOMPUTE) && l->layer > 0; }
static bool is_oracle(const struct ha_layer *l) { return option(l, PREDICT) == ORACLE; }
static bool is_predicted(const struct ha_layer *l) { return is_ahead(l) && !is_oracle(l); }
static bool reads_all(const struct ha_layer *l) { return option(l, RESIDENT) == ALL; }
static bool by_head(const struct ha_context *ctx) { return (int)ctx->param[GROUP] == HA_GROUP_HEAD; }
static bool by_sequence(const struct ha_context *ctx) { return (int)ctx->param[TEAMS] == SEQUENCE; }
static bool varies(const double *param) { return (int)param[RECALL] == RECALL_ON; }
static size_t chosen(const struct scout *c, size_t blocks) { return ha_least(c->k, blocks); }
static size_t q_count(const struct ha_shape *s) { return s->batch * s->q_len * s->q_heads * s->head_dim; }

static struct ha_drift sizes(const struct ha_shape *s, const double *param)
{
    const size_t block = (size_t)param[BLOCK], k = ha_most((size_t)param[BUDGET] / block, 1),
                 cache = (size_t)param[CACHE] / block;
    const bool each = (int)param[GROUP] == HA_GROUP_HEAD;
    return (struct ha_drift){
        .block = block,
        .k = k,
        .lists = each ? s->q_heads : s->kv_heads,
        .slots = param[CACHE] > 0 ? ha_most(cache, 1) : k * (each ? ha_shape_group(s) : 1),
        .digest = (enum ha_digest_kind)param[DIGEST],
        .ratio = param[RATIO],
    };
}

static enum ha_status fit(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why)
{
    const struct ha_drift of = sizes(in->shape, in->param);
    return ha_drift_fit(in, &of, out, why);
}

/* ---- before the first step --------------------------------------------------------------------------------------- */

/* Memory by what it is for; a count of 0 is for what this case has not. */
struct room {
    uint32_t **at;
    enum ha_memory memory;
    size_t count;
};
static enum ha_status make_room(const struct ha_context *ctx, const struct room *room, size_t rooms, struct ha_why *why)
{
    for (size_t i = 0; i < rooms; i++) {
        if (!room[i].count) continue;
        *room[i].at = ha_device_alloc(ctx->device_arena, room[i].memory, room[i].count * 4, HA_TAG_SCRATCH, why);
        if (!*room[i].at) return HA_ERROR;
    }
    return HA_OK;
}
#define ROOM(of, where, n)                            \
    {                                                 \
        (uint32_t **)(void *)&(of), HA_MEM_##where, n \
    }

static enum ha_status make_level(const struct ha_layer *l, const float *interval, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct scout *c = l->shared;
    struct level *v = level(l);
    const size_t heads = s->batch * s->kv_heads, slots = heads * c->recall.slots,
                 listed = s->batch * c->lists * c->list_max;
    const bool all = reads_all(l);
    memset(v, 0, sizeof *v);
    v->interval = interval ? (size_t)fminf(fmaxf(1, interval[l->layer]), 1 << 24) : option(l, INTERVAL);
    v->first = ha_alloc(ctx->arena, slots * sizeof *v->first, HA_TAG_SCRATCH, why);
    if (!v->first) return HA_ERROR;
    const struct room room[] = { ROOM(v->all, PINNED, all ? slots : 0), ROOM(v->all_device, DEVICE, all ? slots : 0),
                                 ROOM(v->all_count, PINNED, all ? heads : 0),
                                 ROOM(v->all_count_device, DEVICE, all ? heads : 0) };
    HA_TRY(make_room(ctx, room, sizeof room / sizeof *room, why));
    HA_TRY(ha_device_event(ctx->device_arena, &v->uploaded, why));
    if (!ctx->record_selection) return HA_OK;
    v->q = ha_alloc(ctx->arena, q_count(s) * sizeof *v->q, HA_TAG_SCRATCH, why);
    v->before = v->q ? ha_alloc(ctx->arena, listed * sizeof *v->before, HA_TAG_SCRATCH, why) : NULL;
    v->before_blocks = v->before ? ha_alloc(ctx->arena, s->batch * sizeof *v->before_blocks, HA_TAG_SCRATCH, why)
                                 : NULL;
    return v->before_blocks ? memset(v->before_blocks, 0, s->batch * sizeof *v->before_blocks), HA_OK : HA_ERROR;
}

static enum ha_status make_arrays(const struct ha_context *ctx, struct scout *c, struct ha_why *why)
{
    const size_t batch = ctx->shape->batch;
    c->blocks = ha_alloc(ctx->arena, batch * sizeof *c->blocks, HA_TAG_SCRATCH, why);
    c->by = c->blocks ? ha_alloc(ctx->arena, batch * sizeof *c->by, HA_TAG_SCRATCH, why) : NULL;
    c->most = c->by ? ha_alloc(ctx->arena, batch * sizeof *c->most, HA_TAG_SCRATCH, why) : NULL;
    c->split = c->most ? ha_alloc(ctx->arena, batch * sizeof *c->split, HA_TAG_SCRATCH, why) : NULL;
    c->digest = c->split ? ha_alloc(ctx->arena, batch * sizeof *c->digest, HA_TAG_SCRATCH, why) : NULL;
    c->level = c->digest ? ha_alloc(ctx->arena, ctx->shape->layers * sizeof *c->level, HA_TAG_META, why) : NULL;
    return c->level ? HA_OK : HA_ERROR;
}

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct ha_drift size = sizes(s, ctx->param);
    struct scout *c = first->shared;
    HA_TRY(ha_block_check(size.block, HA_KV_NATURAL, why));
    HA_TRY(ha_recall_create(&c->recall, first, size.block, size.slots, option(first, RECALL) == RECALL_WAIT,
                            (enum ha_fetch_way)option(first, FETCH), why));
    const bool predicts = option(first, PRECOMPUTE) && s->layers > 1, oracle = predicts && is_oracle(first);
    if (predicts && !oracle) HA_TRY(ha_ahead_create(&c->ahead, first, HA_AHEAD_DEVICE, why));
    c->block = size.block;
    c->k = size.k;
    c->lists = size.lists;
    c->list_max = chosen(c, c->recall.blocks_max);
    const size_t lists = s->batch * c->lists, listed = lists * c->list_max,
                 wanted = s->batch * s->kv_heads * c->recall.slots, q = q_count(s),
                 known = ctx->record_selection ? listed : 0;
    const struct room room[] = {
        ROOM(c->score, DEVICE, s->batch * s->q_heads * s->q_len * c->recall.blocks_max),
        ROOM(c->index, DEVICE, listed),
        ROOM(c->here, DEVICE, listed),
        ROOM(c->here_count, DEVICE, lists),
        ROOM(c->wanted_device, DEVICE, wanted),
        ROOM(c->wanted, PINNED, wanted),
        ROOM(c->missing[0].block, MAPPED, listed),
        ROOM(c->missing[1].block, MAPPED, listed),
        ROOM(c->missing[0].count, MAPPED, lists),
        ROOM(c->missing[1].count, MAPPED, lists),
        ROOM(c->missing[0].q, PINNED, oracle ? q : 0),
        ROOM(c->missing[1].q, PINNED, oracle ? q : 0),
        ROOM(c->record.here, PINNED, known),
        ROOM(c->record.chosen, PINNED, known),
        ROOM(c->record.here_count, PINNED, ctx->record_selection ? lists : 0),
        ROOM(c->record.q, PINNED, ctx->record_selection ? q : 0),
    };
    HA_TRY(make_room(ctx, room, sizeof room / sizeof *room, why));
    HA_TRY(make_arrays(ctx, c, why));
    HA_TRY(ha_device_event(ctx->device_arena, &c->foreseen, why));
    HA_TRY(ha_device_event(ctx->device_arena, &c->wanted_came, why));
    struct ha_tensor interval = { .name = "interval", .type = HA_T_F32, .dims = 1, .dim = { s->layers } };
    const bool fitted = !option(first, INTERVAL) && option(first, RECALL);
    if (fitted && !ctx->fit)
        return ha_why(why, HA_WAIVED, "interval=0 takes the intervals of a fit: fit=FILE, which `habench fit` writes");
    if (fitted) HA_TRY(ha_fit_get(ctx->fit, &interval, why));
    for (size_t i = 0; i < s->layers; i++) HA_TRY(make_level(first + i, interval.data, why));
    return HA_OK;
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct sequence *seq = sequence(l, b);
    const struct scout *c = l->shared;
    l->block = c->block;
    l->lists = reads_all(l) ? l->ctx->shape->kv_heads : c->lists;
    HA_TRY(ha_tail_create(l->ctx, c->block, 0, ha_kv_max_tokens(l->ctx->shape, b), &seq->tail, why));
    return ha_digests_create(l->ctx, HA_MEM_DEVICE, c->block, b, &seq->digests, why);
}

/* ---- prefill: digests by the CPU, and what they say of the observed queries ---------------------------------------
 */

struct observed {
    const struct ha_layer *l;
    const struct ha_prefill *in;
    size_t b, blocks, observed;
    struct ha_digests digests; /* pinned */
    float *score;              /* [kv_heads][observed + 1][blocks] */
};

/* One KV head: its digests, and the blocks of the largest score that any of its observed queries gives. */
static void observe_task(void *arg, size_t head, size_t worker)
{
    const struct observed *o = arg;
    const struct ha_context *ctx = o->l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct scout *c = o->l->shared;
    const size_t row = ha_kv_head_bytes(s), group = ha_shape_group(s), held = ha_recall_held(&c->recall, o->blocks);
    unsigned char *digests = o->digests.bytes + head * o->digests.head_bytes;
    float *best = o->score + head * (o->observed + 1) * o->blocks, *score = best + o->blocks;
    uint32_t *first = level(o->l)->first + (o->b * s->kv_heads + head) * c->recall.slots;
    ha_order_thread_access("observe", "digests", HA_WRITE, digests, 1, 0, o->digests.head_bytes);
    ctx->kernels->digest(
        &(struct ha_digest){ .kind = (enum ha_digest_kind)option(o->l, DIGEST),
                             .digests = digests,
                             .blocks = o->blocks,
                             .unit = c->block,
                             .rows = { .k = (const unsigned char *)o->in->k[o->b] + head * o->in->cap * row,
                                       .k_stride_bytes = row,
                                       .keys = o->blocks * c->block },
                             .head_dim = s->head_dim,
                             .dtype = s->dtype });
    /* without queries the last blocks score highest */
    for (size_t i = 0; i < o->blocks; i++) best[i] = o->observed ? -HUGE_VALF : (float)i;
    for (size_t g = 0; g < group && o->observed; g++) {
        ctx->kernels->digest_score(&(struct ha_digest_score){ .q = o->in->q[o->b] + (head * group + g) * s->head_dim,
                                                              .q_rows = o->observed,
                                                              .q_stride = s->q_heads * s->head_dim,
                                                              .head_dim = s->head_dim,
                                                              .digests = digests,
                                                              .blocks = o->blocks,
                                                              .dtype = s->dtype,
                                                              .scale = s->scale,
                                                              .s = score,
                                                              .s_stride = o->blocks });
        for (size_t i = 0; i < o->observed * o->blocks; i++) best[i % o->blocks] = fmaxf(best[i % o->blocks], score[i]);
    }
    ctx->kernels->topk(&(struct ha_topk){ .x = best, .n = o->blocks, .k = held, .index = first });
}

static enum ha_status prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct scout *c = l->shared;
    struct sequence *seq = sequence(l, b);
    struct observed o = { .l = l, .in = in, .b = b, .blocks = s->ctx[b] / c->block };
    o.observed = ha_least(s->observed, s->ctx[b]);
    HA_TRY(ha_tail_load(ctx, &seq->tail, in, b, 0));
    HA_TRY(ha_kv_load(ctx, &c->recall.layer[l->layer].store[b], 0, in, b, 0, o.blocks * c->block));
    if (!o.blocks) return HA_OK;
    HA_TRY(ha_digests_create(ctx, HA_MEM_PINNED, c->block, b, &o.digests, why));
    o.score = ha_alloc(ctx->arena, s->kv_heads * (o.observed + 1) * o.blocks * sizeof *o.score, HA_TAG_SCRATCH, why);
    if (!o.score) return HA_ERROR;
    ha_pool_run(ctx->pool, "observe", s->kv_heads, observe_task, &o);
    seq->digests.blocks = o.blocks;
    HA_TRY(
        ctx->api->copy(ctx->stream, seq->digests.bytes, o.digests.bytes, s->kv_heads * o.digests.head_bytes, HA_H2D));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    ha_free(ctx->arena, o.score);
    ha_free(ctx->arena, o.digests.row);
    ha_device_free(ctx->device_arena, o.digests.bytes);
    return HA_OK;
}

/* The whole blocks of each sequence. */
static const size_t *blocks_of(const struct ha_layer *l)
{
    const struct scout *c = l->shared;
    for (size_t b = 0; b < l->ctx->shape->batch; b++) c->blocks[b] = sequence(l, b)->digests.blocks;
    return c->blocks;
}

/* For resident=all: the slots of all residents. */
static enum ha_status list_residents(const struct ha_layer *l)
{
    const struct ha_context *ctx = l->ctx;
    const struct scout *c = l->shared;
    const size_t heads = ctx->shape->batch * ctx->shape->kv_heads, slots = c->recall.slots;
    const struct level *v = level(l);
    HA_TRY(ctx->api->event_sync(v->uploaded));
    ha_order_thread_access("recall", "residents", HA_WRITE, v->all, 1, 0, heads * slots * sizeof *v->all);
    ha_order_thread_access("recall", "residents", HA_WRITE, v->all_count, 1, 0, heads * sizeof *v->all_count);
    for (size_t u = 0; u < heads; u++) {
        const struct ha_resident_set now = ha_residency_now(&c->recall.resident, l->layer, u / ctx->shape->kv_heads,
                                                            u % ctx->shape->kv_heads);
        for (size_t i = 0; i < *now.count; i++) v->all[u * slots + i] = now.entry[i].slot;
        v->all_count[u] = (uint32_t)(*now.count * c->block);
    }
    HA_TRY(ctx->api->copy(ctx->stream, v->all_device, v->all, heads * slots * sizeof *v->all, HA_H2D));
    HA_TRY(ctx->api->copy(ctx->stream, v->all_count_device, v->all_count, heads * sizeof *v->all_count, HA_H2D));
    return ctx->api->event_record(v->uploaded, ctx->stream);
}

static enum ha_status ready(struct ha_layer *l, struct ha_why *why)
{
    struct scout *c = l->shared;
    struct level *v = level(l);
    HA_TRY(ha_recall_load(&c->recall, l->layer, v->first, blocks_of(l), why));
    v->since = 0;
    v->due = v->landed = false;
    v->steps = v->cpu_tokens = v->recalls = v->recalled = 0;
    v->cosine = v->cosines = v->changed = v->changes = 0;
    if (v->before_blocks) memset(v->before_blocks, 0, l->ctx->shape->batch * sizeof *v->before_blocks);
    return reads_all(l) ? list_residents(l) : HA_OK;
}

static enum ha_status rewind_sequence(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct scout *c = l->shared;
    struct sequence *seq = sequence(l, b);
    seq->digests.blocks = l->tokens[b] / c->block;
    return ha_tail_rewind(l->ctx, &seq->tail, &c->recall.layer[l->layer].store[b], l->tokens[b]);
}

/* ---- one step: what is read ---------------------------------------------------------------------------------------
 */

/* Of all whole blocks of a layer, by q on the device. */
static enum ha_status score(const struct ha_layer *l, const float *q)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct scout *c = l->shared;
    for (size_t b = 0; b < s->batch; b++) {
        const size_t rows = s->q_heads * s->q_len;
        const struct ha_digests *d = &sequence(l, b)->digests;
        c->by[b] = (struct ha_device_score_seq){ .q = q + b * rows * s->head_dim,
                                                 .digests = d->bytes,
                                                 .head_bytes = d->head_bytes,
                                                 .blocks = d->blocks,
                                                 .s = c->score + b * rows * c->recall.blocks_max,
                                                 .s_stride = c->recall.blocks_max };
    }
    return ctx->api->digest_score(ctx->stream, &(struct ha_device_digest_score){ .batch = s->batch,
                                                                                 .q_len = s->q_len,
                                                                                 .q_heads = s->q_heads,
                                                                                 .kv_heads = s->kv_heads,
                                                                                 .head_dim = s->head_dim,
                                                                                 .dtype = s->dtype,
                                                                                 .scale = s->scale,
                                                                                 .seqs = c->by });
}

/* Of each of `lists` lists the k blocks of largest score to index, [batch][lists][room]. */
static enum ha_status choose(const struct ha_layer *l, size_t lists, size_t k, uint32_t *index, size_t room)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct scout *c = l->shared;
    for (size_t b = 0; b < s->batch; b++)
        c->most[b] = (struct ha_device_topk_seq){ .x = c->by[b].s,
                                                  .n = c->by[b].blocks,
                                                  .k = ha_least(k, c->by[b].blocks),
                                                  .stride = c->by[b].s_stride,
                                                  .index = index + b * lists * room,
                                                  .index_stride = room };
    return ctx->api->topk(
        ctx->stream, &(struct ha_device_topk){
                         .batch = s->batch, .lists = lists, .rows = s->q_heads / lists * s->q_len, .seqs = c->most });
}

/* What the layer's cache has of the chosen blocks, and, where they are asked for, the others. */
static enum ha_status split(const struct ha_layer *l, const struct missing *missing)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct scout *c = l->shared;
    const size_t table = s->kv_heads * c->recall.blocks_max;
    HA_TRY(choose(l, c->lists, c->k, c->index, c->list_max));
    for (size_t b = 0; b < s->batch; b++) {
        const size_t list = b * c->lists;
        c->split[b] = (struct ha_device_split_seq){ .index = c->index + list * c->list_max,
                                                    .count = chosen(c, c->by[b].blocks),
                                                    .index_stride = c->list_max,
                                                    .slot = c->recall.layer[l->layer].slot_device + b * table,
                                                    .blocks = c->recall.blocks_max,
                                                    .slot_stride = c->recall.blocks_max,
                                                    .here = c->here + list * c->list_max,
                                                    .here_count = c->here_count + list,
                                                    .missing = missing ? missing->block + list * c->list_max : NULL,
                                                    .missing_count = missing ? missing->count + list : NULL,
                                                    .out_stride = c->list_max,
                                                    .here_unit = c->block };
    }
    return ctx->api->split(
        ctx->stream,
        &(struct ha_device_split){ .batch = s->batch, .lists = c->lists, .tables = s->kv_heads, .seqs = c->split });
}

/* What the layer's step reads of its cache, from the prediction on. */
static enum ha_status take_snapshot(const struct ha_layer *l, struct ha_why *why)
{
    struct scout *c = l->shared;
    const bool changes = c->recall.layer[l->layer].changed;
    struct level *v = level(l);
    HA_TRY(ha_recall_snapshot(&c->recall, l->layer, &v->landed, why));
    return reads_all(l) && (changes || v->landed) ? list_residents(l) : HA_OK;
}

/* The blocks that the next layer's CPU side reads, and by which query. */
static enum ha_status predict(const struct ha_layer *next, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = next->ctx;
    struct scout *c = next->shared;
    const struct missing *missing = missing_of(next);
    const float *q = step->next_q;
    HA_TRY(take_snapshot(next, why));
    if (!is_oracle(next)) {
        HA_TRY(ha_ahead_begin(&c->ahead, step, (next - 1)->tokens));
        q = c->ahead.q_device;
    } else {
        if (!q) return ha_why(why, HA_ERROR, "predict=oracle: nobody says what the next layer's query will be");
        HA_TRY(ctx->api->copy(ctx->stream, missing->q, q, q_count(ctx->shape) * sizeof *q, HA_D2H));
    }
    HA_TRY(score(next, q));
    HA_TRY(split(next, missing));
    return ctx->api->event_record(c->foreseen, ctx->stream);
}

/* What is on the device, for the report. */
static enum ha_status report(const struct ha_layer *l, const struct ha_step *step)
{
    const struct ha_context *ctx = l->ctx;
    const struct scout *c = l->shared;
    const size_t lists = ctx->shape->batch * c->lists, bytes = lists * c->list_max * sizeof(uint32_t);
    const struct {
        void *to;
        const void *from;
        size_t bytes;
    } copy[] = { { c->record.here, c->here, bytes },
                 { c->record.chosen, c->index, bytes },
                 { c->record.here_count, c->here_count, lists * sizeof(uint32_t) },
                 { c->record.q, step->q, q_count(ctx->shape) * sizeof(float) } };
    for (size_t i = 0; i < sizeof copy / sizeof *copy; i++)
        HA_TRY(ctx->api->copy(ctx->stream, copy[i].to, copy[i].from, copy[i].bytes, HA_D2H));
    return ctx->api->stream_sync(ctx->stream);
}

/* Which blocks a recall would bring, by the step's own query. */
static enum ha_status want(const struct ha_layer *l)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct scout *c = l->shared;
    const size_t slots = c->recall.slots, bytes = s->batch * s->kv_heads * slots * sizeof *c->wanted;
    HA_TRY(choose(l, s->kv_heads, slots, c->wanted_device, slots));
    HA_TRY(ctx->api->copy(ctx->stream, c->wanted, c->wanted_device, bytes, HA_D2H));
    return ctx->api->event_record(c->wanted_came, ctx->stream);
}

static enum ha_status before(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    struct scout *c = l->shared;
    struct level *v = level(l);
    const bool ahead = is_ahead(l), lists = !ahead || !reads_all(l) || ctx->record_selection;
    if (!ahead) HA_TRY(take_snapshot(l, why));
    if (l->layer + 1 < ctx->shape->layers && is_ahead(l + 1)) HA_TRY(predict(l + 1, step, why));
    v->since++;
    v->due = option(l, RECALL) && v->since >= v->interval && !c->recall.layer[l->layer].under_way;
    if (lists || v->due) HA_TRY(score(l, step->q));
    if (lists) HA_TRY(split(l, ahead ? NULL : missing_of(l)));
    if (v->due) HA_TRY(want(l));
    return ctx->record_selection ? report(l, step) : HA_OK;
}

static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    return ha_ring_append(l->ctx, l->ctx->stream, &sequence(l, b)->tail.ring, fresh, 0, fresh->cap);
}

static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct scout *c = l->shared;
    const struct level *v = level(l);
    const struct sequence *seq = sequence(l, b);
    const struct ha_kv fresh = ha_kv_of_step(s, step, b);
    const bool all = reads_all(l);
    const size_t most = all ? ha_recall_held(&c->recall, seq->digests.blocks) : chosen(c, seq->digests.blocks);
    d->list_stride = all ? c->recall.slots : c->list_max;
    d->runs[0] = ha_kv_rows(s, &c->recall.layer[l->layer].cache[b], 0, 0, most * c->block);
    d->runs[0].index = (all ? v->all_device : c->here) + b * l->lists * d->list_stride;
    d->list_keys = (all ? v->all_count_device : c->here_count) + b * l->lists;
    d->runs_count = 1 + ha_ring_runs(s, &seq->tail.ring, d->runs + 1);
    d->runs[d->runs_count++] = ha_kv_rows(s, &fresh, 0, 0, step->q_len);
}

static bool early(const struct ha_layer *l) { return is_ahead(l); }

static enum ha_status foresee(struct ha_layer *l, const float **q, struct ha_why *why)
{
    const struct scout *c = l->shared;
    *q = is_oracle(l) ? missing_of(l)->q : c->ahead.q;
    return l->ctx->api->event_sync(c->foreseen);
}

static void cpu(struct ha_layer *l, size_t b, size_t u, struct ha_attend *a, struct ha_rows *run)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct scout *c = l->shared;
    const struct missing *missing = missing_of(l);
    const size_t list = b * c->lists + u;
    ha_order_thread_access("attend", "missing", HA_READ, missing->count + list, 1, 0, sizeof *missing->count);
    *run = ha_kv_rows(s, &c->recall.layer[l->layer].store[b], u * s->kv_heads / c->lists, 0,
                      missing->count[list] * c->block);
    run->index = missing->block + list * c->list_max;
    a->block = c->block;
    level(l)->cpu_tokens += (double)run->keys;
}

/* ---- one step: what follows it ------------------------------------------------------------------------------------
 */

/* Blocks that have become whole get a digest, and go to host memory. */
static enum ha_status close_blocks(const struct ha_layer *l)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct scout *c = l->shared;
    for (size_t any = 1; any;) {
        any = 0;
        for (size_t b = 0; b < s->batch; b++) {
            struct sequence *seq = sequence(l, b);
            const size_t block = seq->digests.blocks, whole = (block + 1) * c->block <= l->tokens[b];
            c->digest[b] = (struct ha_device_digest_seq){ .digests = seq->digests.bytes,
                                                          .head_bytes = seq->digests.head_bytes,
                                                          .first = block,
                                                          .blocks = whole,
                                                          .k_head_bytes = ha_kv_head_bytes(s) };
            c->digest[b].rows = ha_tail_block(s, &seq->tail, block);
            if (!whole) c->digest[b].rows.keys = 0;
            seq->digests.blocks += whole;
            any += whole;
        }
        if (any)
            HA_TRY(ctx->api->digest(ctx->stream,
                                    &(struct ha_device_digest){ .batch = s->batch,
                                                                .kv_heads = s->kv_heads,
                                                                .head_dim = s->head_dim,
                                                                .unit = c->block,
                                                                .kind = (enum ha_digest_kind)option(l, DIGEST),
                                                                .dtype = s->dtype,
                                                                .seqs = c->digest }));
    }
    for (size_t b = 0; b < s->batch; b++) {
        size_t gone;
        HA_TRY(ha_tail_leave(ctx, ctx->stream, &sequence(l, b)->tail, &c->recall.layer[l->layer].store[b], &gone));
    }
    return HA_OK;
}

static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    struct scout *c = l->shared;
    struct level *v = level(l);
    v->steps++;
    if (v->due) {
        const size_t *blocks = blocks_of(l); /* as the step began: what the scores are of */
        const uint64_t begin = ha_now_ns();
        size_t coming;
        HA_TRY(l->ctx->api->event_sync(c->wanted_came));
        ha_order_thread_access("recall", "wanted", HA_READ, c->wanted, 1, 0, 1);
        HA_TRY(ha_recall_issue(&c->recall, l->layer, c->wanted, blocks, &coming, why));
        ha_frame_selected(l, begin);
        v->since = 0;
        v->recalls++;
        v->recalled += (double)coming;
    }
    return close_blocks(l);
}

/* ---- what is reported ---------------------------------------------------------------------------------------------
 */

static enum ha_status add_block(const struct ha_layer *l, struct ha_positions *to, uint32_t block, struct ha_why *why)
{
    const size_t unit = ((const struct scout *)l->shared)->block;
    return ha_positions_add_range(l->ctx, to, block * unit, (block + 1) * unit, why);
}

static double cosine(const float *a, const float *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

/* of the predicted queries that are recorded, [q_len][head_dim] */
static float *recorded(const struct ha_layer *l, size_t b, size_t head)
{
    const struct ha_shape *s = l->ctx->shape;
    return level(l)->q + (b * s->q_heads + head) * s->q_len * s->head_dim;
}

/* The predicted queries of a head, and how far they are from the true ones. */
static void record_predicted(const struct ha_layer *l, size_t b, size_t head)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct scout *c = l->shared;
    struct level *v = level(l);
    float *to = recorded(l, b, head);
    for (size_t t = 0; t < s->q_len; t++, to += s->head_dim) {
        const size_t at = ((b * s->q_len + t) * s->q_heads + head) * s->head_dim;
        memcpy(to, c->ahead.q_of[l->layer % 2] + at, s->head_dim * sizeof *to);
        v->cosine += cosine(to, c->record.q + at, s->head_dim);
        v->cosines++;
    }
}

/* Which of a list's blocks were not in the list of the step before. */
static void compare(const struct ha_layer *l, size_t b, size_t list)
{
    const struct scout *c = l->shared;
    struct level *v = level(l);
    const size_t n = chosen(c, sequence(l, b)->digests.blocks), then = v->before_blocks[b];
    const uint32_t *now = c->record.chosen + (b * c->lists + list) * c->list_max;
    uint32_t *old = v->before + (b * c->lists + list) * c->list_max;
    for (size_t i = 0, j = 0; then && i < n; i++) {
        while (j < then && old[j] < now[i]) j++;
        v->changed += j == then || old[j] != now[i];
        v->changes++;
    }
    memcpy(old, now, n * sizeof *old);
    if (list + 1 == c->lists) v->before_blocks[b] = n;
}

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct scout *c = l->shared;
    const struct missing *missing = missing_of(l);
    const struct ha_ring *tail = &sequence(l, b)->tail.ring;
    const size_t list = q_head * c->lists / s->q_heads, at = b * c->lists + list;
    const struct ha_resident_set now = ha_residency_now(&c->recall.resident, l->layer, b, q_head / ha_shape_group(s));
    if (reads_all(l))
        for (size_t i = 0; i < *now.count; i++) HA_TRY(add_block(l, &used->device, now.entry[i].block, why));
    else
        for (size_t i = 0; i < c->record.here_count[at] / c->block; i++)
            HA_TRY(add_block(l, &used->device, ha_resident_block(now, c->record.here[at * c->list_max + i]), why));
    HA_TRY(ha_positions_add_range(l->ctx, &used->device, tail->first, tail->end + s->q_len, why));
    for (size_t i = 0; i < missing->count[at]; i++)
        HA_TRY(add_block(l, &used->host, missing->block[at * c->list_max + i], why));
    if (is_predicted(l)) record_predicted(l, b, q_head);
    if ((q_head + 1) * c->lists / s->q_heads > list) compare(l, b, list); /* the list's last head */
    return HA_OK;
}

static void add_words(const struct ha_layer *l, size_t b, size_t q_head, struct ha_selection *out)
{
    const struct level *v = level(l);
    if (is_predicted(l)) out->part[1].q = recorded(l, b, q_head);
    out->note[out->notes++] = (struct ha_note){ "recall", v->due };
    out->note[out->notes++] = (struct ha_note){ "landed", v->landed };
}

static void count(const struct ha_layer *l, ha_count *say, void *arg)
{
    const struct scout *c = l->shared;
    const struct level *v = level(l);
    const double lists = (double)(l->ctx->shape->batch * c->lists);
    say(arg, "recall_interval", l->layer, (double)v->interval);
    say(arg, "recalls", l->layer, v->recalls);
    say(arg, "recalled_blocks", l->layer, v->recalled);
    if (v->steps > 0)
        say(arg, "cpu_of_budget", l->layer, v->cpu_tokens / (v->steps * lists * (double)(c->k * c->block)));
    if (v->cosines > 0) say(arg, "cosine", l->layer, v->cosine / v->cosines);
    if (v->changes > 0) say(arg, "changed", l->layer, v->changed / v->changes);
}

static void counters(const struct ha_layer *first, struct ha_counters *out)
{
    out->recalls = 0;
    for (size_t i = 0; i < first->ctx->shape->layers; i++) out->recalls += level(first + i)->recalls;
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .shared_bytes = sizeof(struct scout),
    .share = share,
    .open = open,
    .prefill = prefill,
    .ready = ready,
    .before = before,
    .append = append,
    .appends_last = true,
    .use = use,
    .report = add_words,
    .device = device,
    .by_head = by_head,
    .by_sequence = by_sequence,
    .cpu = cpu,
    .early = early,
    .foresee = foresee,
    .after = after,
    .count = count,
    .counters = counters,
    .rewind = rewind_sequence,
    .cpu_name = "missing blocks",
};

extern const struct ha_variant ha_variant_scout;
const struct ha_variant ha_variant_scout = {
    .name = "scout",
    .family = "block_sparse",
    .doc = "important blocks in a cache on the device, the rest of the choice on the CPU, which begins a layer early",
    .source = "ScoutAttention, sections 3.2 to 3.4, algorithm 1",
    .contract = HA_BOUNDED,
    .own_states = true,
    .varies = varies,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_MERGE | HA_NEEDS_COPY_2D | HA_NEEDS_DIGEST | HA_NEEDS_TOPK | HA_NEEDS_SPLIT,
    .counters = ha_frame_counters,
    .rewind = ha_frame_rewind,
    .fit = fit,
    HA_FRAME(rule),
};
