#include "suites/merge/judge.h"

#include "harness/base/claims.h"
#include "harness/base/numeric.h"
#include "harness/base/safetensors.h"
#include "harness/base/why.h"
#include "suites/merge/subject.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { META_MAX = 64, CHUNK_ROWS = 64, CHUNK_ELEMENTS = 1 << 18 };

static const char *const layout_words[] = { "tokens_heads", "heads_tokens", NULL };
static const char *const empty_words[] = { "-inf", "+inf", NULL };

/* The tensors of a file; t % 3 is T_O, T_LSE or T_SUM, of what is merged or of the result. Those of the LSE and of the
 * sum are [states][tokens][heads] or, heads first, [states][heads][tokens]. */
enum { T_O, T_LSE, T_SUM, T_MERGED_O, T_MERGED_LSE, T_MERGED_SUM, T_COUNT };
static const char *const names[T_COUNT] = { "o", "lse", "sum", "merged_o", "merged_lse", "merged_sum" };

static bool is_o(size_t t) { return t % 3 == T_O; }
/* whether such a merge has it */
static bool has(size_t t, const struct ha_merge_shape *s) { return t % 3 != T_SUM || s->form == HA_FORM_MAX_SUM; }

static const char *const fp8_words[] = { "none", "e4m3", "e5m2", NULL };
static const struct type {
    enum ha_tensor_type type;
    const char *name;
    size_t bytes;
} types[] = {
    [HA_F32] = { HA_T_F32, "F32", 4 }, [HA_F16] = { HA_T_F16, "F16", 2 }, [HA_BF16] = { HA_T_BF16, "BF16", 2 },
    { HA_T_F8_E4M3, "F8_E4M3", 1 },    { HA_T_F8_E5M2, "F8_E5M2", 1 },    { HA_T_F64, "F64", 8 }
};
enum { TYPES = sizeof types / sizeof *types };

static const char *type_name(enum ha_tensor_type t)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].type == t) return types[i].name;
    return "of another type";
}

/* of an element */
static const struct type *type_of(size_t t, const struct ha_merge_shape *s)
{
    if (!is_o(t)) return &types[HA_F32];
    return t == T_MERGED_O && s->fp8 ? &types[HA_BF16 + (int)s->fp8] : &types[s->dtype];
}

/* The shape that a tensor must have; returns the number of dimensions. */
static size_t dims_of(size_t t, const struct ha_merge_shape *s, size_t dim[4])
{
    const bool heads_first = !is_o(t) && s->layout == HA_LAYOUT_HEADS_FIRST;
    size_t n = 0;
    if (t < T_MERGED_O) dim[n++] = s->states;
    dim[n++] = heads_first ? s->heads : s->tokens;
    dim[n++] = heads_first ? s->tokens : s->heads;
    if (is_o(t)) dim[n++] = s->dim;
    return n;
}

/* where row r of state m lies in a tensor, in elements */
static size_t element_of(size_t t, const struct ha_merge_shape *s, size_t m, size_t r)
{
    const bool heads_first = s->layout == HA_LAYOUT_HEADS_FIRST;
    const size_t row = !is_o(t) && heads_first ? r % s->heads * s->tokens + r / s->heads : r;
    return (m * s->tokens * s->heads + row) * (is_o(t) ? s->dim : 1);
}

/* ---- writing ----------------------------------------------------------------------------- */

static void gather(const struct ha_batch *b, bool merged, void *const *data, float *o)
{
    const struct ha_merge_shape *s = &b->shape;
    const size_t first = merged ? T_MERGED_O : T_O;
    for (size_t m = 0; m < (merged ? 1 : s->states); m++)
        for (size_t r = 0; r < s->tokens * s->heads; r++) {
            float lse, sum;
            ha_batch_get(b, merged ? HA_RESULT : m, r, o, &lse, &sum);
            char *to = (char *)data[first] + element_of(first, s, m, r) * type_of(first, s)->bytes;
            if (merged && s->fp8) ha_fp8_store_row(to, s->dim, s->fp8, 1, o);
            else ha_store_row(to, s->dim, s->dtype, o);
            ((float *)data[first + 1])[element_of(first + 1, s, m, r)] = lse;
            if (data[first + 2]) ((float *)data[first + 2])[element_of(first + 2, s, m, r)] = sum;
        }
}

