/* The table is complete and docs/merging.md says the same, every row is what its case says, and the outcomes that the
 * cases demand are those of a merge that is right: the plain one of kernels/c. */

#include "harness/base/numeric.h"
#include "harness/base/registry.h"
#include "harness/base/test.h"
#include "suites/merge/fills.h"
#include "suites/merge/judge.h"
#include "suites/merge/work.h"

extern const struct ha_kernels ha_kernels_c;

enum { STATES_MAX = 512, SEED = 7 };

static void *make(size_t count, size_t bytes)
{
    void *p = calloc(count, bytes);
    if (!p) abort();
    return p;
}

#define expect(ok, t, row, ...)                                                                                        \
    do {                                                                                                               \
        if (!(ok)) {                                                                                                   \
            print_error("%s, %s, %s, %s, %zu states, dim %zu, seed %llu, row %zu: ", (t)->c ? (t)->c->name : "random", \
                        ha_form_name((t)->shape.form), ha_dtype_name((t)->shape.dtype),                                \
                        ha_order_name((t)->shape.order), (t)->shape.states, (t)->shape.dim,                            \
                        (unsigned long long)(t)->seed, row);                                                           \
            fail_msg(__VA_ARGS__);                                                                                     \
        }                                                                                                              \
    } while (0)

static ha_merge_fill *fill_of(const struct ha_merge_task *t) { return t->c ? t->c->fill : ha_random_fill; }

/* ---- rows: each array a block of its own, so that a write past its end is seen by the sanitizer ---------------- */

static struct ha_merge_row row_filled(const struct ha_merge_task *t, size_t index)
{
    const struct ha_merge_shape *s = &t->shape;
    struct ha_merge_row r = {
        .states = s->states, .dim = s->dim, .form = s->form, .dtype = s->dtype, .seed = t->seed, .index = index
    };
    r.o = make(s->states * s->dim, sizeof *r.o);
    r.lse = make(s->states, sizeof *r.lse);
    r.sum = make(s->states, sizeof *r.sum);
    r.whole_o = make(s->dim, sizeof *r.whole_o);
    r.full_o = make(s->dim, sizeof *r.full_o);
    r.full_slack = make(s->dim, sizeof *r.full_slack);
    for (size_t m = 0; m < s->states; m++) r.sum[m] = 1;
    fill_of(t)(&r);
    return r;
}

