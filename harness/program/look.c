#include "harness/engine/plugin.h"
#include "harness/program/commands.h"

enum ha_exit ha_look_exit(enum ha_status looked)
{
    static const enum ha_exit code[] = {
        [HA_OK] = HA_EXIT_OK,
        [HA_WAIVED] = HA_EXIT_ENVIRONMENT,
        [HA_ERROR] = HA_EXIT_USAGE,
    };
    return code[looked];
}

enum ha_exit ha_look_for_device(const char *name, struct ha_why *why)
{
    return ha_look_exit(ha_device_look(name, why));
}
