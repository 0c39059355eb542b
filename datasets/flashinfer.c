#include "datasets/flashinfer_file.h"
#include "datasets/source.h"
#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One layer and one step of a serving engine: the lengths of a batch and where its keys lie in the cache. Values that
 * the workload does not bring are noise of the row of the cache where they would lie, so that sequences that share
 * pages share keys. */

struct rows {
    const char *data; /* [rows][heads][head_dim], at any alignment; NULL: noise */
    enum ha_dtype stored;
    enum ha_purpose noise;
    size_t heads;
};

struct source {
    struct ha_source base;
    struct ha_fi_file file;
    struct rows q, k, v;
    uint32_t *page; /* the pages of all sequences in their order; NULL: rows lie one after another */
    struct {
        size_t first;   /* of its pages in `page`, or of its rows */
        size_t q_first; /* row of its first new query */
        size_t index;   /* in the workload */
    } seq[HA_BATCH_MAX];
};

static struct source *of(struct ha_source *src) { return (struct source *)(void *)src; }

/* What is made while a workload is opened. */
struct opening {
    const struct ha_fi_name *name;
    struct ha_fi_file file;
    size_t *q_at, *kv_at; /* [sequences + 1]: where each begins, as the indptr say; q_at NULL: each has one query */
    size_t sequences;     /* of the workload */
    size_t chosen[HA_BATCH_MAX], batch;
    struct ha_shape shape;
    struct ha_why *why;
};

/* ---- its sequences ----------------------------------------------------------------------------------------------- */

static int64_t index_at(const struct ha_tensor *t, size_t i)
{
    int32_t narrow;
    int64_t wide;
    if (t->type == HA_T_I64) return memcpy(&wide, (const char *)t->data + i * sizeof wide, sizeof wide), wide;
    return memcpy(&narrow, (const char *)t->data + i * sizeof narrow, sizeof narrow), narrow;
}

