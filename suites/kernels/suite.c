#include "suites/kernels/suite.h"

#include "harness/base/fingerprint.h"
#include "harness/base/placement.h"
#include "harness/base/registry.h"
#include "harness/base/tuning.h"
#include "harness/base/why.h"
#include "suites/kernels/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* clang-format off */
#define IN(member) HA_IN(struct ha_cpu_row, member)
#define TEXT(name, member, doc) { name, "", HA_FIELD_TEXT, IN(member), 1, doc }
#define NUMBER(name, unit, member, ...) { name, unit, HA_FIELD_NUMBER, IN(member), 1, __VA_ARGS__ }
#define FIGURE(name, unit, member, doc, better) \
    NUMBER(name, unit, member.median, doc, better, .lo = offsetof(struct ha_cpu_row, member.lo), \
           .hi = offsetof(struct ha_cpu_row, member.hi)), \
    NUMBER(name "_lo", unit, member.lo, "95% interval of the median: lower end"), \
    NUMBER(name "_hi", unit, member.hi, "upper end")
static const struct ha_field fields[] = {
    TEXT("isa_used", isa, "the table whose code ran; of several kernels that of attention"),
    TEXT("state", state, "harder: the threads' bandwidths add up to more than 0.8 of linear; easier: they share one"),
    TEXT("disturbed", disturbed, "load: too few samples kept their cores, and the others are in the figures; empty: "
        "enough did"),
    TEXT("limit", limit, "what keeps attention from being faster: memory, arithmetic, or waits for what could come "
        "sooner (DTLB: translations, L2: lines that are on the chip); empty: disturbed, or no such attention"),
    NUMBER("threads_used", "", threads, "of the team"),
    NUMBER("retried", "", retried, "samples that lost their cores or whose two ceilings differ"),
    NUMBER("readings", "", readings, "of memory, between two samples"),
    NUMBER("err_over_bound", "", err_over_bound, "largest error over its bound; above 1 is wrong", HA_NEITHER),
    NUMBER("bias", "", bias, "mean error of the LSE over what independent roundings make of it; column p_value has how "
        "likely it is that errors are roundings", HA_NEITHER),
    NUMBER("rms", "", rms, "root mean square of what errors have beyond what may have one sign, over what independent "
        "roundings make of it, of the LSE or o (or weights, or scores); up to 1 all is explained", HA_NEITHER),
    FIGURE("ns", "ns", part_ns[HA_CPU_WHOLE], "of one run", HA_LESS),
    NUMBER("bytes", "bytes", bytes, "that a run has to read (pack: read and written)"),
    NUMBER("flop", "", flop, "of a run"),
    NUMBER("GBps", "GB/s", GBps, "bytes over ns", HA_MORE),
    FIGURE("ratio", "", ratio, "GBps over the read ceiling of the same threads, in pairs", HA_MORE),
    FIGURE("floor", "", floor, "the least time that bytes and flop need, over the time it took", HA_MORE),
    NUMBER("ceiling_GBps", "GB/s", ceiling_GBps, "what these threads read of memory around the samples", HA_NEITHER),
    NUMBER("ceiling_1_GBps", "GB/s", ceiling_1_GBps, "what one thread reads", HA_NEITHER),
    NUMBER("peak_GFLOPps", "GFLOP/s", peak_GFLOPps, "multiply-adds in registers, by these threads", HA_NEITHER),
    NUMBER("cache_GBps", "GB/s", cache_GBps, "of attention over so few keys that each thread has them in its second "
        "cache", HA_NEITHER),
    NUMBER("cycles_line", "", per_line[HA_COUNTER_CYCLES], "of all threads, for 64 bytes that a run reads"),
    NUMBER("stalls_line", "", per_line[HA_COUNTER_STALLS], "of them: nothing retires, as data or units are waited for"),
    NUMBER("misses_line", "", per_line[HA_COUNTER_MISSES], "loads that find their line in no cache"),
    NUMBER("walks_line", "", per_line[HA_COUNTER_WALKS], "loads whose page is not in the DTLB"),
    NUMBER("scale", "", scale, "ceiling of all threads over threads times that of one", HA_NEITHER),
    NUMBER("huge_share", "", huge_share, "of the keys and values: on huge pages", HA_NEITHER),
    NUMBER("node_share", "", node_share, "of them: on the NUMA node that has most", HA_NEITHER),
    NUMBER("wake_ns", "ns", wake_ns, "an empty run of the threads", HA_LESS),
    FIGURE("scores_ns", "ns", part_ns[HA_CPU_SCORES], "of a sparse step: scores of the digests", HA_LESS),
    FIGURE("choice_ns", "ns", part_ns[HA_CPU_CHOICE], "top-k of the blocks", HA_LESS),
    FIGURE("chosen_ns", "ns", part_ns[HA_CPU_CHOSEN], "attention over the chosen blocks", HA_LESS),
    FIGURE("beside_ns", "ns", part_ns[HA_CPU_BESIDE], "of what runs beside it: docs/kernels.md", HA_LESS),
    FIGURE("whole_over_beside", "", whole_over_beside, "the time of a run over that", HA_LESS),
    FIGURE("choice_share", "", choice_share, "top-k over the sparse step", HA_LESS),
    NUMBER("same_runs", "", same_runs, "of a check: runs after the first under load that gave the same bits"),
};
/* clang-format on */

