#include "harness/program/together.h"

#include "harness/base/file.h"
#include "harness/base/fingerprint.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "harness/fleet/rank.h"
#include "harness/fleet/topology.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum together { NODE, ALL, PAIRS };
const char *const ha_together_words[] = { "node", "all", "pairs", NULL };

/* Another rank may take so many times the time of a case for one before this rank knows that it hangs. */
enum { CASE_TIMES = 3 };
static const uint64_t case_ns = 600000000000;
enum { WAITS_PER_CASE = 5 }; /* who comes to a window that much of a case's time after the first is not waited for */

struct ha_together {
    enum together what;
    struct ha_rank rank;
    struct ha_meet *node, *all; /* all: NULL but for ALL */
    uint64_t stuck_ns;
};

/* ---- meeting ----------------------------------------------------------------------------------------------------- */

/* What the ranks that one launcher started have in common, and those of another have not: a job may start several, and
 * tasks of an array, which share the job that a fleet has, may be on one host: each has a SLURM_JOB_ID of its own. */
static void name_meeting(const struct ha_rank *r, char out[160])
{
    static const char *const steps[] = { "PMIX_NAMESPACE", "SLURM_STEP_ID" };
    const char *step = getenv("HABENCH_MEET_JOB"); /* by habench_meet */
    const char *task = getenv("SLURM_JOB_ID");
    char parent[24], name[HA_RANK_NAME], job[HA_RANK_JOB];
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !step; i++) step = getenv(steps[i]);
    if (!step) { /* whoever started this rank has started the others here */
        snprintf(parent, sizeof parent, "%ld", (long)getppid());
        step = parent;
    }
    snprintf(name, sizeof name, "%s", step);
    snprintf(job, sizeof job, "%s", task ? task : r->job);
    ha_rank_safe(name);
    ha_rank_safe(job);
    snprintf(out, 160, "%s%s%.70s", job, *job ? "." : "", name);
}

enum ha_exit ha_together_open(struct ha_together **out, const struct ha_options *o, struct ha_why *why)
{
    size_t what;
    struct ha_together *t = *out = calloc(1, sizeof *t);
    if (!t) return ha_why(why, HA_ERROR, "out of memory"), HA_EXIT_ENVIRONMENT;
    if (ha_word_find("--together", o->together, ha_together_words, &what, why) != HA_OK) return HA_EXIT_USAGE;
    t->what = (enum together)what;
    char job[160];
    const struct ha_rank *r = &t->rank;
    if (ha_rank_find(&t->rank, why) != HA_OK) return ha_why_prefix(why, HA_ERROR, "--together"), HA_EXIT_USAGE;
    if (!r->ranks || !r->local_ranks || r->local >= r->local_ranks) {
        ha_why(
            why, HA_ERROR,
            "--together: %s does not say which rank of how many this is, and which of this host: start it by mpirun or "
            "srun",
            !strcmp(r->launcher, "none") ? "the environment" : r->launcher);
        return HA_EXIT_USAGE;
    }
    ha_rank_take_device(r, o->device);
    name_meeting(r, job);
    if ((what == ALL ? r->ranks : r->local_ranks) < 2) {
        ha_why(why, HA_ERROR, "--together %s: this rank is the only one%s: start it by mpirun or srun", o->together,
               what == ALL ? "" : " here");
        return HA_EXIT_USAGE;
    }
    const uint64_t time_ns = o->case_time_ns ? o->case_time_ns : case_ns, wait_ns = time_ns / WAITS_PER_CASE;
    t->stuck_ns = CASE_TIMES * time_ns;
    enum ha_status status = ha_meet_open(&t->node, &ha_meet_node, NULL, job, r->local, r->local_ranks, wait_ns, why);
    if (status == HA_OK && what == ALL)
        status = ha_meet_open(&t->all, &ha_meet_all, NULL, job, r->rank, r->ranks, wait_ns, why);
    return status == HA_OK ? HA_EXIT_OK : HA_EXIT_ENVIRONMENT;
}

void ha_together_close(struct ha_together *t)
{
    if (!t) return;
    ha_meet_close(t->node);
    ha_meet_close(t->all);
    free(t);
}

