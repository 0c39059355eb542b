/* The properties of a query head, and what of them rounding leaves open: features in binary32 have bounds, and with
 * them what the net makes of these; labels are budgets of which one block more or less may be the least. */

#include "reference/properties.h"
#include "reference/rows.h"

#include "harness/base/fit.h"
#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, UNITS = 312, OUTPUTS = 3 };

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "fluxion: no memory"); }

/* A tensor of so many numbers: [rows][columns], with rows = 0 [columns]. */
static enum ha_status tensor(const struct ha_fit *fit, const char *name, size_t rows, size_t columns, float *out,
                             struct ha_why *why)
{
    struct ha_tensor t = { .name = name, .type = HA_T_F32, .dims = rows ? 2 : 1, .dim = { rows, columns } };
    if (rows == 0) t.dim[0] = columns, t.dim[1] = 0;
    HA_TRY(ha_fit_get(fit, &t, why));
    memcpy(out, t.data, t.bytes);
    return HA_OK;
}

static enum ha_status read_net(struct ha_def_predictor *p, const struct ha_fit *fit, struct ha_why *why)
{
    static const char *const w[LAYERS] = { "w0", "w1", "w2" }, *const bias[LAYERS] = { "b0", "b1", "b2" };
    p->net = (struct ha_net){ .layers = LAYERS, .width = { HA_FEATURES, UNITS, UNITS, OUTPUTS } };
    float *next = p->weights = malloc(ha_net_weights(&p->net) * sizeof *next);
    if (!next) return no_memory(why);
    p->net.w = p->weights;
    HA_TRY(tensor(fit, "mean", 0, HA_FEATURES, p->means, why));
    HA_TRY(tensor(fit, "inv", 0, HA_FEATURES, p->inv, why));
    for (size_t i = 0; i < LAYERS; i++) {
        const size_t inputs = p->net.width[i], outputs = p->net.width[i + 1];
        HA_TRY(tensor(fit, w[i], inputs, outputs, next, why));
        HA_TRY(tensor(fit, bias[i], 0, outputs, next + inputs * outputs, why));
        next += (inputs + 1) * outputs;
    }
    return HA_OK;
}

enum ha_status ha_def_predictor_create(struct ha_def_predictor *p, const struct ha_fit *fit, struct ha_why *why)
{
    const size_t heads = p->shape.kv_heads;
    p->k = calloc(2 * heads, sizeof *p->k);
    p->feature = calloc(p->shape.q_heads * HA_FEATURES, sizeof *p->feature);
    if (!p->k || !p->feature) return no_memory(why);
    p->v = p->k + heads;
    return p->predict == HA_DEF_BY_NET ? read_net(p, fit, why) : HA_OK;
}

void ha_def_predictor_end(struct ha_def_predictor *p)
{
    for (size_t i = 0; i < HA_DEF_BLOCK_SIZES; i++) free(p->met[i]);
    free(p->feature);
    free(p->weights);
    free(p->k);
}

void ha_def_place_end(struct ha_def_place *place)
{
    free(place->anchor);
    free(place->known);
}

enum ha_status ha_def_predictor_prefill(const struct ha_def_predictor *p, struct ha_def_place *place,
                                        const struct ha_def_head *h, struct ha_why *why)
{
    const size_t dim = p->shape.head_dim, row = p->shape.q_heads * dim;
    if (p->predict != HA_DEF_BY_NET) return HA_OK;
    if (h->queries == 0 && place->prefill > 0)
        return ha_why(why, HA_ERROR,
                      "fluxion: predict=net needs the query of the context's last token: observed=1 or more");
    if (!place->anchor) place->anchor = calloc(row, sizeof *place->anchor);
    if (!place->anchor) return no_memory(why);
    if (h->queries) /* else there is no token, and the anchor stays 0 */
        memcpy(place->anchor + h->head * dim, h->q + (h->queries - 1) * row, dim * sizeof *place->anchor);
    return HA_OK;
}

/* ---- features -------------------------------------------------------------------------------------------------- */

