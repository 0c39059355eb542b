#ifndef HA_PROGRESS_H
#define HA_PROGRESS_H

#include "harness/api/base.h"

#include <stdio.h>

/* Which case of how many, and the time left. On a terminal one line that is drawn over, else a line for a case, at most
 * every ten seconds. */
struct ha_progress {
    bool on, terminal;
    FILE *out;
    size_t cases, done;
    uint64_t begin_ns, drawn_ns;
    uint64_t (*now_ns)(void);
};

/* on stderr; cases: those that are to run now */
void ha_progress_start(struct ha_progress *p, bool on, size_t cases);
/* a case begins, or is further than it was */
void ha_progress_case(struct ha_progress *p, const char *id);
void ha_progress_done(struct ha_progress *p);
/* what is logged next begins on a clean line */
void ha_progress_end(struct ha_progress *p);
/* for tests: to a file, by another clock */
void ha_progress_start_on(struct ha_progress *p, FILE *out, bool terminal, size_t cases, uint64_t (*now_ns)(void));

#endif
