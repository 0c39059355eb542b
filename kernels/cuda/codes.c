/* What finds keys by codes, and labels: each checks its operands and enqueues. */

#include "kernels/cuda/operand.h"

#include "harness/base/why.h"

static enum ha_status check_bits(struct ha_stream *s, const char *operation, size_t bits)
{
    return bits && bits % 32 == 0 && bits <= HA_CODE_BITS_MAX
               ? HA_OK
               : ha_cuda_fail_on(s, operation, "codes of %zu bits, not 32, 64, ... or %d", bits, HA_CODE_BITS_MAX);
}

enum ha_status ha_cuda_hash_enqueue(struct ha_stream *s, const struct ha_device_hash *h)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "hash" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if ((unsigned)h->dtype >= HA_DTYPE_COUNT) return ha_cuda_fail_on(s, span.name, "rows of an unknown type");
    HA_TRY(check_bits(s, span.name, h->bits));
    const size_t a = times(h->kv_heads, h->bits * h->head_dim * sizeof *h->a), e = ha_dtype_bytes(h->dtype),
                 token = h->kv_heads * h->group * h->head_dim * e;
    HA_TRY(operand(s, &span, "a", h->a, a, a));
    for (size_t b = 0; b < h->batch; b++) {
        const struct ha_device_hash_seq *seq = &h->seqs[b];
        const size_t codes = ha_code_bytes(seq->first + seq->tokens * h->group, h->bits);
        const bool any = token && seq->tokens;
        HA_TRY(operand(s, &span, "x", seq->x, any ? extent(seq->tokens, times(seq->token_stride, e), token) : 0,
                       seq->tokens * token));
        HA_TRY(operand(s, &span, "codes", seq->codes, any ? extent(h->kv_heads, seq->code_head_bytes, codes) : 0, 0));
    }
    if (h->batch * token == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_hash(s->cuda, h));
}

enum ha_status ha_cuda_hamming_enqueue(struct ha_stream *s, const struct ha_device_hamming *h)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "hamming" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    HA_TRY(check_bits(s, span.name, h->bits));
    const size_t heads = h->kv_heads, q = ha_code_bytes(h->rows, h->bits), rows = times(heads, h->rows);
    for (size_t b = 0; b < h->batch; b++) {
        const struct ha_device_hamming_seq *seq = &h->seqs[b];
        const bool any = rows && seq->keys;
        const size_t codes = ha_code_bytes(seq->keys, h->bits), only = heads * sizeof *seq->only,
                     scores = times(extent(rows, seq->s_stride, seq->keys), sizeof *seq->s);
        HA_TRY(operand(s, &span, "q", seq->q, any ? extent(heads, seq->q_head_bytes, q) : 0, heads * q));
        HA_TRY(operand(s, &span, "codes", seq->codes, any ? extent(heads, seq->code_head_bytes, codes) : 0,
                       heads * codes));
        HA_TRY(operand(s, &span, "scores", seq->s, any ? scores : 0, 0));
        if (seq->only) HA_TRY(operand(s, &span, "only", seq->only, only, only));
    }
    if (h->batch * rows == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_hamming(s->cuda, h));
}

enum ha_status ha_cuda_similarity_enqueue(struct ha_stream *s, const struct ha_device_similarity *d)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "similarity" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if (d->kv_heads == 0 || d->q_heads == 0 || d->q_heads % d->kv_heads != 0)
        return ha_cuda_fail_on(s, span.name, "%zu query heads are no multiple of %zu KV heads", d->q_heads,
                               d->kv_heads);
    if (d->q_len == 0) return ha_cuda_fail_on(s, span.name, "steps of no token");
    const size_t f = sizeof(float), label = times(d->q_heads, d->head_dim * f), q = times(d->q_len, label),
                 heads = d->kv_heads * f;
    if (d->group == HA_SIMILAR_HARMONIC)
        HA_TRY(operand(s, &span, "importance", d->importance, d->q_heads * f, d->q_heads * f));
    HA_TRY(operand(s, &span, "threshold", d->threshold, heads, heads));
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_similarity_seq *seq = &d->seqs[b];
        HA_TRY(operand(s, &span, "q", seq->q, q, q));
        HA_TRY(operand(s, &span, "label", seq->label, label, label));
        HA_TRY(operand(s, &span, "similarity", seq->similarity, heads, 0));
        HA_TRY(operand(s, &span, "missed", seq->missed, heads, 0));
    }
    if (d->batch == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_similarity(s->cuda, d));
}
