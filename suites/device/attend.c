/* Attention: within the bound that follows from what the device claims of itself, and nothing is written beside the
 * results. */

#include "suites/device/stage.h"

#include "harness/base/numeric.h"
#include "harness/base/seq_attend.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    size_t batch, q_len, kv_heads, group, dim, keys; /* keys of the first sequence; the others have fewer */
    size_t runs, block, pad;                         /* block: 0: no index; pad: bytes between the rows of two keys */
    bool causal, weights, empty;                     /* empty: the last sequence has no keys */
};
static const struct shape shapes[] = {
    { 1, 1, 1, 1, 8, 140000, 1, 0, 0, false, true, false },  { 2, 1, 1, 3, 160, 66, 1, 0, 0, false, false, false },
    { 1, 5, 1, 1, 200, 48, 2, 0, 0, true, true, false },     { 1, 1, 20, 1, 40, 70, 1, 0, 0, false, false, false },
    { 1, 1, 1, 1, 8, 1, 1, 0, 0, false, true, false },       { 1, 1, 2, 4, 64, 300, 2, 0, 0, true, false, false },
    { 3, 1, 2, 3, 24, 97, 2, 0, 8, false, true, true },      { 2, 4, 2, 5, 80, 130, 3, 0, 0, true, true, false },
    { 1, 1, 1, 7, 128, 1025, 1, 0, 0, false, false, false }, { 1, 17, 1, 2, 96, 64, 1, 0, 16, true, false, false },
    { 17, 1, 1, 1, 16, 40, 1, 0, 0, false, false, true },    { 1, 1, 2, 8, 256, 257, 4, 0, 0, true, true, false },
    { 1, 1, 1, 2, 64, 4200, 2, 0, 0, false, true, false },   { 2, 3, 20, 1, 40, 33, 1, 0, 0, false, false, false },
    { 1, 2, 1, 16, 192, 63, 1, 0, 0, true, false, false },   { 4, 1, 4, 4, 64, 129, 1, 0, 24, true, true, false },
};
static const struct shape indexed[] = {
    { 1, 1, 1, 1, 8, 40000, 1, 1, 0, false, false, false }, { 1, 1, 1, 2, 16, 40000, 1, 32, 0, false, true, false },
    { 1, 1, 2, 4, 64, 300, 1, 1, 0, false, true, false },   { 2, 1, 1, 5, 128, 333, 2, 16, 0, false, false, false },
    { 3, 4, 2, 1, 80, 65, 1, 7, 8, true, false, false },    { 1, 1, 1, 7, 64, 4200, 1, 64, 0, false, true, false },
};
static const struct shape plain[] = {
    /* of attend_products */
    { 1, 1, 1, 4, 64, 200, 1, 0, 0, true, false, false }, { 1, 5, 2, 3, 24, 37, 1, 0, 6, true, false, false },
    { 2, 3, 8, 1, 16, 64, 3, 0, 0, true, false, false },  { 3, 4, 1, 2, 8, 10, 2, 0, 0, false, false, false },
    { 5, 1, 2, 2, 128, 300, 2, 0, 0, true, false, true },
};

/* One array of inputs and one of outputs, laid out by offsets that hold for the device and the image alike. */
struct problem {
    const struct shape *shape;
    enum ha_dtype dtype;
    struct ha_op_block *in, *out;
    struct ha_device_seq there[HA_OP_BATCH], here[HA_OP_BATCH]; /* in the device's memory, in the images */
    struct ha_device_attend args;
    size_t in_bytes, out_bytes, keys[HA_OP_BATCH];
    bool rounded; /* queries are exact in the type */
};

static size_t room(size_t *at, size_t bytes)
{
    const size_t here = (*at + 15) / 16 * 16;
    *at = here + bytes + 16;
    return here;
}

