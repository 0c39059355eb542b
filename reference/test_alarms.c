/* False alarms: honest designs of attention and of merges over random problems, judged as devices are: by the bound, by
 * the range of o and of the LSE, by chance, and by what may be claimed. None may fail.
 *
 * `test_reference_alarms designs COUNT SEED` judges so many problems by every design and prints what it judged
 * (docs/measurement.md, "False alarms"); `designs COUNT SEED FIRST` begins at another problem than 0. */

#include "reference/test_designs.h"
#include "reference/test_states.h"

#include <limits.h>

enum { METHODS_MOST = 24, DESIGNS_MOST = 24, MERGES_MOST = 24, SIDES_MOST = 3, ROWS_MOST = 16, KEYS_MOST = 6200 };
static const double asked = 1e7, suspect = 1e-9; /* cases of a long run of this program; HA_SUSPECT_P */

/* ---- who is judged, and what came of it -------------------------------------------------------------------------- */

/* A case is one problem, computed by one of them and judged: all of its rows, and their chance. */
struct tally {
    uint64_t cases, rows, unjudged, sensitivities, alarms, suspects;
    double ratio, rms, p;
};

static struct judged {
    struct ha_test_method method[METHODS_MOST];
    struct ha_test_design design[DESIGNS_MOST];
    struct ha_test_flaw flaw; /* of every merge */
    struct tally of_method[METHODS_MOST], of_design[DESIGNS_MOST], of_side[MERGES_MOST], of_merge[MERGES_MOST];
    bool quiet;
} judged;

static void reset(void)
{
    memset(&judged, 0, sizeof judged);
    memcpy(judged.method, ha_test_method, ha_test_methods * sizeof *ha_test_method);
    memcpy(judged.design, ha_test_design, ha_test_designs * sizeof *ha_test_design);
    for (size_t i = 0; i < METHODS_MOST; i++)
        judged.of_method[i].p = judged.of_design[i].p = judged.of_side[i].p = judged.of_merge[i].p = 1;
}

/* ---- problems ---------------------------------------------------------------------------------------------------- */

struct dice {
    uint64_t seed, at;
};
static uint64_t below(struct dice *d, uint64_t n) { return ha_rng_below(d->seed, 1000, d->at++, n); }
static bool one_in(struct dice *d, uint64_t n) { return below(d, n) == 0; }

/* from 1: half of them at most one away from a power of two, the others of any magnitude as likely as of another */
static size_t number(struct dice *d, size_t most)
{
    size_t bits = 0;
    while (most >> bits) bits++;
    const size_t power = (size_t)1 << below(d, bits);
    const size_t x = one_in(d, 2) ? power + below(d, 3) - 1 : power + below(d, power);
    return x < 1 ? 1 : x > most ? most : x;
}

struct problem {
    uint64_t seed, index;
    struct ha_test_input in;
    size_t rows;
    struct ha_test_input row[ROWS_MOST]; /* the same keys, or the first of them, for queries of their own */
    size_t runs, end[HA_RUNS_MAX];       /* parts of 64ths of the keys, some of none */
    enum ha_dtype out;
    bool sense; /* look at the sensitivity, too */
};

static float size_of_values(struct dice *d, enum ha_dtype t)
{
    const int least = t == HA_F16 ? -20 : -130, most = t == HA_F16 ? 8 : 100;
    return ldexpf(1, least + (int)below(d, (uint64_t)(most - least)));
}

/* What no family has: values of one sign, tiny or huge ones, a column of zeros, keys of nothing. */
static void bend(struct dice *d, struct ha_test_input *in)
{
    const uint64_t how = below(d, 10);
    const size_t n = in->keys * in->dim, column = below(d, in->dim);
    const float size = size_of_values(d, in->dtype), most = in->dtype == HA_F16 ? 6e4f : 1e35f;
    for (size_t i = 0; i < n; i++) {
        if (how == 0) in->v[i] = 5 + fabsf(in->v[i]);
        if (how == 1 && fabsf(in->v[i] * size) < most) in->v[i] *= size;
        if (how == 2 && i % in->dim == column) in->v[i] = 0;
        if (how == 3 && i < in->dim) in->k[i] = 0;
        if (!isfinite(in->k[i])) in->k[i] = 0; /* aimed beyond f16, by a query of nearly nothing */
    }
    ha_test_input_store(in);
}

