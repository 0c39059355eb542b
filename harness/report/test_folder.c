/* The folder of a run: its rows, going on in it, and what is refused or fails. */

#include "harness/report/test_folder_open.h"

#include "harness/base/own_files.h"

#include <math.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void is_refused(const struct ha_folder_options *options, enum ha_exit code, const char *says)
{
    struct ha_folder *refused;
    const enum ha_exit got = ha_folder_open(&refused, options, &why);
    if (got != code) fail_msg("%s: exit code %d, not %d: %s", says, (int)got, (int)code, why.text);
    assert_null(refused);
    assert_contains(why.text, says);
    assert_contains(why.text, test_folder);
}

static void is_row(const struct ha_folder_entry *e, size_t n, enum ha_verdict verdict)
{
    struct fake_case of;
    const struct fake_row *row = e->row, right = fake_row(n, verdict);
    fake_case(&of, n, 0);
    assert_ptr_equal(e->suite, &fake_suite);
    assert_string_equal(e->id, of.id);
    assert_string_equal(e->from, "nightly");
    assert_string_equal(e->class_value, n % 2 ? "odd" : "even");
    assert_int_equal(row->result.verdict, verdict);
    assert_string_equal(row->result.reason, right.result.reason);
    assert_true(row->result.samples == 30);
    assert_true(row->time_ns == right.time_ns && row->lo_ns == right.lo_ns && row->hi_ns == right.hi_ns);
    assert_true(row->rate_GBps == right.rate_GBps && row->big == right.big);
    assert_string_equal(row->text, right.text);
    assert_true(isnan(row->sample_ns));
    assert_true(row->result.beside[HA_BESIDE_READ] == 31.5 && isnan(row->result.beside[HA_BESIDE_H2D]));
    assert_true(row->result.beside[HA_BESIDE_LAUNCH] == right.result.beside[HA_BESIDE_LAUNCH]);
}

TEST_WITH(the_files_hold_what_was_written, open_new, test_folder_remove)
{
    assert_true(there("env.json"));
    assert_false(there("fake.csv")); /* a suite that is not run leaves nothing */
    write_it(2, HA_PASS);
    write_it(3, HA_VERDICT_FAIL);
    assert_false(there("other.csv"));
    assert_int_equal(lines("fake.csv"), 3);
    assert_int_equal(lines("fake_samples.csv"), 1 + 2 + 3);
    assert_int_equal(lines("fake_summary.csv"), 3);
    assert_int_equal(lines("figures.csv"), 1 + 2 * FAKE_FIGURES);
    assert_int_equal(strncmp(test_text("fake.csv"),
                             "\"schema_version\",\"run_id\",\"case_id\",\"process\",\"suite\",\"mode\",\"build\","
                             "\"verdict\",\"reason\",\"samples\",\"p_value\",\"kind\",\"seed\",\"note\",\"time_ns\"",
                             120),
                     0);
    assert_contains(test_text("fake.csv"), "\"case 3, \"\"quoted\"\" & <odd>\"");
    assert_contains(test_text("fake.csv"), "\"18446744073709551612\"");
    assert_contains(test_text("figures.csv"),
                    "\"figure\",\"value\",\"lo\",\"hi\",\"samples\",\"unit\",\"better\",\"verdict\"");
    assert_contains(test_text("figures.csv"), "\"big\",\"18446744073709551612\",,,\"30\",,\"neither\",\"fail\"");
    assert_contains(test_text("figures.csv"), "\"GB/s\",\"more\",\"pass\"");
    assert_contains(test_text("fake.csv"), ",\"beside_read_GBps\",\"beside_read_1_GBps\",");
    /* behind all others */
    assert_contains(
        test_text("fake.csv"),
        ",\"beside_launch_ns\",\"beside_apart\",\"together\",\"together_of\",\"apart_us\",\"kept\",\"plan\","
        "\"outputs\"\r\n");
    assert_contains(test_text("figures.csv"), "\"beside_launch_ns\",\"20003\",,,\"30\",\"ns\",\"less\",\"fail\"");
    assert_int_equal(test_count(test_text("fake_summary.csv"), "beside"), 0);
    char interval[128];
    const struct fake_row of = fake_row(2, HA_PASS);
    snprintf(interval, sizeof interval, "\"time_ns\",\"%.17g\",\"%.17g\",\"%.17g\"", of.time_ns, of.lo_ns, of.hi_ns);
    assert_contains(test_text("figures.csv"), interval);
    assert_int_equal(test_count(test_text("fake_samples.csv"), "hidden"), 0);
    is_row(ha_folder_entry(f, 0), 2, HA_PASS);
    is_row(ha_folder_entry(f, 1), 3, HA_VERDICT_FAIL);
    assert_null(ha_folder_find(f, "fake:kind=odd,n=3", 1));
    close_it();
    assert_int_equal(lines("fake.csv"), 3);
}

