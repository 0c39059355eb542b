#include "harness/base/test_folder.h"
#include "harness/compare/again.h"
#include "harness/compare/print.h"
#include "harness/compare/test_record.h"
#include "harness/report/test_schema.h"

/* ---- a machine, and two nights of it ----------------------------------------------------------------------------- */

enum { PROCESSES = 12 };

static const struct ha_recorded_figure read_all = { .name = "beside_read_GBps", .unit = "GB/s", .better = HA_MORE },
                                       flops = { .name = "beside_flops_GFLOPps", .unit = "GFLOP/s", .better = HA_MORE },
                                       link_up = { .name = "beside_h2d_GBps", .unit = "GB/s", .better = HA_MORE },
                                       launch = { .name = "beside_launch_ns", .unit = "ns", .better = HA_LESS },
                                       moved = { .name = "h2d_bytes", .unit = "bytes", .better = HA_LESS },
                                       idle = { .name = "gpu_idle", .unit = "", .better = HA_LESS },
                                       error = { .name = "err_over_bound", .unit = "", .better = HA_NEITHER };

/* Some noise that is the same each time: a share of up to 1%. */
static double noise(size_t i) { return 1 + 0.01 * ((double)(i * 7919 % 101) / 101 - 0.5); }

/* What the machine does, and what the code takes of it: 1 is as before, 2 is twice as fast, or as long. */
struct state {
    double clock, memory, link, code;
};

/* Two cases: one that reads memory, and one that moves over the link and reads little. */
static void add_night(struct ha_record *r, const char *name, struct state s)
{
    begin_night(r, name);
    struct ha_recorded_case *cpu = add_case(r, "run", "cpu:ctx=8192"),
                            *offload = add_case(r, "run", "offload:ctx=8192");
    for (size_t i = 0; i < PROCESSES; i++) {
        const size_t p = 100 * (r->nights - 1) + i, n = p + 31 * (size_t)(r->path[0]);
        add_value(r, cpu, &step, p, 1e6 * s.code / s.memory / s.clock * noise(n));
        add_value(r, cpu, &rate, p, 20 / s.code * s.memory * s.clock * noise(n + 1));
        add_value(r, offload, &step, p, 3e6 / s.link * noise(n + 2));
        add_value(r, offload, &moved, p, 4096);
        add_value(r, cpu, &moved, p, 0);
        struct ha_recorded_case *both[] = { cpu, offload };
        for (size_t c = 0; c < 2; c++) {
            add_value(r, both[c], &read_all, p, 30 * s.memory * noise(n + 3));
            add_value(r, both[c], &flops, p, 100 * s.clock * noise(n + 4));
            add_value(r, both[c], &link_up, p, 12 * s.link * noise(n + 5));
            add_value(r, both[c], &launch, p, 900 * noise(n + 6));
        }
    }
}

static const struct state as_before = { 1, 1, 1, 1 };
static struct ha_record base, now;
static struct ha_comparison result;

/* What it came to, as JSON, is what the schema says. */
static void fits_schema(void)
{
    static json_t *schema;
    if (!schema) schema = test_schema_load("results/schema/compare.schema.json");
    ha_compare_print_json(test_print(), &result, 1);
    /* besides, the verdict and the records, of which a first night has one */
    assert_int_equal(test_schema_lines(test_printed(), schema),
                     result.count + result.environments + (base.nights ? 3 : 2));
}

static void compare(void)
{
    assert_int_equal(ha_record_end(&base, &why), HA_OK);
    assert_int_equal(ha_record_end(&now, &why), HA_OK);
    assert_int_equal(ha_compare(&result, &base, &now, &why), HA_OK);
    fits_schema();
}

static void compare_state(struct state s)
{
    begin(&base, "base");
    for (size_t i = 0; i < 4; i++) add_night(&base, "night", as_before);
    begin(&now, "now");
    add_night(&now, "tonight", s);
    compare();
}

static int clean(void **state)
{
    ha_comparison_free(&result);
    ha_record_free(&base);
    ha_record_free(&now);
    return 0;
}

/* The change of a figure of a case; figure NULL: of the case itself. */
static const struct ha_change *change_of(const char *id, const char *figure)
{
    for (size_t i = 0; i < result.count; i++) {
        const struct ha_change *c = &result.change[i];
        const struct ha_recorded_case *of = c->now ? c->now : c->base;
        if (!strcmp(of->id, id) && (figure ? c->figure && !strcmp(c->figure->name, figure) : !c->figure)) return c;
    }
    fail_msg("no change of %s %s", id, figure ? figure : "");
    return NULL;
}

static const char *line_of(const struct ha_change *c)
{
    ha_change_line(test_print(), c);
    return test_printed();
}

static void table_says(const char *part)
{
    ha_compare_print_table(test_print(), &result);
    assert_contains(test_printed(), part);
}

static size_t lines_with(const char *text, const char *a, const char *b)
{
    size_t n = 0;
    for (const char *line = text; *line;) {
        const size_t length = strcspn(line, "\n");
        char copy[4096];
        snprintf(copy, sizeof copy, "%.*s", (int)(length < 4000 ? length : 4000), line);
        n += strstr(copy, a) && strstr(copy, b);
        line += length + (line[length] == '\n');
    }
    return n;
}

#define COMPARE_TEST(name) TEST_WITH(name, NULL, clean)

/* ---- machine or code --------------------------------------------------------------------------------------------- */

COMPARE_TEST(nothing_changed)
{
    compare_state(as_before);
    assert_int_equal(ha_comparison_exit(&result), 0);
    for (size_t i = 0; i < result.count; i++) assert_int_equal(result.change[i].kind, HA_CHANGE_SAME);
    assert_true(result.compared >= 7);
    table_says("nothing changed: 0 changes in");
}

#define CPU     "cpu:ctx=8192"
#define OFFLOAD "offload:ctx=8192"
#define MEMORY  "memory read, all threads"

static const struct {
    struct state s;
    int exit;
    const char *id, *figure;
    enum ha_change_kind kind;
    enum ha_cause cause;
    const char *part, *line; /* NULL: none, or not asked */
} states[] = {
    /* a slower kernel is the code; a faster one is better and fails nothing */
    { { 1, 1, 1, 1.08 }, 30, CPU, "step_ns", HA_CHANGE_WORSE, HA_CAUSE_CODE, NULL, "ms, +8.0%" },
    { { 1, 1, 1, 1.08 }, 30, CPU, "GBps", HA_CHANGE_WORSE, HA_CAUSE_CODE, NULL, CPU " GBps: " },
    { { 1, 1, 1, 1.08 }, 30, CPU, "GBps", HA_CHANGE_WORSE, HA_CAUSE_CODE, NULL, "-7." },
    { { 1, 1, 1, 1.08 }, 30, OFFLOAD, "step_ns", HA_CHANGE_SAME, HA_CAUSE_NONE, NULL, NULL },
    { { 1, 1, 1, 0.9 }, 0, CPU, "step_ns", HA_CHANGE_BETTER, HA_CAUSE_CODE, NULL, "faster, code" },
    { { 1, 1, 1, 0.9 }, 0, CPU, "GBps", HA_CHANGE_BETTER, HA_CAUSE_CODE, NULL, NULL },
    /* slower memory and a capped clock are the machine, which has a line of its own */
    { { 1, 0.9, 1, 1 }, 30, CPU, "step_ns", HA_CHANGE_WORSE, HA_CAUSE_MACHINE, MEMORY, MEMORY " -10" },
    { { 1, 0.9, 1, 1 }, 30, HA_MACHINE_CASE, "beside_read_GBps", HA_CHANGE_WORSE, HA_CAUSE_MACHINE, NULL, NULL },
    { { 0.8, 1, 1, 1 }, 30, CPU, "step_ns", HA_CHANGE_WORSE, HA_CAUSE_MACHINE, "clock of the CPU", NULL },
    /* half a link is the machine of who uses it alone */
    { { 1, 1, 0.5, 1.08 }, 30, OFFLOAD, "step_ns", HA_CHANGE_WORSE, HA_CAUSE_MACHINE, "link, host to device", NULL },
    { { 1, 1, 0.5, 1.08 }, 30, CPU, "step_ns", HA_CHANGE_WORSE, HA_CAUSE_CODE, NULL, NULL },
    { { 1, 0.9, 1, 1.1 }, 30, CPU, "step_ns", HA_CHANGE_WORSE, HA_CAUSE_BOTH, NULL, "more than that" },
};

