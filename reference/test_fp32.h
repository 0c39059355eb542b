#ifndef HA_REFERENCE_TEST_FP32_H
#define HA_REFERENCE_TEST_FP32_H

/* Honest implementations in binary32, every rounding spelled, for the tests of the bounds. */

#include "reference/test_inputs.h"

enum { HA_TEST_DIM_MAX = 128 };

struct ha_test_method {
    const char *name;
    /* exact_joins: weights are powers of two, relative to integers; parts of the keys are joined pairwise */
    struct ha_profile profile;
    bool fused;      /* fma in the two products */
    bool normalised; /* a chunk is divided by its sum before it is joined */
    bool rounded;    /* the weights are cast to the type of V */
};

extern const struct ha_test_method ha_test_method[];
extern const size_t ha_test_methods;

/* Attention over the rows order[0 .. end[runs - 1]); run r ends at end[r]. Returns the LSE. */
float ha_test_fp32_attend(const struct ha_test_method *m, const struct ha_test_input *in, const uint32_t *order,
                          const size_t *end, size_t runs, float *o);

#endif
