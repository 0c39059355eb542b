#include "harness/program/commands.h"
#include "harness/program/manual.h"
#include "harness/program/together.h"

#include "harness/base/pool.h"
#include "harness/base/storage.h"
#include "harness/base/why.h"
#include "harness/base/registry.h"
#include "harness/base/text.h"
#include "harness/base/version.h"
#include "harness/engine/point.h"

#include <argp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RUN = 1 << HA_CMD_RUN,
    CHECK = 1 << HA_CMD_CHECK,
    LIST = 1 << HA_CMD_LIST,
    PROBE = 1 << HA_CMD_PROBE,
    FIT = 1 << HA_CMD_FIT,
    CAPACITY = 1 << HA_CMD_CAPACITY,
    COMPARE = 1 << HA_CMD_COMPARE,
    NIGHTLY = 1 << HA_CMD_NIGHTLY,
    DOCTOR = 1 << HA_CMD_DOCTOR,
    REPORT = 1 << HA_CMD_REPORT,
    HISTORY = 1 << HA_CMD_HISTORY,
    PLAN = 1 << HA_CMD_PLAN,
    CAPTURE = 1 << HA_CMD_CAPTURE
};

/* ---- values ------------------------------------------------------------------------------------------------------ */

static enum ha_status take_text(void *to, const char *value, struct ha_why *why)
{
    *(const char **)to = value;
    return *value ? HA_OK : ha_why(why, HA_ERROR, "a value is missing");
}

static enum ha_status take_devices(void *to, const char *value, struct ha_why *why)
{
    struct ha_options *o = to;
    enum { MOST = sizeof o->devices / sizeof *o->devices };
    if (o->devices_count == MOST) return ha_why(why, HA_ERROR, "%d devices are the most", MOST);
    return take_text(&o->devices[o->devices_count++], value, why);
}

static enum ha_status take_flag(void *to, const char *value, struct ha_why *why)
{
    *(bool *)to = true;
    return HA_OK;
}

static enum ha_status take_time(void *to, const char *value, struct ha_why *why)
{
    return ha_duration_parse(value, to, why);
}

/* also a bare number of seconds */
static enum ha_status take_random(void *to, const char *value, struct ha_why *why)
{
    char seconds[32];
    const bool bare = *value && !value[strspn(value, "0123456789")];
    snprintf(seconds, sizeof seconds, "%.24ss", value);
    return ha_duration_parse(bare ? seconds : value, to, why);
}

static enum ha_status take_format(void *to, const char *value, struct ha_why *why)
{
    bool *json = to;
    *json = !strcmp(value, "json");
    if (*json || !strcmp(value, "table")) return HA_OK;
    return ha_why(why, HA_ERROR, "'%s' is neither table nor json", value);
}

static enum ha_status take_together(void *to, const char *value, struct ha_why *why)
{
    size_t i;
    HA_TRY(ha_word_find("ranks", value, ha_together_words, &i, why));
    return take_text(to, value, why);
}

static enum ha_status take_report_format(void *to, const char *value, struct ha_why *why)
{
    static const char *const formats[] = { "html", "md", "csv", "json", "openmetrics", NULL };
    size_t i;
    HA_TRY(ha_word_find("format", value, formats, &i, why));
    return take_text(to, value, why);
}

static enum ha_status take_processes(void *to, const char *value, struct ha_why *why)
{
    const char *end;
    uint64_t count;
    if (!ha_whole_parse(value, &count, &end) || *end || count < 1 || count > 1000)
        return ha_why(why, HA_ERROR, "'%s' is not a whole number from 1 to 1000", value);
    *(size_t *)to = count;
    return HA_OK;
}

static enum ha_status take_threads(void *to, const char *value, struct ha_why *why)
{
    const char *end;
    uint64_t count;
    if (!ha_whole_parse(value, &count, &end) || *end || count < 1 || count > HA_POOL_THREADS_MAX)
        return ha_why(why, HA_ERROR, "'%s' is not a whole number from 1 to %d", value, HA_POOL_THREADS_MAX);
    *(size_t *)to = count;
    return HA_OK;
}

static enum ha_status take_bytes(void *to, const char *value, struct ha_why *why)
{
    return ha_bytes_parse(value, to, why);
}

static enum ha_status take_tokens(void *to, const char *value, struct ha_why *why)
{
    const char *end;
    uint64_t *tokens = to;
    if (!ha_whole_parse(value, tokens, &end) || *end || *tokens < 1 || *tokens > HA_STORAGE_TOKENS_MAX)
        return ha_why(why, HA_ERROR, "'%s' is not a whole number from 1 to 2^40", value);
    return HA_OK;
}

