/* What selects keys on a device: digests, their scores, the largest of these, and queries from their products, against
 * the reference; what lies beside the results does not change. */

#include "kernels/host/test_blocks.h"

#include "harness/api/reference.h"

#include <math.h>

enum { BATCH_MAX = 70, GROUP = HA_PACK_KEYS };

/* ---- digests */

struct digests {
    enum ha_digest_kind kind;
    enum ha_dtype dtype;
    size_t dim, unit, heads, batch;
    bool indexed, by_head;
    size_t gap; /* elements between rows of K */
};

/* a block more than there are rows for, now and then */
static size_t blocks_of(const struct digests *c, size_t b, size_t keys)
{
    return (keys + c->unit - 1) / c->unit + b % 3 / 2;
}

static void make_rows(const struct digests *c, struct ha_device_digest_seq *seq, size_t keys, uint64_t seed)
{
    const size_t e = ha_dtype_bytes(c->dtype), pool = c->indexed ? 2 * keys + 1 : keys, row = c->dim * e,
                 stride = (c->by_head ? 1 : c->heads) * row + c->gap * e;
    char *k = block((c->by_head ? c->heads : 1) * pool * stride);
    uint32_t *index = c->indexed ? block(keys * sizeof *index) : NULL;
    for (size_t i = 0; index && i < keys; i++) index[i] = (uint32_t)(2 * (keys - 1 - i) + (i + seed) % 2);
    seq->rows = (struct ha_rows){ .k = k, .k_stride_bytes = stride, .index = index, .keys = keys };
    seq->k_head_bytes = c->by_head ? pool * stride : row;
    for (size_t h = 0; h < c->heads; h++)
        for (size_t i = 0; i < keys; i++)
            normals(k + h * seq->k_head_bytes + (index ? index[i] : i) * stride, c->dim, c->dtype, seed + 1000 * i + h);
}

static void check_digests(const struct digests *c, const struct ha_device_digest_seq *seq)
{
    const size_t e = ha_dtype_bytes(c->dtype), end = seq->first + seq->blocks,
                 bytes = ha_digest_bytes(end, c->dim, c->dtype);
    for (size_t h = 0; h < c->heads; h++) {
        char *at = (char *)seq->digests + h * seq->head_bytes;
        struct ha_digest one = { .kind = c->kind,
                                 .digests = at,
                                 .first = seq->first,
                                 .blocks = seq->blocks,
                                 .unit = c->unit,
                                 .rows = seq->rows,
                                 .head_dim = c->dim,
                                 .dtype = c->dtype };
        one.rows.k = (const char *)one.rows.k + h * seq->k_head_bytes;
        assert_true(ha_ref_judge_digest(&one) <= 1);
        for (size_t b = 0; b < bytes / e / c->dim / 2; b++)
            for (size_t d = 0; d < 2 * c->dim && (b < seq->first || b >= end); d++) {
                const char *x = at + ha_ref_digest(c->dim, b, d / 2, d % 2) * e;
                for (size_t i = 0; i < e; i++) assert_int_equal((unsigned char)x[i], b < seq->first ? POISON : 0);
            }
        assert_true(h + 1 == c->heads || poisoned(at + bytes, seq->head_bytes - bytes));
    }
}

/* special: what NaN and infinities make of keys */
static void digest(const struct digests *c, const size_t *first, const size_t *keys, size_t lengths, bool special)
{
    struct ha_device_digest_seq seq[BATCH_MAX] = { { .digests = NULL } }, copy[BATCH_MAX];
    for (size_t b = 0; b < c->batch; b++) {
        const size_t n = keys[b % lengths];
        make_rows(c, &seq[b], n, 7 * b);
        seq[b].first = first[b % lengths];
        seq[b].blocks = blocks_of(c, b, n);
        const size_t bytes = ha_digest_bytes(seq[b].first + seq[b].blocks, c->dim, c->dtype);
        seq[b].head_bytes = bytes + 64 * (b % 2);
        seq[b].digests = device_block(c->heads * seq[b].head_bytes);
        for (size_t i = 0; special && i < n; i++) {
            static const float odd[] = { INFINITY, NAN, -INFINITY, -0.0f, 0 };
            char *row = (char *)(uintptr_t)seq[b].rows.k /* ours */
                        + (c->indexed ? seq[b].rows.index[i] : i) * seq[b].rows.k_stride_bytes;
            ha_store(row, i * 5 % c->dim, c->dtype, odd[i % COUNT(odd)]);
        }
    }
    memcpy(copy, seq, sizeof seq);
    struct ha_device_digest args = { c->batch, c->heads, c->dim, c->unit, c->kind, c->dtype, copy };
    ok(api->digest(stream, &args));
    memset(copy, 0, sizeof copy); /* the call has its copy */
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    for (size_t b = 0; b < c->batch; b++) check_digests(c, &seq[b]);
    release_memory();
}

