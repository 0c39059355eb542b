#include "reference/test_fluxion_world.h"

#include "harness/base/fit.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"

#include <math.h>

struct ha_test_fluxion ha_test_fluxion;
static struct ha_test_fluxion *const w = &ha_test_fluxion;

static size_t sinks_of(size_t seq) { return (size_t)fmin(w->param[SINK], (double)w->shape.ctx[seq]); }
size_t ha_test_fluxion_host(size_t seq)
{
    const double left = (double)w->shape.ctx[seq] - (double)sinks_of(seq) - w->param[RECENT];
    return left < 128 ? 0 : (size_t)floor(left / 128) * 128;
}

/* ---- attention, and how much of it is needed ------------------------------------------------------------------- */

static double length(const double *x)
{
    double sum = 0;
    for (size_t d = 0; d < DIM; d++) sum += x[d] * x[d];
    return sqrt(sum);
}

static double length_f(const float *x)
{
    double y[DIM];
    for (size_t d = 0; d < DIM; d++) y[d] = (double)x[d];
    return length(y);
}

static double dot(const float *a, const float *b)
{
    double sum = 0;
    for (size_t d = 0; d < DIM; d++) sum += (double)a[d] * (double)b[d];
    return sum;
}

/* Sums of weights and weighted values, relative to exp(0): scores are small here. */
struct sums {
    double den, num[DIM];
};
static void add(struct sums *s, const struct ask *a, size_t kv, const float *q, size_t first, size_t end)
{
    for (size_t j = first; j < end; j++) {
        const double x = exp((double)w->shape.scale * dot(q, w->k[a->layer][a->seq][kv][j]));
        s->den += x;
        for (size_t d = 0; d < DIM; d++) s->num[d] += x * (double)w->v[a->layer][a->seq][kv][j][d];
    }
}
static struct sums attend(const struct ask *a, size_t kv, const float *q, size_t first, size_t end)
{
    struct sums s = { 0 };
    add(&s, a, kv, q, first, end);
    return s;
}
static void plus(struct sums *s, const struct sums *x)
{
    s->den += x->den;
    for (size_t d = 0; d < DIM; d++) s->num[d] += x->num[d];
}
static double norm_of(const struct sums *s) { return s->den > 0 ? length(s->num) / s->den : 0; }

static double block_score(const struct ask *a, size_t kv, const float *q, size_t first, size_t size, bool mean)
{
    double sum = 0;
    for (size_t d = 0; d < DIM; d++) {
        float least = INFINITY, most = -INFINITY, all = 0;
        for (size_t j = first; j < first + size; j++) {
            const float x = w->k[a->layer][a->seq][kv][j][d];
            least = fminf(least, x);
            most = fmaxf(most, x);
            all += x;
        }
        const double middle = (double)ha_round(all / (float)size, w->shape.dtype), by = (double)q[d];
        sum += mean ? by * middle : fmax(by * (double)least, by * (double)most);
    }
    return (double)w->shape.scale * sum;
}

