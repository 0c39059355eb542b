/* Which similarity serves a KV head, and which heads are so hard to serve that all of their keys stay on the device
 * (CLO, sections 3.2 and 3.3).
 *
 * The threshold of a head of importance s is eta, or adaptive: cos(l acos(eta) + (1 - l) pi), l = s^p. Its difficulty D
 * is the threshold less (its mean similarity - eps). Of layer l > 0 the max(#{D > 0} - N, 0) heads of largest D are
 * wanted, N = floor(compute time times bandwidth / bytes of a head's buffers). Of all that are wanted those of largest
 * D are persistent, as many as the budget has room for beside the first layer, whose heads all are.
 *
 * Two D, or one and 0, that are within NEAR of each other may be in either order. A set is right where in each layer
 * those that are persistent are not smaller than others, they are no more than are wanted and fit, and where a layer
 * has fewer than are wanted there is no room, and all that have it are not smaller than the one that is left out. */

#include "reference/definitions.h"

#include "harness/base/fit.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEAR  1e-9
#define LEAST 0x1p-10 /* of an importance in a mean */

static enum ha_status no_memory(struct ha_why *why)
{
    return ha_why(why, HA_ERROR, "reference: no memory for the thresholds of heads");
}

/* data: NULL where the fit has none */
static enum ha_status read(const struct ha_fit *fit, const char *name, size_t rows, size_t columns, const float **data,
                           struct ha_why *why)
{
    struct ha_tensor t = { .name = name, .type = HA_T_F32, .dims = columns ? 2 : 1, .dim = { rows, columns } };
    *data = NULL;
    if (!fit || !ha_fit_has(fit, name)) return HA_OK;
    HA_TRY(ha_fit_get(fit, &t, why));
    *data = t.data;
    return HA_OK;
}

static enum ha_status read_importance(const struct ha_fit *fit, const char *name, size_t layers, size_t heads,
                                      const float **data, struct ha_why *why)
{
    HA_TRY(read(fit, name, layers, heads, data, why));
    for (size_t i = 0; *data && i < layers * heads; i++)
        if (!((*data)[i] >= 0 && (*data)[i] <= 1))
            return ha_why(why, HA_ERROR, "fit: %s of layer %zu head %zu is %g, not in [0, 1]", name, i / heads,
                          i % heads, (double)(*data)[i]);
    return HA_OK;
}

static double threshold(const struct ha_def_reuse_rule *rule, double importance)
{
    if (!rule->adaptive) return rule->eta;
    const double by = pow(importance, rule->p);
    return cos(by * acos(rule->eta) + (1 - by) * acos(-1));
}

/* How many of something fit, where a quotient is as good as whole. */
static void whole(double quotient, double *least, double *most)
{
    *least = floor(quotient * (1 - 1e-12));
    *most = floor(quotient * (1 + 1e-12));
}

static void rooms(struct ha_def_reuse *r, const struct ha_def_reuse_rule *rule, const float *pace)
{
    r->prefetched[0] = r->prefetched[1] = 0;
    if (pace && rule->buffer_bytes > 0)
        whole((double)pace[0] * (double)pace[1] / rule->buffer_bytes, &r->prefetched[0], &r->prefetched[1]);
    else if (pace) r->prefetched[0] = r->prefetched[1] = HUGE_VAL; /* of nothing */
    r->room[0] = r->room[1] = HUGE_VAL;
    if (rule->budget_bytes <= 0 || rule->whole_bytes <= 0) return;
    whole(rule->budget_bytes / rule->whole_bytes, &r->room[0], &r->room[1]);
    for (size_t i = 0; i < 2; i++) r->room[i] -= (double)r->kv_heads;
}

