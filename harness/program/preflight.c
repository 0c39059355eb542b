#include "harness/program/commands.h"

#include "harness/engine/machine.h"
#include "harness/engine/point.h"

#include <string.h>

static enum ha_exit exit_of(enum ha_status looked)
{
    static const enum ha_exit code[] = {
        [HA_OK] = HA_EXIT_OK,
        [HA_FAIL] = HA_EXIT_MISSING,
        [HA_WAIVED] = HA_EXIT_ENVIRONMENT,
        [HA_ERROR] = HA_EXIT_USAGE,
    };
    return code[looked];
}

enum ha_exit ha_preflight_device(const char *name, struct ha_why *why) { return exit_of(ha_device_look(name, why)); }

static enum ha_exit look(const struct ha_plan_entry *e, struct ha_why *why)
{
    return exit_of(e->suite->look ? e->suite->look(e->point, why) : HA_OK);
}

/* Neighbours mostly name the same device: it is asked for once. */
static enum ha_exit look_at_devices(const struct ha_plan_entry *e, char last[HA_VALUE_MAX], struct ha_why *why)
{
    char value[HA_VALUE_MAX];
    for (size_t k = 0; k < e->suite->keys; k++) {
        if (!e->suite->key[k].device || !ha_point_uses(e->suite, e->point, k)) continue;
        ha_point_value(e->point, &e->suite->key[k], value);
        if (!*value || !strcmp(value, last)) continue;
        const enum ha_exit code = ha_preflight_device(value, why);
        if (code != HA_EXIT_OK) return code;
        memcpy(last, value, HA_VALUE_MAX);
    }
    return HA_EXIT_OK;
}

enum ha_exit ha_preflight(const struct ha_plan *plan, struct ha_why *why)
{
    char last[HA_VALUE_MAX] = "";
    enum ha_exit code = HA_EXIT_OK;
    for (size_t i = 0; i < plan->entries && code == HA_EXIT_OK; i++) {
        code = look_at_devices(&plan->entry[i], last, why);
        if (code == HA_EXIT_OK) code = look(&plan->entry[i], why);
    }
    return code;
}
