#include "suites/merge/check.h"
#include "suites/merge/result.h"

#include "harness/base/registry.h"

/* the gallery */
static void print_defects(FILE *out)
{
    for (size_t i = 0; i < ha_merge_suite.defects_count; i++) {
        const struct ha_merge_defect *d = &ha_merge_suite.defects[i];
        fprintf(out, "%-22s %s\n%22s found by %s%s%s\n", d->name, d->does, "", d->finder, d->seen[0] ? "; seen: " : "",
                d->seen);
    }
}
static const struct ha_list defects = { "defects", print_defects };

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
    .list = &defects,
    .lists = 1,
    .options = " exhaustive ",
    .uses = ha_merge_uses,
    .settle = ha_merge_settle,
    .look = ha_merge_look,
    .together = ha_merge_together,
    .begin = ha_merge_begin,
    .open = ha_merge_open,
    .check = ha_merge_check,
    .close = ha_merge_close,
    .end = ha_merge_end,
    .print = ha_merge_print,
    .conclude = ha_merge_conclude,
};
