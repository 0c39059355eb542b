/* What computes: within the bound that follows from what the device claims of itself, and nothing is written beside the
 * results. */

#include "suites/device/stage.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- blend ------------------------------------------------------------------------------------------------------- */

struct blend {
    size_t rows, cols, y_gap, x_gap;
    float a, b, scale; /* scale: of the numbers */
};
static const struct blend blends[] = {
    { 1, 1, 0, 0, 0.5f, 0.25f, 1 },
    { 4, 7, 2, 1, 0, 2, 1 },
    { 4, 7, 2, 1, 0.5f, -3, 1 },
    { 4, 8, 0, 0, 1, 1, 1 },
    { 33, 64, 0, 64, 0.999f, 0.001f, 1 },
    { 129, 65, 7, 0, 1 / 3.0f, 2 / 3.0f, 1 },
    { 3, 1000, 24, 3, -1.5f, 0, 1 },
    { 1, 4099, 0, 0, 0.75f, 0.125f, 1e6f },
    { 5, 128, 0, 4, 0.1f, 0.9f, 1e-6f },
    { 1000, 3, 1, 2, 1e3f, 1e-3f, 1e9f },
    { 70000, 2, 0, 1, 0.3f, 0.7f, 1 },
    { 0, 9, 0, 0, 1, 1, 1 },
    { 9, 0, 3, 3, 1, 1, 1 },
    { 16, 80, 0, 0, 1, -1, 70000 },
    { 2, 150001, 3, 0, 0.2f, -0.8f, 1 },
    { 64, 96, 32, 32, 0, 1, 1e-30f },
};

/* to, from: numbers from an aligned address */
static enum ha_status blend_once(struct ha_op_stage *s, const struct blend *b, const enum ha_op_place place[2],
                                 size_t to, size_t from)
{
    const size_t y_stride = b->cols + b->y_gap, x_stride = b->cols + b->x_gap, n = to + b->rows * y_stride;
    ha_op_clear(s);
    struct ha_op_block *y = ha_op_block(s, place[0], (n + 16) * sizeof(float)),
                       *x = y ? ha_op_block(s, place[1], (from + b->rows * x_stride + 1) * sizeof(float)) : NULL;
    float *before = x ? malloc((n + 16) * sizeof *before) : NULL;
    if (!before) return x ? ha_why(s->why, HA_ERROR, "out of memory") : HA_ERROR;
    float *const all = (float *)(void *)y->image, *const yi = all + to, *const xi = (float *)(void *)x->image + from;
    memset(y->image, 0xFF, y->bytes); /* NaN, which a = 0 must not read */
    memset(x->image, 0xFF, x->bytes);
    for (size_t r = 0; r < b->rows; r++) {
        if (b->a != 0) ha_op_numbers(s, yi + r * y_stride, b->cols, HA_F32);
        ha_op_numbers(s, xi + r * x_stride, b->cols, HA_F32);
        for (size_t c = 0; c < b->cols; c++) {
            if (b->a != 0) yi[r * y_stride + c] *= b->scale;
            xi[r * x_stride + c] *= b->scale;
        }
    }
    memcpy(before, all, (n + 16) * sizeof *before);
    struct ha_device_blend args = { (float *)(void *)y->at + to,
                                    (const float *)(const void *)x->at + from,
                                    b->rows,
                                    b->cols,
                                    y_stride,
                                    x_stride,
                                    b->a,
                                    b->b };
    enum ha_status status = ha_op_put(s, y, 0, y->bytes);
    if (status == HA_OK) status = ha_op_put(s, x, 0, x->bytes);
    if (status == HA_OK) status = ha_op_shut(s, s->stream[0]);
    if (status == HA_OK) status = ha_op_failed(s, "blend", s->api->blend(s->stream[0], &args));
    memset(&args, 0, sizeof args);
    ha_op_open(s);
    if (status == HA_OK) status = ha_op_failed(s, "stream_sync", s->api->stream_sync(s->stream[0]));
    if (status == HA_OK) status = ha_op_get(s, y, 0, y->bytes, y->image);
    for (size_t r = 0; status == HA_OK && r < b->rows; r++)
        for (size_t c = 0; status == HA_OK && c < b->cols; c++) {
            float *const got = &yi[r * y_stride + c], old = before[to + r * y_stride + c];
            const double ay = b->a != 0 ? (double)b->a * (double)old : 0,
                         bx = (double)b->b * (double)xi[r * x_stride + c];
            const double bound = 0x1p-24 * (1 + 0x1p-20) * (2 * fabs(ay) + 2 * fabs(bx)) + 3 * 0x1p-126;
            if (!(fabs((double)*got - (ay + bx)) <= bound))
                status = ha_op_wrong(s,
                                     "blend of %zu rows of %zu, a = %g, b = %g: row %zu column %zu is %.9g, want %.9g, "
                                     "bound %.3g",
                                     b->rows, b->cols, (double)b->a, (double)b->b, r, c, (double)*got, ay + bx, bound);
            *got = old;
        }
    s->cases++;
    if (status == HA_OK && memcmp(before, all, y->bytes) != 0)
        status = ha_op_wrong(s, "blend of %zu rows of %zu, %zu apart: what is beside the rows changed", b->rows,
                             b->cols, y_stride);
    free(before);
    return status;
}

