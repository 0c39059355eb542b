#ifndef HA_BENCH_H
#define HA_BENCH_H

/* How long a step takes, from untraced passes, and what runs in it, from traced ones; they
 * alternate, and with passes of the resident companion. Only after a check in this run. */

#include "suites/variants/check.h"
#include "suites/variants/evidence.h"
#include "harness/measure/ceilings.h"
#include "harness/measure/condition.h"
#include "harness/measure/disturbed.h"
#include "harness/measure/timeline.h"

/* A pass (role warmup, measure, traced or full): the mean of its steps but the first; or a single step (role step) of
 * a pass that is measured. */
struct ha_sample {
    const char *role;
    size_t block;
    double iter; /* the step; NaN: a pass */
    double step_ns;
    double context_switches, page_faults; /* of the whole pass, first step included; NaN: a step */
};

struct ha_bench {
    /* in */
    struct ha_session *session;
    const struct ha_check *check;       /* that passed */
    const struct ha_ceilings *ceilings; /* of this device; NULL: not known */
    const struct ha_variant *full;      /* without options; NULL: full_ns is known, or not wanted */
    uint64_t time_cap_ns;
    const struct ha_meeting *meeting; /* NULL: nobody else measures */
    void (*sample)(void *arg, const struct ha_sample *s);
    void *arg;
    /* out: zeroed by the caller */
    double step_ns, lo_ns, hi_ns, full_ns; /* lo, hi: NaN of too few passes for an interval */
    size_t samples, warmup_samples;        /* passes */
    bool warm;
    double context_switches, page_faults; /* sums over the samples */
    double perturb;
    struct ha_usage usage;       /* sum over the windows of traced passes */
    size_t traced_steps;         /* in them */
    struct ha_ratios ratios;     /* medians over them */
    struct ha_meter_count moved; /* over moved_steps steps */
    size_t moved_steps;
    struct ha_counters counters;       /* of the last untraced pass, over its steps */
    struct ha_counted counted;         /* the same */
    struct ha_timeline *timeline;      /* of the last traced pass, for trace.json */
    struct ha_interval traced;         /* its last step */
    size_t dropped;                    /* spans, by the timeline and by the device */
    char source[32];                   /* of the device's spans */
    struct ha_condition condition;     /* over the untraced passes that count */
    char disturbed[HA_DISTURBED_MAX];  /* while passes were measured */
    struct ha_disturbed_shares shares; /* the same in numbers */
    struct ha_footprint footprint;
};

/* Free what is under `out` with ha_bench_free, also after a failure. HA_FAIL: a timed output is not the checked one. */
enum ha_status ha_bench_run(struct ha_bench *bench, struct ha_why *why);
void ha_bench_free(struct ha_bench *bench);

/* Whether the last passes show no trend: the slope test that ends the warm-up. */
bool ha_bench_settled(const double *x, size_t count);
/* Whether the median of passes, each the mean of so many steps, is known well enough: 10 passes and 30 steps, its 95%
 * interval within 1% of it. */
bool ha_bench_precise(const double *x, size_t count, size_t steps);
/* The 95% interval of a median; NaN for less than 6 passes, which have none. */
void ha_bench_interval(const double *x, size_t count, double *lo, double *hi);

#endif
