/* What finds keys by codes on a device, and a cache that is labelled with queries, against the reference; what lies
 * beside the results does not change. */

#include "kernels/host/test_blocks.h"

#include "harness/api/reference.h"

#include <math.h>

enum { BATCH_MAX = 70, FLOATS = sizeof(float), BESIDE = 64 };

static float *floats(size_t n) { return block(n * FLOATS); }
static float *drawn(size_t n, uint64_t seed)
{
    float *x = floats(n);
    normals(x, n, HA_F32, seed);
    return x;
}
static uint32_t *codes_of(size_t heads, size_t head_bytes) { return device_block(heads * head_bytes + 64); }

/* ---- codes */

struct hashes {
    size_t batch, heads, group, dim, bits;
    enum ha_dtype dtype;
    bool gaps; /* between tokens, between heads' codes */
};

static struct ha_device_hash_seq make_hash(const struct hashes *c, size_t b, size_t tokens, size_t first)
{
    const size_t row = c->heads * c->group * c->dim, e = ha_dtype_bytes(c->dtype),
                 token_stride = row + (c->gaps ? 3 + b % 2 : 0),
                 head_bytes = ha_code_bytes(first + tokens * c->group, c->bits) + (c->gaps ? 64 : 0);
    char *x = block(tokens * token_stride * e);
    for (size_t t = 0; t < tokens; t++) normals(x + t * token_stride * e, row, c->dtype, 100 * b + t);
    static const float odd[] = { NAN, INFINITY, -INFINITY, 0 };
    if (tokens > 2) ha_store(x + 2 * token_stride * e, b % row, c->dtype, odd[b % COUNT(odd)]);
    return (struct ha_device_hash_seq){ x, tokens, token_stride, codes_of(c->heads, head_bytes), head_bytes, first };
}

/* the kernel's own arguments, of the queries of token t that share head h, or of a head's keys */
static struct ha_hash hash_of(const struct hashes *c, const struct ha_device_hash_seq *s, const float *a, size_t h,
                              size_t t)
{
    const size_t e = ha_dtype_bytes(c->dtype);
    return (struct ha_hash){ .a = a + h * c->bits * c->dim,
                             .bits = c->bits,
                             .rows = { .k = (const char *)s->x + (t * s->token_stride + h * c->group * c->dim) * e,
                                       .k_stride_bytes = c->dim * e,
                                       .keys = c->group },
                             .head_dim = c->dim,
                             .dtype = c->dtype,
                             .codes = (char *)s->codes + h * s->code_head_bytes,
                             .first = s->first + t * c->group };
}

static void hash(const struct hashes *c, const size_t *tokens, const size_t *first, size_t lengths)
{
    struct ha_device_hash_seq seq[BATCH_MAX], copy[BATCH_MAX];
    float *a = drawn(c->heads * c->bits * c->dim, 5);
    for (size_t b = 0; b < c->batch; b++) seq[b] = make_hash(c, b, tokens[b % lengths], first[b % lengths]);
    memcpy(copy, seq, sizeof seq);
    struct ha_device_hash args = { c->batch, c->heads, c->group, c->dim, c->bits, c->dtype, a, copy };
    ok(api->hash(stream, &args));
    memset(copy, 0, sizeof copy);
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    for (size_t b = 0; b < c->batch; b++) {
        const struct ha_device_hash_seq *s = &seq[b];
        const size_t words = c->bits / 32 + 1, end = s->first + s->tokens * c->group;
        for (size_t h = 0; h < c->heads; h++) {
            for (size_t t = 0; t < s->tokens; t++) {
                const struct ha_hash one = hash_of(c, s, a, h, t);
                const double ratio = ha_ref_judge_hash(&one);
                if (!(ratio <= 1))
                    fail_msg("%zu bits of %zu, %zu x %zu heads, sequence %zu, head %zu, token %zu: error/bound %g",
                             c->bits, c->dim, c->heads, c->group, b, h, t, ratio);
            }
            const uint32_t *of = (const uint32_t *)s->codes + h * s->code_head_bytes / 4;
            for (size_t i = 0; i < s->code_head_bytes / 4; i++) {
                const size_t row = i / (words * HA_CODE_KEYS) * HA_CODE_KEYS + i % HA_CODE_KEYS;
                if (row < s->first || row >= end) assert_true(poisoned(&of[i], sizeof *of));
            }
        }
        assert_true(poisoned((char *)s->codes + c->heads * s->code_head_bytes, BESIDE));
    }
    release_memory();
}

