/* ScoutAttention: blocks that are resident on the device, others attended on the host, by queries known a layer ahead.
 *
 * Of the n tokens before a step m = floor(n / block) blocks are whole. What is behind them is always used, on the
 * device, with the new tokens. TOP(q) are the k = max(1, floor(budget / block)) whole blocks of largest score, all
 * where there are no more, scored as Quest does (digest = range | mean); of a query head by its own query, with group =
 * max of a KV head, a score being the largest of its query heads'.
 *
 * R are the resident blocks of a layer, sequence and KV head, in `slots` = max(1, floor(cache / block)) slots; cache =
 * 0: k slots for each list that the KV head has. At first it is the `slots` blocks of largest score by the prefill's
 * observed queries of all its query heads, each of which scores every whole block; without observed queries the last
 * ones. A block that becomes whole is not resident until it is recalled.
 *
 * On the device a query head uses those blocks of R that are in TOP(q), with resident = all all of R. On the host it
 * uses the blocks of TOP(q') that are not in R, by the query q': q' = q in layer 0, with precompute = off, and with
 * predict = oracle; the part has no query of its own; else q' is W_Q, bias, norm and rotary position of the layer on
 * the input of the layer before, of the same tokens. The part says which query it was, as near to that as binary32 is,
 * and is then chosen by what it says.
 *
 * A recall is of a layer and sequence. Note `recall` = 1 says that one was issued behind the step's attention. It is
 * issued where `interval` steps have passed since the last one (since the prefill), and that is no longer under way;
 * and nowhere else. interval = 0: by layer, tensor `interval` of the fit. Wanted are the `slots` whole blocks of
 * largest score by the true queries of that step, of the KV head together. From the next step on residents that are not
 * wanted are gone. Those that are wanted and were absent are resident from the step on whose note `landed` is 1, the
 * next at the earliest, and any later one: when it comes is the link's; but with recall = wait the next one. A recall
 * that changes nothing need not land to be over.
 *
 * What is resident shows in what is used, and of a tie of scores either block may be. So of each block is known that it
 * is in, that it is out, or neither, and what is reported decides: the first report of a tie is adopted.
 *
 * Params: block, budget, cache, digest, group, precompute, predict, resident, recall, interval; the rule ignores the
 * others. */

#include "reference/definitions.h"

#include "harness/base/fit.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK, BUDGET, CACHE, DIGEST, GROUP, PRECOMPUTE, PREDICT, RESIDENT, RECALL, INTERVAL };

/* Blocks of which `size` are in, as far as is known. */
struct set {
    uint8_t *is; /* enum ha_def_known */
    size_t size;
};

/* R of a KV head: held; while a recall is under way, held and wanted. */
struct residents {
    struct set held, want;
    size_t count; /* blocks that these know of */

    uint8_t *before; /* [lists][before_count] enum ha_def_known, TOP(q) of the step before */
    size_t before_count;
};

/* What is counted of a layer. */
struct counted {
    struct ha_def_tally cosine, changed, of_budget, recalled;
};

struct recall {
    size_t step, issued; /* the step that is judged, the last that issued one; from 1 on */
    size_t recalls;
    bool issues, landed; /* the notes of the step */
    bool under_way;
};

struct ha_def {
    struct ha_shape shape;
    struct ha_def_blocks block;
    size_t chosen, slots;
    bool ahead, all, recalls, waits; /* precompute = on with predict = ahead; resident = all; recall = on; = wait */
    size_t interval;
    const float *intervals; /* of the fit, or NULL */

    struct residents *residents;   /* [layers][batch][kv_heads] */
    struct recall *recall;         /* [layers][batch] */
    struct counted *counted;       /* [layers] */
    struct ha_def_predicted *next; /* [batch] the queries of the next layer */

    /* of the KV head that is judged */
    struct ha_def_choice own, other; /* scores by q, by q' */
    uint8_t *side;                   /* [heads][blocks] HA_MARK_... */
    uint8_t *is;                     /* [blocks] for a choice */
    struct ha_ref_score *score;      /* [blocks] of all heads together */
    struct ha_def_predicted query;   /* [heads][q_len][head_dim] q' */
};

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "scout: no memory"); }

static enum ha_status no_input(struct ha_why *why)
{
    return ha_why(why, HA_ERROR,
                  "scout: predict=ahead needs layer inputs, which the dataset does not have: take one that has "
                  "(residual, walk, trace), or predict=oracle");
}

