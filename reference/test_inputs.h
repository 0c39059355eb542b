#ifndef HA_REFERENCE_TEST_INPUTS_H
#define HA_REFERENCE_TEST_INPUTS_H

/* Inputs that are hard on attention, for the tests of the oracle: one family per trap; and states with their arrays.
 * Both live until ha_test_release. */

#include "harness/api/kernels.h"
#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"

#include <math.h>

struct ha_test_input {
    const char *family;
    size_t keys, dim;
    enum ha_dtype dtype;
    float scale;
    uint64_t seed;
    float *q;            /* [dim] */
    float *k, *v;        /* [keys][dim], values exact in dtype */
    struct ha_rows rows; /* the same, stored in dtype */
    void *k_stored, *v_stored;
};

const char *ha_test_family_name(size_t family);
extern const size_t ha_test_families;

struct ha_test_input ha_test_input(size_t family, size_t keys, size_t dim, enum ha_dtype dtype, uint64_t seed);
/* after k or v has changed: stores it, and rounds it to dtype */
void ha_test_input_store(struct ha_test_input *in);

struct ha_ref_state ha_test_state(size_t dim);
/* of the input's query over rows in its dtype */
struct ha_ref_state ha_test_attend(const struct ha_test_input *in, const struct ha_rows *rows,
                                   const struct ha_bound *b);

/* family, sizes, type and seed, for a message */
const char *ha_test_input_says(const struct ha_test_input *in);

void ha_test_release(void);

#endif
