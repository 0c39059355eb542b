#include "reference/rows.h"

#include "harness/base/numeric.h"

#include <stdlib.h>
#include <string.h>

/* How far a row's error goes if each rounding is as large as it can be and its sign is chance. The worst case adds
 * roundings up, chance adds their squares: over n keys the former is sqrt(n) too large for o, whose terms cancel. Two
 * digits are enough, so that nearly all is computed in binary32.
 *
 * Chance is believed where roundings differ from key to key and from row to row, as those of numbers do that are not
 * round. What is known to repeat is added up as in the worst case, and stands apart as `bias`: constants (scale,
 * log2 e, ln 2); what exp and log are off by, which may be the same for all keys; sums that truncate; terms that are
 * too small for a sum; weights that are equal. A single rounding counts u, not its mean of u / sqrt 3: so a row of
 * which it is all, as where o is stored in 16 bits, is never beyond its size, and many that have the same do not
 * matter. */

/* sums over keys, p = exp(s - L) */
struct key_sums {
    double scores, below;           /* p s; p (m - s) */
    double p2, p2_below, p2_below2; /* p^2, and it times m - s, and times the square of that */
    double each;                    /* p^2 t^2, t what a weight is off by, relative to it */
    double chance;                  /* the same of their sum: of keys that are rounded alike the square of the sum */
    double lost;                    /* what sums do not take of p */
    double tied, alike; /* p of keys with the score of the key before: but for sums' roundings; for those of weights */
    double repeated;    /* how many a sum takes that differ from those before by less than it is rounded by */
    double same2;       /* t^2 of keys that are rounded alike */
    double terms, spread; /* p (sum of squares of terms); p (s - m)^2 */
    double hardest;       /* the largest score, with what its terms are by chance */
};

/* Keys with the same score are the same as a rule, and what rounds the one rounds the other: sums of p t of the scores
 * seen last, whose squares are chance. */
enum { SCORES = 1024 };
struct same {
    float score[SCORES];
    double of[SCORES];
};

struct row {
    const struct ha_bound *b;
    const struct ha_ref_state *want;
    size_t dim, keys;
    double scale, flushed; /* flushed: weights that their type may take for zero */
    float *p, *t2;         /* [keys] weights; squares of what they are off by */
    struct key_sums of;
};

static double square(double x) { return x * x; }

static double squares(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += square(x[i]);
    return sum;
}

/* What a sum of n terms does not take of p < 4 u, which may be less than half a unit of what is summed already: nothing
 * that chance makes up for. With paths of h additions there are n / h sums at least, of which no more than 4 u / p are
 * as large as p / 4 u. */
static double lost(const struct row *r, double p)
{
    const double few = 4 * HA_REF_U;
    return p < r->flushed ? p : p < few ? fmin(p, few * r->b->h_sum / (double)r->keys) : 0;
}

/* p becomes scores, t2 the sums of the squares of their terms */
static void score(struct row *r, const float *restrict q, const struct ha_rows *rows, enum ha_dtype dtype)
{
    struct ha_ref_tile tile;
    const size_t dim = r->dim;
    for (size_t j = 0; j < r->keys; j += HA_REF_TILE) {
        ha_ref_tile_load(&tile, rows, HA_REF_K, j, dim, dtype);
        for (size_t i = 0; i < ha_ref_smaller(HA_REF_TILE, r->keys - j); i++) {
            const float *restrict k = tile.data + i * dim;
            float s = 0, squares = 0;
#pragma omp simd reduction(+ : s, squares)
            for (size_t d = 0; d < dim; d++) {
                const float t = q[d] * k[d];
                s += t;
                squares += t * t;
            }
            r->p[j + i] = (float)r->scale * s;
            r->t2[j + i] = (float)(r->scale * r->scale) * squares;
        }
    }
}

/* false: the first of its score */
static bool same_as_before(struct row *r, struct same *same, float s, double pt)
{
    uint32_t bits;
    memcpy(&bits, &s, sizeof bits);
    const size_t at = (bits * 0x9e3779b1u) >> 22;
    const bool again = same->score[at] <= s && same->score[at] >= s;
    if (!again) r->of.chance += square(same->of[at]);
    same->of[at] = pt + (again ? same->of[at] : 0);
    same->score[at] = s;
    return again;
}