static size_t kv_heads(const struct ha_shape *s) { return s->layers * s->batch * s->kv_heads; }

static enum ha_status create(struct ha_def **out, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    const bool ahead = param[PRECOMPUTE] > 0 && param[PREDICT] <= 0 && shape->layers > 1, group = param[GROUP] > 0,
               recalls = param[RECALL] > 0;
    struct ha_tensor interval = { .name = "interval", .type = HA_T_F32, .dims = 1, .dim = { shape->layers } };
    if (ahead && shape->model_dim == 0) return no_input(why);
    if (recalls && param[INTERVAL] <= 0) HA_TRY(ha_fit_get(fit, &interval, why));
    struct ha_def *def = *out = calloc(1, sizeof *def);
    if (!def) return no_memory(why);
    def->shape = *shape;
    def->block = (struct ha_def_blocks){ .size = (size_t)param[BLOCK], .mean = param[DIGEST] > 0 };
    def->chosen = (size_t)fmax(1, floor(param[BUDGET] / param[BLOCK]));
    def->slots = (size_t)fmax(1, floor(param[CACHE] / param[BLOCK]));
    if (param[CACHE] <= 0) def->slots = def->chosen * (group ? 1 : ha_shape_group(shape));
    def->ahead = ahead;
    def->all = param[RESIDENT] > 0;
    def->recalls = recalls;
    def->waits = param[RECALL] > 1;
    def->interval = (size_t)param[INTERVAL];
    def->intervals = interval.data;
    def->own = def->other = (struct ha_def_choice){ .what = "block", .group = group ? HA_DEF_MAX : HA_DEF_HEAD };
    def->residents = calloc(kv_heads(shape), sizeof *def->residents);
    def->recall = calloc(shape->layers * shape->batch, sizeof *def->recall);
    def->counted = calloc(shape->layers, sizeof *def->counted);
    def->next = calloc(shape->batch, sizeof *def->next);
    return def->residents && def->recall && def->counted && def->next ? HA_OK : no_memory(why);
}

static void destroy(struct ha_def *def)
{
    for (size_t i = 0; def->residents && i < kv_heads(&def->shape); i++) {
        free(def->residents[i].held.is);
        free(def->residents[i].want.is);
        free(def->residents[i].before);
    }
    for (size_t b = 0; def->next && b < def->shape.batch; b++) ha_def_predicted_end(&def->next[b]);
    ha_def_predicted_end(&def->query);
    ha_def_choice_end(&def->own);
    ha_def_choice_end(&def->other);
    free(def->residents);
    free(def->recall);
    free(def->counted);
    free(def->next);
    free(def->side);
    free(def->is);
    free(def->score);
    free(def);
}

/* ---- what is resident ----------------------------------------------------------------------- */

static struct residents *residents_of(const struct ha_def *def, const struct ha_def_head *h, size_t kv_head)
{
    return &def->residents[(h->layer * def->shape.batch + h->seq) * def->shape.kv_heads + kv_head];
}

static struct recall *recall_of(const struct ha_def *def, const struct ha_def_head *h)
{
    return &def->recall[h->layer * def->shape.batch + h->seq];
}

static size_t interval_of(const struct ha_def *def, size_t layer)
{
    return def->intervals ? (size_t)fmax(1, fmin((double)def->intervals[layer], 1 << 24)) : def->interval;
}

static enum ha_def_known known(const struct residents *r, bool under_way, size_t b)
{
    const enum ha_def_known held = r->held.is[b], want = under_way ? r->want.is[b] : HA_DEF_IN;
    if (held == HA_DEF_OUT || want == HA_DEF_OUT) return HA_DEF_OUT;
    return held == HA_DEF_IN && want == HA_DEF_IN ? HA_DEF_IN : HA_DEF_MAYBE;
}

/* false: it is the opposite. *more: something was not known. Under way a block that is out may be so by either set. */
static bool learn(struct residents *r, bool under_way, size_t b, enum ha_def_known is, bool *more)
{
    uint8_t *held = &r->held.is[b], *want = &r->want.is[b];
    const enum ha_def_known was = known(r, under_way, b);
    if (was != HA_DEF_MAYBE) return was == is;
    if (is == HA_DEF_IN) {
        *more = true;
        *held = HA_DEF_IN;
        if (under_way) *want = HA_DEF_IN;
    } else if (!under_way || *want == HA_DEF_IN) {
        *more = true;
        *held = HA_DEF_OUT;
    } else if (*held == HA_DEF_IN) {
        *more = true;
        *want = HA_DEF_OUT;
    }
    return true;
}