TEST(the_machine_or_the_code_is_the_cause)
{
    for (size_t i = 0; i < COUNT(states); i++) {
        compare_state(states[i].s);
        const struct ha_change *c = change_of(states[i].id, states[i].figure);
        if (c->kind != states[i].kind || c->cause != states[i].cause) fail_msg("%zu: %s", i, line_of(c));
        assert_int_equal(ha_comparison_exit(&result), states[i].exit);
        if (states[i].part) assert_string_equal(c->part->name, states[i].part);
        if (states[i].line) assert_contains(line_of(c), states[i].line);
        clean(NULL);
    }
}

/* A kernel that is slower beside a machine that is as before: what may it be? */
static const struct {
    const char *build[2], *kernel[2];
    enum ha_cause cause;
    const char *said;
} suspects[] = {
    { { "a", "b" }, { "6.1", "6.1" }, HA_CAUSE_CODE, "slower, code " },
    { { "a", "a" }, { "6.1", "6.2" }, HA_CAUSE_SOFTWARE, "the build is the same; changed besides: kernel" },
    { { "a", "b" }, { "6.1", "6.2" }, HA_CAUSE_UNDECIDED, "changed besides: build, kernel" },
    { { "a", "a" }, { "6.1", "6.1" }, HA_CAUSE_MACHINE, "the build is the same, and no part that is read moved" },
    { { "a-dirty", "a-dirty" }, { "6.1", "6.1" }, HA_CAUSE_CODE, "slower, code " }, /* who knows of which changes */
};

TEST(the_same_build_is_no_cause_and_what_else_changed_is_named)
{
    for (size_t i = 0; i < COUNT(suspects); i++) {
        for (int side = 0; side < 2; side++) {
            struct ha_record *const r = side ? &now : &base;
            begin(r, side ? "now" : "base");
            add_night(r, "night", side ? (struct state){ 1, 1, 1, 1.1 } : as_before);
            strcpy(r->night[0].build, suspects[i].build[side]);
            assert_int_equal(ha_record_add_fact(r, "kernel", suspects[i].kernel[side], &why), HA_OK);
        }
        compare();
        const struct ha_change *c = change_of(CPU, "step_ns");
        if (c->kind != HA_CHANGE_WORSE || c->cause != suspects[i].cause) fail_msg("%zu: %s", i, line_of(c));
        assert_contains(line_of(c), suspects[i].said);
        clean(NULL);
    }
}

/* ---- how many processes ------------------------------------------------------------------------------------------ */

static void begin_both(void)
{
    begin(&base, "base");
    begin(&now, "now");
    begin_night(&base, "a");
    begin_night(&now, "b");
}

/* A figure of a case in as many processes of each. */
static void add_both(const char *id, const struct ha_recorded_figure *f, double before, double after)
{
    for (size_t i = 0; i < PROCESSES; i++) {
        add_value(&base, add_case(&base, "run", id), f, i, before * noise(i));
        add_value(&now, add_case(&now, "run", id), f, i, after * noise(i));
    }
}

static void compare_processes(size_t before, size_t after, double slower)
{
    begin_both();
    for (size_t i = 0; i < before; i++) add_value(&base, add_case(&base, "run", "x:"), &step, i, 1e6 * noise(i));
    for (size_t i = 0; i < after; i++)
        add_value(&now, add_case(&now, "run", "x:"), &step, i, slower * 1e6 * noise(i + 50));
    compare();
}

static const struct {
    size_t processes;
    double slower;
    enum ha_change_kind kind;
    int exit;
    const char *said;
} looks[] = {
    { 5, 1.2, HA_CHANGE_SUSPICIOUS, 20, "habench run 'x:' --processes 10 -o again" },
    { 5, 0.8, HA_CHANGE_PERHAPS_BETTER, 0, "perhaps faster" }, /* which is no mistake, and run again */
    { 5, 0.8, HA_CHANGE_PERHAPS_BETTER, 0, "habench run 'x:' --processes 10 -o again" },
    { 1, 1, HA_CHANGE_UNCLEAR, 20, "nothing can be said" }, /* and that is no success */
};

TEST(few_processes_make_a_suspicion_and_say_what_decides_it)
{
    for (size_t i = 0; i < COUNT(looks); i++) {
        compare_processes(looks[i].processes, looks[i].processes, looks[i].slower);
        assert_int_equal(change_of("x:", "step_ns")->kind, looks[i].kind);
        assert_int_equal(ha_comparison_exit(&result), looks[i].exit);
        assert_int_equal(ha_comparison_blind(&result), looks[i].processes == 1);
        table_says(looks[i].said);
        clean(NULL);
    }
}

/* Without the readings of the same case nobody knows. */
COMPARE_TEST(without_readings_nothing_is_decided)
{
    compare_processes(PROCESSES, PROCESSES, 2);
    assert_int_equal(change_of("x:", "step_ns")->kind, HA_CHANGE_WORSE);
    assert_int_equal(change_of("x:", "step_ns")->cause, HA_CAUSE_UNDECIDED);
    assert_true(result.assumed);
}

/* The machine is read beside its cases: some of these are run again, and those that are anyway read it, too. */
COMPARE_TEST(a_suspicion_of_the_machine_names_cases_that_read_it)
{
    static const char *const id[] = { "none", "a", "b", "c", "d", "e" };
    for (size_t slower = 0; slower < 2; slower++) {
        begin_both();
        for (size_t i = 0; i < 5; i++)
            for (size_t k = 0; k < COUNT(id); k++) {
                const double longer = slower && k == 5 ? 1.3 : 1;
                add_value(&base, add_case(&base, "run", id[k]), &step, i, 1e6 * noise(i + k));
                add_value(&now, add_case(&now, "run", id[k]), &step, i, longer * 1e6 * noise(i + k + 50));
                if (k) add_value(&base, add_case(&base, "run", id[k]), &read_all, i, 30 * noise(i + k));
                if (k) add_value(&now, add_case(&now, "run", id[k]), &read_all, i, 20 * noise(i + k + 9));
            }
        compare();
        assert_int_equal(change_of(HA_MACHINE_CASE, "beside_read_GBps")->kind, HA_CHANGE_SUSPICIOUS);
        assert_int_equal(ha_comparison_exit(&result), 20);
        table_says(slower ? "run 'e' 'a' 'b' --processes" : "run 'a' 'b' 'c' --processes");
        clean(NULL);
    }
}

/* What is read beside one case may be far from what is read beside another: a launch finds its thread awake, or not.
 * Then a night in which one case is run again, or was run alone, is no other machine. */
COMPARE_TEST(what_is_read_beside_one_case_is_held_against_the_same_case)
{
    static const char *const id[] = { "a", "b", "c" };
    static const double usual[] = { 900, 15000, 29000 };
    for (size_t again = 0; again < COUNT(id); again++) {
        begin(&base, "base");
        begin(&now, "now");
        for (size_t night = 0; night < 5; night++) {
            struct ha_record *r = night < 4 ? &base : &now;
            begin_night(r, "a");
            for (size_t k = 0; k < COUNT(id); k++)
                for (size_t i = 0; i < (night == 4 && k == again ? 30 : 5); i++) {
                    const size_t p = 40 * night + i;
                    add_value(r, add_case(r, "run", id[k]), &step, p, 1e6 * noise(p + k));
                    add_value(r, add_case(r, "run", id[k]), &launch, p, usual[k] * noise(p + k + 31 * night));
                }
        }
        compare();
        const struct ha_change *c = change_of(HA_MACHINE_CASE, "beside_launch_ns");
        assert_int_equal(c->processes, 30);
        assert_int_equal(c->kind, HA_CHANGE_SAME);
        assert_in_range((uint64_t)c->median, 14500, 15500);
        clean(NULL);
    }
}

