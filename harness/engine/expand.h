#ifndef HA_ENGINE_EXPAND_H
#define HA_ENGINE_EXPAND_H

/* Keys with their values, and every point that they make. */

#include "harness/engine/plan.h"

extern const char ha_blanks[]; /* between values */

struct ha_assignment {
    char *name, *values; /* values: between blanks */
    size_t line;         /* of the file; 0: of an id */
    bool own;            /* of the section itself, not of [default] */
    bool used;
};
struct ha_assignments {
    struct ha_assignment *of;
    size_t count;
    const char *file; /* NULL: an id */
    const char *section;
    size_t line; /* of the section */
    const struct ha_override *override;
    size_t overrides;
};

/* HA_ERROR: the key is there already, or there is no memory; then a is of no use but to be freed. */
enum ha_status ha_assign(struct ha_assignments *a, const char *name, const char *values, size_t line,
                         struct ha_why *why);
void ha_assignments_free(struct ha_assignments *a);

typedef enum ha_status ha_take(void *arg, const struct ha_suite *suite, void *point, struct ha_why *why);
/* The cross product, in the order of the keys of the suite, the last one fastest. A key that no point has is an
 * error; so is one of the section itself that none of its points uses. */
enum ha_status ha_expand(const struct ha_suite *suite, struct ha_assignments *a, ha_take *each, void *arg,
                         struct ha_why *why);

#endif
