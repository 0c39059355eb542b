#include "harness/base/rng.h"
#include "harness/compare/side_by_side.h"
#include "harness/compare/test_record.h"
#include "harness/report/test_schema.h"

/* ---- machines that are drawn ------------------------------------------------------------------------------------- */

enum { MACHINES = 3, PROCESSES = 8 };
static const struct ha_recorded_figure tokens = { .name = "tokens_per_s", .unit = "tokens/s", .better = HA_MORE },
                                       energy = { .name = "energy_step_J", .unit = "J", .better = HA_LESS },
                                       kv = { .name = "kv_gpu_bytes", .unit = "bytes", .better = HA_LESS },
                                       read_all = { .name = "beside_read_GBps", .unit = "GB/s", .better = HA_MORE },
                                       flops = { .name = "beside_flops_GFLOPps", .unit = "GFLOP/s", .better = HA_MORE },
                                       wake = { .name = "beside_launch_ns", .unit = "ns", .better = HA_LESS };

static struct ha_record record[MACHINES];
static struct ha_comparison all[MACHINES - 1];
static struct ha_side_by_side s;
static uint64_t seed, drawn;

static double noise(double sd) { return exp(sd * (double)ha_rng_normal(seed, 11, drawn++)); }

static void begin_machine(size_t i, const char *cpu)
{
    if (!record[i].path) begin(&record[i], i == 0 ? "runs/first" : i == 1 ? "runs/second/" : "runs/third");
    begin_night(&record[i], "night");
    assert_int_equal(ha_record_add_fact(&record[i], "cpu", cpu, &why), HA_OK);
    assert_int_equal(ha_record_add_fact(&record[i], "device host: memory_bytes", "24 GiB", &why), HA_OK);
}

/* Processes of a case of the last night: a time or a rate, and what the machine can do beside them. */
static void add_times(size_t i, const char *id, size_t processes, const struct ha_recorded_figure *time, double value,
                      double memory)
{
    struct ha_recorded_case *c = add_case(&record[i], "run", id);
    for (size_t k = 0; k < processes; k++) {
        const size_t p = 100 * record[i].nights + k;
        add_value(&record[i], c, time, p, value * noise(0.01));
        add_value(&record[i], c, &read_all, p, 30 * memory * noise(0.01));
        add_value(&record[i], c, &flops, p, 100 * noise(0.01));
        add_value(&record[i], c, &wake, p, 900 * noise(0.01));
    }
}

/* The same cases, in which times are those of A times `time`, and rates over it. */
static void add_cases(size_t i, double time, double memory, size_t processes)
{
    add_times(i, "cpu:ctx=8192", processes, &step, 1e6 * time, memory);
    add_times(i, "cpu:ctx=32768", processes, &step, 4e6 * time, memory);
    add_times(i, "hgca:ctx=8192,batch=4", processes, &step, 2e6 * time, memory);
    add_times(i, "link:piece=1M", processes, &rate, 12 / time, memory);
}

static void compare(size_t machines)
{
    static json_t *schema;
    if (!schema) schema = test_schema_load("results/schema/compare.schema.json");
    for (size_t i = 1; i < machines; i++)
        assert_int_equal(ha_compare(&all[i - 1], &record[0], &record[i], &why), HA_OK);
    assert_int_equal(ha_side_by_side(&s, all, machines - 1, &why), HA_OK);
    ha_side_by_side_print_json(test_print(), &s, 3000000);
    assert_true(test_schema_lines(test_printed(), schema) >= s.rows * (machines - 1));
}

static int clean(void **state)
{
    ha_side_by_side_free(&s);
    for (size_t i = 0; i < MACHINES; i++) {
        if (i) ha_comparison_free(&all[i - 1]);
        ha_record_free(&record[i]);
        record[i] = (struct ha_record){ 0 };
    }
    drawn = 0;
    return 0;
}
#define SIDES_TEST(name) TEST_WITH(name, NULL, clean)

/* Two machines, of which B takes so much of A's time, and reads memory so much faster. */
static void compare_two(double time, double memory, size_t processes)
{
    begin_machine(0, "a");
    begin_machine(1, "b");
    add_cases(0, 1, 1, processes);
    add_cases(1, time, memory, processes);
    compare(2);
}

