#ifndef HA_API_REFERENCE_H
#define HA_API_REFERENCE_H

/* The oracle: attention in binary64 with an error bound for each element, and one plain
 * definition for each variant. It shares no arithmetic with the kernels but the
 * number-format conversions. Bounds: docs/measurement.md. */

#include "harness/api/base.h"
#include "harness/api/dataset.h"
#include "harness/api/kernels.h"
#include "harness/api/shape.h"
#include "harness/api/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the bound assumes of the implementation, for one row over `keys` keys. */
struct ha_bound {
    double h_dot, h_sum; /* depths of the dot product and of the sums over keys */
    double rescales;     /* R */
    double exp_eps, log_eps;
    double kappa_s, kappa_t; /* 2, 3; 4, 4 where (max, sum, acc) chunks are joined with rounding */
    double u_p, eta_p;       /* unit and subnormal half of the type the weights are cast to for V; 0: binary32 */
    double u_o, eta_o;       /* the same of the output type */
    double u_w, eta_w; /* of the type they are cast to for V and the denominator alike: then u_p and eta_p are 0 */
    double u_l, eta_l; /* of the type that the LSE is stored in */
    double one_sign;   /* the share of the depths whose roundings all have one sign */
    /* of the type that terms of scores are rounded to: unit, what smaller ones count as, and from where on it has no
     * number; 0: binary32 */
    double u_s, least_s, most_s;
    double u_x; /* what two operands of a product are off by together, of the product */
    /* of the type that a score is rounded to: unit, subnormal half, and from where on it has no number; 0: binary32 */
    double u_g, eta_g, most_g;
    double sum_least; /* as in struct ha_profile */
};

/* The bound parameters of ha_kernels.attend for a row over `keys` keys in `runs` runs; packed keys count as one run.
 * Whether and where the work on them is split makes no difference. */
struct ha_bound ha_bound_attend(const struct ha_profile *p, size_t head_dim, size_t keys, size_t runs);

/* Of two profiles the weaker in each respect: what holds whichever of both computed, over at most so many keys. */
struct ha_profile ha_profile_weaker(const struct ha_profile *of, const struct ha_profile *x, size_t keys);
/* The profile of ha_kernels.attend over packed keys and runs of type t: of both kernels the weaker in each respect. */
struct ha_profile ha_profile_attend(const struct ha_kernels *k, enum ha_dtype t);

/* One attention state in binary64. o and bound are [dim], the caller's. */
struct ha_ref_state {
    double *o, *bound; /* |got - o| <= bound for each element */
    double lse, lse_bound;
    double max, sum;       /* lse = max + ln sum, which lse cannot hold where max is huge. The oracle sets them; of
                            * the states of a merge they are read, instead of lse, in HA_FORM_MAX_SUM alone */
    double *v_min, *v_max; /* [dim], what o is between: the range of the values of the keys that may weigh anything, and
                            * what rounding adds to it; asserted, too */
    size_t dim, keys;
    bool may_overflow; /* by ha_ref_attend: 2^8 keys max|v| is beyond binary32, or a score or a term of it beyond its
                        * type, so that a right implementation may leave it and no bound holds; nothing is to be judged
                        * by this state */
    bool score_beyond; /* it is the latter */
};

/* Largest head_dim of the oracle. */
enum { HA_REF_DIM_MAX = 1024 };

/* Attention of one query over rows (rows.index and rows.keys select them). No key, or scores of
 * -inf only: (0, -inf) with bound 0. The scale is the float that the implementation uses. K and V
 * must be finite; otherwise the result is NaN, whose ratio is infinite. No sum of an
 * implementation must overflow: 2^8 keys * max|v| < FLT_MAX (a level may be 8 too low), or out->may_overflow says so.
 * work: [2 * keys] doubles. */
void ha_ref_attend(const float *q, size_t head_dim, double scale, const struct ha_rows *rows, enum ha_dtype dtype,
                   const struct ha_bound *b, double *work, struct ha_ref_state *out);

