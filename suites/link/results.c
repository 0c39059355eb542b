#include "suites/link/results.h"

#include <string.h>

const struct ha_link_result *ha_link_figure(const struct ha_link_results *r, const char *method, size_t piece_bytes,
                                            bool scattered)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct ha_link_result *x = &r->result[i];
        if (x->state == HA_LINK_MEASURED && x->point.piece_bytes == piece_bytes && x->point.scattered == scattered
            && !strcmp(x->point.method->name, method))
            return x;
    }
    return NULL;
}

const char *ha_link_state_name(enum ha_link_state state)
{
    static const char *const name[] = {
        [HA_LINK_NOT_RUN] = "not run",     [HA_LINK_WAIVED] = "waived", [HA_LINK_FAILED] = "fail",
        [HA_LINK_ERROR] = "error",         [HA_LINK_CHECKED] = "pass",  [HA_LINK_MEASURED] = "pass",
        [HA_LINK_UNCHECKED] = "unchecked",
    };
    return name[state];
}
