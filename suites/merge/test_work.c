/* Axes name one task; tasks on several threads give the cells of one; subjects that refuse, err or are wrong get what
 * they deserve, at the first task that shows it. */

#include "harness/base/registry.h"
#include "harness/base/test.h"
#include "harness/engine/plan.h"
#include "kernels/c/ops.h"
#include "suites/merge/point.h"
#include "suites/merge/work.h"

#include <math.h>
#include <sched.h>

static struct ha_why why;

enum { ITEMS_MAX = 64, SOURCES_MAX = 4 };
static const struct ha_merge_traits two_pass = {
    .forms = 15,
    .dtypes = 7,
    .aliases = 7,
    .lse_order = HA_LSE_ANY,
    .o_strides = true,
    .plus_inf = true,
    .exp_eps = 0x1p-23,
    .log_eps = 0x1p-23,
};

/* ---- ids ----------------------------------------------------------------------------------- */

static bool same_task(const struct ha_merge_task *a, const struct ha_merge_task *b)
{
    const struct ha_merge_axes x = ha_merge_axes_of(a, a->row), y = ha_merge_axes_of(b, b->row);
    return a->c == b->c && a->shape.plus_inf == b->shape.plus_inf && !memcmp(&x, &y, sizeof x);
}

static size_t case_of(const char *name)
{
    for (size_t i = 0; i < HA_MERGE_CASES; i++)
        if (!strcmp(ha_merge_cases[i].name, name)) return i;
    fail_msg("there is no case %s", name);
    return 0;
}

static struct ha_merge_axes any(uint64_t seed) { return (struct ha_merge_axes){ .seed = seed, .row = HA_ROW_ANY }; }

/* of every case */
static void add_cases(struct ha_merge_tasks *tasks, const struct ha_merge_axes *only)
{
    for (size_t i = 0; i < HA_MERGE_CASES; i++) assert_int_equal(ha_merge_tasks_of_case(tasks, i, only, &why), HA_OK);
}

/* the only one that the axes leave */
static struct ha_merge_task task_of(size_t item, const struct ha_merge_axes *axes)
{
    struct ha_merge_tasks tasks = { 0 };
    assert_int_equal(ha_merge_tasks_of_case(&tasks, item, axes, &why), HA_OK);
    assert_int_equal(tasks.count, 1);
    const struct ha_merge_task t = tasks.task[0];
    ha_merge_tasks_free(&tasks);
    return t;
}

TEST(axes_name_their_task)
{
    const struct ha_merge_axes all = any(3);
    struct ha_merge_tasks tasks = { 0 };
    add_cases(&tasks, &all);
    assert_true(tasks.count > 2000);
    for (size_t i = 0; i < tasks.count; i++) {
        struct ha_merge_task *t = &tasks.task[i];
        const size_t rows = t->shape.tokens * t->shape.heads, row = i % 2 ? i % rows : SIZE_MAX;
        const struct ha_merge_axes axes = ha_merge_axes_of(t, row);
        assert_true(ha_merge_axes_whole(&axes));
        const struct ha_merge_task again = task_of(t->item, &axes);
        t->row = row;
        assert_true(same_task(t, &again));
        assert_int_equal(t->item, again.item);
        assert_true(t->shape.states >= 1 && t->shape.states <= 512);
    }
    ha_merge_tasks_free(&tasks);
}

TEST(axes_name_their_random_task)
{
    const struct ha_merge_axes all = any(5);
    for (size_t k = 0; k < HA_MERGE_RANDOM; k++)
        for (uint64_t i = 0; i < 100; i++) {
            struct ha_merge_task t = ha_merge_random_task(k, &all, i);
            const size_t row = i % 2 ? (size_t)i % (t.shape.tokens * t.shape.heads) : SIZE_MAX;
            const struct ha_merge_axes axes = ha_merge_axes_of(&t, row);
            size_t fit = 0;
            t.row = row;
            for (size_t other = 0; other < HA_MERGE_RANDOM; other++) {
                if (!ha_merge_random_fits(other, &axes)) continue;
                const struct ha_merge_task again = ha_merge_random_task(other, &axes, 0);
                assert_true(same_task(&t, &again));
                fit++;
            }
            assert_int_equal(fit, 1);
        }
}

