#ifndef HA_CPU_KEYS_H
#define HA_CPU_KEYS_H

/* The keys of a point: cpu_kernels:kernel=attend,dtype=f16,ctx=32768 and the like; docs/kernels.md. */

#include "harness/api/base.h"

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
    HA_KERNEL_TOPK,
    HA_KERNEL_SOFTMAX,
    HA_KERNEL_MERGE,
};
enum { HA_CPU_KERNELS = HA_KERNEL_MERGE + 1 };
enum { HA_CPU_PACKED, HA_CPU_NATURAL };

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
    HA_CPU_KEYS /* how many some kernels have and others not; every point has those behind them */
};
enum { HA_CPU_TEAM = HA_CPU_KEYS, HA_CPU_SEED, HA_CPU_ALL_KEYS };

/* All of one type, so that points are compared as bytes. A key that the kernel does not use has its default. */
struct ha_cpu_point {
    size_t kernel, layout;
    size_t isa; /* 0: the best of this CPU; i: the table i - 1 of the registry */
    size_t dtype;
    size_t query; /* 0: queries exact in the type of K and V; 1: any binary32. Always 0 where that is the type */
    size_t ctx, batch, q_heads, kv_heads, head_dim;
    size_t q_len;         /* of an append; 1 else */
    size_t threads;       /* 0: as many as the process has cores */
    size_t budget, block; /* percent of the keys that are chosen, keys of a block */
    size_t team;          /* enum ha_team */
    uint64_t seed;
};

bool ha_cpu_key_used(const struct ha_cpu_point *point, enum ha_cpu_key key);

/* as in struct ha_suite */
bool ha_cpu_uses(const void *point, size_t key);
enum ha_status ha_cpu_settle(void *point, struct ha_why *why);
void ha_cpu_shrink(void *point);

#endif
