#include "harness/api/reference.h"

#include "harness/base/numeric.h"

#include <math.h>

static unsigned chunk_of(const struct ha_profile *p) { return p->join_keys ? p->join_keys : HA_CHUNK_KEYS; }

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
 *
 * Exact joins. Weights are 2^(x - level) with x = s log2 e and an integer level, m - 8 <= level < m + 1 for the
 * largest x, m. The constant log2 e is in the scale (or the query), whose rounding and product kappa_s = 2 counts; x -
 * level rounds once, and 2^x takes the place of exp. A join multiplies either side by a power of two: nothing is
 * rounded but the addition, R = 0, and no maximum is subtracted twice: kappa_s = 2 and kappa_t = 3 as in one chunk.
 * What a product loses to underflow is under 2^-149 for each key: far less than the eta for each key that the bound has
 * anyway, also at a level 1 above m. x - level with t = m - x >= 0: its size is below max(8, t + 1), and half a unit in
 * its last place at most 4 u below 8 and u t from there on. kappa_t u t, in natural units, covers all but 4 u ln 2 < 3
 * u, which is counted with exp. Parts of the keys that are computed apart are joined pairwise, neighbours first
 * (kernels/c/attend_join.c). A key's path is then that through its own part, whose chunks are no more and no longer
 * than those of all keys together, and log2 of the number of parts, rounded up. Parts begin at multiples of
 * HA_SPLIT_KEYS and none is empty: there are at most n / HA_SPLIT_KEYS, rounded up. So one bound is right for every way
 * to split, and for none.
 *
 * Operands. Where each number that a product takes is off by e of itself, as in TF32, a product is by u_x = (1 + e)^2 -
 * 1: so are the terms of a score, whose magnitudes count, and those of a weighted sum of V, but not the denominator. A
 * score that is rounded to a type is off by its unit of what it is by then, or by half its least number.
 */
static double split_depth(size_t keys)
{
    double depth = 0;
    for (size_t most = (keys + HA_SPLIT_KEYS - 1) / HA_SPLIT_KEYS; most > 1; most = (most + 1) / 2) depth++;
    return depth;
}

/* What rounding takes from a weight below the type's normal numbers. Instructions that multiply bf16 take its subnormal
 * numbers for 0. */
static double weight_eta(enum ha_dtype t)
{
    const double eta = ha_dtype_eta(t), flushed = 0x1p-126;
    return t == HA_F32 ? 0 : eta > flushed ? eta : flushed;
}

/* from where on a type has no number; 0: binary32 */
static double most_of(enum ha_dtype t) { return t == HA_F16 ? 0x1p16 : t == HA_BF16 ? 0x1p128 : 0; }

/* Weights that are exp(s - L) and not divided by their sum: s - L rounds once, by u (m - s), which kappa_t has, and u
 * (L
 * - m), where L - m is at most the logarithm of the keys that L is of: ln n, and what the state's own have less than
 * these. Where weights are quotients of exp(s - m) it is 2 u. */
static double of_lse(const struct ha_profile *p, size_t keys)
{
    return p->sum_least > 0 && keys ? 0x1p-24 * (log((double)keys) - log(p->sum_least) + 2) : 0;
}

