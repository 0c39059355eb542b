#include "reference/test_clo_world.h"

#include "harness/base/fit.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"

#include <math.h>

struct ha_test_clo ha_test_clo;
static struct ha_test_clo *const w = &ha_test_clo;

enum { FROM = 1 };

/* ---- queries ----------------------------------------------------------------------------------------------------- */

struct ask {
    enum mistake of;
    size_t step, layer, seq, kv;
};

static size_t unit(void) { return w->param[RETRIEVE] == QUEST ? 16 : 1; }
static size_t before(const struct ask *a) { return w->shape.ctx[a->seq] + a->step * w->q_len; }
static size_t units(size_t tokens)
{
    const double left = (double)tokens - w->param[SINK] - w->param[RECENT];
    return left < 0 ? 0 : (size_t)left / unit();
}

/* of a layer, from any input, as token `token` has it */
static void project(size_t layer, size_t head, const float *x, size_t token, float *q)
{
    for (size_t d = 0; d < DIM; d++) {
        double sum = (double)w->bias[head * DIM + d];
        for (size_t i = 0; i < MODEL; i++) sum += (double)w->wq[layer][head * DIM + d][i] * (double)x[i];
        q[d] = (float)sum;
    }
    for (size_t j = 0; j < DIM / 2; j++) {
        const double angle = (double)token * (double)w->inv_freq[j], c = cos(angle), s = sin(angle);
        const double one = (double)q[j], other = (double)q[j + DIM / 2];
        q[j] = (float)(one * c - other * s);
        q[j + DIM / 2] = (float)(other * c + one * s);
    }
}

static bool ahead(void) { return w->param[PREFETCH] > 0 && w->param[PREDICT] < ORACLE; }

/* q' of a query head of the KV head; own: the layer's own where it is predicted */
static void query(const struct ask *a, size_t g, size_t row, bool own, float *q)
{
    const size_t head = a->kv * GROUP + (a->of == OTHER_HEADS_QUERY ? (g + 1) % GROUP : g);
    const size_t from = a->layer - (a->of == LAYER_AFTER_NEXT ? 2 : 1);
    if (own || !ahead() || a->layer == 0) memcpy(q, w->q[a->step][a->layer][a->seq][row][head], DIM * sizeof *q);
    else project(a->layer, head, w->x[a->step][from][a->seq][row], before(a) + row + (a->of == POSITION), q);
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

static float dot(const float *a, const float *b)
{
    float sum = 0;
    for (size_t d = 0; d < DIM; d++) sum += a[d] * b[d];
    return sum;
}

static const float *matrix(size_t layer, size_t kv)
{
    static float random[LAYERS * KV_HEADS][BITS * DIM];
    static bool made[LAYERS * KV_HEADS];
    const size_t of = layer * KV_HEADS + kv;
    if (w->param[HASH] > RANDOM) return w->fit.hash[layer][kv][0];
    for (size_t i = 0; i < BITS * DIM && !made[of]; i++) random[of][i] = ha_rng_normal(0x48415441, of, i);
    made[of] = true;
    return random[of];
}

static uint64_t code(const float *a, const float *x)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < BITS; i++) bits |= (uint64_t)(dot(a + i * DIM, x) > 0) << i;
    return bits;
}

static double score(const struct ask *a, const float *q, size_t u)
{
    float(*k)[DIM] = w->k[a->layer][a->seq][a->kv] + (size_t)w->param[SINK] + u * unit();
    if (w->param[RETRIEVE] == EXACT) return (double)(w->shape.scale * dot(q, *k));
    if (w->param[RETRIEVE] == HATA) {
        const float *of = matrix(a->layer, a->kv), *other = a->of == OTHER_MATRIX ? matrix(a->layer, 0) : of;
        uint64_t differ = code(other, q) ^ code(of, *k);
        const int bits = BITS - (a->of == A_BIT_FEWER);
        if (a->of == A_BIT_FEWER) differ &= (UINT64_C(1) << bits) - 1;
        return (double)((a->of == NO_NORM ? 1 : sqrtf(dot(*k, *k))) * (float)(bits - 2 * __builtin_popcountll(differ)));
    }
    double sum = 0;
    for (size_t d = 0; d < DIM; d++) {
        float least = INFINITY, most = -INFINITY, mean = 0;
        for (size_t j = 0; j < unit(); j++) {
            least = fminf(least, k[j][d]);
            most = fmaxf(most, k[j][d]);
            mean += k[j][d] / 16;
        }
        sum += a->of == OTHER_DIGEST ? (double)(q[d] * mean) : fmax((double)(q[d] * least), (double)(q[d] * most));
    }
    return (double)w->shape.scale * sum;
}

