/* What computes: within the bound that follows from what the device claims of itself, NaN where a NaN is read, and
 * nothing is written beside the results. */

#include "suites/device/stage.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- blend ------------------------------------------------------------------------------------------------------- */

/* scale: of the numbers */
#define BLEND(r, w, y, x, by_a, by_b, s)                                                    \
    {                                                                                       \
        .rows = r, .width = w, .dst_gap = y, .src_gap = x, .a = by_a, .b = by_b, .scale = s \
    }
static const struct ha_op_case blends[] = {
    BLEND(1, 4099, 0, 0, 0.75, 0.125, 1e6), BLEND(5, 128, 0, 4, 0.1, 0.9, 1e-6),  BLEND(1000, 3, 1, 2, 1e3, 1e-3, 1e9),
    BLEND(70000, 2, 0, 1, 0.3, 0.7, 1),     BLEND(2, 150001, 3, 0, 0.2, -0.8, 1), BLEND(64, 96, 32, 32, 0, 1, 1e-30),
    BLEND(300, 1100, 0, 0, 0.6, 0.2, 1),    BLEND(16, 80, 0, 0, 1, -1, 70000),    BLEND(5, 64, 1, 0, 0.4, 0.6, 1),
    BLEND(5, 64, 0, 2, 0.4, 0.6, 1),
};

static enum ha_status blend_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    const size_t y_stride = c->width + c->dst_gap, x_stride = c->width + c->src_gap, to = c->dst_at / 4,
                 from = c->src_at / 4;
    const float a = c->a == 0 && ha_op_draw(s, 2) ? -0.0f : (float)c->a, b = (float)c->b; /* -0 is 0, too */
    ha_op_clear(s);
    struct ha_op_block *in[2];
    struct ha_op_block *y = in[0] = ha_op_block(s, (enum ha_op_place)c->dst, (to + c->rows * y_stride + 16) * 4),
                       *x = in[1] = y ? ha_op_block(s, (enum ha_op_place)c->src, (from + c->rows * x_stride + 1) * 4)
                                      : NULL;
    if (!x) return HA_ERROR;
    float *const yi = (float *)(void *)y->image + to, *const xi = (float *)(void *)x->image + from;
    memset(y->image, 0xFF, y->bytes); /* NaN, which a = 0 must not read */
    memset(x->image, 0xFF, x->bytes);
    for (size_t r = 0; r < c->rows; r++) {
        if (a != 0) ha_op_numbers(s, yi + r * y_stride, c->width, HA_F32);
        ha_op_numbers(s, xi + r * x_stride, c->width, HA_F32);
        for (size_t i = 0; i < c->width; i++) {
            if (a != 0) yi[r * y_stride + i] *= (float)c->scale;
            xi[r * x_stride + i] *= (float)c->scale;
        }
    }
    const bool special = c->special && c->rows && c->width;
    const size_t nan_row = special ? ha_op_draw(s, c->rows) : 0, nan_column = special ? ha_op_draw(s, c->width) : 0;
    if (special) xi[nan_row * x_stride + nan_column] = ha_op_odd(s, c);
    struct ha_device_blend args = { (float *)(void *)y->at + to,
                                    (const float *)(const void *)x->at + from,
                                    c->rows,
                                    c->width,
                                    y_stride,
                                    x_stride,
                                    a,
                                    b };
    const char *before;
    HA_TRY(ha_op_arrive(s, in, 2, y));
    const enum ha_status asked = s->api->blend(s->stream[0], &args);
    memset(&args, 0, sizeof args);
    HA_TRY(ha_op_follow(s, "blend", asked, y, &before));
    const float *const was = (const float *)(const void *)before + to;
    for (size_t r = 0; r < c->rows; r++)
        for (size_t i = 0; i < c->width; i++) {
            float *const got = &yi[r * y_stride + i], old = was[r * y_stride + i];
            const bool is_nan = special && r == nan_row && i == nan_column;
            const double ay = a != 0 ? (double)a * (double)old : 0, bx = (double)b * (double)xi[r * x_stride + i];
            const double bound = 0x1p-24 * (1 + 0x1p-20) * (2 * fabs(ay) + 2 * fabs(bx)) + 3 * 0x1p-126;
            if (is_nan ? !isnan(*got) : !(fabs((double)*got - (ay + bx)) <= bound))
                return ha_op_wrong(s,
                                   "blend of %zu rows of %zu, a = %g, b = %g: row %zu column %zu is %.9g, want %.9g, "
                                   "bound %.3g",
                                   c->rows, c->width, c->a, c->b, r, i, (double)*got, ay + bx, bound);
            *got = old;
        }
    s->cases++;
    if (memcmp(before, y->image, y->bytes) != 0)
        return ha_op_wrong(s, "blend of %zu rows of %zu, %zu apart: what is beside the rows changed", c->rows, c->width,
                           y_stride);
    return HA_OK;
}

