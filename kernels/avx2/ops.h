#ifndef HA_KERNELS_AVX2_OPS_H
#define HA_KERNELS_AVX2_OPS_H

#include "harness/api/kernels.h"

/* The compiler may use the instructions; without them the table is absent. */
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define HA_ISA_AVX2 1
#endif

void ha_avx2_attend_chunk(const struct ha_chunk *c);
void ha_avx2_merge(const struct ha_merge *m);
void ha_avx2_score(const struct ha_score *s);

#endif
