/* The definition of Fluxion against a plain simulation in binary32 and binary64: it accepts that one, with every
 * option, and sees its mistakes. */

#include "reference/net.h"
#include "reference/test_world.h"

#include "harness/api/features.h"
#include "harness/base/fit.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"

extern const struct ha_definition ha_definition_fluxion;

static struct ha_why why;

/* ---- a world of several layers, sequences and heads ------------------------------------------------------------ */

enum { LAYERS = 2, BATCH = 2, Q_HEADS = 4, KV_HEADS = 2, GROUP = Q_HEADS / KV_HEADS, DIM = 8 };
enum { STEPS = 2, ROWS = 2, SEEN = 2, CAP = 320, UNITS = 312, SEED = 7, F = HA_FEATURES };
static const size_t CTX[BATCH] = { 173, 300 };

enum {
    SINK,
    RECENT,
    DIGEST,
    PREDICT,
    BUDGET,
    CRITERION,
    TAU,
    GRANULARITY,
    SKIP_STREAMING,
    UNION,
    SCHEDULE,
    FETCH,
    PARAMS
};
enum { NET, ORACLE, FIXED };
enum { CONTRIBUTION, OUTPUT, SCORE };
enum { SIZES = 5 };
static const size_t size_of[SIZES] = { 1, 16, 32, 64, 128 };

static struct {
    double param[PARAMS];
    struct ha_shape shape;
    size_t q_len;
    float k[LAYERS][BATCH][KV_HEADS][CAP][DIM], v[LAYERS][BATCH][KV_HEADS][CAP][DIM];
    char stored[2][LAYERS][BATCH][KV_HEADS * CAP * DIM * sizeof(float)];
    float q[STEPS][LAYERS][BATCH][ROWS][Q_HEADS][DIM], seen[LAYERS][BATCH][SEEN][Q_HEADS][DIM];
    struct {
        float mean[F], inv[F], w0[F][UNITS], b0[UNITS], w1[UNITS][UNITS], b1[UNITS], w2[UNITS][3], b2[3];
    } net;
} w;

