/* CLO (Yi et al., arXiv 2511.14510, sections 3 and 4): a buffer of keys for each KV head, labelled with the queries
 * that chose it, and read again by queries that are similar.
 *
 * Of the n tokens before a step the first `sink`, the last `recent` and the step's own are always used. Between these
 * lie candidates: c(n) = floor((n - sink - recent) / unit) units of `unit` tokens, 16 with retrieve = quest, else 1. Of
 * these a KV head uses what is in its buffer, and no other key. A buffer has ceil(ceil(k n) / unit) units, n the tokens
 * of the context, but no more than there ever are. All of it is one part on the device; nothing is padded.
 *
 * A KV head is persistent or offloaded (reference/reuse.c); note `persistent` says which. A persistent one uses in each
 * step the units of largest score by the layer's own query, or with persistent = all all of them. An offloaded one has
 * labels, of each query head, at first none, and looks them up by q'. q' is W_Q, bias, norm and rotary position of the
 * layer on the input of the one before, of the same tokens; with prefetch = 0, and with predict = oracle, it is the own
 * one. Attention is by the own query either way.
 *   The similarity of a query head is the least cosine of one of its q' and its label; that of the KV head the least of
 * its query heads', or with group = harmonic and all of them positive sum(s) / sum(s / similarity), s the importance of
 * a query head. It is a hit if that is not below the head's threshold and, of the harmonic mean, all are positive, and
 * if there is a label. Notes `hit` and `similarity` (-2 where it is no number) say so.
 *   A hit uses the buffer as it is. A miss makes q' of the step's last token the labels, and those units the buffer
 * that have the largest score by q', all where there are no more.
 *
 * The score of a unit is the largest over the query heads of the KV head and the step's tokens of
 *   retrieve = hata:  |k| (bits - 2 h), h the bits in which the codes of q' and k differ; bit i is whether a_i . x > 0;
 *                     hash = random: a_i are numbers of ha_rng_normal, of seed HASH and stream layer kv_heads + KV
 * head; learned: tensor `hash` of the fit; exact: scale q' . k; quest: scale sum_d max(q'_d min_d, q'_d max_d), of the
 * unit's least and largest in each dimension. Cosines and scores are known up to what binary32 makes of them, and q'
 * is, too. Where that decides either answer is right, and the one that is reported is gone by.
 *
 * Params: as in the enum; the rule ignores the others. */

#include "reference/definitions.h"
#include "reference/rows.h"

#include "harness/base/fit.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

enum {
    K,
    SINK,
    RECENT,
    ETA,
    P,
    THRESHOLD, /* adaptive, fixed */
    GROUP,     /* harmonic, min */
    PREFETCH,
    RETRIEVE, /* hata, quest, exact */
    BITS,
    HASH, /* random, learned */
    TRANSFER,
    STORES,
    SYNC,
    EPS,
    DEVICE_BUDGET_MB,
    PERSISTENT, /* topk, all */
    HARD,
    PREDICT /* device, cpu, oracle */
};
enum retrieve { HATA, QUEST, EXACT };
enum { DIGEST = 16, ORACLE = 2, SEED = 0x48415441, NO_SIMILARITY = -2 };

/* Of a KV head of a sequence. */
struct buffer {
    double *label, *off; /* [heads][head_dim], NULL: none; how far off they may be */
    bool *has;           /* [units] of those that there were at the choice */
    size_t units, before, step;

    struct ha_def_code *code; /* [codes] of its first keys between sink and window */
    size_t codes;

    bool persistent, hit; /* as the first query head of this step has it */
    double similarity;
};

struct counted {
    double hits, misses, left_out;
};

struct ha_def {
    struct ha_shape shape;
    struct ha_def_window window;
    struct ha_def_reuse reuse;
    enum retrieve retrieve;
    bool ahead, all, harmonic;
    double share;
    size_t bits;
    const float *hash; /* [layers][kv_heads][bits][head_dim], of the fit or random */
    float *random;     /* NULL: of the fit */
    double *square;    /* [layers][kv_heads][bits] of its rows */

