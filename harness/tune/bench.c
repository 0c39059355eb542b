#include "harness/tune/bench.h"

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/fastest_read.h"
#include "harness/base/rng.h"
#include "harness/base/stats.h"
#include "harness/base/text.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_BLOCK = 32, LIST_OF = 4, STEP = HA_TUNE_REGION / 2, CEILINGS = 4096, LEAST_BYTES = 256 << 20 };
static const double pace = 1.1; /* two readings of memory that differ by more are of different moments */

struct ha_tune_bench {
    struct ha_arena *arena;
    struct ha_pool *pool;
    uint64_t (*read)(const void *p, size_t bytes);
    char *bytes;                        /* each core's share after the other: as they were placed */
    size_t share;                       /* bytes of that */
    size_t cores, threads, steps, next; /* steps: of what a thread walks through, an odd number; next: where it is */
    float *q, *o, *lse;                 /* [threads] of HA_TUNE_ROWS_MOST rows */
    uint32_t *list;                     /* [threads][of f16: the most] */
    struct ha_attend *attend;
    struct ha_rows *rows;
    const struct ha_kernels *kernels;
    void *scratch;
    size_t scratch_bytes;
    double ceiling[CEILINGS];
    size_t ceilings;
};

size_t ha_tune_bench_bytes(bool quick)
{
    char KiB[64];
    ha_text_line("/sys/devices/system/cpu/cpu0/cache/index3/size", "", KiB, sizeof KiB);
    const size_t twice = quick ? 0 : 2 * ((size_t)strtoull(KiB, NULL, 10) << 10);
    return twice > LEAST_BYTES ? twice : LEAST_BYTES;
}

/* Two halves of 16 bits, each of which is between 0.5 and 2 in f16, and as the upper half of a binary32 number or as
 * bf16 between 2^-15 and 2: in no type is anything subnormal or infinite. */
static void fill(void *arg, size_t task, size_t worker)
{
    struct ha_tune_bench *b = arg;
    uint32_t *to = (uint32_t *)(void *)(b->bytes + worker * b->share), x = (uint32_t)worker + 1;
    for (size_t i = 0; i < b->share / sizeof *to; i++) {
        x = x * 1664525u + 1013904223u;
        to[i] = (x & 0x87ff87ffu) | 0x38003800u;
    }
}

void ha_tune_bench_destroy(struct ha_tune_bench *b)
{
    if (!b) return;
    ha_pool_destroy(b->pool);
    ha_arena_destroy(b->arena);
    free(b->scratch);
    free(b);
}

static enum ha_status make(struct ha_tune_bench *b, size_t bytes, struct ha_why *why)
{
    enum { KEYS = HA_TUNE_REGION / (2 * HA_TUNE_DIM * 2) };
    HA_TRY(ha_pool_create(&b->pool, HA_TEAM_OWN, 0, why));
    const size_t workers = ha_pool_threads(b->pool), rows = HA_TUNE_ROWS_MOST * workers;
    const size_t regions = bytes / HA_TUNE_REGION / workers, least = 4;
    b->cores = workers;
    b->share = (regions > least ? regions : least) * HA_TUNE_REGION;
    const uint64_t available = ha_memory_available();
    if (available && workers * b->share > available / 4)
        return ha_why(why, HA_WAIVED, "a plan is measured over %zu MiB, and %llu MiB are left",
                      workers * b->share >> 20, (unsigned long long)available >> 20);
    HA_TRY(ha_arena_create(&b->arena, false, why));
    b->bytes = ha_alloc(b->arena, workers * b->share, HA_TAG_SCRATCH, why);
    b->q = ha_alloc(b->arena, rows * HA_TUNE_DIM * sizeof *b->q, HA_TAG_SCRATCH, why);
    b->o = ha_alloc(b->arena, rows * HA_TUNE_DIM * sizeof *b->o, HA_TAG_SCRATCH, why);
    b->lse = ha_alloc(b->arena, rows * sizeof *b->lse, HA_TAG_SCRATCH, why);
    b->list = ha_alloc(b->arena, workers * (KEYS / LIST_BLOCK) * sizeof *b->list, HA_TAG_SCRATCH, why);
    b->attend = ha_alloc(b->arena, workers * sizeof *b->attend, HA_TAG_SCRATCH, why);
    b->rows = ha_alloc(b->arena, workers * sizeof *b->rows, HA_TAG_SCRATCH, why);
    if (!b->bytes || !b->q || !b->o || !b->lse || !b->list || !b->attend || !b->rows) return HA_ERROR;
    ha_rng_normals(1, 0, 0, rows * HA_TUNE_DIM, b->q);
    for (size_t i = 0; i < workers * (KEYS / LIST_BLOCK); i++)
        b->list[i] = (uint32_t)(i % (KEYS / LIST_BLOCK) * LIST_OF + ha_rng_below(1, 1, i, LIST_OF));
    ha_pool_each(b->pool, "plan", fill, b);
    return HA_OK;
}

enum ha_status ha_tune_bench_create(struct ha_tune_bench **out, size_t bytes, struct ha_why *why)
{
    struct ha_tune_bench *b = *out = calloc(1, sizeof *b);
    if (!b) return ha_why(why, HA_ERROR, "out of memory");
    const enum ha_status status = make(b, bytes, why);
    if (status == HA_OK) return HA_OK;
    ha_tune_bench_destroy(b);
    *out = NULL;
    return status;
}

/* Where a thread is; it goes on by so many steps. All that it walks through is read before anything is read again. */
static char *place(const struct ha_tune_bench *b, size_t worker)
{
    return b->bytes + (worker * (b->cores * b->share / STEP / b->threads) + b->next) * STEP;
}