/* best first, of equals the first */
static void rank(const double *score, size_t count, size_t *order)
{
    for (size_t i = 0; i < count; i++) {
        size_t at = i;
        for (; at > 0 && score[order[at - 1]] < score[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
}

/* The budgets of a query that sees so many tokens. queries: of all heads, of which this is one */
static void budgets(const struct ask *a, const float (*queries)[DIM], size_t head, size_t tokens, double out[SIZES])
{
    const bool mean = (w->param[DIGEST] > 0) != (a->of == OTHER_DIGEST_LABELS);
    const int criterion = a->of == OTHER_CRITERION ? ((int)w->param[CRITERION] + 1) % 3 : (int)w->param[CRITERION];
    const double tau = w->param[TAU] * (a->of == OTHER_TAU ? 0.7 : 1);
    const size_t first = sinks_of(a->seq), host = ha_test_fluxion_host(a->seq), kv = head / GROUP;
    const float *q = queries[head];
    struct sums device = attend(a, kv, q, 0, first), all;
    double most = 0;
    add(&device, a, kv, q, first + host, tokens);
    for (size_t h = 0; h < Q_HEADS; h++) {
        all = attend(a, h / GROUP, queries[h], 0, tokens);
        if (a->of != OWN_NORM || h == head) most = fmax(most, norm_of(&all));
    }
    all = attend(a, kv, q, 0, tokens);
    if (criterion == OUTPUT) most = norm_of(&all);
    for (size_t i = 0; i < SIZES; i++) {
        static double score[CAP];
        static size_t order[CAP];
        const size_t size = size_of[i], count = host / size;
        struct sums some = device;
        size_t m = 0;
        for (size_t b = 0; b < count; b++) score[b] = block_score(a, kv, q, first + b * size, size, mean && size > 1);
        rank(score, count, order);
        for (; m < count; m++) {
            double off[DIM];
            for (size_t d = 0; d < DIM; d++)
                off[d] = (some.den > 0 ? some.num[d] / some.den : 0) - all.num[d] / all.den;
            if (criterion == SCORE ? some.den >= 0.95 * all.den : length(off) <= tau * most) break;
            add(&some, a, kv, q, first + order[m] * size, first + (order[m] + 1) * size);
        }
        out[i] = count ? (double)((float)m / (float)count) : 0;
    }
}

/* ---- features -------------------------------------------------------------------------------------------------- */

static void moments(const double *x, size_t n, bool sample, bool excess, float out[4])
{
    double mean = 0, m2 = 0, m3 = 0, m4 = 0;
    for (size_t i = 0; i < n; i++) mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        const double y = x[i] - mean;
        m2 += y * y / (double)n;
        m3 += y * y * y / (double)n;
        m4 += y * y * y * y / (double)n;
    }
    out[0] = (float)mean;
    out[1] = (float)(sample && n > 1 ? m2 * (double)n / (double)(n - 1) : m2);
    out[2] = (float)(m2 > 0 ? m3 / pow(m2, 1.5) : 0);
    out[3] = (float)(m2 > 0 ? m4 / (m2 * m2) - (excess ? 3 : 0) : 0);
}

static void mean_row(float (*rows)[DIM], size_t first, size_t n, float out[DIM])
{
    for (size_t d = 0; d < DIM; d++) {
        double sum = 0;
        for (size_t j = first; j < first + n; j++) sum += (double)rows[j][d];
        out[d] = n ? (float)(sum / (double)n) : 0;
    }
}

/* what a step's query, or an anchor, has in common: LSEs and norms of the segments */
static float lse(const struct sums *s) { return (float)(s->den > 0 ? log(s->den) : -HUGE_VAL); }

static float largest(const struct ask *a, const float (*queries)[DIM], size_t tokens)
{
    double most = 0;
    for (size_t h = 0; h < Q_HEADS; h++) {
        struct sums s = attend(a, h / GROUP, queries[h], 0, sinks_of(a->seq)),
                    local = attend(a, h / GROUP, queries[h], sinks_of(a->seq) + ha_test_fluxion_host(a->seq), tokens);
        plus(&s, &local);
        most = fmax(most, norm_of(&s));
    }
    return (float)most;
}

/* what is known after the prefill */
static void known(const struct ask *a, size_t head, float f[F])
{
    static double x[CAP];
    const size_t kv = head / GROUP, sinks = sinks_of(a->seq), host = ha_test_fluxion_host(a->seq),
                 n = w->shape.ctx[a->seq];
    const bool sample = a->of == SAMPLE_VARIANCE, excess = a->of == EXCESS_KURTOSIS;
    const float(*anchors)[DIM] = (const float(*)[DIM])w->seen[a->layer][a->seq][SEEN - 1 - (a->of == ANCHOR_BEFORE)],
          *anchor = anchors[head];
    float(*rows[2])[DIM] = { w->k[a->layer][a->seq][kv], w->v[a->layer][a->seq][kv] }, mean[DIM];
    const struct sums in_sink = attend(a, kv, anchor, 0, sinks), in_host = attend(a, kv, anchor, sinks, sinks + host),
                      in_local = attend(a, kv, anchor, sinks + host, n);
    double need[SIZES];
    memset(f, 0, F * sizeof *f);
    f[HA_FEATURE_LAYER] = (float)a->layer;
    f[HA_FEATURE_HEAD] = (float)head;
    f[HA_FEATURE_HOST_KEYS] = (float)host;
    for (size_t i = 0; i < 2; i++) {
        double sum = 0;
        for (size_t j = 0; j < sinks; j++) sum += length_f(rows[i][j]) / (double)sinks;
        f[HA_FEATURE_K_NORM_SINK + i] = (float)sum;
        mean_row(rows[i], sinks, host, mean);
        f[HA_FEATURE_K_MEAN_NORM + i] = (float)length_f(mean);
        for (size_t j = 0; j < host; j++) x[j] = length_f(rows[i][sinks + j]);
        moments(x, host, sample, excess, f + HA_FEATURE_K_NORM_MEAN + 4 * i);
    }
    for (size_t j = 0; j < host; j++)
        x[j] = (double)w->shape.scale * dot(anchor, rows[0][sinks + j]) / length_f(anchor);
    moments(x, host, false, false, f + HA_FEATURE_ANCHOR_SCORE_MEAN);
    f[HA_FEATURE_ANCHOR_LSE_SINK] = lse(&in_sink);
    f[HA_FEATURE_ANCHOR_LSE_HOST] = lse(&in_host);
    f[HA_FEATURE_ANCHOR_LSE_LOCAL] = lse(&in_local);
    f[HA_FEATURE_ANCHOR_O_NORM_SINK] = (float)norm_of(&in_sink);
    f[HA_FEATURE_ANCHOR_O_NORM_HOST] = (float)norm_of(&in_host);
    f[HA_FEATURE_ANCHOR_O_NORM_LOCAL] = (float)norm_of(&in_local);
    f[HA_FEATURE_ANCHOR_Q_NORM] = (float)length_f(anchor);
    budgets(a, anchors, head, n, need);
    for (size_t i = 1; i < SIZES; i++) {
        const double block = host ? (double)size_of[i] / (double)host : 0;
        if (a->of == BUDGET_MORE && need[i] < 1) need[i] = (double)(float)(need[i] + block);
        if (a->of == BUDGET_LESS && need[i] > 0) need[i] = (double)(float)(need[i] - block);
        if (a->of == BUDGET_BETWEEN && need[i] < 1) need[i] = (double)(float)(need[i] + block / 2);
        f[HA_FEATURE_ANCHOR_BUDGET_16 + i - 1] = (float)need[i];
    }
    f[HA_FEATURE_ANCHOR_O_NORM_MAX] = largest(a, anchors, n);
}

/* what changes with the query */
static void online(const struct ask *a, size_t head, float f[F])
{
    const size_t t = a->of == FIRST_QUERY ? 0 : w->q_len - 1, sinks = sinks_of(a->seq),
                 host = ha_test_fluxion_host(a->seq);
    const size_t tokens = w->shape.ctx[a->seq] + a->step * w->q_len + t + 1;
    const float(*queries)[DIM] = (const float(*)[DIM])w->q[a->step][a->layer][a->seq][t],
          *q = queries[head ^ (a->of == QUERY_OF_HEAD)], *anchor = w->seen[a->layer][a->seq][SEEN - 1][head];
    const size_t kv = head / GROUP, until = a->of == NEW_KEYS_LEFT_OUT ? w->shape.ctx[a->seq] : tokens;
    const struct sums in_sink = attend(a, kv, q, 0, sinks), in_local = attend(a, kv, q, sinks + host, until);
    const double norm = length_f(q), by = (double)w->shape.scale;
    float mean[DIM];
    mean_row(w->k[a->layer][a->seq][kv ^ (a->of == MEAN_OF_KV_HEAD)], sinks, host, mean);
    f[HA_FEATURE_DEVICE_KEYS] = (float)(until - host);
    f[HA_FEATURE_SCORE_MEAN] = (float)(by * dot(q, mean) / norm);
    f[HA_FEATURE_LSE_SINK] = lse(&in_sink);
    f[HA_FEATURE_LSE_HOST] = (float)(log((double)host) + norm * (double)f[HA_FEATURE_SCORE_MEAN]
                                     + 0.5 * norm * norm * (double)f[HA_FEATURE_ANCHOR_SCORE_VARIANCE]);
    f[HA_FEATURE_LSE_LOCAL] = lse(&in_local);
    f[HA_FEATURE_O_NORM_SINK] = (float)norm_of(&in_sink);
    f[HA_FEATURE_O_NORM_LOCAL] = (float)norm_of(&in_local);
    f[HA_FEATURE_Q_NORM] = (float)norm;
    f[HA_FEATURE_Q_COSINE] = (float)(dot(q, anchor) / (norm * length_f(anchor)));
    f[HA_FEATURE_O_NORM_MAX] = largest(a, queries, until);
}

/* ---- properties ------------------------------------------------------------------------------------------------ */

static void net(enum mistake m, const float f[F], float y[3])
{
    float x[F], a[UNITS], b[UNITS];
    for (size_t i = 0; i < F; i++) {
        const float mean = m == NO_MEAN && i == HA_FEATURE_Q_NORM ? 0 : w->net.mean[i],
                    inv = w->net.inv[m == NEXT_INV && i + 1 < F ? i + 1 : i];
        x[i] = inv < 0 || inv > 0 ? (f[i] - mean) * inv : 0;
        if (m != NO_CLAMP) x[i] = x[i] < -10 ? -10 : x[i] > 10 ? 10 : x[i];
    }
    for (size_t j = 0; j < UNITS; j++) {
        a[j] = m == NO_BIAS ? 0 : w->net.b0[j];
        for (size_t i = 0; i < F - (m == NO_LAST_INPUT); i++) a[j] += x[i] * w->net.w0[i][j];
    }
    for (size_t j = 0; j < UNITS; j++) {
        b[j] = w->net.b1[j];
        for (size_t i = 0; i < UNITS; i++) b[j] += (a[i] < 0 && m != NO_RELU ? 0 : a[i]) * w->net.w1[i][j];
    }
    for (size_t j = 0; j < 3; j++) {
        y[j] = w->net.b2[j];
        for (size_t i = 0; i < UNITS; i++) y[j] += (b[i] < 0 ? 0 : b[i]) * w->net.w2[i][j];
    }
}

static void label(const struct ask *a, size_t head, struct told *t)
{
    const size_t row = a->of == FIRST_QUERY ? 0 : w->q_len - 1;
    double need[SIZES], sum = 0, squares = 0;
    budgets(a, (const float(*)[DIM])w->q[a->step][a->layer][a->seq][row], head,
            w->shape.ctx[a->seq] + a->step * w->q_len + row + 1, need);
    const double from = a->of == FREE_LINE ? need[1] : need[0];
    for (size_t i = 1; i < SIZES; i++) {
        const double x = log2((double)size_of[i]) - (a->of == FREE_LINE ? 4 : 0);
        sum += x * (need[i] - from);
        squares += x * x;
    }
    t->bgt0 = need[0];
    t->k = (double)(float)(sum / squares);
    t->s = need[0] > 0 ? 0 : 1;
}

/* features: [Q_HEADS][F] of the prefill */
static void predict(const struct ask *a, size_t head, const float *prefill, struct told *t)
{
    const double budget = w->param[BUDGET] * (a->of == OTHER_BUDGET ? 1.5 : 1);
    float f[F], y[3];
    if (w->param[PREDICT] > ORACLE) t->bgt0 = budget, t->k = t->s = 0;
    else if (w->param[PREDICT] > NET) label(a, head, t);
    else {
        for (size_t i = 0; i < F; i++) t->learnt[i] = (double)(f[i] = prefill[i]);
        online(a, head, f);
        net(a->of, f, y);
        t->bgt0 = (double)y[0];
        t->k = (double)y[1];
        t->s = (double)y[2];
        if (a->of == LEARNT_ONLINE) t->learnt[HA_FEATURE_Q_NORM] = (double)f[HA_FEATURE_Q_NORM];
    }
}

/* ---- blocks ---------------------------------------------------------------------------------------------------- */

static bool retrieves(const struct told *t) { return t->s <= 0 || w->param[SKIP_STREAMING] <= 0; }

static double need_of(enum mistake m, const struct told *t, size_t block)
{
    const double x = t->bgt0 + t->k * (m == NATURAL_LOG ? log((double)block) : log2((double)block));
    if (m == BUDGETS_NOT_CLAMPED) return x;
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* t: the heads of a group; the block that moves least, or the most */
static size_t best_block(const struct ask *a, const struct told *t, bool least)
{
    const double host = (double)ha_test_fluxion_host(a->seq);
    double best = 0;
    size_t at = 0, readers = 0;
    for (size_t g = 0; g < GROUP; g++) readers += retrieves(&t[g]);
    if (host <= 0 || readers == 0) return 0;
    if (w->param[GRANULARITY] > 0) return (size_t)8 << (size_t)w->param[GRANULARITY];
    for (size_t i = 1; i < SIZES; i++) {
        double sum = 0;
        for (size_t g = 0; g < GROUP; g++)
            if (retrieves(&t[g]) || a->of == STREAMING_COUNTS) sum += need_of(a->of, &t[g], size_of[i]);
        if (a->of != SUM_NOT_CLAMPED && a->of != BUDGETS_NOT_CLAMPED) sum = fmin(1, sum);
        const double v = (a->of == NO_METADATA ? 0 : 2 * host / (double)size_of[i]) + 2 * host * sum;
        if (at == 0 || (least ? v < best : v > best)) best = v, at = size_of[i];
    }
    return at;
}

/* Each head of a group chooses, and reads that, or what any of them chose. t: [GROUP] */
void ha_test_fluxion_choose(const struct ask *a, size_t first, struct told *t)
{
    static double score[CAP];
    static size_t order[CAP];
    static bool in[GROUP][CAP], any[CAP], certain[CAP];
    const size_t sinks = sinks_of(a->seq), host = ha_test_fluxion_host(a->seq), block = (size_t)t[0].block;
    const size_t count = block ? host / block : 0;
    const bool mean = (w->param[DIGEST] > 0) != (a->of == OTHER_DIGEST),
               together = (w->param[UNION] > 0) != (a->of == OTHER_UNION);
    memset(in, 0, sizeof in);
    memset(any, 0, sizeof any);
    memset(certain, 0, sizeof certain);
    for (size_t g = 0; g < GROUP && count; g++) {
        size_t want = 1, head = first + g;
        while (want < count && (double)want / (double)count < need_of(a->of, &t[g], block)) want++;
        if (!retrieves(&t[g])) want = 0;
        if (a->of == BLOCKS_MORE && want && want < count) want++;
        if (a->of == BLOCKS_LESS && want > 1) want--;
        t[g].blocks = (double)(want + (a->of == BLOCKS_NOTE && want));
        if (a->of == STREAMS_AND_READS && !want) want = 1;
        if (a->of == READS_NOTHING && g == 1) want = 0;
        if (a->of == OTHER_HEAD) head ^= 1;
        if (a->of == OTHER_KV_HEAD) head ^= 2;
        for (size_t b = 0; b < count; b++) {
            score[b] = -HUGE_VAL;
            for (size_t r = a->of == BY_LAST_QUERY ? w->q_len - 1 : 0; r < w->q_len; r++)
                score[b] = fmax(score[b], block_score(a, head / GROUP, w->q[a->step][a->layer][a->seq][r][head],
                                                      sinks + b * block, block, mean));
        }
        rank(score, count, order);
        for (size_t i = 0; i < want; i++) in[g][order[i]] = true;
        if (a->of == SWAPPED && want && want < count) in[g][order[want - 1]] = false, in[g][order[want]] = true;
        for (size_t b = 0; b < count; b++) any[b] |= in[g][b];
        if (want) certain[order[0]] = true;
    }
    for (size_t b = 0; b < count && a->of == UNION_LESS; b++)
        if (any[b] && certain[b]) {
            any[b] = false;
            break;
        }
    for (size_t b = 0; b < count && a->of == UNION_OF_HEAD; b++)
        if (!any[b]) {
            any[b] = true;
            break;
        }
    for (size_t g = 0; g < GROUP; g++)
        for (size_t b = 0; b < count; b++) {
            const bool reads = together && t[g].blocks > 0 ? any[b] : in[g][b];
            memset(t[g].part + sinks + b * block, reads ? IN_TASK : NOWHERE, block);
            if (a->of == KEY_MISSING) t[g].part[sinks + b * block + 3] = NOWHERE;
            if (a->of == STRAY_KEY && !reads) t[g].part[sinks + b * block + 5] = IN_TASK;
        }
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */

static void place(const struct ask *a, struct told *t)
{
    const size_t sinks = sinks_of(a->seq), host = ha_test_fluxion_host(a->seq),
                 before = w->shape.ctx[a->seq] + a->step * w->q_len;
    for (size_t j = 0; j < before + w->q_len; j++)
        t->part[j] = j < sinks ? IN_SINK : j < sinks + host ? NOWHERE : IN_LOCAL;
    if (a->of == SINK_MISSING && sinks) t->part[sinks - 1] = NOWHERE;
    if (a->of == LOCAL_MISSING) t->part[sinks + host] = NOWHERE;
    if (a->of == NEW_MISSING) t->part[before] = NOWHERE;
    if (a->of == ONE_DEVICE_STATE && sinks) memset(t->part, IN_LOCAL, sinks);
}

/* notes of one head that are another's, or a little off; what is chosen follows them */
static void mistake_notes(enum mistake m, struct told *t)
{
    struct told *x = &t[1];
    if (m == BGT0_OF_HEAD) x->bgt0 = t[0].bgt0;
    if (m == K_OF_HEAD) x->k = t[0].k;
    if (m == S_OF_HEAD) x->s = t[0].s;
    if (m == BGT0_OFF) x->bgt0 += 0.01;
    if (m == K_OFF) x->k -= 0.01;
    if (m == S_OFF) x->s += 0.05;
    if (m == NEGATIVE_S) x->s = x->s > 0 || w->param[PREDICT] <= NET ? -x->s : 1;
}

void ha_test_fluxion_simulate(enum mistake mistake, size_t layer, size_t seq, table out)
{
    static float prefill[Q_HEADS][F];
    const bool here = layer + 1 == w->shape.layers && seq == 1;
    const struct ask begin = { here ? mistake : NO_MISTAKE, 0, layer, seq };
    for (size_t h = 0; h < Q_HEADS && w->param[PREDICT] <= NET; h++) known(&begin, h, prefill[h]);
    for (size_t step = 0; step < STEPS; step++) {
        struct ask a = { here && step >= FROM ? mistake : NO_MISTAKE, step, layer, seq };
        if (begin.of == LEARNT_HEAD) a.of = LEARNT_HEAD;
        for (size_t first = 0; first < Q_HEADS; first += GROUP) {
            struct told *t = &out[step][layer][seq][first];
            /* of the last group alone */
            const enum mistake m = first > 0 ? a.of : NO_MISTAKE;
            const struct ask of = { m, step, layer, seq };
            memset(t, 0, GROUP * sizeof *t);
            for (size_t g = 0; g < GROUP; g++) {
                t[g].of = m;
                place(&of, &t[g]);
                predict(&of, first + g, prefill[m == LEARNT_HEAD ? (first + g) ^ 1 : first + g], &t[g]);
            }
            mistake_notes(m, t);
            for (size_t g = 0; g < GROUP; g++) t[g].block = (double)best_block(&of, t, m != OTHER_BLOCK);
            if (m == NEVER_SCHEDULED)
                for (size_t g = 0; g < GROUP; g++) t[g].block = 0;
            if (m == ALWAYS_SCHEDULED && t[0].block <= 0)
                for (size_t g = 0; g < GROUP; g++) t[g].block = 64;
            ha_test_fluxion_choose(&of, first, t);
            for (size_t g = 0; g < GROUP; g++) t[g].streaming = (t[g].s > 0) != (m == STREAMING_NOTE);
            if (m == BLOCK_OF_HEAD) t[1].block = t[0].block == 16 ? 32 : 16;
            if (m == LEARNT_AGAIN) t[0].learnt[HA_FEATURE_V_NORM_MEAN] *= 1 + 0x1p-23;
        }
    }
}

void ha_test_fluxion_simulate_all(enum mistake m, table out)
{
    memset(out, 0, sizeof(table));
    for (size_t i = 0; i < w->shape.layers * BATCH; i++) ha_test_fluxion_simulate(m, i / BATCH, i % BATCH, out);
}

/* ---- the world ------------------------------------------------------------------------------------------------- */

/* Means and deviations of the features as they come, and weights as a net begins with. */
static void net_make(void)
{
    enum { MOST = STEPS * LAYERS * BATCH * Q_HEADS };
    static float f[MOST][F];
    const size_t layers = w->shape.layers, n = STEPS * layers * BATCH * Q_HEADS;
    const float of[3] = { 0.1f, 0.03f, 1 }, add[3] = { 0.15f, 0.02f, 0.5f };
    for (size_t i = 0; i < n; i++) {
        const struct ask a = { NO_MISTAKE, i / Q_HEADS / BATCH / layers, i / Q_HEADS / BATCH % layers,
                               i / Q_HEADS % BATCH };
        known(&a, i % Q_HEADS, f[i]);
        online(&a, i % Q_HEADS, f[i]);
    }
    for (size_t j = 0; j < F; j++) {
        double mean = 0, square = 0;
        for (size_t i = 0; i < n; i++) mean += (double)f[i][j] / (double)n;
        for (size_t i = 0; i < n; i++) square += ((double)f[i][j] - mean) * ((double)f[i][j] - mean) / (double)n;
        /* the LSE of no keys is limited */
        w->net.mean[j] = isfinite(mean) ? (float)mean : 0;
        w->net.inv[j] = !isfinite(mean) ? 1 : square > 0 ? (float)(1 / sqrt(square)) : 0;
    }
    w->net.inv[HA_FEATURE_Q_COSINE] *= 40;
    ha_rng_normals(SEED, 10, 0, F * UNITS, (float *)w->net.w0);
    ha_rng_normals(SEED, 11, 0, UNITS, w->net.b0);
    ha_rng_normals(SEED, 12, 0, UNITS * UNITS, (float *)w->net.w1);
    ha_rng_normals(SEED, 13, 0, UNITS, w->net.b1);
    ha_rng_normals(SEED, 14, 0, UNITS * 3, (float *)w->net.w2);
    for (size_t i = 0; i < F * UNITS; i++) ((float *)w->net.w0)[i] *= sqrtf(1.0f / F);
    for (size_t i = 0; i < UNITS * UNITS; i++) ((float *)w->net.w1)[i] *= sqrtf(2.0f / UNITS);
    for (size_t i = 0; i < UNITS * 3; i++) ((float *)w->net.w2)[i] *= sqrtf(2.0f / UNITS) * of[i % 3];
    for (size_t i = 0; i < UNITS; i++) w->net.b0[i] *= 0.2f, w->net.b1[i] *= 0.2f;
    /* of no sink the LSE counts little, and is there */
    for (size_t j = 0; j < UNITS && w->param[SINK] <= 0; j++) {
        w->net.w0[HA_FEATURE_LSE_SINK][j] *= 0.03f;
        w->net.w0[HA_FEATURE_ANCHOR_LSE_SINK][j] *= 0.03f;
    }
    memcpy(w->net.b2, add, sizeof add);
}

void ha_test_fluxion_make(const double *param, size_t layers, size_t q_len, enum ha_dtype dtype)
{
    memcpy(w->param, param, sizeof w->param);
    w->q_len = q_len;
    w->shape = (struct ha_shape){ .layers = layers,
                                  .batch = BATCH,
                                  .q_heads = Q_HEADS,
                                  .kv_heads = KV_HEADS,
                                  .head_dim = DIM,
                                  .dtype = dtype,
                                  .scale = 0.35f,
                                  .ctx = { CTX[0], CTX[1] },
                                  .observed = SEEN,
                                  .q_len = q_len,
                                  .steps = STEPS };
    ha_rng_normals(SEED, 1, 0, sizeof w->k / sizeof(float), (float *)w->k);
    ha_rng_normals(SEED, 2, 0, sizeof w->v / sizeof(float), (float *)w->v);
    ha_rng_normals(SEED, 3, 0, sizeof w->q / sizeof(float), (float *)w->q);
    ha_rng_normals(SEED, 4, 0, sizeof w->seen / sizeof(float), (float *)w->seen);
    /* every other query head likes the first tokens */
    for (size_t i = 0; i < sizeof w->q / sizeof(float); i += DIM) ((float *)w->q)[i] += i / DIM % 2 ? 0 : 3;
    for (size_t i = 0; i < sizeof w->seen / sizeof(float); i += DIM) ((float *)w->seen)[i] += i / DIM % 2 ? 0 : 3;
    for (size_t i = 0; i < LAYERS * BATCH * KV_HEADS * CAP; i++)
        if (i % CAP < 5) ((float(*)[DIM])w->k)[i][0] = 5;
    for (size_t i = 0; i < LAYERS * BATCH; i++) {
        float *const of[2] = { (float *)w->k[i / BATCH][i % BATCH], (float *)w->v[i / BATCH][i % BATCH] };
        for (size_t s = 0; s < 2; s++) {
            for (size_t j = 0; j < KV_HEADS * CAP * DIM; j++) of[s][j] = ha_round(of[s][j], dtype);
            ha_store_row(w->stored[s][i / BATCH][i % BATCH], KV_HEADS * CAP * DIM, dtype, of[s]);
        }
    }
    net_make();
}

/* the net of the world as a fit */
struct ha_fit *ha_test_fluxion_fit(void)
{
    static char file[4096 + sizeof w->net];
    static const struct {
        const char *name;
        size_t rows, columns;
    } tensor[] = { { "mean", 0, F },       { "inv", 0, F },    { "w0", F, UNITS }, { "b0", 0, UNITS },
                   { "w1", UNITS, UNITS }, { "b1", 0, UNITS }, { "w2", UNITS, 3 }, { "b2", 0, 3 } };
    size_t at = 0;
    int n = snprintf(file + 8, 4000,
                     "{\"__metadata__\":{\"format\":\"habench-fit\",\"version\":\"1\",\"variant\":\"fluxion\","
                     "\"params\":\"\",\"model\":\"m\",\"layers\":\"2\",\"q_heads\":\"4\",\"kv_heads\":\"2\","
                     "\"head_dim\":\"8\",\"model_dim\":\"0\",\"dataset\":\"d\",\"seed\":\"1\",\"case\":\"c\","
                     "\"habench\":\"h\"}");
    for (size_t i = 0; i < COUNT(tensor); i++) {
        char rows[24] = "";
        const size_t bytes = (tensor[i].rows ? tensor[i].rows : 1) * tensor[i].columns * sizeof(float);
        if (tensor[i].rows) snprintf(rows, sizeof rows, "%zu,", tensor[i].rows);
        n += snprintf(file + 8 + n, (size_t)(4000 - n),
                      ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%s%zu],\"data_offsets\":[%zu,%zu]}", tensor[i].name, rows,
                      tensor[i].columns, at, at + bytes);
        at += bytes;
    }
    n += snprintf(file + 8 + n, (size_t)(4000 - n), "}");
    const uint64_t header = (uint64_t)n;
    struct ha_fit *fit = NULL;
    assert_int_equal(at, sizeof w->net);
    memcpy(file, &header, sizeof header);
    memcpy(file + 8 + n, &w->net, sizeof w->net);
    struct ha_why why;
    if (ha_fit_parse(&fit, "test", file, 8 + (size_t)n + sizeof w->net, &why) != HA_OK) fail_msg("%s", why.text);
    return fit;
}
