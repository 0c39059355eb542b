/* What limits a kernel: by figures that are made up, and of kernels whose time is made up. Linked with ha_now_ns
 * wrapped: time passes where a kernel says so, and with getrusage, so that no core is ever lost. */

#include "suites/kernels/measure.h"

#include "harness/base/registry.h"
#include "harness/base/test.h"
#include "harness/engine/plan.h"

#include <linux/perf_event.h>
#include <math.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

uint64_t __wrap_ha_now_ns(void);
int __wrap_getrusage(int who, struct rusage *use);
static atomic_uint_fast64_t told;
uint64_t __wrap_ha_now_ns(void) { return atomic_fetch_add(&told, 1); }
int __wrap_getrusage(int who, struct rusage *use)
{
    *use = (struct rusage){ .ru_nivcsw = 0 };
    return 0;
}

static struct ha_why why;

/* ---- figures ----------------------------------------------------------------------------------------------------- */

#define NONE (double)NAN
static struct ha_cpu_row row_of(double ratio, double GBps, double cache_GBps)
{
    return (struct ha_cpu_row){
        .ratio.median = ratio, .GBps = GBps, .cache_GBps = cache_GBps, .per_line = { NONE, NONE, NONE, NONE }
    };
}

TEST(limits_follow_from_figures)
{
    static const struct {
        double ratio, GBps, cache_GBps, cycles, stalls, misses, walks;
        const char *limit;
    } planted[] = {
        { 0.90, 9, 30, NONE, NONE, NONE, NONE, "memory" },
        { 0.95, 9, 9, NONE, NONE, NONE, NONE, "memory" }, /* both: memory gives no more */
        { 0.89, 8.5, 10, NONE, NONE, NONE, NONE, "arithmetic" },
        { 0.50, 12, 10, NONE, NONE, NONE, NONE, "arithmetic" },
        { 0.89, 8.4, 10, NONE, NONE, NONE, NONE, "waits" },
        { 0.60, 6, 20, 10, 1, 0.5, 0.04, "waits: DTLB" },
        { 0.60, 6, 20, 10, 5, 0.05, 0.04, "waits: DTLB" },
        { 0.60, 6, 20, 10, 5, 0.05, 0.03, "waits: L2" },
        { 0.60, 6, 20, 10, 3, 0.05, NONE, "waits: L2" },
        { 0.60, 6, 20, 10, 2.9, 0.05, 0, "waits" },
        { 0.60, 6, 20, 10, 5, 0.1, 0.01, "waits" }, /* of memory */
        { 0.60, 6, 20, 10, 5, NONE, NONE, "waits" },
        { 0.60, 6, 20, 10, NONE, 0.05, 0.01, "waits" },
        { 0.60, 6, 20, NONE, 5, 0.05, 9, "waits" },
        { 0.95, 9, 30, 10, 9, 0.01, 9, "memory" },
        { 0.60, 9, 9, 10, 9, 0.01, 9, "arithmetic" },
        { NONE, 9, 30, 10, 5, 0.05, 9, "" },
        { 0.95, 9, NONE, 10, 5, 0.05, 9, "" },
        { 0.95, 9, 0, NONE, NONE, NONE, NONE, "" },
    };
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        struct ha_cpu_row r = row_of(planted[i].ratio, planted[i].GBps, planted[i].cache_GBps);
        r.per_line[HA_COUNTER_CYCLES] = planted[i].cycles;
        r.per_line[HA_COUNTER_STALLS] = planted[i].stalls;
        r.per_line[HA_COUNTER_MISSES] = planted[i].misses;
        r.per_line[HA_COUNTER_WALKS] = planted[i].walks;
        if (strcmp(ha_cpu_limit(&r), planted[i].limit)) fail_msg("row %zu: '%s'", i, ha_cpu_limit(&r));
        strcpy(r.disturbed, "load");
        assert_string_equal(ha_cpu_limit(&r), "");
    }
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* Memory gives 10 GB/s: 100 ps a byte. */
enum { MEMORY_PS = 100 };
static struct {
    uint64_t arithmetic_ps, memory_ps;
    const void *last;
    uint64_t bytes;
    size_t cached, cold; /* calls that read what the last one read, and others */
    size_t most;         /* bytes that one of the former read at most */
} play;