TEST(seeds_follow_from_the_first)
{
    const struct ha_merge_axes one = any(1), two = any(2);
    struct ha_merge_tasks a = { 0 }, b = { 0 };
    add_cases(&a, &one);
    add_cases(&b, &two);
    assert_int_equal(a.count, b.count);
    for (size_t i = 0; i < a.count; i++) assert_true(a.task[i].seed != b.task[i].seed);
    assert_true(ha_merge_random_task(0, &one, 0).seed != ha_merge_random_task(0, &two, 0).seed);
    ha_merge_tasks_free(&a);
    ha_merge_tasks_free(&b);
}

static struct ha_merge_point point_of(const char *id)
{
    const struct ha_suite *suite;
    struct ha_merge_point p;
    if (ha_id_parse(id, &suite, &p, sizeof p, &why) != HA_OK) fail_msg("%s: %s", id, why.text);
    return p;
}

/* ---- jobs ---------------------------------------------------------------------------------- */

static struct ha_merge_source function(const char *name, void (*merge)(const struct ha_merge *),
                                       const struct ha_merge_traits *traits)
{
    struct ha_merge_source s = { .kind = HA_FROM_FUNCTION, .merge = merge, .traits = *traits };
    snprintf(s.name, sizeof s.name, "%s", name);
    return s;
}
static struct ha_merge_source defect(const char *name)
{
    const size_t i = ha_merge_defect_index(name);
    assert_true(i < HA_MERGE_DEFECTS);
    return function(name, ha_merge_defects[i].merge, &two_pass);
}

static struct ha_merge_task from_list(void *arg, size_t i) { return ((struct ha_merge_tasks *)arg)->task[i]; }
/* the stages have tests of their own */
static bool many_states(void *arg, const struct ha_merge_task *t, size_t source)
{
    return (void)arg, (void)source, t->shape.states > 5 || t->c->stage != HA_STAGE_PLAIN;
}

static struct ha_merge_cell cells[2][ITEMS_MAX * SOURCES_MAX];

/* of the cases, on these sources, which are those of the latest call; the cells begin anew */
static struct ha_merge_job job_of(struct ha_merge_source *source, size_t sources, struct ha_merge_cell *cell)
{
    static struct ha_merge_source *list[SOURCES_MAX];
    for (size_t s = 0; s < sources; s++) list[s] = &source[s];
    const struct ha_merge_job job = { .source = list, .sources = sources, .items = HA_MERGE_CASES, .cell = cell };
    assert_true(job.items * sources <= ITEMS_MAX * SOURCES_MAX);
    ha_merge_cells_clear(cell, job.items * sources);
    return job;
}

/* threads: 0: none but this one */
static void run_tasks(const struct ha_merge_job *job, struct ha_merge_task (*task)(void *arg, size_t i), void *arg,
                      size_t count, size_t threads)
{
    struct ha_pool *pool = NULL;
    if (threads) assert_int_equal(ha_pool_create(&pool, HA_TEAM_DEFAULT, threads, &why), HA_OK);
    if (ha_merge_job_run(job, count, task, arg, pool, &why) != HA_OK) fail_msg("%s", why.text);
    if (pool) ha_pool_destroy(pool);
}

/* item: SIZE_MAX: every case */
static struct ha_merge_job run(struct ha_merge_source *source, size_t sources, size_t item,
                               const struct ha_merge_axes *only, size_t threads, struct ha_merge_cell *cell)
{
    struct ha_merge_tasks tasks = { 0 };
    struct ha_merge_job job = job_of(source, sources, cell);
    job.skip = many_states;
    if (item == SIZE_MAX) add_cases(&tasks, only);
    else assert_int_equal(ha_merge_tasks_of_case(&tasks, item, only, &why), HA_OK);
    run_tasks(&job, from_list, &tasks, tasks.count, threads);
    ha_merge_tasks_free(&tasks);
    return job;
}

