#include "datasets/source.h"

#include "harness/base/rng.h"

#include <math.h>

/* Inputs that break arithmetic. KV head h of layer l, with the query heads of its group, has pattern
 * (l * kv_heads + h) mod 8 of the table at the end. */

struct place {
    const struct ha_source *src;
    size_t seq, layer, kv_head;
    size_t head; /* of the query */
};

static uint64_t stream(const struct place *p, enum ha_purpose purpose)
{
    return ha_stream(purpose, p->seq, p->layer, purpose == HA_FOR_QUERY ? p->head : p->kv_head);
}

static void noise(const struct place *p, enum ha_purpose purpose, size_t row, float gain, float *out)
{
    ha_noise_row(p->src, stream(p, purpose), row, out);
    for (size_t j = 0; j < p->src->shape.head_dim; j++) out[j] *= gain;
}

/* [head_dim] of -1 and 1, the same for every token */
static void signs(const struct place *p, float *out)
{
    uint64_t bits = 0;
    for (size_t j = 0; j < p->src->shape.head_dim; j++, bits >>= 1) {
        if (j % 64 == 0) bits = ha_rng_bits(p->src->seed, stream(p, HA_FOR_SIGN), j / 64);
        out[j] = bits & 1 ? -1.0f : 1.0f;
    }
}

static void noise_key(const struct place *p, size_t token, float *row) { noise(p, HA_FOR_KEY, token, 1, row); }
static void noise_value(const struct place *p, size_t token, float *row) { noise(p, HA_FOR_VALUE, token, 1, row); }
static void noise_query(const struct place *p, size_t token, float *row) { noise(p, HA_FOR_QUERY, token, 1, row); }

static void same_key(const struct place *p, size_t token, float *row) { noise(p, HA_FOR_KEY, 0, 1, row); }

/* Scores from 0 to 80 in steps as fine as the dtype allows: every dimension has the query's sign, none
 * ever turns back, and each rounds up at another token (1/16 is two steps of bfloat16 below 8). */
static void ramp(const struct place *p, size_t step, float *row)
{
    size_t d = p->src->shape.head_dim;
    double base = 7.9 * ((double)step / (double)p->src->total_tokens);
    signs(p, row);
    for (size_t j = 0; j < d; j++) row[j] *= (float)(base + (double)j / (double)(16 * d));
}

static void rising_key(const struct place *p, size_t token, float *row) { ramp(p, token, row); }

static void falling_key(const struct place *p, size_t token, float *row)
{
    size_t total = p->src->total_tokens;
    ramp(p, token < total ? total - 1 - token : 0, row);
}

static void ramp_query(const struct place *p, size_t token, float *row)
{
    size_t d = p->src->shape.head_dim;
    signs(p, row);
    for (size_t j = 0; j < d; j++) row[j] *= 10 / sqrtf((float)d);
}

/* Scores of 32 * 96 * sqrt(d), a few units more or less. The noise comes as +a and -a in pairs, inside
 * one binade, so that it rounds symmetrically and the query's large part sees the same sum in every key. */
static void offset_key(const struct place *p, size_t token, float *row)
{
    size_t d = p->src->shape.head_dim;
    float sign[HA_HEAD_DIM_MAX];
    noise(p, HA_FOR_KEY, token, 2, row);
    signs(p, sign);
    for (size_t j = 0; j + 1 < d; j += 2) {
        float a = row[j];
        row[j] = sign[j] * (96 + a);
        row[j + 1] = sign[j + 1] * (96 - a);
    }
    if (d % 2) row[d - 1] = sign[d - 1] * 96;
}

static void offset_query(const struct place *p, size_t token, float *row)
{
    float sign[HA_HEAD_DIM_MAX];
    noise(p, HA_FOR_QUERY, token, 1, row);
    signs(p, sign);
    for (size_t j = 0; j < p->src->shape.head_dim; j++) row[j] += 32 * sign[j];
}

/* +w, -w in turn, w 64 times the noise */
static void cancelling_value(const struct place *p, size_t token, float *row)
{
    float w[HA_HEAD_DIM_MAX];
    noise(p, HA_FOR_PATTERN, 0, token % 2 ? -64.0f : 64.0f, w);
    noise(p, HA_FOR_VALUE, token, 1, row);
    for (size_t j = 0; j < p->src->shape.head_dim; j++) row[j] += w[j];
}