/* ---- what is not there, or not right ----------------------------------------------------------------------------- */

static void add_verdict(struct ha_record *r, const char *id, enum ha_verdict v, const char *reason)
{
    assert_int_equal(ha_record_add_verdict(r, add_case(r, "check", id), "fake", v, reason, &why), HA_OK);
}

static const struct {
    const char *id;
    enum ha_verdict before, after;
    enum ha_change_kind kind;
    int exit;
} verdicts[] = {
    { "wrong", HA_PASS, HA_VERDICT_FAIL, HA_CHANGE_WRONG, 10 },
    { "wrong-as-ever", HA_VERDICT_FAIL, HA_VERDICT_FAIL, HA_CHANGE_WRONG, 10 },
    { "broken", HA_PASS, HA_VERDICT_ERROR, HA_CHANGE_NOT_JUDGED, 20 },
    { "waived", HA_PASS, HA_VERDICT_WAIVED, HA_CHANGE_WAIVED, 20 },
    { "gone", HA_PASS, HA_NOT_RUN, HA_CHANGE_GONE, 20 },
    { "new", HA_NOT_RUN, HA_PASS, HA_CHANGE_ADDED, 0 },
    { "waived-as-ever", HA_VERDICT_WAIVED, HA_VERDICT_WAIVED, HA_CHANGE_SAME, 0 }, /* which is no change */
};

TEST(a_verdict_that_changed_is_as_loud_as_a_time)
{
    for (size_t i = 0; i < COUNT(verdicts); i++) {
        begin_both();
        add_verdict(&base, "fine", HA_PASS, "");
        add_verdict(&now, "fine", HA_PASS, "");
        if (verdicts[i].before) add_verdict(&base, verdicts[i].id, verdicts[i].before, "");
        if (verdicts[i].after) add_verdict(&now, verdicts[i].id, verdicts[i].after, "because");
        compare();
        assert_int_equal(result.count, verdicts[i].kind != HA_CHANGE_SAME);
        if (result.count) assert_int_equal(change_of(verdicts[i].id, NULL)->kind, verdicts[i].kind);
        assert_int_equal(ha_comparison_exit(&result), verdicts[i].exit);
        assert_int_equal(ha_change_loud(&(struct ha_change){ .kind = verdicts[i].kind }), verdicts[i].exit > 0);
        if (verdicts[i].after && verdicts[i].exit) assert_contains(line_of(change_of(verdicts[i].id, NULL)), "because");
        clean(NULL);
    }
}

/* Tenfold is news; threefold is none, nor what grew from nothing to nothing. */
COMPARE_TEST(an_error_grown_fourfold_is_news)
{
    static const double errors[][2] = { { 1e-9, 1e-6 }, { 0.03, 0.1 }, { 0.03, 0.15 } };
    for (size_t i = 0; i < COUNT(errors); i++) {
        clean(NULL);
        begin_both();
        add_value(&base, add_case(&base, "check", "x:"), &error, 0, errors[i][0]);
        add_value(&now, add_case(&now, "check", "x:"), &error, 0, errors[i][1]);
        compare();
        assert_int_equal(ha_comparison_exit(&result), i == 2 ? 30 : 0);
    }
    assert_int_equal(change_of("x:", "err_over_bound")->kind, HA_CHANGE_OTHER_RESULT);
    assert_contains(line_of(&result.change[0]), "other result");
}

/* What a figure of the answer was and is: the exit code, and what is said, of one build and of two. */
static const struct {
    const char *figure, *unit;
    double was, is;
    int exit[2];
    const char *said[2];
} answers[] = {
    { "rel_l2", "", 0.17, 0.17, { 0, 0 }, { "\nnothing changed", "\nnothing changed" } },
    { "rel_l2", "", 0.17, 0.9, { 30, 30 }, { "rel_l2: 0.17 -> 0.9 in 1 of 2", "rel_l2: 0.17 -> 0.9 in 1 of 2" } },
    { "rel_l2", "", 0.17, 0.17000001, { 30, 0 }, { "0.17 -> 0.17000001 in", "\nnothing changed" } },
    { "rel_l2", "", 0.17, 0.16, { 0, 0 }, { "better  ", "better  " } },
    { "rel_l2", "", 1e-7, 4e-7, { 30, 0 }, { "of one build it repeats to the digit", "\nnothing changed" } },
    { "recall", "", 0.4, 0.2, { 30, 30 }, { "other result", "other result" } },
    { "mass_mean", "", 0.8, 0.4, { 30, 30 }, { "to the digit", "more than rounding explains" } },
    { "hit_ratio", "", 0.4, 0.8, { 0, 0 }, { "better  ", "better  " } },
    { "keys_mean", "tokens", 885, 884.875, { 30, 30 }, { "885 tokens -> 884.9 tokens", "884.9 tokens" } },
    { "keys_mean", "tokens", 885, 886, { 30, 30 }, { "other result", "other result" } },
    { "err_over_bound", "", 0.06, 0.3, { 30, 30 }, { "other result", "other result" } },
    { "kv_cpu_bytes", "bytes", 4096, 8192, { 30, 30 }, { "4.096 kB -> 8.192 kB", "other result" } },
    { "process_cpu", "", 1, 2, { 0, 0 }, { "\nnothing changed", "\nnothing changed" } }, /* nobody promises it */
};

COMPARE_TEST(a_result_that_is_another_one_is_said_whatever_it_is)
{
    for (size_t i = 0; i < 2 * COUNT(answers); i++) {
        const bool other = i % 2;
        const struct ha_recorded_figure like = { .name = answers[i / 2].figure,
                                                 .unit = answers[i / 2].unit,
                                                 .better = HA_NEITHER };
        begin_both();
        strcpy(base.night[0].build, "a"), strcpy(now.night[0].build, other ? "b" : "a");
        add_both("x:", &step, 1e6, 1e6);
        for (size_t p = 0; p < 2; p++) {
            add_value(&base, add_case(&base, "run", "y:"), &like, p, answers[i / 2].was);
            add_value(&now, add_case(&now, "run", "y:"), &like, p, p ? answers[i / 2].is : answers[i / 2].was);
        }
        compare();
        if ((int)ha_comparison_exit(&result) != answers[i / 2].exit[other])
            fail_msg("%zu: exit %d", i, ha_comparison_exit(&result));
        ha_compare_print_table(test_print(), &result);
        assert_contains(test_printed(), answers[i / 2].said[other]);
        clean(NULL);
    }
}

/* Of a case whose results differ from process to process, new ones as far apart are no others. */
COMPARE_TEST(a_result_that_does_not_repeat_has_a_range)
{
    static const struct ha_recorded_figure mass = { .name = "mass_mean", .unit = "", .better = HA_NEITHER };
    static const double values[][3] = { { 0.5, 0.6, 0.65 }, { 0.5, 0.6, 0.38 } };
    for (size_t i = 0; i < COUNT(values); i++) {
        begin_both();
        strcpy(base.night[0].build, "a"), strcpy(now.night[0].build, "a");
        add_both("x:", &step, 1e6, 1e6);
        for (size_t p = 0; p < 2; p++) add_value(&base, add_case(&base, "run", "y:"), &mass, p, values[i][p]);
        add_value(&now, add_case(&now, "run", "y:"), &mass, 0, values[i][2]);
        compare();
        assert_int_equal(ha_comparison_exit(&result), i ? 30 : 0);
        clean(NULL);
    }
}

