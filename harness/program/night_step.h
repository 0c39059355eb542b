#ifndef HA_PROGRAM_NIGHT_STEP_H
#define HA_PROGRAM_NIGHT_STEP_H

/* A step of a night: habench itself, or a line for a shell, in a process of its own, so that whatever ends it costs
 * that step. */

#include "harness/api/base.h"

enum { HA_STEP_WORDS = 1024 };

struct ha_night_step {
    const char *const *word; /* [words] of the command, from "run" on; of a shell: its line */
    size_t words;
    bool shell;                /* /bin/sh, and whatever it starts ends with it */
    const char *const *env;    /* NAME=VALUE, that it has besides; NULL behind the last, or none at all */
    const char *folder, *name; /* what it prints goes to FOLDER/NAME.txt, both streams */
    /* Then it is told to end (SIGTERM), and killed a minute later; a shell is killed at once. 0: none. What is there 30
     * s after that is left behind. */
    uint64_t limit_ns;
};

/* *code: its exit code, 128 + N where signal N ended it. HA_FAIL: it was still running at its limit. HA_ERROR: it could
 * not be begun. A signal to this process (ha_stop) is handed on, and waited out. why says what was run. */
enum ha_status ha_night_step(const struct ha_night_step *step, int *code, struct ha_why *why);

#endif
