#include "suites/similarity_cache/retrieve.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/fit.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"
#include "suites/parts/kept.h"

#include <math.h>

HA_SHARED_WORDS(
    ha_retrieve_word, [HA_RETRIEVE_HATA] = "hata", [HA_RETRIEVE_QUEST] = "quest", [HA_RETRIEVE_EXACT] = "exact")
HA_SHARED_WORDS(ha_retrieve_hash_word, [HA_HASH_RANDOM] = "random", [HA_HASH_LEARNED] = "learned")

/* of the random matrices: "HATA" */
enum { HASH_SEED = 0x48415441 };

size_t ha_retrieve_units(const struct ha_retrieve *r, size_t tokens)
{
    return ha_kept_gone(r->rule.sink, r->rule.recent, tokens) / r->unit;
}

/* ---- create ------------------------------------------------------------------------------------------------------ */

static enum ha_status lacks(const struct ha_retrieve *r, struct ha_why *why)
{
    const struct ha_device_api *api = r->ctx->api;
    const char *missing = NULL;
    switch (r->rule.by) {
    case HA_RETRIEVE_HATA: missing = !api->hash ? "hash" : !api->hamming ? "hamming" : NULL; break;
    case HA_RETRIEVE_QUEST: missing = !api->digest ? "digest" : !api->digest_score ? "digest_score" : NULL; break;
    case HA_RETRIEVE_EXACT: missing = !api->score ? "score" : NULL; break;
    }
    if (!missing) return HA_OK;
    return ha_why(why, HA_WAIVED, "the device has no operation %s; another retrieve= needs none", missing);
}

/* The matrices of a layer, from the fit or made, to the device. */
static enum ha_status load_matrix(struct ha_retrieve *r, size_t layer, const float *learned, float *stage,
                                  struct ha_why *why)
{
    const struct ha_context *ctx = r->ctx;
    const struct ha_shape *s = ctx->shape;
    const size_t each = r->rule.bits * s->head_dim, all = s->kv_heads * each;
    r->a[layer] = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, all * sizeof(float), HA_TAG_META, why);
    if (!r->a[layer]) return HA_ERROR;
    for (size_t h = 0; h < s->kv_heads && !learned; h++)
        ha_rng_normals(HASH_SEED, layer * s->kv_heads + h, 0, each, stage + h * each);
    for (size_t i = 0; i < all && learned; i++) stage[i] = learned[layer * all + i];
    HA_TRY(ctx->api->copy(ctx->stream, r->a[layer], stage, all * sizeof(float), HA_H2D));
    return ctx->api->stream_sync(ctx->stream);
}

static enum ha_status create_codes(struct ha_retrieve *r, struct ha_why *why)
{
    const struct ha_context *ctx = r->ctx;
    const struct ha_shape *s = ctx->shape;
    struct ha_tensor hash = {
        .name = "hash", .type = HA_T_F32, .dims = 4, .dim = { s->layers, s->kv_heads, r->rule.bits, s->head_dim }
    };
    if (r->rule.hash == HA_HASH_LEARNED && !(ctx->fit && ha_fit_has(ctx->fit, "hash")))
        return ha_why(why, HA_WAIVED,
                      "hash=learned takes the matrices of a fit: fit=FILE with a tensor hash, which "
                      "scripts/train_hash.py writes; or take hash=random");
    if (r->rule.hash == HA_HASH_LEARNED) HA_TRY(ha_fit_get(ctx->fit, &hash, why));
    r->q_code_bytes = ha_code_bytes(r->rows, r->rule.bits);
    r->q_code = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, s->batch * s->kv_heads * r->q_code_bytes,
                                HA_TAG_SCRATCH, why);
    r->a = r->q_code ? ha_alloc(ctx->arena, s->layers * sizeof *r->a, HA_TAG_META, why) : NULL;
    const size_t bytes = s->kv_heads * r->rule.bits * s->head_dim * sizeof(float);
    float *stage = r->a ? ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, bytes, HA_TAG_SCRATCH, why) : NULL;
    if (!stage) return HA_ERROR;
    for (size_t i = 0; i < s->layers; i++) HA_TRY(load_matrix(r, i, hash.data, stage, why));
    ha_device_free(ctx->device_arena, stage);
    return HA_OK;
}

