#include "suites/kernels/measure.h"

#include "harness/base/clock.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLES_LEAST = 15, SAMPLES_MOST = 60, LOST_MOST = 240, WARM_RUNS = 2, RUNS_MOST = 32, READINGS_MOST = 8 };
/* In cache: K and V take this part of the second cache. */
enum { CACHE_PART = 4, CACHE_SAMPLES = 5, CACHE_RUNS_MOST = 10000 };
static const double cache_ns = 2e5;  /* of a sample there */
static const double sample_ns = 2e6; /* the least time of a sample, where there are enough turns */
static const struct ha_sampling rule = { .least = SAMPLES_LEAST, .interval = 0.01 };
static const double speed_least = 0.85;        /* of a core, before the sample, before the kernel and after it */
static const double ceilings_apart_most = 0.1; /* of their mean: the one before the sample and the one after it */
static const uint64_t quiet_most_ns = 50000000, quiet_step_ns = 2000000; /* how long a sample waits for that speed */

/* What a sample says, by index: ns of each part, and what follows from them and from the ceilings around it. */
enum { RATIO = HA_CPU_PARTS, FLOOR, OVER_BESIDE, CHOICE_SHARE, RATE, CEILING, CEILING_1, SCALE, VALUES };
struct sample {
    double x[VALUES];
};

struct series {
    struct sample kept[SAMPLES_MOST],
        lost[SAMPLES_MOST]; /* lost: a thread lost its core or half of it, or memory changed its pace */
    size_t kept_count, lost_count, lost_all;
    struct ha_paired_sample ceiling; /* read after the last sample */
    size_t readings;                 /* of memory, between two samples */
    double peak_GFLOPps;
};

/* of all threads of the process */
static long lost_cores(void)
{
    struct rusage use;
    return getrusage(RUSAGE_SELF, &use) == 0 ? use.ru_nivcsw : 0;
}

static void await_quiet(struct ha_cpu_team *team)
{
    const uint64_t begin = ha_now_ns();
    while (ha_cpu_team_speed(team) < speed_least && ha_now_ns() - begin < quiet_most_ns && !ha_stop)
        nanosleep(&(struct timespec){ .tv_nsec = (long)quiet_step_ns }, NULL);
}

/* The mean of several readings of memory: all bytes over all time. */
static void read_ceiling(struct ha_cpu_team *team, size_t readings, struct ha_paired_sample *c)
{
    double s = 0, s_1 = 0; /* sum of the seconds that a gigabyte takes: with all threads, with one */
    for (size_t i = 0; i < readings; i++) {
        ha_paired_read(team->paired, c);
        s += 1 / c->GBps;
        s_1 += 1 / c->GBps_1;
    }
    c->GBps = (double)readings / s;
    c->GBps_1 = (double)readings / s_1;
    c->scale = c->GBps / ((double)ha_pool_threads(team->pool) * c->GBps_1);
}

size_t ha_cpu_readings_for(double ns, double reading_ns)
{
    const double n = ns / 2 / reading_ns;
    return n < 1 ? 1 : n > READINGS_MOST ? READINGS_MOST : (size_t)(n + 0.5);
}

static double reading_ns(struct ha_cpu_team *team, struct ha_paired_sample *c)
{
    double shortest = (double)INFINITY;
    for (int i = 0; i < HA_CPU_FIRST_READINGS; i++) {
        const uint64_t begin = ha_now_ns();
        ha_paired_read(team->paired, c);
        shortest = fmin(shortest, (double)(ha_now_ns() - begin));
    }
    return shortest;
}

static double run_part(struct ha_cpu_work *w, size_t part, size_t repeats)
{
    double ns = 0;
    for (size_t i = 0; i < repeats; i++) {
        if (part == HA_CPU_WHOLE || w->subject->part[part].constants) ha_cpu_work_turn(w, w->turn + 1);
        const uint64_t begin = ha_now_ns();
        ha_cpu_work_run(w, part);
        ns += (double)(ha_now_ns() - begin);
    }
    return ns / (double)repeats;
}