static enum ha_status judge_blend(struct ha_op_stage *s)
{
    static const enum ha_op_place places[][2] = { { HA_OP_DEVICE, HA_OP_DEVICE },
                                                  { HA_OP_DEVICE, HA_OP_MAPPED },
                                                  { HA_OP_MAPPED, HA_OP_DEVICE } };
    for (size_t i = 0; i < sizeof blends / sizeof *blends; i++)
        if (blends[i].rows * blends[i].cols * sizeof(float) <= s->most)
            for (size_t p = 0; p < 3; p++) HA_TRY(blend_once(s, &blends[i], places[p], 0, 0));
    return HA_OK;
}

static enum ha_status blend_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    const struct blend b = { c->rows, c->width, c->dst_gap, c->src_gap, (float)c->a, (float)c->b, 1 };
    return blend_once(s, &b, (enum ha_op_place[]){ (enum ha_op_place)c->dst, (enum ha_op_place)c->src }, c->dst_at / 4,
                      c->src_at / 4);
}
const struct ha_op ha_op_blend = {
    .name = "blend",
    .doc = "y = a y + b x in binary32, at strides",
    .needs = { HA_OP_ENTRY(blend) },
    .judge = judge_blend,
    .keys = "dst src dst_at src_at rows width dst_gap src_gap a b",
    .once = blend_case,
    .unfit = ha_op_unfit_kernel,
};

/* ---- product ----------------------------------------------------------------------------------------------------- */

enum ha_status ha_op_no_products(struct ha_op_stage *s)
{
    struct ha_device_info info;
    memset(&info, 0, sizeof info);
    s->api->info(s->device, &info);
    info.no_products[sizeof info.no_products - 1] = 0;
    return *info.no_products ? ha_why(s->why, HA_WAIVED, "%s", info.no_products) : HA_OK;
}

static enum ha_status product_once(struct ha_op_stage *s, const size_t mnk[3], enum ha_dtype dtype)
{
    struct ha_device_info info;
    memset(&info, 0, sizeof info);
    s->api->info(s->device, &info);
    const bool truncates = info.products[dtype].truncates; /* the library's attention is made of such products */
    enum { GUARD = 64 };
    const size_t m = mnk[0], n = mnk[1], k = mnk[2], e = ha_dtype_bytes(dtype);
    ha_op_clear(s);
    struct ha_op_block *y = ha_op_block(s, HA_OP_DEVICE, m * n * e + GUARD),
                       *x = y ? ha_op_block(s, HA_OP_DEVICE, m * k * e) : NULL,
                       *w = x ? ha_op_block(s, HA_OP_DEVICE, n * k * e) : NULL;
    if (!w) return HA_ERROR;
    ha_op_numbers(s, x->image, m * k, dtype);
    ha_op_numbers(s, w->image, n * k, dtype);
    HA_TRY(ha_op_put(s, x, 0, x->bytes));
    HA_TRY(ha_op_put(s, w, 0, w->bytes));
    HA_TRY(ha_op_fill(s, y, 0, y->bytes));
    HA_OP(s, product, s->stream[0], &(struct ha_device_product){ y->at, x->at, w->at, m, n, k, dtype });
    HA_OP(s, stream_sync, s->stream[0]);
    HA_TRY(ha_op_get(s, y, 0, m * n * e, y->image));
    const double unit = ha_dtype_unit(dtype) + 2 * (double)(k + 1) * 0x1p-24;
    struct ha_chances held = { 0 };
    for (size_t r = 0; r < m; r++) {
        struct ha_ref_dots dots = { 0 };
        for (size_t c = 0; c < n; c++) {
            double want = 0, size = 0, squares = 0;
            for (size_t l = 0; l < k; l++) {
                const double term = (double)ha_load(x->image, r * k + l, dtype)
                                    * (double)ha_load(w->image, c * k + l, dtype);
                want += term;
                size += fabs(term);
                squares += term * term;
            }
            const double got = (double)ha_load(y->image, r * n + c, dtype), bound = unit * size + ha_dtype_eta(dtype);
            if (!(fabs(got - want) <= bound))
                return ha_op_wrong(s, "product %zu x %zu x %zu of %s: (%zu, %zu) is %.9g, want %.9g, bound %.3g", m, n,
                                   k, ha_dtype_name(dtype), r, c, got, want, bound);
            ha_ref_dots_add(&dots, got - want, want, squares, (double)k, ha_dtype_unit(dtype), truncates ? 1 : 0);
        }
        const struct ha_chance of = ha_ref_chance_dots(&dots);
        ha_chances_add(&held, 0, sqrt(dots.error2), &of);
    }
    ha_suspect_add(&s->suspect, &held, "product %zu x %zu x %zu of %s", m, n, k, ha_dtype_name(dtype));
    return ha_op_judge(s, y, m * n * e, GUARD, "product %zu x %zu x %zu of %s, behind it", m, n, k,
                       ha_dtype_name(dtype));
}

