#ifndef HA_KERNELS_CUDA_EMULATION_SIMT_CREW_H
#define HA_KERNELS_CUDA_EMULATION_SIMT_CREW_H

/* What runs the blocks of one launch: inside of simt.c, simt_warp.c, simt_mma.c and simt_report.c. */

#include "kernels/cuda/emulation/simt.h"
#include "kernels/cuda/emulation/simt_fiber.h"

enum { HA_CREW_WARPS = HA_EMULATED_BLOCK_MAX / HA_EMULATED_WARP };

/* what a thread waits at, on its stack */
struct ha_crew_wait {
    const struct ha_emulated_site *site;
    unsigned mask; /* of a warp operation; 0: the whole block */
};

/* a thread's copies to shared memory that have not landed, those of earlier groups first; the room stays */
struct ha_crew_copies {
    struct ha_crew_copy {
        struct ha_emulated_copy copy;
        unsigned group;
    } * list;
    unsigned first, count, room, groups;
};

struct ha_crew_thread {
    struct ha_fiber *fiber;          /* NULL: has not begun, or has returned */
    const struct ha_crew_wait *wait; /* NULL: does not */
    void *record;                    /* what it brings to a meeting */
    struct ha_crew_copies copies;
};

/* lanes of a warp at one operation */
struct ha_crew_meeting {
    const struct ha_emulated_site *site; /* the first comer's */
    unsigned mask, arrived;
};

struct ha_crew_warp {
    unsigned absent; /* lanes that have returned or do not exist */
    unsigned meetings_count;
    struct ha_crew_meeting meetings[HA_EMULATED_WARP];
};

struct ha_crew_order {
    enum { HA_CREW_FORWARD, HA_CREW_BACKWARD, HA_CREW_SHUFFLED } kind;
    uint64_t seed;
};

struct ha_crew {
    struct ha_crew *next;            /* while idle */
    struct ha_emulated_place *place; /* of the thread that runs the launch */
    struct ha_emulated_kernel kernel;
    const void *args;
    struct ha_crew_order order; /* the seed moves on */
    bool watched;               /* by ThreadSanitizer */
    bool flat;                  /* a block of one dimension */

    /* of the block */
    unsigned threads_count, returned, current, pauses;
    unsigned runnable_first, runnable_count;
    unsigned waiting, yes; /* at the barrier */
    unsigned votes;        /* of the last barrier, those that were true */
    unsigned barriers;     /* so many have been passed */
    char passed[2];        /* by turns what a barrier orders by: a thread may be at the next one before others go on */
    const struct ha_emulated_site *barrier;
    struct ha_emulated_site shared_where;
    void *shared;
    size_t shared_bytes;

    struct ha_fiber host;
    unsigned fibers_count, idle_count;
    uint16_t runnable[HA_EMULATED_BLOCK_MAX]; /* a ring; the last one is next */
    struct ha_fiber *idle[HA_EMULATED_BLOCK_MAX];
    struct ha_crew_thread threads[HA_EMULATED_BLOCK_MAX];
    struct ha_crew_warp warps[HA_CREW_WARPS];
    struct ha_fiber fibers[HA_EMULATED_BLOCK_MAX];
};

/* Lets another thread run, the current one being in `runnable` or waited for; returns when its turn has come again. */
void ha_crew_step(struct ha_crew *crew);
/* Threads first.. first + 31 in mask, as many as wanted: runnable again, in the order of the launch. */
void ha_crew_release(struct ha_crew *crew, unsigned first, unsigned mask);
bool ha_crew_same_site(const struct ha_emulated_site *a, const struct ha_emulated_site *b);

/* the work of a meeting, for all lanes in mask at once; records[lane] is theirs */
typedef void ha_crew_join(const struct ha_crew *crew, const struct ha_emulated_site *site, unsigned mask,
                          void *const records[]);

/* ---- simt_mma.c */
struct ha_crew_fragments {
    float *c;
    const float *a, *b;
};
ha_crew_join ha_crew_mma;

/* ---- simt_report.c: the end of the process. site may be NULL. */
__attribute__((noreturn, format(printf, 3, 4))) void ha_crew_stop(const struct ha_crew *crew,
                                                                  const struct ha_emulated_site *site,
                                                                  const char *format, ...);
uint3 ha_crew_index(const struct ha_crew *crew, unsigned thread);

#endif