/* Runs of a sample: several where one is short and each finds other keys, which no cache holds. */
static size_t repeats_of(const struct ha_cpu_work *w, double run_ns)
{
    const size_t most = w->turns < RUNS_MOST ? w->turns : RUNS_MOST;
    const size_t wanted = run_ns > sample_ns / RUNS_MOST ? (size_t)(sample_ns / run_ns) : RUNS_MOST;
    const bool rotates = w->turns > 1 && !w->subject->part[HA_CPU_WHOLE].cold;
    return rotates && wanted > 1 ? wanted < most ? wanted : most : w->subject->repeats ? w->subject->repeats : 1;
}

static void take(struct ha_cpu_work *w, struct ha_cpu_team *team, struct series *s, size_t repeats)
{
    const struct ha_paired_sample before = s->ceiling;
    struct ha_paired_sample *after = &s->ceiling, other;
    struct sample sample = { { 0 } };
    double *x = sample.x;
    await_quiet(team);
    const long losses = lost_cores();
    const double speed = ha_cpu_team_speed(team);
    for (size_t p = 0; p < HA_CPU_PARTS; p++) {
        if (!ha_cpu_work_has(w, p)) continue;
        if (p != HA_CPU_WHOLE && w->subject->part[p].cold) ha_paired_read(team->paired, &other);
        x[p] = run_part(w, p, repeats);
    }
    const double least = fmin(speed, ha_cpu_team_speed(team));
    read_ceiling(team, s->readings, after);
    const double ns = x[HA_CPU_WHOLE];
    x[CEILING] = (before.GBps + after->GBps) / 2;
    x[CEILING_1] = (before.GBps_1 + after->GBps_1) / 2;
    x[SCALE] = (before.scale + after->scale) / 2;
    x[RATE] = w->bytes / ns;
    x[RATIO] = x[RATE] / x[CEILING];
    x[FLOOR] = fmax(w->bytes / x[CEILING], w->flop / s->peak_GFLOPps)
               / ns; /* NaN, an unknown peak, counts for nothing */
    x[OVER_BESIDE] = ns / x[HA_CPU_BESIDE];
    x[CHOICE_SHARE] = x[HA_CPU_CHOICE] / ns;
    const bool steady = fabs(before.GBps - after->GBps) <= ceilings_apart_most * x[CEILING];
    if (lost_cores() == losses && least >= speed_least && steady) {
        if (s->kept_count < SAMPLES_MOST) s->kept[s->kept_count++] = sample;
        return;
    }
    s->lost_all++;
    if (s->lost_count < SAMPLES_MOST) s->lost[s->lost_count++] = sample;
}

/* ---- what limits it ---------------------------------------------------------------------------------------------- */

/* GB/s: the best of a few, since what disturbs it only slows it. */
static double rate_in_cache(struct ha_cpu_work *w)
{
    static const size_t unknown = (size_t)512 << 10; /* a small one */
    const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    const size_t bytes = (cache > 0 ? (size_t)cache : unknown) / CACHE_PART;
    double ns, best = 0;
    if (!w->subject->in_cache) return (double)NAN;
    for (int i = 0; i < WARM_RUNS; i++)
        if (!(w->subject->in_cache(w, bytes, 1, &ns) > 0)) return (double)NAN;
    const size_t runs = (size_t)fmax(1, fmin(CACHE_RUNS_MOST, cache_ns / ns));
    for (int i = 0; i < CACHE_SAMPLES; i++) {
        const double read = w->subject->in_cache(w, bytes, runs, &ns);
        best = fmax(best, read / ns);
    }
    return best;
}

static void run_counted(void *work) { run_part(work, HA_CPU_WHOLE, 1); }

static void explain(struct ha_cpu_work *w, struct ha_cpu_team *team, struct ha_cpu_row *r)
{
    static const double line_bytes = 64;
    await_quiet(team);
    ha_counters_take(team->counters, team->pool, run_counted, w, r->per_line);
    for (size_t i = 0; i < HA_COUNTERS; i++) r->per_line[i] *= line_bytes / w->bytes;
    r->cache_GBps = rate_in_cache(w);
    strcpy(r->limit, ha_cpu_limit(r));
}

static bool precise(const struct series *s)
{
    double x[SAMPLES_MOST];
    for (size_t i = 0; i < s->kept_count; i++) x[i] = s->kept[i].x[RATIO];
    return ha_sampling_enough(&rule, x, s->kept_count);
}