/* Windows 0 and on of the host, one for each rank; what is run begins behind them. */
void ha_together_await(struct ha_together *t)
{
    if (!t) return;
    ha_topology_tell(t->node);
    ha_meet_pass(t->node, ha_meet_rank(t->node));
    ha_meet_turn(t->node, ha_meet_rank(t->node), t->stuck_ns);
}

void ha_together_done(struct ha_together *t)
{
    if (t) ha_meet_pass(t->node, ha_meet_ranks(t->node));
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

struct runs {
    struct ha_together *together;
    const struct ha_plan *plan;
    const struct ha_run_options *options;
    uint64_t digest; /* of what is run */
    double *alone;
    enum ha_exit code; /* the first that was not HA_EXIT_OK */
    struct ha_why *why;
};

/* What a device is called may differ from rank to rank, and is no other case. */
static uint64_t digest_of(const struct ha_plan *plan, const struct ha_run_options *o)
{
    uint64_t hash = HA_FINGERPRINT_BEGIN;
    const uint64_t more[] = { o->processes, o->seed, o->shuffle ? 1 + *o->shuffle : 0 };
    for (size_t i = 0; i < plan->entries; i++)
        for (const char *id = plan->entry[i].id, *device; id; id = device ? device + strcspn(device, ",") : NULL) {
            device = strstr(id, "device=");
            hash = ha_fingerprint_bytes(hash, id, device ? (size_t)(device - id) : strlen(id));
        }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) hash = ha_fingerprint_mix(hash, more[i]);
    return hash;
}

/* "OUT/NAME", on the heap; NULL without OUT, or where it cannot be. */
static char *folder_in(const char *out, const char *name, struct ha_why *why)
{
    char path[4096];
    return out && ha_file_path(path, out, name, "", why) == HA_OK ? strdup(path) : NULL;
}

/* One run of the plan, from which the others learn when it is over. */
static enum ha_exit run_one(struct runs *r, const struct ha_at_once *at_once, const char *name, uint64_t max_time_ns)
{
    struct ha_run_options o = *r->options;
    char options[512], *folder = folder_in(o.out_dir, name, r->why);
    if (r->options->out_dir && !folder) return HA_EXIT_ENVIRONMENT;
    snprintf(options, sizeof options, "%.400s%stogether=%s", o.options ? o.options : "",
             o.options && *o.options ? " " : "", name);
    o.out_dir = folder;
    o.at_once = at_once;
    o.max_time_ns = max_time_ns;
    o.options = options;
    const enum ha_exit code = ha_run(r->plan, &o, r->why);
    if (r->code == HA_EXIT_OK) r->code = code;
    free(folder);
    return code;
}

static bool gives_up(enum ha_exit code) { return code == HA_EXIT_USAGE || code == HA_EXIT_INTERNAL || ha_stop; }

static void say_what(const struct runs *r, const char *text)
{
    FILE *out = r->options->json ? stderr : stdout;
    const struct ha_rank *rank = &r->together->rank;
    fprintf(out, "Rank %" PRIu64 " of %" PRIu64 ", %" PRIu64 " of %" PRIu64 " on this host: %s\n\n", rank->rank,
            rank->ranks, rank->local, rank->local_ranks, text);
}

/* All ranks of the meeting are at this window, and run the same. */
static bool gather(struct runs *r, struct ha_meet *meet, uint64_t window)
{
    if (ha_meet_agree(meet, window, r->digest, r->together->stuck_ns, r->why) == HA_OK) return !ha_stop;
    r->code = HA_EXIT_USAGE;
    return false;
}

/* Each pair of the ranks of this host by itself. The others pass all of its windows, and wait where they have some. */
static void run_pairs(struct runs *r, uint64_t first, uint64_t windows, uint64_t max_time_ns)
{
    struct ha_meet *meet = r->together->node;
    const size_t own = ha_meet_rank(meet), ranks = ha_meet_ranks(meet);
    const uint64_t pairs = (uint64_t)ranks * (ranks - 1) / 2;
    for (size_t a = 0; a < ranks; a++)
        for (size_t b = a + 1; b < ranks; b++, first += windows) {
            char name[64], text[64];
            if (own != a && own != b) {
                ha_meet_pass(meet, first + windows);
                continue;
            }
            const struct ha_at_once at_once = {
                .meet = meet, .first = first, .entries = r->plan->entries, .of = 2, .alone = r->alone
            };
            snprintf(name, sizeof name, "pairs/%zu", own == a ? b : a);
            snprintf(text, sizeof text, "at once with rank %zu of this host", own == a ? b : a);
            if (!gather(r, meet, first)) return;
            say_what(r, text);
            if (gives_up(run_one(r, &at_once, name, max_time_ns / pairs))) return;
        }
}