static void pass(uint64_t ps, size_t bytes) { atomic_fetch_add(&told, ps * bytes / 1000); }

static uint64_t read_told(const void *p, size_t bytes)
{
    pass(MEMORY_PS, bytes);
    return 0;
}

static double flops_told(size_t rounds)
{
    atomic_fetch_add(&told, rounds);
    return 64 * (double)rounds;
}

static void attend_told(const struct ha_packed_chunk *c)
{
    const void *at = (const char *)c->packed.blocks + c->first;
    const size_t bytes = 2 * c->keys * c->head_dim * sizeof(float);
    const bool cached = at == play.last;
    *(cached ? &play.cached : &play.cold) += 1;
    if (cached && bytes > play.most) play.most = bytes;
    play.last = at;
    play.bytes += bytes;
    pass(cached || play.memory_ps < play.arithmetic_ps ? play.arithmetic_ps : play.memory_ps, bytes);
    for (size_t r = 0; r < c->q_rows; r++) c->level[r] = c->sum[r] = 1;
    memset(c->acc, 0, c->q_rows * c->head_dim * sizeof *c->acc);
}

/* Counters of a made-up system, of 1000 lines that attention read. */
static uint64_t counts[HA_COUNTERS];
static int open_made_up(uint32_t type, uint64_t config)
{
    if (type == PERF_TYPE_HARDWARE) return config == PERF_COUNT_HW_CPU_CYCLES ? HA_COUNTER_CYCLES : HA_COUNTER_STALLS;
    return (config & 0xff) == PERF_COUNT_HW_CACHE_LL ? HA_COUNTER_MISSES : HA_COUNTER_WALKS;
}
static bool read_made_up(int counter, uint64_t value[3])
{
    value[0] = play.bytes * counts[counter] / 64000;
    value[1] = value[2] = atomic_load(&told);
    return true;
}
static void close_made_up(int counter) {}
static const struct ha_counters_system made_up = { open_made_up, read_made_up, close_made_up };

static struct {
    struct ha_cpu_teams teams;
    struct ha_cpu_team *team;
    struct ha_cpu_store store;
    struct ha_cpu_work work;
} open;

static void open_work(const char *id, const struct ha_kernels *k, size_t threads)
{
    struct ha_cpu_point p;
    const struct ha_suite *suite;
    assert_int_equal(ha_id_parse(id, &suite, &p, sizeof p, &why), HA_OK);
    assert_int_equal(ha_cpu_teams_open(&open.teams, &why), HA_OK);
    assert_int_equal(ha_cpu_teams_get(&open.teams, HA_TEAM_OWN, threads, &open.team, &why), HA_OK);
    assert_int_equal(ha_cpu_store_open(&open.store, 1, &why), HA_OK);
    assert_int_equal(ha_cpu_work_open(&open.work, &p, k, NULL, open.team->pool, &open.store, &why), HA_OK);
}

static void close_work(void)
{
    ha_cpu_work_close(&open.work);
    ha_cpu_store_close(&open.store);
    ha_cpu_teams_close(&open.teams);
}

static struct ha_cpu_row measure(const char *id, uint64_t arithmetic_ps, uint64_t memory_ps)
{
    struct ha_cpu_row r = { 0 };
    struct ha_kernels k;
    memset(&play, 0, sizeof play);
    play.arithmetic_ps = arithmetic_ps;
    play.memory_ps = memory_ps;
    assert_int_equal(ha_kernels_resolve(NULL, &k, &why), HA_OK);
    k.read = read_told;
    k.read_streams = NULL;
    k.flops = flops_told;
    k.attend_packed[HA_F32] = attend_told;
    open_work(id, &k, 1);
    assert_int_equal(ha_cpu_team_ready(open.team, &k, &why), HA_OK);
    open.team->counters = &made_up;
    assert_int_equal(ha_cpu_measure(&open.work, open.team, UINT64_MAX / 4, 0, NULL, &r, &why), HA_OK);
    close_work();
    print_message("%s: ratio %.3f, %.2f of %.2f GB/s in cache, %zu calls in cache, %zu not\n", r.limit, r.ratio.median,
                  r.GBps, r.cache_GBps, play.cached, play.cold);
    return r;
}

static const char attends[] = "cpu_kernels:kernel=attend,dtype=f32,ctx=4096,heads=2/2,head_dim=256,threads=1";

