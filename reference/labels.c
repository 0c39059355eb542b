/* The least budgets of a query head, in binary64: the loops of the rule, and beside them what binary32 leaves open. */

#include "reference/labels.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define MASS 0.95

/* A block of keys: where it stands by its score. */
struct ranked {
    struct ha_ref_score score;
    size_t block;
};

static enum ha_status no_memory(const struct ha_def_labelled *of, struct ha_why *why)
{
    return ha_why(why, HA_ERROR, "reference: no memory for the labels of %zu keys", of->tokens);
}

static void load(const struct ha_def_labelled *of, const void *rows, size_t token, double *row)
{
    const size_t dim = of->shape->head_dim;
    float x[HA_REF_DIM_MAX];
    ha_load_row((const char *)rows + token * dim * ha_dtype_bytes(of->shape->dtype), dim, of->shape->dtype, x);
    for (size_t d = 0; d < dim; d++) row[d] = (double)x[d];
}

static bool on_host(const struct ha_def_labelled *of, size_t token)
{
    return token >= of->first && token < of->first + of->host;
}

static double length(const double *x, size_t dim)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t d = 0; d < dim; d++) sum += x[d] * x[d];
    return sqrt(sum);
}

/* ---- which blocks are the best ----------------------------------------------------------------------------------- */

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->score.value != y->score.value) return x->score.value > y->score.value ? -1 : 1;
    return x->block < y->block ? -1 : 1;
}

/* rank: [host / size], the best first */
static void rank_blocks(const struct ha_def_labelled *of, size_t size, struct ranked *rank)
{
    const size_t dim = of->shape->head_dim;
    const struct ha_def_blocks blocks = {
        .first = of->first, .size = size, .count = of->host / size, .mean = of->mean
    };
    double q[HA_REF_DIM_MAX], key[HA_REF_DIM_MAX];
    for (size_t d = 0; d < dim; d++) q[d] = (double)of->q[d];
    for (size_t i = 0; i < blocks.count; i++) {
        struct ha_def_digest digest;
        rank[i].block = i;
        if (size == 1) {
            load(of, of->k, of->first + i, key);
            rank[i].score = ha_ref_score_dot(q, NULL, key, NULL, dim, (double)of->shape->scale);
            continue;
        }
        ha_def_digest(of->shape, &blocks, of->k, i, &digest);
        rank[i].score = ha_def_digest_score(of->shape, &blocks, &digest, q, NULL);
    }
    qsort(rank, blocks.count, sizeof *rank, by_score);
}

/* ---- the labels -------------------------------------------------------------------------------------------------- */

/* sum of exp(score - level) and of that times the values, level the largest score so far */
struct attention {
    double level, sum, acc[HA_REF_DIM_MAX];
};

static void attend(const struct ha_def_labelled *of, size_t token, struct attention *a)
{
    const size_t dim = of->shape->head_dim;
    double row[HA_REF_DIM_MAX], score = 0;
    load(of, of->k, token, row);
    for (size_t d = 0; d < dim; d++) score += (double)of->q[d] * row[d];
    score *= (double)of->shape->scale;
    if (score > a->level) {
        const double factor = exp(a->level - score);
        a->sum *= factor;
        for (size_t d = 0; d < dim; d++) a->acc[d] *= factor;
        a->level = score;
    }
    const double weight = exp(score - a->level);
    load(of, of->v, token, row);
    a->sum += weight;
    for (size_t d = 0; d < dim; d++) a->acc[d] += weight * row[d];
}

static void begin(const struct ha_def_labelled *of, struct attention *a)
{
    *a = (struct attention){ .level = -HUGE_VAL };
    for (size_t j = 0; j < of->tokens; j++)
        if (!on_host(of, j)) attend(of, j, a);
}

static double output(const struct attention *a, size_t d) { return a->sum > 0 ? a->acc[d] / a->sum : 0; }

