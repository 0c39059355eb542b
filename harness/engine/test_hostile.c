/* A device that misbehaves (test_hostile_device.c), in every entry of its table and in every manner: the case that
 * meets it has one ERROR row, the others are right, nothing is lost or doubled, and no process stays behind. */

#include "harness/base/clock.h"
#include "harness/base/why.h"
#include "harness/engine/child.h"
#include "harness/engine/machine.h"
#include "harness/engine/serve.h"
#include "harness/engine/test_hostile.h"
#include "harness/engine/test_run.h"
#include "harness/report/row.h"

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* of the pairs one in so many; a process that a sanitizer watches cannot have its memory limited */
enum { EACH = HA_SANITIZED ? 17 : 1 };
enum { CASES = 3, WORKERS = 11 };
static const char *plugin = "./hostile.so";
#define NAME(name)                        #name,
#define NAME_HOOK(name, parameters, args) #name,
static const char *const hooks[] = { "load", HA_HOSTILE_ENTRIES(NAME_HOOK, NAME_HOOK, NAME) };
#define POISONED "an illegal memory access was encountered"
#define ROUNDED  "hostile.so changed the rounding mode and did not put it back"
/* what the row says of each */
static const struct {
    const char *name, *reason; /* NULL: it harms nobody */
} deeds[] = {
    { "crash", "killed by SIGSEGV: wrote through a NULL pointer" },
    { "hang", "no answer in 2 s" },
    { "exit_0", "exited with 0" },
    { "exit_3", "exited with 3" },
    { "abort", "killed by SIGABRT" },
    { "fork", NULL },
    { "replaced", "exited with 0" },
    { "memory", "killed by SIGKILL" },
    { "close", "" }, /* what is seen first: its end, or that of its connection */
    { "garbage", "wrote into its connection to the program" },
    { "forge", "wrote into its connection to the program" },
    { "term", "killed by SIGTERM" },
    { "int", "killed by SIGINT" },
    { "kill", "killed by SIGKILL" },
    { "print", "printed more than 16 MiB and was stopped" },
    { "poison", POISONED }, /* fails from then on, however often it is opened again in this process */
    { "round", ROUNDED },
};
/* Nobody can tell what fails once a device is closed. */
static bool tellable(size_t hook, size_t deed)
{
    return strcmp(deeds[deed].name, "poison") != 0 || strcmp(hooks[hook], "close") != 0;
}
enum { HOOKS = COUNT(hooks), DEEDS = COUNT(deeds) };

/* ---- a suite: every case calls every entry of the device ---------------------------------- */

struct row {
    struct ha_result head;
    double sum;
};

enum { N = 256 };
struct tour {
    const struct ha_device_api *api;
    struct ha_device *device;
    struct ha_stream *stream, *other;
    struct ha_event *event;
    struct ha_graph *graph;
    float *there, *here;
    void *window;
};

static void nothing(void *arg) {}

/* What the operations come to is not looked at, but for the copies. */
static enum ha_status operations(struct tour *t, struct ha_why *why)
{
    const struct ha_device_api *api = t->api;
    static const float source[N] = { [0] = 1, [N - 1] = 2 };
    uint32_t *const flag = (uint32_t *)(void *)(t->here + N);
    void *const to[] = { t->there };
    const void *const from[] = { source };
    const size_t bytes[] = { sizeof source };
    struct ha_device_meters meters;
    *flag = 0;
    HA_TRY(api->copy(t->stream, t->there, source, sizeof source, HA_H2D));
    HA_TRY(api->copy_2d(t->stream, t->there, 64, source, 64, 64, N / 16, HA_H2D));
    HA_TRY(api->copy_pieces(t->stream, &(struct ha_device_pieces){ to, from, bytes, 1 }, HA_H2D));
    HA_TRY(api->event_record(t->event, t->stream));
    HA_TRY(api->stream_wait(t->other, t->event));
    HA_TRY(api->flag_write(t->other, flag, 1));
    HA_TRY(api->flag_wait(t->stream, flag, 1));
    HA_TRY(api->host_fn(t->stream, nothing, NULL));
    HA_TRY(api->graph_begin(t->stream));
    HA_TRY(api->blend(t->stream, &(struct ha_device_blend){ t->here, t->there, 1, N, N, N, 0, 1 }));
    HA_TRY(api->graph_end(t->stream, &t->graph, why));
    HA_TRY(api->graph_launch(t->graph, t->stream));
    HA_TRY(api->move(t->stream, &(struct ha_device_move){ t->here, t->there, NULL, NULL, 1, N * 4, N * 4, N * 4 }));
    HA_TRY(api->read(t->stream, t->there, sizeof source, flag));
    HA_TRY(api->spin(t->stream, 1000));
    HA_TRY(api->event_sync(t->event));
    HA_TRY(api->stream_sync(t->stream));
    api->attend(t->stream, &(struct ha_device_attend){ .q_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 8 });
    api->merge(t->stream, &(struct ha_merge){ .tokens = 0 });
    /* these load a large library, in each of some thousand processes: where it is their turn alone */
    const char *turn = getenv("HA_HOSTILE");
    if (turn && strstr(turn, "product:")) api->product(t->stream, &(struct ha_device_product){ .m = 0 });
    if (turn && strstr(turn, "products:"))
        api->attend_products(t->stream,
                             &(struct ha_device_attend){ .q_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 8 });
    api->meters(t->device, &meters);
    if (api->map_device(t->device, t->there, sizeof source, &t->window, NULL) == HA_OK)
        api->unmap_device(t->device, t->window);
    api->stream_sync(t->stream);
    return HA_OK;
}

