/* The end of a run: the row that stands for a case, what is wrong, what was skipped and why, totals and exit codes. */

#include "harness/engine/summary.h"

#include "harness/report/fake_suite.h"
#include "harness/base/test.h"

#include <math.h>
#include <signal.h>

enum { CASES = 60 };
static struct fake_case cases[CASES];
static struct ha_plan_entry entries[CASES];
static struct ha_plan plan;
static struct ha_folder *folder;
static struct ha_summary summary;

static int open_folder(void **state)
{
    const struct ha_folder_options options = fake_options(NULL, false);
    struct ha_why why = { "" };
    if (ha_folder_open(&folder, &options, &why) != HA_EXIT_OK) fail_msg("%s", why.text);
    for (size_t i = 0; i < CASES; i++) {
        fake_case(&cases[i], i, 0);
        entries[i] = (struct ha_plan_entry){ .suite = &fake_suite, .id = cases[i].id };
    }
    plan = (struct ha_plan){ .entry = entries, .entries = CASES };
    summary = (struct ha_summary){ .plan = &plan, .folder = folder, .measured = true };
    return 0;
}

static int close_folder(void **state)
{
    ha_summary_free(&summary);
    return ha_folder_close(folder, NULL) != HA_OK;
}

static void write_row(size_t n, size_t process, enum ha_verdict verdict, double time_ns, const char *reason)
{
    struct fake_row row = fake_row(n, verdict);
    struct ha_why why = { "" };
    row.time_ns = time_ns;
    snprintf(row.result.reason, sizeof row.result.reason, "%s", reason);
    fake_case(&cases[n], n, process);
    if (ha_folder_row(folder, &cases[n].of, &row, &why) != HA_OK) fail_msg("%s", why.text);
}

static const char *printed(void)
{
    struct ha_why why = { "" };
    assert_true(ha_summary_print(test_print(), &summary, &why));
    return test_printed();
}

/* that everything printed has these words: NULL behind the last */
static void prints(const char *const *words)
{
    const char *text = printed();
    for (; *words; words++) assert_contains(text, *words);
}

static double time_of(size_t n)
{
    const struct ha_results r = ha_summary_results(&summary, &fake_suite);
    const struct fake_row *row = r.entry[n].row;
    assert_non_null(row);
    return row->time_ns;
}

/* A time that is missing in some processes is said, with how many; in all, or in what has not passed, it is not one. */
TEST_WITH(a_time_of_some_processes_is_said, open_folder, close_folder)
{
    for (size_t p = 0; p < 12; p++) {
        write_row(0, p, HA_PASS, p < 7 ? (double)NAN : 5, "");
        write_row(1, p, HA_PASS, (double)NAN, "");
        write_row(2, p, HA_PASS, 5, "");
        write_row(3, p, p ? HA_PASS : HA_VERDICT_WAIVED, p ? 5 : (double)NAN, "");
    }
    assert_int_equal(ha_summary_lost(test_print(), &summary), 1);
    assert_contains(test_printed(), " time_ns: no value in 7 of its 12 processes\n");
    assert_int_equal(test_count(test_print_text, "no value"), 1);
}

/* ---- rows -------------------------------------------------------------------------------------- */

TEST_WITH(the_process_in_the_middle_stands_for_a_case, open_folder, close_folder)
{
    static const double times[] = { 50, 10, 40, 20, 30 };
    for (size_t p = 0; p < 5; p++) write_row(0, p, HA_PASS, times[p], "");
    for (size_t p = 0; p < 4; p++) write_row(1, p, HA_PASS, times[p], ""); /* the lower of two */
    for (size_t p = 0; p < 3; p++) write_row(2, p, HA_PASS, 7, "");        /* all the same */
    static const double twins[] = { 5, 1, 1, 1, 9 };
    for (size_t p = 0; p < 5; p++) write_row(5, p, HA_PASS, twins[p], "");
    write_row(3, 0, HA_PASS, 1, "");
    write_row(3, 1, HA_VERDICT_FAIL, 9, "wrong");
    write_row(3, 2, HA_PASS, 3, "");
    assert_true(time_of(0) == 30 && time_of(1) == 20 && time_of(2) == 7 && time_of(5) == 1);
    assert_true(time_of(3) == 9); /* one that is wrong is not outvoted */
    assert_null(ha_summary_results(&summary, &fake_suite).entry[4].row);
    assert_int_equal(ha_summary_results(&summary, &fake_suite).entries, CASES);
    assert_int_equal(ha_summary_results(&summary, &other_suite).entries, 0);
}