static void weigh(struct row *r)
{
    struct same same;
    for (size_t i = 0; i < SCORES; i++) same.score[i] = NAN, same.of[i] = 0;
    const struct ha_bound *b = r->b;
    const double u = HA_REF_U, m = r->want->max, lse = r->want->lse;
    const double of_sums = 8 * u * b->h_sum, of_weights = 8 * fmax(b->u_p, b->u_w);
    double before = HUGE_VAL, all = 0, most = 0;
    size_t near = 0;
    for (size_t j = 0; j < r->keys; j++) {
        const double s = (double)r->p[j], p = exp(s - lse), step = fabs(s - before);
        if (s == -HUGE_VAL) { /* exactly no weight */
            r->p[j] = r->t2[j] = 0;
            continue;
        }
        const double terms = (double)r->t2[j] + s * s, p2 = p * p;
        const double t2 = u * u / 3 * (b->h_dot * terms + b->kappa_s * s * s + b->kappa_t * square(m - s))
                          + square(b->exp_eps) + square(b->u_w);
        r->of.hardest = fmax(r->of.hardest, terms);
        r->of.scores += p * s;
        r->of.below += p * (m - s);
        r->of.terms += p * terms;
        r->of.spread += p * square(m - s);
        all += p * sqrt(t2);
        most = fmax(most, t2);
        if (same_as_before(r, &same, r->p[j], p * sqrt(t2))) r->of.same2 = fmax(r->of.same2, t2);
        r->of.p2 += p2;
        r->of.p2_below += p2 > 0 ? p2 * (m - s) : 0;
        r->of.p2_below2 += p2 > 0 ? p2 * square(m - s) : 0;
        r->of.each += p2 * t2;
        r->of.lost += lost(r, p);
        r->of.tied += step < of_sums ? p : 0;
        near = p * step < u ? near + 1 : 0; /* two in a row are no accident */
        r->of.repeated += step < of_sums || near > 1 ? fmin(p / u, 1) : 0;
        r->of.alike += step < of_weights ? p : 0;
        r->p[j] = (float)p;
        r->t2[j] = (float)t2;
        before = s;
    }
    r->of.hardest = sqrt(r->of.hardest);
    for (size_t i = 0; i < SCORES; i++) r->of.chance += square(same.of[i]);
    /* nor do keys differ much whose scores do not */
    if (r->of.spread - square(r->of.below) > square(0x1p-5) * r->of.terms) return;
    r->of.chance = fmax(r->of.chance, square(all));
    r->of.same2 = most;
}

/* sums over keys of what each does to o, x = v - o */
struct value_sums {
    double chance; /* p^2 (t^2 |x|^2 + u_p^2 |v|^2) */
    double parts;  /* |sum of p x|^2 over parts of the keys, such as an implementation may sum */
    double values; /* |v|^2, and a little */
    double lost;   /* |sum of x times what sums do not take of p| */
    double along;  /* |sum of p (s - mean s) x|: what a relative error of all scores does */
};

/* Parts are the keys up to any tile, and every eighth key: values that drift or alternate have large sums there. All of
 * it is times `by`, a power of two with which squares are numbers of binary32, however small or large values are. */
struct columns {
    float by;
    float o[HA_REF_DIM_MAX], so_far[HA_REF_DIM_MAX], along[HA_REF_DIM_MAX], lost[HA_REF_DIM_MAX],
        lane[HA_REF_TILE][HA_REF_DIM_MAX];
};

/* |by x|^2 of one key, which is added to the sums with weight p */
static double add(struct columns *c, size_t lane, const float *restrict v, size_t dim, float p, float tilt)
{
    float *restrict to = c->lane[lane], *restrict so_far = c->so_far, *restrict along = c->along, sum = 0;
    const float *restrict o = c->o, by = c->by;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < dim; i++) {
        const float x = by * v[i] - o[i], t = p * x;
        sum += x * x;
        to[i] += t;
        so_far[i] += t;
        along[i] += tilt * x;
    }
    return (double)sum;
}

static double squares32(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += square((double)x[i]);
    return sum;
}

/* takes the largest value that weighs anything to about 2^20: larger ones are up to 2^43 times that */
static double power_of(const struct ha_ref_state *want)
{
    double most = 0x1p-100;
    for (size_t i = 0; i < want->dim; i++) most = fmax(most, fmax(fabs(want->v_min[i]), fabs(want->v_max[i])));
    return ldexp(1, 20 - ilogb(most));
}