/* One thing that is slower moves many figures: one line says so. */
COMPARE_TEST(what_follows_from_a_change_is_folded_into_it)
{
    static const struct ha_recorded_figure layer = { .name = "layer_ns", .unit = "ns", .better = HA_LESS },
                                           full = { .name = "full_step_ns", .unit = "ns", .better = HA_LESS },
                                           over = { .name = "floor_ns", .unit = "ns", .better = HA_LESS },
                                           mass = { .name = "mass_mean", .unit = "", .better = HA_NEITHER },
                                           recall = { .name = "recall", .unit = "", .better = HA_NEITHER };
    begin_both();
    add_both("resident:", &over, 1e6, 2e6), add_both("resident:", &step, 1e6, 2e6);
    add_both("resident:", &layer, 1e6, 2e6);
    add_both("x:", &full, 1e6, 2e6), add_both("x:", &step, 3e6, 3e6);
    add_both("y:", &step, 3e6, 6e6), add_both("y:", &mass, 1, 0.5), add_both("y:", &recall, 1, 0.5);
    compare();
    assert_int_equal(ha_comparison_loud(&result), 3);
    assert_contains(line_of(change_of("resident:", "step_ns")), "; with it floor_ns");
    assert_true(change_of("x:", "full_step_ns")->folded);
    for (size_t i = 0; i < result.count; i++) /* the same in other words */
        assert_true(!result.change[i].figure || strcmp(result.change[i].figure->name, "layer_ns") != 0);
    assert_contains(line_of(change_of("y:", "mass_mean")), "; with it recall");
    ha_compare_print_table(test_print(), &result);
    assert_contains(test_printed(), "slower: 3 changes in ");
}

/* A time that some processes did not leave. */
COMPARE_TEST(a_time_that_half_of_the_processes_lack_is_missed)
{
    begin_both();
    add_both("x:", &step, 1e6, 1e6);
    for (size_t p = 0; p < 12; p++) {
        add_value(&base, add_case(&base, "run", "y:"), &step, p, 1e6 * noise(p));
        if (p % 2) add_value(&now, add_case(&now, "run", "y:"), &step, p, 1e6 * noise(p));
        else
            assert_int_equal(ha_record_add_verdict(&now, add_case(&now, "run", "y:"), "fake", HA_PASS, "", &why),
                             HA_OK);
        if (!p) continue;
        assert_int_equal(ha_record_add_verdict(&base, add_case(&base, "run", "y:"), "fake", HA_PASS, "", &why), HA_OK);
        if (p % 2)
            assert_int_equal(ha_record_add_verdict(&now, add_case(&now, "run", "y:"), "fake", HA_PASS, "", &why),
                             HA_OK);
    }
    compare();
    assert_int_equal(ha_comparison_exit(&result), 20);
    assert_contains(line_of(change_of("y:", NULL)),
                    "y: step_ns: it has a value in 6 of 12 processes, and had one in each");
}

/* ---- the bits of outputs ----------------------------------------------------------------------------------------- */

static void begin_built(struct ha_record *r, const char *build, const char *driver, const char *kernel)
{
    begin_night(r, "night");
    snprintf(r->night[r->nights - 1].build, sizeof r->night->build, "%s", build);
    assert_int_equal(ha_record_add_fact(r, "device cuda: driver_version", driver, &why), HA_OK);
    assert_int_equal(ha_record_add_fact(r, "kernel", kernel, &why), HA_OK);
    assert_int_equal(ha_record_add_fact(r, "plan", kernel, &why), HA_OK);
}

/* A case in so many processes, each with its digest; NULL: it left none. */
static void add_outputs(struct ha_record *r, const char *plan, const char *const *digest, size_t count)
{
    struct ha_recorded_case *c = add_case(r, "check", "x:");
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(ha_record_add_verdict(r, c, "fake", HA_PASS, "", &why), HA_OK);
        if (digest[i]) assert_int_equal(ha_record_add_outputs(r, c, r->processes + i, digest[i], plan, &why), HA_OK);
    }
    r->processes += count;
}

/* One night with two processes of that build, plan p and driver 1 beside another. */
static void compare_builds(const char *before_build, const char *const *before, const char *build, const char *driver,
                           const char *plan, const char *const *after, size_t count)
{
    begin(&base, "base");
    begin_built(&base, before_build, "1", "6.1");
    add_outputs(&base, "p", before, 2);
    begin(&now, "now");
    begin_built(&now, build, driver, "6.2");
    add_outputs(&now, plan, after, count);
    compare();
}

static void compare_outputs(const char *const *before, const char *build, const char *driver, const char *plan,
                            const char *const *after, size_t count)
{
    compare_builds("b", before, build, driver, plan, after, count);
}

static const char *const as[] = { "a", "a", "a" }, *const bs[] = { "b", "b", "b" }, *const mixed[] = { "a", "b", "a" },
                         *const one[] = { NULL, "a", NULL }, *const none[] = { NULL, NULL, NULL };

COMPARE_TEST(other_bits_of_one_process_are_loud)
{
    compare_outputs(as, "b", "1", "p", mixed, 3);
    const struct ha_change *c = change_of("x:", NULL);
    assert_int_equal(c->kind, HA_CHANGE_OTHER_BITS);
    assert_int_equal(c->bits.others, 1);
    assert_true(ha_change_loud(c));
    assert_int_equal(ha_comparison_exit(&result), 10);
    assert_contains(line_of(c), "other bits");
    assert_contains(line_of(c),
                    "x: (check): the bits of its outputs are b in 1 of 3 processes, and a in all of the base, "
                    "with the same machine, build, plan and input");
}

COMPARE_TEST(a_new_record_that_does_not_agree_needs_no_base)
{
    static const char *const *const before[] = { none, mixed };
    for (size_t i = 0; i < COUNT(before); i++) {
        compare_outputs(before[i], "b", "1", "p", mixed, 3);
        assert_int_equal(change_of("x:", NULL)->kind, HA_CHANGE_OTHER_BITS);
        assert_contains(line_of(change_of("x:", NULL)), "are b in 1 of 3 processes, and a in the first of them");
        clean(NULL);
    }
}

/* Another build, driver or plan computes otherwise; of what was not committed nobody knows what it is. */
COMPARE_TEST(other_bits_of_something_else_are_none)
{
    static const struct {
        const char *const *before, *build, *driver, *plan, *const *after;
    } silent[] = {
        { as, "b", "1", "p", as },   { as, "c", "1", "p", bs },    { as, "b", "2", "p", bs },
        { as, "b", "1", "q", bs },   { mixed, "b", "1", "p", bs }, /* the base says so itself */
        { as, "b", "1", "p", none }, { none, "b", "1", "p", as },  { one, "b", "1", "p", as },
    };
    for (size_t i = 0; i < COUNT(silent); i++) {
        compare_outputs(silent[i].before, silent[i].build, silent[i].driver, silent[i].plan, silent[i].after, 3);
        assert_int_equal(ha_comparison_of(&result, HA_CHANGE_OTHER_BITS), 0);
        assert_int_equal(ha_comparison_exit(&result), 0);
        clean(NULL);
    }
    static const char *const changed[] = { "b-dirty", "unknown", "" };
    for (size_t i = 0; i < COUNT(changed); i++) {
        compare_builds(changed[i], as, changed[i], "1", "p", mixed, 3);
        assert_int_equal(ha_comparison_of(&result, HA_CHANGE_OTHER_BITS), 0);
        clean(NULL);
    }
}

/* The base's case in one mode is not the new one's in another. */
COMPARE_TEST(a_check_is_not_a_run)
{
    begin_both();
    add_verdict(&base, "x", HA_PASS, "");
    add_value(&now, add_case(&now, "run", "x"), &step, 0, 1);
    compare();
    assert_int_equal(ha_comparison_of(&result, HA_CHANGE_GONE), 1);
    assert_int_equal(ha_comparison_of(&result, HA_CHANGE_ADDED), 1);
}

/* A check that was cut off by its time: four cases of it are one line, three are named each, as is one of a run; cases
 * of another suite are another line. */