/* The same for queries that share rows, each of which is then converted once. Query i sees the first
 * `visible` rows. The same bits as one at a time. work: [min(count, 32) * (2 * rows.keys + head_dim)]. */
struct ha_ref_query {
    const float *q;  /* [head_dim] */
    size_t visible;  /* <= rows.keys */
    size_t left_out; /* of these, whose V is zeros, and which were not weighed with it */
    const struct ha_bound *bound;
    struct ha_ref_state *out; /* dim and keys are set here */
};
void ha_ref_attend_group(const struct ha_ref_query *query, size_t count, size_t head_dim, double scale,
                         const struct ha_rows *rows, enum ha_dtype dtype, double *work);

/* What the bound assumes of a merge. */
struct ha_merge_bound {
    enum ha_form form;
    double exp_eps, log_eps, depth_extra, rescales; /* as in ha_merge_traits */
    double u_o, eta_o;                              /* of the output type */
};
struct ha_merge_bound ha_bound_merge(const struct ha_merge_traits *traits, enum ha_form form, enum ha_dtype dtype);

/* The merge of M states, out none of them, with their own bounds. Every LSE is natural, whatever the form: the form
 * says which roundings an implementation has. In HA_FORM_MAX_SUM lse_bound holds for
 * (max - want max) + ln(sum / want sum) in binary64. Empty states are not read. NaN or inf in an LSE or sum: all
 * NaN. NaN or inf in an o: in that component of o what IEEE gives in binary64, and no finite bound there.
 * out->dim is given; out's v_min and v_max may be NULL; so may a state's, then its o -+ bound stand for them. */
void ha_ref_merge(const struct ha_ref_state *states, size_t count, const struct ha_merge_bound *b,
                  struct ha_ref_state *out);

/* What may be claimed of attention over `keys` keys in `runs` runs, or of the merge of so many states: HA_FAIL with the
 * field where a sum has more additions than its terms and what joins its parts take, or where the claims alone, at
 * scores that are all 0, leave a weight or a sum unknown by more than 1/8. of: what the profile is called. */
enum ha_status ha_claims_attend(const char *of, const struct ha_profile *p, size_t head_dim, size_t keys, size_t runs,
                                struct ha_why *why);
enum ha_status ha_claims_merge(const struct ha_merge_traits *t, size_t states, struct ha_why *why);

/* Sensitivity (docs/measurement.md): the least relative errors that no result within its bounds has, of o as a whole
 * (its keenest element) and of the sum of the weights, exp(L). Infinite where a bound is; NaN where there is nothing to
 * be relative to: o is 0, or there are no keys. */
struct ha_ref_sense {
    double o, lse;
};
struct ha_ref_sense ha_ref_sensitivity(const struct ha_ref_state *want);
/* What it is set beside: the claims of kernels like ours in place of `of`, with the types, runs and joins of `of`, but
 * sums of one lane. exp_seen, log_seen: how far off these functions are (NaN: not known), as far as that is more than
 * ours. */
struct ha_profile ha_profile_usual(const struct ha_profile *of, const struct ha_profile *ours, double exp_seen,
                                   double log_seen);
struct ha_merge_traits ha_traits_usual(const struct ha_merge_traits *of, const struct ha_merge_traits *ours,
                                       double exp_seen, double log_seen);
/* How many times as insensitive a row is as by the usual claims, of o or of the LSE whichever is worse: beyond
 * HA_SENSE_MOST too much is claimed. 1 where the data alone leave so little to be known that a factor says nothing,
 * which is where by the usual claims the LSE may be off by 1/64; but infinite where only these are finite. */
