#ifndef HA_CHECK_H
#define HA_CHECK_H

/* The three questions, asked of a pass with checks:
 *   1  arithmetic: each output against binary64 attention over the reported keys
 *   2  definition: the reported keys against the variant's plain definition, at every step
 *   3  quality: the output against full attention; figures, no verdict */

#include "harness/api/reference.h"
#include "suites/variants/recount.h"
#include "suites/variants/repeat.h"
#include "suites/variants/session.h"

/* The reported selection of one layer of one sequence, copied out of the variant and put in
 * order: what the check and the dump work on. */
enum { HA_CHOSEN_STRIDE = HA_PARTS_MAX + 1 };
struct ha_chosen {
    uint32_t *token;               /* all heads' parts after one another; ascending within a part */
    size_t *offset;                /* [q_heads][HA_CHOSEN_STRIDE]: part p of a head is [offset[p], offset[p+1]) */
    struct ha_part *part;          /* [q_heads][HA_PARTS_MAX] as reported; their q, k and profile are the instance's */
    uint32_t *row;                 /* as token, of parts with keys of their own: row of part.k */
    struct ha_selection *reported; /* [q_heads] as reported, its lists copied: whoever else asks is told the same */
    uint32_t **list;               /* [q_heads] the lists of its parts */
    size_t heads;
    size_t parts, count; /* the most parts of any head; of tokens in all */
    bool plain;          /* every state is that of the step's query over the cache's keys and values */
};

/* HA_FAIL where it cannot be read (ha_selection_check), where a key is listed twice or does not exist after `step`,
 * where a query or a key of a part's own is not finite, or where its profile claims what cannot be (ha_profile_check).
 * The caller frees, also after a failure. */
enum ha_status ha_chosen_read(struct ha_chosen *chosen, const struct ha_pass *pass, size_t step, size_t layer,
                              size_t seq, struct ha_why *why);
void ha_chosen_free(struct ha_chosen *chosen);

/* of one head: its keys in all parts, on the device, on the host */
size_t ha_chosen_keys(const struct ha_chosen *chosen, size_t head);
size_t ha_chosen_device_keys(const struct ha_chosen *chosen, size_t head);
const struct ha_part *ha_chosen_part(const struct ha_chosen *chosen, size_t head, size_t part);
/* whether two heads use the same keys in the same parts, each with a query of its own */
bool ha_chosen_same(const struct ha_chosen *chosen, size_t a, size_t b);

/* ---- questions 1 and 3 for one layer of one sequence (oracle.c) -------------------------------------------------- */

/* One query: query token t, query head h at [t * q_heads + h]. */
struct ha_judged {
    double ratio;       /* error / bound, the largest over the elements */
    double want, bound; /* at that element */
    float got;
    size_t element;                                /* head_dim: the LSE */
    size_t keys, visible;                          /* used, of how many it could see */
    bool full;                                     /* all of them, and as they are: that is full attention */
    double diff2, norm2, mass, cert_slack, recall; /* question 3; NaN where there is none */
    double score_off2;            /* mean square of what scores are off by; NaN: they are the query's */
    struct ha_projected after_wo; /* question 3 of the query token, of one of q_heads shares of the
                                   * rows of W_O; NaN where there is none */
    double lse_error, o_error;    /* got - want of the LSE; the length of that of o */
    struct ha_chance chance;      /* what they may be by chance; NaN: it was not asked */
};

/* What the output must be, kept so that later passes can be compared. */
struct ha_expected {
    double *o, *o_bound;     /* [rows][head_dim] */
    double *lse, *lse_bound; /* [rows] */
};

/* What the bounds of a session follow from: which claims are its two sides', and which parts their merge has. */
struct ha_oracle_claims {
    struct ha_profile device, host;
    size_t device_runs, host_runs; /* that the keys of a part may be in, at most */
    struct ha_merge_traits merge;  /* of either side the weaker */
};
/* info: whose claims the device side is judged by */
struct ha_oracle_claims ha_oracle_claims(const struct ha_session *session, const struct ha_device_info *info);

