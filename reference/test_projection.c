#include "harness/api/dataset.h"
#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"

#include <math.h>

/* A query that is computed from a layer's input is the one that the dataset holds, and a projection that is wrong in
 * one thing gives another. */

extern const struct ha_dataset ha_dataset_trace, ha_dataset_residual, ha_dataset_walk;

static struct ha_why why;

enum { Q_MAX = 512, X_MAX = 256 };

/* ---- what a projection can get wrong -------------------------------------------------- */

enum mistake {
    NO_MISTAKE,
    NO_BIAS,
    NO_NORM,
    NO_EPS,
    NO_ROTARY,
    OTHER_PAIRING,
    FEWER_TURNED,
    NO_ROPE_SCALE,
    NEXT_TOKEN,
    NEXT_LAYER,
    NEXT_INPUT,
    STORED, /* from here on of what is computed in binary32 alone */
    BF16_WQ = STORED,
    BF16_X,
    MISTAKES
};

static const char *const NAMES[] = {
    "none",           "no bias",      "no norm",       "no epsilon", "no rotary position",
    "other pairing",  "fewer turned", "no rope_scale", "next token", "next layer's W_Q",
    "next layer's x", "W_Q in bf16",  "x in bf16"
};

/* false: the projection has nothing that could be wrong in that way */
static bool make(enum mistake mistake, struct ha_projection *p)
{
    const struct ha_projection right = *p;
    switch (mistake) {
    case NO_BIAS: p->bias = NULL; return right.bias;
    case NO_NORM: p->norm = NULL; return right.norm;
    case NO_EPS: p->norm_eps = 0; return right.norm;
    case NO_ROTARY: p->inv_freq = NULL; return right.inv_freq;
    case OTHER_PAIRING: p->adjacent = !p->adjacent; return right.inv_freq;
    case FEWER_TURNED: p->rotary -= 2; return right.inv_freq;
    case NO_ROPE_SCALE: p->rope_scale = 1; return right.inv_freq && right.rope_scale != 1;
    case NEXT_TOKEN: return right.inv_freq;
    default: return true;
    }
}

struct source {
    const struct ha_dataset *dataset;
    struct ha_source *of;
    struct ha_shape shape;
    size_t first, tokens, stride; /* the tokens that are looked at; with a mistake, every fourth of them */
};

/* The largest |computed - held| / |held| of a head's query; NAN: the mistake cannot be made. */
static double deviation(const struct source *s, enum mistake mistake)
{
    const size_t d = s->shape.head_dim, heads = s->shape.q_heads, layers = s->shape.layers;
    double worst = 0, q[Q_MAX];
    float x[X_MAX], held[Q_MAX];
    assert_true(heads * d <= Q_MAX && s->shape.model_dim <= X_MAX);
    for (size_t layer = 0; layer < layers; layer++) {
        struct ha_projection p = s->dataset->projection(s->of, mistake == NEXT_LAYER ? (layer + 1) % layers : layer);
        if (!make(mistake, &p)) return (double)NAN;
        for (size_t token = s->first; token < s->tokens; token += s->stride * (mistake ? 4 : 1)) {
            s->dataset->input(s->of, 0, mistake == NEXT_INPUT ? (layer + 1) % layers : layer, token, x);
            ha_projection_query(&p, heads, d, s->shape.model_dim, x, token + (mistake == NEXT_TOKEN), q, NULL);
            for (size_t head = 0; head < heads; head++) {
                double off = 0, norm = 0;
                s->dataset->query(s->of, 0, layer, head, token, held);
                for (size_t i = 0; i < d; i++) {
                    const double want = (double)held[i], e = q[head * d + i] - want;
                    off += e * e;
                    norm += want * want;
                }
                const double ratio = sqrt(off / norm);
                worst = ratio <= worst ? worst : ratio;
            }
        }
    }
    return worst;
}

/* The text of datasets/README.md in plain binary32. */
static void in_binary32(const struct ha_projection *p, const struct ha_shape *s, const float *x, size_t token, float *q)
{
    const size_t d = s->head_dim;
    for (size_t i = 0; i < s->q_heads * d; i++) {
        q[i] = 0;
        for (size_t j = 0; j < s->model_dim; j++) q[i] += p->wq[i * s->model_dim + j] * x[j];
        if (p->bias) q[i] += p->bias[i];
    }
    for (size_t h = 0; h < s->q_heads; h++) {
        float *one = q + h * d, squares = 0;
        for (size_t i = 0; i < d; i++) squares += one[i] * one[i];
        for (size_t i = 0; p->norm && i < d; i++)
            one[i] = one[i] * (1 / sqrtf(squares / (float)d + p->norm_eps)) * p->norm[i];
        for (size_t j = 0; p->inv_freq && j < p->rotary / 2; j++) {
            const double angle = (double)token * (double)p->inv_freq[j];
            const float c = (float)cos(angle) * p->rope_scale, by = (float)sin(angle) * p->rope_scale;
            float *a = one + (p->adjacent ? 2 * j : j), *b = a + (p->adjacent ? 1 : p->rotary / 2), before = *a;
            *a = before * c - *b * by;
            *b = *b * c + before * by;
        }
    }
}