TEST_WITH(a_case_has_one_row, open_new, test_folder_remove)
{
    const struct fake_row row = fake_row(4, HA_PASS);
    write_it(4, HA_PASS);
    fake_case(&c, 4, 0);
    assert_int_equal(ha_folder_row(f, &c.of, &row, &why), HA_ERROR);
    c.of.process = 2; /* another process of the same case is another row */
    assert_int_equal(ha_folder_row(f, &c.of, &row, &why), HA_OK);
    assert_int_equal(lines("fake.csv"), 3);
    assert_contains(test_text("fake.csv"), "\"fake:kind=even,n=4\",\"2\",\"nightly\"");
    close_it();
}

TEST_WITH(without_a_folder_rows_are_kept, test_folder_make, test_folder_remove)
{
    const struct ha_folder_options options = fake_options(NULL, false);
    open_with(&options);
    write_it(3, HA_PASS);
    assert_int_equal(ha_folder_entries(f), 1);
    is_row(ha_folder_find(f, "fake:kind=odd,n=3", 0), 3, HA_PASS);
    assert_int_equal(ha_folder_totals(f).passed, 1);
    close_it();
}

TEST_WITH(resume_goes_on, open_new, test_folder_remove)
{
    for (size_t n = 0; n < 8; n++) write_it(n, n == 5 ? HA_VERDICT_ERROR : n == 6 ? HA_UNCHECKED : HA_PASS);
    close_it();
    open_it(true);
    assert_int_equal(ha_folder_found(f)->kept, 7);
    assert_int_equal(ha_folder_found(f)->again, 1);
    assert_int_equal(ha_folder_entries(f), 7);
    for (size_t i = 0; i < 7; i++) {
        const size_t n = i < 5 ? i : i + 1;
        is_row(ha_folder_entry(f, i), n, n == 6 ? HA_UNCHECKED : HA_PASS);
        assert_true(ha_folder_entry(f, i)->before);
    }
    assert_null(ha_folder_find(f, "fake:kind=odd,n=5", 0));
    assert_int_equal(lines("fake.csv"), 1 + 7); /* the error is gone, with all that was written for it */
    assert_int_equal(lines("fake_samples.csv"), 1 + (0 + 1 + 2 + 3) + 0 + 2 + 3);
    assert_int_equal(lines("fake_summary.csv"), 1 + 7);
    assert_int_equal(lines("figures.csv"), 1 + 7 * FAKE_FIGURES);
    assert_int_equal(test_count(test_text("trace.json"), "process_name"), 7);
    write_it(5, HA_PASS);
    write_it(8, HA_PASS);
    assert_false(ha_folder_entry(f, 8)->before);
    close_it();
    assert_int_equal(lines("fake.csv"), 1 + 9);
    assert_int_equal(lines("figures.csv"), 1 + 9 * FAKE_FIGURES);
    assert_int_equal(lines("fake_samples.csv"), 1 + 6 + 6 + 0);
    assert_int_equal(test_count(test_text("junit.xml"), "classname=\"correctness\""), 9);
    assert_int_equal(test_count(test_text("env.json"), "\"run_id\""), 2);
}

static const char *const names[] = { "fake.csv", "fake_samples.csv", "fake_summary.csv", "figures.csv", "trace.json" };