static void row_free(struct ha_merge_row *r)
{
    free(r->o);
    free(r->lse);
    free(r->sum);
    free(r->whole_o);
    free(r->full_o);
    free(r->full_slack);
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

TEST(test_table)
{
    unsigned seen[48] = { 0 };
    for (size_t i = 0; i < HA_MERGE_CASES; i++) {
        const struct ha_merge_case *c = &ha_merge_cases[i];
        assert_true(c->number >= 1 && c->number <= 47);
        seen[c->number]++;
        assert_true(c->name && c->name[0]
                    && strspn(c->name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(c->name));
        assert_true(c->why && c->why[0] && !strchr(c->why, '\n'));
        assert_non_null(c->fill);
        assert_true((c->must == HA_MUST_FAIL) == (c->plant != NULL));
        assert_true(c->states_min <= c->states_max && c->states_max <= STATES_MAX
                    && (c->states_min > 0) == (c->states_max > 0));
        assert_true(i == 0 || c->number >= c[-1].number);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(c->name, ha_merge_cases[k].name);
    }
    for (unsigned n = 1; n <= 47; n++) assert_true(seen[n] > 0);
    for (size_t i = 0; i < HA_MERGE_DEFECTS; i++) {
        const struct ha_merge_defect *d = &ha_merge_defects[i];
        assert_true(d->does[0] && d->finder[0] && d->merge && d->seen);
        assert_true(d->forms < 1u << HA_FORM_COUNT && d->dtypes < 1u << HA_DTYPE_COUNT);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(d->name, ha_merge_defects[k].name);
        size_t finder = 0;
        while (finder < HA_MERGE_CASES && strcmp(d->finder, ha_merge_cases[finder].name) != 0) finder++;
        if (finder == HA_MERGE_CASES) fail_msg("%s is to be found by %s: no such case", d->name, d->finder);
    }
}

/* ---- the tables of docs/merging.md, where | is written \\| */

static void read_page(char *page, size_t room)
{
    FILE *f = fopen("docs/merging.md", "r");
    assert_non_null(f);
    size_t n = 0;
    for (int c; (c = fgetc(f)) != EOF;) {
        if (c == '\\') continue;
        assert_true(n + 1 < room);
        page[n++] = (char)c;
    }
    page[n] = '\0';
    fclose(f);
}

/* The line of the page that begins so. */
static void find_line(const char *page, const char *begin, char *line, size_t room)
{
    const char *at = strstr(page, begin);
    if (!at) fail_msg("docs/merging.md has no line '%s'", begin);
    else snprintf(line, room, "%.*s", (int)strcspn(at, "\n"), at);
}

TEST(test_page)
{
    static const char *const must[] = { "bound", "exact", "copy", "commute", "must fail" };
    static char page[1 << 16], begin[512], line[2048], end[128], seen[256];
    read_page(page, sizeof page);
    for (size_t i = 0; i < HA_MERGE_DEFECTS; i++) {
        const struct ha_merge_defect *d = &ha_merge_defects[i];
        snprintf(begin, sizeof begin, "\n| `%s` | %s | ", d->name, d->does);
        find_line(page, begin + 1, line, sizeof line);
        snprintf(end, sizeof end, " | `%s` |", d->finder);
        if (!strstr(line, end)) fail_msg("docs/merging.md does not say that %s finds %s", d->finder, d->name);
        snprintf(seen, sizeof seen, "%s", d->seen);
        for (char *rest = seen, *one; (one = strsep(&rest, ", ")) != NULL;)
            if (!strstr(line, one)) fail_msg("docs/merging.md does not say that %s was seen in %s", d->name, one);
    }
    for (size_t i = 0; i < HA_MERGE_CASES; i++) {
        const struct ha_merge_case *c = &ha_merge_cases[i];
        snprintf(begin, sizeof begin, "| %u | `%s` | %s | %s |", c->number, c->name, must[c->must], c->why);
        find_line(page, begin, line, sizeof line);
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* two tokens of weight 1 and 3, one that is masked, one that is not selected */
TEST(test_tokens)
{
    enum { DIM = 5 };
    const struct ha_merge_row r = { .states = 2, .dim = DIM, .seed = SEED, .index = 3 };
    static struct ha_tokens t;
    double o[DIM], v[4][DIM], lse, sum;
    ha_tokens_make(&t, &r, 4, HA_CUT_RANDOM);
    for (size_t j = 0; j < 4; j++) {
        t.score[j] = 0;
        ha_tokens_attend(&t, j, j + 1, false, v[j], &lse, &sum);
        assert_true(lse == 0 && sum == 1);
    }
    t.score[1] = log(3);
    t.score[2] = -HUGE_VAL;
    t.dropped[3] = true;
    ha_tokens_attend(&t, 0, 4, false, o, &lse, &sum);
    assert_true(fabs(lse - log(4)) < 1e-15 && fabs(sum - 4.0 / 3) < 1e-15);
    for (size_t i = 0; i < DIM; i++) assert_true(fabs(o[i] - (v[0][i] + 3 * v[1][i]) / 4) < 1e-15);
    ha_tokens_attend(&t, 0, 4, true, o, &lse, &sum);
    assert_true(fabs(lse - log(5)) < 1e-15);
    for (size_t i = 0; i < DIM; i++) assert_true(fabs(o[i] - (v[0][i] + 3 * v[1][i] + v[3][i]) / 5) < 1e-15);
    ha_tokens_attend(&t, 2, 4, false, o, &lse, &sum);
    assert_true(lse == -HUGE_VAL && sum == 1);
    for (size_t i = 0; i < DIM; i++) assert_true(o[i] == 0);
}

/* the parts that a cut makes of n tokens */
TEST(test_cuts)
{
    static struct ha_tokens t;
    for (size_t states = 1; states <= 40; states++) {
        const struct ha_merge_row r = { .states = states, .dim = 1, .seed = SEED, .index = states };
        for (size_t n = 1; n < 90; n += 4)
            for (int cut = HA_CUT_EVEN; cut <= HA_CUT_EDGE; cut++) {
                ha_tokens_make(&t, &r, n, (enum ha_cut)cut);
                for (size_t m = 1; m < states; m++) assert_true(t.end[m - 1] <= t.end[m]);
                assert_int_equal(t.end[states - 1], n);
                if (cut == HA_CUT_ONES)
                    for (size_t m = 0; m + 1 < states && m < n; m++) assert_int_equal(t.end[m], m + 1);
                if (cut == HA_CUT_EDGE && states > 2) assert_true(t.end[0] == 0 && t.end[1] == 1 && t.end[2] == n);
            }
    }
}

/* Finite, and within the type, but NaN and inf where no keys are, or where the case says so. */
static void check_range(const struct ha_merge_task *t, const struct ha_merge_row *r)
{
    enum { NAN_LSE = 10, NAN_COMPONENT = 11, COPIED = 5, COPIED_BESIDE_EMPTY = 6, FP8 = 47 };
    const unsigned number = t->c ? t->c->number : 0;
    const bool any = !t->c || number == COPIED || number == COPIED_BESIDE_EMPTY || number == FP8;
    const double most = r->dtype == HA_F16 ? 65504 : (double)FLT_MAX;
    for (size_t m = 0; m < r->states; m++) {
        const double l = r->lse[m];
        const bool none = isnan(l) || l == HUGE_VAL; /* the latter is no number, either */
        expect(fabs(l) <= (double)FLT_MAX || l == -HUGE_VAL || (none && (number == NAN_LSE || !t->c)), t,
               (size_t)r->index, "LSE of state %zu is %g", m, l);
        expect(r->sum[m] >= 1 && r->sum[m] <= 0x1p24, t, (size_t)r->index, "sum of state %zu is %g", m, r->sum[m]);
        for (size_t i = 0; l != -HUGE_VAL && i < r->dim; i++) {
            const double o = r->o[m * r->dim + i];
            expect(fabs(o) <= most || any || (isnan(o) && number == NAN_COMPONENT), t, (size_t)r->index,
                   "o[%zu] of state %zu is %g", i, m, o);
        }
    }
}

static bool same(const double *a, const double *b, size_t n) { return memcmp(a, b, n * sizeof *a) == 0; }

/* other: the same row, filled in other memory */
static void check_again(const struct ha_merge_task *t, const struct ha_merge_row *r, const struct ha_merge_row *other)
{
    expect(same(r->o, other->o, r->states * r->dim) && same(r->lse, other->lse, r->states)
               && same(r->sum, other->sum, r->states) && r->whole == other->whole && r->full == other->full
               && r->index == other->index,
           t, (size_t)r->index, "the row is another the second time");
    expect(
        (!r->whole || same(r->whole_o, other->whole_o, r->dim))
            && (!r->full || (same(r->full_o, other->full_o, r->dim) && same(r->full_slack, other->full_slack, r->dim))),
        t, (size_t)r->index, "the whole of the row is another the second time");
}

/* the states merged in binary64 are the whole, and the whole is within the certificate of full attention */
static void check_identity(const struct ha_merge_task *t, const struct ha_merge_row *r)
{
    double max = -HUGE_VAL, sum = 0, most = 1;
    for (size_t m = 0; m < r->states; m++) max = fmax(max, r->lse[m]);
    for (size_t m = 0; m < r->states; m++) sum += exp(r->lse[m] - max);
    const double lse = max + log(sum);
    expect(fabs(lse - r->whole_lse) <= 1e-12 * fmax(1, fabs(lse)), t, (size_t)r->index, "LSE %.17g, whole %.17g", lse,
           r->whole_lse);
    for (size_t i = 0; i < r->dim; i++) {
        double o = 0;
        for (size_t m = 0; m < r->states; m++)
            if (r->lse[m] > -HUGE_VAL) {
                o += exp(r->lse[m] - max) / sum * r->o[m * r->dim + i];
                most = fmax(most, fabs(r->o[m * r->dim + i]));
            }
        /* what exp makes of a rounding of the LSE, too */
        expect(fabs(o - r->whole_o[i]) <= 1e-12 * most * fmax(1, fabs(lse)), t, (size_t)r->index,
               "o[%zu] %.17g, whole %.17g", i, o, r->whole_o[i]);
        if (r->full)
            expect(fabs(r->whole_o[i] - r->full_o[i]) <= r->full_slack[i] + 1e-12, t, (size_t)r->index,
                   "o[%zu] is outside the certificate", i);
        if (t->c && t->c->must == HA_MUST_EXACT)
            expect(r->whole_o[i] == (double)ha_round((float)r->whole_o[i], r->dtype), t, (size_t)r->index,
                   "o[%zu] = %g is no number of the type", i, r->whole_o[i]);
    }
}

/* Rows without keys, rows with nothing but such states, LSEs around 0. */
static size_t special[3];

static void check_row(const struct ha_merge_task *t, const struct ha_merge_row *other)
{
    struct ha_merge_row r = row_filled(t, (size_t)other->index);
    size_t empty = 0;
    for (size_t m = 0; m < r.states; m++) empty += r.lse[m] == -HUGE_VAL;
    for (size_t m = 0; m < r.states; m++) special[2] += fabs(r.lse[m]) < 1e-6;
    special[0] += empty > 0;
    special[1] += empty == r.states;
    check_range(t, &r);
    check_again(t, &r, other);
    if (r.whole) check_identity(t, &r);
    row_free(&r);
}

/* ---- rows merged by kernels/c and judged ------------------------------------------------------------------------- */

/* The worst err/bound of the rows seen since it was set to 0, and the least of those with a planted error. */
static double worst, least_planted;

static void judge_rows(const struct ha_merge_task *t, struct ha_merge_trial *trial)
{
    const bool planted = trial->rows.planted;
    const enum ha_must must = !t->c || (t->c->must == HA_MUST_FAIL && !planted) ? HA_MUST_BOUND : t->c->must;
    for (size_t i = 0; i < trial->batch->calls_count; i++) ha_kernels_c.merge(&trial->batch->calls[i]);
    for (size_t r = 0; r < trial->rows.count; r++) {
        struct ha_judgement j = { .status = HA_OK };
        ha_judge_row(&j, trial->batch, &trial->rows, r, must, &ha_kernels_c.traits);
        if (planted) {
            expect(j.ratio >= 2, t, r, "the planted error shows at a ratio of %g only", j.ratio);
            least_planted = fmin(least_planted, j.ratio);
        } else {
            expect(j.status == HA_OK, t, r, "ratio %g to %s", j.ratio, j.against);
            worst = fmax(worst, j.ratio);
        }
    }
}

/* The first rows of a task are what its case says; all are judged, and once more with the error that is planted. */
static void check_task(const struct ha_merge_task *t, size_t rows)
{
    struct ha_merge_trial trial = { .batch = NULL };
    struct ha_why why;
    assert_int_equal(ha_merge_trial_open(&trial, &t->shape, NULL, &why), HA_OK);
    ha_merge_trial_fill(&trial, t->seed, fill_of(t), NULL);
    for (size_t r = 0; r < rows && r < trial.rows.count; r++) check_row(t, &trial.rows.row[r]);
    judge_rows(t, &trial);
    if (t->c && t->c->plant) {
        ha_merge_rows_plant(&trial.rows, 0, trial.rows.count, t->c->plant);
        ha_merge_rows_again(&trial.rows, trial.batch);
        judge_rows(t, &trial);
    }
    ha_merge_trial_close(&trial);
}

/* Case i as far as `only` allows it; the many states, which cost the most, by turns only. */
static void check_case(size_t i, const struct ha_merge_axes *only)
{
    const struct ha_merge_case *c = &ha_merge_cases[i];
    struct ha_merge_tasks tasks = { 0 };
    struct ha_why why;
    assert_int_equal(ha_merge_tasks_of_case(&tasks, i, only, &why), HA_OK);
    for (size_t k = 0; k < tasks.count; k++) {
        const struct ha_merge_task *t = &tasks.task[k];
        const size_t nth = t->shape.states > 100 ? 16 : t->shape.states > 16 ? 4 : 1;
        if (k % (test_small ? 13 * nth : nth)) continue; /* 13: forms and types take turns */
        /* the rows are the same in every order */
        check_task(t, t->shape.order == HA_ORDER_FLAT || c->orders ? t->shape.tokens * t->shape.heads : 0);
    }
    ha_merge_tasks_free(&tasks);
}

TEST(test_cases)
{
    const struct ha_merge_axes any = { .seed = SEED, .row = HA_ROW_ANY };
    for (size_t i = 0; i < HA_MERGE_CASES; i++) {
        const struct ha_merge_case *c = &ha_merge_cases[i];
        worst = 0;
        least_planted = HUGE_VAL;
        check_case(i, &any);
        print_message("%2u %-20s err/bound %.3g\n", c->number, c->name, worst);
        if (c->plant) print_message("   %-20s err/bound %.3g\n", "its planted error", least_planted);
    }
}

/* with fewer elements than some cases have kinds of */
TEST(test_narrow_rows)
{
    struct ha_merge_axes only = { .form = 1, .order = 1 + HA_ORDER_FLAT, .layout = 1, .seed = SEED, .row = HA_ROW_ANY };
    for (only.head_dim = 1; only.head_dim <= 5; only.head_dim++)
        for (size_t i = 0; i < HA_MERGE_CASES; i++) check_case(i, &only);
}

TEST(test_random)
{
    const struct ha_merge_axes any = { .seed = SEED, .row = HA_ROW_ANY };
    const size_t batches = test_small ? 5 : 40; /* of each kind and type */
    double total = 0;
    worst = 0;
    memset(special, 0, sizeof special);
    for (size_t k = 0; k < HA_MERGE_RANDOM * batches; k++) {
        const struct ha_merge_task t = ha_merge_random_task(k % HA_MERGE_RANDOM, &any, k);
        assert_true(t.shape.states >= 1 && t.shape.states <= 4096 && t.shape.dim >= 1 && t.shape.dim <= 1024);
        total += (double)t.shape.states / (double)(HA_MERGE_RANDOM * batches);
        check_task(&t, 3);
    }
    print_message(
        "random rows: err/bound %.3g, %.2f states on average, %zu with empty states, %zu of them with no other\n",
        worst, total, special[0], special[1]);
    assert_true(total < 100 && special[0] > 0 && special[1] > 0 && special[2] > 0);
}

/* All values of each axis, in not many more batches than there are. */
TEST(random_shapes_have_every_value)
{
    const struct ha_merge_axes any = { .seed = SEED, .row = HA_ROW_ANY };
    for (size_t item = 0; item < HA_MERGE_RANDOM; item++) {
        enum { MOST = 1 << 17 };
        static bool dim[MOST], heads[MOST], tokens[MOST], states[MOST];
        memset(dim, 0, sizeof dim);
        memset(heads, 0, sizeof heads);
        memset(tokens, 0, sizeof tokens);
        memset(states, 0, sizeof states);
        for (uint64_t i = 0; i < 1000; i++) {
            const struct ha_merge_task t = ha_merge_random_task(item, &any, i);
            const struct ha_merge_shape *s = &t.shape;
            assert_true(s->dim < MOST && s->heads < MOST && s->tokens < MOST && s->states < MOST);
            dim[s->dim] = heads[s->heads] = tokens[s->tokens] = states[s->states] = true;
            assert_true(s->dim * s->heads * s->tokens * s->states <= 1 << 22);
        }
        for (size_t x = 1; x <= 576; x++) assert_true(dim[x] || (x % 8 && x > 136));
        for (size_t x = 1; x <= 130; x++) assert_true(heads[x]);
        for (size_t x = 1; x <= 70; x++) assert_true(tokens[x] && states[x]);
        assert_true(heads[513] && tokens[4097] && states[4096] && dim[1024]);
    }
}
