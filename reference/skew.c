/* Whether a basis is that of the right singular vectors of the observed queries, and which columns it keeps. */

#include "reference/definitions.h"
#include "reference/rows.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

/* What a decomposition in binary64 that is backward stable is off by, for each length of a sum. */
#define STEP 0x1p-48

enum ha_status ha_def_skew_observe(struct ha_def_skew *s, const struct ha_shape *shape, const struct ha_def_head *h,
                                   struct ha_why *why)
{
    const size_t dim = shape->head_dim;
    float *q = realloc(s->q, (s->queries + h->queries) * dim * sizeof *q + 1);
    if (!q) return ha_why(why, HA_ERROR, "%s: no memory for %zu observed queries", h->variant, h->queries);
    s->q = q;
    for (size_t t = 0; t < h->queries; t++)
        memcpy(q + s->queries++ * dim, h->q + t * shape->q_heads * dim, dim * sizeof *q);
    return HA_OK;
}

void ha_def_skew_end(struct ha_def_skew *s)
{
    free(s->q);
    free(s->learnt);
    free(s->sum);
    *s = (struct ha_def_skew){ .q = NULL };
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static enum ha_status judge_orthonormal(const struct ha_def_head *h, const double *a, size_t dim, struct ha_why *why)
{
    for (size_t i = 0; i < dim; i++)
        for (size_t j = 0; j <= i; j++) {
            const double got = dot(a + i * dim, a + j * dim, dim), want = i == j;
            if (!(fabs(got - want) <= (double)dim * STEP))
                return ha_def_wrong(h, why, "the learnt basis is not orthonormal: row %zu times row %zu is %.9g", i, j,
                                    got);
        }
    return HA_OK;
}

/* Of queries off by E as a whole, the turned ones have columns whose products are at most |E| (|w_i| + |w_j| + |E|). */
static enum ha_status judge_singular(const struct ha_def_skew *s, const struct ha_def_head *h, const double *a,
                                     size_t dim, struct ha_why *why)
{
    const size_t n = s->queries;
    double *w = malloc(dim * n * sizeof *w + 1), size = 0;
    enum ha_status status = HA_OK;
    if (!w) return ha_why(why, HA_ERROR, "%s: no memory for %zu observed queries, turned", h->variant, n);
    for (size_t i = 0; i < dim; i++)
        for (size_t t = 0; t < n; t++) {
            double sum = 0;
            for (size_t d = 0; d < dim; d++) sum += a[i * dim + d] * (double)s->q[t * dim + d];
            w[i * n + t] = sum;
            size += sum * sum;
        }
    const double off = (double)(dim + n) * STEP * sqrt(size);
    for (size_t i = 0; i < dim && status == HA_OK; i++)
        for (size_t j = 0; j < i && status == HA_OK; j++) {
            const double x = sqrt(dot(w + i * n, w + i * n, n)), y = sqrt(dot(w + j * n, w + j * n, n)),
                         got = dot(w + i * n, w + j * n, n);
            if (!(fabs(got) <= off * (x + y + off)))
                status = ha_def_wrong(h, why,
                                      "the learnt basis is not that of the observed queries: their columns %zu and %zu "
                                      "are not orthogonal, but %.9g of %.9g",
                                      i, j, got, x * y);
        }
    free(w);
    return status;
}

static void add_magnitudes(struct ha_def_skew *s, const double *x, size_t dim)
{
    for (size_t c = 0; c < dim; c++) {
        double sum = 0, size = 0;
        for (size_t d = 0; d < dim; d++) {
            const double term = (double)(float)s->learnt[c * dim + d] * x[d];
            sum += term;
            size += fabs(term);
        }
        s->sum[c] += fabs(sum);
        s->off[c] += ha_ref_gamma((double)dim + 4) * size + HA_REF_ETA;
    }
}

static enum ha_status judge_columns(const struct ha_def_skew *s, const struct ha_def_head *h, size_t dim,
                                    size_t columns, struct ha_why *why)
{
    const double *kept = s->learnt + dim * dim;
    size_t weakest = 0, strongest = 0, next = 0;
    double least = HUGE_VAL, left = -HUGE_VAL;
    for (size_t c = 0; c < dim; c++) {
        const bool is = next < columns && (size_t)kept[next] == c;
        next += is;
        if (is && s->sum[c] + s->off[c] <= least) least = s->sum[c] + s->off[c], weakest = c;
        if (!is && s->sum[c] - s->off[c] > left) left = s->sum[c] - s->off[c], strongest = c;
    }
    if (!(least >= left))
        return ha_def_wrong(h, why, "column %zu (magnitude %.9g) is kept, column %zu (%.9g) is not", weakest,
                            s->sum[weakest], strongest, s->sum[strongest]);
    return HA_OK;
}

/* What can be said of it before the keys are known; adopted then. */
static enum ha_status judge_basis(struct ha_def_skew *s, const struct ha_shape *shape, const struct ha_def_head *h,
                                  size_t columns, struct ha_why *why)
{
    const size_t dim = shape->head_dim, all = dim * dim + columns;
    const double *a = h->chosen->learnt;
    for (size_t i = 0; i < columns; i++)
        if (!(a[dim * dim + i] >= 0 && a[dim * dim + i] < (double)dim && floor(a[dim * dim + i]) == a[dim * dim + i])
            || (i > 0 && !(a[dim * dim + i] > a[dim * dim + i - 1])))
            return ha_def_wrong(h, why, "column %zu of those that are kept is %.9g, of %zu, rising", i,
                                a[dim * dim + i], dim);
    for (size_t i = 0; i < dim * dim && s->queries == 0; i++)
        if (a[i] != (double)(i / dim == i % dim))
            return ha_def_wrong(h, why, "no query was observed, and the learnt basis is not the identity");
    HA_TRY(judge_orthonormal(h, a, dim, why));
    HA_TRY(judge_singular(s, h, a, dim, why));
    s->learnt = malloc(all * sizeof *s->learnt);
    s->sum = calloc(2 * dim, sizeof *s->sum);
    if (!s->learnt || !s->sum) return ha_why(why, HA_ERROR, "%s: no memory for what was learnt", h->variant);
    s->off = s->sum + dim;
    memcpy(s->learnt, a, all * sizeof *s->learnt);
    double x[HA_REF_DIM_MAX];
    for (size_t t = 0; t < s->queries; t++) {
        for (size_t d = 0; d < dim; d++) x[d] = (double)s->q[t * dim + d];
        add_magnitudes(s, x, dim);
    }
    return HA_OK;
}

enum ha_status ha_def_skew_judge(struct ha_def_skew *s, const struct ha_shape *shape, const struct ha_def_head *h,
                                 size_t columns, struct ha_why *why)
{
    const size_t dim = shape->head_dim, all = dim * dim + columns;
    double x[HA_REF_DIM_MAX];
    if (h->chosen->learnt_count != all || !h->chosen->learnt)
        return ha_def_wrong(h, why, "%zu numbers were learnt, a basis and %zu columns of it are %zu",
                            h->chosen->learnt_count, columns, all);
    if (!s->learnt) HA_TRY(judge_basis(s, shape, h, columns, why));
    if (memcmp(s->learnt, h->chosen->learnt, all * sizeof *s->learnt))
        return ha_def_wrong(h, why, "what was learnt is not what it was before");
    if (s->seqs != h->seq) return HA_OK;
    for (size_t j = 0; j < shape->ctx[h->seq]; j++) {
        for (size_t d = 0; d < dim; d++) x[d] = (double)ha_load(h->k, j * dim + d, shape->dtype);
        add_magnitudes(s, x, dim);
    }
    return ++s->seqs == shape->batch ? judge_columns(s, h, dim, columns, why) : HA_OK;
}