/* Where there is no time, the first figure says which is in the middle. */
TEST_WITH(any_figure_may_stand_for_a_case, open_folder, close_folder)
{
    static const double rate[] = { 3, 1, 2 };
    struct ha_why why = { "" };
    for (size_t p = 0; p < 3; p++) {
        struct fake_row row = fake_row(0, HA_PASS);
        row.time_ns = (double)NAN;
        row.rate_GBps = rate[p];
        row.big = 10 + p; /* another figure, behind */
        fake_case(&cases[0], 0, p);
        if (ha_folder_row(folder, &cases[0].of, &row, &why) != HA_OK) fail_msg("%s", why.text);
    }
    const struct fake_row *row = ha_summary_results(&summary, &fake_suite).entry[0].row;
    assert_true(row->rate_GBps == 2);
}

TEST_WITH(sections_name_the_rows_of_their_suite, open_folder, close_folder)
{
    size_t index[] = { 3, 5 };
    struct ha_plan_section section[] = { { .suite = &other_suite, .of = { .name = "a", .entry = index, .count = 1 } },
                                         { .suite = &fake_suite, .of = { .name = "b", .entry = index, .count = 2 } } };
    for (size_t i = 0; i < CASES; i++) entries[i].suite = i % 2 ? &fake_suite : &other_suite;
    plan.section = section;
    plan.sections = 2;
    const struct ha_results r = ha_summary_results(&summary, &fake_suite);
    assert_int_equal(r.sections, 1);
    assert_string_equal(r.section[0].name, "b");
    assert_int_equal(r.section[0].count, 2);
    assert_string_equal(r.entry[r.section[0].entry[0]].id, cases[3].id);
    assert_string_equal(r.entry[r.section[0].entry[1]].id, cases[5].id);
}

/* ---- what is said ------------------------------------------------------------------------------- */

TEST_WITH(what_is_wrong_says_how_to_rerun, open_folder, close_folder)
{
    write_row(0, 0, HA_PASS, 1, "");
    write_row(1, 0, HA_VERDICT_FAIL, 1, "2 is not 3");
    write_row(2, 0, HA_VERDICT_ERROR, 1, "killed by SIGSEGV");
    prints((const char *const[]){ "\nfail: fake:kind=odd,n=1\n", "2 is not 3", "habench run 'fake:kind=odd,n=1'",
                                  "\nerror: fake:kind=even,n=2\n", "killed by SIGSEGV", NULL });
    assert_null(strstr(printed(), "n=0"));
    summary.measured = false;
    prints((const char *const[]){ "habench check 'fake:kind=odd,n=1'", NULL });
}

/* A file may be called anything. */
TEST_WITH(names_do_not_reach_the_terminal_raw, open_folder, close_folder)
{
    struct fake_row row = fake_row(1, HA_VERDICT_FAIL);
    struct ha_why why = { "" };
    fake_case(&cases[1], 1, 0);
    snprintf(cases[1].id, sizeof cases[1].id, "fake:note=\033[31mred");
    if (ha_folder_row(folder, &cases[1].of, &row, &why) != HA_OK) fail_msg("%s", why.text);
    const char *text = printed();
    assert_int_equal(test_count(text, "[31mred"), 2);
    assert_null(strchr(text, '\033'));
}

TEST_WITH(hundreds_of_wrong_cases_do_not_hide_the_rest, open_folder, close_folder)
{
    for (size_t i = 0; i < CASES - 1; i++) write_row(i, 0, HA_VERDICT_FAIL, 1, "wrong");
    write_row(CASES - 1, 0, HA_VERDICT_WAIVED, 1, "too large");
    const char *text = printed();
    assert_int_equal(test_count(text, "\nfail: "), 40);
    assert_contains(text, "\nand 19 more");
    assert_contains(text, "too large");
}

TEST_WITH(a_reason_of_several_cases_is_said_once, open_folder, close_folder)
{
    for (size_t i = 0; i < 4; i++) write_row(i, 0, HA_VERDICT_WAIVED, 1, "no such instruction");
    write_row(4, 0, HA_VERDICT_WAIVED, 1, "no BLAS");
    write_row(5, 0, HA_UNCHECKED, 1, "computes nothing");
    write_row(6, 0, HA_UNCHECKED, 1, "no BLAS");
    assert_int_equal(test_count(printed(), "no such instruction"), 1);
    prints((const char *const[]){ "waived: 4 x no such instruction", "waived: 1 x no BLAS",
                                  "unchecked: 1 x computes nothing", "unchecked: 1 x no BLAS", NULL });
}