/* "10-12", "10", "10-" */
static enum ha_status take_layers(void *to, const char *value, struct ha_why *why)
{
    struct ha_layers *layers = to;
    uint64_t first, last;
    const char *end;
    bool good = ha_whole_parse(value, &first, &end) && first < 100000;
    last = first;
    if (good && *end == '-' && end[1])
        good = ha_whole_parse(end + 1, &last, &end) && last >= first && last < 100000 && !*end;
    else if (good) good = !*end || !strcmp(end, "-");
    if (!good) return ha_why(why, HA_ERROR, "'%s' names no layers; 10-12 does, and 10- those from 10 on", value);
    *layers = (struct ha_layers){ first, *end ? 0 : last - first + 1 };
    return HA_OK;
}

static enum ha_status take_dtype(void *to, const char *value, struct ha_why *why)
{
    const char *const words[] = { ha_dtype_word(0), ha_dtype_word(1), ha_dtype_word(2), NULL };
    size_t i;
    HA_TRY(ha_word_find("dtype", value, words, &i, why));
    return take_text(to, value, why);
}

static enum ha_status take_seed(void *to, const char *value, struct ha_why *why)
{
    const char *end;
    uint64_t seed;
    if (!ha_whole_parse(value, &seed, &end) || *end)
        return ha_why(why, HA_ERROR, "'%s' is not a whole number up to 2^64 - 1", value);
    return take_text(to, value, why);
}

