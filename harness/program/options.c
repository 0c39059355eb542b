#include "harness/program/options.h"
#include "harness/program/manual.h"

#include "harness/base/why.h"
#include "harness/base/registry.h"
#include "harness/base/version.h"
#include "harness/base/words.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUN = 1 << HA_CMD_RUN, CHECK = 1 << HA_CMD_CHECK, LIST = 1 << HA_CMD_LIST, PROBE = 1 << HA_CMD_PROBE };
/* options without a letter */
enum { DEVICE = 256, MAX_TIME, SEED, THREADS, ISA, WITHOUT, DUMP, DRY_RUN, RESUME, MUTANTS, EXHAUSTIVE, REPLAY, EXEC };

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
    { RUN | CHECK, { "dry-run", DRY_RUN, NULL, 0, "Print the ids of the cases, one a line, and run none", 0 } },
    { CHECK,
      { "mutants", MUTANTS, NULL, 0, "Plant each known defect in turn; one that no check finds is a failure", 0 } },
    { CHECK,
      { "exhaustive", EXHAUSTIVE, NULL, 0,
        "lse_merge: ten million random merges of each form and type, or as many as --max-time "
        "allows",
        0 } },
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
    [HA_CMD_RUN] = { "run", "SUITE|CASE...\nlink[:KEY=VALUE,...]\ncpu_kernels[:KEY=VALUE,...]",
                     "Checks each case, measures it on the same buffers, and prints a table. link measures the ways to "
                     "move bytes to the device "
                     "and back, cpu_kernels the CPU kernels against what memory gives.\v"
                     "Exit code: 0 everything right, 10 a case is wrong, 20 cases were not run, 40 a case could not be "
                     "judged here, "
                     "64 usage, 70 internal, 77 everything waived." },
    [HA_CMD_CHECK] = { "check",
                       "[SUITE|CASE...]\nlse_merge[:KEY=VALUE,...]\nlink[:KEY=VALUE,...]\ncpu_kernels[:KEY=VALUE,...]",
                       "Checks each case and measures nothing. The suite `check` by default. lse_merge judges merges "
                       "of attention states: ours, "
                       "a plugin's (--device ./it.so), a command's (--exec), a file's (--replay).\v"
                       "Exit code: as for `habench run`." },
    [HA_CMD_LIST] = { "list",
                      "cases "
                      "SUITE|CASE...|lse_merge|link|cpu_"
                      "kernels\ndefects\nsuites\nvariants\nkeys\ndevices\nkernels\ndatasets\nmetrics",
                      "Prints what there is." },
    [HA_CMD_PROBE] = { "probe", "", "Measures the ceilings of this machine: memory, link, launch latency." },
};
enum { COMMANDS_COUNT = sizeof commands / sizeof *commands };

enum ha_status ha_duration_parse(const char *text, uint64_t *out_ns, struct ha_why *why)
{
    static const struct {
        char unit;
        uint64_t ns;
    } units[] = {
        { 's', 1000000000u },
        { 'm', 60u * 1000000000ull },
        { 'h', 3600u * 1000000000ull },
    };
    uint64_t x = 0;
    const char *p = text;
    bool ok = true;
    for (; *p >= '0' && *p <= '9'; p++)
        ok = ok && !__builtin_mul_overflow(x, 10u, &x) && !__builtin_add_overflow(x, (uint64_t)(*p - '0'), &x);
    if (ok && p != text && x > 0 && *p && !p[1])
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
            if (*p == units[i].unit && !__builtin_mul_overflow(x, units[i].ns, out_ns)) return HA_OK;
    return ha_why(why, HA_ERROR, "'%.80s' is not a time such as 90s, 10m or 2h", text);
}

const struct argp_option *ha_options_option(size_t i, unsigned *takers)
{
    if (i >= TABLE_COUNT) return NULL;
    *takers = table[i].commands;
    return &table[i].option;
}