static enum ha_status judge_product(struct ha_op_stage *s)
{
    static const size_t mnk[][3] = { { 1, 1, 1 },    { 1, 8, 64 },    { 3, 5, 7 },     { 16, 16, 16 },
                                     { 17, 33, 65 }, { 64, 128, 96 }, { 1, 300, 512 }, { 70, 70, 1030 } };
    HA_TRY(ha_op_no_products(s));
    for (size_t i = 0; i < sizeof mnk / sizeof *mnk; i++)
        for (size_t t = 0; t < HA_DTYPE_COUNT; t++) HA_TRY(product_once(s, mnk[i], (enum ha_dtype)t));
    return HA_OK;
}

static enum ha_status product_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    HA_TRY(ha_op_no_products(s));
    return product_once(s, (size_t[]){ c->m, c->n, c->k }, (enum ha_dtype)c->dtype);
}
const struct ha_op ha_op_product = {
    .name = "product",
    .doc = "x w^T, with sums in binary32",
    .needs = { HA_OP_ENTRY(product) },
    .judge = judge_product,
    .keys = "dtype m n k",
    .once = product_case,
};

/* ---- merge ------------------------------------------------------------------------------------------------------- */

/* States of dense rows; forms, strides and places are the lse_merge suite's. */
static enum ha_status merge_once(struct ha_op_stage *s, const struct ha_merge_traits *traits, size_t states,
                                 size_t rows, size_t dim, enum ha_dtype dtype)
{
    enum { GUARD = 64, STATES = 4096, DIM = 256, HELD = 32 }; /* HELD: rows against chance */
    const size_t e = ha_dtype_bytes(dtype), o_bytes = (rows * dim * e + 63) / 64 * 64,
                 bytes = o_bytes + (rows * sizeof(float) + 63) / 64 * 64;
    static struct ha_merge_state state[STATES];
    ha_op_clear(s);
    struct ha_op_block *in = ha_op_block(s, HA_OP_DEVICE, states * bytes),
                       *out = in ? ha_op_block(s, HA_OP_DEVICE, bytes + GUARD) : NULL;
    if (!out) return HA_ERROR;
    for (size_t i = 0; i < states; i++) {
        ha_op_numbers(s, in->image + i * bytes, rows * dim, dtype);
        ha_op_numbers(s, in->image + i * bytes + o_bytes, rows, HA_F32);
        float *lse = (float *)(void *)(in->image + i * bytes + o_bytes);
        for (size_t r = 0; r < rows; r++) lse[r] = r % 7 == 3 && i % 2 ? -INFINITY : 20 * lse[r];
        state[i] = (struct ha_merge_state){
            in->at + i * bytes, (float *)(void *)(in->at + i * bytes + o_bytes), NULL, dim, dim, 1, 1
        };
    }
    struct ha_merge m = { .form = HA_FORM_NATURAL,
                          .dtype = dtype,
                          .states = state,
                          .states_count = states,
                          .tokens = rows,
                          .heads = 1,
                          .dim = dim,
                          .out = state[0] };
    m.out.o = out->at;
    m.out.lse = (float *)(void *)(out->at + o_bytes);
    HA_TRY(ha_op_put(s, in, 0, in->bytes));
    HA_TRY(ha_op_fill(s, out, 0, out->bytes));
    HA_TRY(ha_op_shut(s, s->stream[0]));
    HA_OP(s, merge, s->stream[0], &m);
    memset(state, 0, states * sizeof *state);
    memset(&m, 0, sizeof m);
    ha_op_open(s);
    HA_OP(s, stream_sync, s->stream[0]);
    HA_TRY(ha_op_get(s, out, 0, rows * dim * e, out->image));
    HA_TRY(ha_op_get(s, out, o_bytes, rows * sizeof(float), out->image + o_bytes));
    const struct ha_merge_bound bound = ha_bound_merge(traits, HA_FORM_NATURAL, dtype);
    static double nothing[DIM], o[DIM], b[DIM];
    static struct ha_ref_state ref[STATES];
    static double work[STATES];
    static const struct ha_chance given[STATES];
    struct ha_chances held = { 0 };
    float got[DIM], lse;
    enum ha_status judged = HA_OK;
    double *of = malloc(states * dim * sizeof *of);
    if (!of) return ha_why(s->why, HA_ERROR, "no memory");
    for (size_t r = 0; r < rows && judged == HA_OK; r++) {
        for (size_t i = 0; i < states; i++) {
            memcpy(&lse, in->image + i * bytes + o_bytes + r * sizeof lse, sizeof lse);
            double *row = of + i * dim;
            for (size_t d = 0; d < dim; d++) row[d] = (double)ha_load(in->image + i * bytes, r * dim + d, dtype);
            ref[i] = (struct ha_ref_state){ .o = row, .bound = nothing, .lse = (double)lse, .dim = dim, .keys = 1 };
        }
        struct ha_ref_state want = { .o = o, .bound = b, .dim = dim };
        size_t at;
        ha_ref_merge(ref, states, &bound, &want);
        ha_load_row(out->image + r * dim * e, dim, dtype, got);
        memcpy(&lse, out->image + o_bytes + r * sizeof lse, sizeof lse);
        if (!(ha_ref_ratio(got, lse, &want, &at) <= 1))
            judged = ha_op_wrong(s, "merge of %zu states of %s: row %zu of %zu: %s[%zu] is %.9g, want %.9g", states,
                                 ha_dtype_name(dtype), r, rows, at < dim ? "o" : "LSE", at,
                                 (double)(at < dim ? got[at] : lse), at < dim ? want.o[at] : want.lse);
        if (r >= HELD) continue;
        const struct ha_chance chance = ha_ref_chance_merge(given, ref, states, &bound, &want, work);
        double squares = 0;
        for (size_t d = 0; d < dim; d++) squares += ((double)got[d] - want.o[d]) * ((double)got[d] - want.o[d]);
        ha_chances_add(&held, (double)lse - want.lse, sqrt(squares), &chance);
    }
    free(of);
    HA_TRY(judged);
    ha_suspect_add(&s->suspect, &held, "merge of %zu states of %s, dim %zu", states, ha_dtype_name(dtype), dim);
    HA_TRY(ha_op_judge(s, out, rows * dim * e, o_bytes - rows * dim * e, "merge of %zu states: behind o", states));
    return ha_op_judge(s, out, o_bytes + rows * sizeof lse, out->bytes - o_bytes - rows * sizeof lse,
                       "merge of %zu states: behind the LSE", states);
}

