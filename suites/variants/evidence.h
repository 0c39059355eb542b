#ifndef HA_EVIDENCE_H
#define HA_EVIDENCE_H

/* What passes show beside their times, by which a device is found whose times are not to be believed (docs/cheats.md).
 */

#include "harness/measure/sampling.h"
#include "suites/variants/session.h"

struct ha_evidence {
    struct ha_series read_first, read_again; /* how long the outputs of a pass took, in ns */
    struct ha_series upload, inputs_back;    /* how long its inputs took there, and back; in ns */
    struct ha_series first_step;             /* until its stamp; in ns */
    struct ha_series unexplained;            /* ha_spans_judge, of traced passes */
    size_t contradicted, traced;             /* passes whose spans contradict what was asked for; traced ones in all */
    bool busy_host;                      /* how long anything takes may be the doing of others, or of an emulation */
    struct ha_why contradiction;         /* of the last one */
    struct ha_series pace, pace_between; /* ticks by ns of the clock, in passes and between them */
    struct ha_series cpu, cpu_after;     /* cores in use in a pass, and when it is over */
    struct ha_moment {
        uint64_t ns, ticks, cpu_ns; /* the clock, the counter of the CPU, CPU time of the process */
    } at;                           /* when the pass at hand began, or the last one ended */
    double memory_bytes;            /* in use when the measurement began */
    struct ha_link {
        double up_GBps, down_GBps, launch_ns;
    } link; /* the ceilings of the link, and of a launch; NaN, 0: not measured */
};

/* Around the measurement, and around each of its passes that is timed. */
void ha_evidence_begin(struct ha_evidence *e, const struct ha_session *session);
enum ha_status ha_evidence_pass_begin(struct ha_evidence *e, struct ha_why *why);
enum ha_status ha_evidence_pass_end(struct ha_evidence *e, struct ha_why *why);
/* When the outputs of a pass have been read and nothing is asked of the device: waits for some milliseconds, of the
 * first few passes. */
enum ha_status ha_evidence_rest(struct ha_evidence *e, struct ha_why *why);

/* What is asked of the process while the measurement goes on. */
struct ha_footprint {
    double process_threads, process_cpu, process_cpu_after; /* how many; cores in use in a pass, when it is over */
    double memory_grown_bytes; /* memory in use since ha_evidence_begin: of the device; of one that computes on the
                                * host, of the process */
    double judged_by_time;     /* 1: how long things took was evidence; 0: not, on a busy host */
};
struct ha_footprint ha_evidence_footprint(const struct ha_evidence *e, const struct ha_session *session);

/* When the instances of the variant are gone. HA_FAIL: the times are not to be believed. pass_ns: of a pass that is
 * timed; alone_ns: of its first step by itself, 0: not known. */
enum ha_status ha_evidence_judge(const struct ha_evidence *e, const struct ha_session *session, const char *id,
                                 double pass_ns, double alone_ns, struct ha_why *why);
void ha_evidence_free(struct ha_evidence *e);

#endif