bool ha_options_command(size_t i, struct ha_options_command *out)
{
    if (i >= COMMANDS_COUNT) return false;
    *out = (struct ha_options_command){ commands[i].name, commands[i].args, commands[i].doc };
    return true;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct ha_options *o = state->input;
    struct ha_why why;
    switch (key) {
    case 'f': o->filter = arg; break;
    case 'o': o->out_dir = arg; break;
    case 'q': o->quiet = true; break;
    case DEVICE: o->device = arg; break;
    case SEED: o->seed = arg; break;
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

/* getopt's message for an unknown long option does not say which one is near; this one does. Returns the
 * first such option, or NULL. */
static const char *unknown_option(int argc, char **argv, const struct argp_option *options)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (argv[i][0] != '-' || !argv[i][1]) continue;
        const bool is_long = argv[i][1] == '-';
        const size_t n = strcspn(argv[i] + 2, "=");
        const struct argp_option *match = NULL;
        for (const struct argp_option *o = options; o->name; o++)
            if (is_long ? !strncmp(o->name, argv[i] + 2, n) : argv[i][strlen(argv[i]) - 1] == o->key) match = o;
        if (is_long && !match && strncmp("help", argv[i] + 2, n) && strncmp("usage", argv[i] + 2, n)
            && strncmp("version", argv[i] + 2, n))
            return argv[i];
        if (match && match->arg && !strchr(argv[i], '=')) i++; /* its value */
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

static bool is_merge(const char *word) { return !strncmp(word, "lse_merge", 9) && (!word[9] || word[9] == ':'); }

bool ha_options_merge(const struct ha_options *o) { return o->words_count && is_merge(o->words[0]); }

static bool is_link(const char *word) { return !strncmp(word, "link", 4) && (!word[4] || word[4] == ':'); }

bool ha_options_link(const struct ha_options *o) { return o->words_count && is_link(o->words[0]); }

bool ha_options_word_cpu(const char *word)
{
    const char *slash = strrchr(word, '/');
    return (!strncmp(word, "cpu_kernels", 11) && (!word[11] || word[11] == ':'))
           || !strcmp(slash ? slash + 1 : word, "cpu_kernels.suite");
}

bool ha_options_cpu(const struct ha_options *o) { return o->words_count && ha_options_word_cpu(o->words[0]); }

static void check_options(const char *program, const struct ha_options *o)
{
    size_t merges = 0;
    for (size_t i = 0; o->command != HA_CMD_LIST && i < o->words_count; i++) merges += is_merge(o->words[i]);
    if (merges && o->command == HA_CMD_RUN)
        refuse(program, "lse_merge is judged and not measured; say `habench check lse_merge`");
    if (merges && merges < o->words_count)
        refuse(program, "lse_merge has cases of its own; check it and the other suites one after the other");
    if (!merges && (o->exhaustive || o->replay || o->exec))
        refuse(program, "--exhaustive, --replay and --exec are of the merge suite; say `habench check lse_merge ...`");
    if (o->replay && o->exec) refuse(program, "--replay judges a file, --exec a command: one of them");
    if (merges && (o->resume || o->dump_dir || o->mutants || o->threads))
        refuse(program, "lse_merge takes no --resume, --dump, --mutants or --threads");
    size_t links = 0;
    for (size_t i = 0; o->command != HA_CMD_LIST && i < o->words_count; i++) links += is_link(o->words[i]);
    if (links && links < o->words_count)
        refuse(program, "link has figures of its own; run it and the other suites one after the other");
    if (links && (o->resume || o->dump_dir || o->mutants || o->threads))
        refuse(program, "link takes no --resume, --dump, --mutants or --threads");
    size_t cpu = 0;
    for (size_t i = 0; o->command != HA_CMD_LIST && i < o->words_count; i++) cpu += ha_options_word_cpu(o->words[i]);
    if (cpu && cpu < o->words_count)
        refuse(program, "cpu_kernels has figures of its own; run it and the other suites one after the other");
    if (cpu && (o->resume || o->dump_dir || o->mutants || o->device))
        refuse(program, "cpu_kernels takes no --resume, --dump, --mutants or --device");
    if (o->resume && !o->out_dir) refuse(program, "--resume needs -o DIR, the folder to go on in");
    if (o->mutants && o->words_count) refuse(program, "--mutants chooses its cases itself; leave SUITE and CASE out");
    if (o->command == HA_CMD_RUN && !o->words_count)
        refuse(program, "which SUITE or CASE? `habench list suites` prints the suites");
    if (o->command == HA_CMD_LIST && !o->words_count)
        refuse(program,
               "list what? suites, cases SUITE, defects, variants, keys, devices, kernels, datasets or metrics");
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

    const struct argp argp = { options, parse_option, commands[out->command].args, commands[out->command].doc, NULL,
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
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, out);
}
