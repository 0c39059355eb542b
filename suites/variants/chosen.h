#ifndef HA_CHOSEN_H
#define HA_CHOSEN_H

/* The reported selection of one layer of one sequence, copied out of the variant and put in
 * order: what the check and the dump work on. */

#include "suites/variants/session.h"

struct ha_chosen {
    uint32_t *token;     /* all heads' parts after one another; ascending within a part */
    size_t *offset;      /* [q_heads][HA_PARTS_MAX + 1]: part p of a head is [offset[p], offset[p+1]) */
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

#endif
