#ifndef HA_API_BASE_H
#define HA_API_BASE_H

/* What every contract shares: status, reason, element types. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* WAIVED is neither passed nor failed: the machine, the device or the variant cannot do
 * this case, and the reason says which. ERROR: the case could not be judged. */
enum ha_status { HA_OK = 0, HA_FAIL = 1, HA_WAIVED = 2, HA_ERROR = 3 };

/* The compiler and its version: clang's text names it. */
#ifdef __clang__
#define HA_COMPILER __VERSION__
#else
#define HA_COMPILER "gcc " __VERSION__
#endif

/* Why a call did not return HA_OK: one line, no newline, names the cause and the fix. */
struct ha_why {
    char text[512];
};

/* Storage types of K and V. Arithmetic is binary32 whatever the storage. */
enum ha_dtype { HA_F32 = 0, HA_F16 = 1, HA_BF16 = 2 };
enum { HA_DTYPE_COUNT = 3 };

static inline size_t ha_dtype_bytes(enum ha_dtype t) { return t == HA_F32 ? 4u : 2u; }
static inline const char *ha_dtype_name(enum ha_dtype t) { return t == HA_F32 ? "f32" : t == HA_F16 ? "f16" : "bf16"; }

/* 8-bit floating point of the OCP (OFP8, revision 1.0): E4M3 has no infinity, and 448 is its largest; E5M2 ends at
 * 57344. */
enum ha_fp8 { HA_FP8_NONE = 0, HA_FP8_E4M3 = 1, HA_FP8_E5M2 = 2 };
enum { HA_FP8_COUNT = 3 };
static inline const char *ha_fp8_name(enum ha_fp8 t)
{
    return t == HA_FP8_E4M3 ? "e4m3" : t == HA_FP8_E5M2 ? "e5m2" : "none";
}

/* A function of the words that stand for 0, 1, ...: NULL behind the last. For options and keys that take words. */
#define HA_SHARED_WORDS(name, ...)                              \
    const char *name(size_t i)                                  \
    {                                                           \
        static const char *const word[] = { __VA_ARGS__ };      \
        return i < sizeof word / sizeof *word ? word[i] : NULL; \
    }
#define HA_WORDS(name, ...) static HA_SHARED_WORDS(name, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
#endif