    struct buffer *buffer; /* [layers][batch][kv_heads] */
    size_t *step;          /* [layers] that is judged, from 1 on */
    struct counted *counted;
    struct ha_def_predicted *next; /* [batch] */
    struct ha_def_choice choice;
};

/* Queries of a KV head: of token t and head g they begin at t * stride + g * head_dim. */
struct queries {
    const double *q, *off; /* off: NULL where they are the layer's own */
    double *own;
    size_t stride;
};

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "clo: no memory"); }

static enum ha_status no_input(struct ha_why *why)
{
    return ha_why(why, HA_ERROR,
                  "clo: prefetch=1 needs layer inputs, which the dataset does not have: take one that has (residual, "
                  "walk, trace), or prefetch=0");
}

/* ---- the rule's numbers ------------------------------------------------------------------------------------------ */

static size_t units_of(const struct ha_def *def, size_t seq)
{
    const struct ha_shape *s = &def->shape;
    const size_t unit = def->window.unit, keys = ha_def_share(def->share, s->ctx[seq]);
    const size_t ever = ha_def_window_units(&def->window, s->ctx[seq] + s->steps * s->q_len);
    return ha_ref_smaller((keys + unit - 1) / unit, ever);
}

static struct ha_def_reuse_rule reuse_rule(const struct ha_def *def, const double *param)
{
    const struct ha_shape *s = &def->shape;
    const double row = 2.0 * (double)(s->head_dim * ha_dtype_bytes(s->dtype));
    struct ha_def_reuse_rule rule = { .eta = param[ETA],
                                      .p = param[P],
                                      .eps = param[EPS],
                                      .budget_bytes = param[DEVICE_BUDGET_MB] * 1e6,
                                      .adaptive = param[THRESHOLD] <= 0,
                                      .hard = param[HARD] > 0,
                                      .least = param[GROUP] > 0 };
    for (size_t b = 0; b < s->batch; b++) {
        rule.buffer_bytes += row * (double)(units_of(def, b) * def->window.unit);
        rule.whole_bytes += row * (double)(s->ctx[b] + s->steps * s->q_len);
    }
    return rule;
}

static enum ha_status read_hash(struct ha_def *def, bool learned, const struct ha_fit *fit, struct ha_why *why)
{
    const struct ha_shape *s = &def->shape;
    struct ha_tensor t = {
        .name = "hash", .type = HA_T_F32, .dims = 4, .dim = { s->layers, s->kv_heads, def->bits, s->head_dim }
    };
    if (def->retrieve != HATA) return HA_OK;
    if (learned) HA_TRY(ha_fit_get(fit, &t, why));
    def->hash = learned ? t.data : NULL;
    const size_t heads = s->layers * s->kv_heads, size = def->bits * s->head_dim;
    def->square = malloc(heads * def->bits * sizeof *def->square);
    if (!def->square) return no_memory(why);
    if (!learned) {
        def->random = malloc(heads * size * sizeof *def->random);
        if (!def->random) return no_memory(why);
        for (size_t i = 0; i < heads; i++) ha_rng_normals(SEED, i, 0, size, def->random + i * size);
        def->hash = def->random;
    }
    ha_def_code_squares(def->hash, heads * def->bits, s->head_dim, def->square);
    return HA_OK;
}

static size_t buffers(const struct ha_shape *s) { return s->layers * s->batch * s->kv_heads; }

