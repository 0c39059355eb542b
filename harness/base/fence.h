#ifndef HA_BASE_FENCE_H
#define HA_BASE_FENCE_H

#include "harness/base/sanitizer.h"

/* AddressSanitizer stops at the very access to what is fenced. */
#if HA_ASAN
#include <sanitizer/asan_interface.h>
#define HA_FENCE(ptr, bytes)   ASAN_POISON_MEMORY_REGION(ptr, bytes)
#define HA_UNFENCE(ptr, bytes) ASAN_UNPOISON_MEMORY_REGION(ptr, bytes)
#else
#define HA_FENCE(ptr, bytes)   ((void)0)
#define HA_UNFENCE(ptr, bytes) ((void)0)
#endif

#endif
