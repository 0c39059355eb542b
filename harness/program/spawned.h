#ifndef HA_PROGRAM_SPAWNED_H
#define HA_PROGRAM_SPAWNED_H

#include "harness/api/base.h"

/* Runs a program, argv[0] of PATH, until it ends; Ctrl-C ends it, with what it has started. out: where its stdout goes,
 * -1: nowhere. *code: what it exited with, 128 + the signal that killed it, or HA_SPAWNED_NOT_FOUND. last: the last
 * line that it wrote to stderr, but for argp's advice to try --help. HA_ERROR: it could not be run, or was interrupted.
 */
enum { HA_SPAWNED_NOT_FOUND = 127, HA_SPAWNED_LINE = 512 };
enum ha_status ha_spawned_run(char *const *argv, int out, int *code, char last[HA_SPAWNED_LINE], struct ha_why *why);

#endif
