/* DuoAttention (Xiao et al., ICLR 2025): some KV heads need all tokens, the others do with the first and the recent
 * ones.
 *
 * Of all KV heads of the model, n, the k of largest importance are retrieval heads, k the least whole number with
 * k / n >= retrieval, a quotient of binary64. The importance of KV head h of layer l is importance_kv[l][h] of the
 * case's fit; without a fit all have the same. Of equal ones that comes first whose (h - l) mod kv_heads is smaller,
 * and then the one of the lower layer.
 *
 * A query head uses the step's own tokens, and of the N before the step all where its KV head is a retrieval head, else
 * { j < sink } and { j >= N - recent }. Nothing is padded. Params: retrieval, sink, recent. */

#include "reference/definitions.h"

#include "harness/base/fit.h"
#include "harness/base/why.h"

#include <stdlib.h>

enum { RETRIEVAL, SINK, RECENT };

struct ha_def {
    struct ha_shape shape;
    size_t sink, recent;
    bool retrieval[]; /* [layers][kv_heads] */
};

static size_t place(const struct ha_shape *s, size_t i)
{
    const size_t layer = i / s->kv_heads, head = i % s->kv_heads;
    size_t h = 0;
    while ((layer + h) % s->kv_heads != head) h++;
    return h * s->layers + layer;
}

/* Does x come before y? importance: NULL, or [layers][kv_heads] */
static bool is_before(const struct ha_shape *s, const float *importance, size_t x, size_t y)
{
    if (importance && importance[x] != importance[y]) return importance[x] > importance[y];
    return place(s, x) < place(s, y);
}

static enum ha_status create(struct ha_def **def, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    const size_t n = shape->layers * shape->kv_heads;
    struct ha_tensor t = {
        .name = "importance_kv", .type = HA_T_F32, .dims = 2, .dim = { shape->layers, shape->kv_heads }
    };
    *def = calloc(1, sizeof **def + n * sizeof(*def)->retrieval[0]);
    if (!*def) return ha_why(why, HA_ERROR, "duo: no memory");
    (*def)->shape = *shape;
    (*def)->sink = (size_t)param[SINK];
    (*def)->recent = (size_t)param[RECENT];
    if (fit) HA_TRY(ha_fit_get(fit, &t, why));
    for (size_t i = 0; i < n; i++) {
        size_t before = 0;
        for (size_t j = 0; j < n; j++) before += is_before(shape, fit ? t.data : NULL, j, i);
        (*def)->retrieval[i] = (double)before / (double)n < param[RETRIEVAL];
    }
    return HA_OK;
}

static bool is_retrieval(const struct ha_def *def, const struct ha_def_head *h)
{
    return def->retrieval[h->layer * def->shape.kv_heads + h->head / ha_shape_group(&def->shape)];
}

static enum ha_status duo_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                struct ha_why *why)
{
    const size_t before = h->tokens - h->queries;
    const bool all = is_retrieval(def, h);
    HA_TRY(ha_def_on_device(h, mark, why));
    for (size_t j = 0; j < h->tokens; j++) {
        const bool want = all || j < def->sink || j + def->recent >= before;
        if (want == (mark[j] != HA_MARK_NONE)) continue;
        if (all) return ha_def_wrong(h, why, "key %zu is missing: this is a retrieval head", j);
        return ha_def_wrong(h, why, "key %zu is %s: this is a streaming head", j,
                            want ? "missing, a sink or recent" : "used, neither a sink nor recent");
    }
    return HA_OK;
}

static void duo_count(const struct ha_def *def, ha_def_count *say, void *arg)
{
    const size_t all = def->shape.kv_heads;
    for (size_t l = 0; l < def->shape.layers; l++) {
        double streaming = 0;
        for (size_t h = 0; h < all; h++) streaming += !def->retrieval[l * all + h];
        say(arg, "streaming_heads", l, streaming / (double)all, streaming / (double)all);
    }
}

static void destroy(struct ha_def *def) { free(def); }

const struct ha_definition ha_definition_duo = {
    .variant = "duo", .create = create, .judge = duo_judge, .count = duo_count, .destroy = destroy
};