/* What the size of a set says of those of which nothing is known. */
static enum ha_status count_set(struct set *set, size_t count, const struct ha_def_head *h, bool *more,
                                struct ha_why *why)
{
    size_t in = 0, maybe = 0, last = 0;
    for (size_t b = 0; b < count; b++) {
        if (set->is[b] == HA_DEF_IN) in++, last = b;
        maybe += set->is[b] == HA_DEF_MAYBE;
    }
    if (in > set->size)
        return ha_def_wrong(h, why, "block %zu is one resident too many: there are %zu", last, set->size);
    if (in + maybe < set->size)
        return ha_def_wrong(h, why, "%zu blocks may be resident, and there are %zu that are", in + maybe, set->size);
    if (maybe == 0 || (in < set->size && in + maybe > set->size)) return HA_OK;
    const uint8_t is = in == set->size ? HA_DEF_OUT : HA_DEF_IN;
    for (size_t b = 0; b < count; b++)
        if (set->is[b] == HA_DEF_MAYBE) set->is[b] = is;
    *more = true;
    return HA_OK;
}

static enum ha_status count_residents(struct residents *r, bool under_way, const struct ha_def_head *h, bool *more,
                                      struct ha_why *why)
{
    HA_TRY(count_set(&r->held, r->count, h, more, why));
    return under_way ? count_set(&r->want, r->count, h, more, why) : HA_OK;
}

/* Nothing of blocks that are new. */
static enum ha_status grow(struct residents *r, size_t count, struct ha_why *why)
{
    uint8_t *held = realloc(r->held.is, count + 1);
    if (held) r->held.is = held;
    uint8_t *want = realloc(r->want.is, count + 1);
    if (want) r->want.is = want;
    if (!held || !want) return no_memory(why);
    for (size_t b = r->count; b < count; b++) held[b] = want[b] = HA_DEF_OUT;
    r->count = count;
    return HA_OK;
}

/* The `slots` of largest score. score: [count] */
static enum ha_status best(const struct ha_def *def, const struct ha_ref_score *score, size_t count, struct set *out,
                           struct ha_why *why)
{
    memset(out->is, HA_DEF_MAYBE, count);
    out->size = def->slots < count ? def->slots : count;
    return ha_def_partial_learn(score, out->is, count, def->slots, why);
}

static enum ha_status scout_prefill(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    const size_t heads = ha_shape_group(&def->shape), count = h->tokens / def->block.size;
    if (h->head % heads) return HA_OK;
    struct residents *r = residents_of(def, h, h->head / heads);
    struct ha_def_choice all = { .what = "block", .group = HA_DEF_MAX };
    def->block.count = count;
    HA_TRY(grow(r, count, why));
    r->held.size = def->slots < count ? def->slots : count;
    for (size_t b = 0; b < count; b++) r->held.is[b] = b + r->held.size >= count ? HA_DEF_IN : HA_DEF_OUT;
    if (h->queries == 0) return HA_OK;
    enum ha_status status = ha_def_choice_begin(&all, heads, count, why);
    if (status == HA_OK) {
        ha_def_choice_digests(&all, &def->shape, &def->block, h);
        status = best(def, all.score, count, &r->held, why);
    }
    ha_def_choice_end(&all);
    return status;
}

/* Whether the recall that is under way may change nothing: it need not land to be over. */
static bool may_be_over(const struct ha_def *def, const struct ha_def_head *h)
{
    for (size_t kv = 0; kv < def->shape.kv_heads; kv++) {
        const struct residents *r = residents_of(def, h, kv);
        for (size_t b = 0; b < r->count; b++)
            if (r->want.is[b] == HA_DEF_IN && r->held.is[b] == HA_DEF_OUT) return false;
    }
    return true;
}

static enum ha_status note(const struct ha_def_head *h, const char *name, bool *is, struct ha_why *why)
{
    const double value = ha_def_note(h, name);
    *is = value > 0;
    if (!isnan(value) && value != 0 && value != 1)
        return ha_def_wrong(h, why, "note %s is %g, neither 0 nor 1", name, value);
    return HA_OK;
}

