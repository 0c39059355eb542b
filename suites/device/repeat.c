/* The same twice, very often: a cheap call over the same input, again and again, whose result must have the same bits
 * each time, unless the device says that it does not promise them (`varies`). A race that spoils one row in a million
 * shows after as many rows as chance needs. Two streams call at once, under load on all cores; results go where other
 * bytes are, operands lie elsewhere by turns, and each fourth call of one stream has other numbers. */

#include "suites/device/stage.h"

#include "harness/base/busy.h"
#include "harness/base/fingerprint.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHIFT_BYTES = 16, SHIFTS = 4, ROUNDS_MOST = 64, GUARD_BYTES = 64, SEQS = 16, STATES = 33 };

enum kind { ATTEND, PRODUCTS, MERGE, BLEND, MOVE };
/* It leaves [rows][width] floats, and what has an LSE one more for each row. The dearer a row is, the smaller is its
 * share of the rows that are asked for. */
struct call {
    enum kind kind;
    size_t batch, kv_heads, group; /* of attention: rows is their product */
    size_t rows, width, parts;     /* parts: keys of a row, states */
    enum ha_dtype dtype;           /* of K and V */
    uint64_t share;
};
#define ATTENTION(b, h, g, dim, keys, type, part)                        \
    { ATTEND, b, h, g, (b) * (h) * (g), dim, keys, type, part },         \
    {                                                                    \
        PRODUCTS, b, h, g, (b) * (h) * (g), dim, keys, type, 16 * (part) \
    }
static const struct call calls[] = {
    ATTENTION(8, 8, 16, 8, 16, HA_F32, 1),
    ATTENTION(2, 2, 5, 64, 130, HA_F16, 64),
    ATTENTION(1, 2, 4, 128, 600, HA_BF16, 256),
    ATTENTION(1, 1, 4, 64, 5000, HA_F16, 4096),
    { MERGE, .rows = 2048, .width = 8, .parts = 2, .share = 1 },
    { MERGE, .rows = 64, .width = 64, .parts = STATES, .share = 64 },
    { BLEND, .rows = 2048, .width = 16, .share = 1 },
    { MOVE, .rows = 2048, .width = 16, .share = 1 },
};

