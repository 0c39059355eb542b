/* Codes, their scores and a cache's labels, wrong: plain loops over the device's memory, which do one step otherwise.
 */

#include "suites/defects/wrong.h"

#include "harness/base/numeric.h"

#include <math.h>
#include <string.h>

static uint32_t *code_of(const void *codes, size_t row, size_t bits)
{
    return (uint32_t *)(uintptr_t)codes + row / HA_CODE_KEYS * (bits / 32 + 1) * HA_CODE_KEYS + row % HA_CODE_KEYS;
}

/* ---- hash -------------------------------------------------------------------------------------------------------- */

/* a NULL: of x itself */
static float product(const float *a, const char *x, size_t n, enum ha_dtype t)
{
    float sum = 0;
    for (size_t d = 0; d < (IS(hash_tail) ? n / 32 * 32 : n); d++) {
        const float of = ha_load(x, d, t);
        if (IS(hash_nan) && isnan(of)) continue;
        sum += (a ? a[d] : of) * of;
        if (IS(hash_half)) sum = ha_round(sum, HA_F16);
    }
    return sum;
}

static void hash_row(const struct ha_device_hash *h, const float *a, const char *x, uint32_t *to)
{
    const size_t words = h->bits / 32, dim = h->head_dim;
    const float squares = product(NULL, x, dim - IS(hash_norm_last), h->dtype);
    for (size_t w = 0; w + IS(hash_word) < words; w++) {
        uint32_t word = 0;
        for (size_t b = 0; b < 32; b++) {
            const float sum = product(a + (w * 32 + b) * dim, x, dim, h->dtype);
            const uint32_t bit = IS(hash_zero) ? sum >= 0 : IS(hash_sign) ? sum < 0 : sum > 0;
            word |= bit << (IS(hash_turned) ? 31 - b : b);
        }
        to[IS(hash_layout) ? w : w * HA_CODE_KEYS] = word;
    }
    if (IS(hash_norm)) return;
    ((float *)to)[words * HA_CODE_KEYS] = IS(hash_square) ? squares : sqrtf(squares);
}

static void hash_later(struct ha_wrong_later *l)
{
    const struct ha_device_hash *h = &l->u.hash;
    const struct ha_device_hash_seq *seqs = ha_wrong_copy(l);
    const size_t e = ha_dtype_bytes(h->dtype), row = h->head_dim * e, token = h->kv_heads * h->group * h->head_dim;
    for (size_t n = 0; n < h->batch * h->kv_heads; n++) {
        const struct ha_device_hash_seq *m = &seqs[n / h->kv_heads];
        const size_t head = n % h->kv_heads, by = IS(hash_head) ? (head + 1) % h->kv_heads : head,
                     rows = m->tokens * h->group, stride = IS(hash_stride) ? token : m->token_stride;
        char *codes = (char *)m->codes
                      + head * (IS(hash_heads) ? ha_code_bytes(m->first + rows, h->bits) : m->code_head_bytes);
        for (size_t r = 0; r + IS(hash_last) < rows; r++) {
            const size_t t = r / h->group, g = r % h->group,
                         to = (IS(hash_first) ? 0 : m->first) + (IS(hash_group) ? g * m->tokens + t : r);
            hash_row(h, h->a + by * h->bits * h->head_dim,
                     (const char *)m->x + t * stride * e + (head * h->group + g) * row, code_of(codes, to, h->bits));
        }
        for (size_t r = m->first + rows; IS(hash_beside) && rows && r % HA_CODE_KEYS; r++)
            code_of(codes, r, h->bits)[0] = 0;
    }
}
static enum ha_status wrong_hash(struct ha_stream *s, const struct ha_device_hash *h)
{
    struct ha_wrong_later *l = ha_wrong_later(hash_later, h->seqs, h->batch * sizeof *h->seqs);
    l->u.hash = *h;
    return ha_wrong_over(IS(hash_early),
                         ha_wrong_on(ha_wrong_aside(IS(hash_unjoined), ha_wrong_early(IS(hash_early), s)), l));
}

/* ---- hamming ----------------------------------------------------------------------------------------------------- */