COMPARE_TEST(cases_that_are_gone_together_are_one_line)
{
    for (int cut = 3; cut <= 5; cut++) {
        begin_both();
        for (int i = 0; i < 6; i++) {
            char id[8];
            snprintf(id, sizeof id, "x%d", i);
            add_verdict(&base, id, HA_PASS, "");
            if (i >= cut) add_verdict(&now, id, HA_PASS, "");
            snprintf(id, sizeof id, "y%d", i);
            assert_int_equal(ha_record_add_verdict(&base, add_case(&base, "check", id), "other", HA_PASS, "", &why),
                             HA_OK);
        }
        add_value(&base, add_case(&base, "run", "x"), &step, 0, 1);
        compare();
        const size_t lines = cut > 3 ? 1 : 3;
        assert_int_equal(ha_comparison_of(&result, HA_CHANGE_GONE), lines + 1 + 1);
        assert_int_equal(ha_comparison_exit(&result), 20);
        char line[96];
        snprintf(line, sizeof line, "gone               x0 and %d more cases of fake (check): they have no row now\n",
                 cut - 1);
        ha_compare_print_table(test_print(), &result);
        if (cut > 3) assert_contains(test_printed(), line);
        else assert_int_equal(lines_with(test_printed(), "gone ", "x"), 3 + 1);
        assert_contains(test_print_text, "y0 and 5 more cases of other (check): they have no row now\n");
        ha_compare_print_json(test_print(), &result, 1);
        assert_int_equal(lines_with(test_printed(), "\"change\":\"gone\"", "\"cases\":"), cut > 3 ? 2 : 1);
        clean(NULL);
    }
}

/* Of records that lack the rows of cases.csv: of both, of the new one, or of five cases, which are one line. */
COMPARE_TEST(figures_without_a_row_are_a_line)
{
    for (int i = 0; i < 3; i++) {
        const struct ha_observation at = { 0, 0, 1 };
        begin_both();
        add_verdict(&base, "x", HA_PASS, "");
        add_verdict(&now, "x", HA_PASS, "");
        for (int n = 0; n < (i == 2 ? 5 : 1); n++) {
            char id[8];
            snprintf(id, sizeof id, "y%d", n);
            assert_int_equal(ha_record_add_value(&now, add_case(&now, "run", id), &step, at, &why), HA_OK);
            if (i == 1)
                assert_int_equal(ha_record_add_value(&base, add_case(&base, "run", id), &step, at, &why), HA_OK);
        }
        compare();
        assert_int_equal(ha_comparison_exit(&result), 20);
        ha_compare_print_table(test_print(), &result);
        assert_contains(
            test_printed(),
            i == 2 ? "gone               y0 and 4 more cases (run): they have figures and no row: a file "
                   : "gone               y0 (run): it has figures and no row: a file of the record is damaged\n");
        ha_compare_print_json(test_print(), &result, 1);
        assert_int_equal(lines_with(test_printed(), "\"change\":\"gone\"", "\"case_id\":\"y0\""), 1);
        clean(NULL);
    }
}

/* ---- what something else disturbed ------------------------------------------------------------------------------- */

enum { BUSY_NIGHTS = 4, BUSY_PROCESSES = 20 };

/* The first of a night's processes had another load beside them, which makes them a fifth slower. */
static void add_busy_night(struct ha_record *r, size_t disturbed, double longer)
{
    begin_night(r, "night");
    struct ha_recorded_case *c = add_case(r, "run", "x:");
    for (size_t i = 0; i < BUSY_PROCESSES; i++) {
        const size_t p = 100 * (r->nights - 1) + i;
        assert_int_equal(ha_record_add_verdict(r, c, "fake", HA_PASS, "", &why), HA_OK);
        if (i < disturbed) assert_int_equal(ha_record_add_disturbed(r, c, p, &why), HA_OK);
        add_value(r, c, &step, p, 1e6 * longer * (i < disturbed ? 1.2 : 1) * noise(p + 31 * (size_t)r->path[0]));
        add_value(r, c, &moved, p, 4096);
    }
}

static const struct {
    size_t base, now; /* disturbed, of the processes of a night */
    double longer;
    enum ha_change_kind kind; /* of the case; HA_CHANGE_SAME: nothing is said of it */
    enum ha_change_kind figure;
    int exit;
    const char *said;
} busy[] = {
    { 0, 0, 1, HA_CHANGE_SAME, HA_CHANGE_SAME, 0, "nothing changed" },
    { 0, 10, 1, HA_CHANGE_SAME, HA_CHANGE_SAME, 0, "now: the times of 10 of 20 rows left out" },
    { 8, 8, 1, HA_CHANGE_SAME, HA_CHANGE_SAME, 0, "base: the times of 32 of 80 rows left out" },
    { 0, 11, 1, HA_CHANGE_DISTURBED, HA_CHANGE_UNCLEAR, 40, "something else used the cores in 11 of its 20 processes" },
    { 0, 20, 1, HA_CHANGE_DISTURBED, HA_CHANGE_UNCLEAR, 40, "not fit to judge" },
    { 11, 0, 1, HA_CHANGE_DISTURBED, HA_CHANGE_UNCLEAR, 40, "in 44 of the base's 80 processes" },
    { 20, 0, 1, HA_CHANGE_DISTURBED, HA_CHANGE_UNCLEAR, 40, "in 80 of the base's 80 processes" },
    { 0, 10, 1.1, HA_CHANGE_SAME, HA_CHANGE_WORSE, 30, "slower" },
    { 0, 12, 1.1, HA_CHANGE_DISTURBED, HA_CHANGE_UNCLEAR, 40, "not fit to judge" }, /* 8 left, which call nothing */
};

TEST(what_something_else_disturbed_is_left_out_and_of_too_little_nothing_is_said)
{
    for (size_t i = 0; i < COUNT(busy); i++) {
        bool said = false;
        begin(&base, "base");
        for (size_t n = 0; n < BUSY_NIGHTS; n++) add_busy_night(&base, busy[i].base, 1);
        begin(&now, "now");
        add_busy_night(&now, busy[i].now, busy[i].longer);
        compare();
        assert_int_equal(ha_comparison_of(&result, HA_CHANGE_DISTURBED), busy[i].kind == HA_CHANGE_DISTURBED);
        struct ha_again again; /* more processes are of use where these were disturbed */
        assert_int_equal(ha_comparison_again(&again, &result, &why), HA_OK);
        if (busy[i].kind == HA_CHANGE_DISTURBED) assert_int_equal(again.count, 2 * busy[i].now > BUSY_PROCESSES);
        free(again.of);
        for (size_t k = 0; k < result.count; k++) {
            const struct ha_recorded_figure *f = result.change[k].figure;
            if (!f || strcmp(f->name, step.name) != 0) continue;
            assert_int_equal(result.change[k].kind, busy[i].figure);
            said = true;
        }
        assert_int_equal(said, busy[i].now < BUSY_PROCESSES && busy[i].base < BUSY_PROCESSES);
        assert_int_equal(change_of("x:", moved.name)->kind, HA_CHANGE_SAME); /* what is counted is */
        assert_int_equal(ha_comparison_exit(&result), busy[i].exit);
        table_says(busy[i].said);
        clean(NULL);
    }
}

/* ---- shares ------------------------------------------------------------------------------------------------------ */

COMPARE_TEST(shares_are_compared_by_points)
{
    begin_both();
    add_both("little", &idle, 0.001, 0.004);
    add_both("much", &idle, 0.10, 0.30);
    add_both("none", &idle, 0, 0);
    compare();
    assert_int_equal(change_of("little", "gpu_idle")->kind, HA_CHANGE_SAME);
    assert_int_equal(change_of("none", "gpu_idle")->kind, HA_CHANGE_SAME);
    assert_int_equal(change_of("much", "gpu_idle")->kind, HA_CHANGE_WORSE);
    assert_contains(line_of(change_of("much", "gpu_idle")), "worse, undecided");
    assert_contains(line_of(change_of("much", "gpu_idle")), "+20.0 points");
}

/* beside_ns, of some kernels, is no reading of the machine. */
COMPARE_TEST(a_time_whose_name_begins_as_a_reading_does_is_a_time)
{
    static const struct ha_recorded_figure beside = { .name = "beside_ns", .unit = "ns", .better = HA_LESS };
    begin_both();
    add_both("x:", &beside, 1e6, 1.2e6);
    compare();
    assert_int_equal(change_of("x:", "beside_ns")->kind, HA_CHANGE_WORSE);
}

/* ---- machines ---------------------------------------------------------------------------------------------------- */

