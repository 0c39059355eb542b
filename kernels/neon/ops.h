#ifndef HA_KERNELS_NEON_OPS_H
#define HA_KERNELS_NEON_OPS_H

#include "harness/api/kernels.h"

/* The compiler may use the instructions; without them the table is absent. */
#if defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__)
#define HA_ISA_NEON 1
#endif

void ha_neon_attend_chunk(const struct ha_chunk *c);
void ha_neon_attend_packed_f32(const struct ha_packed_chunk *c);
void ha_neon_attend_packed_f16(const struct ha_packed_chunk *c);
void ha_neon_attend_packed_bf16(const struct ha_packed_chunk *c);
void ha_neon_merge(const struct ha_merge *m);
void ha_neon_score(const struct ha_score *s);
void ha_neon_topk(const struct ha_topk *t);
void ha_neon_digest(const struct ha_digest *g);
void ha_neon_digest_score(const struct ha_digest_score *s);
void ha_neon_softmax(const struct ha_softmax *s);
uint64_t ha_neon_read(const void *p, size_t bytes);
double ha_neon_flops(size_t rounds);

#endif
