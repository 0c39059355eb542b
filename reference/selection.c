#include "reference/selection.h"

#include "harness/base/why.h"

#include <string.h>

enum ha_status ha_selection_wrong(const struct ha_place *at, size_t token, const char *what, struct ha_why *why)
{
    return ha_why(why, HA_FAIL, "%s layer %zu seq %zu head %zu: key %zu %s", at->variant, at->layer, at->seq, at->head,
                  token, what);
}

enum ha_status ha_selection_mark(const struct ha_selection *s, size_t tokens, uint8_t *mark, const struct ha_place *at,
                                 struct ha_why *why)
{
    memset(mark, HA_MARK_NONE, tokens);
    if (s->parts > HA_PARTS_MAX)
        return ha_why(why, HA_FAIL, "%s layer %zu seq %zu head %zu: %zu parts, at most %d are possible", at->variant,
                      at->layer, at->seq, at->head, s->parts, (int)HA_PARTS_MAX);
    for (size_t i = 0; i < s->parts; i++) {
        const struct ha_part *part = &s->part[i];
        if (part->padding > part->count || (part->count > 0 && !part->token))
            return ha_why(why, HA_FAIL, "%s layer %zu seq %zu head %zu: part %zu has %zu keys, %zu of them padding",
                          at->variant, at->layer, at->seq, at->head, i, part->token ? part->count : 0, part->padding);
        for (size_t j = 0; j < part->count; j++) {
            const size_t token = part->token[j];
            if (token >= tokens) return ha_selection_wrong(at, token, "does not exist yet", why);
            if (mark[token] != HA_MARK_NONE) return ha_selection_wrong(at, token, "is used twice", why);
            const int padding = j + part->padding >= part->count ? HA_MARK_PADDING : 0;
            mark[token] = (uint8_t)((part->on_device ? HA_MARK_DEVICE : HA_MARK_HOST) | padding);
        }
    }
    return HA_OK;
}
