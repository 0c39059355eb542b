#ifndef HA_CPU_WORK_H
#define HA_CPU_WORK_H

/* One point, ready to run: its data and what it calls. The keys and values of all heads lie in one store, several times
 * over ("turns") where they are small, so that a run never finds in a cache what a step of a model would not have
 * there. */

#include "harness/api/reference.h"
#include "harness/base/arena.h"
#include "harness/base/pool.h"
#include "suites/kernels/suite.h"

/* Memory of K and V, for one point after the other. */
struct ha_cpu_store {
    struct ha_arena *arena;
    char *kv;
    size_t bytes;
    void *pattern[HA_DTYPE_COUNT]; /* normal numbers that it is filled from */
    uint64_t seed[HA_DTYPE_COUNT]; /* of the pattern */
    size_t rotate_bytes;           /* turns of a point hold at least so much together */
};

struct ha_cpu_work {
    struct ha_cpu_point point;
    const struct ha_kernels *kernels, *constants; /* constants: the same without a plan, or NULL: there is none */
    struct ha_pool *pool;
    const struct ha_cpu_subject *subject;
    struct ha_arena *arena; /* of everything but K and V; its guards are checked */
    enum ha_dtype dtype;
    size_t threads, units, group, elem; /* units: KV heads of all sequences; elem: bytes of a number of K */
    float scale;
    char *kv;                       /* [turns][units][unit_bytes] */
    size_t unit_bytes, turns, turn; /* turn: that of the next run, modulo turns */
    size_t blocks, chosen;          /* of the keys of a sequence, and how many of them are chosen */
    double bytes, flop;             /* of one run */
    void *own;                      /* of the subject: [own_bytes] */
    struct ha_suspect suspect;      /* of the check */
};

/* Memory that a run leaves its results in. */
struct ha_cpu_result {
    void *at;
    size_t bytes;
};
enum { HA_CPU_RESULTS = 2 };

/* What a kernel of the suite is. */
struct ha_cpu_subject {
    size_t (*unit_bytes)(const struct ha_cpu_work *work); /* of K and V of a unit; NULL: it reads none */
    size_t own_bytes;                                     /* zeros before open */
    enum ha_status (*open)(struct ha_cpu_work *work, struct ha_why *why);
    void (*turn)(struct ha_cpu_work *work); /* work->turn is another one, outside of the time of a run; NULL: nothing */
    /* After a run of the whole on turn 0: the largest error over its bound, of a unit or (where judge is NULL) of all.
     * HA_FAIL: above 1, or wrong where it has to be exact. What is rounded is held against chance: rows are
     * added to `chances`, or groups to the work's suspect. */
    double (*judge)(const struct ha_cpu_work *work, size_t unit, struct ha_chances *chances);
    enum ha_status (*check)(struct ha_cpu_work *work, double *err_over_bound, struct ha_why *why);
    /* of a run of the whole, all of which it writes anew */
    void (*results)(const struct ha_cpu_work *work, struct ha_cpu_result out[HA_CPU_RESULTS]);
    struct {
        const char *name; /* NULL: there is no such part */
        void (*task)(void *work, size_t unit, size_t worker);
        void (*run)(struct ha_cpu_work *work); /* all units, where task is NULL */
        bool cold;      /* something else is read before it, so that no cache holds what it reads */
        bool constants; /* It is the whole, on another turn, by the kernels without a plan. Where there is none it is
                         * left out */
    } part[HA_CPU_PARTS];
    size_t repeats; /* runs of a sample; 0: one */
    /* The same over so few keys that K and V of a thread fit into `bytes`, if not fewer than a block: so many runs by
     * each worker, on its own, in *ns. Bytes of K and V that all of them read; 0: no memory. NULL: there is no such
     * figure */
    double (*in_cache)(struct ha_cpu_work *work, size_t bytes, size_t runs, double *ns);
};
extern const struct ha_cpu_subject ha_cpu_subject_attend, ha_cpu_subject_sparse; /* attention.c */
extern const struct ha_cpu_subject ha_cpu_subject_score, ha_cpu_subject_digest, ha_cpu_subject_digest_score,
    ha_cpu_subject_hash, ha_cpu_subject_hamming, ha_cpu_subject_topk, ha_cpu_subject_softmax; /* select.c */
