/* Runs of several ranks, each a process with the loop and a worker of its own: alone in turns, then at once, over a
 * link that two of the four share. The link is planted, and so is its time: a transfer begins when this rank asks or
 * when the link is free, as if all of its ranks ran at one speed, whatever this host is busy with. */

#include "harness/engine/test_run.h"

#include "harness/base/stats.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { RANKS = 4, LINKS = 3, CASES = 4, SAMPLES_MOST = 4000 };
enum { EASY, WRONG_OF_ONE, DEADLY_TO_ONE, EASY_AGAIN };
static const size_t link_of[RANKS] = { 0, 0, 1, 2 };

/* In memory that all processes have. A rank is on its link from before it is ready for a case until it has measured it.
 */
static struct shared {
    _Atomic uint64_t now_us[RANKS]; /* of each rank that is on its link */
    _Atomic uint64_t on[RANKS];     /* which case, and 1; 0: it is not */
    _Atomic uint64_t free_us[LINKS];
    _Atomic int measuring; /* ranks at this moment */
    _Atomic bool crowded;  /* two of them in turns */
    _Atomic bool turns;
} * shared;
static size_t rank; /* of this process */

/* ---- the link ---------------------------------------------------------------------------------------------------- */

/* Nobody else on the link is behind this rank in its time. */
static bool is_next(void)
{
    const uint64_t now = shared->now_us[rank];
    for (size_t r = 0; r < RANKS; r++) {
        if (r == rank || link_of[r] != link_of[rank] || shared->on[r] != shared->on[rank]) continue;
        const uint64_t other = shared->now_us[r];
        if (other < now || (other == now && r < rank)) return false;
    }
    return true;
}

/* A transfer of a microsecond; what it took, with the wait for the link. */
static double transfer_us(void)
{
    const uint64_t asked = shared->now_us[rank];
    while (!is_next()) usleep(20);
    _Atomic uint64_t *free_us = &shared->free_us[link_of[rank]];
    const uint64_t begins = *free_us > asked ? *free_us : asked;
    *free_us = begins + 1;
    shared->now_us[rank] = begins + 1;
    return (double)(begins + 1 - asked);
}

/* Its time goes on where the link's is. */
static void get_on(uint64_t n)
{
    shared->now_us[rank] = shared->free_us[link_of[rank]];
    shared->on[rank] = n + 1;
    if (shared->measuring++ && shared->turns) shared->crowded = true;
}
static void get_off(void)
{
    shared->on[rank] = 0;
    shared->measuring--;
}

/* ---- the suite --------------------------------------------------------------------------------------------------- */

struct point {
    uint64_t n;
};
struct row {
    struct ha_result head;
    double step_ns;
};

static enum ha_status check(void *run, struct ha_group *g, struct ha_why *why)
{
    const uint64_t n = ((const struct point *)g->point[0])->n;
    if (n == WRONG_OF_ONE && rank == 1) return HA_FAIL;
    g->right[0] = true;
    return HA_OK;
}

/* Ranks want different numbers of samples: those that have theirs go on until all have. */
static enum ha_status measure(void *run, struct ha_group *g, struct ha_why *why)
{
    const uint64_t n = ((const struct point *)g->point[0])->n;
    const size_t wanted = 20 * (rank + 1);
    struct row *row = g->row[0];
    double x[SAMPLES_MOST];
    size_t count = 0;
    get_on(n);
    ha_meeting_begin(g->meeting);
    if (n == DEADLY_TO_ONE && rank == 2 && !shared->turns) {
        get_off();
        raise(SIGKILL);
    }
    if (shared->turns) usleep(10000); /* for another to be there, too, if it may */
    while (ha_meeting_goes_on(g->meeting, count >= wanted)) {
        const double us = transfer_us();
        if (count < wanted) x[count++] = us * 1e3;
    }
    get_off();
    row->step_ns = ha_median(x, count);
    row->head.samples = (double)count;
    return HA_OK;
}

static const struct ha_key key = { "n",          "0",           "which", HA_KEY_NUMBER, offsetof(struct point, n),
                                   .max = CASES, .always = true };
static const struct ha_field field = { "step_ns", "ns", HA_FIELD_NUMBER,  HA_IN(struct row, step_ns),
                                       1,         "",   .better = HA_LESS };
static const struct ha_suite suite = TEST_SUITE("links", struct point, struct row, .key = &key, .keys = 1,
                                                .field = &field, .fields = 1, .file = { "links.csv" }, .check = check,
                                                .measure = measure);
TEST_SUITES(&suite);

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static enum ha_exit run(const char *name, const struct ha_at_once *at_once)
{
    const struct ha_suite *suites[CASES];
    char folder[TEST_PATH_MAX];
    struct ha_why why = { "" };
    for (size_t n = 0; n < CASES; n++) suites[n] = &suite;
    snprintf(folder, sizeof folder, "%s", test_path(name));
    const struct ha_run_options o = { .measure = true, .out_dir = folder, .quiet = true, .at_once = at_once };
    return test_run(suites, CASES, NULL, &o, &why);
}

