#ifndef HA_FLEET_MEET_H
#define HA_FLEET_MEET_H

/* Ranks that measure at once, or one after another while the others wait.
 *
 * What they do has numbers, windows, that ascend: each rank comes to them in that order, and passes those in which it
 * has nothing to do. Nobody waits for a rank whose process has ended, nor longer than it was told for one that hangs:
 * those that are there go on, and what they measure says how many there were. All of these functions may be called by
 * processes forked after the opening, of which one at a time speaks for the rank. */

#include "harness/api/base.h"

enum { HA_MEET_RANKS_MOST = 65536 };
#define HA_MEET_WINDOWS_MAX ((UINT64_C(1) << 24) - 2)

struct ha_meet;

/* How ranks know of each other. */
struct ha_meet_way {
    /* folder and job: of node. wait_ns: how long a rank is waited for, here and later. HA_ERROR: they cannot meet. */
    enum ha_status (*open)(struct ha_meet *meet, const char *folder, const char *job, struct ha_why *why);
    bool (*present)(const struct ha_meet *meet, size_t rank); /* its process has not ended; not of this one */
    bool decides;                                             /* the ranks themselves say when a window begins */
};
/* `node`: those of one host, by a file of this user and job in the folder (NULL: /dev/shm), which is gone once all of
 * them have come; a process that has ended has let go of its lock in it, however it ended. `all`: those of an MPI job,
 * each started by habench_meet (meet_mpi.c), which passes an open table on: $HABENCH_MEET is its descriptor. */
extern const struct ha_meet_way ha_meet_node, ha_meet_all;

/* Waits until all ranks have come, wait_ns at most. HA_ERROR also: another process has this rank. */
enum ha_status ha_meet_open(struct ha_meet **meet, const struct ha_meet_way *way, const char *folder, const char *job,
                            size_t rank, size_t ranks, uint64_t wait_ns, struct ha_why *why);
void ha_meet_close(struct ha_meet *meet); /* NULL: nothing */

size_t ha_meet_rank(const struct ha_meet *meet);
size_t ha_meet_ranks(const struct ha_meet *meet);
uint64_t ha_meet_wait_ns(const struct ha_meet *meet);

/* This rank has nothing to do with windows below this one. */
void ha_meet_pass(struct ha_meet *meet, uint64_t window);
/* Waits until nobody else has to do with a window below this one. false: ha_stop is set, or others, which have not
 * ended, did not move for stuck_ns. */
bool ha_meet_turn(struct ha_meet *meet, uint64_t window, uint64_t stuck_ns);
/* As ha_meet_turn, of ranks that run what has this digest. HA_ERROR: one of them runs something else. */
enum ha_status ha_meet_agree(struct ha_meet *meet, uint64_t window, uint64_t digest, uint64_t stuck_ns,
                             struct ha_why *why);

/* Waits until all others are ready for this window or have passed it, then for the moment at which all of them begin
 * it. At once where they have begun without this rank. What it took, ns. */
uint64_t ha_meet_begin(struct ha_meet *meet, uint64_t window);
/* This rank has what it wants of the window. Is there one that began it with this one and has not? Not longer than
 * ha_meet_wait_ns. */
bool ha_meet_lacks(struct ha_meet *meet, uint64_t window);
/* How many measured the window at once from its beginning until each of them had enough, this one too, and how far
 * apart they began at most; NaN: of one alone, or of clocks that cannot be compared. After ha_meet_lacks. */
struct ha_met {
    size_t ranks;
    double apart_us;
};
struct ha_met ha_meet_end(const struct ha_meet *meet, uint64_t window);

/* Where the device of this rank is, "0000:3b:00.0", for the others to know; of another rank: false: none is known. */
void ha_meet_tell_device(struct ha_meet *meet, const char *bus_id);
bool ha_meet_device(const struct ha_meet *meet, size_t rank, char bus_id[32]);
/* The memory and the socket of its cores, by the system's numbers; -1: several, or not told. */
void ha_meet_tell_cores(struct ha_meet *meet, int numa_node, int socket);
void ha_meet_cores(const struct ha_meet *meet, size_t rank, int *numa_node, int *socket);

#endif