enum ha_status ha_def_reuse_create(struct ha_def_reuse *r, const struct ha_shape *s,
                                   const struct ha_def_reuse_rule *rule, const struct ha_fit *fit, struct ha_why *why)
{
    const size_t all = s->layers * s->kv_heads;
    const float *of_q, *of_kv, *similarity, *pace;
    *r = (struct ha_def_reuse){ .layers = s->layers, .q_heads = s->q_heads, .kv_heads = s->kv_heads };
    HA_TRY(read_importance(fit, "importance_q", s->layers, s->q_heads, &of_q, why));
    HA_TRY(read_importance(fit, "importance_kv", s->layers, s->kv_heads, &of_kv, why));
    HA_TRY(read(fit, rule->least ? "similarity_min" : "similarity", s->layers, s->kv_heads, &similarity, why));
    HA_TRY(read(fit, "pace", 2, 0, &pace, why));
    r->importance = calloc(s->layers * s->q_heads, sizeof *r->importance);
    r->least = calloc(all, sizeof *r->least);
    r->most = calloc(all, sizeof *r->most);
    r->persistent = malloc(all);
    if (rule->hard && similarity) r->difficulty = calloc(all, sizeof *r->difficulty);
    if (!r->importance || !r->least || !r->most || !r->persistent || (rule->hard && similarity && !r->difficulty))
        return no_memory(why);
    memset(r->persistent, HA_DEF_MAYBE, all);
    for (size_t i = 0; i < s->layers * s->q_heads; i++) r->importance[i] = of_q ? fmax(LEAST, (double)of_q[i]) : 1;
    for (size_t i = 0; i < all; i++) {
        const double of = threshold(rule, of_kv ? (double)of_kv[i] : 1);
        r->least[i] = (float)(of - 1e-12);
        r->most[i] = (float)(of + 1e-12);
        if (r->difficulty) r->difficulty[i] = of - ((double)similarity[i] - rule->eps);
    }
    rooms(r, rule, pace);
    return r->room[1] >= 0
               ? HA_OK
               : ha_why(why, HA_ERROR,
                        "device_budget_MB=%g: the first layer's %zu heads alone take %g MB, and all of them "
                        "are persistent",
                        rule->budget_bytes / 1e6, s->kv_heads, (double)s->kv_heads * rule->whole_bytes / 1e6);
}

void ha_def_reuse_end(struct ha_def_reuse *r)
{
    free(r->importance);
    free(r->least);
    free(r->most);
    free(r->difficulty);
    free(r->persistent);
}

/* heads of a layer above D, but for one of it: `kv_heads`, none */
static double above(const struct ha_def_reuse *r, size_t layer, double d, size_t but)
{
    double count = 0;
    for (size_t i = 0; i < r->kv_heads; i++) count += i != but && r->difficulty[layer * r->kv_heads + i] > d;
    return count;
}

/* how many of a layer are wanted, at least or at most */
static double wanted(const struct ha_def_reuse *r, size_t layer, bool most)
{
    return fmax(0, above(r, layer, most ? -NEAR : NEAR, r->kv_heads) - r->prefetched[!most]);
}

static enum ha_status judge_head(const struct ha_def_reuse *r, const struct ha_def_head *h, size_t kv, bool persistent,
                                 struct ha_why *why)
{
    if (h->layer == 0 && !persistent)
        return ha_def_wrong(h, why, "note persistent is 0: all heads of the first layer are");
    if (h->layer == 0) return HA_OK;
    if (!r->difficulty && persistent)
        return ha_def_wrong(h, why, "note persistent is 1: no head behind the first layer is");
    if (!r->difficulty) return HA_OK;
    const double d = r->difficulty[h->layer * r->kv_heads + kv];
    double surely = 0, maybe = 0; /* others that come before it */
    for (size_t l = 1; l < r->layers; l++) {
        const size_t but = l == h->layer ? kv : r->kv_heads;
        surely += fmin(above(r, l, d + NEAR, but), wanted(r, l, false));
        maybe += fmin(above(r, l, d - NEAR, but), wanted(r, l, true));
    }
    const double sure_here = above(r, h->layer, d + NEAR, kv), maybe_here = above(r, h->layer, d - NEAR, kv);
    if (persistent && sure_here >= wanted(r, h->layer, true))
        return ha_def_wrong(h, why, "note persistent is 1: difficulty %.6g is not among the %g largest of the layer", d,
                            wanted(r, h->layer, true));
    if (persistent && surely >= r->room[1])
        return ha_def_wrong(h, why, "note persistent is 1: the budget has room for %g heads, and %g are harder",
                            r->room[1], surely);
    if (!persistent && maybe_here < wanted(r, h->layer, false) && maybe < r->room[0])
        return ha_def_wrong(h, why, "note persistent is 0: difficulty %.6g is among the %g largest of the layer", d,
                            wanted(r, h->layer, false));
    return HA_OK;
}

