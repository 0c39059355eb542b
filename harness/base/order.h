#ifndef HA_BASE_ORDER_H
#define HA_BASE_ORDER_H

/* Is what touches the same bytes ordered? A history has actors, streams and host threads, each of which does one thing
 * after the other, and edges between them. Of every byte of the memory that it knows it keeps who wrote it last and who
 * has read it since, with vector clocks (Lamport 1978; Flanagan and Freund 2009, FastTrack). Two accesses, one of them
 * a write, that no path of edges orders are a conflict, whenever they happened to run: what is found does not depend on
 * time. Any thread may call any of it. docs/order.md */

#include "harness/api/base.h"

struct ha_order;

enum { HA_ORDER_ACTORS = 64, HA_ORDER_TEXT = 480 }; /* at a time; a conflict in words */
#define HA_ORDER_NONE SIZE_MAX

enum ha_access { HA_READ, HA_WRITE };

/* Rows of bytes, stride apart. bytes = SIZE_MAX: the whole of the allocation that at lies in. */
struct ha_range {
    const void *at;
    size_t rows, stride, bytes;
};

/* ---- a history --------------------------------------------------------------------------------------------------- */

enum ha_status ha_order_create(struct ha_order **order, struct ha_why *why);
void ha_order_destroy(struct ha_order *order);

/* A new actor: "main" of the streams, of the threads. The name is copied. */
size_t ha_order_actor(struct ha_order *order, const char *name, bool is_thread);
/* It is over, and by has waited for it; the next actor may take its place. */
void ha_order_retire(struct ha_order *order, size_t actor, size_t by);
/* What actor does from now on is behind all that other has done. */
void ha_order_follow(struct ha_order *order, size_t actor, size_t other);
void ha_order_follow_threads(struct ha_order *order, size_t actor);
/* What actor has done so far is behind the key: an event, whose latest record counts (value 0), or one of the values of
 * a flag or a queue. */
void ha_order_signal(struct ha_order *order, size_t actor, const void *key, uint64_t value);
/* What actor does from now on is behind that; of values, behind what all that are not below have in common. false:
 * there is no such signal, and nothing is ordered. */
bool ha_order_await(struct ha_order *order, size_t actor, const void *key, uint64_t value);
void ha_order_drop(struct ha_order *order, const void *key);
/* It waits for what nobody has seen: nothing is known of its accesses until somebody waits for it (known). */
void ha_order_unknown(struct ha_order *order, size_t actor, bool unknown);

/* Only memory that is known is watched. kind is static: "device", "pinned". */
void ha_order_memory(struct ha_order *order, const char *kind, const void *ptr, size_t bytes);
/* freed by actor, which is a conflict with whatever is not ordered before it */
void ha_order_freed(struct ha_order *order, size_t actor, const void *ptr);
/* name of the operation and role of the range are static: "merge", "o". */
void ha_order_access(struct ha_order *order, size_t actor, const char *name, const char *role, enum ha_access access,
                     struct ha_range range);
/* What may be read through an index whose numbers nobody knows yet is the whole allocation, unless it has been said
 * which bytes of it an index may name: from the first of these calls on those alone. NULL: what was said before is no
 * more. Whoever says so keeps other bytes out of the index; numbers that are wrong show in what is computed. */
void ha_order_names(struct ha_order *order, const void *memory, const struct ha_range *range);
/* the step and layer that the words of a conflict name from now on; SIZE_MAX: neither */
void ha_order_at(struct ha_order *order, size_t step, size_t layer);

/* HA_FAIL, and the first conflict in words. */
enum ha_status ha_order_verdict(struct ha_order *order, struct ha_why *why);

/* ---- the history of this process, if there is one ---------------------------------------------------------------- */

/* From begin to end, by one thread at a time; what follows does nothing without. */
enum ha_status ha_order_begin(struct ha_why *why);
void ha_order_end(void);
struct ha_order *ha_order_now(void);
/* the actor that the calling thread is, or stands for */
size_t ha_order_self(struct ha_order *order);

/* Threads of a pool stand for the one that called: what they do in one run is not told apart. */
struct ha_order_identity {
    uint64_t history;
    size_t actor;
};
struct ha_order_identity ha_order_identity(void);
/* what it was before */
struct ha_order_identity ha_order_stand_for(struct ha_order_identity who);

/* Of the calling thread: what a queue between threads orders, and what plain code reads and writes. */
void ha_order_thread_signal(const void *key, uint64_t value);
void ha_order_thread_await(const void *key, uint64_t value);
void ha_order_thread_memory(const void *ptr, size_t bytes);
void ha_order_thread_freed(const void *ptr);
void ha_order_thread_access(const char *name, const char *role, enum ha_access access, const void *at, size_t rows,
                            size_t stride, size_t bytes);
void ha_order_thread_names(const void *memory, const struct ha_range *range);

#endif
