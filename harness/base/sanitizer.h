#ifndef HA_BASE_SANITIZER_H
#define HA_BASE_SANITIZER_H

/* Which sanitizer this is compiled for, 0 or 1 each: gcc and clang say so in different words. */

#if defined __has_feature
#define HA_ASAN __has_feature(address_sanitizer)
#define HA_TSAN __has_feature(thread_sanitizer)
#else
#ifdef __SANITIZE_ADDRESS__
#define HA_ASAN 1
#else
#define HA_ASAN 0
#endif
#ifdef __SANITIZE_THREAD__
#define HA_TSAN 1
#else
#define HA_TSAN 0
#endif
#endif
enum { HA_SANITIZED = HA_ASAN || HA_TSAN };

#endif