static bool round_all(float *x, size_t n)
{
    bool changed = false;
    for (size_t i = 0; i < n; i++) {
        const float before = x[i];
        x[i] = ha_round(x[i], HA_BF16);
        changed |= x[i] != before;
    }
    return changed;
}

/* The largest error over its bound of a query in binary32; NAN: the mistake changes nothing that is looked at. */
static double over_bound(const struct source *s, enum mistake mistake)
{
    const size_t d = s->shape.head_dim, heads = s->shape.q_heads, layers = s->shape.layers, dim = s->shape.model_dim;
    double worst = 0, want[Q_MAX], bound[Q_MAX];
    float x[X_MAX], got[Q_MAX];
    bool made = false;
    for (size_t layer = 0; layer < layers; layer++) {
        const struct ha_projection right = s->dataset->projection(s->of, layer);
        struct ha_projection p = s->dataset->projection(s->of, mistake == NEXT_LAYER ? (layer + 1) % layers : layer);
        float *wq = test_malloc(heads * d * dim * sizeof *wq);
        memcpy(wq, p.wq, heads * d * dim * sizeof *wq);
        p.wq = wq;
        made |= mistake < STORED ? make(mistake, &p) : mistake == BF16_WQ && round_all(wq, heads * d * dim);
        for (size_t token = s->first; token < s->tokens; token += s->stride * (mistake ? 4 : 1)) {
            s->dataset->input(s->of, 0, layer, token, x);
            ha_projection_query(&right, heads, d, dim, x, token, want, bound);
            if (mistake == NEXT_INPUT) s->dataset->input(s->of, 0, (layer + 1) % layers, token, x);
            if (mistake == BF16_X) made |= round_all(x, dim);
            in_binary32(&p, &s->shape, x, token + (mistake == NEXT_TOKEN), got);
            for (size_t i = 0; i < heads * d; i++) {
                const double ratio = fabs((double)got[i] - want[i]) / bound[i];
                worst = ratio <= worst ? worst : ratio;
            }
        }
        test_free(wq);
    }
    return made ? worst : (double)NAN;
}

/* Right within the bound, and wrong beyond it with each mistake that can be made of the file; the same of what binary32
 * gives within what it may be off by. */
static void judge(const struct source *s, const char *what, double bound)
{
    for (enum mistake m = 0; m < MISTAKES; m++) {
        const double ratio = over_bound(s, m);
        if (!(isnan(ratio) ? m != NO_MISTAKE : m == NO_MISTAKE ? ratio <= 1 : ratio > 1))
            fail_msg("%s: mistake '%s' in binary32: error over bound %g", what, NAMES[m], ratio);
        if (m >= STORED) continue;
        const double got = deviation(s, m);
        if (m != NO_MISTAKE && isnan(got)) continue;
        if (!(m == NO_MISTAKE ? got <= bound : got > bound))
            fail_msg("%s: mistake '%s': off by %g, the bound is %g", what, NAMES[m], got, bound);
    }
}

/* ---- what a projection may have, and need not ------------------------------------------ */

enum { LAYERS = 2, HEADS = 2, DIM = 16, MODEL = 24 };
static struct {
    struct ha_projection projection;
    float wq[LAYERS][HEADS * DIM * MODEL], bias[LAYERS][HEADS * DIM], norm[DIM], inv_freq[DIM / 2];
} made;

static struct ha_projection made_projection(struct ha_source *s, size_t layer)
{
    struct ha_projection p = made.projection;
    p.wq = made.wq[layer];
    if (p.bias) p.bias = made.bias[layer];
    return p;
}
static void made_input(struct ha_source *s, size_t seq, size_t layer, size_t token, float *x)
{
    ha_rng_normals(3, layer, token * MODEL, MODEL, x);
}
static void made_query(struct ha_source *s, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    static const struct ha_shape shape = { .q_heads = HEADS, .head_dim = DIM, .model_dim = MODEL };
    const struct ha_projection p = made_projection(s, layer);
    float x[MODEL], all[HEADS * DIM];
    made_input(s, seq, layer, token, x);
    in_binary32(&p, &shape, x, token, all);
    memcpy(q, all + head * DIM, DIM * sizeof *q);
}

