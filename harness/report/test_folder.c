#include "harness/base/test_folder.h"
#include "harness/report/fake_suite.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static bool there(const char *name) { return access(test_path(name), F_OK) == 0; }

static size_t lines(const char *name) { return test_count(test_text(name), "\n"); }

static void append(const char *name, const char *text)
{
    FILE *f = fopen(test_path(name), "a");
    fputs(text, f);
    fclose(f);
}

static struct ha_folder *f; /* the one that is open */
static struct ha_why why;
static struct fake_case c;

static void open_with(const struct ha_folder_options *options)
{
    if (ha_folder_open(&f, options, &why) != HA_EXIT_OK) fail_msg("%s", why.text);
}
static void open_it(bool resume)
{
    const struct ha_folder_options options = fake_options(test_folder, resume);
    open_with(&options);
}
static void close_it(void)
{
    if (ha_folder_close(f, &why) != HA_OK) fail_msg("%s", why.text);
}
static void write_it(size_t n, enum ha_verdict verdict)
{
    if (fake_write(f, n, verdict, &why) != HA_OK) fail_msg("%s", why.text);
}

static int open_new(void **state)
{
    const int failed = test_folder_make(state);
    if (!failed) open_it(false);
    return failed;
}

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
                             "\"verdict\",\"reason\",\"samples\",\"kind\",\"seed\",\"note\",\"time_ns\"",
                             120),
                     0);
    assert_contains(test_text("fake.csv"), "\"case 3, \"\"quoted\"\" & <odd>\"");
    assert_contains(test_text("fake.csv"), "\"18446744073709551612\"");
    assert_contains(test_text("figures.csv"),
                    "\"figure\",\"value\",\"lo\",\"hi\",\"samples\",\"unit\",\"better\",\"verdict\"");
    assert_contains(test_text("figures.csv"), "\"big\",\"18446744073709551612\",,,\"30\",,\"neither\",\"fail\"");
    assert_contains(test_text("figures.csv"), "\"GB/s\",\"more\",\"pass\"");
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
        { ",\"0\",\"nightly\",", ",\"x\",\"nightly\",", "fake.csv:2: no process" },
        { ",\"0\",\"nightly\",", ",\"18446744073709551616\",\"nightly\",", "fake.csv:2: no process" },
        { ",\"30\",", ",\"3O\",", "fake.csv:2: samples" },
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
        { false, false, "a-letter.txt", "dear\n", HA_EXIT_USAGE,
          "the folder is not empty; give another name, or --resume to go on there" },
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
        if (inherits) ha_folder_forked(f);
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

/* From now on no file becomes larger. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
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

/* the events of the trace, which is a whole file of JSON */
static json_t *trace_events(void)
{
    json_error_t error;
    json_t *trace = json_load_file(test_path("trace.json"), 0, &error);
    if (!trace) fail_msg("%s", error.text);
    json_t *events = json_incref(json_object_get(trace, "traceEvents"));
    json_decref(trace);
    return events;
}

static void trace_has(size_t events)
{
    json_t *all = trace_events();
    assert_int_equal(json_array_size(all), events);
    json_decref(all);
}

TEST_WITH(a_trace_that_does_not_fit_leaves_the_file_complete, open_new, test_folder_remove)
{
    static char events[20000];
    write_it(1, HA_PASS);
    fake_case(&c, 2, 0);
    snprintf(events, sizeof events, "{\"ph\":\"X\",\"name\":\"%018000d\"}", 0);
    limit_files(9000);
    const enum ha_status status = ha_folder_trace(f, &c.of, events, strlen(events), &why);
    limit_files(RLIM_INFINITY);
    assert_int_equal(status, HA_ERROR);
    assert_contains(why.text, "trace.json: cannot write: File too large; the rows so far are kept");
    ha_folder_close(f, &why);
    trace_has(3);
    assert_false(there("junit.xml")); /* which would pass for the report of a whole run */
}

