#include "harness/engine/group.h"

#include "harness/base/tuning.h"

#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "harness/report/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum ha_status ha_group_make(struct ha_group_rows *g, const struct ha_plan *plan, const size_t *entry, size_t count,
                             struct ha_why *why)
{
    *g = (struct ha_group_rows){ .row = calloc(2 * count, sizeof *g->row),
                                 .point = calloc(2 * count, sizeof *g->point),
                                 .id = calloc(2 * count, sizeof *g->id),
                                 .right = calloc(2 * count, sizeof *g->right) };
    g->of = (struct ha_group){ .count = count, .row = g->row, .point = g->point, .id = g->id, .right = g->right };
    bool ok = g->row && g->point && g->id && g->right;
    for (size_t i = 0; i < count && ok; i++) {
        const struct ha_plan_entry *e = &plan->entry[entry[i]];
        g->row[i] = malloc(e->suite->row_bytes);
        g->point[i] = e->point;
        g->id[i] = e->id;
        ok = g->row[i];
        if (ok) ha_fields_clear(e->suite, g->row[i]);
    }
    return ok ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
}

void ha_group_free(struct ha_group_rows *g)
{
    for (size_t i = 0; g->row && i < g->of.count; i++) free(g->row[i]);
    free(g->row);
    free(g->point);
    free(g->id);
    free(g->right);
}

void ha_group_set(struct ha_group_rows *g, enum ha_status status, const struct ha_why *why)
{
    for (size_t i = 0; i < g->of.count; i++) {
        struct ha_result *r = ha_result_of(g->row[i]);
        if (status != HA_OK && r->verdict == HA_UNCHECKED) r->verdict = HA_NOT_RUN;
        if (status != HA_WAIVED || !ha_stop) ha_result_set(&g->of, i, status, why);
    }
}

/* The rows that were found right, or cannot be, as a group of their own. */
static struct ha_group measurable(struct ha_group_rows *g)
{
    const size_t all = g->of.count;
    struct ha_group some = g->of;
    some.count = 0;
    for (size_t i = 0; i < all; i++) {
        const enum ha_verdict v = ha_result_of(g->row[i])->verdict;
        if (v != HA_UNCHECKED && !(v == HA_NOT_RUN && g->right[i])) continue;
        const size_t to = all + some.count++;
        g->row[to] = g->row[i];
        g->point[to] = g->point[i];
        g->id[to] = g->id[i];
    }
    some.row += all;
    some.point += all;
    some.id += all;
    some.right += all;
    return some;
}

static void read_after(struct ha_group_rows *g, const struct ha_group *some, const double *before)
{
    double after[HA_BESIDE_READINGS], beside[HA_BESIDES];
    struct ha_why why;
    if (ha_machine_failed(g->machine, &why)) return;
    ha_machine_beside(g->machine, g->of.deadline_ns, after);
    ha_beside_mean(before, after, beside);
    for (size_t i = 0; i < some->count; i++) {
        struct ha_result *r = ha_result_of(some->row[i]);
        if (!isnan(r->samples)) memcpy(r->beside, beside, sizeof r->beside);
    }
    g->failed_beside = ha_machine_failed(g->machine, &why);
}

/* ---- beside others ----------------------------------------------------------------------------------------------- */

static uint64_t meet_begin(void *arg)
{
    const struct ha_group_rows *g = arg;
    return ha_meet_begin(g->at_once->meet, g->window);
}

static bool meet_goes_on(void *arg)
{
    const struct ha_group_rows *g = arg;
    return ha_meet_lacks(g->at_once->meet, g->window);
}

/* What was measured beside others. The suite may have stopped without asking whether they have enough. */
static void say_met(struct ha_group_rows *g, const struct ha_group *some)
{
    ha_meet_lacks(g->at_once->meet, g->window);
    const struct ha_met met = ha_meet_end(g->at_once->meet, g->window);
    for (size_t i = 0; i < some->count; i++) {
        struct ha_result *r = ha_result_of(some->row[i]);
        if (isnan(r->samples)) continue;
        r->together = (double)met.ranks;
        r->together_of = (double)g->at_once->of;
        r->apart_us = met.apart_us;
    }
}

static enum ha_status measure_group(struct ha_group_rows *g, const struct ha_suite *suite, void *run,
                                    struct ha_why *why)
{
    struct ha_group some = measurable(g);
    double before[HA_BESIDE_READINGS];
    if (!some.count) return HA_OK;
    if (g->machine && !ha_stop) ha_machine_beside(g->machine, g->of.deadline_ns, before);
    const struct ha_meeting meeting = { g, meet_begin, meet_goes_on };
    if (g->at_once) some.meeting = &meeting;
    const enum ha_status status = ha_stop ? HA_WAIVED : suite->measure(run, &some, why);
    if (g->at_once && status == HA_OK) say_met(g, &some);
    if (g->machine && status == HA_OK) read_after(g, &some, before);
    if (g->machine) ha_machine_beside_end(g->machine);
    return status;
}

void ha_group_run(struct ha_group_rows *g, const struct ha_suite *suite, void *run, bool measure)
{
    struct ha_why why = { "" };
    for (size_t i = 0; i < g->of.count && suite->attends; i++) strcpy(ha_result_of(g->row[i])->plan, ha_tuning()->name);
    enum ha_status status = suite->open ? suite->open(run, &g->of, &why) : HA_OK;
    if (status == HA_OK) status = suite->check(run, &g->of, &why);
    if (status == HA_OK && measure && suite->measure) status = measure_group(g, suite, run, &why);
    ha_group_set(g, status, &why);
    for (size_t i = 0; i < g->of.count && status == HA_OK && !ha_stop; i++) {
        struct ha_result *r = ha_result_of(g->row[i]);
        if (r->verdict != HA_NOT_RUN || *r->reason) continue;
        r->verdict = g->right[i] ? HA_PASS : HA_VERDICT_ERROR;
        if (!g->right[i]) strcpy(r->reason, "its suite gave it no verdict");
    }
    for (size_t i = 0; i < g->of.count; i++) {
        struct ha_result *r = ha_result_of(g->row[i]);
        if (!ha_passed(r->verdict)) *r->outputs = 0;
    }
    if (suite->close) suite->close(run, &g->of);
}