enum ha_status ha_replay_write(const char *path, const struct ha_batch *b, bool answered, const char *const *meta,
                               struct ha_why *why)
{
    const struct ha_merge_shape *s = &b->shape;
    const char *all[META_MAX + 1] = { "form",       ha_form_name(s->form),
                                      "order",      ha_order_name(s->order),
                                      "lse_layout", layout_words[s->layout == HA_LAYOUT_HEADS_FIRST],
                                      "empty",      empty_words[s->plus_inf],
                                      "fp8",        ha_fp8_name(s->fp8) };
    char scale[32];
    size_t n = 10;
    snprintf(scale, sizeof scale, "%.9g", (double)ha_batch_scale(b));
    if (s->fp8) all[n++] = "fp8_scale", all[n++] = scale;
    for (; meta && meta[0] && n + 2 <= META_MAX; meta += 2) {
        all[n++] = meta[0];
        all[n++] = meta[1];
    }
    struct ha_tensor list[T_COUNT];
    void *data[T_COUNT] = { NULL };
    size_t count = 0;
    float *o = malloc(s->dim * sizeof *o);
    bool memory = o != NULL;
    for (size_t t = 0; t < T_COUNT; t++) {
        if ((t >= T_MERGED_O && !answered) || !has(t, s)) continue;
        struct ha_tensor *x = &list[count++];
        *x = (struct ha_tensor){ .name = names[t], .type = type_of(t, s)->type };
        x->dims = dims_of(t, s, x->dim);
        x->bytes = type_of(t, s)->bytes;
        for (size_t i = 0; i < x->dims; i++) x->bytes *= x->dim[i];
        x->data = data[t] = malloc(x->bytes + 1);
        memory = memory && data[t];
    }
    enum ha_status st = memory ? HA_OK : ha_why(why, HA_ERROR, "%s: no memory to write it", path);
    if (st == HA_OK) {
        gather(b, false, data, o);
        if (answered) gather(b, true, data, o);
        st = ha_safetensors_write(path, list, count, all, why);
    }
    for (size_t t = 0; t < T_COUNT; t++) free(data[t]);
    free(o);
    return st;
}

/* ---- reading ----------------------------------------------------------------------------- */

struct dims_text {
    char text[8 * 22 + 3];
};
static struct dims_text dims_text(const size_t *dim, size_t dims)
{
    struct dims_text t = { "[" };
    size_t at = 1;
    for (size_t i = 0; i < dims; i++)
        at += (size_t)snprintf(t.text + at, sizeof t.text - at, "%s%zu", i ? ", " : "", dim[i]);
    snprintf(t.text + at, sizeof t.text - at, "]");
    return t;
}

/* Tensor t as a shape needs it. */
static enum ha_status tensor_find(const struct ha_safetensors *file, size_t t, const struct ha_merge_shape *s,
                                  const struct ha_tensor **out, struct ha_why *why)
{
    const struct ha_tensor *x = *out = ha_safetensors_find(file, names[t]);
    const enum ha_tensor_type type = type_of(t, s)->type;
    size_t dim[4], dims = dims_of(t, s, dim);
    if (!x)
        return ha_why(why, HA_ERROR, "there is no tensor '%s', %s %s", names[t], type_name(type),
                      dims_text(dim, dims).text);
    if (x->type != type || x->dims != dims || memcmp(x->dim, dim, dims * sizeof *dim) != 0)
        return ha_why(why, HA_ERROR, "tensor '%s' is %s %s; it must be %s %s", names[t], type_name(x->type),
                      dims_text(x->dim, x->dims).text, type_name(type), dims_text(dim, dims).text);
    return HA_OK;
}

/* Row r of state m in a tensor, which may lie unaligned in the file, becomes row `at` of a state in memory. */
static void scatter(const struct ha_tensor *x, size_t t, const struct ha_merge_shape *file, size_t m, size_t r,
                    const struct ha_merge_state *to, const struct ha_merge_shape *s, size_t at)
{
    const size_t e = type_of(t, s)->bytes, token = at / s->heads, head = at % s->heads;
    const char *from = (const char *)x->data + element_of(t, file, m, r) * e;
    const size_t lse = token * to->lse_token_stride + head * to->lse_head_stride;
    if (is_o(t)) memcpy((char *)to->o + (token * to->o_token_stride + head * to->o_head_stride) * e, from, s->dim * e);
    else memcpy((t % 3 == T_LSE ? to->lse : to->sum) + lse, from, e);
}