static float stretch_of(struct dice *d, enum ha_dtype t)
{
    static const float by[] = { 0, 1e-30f, 1e-3f, 3, 10, 300, 9e4f, 1e7f };
    return one_in(d, 2) ? 1 : by[below(d, t == HA_F16 ? 7 : 8)];
}

static void draw(struct problem *p, uint64_t seed, uint64_t index)
{
    struct dice d = { ha_rng_bits(seed, index, 0), 0 };
    const uint64_t size = below(&d, 200);
    const size_t keys = number(&d, size == 0    ? 6000
                                   : size < 15  ? 300
                                   : size < 100 ? 64
                                                : 9),
                 dim = number(&d, size % 10 == 0  ? HA_TEST_DIM_MAX
                                  : one_in(&d, 2) ? 16
                                                  : 64);
    const enum ha_dtype t = (enum ha_dtype)below(&d, HA_DTYPE_COUNT);
    *p = (struct problem){ .seed = seed, .index = index, .out = one_in(&d, 2) ? t : HA_F32, .sense = one_in(&d, 8) };
    p->in = ha_test_input(one_in(&d, 3) ? 0 : below(&d, ha_test_families), keys, dim, t, d.seed);
    bend(&d, &p->in);
    if (one_in(&d, 3)) p->in.scale *= ldexpf(1 + 0x1p-23f * (float)below(&d, 1 << 22), (int)below(&d, 9) - 4);
    p->rows = keys > 300 || one_in(&d, 2) ? 1 : 2 + below(&d, ROWS_MOST - 1);
    p->runs = 1 + below(&d, HA_RUNS_MAX);
    for (size_t i = 0; i + 1 < p->runs; i++) p->end[i] = (i ? p->end[i - 1] : 0) + below(&d, 64 / HA_RUNS_MAX + 1);
    p->end[p->runs - 1] = 64;
    const float stretch = stretch_of(&d, t);
    const bool shorter = one_in(&d, 3);
    float *q = malloc(p->rows * dim * sizeof *q);
    for (size_t r = 0; r < p->rows; r++) {
        p->row[r] = p->in;
        p->row[r].q = q + r * dim;
        for (size_t i = 0; i < dim; i++)
            p->row[r].q[i] = stretch * (r ? ha_round(ha_rng_normal(d.seed, 100 + r, i), t) : p->in.q[i]);
        if (r && shorter) p->row[r].keys = p->row[r].rows.keys = 1 + below(&d, keys);
    }
}

static void release(struct problem *p)
{
    free(p->row[0].q);
    ha_test_release();
}

/* ---- judging ----------------------------------------------------------------------------------------------------- */

static void alarm_of(struct tally *t, const char *name, const struct problem *p, size_t row, const char *what, double x)
{
    if (t->alarms++ < 3 && !judged.quiet)
        printf("ALARM: %s: %s %g, %s, row %zu of %zu, problem %llu of seed %llu\n", name, what, x,
               ha_test_input_says(&p->row[row]), row, p->rows, (unsigned long long)p->index,
               (unsigned long long)p->seed);
}

static bool bounded(const struct ha_ref_state *want)
{
    bool is = want->lse_bound < HUGE_VAL;
    for (size_t i = 0; i < want->dim; i++) is = is && want->bound[i] < HUGE_VAL;
    return is;
}

static double length_off(const float *o, const struct ha_ref_state *want)
{
    double squares = 0;
    for (size_t i = 0; i < want->dim; i++) squares += ((double)o[i] - want->o[i]) * ((double)o[i] - want->o[i]);
    return sqrt(squares);
}

static void suspected(struct tally *t, const char *name, const struct problem *p, const struct ha_chances *c)
{
    if (!c->rows) return;
    t->rms = fmax(t->rms, ha_chances_rms(c));
    t->p = fmin(t->p, ha_chances_p(c));
    if (ha_chances_p(c) * asked >= suspect) return;
    t->suspects++;
    alarm_of(t, name, p, 0, "suspect, p", ha_chances_p(c));
}

static const struct ha_profile ours = { 8, 31, 32, 31, 2 * 0x1p-24, 2 * 0x1p-24, .exact_joins = true };

static struct ha_ref_state answer(const struct ha_test_input *in, const struct ha_profile *p, size_t runs,
                                  struct ha_chance *chance)
{
    static float work[2 * KEYS_MOST];
    const struct ha_bound b = ha_bound_attend(p, in->dim, in->keys, runs);
    const struct ha_ref_state want = ha_test_attend(in, &in->rows, &b);
    if (chance) *chance = ha_ref_chance(in->q, in->dim, (double)in->scale, &in->rows, in->dtype, &b, &want, work, NULL);
    return want;
}

