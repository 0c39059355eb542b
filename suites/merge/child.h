#ifndef HA_MERGE_CHILD_H
#define HA_MERGE_CHILD_H

/* A process for code that is not ours: it may crash, hang or write where it likes, and the program goes on.
 * Parent and child share one block of memory, at the same address in both. */

#include "suites/merge/batch.h"

struct ha_child;

/* serve runs in the child, for each call, on a thread that has never been in an OpenMP team of the parent: arg lies in
 * the room. What it writes to why is handed over. */
struct ha_child_work {
    enum ha_status (*serve)(void *self, void *arg, struct ha_why *why);
    void *self;        /* as it was when the child began */
    uint64_t limit_ns; /* of one call; half as much after each that never answered, down to an eighth */
};
/* The child begins with the first call, and anew after it died. It dies with the thread that made that call.
 * room_bytes: reserved, not touched. */
enum ha_status ha_child_create(struct ha_child **child, const struct ha_child_work *work, size_t room_bytes,
                               struct ha_why *why);
struct ha_room ha_child_room(const struct ha_child *child);
/* What serve returned; HA_ERROR with what happened: "killed by SIGSEGV: wrote 12 bytes past the end of out o",
 * "no answer in 10 s", "exited with 3", and why has room for no more than that. pieces (by name) may be NULL; during
 * the call nothing in the room can be written but the pieces that are `written`, and no guard can be touched. Once
 * calls in a row have lost two limits by dying, few are tried any more. */
enum ha_status ha_child_call(struct ha_child *child, void *arg, const struct ha_piece *pieces, const char *const *names,
                             size_t count, struct ha_why *why);
/* The next call begins with a new process. */
void ha_child_end(struct ha_child *child);
void ha_child_destroy(struct ha_child *child);

#endif