/* judged: of this sequence, [q_len][q_heads]; expected too, or NULL: not kept */
enum ha_status ha_oracle_judge(const struct ha_pass *pass, const struct ha_chosen *chosen, size_t step, size_t layer,
                               size_t seq, struct ha_judged *judged, const struct ha_expected *expected,
                               struct ha_why *why);

/* The answer of one query row by itself, [q_len][q_heads], by the claims of `info` in place of the device's own; into
 * the first row of `answer`. */
enum ha_status ha_oracle_answer(const struct ha_pass *pass, const struct ha_chosen *chosen, size_t step, size_t layer,
                                size_t seq, size_t row, const struct ha_device_info *info,
                                const struct ha_expected *answer, struct ha_why *why);

/* ---- what the device's claims let pass (sensitivity.c) ----------------------------------------------------------- */

/* Of the first step, layer and sequence: the least relative errors that are seen (docs/measurement.md), in the row
 * where these are largest, and how many times what our kernels' claims give there. NaN: not asked, or nothing to be
 * relative to. */
struct ha_sensitivity {
    double o, lse, times;
};
/* Whether each part's keys leave room for what the device claims of them, and no part claims coarser types for itself
 * than its side has: HA_FAIL with the field. */
enum ha_status ha_sensitivity_claims(const struct ha_pass *pass, const struct ha_chosen *chosen, size_t step,
                                     size_t seq, struct ha_why *why);
/* Whether what a part claims for itself lets too much pass: of each such profile, the worst row of the heads that name
 * it is set beside the usual claims. expected: of this sequence. HA_FAIL: it does. */
struct ha_check_place {
    size_t step, layer, seq;
};
enum ha_status ha_sensitivity_parts(const struct ha_pass *pass, const struct ha_chosen *chosen,
                                    const struct ha_check_place *at, const struct ha_expected *expected,
                                    struct ha_why *why);
/* expected: what the outputs, in place, were found to be within. HA_FAIL: an error that is just beyond a bound was not
 * seen, or the device claims too much. */
enum ha_status ha_sensitivity_ask(struct ha_sensitivity *out, const struct ha_pass *pass,
                                  const struct ha_chosen *chosen, const struct ha_expected *expected,
                                  struct ha_why *why);
/* Whether o and LSE are of the types that the device names, where a device's attention is handed over as it is. */
enum ha_status ha_sensitivity_types(const struct ha_pass *pass, const struct ha_chosen *chosen, size_t layer,
                                    size_t seq, struct ha_why *why);

#define HA_HEAD_OFF 0.2
/* Sums over judged queries -> the figures of questions 1 and 3. */
struct ha_accuracy {
    double err_over_bound;
    double diff2, norm2;
    struct ha_projected after_wo;
    double rel_l2_head_max;
    double mass_min, mass_sum, cert_slack, recall_sum, score_off2_sum;
    double keys_sum, visible_sum;
    size_t queries, mass_count, slack_count, recall_count, score_count, rel_count;
    size_t off_count; /* heads of queries whose error against full attention is above HA_HEAD_OFF of their own norm */
    bool everything;  /* every query's answer is full attention */
    struct ha_chances chances;
};

void ha_accuracy_start(struct ha_accuracy *a);
/* the query heads of one query token */
void ha_accuracy_add(struct ha_accuracy *a, const struct ha_judged *heads, size_t count);
void ha_accuracy_join(struct ha_accuracy *a, const struct ha_accuracy *b);
double ha_accuracy_rel_l2(const struct ha_accuracy *a);      /* NaN where it was not asked */
double ha_accuracy_score_error(const struct ha_accuracy *a); /* root mean square over keys and queries */
double ha_accuracy_rel_l2_wo(const struct ha_accuracy *a);
double ha_accuracy_heads_off(const struct ha_accuracy *a);