enum ha_status ha_replay_read_answer(const char *path, struct ha_batch *b, struct ha_why *why)
{
    const struct ha_merge_shape *s = &b->shape;
    struct ha_safetensors *file;
    const struct ha_tensor *x[T_COUNT] = { NULL };
    HA_TRY(ha_safetensors_open(&file, path, why));
    enum ha_status st = HA_OK;
    for (size_t t = T_MERGED_O; t < T_COUNT && st == HA_OK; t++)
        if (has(t, s)) st = tensor_find(file, t, s, &x[t], why);
    for (size_t t = T_MERGED_O; t < T_COUNT && st == HA_OK; t++)
        for (size_t r = 0; x[t] && r < s->tokens * s->heads; r++) scatter(x[t], t, s, 0, r, &b->out, s, r);
    ha_safetensors_close(file);
    return st == HA_OK ? HA_OK : ha_why_prefix(why, st, "%s", path);
}

/* ---- judging ----------------------------------------------------------------------------- */

struct replay {
    struct ha_merge_shape shape;
    struct ha_merge_traits traits;
    double fp8_scale;
    const struct ha_tensor *x[T_COUNT];
};

/* a key of the metadata, one of words; missing: the first */
static enum ha_status word_read(const struct ha_safetensors *file, const char *key, const char *const *words,
                                size_t *out, struct ha_why *why)
{
    const char *value = ha_safetensors_meta(file, key);
    *out = 0;
    if (!value || ha_word_find(key, value, words, out, why) == HA_OK) return HA_OK;
    return ha_why_prefix(why, HA_ERROR, "__metadata__");
}

static enum ha_status eps_read(const struct ha_safetensors *file, const char *key, double most, double *out,
                               struct ha_why *why)
{
    const char *value = ha_safetensors_meta(file, key);
    *out = 0x1p-23;
    if (!value || ha_number_parse(key, value, most, out, why) == HA_OK) return HA_OK;
    return ha_why_prefix(why, HA_ERROR, "__metadata__");
}

/* Of an 8-bit result, which is merged at once. */
static enum ha_status scale_read(const struct ha_safetensors *file, const struct ha_merge_shape *s, double *out,
                                 struct ha_why *why)
{
    const char *value = ha_safetensors_meta(file, "fp8_scale");
    if (s->order != HA_ORDER_FLAT)
        return ha_why(why, HA_ERROR, "__metadata__: fp8 is %s, and order is %s; only flat merges have 8-bit results",
                      ha_fp8_name(s->fp8), ha_order_name(s->order));
    if (!value) return ha_why(why, HA_ERROR, "__metadata__: fp8 is %s, and there is no fp8_scale", ha_fp8_name(s->fp8));
    if (ha_number_parse("fp8_scale", value, (double)FLT_MAX, out, why) != HA_OK)
        return ha_why_prefix(why, HA_ERROR, "__metadata__");
    return (float)*out > 0 ? HA_OK : ha_why(why, HA_ERROR, "__metadata__: fp8_scale is 0, or less than a float can be");
}

/* The shape, from tensor o. */
static enum ha_status shape_read(const struct ha_safetensors *file, struct ha_merge_shape *s, struct ha_why *why)
{
    static const struct {
        const char *what;
        size_t max;
    } limit[4] = {
        { "states", HA_STATES_MAX }, { "tokens", SIZE_MAX }, { "heads", SIZE_MAX }, { "dim", HA_REF_DIM_MAX }
    };
    const struct ha_tensor *o = ha_safetensors_find(file, "o");
    if (!o) return ha_why(why, HA_ERROR, "there is no tensor 'o', [states][tokens][heads][dim], F32, F16 or BF16");
    size_t type = 0;
    while (type < HA_DTYPE_COUNT && types[type].type != o->type) type++;
    if (type == HA_DTYPE_COUNT)
        return ha_why(why, HA_ERROR, "tensor 'o' is %s; it must be F32, F16 or BF16", type_name(o->type));
    s->dtype = (enum ha_dtype)type;
    if (o->dims != 4)
        return ha_why(why, HA_ERROR, "tensor 'o' is %s; it must have four dimensions, [states][tokens][heads][dim]",
                      dims_text(o->dim, o->dims).text);
    for (size_t i = 0; i < 4; i++) {
        if (!o->dim[i])
            return ha_why(why, HA_ERROR, "tensor 'o' is %s: no %s", dims_text(o->dim, 4).text, limit[i].what);
        if (o->dim[i] > limit[i].max)
            return ha_why(why, HA_ERROR, "tensor 'o' is %s: %zu %s, and %zu are the most", dims_text(o->dim, 4).text,
                          o->dim[i], limit[i].what, limit[i].max);
    }
    s->states = o->dim[0];
    s->tokens = o->dim[1];
    s->heads = o->dim[2];
    s->dim = o->dim[3];
    return HA_OK;
}