/* what is compared are runs with each other: rows may be short */
static const struct ha_merge_axes
    base2_f16 = { .form = 1 + HA_FORM_BASE2, .dtype = 1 + HA_F16, .head_dim = 24, .seed = 1, .row = HA_ROW_ANY },
    natural_f32 = { .form = 1 + HA_FORM_NATURAL, .dtype = 1 + HA_F32, .head_dim = 24, .seed = 1, .row = HA_ROW_ANY };

static void same_judgement(const struct ha_judgement *a, const struct ha_judgement *b)
{
    assert_int_equal(a->status, b->status);
    assert_true(a->ratio == b->ratio);
    assert_memory_equal(&a->rows, &b->rows, sizeof *a - offsetof(struct ha_judgement, rows));
}
/* row, element, what was got and wanted, bound, against */
static void same_place(const struct ha_judgement *a, const struct ha_judgement *b)
{
    const size_t first = offsetof(struct ha_judgement, row), behind = offsetof(struct ha_judgement, rows);
    assert_memory_equal(&a->row, &b->row, behind - first);
}

TEST(threads_change_nothing)
{
    struct ha_merge_source source[] = { function("c", ha_c_merge, &two_pass), defect("finite_sentinel"),
                                        defect("both_empty_nan"), defect("nan_dropped") };
    run(source, 4, SIZE_MAX, &base2_f16, 0, cells[0]);
    for (size_t threads = 2; threads < 4; threads++) {
        const struct ha_merge_job job = run(source, 4, SIZE_MAX, &base2_f16, threads, cells[1]);
        for (size_t k = 0; k < job.items * job.sources; k++) {
            const struct ha_merge_cell *a = &cells[0][k], *b = &cells[1][k];
            assert_true(a->runs == b->runs && a->waived == b->waived && a->refused == b->refused
                        && a->errors == b->errors);
            assert_true(a->worst_planted == b->worst_planted);
            assert_int_equal(a->first_bad, b->first_bad);
            same_judgement(&a->j, &b->j);
            same_judgement(&a->bad, &b->bad);
            if (a->first_bad == SIZE_MAX) continue;
            same_place(&a->bad, &b->bad);
            assert_true(same_task(&a->task, &b->task));
            assert_string_equal(a->why.text, b->why.text);
        }
    }
    size_t ran = 0;
    for (size_t i = 0; i < HA_MERGE_CASES; i++) {
        const struct ha_merge_cell *right = &cells[1][i * 4];
        ran += right->runs > 0;
        if (right->runs && ha_merge_cases[i].stage == HA_STAGE_PLAIN)
            assert_int_equal(ha_merge_cell_status(right), HA_OK);
        if (right->runs && ha_merge_cases[i].must == HA_MUST_FAIL)
            assert_true(right->worst_planted > 1 && right->worst_planted < HUGE_VAL);
    }
    assert_true(ran > 30);
    assert_int_equal(ha_merge_cell_status(&cells[1][case_of("both_low") * 4 + 1]), HA_FAIL);
    assert_int_equal(ha_merge_cell_status(&cells[1][case_of("all_empty") * 4 + 2]), HA_FAIL);
    assert_int_equal(ha_merge_cell_status(&cells[1][case_of("nan_lse") * 4 + 3]), HA_FAIL);
}

/* The last bit of the first element, or a thousandth of it, each second time. */
static unsigned turns;
static float off;
static void merge_fickle(const struct ha_merge *m)
{
    float *o = m->out.o;
    ha_c_merge(m);
    if (turns++ % 2) o[0] = off > 0 ? o[0] * (1 + off) : nextafterf(o[0], 0);
}

