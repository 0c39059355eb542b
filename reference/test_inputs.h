#ifndef HA_REFERENCE_TEST_INPUTS_H
#define HA_REFERENCE_TEST_INPUTS_H

/* Inputs that are hard on attention, for the tests of the oracle: one family per trap. */

#include "harness/api/kernels.h"

struct ha_test_input {
    size_t keys, dim;
    enum ha_dtype dtype;
    float scale;
    uint64_t seed;
    float *q;     /* [dim] */
    float *k, *v; /* [keys][dim], values exact in dtype */
    void *k_stored, *v_stored;
};

const char *ha_test_family_name(size_t family);
extern const size_t ha_test_families;

/* Exits the test on lack of memory. */
void ha_test_input_make(struct ha_test_input *in, size_t family, size_t keys, size_t dim, enum ha_dtype dtype,
                        uint64_t seed);
struct ha_rows ha_test_input_rows(const struct ha_test_input *in);
void ha_test_input_free(struct ha_test_input *in);

#endif
