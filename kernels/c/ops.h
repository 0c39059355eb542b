#ifndef HA_KERNELS_C_OPS_H
#define HA_KERNELS_C_OPS_H

#include "harness/api/kernels.h"

void ha_c_attend_chunk(const struct ha_chunk *c);
void ha_c_merge(const struct ha_merge *m);
void ha_c_score(const struct ha_score *s);
void ha_c_attend(const struct ha_kernels *self, const struct ha_attend *a);
size_t ha_c_attend_scratch_bytes(const struct ha_attend *a);

#endif