enum { HA_SENSE_MOST = 8 };
double ha_ref_insensitivity(const struct ha_ref_sense *by, const struct ha_ref_sense *usual);
/* `got` with an error more that is just above the bound, in the direction in which it is off already. */
float ha_ref_planted(float got, double want, double bound);
/* Whether ha_ref_ratio sees such an error in the keenest element of o, and in the LSE. copy: [want->dim], scratch. */
bool ha_ref_sees(const float *o, float lse, const struct ha_ref_state *want, float *copy);
/* Whether o and LSE, as attend hands them over, are numbers of the types that the profile names; else *at is the
 * element that is not, dim: the LSE. */
bool ha_ref_fits(const float *o, size_t dim, float lse, const struct ha_profile *p, size_t *at);

/* Beside the bound, which is a worst case: how far a row may be off where roundings are as large as they can be, but of
 * either sign by chance (docs/measurement.md, "Suspects"). */
struct ha_chance {
    double lse_bias, lse_size; /* what may have one sign in all rows; root mean square of the rest, at most. 0: there is
                                * no LSE, but a vector alone */
    double o_bias, o_size;     /* the same of the Euclidean length of o's error */
};
/* Of a state that ha_ref_attend has made of the first want->keys rows; NaN where its weights are not known, where
 * squares are beyond binary32, and where terms of scores are rounded or weights are not divided by their sum. weights:
 * NULL, or that of the softmax weights as one vector. work: [2 * want->keys]. */
struct ha_chance ha_ref_chance(const float *q, size_t head_dim, double scale, const struct ha_rows *rows,
                               enum ha_dtype dtype, const struct ha_bound *b, const struct ha_ref_state *want,
                               float *work, struct ha_chance *weights);
/* Of a merge that ha_ref_merge has made of states; of: [count], zeros for a state that is exact. NaN where it has no
 * keys, or is direct and its LSE is so large that its weights are not known. work: [count]. */
struct ha_chance ha_ref_chance_merge(const struct ha_chance *of, const struct ha_ref_state *states, size_t count,
                                     const struct ha_merge_bound *b, const struct ha_ref_state *want, double *work);
/* Of the softmax of x alone, whose sum has h additions on its longest path: of the LSE, and of the weights as the
 * vector. work: [2 * n]. */
struct ha_chance ha_ref_chance_softmax(const float *x, size_t n, double h, double exp_eps, float *work);
/* Sums of products as one vector. Begins zeroed. */
struct ha_ref_dots {
    double error2, size2, bias2;
};
/* One more of them: its error, what it is, the squares of its terms added up, the additions on its longest path, the
 * type that it is stored in, and the share of these additions that truncate. */
void ha_ref_dots_add(struct ha_ref_dots *dots, double error, double dot, double squares, double h, enum ha_dtype stored,
                     double cut);
struct ha_chance ha_ref_chance_dots(const struct ha_ref_dots *dots);

/* Rows together, each of its own query. Begins zeroed. */
struct ha_chances {
    size_t rows;
    double lse, lse_bias; /* sums of an error of the LSE over its size; of its bias over it */
    double lse2, o2;      /* sums of squares of what errors have beyond their bias, over their size */
};
/* Errors got - want, that of o as a length. Rows whose sizes are not known do not count. Rows with an LSE are not added
 * to rows without. */
void ha_chances_add(struct ha_chances *c, double lse_error, double o_error, const struct ha_chance *of);
void ha_chances_join(struct ha_chances *c, const struct ha_chances *more);
/* The mean of the LSE's error over its size; the larger root mean square, of the LSE or o: up to 1 is explained. */
double ha_chances_bias(const struct ha_chances *c);
double ha_chances_rms(const struct ha_chances *c);
/* The chance that independent roundings do this, at most; NaN without rows. */
double ha_chances_p(const struct ha_chances *c);

/* What a case is suspected by: of groups of rows, such as the shapes that an operation is asked for, the one that is
 * the least likely, and how many there are, since each may be. Begins zeroed. */