/* 16 times one key of the context, which so scores 16 sqrt(d); the others 0 +- 16 */
static void dominant_query(const struct place *p, size_t token, float *row)
{
    size_t context = p->src->shape.ctx[p->seq];
    float key[HA_HEAD_DIM_MAX];
    noise(p, HA_FOR_KEY, ha_rng_below(p->src->seed, stream(p, HA_FOR_PLACE), 0, context ? context : 1), 16, key);
    noise(p, HA_FOR_QUERY, token, 1, row);
    for (size_t j = 0; j < p->src->shape.head_dim; j++) row[j] += key[j];
}

static void zero_value(const struct place *p, size_t token, float *row)
{
    for (size_t j = 0; j < p->src->shape.head_dim; j++) row[j] = 0;
}

/* Either sign, magnitudes in (top / 2, top]. Scores are about 2^16. */
static void huge(const struct place *p, enum ha_purpose purpose, size_t token, float top, float *row)
{
    size_t d = p->src->shape.head_dim;
    for (size_t j = 0; j < d; j++) {
        uint64_t i = (uint64_t)token * d + j;
        float u = ha_rng_uniform(p->src->seed, stream(p, purpose), i) - 0.5f;
        row[j] = u < 0 ? -top * (1 + u) : top * (1 - u);
    }
}

/* binary16 goes to its end. The other types do not: squares and sums of keys, and sums of values, stay finite. */
static bool narrow(const struct place *p) { return p->src->shape.dtype == HA_F16; }

/* What 2^8 times the sum of all values stays finite with (harness/api/reference.h). */
static float huge_top(const struct place *p)
{
    const struct ha_shape *s = &p->src->shape;
    int top = 110;
    for (size_t tokens = s->ctx[p->seq] + s->steps * s->q_len; tokens >> (120 - top);) top--;
    return ldexpf(1, top);
}

static void huge_key(const struct place *p, size_t token, float *row)
{
    huge(p, HA_FOR_KEY, token, narrow(p) ? 65504.0f : 0x1p58f, row);
}

static void huge_value(const struct place *p, size_t token, float *row)
{
    huge(p, HA_FOR_VALUE, token, narrow(p) ? 65504.0f : huge_top(p), row);
}

static void huge_query(const struct place *p, size_t token, float *row)
{
    noise(p, HA_FOR_QUERY, token, narrow(p) ? 1 : 0x1p-42f, row);
}

static const struct pattern {
    void (*key)(const struct place *p, size_t token, float *row);
    void (*value)(const struct place *p, size_t token, float *row);
    void (*query)(const struct place *p, size_t token, float *row);
} PATTERN[] = {
    { same_key, noise_value, noise_query },  /* ties */
    { rising_key, noise_value, ramp_query }, /* each key beats all before it */
    { falling_key, noise_value, ramp_query },
    { offset_key, noise_value, offset_query }, /* huge common offset */
    { noise_key, cancelling_value, noise_query },
    { noise_key, noise_value, dominant_query }, /* one key has all the mass */
    { noise_key, zero_value, noise_query },
    { huge_key, huge_value, huge_query },
};

static const struct pattern *pattern_of(const struct place *p)
{
    return &PATTERN[(p->layer * p->src->shape.kv_heads + p->kv_head) % (sizeof PATTERN / sizeof *PATTERN)];
}

static void adversarial_kv(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count,
                           void *k, void *v)
{
    struct place p = { .src = src, .seq = seq, .layer = layer, .kv_head = head };
    const struct pattern *pattern = pattern_of(&p);
    float row[HA_HEAD_DIM_MAX];
    for (size_t i = 0; i < count; i++) {
        if (k) {
            pattern->key(&p, first + i, row);
            ha_row_store(src, k, i, row);
        }
        if (v) {
            pattern->value(&p, first + i, row);
            ha_row_store(src, v, i, row);
        }
    }
}

static void adversarial_query(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    struct place p = {
        .src = src, .seq = seq, .layer = layer, .kv_head = head / ha_shape_group(&src->shape), .head = head
    };
    pattern_of(&p)->query(&p, token, q);
    ha_row_round(src, q);
}

const struct ha_dataset ha_dataset_adversarial = {
    .name = "adversarial",
    .doc = "by layer and KV head in turn: ties, rising, falling and offset scores, cancelling V, one dominant key, "
           "zero V, huge values",
    .open = ha_source_open,
    .close = ha_source_close,
    .kv = adversarial_kv,
    .query = adversarial_query,
};