static enum ha_status create(struct ha_def **out, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    const bool ahead = param[PREFETCH] > 0 && param[PREDICT] < ORACLE && shape->layers > 1;
    if (ahead && shape->model_dim == 0) return no_input(why);
    struct ha_def *def = *out = calloc(1, sizeof *def);
    if (!def) return no_memory(why);
    def->shape = *shape;
    def->retrieve = (enum retrieve)param[RETRIEVE];
    def->window = (struct ha_def_window){ .sink = (size_t)param[SINK],
                                          .recent = (size_t)param[RECENT],
                                          .unit = def->retrieve == QUEST ? DIGEST : 1 };
    def->share = param[K];
    def->bits = (size_t)param[BITS];
    def->ahead = ahead;
    def->all = param[PERSISTENT] > 0;
    def->harmonic = param[GROUP] <= 0;
    def->choice = (struct ha_def_choice){ .what = "candidate", .group = HA_DEF_MAX };
    def->buffer = calloc(buffers(shape), sizeof *def->buffer);
    def->step = calloc(shape->layers, sizeof *def->step);
    def->counted = calloc(shape->layers, sizeof *def->counted);
    def->next = calloc(shape->batch, sizeof *def->next);
    if (!def->buffer || !def->step || !def->counted || !def->next) return no_memory(why);
    HA_TRY(read_hash(def, param[HASH] > 0, fit, why));
    const struct ha_def_reuse_rule rule = reuse_rule(def, param);
    return ha_def_reuse_create(&def->reuse, shape, &rule, fit, why);
}

static void destroy(struct ha_def *def)
{
    for (size_t i = 0; def->buffer && i < buffers(&def->shape); i++) {
        free(def->buffer[i].label);
        free(def->buffer[i].has);
        free(def->buffer[i].code);
    }
    for (size_t b = 0; def->next && b < def->shape.batch; b++) ha_def_predicted_end(&def->next[b]);
    ha_def_choice_end(&def->choice);
    ha_def_reuse_end(&def->reuse);
    free(def->random);
    free(def->square);
    free(def->buffer);
    free(def->step);
    free(def->counted);
    free(def->next);
    free(def);
}

static struct buffer *buffer_of(const struct ha_def *def, const struct ha_def_head *h)
{
    const struct ha_shape *s = &def->shape;
    return &def->buffer[(h->layer * s->batch + h->seq) * s->kv_heads + h->head / ha_shape_group(s)];
}

/* Of the KV head whose first query head h is: predicted ones, or its own. */
static enum ha_status queries_of(const struct ha_def *def, const struct ha_def_head *h, bool predicted,
                                 struct queries *out, struct ha_why *why)
{
    const size_t dim = def->shape.head_dim, all = def->shape.q_heads * dim, heads = ha_shape_group(&def->shape);
    *out = (struct queries){ .stride = all };
    if (predicted) {
        out->q = def->next[h->seq].q + h->head * dim;
        out->off = def->next[h->seq].off + h->head * dim;
        return HA_OK;
    }
    out->q = out->own = malloc(h->queries * all * sizeof *out->own);
    if (!out->own) return no_memory(why);
    for (size_t t = 0; t < h->queries; t++)
        for (size_t i = 0; i < heads * dim; i++) out->own[t * all + i] = (double)h->q[t * all + i];
    return HA_OK;
}

/* ---- look-up ----------------------------------------------------------------------------------------------------- */

static enum ha_status note(const struct ha_def_head *h, const char *name, bool *is, struct ha_why *why)
{
    const double value = ha_def_note(h, name);
    *is = value > 0;
    if (value == 0 || value == 1) return HA_OK;
    return ha_def_wrong(h, why, "note %s is %g, neither 0 nor 1", name, value);
}

/* Of the KV head; NaN without labels. */
static enum ha_status similarity_of(const struct ha_def *def, const struct ha_def_head *h, const struct buffer *b,
                                    const struct queries *q, struct ha_ref_score *out, struct ha_why *why)
{
    const size_t dim = def->shape.head_dim, heads = ha_shape_group(&def->shape);
    const double *importance = def->reuse.importance + h->layer * def->shape.q_heads + h->head;
    const double nan = (double)NAN;
    *out = (struct ha_ref_score){ nan, nan, nan };
    if (!b->label) return HA_OK;
    struct ha_ref_score *of = malloc(heads * sizeof *of);
    if (!of) return no_memory(why);
    for (size_t g = 0; g < heads; g++)
        for (size_t t = 0; t < h->queries; t++) {
            const size_t at = t * q->stride + g * dim;
            const struct ha_ref_score x = ha_def_cosine(q->q + at, q->off ? q->off + at : NULL, b->label + g * dim,
                                                        b->off + g * dim, dim);
            if (t == 0 || isnan(x.low)) of[g] = x;
            else if (!isnan(of[g].low))
                of[g] = (struct ha_ref_score){ fmin(of[g].value, x.value), fmin(of[g].low, x.low),
                                               fmin(of[g].high, x.high) };
        }
    *out = ha_def_cosine_group(of, importance, heads, def->harmonic);
    free(of);
    return HA_OK;
}

