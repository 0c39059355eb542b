#include "harness/api/dataset.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "harness/base/test.h"

#include <float.h>
#include <math.h>

extern const struct ha_dataset ha_dataset_iid, ha_dataset_sinks, ha_dataset_needle, ha_dataset_drift,
    ha_dataset_residual, ha_dataset_walk, ha_dataset_adversarial, ha_dataset_again, ha_dataset_near, ha_dataset_jump,
    ha_dataset_one_token;

static const struct ha_dataset *const all[] = {
    &ha_dataset_iid,      &ha_dataset_sinks, &ha_dataset_needle,      &ha_dataset_drift,
    &ha_dataset_residual, &ha_dataset_walk,  &ha_dataset_adversarial,
};
enum { ALL = sizeof all / sizeof *all };

/* "small" leaves out: of random access and of sinks half the layers, three quarters of the needles' tokens,
 * of the widest inputs two types, of walk four layers and most tokens,
 * and of adversarial the second round over its patterns. Every function of every dataset runs in both. */

/* ---- tools ---------------------------------------------------------------------------- */

static struct ha_shape shape_of(size_t tokens, size_t head_dim, enum ha_dtype dtype)
{
    return (struct ha_shape){
        .layers = 8, .batch = 1, .q_heads = 8, .kv_heads = 4, .head_dim = head_dim, .dtype = dtype, .ctx = { tokens }
    };
}

struct data {
    const struct ha_dataset *set;
    struct ha_shape shape;
    struct ha_source *src;
};

static struct data data_open(const struct ha_dataset *set, struct ha_shape shape, size_t total, uint64_t seed)
{
    struct data x = { set, shape, NULL };
    struct ha_why why = { "" };
    if (set->open(set, &x.src, &x.shape, total, seed, NULL, &why) != HA_OK) fail_msg("%s", why.text);
    return x;
}

static void data_close(struct data *x) { x->set->close(x->src); }

/* K and V of one KV head as floats, and a query of it with binary64 scores and weights. */
struct view {
    const struct data *of;
    size_t layer, n, d;
    double *score, *weight;
    float *k, *v, *q;
};

static void *need(size_t bytes)
{
    void *p = malloc(bytes);
    assert_non_null(p);
    return p;
}

/* q is the end of one allocation, so that a sanitizer sees what is written behind it. */
static struct view view_open(const struct data *x, size_t layer, size_t kv_head)
{
    struct view w = { .of = x, .layer = layer, .n = x->shape.ctx[0], .d = x->shape.head_dim };
    const size_t values = w.n * w.d;
    void *stored = need(values * ha_dtype_bytes(x->shape.dtype));
    w.score = need(2 * w.n * sizeof *w.score + (2 * values + w.d) * sizeof *w.k);
    w.weight = w.score + w.n;
    w.k = (float *)(w.weight + w.n);
    w.v = w.k + values;
    w.q = w.v + values;
    x->set->kv(x->src, 0, layer, kv_head, 0, w.n, stored, NULL);
    ha_load_row(stored, values, x->shape.dtype, w.k);
    x->set->kv(x->src, 0, layer, kv_head, 0, w.n, NULL, stored);
    ha_load_row(stored, values, x->shape.dtype, w.v);
    free(stored);
    return w;
}

static void view_ask(struct view *w, size_t q_head, size_t token)
{
    double max = -HUGE_VAL, sum = 0;
    w->of->set->query(w->of->src, 0, w->layer, q_head, token, w->q);
    for (size_t t = 0; t < w->n; t++) {
        const float *q = w->q, *k = w->k + t * w->d;
        double even = 0, odd = 0; /* two chains of additions at once */
        for (size_t j = 0; j < w->d; j += 2) {
            even += (double)q[j] * (double)k[j];
            odd += (double)q[j + 1] * (double)k[j + 1];
        }
        w->score[t] = (even + odd) * (double)w->of->shape.scale;
        max = fmax(max, w->score[t]);
    }
    for (size_t t = 0; t < w->n; t++) sum += w->weight[t] = exp(w->score[t] - max);
    for (size_t t = 0; t < w->n; t++) w->weight[t] /= sum;
}

static void view_close(struct view *w) { free(w->score); }

static double mass(const struct view *w, size_t first, size_t end)
{
    double sum = 0;
    for (size_t t = first; t < end; t++) sum += w->weight[t];
    return sum;
}

/* exp(entropy): how many equal keys would be as spread out */
static double effective_keys(const struct view *w)
{
    double entropy = 0;
    for (size_t t = 0; t < w->n; t++)
        if (w->weight[t] > 0) entropy -= w->weight[t] * log(w->weight[t]);
    return exp(entropy);
}

