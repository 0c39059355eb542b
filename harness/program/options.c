#include "harness/program/options.h"
#include "harness/program/list.h"
#include "harness/program/manual.h"

#include "harness/base/why.h"
#include "harness/base/registry.h"
#include "harness/base/version.h"
#include "harness/base/words.h"
#include "harness/engine/point.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUN = 1 << HA_CMD_RUN, CHECK = 1 << HA_CMD_CHECK, LIST = 1 << HA_CMD_LIST, PROBE = 1 << HA_CMD_PROBE };
/* options without a letter */
enum {
    DEVICE = 256,
    MAX_TIME,
    CASE_TIME,
    PROCESSES,
    FORMAT,
    TEAM,
    SEED,
    THREADS,
    ISA,
    WITHOUT,
    DUMP,
    DRY_RUN,
    RESUME,
    MUTANTS,
    EXHAUSTIVE,
    REPLAY,
    EXEC
};

static const struct {
    unsigned commands;
    struct argp_option option;
} table[] = {
    { RUN | CHECK | LIST,
      { "filter", 'f', "EXPR", 0,
        "Only the cases that fit every term of EXPR, joined by commas: "
        "key=value, key!=value (a key of the case, variant or family), or a part of the id",
        0 } },
    { RUN | CHECK | LIST | PROBE, { "device", DEVICE, "NAME", 0, "host, cuda, or the path of a plugin (.so)", 0 } },
    { RUN | CHECK | LIST, { "seed", SEED, "N", 0, "Seed of the datasets, in every case", 0 } },
    { RUN | CHECK | LIST,
      { "threads", THREADS, "N", 0, "Threads of the CPU side, in every case; 0: the cores that the device leaves free",
        0 } },
    { RUN | CHECK | LIST,
      { "team", TEAM, "NAME", 0, "Whose threads the CPU side has, in every case: openmp, own", 0 } },
    { RUN | CHECK, { "isa", ISA, "NAME", 0, "CPU kernels: see `habench list kernels`; the best by default", 0 } },
    { RUN | CHECK | LIST | PROBE,
      { "without", WITHOUT, "ISA[,ISA...]", 0,
        "As on a CPU that lacks these instruction sets, and so those that build "
        "on them",
        0 } },
    { RUN | CHECK | PROBE, { "output", 'o', "DIR", 0, "Write the result files there; without it there are none", 0 } },
    { RUN | CHECK, { "resume", RESUME, NULL, 0, "Go on in DIR: cases that are complete there are skipped", 0 } },
    { RUN | CHECK, { "dump", DUMP, "DIR", 0, "Write the inputs and outputs of each case there, as safetensors", 0 } },
    { RUN | CHECK,
      { "max-time", MAX_TIME, "TIME", 0, "Stop after 90s, 10m or 2h; cases not run give exit code 20", 0 } },
    { RUN | CHECK,
      { "case-time", CASE_TIME, "TIME", 0, "A case that takes longer is an error, 10m by default; the run goes on",
        0 } },
    { RUN | CHECK,
      { "processes", PROCESSES, "N", 0, "Run each case in N fresh processes, in turns, a row for each", 0 } },
    { RUN | CHECK, { "format", FORMAT, "table|json", 0, "stdout: tables, or a JSON line for each row and figure", 0 } },
    { RUN | CHECK, { "dry-run", DRY_RUN, NULL, 0, "Print the ids of the cases, one a line, and run none", 0 } },
    { CHECK,
      { "mutants", MUTANTS, NULL, 0, "Plant each known defect in turn; one that no check finds is a failure", 0 } },
    { CHECK,
      { "exhaustive", EXHAUSTIVE, NULL, 0,
        "lse_merge: ten million random merges of each form and type, or as many as --max-time allows", 0 } },
    { CHECK,
      { "replay", REPLAY, "FILE", 0, "lse_merge: judge the merge in this safetensors file (docs/merging.md)", 0 } },
    { CHECK,
      { "exec", EXEC, "CMD", 0, "lse_merge: judge the merge that `CMD IN OUT` does, files as for --replay", 0 } },
    { RUN | CHECK | PROBE, { "quiet", 'q', NULL, 0, "No progress on stderr", 0 } },
};
enum { TABLE_COUNT = sizeof table / sizeof *table };

static const struct command {
    const char *name, *args, *doc;
} commands[] = {
    [HA_CMD_RUN] = { "run", "SUITE|CASE...",
                     "Checks each case, measures it on the same buffers, and prints a table. `habench list suites` "
                     "prints "
                     "the suites; a CASE is HEAD:KEY=VALUE,... as `habench list cases SUITE` prints it.\v"
                     "Exit code: 0 everything right, 10 a case is wrong, 20 cases were not run, 40 a case could not be "
                     "judged here, 64 usage, 70 internal, 77 nothing was checked or everything waived; 128 + N: ended "
                     "by "
                     "signal N." },
    [HA_CMD_CHECK] = { "check", "[SUITE|CASE...]",
                       "Checks each case and measures nothing. The suite `check` by default. lse_merge judges merges "
                       "of "
                       "attention states: ours, a plugin's (--device ./it.so), a command's (--exec), a file's "
                       "(--replay).\v"
                       "Exit code: as for `habench run`." },
    [HA_CMD_LIST] = { "list", NULL, "Prints what there is." },
    [HA_CMD_PROBE] = { "probe", "", "Measures the ceilings of this machine: memory, link, launch latency." },
};
enum { COMMANDS_COUNT = sizeof commands / sizeof *commands };