static enum ha_status judge_blend(struct ha_op_stage *s)
{
    for (size_t i = 0; i < sizeof blends / sizeof *blends; i++)
        if (blends[i].rows * blends[i].width * sizeof(float) <= s->most) HA_TRY(blend_once(s, &blends[i]));
    return HA_OK;
}

static const char *unfit_blend(const struct ha_op_case *c)
{
    return c->special && (c->special != HA_OP_NAN_VALUE || c->b == 0) ? "of a blend x is NaN, and b is not 0"
                                                                      : ha_op_unfit_kernel(c);
}
const struct ha_op ha_op_blend = {
    .name = "blend",
    .doc = "y = a y + b x in binary32, at strides",
    .needs = { HA_OP_ENTRY(blend) },
    .judge = judge_blend,
    .in_place = true,
    .keys = "dst src dst_at src_at rows width dst_gap src_gap a b scale special",
    .pairs = "dst = device mapped\nsrc = device mapped\n"
             "dst_at = 0 4 8 36\nsrc_at = 0 4 8 60\n"
             "rows = 4 0 1 33 129\nwidth = 8 0 1 7 64 65 1000\n"
             "dst_gap = 0 1 24\nsrc_gap = 0 1 64\n"
             "a = 1 0 0.5 0.3 -1.5\nb = 1 0 -3 0.001\n"
             "special = none nan_value\n",
    .once = blend_once,
    .unfit = unfit_blend,
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

/* A row of x that has a NaN makes one of y, one of w a column. */
static enum ha_status product_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    enum { GUARD = 64 };
    const enum ha_dtype dtype = (enum ha_dtype)c->dtype;
    struct ha_device_info info;
    memset(&info, 0, sizeof info);
    s->api->info(s->device, &info);
    const bool truncates = info.products[dtype].truncates; /* the library's attention is made of such products */
    const size_t m = c->m, n = c->n, k = c->k, e = ha_dtype_bytes(dtype), to = c->dst_at / 16 * 16,
                 from = c->src_at / 16 * 16;
    HA_TRY(ha_op_no_products(s));
    ha_op_clear(s);
    struct ha_op_block *in[2], *y = ha_op_block(s, HA_OP_DEVICE, to + m * n * e + GUARD);
    struct ha_op_block *x = in[0] = y ? ha_op_block(s, HA_OP_DEVICE, from + m * k * e) : NULL,
                       *w = in[1] = x ? ha_op_block(s, HA_OP_DEVICE, from + n * k * e) : NULL;
    if (!w) return HA_ERROR;
    char *const yi = y->image + to, *const xi = x->image + from, *const wi = w->image + from;
    memset(x->image, 0xFF, from);
    memset(w->image, 0xFF, from);
    ha_op_numbers(s, xi, m * k, dtype);
    ha_op_numbers(s, wi, n * k, dtype);
    ha_op_scale(xi, m * k, dtype, c->scale);
    ha_op_scale(wi, n * k, dtype, c->scale);
    const size_t row = ha_op_draw(s, m), column = ha_op_draw(s, n), term = ha_op_draw(s, k);
    if (c->special == HA_OP_NAN_QUERY) ha_store(xi, row * k + term, dtype, ha_op_odd(s, c));
    if (c->special == HA_OP_NAN_KEY) ha_store(wi, column * k + term, dtype, ha_op_odd(s, c));
    struct ha_device_product args = { y->at + to, x->at + from, w->at + from, m, n, k, dtype };
    const char *before;
    HA_OP(s, product, s->stream[0], &args); /* which loads what the library has for the shape */
    HA_OP(s, stream_sync, s->stream[0]);
    HA_TRY(ha_op_fill(s, y, 0, y->bytes));
    HA_TRY(ha_op_arrive(s, in, 2, y));
    const enum ha_status asked = s->api->product(s->stream[0], &args);
    memset(&args, 0, sizeof args);
    HA_TRY(ha_op_follow(s, "product", asked, y, &before));
    s->cases++;
    const double unit = ha_dtype_unit(dtype) + 2 * (double)(k + 1) * 0x1p-24;
    struct ha_chances held = { 0 };
    for (size_t r = 0; r < m; r++) {
        struct ha_ref_dots dots = { 0 };
        for (size_t i = 0; i < n; i++) {
            double want = 0, size = 0, squares = 0;
            for (size_t l = 0; l < k; l++) {
                const double x_w = (double)ha_load(xi, r * k + l, dtype) * (double)ha_load(wi, i * k + l, dtype);
                want += x_w;
                size += fabs(x_w);
                squares += x_w * x_w;
            }
            const double got = (double)ha_load(yi, r * n + i, dtype), bound = unit * size + ha_dtype_eta(dtype);
            if (isinf(got) && (got > 0) == (want > 0) && fabs(want) + bound >= ha_dtype_beyond(dtype)) continue;
            if (isnan(want) ? !isnan(got) : !(fabs(got - want) <= bound))
                return ha_op_wrong(s, "product %zu x %zu x %zu of %s: (%zu, %zu) is %.9g, want %.9g, bound %.3g", m, n,
                                   k, ha_dtype_name(dtype), r, i, got, want, bound);
            if (!isnan(want)) ha_ref_dots_add(&dots, got - want, want, squares, (double)k, dtype, truncates ? 1 : 0);
        }
        const struct ha_chance of = ha_ref_chance_dots(&dots);
        ha_chances_add(&held, 0, sqrt(dots.error2), &of);
    }
    ha_suspect_add(&s->suspect, &held, "product %zu x %zu x %zu of %s", m, n, k, ha_dtype_name(dtype));
    memcpy(yi, before + to, m * n * e);
    if (memcmp(before, y->image, y->bytes) != 0)
        return ha_op_wrong(s, "product %zu x %zu x %zu of %s: what is beside y changed", m, n, k, ha_dtype_name(dtype));
    return HA_OK;
}

