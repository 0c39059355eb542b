#ifndef HA_BENCH_H
#define HA_BENCH_H

/* How long a step takes, from untraced passes, and what runs in it, from traced ones; they
 * alternate, and with passes of the resident companion. Only after a check in this run. */

#include "suites/variants/check.h"
#include "harness/measure/condition.h"
#include "harness/measure/timeline.h"

struct ha_sample {
    const char *role; /* warmup, measure, traced, full */
    size_t block, iter;
    double step_ns, context_switches, page_faults;
};

struct ha_bench {
    /* in */
    struct ha_session *session;
    const struct ha_check *check;  /* that passed */
    const struct ha_variant *full; /* NULL: full_ns is known, or not wanted */
    const double *full_param;
    uint64_t time_cap_ns;
    enum ha_status (*sample)(void *arg, const struct ha_sample *s, struct ha_why *why);
    void *arg;
    /* out */
    double step_ns, lo_ns, hi_ns, full_ns;
    size_t samples, warmup_samples;
    bool warm;
    double context_switches, page_faults; /* sums over the samples */
    double perturb;
    struct ha_usage usage;       /* sum over the traced steps */
    struct ha_ratios ratios;     /* medians over them */
    struct ha_meter_count moved; /* over moved_steps steps */
    size_t moved_steps;
    struct ha_counters counters;   /* of the last untraced pass, over its steps */
    struct ha_timeline *timeline;  /* of the last traced pass, for trace.json */
    struct ha_interval traced;     /* its last step */
    size_t dropped;                /* spans, by the timeline and by the device */
    char source[32];               /* of the device's spans */
    struct ha_condition condition; /* over the untraced passes that count */
};

/* The fields under `out` are set; free them with ha_bench_free, also after a failure. HA_FAIL: a timed output
 * is not the checked one. */
enum ha_status ha_bench_run(struct ha_bench *bench, struct ha_why *why);
void ha_bench_free(struct ha_bench *bench);

/* Whether the last samples show no trend: the slope test that ends the warm-up. */
bool ha_bench_settled(const double *x, size_t count);
/* Whether the median is known well enough: 30 samples, its 95% interval within 1% of it. */
bool ha_bench_precise(const double *x, size_t count);

#endif