TEST(the_same_twice)
{
    static const struct {
        float off;
        bool varies;
        enum ha_status status;
        const char *says;
    } each[] = {
        { 0, false, HA_FAIL, "the same states gave other bits the second time: row 0, o[0] was " },
        { 0, true, HA_OK, "" },
        { 0x1p-9f, true, HA_FAIL, "" }, /* what varies is within the bounds each time */
    };
    struct ha_merge_axes one = natural_f32;
    const size_t item = case_of("gaps");
    one.order = 1 + HA_ORDER_FLAT;
    one.alias = 1 + HA_ALIAS_NONE;
    one.layout = 1 + HA_LAYOUT_PACKED;
    for (size_t i = 0; i < COUNT(each); i++) {
        struct ha_merge_traits traits = two_pass;
        traits.varies = each[i].varies;
        struct ha_merge_source source[] = { function("fickle", merge_fickle, &traits),
                                            function("c", ha_c_merge, &two_pass) };
        turns = 0;
        off = each[i].off;
        one.states = 2;
        one.tokens = 3;
        one.heads = 4;
        run(source, 2, item, &one, 0, cells[0]);
        const struct ha_merge_cell *fickle = &cells[0][item * 2], *sound = fickle + 1;
        if (ha_merge_cell_status(fickle) != each[i].status)
            fail_msg("%zu: status %d: %s", i, (int)ha_merge_cell_status(fickle), fickle->why.text);
        assert_contains(fickle->why.text, each[i].says);
        assert_int_equal(fickle->again, 12);
        assert_int_equal(fickle->varied, 1);
        assert_int_equal(ha_merge_cell_status(sound), HA_OK);
        assert_int_equal(sound->again, 12);
        assert_int_equal(sound->varied, 0);
    }
}

/* The first task's thread is held up until the other one has gone on to its second task: both sources have been asked
 * in its first then. */
static _Thread_local size_t at; /* the task in hand */
static size_t calls, idle_calls, later_calls;
static struct ha_merge_task noted(void *arg, size_t i) { return from_list(arg, at = i); }
static void merge_late(const struct ha_merge *m)
{
    __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
    if (at && __atomic_load_n(&idle_calls, __ATOMIC_SEQ_CST)) __atomic_fetch_add(&later_calls, 1, __ATOMIC_SEQ_CST);
    while (!at && __atomic_load_n(&later_calls, __ATOMIC_SEQ_CST) == 0) sched_yield();
    ha_c_merge(m);
}
static void merge_nothing(const struct ha_merge *m) { __atomic_fetch_add(&idle_calls, 1, __ATOMIC_SEQ_CST); }

/* Where a failure ends the item, tasks before it that are still at work are asked all the same. */
TEST(the_first_failure_is_kept)
{
    struct ha_merge_source source[] = { function("late", merge_late, &two_pass),
                                        function("nothing", merge_nothing, &two_pass) };
    struct ha_merge_axes flat = natural_f32;
    struct ha_merge_tasks tasks = { 0 };
    const size_t item = case_of("one_hot");
    struct ha_merge_job job = job_of(source, 2, cells[0]);
    job.stop_at_first = true;
    flat.order = 1 + HA_ORDER_FLAT;
    assert_int_equal(ha_merge_tasks_of_case(&tasks, item, &flat, &why), HA_OK);
    run_tasks(&job, noted, &tasks, tasks.count, 2);
    ha_merge_tasks_free(&tasks);
    assert_true(calls > 3 && cells[0][item * 2].first_bad == SIZE_MAX);
    assert_int_equal(cells[0][item * 2 + 1].first_bad, 0);
    assert_int_equal(cells[0][item * 2 + 1].runs, 2); /* the one that failed first, and the one before it */
}

/* An item that failed is not asked for again, not even with the error that is planted in the same task; others are, and
 * whoever is right is. */