DEVICE_TEST(codes_of_every_shape)
{
    static const size_t dims[] = { 128, 64, 33, 1, 80, 256 }, bits[] = { 256, 128, 32, 96, 64 },
                        tokens[] = { 1, 70, 3, 0, 17, 33 }, first[] = { 15, 0, 16, 5, 31, 100 };
    for (size_t i = 0; i < 30; i++)
        if (!HA_SANITIZED || i % 5 == 3)
            hash(&(struct hashes){ .batch = 1 + i % 4,
                                   .heads = 1 + i % 3,
                                   .group = i % 2 ? 1 : 1 + i % 7,
                                   .dim = dims[i % COUNT(dims)],
                                   .bits = bits[i % COUNT(bits)],
                                   .dtype = (enum ha_dtype)(i % 3),
                                   .gaps = i % 4 > 1 },
                 tokens + i % 3, first + i % 3, COUNT(tokens) - 3);
}

DEVICE_TEST(codes_of_a_large_batch)
{
    static const size_t tokens[] = { 1, 0, 2 }, first[] = { 3, 0, 16 };
    hash(&(struct hashes){ .batch = BATCH_MAX, .heads = 1, .group = 2, .dim = 8, .bits = 32 }, tokens, first,
         COUNT(tokens));
    ok(api->hash(stream,
                 &(struct ha_device_hash){ .kv_heads = 1, .group = 1, .head_dim = 1, .bits = 32, .a = drawn(32, 1) }));
}

/* ---- scores by codes */

struct scores {
    size_t batch, heads, rows, bits;
    bool only;
};

/* a row's word, or its norm */
static void draw_codes(uint32_t *codes, size_t bits, size_t rows, uint64_t seed)
{
    for (size_t row = 0; row < rows; row++) {
        for (size_t w = 0; w < bits / 32; w++) codes[ha_ref_code(bits, row, w)] = (uint32_t)ha_rng_bits(seed, w, row);
        ((float *)codes)[ha_ref_code(bits, row, bits / 32)] = row % 9 == 5 ? NAN : fabsf(ha_rng_normal(seed, 99, row));
    }
}

static struct ha_device_hamming_seq make_scores(const struct scores *c, size_t b, size_t keys)
{
    const size_t q_bytes = ha_code_bytes(c->rows, c->bits) + 64 * (b % 2),
                 bytes = ha_code_bytes(keys, c->bits) + 64 * (b % 3), stride = keys + b % 2 * 5;
    uint32_t *q = codes_of(c->heads, q_bytes), *codes = codes_of(c->heads, bytes),
             *only = c->only ? block(c->heads * sizeof *only) : NULL;
    for (size_t h = 0; h < c->heads; h++) {
        draw_codes(q + h * q_bytes / 4, c->bits, c->rows, 10 * b + h);
        draw_codes(codes + h * bytes / 4, c->bits, keys, 10 * b + h + 1000);
        if (only) only[h] = (b + h) % 3 == 0 ? 0 : (uint32_t)h + 1;
    }
    return (struct ha_device_hamming_seq){ q,      codes, q_bytes, bytes, keys, floats(c->heads * c->rows * stride + 1),
                                           stride, only };
}

