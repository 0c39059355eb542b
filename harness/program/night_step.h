#ifndef HA_PROGRAM_NIGHT_STEP_H
#define HA_PROGRAM_NIGHT_STEP_H

/* A step of a night: habench itself, in a process of its own, so that whatever ends it costs that step. */

#include "harness/api/base.h"

enum { HA_STEP_WORDS = 1024 };

struct ha_night_step {
    const char *const *word; /* [words] of the command, from "run" on */
    size_t words;
    const char *folder, *name; /* what it prints goes to FOLDER/NAME.txt, both streams */
    uint64_t limit_ns;         /* then it is told to end (SIGTERM), and killed a minute later; 0: none */
};

/* *code: its exit code, 128 + N where signal N ended it. HA_FAIL: it was still running at its limit. HA_ERROR: it could
 * not be begun. A signal to this process (ha_stop) is handed on, and waited out. why says what was run. */
enum ha_status ha_night_step(const struct ha_night_step *step, int *code, struct ha_why *why);

#endif
