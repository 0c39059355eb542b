#ifndef HA_BASE_WHY_H
#define HA_BASE_WHY_H

#include "harness/api/base.h"

/* Writes the reason and returns the status, so that a failing function ends with
 * `return ha_why(why, HA_ERROR, "%s: cannot open: %s", path, strerror(errno));` */
enum ha_status ha_why(struct ha_why *why, enum ha_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* why becomes "PREFIX: why"; returns status */
enum ha_status ha_why_prefix(struct ha_why *why, enum ha_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Passes a failure on; only where nothing has to be unwound. */
#define HA_TRY(call)                                  \
    do {                                              \
        enum ha_status try_status_ = (call);          \
        if (try_status_ != HA_OK) return try_status_; \
    } while (0)

/* ---- words of users, and what was meant ---- */

/* The nearest of `words` (NULL-terminated) by edit distance, or NULL if none is near: for
 * "unknown key 'thread'; did you mean 'threads'?" */
const char *ha_nearest(const char *word, const char *const *words);
/* HA_ERROR with "unknown KIND 'WORD'; did you mean 'NEAREST'?", or, where nothing is near, with the
 * words that are valid (NULL-terminated list). */
enum ha_status ha_unknown(struct ha_why *why, const char *kind, const char *word, const char *const *words);

/* The index of the word; HA_ERROR: as ha_unknown. */
enum ha_status ha_word_find(const char *kind, const char *word, const char *const *words, size_t *index,
                            struct ha_why *why);
/* "f32", "f16", "bf16", as enum ha_dtype; NULL behind the last */
const char *ha_dtype_word(size_t dtype);

/* "500ms", "90s", "10m", "2h" */
enum ha_status ha_duration_parse(const char *text, uint64_t *out_ns, struct ha_why *why);
/* "80GB" is 80 * 10^9, "80GiB" 80 * 2^30; also B, kB, MB, TB, KiB, MiB, TiB, and decimals, "16.1GB": of what is no
 * whole number of bytes the part of a byte is left out. Not 0. */
enum ha_status ha_bytes_parse(const char *text, uint64_t *out, struct ha_why *why);

#endif