/* One row. false: it is not for a judge. */
static bool row_judge(struct tally *t, const char *name, const struct problem *p, size_t r,
                      const struct ha_profile *profile, size_t runs, float *o, float lse, struct ha_chances *c)
{
    const struct ha_test_input *in = &p->row[r];
    struct ha_why why;
    struct ha_chance chance;
    size_t at;
    if (profile->lse_type != HA_F32 && !isfinite(ha_round(lse, profile->lse_type))) return false;
    const struct ha_ref_state want = answer(in, profile, runs, &chance);
    if (want.may_overflow) return false;
    for (size_t i = 0; i < in->dim; i++) o[i] = ha_round(o[i], profile->out_type);
    const double ratio = ha_ref_ratio(o, lse, &want, &at);
    t->ratio = fmax(t->ratio, ratio);
    if (!(ratio <= 1)) alarm_of(t, name, p, r, at == in->dim ? "LSE, error / bound" : "o, error / bound", ratio);
    if (!bounded(&want)) alarm_of(t, name, p, r, "no bound", HUGE_VAL);
    if (!ha_ref_fits(o, in->dim, lse, profile, &at)) alarm_of(t, name, p, r, "not of its type", (double)lse);
    if (ha_claims_attend(name, profile, in->dim, in->keys, runs, &why) != HA_OK)
        alarm_of(t, why.text, p, r, "refused", 0);
    ha_chances_add(c, (double)lse - want.lse, length_off(o, &want), &chance);
    if (r || !p->sense) return true;
    const bool fast = profile->log_eps > 0x1p-20 || profile->exp_eps > 0x1p-16; /* as it was seen to be */
    const struct ha_profile usual = ha_profile_usual(profile, &ours, fast ? profile->exp_eps : (double)NAN,
                                                     fast ? profile->log_eps : (double)NAN);
    const struct ha_ref_state beside = answer(in, &usual, runs, NULL);
    const struct ha_ref_sense by = ha_ref_sensitivity(&want), than = ha_ref_sensitivity(&beside);
    t->sensitivities++;
    if (!(ha_ref_insensitivity(&by, &than) <= HA_SENSE_MOST))
        alarm_of(t, name, p, r, "insensitive, times", ha_ref_insensitivity(&by, &than));
    return true;
}

static void finish(struct tally *t, const char *name, const struct problem *p, size_t rows, const struct ha_chances *c)
{
    t->rows += rows;
    t->cases += rows > 0;
    t->unjudged += rows == 0;
    suspected(t, name, p, c);
}

static void judge_method(size_t which, const struct problem *p)
{
    static uint32_t order[KEYS_MOST];
    const struct ha_test_method *m = &judged.method[which];
    struct ha_profile profile = ha_test_method_profile(m, p->in.dtype);
    struct ha_chances c = { 0 };
    size_t rows = 0, end[HA_RUNS_MAX];
    profile.out_type = p->out;
    for (uint32_t j = 0; j < p->in.keys; j++) order[j] = j;
    for (size_t r = 0; r < p->rows; r++) {
        float o[HA_TEST_DIM_MAX];
        for (size_t i = 0; i < p->runs; i++) end[i] = p->row[r].keys * p->end[i] / 64;
        const float lse = ha_test_fp32_attend(m, &p->row[r], order, end, p->runs, o);
        rows += row_judge(&judged.of_method[which], m->name, p, r, &profile, p->runs, o, lse, &c);
    }
    finish(&judged.of_method[which], m->name, p, rows, &c);
}

static void judge_design(size_t which, const struct problem *p)
{
    const struct ha_test_design *d = &judged.design[which];
    struct ha_profile profile = ha_test_design_profile(d, p->in.dtype);
    struct ha_chances c = { 0 };
    size_t rows = 0;
    profile.out_type = p->out;
    for (size_t r = 0; r < p->rows; r++) {
        float o[HA_TEST_DIM_MAX];
        const float lse = ha_test_design_attend(d, &p->row[r], p->row[r].q, p->row[r].keys, o);
        rows += row_judge(&judged.of_design[which], d->name, p, r, &profile, 1, o, lse, &c);
    }
    finish(&judged.of_design[which], d->name, p, rows, &c);
}

/* ---- split KV: sides of their own, one of which may have no keys, merged ----------------------------------------- */