DEVICE_TEST(digests_of_every_shape)
{
    static const size_t dims[] = { 64, 80, 128, 256, 7 }, units[] = { 16, 32, 5, 1 }, first[] = { 0, 31, 5, 64, 70, 3 },
                        keys[] = { 100, 70, 33, 0, 0, 1 };
    for (size_t i = 0; i < 30; i++) {
        if (HA_SANITIZED && i % 2) continue;
        const struct digests c = { .kind = i % 2 ? HA_DIGEST_MEAN : HA_DIGEST_RANGE,
                                   .dtype = (enum ha_dtype)(i % 3),
                                   .dim = dims[i % COUNT(dims)],
                                   .unit = units[i / 2 % COUNT(units)],
                                   .heads = 1 + i % 3,
                                   .batch = 1 + i % COUNT(keys),
                                   .indexed = i % 4 == 1,
                                   .by_head = i % 3 == 1,
                                   .gap = i % 5 * 3 };
        digest(&c, first + i % 2, keys + i % 2, COUNT(keys) - 1, i % 7 == 3);
    }
}

/* more than the arguments of a launch may hold */
DEVICE_TEST(digests_of_a_large_batch)
{
    static const size_t first[] = { 0, 1, 40 }, keys[] = { 9, 0, 17 };
    const struct digests c = { .dtype = HA_F16, .dim = 8, .unit = 4, .heads = 1, .batch = BATCH_MAX };
    digest(&c, first, keys, COUNT(keys), false);
    ok(api->digest(stream, &(struct ha_device_digest){ .kv_heads = 1, .head_dim = 8, .unit = 1 }));
}

/* The open block again, and what came behind it: as all of them at once. */
DEVICE_TEST(digests_are_kept_up)
{
    enum { DIM = 64, UNIT = 16, KEYS = 600, KNOWN = 530, BLOCKS = (KEYS + UNIT - 1) / UNIT };
    for (int kind = 0; kind < 2; kind++) {
        const struct digests c = {
            .kind = (enum ha_digest_kind)kind, .dtype = HA_BF16, .dim = DIM, .unit = UNIT, .heads = 1
        };
        struct ha_device_digest_seq seq = { .digests = NULL };
        const size_t bytes = ha_digest_bytes(BLOCKS, DIM, HA_BF16);
        make_rows(&c, &seq, KEYS, 3);
        char *whole = device_block(bytes), *grown = device_block(bytes);
        const struct ha_device_digest args = { 1, 1, DIM, UNIT, c.kind, c.dtype, &seq };
        seq.blocks = BLOCKS;
        seq.digests = whole;
        ok(api->digest(stream, &args));
        seq.digests = grown;
        seq.rows.keys = KNOWN;
        seq.blocks = (KNOWN + UNIT - 1) / UNIT;
        ok(api->digest(stream, &args));
        seq.first = KNOWN / UNIT;
        seq.blocks = BLOCKS - seq.first;
        seq.rows.k = (const char *)seq.rows.k + seq.first * UNIT * seq.rows.k_stride_bytes;
        seq.rows.keys = KEYS - seq.first * UNIT;
        ok(api->digest(stream, &args));
        ok(api->stream_sync(stream));
        assert_memory_equal(whole, grown, bytes);
        release_memory();
    }
}

/* ---- scores */

struct scores {
    enum ha_dtype dtype;
    size_t dim, heads, group, q_len, batch;
};

static struct ha_device_digest_score args_of(const struct scores *c, const struct ha_device_score_seq *seqs)
{
    return (struct ha_device_digest_score){ c->batch, c->q_len, c->heads * c->group, c->heads, c->dim, c->dtype,
                                            0.3f,     seqs };
}

static void make_scores(const struct scores *c, struct ha_device_score_seq *seq, size_t blocks, size_t b)
{
    const size_t rows = c->heads * c->group * c->q_len, e = ha_dtype_bytes(c->dtype),
                 bytes = ha_digest_bytes(blocks, c->dim, c->dtype), head_bytes = bytes + 64 * (b % 3),
                 stride = blocks + b % 2 * 5;
    float *q = block(rows * c->dim * sizeof *q);
    char *digests = block(c->heads * head_bytes);
    normals(q, rows * c->dim, HA_F32, b + 50);
    for (size_t h = 0; h < c->heads; h++)
        for (size_t i = 0; i < blocks; i++)
            for (size_t d = 0; d < c->dim; d++) {
                const size_t n = (h * blocks + i) * c->dim + d;
                const float x = ha_rng_normal(b, 3, n), width = ha_rng_uniform(b, 4, n);
                char *at = digests + h * head_bytes;
                ha_store(at + ha_ref_digest(c->dim, i, d, false) * e, 0, c->dtype, x - width);
                ha_store(at + ha_ref_digest(c->dim, i, d, true) * e, 0, c->dtype, x + width);
            }
    *seq = (struct ha_device_score_seq){ q, digests, head_bytes, blocks, block(rows * stride * sizeof(float)), stride };
}

static void score(const struct scores *c, const struct ha_device_score_seq *seqs)
{
    struct ha_device_score_seq copy[BATCH_MAX];
    memcpy(copy, seqs, c->batch * sizeof *copy);
    struct ha_device_digest_score args = args_of(c, copy);
    ok(api->digest_score(stream, &args));
    memset(copy, 0, sizeof copy);
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
}