/* All that is wanted is resident; where nothing came it was before. */
static void end_recall(const struct ha_def *def, const struct ha_def_head *h, bool came)
{
    for (size_t kv = 0; kv < def->shape.kv_heads; kv++) {
        struct residents *r = residents_of(def, h, kv);
        for (size_t b = 0; b < r->count; b++) r->held.is[b] = came ? r->want.is[b] : (uint8_t)known(r, true, b);
        r->held.size = r->want.size;
    }
}

/* The first head of a sequence: whether a recall has landed, and whether one was to be issued. */
static enum ha_status judge_recall(const struct ha_def *def, const struct ha_def_head *h, struct recall *c,
                                   struct ha_why *why)
{
    c->step++;
    const size_t interval = interval_of(def, h->layer);
    const bool due = def->recalls && c->step - c->issued >= interval;
    HA_TRY(note(h, "recall", &c->issues, why));
    HA_TRY(note(h, "landed", &c->landed, why));
    if (c->landed && !c->under_way)
        return ha_def_wrong(h, why, "a recall landed in step %zu, and none was under way", c->step);
    if (def->waits && c->under_way && !c->landed && !may_be_over(def, h))
        return ha_def_wrong(h, why, "the recall of step %zu has not landed in step %zu, which waits for it", c->issued,
                            c->step);
    if (c->landed) end_recall(def, h, true), c->under_way = false;
    if (c->issues && !def->recalls) return ha_def_wrong(h, why, "a recall was issued, and recall is off");
    if (c->issues && !due)
        return ha_def_wrong(h, why, "a recall was issued in step %zu, and the last in %zu: the interval is %zu",
                            c->step, c->issued, interval);
    if (!c->issues && due && !c->under_way)
        return ha_def_wrong(h, why, "no recall was issued in step %zu, and the last in %zu: the interval is %zu",
                            c->step, c->issued, interval);
    if (!c->issues || !c->under_way) return HA_OK;
    if (!may_be_over(def, h))
        return ha_def_wrong(h, why, "a recall was issued in step %zu, and that of step %zu has not landed", c->step,
                            c->issued);
    end_recall(def, h, false);
    c->under_way = false;
    return HA_OK;
}

static enum ha_status judge_notes(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    struct recall *c = recall_of(def, h);
    bool issues, landed;
    if (h->head == 0) return judge_recall(def, h, c, why);
    HA_TRY(note(h, "recall", &issues, why));
    HA_TRY(note(h, "landed", &landed, why));
    if (issues != c->issues || landed != c->landed)
        return ha_def_wrong(h, why, "note %s is not that of head 0", issues != c->issues ? "recall" : "landed");
    return HA_OK;
}

/* ---- what is reported ----------------------------------------------------------------------- */

static bool is_ahead(const struct ha_def *def, const struct ha_def_head *h) { return def->ahead && h->layer > 0; }

/* q' of a head that has nothing on the host: what is predicted. */
static void take_predicted(struct ha_def *def, const struct ha_def_head *h)
{
    const struct ha_shape *s = &def->shape;
    const struct ha_def_predicted *of = &def->next[h->seq];
    const size_t to = h->head % ha_shape_group(s) * h->queries * s->head_dim;
    for (size_t i = 0; i < h->queries * s->head_dim; i++) {
        const size_t from = (i / s->head_dim * s->q_heads + h->head) * s->head_dim + i % s->head_dim;
        def->query.q[to + i] = of->q[from];
        def->query.off[to + i] = of->off[from];
    }
}

/* The query that a part on the host was made with. */
static enum ha_status judge_query(struct ha_def *def, const struct ha_def_head *h, const struct ha_part *part,
                                  struct ha_why *why)
{
    const size_t dim = def->shape.head_dim, at = h->head % ha_shape_group(&def->shape) * h->queries * dim;
    if (!is_ahead(def, h)) {
        if (!part->q) return HA_OK;
        return ha_def_wrong(h, why, "key %u is on the host, and not weighed by the step's query",
                            (unsigned)part->token[0]);
    }
    if (!part->q)
        return ha_def_wrong(h, why, "key %u is on the host, and not weighed by a predicted query",
                            (unsigned)part->token[0]);
    for (size_t i = 0; i < h->queries * dim; i++) {
        const double q = (double)part->q[i], want = def->query.q[at + i];
        if (!(fabs(q - want) <= def->query.off[at + i]))
            return ha_def_wrong(h, why, "query[%zu] of token %zu is %.9g on the host, and %.9g is predicted", i % dim,
                                i / dim, q, want);
    }
    for (size_t i = 0; i < h->queries * dim; i++) {
        def->query.q[at + i] = (double)part->q[i];
        def->query.off[at + i] = 0;
    }
    return HA_OK;
}