static size_t top(const struct view *w)
{
    size_t best = 0;
    for (size_t t = 1; t < w->n; t++)
        if (w->score[t] > w->score[best]) best = t;
    return best;
}

static double cosine(const float *a, const float *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t j = 0; j < n; j++) {
        ab += (double)a[j] * (double)b[j];
        aa += (double)a[j] * (double)a[j];
        bb += (double)b[j] * (double)b[j];
    }
    return ab / sqrt(aa * bb);
}

static void expect_between(double lo, double x, double hi, const char *what)
{
    if (!(lo <= x && x <= hi)) fail_msg("%s is %g, expected %g to %g", what, x, lo, hi);
}

/* ---- the same bits everywhere --------------------------------------------------------- */

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3; /* FNV-1a */
    return h;
}

enum { SOME = 37 };
/* every pattern of adversarial, every width of sinks, tokens beyond 2^32 */
static const struct {
    size_t seq, layer, kv_head, first;
} spots[] = {
    { 0, 0, 0, 0 },
    { 0, 0, 1, 1000 },
    { 1, 5, 2, 4090 },
    { 1, 6, 3, ((size_t)1 << 33) - 20 },
    { 1, 7, 0, 77 },
    { 0, 1, 3, 2222 },
    { 0, 0, 2, 620 /* 642 is a heavy hitter of sinks */ },
    { 1, 1, 1, 127 },
};

static uint64_t fingerprint(const struct data *of)
{
    const struct ha_shape *s = &of->shape;
    uint64_t h = 0xcbf29ce484222325;
    char k[SOME * 80 * 4], v[SOME * 80 * 4];
    float q[80], x[96];
    size_t bytes = SOME * s->head_dim * ha_dtype_bytes(s->dtype);
    for (size_t i = 0; i < sizeof spots / sizeof *spots; i++) {
        of->set->kv(of->src, spots[i].seq, spots[i].layer, spots[i].kv_head, spots[i].first, SOME, k, v);
        h = hash(hash(h, k, bytes), v, bytes);
        for (size_t t = spots[i].first; t < spots[i].first + 3; t++) {
            of->set->query(of->src, spots[i].seq, spots[i].layer, 2 * spots[i].kv_head + 1, t, q);
            h = hash(h, q, s->head_dim * sizeof *q);
            if (!of->set->input) continue;
            of->set->input(of->src, spots[i].seq, spots[i].layer, t, x);
            h = hash(h, x, s->model_dim * sizeof *x);
        }
        if (of->set->projection)
            h = hash(h, of->set->projection(of->src, spots[i].layer).wq,
                     s->q_heads * s->head_dim * s->model_dim * sizeof(float));
    }
    return h;
}

static struct ha_shape golden_shape(enum ha_dtype dtype)
{
    struct ha_shape s = shape_of(3000, 80, dtype);
    s.batch = 2;
    s.ctx[1] = 5000;
    s.model_dim = 96;
    return s;
}

/* Made once by this program. A change here changes every published result: the data are not the same data. */
static const uint64_t golden[ALL][3] = {
    { 0x35489502542dace4, 0x786c8b0abe46624b, 0x2f11308732fcf973 },
    { 0x745ea8d4baf42d00, 0x476c869146beb229, 0x1841f5aec80bb813 },
    { 0xa009606329e31145, 0xf94711099ccf5019, 0xac5843a929ac346d },
    { 0x41a0ae76013562ff, 0xe5e3d4925a416458, 0x5ef784621cf469c6 },
    { 0x7ad58a6d7cca3db1, 0xc41d6058f816e8ed, 0x1d69745e7b2a23d8 },
    { 0x11cc41735951dda0, 0xf9217d4a503d1a4a, 0xb75fa2f550e558a9 },
    { 0x9923e99217853ae6, 0x4a8461676ce35393, 0x32790662791208f5 },
};

TEST(test_golden)
{
    bool ok = true;
    for (size_t i = 0; i < ALL; i++)
        for (size_t j = 0; j < 3; j++) {
            struct data x = data_open(all[i], golden_shape((enum ha_dtype)j), (size_t)1 << 34, 0x123456789abcdef0);
            const uint64_t got = fingerprint(&x);
            data_close(&x);
            if (got != golden[i][j])
                printf("%s %s: 0x%016llx\n", all[i]->name, ha_dtype_name((enum ha_dtype)j), (unsigned long long)got);
            ok = ok && got == golden[i][j];
        }
    assert_true(ok);
}

