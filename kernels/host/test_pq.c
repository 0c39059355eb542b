/* Attention over keys that are codes, on a device, against the reference: codes, tables and scores by them, softmax,
 * the least prefix of weights, and sums of V by it; what lies beside the results does not change. */

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

/* codes and tables of a head begin at multiples of 64 bytes */
static size_t lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

struct shape {
    size_t batch, heads, groups, dims, count, bits;
    bool separate, gaps;
    enum ha_dtype type;
    size_t group, q_len, odd;
};

/* Pairs of centroids are equal, so that the first of them is asked for. */
static struct ha_pq pq_of(const struct shape *c)
{
    const struct ha_pq pq = {
        .groups = c->groups, .dims = c->dims, .count = c->count, .books = c->separate ? c->groups : 1, .bits = c->bits
    };
    float *at = drawn(c->heads * ha_pq_book_floats(&pq), 3);
    for (size_t i = 0; i < c->heads * pq.books * c->dims; i++)
        for (size_t j = 0; j + 7 < c->count; j += 8) at[i * c->count + j + 5] = at[i * c->count + j + 2];
    struct ha_pq all = pq;
    all.centroid = at;
    return all;
}
static struct ha_pq book_of(const struct ha_pq *pq, size_t head)
{
    struct ha_pq own = *pq;
    own.centroid += head * ha_pq_book_floats(pq);
    return own;
}

/* Are the bits of keys [first, end) of a head's codes all that is not as it was? */
static void assert_beside(const struct ha_pq *pq, const unsigned char *codes, size_t bytes, size_t first, size_t end)
{
    const size_t block = ha_pq_block_bytes(pq), of_group = block / pq->groups;
    for (size_t bit = 0; bit < bytes * 8; bit++) {
        const size_t at = bit / 8, key = at / block * HA_PQ_KEYS + (at % block % of_group * 8 + bit % 8) / pq->bits;
        if ((key < first || key >= end) && !(codes[at] >> bit % 8 & 1)) fail_msg("key %zu is written", key);
    }
}

/* ---- codes */

static void encode(const struct shape *c, const size_t *keys, const size_t *first, size_t lengths)
{
    static const float odd[] = { NAN, INFINITY, -INFINITY };
    const struct ha_pq pq = pq_of(c);
    const size_t dim = c->groups * c->dims, e = ha_dtype_bytes(c->type), row = dim * e;
    struct ha_device_pq_encode_seq seq[BATCH_MAX], copy[BATCH_MAX];
    for (size_t b = 0; b < c->batch; b++) {
        const size_t n = keys[b % lengths], pool = 2 * n + 1, stride = c->gaps ? row + 4 * e : c->heads * row;
        char *k = block(c->heads * pool * (row + 4 * e));
        uint32_t *index = b % 2 ? block(n * sizeof *index) : NULL;
        for (size_t i = 0; index && i < n; i++) index[i] = (uint32_t)(2 * (n - 1 - i) + i % 2);
        normals(k, c->heads * pool * (dim + 4), c->type, b + 10);
        if (b % 3 == 2 && n) ha_store(k + (index ? index[0] : 0) * stride, 1, c->type, odd[b / 3 % COUNT(odd)]);
        const size_t bytes = lines(ha_pq_code_bytes(&pq, first[b % lengths] + n)) + (c->gaps ? 64 : 0);
        seq[b] = (struct ha_device_pq_encode_seq){ { k, NULL, stride, 0, index, n },
                                                   c->gaps ? pool * stride : row,
                                                   device_block(c->heads * bytes + BESIDE),
                                                   bytes,
                                                   first[b % lengths] };
    }
    memcpy(copy, seq, sizeof seq);
    struct ha_device_pq_encode args = { c->batch, c->heads, pq, c->type, copy };
    ok(api->pq_encode(stream, &args));
    memset(copy, 0, sizeof copy);
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < c->heads; h++) {
            const struct ha_device_pq_encode_seq *s = &seq[b];
            struct ha_pq_encode one = { book_of(&pq, h), s->rows, c->type, (char *)s->codes + h * s->code_head_bytes,
                                        s->first };
            one.rows.k = (const char *)one.rows.k + h * s->k_head_bytes;
            if (!(ha_ref_judge_pq_encode(&one) <= 1))
                fail_msg("%zu groups of %zu, %zu centroids, %zu bits: sequence %zu, head %zu", c->groups, c->dims,
                         c->count, c->bits, b, h);
            assert_beside(&pq, one.codes, s->code_head_bytes + (h + 1 == c->heads ? BESIDE : 0), s->first,
                          s->first + s->rows.keys);
        }
    release_memory();
}