static void check_scores(const struct scores *c, const struct ha_device_score_seq *seq)
{
    const size_t heads = c->heads * c->group;
    for (size_t h = 0; h < heads; h++) {
        const struct ha_digest_score one = { .q = seq->q + h * c->dim,
                                             .q_rows = c->q_len,
                                             .q_stride = heads * c->dim,
                                             .head_dim = c->dim,
                                             .digests = (const char *)seq->digests + h / c->group * seq->head_bytes,
                                             .blocks = seq->blocks,
                                             .dtype = c->dtype,
                                             .scale = 0.3f,
                                             .s = seq->s + h * c->q_len * seq->s_stride,
                                             .s_stride = seq->s_stride };
        assert_true(ha_ref_judge_digest_score(&one, NULL) <= 1);
    }
    for (size_t r = 0; r < heads * c->q_len; r++)
        assert_true(poisoned(seq->s + r * seq->s_stride + seq->blocks, (seq->s_stride - seq->blocks) * sizeof(float)));
}

DEVICE_TEST(scores_of_every_shape)
{
    static const size_t dims[] = { 64, 80, 128, 256, 33, 1 }, blocks[] = { 33, 1, 0, 130, 64, 31 };
    for (size_t i = 0; i < 24; i++) {
        if (HA_SANITIZED && i % 2) continue;
        const struct scores c = { .dtype = (enum ha_dtype)(i % 3),
                                  .dim = dims[i % COUNT(dims)],
                                  .heads = 1 + i % 2,
                                  .group = 1 + i % 4 * 2,
                                  .q_len = 1 + i / 3 % 3,
                                  .batch = 1 + i % 5 };
        struct ha_device_score_seq seq[BATCH_MAX];
        for (size_t b = 0; b < c.batch; b++) make_scores(&c, &seq[b], blocks[(b + i) % COUNT(blocks)], b);
        score(&c, seq);
        for (size_t b = 0; b < c.batch; b++) check_scores(&c, &seq[b]);
        release_memory();
    }
}

DEVICE_TEST(scores_of_a_large_batch)
{
    const struct scores c = { .dtype = HA_BF16, .dim = 8, .heads = 1, .group = 1, .q_len = 1, .batch = BATCH_MAX };
    struct ha_device_score_seq seq[BATCH_MAX];
    for (size_t b = 0; b < c.batch; b++) make_scores(&c, &seq[b], b % 40, b);
    score(&c, seq);
    for (size_t b = 0; b < c.batch; b++) check_scores(&c, &seq[b]);
}

/* block ODD is as the others but for one dimension, of which the other rows have q = 1 */
DEVICE_TEST(scores_of_what_is_no_number)
{
    enum { DIM = 70, BLOCKS = 37, ODD = 33, AT = 41 };
    static const struct {
        float q, least, most, want;
    } cases[] = {
        { 1, NAN, NAN, NAN },           { 0, NAN, NAN, NAN },
        { 1, -INFINITY, 2, 2 },         { -1, 2, INFINITY, -2 },
        { -1, -INFINITY, 2, INFINITY }, { 1, -INFINITY, -INFINITY, -INFINITY },
        { 0, -INFINITY, INFINITY, 0 },  { -0.0f, INFINITY, INFINITY, 0 },
    };
    for (size_t i = 0; i < COUNT(cases) * 2; i++) {
        const struct scores c = {
            .dtype = (enum ha_dtype)(i % 3), .dim = DIM, .heads = 1, .group = 1 + i % 2 * 4, .q_len = 1, .batch = 1
        };
        const size_t e = ha_dtype_bytes(c.dtype), n = i / 2;
        struct ha_device_score_seq seq;
        make_scores(&c, &seq, BLOCKS, 0);
        char *digests = (char *)(uintptr_t)seq.digests;
        memset(digests, 0, ha_digest_bytes(BLOCKS, DIM, c.dtype));
        ha_store(digests + ha_ref_digest(DIM, ODD, AT, false) * e, 0, c.dtype, cases[n].least);
        ha_store(digests + ha_ref_digest(DIM, ODD, AT, true) * e, 0, c.dtype, cases[n].most);
        for (size_t g = 0; g < c.group; g++)
            ((float *)(uintptr_t)seq.q)[g * DIM + AT] = g + 1 == c.group ? cases[n].q : 1;
        score(&c, &seq);
        for (size_t b = 0; b < BLOCKS; b++) {
            const float got = seq.s[(c.group - 1) * seq.s_stride + b], want = b == ODD ? 0.3f * cases[n].want : 0;
            assert_true(got == want || (isnan(got) && isnan(want)));
        }
        release_memory();
    }
}

/* ---- rows made shorter, and their scores */

struct shorter {
    enum ha_dtype x_type, y_type;
    size_t dim, columns, kv_heads, group, batch;
    bool by_head;
    float odd; /* one element of x; 0: all are as others */
};