TEST(test_seed_and_place_matter)
{
    for (size_t i = 0; i < ALL; i++) {
        struct data a = data_open(all[i], golden_shape(HA_F16), 6000, 1), b = data_open(all[i], a.shape, 6000, 2);
        assert_true(fingerprint(&a) != fingerprint(&b));
        uint16_t row[5][80];
        float q[5][80];
        /* the last three are of one pattern of adversarial, the first */
        static const size_t seq[5] = { 0, 1, 0, 0, 0 }, layer[5] = { 0, 0, 2, 4, 0 };
        for (size_t j = 0; j < 5; j++) {
            struct ha_source *src = j == 4 ? b.src : a.src;
            all[i]->kv(src, seq[j], layer[j], 0, 100, 1, row[j], NULL);
            all[i]->query(src, seq[j], layer[j], 0, 2990, q[j]);
            for (size_t other = 0; other < j; other++) {
                assert_memory_not_equal(row[j], row[other], sizeof row[j]);
                assert_memory_not_equal(q[j], q[other], sizeof q[j]);
            }
        }
        all[i]->query(a.src, 0, 0, 1, 2990, q[1]);
        assert_memory_not_equal(q[0], q[1], sizeof q[0]);
        data_close(&a);
        data_close(&b);
    }
}

/* Any cut of the tokens gives the same rows. */
TEST(test_random_access)
{
    enum { N = 200, D = 96 };
    for (size_t i = 0; i < ALL; i++)
        for (size_t layer = 0; layer < (test_small ? 1 : 2); layer++)
            for (size_t head = 0; head < 4; head++) {
                struct data x = data_open(all[i], shape_of(1200, D, HA_BF16), 1300, 7);
                static uint16_t k[N][D], v[N][D], k1[N][D], v1[N][D];
                all[i]->kv(x.src, 0, layer, head, 950, N, k, v);
                for (size_t t = N; t-- > 0;) {
                    all[i]->kv(x.src, 0, layer, head, 950 + t, 1, k1[t], NULL);
                    all[i]->kv(x.src, 0, layer, head, 950 + t, 1, NULL, v1[t]);
                }
                assert_memory_equal(k, k1, sizeof k);
                assert_memory_equal(v, v1, sizeof v);
                data_close(&x);
            }
}

struct reading {
    struct data data;
    uint64_t got[8];
};

static void read_task(void *arg, size_t task, size_t worker)
{
    struct reading *r = arg;
    r->got[task] = fingerprint(&r->data);
}

TEST(test_threads)
{
    struct ha_pool *pool;
    assert_int_equal(ha_pool_create(&pool, HA_TEAM_DEFAULT, 4, NULL), HA_OK);
    for (size_t i = 0; i < ALL; i++) {
        struct reading r = { .data = data_open(all[i], golden_shape(HA_F16), (size_t)1 << 34, 5) };
        const uint64_t want = fingerprint(&r.data);
        ha_pool_run(pool, "read", 8, read_task, &r);
        for (size_t j = 0; j < 8; j++) assert_true(r.got[j] == want);
        data_close(&r.data);
    }
    ha_pool_destroy(pool);
}

/* Queries are exact in the dtype; nothing is infinite; scores are finite in binary32. */
TEST(test_values_fit)
{
    for (size_t i = 0; i < ALL; i++)
        for (size_t j = 0; j < 3; j++) {
            struct data x = data_open(all[i], shape_of(300, 64, (enum ha_dtype)j), 301, 3);
            assert_true(x.shape.scale == 0.125f);
            for (size_t layer = 0; layer < 2; layer++)
                for (size_t kv_head = 0; kv_head < 4; kv_head++) {
                    struct view w = view_open(&x, layer, kv_head);
                    for (size_t e = 0; e < w.n * w.d; e++) assert_true(isfinite(w.k[e]) && isfinite(w.v[e]));
                    for (size_t head = 2 * kv_head; head < 2 * kv_head + 2; head++) {
                        view_ask(&w, head, 300);
                        for (size_t e = 0; e < w.d; e++) assert_true(w.q[e] == ha_round(w.q[e], x.shape.dtype));
                        for (size_t t = 0; t < w.n; t++) {
                            float sum = 0, squares = 0;
                            for (size_t e = 0; e < w.d; e++) {
                                sum += fabsf(w.q[e] * w.k[t * w.d + e]);
                                squares += w.k[t * w.d + e] * w.k[t * w.d + e];
                            }
                            assert_true(isfinite(sum) && isfinite(squares) && sum > 0);
                        }
                    }
                    view_close(&w);
                }
            data_close(&x);
        }
}

/* ---- what each promises --------------------------------------------------------------- */

