#ifndef HA_CPU_PLAN_H
#define HA_CPU_PLAN_H

/* What is to be run: the sections of a suite file, or ids. A suite file is INI (inih). Each [section] is a block of
 * points, the cross product of its keys' values, e.g. `dtype = f16 bf16`. Keys of a section [default], the first, apply
 * to all. `axis = KEY` makes a section a line of the scaling table. Errors name the file, the line and the nearest
 * valid word. */

#include "suites/kernels/id.h"
#include "suites/kernels/results.h"

#include <stdio.h>

struct ha_cpu_section {
    char name[64];
    enum ha_cpu_key axis;       /* HA_CPU_KEYS: none */
    struct ha_cpu_point *point; /* [count] */
    size_t *result; /* [count] of the plan's results: a point that is in several sections is measured once */
    size_t count;
};

struct ha_cpu_plan {
    struct ha_cpu_section *section;
    size_t sections;
    struct ha_cpu_result *result;
    size_t results;
};

enum ha_status ha_cpu_plan_read(const char *path, struct ha_cpu_plan *plan, struct ha_why *why);
/* from memory; name stands in messages */
enum ha_status ha_cpu_plan_parse(const char *name, const char *text, struct ha_cpu_plan *plan, struct ha_why *why);
/* one point more, in the latest section; the first makes one without a name */
enum ha_status ha_cpu_plan_add(struct ha_cpu_plan *plan, const struct ha_cpu_point *point, struct ha_why *why);
/* Keeps what `keep` says, which may change a point, and then makes the results: one for each point. */
enum ha_status ha_cpu_plan_close(struct ha_cpu_plan *plan, bool (*keep)(const void *arg, struct ha_cpu_point *point),
                                 const void *arg, struct ha_why *why);
void ha_cpu_plan_free(struct ha_cpu_plan *plan);

#endif