static enum ha_status judge_parts(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    bool seen[2] = { false, false };
    if (is_ahead(def, h)) take_predicted(def, h);
    for (size_t i = 0; i < h->chosen->parts; i++) {
        const struct ha_part *part = &h->chosen->part[i];
        if (part->count == 0) continue;
        const unsigned key = part->token[0];
        if (seen[part->on_device])
            return ha_def_wrong(h, why, "key %u is in a second part of the %s", key,
                                part->on_device ? "device" : "host");
        seen[part->on_device] = true;
        if (part->k || part->weight_only)
            return ha_def_wrong(h, why, "key %u is not weighed by itself and its value", key);
        if (part->on_device && part->q)
            return ha_def_wrong(h, why, "key %u is on the device, and not weighed by the step's query", key);
        if (!part->on_device) HA_TRY(judge_query(def, h, part, why));
    }
    return HA_OK;
}

/* What is behind the whole blocks, and on which side each of these is. */
static enum ha_status judge_places(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                   struct ha_why *why)
{
    const size_t count = def->block.count, size = def->block.size, before = h->tokens - h->queries;
    uint8_t *side = def->side + h->head % ha_shape_group(&def->shape) * count;
    for (size_t j = count * size; j < h->tokens; j++)
        if (mark[j] != HA_MARK_DEVICE)
            return ha_def_wrong(h, why, "key %zu is %s: it is %s", j, mark[j] ? "on the host" : "missing",
                                j >= before ? "new" : "behind the last whole block");
    for (size_t b = 0; b < count; b++) {
        side[b] = mark[b * size];
        for (size_t j = b * size; j < (b + 1) * size; j++)
            if (mark[j] != side[b])
                return ha_def_wrong(h, why, "key %zu is %s: block %zu is %s", j,
                                    !mark[j]                    ? "missing"
                                    : mark[j] == HA_MARK_DEVICE ? "on the device"
                                                                : "on the host",
                                    b, mark[j] && side[b] ? "on both sides" : "used in part");
    }
    return HA_OK;
}

static enum ha_status begin_kv_head(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    const size_t heads = ha_shape_group(&def->shape), numbers = heads * h->queries * def->shape.head_dim;
    const size_t count = def->block.count = (h->tokens - h->queries) / def->block.size;
    free(def->side);
    free(def->is);
    free(def->score);
    ha_def_predicted_end(&def->query);
    def->side = malloc(heads * count + 1);
    def->is = malloc(count + 1);
    def->score = malloc((count + 1) * sizeof *def->score);
    def->query = (struct ha_def_predicted){ malloc(numbers * sizeof(double)), malloc(numbers * sizeof(double)) };
    if (!def->side || !def->is || !def->score || !def->query.q || !def->query.off) return no_memory(why);
    HA_TRY(ha_def_choice_begin(&def->own, heads, count, why));
    HA_TRY(ha_def_choice_begin(&def->other, heads, count, why));
    return grow(residents_of(def, h, h->head / heads), count, why);
}

/* ---- what the rule says of it --------------------------------------------------------------- */

/* h: the first head of its KV head */
static void score_blocks(struct ha_def *def, const struct ha_def_head *h)
{
    const struct ha_shape *s = &def->shape;
    const size_t dim = s->head_dim, heads = ha_shape_group(s);
    struct ha_def_digest digest;
    ha_def_choice_digests(&def->own, s, &def->block, h);
    for (size_t b = 0; b < def->block.count; b++) {
        def->score[b] = def->own.score[b];
        for (size_t g = 1; g < heads && def->own.group == HA_DEF_HEAD; g++) {
            const struct ha_ref_score *of = &def->own.score[g * def->block.count + b];
            def->score[b].value = fmax(def->score[b].value, of->value);
            def->score[b].low = fmax(def->score[b].low, of->low);
            def->score[b].high = fmax(def->score[b].high, of->high);
        }
    }
    for (size_t b = 0; is_ahead(def, h) && b < def->block.count; b++) {
        ha_def_digest(s, &def->block, h->k, b, &digest);
        for (size_t g = 0; g < heads; g++)
            for (size_t t = 0; t < h->queries; t++) {
                const size_t at = (g * h->queries + t) * dim;
                ha_def_choice_score(
                    &def->other, g, b,
                    ha_def_digest_score(s, &def->block, &digest, def->query.q + at, def->query.off + at));
            }
    }
}