static void run_at_once(struct runs *r, uint64_t first, uint64_t windows, uint64_t max_time_ns)
{
    struct ha_together *t = r->together;
    struct ha_meet *meet = t->all ? t->all : t->node;
    const struct ha_at_once at_once = { .meet = meet,
                                        .first = t->all
                                                     ? ha_at_once_windows(meet, r->plan->entries, r->options->processes)
                                                     : first,
                                        .entries = r->plan->entries,
                                        .of = ha_meet_ranks(meet),
                                        .alone = r->alone };
    if (t->what == PAIRS) {
        run_pairs(r, first, windows, max_time_ns);
        return;
    }
    if (!gather(r, meet, at_once.first)) return;
    say_what(r, t->all ? "at once with all" : "at once with those of this host");
    run_one(r, &at_once, "together", max_time_ns);
}

static void run_all(struct runs *r)
{
    struct ha_together *t = r->together;
    const size_t ranks = ha_meet_ranks(t->node);
    const uint64_t windows = ha_at_once_windows(t->node, r->plan->entries, r->options->processes), first = ranks,
                   time_ns = r->options->max_time_ns, alone_ns = time_ns / (ranks + 1) * ranks;
    const struct ha_at_once turns = { .meet = t->node,
                                      .also = t->all,
                                      .turns = true,
                                      .first = first,
                                      .entries = r->plan->entries,
                                      .of = 1,
                                      .alone = r->alone };
    if (!gather(r, t->node, first)) return;
    say_what(r, "alone, while the others of this host wait");
    if (!gives_up(run_one(r, &turns, "alone", alone_ns))) run_at_once(r, first + windows, windows, time_ns - alone_ns);
}

/* In the record of each alone and in that of all, not in those of pairs: what the ranks share. At the end, when all
 * have told what they use. */
static void keep_topology(const struct runs *r)
{
    static const char *const records[] = { "alone", "together" };
    struct ha_why why = { "" };
    for (size_t i = 0; i < sizeof records / sizeof *records && r->options->out_dir; i++) {
        char path[4096];
        if (ha_file_path(path, r->options->out_dir, records[i], "", &why) != HA_OK || access(path, W_OK) != 0) continue;
        if (ha_topology_write(r->together->node, path, &why) != HA_OK)
            fprintf(stderr, "warning: no topology: %s\n", why.text);
    }
}

/* Launchers end the others when one rank has ended, and not well. */
static void leave_at_once(struct ha_together *t)
{
    struct ha_meet *const meets[] = { t->node, t->all };
    for (size_t i = 0; i < sizeof meets / sizeof *meets && meets[i]; i++) {
        ha_meet_pass(meets[i], HA_MEET_WINDOWS_MAX);
        ha_meet_turn(meets[i], HA_MEET_WINDOWS_MAX, t->stuck_ns);
    }
}

enum ha_exit ha_together_run(struct ha_together *t, const struct ha_plan *plan, const struct ha_run_options *options,
                             struct ha_why *why)
{
    const size_t cases = plan->entries * (options->processes ? options->processes : 1),
                 ranks = ha_meet_ranks(t->all ? t->all : t->node);
    struct runs r = { .together = t, .plan = plan, .options = options, .digest = digest_of(plan, options), .why = why };
    const uint64_t windows = ha_at_once_windows(t->all ? t->all : t->node, plan->entries, options->processes);
    if (windows > HA_MEET_WINDOWS_MAX / (2 + (t->what == PAIRS ? ranks * ranks / 2 : 0))) {
        ha_why(why, HA_ERROR, "--together: %zu cases are too many for %zu ranks", cases, ranks);
        return HA_EXIT_USAGE;
    }
    r.alone = malloc(cases * sizeof *r.alone);
    if (!r.alone) return ha_why(why, HA_ERROR, "out of memory"), HA_EXIT_ENVIRONMENT;
    for (size_t i = 0; i < cases; i++) r.alone[i] = (double)NAN;
    run_all(&r);
    free(r.alone);
    keep_topology(&r);
    leave_at_once(t);
    return r.code;
}
