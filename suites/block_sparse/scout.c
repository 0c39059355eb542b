/* ScoutAttention: the device has the digests of all whole blocks, a cache of blocks for each KV head, and the newest
 * tokens; host memory has all whole blocks. Of the blocks of largest score the device attends over those of the cache
 * and the CPU over the others, merged on the device. The CPU begins a layer early, with the query that the layer's
 * projection makes of the input of the layer before, and by that query's choice (Algorithm 1). Every so many steps the
 * cache is filled with the blocks that score highest then, which arrive by the layer's next step or a later one.
 *
 * Of the paper: its text lets the device attend over the chosen blocks of the cache, its algorithm over all of them
 * (`resident`). What it leaves open is decided in docs/variants/scout.md. */

#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "suites/parts/ahead.h"
#include "suites/parts/block_store.h"
#include "suites/block_sparse/compare.h"
#include "suites/block_sparse/divide.h"
#include "suites/block_sparse/drift.h"
#include "suites/parts/observe.h"
#include "suites/block_sparse/recall.h"

enum { AHEAD, ORACLE };
enum { TOPK, ALL };
enum { NONE, SEQUENCE };
enum { RECALL_OFF, RECALL_ON, RECALL_WAIT };
HA_WORDS(predict_word, [AHEAD] = "ahead", [ORACLE] = "oracle")
HA_WORDS(resident_word, [TOPK] = "topk", [ALL] = "all")
HA_WORDS(teams_word, [NONE] = "none", [SEQUENCE] = "sequence")
HA_WORDS(recall_word, [RECALL_OFF] = "off", [RECALL_ON] = "on", [RECALL_WAIT] = "wait")
HA_WORDS(switch_word, "off", "on")

enum { BLOCK, BUDGET, CACHE, DIGEST, GROUP, PRECOMPUTE, PREDICT, RESIDENT, RECALL, INTERVAL, RATIO, FETCH, TEAMS };
static const struct ha_param params[] = {
    [BLOCK] = { "block", 32, 8, 128, "tokens of a block: 8, 16, 32, 64 or 128", .whole = true, .power_of_2 = true,
                .draw = "8 16 32 64 128", .fitted = true },
    [BUDGET] = { "budget", 2048, 1, 1 << 24, "tokens of the blocks that a list chooses", .whole = true,
                 .draw = "1..2048", .fitted = true },
    [CACHE] = { "cache", 0, 0, 1 << 24,
                "tokens that a KV head has on the device; 0: the budget, times the lists of a KV head", .whole = true,
                .draw = "0 0 1..2048", .fitted = true },
    [DIGEST] = HA_DIGEST_KIND,
    [GROUP] = HA_GROUP_RULE(HA_GROUP_MAX, ha_group_of_device_word),
    [PRECOMPUTE] = { "precompute", 1, .doc = "the CPU begins a layer early (on), or with the layer's own query",
                     .word = switch_word },
    [PREDICT] = { "predict", AHEAD, .word = predict_word,
                  .doc = "the query it begins with: from the input of the layer before, or the one that will come" },
    [RESIDENT] = { "resident", TOPK, .doc = "what the device reads of its cache: the chosen blocks, or all of them",
                   .word = resident_word },
    [RECALL] = { "recall", RECALL_ON, .word = recall_word,
                 .doc = "the cache is refreshed: what is recalled is used once it has arrived (on), or waited for" },
    [INTERVAL] = { "interval", 8, 0, 1 << 24, "steps from one recall to the next; 0: of each layer, from the fit",
                   .whole = true, .draw = "1..20" },
    [RATIO] = { "ratio", 0.12, 0, 1, "for the fit: of the budget, what the CPU may read on average between two recalls",
                .draw = "0.12", .fitted = true },
    [FETCH] = HA_FETCH_WAY,
    [TEAMS] = { "teams", SEQUENCE, .word = teams_word,
                .doc = "the CPU's threads are in groups, one for each sequence; or all take what there is" },
};

