#ifndef HA_COMPARE_FACTS_H
#define HA_COMPARE_FACTS_H

/* What two nights say of where they ran: is it one machine, and what of it has changed? */

#include "harness/compare/record.h"

enum ha_fact_kind {
    HA_FACT_OTHER,    /* no cause of anything: a name, a count of the moment */
    HA_FACT_SOFTWARE, /* kernel, driver, library, firmware, setting */
    HA_FACT_HARDWARE,
    HA_FACT_WHO, /* another value is another machine */
};
enum ha_fact_kind ha_fact_kind(const char *name);
/* "hardware", "software", ... */
const char *ha_fact_word(enum ha_fact_kind kind);

/* How a fact stands beside what it was. LOST: hardware, and there is less of it. Sizes that differ by no more than what
 * a kernel leaves of the same memory are the same. A value that is not said (NULL) is no loss. */
enum ha_fact_change { HA_FACT_SAME, HA_FACT_CHANGED, HA_FACT_LOST };
enum ha_fact_change ha_fact_change(const char *name, const char *base, const char *now);

/* Is it the same machine? By its board where both nights could read that, else by its machine-id or its host's name,
 * one of which is enough, since an image may give many machines one id, and a container has a name of its own; and by
 * its CPU in any case. Nights that say nothing of this: by CPU and devices. If not, *fact is what differs. */
bool ha_night_same_machine(const struct ha_night *a, const struct ha_night *b, const char **fact);
/* Is it one build, which is known and has no changes that were not committed? */
bool ha_night_same_build(const struct ha_night *a, const struct ha_night *b);
/* Must both have the same bits of outputs, where plans of kernels are the same, too? Of one build, on one machine, and
 * nothing else that computes differs, as far as both say. */
bool ha_night_same_bits(const struct ha_night *a, const struct ha_night *b);

#endif
