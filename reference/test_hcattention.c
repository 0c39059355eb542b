/* The definition of HCAttention against a plain simulation in binary32: it accepts that one, with every option, and
 * sees its mistakes. */

#include "reference/definitions.h"
#include "reference/test_says.h"

#include "harness/base/fit.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"

#include <math.h>

extern const struct ha_definition ha_definition_hcattention;

enum { LAYERS = 2, BATCH = 2, Q_HEADS = 4, KV_HEADS = 2, GROUP = Q_HEADS / KV_HEADS, DIM = 8 };
enum { STEPS = 3, ROWS = 2, CAP = 128, COUNT_MOST = 32, FROM = 1, LAYER = 1, PARTS = 4 };
enum {
    DIMS,
    C,
    BOOKS,
    PACK,
    TAU,
    RENORM,
    KEYS,
    VALUES,
    WEIGHTS,
    TABLE,
    FRESH,
    OVERLAP,
    KMEANS,
    ITERATIONS,
    ROTARY,
    PREFILL,
    ANCHOR,
    PARAMS
};

enum mistake {
    NO_MISTAKE,
    /* in places */
    FRESH_MISSING,
    NEW_MISSING,
    FRESH_ON_HOST,
    FRESH_CODED,
    CODED_FRESH,
    REST_LEFT_OUT,
    REST_REPORTED,
    REST_FIRST,
    OTHER_SIDE,
    TWO_KEPT,
    PADDED,
    OTHER_QUERY,
    EITHER_SIDE,
    USED_TWICE,
    /* in claims */
    NO_PROFILE,
    NO_CODES,
    SCORE_TYPE,
    WEIGHT_TYPE,
    DIVIDED,
    LEAST_TOO_LARGE,
    LEAST_TOO_SMALL,
    /* in codes */
    SECOND_NEAREST,
    OTHER_HEADS_BOOK,
    KEY_ITSELF,
    CODE_CHANGES,
    CENTROID_OFF,
    OTHER_POSITION,
    /* in the choice */
    ONE_MORE,
    ONE_LESS,
    NEXT_BEST,
    OTHER_TAU,
    BY_KEYS,
    BY_LAST,
    NO_SCALE,
    OTHER_HEAD,
    NOTHING,
    /* in notes */
    NO_KEPT,
    KEPT_OFF,
    NO_MASS,
    MASS_OFF,
    MASS_OF_ALL,
    MISTAKES
};
static const struct {
    const char *name, *text; /* what the reason says, one of those between bars */
} MISTAKE[MISTAKES] = {
    [FRESH_MISSING] = { "a fresh key missing", "is missing: it is fresh" },
    [NEW_MISSING] = { "a new key missing", "is missing: it is new" },
    [FRESH_ON_HOST] = { "fresh keys on the host", "is on the host: it is fresh" },
    [FRESH_CODED] = { "a fresh key by its code", "is in a part with codes: it is fresh" },
    [CODED_FRESH] = { "a coded key by itself", "it has left the fresh window" },
    [REST_LEFT_OUT] = { "weights left out", "is missing: it is coded, and weighs" },
    [REST_REPORTED] = { "weights alone of what is renormalised", "has a weight alone" },
    [REST_FIRST] = { "weights alone ahead", "is not behind that of the chosen keys" },
    [OTHER_SIDE] = { "values on the other side", "is summed by the" },
    [TWO_KEPT] = { "two parts of the chosen", "is in a second part of its kind" },
    [PADDED] = { "padding", "nothing is padded" },
    [OTHER_QUERY] = { "another query", "is not weighed by the step's query" },
    [EITHER_SIDE] = { "fresh keys by either side", "is not attended by the device" },
    [USED_TWICE] = { "a key used twice", "is used twice" },
    [NO_PROFILE] = { "no profile", "with codes and no profile|is in a second part of its kind" },
    [NO_CODES] = { "no codes", "is in a part without codes" },
    [SCORE_TYPE] = { "a coarser table", "score_type is bf16" },
    [WEIGHT_TYPE] = { "coarser weights", "weight_type is bf16" },
    [DIVIDED] = { "weights divided by their sum", "sum_least is 0" },
    [LEAST_TOO_LARGE] = { "more than weights add up to", "add up to" },
    [LEAST_TOO_SMALL] = { "far less than weights add up to", "sum_least is" },
    [SECOND_NEAREST] = { "a centroid that is not the nearest", "is not its nearest centroid in group 1" },
    [OTHER_HEADS_BOOK] = { "another head's book", "is not its nearest centroid" },
    [KEY_ITSELF] = { "the key itself", "is not its nearest centroid|and keys are exact|is not what it was before" },
    [CODE_CHANGES] = { "a code that changes", "is not what it was before" },
    [CENTROID_OFF] = { "a centroid a little off", "is not its nearest centroid" },
    [OTHER_POSITION] = { "turned to another token's position", "is not its nearest centroid" },
    [ONE_MORE] = { "a key more", "without the least of them" },
    [ONE_LESS] = { "a key less", "at most, and tau is|no coded key is chosen" },
    [NEXT_BEST] = { "the next best key", "was chosen, key" },
    [OTHER_TAU] = { "another tau", "and tau is" },
    [BY_KEYS] = { "a choice by the keys themselves", "was chosen, key|tau is|note mass" },
    [BY_LAST] = { "a choice by the last token", "was chosen, key|tau is|note mass" },
    [NO_SCALE] = { "scores without the scale", "was chosen, key|tau is" },
    [OTHER_HEAD] = { "another head's choice", "was chosen, key|tau is" },
    [NOTHING] = { "nothing chosen", "no coded key is chosen|is not behind that" },
    [NO_KEPT] = { "no note kept", "note kept is" },
    [KEPT_OFF] = { "a note kept off by one", "note kept is" },
    [NO_MASS] = { "no note mass", "note mass is" },
    [MASS_OFF] = { "a mass a little off", "note mass is" },
    [MASS_OF_ALL] = { "the mass of all keys", "note mass is" },
};