/* Why a block that is on the device is not resident. */
static const char *absent(const struct residents *r, bool under_way, size_t b)
{
    if (under_way && r->held.is[b] != HA_DEF_OUT) return "the last recall did not want it";
    if (under_way && r->want.is[b] != HA_DEF_OUT) return "it has not been recalled yet";
    return "it is not resident";
}

/* What is used in some place is resident or not. */
static enum ha_status judge_sides(struct residents *r, bool under_way, const struct ha_def_head *h, const uint8_t *side,
                                  bool all, bool *more, struct ha_why *why)
{
    for (size_t b = 0; b < r->count; b++) {
        if (side[b] == HA_MARK_DEVICE && !learn(r, under_way, b, HA_DEF_IN, more))
            return ha_def_wrong(h, why, "block %zu is on the device: %s", b, absent(r, under_way, b));
        if (side[b] == HA_MARK_HOST && !learn(r, under_way, b, HA_DEF_OUT, more))
            return ha_def_wrong(h, why, "block %zu is on the host, and resident", b);
        if (all && side[b] == HA_MARK_NONE && !learn(r, under_way, b, HA_DEF_OUT, more))
            return ha_def_wrong(h, why, "block %zu is missing: it is resident", b);
    }
    return HA_OK;
}

/* A choice that there is not. where: what is used of it; query: by what it is chosen */
static enum ha_status wrong_choice(const struct ha_def_partial *p, const struct ha_def_head *h, const char *where,
                                   const char *query, struct ha_why *why)
{
    const size_t weakest = p->weakest, strongest = p->strongest, need = p->want - p->in;
    if (p->in > p->want)
        return ha_def_wrong(h, why, "%zu blocks are %s, %s chooses %zu: block %zu (score %.9g) is one too many", p->in,
                            where, query, p->want, weakest, p->score[weakest].value);
    if (p->in + p->maybe < p->want)
        return ha_def_wrong(h, why, "%zu blocks may be chosen, %s chooses %zu: block %zu (score %.9g) is missing",
                            p->in + p->maybe, query, p->want, strongest, p->score[strongest].value);
    if (!(p->least >= p->most))
        return ha_def_wrong(h, why, "block %zu (score %.9g) is %s, block %zu (score %.9g) is not: %s chooses", weakest,
                            p->score[weakest].value, where, strongest, p->score[strongest].value, query);
    if (need < p->maybe && !(p->least >= p->low[need]))
        return ha_def_wrong(h, why, "block %zu (score %.9g) is %s, and is not among the %zu best of %s", weakest,
                            p->score[weakest].value, where, p->want, query);
    return ha_def_wrong(h, why, "block %zu (score %.9g) is not %s, and is among the %zu best of %s", strongest,
                        p->score[strongest].value, where, p->want, query);
}

/* A choice of which those are seen that are on one side, the others being hidden by what is resident. of: what a block
 * is that is not there, and not for certain hidden */
struct seen {
    const struct ha_ref_score *score;
    uint8_t side;            /* where it is seen */
    enum ha_def_known hides; /* residents that are OUT, or those that are IN */
    const char *where, *query;
};

/* And what the choice says of those of which it is not known whether it is hidden. */
static enum ha_status judge_seen(struct ha_def *def, struct residents *r, bool under_way, const struct ha_def_head *h,
                                 const uint8_t *side, const struct seen *seen, bool *more, struct ha_why *why)
{
    struct ha_def_partial p;
    const enum ha_def_known shows = seen->hides == HA_DEF_IN ? HA_DEF_OUT : HA_DEF_IN;
    for (size_t b = 0; b < r->count; b++)
        def->is[b] = side[b] == seen->side ? HA_DEF_IN : known(r, under_way, b) == shows ? HA_DEF_OUT : HA_DEF_MAYBE;
    HA_TRY(ha_def_partial_begin(&p, seen->score, def->is, r->count, def->chosen, why));
    enum ha_status status = ha_def_partial_is(&p) ? HA_OK : wrong_choice(&p, h, seen->where, seen->query, why);
    for (size_t b = 0; b < r->count && status == HA_OK; b++)
        if (side[b] == HA_MARK_NONE && known(r, under_way, b) == HA_DEF_MAYBE && !ha_def_partial_may(&p, b, HA_DEF_OUT))
            learn(r, under_way, b, seen->hides, more);
    ha_def_partial_end(&p);
    return status;
}