TEST(a_failure_ends_the_item)
{
    struct ha_merge_source source[] = { function("c", ha_c_merge, &two_pass),
                                        function("nothing", merge_nothing, &two_pass) };
    const size_t items[] = { case_of("one_hot"), case_of("boundary_token") };
    for (int stop = 0; stop < 2; stop++) {
        struct ha_merge_tasks tasks = { 0 };
        struct ha_merge_job job = job_of(source, 2, cells[0]);
        job.stop_at_first = stop;
        job.skip = many_states;
        for (size_t i = 0; i < COUNT(items); i++)
            assert_int_equal(ha_merge_tasks_of_case(&tasks, items[i], &natural_f32, &why), HA_OK);
        run_tasks(&job, from_list, &tasks, tasks.count, 0);
        ha_merge_tasks_free(&tasks);
        for (size_t i = 0; i < COUNT(items); i++) {
            const struct ha_merge_cell *right = &cells[0][items[i] * 2], *wrong = right + 1;
            assert_true(ha_merge_cell_status(right) == HA_OK && ha_merge_cell_status(wrong) == HA_FAIL);
            assert_true(right->runs > 2);
            assert_int_equal(wrong->runs, stop ? 1 : right->runs);
        }
    }
}

/* The id of a failure, run alone, fails in the same element by as much. */
static void fails_again(struct ha_merge_source *source, const struct ha_merge_cell *bad)
{
    const struct ha_merge_axes axes = ha_merge_axes_of(&bad->task, bad->bad.row);
    struct ha_merge_task t = task_of(bad->task.item, &axes);
    struct ha_merge_tasks one = { &t, 1, 1 };
    const struct ha_merge_job job = job_of(source, 1, cells[1]);
    run_tasks(&job, from_list, &one, 1, 0);
    const struct ha_merge_cell *again = &cells[1][bad->task.item];
    assert_int_equal(again->first_bad, 0);
    assert_true(again->bad.ratio == bad->bad.ratio && again->bad.rows == 1);
    same_place(&again->bad, &bad->bad);
}

TEST(a_failure_names_what_fails_again)
{
    static const char *const names[] = { "finite_sentinel", "both_empty_nan", "missing_rescale", "shift_by_min" };
    for (size_t d = 0; d < 4; d++) {
        struct ha_merge_source source = defect(names[d]);
        size_t seen = 0;
        const struct ha_merge_job job = run(&source, 1, SIZE_MAX, &natural_f32, 2, cells[0]);
        for (size_t i = 0; i < job.items; i++)
            if (cells[0][i].bad.against && ha_merge_cases[i].must != HA_MUST_FAIL) {
                fails_again(&source, &cells[0][i]);
                seen++;
            }
        assert_true(seen > 0);
    }
}

TEST(a_bundle_names_what_fails_again)
{
    const struct ha_merge_axes only = { .form = 1 + HA_FORM_BASE2, .dtype = 1 + HA_BF16, .seed = 4, .row = HA_ROW_ANY };
    bool each[ITEMS_MAX];
    for (size_t i = 0; i < ITEMS_MAX; i++) each[i] = i != case_of("gaps");
    struct ha_merge_bundles bundles = { .only = &only, .asked = each };
    struct ha_merge_source sources[] = { defect("finite_sentinel"), function("c", ha_c_merge, &two_pass) };
    for (size_t s = 0; s < 2; s++) {
        const struct ha_merge_job job = job_of(&sources[s], 1, cells[0]);
        size_t seen = 0;
        run_tasks(&job, ha_merge_bundle_task, &bundles, ha_merge_bundles_count(&bundles), 0);
        for (size_t i = 0; i < job.items; i++) {
            const struct ha_merge_cell *cell = &cells[0][i];
            const struct ha_merge_case *c = &ha_merge_cases[i];
            const enum ha_status st = ha_merge_cell_status(cell);
            if (!cell->runs || (s == 0 && st == HA_OK)) continue;
            if (s) assert_int_equal(st, HA_OK);
            if (s && c->must == HA_MUST_FAIL) assert_true(cell->worst_planted > 1 && cell->worst_planted < HUGE_VAL);
            if (s == 0 && cell->bad.against && c->must != HA_MUST_FAIL) fails_again(&sources[0], cell);
            seen++;
        }
        assert_true(seen > (s ? 30 : 0));
        assert_int_equal(cells[0][case_of("gaps")].runs, 0);
    }
}