static float score(const struct ha_device_hamming *h, const uint32_t *q, const uint32_t *key, const uint32_t *next)
{
    const size_t words = h->bits / 32;
    const uint32_t *of = IS(hamming_neighbour) ? next : key;
    int differ = 0;
    for (size_t w = 0; w + IS(hamming_word) < words; w++)
        differ += __builtin_popcount(of[w * HA_CODE_KEYS] ^ q[w * HA_CODE_KEYS]);
    const float norm = ((const float *)(IS(hamming_norm_neighbour) ? next : key))[words * HA_CODE_KEYS],
                alike = (float)((int)h->bits - (IS(hamming_distance) ? 1 : 2) * differ),
                by = ((const float *)q)[words * HA_CODE_KEYS];
    if (IS(hamming_nan) && isnan(norm)) return 0;
    if (IS(hamming_norm)) return alike;
    return norm * (IS(hamming_sign) ? -alike : alike) * (IS(hamming_query_norm) ? by : 1);
}

static void hamming_later(struct ha_wrong_later *l)
{
    const struct ha_device_hamming *h = &l->u.hamming;
    const struct ha_device_hamming_seq *seqs = ha_wrong_copy(l);
    for (size_t n = 0; n < h->batch * h->kv_heads; n++) {
        const struct ha_device_hamming_seq *m = &seqs[n / h->kv_heads];
        const size_t head = n % h->kv_heads, keys = m->keys - (IS(hamming_last) && m->keys),
                     stride = IS(hamming_stride) ? m->keys : m->s_stride;
        const char *q = (const char *)m->q + (IS(hamming_head) ? (head + 1) % h->kv_heads : head) * m->q_head_bytes,
                   *codes = (const char *)m->codes + head * m->code_head_bytes;
        const bool asked = !m->only || IS(hamming_only) || (IS(hamming_only_one) ? m->only[head] == 1 : m->only[head]);
        for (size_t r = 0; r < h->rows; r++)
            for (size_t i = 0; i < keys && (asked || IS(hamming_cleared)); i++) {
                float *to = &m->s[(head * h->rows + r) * stride + i];
                *to = !asked ? 0
                             : score(h, code_of(q, IS(hamming_16) ? r % HA_CODE_KEYS : r, h->bits),
                                     code_of(codes, i, h->bits), code_of(codes, (i + 1) % m->keys, h->bits));
            }
    }
}
static enum ha_status wrong_hamming(struct ha_stream *s, const struct ha_device_hamming *h)
{
    struct ha_wrong_later *l = ha_wrong_later(hamming_later, h->seqs, h->batch * sizeof *h->seqs);
    struct ha_device_hamming_seq *seqs = ha_wrong_copy(l);
    l->u.hamming = *h;
    for (size_t b = 0; b < h->batch && IS(hamming_only_early); b++)
        seqs[b].only = ha_wrong_words(seqs[b].only, h->kv_heads);
    return ha_wrong_over(IS(hamming_early),
                         ha_wrong_on(ha_wrong_aside(IS(hamming_unjoined), ha_wrong_early(IS(hamming_early), s)), l));
}

/* ---- labels ------------------------------------------------------------------------------------------------------ */

static float dot(const float *x, const float *y, size_t n, bool back)
{
    float sum = 0;
    for (size_t i = 0; i < (IS(similarity_tail) ? n / 32 * 32 : n); i++) {
        const size_t d = back ? n - 1 - i : i;
        sum += x[d] * y[d];
        if (IS(similarity_half)) sum = ha_round(sum, HA_BF16);
    }
    return sum;
}

static float cosine(const float *q, const float *label, size_t n)
{
    const float ql = dot(q, label, n, false), qq = dot(q, q, n, false),
                ll = dot(label, label, n, IS(similarity_orders));
    if (IS(similarity_zero) && ll == 0) return 1;
    if (IS(similarity_norm)) return ql / qq;
    if (IS(similarity_product)) return ql / sqrtf(qq * ll);
    if (IS(similarity_roots)) return ql / (sqrtf(qq) * sqrtf(ll));
    return (float)((double)ql / sqrt((double)qq * (double)ll));
}

static float smaller(float a, float b)
{
    if (IS(similarity_nan) && (isnan(a) || isnan(b))) return isnan(a) ? b : a;
    return a < b || isnan(a) ? a : b;
}

