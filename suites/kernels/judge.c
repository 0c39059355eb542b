#include "suites/kernels/judge.h"

#include "harness/base/numeric.h"

#include <float.h>
#include <math.h>

static const double unit = 0x1p-24;

/* NaN is the worst there is */
static double worse(double worst, double error, double bound)
{
    const double ratio = error == 0 ? 0 : error / bound;
    return isnan(ratio) ? (double)INFINITY : ratio > worst ? ratio : worst;
}

double ha_cpu_judge_score(const struct ha_cpu_work *w, size_t u, const float *q, const float *got)
{
    const size_t dim = w->point.head_dim;
    double worst = 0;
    for (size_t i = 0; i < w->point.ctx; i++) {
        const char *k = ha_cpu_unit(w, u) + i * dim * w->elem;
        double sum = 0, size = 0;
        for (size_t d = 0; d < dim; d++) {
            const double x = (double)q[d] * (double)ha_load(k, d, w->dtype);
            sum += x;
            size += fabs(x);
        }
        worst = worse(worst, fabs((double)got[i] - sum * (double)w->scale),
                      ((double)dim + 2) * unit * size * (double)w->scale + (double)FLT_MIN);
    }
    return worst;
}

/* index of dimension d of block b; which: 0 the smallest, 1 the largest */
static size_t digest_at(size_t dim, size_t b, size_t d, size_t which)
{
    return ((b / HA_PACK_KEYS * dim + d) * 2 + which) * HA_PACK_KEYS + b % HA_PACK_KEYS;
}

double ha_cpu_judge_digest(const struct ha_cpu_work *w, size_t u,
                           void (*key)(const struct ha_cpu_work *w, const char *kv, size_t i, float *row),
                           const void *got)
{
    const size_t keys = w->point.ctx, dim = w->point.head_dim, block = w->point.block;
    const char *kv = ha_cpu_unit(w, u);
    float row[HA_CPU_DIM_MOST], least[HA_CPU_DIM_MOST], most[HA_CPU_DIM_MOST];
    bool same = true;
    for (size_t first = 0; same && first < keys; first += block) {
        for (size_t i = first; i < first + block && i < keys; i++) {
            key(w, kv, i, row);
            for (size_t d = 0; d < dim; d++) {
                least[d] = i == first || row[d] < least[d] ? row[d] : least[d];
                most[d] = i == first || row[d] > most[d] ? row[d] : most[d];
            }
        }
        for (size_t d = 0; d < dim; d++)
            same = same && ha_load(got, digest_at(dim, first / block, d, 0), w->dtype) == least[d]
                   && ha_load(got, digest_at(dim, first / block, d, 1), w->dtype) == most[d];
    }
    return same ? 0 : (double)INFINITY;
}

double ha_cpu_judge_digest_score(const struct ha_cpu_work *w, const float *q, const void *digests, const float *got)
{
    const size_t dim = w->point.head_dim;
    double worst = 0;
    for (size_t b = 0; b < w->blocks; b++) {
        double sum = 0, size = 0;
        for (size_t d = 0; d < dim; d++) {
            const double x = (double)q[d] * (double)ha_load(digests, digest_at(dim, b, d, 0), w->dtype);
            const double y = (double)q[d] * (double)ha_load(digests, digest_at(dim, b, d, 1), w->dtype);
            sum += x > y ? x : y;
            size += fabs(x) > fabs(y) ? fabs(x) : fabs(y);
        }
        /* an addition of two terms a dimension, one of them 0, costs no more than this */
        worst = worse(worst, fabs((double)got[b] - sum * (double)w->scale),
                      (2 * (double)dim + 2) * unit * size * (double)w->scale + (double)FLT_MIN);
    }
    return worst;
}

static bool before(const float *x, size_t a, size_t b) { return x[a] > x[b] || (x[a] == x[b] && a < b); }

double ha_cpu_judge_topk(const float *x, size_t n, size_t k, const uint32_t *got)
{
    const size_t chosen = k < n ? k : n;
    bool same = true;
    size_t last = 0; /* of those that are chosen, in the order of choice */
    for (size_t i = 0; same && i < chosen; i++) {
        same = got[i] < n && (i == 0 || got[i] > got[i - 1]);
        if (same && (i == 0 || before(x, last, got[i]))) last = got[i];
    }
    for (size_t j = 0, i = 0; same && chosen && j < n; j++)
        if (i < chosen && got[i] == j) i++;
        else same = before(x, last, j);
    return same ? 0 : (double)INFINITY;
}

/* A weight: the sum of n terms on its longest path, an exp and its argument, whose rounding grows with it. */
double ha_cpu_judge_softmax(const float *x, size_t n, const struct ha_profile *p, const float *got, float lse)
{
    double most = (double)-INFINITY, sum = 0, worst = 0;
    for (size_t i = 0; i < n; i++) most = (double)x[i] > most ? (double)x[i] : most;
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - most);
    const double want = most + log(sum), path = ceil((double)n / (double)p->sum_lanes) + (double)p->sum_extra;
    for (size_t i = 0; i < n; i++) {
        const double w = exp((double)x[i] - want),
                     share = (path + 4 + 4 * fabs((double)x[i] - most)) * unit + 3 * p->exp_eps + p->log_eps;
        worst = worse(worst, fabs((double)got[i] - w), w * share + (double)FLT_MIN);
    }
    return worse(worst, fabs((double)lse - want),
                 path * unit + p->exp_eps + p->log_eps * fabs(log(sum)) + 2 * unit * (fabs(most) + fabs(want)));
}