static struct {
    double param[PARAMS];
    struct ha_shape shape;
    size_t q_len;
    bool fitted, turned;
    float k[LAYERS][BATCH][KV_HEADS][CAP][DIM], q[STEPS][LAYERS][BATCH][ROWS][Q_HEADS][DIM];
    char stored[LAYERS][BATCH][KV_HEADS * CAP * DIM * sizeof(float)];
    float book[LAYERS][KV_HEADS][DIM * DIM * COUNT_MOST]; /* [books][dims][count] */
    struct ha_projection projection[LAYERS];
    float inv_freq[DIM / 2];
} w;

struct made {
    uint32_t token[CAP];
    float k[CAP][DIM];
    size_t count, padding;
    bool coded, q, on_device, weight_only, either_side, profile;
    struct ha_profile claims;
};
struct told {
    struct made part[PARTS];
    size_t parts;
    double kept, mass;
};
typedef struct told table[STEPS][LAYERS][BATCH][Q_HEADS];
static table right, other;
static struct ha_why why;

/* ---- the world --------------------------------------------------------------------------------------------------- */

static size_t dims(void) { return (size_t)w.param[DIMS]; }
static size_t groups(void) { return DIM / dims(); }
static size_t books(void) { return w.param[BOOKS] > 0 ? groups() : 1; }
static size_t centroids(void) { return (size_t)w.param[C]; }
static bool in_blocks(void) { return w.param[PREFILL] > 0 && w.q_len > 1; }
static bool f16_table(void) { return w.param[TABLE] > 0 && w.param[KEYS] <= 0 && !w.turned; }
static size_t before(size_t seq, size_t step) { return w.shape.ctx[seq] + step * w.q_len; }
static size_t coded(size_t seq, size_t step)
{
    const size_t n = before(seq, step), fresh = (size_t)w.param[FRESH];
    return n > fresh ? n - fresh : 0;
}

static void turn(size_t token, int sign, const float *x, float *out)
{
    for (size_t j = 0; j < DIM / 2; j++) {
        const double angle = (double)token * (double)w.inv_freq[j];
        const float c = (float)cos(angle), s = (float)(sign * sin(angle)), a = x[j], b = x[j + DIM / 2];
        out[j] = a * c - b * s;
        out[j + DIM / 2] = b * c + a * s;
    }
}

static void uncoded(size_t layer, size_t seq, size_t kv, size_t token, float *x)
{
    memcpy(x, w.k[layer][seq][kv][token], DIM * sizeof *x);
    if (w.turned) turn(token, -1, w.k[layer][seq][kv][token], x);
}

static float *centroid(size_t layer, size_t kv, size_t group, size_t j)
{
    return w.book[layer][kv] + (books() > 1 ? group : 0) * dims() * centroids() + j;
}

static void make_books(void)
{
    const size_t n = w.shape.ctx[0] + w.shape.ctx[1];
    for (size_t i = 0; i < LAYERS * KV_HEADS * books() * centroids(); i++) {
        const size_t j = i % centroids(), g = i / centroids() % books(), kv = i / centroids() / books() % KV_HEADS,
                     l = i / centroids() / books() / KV_HEADS;
        const size_t element = books() > 1 ? j * n / centroids() * groups() + g : j * n * groups() / centroids();
        const size_t at = element / groups(), seq = at >= w.shape.ctx[0];
        float x[DIM] = { 0 };
        if (n) uncoded(l, seq, kv, at - (seq ? w.shape.ctx[0] : 0), x);
        for (size_t d = 0; d < dims(); d++)
            centroid(l, kv, g, j)[d * centroids()] = w.fitted ? ha_rng_normal(5, i, d)
                                                              : x[element % groups() * dims() + d];
    }
}