/* The units of largest score. own: by the layer's own query; each: of this query head alone, or `GROUP`: of all */
static void choose(const struct ask *a, bool own, size_t each, size_t want, bool *has)
{
    static double best[CAP];
    const size_t count = units(before(a));
    for (size_t u = 0; u < count; u++) {
        best[u] = -HUGE_VAL;
        has[u] = false;
        for (size_t row = a->of == CHOICE_BY_LAST ? w->q_len - 1 : 0; row < w->q_len; row++)
            for (size_t g = 0; g < GROUP; g++) {
                float q[DIM];
                query(a, g, row, own || a->of == CHOICE_BY_OWN, q);
                if (each == GROUP || each == g) best[u] = fmax(best[u], score(a, q, u));
            }
    }
    for (size_t i = 0; i < want + (a->of == SWAPPED) && i < count; i++) {
        size_t at = count;
        for (size_t u = 0; u < count; u++)
            if (!has[u] && (at == count || best[u] > best[at])) at = u;
        has[at] = true;
        /* the last one is left out again for the next */
        if (a->of == SWAPPED && i == want - 1 && want < count) best[at] = HUGE_VAL;
    }
    for (size_t u = 0; u < count && a->of == SWAPPED; u++) has[u] &= !(best[u] == HUGE_VAL);
}

/* ---- look-up ----------------------------------------------------------------------------------------------------- */

double ha_test_clo_threshold(enum mistake m, size_t layer, size_t kv)
{
    const double s = w->has & HAS_IMPORTANCE ? (double)w->fit.importance_kv[layer][kv] : 1,
                 by = pow(s, m == NO_POWER ? 1 : w->param[P]), pi = acos(-1), eta = w->param[ETA];
    const double tau = w->param[THRESHOLD] > ADAPTIVE ? eta : cos(by * acos(eta) + (1 - by) * pi);
    return (double)(float)(m == OTHER_TAU ? tau + 0.03 : tau);
}

static double importance(size_t layer, size_t head)
{
    return w->has & HAS_IMPORTANCE ? fmax((double)w->fit.importance_q[layer][head], 0x1p-10) : 1;
}

struct state {
    float label[GROUP][DIM];
    bool labelled, has[CAP], each[GROUP][CAP];
    size_t units, before;
};

static double similarity(const struct ask *a, const struct state *s)
{
    double least = HUGE_VAL, most = -HUGE_VAL, sum = 0, harmonic = 0, arithmetic = 0;
    for (size_t g = 0; g < GROUP; g++) {
        double x = HUGE_VAL;
        for (size_t row = a->of == LAST_TOKEN ? w->q_len - 1 : 0; row < w->q_len; row++) {
            float q[DIM];
            query(a, g, row, a->of == OWN_LOOK_UP, q);
            const double of = (double)(dot(q, s->label[g]) / sqrtf(dot(q, q) * dot(s->label[g], s->label[g])));
            if (isnan(of)) return -2;
            x = fmin(x, of);
        }
        const double by = a->of == NO_WEIGHTS ? 1 : importance(a->layer, a->kv * GROUP + g);
        least = fmin(least, x);
        most = fmax(most, x);
        sum += by;
        harmonic += by / x;
        arithmetic += by * x;
    }
    if (a->of == BY_MAX) return most;
    if (a->of == ARITHMETIC) return (double)(float)(arithmetic / sum);
    if (w->param[GROUP_RULE] > HARMONIC || !(least > 0)) return least;
    return (double)(float)(sum / harmonic);
}

static size_t buffer_units(size_t seq)
{
    const size_t n = w->shape.ctx[seq];
    const size_t keys = (size_t)ceil(w->param[K] * (double)n - 1e-9), of = (keys + unit() - 1) / unit();
    const size_t ever = units(n + STEPS * w->q_len);
    return of < ever ? of : ever;
}