static void move_on(struct ha_tune_bench *b, size_t by, size_t room)
{
    b->next += by;
    if (b->next + room > b->steps) b->next = 0;
}

static void nothing(void *arg, size_t task, size_t worker) { (void)arg, (void)task, (void)worker; }

static void read_region(void *arg, size_t task, size_t worker)
{
    const struct ha_tune_bench *b = arg;
    b->read(place(b, worker), STEP);
}

static double reading(struct ha_tune_bench *b)
{
    ha_pool_each(b->pool, "ceiling", nothing, NULL); /* awake */
    const uint64_t begin = ha_now_ns();
    ha_pool_each(b->pool, "ceiling", read_region, b);
    const double GBps = (double)(b->threads * STEP) / (double)(ha_now_ns() - begin);
    move_on(b, 1, 2);
    if (b->ceilings < CEILINGS) b->ceiling[b->ceilings++] = GBps;
    return GBps;
}

static double reading_by(void *arg, ha_read *read)
{
    struct ha_tune_bench *b = arg;
    b->read = read;
    return reading(b);
}

enum ha_status ha_tune_bench_threads(struct ha_tune_bench *b, size_t threads, const struct ha_kernels *best,
                                     struct ha_why *why)
{
    if (threads > b->cores)
        return ha_why(why, HA_ERROR, "a plan for %zu threads needs as many cores; this process may use %zu", threads,
                      b->cores);
    ha_pool_destroy(b->pool);
    b->pool = NULL;
    HA_TRY(ha_pool_create(&b->pool, HA_TEAM_OWN, threads, why));
    b->threads = ha_pool_threads(b->pool);
    b->steps = (b->cores * b->share / STEP / b->threads - 1) | 1;
    b->next = 0;
    b->read = ha_fastest_read(best, reading_by, b);
    b->ceilings = 0;
    return HA_OK;
}

static void run(void *arg, size_t task, size_t worker)
{
    const struct ha_tune_bench *b = arg;
    b->kernels->attend(b->kernels, &b->attend[worker]);
}

/* a head for each worker over its next region; bytes of K and V that it reads */
static size_t lay(struct ha_tune_bench *b, const struct ha_tune_subject *s)
{
    const size_t row = HA_TUNE_DIM * ha_dtype_bytes(s->dtype), keys = HA_TUNE_REGION / (2 * row),
                 floats = HA_TUNE_ROWS_MOST * HA_TUNE_DIM, lists = HA_TUNE_REGION / (2 * HA_TUNE_DIM * 2) / LIST_BLOCK;
    const bool natural = s->pattern == HA_CHOICE_ROWS, list = s->pattern == HA_PATTERN_LIST;
    for (size_t w = 0; w < b->threads; w++) {
        char *kv = place(b, w);
        b->rows[w] = (struct ha_rows){
            .k = kv, .v = kv + keys * row, .k_stride_bytes = row, .v_stride_bytes = row, .keys = keys
        };
        b->attend[w] = (struct ha_attend){
            .q = b->q + w * floats,
            .q_len = 1,
            .group = s->rows,
            .head_dim = HA_TUNE_DIM,
            .q_token_stride = floats,
            .q_head_stride = HA_TUNE_DIM,
            .packed = { .blocks = kv,
                        .keys = natural ? 0 : keys,
                        .index = list ? b->list + w * lists : NULL,
                        .unit = list ? LIST_BLOCK : 0,
                        .units = list ? keys / LIST_BLOCK / LIST_OF : 0 },
            .runs = &b->rows[w],
            .runs_count = natural,
            .dtype = s->dtype,
            .scale = 0.01f,
            .o = b->o + w * floats,
            .lse = b->lse + w * HA_TUNE_ROWS_MOST,
            .lse_token_stride = HA_TUNE_ROWS_MOST,
            .lse_head_stride = 1,
        };
    }
    return b->threads * HA_TUNE_REGION / (list ? LIST_OF : 1);
}

static bool give_scratch(struct ha_tune_bench *b, const struct ha_kernels *k)
{
    const size_t each = (k->attend_scratch_bytes(&b->attend[0]) + 63) / 64 * 64;
    if (each * b->threads > b->scratch_bytes) {
        free(b->scratch);
        b->scratch_bytes = each * b->threads;
        b->scratch = aligned_alloc(64, b->scratch_bytes);
        if (!b->scratch) return false;
        memset(b->scratch, 0, b->scratch_bytes);
    }
    for (size_t w = 0; w < b->threads; w++) b->attend[w].scratch = (char *)b->scratch + w * each;
    return true;
}

double ha_tune_bench_sample(struct ha_tune_bench *b, const struct ha_tune_subject *s)
{
    const double before = reading(b);
    const size_t bytes = lay(b, s);
    if (!give_scratch(b, s->kernels)) {
        b->scratch_bytes = 0;
        return (double)NAN;
    }
    b->kernels = s->kernels;
    const uint64_t begin = ha_now_ns();
    ha_pool_each(b->pool, "plan", run, b);
    const double GBps = (double)bytes / (double)(ha_now_ns() - begin);
    move_on(b, 2, 1);
    const double after = reading(b);
    if (before > pace * after || after > pace * before) return (double)NAN;
    return 2 * GBps / (before + after);
}

double ha_tune_bench_ceiling(const struct ha_tune_bench *b) { return ha_median(b->ceiling, b->ceilings); }
size_t ha_tune_bench_thread_count(const struct ha_tune_bench *b) { return b->threads; }