static enum ha_status judge_product(struct ha_op_stage *s)
{
    static const struct ha_op_case large = { .m = 70, .n = 70, .k = 1030, .scale = 1 };
    return product_once(s, &large);
}

static const char *unfit_product(const struct ha_op_case *c)
{
    return c->special && c->special != HA_OP_NAN_QUERY && c->special != HA_OP_NAN_KEY ? "of a product x or w have a NaN"
                                                                                      : NULL;
}
const struct ha_op ha_op_product = {
    .name = "product",
    .doc = "x w^T, with sums in binary32",
    .needs = { HA_OP_ENTRY(product) },
    .judge = judge_product,
    .keys = "dst_at src_at dtype m n k scale special",
    .pairs = "dtype = f32 f16 bf16\nscale = 1 150 0.001\ndst_at = 0 16 48\nsrc_at = 0 16 48\n"
             "m = 1 3 16 17 64\nn = 1 5 8 33 128 300\nk = 1 7 16 64 65 512\n"
             "special = none nan_query nan_key\n",
    .values = HA_OP_SCALES,
    .once = product_once,
    .unfit = unfit_product,
};

/* ---- merge ------------------------------------------------------------------------------------------------------- */

/* How the rows of a state lie, c->rows tokens of c->kv_heads heads. gap: numbers between two rows of o, and a few
 * between two of the LSE, in each state other ones; strides that the device does not take are those of dense rows. */
static struct ha_merge_state merge_strides(const struct ha_merge_traits *traits, const struct ha_op_case *c, size_t gap,
                                           size_t state)
{
    const bool any = traits->lse_order == HA_LSE_ANY, strides = any && traits->o_strides,
               o_heads = strides && (c->layout == HA_OP_HEADS || c->layout == HA_OP_K_HEADS),
               l_heads = any ? c->layout == HA_OP_HEADS || c->layout == HA_OP_V_HEADS
                             : traits->lse_order == HA_LSE_HEADS_TOKENS;
    const size_t tokens = c->rows, heads = c->kv_heads, o_gap = traits->o_strides && gap ? gap + state % 3 : 0,
                 l_gap = any && gap ? 1 + (gap + state) % 5 : 0, row = c->head_dim + o_gap, one = 1 + l_gap,
                 o_line = (o_heads ? tokens : heads) * row + 2 * o_gap,
                 l_line = (l_heads ? tokens : heads) * one + l_gap;
    return (struct ha_merge_state){ .o_token_stride = o_heads ? row : o_line,
                                    .o_head_stride = o_heads ? o_line : row,
                                    .lse_token_stride = l_heads ? one : l_line,
                                    .lse_head_stride = l_heads ? l_line : one };
}
/* numbers from the first to behind the last of rows that are so wide */
static size_t merge_extent(const struct ha_op_case *c, size_t token_stride, size_t head_stride, size_t width)
{
    return c->rows ? (c->rows - 1) * token_stride + (c->kv_heads - 1) * head_stride + width : 0;
}
static char *merge_o(const struct ha_merge_state *state, size_t t, size_t h, enum ha_dtype dtype)
{
    return (char *)state->o + (t * state->o_token_stride + h * state->o_head_stride) * ha_dtype_bytes(dtype);
}
static float *merge_lse(const struct ha_merge_state *state, size_t t, size_t h)
{
    return state->lse + t * state->lse_token_stride + h * state->lse_head_stride;
}

