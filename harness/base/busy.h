#ifndef HA_BASE_BUSY_H
#define HA_BASE_BUSY_H

/* Load on every core that the process may use, while something runs that must not depend on it: a thread for each,
 * which computes for a moment and sleeps for a while, so that other threads are held up at places of chance. */

#include "harness/api/base.h"

struct ha_busy;

enum ha_status ha_busy_start(struct ha_busy **busy, struct ha_why *why);
void ha_busy_stop(struct ha_busy *busy); /* NULL: nothing */

#endif
