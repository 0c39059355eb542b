#ifndef HA_PARTS_CPU_ATTEND_H
#define HA_PARTS_CPU_ATTEND_H

/* Attention on the CPU side: units (one ha_attend each: a KV head's group, or one query head), cut and
 * scheduled by the kernels, or gathered into tasks of adjacent units that the pool's workers pull: all of them, or,
 * where units are in groups, those of the group. */

#include "harness/api/variant.h"

struct ha_pool_group; /* harness/base/pool.h */

/* Units [first, end), as tasks. */
struct ha_cpu_share {
    struct ha_cpu_attend *cpu;
    size_t first, end;
};

struct ha_cpu_attend {
    const struct ha_context *ctx;
    struct ha_attend *unit; /* [units_max]; scratch is filled in by the run */
    size_t units, units_max;
    size_t units_per_task; /* a group's last task may have fewer; 0: one in groups, else the kernels schedule */
    unsigned char *work;   /* of the kernels, or [threads][scratch_bytes] */
    size_t scratch_bytes;
    size_t units_per_group;      /* 0: no groups */
    struct ha_pool_group *group; /* of units_max */
    struct ha_cpu_share *share;  /* of each group, or, where there are none, of all */
};

/* worst: a unit at its largest (keys, q_len, weights not NULL if any unit has them) */
enum ha_status ha_cpu_attend_create(struct ha_cpu_attend *c, const struct ha_context *ctx, size_t units_max,
                                    const struct ha_attend *worst, struct ha_why *why);
/* From now on each so many adjacent units are a group. A unit is not cut: a group of fewer units than workers leaves
 * some of these idle. */
enum ha_status ha_cpu_attend_in_groups(struct ha_cpu_attend *c, size_t units_per_group, struct ha_why *why);
void ha_cpu_attend_release(struct ha_cpu_attend *c); /* gives its memory back early */
/* Runs units [0, units) and returns when all are done. name: of the spans; static. */
void ha_cpu_attend_run(struct ha_cpu_attend *c, const char *name);
/* The same, begun: until ha_pool_wait has returned they are the pool's (ha_pool_background). No unit is cut. */
void ha_cpu_attend_start(struct ha_cpu_attend *c, const char *name);

/* A unit of `heads` query heads from q_head on that share a KV head, over one run of rows: q and o are
 * [q_len][q_heads][head_dim], lse is [q_len][q_heads], all of one sequence in host memory. run: the caller's, valid
 * until the unit has run. Packed keys before it and weights are the caller's to set. */
struct ha_attend ha_cpu_attend_unit(const struct ha_shape *shape, size_t q_head, size_t heads, size_t q_len,
                                    bool causal, const float *q, float *o, float *lse, const struct ha_rows *run);

#endif
