#ifndef HA_BASE_THREAD_H
#define HA_BASE_THREAD_H

/* Threads whose stack does not depend on `ulimit -s`, and whether that of the program is enough. */

#include "harness/api/base.h"

#include <pthread.h>

enum { HA_THREAD_STACK_BYTES = 1 << 20, HA_STACK_LEAST_BYTES = 256 << 10 };

/* Signals are left to the threads that there are already. 0, or the errno of pthread_create. */
int ha_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);
/* For main, before anything else: HA_ERROR, with what to do, where the stack may not grow to HA_STACK_LEAST_BYTES. */
enum ha_status ha_stack_check(struct ha_why *why);

/* The calling thread sleeps for that long, or longer; 0 returns at once. */
void ha_sleep_ns(uint64_t ns);

#endif
