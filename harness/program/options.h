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
    const char *filter, *device, *seed, *threads, *isa, *without, *out_dir, *dump_dir;
    const char *replay, *exec; /* of the merge suite */
    uint64_t max_time_ns;      /* 0: none */
    bool dry_run, resume, mutants, exhaustive, quiet;
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

/* true where the words name the merge suite: lse_merge, or its ids */
bool ha_options_merge(const struct ha_options *o);
/* true where they name the link suite: link, or its ids */
bool ha_options_link(const struct ha_options *o);
/* true where they name the suite of the CPU kernels: cpu_kernels, its ids, or a file cpu_kernels.suite */
bool ha_options_cpu(const struct ha_options *o);
bool ha_options_word_cpu(const char *word);

/* "90s", "10m", "2h" */
enum ha_status ha_duration_parse(const char *text, uint64_t *out_ns, struct ha_why *why);

#endif