static void table_says(const char *text)
{
    ha_side_by_side_print_table(test_print(), &s, 3000000);
    test_printed();
    assert_contains(test_print_text, text);
    assert_null(strstr(test_print_text, "nothing changed"));
}

/* ---- two machines ------------------------------------------------------------------------------------------------ */

TEST(a_faster_machine_is_called_with_the_part_that_accounts_for_it)
{
    static const struct {
        double time, memory;
        enum ha_speed_word word;
        const char *by, *said;
    } machines[] = {
        { 0.7, 1 / 0.7, HA_SPEED_FASTER, "memory", "B is 1.43 times as fast as A (" },
        { 0.7, 1, HA_SPEED_FASTER, "kernels", "over 4 cases: faster in 4, even in 0, slower in 0\n" },
        { 0.7, 0.7, HA_SPEED_FASTER, "kernels", "; memory 0.699;" }, /* which moved the other way */
        { 1.25, 0.8, HA_SPEED_SLOWER, "memory", "faster in 0, even in 0, slower in 4\n" },
        { 1, 1.4, HA_SPEED_EVEN, "", "faster in 0, even in 4, slower in 0\n" },
    };
    for (size_t m = 0; m < COUNT(machines); m++) {
        seed = 5;
        compare_two(machines[m].time, machines[m].memory, PROCESSES);
        assert_int_equal(s.rows, 4);
        assert_int_equal(ha_side_by_side_exit(&s, 1), HA_EXIT_OK);
        for (size_t r = 0; r < s.rows; r++) {
            const struct ha_side_case *c = &s.cell[2 * r + 1];
            assert_int_equal(c->word, machines[m].word);
            assert_string_equal(c->by, machines[m].by);
            assert_true(exp(c->ratio.lo) < 1 / machines[m].time && 1 / machines[m].time < exp(c->ratio.hi));
            assert_true(exp(c->ratio.hi - c->ratio.lo) < 1.1); /* 1% of processes, 1% of nights */
        }
        table_says(machines[m].said);
        clean(NULL);
    }
}

/* Of 100 pairs of machines, with as few processes as nightly runs, some five intervals miss the ratio, and no more. */
TEST(intervals_hold_the_ratio)
{
    size_t hold = 0, means = 0, cases = 0;
    for (seed = 1; seed <= 100; seed++) {
        begin_machine(0, "a");
        begin_machine(1, "b");
        const double night[2] = { noise(0.01), noise(0.01) };
        for (size_t i = 0; i < 2; i++) add_cases(i, (i ? 0.7 : 1) * night[i], 1, 5);
        compare(2);
        for (size_t r = 0; r < s.rows; r++, cases++) {
            const struct ha_speed_ratio x = s.cell[2 * r + 1].ratio;
            hold += x.lo < -log(0.7) && -log(0.7) < x.hi;
        }
        const struct ha_speed_ratio mean = ha_side_by_side_mean(&s, 0, 1, NULL).ratio;
        means += mean.lo < -log(0.7) && -log(0.7) < mean.hi;
        clean(NULL);
    }
    printf("%zu of %zu intervals hold the ratio, and %zu of 100 of means\n", hold, cases, means);
    assert_in_range(means, 93, 99);
    assert_in_range(hold, cases * 93 / 100, cases * 99 / 100);
}

SIDES_TEST(few_processes_have_a_ratio_and_no_interval)
{
    compare_two(0.7, 1, 3);
    assert_int_equal(s.cell[1].word, HA_SPEED_FEW);
    assert_near(exp(s.cell[1].ratio.size), 1 / 0.7, 0.05);
    assert_true(isnan(s.cell[1].ratio.lo) && isnan(s.cell[1].ratio.hi));
    table_says("slower in 0, 4 of too few processes to say");
}