static struct value_sums value(const struct row *r, const struct ha_rows *rows, enum ha_dtype dtype)
{
    const size_t dim = r->dim;
    const double o2 = squares(r->want->o, dim), mean = r->of.scores - r->want->lse, by = power_of(r->want);
    const double back = 1 / (by * by);
    struct ha_ref_tile tile;
    struct columns c = { .by = (float)by };
    struct value_sums out = { 0 };
    double lanes = 0, apart = 0;
    for (size_t i = 0; i < dim; i++) c.o[i] = (float)(by * r->want->o[i]);
    for (size_t j = 0; j < r->keys; j += HA_REF_TILE) {
        ha_ref_tile_load(&tile, rows, HA_REF_V, j, dim, dtype);
        for (size_t k = 0; k < ha_ref_smaller(HA_REF_TILE, r->keys - j); k++) {
            const float p = r->p[j + k], tilt = p > 0 ? p * (logf(p) - (float)mean) : 0;
            const double x2 = add(&c, k, tile.data + k * dim, dim, p, tilt) * back, w = (double)p;
            out.values += x2 + o2;
            apart += w * w * x2;
            out.chance += w * w * ((double)r->t2[j + k] * x2 + square(r->b->u_p * (sqrt(x2) + sqrt(o2))));
            const float less = (float)lost(r, w);
            for (size_t i = 0; i < dim && less > 0; i++) c.lost[i] += less * (c.by * tile.data[k * dim + i] - c.o[i]);
            out.chance += square((double)less) * x2;
        }
        out.parts = fmax(out.parts, squares32(c.so_far, dim));
    }
    for (size_t l = 0; l < HA_REF_TILE; l++) lanes += squares32(c.lane[l], dim);
    out.parts = out.parts * back + fmax(lanes * back, apart) / 2;
    out.along = sqrt(squares32(c.along, dim) * back);
    out.lost = sqrt(squares32(c.lost, dim) * back);
    return out;
}

/* From the sums to sizes. */
static struct ha_chance sizes(const struct row *r, const struct value_sums *v)
{
    const struct ha_bound *b = r->b;
    const struct ha_ref_state *want = r->want;
    const struct key_sums *k = &r->of;
    const double u = HA_REF_U, cut = b->one_sign * u, o2 = squares(want->o, r->dim), o = sqrt(o2);
    const double tied = fmax(sqrt(k->tied), k->repeated / (double)r->keys) * b->h_sum * u, alike = sqrt(k->alike);
    const double sums = u * u * (b->h_sum / 3 + 1), rescales = b->rescales * (square(b->exp_eps) + u * u);
    const double of_score = b->kappa_s * u + cut * b->h_dot, n = (double)r->keys;
    return (struct ha_chance){
        .lse_bias = 2 * b->exp_eps + b->log_eps * (fabs(log(want->sum)) + 1e-3) + u * fabs(want->max)
                    + of_score * fabs(k->scores) + u * k->below + cut * b->h_sum + tied + alike * b->u_w + k->lost
                    + b->u_l * fabs(want->lse) + b->eta_l,
        .lse_size = sqrt(k->chance + sums + rescales + u * u * (square(want->max) + square(want->lse))),
        .o_bias = (of_score + u + 2 * b->exp_eps) * v->along + v->lost + (2 * tied + k->lost + alike * b->u_p) * o
                  + cut * b->h_sum * 2 * (o + sqrt(v->parts))
                  + HA_REF_ETA / want->sum * sqrt(n * v->values) /* weights that are flushed */
                  + HA_REF_ETA * (n / want->sum + 1) * sqrt((double)r->dim) /* products, and the quotient */,
        .o_size = sqrt(v->chance + 4 * k->same2 * v->parts + sums * (v->parts + 2 * o2 / 3) + rescales * v->parts
                       + (HA_REF_KAPPA_Q * u * u + square(b->u_o)) * o2 + (double)r->dim * square(b->eta_o)
                       + square(2 * (b->eta_p + b->eta_w) / want->sum) * v->values),
    };
}

/* Of the weights as one vector: what each is off by, and what all are off by together, which is no more than the LSE
 * is. exp may be off by as much for every key. */