/* Forms are the lse_merge suite's. state: [2][states + 1], the last one is the result: in the device's memory, in the
 * images. */
static enum ha_status merge_states(struct ha_op_stage *s, const struct ha_merge_traits *traits,
                                   const struct ha_op_case *c, struct ha_merge_state *state, struct ha_ref_state *ref,
                                   const struct ha_chance *given, double *numbers)
{
    enum { GUARD = 64, HELD = 32 }; /* HELD: rows against chance */
    const enum ha_dtype dtype = (enum ha_dtype)c->dtype;
    const size_t states = c->states, heads = c->kv_heads, rows = c->rows * heads, dim = c->head_dim,
                 e = ha_dtype_bytes(dtype), f = sizeof(float);
    struct ha_merge_state *const there = state, *const here = state + states + 1;
    struct ha_op_block *block[2] = { NULL };
    for (size_t laid = 0; laid < 2; laid++) { /* without blocks for the sizes, then with them */
        size_t bytes[2] = { 0 };
        for (size_t i = 0; i <= states; i++) {
            const size_t is_out = i == states, shift = (is_out ? c->dst_at : c->src_at) / 4 * 4;
            struct ha_merge_state m = merge_strides(traits, c, is_out ? c->dst_gap : c->src_gap, i);
            const size_t o = ha_op_room(&bytes[is_out], merge_extent(c, m.o_token_stride, m.o_head_stride, dim) * e,
                                        shift),
                         lse = ha_op_room(&bytes[is_out], merge_extent(c, m.lse_token_stride, m.lse_head_stride, 1) * f,
                                          shift);
            for (size_t k = 0; k < 2 && laid; k++) {
                char *const at = k ? block[is_out]->image : block[is_out]->at;
                m.o = at + o;
                m.lse = (float *)(void *)(at + lse);
                state[k * (states + 1) + i] = m;
            }
        }
        if (laid) break;
        block[0] = ha_op_block(s, (enum ha_op_place)c->src, bytes[0]);
        block[1] = block[0] ? ha_op_block(s, (enum ha_op_place)c->dst, bytes[1] + GUARD) : NULL;
        if (!block[1]) return HA_ERROR;
    }
    struct ha_op_block *const in = block[0], *const out = block[1];
    memset(in->image, 0xFF, in->bytes); /* NaN between the rows */
    for (size_t i = 0; i < states; i++)
        for (size_t r = 0; r < rows; r++) {
            float *const lse = merge_lse(&here[i], r / heads, r % heads);
            ha_op_numbers(s, merge_o(&here[i], r / heads, r % heads, dtype), dim, dtype);
            ha_op_numbers(s, lse, 1, HA_F32);
            *lse = r % 7 == 3 && i % 2 ? -INFINITY : 20 * *lse;
            for (size_t d = r % 3; d < dim && states == 1; d += 5)
                ha_store(merge_o(&here[i], r / heads, r % heads, dtype), d, dtype, -0.0f);
        }
    struct ha_merge m = { .form = HA_FORM_NATURAL,
                          .dtype = dtype,
                          .states = there,
                          .states_count = states,
                          .tokens = c->rows,
                          .heads = heads,
                          .dim = dim,
                          .out = there[states] };
    HA_TRY(ha_op_fill(s, out, 0, out->bytes));
    const char *before;
    HA_TRY(ha_op_arrive(s, &in, 1, out));
    const enum ha_status asked = s->api->merge(s->stream[0], &m);
    memset(there, 0, (states + 1) * sizeof *there);
    memset(&m, 0, sizeof m);
    HA_TRY(ha_op_follow(s, "merge", asked, out, &before));
    s->cases++;
    const struct ha_merge_bound bound = ha_bound_merge(traits, HA_FORM_NATURAL, dtype);
    double *const nothing = numbers, *const o = nothing + dim, *const b = o + dim, *const of = b + dim;
    float *const got = (float *)(void *)(of + states * dim);
    double *const work = of + (states + 1) * dim;
    struct ha_chances held = { 0 };
    memset(nothing, 0, dim * sizeof *nothing);
    for (size_t r = 0; r < rows; r++) {
        const size_t t = r / heads, h = r % heads;
        char *const o_at = merge_o(&here[states], t, h, dtype);
        float *const lse_at = merge_lse(&here[states], t, h), lse = *lse_at;
        for (size_t i = 0; i < states; i++) {
            const char *from = merge_o(&here[i], t, h, dtype);
            for (size_t d = 0; d < dim; d++) of[i * dim + d] = (double)ha_load(from, d, dtype);
            ref[i] = (struct ha_ref_state){
                .o = of + i * dim, .bound = nothing, .lse = (double)*merge_lse(&here[i], t, h), .dim = dim, .keys = 1
            };
        }
        struct ha_ref_state want = { .o = o, .bound = b, .dim = dim };
        size_t at;
        ha_ref_merge(ref, states, &bound, &want);
        ha_load_row(o_at, dim, dtype, got);
        if (!(ha_ref_ratio(got, lse, &want, &at) <= 1))
            return ha_op_wrong(
                s, "merge of %zu states of %s: token %zu of %zu, head %zu of %zu: %s[%zu] is %.9g, want %.9g", states,
                ha_dtype_name(dtype), t, c->rows, h, heads, at < dim ? "o" : "LSE", at,
                (double)(at < dim ? got[at] : lse), at < dim ? want.o[at] : want.lse);
        if (states == 1 && memcmp(o_at, merge_o(&here[0], t, h, dtype), dim * e) != 0)
            return ha_op_wrong(s, "merge of one state of %s: token %zu of %zu, head %zu of %zu: o has other bits",
                               ha_dtype_name(dtype), t, c->rows, h, heads);
        ha_op_put_back(out, before, o_at, dim * e);
        ha_op_put_back(out, before, lse_at, f);
        if (r >= HELD) continue;
        const struct ha_chance chance = ha_ref_chance_merge(given, ref, states, &bound, &want, work);
        double squares = 0;
        for (size_t d = 0; d < dim; d++) squares += ((double)got[d] - want.o[d]) * ((double)got[d] - want.o[d]);
        ha_chances_add(&held, (double)lse - want.lse, sqrt(squares), &chance);
    }
    ha_suspect_add(&s->suspect, &held, "merge of %zu states of %s, dim %zu", states, ha_dtype_name(dtype), dim);
    return ha_op_beside(s, "merge", before, out);
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
    ha_op_clear(s);
    struct ha_merge_state *state = malloc(2 * (c->states + 1) * sizeof *state);
    struct ha_ref_state *ref = malloc(c->states * sizeof *ref);
    struct ha_chance *given = calloc(c->states, sizeof *given);
    double *numbers = malloc(((c->states + 4) * c->head_dim + c->states) * sizeof *numbers);
    const enum ha_status status = state && ref && given && numbers ? merge_states(s, t, c, state, ref, given, numbers)
                                                                   : ha_why(s->why, HA_ERROR, "out of memory");
    free(state);
    free(ref);
    free(given);
    free(numbers);
    return status;
}

