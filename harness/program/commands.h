#ifndef HA_PROGRAM_COMMANDS_H
#define HA_PROGRAM_COMMANDS_H

#include "harness/engine/plan.h"
#include "harness/program/options.h"

/* What a command prints goes to stdout; each returns the exit code of the program, and why says what is behind it. */

/* `habench run` and `habench check` */
enum ha_exit ha_command_run(const struct ha_options *options, struct ha_why *why);
/* `habench list WHAT ...` */
enum ha_exit ha_command_list(const struct ha_options *options, struct ha_why *why);
/* What can be listed; NULL behind the last. */
const char *ha_list_name(size_t i);
bool ha_list_again(size_t i); /* an earlier one has its name: they are printed together */
/* `habench fit CASE -o FILE`: what a variant learns offline */
enum ha_exit ha_command_fit(const struct ha_options *options, struct ha_why *why);
/* `habench capture`: a trace of a model that reads a text */
enum ha_exit ha_command_capture(const struct ha_options *options, struct ha_why *why);
/* `habench capacity MODEL`: how many tokens fit beside its weights */
enum ha_exit ha_command_capacity(const struct ha_options *options, struct ha_why *why);
/* `habench nightly -o DIR`: a night of this machine, beside earlier ones */
enum ha_exit ha_command_nightly(const struct ha_options *options, struct ha_why *why);
/* `habench run gpu_day -o DIR`: the one word names a file of steps, which are run one after another */
bool ha_day_asked(const struct ha_options *options);
enum ha_exit ha_command_day(const struct ha_options *options, struct ha_why *why);
/* `habench compare BASE NEW...`: what has changed between folders */
enum ha_exit ha_command_compare(const struct ha_options *options, struct ha_why *why);
/* `habench compare --run OLD NEW`: both in turns, here */
enum ha_exit ha_command_turns(const struct ha_options *options, struct ha_why *why);
/* `habench history DIR`: figures over nights, and where they change */
enum ha_exit ha_command_history(const struct ha_options *options, struct ha_why *why);
/* `habench report DIR...`: a page of records, or their figures as text */
enum ha_exit ha_command_report(const struct ha_options *options, struct ha_why *why);
/* `habench probe`: measures the ceilings, and calibrates the meters (calibrate.h); with -o also to OUT/probe.csv and
 * OUT/env.json */
enum ha_exit ha_command_probe(const struct ha_options *options, struct ha_why *why);

/* `habench plan`: measures what this CPU wants of its kernels; HA_EXIT_ENVIRONMENT: not all of it could be */
enum ha_exit ha_command_plan(const struct ha_options *options, struct ha_why *why);

/* `habench doctor`: what makes figures of this machine worthless; HA_EXIT_ENVIRONMENT: something does */
enum ha_exit ha_command_doctor(const struct ha_options *options, struct ha_why *why);

/* The plan of words under the options. small: points of suite files are made small. HA_ERROR: usage. */
enum ha_status ha_program_plan(struct ha_plan *plan, const struct ha_options *options, char *const *words, size_t count,
                               bool small, struct ha_why *why);

/* Before anything runs: are the devices and the files there that its points name? A file that is damaged is no mistake:
 * its cases alone are not run. */
enum ha_exit ha_program_look(const struct ha_plan *plan, struct ha_why *why);

/* Is there a device of that name? HA_EXIT_USAGE: no. HA_EXIT_ENVIRONMENT: it is one of ours that was not built. */
enum ha_exit ha_look_for_device(const char *name, struct ha_why *why);
/* The exit code of what a look at a device or a file said. */
enum ha_exit ha_look_exit(enum ha_status looked);

#endif