static const size_t groups[] = { 32, 1, 5, 16, 3 }, dims[] = { 4, 7, 2, 8, 16, 1 },
                    counts[] = { 256, 3, 16, 64, 1, 500, 32 }, bits[] = { 8, 2, 4, 6, 3, 16, 5 };

static struct shape shape_of(size_t i)
{
    return (struct shape){ .batch = 1 + i % 4,
                           .heads = 1 + i % 3,
                           .groups = groups[i % COUNT(groups)],
                           .dims = dims[i % COUNT(dims)],
                           .count = counts[i % COUNT(counts)],
                           .bits = bits[i % COUNT(bits)],
                           .separate = i % 2,
                           .gaps = i % 4 > 1,
                           .group = 1 + i / 2 % 5,
                           .q_len = 1 + i / 3 % 3 };
}

DEVICE_TEST(codes_of_every_shape)
{
    static const size_t keys[] = { 1, 70, 3, 0, 33, 64 }, first[] = { 31, 0, 32, 5, 63, 100 };
    for (size_t i = 0; i < 42; i++) {
        struct shape c = shape_of(i);
        c.type = (enum ha_dtype)(i % 3);
        if (!HA_SANITIZED || i % 5 == 3) encode(&c, keys + i % 3, first + i / 2 % 3, COUNT(keys) - 3);
    }
}

DEVICE_TEST(codes_of_a_large_batch)
{
    static const size_t keys[] = { 1, 0, 2 }, first[] = { 3, 0, 31 };
    encode(&(struct shape){ BATCH_MAX, 2, 2, 2, 4, 2, .separate = true }, keys, first, COUNT(keys));
    const struct ha_pq pq = pq_of(&(struct shape){ .heads = 1, .groups = 1, .dims = 1, .count = 1, .bits = 1 });
    ok(api->pq_encode(stream, &(struct ha_device_pq_encode){ .kv_heads = 1, .pq = pq }));
}

/* Nearest by hand: halfway between two the first, and NaN is nearest to nothing but a NaN. */
DEVICE_TEST(codes_by_hand)
{
    static const float book[2][5] = { { 0, 2, 2, 8, NAN }, { 0, 0, 0, 1, 0 } },
                       key[6][2] = { { 1, 0 }, { 2, 0 }, { 7, 1 }, { 5, 0.5f }, { NAN, 0 }, { -3, -9 } };
    static const uint32_t want[6] = { 0, 1, 3, 1, 0, 0 };
    float *centroid = floats(10), *k = floats(12);
    unsigned char *codes = device_block(64);
    memcpy(centroid, book, sizeof book);
    memcpy(k, key, sizeof key);
    const struct ha_device_pq_encode_seq seq = { { k, NULL, 8, 0, NULL, 6 }, 8, codes, 64, 1 };
    ok(api->pq_encode(stream, &(struct ha_device_pq_encode){ 1, 1, { centroid, 1, 2, 5, 1, 3 }, HA_F32, &seq }));
    ok(api->stream_sync(stream));
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 3; j++)
            if ((codes[(3 * (i + 1) + j) / 8] >> (3 * (i + 1) + j) % 8 & 1) != (want[i] >> j & 1))
                fail_msg("key %zu, bit %zu", i, j);
    assert_int_equal(codes[0] & 7, 7);
    release_memory();
}

/* ---- tables and scores */