static void shorten(const struct shorter *c, const size_t *tokens)
{
    const size_t heads = c->kv_heads * c->group, e = ha_dtype_bytes(c->y_type),
                 a_count = c->kv_heads * c->columns * c->dim;
    struct ha_device_columns_seq seq[BATCH_MAX], copy[BATCH_MAX];
    float *a = block(a_count * sizeof *a);
    normals(a, a_count, HA_F32, 77);
    size_t room[BATCH_MAX];
    for (size_t b = 0; b < c->batch; b++) {
        const size_t row = c->columns + b % 3, n = tokens[b] * heads * c->dim;
        seq[b] = (struct ha_device_columns_seq){ .tokens = tokens[b],
                                                 .y_token_stride = c->by_head ? row : heads * row,
                                                 .y_head_stride = c->by_head ? tokens[b] * row : row };
        room[b] = tokens[b] * heads * row * e;
        char *x = block(n * ha_dtype_bytes(c->x_type));
        normals(x, n, c->x_type, b + 20);
        if (n && c->odd != 0) ha_store(x, n / 2, c->x_type, c->odd);
        seq[b].x = x;
        seq[b].y = block(room[b]);
    }
    memcpy(copy, seq, sizeof seq);
    struct ha_device_columns args = { c->batch, heads, c->kv_heads, c->dim, c->columns, c->x_type, c->y_type, a, copy };
    const struct ha_device_columns kept = { c->batch,  heads,     c->kv_heads, c->dim, c->columns,
                                            c->x_type, c->y_type, a,           seq };
    ok(api->columns(stream, &args));
    memset(copy, 0, sizeof copy);
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t h = 0; h < heads; h++) {
            const double ratio = ha_ref_judge_columns(&kept, b, h, NULL);
            if (!(ratio <= 1))
                fail_msg("%zu columns of rows of %zu, %s to %s: sequence %zu, head %zu: error/bound %g", c->columns,
                         c->dim, ha_dtype_name(c->x_type), ha_dtype_name(c->y_type), b, h, ratio);
            for (size_t t = 0; t < tokens[b]; t++)
                memset((char *)seq[b].y + (t * seq[b].y_token_stride + h * seq[b].y_head_stride) * e, POISON,
                       c->columns * e);
        }
        assert_true(poisoned(seq[b].y, room[b]));
    }
    release_memory();
}

DEVICE_TEST(columns_of_every_shape)
{
    static const size_t dims[] = { 128, 64, 33, 1, 80 }, columns[] = { 26, 1, 7, 32, 33, 128 },
                        tokens[] = { 1, 0, 33, 4, 70 };
    for (size_t i = 0; i < 18; i++) {
        if (HA_SANITIZED && i / 2 % 2) continue;
        const struct shorter c = { .x_type = (enum ha_dtype)(i % 3),
                                   .y_type = (enum ha_dtype)(i / 3 % 3),
                                   .dim = dims[i % COUNT(dims)],
                                   .columns = columns[i % COUNT(columns)],
                                   .kv_heads = 1 + i % 2,
                                   .group = 1 + i % 4 / 3 * 3,
                                   .batch = 1 + i % 5,
                                   .by_head = i % 4 / 2,
                                   .odd = i % 7 == 3   ? NAN
                                          : i % 7 == 5 ? -INFINITY
                                                       : 0 };
        size_t of[BATCH_MAX];
        for (size_t b = 0; b < c.batch; b++) of[b] = tokens[(b + i) % COUNT(tokens)];
        shorten(&c, of);
    }
}

DEVICE_TEST(columns_of_a_large_batch)
{
    size_t tokens[BATCH_MAX];
    for (size_t b = 0; b < BATCH_MAX; b++) tokens[b] = b % 3;
    shorten(&(struct shorter){ HA_F32, HA_BF16, 16, 5, 1, 2, BATCH_MAX, true, 0 }, tokens);
    ok(api->columns(stream, &(struct ha_device_columns){ .heads = 1, .kv_heads = 1, .head_dim = 1 }));
}

struct rows {
    enum ha_dtype dtype;
    size_t dim, kv_heads, group, q_len, batch;
    bool indexed, by_head;
    size_t gap; /* elements between rows */
    float odd;  /* one element of a row, whose first query is 0; 0: all are as others */
};