/* Rows at random, flat and packed, of the kinds and types that are asked for. */
TEST(random_rows_go_into_bundles)
{
    const struct ha_merge_axes only = any(4);
    bool each[HA_MERGE_RANDOM] = { false };
    struct ha_merge_bundles bundles = { .only = &only, .asked = each, .batches = 2, .heads_first = true };
    struct ha_merge_source c = function("c", ha_c_merge, &two_pass);
    struct ha_merge_job job = job_of(&c, 1, cells[0]);
    each[HA_FORM_BASE2 * HA_DTYPE_COUNT + HA_BF16] = each[5 * HA_DTYPE_COUNT] = true; /* the second is in place */
    run_tasks(&job, ha_merge_bundle_task, &bundles, ha_merge_bundles_count(&bundles), 0);
    for (size_t i = 0; i < HA_MERGE_RANDOM; i++) {
        const bool asked = i == HA_FORM_BASE2 * HA_DTYPE_COUNT + HA_BF16;
        assert_int_equal(cells[0][i].runs, asked ? 2 : 0);
        if (asked) assert_true(cells[0][i].j.status == HA_OK && cells[0][i].j.rows >= 64);
    }
    const struct ha_merge_task t = ha_merge_bundle_task(&bundles, 2 * (HA_FORM_BASE2 * HA_DTYPE_COUNT + HA_BF16));
    assert_true(t.shape.tokens && t.shape.order == HA_ORDER_FLAT && t.shape.layout == HA_LAYOUT_HEADS_FIRST);
}

/* ---- subjects without an answer ------------------------------------------------------------------------ */

TEST(what_a_run_came_to_is_counted)
{
    const struct ha_merge_case may = { .may_reject = true }, must = { .may_reject = false };
    const struct ha_judgement right = { .rows = 1, .exact = 1 },
                              wrong = { .status = HA_FAIL, .ratio = 2, .against = "x", .rows = 1 }, none = { 0 };
    const struct {
        const struct ha_merge_case *c;
        enum ha_status status;
        bool refused;
        const struct ha_judgement *j;
        enum ha_status cell;
        size_t waived, refusals, errors, first_bad;
    } each[] = {
        { &must, HA_OK, false, &right, HA_OK, 0, 0, 0, SIZE_MAX },
        { &must, HA_WAIVED, false, &none, HA_WAIVED, 1, 0, 0, SIZE_MAX },
        { &may, HA_FAIL, true, &none, HA_OK, 0, 1, 0, SIZE_MAX },
        { &must, HA_FAIL, true, &none, HA_FAIL, 0, 0, 0, 7 },
        { NULL, HA_FAIL, true, &none, HA_FAIL, 0, 0, 0, 7 },
        { &may, HA_FAIL, false, &none, HA_FAIL, 0, 0, 0, 7 },
        { &must, HA_ERROR, false, &none, HA_ERROR, 0, 0, 1, 7 },
        { &must, HA_OK, false, &wrong, HA_FAIL, 0, 0, 0, 7 },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        struct ha_merge_cell c;
        const struct ha_merge_task t = { .c = each[i].c };
        const struct ha_why said = { "said" }, silent = { "" }, waiver = { "waived" };
        ha_merge_cells_clear(&c, 1);
        ha_merge_cell_enter(&c, 7, &t, each[i].status, each[i].refused, each[i].j,
                            each[i].status == HA_OK ? &silent : &said);
        assert_int_equal(ha_merge_cell_status(&c), each[i].cell);
        assert_true(c.waived == each[i].waived && c.refused == each[i].refusals && c.errors == each[i].errors);
        assert_int_equal(c.first_bad, each[i].first_bad);
        /* a waiver later on is no reason for a failure now */
        ha_merge_cell_enter(&c, 8, &t, HA_WAIVED, false, &none, &waiver);
        if (each[i].first_bad == 7) assert_string_equal(c.why.text, each[i].status == HA_OK ? "" : "said");
        /* an earlier task takes the place, a later one does not */
        ha_merge_cell_enter(&c, 9, &t, HA_OK, false, &wrong, &silent);
        assert_int_equal(c.first_bad, each[i].first_bad == 7 ? 7 : 9);
        ha_merge_cell_enter(&c, 3, &t, HA_OK, false, &wrong, &silent);
        assert_int_equal(c.first_bad, 3);
        assert_int_equal(ha_merge_cell_status(&c), HA_FAIL);
    }
}

