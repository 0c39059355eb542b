/* Fluxion (sections 5.2 and 5.3): how many of the host's keys each query head reads, and in blocks of which size,
 * follows from three properties that are predicted of it in each step.
 *
 * Places. Of the n tokens of the prefill the first `sink` are SINK. The H = 128 floor((n - sink - recent) / 128) tokens
 * behind them are the HOST's, none where that is below 0, and stay so. All others are LOCAL: recent ones, and all new
 * ones. SINK and LOCAL are the device's, which uses all of them; each is the keys of one state. What is read of the
 * HOST's keys is one state, too, made by whichever side was free.
 *
 * Properties. Notes bgt0, k and s of a query head say: in blocks of B tokens it needs the share
 *   budget(B) = min(max(bgt0 + k log2 B, 0), 1)
 * of the HOST's keys; it streams (note streaming = 1), needing none, iff s > 0.
 * predict = fixed:  bgt0 is the option budget, k = s = 0.
 *           oracle: the labels of the step's last query (reference/labels.h), its device's keys being SINK and LOCAL.
 *           net:    what the fit's net makes of the head's 41 features (harness/api/features.h), each less its mean and
 *                   times inv, within [-10, 10]: 312 units, 312 units, (bgt0, k, s). q is the step's last query, q' the
 *                   prefill's.
 * What binary32 makes of them is only known within bounds. So those features that do not change with the query are
 * reported (learnt), asked whether they may be, and adopted; they stay the same in all steps. From them the others
 * follow within bounds, and from all of them what the net may say, which the notes must be. They are adopted, too.
 *
 * Blocks. The query heads of a KV head are a group. Its retrieval heads are those that do not stream, with
 * skip_streaming = 0 all. They have one block size, that of 16, 32, 64 and 128 at which
 *   V(B) = 2 H / B + 2 H min(1, sum of budget(B) over the retrieval heads)
 * is least, of equals the smaller; granularity = 16 to 128 is that size. Note `block` of all heads of the group says
 * it; 0: there is no retrieval head, or H = 0, and nothing is read. A retrieval head chooses k of the m = H / B blocks
 * of HOST, note `blocks`: k is the least integer >= 1 with k / m >= budget(B), a quotient of binary64. They are those
 * of largest score: Quest's (reference/quest.c), by digest = range or mean, a block's being the largest over the step's
 * query tokens. With union = 1 each of them reads what one of the group chose. Two scores within what binary32 makes of
 * them are a tie in which either is right, and so are two V within 10^-12 of them. Other heads read nothing of HOST,
 * and have blocks = 0.
 *
 * Params: those of the enum below; the rule ignores the others. */

#include "reference/definitions.h"
#include "reference/properties.h"

#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SINK, RECENT, DIGEST, PREDICT, BUDGET, CRITERION, TAU, GRANULARITY, SKIP_STREAMING, UNION };
enum { BLOCK_LEAST = 16, BLOCK_MOST = 128 };

/* What is counted of a layer: heads that stream and groups that read, of all; mean block of these, and mean share of
 * the blocks that their retrieval heads choose. */
struct counted {
    struct ha_def_tally streaming, scheduled, block, budget;
};

/* What a query head reports of a step beside its properties. */
struct head {
    bool retrieves;
    double block, blocks; /* notes */
    size_t read;          /* keys of HOST */
};

struct ha_def {
    struct ha_shape shape;
    size_t sink, recent, granularity;
    bool mean, skip_streaming, together;
    struct ha_def_predictor predictor;
    struct ha_def_place *place; /* [layers][batch] */
    struct counted *counted;    /* [layers] */

    /* of the sequence that is judged */
    struct ha_def_property *is; /* [q_heads] */
    struct head *head;          /* [q_heads] */
    uint8_t *mark;              /* [q_heads][tokens] */
    size_t *want;               /* [q_heads] blocks that each chooses */
    struct ha_def_choice choice;
};

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "fluxion: no memory"); }

