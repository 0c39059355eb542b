#ifndef HA_RUN_H
#define HA_RUN_H

/* Runs cases: the engine behind `habench run` and `habench check`. */

#include "harness/api/case.h"
#include "harness/base/stop.h"
#include "harness/report/row.h"

struct ha_run_options {
    bool bench;           /* run: check, then measure; else check only */
    const char *suite;    /* column suite */
    const char *isa;      /* CPU kernel table, NULL = best */
    const char *out_dir;  /* NULL: no files */
    const char *dump_dir; /* NULL, or where the safetensors of each case go */
    const char *mutant;   /* NULL, or the planted defect of suites/variants/mutants.c */
    uint64_t max_time_ns; /* of the whole run; 0: none */
    bool resume;          /* cases already complete in out_dir are skipped */
    bool progress;        /* a line on stderr: case i of n, time left */
    size_t cases;         /* how many will be run, for the progress line */
};

struct ha_run;

enum ha_status ha_run_open(struct ha_run **run, const struct ha_run_options *options, struct ha_why *why);
/* The verdict; why says the reason of anything but PASS: for FAIL the question (1, 2), element, got, want,
 * bound, and the command that runs it again. Never ends the run: an ERROR is a row too. */
enum ha_verdict ha_run_case(struct ha_run *run, const struct ha_case *c, struct ha_why *why);
/* Prints the table (stdout) and, as the last line, `N passed, N failed, N skipped`, where an error has failed and
 * waived is skipped; writes what is left. */
enum ha_status ha_run_close(struct ha_run *run, struct ha_why *why);

/* every mutant over the cases that can expose it; prints a table; HA_FAIL if one survives */
enum ha_status ha_mutants_run(const struct ha_run_options *options, struct ha_why *why);

#endif
