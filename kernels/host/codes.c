/* What finds keys by codes, by the CPU's kernels; and a cache that is labelled with queries. */

#include "harness/base/why.h"
#include "kernels/host/host.h"

#include <math.h>
#include <string.h>

/* ---- codes */

static enum ha_status codes_fit(struct ha_stream *s, const char *operation, bool kernel, size_t bits)
{
    if (!kernel)
        return ha_host_fail(s->device, "%s on %s: the kernels of this device have no such one", operation, s->lane);
    if (bits == 0 || bits % 32 != 0 || bits > HA_CODE_BITS_MAX)
        return ha_host_fail(s->device, "%s on %s: codes of %zu bits, not 32, 64, ... or %d", operation, s->lane, bits,
                            HA_CODE_BITS_MAX);
    return HA_OK;
}

/* The codes of a head's queries of one token follow each other, and so do those of its keys of all tokens. */
static void run_hash(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_hash *h = &op->u.hash;
    const struct ha_device_hash_seq *seqs = op->array;
    const size_t e = ha_dtype_bytes(h->dtype), row = h->head_dim * e;
    for (size_t b = 0; b < h->batch; b++)
        for (size_t head = 0; head < h->kv_heads; head++) {
            const struct ha_device_hash_seq *seq = &seqs[b];
            struct ha_hash one = { .a = h->a + head * h->bits * h->head_dim,
                                   .bits = h->bits,
                                   .rows = { .k = (const char *)seq->x + head * h->group * row,
                                             .k_stride_bytes = h->group == 1 ? seq->token_stride * e : row,
                                             .keys = h->group == 1 ? seq->tokens : h->group },
                                   .head_dim = h->head_dim,
                                   .dtype = h->dtype,
                                   .codes = (char *)seq->codes + head * seq->code_head_bytes,
                                   .first = seq->first };
            for (size_t calls = h->group == 1 ? 1 : seq->tokens; calls > 0; calls--) {
                s->device->kernels.hash(&one);
                one.rows.k = (const char *)one.rows.k + seq->token_stride * e;
                one.first += h->group;
            }
        }
}

enum ha_status ha_host_hash(struct ha_stream *s, const struct ha_device_hash *args)
{
    static const struct ha_host_verb verb = { .name = "hash", .kind = HA_SPAN_KERNEL, .run = run_hash };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.hash = *args
    };
    HA_TRY(codes_fit(s, verb.name, s->device->kernels.hash, args->bits));
    const size_t a = args->kv_heads * args->bits * args->head_dim * sizeof(float), e = ha_dtype_bytes(args->dtype),
                 token = args->kv_heads * args->group * args->head_dim * e;
    if (!ha_host_kernel_operand(s, &op, "a", args->a, a, a)) return HA_ERROR;
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_hash_seq *seq = &args->seqs[b];
        const size_t x = token ? ha_host_extent(seq->tokens, seq->token_stride * e, token) : 0,
                     bytes = ha_code_bytes(seq->first + seq->tokens * args->group, args->bits),
                     codes = x ? ha_host_extent(args->kv_heads, seq->code_head_bytes, bytes) : 0;
        if (!ha_host_kernel_operand(s, &op, "x", seq->x, x, seq->tokens * token)
            || !ha_host_kernel_operand(s, &op, "codes", seq->codes, codes, 0))
            return HA_ERROR;
    }
    return ha_host_enqueue(s, &op);
}

/* ---- scores by codes */

static void run_hamming(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_hamming *h = &op->u.hamming;
    const struct ha_device_hamming_seq *seqs = op->array;
    for (size_t b = 0; b < h->batch; b++)
        for (size_t head = 0; head < h->kv_heads; head++)
            if (!seqs[b].only || seqs[b].only[head])
                s->device->kernels.hamming(
                    &(struct ha_hamming){ .q = (const char *)seqs[b].q + head * seqs[b].q_head_bytes,
                                          .q_rows = h->rows,
                                          .bits = h->bits,
                                          .codes = (const char *)seqs[b].codes + head * seqs[b].code_head_bytes,
                                          .keys = seqs[b].keys,
                                          .s = seqs[b].s + head * h->rows * seqs[b].s_stride,
                                          .s_stride = seqs[b].s_stride,
                                          .streams = ha_reads_in_streams(&s->device->kernels, HA_F32) });
}

