#include "harness/program/list_kernels.h"

#include "harness/base/registry.h"

#include <stdio.h>
#include <string.h>

/* "; NAME has from it: attend_chunk, merge", where there are such kernels */
static void print_lent(const struct ha_kernels *best, const struct ha_kernels *k)
{
    bool any = false;
    for (size_t part = 0; ha_kernels_part(part); part++) {
        if (ha_kernels_origin(best->name, part) != k) continue;
        if (any) printf(", %s", ha_kernels_part(part));
        else printf("; %s has from it: %s", best->name, ha_kernels_part(part));
        any = true;
    }
}

enum ha_exit ha_list_kernels(const struct ha_options *o, struct ha_why *why)
{
    struct ha_kernels best;
    (void)o;
    if (ha_kernels_resolve(NULL, &best, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    for (size_t i = 0; i < ha_kernels_count; i++) {
        const struct ha_kernels *k = ha_kernels_all[i];
        const char *lack = ha_kernels_lack(k);
        const bool used = !strcmp(k->name, best.name);
        printf("%-12s %s", k->name, lack ? lack : used ? "available, used by default" : "available");
        if (!lack && !used) print_lent(&best, k);
        putchar('\n');
    }
    return HA_EXIT_OK;
}
