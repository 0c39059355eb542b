/* Ranks that meet, each a process: in order, one that died, hangs, comes late, passes, and what is left behind. Nothing
 * here asks how fast this machine is: what is short is how long one that never comes is waited for, and then only who
 * cannot have been there is asked. */

#include "harness/fleet/meet.h"

#include "harness/base/clock.h"
#include "harness/base/test_folder.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { RANKS = 4, WINDOWS = 6 };
static const uint64_t long_ns = UINT64_C(100000000000), short_ns = 300000000;

/* In memory that all processes have. */
static struct shared {
    struct ha_met met[RANKS][WINDOWS];
    uint64_t enough_ns[RANKS], end_ns[RANKS];
    _Atomic int inside, order[RANKS * WINDOWS], turns, flag, opened;
    _Atomic bool crowded, refused;
    struct ha_why why[RANKS];
} * shared;

/* What another does at a moment that no test could meet: taking a file away before this one looks at its name, ... */
static bool looks_when_gone;
int __real_lstat(const char *path, struct stat *at);
int __wrap_lstat(const char *path, struct stat *at);
int __wrap_lstat(const char *path, struct stat *at)
{
    while (looks_when_gone && access(path, F_OK) == 0) usleep(1000);
    looks_when_gone = false;
    return __real_lstat(path, at);
}

/* ... and putting another one, `new`, in the place of one that has been opened. */
static char replaced[TEST_PATH_MAX];
int __real_fstat(int fd, struct stat *at);
int __wrap_fstat(int fd, struct stat *at);
int __wrap_fstat(int fd, struct stat *at)
{
    const int status = __real_fstat(fd, at);
    if (*replaced) assert_int_equal(rename(test_path("new"), replaced), 0);
    *replaced = 0;
    return status;
}

static int make(void **state)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED || test_folder_make(state);
}
static int unmake(void **state)
{
    munmap(shared, sizeof *shared);
    return test_folder_remove(state);
}

static struct ha_meet *open_rank(size_t rank, size_t ranks, uint64_t wait_ns)
{
    struct ha_meet *meet;
    struct ha_why why = { "" };
    if (ha_meet_open(&meet, &ha_meet_node, test_folder, "a job/1", rank, ranks, wait_ns, &why) == HA_OK) return meet;
    shared->why[rank] = why;
    _exit(3);
}

/* A process for each rank, which ends with 0. */
static pid_t pids[RANKS];
static void start(void (*run)(size_t rank))
{
    fflush(NULL);
    for (size_t r = 0; r < RANKS; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r]) continue;
        run(r);
        _exit(0);
    }
}
static int status_of(size_t rank)
{
    int status;
    assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
    return status;
}
static void await_all_but(size_t rank)
{
    for (size_t r = 0; r < RANKS; r++)
        if (r != rank) assert_int_equal(status_of(r), 0);
}
static void run_all(void (*run)(size_t rank))
{
    start(run);
    await_all_but(RANKS);
}