/* h: the first head of its sequence */
static struct ha_def_features features_of(const struct ha_def_predictor *p, const struct ha_def_place *place,
                                          const struct ha_def_head *h)
{
    const struct ha_shape *s = &p->shape;
    for (size_t i = 0; i < s->kv_heads; i++) {
        p->k[i] = (const char *)h->k + i * h->kv_stride * ha_dtype_bytes(s->dtype);
        p->v[i] = (const char *)h->v + i * h->kv_stride * ha_dtype_bytes(s->dtype);
    }
    return (struct ha_def_features){ .shape = s,
                                     .layer = h->layer,
                                     .sinks = place->sinks,
                                     .host = place->host,
                                     .prefill = place->prefill,
                                     .tokens = h->tokens,
                                     .k = p->k,
                                     .v = p->v,
                                     .q = h->q + (h->queries - 1) * s->q_heads * s->head_dim,
                                     .anchor = place->anchor,
                                     .cpu = h->observer,
                                     .device = h->observer,
                                     .criterion = p->criterion,
                                     .tau = p->tau,
                                     .mean = p->mean };
}

/* In the first step of a place: what the known features may be. */
static enum ha_status know(struct ha_def_predictor *p, struct ha_def_place *place, const struct ha_def_head *first,
                           struct ha_why *why)
{
    const struct ha_def_features of = features_of(p, place, first);
    const size_t heads = p->shape.q_heads;
    HA_TRY(ha_def_features_known(&of, p->feature, why));
    for (size_t i = 0; i < HA_DEF_BLOCK_SIZES; i++) {
        free(p->met[i]);
        p->met[i] = malloc(heads * (place->host / ha_def_size(i + 1) + 1));
        if (!p->met[i]) return no_memory(why);
        HA_TRY(ha_def_features_met(&of, i + 1, p->met[i], why));
    }
    place->known = calloc(heads * HA_FEATURES, sizeof *place->known);
    return place->known ? HA_OK : no_memory(why);
}

/* A share of blocks, in binary32, of which the number may be the least that meets the criterion. */
static bool may_be_budget(double is, const uint8_t *met, size_t blocks)
{
    if (blocks == 0) return is == 0;
    const double m = round(is * (double)blocks);
    return is >= 0 && is <= 1 && is == (double)(float)(m / (double)blocks) && ha_def_label_may(met, blocks, (size_t)m);
}

static enum ha_status judge_budget(const struct ha_def_predictor *p, const struct ha_def_place *place,
                                   const struct ha_def_head *h, size_t size, double is, struct ha_why *why)
{
    const size_t blocks = place->host / ha_def_size(size + 1);
    const uint8_t *met = p->met[size] + h->head * (blocks + 1);
    if (may_be_budget(is, met, blocks)) return HA_OK;
    return ha_def_wrong(h, why, "feature %s is %.9g, and q' needs %zu to %zu of %zu blocks",
                        ha_feature_name(HA_FEATURE_ANCHOR_BUDGET_16 + size), is, ha_def_label_least(met, blocks),
                        ha_def_label_most(met, blocks), blocks);
}

enum ha_status ha_def_predictor_learnt(struct ha_def_predictor *p, struct ha_def_place *place,
                                       const struct ha_def_head *h, struct ha_why *why)
{
    if (p->predict != HA_DEF_BY_NET) return HA_OK;
    if (h->head == 0) p->begins = !place->known;
    if (h->head == 0 && p->begins) HA_TRY(know(p, place, h, why));
    const struct ha_ref_score *may = p->feature + h->head * HA_FEATURES;
    double *known = place->known + h->head * HA_FEATURES;
    if (h->chosen->learnt_count != HA_FEATURES)
        return ha_def_wrong(h, why, "%zu numbers were learnt, not %d features", h->chosen->learnt_count,
                            (int)HA_FEATURES);
    for (size_t i = 0; i < HA_FEATURES; i++) {
        const double is = h->chosen->learnt[i];
        if (ha_feature_online(i) && is != 0)
            return ha_def_wrong(h, why, "feature %s was learnt, and changes with the query", ha_feature_name(i));
        if (!p->begins && is != known[i])
            return ha_def_wrong(h, why, "feature %s is %.9g, and was %.9g", ha_feature_name(i), is, known[i]);
        if (!p->begins || ha_feature_online(i)) continue;
        if (i >= HA_FEATURE_ANCHOR_BUDGET_16 && i <= HA_FEATURE_ANCHOR_BUDGET_128)
            HA_TRY(judge_budget(p, place, h, i - HA_FEATURE_ANCHOR_BUDGET_16, is, why));
        else if (!(is >= may[i].low && is <= may[i].high))
            return ha_def_wrong(h, why, "feature %s is %.9g, and may be %.9g to %.9g", ha_feature_name(i), is,
                                may[i].low, may[i].high);
        known[i] = is;
    }
    return HA_OK;
}