const struct argp_option *ha_options_option(size_t i, unsigned *takers)
{
    if (i >= TABLE_COUNT) return NULL;
    *takers = table[i].commands;
    return &table[i].option;
}

/* A line for each way to call it. */
static const char *args_of(enum ha_command command)
{
    static char lists[1024];
    size_t n = 0;
    if (command != HA_CMD_LIST) return commands[command].args;
    for (size_t i = 0; ha_list_name(i) && n < sizeof lists; i++) {
        const char *name = ha_list_name(i);
        n += (size_t)snprintf(lists + n, sizeof lists - n, "%s%s%s", i ? "\n" : "", name,
                              strcmp(name, "cases") ? "" : " SUITE|CASE...");
    }
    return lists;
}

bool ha_options_command(size_t i, struct ha_options_command *out)
{
    if (i >= COMMANDS_COUNT) return false;
    *out = (struct ha_options_command){ commands[i].name, args_of((enum ha_command)i), commands[i].doc };
    return true;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct ha_options *o = state->input;
    struct ha_why why;
    const char *end;
    uint64_t whole;
    switch (key) {
    case 'f': o->filter = arg; break;
    case 'o': o->out_dir = arg; break;
    case 'q': o->quiet = true; break;
    case TEAM: o->team = arg; break;
    case FORMAT:
        o->json = !strcmp(arg, "json");
        if (!o->json && strcmp(arg, "table")) argp_error(state, "--format: '%s' is neither table nor json", arg);
        break;
    case PROCESSES:
        if (!ha_whole_parse(arg, &whole, &end) || *end || whole < 1 || whole > 1000)
            argp_error(state, "--processes: '%s' is not a whole number from 1 to 1000", arg);
        o->processes = whole;
        break;
    case CASE_TIME:
        if (ha_duration_parse(arg, &o->case_time_ns, &why) != HA_OK) argp_error(state, "--case-time: %s", why.text);
        break;
    case DEVICE: o->device = arg; break;
    case SEED:
        o->seed = arg;
        if (!ha_whole_parse(arg, &whole, &end) || *end)
            argp_error(state, "--seed: '%s' is not a whole number up to 2^64 - 1", arg);
        break;
    case THREADS: o->threads = arg; break;
    case ISA: o->isa = arg; break;
    case WITHOUT:
        if (o->without) argp_error(state, "--without: name them all at once, joined by commas");
        o->without = arg;
        if (ha_kernels_mask(arg, &why) != HA_OK) argp_error(state, "--without: %s", why.text);
        break;
    case DUMP: o->dump_dir = arg; break;
    case DRY_RUN: o->dry_run = true; break;
    case RESUME: o->resume = true; break;
    case MUTANTS: o->mutants = true; break;
    case EXHAUSTIVE: o->exhaustive = true; break;
    case REPLAY: o->replay = arg; break;
    case EXEC: o->exec = arg; break;
    case MAX_TIME:
        if (ha_duration_parse(arg, &o->max_time_ns, &why) != HA_OK) argp_error(state, "--max-time: %s", why.text);
        break;
    case ARGP_KEY_ARGS:
        o->words = state->argv + state->next;
        o->words_count = (size_t)(state->argc - state->next);
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* The options of one command, as argp wants them. */
static void options_of(enum ha_command command, struct argp_option out[TABLE_COUNT + 1])
{
    size_t n = 0;
    for (size_t i = 0; i < TABLE_COUNT; i++)
        if (table[i].commands >> command & 1u) out[n++] = table[i].option;
    out[n] = (struct argp_option){ 0 };
}

/* The option that a word of the command line names: NULL, where it is none. A letter that takes a value ends a group of
 * letters: "-qf" is -f, "-of" is -o with its value. *next: its value is the next word. */
static const struct argp_option *option_of(const char *word, const struct argp_option *options, bool *next)
{
    const struct argp_option *match = NULL;
    *next = false;
    if (word[1] == '-') {
        const size_t n = strcspn(word + 2, "=");
        for (const struct argp_option *o = options; o->name; o++)
            if (!strncmp(o->name, word + 2, n)) match = o;
        *next = match && match->arg && !word[2 + n];
        return match;
    }
    for (const char *letter = word + 1; *letter && !(match && match->arg); letter++) {
        match = NULL;
        for (const struct argp_option *o = options; o->name; o++)
            if (o->key == *letter) match = o;
        *next = match && match->arg && !letter[1];
    }
    return match;
}

/* getopt's message for an unknown long option does not say which one is near; this one does. Returns the
 * first such option, or NULL. */
static const char *unknown_option(int argc, char **argv, const struct argp_option *options)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (argv[i][0] != '-' || !argv[i][1]) continue;
        bool next;
        const struct argp_option *match = option_of(argv[i], options, &next);
        const size_t n = strcspn(argv[i] + 2, "=");
        if (argv[i][1] == '-' && !match && strncmp("help", argv[i] + 2, n) && strncmp("usage", argv[i] + 2, n)
            && strncmp("version", argv[i] + 2, n))
            return argv[i];
        if (next) i++; /* its value */
    }
    return NULL;
}

