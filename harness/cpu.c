#include "harness/cpu.h"

#include "harness/api/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* clang 14 does not know "f16c" as an argument of __builtin_cpu_supports */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

unsigned ha_cpu_bits(void)
{
    unsigned bits = HA_CPU_C;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
        bits |= HA_CPU_AVX2;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl"))
            bits |= HA_CPU_AVX512;
    }
#endif
    return bits;
}
