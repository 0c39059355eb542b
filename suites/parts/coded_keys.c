#include "suites/parts/coded_keys.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/numeric.h"
#include "harness/base/pq.h"
#include "harness/base/why.h"

HA_SHARED_WORDS(ha_coded_word, [HA_KEYS_CODES] = "codes", [HA_KEYS_EXACT] = "exact")

enum { STAGE_TOKENS = 4096 };

static void *alloc(const struct ha_context *ctx, enum ha_memory memory, size_t bytes, enum ha_tag tag,
                   struct ha_why *why)
{
    return ha_device_alloc(ctx->device_arena, memory, bytes, tag, why);
}

static bool is_turned(const struct ha_coded *c)
{
    return c->as == HA_KEYS_CODES && c->books.rule.rotary == HA_ROTARY_BEFORE;
}

/* Whether the device has a row for each key. */
static bool has_rows(const struct ha_coded *c) { return c->as == HA_KEYS_EXACT || is_turned(c); }

/* ... and of what shape. */
static const struct ha_context *of_rows(const struct ha_coded *c) { return is_turned(c) ? &c->turned.ctx : c->ctx; }

enum ha_status ha_coded_create(struct ha_coded *c, const struct ha_context *ctx, enum ha_coded_as as,
                               const struct ha_codebook_rule *rule, enum ha_dtype table_type, size_t query_rows,
                               struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    *c = (struct ha_coded){ .ctx = ctx, .as = as, .table_type = table_type };
    c->rows = ha_alloc(ctx->arena, s->batch * sizeof *c->rows, HA_TAG_SCRATCH, why);
    if (!c->rows) return HA_ERROR;
    if (as == HA_KEYS_CODES) {
        HA_TRY(ha_codebooks_create(&c->books, ctx, rule, why));
        if (is_turned(c)) HA_TRY(ha_turned_create(&c->turned, ctx, &c->books, why));
    }
    const size_t known = has_rows(c) ? ha_kv_longest(s) * ha_kv_head_bytes(of_rows(c)->shape)
                                     : ha_pq_code_bytes(&c->books.pq, ha_kv_longest(s));
    if (ctx->record_selection && !(c->known = alloc(ctx, HA_MEM_PINNED, known, HA_TAG_SCRATCH, why))) return HA_ERROR;
    if (has_rows(c)) return HA_OK;
    c->encode = ha_alloc(ctx->arena, s->batch * sizeof *c->encode, HA_TAG_SCRATCH, why);
    c->tables = c->encode ? ha_alloc(ctx->arena, s->batch * sizeof *c->tables, HA_TAG_SCRATCH, why) : NULL;
    c->score = c->tables ? ha_alloc(ctx->arena, s->batch * sizeof *c->score, HA_TAG_SCRATCH, why) : NULL;
    if (!c->score) return HA_ERROR;
    c->table_bytes = ha_pq_head_table_bytes(&c->books.pq, query_rows, table_type);
    c->table = alloc(ctx, HA_MEM_DEVICE, s->batch * s->kv_heads * c->table_bytes, HA_TAG_META, why);
    const size_t head = STAGE_TOKENS * ha_kv_head_bytes(s);
    c->stage = (struct ha_head_rows){ .memory = HA_MEM_DEVICE, .cap = STAGE_TOKENS, .head_bytes = head };
    c->stage.at = c->table ? alloc(ctx, HA_MEM_DEVICE, s->kv_heads * head, HA_TAG_SCRATCH, why) : NULL;
    return c->stage.at ? HA_OK : HA_ERROR;
}

