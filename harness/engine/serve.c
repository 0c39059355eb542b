#include "harness/engine/serve.h"

#include "harness/base/surroundings.h"
#include "harness/base/why.h"
#include "harness/engine/child.h"
#include "harness/engine/group.h"
#include "harness/engine/machine.h"
#include "harness/report/row.h"

#include <stdlib.h>
#include <string.h>

/* What stays from one order to the next. */
struct server {
    struct ha_serve *serve;
    struct ha_machine *machine;
    const struct ha_suite *suite; /* the one that has begun, or NULL */
    void *run;                    /* the suite's */
    size_t entry;                 /* the case that lines belong to: the first of the group */
};

/* ---- what is said ------------------------------------------------------------------------------------------------ */

static void say(unsigned kind, size_t entry, size_t file, const void *bytes, size_t size)
{
    char *message = malloc(sizeof(struct ha_said_head) + size);
    if (!message) abort(); /* so that the program says how this process ended, and nothing is missing unnoticed */
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
    snprintf(p.what, sizeof p.what, "%s", what);
    ha_child_say(HA_SAID_PROGRESS, &p, sizeof p);
}

static void seen(const char *asked, const struct ha_device_api *api, const struct ha_device_info *info,
                 const struct ha_eps *eps, const struct ha_ceilings *ceilings)
{
    struct ha_env_device device;
    ha_env_device(&device, asked, api, info, eps, ceilings);
    ha_child_say(HA_SAID_DEVICE, &device, sizeof device);
}

/* ---- suites ------------------------------------------------------------------------------------------------------ */

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
        .order = o->order,
        .faults = o->faults,
    };
    const struct ha_results before = s->serve->before(s->serve->arg, suite);
    const enum ha_status status = suite->begin ? suite->begin(&s->run, &config, &before, why) : HA_OK;
    if (status == HA_OK) s->suite = suite;
    else end_suite(s, suite);
    return status;
}

/* The row that a failure of the device costs where no suite has seen it, as when it fails at last of all: the last of
 * those that it would leave right. SIZE_MAX: there is none. */
static size_t row_to_blame(const struct ha_group_rows *g)
{
    size_t last = SIZE_MAX;
    for (size_t i = 0; i < g->of.count; i++) {
        const enum ha_verdict v = ha_result_in(g->row[i])->verdict;
        if (v == HA_VERDICT_ERROR) return SIZE_MAX;
        if (v != HA_NOT_RUN && v != HA_VERDICT_FAIL) last = i;
    }
    return last;
}

static enum ha_status serve_order(struct server *s, const struct ha_job *o, struct ha_why *why)
{
    const struct ha_plan *plan = s->serve->plan;
    const struct ha_suite *suite = plan->entry[o->entry[0]].suite;
    const struct ha_at_once *at_once = s->serve->options->at_once;
    struct ha_group_rows g;
    bool failed = false;
    s->entry = o->entry[0];
    const enum ha_status status = ha_group_make(&g, plan, o->entry, o->count, why);
    if (status == HA_OK) {
        struct ha_why cause = { "" };
        g.of.cap_ns = o->cap_ns;
        g.of.deadline_ns = o->deadline_ns;
        g.machine = s->machine;
        g.window = o->window;
        g.at_once = at_once && !at_once->turns ? at_once : NULL;
        const enum ha_status begun = use_suite(s, suite, &cause);
        if (begun == HA_OK) ha_group_run(&g, suite, s->run, s->serve->options->measure);
        else ha_group_set(&g, begun, &cause);
        /* whatever the rows say: their inputs and references may be others than asked for */
        ha_machine_restore(s->machine);
        if (ha_surroundings_verdict(why) != HA_OK) {
            ha_group_free(&g);
            return HA_ERROR;
        }
        failed = ha_machine_failed(s->machine, why);
        const size_t blamed = failed && !g.failed_beside ? row_to_blame(&g) : SIZE_MAX;
        for (size_t i = 0; i < o->count; i++) {
            const enum ha_verdict v = ha_result_in(g.row[i])->verdict;
            /* for the program to find out, or to say */
            const bool whose = i == blamed || (failed && o->count > 1 && v == HA_VERDICT_ERROR);
            if (v != HA_NOT_RUN && !whose) say(HA_SAID_ROW, o->entry[i], 0, g.row[i], suite->row_bytes);
        }
    }
    ha_group_free(&g);
    return failed ? HA_ERROR : status;
}

enum ha_status ha_serve(void *self, void *arg, struct ha_why *why)
{
    struct ha_serve *serve = self;
    if (!serve->server) {
        struct server *s = calloc(1, sizeof *s);
        if (!s) return ha_why(why, HA_ERROR, "out of memory");
        s->serve = serve;
        ha_surroundings_keep();
        HA_TRY(ha_machine_create(&s->machine, seen, why));
        ha_machine_memory(s->machine, serve->memory);
        serve->server = s;
    }
    return serve_order(serve->server, arg, why);
}

void ha_serve_end(void *self)
{
    struct ha_serve *serve = self;
    struct server *s = serve->server;
    if (!s) return;
    if (s->suite) end_suite(s, s->suite);
    ha_machine_destroy(s->machine);
    free(s);
    serve->server = NULL;
}
