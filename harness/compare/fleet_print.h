#ifndef HA_COMPARE_FLEET_PRINT_H
#define HA_COMPARE_FLEET_PRINT_H

/* A fleet's verdict for a reader, for a program, for a CI server: the same in all. */

#include "harness/compare/fleet_shift.h"

#include <stdio.h>

/* The verdict in one line; who is missing; who stands out, and by what; groups, and what differs in them. */
void ha_fleet_print_table(FILE *out, const struct ha_fleet *fleet);
/* JSON lines, results/schema/fleet.schema.json */
void ha_fleet_print_json(FILE *out, const struct ha_fleet *fleet);
/* A test case for each machine, and one for the verdict of all. Whole, or not at all. */
enum ha_status ha_fleet_junit(const char *path, const struct ha_fleet *fleet, struct ha_why *why);

/* Of two fleets, behind what is said of the later one. */
void ha_fleet_shift_print_table(FILE *out, const struct ha_fleet_shift *shift);
void ha_fleet_shift_print_json(FILE *out, const struct ha_fleet_shift *shift);

/* In words, without a line's end: the verdict; what is with a machine. */
void ha_fleet_verdict_line(FILE *out, const struct ha_fleet *fleet);
void ha_fleet_machine_line(FILE *out, const struct ha_fleet *fleet, const struct ha_fleet_machine *machine);
void ha_fleet_disagreement_line(FILE *out, const struct ha_fleet *fleet, const struct ha_fleet_disagreement *of);
/* What one of these printed, the caller's; NULL: no memory. Two of the three are NULL. */
char *ha_fleet_line(const struct ha_fleet *fleet, const struct ha_fleet_machine *machine,
                    const struct ha_fleet_disagreement *disagreement);

/* What differs between machines of a group: a fact, and its values. */
struct ha_fleet_difference {
    const char *name;
    struct ha_fleet_value_of_fact {
        const char *value;
        const char *machine[5];
        size_t count;
    } * value; /* [values], the most frequent first */
    size_t values, room;
};
/* [*count], firmware and drivers first; the caller's, by ha_fleet_differences_free. NULL: none, or no memory. */
struct ha_fleet_difference *ha_fleet_differences(const struct ha_fleet *fleet, const struct ha_fleet_group *group,
                                                 size_t *count);
void ha_fleet_differences_free(struct ha_fleet_difference *differences, size_t count);

#endif
