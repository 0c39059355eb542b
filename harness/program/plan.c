#include "harness/program/commands.h"

#include "harness/base/clock.h"
#include "harness/base/why.h"
#include "harness/tune/file.h"
#include "harness/tune/show.h"

#include <stdio.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };
static const uint64_t usual_ns = 300000000000;

enum ha_exit ha_command_plan(const struct ha_options *o, struct ha_why *why)
{
    static struct ha_tuning plan;
    struct ha_tune_options how = { .threads = { 1, 0 },
                                   .counts = 2,
                                   .limit_ns = o->max_time_ns ? o->max_time_ns : usual_ns,
                                   .progress = o->quiet ? NULL : stderr };
    static struct ha_tune_doubt doubt;
    char path[PATH_BYTES], text[HA_TUNE_OPEN_BYTES];
    if (o->plan_threads) {
        how.threads[0] = o->plan_threads;
        how.counts = 1;
    }
    if (o->out_dir) snprintf(path, sizeof path, "%s", o->out_dir);
    else if (ha_tune_cache_path(path, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    if (ha_tune_writable(path, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    const uint64_t begin = ha_now_ns();
    if (ha_tune_make(&plan, &how, &doubt, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    ha_tune_print(stdout, &plan);
    const char *reason = doubt.late ? "the time was over" : "something else uses this machine";
    if (plan.choices == 0) {
        ha_why(why, HA_WAIVED, "nothing could be chosen: %s", reason);
        return HA_EXIT_ENVIRONMENT;
    }
    const size_t open = doubt.disturbed + doubt.late;
    if (open > 0 && !o->out_dir && access(path, F_OK) == 0) {
        ha_tune_open_text(text, &doubt, "is not known", "are not known");
        ha_why(why, HA_WAIVED, "%s: %s; the plan of before stays in %.180s", text, reason, path);
        return HA_EXIT_ENVIRONMENT;
    }
    if (ha_tune_write(&plan, path, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    printf("plan %s, measured in %.1f s, is in %s\n", plan.name, (double)(ha_now_ns() - begin) / 1e9, path);
    if (open == 0) return HA_EXIT_OK;
    ha_tune_open_text(text, &doubt, "stays as it is built in", "stay as they are built in");
    ha_why(why, HA_WAIVED, "%s: %s; run it again", text, reason);
    return HA_EXIT_ENVIRONMENT;
}