static void make(const double *param, const size_t *ctx, size_t q_len, enum ha_dtype dtype, bool fitted)
{
    memset(&w, 0, sizeof w);
    memcpy(w.param, param, sizeof w.param);
    w.q_len = q_len;
    w.fitted = fitted;
    w.turned = param[ROTARY] > 0;
    w.shape = (struct ha_shape){ .layers = LAYERS,
                                 .batch = BATCH,
                                 .q_heads = Q_HEADS,
                                 .kv_heads = KV_HEADS,
                                 .head_dim = DIM,
                                 .q_len = q_len,
                                 .steps = STEPS,
                                 .dtype = dtype,
                                 .scale = 0.35355339f,
                                 .ctx = { ctx[0], ctx[1] } };
    for (size_t i = 0; i < LAYERS * BATCH * KV_HEADS * CAP * DIM; i++) {
        float *x = &((float *)w.k)[i];
        *x = ha_round(ha_rng_normal(1, i / DIM / CAP, i % (DIM * CAP)), dtype);
        const size_t head = i / DIM / CAP;
        ha_store(w.stored[head / KV_HEADS / BATCH][head / KV_HEADS % BATCH], i % (KV_HEADS * CAP * DIM), dtype, *x);
    }
    for (size_t i = 0; i < sizeof w.q / sizeof(float); i++) ((float *)w.q)[i] = 1.5f * ha_rng_normal(2, 0, i);
    for (size_t j = 0; j < DIM / 2; j++) w.inv_freq[j] = powf(10, -(float)j / 2);
    for (size_t l = 0; l < LAYERS; l++)
        w.projection[l] = (struct ha_projection){ .inv_freq = w.inv_freq, .rotary = DIM, .rope_scale = 1 };
    make_books();
}

static struct ha_fit *fit_of(void)
{
    static char file[2048 + sizeof w.book];
    const size_t floats = books() * dims() * centroids(), bytes = LAYERS * KV_HEADS * floats * sizeof(float);
    if (!w.fitted) return NULL;
    const int n = snprintf(
        file + 8, 2000,
        "{\"__metadata__\":{\"format\":\"habench-fit\",\"version\":\"1\",\"variant\":\"hcattention\","
        "\"params\":\"\",\"model\":\"m\",\"layers\":\"2\",\"q_heads\":\"4\",\"kv_heads\":\"2\","
        "\"head_dim\":\"8\",\"model_dim\":\"0\",\"dataset\":\"d\",\"seed\":\"1\",\"case\":\"c\","
        "\"habench\":\"h\"},\"centroids\":{\"dtype\":\"F32\",\"shape\":[2,2,%zu,%zu,%zu],"
        "\"data_offsets\":[0,%zu]}}",
        books(), dims(), centroids(), bytes);
    const uint64_t header = (uint64_t)n;
    memcpy(file, &header, sizeof header);
    for (size_t i = 0; i < LAYERS * KV_HEADS; i++)
        memcpy(file + 8 + n + i * floats * sizeof(float), w.book[i / KV_HEADS][i % KV_HEADS], floats * sizeof(float));
    struct ha_fit *fit = NULL;
    if (ha_fit_parse(&fit, "test", file, 8 + (size_t)n + bytes, &why) != HA_OK) fail_msg("%s", why.text);
    return fit;
}

/* ---- a step of a head -------------------------------------------------------------------------------------------- */

struct ask {
    enum mistake of;
    size_t step, layer, seq, head, kv;
};

/* the nearest centroid of a group, or the next one */
static size_t nearest(const float *x, const float *book, size_t rank)
{
    float least = INFINITY, first = -INFINITY;
    size_t found = 0;
    for (size_t i = 0; i <= rank; i++, first = least, least = INFINITY)
        for (size_t j = 0; j < centroids(); j++) {
            float sum = 0;
            for (size_t d = 0; d < dims(); d++) sum += powf(x[d] - book[d * centroids() + j], 2);
            if (sum < least && sum > first) least = sum, found = j;
        }
    return found;
}

static void stand_in(const struct ask *a, size_t token, float *out)
{
    const size_t now = coded(a->seq, a->step), then = a->step ? coded(a->seq, a->step - 1) : 0;
    const bool fresh = token >= then && token < now;
    const enum mistake of = fresh || (a->of == CODE_CHANGES && token == 0) ? a->of : NO_MISTAKE;
    float x[DIM], k[DIM];
    memcpy(out, w.k[a->layer][a->seq][a->kv][token], DIM * sizeof *out);
    if (w.param[KEYS] > 0 || of == KEY_ITSELF) return;
    uncoded(a->layer, a->seq, a->kv, token, x);
    for (size_t g = 0; g < groups(); g++) {
        const size_t rank = (of == SECOND_NEAREST && g == 1) || (of == CODE_CHANGES && !fresh && g == 0);
        const float *book = centroid(a->layer, of == OTHER_HEADS_BOOK ? 0 : a->kv, g, 0);
        const size_t j = nearest(x + g * dims(), book, rank);
        for (size_t d = 0; d < dims(); d++) k[g * dims() + d] = book[d * centroids() + j];
    }
    if (of == CENTROID_OFF) k[DIM - 1] += 1e-4f;
    if (w.turned) turn(of == OTHER_POSITION ? token + 1 : token, 1, k, out);
    else memcpy(out, k, sizeof k);
}

static float score(const struct ask *a, const float *q, const float *k)
{
    float sum = 0;
    for (size_t g = 0; g < groups(); g++) {
        float entry = 0;
        for (size_t d = g * dims(); d < (g + 1) * dims(); d++) entry += q[d] * k[d];
        sum += ha_round(entry, f16_table() ? HA_F16 : HA_F32);
    }
    return a->of == NO_SCALE ? sum : w.shape.scale * sum;
}