TEST_WITH(what_needs_no_change_is_not_touched, open_new, test_folder_remove)
{
    struct stat before[COUNT(names)], after;
    for (size_t n = 0; n < 5; n++) write_it(n, HA_PASS);
    close_it();
    for (size_t i = 0; i < 5; i++) assert_int_equal(stat(test_path(names[i]), &before[i]), 0);
    open_it(true);
    close_it();
    assert_false(there("trace.json.part"));
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(stat(test_path(names[i]), &after), 0);
        assert_int_equal(after.st_ino, before[i].st_ino);
        assert_int_equal(after.st_mtim.tv_sec, before[i].st_mtim.tv_sec);
        assert_int_equal(after.st_mtim.tv_nsec, before[i].st_mtim.tv_nsec);
    }
}

TEST_WITH(torn_lines_are_dropped, test_folder_make, test_folder_remove)
{
    static char longer[9000] = "\"2\",\""; /* than what is read at once */
    static const char *const torn[] = { "\"2\",\"x", "\"2\"", "\"2\",\"a\"\"", "\"2\",,,,\r", longer };
    memset(longer + 5, 'x', sizeof longer - 6);
    for (size_t t = 0; t < COUNT(torn); t++) {
        open_it(t > 0);
        write_it(2 * t, HA_PASS);
        write_it(2 * t + 1, HA_PASS);
        close_it();
        for (size_t i = 0; i < 4; i++) append(names[i], torn[t]);
        open_it(true);
        assert_int_equal(ha_folder_found(f)->kept, 2 * t + 2);
        assert_int_equal(ha_folder_found(f)->dropped, 4);
        assert_int_equal(lines("fake.csv"), 1 + 2 * t + 2);
        close_it();
        for (size_t i = 0; i < 4; i++) assert_true(test_text(names[i])[strlen(test_text(names[i])) - 1] == '\n');
    }
}

TEST_WITH(a_torn_head_is_written_again, open_new, test_folder_remove)
{
    close_it();
    append("fake.csv", "\"schema_ver");
    append("figures.csv", "");
    open_it(true);
    write_it(1, HA_PASS);
    close_it();
    open_it(true);
    is_row(ha_folder_entry(f, 0), 1, HA_PASS);
    close_it();
}

TEST_WITH(what_a_killed_run_left_half_written_is_no_obstacle, test_folder_make, test_folder_remove)
{
    append("env.json.part", "{ \"schema_ver");
    open_it(false);
    close_it();
    open_it(true);
    write_it(1, HA_VERDICT_ERROR);
    close_it();
    append("fake.csv.part", "\"2\",\"x");
    open_it(true); /* the row of the error goes, and the file is written anew */
    write_it(1, HA_PASS);
    close_it();
    open_it(true);
    assert_int_equal(ha_folder_entries(f), 1);
    is_row(ha_folder_entry(f, 0), 1, HA_PASS);
    close_it();
}

/* A row that cannot be read is no reason to lose it, nor one that is there twice to count it. */
TEST_WITH(a_damaged_row_is_named, test_folder_make, test_folder_remove)
{
    static char far_too_long[600];
    static const struct {
        const char *from, *to, *says;
    } each[] = {
        { ",\"pass\",", ",\"past\",", "fake.csv:2: no verdict" },
        { ",\"0\",\"nightly\",", ",\"x\",\"nightly\",", "fake.csv:2: 'process' is no number" },
        { ",\"0\",\"nightly\",", ",\"18446744073709551616\",\"nightly\",", "fake.csv:2: 'process' is no number" },
        { ",\"30\",", ",\"3O\",", "fake.csv:2: 'samples' is no number" },
        { ",\"30\",", ",\"3\"0\",", "fake.csv:2: a quote inside a field: mend or remove this line" },
        { ",\"1000000\",", ",\"1OOOOOO\",", "fake.csv:2: time_ns: " },
        { ",\"pass\",,", far_too_long, "fake.csv:2: the reason is too long" },
        { NULL, NULL, "fake.csv:3: a second row of this case" },
    };
    const struct ha_folder_options options = fake_options(test_folder, true);
    memset(far_too_long, 'x', sizeof far_too_long);
    memcpy(far_too_long, ",\"pass\",\"", 9);
    memcpy(far_too_long + 9 + 512, "\",", 3); /* by one byte, that of its end */
    for (size_t i = 0; i < COUNT(each); i++) {
        open_it(false);
        write_it(0, HA_PASS);
        close_it();
        char *text = strdup(test_text("fake.csv")), *row = strchr(text, '\n') + 1,
             *at = each[i].from ? strstr(row, each[i].from) : NULL;
        assert_true(at || !each[i].from);
        if (at) {
            assert_int_equal(truncate(test_path("fake.csv"), at - text), 0);
            append("fake.csv", each[i].to);
            append("fake.csv", at + strlen(each[i].from));
        } else append("fake.csv", row);
        free(text);
        is_refused(&options, HA_EXIT_ENVIRONMENT, each[i].says);
        assert_int_equal(test_folder_remove(state), 0);
        assert_int_equal(test_folder_make(state), 0);
    }
}

