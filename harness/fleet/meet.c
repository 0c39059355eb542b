#define _GNU_SOURCE /* F_OFD_SETLK */
#include "harness/fleet/meet.h"

#include "harness/base/clock.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "harness/fleet/meet_table.h"
#include "harness/fleet/rank.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Who waits looks so often: for a window to begin, for a turn. A window begins so long after it was decided, which is
 * longer than anybody looks away. */
static const uint64_t look_ns = 200000, turn_look_ns = 2000000, ahead_ns = 3000000, spin_ns = 300000;

struct ha_meet {
    const struct ha_meet_way *way;
    struct ha_meet_table *table;
    size_t rank, ranks, bytes;
    int fd;     /* of the table; of node it holds the lock of this rank */
    int record; /* of the newest window of this process (ha_meet_record) */
    uint64_t wait_ns, enough_ns /* when this rank had enough; 0: it has not */;
};

static void nap(uint64_t ns) { nanosleep(&(struct timespec){ .tv_nsec = (long)ns }, NULL); }

static void say(struct ha_meet *m, enum ha_meet_word word, uint64_t value)
{
    atomic_store(&m->table->slot[m->rank].word[word], value);
}

/* of the newest window */
static void say_of(struct ha_meet *m, enum ha_meet_word word, uint64_t value)
{
    say(m, (enum ha_meet_word)((int)word + m->record), value);
}

static uint64_t said(const struct ha_meet *m, size_t rank, enum ha_meet_word word)
{
    return ha_meet_word(m->table, rank, word);
}

/* What a rank says of a window that it began with the others; 0: it did not. */
static uint64_t said_of(const struct ha_meet *m, size_t rank, uint64_t window, enum ha_meet_word word)
{
    const int record = ha_meet_record(m->table, rank, window);
    return record < 0 ? 0 : said(m, rank, (enum ha_meet_word)((int)word + record));
}

static bool is_other(const struct ha_meet *m, size_t rank) { return rank != m->rank && m->way->present(m, rank); }

static size_t count_present(const struct ha_meet *m)
{
    size_t n = 1;
    for (size_t r = 0; r < m->ranks; r++) n += is_other(m, r);
    return n;
}

/* ---- node: a file of one host ------------------------------------------------------------------------------------ */

static struct flock lock_of(size_t first, size_t count)
{
    return (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)first, .l_len = (off_t)count };
}

static bool node_present(const struct ha_meet *m, size_t rank)
{
    struct flock lock = lock_of(rank, 1);
    return fcntl(m->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Is this file still what the path names? */
static bool is_named(int fd, const char *path)
{
    struct stat at, named;
    return fstat(fd, &at) == 0 && lstat(path, &named) == 0 && named.st_ino == at.st_ino && named.st_dev == at.st_dev;
}

/* All of its ranks have come, and one of them has taken the name away (node_open). */
static bool have_met(int fd)
{
    uint64_t met = 0;
    return pread(fd, &met, sizeof met, offsetof(struct ha_meet_table, met)) == sizeof met && met;
}

/* Files of this user in which no rank has a lock are of jobs that were killed before all of their ranks had come. */
static void sweep(const char *folder, const char *prefix)
{
    char path[4096];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct flock all = lock_of(0, 0);
        struct stat at;
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= (int)sizeof path) continue;
        const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0) continue;
        const bool own = fstat(fd, &at) == 0 && S_ISREG(at.st_mode) && at.st_uid == geteuid();
        if (own && fcntl(fd, F_OFD_SETLK, &all) == 0 && is_named(fd, path)) unlink(path);
        close(fd);
    }
    if (d) closedir(d);
}

static void name_file(char path[4096], size_t prefix_bytes, char *prefix, const char *folder, const char *job)
{
    char name[201];
    snprintf(name, sizeof name, "%s", job);
    ha_rank_safe(name);
    snprintf(prefix, prefix_bytes, "habench.%lu.", (unsigned long)geteuid());
    snprintf(path, 4096, "%.3800s/%s%s", folder, prefix, name);
}