static void table(const struct shape *c)
{
    const struct ha_pq pq = pq_of(c);
    const size_t heads = c->heads * c->group, dim = c->groups * c->dims,
                 bytes = ha_pq_table_bytes(&pq, c->group * c->q_len, c->type), step = lines(bytes) + (c->gaps ? 64 : 0);
    struct ha_device_pq_table_seq seq[BATCH_MAX], copy[BATCH_MAX];
    for (size_t b = 0; b < c->batch; b++) {
        float *q = drawn(c->q_len * heads * dim, b + 1);
        if (b % 3 == 2) q[b % (c->q_len * heads * dim)] = b % 2 ? NAN : INFINITY;
        if (b % 3 == 1) q[b % (c->q_len * heads * dim)] = b % 2 ? 1e8f : -1e8f; /* beyond f16, with most centroids */
        seq[b] = (struct ha_device_pq_table_seq){ q, device_block(c->heads * step + BESIDE), step };
    }
    memcpy(copy, seq, sizeof seq);
    struct ha_device_pq_table args = { c->batch, c->q_len, heads, c->heads, pq, c->type, copy };
    ok(api->pq_table(stream, &args));
    memset(copy, 0, sizeof copy);
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < c->heads; h++) {
            const struct ha_pq_table one = { .pq = book_of(&pq, h),
                                             .q = seq[b].q + h * c->group * dim,
                                             .q_len = c->q_len,
                                             .group = c->group,
                                             .q_token_stride = heads * dim,
                                             .q_head_stride = dim,
                                             .type = c->type,
                                             .table = (char *)seq[b].table + h * step };
            const double ratio = ha_ref_judge_pq_table(&one, NULL);
            if (!(ratio <= 1))
                fail_msg("%zu groups of %zu, %zu centroids, %zu x %zu rows of %s: sequence %zu, head %zu: error/bound "
                         "%g",
                         c->groups, c->dims, c->count, c->group, c->q_len, ha_dtype_name(c->type), b, h, ratio);
            assert_true(poisoned((char *)one.table + bytes, step - bytes + (h + 1 == c->heads ? BESIDE : 0)));
        }
    release_memory();
}

DEVICE_TEST(tables_of_every_shape)
{
    for (size_t i = 0; i < 42; i++) {
        struct shape c = shape_of(i);
        c.type = i % 4 == 1 ? HA_F16 : HA_F32;
        if (!HA_SANITIZED || i % 5 == 3) table(&c);
    }
    table(&(struct shape){ BATCH_MAX, 1, 2, 2, 4, 2, .group = 1, .q_len = 1 });
    const struct ha_pq pq = pq_of(&(struct shape){ .heads = 1, .groups = 1, .dims = 1, .count = 1, .bits = 1 });
    ok(api->pq_table(stream, &(struct ha_device_pq_table){ .q_len = 1, .q_heads = 1, .kv_heads = 1, .pq = pq }));
}

static void draw_codes(const struct ha_pq *pq, unsigned char *codes, size_t keys, uint64_t seed)
{
    for (size_t i = 0; i < keys * pq->groups; i++) {
        const size_t key = i / pq->groups, code = (size_t)ha_rng_below(seed, 0, i, pq->count),
                     at = (key / HA_PQ_KEYS * pq->groups + i % pq->groups) * HA_PQ_KEYS * pq->bits
                          + key % HA_PQ_KEYS * pq->bits;
        for (size_t j = 0; j < pq->bits; j++)
            if (!(code >> j & 1)) codes[(at + j) / 8] &= (unsigned char)~(1u << (at + j) % 8);
    }
}

static void score(const struct shape *c, const size_t *keys, size_t lengths)
{
    const struct ha_pq pq = { NULL, c->groups, c->dims, c->count, 1, c->bits };
    const size_t rows = c->group * c->q_len, bytes = ha_pq_table_bytes(&pq, rows, c->type),
                 step = lines(bytes) + (c->gaps ? 64 : 0);
    const float scale = 0.3f;
    struct ha_device_pq_score_seq seq[BATCH_MAX], copy[BATCH_MAX];
    for (size_t b = 0; b < c->batch; b++) {
        const size_t n = keys[b % lengths], code_step = lines(ha_pq_code_bytes(&pq, n)) + (c->gaps ? 64 : 0),
                     stride = n + b % 2 * 5;
        char *const at = device_block(c->heads * step);
        unsigned char *const codes = device_block(c->heads * code_step);
        for (size_t h = 0; h < c->heads; h++) {
            normals(at + h * step, bytes / ha_dtype_bytes(c->type), c->type, b + 7 + h);
            draw_codes(&pq, codes + h * code_step, n, b + h);
            if (b % 3 == 2) ha_store(at + h * step, b % 4, c->type, b % 2 ? NAN : -INFINITY);
        }
        seq[b] = (struct ha_device_pq_score_seq){ at,        codes, step,
                                                  code_step, n,     floats(c->heads * rows * stride + BESIDE / FLOATS),
                                                  stride };
    }
    memcpy(copy, seq, sizeof seq);
    struct ha_device_pq_score args = { c->batch, c->heads, rows, pq, c->type, scale, copy };
    ok(api->pq_score(stream, &args));
    memset(copy, 0, sizeof copy);
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < c->heads; h++) {
            const struct ha_device_pq_score_seq *s = &seq[b];
            const struct ha_pq_score one = { pq,
                                             (const char *)s->table + h * step,
                                             c->type,
                                             rows,
                                             (const char *)s->codes + h * s->code_head_bytes,
                                             s->keys,
                                             scale,
                                             s->s + h * rows * s->s_stride,
                                             s->s_stride };
            const double ratio = ha_ref_judge_pq_score(&one, NULL);
            if (!(ratio <= 1))
                fail_msg("%zu groups, %zu centroids, %zu bits, %zu rows of %s, %zu keys: sequence %zu, head %zu: "
                         "error/bound %g",
                         c->groups, c->count, c->bits, rows, ha_dtype_name(c->type), s->keys, b, h, ratio);
            for (size_t r = 0; r < rows; r++)
                assert_true(poisoned(one.s + r * s->s_stride + s->keys, (s->s_stride - s->keys) * FLOATS));
        }
    release_memory();
}

