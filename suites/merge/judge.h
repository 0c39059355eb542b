#ifndef HA_MERGE_JUDGE_H
#define HA_MERGE_JUDGE_H

/* Was a batch merged right? */

#include "harness/api/reference.h"
#include "suites/merge/batch.h"

enum { HA_RATIO_BINS = 24 }; /* bin i: ratios from 2^(i-24) to 2^(i-23); bin 0: and below; the last one: 1, too */

/* The rows of a batch in binary64; handed is what is stored (the same unless an error is planted). */
struct ha_merge_rows {
    size_t count, states, dim;
    bool planted; /* an error is planted: `handed`, not `row`, is stored */
    struct ha_merge_row *row, *handed;
    struct ha_merge_want *want; /* [count][2] the oracle's answers, asked for once for each rounding */
    struct ha_ref_state *node;  /* [2 * states] scratch: the nodes of an order */
    struct ha_chance *chance;   /* [2 * states] scratch: what those are off by */
    double *work;               /* scratch: [states] */
    float *got, *other;         /* scratch: [dim] */
    void *memory;               /* of all of these */
    size_t bytes;               /* of memory */
};
/* Presets and fills `count` rows from `first` on, which are numbered from 0: the numbers alone, nothing is stored. */
void ha_merge_rows_preset(struct ha_merge_rows *rows, size_t first, size_t count, uint64_t seed, ha_merge_fill *fill);
/* Plants the error in what is handed over of them (NULL: none), and from now on that is stored, of all rows. */
void ha_merge_rows_plant(struct ha_merge_rows *rows, size_t first, size_t count, ha_merge_plant *plant);
/* stores the rows in a batch of their shape, and seals it */
void ha_merge_rows_again(const struct ha_merge_rows *rows, struct ha_batch *batch);
/* the states of a row as those of another; both have as many, of the same dim */
void ha_merge_row_copy(struct ha_merge_row *to, const struct ha_merge_row *from);

/* Rows, and the batch that they are stored in. Begins zeroed. */
struct ha_merge_trial {
    struct ha_merge_rows rows;
    struct ha_batch *batch;
    struct ha_room own; /* memory for the batch, where none was given; kept for the next */
};
/* Rows and a batch of this shape in place of those before. room: for the batch; NULL: memory of its own. After a
 * failure it is to be closed, too. */
enum ha_status ha_merge_trial_open(struct ha_merge_trial *trial, const struct ha_merge_shape *shape,
                                   const struct ha_room *room, struct ha_why *why);
void ha_merge_trial_close(struct ha_merge_trial *trial);
/* presets, fills and stores all rows */
void ha_merge_trial_fill(struct ha_merge_trial *trial, uint64_t seed, ha_merge_fill *fill, ha_merge_plant *plant);
/* stores rows that the caller filled himself */
void ha_merge_trial_store(struct ha_merge_trial *trial);

struct ha_judgement {
    enum ha_status status; /* HA_OK or HA_FAIL */
    double ratio;          /* the worst err/bound of any element */
    size_t row, element;   /* where; element == dim: the LSE */
    double got, want, bound;
    size_t heads;         /* of the batch: row r is of head r % heads */
    const char *against;  /* what it was compared with: "the states as stored", "attention over all tokens", ... */
    uint64_t rows, exact; /* judged; those without any error */
    struct {
        uint64_t rows;
        size_t first, last; /* the least and the largest head that is in one */
    } wrong;
    uint64_t bin[HA_RATIO_BINS]; /* the others, by their worst ratio */
    uint64_t outputs; /* sum of the fingerprints of all rows (harness/base/fingerprint.h), in whatever order they were
                       * judged; 0: none, or the merge does not promise the same bits each time */
};

/* Judges row r of a merged batch and keeps the worst in j, which starts zeroed. traits: of the merge, for the bound.
 * must: HA_MUST_FAIL is judged as HA_MUST_BOUND against rows->row, the truth, and not against what was handed over. */
void ha_judge_row(struct ha_judgement *j, const struct ha_batch *batch, struct ha_merge_rows *rows, size_t r,
                  enum ha_must must, const struct ha_merge_traits *traits);
