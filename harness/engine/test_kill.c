/* A run that measures is killed by SIGKILL again and again, its program or its worker by turns of chance, after so many
 * samples, and goes on with --resume until it is complete; then again in another folder. No row that was whole is lost
 * or run again, and at the end every line of every file is there once. HA_KILLS=1000: so many kills. */

#include "harness/engine/test_run.h"

#include "harness/base/rng.h"
#include "harness/measure/paired.h"
#include "harness/engine/machine.h"

#include <dirent.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { CASES = 24, KILLS = HA_SANITIZED ? 12 : 60, FIGURES = 2 + HA_BESIDES };
static size_t samples_of(size_t n) { return 1 + n * 7 % 5; }

/* In memory of all processes. */
static struct {
    uint64_t samples; /* taken */
    pid_t worker;
    unsigned ran[CASES]; /* to the end of its measurement */
} * shared;

/* ---- the suite --------------------------------------------------------------------------------------------------- */

struct point {
    uint64_t n;
};
struct row {
    struct ha_result head;
    double time_ns, rate_GBps, iter, sample_ns;
};

static struct ha_engine engine; /* in the worker */
static enum ha_status begin(void **run, const struct ha_suite_config *config, const struct ha_results *before,
                            struct ha_why *why)
{
    engine = config->engine;
    __atomic_store_n(&shared->worker, getpid(), __ATOMIC_RELEASE);
    return HA_OK;
}

static enum ha_status check(void *run, struct ha_group *g, struct ha_why *why)
{
    g->right[0] = true;
    return HA_OK;
}

static enum ha_status measure(void *run, struct ha_group *g, struct ha_why *why)
{
    static const char event[] = "{\"ph\":\"X\",\"pid\":1,\"ts\":1,\"dur\":1,\"name\":\"step\"}";
    const size_t n = ((const struct point *)g->point[0])->n;
    struct row *row = g->row[0];
    for (size_t i = 0; i < samples_of(n); i++) {
        struct row line = *row;
        line.iter = (double)i;
        line.sample_ns = (double)(100 * n + i) / 3;
        engine.line(engine.arg, 1, &line);
        engine.trace(engine.arg, event, sizeof event - 1);
        __atomic_add_fetch(&shared->samples, 1, __ATOMIC_ACQ_REL);
    }
    row->head.samples = (double)samples_of(n);
    row->time_ns = (double)n / 7;
    row->rate_GBps = 1 / (1 + (double)n);
    shared->ran[n]++;
    return HA_OK;
}

static const struct ha_key key = {
    "n", "0", "which", HA_KEY_NUMBER, offsetof(struct point, n), .max = CASES, .always = true, .column = true
};
#define IN(member) HA_IN(struct row, member)
static const struct ha_field fields[] = {
    { "time_ns", "ns", HA_FIELD_NUMBER, IN(time_ns), 1 | 4, "a time", HA_LESS },
    { "rate_GBps", "GB/s", HA_FIELD_NUMBER, IN(rate_GBps), 1, "a rate", HA_MORE },
    { "iter", "", HA_FIELD_NUMBER, IN(iter), 2, "which sample" },
    { "sample_ns", "ns", HA_FIELD_NUMBER, IN(sample_ns), 2, "a sample" },
};
static const struct ha_suite suite = TEST_SUITE("kill", struct point, struct row, .key = &key, .keys = 1,
                                                .field = fields, .fields = COUNT(fields),
                                                .file = { "kill.csv", "kill_samples.csv", "kill_summary.csv" },
                                                .summary = 4, .begin = begin, .check = check, .measure = measure);
