#ifndef HA_FLEET_RANK_FILE_H
#define HA_FLEET_RANK_FILE_H

/* FLEET/MACHINE.rank.json: what a rank says of itself when it begins, goes on and ends
 * (results/schema/rank.schema.json). The file is the claim to the name, too: the first rank that makes it has the
 * machine. */

#include "harness/base/clock.h"
#include "harness/fleet/rank.h"

enum { HA_RANK_PATH = 4096, HA_RANK_NONE = -1 };

struct ha_rank_file {
    struct ha_rank of; /* its texts but for launcher are copies; launcher: NULL in a file that was read */
    char begun[HA_DATE_UTC], ended[HA_DATE_UTC]; /* UTC; ended "": it has not */
    int device, exit, signal;                    /* HA_RANK_NONE: none */
    uint64_t attempts;
    double seconds;           /* of this attempt; below 0: it has not ended */
    char where[HA_RANK_PATH]; /* the folder of its own, on its host; "": none is left */
};

/* Whole, as it was or as it is to be. first: only where there is no such file yet; HA_WAIVED: there is. HA_ERROR: it
 * cannot be written. */
enum ha_status ha_rank_file_write(const struct ha_rank_file *file, const char *fleet, bool first, struct ha_why *why);

/* HA_WAIVED: there is none. HA_ERROR: it is none of a rank. */
enum ha_status ha_rank_file_read(struct ha_rank_file *file, const char *fleet, const char *machine, struct ha_why *why);

/* Of a fleet's folder, one of the same job and rank on another machine than r; false: there is none. */
bool ha_rank_file_elsewhere(struct ha_rank_file *found, const char *fleet, const struct ha_rank *r);

/* Are both of one job? */
bool ha_rank_same_job(const struct ha_rank *a, const struct ha_rank *b);

#endif