static void add_machine(struct ha_record *r, const char *cpu, const char *kind, const char *kernel)
{
    assert_int_equal(ha_record_add_fact(r, "cpu", cpu, &why), HA_OK);
    assert_int_equal(ha_record_add_fact(r, "device d: kind", kind, &why), HA_OK);
    assert_int_equal(ha_record_add_fact(r, "kernel", kernel, &why), HA_OK);
    for (size_t i = 0; i < 2; i++) {
        const size_t p = 10 * r->nights + i;
        add_value(r, add_case(r, "run", "x:"), &step, p, 1e6);
        add_value(r, add_case(r, "run", "x:"), &idle, p, 0.2);
    }
}

COMPARE_TEST(of_two_machines_no_figure_is_a_change)
{
    begin_both();
    add_machine(&base, "A", "host", "6.1");
    add_machine(&now, "B", "host", "6.2");
    compare();
    assert_true(result.other_machine);
    assert_string_equal(result.differs, "cpu");
    assert_int_equal(result.compared, 0);
    assert_int_equal(result.environments, 2);
    assert_int_equal(ha_comparison_exit(&result), HA_EXIT_OK);
    table_says("all ran: 0 changes beside another machine");
    ha_compare_print_table(test_print(), &result);
    static const char said[] = "machine            cpu: A -> B\nsoftware           kernel: 6.1 -> 6.2\n";
    assert_int_equal(strncmp(test_printed(), said, sizeof said - 1), 0);
    assert_contains(test_print_text, "two machines (cpu)");
}

/* A machine that is the same, or not, by what it says; NULL: it does not. */
static const struct who {
    const char *board[2], *id[2], *host[2], *cpu[2];
    bool same;
} whos[] = {
    { { "b", "b" }, { "i", "j" }, { "h", "k" }, { "A", "A" }, true },  /* the board decides */
    { { "b", "c" }, { "i", "i" }, { "h", "h" }, { "A", "A" }, false }, /* one image on two boards */
    { { "b", NULL }, { "i", "i" }, { "h", "k" }, { "A", "A" }, true }, /* root could read it, once */
    { { NULL, NULL }, { "i", "j" }, { "h", "h" }, { "A", "A" }, true },
    { { NULL, NULL }, { "i", "j" }, { "h", "k" }, { "A", "A" }, false },
    { { NULL, NULL }, { "i", "i" }, { "h", "h" }, { "A", "B" }, false },  /* one image on two CPUs */
    { { NULL, NULL }, { NULL, "i" }, { NULL, "h" }, { "A", "A" }, true }, /* of before it was said */
};

static void add_fact(struct ha_record *r, const char *name, const char *value)
{
    if (value) assert_int_equal(ha_record_add_fact(r, name, value, &why), HA_OK);
}

COMPARE_TEST(a_machine_goes_by_its_board_its_id_or_its_host)
{
    for (const struct who *w = whos; w < whos + COUNT(whos); w++) {
        begin_both();
        for (int side = 0; side < 2; side++) {
            struct ha_record *const r = side ? &now : &base;
            add_fact(r, "identity: board", w->board[side]), add_fact(r, "identity: machine_id", w->id[side]);
            add_fact(r, "identity: host", w->host[side]);
            add_machine(r, w->cpu[side], "host", "6.1");
        }
        compare();
        assert_int_equal(result.other_machine, !w->same);
        assert_int_equal(result.environments, strcmp(w->cpu[0], w->cpu[1]) != 0);
        clean(NULL);
    }
}

/* What one machine says of itself, and then: is it lost, or another, or neither? */
static const struct {
    const char *fact, *was, *is;
    bool environments, lost;
} hardware[] = {
    { "memory_bytes", "23.54 GiB", "23.48 GiB", 0, 0 },
    { "memory_bytes", "24 GiB", "12 GiB", 1, 1 },
    { "memory_bytes", "12 GiB", "24 GiB", 1, 0 },
    { "device cuda: memory_bytes", "80 GiB", "79.2 GiB", 0, 0 },
    { "device cuda: memory_bytes", "80 GiB", "64 GiB", 1, 1 },
    { "cores", "64", "63", 1, 1 },
    { "sockets", "2", "1", 1, 1 },
    { "gpus", "8", "7", 1, 1 },
    { "numa_nodes", "1", "2", 1, 0 },
    { "device cuda: link_width", "16", "8", 1, 1 },
    { "cpu_clock_max_MHz", "3500", "2000", 1, 1 },
    { "cpu_clock_max_MHz", "3500", "3499", 0, 0 },
    { "kernel", "6.1", "6.0", 1, 0 },
    { "gpus", "8", NULL, 1, 0 }, /* an older build does not say */
};

COMPARE_TEST(hardware_that_is_gone_is_a_regression_by_itself_and_stands_first)
{
    for (size_t i = 0; i < COUNT(hardware); i++) {
        begin_both();
        add_fact(&base, "libc", "2.36"), add_fact(&now, "libc", hardware[i].environments ? "2.37" : "2.36");
        add_fact(&base, hardware[i].fact, hardware[i].was), add_fact(&now, hardware[i].fact, hardware[i].is);
        add_machine(&base, "A", "host", "6.1"), add_machine(&now, "A", "host", "6.1"); /* the first kernel stays */
        add_both("y", &step, 1e6, 1e6);
        compare();
        if (result.environments != (hardware[i].environments ? 2 : 0))
            fail_msg("%zu: %zu facts differ", i, result.environments);
        assert_int_equal(ha_comparison_lost(&result), hardware[i].lost);
        assert_int_equal(ha_comparison_exit(&result), hardware[i].lost ? 30 : 0);
        ha_compare_print_table(test_print(), &result);
        const char *const said = test_printed();
        if (hardware[i].lost) assert_int_equal(strncmp(said, "hardware lost      ", 19), 0);
        assert_contains(said, hardware[i].lost ? "\nhardware lost: " : "\nnothing changed: ");
        clean(NULL);
    }
}

/* Of one machine, and of two. */
COMPARE_TEST(devices_of_two_kinds_are_refused)
{
    for (int two = 0; two < 2; two++) {
        begin_both();
        add_machine(&base, "A", "host", "6.1");
        add_machine(&now, two ? "B" : "A", "cuda", "6.1");
        assert_int_equal(ha_compare(&result, &base, &now, &why), HA_FAIL);
        assert_contains(why.text, "devices of different kinds (device d: kind: host and cuda) are never compared");
        clean(NULL);
    }
}

static void add_device(struct ha_record *r, const char *asked, const char *name, const char *const *id, size_t ids)
{
    assert_int_equal(ha_record_add_fact(r, "device cuda: name", name, &why), HA_OK);
    assert_int_equal(ha_record_add_fact(r, "device cuda: asked", asked, &why), HA_OK);
    for (size_t i = 0; i < ids; i++)
        for (size_t p = 0; p < 2; p++) {
            add_value(r, add_case(r, "run", id[i]), &step, p, 1e6);
            add_value(r, add_case(r, "run", id[i]), &idle, p, 0.2);
        }
}

/* A device goes by what it is, and its cases with it. */
COMPARE_TEST(a_device_that_is_asked_for_under_another_name_is_the_same)
{
    static const char *const before[] = { "x:device=cuda,ctx=8", "lse_merge:a=cuda,by=cuda", "cuda:device=cuda" },
                             *const after[] = { "x:device=d/c.so,ctx=8", "lse_merge:a=cuda,by=d/c.so",
                                                "cuda:device=d/c.so" };
    for (int other = 0; other < 2; other++) {
        begin_both();
        add_device(&base, "cuda", "H100", before, COUNT(before));
        add_device(&now, "d/c.so", other ? "H200" : "H100", after, COUNT(after));
        compare();
        assert_int_equal(ha_comparison_of(&result, HA_CHANGE_GONE) + ha_comparison_of(&result, HA_CHANGE_ADDED), 0);
        assert_int_equal(result.compared, other ? 0 : 6);
        if (other) assert_string_equal(result.differs, "device cuda: name");
        else assert_int_equal(result.environments, 1);
        clean(NULL);
    }
}

