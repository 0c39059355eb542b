#ifndef HA_ENGINE_CHILD_H
#define HA_ENGINE_CHILD_H

/* A process for code that is not ours: it may crash, hang or write where it likes, and the program goes on.
 * Parent and child share one block of memory, at the same address in both. */

#include "harness/api/base.h"

#include <signal.h>
#include <sys/types.h>

/* ---- processes (process.c) --------------------------------------------------------------------------------------- */

/* Processes that run what is not ours: each leads a group of its own, so that what it starts ends with it. That is for
 * ha_process_end to do: where the program itself is killed (SIGKILL) the kernel ends such a process, as its parent is
 * gone, and nobody is left to end what that has started in turn. One that is kept (ha_process_keep) leaves nothing in
 * either case. */
enum { HA_PROCESS_SLICE_MS = 20 }; /* how often one that waits looks up: is it dead, is it time, was Ctrl-C pressed? */

/* First of all in the child: it leads its group, dies with its parent, takes signals as any program does, reads nothing
 * and prints where the errors go. Async-signal-safe. */
void ha_process_settle(pid_t parent);
/* In a child that has settled: goes on in a child of its own, which has settled. The first one stays until that has
 * ended, until SIGTERM, or until its parent is gone; then it kills every descendant, also one that has left group and
 * session, and ends with the status of the second, 128 + the signal of one that was killed. Async-signal-safe. */
void ha_process_keep(void);
/* Has it ended? It stays to be reaped by ha_process_end. */
bool ha_process_gone(pid_t pid, siginfo_t *how);
/* Kills what is left of the group and reaps its leader; of one that is kept, every descendant. */
void ha_process_end(pid_t pid);
void ha_process_end_kept(pid_t pid);
/* "exited with 3", "killed by SIGSEGV" */
struct ha_process_text {
    char text[64];
};
struct ha_process_text ha_process_text(const siginfo_t *how);

/* ---- a process that is called ------------------------------------------------------------------------------------ */

/* A block of memory: of this process, or shared with one that runs what is not ours. */
struct ha_room {
    unsigned char *base; /* page aligned */
    size_t bytes;
};

/* A buffer in a room: it starts 64-byte aligned and ends less than 64 bytes before `guard`, a page of its own that
 * nobody may touch. */
enum { HA_ROOM_PAGE = 4096 };
struct ha_piece {
    unsigned char *at, *guard;
    size_t bytes;
    bool written; /* the code that is not ours may write here */
};

struct ha_child;

/* serve runs in the child, for each call, on a thread that has never been in an OpenMP team of the parent: arg lies in
 * the room. What it writes to why is handed over. */
struct ha_child_work {
    enum ha_status (*serve)(void *self, void *arg, struct ha_why *why);
    void (*end)(void *self); /* in the child, at ha_child_close; NULL: nothing is to be done then */
    void *self;              /* as it was when the child began */
    uint64_t limit_ns;       /* of one call; UINT64_MAX: none */
    /* What serve says by ha_child_say, in the parent, in order, before its answer; NULL: nothing is said. */
    void (*hear)(void *arg, unsigned kind, const void *bytes, size_t size);
    void *arg;
    /* It is our own code: serve runs on the thread that forked, where the parent has no other and no OpenMP team, and
     * SIGTERM asks it to stop before it is killed: when ha_stop is set, or the time to stop has come. */
    bool ours;
};
/* The child begins with the first call, and anew after it died. It dies with the thread that made that call.
 * room_bytes: reserved, not touched. */
enum ha_status ha_child_create(struct ha_child **child, const struct ha_child_work *work, size_t room_bytes,
                               struct ha_why *why);
struct ha_room ha_child_room(const struct ha_child *child);
/* What serve returned; HA_ERROR with what happened: "killed by SIGSEGV: wrote 12 bytes past the end of out o", "no
 * answer in 10 s", "exited with 3". pieces (by name) may be NULL; during the call nothing in the room can be written
 * but the pieces that are `written`, and no guard can be touched. */
enum ha_status ha_child_call(struct ha_child *child, void *arg, const struct ha_piece *pieces, const char *const *names,
                             size_t count, struct ha_why *why);
/* Has the process died since its last answer? Then how says of what, and the next call begins with a new one; a call
 * without this question returns HA_ERROR with the same words. */
bool ha_child_died(struct ha_child *child, struct ha_why *how);
/* In the child, during serve: a message to the parent. Messages arrive whole, or not at all where the child dies. */
void ha_child_say(unsigned kind, const void *bytes, size_t size);
/* How much later messages come than the quickest of all since the call: single ones are late where a process was held
 * up, all of them, and ever more, where the clock of the child is slow. Zeroed at the call. */
enum { HA_LAG_PERIODS = 16, HA_LAG_PERIOD_NS = 125000000 };
struct ha_lag {
    uint64_t last_ns;  /* the last message */
    uint64_t usual_ns; /* the quickest one of the last two seconds */
    size_t periods;    /* of these, those in which messages came */
    uint64_t least_ns; /* of all, between being said and being heard, and 1 */
    struct {
        uint64_t period, ns; /* from 1 on; the least of its messages */
    } of[HA_LAG_PERIODS];
};
/* of a message that was said its_ns after the call, by the clock of the child, and heard ours_ns after it */
void ha_lag_add(struct ha_lag *lag, uint64_t its_ns, uint64_t ours_ns);
/* In the parent, in `hear`: how long after the call the child said the message, by its clock, and how long after the
 * call the parent heard it, by ours. They differ by the time that the process took to begin, and the message to come,
 * and deaf_ns at most: the parent did not listen for so long since the call, as it was stopped, or wrote. */
struct ha_child_clocks {
    uint64_t its_ns, ours_ns, deaf_ns;
    struct ha_lag lag;
};
struct ha_child_clocks ha_child_clocks(const struct ha_child *child);
/* The limit of calls from now on, and when, by ha_now_ns, a child of our own code is asked to stop (0: never). */
void ha_child_limit(struct ha_child *child, uint64_t limit_ns, uint64_t stop_ns);
/* It is killed; the next call begins with a new process. */
void ha_child_end(struct ha_child *child);
/* The same for one that is to end by itself, in order: HA_ERROR: it died of something else; HA_FAIL: after 2 s it had
 * not ended, and was killed. how says of what, or that. */
enum ha_status ha_child_close(struct ha_child *child, struct ha_why *how);
void ha_child_destroy(struct ha_child *child);

#endif