/* HA_FAIL: somebody took the file away, or looks whether it is in use: to be tried again. */
static enum ha_status open_file(struct ha_meet *m, const char *path, struct ha_why *why)
{
    struct flock own = lock_of(m->rank, 1);
    struct stat at;
    m->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (m->fd < 0) return ha_why(why, HA_ERROR, "ranks cannot meet in %s: %s", path, strerror(errno));
    if (fstat(m->fd, &at) != 0 || !S_ISREG(at.st_mode) || at.st_uid != geteuid())
        return ha_why(why, HA_ERROR, "ranks cannot meet in %s: it is not this user's", path);
    if (fcntl(m->fd, F_OFD_SETLK, &own) != 0) {
        if (errno == EAGAIN || errno == EACCES)
            return ha_why(why, HA_FAIL, "rank %zu is there already, in %s", m->rank, path);
        return ha_why(why, HA_ERROR, "ranks cannot meet in %s: no locks: %s", path, strerror(errno));
    }
    /* the others may have seen the lock, and that all have come, before this one looks */
    if (!is_named(m->fd, path) && !have_met(m->fd))
        return ha_why(why, HA_FAIL, "%s: somebody takes it away again and again", path);
    if (at.st_size < (off_t)m->bytes && ftruncate(m->fd, (off_t)m->bytes) != 0)
        return ha_why(why, HA_ERROR, "ranks cannot meet in %s: %s", path, strerror(errno));
    return HA_OK;
}

static enum ha_status map(struct ha_meet *m, struct ha_why *why)
{
    void *p = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (p == MAP_FAILED) return ha_why(why, HA_ERROR, "no memory for ranks to meet in: %s", strerror(errno));
    m->table = p;
    return HA_OK;
}

static void await_all(const struct ha_meet *m)
{
    const uint64_t begin = ha_now_ns();
    while (count_present(m) < m->ranks && ha_now_ns() - begin < m->wait_ns && !ha_stop) nap(turn_look_ns);
}

static enum ha_status node_open(struct ha_meet *m, const char *folder, const char *job, struct ha_why *why)
{
    enum { TRIES = 200 };
    char path[4096], prefix[64];
    uint64_t none = 0;
    enum ha_status status = HA_FAIL;
    folder = folder ? folder : "/dev/shm";
    name_file(path, sizeof prefix, prefix, folder, job);
    sweep(folder, prefix);
    for (int i = 0; i < TRIES && status == HA_FAIL; i++) {
        if (i) nap(turn_look_ns);
        if (m->fd >= 0) close(m->fd);
        status = open_file(m, path, why);
    }
    if (status != HA_OK) return HA_ERROR;
    HA_TRY(map(m, why));
    if (!atomic_compare_exchange_strong(&m->table->ranks, &none, m->ranks) && none != m->ranks)
        return ha_why(why, HA_ERROR, "this rank is one of %zu, others of its job are of %llu", m->ranks,
                      (unsigned long long)none);
    none = 0;
    atomic_compare_exchange_strong(&m->table->base_ns, &none, ha_now_ns());
    for (int w = 0; w < HA_MEET_WORDS; w++) say(m, (enum ha_meet_word)w, 0); /* of an earlier process of this rank */
    await_all(m);
    if (count_present(m) == m->ranks) { /* nobody else is to come, and nothing is to stay */
        atomic_store(&m->table->met, 1);
        if (is_named(m->fd, path)) unlink(path);
    }
    return HA_OK;
}

/* ---- all: a table that a process beside this one keeps ----------------------------------------------------------- */

static bool all_present(const struct ha_meet *m, size_t rank) { return !said(m, rank, HA_MEET_GONE); }

static enum ha_status all_open(struct ha_meet *m, const char *folder, const char *job, struct ha_why *why)
{
    const char *text = getenv("HABENCH_MEET");
    struct stat at;
    char *end;
    const long fd = text && *text ? strtol(text, &end, 10) : -1;
    if (fd < 0 || *end) return ha_why(why, HA_ERROR, "ranks of several hosts meet by MPI: start each by habench_meet");
    if (fstat((int)fd, &at) != 0 || at.st_size != (off_t)m->bytes)
        return ha_why(why, HA_ERROR, "HABENCH_MEET=%.40s is no table of %zu ranks", text, m->ranks);
    m->fd = fcntl((int)fd, F_DUPFD_CLOEXEC, 3);
    HA_TRY(map(m, why));
    if (atomic_load(&m->table->ranks) != m->ranks)
        return ha_why(why, HA_ERROR, "HABENCH_MEET=%.40s is no table of %zu ranks", text, m->ranks);
    atomic_store(&m->table->wait_ns, m->wait_ns);
    return HA_OK;
}

const struct ha_meet_way ha_meet_node = { .open = node_open, .present = node_present, .decides = true };
const struct ha_meet_way ha_meet_all = { .open = all_open, .present = all_present };

/* ---- open and close ---------------------------------------------------------------------------------------------- */

