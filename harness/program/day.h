#ifndef HA_PROGRAM_DAY_H
#define HA_PROGRAM_DAY_H

/* A file of steps (suites/gpu_day.steps says how one is written), read. */

#include "harness/api/base.h"

enum { HA_DAY_STEPS = 64, HA_DAY_NAME = 32 };

struct ha_day_step {
    char name[HA_DAY_NAME]; /* small letters, digits and _ */
    uint64_t limit_ns;      /* never 0 */
    char *habench, *shell;  /* one of them: words between blanks, or a line */
    char *env;              /* NULL, or NAME=VALUE */
};

struct ha_day_steps {
    struct ha_day_step of[HA_DAY_STEPS];
    size_t count;
    char device[256]; /* "": the file names none */
};

/* HA_ERROR: it cannot be read, or is not such a file; why says where. In either case free it. */
enum ha_status ha_day_read(struct ha_day_steps *steps, const char *path, struct ha_why *why);
void ha_day_free(struct ha_day_steps *steps);

/* A command of this program that a step may be: what is put behind its words. */
struct ha_day_command {
    const char *name;
    bool folder, resumes; /* it takes -o; it takes --plan, --max-time, --resume and -q */
};
/* NULL: there is none of this name */
const struct ha_day_command *ha_day_command_named(const char *name);

#endif