/* 0 first, never falling, at most `most` last: so many things called `of` there are. */
static enum ha_status indptr_read(struct opening *o, enum ha_fi_input i, size_t most, const char *of, size_t **out)
{
    const struct ha_fi_value *v = &o->file.input[i];
    size_t *at = *out = malloc((v->count + 1) * sizeof *at);
    if (!at) return ha_why(o->why, HA_ERROR, "out of memory");
    if (v->count < 2) return ha_why(o->why, HA_ERROR, "%s has %zu entries: there is no sequence", v->name, v->count);
    for (size_t b = 0; b < v->count; b++) {
        const int64_t x = index_at(v->tensor, b);
        if (b == 0 ? x != 0 : x < (int64_t)at[b - 1])
            return ha_why(o->why, HA_ERROR, "%s[%zu] is %lld: it begins at 0 and never falls", v->name, b,
                          (long long)x);
        if ((uint64_t)x > most)
            return ha_why(o->why, HA_ERROR, "%s[%zu] is %lld, and there are %zu %s", v->name, b, (long long)x, most,
                          of);
        at[b] = (size_t)x;
    }
    return HA_OK;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static enum ha_status indptrs_read(struct opening *o)
{
    const struct ha_fi_value *in = o->file.input;
    const size_t keys = o->file.is_paged ? in[HA_FI_KV_INDICES].count : least(in[HA_FI_K].count, in[HA_FI_V].count);
    HA_TRY(indptr_read(o, HA_FI_KV_INDPTR, keys, o->file.is_paged ? "kv_indices" : "keys", &o->kv_at));
    o->sequences = in[HA_FI_KV_INDPTR].count - 1;
    if (in[HA_FI_QO_INDPTR].kind == HA_FI_TENSOR) {
        HA_TRY(indptr_read(o, HA_FI_QO_INDPTR, in[HA_FI_Q].count, "queries", &o->q_at));
        if (in[HA_FI_QO_INDPTR].count != in[HA_FI_KV_INDPTR].count)
            return ha_why(o->why, HA_ERROR, "qo_indptr has %zu entries, kv_indptr %zu", in[HA_FI_QO_INDPTR].count,
                          in[HA_FI_KV_INDPTR].count);
    } else if (in[HA_FI_Q].count < o->sequences) {
        return ha_why(o->why, HA_ERROR, "q has %zu rows for %zu sequences", in[HA_FI_Q].count, o->sequences);
    }
    if (in[HA_FI_LAST_PAGE_LEN].kind == HA_FI_TENSOR && in[HA_FI_LAST_PAGE_LEN].count < o->sequences)
        return ha_why(o->why, HA_ERROR, "kv_last_page_len has %zu entries for %zu sequences",
                      in[HA_FI_LAST_PAGE_LEN].count, o->sequences);
    return HA_OK;
}

/* "0-3+7": whole numbers and ranges, rising */
static enum ha_status sequences_choose(struct opening *o)
{
    const char *p = o->name->sequences;
    if (!*p && o->sequences > HA_BATCH_MAX)
        return ha_why(o->why, HA_ERROR, "has %zu sequences, a batch at most %d: choose, as in FILE@%.40s:0-%d",
                      o->sequences, HA_BATCH_MAX, o->name->workload, HA_BATCH_MAX - 1);
    for (o->batch = 0; !*p && o->batch < o->sequences; o->batch++) o->chosen[o->batch] = o->batch;
    while (*p) {
        char *end = NULL;
        unsigned long long first = strspn(p, "0123456789") ? strtoull(p, &end, 10) : 0, last = first;
        if (end && *end == '-') last = strspn(p = end + 1, "0123456789") ? strtoull(p, &end, 10) : 0;
        if (!end || (*end && (*end != '+' || !end[1])) || last < first
            || (o->batch && first <= o->chosen[o->batch - 1]))
            return ha_why(o->why, HA_ERROR, "sequences '%.60s' are not as 0-3+7, rising", o->name->sequences);
        if (last >= o->sequences)
            return ha_why(o->why, HA_ERROR, "there is no sequence %llu: it has %zu, and the first is 0", last,
                          o->sequences);
        if (last - first >= HA_BATCH_MAX - o->batch)
            return ha_why(o->why, HA_ERROR, "sequences '%.60s' are more than the %d of a batch", o->name->sequences,
                          HA_BATCH_MAX);
        for (; first <= last; first++) o->chosen[o->batch++] = (size_t)first;
        p = *end ? end + 1 : end;
    }
    return HA_OK;
}

/* How many keys a sequence has, its new ones included. */
static enum ha_status keys_count(const struct opening *o, size_t s, size_t *out)
{
    const struct ha_fi_value *last = &o->file.input[HA_FI_LAST_PAGE_LEN];
    const size_t rows = *out = o->kv_at[s + 1] - o->kv_at[s];
    if (rows == 0 || last->kind != HA_FI_TENSOR) return HA_OK;
    const int64_t tokens = index_at(last->tensor, s);
    if (tokens < 1 || tokens > (int64_t)o->file.page_size)
        return ha_why(o->why, HA_ERROR, "kv_last_page_len[%zu] is %lld; from 1 to %zu is possible", s,
                      (long long)tokens, o->file.page_size);
    *out = (rows - 1) * o->file.page_size + (size_t)tokens;
    return HA_OK;
}

static enum ha_status lengths_read(struct opening *o)
{
    struct ha_shape *shape = &o->shape;
    shape->batch = o->batch;
    for (size_t b = 0; b < o->batch; b++) {
        const size_t s = o->chosen[b], fresh = o->q_at ? o->q_at[s + 1] - o->q_at[s] : 1;
        size_t keys;
        HA_TRY(keys_count(o, s, &keys));
        if (fresh == 0 || keys < fresh || keys >= UINT32_MAX)
            return ha_why(o->why, HA_ERROR,
                          "sequence %zu has %zu keys and %zu queries, and each query has a key of its own: leave it "
                          "out, FILE@%.40s:0-3+7 chooses sequences",
                          s, keys, fresh, o->name->workload);
        if (b > 0 && fresh != shape->q_len)
            return ha_why(o->why, HA_ERROR,
                          "sequence %zu has %zu queries and sequence %zu has %zu, and q_len is one for all: choose "
                          "those of one length, as in FILE@%.40s:%zu-%zu",
                          o->chosen[0], shape->q_len, s, fresh, o->name->workload, o->chosen[0], o->chosen[b - 1]);
        shape->q_len = fresh;
        shape->ctx[b] = keys - fresh;
    }
    return HA_OK;
}

/* ---- what the case asks ------------------------------------------------------------------------------------------ */

static enum ha_status agree(const struct opening *o, const char *key, size_t asked, size_t has)
{
    if (!asked || asked == has) return HA_OK;
    return ha_why(o->why, HA_ERROR, "%s is %zu here, the case asks for %zu: leave that key out", key, has, asked);
}

static enum ha_status shape_fill(struct opening *o, const struct ha_shape *asked)
{
    struct ha_shape *s = &o->shape;
    const struct ha_fi_value *scale = &o->file.input[HA_FI_SCALE];
    s->layers = s->steps = 1;
    s->q_heads = o->file.q_heads;
    s->kv_heads = o->file.kv_heads;
    s->head_dim = o->file.head_dim;
    s->dtype = asked->dtype;
    s->scale = scale->kind == HA_FI_NUMBER ? (float)scale->number : 0;
    HA_TRY(agree(o, "layers", asked->layers, s->layers));
    HA_TRY(agree(o, "query heads", asked->q_heads, s->q_heads));
    HA_TRY(agree(o, "KV heads", asked->kv_heads, s->kv_heads));
    HA_TRY(agree(o, "head_dim", asked->head_dim, s->head_dim));
    HA_TRY(agree(o, "batch", asked->batch, s->batch));
    HA_TRY(agree(o, "q_len", asked->q_len, s->q_len));
    HA_TRY(agree(o, "steps", asked->steps, s->steps));
    HA_TRY(agree(o, "observed", asked->observed, s->observed));
    for (size_t b = 0; b < s->batch; b++)
        if (agree(o, "ctx", asked->ctx[b], s->ctx[b]) != HA_OK)
            return ha_why_prefix(o->why, HA_ERROR, "sequence %zu", o->chosen[b]);
    return HA_OK;
}

/* ---- where its rows lie ------------------------------------------------------------------------------------------ */

static size_t row_of(const struct source *s, size_t b, size_t token)
{
    const size_t size = s->file.page_size;
    return s->page ? s->page[s->seq[b].first + token / size] * size + token % size : s->seq[b].first + token;
}

static enum ha_status places_fill(const struct opening *o, struct source *s)
{
    const struct ha_fi_value *in = s->file.input;
    const bool is_paged = s->file.is_paged;
    const size_t pages = least(least(in[HA_FI_K].count, in[HA_FI_V].count), HA_FI_COUNT_MAX);
    size_t total = 0;
    for (size_t b = 0; b < o->batch; b++) total += o->kv_at[o->chosen[b] + 1] - o->kv_at[o->chosen[b]];
    if (is_paged && !(s->page = malloc(total * sizeof *s->page))) return ha_why(o->why, HA_ERROR, "out of memory");
    total = 0;
    for (size_t b = 0; b < o->batch; b++) {
        const size_t index = s->seq[b].index = o->chosen[b];
        s->seq[b].q_first = o->q_at ? o->q_at[index] : index;
        s->seq[b].first = is_paged ? total : o->kv_at[index];
        for (size_t i = o->kv_at[index]; is_paged && i < o->kv_at[index + 1]; i++) {
            const int64_t page = index_at(in[HA_FI_KV_INDICES].tensor, i);
            if (page < 0 || (uint64_t)page >= pages)
                return ha_why(o->why, HA_ERROR, "kv_indices[%zu] is %lld, and there are %zu pages", i, (long long)page,
                              pages);
            s->page[total++] = (uint32_t)page;
        }
    }
    return HA_OK;
}

static struct rows rows_of(const struct ha_fi_value *v, size_t heads, enum ha_purpose noise)
{
    struct rows r = { .noise = noise, .heads = heads };
    if (v->tensor && ha_tensor_dtype(v->tensor, &r.stored)) r.data = v->tensor->data;
    return r;
}

/* ---- its values -------------------------------------------------------------------------------------------------- */

static void row_read(const struct source *s, const struct rows *r, size_t layer, size_t head, size_t row, float *out)
{
    const size_t d = s->base.shape.head_dim;
    if (r->data) ha_load_row(r->data + (row * r->heads + head) * d * ha_dtype_bytes(r->stored), d, r->stored, out);
    else ha_noise_row(&s->base, ha_stream(r->noise, 0, layer, head), row, out);
}

/* Every number that is read, rounded to the case's dtype, is finite. */
static enum ha_status row_check(const struct source *s, const struct rows *r, const char *name, size_t row,
                                struct ha_why *why)
{
    float x[HA_HEAD_DIM_MAX];
    for (size_t head = 0; r->data && head < r->heads; head++) {
        row_read(s, r, 0, head, row, x);
        for (size_t j = 0; j < s->base.shape.head_dim; j++)
            if (!isfinite(ha_round(x[j], s->base.shape.dtype)))
                return ha_why(why, HA_ERROR, "tensor %s is %g in row %zu, head %zu, dimension %zu%s", name,
                              (double)x[j], row, head, j, isfinite(x[j]) ? ", too large: use another dtype" : "");
    }
    return HA_OK;
}

static enum ha_status values_check(const struct source *s, struct ha_why *why)
{
    const struct ha_shape *shape = &s->base.shape;
    const struct ha_fi_value *in = s->file.input;
    for (size_t b = 0; b < shape->batch; b++) {
        for (size_t t = 0; t < shape->q_len; t++)
            HA_TRY(row_check(s, &s->q, in[HA_FI_Q].name, s->seq[b].q_first + t, why));
        for (size_t t = 0; t < shape->ctx[b] + shape->q_len; t++) {
            HA_TRY(row_check(s, &s->k, in[HA_FI_K].name, row_of(s, b, t), why));
            HA_TRY(row_check(s, &s->v, in[HA_FI_V].name, row_of(s, b, t), why));
        }
    }
    return HA_OK;
}

static void flashinfer_kv(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count,
                          void *k, void *v)
{
    const struct source *s = of(src);
    float x[HA_HEAD_DIM_MAX];
    for (size_t i = 0; i < count; i++) {
        const size_t row = row_of(s, seq, first + i);
        if (k) row_read(s, &s->k, layer, head, row, x), ha_row_store(src, k, i, x);
        if (v) row_read(s, &s->v, layer, head, row, x), ha_row_store(src, v, i, x);
    }
}

static void flashinfer_query(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    const struct source *s = of(src);
    row_read(s, &s->q, layer, head, s->seq[seq].q_first + token - src->shape.ctx[seq], q);
    ha_row_round(src, q);
}

/* ---- the source -------------------------------------------------------------------------------------------------- */

static void flashinfer_close(struct ha_source *src)
{
    if (!src) return;
    ha_fi_file_close(&of(src)->file);
    free(of(src)->page);
    ha_source_close(src);
}

static enum ha_status source_open(const struct ha_dataset *self, struct ha_source **src, struct opening *o,
                                  const struct ha_shape *asked, uint64_t seed)
{
    size_t longest = 0;
    HA_TRY(indptrs_read(o));
    HA_TRY(sequences_choose(o));
    HA_TRY(lengths_read(o));
    HA_TRY(shape_fill(o, asked));
    for (size_t b = 0; b < o->batch; b++)
        if (o->shape.ctx[b] + o->shape.q_len > longest) longest = o->shape.ctx[b] + o->shape.q_len;
    HA_TRY(ha_source_make(self, src, sizeof(struct source), &o->shape, longest, seed, NULL, o->why));
    struct source *s = of(*src);
    s->file = o->file;
    o->file = (struct ha_fi_file){ 0 };
    s->q = rows_of(&s->file.input[HA_FI_Q], s->file.q_heads, HA_FOR_QUERY);
    s->k = rows_of(&s->file.input[HA_FI_K], s->file.kv_heads, HA_FOR_KEY);
    s->v = rows_of(&s->file.input[HA_FI_V], s->file.kv_heads, HA_FOR_VALUE);
    return HA_OK;
}

static enum ha_status flashinfer_open(const struct ha_dataset *self, struct ha_source **src, struct ha_shape *shape,
                                      size_t total_tokens, uint64_t seed, const char *file, struct ha_why *why)
{
    struct ha_fi_name name;
    struct opening o = { .name = &name, .why = why };
    *src = NULL;
    enum ha_status status = ha_fi_name_parse(&name, file ? file : "", why);
    if (status == HA_OK) status = ha_fi_file_open(&o.file, &name, why);
    if (status == HA_OK) status = source_open(self, src, &o, shape, seed);
    if (status == HA_OK) status = places_fill(&o, of(*src));
    if (status == HA_OK) status = values_check(of(*src), why);
    free(o.q_at);
    free(o.kv_at);
    ha_fi_file_close(&o.file);
    if (status == HA_OK) {
        *shape = o.shape;
        return HA_OK;
    }
    flashinfer_close(*src);
    *src = NULL;
    return ha_why_prefix(why, status, "flashinfer %.200s", file ? file : "");
}

static enum ha_status flashinfer_find(const char *file, struct ha_why *why)
{
    struct ha_fi_name name;
    const enum ha_status status = ha_fi_name_parse(&name, file, why);
    return status == HA_OK ? HA_OK : ha_why_prefix(why, status, "flashinfer %.200s", file);
}

const struct ha_dataset ha_dataset_flashinfer = {
    .name = "flashinfer",
    .doc = "a batch of a serving engine, from a workload of FlashInfer Trace: one layer, one step, its real lengths; "
           "the file fixes the shape",
    .needs_file = "the path of a workload file (.jsonl), or PATH@LINE, PATH@UUID, PATH@LINE:0-3+7 for some sequences",
    .fixes_lengths = true,
    .find = flashinfer_find,
    .open = flashinfer_open,
    .close = flashinfer_close,
    .kv = flashinfer_kv,
    .query = flashinfer_query,
};