static struct ha_chance sizes_of_weights(const struct row *r, const struct ha_chance *of)
{
    const struct key_sums *k = &r->of;
    const double u = HA_REF_U, mean = k->below;
    const double along2 = k->p2_below2 - 2 * mean * k->p2_below + mean * mean * k->p2;
    const double of_score = (r->b->kappa_s + 1) * u + r->b->one_sign * u * r->b->h_dot;
    return (struct ha_chance){
        .o_bias = of_score * sqrt(fmax(along2, 0)) + (2 * r->b->exp_eps + of->lse_bias) * sqrt(k->p2),
        .o_size = sqrt(k->each + (square(of->lse_size) + HA_REF_KAPPA_Q * u * u) * k->p2
                       + (double)r->keys * square(4 * HA_REF_ETA + r->b->eta_w)),
    };
}

static const struct ha_chance unknown = { (double)NAN, (double)NAN, (double)NAN, (double)NAN };

struct ha_chance ha_ref_chance(const float *q, size_t head_dim, double scale, const struct ha_rows *rows,
                               enum ha_dtype dtype, const struct ha_bound *b, const struct ha_ref_state *want,
                               float *work, struct ha_chance *weights)
{
    struct row r = {
        .b = b, .want = want, .dim = head_dim, .keys = want->keys, .scale = scale, .p = work, .t2 = work + want->keys
    };
    if (weights) *weights = unknown;
    if (!(fabs(want->lse) < HUGE_VAL) || b->u_s > 0 || b->u_x > 0 || b->u_g > 0 || b->sum_least > 0) return unknown;
    r.flushed = 4 * (b->eta_p + b->eta_w) * exp(want->max - want->lse);
    score(&r, q, rows, dtype);
    weigh(&r);
    /* where a weight is not known to 2^-10, its first digits are chance */
    if (!((b->h_dot + b->kappa_s) * HA_REF_U * r.of.hardest < 0x1p-10)) return unknown;
    const struct value_sums v = value(&r, rows, dtype);
    const struct ha_chance of = sizes(&r, &v);
    if (weights) *weights = sizes_of_weights(&r, &of);
    return of;
}

/* As the weights of keys whose scores are exact, but for the one rounding of x - max. */
struct ha_chance ha_ref_chance_softmax(const float *x, size_t n, double h, double exp_eps, float *work)
{
    const struct ha_bound b = { .h_sum = h, .kappa_t = HA_REF_KAPPA_T, .exp_eps = exp_eps, .log_eps = exp_eps };
    struct ha_ref_state want = { .max = -HUGE_VAL, .keys = n };
    struct row r = { .b = &b, .want = &want, .keys = n, .p = work, .t2 = work + n };
    for (size_t i = 0; i < n; i++) want.max = fmax(want.max, (double)x[i]);
    for (size_t i = 0; i < n; i++) want.sum += exp((double)x[i] - want.max);
    want.lse = want.max + log(want.sum);
    memcpy(r.p, x, n * sizeof *x);
    memset(r.t2, 0, n * sizeof *r.t2);
    weigh(&r);
    const struct ha_chance lse = sizes(&r, &(struct value_sums){ 0 }), weights = sizes_of_weights(&r, &lse);
    return (struct ha_chance){ lse.lse_bias, lse.lse_size, weights.o_bias, weights.o_size };
}

void ha_ref_dots_add(struct ha_ref_dots *d, double error, double dot, double squares, double h, enum ha_dtype stored,
                     double cut)
{
    const double u = HA_REF_U,
                 rounded = stored == HA_F32 ? 0 : ha_dtype_unit(stored) * fabs(dot) + ha_dtype_eta(stored);
    d->error2 += square(error);
    d->size2 += u * u / 3 * (h * (squares + square(dot)) + 2 * square(dot));
    d->bias2 += square(u * fabs(dot) + rounded + cut * u * h * (fabs(dot) + sqrt(squares)));
}

struct ha_chance ha_ref_chance_dots(const struct ha_ref_dots *d)
{
    return (struct ha_chance){ .o_bias = sqrt(d->bias2), .o_size = sqrt(d->size2) };
}

/* ---- merges ---------------------------------------------------------------------------------------------------- */

/* A merge is few roundings, and many rows may have the same ones: each single one is bias, as large as it can be.
 * Chance is what the difference of two LSEs is rounded by, differently for each state, and the sums. */

enum { ALIKE_FEW = 8 };

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* An addition is off by no more than what is added, nor by more than u of the sum, in units of u. Weights that are
 * alike are rounded alike, wherever they stand, and what each leaves adds up: where many are, to no chance. work:
 * [count]. */