static void hamming(const struct scores *c, const size_t *keys, size_t lengths)
{
    struct ha_device_hamming_seq seq[BATCH_MAX], copy[BATCH_MAX];
    for (size_t b = 0; b < c->batch; b++) seq[b] = make_scores(c, b, keys[b % lengths]);
    memcpy(copy, seq, sizeof seq);
    struct ha_device_hamming args = { c->batch, c->heads, c->rows, c->bits, copy };
    ok(api->hamming(stream, &args));
    memset(copy, 0, sizeof copy);
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < c->heads; h++) {
            const struct ha_device_hamming_seq *s = &seq[b];
            const struct ha_hamming one = { .q = (const char *)s->q + h * s->q_head_bytes,
                                            .q_rows = c->rows,
                                            .bits = c->bits,
                                            .codes = (const char *)s->codes + h * s->code_head_bytes,
                                            .keys = s->keys,
                                            .s = s->s + h * c->rows * s->s_stride,
                                            .s_stride = s->s_stride };
            const bool asked = !s->only || s->only[h];
            if (asked && ha_ref_judge_hamming(&one) != 0)
                fail_msg("%zu rows of %zu bits, %zu keys: sequence %zu, head %zu", c->rows, c->bits, s->keys, b, h);
            for (size_t r = 0; r < c->rows; r++) {
                const float *row = one.s + r * s->s_stride;
                assert_true(poisoned(asked ? row + s->keys : row, (s->s_stride - (asked ? s->keys : 0)) * FLOATS));
            }
        }
    release_memory();
}

DEVICE_TEST(scores_by_codes_of_every_shape)
{
    static const size_t bits[] = { 256, 128, 32, 96, 224 }, rows[] = { 1, 4, 16, 17, 70, 8 },
                        keys[] = { 100, 1, 0, 16, 333, 129 };
    for (size_t i = 0; i < 30; i++)
        if (!HA_SANITIZED || i % 5 == 3)
            hamming(&(struct scores){ .batch = 1 + i % 4,
                                      .heads = 1 + i % 3 * 2,
                                      .rows = rows[i % COUNT(rows)],
                                      .bits = bits[i % COUNT(bits)],
                                      .only = i % 2 },
                    keys + i % 3, COUNT(keys) - 3);
}

DEVICE_TEST(scores_by_codes_of_a_large_batch)
{
    static const size_t keys[] = { 3, 0, 40 };
    hamming(&(struct scores){ .batch = BATCH_MAX, .heads = 2, .rows = 2, .bits = 64, .only = true }, keys, COUNT(keys));
    ok(api->hamming(stream, &(struct ha_device_hamming){ .kv_heads = 1, .rows = 1, .bits = 32 }));
}

/* ---- labels */

struct labels {
    size_t batch, kv_heads, group, q_len, dim;
    enum ha_similar of;
    size_t odd; /* a NaN in 1: q; 2: a label; an infinity in 3: q */
};

/* Of each sequence a KV head whose queries are its labels, one without labels, one turned away, others near or far; and
 * thresholds of every kind. */
static struct ha_device_similarity_seq make_labels(const struct labels *c, size_t b)
{
    const size_t heads = c->kv_heads * c->group, n = heads * c->dim;
    float *q = drawn(c->q_len * n, 10 * b + 1), *label = floats(n + BESIDE / FLOATS);
    for (size_t h = 0; h < heads; h++) {
        const size_t kind = (h / c->group + b) % 6;
        for (size_t d = 0; d < c->dim; d++)
            for (size_t t = 0; t < c->q_len; t++) {
                float *at = &q[t * n + h * c->dim + d], *of = &label[h * c->dim + d];
                if (t == 0) *of = kind == 1 ? 0 : *at * (kind > 2 ? 3 : 1);
                else if (kind == 0) *at = *of;
                if (kind == 2) *at = -*at;
                if (kind > 2) *at += (float)(kind - 2) * 0.2f * ha_rng_normal(7, b + t, h * c->dim + d);
            }
    }
    const size_t at = (b + 1) * c->dim % n;
    if (c->odd == 1) q[(c->q_len - 1) * n + at] = NAN;
    if (c->odd == 2) label[at] = NAN;
    if (c->odd == 3) q[at] = -INFINITY;
    return (struct ha_device_similarity_seq){ q, label, floats(c->kv_heads + BESIDE / FLOATS),
                                              block(c->kv_heads * sizeof(uint32_t) + BESIDE) };
}