/* Twice: without blocks for the sizes, then with them. */
static enum ha_status lay(struct ha_op_stage *s, struct problem *p)
{
    const struct shape *h = p->shape;
    const size_t heads = h->kv_heads * h->group, e = ha_dtype_bytes(p->dtype), row = h->dim * e,
                 stride = h->kv_heads * row + h->pad / e * e, block = h->block ? h->block : 1;
    size_t in = 0, out = 0;
    for (size_t b = 0; b < h->batch; b++) {
        struct ha_device_seq *t = &p->there[b], *m = &p->here[b];
        const bool none = h->empty && b + 1 == h->batch;
        const size_t keys = none ? 0 : h->keys > 5 * b + h->q_len ? h->keys - 5 * b : h->q_len;
        const size_t q = room(&in, h->q_len * heads * h->dim * sizeof(float)),
                     o = room(&out, h->q_len * heads * h->dim * sizeof(float)),
                     lse = room(&out, h->q_len * heads * sizeof(float));
        p->keys[b] = keys;
        *t = *m = (struct ha_device_seq){
            .runs_count = h->runs, .k_head_bytes = row, .v_head_bytes = row, .weights_stride = keys + 3
        };
        const size_t weights = h->weights ? room(&out, heads * (keys + 3) * sizeof(float)) : 0;
        for (size_t r = 0, left = keys; r < h->runs; r++) {
            const size_t last = h->causal && !none ? h->q_len : 0, n = r + 1 == h->runs ? left : (left - last) / 2;
            const size_t blocks = (n + block - 1) / block, rows = h->block ? 2 * blocks * block : n;
            const size_t k = room(&in, rows * stride), v = room(&in, rows * stride),
                         index = room(&in, blocks * sizeof(uint32_t));
            left -= n;
            t->runs[r] = m->runs[r] = (struct ha_rows){ .k_stride_bytes = stride, .v_stride_bytes = stride, .keys = n };
            if (!p->in) continue;
            t->runs[r].k = p->in->at + k;
            t->runs[r].v = p->in->at + v;
            m->runs[r].k = p->in->image + k;
            m->runs[r].v = p->in->image + v;
            memset(p->in->image + k, 0xFF, rows * stride); /* NaN where no key is */
            memset(p->in->image + v, 0xFF, rows * stride);
            uint32_t *list = (uint32_t *)(void *)(p->in->image + index);
            for (size_t i = 0; i < blocks; i++) list[i] = (uint32_t)(2 * (blocks - 1 - i) + ha_op_draw(s, 2));
            for (size_t i = 0; i < n; i++) {
                const size_t to = h->block ? list[i / block] * block + i % block : i;
                ha_op_numbers(s, p->in->image + k + to * stride, h->kv_heads * h->dim, p->dtype);
                ha_op_numbers(s, p->in->image + v + to * stride, h->kv_heads * h->dim, p->dtype);
            }
            if (!h->block) continue;
            t->runs[r].index = (const uint32_t *)(const void *)(p->in->at + index);
            m->runs[r].index = list;
        }
        if (!p->in) continue;
        float *queries = (float *)(void *)(p->in->image + q);
        ha_op_numbers(s, queries, h->q_len * heads * h->dim, HA_F32);
        for (size_t i = 0; p->rounded && i < h->q_len * heads * h->dim; i++)
            queries[i] = ha_round(queries[i], p->dtype);
        t->q = (const float *)(const void *)(p->in->at + q);
        m->q = queries;
        t->o = (float *)(void *)(p->out->at + o);
        m->o = (float *)(void *)(p->out->image + o);
        t->lse = (float *)(void *)(p->out->at + lse);
        m->lse = (float *)(void *)(p->out->image + lse);
        t->weights = h->weights ? (float *)(void *)(p->out->at + weights) : NULL;
        m->weights = h->weights ? (float *)(void *)(p->out->image + weights) : NULL;
    }
    p->in_bytes = in;
    p->out_bytes = out;
    return HA_OK;
}

typedef enum ha_status attend_fn(struct ha_stream *stream, const struct ha_device_attend *args);

/* of o and LSE, and of weights */
struct held {
    struct ha_chances rows, weights;
};
/* numbers of K that those rows of a KV head are of which are held against chance, if more than two */
enum { HELD_NUMBERS = 1 << 18 };

static enum ha_status judge_head(struct ha_op_stage *s, struct problem *p, const char *name,
                                 const struct ha_profile *profile, size_t b, size_t head, struct held *held)
{
    const struct shape *h = p->shape;
    struct ha_rows runs[HA_RUNS_MAX];
    struct ha_answer want;
    struct ha_attend a = ha_seq_attend(&p->args, &p->here[b], head, runs);
    a.block = p->args.block;
    void *memory = malloc(2 * p->keys[b] * h->dim * ha_dtype_bytes(p->dtype) + 1);
    if (!memory) return ha_why(s->why, HA_ERROR, "out of memory");
    const struct ha_rows rows = ha_ref_plain_rows(&a, memory);
    a.runs_count = HA_RUNS_MAX; /* the device joins its parts as it likes */
    enum ha_status status = ha_answer_make(&want, &a, &rows, profile, 0, s->why);
    if (status != HA_OK) {
        free(memory);
        return status;
    }
    const struct ha_answer_error e = ha_answer_judge(&want, &a);
    struct ha_answer_error w = { .ratio = 0 };
    if (h->weights) w = ha_answer_judge_weights(&want, &a);
    const bool right = e.ratio <= 1 && w.ratio <= 1;
    if (right)
        status = ha_answer_hold(&want, &a, &rows, HELD_NUMBERS / (rows.keys * h->dim + 1) + 2, &held->rows,
                                &held->weights, s->why);
    free(memory);
    ha_answer_free(&want);
    s->cases++;
    if (right) return status;
    const struct ha_answer_error *bad = e.ratio <= 1 ? &w : &e;
    return ha_op_wrong(s,
                       "%s of %s, %zu sequences, %zu queries, %zu KV heads of %zu, head_dim %zu, %zu keys: sequence "
                       "%zu, KV head %zu, row %zu, %s %zu is %.9g, want %.9g, bound %.3g%s%s",
                       name, ha_dtype_name(p->dtype), h->batch, h->q_len, h->kv_heads, h->group, h->dim, h->keys, b,
                       head, bad->row,
                       bad == &w           ? "weight"
                       : bad->at == h->dim ? "LSE, element"
                                           : "element of o",
                       bad->at, bad->got, bad->want, bad->bound, bad->type ? ", and no number of type " : "",
                       bad->type ? bad->type : "");
}

