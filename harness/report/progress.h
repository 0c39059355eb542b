#ifndef HA_PROGRESS_H
#define HA_PROGRESS_H

#include "harness/api/base.h"

/* One line on stderr that is drawn over: which case of how many, what it does, time left. */
struct ha_progress {
    bool on;
    size_t cases, done;
    uint64_t begin_ns, drawn_ns;
};

void ha_progress_start(struct ha_progress *p, bool on, size_t cases);
void ha_progress_case(struct ha_progress *p, const char *id);
void ha_progress_done(struct ha_progress *p);
void ha_progress_end(struct ha_progress *p);

#endif