static void score_rows(const struct rows *c, const size_t *keys)
{
    const size_t heads = c->kv_heads * c->group, n = heads * c->q_len, e = ha_dtype_bytes(c->dtype);
    struct ha_device_rows_seq seq[BATCH_MAX], copy[BATCH_MAX];
    const struct digests rows = { .dtype = c->dtype,
                                  .dim = c->dim,
                                  .heads = c->kv_heads,
                                  .indexed = c->indexed,
                                  .by_head = c->by_head,
                                  .gap = c->gap };
    for (size_t b = 0; b < c->batch; b++) {
        const size_t stride = keys[b] + b % 2 * 5;
        struct ha_device_digest_seq k = { 0 };
        make_rows(&rows, &k, keys[b], b);
        float *q = device_block(n * c->dim * sizeof *q);
        normals(q, n * c->dim, HA_F32, b + 40);
        if (keys[b] && c->odd != 0) {
            char *first = (char *)(uintptr_t)k.rows.k;
            ha_store(first + (k.rows.index ? k.rows.index[keys[b] / 2] : keys[b] / 2) * k.rows.k_stride_bytes,
                     c->dim / 2, c->dtype, c->odd);
            q[c->dim / 2] = 0;
        }
        seq[b] = (struct ha_device_rows_seq){ q, k.rows, k.k_head_bytes, device_block(n * stride * sizeof(float)),
                                              stride };
    }
    memcpy(copy, seq, sizeof seq);
    struct ha_device_score args = { c->batch, c->q_len, heads, c->kv_heads, c->dim, c->dtype, 0.3f, copy };
    const struct ha_device_score kept = { c->batch, c->q_len, heads, c->kv_heads, c->dim, c->dtype, 0.3f, seq };
    ok(api->score(stream, &args));
    memset(copy, 0, sizeof copy);
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t h = 0; h < heads; h++) {
            const double ratio = ha_ref_judge_rows(&kept, b, h, NULL);
            if (!(ratio <= 1))
                fail_msg("rows of %zu of %s, %zu keys at stride %zu: sequence %zu, head %zu: error/bound %g", c->dim,
                         ha_dtype_name(c->dtype), keys[b], seq[b].rows.k_stride_bytes / e, b, h, ratio);
        }
        for (size_t r = 0; r < n; r++)
            assert_true(
                poisoned(seq[b].s + r * seq[b].s_stride + keys[b], (seq[b].s_stride - keys[b]) * sizeof(float)));
    }
    release_memory();
}

DEVICE_TEST(rows_are_scored)
{
    static const size_t dims[] = { 26, 128, 1, 7, 32, 33, 300 }, keys[] = { 33, 1, 0, 130, 64, 31, 257 };
    for (size_t i = 0; i < 24; i++) {
        if (HA_SANITIZED && i / 2 % 2) continue;
        const struct rows c = { .dtype = (enum ha_dtype)(i % 3),
                                .dim = dims[i % COUNT(dims)],
                                .kv_heads = 1 + i % 2,
                                .group = 1 + i % 4 * 2,
                                .q_len = 1 + i / 3 % 3,
                                .batch = 1 + i % 4,
                                .indexed = i % 5 == 1,
                                .by_head = i % 4 / 2,
                                .gap = i % 3 * 3,
                                .odd = i % 6 == 3   ? NAN
                                       : i % 6 == 5 ? INFINITY
                                                    : 0 };
        size_t of[BATCH_MAX];
        for (size_t b = 0; b < c.batch; b++) of[b] = keys[(b + i) % COUNT(keys)];
        score_rows(&c, of);
    }
}

DEVICE_TEST(rows_of_a_large_batch)
{
    size_t keys[BATCH_MAX];
    for (size_t b = 0; b < BATCH_MAX; b++) keys[b] = b % 40;
    score_rows(&(struct rows){ HA_BF16, 9, 1, 1, 1, BATCH_MAX, false, true, 0, 0 }, keys);
    ok(api->score(stream, &(struct ha_device_score){ .q_heads = 1, .kv_heads = 1, .head_dim = 1 }));
}

/* ---- the largest */

static float number(size_t family, uint64_t seed, size_t i)
{
    const float x = ha_rng_normal(seed, 1, i);
    const uint64_t r = ha_rng_below(seed, 2, i, 1 << 20);
    switch (family) {
    case 1: return -1.5f;
    case 2: return rintf(2 * x);
    case 3: return r % 10 == 0 ? 1 : r & 16 ? 0.0f : -0.0f;
    case 4: return r % 3 == 0 ? INFINITY : r % 3 == 1 ? -INFINITY : x;
    case 5: return r % 5 == 0 ? (r & 1 ? NAN : -NAN) : x;
    case 6: return NAN;
    case 7: return r % 3 == 0 ? NAN : -INFINITY;
    case 8: return (float)i;
    case 9: return ldexpf(x, (int)(r % 250) - 140);
    default: return x;
    }
}
enum { FAMILIES = 10 };

/* of several rows the largest */
static float most_of(const struct ha_device_topk_seq *seq, size_t rows, size_t list, size_t i)
{
    float most = NAN;
    for (size_t r = 0; r < rows; r++) most = fmaxf(most, seq->x[(list * rows + r) * seq->stride + i]);
    return most;
}

/* The same lists, each with another distance: those stay whose number is not too far below the largest. Of every other
 * sequence some lists are left out. seq holds what was chosen without. */
