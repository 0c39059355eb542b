#include "harness/compare/bits.h"

#include "harness/compare/facts.h"

#include <string.h>

/* The digest that all processes have which are comparable with `as`, of that night; NULL: there are none. first: of
 * them the first one's, whatever the others have. */
static const char *unanimous(const struct ha_record *in, const struct ha_recorded_case *of, const bool *counts,
                             const struct ha_night *night, const struct ha_recorded_outputs *as, bool first)
{
    const char *digest = NULL;
    for (size_t i = 0; of && i < of->outputs_count; i++) {
        const struct ha_recorded_outputs *o = &of->outputs[i];
        if ((counts && !counts[o->night]) || strcmp(o->plan, as->plan) != 0) continue;
        if (!ha_night_same_bits(&in->night[o->night], night)) continue;
        if (first) return o->digest;
        if (digest && strcmp(digest, o->digest) != 0) return NULL;
        digest = o->digest;
    }
    return digest;
}

struct ha_other_bits ha_other_bits(const struct ha_record *base, const struct ha_recorded_case *base_case,
                                   const bool *counts, const struct ha_record *now,
                                   const struct ha_recorded_case *now_case)
{
    struct ha_other_bits found = { 0 };
    for (size_t i = 0; i < now_case->outputs_count; i++) {
        const struct ha_recorded_outputs *o = &now_case->outputs[i];
        const struct ha_night *night = &now->night[o->night];
        const char *const of_base = unanimous(base, base_case, counts, night, o, false),
                          *const want = of_base ? of_base : unanimous(now, now_case, NULL, night, o, true);
        if (!want || !strcmp(want, o->digest)) continue;
        if (!found.others++) found = (struct ha_other_bits){ 1, want, o->digest, of_base != NULL };
    }
    return found;
}