/* ---- what the samples say -------------------------------------------------------------------------------- */

static struct ha_estimate figure(const struct series *s, int what)
{
    double x[SAMPLES_MOST];
    for (size_t i = 0; i < s->kept_count; i++) x[i] = s->kept[i].x[what];
    return ha_estimate(x, s->kept_count);
}

static void conclude(const struct ha_cpu_work *w, const struct series *s, struct ha_cpu_row *r)
{
    for (int p = 0; p < HA_CPU_PARTS; p++)
        if (ha_cpu_work_has(w, (size_t)p)) r->part_ns[p] = figure(s, p);
    r->head.samples = (double)s->kept_count;
    r->ratio = figure(s, RATIO);
    r->floor = figure(s, FLOOR);
    r->GBps = figure(s, RATE).median;
    r->ceiling_GBps = figure(s, CEILING).median;
    r->ceiling_1_GBps = figure(s, CEILING_1).median;
    r->scale = figure(s, SCALE).median;
    r->peak_GFLOPps = s->peak_GFLOPps;
    if (ha_cpu_work_has(w, HA_CPU_BESIDE)) r->whole_over_beside = figure(s, OVER_BESIDE);
    if (w->subject->part[HA_CPU_CHOICE].name) r->choice_share = figure(s, CHOICE_SHARE);
}

/* Where too few samples kept their cores the others count too, and the row says so. */
static void settle(const struct ha_cpu_work *w, struct series *s, struct ha_cpu_row *r)
{
    const bool disturbed = s->kept_count < SAMPLES_LEAST && s->lost_count > 0;
    for (size_t i = 0; disturbed && i < s->lost_count && s->kept_count < SAMPLES_MOST; i++)
        s->kept[s->kept_count++] = s->lost[i];
    conclude(w, s, r);
    r->retried = (double)s->lost_all;
    strcpy(r->state, ha_cpu_ceiling_state(r));
    strcpy(r->disturbed, disturbed ? "load" : "");
}

static bool has_enough(const struct series *s, uint64_t took_ns, uint64_t cap_ns, uint64_t deadline_ns)
{
    if (s->kept_count == SAMPLES_MOST || s->lost_all >= LOST_MOST || precise(s)) return true;
    const bool late = deadline_ns && s->kept_count + s->lost_count > 0 && ha_now_ns() >= deadline_ns;
    return late || took_ns > 4 * cap_ns || (took_ns > cap_ns && s->kept_count >= SAMPLES_LEAST);
}

enum ha_status ha_cpu_measure(struct ha_cpu_work *w, struct ha_cpu_team *team, uint64_t cap_ns, uint64_t deadline_ns,
                              const struct ha_meeting *meeting, struct ha_cpu_row *r, struct ha_why *why)
{
    struct series *s = calloc(1, sizeof *s);
    if (!s) return ha_why(why, HA_ERROR, "out of memory");
    const bool bf16 = w->dtype == HA_BF16 && w->point.layout == HA_CPU_PACKED;
    s->peak_GFLOPps = ha_cpu_team_peak(team, bf16 ? w->kernels->flops_bf16 : w->kernels->flops);
    uint64_t begin = ha_now_ns();
    double warm_ns = 0;
    for (size_t i = 0; i < WARM_RUNS; i++) warm_ns = run_part(w, HA_CPU_WHOLE, 1);
    const size_t repeats = repeats_of(w, warm_ns);
    s->readings = ha_cpu_readings_for(warm_ns * (double)repeats, reading_ns(team, &s->ceiling));
    begin += ha_meeting_begin(meeting);
    read_ceiling(team, s->readings, &s->ceiling);
    for (uint64_t took = 0; !ha_stop && ha_meeting_goes_on(meeting, has_enough(s, took, cap_ns, deadline_ns));
         took = ha_now_ns() - begin)
        take(w, team, s, repeats);
    const bool enough = s->kept_count + s->lost_count > 0 && !ha_stop;
    if (enough) {
        settle(w, s, r);
        explain(w, team, r);
    }
    r->readings = (double)s->readings;
    r->wake_ns = team->wake_ns;
    free(s);
    return enough ? HA_OK : ha_why(why, HA_WAIVED, "stopped");
}