static enum ha_status judge_merge(struct ha_op_stage *s)
{
    struct ha_device_info info;
    memset(&info, 0, sizeof info);
    s->api->info(s->device, &info);
    if (!(info.merge.forms >> HA_FORM_NATURAL & 1))
        return ha_why(s->why, HA_WAIVED, "no natural LSE is merged; `habench check lse_merge` judges what is");
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
        const struct ha_op_case many = { .states = 1500, .rows = 1, .kv_heads = 1, .head_dim = 8, .dtype = t };
        const enum ha_status status = merge_case(s, &many);
        if (status != HA_WAIVED) HA_TRY(status);
    }
    return HA_OK;
}

const struct ha_op ha_op_merge = {
    .name = "merge",
    .doc = "states by their LSE; lse_merge judges all forms",
    .needs = { HA_OP_ENTRY(merge) },
    .judge = judge_merge,
    .keys = "dst src dst_at src_at rows kv_heads dtype states head_dim layout src_gap dst_gap",
    .pairs = "dtype = f32 f16 bf16\ndst = device mapped\nsrc = device mapped\n"
             "dst_at = 0 4 8 60\nsrc_at = 0 4 8 36\n"
             "rows = 1..4 8 17 40 300\nkv_heads = 1..4 7 8 40\nstates = 1..8 16 33 130\nhead_dim = 8 24 64 80 96 112 "
             "128 192 200 256\n"
             "layout = tokens heads k_heads v_heads\nsrc_gap = 0 1 8\ndst_gap = 0 3 16\n",
    .once = merge_case,
    .unfit = ha_op_unfit_kernel,
};