DEVICE_TEST(scores_of_every_shape)
{
    static const size_t keys[] = { 100, 1, 0, 32, 333, 129 };
    for (size_t i = 0; i < 42; i++) {
        struct shape c = shape_of(i);
        c.type = i % 4 == 1 ? HA_F16 : HA_F32;
        if (!HA_SANITIZED || i % 5 == 3) score(&c, keys + i % 3, COUNT(keys) - 3);
    }
    score(&(struct shape){ BATCH_MAX, 2, 2, 2, 4, 2, .group = 1, .q_len = 2 }, keys, 3);
    const struct ha_pq pq = { NULL, 1, 1, 1, 1, 1 };
    ok(api->pq_score(stream, &(struct ha_device_pq_score){ .kv_heads = 1, .rows = 1, .pq = pq }));
}

/* ---- weights */

static void softmax(size_t batch, size_t heads, size_t q_len, const size_t *n, size_t lengths)
{
    struct ha_device_softmax_seq seq[BATCH_MAX], copy[BATCH_MAX];
    float *before[BATCH_MAX];
    for (size_t b = 0; b < batch; b++) {
        const size_t keys = n[b % lengths], stride = keys + b % 2 * 3, all = heads * q_len * stride;
        before[b] = drawn(all + 1, b + 5);
        for (size_t i = 0; i < all; i++) before[b][i] *= 8;
        for (size_t i = 0; i < keys && b % 3 == 1; i++) before[b][i] = -INFINITY; /* the first row, or most of it */
        if (b % 6 == 4 && keys) before[b][keys / 2] = 3;
        float *x = floats(all + BESIDE / FLOATS);
        memcpy(x, before[b], all * FLOATS);
        seq[b] = (struct ha_device_softmax_seq){ x, keys, stride,
                                                 b % 4 == 3 ? NULL : floats(q_len * (heads + 2) + BESIDE / FLOATS),
                                                 heads + 2 };
    }
    memcpy(copy, seq, sizeof seq);
    struct ha_device_softmax args = { batch, heads, q_len, copy };
    ok(api->softmax(stream, &args));
    memset(copy, 0, sizeof copy);
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    for (size_t b = 0; b < batch; b++)
        for (size_t row = 0; row < heads * q_len; row++) {
            const struct ha_device_softmax_seq *s = &seq[b];
            const size_t at = row * s->stride;
            float *lse = s->lse ? s->lse + row % q_len * s->lse_stride + row / q_len : NULL;
            const struct ha_softmax one = { s->x + at, 1, s->n, s->n, lse };
            const bool none = s->n == 0 || (b % 3 == 1 && row == 0 && b % 6 != 4);
            const double ratio = none ? 0 : ha_ref_judge_softmax(&one, before[b] + at, 0x1p-21);
            for (size_t i = 0; i < s->n && none; i++) assert_true(one.x[i] == 0);
            if (none && lse) assert_true(*lse == -INFINITY);
            if (!(ratio <= 1))
                fail_msg("%zu numbers, sequence %zu, row %zu of %zu x %zu: error/bound %g", s->n, b, row, heads, q_len,
                         ratio);
            assert_memory_equal(one.x + s->n, before[b] + at + s->n, (s->stride - s->n) * FLOATS);
        }
    for (size_t b = 0; b < batch; b++)
        for (size_t t = 0; t < q_len && seq[b].lse; t++)
            assert_true(poisoned(seq[b].lse + t * seq[b].lse_stride + heads, 2 * FLOATS));
    release_memory();
}

