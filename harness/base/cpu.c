#include "harness/base/cpu.h"

#include "harness/api/kernels.h"

#include <stdlib.h>
#include <string.h>

/* in such an order that what one builds on stands before it */
static const struct {
    const char *name;
    unsigned bit, needs;
} levels[] = {
    { "c", HA_CPU_C, 0 },
    { "avx2", HA_CPU_AVX2, HA_CPU_C },
    { "avx512", HA_CPU_AVX512, HA_CPU_AVX2 },
    { "avx512_ymm", HA_CPU_AVX512_YMM, HA_CPU_AVX512 },
    { "avx512_vpopcntdq", HA_CPU_AVX512_VPOPCNTDQ, HA_CPU_AVX512 },
    { "avx512_bf16", HA_CPU_AVX512_BF16, HA_CPU_AVX512 },
    { "amx", HA_CPU_AMX, HA_CPU_AVX512_BF16 },
    { "neon", HA_CPU_NEON, HA_CPU_C },
    { "sve256", HA_CPU_SVE256, HA_CPU_NEON },
    { "sve512", HA_CPU_SVE512, HA_CPU_NEON },
};
enum { LEVELS = sizeof levels / sizeof *levels };

/* The instruction sets that HABENCH_WITHOUT takes from the CPU; *unknown: a word of it that is none, or NULL. */
static unsigned taken(const char **unknown)
{
    const char *list = getenv("HABENCH_WITHOUT");
    unsigned bits = 0;
    *unknown = NULL;
    for (const char *p = list && *list ? list : NULL; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        const size_t n = strcspn(p, ",");
        size_t i = 1; /* c cannot be taken */
        while (i < LEVELS && (strlen(levels[i].name) != n || strncmp(levels[i].name, p, n) != 0)) i++;
        if (i < LEVELS) bits |= levels[i].bit;
        else if (!*unknown) *unknown = p;
    }
    return bits;
}

const char *ha_cpu_unknown(void)
{
    const char *unknown;
    taken(&unknown);
    return unknown;
}

static unsigned nested(unsigned bits)
{
    for (size_t i = 0; i < LEVELS; i++)
        if ((bits & levels[i].needs) != levels[i].needs) bits &= ~levels[i].bit;
    return bits;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* of arch_prctl, <asm/prctl.h> in newer systems: permission to use the state component, for this process and all its
 * threads */
enum { REQUEST_COMPONENT = 0x1023, TILE_DATA = 18 };
/* in XCR0: tile configuration and tile data */
enum { TILE_STATE = 3 << 17 };

/* clang 14 does not know "f16c" and the later ones as arguments of __builtin_cpu_supports; that one asks for the saved
 * registers */
enum {
    LEAF_1_C_F16C = 1u << 29,
    LEAF_7_D_AMX_BF16 = 1u << 22,
    LEAF_7_D_AMX_TILE = 1u << 24,
    LEAF_7_1_A_AVX512_BF16 = 1u << 5
};

static unsigned saved_state(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static unsigned detect(void)
{
    unsigned a = 0, b, c = 0, d = 0, bits = HA_CPU_C;
    __builtin_cpu_init();
    __get_cpuid(1, &a, &b, &c, &d);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && (c & LEAF_1_C_F16C)) bits |= HA_CPU_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl"))
        bits |= HA_CPU_AVX512 | HA_CPU_AVX512_YMM;
    if (__builtin_cpu_supports("avx512vpopcntdq")) bits |= HA_CPU_AVX512_VPOPCNTDQ;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & LEAF_7_1_A_AVX512_BF16)) bits |= HA_CPU_AVX512_BF16;
    const unsigned amx = LEAF_7_D_AMX_TILE | LEAF_7_D_AMX_BF16;
    bits = nested(bits); /* with AVX-512 there is xgetbv */
    if ((bits & HA_CPU_AVX512_BF16) && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & amx) == amx
        && (saved_state() & TILE_STATE) == TILE_STATE && syscall(SYS_arch_prctl, REQUEST_COMPONENT, TILE_DATA) == 0)
        bits |= HA_CPU_AMX;
    return bits;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>
#include <sys/prctl.h>

/* of AT_HWCAP and prctl; older headers lack the later ones */
enum { HAS_ASIMD = 1 << 1, HAS_SVE = 1 << 22, GET_VECTOR_LENGTH = 51, LENGTH_BYTES = 0xffff };

static unsigned detect(void)
{
    const unsigned long has = getauxval(AT_HWCAP);
    unsigned bits = HA_CPU_C;
    if (has & HAS_ASIMD) bits |= HA_CPU_NEON;
    if (!(has & HAS_SVE)) return bits;
    const int length = prctl(GET_VECTOR_LENGTH);
    if (length >= 0 && (length & LENGTH_BYTES) == 256 / 8) bits |= HA_CPU_SVE256;
    if (length >= 0 && (length & LENGTH_BYTES) == 512 / 8) bits |= HA_CPU_SVE512;
    return bits;
}
#else
static unsigned detect(void) { return HA_CPU_C; }
#endif

static _Atomic unsigned detected; /* 0: not asked yet; two threads that ask find the same */
static unsigned masked;
static _Atomic unsigned usable; /* the same less those, or 0: asked in inner loops */

unsigned ha_cpu_detected(void)
{
    const char *unknown;
    if (!detected) detected = nested(detect() & ~taken(&unknown));
    return detected;
}

unsigned ha_cpu_bits(void)
{
    if (!usable) usable = nested(ha_cpu_detected() & ~masked);
    return usable;
}

void ha_cpu_mask(unsigned bits)
{
    masked = bits & ~(unsigned)HA_CPU_C;
    usable = 0;
}