TEST_WITH(a_report_that_cannot_be_written_is_an_error, open_new, test_folder_remove)
{
    assert_int_equal(mkdir(test_path("junit.xml.part"), 0777), 0);
    write_it(1, HA_PASS);
    assert_int_equal(ha_folder_close(f, &why), HA_ERROR);
    assert_contains(why.text, "junit.xml: cannot write");
    assert_int_equal(rmdir(test_path("junit.xml.part")), 0);
}

TEST_WITH(lines_without_a_row_are_dropped, open_new, test_folder_remove)
{
    const struct fake_row row = fake_row(9, HA_PASS);
    write_it(7, HA_PASS);
    fake_case(&c, 9, 0); /* a case that was killed: lines, and no row */
    for (int i = 0; i < 5; i++) assert_int_equal(ha_folder_line(f, &c.of, FAKE_SAMPLES, &row, &why), HA_OK);
    assert_int_equal(ha_folder_trace(f, &c.of, "{\"ph\":\"X\"}", 10, &why), HA_OK);
    close_it();
    assert_int_equal(lines("fake_samples.csv"), 1 + 3 + 5);
    open_it(true);
    assert_int_equal(lines("fake_samples.csv"), 1 + 3);
    assert_int_equal(ha_folder_found(f)->dropped, 5 + 2);
    assert_int_equal(test_count(test_text("trace.json"), "\"name\":\"process_name\""), 1);
    write_it(9, HA_PASS);
    close_it();
    assert_int_equal(lines("fake_samples.csv"), 1 + 3 + 1);
}

TEST_WITH(columns_and_files_have_names_of_their_own, test_folder_make, test_folder_remove)
{
    struct ha_field twice[2] = { fake_suite.field[0], fake_suite.field[0] };
    struct ha_suite suite = fake_suite;
    const struct ha_suite *const suites[] = { &suite };
    struct ha_folder_options options = fake_options(NULL, false);
    suite.field = twice;
    suite.fields = 2;
    options.suites = suites;
    options.suites_count = 1;
    assert_int_equal(ha_folder_open(&f, &options, &why), HA_EXIT_INTERNAL);
    assert_contains(why.text, "time_ns");
    const struct ha_suite *const same[] = { &fake_suite, &fake_suite };
    options.suites = same;
    options.suites_count = 2;
    assert_int_equal(ha_folder_open(&f, &options, &why), HA_EXIT_INTERNAL);
    assert_string_equal(why.text, "fake.csv: two files of this name");
}

