#ifndef HA_LINK_BENCH_H
#define HA_LINK_BENCH_H

/* What the link suite moves: a large source on the host, in each kind of its memory, and room for one move on the
 * device. */

#include "harness/api/device.h"
#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/pool.h"

enum ha_link_pool { HA_LINK_PAGEABLE, HA_LINK_PINNED, HA_LINK_MAPPED };
enum { HA_LINK_POOLS = 3, HA_LINK_TEAMS = 4 };

/* Powers of two, but for cores. */
struct ha_link_limits {
    size_t source_bytes; /* much larger than the caches */
    size_t move_bytes;   /* of one move, at most: that of the largest piece, or more */
    size_t pieces;       /* of one move, at most */
    size_t cores;        /* that CPU threads may use; 0: all that the process may */
};

/* One move. Piece i lies at host + slot[i] * piece_bytes and at memory + i * piece_bytes of the device. */
struct ha_link_plan {
    char *host;
    const uint32_t *slot;        /* [pieces] */
    const uint32_t *device_slot; /* the same in device memory; NULL: consecutive slots */
    size_t pieces, piece_bytes;
};

struct ha_link_bench {
    const struct ha_device_api *api;
    struct ha_device *device;
    struct ha_stream *stream;
    struct ha_arena *arena;
    struct ha_device_arena *device_arena;
    struct ha_pool *team[HA_LINK_TEAMS]; /* of 1, 2, 4 and all threads; NULL until it is asked for */
    struct ha_link_limits limits;
    size_t cores;
    char *source[HA_LINK_POOLS];         /* mapped: or NULL */
    char *memory;                        /* device: [move_bytes] */
    char *window;                        /* memory, where CPU stores reach it, or NULL */
    char no_mapped[256], no_window[256]; /* why not */
    char *staging, *check;               /* pinned: [move_bytes] */
    uint32_t *slot, *device_slot;        /* [slots of the smallest piece] */
    struct {
        void **dst;
        const void **src;
        size_t *bytes;
    } list;                    /* for copy_pieces: [limits.pieces] */
    size_t slots, piece_bytes; /* as ha_link_bench_lay has laid them out */
    bool scattered;
    size_t fills; /* of moves that were verified: each is of other bytes */
};

/* The ways to move pieces of host memory to the device and back. On the device they lie dense, one after the other; on
 * the host, each in a slot of a large source. A further one is a function and a line in the table. */

/* besides mapped memory where `pool` is that */
enum { HA_LINK_NEEDS_PIECES = 1, HA_LINK_NEEDS_MOVE = 2, HA_LINK_NEEDS_WINDOW = 4 };
enum { HA_LINK_ALL = 1u << 30 }; /* threads: as many as the process has cores */

struct ha_link_method {
    const char *name, *doc;
    enum ha_direction dir;
    enum ha_link_pool pool; /* of the host side */
    unsigned threads;       /* of the CPU that move the bytes, 0: none does */
    unsigned needs;
    /* Returns when every byte has arrived. An error is one of the device. */
    enum ha_status (*move)(struct ha_link_bench *bench, const struct ha_link_method *method,
                           const struct ha_link_plan *plan);
};
extern const struct ha_link_method ha_link_methods[];
extern const size_t ha_link_methods_count;
const struct ha_link_method *ha_link_method_find(const char *name);
/* NULL, or why this method cannot be had on this machine; text: room for it */
const char *ha_link_method_lacks(const struct ha_link_method *method, const struct ha_link_bench *bench,
                                 char text[512]);

enum { HA_LINK_PIECE_LEAST = 256 };

/* On failure what was opened is closed. */
enum ha_status ha_link_bench_open(struct ha_link_bench *bench, const struct ha_device_api *api,
                                  struct ha_device *device, const struct ha_link_limits *limits, struct ha_why *why);
void ha_link_bench_close(struct ha_link_bench *bench);

/* From now on moves are of pieces of that size: neighbours, or in the order of a random permutation of all slots. */
enum ha_status ha_link_bench_lay(struct ha_link_bench *bench, size_t piece_bytes, bool scattered, uint64_t seed,
                                 struct ha_why *why);
/* Move `turn`: each goes on in the source where the one before it ended, so that none finds its bytes in a cache. */
struct ha_link_plan ha_link_bench_plan(const struct ha_link_bench *bench, enum ha_link_pool pool, size_t turn);

/* The threads of a method: its team, awake, or NULL and why. */
struct ha_pool *ha_link_bench_team(struct ha_link_bench *bench, size_t threads, struct ha_why *why);

/* One move into poisoned memory, which is then compared with where the bytes came from. HA_FAIL: they are wrong. */
enum ha_status ha_link_bench_verify(struct ha_link_bench *bench, const struct ha_link_method *method, size_t turn,
                                    size_t *verified_bytes, struct ha_why *why);
/* One move, timed: GB/s. */
enum ha_status ha_link_bench_time(struct ha_link_bench *bench, const struct ha_link_method *method, size_t turn,
                                  double *GBps, struct ha_why *why);

#endif
