#ifndef HA_KERNELS_AVX2_OPS_H
#define HA_KERNELS_AVX2_OPS_H

#include "harness/api/kernels.h"

/* The compiler may use the instructions; without them the table is absent. */
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define HA_ISA_AVX2 1
#endif

void ha_avx2_attend_chunk(const struct ha_chunk *c);
void ha_avx2_attend_packed_f32(const struct ha_packed_chunk *c);
void ha_avx2_attend_packed_f16(const struct ha_packed_chunk *c);
void ha_avx2_attend_packed_bf16(const struct ha_packed_chunk *c);
void ha_avx2_pack(const struct ha_pack *p);
void ha_avx2_unpack(const struct ha_unpack *u);
void ha_avx2_merge(const struct ha_merge *m);
void ha_avx2_score(const struct ha_score *s);
void ha_avx2_topk(const struct ha_topk *t);
void ha_avx2_digest(const struct ha_digest *g);
void ha_avx2_digest_score(const struct ha_digest_score *s);
void ha_avx2_softmax(const struct ha_softmax *s);
uint64_t ha_avx2_read(const void *p, size_t bytes);
double ha_avx2_flops(size_t rounds);

#endif