/* ---- the notes ------------------------------------------------------------------------------------------------- */

static enum ha_status judge_note(const struct ha_def_head *h, const char *name, double is, double low, double high,
                                 const char *by, struct ha_why *why)
{
    if (is >= low && is <= high) return HA_OK;
    return ha_def_wrong(h, why, "note %s is %.9g, and by the %s %.9g to %.9g", name, is, by, low, high);
}

/* k = 0; bgt0 in binary64 or binary32 */
static enum ha_status judge_known(const struct ha_def_head *h, const struct ha_def_property *is, double bgt0, double s,
                                  const char *by, struct ha_why *why)
{
    const double rounded = (double)(float)bgt0;
    HA_TRY(judge_note(h, "bgt0", is->bgt0, fmin(bgt0, rounded), fmax(bgt0, rounded), by, why));
    HA_TRY(judge_note(h, "k", is->k, 0, 0, by, why));
    return judge_note(h, "s", is->s, s, s, by, why);
}

static double limited(double x)
{
    return x < -HA_FEATURE_LIMIT ? -HA_FEATURE_LIMIT : x > HA_FEATURE_LIMIT ? HA_FEATURE_LIMIT : x;
}

/* A difference and a product of binary32: what is made of a feature from low to high, and how far off that may be. */
static double standardised(const struct ha_def_predictor *p, size_t i, double low, double high, double *off)
{
    const double mean = (double)p->means[i], inv = (double)p->inv[i], roundings = 0x1.01p-23, eta = 0x1p-126;
    const double a = (low - mean) * inv, b = (high - mean) * inv;
    *off = 0;
    if (inv == 0) return 0;
    /* limited first: the LSE of no keys is -inf */
    const double least = limited(a < b ? a : b), most = limited(a < b ? b : a),
                 from = limited(least - roundings * fabs(least) - eta),
                 to = limited(most + roundings * fabs(most) + eta);
    *off = (to - from) / 2;
    return (to + from) / 2;
}

static enum ha_status judge_net(const struct ha_def_predictor *p, const struct ha_def_head *h, const double *known,
                                const struct ha_def_property *is, struct ha_why *why)
{
    double x[HA_FEATURES], off[HA_FEATURES], y[OUTPUTS], y_off[OUTPUTS];
    for (size_t i = 0; i < HA_FEATURES; i++) {
        const struct ha_ref_score *f = &p->feature[h->head * HA_FEATURES + i];
        const bool online = ha_feature_online(i);
        x[i] = standardised(p, i, online ? f->low : known[i], online ? f->high : known[i], &off[i]);
    }
    ha_ref_net(&p->net, x, off, y, y_off);
    HA_TRY(judge_note(h, "bgt0", is->bgt0, y[0] - y_off[0], y[0] + y_off[0], "net", why));
    HA_TRY(judge_note(h, "k", is->k, y[1] - y_off[1], y[1] + y_off[1], "net", why));
    return judge_note(h, "s", is->s, y[2] - y_off[2], y[2] + y_off[2], "net", why);
}

/* What the head needs in the step: of its last query. */
static struct ha_def_labelled labelled(const struct ha_def_predictor *p, const struct ha_def_features *of, size_t head)
{
    const size_t kv = head / ha_shape_group(&p->shape);
    return (struct ha_def_labelled){ .shape = &p->shape,
                                     .q = of->q + head * p->shape.head_dim,
                                     .k = of->k[kv],
                                     .v = of->v[kv],
                                     .tokens = of->tokens,
                                     .first = of->sinks,
                                     .host = of->host,
                                     .criterion = p->criterion,
                                     .tau = p->tau,
                                     .mean = p->mean,
                                     .profile = of->cpu };
}

