#ifndef HA_KERNELS_C_OPS_H
#define HA_KERNELS_C_OPS_H

#include "harness/api/kernels.h"

void ha_c_attend_chunk(const struct ha_chunk *c);
void ha_c_attend_packed_f32(const struct ha_packed_chunk *c);
void ha_c_attend_packed_f16(const struct ha_packed_chunk *c);
void ha_c_attend_packed_bf16(const struct ha_packed_chunk *c);
void ha_c_pack(const struct ha_pack *p);
void ha_c_unpack(const struct ha_unpack *u);
void ha_c_merge(const struct ha_merge *m);
void ha_c_score(const struct ha_score *s);
void ha_c_topk(const struct ha_topk *t);
void ha_c_digest(const struct ha_digest *g);
void ha_c_digest_score(const struct ha_digest_score *s);
void ha_c_softmax(const struct ha_softmax *s);
void ha_c_attend(const struct ha_kernels *self, const struct ha_attend *a);
void ha_c_attend_part(const struct ha_kernels *self, const struct ha_attend_part *p);
void ha_c_attend_join(const struct ha_kernels *self, const struct ha_attend_join *j);
size_t ha_c_attend_scratch_bytes(const struct ha_attend *a);
size_t ha_c_attend_state_bytes(const struct ha_attend *a);
bool ha_c_attend_splits(const struct ha_attend *a);
void ha_c_attend_all(const struct ha_kernels *self, const struct ha_attend_all *all);
size_t ha_c_attend_all_bytes(const struct ha_attend *largest, size_t count, size_t threads);
uint64_t ha_c_read(const void *p, size_t bytes);
double ha_c_flops(size_t rounds);

#endif