/* In a layer, the persistent head of least D, or the one of largest D that is not; kv_heads: there is none. */
static size_t edge(const struct ha_def_reuse *r, size_t layer, enum ha_def_known is)
{
    const double *d = r->difficulty + layer * r->kv_heads;
    size_t at = r->kv_heads;
    for (size_t i = 0; i < r->kv_heads; i++)
        if (r->persistent[layer * r->kv_heads + i] == is
            && (at == r->kv_heads || (is == HA_DEF_IN ? d[i] < d[at] : d[i] > d[at])))
            at = i;
    return at;
}

/* What was adopted, head by head, is one set. */
static enum ha_status judge_all(const struct ha_def_reuse *r, const struct ha_def_head *h, struct ha_why *why)
{
    double all = 0, least = HUGE_VAL;
    for (size_t l = 1; l < r->layers; l++) {
        const double *d = r->difficulty + l * r->kv_heads;
        const size_t in = edge(r, l, HA_DEF_IN), out = edge(r, l, HA_DEF_OUT);
        double here = 0;
        for (size_t i = 0; i < r->kv_heads; i++) here += r->persistent[l * r->kv_heads + i] == HA_DEF_IN;
        all += here;
        if (here > wanted(r, l, true))
            return ha_def_wrong(h, why, "%g heads of layer %zu are persistent, %g are hard and not prefetched", here, l,
                                wanted(r, l, true));
        if (in == r->kv_heads) continue;
        least = fmin(least, d[in]);
        if (out < r->kv_heads && d[out] > d[in] + NEAR)
            return ha_def_wrong(h, why, "of layer %zu KV head %zu (difficulty %.6g) is persistent, %zu (%.6g) is not",
                                l, in, d[in], out, d[out]);
    }
    if (all > r->room[1])
        return ha_def_wrong(h, why, "%g heads behind the first layer are persistent, the budget has room for %g", all,
                            r->room[1]);
    for (size_t l = 1; l < r->layers; l++) {
        double here = 0;
        for (size_t i = 0; i < r->kv_heads; i++) here += r->persistent[l * r->kv_heads + i] == HA_DEF_IN;
        if (!(here < wanted(r, l, false))) continue;
        const size_t out = edge(r, l, HA_DEF_OUT);
        const double d = r->difficulty[l * r->kv_heads + out];
        if (all < r->room[0] || least < d - NEAR)
            return ha_def_wrong(h, why, "KV head %zu of layer %zu (difficulty %.6g) is not persistent, %s", out, l, d,
                                all < r->room[0] ? "and the budget has room" : "and one that is less hard is");
    }
    return HA_OK;
}

enum ha_status ha_def_reuse_judge(struct ha_def_reuse *r, const struct ha_def_head *h, bool persistent,
                                  struct ha_why *why)
{
    const size_t kv = h->head / (r->q_heads / r->kv_heads);
    uint8_t *is = &r->persistent[h->layer * r->kv_heads + kv];
    const uint8_t now = persistent ? HA_DEF_IN : HA_DEF_OUT;
    if (*is != HA_DEF_MAYBE && *is != now)
        return ha_def_wrong(h, why, "note persistent is %d, and was %d", (int)persistent, (int)!persistent);
    if (*is == now) return HA_OK;
    HA_TRY(judge_head(r, h, kv, persistent, why));
    *is = now;
    for (size_t i = 0; i < r->layers * r->kv_heads; i++)
        if (r->persistent[i] == HA_DEF_MAYBE) return HA_OK;
    return r->difficulty ? judge_all(r, h, why) : HA_OK;
}
