#include "suites/kernels/measure.h"

#include "harness/base/clock.h"
#include "harness/base/stats.h"
#include "harness/base/why.h"
#include "harness/measure/speed.h"

#include <math.h>

enum { WAKES = 31, PEAKS = 5, PEAK_NS = 3000000 };

enum ha_status ha_cpu_teams_open(struct ha_cpu_teams *t, struct ha_why *why)
{
    struct ha_cpu_team *all;
    *t = (struct ha_cpu_teams){ 0 };
    HA_TRY(ha_cpu_teams_get(t, HA_TEAM_DEFAULT, 0, &all, why));
    t->cores = ha_pool_threads(all->pool);
    return HA_OK;
}

void ha_cpu_teams_close(struct ha_cpu_teams *t)
{
    for (size_t i = 0; i < t->count; i++) {
        ha_paired_destroy(t->team[i].paired);
        ha_pool_destroy(t->team[i].pool);
    }
    *t = (struct ha_cpu_teams){ 0 };
}

enum ha_status ha_cpu_teams_get(struct ha_cpu_teams *t, enum ha_team kind, size_t threads, struct ha_cpu_team **team,
                                struct ha_why *why)
{
    for (size_t i = 0; i < t->count; i++) {
        *team = &t->team[i];
        if ((*team)->threads == threads && (*team)->kind == kind) return HA_OK;
    }
    if (t->cores && threads > t->cores)
        return ha_why(why, HA_WAIVED, "%zu threads: this process has %zu cores", threads, t->cores);
    if (t->count == HA_CPU_TEAMS)
        return ha_why(why, HA_WAIVED, "%zu threads: more than %d different teams of threads in one run", threads,
                      HA_CPU_TEAMS);
    struct ha_pool *pool;
    HA_TRY(ha_pool_create(&pool, kind, threads, why));
    *team = &t->team[t->count++];
    **team = (struct ha_cpu_team){
        .kind = kind, .threads = threads, .pool = pool, .counters = &ha_counters_linux, .wake_ns = (double)NAN
    };
    return HA_OK;
}

static void nothing(void *arg, size_t task, size_t worker) { (void)arg, (void)task, (void)worker; }

static double wake_ns(struct ha_pool *pool)
{
    double x[WAKES];
    for (size_t i = 0; i < WAKES; i++) {
        const uint64_t begin = ha_now_ns();
        ha_pool_run(pool, "wake", ha_pool_threads(pool), nothing, NULL);
        x[i] = (double)(ha_now_ns() - begin);
    }
    return ha_median(x, WAKES);
}

enum ha_status ha_cpu_team_ready(struct ha_cpu_team *t, const struct ha_kernels *best, struct ha_why *why)
{
    if (t->paired) return HA_OK;
    HA_TRY(ha_paired_create(&t->paired, t->pool, best, why));
    t->wake_ns = wake_ns(t->pool);
    return HA_OK;
}

struct spin {
    double (*flops)(size_t rounds);
    size_t rounds;
    double flop[HA_POOL_THREADS_MAX];
};

static void spin_task(void *arg, size_t task, size_t worker)
{
    struct spin *s = arg;
    s->flop[task] = s->flops(s->rounds);
}

/* Floating-point operations per ns; the best of a few, since what disturbs it only slows it. */
static double measure_peak(struct ha_pool *pool, double (*flops)(size_t rounds))
{
    static struct spin s;
    const size_t threads = ha_pool_threads(pool);
    double best = 0;
    s.flops = flops;
    s.rounds = 1000;
    for (uint64_t took = 0; took < PEAK_NS && s.rounds < (size_t)1 << 40; s.rounds *= 2) {
        const uint64_t begin = ha_now_ns();
        flops(s.rounds);
        took = ha_now_ns() - begin;
    }
    for (size_t i = 0; i < PEAKS; i++) {
        const uint64_t begin = ha_now_ns();
        ha_pool_run(pool, "peak", threads, spin_task, &s);
        const double ns = (double)(ha_now_ns() - begin);
        double flop = 0;
        for (size_t j = 0; j < threads; j++) flop += s.flop[j];
        best = fmax(best, flop / ns);
    }
    return best;
}

double ha_cpu_team_peak(struct ha_cpu_team *t, double (*flops)(size_t rounds))
{
    if (!flops) return (double)NAN;
    size_t i = 0;
    while (i < HA_CPU_PEAKS && t->peak[i].flops && t->peak[i].flops != flops) i++;
    if (i == HA_CPU_PEAKS) return measure_peak(t->pool, flops);
    if (!t->peak[i].flops) {
        t->peak[i].flops = flops;
        t->peak[i].GFLOPps = measure_peak(t->pool, flops);
    }
    return t->peak[i].GFLOPps;
}

double ha_cpu_team_speed(struct ha_cpu_team *t) { return ha_speed_least(t->pool, t->rate); }