enum ha_status ha_coded_open(const struct ha_coded *c, size_t b, struct ha_coded_seq *seq, struct ha_why *why)
{
    const struct ha_shape *s = c->ctx->shape;
    *seq = (struct ha_coded_seq){ .codes = NULL };
    if (has_rows(c)) return ha_head_rows_create(of_rows(c), HA_MEM_DEVICE, b, &seq->rows, why);
    seq->head_bytes = ha_pq_head_bytes(&c->books.pq, ha_kv_max_tokens(s, b));
    seq->codes = alloc(c->ctx, HA_MEM_DEVICE, s->kv_heads * seq->head_bytes, HA_TAG_KV, why);
    return seq->codes ? HA_OK : HA_ERROR;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static enum ha_status encode(struct ha_coded *c, struct ha_stream *stream, size_t layer, const struct ha_coded_seq *seq,
                             const struct ha_rows *rows, size_t k_head_bytes, size_t first)
{
    c->encode[0] = (struct ha_device_pq_encode_seq){ .rows = *rows,
                                                     .k_head_bytes = k_head_bytes,
                                                     .codes = seq->codes,
                                                     .code_head_bytes = seq->head_bytes,
                                                     .first = first };
    const struct ha_shape *s = c->ctx->shape;
    return c->ctx->api->pq_encode(
        stream,
        &(struct ha_device_pq_encode){ 1, s->kv_heads, ha_codebooks_there(&c->books, layer), s->dtype, c->encode });
}

enum ha_status ha_coded_prefill(struct ha_coded *c, size_t layer, size_t b, const struct ha_prefill *in,
                                struct ha_coded_seq *seq, struct ha_why *why)
{
    const struct ha_context *ctx = c->ctx;
    const size_t tokens = ctx->shape->ctx[b], row = ha_kv_head_bytes(ctx->shape);
    if (c->as == HA_KEYS_EXACT) return ha_head_rows_load(ctx, &seq->rows, 0, in->k[b], in->cap, 0, tokens);
    if (b == 0) HA_TRY(ha_codebooks_prefill(&c->books, layer, in, why));
    if (is_turned(c)) return ha_turned_prefill(&c->turned, layer, b, in, &seq->rows);
    for (size_t t = 0, n; t < tokens; t += n) {
        n = ha_least(STAGE_TOKENS, tokens - t);
        HA_TRY(ha_head_rows_load(ctx, &c->stage, 0, in->k[b], in->cap, t, n));
        HA_TRY(encode(c, ctx->stream, layer, seq,
                      &(struct ha_rows){ .k = c->stage.at, .k_stride_bytes = row, .keys = n }, c->stage.head_bytes, t));
    }
    return ctx->api->stream_sync(ctx->stream);
}

enum ha_status ha_coded_put(struct ha_coded *c, struct ha_stream *stream, size_t layer, struct ha_coded_seq *seq,
                            const unsigned char *k, size_t first, size_t count)
{
    const struct ha_shape *s = c->ctx->shape;
    if (c->as == HA_KEYS_EXACT) return ha_head_rows_put(c->ctx, stream, &seq->rows, first, k, count);
    if (is_turned(c)) return ha_turned_put(&c->turned, stream, layer, &seq->rows, k, first, count);
    return encode(c, stream, layer, seq,
                  &(struct ha_rows){ .k = k, .k_stride_bytes = ha_kv_token_bytes(s), .keys = count },
                  ha_kv_head_bytes(s), first);
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

static unsigned char *table_of(const struct ha_coded *c, size_t b, size_t head)
{
    return c->table + (b * c->ctx->shape->kv_heads + head) * c->table_bytes;
}

enum ha_status ha_coded_ask(struct ha_coded *c, const struct ha_step *step)
{
    const struct ha_shape *s = c->ctx->shape;
    const size_t q = s->q_len * s->q_heads * s->head_dim;
    if (has_rows(c)) return HA_OK;
    for (size_t b = 0; b < s->batch; b++)
        c->tables[b] = (struct ha_device_pq_table_seq){ step->q + b * q, table_of(c, b, 0), c->table_bytes };
    return c->ctx->api->pq_table(c->ctx->stream,
                                 &(struct ha_device_pq_table){ s->batch, s->q_len, s->q_heads, s->kv_heads,
                                                               ha_codebooks_there(&c->books, step->layer),
                                                               c->table_type, c->tables });
}

static enum ha_status score_rows(struct ha_coded *c, const struct ha_step *step, const struct ha_coded_seq *const *seqs,
                                 const size_t *keys, float *scores, size_t stride)
{
    const struct ha_shape *s = of_rows(c)->shape;
    const size_t rows = s->q_len * s->q_heads;
    for (size_t b = 0; b < s->batch; b++)
        c->rows[b] = (struct ha_device_rows_seq){
            .q = step->q + b * rows * s->head_dim,
            .rows = { .k = seqs[b]->rows.at, .k_stride_bytes = ha_kv_head_bytes(s), .keys = keys[b] },
            .k_head_bytes = seqs[b]->rows.head_bytes,
            .s = scores + b * rows * stride,
            .s_stride = stride
        };
    return c->ctx->api->score(c->ctx->stream, &(struct ha_device_score){ s->batch, s->q_len, s->q_heads, s->kv_heads,
                                                                         s->head_dim, s->dtype, s->scale, c->rows });
}

enum ha_status ha_coded_score(struct ha_coded *c, const struct ha_step *step, const struct ha_coded_seq *const *seqs,
                              const size_t *keys, size_t first, size_t heads, float *scores, size_t stride)
{
    const struct ha_shape *s = c->ctx->shape;
    const size_t group = ha_shape_group(s), rows = group * s->q_len;
    if (has_rows(c)) return first ? HA_OK : score_rows(c, step, seqs, keys, scores, stride);
    for (size_t b = 0; b < s->batch; b++)
        c->score[b] = (struct ha_device_pq_score_seq){ .table = table_of(c, b, first),
                                                       .codes = seqs[b]->codes + first * seqs[b]->head_bytes,
                                                       .table_head_bytes = c->table_bytes,
                                                       .code_head_bytes = seqs[b]->head_bytes,
                                                       .keys = keys[b],
                                                       .s = scores + (b * s->kv_heads + first) * rows * stride,
                                                       .s_stride = stride };
    return c->ctx->api->pq_score(
        c->ctx->stream, &(struct ha_device_pq_score){ s->batch, heads, rows, ha_codebooks_there(&c->books, step->layer),
                                                      c->table_type, s->scale, c->score });
}

size_t ha_coded_book_bytes(const struct ha_coded *c)
{
    return c->as == HA_KEYS_EXACT ? 0 : c->books.layer_floats * sizeof(float);
}

size_t ha_coded_code_bytes(const struct ha_coded *c, const struct ha_coded_seq *seq)
{
    return c->ctx->shape->kv_heads * seq->head_bytes;
}

size_t ha_coded_table_bytes(const struct ha_coded *c)
{
    return c->ctx->shape->batch * c->ctx->shape->kv_heads * c->table_bytes;
}

void ha_coded_claim(const struct ha_coded *c, struct ha_profile *profile)
{
    enum { MOST = 256 };
    const struct ha_pq *pq = &c->books.pq;
    const bool exact = has_rows(c);
    /* products of a group's dimensions, then entries of the groups */
    profile->dot_lanes = exact ? 1 : (unsigned)c->ctx->shape->head_dim;
    profile->dot_extra = exact ? 0 : (unsigned)ha_least(MOST, pq->dims + pq->groups - 1);
    profile->score_type = exact ? HA_F32 : c->table_type;
}

/* ---- reports ----------------------------------------------------------------------------------------------------- */

enum ha_status ha_coded_read(const struct ha_coded *c, size_t layer, const struct ha_coded_seq *seq, size_t head,
                             size_t count, float *k, struct ha_why *why)
{
    const struct ha_context *ctx = c->ctx;
    const struct ha_shape *of = of_rows(c)->shape;
    const bool exact = has_rows(c);
    const struct ha_pq pq = exact ? (struct ha_pq){ 0 } : ha_codebooks_here(&c->books, layer, head);
    const size_t bytes = exact ? count * ha_kv_head_bytes(of) : ha_pq_code_bytes(&pq, count);
    if (!count) return HA_OK;
    const unsigned char *from = exact ? seq->rows.at + head * seq->rows.head_bytes
                                      : seq->codes + head * seq->head_bytes;
    HA_TRY(ctx->api->copy(ctx->stream, c->known, from, bytes, HA_D2H));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    if (!exact) return ha_codebooks_join(ctx, &pq, c->known, count, k, why);
    ha_load_row(c->known, count * of->head_dim, of->dtype, k);
    return HA_OK;
}