TEST(test_iid)
{
    struct data x = data_open(&ha_dataset_iid, shape_of(4096, 128, HA_F32), 4097, 11);
    struct view w = view_open(&x, 3, 2);
    view_ask(&w, 5, 4096);
    const float *const part[] = { w.k, w.v };
    for (size_t i = 0; i < 2; i++) {
        const size_t n = w.n * w.d;
        double mean = 0, variance = 0, fourth = 0, lag[3] = { 0 };
        for (size_t e = 0; e < n; e++) mean += (double)part[i][e] / (double)n;
        for (size_t e = 0; e < n; e++) {
            const double square = ((double)part[i][e] - mean) * ((double)part[i][e] - mean);
            variance += square / (double)n;
            fourth += square * square / (double)n;
        }
        expect_between(-0.006, mean, 0.006, "mean");
        expect_between(0.99, variance, 1.01, "variance");
        expect_between(2.75, fourth / (variance * variance), 3.05, "kurtosis");
        for (size_t e = w.d; e < n; e++) {
            lag[0] += (double)part[i][e] * (double)part[i][e - 1];
            lag[1] += (double)part[i][e] * (double)part[i][e - w.d];
            lag[2] += (double)w.k[e] * (double)w.v[e];
        }
        for (size_t l = 0; l < 3; l++) expect_between(-0.008, lag[l] / (double)n, 0.008, "correlation");
    }
    double scores = 0;
    for (size_t t = 0; t < w.n; t++) scores += w.score[t] * w.score[t];
    expect_between(0.6, scores / (double)w.n, 1.6, "score variance");
    expect_between(1000, effective_keys(&w), 4096, "effective keys");
    view_close(&w);
    data_close(&x);
}

static void expect_sinks(const struct view *w)
{
    double small = 0, plain = 0;
    for (size_t e = 0; e < 4 * w->d; e++) {
        small += fabs((double)w->v[e]);
        plain += fabs((double)w->v[e + 4 * w->d]);
    }
    expect_between(0.01, small / plain, 0.06, "size of the sinks' values");
}

TEST(test_sinks)
{
    enum { N = 4096 };
    const size_t layers = test_small ? 4 : 8;
    double sink[4] = { 0 }, near[4] = { 0 }, heavy[4] = { 0 }, spread[4] = { 0 };
    struct data x = data_open(&ha_dataset_sinks, shape_of(N, 128, HA_F16), N + 1, 21);
    for (size_t layer = 0; layer < layers; layer++)
        for (size_t kv_head = 0; kv_head < 2; kv_head++) {
            struct view w = view_open(&x, layer, kv_head);
            expect_sinks(&w);
            for (size_t head = 2 * kv_head; head < 2 * kv_head + 2; head++) {
                view_ask(&w, head, N - 1);
                sink[head] += mass(&w, 0, 4) / (double)layers;
                near[head] += mass(&w, N - 256, N) / (double)layers;
                spread[head] += log(effective_keys(&w)) / (double)layers;
                /* outside sinks and neighbours: the best 4 */
                for (size_t i = 0; i < 4; i++) {
                    size_t best = 4;
                    for (size_t t = 5; t < N - 1024; t++)
                        if (w.weight[t] > w.weight[best]) best = t;
                    heavy[head] += w.weight[best] / (double)layers;
                    w.weight[best] = 0;
                }
            }
            view_close(&w);
        }
    for (size_t i = 0; i < 4; i++)
        print_message("sinks: head kind %zu: sink %.3f, near %.3f, heavy %.3f, effective keys %.1f\n", i, sink[i],
                      near[i], heavy[i], exp(spread[i]));
    expect_between(0, sink[0], 0.2, "flat head: sink mass");
    expect_between(1000, exp(spread[0]), N, "flat head: effective keys");
    expect_between(0.7, sink[1], 0.995, "sink head: sink mass");
    expect_between(0.5, near[2], 1, "local head: mass of the last 256 tokens");
    expect_between(0, near[0], 0.2, "flat head: mass of the last 256 tokens");
    expect_between(0.4, heavy[3], 1, "peaked head: mass of four tokens");
    expect_between(1, exp(spread[3]), 60, "peaked head: effective keys");
    data_close(&x);
}

TEST(test_needle)
{
    static const size_t dims[] = { 64, 80, 96, 128, 256 };
    const size_t n = test_small ? 1024 : 4096;
    size_t depth[2][8], late = 0, differ = 0;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (size_t seed = 0; seed < 2; seed++) {
            struct data x = data_open(&ha_dataset_needle, shape_of(n, dims[i], HA_F16), n + 4, 31 + seed);
            for (size_t kv_head = 0; kv_head < 4; kv_head++) {
                struct view w = view_open(&x, 2, kv_head);
                for (size_t head = 2 * kv_head; head < 2 * kv_head + 2; head++) {
                    float q[256];
                    view_ask(&w, head, n + 2);
                    const size_t best = depth[seed][head] = top(&w);
                    expect_between(0.99, w.weight[best], 1, "mass of the needle");
                    expect_between(16, w.score[best], 24, "score of the needle");
                    memcpy(q, w.q, w.d * sizeof *q);
                    view_ask(&w, head, n + 3);
                    assert_int_equal(top(&w), best);
                    assert_memory_not_equal(w.q, q, w.d * sizeof *q);
                    late += best > n / 2;
                    differ += seed && depth[1][head] != depth[0][head];
                }
                view_close(&w);
            }
            data_close(&x);
        }
    expect_between(20, (double)late, 60, "needles in the second half, of 80");
    assert_true(differ >= 38);
}

