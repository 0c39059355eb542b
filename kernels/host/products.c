/* Products by a BLAS of the system (harness/base/blas.h), and attention made of them: scores, softmax, weighted values.
 * A BLAS knows binary32: what is stored in 16 bits is converted before, some rows at a time. */

#include "kernels/host/host.h"

#include "harness/base/blas.h"
#include "harness/base/numeric.h"
#include "harness/base/seq_attend.h"
#include "harness/base/why.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NULL, or why there is no library to multiply with. */
static const char *missing(void) { return ha_blas()->sgemm ? NULL : ha_blas()->no_blas; }

const char *ha_host_products_absent(void) { return ha_blas_absent(); }

/* c [m][n] = a [m][k] b [k][n], or b [n][k] transposed; add: c +=. A BLAS that is given a stride of 0 ends the process.
 */
static void multiply(const float *a, size_t lda, const float *b, size_t ldb, bool transposed, float *c, size_t ldc,
                     size_t m, size_t n, size_t k, bool add)
{
    ha_blas()->sgemm(HA_CBLAS_ROWS, HA_CBLAS_AS_IS, transposed ? HA_CBLAS_TRANSPOSED : HA_CBLAS_AS_IS, (int)m, (int)n,
                     (int)k, 1.0f, a, (int)(lda ? lda : 1), b, (int)(ldb ? ldb : 1), add ? 1.0f : 0.0f, c, (int)ldc);
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* ---- y = x w^T */

enum { PRODUCT_ROWS = 256, PRODUCT_COLUMNS = 256 };

static void load_rows(const void *from, size_t first, size_t rows, size_t cols, enum ha_dtype dtype, float *out)
{
    ha_load_row((const char *)from + first * cols * ha_dtype_bytes(dtype), rows * cols, dtype, out);
}

static void run_product(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_product *p = &op->u.product;
    if (p->dtype == HA_F32) {
        multiply(p->x, p->k, p->w, p->k, true, p->y, p->n, p->m, p->n, p->k, false);
        return;
    }
    float *x = op->scratch, *w = x + smaller(p->m, PRODUCT_ROWS) * p->k, *y = w + smaller(p->n, PRODUCT_COLUMNS) * p->k;
    for (size_t i = 0; i < p->m; i += PRODUCT_ROWS) {
        const size_t rows = smaller(p->m - i, PRODUCT_ROWS);
        load_rows(p->x, i, rows, p->k, p->dtype, x);
        for (size_t j = 0; j < p->n; j += PRODUCT_COLUMNS) {
            const size_t cols = smaller(p->n - j, PRODUCT_COLUMNS);
            load_rows(p->w, j, cols, p->k, p->dtype, w);
            multiply(x, p->k, w, p->k, true, y, cols, rows, cols, p->k, false);
            for (size_t r = 0; r < rows; r++)
                ha_store_row((char *)p->y + ((i + r) * p->n + j) * ha_dtype_bytes(p->dtype), cols, p->dtype,
                             y + r * cols);
        }
    }
}

enum ha_status ha_host_product(struct ha_stream *s, const struct ha_device_product *args)
{
    static const struct ha_host_verb verb = { .name = "product", .kind = HA_SPAN_KERNEL, .run = run_product };
    const size_t rows = smaller(args->m, PRODUCT_ROWS), cols = smaller(args->n, PRODUCT_COLUMNS),
                 bytes = ha_dtype_bytes(args->dtype);
    struct ha_host_op op = { .verb = &verb, .u.product = *args };
    if (missing()) return ha_host_fail(s->device, "product on %s: %s", s->lane, missing());
    if (args->m > INT_MAX || args->n > INT_MAX || args->k > INT_MAX)
        return ha_host_fail(s->device, "product on %s: %zu x %zu x %zu is beyond a BLAS of 32-bit integers", s->lane,
                            args->m, args->n, args->k);
    if (!ha_host_operand(s, verb.name, "x", args->x, args->m * args->k * bytes, HA_AT_DEVICE)
        || !ha_host_operand(s, verb.name, "w", args->w, args->n * args->k * bytes, HA_AT_DEVICE)
        || !ha_host_operand(s, verb.name, "y", args->y, args->m * args->n * bytes, HA_AT_DEVICE))
        return HA_ERROR;
    if (args->m == 0 || args->n == 0) return HA_OK;
    if (args->dtype != HA_F32) op.scratch_bytes = sizeof(float) * ((rows + cols) * args->k + rows * cols);
    return ha_host_enqueue(s, &op);
}

/* ---- attention */

enum { BLOCK_KEYS = 1024 }; /* converted at a time */
/* kept at a time, where one row is not more */
#ifndef HA_HOST_SCORES
#define HA_HOST_SCORES ((size_t)4 << 20)
#endif

/* Of one sequence: how its query rows (t, g) are cut, and what of the scratch is what. */
struct plan {
    size_t keys, rows, group; /* rows: at a time */
    float *q, *score, *acc, *converted, *sum, *max;
    size_t floats;
};

static struct plan plan_of(const struct ha_device_attend *a, const struct ha_device_seq *seq, float *scratch)
{
    struct plan p = { .group = a->q_heads / a->kv_heads };
    for (size_t r = 0; r < seq->runs_count; r++) p.keys += seq->runs[r].keys;
    p.rows = smaller(a->q_len * p.group, p.keys && HA_HOST_SCORES / p.keys ? HA_HOST_SCORES / p.keys : 1);
    const struct {
        float **at;
        size_t floats;
    } parts[] = {
        { &p.q, p.rows * a->head_dim },
        { &p.score, p.rows * p.keys },
        { &p.acc, p.rows * a->head_dim },
        { &p.converted, BLOCK_KEYS * a->head_dim },
        { &p.sum, p.rows },
        { &p.max, p.rows },
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].at = scratch ? scratch + p.floats : NULL;
        p.floats += parts[i].floats;
    }
    return p;
}