/* Both are one choice: each block that is chosen is on some side. */
static enum ha_status judge_both(struct ha_def *def, const struct residents *r, const struct ha_def_head *h,
                                 const uint8_t *side, const struct ha_ref_score *score, struct ha_why *why)
{
    struct ha_def_partial p;
    for (size_t b = 0; b < r->count; b++) def->is[b] = side[b] ? HA_DEF_IN : HA_DEF_OUT;
    HA_TRY(ha_def_partial_begin(&p, score, def->is, r->count, def->chosen, why));
    const enum ha_status status = ha_def_partial_is(&p) ? HA_OK : wrong_choice(&p, h, "used", "the step's query", why);
    ha_def_partial_end(&p);
    return status;
}

/* One list, of a query head or with group = max of all of a KV head. */
static enum ha_status judge_list(struct ha_def *def, struct residents *r, bool under_way, const struct ha_def_head *h,
                                 size_t list, bool *more, struct ha_why *why)
{
    const bool ahead = is_ahead(def, h);
    const uint8_t *side = def->side + list * r->count;
    const struct ha_ref_score *own = def->own.score + list * r->count, *other = def->other.score + list * r->count;
    const struct seen device = { own, HA_MARK_DEVICE, HA_DEF_OUT, "on the device", "the step's query" },
                      host = { ahead ? other : own, HA_MARK_HOST, HA_DEF_IN, "on the host",
                               ahead ? "the part's query" : "the step's query" };
    HA_TRY(judge_sides(r, under_way, h, side, def->all, more, why));
    HA_TRY(count_residents(r, under_way, h, more, why));
    if (!def->all && !ahead) return judge_both(def, r, h, side, own, why);
    if (!def->all) HA_TRY(judge_seen(def, r, under_way, h, side, &device, more, why));
    return judge_seen(def, r, under_way, h, side, &host, more, why);
}

/* ---- what is counted ------------------------------------------------------------------------ */

/* TOP(q) of a list beside that of the step before, as far as what is used and the scores tell. now: [count] */
static enum ha_status count_changed(struct ha_def *def, const struct residents *r, const struct ha_def_head *h,
                                    size_t list, uint8_t *now, struct ha_why *why)
{
    const uint8_t *side = def->side + list * r->count;
    const bool ahead = is_ahead(def, h), whole = !ahead && !def->all;
    for (size_t b = 0; b < r->count; b++) {
        const bool shows = (side[b] == HA_MARK_DEVICE && !def->all) || (side[b] == HA_MARK_HOST && !ahead);
        now[b] = shows ? HA_DEF_IN : whole ? HA_DEF_OUT : HA_DEF_MAYBE;
    }
    HA_TRY(ha_def_partial_learn(def->own.score + list * r->count, now, r->count, def->chosen, why));
    if (r->before_count)
        ha_def_tally_new(&def->counted[h->layer].changed, now, r->count, r->before + list * r->before_count,
                         r->before_count, def->chosen < r->count ? def->chosen : r->count);
    return HA_OK;
}

/* h: a head of it */
static enum ha_status count_kv_head(struct ha_def *def, struct residents *r, const struct ha_def_head *h, size_t lists,
                                    struct ha_why *why)
{
    struct counted *c = &def->counted[h->layer];
    uint8_t *now = malloc(lists * r->count + 1);
    enum ha_status status = now ? HA_OK : no_memory(why);
    for (size_t list = 0; list < lists && status == HA_OK; list++) {
        double host = 0;
        for (size_t b = 0; b < r->count; b++) host += def->side[list * r->count + b] == HA_MARK_HOST;
        ha_def_tally_add(&c->of_budget, host, host, (double)def->chosen);
        status = count_changed(def, r, h, list, now + list * r->count, why);
    }
    free(r->before);
    r->before = now;
    r->before_count = status == HA_OK ? r->count : 0;
    return status;
}

/* Wanted are those of `want`, which is new; what comes is what is not held. */
static void count_recalled(struct ha_def *def, const struct residents *r, const struct ha_def_head *h)
{
    struct ha_def_tally *t = &def->counted[h->layer].recalled;
    ha_def_tally_new(t, r->want.is, r->count, r->held.is, r->count, r->want.size);
}

