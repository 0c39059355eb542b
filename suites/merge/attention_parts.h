#ifndef HA_MERGE_ATTENTION_PARTS_H
#define HA_MERGE_ATTENTION_PARTS_H

/* What the cases of attention.c are made of: a problem, and the subject that solves it. */

#include "harness/api/reference.h"
#include "suites/merge/attention.h"

/* ---- attention_problem.c: the subject, and the block of memory that it works in */

struct ha_attention_bench {
    const struct ha_attention_subject *subject;
    struct ha_profile profile[HA_DTYPE_COUNT];
    struct ha_merge_traits traits;
    size_t head_dim_max;      /* longer heads are not asked for; 0: any */
    struct ha_stream *stream; /* of an open device, else NULL */
    char *host, *there;       /* the block, and its counterpart where the subject computes: the same in host memory */
    size_t bytes;
    char *scratch;
    size_t scratch_bytes;
    struct ha_profile usual[HA_DTYPE_COUNT]; /* what the profile is set beside */
    double *sensed_o, *sensed_lse;           /* of the shapes so far, the least sensitive row of each */
    size_t sensed_os, sensed_lses;
    float *pool; /* [HA_POOL_FLOATS] normal numbers, which rows of K and V are cut from */
};
enum { HA_POOL_FLOATS = 1 << 15 };

/* HA_WAIVED: it does not attend. */
enum ha_status ha_attention_open(struct ha_attention_bench *bench, const struct ha_attention_subject *subject,
                                 uint64_t seed, struct ha_why *why);
void ha_attention_close(struct ha_attention_bench *bench);
/* Does it promise the same bits each time? */
bool ha_attention_promises(const struct ha_attention_bench *bench);
/* bytes [from, to) of the block to the subject, or back */
enum ha_status ha_attention_move(struct ha_attention_bench *bench, size_t from, size_t to, enum ha_direction dir,
                                 struct ha_why *why);
/* The subject's own merge, in memory that was pushed. */
enum ha_status ha_attention_merge(struct ha_attention_bench *bench, const struct ha_merge *args, struct ha_why *why);

/* ---- what is asked, and where it lies */

enum ha_nan_place { HA_NAN_NOWHERE, HA_NAN_K, HA_NAN_V, HA_NAN_Q };

/* K or V: where it begins in the block, and bytes from one key, KV head, sequence to the next. */
struct ha_kv_place {
    size_t at, row, head, seq;
};

struct ha_problem {
    const char *case_name; /* what a failure says */
    size_t id;
    uint64_t seed, data; /* data: which numbers q, K and V hold; the same for shapes that are to be compared */

    enum ha_dtype dtype;
    size_t batch, kv_heads, group, q_len, head_dim;
    size_t first_run, runs_count, run[HA_RUNS_MAX]; /* keys of each; runs [first_run, runs_count) are attended */
    size_t skip;                                    /* sequence b lacks the first b * skip keys of run 0 */
    bool causal, weights;
    bool indexed;  /* rows of K and V anywhere in a larger pool; not of a library in host memory */
    bool padded;   /* KV heads interleaved, gaps behind rows; with kernels heads outermost in q, o and LSE */
    bool shifted;  /* everything begins 16 bytes behind where it is aligned */
    bool exact;    /* o and the weights have no rounding error */
    bool made_up;  /* numbers by which additions round one way: no errors of chance */
    size_t copies; /* of o and LSE; with more than one, each has a sum */
    float scale;
    struct {
        enum ha_nan_place place;
        size_t seq, kv_head, key, token, dim;
    } nan;

    /* ha_problem_lay: offsets in the block; strides of q and o, of LSE, in floats */
    size_t q_at, index_at, out_at, o_at, lse_at, sum_at, weights_at, end_at, o_step, lse_step;
    size_t q_seq, q_token, q_head, lse_seq, lse_token, lse_head, weights_stride;
    struct ha_kv_place k, v;
    char *host;
};

size_t ha_problem_heads(const struct ha_problem *p);
size_t ha_problem_rows(const struct ha_problem *p); /* query rows, [batch][q_len][heads]: r below is one of them */
struct ha_place {
    size_t seq, token, head;
} ha_problem_place(const struct ha_problem *p, size_t r);
size_t ha_problem_stored(const struct ha_problem *p); /* keys of the first sequence, all runs up to runs_count */
size_t ha_problem_keys(const struct ha_problem *p, size_t seq); /* of the runs attended */
/* The block laid out and filled: normal q, K and V; NaN everywhere else. */
enum ha_status ha_problem_lay(struct ha_problem *p, struct ha_attention_bench *bench, struct ha_why *why);