DEVICE_TEST(softmax_of_every_shape)
{
    static const size_t n[] = { 1, 100, 0, 33, 5000, 257, 2048, 3 };
    for (size_t i = 0; i < 12; i++)
        if (!HA_SANITIZED || i % 5 == 3) softmax(1 + i % 7, 1 + i % 5, 1 + i % 3, n + i % 4, COUNT(n) - 3);
    softmax(BATCH_MAX, 2, 1, n, 2);
    ok(api->softmax(stream, &(struct ha_device_softmax){ .heads = 1, .q_len = 1 }));
}

DEVICE_TEST(softmax_of_what_is_no_number)
{
    static const float odd[] = { NAN, INFINITY };
    for (size_t i = 0; i < COUNT(odd); i++) {
        float *x = drawn(300, 1), *lse = floats(1);
        x[170] = odd[i];
        const struct ha_device_softmax_seq seq = { x, 300, 300, lse, 1 };
        ok(api->softmax(stream, &(struct ha_device_softmax){ 1, 1, 1, &seq }));
        ok(api->stream_sync(stream));
        for (size_t j = 0; j < 300; j++) assert_true(isnan(x[j]));
        assert_true(isnan(*lse));
        release_memory();
    }
}

struct prefix {
    size_t batch, lists, rows;
    double p;
    enum ha_dtype w_type;
    size_t kind; /* 0: weights that add up to 1; 1: of few values; 2: all alike; 3: one that is all; 4: one is NaN */
};

/* rows of weights that add up to 1 or nearly so */
static void draw_weights(const struct prefix *c, float *x, size_t n, uint64_t seed)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double z = (double)ha_rng_normal(seed, 1, i);
        x[i] = (float)exp(c->kind == 1 ? rint(z) : c->kind == 2 ? 0 : 3 * z);
        sum += (double)x[i];
    }
    for (size_t i = 0; i < n; i++) x[i] = c->kind == 3 ? (float)(i == n / 3) : (float)((double)x[i] / sum);
    if (c->kind == 4 && n && seed % 3 == 0) x[n / 2] = NAN;
}

static void topp(const struct prefix *c, const size_t *n, size_t lengths)
{
    struct ha_device_topp_seq seq[BATCH_MAX], copy[BATCH_MAX];
    const size_t e = ha_dtype_bytes(c->w_type);
    for (size_t b = 0; b < c->batch; b++) {
        const size_t keys = n[b % lengths], stride = keys + b % 2 * 3, w_stride = keys + b % 3,
                     rows = c->lists * c->rows;
        float *x = floats(rows * stride);
        for (size_t r = 0; r < rows; r++) draw_weights(c, x + r * stride, keys, 100 * b + r);
        seq[b] = (struct ha_device_topp_seq){ .x = x,
                                              .n = keys,
                                              .stride = stride,
                                              .keys = block(c->lists * sizeof(uint32_t) + BESIDE),
                                              .index = block(c->lists * (keys + 2) * sizeof(uint32_t)),
                                              .w = block(rows * w_stride * e + BESIDE),
                                              .index_stride = keys + 2,
                                              .w_stride = w_stride };
    }
    memcpy(copy, seq, sizeof seq);
    struct ha_device_topp args = { c->batch, c->lists, c->rows, c->p, c->w_type, copy };
    ok(api->topp(stream, &args));
    memset(copy, 0, sizeof copy);
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    for (size_t b = 0; b < c->batch; b++) {
        const struct ha_device_topp_seq *s = &seq[b];
        for (size_t l = 0; l < c->lists; l++) {
            const struct ha_topp one = { .x = s->x + l * c->rows * s->stride,
                                         .rows = c->rows,
                                         .n = s->n,
                                         .stride = s->stride,
                                         .p = c->p,
                                         .index = s->index + l * s->index_stride,
                                         .w = (char *)s->w + l * c->rows * s->w_stride * e,
                                         .w_type = c->w_type,
                                         .w_stride = s->w_stride,
                                         .keys = s->keys + l };
            if (!(ha_ref_judge_topp(&one) <= 1))
                fail_msg("%g of %zu, %zu rows, kind %zu: sequence %zu, list %zu: %u are chosen, or others", c->p, s->n,
                         c->rows, c->kind, b, l, *one.keys);
            assert_true(poisoned(one.index + s->n, 2 * sizeof(uint32_t)));
            for (size_t r = 0; r < c->rows; r++)
                assert_true(poisoned((char *)one.w + (r * s->w_stride + s->n) * e, (s->w_stride - s->n) * e));
        }
        assert_true(poisoned(s->keys + c->lists, BESIDE));
    }
    release_memory();
}