static void refuse(const char *program, const char *text)
{
    fprintf(stderr, "%s: %s\nTry `%s --help'.\n", program, text, program);
    exit(HA_EXIT_USAGE);
}

static void refuse_unknown_option(const char *program, const char *given, const struct argp_option *options)
{
    char word[64];
    const char *names[TABLE_COUNT + 3] = { NULL };
    size_t n = 0;
    for (const struct argp_option *o = options; o->name; o++) names[n++] = o->name;
    names[n++] = "help";
    snprintf(word, sizeof word, "%.*s", (int)strcspn(given + 2, "="), given + 2);
    const char *near = ha_nearest(word, names);
    struct ha_why why;
    if (near) ha_why(&why, HA_ERROR, "unknown option '--%s'; did you mean '--%s'?", word, near);
    else ha_why(&why, HA_ERROR, "unknown option '--%s'", word);
    refuse(program, why.text);
}

static void check_options(const char *program, const struct ha_options *o)
{
    if (o->replay && o->exec) refuse(program, "--replay judges a file, --exec a command: one of them");
    if (o->resume && !o->out_dir) refuse(program, "--resume needs -o DIR, the folder to go on in");
    if (o->mutants && o->words_count) refuse(program, "--mutants chooses its cases itself; leave SUITE and CASE out");
    if (o->command == HA_CMD_RUN && !o->words_count)
        refuse(program, "which SUITE or CASE? `habench list suites` prints the suites");
    if (o->command == HA_CMD_LIST && !o->words_count)
        refuse(program, "list what? `habench list --help` says what there is");
    if (o->command == HA_CMD_PROBE && o->words_count) refuse(program, "probe takes options only");
}

static void parse_command(int argc, char **argv, struct ha_options *out)
{
    static char program[32];
    snprintf(program, sizeof program, "habench %s", commands[out->command].name);
    argv[0] = program;
    struct argp_option options[TABLE_COUNT + 1];
    options_of(out->command, options);
    const char *unknown = unknown_option(argc, argv, options);
    if (unknown) refuse_unknown_option(program, unknown, options);

    const struct argp argp = { options, parse_option, args_of(out->command), commands[out->command].doc, NULL,
                               NULL,    NULL };
    argp_parse(&argp, argc, argv, 0, NULL, out);
    check_options(program, out);
}

/* The first word that is no option is the command; the rest is its own. */
static error_t parse_top(int key, char *arg, struct argp_state *state)
{
    struct ha_options *o = state->input;
    struct ha_why why;
    const char *names[COMMANDS_COUNT + 1] = { NULL };
    switch (key) {
    case ARGP_KEY_ARG:
        for (size_t i = 0; i < COMMANDS_COUNT; i++) {
            names[i] = commands[i].name;
            if (strcmp(arg, names[i])) continue;
            const int first = state->next - 1;
            o->command = (enum ha_command)i;
            parse_command(state->argc - first, state->argv + first, o);
            state->next = state->argc;
            return 0;
        }
        ha_unknown(&why, "command", arg, names);
        argp_error(state, "%s", why.text);
        return 0;
    case ARGP_KEY_NO_ARGS: argp_usage(state); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "habench %s\n", ha_version());
}

/* Options may stand before the command: it is the first word that is neither an option nor the value of one. */
static void put_command_first(int argc, char **argv)
{
    struct argp_option all[TABLE_COUNT + 1] = { 0 };
    for (size_t i = 0; i < TABLE_COUNT; i++) all[i] = table[i].option;
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        char *const word = argv[i];
        bool next;
        if (word[0] != '-' || !word[1]) {
            for (int k = i; k > 1; k--) argv[k] = argv[k - 1];
            argv[1] = word;
            return;
        }
        option_of(word, all, &next);
        if (next) i++;
    }
}

void ha_options_parse(int argc, char **argv, struct ha_options *out)
{
    static char program[] = "habench";
    static const struct argp argp = { NULL,
                                      parse_top,
                                      "run SUITE|CASE...\ncheck [SUITE|CASE...]\nlist WHAT\nprobe",
                                      "Benchmark and correctness suite for attention over KV caches that are split "
                                      "between a device and host memory.\v"
                                      "`habench COMMAND --help` says more of one command.",
                                      NULL,
                                      NULL,
                                      NULL };
    *out = (struct ha_options){ 0 };
    argp_program_version_hook = print_version;
    argp_err_exit_status = HA_EXIT_USAGE;
    argv[0] = program;
    if (argc == 2 && ha_manual_print(stdout, argv[1])) exit(fflush(stdout) ? HA_EXIT_ENVIRONMENT : HA_EXIT_OK);
    put_command_first(argc, argv);
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, out);
}