TEST(test_drift)
{
    enum { N = 500, D = 128 };
    struct data x = data_open(&ha_dataset_drift, shape_of(100, D, HA_F16), 600, 41);
    for (size_t head = 0; head < 8; head++) {
        static float q[N][D];
        double mean = 0, far = 0;
        for (size_t t = 0; t < N; t++) ha_dataset_drift.query(x.src, 0, 1, head, 100 + t, q[t]);
        for (size_t t = 1; t < N; t++) {
            double c = cosine(q[t], q[t - 1], D);
            expect_between(0.98, c, 0.996, "cosine between neighbours");
            mean += c / (N - 1);
        }
        for (size_t t = 22; t < N; t++) far += cosine(q[t], q[t - 22], D) / (N - 22);
        expect_between(0.987, mean, 0.993, "mean cosine");
        expect_between(-0.1, far, 0.1, "cosine at 22 tokens");
        expect_between(0.8, sqrt(cosine(q[0], q[0], D)), 1.2, "self cosine");
        double norm = 0;
        for (size_t j = 0; j < D; j++) norm += (double)q[0][j] * (double)q[0][j];
        expect_between(0.75, sqrt(norm / D) / (double)(1 + head % 4), 1.25, "length of the query");
    }
    data_close(&x);
}

/* Mean cosines of queries 1 and 16 tokens apart, and what sequences have in common. */
TEST(test_again)
{
    enum { N = 96, D = 128 };
    static const struct {
        const struct ha_dataset *of;
        double next, far; /* of tokens in other runs */
        bool shared;      /* by sequences */
    } cases[] = { { &ha_dataset_again, 1, 1, false },
                  { &ha_dataset_near, 0.8, 0.8, false },
                  { &ha_dataset_jump, 0.98 * 90 / 95, 0, false },
                  { &ha_dataset_one_token, 1, 1, true } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ha_shape s = shape_of(100, D, HA_F32);
        s.batch = 2;
        s.ctx[1] = 100;
        struct data x = data_open(cases[i].of, s, 200, 41);
        static float q[N][D], other[D], k[2][100][D];
        double next = 0, far = 0;
        for (size_t t = 0; t < N; t++) cases[i].of->query(x.src, 0, 1, 2, t, q[t]);
        for (size_t t = 1; t < N; t++) next += cosine(q[t], q[t - 1], D) / (N - 1);
        for (size_t t = 16; t < N; t++) far += cosine(q[t], q[t - 16], D) / (N - 16);
        expect_between(cases[i].next - 0.02, next, cases[i].next + 0.02, "cosine of neighbours");
        expect_between(cases[i].far - 0.1, far, cases[i].far + 0.1, "cosine at 16 tokens");
        cases[i].of->query(x.src, 1, 1, 2, 0, other);
        assert_true((memcmp(q[0], other, sizeof other) == 0) == cases[i].shared);
        size_t differ = 0, which = 0;
        for (size_t seq = 0; seq < 2; seq++) cases[i].of->kv(x.src, seq, 1, 1, 40, 100, k[seq], NULL);
        for (size_t t = 0; t < 100; t++)
            if (memcmp(k[0][t], k[1][t], sizeof k[0][t]) != 0) which = t, differ++;
        assert_int_equal(differ, cases[i].shared ? 1 : 100);
        if (cases[i].shared) assert_true(cosine(q[0], k[1][which], D) > 0.99 && which + 40 == 100);
        data_close(&x);
    }
}