static enum ha_status attend_once(struct ha_op_stage *s, const char *name, attend_fn *attend, const struct shape *h,
                                  enum ha_dtype dtype, const struct ha_profile *profile, bool rounded, bool *refused)
{
    static struct problem p;
    p = (struct problem){ .shape = h, .dtype = dtype, .rounded = rounded };
    ha_op_clear(s);
    HA_TRY(lay(s, &p));
    struct ha_op_block *in = ha_op_block(s, HA_OP_DEVICE, p.in_bytes),
                       *out = in ? ha_op_block(s, HA_OP_DEVICE, p.out_bytes) : NULL;
    if (!out) return HA_ERROR;
    memset(in->image, 0, in->bytes);
    p.in = in;
    p.out = out;
    HA_TRY(lay(s, &p));
    HA_TRY(ha_op_put(s, in, 0, in->bytes));
    HA_TRY(ha_op_fill(s, out, 0, out->bytes));
    struct ha_device_seq seqs[HA_OP_BATCH];
    memcpy(seqs, p.there, sizeof seqs);
    p.args = (struct ha_device_attend){ h->batch, h->q_len, h->kv_heads * h->group,   h->kv_heads,
                                        h->dim,   dtype,    1 / sqrtf((float)h->dim), h->causal && !h->empty,
                                        seqs,     h->block };
    struct ha_device_attend args = p.args;
    HA_TRY(ha_op_shut(s, s->stream[0]));
    const enum ha_status asked = attend(s->stream[0], &args);
    memset(seqs, 0, sizeof seqs);
    memset(&args, 0, sizeof args);
    ha_op_open(s);
    *refused = asked != HA_OK;
    HA_TRY(ha_op_failed(s, name, asked));
    HA_OP(s, stream_sync, s->stream[0]);
    char *before = malloc(out->bytes);
    enum ha_status status = before ? HA_OK : ha_why(s->why, HA_ERROR, "out of memory");
    if (status == HA_OK) memcpy(before, out->image, out->bytes);
    if (status == HA_OK) status = ha_op_get(s, out, 0, out->bytes, out->image);
    struct held held = { .rows = { 0 } };
    for (size_t b = 0; status == HA_OK && b < h->batch; b++)
        for (size_t head = 0; status == HA_OK && head < h->kv_heads; head++)
            status = judge_head(s, &p, name, profile, b, head, &held);
    ha_suspect_add(&s->suspect, &held.rows, "%s of %s, head_dim %zu, %zu keys", name, ha_dtype_name(dtype), h->dim,
                   h->keys);
    ha_suspect_add(&s->suspect, &held.weights, "weights of %s of %s, head_dim %zu, %zu keys", name,
                   ha_dtype_name(dtype), h->dim, h->keys);
    /* with the results put back to what was there before, all is as it was */
    const size_t heads = h->kv_heads * h->group, rows = h->q_len * heads;
    for (size_t b = 0; status == HA_OK && b < h->batch; b++) {
        struct ha_device_seq *m = &p.here[b];
        memcpy(m->o, before + ((char *)m->o - out->image), rows * h->dim * sizeof(float));
        memcpy(m->lse, before + ((char *)m->lse - out->image), rows * sizeof(float));
        for (size_t g = 0; m->weights && g < heads; g++) {
            char *at = (char *)(m->weights + g * m->weights_stride);
            memcpy(at, before + (at - out->image), p.keys[b] * sizeof(float));
        }
    }
    if (status == HA_OK && memcmp(before, out->image, out->bytes) != 0)
        status = ha_op_wrong(s, "%s of %s, head_dim %zu, %zu keys: wrote where no result belongs", name,
                             ha_dtype_name(dtype), h->dim, h->keys);
    free(before);
    return status;
}