enum mistake {
    NO_MISTAKE,
    /* in places */
    SINK_MISSING,
    LOCAL_MISSING,
    NEW_MISSING,
    SINK_ON_HOST,
    LOCAL_EITHER,
    HOST_ON_DEVICE,
    ONE_DEVICE_STATE,
    HOST_KEY_IN_LOCAL,
    TWO_TASKS,
    OWN_QUERY,
    NO_VALUES,
    OTHER_CLAIMS,
    /* in notes */
    NO_NOTE,
    STREAMING_NOTE,
    BGT0_OF_HEAD,
    K_OF_HEAD,
    S_OF_HEAD,
    BGT0_OFF,
    K_OFF,
    S_OFF,
    NEGATIVE_S,
    /* in what is predicted */
    OTHER_BUDGET,
    OTHER_CRITERION,
    OTHER_TAU,
    OTHER_DIGEST_LABELS,
    OWN_NORM,
    FREE_LINE,
    FIRST_QUERY,
    QUERY_OF_HEAD,
    NO_BIAS,
    NO_RELU,
    NO_LAST_INPUT,
    NEXT_INV,
    NO_MEAN,
    NO_CLAMP,
    MEAN_OF_KV_HEAD,
    NEW_KEYS_LEFT_OUT,
    /* in what is learnt */
    NOTHING_LEARNT,
    LEARNT_ONLINE,
    LEARNT_AGAIN,
    LEARNT_HEAD,
    ANCHOR_BEFORE,
    BUDGET_MORE,
    BUDGET_LESS,
    BUDGET_BETWEEN,
    SAMPLE_VARIANCE,
    EXCESS_KURTOSIS,
    /* in the block and the number of blocks */
    OTHER_BLOCK,
    BLOCK_OF_HEAD,
    NEVER_SCHEDULED,
    ALWAYS_SCHEDULED,
    NO_METADATA,
    SUM_NOT_CLAMPED,
    BUDGETS_NOT_CLAMPED,
    STREAMING_COUNTS,
    NATURAL_LOG,
    BLOCKS_MORE,
    BLOCKS_LESS,
    BLOCKS_NOTE,
    /* in the choice */
    STREAMS_AND_READS,
    READS_NOTHING,
    SWAPPED,
    KEY_MISSING,
    STRAY_KEY,
    OTHER_DIGEST,
    OTHER_HEAD,
    OTHER_KV_HEAD,
    BY_LAST_QUERY,
    OTHER_UNION,
    UNION_LESS,
    UNION_OF_HEAD,
    MISTAKES
};
static const struct {
    const char *name, *text; /* what the reason says, one of those between bars */
} MISTAKE[MISTAKES] = {
    [SINK_MISSING] = { "a key of the sink missing", "is missing: it is of the sink" },
    [LOCAL_MISSING] = { "a recent key missing", "is missing: it is recent or new" },
    [NEW_MISSING] = { "a new key missing", "is missing: it is recent or new" },
    [SINK_ON_HOST] = { "the sink on the host", "is not the host's: it is of the sink" },
    [LOCAL_EITHER] = { "recent keys on either side", "is not the host's: it is recent or new" },
    [HOST_ON_DEVICE] = { "the host's keys on the device", "is no longer on the device" },
    [ONE_DEVICE_STATE] = { "sink and recent keys in one state", "is in one state with key" },
    [HOST_KEY_IN_LOCAL] = { "a key of the host among recent ones", "is in one state with key" },
    [TWO_TASKS] = { "two states of the host's keys", "is in a second state" },
    [OWN_QUERY] = { "another query", "is not weighed by the step's query, itself" },
    [NO_VALUES] = { "no values", "is not weighed by the step's query, itself" },
    [OTHER_CLAIMS] = { "other claims", "is not weighed by the step's query, itself" },
    [NO_NOTE] = { "a note less", "note k is nan" },
    [STREAMING_NOTE] = { "the other note streaming", "note streaming is" },
    [BGT0_OF_HEAD] = { "bgt0 of another head", "note bgt0 is" },
    [K_OF_HEAD] = { "k of another head", "note k is" },
    [S_OF_HEAD] = { "s of another head", "note s is" },
    [BGT0_OFF] = { "bgt0 a little off", "note bgt0 is" },
    [K_OFF] = { "k a little off", "note k is" },
    [S_OFF] = { "s a little off", "note s is" },
    [NEGATIVE_S] = { "s with the other sign", "note s is" },
    [OTHER_BUDGET] = { "another budget", "note bgt0 is" },
    [OTHER_CRITERION] = { "labels by another criterion", "note |feature anchor_budget" },
    [OTHER_TAU] = { "labels with another tau", "note |feature anchor_budget" },
    [OTHER_DIGEST_LABELS] = { "labels by the other digest", "note |feature anchor_budget" },
    [OWN_NORM] = { "the contribution to the head itself", "note |feature anchor_budget" },
    [FREE_LINE] = { "a line that is not through bgt0", "note k is" },
    [FIRST_QUERY] = { "predicted of the first token", "note " },
    [QUERY_OF_HEAD] = { "predicted of another head's query", "note " },
    [NO_BIAS] = { "a bias left out", "note " },
    [NO_RELU] = { "relu left out", "note " },
    [NO_LAST_INPUT] = { "the last input left out", "note " },
    [NEXT_INV] = { "inv of the next feature", "note " },
    [NO_MEAN] = { "a mean left out", "note " },
    [NO_CLAMP] = { "no clamp", "note " },
    [MEAN_OF_KV_HEAD] = { "the mean key of another KV head", "note " },
    [NEW_KEYS_LEFT_OUT] = { "features without the new keys", "note " },
    [NOTHING_LEARNT] = { "nothing learnt", "0 numbers were learnt, not 41 features" },
    [LEARNT_ONLINE] = { "a feature learnt that changes", "was learnt, and changes with the query" },
    [LEARNT_AGAIN] = { "a feature that changes with the step", "and was" },
    [LEARNT_HEAD] = { "the features of another head", "feature head is" },
    [ANCHOR_BEFORE] = { "the anchor of the token before", "feature anchor_" },
    [BUDGET_MORE] = { "a block more for the anchor", "feature anchor_budget" },
    [BUDGET_LESS] = { "a block less for the anchor", "feature anchor_budget" },
    [BUDGET_BETWEEN] = { "half a block more for the anchor", "feature anchor_budget" },
    [SAMPLE_VARIANCE] = { "the variance of a sample", "feature k_norm_variance is" },
    [EXCESS_KURTOSIS] = { "the excess kurtosis", "feature k_norm_kurtosis is" },
    [OTHER_BLOCK] = { "another block", "where V is" },
    [BLOCK_OF_HEAD] = { "a block for one head", "they have one" },
    [NEVER_SCHEDULED] = { "nothing read", "note block is 0, not" },
    [ALWAYS_SCHEDULED] = { "a block where all heads stream", "no head of the group retrieves|nothing on the host" },
    [NO_METADATA] = { "V without digests", "where V is" },
    [SUM_NOT_CLAMPED] = { "a sum above 1", "where V is" },
    [BUDGETS_NOT_CLAMPED] = { "budgets below 0", "where V is" },
    [STREAMING_COUNTS] = { "budgets of heads that stream", "where V is" },
    [NATURAL_LOG] = { "a line over the natural logarithm", "where V is|and a budget of" },
    [BLOCKS_MORE] = { "a block more", "note blocks is" },
    [BLOCKS_LESS] = { "a block less", "note blocks is" },
    [BLOCKS_NOTE] = { "a note blocks of one more", "note blocks is" },
    [STREAMS_AND_READS] = { "a head that streams reads", "the head streams|nothing on the host|the head has none" },
    [READS_NOTHING] = { "a head that does not reads nothing", "chosen, the rule chooses|is missing|not read and by" },
    [SWAPPED] = { "the next best block", "was chosen, block|has one choice|is read and not by|not read and by|best" },
    [KEY_MISSING] = { "a key of a block missing", "is used in part" },
    [STRAY_KEY] = { "a key of another block", "is used in part|the head streams" },
    [OTHER_DIGEST] = { "the other digest", "was chosen, block|best of" },
    [OTHER_HEAD] = { "the blocks of another head", "" },
    [OTHER_KV_HEAD] = { "the blocks of another KV head", "" },
    [BY_LAST_QUERY] = { "the blocks of the last token", "was chosen, block|best of" },
    [OTHER_UNION] = { "the other union", "the rule chooses|what one of them chose|is missing" },
    [UNION_LESS] = { "a union that is not all", "is missing: it is among|may be the|is missing: all" },
    [UNION_OF_HEAD] = { "what all read and none chose", "best of any head|has no place" },
};

/* what one head reports of one step */
enum { NOWHERE, IN_SINK, IN_LOCAL, IN_TASK };
struct told {
    uint8_t part[CAP]; /* of each token */
    double learnt[F], bgt0, k, s, streaming, block, blocks;
    enum mistake of;
};
typedef struct told table[STEPS][LAYERS][BATCH][Q_HEADS];
static table right, other;

/* Mistakes are made in the second sequence of the last layer, from step FROM on; what is learnt from the first. */
enum { FROM = 1 };

struct ask {
    enum mistake of;
    size_t step, layer, seq;
};