static void topk_within(struct ha_device_topk *args, struct ha_device_topk_seq *seq)
{
    static const float within[] = { 0, 1.5f, INFINITY, 0.25f, 100 };
    struct ha_device_topk_seq near[BATCH_MAX], copy[BATCH_MAX];
    for (size_t b = 0; b < args->batch; b++) {
        near[b] = seq[b];
        near[b].index = block(args->lists * seq[b].index_stride * sizeof(uint32_t));
        near[b].keys = b % 7 == 6 ? NULL : block((args->lists + 1) * sizeof(uint32_t));
        near[b].within = near[b].keys ? within[b % COUNT(within)] : NAN;
        near[b].keys_unit = b % 3 * 8;
        uint32_t *only = b % 2 ? block(args->lists * sizeof *only) : NULL;
        for (size_t l = 0; only && l < args->lists; l++) only[l] = (b / 2 + l) % 3 ? 1 + (uint32_t)l : 0;
        near[b].only = only;
    }
    memcpy(copy, near, sizeof copy);
    args->seqs = copy;
    ok(api->topk(stream, args));
    memset(copy, 0, sizeof copy);
    ok(api->stream_sync(stream));
    for (size_t n = 0; n < args->batch * args->lists; n++) {
        const size_t b = n / args->lists, l = n % args->lists, chosen = seq[b].k < seq[b].n ? seq[b].k : seq[b].n;
        const uint32_t *all = seq[b].index + l * seq[b].index_stride, *got = near[b].index + l * seq[b].index_stride;
        float largest = NAN;
        size_t kept = 0;
        if (near[b].only && !near[b].only[l]) {
            assert_true(poisoned(got, seq[b].index_stride * sizeof *got));
            assert_true(!near[b].keys || poisoned(near[b].keys + l, sizeof *near[b].keys));
            continue;
        }
        for (size_t i = 0; i < seq[b].n; i++) largest = fmaxf(largest, most_of(&seq[b], args->rows, l, i));
        for (size_t i = 0; i < chosen; i++) {
            const float x = most_of(&seq[b], args->rows, l, all[i] - seq[b].first);
            const bool stays = !near[b].keys || (!isnan(x) && !(x < largest - near[b].within));
            if (stays) assert_int_equal(got[kept++], all[i]);
        }
        if (near[b].keys) assert_int_equal(near[b].keys[l], kept * (b % 3 ? b % 3 * 8 : 1));
        assert_true(poisoned(got + chosen, (seq[b].index_stride - chosen) * sizeof *got));
        assert_true(!near[b].keys || poisoned(near[b].keys + args->lists, sizeof *near[b].keys));
    }
}

static void topk(size_t batch, size_t lists, size_t rows, const size_t *n, const size_t *k, size_t family)
{
    struct ha_device_topk_seq seq[BATCH_MAX], copy[BATCH_MAX];
    float *most = malloc(20000 * sizeof *most);
    uint32_t *index = malloc(20000 * sizeof *index);
    assert_true(most && index);
    for (size_t b = 0; b < batch; b++) {
        const size_t stride = n[b] + b % 3, chosen = k[b] < n[b] ? k[b] : n[b], index_stride = chosen + b % 2 * 3;
        float *x = block(lists * rows * stride * sizeof *x);
        for (size_t r = 0; r < lists * rows; r++)
            for (size_t i = 0; i < n[b]; i++) x[r * stride + i] = number(family, b + 10 * r, i);
        seq[b] = (struct ha_device_topk_seq){ .x = x,
                                              .n = n[b],
                                              .k = k[b],
                                              .stride = stride,
                                              .first = (uint32_t)(b * 1000),
                                              .index = block(lists * index_stride * sizeof(uint32_t)),
                                              .index_stride = index_stride };
    }
    memcpy(copy, seq, sizeof seq);
    struct ha_device_topk args = { batch, lists, rows, copy };
    ok(api->topk(stream, &args));
    memset(copy, 0, sizeof copy);
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    args = (struct ha_device_topk){ batch, lists, rows, copy };
    for (size_t b = 0; b < batch; b++)
        for (size_t l = 0; l < lists; l++) {
            const size_t chosen = k[b] < n[b] ? k[b] : n[b];
            for (size_t i = 0; i < n[b]; i++) {
                most[i] = NAN;
                for (size_t r = 0; r < rows; r++)
                    most[i] = fmaxf(most[i], seq[b].x[(l * rows + r) * seq[b].stride + i]);
            }
            uint32_t *got = seq[b].index + l * seq[b].index_stride;
            for (size_t i = 0; i < chosen; i++) index[i] = got[i] - seq[b].first;
            if (!(ha_ref_judge_topk(&(struct ha_topk){ most, n[b], k[b], index }) <= 1))
                fail_msg("n = %zu, k = %zu, %zu rows, family %zu: list %zu of sequence %zu", n[b], k[b], rows, family,
                         l, b);
            assert_true(poisoned(got + chosen, (seq[b].index_stride - chosen) * sizeof *got));
        }
    if (!HA_SANITIZED || family % 5 == 0) topk_within(&args, seq);
    free(most);
    free(index);
    release_memory();
}

DEVICE_TEST(the_largest_of_short_lists)
{
    static const size_t n[] = { 1, 31, 32, 33, 100, 333, 0, 129 };
    for (size_t family = 0; family < FAMILIES; family++)
        for (size_t rows = 1; rows <= 4; rows += 3)
            for (size_t i = 0; i < 5; i++) {
                size_t k[COUNT(n)];
                for (size_t b = 0; b < COUNT(n); b++)
                    k[b] = i == 0 ? 0 : i == 1 ? n[b] : i == 2 ? n[b] + 5 : i == 3 ? n[b] / 3 : n[b] - (n[b] > 0);
                if (!HA_SANITIZED || (family + i) % 3 == 0) topk(COUNT(n), 1 + family % 3, rows, n, k, family);
            }
}