TEST_SUITES(&suite);
/* The machine is not read beside a measurement, which takes longer than all of it. */
void __wrap_ha_machine_beside(struct ha_machine *machine, uint64_t deadline_ns, double reading[HA_BESIDE_READINGS]);
void __wrap_ha_machine_beside(struct ha_machine *machine, uint64_t deadline_ns, double reading[HA_BESIDE_READINGS])
{
    for (size_t i = 0; i < HA_BESIDE_READINGS; i++) reading[i] = 1;
}
enum ha_status __wrap_ha_paired_memory_create(struct ha_paired_memory **memory, struct ha_why *why);
enum ha_status __wrap_ha_paired_memory_create(struct ha_paired_memory **memory, struct ha_why *why)
{
    *memory = NULL;
    return HA_OK;
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static _Noreturn void run_program(const char *folder)
{
    const struct ha_suite *suites[CASES];
    struct ha_why why = { "" };
    for (size_t n = 0; n < CASES; n++) suites[n] = &suite;
    const struct ha_run_options options = { .out_dir = folder, .quiet = true, .measure = true, .resume = true };
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* where the test fails */
    test_print_to("/dev/null", NULL);
    _exit((int)test_run(suites, CASES, NULL, &options, &why));
}

/* Every case whose row is whole and passes; those that were before are among them, and are not run again. */
static void take_stock(const char *name, bool passed[CASES], unsigned ran[CASES])
{
    char file[64];
    snprintf(file, sizeof file, "%s/kill.csv", name);
    if (access(test_path(file), F_OK) != 0) return;
    char *text = strdup(test_text(file)), *end = strrchr(text, '\n');
    bool now[CASES] = { false };
    if (end) end[1] = 0;
    for (char *rest = text, *line; end && (line = strsep(&rest, "\n")) && *line;) {
        const char *id = strstr(line, "\"kill:n="), *pass = strstr(line, ",\"pass\",");
        if (id && pass) now[strtoul(id + 8, NULL, 10)] = true;
    }
    free(text);
    for (size_t n = 0; n < CASES; n++) {
        if (passed[n] && (!now[n] || ran[n] != shared->ran[n])) fail_msg("%s: case %zu is lost, or run again", name, n);
        passed[n] = now[n];
        ran[n] = shared->ran[n];
    }
}

/* ---- a complete folder ------------------------------------------------------------------------------------------- */

struct columns {
    size_t id, iter, value, seen[CASES];
    const char *name; /* of the value that a line must have */
    bool right;
};
static enum ha_status see(void *arg, size_t line, char **field, size_t count)
{
    struct columns *c = arg;
    double x;
    if (line == 1) {
        c->iter = c->value = SIZE_MAX;
        for (size_t i = 0; i < count; i++) {
            if (!strcmp(field[i], "case_id")) c->id = i;
            if (!strcmp(field[i], "iter")) c->iter = i;
            if (!strcmp(field[i], c->name)) c->value = i;
        }
        return HA_OK;
    }
    const size_t n = strtoul(field[c->id] + strlen("kill:n="), NULL, 10);
    const double want = c->iter == SIZE_MAX ? (double)n / 7 : (double)(100 * n + c->seen[n]) / 3;
    if (c->value != SIZE_MAX) c->right &= ha_csv_number_parse(field[c->value], &x) && x == want;
    c->seen[n]++;
    return HA_OK;
}

static void is_whole(const char *folder, const char *name, const char *value, size_t each)
{
    char file[64];
    struct ha_why why = { "" };
    struct columns c = { .name = value, .right = true };
    snprintf(file, sizeof file, "%s/%s", folder, name);
    if (ha_csv_read(test_path(file), see, &c, &why) != HA_OK) fail_msg("%s", why.text);
    for (size_t n = 0; n < CASES; n++)
        if (c.seen[n] != (each ? each : samples_of(n))) fail_msg("%s: case %zu has %zu lines", file, n, c.seen[n]);
    if (!c.right) fail_msg("%s: a number is another", file);
}

static void is_complete(const char *folder)
{
    char file[64];
    json_error_t error;
    size_t events = CASES;
    is_whole(folder, "kill.csv", "time_ns", 1);
    is_whole(folder, "kill_summary.csv", "time_ns", 1);
    is_whole(folder, "kill_samples.csv", "sample_ns", 0);
    is_whole(folder, "figures.csv", "", FIGURES);
    for (size_t n = 0; n < CASES; n++) events += samples_of(n);
    snprintf(file, sizeof file, "%s/trace.json", folder);
    json_t *trace = json_load_file(test_path(file), 0, &error);
    if (!trace) fail_msg("%s: %s", file, error.text);
    assert_int_equal(json_array_size(json_object_get(trace, "traceEvents")), events);
    json_decref(trace);
    snprintf(file, sizeof file, "%s/junit.xml", folder);
    assert_int_equal(test_count(test_text(file), "<testcase "), 2 * CASES); /* right, and measured */
    assert_contains(test_text(file), "</testsuites>");
    DIR *d = opendir(test_path(folder));
    struct dirent *e;
    while ((e = readdir(d)))
        if (strstr(e->d_name, ".part")) fail_msg("%s/%s is left", folder, e->d_name);
    closedir(d);
}

/* ---- kills ------------------------------------------------------------------------------------------------------- */

/* Waits for so many more samples; false: the program has ended. */
static bool samples_come(pid_t program, uint64_t more, int *status)
{
    const uint64_t until = __atomic_load_n(&shared->samples, __ATOMIC_ACQUIRE) + more;
    while (__atomic_load_n(&shared->samples, __ATOMIC_ACQUIRE) < until) {
        if (waitpid(program, status, WNOHANG) == program) return false;
        sched_yield();
    }
    return true;
}

TEST_WITH(no_row_of_a_run_is_lost_torn_or_doubled, test_folder_make, test_folder_remove)
{
    const char *asked = getenv("HA_KILLS");
    const size_t kills = asked ? strtoul(asked, NULL, 10) : KILLS;
    size_t killed[2] = { 0 }, rounds = 0, drawn = 0;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    while (killed[0] + killed[1] < kills) {
        char name[32], folder[TEST_PATH_MAX];
        bool passed[CASES] = { false }, complete = false;
        unsigned ran[CASES] = { 0 };
        snprintf(name, sizeof name, "run%zu", rounds++);
        snprintf(folder, sizeof folder, "%s", test_path(name));
        memset(shared->ran, 0, sizeof shared->ran);
        while (!complete) {
            int status = 0;
            shared->worker = 0;
            const pid_t program = fork();
            if (program == 0) run_program(folder);
            bool runs = true, dead = false;
            while (runs && !dead && killed[0] + killed[1] < kills) {
                const uint64_t bits = ha_rng_bits(7, 1, drawn++);
                runs = samples_come(program, bits / 2 % 20, &status);
                const pid_t worker = __atomic_load_n(&shared->worker, __ATOMIC_ACQUIRE);
                dead = runs && bits % 2;
                if (runs && (dead || worker)) {
                    killed[dead]++;
                    kill(dead ? program : worker, SIGKILL);
                    shared->worker = 0;
                }
            }
            if (runs) assert_int_equal(waitpid(program, &status, 0), program);
            take_stock(name, passed, ran);
            complete = WIFEXITED(status) && WEXITSTATUS(status) == HA_EXIT_OK;
            if (WIFEXITED(status) && !complete && WEXITSTATUS(status) != HA_EXIT_ENVIRONMENT)
                fail_msg("%s: exit %d", name, WEXITSTATUS(status));
        }
        is_complete(name);
    }
    munmap(shared, sizeof *shared);
    printf("%zu kills of the program, %zu of its worker; %zu runs of %d cases\n", killed[1], killed[0], rounds, CASES);
}