static void similarity(const struct labels *c)
{
    static const float thresholds[] = { 0.9f, 1, 0, -0.5f, -2, 0.97f, -INFINITY, 0.5f, NAN, -1 };
    const size_t heads = c->kv_heads * c->group, n = heads * c->dim;
    struct ha_device_similarity_seq seq[BATCH_MAX], copy[BATCH_MAX];
    float *importance = floats(heads), *threshold = floats(c->kv_heads), *before[BATCH_MAX];
    for (size_t h = 0; h < heads; h++) importance[h] = fmaxf(ha_rng_uniform(3, 0, h), 0x1p-10f);
    for (size_t b = 0; b < c->batch; b++) {
        seq[b] = make_labels(c, b);
        before[b] = floats(n);
        memcpy(before[b], seq[b].label, n * FLOATS);
    }
    for (size_t h = 0; h < c->kv_heads; h++) threshold[h] = thresholds[(h + c->dim) % COUNT(thresholds)];
    memcpy(copy, seq, sizeof seq);
    struct ha_device_similarity
        args = { c->batch,  c->q_len, heads, c->kv_heads, c->dim, c->of, c->of == HA_SIMILAR_LEAST ? NULL : importance,
                 threshold, copy },
        kept = args;
    kept.seqs = seq;
    ok(api->similarity(stream, &args));
    memset(copy, 0, sizeof copy);
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t h = 0; h < c->kv_heads; h++) {
            const double ratio = ha_ref_judge_similarity(&kept, b, h, before[b]);
            if (!(ratio <= 1))
                fail_msg("%zu x %zu heads of %zu, %zu tokens, sequence %zu, head %zu: similarity %g, threshold %g, "
                         "missed %u: error/bound %g",
                         c->kv_heads, c->group, c->dim, c->q_len, b, h, (double)seq[b].similarity[h],
                         (double)threshold[h], seq[b].missed[h], ratio);
        }
        assert_true(poisoned(seq[b].label + n, BESIDE));
        assert_true(poisoned(seq[b].similarity + c->kv_heads, BESIDE));
        assert_true(poisoned(seq[b].missed + c->kv_heads, BESIDE));
    }
    release_memory();
}

DEVICE_TEST(similarities_of_every_shape)
{
    static const size_t dims[] = { 128, 64, 33, 1, 80, 256, 2 }, groups[] = { 1, 4, 2, 7, 9 };
    for (size_t i = 0; i < 60; i++)
        if (!HA_SANITIZED || i % 7 == 3)
            similarity(&(struct labels){ .batch = 1 + i % 5,
                                         .kv_heads = 1 + i % 3 * 4,
                                         .group = groups[i % COUNT(groups)],
                                         .q_len = 1 + i / 2 % 3,
                                         .dim = dims[i % COUNT(dims)],
                                         .of = i % 2 ? HA_SIMILAR_HARMONIC : HA_SIMILAR_LEAST,
                                         .odd = i % 8 > 4 ? i % 8 - 4 : 0 });
}

DEVICE_TEST(similarities_of_a_large_batch)
{
    similarity(&(struct labels){ .batch = BATCH_MAX, .kv_heads = 3, .group = 2, .q_len = 2, .dim = 16 });
    ok(api->similarity(stream, &(struct ha_device_similarity){
                                   .q_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 1, .threshold = floats(1) }));
}