/* q = round(W_Q x) whatever the order of the sum, and the layer before predicts it. */
static void expect_inputs(const struct ha_dataset *set)
{
    enum { D = 64, BIGGEST = 8192 };
    static const size_t widths[] = { 0, 100, 1024, BIGGEST };
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < (test_small && i == 3 ? 1 : 3); j++) {
            struct ha_shape s = shape_of(100, D, (enum ha_dtype)j);
            s.q_heads = 2;
            s.kv_heads = 1;
            s.layers = i == 3 ? 2 : 9;
            s.model_dim = widths[i];
            struct data of = data_open(set, s, 200, 51);
            const size_t n = of.shape.model_dim;
            assert_int_equal(n, widths[i] ? widths[i] : 256);
            static float x[BIGGEST], before[BIGGEST];
            double spread = 0, predicted_cosine = 0;
            for (size_t layer = 0; layer < s.layers; layer++) {
                float q[D], ahead[D];
                const float *w = set->projection(of.src, layer).wq + D * n;
                set->input(of.src, 0, layer, 150, x);
                set->query(of.src, 0, layer, 1, 150, q);
                for (size_t r = 0; r < D; r++, w += n) {
                    float forward = 0, backward = 0, predicted = 0;
                    double exact = 0, magnitude = 0;
                    for (size_t c = 0; c < n; c++) {
                        forward += w[c] * x[c];
                        backward += w[n - 1 - c] * x[n - 1 - c];
                        predicted += w[c] * before[c];
                        exact += (double)w[c] * (double)x[c];
                        magnitude += fabs((double)w[c] * (double)x[c]);
                    }
                    assert_true(forward == backward && (double)forward == exact);
                    assert_true(q[r] == ha_round(forward, s.dtype));
                    assert_true(magnitude > 0);
                    ahead[r] = predicted;
                    spread += (double)q[r] * (double)q[r] / (double)(D * s.layers);
                }
                if (layer) {
                    expect_between(0.92, cosine(x, before, n), 0.99, "cosine between layer inputs");
                    double c = cosine(q, ahead, D);
                    expect_between(0.88, c, 1, "cosine of the predicted query");
                    predicted_cosine += c / (double)(s.layers - 1);
                }
                memcpy(before, x, sizeof x);
            }
            expect_between(1.2, sqrt(spread), 4, "deviation of the query");
            expect_between(0.93, predicted_cosine, 0.98, "mean cosine of the predicted query");
            data_close(&of);
        }
}

TEST(test_inputs)
{
    expect_inputs(&ha_dataset_residual);
    expect_inputs(&ha_dataset_walk);
}

/* the blocks of 32 tokens that hold the most mass, a tenth of all; returns what they hold */
enum { BLOCK = 32, BLOCKS = 64 };
static double top_blocks(const struct view *w, bool top[BLOCKS])
{
    double held[BLOCKS], sum = 0;
    for (size_t b = 0; b < BLOCKS; b++) {
        held[b] = mass(w, b * BLOCK, (b + 1) * BLOCK < w->n ? (b + 1) * BLOCK : w->n);
        top[b] = false;
    }
    for (size_t i = 0; i < w->n / BLOCK / 10; i++) {
        size_t best = 0;
        for (size_t b = 1; b < BLOCKS; b++)
            if (held[b] > held[best]) best = b;
        sum += held[best];
        held[best] = -1;
        top[best] = true;
    }
    return sum;
}

/* W x, the same bits in both directions and in binary64 */
static void product(const float *w, const float *x, size_t rows, size_t n, float *out)
{
    for (size_t r = 0; r < rows; r++, w += n) {
        float forward = 0, backward = 0;
        double exact = 0;
        for (size_t c = 0; c < n; c++) {
            forward += w[c] * x[c];
            backward += w[n - 1 - c] * x[n - 1 - c];
            exact += (double)w[c] * (double)x[c];
        }
        assert_true(forward == backward && (double)forward == exact);
        out[r] = forward;
    }
}

