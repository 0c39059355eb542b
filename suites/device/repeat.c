/* The same twice, very often: a cheap call over the same input, again and again, whose result must have the same bits
 * each time, unless the device says that it does not promise them (`varies`). A race that spoils one row in a million
 * shows after as many rows as chance needs. Two streams call at once, under load on all cores; results go where other
 * bytes are, operands lie elsewhere by turns, and each fourth call of one stream has other numbers. */

#include "suites/device/stage.h"

#include "harness/base/busy.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHIFT_BYTES = 16, SHIFTS = 4, ROUNDS_MOST = 64, GUARD_BYTES = 64, SEQS = 16, STATES = 33 };

/* A call, and the float results [rows][width] that it leaves, with one more for each row where it has an LSE. */
struct again {
    struct ha_op_stage *s;
    char what[160];
    size_t in_bytes, rows, width, lse; /* lse: floats of a row, 0 or 1 */
    enum ha_dtype dtype;               /* of the numbers that the input is filled with */
    enum ha_status (*call)(struct again *a, struct ha_stream *stream, const char *in, char *out);
    const void *shape;
    bool products, varies;
    struct ha_op_block *in[2], *out[HA_OP_STREAMS]; /* in: the input, another one */
    struct ha_op_block *stain[2];                   /* what is where results go: NaN, large numbers */
    char *first, *got;                              /* results */
};

static size_t out_bytes(const struct again *a) { return a->rows * (a->width + a->lse) * sizeof(float); }

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static enum ha_status place(struct again *a, size_t shift)
{
    for (size_t i = 0; i < 2; i++) {
        struct ha_op_block *in = a->in[i];
        memmove(in->image + shift, in->image + a->s->shift, a->in_bytes);
        HA_TRY(ha_op_put(a->s, in, shift, a->in_bytes));
    }
    a->s->shift = shift;
    return HA_OK;
}

/* A row that a call forgets would else still hold what the call before has made of it. */
static enum ha_status call(struct again *a, size_t stream, size_t input, size_t stain)
{
    struct ha_op_stage *s = a->s;
    char *out = a->out[stream]->at + s->shift;
    HA_OP(s, copy, s->stream[stream], out, a->stain[stain]->at, out_bytes(a), HA_D2D);
    return ha_op_failed(s, a->what, a->call(a, s->stream[stream], a->in[input]->at + s->shift, out));
}

static enum ha_status differs(struct again *a, size_t stream)
{
    const size_t n = out_bytes(a) / sizeof(float), size = sizeof(float);
    size_t i = 0;
    float was, is;
    while (i < n && !memcmp(a->first + i * size, a->got + i * size, size)) i++;
    if (i == n) return HA_OK;
    a->s->differed = true;
    if (a->varies) return HA_OK;
    memcpy(&was, a->first + i * size, size);
    memcpy(&is, a->got + i * size, size);
    const size_t elements = a->rows * a->width, row = i < elements ? i / a->width : i - elements;
    char element[32] = "the LSE";
    if (i < elements) snprintf(element, sizeof element, "element %zu", i % a->width);
    return ha_op_wrong(
        a->s,
        "%s: the same input gave other bits after %llu rows: row %zu, %s was %.9g (%a), is %.9g (%a), on "
        "stream %zu, at operands %zu bytes behind a multiple of 64; who does not promise the same says "
        "varies",
        a->what, (unsigned long long)a->s->repeated, row, element, (double)was, (double)was, (double)is, (double)is,
        stream, a->s->shift);
}

static enum ha_status judge(struct again *a, size_t stream)
{
    HA_TRY(ha_op_get(a->s, a->out[stream], a->s->shift, out_bytes(a), a->got));
    a->s->repeated += a->rows;
    a->s->cases++;
    return memcmp(a->first, a->got, out_bytes(a)) ? differs(a, stream) : HA_OK;
}