struct ha_bound ha_bound_attend(const struct ha_profile *p, size_t head_dim, size_t keys, size_t runs)
{
    const size_t used = runs == 0 ? 1 : runs, ends = used < keys ? used : keys, chunk = chunk_of(p);
    const size_t chunks = keys == 0 ? 0 : ends + (keys - ends) / chunk;
    const size_t most = p->joins_max ? p->joins_max : SIZE_MAX;
    const double joins = chunks > 1 ? (double)(chunks - 1 < most ? chunks - 1 : most) : 0;
    const bool rescaled = chunks > 1 && !p->exact_joins;
    const double each = p->truncates ? 2 : 1;
    const double u = ha_dtype_unit(p->weight_type), eta = weight_eta(p->weight_type),
                 u_s = ha_dtype_unit(p->score_type), u_x = p->operand_eps * (2 + p->operand_eps);
    return (struct ha_bound){
        .h_dot = each * longest_path(head_dim, p->dot_lanes, p->dot_extra),
        .h_sum = each * longest_path(keys < chunk ? keys : chunk, p->sum_lanes, p->sum_extra) + 1 + joins
                 + (rescaled ? 4 : 0) + (p->exact_joins ? split_depth(keys) : 0),
        .rescales = rescaled ? joins : 0,
        .exp_eps = p->exp_eps + (p->exact_joins ? 3 * 0x1p-24 : 0) + of_lse(p, keys),
        .log_eps = p->log_eps,
        .kappa_s = rescaled ? 4 : 2,
        .kappa_t = rescaled ? 4 : 3,
        .u_p = (p->sum_rounded ? 0 : u) * (1 + u_x) + u_x,
        .eta_p = p->sum_rounded ? 0 : eta,
        .u_o = ha_dtype_unit(p->out_type),
        .eta_o = ha_dtype_eta(p->out_type),
        .u_w = p->sum_rounded ? u : 0,
        .eta_w = p->sum_rounded ? eta : 0,
        .u_l = ha_dtype_unit(p->lse_type),
        .eta_l = ha_dtype_eta(p->lse_type),
        .one_sign = p->truncates ? 0.5 : 0,
        .u_s = u_s,
        .least_s = u_s > 0 ? ha_dtype_eta(p->score_type) / u_s : 0,
        .most_s = most_of(p->score_type),
        .u_x = u_x,
        .u_g = p->logit_type == HA_F32 ? 0 : ha_dtype_unit(p->logit_type),
        .eta_g = p->logit_type == HA_F32 ? 0 : ha_dtype_eta(p->logit_type),
        .most_g = most_of(p->logit_type),
        .sum_least = p->sum_least,
    };
}

/* Chunks of different lengths: with the shorter of them the joins are many, and the path through the longer, or through
 * all keys where it is longer than these, is allowed for in sum_extra. */
struct ha_profile ha_profile_weaker(const struct ha_profile *of, const struct ha_profile *x, size_t keys)
{
    struct ha_profile p = *of;
#define LEAST(field) p.field = x->field < p.field ? x->field : p.field
#define MOST(field)  p.field = x->field > p.field ? x->field : p.field
    const unsigned a = chunk_of(&p), b = chunk_of(x), chunk = a < b ? a : b;
    const double path_a = longest_path(a < keys ? a : keys, p.sum_lanes, p.sum_extra),
                 path_b = longest_path(b < keys ? b : keys, x->sum_lanes, x->sum_extra);
    LEAST(dot_lanes);
    MOST(dot_extra);
    LEAST(sum_lanes);
    MOST(sum_extra);
    const double path = path_a > path_b ? path_a : path_b,
                 has = longest_path(chunk < keys ? chunk : keys, p.sum_lanes, p.sum_extra);
    if (a != b && path > has) p.sum_extra += (unsigned)(path - has);
    p.join_keys = chunk == HA_CHUNK_KEYS ? 0 : chunk;
    p.joins_max = of->joins_max && x->joins_max ? (of->joins_max > x->joins_max ? of->joins_max : x->joins_max) : 0;
    MOST(exp_eps);
    MOST(log_eps);
    MOST(weight_type); /* t or binary32, which is the least */
    MOST(out_type);
    MOST(lse_type);
    MOST(score_type);
    MOST(operand_eps);
    MOST(logit_type);
    if (p.sum_least > 0 && x->sum_least > 0) LEAST(sum_least);
    else MOST(sum_least); /* one that is divided by its sum is off by no more */
    p.sum_rounded |= x->sum_rounded;
    p.truncates |= x->truncates;
    p.exact_joins &= x->exact_joins;
    p.varies |= x->varies;
    return p;
#undef LEAST
#undef MOST
}

/* What attend joins itself has no joins_max. */
struct ha_profile ha_profile_attend(const struct ha_kernels *k, enum ha_dtype t)
{
    struct ha_profile p = k->profile;
    if (!k->attend_packed[t]) return p;
    p = ha_profile_weaker(&p, &k->packed_profile[t], SIZE_MAX);
    p.joins_max = 0;
    return p;
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