enum ha_status ha_meet_open(struct ha_meet **out, const struct ha_meet_way *way, const char *folder, const char *job,
                            size_t rank, size_t ranks, uint64_t wait_ns, struct ha_why *why)
{
    *out = NULL;
    if (!ranks || ranks > HA_MEET_RANKS_MOST || rank >= ranks)
        return ha_why(why, HA_ERROR, "rank %zu of %zu: there is no such rank", rank, ranks);
    struct ha_meet *m = calloc(1, sizeof *m);
    if (!m) return ha_why(why, HA_ERROR, "out of memory");
    *m = (struct ha_meet){ .way = way, .rank = rank, .ranks = ranks, .fd = -1, .wait_ns = wait_ns };
    m->bytes = sizeof *m->table + ranks * sizeof *m->table->slot;
    const enum ha_status status = way->open(m, folder, job, why);
    if (status == HA_OK) *out = m;
    else ha_meet_close(m);
    return status;
}

void ha_meet_close(struct ha_meet *m)
{
    if (!m) return;
    if (m->table) munmap(m->table, m->bytes);
    if (m->fd >= 0) close(m->fd);
    free(m);
}

size_t ha_meet_rank(const struct ha_meet *m) { return m->rank; }
size_t ha_meet_ranks(const struct ha_meet *m) { return m->ranks; }
uint64_t ha_meet_wait_ns(const struct ha_meet *m) { return m->wait_ns; }

/* ---- turns ------------------------------------------------------------------------------------------------------- */

void ha_meet_pass(struct ha_meet *m, uint64_t window) { say(m, HA_MEET_AT, window); }

bool ha_meet_turn(struct ha_meet *m, uint64_t window, uint64_t stuck_ns)
{
    uint64_t moved_ns = ha_now_ns(), before = UINT64_MAX;
    while (!ha_stop) {
        uint64_t sum = 0;
        bool busy = false;
        for (size_t r = 0; r < m->ranks; r++) {
            const uint64_t at = said(m, r, HA_MEET_AT);
            sum += at;
            busy = busy || (at < window && is_other(m, r));
        }
        if (!busy) return true;
        if (sum != before) moved_ns = ha_now_ns();
        before = sum;
        if (ha_now_ns() - moved_ns >= stuck_ns) return false;
        nap(turn_look_ns);
    }
    return false;
}