/* ---- a whole check ----------------------------------------------------------------------------------------------- */

/* What a variant counts by name and layer. */
struct ha_counted {
    struct ha_counted_number {
        const char *name;
        size_t layer;
        double value;
    } * of;
    size_t count, cap;
    bool full; /* there was no memory for more */
};
/* As it is now, in place of what it was. */
enum ha_status ha_counted_read(struct ha_counted *counted, const struct ha_pass *pass, struct ha_why *why);
/* Besides what it has, what `more` has and it has not: what takes a recorded selection to be counted. */
enum ha_status ha_counted_add(struct ha_counted *counted, const struct ha_counted *more, struct ha_why *why);
void ha_counted_free(struct ha_counted *counted);

struct ha_dump;
/* A timed pass, drawn when its clock had stopped. */
struct ha_timed {
    uint64_t turn;               /* of its inputs */
    const unsigned char *out;    /* [slots][layers][out_bytes]: its outputs, all that a session keeps */
    struct ha_check_place at;    /* where they are judged, of every sequence; */
    uint64_t budget_ns;          /* and at other places, drawn by the turn, for about so long */
    struct ha_counters counters; /* what it counted */
    struct ha_counted counted;
    double first_step_ns; /* out: how long its first step took when it was checked, by itself */
};

struct ha_check {
    /* in */
    struct ha_session *session;
    const char *id;
    size_t steps;       /* questions 1 and 3 are asked of the first so many steps and of the last; 0: of all */
    bool keep_expected; /* of these steps, for ha_check_again */
    const struct ha_timed
        *timed;           /* NULL, or the pass whose steps these are: then question 1 is asked at its places alone */
    struct ha_dump *dump; /* NULL, or where all that is judged goes (suites/variants/dump.h) */
    size_t repeats;       /* passes over the same input that must give the same bits */
    void (*layer_done)(void *arg, size_t step, size_t layer, const struct ha_accuracy *a);
    void *arg;
    /* out */
    double first_step_ns;                    /* of the pass, by itself */
    int question;                            /* that failed; 0: none, or the guards */
    size_t steps_done, asked;                /* of how many questions 1 and 3 were asked */
    struct ha_accuracy total, half[2];       /* of all layers; of the earlier half, and of the later */
    double device_key_bytes, host_key_bytes; /* K and V that a step must read at least once, by side */
    struct ha_sensitivity sensitivity;
    struct ha_counters counters;
    struct ha_counted counted;
    enum ha_repeat_seen repeat;
    struct ha_followed followed; /* tokens 0: no model decodes */
    uint64_t
        outputs; /* harness/base/fingerprint.h: o and LSE of each step and layer of the first pass, in that order */
    double kv_device_bytes, kv_host_bytes, meta_device_bytes, meta_host_bytes;
    struct ha_expected *expected; /* [asked][layers][batch], or NULL */
};

/* Of the fields above, everything under `in` is given. HA_FAIL: why has question, place, figures and the
 * command that runs the case again. A bracketing arm only has to run. */
enum ha_status ha_check_run(struct ha_check *check, struct ha_why *why);
/* Whether questions 1 and 3 are asked of a step. */
bool ha_check_asks(const struct ha_check *check, size_t step);
/* The outputs that were just downloaded, of a step that was asked, by another pass, within the same bounds; of a
 * variant that varies, which may have used other keys in all steps but the first, that there are some. */
enum ha_status ha_check_again(const struct ha_check *check, size_t step, struct ha_why *why);
/* The timed pass: its inputs again, with checks. Where the variant and the device promise the same bits its outputs are
 * those of this pass, at every step; at its places both are within their bounds; and it counted the same. HA_FAIL: why
 * has the first difference. Leaves the session with other inputs. */
enum ha_status ha_check_timed(struct ha_session *session, const char *id, struct ha_timed *timed, struct ha_why *why);
void ha_check_free(struct ha_check *check);

#endif
