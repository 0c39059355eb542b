/* What the loop makes of a plan: groups, processes, what is gone on with, what was not run, how it ends. The suites are
 * of this test, in place of the program's (--wrap), and use no device. */

#include "harness/engine/test_run.h"

#include "harness/base/why.h"
#include "harness/engine/child.h"
#include "harness/engine/fair.h"
#include "harness/engine/serve.h"

#include <math.h>
#include <sys/mman.h>

enum { CASES = 6 };

struct point {
    uint64_t n, unused;
};
struct row {
    struct ha_result head;
    double pid; /* of the process that ran it */
};

/* What the cases are to do and to find; the worker process has it from its fork. */
static struct {
    bool grouped;
    size_t among[CASES]; /* how many of them are run at once; 0: is not run */
    double cap_s[CASES]; /* about what its group is given; 0: whatever */
    bool wrong[CASES];
    bool removes[CASES];                     /* the folder of the run */
    const char *device[CASES], *name[CASES]; /* that it uses, as asked for, and what that says of itself; or NULL */
    bool lines;                              /* a line and an event of each case */
    double p[CASES];                         /* 0: none */
    unsigned us[CASES];                      /* how long it takes */
} told;
static char folder[TEST_PATH_MAX];

static pid_t *worker; /* in memory that both processes have: the one that ran the last case, which is to be killed */

/* Asked by the program between groups. */
static bool together(const void *a, const void *b)
{
    siginfo_t how;
    if (worker && *worker) {
        assert_int_equal(kill(*worker, SIGABRT), 0);
        while (!ha_process_gone(*worker, &how)) usleep(1000);
        *worker = 0;
    }
    return told.grouped;
}
static bool uses(const void *point, size_t key) { return key == 0; }

static void use_device(size_t n)
{
    struct ha_env_device d;
    memset(&d, 0, sizeof d);
    snprintf(d.asked, sizeof d.asked, "%s", told.device[n]);
    snprintf(d.kind, sizeof d.kind, "host");
    snprintf(d.info.name, sizeof d.info.name, "%s", told.name[n]);
    ha_child_say(HA_SAID_DEVICE, &d, sizeof d);
}

static struct ha_engine engine; /* in the worker process */
static enum ha_status begin(void **run, const struct ha_suite_config *config, const struct ha_results *before,
                            struct ha_why *why)
{
    engine = config->engine;
    return HA_OK;
}

static enum ha_status check(struct ha_group *g, const char *suite, struct ha_why *why)
{
    for (size_t i = 0; i < g->count; i++) {
        const size_t n = ((const struct point *)g->point[i])->n;
        const double cap_s = (double)g->cap_ns / 1e9;
        if (told.cap_s[n] > 0 && (cap_s > told.cap_s[n] || cap_s < told.cap_s[n] * 0.9))
            return ha_why(why, HA_FAIL, "%g s for it", cap_s);
        if (strncmp(g->id[i], suite, strlen(suite)) != 0)
            return ha_why(why, HA_FAIL, "%s comes to %s", g->id[i], suite);
        if (told.among[n] != g->count) return ha_why(why, HA_FAIL, "%s among %zu", g->id[i], g->count);
        if (told.device[n]) use_device(n);
        if (worker && n == 0) *worker = getpid();
        usleep(told.us[n]);
        if (told.removes[n]) nftw(folder, test_remove, 16, FTW_DEPTH | FTW_PHYS);
        if (told.wrong[n]) return ha_why(why, HA_FAIL, "wrong");
        ((struct row *)g->row[i])->pid = (double)getpid();
        if (told.p[n] > 0) ((struct row *)g->row[i])->head.p = told.p[n];
        strcpy(((struct row *)g->row[i])->head.suspicion, "too odd");
        if (told.lines) engine.line(engine.arg, 1, g->row[i]);
        if (told.lines) engine.trace(engine.arg, "{\"ph\":\"X\"}", 10);
        g->right[i] = true;
    }
    return HA_OK;
}
static enum ha_status check_front(void *run, struct ha_group *g, struct ha_why *why) { return check(g, "front", why); }
static enum ha_status check_back(void *run, struct ha_group *g, struct ha_why *why) { return check(g, "back", why); }