static enum ha_status take_without(void *to, const char *value, struct ha_why *why)
{
    if (*(const char **)to) return ha_why(why, HA_ERROR, "name them all at once, joined by commas");
    HA_TRY(ha_kernels_mask(value, why));
    return take_text(to, value, why);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

#define TO(member) offsetof(struct ha_options, member)
const struct ha_option ha_option_table[] = {
    { RUN | CHECK | LIST, 'f', "filter", "EXPR",
      "Only the cases that fit every term of EXPR, joined by commas: "
      "key=value, key!=value (a key of the case, variant or family), or a part of the id",
      take_text, TO(filter) },
    { HISTORY, 'f', "filter", "EXPR",
      "Only the cases whose id has every term of EXPR, joined by commas: key=value, key!=value, or a part of it",
      take_text, TO(filter) },
    { HISTORY, 0, "figure", "NAME",
      "Another figure than the first time or rate of each case, and the readings of the machine", take_text,
      TO(figure) },
    { RUN | CHECK | LIST | PROBE | DOCTOR, 0, "device", "NAME", "host, cuda, or the path of a plugin (.so)", take_text,
      TO(device) },
    { RUN | CHECK | LIST, 0, "seed", "N", "Seed of the datasets, in every case", take_seed, TO(seed) },
    { RUN | CHECK | LIST, 0, "threads", "N",
      "Threads of the CPU side, in every case; 0: the cores that the device leaves free", take_text, TO(threads) },
    { RUN | CHECK | LIST, 0, "team", "NAME", "Whose threads the CPU side has, in every case: openmp, own", take_text,
      TO(team) },
    { RUN | CHECK | LIST, 0, "isa", "NAME", "CPU kernels: see `habench list kernels`; the best by default", take_text,
      TO(isa) },
    { RUN | CHECK | LIST | PROBE, 0, "without", "ISA[,ISA...]",
      "As on a CPU that lacks these instruction sets, and so those that build on them", take_without, TO(without) },
    { RUN | CHECK | NIGHTLY, 0, "plan", "FILE|constants",
      "What CPU kernels ask ahead and whose they are: a plan that `habench plan` wrote, or what is built in; by "
      "default "
      "$HABENCH_PLAN, this machine's own plan, one that is shipped for its CPU, or a quick choice (docs/kernels.md)",
      take_text, TO(plan) },
    { PLAN, 'o', "output", "FILE", "Write the plan there instead of where later runs find it by themselves", take_text,
      TO(out_dir) },
    { PLAN, 0, "threads", "N", "For N threads that read at once, instead of one and as many as there are cores",
      take_threads, TO(plan_threads) },
    { PLAN, 0, "max-time", "TIME", "What is not measured after 90s or 10m stays as it is built in; 5m by default",
      take_time, TO(max_time_ns) },
    { FIT, 'o', "output", "FILE", "Write what was learnt there; datasets/fits/NAME.safetensors is what fit=NAME reads",
      take_text, TO(out_dir) },
    { REPORT, 'o', "output", "FILE", "Write the page there; md and csv go to stdout without it", take_text,
      TO(out_dir) },
    { RUN | CHECK, 'o', "output", "DIR",
      "Write the result files there; where DIR has a complete record, to DIR-2, DIR-3, ...; without it there are none",
      take_text, TO(out_dir) },
    { PROBE, 'o', "output", "DIR",
      "Write the result files there, over those of a probe before; without it there are none", take_text, TO(out_dir) },
    { RUN | CHECK | NIGHTLY, 0, "fleet", "DIR",
      "As one rank of many machines, of Slurm or MPI: the record goes to DIR/MACHINE when it is whole, and "
      "DIR/MACHINE.rank.json says how it went (docs/fleet.md); in place of -o",
      take_text, TO(fleet) },
    { RUN | CHECK | NIGHTLY, 0, "scratch", "DIR",
      "Of --fleet: where to measure into until then, a folder of this machine; $TMPDIR or /tmp by default", take_text,
      TO(scratch) },
    { RUN | CHECK, 0, "resume", NULL,
      "Go on in DIR: cases that are complete there are skipped; begins where nothing is there", take_flag, TO(resume) },
    { RUN | CHECK, 0, "dump", "DIR", "Write all that went in and came out of each case there, for scripts/audit.py",
      take_text, TO(dump_dir) },
    { RUN | CHECK, 0, "max-time", "TIME", "Stop after 90s, 10m or 2h; cases not run give exit code 20", take_time,
      TO(max_time_ns) },
    { RUN | CHECK, 0, "case-time", "TIME",
      "A case that takes longer is an error, and the run goes on; 10m by default (an exhaustive check: no end). N "
      "cases "
      "that run in turns have N times as long, together; if they take longer they are run again, one by one",
      take_time, TO(case_time_ns) },
    { RUN | CHECK, 0, "processes", "N", "Run each case in N fresh processes, in turns, a row for each", take_processes,
      TO(processes) },
    { RUN | CHECK, 0, "shuffle", "SEED",
      "Run the cases in an order drawn from SEED, another one for each round of --processes; tables keep theirs",
      take_seed, TO(shuffle) },
    { RUN, 0, "together", "node|all|pairs",
      "As one of several ranks that mpirun or srun has started: each case alone, in turns, and then at once with those "
      "of "
      "this host, with all (started by habench_meet), or with each other one here; what it kept of its speed "
      "(docs/fleet.md)",
      take_together, TO(together) },
    { CAPACITY, 0, "memory", "SIZE", "Memory of the device, as 80GB (80 * 10^9 bytes) or 80GiB (80 * 2^30)", take_bytes,
      TO(memory_bytes) },
    { CAPTURE, 0, "model", "FILE", "The model, a GGUF file; `scripts/setup.sh --model` fetches one", take_text,
      TO(model) },
    { CAPTURE, 0, "text", "FILE", "What it reads, in UTF-8", take_text, TO(text) },
    { CAPTURE, 0, "tokens", "N", "The first N tokens of the text; 2048 by default", take_tokens, TO(tokens) },
    { CAPTURE, 0, "queries", "N", "Keep the queries and the inputs of the last N tokens; 256 by default", take_tokens,
      TO(queries) },
    { CAPTURE, 0, "layers", "FIRST-LAST", "Write these layers; all by default", take_layers, TO(layers) },
    { CAPTURE, 0, "dtype", "TYPE", "f16, bf16 or f32; f16 by default", take_dtype, TO(dtype) },
    { CAPTURE, 'o', "output", "FILE", "Write the trace there; datasets/traces/NAME.safetensors is dataset=trace/NAME",
      take_text, TO(out_dir) },
    { CAPACITY, 0, "tokens", "N", "What so many tokens need, too, and whether they fit", take_tokens, TO(tokens) },
    { RUN | CHECK | CAPACITY | DOCTOR | COMPARE | HISTORY, 0, "format", "table|json",
      "stdout: tables, or a JSON line for each row and figure", take_format, TO(json) },
    { NIGHTLY, 'o', "output", "DIR", "The folder of this night, which is not there yet, or empty", take_text,
      TO(out_dir) },
    { NIGHTLY, 0, "against", "FOLDER", "Earlier nights: a folder that has them in it, or one of them", take_text,
      TO(against) },
    { NIGHTLY, 0, "device", "NAME", "host, cuda, or the path of a plugin (.so); may be given several times",
      take_devices, 0 },
    { NIGHTLY, 0, "max-time", "TIME", "Of the whole night: 90s, 30m or 2h; 1h by default", take_time, TO(max_time_ns) },
    { NIGHTLY, 0, "processes", "N", "Measure each case in N fresh processes, in turns; 5 by default", take_processes,
      TO(processes) },
    { NIGHTLY, 0, "shuffle", "SEED", "Of the order in which cases run; drawn by default", take_seed, TO(shuffle) },
    { NIGHTLY, 0, "notify", "CMD", "At its end, give CMD the verdict as a JSON line", take_text, TO(notify) },
    { COMPARE, 0, "fleet", "DIR",
      "Judge the machines of a fleet beside each other instead: DIR has a record of each (docs/fleet.md)", take_text,
      TO(machines) },
    { COMPARE, 0, "against", "DIR", "With --fleet: the same fleet as it was, each machine beside itself", take_text,
      TO(against) },
    { COMPARE, 0, "limit", "TIME",
      "Of several machines: the longest context that each was measured with below TIME a step, as 50ms", take_time,
      TO(limit_ns) },
    { COMPARE, 0, "price", "NAME=PRICE/h[,...]",
      "Of several machines: what a million tokens cost on each, by its price an hour; NAME is its folder, or A, B, "
      "... in the order of the folders",
      take_text, TO(price) },
    { COMPARE, 0, "run", NULL,
      "Run OLD and NEW in turns instead, each case until it is decided: each a program, a device (the path of a "
      "plugin, .so) or a plan (a .csv of `habench plan`, or constants); behind -- stand the words of `habench run`",
      take_flag, TO(in_turns) },
    { COMPARE, 'o', "output", "DIR",
      "With --run: the folder for the records of both, DIR/old and DIR/new, which is not "
      "there yet, or empty",
      take_text, TO(out_dir) },
    { COMPARE, 0, "max-time", "TIME", "With --run: 90s, 20m or 2h; 20m by default", take_time, TO(max_time_ns) },
    { COMPARE, 0, "junit", "FILE", "Write the same verdicts there for a CI server", take_text, TO(junit) },
    { REPORT, 0, "format", "html|md|csv|json|openmetrics",
      "html, the page, by default; md: short enough for a merge request; csv: the figures of all folders in one table; "
      "json: what compare says and these figures, as JSON lines; openmetrics: the last night, for node_exporter",
      take_report_format, TO(report_format) },
    { REPORT, 0, "fleet", "DIR", "The page of a fleet, and one of each machine that stands out (docs/fleet.md)",
      take_text, TO(machines) },
    { REPORT, 0, "against", "DIR", "With --fleet: the same fleet as it was, side by side", take_text, TO(against) },
    { RUN | CHECK, 0, "dry-run", NULL, "Print the ids of the cases, one a line, and run none", take_flag, TO(dry_run) },
    { CHECK, 0, "mutants", NULL, "Plant each known defect in turn; one that no check finds is a failure", take_flag,
      TO(mutants) },
    { CHECK, 0, "exhaustive", NULL,
      "lse_merge: ten million random merges of each form and type, or as many as --max-time allows", take_flag,
      TO(exhaustive) },
    { CHECK, 0, "random", "TIME",
      "Draw cases over all of their keys for so long (60, 90s, 30m), seeded by --seed, of each SUITE or CASE, whose "
      "own "
      "keys stay, or of every suite; a failure is made smaller, and the smallest is printed",
      take_random, TO(random_ns) },
    { CHECK, 0, "order", NULL,
      "Attention and link: watch what each operation reads and writes; two that nothing orders are a failure, even if "
      "the bytes are right (docs/order.md)",
      take_flag, TO(order) },
    { CHECK, 0, "faults", "SEED",
      "Attention: random delays of copies, kernels, host functions, tasks and calls, drawn from SEED; results must not "
      "change (docs/measurement.md)",
      take_seed, TO(faults) },
    { CHECK, 0, "replay", "FILE", "lse_merge: judge the merge in this safetensors file (docs/merging.md)", take_text,
      TO(replay) },
    { CHECK, 0, "exec", "CMD", "lse_merge: judge the merge that `CMD IN OUT` does, files as for --replay", take_text,
      TO(exec) },
    { RUN | CHECK | PROBE | NIGHTLY | COMPARE | CAPTURE, 'q', "quiet", NULL, "No progress on stderr", take_flag,
      TO(quiet) },
    { 0 },
};
enum { TABLE_COUNT = sizeof ha_option_table / sizeof *ha_option_table - 1 };

const struct ha_command_text ha_command_table[HA_COMMANDS + 1] = {
    [HA_CMD_RUN] = { "run", "SUITE|CASE...",
                     "Checks each case, measures it on the same buffers, and prints a table. `habench list suites` "
                     "prints the suites; a CASE is HEAD:KEY=VALUE,... as `habench list cases SUITE` prints it. "
                     "`gpu_day`, alone, is a day of steps on a GPU (docs/cuda.md).\v"
                     "Exit code: 0 everything right, 10 a case is wrong, 20 cases were not run (the time was over, or "
                     "their file is damaged), 40 a case could not be judged here, 64 usage, 70 internal, 77 nothing "
                     "was checked or everything waived; 128 + N: ended "
                     "by signal N." },
    [HA_CMD_CHECK] = { "check", "[SUITE|CASE...]",
                       "Checks each case and measures nothing. The suite `check` by default. lse_merge judges merges "
                       "of attention states: ours, a plugin's (--device ./it.so), a command's (--exec), a file's "
                       "(--replay).\v"
                       "Exit code: as for `habench run`." },
    [HA_CMD_LIST] = { "list", NULL, "Prints what there is." },
    [HA_CMD_PROBE] = { "probe", "", "Measures the ceilings of this machine: memory, link, launch latency." },
    [HA_CMD_FIT] = { "fit", "CASE",
                     "Has the variant of a case learn offline from the case's context, and writes FILE, which cases of "
                     "the same variant and model read by fit=FILE (docs/adding.md).\v"
                     "Exit code: 0 it is written, 20 the file of the dataset is damaged, 40 it cannot be learnt or "
                     "written here, 64 usage." },
    [HA_CMD_CAPACITY] = { "capacity", "MODEL",
                          "Computes how many tokens of context fit beside a model's weights on the device, by each way "
                          "of keeping keys and values. MODEL is a name of `habench list models`, whose weights count "
                          "2 bytes a parameter, or layers=32,heads=32/8,head_dim=128,weights=16.1GB, or a name and "
                          "what "
                          "differs from it: llama-3-8b,weights=8.5GB.\v"
                          "Columns of bytes: `device` and `host` of a token's K and V there, of 2 bytes a number, or "
                          "codes; `step` of a token's scores, ids and weights on the device while a layer attends; "
                          "`books` of all centroids, as f32, and as f16 in brackets; `fixed` of tables and the 64 "
                          "newest "
                          "tokens. `of full` is `device` over that of `resident`. `tokens` fit with all of these. "
                          "Activations and what a driver takes are not counted." },
    [HA_CMD_CAPTURE] = { "capture", "",
                         "Runs a model of the llama family over a text, and writes the queries, keys and values of its "
                         "layers as a trace (datasets/README.md). Prints the loss of the text.\v"
                         "Exit code: 0 it is written, 40 it cannot be run or written here, 64 usage." },
    [HA_CMD_COMPARE] = { "compare", "BASE NEW...\n--run OLD NEW [-- SUITE|CASE...]\n--fleet DIR",
                         "Says what has changed since BASE, and whether it was the code or the machine. A folder is "
                         "that "
                         "of a run (-o), of a night, or has several of these in it. Of several machines it says which "
                         "is faster, by how much, and by which of their parts. With --fleet it says which "
                         "machines of "
                         "a fleet stand out, by what, and which are missing (docs/fleet.md). With --run it runs "
                         "old and new in turns (docs/compare.md).\v"
                         "Exit code: 0 nothing changed, or another machine that ran all, 10 results are wrong, or "
                         "outputs have other bits, 30 slower "
                         "beyond doubt, 20 cases are missing, "
                         "or too few processes ran to call what is suspicious, or cases are undecided; the first that "
                         "applies. 64: usage, or "
                         "folders that cannot be read or compared (docs/compare.md). Of a fleet: 10 results are wrong, "
                         "or outputs disagree, 30 a machine stands out, 20 one is missing, 40 too few of a kind, or "
                         "disturbed." },
    [HA_CMD_NIGHTLY] = { "nightly", "[SUITE]",
                         "A night of this machine: doctor, probe, the checks, SUITE (`nightly` where none is given, or "
                         "the path of a suite file) in fresh processes in an "
                         "order drawn anew; beside earlier nights (--against) what is suspicious is run again, and "
                         "what "
                         "changed is said (docs/nightly.md).\v"
                         "Exit code: 10 results are wrong, 30 slower beyond doubt, 20 not all ran, or what ran does "
                         "not "
                         "say, 40 the machine is not fit to judge, 0 nothing changed; the first that applies. 64: "
                         "usage." },
    [HA_CMD_DOCTOR] = { "doctor", "",
                        "Says what makes figures of this machine worthless, and of a device with --device, unfit "
                        "first, "
                        "each with how to mend it; what cannot be read here is unknown (docs/doctor.md).\v"
                        "Exit code: 0 fit to be measured, 40 at least one check is unfit, or the device's plugin is "
                        "not "
                        "built, 64 usage; warnings change none." },
    [HA_CMD_REPORT] = { "report", "DIR...",
                        "Makes one page of records, with the verdict of `habench compare` on top: it needs no network "
                        "and "
                        "nothing beside it. DIR is a record (`-o DIR` of run, check or probe), a night, or a folder of "
                        "nights; of several the first is what the others are compared with. docs/report.md says what "
                        "has "
                        "to be installed for it.\v"
                        "Exit code: 0 it is written, whatever the verdict, 20 a file of figures is damaged (csv: the "
                        "rest is written), 40 it cannot be made or written here, 64 usage." },
    [HA_CMD_PLAN] = { "plan", "",
                      "Measures what this CPU wants of attention kernels: whose instructions for which type, how far "
                      "ahead they ask for keys and into which cache, packed keys or natural rows; and keeps it for "
                      "later runs (docs/kernels.md). Takes some 20 s on 2 cores.\v"
                      "Exit code: 0 it is written, 40 it cannot be measured or written here, or something else uses "
                      "the machine, so that some of it stays as it is built in, 64 usage." },
    [HA_CMD_HISTORY] = { "history", "DIR",
                         "Prints figures over nights, and from which night on they are others: first a line for each "
                         "figure that has changed, the newest change first. DIR has nights or records (`-o DIR`) in "
                         "it, in the order of their dates; each machine has a curve of its own (docs/history.md).\v"
                         "Exit code: 0 whatever has changed, 64 usage, or a folder that cannot be read." },
};

const char *ha_command_args(const struct ha_command_text *c)
{
    static char lists[1024];
    size_t n = 0;
    if (c != &ha_command_table[HA_CMD_LIST]) return c->args;
    for (size_t i = 0; ha_list_name(i) && n < sizeof lists; i++) {
        const char *name = ha_list_name(i);
        if (ha_list_again(i)) continue;
        n += (size_t)snprintf(lists + n, sizeof lists - n, "%s%s%s", i ? "\n" : "", name,
                              !strcmp(name, "cases")      ? " SUITE|CASE..."
                              : !strcmp(name, "coverage") ? " SUITE..."
                                                          : "");
    }
    return lists;
}

/* ---- one command ------------------------------------------------------------------------------------------------- */

enum { WITHOUT_LETTER = 256 }; /* argp's key of option i that has no letter: so much and i */

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct ha_options *out = state->input;
    struct ha_why why;
    if (key == ARGP_KEY_ARGS) {
        out->words = state->argv + state->next;
        out->words_count = (size_t)(state->argc - state->next);
        return 0;
    }
    for (int i = 0; i < TABLE_COUNT; i++) {
        const struct ha_option *o = &ha_option_table[i];
        if (key != (o->letter ? o->letter : WITHOUT_LETTER + i)) continue;
        if (o->take((char *)out + o->to, arg, &why) != HA_OK)
            argp_error(state, "--%s: %s", o->name, ha_text_clean(why.text));
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

/* The options of these commands, bits, as argp wants them. */
static void options_of(unsigned commands, struct argp_option out[TABLE_COUNT + 1])
{
    size_t n = 0;
    for (int i = 0; i < TABLE_COUNT; i++) {
        const struct ha_option *o = &ha_option_table[i];
        const int key = o->letter ? o->letter : WITHOUT_LETTER + i;
        if (o->commands & commands) out[n++] = (struct argp_option){ o->name, key, o->arg, 0, o->doc, 0 };
    }
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
    fprintf(stderr, "%s: ", program);
    ha_text_print(stderr, text);
    fprintf(stderr, "\nTry `%s --help'.\n", program);
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

/* Folders that are to be set beside each other, also by another path. */
static void check_two(const char *program, const char *a, const char *b)
{
    char first[PATH_MAX], second[PATH_MAX];
    struct ha_why why;
    if (!realpath(a, first) || !realpath(b, second) || strcmp(first, second) != 0) return;
    if (!strcmp(a, b)) ha_why(&why, HA_ERROR, "%.400s is named twice: name different folders", a);
    else ha_why(&why, HA_ERROR, "%.240s and %.240s are the same folder: name different ones", a, b);
    refuse(program, why.text);
}

static void check_options(const char *program, const struct ha_options *o)
{
    if (o->replay && (o->exec || o->mutants))
        refuse(program, "--replay judges a file, --exec a command, --mutants our own checks: one of them");
    if (o->replay && (o->words_count > 1 || (o->words_count && strcmp(o->words[0], "lse_merge"))))
        refuse(program, "--replay FILE is the case; leave SUITE and CASE out, but for lse_merge");
    if (o->replay && strpbrk(o->replay, ", \t\n"))
        refuse(program, "--replay: a path with a blank or a comma cannot stand in an id; give the file another name");
    if (o->random_ns && (o->replay || o->mutants || o->exhaustive || o->processes || o->shuffle))
        refuse(program,
               "--random draws its cases; leave --replay, --mutants, --exhaustive, --processes and --shuffle out");
    if (o->fleet && (o->out_dir || o->resume))
        refuse(program, "--fleet has a folder for each machine, and goes on by itself; leave -o and --resume out");
    if (o->scratch && !o->fleet) refuse(program, "--scratch needs --fleet DIR");
    if (o->resume && !o->out_dir) refuse(program, "--resume needs -o DIR, the folder to go on in");
    if (o->mutants && o->words_count) refuse(program, "--mutants chooses its cases itself; leave SUITE and CASE out");
    if (o->command == HA_CMD_NIGHTLY && o->words_count > 1)
        refuse(program, "nightly measures one suite; a file that names several sections holds them all");
    if (o->command == HA_CMD_NIGHTLY && !o->out_dir && !o->fleet)
        refuse(program, "where to? -o DIR, the folder of this night");
    if (o->machines && (o->price || o->limit_ns))
        refuse(program, "--price and --limit are of folders beside each other; leave --fleet out");
    const bool runs = o->command == HA_CMD_COMPARE && o->in_turns;
    if (o->command == HA_CMD_COMPARE && !runs && (o->out_dir || o->max_time_ns))
        refuse(program, "-o and --max-time go with --run");
    if (runs && (o->machines || o->junit || o->json || o->price || o->limit_ns))
        refuse(program, "--run prints a table; leave --fleet, --junit, --price, --limit and --format json out");
    if (runs && !o->out_dir) refuse(program, "where to? -o DIR, for the records of both");
    if (o->command == HA_CMD_COMPARE && o->machines && o->words_count)
        refuse(program, "--fleet DIR holds all that is judged; leave BASE and NEW out");
    if ((o->command == HA_CMD_COMPARE || o->command == HA_CMD_REPORT) && o->against && !o->machines)
        refuse(program, "--against goes with --fleet; of two records name BASE and NEW");
    if (o->command == HA_CMD_COMPARE && !o->machines && o->words_count < 2)
        refuse(program, runs ? "run what? OLD and NEW: two programs, devices (.so) or plans (.csv)"
                             : "compare what? BASE and NEW: two folders, of `habench run -o` or of nights");
    const bool folders = !runs && (o->command == HA_CMD_COMPARE || o->command == HA_CMD_REPORT);
    for (size_t i = 0; folders && i < o->words_count; i++)
        for (size_t k = 0; k < i; k++) check_two(program, o->words[k], o->words[i]);
    if (folders && o->machines && o->against) check_two(program, o->machines, o->against);
    if (o->command == HA_CMD_RUN && !o->words_count)
        refuse(program, "which SUITE or CASE? `habench list suites` prints the suites");
    if (o->command == HA_CMD_LIST && !o->words_count)
        refuse(program, "list what? `habench list --help` says what there is");
    if (o->command == HA_CMD_PROBE && o->words_count) refuse(program, "probe takes options only");
    if (o->command == HA_CMD_DOCTOR && o->words_count) refuse(program, "doctor takes options only");
    if (o->command == HA_CMD_PLAN && o->words_count) refuse(program, "plan takes options only");
    if (o->command == HA_CMD_CAPTURE && o->words_count) refuse(program, "capture takes options only");
    if (o->command == HA_CMD_CAPTURE && (!o->model || !o->text || !o->out_dir))
        refuse(program, "of what? --model FILE.gguf --text FILE -o TRACE");
    if (o->command == HA_CMD_FIT && o->words_count != 1) refuse(program, "which CASE? one is learnt from");
    if (o->command == HA_CMD_FIT && !o->out_dir) refuse(program, "where to? -o FILE");
    if (o->command == HA_CMD_REPORT && !o->words_count && !o->machines)
        refuse(program, "of which DIR? a folder that `-o DIR` of run, check or probe wrote");
    if (o->command == HA_CMD_REPORT && !o->out_dir && (!o->report_format || !strcmp(o->report_format, "html")))
        refuse(program, "where to? -o report.html");
    if (o->command == HA_CMD_REPORT && o->machines
        && (o->words_count || (o->report_format && strcmp(o->report_format, "html") != 0)))
        refuse(program, "--fleet DIR is one page, as html; leave other folders out");
    if (o->command == HA_CMD_HISTORY && o->words_count != 1)
        refuse(program, "of which DIR? a folder of nights, or of folders that `habench run -o` wrote");
    if (o->command == HA_CMD_CAPACITY && o->words_count != 1)
        refuse(program, "which MODEL? `habench list models` prints those that have a name");
    if (o->command == HA_CMD_CAPACITY && !o->memory_bytes && !o->tokens)
        refuse(program, "of how much? --memory 80GiB, or what do how many need? --tokens 4000000");
}

static void parse_command(int argc, char **argv, struct ha_options *out)
{
    static char program[32];
    snprintf(program, sizeof program, "habench %s", ha_command_table[out->command].name);
    argv[0] = program;
    struct argp_option options[TABLE_COUNT + 1];
    options_of(1u << out->command, options);
    const char *unknown = unknown_option(argc, argv, options);
    if (unknown) refuse_unknown_option(program, unknown, options);

    const struct ha_command_text *c = &ha_command_table[out->command];
    const struct argp argp = {
        .options = options, .parser = parse_option, .args_doc = ha_command_args(c), .doc = c->doc
    };
    argp_parse(&argp, argc, argv, 0, NULL, out);
    check_options(program, out);
}

/* The first word that is no option is the command; the rest is its own. */
static error_t parse_top(int key, char *arg, struct argp_state *state)
{
    struct ha_options *o = state->input;
    struct ha_why why;
    const char *names[HA_COMMANDS + 1] = { NULL };
    switch (key) {
    case ARGP_KEY_ARG:
        for (size_t i = 0; i < HA_COMMANDS; i++) {
            names[i] = ha_command_table[i].name;
            if (strcmp(arg, names[i])) continue;
            const int first = state->next - 1;
            o->command = (enum ha_command)i;
            parse_command(state->argc - first, state->argv + first, o);
            state->next = state->argc;
            return 0;
        }
        ha_unknown(&why, "command", arg, names);
        argp_error(state, "%s", ha_text_clean(why.text));
        return 0;
    case ARGP_KEY_NO_ARGS: argp_usage(state); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void print_version(FILE *stream, struct argp_state *state) { fprintf(stream, "habench %s\n", ha_version()); }

/* Options may stand before the command: it is the first word that is neither an option nor the value of one. */
static void put_command_first(int argc, char **argv)
{
    struct argp_option all[TABLE_COUNT + 1];
    options_of(~0u, all);
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

/* `habench -h`, `habench COMMAND -h`, `habench help` and `habench help COMMAND` are --help; the new argc. */
static int ask_for_help(int argc, char **argv)
{
    static char help[] = "--help";
    if (argc > 1 && !strcmp(argv[argc - 1], "-h")) argv[argc - 1] = help;
    if (argc < 2 || strcmp(argv[1], "help") != 0) return argc;
    if (argc > 2) argv[1] = argv[2];
    argv[argc > 2 ? 2 : 1] = help;
    return argc > 2 ? 3 : 2;
}

void ha_options_parse(int argc, char **argv, struct ha_options *out)
{
    static char program[] = "habench";
    static const struct argp argp = {
        .parser = parse_top,
        .args_doc = "run SUITE|CASE...\ncheck [SUITE|CASE...]\nlist WHAT\nprobe\nfit CASE\ncapacity MODEL\n"
                    "nightly\ncompare BASE NEW...\nhistory DIR\ndoctor\nplan\ncapture\nreport DIR...",
        .doc = "Benchmark and correctness suite for attention over KV caches that are split between a device and host "
               "memory.\v`habench COMMAND --help` says more of one command.",
    };
    *out = (struct ha_options){ 0 };
    argp_program_version_hook = print_version;
    argp_err_exit_status = HA_EXIT_USAGE;
    argv[0] = program;
    argc = ask_for_help(argc, argv);
    if (argc == 2 && ha_manual_print(stdout, argv[1])) exit(HA_EXIT_OK);
    put_command_first(argc, argv);
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, out);
}
