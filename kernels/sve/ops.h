#ifndef HA_KERNELS_SVE_OPS_H
#define HA_KERNELS_SVE_OPS_H

#include "harness/api/kernels.h"

/* These files are compiled twice, with HA_SVE_BITS 256 and 512; they run only where the vectors have that length. The
 * compiler may use the instructions; without them the table is absent. */
#if defined(HA_SVE_BITS) && defined(__ARM_FEATURE_SVE_BITS) && !defined(__AARCH64EB__)
#if __ARM_FEATURE_SVE_BITS == HA_SVE_BITS
#define HA_ISA_SVE 1
#endif
#endif

#if defined(HA_SVE_BITS) && HA_SVE_BITS == 256
#define HA_SVE(name) ha_sve256_##name
#else
#define HA_SVE(name) ha_sve512_##name
#endif

void HA_SVE(attend_chunk)(const struct ha_chunk *c);
void HA_SVE(attend_packed_f32)(const struct ha_packed_chunk *c);
void HA_SVE(attend_packed_f16)(const struct ha_packed_chunk *c);
void HA_SVE(attend_packed_bf16)(const struct ha_packed_chunk *c);
void HA_SVE(merge)(const struct ha_merge *m);
void HA_SVE(score)(const struct ha_score *s);
void HA_SVE(topk)(const struct ha_topk *t);
void HA_SVE(digest)(const struct ha_digest *g);
void HA_SVE(digest_score)(const struct ha_digest_score *s);
void HA_SVE(softmax)(const struct ha_softmax *s);
uint64_t HA_SVE(read)(const void *p, size_t bytes);
double HA_SVE(flops)(size_t rounds);

#endif