/* For all layers, which follow each other on one stream. */
struct scout {
    struct ha_device_choice choice;
    struct ha_recall recall;
    struct ha_divide divide;
    struct ha_ahead ahead;
    struct ha_compare compare;
    struct ha_event *foreseen;
};

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static bool is_ahead(const struct ha_layer *l) { return option(l, PRECOMPUTE) && l->layer > 0; }
static bool is_oracle(const struct ha_layer *l) { return option(l, PREDICT) == ORACLE; }
static bool is_predicted(const struct ha_layer *l) { return is_ahead(l) && !is_oracle(l); }
static bool is_due(const struct ha_layer *l) { return ((struct scout *)l->shared)->recall.layer[l->layer].due; }
static bool reads_all(const struct ha_layer *l) { return option(l, RESIDENT) == ALL; }
static bool by_head(const struct ha_context *ctx) { return (int)ctx->param[GROUP] == HA_GROUP_HEAD; }
static bool by_sequence(const struct ha_context *ctx) { return (int)ctx->param[TEAMS] == SEQUENCE; }
static bool varies(const double *param) { return (int)param[RECALL] == RECALL_ON; }

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

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_drift size = sizes(ctx->shape, ctx->param);
    const enum ha_fetch_way way = (enum ha_fetch_way)option(first, FETCH);
    const enum ha_ahead_side side = is_oracle(first) ? HA_AHEAD_ORACLE : HA_AHEAD_DEVICE;
    struct scout *c = first->shared;
    HA_TRY(ha_recall_create(&c->recall, first, size.block, size.slots, option(first, RECALL) == RECALL_WAIT, way, why));
    if (option(first, RECALL) != RECALL_OFF) HA_TRY(ha_recall_every(&c->recall, option(first, INTERVAL), why));
    if (reads_all(first)) HA_TRY(ha_recall_list_all(&c->recall, why));
    if (option(first, PRECOMPUTE) && ctx->shape->layers > 1) HA_TRY(ha_ahead_create(&c->ahead, first, side, true, why));
    HA_TRY(ha_device_choice_create(&c->choice, ctx, (enum ha_group)option(first, GROUP), size.digest, size.block,
                                   ha_least(size.k, c->recall.blocks_max), why));
    HA_TRY(ha_divide_create(&c->divide, &c->choice, &c->recall, size.k * size.block, why));
    if (ctx->record_selection) HA_TRY(ha_compare_create(&c->compare, ctx, c->choice.lists, c->choice.list_max, why));
    return ha_device_event(ctx->device_arena, &c->foreseen, why);
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct scout *c = l->shared;
    l->lists = reads_all(l) ? l->ctx->shape->kv_heads : c->choice.lists;
    l->list_max = c->choice.list_max;
    return ha_block_store_open(l, b, c->choice.unit, &c->recall.layer[l->layer].store[b], why);
}

/* The cache begins with the blocks that the observed queries score highest. */
static enum ha_status scout_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct scout *c = l->shared;
    const size_t slots = c->recall.slots, heads = l->ctx->shape->kv_heads;
    HA_TRY(ha_block_store_prefill(l, b, in));
    return ha_observe_blocks(l->ctx, in, b, c->choice.kind, &ha_block_store_of(l, b)->digests, slots,
                             c->recall.layer[l->layer].first + b * heads * slots, slots, why);
}

static enum ha_status ready(struct ha_layer *l, struct ha_why *why)
{
    struct scout *c = l->shared;
    ha_divide_reset(&c->divide, l->layer);
    ha_compare_reset(&c->compare, l->layer);
    return ha_recall_begin(&c->recall, l->layer, why);
}

/* ---- one step: what is read -------------------------------------------------------------------------------------- */

/* The whole blocks of a layer that score highest by q on the device. */
static enum ha_status choose(const struct ha_layer *l, const float *q)
{
    const struct scout *c = l->shared;
    for (size_t b = 0; b < l->ctx->shape->batch; b++)
        ha_device_choice_ask(&c->choice, b, q, &ha_block_store_of(l, b)->digests, c->choice.list_max);
    return ha_device_choice_run(&c->choice);
}

