#ifndef HA_OPTIONS_H
#define HA_OPTIONS_H

#include "harness/api/base.h"
#include "harness/api/exit.h"

enum ha_command {
    HA_CMD_RUN,
    HA_CMD_CHECK,
    HA_CMD_LIST,
    HA_CMD_PROBE,
    HA_CMD_FIT,
    HA_CMD_CAPACITY,
    HA_CMD_COMPARE,
    HA_CMD_NIGHTLY,
    HA_CMD_DOCTOR,
    HA_CMD_REPORT,
    HA_CMD_HISTORY,
    HA_CMD_PLAN,
    HA_CMD_CAPTURE,
    HA_COMMANDS
};

/* The command line. Texts point into argv; NULL: not given. */
struct ha_options {
    enum ha_command command;
    char **words; /* SUITE or CASE ..., what to list, or folders */
    size_t words_count;
    const char *filter, *device, *seed, *threads, *isa, *team, *without, *dump_dir, *plan;
    const char *out_dir;          /* of `fit`, `report` and `plan`: the file */
    const char *replay, *exec;    /* of the merge suite */
    const char *against, *notify; /* of `nightly`, and of `compare --fleet` */
    const char *devices[8];       /* of `nightly`: [devices_count] */
    size_t devices_count;
    const char *together;          /* node, all or pairs */
    const char *figure;            /* of `history` */
    const char *fleet, *scratch;   /* of a rank of many machines */
    const char *machines;          /* a fleet, of `compare` and `report` */
    const char *junit;             /* of `compare`: the file */
    const char *faults, *shuffle;  /* seeds */
    const char *report_format;     /* html, md, csv, json, openmetrics */
    const char *price;             /* of `compare`, of machines */
    uint64_t limit_ns;             /* the same, of a step; 0: none */
    uint64_t case_time_ns;         /* 0: ten minutes */
    size_t processes;              /* 0: all cases in one */
    size_t plan_threads;           /* of `plan`; 0: not given */
    uint64_t max_time_ns;          /* 0: none */
    uint64_t random_ns;            /* 0: no random cases */
    uint64_t memory_bytes, tokens; /* of `capacity`, tokens of `capture`; 0: not given */
    const char *model, *text;      /* of `capture`: files */
    uint64_t queries;              /* the same; 0: not given */
    struct ha_layers {
        size_t first, count;
    } layers;          /* the same; count 0: all behind the first */
    const char *dtype; /* the same: a word of ha_dtype_word */
    bool dry_run, resume, mutants, exhaustive, order, quiet, json;
    bool in_turns; /* of `compare` */
};

/* What the command line takes; the man page and completions (manual.h) are made of it, too. */
struct ha_option {
    unsigned commands;            /* that take it: bits 1 << enum ha_command */
    char letter;                  /* 0: none */
    const char *name, *arg, *doc; /* arg: what its value is called, NULL: it has none */
    enum ha_status (*take)(void *to, const char *value, struct ha_why *why);
    size_t to; /* offset in struct ha_options */
};
extern const struct ha_option ha_option_table[]; /* name NULL behind the last */
/* texts as argp prints them: args, a line for each form; in doc, what stands behind a \v follows the options */
struct ha_command_text {
    const char *name, *args, *doc;
};
extern const struct ha_command_text ha_command_table[HA_COMMANDS + 1]; /* name NULL behind the last */
/* its args, of which those of `list` are what there is to list */
const char *ha_command_args(const struct ha_command_text *command);

/* Ends the program as argp does: with 0 after --help and --version, with HA_EXIT_USAGE after a message
 * that names the wrong word. --without takes effect here (ha_kernels_mask). */
void ha_options_parse(int argc, char **argv, struct ha_options *out);

#endif