static struct ha_machine *machine; /* in the child */

static enum ha_status begin(void **run, const struct ha_suite_config *config, const struct ha_results *before,
                            struct ha_why *why)
{
    machine = config->machine;
    return HA_OK;
}

static void clear_tour(const struct tour *t)
{
    const struct ha_device_api *api = t->api;
    if (t->graph) api->graph_destroy(t->graph);
    if (t->event) api->event_destroy(t->event);
    if (t->other) api->stream_destroy(t->other);
    if (t->stream) api->stream_destroy(t->stream);
    if (t->there) api->mem_free(t->device, HA_MEM_DEVICE, t->there);
    if (t->here) api->mem_free(t->device, HA_MEM_MAPPED, t->here);
}

static enum ha_status open_tour(struct tour *t, struct ha_why *why)
{
    struct ha_device_info info;
    void *there, *here;
    HA_TRY(ha_machine_device(machine, plugin, "c", &t->api, &t->device, why));
    t->api->info(t->device, &info);
    t->api->trace(t->device, NULL);
    HA_TRY(t->api->mem_alloc(t->device, HA_MEM_DEVICE, N * sizeof(float), &there, why));
    t->there = there;
    HA_TRY(t->api->mem_alloc(t->device, HA_MEM_MAPPED, (N + 1) * sizeof(float), &here, why));
    t->here = here;
    HA_TRY(t->api->stream_create(t->device, "a", &t->stream, why));
    HA_TRY(t->api->stream_create(t->device, "b", &t->other, why));
    return t->api->event_create(t->device, &t->event, why);
}

/* What a child of ours never says. Rows of this very case are its own to say. */
static void forge(void)
{
    struct {
        struct ha_said_head head;
        struct row row;
        char more[64];
    } m;
    static const struct {
        unsigned kind;
        size_t entry, file;
        int verdict, more; /* more: bytes than a row has */
    } lie[] = {
        { HA_SAID_ROW, 1, 0, HA_PASS, 0 },
        { HA_SAID_ROW, CASES, 0, HA_PASS, 0 },
        { HA_SAID_ROW, SIZE_MAX, 0, HA_PASS, 0 },
        { HA_SAID_ROW, 0, 0, HA_VERDICTS, 0 },
        { HA_SAID_ROW, 0, 0, -1, 0 },
        { HA_SAID_ROW, 0, 0, HA_NOT_RUN, 0 },
        { HA_SAID_ROW, 0, 0, HA_PASS, 1 },
        { HA_SAID_ROW, 0, 0, HA_PASS, -1 },
        { HA_SAID_LINE, 0, 0, HA_PASS, 0 },
        { HA_SAID_LINE, 0, 1, HA_PASS, 0 },
        { HA_SAID_LINE, 0, SIZE_MAX, HA_PASS, 0 },
        { HA_SAID_LINE, 1, 0, HA_PASS, 0 },
        { HA_SAID_TRACE, 0, 0, 0, 0 },
        { 99, 0, 0, HA_PASS, 0 },
    };
    for (size_t i = 0; i < COUNT(lie); i++) {
        memset(&m, 0xff, sizeof m);
        m.head = (struct ha_said_head){ lie[i].entry, lie[i].file };
        m.row.sum = 99;
        memcpy(&m.row.head.verdict, &lie[i].verdict, sizeof lie[i].verdict);
        ha_child_say(lie[i].kind, &m, (size_t)((int)(sizeof m.head + sizeof m.row) + lie[i].more));
    }
    static unsigned char all[sizeof(struct ha_env_device)];
    memset(all, 0xff, sizeof all);
    for (unsigned kind = 0; kind < 6; kind++) {
        const size_t bytes[] = { 0, 1, sizeof(struct ha_said_progress), sizeof all };
        for (size_t i = 0; i < COUNT(bytes); i++) ha_child_say(kind, all, bytes[i]);
    }
}

