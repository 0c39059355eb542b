/* Errors against chance: defects that bounds allow are not explained; honest forms are, in test_alarms.c, too.
 * `test_reference_chance power` prints the least that each sees (docs/measurement.md, "Suspects"). */

#include "reference/test_fp32.h"

#include "harness/api/suite.h"

enum { DIM = 64, ROWS_MOST = 64 };

static struct ha_test_method method_of(const char *name)
{
    for (size_t i = 0; i < ha_test_methods; i++)
        if (!strcmp(ha_test_method[i].name, name)) return ha_test_method[i];
    fail_msg("no method %s", name);
    return ha_test_method[0];
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

/* Rows of one family, and what they must be; with the tests' memory, released by ha_test_release. */
struct rows {
    size_t count;
    struct ha_test_input in[ROWS_MOST];
    struct ha_ref_state want[ROWS_MOST];
    struct ha_chance chance[ROWS_MOST];
};

static void make(struct rows *r, const struct ha_profile *p, size_t family, size_t keys, enum ha_dtype t, size_t count)
{
    const struct ha_bound b = ha_bound_attend(p, DIM, keys, 1);
    float *work = calloc(2 * keys, sizeof *work);
    r->count = count;
    for (size_t i = 0; i < count; i++) {
        r->in[i] = ha_test_input(family, keys, DIM, t, 1000 + i);
        r->want[i] = ha_test_attend(&r->in[i], &r->in[i].rows, &b);
        r->chance[i] = ha_ref_chance(r->in[i].q, DIM, (double)r->in[i].scale, &r->in[i].rows, t, &b, &r->want[i], work,
                                     NULL);
    }
    free(work);
}

struct seen {
    double ratio; /* the largest error over its bound */
    struct ha_chances chances;
};

/* What the method makes of these rows, o rounded to `out`. */
static struct seen look(const struct ha_test_method *m, const struct rows *r, enum ha_dtype out)
{
    struct seen seen = { 0, { 0 } };
    const size_t keys = r->in[0].keys;
    uint32_t *order = malloc(keys * sizeof *order);
    for (size_t j = 0; j < keys; j++) order[j] = (uint32_t)j;
    for (size_t i = 0; i < r->count; i++) {
        float o[DIM];
        double squares = 0;
        const float lse = ha_test_fp32_attend(m, &r->in[i], order, &keys, 1, o);
        for (size_t d = 0; d < DIM; d++) {
            o[d] = ha_round(o[d], out);
            squares += ((double)o[d] - r->want[i].o[d]) * ((double)o[d] - r->want[i].o[d]);
        }
        seen.ratio = fmax(seen.ratio, ha_ref_ratio(o, lse, &r->want[i], NULL));
        ha_chances_add(&seen.chances, (double)lse - r->want[i].lse, sqrt(squares), &r->chance[i]);
    }
    free(order);
    return seen;
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

/* Each passes by its bound. */
TEST(defects_within_bounds_are_seen)
{
    static const struct {
        const char *name, *method;
        size_t keys, rows;
        struct ha_test_plant plant;
    } each[] = {
        { "exp off by 2^-18, either way", "16 lanes", 128, 32, { .exp_wave = 0x1p-18f } },
        { "exp off by 2^-18, one way", "16 lanes", 128, 32, { .exp_off = -0x1p-18f } },
        { "exp off by 2^-18, either way", "16 lanes, fma, levels", 4096, 16, { .exp_wave = 0x1p-18f } },
        { "weights of 15 bits", "16 lanes, fma, levels", 4096, 16, { .weight = 0x1p-15f } },
        { "a key weighs 1% less", "one lane", 4096, 16, { .lost = 0.01f } },
        { "sums cut", "one lane, levels", 4096, 16, { .cut = true } },
    };
    static struct rows r;
    for (size_t i = 0; i < COUNT(each); i++) {
        struct ha_test_method m = method_of(each[i].method);
        const struct ha_profile p = ha_test_method_profile(&m, HA_BF16);
        struct ha_profile stored = p;
        stored.out_type = HA_F32;
        if (test_small && each[i].keys > 128) continue;
        make(&r, &stored, 0, each[i].keys, HA_BF16, each[i].rows);
        const struct seen before = look(&m, &r, HA_F32);
        m.plant = each[i].plant;
        const struct seen after = look(&m, &r, HA_F32);
        print_message("%s: error / bound %.3f, rms %.2f, bias %+.2f, p %.2g\n", each[i].name, after.ratio,
                      ha_chances_rms(&after.chances), ha_chances_bias(&after.chances), ha_chances_p(&after.chances));
        assert_true(ha_chances_p(&before.chances) >= 1);
        assert_true(after.ratio <= 1);
        assert_true(ha_chances_p(&after.chances) < 1e-12);
        ha_test_release();
    }
}

/* From numbers that are as wide as is allowed p < x comes no more often than x, and it does come. */
TEST(p_is_no_less_than_the_chance)
{
    enum { RUNS = 8000 };
    static const size_t rows[] = { 1, 4, 16, 64 };
    for (size_t n = 0; n < COUNT(rows); n++) {
        size_t below[2] = { 0, 0 };
        for (uint64_t run = 0; run < RUNS; run++) {
            struct ha_chances c = { 0 };
            for (size_t i = 0; i < rows[n]; i++) {
                const struct ha_chance of = { 0.5, 2, 1, 3 };
                const double lse = (double)ha_rng_normal(run, n, 2 * i), o = (double)ha_rng_normal(run, n, 2 * i + 1);
                ha_chances_add(&c, 0.5 + 2 * lse, 1 + 3 * fabs(o), &of);
            }
            below[0] += ha_chances_p(&c) < 0.1;
            below[1] += ha_chances_p(&c) < 0.01;
        }
        assert_true(below[0] < RUNS / 10 && below[1] < RUNS / 100);
        assert_true(below[0] > RUNS / 1000);
    }
    struct ha_chances many = { .rows = 64, .lse2 = 64 * 9 };
    const double nine = log(ha_chances_p(&many) / 3), want = -(64 * 9 - 64 - 64 * log(9)) / 2;
    assert_true(fabs(nine - want) < 1e-9);
    many = (struct ha_chances){ .rows = 64, .lse = -96, .lse_bias = 32 };
    assert_true(fabs(log(ha_chances_p(&many) / 6) + 32) < 1e-9);
    assert_true(isnan(ha_chances_p(&(struct ha_chances){ 0 })));
}

/* The scale, log2 e and ln 2 are rounded once for all rows: together as if scores were off by 2 u. Where values depend
 * on scores, here as V = K, that moves o in one direction. */
TEST(constants_are_explained)
{
    enum { KEYS = 600, ROWS = 16 };
    static struct rows r;
    const struct ha_test_method m = method_of("16 lanes, fma, levels");
    const struct ha_profile p = ha_test_method_profile(&m, HA_F32);
    make(&r, &p, 0, KEYS, HA_F32, ROWS);
    const struct ha_bound b = ha_bound_attend(&p, DIM, KEYS, 1);
    static float work[2 * KEYS];
    for (size_t i = 0; i < ROWS; i++) {
        struct ha_test_input *in = &r.in[i];
        memcpy(in->v, in->k, KEYS * DIM * sizeof *in->v);
        for (size_t d = 0; d < DIM; d++) in->q[d] *= 2;
        ha_test_input_store(in);
        r.want[i] = ha_test_attend(in, &in->rows, &b);
        r.chance[i] = ha_ref_chance(in->q, DIM, (double)in->scale, &in->rows, HA_F32, &b, &r.want[i], work, NULL);
        in->scale *= 1 + 0x1p-23f;
    }
    const struct seen s = look(&m, &r, HA_F32);
    print_message("constants: rms %.2f\n", ha_chances_rms(&s.chances));
    assert_int_equal(s.chances.rows, ROWS);
    assert_true(ha_chances_rms(&s.chances) < 0.2);
    ha_test_release();
}

/* What is not known does not count. */
TEST(rows_without_known_weights_are_left_out)
{
    static struct rows r;
    const struct ha_test_method m = method_of("16 lanes");
    const struct ha_profile p = ha_test_method_profile(&m, HA_F32);
    for (size_t f = 0; f < ha_test_families; f++) {
        const bool huge = strstr(ha_test_family_name(f), "e scores") != NULL; /* huge, extreme */
        make(&r, &p, f, 32, HA_F32, 1);
        if (huge) assert_true(isnan(r.chance[0].lse_size));
        if (f == 0) assert_true(r.chance[0].lse_size > 0x1p-24 && r.chance[0].o_size > 0);
    }
    ha_test_release();
}

enum { HONEST, WIDEST, FLAWED, STATES };

/* A state of 256 keys: what it must be, and what is handed over; WIDEST: as far off as is explained. */
struct part {
    struct ha_ref_state want;
    struct ha_chance chance;
    struct ha_test_stored got;
};
static struct part part_of(uint64_t seed, int how)
{
    enum { KEYS = 256 };
    static float work[2 * KEYS];
    const struct ha_test_method m = method_of("16 lanes");
    const struct ha_profile p = ha_test_method_profile(&m, HA_F32);
    const struct ha_test_input in = ha_test_input(0, KEYS, DIM, HA_F32, seed);
    const struct ha_bound b = ha_bound_attend(&p, DIM, KEYS, 1);
    const size_t end = KEYS;
    uint32_t order[KEYS];
    struct part out = { .want = ha_test_attend(&in, &in.rows, &b), .got = { .sum = 0 } };
    out.chance = ha_ref_chance(in.q, DIM, (double)in.scale, &in.rows, HA_F32, &b, &out.want, work, NULL);
    for (uint32_t j = 0; j < KEYS; j++) order[j] = j;
    out.got.lse = ha_test_fp32_attend(&m, &in, order, &end, 1, out.got.o);
    if (how != WIDEST) return out;
    const double each = (out.chance.o_size * 0.9 + out.chance.o_bias) / sqrt(DIM);
    out.got.lse = (float)(out.want.lse + out.chance.lse_bias
                          + out.chance.lse_size * 0.9 * (double)ha_rng_normal(seed, 99, 0));
    for (size_t d = 0; d < DIM; d++)
        out.got.o[d] = (float)(out.want.o[d] + each * (double)ha_rng_normal(seed, 99, 1 + d));
    return out;
}

/* What two states are off by weighs as much as they do. */
TEST(merges_are_explained)
{
    if (HA_SANITIZED) skip(); /* many rows of what a few above have shown */
    enum { ROWS = 32 };
    for (size_t w = 0; w < ha_test_merge_methods; w++) {
        const struct ha_test_merge_method *way = &ha_test_merge_method[w];
        const struct ha_merge_bound b = ha_test_merge_bound(way, HA_F32);
        if (way->form == HA_FORM_MAX_SUM || way->form == HA_FORM_BASE2)
            continue; /* other states than attention leaves */
        for (int how = 0; how < (way->way == HA_TEST_ONLINE ? FLAWED : STATES); how++) {
            struct ha_chances c = { 0 };
            for (uint64_t i = 0; i < ROWS; i++) {
                const struct part x = part_of(2 * i, how), y = part_of(2 * i + 1, how);
                const struct ha_ref_state states[] = { x.want, y.want };
                const struct ha_chance chances[] = { x.chance, y.chance };
                const struct ha_test_stored got[] = { x.got, y.got };
                struct ha_ref_state out = ha_test_state(DIM);
                struct ha_test_stored merged;
                ha_ref_merge(states, 2, &b, &out);
                ha_test_fp32_merge(way, got, 2, DIM, HA_F32, how == FLAWED ? &(struct ha_test_flaw){ 64, 64 } : NULL,
                                   &merged);
                double squares = 0;
                for (size_t d = 0; d < DIM; d++) squares += pow((double)merged.o[d] - out.o[d], 2);
                const struct ha_chance both = ha_ref_chance_merge(chances, states, 2, &b, &out, (double[2]){ 0 });
                ha_chances_add(&c, (double)merged.lse - out.lse, sqrt(squares), &both);
                ha_test_release();
            }
            print_message("%s, %s: rms %.2f, p %.2g\n", way->name,
                          how == HONEST   ? "honest"
                          : how == WIDEST ? "states as wrong as is explained"
                                          : "weights off by 64 ulps",
                          ha_chances_rms(&c), ha_chances_p(&c));
            assert_int_equal(c.rows, ROWS);
            assert_true(how == FLAWED ? ha_chances_p(&c) < 1e-9 : ha_chances_rms(&c) < 1 && ha_chances_p(&c) >= 1);
        }
    }
}

/* ---- vectors without an LSE -------------------------------------------------------------------------------------- */

/* What softmax makes of x in binary32, divided by the sum or with the LSE in the exponent; planted: each weight is off
 * by up to so much, either way. Returns the LSE. */
static float softmax32(const float *x, size_t n, bool by_lse, float planted, uint64_t seed, float *out)
{
    float max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) max = fmaxf(max, x[i]);
    for (size_t i = 0; i < n; i++) sum += out[i] = expf(x[i] - max);
    const float lse = max + logf(sum);
    for (size_t i = 0; i < n; i++) {
        out[i] = by_lse ? expf(x[i] - lse) : out[i] / sum;
        out[i] *= 1 + planted * (2 * ha_rng_uniform(seed, 5, i) - 1);
    }
    return lse;
}

static void explained(const struct ha_chances *c, float planted, const char *what)
{
    const bool ok = planted > 0 ? ha_chances_p(c) < 1e-12 : ha_chances_rms(c) < 0.75 && ha_chances_p(c) >= 1;
    if (!ok)
        fail_msg("%s, planted %g: %zu rows, rms %g, p %g", what, (double)planted, c->rows, ha_chances_rms(c),
                 ha_chances_p(c));
}

/* Products that are large, and cancel: scores are small, and what they are rounded by is not. */
static void cancel(struct ha_test_input *in)
{
    const size_t half = in->dim / 2;
    for (size_t d = 0; d < half; d++) {
        in->q[d] *= 16;
        in->q[half + d] = in->q[d];
        for (size_t j = 0; j < in->keys; j++)
            in->k[j * in->dim + half + d] = -in->k[j * in->dim + d] * (1 + 0.02f * ha_rng_normal(in->seed, j, d));
    }
    ha_test_input_store(in);
}

/* The weights of a row of attention, of every family of inputs. */
TEST(weights_are_explained_and_planted_ones_are_not)
{
    enum { KEYS = 1500, FEW = 60, ROWS = 12 };
    static float work[2 * KEYS], s[KEYS], w[KEYS];
    struct ha_test_method m = method_of("one lane");
    const struct ha_profile p = ha_test_method_profile(&m, HA_F32);
    size_t known = 0;
    for (size_t f = 0; f < ha_test_families; f++)
        for (int how = 0; how < 4; how++) {
            const float planted = how == 2 ? 0x1p-15f : 0;
            const size_t keys = how == 3 ? FEW : KEYS; /* whose sum has few roundings beside those of scores */
            const struct ha_bound b = ha_bound_attend(&p, DIM, keys, 1);
            struct ha_chances c = { 0 };
            if (f && (how > 1 || test_small)) continue;
            for (uint64_t row = 0; row < ROWS; row++) {
                struct ha_test_input in = ha_test_input(f, keys, DIM, HA_F32, 50 + row);
                if (how == 3) cancel(&in);
                const struct ha_ref_state want = ha_test_attend(&in, &in.rows, &b);
                struct ha_chance of;
                double exact[KEYS], squares = 0;
                ha_ref_chance(in.q, DIM, (double)in.scale, &in.rows, HA_F32, &b, &want, work, &of);
                ha_ref_weights(in.q, DIM, (double)in.scale, &in.rows, HA_F32, exact);
                for (size_t j = 0; j < keys; j++) {
                    s[j] = 0;
                    for (size_t d = 0; d < DIM; d++) s[j] += in.q[d] * in.k[j * DIM + d];
                    s[j] *= in.scale;
                }
                softmax32(s, keys, how == 1, planted, row, w);
                for (size_t j = 0; j < keys; j++) squares += pow((double)w[j] - exact[j], 2);
                ha_chances_add(&c, 0, sqrt(squares), &of);
                ha_test_release();
            }
            if (!c.rows) continue;
            known++;
            explained(&c, planted, ha_test_family_name(f));
        }
    assert_true(known > (test_small ? 2 : 20));
}

/* Softmax alone: x drawn, all the same, far apart, far from 0, masked. */
static float drawn_x(size_t kind, uint64_t seed, uint64_t i)
{
    const float x = ha_rng_normal(seed, 1, i);
    switch (kind) {
    case 0: return x;
    case 1: return 0.3f;
    case 2: return 40 * x;
    case 3: return 1000 + x;
    default: return i % 3 ? -INFINITY : x;
    }
}
TEST(softmax_is_explained_and_planted_ones_are_not)
{
    enum { N = 5000, ROWS = 24, KINDS = 5 };
    static float work[2 * N], x[N], w[N];
    for (size_t kind = 0; kind < KINDS; kind++)
        for (int how = 0; how < 4; how++) {
            const float planted = how < 2 ? 0 : 0x1p-13f;
            struct ha_chances c = { 0 };
            if (planted > 0 && kind) continue;
            for (uint64_t row = 0; row < ROWS; row++) {
                double sum = 0, squares = 0;
                for (size_t i = 0; i < N; i++) x[i] = drawn_x(kind, row, i);
                float lse = softmax32(x, N, how == 1, how == 2 ? planted : 0, row, w);
                if (how == 3) lse += planted;
                struct ha_chance of = ha_ref_chance_softmax(x, N, N, 1.02 * 0x1p-24, work);
                for (size_t i = 0; i < N; i++) sum += exp((double)x[i] - (kind == 3 ? 1000 : 0));
                const double want = log(sum) + (kind == 3 ? 1000 : 0);
                for (size_t i = 0; i < N; i++) squares += pow((double)w[i] - exp((double)x[i] - want), 2);
                /* weights by a rounded LSE are off by that, which no bound of the kernel's allows */
                if (how == 1) of.o_bias += 0x1p-24 * fabs(want);
                ha_chances_add(&c, (double)lse - want, sqrt(squares), &of);
            }
            assert_int_equal(c.rows, ROWS);
            explained(&c, planted, (const char *[]){ "normal", "the same", "far apart", "far from 0", "masked" }[kind]);
        }
}

/* Sums of products by one lane and by 16, of numbers of either sign, of one, all the same; stored in 32 and 16 bits. */
TEST(products_are_explained_and_planted_ones_are_not)
{
    enum { TERMS = 96, SUMS = 50, ROWS = 12, KINDS = 3 };
    for (size_t kind = 0; kind < KINDS; kind++)
        for (unsigned lanes = 1; lanes <= 16; lanes *= 16)
            for (int how = 0; how < 3; how++) {
                const enum ha_dtype stored = how == 1 ? HA_BF16 : HA_F32;
                const float planted = how == 2 ? 0x1p-18f : 0;
                struct ha_chances c = { 0 };
                for (uint64_t row = 0; row < ROWS; row++) {
                    struct ha_ref_dots dots = { 0 };
                    for (uint64_t j = 0; j < SUMS; j++) {
                        float sum[16] = { 0 }, all = 0;
                        double want = 0, squares = 0;
                        for (uint64_t i = 0; i < TERMS; i++) {
                            const float q = ha_rng_normal(row, 1, i), k = ha_rng_normal(row, 2 + j, i),
                                        x = kind == 0   ? q * k
                                            : kind == 1 ? 1 + 0.1f * fabsf(k)
                                                        : 0.1f;
                            const float t = kind == 0 ? k : x;
                            const float by = kind == 0 ? q : 1;
                            sum[i % lanes] += by * t;
                            want += (double)by * (double)t;
                            squares += pow((double)by * (double)t, 2);
                        }
                        for (size_t l = 0; l < lanes; l++) all += sum[l];
                        all = ha_round(all * (1 + planted * (2 * ha_rng_uniform(row, 9, j) - 1)), stored);
                        ha_ref_dots_add(&dots, (double)all - want, want, squares, (double)(TERMS / lanes + lanes),
                                        stored, 0);
                    }
                    const struct ha_chance of = ha_ref_chance_dots(&dots);
                    ha_chances_add(&c, 0, sqrt(dots.error2), &of);
                }
                assert_int_equal(c.rows, ROWS);
                if (planted > 0 && kind) continue; /* whose sums are rounded alike */
                explained(&c, planted, "products");
            }
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

TEST(of_groups_the_least_likely_counts_times_their_number)
{
    static const struct ha_chances usual = { .rows = 32, .lse2 = 2, .o2 = 3, .lse_bias = 1 },
                                   more = { .rows = 32, .lse2 = 2, .o2 = 5, .lse_bias = 1 },
                                   odd = { .rows = 16, .o2 = 16 * 9 }, none = { .rows = 0 };
    struct ha_suspect s = { .groups = 0 };
    struct ha_result head = { .p = -1 };
    double bias = 7, rms = 7;
    ha_suspect_add(&s, &none, "none");
    ha_suspect_tell(&s, &head, &bias, &rms);
    assert_true(head.p < 0 && bias > 6 && rms > 6 && !*head.suspicion); /* as they were */
    ha_suspect_add(&s, &usual, "usual %d", 1);
    ha_suspect_add(&s, &more, "more %d", 2);
    ha_suspect_add(&s, &usual, "usual %d", 3);
    ha_suspect_tell(&s, &head, &bias, &rms);
    assert_true(head.p >= 1 && fabs(rms - sqrt(5.0 / 32)) < 1e-12); /* where all are likely, the largest */
    assert_contains(head.suspicion, "more 2: ");
    ha_suspect_add(&s, &odd, "odd");
    ha_suspect_add(&s, &usual, "usual %d", 4);
    ha_suspect_tell(&s, &head, &bias, &rms);
    assert_int_equal(s.groups, 5);
    assert_true(fabs(rms - 3) < 1e-12 && fabs(head.p / (5 * ha_chances_p(&odd)) - 1) < 1e-12 && bias == 0);
    assert_contains(head.suspicion, "odd: errors are within their bounds, but larger than those of independent "
                                    "roundings: 3 times, over 16 rows");
}

/* ---- power ------------------------------------------------------------------------------------------------------- */

static struct ha_test_plant wave(float x) { return (struct ha_test_plant){ .exp_wave = x }; }
static struct ha_test_plant off(float x) { return (struct ha_test_plant){ .exp_off = x }; }
static struct ha_test_plant weight(float x) { return (struct ha_test_plant){ .weight = x }; }
static struct ha_test_plant lost(float x) { return (struct ha_test_plant){ .lost = x }; }

/* The least power of 2 that is seen: beyond the bound in some row, or by chance less than 1e-9 in a run of 1000. */
static int least(struct ha_test_method m, const struct rows *r, struct ha_test_plant (*plant)(float), bool by_bound,
                 int low, int high)
{
    while (low < high) {
        const int middle = low + (high - low) / 2;
        m.plant = plant(ldexpf(1, middle));
        const struct seen s = look(&m, r, HA_F32);
        const bool seen = by_bound ? s.ratio > 1 : ha_chances_p(&s.chances) * 1000 < 1e-9;
        if (seen) high = middle;
        else low = middle + 1;
    }
    return high;
}

static int power(void)
{
    static const struct {
        const char *name;
        struct ha_test_plant (*plant)(float);
        int low, high;
    } each[] = { { "exp, either way", wave, -24, -4 },
                 { "exp, one way", off, -24, -4 },
                 { "weights rounded", weight, -24, -2 },
                 { "keys lost", lost, -16, 8 } };
    static const char *const methods[] = { "16 lanes, fma, levels", "one lane" };
    static const size_t keys[] = { 128, 8192, 131072 };
    static struct rows r;
    printf("least power of 2 that is seen, by the bound and by chance\n");
    for (size_t m = 0; m < COUNT(methods); m++)
        for (size_t n = 0; n < COUNT(keys); n++) {
            const struct ha_test_method method = method_of(methods[m]);
            struct ha_profile p = ha_test_method_profile(&method, HA_BF16);
            p.out_type = HA_F32;
            make(&r, &p, 0, keys[n], HA_BF16, keys[n] < 1000 ? 64 : 16);
            for (size_t i = 0; i < COUNT(each); i++) {
                printf("%-24s %6zu keys  %-16s %4d %4d\n", methods[m], keys[n], each[i].name,
                       least(method, &r, each[i].plant, true, each[i].low, each[i].high),
                       least(method, &r, each[i].plant, false, each[i].low, each[i].high));
                fflush(stdout);
            }
            ha_test_release();
        }
    return 0;
}

TEST_MAIN
{
    if (argc > 1 && !strcmp(argv[1], "power")) return power();
    return test_all("tests", NULL, NULL);
}
