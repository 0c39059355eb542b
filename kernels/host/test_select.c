/* What selects keys on a device: digests, their scores, the largest of these, and queries from their products, against
 * the reference; what lies beside the results does not change. */

#include "kernels/host/test_fixture.h"

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"

#include <math.h>

enum { BATCH_MAX = 70, GROUP = HA_PACK_KEYS, POISON = 0xFF };

/* every other block in mapped memory */
static void *block(size_t bytes)
{
    static size_t count;
    return memset(device_alloc(dev, count++ % 2 ? HA_MEM_MAPPED : HA_MEM_DEVICE, bytes + 1), POISON, bytes);
}
static void *device_block(size_t bytes) { return memset(device_alloc(dev, HA_MEM_DEVICE, bytes + 1), POISON, bytes); }
static void release_memory(void)
{
    for (size_t i = device_owned; i-- > 0;)
        if (device_own[i].thing == DEVICE_MEMORY) device_release_at(i);
}
static void normals(void *out, size_t n, enum ha_dtype dtype, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) ha_store(out, i, dtype, ha_rng_normal(seed, dtype, i));
}
static bool poisoned(const void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)p)[i] != POISON) return false;
    return true;
}

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
WRONG_CALL(lists_need_rows, "lists of no rows", api->topk(stream, &(struct ha_device_topk){ .lists = 1 }))
WRONG_CALL(pairs_are_of_two, "3 of 8 dimensions are turned in pairs",
           api->rotate(stream, &(struct ha_device_rotate){ .head_dim = 8, .rotary = 3, .turn = device_block(64) }))
WRONG_CALL(more_is_turned_than_there_is, "10 of 8 dimensions are turned in pairs",
           api->rotate(stream, &(struct ha_device_rotate){ .head_dim = 8, .rotary = 10, .turn = device_block(64) }))