const char *ha_cpu_ceiling_state(const struct ha_cpu_row *r)
{
    static const double linear = 0.8;
    return !(r->threads > 1) || isnan(r->scale) ? "" : r->scale > linear ? "harder" : "easier";
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static const uint64_t cap_most_ns = 700000000; /* of measuring a point */

struct cpu_run {
    struct ha_suite_config config;
    struct ha_cpu_store store;
    struct ha_cpu_teams teams;
    struct ha_kernels best, kernels, constants; /* kernels: of the point that runs; constants: without a plan */
    const struct ha_kernels *given;             /* instead of the registry's */
    struct ha_cpu_work work;                    /* of the point */
    struct ha_cpu_team *team;
};

static size_t rotate_bytes(bool measure)
{
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const size_t least = (size_t)256 << 20, caches = cache > 0 ? 4 * (size_t)cache : 0;
    return !measure ? 0 : ha_measure_share(caches > least ? caches : least);
}

static enum ha_status begin(void **out, const struct ha_suite_config *config, const struct ha_results *before,
                            struct ha_why *why)
{
    struct cpu_run *run = *out = calloc(1, sizeof *run);
    if (!run) return ha_why(why, HA_ERROR, "out of memory");
    run->config = *config;
    HA_TRY(ha_kernels_resolve(NULL, &run->best, why));
    HA_TRY(ha_cpu_store_open(&run->store, rotate_bytes(config->measure), why));
    return ha_cpu_teams_open(&run->teams, why);
}

void ha_cpu_run_with(void *arg, const struct ha_kernels *kernels, size_t rotate)
{
    struct cpu_run *run = arg;
    run->given = kernels;
    if (rotate) run->store.rotate_bytes = rotate;
}

/* the table whose code runs for the point; of tables that a test gives, theirs */
static const char *name_of(const struct cpu_run *run, const struct ha_cpu_point *p)
{
    const struct ha_kernels *of = ha_kernels_origin_of(&run->kernels, ha_cpu_runs(p), (enum ha_dtype)p->dtype);
    return of && !run->given ? of->name : run->kernels.name;
}

struct ha_cpu_work *ha_cpu_run_work(void *run) { return &((struct cpu_run *)run)->work; }

static enum ha_status open_point(void *arg, struct ha_group *g, struct ha_why *why)
{
    struct cpu_run *run = arg;
    const struct ha_cpu_point *p = g->point[0];
    struct ha_cpu_row *r = g->row[0];
    HA_TRY(ha_cpu_teams_get(&run->teams, (enum ha_team)p->team, p->threads, &run->team, why));
    const size_t threads = ha_pool_threads(run->team->pool);
    r->threads = (double)threads;
    const char *isa = p->isa ? ha_kernels_all[p->isa - 1]->name : NULL;
    if (run->given) run->kernels = *run->given;
    else {
        HA_TRY(ha_kernels_resolve_for(isa, threads, &run->kernels, why));
        HA_TRY(ha_kernels_resolve_by(NULL, isa, threads, &run->constants, why));
    }
    const bool planned = !run->given && p->layout == HA_CPU_PACKED && ha_tuning()->choices > 0;
    snprintf(r->isa, sizeof r->isa, "%s", name_of(run, p));
    return ha_cpu_work_open(&run->work, p, &run->kernels, planned ? &run->constants : NULL, run->team->pool,
                            &run->store, why);
}

enum { RUNS_AGAIN = 3 };

static enum ha_status check(void *arg, struct ha_group *g, struct ha_why *why)
{
    struct cpu_run *run = arg;
    struct ha_cpu_row *r = g->row[0];
    r->bytes = run->work.bytes;
    r->flop = run->work.flop;
    HA_TRY(ha_cpu_work_check(&run->work, &r->err_over_bound, why));
    ha_suspect_tell(&run->work.suspect, &r->head, &r->bias, &r->rms);
    ha_fingerprint_print(ha_cpu_work_outputs(&run->work), r->head.outputs);
    if (!run->config.measure) {
        HA_TRY(ha_cpu_work_again(&run->work, RUNS_AGAIN, why));
        r->same_runs = RUNS_AGAIN;
    }
    g->right[0] = true;
    return HA_OK;
}

static void place(const struct ha_cpu_work *w, struct ha_cpu_row *r)
{
    struct ha_placement p;
    if (!w->kv) return;
    ha_placement_read(&p, w->kv, w->turns * w->units * w->unit_bytes);
    r->huge_share = p.huge;
    r->node_share = p.node[0];
    for (size_t i = 1; i < HA_PLACEMENT_NODES; i++) r->node_share = fmax(r->node_share, p.node[i]);
}

static enum ha_status measure(void *arg, struct ha_group *g, struct ha_why *why)
{
    struct cpu_run *run = arg;
    struct ha_cpu_row *row = g->row[0];
    place(&run->work, row);
    HA_TRY(ha_cpu_team_ready(run->team, run->given ? &run->kernels : &run->best, why));
    const uint64_t cap_ns = g->cap_ns < cap_most_ns ? g->cap_ns : cap_most_ns;
    return ha_cpu_measure(&run->work, run->team, cap_ns, g->deadline_ns, g->meeting, row, why);
}

static void close_point(void *arg, struct ha_group *g)
{
    struct cpu_run *run = arg;
    ha_cpu_work_close(&run->work);
}

static void end(void *arg)
{
    struct cpu_run *run = arg;
    ha_cpu_teams_close(&run->teams);
    ha_cpu_store_close(&run->store);
    free(run);
}

const struct ha_suite ha_suite_cpu_kernels = {
    .name = "cpu_kernels",
    .attends = true,
    .doc = "the CPU kernels against what memory gives",
    .key = ha_cpu_keys,
    .keys = HA_CPU_ALL_KEYS,
    .class_key = "kernel",
    .field = fields,
    .fields = sizeof fields / sizeof *fields,
    .file = { "cpu_kernels.csv" },
    .point_bytes = sizeof(struct ha_cpu_point),
    .row_bytes = sizeof(struct ha_cpu_row),
    .uses = ha_cpu_uses,
    .settle = ha_cpu_settle,
    .cost = ha_cpu_cost,
    .shrink = ha_cpu_shrink,
    .begin = begin,
    .open = open_point,
    .check = check,
    .measure = measure,
    .close = close_point,
    .end = end,
    .print = ha_cpu_print,
    .conclude = ha_cpu_conclude,
};
