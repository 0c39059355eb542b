/* Thresholds, hard heads and their places, and what a fit learns for them, all by hand: deviations are of attention
 * whose weights are equal, so that outputs are means. */

#include "suites/parts/reuse.h"

#include "harness/base/arena.h"
#include "harness/base/fit.h"
#include "harness/base/pool.h"
#include "harness/base/test_folder.h"
#include "harness/base/why.h"

#include <math.h>

enum { LAYERS = 3, KV = 4, GROUP = 2, Q = KV * GROUP, HEADS = LAYERS * KV };

extern const struct ha_kernels ha_kernels_c;

static struct ha_why why;
static void ok(enum ha_status status)
{
    if (status != HA_OK) fail_msg("%s", why.text);
}

/* ---- of a case --------------------------------------------------------------------------------------------------- */

static struct {
    struct ha_shape shape;
    struct ha_context ctx;
    struct ha_reuse_rule rule;
    struct ha_reuse reuse;
    struct ha_fit_writer out;
    struct ha_fit *fit;
} c;

static enum ha_status try_put(const char *name, size_t rows, size_t columns, const float *data)
{
    return ha_fit_put(
        &c.out,
        &(struct ha_tensor){
            .name = name, .type = HA_T_F32, .dims = columns ? 2 : 1, .dim = { rows, columns }, .data = data },
        &why);
}
static void put(const char *name, size_t rows, size_t columns, const float *data)
{
    ok(try_put(name, rows, columns, data));
}

static void begin(void)
{
    memset(&c, 0, sizeof c);
    c.shape = (struct ha_shape){ .layers = LAYERS, .batch = 1, .q_heads = Q, .kv_heads = KV, .head_dim = 16 };
    ok(ha_arena_create(&c.ctx.arena, true, &why));
    c.ctx.shape = &c.shape;
    c.rule = (struct ha_reuse_rule){ .eta = 0.8,
                                     .p = 3,
                                     .eps = 0.1,
                                     .hard = true,
                                     .buffer_bytes = 1000,
                                     .whole_bytes = 1e6,
                                     .group = HA_SIMILAR_HARMONIC };
}

/* By the fit of what was put, if anything was. */
static enum ha_status create(void)
{
    static const struct ha_provenance text = { "m", "t", 1 };
    static const struct ha_fit_about about = {
        .value = { "clo", "", "m", "3", "8", "4", "16", "0", "iid", "1", "clo", "v1" }, .origin = &text, .origins = 1
    };
    ha_fit_close(c.fit);
    c.ctx.fit = c.fit = NULL;
    if (c.out.count) {
        HA_TRY(ha_fit_write(&c.out, test_path("fit"), &about, &why));
        HA_TRY(ha_fit_open(&c.fit, test_path("fit"), &why));
        c.ctx.fit = c.fit;
    }
    return ha_reuse_create(&c.reuse, &c.ctx, &c.rule, &why);
}

static void end(void)
{
    ok(ha_arena_check(c.ctx.arena, &why));
    ha_fit_close(c.fit);
    ha_fit_writer_free(&c.out);
    ha_arena_destroy(c.ctx.arena);
}

TEST(without_a_fit_all_heads_matter)
{
    begin();
    c.rule.adaptive = true;
    ok(create());
    for (size_t i = 0; i < HEADS; i++) {
        assert_true(c.reuse.threshold[i] == 0.8f);
        assert_true(c.reuse.persistent[i] == (i < KV));
    }
    for (size_t i = 0; i < LAYERS * Q; i++) assert_true(c.reuse.importance[i] == 1);
    end();
}

TEST(importance_lowers_the_threshold)
{
    static const float importance[HEADS] = { 1, 0, 0.5f, 0.25f };
    const double root = sqrt(0.5);
    const struct {
        bool adaptive;
        double eta, p, threshold[4];
    } cases[] = {
        { true, 0.8, 3, { 0.8, -1, cos(acos(0.8) / 8 + M_PI * 7 / 8), cos(acos(0.8) / 64 + M_PI * 63 / 64) } },
        { true, 0, 1, { 0, -1, -root, cos(M_PI * 7 / 8) } }, /* of a right angle */
        { true, 0, 2, { 0, -1, cos(M_PI * 7 / 8), cos(M_PI * 31 / 32) } },
        { true, 0.3, 0, { 0.3, 0.3, 0.3, 0.3 } },
        { true, 1, 1, { 1, -1, 0, -root } },
        { true, -1, 1, { -1, -1, -1, -1 } },
        { false, 0.8, 3, { 0.8, 0.8, 0.8, 0.8 } },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        begin();
        put("importance_kv", LAYERS, KV, importance);
        c.rule.adaptive = cases[i].adaptive;
        c.rule.eta = cases[i].eta;
        c.rule.p = cases[i].p;
        ok(create());
        for (size_t h = 0; h < 4; h++)
            if (!(fabs((double)c.reuse.threshold[h] - cases[i].threshold[h]) < 1e-6))
                fail_msg("case %zu, importance %g: %g, not %g", i, (double)importance[h], (double)c.reuse.threshold[h],
                         cases[i].threshold[h]);
        assert_true(c.reuse.threshold[0] == (float)cases[i].eta); /* not through angles and back */
        end();
    }
}