/* What is said of walk: means over layers, heads and tokens, of each kind of head and of all. */
TEST(test_walk)
{
    enum { N = BLOCK * BLOCKS, D = 64, WIDTH = 256, KINDS = 4 };
    enum { SINK, ENDS, KEYS, TOP, CHANGED, NEIGHBOURS, PREDICTED, FIGURES };
    static const struct {
        const char *name;
        double range[KINDS + 1][2]; /* streaming, retrieval, flat, sink, all heads */
    } promised[FIGURES] = {
        [SINK] = { "mass of the sinks", { { 0.02, 0.5 }, { 0, 0.1 }, { 0, 0.02 }, { 0.9, 1 }, { 0, 1 } } },
        [ENDS] = { "mass of the sinks and of the last 256 tokens",
                   { { 0.9, 1 }, { 0, 0.3 }, { 0.05, 0.2 }, { 0.9, 1 }, { 0, 1 } } },
        [KEYS] = { "log of effective keys", { { 2, 4.5 }, { 2, 5 }, { 7.1, 7.6 }, { 1, 2 }, { 0, 8 } } },
        [TOP] = { "mass of the top blocks", { { 0.97, 1 }, { 0.9, 1 }, { 0.15, 0.35 }, { 0.99, 1 }, { 0, 1 } } },
        [CHANGED] = { "top blocks that change",
                      { { 0, 0.2 }, { 0.01, 0.15 }, { 0, 0.2 }, { 0, 0.2 }, { 0.01, 0.15 } } },
        [NEIGHBOURS] = { "cosine of neighbouring queries",
                         { { 0.88, 0.95 }, { 0.88, 0.95 }, { 0.88, 0.95 }, { 0.88, 0.95 }, { 0.88, 0.95 } } },
        [PREDICTED] = { "cosine of predicted queries",
                        { { 0.93, 0.97 }, { 0.93, 0.97 }, { 0.93, 0.97 }, { 0.93, 0.97 }, { 0.93, 0.97 } } },
    };
    double sum[FIGURES][KINDS] = { 0 }, count[FIGURES][KINDS] = { 0 };
    const size_t tokens = test_small ? 6 : 33;
    struct ha_shape shape = shape_of(N, D, HA_F16);
    shape.layers = test_small ? 2 : 6;
    shape.kv_heads = 2;
    struct data x = data_open(&ha_dataset_walk, shape, N, 1);
    struct view w;
    for (size_t layer = 0; layer < shape.layers; layer++)
        for (size_t head = 0; head < shape.q_heads; head++) {
            if (head % 4 == 0) w = view_open(&x, layer, head / 4);
            const float *wq = ha_dataset_walk.projection(x.src, layer).wq + head * D * WIDTH;
            bool top[2][BLOCKS] = { 0 };
            float q[D], before[D], input[WIDTH];
            for (size_t i = 0; i < tokens; i++) {
                double is[FIGURES], changed = 0;
                w.n = N - tokens + i + 1;
                view_ask(&w, head, w.n - 1);
                is[SINK] = mass(&w, 0, 4);
                is[ENDS] = is[SINK] + mass(&w, w.n - 256, w.n);
                is[KEYS] = log(effective_keys(&w));
                is[TOP] = top_blocks(&w, top[i % 2]);
                for (size_t b = 0; b < BLOCKS; b++) changed += top[i % 2][b] && !top[(i + 1) % 2][b];
                is[CHANGED] = i ? changed / (double)(w.n / BLOCK / 10) : (double)NAN;
                is[NEIGHBOURS] = i ? cosine(w.q, before, D) : (double)NAN;
                memcpy(before, w.q, sizeof before);
                ha_dataset_walk.input(x.src, 0, layer, w.n - 1, input);
                product(wq, input, D, WIDTH, q);
                for (size_t j = 0; j < D; j++) assert_true(w.q[j] == ha_round(q[j], HA_F16));
                if (layer) {
                    ha_dataset_walk.input(x.src, 0, layer - 1, w.n - 1, input);
                    product(wq, input, D, WIDTH, q);
                }
                is[PREDICTED] = layer ? cosine(w.q, q, D) : (double)NAN;
                for (size_t f = 0; f < FIGURES; f++)
                    if (!isnan(is[f])) {
                        sum[f][head % KINDS] += is[f];
                        count[f][head % KINDS]++;
                    }
            }
            expect_sinks(&w);
            if (head % 4 == 3) view_close(&w);
        }
    for (size_t f = 0; f < FIGURES; f++) {
        double of[KINDS + 1] = { 0 };
        for (size_t k = 0; k < KINDS; k++) {
            of[k] = sum[f][k] / count[f][k];
            of[KINDS] += of[k] / KINDS; /* there are as many heads of each kind */
        }
        print_message("walk: %s: streaming %.3f, retrieval %.3f, flat %.3f, sink %.3f, all %.3f\n", promised[f].name,
                      of[0], of[1], of[2], of[3], of[4]);
        for (size_t k = 0; k <= KINDS; k++)
            expect_between(promised[f].range[k][0], of[k], promised[f].range[k][1], promised[f].name);
    }
    data_close(&x);
}

