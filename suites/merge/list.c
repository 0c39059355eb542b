#include "suites/merge/list.h"

#include "harness/base/registry.h"

#include <stdio.h>

void ha_merge_list_defects(void)
{
    for (size_t i = 0; i < ha_merge_suite.defects_count; i++) {
        const struct ha_merge_defect *d = &ha_merge_suite.defects[i];
        printf("%-22s %s\n%22s found by %s%s%s\n", d->name, d->does, "", d->finder, d->seen[0] ? "; seen: " : "",
               d->seen);
    }
}
