#ifndef HA_REFERENCE_TEST_STATES_H
#define HA_REFERENCE_TEST_STATES_H

/* States that are hard on merges: what LSEs and values are drawn from, one family per trap. */

#include "reference/test_fp32.h"

struct ha_test_draw {
    uint64_t seed;
    size_t k; /* the state */
    enum ha_dtype dtype;
};
struct ha_test_lse_family {
    const char *name;
    float (*lse)(const struct ha_test_draw *d);
};
struct ha_test_o_family {
    const char *name;
    float (*o)(const struct ha_test_draw *d, size_t i);
    bool large; /* the sum of several may leave the type */
};
extern const struct ha_test_lse_family ha_test_lse_family[];
extern const struct ha_test_o_family ha_test_o_family[];
extern const size_t ha_test_lse_families, ha_test_o_families;
size_t ha_test_lse_named(const char *name), ha_test_o_named(const char *name);

/* As an implementation of this form would store them: o [dim] is exact in dtype. */
void ha_test_states(struct ha_test_stored *s, size_t count, size_t dim, enum ha_form form, enum ha_dtype dtype,
                    size_t lse, size_t o, uint64_t seed);

/* Ways whose intermediate sum of weighted o is as large as the sum of the states may overflow where the states do
 * not; the bound does not cover that. */
bool ha_test_overflows(const struct ha_test_merge_method *way, size_t o, size_t count, enum ha_dtype dtype);

#endif
