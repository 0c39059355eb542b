#include "harness/base/test_folder.h"
#include "harness/compare/compare.h"
#include "harness/compare/print.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static struct ha_why why;
static struct ha_record record;

#define ENV(date)                                                                                                \
    "{\"schema_version\":2,\"mode\":\"run\",\"build\":\"b1\",\"cpu\":\"A\",\"kernel\":\"6.1\",\"memory_bytes\":" \
    "25276510208,"                                                                                               \
    "\"devices\":[{\"asked\":\"./h.so\",\"driver\":\"host\",\"kind\":\"host\",\"name\":\"n\"}],"                 \
    "\"runs\":[{\"date_utc\":\"" date "\"}]}"
#define FIGURES \
    "\"schema_version\",\"case_id\",\"process\",\"suite\",\"figure\",\"value\",\"unit\",\"better\",\"later\"\n"
#define CASES "\"schema_version\",\"case_id\",\"process\",\"suite\",\"verdict\",\"reason\"\n"

static void write_text(const char *name, const char *text) { test_write(name, text, strlen(text)); }

static void folder(const char *name) { assert_int_equal(mkdir(test_path(name), 0777), 0); }

static void write_run(const char *name, const char *env, const char *figures, const char *cases)
{
    char path[256];
    folder(name);
    const char *const file[] = { "env.json", "figures.csv", "cases.csv" }, *const text[] = { env, figures, cases };
    for (size_t i = 0; i < COUNT(file); i++) {
        snprintf(path, sizeof path, "%s/%s", name, file[i]);
        if (text[i]) write_text(path, text[i]);
    }
}

static enum ha_status read_folder(const char *name) { return ha_record_read(&record, test_path(name), &why); }

static int after(void **state)
{
    ha_record_free(&record);
    return test_folder_remove(state);
}
#define READ_TEST(name) TEST_WITH(name, test_folder_make, after)

static const struct ha_recorded_figure *figure(const char *id, const char *name)
{
    const struct ha_recorded_case *c = ha_record_case(&record, "run", id);
    assert_non_null(c);
    return ha_record_figure(c, name);
}

/* Of a folder from before this column there is nothing to say. */
READ_TEST(outputs_are_read_with_their_plan)
{
    folder("r");
    write_run("r/new", ENV("2026-01-02"), FIGURES,
              "\"case_id\",\"process\",\"verdict\",\"reason\",\"plan\",\"outputs\"\n"
              "\"x:\",\"0\",\"pass\",,\"p\",\"0123456789abcdef\"\n\"x:\",\"1\",\"fail\",\"no\",\"p\",\n"
              "\"x:\",\"2\",\"pass\",,\"q\",\"0123456789abcdee and more\"\n");
    write_run("r/old", ENV("2026-01-01"), FIGURES, CASES "\"2\",\"x:\",\"0\",\"s\",\"pass\",\n");
    assert_int_equal(read_folder("r"), HA_OK);
    const struct ha_recorded_case *c = ha_record_case(&record, "run", "x:");
    assert_int_equal(c->processes, 4);
    assert_int_equal(c->outputs_count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(c->outputs[i].night, 1);
        assert_int_equal(c->outputs[i].process, 1 + 2 * i);
        assert_string_equal(c->outputs[i].digest, i ? "0123456789abcdee" : "0123456789abcdef");
        assert_string_equal(c->outputs[i].plan, i ? "q" : "p");
    }
}

READ_TEST(rows_without_times_are_said_to_be)
{
    folder("r");
    write_run("r/run", ENV("2026-01-01"), NULL, CASES "\"2\",\"x:\",\"0\",\"s\",\"pass\",\n");
    write_text("r/night.json", "{}");
    folder("r/probe"); /* which has neither */
    write_text("r/probe/env.json", ENV("2026-01-01"));
    assert_int_equal(read_folder("r"), HA_OK);
    assert_contains(record.notes, "/r/run/figures.csv: there is no such file, and so no times\n");
    assert_int_equal(record.noted, 1);
    ha_record_free(&record);
    folder("r/run/figures.csv"); /* nor is that one */
    assert_int_equal(read_folder("r"), HA_OK);
    assert_int_equal(record.noted, 1);
}