/* scaled scores become exp(s - max), 0 where not visible, or where all are -inf */
static void softmax(float *s, size_t visible, size_t keys, float scale, float *max_out, float *sum_out)
{
    float max = -INFINITY, sum = 0;
    for (size_t j = 0; j < visible; j++) {
        s[j] *= scale;
        max = fmaxf(max, s[j]);
    }
    for (size_t j = 0; j < visible; j++) {
        s[j] = max == -INFINITY && s[j] == -INFINITY ? 0 : expf(s[j] - max);
        sum += s[j];
    }
    for (size_t j = visible; j < keys; j++) s[j] = 0;
    *max_out = max;
    *sum_out = sum;
}

/* The scores of `rows` query rows of one KV head become the products with K, or with `values` the accumulators those of
 * the scores, weights by now, with V: some keys at a time, as floats. */
static void multiply_keys(const struct ha_device_attend *a, const struct ha_device_seq *seq, size_t head, size_t rows,
                          const struct plan *p, bool values)
{
    const size_t dim = a->head_dim;
    float *score = p->score;
    for (size_t r = 0; r < seq->runs_count; r++) {
        const struct ha_rows *run = &seq->runs[r];
        const char *from = values ? (const char *)run->v + head * seq->v_head_bytes
                                  : (const char *)run->k + head * seq->k_head_bytes;
        const size_t stride = values ? run->v_stride_bytes : run->k_stride_bytes;
        for (size_t j = 0; j < run->keys; j += BLOCK_KEYS) {
            const size_t keys = smaller(run->keys - j, BLOCK_KEYS);
            for (size_t i = 0; i < keys; i++)
                ha_load_row(from + (j + i) * stride, dim, a->dtype, p->converted + i * dim);
            if (values) multiply(score, p->keys, p->converted, dim, false, p->acc, dim, rows, dim, keys, true);
            else multiply(p->q, dim, p->converted, dim, true, score, p->keys, rows, keys, dim, false);
            score += keys;
        }
    }
}