TEST(test_adversarial)
{
    enum { N = 1000, TIES = 0, RISING, FALLING, OFFSET, CANCELLING, DOMINANT, ZERO, LARGE };
    for (size_t j = 0; j < 3; j++) {
        struct data x = data_open(&ha_dataset_adversarial, shape_of(N, 128, (enum ha_dtype)j), N + 10, 61);
        const bool narrow = j == HA_F16;
        for (size_t place = 0; place < (test_small ? 8 : 16); place++) {
            size_t pattern = place % 8;
            struct view w = view_open(&x, place / 4, place % 4);
            view_ask(&w, place % 4 * 2 + 1, N);
            double lo = HUGE_VAL, hi = -HUGE_VAL, largest_k = 0, largest_v = 0, ratio = 0, sum = 0;
            size_t distinct = 1, turns = 0;
            for (size_t t = 0; t < N; t++) {
                lo = fmin(lo, w.score[t]);
                hi = fmax(hi, w.score[t]);
                sum += w.score[t];
                if (t) {
                    distinct += w.score[t] != w.score[t - 1];
                    turns += pattern == RISING ? w.score[t] < w.score[t - 1] : w.score[t] > w.score[t - 1];
                }
            }
            for (size_t e = 0; e < N * w.d; e++) {
                largest_k = fmax(largest_k, fabs((double)w.k[e]));
                largest_v = fmax(largest_v, fabs((double)w.v[e]));
            }
            for (size_t c = 0; c < w.d; c++) {
                double o = 0, size = 0;
                for (size_t t = 0; t < N; t++) {
                    o += w.weight[t] * (double)w.v[t * w.d + c];
                    size += w.weight[t] * fabs((double)w.v[t * w.d + c]);
                }
                ratio += size > 0 ? fabs(o) / size / (double)w.d : 0;
            }
            switch (pattern) {
            case TIES:
                assert_true(lo == hi);
                for (size_t t = 1; t < N; t++) assert_memory_equal(w.k, w.k + t * w.d, w.d * sizeof *w.k);
                break;
            case RISING:
            case FALLING:
                assert_int_equal(turns, 0);
                expect_between(76, hi - lo, 81, "rise of the scores");
                expect_between(0.99 * N, (double)distinct, N, "distinct scores");
                assert_int_equal(top(&w), pattern == RISING ? N - 1 : 0);
                break;
            case OFFSET:
                expect_between(30000, lo, 36000, "least score");
                expect_between(2, hi - lo, 40, "spread of the scores");
                break;
            case CANCELLING:
                expect_between(0, ratio, 0.1, "what is left of V");
                expect_between(100, largest_v, 400, "largest V");
                break;
            case DOMINANT:
                expect_between(0.999, w.weight[top(&w)], 1, "mass of the dominant key");
                expect_between(30, hi - sum / N, 1000, "its lead");
                break;
            case ZERO: assert_true(largest_v == 0); break;
            case LARGE:
                expect_between(narrow ? 65000 : 0x1.f8p57, largest_k, narrow ? 65504 : 0x1p58, "largest K");
                expect_between(narrow ? 65000 : 0x1.f8p109, largest_v, narrow ? 65504 : 0x1p110, "largest V");
                expect_between(2e4, fmax(hi, -lo), 1e6, "largest score");
                break;
            default: fail();
            }
            view_close(&w);
        }
        data_close(&x);
    }
}

/* ---- what open refuses ---------------------------------------------------------------- */

static void expect_refused(const struct ha_dataset *d, struct ha_shape shape, const char *file, const char *reason)
{
    struct ha_source *src;
    struct ha_why why = { "" };
    assert_int_equal(d->open(d, &src, &shape, 200, 1, file, &why), HA_ERROR);
    assert_null(src);
    if (!strstr(why.text, reason) || !strstr(why.text, d->name))
        fail_msg("reason is '%s', expected '%s'", why.text, reason);
}

TEST(test_open_refuses)
{
    static const struct {
        size_t at, value; /* of a member of the shape */
        const char *reason;
    } wrong[] = {
        { offsetof(struct ha_shape, ctx), 201, "sequence 0 has 201 tokens, more than the total of 200" },
        { offsetof(struct ha_shape, layers), 0, "layers is 0" },
        { offsetof(struct ha_shape, batch), HA_BATCH_MAX + 1, "batch is 257" },
        { offsetof(struct ha_shape, kv_heads), 3, "not a multiple of 3" },
        { offsetof(struct ha_shape, kv_heads), 0, "KV heads is 0" },
        { offsetof(struct ha_shape, head_dim), 1025, "head_dim is 1025" },
    };
    const struct ha_shape good = shape_of(100, 64, HA_F16);
    for (size_t i = 0; i < ALL; i++) {
        struct ha_shape s = good;
        expect_refused(all[i], s, "file", "reads no file");
        for (size_t j = 0; j < sizeof wrong / sizeof *wrong; j++) {
            s = good;
            memcpy((char *)&s + wrong[j].at, &wrong[j].value, sizeof wrong[j].value);
            expect_refused(all[i], s, NULL, wrong[j].reason);
        }
        s = good;
        s.scale = NAN;
        expect_refused(all[i], s, NULL, "scale");
        s.scale = 0.5f;
        s.model_dim = 32;
        struct data x = data_open(all[i], s, 200, 1);
        assert_true(x.shape.scale == 0.5f);
        assert_int_equal(x.shape.model_dim, all[i]->input ? 32 : 0);
        data_close(&x);
    }
    struct ha_shape s = good;
    s.model_dim = 8193;
    expect_refused(&ha_dataset_residual, s, NULL, "up to 8192");
    s.model_dim = 8192;
    s.layers = 1000;
    expect_refused(&ha_dataset_residual, s, NULL, "lower model_dim");
    s.layers = SIZE_MAX / 2;
    expect_refused(&ha_dataset_residual, s, NULL, "lower model_dim");
}

TEST_MAIN
{
    if (HA_TSAN) cmocka_set_test_filter("test_threads"); /* in the others there is one thread, and no race */
    return test_all("tests", NULL, NULL);
}