/* ---- a step of a KV head ----------------------------------------------------------------------------------------- */

static void look_up(const struct ask *a, struct state *s, struct told *t)
{
    const double tau = ha_test_clo_threshold(a->of, a->layer, a->kv);
    const bool positive = w->param[GROUP_RULE] > HARMONIC;
    t->similarity = s->labelled ? similarity(a, s) : -2;
    t->hit = s->labelled && (t->similarity >= tau - (a->of == BELOW_IS_A_HIT ? 0.1 : 0))
             && (positive || t->similarity > 0);
    if (a->of == FIRST_IS_A_HIT && a->step == 0) t->hit = 1;
    if (a->of == REUSED_ON_MISS && s->labelled) return;
    if (t->hit > 0 && a->of != CHOSEN_ON_HIT && a->of != LABEL_ON_HIT) return;
    if (t->hit <= 0 || a->of == LABEL_ON_HIT)
        for (size_t g = 0; g < GROUP && !(a->of == LABEL_KEPT && s->labelled); g++)
            query(a, g, a->of == LABEL_OF_FIRST_TOKEN ? 0 : w->q_len - 1, a->of == LABEL_OF_OWN_QUERY, s->label[g]);
    s->labelled = true;
    if (t->hit > 0 && a->of != CHOSEN_ON_HIT) return;
    size_t want = buffer_units(a->seq);
    if (a->of == K_MORE) want++;
    if (a->of == K_LESS && want) want--;
    s->units = units(before(a));
    s->before = before(a);
    choose(a, false, GROUP, want, s->has);
    for (size_t g = 0; g < GROUP && a->of == EACH_HEAD; g++) choose(a, false, g, want, s->each[g]);
}

static void place(const struct ask *a, const struct state *s, const struct state *other, size_t g, struct told *t)
{
    const size_t n = before(a), count = units(n), sink = (size_t)w->param[SINK];
    const struct state *of = a->of == OTHER_BUFFER ? other : s;
    const bool *has = a->of == EACH_HEAD ? s->each[g] : of->has;
    const double recent = (double)n - w->param[RECENT];
    for (size_t j = 0; j < n + w->q_len; j++)
        t->part[j] = j < sink || (double)j >= recent                                                              ? ONCE
                     : (j - sink) / unit() < count && (j - sink) / unit() < of->units && has[(j - sink) / unit()] ? ONCE
                                                                                                                  : 0;
    const bool left = count > s->units;
    if (a->of == SINK_MISSING && sink) t->part[sink - 1] = 0;
    if (a->of == RECENT_MISSING && n > sink && w->param[RECENT] > 0) t->part[n - 1] = 0;
    if (a->of == NEW_MISSING) t->part[n] = 0;
    if (a->of == SINK_TWICE && sink) t->part[0] = TWICE;
    if (a->of == RECENT_TWICE && n) t->part[n - 1] = TWICE;
    if (a->of == GAP_USED && unit() > 1 && (n - sink - (size_t)w->param[RECENT]) % unit())
        t->part[sink + count * unit()] = ONCE;
    if (a->of == LEFT_ADDED && t->hit > 0 && left) memset(t->part + sink + s->units * unit(), ONCE, unit());
    for (size_t j = sink; j < n && a->of == KEY_LOST && t->hit > 0; j++)
        if (t->part[j] && (double)j < recent) {
            t->part[j] = 0;
            break;
        }
    t->left_out = t->hit > 0
                      ? fmax(0, recent - (double)sink) - fmax(0, (double)s->before - w->param[RECENT] - (double)sink)
                      : 0;
}

static void persist(const struct ask *a, struct state *s)
{
    size_t want = w->param[PERSISTENT] > 0 ? units(before(a)) : buffer_units(a->seq);
    const bool chosen = s->units || s->before;
    if (a->of == STALE_PERSISTENT && chosen) return;
    if (a->of == PART_OF_PERSISTENT && want) want--;
    s->units = units(before(a));
    s->before = before(a);
    choose(a, a->of != PREDICTED_PERSISTENT, GROUP, want, s->has);
    for (size_t g = 0; g < GROUP && a->of == EACH_HEAD; g++) choose(a, true, g, want, s->each[g]);
}