static bool meets(const struct ha_def_labelled *of, const struct attention *some, const struct attention *all)
{
    double error[HA_REF_DIM_MAX], o[HA_REF_DIM_MAX];
    const size_t dim = of->shape->head_dim;
    if (of->criterion == HA_DEF_SCORE) return some->sum * exp(some->level - all->level) >= MASS * all->sum;
    for (size_t d = 0; d < dim; d++) {
        o[d] = output(all, d);
        error[d] = output(some, d) - o[d];
    }
    return length(error, dim) <= of->tau * (of->criterion == HA_DEF_OUTPUT ? length(o, dim) : of->most.value);
}

static size_t least_blocks(const struct ha_def_labelled *of, size_t size, const struct attention *device,
                           const struct attention *all, struct ranked *rank)
{
    struct attention some = *device;
    rank_blocks(of, size, rank);
    for (size_t m = 0; m < of->host / size; m++) {
        if (meets(of, &some, all)) return m;
        for (size_t i = 0; i < size; i++) attend(of, of->first + rank[m].block * size + i, &some);
    }
    return of->host / size;
}

double ha_def_slope(const double budget[HA_DEF_SIZES])
{
    double products = 0, squares = 0;
    for (size_t i = 1; i < HA_DEF_SIZES; i++) {
        const double x = log2((double)ha_def_size(i));
        products += x * (budget[i] - budget[0]);
        squares += x * x;
    }
    return products / squares;
}

double ha_def_line(const double budget[HA_DEF_SIZES])
{
    const double k = ha_def_slope(budget);
    double mean = 0, left = 0, all = 0;
    for (size_t i = 0; i < HA_DEF_SIZES; i++) mean += budget[i] / HA_DEF_SIZES;
    bool same = true;
    for (size_t i = 0; i < HA_DEF_SIZES; i++) {
        const double off = budget[i] - (budget[0] + k * log2((double)ha_def_size(i)));
        left += off * off;
        all += (budget[i] - mean) * (budget[i] - mean);
        same = same && budget[i] == budget[0];
    }
    return same ? (double)NAN : 1 - left / all;
}

enum ha_status ha_def_label(const struct ha_def_labelled *of, struct ha_def_labels *out, struct ha_why *why)
{
    *out = (struct ha_def_labels){ .s = of->host == 0, .r2 = (double)NAN };
    if (of->host == 0) return HA_OK;
    struct ranked *rank = malloc(of->host * sizeof *rank);
    if (!rank) return no_memory(of, why);
    struct attention device, all;
    begin(of, &device);
    all = device;
    for (size_t j = of->first; j < of->first + of->host; j++) attend(of, j, &all);
    for (size_t i = 0; i < HA_DEF_SIZES; i++) {
        const size_t size = ha_def_size(i), m = least_blocks(of, size, &device, &all, rank);
        out->budget[i] = (double)m / (double)(of->host / size);
    }
    free(rank);
    out->s = !(out->budget[0] > 0);
    out->k = ha_def_slope(out->budget);
    out->r2 = ha_def_line(out->budget);
    return HA_OK;
}

/* ---- what rounding leaves open ----------------------------------------------------------------------------------- */

/* Of a set of keys: sums of w, of w |v - o|, of what these may be off by as weights are; w relative to the largest of
 * all. left: |sum of w (v - o)|, of a block */
struct part {
    double mass, mass_off, left, left_off;
};

struct open {
    const struct ha_def_labelled *of;
    size_t dim, blocks, size;
    double *weight, *off; /* [tokens] w and what it may be off by, from scores; then tokens doubles more */
    double sum;           /* of all w */
    double o[HA_REF_DIM_MAX], o_norm, o_off; /* o off by a length of o_off */
    double round;           /* what sums, divisions and rounding add, relative to what they are made of */
    double v_most;          /* the largest |v| */
    struct ranked *rank;    /* [blocks] */
    struct part *part;      /* [blocks + 1] sums over the blocks before, of rank */
    double *ahead, *behind; /* [blocks + 1] the least that one before may score; the most of one from here on */
};

