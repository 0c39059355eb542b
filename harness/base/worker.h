#ifndef HA_BASE_WORKER_H
#define HA_BASE_WORKER_H

#include "harness/api/device.h"

/* One background thread with an in-order queue, for work off the critical path. */

struct ha_worker;
struct ha_delays; /* harness/base/delays.h */

enum ha_status ha_worker_create(struct ha_worker **worker, struct ha_why *why);
/* Queues fn(arg) and returns its ticket (1, 2, ...). Blocks only while 1024 jobs are queued. */
uint64_t ha_worker_submit(struct ha_worker *worker, const char *name, void (*fn)(void *arg), void *arg);
/* Returns when the job with this ticket, and so every earlier one, is done; 0 returns at once. */
void ha_worker_wait(struct ha_worker *worker, uint64_t ticket);
/* Spans (HA_SPAN_CPU, lane "background", cut where a job stores: harness/base/stores.h) go to sink; NULL ends it. */
void ha_worker_trace(struct ha_worker *worker, const struct ha_span_sink *sink);
/* Before each job the thread sleeps as long as is drawn; NULL ends it. */
void ha_worker_delay(struct ha_worker *worker, struct ha_delays *delays);
void ha_worker_destroy(struct ha_worker *worker); /* finishes the queue */

#endif
