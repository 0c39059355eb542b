#ifndef HA_PERFETTO_H
#define HA_PERFETTO_H

/* trace.json: one traced step of each case for Perfetto or chrome://tracing. A case is a process; its lanes are the
 * step itself, the streams, the link each way, the CPU workers, the background worker and the launch thread, all on one
 * clock, so that the ratios of that step can be had from the file alone. */

#include "harness/measure/timeline.h"

/* The spans that touch the window, times from its begin, as events joined by commas (ha_folder_trace takes them). The
 * caller frees *out. */
enum ha_status ha_perfetto_events(char **out, size_t *bytes, const struct ha_timeline *timeline,
                                  struct ha_interval window, struct ha_why *why);

#endif