/* what a block, or a key, adds: its vector to `left`, the rest to the part */
static void add_key(const struct open *w, size_t token, double *left, struct part *to)
{
    double v[HA_REF_DIM_MAX];
    load(w->of, w->of->v, token, v);
    for (size_t d = 0; d < w->dim; d++) {
        v[d] -= w->o[d];
        left[d] += w->weight[token] * v[d];
    }
    to->mass += w->weight[token];
    to->mass_off += w->off[token];
    to->left_off += w->off[token] * length(v, w->dim);
}

static void add_block(const struct open *w, size_t block, double *left, struct part *to)
{
    for (size_t i = 0; i < w->size; i++) add_key(w, w->of->first + block * w->size + i, left, to);
}

/* o and w of all keys. false: scores leave the weights unknown. */
static bool weigh(struct open *w)
{
    const struct ha_def_labelled *of = w->of;
    const struct ha_bound b = ha_bound_attend(of->profile, w->dim, of->tokens, HA_RUNS_MAX + 1);
    double row[HA_REF_DIM_MAX], sizes = 0, off = 0;
    for (size_t j = 0; j < of->tokens; j++) {
        double score = 0, size = 0;
        load(of, of->k, j, row);
#pragma omp simd reduction(+ : score, size)
        for (size_t d = 0; d < w->dim; d++) {
            score += (double)of->q[d] * row[d];
            size += fabs((double)of->q[d] * row[d]);
        }
        w->weight[j] = (double)of->shape->scale * score;
        w->off[j] = fabs((double)of->shape->scale) * size;
    }
    const struct ha_ref_softmax pass = ha_ref_softmax(w->weight, w->off, of->tokens, &b);
    if (!(pass.theta < 0.5)) return false;
    w->sum = pass.sum;
    /* parts are joined by log-sum-exps that are rounded to binary32 */
    const double joined = 4 * HA_REF_U * (fabs(pass.max) + log(pass.sum) + 1) + b.log_eps * (log(pass.sum) + 1);
    for (size_t j = 0; j < of->tokens; j++) w->off[j] = w->off[j] * w->sum + w->weight[j] * joined + pass.lost;
    for (size_t j = 0; j < of->tokens; j++) {
        load(of, of->v, j, row);
        const double share = w->weight[j] / w->sum, size = length(row, w->dim);
        for (size_t d = 0; d < w->dim; d++) w->o[d] += share * row[d];
        w->v_most = fmax(w->v_most, size);
        sizes += share * size;
    }
    for (size_t j = 0; j < of->tokens; j++) {
        load(of, of->v, j, row);
        for (size_t d = 0; d < w->dim; d++) row[d] -= w->o[d];
        off += w->off[j] * length(row, w->dim);
    }
    w->round = 2 * ha_ref_gamma(b.h_sum + b.rescales + HA_REF_KAPPA_Q) + b.u_p + b.u_o;
    w->o_norm = length(w->o, w->dim);
    w->o_off = off / (w->sum * (1 - pass.theta - joined)) + w->round * sizes + HA_REF_ETA;
    return true;
}

/* The blocks that may be among the m best or not: of rank, [begin, m) and [m, end). */
struct border {
    size_t begin, end;
};

/* begin and end only grow with m */
static void border_of(const struct open *w, size_t m, struct border *b)
{
    while (b->begin < m && w->rank[b->begin].score.low > w->behind[m]) b->begin++;
    b->end = b->end < m ? m : b->end;
    while (m > 0 && b->end < w->blocks && w->behind[b->end] >= w->ahead[m]) b->end++;
}

static struct part between(const struct open *w, size_t begin, size_t end)
{
    const struct part *a = &w->part[begin], *b = &w->part[end], *all = &w->part[w->blocks];
    /* differences of sums of binary64 */
    const double lost = 0x1p-40;
    return (struct part){ b->mass - a->mass + lost * all->mass, b->mass_off - a->mass_off + lost * all->mass_off,
                          b->left - a->left + lost * all->left, b->left_off - a->left_off + lost * all->left_off };
}