TEST_WITH(the_trace_is_complete_after_every_call, open_new, test_folder_remove)
{
    static const char evil[] = "{\"ph\":\"X\",\"name\":\"\033[2J\xff\"}";
    size_t events = 0;
    for (size_t n = 0; n < 3; n++) {
        write_it(n, HA_PASS);
        json_t *all = trace_events(), *e;
        size_t i;
        events += 3;
        assert_int_equal(json_array_size(all), events);
        json_array_foreach(all, i, e) assert_int_equal(json_integer_value(json_object_get(e, "pid")), i / 3 + 1);
        json_decref(all);
    }
    fake_case(&c, 2, 0); /* more of the same case */
    assert_int_equal(ha_folder_trace(f, &c.of, evil, sizeof evil - 1, &why), HA_OK);
    assert_int_equal(ha_folder_trace(f, &c.of, "{\"ph\":", 6, &why), HA_FAIL);
    assert_contains(why.text, "no JSON");
    assert_int_equal(ha_folder_trace(f, &c.of, "{\"a\":\0}", 7, &why), HA_FAIL);
    assert_int_equal(ha_folder_trace(f, &c.of, "1,2", 3, &why), HA_FAIL);
    assert_int_equal(ha_folder_trace(f, &c.of, "", 0, &why), HA_OK);
    static const char name[] = "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"x\"}}";
    assert_int_equal(ha_folder_trace(f, &c.of, name, sizeof name - 1, &why), HA_OK);
    assert_int_equal(test_count(test_text("trace.json"), "process_name"), 3); /* named by us alone */
    close_it();
    assert_null(strchr(test_text("trace.json"), '\033'));
    assert_int_equal(test_count(test_text("trace.json"), "\"pid\":3"), 4);
    assert_int_equal(truncate(test_path("trace.json"), (off_t)strlen(test_text("trace.json")) - 30), 0); /* torn */
    open_it(true);
    trace_has(9);
    write_it(3, HA_PASS);
    close_it();
    trace_has(12);
    assert_int_equal(test_count(test_text("trace.json"), "\"pid\":4"), 3);
}

/* Two processes of a case are two of the trace; only what follows the name of one that has its row stays. */
TEST_WITH(events_belong_to_a_row, open_new, test_folder_remove)
{
    static const char event[] = "{\"ph\":\"X\"}";
    const struct fake_row row = fake_row(1, HA_PASS);
    fake_case(&c, 1, 0);
    for (c.of.process = 0; c.of.process < 2; c.of.process++)
        assert_int_equal(ha_folder_trace(f, &c.of, event, sizeof event - 1, &why), HA_OK);
    assert_int_equal(test_count(test_text("trace.json"), "process_name"), 2);
    assert_int_equal(test_count(test_text("trace.json"), "\"pid\":2"), 2);
    c.of.process = 0;
    assert_int_equal(ha_folder_row(f, &c.of, &row, &why), HA_OK);
    close_it();
    open_it(true);
    assert_int_equal(ha_folder_found(f)->dropped, 2);
    trace_has(2);
    close_it();
    const size_t end = strlen("\n]}\n");
    assert_int_equal(truncate(test_path("trace.json"), (off_t)(strlen(test_text("trace.json")) - end)), 0);
    append("trace.json", ",\n{\"ph\":\"X\",\"pid\":9}\n]}\n"); /* of nobody */
    trace_has(3);
    open_it(true);
    assert_int_equal(ha_folder_found(f)->dropped, 1);
    trace_has(2);
    close_it();
}