/* Two cases of 1.2 and 1.4: their geometric mean, and Student's t of one degree of freedom. */
SIDES_TEST(the_mean_is_geometric_and_its_interval_is_of_cases)
{
    static const double speed[] = { 1.2, 1.4 };
    begin_machine(0, "a");
    begin_machine(1, "b");
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < 2; i++)
            add_value(&record[i], add_case(&record[i], "run", k ? "y:" : "x:"), &step, 0, 1e9 / (i ? speed[k] : 1));
    compare(2);
    const struct ha_speed_mean m = ha_side_by_side_mean(&s, 0, 1, NULL);
    assert_near(exp(m.ratio.size), sqrt(1.2 * 1.4), 1e-6);
    assert_near(m.ratio.hi - m.ratio.size, hypot(12.7062 * log(1.4 / 1.2) / 2, 1.96 * 0.01 * sqrt(2)), 1e-3);
    assert_near(m.ratio.size - m.ratio.lo, m.ratio.hi - m.ratio.size, 1e-9);
    assert_near(exp(ha_side_by_side_mean(&s, 0, 1, "y:other").ratio.size), 1.4, 1e-6);
    assert_int_equal(ha_side_by_side_mean(&s, 0, 1, "yy:").cases, 0);
}

/* What the machine of a record does from night to night is in its interval; and nights of B in A's folder are not A. */
SIDES_TEST(nights_count_as_nights_of_their_machine)
{
    static const double night[] = { 0.9, 1, 1.1 };
    for (size_t i = 0; i < 3; i++) {
        begin_machine(0, "a");
        add_cases(0, night[i], 1, PROCESSES);
    }
    begin_machine(0, "b");
    add_cases(0, 5, 1, PROCESSES);
    begin_machine(1, "b");
    add_cases(1, 0.7, 1, PROCESSES);
    all[0] = (struct ha_comparison){ .base = &record[0], .now = &record[1], .other_machine = true };
    assert_int_equal(ha_side_by_side(&s, all, 1, &why), HA_OK);
    assert_int_equal(s.machine[0].nights, 3);
    assert_near(s.machine[0].spread, 0.1, 0.03);
    assert_near(s.cell[0].median, 1e6, 2e4);
    assert_near((s.cell[1].ratio.hi - s.cell[1].ratio.lo) / 2, 1.96 * 0.1 / sqrt(3), 0.06);
}

/* ---- what is not there, or not right ----------------------------------------------------------------------------- */

TEST(a_case_that_is_missing_wrong_or_waived_on_either_machine_has_its_exit_code)
{
    static const struct {
        enum ha_verdict verdict; /* HA_NOT_RUN: no row */
        enum ha_exit exit;
        size_t rows;
    } extra[] = { { HA_NOT_RUN, HA_EXIT_MISSING, 4 },
                  { HA_VERDICT_FAIL, HA_EXIT_WRONG, 5 },
                  { HA_VERDICT_ERROR, HA_EXIT_MISSING, 5 },
                  { HA_VERDICT_WAIVED, HA_EXIT_MISSING, 5 },
                  { HA_PASS, HA_EXIT_OK, 5 } };
    for (size_t on = 0; on < 2; on++)
        for (size_t k = 0; k < COUNT(extra); k++) {
            begin_machine(0, "a");
            begin_machine(1, "b");
            for (size_t i = 0; i < 2; i++) {
                add_cases(i, 1, 1, PROCESSES);
                if (i == on && extra[k].verdict == HA_NOT_RUN) continue;
                struct ha_recorded_case *c = add_case(&record[i], "run", "more:");
                const enum ha_verdict v = i == on ? extra[k].verdict : HA_PASS;
                assert_int_equal(ha_record_add_verdict(&record[i], c, "fake", v, "", &why), HA_OK);
                if (v != HA_VERDICT_WAIVED) add_times(i, "more:", PROCESSES, &step, i ? 1e3 : 1e6, 1);
            }
            compare(2);
            assert_int_equal(ha_side_by_side_exit(&s, 1), extra[k].exit);
            assert_int_equal(s.rows, extra[k].rows);
            assert_int_equal(ha_side_by_side_mean(&s, 0, 1, NULL).cases, extra[k].verdict == HA_PASS ? 5 : 4);
            clean(NULL);
        }
}

