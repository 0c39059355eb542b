#ifndef HA_FLEET_ATTEMPT_H
#define HA_FLEET_ATTEMPT_H

/* An attempt of a rank to measure its machine: it claims the machine's name in the fleet's folder, measures into a
 * folder of its own, which another attempt of the same job finds again, and at the end moves the record whole to
 * FLEET/MACHINE. */

#include "harness/api/exit.h"
#include "harness/fleet/rank_file.h"

struct ha_attempt_options {
    const char *fleet;
    const char *scratch; /* where the folder of its own is made; NULL: $TMPDIR, or /tmp */
    const char *const
        *devices; /* [devices_count] as --device names them; the first of a kind that can be told apart counts */
    size_t devices_count;
    /* Of what leaves several records, such as "alone" and "together", where each is: record/PART goes to
     * FLEET/PART/MACHINE. NULL behind the last; NULL: there is one, of which a part is "". */
    const char *const *parts;
    bool anew; /* what is run cannot go on in a folder: that of an attempt before is removed */
};

struct ha_attempt {
    const char *fleet;
    const char *const *parts;
    struct ha_rank_file file;
    bool complete; /* an attempt before has left its record: there is nothing to do but to end as it did */
    bool resumes;  /* there are rows in `record` to go on with */
    char folder[HA_RANK_PATH], record[HA_RANK_PATH]; /* record: in folder, made by who measures */
    int lock;
    uint64_t begin_ns;
};

/* HA_EXIT_OK: `record` is to be filled, or it is complete, file.exit being how it ended. HA_EXIT_USAGE: the launcher's
 * variables are wrong, FLEET has another job's record of this machine, another process measures here.
 * HA_EXIT_ENVIRONMENT: FLEET or the scratch folder cannot be written; then nothing is measured. What a user has to know
 * besides goes to stderr. */
enum ha_exit ha_attempt_begin(struct ha_attempt *attempt, const struct ha_attempt_options *options, struct ha_why *why);

/* code: what the run came to; signal: what ended it, or 0. Returns the code, or where it was 0 and the record could not
 * be moved, HA_EXIT_ENVIRONMENT with why. A record of which a part has no junit.xml is not whole: it and one that was
 * ended by a signal stay where they are, which is said. Not after one that failed to begin or was complete. */
enum ha_exit ha_attempt_end(struct ha_attempt *attempt, enum ha_exit code, int signal, struct ha_why *why);

#endif