DEVICE_TEST(the_largest_of_long_lists)
{
    static const size_t n[] = { 2049, 5000, 16384 }, k[] = { 700, 1, 16000 };
    for (size_t family = 0; family < FAMILIES; family += HA_SANITIZED ? 5 : 3)
        topk(HA_SANITIZED ? 2 : COUNT(n), 1, 1 + family % 2, n, k, family);
}

DEVICE_TEST(the_largest_of_a_large_batch)
{
    size_t n[BATCH_MAX], k[BATCH_MAX];
    for (size_t b = 0; b < BATCH_MAX; b++) n[b] = b, k[b] = b / 2;
    topk(BATCH_MAX, 1, 2, n, k, 2);
    ok(api->topk(stream, &(struct ha_device_topk){ .rows = 1 }));
}

/* ---- what a cache has of lists */

struct splits {
    size_t batch, lists, tables;
    size_t gap;           /* words behind each row */
    bool misses, counted; /* missing blocks are asked for, and how many */
};

/* of sequence b: nothing, all, or some of its blocks are in the cache */
static uint32_t slot_of(size_t b, size_t table, size_t block)
{
    const uint64_t draw = ha_rng_below(5, b, table * 100000 + block, 4);
    const bool there = b % 4 == 1 || (b % 4 != 0 && draw == 0) || (b % 4 == 3 && draw < 3);
    return there ? (uint32_t)(block * 7 + table * 3 + b) : HA_SLOT_NONE;
}

static void split_of(const struct splits *c, const size_t *counts)
{
    struct ha_device_split_seq seq[BATCH_MAX], copy[BATCH_MAX];
    const size_t w = sizeof(uint32_t);
    for (size_t b = 0; b < c->batch; b++) {
        const size_t count = counts[b], blocks = 2 * count + 3, index_stride = count + c->gap,
                     slot_stride = blocks + c->gap, out_stride = count + b % 2 * c->gap;
        uint32_t *index = block(c->lists * index_stride * w), *slot = block(c->tables * slot_stride * w);
        for (size_t l = 0; l < c->lists; l++)
            for (size_t i = 0; i < count; i++)
                index[l * index_stride + i] = (uint32_t)ha_rng_below(3, b * 100 + l, i, blocks);
        for (size_t t = 0; t < c->tables; t++)
            for (size_t i = 0; i < blocks; i++) slot[t * slot_stride + i] = slot_of(b, t, i);
        seq[b] = (struct ha_device_split_seq){ .index = index,
                                               .count = count,
                                               .index_stride = index_stride,
                                               .slot = slot,
                                               .blocks = blocks,
                                               .slot_stride = slot_stride,
                                               .here = block(c->lists * out_stride * w),
                                               .here_count = block((c->lists + 1) * w),
                                               .here_unit = b % 3,
                                               .missing = c->misses ? block(c->lists * out_stride * w) : NULL,
                                               .missing_count = c->counted ? block((c->lists + 1) * w) : NULL,
                                               .out_stride = out_stride };
    }
    memcpy(copy, seq, sizeof seq);
    struct ha_device_split args = { c->batch, c->lists, c->tables, copy };
    ok(api->split(stream, &args));
    memset(copy, 0, sizeof copy);
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    for (size_t n = 0; n < c->batch * c->lists; n++) {
        const size_t b = n / c->lists, l = n % c->lists, count = counts[b], at = l * seq[b].out_stride;
        size_t here = 0, missing = 0;
        for (size_t i = 0; i < count; i++) {
            const uint32_t of = seq[b].index[l * seq[b].index_stride + i],
                           slot = slot_of(b, l * c->tables / c->lists, of);
            if (slot != HA_SLOT_NONE) assert_int_equal(seq[b].here[at + here++], slot);
            else if (missing++, c->misses) assert_int_equal(seq[b].missing[at + missing - 1], of);
        }
        assert_int_equal(seq[b].here_count[l], here * (b % 3 ? b % 3 : 1));
        if (c->counted) assert_int_equal(seq[b].missing_count[l], missing);
        assert_true(poisoned(seq[b].here + at + count, (seq[b].out_stride - count) * w));
        assert_true(!c->misses || poisoned(seq[b].missing + at + count, (seq[b].out_stride - count) * w));
        assert_true(poisoned(seq[b].here_count + c->lists, w));
    }
    release_memory();
}

DEVICE_TEST(lists_are_split_by_what_is_there)
{
    static const size_t counts[] = { 33, 1, 100, 31, 0, 700, 64, 2 };
    static const struct splits cases[] = {
        { 8, 4, 2, 3, true, true },  { 8, 1, 1, 0, true, true }, { 8, 6, 3, 1, true, false },
        { 8, 3, 3, 2, false, true }, { 5, 2, 5, 1, true, true }, { 8, 5, 2, 0, false, false },
    };
    for (size_t i = 0; i < COUNT(cases); i += HA_SANITIZED ? 4 : 1) split_of(&cases[i], counts);
}

DEVICE_TEST(a_large_batch_is_split)
{
    size_t counts[BATCH_MAX];
    for (size_t b = 0; b < BATCH_MAX; b++) counts[b] = b % 13 * 7;
    split_of(&(struct splits){ HA_SANITIZED ? 40 : BATCH_MAX, 2, 1, 1, true, true }, counts);
    ok(api->split(stream, &(struct ha_device_split){ .lists = 0 }));
}