/* each: rounds with the operands in one place */
static enum ha_status round_of(struct again *a, size_t i, size_t each)
{
    struct ha_op_stage *s = a->s;
    const bool other = i % 4 == 3;
    if (i % each == 0) HA_TRY(place(a, i / each % SHIFTS * SHIFT_BYTES));
    for (size_t k = 0; k < HA_OP_STREAMS; k++) HA_TRY(call(a, k, other && k, (i + 1) % 2));
    for (size_t k = 0; k < HA_OP_STREAMS; k++) HA_OP(s, stream_sync, s->stream[k]);
    HA_TRY(judge(a, 0));
    return other ? HA_OK : judge(a, 1);
}

/* one call alone, without load: what the others are compared with */
static enum ha_status first_of(struct again *a)
{
    struct ha_op_stage *s = a->s;
    HA_TRY(place(a, 0));
    HA_TRY(call(a, 0, 0, 0));
    HA_OP(s, stream_sync, s->stream[0]);
    return ha_op_get(s, a->out[0], 0, out_bytes(a), a->first);
}

static enum ha_status rounds(struct again *a, uint64_t rows)
{
    struct ha_busy *busy;
    const uint64_t end = a->s->repeated + rows, each = rows / (SHIFTS * HA_OP_STREAMS * a->rows) + 1;
    HA_TRY(first_of(a));
    HA_TRY(ha_busy_start(&busy, a->s->why));
    enum ha_status status = HA_OK;
    for (size_t i = 0; a->s->repeated < end && status == HA_OK; i++)
        status = round_of(a, i, each < ROUNDS_MOST ? each : ROUNDS_MOST); /* in every place, however few they are */
    ha_busy_stop(busy);
    return status;
}

/* Blocks of the call, and a share of all rows. */
static enum ha_status repeat(struct again *a, uint64_t share)
{
    struct ha_op_stage *s = a->s;
    ha_op_clear(s);
    s->shift = 0;
    for (size_t i = 0; i < 2; i++) {
        a->in[i] = ha_op_block(s, HA_OP_DEVICE, a->in_bytes + GUARD_BYTES);
        if (!a->in[i]) return HA_ERROR;
        ha_op_numbers(s, a->in[i]->image, a->in_bytes / ha_dtype_bytes(a->dtype), a->dtype);
    }
    for (size_t i = 0; i < HA_OP_STREAMS; i++)
        if (!(a->out[i] = ha_op_block(s, HA_OP_DEVICE, out_bytes(a) + GUARD_BYTES))) return HA_ERROR;
    for (size_t i = 0; i < 2; i++) {
        if (!(a->stain[i] = ha_op_block(s, HA_OP_DEVICE, out_bytes(a)))) return HA_ERROR;
        memset(a->stain[i]->image, i ? 0x47 : 0xFF, out_bytes(a));
        HA_TRY(ha_op_put(s, a->stain[i], 0, out_bytes(a)));
    }
    a->first = malloc(2 * out_bytes(a));
    if (!a->first) return ha_why(s->why, HA_ERROR, "out of memory");
    a->got = a->first + out_bytes(a);
    s->unpromised |= a->varies;
    const enum ha_status status = rounds(a, s->again / share + 1);
    free(a->first);
    return status;
}

