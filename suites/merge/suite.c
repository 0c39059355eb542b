#include "harness/base/why.h"
#include "suites/merge/check.h"
#include "suites/merge/result.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* a file to be judged is asked for before anything runs */
static enum ha_status look(const void *point, struct ha_why *why)
{
    const struct ha_merge_point *p = point;
    if (!*p->replay || access(p->replay, R_OK) == 0) return HA_OK;
    return ha_why(why, HA_ERROR, "replay=%.200s: %s", p->replay, strerror(errno));
}

const struct ha_suite ha_suite_lse_merge = {
    .name = "lse_merge",
    .doc = "is a merge of attention states exact? ours, or yours (docs/merging.md)",
    .key = ha_merge_key,
    .keys = HA_MERGE_KEYS,
    .class_key = "case",
    .field = ha_merge_field,
    .fields = HA_MERGE_FIELDS,
    .file = { "lse_merge.csv" },
    .point_bytes = sizeof(struct ha_merge_point),
    .row_bytes = sizeof(struct ha_merge_result),
    .uses = ha_merge_uses,
    .settle = ha_merge_settle,
    .look = look,
    .together = ha_merge_together,
    .begin = ha_merge_begin,
    .open = ha_merge_open,
    .check = ha_merge_check,
    .close = ha_merge_close,
    .end = ha_merge_end,
    .print = ha_merge_print,
    .conclude = ha_merge_conclude,
};
