#ifndef HA_BASE_TALLY_H
#define HA_BASE_TALLY_H

#include "harness/base/arena.h"

/* Bytes in use and at their peak, by tag; the arenas hold their lock around it. */
struct ha_tally {
    size_t now[HA_TAG_COUNT], peak[HA_TAG_COUNT];
};

static inline void ha_tally_add(struct ha_tally *t, enum ha_tag tag, size_t bytes)
{
    t->now[tag] += bytes;
    if (t->peak[tag] < t->now[tag]) t->peak[tag] = t->now[tag];
}

static inline void ha_tally_sub(struct ha_tally *t, enum ha_tag tag, size_t bytes) { t->now[tag] -= bytes; }

static inline const char *ha_tag_name(enum ha_tag tag)
{
    return tag == HA_TAG_KV ? "kv" : tag == HA_TAG_META ? "meta" : "scratch";
}

#endif
