#ifndef HA_CHECK_H
#define HA_CHECK_H

/* The three questions, asked of a pass with checks:
 *   1  arithmetic: each output against binary64 attention over the reported keys
 *   2  definition: the reported keys against the variant's plain definition, at every step
 *   3  quality: the output against full attention; figures, no verdict */

#include "suites/variants/session.h"

/* The reported selection of one layer of one sequence, copied out of the variant and put in
 * order: what the check and the dump work on. */
enum { HA_CHOSEN_STRIDE = HA_PARTS_MAX + 1 };
struct ha_chosen {
    uint32_t *token;     /* all heads' parts after one another; ascending within a part */
    size_t *offset;      /* [q_heads][HA_CHOSEN_STRIDE]: part p of a head is [offset[p], offset[p+1]) */
    bool *on_device;     /* [q_heads][HA_PARTS_MAX] */
    size_t parts, count; /* the most parts of any head; of tokens in all */
};

/* HA_FAIL where a key is listed twice, or does not exist after `step`. The caller frees, also after a failure. */
enum ha_status ha_chosen_read(struct ha_chosen *chosen, const struct ha_pass *pass, size_t step, size_t layer,
                              size_t seq, struct ha_why *why);
void ha_chosen_free(struct ha_chosen *chosen);

/* of one head: its keys in all parts, on the device, on the host */
size_t ha_chosen_keys(const struct ha_chosen *chosen, size_t head);
size_t ha_chosen_device_keys(const struct ha_chosen *chosen, size_t head);
/* whether two heads use the same keys in the same parts */
bool ha_chosen_same(const struct ha_chosen *chosen, size_t a, size_t b);

/* ---- questions 1 and 3 for one layer of one sequence (oracle.c) -------------------------------------------------- */

/* One query: query token t, query head h at [t * q_heads + h]. */
struct ha_judged {
    double ratio;       /* error / bound, the largest over the elements */
    double want, bound; /* at that element */
    float got;
    size_t element;                                /* head_dim: the LSE */
    size_t keys, visible;                          /* used, of how many it could see */
    double diff2, norm2, mass, cert_slack, recall; /* question 3; NaN where there is none */
};

/* What the output must be, kept so that later passes can be compared. */
struct ha_expected {
    double *o, *o_bound;     /* [rows][head_dim] */
    double *lse, *lse_bound; /* [rows] */
};

/* judged: of this sequence, [q_len][q_heads]; expected too, or NULL: not kept */
enum ha_status ha_oracle_judge(const struct ha_pass *pass, const struct ha_chosen *chosen, size_t step, size_t layer,
                               size_t seq, struct ha_judged *judged, const struct ha_expected *expected,
                               struct ha_why *why);

/* Sums over judged queries -> the figures of questions 1 and 3. */
struct ha_accuracy {
    double err_over_bound;
    double diff2, norm2;
    double rel_l2_head_max;
    double mass_min, mass_sum, cert_slack, recall_sum;
    double keys_sum, visible_sum;
    size_t queries, mass_count, slack_count, recall_count, rel_count;
    bool everything; /* every query used every key that it could see */
};

void ha_accuracy_start(struct ha_accuracy *a);
/* the query heads of one query token */
void ha_accuracy_add(struct ha_accuracy *a, const struct ha_judged *heads, size_t count);
void ha_accuracy_join(struct ha_accuracy *a, const struct ha_accuracy *b);
double ha_accuracy_rel_l2(const struct ha_accuracy *a); /* NaN where it was not asked */

/* ---- a whole check ----------------------------------------------------------------------------------------------- */

struct ha_dump;
struct ha_check {
    /* in */
    struct ha_session *session;
    const char *id;
    size_t steps;         /* questions 1 and 3 are asked of the first so many steps and of the last; 0: of all */
    bool keep_expected;   /* of these steps, for ha_check_again */
    struct ha_dump *dump; /* NULL, or where the first step goes */
    void (*layer_done)(void *arg, size_t step, size_t layer, const struct ha_accuracy *a);
    void *arg;
    /* out */
    int question;             /* that failed; 0: none, or the guards */
    size_t steps_done, asked; /* of how many questions 1 and 3 were asked */
    struct ha_accuracy total;
    double device_key_bytes, host_key_bytes; /* K and V that a step must read at least once, by side */
    struct ha_counters counters;
    double kv_device_bytes, kv_host_bytes, meta_device_bytes, meta_host_bytes;
    struct ha_expected *expected; /* [asked][layers][batch], or NULL */
};

/* Of the fields above, everything under `in` is given. HA_FAIL: why has question, place, figures and the
 * command that runs the case again. A bracketing arm only has to run. */
enum ha_status ha_check_run(struct ha_check *check, struct ha_why *why);
/* Whether questions 1 and 3 are asked of a step. */
bool ha_check_asks(const struct ha_check *check, size_t step);
/* The outputs that were just downloaded, of a step that was asked, by another pass, within the same bounds. */
enum ha_status ha_check_again(const struct ha_check *check, size_t step, struct ha_why *why);
void ha_check_free(struct ha_check *check);

/* ---- the dump of a case (dump.c) --------------------------------------------------------------------------------- */

/* One safetensors file for each case, holding its first step, so that a verdict can be audited
 * without this program. Names are layerL.seqS.WHAT:
 *   q      F32 [q_len][q_heads][head_dim]
 *   k, v   F32 F16 BF16 [kv_heads][tokens][head_dim], the new tokens included
 *   out    F32 [q_len][q_heads][head_dim]     lse  F32 [q_len][q_heads]
 *   token  I32 [n]: the keys used, ascending within a part, parts and heads after one another
 *   offset I32 [q_heads][parts + 1]: part p of head h is token[offset[h,p] : offset[h,p+1]]
 * and the metadata are the case's id, its scale and the KV heads. With numpy:
 *   n = offset[h, -1]; t = token[offset[h, 0]:n]; s = scale * k[h // group][t] @ q[0, h]
 *   out[0, h] == softmax(s) @ v[h // group][t];  lse[0, h] == logsumexp(s) */

struct ha_dump {              /* empty: zeroed */
    struct ha_tensor *tensor; /* name and data are the dump's */
    size_t count, capacity;
};

/* one layer of one sequence; copies what it needs */
enum ha_status ha_dump_sequence(struct ha_dump *dump, const struct ha_pass *pass, const struct ha_chosen *chosen,
                                size_t layer, size_t seq, struct ha_why *why);
/* writes folder/ID.safetensors, in which every byte of the id that is not a letter, digit, '.', '-' or '_' is '_' */
enum ha_status ha_dump_write(const struct ha_dump *dump, const char *folder, const char *id,
                             const struct ha_shape *shape, struct ha_why *why);
void ha_dump_free(struct ha_dump *dump);

#endif