/* What is there stays as it is. */
TEST_WITH(what_is_not_ours_is_refused, test_folder_make, test_folder_remove)
{
    static const struct {
        bool begun; /* the folder is that of a run, with a case */
        bool resume;
        const char *name, *text; /* added to this file of it */
        enum ha_exit code;
        const char *says;
    } each[] = {
        { true, true, "fake.csv", "\"2\",\"r\",\"fake:x\"\r\n", HA_EXIT_ENVIRONMENT,
          "fake.csv:3: too many or too few columns" },
        { true, true, "other.csv", "\"schema_version\",\"something\"\r\n\"1\",\"2\"\r\n", HA_EXIT_USAGE,
          "other.csv: its columns are not those of this program (column 2 is 'something'" },
        { false, false, "a-letter.txt", "dear\n", HA_EXIT_USAGE, "the folder is not empty; give another name" },
        { false, true, "a-letter.txt", "dear\n", HA_EXIT_USAGE, "it has no env.json" },
        { false, true, "env.json", "{ \"schema_version\": 1 }", HA_EXIT_USAGE, "another version of habench" },
        { false, true, "env.json", "{ \"schema_ver", HA_EXIT_USAGE, "env.json is damaged" },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        const struct ha_folder_options options = fake_options(test_folder, each[i].resume);
        if (each[i].begun) {
            open_it(false);
            write_it(1, HA_PASS);
            close_it();
        }
        append(each[i].name, each[i].text);
        char *before = strdup(test_text(each[i].name));
        is_refused(&options, each[i].code, each[i].says);
        assert_string_equal(test_text(each[i].name), before);
        assert_int_equal(there("env.json"), each[i].begun || !strcmp(each[i].name, "env.json"));
        free(before);
        assert_int_equal(test_folder_remove(state), 0);
        assert_int_equal(test_folder_make(state), 0);
    }
    append("a-letter.txt", "dear\n");
    struct ha_folder_options options = fake_options(test_path("a-letter.txt"), true);
    is_refused(&options, HA_EXIT_USAGE, "it is no folder");
    options.path = "/proc/nowhere";
    assert_int_equal(ha_folder_open(&f, &options, &why), HA_EXIT_ENVIRONMENT);
}

TEST_WITH(a_run_that_differs_is_refused, test_folder_make, test_folder_remove)
{
    struct ha_folder_options options = fake_options(test_folder, true);
    struct ha_env env = *options.env;
    open_it(true); /* of an empty folder: it begins */
    write_it(1, HA_PASS);
    close_it();
    options.mode = "check";
    is_refused(&options, HA_EXIT_USAGE, "cannot go on there: mode: there 'run', here 'check'");
    options.build = "c";
    is_refused(&options, HA_EXIT_USAGE, "mode: there 'run', here 'check'; build: there 'b', here 'c'");
    options = fake_options(test_folder, true);
    options.options = "device=cuda";
    is_refused(&options, HA_EXIT_USAGE, "options: there 'device=host', here 'device=cuda'");
    options = fake_options(test_folder, true);
    strcpy(env.cpu, "another CPU");
    options.env = &env;
    is_refused(&options, HA_EXIT_USAGE, "CPU: there 'a CPU', here 'another CPU'");
    assert_int_equal(test_count(test_text("env.json"), "\"mode\": \"run\""), 1);
    open_it(true);
    close_it();
}

/* ---- -o -------------------------------------------------------------------------------------------------------- */

/* Opens NAME in the test's folder as -o does. */
static void open_next(const char *name)
{
    struct ha_folder_options options = fake_options(test_path(name), false);
    char *path = strdup(options.path);
    options.path = path;
    options.next = true;
    open_with(&options);
    free(path);
}

static void assert_at(const char *name) { assert_string_equal(ha_folder_path(f), test_path(name)); }

TEST_WITH(a_complete_record_keeps_its_name, test_folder_make, test_folder_remove)
{
    static const char *const taken[] = { "out", "out-2", "out-3" };
    for (size_t i = 0; i < COUNT(taken); i++) {
        open_next(i == 1 ? "out//" : "out");
        if (i == 0) assert_at("out");
        else assert_at(taken[i]);
        write_it(i, HA_PASS);
        ha_folder_end(f);
        close_it();
        assert_int_equal(test_count(test_text("out/env.json"), "\"complete\": true"), 1);
    }
    assert_int_equal(lines("out/fake.csv"), 2); /* each has its own row */
    assert_int_equal(lines("out-3/fake.csv"), 2);
    struct ha_folder_options options = fake_options(test_path("out"), false);
    is_refused(&options, HA_EXIT_USAGE, "the folder is not empty; give another name"); /* a folder of habench's own */
}