static void notes(const struct ask *a, size_t g, struct told *t)
{
    if (t->persistent > 0) t->hit = t->similarity = (double)NAN;
    if (a->of == HIT_NOTE) t->hit = 1 - t->hit;
    if (a->of == SIMILARITY_NOTE) t->similarity += 1e-3;
    if (a->of == HIT_IS_2) t->hit *= 2;
    if (a->of == PERSISTENT_IS_2) t->persistent = 2;
    if (a->of == HIT_OF_HEAD && g) t->hit = 1 - t->hit;
    if (a->of == SIMILARITY_OF_HEAD && g) t->similarity -= 1e-9;
    if (a->of == NO_PERSISTENT_NOTE) t->persistent = (double)NAN;
    if (a->of == NO_HIT_NOTE) t->hit = (double)NAN;
    if (a->of == NO_SIMILARITY_NOTE) t->similarity = (double)NAN;
    if (a->of == PERSISTENT_LATER && a->step > FROM) t->persistent = 1 - t->persistent;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* The threshold less what is profiled: of all layers but the first the wanted ones, as many as the budget has room for,
 * by plain searches for the largest. */
void ha_test_clo_persistent(enum mistake m, bool out[LAYERS][KV_HEADS])
{
    bool wanted[LAYERS][KV_HEADS] = { { false } };
    double d[LAYERS][KV_HEADS], buffers = 0, whole = 0, row = 2.0 * (double)(DIM * ha_dtype_bytes(w->shape.dtype));
    for (size_t b = 0; b < BATCH; b++) {
        buffers += row * (double)(buffer_units(b) * unit());
        whole += row * (double)(w->shape.ctx[b] + STEPS * w->q_len);
    }
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t i = 0; i < KV_HEADS; i++) out[l][i] = l == 0;
    if (!(w->has & HAS_SIMILARITY) || w->param[HARD] <= 0) return;
    const double fetched = w->has & HAS_PACE ? floor((double)w->fit.pace[0] * (double)w->fit.pace[1] / buffers) : 0;
    for (size_t l = 1; l < LAYERS; l++) {
        double positive = 0;
        for (size_t i = 0; i < KV_HEADS; i++) {
            d[l][i] = ha_test_clo_threshold(NO_MISTAKE, l, i) - ((double)w->fit.similarity[l][i] - w->param[EPS]);
            positive += d[l][i] > 0;
        }
        for (double n = m == ALL_PERSISTENT ? positive : positive - fetched; n > 0; n--) {
            size_t at = KV_HEADS;
            for (size_t i = 0; i < KV_HEADS; i++)
                if (!wanted[l][i] && (at == KV_HEADS || d[l][i] > d[l][at])) at = i;
            wanted[l][at] = true;
        }
    }
    for (double taken = KV_HEADS * whole;; taken += whole) {
        size_t layer = LAYERS, head = 0;
        for (size_t l = 1; l < LAYERS; l++)
            for (size_t i = 0; i < KV_HEADS; i++)
                if (wanted[l][i] && !out[l][i] && (layer == LAYERS || d[l][i] > d[layer][head])) layer = l, head = i;
        if (layer == LAYERS || (m != NO_BUDGET && w->param[BUDGET_MB] > 0 && taken + whole > w->param[BUDGET_MB] * 1e6))
            return;
        out[layer][head] = true;
    }
}

size_t ha_test_clo_layer(enum mistake m) { return m == FIRST_LAYER_OFFLOADED ? 0 : LAYERS - 1; }