static bool forging, grouped;
static uint64_t killed = CASES; /* the case that ends its process, however often it is run */
static uint64_t silent = CASES; /* the one that says nothing of itself */
static uint64_t late = CASES;   /* the one with which the device fails, the first time */
static bool apart;              /* what is wrong with a case says nothing of the others of its group */
static unsigned *ran;           /* NULL, or [CASES]: how often each was run, in memory that all processes share */
static useconds_t nap_us;       /* of each case */
static const uint64_t *cap_ns;  /* NULL, or [CASES]: about what each is given; all until the same time */
static uint64_t max_time_ns;

static bool together(const void *a, const void *b) { return grouped; }

static enum ha_status check_point(uint64_t n, struct row *row, struct ha_why *why)
{
    struct tour t = { .api = NULL }, other;
    if (forging && !n) forge();
    static bool was_silent; /* this process */
    if (n == killed) raise(SIGKILL);
    if (was_silent) return ha_why(why, HA_FAIL, "the same process");
    if (n == silent) {
        was_silent = true;
        strcpy(row->head.reason, "not run");
        return HA_OK;
    }
    enum ha_status status = open_tour(&t, why);
    if (status == HA_OK) status = operations(&t, why);
    if (status == HA_OK) {
        row->sum = (double)t.here[0] + (double)t.here[N - 1];
        if (!(row->sum == 3)) status = ha_why(why, HA_FAIL, "copies came to %g, not 3", row->sum);
    }
    if (!t.api) return status;
    clear_tour(&t);
    /* where every operation was right, a failure is for the engine to see */
    const char *failure = status == HA_OK ? NULL : t.api->failure(t.device);
    if (failure) status = ha_why(why, HA_ERROR, "%s", failure);
    /* another one is asked for, so that this one is closed */
    const enum ha_status closed = ha_machine_device(machine, "host", NULL, &other.api, &other.device, why);
    if (status == HA_OK) status = closed;
    return status;
}

static enum ha_status check_times(const struct ha_group *g, uint64_t n, struct ha_why *why)
{
    static uint64_t until_ns;
    const uint64_t now = ha_now_ns();
    if (!until_ns) until_ns = g->deadline_ns;
    if (g->cap_ns > cap_ns[n] || g->cap_ns < cap_ns[n] / 10 * 9)
        return ha_why(why, HA_FAIL, "%g s for it, not %g", (double)g->cap_ns / 1e9, (double)cap_ns[n] / 1e9);
    if (g->deadline_ns != until_ns || until_ns < now || until_ns > now + max_time_ns)
        return ha_why(why, HA_FAIL, "until %g s from now", ((double)g->deadline_ns - (double)now) / 1e9);
    return HA_OK;
}

static enum ha_status check(void *run, struct ha_group *g, struct ha_why *why)
{
    enum ha_status status = cap_ns ? check_times(g, *(const uint64_t *)g->point[0], why) : HA_OK;
    usleep(nap_us * (useconds_t)g->count);
    for (size_t i = 0; i < g->count && status == HA_OK; i++) {
        const uint64_t n = *(const uint64_t *)g->point[i];
        if (ran) ran[n]++;
        if (n == late) setenv("HA_HOSTILE", "copy:poison", 1);
        status = check_point(n, g->row[i], why);
        g->right[i] = status == HA_OK;
        if (!apart) continue;
        ha_result_set(g, i, status, why);
        status = HA_OK;
    }
    return status;
}

