#ifndef HA_ENGINE_DRIVE_H
#define HA_ENGINE_DRIVE_H

/* For tests of suites: runs points of one suite in this process, group after group, and keeps the rows. It writes no
 * files. */

#include "harness/engine/plan.h"

struct ha_drive {
    const char *words;                   /* between blanks */
    const char *text;                    /* NULL, or a suite file instead of words, "x.suite" in messages */
    const char *filter, *isa, *threads;  /* NULL: not given */
    const char *device, *seed;           /* NULL: not given */
    void (*begun)(void *arg, void *run); /* NULL, or called when the suite's run has begun */
    void *arg;                           /* of begun */
    struct ha_suite_config config;       /* functions of its engine may be NULL */
    uint64_t cap_ns, deadline_ns;        /* of each group */
    bool plan_only;
};

struct ha_driven {
    const struct ha_suite *suite;
    struct ha_plan plan;
    struct ha_results results; /* a row for each that was begun */
    size_t verdict[HA_VERDICTS];
    char printed[1 << 16]; /* what the suite printed, cut */
};

/* HA_ERROR: the words, or the suite could not begin. The result is to be freed all the same. */
enum ha_status ha_drive(const struct ha_drive *drive, struct ha_driven *driven, struct ha_why *why);
void ha_driven_free(struct ha_driven *driven);

/* the first entry whose id has this text in it, or NULL */
const struct ha_entry *ha_driven_find(const struct ha_driven *driven, const char *text);
/* a number, or a text, of a row by the name of its column; NaN and NULL: there is no such column */
double ha_driven_number(const struct ha_driven *driven, const struct ha_entry *entry, const char *column);
const char *ha_driven_text(const struct ha_driven *driven, const struct ha_entry *entry, const char *column);

#endif