void ha_test_clo_simulate(enum mistake m, table out)
{
    bool persistent[LAYERS][KV_HEADS];
    ha_test_clo_persistent(m, persistent);
    const size_t layer = ha_test_clo_layer(m), last = KV_HEADS - 1;
    if (m == NOT_PERSISTENT && persistent[layer][last]) persistent[layer][last] = false;
    if (m == FIRST_LAYER_OFFLOADED) persistent[0][last] = false;
    if (m == OTHER_PERSISTENT)
        for (size_t i = 0; i < KV_HEADS; i++) persistent[layer][i] = !persistent[layer][i];
    for (size_t i = 0; i < LAYERS * BATCH; i++) {
        static struct state s[KV_HEADS];
        if (m != NO_MISTAKE && m < STALE_PERSISTENT && !(i / BATCH == layer && i % BATCH == 0)) continue;
        memset(s, 0, sizeof s);
        for (size_t step = 0; step < STEPS; step++)
            for (size_t kv = 0; kv < KV_HEADS; kv++) {
                const bool here = i / BATCH == layer && i % BATCH == 0 && kv == last
                                  && (step >= FROM || m == FIRST_IS_A_HIT);
                const struct ask a = { here ? m : NO_MISTAKE, step, i / BATCH, i % BATCH, kv };
                struct told *t = &out[step][a.layer][a.seq][kv * GROUP], one = { .of = a.of };
                one.persistent = persistent[a.layer][kv];
                if (one.persistent > 0) persist(&a, &s[kv]);
                else look_up(&a, &s[kv], &one);
                for (size_t g = 0; g < GROUP; g++) {
                    t[g] = one;
                    place(&a, &s[kv], &s[0], g, &t[g]);
                    notes(&a, g, &t[g]);
                }
            }
    }
}

/* ---- the world --------------------------------------------------------------------------------------------------- */

static void fit_make(void)
{
    for (size_t l = 0; l < LAYERS; l++) {
        for (size_t h = 0; h < Q_HEADS; h++) w->fit.importance_q[l][h] = 0.2f + 0.79f * ha_rng_uniform(SEED, 20 + l, h);
        for (size_t i = 0; i < KV_HEADS; i++) {
            w->fit.importance_kv[l][i] = 0.98f + 0.02f * ha_rng_uniform(SEED, 30 + l, i);
            w->fit.similarity[l][i] = 0.6f + 0.05f * (float)((l * 2 + i * 3) % 5);
        }
    }
    w->fit.importance_q[LAYERS - 1][Q_HEADS - 1] = 0;
    /* one head of a layer */
    w->fit.pace[0] = 1e6f;
    double bytes = 0;
    for (size_t b = 0; b < BATCH; b++)
        bytes += 2.0 * (double)(DIM * ha_dtype_bytes(w->shape.dtype) * buffer_units(b) * unit());
    w->fit.pace[1] = (float)(1.3 * bytes / 1e6);
    ha_rng_normals(SEED, 40, 0, sizeof w->fit.hash / sizeof(float), (float *)w->fit.hash);
}

void ha_test_clo_make(const double *param, const size_t *ctx, size_t q_len, enum ha_dtype dtype, unsigned has)
{
    memcpy(w->param, param, sizeof w->param);
    w->q_len = q_len;
    w->has = has;
    w->shape = (struct ha_shape){ .layers = LAYERS,
                                  .batch = BATCH,
                                  .q_heads = Q_HEADS,
                                  .kv_heads = KV_HEADS,
                                  .head_dim = DIM,
                                  .model_dim = MODEL,
                                  .dtype = dtype,
                                  .scale = 0.25f,
                                  .ctx = { ctx[0], ctx[1] },
                                  .q_len = q_len,
                                  .steps = STEPS };
    ha_rng_normals(SEED, 1, 0, sizeof w->k / sizeof(float), (float *)w->k);
    ha_rng_normals(SEED, 2, 0, sizeof w->wq / sizeof(float), (float *)w->wq);
    ha_rng_normals(SEED, 3, 0, Q_HEADS * DIM, w->bias);
    ha_rng_normals(SEED, 4, 0, sizeof w->x / sizeof(float), (float *)w->x);
    for (size_t i = 0; i < sizeof w->k / sizeof(float); i++)
        ((float *)w->k)[i] *= 0.5f + 1.5f * ha_rng_uniform(SEED, 5, i / DIM);
    for (size_t j = 0; j < DIM / 2; j++) w->inv_freq[j] = (float)pow(0.5, 2 + (double)j);
    /* An input is what it was a token and a layer before, and something new. */
    for (size_t i = 0; i < STEPS * q_len; i++)
        for (size_t l = 0; l < LAYERS; l++)
            for (size_t b = 0; b < BATCH; b++)
                for (size_t d = 0; d < MODEL; d++) {
                    float *now = &w->x[i / q_len][l][b][i % q_len][d];
                    if (l) *now = w->x[i / q_len][l - 1][b][i % q_len][d] + 0.25f * *now;
                    else if (i) *now = 0.95f * w->x[(i - 1) / q_len][l][b][(i - 1) % q_len][d] + 0.3f * *now;
                }
    for (size_t i = 0; i < STEPS * LAYERS * BATCH * q_len; i++) {
        const size_t row = i % q_len, b = i / q_len % BATCH, l = i / q_len / BATCH % LAYERS,
                     step = i / q_len / BATCH / LAYERS;
        for (size_t h = 0; h < Q_HEADS; h++) {
            float *q = w->q[step][l][b][row][h];
            project(l, h, w->x[step][l][b][row], ctx[b] + step * q_len + row, q);
            for (size_t d = 0; d < DIM; d++) q[d] = ha_round(q[d], dtype);
        }
    }
    for (size_t l = 0; l < LAYERS; l++) {
        for (size_t b = 0; b < BATCH; b++) {
            float *of = (float *)w->k[l][b];
            for (size_t j = 0; j < KV_HEADS * CAP * DIM; j++) of[j] = ha_round(of[j], dtype);
            ha_store_row(w->stored[l][b], KV_HEADS * CAP * DIM, dtype, of);
        }
        w->projection[l] = (struct ha_projection){
            .wq = w->wq[l][0], .bias = w->bias, .inv_freq = w->inv_freq, .rotary = DIM, .rope_scale = 1
        };
    }
    fit_make();
}

