/* StreamingLLM (Xiao et al., ICLR 2024): attention sinks and a window.
 *
 * With N tokens in the cache, the q_len new ones included, and W = max(window, q_len), every head uses
 * the keys { j < min(sink, N) } and { j >= N - W }, each once. A window holds all the new tokens even where
 * it is shorter than the step: one key set serves the step, and query token t uses those keys of it that
 * are not after itself. Nothing is padded. Params: sink, window. */

#include "reference/definitions.h"

#include "harness/base/why.h"

#include <stdlib.h>

enum { SINK, WINDOW };

struct ha_def {
    size_t sink, window;
};

static enum ha_status create(struct ha_def **def, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    *def = calloc(1, sizeof **def);
    if (!*def) return ha_why(why, HA_ERROR, "streaming: no memory");
    **def = (struct ha_def){ (size_t)param[SINK], (size_t)param[WINDOW] };
    return HA_OK;
}

static enum ha_status streaming_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                      struct ha_why *why)
{
    const size_t window = def->window > h->queries ? def->window : h->queries;
    for (size_t j = 0; j < h->tokens; j++) {
        const bool want = j < def->sink || j + window >= h->tokens;
        if (want != (mark[j] != HA_MARK_NONE))
            return ha_def_wrong(h, why, "key %zu is %s in the window", j,
                                want ? "missing: a sink or" : "neither a sink nor");
    }
    return HA_OK;
}

static void destroy(struct ha_def *def) { free(def); }

const struct ha_definition ha_definition_streaming = {
    .variant = "streaming", .create = create, .judge = streaming_judge, .destroy = destroy
};
