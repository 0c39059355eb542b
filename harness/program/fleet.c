#include "harness/program/fleet.h"

#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "harness/fleet/attempt.h"

#include <string.h>

enum ha_exit ha_program_fleet(const struct ha_options *o,
                              enum ha_exit (*command)(const struct ha_options *o, struct ha_why *why),
                              struct ha_why *why)
{
    struct ha_attempt attempt;
    struct ha_options own = *o;
    const bool night = o->command == HA_CMD_NIGHTLY;
    const char *const parts[] = { "alone", o->together && !strcmp(o->together, "pairs") ? "pairs" : "together", NULL };
    const struct ha_attempt_options how = { .fleet = o->fleet,
                                            .scratch = o->scratch,
                                            .devices = night ? o->devices : &o->device,
                                            .devices_count = night ? o->devices_count : 1,
                                            .parts = o->together ? parts : NULL,
                                            .anew = night };
    if (o->command == HA_CMD_RUN && ha_day_asked(o))
        return ha_why(why, HA_ERROR, "--fleet means nothing to %s", o->words[0]), HA_EXIT_USAGE;
    enum ha_exit code = ha_attempt_begin(&attempt, &how, why);
    if (attempt.complete) return attempt.file.exit < 0 ? HA_EXIT_MISSING : (enum ha_exit)attempt.file.exit;
    if (code != HA_EXIT_OK) return code;
    own.out_dir = attempt.record;
    own.resume = attempt.resumes;
    code = command(&own, why);
    const int signal = ha_stop;
    code = ha_attempt_end(&attempt, code, signal, why);
    if (!signal) ha_stop = 0; /* what came while the record was moved has ended nothing */
    return code;
}