extern const struct ha_cpu_subject ha_cpu_subject_pq_encode, ha_cpu_subject_pq_table, ha_cpu_subject_pq_score,
    ha_cpu_subject_topp;                                                                                 /* pq.c */
extern const struct ha_cpu_subject ha_cpu_subject_weighted_sum;                                          /* weights.c */
extern const struct ha_cpu_subject ha_cpu_subject_pack, ha_cpu_subject_append_key, ha_cpu_subject_merge; /* store.c */
const struct ha_cpu_subject *ha_cpu_subject_of(const struct ha_cpu_point *point);                        /* keys.c */

enum ha_status ha_cpu_store_open(struct ha_cpu_store *store, size_t rotate_bytes, struct ha_why *why);
void ha_cpu_store_close(struct ha_cpu_store *store);

/* On failure nothing is left open. */
enum ha_status ha_cpu_work_open(struct ha_cpu_work *work, const struct ha_cpu_point *point,
                                const struct ha_kernels *kernels, const struct ha_kernels *constants,
                                struct ha_pool *pool, struct ha_cpu_store *store, struct ha_why *why);
void ha_cpu_work_close(struct ha_cpu_work *work);
bool ha_cpu_work_has(const struct ha_cpu_work *work, size_t part);
void ha_cpu_work_turn(struct ha_cpu_work *work, size_t turn);
void ha_cpu_work_run(struct ha_cpu_work *work, size_t part);
/* One run on turn 0, then is it right? As ha_cpu_subject.check, and nothing was written where it should not be. */
enum ha_status ha_cpu_work_check(struct ha_cpu_work *work, double *err_over_bound, struct ha_why *why);

/* Of all results of the run before (harness/base/fingerprint.h). */
uint64_t ha_cpu_work_outputs(const struct ha_cpu_work *work);
/* So many more runs on turn 0, under load on all cores, into memory that holds something else: HA_FAIL, where one does
 * not give the bits of the run before. */
enum ha_status ha_cpu_work_again(struct ha_cpu_work *work, size_t runs, struct ha_why *why);

/* ---- for subjects ------------------------------------------------------------------------------------ */

/* NULL, and why */
void *ha_cpu_alloc(struct ha_cpu_work *work, size_t bytes, struct ha_why *why);
/* the K and V of a unit in the work's turn */
char *ha_cpu_unit(const struct ha_cpu_work *work, size_t unit);
/* normal numbers; `round`: exact in the type of K and V where the point's queries are */
void ha_cpu_normals(const struct ha_cpu_work *work, uint64_t stream, size_t n, bool round, float *out);
/* k of n in ascending order, each set as likely as another */
void ha_cpu_draw(uint64_t seed, uint64_t stream, size_t n, size_t k, uint32_t *out);
/* The units that a check looks at: the first and the last. */
enum { HA_CPU_SAMPLES = 2 };
static inline size_t ha_cpu_samples(const struct ha_cpu_work *w)
{
    return w->units < HA_CPU_SAMPLES ? w->units : HA_CPU_SAMPLES;
}
static inline size_t ha_cpu_sampled(const struct ha_cpu_work *w, size_t i) { return i * (w->units - 1); }
/* the largest of what judge says of these, whose rows are a group called so of the work's suspect */
double ha_cpu_worst(struct ha_cpu_work *work,
                    double (*judge)(const struct ha_cpu_work *work, size_t unit, struct ha_chances *chances),
                    const char *what);
/* bytes of the K and V of a unit: in natural rows, in packed blocks */
size_t ha_cpu_rows_bytes(const struct ha_cpu_work *work);
size_t ha_cpu_packed_bytes(const struct ha_cpu_work *work);
/* the rows at `unit`, of so many keys: all of K, then all of V */
struct ha_rows ha_cpu_rows(const struct ha_cpu_work *work, const char *unit, size_t keys);

/* One call of the kernel for each unit; NAME_args says what it is called with. */
#define HA_CPU_TASK(name)                                       \
    static void name##_task(void *arg, size_t u, size_t worker) \
    {                                                           \
        const struct ha_cpu_work *w = arg;                      \
        const struct ha_##name args = name##_args(w, u);        \
        (void)worker;                                           \
        w->kernels->name(&args);                                \
    }

#endif