static size_t sinks_of(size_t seq) { return (size_t)fmin(w.param[SINK], (double)w.shape.ctx[seq]); }
static size_t host_of(size_t seq)
{
    const double left = (double)w.shape.ctx[seq] - (double)sinks_of(seq) - w.param[RECENT];
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
        const double x = exp((double)w.shape.scale * dot(q, w.k[a->layer][a->seq][kv][j]));
        s->den += x;
        for (size_t d = 0; d < DIM; d++) s->num[d] += x * (double)w.v[a->layer][a->seq][kv][j][d];
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
            const float x = w.k[a->layer][a->seq][kv][j][d];
            least = fminf(least, x);
            most = fmaxf(most, x);
            all += x;
        }
        const double middle = (double)ha_round(all / (float)size, w.shape.dtype), by = (double)q[d];
        sum += mean ? by * middle : fmax(by * (double)least, by * (double)most);
    }
    return (double)w.shape.scale * sum;
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
    const bool mean = (w.param[DIGEST] > 0) != (a->of == OTHER_DIGEST_LABELS);
    const int criterion = a->of == OTHER_CRITERION ? ((int)w.param[CRITERION] + 1) % 3 : (int)w.param[CRITERION];
    const double tau = w.param[TAU] * (a->of == OTHER_TAU ? 0.7 : 1);
    const size_t first = sinks_of(a->seq), host = host_of(a->seq), kv = head / GROUP;
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
                    local = attend(a, h / GROUP, queries[h], sinks_of(a->seq) + host_of(a->seq), tokens);
        plus(&s, &local);
        most = fmax(most, norm_of(&s));
    }
    return (float)most;
}

/* what is known after the prefill */
static void known(const struct ask *a, size_t head, float f[F])
{
    static double x[CAP];
    const size_t kv = head / GROUP, sinks = sinks_of(a->seq), host = host_of(a->seq), n = w.shape.ctx[a->seq];
    const bool sample = a->of == SAMPLE_VARIANCE, excess = a->of == EXCESS_KURTOSIS;
    const float(*anchors)[DIM] = (const float(*)[DIM])w.seen[a->layer][a->seq][SEEN - 1 - (a->of == ANCHOR_BEFORE)],
          *anchor = anchors[head];
    float(*rows[2])[DIM] = { w.k[a->layer][a->seq][kv], w.v[a->layer][a->seq][kv] }, mean[DIM];
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
    for (size_t j = 0; j < host; j++) x[j] = (double)w.shape.scale * dot(anchor, rows[0][sinks + j]) / length_f(anchor);
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
    const size_t t = a->of == FIRST_QUERY ? 0 : w.q_len - 1, sinks = sinks_of(a->seq), host = host_of(a->seq);
    const size_t tokens = w.shape.ctx[a->seq] + a->step * w.q_len + t + 1;
    const float(*queries)[DIM] = (const float(*)[DIM])w.q[a->step][a->layer][a->seq][t],
          *q = queries[head ^ (a->of == QUERY_OF_HEAD)], *anchor = w.seen[a->layer][a->seq][SEEN - 1][head];
    const size_t kv = head / GROUP, until = a->of == NEW_KEYS_LEFT_OUT ? w.shape.ctx[a->seq] : tokens;
    const struct sums in_sink = attend(a, kv, q, 0, sinks), in_local = attend(a, kv, q, sinks + host, until);
    const double norm = length_f(q), by = (double)w.shape.scale;
    float mean[DIM];
    mean_row(w.k[a->layer][a->seq][kv ^ (a->of == MEAN_OF_KV_HEAD)], sinks, host, mean);
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
        const float mean = m == NO_MEAN && i == HA_FEATURE_Q_NORM ? 0 : w.net.mean[i],
                    inv = w.net.inv[m == NEXT_INV && i + 1 < F ? i + 1 : i];
        x[i] = inv < 0 || inv > 0 ? (f[i] - mean) * inv : 0;
        if (m != NO_CLAMP) x[i] = x[i] < -10 ? -10 : x[i] > 10 ? 10 : x[i];
    }
    for (size_t j = 0; j < UNITS; j++) {
        a[j] = m == NO_BIAS ? 0 : w.net.b0[j];
        for (size_t i = 0; i < F - (m == NO_LAST_INPUT); i++) a[j] += x[i] * w.net.w0[i][j];
    }
    for (size_t j = 0; j < UNITS; j++) {
        b[j] = w.net.b1[j];
        for (size_t i = 0; i < UNITS; i++) b[j] += (a[i] < 0 && m != NO_RELU ? 0 : a[i]) * w.net.w1[i][j];
    }
    for (size_t j = 0; j < 3; j++) {
        y[j] = w.net.b2[j];
        for (size_t i = 0; i < UNITS; i++) y[j] += (b[i] < 0 ? 0 : b[i]) * w.net.w2[i][j];
    }
}