static void declared(struct ha_op_stage *s, struct ha_device_info *info)
{
    memset(info, 0, sizeof *info);
    s->api->info(s->device, info);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* The dearer a row is, the smaller is its share. */
struct attention {
    size_t batch, kv_heads, group, dim, keys;
    enum ha_dtype dtype;
    uint64_t share;
};
static const struct attention attentions[] = {
    { 8, 8, 16, 8, 16, HA_F32, 1 },
    { 2, 2, 5, 64, 130, HA_F16, 64 },
    { 1, 2, 4, 128, 600, HA_BF16, 256 },
    { 1, 1, 4, 64, 5000, HA_F16, 4096 },
};

static enum ha_status attend(struct again *a, struct ha_stream *stream, const char *in, char *out)
{
    const struct attention *t = a->shape;
    const size_t heads = t->kv_heads * t->group, row = t->dim * ha_dtype_bytes(t->dtype),
                 kv = t->keys * t->kv_heads * row, q = t->batch * heads * t->dim * sizeof(float);
    struct ha_device_seq seq[SEQS];
    for (size_t b = 0; b < t->batch; b++) {
        const char *k = in + q + b * 2 * kv;
        seq[b] = (struct ha_device_seq){
            .q = (const float *)(const void *)in + b * heads * t->dim,
            .runs = { { k, k + kv, t->kv_heads * row, t->kv_heads * row, NULL, t->keys } },
            .runs_count = 1,
            .k_head_bytes = row,
            .v_head_bytes = row,
            .o = (float *)(void *)out + b * heads * t->dim,
            .lse = (float *)(void *)out + a->rows * a->width + b * heads,
        };
    }
    const struct ha_device_attend args = {
        t->batch, 1, heads, t->kv_heads, t->dim, t->dtype, 1 / sqrtf((float)t->dim), a->products, seq, 0
    };
    return (a->products ? a->s->api->attend_products : a->s->api->attend)(stream, &args);
}

static enum ha_status attend_again(struct ha_op_stage *s, bool products)
{
    struct ha_device_info info;
    declared(s, &info);
    for (size_t i = 0; i < sizeof attentions / sizeof *attentions; i++) {
        const struct attention *t = &attentions[i];
        const size_t heads = t->kv_heads * t->group;
        struct again a = { .s = s,
                           .rows = t->batch * heads,
                           .width = t->dim,
                           .lse = 1,
                           .dtype = t->dtype,
                           .call = attend,
                           .shape = t,
                           .products = products,
                           .varies = (products ? info.products : info.profile)[t->dtype].varies };
        a.in_bytes = a.rows * t->dim * sizeof(float)
                     + 2 * t->batch * t->keys * t->kv_heads * t->dim * ha_dtype_bytes(t->dtype);
        snprintf(a.what, sizeof a.what, "attention%s of %s, %zu rows of %zu over %zu keys",
                 products ? " by products" : "", ha_dtype_name(t->dtype), a.rows, t->dim, t->keys);
        HA_TRY(repeat(&a, products ? 16 * t->share : t->share));
    }
    return HA_OK;
}

static enum ha_status judge_attend(struct ha_op_stage *s) { return attend_again(s, false); }
const struct ha_op ha_op_attend_repeat = {
    .name = "attend_repeat",
    .doc = "attend over the same input, very often: the same bits",
    .needs = { HA_OP_ENTRY(attend) },
    .judge = judge_attend,
};

static enum ha_status judge_products(struct ha_op_stage *s)
{
    HA_TRY(ha_op_no_products(s));
    return attend_again(s, true);
}
const struct ha_op ha_op_products_repeat = {
    .name = "products_repeat",
    .doc = "the same of attend_products",
    .needs = { HA_OP_ENTRY(attend_products) },
    .judge = judge_products,
};

/* ---- merge ------------------------------------------------------------------------------------------------------- */

struct states {
    size_t count, rows, dim;
    uint64_t share;
};
static const struct states merges[] = { { 2, 2048, 8, 1 }, { STATES, 64, 64, 64 } };

static enum ha_status merge(struct again *a, struct ha_stream *stream, const char *in, char *out)
{
    const struct states *t = a->shape;
    struct ha_merge_state state[STATES];
    const size_t each = t->rows * (t->dim + 1);
    for (size_t i = 0; i < t->count; i++) {
        float *o = (float *)(uintptr_t)in + i * each; /* only read */
        state[i] = (struct ha_merge_state){ o, o + t->rows * t->dim, NULL, t->dim, t->dim, 1, 1 };
    }
    struct ha_merge m = { .form = HA_FORM_NATURAL,
                          .dtype = HA_F32,
                          .states = state,
                          .states_count = t->count,
                          .tokens = t->rows,
                          .heads = 1,
                          .dim = t->dim,
                          .out = state[0] };
    m.out.o = out;
    m.out.lse = (float *)(void *)out + t->rows * t->dim;
    return a->s->api->merge(stream, &m);
}

static enum ha_status judge_merge(struct ha_op_stage *s)
{
    struct ha_device_info info;
    declared(s, &info);
    if (!(info.merge.forms >> HA_FORM_NATURAL & 1) || !(info.merge.dtypes >> HA_F32 & 1))
        return ha_why(s->why, HA_WAIVED, "no natural LSE with o in f32 is merged");
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        const struct states *t = &merges[i];
        struct again a = { .s = s,
                           .in_bytes = t->count * t->rows * (t->dim + 1) * sizeof(float),
                           .rows = t->rows,
                           .width = t->dim,
                           .lse = 1,
                           .call = merge,
                           .shape = t,
                           .varies = info.merge.varies };
        snprintf(a.what, sizeof a.what, "a merge of %zu states, %zu rows of %zu", t->count, t->rows, t->dim);
        if (!info.merge.states_max || t->count <= info.merge.states_max) HA_TRY(repeat(&a, t->share));
    }
    return HA_OK;
}
const struct ha_op ha_op_merge_repeat = {
    .name = "merge_repeat",
    .doc = "merge of the same states, very often: the same bits",
    .needs = { HA_OP_ENTRY(merge) },
    .judge = judge_merge,
};