/* Whether what is reported may be the similarity, and makes it a hit or a miss. */
static enum ha_status judge_look_up(const struct ha_def *def, const struct ha_def_head *h, const struct buffer *b,
                                    struct ha_ref_score is, struct ha_why *why)
{
    const size_t at = h->layer * def->shape.kv_heads + h->head / ha_shape_group(&def->shape);
    const double least = (double)def->reuse.least[at], most = (double)def->reuse.most[at], s = b->similarity;
    if (isnan(s)) return ha_def_wrong(h, why, "note similarity is missing");
    if (isnan(is.low) && s != NO_SIMILARITY)
        return ha_def_wrong(h, why, "note similarity is %.9g, not %d: %s", s, NO_SIMILARITY,
                            b->label ? "a label or a query is 0" : "there is no label yet");
    if (isnan(is.low) && b->hit)
        return ha_def_wrong(h, why, "note hit is 1, and %s",
                            b->label ? "a label or a query is 0" : "there is no label");
    if (isnan(is.low) || !isfinite(is.low)) return HA_OK;
    if (!(s >= is.low && s <= is.high))
        return ha_def_wrong(h, why, "note similarity is %.9g, not %.9g (%.9g to %.9g)", s, is.value, is.low, is.high);
    if (b->hit && def->harmonic && !(s > 0))
        return ha_def_wrong(h, why, "note hit is 1, and similarity %.9g is not positive", s);
    if (b->hit && !(s >= least))
        return ha_def_wrong(h, why, "note hit is 1, and similarity %.9g is below the threshold, %.9g", s, least);
    if (!b->hit && s >= most && (s > 0 || !def->harmonic))
        return ha_def_wrong(h, why, "note hit is 0, and similarity %.9g is not below the threshold, %.9g", s, most);
    return HA_OK;
}

static enum ha_status update_labels(const struct ha_def *def, const struct ha_def_head *h, struct buffer *b,
                                    const struct queries *q, struct ha_why *why)
{
    const size_t size = ha_shape_group(&def->shape) * def->shape.head_dim, last = (h->queries - 1) * q->stride;
    if (!b->label) b->label = malloc(2 * size * sizeof *b->label);
    if (!b->label) return no_memory(why);
    b->off = b->label + size;
    for (size_t i = 0; i < size; i++) {
        b->label[i] = q->q[last + i];
        b->off[i] = q->off ? q->off[last + i] : 0;
    }
    return HA_OK;
}

/* The first query head of a KV head: is it persistent, and is this a hit? What is reported is adopted. */
static enum ha_status look_up(const struct ha_def *def, const struct ha_def_head *h, struct buffer *b,
                              const struct queries *q, struct ha_why *why)
{
    struct ha_ref_score is;
    struct counted *c = &def->counted[h->layer];
    b->similarity = ha_def_note(h, "similarity");
    HA_TRY(note(h, "hit", &b->hit, why));
    HA_TRY(similarity_of(def, h, b, q, &is, why));
    HA_TRY(judge_look_up(def, h, b, is, why));
    *(b->hit ? &c->hits : &c->misses) += 1;
    return b->hit ? HA_OK : update_labels(def, h, b, q, why);
}