static const struct ha_key key = {
    .name = "n", .value = "0", .doc = "which", .kind = HA_KEY_NUMBER, .max = 1000, .always = true, .column = true
};
static const struct ha_field field = { .name = "sum",
                                       .unit = "",
                                       .kind = HA_FIELD_NUMBER,
                                       .offset = offsetof(struct row, sum),
                                       .files = 1,
                                       .better = HA_NEITHER,
                                       .doc = "of what was copied" };
static const struct ha_suite suite = TEST_SUITE("tour", uint64_t, struct row, .key = &key, .keys = 1, .field = &field,
                                                .fields = 1, .file = { "tour.csv" }, .together = together,
                                                .begin = begin, .check = check);
TEST_SUITES(&suite);

/* ---- one hook, one deed -------------------------------------------------------------------- */

struct found {
    size_t rows, errors, right[CASES]; /* right: and their sum is what was copied */
    const char *reason;                /* that the error has to give */
    size_t id, verdict, why, sum;
    bool told;
};

static enum ha_status take(void *arg, size_t line, char **at, size_t count)
{
    struct found *f = arg;
    for (size_t i = 0; i < count && line == 1; i++) {
        if (!strcmp(at[i], "case_id")) f->id = i;
        if (!strcmp(at[i], "verdict")) f->verdict = i;
        if (!strcmp(at[i], "reason")) f->why = i;
        if (!strcmp(at[i], "sum")) f->sum = i;
    }
    if (line == 1) return HA_OK;
    f->rows++;
    const size_t n = (size_t)at[f->id][strlen(at[f->id]) - 1] - '0';
    if (!strcmp(at[f->verdict], "error")) {
        f->errors++;
        /* of a process that died there is no figure either; a device's own words stand behind what it was asked */
        const char *said = f->reason ? strstr(at[f->why], f->reason) : NULL;
        const bool own = f->reason && (!strcmp(f->reason, POISONED) || !strcmp(f->reason, ROUNDED));
        f->told = said && (own || (said == at[f->why] && !*at[f->sum]));
        if (!f->told) fprintf(stderr, "it says: %s, %s\n", at[f->why], at[f->sum]);
    } else if (n < CASES && !strcmp(at[f->verdict], "pass")) f->right[n] += !strcmp(at[f->sum], "3");
    return HA_OK;
}