TEST(test_kinds)
{
    static const struct ha_dataset of = { .projection = made_projection, .input = made_input, .query = made_query };
    const struct source s = { .dataset = &of,
                              .first = 10,
                              .tokens = 40,
                              .stride = 5,
                              .shape = { .layers = LAYERS, .q_heads = HEADS, .head_dim = DIM, .model_dim = MODEL } };
    ha_rng_normals(4, 0, 0, LAYERS * HEADS * DIM * MODEL, made.wq[0]);
    ha_rng_normals(4, 1, 0, LAYERS * HEADS * DIM, made.bias[0]);
    for (size_t i = 0; i < DIM; i++) made.norm[i] = 1 + (float)i / DIM;
    for (size_t j = 0; j < DIM / 2; j++) made.inv_freq[j] = 1.5f / (float)(j + 1);
    for (unsigned bits = 0; bits < 16; bits++)
        for (size_t rotary = 0; rotary <= DIM; rotary += rotary ? 4 : 12) {
            char what[64];
            made.projection = (struct ha_projection){ .bias = bits & 1 ? made.bias[0] : NULL,
                                                      .norm = bits & 2 ? made.norm : NULL,
                                                      .norm_eps = 0.125f,
                                                      .inv_freq = rotary ? made.inv_freq : NULL,
                                                      .rotary = rotary,
                                                      .adjacent = bits & 4,
                                                      .rope_scale = bits & 8 ? 1.25f : 1 };
            snprintf(what, sizeof what, "kind %#x, rotary %zu", bits, rotary);
            judge(&s, what, 1e-6);
        }
}

/* ---- the published traces ------------------------------------------------------------- */

/* They are stored in binary16, whose roundings are of 2^-11: 3.5e-4 at most over all tokens. */
TEST(test_published)
{
    static const char *const names[] = { "english", "code", "deep" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct source s = {
            .dataset = &ha_dataset_trace, .first = 1792, .tokens = 2048, .stride = HA_SANITIZED ? 85 : 17
        };
        s.shape = (struct ha_shape){ .batch = 1, .dtype = HA_F16, .ctx = { 1792 }, .q_len = 1, .steps = 256 };
        if (ha_dataset_trace.open(&ha_dataset_trace, &s.of, &s.shape, 2048, 1, names[i], &why) != HA_OK)
            fail_msg("%s", why.text);
        judge(&s, names[i], 5e-4);
        ha_dataset_trace.close(s.of);
    }
}

/* ---- residual, walk ------------------------------------------------------------------------- */

/* W_Q x is exact there: what the dataset holds is that, rounded to the type. */
static void try_generated(const struct ha_dataset *dataset)
{
    for (enum ha_dtype dtype = 0; (int)dtype < HA_DTYPE_COUNT; dtype++) {
        struct source s = { .dataset = dataset, .first = 0, .tokens = 20, .stride = 3 };
        s.shape = (struct ha_shape){ .layers = 3,
                                     .batch = 1,
                                     .q_heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = 32,
                                     .model_dim = 96,
                                     .dtype = dtype,
                                     .ctx = { 20 },
                                     .q_len = 1,
                                     .steps = 1 };
        if (dataset->open(dataset, &s.of, &s.shape, 21, 1, NULL, &why) != HA_OK) fail_msg("%s", why.text);
        judge(&s, dataset->name, ha_dtype_unit(dtype));
        dataset->close(s.of);
    }
}

TEST(test_generated)
{
    try_generated(&ha_dataset_residual);
    try_generated(&ha_dataset_walk);
}

/* ---- the output projection --------------------------------------------------------------- */

/* Two heads of two numbers, and three rows: worked by hand, in numbers whose squares and sums are exact. */
TEST(test_output)
{
    static const float wo[3][4] = { { 1, 2, 3, 4 }, { -1, 0, 5, 2 }, { 2, -3, 0, 1 } }, got[4] = { 3, 1, 4, 1 };
    static const double o[4] = { 1, 1, 2, 3 };
    /* got - o = (2, 0, 2, -2), of which W_O makes (0, 4, 2); of o (21, 15, 2) */
    static const struct {
        size_t first, rows;
        struct ha_projected want;
    } each[] = { { 0, 3, { 20, 670 } }, { 0, 1, { 0, 441 } }, { 1, 2, { 20, 229 } }, { 2, 0, { 0, 0 } } };
    const struct ha_projection p = { .wo = wo[0] };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        const struct ha_projected is = ha_projection_off(&p, 4, each[i].first, each[i].rows, got, o);
        if (!(is.diff2 == each[i].want.diff2 && is.norm2 == each[i].want.norm2))
            fail_msg("rows %zu and %zu more: %g and %g, not %g and %g", each[i].first, each[i].rows, is.diff2, is.norm2,
                     each[i].want.diff2, each[i].want.norm2);
    }
    const float broken[4] = { 3, NAN, 4, 1 };
    assert_true(isnan(ha_projection_off(&p, 4, 0, 3, broken, o).diff2));
}