enum ha_status ha_meet_agree(struct ha_meet *m, uint64_t window, uint64_t digest, uint64_t stuck_ns, struct ha_why *why)
{
    digest += !digest; /* 0: it has not said */
    say(m, HA_MEET_PLAN, digest);
    ha_meet_pass(m, window);
    ha_meet_turn(m, window, stuck_ns);
    const uint64_t begin = ha_now_ns();
    for (size_t r = 0; r < m->ranks; r++) {
        /* it may have come so far by what it did before */
        while (said(m, r, HA_MEET_AT) >= window && !said(m, r, HA_MEET_PLAN) && is_other(m, r) && !ha_stop
               && ha_now_ns() - begin < stuck_ns)
            nap(turn_look_ns);
        if (said(m, r, HA_MEET_AT) >= window && is_other(m, r) && said(m, r, HA_MEET_PLAN) != digest)
            return ha_why(why, HA_ERROR, "rank %zu runs other cases than rank %zu", r, m->rank);
    }
    return HA_OK;
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

static bool all_ready(const struct ha_meet *m, uint64_t window)
{
    for (size_t r = 0; r < m->ranks; r++)
        if (ha_meet_awaited(m->table, r, window) && is_other(m, r)) return false;
    return true;
}

/* Decided once, by whoever finds all of them ready, or has waited long enough. */
static void decide(struct ha_meet *m, uint64_t window)
{
    uint64_t go = atomic_load(&m->table->go);
    const uint64_t mine = ha_meet_go(window, ha_now_ns() + ahead_ns - atomic_load(&m->table->base_ns));
    while (ha_meet_go_window(go) <= window && !atomic_compare_exchange_weak(&m->table->go, &go, mine)) continue;
}

static void await_moment(uint64_t ns)
{
    for (uint64_t now; !ha_stop && (now = ha_now_ns()) < ns;)
        if (ns - now > spin_ns) nap(ns - now - spin_ns < look_ns ? ns - now - spin_ns : look_ns);
}

/* That of an earlier attempt at this window, or the older one. */
static void choose_record(struct ha_meet *m, uint64_t window)
{
    const int same = ha_meet_record(m->table, m->rank, window);
    const bool older = said(m, m->rank, HA_MEET_MEMBER) > said(m, m->rank, HA_MEET_NEXT);
    m->record = same >= 0 ? same : older ? HA_MEET_RECORD_WORDS : 0;
}

uint64_t ha_meet_begin(struct ha_meet *m, uint64_t window)
{
    const uint64_t came = ha_now_ns(), base = atomic_load(&m->table->base_ns);
    /* where others decide, their word may be late, and comes all the same */
    const uint64_t patience = m->wait_ns + (m->way->decides ? 0 : 2000000000);
    m->enough_ns = 0;
    choose_record(m, window);
    say_of(m, HA_MEET_MEMBER, 0);
    say_of(m, HA_MEET_ENOUGH, 0);
    say_of(m, HA_MEET_MEMBER, window + 1); /* before anybody begins, who is to know whom to wait for at the end */
    say(m, HA_MEET_READY, window + 1);
    uint64_t go = atomic_load(&m->table->go);
    bool member = ha_meet_go_window(go) <= window || base + ha_meet_go_ns(go) > came;
    while ((go = atomic_load(&m->table->go), ha_meet_go_window(go) <= window) && !ha_stop) {
        const bool late = ha_now_ns() - came >= patience;
        if (m->way->decides && (late || all_ready(m, window))) decide(m, window);
        else if (late) break;
        else nap(look_ns);
    }
    member = member && ha_meet_go_window(go) == window + 1;
    if (member) await_moment(base + ha_meet_go_ns(go));
    else say_of(m, HA_MEET_MEMBER, 0);
    const uint64_t began = ha_now_ns();
    say_of(m, HA_MEET_BEGAN_NS, began);
    return began - came;
}

bool ha_meet_lacks(struct ha_meet *m, uint64_t window)
{
    if (ha_meet_record(m->table, m->rank, window) < 0) return false;
    if (!m->enough_ns) {
        say_of(m, HA_MEET_ENOUGH, 1);
        m->enough_ns = ha_now_ns();
    }
    if (ha_stop || ha_now_ns() - m->enough_ns >= m->wait_ns) return false;
    for (size_t r = 0; r < m->ranks; r++) {
        const bool member = ha_meet_record(m->table, r, window) >= 0 && said(m, r, HA_MEET_AT) <= window;
        if (member && !said_of(m, r, window, HA_MEET_ENOUGH) && is_other(m, r)) return true;
    }
    return false;
}

struct ha_met ha_meet_end(const struct ha_meet *m, uint64_t window)
{
    uint64_t first = UINT64_MAX, last = 0;
    struct ha_met met = { 0, (double)NAN };
    const uint64_t unsure = atomic_load(&m->table->apart_ns);
    if (ha_meet_record(m->table, m->rank, window) < 0) return (struct ha_met){ 1, (double)NAN };
    for (size_t r = 0; r < m->ranks; r++) {
        const uint64_t began = said_of(m, r, window, HA_MEET_BEGAN_NS);
        if (!said_of(m, r, window, HA_MEET_ENOUGH)) continue;
        met.ranks++;
        if (began < first) first = began;
        if (began > last) last = began;
    }
    if (met.ranks > 1 && unsure != UINT64_MAX) met.apart_us = (double)(last - first + unsure) / 1e3;
    return met;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

void ha_meet_tell_device(struct ha_meet *m, const char *bus_id)
{
    unsigned domain, bus, device, function;
    if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) return;
    say(m, HA_MEET_DEVICE, 1 + ((uint64_t)domain << 16 | (bus & 0xff) << 8 | (device & 0x1f) << 3 | (function & 7)));
}

bool ha_meet_device(const struct ha_meet *m, size_t rank, char bus_id[32])
{
    const uint64_t at = said(m, rank, HA_MEET_DEVICE);
    if (!at) return false;
    snprintf(bus_id, 32, "%04x:%02x:%02x.%x", (unsigned)((at - 1) >> 16), (unsigned)((at - 1) >> 8 & 0xff),
             (unsigned)((at - 1) >> 3 & 0x1f), (unsigned)((at - 1) & 7));
    return true;
}

void ha_meet_tell_cores(struct ha_meet *m, int numa_node, int socket)
{
    say(m, HA_MEET_NUMA_NODE, (uint64_t)(numa_node + 1));
    say(m, HA_MEET_SOCKET, (uint64_t)(socket + 1));
}

void ha_meet_cores(const struct ha_meet *m, size_t rank, int *numa_node, int *socket)
{
    *numa_node = (int)said(m, rank, HA_MEET_NUMA_NODE) - 1;
    *socket = (int)said(m, rank, HA_MEET_SOCKET) - 1;
}
