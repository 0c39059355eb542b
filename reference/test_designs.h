#ifndef HA_REFERENCE_TEST_DESIGNS_H
#define HA_REFERENCE_TEST_DESIGNS_H

/* Further honest ways to attend in binary32, as engines go about it, each with what it would claim of itself: besides
 * those of test_fp32.h, which are like our own kernels. */

#include "reference/test_fp32.h"

enum ha_test_adding {
    HA_TEST_IN_TURN,
    HA_TEST_PAIRWISE,    /* halves, and halves of those */
    HA_TEST_COMPENSATED, /* Kahan */
    HA_TEST_CUT,         /* the last digits of each sum are lost, as on tensor cores */
    HA_TEST_BINARY64,
};

struct ha_test_design {
    const char *name;
    struct ha_profile profile; /* as claimed; types: those of the case */
    enum ha_test_adding dot, sum;
    size_t tile;   /* keys that are weighed relative to one maximum before it moves on; 0: all */
    size_t warps;  /* key j belongs to warp j % warps, whose sums are joined in the end; 0: one */
    bool base2;    /* log2 e is folded into the scale, and the LSE is made from log2 */
    bool in_query; /* the query is scaled, and not the score */
    bool shares;   /* a weight is divided by the sum before it meets V */
    bool rounded;  /* weights are cast to the type of V */
    bool tf32;     /* what a product takes has 11 bits */
    bool half;     /* scores are cast to f16 */
    bool cubic;    /* 2^x is a polynomial of degree 3 */
    bool fast;     /* exp and log are off by as much as may be expected of fast ones */
};
extern const struct ha_test_design ha_test_design[];
extern const size_t ha_test_designs;

/* with out_type and the types that it rounds to, where V is of type t */
struct ha_profile ha_test_design_profile(const struct ha_test_design *d, enum ha_dtype t);

/* Attention over the rows 0 .. keys of in, keys > 0. Returns the LSE. */
float ha_test_design_attend(const struct ha_test_design *d, const struct ha_test_input *in, const float *q, size_t keys,
                            float *o);

#endif