struct ha_suspect {
    struct ha_chances worst;
    double p;
    size_t groups;
    char what[96]; /* the worst one, or "" */
};
/* A group without rows is none. */
void ha_suspect_add(struct ha_suspect *s, const struct ha_chances *c, const char *what, ...)
    __attribute__((format(printf, 3, 4)));
/* The groups of both. */
void ha_suspect_join(struct ha_suspect *s, const struct ha_suspect *other);
/* For the row of a case: its p and suspicion, and the columns bias and rms. Without a group all stay as they are. */
struct ha_result;
void ha_suspect_tell(const struct ha_suspect *s, struct ha_result *head, double *bias, double *rms);

/* Softmax weights p[keys] of one query over rows, binary64; returns the LSE. */
double ha_ref_weights(const float *q, size_t head_dim, double scale, const struct ha_rows *rows, enum ha_dtype dtype,
                      double *p);

/* Largest |got - want| / bound over the elements of o and the LSE (worst_dim = want->dim); worst_dim may be
 * NULL. NaN in got, want or bound gives infinity, and so does an o within its bound but outside [v_min, v_max]; an
 * LSE of -inf needs the same. No bound is infinite where Q, K and V are finite. */
double ha_ref_ratio(const float *o, float lse, const struct ha_ref_state *want, size_t *worst_dim);

/* Where a packed head holds dimension d of key `key`: a number of that element from its start. */
size_t ha_ref_packed_k(enum ha_dtype dtype, size_t head_dim, size_t key, size_t d);
size_t ha_ref_packed_v(enum ha_dtype dtype, size_t head_dim, size_t key, size_t d);
/* row `key` of a packed head; k and v are [head_dim], either may be NULL */
void ha_ref_unpack_row(const void *blocks, enum ha_dtype dtype, size_t head_dim, size_t key, void *k, void *v);
/* The same of a digest: the minimum or maximum of dimension d of a block. */
size_t ha_ref_digest(size_t head_dim, size_t block, size_t d, bool most);
/* Where codes hold word `word` of a row, of bits / 32 whose next one is the norm: a number of 32 bits from their start.
 */
size_t ha_ref_code(size_t bits, size_t row, size_t word);
/* How many keys an attention names, packed and in runs; and all of them in list order, as plain rows in memory: first
 * K, then V, [keys][head_dim] each. */
size_t ha_ref_keys(const struct ha_attend *a);
struct ha_rows ha_ref_plain_rows(const struct ha_attend *a, void *memory);

/* What the attention `a` must answer, and what it may be off by. rows: its keys in list order as plain rows; of the
 * keys that `a` itself names only the number of parts is read, for the bound. */
struct ha_answer {
    size_t rows, count, keys;   /* query rows, [q_len][group]; those answered; keys */
    struct ha_ref_state *state; /* [count], of row ha_answer_row(i) */
    double *weight, *slack;     /* [group][keys] the averaged softmax weights; NULL where a->weights is */
    double *memory;
    struct ha_profile profile;
};
/* most: answer so many rows only, the first and the last among them; 0: all, which weights need. HA_FAIL: the profile
 * claims what the shape leaves no room for. */
enum ha_status ha_answer_make(struct ha_answer *answer, const struct ha_attend *a, const struct ha_rows *rows,
                              const struct ha_profile *profile, size_t most, struct ha_why *why);
void ha_answer_free(struct ha_answer *answer);
size_t ha_answer_row(const struct ha_answer *answer, size_t i);

/* Where error over bound is largest; right where ratio <= 1, infinite for NaN. */
struct ha_answer_error {
    double ratio;
    size_t row, at; /* row [q_len][group] and element of o, head_dim: LSE; head and key of a weight, keys: their sum */
    double got, want, bound;
    const char *type; /* NULL, or that of the profile, which cannot hold `got` */
};
/* o and LSE that `a` holds; its weights. */
struct ha_answer_error ha_answer_judge(const struct ha_answer *answer, const struct ha_attend *a);
struct ha_answer_error ha_answer_judge_weights(const struct ha_answer *answer, const struct ha_attend *a);
/* What was judged right is held against chance: so many of the rows at most; and, where `weights` is not NULL, the
 * weights of so many heads as these rows are all of. rows: as it was made of. */
