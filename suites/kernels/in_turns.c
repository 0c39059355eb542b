/* in_turns CASE: a point of cpu_kernels, checked and then run whenever a line on stdin asks for it, so that others run
 * in between (scripts/peers/cpu_attention.py). A line of stdin is a number of runs; the answer, a line of JSON on
 * stdout, has the nanoseconds of each. The first line that it prints says what runs, and its error over its bound, on
 * the buffers that are timed. */

#include "harness/api/exit.h"
#include "harness/base/clock.h"
#include "harness/base/version.h"
#include "harness/base/why.h"
#include "harness/base/tuning.h"
#include "harness/engine/plan.h"
#include "harness/tune/file.h"
#include "suites/kernels/work.h"

#include <stdio.h>
#include <stdlib.h>

static void answer(struct ha_cpu_work *w, unsigned long runs)
{
    printf("{\"ns\": [");
    for (unsigned long i = 0; i < runs; i++) {
        ha_cpu_work_turn(w, w->turn + 1);
        const uint64_t begin = ha_now_ns();
        ha_cpu_work_run(w, HA_CPU_WHOLE);
        printf("%s%llu", i ? ", " : "", (unsigned long long)(ha_now_ns() - begin));
    }
    puts("]}");
    fflush(stdout);
}

static enum ha_status serve(const struct ha_suite *suite, void *run, struct ha_group *group, struct ha_why *why)
{
    const struct ha_cpu_row *row = group->row[0];
    char line[32];
    HA_TRY(suite->open(run, group, why));
    HA_TRY(suite->check(run, group, why));
    printf("{\"version\": \"%s\", \"isa\": \"%s\", \"plan\": \"%s\", \"err_over_bound\": %.17g}\n", ha_version(),
           row->isa, ha_tuning()->name, row->err_over_bound);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) answer(ha_cpu_run_work(run), strtoul(line, NULL, 10));
    return HA_OK;
}

static enum ha_status open_plan(struct ha_plan *plan, char **words, struct ha_why *why)
{
    HA_TRY(ha_plan_make(plan, &(struct ha_plan_options){ .words = words, .words_count = 1 }, why));
    if (plan->entries != 1 || plan->entry->suite != &ha_suite_cpu_kernels)
        return ha_why(why, HA_ERROR, "%s: not one case of cpu_kernels", words[0]);
    return HA_OK;
}

int main(int argc, char **argv)
{
    const struct ha_suite *suite = &ha_suite_cpu_kernels;
    const struct ha_suite_config config = { .measure = true, .seed = 1 };
    struct ha_plan plan = { 0 };
    struct ha_why why = { "" };
    struct ha_cpu_row row = { 0 };
    void *run = NULL, *rows[] = { &row };
    bool right = false;
    if (argc != 2) {
        fputs("usage: in_turns CASE\n", stderr);
        return HA_EXIT_USAGE;
    }
    enum ha_status status = ha_tune_find(NULL, true, &why); /* as habench run */
    if (status == HA_OK) status = open_plan(&plan, argv + 1, &why);
    if (status == HA_OK) status = suite->begin(&run, &config, NULL, &why);
    if (status == HA_OK) {
        const void *const points[] = { plan.entry->point };
        const char *const ids[] = { plan.entry->id };
        struct ha_group group = { .count = 1, .point = points, .row = rows, .id = ids, .right = &right };
        status = serve(suite, run, &group, &why);
        suite->close(run, &group);
    }
    if (run) suite->end(run);
    ha_plan_free(&plan);
    if (status == HA_OK) return HA_EXIT_OK;
    fprintf(stderr, "%s\n", why.text);
    return status == HA_FAIL ? HA_EXIT_WRONG : HA_EXIT_ENVIRONMENT;
}
