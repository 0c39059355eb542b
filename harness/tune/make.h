#ifndef HA_TUNE_MAKE_H
#define HA_TUNE_MAKE_H

/* Makes a plan by measuring: candidates race for each type, table and pattern (race.h, bench.h). */

#include "harness/base/tuning.h"

#include <stdio.h>

struct ha_tune_options {
    bool quick; /* all threads only, few candidates, some tenths of a second: where a run begins without a plan */
    size_t threads[3], counts; /* numbers of threads that plans are made for; not used by a quick one */
    uint64_t limit_ns;
    FILE *progress; /* a line for each race; NULL: none */
};

/* Races without an answer: what they were about stays as the table has it. */
struct ha_tune_doubt {
    size_t disturbed, late;
    struct ha_tune_open {
        size_t threads, rows;
        enum ha_dtype dtype;
        unsigned pattern;
        char isa[HA_ISA_BYTES];
    } open[HA_CHOICES_MOST]; /* [disturbed + late], as far as there is room */
};

/* Tables whose shares are this near to one another, in order, are alike. */
extern const double ha_tune_alike;

/* Whatever plan is in use is not while this measures, and is again afterwards. HA_WAIVED: there is not memory enough.
 */
enum ha_status ha_tune_make(struct ha_tuning *out, const struct ha_tune_options *options, struct ha_tune_doubt *doubt,
                            struct ha_why *why);

#endif