/* A query equal to its label is similar by 1, whatever its length and the magnitude of its numbers. */
DEVICE_TEST(a_query_is_similar_to_itself)
{
    for (size_t i = 0; i < 64; i++) {
        enum { GROUP = 5 };
        const size_t dim = 1 + i * 3;
        float *q = drawn(GROUP * dim, i), *label = floats(GROUP * dim), *threshold = floats(1), *similar = floats(1),
              *importance = floats(GROUP);
        uint32_t *missed = block(sizeof *missed);
        for (size_t d = 0; d < GROUP * dim; d++) label[d] = q[d] = ldexpf(1 + fabsf(q[d]), (int)(i % 5) * 28 - 58);
        for (size_t h = 0; h < GROUP; h++) importance[h] = 0.1f + ha_rng_uniform(1, i, h);
        *threshold = 1;
        const struct ha_device_similarity_seq seq = { q, label, similar, missed };
        for (int of = HA_SIMILAR_LEAST; of <= HA_SIMILAR_HARMONIC; of++) {
            ok(api->similarity(stream, &(struct ha_device_similarity){ 1, 1, GROUP, 1, dim, (enum ha_similar)of,
                                                                       importance, threshold, &seq }));
            ok(api->stream_sync(stream));
            assert_true(*similar == 1);
            assert_int_equal(*missed, 0);
        }
        release_memory();
    }
}

/* Numbers that are worked out by hand: cosines 0.96 and 0.6 to the last token, 1 and 0.8 to the one before it. */
DEVICE_TEST(similarity_by_hand)
{
    static const float queries[2][4] = { { 4, 3, 3, 4 }, { 3, 4, 5, 0 } }, labels[4] = { 8, 6, 3, 4 };
    static const struct {
        enum ha_similar of;
        float weight[2], threshold, similarity;
        bool missed;
    } cases[] = {
        { HA_SIMILAR_LEAST, { 1, 1 }, 0.5f, 0.6f, false },
        { HA_SIMILAR_LEAST, { 1, 1 }, 0.7f, 0.6f, true },
        { HA_SIMILAR_HARMONIC, { 1, 1 }, 0.7f, 2 / (1 / 0.96f + 1 / 0.6f), false },
        { HA_SIMILAR_HARMONIC, { 3, 1 }, 0.8f, 4 / (3 / 0.96f + 1 / 0.6f), false },
        { HA_SIMILAR_HARMONIC, { 1, 3 }, 0.8f, 4 / (1 / 0.96f + 3 / 0.6f), true },
        { HA_SIMILAR_LEAST, { 1, 1 }, -1.5f, 0.6f, false },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        float *q = floats(8), *label = floats(4), *similar = floats(1), *importance = floats(2), *threshold = floats(1);
        uint32_t *missed = block(sizeof *missed);
        memcpy(q, queries, sizeof queries);
        memcpy(label, labels, sizeof labels);
        memcpy(importance, cases[i].weight, sizeof cases[i].weight);
        *threshold = cases[i].threshold;
        const struct ha_device_similarity_seq seq = { q, label, similar, missed };
        ok(api->similarity(stream,
                           &(struct ha_device_similarity){ 1, 2, 2, 1, 2, cases[i].of, importance, threshold, &seq }));
        ok(api->stream_sync(stream));
        if (!(fabsf(*similar - cases[i].similarity) < 1e-6f) || *missed != cases[i].missed)
            fail_msg("case %zu: %g, missed %u", i, (double)*similar, *missed);
        assert_memory_equal(label, cases[i].missed ? queries[1] : labels, sizeof labels);
        release_memory();
    }
}

/* ---- wrong use */

#define WRONG(name, words) WRONG_USE(name, words, device_begin, device_end, refused)
WRONG_CALL(codes_are_whole_words, "codes of 48 bits, not 32, 64, ... or 256",
           api->hash(stream, &(struct ha_device_hash){ .bits = 48 }))
WRONG_CALL(codes_have_bits, "codes of 0 bits", api->hash(stream, &(struct ha_device_hash){ .bits = 0 }))
WRONG_CALL(scored_codes_are_not_long, "codes of 288 bits",
           api->hamming(stream, &(struct ha_device_hamming){ .bits = 288 }))
WRONG_CALL(labels_need_whole_groups, "3 query heads are no multiple of 2 KV heads",
           api->similarity(stream, &(struct ha_device_similarity){ .q_len = 1, .q_heads = 3, .kv_heads = 2 }))
WRONG_CALL(labels_need_a_step, "steps of no token",
           api->similarity(stream, &(struct ha_device_similarity){ .q_heads = 2, .kv_heads = 2 }))