static enum ha_status create(struct ha_def **out, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    struct ha_def *def = *out = calloc(1, sizeof *def);
    if (!def) return no_memory(why);
    def->shape = *shape;
    def->sink = (size_t)param[SINK];
    def->recent = (size_t)param[RECENT];
    def->mean = param[DIGEST] > 0;
    def->granularity = param[GRANULARITY] > 0 ? (size_t)8 << (size_t)param[GRANULARITY] : 0;
    def->skip_streaming = param[SKIP_STREAMING] > 0;
    def->together = param[UNION] > 0;
    def->predictor = (struct ha_def_predictor){ .shape = *shape,
                                                .predict = (enum ha_def_predict)param[PREDICT],
                                                .budget = param[BUDGET],
                                                .criterion = (enum ha_def_criterion)param[CRITERION],
                                                .tau = param[TAU],
                                                .mean = def->mean };
    def->choice = (struct ha_def_choice){ .what = "block", .group = def->together ? HA_DEF_UNION : HA_DEF_HEAD };
    def->place = calloc(shape->layers * shape->batch, sizeof *def->place);
    def->counted = calloc(shape->layers, sizeof *def->counted);
    def->is = calloc(shape->q_heads, sizeof *def->is);
    def->head = calloc(shape->q_heads, sizeof *def->head);
    def->want = calloc(shape->q_heads, sizeof *def->want);
    if (!def->place || !def->counted || !def->is || !def->head || !def->want) return no_memory(why);
    return ha_def_predictor_create(&def->predictor, fit, why);
}

static void destroy(struct ha_def *def)
{
    for (size_t i = 0; def->place && i < def->shape.layers * def->shape.batch; i++) ha_def_place_end(&def->place[i]);
    ha_def_predictor_end(&def->predictor);
    ha_def_choice_end(&def->choice);
    free(def->place);
    free(def->counted);
    free(def->is);
    free(def->head);
    free(def->want);
    free(def->mark);
    free(def);
}

static struct ha_def_place *place_of(const struct ha_def *def, const struct ha_def_head *h)
{
    return &def->place[h->layer * def->shape.batch + h->seq];
}

static enum ha_status fluxion_prefill(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    const size_t n = h->tokens;
    struct ha_def_place *p = place_of(def, h);
    p->prefill = n;
    p->sinks = def->sink < n ? def->sink : n;
    p->host = n > p->sinks + def->recent ? (n - p->sinks - def->recent) / BLOCK_MOST * BLOCK_MOST : 0;
    return ha_def_predictor_prefill(&def->predictor, p, h, why);
}

/* ---- places ---------------------------------------------------------------------------------------------------- */

enum segment { IN_SINK, IN_HOST, IN_LOCAL, SEGMENTS };
static enum segment segment_of(const struct ha_def_place *p, size_t token)
{
    return token < p->sinks ? IN_SINK : token < p->sinks + p->host ? IN_HOST : IN_LOCAL;
}
static const char *const segment_name[] = { "of the sink", "of the host's", "recent or new" };

static enum ha_status judge_part(const struct ha_def_place *p, const struct ha_def_head *h, const struct ha_part *part,
                                 bool seen[SEGMENTS], struct ha_why *why)
{
    const unsigned first = part->token[0];
    const enum segment segment = segment_of(p, first);
    for (size_t i = 1; i < part->count; i++)
        if (segment_of(p, part->token[i]) != segment)
            return ha_def_wrong(h, why, "key %u is in one state with key %u: it is %s", (unsigned)part->token[i], first,
                                segment_name[segment_of(p, part->token[i])]);
    if (segment == IN_HOST && part->on_device && !part->either_side)
        return ha_def_wrong(h, why, "key %u is no longer on the device", first);
    if (segment != IN_HOST && (!part->on_device || part->either_side))
        return ha_def_wrong(h, why, "key %u is not the host's: it is %s", first, segment_name[segment]);
    if (part->q || part->k || part->weight_only || part->profile)
        return ha_def_wrong(h, why, "key %u is not weighed by the step's query, itself and its value", first);
    if (seen[segment])
        return ha_def_wrong(h, why, "key %u is in a second state: it is %s", first, segment_name[segment]);
    seen[segment] = true;
    return HA_OK;
}