TEST(limits_of_kernels_are_found)
{
    static const struct {
        uint64_t arithmetic_ps, memory_ps;
        const char *limit;
        uint64_t counts[HA_COUNTERS]; /* of 1000 lines */
    } planted[] = {
        { 40, MEMORY_PS, "memory", { 10000, 9000, 0, 2000 } },      /* all is there in time */
        { 200, MEMORY_PS, "arithmetic", { 10000, 9000, 0, 2000 } }, /* computes for long */
        { 40, 2 * MEMORY_PS, "waits", { 10000, 9000, 500, 16 } },   /* asks for nothing ahead */
        { 40, 2 * MEMORY_PS, "waits: L2", { 10000, 9000, 20, 16 } },
        { 40, 2 * MEMORY_PS, "waits: DTLB", { 10000, 9000, 500, 40 } },
        { 105, MEMORY_PS, "memory", { 10000, 9000, 0, 2000 } }, /* both, memory nearly */
    };
    const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        memcpy(counts, planted[i].counts, sizeof counts);
        const struct ha_cpu_row r = measure(attends, planted[i].arithmetic_ps, planted[i].memory_ps);
        assert_string_equal(r.limit, planted[i].limit);
        for (size_t e = 0; e < HA_COUNTERS; e++)
            assert_true(fabs(r.per_line[e] - (double)planted[i].counts[e] / 1000) < 0.001);
        assert_true(fabs(r.cache_GBps * (double)planted[i].arithmetic_ps / 1000 - 1) < 0.05);
        assert_true(play.cached > 0 && play.most > 0 && (cache <= 0 || play.most <= (size_t)cache / 4));
    }
}

/* Room for 70 keys: whole blocks of them, no more than there are, and the query tokens' own; one block at least. */
TEST(as_many_keys_as_fit)
{
    static const struct {
        const char *id;
        size_t room, keys;
    } planted[] = {
        { "kernel=attend,ctx=333", 70, 64 },
        { "kernel=attend,ctx=33", 70, 33 },
        { "kernel=attend,ctx=333", 1, 32 },
        { "kernel=attend,layout=natural,ctx=333", 70, 64 },
        { "kernel=append,ctx=333,q_len=40", 70, 64 + 40 },
        { "kernel=append,layout=natural,ctx=333,q_len=40", 70, 64 + 40 },
        { "kernel=append,layout=natural,ctx=3,q_len=40", 70, 3 + 40 },
        { "kernel=blocks,ctx=333,block=16,budget=50", 70, 64 },
        { "kernel=blocks,ctx=333,block=128,budget=100", 70, 128 },
        { "kernel=blocks,ctx=333,block=128,budget=100", 4000, 333 },
        { "kernel=gather,ctx=333,block=16,budget=50", 70, 64 },
        { "kernel=gather,ctx=320,block=32,budget=10", 70, 32 },
        { "kernel=gather,ctx=333,block=128,budget=100", 4000, 333 },
    };
    enum { ROW = 2 * 24 * 4, RUNS = 3 };
    struct ha_kernels k;
    assert_int_equal(ha_kernels_resolve(NULL, &k, &why), HA_OK);
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++)
        for (size_t all = 0; all < 2; all++) {
            char id[256];
            double ns = 0;
            snprintf(id, sizeof id, "cpu_kernels:%s,dtype=f32,heads=4/2,head_dim=24", planted[i].id);
            open_work(id, &k, all ? 0 : 1);
            const size_t threads = ha_pool_threads(open.team->pool);
            const double bytes = open.work.subject->in_cache(&open.work, planted[i].room * ROW, RUNS, &ns);
            if (bytes != (double)(threads * RUNS * planted[i].keys * ROW)) fail_msg("row %zu: %.0f bytes", i, bytes);
            assert_true(ns > 0);
            assert_int_equal(ha_arena_check(open.work.arena, &why), HA_OK);
            close_work();
        }
}

/* None of what has no such figure. */
TEST(other_kernels_name_no_limit)
{
    const struct ha_cpu_row r = measure("cpu_kernels:kernel=softmax,ctx=300,heads=2/1,threads=1", 1, 1);
    assert_true(isnan(r.cache_GBps) && !*r.limit);
}