DEVICE_TEST(prefixes_of_every_shape)
{
    static const size_t n[] = { 1, 100, 0, 33, 5000, 257, 2048, 3 };
    static const double p[] = { 0.9, 1, 0.5, 1e-9, 0.99, 0x1p-52 };
    for (size_t i = 0; i < 60; i++)
        if (!HA_SANITIZED || i % 7 == 3)
            topp(&(struct prefix){ .batch = 1 + i % 4,
                                   .lists = 1 + i % 3,
                                   .rows = 1 + i / 2 % 3,
                                   .p = p[i % COUNT(p)],
                                   .w_type = i % 2 ? HA_F16 : HA_F32,
                                   .kind = i % 5 },
                 n + i % 4, COUNT(n) - 3);
    topp(&(struct prefix){ BATCH_MAX, 2, 1, 0.7, HA_F32, 0 }, n, 2);
    topp(&(struct prefix){ 1, 1, HA_TOPP_ROWS_MAX, 0.7, HA_F16, 0 }, n + 3, 1);
    ok(api->topp(stream, &(struct ha_device_topp){ .lists = 1, .rows = 1, .p = 1 }));
}

/* ---- sums of V */

struct sums {
    size_t batch, kv_heads, group, q_len, dim;
    enum ha_dtype dtype, w_type;
};

static void weighted_sum(const struct sums *c, const size_t *keys, size_t lengths)
{
    struct ha_device_weighted_sum_seq seq[BATCH_MAX], copy[BATCH_MAX];
    const size_t heads = c->kv_heads * c->group, e = ha_dtype_bytes(c->dtype), row = c->dim * e,
                 rows = c->q_len * heads;
    for (size_t b = 0; b < c->batch; b++) {
        const size_t most = keys[b % lengths] + 1, pool = 2 * most + 1,
                     stride = b % 2 ? c->kv_heads * row : row + 2 * e;
        char *v = block(c->kv_heads * pool * (row + 2 * e)), *w = block(rows * (most + 1) * ha_dtype_bytes(c->w_type));
        uint32_t *of = block(heads * sizeof *of), *index = block(heads * (most + 2) * sizeof *index);
        normals(v, c->kv_heads * pool * (c->dim + 2), c->dtype, b + 1);
        for (size_t i = 0; i < rows * (most + 1); i++) ha_store(w, i, c->w_type, ha_rng_uniform(b, 2, i) / (float)most);
        for (size_t h = 0; h < heads; h++) {
            of[h] = (uint32_t)(h % 3 == 2 ? 0 : keys[b % lengths] - (h % 2 ? keys[b % lengths] / 2 : 0));
            for (size_t i = 0; i < of[h]; i++) index[h * (most + 2) + i] = (uint32_t)(2 * i + (i + h) % 2);
        }
        seq[b] = (struct ha_device_weighted_sum_seq){ .v = v,
                                                      .v_stride_bytes = stride,
                                                      .v_head_bytes = b % 2 ? row : pool * stride,
                                                      .keys = of,
                                                      .index = index,
                                                      .w = w,
                                                      .index_stride = most + 2,
                                                      .w_stride = most + 1,
                                                      .o = floats(rows * c->dim + BESIDE / FLOATS) };
    }
    memcpy(copy, seq, sizeof seq);
    struct ha_device_weighted_sum args = { c->batch, c->q_len, heads, c->kv_heads, c->dim, c->dtype, c->w_type, copy };
    ok(api->weighted_sum(stream, &args));
    memset(copy, 0, sizeof copy);
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    for (size_t b = 0; b < c->batch; b++) {
        const struct ha_device_weighted_sum_seq *s = &seq[b];
        for (size_t h = 0; h < heads; h++) {
            const struct ha_weighted_sum one = { .rows = { .v = (const char *)s->v + h / c->group * s->v_head_bytes,
                                                           .v_stride_bytes = s->v_stride_bytes,
                                                           .index = s->index + h * s->index_stride,
                                                           .keys = s->keys[h] },
                                                 .head_dim = c->dim,
                                                 .dtype = c->dtype,
                                                 .w = (const char *)s->w
                                                      + h * c->q_len * s->w_stride * ha_dtype_bytes(c->w_type),
                                                 .w_type = c->w_type,
                                                 .q_rows = c->q_len,
                                                 .w_stride = s->w_stride,
                                                 .o = s->o + h * c->dim,
                                                 .o_stride = heads * c->dim };
            const double ratio = ha_ref_judge_weighted_sum(&one, NULL);
            if (!(ratio <= 1))
                fail_msg("%zu keys of %zu, %s and %s: sequence %zu, head %zu of %zu x %zu: error/bound %g",
                         one.rows.keys, c->dim, ha_dtype_name(c->dtype), ha_dtype_name(c->w_type), b, h, c->kv_heads,
                         c->group, ratio);
        }
        assert_true(poisoned(s->o + rows * c->dim, BESIDE));
    }
    release_memory();
}

