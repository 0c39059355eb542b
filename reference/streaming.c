/* StreamingLLM (Xiao et al., ICLR 2024): attention sinks and a window.
 *
 * With N tokens in the cache, the q_len new ones included, and W = max(window, q_len), every head uses
 * the keys { j < min(sink, N) } and { j >= N - W }, each once. A window holds all the new tokens even where
 * it is shorter than the step: one key set serves the step, and query token t uses those keys of it that
 * are not after itself. Nothing is padded. Params: sink, window. */

#include "reference/definitions.h"
#include "reference/selection.h"

#include "harness/base/why.h"

#include <stdlib.h>

enum { SINK, WINDOW };

struct ha_def {
    size_t batch, q_heads, sink, window;
};

static enum ha_status create(struct ha_def **def, const struct ha_shape *shape, const double *param, size_t threads,
                             struct ha_why *why)
{
    (void)threads;
    *def = calloc(1, sizeof **def);
    if (!*def) return ha_why(why, HA_ERROR, "streaming: no memory");
    **def = (struct ha_def){ shape->batch, shape->q_heads, (size_t)param[SINK], (size_t)param[WINDOW] };
    return HA_OK;
}

static enum ha_status prefill(struct ha_def *def, size_t layer, const struct ha_def_step *kv, const float *const *q,
                              struct ha_why *why)
{
    (void)def, (void)layer, (void)kv, (void)q, (void)why;
    return HA_OK;
}

static enum ha_status judge(const struct ha_def *def, const struct ha_selection *s, size_t tokens, size_t q_len,
                            uint8_t *mark, const struct ha_place *at, struct ha_why *why)
{
    const enum ha_status status = ha_selection_mark(s, tokens, mark, at, why);
    if (status != HA_OK) return status;
    const size_t window = def->window > q_len ? def->window : q_len;
    for (size_t j = 0; j < tokens; j++) {
        const bool want = j < def->sink || j + window >= tokens;
        if (want != (mark[j] != HA_MARK_NONE))
            return ha_selection_wrong(
                at, j, want ? "is missing: a sink or in the window" : "is neither a sink nor in the window", why);
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
    for (size_t b = 0; b < def->batch && status == HA_OK; b++) {
        uint8_t *mark = malloc(in->tokens[b] + 1);
        if (!mark) return ha_why(why, HA_ERROR, "streaming: no memory for %zu tokens", in->tokens[b]);
        for (size_t h = 0; h < def->q_heads && status == HA_OK; h++) {
            const struct ha_place at = { "streaming", in->layer, b, h };
            struct ha_selection s = { 0 };
            reported(arg, b, h, &s);
            status = judge(def, &s, in->tokens[b], in->q_len, mark, &at, why);
        }
        free(mark);
    }
    return status;
}

static void destroy(struct ha_def *def) { free(def); }

const struct ha_definition ha_definition_streaming = { "streaming", create, prefill, step, destroy };
