#ifndef HA_KERNELS_AVX512_OPS_H
#define HA_KERNELS_AVX512_OPS_H

#include "harness/api/kernels.h"

/* The compiler may use the instructions; without them the table is absent. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define HA_ISA_AVX512 1
#endif

void ha_avx512_attend_chunk(const struct ha_chunk *c);
void ha_avx512_attend_packed_f32(const struct ha_packed_chunk *c);
void ha_avx512_attend_packed_f16(const struct ha_packed_chunk *c);
void ha_avx512_attend_packed_bf16(const struct ha_packed_chunk *c);
void ha_avx512_merge(const struct ha_merge *m);
void ha_avx512_score(const struct ha_score *s);
void ha_avx512_topk(const struct ha_topk *t);
void ha_avx512_digest(const struct ha_digest *g);
void ha_avx512_digest_score(const struct ha_digest_score *s);
void ha_avx512_softmax(const struct ha_softmax *s);
uint64_t ha_avx512_read(const void *p, size_t bytes);
double ha_avx512_flops(size_t rounds);

#endif