/* ---- what always promises ---------------------------------------------------------------------------------------- */

enum { BLEND_ROWS = 2048, BLEND_COLS = 16, MOVE_ROWS = 2048, MOVE_WIDTH = 16 };

/* y comes from the input each time */
static enum ha_status blend(struct again *a, struct ha_stream *stream, const char *in, char *out)
{
    const size_t bytes = BLEND_ROWS * BLEND_COLS * sizeof(float);
    const struct ha_device_blend args = { (float *)(void *)out,
                                          (const float *)(const void *)(in + bytes),
                                          BLEND_ROWS,
                                          BLEND_COLS,
                                          BLEND_COLS,
                                          BLEND_COLS,
                                          0.75f,
                                          0.3f };
    HA_TRY(a->s->api->copy(stream, out, in, bytes, HA_D2D));
    return a->s->api->blend(stream, &args);
}

static enum ha_status judge_blend(struct ha_op_stage *s)
{
    struct again a = { .s = s,
                       .what = "a blend",
                       .in_bytes = 2 * BLEND_ROWS * BLEND_COLS * sizeof(float),
                       .rows = BLEND_ROWS,
                       .width = BLEND_COLS,
                       .call = blend };
    return repeat(&a, 1);
}
const struct ha_op ha_op_blend_repeat = {
    .name = "blend_repeat",
    .doc = "copy within the device and blend, very often: the same bits",
    .needs = { HA_OP_ENTRY(blend) },
    .judge = judge_blend,
};

static enum ha_status move(struct again *a, struct ha_stream *stream, const char *in, char *out)
{
    const size_t bytes = MOVE_WIDTH * sizeof(float);
    const struct ha_device_move args = { out, in, NULL, NULL, MOVE_ROWS, bytes, bytes, 2 * bytes };
    return a->s->api->move(stream, &args);
}

static enum ha_status judge_move(struct ha_op_stage *s)
{
    struct again a = { .s = s,
                       .what = "a move",
                       .in_bytes = 2 * MOVE_ROWS * MOVE_WIDTH * sizeof(float),
                       .rows = MOVE_ROWS,
                       .width = MOVE_WIDTH,
                       .call = move };
    return repeat(&a, 1);
}
const struct ha_op ha_op_move_repeat = {
    .name = "move_repeat",
    .doc = "move of the same rows, very often: the same bits",
    .needs = { HA_OP_ENTRY(move) },
    .judge = judge_move,
};