static size_t files(void)
{
    size_t n = 0;
    DIR *d = opendir(test_folder);
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void window(struct ha_meet *m, size_t rank, uint64_t w)
{
    ha_meet_begin(m, w);
    while (ha_meet_lacks(m, w)) usleep(100);
    shared->met[rank][w] = ha_meet_end(m, w);
    ha_meet_pass(m, w + 1);
}

/* ---- all are there ----------------------------------------------------------------------------------------------- */

static void in_order(size_t rank)
{
    struct ha_meet *m = open_rank(rank, RANKS, long_ns);
    for (uint64_t w = 0; w < WINDOWS; w++) window(m, rank, w);
    ha_meet_close(m);
}

TEST_WITH(all_begin_each_window_at_once, make, unmake)
{
    run_all(in_order);
    for (size_t w = 0; w < WINDOWS; w++)
        for (size_t r = 0; r < RANKS; r++) {
            assert_int_equal(shared->met[r][w].ranks, RANKS);
            assert_true(shared->met[r][w].apart_us > 0);
            assert_true(shared->met[r][w].apart_us == shared->met[0][w].apart_us); /* all say the same */
        }
    assert_int_equal(files(), 0);
}

static void late_to_the_first(size_t rank)
{
    if (rank == 3) usleep(400000);
    in_order(rank);
}

TEST_WITH(one_that_comes_late_is_waited_for, make, unmake)
{
    run_all(late_to_the_first);
    for (size_t r = 0; r < RANKS; r++) assert_int_equal(shared->met[r][0].ranks, RANKS);
}

static void passes_one(size_t rank)
{
    struct ha_meet *m = open_rank(rank, RANKS, long_ns);
    for (uint64_t w = 0; w < 3; w++)
        if (rank == 2 && w == 1) {
            ha_meet_pass(m, w + 1);
            while (shared->flag < RANKS - 1) usleep(1000); /* nobody waits for the next one, either */
        } else {
            window(m, rank, w);
            shared->flag += w == 1;
        }
}

TEST_WITH(one_without_a_case_passes_it, make, unmake)
{
    run_all(passes_one);
    for (size_t r = 0; r < RANKS; r++) {
        assert_int_equal(shared->met[r][0].ranks, RANKS);
        if (r != 2) assert_int_equal(shared->met[r][1].ranks, RANKS - 1);
        assert_int_equal(shared->met[r][2].ranks, RANKS);
    }
}

static void first_is_done_early(size_t rank)
{
    struct ha_meet *m = open_rank(rank, RANKS, long_ns);
    ha_meet_begin(m, 0);
    if (rank) usleep((unsigned)rank * 50000);
    shared->enough_ns[rank] = ha_now_ns();
    while (ha_meet_lacks(m, 0)) usleep(100);
    shared->end_ns[rank] = ha_now_ns();
}

TEST_WITH(nobody_stops_before_all_have_enough, make, unmake)
{
    run_all(first_is_done_early);
    for (size_t r = 0; r < RANKS; r++)
        for (size_t other = 0; other < RANKS; other++) assert_true(shared->end_ns[r] >= shared->enough_ns[other]);
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static void in_turns(size_t rank)
{
    struct ha_meet *m = open_rank(rank, RANKS, long_ns);
    ha_meet_pass(m, rank);
    for (uint64_t round = 0; round < WINDOWS; round++) {
        if (!ha_meet_turn(m, round * RANKS + rank, long_ns)) _exit(4);
        if (atomic_fetch_add(&shared->inside, 1)) shared->crowded = true;
        shared->order[atomic_fetch_add(&shared->turns, 1)] = (int)rank;
        usleep(1000);
        atomic_fetch_sub(&shared->inside, 1);
        if (rank == 3 && round == 2) raise(SIGKILL);
        ha_meet_pass(m, (round + 1) * RANKS + rank);
    }
    ha_meet_pass(m, UINT32_MAX);
}

TEST_WITH(ranks_take_turns_also_when_one_has_died, make, unmake)
{
    start(in_turns);
    await_all_but(3);
    assert_int_equal(status_of(3), SIGKILL);
    assert_false(shared->crowded);
    assert_int_equal(shared->turns, RANKS * 3 + (RANKS - 1) * 3);
    for (int i = 0; i < shared->turns; i++)
        assert_int_equal(shared->order[i], i < RANKS * 3 ? i % RANKS : (i - RANKS * 3) % (RANKS - 1));
}

static void stops_in_its_turn(size_t rank)
{
    struct ha_meet *m = open_rank(rank, RANKS, long_ns); /* that it has come before the others ask */
    if (rank == 3) raise(SIGSTOP);
    ha_meet_pass(m, 1);
    shared->end_ns[rank] = ha_meet_turn(m, 1, short_ns);
}

TEST_WITH(one_that_does_not_move_is_not_waited_for_without_end, make, unmake)
{
    start(stops_in_its_turn);
    await_all_but(3);
    for (size_t r = 0; r < 3; r++) assert_int_equal(shared->end_ns[r], false);
    kill(pids[3], SIGKILL);
    status_of(3);
}

/* ---- one that is not what it should be --------------------------------------------------------------------------- */

/* SIGKILL: rank 3 dies; SIGSTOP: it hangs, and the others wait only so long. */
static int how;
static struct ha_meet *open_of_all(size_t rank) { return open_rank(rank, RANKS, how == SIGSTOP ? short_ns : long_ns); }

static void ends_between(size_t rank)
{
    struct ha_meet *m = open_of_all(rank);
    for (uint64_t w = 0; w < (how == SIGSTOP ? 3 : WINDOWS); w++) {
        if (rank == 3 && w == 2) raise(how);
        window(m, rank, w);
    }
}

static void ends_within(size_t rank)
{
    struct ha_meet *m = open_of_all(rank);
    ha_meet_begin(m, 0);
    if (rank == 3) raise(how);
    while (ha_meet_lacks(m, 0)) usleep(100);
    shared->met[rank][0] = ha_meet_end(m, 0);
}

/* Rank 3 ends or stops by `signal`; the other ranks go on without it, in windows `first` to `last`. */
static void without_one(void (*run)(size_t rank), int signal, size_t first, size_t last)
{
    const uint64_t begin = ha_now_ns();
    how = signal;
    start(run);
    await_all_but(3);
    if (how == SIGSTOP) kill(pids[3], SIGKILL);
    status_of(3);
    assert_true(ha_now_ns() - begin < long_ns);
    for (size_t r = 0; r < 3; r++)
        for (size_t w = 0; w <= last; w++)
            if (w < first) assert_in_range(shared->met[r][w].ranks, how == SIGSTOP ? 1 : RANKS, RANKS);
            else assert_in_range(shared->met[r][w].ranks, how == SIGSTOP ? 1 : RANKS - 1, RANKS - 1);
}

TEST_WITH(one_that_died_is_not_waited_for, make, unmake)
{
    without_one(ends_between, SIGKILL, 2, WINDOWS - 1);
    assert_int_equal(files(), 0);
}
TEST_WITH(one_that_died_within_a_window_does_not_count, make, unmake) { without_one(ends_within, SIGKILL, 0, 0); }
TEST_WITH(one_that_hangs_holds_the_others_only_so_long, make, unmake) { without_one(ends_between, SIGSTOP, 2, 2); }
TEST_WITH(one_that_hangs_within_a_window_does_not_count, make, unmake) { without_one(ends_within, SIGSTOP, 0, 0); }

/* Its process dies, and not its rank: a fork of the rank measures, and is killed; the rank tries again, and passes. */
static void worker_dies(size_t rank)
{
    struct ha_meet *m = open_rank(rank, RANKS, long_ns);
    for (int attempt = 0; attempt < (rank == 3 ? 2 : 1); attempt++) {
        const pid_t worker = fork();
        if (!worker) {
            ha_meet_begin(m, 0);
            if (rank == 3 && !attempt) raise(SIGKILL);
            while (ha_meet_lacks(m, 0)) usleep(100);
            shared->met[rank][0] = ha_meet_end(m, 0);
            _exit(0);
        }
        waitpid(worker, NULL, 0);
    }
    ha_meet_pass(m, 1);
    window(m, rank, 1);
}

TEST_WITH(a_rank_whose_worker_died_is_there_again_at_the_next, make, unmake)
{
    run_all(worker_dies);
    assert_int_equal(shared->met[3][0].ranks, 1);
    assert_true(isnan(shared->met[3][0].apart_us));
    for (size_t r = 0; r < RANKS; r++) {
        if (r < 3) assert_int_equal(shared->met[r][0].ranks, 3);
        assert_int_equal(shared->met[r][1].ranks, RANKS);
    }
}

/* The others have begun without it. */
static void comes_too_late(size_t rank)
{
    struct ha_meet *m = open_rank(rank, RANKS, short_ns);
    while (rank == 3 && shared->flag < 3) usleep(1000);
    ha_meet_begin(m, 0);
    if (rank < 3) shared->flag++;
    while (ha_meet_lacks(m, 0)) usleep(100);
    shared->met[rank][0] = ha_meet_end(m, 0);
}

TEST_WITH(one_that_comes_too_late_measures_alone, make, unmake)
{
    const uint64_t begin = ha_now_ns();
    run_all(comes_too_late);
    assert_true(ha_now_ns() - begin >= short_ns); /* that it was waited for */
    assert_int_equal(shared->met[3][0].ranks, 1);
}

static void others_cases(size_t rank)
{
    struct ha_meet *m = open_rank(rank, RANKS, long_ns);
    struct ha_why why = { "" };
    shared->end_ns[rank] = ha_meet_agree(m, 1, rank == 2 ? 5 : 6, long_ns, &why);
    shared->why[rank] = why;
    shared->opened++;
    while (shared->opened < RANKS) usleep(1000);
}

TEST_WITH(ranks_that_run_other_cases_do_not_meet, make, unmake)
{
    run_all(others_cases);
    for (size_t r = 0; r < RANKS; r++) assert_int_equal(shared->end_ns[r], HA_ERROR);
    assert_string_equal(shared->why[0].text, "rank 2 runs other cases than rank 0");
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void is_killed_alone(size_t rank)
{
    if (rank) return;
    shared->flag = 1;
    open_rank(0, 2, long_ns); /* the other one never comes */
}

TEST_WITH(what_a_killed_job_leaves_the_next_one_removes, make, unmake)
{
    start(is_killed_alone);
    while (files() == 0) usleep(1000);
    kill(pids[0], SIGKILL);
    for (size_t r = 0; r < RANKS; r++) status_of(r);
    assert_int_equal(files(), 1);
    struct ha_meet *m = open_rank(0, 1, long_ns);
    assert_int_equal(files(), 0);
    ha_meet_close(m);
}

/* The last to come is so slow that the others have met, and have taken the name away, before it looks at it. */
static void looks_late(size_t rank)
{
    looks_when_gone = rank == 3;
    struct ha_meet *m = open_rank(rank, RANKS, long_ns);
    if (rank == 3) shared->flag = !looks_when_gone;
    window(m, rank, 0);
}

TEST_WITH(a_name_that_is_gone_when_all_have_come_is_no_failure, make, unmake)
{
    run_all(looks_late);
    assert_int_equal(shared->flag, 1);
    for (size_t r = 0; r < RANKS; r++) assert_int_equal(shared->met[r][0].ranks, RANKS);
    assert_int_equal(files(), 0);
}

/* Another has removed an old file, and begun one of the same name, since it was found. */
TEST_WITH(what_is_new_under_an_old_name_stays, make, unmake)
{
    char old[TEST_PATH_MAX], name[64];
    snprintf(name, sizeof name, "habench.%lu.old", (unsigned long)geteuid());
    test_write(name, "", 0);
    test_write("new", "new", 3);
    strcpy(old, test_path(name));
    snprintf(replaced, sizeof replaced, "%s", old);
    struct ha_meet *m = open_rank(0, 1, long_ns);
    assert_string_equal(replaced, "");
    ha_meet_close(m);
    assert_string_equal(test_text(name), "new");
}

static void is_there_twice(size_t rank)
{
    struct ha_meet *m;
    struct ha_why why = { "" };
    if (rank) return;
    struct ha_meet *first;
    assert_int_equal(ha_meet_open(&first, &ha_meet_node, test_folder, "j", 1, 2, 0, &why), HA_OK);
    if (ha_meet_open(&m, &ha_meet_node, test_folder, "j", 1, 2, 0, &why) == HA_ERROR) shared->refused = true;
    shared->why[0] = why;
    if (ha_meet_open(&m, &ha_meet_node, test_folder, "j", 0, 3, 0, &why) == HA_OK) shared->refused = false;
    shared->why[1] = why;
}

TEST_WITH(a_rank_is_there_once_and_of_as_many_as_the_others_say, make, unmake)
{
    run_all(is_there_twice);
    assert_true(shared->refused);
    assert_contains(shared->why[0].text, "rank 1 is there already");
    assert_string_equal(shared->why[1].text, "this rank is one of 3, others of its job are of 2");
}

TEST_WITH(devices_are_told, make, unmake)
{
    char bus_id[32];
    struct ha_meet *m = open_rank(0, 1, long_ns);
    assert_false(ha_meet_device(m, 0, bus_id));
    ha_meet_tell_device(m, "nonsense");
    assert_false(ha_meet_device(m, 0, bus_id));
    ha_meet_tell_device(m, "00000000:3B:1F.7");
    assert_true(ha_meet_device(m, 0, bus_id));
    assert_string_equal(bus_id, "0000:3b:1f.7");
    ha_meet_close(m);
}
