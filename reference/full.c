/* Full attention: every token so far is used by every head, once, wherever it lies; nothing is
 * padded. One rule for the placements: all on the device (resident, bmm), all on the host and
 * fetched (offload; FlexGen), all on the host and computed there (cpu). */

#include "reference/definitions.h"
#include "reference/selection.h"

#include "harness/base/why.h"

#include <stdlib.h>

struct ha_def {
    const char *variant;
    struct ha_shape shape;
};

static enum ha_status create(struct ha_def **def, const struct ha_shape *shape, const char *variant, struct ha_why *why)
{
    *def = calloc(1, sizeof **def);
    if (!*def) return ha_why(why, HA_ERROR, "%s: no memory", variant);
    (*def)->variant = variant;
    (*def)->shape = *shape;
    return HA_OK;
}

static enum ha_status prefill(struct ha_def *def, size_t layer, const struct ha_def_step *kv, const float *const *q,
                              struct ha_why *why)
{
    (void)def, (void)layer, (void)kv, (void)q, (void)why;
    return HA_OK;
}

static enum ha_status judge(const struct ha_selection *s, size_t tokens, uint8_t *mark, const struct ha_place *at,
                            struct ha_why *why)
{
    const enum ha_status status = ha_selection_mark(s, tokens, mark, at, why);
    if (status != HA_OK) return status;
    for (size_t j = 0; j < tokens; j++) {
        if (mark[j] == HA_MARK_NONE) return ha_selection_wrong(at, j, "is missing", why);
        if (mark[j] & HA_MARK_PADDING)
            return ha_selection_wrong(at, j, "is called padding; nothing is padded here", why);
    }
    return HA_OK;
}

static enum ha_status step(struct ha_def *def, const struct ha_def_step *in,
                           void (*reported)(void *arg, size_t seq, size_t q_head, struct ha_selection *out), void *arg,
                           struct ha_why *why)
{
    enum ha_status status = HA_OK;
    for (size_t b = 0; b < def->shape.batch && status == HA_OK; b++) {
        uint8_t *mark = malloc(in->tokens[b] + 1);
        if (!mark) return ha_why(why, HA_ERROR, "%s: no memory for %zu tokens", def->variant, in->tokens[b]);
        for (size_t h = 0; h < def->shape.q_heads && status == HA_OK; h++) {
            const struct ha_place at = { def->variant, in->layer, b, h };
            struct ha_selection s = { 0 };
            reported(arg, b, h, &s);
            status = judge(&s, in->tokens[b], mark, &at, why);
        }
        free(mark);
    }
    return status;
}

static void destroy(struct ha_def *def) { free(def); }

#define FULL(name)                                                                                              \
    static enum ha_status create_##name(struct ha_def **def, const struct ha_shape *shape, const double *param, \
                                        size_t threads, struct ha_why *why)                                     \
    {                                                                                                           \
        (void)param, (void)threads;                                                                             \
        return create(def, shape, #name, why);                                                                  \
    }                                                                                                           \
    const struct ha_definition ha_definition_##name = { #name, create_##name, prefill, step, destroy };

FULL(resident)
FULL(bmm)
FULL(offload)
FULL(cpu)