TEST_WITH(junit_and_totals_cover_the_whole_folder, open_new, test_folder_remove)
{
    static const struct {
        enum ha_verdict verdict;
        const char *says;
    } expect[] = {
        { HA_PASS, "<testcase classname=\"correctness\" name=\"fake:kind=even,n=0\"/>" },
        { HA_VERDICT_FAIL,
          "name=\"fake:kind=odd,n=1\"><failure message=\"case 1, &quot;quoted&quot; &amp; &lt;odd&gt;\">habench check "
          "'fake:kind=odd,n=1'</failure>" },
        { HA_VERDICT_WAIVED, "name=\"fake:kind=even,n=2\"><skipped message=\"waived: case 2" },
        { HA_UNCHECKED, "name=\"fake:kind=odd,n=3\"><skipped message=\"unchecked: case 3" },
        { HA_VERDICT_ERROR, "name=\"fake:kind=even,n=4\"><error message=\"case 4" },
    };
    for (size_t n = 0; n < 4; n++) write_it(n, expect[n].verdict);
    close_it();
    open_it(true);
    write_it(4, expect[4].verdict);
    fake_case(&c, 5, 0);
    assert_int_equal(ha_folder_not_run(f, &c.of, "no \"time\"\033 left", &why), HA_OK);
    fake_case(&c, 6, 1);
    struct fake_row row = fake_row(6, HA_PASS);
    row.result.samples = row.time_ns = (double)NAN;
    row.sample_ns = 5; /* of a line, and no time of the case */
    assert_int_equal(ha_folder_row(f, &c.of, &row, &why), HA_OK);
    c.of.suite = &other_suite;
    c.of.id = "other:n=1";
    c.of.from = "";
    c.of.process = 0;
    c.of.key_value = c.key + FAKE_SEED;
    assert_int_equal(ha_folder_row(f, &c.of, &row, &why), HA_OK);
    const struct ha_folder_totals t = ha_folder_totals(f), right = {
        .passed = 3, .failed = 1, .waived = 1, .unchecked = 1, .errors = 1, .not_run = 1
    };
    assert_memory_equal(&t, &right, sizeof t);
    close_it();
    const char *xml = test_text("junit.xml");
    for (size_t n = 0; n < 5; n++) assert_contains(xml, expect[n].says);
    assert_contains(xml, "name=\"fake:kind=odd,n=5\"><skipped message=\"not run: no &quot;time&quot;? left\"/>");
    assert_contains(xml, "<testsuites name=\"habench\" tests=\"14\" failures=\"1\" errors=\"1\" skipped=\"4\">");
    assert_contains(xml, "<testsuite name=\"nightly.even\" tests=\"8\" failures=\"0\" errors=\"1\" skipped=\"2\">");
    assert_contains(xml, "<testsuite name=\"nightly.odd\" tests=\"5\" failures=\"1\" errors=\"0\" skipped=\"2\">");
    assert_contains(xml, "<testsuite name=\"other\" tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"0\">");
    assert_contains(xml, "classname=\"timing\" name=\"fake:kind=odd,n=3\" time=\"0.001000001\"/>");
    assert_contains(xml, "classname=\"timing\" name=\"fake:kind=even,n=6 (process 1)\"><skipped");
    assert_null(strchr(xml, '\033'));
}

/* A shell runs the line of a case that is wrong as it stands there: by words, those of `habench check`. */
TEST_WITH(what_runs_a_case_again_is_words_of_a_shell, test_folder_make, test_folder_remove)
{
    static const struct {
        const char *id, *exec, *words;
    } each[] = {
        { "fake:kind=it's,note=$HOME", NULL, "fake:kind=it's,note=$HOME\n" },
        { "fake:kind=it's,note=$HOME", "x", "fake:kind=it's,note=$HOME\n" },
        { "fake:note=exec", "sh -c 'a && <b>' --\033", "fake:note=exec\n--exec\nsh -c 'a && <b>' --?\n" },
        { "fake:note=exec,seed=1", "x", "fake:note=exec,seed=1\n--exec\nx\n" },
        { "fake:footnote=exec", "x", "fake:footnote=exec\n" },
        { "fake:seed=1,note=execs", "x", "fake:seed=1,note=execs\n" },
        { "fake:note=exec", NULL, "fake:note=exec\n" },
    };
    static const char *const plain[][2] = { { "&lt;", "<" }, { "&gt;", ">" }, { "&amp;", "&" } };
    for (size_t i = 0; i < COUNT(each); i++) {
        struct ha_folder_options options = fake_options(test_path("again"), false);
        const struct fake_row row = fake_row(1, HA_VERDICT_FAIL);
        char path[TEST_PATH_MAX], line[600], sh[700], said[128] = "";
        options.path = strcpy(path, options.path);
        options.exec = each[i].exec;
        fake_case(&c, 1, 0);
        c.of.id = each[i].id;
        assert_int_equal(ha_folder_open(&f, &options, &why), HA_EXIT_OK);
        assert_int_equal(ha_folder_row(f, &c.of, &row, &why), HA_OK);
        close_it();
        const char *xml = test_text("again/junit.xml"), *from = strstr(xml, ">habench check "),
                   *end = from ? strstr(from, "</failure>") : NULL;
        assert_non_null(end);
        snprintf(line, sizeof line, "%.*s", (int)(end - from - 15), from + 15);
        for (size_t p = 0; p < COUNT(plain); p++)
            for (char *at; (at = strstr(line, plain[p][0]));) {
                *at = *plain[p][1];
                memmove(at + 1, at + strlen(plain[p][0]), strlen(at + strlen(plain[p][0])) + 1);
            }
        snprintf(sh, sizeof sh, "printf '%%s\\n' %s", line);
        FILE *shell = popen(sh, "r");
        assert_non_null(shell);
        said[fread(said, 1, sizeof said - 1, shell)] = 0;
        assert_int_equal(pclose(shell), 0);
        assert_string_equal(said, each[i].words);
        snprintf(sh, sizeof sh, "rm -r %s", path);
        assert_int_equal(system(sh), 0);
    }
}