struct again {
    struct ha_op_stage *s;
    const struct call *of;
    char what[160];
    size_t in_bytes, rows, width, lse; /* as of->; lse: floats of a row, 0 or 1 */
    bool varies;
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

static enum ha_status enqueue(struct again *a, struct ha_stream *stream, const char *in, char *out);

/* A row that a call forgets would else still hold what the call before has made of it. */
static enum ha_status call(struct again *a, size_t stream, size_t input, size_t stain)
{
    struct ha_op_stage *s = a->s;
    char *out = a->out[stream]->at + s->shift;
    HA_OP(s, copy, s->stream[stream], out, a->stain[stain]->at, out_bytes(a), HA_D2D);
    return ha_op_failed(s, a->what, enqueue(a, s->stream[stream], a->in[input]->at + s->shift, out));
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

static enum ha_status repeat_judge(struct again *a, size_t stream)
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
    HA_TRY(repeat_judge(a, 0));
    return other ? HA_OK : repeat_judge(a, 1);
}

/* one call alone, without load: what the others are compared with */
static enum ha_status first_of(struct again *a)
{
    struct ha_op_stage *s = a->s;
    HA_TRY(place(a, 0));
    HA_TRY(call(a, 0, 0, 0));
    HA_OP(s, stream_sync, s->stream[0]);
    HA_TRY(ha_op_get(s, a->out[0], 0, out_bytes(a), a->first));
    s->outputs = ha_fingerprint_bytes(s->outputs, a->first, out_bytes(a));
    return HA_OK;
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
    for (size_t i = 0; i < 2 && status == HA_OK; i++)
        status = ha_op_judge(a->s, a->in[i], a->s->shift, a->in_bytes, "%s changed its input", a->what);
    return status;
}

/* Blocks of the call, and its share of all rows. */
static enum ha_status repeat(struct again *a)
{
    struct ha_op_stage *s = a->s;
    ha_op_clear(s);
    s->shift = 0;
    for (size_t i = 0; i < 2; i++) {
        a->in[i] = ha_op_block(s, HA_OP_DEVICE, a->in_bytes + GUARD_BYTES);
        if (!a->in[i]) return HA_ERROR;
        ha_op_numbers(s, a->in[i]->image, a->in_bytes / ha_dtype_bytes(a->of->dtype), a->of->dtype);
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
    const enum ha_status status = rounds(a, s->again / a->of->share + 1);
    free(a->first);
    return status;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static enum ha_status attend(struct again *a, struct ha_stream *stream, const char *in, char *out)
{
    const struct call *t = a->of;
    const size_t heads = t->kv_heads * t->group, row = t->width * ha_dtype_bytes(t->dtype),
                 kv = t->parts * t->kv_heads * row, q = t->rows * t->width * sizeof(float);
    struct ha_device_seq seq[SEQS];
    for (size_t b = 0; b < t->batch; b++) {
        const char *k = in + q + b * 2 * kv;
        seq[b] = (struct ha_device_seq){
            .q = (const float *)(const void *)in + b * heads * t->width,
            .runs = { { k, k + kv, t->kv_heads * row, t->kv_heads * row, NULL, t->parts } },
            .runs_count = 1,
            .k_head_bytes = row,
            .v_head_bytes = row,
            .o = (float *)(void *)out + b * heads * t->width,
            .lse = (float *)(void *)out + t->rows * t->width + b * heads,
        };
    }
    const bool products = t->kind == PRODUCTS;
    const struct ha_device_attend args = { .batch = t->batch,
                                           .q_len = 1,
                                           .q_heads = heads,
                                           .kv_heads = t->kv_heads,
                                           .head_dim = t->width,
                                           .dtype = t->dtype,
                                           .scale = 1 / sqrtf((float)t->width),
                                           .causal = products,
                                           .seqs = seq };
    return (products ? a->s->api->attend_products : a->s->api->attend)(stream, &args);
}

static enum ha_status merge(struct again *a, struct ha_stream *stream, const char *in, char *out)
{
    const struct call *t = a->of;
    struct ha_merge_state state[STATES];
    const size_t each = t->rows * (t->width + 1);
    for (size_t i = 0; i < t->parts; i++) {
        float *o = (float *)(uintptr_t)in + i * each; /* only read */
        state[i] = (struct ha_merge_state){ o, o + t->rows * t->width, NULL, t->width, t->width, 1, 1 };
    }
    struct ha_merge m = { .form = HA_FORM_NATURAL,
                          .dtype = HA_F32,
                          .states = state,
                          .states_count = t->parts,
                          .tokens = t->rows,
                          .heads = 1,
                          .dim = t->width,
                          .out = state[0] };
    m.out.o = out;
    m.out.lse = (float *)(void *)out + t->rows * t->width;
    return a->s->api->merge(stream, &m);
}

/* y comes from the input each time */
static enum ha_status blend(struct again *a, struct ha_stream *stream, const char *in, char *out)
{
    const struct call *t = a->of;
    const size_t bytes = t->rows * t->width * sizeof(float);
    const struct ha_device_blend args = { (float *)(void *)out,
                                          (const float *)(const void *)(in + bytes),
                                          t->rows,
                                          t->width,
                                          t->width,
                                          t->width,
                                          0.75f,
                                          0.3f };
    HA_TRY(a->s->api->copy(stream, out, in, bytes, HA_D2D));
    return a->s->api->blend(stream, &args);
}

static enum ha_status move(struct again *a, struct ha_stream *stream, const char *in, char *out)
{
    const size_t bytes = a->of->width * sizeof(float);
    const struct ha_device_move args = { out, in, NULL, NULL, a->of->rows, bytes, bytes, 2 * bytes };
    return a->s->api->move(stream, &args);
}

static enum ha_status enqueue(struct again *a, struct ha_stream *stream, const char *in, char *out)
{
    static enum ha_status (*const run[])(struct again * a, struct ha_stream * stream, const char *in, char *out) = {
        [ATTEND] = attend, [PRODUCTS] = attend, [MERGE] = merge, [BLEND] = blend, [MOVE] = move
    };
    return run[a->of->kind](a, stream, in, out);
}

static size_t in_bytes_of(const struct call *t)
{
    const size_t row = t->rows * t->width * sizeof(float);
    return t->kind == MERGE      ? t->parts * (row + t->rows * sizeof(float))
           : t->kind <= PRODUCTS ? row + 2 * t->batch * t->parts * t->kv_heads * t->width * ha_dtype_bytes(t->dtype)
                                 : 2 * row;
}

static enum ha_status judge_all(struct ha_op_stage *s, enum kind kind)
{
    static const struct {
        const char *what, *over, *parts;
    } names[] = { { "attention", " over ", " keys" },
                  { "attention by products", " over ", " keys" },
                  { "a merge", " of ", " states" },
                  { "a blend", "", "" },
                  { "a move", "", "" } };
    struct ha_device_info info;
    memset(&info, 0, sizeof info);
    s->api->info(s->device, &info);
    const struct ha_merge_traits *merges = &info.merge;
    if (kind == PRODUCTS) HA_TRY(ha_op_no_products(s));
    if (kind == MERGE && (!(merges->forms >> HA_FORM_NATURAL & 1) || !(merges->dtypes >> HA_F32 & 1)))
        return ha_why(s->why, HA_WAIVED, "no natural LSE with o in f32 is merged");
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const struct call *t = &calls[i];
        if (t->kind != kind || (kind == MERGE && merges->states_max && t->parts > merges->states_max)) continue;
        struct again a = { .s = s,
                           .of = t,
                           .in_bytes = in_bytes_of(t),
                           .rows = t->rows,
                           .width = t->width,
                           .lse = kind <= MERGE,
                           .varies = kind == ATTEND     ? info.profile[t->dtype].varies
                                     : kind == PRODUCTS ? info.products[t->dtype].varies
                                                        : kind == MERGE && merges->varies };
        snprintf(a.what, sizeof a.what, "%s of %s, %zu rows of %zu%s%.0zu%s", names[kind].what, ha_dtype_name(t->dtype),
                 t->rows, t->width, names[kind].over, t->parts, names[kind].parts);
        HA_TRY(repeat(&a));
    }
    return HA_OK;
}

#define REPEATED(op, entry, kind, text)                                                                  \
    static enum ha_status judge_##op(struct ha_op_stage *s) { return judge_all(s, kind); }               \
    const struct ha_op ha_op_##op = {                                                                    \
        .name = #op, .doc = text ": the same bits", .needs = { HA_OP_ENTRY(entry) }, .judge = judge_##op \
    };
REPEATED(attend_repeat, attend, ATTEND, "attend over the same input, very often")
REPEATED(products_repeat, attend_products, PRODUCTS, "attend_products over the same input, very often")
REPEATED(merge_repeat, merge, MERGE, "merge of the same states, very often")
REPEATED(blend_repeat, blend, BLEND, "copy within the device and blend, very often")
REPEATED(move_repeat, move, MOVE, "move of the same rows, very often")