enum ha_status ha_retrieve_create(struct ha_retrieve *r, const struct ha_context *ctx,
                                  const struct ha_retrieve_rule *rule, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    *r = (struct ha_retrieve){
        .ctx = ctx, .rule = *rule, .unit = ha_retrieve_unit(rule->by), .rows = s->q_len * ha_shape_group(s)
    };
    r->units_max = ha_most(ha_kv_longest(s) / r->unit, 1);
    HA_TRY(lacks(r, why));
    r->score = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE,
                               s->batch * s->kv_heads * r->rows * r->units_max * sizeof *r->score, HA_TAG_SCRATCH, why);
    r->hash = r->score ? ha_alloc(ctx->arena, s->batch * sizeof *r->hash, HA_TAG_SCRATCH, why) : NULL;
    r->hamming = r->hash ? ha_alloc(ctx->arena, s->batch * sizeof *r->hamming, HA_TAG_SCRATCH, why) : NULL;
    r->digest = r->hamming ? ha_alloc(ctx->arena, s->batch * sizeof *r->digest, HA_TAG_SCRATCH, why) : NULL;
    r->by_digest = r->digest ? ha_alloc(ctx->arena, s->batch * sizeof *r->by_digest, HA_TAG_SCRATCH, why) : NULL;
    r->by_row = r->by_digest ? ha_alloc(ctx->arena, s->batch * sizeof *r->by_row, HA_TAG_SCRATCH, why) : NULL;
    r->most = r->by_row ? ha_alloc(ctx->arena, s->batch * s->kv_heads * sizeof *r->most, HA_TAG_SCRATCH, why) : NULL;
    if (!r->most) return HA_ERROR;
    return rule->by == HA_RETRIEVE_HATA ? create_codes(r, why) : HA_OK;
}

enum ha_status ha_retrieve_open(const struct ha_retrieve *r, size_t b, struct ha_retrieve_index *index,
                                struct ha_why *why)
{
    const struct ha_context *ctx = r->ctx;
    const size_t most = ha_kv_max_tokens(ctx->shape, b);
    *index = (struct ha_retrieve_index){ .tokens = 0 };
    if (r->rule.by == HA_RETRIEVE_QUEST) return ha_digests_create(ctx, HA_MEM_DEVICE, r->unit, b, &index->digests, why);
    if (r->rule.by == HA_RETRIEVE_EXACT) return HA_OK;
    index->code_head_bytes = ha_code_bytes(ha_most(most, 1), r->rule.bits);
    index->codes = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, ctx->shape->kv_heads * index->code_head_bytes,
                                   HA_TAG_META, why);
    return index->codes ? HA_OK : HA_ERROR;
}

/* ---- as tokens come ---------------------------------------------------------------------------------------------- */

void ha_retrieve_rewind(const struct ha_retrieve *r, struct ha_retrieve_index *index, size_t tokens)
{
    index->tokens = tokens > r->rule.sink ? tokens - r->rule.sink : 0;
    index->digests.blocks = index->tokens / r->unit;
}

void ha_retrieve_add(struct ha_retrieve *r, size_t b, struct ha_retrieve_index *index, const void *k, size_t first,
                     size_t count)
{
    const struct ha_shape *s = r->ctx->shape;
    const size_t sinks = first < r->rule.sink ? ha_least(r->rule.sink - first, count) : 0, at = index->tokens;
    ha_retrieve_rewind(r, index, first + count);
    r->hash[b] = (struct ha_device_hash_seq){ .x = (const unsigned char *)k + sinks * ha_kv_token_bytes(s),
                                              .tokens = count - sinks,
                                              .token_stride = s->kv_heads * s->head_dim,
                                              .codes = index->codes,
                                              .code_head_bytes = index->code_head_bytes,
                                              .first = at };
    const size_t block = at / r->unit, blocks = index->tokens / r->unit - block;
    struct ha_rows rows = index->rows;
    rows.k = (const unsigned char *)rows.k + block * r->unit * rows.k_stride_bytes;
    rows.keys = blocks * r->unit;
    r->digest[b] = (struct ha_device_digest_seq){ .digests = index->digests.bytes,
                                                  .head_bytes = index->digests.head_bytes,
                                                  .first = block,
                                                  .blocks = blocks,
                                                  .rows = rows,
                                                  .k_head_bytes = index->k_head_bytes };
}