TEST_WITH(a_check_has_no_timing, test_folder_make, test_folder_remove)
{
    struct ha_folder_options options = fake_options(test_folder, false);
    options.mode = "check";
    open_with(&options);
    write_it(1, HA_PASS);
    close_it();
    assert_int_equal(test_count(test_text("junit.xml"), "timing"), 0);
}

TEST_WITH(a_column_may_have_no_unit, test_folder_make, test_folder_remove)
{
    struct ha_field fields[] = { fake_suite.field[5], fake_suite.field[0] }; /* a text, a time */
    struct ha_suite suite = fake_suite;
    const struct ha_suite *const suites[] = { &suite };
    struct ha_folder_options options = fake_options(test_folder, false);
    const struct fake_row row = fake_row(0, HA_PASS);
    fields[0].unit = NULL;
    suite.field = fields;
    suite.fields = 2;
    options.suites = suites;
    options.suites_count = 1;
    open_with(&options);
    fake_case(&c, 0, 0);
    c.of.suite = &suite;
    assert_int_equal(ha_folder_row(f, &c.of, &row, &why), HA_OK);
    close_it();
    assert_contains(test_text("junit.xml"), "classname=\"timing\" name=\"fake:kind=even,n=0\" time=\"0.001000000\"/>");
}

static json_t *next_line(char **text)
{
    char *end = strchr(*text, '\n');
    json_error_t error;
    if (!end) return NULL;
    *end = 0;
    json_t *j = json_loads(*text, JSON_DECODE_INT_AS_REAL, &error); /* it has no uint64_t */
    if (!j) fail_msg("%s: %s", error.text, *text);
    *text = end + 1;
    return j;
}

TEST_WITH(json_lines_hold_the_same, test_folder_make, test_folder_remove)
{
    const struct ha_folder_options options = fake_options(NULL, false);
    open_with(&options);
    struct fake_row row = fake_row(1, HA_VERDICT_FAIL);
    size_t figures = 0;
    strcpy(row.text, "a \"b\" \\ \033\xff\n");
    row.hi_ns = (double)INFINITY;
    row.lo_ns = (double)NAN;
    fake_case(&c, 1, 0);
    c.key[FAKE_SEED] = "007"; /* which is no number of JSON */
    assert_int_equal(ha_folder_json(f, test_print(), &c.of, &row, &why), HA_OK);
    assert_contains(test_printed(), "\"seed\":\"007\",");
    fake_case(&c, 1, 0);
    c.key[FAKE_NOTE] = "17"; /* a name, which looks like a number */
    assert_int_equal(ha_folder_json(f, test_print(), &c.of, &row, &why), HA_OK);
    char *text = test_printed();
    assert_contains(text, "\"big\":18446744073709551614,");
    assert_contains(text, "\"seed\":18446744073709551615,");
    json_t *j = next_line(&text);
    const char *const texts[][2] = { { "row", "case" },     { "case_id", c.id },
                                     { "verdict", "fail" }, { "text", "a \"b\" \\ ???" },
                                     { "hi_ns", "inf" },    { "note", "17" } };
    for (size_t i = 0; i < COUNT(texts); i++)
        assert_string_equal(json_string_value(json_object_get(j, texts[i][0])), texts[i][1]);
    assert_null(json_object_get(j, "lo_ns"));
    assert_null(json_object_get(j, "hidden"));
    assert_true(json_real_value(json_object_get(j, "time_ns")) == row.time_ns);
    assert_true(json_real_value(json_object_get(j, "schema_version")) == 2);
    json_decref(j);
    while ((j = next_line(&text))) {
        assert_string_equal(json_string_value(json_object_get(j, "row")), "figure");
        assert_true(json_is_number(json_object_get(j, "value")));
        figures++;
        json_decref(j);
    }
    assert_int_equal(figures, FAKE_FIGURES);
    close_it();
}

TEST_WITH(every_column_is_listed, test_folder_make, test_folder_remove)
{
    ha_folder_print_fields(test_print(), fake_suites, 2);
    const char *text = test_printed();
    assert_int_equal(test_count(text, "\n"), 1 + (13 + 6) + (4 + 3) + (7 + 3 + 1) + (10 + 1 + 2) + 13);
    assert_contains(text, "fake.csv");
    assert_contains(text, "figures.csv");
    assert_contains(text, "less     a time\n");
}

int main(void) { return test_all("tests", NULL, NULL); }