enum ha_status ha_answer_hold(const struct ha_answer *answer, const struct ha_attend *a, const struct ha_rows *rows,
                              size_t most, struct ha_chances *chances, struct ha_chances *weights, struct ha_why *why);

/* What the kernels that choose keys have left in their arguments: the largest error over its bound; infinite for a NaN,
 * and where a digest or a choice is not exact. x: what softmax found there; exp_eps: of its exp. chances: NULL, or
 * where scores are added, a row for each query. */
double ha_ref_judge_score(const struct ha_score *s, const struct ha_profile *p, struct ha_chances *chances);
double ha_ref_judge_digest(const struct ha_digest *g);
double ha_ref_judge_digest_score(const struct ha_digest_score *s, struct ha_chances *chances);
double ha_ref_judge_topk(const struct ha_topk *t);
/* Of hash: a bit may be either where binary64 has a sum so near to 0 that binary32 may have its other sign, and where a
 * sum may overflow in binary32. Of hamming the scores are exact. */
double ha_ref_judge_hash(const struct ha_hash *h);
double ha_ref_judge_hamming(const struct ha_hamming *h);
/* Of topp the choice and its weights are exact. */
double ha_ref_judge_topp(const struct ha_topp *t);
double ha_ref_judge_weighted_sum(const struct ha_weighted_sum *s, struct ha_chances *chances);
/* Of pq_encode the codes are exact, by squares that are rounded or that are not. Of pq_table rows that are not there
 * are 0. Of pq_score the table is what lies there. */
double ha_ref_judge_pq_encode(const struct ha_pq_encode *e);
double ha_ref_judge_pq_table(const struct ha_pq_table *t, struct ha_chances *chances);
double ha_ref_judge_pq_score(const struct ha_pq_score *s, struct ha_chances *chances);
uint32_t ha_ref_pq_code(const struct ha_pq *pq, const void *codes, size_t key, size_t group);
/* Of ha_device_rotate, whose q held `from`; its numbers' squares are normal numbers of binary32. A head's squares are
 * summed in any order. */
double ha_ref_judge_rotate(const struct ha_device_rotate *r, const float *from);
/* Of one head of a sequence; of score a query head. NaN and infinities are asked for where binary64 has them. */
double ha_ref_judge_columns(const struct ha_device_columns *c, size_t seq, size_t head, struct ha_chances *chances);
double ha_ref_judge_rows(const struct ha_device_score *s, size_t seq, size_t head, struct ha_chances *chances);
/* Of the features of a sequence's query heads; where error over bound is largest. Of a row of a net. */
double ha_ref_judge_features(const struct ha_device_features *f, size_t seq, size_t *head, size_t *feature);
double ha_ref_judge_net(const struct ha_net *n, size_t row);
/* Of a KV head of a sequence, whose labels were `label` ([q_heads][head_dim]): its similarity, whether that hits, which
 * is open where binary32 may have it on either side of the threshold, and what the labels then are. */
double ha_ref_judge_similarity(const struct ha_device_similarity *d, size_t seq, size_t kv_head, const float *label);
/* A row through a net in binary64, and how far off binary32 may be where its inputs are off by x_off (NULL: not at
 * all), with sums in any order. Of n the layers, widths and weights are read. x, x_off: [width[0]]; y, y_off:
 * [width[layers]] */
void ha_ref_net(const struct ha_net *n, const double *x, const double *x_off, double *y, double *y_off);
double ha_ref_judge_softmax(const struct ha_softmax *s, const float *x, double exp_eps);
/* The first `most` rows against chance: their LSEs, if they have any, and their weights. work: [2 * s->n] */
void ha_ref_hold_softmax(const struct ha_softmax *s, const float *x, double exp_eps, size_t most, float *work,
                         struct ha_chances *chances);
