#ifndef HA_CPU_WORK_H
#define HA_CPU_WORK_H

/* One point, ready to run: its data and what it calls. The keys and values of all heads lie in one store, several times
 * over
 * ("turns") where they are small, so that a run never finds in a cache what a step of a model would not have there. */

#include "harness/api/kernels.h"
#include "harness/base/arena.h"
#include "harness/base/pool.h"
#include "suites/kernels/results.h"

/* Memory of K and V, for one point after the other. */
struct ha_cpu_store {
    struct ha_arena *arena;
    char *kv;
    size_t bytes;
    void *pattern[HA_DTYPE_COUNT]; /* normal numbers that it is filled from */
    uint64_t seed[HA_DTYPE_COUNT]; /* of the pattern */
    size_t rotate_bytes;           /* turns of a point hold at least so much together */
};

struct ha_cpu_subject;
struct ha_cpu_work {
    struct ha_cpu_point point;
    const struct ha_kernels *kernels;
    struct ha_pool *pool;
    uint64_t seed;
    const struct ha_cpu_subject *subject;
    struct ha_arena *arena; /* of everything but K and V; its guards are checked */
    enum ha_dtype dtype;
    size_t threads, units, group, elem; /* units: KV heads of all sequences; elem: bytes of a number of K */
    float scale;
    char *kv; /* [turns][units][unit_bytes] */
    size_t unit_bytes, turns;
    double bytes, flop; /* of one run */
    void *own;          /* of the subject */
};

/* What a kernel of the suite is. */
struct ha_cpu_subject {
    size_t kernel;
    /* the entry of the table that it needs and that is not there, or NULL */
    const char *(*lacks)(const struct ha_kernels *kernels, const struct ha_cpu_point *point);
    size_t (*unit_bytes)(const struct ha_cpu_work *work); /* of K and V of a unit */
    enum ha_status (*open)(struct ha_cpu_work *work, struct ha_why *why);
    void (*turn)(struct ha_cpu_work *work, size_t turn); /* before a run, outside of its time */
    /* After a run of part 0 on turn 0: the largest error over its bound. HA_FAIL: above 1, or wrong where it has to be
     * exact. */
    enum ha_status (*check)(struct ha_cpu_work *work, double *err_over_bound, struct ha_why *why);
    struct {
        void (*run)(struct ha_cpu_work *work);
        bool cold;        /* something else is read before it, so that no cache holds what it reads */
    } part[HA_CPU_PARTS]; /* 0: the whole */
    size_t repeats;       /* runs of a sample */
};
extern const struct ha_cpu_subject ha_cpu_subjects_attend[4], ha_cpu_subject_sparse, ha_cpu_subjects_select[5],
    ha_cpu_subjects_store[3];
const struct ha_cpu_subject *ha_cpu_subject_find(size_t kernel);

enum ha_status ha_cpu_store_open(struct ha_cpu_store *store, size_t rotate_bytes, struct ha_why *why);
void ha_cpu_store_close(struct ha_cpu_store *store);

/* HA_WAIVED: the table lacks the kernel, or the machine the memory. On failure nothing is left open. */
enum ha_status ha_cpu_work_open(struct ha_cpu_work *work, const struct ha_cpu_point *point,
                                const struct ha_kernels *kernels, struct ha_pool *pool, struct ha_cpu_store *store,
                                uint64_t seed, struct ha_why *why);
void ha_cpu_work_close(struct ha_cpu_work *work);
/* One run on turn 0, then is it right? As ha_cpu_subject.check, and nothing was written where it should not be. */
enum ha_status ha_cpu_work_check(struct ha_cpu_work *work, double *err_over_bound, struct ha_why *why);

/* ---- for subjects ------------------------------------------------------------------------------------ */

/* NULL, and why */
void *ha_cpu_alloc(struct ha_cpu_work *work, size_t bytes, struct ha_why *why);
char *ha_cpu_unit(const struct ha_cpu_work *work, size_t turn, size_t unit);
/* normal numbers; `round`: exact in the type of K and V where the point's queries are */
void ha_cpu_normals(const struct ha_cpu_work *work, uint64_t stream, size_t n, bool round, float *out);
/* the units that a check looks at: i of n */
size_t ha_cpu_sampled(const struct ha_cpu_work *work, size_t i, size_t n);
static inline size_t ha_cpu_blocks(const struct ha_cpu_point *p) { return (p->ctx + p->block - 1) / p->block; }
/* how many blocks are chosen */
static inline size_t ha_cpu_chosen(const struct ha_cpu_point *p) { return (ha_cpu_blocks(p) * p->budget + 99) / 100; }

/* natural rows of a unit of so many keys: all of K, then all of V */
struct ha_rows ha_cpu_rows(const struct ha_cpu_work *work, const char *unit, size_t keys);

#endif