enum ha_status ha_host_hamming(struct ha_stream *s, const struct ha_device_hamming *args)
{
    static const struct ha_host_verb verb = { .name = "hamming", .kind = HA_SPAN_KERNEL, .run = run_hamming };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.hamming = *args
    };
    HA_TRY(codes_fit(s, verb.name, s->device->kernels.hamming, args->bits));
    const size_t heads = args->kv_heads, q = ha_code_bytes(args->rows, args->bits);
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_hamming_seq *seq = &args->seqs[b];
        const bool any = heads && args->rows && seq->keys;
        const size_t codes = ha_code_bytes(seq->keys, args->bits),
                     scores = ha_host_extent(heads * args->rows, seq->s_stride, seq->keys) * sizeof *seq->s,
                     only = seq->only ? heads * sizeof *seq->only : 0;
        if (!ha_host_kernel_operand(s, &op, "q", seq->q, any ? ha_host_extent(heads, seq->q_head_bytes, q) : 0,
                                    heads * q)
            || !ha_host_kernel_operand(s, &op, "codes", seq->codes,
                                       any ? ha_host_extent(heads, seq->code_head_bytes, codes) : 0, heads * codes)
            || !ha_host_kernel_operand(s, &op, "scores", seq->s, any ? scores : 0, 0)
            || !ha_host_kernel_operand(s, &op, "only", seq->only, only, only))
            return HA_ERROR;
    }
    return ha_host_enqueue(s, &op);
}

/* ---- labels */

/* The product and the root are of binary64, where they are exact if x equals y. */
static float cosine(const float *x, const float *y, size_t n)
{
    float xy = 0, xx = 0, yy = 0;
    for (size_t i = 0; i < n; i++) {
        xy += x[i] * y[i];
        xx += x[i] * x[i];
        yy += y[i] * y[i];
    }
    return (float)((double)xy / sqrt((double)xx * (double)yy));
}

/* the smaller one, NaN if either is */
static float smaller(float a, float b) { return a < b || isnan(a) ? a : b; }

/* of a query head: the least over the step's queries */
static float head_similarity(const struct ha_device_similarity *d, const struct ha_device_similarity_seq *seq,
                             size_t head)
{
    float least = INFINITY;
    for (size_t t = 0; t < d->q_len; t++)
        least = smaller(
            cosine(seq->q + (t * d->q_heads + head) * d->head_dim, seq->label + head * d->head_dim, d->head_dim),
            least);
    return least;
}

/* Of a KV head; *positive: all of its query heads' are. */
static float group_similarity(const struct ha_device_similarity *d, const struct ha_device_similarity_seq *seq,
                              size_t kv_head, bool *positive)
{
    const size_t group = d->q_heads / d->kv_heads;
    float least = INFINITY, importance = 0, sum = 0;
    for (size_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        const float of = head_similarity(d, seq, head);
        least = smaller(of, least);
        if (d->group != HA_SIMILAR_HARMONIC) continue;
        importance += d->importance[head];
        sum += d->importance[head] / of;
    }
    *positive = least > 0;
    return d->group == HA_SIMILAR_HARMONIC && *positive ? importance / sum : least;
}

static void run_similarity(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_similarity *d = &op->u.similarity;
    const struct ha_device_similarity_seq *seqs = op->array;
    const size_t heads = d->q_heads * d->head_dim, rows = heads / d->kv_heads;
    (void)s;
    for (size_t b = 0; b < d->batch; b++)
        for (size_t h = 0; h < d->kv_heads; h++) {
            const struct ha_device_similarity_seq *seq = &seqs[b];
            bool positive;
            const float similarity = group_similarity(d, seq, h, &positive), threshold = d->threshold[h];
            const bool hit = threshold < -1
                             || (similarity >= threshold && (positive || d->group != HA_SIMILAR_HARMONIC));
            seq->similarity[h] = similarity;
            seq->missed[h] = !hit;
            if (!hit) memcpy(seq->label + h * rows, seq->q + (d->q_len - 1) * heads + h * rows, rows * sizeof *seq->q);
        }
}

enum ha_status ha_host_similarity(struct ha_stream *s, const struct ha_device_similarity *args)
{
    static const struct ha_host_verb verb = { .name = "similarity", .kind = HA_SPAN_KERNEL, .run = run_similarity };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.similarity = *args
    };
    if (args->kv_heads == 0 || args->q_heads == 0 || args->q_heads % args->kv_heads != 0)
        return ha_host_fail(s->device, "similarity on %s: %zu query heads are no multiple of %zu KV heads", s->lane,
                            args->q_heads, args->kv_heads);
    if (args->q_len == 0) return ha_host_fail(s->device, "similarity on %s: steps of no token", s->lane);
    const size_t f = sizeof(float), label = args->q_heads * args->head_dim * f, q = args->q_len * label,
                 heads = args->kv_heads * f, importance = args->group == HA_SIMILAR_HARMONIC ? args->q_heads * f : 0;
    if (!ha_host_kernel_operand(s, &op, "importance", args->importance, importance, importance)
        || !ha_host_kernel_operand(s, &op, "threshold", args->threshold, heads, heads))
        return HA_ERROR;
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_similarity_seq *seq = &args->seqs[b];
        if (!ha_host_kernel_operand(s, &op, "q", seq->q, q, q)
            || !ha_host_kernel_operand(s, &op, "label", seq->label, label, label)
            || !ha_host_kernel_operand(s, &op, "similarity", seq->similarity, heads, 0)
            || !ha_host_kernel_operand(s, &op, "missed", seq->missed, heads, 0))
            return HA_ERROR;
    }
    return ha_host_enqueue(s, &op);
}