READ_TEST(a_run_is_a_night_with_its_cases_figures_and_facts)
{
    write_run("r", ENV("2026-01-01"),
              FIGURES "\"2\",\"x:\",\"0\",\"s\",\"step_ns\",\"1000.5\",\"ns\",\"less\",\"?\"\n"
                      "\"2\",\"x:\",\"1\",\"s\",\"step_ns\",\"1001\",\"ns\",\"less\",\"?\"\n"
                      "\"2\",\"x:\",\"0\",\"s\",\"GBps\",\"3\",\"GB/s\",\"more\",\"?\"\n",
              CASES "\"2\",\"x:\",\"0\",\"s\",\"pass\",\n\"2\",\"x:\",\"1\",\"s\",\"fail\",\"off, by 2\"\n");
    assert_int_equal(read_folder("r"), HA_OK);
    assert_int_equal(record.nights, 1);
    assert_int_equal(record.count, 1);
    assert_int_equal(record.processes, 2);
    assert_string_equal(record.night[0].date, "2026-01-01");
    assert_string_equal(record.night[0].build, "b1");
    assert_string_equal(ha_night_fact(&record.night[0], "device host: kind"), "host");
    assert_string_equal(ha_night_fact(&record.night[0], "memory_bytes"), "23.5 GiB");
    assert_null(ha_night_fact(&record.night[0], "mode"));
    const struct ha_recorded_case *c = record.cases[0];
    assert_int_equal(c->verdict, HA_VERDICT_FAIL);
    assert_string_equal(c->reason, "off, by 2");
    assert_int_equal(c->processes, 2);
    const struct ha_recorded_figure *f = figure("x:", "step_ns");
    assert_int_equal(f->count, 2);
    assert_near(f->at[0].value, 1000.5, 0);
    assert_int_equal(f->at[1].process, 1);
    assert_int_equal(f->better, HA_LESS);
    assert_int_equal(figure("x:", "GBps")->better, HA_MORE);
    assert_string_equal(record.notes, "");
}

#define ROW(id, process, value) "\"2\",\"" id "\",\"" process "\",\"s\",\"step_ns\",\"" value "\",\"ns\",\"less\",\n"

READ_TEST(nights_come_by_their_dates_and_a_night_has_all_of_its_records)
{
    write_run("b", ENV("2026-01-01T22:00Z"), FIGURES ROW("x:", "0", "1"), NULL);
    folder("a");
    write_text("a/night.json", "{\"date_utc\":\"2026-01-02T22:00Z\"}");
    write_run("a/run", ENV("2026-01-02T22:10Z"), FIGURES ROW("x:", "0", "2"),
              CASES "\"2\",\"x:\",\"0\",\"s\",\"pass\",\n");
    write_run("a/again", ENV("2026-01-02T23:10Z"), FIGURES ROW("x:", "0", "3") ROW("x:", "1", "4"), NULL);
    folder("c"); /* none */
    write_text("c/notes.txt", "");
    assert_int_equal(ha_record_read(&record, test_folder, &why), HA_OK);
    assert_int_equal(record.nights, 2);
    assert_string_equal(record.night[0].name, "b");
    assert_string_equal(record.night[1].name, "a");
    const struct ha_recorded_figure *f = figure("x:", "step_ns");
    static const double value[] = { 1, 3, 4, 2 };
    assert_int_equal(f->count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_near(f->at[i].value, value[i], 0);
        assert_int_equal(f->at[i].night, i > 0);
        assert_int_equal(f->at[i].process, i); /* numbers of their own */
    }
    assert_int_equal(record.cases[0]->last_night, 1);
}

READ_TEST(readings_beside_all_cases_are_the_machine_by_process)
{
    write_run("r", ENV("2026-01-01"),
              FIGURES "\"2\",\"x:\",\"0\",\"s\",\"beside_read_GBps\",\"30\",\"GB/s\",\"more\",\n"
                      "\"2\",\"y:\",\"0\",\"s\",\"beside_read_GBps\",\"20\",\"GB/s\",\"more\",\n"
                      "\"2\",\"y:\",\"1\",\"s\",\"beside_read_GBps\",\"10\",\"GB/s\",\"more\",\n",
              NULL);
    assert_int_equal(read_folder("r"), HA_OK);
    const struct ha_recorded_figure *f = figure(HA_MACHINE_CASE, "beside_read_GBps");
    assert_int_equal(f->count, 2);
    assert_near(f->at[0].value, 25, 0);
    assert_near(f->at[1].value, 10, 0);
}

#define BUSY_CASES "\"2\",\"x:\",\"%c\",\"s\",\"pass\",\"\",\"%s\"\n"

