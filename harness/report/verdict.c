#include "harness/report/verdict.h"

#include <string.h>

static const char *const names[HA_VERDICTS] = {
    [HA_NOT_RUN] = "not run",       [HA_PASS] = "pass",           [HA_VERDICT_FAIL] = "fail",
    [HA_VERDICT_WAIVED] = "waived", [HA_VERDICT_ERROR] = "error", [HA_UNCHECKED] = "unchecked",
};

const char *ha_verdict_name(enum ha_verdict verdict) { return names[verdict]; }

const char *ha_verdict_shown(enum ha_verdict verdict)
{
    return verdict == HA_VERDICT_FAIL ? "FAIL" : verdict == HA_VERDICT_ERROR ? "ERROR" : names[verdict];
}

enum ha_verdict ha_verdict_of(const char *name)
{
    for (int v = 0; v < HA_VERDICTS; v++)
        if (!strcmp(names[v], name)) return (enum ha_verdict)v;
    return HA_NOT_RUN;
}

void ha_result_set(const struct ha_group *group, size_t i, enum ha_status status, const struct ha_why *why)
{
    static const enum ha_verdict verdict[] = { [HA_OK] = HA_NOT_RUN,
                                               [HA_FAIL] = HA_VERDICT_FAIL,
                                               [HA_WAIVED] = HA_VERDICT_WAIVED,
                                               [HA_ERROR] = HA_VERDICT_ERROR };
    struct ha_result *r = group->row[i];
    if (status == HA_OK || r->verdict != HA_NOT_RUN) return;
    r->verdict = verdict[status];
    memcpy(r->reason, why->text, sizeof r->reason);
}
