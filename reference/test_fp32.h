#ifndef HA_REFERENCE_TEST_FP32_H
#define HA_REFERENCE_TEST_FP32_H

/* Honest implementations in binary32, every rounding spelled, for the tests of the bounds: of attention, and of merges
 * one for each way that engines go about it, with the oracle's view of the states that they read and write. */

#include "reference/test_inputs.h"

enum { HA_TEST_DIM_MAX = 128 };

struct ha_test_method {
    const char *name;
    /* exact_joins: weights are powers of two, relative to integers; parts of the keys are joined pairwise */
    struct ha_profile profile;
    bool fused;       /* fma in the two products */
    bool normalised;  /* a chunk is divided by its sum before it is joined */
    bool rounded;     /* the weights are cast to the type of V; profile.sum_rounded: for the denominator, too */
    bool lse_rounded; /* and the LSE, where the type can hold it; o is the caller's to round */
    bool cut;         /* additions over keys are not rounded, but lose their last digits */
    /* planted defects; 0: none */
    struct ha_test_plant {
        float exp_wave, exp_off; /* exp is off by this, relative: as a wave over the score, in one direction */
        float weight;            /* weights that meet V are off by this, either way by chance */
        float lost;              /* so many keys in the middle weigh nothing; part of one: as much less */
        bool cut;                /* as above, and not said */
    } plant;
};
/* the profile where V is of type t, o and LSE rounded to it */
struct ha_profile ha_test_method_profile(const struct ha_test_method *m, enum ha_dtype t);

extern const struct ha_test_method ha_test_method[];
extern const size_t ha_test_methods;

/* Attention over the rows order[0 .. end[runs - 1]); run r ends at end[r]. Returns the LSE. */
float ha_test_fp32_attend(const struct ha_test_method *m, const struct ha_test_input *in, const uint32_t *order,
                          const size_t *end, size_t runs, float *o);

enum { HA_TEST_MERGE_DIM = 64, HA_TEST_MERGE_STATES = 512 };

enum ha_test_way {
    HA_TEST_QUOTIENT,    /* sum of weight * o, over the sum of the weights */
    HA_TEST_RECIPROCAL,  /* the same, times 1 / sum */
    HA_TEST_SHARES,      /* sum of (weight / sum) * o */
    HA_TEST_ONLINE,      /* running maximum, sum and accumulator */
    HA_TEST_AS_THEY_ARE, /* sum of exp(L_k - L) * o */
};

struct ha_test_merge_method {
    const char *name;
    enum ha_form form;
    enum ha_test_way way;
    bool fused;
    double rescales;
};
extern const struct ha_test_merge_method ha_test_merge_method[];
extern const size_t ha_test_merge_methods;

/* As stored: lse is to base 2 in HA_FORM_BASE2, and the maximum in HA_FORM_MAX_SUM. */
struct ha_test_stored {
    float o[HA_TEST_MERGE_DIM], lse, sum;
};

/* What a merge may be made to do wrong, by so many ulp. */
struct ha_test_flaw {
    float weight; /* weight k is off by this times 2^-23, up for even k and down for odd */
    float sum;    /* the sum of the weights */
};

/* dim components, o rounded to dtype once. out may be one of the states. flaw may be NULL. */
void ha_test_fp32_merge(const struct ha_test_merge_method *way, const struct ha_test_stored *states, size_t count,
                        size_t dim, enum ha_dtype dtype, const struct ha_test_flaw *flaw, struct ha_test_stored *out);

struct ha_merge_bound ha_test_merge_bound(const struct ha_test_merge_method *way, enum ha_dtype dtype);

/* The oracle's state, o and bound in the caller's arrays [dim], with own bounds of 0. */
struct ha_ref_state ha_test_merge_state(const struct ha_test_stored *s, enum ha_form form, size_t dim, double *o,
                                        double *bound);

/* Largest |got - want| / bound, of o and of the LSE apart. NaN gives infinity, an infinite bound 0. */
struct ha_test_ratio {
    double o, lse;
} ha_test_merge_ratio(const struct ha_test_stored *got, enum ha_form form, const struct ha_ref_state *want);

#endif
