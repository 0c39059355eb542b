#ifndef HA_CHECK_H
#define HA_CHECK_H

/* The three questions, asked of a pass with checks:
 *   1  arithmetic: each output against binary64 attention over the reported keys
 *   2  definition: the reported keys against the variant's plain definition, at every step
 *   3  quality: the output against full attention; figures, no verdict */

#include "suites/variants/oracle.h"

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

#endif