/* The others report the same. */
static enum ha_status judge_notes(const struct ha_def *def, const struct ha_def_head *h, const struct buffer *b,
                                  struct ha_why *why)
{
    const size_t first = h->head - h->head % ha_shape_group(&def->shape);
    const struct {
        const char *name;
        double is;
    } of[] = { { "persistent", b->persistent }, { "hit", b->hit }, { "similarity", b->similarity } };
    for (size_t i = 0; i < (b->persistent ? 1 : 3); i++) {
        const double is = ha_def_note(h, of[i].name);
        if (!(is == of[i].is))
            return ha_def_wrong(h, why, "note %s is %.9g, and %.9g of head %zu: they have one buffer", of[i].name, is,
                                of[i].is, first);
    }
    return HA_OK;
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* Key j of the candidates */
static void key(const struct ha_def *def, const struct ha_def_head *h, size_t j, double *k)
{
    const size_t dim = def->shape.head_dim;
    for (size_t d = 0; d < dim; d++) k[d] = (double)ha_load(h->k, (def->window.sink + j) * dim + d, def->shape.dtype);
}

static enum ha_status score_codes(struct ha_def *def, const struct ha_def_head *h, struct buffer *b,
                                  const struct queries *q, struct ha_why *why)
{
    const size_t dim = def->shape.head_dim, heads = def->choice.heads, count = def->choice.count;
    const size_t row = (h->layer * def->shape.kv_heads + h->head / ha_shape_group(&def->shape)) * def->bits;
    const float *a = def->hash + row * dim;
    const double *square = def->square + row;
    double k[HA_REF_DIM_MAX];
    struct ha_def_code code, *grown = count > b->codes ? realloc(b->code, count * sizeof *grown) : b->code;
    if (!grown) return no_memory(why);
    b->code = grown;
    for (; b->codes < count; b->codes++) {
        key(def, h, b->codes, k);
        ha_def_code(a, square, def->bits, dim, k, NULL, &b->code[b->codes]);
    }
    for (size_t i = 0; i < h->queries * heads; i++) {
        const size_t at = i / heads * q->stride + i % heads * dim;
        ha_def_code(a, square, def->bits, dim, q->q + at, q->off ? q->off + at : NULL, &code);
        for (size_t j = 0; j < count; j++)
            ha_def_choice_score(&def->choice, i % heads, j, ha_def_code_score(&code, &b->code[j], def->bits));
    }
    return HA_OK;
}

static enum ha_status score(struct ha_def *def, const struct ha_def_head *h, struct buffer *b, const struct queries *q,
                            struct ha_why *why)
{
    const size_t dim = def->shape.head_dim, heads = def->choice.heads;
    const struct ha_def_blocks blocks = { .first = def->window.sink, .size = def->window.unit };
    struct ha_def_digest digest;
    double k[HA_REF_DIM_MAX];
    if (def->retrieve == HATA) return score_codes(def, h, b, q, why);
    for (size_t j = 0; j < def->choice.count; j++) {
        if (def->retrieve == QUEST) ha_def_digest(&def->shape, &blocks, h->k, j, &digest);
        else key(def, h, j, k);
        for (size_t i = 0; i < h->queries * heads; i++) {
            const size_t at = i / heads * q->stride + i % heads * dim;
            const double *off = q->off ? q->off + at : NULL;
            ha_def_choice_score(&def->choice, i % heads, j,
                                def->retrieve == QUEST
                                    ? ha_def_digest_score(&def->shape, &blocks, &digest, q->q + at, off)
                                    : ha_ref_score_dot(q->q + at, off, k, NULL, dim, (double)def->shape.scale));
        }
    }
    return HA_OK;
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

/* The first query head of a KV head: all that is known before its keys are looked at. */
static enum ha_status begin(struct ha_def *def, const struct ha_def_head *h, struct buffer *b, size_t count,
                            size_t want, struct ha_why *why)
{
    struct queries q;
    HA_TRY(note(h, "persistent", &b->persistent, why));
    HA_TRY(ha_def_reuse_judge(&def->reuse, h, b->persistent, why));
    HA_TRY(queries_of(def, h, def->ahead && !b->persistent, &q, why));
    enum ha_status status = b->persistent ? HA_OK : look_up(def, h, b, &q, why);
    const bool choose = b->persistent ? !def->all : !b->hit;
    if (status == HA_OK) status = ha_def_choice_begin(&def->choice, ha_shape_group(&def->shape), count, why);
    if (status == HA_OK && choose && count > want) status = score(def, h, b, &q, why);
    free(q.own);
    return status;
}

static enum ha_status adopt(const struct ha_def *def, const struct ha_def_head *h, struct buffer *b, struct ha_why *why)
{
    bool *has = realloc(b->has, def->choice.count + 1);
    if (!has) return no_memory(why);
    b->has = has;
    b->units = def->choice.count;
    b->before = h->tokens - h->queries;
    b->step = def->step[h->layer];
    memcpy(b->has, def->choice.taken, b->units * sizeof *b->has);
    return HA_OK;
}

/* A hit: the buffer is what it was. */
static enum ha_status judge_reused(const struct ha_def *def, const struct ha_def_head *h, const struct buffer *b,
                                   size_t count, const uint8_t *mark, struct ha_why *why)
{
    const struct ha_def_window *w = &def->window;
    for (size_t j = 0; j < count * w->unit; j++) {
        const size_t unit = j / w->unit, token = w->sink + j;
        const bool is = mark[token] != HA_MARK_NONE, was = unit < b->units && b->has[unit];
        if (is && !was)
            return ha_def_wrong(h, why, "key %zu is used: it %s the buffer of step %zu, which is reused", token,
                                unit < b->units ? "is not in" : "has left the window since", b->step);
        if (was && !is)
            return ha_def_wrong(h, why, "key %zu is missing: it is in the buffer of step %zu, which is reused", token,
                                b->step);
    }
    return HA_OK;
}

/* what has left the window since the buffer was chosen */
static double left_out(const struct ha_def *def, const struct ha_def_head *h, const struct buffer *b)
{
    const struct ha_def_window each = { def->window.sink, def->window.recent, 1 };
    return (double)(ha_def_window_units(&each, h->tokens - h->queries) - ha_def_window_units(&each, b->before));
}

static enum ha_status clo_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                struct ha_why *why)
{
    const bool first = h->head % ha_shape_group(&def->shape) == 0;
    struct buffer *b = buffer_of(def, h);
    struct ha_def_blocks blocks = { .first = def->window.sink, .size = def->window.unit };
    blocks.count = ha_def_window_units(&def->window, h->tokens - h->queries);
    if (h->seq == 0 && h->head == 0) def->step[h->layer]++;
    HA_TRY(ha_def_on_device(h, mark, why));
    HA_TRY(ha_def_window_judge(&def->window, h, mark, why));
    const size_t most = units_of(def, h->seq);
    if (first) HA_TRY(begin(def, h, b, blocks.count, most, why));
    else HA_TRY(judge_notes(def, h, b, why));
    const size_t want = b->persistent && def->all ? blocks.count : most;
    if (!b->persistent && first && b->hit) def->counted[h->layer].left_out += left_out(def, h, b);
    if (!b->persistent && b->hit) return judge_reused(def, h, b, blocks.count, mark, why);
    HA_TRY(ha_def_choice_blocks(&def->choice, &blocks, h, mark, why));
    HA_TRY(ha_def_choice_judge(&def->choice, h, want, why));
    return !b->persistent && first ? adopt(def, h, b, why) : HA_OK;
}

static enum ha_status advance(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    const size_t layer = h->layer + 1;
    if (!def->ahead || h->head > 0 || layer == def->shape.layers) return HA_OK;
    if (!h->x || !h->projection || !h->projection[layer].wq) return no_input(why);
    return ha_def_predict(&def->next[h->seq], &def->shape, h, why);
}

static void clo_count(const struct ha_def *def, ha_def_count *say, void *arg)
{
    for (size_t l = 0; l < def->shape.layers; l++) {
        const struct counted *c = &def->counted[l];
        double persistent = 0;
        for (size_t i = 0; i < def->shape.kv_heads; i++)
            persistent += def->reuse.persistent[l * def->shape.kv_heads + i] == HA_DEF_IN;
        say(arg, "hits", l, c->hits, c->hits);
        say(arg, "misses", l, c->misses, c->misses);
        say(arg, "left_out", l, c->left_out, c->left_out);
        say(arg, "persistent", l, persistent, persistent);
    }
}

const struct ha_definition ha_definition_clo = {
    .variant = "clo", .create = create, .judge = clo_judge, .advance = advance, .count = clo_count, .destroy = destroy
};