struct side {
    struct ha_ref_state want;
    struct ha_chance chance;
    struct ha_test_stored got;
};

static struct side attend_side(const struct ha_test_method *m, const struct ha_test_input *in, size_t first,
                               size_t last)
{
    static uint32_t order[KEYS_MOST];
    const size_t keys = last - first;
    struct side s = { .got = { .lse = -INFINITY } };
    struct ha_test_input part = *in;
    const struct ha_profile profile = ha_test_method_profile(m, HA_F32);
    for (uint32_t j = 0; j < keys; j++) order[j] = j;
    part.keys = part.rows.keys = keys;
    part.k += first * in->dim;
    part.v += first * in->dim;
    part.rows.k = (const char *)part.rows.k + first * part.rows.k_stride_bytes;
    part.rows.v = (const char *)part.rows.v + first * part.rows.v_stride_bytes;
    s.want = answer(&part, &profile, 1, &s.chance);
    if (keys) s.got.lse = ha_test_fp32_attend(m, &part, order, &keys, 1, s.got.o);
    return s;
}

static void judge_sides(const struct problem *p)
{
    struct ha_chances c[MERGES_MOST] = { { 0 } };
    const size_t dim = p->in.dim, sides = p->runs < SIDES_MOST ? p->runs : SIDES_MOST;
    size_t rows[MERGES_MOST] = { 0 };
    if (dim > HA_TEST_MERGE_DIM || sides < 2) return;
    for (size_t r = 0; r < p->rows; r++) {
        struct ha_ref_state states[SIDES_MOST];
        struct ha_chance chances[SIDES_MOST];
        struct ha_test_stored got[SIDES_MOST], merged;
        bool overflow = false;
        for (size_t i = 0; i < sides; i++) {
            const size_t keys = p->row[r].keys, last = i + 1 < sides ? keys * p->end[i] / 64 : keys;
            const struct side s = attend_side(&judged.method[3], &p->row[r], i ? keys * p->end[i - 1] / 64 : 0, last);
            overflow = overflow || s.want.may_overflow;
            states[i] = s.want;
            chances[i] = s.chance;
            got[i] = s.got;
        }
        for (size_t w = 0; w < ha_test_merge_methods && !overflow; w++) {
            const struct ha_test_merge_method *way = &ha_test_merge_method[w];
            struct tally *t = &judged.of_side[w];
            if (way->form != HA_FORM_NATURAL && way->form != HA_FORM_DIRECT) continue; /* attention leaves others */
            const struct ha_merge_bound b = ha_test_merge_bound(way, p->out);
            struct ha_ref_state want = ha_test_state(dim);
            size_t at;
            ha_ref_merge(states, sides, &b, &want);
            ha_test_fp32_merge(way, got, sides, dim, p->out, &judged.flaw, &merged);
            const double ratio = ha_ref_ratio(merged.o, merged.lse, &want, &at);
            t->ratio = fmax(t->ratio, ratio);
            if (!(ratio <= 1)) alarm_of(t, way->name, p, r, at == dim ? "split, LSE" : "split, o", ratio);
            const struct ha_chance both = ha_ref_chance_merge(chances, states, sides, &b, &want,
                                                              (double[SIDES_MOST]){ 0 });
            ha_chances_add(&c[w], (double)merged.lse - want.lse, length_off(merged.o, &want), &both);
            rows[w]++;
        }
    }
    for (size_t w = 0; w < ha_test_merge_methods; w++)
        finish(&judged.of_side[w], ha_test_merge_method[w].name, p, rows[w], &c[w]);
}

/* ---- merges of states that are given ----------------------------------------------------------------------------- */

static bool same_lses(const struct ha_test_stored *a, const struct ha_test_stored *b, size_t count)
{
    size_t k = 0;
    while (k < count && a[k].lse <= b[k].lse && a[k].lse >= b[k].lse && a[k].sum <= b[k].sum && a[k].sum >= b[k].sum)
        k++;
    return k == count;
}