/* roundings of a score by a digest: of its sum, a product and the scale */
double ha_ref_digest_depth(size_t head_dim);

/* Question 3 for one query: full attention (o) beside the attention over a key set (o_S). */
struct ha_ref_quality {
    double diff2, norm2; /* |got - o|^2 and |o|^2: rel_l2 = sqrt(diff2/norm2) */
    double mass;         /* full-attention mass on the key set */
    double cert_slack;   /* largest component of |o_S - o| / certificate, at most 1: a mathematical fact, in
                          * binary64, about the data. That got is o_S is question 1. */
    double o[HA_REF_DIM_MAX];
};
/* token: [count] the key set, those after the query's own token and those named twice ignored; rows hold all
 * keys (index NULL). got: the implementation's o. work: [2 * rows.keys], whose first half then holds the softmax
 * weights of all keys, as ha_ref_weights gives them. */
void ha_ref_quality(const float *q, size_t head_dim, double scale, const struct ha_rows *rows, enum ha_dtype dtype,
                    const float *got, const uint32_t *token, size_t count, double *work, struct ha_ref_quality *out);
/* The certificate of an output whose weights are not the softmax of the key set: made with another query, over what
 * stood for the keys, or without the values of some, which is not renormalised. */
struct ha_ref_weighed {
    const uint32_t *token; /* [count] the key set, each once */
    const double *score;   /* [count] by which they were weighed, times the scale */
    const bool *left_out;  /* [count] its value is; NULL: none is */
    size_t count;
};
/* The largest component of |that output - full attention| over what it can be, at most 1: another fact of the data.
 * With P the mass of the key set, o_S the attention over it, and e the most that a score is off by, so that each
 * weight is off by a factor within exp(-+2e), it is at most
 *   (1 - P) max |v - o_S| over the other keys + (exp(2e) - 1) sum p_j / P |v_j - o_S| + exp(2e) sum p_j / P |v_j|,
 * the last over those left out. score_off2: the mean square of what the scores of the set are off by; NaN of none.
 * work: [2 * rows.keys]. */
double ha_ref_certificate(const float *q, size_t head_dim, double scale, const struct ha_rows *rows,
                          enum ha_dtype dtype, const struct ha_ref_weighed *set, double *work, double *score_off2);

/* The query of token `token` that layer input x gives: what the dataset's query is before it is rounded, but for the
 * rounding of what the projection was stored in. x: [model_dim], q: [q_heads][head_dim]; p->wq is not NULL.
 * bound: [q_heads][head_dim], how far off binary32 may be, or NULL: W_Q x and the bias summed in any order, the head
 * divided by its root mean square, turned by a cosine and a sine that are rounded to binary32, of an angle in binary64.
 * Infinite where a root mean square may be 0 for all that is known. */
void ha_projection_query(const struct ha_projection *p, size_t q_heads, size_t head_dim, size_t model_dim,
                         const float *x, size_t token, double *q, double *bound);

/* What W_O makes of an output that is not full attention: |W_O (got - o)|^2 and |W_O o|^2 over rows [first,
 * first + rows) of W_O. Over all rows rel_l2_wo = sqrt(diff2/norm2). got, o: [width], all query heads of a token one
 * after the other; p->wo is not NULL. */
struct ha_projected {
    double diff2, norm2;
};
struct ha_projected ha_projection_off(const struct ha_projection *p, size_t width, size_t first, size_t rows,
                                      const float *got, const double *o);

/* The plain definition of a variant's selection rule, from its paper, in binary64 (question 2). prefill, judge and
 * advance are called for one query head after the other, sequence by sequence; all but judge may be NULL. */
