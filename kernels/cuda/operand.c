#include "kernels/cuda/operand.h"
#include "kernels/cuda/cuda.h"

#include <stdarg.h>
#include <stdio.h>

void ha_cuda_takes(struct ha_cuda_check *c, const char *role, const void *ptr, size_t bytes, size_t read_bytes)
{
    if (c->wrong) return;
    const enum ha_place place = ha_cuda_operand(c->stream, c->span.name, role, ptr, bytes, HA_AT_DEVICE | HA_AT_MAPPED);
    c->wrong = !place;
    if (place == HA_AT_MAPPED) c->span.zero_copy_bytes += read_bytes;
}

void ha_cuda_takes_rows(struct ha_cuda_check *c, const char *role, const void *ptr, bool indexed, size_t bytes,
                        size_t read_bytes)
{
    ha_cuda_takes(c, role, ptr, bytes, read_bytes);
}

bool ha_cuda_refuse(struct ha_cuda_check *c, const char *format, ...)
{
    char text[256];
    va_list args;
    if (c->wrong) return false;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ha_cuda_fail_on(c->stream, c->span.name, "%s", text);
    c->wrong = true;
    return false;
}

bool ha_cuda_type_fits(struct ha_cuda_check *c, const char *what, enum ha_dtype type)
{
    return (unsigned)type < HA_DTYPE_COUNT || ha_cuda_refuse(c, "%s of an unknown type", what);
}

bool ha_cuda_half_fits(struct ha_cuda_check *c, enum ha_dtype type)
{
    return type == HA_F32 || type == HA_F16
           || ha_cuda_refuse(c, "numbers of type %d, not of single or half precision", (int)type);
}

bool ha_cuda_heads_fit(struct ha_cuda_check *c, const char *what, size_t heads, size_t kv_heads)
{
    return (kv_heads && heads % kv_heads == 0)
           || ha_cuda_refuse(c, "%zu %s are no multiple of %zu KV heads", heads, what, kv_heads);
}

bool ha_cuda_bits_fit(struct ha_cuda_check *c, size_t bits)
{
    return (bits && bits % 32 == 0 && bits <= HA_CODE_BITS_MAX)
           || ha_cuda_refuse(c, "codes of %zu bits, not 32, 64, ... or %d", bits, HA_CODE_BITS_MAX);
}
