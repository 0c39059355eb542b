#ifndef HA_KERNELS_SPECIALISED_H
#define HA_KERNELS_SPECIALISED_H

#include "harness/base/sanitizer.h"

/* HA_SPECIALISED: a function of which every caller gets its own copy, cut to the constants that it passes. Under a
 * sanitizer one copy serves all callers: it reads and writes the same memory, and compiles twenty times as fast. */

#if HA_ASAN || HA_TSAN
#define HA_SPECIALISED inline
#else
#define HA_SPECIALISED inline __attribute__((always_inline))
#endif
#define ALWAYS static HA_SPECIALISED

/* function(args, type), with the type of the args as a constant */
#define BY_DTYPE(function, args)                    \
    switch ((args)->dtype) {                        \
    case HA_F32: function((args), HA_F32); break;   \
    case HA_F16: function((args), HA_F16); break;   \
    case HA_BF16: function((args), HA_BF16); break; \
    }

/* A macro: gcc takes a function that only prefetches for one without effect and drops its calls. */
#define PREFETCH(p) __builtin_prefetch((p), 0, 2)

#endif
