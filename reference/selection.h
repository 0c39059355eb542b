#ifndef HA_REFERENCE_SELECTION_H
#define HA_REFERENCE_SELECTION_H

/* Reading a reported selection, the same for every definition. */

#include "harness/api/reference.h"

/* what mark[token] holds; PADDING comes with the side */
enum { HA_MARK_NONE = 0, HA_MARK_DEVICE = 1, HA_MARK_HOST = 2, HA_MARK_PADDING = 4 };

/* Where a selection was reported, for the reason of a failure. */
struct ha_place {
    const char *variant;
    size_t layer, seq, head;
};

/* mark: [tokens], overwritten. HA_FAIL: a part that makes no sense, a token that does not exist, or one
 * that is used twice. */
enum ha_status ha_selection_mark(const struct ha_selection *s, size_t tokens, uint8_t *mark, const struct ha_place *at,
                                 struct ha_why *why);

/* HA_FAIL: `VARIANT layer 0 seq 0 head 3: key 17 ` and what is wrong with it */
enum ha_status ha_selection_wrong(const struct ha_place *at, size_t token, const char *what, struct ha_why *why);

#endif