struct ha_fit *ha_test_clo_fit(void)
{
    static char file[4096 + sizeof w->fit + sizeof w->fit.similarity];
    static const float unread[LAYERS][KV_HEADS] = { { 1, 1 }, { 1, 1 }, { 1, 1 } }; /* by which no head is hard */
    static const char *const similarity[] = { "similarity", "similarity_min" };
    const bool least = w->param[GROUP_RULE] > HARMONIC;
    const struct {
        const char *name, *shape;
        const void *data;
        size_t bytes;
        unsigned is;
    } tensor[] = { { "importance_q", "3,4", w->fit.importance_q, sizeof w->fit.importance_q, HAS_IMPORTANCE },
                   { "importance_kv", "3,2", w->fit.importance_kv, sizeof w->fit.importance_kv, HAS_IMPORTANCE },
                   { similarity[least], "3,2", w->fit.similarity, sizeof w->fit.similarity, HAS_SIMILARITY },
                   { similarity[!least], "3,2", unread, sizeof unread, HAS_SIMILARITY },
                   { "pace", "2", w->fit.pace, sizeof w->fit.pace, HAS_PACE },
                   { "hash", "3,2,64,16", w->fit.hash, sizeof w->fit.hash, HAS_HASH } };
    size_t bytes = 0;
    if (!w->has) return NULL;
    int n = snprintf(file + 8, 4000,
                     "{\"__metadata__\":{\"format\":\"habench-fit\",\"version\":\"1\",\"variant\":\"clo\","
                     "\"params\":\"\",\"model\":\"m\",\"layers\":\"3\",\"q_heads\":\"4\",\"kv_heads\":\"2\","
                     "\"head_dim\":\"16\",\"model_dim\":\"24\",\"dataset\":\"d\",\"seed\":\"1\",\"case\":\"c\","
                     "\"habench\":\"h\"}");
    for (size_t i = 0; i < COUNT(tensor); i++) {
        if (!(w->has & tensor[i].is)) continue;
        n += snprintf(file + 8 + n, (size_t)(4000 - n),
                      ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", tensor[i].name,
                      tensor[i].shape, bytes, bytes + tensor[i].bytes);
        bytes += tensor[i].bytes;
    }
    n += snprintf(file + 8 + n, (size_t)(4000 - n), "}");
    const uint64_t header = (uint64_t)n;
    memcpy(file, &header, sizeof header);
    char *to = file + 8 + n;
    for (size_t i = 0; i < COUNT(tensor); i++) {
        if (!(w->has & tensor[i].is)) continue;
        memcpy(to, tensor[i].data, tensor[i].bytes);
        to += tensor[i].bytes;
    }
    struct ha_fit *fit = NULL;
    struct ha_why why;
    if (ha_fit_parse(&fit, "test", file, 8 + (size_t)n + bytes, &why) != HA_OK) fail_msg("%s", why.text);
    return fit;
}
