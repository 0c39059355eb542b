/* habench_meet PROGRAM ARG...: a process beside each rank of an MPI job, by which the ranks of several hosts meet:
 *
 *   mpirun -n 16 habench_meet habench run full --together all -o ...
 *
 * It starts PROGRAM, hands it a table of all ranks (meet_table.h; HABENCH_MEET names its descriptor, and
 * HABENCH_MEET_JOB the job), and keeps the slots of the others in it as they are where they belong. PROGRAM itself is
 * not linked with MPI, and nothing of MPI hangs on it: one that dies or hangs leaves its slot as it was. The first rank
 * says when a window begins. Ends as PROGRAM does: with its exit code, 128 + N where it was ended by signal N, or 127
 * where it cannot be run.
 *
 * Each host has a clock of its own. Right before a window begins each measures what it is behind that of the first
 * rank, by messages there and back, and how sure that is. HABENCH_MEET_CLOCKS=measure does so on one host, too. */

#define _GNU_SOURCE /* memfd_create */
#include "harness/base/clock.h"
#include "harness/fleet/meet_table.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How often slots are exchanged: while somebody waits for a window to begin, and else, not to disturb what is measured.
 * A window begins so long after it was decided. */
static const uint64_t fast_ns = 200000, slow_ns = 10000000, ahead_ns = 50000000, own_wait_ns = 120000000000;
enum { PINGS = 16, TAG = 1, NOT_FOUND = 127, JOB = 64 };

/* What each says to all. Times are those of the first rank's clock. */
struct line {
    uint64_t word[HA_MEET_WORDS];
    uint64_t unsure_ns;              /* of its clock */
    uint64_t wait_ns;                /* of its program; 0: it has not said */
    uint64_t sync_window, go_window; /* of the first rank: the newest, and 1 */
    uint64_t go_ns;
};

struct meet {
    struct ha_meet_table *table;
    int rank, ranks, fd;
    pid_t child;
    struct line own, *all;
    bool far;                     /* its clock is another than that of the first rank */
    int64_t ahead_of_own;         /* ns that the first rank's clock is ahead */
    uint64_t candidate, since_ns; /* of the first rank: the window that is waited for, and 1, and since when */
};

static volatile sig_atomic_t asked;
static void on_signal(int number) { asked = number; }

static void nap(uint64_t ns) { nanosleep(&(struct timespec){ .tv_nsec = (long)ns }, NULL); }

/* ---- the program ------------------------------------------------------------------------------------------------- */

/* Before MPI is begun, whose threads and memory it is not to have. It runs when it is told which job this is. */
static pid_t start(char **argv, int fd, int *tell)
{
    int ends[2];
    char number[32], job[JOB] = "";
    if (pipe(ends) != 0) return -1;
    const pid_t parent = getpid(), child = fork();
    if (child != 0) {
        close(ends[0]);
        *tell = ends[1];
        return child;
    }
    close(ends[1]);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || read(ends[0], job, sizeof job) != sizeof job) _exit(NOT_FOUND);
    close(ends[0]);
    snprintf(number, sizeof number, "%d", fd);
    setenv("HABENCH_MEET", number, 1);
    setenv("HABENCH_MEET_JOB", job, 1);
    execvp(argv[0], argv);
    fprintf(stderr, "habench_meet: cannot run %s\n", argv[0]);
    _exit(NOT_FOUND);
}

/* true: it has ended, and *code is how */
static bool has_ended(pid_t child, int *code)
{
    int status;
    if (waitpid(child, &status, WNOHANG) != child) return false;
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}

/* ---- clocks ------------------------------------------------------------------------------------------------------ */

