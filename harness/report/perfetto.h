#ifndef HA_PERFETTO_H
#define HA_PERFETTO_H

/* OUT/trace.json: one traced step of each case for Perfetto or chrome://tracing. A case is a
 * process; its lanes are the step itself, the streams, the link each way, the CPU workers, the background
 * worker and the launch thread, all on one clock, so that the ratios of that step can be had from the
 * file alone. The file is complete after every case. */

#include "harness/measure/timeline.h"

struct ha_perfetto;

/* A file that is there is replaced. */
enum ha_status ha_perfetto_open(struct ha_perfetto **file, const char *path, struct ha_why *why);
/* the spans that touch the window, times from its begin */
enum ha_status ha_perfetto_case(struct ha_perfetto *trace, const char *id, const struct ha_timeline *timeline,
                                struct ha_interval window, struct ha_why *why);
enum ha_status ha_perfetto_close(struct ha_perfetto *trace, struct ha_why *why);

#endif
