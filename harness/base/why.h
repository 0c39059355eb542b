#ifndef HA_BASE_WHY_H
#define HA_BASE_WHY_H

#include "harness/api/base.h"

/* Writes the reason and returns the status, so that a failing function ends with
 * `return ha_why(why, HA_ERROR, "%s: cannot open: %s", path, strerror(errno));` */
enum ha_status ha_why(struct ha_why *why, enum ha_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The nearest of `words` (NULL-terminated) by edit distance, or NULL if none is near: for
 * "unknown key 'thread'; did you mean 'threads'?" */
const char *ha_nearest(const char *word, const char *const *words);

#endif
