#ifndef HA_REPEAT_H
#define HA_REPEAT_H

/* The same twice: a case runs again over the same input, and must give the same bits, unless what computes says that it
 * does not promise that (ha_profile.varies, ha_merge_traits.varies, ha_variant.varies). The other passes run under load
 * on all cores, in memory that holds something else and begins elsewhere, after the device has computed something else,
 * and, like those that are timed, without a wait between two steps. */

#include "suites/variants/session.h"

enum ha_repeat_seen {
    HA_REPEAT_NONE,
    HA_REPEAT_SAME,
    HA_REPEAT_DIFFERS,
    HA_REPEAT_MAY_VARY, /* no promise, and the same bits */
    HA_REPEAT_VARIES,   /* no promise, and other bits */
};
/* As many as the case says; where it does not, one of a third of all cases, by their ids: always the same ones.
 */
size_t ha_repeat_passes(const struct ha_case *c, const char *id);
const char *ha_repeat_word(enum ha_repeat_seen seen); /* of NONE: "" */

struct ha_repeat {
    struct ha_session *session;
    struct ha_busy *busy;
    unsigned char *first; /* [steps][layers][out_bytes]: of the first pass */
    uint64_t *chosen;     /* [layers][batch][q_heads]: what its last step selected, a hash each */
    unsigned char *kept;  /* pinned, as first: of the pass at hand */
    size_t passes;        /* after the first */
    bool differs;         /* any of them */
    struct ha_why where;  /* the first difference */
};

/* NULL: this session's device, merge and variant promise the same bits; else which of them does not. */
const char *ha_repeat_unpromised(const struct ha_session *session);
enum ha_status ha_repeat_open(struct ha_repeat *repeat, struct ha_session *session, struct ha_why *why);
/* After a step of the first pass: keeps the outputs that were downloaded, and after the last step the selection. */
enum ha_status ha_repeat_keep(struct ha_repeat *repeat, const struct ha_pass *pass, size_t step, struct ha_why *why);
/* The same of another pass: sets differs and where. */
enum ha_status ha_repeat_compare(struct ha_repeat *repeat, const struct ha_pass *pass, size_t step,
                                 const unsigned char *outputs, struct ha_why *why);
/* What comes before another pass: the device computes something else, and the load begins. */
enum ha_status ha_repeat_disturb(struct ha_repeat *repeat, struct ha_why *why);
/* So many more passes, until one differs. */
enum ha_status ha_repeat_run(struct ha_repeat *repeat, size_t passes, struct ha_why *why);
enum ha_repeat_seen ha_repeat_seen(const struct ha_repeat *repeat);
void ha_repeat_close(struct ha_repeat *repeat); /* nothing where it is zeroed */

#endif
