#ifndef HA_CPU_ID_H
#define HA_CPU_ID_H

/* One figure of a CPU kernel, one string: cpu_kernels:kernel=attend,dtype=f16,ctx=32768. What it leaves out has its
 * default. */

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
    HA_CPU_KEYS /* how many; as a key: none */
};
enum { HA_CPU_ID_MAX = 256, HA_CPU_VALUE_MAX = 32 };

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
};

const char *ha_cpu_kernel_name(size_t kernel);
const char *ha_cpu_kernel_doc(size_t kernel);
const char *ha_cpu_key_name(enum ha_cpu_key key);
/* HA_ERROR with the nearest name where there is no such key */
enum ha_status ha_cpu_key_find(const char *name, enum ha_cpu_key *key, struct ha_why *why);
bool ha_cpu_key_used(const struct ha_cpu_point *point, enum ha_cpu_key key);

void ha_cpu_point_default(struct ha_cpu_point *point);
/* One key, not yet held against the others. HA_ERROR names the wrong value and the nearest right one. */
enum ha_status ha_cpu_point_set(struct ha_cpu_point *point, enum ha_cpu_key key, const char *value, struct ha_why *why);
/* Keys that the kernel does not use to their defaults; then are they possible together? */
enum ha_status ha_cpu_point_settle(struct ha_cpu_point *point, struct ha_why *why);
void ha_cpu_value_print(const struct ha_cpu_point *point, enum ha_cpu_key key, char out[HA_CPU_VALUE_MAX]);
/* all keys that the kernel uses */
void ha_cpu_point_print(const struct ha_cpu_point *point, char out[HA_CPU_ID_MAX]);
/* terms: "kernel=attend,dtype=f16", behind the colon of an id */
enum ha_status ha_cpu_point_parse(const char *terms, struct ha_cpu_point *point, struct ha_why *why);

/* Filters: terms joined by commas, all of which a point must fit: key=value, key!=value, or a part of the id. A point
 * whose kernel does not use the key fits no key=value and every key!=value. */
enum ha_status ha_cpu_filter_check(const char *filter, struct ha_why *why);
bool ha_cpu_filter_fits(const char *filter, const struct ha_cpu_point *point);

#endif