/* the keys of all runs attended, of one head */
struct ha_rows ha_problem_all(const struct ha_problem *p, size_t seq, size_t kv_head);
/* The attention of one KV head in the block at base, outputs to copy i; runs: [HA_RUNS_MAX], set here. */
struct ha_attend ha_problem_attend(const struct ha_problem *p, char *base, size_t i, size_t seq, size_t kv_head,
                                   struct ha_rows *runs);
float *ha_problem_q(const struct ha_problem *p, size_t r);
/* copy i of the outputs */
float *ha_problem_o(const struct ha_problem *p, size_t i, size_t r);
float *ha_problem_lse(const struct ha_problem *p, size_t i, size_t r);
/* in p->k or p->v, key j of run order, runs that are not attended included */
void ha_problem_put(const struct ha_problem *p, const struct ha_kv_place *in, size_t seq, size_t kv_head, size_t j,
                    size_t dim, float x);

/* HA_FAIL, with the whole problem in words in front of what went wrong. */
enum ha_status ha_problem_fail(const struct ha_problem *p, struct ha_why *why, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Cuts the keys into runs anywhere, the last of at least `last`; runs of no keys among them. */
void ha_problem_cut(struct ha_problem *p, size_t keys, size_t runs, size_t last);
/* all that the shape says */
void ha_problem_shape(struct ha_problem *p, const struct ha_attention_shape *shape);

/* One call, or one for each sequence and KV head, in memory that was pushed; outputs to copy i. Not pulled. */
enum ha_status ha_attention_attend(struct ha_attention_bench *bench, const struct ha_problem *p, size_t i,
                                   struct ha_why *why);
/* HA_FAIL: the device's q, K or V are no longer what they were given. */
enum ha_status ha_attention_given(struct ha_attention_bench *bench, const struct ha_problem *p, struct ha_why *why);

/* One call on a stream of a device: it is enqueued, and nobody waits. */
enum ha_status ha_attention_enqueue(const struct ha_attention_bench *bench, const struct ha_problem *p, size_t i,
                                    struct ha_stream *stream);
/* Waits for the bench's stream, unless status says that an operation was refused; an error says why. */
enum ha_status ha_attention_finish(const struct ha_attention_bench *bench, const char *operation, enum ha_status status,
                                   struct ha_why *why);

/* ---- attention_judge.c */

struct ha_wanted {
    struct ha_answer *of; /* [batch][kv_heads] */
    size_t count;
};
enum ha_status ha_wanted_make(struct ha_wanted *want, const struct ha_problem *p, const struct ha_profile *profile,
                              struct ha_why *why);
void ha_wanted_free(struct ha_wanted *want);
const struct ha_ref_state *ha_wanted_state(const struct ha_wanted *want, const struct ha_problem *p, size_t r);
/* Row r, which is o and lse; what: in front of what a failure says. */
enum ha_status ha_problem_judge(const struct ha_problem *p, size_t r, const char *what, const float *o, float lse,
                                const struct ha_ref_state *want, struct ha_attention_result *out, struct ha_why *why);
/* What attention hands over is of the types that its profile names. */
enum ha_status ha_problem_judge_types(const struct ha_problem *p, size_t r, const struct ha_profile *profile,
                                      const float *o, float lse, struct ha_why *why);

/* ---- attention_split.c */

/* Each run attended by itself, judged, and all merged in every form. */
enum ha_status ha_attention_split(struct ha_problem *p, struct ha_attention_bench *bench,
                                  struct ha_attention_result *out, struct ha_why *why);

/* ---- attention_look.c */

/* Of one problem, or of one run of it. Begins with sense and times NaN and most -1, else zeroed. */
struct ha_attention_look {
    struct ha_chances rows, weights;
    struct ha_ref_sense sense;        /* of the row that is the least sensitive */
    double most, times;               /* the larger of both; how many times the usual */
    size_t seq, kv_head, token, head; /* that row; head: of the group */
};
/* One KV head in copy i of the outputs, whose rows were judged right, before they are poisoned. HA_FAIL: an error just
 * above a bound was planted and not seen. */
enum ha_status ha_attention_look(struct ha_attention_look *look, const struct ha_problem *p, size_t i, size_t seq,
                                 size_t kv_head, const struct ha_answer *answer, struct ha_why *why);
/* All of its heads were. HA_FAIL: the profile claims too much. */
enum ha_status ha_attention_looked(struct ha_attention_look *look, const struct ha_problem *p,
                                   struct ha_attention_bench *bench, struct ha_attention_result *out,
                                   struct ha_why *why);

/* Once more at copy i of the outputs, all of whose rows were judged right. Where a NaN was put in, the rows that the
 * oracle has answered are others. */
enum ha_status ha_problem_look(const struct ha_problem *p, size_t i, struct ha_attention_bench *bench,
                               const struct ha_wanted *want, struct ha_attention_result *out, struct ha_why *why);

#endif