/* Their times are no values; what is counted is, and what the machine did by itself. */
READ_TEST(processes_beside_which_something_else_ran_say_nothing_of_time)
{
    static const char *const causes[] = { "", "load", "throttled", "load, throttled", "steal", "shared", "yes", "no" };
    static const bool left_out[] = { false, true, false, true, true, true, true, false };
    char cases[2048] = "\"schema_version\",\"case_id\",\"process\",\"suite\",\"verdict\",\"reason\",\"disturbed\"\n",
         figures[4096] = FIGURES;
    size_t kept = 0;
    for (size_t i = COUNT(causes); i--;) { /* in any order */
        snprintf(cases + strlen(cases), sizeof cases - strlen(cases), BUSY_CASES, (int)('0' + i), causes[i]);
        snprintf(figures + strlen(figures), sizeof figures - strlen(figures),
                 "\"2\",\"x:\",\"%zu\",\"s\",\"step_ns\",\"%zu\",\"ns\",\"less\",\"\"\n"
                 "\"2\",\"x:\",\"%zu\",\"s\",\"moved\",\"64\",\"bytes\",\"less\",\"\"\n"
                 "\"2\",\"x:\",\"%zu\",\"s\",\"err_over_bound\",\"0.5\",\"\",\"neither\",\"\"\n",
                 i, 100 + i, i, i);
        kept += !left_out[i];
    }
    write_run("r", ENV("2026-01-01"), figures, cases);
    assert_int_equal(read_folder("r"), HA_OK);
    const struct ha_recorded_case *c = record.cases[0];
    assert_int_equal(c->processes, COUNT(causes));
    assert_int_equal(c->disturbances, COUNT(causes) - kept);
    const struct ha_recorded_figure *f = figure("x:", "step_ns");
    assert_int_equal(f->count, kept);
    for (size_t i = 0; i < f->count; i++) assert_false(left_out[f->at[i].process]);
    assert_int_equal(figure("x:", "moved")->count, COUNT(causes));
    assert_int_equal(figure("x:", "err_over_bound")->count, COUNT(causes));
}

/* ---- what cannot be ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *rows, *said; /* what notes says of them; NULL: nothing */
    size_t kept;
} lines[] = {
    { ROW("x:", "0", "1") "\"2\",\"x:\",\"1\",\"s\"", "torn line", 1 },
    { ROW("x:", "0", "1") "\"2\",\"x:\",\"1\",\"s\",\"step",
      "a quoted field does not end: mend or remove this line; what follows is left out", 1 },
    { ROW("x:", "0", "1") ROW("x:", "0", "2"), "a second row of the same case and process", 1 },
    { ROW("x:", "0", "1") ROW("x:", "1", "-5"), "a time or rate below zero", 1 },
    { ROW("x:", "0", "1") ROW("x:", "1", "nan"), "no number: left out", 1 },
    { ROW("x:", "0", "1") ROW("x:", "1", "inf"), NULL, 1 },
    { ROW("x:", "0", "1") ROW("x:", "1", "1e400"), NULL, 1 },
    { ROW("x:", "0", "1") ROW("x:", "-1", "1"), "no number of a process", 1 },
    { ROW("x:", "0", "1") ROW("x:", "1e300", "1"), "no number of a process", 1 },
    { ROW("x:", "0", "1") ROW("", "1", "1"), "a row without a case", 1 },
    { ROW("x:", "0", "1") ROW("x:", "1", ""), "no number: left out", 1 },
    { "\n" ROW("x:", "0", "1") ROW("x:", "1", "2"), NULL, 2 },
};

TEST(rows_that_cannot_be_are_left_out_and_said)
{
    for (size_t i = 0; i < COUNT(lines); i++) {
        char text[4096];
        assert_int_equal(test_folder_make(NULL), 0);
        snprintf(text, sizeof text, "%s%s", FIGURES, lines[i].rows);
        write_run("r", ENV("2026-01-01"), text, NULL);
        assert_int_equal(read_folder("r"), HA_OK);
        assert_int_equal(figure("x:", "step_ns")->count, lines[i].kept);
        if (lines[i].said) {
            assert_contains(record.notes, lines[i].said);
            assert_contains(record.notes, "figures.csv:");
        } else assert_string_equal(record.notes, "");
        after(NULL);
    }
}

READ_TEST(of_many_such_rows_the_first_few_are_shown_and_the_rest_counted)
{
    char text[1 << 14] = FIGURES ROW("x:", "0", "1");
    for (int i = 0; i < 100; i++) strcat(text, ROW("x:", "0", "1"));
    write_run("r", ENV("2026-01-01"), text, NULL);
    assert_int_equal(read_folder("r"), HA_OK);
    assert_int_equal(test_count(record.notes, "\n"), 9);
    assert_contains(record.notes, "and 92 lines more that were left out");
}

READ_TEST(names_are_shown_as_text)
{
    write_run("r", ENV("2026-01-01"), FIGURES ROW("x\x1b[31m\xff<b>:", "0", "1"), NULL);
    assert_int_equal(read_folder("r"), HA_OK);
    assert_string_equal(record.cases[0]->id, "x?[31m?<b>:");
}

