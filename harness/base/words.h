#ifndef HA_WORDS_H
#define HA_WORDS_H

#include "harness/api/base.h"

/* HA_ERROR with "unknown KIND 'WORD'; did you mean 'NEAREST'?", or, where nothing is near, with the
 * words that are valid (NULL-terminated list). */
enum ha_status ha_unknown(struct ha_why *why, const char *kind, const char *word, const char *const *words);

/* The index of the word; HA_ERROR: as ha_unknown. */
enum ha_status ha_word_find(const char *kind, const char *word, const char *const *words, size_t *index,
                            struct ha_why *why);
/* "f32", "f16", "bf16", as enum ha_dtype; NULL behind the last */
const char *ha_dtype_word(size_t dtype);

/* why becomes "PREFIX: why"; returns status */
enum ha_status ha_why_prefix(struct ha_why *why, enum ha_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "500ms", "90s", "10m", "2h" */
enum ha_status ha_duration_parse(const char *text, uint64_t *out_ns, struct ha_why *why);

#endif