struct ha_def;
struct ha_def_head {
    const char *variant;
    size_t layer, seq, head;
    size_t index;      /* [layer][seq][head] */
    size_t tokens;     /* of the sequence so far, new ones included */
    const void *k, *v; /* [tokens][head_dim] of its KV head; v: NULL where the step has none */
    size_t kv_stride;  /* elements from there to the next KV head's */
    const float *q;    /* of the last `queries` tokens, q_heads * head_dim floats apart: observed ones, or the step's */
    size_t queries;
    const float *x;                         /* of the step's tokens: [q_len][model_dim]; NULL: the dataset has none */
    const struct ha_projection *projection; /* [layers], or NULL, as in ha_context */
    const struct ha_selection *chosen;      /* in judge: what is reported, with its notes and states; else NULL */
    const struct ha_profile *observer; /* of whoever weighs keys for the variant; not read by a rule without weights */
};
/* in judge: the value of a note that is reported, NaN where there is none of that name */
double ha_def_note(const struct ha_def_head *h, const char *name);
/* what mark[token] holds; PADDING comes with the side */
enum { HA_MARK_NONE = 0, HA_MARK_DEVICE = 1, HA_MARK_HOST = 2, HA_MARK_PADDING = 4 };
/* A number that the variant counts by name and layer, as what is judged makes it: in [least, most], where ties leave it
 * open. */
typedef void ha_def_count(void *arg, const char *name, size_t layer, double least, double most); /* name: static */
struct ha_definition {
    const char *variant;
    bool pads; /* padding may be reported */
    /* fit: what the variant has as ctx->fit; outlives the definition */
    enum ha_status (*create)(struct ha_def **def, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why);
    enum ha_status (*prefill)(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why);
    /* mark: [tokens], what the head is reported to have used in a step. HA_FAIL with the first key that is wrong; where
     * the rule is within rounding of a tie either answer is allowed and the reported one is adopted. */
    enum ha_status (*judge)(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark, struct ha_why *why);
    /* to the next step; after all heads have been judged */
    enum ha_status (*advance)(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why);
    /* After the last step, over all steps; may be NULL. Of what it says the variant has to count the same. */
    void (*count)(const struct ha_def *def, ha_def_count *say, void *arg);
    void (*destroy)(struct ha_def *def);
};

/* A step of one layer, or what comes before the first. */
struct ha_def_step {
    size_t layer, q_len;
    const float *q; /* [batch][q_len][q_heads][head_dim]; not read by prefill */
    const float *x; /* [batch][q_len][model_dim] the layer's inputs, or NULL; not read by prefill */
    const struct ha_projection *projection; /* [layers], or NULL */
    const void *const *k; /* [batch] -> [kv_heads][tokens_b][head_dim], all tokens so far, new ones included;
                           * head stride = kv_cap * head_dim elements */
    const void *const *v; /* the same of V, or NULL where no rule reads it */
    const size_t *tokens; /* [batch] */
    size_t kv_cap;
    const struct ha_profile *observer; /* as in ha_def_head */
};
/* q as in ha_prefill */
enum ha_status ha_definition_prefill(const struct ha_definition *d, struct ha_def *def, const struct ha_shape *shape,
                                     const struct ha_def_step *kv, const float *const *q, struct ha_why *why);
/* What cannot be read, of one head of a sequence of so many tokens. HA_FAIL: more parts or notes than there may be, a
 * note without a name, a part with more keys than tokens, more padding than keys, or no list of them. */
enum ha_status ha_selection_check(const struct ha_selection *selection, size_t tokens, struct ha_why *why);
/* Judges what the variant reports for this step, for every sequence and head, and advances. */
enum ha_status ha_definition_step(const struct ha_definition *d, struct ha_def *def, const struct ha_shape *shape,
                                  const struct ha_def_step *in,
                                  void (*reported)(void *arg, size_t seq, size_t q_head, struct ha_selection *out),
                                  void *arg, struct ha_why *why);

#ifdef __cplusplus
}
#endif
#endif
