#include "harness/api/reference.h"

#include "harness/base/numeric.h"

static double longest_path(size_t terms, unsigned lanes, unsigned extra)
{
    return (double)((terms + lanes - 1) / lanes + extra);
}

/* Why these values are valid.
 *
 * One chunk is two-pass. Weight j carries the rounding of q.k (h_dot; the product with the
 * scale and the scale's own rounding are kappa_s = 2), of s - max (kappa_t = 3) and of exp.
 * The sum of the weights has at most longest_path additions, the weighted sum of V the product
 * besides: h_sum is one more than the path. Keys that a causal mask hides add exact zeros.
 *
 * Where there are several chunks, each join takes (max, sum, acc) of what came before and of one
 * chunk, multiplies the side with the smaller max by exp(its max - the larger max), the other by
 * exactly 1, and adds. For a weight this is, at each join it passes, at most
 *   one addition: + joins in h_sum;
 *   one product, with one exp's error: + joins in R, which enters as (1 + R) exp_eps in the
 *     weight and as R further roundings in gamma_(h + R);
 *   the rounding of a difference of two maxima, u |difference|. These differences and s - max of
 *     the chunk have one sign and add up to s_j - max over all, so together they cost u (max - s_j).
 * Either side can be the smaller at any join, so R = joins, not 1. The maxima are themselves
 * rounded scores, each once more compared and subtracted: kappa_s = kappa_t = 4. The further 4 in
 * h_sum allow a chunk to be normalised before it is joined (a division and a product, in sum and
 * acc). A join with an empty state is exact. With one chunk nothing is joined.
 *
 * Every run starts new chunks, so n keys in r runs are in at most r' + (n - r') / chunk
 * chunks, r' = min(r, n): each run but for its full chunks ends in one that holds a key at least. A chunk is
 * HA_CHUNK_KEYS keys, or the profile's join_keys: a GPU's warps join every few keys, but side by side, so that a
 * weight passes no more joins than the profile's joins_max. An addition that truncates is off by 2 u.
 */
struct ha_bound ha_bound_attend(const struct ha_profile *p, size_t head_dim, size_t keys, size_t runs)
{
    const size_t used = runs == 0 ? 1 : runs, ends = used < keys ? used : keys, chunk = p->join_keys ? p->join_keys : HA_CHUNK_KEYS;
    const size_t chunks = keys == 0 ? 0 : ends + (keys - ends) / chunk;
    const size_t most = p->joins_max ? p->joins_max : SIZE_MAX;
    const double joins = chunks > 1 ? (double)(chunks - 1 < most ? chunks - 1 : most) : 0;
    const bool joined = chunks > 1;
    const double each = p->truncates ? 2 : 1;
    return (struct ha_bound){
        .h_dot = each * longest_path(head_dim, p->dot_lanes, p->dot_extra),
        .h_sum = each * longest_path(keys < chunk ? keys : chunk, p->sum_lanes, p->sum_extra) + 1 + (joined ? joins + 4 : 0),
        .rescales = joins,
        .exp_eps = p->exp_eps,
        .log_eps = p->log_eps,
        .kappa_s = joined ? 4 : 2,
        .kappa_t = joined ? 4 : 3,
        .u_p = p->weight_u,
        .eta_p = p->weight_eta,
    };
}

struct ha_merge_bound ha_bound_merge(const struct ha_merge_traits *traits, enum ha_form form, enum ha_dtype dtype)
{
    return (struct ha_merge_bound){
        .form = form,
        .exp_eps = traits->exp_eps,
        .log_eps = traits->log_eps,
        .depth_extra = traits->depth_extra,
        .rescales = traits->rescales,
        .u_o = ha_dtype_unit(dtype),
        .eta_o = ha_dtype_eta(dtype),
    };
}