/* weights of all coded keys */
static void weigh(const struct ask *a, size_t row, float *x)
{
    const struct ask honest = { NO_MISTAKE, a->step, a->layer, a->seq, a->head, a->kv };
    const size_t head = a->of == OTHER_HEAD ? (a->head + 1) % Q_HEADS : a->head, m = coded(a->seq, a->step);
    float max = -INFINITY, sum = 0, k[DIM];
    for (size_t j = 0; j < m; j++) {
        stand_in(&honest, j, k);
        x[j] = score(a, w.q[a->step][a->layer][a->seq][row][head],
                     a->of == BY_KEYS ? w.k[a->layer][a->seq][a->kv][j] : k);
        max = fmaxf(max, x[j]);
    }
    for (size_t j = 0; j < m; j++) sum += expf(x[j] - max);
    const float lse = max + logf(sum);
    for (size_t j = 0; j < m; j++) x[j] = expf(x[j] - lse);
}

static void choose(const struct ask *a, bool *kept)
{
    static float x[ROWS][CAP];
    const size_t m = coded(a->seq, a->step), from = a->of == BY_LAST ? w.q_len - 1 : 0;
    const double tau = a->of == OTHER_TAU ? w.param[TAU] * 0.8 : w.param[TAU];
    double sum = 0, weight[CAP] = { 0 };
    size_t last = 0, count = 0;
    for (size_t row = from; row < w.q_len; row++) {
        weigh(a, row, x[row]);
        for (size_t j = 0; j < m; j++) weight[j] += floor(0x1p52 * (double)x[row][j]);
    }
    memset(kept, 0, CAP * sizeof *kept);
    while (count < m && sum < tau * 0x1p52 * (double)(w.q_len - from)) {
        size_t at = m;
        for (size_t j = 0; j < m; j++)
            if (!kept[j] && (at == m || weight[j] > weight[at])) at = j;
        kept[last = at] = true;
        sum += weight[at];
        count++;
    }
    size_t next = m;
    for (size_t j = 0; j < m; j++)
        if (!kept[j] && (next == m || weight[j] > weight[next])) next = j;
    if (m && (a->of == ONE_LESS || (a->of == NEXT_BEST && next < m))) kept[last] = false;
    if ((a->of == ONE_MORE || a->of == NEXT_BEST) && next < m) kept[next] = true;
    for (size_t j = 0; j < m && a->of == NOTHING; j++) kept[j] = false;
}

static void add(struct made *to, uint32_t token) { to->token[to->count++] = token; }

static void claim(const struct ask *a, struct made *part, double least)
{
    if (!part->count) return;
    struct ha_profile p = { .dot_lanes = 1, .sum_lanes = 1, .dot_extra = 2, .exp_eps = 0x1p-22, .log_eps = 0x1p-22 };
    p.join_keys = HA_SUM_KEYS;
    p.exact_joins = true;
    p.score_type = a->of == SCORE_TYPE ? HA_BF16 : f16_table() ? HA_F16 : HA_F32;
    p.weight_type = a->of == WEIGHT_TYPE ? HA_BF16 : w.param[WEIGHTS] > 0 ? HA_F16 : HA_F32;
    p.sum_least = w.param[RENORM] > 0 ? least * 0.99 : 1;
    if (a->of == DIVIDED) p.sum_least = 0;
    if (a->of == LEAST_TOO_LARGE) p.sum_least = fmin(least * 1.01, 1);
    if (a->of == LEAST_TOO_SMALL) p.sum_least *= 0.4;
    part->profile = a->of != NO_PROFILE;
    if (part->profile) part->claims = p;
    part->coded = (w.param[KEYS] <= 0 || a->of == KEY_ITSELF) && a->of != NO_CODES;
    for (size_t i = 0; i < part->count && part->coded; i++) stand_in(a, part->token[i], part->k[i]);
}

/* the parts' own mistakes */
static void spoil(const struct ask *a, struct told *t, struct made *fresh, struct made *kept, struct made *rest)
{
    const struct made whole = *kept;
    if (a->of == FRESH_MISSING && fresh->count > w.q_len)
        memmove(fresh->token, fresh->token + 1, sizeof fresh->token - 4), fresh->count--;
    if (a->of == NEW_MISSING) fresh->count--;
    if (a->of == FRESH_ON_HOST) fresh->on_device = false;
    if (a->of == EITHER_SIDE) fresh->either_side = true;
    if (a->of == FRESH_CODED && kept->count && fresh->count > w.q_len) add(kept, fresh->token[--fresh->count]);
    if (a->of == CODED_FRESH && kept->count) add(fresh, kept->token[--kept->count]);
    if (a->of == USED_TWICE && kept->count) add(fresh, kept->token[0]);
    if (a->of == OTHER_SIDE && kept->count) kept->on_device = !kept->on_device;
    if (a->of == PADDED) kept->padding = kept->count > 0;
    if (a->of == OTHER_QUERY) kept->q = kept->count > 0;
    if (a->of == REST_LEFT_OUT && rest->count) rest->count--;
    if (a->of == REST_REPORTED && w.param[RENORM] > 0 && kept->count > 1) {
        *rest = whole;
        rest->count = 1;
        rest->weight_only = true;
        memmove(kept->token, kept->token + 1, sizeof kept->token - sizeof *kept->token);
        memmove(kept->k, kept->k + 1, sizeof kept->k - sizeof *kept->k);
        kept->count--;
        t->parts = 3;
    }
    if (a->of == REST_FIRST && rest->count) {
        *kept = *rest;
        *rest = whole;
    }
    if (a->of == TWO_KEPT && kept->count > 1) {
        t->part[3] = whole;
        t->part[3].count = 1;
        memmove(kept->token, kept->token + 1, sizeof kept->token - sizeof *kept->token);
        memmove(kept->k, kept->k + 1, sizeof kept->k - sizeof *kept->k);
        kept->count--;
        t->parts = 4;
    }
}

