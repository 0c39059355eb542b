#include "suites/link/results.h"

const char *ha_link_state_name(enum ha_link_state state)
{
    static const char *const name[] = {
        [HA_LINK_NOT_RUN] = "not run",     [HA_LINK_WAIVED] = "waived", [HA_LINK_FAILED] = "fail",
        [HA_LINK_ERROR] = "error",         [HA_LINK_CHECKED] = "pass",  [HA_LINK_MEASURED] = "pass",
        [HA_LINK_UNCHECKED] = "unchecked",
    };
    return name[state];
}
