#ifndef HA_FAULTS_H
#define HA_FAULTS_H

/* What timing may do and never must: before an operation that a variant enqueues its stream pauses now and then, and
 * before a call, a task of the pool or a job of the background the thread that makes or runs it. All of it is allowed,
 * at any time, on any machine; results must be the same. (What memory holds before it is written is anything in every
 * pass that is checked: session.h, ha_device_arena_fill.) */

#include "harness/api/device.h"

struct ha_pool;
struct ha_worker;

/* Operations that are NULL stay so. One stream at a time is slow and pauses before
 * each operation, by spin or by a host function that sleeps, of those that the device has the one that is drawn; which
 * one it is changes, as do delays, with the number of operations so far, of all threads. Valid until the next call,
 * with which all sequences begin anew. */
const struct ha_device_api *ha_faults_wrap(const struct ha_device_api *api, uint64_t seed);
/* The tasks and jobs of these, too, from the seed of the last wrap; they are to end before the next. */
void ha_faults_delay(struct ha_pool *pool, struct ha_worker *worker);

#endif