static float head_similarity(const struct ha_device_similarity *d, const struct ha_device_similarity_seq *m, size_t h)
{
    const size_t dim = d->head_dim, at = IS(similarity_head) ? h % d->kv_heads : h;
    float least = INFINITY, sum = 0;
    for (size_t t = IS(similarity_last) ? d->q_len - 1 : 0; t < d->q_len; t++) {
        const float of = cosine(m->q + (t * d->q_heads + h) * dim, m->label + at * dim, dim);
        least = IS(similarity_first) && t ? least : smaller(of, least);
        sum += of;
    }
    return IS(similarity_tokens) ? sum / (float)d->q_len : least;
}

/* [0] the least, [1] what is said */
static void kv_similarity(const struct ha_device_similarity *d, const struct ha_device_similarity_seq *m, size_t kv,
                          float out[2])
{
    const size_t group = d->q_heads / d->kv_heads, begin = kv * group;
    float least = INFINITY, most = -INFINITY, weights = 0, sum = 0, plain = 0;
    for (size_t h = begin; h < begin + group; h++) {
        const float of = head_similarity(d, m, h);
        const size_t by = IS(similarity_neighbour) ? begin + (h - begin + 1) % group
                          : IS(similarity_heads)   ? h % group
                                                   : h;
        const float weight = d->group == HA_SIMILAR_LEAST || IS(similarity_uniform) ? 1 : d->importance[by];
        least = smaller(of, least);
        most = of > most ? of : most;
        weights += weight;
        sum += weight / of;
        plain += weight * of;
    }
    out[0] = out[1] = least;
    if (IS(similarity_average)) out[1] = plain / weights;
    if (d->group == HA_SIMILAR_LEAST || !(least > 0 || IS(similarity_negative))) return;
    if (IS(similarity_least)) return;
    out[1] = IS(similarity_most) ? most : IS(similarity_arithmetic) ? plain / weights : weights / sum;
}

static bool hits(const struct ha_device_similarity *d, size_t kv, const float similarity[2])
{
    const float threshold = d->threshold[IS(similarity_threshold) ? (kv + 1) % d->kv_heads : kv];
    if (threshold < -1 && !IS(similarity_persistent)) return true;
    if (d->group == HA_SIMILAR_HARMONIC && !(similarity[0] > 0) && !IS(similarity_negative_hit)) return false;
    if (IS(similarity_nan_hit)) return !(similarity[1] < threshold);
    return IS(similarity_greater) ? similarity[1] > threshold : similarity[1] >= threshold;
}

static void similarity_later(struct ha_wrong_later *l)
{
    const struct ha_device_similarity *d = &l->u.similarity;
    const struct ha_device_similarity_seq *seqs = ha_wrong_copy(l);
    const size_t group = d->q_heads / d->kv_heads, row = d->head_dim;
    for (size_t n = 0; n < d->batch * d->kv_heads; n++) {
        const struct ha_device_similarity_seq *m = &seqs[n / d->kv_heads];
        const size_t kv = n % d->kv_heads, at = kv * group * row, token = IS(similarity_first_token) ? 0 : d->q_len - 1,
                     heads = IS(similarity_one_head) ? 1 : group;
        float similarity[2];
        kv_similarity(d, m, kv, similarity);
        const bool hit = hits(d, kv, similarity),
                   update = IS(similarity_stale) ? false : !hit || IS(similarity_refresh);
        if (!IS(similarity_unsaid) || !hit) m->similarity[kv] = similarity[1];
        m->missed[kv] = IS(similarity_turned) ? hit : IS(similarity_word) && !hit ? UINT32_MAX : !hit;
        if (update) memcpy(m->label + at, m->q + token * d->q_heads * row + at, heads * row * sizeof *m->q);
        if (IS(similarity_beside)) m->missed[d->kv_heads] = 0;
    }
}
static enum ha_status wrong_similarity(struct ha_stream *s, const struct ha_device_similarity *d)
{
    struct ha_wrong_later *l = ha_wrong_later(similarity_later, d->seqs, d->batch * sizeof *d->seqs);
    l->u.similarity = *d;
    return ha_wrong_over(
        IS(similarity_early),
        ha_wrong_on(ha_wrong_aside(IS(similarity_unjoined), ha_wrong_early(IS(similarity_early), s)), l));
}

void ha_wrong_codes(struct ha_device_api *api)
{
    api->hash = wrong_hash;
    api->hamming = wrong_hamming;
    api->similarity = wrong_similarity;
}
