#include "suites/parts/codebooks.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/fit.h"
#include "harness/base/numeric.h"
#include "harness/base/pq.h"
#include "harness/base/rotate.h"
#include "harness/base/why.h"
#include "suites/parts/listed.h"

HA_SHARED_WORDS(ha_books_word, [HA_BOOKS_SHARED] = "shared", [HA_BOOKS_SEPARATE] = "separate")
HA_SHARED_WORDS(ha_rotary_word, [HA_ROTARY_AFTER] = "after", [HA_ROTARY_BEFORE] = "before")

enum ha_status ha_codebooks_pq(const struct ha_codebook_rule *rule, const struct ha_shape *shape, struct ha_pq *pq,
                               struct ha_why *why)
{
    if (shape->head_dim % rule->dims)
        return ha_why(why, HA_ERROR, "dims=%zu does not divide head_dim=%zu: the most that does is %zu", rule->dims,
                      shape->head_dim, shape->head_dim & -shape->head_dim);
    *pq = ha_pq_of(shape->head_dim, rule->dims, rule->count, rule->books == HA_BOOKS_SEPARATE, rule->pack);
    return HA_OK;
}

enum ha_status ha_codebooks_turned(const struct ha_codebook_rule *rule, const struct ha_projection *projection,
                                   size_t layers, struct ha_why *why)
{
    for (size_t i = 0; i < layers && rule->rotary == HA_ROTARY_BEFORE; i++)
        if (!projection || !projection[i].inv_freq)
            return ha_why(
                why, HA_WAIVED,
                "rotary=before needs a dataset that says how its keys were turned: take dataset=trace/english "
                "(any trace with rope.inv_freq or rope_theta)");
    return HA_OK;
}

static enum ha_status open_fit(struct ha_codebooks *b, struct ha_why *why)
{
    const struct ha_shape *s = b->ctx->shape;
    struct ha_tensor t = {
        "centroids", HA_T_F32, 5, { s->layers, s->kv_heads, b->pq.books, b->pq.dims, b->pq.count }, .data = NULL
    };
    HA_TRY(ha_fit_get(b->ctx->fit, &t, why));
    b->host = t.data;
    return HA_OK;
}

enum ha_status ha_codebooks_create(struct ha_codebooks *b, const struct ha_context *ctx,
                                   const struct ha_codebook_rule *rule, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    *b = (struct ha_codebooks){ .ctx = ctx, .rule = *rule };
    HA_TRY(ha_codebooks_pq(rule, s, &b->pq, why));
    HA_TRY(ha_codebooks_turned(rule, ctx->projection, s->layers, why));
    b->layer_floats = s->kv_heads * ha_pq_book_floats(&b->pq);
    const size_t bytes = s->layers * b->layer_floats * sizeof(float);
    if (ctx->fit) HA_TRY(open_fit(b, why));
    else b->host = b->sample = ha_alloc(ctx->arena, bytes, HA_TAG_META, why);
    if (!b->host) return HA_ERROR;
    if (b->sample && !(b->key = ha_alloc(ctx->arena, 2 * s->head_dim * sizeof *b->key, HA_TAG_SCRATCH, why)))
        return HA_ERROR;
    b->pq.centroid = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_META, why);
    return b->pq.centroid ? HA_OK : HA_ERROR;
}

struct ha_pq ha_codebooks_there(const struct ha_codebooks *b, size_t layer)
{
    struct ha_pq pq = b->pq;
    pq.centroid += layer * b->layer_floats;
    return pq;
}

struct ha_pq ha_codebooks_here(const struct ha_codebooks *b, size_t layer, size_t head)
{
    struct ha_pq pq = b->pq;
    pq.centroid = b->host + layer * b->layer_floats + head * ha_pq_book_floats(&pq);
    return pq;
}

enum ha_status ha_codebooks_join(const struct ha_context *ctx, const struct ha_pq *pq, const unsigned char *codes,
                                 size_t count, float *k, struct ha_why *why)
{
    for (size_t i = 0; i < count; i++)
        for (size_t g = 0; g < pq->groups; g++) {
            const unsigned char *group = codes + i / HA_PQ_KEYS * ha_pq_block_bytes(pq) + g * ha_pq_group_bytes(pq);
            const size_t code = ha_pq_code(group, pq->bits, i % HA_PQ_KEYS);
            if (code >= pq->count)
                return ha_list_refuse(ctx, why, "code %zu of key %zu, of %zu centroids", code, i, pq->count);
            for (size_t d = 0; d < pq->dims; d++)
                k[(i * pq->groups + g) * pq->dims + d] = ha_pq_book(pq, g)[d * pq->count + code];
        }
    return HA_OK;
}

void ha_codebooks_key(const struct ha_codebook_rule *rule, const struct ha_projection *projection, size_t layer,
                      const struct ha_shape *s, const struct ha_prefill *in, size_t b, size_t head, size_t token,
                      float *key)
{
    const size_t row = (head * in->cap + token) * s->head_dim * ha_dtype_bytes(s->dtype);
    ha_load_row((const unsigned char *)in->k[b] + row, s->head_dim, s->dtype, key);
    if (rule->rotary == HA_ROTARY_AFTER) return;
    ha_rotate_turn(&projection[layer], token, key + s->head_dim);
    ha_rotate_back(&projection[layer], key + s->head_dim, key);
}

/* ---- sample books ------------------------------------------------------------------------------------------------ */

/* key i of all sequences' contexts */
static void key_of(const struct ha_codebooks *b, size_t layer, const struct ha_prefill *in, size_t head, size_t i)
{
    const struct ha_shape *s = b->ctx->shape;
    size_t seq = 0;
    for (; i >= s->ctx[seq]; seq++) i -= s->ctx[seq];
    ha_codebooks_key(&b->rule, b->ctx->projection, layer, s, in, seq, head, i, b->key);
}

static void sample_head(const struct ha_codebooks *b, size_t layer, const struct ha_prefill *in, size_t head,
                        float *book)
{
    const struct ha_pq *pq = &b->pq;
    const size_t parts = pq->books == 1 ? pq->groups : 1;
    size_t keys = 0;
    for (size_t i = 0; i < b->ctx->shape->batch; i++) keys += b->ctx->shape->ctx[i];
    for (size_t j = 0; j < pq->count; j++) {
        const size_t at = j * keys * parts / pq->count;
        if (keys) key_of(b, layer, in, head, at / parts);
        for (size_t g = 0; g < pq->books; g++)
            for (size_t d = 0; d < pq->dims; d++)
                book[(g * pq->dims + d) * pq->count + j] = keys ? b->key[(g + at % parts) * pq->dims + d] : 0;
    }
}

enum ha_status ha_codebooks_prefill(struct ha_codebooks *b, size_t layer, const struct ha_prefill *in,
                                    struct ha_why *why)
{
    const struct ha_context *ctx = b->ctx;
    for (size_t head = 0; b->sample && head < ctx->shape->kv_heads; head++)
        sample_head(b, layer, in, head, b->sample + layer * b->layer_floats + head * ha_pq_book_floats(&b->pq));
    const struct ha_pq there = ha_codebooks_there(b, layer);
    HA_TRY(ctx->api->copy(ctx->stream, (void *)(uintptr_t)there.centroid, b->host + layer * b->layer_floats,
                          b->layer_floats * sizeof(float), HA_H2D));
    return ctx->api->stream_sync(ctx->stream);
}
