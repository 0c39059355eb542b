#ifndef HA_PARTS_LISTED_H
#define HA_PARTS_LISTED_H

/* Lists that the device makes and the host goes by. What cannot be one is refused before anything is read or written by
 * it: it may be the answer of a device that is wrong, or of one that computes nothing. */

#include "harness/api/variant.h"

/* HA_ERROR with these words; of a device of the kind "null", which makes no lists, HA_WAIVED. */
enum ha_status ha_list_refuse(const struct ha_context *ctx, struct ha_why *why, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* HA_OK: at most `most` entries, each below end. what: whose they are, static; host memory. */
enum ha_status ha_list_check(const struct ha_context *ctx, const char *what, const uint32_t *entry, size_t count,
                             size_t most, size_t end, struct ha_why *why);

#endif
