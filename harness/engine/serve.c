#include "harness/engine/serve.h"

#include "harness/base/stop.h"
#include "harness/base/try.h"
#include "harness/base/why.h"
#include "harness/engine/child.h"
#include "harness/engine/machine.h"
#include "harness/report/field.h"
#include "harness/report/verdict.h"

#include <stdlib.h>
#include <string.h>

/* What stays from one order to the next. */
struct server {
    struct ha_serve *serve;
    struct ha_machine *machine;
    const struct ha_suite *suite; /* the one that has begun, or NULL */
    void *run;                    /* the suite's */
    size_t entry;                 /* the case that lines belong to: the first of the group */
    struct ha_group group;
    void **rows;
    const void **points;
    const char **ids;
};

/* ---- what is said ------------------------------------------------------------------------------------------------ */

static void say(unsigned kind, size_t entry, size_t file, const void *bytes, size_t size)
{
    char *message = malloc(sizeof(struct ha_said_head) + size);
    if (!message) return;
    const struct ha_said_head head = { entry, file };
    memcpy(message, &head, sizeof head);
    memcpy(message + sizeof head, bytes, size);
    ha_child_say(kind, message, sizeof head + size);
    free(message);
}

static void line(void *arg, size_t file, const void *row)
{
    const struct server *s = arg;
    say(HA_SAID_LINE, s->entry, file, row, s->suite->row_bytes);
}

static void trace(void *arg, const char *events, size_t bytes)
{
    const struct server *s = arg;
    say(HA_SAID_TRACE, s->entry, 0, events, bytes);
}

static void progress(void *arg, size_t done, size_t of, const char *what)
{
    struct ha_said_progress p = { .done = done, .of = of };
    (void)arg;
    snprintf(p.what, sizeof p.what, "%s", what);
    ha_child_say(HA_SAID_PROGRESS, &p, sizeof p);
}

static void seen(void *arg, const char *asked, const struct ha_device_api *api, const struct ha_device_info *info,
                 const struct ha_ceilings *ceilings)
{
    struct ha_env_device device;
    (void)arg;
    ha_env_device(&device, asked, api, info, ceilings);
    ha_child_say(HA_SAID_DEVICE, &device, sizeof device);
}

/* ---- suites -------------------------------------------------------------------------------------------------------
 */

static void end_suite(struct server *s, const struct ha_suite *suite)
{
    if (s->run && suite->end) suite->end(s->run);
    s->suite = NULL;
    s->run = NULL;
}

static enum ha_status use_suite(struct server *s, const struct ha_suite *suite, struct ha_why *why)
{
    const struct ha_run_options *o = s->serve->options;
    if (s->suite == suite) return HA_OK;
    if (s->suite) end_suite(s, s->suite);
    const struct ha_suite_config config = {
        .machine = s->machine,
        .engine = { s, line, trace, progress },
        .measure = o->measure,
        .seed = o->seed,
        .dump_dir = o->dump_dir,
        .exec = o->exec,
        .out_dir = o->out_dir,
        .exhaustive = o->exhaustive,
    };
    const struct ha_results before = s->serve->before(s->serve->arg, suite);
    const enum ha_status status = suite->begin ? suite->begin(&s->run, &config, &before, why) : HA_OK;
    if (status == HA_OK) s->suite = suite;
    else end_suite(s, suite);
    return status;
}

/* ---- groups ---------------------------------------------------------------------------------------------------------
 */

static bool any(const struct ha_group *g, enum ha_verdict a, enum ha_verdict b)
{
    for (size_t i = 0; i < g->count; i++) {
        const enum ha_verdict v = ha_result_in(g->row[i])->verdict;
        if (v == a || v == b) return true;
    }
    return false;
}

static void set_all(const struct ha_group *g, enum ha_status status, const struct ha_why *why)
{
    if (status == HA_WAIVED && ha_stop) return; /* stopped in the middle: what is not complete has no row */
    for (size_t i = 0; i < g->count; i++) {
        struct ha_result *r = g->row[i];
        if (status != HA_OK && r->verdict == HA_UNCHECKED) r->verdict = HA_NOT_RUN;
        ha_result_set(g, i, status, why);
    }
}