/* right, and writes behind the first row of the result, or over a state */
static void astray(const struct ha_merge *m)
{
    ha_c_merge(m);
    ((float *)m->out.o)[m->dim] = 1;
}
static void over_a_state(const struct ha_merge *m)
{
    ha_c_merge(m);
    for (size_t i = 0; i < m->dim; i++) ((float *)m->states[0].o)[i] = 1;
}

/* Who writes where no result goes is wrong, and the next one has the rows as they were. */
TEST(strays_are_found_and_undone)
{
    const struct ha_merge_axes padded = { .form = 1 + HA_FORM_NATURAL,
                                          .dtype = 1 + HA_F32,
                                          .alias = 1 + HA_ALIAS_NONE,
                                          .layout = 1 + HA_LAYOUT_PADDED,
                                          .seed = 1,
                                          .row = HA_ROW_ANY };
    struct ha_merge_source source[] = { function("astray", astray, &two_pass),
                                        function("over", over_a_state, &two_pass),
                                        function("c", ha_c_merge, &two_pass) };
    const size_t item = case_of("one_hot");
    run(source, 3, item, &padded, 0, cells[0]);
    for (size_t s = 0; s < 3; s++) {
        const struct ha_merge_cell *c = &cells[0][item * 3 + s];
        assert_true(c->runs > 0 && c->refused == 0);
        assert_int_equal(ha_merge_cell_status(c), s < 2 ? HA_FAIL : HA_OK);
        if (s < 2) assert_contains(c->why.text, "wrote where no result goes");
    }
}

TEST(commands_that_do_not_merge)
{
    static const struct {
        const char *command, *id;
        enum ha_status status;
    } each[] = {
        { "exit 3 #", "lse_merge:case=nan_lse,by=exec,form=natural,dtype=f32,states=2,order=flat", HA_ERROR },
        { "exit 3 #", "lse_merge:case=one_hot,by=exec,form=natural,dtype=f32,states=2,order=flat", HA_ERROR },
        { "exit 3 #", "lse_merge:case=base_mix,by=exec,form=natural,dtype=f32,states=2", HA_ERROR },
        { "test $1 = --traits || kill -9 $$ #",
          "lse_merge:case=nan_lse,by=exec,form=natural,dtype=f32,states=2,order=flat", HA_ERROR },
        { "exit 3 #", "lse_merge:case=one_hot,by=exec,form=base2,dtype=f32,states=2", HA_WAIVED },
        { "exit 3 #", "lse_merge:case=one_hot,by=exec,form=natural,dtype=f32,states=2,row=4000", HA_WAIVED },
        /* nor is an error planted in a row that is not there */
        { "exit 3 #", "lse_merge:case=base_mix,by=exec,form=natural,dtype=f32,states=2,row=4000", HA_WAIVED },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        struct ha_merge_source source = {
            .name = "command", .kind = HA_FROM_EXEC, .text = each[i].command, .limit_ns = 5000000000u
        };
        struct ha_merge_point p = point_of(each[i].id);
        p.axes.alias = 1 + HA_ALIAS_NONE;
        p.axes.layout = 1 + HA_LAYOUT_PACKED;
        run(&source, 1, p.item, &p.axes, 0, cells[0]);
        const struct ha_merge_cell *c = &cells[0][p.item];
        assert_int_equal(ha_merge_cell_status(c), each[i].status);
        assert_int_equal(c->refused, 0);
        assert_true(c->why.text[0]);
    }
}