/* Of one that did not come to its end, or has a case that was not run, this program does not know what is wanted. */
TEST_WITH(a_run_that_did_not_end_says_what_to_do, test_folder_make, test_folder_remove)
{
    for (int i = 0; i < 3; i++) {
        struct ha_folder_options options = fake_options(test_path("out"), i > 0);
        char *path = strdup(options.path);
        options.path = path;
        if (i == 0) open_next("out");
        else open_with(&options); /* goes on: it is no more complete than before */
        if (i == 1) write_it(1, HA_PASS);
        if (i == 2) {
            fake_case(&c, 7, 0);
            assert_int_equal(ha_folder_not_run(f, &c.of, "the time is over", &why), HA_OK);
            ha_folder_end(f);
        }
        close_it();
        options.resume = false;
        options.next = true;
        is_refused(&options, HA_EXIT_USAGE,
                   "it has a run that did not end; add --resume to go on there, or give another name");
        assert_false(there("out-2"));
        free(path);
    }
}

TEST_WITH(folders_above_it_are_made, test_folder_make, test_folder_remove)
{
    open_next("a/b/c");
    assert_at("a/b/c");
    close_it();
    assert_true(there("a/b/c/env.json"));
    append("a/file", "x");
    struct ha_folder_options options = fake_options(test_path("a/file/c"), false);
    is_refused(&options, HA_EXIT_ENVIRONMENT, "a/file/c: cannot make the folder: Not a directory");
}

enum { AT_ONCE = 8 };