struct additions {
    double squares, alike; /* of chance; what may have one sign */
};
static struct additions additions(const struct ha_ref_state *states, size_t count, double lse, double *work)
{
    size_t n = 0;
    struct additions sum = { 0 };
    for (size_t k = 0; k < count; k++)
        if (states[k].lse > -HUGE_VAL) work[n++] = states[k].lse;
    qsort(work, n, sizeof *work, ascending);
    const double step = 8 * HA_REF_U * (double)n;
    for (size_t i = 0, from = 0, to = 0; i < n; i++) {
        while (work[i] - work[from] > step) from++;
        while (to < n && work[to] - work[i] <= step) to++;
        const double alike = (double)(to - from), most = fmin(exp(work[i] - lse) / HA_REF_U, 1);
        if (alike > ALIKE_FEW || n == 2) sum.alike += most;
        else sum.squares += (alike > 1 ? alike : 1. / 3) * square(most);
    }
    return sum;
}

struct ha_chance ha_ref_chance_merge(const struct ha_chance *of, const struct ha_ref_state *states, size_t count,
                                     const struct ha_merge_bound *b, const struct ha_ref_state *want, double *work)
{
    const double u = HA_REF_U, o = sqrt(squares(want->o, want->dim));
    const bool logs = b->form != HA_FORM_MAX_SUM, direct = b->form == HA_FORM_DIRECT;
    double used = 0, top = -HUGE_VAL, sizes = 0;
    struct ha_chance out = { 0 };
    const struct ha_chance *last = NULL;
    for (size_t k = 0; k < count; k++) {
        if (states[k].lse == -HUGE_VAL) continue;
        top = fmax(top, logs ? states[k].lse : states[k].max);
        sizes += exp(states[k].lse - want->lse) * sqrt(squares(states[k].o, want->dim));
        last = &of[k];
        used++;
    }
    if (!last || !(fabs(want->lse) < HUGE_VAL)) return unknown;
    if (used < 2) return *last;
    /* what has come of a direct merge is no small error of its weights any more */
    if (direct && !(u * fabs(want->lse) < 0x1p-10)) return unknown;
    const double rescales = b->rescales * (used - 1), exp_eps = (1 + rescales) * b->exp_eps;
    const double flush = (1 + b->rescales) * HA_REF_ETA;
    const struct additions add = additions(states, count, want->lse, work);
    const double sums = u * u * (add.squares + (b->depth_extra + rescales + 2) / 3 + 1);
    double lse2 = sums + (logs ? square(u * want->lse) : 0), o2 = sums * square(sizes) + HA_REF_KAPPA_Q * square(u * o);
    double alike = u * add.alike; /* what the sum of the weights is off by, in one direction */
    for (size_t k = 0; k < count; k++) {
        if (states[k].lse == -HUGE_VAL) continue;
        const double p = exp(states[k].lse - want->lse), x = sqrt(squares(states[k].o, want->dim));
        const double below = (direct ? want->lse : top) - (logs ? states[k].lse : states[k].max);
        const double weight = of[k].lse_bias + exp_eps + u * below, t2 = square(of[k].lse_size) + square(u * below);
        double apart = 0;
        for (size_t i = 0; i < want->dim; i++) apart += square(states[k].o[i] - want->o[i]);
        lse2 += p * p * t2;
        o2 += p * p * (square(of[k].o_size) + t2 * apart);
        /* terms that a sum does not take, or not the same part of each */
        alike += p < 4 * u ? fmin(p, u) : 0;
        out.lse_bias += p * weight + flush;
        out.o_bias += p * (of[k].o_bias + weight * sqrt(apart)) + (p * x < 64 * u * sizes ? fmin(p * x, u * sizes) : 0)
                      + flush * (x + 2 * sqrt((double)want->dim));
    }
    /* of (max, sum) the product with the sum; else what is stored */
    out.lse_bias += alike + (logs ? b->log_eps * (fabs(want->lse - top) + 1e-3) + u * fabs(want->lse) : u);
    out.o_bias += u * add.alike * sizes + b->u_o * o + sqrt((double)want->dim) * b->eta_o;
    /* o is divided by the sum of the weights; or no sum divides out what the merged LSE is off by */
    out.o_bias += (direct ? out.lse_bias : alike) * o;
    o2 += (direct ? lse2 : sums) * square(o);
    out.lse_size = sqrt(lse2);
    out.o_size = sqrt(o2);
    return out;
}