/* bgt0 is what a head may need in blocks of one key, and k the slope of a line from there to what it may need in
 * others.
 */
static enum ha_status judge_labels(const struct ha_def_labelled *of, const struct ha_def_head *h,
                                   const struct ha_def_property *is, struct ha_why *why)
{
    const size_t keys = of->host;
    double low[HA_DEF_SIZES] = { is->bgt0 }, high[HA_DEF_SIZES] = { is->bgt0 };
    uint8_t *met = malloc(keys + 1);
    if (!met) return no_memory(why);
    enum ha_status status = ha_def_label_met(of, 0, met, why);
    if (status == HA_OK && !may_be_budget(is->bgt0, met, keys))
        status = ha_def_wrong(h, why, "note bgt0 is %.9g, and the step's query needs %zu to %zu of %zu keys", is->bgt0,
                              ha_def_label_least(met, keys), ha_def_label_most(met, keys), keys);
    for (size_t i = 1; i < HA_DEF_SIZES && status == HA_OK; i++) {
        const size_t blocks = keys / ha_def_size(i);
        status = ha_def_label_met(of, i, met, why);
        if (status != HA_OK) break;
        low[i] = (double)ha_def_label_least(met, blocks) / (double)blocks;
        high[i] = (double)ha_def_label_most(met, blocks) / (double)blocks;
    }
    free(met);
    HA_TRY(status);
    const double off = 16 * HA_REF_U, s = is->bgt0 == 0;
    HA_TRY(judge_note(h, "k", is->k, ha_def_slope(low) - off, ha_def_slope(high) + off, "labels", why));
    return judge_note(h, "s", is->s, s, s, "labels", why);
}

/* the largest |o| of all heads */
static enum ha_status largest(const struct ha_def_predictor *p, const struct ha_def_features *of,
                              struct ha_ref_score *most, struct ha_why *why)
{
    struct ha_ref_score norm;
    *most = (struct ha_ref_score){ 0, 0, 0 };
    for (size_t g = 0; g < p->shape.q_heads; g++) {
        const struct ha_def_labelled head = labelled(p, of, g);
        HA_TRY(ha_def_label_norm(&head, &norm, why));
        most->value = fmax(most->value, norm.value);
        most->low = fmax(most->low, norm.low);
        most->high = fmax(most->high, norm.high);
    }
    return HA_OK;
}

enum ha_status ha_def_predictor_judge(const struct ha_def_predictor *p, const struct ha_def_place *place,
                                      const struct ha_def_head *first, const struct ha_def_property *is,
                                      struct ha_why *why)
{
    const struct ha_def_features of = features_of(p, place, first);
    const bool labels = p->predict == HA_DEF_BY_ORACLE && place->host > 0;
    struct ha_ref_score most = { 0, 0, 0 };
    struct ha_def_head h = *first;
    if (p->predict == HA_DEF_BY_NET) HA_TRY(ha_def_features_online(&of, place->known, p->feature, why));
    if (labels && p->criterion == HA_DEF_CONTRIBUTION) HA_TRY(largest(p, &of, &most, why));
    for (size_t g = 0; g < p->shape.q_heads; g++) {
        struct ha_def_labelled head = labelled(p, &of, g);
        head.most = most;
        h.head = g;
        if (p->predict == HA_DEF_BY_NET) HA_TRY(judge_net(p, &h, place->known + g * HA_FEATURES, &is[g], why));
        else if (labels) HA_TRY(judge_labels(&head, &h, &is[g], why));
        else if (p->predict == HA_DEF_BY_ORACLE) HA_TRY(judge_known(&h, &is[g], 0, 1, "labels", why));
        else HA_TRY(judge_known(&h, &is[g], p->budget, 0, "option budget", why));
    }
    return HA_OK;
}