static const struct ha_key keys[] = {
    { "n", "0", "which", HA_KEY_NUMBER, offsetof(struct point, n), .max = CASES, .always = true, .column = true },
    { "unused", "7", "of no case", HA_KEY_NUMBER, offsetof(struct point, unused), .max = 9, .column = true },
};
static const struct ha_field field = { "pid", "", HA_FIELD_NUMBER, HA_IN(struct row, pid), 3, "" };
#define SUITE(NAME)                                                                                                \
    {                                                                                                              \
        .name = #NAME, .doc = "of this test", .key = keys, .keys = COUNT(keys), .field = &field, .fields = 1,      \
        .file = { #NAME ".csv", #NAME "_lines.csv" }, .point_bytes = sizeof(struct point),                         \
        .row_bytes = sizeof(struct row), .uses = uses, .together = together, .begin = begin, .check = check_##NAME \
    }
static const struct ha_suite front = SUITE(front), back = SUITE(back);

TEST_SUITES(&front, &back);

static struct ha_why why;

/* Runs cases 0, 1, ... of these suites: a letter f is a case of suite `front`, b of `back`. What is printed goes to
 * NAME.out and NAME.err. */
static enum ha_exit run(const char *name, const char *suites, struct ha_run_options options)
{
    const struct ha_suite *of[CASES];
    char out[TEST_PATH_MAX + 8], err[TEST_PATH_MAX + 8];
    why.text[0] = 0;
    for (size_t n = 0; suites[n]; n++) of[n] = suites[n] == 'f' ? &front : &back;
    snprintf(folder, sizeof folder, "%s", test_path(name));
    snprintf(out, sizeof out, "%s.out", folder);
    snprintf(err, sizeof err, "%s.err", folder);
    options.out_dir = folder;
    options.quiet = true;
    test_print_to(out, err);
    const enum ha_exit code = test_run(of, strlen(suites), NULL, &options, &why);
    test_print_back();
    return code;
}

static int forget(void **state)
{
    memset(&told, 0, sizeof told);
    for (size_t n = 0; n < CASES; n++) told.among[n] = 1;
    return 0;
}

static void ends_with(const char *file, const char *end)
{
    const char *text = test_text(file);
    const size_t n = strlen(text), m = strlen(end);
    if (n < m || strcmp(text + n - m, end) != 0) fail_msg("%s does not end with '%s':\n%s", file, end, text);
}

/* Rows of a file; "?" where it has no such column. */
enum { ID, PROCESS, PID, UNUSED, COLUMNS };
struct rows {
    size_t column[COLUMNS], count;
    char at[24][COLUMNS][64];
};
static enum ha_status take(void *arg, size_t line, char **at, size_t count)
{
    static const char *const names[COLUMNS] = { "case_id", "process", "pid", "unused" };
    struct rows *r = arg;
    for (size_t k = 0; k < COLUMNS && line == 1; k++) {
        r->column[k] = 0;
        while (r->column[k] < count && strcmp(at[r->column[k]], names[k]) != 0) r->column[k]++;
    }
    if (line == 1) return HA_OK;
    assert_true(r->count < COUNT(r->at));
    for (size_t k = 0; k < COLUMNS; k++)
        snprintf(r->at[r->count][k], sizeof r->at[0][k], "%s", r->column[k] < count ? at[r->column[k]] : "?");
    r->count++;
    return HA_OK;
}
static struct rows rows_of(const char *run, const char *file)
{
    struct rows r = { .count = 0 };
    char path[64];
    snprintf(path, sizeof path, "%s/%s", run, file);
    if (ha_csv_read(test_path(path), take, &r, &why) != HA_OK) fail_msg("%s", why.text);
    return r;
}

/* Whatever suites think of each other's cases. */
TEST_WITH(a_group_is_of_one_suite, forget, NULL)
{
    static const size_t among[CASES] = { 1, 2, 2, 3, 3, 3 };
    memcpy(told.among, among, sizeof among);
    told.grouped = true;
    assert_int_equal(run("border", "fbbfff", (struct ha_run_options){ 0 }), HA_EXIT_OK);
    ends_with("border.out", "\n6 passed, 0 failed, 0 skipped\n");
}

/* One process for all, or with --processes one for each row. A key that a case does not use is empty. */
TEST_WITH(each_row_may_have_its_process, forget, NULL)
{
    for (size_t processes = 0; processes < 3; processes++) {
        char name[32];
        snprintf(name, sizeof name, "processes.%zu", processes);
        assert_int_equal(run(name, "ff", (struct ha_run_options){ .processes = processes }), HA_EXIT_OK);
        const struct rows r = rows_of(name, "front.csv");
        assert_int_equal(r.count, processes ? 2 * processes : 2);
        for (size_t i = 0; i < r.count; i++) {
            assert_int_equal(strtoul(r.at[i][PROCESS], NULL, 10), i / 2); /* in turns */
            assert_string_equal(r.at[i][UNUSED], "");
            for (size_t j = 0; j < i; j++) assert_int_equal(!strcmp(r.at[i][PID], r.at[j][PID]), processes == 0);
        }
    }
}

/* One that takes a third of the time leaves the others all of their processes, and is said to have fewer. */
TEST_WITH(one_case_does_not_take_the_time_of_the_others, forget, NULL)
{
    const struct ha_run_options options = { .processes = 5, .max_time_ns = 3600000000 };
    size_t rows[2] = { 0, 0 };
    told.us[0] = 1000000;
    assert_int_equal(run("fair", "fff", options), HA_EXIT_MISSING);
    const struct rows r = rows_of("fair", "front.csv");
    for (size_t i = 0; i < r.count; i++) rows[strcmp(r.at[i][ID], "front:n=0") != 0]++;
    if (rows[0] < 2 || rows[0] > 3 || rows[1] != 10) fail_msg("%zu and %zu rows", rows[0], rows[1]);
    assert_non_null(strstr(test_text("fair.out"), "--max-time is over: 2 of 3 cases ran in all 5 processes, 1 in "));
}

/* Cases of one length are cut alike. */
TEST(time_is_shared_alike)
{
    const struct ha_fair_case alike[] = { { 2, 1, false }, { 2, 1, false }, { 0.1, 1, false } },
                              all_fit[] = { { 2, 1, false }, { 0, 0, false } };
    assert_true(isinf(ha_fair_level(all_fit, 2, 5, 8.1)));
    assert_true(fabs(ha_fair_level(alike, 3, 5, 8.4) - 6) < 1e-6); /* 4 more each, and 0.4 for the third */
    assert_true(ha_fair_goes_on(&alike[0], 0));                    /* it has run once */
    const struct ha_fair_case twice = { 2, 2, false };
    assert_true(ha_fair_goes_on(&twice, 6) && !ha_fair_goes_on(&twice, 5.9));
}

/* The cases in the order in which they were run, "012345", of each round. */
static void order_of(const char *run, size_t rounds, char order[][CASES + 1])
{
    const struct rows r = rows_of(run, "front.csv");
    assert_int_equal(r.count, rounds * CASES);
    for (size_t i = 0; i < r.count; i++) {
        assert_int_equal(strtoul(r.at[i][PROCESS], NULL, 10), i / CASES);
        order[i / CASES][i % CASES] = r.at[i][ID][strlen("front:n=")];
    }
    for (size_t i = 0; i < rounds; i++) order[i][CASES] = 0;
}

/* Each round has an order of its own, which the seed alone decides; what belongs together stays so; a run that is cut
 * goes on with what is left. */
TEST_WITH(rounds_are_shuffled, forget, NULL)
{
    enum { ROUNDS = 3 };
    const uint64_t seeds[] = { 5, 5, 6 };
    char order[COUNT(seeds)][ROUNDS][CASES + 1], sorted[CASES + 1];
    for (size_t s = 0; s < COUNT(seeds); s++) {
        char name[32];
        snprintf(name, sizeof name, "shuffled.%zu", s);
        const struct ha_run_options o = { .processes = ROUNDS, .shuffle = &seeds[s] };
        assert_int_equal(run(name, "ffffff", o), HA_EXIT_OK);
        order_of(name, ROUNDS, order[s]);
        for (size_t i = 0; i < ROUNDS; i++)
            for (char c = '0'; c < '0' + CASES; c++) assert_non_null(strchr(order[s][i], c));
        snprintf(name, sizeof name, "shuffled.%zu.out", s);
        ends_with(name, "\n18 passed, 0 failed, 0 skipped\n");
    }
    strcpy(sorted, "012345");
    assert_memory_equal(order[0], order[1], sizeof order[0]);
    assert_memory_not_equal(order[0], order[2], sizeof order[0]);
    for (size_t i = 0; i < ROUNDS; i++) {
        assert_string_not_equal(order[0][i], sorted);
        assert_string_not_equal(order[0][i], order[0][(i + 1) % ROUNDS]);
    }
}

TEST_WITH(groups_are_shuffled_whole, forget, NULL)
{
    static const size_t among[CASES] = { 1, 2, 2, 3, 3, 3 };
    const uint64_t seed = 1;
    memcpy(told.among, among, sizeof among);
    told.grouped = true;
    assert_int_equal(run("whole", "fbbfff", (struct ha_run_options){ .shuffle = &seed, .processes = 4 }), HA_EXIT_OK);
    ends_with("whole.out", "\n24 passed, 0 failed, 0 skipped\n");
}

TEST_WITH(a_shuffled_run_goes_on, forget, NULL)
{
    const uint64_t seed = 3;
    assert_int_equal(run("goes_on", "fff", (struct ha_run_options){ .shuffle = &seed }), HA_EXIT_OK);
    for (size_t n = 0; n < 3; n++) told.among[n] = 0; /* which are there */
    assert_int_equal(run("goes_on", "fffff", (struct ha_run_options){ .shuffle = &seed, .resume = true }), HA_EXIT_OK);
    ends_with("goes_on.out", "\n5 passed, 0 failed, 0 skipped\n");
}

TEST_WITH(lines_and_events_are_of_their_case, forget, NULL)
{
    told.lines = true;
    assert_int_equal(run("lines", "ffbb", (struct ha_run_options){ 0 }), HA_EXIT_OK);
    for (size_t n = 0; n < 4; n++) {
        const struct rows r = rows_of("lines", n < 2 ? "front_lines.csv" : "back_lines.csv");
        char id[32];
        snprintf(id, sizeof id, "%s:n=%zu", n < 2 ? "front" : "back", n);
        assert_int_equal(r.count, 2);
        assert_string_equal(r.at[n % 2][ID], id);
        assert_int_equal(test_count(test_text("lines/trace.json"), id), 1);
    }
    assert_int_equal(test_count(test_text("lines/trace.json"), "\"X\""), 4);
}

/* It counts how many are asked, passes, and is said before anything else. */
TEST_WITH(what_is_suspect_is_said_first, forget, NULL)
{
    static const double p[CASES] = { 0.4e-9, 0.3e-9, 0 };
    for (size_t processes = 1; processes < 3; processes++) {
        const char *file = processes == 1 ? "suspects.1.out" : "suspects.2.out";
        char name[32];
        snprintf(name, sizeof name, "suspects.%zu", processes);
        memcpy(told.p, p, sizeof p);
        assert_int_equal(run(name, "ffb", (struct ha_run_options){ .processes = processes }), HA_EXIT_OK);
        const char *text = test_text(file), *first = "\nSUSPECT: front:n=1\n    too odd\n";
        if (processes == 1) assert_memory_equal(text, first, strlen(first)); /* 3 p < 1e-9 */
        assert_int_equal(test_count(text, "SUSPECT"), processes == 1);       /* 6 p > 1e-9 */
        assert_int_equal(test_count(text, "too odd"), processes == 1);
        ends_with(file, processes == 1 ? "\n3 passed, 0 failed, 0 skipped\n" : "\n6 passed, 0 failed, 0 skipped\n");
    }
}

/* What is there is not run again, and takes no share of the time: two groups have it, and half is for checking. */
TEST_WITH(a_run_goes_on, forget, NULL)
{
    static const size_t among[CASES] = { 0, 0, 0, 2, 2, 1 };
    static const double cap_s[CASES] = { 0, 0, 0, 150, 150, 300 };
    const struct ha_run_options go_on = { .resume = true, .max_time_ns = UINT64_C(600000000000) };
    assert_int_equal(run("resumed", "bff", (struct ha_run_options){ 0 }), HA_EXIT_OK);
    memcpy(told.among, among, sizeof among);
    memcpy(told.cap_s, cap_s, sizeof cap_s);
    told.grouped = true;
    assert_int_equal(run("resumed", "bffffb", go_on), HA_EXIT_OK);
    ends_with("resumed.out", "\n6 passed, 0 failed, 0 skipped\n");
}

/* A process that dies between two cases costs no row, as both are right, and the run is no success. */
TEST_WITH(a_death_between_cases_is_an_error, forget, NULL)
{
    worker = mmap(NULL, sizeof *worker, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(worker, MAP_FAILED);
    for (int wrong = 0; wrong < 2; wrong++) {
        told.wrong[2] = wrong;
        assert_int_equal(run(wrong ? "dies.1" : "dies.0", "fff", (struct ha_run_options){ 0 }),
                         wrong ? HA_EXIT_WRONG : HA_EXIT_ENVIRONMENT);
        assert_int_equal(*worker, 0);
        assert_contains(why.text, "the worker process: killed by SIGABRT, after the answer to the last call");
        assert_contains(test_text(wrong ? "dies.1.err" : "dies.0.err"), "error: the worker process: killed by SIGABRT");
        ends_with(wrong ? "dies.1.out" : "dies.0.out",
                  wrong ? "\n2 passed, 1 failed, 0 skipped\n" : "\n3 passed, 0 failed, 0 skipped\n");
    }
    munmap(worker, sizeof *worker);
    worker = NULL;
}

TEST_WITH(what_was_not_run_is_told_of_each_process, forget, NULL)
{
    const struct ha_run_options no_time = { .processes = 2, .max_time_ns = 1 };
    assert_int_equal(run("no_time", "fb", no_time), HA_EXIT_MISSING);
    assert_contains(why.text, "4 of 4 cases were not run");
    ends_with("no_time.out", "\n0 passed, 0 failed, 4 skipped\n");
    assert_int_equal(test_count(test_text("no_time/junit.xml"), "(process 1)"), 2);
}

/* Where nothing more can be written the run ends; what was wrong before comes first. */
TEST_WITH(a_folder_that_is_gone_ends_the_run, forget, NULL)
{
    for (int wrong = 0; wrong < 2; wrong++) {
        told.wrong[0] = wrong;
        told.removes[1] = true;
        assert_int_equal(run(wrong ? "gone.1" : "gone.0", "fff", (struct ha_run_options){ 0 }),
                         wrong ? HA_EXIT_WRONG : HA_EXIT_ENVIRONMENT);
        assert_contains(why.text, "the folder was removed");
        ends_with(wrong ? "gone.1.out" : "gone.0.out",
                  wrong ? "\n0 passed, 1 failed, 2 skipped\n" : "\n1 passed, 0 failed, 2 skipped\n");
    }
}

/* The end of the report is about the first device, as it was last heard of; one warning is enough. */
TEST_WITH(the_first_device_is_shown, forget, NULL)
{
    static const char *const asked[] = { "one", "two", "one", "two" }, *const name[] = { "early", "other", "late",
                                                                                         "other" };
    memcpy(told.device, asked, sizeof asked);
    memcpy(told.name, name, sizeof name);
    setenv("HABENCH_TRACE", "cupti", 1);
    assert_int_equal(run("devices", "ffbb", (struct ha_run_options){ 0 }), HA_EXIT_OK);
    unsetenv("HABENCH_TRACE");
    assert_contains(test_text("devices.out"), "\ndevice: late, of the kind host");
    assert_int_equal(test_count(test_text("devices.err"), "warning: HABENCH_TRACE is not for device one"), 1);
    assert_int_equal(test_count(test_text("devices.err"), "warning:"), 1);
    assert_int_equal(test_count(test_text("devices/env.json"), "\"asked\": "), 2);
}

TEST_MAIN { return test_all("tests", test_folder_make, test_folder_remove); }