static void step_of(const struct ask *a, struct told *t)
{
    static bool kept[CAP];
    const struct ask honest = { NO_MISTAKE, a->step, a->layer, a->seq, a->head, a->kv };
    const size_t m = coded(a->seq, a->step), n = before(a->seq, a->step) + w.q_len;
    double mass = 0, least = 1;
    memset(t, 0, sizeof *t);
    choose(a, kept);
    for (size_t row = 0; row < w.q_len; row++) {
        float x[CAP];
        double sum = 0;
        weigh(&honest, row, x);
        for (size_t j = 0; j < m; j++)
            if (kept[j]) sum += (double)ha_round(x[j], w.param[WEIGHTS] > 0 ? HA_F16 : HA_F32);
        mass += sum / (double)w.q_len;
        least = fmin(least, sum);
    }
    struct made *fresh = &t->part[0], *in = &t->part[1], *rest = &t->part[2];
    t->parts = w.param[RENORM] > 0 ? 2 : 3;
    for (uint32_t j = (uint32_t)m; j < n; j++) add(fresh, j);
    for (uint32_t j = 0; j < m; j++)
        if (kept[j]) add(in, j);
        else if (t->parts == 3) add(rest, j);
    t->mass = mass;
    t->kept = (double)in->count;
    fresh->on_device = rest->on_device = rest->weight_only = true;
    in->on_device = w.param[VALUES] <= 0;
    claim(a, in, least);
    claim(a, rest, least);
    spoil(a, t, fresh, in, rest);
    if (a->of == NO_KEPT) t->kept = (double)NAN;
    if (a->of == KEPT_OFF) t->kept += 1;
    if (a->of == NO_MASS) t->mass = (double)NAN;
    if (a->of == MASS_OFF) t->mass *= 1.01;
    if (a->of == MASS_OF_ALL) t->mass = 1;
}

/* A mistake is made in the first sequence of the last layer, of the last KV head, from step 1 on. */
static void simulate(enum mistake m, table out)
{
    for (size_t i = 0; i < STEPS * LAYERS * BATCH * Q_HEADS; i++) {
        const struct ask at = {
            m,           i / Q_HEADS / BATCH / LAYERS, i / Q_HEADS / BATCH % LAYERS, i / Q_HEADS % BATCH,
            i % Q_HEADS, i % Q_HEADS / GROUP
        };
        const bool here = at.step >= FROM && at.layer == LAYER && at.seq == 0 && at.kv == KV_HEADS - 1;
        if (here || m == NO_MISTAKE) step_of(&at, &out[at.step][at.layer][at.seq][at.head]);
    }
}

/* ---- what the definition says of it ------------------------------------------------------------------------------ */

static void report(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    static const float some[ROWS * DIM];
    struct told(*of)[Q_HEADS] = arg, *t = &of[seq][q_head];
    out->parts = t->parts;
    for (size_t i = 0; i < t->parts; i++) {
        const struct made *p = &t->part[i];
        out->part[i] = (struct ha_part){ .token = p->token,
                                         .count = p->count,
                                         .padding = p->padding,
                                         .on_device = p->on_device,
                                         .q = p->q ? some : NULL,
                                         .k = p->coded ? p->k[0] : NULL,
                                         .profile = p->profile ? &p->claims : NULL,
                                         .weight_only = p->weight_only,
                                         .either_side = p->either_side };
    }
    if (!isnan(t->kept)) out->note[out->notes++] = (struct ha_note){ "kept", t->kept };
    if (!isnan(t->mass)) out->note[out->notes++] = (struct ha_note){ "mass", t->mass };
}

struct said {
    double kept, coded, weight_bytes, code_bytes, v_host_bytes;
    size_t names;
};

/* what is allowed for alignment is less than 256 bytes of each head and sequence */
static void say(void *arg, const char *name, size_t layer, double least, double most)
{
    struct said *s = (struct said *)arg + layer;
    const bool is_coded = w.param[KEYS] <= 0 && !w.turned, has_tables = is_coded && !in_blocks();
    const double rows = ceil(GROUP * (double)w.q_len / 4) * 4, bytes = f16_table() ? 2 : 4;
    const struct {
        const char *name;
        double is;
        bool is_aligned;
    } numbers[] = {
        { "kept_share", s->kept / s->coded, false },
        { "weight_bytes", s->weight_bytes, false },
        { "book_bytes", w.param[KEYS] > 0 ? 0 : KV_HEADS * 4.0 * (double)(books() * dims() * centroids()), false },
        { "code_bytes", s->code_bytes, is_coded },
        { "v_host_bytes", s->v_host_bytes, false },
        { "table_bytes", has_tables ? BATCH * KV_HEADS * rows * (double)(groups() * centroids()) * bytes : 0,
          has_tables },
    };
    size_t i = 0;
    while (i < COUNT(numbers) && strcmp(name, numbers[i].name) != 0) i++;
    assert_true(i < COUNT(numbers));
    s->names++;
    const double room = numbers[i].is_aligned ? KV_HEADS * BATCH * 255 : 0, is = numbers[i].is;
    if (!(least == is && most == is + room))
        fail_msg("%s of layer %zu: %g to %g, not %g", name, layer, least, most, is);
}