/* Of a run that measures; a check has no such table. */
TEST_WITH(a_suite_that_says_what_was_waived_is_not_repeated, open_folder, close_folder)
{
    struct ha_suite says = fake_suite;
    says.says_waived = true;
    for (size_t i = 0; i < CASES; i++) entries[i].suite = &says;
    write_row(0, 0, HA_VERDICT_WAIVED, 1, "no BLAS");
    write_row(1, 0, HA_UNCHECKED, 1, "computes nothing");
    assert_null(strstr(printed(), "no BLAS"));
    prints((const char *const[]){ "unchecked: 1 x computes nothing", NULL });
    summary.measured = false;
    prints((const char *const[]){ "waived: 1 x no BLAS", NULL });
}

static bool conclude_wrong(FILE *out, const struct ha_results *results, struct ha_why *why) { return false; }
static bool conclude_right(FILE *out, const struct ha_results *results, struct ha_why *why) { return true; }

TEST_WITH(one_suite_that_concludes_wrong_is_enough, open_folder, close_folder)
{
    struct ha_suite suites[2] = { fake_suite, other_suite };
    for (size_t wrong = 0; wrong < 3; wrong++) { /* 2: neither */
        struct ha_why why = { "" };
        for (size_t i = 0; i < 2; i++) suites[i].conclude = i == wrong ? conclude_wrong : conclude_right;
        for (size_t i = 0; i < CASES; i++) entries[i].suite = &suites[i % 2];
        FILE *f = fopen("/dev/null", "we");
        assert_int_equal(ha_summary_print(f, &summary, &why), wrong == 2);
        fclose(f);
    }
}

TEST_WITH(a_damaged_file_is_said_once, open_folder, close_folder)
{
    static char cut[] = "cut.safetensors: it is cut off\033", other[] = "other";
    entries[2].damaged = entries[4].damaged = cut;
    entries[5].suite = &other_suite;
    entries[5].damaged = cut;
    entries[3].damaged = other;
    assert_int_equal(test_count(printed(), "not run: "), 2);
    prints((const char *const[]){ "\nnot run: 3 x cut.safetensors: it is cut off?\n", "\nnot run: 1 x other\n", NULL });
}

/* ---- totals -------------------------------------------------------------------------------------- */

TEST(the_last_line_and_the_exit_code)
{
    static const struct {
        struct ha_folder_totals totals; /* passed, failed, errors, waived, unchecked, not run */
        bool wrong;
        enum ha_exit code;
        const char *line, *says;
    } of[] = {
        { { 3, 0, 0, 0, 0, 0 }, false, HA_EXIT_OK, "3 passed, 0 failed, 0 skipped\n", "" },
        { { 3, 0, 0, 2, 1, 0 }, false, HA_EXIT_OK, "3 passed, 0 failed, 3 skipped\n", "" },
        { { 3, 1, 2, 0, 0, 4 }, false, HA_EXIT_WRONG, "3 passed, 3 failed, 4 skipped\n", "1 of 10 are wrong" },
        { { 3, 0, 2, 0, 0, 4 },
          false,
          HA_EXIT_ENVIRONMENT,
          "3 passed, 2 failed, 4 skipped\n",
          "2 of 9 could not be judged" },
        { { 3, 0, 0, 0, 0, 4 }, false, HA_EXIT_MISSING, "3 passed, 0 failed, 4 skipped\n", "too late: 4 of 7" },
        { { 0, 0, 0, 2, 0, 0 }, false, HA_EXIT_WAIVED, "0 passed, 0 failed, 2 skipped\n", "everything was waived" },
        { { 0, 0, 0, 0, 2, 0 }, false, HA_EXIT_WAIVED, "0 passed, 0 failed, 2 skipped\n", "nothing was checked" },
        { { 3, 0, 0, 0, 0, 0 }, true, HA_EXIT_WRONG, "3 passed, 0 failed, 0 skipped\n", "" },
    };
    for (size_t i = 0; i < COUNT(of); i++) {
        struct ha_why why = { "" };
        ha_summary_print_totals(test_print(), &of[i].totals, NULL);
        assert_string_equal(test_printed(), of[i].line);
        const char *not_run = of[i].totals.not_run ? "too late" : NULL;
        const enum ha_exit code = ha_summary_exit(&of[i].totals, !of[i].wrong, not_run, &why);
        assert_int_equal(code, of[i].code);
        assert_contains(why.text, of[i].says);
    }
    ha_summary_print_totals(test_print(), &of[0].totals, "out-2"); /* the folder that was taken instead */
    assert_string_equal(test_printed(), "3 passed, 0 failed, 0 skipped; in out-2\n");
}