enum { SCANNED = 64 };
/* The most that `count` of the blocks [begin, end) are together. */
static struct part some_of(const struct open *w, size_t begin, size_t end, size_t count)
{
    struct part most = { 0, 0, 0, 0 };
    if (begin == end || count == 0) return most;
    const struct part all = between(w, begin, end);
    if (end - begin > SCANNED) return all;
    for (size_t i = begin; i < end; i++) {
        const struct part one = between(w, i, i + 1);
        most.mass = fmax(most.mass, one.mass);
        most.mass_off = fmax(most.mass_off, one.mass_off);
        most.left = fmax(most.left, one.left);
        most.left_off = fmax(most.left_off, one.left_off);
    }
    const double n = (double)count;
    return (struct part){ fmin(n * most.mass, all.mass), fmin(n * most.mass_off, all.mass_off),
                          fmin(n * most.left, all.left), fmin(n * most.left_off, all.left_off) };
}

static uint8_t compare(const struct open *w, double least, double most, double limit_least, double limit_most)
{
    const double u = ha_ref_gamma((double)w->dim + 8); /* of lengths, and tau times one */
    if (most * (1 + u) <= limit_least * (1 - u)) return HA_DEF_IN;
    return least * (1 - u) > limit_most * (1 + u) ? HA_DEF_OUT : HA_DEF_MAYBE;
}

/* left: the vector of the device's keys and the m best blocks, of which `has` is; out and in: what may leave, and come
 * in its place */
static uint8_t labels_judge(const struct open *w, const double *left, const struct part *has, const struct part *out,
                            const struct part *in)
{
    const struct ha_def_labelled *of = w->of;
    const double mass_off = has->mass_off + in->mass_off + out->mass_off, tau = of->tau;
    const double least_mass = has->mass - out->mass - mass_off, most_mass = has->mass + in->mass + mass_off;
    if (of->criterion == HA_DEF_SCORE) {
        const double off = w->part[w->blocks].mass_off;
        const double rest = fmax(0, w->sum - has->mass), less = fmax(0, rest - in->mass - off),
                     more = rest + out->mass + off, least = fmax(0, least_mass);
        const double u = w->round;
        if (least > 0 && least / (least + more) * (1 - u) >= MASS) return HA_DEF_IN;
        return most_mass / (most_mass + less) * (1 + u) < MASS ? HA_DEF_OUT : HA_DEF_MAYBE;
    }
    const double length_off = has->left_off + in->left_off + out->left_off + in->left + out->left;
    double error = length(left, w->dim), off = w->o_off, least = 0, most = HUGE_VAL;
    if (has->mass == 0) least = fmax(0, w->o_norm - off), most = w->o_norm + off;
    else {
        off += w->round * w->v_most + HA_REF_ETA;
        least = fmax(0, (error - length_off) / most_mass - off);
        most = least_mass > 0 ? (error + length_off) / least_mass + off : HUGE_VAL;
    }
    const double low = of->criterion == HA_DEF_OUTPUT ? fmax(0, w->o_norm - w->o_off) : of->most.low,
                 high = of->criterion == HA_DEF_OUTPUT ? w->o_norm + w->o_off : of->most.high;
    return compare(w, least, most, tau * low, tau * high);
}

/* rank, part, ahead and behind */
static void rank_open(struct open *w)
{
    rank_blocks(w->of, w->size, w->rank);
    w->part[0] = (struct part){ 0, 0, 0, 0 };
    w->ahead[0] = HUGE_VAL;
    for (size_t i = 0; i < w->blocks; i++) {
        double left[HA_REF_DIM_MAX] = { 0 };
        w->part[i + 1] = w->part[i];
        add_block(w, w->rank[i].block, left, &w->part[i + 1]);
        w->part[i + 1].left += length(left, w->dim);
        w->ahead[i + 1] = fmin(w->ahead[i], w->rank[i].score.low);
    }
    w->behind[w->blocks] = -HUGE_VAL;
    for (size_t i = w->blocks; i-- > 0;) w->behind[i] = fmax(w->behind[i + 1], w->rank[i].score.high);
}

