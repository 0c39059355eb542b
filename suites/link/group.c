#include "suites/link/group.h"

#include "harness/base/clock.h"
#include "harness/base/stats.h"
#include "harness/base/stop.h"
#include "harness/base/try.h"
#include "harness/base/why.h"
#include "harness/measure/sampling.h"
#include "harness/report/verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct ha_sampling rule = { .least = 7, .most = 60, .interval = 0.02 };
static const uint64_t cap_most_ns = 600000000; /* of measuring a group */

static const struct ha_link_method *method_of(const struct ha_group *g, size_t i)
{
    return &ha_link_methods[((const struct ha_link_point *)g->point[i])->method];
}

/* A failed device stays failed: what comes next gets another. */
static enum ha_status after_error(const struct ha_link_turns *t, struct ha_group *g, size_t i,
                                  const struct ha_why *because, struct ha_why *why)
{
    ha_result_of(g->row[i])->verdict = HA_NOT_RUN;
    ha_result_set(g, i, HA_ERROR, because);
    return t->bench->api->failure(t->bench->device) ? t->reopen(t->arg, why) : HA_OK;
}

/* ---- right ------------------------------------------------------------------------------------------------------- */

static enum ha_status check_one(const struct ha_link_turns *t, struct ha_group *g, size_t i, struct ha_why *why)
{
    struct ha_link_row *r = g->row[i];
    struct ha_why because = { "" };
    size_t verified = 0;
    char text[512];
    const char *lacks = ha_link_method_lacks(method_of(g, i), t->bench, text);
    if (lacks) {
        ha_result_set(g, i, ha_why(&because, HA_WAIVED, "%s", lacks), &because);
        return HA_OK;
    }
    if (!strcmp(t->bench->api->kind, "null")) {
        r->head.verdict = HA_UNCHECKED;
        strcpy(r->head.reason, "the device moves nothing");
        return HA_OK;
    }
    const enum ha_status status = ha_link_bench_verify(t->bench, method_of(g, i), 0, &verified, &because);
    if (status == HA_OK) r->verified_bytes = (double)verified;
    else if (status == HA_FAIL) ha_result_set(g, i, status, &because);
    else return after_error(t, g, i, &because, why);
    return HA_OK;
}

enum ha_status ha_link_group_check(const struct ha_link_turns *t, struct ha_group *g, struct ha_why *why)
{
    for (size_t i = 0; i < g->count; i++) {
        if (ha_stop) return ha_why(why, HA_WAIVED, "stopped");
        HA_TRY(check_one(t, g, i, why));
    }
    return HA_OK;
}

/* ---- and fast ---------------------------------------------------------------------------------------------------- */

/* Neither has it failed since it was found right, nor is it a device's that moves nothing. */
static bool runs(const struct ha_group *g, size_t i) { return ha_result_of(g->row[i])->verdict == HA_NOT_RUN; }

/* A round: one sample of each, the first one another in each round. */
static enum ha_status measure_round(const struct ha_link_turns *t, struct ha_group *g, struct ha_series *series,
                                    size_t round, struct ha_why *why)
{
    for (size_t k = 0; k < g->count; k++) {
        const size_t i = (k + round) % g->count;
        struct ha_why because = { "" };
        double GBps;
        if (!runs(g, i) || series[i].count == rule.most) continue;
        if (ha_stop) return ha_why(why, HA_WAIVED, "stopped");
        const enum ha_status status = ha_link_bench_time(t->bench, method_of(g, i), 1 + round * g->count + k, &GBps,
                                                         &because);
        if (status == HA_OK) HA_TRY(ha_series_add(&series[i], GBps, why));
        else HA_TRY(after_error(t, g, i, &because, why));
    }
    return HA_OK;
}

static bool enough(const struct ha_group *g, const struct ha_series *series)
{
    for (size_t i = 0; i < g->count; i++)
        if (runs(g, i) && !ha_sampling_enough(&rule, series[i].x, series[i].count)) return false;
    return true;
}

static void conclude(struct ha_link_row *r, const struct ha_series *s)
{
    const struct ha_estimate e = ha_estimate(s->x, s->count);
    r->head.samples = (double)s->count;
    r->GBps = e.median;
    r->lo = e.lo;
    r->hi = e.hi;
    r->least = ha_quantile(s->x, s->count, 0);
    r->most = ha_quantile(s->x, s->count, 1);
    if (ha_link_is_link(r->device_kind)) r->share = r->GBps / r->ceiling_GBps;
}

/* The least number of rounds goes before cap_ns, but no round begins after four times as long or after the deadline. */
static enum ha_status measure(const struct ha_link_turns *t, struct ha_group *g, struct ha_series *series,
                              struct ha_why *why)
{
    const uint64_t begin = ha_now_ns(), cap_ns = g->cap_ns < cap_most_ns ? g->cap_ns : cap_most_ns,
                   until = g->deadline_ns ? g->deadline_ns : UINT64_MAX;
    size_t rounds = 0;
    do {
        HA_TRY(measure_round(t, g, series, rounds++, why));
    } while (!enough(g, series) && (rounds < rule.least || ha_now_ns() - begin < cap_ns)
             && ha_now_ns() - begin < 4 * cap_ns && ha_now_ns() < until);
    if (ha_stop) return ha_why(why, HA_WAIVED, "stopped");
    for (size_t i = 0; i < g->count; i++)
        if (runs(g, i)) conclude(g->row[i], &series[i]);
    return HA_OK;
}

enum ha_status ha_link_group_measure(const struct ha_link_turns *t, struct ha_group *g, struct ha_why *why)
{
    struct ha_series *series = calloc(g->count, sizeof *series);
    if (!series) return ha_why(why, HA_ERROR, "out of memory");
    const enum ha_status status = measure(t, g, series, why);
    for (size_t i = 0; i < g->count; i++) ha_series_free(&series[i]);
    free(series);
    return status;
}