static void label(const struct ask *a, size_t head, struct told *t)
{
    const size_t row = a->of == FIRST_QUERY ? 0 : w.q_len - 1;
    double need[SIZES], sum = 0, squares = 0;
    budgets(a, (const float(*)[DIM])w.q[a->step][a->layer][a->seq][row], head,
            w.shape.ctx[a->seq] + a->step * w.q_len + row + 1, need);
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
    const double budget = w.param[BUDGET] * (a->of == OTHER_BUDGET ? 1.5 : 1);
    float f[F], y[3];
    if (w.param[PREDICT] > ORACLE) t->bgt0 = budget, t->k = t->s = 0;
    else if (w.param[PREDICT] > NET) label(a, head, t);
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

static bool retrieves(const struct told *t) { return t->s <= 0 || w.param[SKIP_STREAMING] <= 0; }

static double need_of(enum mistake m, const struct told *t, size_t block)
{
    const double x = t->bgt0 + t->k * (m == NATURAL_LOG ? log((double)block) : log2((double)block));
    if (m == BUDGETS_NOT_CLAMPED) return x;
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* t: the heads of a group; the block that moves least, or the most */
static size_t best_block(const struct ask *a, const struct told *t, bool least)
{
    const double host = (double)host_of(a->seq);
    double best = 0;
    size_t at = 0, readers = 0;
    for (size_t g = 0; g < GROUP; g++) readers += retrieves(&t[g]);
    if (host <= 0 || readers == 0) return 0;
    if (w.param[GRANULARITY] > 0) return (size_t)8 << (size_t)w.param[GRANULARITY];
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
static void choose(const struct ask *a, size_t first, struct told *t)
{
    static double score[CAP];
    static size_t order[CAP];
    static bool in[GROUP][CAP], any[CAP], certain[CAP];
    const size_t sinks = sinks_of(a->seq), host = host_of(a->seq), block = (size_t)t[0].block;
    const size_t count = block ? host / block : 0;
    const bool mean = (w.param[DIGEST] > 0) != (a->of == OTHER_DIGEST),
               together = (w.param[UNION] > 0) != (a->of == OTHER_UNION);
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
            for (size_t r = a->of == BY_LAST_QUERY ? w.q_len - 1 : 0; r < w.q_len; r++)
                score[b] = fmax(score[b], block_score(a, head / GROUP, w.q[a->step][a->layer][a->seq][r][head],
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
    const size_t sinks = sinks_of(a->seq), host = host_of(a->seq), before = w.shape.ctx[a->seq] + a->step * w.q_len;
    for (size_t j = 0; j < before + w.q_len; j++)
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
    if (m == NEGATIVE_S) x->s = x->s > 0 || w.param[PREDICT] <= NET ? -x->s : 1;
}

static void simulate(enum mistake mistake, size_t layer, size_t seq, table out)
{
    static float prefill[Q_HEADS][F];
    const bool here = layer + 1 == w.shape.layers && seq == 1;
    const struct ask begin = { here ? mistake : NO_MISTAKE, 0, layer, seq };
    for (size_t h = 0; h < Q_HEADS && w.param[PREDICT] <= NET; h++) known(&begin, h, prefill[h]);
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
            choose(&of, first, t);
            for (size_t g = 0; g < GROUP; g++) t[g].streaming = (t[g].s > 0) != (m == STREAMING_NOTE);
            if (m == BLOCK_OF_HEAD) t[1].block = t[0].block == 16 ? 32 : 16;
            if (m == LEARNT_AGAIN) t[0].learnt[HA_FEATURE_V_NORM_MEAN] *= 1 + 0x1p-23;
        }
    }
}

static void simulate_all(enum mistake m, table out)
{
    memset(out, 0, sizeof(table));
    for (size_t i = 0; i < w.shape.layers * BATCH; i++) simulate(m, i / BATCH, i % BATCH, out);
}

/* ---- the world ------------------------------------------------------------------------------------------------- */

/* Means and deviations of the features as they come, and weights as a net begins with. */
static void net_make(void)
{
    enum { MOST = STEPS * LAYERS * BATCH * Q_HEADS };
    static float f[MOST][F];
    const size_t layers = w.shape.layers, n = STEPS * layers * BATCH * Q_HEADS;
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
        const bool is = isfinite(mean) && square > 0;
        w.net.mean[j] = is ? (float)mean : 0;
        w.net.inv[j] = is ? (float)(1 / sqrt(square)) : 0;
    }
    w.net.inv[HA_FEATURE_Q_COSINE] *= 40;
    ha_rng_normals(SEED, 10, 0, F * UNITS, (float *)w.net.w0);
    ha_rng_normals(SEED, 11, 0, UNITS, w.net.b0);
    ha_rng_normals(SEED, 12, 0, UNITS * UNITS, (float *)w.net.w1);
    ha_rng_normals(SEED, 13, 0, UNITS, w.net.b1);
    ha_rng_normals(SEED, 14, 0, UNITS * 3, (float *)w.net.w2);
    for (size_t i = 0; i < F * UNITS; i++) ((float *)w.net.w0)[i] *= sqrtf(1.0f / F);
    for (size_t i = 0; i < UNITS * UNITS; i++) ((float *)w.net.w1)[i] *= sqrtf(2.0f / UNITS);
    for (size_t i = 0; i < UNITS * 3; i++) ((float *)w.net.w2)[i] *= sqrtf(2.0f / UNITS) * of[i % 3];
    for (size_t i = 0; i < UNITS; i++) w.net.b0[i] *= 0.2f, w.net.b1[i] *= 0.2f;
    memcpy(w.net.b2, add, sizeof add);
}

static void world_make(const double *param, size_t layers, size_t q_len, enum ha_dtype dtype)
{
    memcpy(w.param, param, sizeof w.param);
    w.q_len = q_len;
    w.shape = (struct ha_shape){ .layers = layers,
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
    ha_rng_normals(SEED, 1, 0, sizeof w.k / sizeof(float), (float *)w.k);
    ha_rng_normals(SEED, 2, 0, sizeof w.v / sizeof(float), (float *)w.v);
    ha_rng_normals(SEED, 3, 0, sizeof w.q / sizeof(float), (float *)w.q);
    ha_rng_normals(SEED, 4, 0, sizeof w.seen / sizeof(float), (float *)w.seen);
    /* every other query head likes the first tokens */
    for (size_t i = 0; i < sizeof w.q / sizeof(float); i += DIM) ((float *)w.q)[i] += i / DIM % 2 ? 0 : 3;
    for (size_t i = 0; i < sizeof w.seen / sizeof(float); i += DIM) ((float *)w.seen)[i] += i / DIM % 2 ? 0 : 3;
    for (size_t i = 0; i < LAYERS * BATCH * KV_HEADS * CAP; i++)
        if (i % CAP < 5) ((float(*)[DIM])w.k)[i][0] = 5;
    for (size_t i = 0; i < LAYERS * BATCH; i++) {
        float *const of[2] = { (float *)w.k[i / BATCH][i % BATCH], (float *)w.v[i / BATCH][i % BATCH] };
        for (size_t s = 0; s < 2; s++) {
            for (size_t j = 0; j < KV_HEADS * CAP * DIM; j++) of[s][j] = ha_round(of[s][j], dtype);
            ha_store_row(w.stored[s][i / BATCH][i % BATCH], KV_HEADS * CAP * DIM, dtype, of[s]);
        }
    }
    net_make();
}

/* the net of the world as a fit */
static struct ha_fit *fit_make(void)
{
    static char file[4096 + sizeof w.net];
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
    assert_int_equal(at, sizeof w.net);
    memcpy(file, &header, sizeof header);
    memcpy(file + 8 + n, &w.net, sizeof w.net);
    if (ha_fit_parse(&fit, "test", file, 8 + (size_t)n + sizeof w.net, &why) != HA_OK) fail_msg("%s", why.text);
    return fit;
}

/* ---- what is reported ------------------------------------------------------------------------------------------ */

struct reporter {
    struct told (*of)[Q_HEADS]; /* [batch] */
    uint32_t token[3][CAP];
};

static void report(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    static const float some[CAP * DIM];
    static const struct ha_profile claims;
    struct reporter *r = arg;
    const struct told *t = &r->of[seq][q_head];
    const struct ha_note note[] = { { "bgt0", t->bgt0 },   { t->of == NO_NOTE ? "key" : "k", t->k },
                                    { "s", t->s },         { "streaming", t->streaming },
                                    { "block", t->block }, { "blocks", t->blocks } };
    size_t count[3] = { 0 };
    for (size_t j = 0; j < CAP; j++)
        if (t->part[j]) r->token[t->part[j] - 1][count[t->part[j] - 1]++] = (uint32_t)j;
    if (t->of == HOST_KEY_IN_LOCAL && count[2]) r->token[1][count[1]++] = r->token[2][--count[2]];
    out->parts = 3;
    for (size_t p = 0; p < 3; p++)
        out->part[p] = (struct ha_part){
            .token = r->token[p], .count = count[p], .on_device = p < 2 || (seq + q_head) % 2, .either_side = p == 2
        };
    if (t->of == SINK_ON_HOST) out->part[0].on_device = false;
    if (t->of == LOCAL_EITHER) out->part[1].either_side = true;
    if (t->of == HOST_ON_DEVICE) out->part[2].on_device = true, out->part[2].either_side = false;
    if (t->of == OWN_QUERY) out->part[2].q = some;
    if (t->of == NO_VALUES) out->part[1].weight_only = true;
    if (t->of == OTHER_CLAIMS) out->part[0].profile = &claims;
    if (t->of == TWO_TASKS && count[2]) {
        out->part[3] = out->part[2];
        out->part[2].count = 16;
        out->part[3].token += 16;
        out->part[3].count -= 16;
        out->parts = count[2] > 16 ? 4 : 3;
        if (out->parts == 3) out->part[2].count = count[2];
    }
    memcpy(out->note, note, sizeof note);
    out->notes = COUNT(note);
    out->learnt = t->learnt;
    out->learnt_count = w.param[PREDICT] > NET || t->of == NOTHING_LEARNT ? 0 : F;
}

/* in: what differs shows */
static bool differs(enum mistake m)
{
    bool is = false;
    for (size_t i = 0; i < sizeof right / sizeof(struct told); i++) {
        struct told a = ((struct told *)right)[i], b = ((struct told *)other)[i];
        size_t read = 0, sinks = 0;
        for (size_t j = 0; j < CAP; j++) read += b.part[j] == IN_TASK, sinks += b.part[j] == IN_SINK;
        if (b.of != NO_MISTAKE) {
            is |= m == LOCAL_EITHER || m == NO_VALUES || m == NO_NOTE;
            is |= (m == SINK_ON_HOST || m == OTHER_CLAIMS) && sinks;
            is |= (m == HOST_ON_DEVICE || m == HOST_KEY_IN_LOCAL || m == OWN_QUERY) && read;
            is |= m == TWO_TASKS && read > 16;
            is |= m == NOTHING_LEARNT && w.param[PREDICT] <= NET;
        }
        a.of = b.of = NO_MISTAKE;
        is |= memcmp(&a, &b, sizeof a) != 0;
    }
    return is;
}

/* ---- what the definition says of it ---------------------------------------------------------------------------- */

static const struct ha_fit *fit;

struct counts {
    double streaming[LAYERS], scheduled[LAYERS], block[LAYERS], budget[LAYERS];
    bool said[LAYERS][4];
};

static void say(void *arg, const char *name, size_t layer, double least, double most)
{
    struct counts *c = arg;
    const struct {
        const char *name;
        double is;
    } of[] = { { "streaming_heads", c->streaming[layer] },
               { "groups_scheduled", c->scheduled[layer] },
               { "block_mean", c->block[layer] },
               { "budget_mean", c->budget[layer] } };
    for (size_t i = 0; i < COUNT(of); i++) {
        if (strcmp(of[i].name, name) != 0) continue;
        c->said[layer][i] = true;
        if (!(fabs(least - of[i].is) < 1e-12 && fabs(most - of[i].is) < 1e-12))
            fail_msg("%s of layer %zu: %g to %g, not %g", name, layer, least, most, of[i].is);
    }
}

/* What is counted, from a table. */
static void judge_counts(const struct ha_def *def, table t)
{
    struct counts c = { 0 };
    for (size_t layer = 0; layer < w.shape.layers; layer++) {
        double heads = 0, streaming = 0, groups = 0, block = 0, readers = 0, share = 0;
        for (size_t i = 0; i < (size_t)STEPS * BATCH * Q_HEADS; i++) {
            const size_t seq = i / Q_HEADS % BATCH;
            const struct told *x = &t[i / Q_HEADS / BATCH][layer][seq][i % Q_HEADS];
            size_t read = 0;
            for (size_t j = 0; j < CAP; j++) read += x->part[j] == IN_TASK;
            heads++;
            streaming += x->streaming;
            if (i % GROUP == 0) groups += x->block > 0, block += x->block;
            if (x->blocks > 0) readers++, share += (double)read / (double)host_of(seq);
        }
        c.streaming[layer] = streaming / heads;
        c.scheduled[layer] = groups / (heads / GROUP);
        c.block[layer] = block / groups;
        c.budget[layer] = share / readers;
        c.said[layer][2] = c.said[layer][3] = groups <= 0; /* of nothing nothing is said */
    }
    ha_definition_fluxion.count(def, say, &c);
    for (size_t i = 0; i < w.shape.layers * 4; i++)
        if (!c.said[i / 4][i % 4]) fail_msg("number %zu of layer %zu is not counted", i % 4, i / 4);
}

static enum ha_status judge(table t)
{
    static float q[BATCH * ROWS * Q_HEADS * DIM], seen[BATCH][SEEN * Q_HEADS * DIM];
    static const struct ha_profile observer = {
        .dot_lanes = 1, .sum_lanes = 1, .exp_eps = 0x1p-22, .log_eps = 0x1p-22
    };
    const struct ha_definition *d = &ha_definition_fluxion;
    struct ha_def *def = NULL;
    struct reporter r;
    why = (struct ha_why){ "" };
    enum ha_status status = d->create(&def, &w.shape, w.param, fit, &why);
    for (size_t step = 0; step <= STEPS && status == HA_OK; step++)
        for (size_t layer = 0; layer < w.shape.layers && status == HA_OK; layer++) {
            const void *const k[BATCH] = { w.stored[0][layer][0], w.stored[0][layer][1] }, *const v[BATCH] = {
                w.stored[1][layer][0], w.stored[1][layer][1]
            };
            const size_t done = step * w.q_len, tokens[BATCH] = { CTX[0] + done, CTX[1] + done };
            struct ha_def_step in = { .layer = layer,
                                      .q_len = w.q_len,
                                      .q = q,
                                      .k = k,
                                      .v = v,
                                      .tokens = tokens,
                                      .kv_cap = CAP,
                                      .observer = &observer };
            if (step == 0) {
                for (size_t b = 0; b < BATCH; b++) memcpy(seen[b], w.seen[layer][b], sizeof seen[b]);
                const float *const observed[BATCH] = { seen[0], seen[1] };
                status = ha_definition_prefill(d, def, &w.shape, &in, observed, &why);
                continue;
            }
            for (size_t b = 0; b < BATCH; b++)
                memcpy(q + b * w.q_len * Q_HEADS * DIM, w.q[step - 1][layer][b],
                       w.q_len * Q_HEADS * DIM * sizeof(float));
            r.of = t[step - 1][layer];
            status = ha_definition_step(d, def, &w.shape, &in, report, &r, &why);
        }
    if (status == HA_OK) judge_counts(def, t);
    if (def) d->destroy(def);
    return status;
}

/* One of the texts between bars is in it. */
static bool says(const char *text, const char *any)
{
    char part[96];
    for (const char *end = any; end; any = end + 1) {
        end = strchr(any, '|');
        snprintf(part, sizeof part, "%.*s", (int)(end ? end - any : (long)strlen(any)), any);
        if (strstr(text, part)) return true;
        if (!end) break;
    }
    return false;
}

static size_t refused[MISTAKES];
static struct {
    size_t streaming, retrieving, unscheduled, of_block[SIZES];
} met[3]; /* by each way to predict */

static void meet(void)
{
    for (size_t i = 0; i < sizeof right / sizeof(struct told); i++) {
        const struct told *t = (struct told *)right + i;
        const size_t p = (size_t)w.param[PREDICT];
        if (i / Q_HEADS / BATCH % LAYERS >= w.shape.layers || host_of(i / Q_HEADS % BATCH) == 0) continue;
        *(t->s > 0 ? &met[p].streaming : &met[p].retrieving) += 1;
        met[p].unscheduled += t->block <= 0;
        for (size_t b = 1; b < SIZES; b++) met[p].of_block[b] += (size_t)t->block == size_of[b];
    }
}

/* every `stride`th mistake, from `first` on */
static void try_all(const char *what, enum mistake first, size_t stride)
{
    simulate_all(NO_MISTAKE, right);
    if (judge(right) != HA_OK) fail_msg("%s, right: %s", what, why.text);
    meet();
    for (enum mistake m = first; m < MISTAKES; m += stride) {
        memcpy(other, right, sizeof other);
        simulate(m, w.shape.layers - 1, 1, other);
        if (!differs(m)) continue;
        if (judge(other) != HA_FAIL) fail_msg("%s: not refused: %s %s", what, MISTAKE[m].name, why.text);
        if (!says(why.text, MISTAKE[m].text))
            fail_msg("%s, %s: \"%s\" does not say \"%s\"", what, MISTAKE[m].name, why.text, MISTAKE[m].text);
        if (!strstr(why.text, "seq 1 head ") || !strstr(why.text, w.shape.layers > 1 ? "layer 1 " : "layer 0 "))
            fail_msg("%s, %s: \"%s\" names another", what, MISTAKE[m].name, why.text);
        refused[m]++;
    }
}

static const struct {
    double param[PARAMS];
    size_t layers, q_len;
    enum ha_dtype dtype;
} CASE[] = {
    /* sink recent digest predict budget criterion tau granularity skip_streaming union */
    { { 5, 20, 0, NET, 0.05, CONTRIBUTION, 0.1, 0, 1, 0 }, 2, 1, HA_F32 },
    { { 0, 30, 1, NET, 0.05, OUTPUT, 0.3, 0, 1, 1 }, 1, 2, HA_F16 },
    { { 5, 20, 0, NET, 0.05, SCORE, 0.1, 0, 0, 1 }, 1, 1, HA_BF16 },
    { { 5, 20, 0, NET, 0.05, CONTRIBUTION, 0.2, 3, 1, 0 }, 1, 2, HA_F32 },
    { { 5, 20, 0, ORACLE, 0.05, CONTRIBUTION, 0.5, 0, 1, 0 }, 1, 1, HA_F32 },
    { { 5, 20, 1, ORACLE, 0.05, OUTPUT, 0.2, 0, 1, 1 }, 2, 2, HA_F16 },
    { { 5, 20, 0, ORACLE, 0.05, SCORE, 0.1, 0, 0, 0 }, 1, 1, HA_BF16 },
    { { 5, 20, 0, FIXED, 0.05, CONTRIBUTION, 0.1, 0, 1, 0 }, 1, 1, HA_F16 },
    { { 5, 20, 1, FIXED, 0.3, CONTRIBUTION, 0.1, 1, 1, 1 }, 1, 2, HA_BF16 },
    { { 5, 400, 0, NET, 0.05, CONTRIBUTION, 0.1, 0, 0, 0 }, 1, 1, HA_F32 },
    { { 5, 400, 0, ORACLE, 0.05, CONTRIBUTION, 0.1, 0, 1, 0 }, 1, 1, HA_F32 },
};

/* each mistake in every second case; under a sanitizer in one */
TEST(test_simulated)
{
    for (size_t i = 0; i < COUNT(CASE); i++) {
        char what[32];
        snprintf(what, sizeof what, "case %zu", i);
        world_make(CASE[i].param, CASE[i].layers, CASE[i].q_len, CASE[i].dtype);
        struct ha_fit *of = fit_make();
        fit = of;
        try_all(what, (enum mistake)(1 + (HA_SANITIZED ? i : i % 2)), HA_SANITIZED ? COUNT(CASE) : 2);
        fit = NULL;
        ha_fit_close(of);
    }
    for (enum mistake m = 1; m < MISTAKES && !HA_SANITIZED; m++)
        if (refused[m] == 0) fail_msg("%s: never made", MISTAKE[m].name);
    for (size_t p = NET; p < FIXED; p++)
        if (!met[p].streaming || !met[p].retrieving || !met[p].unscheduled)
            fail_msg("predict %zu: %zu heads stream, %zu do not, %zu of groups that read nothing", p, met[p].streaming,
                     met[p].retrieving, met[p].unscheduled);
    for (size_t b = 1; b < SIZES; b++)
        if (!met[NET].of_block[b]) fail_msg("blocks of %zu: never", size_of[b]);
}

/* ---- features, one by one -------------------------------------------------------------------------------------- */

/* head 3 of the last sequence and layer has another one in all steps */
static void refuse_feature(size_t i, double value, const char *what)
{
    char text[64];
    memcpy(other, right, sizeof other);
    for (size_t step = 0; step < STEPS; step++) other[step][1][1][3].learnt[i] = value;
    snprintf(text, sizeof text, "layer 1 seq 1 head 3: feature %s is", ha_feature_name(i));
    if (judge(other) != HA_FAIL || !strstr(why.text, text))
        fail_msg("%s %s: \"%s\"", ha_feature_name(i), what, why.text);
}

/* Each known feature is refused by name where it is that of a head of another sequence and KV head. */
TEST(test_features)
{
    size_t tried = 0;
    world_make(CASE[0].param, LAYERS, 1, HA_F16);
    struct ha_fit *of = fit_make();
    fit = of;
    simulate_all(NO_MISTAKE, right);
    for (size_t i = 0; i < F; i++) {
        const double is = right[0][1][1][3].learnt[i], was = right[0][0][0][0].learnt[i];
        const double off = (double)(float)(is * (1 - 1e-3));
        if (ha_feature_online(i)) assert_true(is == 0 && was == 0);
        if (is < 0 || is > 0) refuse_feature(i, off, "off by 0.001 of itself");
        if (fabs(is - was) <= 1e-6 * fabs(is)) continue;
        refuse_feature(i, was, "of another head");
        tried++;
    }
    fit = NULL;
    ha_fit_close(of);
    if (tried < 29) fail_msg("%zu features differ", tried);
}

/* ---- the net --------------------------------------------------------------------------------------------------- */

/* What binary32 makes of it, its sums forwards, backwards and by halves, is within the bounds; these are narrow, and a
 * weight that is another is seen. */
static float sum_of(const float *x, size_t n, size_t stride, int order)
{
    float sum = 0;
    if (order == 2 && n > 1)
        return sum_of(x, n / 2, stride, order) + sum_of(x + n / 2 * stride, n - n / 2, stride, order);
    for (size_t i = 0; i < n; i++) sum += x[(order == 1 ? n - 1 - i : i) * stride];
    return sum;
}

static void forward(const float *const *weight, const float *const *bias, const float x[F], int order, float y[3])
{
    static const size_t width[] = { F, UNITS, UNITS, 3 };
    float in[UNITS], out[UNITS], term[UNITS + 1];
    memcpy(in, x, F * sizeof *in);
    for (size_t l = 0; l < 3; l++) {
        for (size_t j = 0; j < width[l + 1]; j++) {
            for (size_t i = 0; i < width[l]; i++)
                term[i] = (l && in[i] < 0 ? 0 : in[i]) * weight[l][i * width[l + 1] + j];
            term[width[l]] = bias[l][j];
            out[j] = sum_of(term, width[l] + 1, 1, order);
        }
        memcpy(in, out, sizeof in);
    }
    memcpy(y, in, 3 * sizeof *y);
}

TEST(test_net)
{
    static const size_t width[] = { F, UNITS, UNITS, 3 };
    world_make(CASE[0].param, LAYERS, 1, HA_F32);
    const float *const weight[] = { (float *)w.net.w0, (float *)w.net.w1, (float *)w.net.w2 }, *const bias[] = {
        w.net.b0, w.net.b1, w.net.b2
    };
    const struct ha_ref_net of = { .layers = 3, .width = width, .w = weight, .bias = bias };
    for (size_t n = 0; n < (HA_SANITIZED ? 3 : 30); n++) {
        float x[F], y[3];
        struct ha_ref_score in[F], out[3];
        ha_rng_normals(SEED, 20, n * F, F, x);
        for (size_t i = 0; i < F; i++) {
            const double off = n % 3 ? 0 : 1e-5;
            in[i] = (struct ha_ref_score){ (double)x[i], (double)x[i] - off, (double)x[i] + off };
            if (n % 3 == 0) x[i] = (float)((double)x[i] + (i % 2 ? 0.99 : -0.99) * off);
        }
        ha_ref_net(&of, in, out);
        for (int order = 0; order < 3; order++) {
            forward(weight, bias, x, order, y);
            for (size_t j = 0; j < 3; j++)
                if (!((double)y[j] >= out[j].low && (double)y[j] <= out[j].high))
                    fail_msg("output %zu: %.9g, not %.9g to %.9g", j, (double)y[j], out[j].low, out[j].high);
        }
        for (size_t j = 0; j < 3; j++)
            if (!(out[j].high - out[j].low < (j == 0 ? 6e-4 : j == 1 ? 2e-4 : 6e-3)))
                fail_msg("output %zu: %.9g to %.9g", j, out[j].low, out[j].high);
        x[n % F] += 0.25f;
        forward(weight, bias, x, 0, y);
        bool outside = false;
        for (size_t j = 0; j < 3; j++) outside |= !((double)y[j] >= out[j].low && (double)y[j] <= out[j].high);
        if (!outside) fail_msg("input %zu is another, and is not seen", n % F);
    }
}

/* By hand: a unit whose sum is 0 before relu and may be off by 1 either way may be off by 2 behind a weight of 2, one
 * that is far from 0 by as much through relu, or not at all; and a sum in which 2^24 comes first loses all ones but the
 * last. */
TEST(test_net_by_hand)
{
    static const size_t width[] = { 1, 1, 1 }, wide[] = { 64, 1 };
    static const struct {
        float bias;
        double value, off;
    } unit[] = { { 0, 0, 2 }, { 8, 16, 2 }, { -8, 0, 0 } };
    static const float one[] = { 1 }, two[] = { 2 }, none[] = { 0 };
    struct ha_ref_score y, x[64] = { { 0, -1, 1 } };
    for (size_t i = 0; i < COUNT(unit); i++) {
        const float *const weight[] = { one, two }, *const bias[] = { &unit[i].bias, none };
        ha_ref_net(&(struct ha_ref_net){ .layers = 2, .width = width, .w = weight, .bias = bias }, x, &y);
        const double slack = 4e-3;
        if (!(y.low <= unit[i].value - unit[i].off && y.low >= unit[i].value - unit[i].off - slack
              && y.high >= unit[i].value + unit[i].off && y.high <= unit[i].value + unit[i].off + slack))
            fail_msg("unit %zu: %g to %g", i, y.low, y.high);
    }
    float ones[64], number[64], sum = 0;
    const float *const weight[] = { ones }, *const bias[] = { none };
    for (size_t i = 0; i < 64; i++) {
        ones[i] = 1;
        number[i] = i == 0 ? 0x1p24f : i == 63 ? -0x1p24f : 1;
        x[i] = (struct ha_ref_score){ (double)number[i], (double)number[i], (double)number[i] };
        sum += number[i];
    }
    ha_ref_net(&(struct ha_ref_net){ .layers = 1, .width = wide, .w = weight, .bias = bias }, x, &y);
    assert_true(sum == 0 && y.value == 62);
    if (!(y.low <= 0 && y.high >= 62 && y.high < 300)) fail_msg("%g to %g", y.low, y.high);
}

/* ---- ties, and what is not there ------------------------------------------------------------------------------- */

/* Of two sizes at which V is the same either is right; a net of nothing but its last bias has them to the bit. */
TEST(test_ties)
{
    world_make(CASE[0].param, LAYERS, 1, HA_F32);
    memset(w.net.w2, 0, sizeof w.net.w2);
    memcpy(w.net.b2, (const float[]){ 0, 0x1p-6f, -1 }, sizeof w.net.b2);
    struct ha_fit *of = fit_make();
    fit = of;
    simulate_all(NO_MISTAKE, right);
    assert_true(right[0][0][0][0].block < 17);
    for (size_t i = 2; i < SIZES; i++) {
        const struct ask a = { NO_MISTAKE, 1, 1, 1 };
        memcpy(other, right, sizeof other);
        struct told *t = other[1][1][1];
        for (size_t g = 0; g < GROUP; g++) {
            for (size_t j = 0; j < CAP; j++) t[g].part[j] = t[g].part[j] == IN_TASK ? NOWHERE : t[g].part[j];
            t[g].block = (double)size_of[i];
        }
        choose(&a, 0, t);
        if (judge(other) != (i == 2 ? HA_OK : HA_FAIL)) fail_msg("blocks of %zu: %s", size_of[i], why.text);
        if (i > 2 && !strstr(why.text, "not 16, where V is")) fail_msg("blocks of %zu: %s", size_of[i], why.text);
    }
    fit = NULL;
    ha_fit_close(of);
}

TEST(test_not_there)
{
    world_make(CASE[0].param, LAYERS, 1, HA_F32);
    simulate_all(NO_MISTAKE, right);
    assert_int_equal(judge(right), HA_WAIVED);
    assert_non_null(strstr(why.text, "needs a fit"));
    struct ha_fit *of = fit_make();
    fit = of;
    w.shape.observed = 0;
    assert_int_equal(judge(right), HA_ERROR);
    assert_non_null(strstr(why.text, "observed=1"));
    fit = NULL;
    ha_fit_close(of);
}

int main(void) { return test_all("fluxion", NULL, NULL); }