static const struct {
    const char *env, *figures, *cases, *said;
} refused[] = {
    { "{", NULL, NULL, "env.json:1: not the env.json of a run" },
    { "[]", NULL, NULL, "env.json:1: not the env.json of a run: no object" },
    { "{}", NULL, NULL, "schema_version 0; this program reads 1 and 2" },
    { "{\"schema_version\":3}", NULL, NULL, "schema_version 3; this program reads 1 and 2" },
    { ENV("2026-01-01"), "", NULL, "figures.csv: it is empty" },
    { ENV("2026-01-01"), "\"a\",\"b\"\n", NULL, "no columns case_id, figure and value in its first line" },
    { ENV("2026-01-01"), FIGURES, NULL, "no case in it has a row" },
    { NULL, FIGURES ROW("x:", "0", "1"), NULL, "no run and no night in it" },
};

TEST(what_is_no_record_is_refused_in_one_line)
{
    for (size_t i = 0; i < COUNT(refused); i++) {
        assert_int_equal(test_folder_make(NULL), 0);
        write_run("r", refused[i].env, refused[i].figures, refused[i].cases);
        assert_int_equal(read_folder("r"), HA_ERROR);
        assert_contains(why.text, refused[i].said);
        assert_null(strchr(why.text, '\n'));
        after(NULL);
    }
    assert_int_equal(test_folder_make(NULL), 0);
    assert_int_equal(read_folder("nowhere"), HA_ERROR);
    assert_contains(why.text, "nowhere: there is no such folder");
    ha_record_free(&record);
    write_text("file", "");
    assert_int_equal(read_folder("file"), HA_ERROR);
    assert_contains(why.text, "not a folder");
    after(NULL);
}

/* Who opened it would wait for ever: then the alarm ends this test. */
READ_TEST(a_pipe_among_the_files_is_passed_over)
{
    write_run("r", ENV("2026-01-01"), NULL, CASES "\"2\",\"x:\",\"0\",\"s\",\"pass\",\n");
    assert_int_equal(mkfifo(test_path("r/pipe.csv"), 0666), 0);
    alarm(60);
    assert_int_equal(read_folder("r"), HA_OK);
    alarm(0);
    assert_int_equal(record.count, 1);
}

READ_TEST(a_case_that_is_called_as_the_machine_is_left_out)
{
    write_run("r", ENV("2026-01-01"),
              FIGURES "\"2\",\"x:\",\"0\",\"s\",\"beside_read_GBps\",\"30\",\"GB/s\",\"more\",\"?\"\n"
                      "\"2\",\"machine\",\"0\",\"s\",\"beside_read_GBps\",\"20\",\"GB/s\",\"more\",\"?\"\n",
              CASES "\"2\",\"x:\",\"0\",\"s\",\"pass\",\n\"2\",\"machine\",\"0\",\"s\",\"fail\",\n");
    assert_int_equal(read_folder("r"), HA_OK);
    assert_near(figure(HA_MACHINE_CASE, "beside_read_GBps")->at[0].value, 30, 0);
    assert_int_equal(record.noted, 2);
}

/* ---- old folders ------------------------------------------------------------------------------------------------- */

/* Of schema 1, which had no figures.csv, and of schema 2: both as published. */
TEST(folders_of_old_schemas_stay_readable)
{
    static const struct {
        const char *path, *build, *id;
        double step_ns;
    } old[] = {
        { "results/2026-11-21-epyc-zen4-2core", "9339403", NULL, 0 },
        { "results/2026-11-22-xeon-2core", "f001271", "resident:dataset=trace/english,ctx=1900,steps=32,dtype=f16",
          321719.62903225806 },
    };
    for (size_t i = 0; i < COUNT(old); i++) {
        assert_int_equal(ha_record_read(&record, old[i].path, &why), HA_OK);
        assert_string_equal(record.night[0].build, old[i].build);
        assert_string_equal(record.notes, "");
        assert_true(record.count > 10);
        const struct ha_recorded_case *c = old[i].id ? ha_record_case(&record, "run", old[i].id) : record.cases[0];
        const struct ha_recorded_figure *f = ha_record_figure(c, "step_ns");
        assert_non_null(f);
        if (old[i].step_ns > 0) assert_near(f->at[0].value, old[i].step_ns, 1e-6);
        else assert_true(f->at[0].value > 1e3);
        ha_record_free(&record);
    }
}

/* A name from outside is kept clean, and all rows of it are of one case. */
READ_TEST(control_characters_make_no_case_of_their_own)
{
    assert_int_equal(ha_record_begin(&record, "one", &why), HA_OK);
    struct ha_recorded_case *c = ha_record_add_case(&record, "run", "a\tb");
    assert_non_null(c);
    assert_true(ha_record_add_case(&record, "run", "a\tb") == c && ha_record_add_case(&record, "run", "a\nb") == c);
    assert_true(ha_record_add_case(&record, "run", c->id) == c);
    assert_true(ha_record_add_case(&record, "run", "ab") != c);
    assert_int_equal(record.count, 2);
}