static void judge_counts(const struct ha_def *def, table t)
{
    struct said s[LAYERS] = { { .names = 0 } };
    const double bytes = 4 + (w.param[WEIGHTS] > 0 ? 2.0 : 4.0) * (double)w.q_len;
    for (size_t i = 0; i < STEPS * LAYERS * BATCH * Q_HEADS; i++) {
        const size_t step = i / Q_HEADS / BATCH / LAYERS, l = i / Q_HEADS / BATCH % LAYERS, b = i / Q_HEADS % BATCH;
        const double kept = t[step][l][b][i % Q_HEADS].kept;
        s[l].kept += kept;
        s[l].coded += (double)coded(b, step);
        s[l].weight_bytes += kept * bytes;
    }
    const double bits = w.param[PACK] > 0 ? ceil(log2(w.param[C])) : w.param[C] <= 256 ? 8 : 16;
    for (size_t i = 0; i < LAYERS * BATCH; i++) {
        const double tokens = (double)(w.shape.ctx[i % BATCH] + STEPS * w.q_len);
        if (w.param[KEYS] <= 0 && !w.turned)
            s[i / BATCH].code_bytes += KV_HEADS * ceil(tokens / 32) * 32 * (double)groups() * bits / 8;
        if (w.param[VALUES] > 0)
            s[i / BATCH].v_host_bytes += KV_HEADS * tokens * DIM * (double)ha_dtype_bytes(w.shape.dtype);
    }
    ha_definition_hcattention.count(def, say, s);
    for (size_t l = 0; l < LAYERS; l++)
        assert_int_equal(s[l].names, (l ? 3 : 4) + (w.param[VALUES] <= 0 ? 0 : s[l].kept > 0 ? 2 : 1));
}

static enum ha_status judge(table t, const struct ha_fit *fit)
{
    static float q[BATCH * ROWS * Q_HEADS * DIM];
    const struct ha_definition *d = &ha_definition_hcattention;
    struct ha_def *def = NULL;
    why = (struct ha_why){ "" };
    enum ha_status status = d->create(&def, &w.shape, w.param, fit, &why);
    const float *const none[BATCH] = { q, q };
    for (size_t i = 0; i < (STEPS + 1) * LAYERS && status == HA_OK; i++) {
        const size_t step = i / LAYERS, layer = i % LAYERS, done = step * w.q_len;
        const void *const k[BATCH] = { w.stored[layer][0], w.stored[layer][1] };
        const size_t tokens[BATCH] = { w.shape.ctx[0] + done, w.shape.ctx[1] + done };
        for (size_t b = 0; b < BATCH && step; b++)
            memcpy(q + b * w.q_len * Q_HEADS * DIM, w.q[step - 1][layer][b], w.q_len * Q_HEADS * DIM * sizeof *q);
        const struct ha_def_step in = { .layer = layer,
                                        .q_len = w.q_len,
                                        .q = q,
                                        .projection = w.projection,
                                        .k = k,
                                        .tokens = tokens,
                                        .kv_cap = CAP };
        status = step ? ha_definition_step(d, def, &w.shape, &in, report, t[step - 1][layer], &why)
                      : ha_definition_prefill(d, def, &w.shape, &in, none, &why);
    }
    if (status == HA_OK) judge_counts(def, t);
    if (def) d->destroy(def);
    return status;
}

static size_t refused[MISTAKES];

static void try_all(size_t number)
{
    struct ha_fit *fit = fit_of();
    simulate(NO_MISTAKE, right);
    if (judge(right, fit) != HA_OK) fail_msg("case %zu, right: %s", number, why.text);
    for (enum mistake m = 1; m < MISTAKES; m++) {
        if (m == MASS_OF_ALL && w.param[TAU] >= 1) continue; /* it is */
        memcpy(other, right, sizeof other);
        simulate(m, other);
        if (!memcmp(other, right, sizeof other)) continue;
        if (judge(other, fit) != HA_FAIL) fail_msg("case %zu: not refused: %s", number, MISTAKE[m].name);
        if (!ha_test_says(why.text, MISTAKE[m].text))
            fail_msg("case %zu, %s: \"%s\" does not say \"%s\"", number, MISTAKE[m].name, why.text, MISTAKE[m].text);
        if (!strstr(why.text, "layer 1 seq 0 head 2: ") && !strstr(why.text, "layer 1 seq 0 head 3: "))
            fail_msg("case %zu, %s: \"%s\" names another", number, MISTAKE[m].name, why.text);
        refused[m]++;
    }
    ha_fit_close(fit);
}