/* What the traits let pass (ha_ref_sensitivity): the median of each over the rows that are not just copied, of which
 * some cancel, or have no bound for what they hold; and how many times what the usual ones do, at most, in eight of the
 * rows and in all whose bound is infinite. NaN: of no row. */
struct ha_merge_sense {
    double o, lse, times;
};
/* sorts x; NaN of none */
double ha_merge_median(double *x, size_t n);
/* Of merged rows [first, first + count), HA_MERGE_SENSED at most, that were judged right. HA_FAIL: an error just above
 * a bound was planted and not seen, or the traits claim too much. */
enum { HA_MERGE_SENSED = 256 };
enum ha_status ha_judge_sense(struct ha_merge_sense *out, const struct ha_batch *batch, struct ha_merge_rows *rows,
                              size_t first, size_t count, const struct ha_merge_traits *traits,
                              const struct ha_merge_traits *usual, struct ha_why *why);
/* Rows that are held against chance: of each group of those that differ in their LSEs one, which says nothing of
 * another, whoever comes first. Begins zeroed. */
enum { HA_MERGE_CHANCES = 32 };
struct ha_merge_sample {
    struct ha_merge_taken {
        uint64_t key, index; /* of the LSEs, in any order of the states (0: no row yet); of the row, among all */
        struct ha_chances of;
    } taken[HA_MERGE_CHANCES];
};
/* Takes merged rows [first, first + count), which were judged right, in place of those with smaller keys; index: that
 * of the first one. */
void ha_judge_chances(struct ha_merge_sample *sample, const struct ha_batch *batch, struct ha_merge_rows *rows,
                      size_t first, size_t count, uint64_t index, const struct ha_merge_traits *traits);
void ha_merge_sample_join(struct ha_merge_sample *into, const struct ha_merge_sample *from);
struct ha_chances ha_merge_sample_sum(const struct ha_merge_sample *sample);
/* all rows */
struct ha_judgement ha_merge_trial_judge(struct ha_merge_trial *trial, enum ha_must must,
                                         const struct ha_merge_traits *traits);
/* The element in words: "row 83 (token 1, head 19), o[17]: got 1.25, want 1.2 +- 1e-07 (err/bound 4e5), by the states
 * as stored; 90 of 128 rows are wrong, of heads 19 to 63" */
struct ha_why ha_judgement_say(const struct ha_judgement *j, size_t dim);
/* adds up, and keeps the worse of the two */
void ha_judgement_join(struct ha_judgement *into, const struct ha_judgement *from);

/* ---- replay.c: a merge in a file, from and for any framework. Safetensors:
 *   o    [states][tokens][heads][dim], F32, F16 or BF16
 *   lse  [states][tokens][heads], F32; the maximum where form is max_sum
 *   sum  [states][tokens][heads], F32; form max_sum alone
 *   merged_o [tokens][heads][dim], merged_lse, merged_sum: what the merge made of them; merged_o F8_E4M3 or F8_E5M2
 * with fp8
 * __metadata__: form (natural, base2, direct, max_sum; natural if missing), order (flat, chain, tree; flat), lse_layout
 * (tokens_heads, or heads_tokens: then lse, sum, merged_lse, merged_sum are [..][heads][tokens]),
 * empty (-inf or +inf), fp8 (none, e4m3, e5m2; none) and fp8_scale, by which o is divided, exp_eps, log_eps (2^-23 each
 * if missing), and anything else. */

/* The batch's inputs, and its results if answered. meta: pairs key, value, ..., NULL, in addition. */
enum ha_status ha_replay_write(const char *path, const struct ha_batch *batch, bool answered, const char *const *meta,
                               struct ha_why *why);
/* The results of `path` into the batch; HA_ERROR names what is missing or of a wrong shape or type. */
enum ha_status ha_replay_read_answer(const char *path, struct ha_batch *batch, struct ha_why *why);
/* Judges a whole file. HA_OK or HA_FAIL: *j says; HA_ERROR: it is not such a file, why says what is wrong. */
enum ha_status ha_replay_judge(const char *path, struct ha_merge_shape *shape, struct ha_judgement *j,
                               struct ha_why *why);

#endif