COMPARE_TEST(a_device_of_a_longer_name_is_another)
{
    static const char *const before[] = { "x:device=cuda2", "y:fit=device=cuda", "z:cuda" }, *const after[] = {
        "x:device=d2", "y:fit=device=d", "z:d"
    };
    begin_both();
    add_device(&base, "cuda", "H100", before, COUNT(before));
    add_device(&now, "d", "H100", after, COUNT(after));
    compare();
    assert_int_equal(ha_comparison_of(&result, HA_CHANGE_GONE), COUNT(before));
}

/* A case that another machine alone had is not gone, nor are its errors those of this one. */
COMPARE_TEST(nights_of_another_machine_are_left_out_of_the_base)
{
    begin_both();
    add_machine(&base, "B", "host", "6.1");
    add_verdict(&base, "theirs", HA_PASS, "");
    begin_night(&base, "c");
    add_machine(&base, "A", "host", "6.1");
    add_machine(&now, "A", "host", "6.1");
    compare();
    assert_int_equal(result.left_out, 1);
    assert_int_equal(result.base_nights, 1);
    assert_int_equal(change_of("x:", "step_ns")->base_processes, 2);
    assert_false(result.other_machine);
    assert_int_equal(ha_comparison_of(&result, HA_CHANGE_GONE), 0);
}

/* ---- what counts of the base ------------------------------------------------------------------------------------- */

/* An error over bound has no test, and makes nothing seen. */
COMPARE_TEST(an_error_beside_it_makes_one_process_no_success)
{
    begin_both();
    add_value(&base, add_case(&base, "run", "x"), &step, 0, 1e6);
    add_value(&base, add_case(&base, "run", "x"), &error, 0, 0.1);
    add_value(&now, add_case(&now, "run", "x"), &step, 0, 2e6);
    add_value(&now, add_case(&now, "run", "x"), &error, 0, 0.1);
    compare();
    assert_true(ha_comparison_blind(&result));
    assert_int_equal(ha_comparison_exit(&result), 20);
}

COMPARE_TEST(a_rate_that_falls_to_nothing_is_slower)
{
    begin_both();
    for (size_t i = 0; i < 2 * PROCESSES; i++) add_value(&base, add_case(&base, "run", "x"), &rate, i, 10 * noise(i));
    for (size_t i = 0; i < PROCESSES; i++) add_value(&now, add_case(&now, "run", "x"), &rate, i, 0);
    compare();
    assert_int_equal(change_of("x", "GBps")->kind, HA_CHANGE_WORSE);
}

/* Two nights of the base and one now, of two cases; in which of them x has its rate, of 12 processes, or of 1 in a
 * second night that has none. */
static void compare_rates(size_t first, size_t second, size_t after, bool others, const char *build)
{
    const size_t of_x[] = { first, second, after };
    begin(&base, "base");
    begin(&now, "now");
    for (size_t night = 0; night < 3; night++) {
        struct ha_record *r = night < 2 ? &base : &now;
        begin_night(r, "a");
        for (size_t i = 0; i < (night == 1 && !second ? 1 : PROCESSES); i++) {
            const size_t p = 20 * night + i;
            assert_int_equal(ha_record_add_verdict(r, add_case(r, "run", "x"), "fake", HA_PASS, "", &why), HA_OK);
            add_value(r, add_case(r, "run", "x"), &step, p, 1e6 * noise(p));
            if (i < of_x[night]) add_value(r, add_case(r, "run", "x"), &rate, p, 10 * noise(p));
            if (i < of_x[night]) add_value(r, add_case(r, "run", "x"), &idle, p, 0.5 * noise(p));
            add_value(r, add_case(r, "run", "y"), &step, p, 1e6 * noise(p));
            if (others || night < 2) add_value(r, add_case(r, "run", "y"), &rate, p, 10 * noise(p));
            if (others || night < 2) add_value(r, add_case(r, "run", "y"), &read_all, p, 10 * noise(p));
        }
    }
    snprintf(now.night[0].build, sizeof now.night[0].build, "%s", build);
    compare();
}

static const struct {
    size_t first, second, after;
    bool others;
    const char *build;
    size_t gone, differs;
} rates[] = {
    { 12, 12, 12, true, "", 0, 0 },
    { 12, 12, 0, true, "", 1, 0 },   /* the rate and the share of x */
    { 12, 12, 0, true, "b2", 1, 1 }, /* the share is in no case: it is another build; the rate is in y */
    { 12, 0, 0, true, "", 0, 0 },    /* not in every night */
    { 10, 10, 0, true, "", 0, 0 },   /* not in every process: it may be missing by chance */
    { 11, 11, 0, true, "", 1, 0 },
    { 12, 12, 0, false, "", 3, 0 },   /* of x, of y and of the machine; the build is the same */
    { 12, 12, 0, false, "b2", 0, 1 }, /* another build has no such figures */
};

TEST(a_figure_that_was_always_there_is_missed)
{
    for (size_t i = 0; i < COUNT(rates); i++) {
        compare_rates(rates[i].first, rates[i].second, rates[i].after, rates[i].others, rates[i].build);
        if (ha_comparison_of(&result, HA_CHANGE_GONE) != rates[i].gone)
            fail_msg("%zu: not %zu are gone", i, rates[i].gone);
        assert_int_equal(ha_comparison_exit(&result), rates[i].gone || rates[i].differs ? 20 : 0);
        assert_int_equal(result.environments, rates[i].differs + (*rates[i].build != 0));
        ha_compare_print_table(test_print(), &result);
        test_printed();
        if (i == 1) assert_contains(test_print_text, "gone               x GBps: it has no value now, nor have 1 more");
        if (i == 2) assert_contains(test_print_text, "x GBps: it has no value now\n");
        if (i == 2) assert_contains(test_print_text, "differs            figures: gpu_idle -> (not said)");
        if (i == 6) assert_contains(test_print_text, "machine beside_read_GBps: it has no value now\n");
        if (i == 7)
            assert_contains(test_print_text,
                            "differs            figures: GBps, gpu_idle, beside_read_GBps -> (not said)");
        ha_compare_print_json(test_print(), &result, 1);
        assert_int_equal(lines_with(test_printed(), "\"change\":\"gone\"", "\"figure\":\""), rates[i].gone);
        clean(NULL);
    }
}

/* The machine has lost no reading where the cases that took it were not run. */
COMPARE_TEST(what_no_case_read_is_no_loss_of_the_machine)
{
    begin_both();
    add_both("x", &step, 1e6, 1e6);
    for (size_t i = 0; i < PROCESSES; i++) add_value(&base, add_case(&base, "run", "y"), &link_up, i, 12 * noise(i));
    compare();
    assert_int_equal(ha_comparison_of(&result, HA_CHANGE_GONE), 1);
    assert_int_equal(change_of("y", NULL)->kind, HA_CHANGE_GONE);
}

/* The night that is looked at lies among those of the base. */
TEST_WITH(a_night_does_not_excuse_itself, test_folder_make, test_folder_remove)
{
    begin(&base, "base");
    begin(&now, "now");
    for (size_t night = 0; night < 3; night++) {
        begin_night(&base, night == 2 ? test_path("") : "nowhere");
        add_verdict(&base, "w", night == 2 ? HA_VERDICT_WAIVED : HA_PASS, "");
        add_value(&base, add_case(&base, "check", "x"), &error, night, night == 2 ? 0.5 : 0.01);
    }
    begin_night(&now, test_path(""));
    add_verdict(&now, "w", HA_VERDICT_WAIVED, "");
    add_value(&now, add_case(&now, "check", "x"), &error, 0, 0.5);
    compare();
    assert_int_equal(result.itself, 1);
    assert_int_equal(change_of("w", NULL)->kind, HA_CHANGE_WAIVED);
    assert_int_equal(change_of("x", "err_over_bound")->kind, HA_CHANGE_OTHER_RESULT);
    clean(NULL);
}

/* ---- one verdict everywhere -------------------------------------------------------------------------------------- */