static enum ha_status judge_merge(struct ha_op_stage *s)
{
    static const size_t states[] = { 1, 2, 3, 7, 33, 1500 }, dims[] = { 8, 64, 80, 128, 256 }, rows[] = { 1, 17, 40 };
    struct ha_device_info info;
    memset(&info, 0, sizeof info);
    s->api->info(s->device, &info);
    if (!(info.merge.forms >> HA_FORM_NATURAL & 1))
        return ha_why(s->why, HA_WAIVED, "no natural LSE is merged; `habench check lse_merge` judges what is");
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++)
        for (size_t i = 0; info.merge.dtypes >> t & 1 && i < 6; i++)
            for (size_t d = 0; d < 5; d++)
                if (states[i] * dims[d] <= 12000 && (!info.merge.states_max || states[i] <= info.merge.states_max))
                    HA_TRY(merge_once(s, &info.merge, states[i], rows[(i + d) % 3], dims[d], (enum ha_dtype)t));
    return HA_OK;
}

static enum ha_status merge_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct ha_device_info info;
    memset(&info, 0, sizeof info);
    s->api->info(s->device, &info);
    const struct ha_merge_traits *t = &info.merge;
    if (!(t->forms >> HA_FORM_NATURAL & 1) || !(t->dtypes >> c->dtype & 1)
        || (t->states_max && c->states > t->states_max))
        return ha_why(s->why, HA_WAIVED, "the device does not say that it merges so many states of that type");
    return merge_once(s, t, c->states, c->rows, c->head_dim, (enum ha_dtype)c->dtype);
}
const struct ha_op ha_op_merge = {
    .name = "merge",
    .doc = "states by their LSE; lse_merge judges all forms",
    .needs = { HA_OP_ENTRY(merge) },
    .judge = judge_merge,
    .keys = "rows dtype states head_dim",
    .once = merge_case,
};
