#include "suites/link/measure.h"

#include "harness/base/clock.h"
#include "harness/base/stats.h"
#include "harness/base/stop.h"
#include "harness/base/try.h"
#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES_LEAST = 7, SAMPLES_MOST = 60 };
static const double interval_most = 0.02; /* half of it, of the median */

struct series {
    double x[SAMPLES_MOST];
    size_t count;
};

static bool precise(const struct series *s)
{
    double lo, hi;
    if (s->count < SAMPLES_LEAST) return false;
    if (s->count == SAMPLES_MOST) return true;
    ha_median_interval(s->x, s->count, &lo, &hi);
    return (hi - lo) / 2 <= interval_most * ha_median(s->x, s->count);
}

/* A failed device stays failed: who comes next gets another. */
static enum ha_status after_error(struct ha_link_group *g, struct ha_link_result *r, const struct ha_why *because,
                                  struct ha_why *why)
{
    r->state = HA_LINK_ERROR;
    memcpy(r->reason, because->text, sizeof r->reason);
    return g->bench->api->failure(g->bench->device) ? g->reopen(g->arg, why) : HA_OK;
}

static enum ha_status verify(struct ha_link_group *g, struct ha_link_result *r, struct ha_why *why)
{
    struct ha_why because = { "" };
    char text[512];
    const char *lacks = ha_link_method_lacks(r->point.method, g->bench, text);
    const struct ha_link_plan plan = ha_link_bench_plan(g->bench, r->point.method->pool, 0);
    r->pieces = plan.pieces;
    r->moved_bytes = plan.pieces * plan.piece_bytes;
    if (lacks) {
        r->state = HA_LINK_WAIVED;
        strcpy(r->reason, lacks);
        return HA_OK;
    }
    if (!g->checked) {
        r->state = HA_LINK_UNCHECKED;
        return HA_OK;
    }
    switch (ha_link_bench_verify(g->bench, r->point.method, 0, &r->verified_bytes, &because)) {
    case HA_OK: r->state = HA_LINK_CHECKED; return HA_OK;
    case HA_FAIL:
        r->state = HA_LINK_FAILED;
        memcpy(r->reason, because.text, sizeof r->reason);
        return HA_OK;
    default: return after_error(g, r, &because, why);
    }
}

static bool runs(const struct ha_link_result *r)
{
    return r->state == HA_LINK_CHECKED || r->state == HA_LINK_UNCHECKED;
}

/* A round: one sample of each, the first one another in each round. */
static enum ha_status measure_round(struct ha_link_group *g, struct series *series, size_t round, struct ha_why *why)
{
    for (size_t k = 0; k < g->count; k++) {
        const size_t i = (k + round) % g->count;
        struct ha_link_result *r = &g->result[i];
        struct ha_why because = { "" };
        if (!runs(r) || series[i].count == SAMPLES_MOST) continue;
        if (ha_stop) return HA_WAIVED;
        double *sample = &series[i].x[series[i].count];
        const enum ha_status status = ha_link_bench_time(g->bench, r->point.method, 1 + round * g->count + k, sample,
                                                         &because);
        if (status == HA_OK) series[i].count++;
        else HA_TRY(after_error(g, r, &because, why));
    }
    return HA_OK;
}

static bool enough(const struct ha_link_group *g, const struct series *series)
{
    for (size_t i = 0; i < g->count; i++)
        if (runs(&g->result[i]) && !precise(&series[i])) return false;
    return true;
}

static void conclude(const struct ha_link_group *g, struct ha_link_result *r, const struct series *s)
{
    r->samples = s->count;
    r->GBps = ha_median(s->x, s->count);
    ha_median_interval(s->x, s->count, &r->lo, &r->hi);
    r->least = ha_quantile(s->x, s->count, 0);
    r->most = ha_quantile(s->x, s->count, 1);
    r->share = r->GBps / g->ceiling_GBps;
    if (r->state == HA_LINK_CHECKED) r->state = HA_LINK_MEASURED;
}

static enum ha_status measure(struct ha_link_group *g, struct series *series, struct ha_why *why)
{
    const uint64_t begin = ha_now_ns();
    size_t rounds = 0;
    do {
        HA_TRY(measure_round(g, series, rounds++, why));
    } while (!enough(g, series) && (rounds < SAMPLES_LEAST || ha_now_ns() - begin < g->cap_ns)
             && ha_now_ns() - begin < 4 * g->cap_ns);
    for (size_t i = 0; i < g->count; i++)
        if (runs(&g->result[i])) conclude(g, &g->result[i], &series[i]);
    return HA_OK;
}

static enum ha_status run(struct ha_link_group *g, struct series *series, struct ha_why *why)
{
    for (size_t i = 0; i < g->count; i++) {
        if (ha_stop) return HA_WAIVED;
        HA_TRY(verify(g, &g->result[i], why));
    }
    return g->measure ? measure(g, series, why) : HA_OK;
}

enum ha_status ha_link_group_run(struct ha_link_group *g, struct ha_why *why)
{
    struct series *series = calloc(g->count, sizeof *series);
    if (!series) return ha_why(why, HA_ERROR, "link: out of memory");
    const enum ha_status status = run(g, series, why);
    for (size_t i = 0; i < g->count && status != HA_OK; i++)
        if (runs(&g->result[i])) g->result[i].state = HA_LINK_NOT_RUN;
    free(series);
    return status;
}
