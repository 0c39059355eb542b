/* Tokens that stay on the device: the first ones, and those before the step. */

#include "reference/definitions.h"

size_t ha_def_window_units(const struct ha_def_window *w, size_t n)
{
    return n > w->sink + w->recent ? (n - w->sink - w->recent) / w->unit : 0;
}

enum ha_status ha_def_window_judge(const struct ha_def_window *w, const struct ha_def_head *h, const uint8_t *mark,
                                   struct ha_why *why)
{
    const size_t before = h->tokens - h->queries, end = w->sink + ha_def_window_units(w, before) * w->unit;
    for (size_t j = 0; j < h->tokens; j++) {
        const bool sink = j < w->sink, recent = j + w->recent >= before;
        if ((sink || recent) && mark[j] == HA_MARK_NONE)
            return ha_def_wrong(h, why, "key %zu is missing: it is %s", j,
                                j >= before ? "new"
                                : sink      ? "of the sink"
                                            : "recent");
        if (!sink && !recent && j >= end && mark[j] != HA_MARK_NONE)
            return ha_def_wrong(h, why, "key %zu is used: it has left the window, and its block is not whole", j);
    }
    return HA_OK;
}