/* K of one sequence is of at most this many times the bytes of the largest copy: who asks for small copies gets all
 * shapes, the longest of them with fewer keys. */
enum { COPIES_OF_K = 4 };

static struct shape within(const struct ha_op_stage *s, const struct shape *shape, enum ha_dtype dtype)
{
    struct shape h = *shape;
    const size_t most = COPIES_OF_K * s->most / (h.kv_heads * h.dim * ha_dtype_bytes(dtype));
    if (h.keys > most && most > h.q_len) h.keys = most;
    return h;
}

static enum ha_status attend_all(struct ha_op_stage *s, const char *name, attend_fn *attend, const struct shape *shape,
                                 size_t count, bool products, bool *refused)
{
    struct ha_device_info info;
    memset(&info, 0, sizeof info);
    s->api->info(s->device, &info);
    for (size_t i = 0; i < count; i++)
        for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
            const struct shape h = within(s, &shape[i], (enum ha_dtype)t);
            HA_TRY(attend_once(s, name, attend, &h, (enum ha_dtype)t, products ? &info.products[t] : &info.profile[t],
                               products, refused));
        }
    return HA_OK;
}

/* One case; block: of an index, 0: none. */
static enum ha_status one(struct ha_op_stage *s, const char *name, attend_fn *attend, const struct ha_op_case *c,
                          size_t block, bool products, bool *refused)
{
    const struct shape h = { c->batch, c->q_len, c->kv_heads, c->group,       c->head_dim,     c->keys,
                             c->runs,  block,    c->pad,      c->causal != 0, c->weights != 0, c->empty != 0 };
    struct ha_device_info info;
    memset(&info, 0, sizeof info);
    s->api->info(s->device, &info);
    return attend_once(s, name, attend, &h, (enum ha_dtype)c->dtype,
                       products ? &info.products[c->dtype] : &info.profile[c->dtype], products, refused);
}
#define SHAPE "dtype batch q_len kv_heads group head_dim keys runs pad causal empty"

static enum ha_status judge_attend(struct ha_op_stage *s)
{
    bool refused;
    return attend_all(s, "attend", s->api->attend, shapes, sizeof shapes / sizeof *shapes, false, &refused);
}
static enum ha_status attend_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    bool refused;
    return one(s, "attend", s->api->attend, c, 0, false, &refused);
}
const struct ha_op ha_op_attend = {
    .name = "attend",
    .doc = "o, LSE and weights of batches, against binary64",
    .needs = { HA_OP_ENTRY(attend) },
    .judge = judge_attend,
    .keys = SHAPE " weights",
    .once = attend_case,
};

/* A device that refuses an index in the call, and says so, is not wrong. */
static enum ha_status unless_refused(struct ha_op_stage *s, enum ha_status status, bool refused)
{
    return refused ? ha_why(s->why, HA_WAIVED, "the device refuses an index: %.400s", s->api->failure(s->device))
                   : status;
}
static enum ha_status judge_attend_index(struct ha_op_stage *s)
{
    bool refused = false;
    const enum ha_status status = attend_all(s, "attend", s->api->attend, indexed, sizeof indexed / sizeof *indexed,
                                             false, &refused);
    return unless_refused(s, status, refused);
}
static enum ha_status attend_index_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    bool refused = false;
    const enum ha_status status = one(s, "attend", s->api->attend, c, c->block, false, &refused);
    return unless_refused(s, status, refused);
}
const struct ha_op ha_op_attend_index = {
    .name = "attend_index",
    .doc = "the same of keys that an index names, by rows and blocks",
    .needs = { HA_OP_ENTRY(attend) },
    .judge = judge_attend_index,
    .keys = SHAPE " weights block",
    .once = attend_index_case,
};

static enum ha_status judge_attend_products(struct ha_op_stage *s)
{
    bool refused;
    HA_TRY(ha_op_no_products(s));
    return attend_all(s, "attend_products", s->api->attend_products, plain, sizeof plain / sizeof *plain, true,
                      &refused);
}
static enum ha_status attend_products_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    bool refused;
    HA_TRY(ha_op_no_products(s));
    return one(s, "attend_products", s->api->attend_products, c, 0, true, &refused);
}
const struct ha_op ha_op_attend_products = {
    .name = "attend_products",
    .doc = "o and LSE by products of a library",
    .needs = { HA_OP_ENTRY(attend_products) },
    .judge = judge_attend_products,
    .keys = SHAPE,
    .once = attend_products_case,
};