/* Open, check, measure, close. A row without a verdict was found right, and passes when all that was asked is done,
 * unless its reason says why it was not run. */
static void run_group(struct server *s, struct ha_group *g)
{
    const struct ha_suite *suite = s->suite;
    struct ha_why why = { "" };
    enum ha_status status = suite->open ? suite->open(s->run, g, &why) : HA_OK;
    if (status == HA_OK) status = suite->check(s->run, g, &why);
    if (status == HA_OK && s->serve->options->measure && suite->measure && !ha_stop && any(g, HA_NOT_RUN, HA_UNCHECKED))
        status = suite->measure(s->run, g, &why);
    const bool complete = status == HA_OK && !ha_stop;
    set_all(g, status, &why);
    for (size_t i = 0; i < g->count && complete; i++) {
        struct ha_result *r = g->row[i];
        if (r->verdict == HA_NOT_RUN && !*r->reason) r->verdict = HA_PASS;
    }
    if (suite->close) suite->close(s->run, g);
}

static void free_group(struct server *s)
{
    for (size_t i = 0; s->rows && i < s->group.count; i++) free(s->rows[i]);
    free(s->rows);
    free(s->points);
    free(s->ids);
    s->rows = NULL;
    s->points = NULL;
    s->ids = NULL;
}

static enum ha_status make_group(struct server *s, const struct ha_job *o, struct ha_why *why)
{
    const struct ha_plan *plan = s->serve->plan;
    s->group = (struct ha_group){ .count = o->count, .cap_ns = o->cap_ns, .deadline_ns = o->deadline_ns };
    s->rows = calloc(o->count, sizeof *s->rows);
    s->points = calloc(o->count, sizeof *s->points);
    s->ids = calloc(o->count, sizeof *s->ids);
    if (!s->rows || !s->points || !s->ids) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < o->count; i++) {
        const struct ha_plan_entry *e = &plan->entry[o->entry[i]];
        s->rows[i] = malloc(e->suite->row_bytes);
        if (!s->rows[i]) return ha_why(why, HA_ERROR, "out of memory");
        ha_fields_clear(e->suite, s->rows[i]);
        s->points[i] = e->point;
        s->ids[i] = e->id;
    }
    s->group.row = s->rows;
    s->group.point = s->points;
    s->group.id = s->ids;
    return HA_OK;
}

static enum ha_status serve_order(struct server *s, const struct ha_job *o, struct ha_why *why)
{
    const struct ha_suite *suite = s->serve->plan->entry[o->entry[0]].suite;
    s->entry = o->entry[0];
    bool failed = false;
    enum ha_status status = make_group(s, o, why);
    if (status == HA_OK) {
        struct ha_why cause = { "" };
        const enum ha_status begun = use_suite(s, suite, &cause);
        if (begun == HA_OK) run_group(s, &s->group);
        else set_all(&s->group, begun, &cause);
        failed = ha_machine_failed(s->machine, why);
        for (size_t i = 0; i < o->count; i++) {
            const enum ha_verdict v = ha_result_in(s->rows[i])->verdict;
            const bool whose = failed && o->count > 1 && v == HA_VERDICT_ERROR; /* is for the program to find out */
            if (v != HA_NOT_RUN && !whose) say(HA_SAID_ROW, o->entry[i], 0, s->rows[i], suite->row_bytes);
        }
    }
    free_group(s);
    return failed ? HA_ERROR : status;
}

enum ha_status ha_serve(void *self, void *arg, struct ha_why *why)
{
    struct ha_serve *serve = self;
    if (!serve->server) {
        serve->forked(serve->arg);
        struct server *s = calloc(1, sizeof *s);
        if (!s) return ha_why(why, HA_ERROR, "out of memory");
        s->serve = serve;
        const struct ha_machine_note note = { NULL, seen };
        HA_TRY(ha_machine_create(&s->machine, &note, why));
        serve->server = s;
    }
    return serve_order(serve->server, arg, why);
}