static void judge_all(struct open *w, uint8_t *met)
{
    double left[HA_REF_DIM_MAX] = { 0 };
    struct part has = { 0, 0, 0, 0 };
    struct border border = { 0, 0 };
    for (size_t j = 0; j < w->of->tokens; j++)
        if (!on_host(w->of, j)) add_key(w, j, left, &has);
    rank_open(w);
    for (size_t m = 0; m < w->blocks; m++) {
        border_of(w, m, &border);
        const size_t inside = m - border.begin, outside = border.end - m, count = ha_ref_smaller(inside, outside);
        const struct part out = some_of(w, border.begin, m, count), in = some_of(w, m, border.end, count);
        met[m] = labels_judge(w, left, &has, &out, &in);
        add_block(w, w->rank[m].block, left, &has);
    }
}

static void open_end(struct open *w)
{
    free(w->weight);
    free(w->rank);
    free(w->part);
    free(w->ahead);
}

/* for blocks of one key and more */
static enum ha_status open_begin(struct open *w, const struct ha_def_labelled *of, struct ha_why *why)
{
    *w = (struct open){ .of = of, .dim = of->shape->head_dim };
    w->weight = malloc((2 * of->tokens + 1) * sizeof *w->weight);
    w->rank = malloc((of->host + 1) * sizeof *w->rank);
    w->part = malloc((of->host + 1) * sizeof *w->part);
    w->ahead = malloc(2 * (of->host + 1) * sizeof *w->ahead);
    if (!w->weight || !w->rank || !w->part || !w->ahead) {
        open_end(w);
        return no_memory(of, why);
    }
    w->off = w->weight + of->tokens;
    w->behind = w->ahead + of->host + 1;
    return HA_OK;
}

enum ha_status ha_def_label_met_all(const struct ha_def_labelled *of, uint8_t *const met[HA_DEF_SIZES],
                                    struct ha_why *why)
{
    struct open w;
    HA_TRY(open_begin(&w, of, why));
    const bool known = of->host > 0 && weigh(&w);
    for (size_t i = 0; i < HA_DEF_SIZES; i++) {
        if (!met[i]) continue;
        w.size = ha_def_size(i);
        w.blocks = of->host / w.size;
        if (known) judge_all(&w, met[i]);
        else memset(met[i], HA_DEF_MAYBE, w.blocks);
        met[i][w.blocks] = HA_DEF_IN;
    }
    open_end(&w);
    return HA_OK;
}

enum ha_status ha_def_label_met(const struct ha_def_labelled *of, size_t size, uint8_t *met, struct ha_why *why)
{
    uint8_t *one[HA_DEF_SIZES] = { NULL };
    one[size] = met;
    return ha_def_label_met_all(of, one, why);
}

bool ha_def_label_may(const uint8_t *met, size_t blocks, size_t m)
{
    if (m > blocks || met[m] == HA_DEF_OUT) return false;
    for (size_t i = 0; i < m; i++)
        if (met[i] == HA_DEF_IN) return false;
    return true;
}

size_t ha_def_label_least(const uint8_t *met, size_t blocks)
{
    size_t m = 0;
    while (m < blocks && met[m] == HA_DEF_OUT) m++;
    return m;
}

size_t ha_def_label_most(const uint8_t *met, size_t blocks)
{
    size_t m = 0;
    while (m < blocks && met[m] != HA_DEF_IN) m++;
    return m;
}

enum ha_status ha_def_label_norm(const struct ha_def_labelled *of, struct ha_ref_score *norm, struct ha_why *why)
{
    struct open w;
    HA_TRY(open_begin(&w, of, why));
    const bool known = weigh(&w);
    if (!known) {
        struct attention all;
        begin(of, &all);
        for (size_t j = of->first; j < of->first + of->host; j++) attend(of, j, &all);
        for (size_t d = 0; d < w.dim; d++) w.o[d] = output(&all, d);
        w.o_norm = length(w.o, w.dim);
    }
    *norm = (struct ha_ref_score){ w.o_norm, known ? fmax(0, w.o_norm - w.o_off) : 0,
                                   known ? w.o_norm + w.o_off : HUGE_VAL };
    open_end(&w);
    return HA_OK;
}
