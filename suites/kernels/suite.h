#ifndef HA_CPU_SUITE_H
#define HA_CPU_SUITE_H

/* The CPU kernels as a suite; docs/kernels.md. A point is a kernel and its sizes, a row what was found of it. */

#include "harness/api/kernels.h"
#include "harness/api/suite.h"
#include "harness/measure/counters.h"
#include "harness/measure/sampling.h"

extern const struct ha_suite ha_suite_cpu_kernels;

/* ---- points (keys.c): cpu_kernels:kernel=attend,dtype=f16,ctx=32768 and the like --------------------------------- */

enum ha_cpu_kernel {
    HA_KERNEL_ATTEND,
    HA_KERNEL_APPEND,
    HA_KERNEL_SPARSE,
    HA_KERNEL_BLOCKS,
    HA_KERNEL_GATHER,
    HA_KERNEL_PACK,
    HA_KERNEL_APPEND_KEY,
    HA_KERNEL_SCORE,
    HA_KERNEL_DIGEST,
    HA_KERNEL_DIGEST_SCORE,
    HA_KERNEL_HASH,
    HA_KERNEL_HAMMING,
    HA_KERNEL_PQ_ENCODE,
    HA_KERNEL_PQ_TABLE,
    HA_KERNEL_PQ_SCORE,
    HA_KERNEL_TOPK,
    HA_KERNEL_SOFTMAX,
    HA_KERNEL_TOPP,
    HA_KERNEL_WEIGHTED_SUM,
    HA_KERNEL_MERGE,
};
enum { HA_CPU_KERNELS = HA_KERNEL_MERGE + 1 };
enum { HA_CPU_PACKED, HA_CPU_NATURAL };
enum { HA_CPU_DIM_MOST = 576 };

enum ha_cpu_key {
    HA_CPU_KERNEL,
    HA_CPU_LAYOUT,
    HA_CPU_ISA,
    HA_CPU_DTYPE,
    HA_CPU_QUERY,
    HA_CPU_CTX,
    HA_CPU_BATCH,
    HA_CPU_HEADS,
    HA_CPU_DIM,
    HA_CPU_Q_LEN,
    HA_CPU_THREADS,
    HA_CPU_BUDGET,
    HA_CPU_BLOCK,
    HA_CPU_BITS,
    HA_CPU_DIMS,
    HA_CPU_CENTROIDS,
    HA_CPU_BOOKS,
    HA_CPU_TABLE,
    HA_CPU_KEYS /* how many some kernels have and others not; every point has those behind them */
};
enum { HA_CPU_TEAM = HA_CPU_KEYS, HA_CPU_SEED, HA_CPU_ALL_KEYS };
extern const struct ha_key ha_cpu_keys[HA_CPU_ALL_KEYS];

/* All of one type, so that points are compared as bytes. A key that the kernel does not use has its default. */
struct ha_cpu_point {
    size_t kernel, layout;
    size_t isa; /* 0: the best of this CPU; i: the table i - 1 of the registry */
    size_t dtype;
    size_t query; /* 0: queries exact in the type of K and V; 1: any binary32. Always 0 where that is the type */
    size_t ctx, batch, q_heads, kv_heads, head_dim;
    size_t q_len;                          /* of an append; 1 else */
    size_t threads;                        /* 0: as many as the process has cores */
    size_t budget, block;                  /* percent of the keys that are chosen, keys of a block */
    size_t bits;                           /* of a code */
    size_t dims, centroids, shared, table; /* of codes by product quantisation; shared, table: 1: one book, f16 */
    size_t team;                           /* enum ha_team */
    uint64_t seed;
};

/* as in struct ha_suite */
bool ha_cpu_uses(const void *point, size_t key);
enum ha_status ha_cpu_settle(void *point, struct ha_why *why);
double ha_cpu_cost(const void *point);
void ha_cpu_shrink(void *point);
/* the member of struct ha_kernels that it is about */
const char *ha_cpu_runs(const struct ha_cpu_point *point);

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Parts of a sparse step, which are timed apart, and what some kernels are held against: it runs beside them. */
enum { HA_CPU_WHOLE, HA_CPU_SCORES, HA_CPU_CHOICE, HA_CPU_CHOSEN, HA_CPU_BESIDE, HA_CPU_PARTS };

struct ha_cpu_row {
    struct ha_result head;
    char isa[24];          /* the table whose code ran: that of ha_cpu_runs */
    char state[8];         /* ha_cpu_ceiling_state */
    char disturbed[16];    /* "load": fewer samples than wanted kept their cores, and the others count too; "" */
    char limit[16];        /* ha_cpu_limit */
    double err_over_bound; /* NaN: not checked */
    double bias, rms;      /* against chance (struct ha_suspect); NaN: nothing of it is rounded */
    double threads;
    double retried;     /* samples thrown away: a thread lost its core or half of it, or memory changed its pace */
    double bytes, flop; /* of one run; bytes: of K and V where it reads them, else all that it reads and writes */
    struct ha_estimate part_ns[HA_CPU_PARTS], ratio, floor, whole_over_beside, choice_share;
    double GBps, ceiling_GBps, ceiling_1_GBps, peak_GFLOPps; /* medians */
    double cache_GBps;             /* of attention over keys that each thread has in its second cache */
    double per_line[HA_COUNTERS];  /* for 64 bytes that a run reads; NaN: not counted here */
    double scale;                  /* ceiling with all threads / (threads x with one): 1 with one thread */
    double huge_share, node_share; /* of the KV: on huge pages; on the NUMA node that has most of it */
    double wake_ns;                /* an empty run of the pool */
    double readings;               /* of memory between two samples */
    double same_runs;              /* after the first, with its bits */
};

/* "harder" above 0.8 of linear, "easier" below it, "" with one thread */
const char *ha_cpu_ceiling_state(const struct ha_cpu_row *row);

/* What keeps it from being faster: "memory", "arithmetic" or "waits", by its share of the ceiling and its pace in
 * cache, with what counters say of waits; "": not known, where it has no figure in cache or the machine was disturbed.
 * (limit.c) */
const char *ha_cpu_limit(const struct ha_cpu_row *row);

/* A table for each section: the keys that differ in it, then what was found; then the share of the ceiling along the
 * axis of each section that has one. (tables.c) */
void ha_cpu_print(FILE *out, const struct ha_results *results);
/* What the kernels are meant to reach, held against the figures of a run. No verdict on a goal is one of the run.
 * Nothing is printed of a run that has no figure for any of them. (tables.c) */
bool ha_cpu_conclude(FILE *out, const struct ha_results *results, struct ha_why *why);

/* For tests, before the first point of a run: these tables and this much to rotate through, where they are not 0. */
void ha_cpu_run_with(void *run, const struct ha_kernels *kernels, size_t rotate_bytes);
/* the point that is open */
struct ha_cpu_work;
struct ha_cpu_work *ha_cpu_run_work(void *run);

#endif