/* Query rows [first, first + rows) of one KV head. */
static void attend_rows(const struct ha_device_attend *a, const struct ha_device_seq *seq, size_t head, size_t first,
                        size_t rows, const struct plan *p)
{
    const size_t dim = a->head_dim;
    for (size_t i = 0; i < rows; i++) {
        const size_t t = (first + i) / p->group, h = head * p->group + (first + i) % p->group;
        memcpy(p->q + i * dim, seq->q + t * ha_seq_token_stride(a) + h * ha_seq_head_stride(a), dim * sizeof(float));
    }
    multiply_keys(a, seq, head, rows, p, false);
    for (size_t i = 0; i < rows; i++) {
        const size_t after = a->causal ? a->q_len - 1 - (first + i) / p->group : 0;
        softmax(p->score + i * p->keys, p->keys - after, p->keys, a->scale, &p->max[i], &p->sum[i]);
    }
    memset(p->acc, 0, rows * dim * sizeof(float));
    multiply_keys(a, seq, head, rows, p, true);
    for (size_t i = 0; i < rows; i++) {
        const size_t t = (first + i) / p->group, h = head * p->group + (first + i) % p->group;
        const bool empty = p->sum[i] == 0;
        float *o = seq->o + t * ha_seq_token_stride(a) + h * ha_seq_head_stride(a);
        for (size_t d = 0; d < dim; d++) o[d] = empty ? 0 : p->acc[i * dim + d] / p->sum[i];
        seq->lse[t * a->q_heads + h] = empty ? -INFINITY : p->max[i] + logf(p->sum[i]);
    }
}

static void run_attend(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_attend *a = &op->u.attend;
    const struct ha_device_seq *seqs = op->array;
    for (size_t b = 0; b < a->batch; b++) {
        const struct plan p = plan_of(a, &seqs[b], op->scratch);
        const size_t rows = a->q_len * p.group;
        for (size_t head = 0; head < a->kv_heads; head++)
            for (size_t first = 0; first < rows; first += p.rows)
                attend_rows(a, &seqs[b], head, first, smaller(rows - first, p.rows), &p);
    }
}

enum ha_status ha_host_attend_products(struct ha_stream *s, const struct ha_device_attend *args)
{
    static const struct ha_host_verb verb = { .name = "attend_products", .kind = HA_SPAN_KERNEL, .run = run_attend };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.attend = *args
    };
    if (missing()) return ha_host_fail(s->device, "attend_products on %s: %s", s->lane, missing());
    if (args->lists) return ha_host_fail(s->device, "attend_products on %s: takes no lists", s->lane);
    HA_TRY(ha_host_attend_fits(s, &op, args));
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_seq *seq = &args->seqs[b];
        if (seq->weights) return ha_host_fail(s->device, "attend_products on %s: gives no weights", s->lane);
        for (size_t r = 0; r < seq->runs_count; r++)
            if (seq->runs[r].index)
                return ha_host_fail(s->device,
                                    "attend_products on %s: run %zu has an index, and a product reads rows "
                                    "in order",
                                    s->lane, r);
        const struct plan p = plan_of(args, seq, NULL);
        if (p.keys > INT_MAX)
            return ha_host_fail(s->device, "attend_products on %s: %zu keys are beyond a BLAS of 32-bit integers",
                                s->lane, p.keys);
        if (sizeof(float) * p.floats > op.scratch_bytes) op.scratch_bytes = sizeof(float) * p.floats;
    }
    return ha_host_enqueue(s, &op);
}

struct ha_profile ha_host_products_profile(void)
{
    /* Whatever the library's blocks: no sum is longer than its terms one after the other, and a block's sum is added to
     * what came before. expf and logf of a C library are within 1 ulp. */
    return (struct ha_profile){ .dot_lanes = 1,
                                .dot_extra = 1,
                                .sum_lanes = 1,
                                .sum_extra = 1,
                                .exp_eps = 0x1p-23,
                                .log_eps = 0x1p-23,
                                .join_keys = UINT_MAX };
}