DEVICE_TEST(sums_of_every_shape)
{
    static const size_t keys[] = { 100, 1, 0, 32, 1500, 129 }, dim[] = { 128, 33, 64, 1, 80, 256, 7 };
    for (size_t i = 0; i < 30; i++)
        if (!HA_SANITIZED || i % 5 == 3)
            weighted_sum(&(struct sums){ .batch = 1 + i % 4,
                                         .kv_heads = 1 + i % 3,
                                         .group = 1 + i / 2 % 5,
                                         .q_len = 1 + i / 3 % 3,
                                         .dim = dim[i % COUNT(dim)],
                                         .dtype = (enum ha_dtype)(i % 3),
                                         .w_type = i % 4 == 1 ? HA_F16 : HA_F32 },
                         keys + i % 3, COUNT(keys) - 3);
    weighted_sum(&(struct sums){ BATCH_MAX, 1, 2, 1, 8, HA_F32, HA_F32 }, keys, 3);
    ok(api->weighted_sum(stream, &(struct ha_device_weighted_sum){ .q_len = 1, .q_heads = 1, .kv_heads = 1 }));
}

/* ---- wrong use */

#define WRONG(name, words) WRONG_USE(name, words, device_begin, device_end, refused)
WRONG_CALL(groups_are_asked_for, "0 groups of 1 dimensions",
           api->pq_encode(stream, &(struct ha_device_pq_encode){ .pq = { NULL, 0, 1, 1, 1, 1 } }))
WRONG_CALL(books_are_one_or_all, "2 books for 3 groups",
           api->pq_table(stream,
                         &(struct ha_device_pq_table){ .q_heads = 1, .kv_heads = 1, .pq = { NULL, 3, 1, 1, 2, 1 } }))
WRONG_CALL(centroids_fit_codes, "5 centroids in codes of 2 bits",
           api->pq_score(stream, &(struct ha_device_pq_score){ .pq = { NULL, 1, 1, 5, 1, 2 } }))
WRONG_CALL(codes_are_not_long, "in codes of 17 bits",
           api->pq_encode(stream, &(struct ha_device_pq_encode){ .pq = { NULL, 1, 1, 5, 1, 17 } }))
WRONG_CALL(tables_need_whole_groups, "3 query heads are no multiple of 2 KV heads",
           api->pq_table(stream,
                         &(struct ha_device_pq_table){ .q_heads = 3, .kv_heads = 2, .pq = { NULL, 1, 1, 1, 1, 1 } }))
WRONG_CALL(a_share_is_at_most_1, "p of 1.5", api->topp(stream, &(struct ha_device_topp){ .rows = 1, .p = 1.5 }))
WRONG_CALL(a_share_is_above_0, "p of 0,", api->topp(stream, &(struct ha_device_topp){ .rows = 1, .p = 0 }))
WRONG_CALL(a_list_has_rows, "0 rows of a list", api->topp(stream, &(struct ha_device_topp){ .p = 1 }))
WRONG_CALL(sums_need_whole_groups, "3 query heads are no multiple of 2 KV heads",
           api->weighted_sum(stream, &(struct ha_device_weighted_sum){ .q_heads = 3, .kv_heads = 2 }))