/* Records drawn at random: the exit code, JSON and JUnit say the same of each change. */
TEST_WITH(table_json_and_junit_say_the_same, test_folder_make, test_folder_remove)
{
    static const double slower[] = { 1, 1, 1.3, 0.8 };
    static const enum ha_verdict after[] = { HA_PASS, HA_PASS, HA_PASS, HA_VERDICT_FAIL, HA_VERDICT_ERROR, HA_NOT_RUN };
    for (size_t round = 0; round < 40; round++) {
        begin_both();
        for (size_t i = 0; i < 6; i++) {
            char id[32];
            const size_t draw = round * 31 + i * 17 + round * i;
            snprintf(id, sizeof id, "<case>&%zu", i);
            add_verdict(&base, id, HA_PASS, "");
            if (after[draw % COUNT(after)]) add_verdict(&now, id, after[draw % COUNT(after)], "\"<why>\"");
            for (size_t p = 0; p < PROCESSES; p++) {
                add_value(&base, add_case(&base, "run", id), &step, p, 1e6 * noise(p));
                add_value(&now, add_case(&now, "run", id), &step, p, slower[draw / 3 % 4] * 1e6 * noise(p + i));
            }
        }
        compare();
        size_t loud = 0, bad = 0;
        int worst = 0;
        for (size_t i = 0; i < result.count; i++) {
            const int exit = (int)ha_change_exit(result.change[i].kind);
            loud += ha_change_loud(&result.change[i]);
            bad += exit != 0;
            if (exit == 10 || (exit == 30 && worst != 10) || (exit == 20 && !worst)) worst = exit;
        }
        assert_int_equal((int)ha_comparison_exit(&result), worst);
        char said[64];
        ha_compare_print_json(test_print(), &result, 1);
        assert_int_equal(lines_with(test_printed(), "\"row\":\"change\"", "\"loud\":true"), loud);
        snprintf(said, sizeof said, "\"exit\":%d,", worst);
        assert_int_equal(lines_with(test_print_text, "\"row\":\"verdict\"", said), 1);
        snprintf(said, sizeof said, "\"changed\":%zu,", loud);
        assert_int_equal(lines_with(test_print_text, "\"row\":\"verdict\"", said), 1);
        assert_int_equal(ha_compare_junit(test_path("j.xml"), &result, 1, ha_comparison_exit(&result), NULL, &why),
                         HA_OK);
        assert_null(strstr(test_text("j.xml"), "<case>"));
        assert_null(strstr(test_text("j.xml"), "<why>"));
        const size_t failing = test_count(test_text("j.xml"), "<failure"),
                     broken = test_count(test_text("j.xml"), "<error");
        assert_int_equal(failing + broken, bad); /* no case has two here: a check and a run are two cases */
        assert_int_equal(failing + broken > 0, worst != 0);
        ha_compare_print_table(test_print(), &result);
        snprintf(said, sizeof said, "%s: %zu change%s", ha_night_word((enum ha_exit)worst), loud, loud == 1 ? "" : "s");
        test_printed();
        assert_contains(test_print_text, said);
        clean(NULL);
    }
}

static const struct {
    enum ha_exit besides, both; /* both: beside what is slower */
    const char *word;
} known[] = {
    { HA_EXIT_OK, HA_EXIT_REGRESSION, "slower" },
    { HA_EXIT_ENVIRONMENT, HA_EXIT_REGRESSION, "not fit to judge" },
    { HA_EXIT_MISSING, HA_EXIT_REGRESSION, "not all ran" },
    { HA_EXIT_WRONG, HA_EXIT_WRONG, "wrong" },
};

/* What a night knows besides makes its verdict no better, and is in all that is written. */
TEST_WITH(what_is_known_besides_is_said_everywhere, test_folder_make, test_folder_remove)
{
    for (size_t i = 0; i < COUNT(known); i++) {
        compare_processes(12, 12, 1.2);
        result.besides = known[i].besides;
        assert_int_equal(ha_comparison_exit(&result), known[i].both);
        assert_int_equal(ha_compare_junit(test_path("j.xml"), &result, 1, known[i].both, "it was late\n", &why), HA_OK);
        assert_contains(test_text("j.xml"), ">it was late\n"); /* though a case says as much, too */
        clean(NULL);
        if (!known[i].besides) continue;
        compare_processes(12, 12, 1);
        result.besides = known[i].besides;
        assert_int_equal(ha_comparison_exit(&result), known[i].besides);
        char said[64];
        snprintf(said, sizeof said, "\n%s: 0 changes in", known[i].word);
        table_says(said);
        snprintf(said, sizeof said, "\"exit\":%d,\"verdict\":\"%s\"", (int)known[i].besides, known[i].word);
        ha_compare_print_json(test_print(), &result, 1);
        test_printed();
        assert_contains(test_print_text, said);
        assert_int_equal(ha_compare_junit(test_path("j.xml"), &result, 1, known[i].besides, "it was late\n", &why),
                         HA_OK);
        snprintf(said, sizeof said, " message=\"%s\">it was late\n", known[i].word);
        assert_contains(test_text("j.xml"), said);
        clean(NULL);
    }
}

/* Before a first night there was nothing. */
TEST_WITH(of_a_first_night_what_is_wrong_is_said, test_folder_make, test_folder_remove)
{
    begin(&base, "");
    begin(&now, "now");
    begin_night(&now, "b");
    add_value(&now, add_case(&now, "run", "x:"), &step, 0, 1e6);
    compare();
    assert_int_equal(ha_comparison_exit(&result), HA_EXIT_OK);
    ha_comparison_free(&result);
    add_verdict(&now, "w", HA_VERDICT_FAIL, "because");
    add_verdict(&now, "e", HA_VERDICT_ERROR, "");
    add_verdict(&now, "n", HA_VERDICT_WAIVED, "");
    assert_int_equal(ha_compare(&result, &base, &now, &why), HA_OK);
    assert_int_equal(ha_comparison_exit(&result), HA_EXIT_WRONG);
    assert_int_equal(ha_comparison_of(&result, HA_CHANGE_ADDED), 2);
    assert_string_equal(line_of(change_of("w", NULL)), "wrong              w (check): because");
    table_says("\nwrong: 4 cases, and nothing to compare them with\n");
    ha_compare_print_json(test_print(), &result, 1);
    assert_int_equal(lines_with(test_printed(), "\"row\":\"record\"", ""), 1);
    assert_int_equal(ha_compare_junit(test_path("j.xml"), &result, 1, HA_EXIT_WRONG, NULL, &why), HA_OK);
    assert_contains(test_text("j.xml"), "tests=\"4\" failures=\"1\" errors=\"1\"");
    clean(NULL);
}

/* No key is lost to a text that JSON, which is UTF-8, cannot hold. */
TEST_WITH(what_is_no_utf_8_keeps_its_key, test_folder_make, test_folder_remove)
{
    static const struct ha_recorded_figure odd = {
        .name = "n",
        .unit = "\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac",
        .better = HA_LESS
    };
    begin(&base, "b\377");
    begin(&now, "n\377");
    begin_night(&base, "a\377");
    begin_night(&now, "b\377");
    add_both("x\377", &odd, 1e6, 2e6);
    compare();
    ha_compare_print_json(test_print(), &result, 1);
    test_printed();
    assert_contains(test_print_text, "\"path\":\"b?\"");
    assert_contains(test_print_text, "\"path\":\"n?\"");
    assert_contains(test_print_text, "\"case_id\":\"x?\"");
    assert_contains(test_print_text, "\"line\":\"x? n: ");
    assert_int_equal(ha_compare_junit(test_path("j.xml"), &result, 1, HA_EXIT_REGRESSION, NULL, &why), HA_OK);
    assert_contains(test_text("j.xml"), "classname=\"n?.run\"");
    clean(NULL);
}

/* What no case says is said by one of its own. */
TEST_WITH(junit_is_not_green_where_nothing_can_be_said, test_folder_make, test_folder_remove)
{
    compare_processes(1, 1, 1);
    assert_int_equal(ha_comparison_exit(&result), 20);
    assert_int_equal(ha_compare_junit(test_path("j.xml"), &result, 1, HA_EXIT_MISSING, NULL, &why), HA_OK);
    assert_int_equal(test_count(test_text("j.xml"), "<error message=\"nothing can be said\""), 1);
    assert_contains(test_text("j.xml"), "errors=\"1\"");
    clean(NULL);
}