static const struct {
    double param[PARAMS];
    size_t ctx[BATCH], q_len;
    enum ha_dtype dtype;
    bool fitted;
} CASE[] = {
/* dims, c, books, pack, tau, renorm, keys, on the host, weights, table, fresh, -, -, -, before */
#define OF(...)     \
    {               \
        __VA_ARGS__ \
    }
    { OF(2, 16, 0, 0, 0.9, 0, 0, 1, 0, 0, 8), { 60, 30 }, 1, HA_F32, false },
    { OF(4, 32, 1, 1, 0.7, 0, 0, 1, 1, 1, 5), { 50, 40 }, 2, HA_F16, false },
    { OF(1, 8, 0, 1, 0.9, 1, 0, 0, 0, 0, 6), { 70, 6 }, 1, HA_BF16, true },
    { OF(2, 16, 1, 0, 0.95, 1, 0, 1, 1, 1, 0), { 40, 20 }, 2, HA_F32, true },
    { OF(8, 32, 1, 0, 0.8, 1, 0, 1, 0, 0, 3), { 40, 30 }, 2, HA_F16, true },
    { OF(4, 16, 0, 0, 0.9, 0, 1, 1, 0, 0, 8), { 60, 30 }, 1, HA_F16, false },
    { OF(4, 16, 0, 0, 1, 0, 0, 1, 0, 0, 8), { 60, 30 }, 1, HA_F32, false },
    { OF(4, 16, 0, 0, 0.9, 0, 0, 1, 0, 0, 64), { 60, 30 }, 1, HA_F32, false },
    { OF(4, 16, 0, 0, 0.9, 0, 0, 1, 0, 0, 0), { 3, 0 }, 2, HA_F32, false },
    { OF(2, 16, 0, 0, 0.9, 0, 0, 1, 0, 1, 8, 0, 0, 0, 1), { 60, 30 }, 1, HA_F32, false },
    { OF(4, 32, 1, 1, 0.7, 1, 0, 1, 1, 0, 5, 0, 0, 0, 1), { 50, 40 }, 2, HA_F16, false },
    { OF(4, 8, 0, 0, 0.9, 0, 0, 0, 0, 0, 6, 0, 0, 0, 1), { 40, 6 }, 1, HA_BF16, true },
};

TEST(test_simulated)
{
    for (size_t i = 0; i < COUNT(CASE); i++) {
        make(CASE[i].param, CASE[i].ctx, CASE[i].q_len, CASE[i].dtype, CASE[i].fitted);
        try_all(i);
    }
    for (enum mistake m = 1; m < MISTAKES; m++)
        if (refused[m] == 0) fail_msg("%s: never made", MISTAKE[m].name);
}

TEST(test_groups_that_do_not_divide)
{
    double param[PARAMS];
    struct ha_def *def = NULL;
    make(CASE[0].param, CASE[0].ctx, 1, HA_F32, false);
    memcpy(param, CASE[0].param, sizeof param);
    param[DIMS] = 16;
    assert_int_equal(ha_definition_hcattention.create(&def, &w.shape, param, NULL, &why), HA_ERROR);
    assert_string_equal(why.text, "hcattention: groups of dims=16 do not divide head_dim=8");
    ha_definition_hcattention.destroy(def);
}

/* Keys that are all alike have codes and weights alike: any of them may be chosen. */
TEST(test_ties)
{
    make(CASE[0].param, CASE[0].ctx, 1, HA_F32, false);
    for (size_t j = 0; j < CAP; j++) memcpy(w.k[LAYER][0][1][j], w.k[LAYER][0][1][0], sizeof *w.k[0][0][0]);
    memcpy(w.stored[LAYER][0], w.k[LAYER][0], sizeof w.k[LAYER][0]);
    make_books();
    simulate(NO_MISTAKE, right);
    assert_int_equal(judge(right, NULL), HA_OK);
    struct told *t = &right[1][LAYER][0][2];
    const uint32_t last = t->part[1].token[t->part[1].count - 1];
    t->part[1].token[t->part[1].count - 1] = t->part[2].token[0];
    t->part[2].token[0] = last;
    assert_int_equal(judge(right, NULL), HA_OK);
}

/* ---- blocks of a prefill ----------------------------------------------------------------------------------------- */

enum { ANCHOR_TOKENS = 5 };

/* What a block attends over, after so many tokens of the sequence. */
static void make_blocks(table t)
{
    memset(t, 0, sizeof(table));
    for (size_t i = 0; i < STEPS * LAYERS * BATCH * Q_HEADS; i++) {
        const size_t step = i / Q_HEADS / BATCH / LAYERS, b = i / Q_HEADS % BATCH, n = before(b, step);
        struct told *of = &t[step][i / Q_HEADS / BATCH % LAYERS][b][i % Q_HEADS];
        of->parts = 2;
        of->part[0].on_device = true;
        for (uint32_t j = 0; j < n + w.q_len; j++)
            if (j < ANCHOR_TOKENS || j >= n) add(&of->part[0], j);
    }
}

static void drop(struct told *t, size_t i)
{
    struct made *p = &t->part[0];
    memmove(p->token + i, p->token + i + 1, (p->count - i - 1) * sizeof *p->token);
    p->count--;
}
static void no_anchor(struct told *t)
{
    for (size_t i = 0; i < ANCHOR_TOKENS; i++) drop(t, 0);
}
static void short_anchor(struct told *t) { drop(t, ANCHOR_TOKENS - 1); }
static void long_anchor(struct told *t) { add(&t->part[0], ANCHOR_TOKENS); }
static void no_new(struct told *t) { t->part[0].count--; }
static void on_host(struct told *t) { t->part[0].on_device = false; }
static void by_code(struct told *t)
{
    t->part[1].coded = t->part[1].profile = true;
    add(&t->part[1], 9);
}
static void kept(struct told *t) { t->kept = 1; }
static void mass(struct told *t) { t->mass = 0.5; }

