#ifndef HA_COMPARE_AGAIN_H
#define HA_COMPARE_AGAIN_H

/* What decides a suspicion: the cases to be run in more processes. */

#include "harness/compare/compare.h"

struct ha_again {
    const struct ha_recorded_case **of; /* [count] of the new record, each once; the caller's to free */
    size_t count, room;
};

/* Those that something else disturbed, and those of which a figure is suspicious, or perhaps better; and of what is so
 * of the machine itself, three that read it. HA_ERROR: no memory. */
enum ha_status ha_comparison_again(struct ha_again *again, const struct ha_comparison *comparison, struct ha_why *why);

#endif