/* What the next layer's CPU side reads, by the query predicted for it. One snapshot serves it and the layer's step. */
static enum ha_status predict(const struct ha_layer *next, const struct ha_step *step, struct ha_why *why)
{
    struct scout *c = next->shared;
    HA_TRY(ha_recall_snapshot(&c->recall, next->layer, why));
    HA_TRY(ha_ahead_begin(&c->ahead, step, (next - 1)->tokens));
    HA_TRY(choose(next, c->ahead.q_device));
    HA_TRY(ha_divide_run(&c->divide, next->layer, true));
    return next->ctx->api->event_record(c->foreseen, next->ctx->stream);
}

static enum ha_status before(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const bool ahead = is_ahead(l), records = l->ctx->record_selection, divides = !ahead || !reads_all(l) || records;
    struct scout *c = l->shared;
    if (!ahead) HA_TRY(ha_recall_snapshot(&c->recall, l->layer, why));
    if (l->layer + 1 < l->ctx->shape->layers && is_ahead(l + 1)) HA_TRY(predict(l + 1, step, why));
    if (divides || is_due(l)) HA_TRY(choose(l, step->q));
    if (divides) HA_TRY(ha_divide_run(&c->divide, l->layer, !ahead));
    if (is_due(l)) HA_TRY(ha_recall_want(&c->recall, &c->choice));
    if (!records) return HA_OK;
    HA_TRY(ha_device_choice_down(&c->choice));
    HA_TRY(ha_divide_down(&c->divide));
    return ha_compare_down(&c->compare, step);
}

static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct scout *c = l->shared;
    ha_divide_device(&c->divide, l->layer, b, ha_block_store_of(l, b)->digests.blocks, d);
    ha_block_store_device(l, step, b, d);
}

static enum ha_status foresee(struct ha_layer *l, const float **q, struct ha_why *why)
{
    const struct scout *c = l->shared;
    *q = c->ahead.q;
    return l->ctx->api->event_sync(c->foreseen);
}

static void cpu(struct ha_layer *l, size_t b, size_t u, struct ha_attend *a, struct ha_rows *run)
{
    const struct scout *c = l->shared;
    ha_divide_cpu(&c->divide, l->layer, b, u, run);
    a->block = c->choice.unit;
}

/* Behind the attention: the cache is refilled where that is due, by the scores of the step's own query, and blocks that
 * have become whole leave. */
static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    struct scout *c = l->shared;
    if (is_due(l)) HA_TRY(ha_recall_refill(&c->recall, l, why));
    return ha_block_store_close(l, &c->choice);
}

/* ---- what is reported -------------------------------------------------------------------------------------------- */

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct scout *c = l->shared;
    if (is_predicted(l)) ha_compare_query(&c->compare, l->layer, b, q_head, c->ahead.q_of[l->layer % 2]);
    ha_compare_choice(&c->compare, l->layer, b, q_head, &c->choice);
    HA_TRY(ha_divide_use(&c->divide, l->layer, b, q_head, used, why));
    return ha_block_store_use(l, b, &used->device, why);
}

static void report(const struct ha_layer *l, size_t b, size_t q_head, struct ha_selection *out)
{
    const struct scout *c = l->shared;
    if (is_predicted(l)) out->part[1].q = ha_compare_predicted(&c->compare, l->layer, b, q_head);
    ha_recall_report(&c->recall, l->layer, out);
}

static void scout_count(const struct ha_layer *l, ha_count *say, void *arg)
{
    const struct scout *c = l->shared;
    ha_recall_count(&c->recall, l->layer, say, arg);
    ha_divide_count(&c->divide, l->layer, say, arg);
    ha_compare_count(&c->compare, l->layer, say, arg);
}

static const struct ha_rule rule = {
    .shared_bytes = sizeof(struct scout),
    .share = share,
    .open = open,
    .prefill = scout_prefill,
    .ready = ready,
    .before = before,
    .use = use,
    .report = report,
    .device = device,
    .by_head = by_head,
    .by_sequence = by_sequence,
    .cpu = cpu,
    .early = is_ahead,
    .foresee = foresee,
    .after = after,
    .count = scout_count,
    HA_BLOCK_STORE_HOOKS,
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
