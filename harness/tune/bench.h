#ifndef HA_TUNE_BENCH_H
#define HA_TUNE_BENCH_H

/* What a plan is measured by: decode attention over keys in memory, each sample between two readings of memory by the
 * same threads. */

#include "harness/base/pool.h"
#include "harness/base/tuning.h"

struct ha_tune_bench;

enum { HA_TUNE_DIM = 128, HA_TUNE_ROWS_MOST = 32, HA_TUNE_REGION = 8 << 20 };

/* What attention a sample times: of one KV head for each thread, 128 dimensions, as many query rows as `rows`. */
struct ha_tune_subject {
    const struct ha_kernels *kernels;
    enum ha_dtype dtype;
    unsigned pattern; /* HA_PATTERN_LIST: every fourth block of 32 keys */
    size_t rows;      /* 1 to HA_TUNE_ROWS_MOST */
};

/* Normal numbers in every type, of `bytes`, on huge pages, placed by the threads of this call's own. HA_WAIVED: that is
 * more than a quarter of the memory that is left. */
enum ha_status ha_tune_bench_create(struct ha_tune_bench **bench, size_t bytes, struct ha_why *why);
void ha_tune_bench_destroy(struct ha_tune_bench *bench);
/* From now on with so many threads, reading by `best`; 0: a thread for each core. HA_ERROR: there are fewer cores. */
enum ha_status ha_tune_bench_threads(struct ha_tune_bench *bench, size_t threads, const struct ha_kernels *best,
                                     struct ha_why *why);
size_t ha_tune_bench_thread_count(const struct ha_tune_bench *bench);
/* Bytes of K and V in a second over what the threads read in the same moment. NaN: the two readings differ by more than
 * a tenth. */
double ha_tune_bench_sample(struct ha_tune_bench *bench, const struct ha_tune_subject *subject);
/* GB/s of all readings so far: their median */
double ha_tune_bench_ceiling(const struct ha_tune_bench *bench);
/* Bytes that outlast the caches: twice the last one, at least 256 MiB; of a quick choice never more than that. */
size_t ha_tune_bench_bytes(bool quick);

#endif