static enum ha_status judge_places(const struct ha_def_place *p, const struct ha_def_head *h, const uint8_t *mark,
                                   struct ha_why *why)
{
    bool seen[SEGMENTS] = { false };
    for (size_t i = 0; i < h->chosen->parts; i++)
        if (h->chosen->part[i].count) HA_TRY(judge_part(p, h, &h->chosen->part[i], seen, why));
    for (size_t j = 0; j < h->tokens; j++)
        if (mark[j] == HA_MARK_NONE && segment_of(p, j) != IN_HOST)
            return ha_def_wrong(h, why, "key %zu is missing: it is %s", j, segment_name[segment_of(p, j)]);
    return HA_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------------------------- */

static double budget(const struct ha_def_property *is, size_t block)
{
    return fmin(fmax(is->bgt0 + is->k * log2((double)block), 0), 1);
}

/* V of the group whose first head this is */
static double volume(const struct ha_def *def, size_t first, size_t host, size_t block)
{
    double sum = 0;
    for (size_t g = first; g < first + ha_shape_group(&def->shape); g++)
        if (def->head[g].retrieves) sum += budget(&def->is[g], block);
    return 2 * (double)host / (double)block + 2 * (double)host * fmin(1, sum);
}

/* The block size of a group, whose first head h is, as all of its heads report it; 0: nothing is read. */
static enum ha_status judge_block(const struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    const size_t heads = ha_shape_group(&def->shape), host = place_of(def, h)->host;
    const struct head *head = &def->head[h->head];
    const double tie = 1e-12, is = head->block;
    bool retrieves = false;
    size_t best = BLOCK_LEAST;
    for (size_t g = 0; g < heads; g++) {
        retrieves |= head[g].retrieves;
        if (head[g].block != is)
            return ha_def_wrong(h, why, "note block is %g, and %g of head %zu: they have one", is, head[g].block,
                                h->head + g);
    }
    if (!retrieves || host == 0) {
        const char *none = host ? "no head of the group retrieves" : "there is nothing on the host";
        return is == 0 ? HA_OK : ha_def_wrong(h, why, "note block is %g, and %s", is, none);
    }
    for (size_t block = BLOCK_LEAST; block <= BLOCK_MOST; block *= 2)
        if (volume(def, h->head, host, block) < volume(def, h->head, host, best)) best = block;
    if (def->granularity) best = def->granularity;
    if (is == (double)best) return HA_OK;
    const double least = volume(def, h->head, host, best);
    for (size_t block = BLOCK_LEAST; block <= BLOCK_MOST && !def->granularity; block *= 2)
        if (is == (double)block && volume(def, h->head, host, block) <= least * (1 + tie)) return HA_OK;
    return ha_def_wrong(h, why, "note block is %g, not %zu, where V is %.9g", is, best, least);
}

/* How many blocks of HOST each head of a group chooses, which are `count`. */
static enum ha_status judge_counts(const struct ha_def *def, const struct ha_def_head *first, size_t count,
                                   struct ha_why *why)
{
    struct ha_def_head h = *first;
    for (size_t g = 0; g < ha_shape_group(&def->shape); g++, h.head++) {
        const struct head *head = &def->head[h.head];
        const bool reads = count > 0 && head->retrieves;
        const double share = reads ? budget(&def->is[h.head], (size_t)head->block) : 0;
        def->want[h.head] = reads ? ha_def_share(share, count) : 0;
        if (head->blocks != (double)def->want[h.head])
            return ha_def_wrong(&h, why, "note blocks is %g, and a budget of %.9g of %zu blocks is %zu", head->blocks,
                                share, count, def->want[h.head]);
        if (!reads && head->read > 0)
            return ha_def_wrong(&h, why, "%zu of the host's keys are read: the head %s", head->read,
                                head->retrieves ? "has none" : "streams");
    }
    return HA_OK;
}

/* The choices of a group, whose first head h is. */
static enum ha_status judge_choices(struct ha_def *def, const struct ha_def_head *first,
                                    const struct ha_def_blocks *blocks, struct ha_why *why)
{
    const size_t heads = ha_shape_group(&def->shape), *want = def->want + first->head;
    struct ha_def_choice *c = &def->choice;
    struct ha_def_head h = *first;
    size_t reader = heads;
    HA_TRY(ha_def_choice_begin(c, heads, blocks->count, why));
    ha_def_choice_digests(c, &def->shape, blocks, first);
    for (size_t g = 0; g < heads; g++, h.head++) {
        if (want[g] == 0) continue;
        HA_TRY(ha_def_choice_blocks(c, blocks, &h, def->mark + h.head * h.tokens, why));
        if (!def->together) HA_TRY(ha_def_choice_judge(c, &h, want[g], why));
        if (reader == heads) memcpy(c->first, c->taken, blocks->count * sizeof *c->taken), reader = g;
        for (size_t i = 0; i < blocks->count && def->together; i++)
            if (c->taken[i] != c->first[i])
                return ha_def_wrong(&h, why, "block %zu is %s head %zu: they read what one of them chose", i,
                                    c->taken[i] ? "read and not by" : "not read and by", first->head + reader);
    }
    return def->together && reader < heads ? ha_def_choice_judge_union(c, first, want, why) : HA_OK;
}

static enum ha_status judge_group(struct ha_def *def, const struct ha_def_head *first, struct ha_why *why)
{
    const struct ha_def_place *p = place_of(def, first);
    struct counted *c = &def->counted[first->layer];
    struct ha_def_blocks blocks = { .first = p->sinks, .mean = def->mean };
    const size_t heads = ha_shape_group(&def->shape);
    HA_TRY(judge_block(def, first, why));
    blocks.size = (size_t)def->head[first->head].block;
    blocks.count = blocks.size ? p->host / blocks.size : 0;
    HA_TRY(judge_counts(def, first, blocks.count, why));
    if (blocks.count) HA_TRY(judge_choices(def, first, &blocks, why));
    ha_def_tally_add(&c->scheduled, blocks.size > 0, blocks.size > 0, 1);
    if (blocks.size) ha_def_tally_add(&c->block, (double)blocks.size, (double)blocks.size, 1);
    for (size_t g = first->head; g < first->head + heads; g++) {
        const double share = blocks.count ? (double)def->want[g] / (double)blocks.count : 0;
        ha_def_tally_add(&c->streaming, def->is[g].s > 0, def->is[g].s > 0, 1);
        if (def->want[g]) ha_def_tally_add(&c->budget, share, share, 1);
    }
    return HA_OK;
}

/* ---- a step of a sequence -------------------------------------------------------------------------------------- */

/* All of its heads; last: the last one */
static enum ha_status judge_sequence(struct ha_def *def, const struct ha_def_head *last, struct ha_why *why)
{
    const struct ha_shape *s = &def->shape;
    const size_t next = last->kv_stride * ha_dtype_bytes(s->dtype);
    struct ha_def_head h = *last;
    h.head = 0;
    h.q -= last->head * s->head_dim;
    h.k = (const char *)h.k - (s->kv_heads - 1) * next;
    h.v = (const char *)h.v - (s->kv_heads - 1) * next;
    HA_TRY(ha_def_predictor_judge(&def->predictor, place_of(def, &h), &h, def->is, why));
    for (; h.head < s->q_heads; h.head += ha_shape_group(s)) {
        HA_TRY(judge_group(def, &h, why));
        h.q += ha_shape_group(s) * s->head_dim;
        h.k = (const char *)h.k + next;
        h.v = (const char *)h.v + next;
    }
    return HA_OK;
}

static enum ha_status note(const struct ha_def_head *h, const char *name, double *value, struct ha_why *why)
{
    *value = ha_def_note(h, name);
    return isfinite(*value) ? HA_OK : ha_def_wrong(h, why, "note %s is %g", name, *value);
}

static enum ha_status read_notes(const struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    struct ha_def_property *is = &def->is[h->head];
    struct head *out = &def->head[h->head];
    double streaming;
    HA_TRY(note(h, "bgt0", &is->bgt0, why));
    HA_TRY(note(h, "k", &is->k, why));
    HA_TRY(note(h, "s", &is->s, why));
    HA_TRY(note(h, "streaming", &streaming, why));
    HA_TRY(note(h, "block", &out->block, why));
    HA_TRY(note(h, "blocks", &out->blocks, why));
    const bool streams = is->s > 0;
    out->retrieves = !streams || !def->skip_streaming;
    return streaming == streams ? HA_OK : ha_def_wrong(h, why, "note streaming is %g, and s is %.9g", streaming, is->s);
}

static enum ha_status fluxion_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                    struct ha_why *why)
{
    struct ha_def_place *p = place_of(def, h);
    struct head *head = &def->head[h->head];
    if (h->head == 0) {
        free(def->mark);
        def->mark = malloc(def->shape.q_heads * h->tokens);
        if (!def->mark) return no_memory(why);
    }
    HA_TRY(judge_places(p, h, mark, why));
    HA_TRY(read_notes(def, h, why));
    HA_TRY(ha_def_predictor_learnt(&def->predictor, p, h, why));
    memcpy(def->mark + h->head * h->tokens, mark, h->tokens);
    head->read = 0;
    for (size_t j = p->sinks; j < p->sinks + p->host; j++) head->read += mark[j] != HA_MARK_NONE;
    return h->head + 1 == def->shape.q_heads ? judge_sequence(def, h, why) : HA_OK;
}

static void fluxion_count(const struct ha_def *def, ha_def_count *say, void *arg)
{
    for (size_t layer = 0; layer < def->shape.layers; layer++) {
        const struct counted *c = &def->counted[layer];
        ha_def_tally_say(&c->streaming, "streaming_heads", layer, say, arg);
        ha_def_tally_say(&c->scheduled, "groups_scheduled", layer, say, arg);
        ha_def_tally_say(&c->block, "block_mean", layer, say, arg);
        ha_def_tally_say(&c->budget, "budget_mean", layer, say, arg);
    }
}

const struct ha_definition ha_definition_fluxion = { .variant = "fluxion",
                                                     .create = create,
                                                     .prefill = fluxion_prefill,
                                                     .judge = fluxion_judge,
                                                     .count = fluxion_count,
                                                     .destroy = destroy };