SIDES_TEST(what_is_left_of_most_processes_says_nothing)
{
    for (size_t disturbed = 4; disturbed <= 5; disturbed++) {
        begin_machine(0, "a");
        begin_machine(1, "b");
        struct ha_recorded_case *c = add_case(&record[1], "run", "cpu:ctx=8192");
        for (size_t k = 0; k < PROCESSES; k++)
            assert_int_equal(ha_record_add_verdict(&record[1], c, "fake", HA_PASS, "", &why), HA_OK);
        for (size_t k = 0; k < disturbed; k++)
            assert_int_equal(ha_record_add_disturbed(&record[1], c, 100 + k, &why), HA_OK);
        for (size_t i = 0; i < 2; i++) add_cases(i, 1 - 0.3 * (double)i, 1, PROCESSES);
        compare(2);
        assert_int_equal(s.cell[1].word, disturbed == 5 ? HA_SPEED_DISTURBED : HA_SPEED_FASTER);
        if (disturbed == 5) table_says("slower in 0; left out: 1 disturbed\n");
        clean(NULL);
    }
}

/* ---- several ----------------------------------------------------------------------------------------------------- */

SIDES_TEST(machines_that_are_even_share_a_place)
{
    size_t order[MACHINES], place[MACHINES];
    static const double time[] = { 1, 1.001, 0.7 };
    for (size_t i = 0; i < MACHINES; i++) {
        begin_machine(i, i == 0 ? "a" : i == 1 ? "b" : "c");
        add_cases(i, time[i], 1, PROCESSES);
    }
    compare(3);
    ha_side_by_side_rank(&s, order, place);
    assert_int_equal(order[0], 2);
    assert_int_equal(place[0], 2);
    assert_int_equal(place[1], 2);
    assert_int_equal(place[2], 1);
    const struct ha_speed_mean back = ha_side_by_side_mean(&s, 2, 0, NULL);
    assert_near(back.ratio.size, log(0.7), 0.02);
    table_says("rank: 1 C, 2 ");
}

/* ---- tokens, prices, limits -------------------------------------------------------------------------------------- */

SIDES_TEST(tokens_cost_what_an_hour_costs)
{
    static const char *const wrong[] = { "A=1", "A=0/h", "A", "D=1/h", "A=x/h", "=1/h", "" };
    begin_machine(0, "a");
    begin_machine(1, "b");
    for (size_t i = 0; i < 2; i++) {
        struct ha_recorded_case *c = add_case(&record[i], "run", "cpu:ctx=8192,batch=4");
        add_cases(i, 1, 1, 1);
        add_value(&record[i], c, &step, 0, 1e6); /* four tokens */
        add_value(&record[i], c, &tokens, 0, 4000);
        add_value(&record[i], c, &energy, 0, 0.8);
    }
    compare(2);
    assert_int_equal(ha_side_by_side_price(&s, "A=7.2/h,second=14.4/h", &why), HA_OK);
    table_says("tokens/s, geometric means of the cases of a batch and a context\n"
               "           A            B cases\n"
               "        4000         4000     1  batch=4,ctx=8192\n");
    assert_contains(test_print_text, "         0.2          0.2     1  cpu:ctx=8192,batch=4\n");
    assert_contains(test_print_text, "         0.5            1     1  cpu:ctx=8192,batch=4\n");
    for (size_t i = 0; i < COUNT(wrong); i++) assert_int_equal(ha_side_by_side_price(&s, wrong[i], &why), HA_ERROR);
}

SIDES_TEST(the_longest_context_below_the_limit_is_one_that_was_measured)
{
    begin_machine(0, "a");
    begin_machine(1, "b");
    add_cases(0, 1, 1, PROCESSES);
    add_cases(1, 0.5, 1, PROCESSES);
    for (size_t i = 0; i < 2; i++)
        add_value(&record[i], add_case(&record[i], "run", "cpu:ctx=8192"), &kv, 100 * record[i].nights, 0x1p33);
    compare(2);
    /* 1 and 4 ms on A, half of that on B */
    table_says("            8192, 16 GiB                 >= 32768  cpu\n");
    assert_contains(test_print_text, "                 >= 8192                  >= 8192  hgca:batch=4\n");
    ha_side_by_side_print_table(test_print(), &s, 400000);
    test_printed();
    assert_contains(test_print_text, "                    none                     none  cpu\n");
}