/* Everything that the run has started ends with it; what it left to itself is this process's now. */
static bool nobody_left(void)
{
    const uint64_t begun = ha_now_ns();
    while (ha_now_ns() - begun < UINT64_C(20000000000)) {
        const pid_t got = waitpid(-1, NULL, WNOHANG);
        if (got < 0) return true;
        if (got == 0) usleep(10000);
    }
    return false;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Three cases: the folder of that name, and beside it NAME.out with what the run prints. */
static enum ha_exit run_cases(const char *name, uint64_t case_time_ns, struct ha_why *why)
{
    const struct ha_suite *const suites[CASES] = { &suite, &suite, &suite };
    const uint64_t own_ns[CASES] = { 0, cap_ns ? cap_ns[1] : 0, 0 };
    char out[TEST_PATH_MAX], printed[TEST_PATH_MAX + 8];
    snprintf(out, sizeof out, "%s", test_path(name));
    snprintf(printed, sizeof printed, "%s.out", out);
    const struct ha_run_options options = {
        .out_dir = out, .quiet = true, .case_time_ns = case_time_ns, .max_time_ns = max_time_ns
    };
    test_print_to(printed, "/dev/null"); /* what a device prints arrives there */
    const enum ha_exit code = test_run(suites, CASES, own_ns, &options, why);
    test_print_back();
    return code;
}

/* bad: the case that has the error, if there is one. */
static bool as_it_should(const char *name, enum ha_exit code, const char *reason, size_t bad)
{
    struct found f = { .reason = reason };
    char csv[128], xml[128], out[128];
    struct ha_why why = { "" };
    const bool harms = reason, left = !nobody_left();
    snprintf(csv, sizeof csv, "%s/tour.csv", name);
    snprintf(xml, sizeof xml, "%s/junit.xml", name);
    snprintf(out, sizeof out, "%s.out", name);
    const bool read = ha_csv_read(test_path(csv), take, &f, &why) == HA_OK;
    const bool ok = read && !left && f.rows == CASES && f.errors == (harms ? 1u : 0u) && f.told == harms
                    && f.right[bad] == (harms ? 0u : 1u) && f.right[(bad + 1) % CASES] == 1
                    && f.right[(bad + 2) % CASES] == 1 && code == (harms ? HA_EXIT_ENVIRONMENT : HA_EXIT_OK)
                    && ends_with(test_text(out),
                                 harms ? "\n2 passed, 1 failed, 0 skipped\n" : "\n3 passed, 0 failed, 0 skipped\n")
                    && strstr(test_text(xml), harms ? "tests=\"3\" failures=\"0\" errors=\"1\""
                                                    : "tests=\"3\" failures=\"0\" errors=\"0\"");
    if (!ok)
        fprintf(stderr, "%s: exit %d, %zu rows, %zu errors, right %zu %zu %zu%s; %s\n", name, code, f.rows, f.errors,
                f.right[0], f.right[1], f.right[2], left ? ", a process is left" : "", why.text);
    return ok;
}

static bool try(size_t hook, size_t deed)
{
    char what[64], once[TEST_PATH_MAX + 8];
    struct ha_why why = { "" };
    const bool slow = deeds[deed].reason && !strncmp(deeds[deed].reason, "no answer", 9);
    snprintf(what, sizeof what, "%s:%s", hooks[hook], deeds[deed].name);
    snprintf(once, sizeof once, "%s.once", test_path(what));
    setenv("HA_HOSTILE", what, 1);
    setenv("HA_HOSTILE_ONCE", once, 1);
    const enum ha_exit code = run_cases(what, slow ? UINT64_C(2000000000) : 0, &why);
    if (access(once, F_OK) != 0) fprintf(stderr, "%s was not called\n", hooks[hook]);
    return as_it_should(what, code, deeds[deed].reason, 0) && access(once, F_OK) == 0;
}

static int work(size_t which)
{
    int bad = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (size_t i = which; i < (size_t)HOOKS * DEEDS; i += WORKERS) {
        const size_t hook = i / DEEDS, deed = i % DEEDS;
        if (i % EACH || !tellable(hook, deed) || (EACH > 1 && !strcmp(deeds[deed].name, "memory"))) continue;
        bad += !try(hook, deed);
    }
    return bad;
}

TEST(costs_one_row_in_every_entry_and_manner)
{
    int bad = 0;
    fflush(stdout);
    for (size_t i = 0; i < WORKERS; i++)
        if (fork() == 0) _exit(work(i) > 0);
    for (int status; wait(&status) > 0;) bad += status != 0;
    if (bad) fail_msg("something is wrong, see above");
    size_t done = 0;
    struct dirent *e;
    DIR *d = opendir(test_folder);
    while (d && (e = readdir(d))) done += strstr(e->d_name, ".once") != NULL;
    if (d) closedir(d);
    printf("%zu entries x deeds\n", done);
    assert_true(done > 0 && (EACH > 1 || done == (size_t)HOOKS * DEEDS - 1));
}

TEST(takes_nothing_on_trust)
{
    struct ha_why why = { "" };
    unsetenv("HA_HOSTILE");
    forging = true;
    const enum ha_exit code = run_cases("forged", 0, &why);
    forging = false;
    assert_true(as_it_should("forged", code, NULL, 0));
}

/* The whole run of `name`, in which the device does `deed` once; the path says whether it did. */
static enum ha_exit run_deed(const char *name, const char *deed, uint64_t case_time_ns, char *once, struct ha_why *why)
{
    snprintf(once, TEST_PATH_MAX + 8, "%s.did", test_path(name));
    setenv("HA_HOSTILE", deed, 1);
    setenv("HA_HOSTILE_ONCE", once, 1);
    const enum ha_exit code = run_cases(name, case_time_ns, why);
    unsetenv("HA_HOSTILE");
    return code;
}

/* Cases that run in turns in one process, in which one of them dies: whose fault it is shows where each is run alone.
 */
TEST(a_death_among_several_costs_one_row)
{
#define AMONG ", among 3 that ran in turns; none of the others does so alone"
    static const struct {
        const char *deed; /* done once */
        uint64_t killed;
        size_t bad;
        const char *reason;
        uint64_t case_time_ns;
    } each[] = {
        { "", CASES, 0, NULL, 0 },
        { "", 0, 0, "killed by SIGKILL", 0 },
        { "", 1, 1, "killed by SIGKILL", 0 },
        { "", 2, 2, "killed by SIGKILL" AMONG, 0 },
        { "copy:exit_3", CASES, 2, "exited with 3" AMONG, 0 },
        { "copy:poison", CASES, 2, "device ", 0 },
        { "copy:hang", CASES, 2, "no answer in 6 s" AMONG, UINT64_C(2000000000) }, /* together, so much for each */
    };
    grouped = true;
    for (size_t i = 0; i < COUNT(each); i++) {
        char name[32], once[TEST_PATH_MAX + 8];
        struct ha_why why = { "" };
        snprintf(name, sizeof name, "together.%zu", i);
        killed = each[i].killed;
        const enum ha_exit code = run_deed(name, each[i].deed, each[i].case_time_ns, once, &why);
        assert_true(as_it_should(name, code, each[i].reason, each[i].bad));
        assert_int_equal(access(once, F_OK) == 0, *each[i].deed != 0);
    }
    grouped = false;
    killed = CASES;
}

/* A device that fails in the midst of a group costs no row that is right already: those are not run again. The last
 * case that is left has the error and is not tried, also where it is the only one. */
TEST(a_row_that_is_right_is_not_made_again)
{
    static const unsigned runs[CASES][CASES] = { [1] = { 1, 2, 1 }, [2] = { 1, 1, 1 } };
    ran = mmap(NULL, sizeof *runs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(ran, MAP_FAILED);
    grouped = apart = true;
    for (late = 1; late < CASES; late++) {
        char name[32], once[TEST_PATH_MAX + 8];
        struct ha_why why = { "" };
        snprintf(name, sizeof name, "late.%d", (int)late);
        memset(ran, 0, sizeof *runs);
        const enum ha_exit code = run_deed(name, "", 0, once, &why);
        assert_true(as_it_should(name, code, "device ", 2));
        assert_contains(test_text(strcat(name, "/tour.csv")), POISONED AMONG);
        assert_int_equal(access(once, F_OK), 0);
        for (size_t i = 0; i < CASES; i++) assert_int_equal(ran[i], runs[late][i]);
    }
    grouped = apart = false;
    munmap(ran, sizeof *runs);
    ran = NULL;
}

/* of the time that is left each has its share, and half of that is for checking; a group has as long as its cases */
TEST(time_is_shared)
{
    static const uint64_t s = 1000000000, caps[CASES] = { 100 * s, 3 * s, 300 * s };
    struct ha_why why = { "" };
    nap_us = 800000;
    cap_ns = caps;
    max_time_ns = 600 * s;
    assert_true(as_it_should("times.0", run_cases("times.0", 2 * s, &why), NULL, 0));
    grouped = true;
    cap_ns = NULL;
    max_time_ns = 0;
    assert_true(as_it_should("times.1", run_cases("times.1", 2 * s, &why), NULL, 0));
    grouped = false;
    nap_us = 0;
}

/* A process that answers without a row is none to go on with. */
TEST(silence_is_an_error)
{
    struct ha_why why = { "" };
    silent = 1;
    const enum ha_exit code = run_cases("silent", 0, &why);
    silent = CASES;
    assert_true(as_it_should("silent", code, "its process answered without a row", 1));
}

/* What hangs when the time is over was not run, and is no error. */
TEST(the_end_of_time_is_nobodys_fault)
{
    char once[TEST_PATH_MAX + 8];
    struct ha_why why = { "" };
    max_time_ns = 300000000;
    const enum ha_exit code = run_deed("over", "copy:hang", 0, once, &why);
    max_time_ns = 0;
    assert_int_equal(code, HA_EXIT_MISSING);
    assert_contains(why.text, "--max-time is over: 3 of 3");
    assert_true(ends_with(test_text("over.out"), "\n0 passed, 0 failed, 3 skipped\n"));
}

TEST_MAIN
{
    if (argc > 1) plugin = argv[1];
    return test_all("tests", test_folder_make, test_folder_remove);
}
