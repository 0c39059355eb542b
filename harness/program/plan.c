#include "harness/program/commands.h"

#include "harness/base/clock.h"
#include "harness/base/why.h"
#include "harness/tune/file.h"
#include "harness/tune/make.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };
static const uint64_t usual_ns = 300000000000;

/* What is taken: a line for each type and number of threads. */
static void print(FILE *out, const struct ha_tuning *t)
{
    fprintf(out, "%-7s  %-5s  %-12s  %-8s  %-8s  %-8s  %7s  %9s  %s\n", "threads", "type", "kernels", "in order",
            "lists", "passes", "share", "constants", "layout");
    for (size_t i = 0; i < t->choices; i++) {
        const struct ha_choice *c = &t->choice[i];
        char reach[HA_PATTERNS][32];
        if (c->pattern != HA_PATTERN_LINEAR || !c->taken) continue;
        for (unsigned p = 0; p < HA_PATTERNS; p++) {
            const struct ha_choice *of = ha_tuning_find(t, c->threads, c->dtype, p, c->isa);
            snprintf(reach[p], sizeof reach[p], "%s %u", of ? ha_reach_words[of->reach.kind] : "-",
                     of ? (unsigned)of->reach.bytes : 0);
        }
        fprintf(out, "%-7zu  %-5s  %-12s  %-8s  %-8s  %-8s  %7.3f  %9.3f  %s\n", c->threads, ha_dtype_name(c->dtype),
                c->isa, reach[0], reach[1], reach[2], c->ratio, c->constants,
                ha_tuning_taken(t, c->threads, c->dtype, HA_CHOICE_ROWS) ? "rows" : "packed");
    }
    fprintf(out, "\nshare: of what the same threads read from memory, in pairs; constants: the same as built in\n");
}

enum ha_exit ha_command_plan(const struct ha_options *o, struct ha_why *why)
{
    static struct ha_tuning plan;
    struct ha_tune_options how = { .threads = { 1, 0 },
                                   .counts = 2,
                                   .limit_ns = o->max_time_ns ? o->max_time_ns : usual_ns,
                                   .progress = o->quiet ? NULL : stderr };
    struct ha_tune_doubt doubt;
    char path[PATH_BYTES];
    if (o->plan_threads) {
        how.threads[0] = o->plan_threads;
        how.counts = 1;
    }
    if (o->out_dir) snprintf(path, sizeof path, "%s", o->out_dir);
    else if (ha_tune_cache_path(path, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    if (ha_tune_writable(path, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    const uint64_t begin = ha_now_ns();
    if (ha_tune_make(&plan, &how, &doubt, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    print(stdout, &plan);
    if (plan.choices == 0) {
        ha_why(why, HA_WAIVED, "nothing could be chosen: %s",
               doubt.late ? "the time was over" : "something else uses this machine");
        return HA_EXIT_ENVIRONMENT;
    }
    const size_t open = doubt.disturbed + doubt.late;
    if (open > 0 && !o->out_dir && access(path, F_OK) == 0) {
        ha_why(why, HA_WAIVED, "%zu choices are not known: %s; the plan of before stays in %.300s", open,
               doubt.late ? "the time was over" : "something else uses this machine", path);
        return HA_EXIT_ENVIRONMENT;
    }
    if (ha_tune_write(&plan, path, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    printf("plan %s, measured in %.1f s, is in %s\n", plan.name, (double)(ha_now_ns() - begin) / 1e9, path);
    if (open == 0) return HA_EXIT_OK;
    ha_why(why, HA_WAIVED, "%zu choices stay as they are built in: %s; run it again", open,
           doubt.late ? "the time was over" : "something else uses this machine");
    return HA_EXIT_ENVIRONMENT;
}