/* Each of processes that begin at the same moment has a folder of its own: it is held until all have theirs. */
TEST_WITH(runs_that_begin_at_once_have_folders_of_their_own, test_folder_make, test_folder_remove)
{
    int go[2], up[2], stay[2];
    char byte = 0;
    assert_true(pipe(go) == 0 && pipe(up) == 0 && pipe(stay) == 0);
    for (int i = 0; i < AT_ONCE; i++) {
        if (fork() != 0) continue;
        close(go[1]);
        close(stay[1]);
        if (read(go[0], &byte, 1) != 0) _exit(1); /* until the parent closes it */
        open_next("out");
        if (write(up[1], "x", 1) != 1 || read(stay[0], &byte, 1) != 0) _exit(1);
        close_it();
        _exit(0);
    }
    close(go[1]);
    for (int i = 0; i < AT_ONCE; i++) assert_int_equal(read(up[0], &byte, 1), 1);
    close(stay[1]);
    for (int i = 0; i < AT_ONCE; i++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    for (int i = 0; i < 2; i++) close(go[0]), close(up[i]), close(stay[0]), go[0] = stay[0] = -1;
    assert_true(there("out/env.json") && there("out-8/env.json") && !there("out-9"));
}

/* A process that holds the folder until it is killed. */
static pid_t hold(bool inherits)
{
    int up[2];
    char byte;
    assert_int_equal(pipe(up), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* where the test fails */
        const struct ha_folder_options options = fake_options(test_folder, true);
        if (inherits) ha_own_files_leave(-1);
        else if (ha_folder_open(&f, &options, &why) != HA_EXIT_OK) _exit(1);
        if (write(up[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    close(up[1]);
    assert_int_equal(read(up[0], &byte, 1), 1);
    close(up[0]);
    return pid;
}
static void end(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

TEST_WITH(a_folder_has_one_writer, test_folder_make, test_folder_remove)
{
    struct ha_folder_options options = fake_options(test_folder, true);
    char who[64];
    const pid_t pid = hold(false);
    snprintf(who, sizeof who, "another run (process %d) writes to this folder", (int)pid);
    is_refused(&options, HA_EXIT_USAGE, access("/proc/locks", R_OK) == 0 ? who : "another run");
    options.resume = false; /* the lock is said first, though the folder is not empty */
    is_refused(&options, HA_EXIT_USAGE, "another run");
    end(pid);
    open_it(true);
    close_it();
}

TEST_WITH(a_child_does_not_hold_the_folder, open_new, test_folder_remove)
{
    struct ha_folder_options options = fake_options(test_folder, true);
    const pid_t pid = hold(true);
    is_refused(&options, HA_EXIT_USAGE, "another run"); /* what the child closed is still locked by us */
    close_it();
    open_it(true); /* while the child lives */
    close_it();
    end(pid);
}

TEST_WITH(a_full_disk_ends_the_run, open_new, test_folder_remove)
{
    struct ha_why again = { "" };
    size_t n = 0;
    limit_files(6000);
    enum ha_status status = HA_OK;
    while (n < 1000 && (status = fake_write(f, n, HA_PASS, &why)) == HA_OK) n++;
    fake_case(&c, n, 0);
    const struct fake_row row = fake_row(n, HA_PASS);
    enum ha_status later = ha_folder_row(f, &c.of, &row, &again);
    for (size_t i = n; i < 20; i++) {
        fake_case(&c, i, 0);
        assert_int_equal(ha_folder_not_run(f, &c.of, "the disk is full", &again), HA_OK);
    }
    const struct ha_folder_totals t = ha_folder_totals(f);
    const enum ha_status closed = ha_folder_close(f, &again);
    limit_files(RLIM_INFINITY);

    assert_true(n > 3 && n < 20);
    assert_int_equal(status, HA_ERROR);
    assert_int_equal(later, HA_ERROR);
    assert_int_equal(closed, HA_ERROR);
    assert_string_equal(why.text, again.text); /* the first failure, whatever is called */
    assert_contains(why.text, ".csv: cannot write a row: File too large; the rows so far are kept: make room and go on "
                              "with --resume");
    assert_int_equal(t.passed, n);
    assert_int_equal(t.not_run, 20 - n);
    open_it(true);
    assert_int_equal(ha_folder_entries(f), n); /* every row that was said to be written, and no other */
    for (size_t i = n; i < 20; i++) write_it(i, HA_PASS);
    close_it();
    assert_int_equal(lines("fake.csv"), 21);
    assert_int_equal(lines("figures.csv"), 1 + 20 * FAKE_FIGURES);
}

TEST_WITH(a_folder_that_is_removed_ends_the_run, open_new, test_folder_remove)
{
    struct ha_why again;
    write_it(0, HA_PASS);
    assert_int_equal(test_folder_remove(state), 0);
    const enum ha_status status = fake_write(f, 1, HA_PASS, &why), closed = ha_folder_close(f, &again);
    assert_int_equal(mkdir(test_folder, 0777), 0);
    assert_int_equal(status, HA_ERROR);
    assert_int_equal(closed, HA_ERROR);
    assert_contains(why.text, ": the folder was removed, and its rows with it");
    assert_string_equal(why.text, again.text);
}

/* ---- what is not the run's own ----------------------------------------------------------------------------------- */

/* Files that somebody else makes, links, grows or removes while the run is open. */
TEST_WITH(what_is_not_the_run_s_own_is_an_error, test_folder_make, test_folder_remove)
{
    static const char *const says[] = { "fake.csv: it is there, and is not this run's", "figures.csv",
                                        "fake.csv: cannot write a row: another program wrote into it",
                                        "fake.csv: cannot write a row: it was removed" };
    for (size_t i = 0; i < COUNT(says); i++) {
        open_it(false);
        if (i > 1) write_it(1, HA_PASS);
        if (i == 0) append("fake.csv", "run_id,verdict\r\n");
        if (i == 1) assert_int_equal(symlink("elsewhere", test_path("figures.csv")), 0);
        if (i == 2) append("fake.csv", "a line\r\n");
        if (i == 3) assert_int_equal(unlink(test_path("fake.csv")), 0);
        assert_int_equal(fake_write(f, 2, HA_PASS, &why), HA_ERROR);
        assert_contains(why.text, says[i]);
        assert_int_equal(ha_folder_close(f, &why), HA_ERROR);
        if (i == 0) assert_string_equal(test_text("fake.csv"), "run_id,verdict\r\n");
        assert_false(there("elsewhere"));
        assert_int_equal(test_folder_remove(state), 0);
        assert_int_equal(test_folder_make(state), 0);
    }
}

/* A run that was killed between making a file and its first line left it empty. */
TEST_WITH(an_empty_file_is_begun_anew, open_new, test_folder_remove)
{
    write_it(1, HA_PASS);
    close_it();
    assert_int_equal(truncate(test_path("figures.csv"), 0), 0);
    open_it(true);
    write_it(2, HA_PASS);
    close_it();
    assert_memory_equal(test_text("figures.csv"), "\"schema", 7);
}