/* ---- queries from their products */

DEVICE_TEST(queries_are_rotated)
{
    enum { TOKENS = 3, HEADS = 5, CASES = 48 };
    static const size_t dims[] = { 64, 80, 128, 256, 6 };
    for (size_t i = 0; i < CASES; i++) {
        const size_t dim = dims[i % COUNT(dims)],
                     rotary = i % 3 == 0   ? dim
                              : i % 3 == 1 ? dim / 4 * 2
                                           : 0,
                     n = TOKENS * HEADS * dim;
        float *q = block(n * sizeof *q), *bias = block(HEADS * dim * sizeof *bias), *norm = block(dim * sizeof *norm),
              *turn = block(TOKENS * rotary * sizeof *turn), *from = malloc(n * sizeof *from);
        assert_non_null(from);
        normals(q, n, HA_F32, i);
        normals(bias, HEADS * dim, HA_F32, i + 100);
        normals(norm, dim, HA_F32, i + 200);
        for (size_t t = 0; t < TOKENS; t++)
            for (size_t j = 0; j < rotary / 2; j++) {
                const float angle = (float)(t + 7) / (float)(j + 1);
                turn[t * rotary + 2 * j] = 1.2f * cosf(angle);
                turn[t * rotary + 2 * j + 1] = 1.2f * sinf(angle);
            }
        memcpy(from, q, n * sizeof *q);
        struct ha_device_rotate args = { q,
                                         TOKENS,
                                         HEADS,
                                         dim,
                                         i & 1 ? bias : NULL,
                                         i & 2 ? norm : NULL,
                                         i & 4 ? 0.5f : 1e-6f,
                                         i & 8 || rotary ? turn : NULL,
                                         rotary,
                                         i & 16 };
        const struct ha_device_rotate kept = args;
        ok(api->rotate(stream, &args));
        memset(&args, 0, sizeof args);
        ok(api->stream_sync(stream));
        const double ratio = ha_ref_judge_rotate(&kept, from);
        if (!(ratio <= 1)) fail_msg("case %zu, head_dim %zu, %zu turned: error/bound %g", i, dim, rotary, ratio);
        free(from);
        release_memory();
    }
    ok(api->rotate(stream, &(struct ha_device_rotate){ .heads = 2, .head_dim = 8 }));
}

/* ---- wrong use */

#define WRONG(name, words) WRONG_USE(name, words, device_begin, device_end, refused)
WRONG_CALL(digests_need_rows_in_a_block, "blocks of 0 rows",
           api->digest(stream, &(struct ha_device_digest){ .kv_heads = 1, .head_dim = 8 }))
WRONG_CALL(scores_need_whole_groups, "3 query heads are no multiple of 2 KV heads",
           api->digest_score(stream, &(struct ha_device_digest_score){ .q_len = 1, .q_heads = 3, .kv_heads = 2 }))
WRONG_CALL(rows_need_whole_groups, "3 heads are no multiple of 2 KV heads",
           api->score(stream, &(struct ha_device_score){ .q_len = 1, .q_heads = 3, .kv_heads = 2, .head_dim = 1 }))
WRONG_CALL(rows_need_elements, "rows of no elements",
           api->score(stream, &(struct ha_device_score){ .q_len = 1, .q_heads = 2, .kv_heads = 2 }))
WRONG_CALL(columns_need_whole_groups, "3 heads are no multiple of 2 KV heads",
           api->columns(stream, &(struct ha_device_columns){ .heads = 3, .kv_heads = 2, .head_dim = 1 }))
WRONG_CALL(lists_need_rows, "lists of no rows", api->topk(stream, &(struct ha_device_topk){ .lists = 1 }))
WRONG_CALL(a_distance_is_not_negative, "within -1 of the largest",
           api->topk(stream, &(struct ha_device_topk){
                                 1, 1, 1, &(struct ha_device_topk_seq){ .keys = device_block(4), .within = -1 } }))
WRONG_CALL(lists_need_a_table, "lists of no table", api->split(stream, &(struct ha_device_split){ .lists = 1 }))
WRONG_CALL(rows_hold_their_lists, "rows of 3 for lists of 4",
           api->split(stream, &(struct ha_device_split){ 1, 2, 1,
                                                         &(struct ha_device_split_seq){ .index = device_block(32),
                                                                                        .count = 4,
                                                                                        .index_stride = 4,
                                                                                        .slot = device_block(4),
                                                                                        .blocks = 1,
                                                                                        .here = device_block(32),
                                                                                        .here_count = device_block(8),
                                                                                        .out_stride = 3 } }))
WRONG_CALL(pairs_are_of_two, "3 of 8 dimensions are turned in pairs",
           api->rotate(stream, &(struct ha_device_rotate){ .head_dim = 8, .rotary = 3, .turn = device_block(64) }))
WRONG_CALL(more_is_turned_than_there_is, "10 of 8 dimensions are turned in pairs",
           api->rotate(stream, &(struct ha_device_rotate){ .head_dim = 8, .rotary = 10, .turn = device_block(64) }))
