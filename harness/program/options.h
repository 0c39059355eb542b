#ifndef HA_OPTIONS_H
#define HA_OPTIONS_H

#include "harness/api/base.h"
#include "harness/api/exit.h"

enum ha_command { HA_CMD_RUN, HA_CMD_CHECK, HA_CMD_LIST, HA_CMD_PROBE };

/* The command line. Texts point into argv; NULL: not given. */
struct ha_options {
    enum ha_command command;
    char **words; /* SUITE or CASE ..., or what to list */
    size_t words_count;
    const char *filter, *device, *seed, *threads, *isa, *team, *without, *out_dir, *dump_dir;
    const char *replay, *exec; /* of the merge suite */
    uint64_t case_time_ns;     /* 0: ten minutes */
    size_t processes;          /* 0: all cases in one */
    uint64_t max_time_ns;      /* 0: none */
    bool dry_run, resume, mutants, exhaustive, quiet, json;
};

/* What the command line takes, for who describes it (manual.h): option i and the commands that take it, bits
 * 1 << enum ha_command; NULL after the last. And command i, texts as argp prints them; false after the last. */
struct argp_option;
const struct argp_option *ha_options_option(size_t i, unsigned *commands);
struct ha_options_command {
    const char *name, *args, *doc;
};
bool ha_options_command(size_t i, struct ha_options_command *out);

/* Ends the program as argp does: with 0 after --help and --version, with HA_EXIT_USAGE after a message
 * that names the wrong word. --without takes effect here (ha_kernels_mask). */
void ha_options_parse(int argc, char **argv, struct ha_options *out);

#endif