static void count_cosines(struct ha_def *def, const struct ha_def_head *h)
{
    const struct ha_shape *s = &def->shape;
    const size_t at = h->head % ha_shape_group(s) * h->queries * s->head_dim;
    for (size_t t = 0; t < h->queries; t++)
        ha_def_tally_cosine(&def->counted[h->layer].cosine, def->query.q + at + t * s->head_dim,
                            def->query.off + at + t * s->head_dim, h->q + t * s->q_heads * s->head_dim, s->head_dim);
}

static void scout_count(const struct ha_def *def, ha_def_count *say, void *arg)
{
    for (size_t layer = 0; layer < def->shape.layers; layer++) {
        const struct counted *c = &def->counted[layer];
        const double interval = (double)interval_of(def, layer);
        if (def->recalls) say(arg, "recall_interval", layer, interval, interval);
        say(arg, "recalled_blocks", layer, c->recalled.least, c->recalled.most);
        for (size_t b = 0; b < def->shape.batch; b++) {
            const double recalls = (double)def->recall[layer * def->shape.batch + b].recalls;
            say(arg, "recalls", layer, recalls, recalls);
        }
        ha_def_tally_say(&c->of_budget, "cpu_of_budget", layer, say, arg);
        ha_def_tally_say(&c->cosine, "cosine", layer, say, arg);
        ha_def_tally_say(&c->changed, "changed", layer, say, arg);
    }
}

/* ---- a KV head, a step ---------------------------------------------------------------------- */

/* All heads of a KV head, until none says anything new of what is resident. */
static enum ha_status judge_kv_head(struct ha_def *def, const struct ha_def_head *last, struct ha_why *why)
{
    const size_t heads = ha_shape_group(&def->shape), lists = def->own.group == HA_DEF_MAX ? 1 : heads;
    struct residents *r = residents_of(def, last, last->head / heads);
    const struct recall *c = recall_of(def, last);
    struct ha_def_head first = *last;
    first.head -= heads - 1;
    first.q -= (heads - 1) * def->shape.head_dim;
    score_blocks(def, &first);
    for (size_t g = 1; g < heads && lists == 1; g++)
        for (size_t b = 0; b < r->count; b++)
            if (def->side[g * r->count + b] != def->side[b]) {
                first.head += g;
                return ha_def_wrong(&first, why, "block %zu is not where head %zu has it: they have one choice", b,
                                    first.head - g);
            }
    for (bool more = true; more;) {
        more = false;
        for (size_t list = 0; list < lists; list++) {
            struct ha_def_head h = first;
            h.head += list;
            HA_TRY(judge_list(def, r, c->under_way, &h, list, &more, why));
        }
    }
    HA_TRY(count_kv_head(def, r, last, lists, why));
    if (!c->issues) return HA_OK;
    HA_TRY(best(def, def->score, r->count, &r->want, why));
    count_recalled(def, r, last);
    return HA_OK;
}

static enum ha_status scout_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                  struct ha_why *why)
{
    const size_t heads = ha_shape_group(&def->shape);
    HA_TRY(judge_notes(def, h, why));
    if (h->head % heads == 0) HA_TRY(begin_kv_head(def, h, why));
    HA_TRY(judge_places(def, h, mark, why));
    HA_TRY(judge_parts(def, h, why));
    if (is_ahead(def, h)) count_cosines(def, h);
    return h->head % heads + 1 == heads ? judge_kv_head(def, h, why) : HA_OK;
}

static enum ha_status advance(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    if (h->head > 0) return HA_OK;
    struct recall *c = recall_of(def, h);
    if (c->issues) c->under_way = true, c->issued = c->step, c->recalls++;
    const size_t layer = h->layer + 1;
    if (!def->ahead || layer == def->shape.layers) return HA_OK;
    if (!h->x || !h->projection || !h->projection[layer].wq) return no_input(why);
    return ha_def_predict(&def->next[h->seq], &def->shape, h, why);
}

const struct ha_definition ha_definition_scout = { .variant = "scout",
                                                   .create = create,
                                                   .prefill = scout_prefill,
                                                   .judge = scout_judge,
                                                   .advance = advance,
                                                   .count = scout_count,
                                                   .destroy = destroy };