static void run_rank(void)
{
    enum { LONG_S = 100 };
    char name[32];
    double alone[CASES];
    struct ha_meet *meet;
    struct ha_why why = { "" };
    test_print_to("/dev/null", NULL);
    if (ha_meet_open(&meet, &ha_meet_node, test_folder, "job", rank, RANKS, LONG_S * UINT64_C(1000000000), &why)
        != HA_OK)
        _exit(2);
    for (size_t i = 0; i < CASES; i++) alone[i] = (double)NAN;
    struct ha_at_once at_once = {
        .meet = meet, .turns = true, .first = 1, .entries = CASES, .of = RANKS, .alone = alone
    };
    shared->turns = true;
    snprintf(name, sizeof name, "%zu-alone", rank);
    run(name, &at_once);
    at_once.first += ha_at_once_windows(meet, CASES, 0);
    if (ha_meet_agree(meet, at_once.first, 1, UINT64_MAX, &why) != HA_OK) _exit(3);
    shared->turns = at_once.turns = false;
    snprintf(name, sizeof name, "%zu-together", rank);
    run(name, &at_once);
    ha_meet_close(meet);
    _exit(0);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

enum { VERDICT, STEP, TOGETHER, OF, APART, KEPT, COLUMNS };
struct rows {
    size_t column[COLUMNS], count;
    char at[CASES][COLUMNS][32];
};

static enum ha_status take(void *arg, size_t line, char **at, size_t count)
{
    static const char *const names[COLUMNS] = { "verdict", "step_ns", "together", "together_of", "apart_us", "kept" };
    struct rows *r = arg;
    for (size_t k = 0; k < COLUMNS && line == 1; k++)
        for (r->column[k] = 0; strcmp(at[r->column[k]], names[k]) != 0; r->column[k]++)
            assert_true(r->column[k] < count);
    if (line == 1) return HA_OK;
    assert_true(r->count < CASES);
    for (size_t k = 0; k < COLUMNS; k++) snprintf(r->at[r->count][k], sizeof r->at[0][k], "%s", at[r->column[k]]);
    r->count++;
    return HA_OK;
}

static struct rows rows_of(size_t of, const char *phase)
{
    char name[64];
    struct rows r = { .count = 0 };
    struct ha_why why = { "" };
    snprintf(name, sizeof name, "%zu-%s/links.csv", of, phase);
    if (ha_csv_read(test_path(name), take, &r, &why) != HA_OK) fail_msg("%s", why.text);
    assert_int_equal(r.count, CASES);
    return r;
}

static void assert_row(char at[COLUMNS][32], const char *verdict, double step_ns, size_t together, double kept)
{
    assert_string_equal(at[VERDICT], verdict);
    assert_true(atof(at[STEP]) == step_ns);
    assert_int_equal(atoi(at[TOGETHER]), together);
    assert_true(atof(at[KEPT]) == kept);
    assert_int_equal(*at[APART] != 0, together > 1);
    assert_string_equal(at[OF], together ? "4" : "");
}

static int run_ranks(void **state)
{
    pid_t pid[RANKS];
    if (test_folder_make(state)) return 1;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    fflush(NULL);
    for (rank = 0; rank < RANKS; rank++)
        if (!(pid[rank] = fork())) run_rank();
    int failed = 0, status;
    for (size_t r = 0; r < RANKS; r++) failed |= waitpid(pid[r], &status, 0) != pid[r] || status;
    return failed;
}

TEST(in_turns_nobody_shares_anything)
{
    assert_false(shared->crowded);
    for (size_t r = 0; r < RANKS; r++) {
        struct rows rows = rows_of(r, "alone");
        for (size_t n = 0; n < CASES; n++)
            if (r == 1 && n == WRONG_OF_ONE) assert_row(rows.at[n], "fail", 0, 0, 0);
            else assert_row(rows.at[n], "pass", 1000, 0, 0);
    }
}

TEST(at_once_two_keep_half_of_the_link_that_they_share)
{
    for (size_t r = 0; r < RANKS; r++) {
        struct rows rows = rows_of(r, "together");
        for (size_t n = 0; n < CASES; n += EASY_AGAIN)
            assert_row(rows.at[n], "pass", link_of[r] ? 1000 : 2000, RANKS, link_of[r] ? 1 : 0.5);
    }
}

/* What was wrong is not measured, and nobody waits for it. */
TEST(a_case_that_one_rank_does_not_measure_says_so)
{
    for (size_t r = 0; r < RANKS; r++) {
        struct rows rows = rows_of(r, "together");
        if (r == 1) assert_row(rows.at[WRONG_OF_ONE], "fail", 0, 0, 0);
        else assert_row(rows.at[WRONG_OF_ONE], "pass", 1000, RANKS - 1, 1);
        if (r == 2) assert_row(rows.at[DEADLY_TO_ONE], "error", 0, 0, 0);
        else assert_row(rows.at[DEADLY_TO_ONE], "pass", link_of[r] ? 1000 : 2000, RANKS - 1, link_of[r] ? 1 : 0.5);
    }
}

TEST_MAIN { return test_all("tests", run_ranks, test_folder_remove); }