TEST(test_blocks)
{
    static const struct {
        void (*of)(struct told *);
        const char *text;
    } mistakes[] = { { no_anchor, "key 0 is missing: it is in the anchor block" },
                     { short_anchor, "key 4 is missing: it is in the anchor block" },
                     { long_anchor, "key 5 is attended: it is neither in the anchor block nor new" },
                     { no_new, "is missing: it is new" },
                     { on_host, "is on the host" },
                     { by_code, "key 9 is in a part with codes" },
                     { kept, "note kept is 1" },
                     { mass, "note mass is 0.5" } };
    double param[PARAMS];
    memcpy(param, CASE[0].param, sizeof param);
    param[PREFILL] = 1;
    param[ANCHOR] = ANCHOR_TOKENS;
    make(param, (const size_t[]){ 60, 3 }, 2, HA_F32, false);
    make_blocks(right);
    if (judge(right, NULL) != HA_OK) fail_msg("%s", why.text);
    for (size_t i = 0; i < COUNT(mistakes); i++) {
        memcpy(other, right, sizeof other);
        mistakes[i].of(&other[1][LAYER][0][2]);
        if (judge(other, NULL) != HA_FAIL || !strstr(why.text, mistakes[i].text))
            fail_msg("\"%s\" does not say \"%s\"", why.text, mistakes[i].text);
    }
    /* a step of one token is no block */
    make(param, CASE[0].ctx, 1, HA_F32, false);
    simulate(NO_MISTAKE, right);
    if (judge(right, NULL) != HA_OK) fail_msg("%s", why.text);
}

/* Distances whose squares binary32 cannot have are infinite, and so alike: any such centroid may be the nearest. */
TEST(test_infinite_distances)
{
    make(CASE[0].param, CASE[0].ctx, 1, HA_F32, false);
    const struct ha_def_book_rule rule = { "hcattention", dims(), centroids(), true, false };
    const struct ha_selection chosen = { .parts = 0 };
    struct ha_def_book b = { .centroid = NULL };
    struct ha_def_head h = { .variant = "hcattention", .chosen = &chosen, .k = w.stored[0][0], .tokens = 1 };
    const uint32_t token = 0;
    float k[DIM];
    const struct ha_part part = { .token = &token, .count = 1, .k = k };
    assert_int_equal(ha_def_book_create(&b, &rule, &w.shape, NULL, &why), HA_OK);
    for (size_t i = 0; i < dims() * centroids(); i++) b.centroid[i] = 1e20f * (float)(i % centroids() + 1);
    for (size_t d = 0; d < DIM; d++) k[d] = 1e20f * (float)centroids();
    assert_int_equal(ha_def_book_code(&b, &h, 1, &why), HA_OK);
    assert_int_equal(ha_def_book_judge(&b, &h, &part, &why), HA_OK);
    ha_def_book_end(&b);
}

/* Keys that are coded as they are before they are turned by their position, and turned again. */
TEST(test_turned_keys)
{
    make(CASE[0].param, CASE[0].ctx, 1, HA_F32, false);
    w.turned = true;
    make_books();
    const struct ha_def_book_rule rule = { "hcattention", dims(), centroids(), true, true };
    const struct ha_selection chosen = { .parts = 0 };
    struct ha_def_book b = { .centroid = NULL };
    struct ha_def_head h = { .variant = "hcattention", .projection = w.projection, .chosen = &chosen };
    const struct ask at = { NO_MISTAKE, 0, 0, 0, 0, 0 };
    const uint32_t token = 9;
    float k[DIM], turned[DIM];
    struct ha_part part = { .token = &token, .count = 1, .k = turned };
    assert_int_equal(ha_def_book_create(&b, &rule, &w.shape, NULL, &why), HA_OK);
    for (h.seq = 0; h.seq < BATCH; h.seq++) {
        h.k = w.stored[0][h.seq];
        h.tokens = w.shape.ctx[h.seq];
        assert_int_equal(ha_def_book_prefill(&b, &h, &why), HA_OK);
    }
    h.seq = 0;
    h.k = w.stored[0][0];
    assert_int_equal(ha_def_book_code(&b, &h, 20, &why), HA_OK);
    stand_in(&at, token, turned);
    turn(token, -1, turned, k);
    const struct ha_def_coded *c = ha_def_book_coded(&b, &h);
    for (size_t d = 0; d < DIM; d++)
        assert_true(fabsf(c->k[token * DIM + d] - turned[d]) <= c->off[token * DIM + d]
                    && c->off[token * DIM + d] < 1e-5f);
    part.k = k; /* not turned again */
    assert_int_equal(ha_def_book_judge(&b, &h, &part, &why), HA_FAIL);
    turned[0] += 1e-4f;
    part.k = turned;
    assert_int_equal(ha_def_book_judge(&b, &h, &part, &why), HA_FAIL);
    turned[0] -= 1e-4f;
    assert_int_equal(ha_def_book_judge(&b, &h, &part, &why), HA_OK);
    h.projection = NULL;
    assert_int_equal(ha_def_book_code(&b, &h, 21, &why), HA_WAIVED);
    ha_def_book_end(&b);
}