static void judge_merges(const struct problem *p)
{
    enum { MOST = 200, ROWS = 4 };
    static struct ha_test_stored states[ROWS][MOST];
    static struct ha_ref_state want[MOST];
    static double o[MOST][2][HA_TEST_MERGE_DIM], work[MOST];
    static const struct ha_chance exact[MOST];
    struct dice d = { ha_rng_bits(p->seed, p->index, 1), 0 };
    const size_t count = number(&d, one_in(&d, 50)  ? MOST
                                    : one_in(&d, 4) ? 33
                                                    : 8),
                 dim = number(&d, 32), lses = below(&d, ha_test_lse_families), os = below(&d, ha_test_o_families);
    const enum ha_dtype t = (enum ha_dtype)below(&d, HA_DTYPE_COUNT);
    for (size_t w = 0; w < ha_test_merge_methods; w++) {
        const struct ha_test_merge_method *way = &ha_test_merge_method[w];
        const struct ha_merge_bound b = ha_test_merge_bound(way, t);
        struct tally *tally = &judged.of_merge[w];
        struct ha_chances c = { 0 };
        size_t rows = 0;
        for (size_t r = 0; r < ROWS && !ha_test_overflows(way, os, count, t); r++, rows++) {
            struct ha_ref_state out = ha_test_state(dim);
            struct ha_test_stored got;
            ha_test_states(states[r], count, dim, way->form, t, lses, os, d.seed + r);
            for (size_t k = 0; k < count; k++)
                want[k] = ha_test_merge_state(&states[r][k], way->form, dim, o[k][0], o[k][1]);
            ha_ref_merge(want, count, &b, &out);
            ha_test_fp32_merge(way, states[r], count, dim, t, &judged.flaw, &got);
            /* weights that are not divided by their sum may take o beyond the type: the least number that rounds to it
             */
            for (size_t i = 0; i < dim && way->form == HA_FORM_DIRECT && t == HA_F16; i++)
                if (isinf(got.o[i])) got.o[i] = copysignf(65520, got.o[i]);
            const struct ha_test_ratio ratio = ha_test_merge_ratio(&got, way->form, &out);
            tally->ratio = fmax(tally->ratio, fmax(ratio.o, ratio.lse));
            if (!(ratio.o <= 1 && ratio.lse <= 1) && tally->alarms++ < 3 && !judged.quiet)
                printf(
                    "ALARM: %s: %g, of the LSE %g: %s LSE, %s o, %zu states, dim %zu, %s, problem %llu of seed %llu\n",
                    way->name, ratio.o, ratio.lse, ha_test_lse_family[lses].name, ha_test_o_family[os].name, count, dim,
                    ha_dtype_name(t), (unsigned long long)p->index, (unsigned long long)p->seed);
            bool again = false; /* rows with the same LSEs are one */
            for (size_t x = 0; x < r; x++) again = again || same_lses(states[x], states[r], count);
            if (again || count < 2) continue;
            const struct ha_chance of = ha_ref_chance_merge(exact, want, count, &b, &out, work);
            const double lse = way->form == HA_FORM_MAX_SUM
                                   ? (double)got.lse - out.max + log((double)got.sum / out.sum)
                                   : (double)got.lse * (way->form == HA_FORM_BASE2 ? log(2) : 1) - out.lse;
            ha_chances_add(&c, lse, length_off(got.o, &out), &of);
        }
        finish(tally, way->name, p, rows, &c);
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static void judge(uint64_t seed, uint64_t first, uint64_t count)
{
    static struct problem p;
    for (uint64_t i = first; i < first + count; i++) {
        draw(&p, seed, i);
        for (size_t m = 0; m < ha_test_methods; m++) judge_method(m, &p);
        for (size_t d = 0; d < ha_test_designs; d++) judge_design(d, &p);
        judge_sides(&p);
        judge_merges(&p);
        release(&p);
    }
}

static uint64_t alarms(void)
{
    uint64_t n = 0;
    for (size_t i = 0; i < METHODS_MOST; i++)
        n += judged.of_method[i].alarms + judged.of_design[i].alarms + judged.of_side[i].alarms
             + judged.of_merge[i].alarms;
    return n;
}

static void add(struct tally *all, const struct tally *t)
{
    all->cases += t->cases;
    all->rows += t->rows;
    all->unjudged += t->unjudged;
    all->sensitivities += t->sensitivities;
    all->alarms += t->alarms;
    all->ratio = fmax(all->ratio, t->ratio);
    all->rms = fmax(all->rms, t->rms);
    all->p = fmin(all->p, t->p);
}

static void print(const char *kind, const char *name, const struct tally *t)
{
    if (t->cases)
        printf("%-8s%-52s%11llu%12llu%10llu%9llu%8.3f%7.2f%9.2g%7llu\n", kind, name, (unsigned long long)t->cases,
               (unsigned long long)t->rows, (unsigned long long)t->unjudged, (unsigned long long)t->sensitivities,
               t->ratio, t->rms, t->p, (unsigned long long)t->alarms);
}

static int designs(uint64_t count, uint64_t seed, uint64_t first)
{
    struct tally all = { .p = 1 };
    reset();
    judge(seed, first, count);
    printf("%-60s%11s%12s%10s%9s%8s%7s%9s%7s\n", "", "cases", "rows", "unjudged", "sense", "err/b", "rms", "least p",
           "alarms");
    for (size_t i = 0; i < ha_test_methods; i++) print("", ha_test_method[i].name, &judged.of_method[i]);
    for (size_t i = 0; i < ha_test_designs; i++) print("", ha_test_design[i].name, &judged.of_design[i]);
    for (size_t i = 0; i < ha_test_merge_methods; i++) print("split", ha_test_merge_method[i].name, &judged.of_side[i]);
    for (size_t i = 0; i < ha_test_merge_methods; i++)
        print("merge", ha_test_merge_method[i].name, &judged.of_merge[i]);
    for (size_t i = 0; i < METHODS_MOST; i++) {
        add(&all, &judged.of_method[i]);
        add(&all, &judged.of_design[i]);
        add(&all, &judged.of_side[i]);
        add(&all, &judged.of_merge[i]);
    }
    print("", "all", &all);
    return alarms() > 0;
}

/* Bounds are not far too large; nothing is unlikely, and what chance makes of roundings is not far too large either. */
static void tight(const struct tally *t, uint64_t cases, bool chance)
{
    assert_true(t->cases > cases);
    assert_true(t->ratio > 0.05 && t->rms < 1 && t->p >= 1 && (!chance || t->rms > 0.2));
}

/* Roundings of operands and of scores are no chance that is known. */
static bool chance_is_known(const struct ha_profile *p) { return !(p->operand_eps > 0) && p->logit_type == HA_F32; }

TEST(nothing_honest_is_alarming)
{
    reset();
    judge(1, 0, test_small ? 60 : 400);
    if (alarms()) fail_msg("%llu alarms", (unsigned long long)alarms());
    for (size_t i = 0; i < ha_test_methods; i++) tight(&judged.of_method[i], test_small ? 40 : 350, true);
    for (size_t i = 0; i < ha_test_designs; i++)
        tight(&judged.of_design[i], test_small ? 40 : 340, chance_is_known(&judged.design[i].profile));
    for (size_t i = 0; i < ha_test_merge_methods; i++) {
        assert_true(judged.of_merge[i].cases > (test_small ? 20 : 200));
        assert_true(judged.of_merge[i].rms < 0.75 && judged.of_merge[i].p >= 1);
        assert_true(judged.of_side[i].rms < 0.75 && judged.of_side[i].p >= 1);
    }
}

/* The same loop over what is not honest: wrong arithmetic, and claims that are not kept. */
TEST(what_is_planted_is_an_alarm)
{
    reset();
    judged.quiet = true;
    judged.method[0].plant.lost = 1;
    judged.method[1].plant.exp_off = 0x1p-12f;
    judged.method[2].plant.exp_wave = 0x1p-14f;
    judged.design[0].profile.exp_eps = 0x1p-16;    /* over many keys */
    judged.design[5].profile.join_keys = UINT_MAX; /* and joins 32 at a time */
    judged.design[8].profile.sum_extra = 4096;
    judged.design[12].profile.log_eps = -0x1p-20;
    judged.flaw.sum = 64;
    judge(1, 0, test_small ? 60 : 250);
    const bool few = test_small;
    assert_true(judged.of_method[0].alarms && judged.of_method[1].alarms && judged.of_method[2].alarms);
    assert_true(judged.of_method[2].suspects || few);
    assert_true(judged.of_design[0].alarms || few);
    assert_true(judged.of_design[8].alarms && judged.of_design[12].alarms);
    for (size_t i = 3; i < ha_test_methods; i++) assert_int_equal(judged.of_method[i].alarms, 0);
    for (size_t w = 0; w < ha_test_merge_methods; w++)
        if (ha_test_merge_method[w].way != HA_TEST_ONLINE) assert_true(judged.of_merge[w].alarms > 0);
    reset();
}

TEST_MAIN
{
    if (argc > 3 && !strcmp(argv[1], "designs"))
        return designs(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10),
                       argc > 4 ? strtoull(argv[4], NULL, 10) : 0);
    return test_all("tests", NULL, NULL);
}