static enum ha_status replay_read(const struct ha_safetensors *file, struct replay *p, struct ha_why *why)
{
    struct ha_merge_shape *s = &p->shape;
    size_t form, order, layout, empty, fp8;
    *p = (struct replay){ .fp8_scale = 1, .traits = { .forms = 15u, .dtypes = 7u, .aliases = 7u } };
    HA_TRY(word_read(file, "form", ha_form_words, &form, why));
    HA_TRY(word_read(file, "order", ha_order_words, &order, why));
    HA_TRY(word_read(file, "lse_layout", layout_words, &layout, why));
    HA_TRY(word_read(file, "empty", empty_words, &empty, why));
    HA_TRY(word_read(file, "fp8", fp8_words, &fp8, why));
    HA_TRY(eps_read(file, "exp_eps", HA_EXP_EPS_MAX, &p->traits.exp_eps, why));
    HA_TRY(eps_read(file, "log_eps", HA_LOG_EPS_MAX, &p->traits.log_eps, why));
    HA_TRY(shape_read(file, s, why));
    s->form = (enum ha_form)form;
    s->order = (enum ha_order)order;
    s->layout = layout ? HA_LAYOUT_HEADS_FIRST : HA_LAYOUT_PACKED;
    s->plus_inf = empty == 1;
    s->fp8 = (enum ha_fp8)fp8;
    if (fp8) HA_TRY(scale_read(file, s, &p->fp8_scale, why));
    for (size_t t = T_O; t < T_COUNT; t++)
        if (has(t, s)) HA_TRY(tensor_find(file, t, s, &p->x[t], why));
    return HA_OK;
}

/* `count` rows from row `first` on, as tokens of one head */
static enum ha_status rows_judge(const struct replay *p, size_t first, size_t count, struct ha_merge_trial *trial,
                                 struct ha_judgement *j, struct ha_why *why)
{
    struct ha_merge_shape s = p->shape;
    s.tokens = count;
    s.heads = 1;
    s.layout = HA_LAYOUT_PACKED;
    HA_TRY(ha_merge_trial_open(trial, &s, NULL, why));
    struct ha_batch *b = trial->batch;
    for (size_t r = 0; r < count; r++)
        for (size_t m = 0; m < s.states; m++)
            for (size_t t = T_O; t < T_MERGED_O; t++)
                if (p->x[t]) scatter(p->x[t], t, &p->shape, m, first + r, &b->in[m], &s, r);
    ha_batch_seal(b);
    if (s.fp8) ha_batch_set_scale(b, (float)p->fp8_scale);
    for (size_t r = 0; r < count; r++)
        for (size_t t = T_MERGED_O; t < T_COUNT; t++)
            if (p->x[t]) scatter(p->x[t], t, &p->shape, 0, first + r, &b->out, &s, r);
    struct ha_judgement here = ha_merge_trial_judge(trial, HA_MUST_BOUND, &p->traits);
    here.row += first;
    ha_judgement_join(j, &here);
    return HA_OK;
}

static enum ha_status replay_judge(const struct ha_safetensors *file, struct ha_merge_shape *shape,
                                   struct ha_judgement *j, struct ha_why *why)
{
    struct replay p;
    struct ha_merge_trial trial = { .batch = NULL };
    HA_TRY(replay_read(file, &p, why));
    *shape = p.shape;
    const size_t rows = p.shape.tokens * p.shape.heads, fit = CHUNK_ELEMENTS / (p.shape.states * p.shape.dim);
    const size_t most = fit < 1 ? 1 : fit < CHUNK_ROWS ? fit : CHUNK_ROWS;
    enum ha_status st = HA_OK;
    for (size_t r = 0; r < rows && st == HA_OK; r += most)
        st = rows_judge(&p, r, rows - r < most ? rows - r : most, &trial, j, why);
    ha_merge_trial_close(&trial);
    return st == HA_OK ? j->status : st;
}

enum ha_status ha_replay_judge(const char *path, struct ha_merge_shape *shape, struct ha_judgement *j,
                               struct ha_why *why)
{
    struct ha_safetensors *file;
    *shape = (struct ha_merge_shape){ 0 };
    *j = (struct ha_judgement){ .status = HA_OK };
    HA_TRY(ha_safetensors_open(&file, path, why));
    const enum ha_status st = replay_judge(file, shape, j, why);
    ha_safetensors_close(file);
    return st == HA_ERROR ? ha_why_prefix(why, st, "%s", path) : st;
}