static enum ha_status hash(const struct ha_retrieve *r, size_t layer, struct ha_stream *stream, size_t group,
                           enum ha_dtype type, size_t b, size_t batch)
{
    const struct ha_shape *s = r->ctx->shape;
    return r->ctx->api->hash(stream, &(struct ha_device_hash){ .batch = batch,
                                                               .kv_heads = s->kv_heads,
                                                               .group = group,
                                                               .head_dim = s->head_dim,
                                                               .bits = r->rule.bits,
                                                               .dtype = type,
                                                               .a = r->a[layer],
                                                               .seqs = r->hash + b });
}

enum ha_status ha_retrieve_encode(struct ha_retrieve *r, size_t layer, struct ha_stream *stream, size_t b, size_t batch)
{
    const struct ha_shape *s = r->ctx->shape;
    bool any = false;
    for (size_t i = b; i < b + batch; i++)
        any |= r->rule.by == HA_RETRIEVE_HATA ? r->hash[i].tokens > 0 : r->digest[i].blocks > 0;
    if (r->rule.by == HA_RETRIEVE_EXACT || !any) return HA_OK;
    if (r->rule.by == HA_RETRIEVE_HATA) return hash(r, layer, stream, 1, s->dtype, b, batch);
    return r->ctx->api->digest(stream, &(struct ha_device_digest){ .batch = batch,
                                                                   .kv_heads = s->kv_heads,
                                                                   .head_dim = s->head_dim,
                                                                   .unit = r->unit,
                                                                   .kind = HA_DIGEST_RANGE,
                                                                   .dtype = s->dtype,
                                                                   .seqs = r->digest + b });
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

static float *scores_of(const struct ha_retrieve *r, size_t b, size_t head)
{
    return r->score + (b * r->ctx->shape->kv_heads + head) * r->rows * r->units_max;
}

/* The queries' codes, then the scores by them. */
static enum ha_status score_codes(struct ha_retrieve *r, size_t layer, const float *q,
                                  const struct ha_retrieve_index *index, size_t stride, const size_t *tokens,
                                  const uint32_t *only)
{
    const struct ha_shape *s = r->ctx->shape;
    const size_t width = s->q_heads * s->head_dim;
    for (size_t b = 0; b < s->batch; b++) {
        const struct ha_retrieve_index *of = (const void *)((const char *)index + b * stride);
        unsigned char *code = r->q_code + b * s->kv_heads * r->q_code_bytes;
        r->hash[b] = (struct ha_device_hash_seq){ .x = q + b * s->q_len * width,
                                                  .tokens = s->q_len,
                                                  .token_stride = width,
                                                  .codes = code,
                                                  .code_head_bytes = r->q_code_bytes };
        r->hamming[b] = (struct ha_device_hamming_seq){ .q = code,
                                                        .codes = of->codes,
                                                        .q_head_bytes = r->q_code_bytes,
                                                        .code_head_bytes = of->code_head_bytes,
                                                        .keys = ha_retrieve_units(r, tokens[b]),
                                                        .s = scores_of(r, b, 0),
                                                        .s_stride = r->units_max,
                                                        .only = only ? only + b * s->kv_heads : NULL };
    }
    HA_TRY(hash(r, layer, r->ctx->stream, ha_shape_group(s), HA_F32, 0, s->batch));
    return r->ctx->api->hamming(
        r->ctx->stream,
        &(struct ha_device_hamming){
            .batch = s->batch, .kv_heads = s->kv_heads, .rows = r->rows, .bits = r->rule.bits, .seqs = r->hamming });
}

static enum ha_status score_digests(struct ha_retrieve *r, const float *q, const struct ha_retrieve_index *index,
                                    size_t stride, const size_t *tokens)
{
    const struct ha_shape *s = r->ctx->shape;
    for (size_t b = 0; b < s->batch; b++) {
        const struct ha_retrieve_index *of = (const void *)((const char *)index + b * stride);
        r->by_digest[b] = (struct ha_device_score_seq){ .q = q + b * s->q_len * s->q_heads * s->head_dim,
                                                        .digests = of->digests.bytes,
                                                        .head_bytes = of->digests.head_bytes,
                                                        .blocks = ha_retrieve_units(r, tokens[b]),
                                                        .s = scores_of(r, b, 0),
                                                        .s_stride = r->units_max };
    }
    return r->ctx->api->digest_score(r->ctx->stream, &(struct ha_device_digest_score){ .batch = s->batch,
                                                                                       .q_len = s->q_len,
                                                                                       .q_heads = s->q_heads,
                                                                                       .kv_heads = s->kv_heads,
                                                                                       .head_dim = s->head_dim,
                                                                                       .dtype = s->dtype,
                                                                                       .scale = s->scale,
                                                                                       .seqs = r->by_digest });
}

static enum ha_status score_rows(struct ha_retrieve *r, const float *q, const struct ha_retrieve_index *index,
                                 size_t stride, const size_t *tokens)
{
    const struct ha_shape *s = r->ctx->shape;
    for (size_t b = 0; b < s->batch; b++) {
        const struct ha_retrieve_index *of = (const void *)((const char *)index + b * stride);
        r->by_row[b] = (struct ha_device_rows_seq){ .q = q + b * s->q_len * s->q_heads * s->head_dim,
                                                    .rows = of->rows,
                                                    .k_head_bytes = of->k_head_bytes,
                                                    .s = scores_of(r, b, 0),
                                                    .s_stride = r->units_max };
        r->by_row[b].rows.keys = ha_retrieve_units(r, tokens[b]);
    }
    return r->ctx->api->score(r->ctx->stream, &(struct ha_device_score){ .batch = s->batch,
                                                                         .q_len = s->q_len,
                                                                         .q_heads = s->q_heads,
                                                                         .kv_heads = s->kv_heads,
                                                                         .head_dim = s->head_dim,
                                                                         .dtype = s->dtype,
                                                                         .scale = s->scale,
                                                                         .seqs = r->by_row });
}

enum ha_status ha_retrieve_score(struct ha_retrieve *r, size_t layer, const float *q,
                                 const struct ha_retrieve_index *index, size_t stride, const size_t *tokens,
                                 const uint32_t *only)
{
    switch (r->rule.by) {
    case HA_RETRIEVE_HATA: return score_codes(r, layer, q, index, stride, tokens, only);
    case HA_RETRIEVE_QUEST: return score_digests(r, q, index, stride, tokens);
    default: return score_rows(r, q, index, stride, tokens);
    }
}

void ha_retrieve_ask(struct ha_retrieve *r, size_t b, size_t head, size_t tokens, size_t count, uint32_t first,
                     uint32_t *to, uint32_t *keys, const uint32_t *only)
{
    const size_t units = ha_retrieve_units(r, tokens);
    r->most[r->chosen++] = (struct ha_device_topk_seq){ .x = scores_of(r, b, head),
                                                        .n = units,
                                                        .k = ha_least(count, units),
                                                        .stride = r->units_max,
                                                        .first = first,
                                                        .index = to,
                                                        .index_stride = count,
                                                        .keys = keys,
                                                        .within = INFINITY,
                                                        .keys_unit = r->unit,
                                                        .only = only };
}

enum ha_status ha_retrieve_run(struct ha_retrieve *r)
{
    const size_t chosen = r->chosen;
    r->chosen = 0;
    return chosen ? r->ctx->api->topk(
               r->ctx->stream,
               &(struct ha_device_topk){ .batch = chosen, .lists = 1, .rows = r->rows, .seqs = r->most })
                  : HA_OK;
}