/* Do all ranks of a host run on one clock? The id is that of the system as it was started. */
static bool is_far(const struct meet *m)
{
    enum { ID = 64 };
    char own[ID] = "", first[ID];
    const char *asked_for = getenv("HABENCH_MEET_CLOCKS");
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    const bool known = f && fgets(own, sizeof own, f);
    if (f) fclose(f);
    memcpy(first, own, ID);
    MPI_Bcast(first, ID, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (m->rank == 0) return false;
    return !known || memcmp(first, own, ID) != 0 || (asked_for && !strcmp(asked_for, "measure"));
}

static void answer_pings(int far_rank)
{
    uint64_t now;
    for (int i = 0; i < PINGS; i++) {
        MPI_Recv(&now, 1, MPI_UINT64_T, far_rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        now = ha_now_ns();
        MPI_Send(&now, 1, MPI_UINT64_T, far_rank, TAG, MPI_COMM_WORLD);
    }
}

/* By the quickest answer: the first rank looked at its clock within it. */
static void ping(struct meet *m)
{
    uint64_t quickest = UINT64_MAX;
    for (int i = 0; i < PINGS; i++) {
        uint64_t there, asked_ns = ha_now_ns();
        MPI_Send(&asked_ns, 1, MPI_UINT64_T, 0, TAG, MPI_COMM_WORLD);
        MPI_Recv(&there, 1, MPI_UINT64_T, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        const uint64_t took = ha_now_ns() - asked_ns;
        if (took >= quickest) continue;
        quickest = took;
        m->ahead_of_own = (int64_t)(there - asked_ns - took / 2);
        m->own.unsure_ns = (took + 1) / 2;
    }
}

static void sync_clocks(struct meet *m, const bool *far)
{
    if (m->far) ping(m);
    for (int r = 1; r < m->ranks && m->rank == 0; r++)
        if (far[r]) answer_pings(r);
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static uint64_t to_first(const struct meet *m, uint64_t own_ns) { return own_ns + (uint64_t)m->ahead_of_own; }
static uint64_t to_own(const struct meet *m, uint64_t first_ns) { return first_ns - (uint64_t)m->ahead_of_own; }

static bool is_time(int word) { return word == HA_MEET_BEGAN_NS || word == HA_MEET_BEGAN_NS + HA_MEET_RECORD_WORDS; }

static uint64_t own_word(const struct meet *m, int word)
{
    return ha_meet_word(m->table, (uint64_t)m->rank, (enum ha_meet_word)word);
}

/* A window's record as it was: of one in which another window began meanwhile all is read again. When it began is read
 * behind whether it has enough, which is said later. */
static void read_record(struct meet *m, int record)
{
    uint64_t *member = &m->own.word[HA_MEET_MEMBER + record], *began = &m->own.word[HA_MEET_BEGAN_NS + record];
    do {
        *member = own_word(m, HA_MEET_MEMBER + record);
        m->own.word[HA_MEET_ENOUGH + record] = own_word(m, HA_MEET_ENOUGH + record);
        *began = own_word(m, HA_MEET_BEGAN_NS + record);
    } while (own_word(m, HA_MEET_MEMBER + record) != *member);
    if (*began) *began = to_first(m, *began);
}

static void read_own(struct meet *m)
{
    for (int w = 0; w < HA_MEET_MEMBER; w++) m->own.word[w] = own_word(m, w);
    read_record(m, 0);
    read_record(m, HA_MEET_RECORD_WORDS);
    m->own.wait_ns = atomic_load(&m->table->wait_ns);
}

/* Records last to first: a window is named when what is said of it stands there. */
static void write_others(struct meet *m)
{
    uint64_t unsure = 0;
    for (int r = 0; r < m->ranks; r++) {
        const struct line *line = &m->all[r];
        if (line->unsure_ns > unsure) unsure = line->unsure_ns;
        for (int w = HA_MEET_WORDS; w-- > 0 && r != m->rank;) {
            const uint64_t x = line->word[w];
            atomic_store(&m->table->slot[r].word[w], is_time(w) && x ? to_own(m, x) : x);
        }
    }
    atomic_store(&m->table->apart_ns, 2 * unsure); /* the first and the last of them */
}

static void exchange(struct meet *m)
{
    MPI_Request request;
    int done = 0;
    read_own(m);
    MPI_Iallgather(&m->own, sizeof m->own, MPI_BYTE, m->all, sizeof m->own, MPI_BYTE, MPI_COMM_WORLD, &request);
    for (MPI_Test(&request, &done, MPI_STATUS_IGNORE); !done; MPI_Test(&request, &done, MPI_STATUS_IGNORE))
        nap(fast_ns);
    write_others(m);
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

/* The first window that somebody waits for, and 1; 0: none. All come to the same from the same lines. */
static uint64_t next_window(const struct meet *m)
{
    uint64_t next = 0;
    for (int r = 0; r < m->ranks; r++) {
        const uint64_t *word = m->all[r].word, ready = word[HA_MEET_READY];
        const bool waits = ready > m->all[0].go_window && word[HA_MEET_AT] < ready && !word[HA_MEET_GONE];
        if (waits && (!next || ready < next)) next = ready;
    }
    return next;
}

/* Has the first rank waited for all, or long enough? */
static bool is_decided(struct meet *m, uint64_t next)
{
    const uint64_t now = ha_now_ns(), wait = m->own.wait_ns ? m->own.wait_ns : own_wait_ns;
    if (next != m->candidate) {
        m->candidate = next;
        m->since_ns = now;
    }
    if (!next) return false;
    if (now - m->since_ns >= wait) return true;
    for (int r = 0; r < m->ranks; r++) {
        const uint64_t *word = m->all[r].word;
        if (!word[HA_MEET_GONE] && word[HA_MEET_AT] < next && word[HA_MEET_READY] < next) return false;
    }
    return true;
}

/* In two exchanges: all measure their clocks, then all learn when. */
static void decide(struct meet *m, uint64_t next)
{
    if (next && m->own.sync_window == next && m->own.go_window < next) {
        m->own.go_window = next;
        m->own.go_ns = ha_now_ns() + ahead_ns;
    } else if (is_decided(m, next)) m->own.sync_window = next;
}

static void take_go(struct meet *m, uint64_t *taken)
{
    const struct line *first = &m->all[0];
    const uint64_t base = atomic_load(&m->table->base_ns);
    if (first->go_window <= *taken) return;
    *taken = first->go_window;
    atomic_store(&m->table->go, ha_meet_go(first->go_window - 1, to_own(m, first->go_ns) - base));
}

/* Until all programs have ended. */
static int serve(struct meet *m, const bool *far)
{
    int code = NOT_FOUND;
    uint64_t synced = 0, taken = 0;
    for (bool ended = false, all_ended = false; !all_ended;) {
        if (asked && !ended) kill(m->child, asked);
        asked = 0;
        ended = ended || has_ended(m->child, &code);
        if (ended) atomic_store(&m->table->slot[m->rank].word[HA_MEET_GONE], 1);
        exchange(m);
        take_go(m, &taken);
        if (m->all[0].sync_window > synced) {
            synced = m->all[0].sync_window;
            sync_clocks(m, far);
        }
        const uint64_t next = next_window(m);
        if (m->rank == 0) decide(m, next);
        all_ended = true;
        for (int r = 0; r < m->ranks; r++) all_ended = all_ended && m->all[r].word[HA_MEET_GONE];
        nap(next ? fast_ns : slow_ns);
    }
    return code;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static bool make_table(struct meet *m)
{
    const size_t bytes = sizeof *m->table + (size_t)m->ranks * sizeof *m->table->slot;
    if (ftruncate(m->fd, (off_t)bytes) != 0) return false;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (p == MAP_FAILED) return false;
    m->table = p;
    m->all = calloc((size_t)m->ranks, sizeof *m->all);
    atomic_store(&m->table->ranks, (uint64_t)m->ranks);
    atomic_store(&m->table->base_ns, ha_now_ns());
    return m->all != NULL;
}

static int run(struct meet *m, int tell)
{
    char job[JOB] = "";
    bool *far = calloc((size_t)m->ranks, sizeof *far);
    m->far = is_far(m);
    if (!far || !make_table(m)) {
        fputs("habench_meet: out of memory\n", stderr);
        MPI_Abort(MPI_COMM_WORLD, NOT_FOUND);
    }
    MPI_Allgather(&m->far, sizeof *far, MPI_BYTE, far, sizeof *far, MPI_BYTE, MPI_COMM_WORLD);
    snprintf(job, sizeof job, "%ld.%llu", (long)getpid(), (unsigned long long)ha_now_ns());
    MPI_Bcast(job, sizeof job, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (write(tell, job, sizeof job) != sizeof job)
        fputs("habench_meet: the program has ended before it began\n", stderr);
    close(tell);
    const int code = serve(m, far);
    free(far);
    free(m->all);
    return code;
}

int main(int argc, char **argv)
{
    struct meet m = { .fd = memfd_create("habench_meet", 0) };
    int tell = -1;
    if (argc < 2) {
        fputs("usage: mpirun ... habench_meet PROGRAM ARG...\n", stderr);
        return 64;
    }
    m.child = m.fd < 0 ? -1 : start(argv + 1, m.fd, &tell);
    if (m.child < 0) {
        perror("habench_meet");
        return NOT_FOUND;
    }
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &m.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &m.ranks);
    const int code = run(&m, tell);
    MPI_Finalize();
    return code;
}