TEST(no_query_head_weighs_nothing)
{
    static const float importance[LAYERS * Q] = { 0, 1, 0.5f, 0x1p-11f, 0x1p-9f };
    begin();
    put("importance_q", LAYERS, Q, importance);
    ok(create());
    for (size_t i = 0; i < LAYERS * Q; i++)
        assert_true(c.reuse.importance[i] == (importance[i] > 0x1p-10f ? importance[i] : 0x1p-10f));
    end();
}

/* Difficulties with eta = 0.8 and eps = 0.1: none of the first layer's counts; 0.4, none, 0.3, 0.2; 0.25, 0.5, none,
 * 0.6. */
static const float similarity[HEADS] = { 0, 0, 0, 0, 0.5f, 0.95f, 0.6f, 0.7f, 0.65f, 0.4f, 0.91f, 0.3f },
                   alike[HEADS] = { 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f },
                   easy[HEADS] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };

TEST(hard_heads)
{
    static const struct {
        const char *what;
        const float *similarity, *least; /* NULL: the fit has none */
        enum ha_similar group;
        double ns, GBps, buffer_bytes, budget_bytes; /* ns: 0, the fit has no pace */
        bool easygoing;
        const char *persistent; /* of the layers behind the first */
    } cases[] = {
        { "all that are hard", similarity, NULL, HA_SIMILAR_HARMONIC, .persistent = "1011 1101" },
        { "none is told", NULL, NULL, HA_SIMILAR_HARMONIC, .persistent = "0000 0000" },
        { "the other rule's", easy, similarity, HA_SIMILAR_LEAST, .persistent = "1011 1101" },
        { "not the other rule's", easy, similarity, HA_SIMILAR_HARMONIC, .persistent = "0000 0000" },
        { "only the other rule's", similarity, NULL, HA_SIMILAR_LEAST, .persistent = "0000 0000" },
        { "hard=0", similarity, NULL, HA_SIMILAR_HARMONIC, .easygoing = true, .persistent = "0000 0000" },
        /* 1000 ns of 8 bytes: two buffers of 4000, so that one of three stays; equation 12 as printed has 0 */
        { "two come in time", similarity, NULL, HA_SIMILAR_HARMONIC, 1000, 8, 4000, .persistent = "1000 0001" },
        { "the second by a byte not", similarity, NULL, HA_SIMILAR_HARMONIC, 1000, 8, 4001, .persistent = "1010 0101" },
        { "not even one", similarity, NULL, HA_SIMILAR_HARMONIC, 1000, 8, 8001, .persistent = "1011 1101" },
        { "all come", similarity, NULL, HA_SIMILAR_HARMONIC, 1e9, 8, 4000, .persistent = "0000 0000" },
        { "the hardest", similarity, NULL, HA_SIMILAR_HARMONIC, .budget_bytes = 6e6, .persistent = "0000 0101" },
        { "no more for less", similarity, NULL, HA_SIMILAR_HARMONIC, .budget_bytes = 6.9e6, .persistent = "0000 0101" },
        { "one more", similarity, NULL, HA_SIMILAR_HARMONIC, .budget_bytes = 7e6, .persistent = "1000 0101" },
        { "the first layer", similarity, NULL, HA_SIMILAR_HARMONIC, .budget_bytes = 4e6, .persistent = "0000 0000" },
        { "two each, of them three", similarity, NULL, HA_SIMILAR_HARMONIC, 1000, 8, 8000, 7e6,
          .persistent = "1000 0101" },
        { "ties", alike, NULL, HA_SIMILAR_HARMONIC, .budget_bytes = 6e6, .persistent = "1100 0000" },
        { "ties of a layer", alike, NULL, HA_SIMILAR_HARMONIC, 1000, 8, 2000, .persistent = "0000 0000" },
        { "ties, one each", alike, NULL, HA_SIMILAR_HARMONIC, 1000, 8, 2500, .persistent = "1000 1000" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const float pace[] = { (float)cases[i].ns, (float)cases[i].GBps };
        char got[2 * KV + 2] = "";
        begin();
        if (cases[i].similarity) put("similarity", LAYERS, KV, cases[i].similarity);
        if (cases[i].least) put("similarity_min", LAYERS, KV, cases[i].least);
        if (cases[i].ns > 0) put("pace", 2, 0, pace);
        if (cases[i].buffer_bytes > 0) c.rule.buffer_bytes = cases[i].buffer_bytes;
        c.rule.budget_bytes = cases[i].budget_bytes;
        c.rule.hard = !cases[i].easygoing;
        c.rule.group = cases[i].group;
        ok(create());
        for (size_t h = 0; h < KV; h++) {
            assert_true(c.reuse.persistent[h]);
            got[h] = "01"[c.reuse.persistent[KV + h]];
            got[KV + 1 + h] = "01"[c.reuse.persistent[2 * KV + h]];
        }
        got[KV] = ' ';
        if (strcmp(got, cases[i].persistent) != 0) fail_msg("%s: %s, not %s", cases[i].what, got, cases[i].persistent);
        end();
    }
}

/* A head that matters less has a lower threshold, so it is less hard: its threshold here is -1. */
TEST(heads_that_matter_little_are_not_hard)
{
    static const float importance[HEADS] = { 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0 };
    begin();
    put("similarity", LAYERS, KV, similarity);
    put("importance_kv", LAYERS, KV, importance);
    c.rule.adaptive = true;
    ok(create());
    assert_true(!c.reuse.persistent[KV] && c.reuse.persistent[KV + 2] && !c.reuse.persistent[2 * KV + 3]);
    end();
}

TEST(tensors_and_budgets_that_are_refused)
{
    static const float below[HEADS] = { 1, 1, 1, 1, 1, 1, -0.25f }, above[HEADS] = { 1.5f }, backwards[] = { 1000, -8 },
                       query[LAYERS * Q] = { 0, 2 };
    static const struct {
        const char *name;
        size_t rows, columns;
        const float *data;
        const char *reason;
    } cases[] = {
        { "importance_kv", LAYERS, KV, below,
          "the fit's tensor importance_kv has -0.25 at [1][2], and 0 to 1 is wanted: `habench fit CASE -o FILE` makes "
          "another" },
        { "importance_q", LAYERS, Q, query, "importance_q has 2 at [0][1], and 0 to 1 is wanted: `habench fit" },
        { "similarity", LAYERS, KV, above, "similarity has 1.5 at [0][0], and -1 to 1 is wanted: `habench fit" },
        { "pace", 2, 0, backwards, "pace has -8 at [1], and 0 to inf is wanted: `habench fit" },
        { "similarity", KV, LAYERS, similarity, "tensor similarity has shape [4][3], and [3][4] is wanted" },
        { "pace", 1, 2, backwards, "tensor pace has shape [1][2], and [2] is wanted" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        begin();
        put(cases[i].name, cases[i].rows, cases[i].columns, cases[i].data);
        *why.text = 0;
        if (create() != HA_ERROR || !strstr(why.text, cases[i].reason) || strchr(why.text, '\n'))
            fail_msg("%s: \"%s\"", cases[i].reason, why.text);
        end();
    }
    begin();
    assert_int_equal(try_put("similarity", 1, 3, (const float[]){ 0, 0, NAN }), HA_ERROR); /* none such is written */
    assert_string_equal(why.text, "tensor similarity[0][2] is NaN");
    c.rule.budget_bytes = 3.9e6;
    assert_int_equal(create(), HA_ERROR);
    assert_string_equal(why.text, "keys and values of the first layer stay on the device: 4.000 MB, of which "
                                  "device_budget_MB allows 3.900: raise it");
    end();
}

/* ---- what is learnt ---------------------------------------------------------------------------------------------- */

/* Two layers of two KV heads, each of two query heads; one sequence of 20 tokens, the queries of its last 5, and one of
 * 3, of which 3 are observed and none has keys besides. Keys are their position in dimension 0, and no query is there
 * but that of the last head, which sees the first key alone. V in all dimensions is c + position, of KV head h of layer
 * l c = 1 + l + 10 h. Queries of a head turn in dimensions 1 and 2, each time by the same angle. */
enum { L = 2, H = 2, M = 4, DIM = 4, BATCH = 2, SINK = 1, RECENT = 2, OBSERVED = 5 };
static const size_t ctx[BATCH] = { 20, 3 };
static const double degrees[L][M] = { { 60, 0, 90, 30 }, { 120, 10, 20, 60 } };
static const float far = -1000; /* of the last head's query, in dimension 0 */

static struct {
    struct ha_shape shape;
    struct ha_prefill layer[L];
    float k[L][BATCH][H][20][DIM], v[L][BATCH][H][20][DIM], q[L][BATCH][OBSERVED][M][DIM];
    const void *k_in[L][BATCH], *v_in[L][BATCH];
    const float *q_in[L][BATCH];
    struct ha_fit_input in;
    struct ha_fit_writer out;
} w;

static size_t observed(size_t b) { return ctx[b] < OBSERVED ? ctx[b] : OBSERVED; }
static double level(size_t layer, size_t kv) { return 1 + (double)layer + 10 * (double)kv; }

static void begin_learning(void)
{
    memset(&w, 0, sizeof w);
    w.shape = (struct ha_shape){ .layers = L,
                                 .batch = BATCH,
                                 .q_heads = M,
                                 .kv_heads = H,
                                 .head_dim = DIM,
                                 .dtype = HA_F32,
                                 .scale = 1,
                                 .ctx = { ctx[0], ctx[1] },
                                 .q_len = 1,
                                 .steps = 1,
                                 .observed = OBSERVED };
    for (size_t i = 0; i < L * BATCH; i++) {
        const size_t l = i / BATCH, b = i % BATCH;
        for (size_t h = 0; h < H; h++)
            for (size_t t = 0; t < 20; t++) {
                w.k[l][b][h][t][0] = t < ctx[b] ? (float)t : NAN;
                for (size_t d = 0; d < DIM; d++)
                    w.v[l][b][h][t][d] = t < ctx[b] ? (float)(level(l, h) + (double)t) : NAN;
            }
        for (size_t t = 0; t < observed(b); t++)
            for (size_t m = 0; m < M; m++) {
                const double angle = degrees[l][m] * (double)t * M_PI / 180;
                float *q = w.q[l][b][t][m];
                q[0] = m == M - 1 ? far : 0;
                q[1] = (float)cos(angle);
                q[2] = (float)sin(angle);
            }
        w.k_in[l][b] = w.k[l][b];
        w.v_in[l][b] = w.v[l][b];
        w.q_in[l][b] = w.q[l][b][0][0];
        w.layer[l] = (struct ha_prefill){ .k = w.k_in[l], .v = w.v_in[l], .cap = 20, .q = w.q_in[l] };
    }
    w.in = (struct ha_fit_input){ .shape = &w.shape, .layer = w.layer, .kernels = &ha_kernels_c };
    ok(ha_pool_create(&w.in.pool, HA_TEAM_DEFAULT, 2, &why));
    ok(ha_arena_create(&w.in.arena, true, &why));
}

static void end_learning(void)
{
    ok(ha_arena_check(w.in.arena, &why));
    ha_fit_writer_free(&w.out);
    ha_arena_destroy(w.in.arena);
    ha_pool_destroy(w.in.pool);
}

static const float *learnt(const char *name, size_t rows, size_t columns)
{
    for (size_t i = 0; i < w.out.count; i++) {
        const struct ha_tensor *t = &w.out.tensor[i];
        if (strcmp(t->name, name) != 0) continue;
        assert_true(t->type == HA_T_F32 && t->dims == (columns ? 2 : 1) && t->dim[0] == rows);
        assert_true(!columns || t->dim[1] == columns);
        return t->data;
    }
    fail_msg("there is no tensor %s", name);
    return NULL;
}

static void expect(const char *name, size_t heads, const double *want)
{
    const float *got = learnt(name, L, heads);
    for (size_t i = 0; i < L * heads; i++)
        if (!(fabs((double)got[i] - want[i]) < 1e-5))
            fail_msg("%s of layer %zu head %zu: %g, not %g", name, i / heads, i % heads, (double)got[i], want[i]);
}

/* The mean output of a head over all keys, and over those that stay, of the query of token t: the first token, two
 * before it and itself. */
static double full(double c0, size_t t) { return c0 + (double)t / 2; }
static double stream(double c0, size_t t) { return c0 + (3 * (double)t - 3) / 4; }

static void scale(double *x, size_t n)
{
    double least = HUGE_VAL, most = 0;
    for (size_t i = 0; i < n; i++) least = fmin(least, x[i]), most = fmax(most, x[i]);
    for (size_t i = 0; i < n; i++) x[i] = (x[i] - least) / (most - least);
}

/* The eight queries are those of tokens 15 to 19 of the first sequence and 0 to 2 of the second, where nothing is lost.
 */
static void deviations(double q[L * M], double kv[L * H])
{
    for (size_t i = 0; i < L * H; i++) {
        const double c0 = level(i / H, i % H);
        const bool last = i % H == 1;
        double alone = 0, together = 0;
        for (size_t t = 15; t < 20; t++) {
            const double f = full(c0, t), apart = fabs(stream(c0, t) - f);
            alone += apart / f / 8;
            /* of the last KV head the second query head has c0, whatever stays */
            together += last ? apart / sqrt(f * f + c0 * c0) / 8 : apart / f / 8;
        }
        q[2 * i] = alone;
        q[2 * i + 1] = last ? 0 : alone;
        kv[i] = together;
    }
    scale(q, L * M);
    scale(kv, L * H);
}

TEST(learning)
{
    double q[L * M], kv[L * H], harmonic[L * H], least[L * H];
    begin_learning();
    ok(ha_reuse_fit(&w.in, &w.out, SINK, RECENT, &why));
    deviations(q, kv);
    expect("importance_q", M, q);
    expect("importance_kv", H, kv);
    for (size_t i = 0; i < L * H; i++) {
        const size_t l = i / H, m = i % H * 2;
        const double a = cos(degrees[l][m] * M_PI / 180), turned = cos(degrees[l][m + 1] * M_PI / 180),
                     away = (double)far * (double)far, b = m + 1 == M - 1 ? (away + turned) / (away + 1) : turned,
                     s = fmax(q[l * M + m], 0x1p-10), t = fmax(q[l * M + m + 1], 0x1p-10);
        least[i] = fmin(a, b);
        harmonic[i] = least[i] > 0 ? (s + t) / (s / a + t / b) : least[i];
    }
    harmonic[1] = least[1] = 0; /* a right angle, where rounding says on which side */
    expect("similarity", H, harmonic);
    expect("similarity_min", H, least);
    assert_int_equal(w.out.count, 4);
    end_learning();
}

TEST(pace_is_passed_on)
{
    static const double pace[] = { 12345.5, 25.25 };
    begin_learning();
    w.in.pace = pace;
    ok(ha_reuse_fit(&w.in, &w.out, SINK, RECENT, &why));
    const float *got = learnt("pace", 2, 0);
    assert_true(got[0] == 12345.5f && got[1] == 25.25f);
    end_learning();
}

/* Where nothing tells heads apart all of them matter. */
TEST(heads_that_are_equal)
{
    begin_learning();
    for (size_t i = 0; i < L * BATCH * H * 20; i++)
        for (size_t d = 0; d < DIM; d++) w.v[i / 80][i / 40 % BATCH][i / 20 % H][i % 20][d] = 3;
    ok(ha_reuse_fit(&w.in, &w.out, SINK, RECENT, &why));
    for (size_t i = 0; i < L * M; i++) assert_true(learnt("importance_q", L, M)[i] == 1);
    for (size_t i = 0; i < L * H; i++) assert_true(learnt("importance_kv", L, H)[i] == 1);
    end_learning();
}

/* A query of zeros is like no other, and an output of zeros tells of no deviation. */
TEST(zeros)
{
    begin_learning();
    memset(w.q[0], 0, sizeof w.q[0]);
    for (size_t t = 0; t < 20; t++) memset(w.v[1][0][0][t], 0, sizeof w.v[1][0][0][t]);
    ok(ha_reuse_fit(&w.in, &w.out, SINK, RECENT, &why));
    for (size_t i = 0; i < H; i++) assert_true(learnt("similarity", L, H)[i] == 0);
    assert_true(learnt("importance_kv", L, H)[H] == 0);
    end_learning();
}

TEST(what_nothing_can_be_learnt_from)
{
    static const struct {
        size_t observed, sink, recent;
        bool nan;
        const char *reason;
    } cases[] = {
        { 1, SINK, RECENT, false, "reuse is learnt from one query to the next, of 1: observed=256, say" },
        { OBSERVED, 9, 10, false, "no query has keys besides 9 sinks and 10 recent ones: raise ctx, 20" },
        { OBSERVED, SINK, RECENT, true, "layer 1 seq 0: K, V or an observed query is not finite" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        begin_learning();
        w.shape.observed = cases[i].observed;
        if (cases[i].nan) w.q[1][0][3][2][1] = NAN;
        assert_int_equal(ha_reuse_fit(&w.in, &w.out, cases[i].sink, cases[i].recent, &why), HA_ERROR);
        assert_string_equal(why.text, cases[i].reason);
        assert_int_equal(w.out.count, 0);
        end_learning();
    }
    begin_learning();
    ok(ha_reuse_fit(&w.in, &w.out, 9, 9, &why)); /* one key is enough */
    end_learning();
}

TEST_MAIN { return test_all("tests", test_folder_make, test_folder_remove); }
