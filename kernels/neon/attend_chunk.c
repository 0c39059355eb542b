#include "kernels/neon/ops.h"

#if defined(HA_ISA_NEON)
#include "kernels/neon/simd.h"
#include "kernels/attend_chunk.inc"

void ha_neon_attend_chunk(const struct ha_chunk *c)
{
    switch (c->dtype) {
    case HA_F32: attend_chunk_f32(c); break;
    case HA_F16: attend_chunk_f16(c); break;
    case HA_BF16: attend_chunk_bf16(c); break;
    }
}
#endif
