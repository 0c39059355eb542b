/* Keys as codes, and as they are: each code is the nearest centroid of its book wherever the key came from, the scores
 * are those of the keys that stand for them, and codes that are none are refused. */

#include "suites/parts/coded_keys.h"
#include "suites/parts/test_instance.h"

#include "harness/base/numeric.h"
#include "harness/base/pq.h"
#include "harness/base/rng.h"

#include <math.h>

enum { LAYERS = 2, BATCH = 2, GROUP = 2, DIM = 8, STEPS = 2, KEYS_MOST = 8200, CAP = KEYS_MOST };

static const struct ha_rule nothing = { .seq_bytes = 0 };

static struct {
    struct ha_shape shape;
    struct ha_coded coded;
    struct ha_coded_seq seq[LAYERS][BATCH];
    const struct ha_coded_seq *of[BATCH]; /* of the layer that is asked */
    unsigned char *k[LAYERS][BATCH];      /* [kv_heads][CAP][DIM] */
    const void *in[LAYERS][BATCH];
} w;

struct book {
    enum ha_coded_as as;
    size_t dims, count;
    enum ha_books books;
    bool pack;
    enum ha_dtype table;
};

static void begin(const struct book *book, enum ha_dtype type, size_t kv_heads, size_t q_len, const size_t ctx[BATCH])
{
    const struct ha_codebook_rule rule = { book->dims, book->count, book->books, HA_ROTARY_AFTER, book->pack };
    memset(&w, 0, sizeof w);
    w.shape = (struct ha_shape){ .layers = LAYERS,
                                 .batch = BATCH,
                                 .q_heads = kv_heads * GROUP,
                                 .kv_heads = kv_heads,
                                 .head_dim = DIM,
                                 .dtype = type,
                                 .ctx = { ctx[0], ctx[1] },
                                 .q_len = q_len,
                                 .steps = STEPS,
                                 .scale = 0.25f };
    open_context(&ha_device_host, &w.shape, &nothing);
    mine.ctx.record_selection = true;
    ok(ha_coded_create(&w.coded, &mine.ctx, book->as, &rule, book->table, q_len * GROUP, &why));
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t b = 0; b < BATCH; b++) {
            w.in[l][b] = w.k[l][b] = malloc(kv_heads * CAP * DIM * sizeof(float));
            for (size_t i = 0; i < kv_heads * CAP * DIM; i++)
                ha_store(w.k[l][b], i, type, ha_rng_normal(9, l * BATCH + b, i));
            ok(ha_coded_open(&w.coded, b, &w.seq[l][b], &why));
        }
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t b = 0; b < BATCH; b++)
            ok(ha_coded_prefill(&w.coded, l, b, &(struct ha_prefill){ .k = w.in[l], .cap = CAP }, &w.seq[l][b], &why));
}

static void end(void)
{
    close_instance();
    for (size_t i = 0; i < LAYERS * BATCH; i++) free(w.k[i / BATCH][i % BATCH]);
}

static float key_at(size_t l, size_t b, size_t head, size_t token, size_t d)
{
    return ha_load(w.k[l][b], (head * CAP + token) * DIM + d, w.shape.dtype);
}

/* Tokens [first, first + count) of all heads as a step brings them. */
static void put(size_t l, size_t b, size_t first, size_t count)
{
    const size_t heads = w.shape.kv_heads, bytes = ha_kv_token_bytes(&w.shape) * count;
    unsigned char *row = malloc(bytes + 1), *there = memory_of(HA_MEM_DEVICE, bytes + 1);
    for (size_t i = 0; i < count * heads * DIM; i++)
        ha_store(row, i, w.shape.dtype, key_at(l, b, i / DIM % heads, first + i / DIM / heads, i % DIM));
    if (count) move(there, row, bytes, HA_H2D);
    ok(ha_coded_put(&w.coded, mine.ctx.stream, l, &w.seq[l][b], there, first, count));
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
    free(row);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* the first centroid of the least sum of squares in binary32, where no rounding decides it; SIZE_MAX where one does */
static size_t nearest(const struct ha_pq *pq, size_t g, const float *x)
{
    const float *book = ha_pq_book(pq, g);
    double least = HUGE_VAL, next = HUGE_VAL;
    size_t at = 0;
    for (size_t j = 0; j < pq->count; j++) {
        double square = 0;
        for (size_t d = 0; d < pq->dims; d++) {
            const double off = (double)x[d] - (double)book[d * pq->count + j];
            square += off * off;
        }
        if (square == least) continue; /* the same centroid once more */
        next = fmin(next, fmax(square, least));
        if (square < least) least = square, at = j;
    }
    return next - least > 1e-5 * next ? at : SIZE_MAX;
}

static void expect_key(size_t l, size_t b, size_t head, size_t token, const float *got)
{
    float x[DIM];
    for (size_t d = 0; d < DIM; d++) x[d] = key_at(l, b, head, token, d);
    if (w.coded.as == HA_KEYS_EXACT) {
        assert_memory_equal(got, x, sizeof x);
        return;
    }
    const struct ha_pq pq = ha_codebooks_here(&w.coded.books, l, head);
    for (size_t g = 0; g < pq.groups; g++) {
        const size_t at = nearest(&pq, g, x + g * pq.dims);
        for (size_t d = 0; d < pq.dims && at != SIZE_MAX; d++)
            if (got[g * pq.dims + d] != ha_pq_book(&pq, g)[d * pq.count + at])
                fail_msg("layer %zu seq %zu head %zu: key %zu is not centroid %zu of group %zu", l, b, head, token, at,
                         g);
    }
}

/* What one thread judges is no matter of races, and ThreadSanitizer asks it at each read. */
enum { EACH = HA_TSAN ? 5 : 1 };

/* Of every head, every `each`th token and the last. */
static void expect_keys(size_t l, size_t b, size_t count, size_t each)
{
    static float got[KEYS_MOST * DIM];
    for (size_t head = 0; head < w.shape.kv_heads; head++) {
        ok(ha_coded_read(&w.coded, l, &w.seq[l][b], head, count, got, &why));
        for (size_t t = 0; t < count; t += each) expect_key(l, b, head, t, got + t * DIM);
        if (count) expect_key(l, b, head, count - 1, got + (count - 1) * DIM);
    }
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* The scores of a range of KV heads by the keys that stand there, and nothing written beside them. */
static void expect_scores(size_t l, const size_t keys[BATCH], size_t first, size_t heads)
{
    static float key[KEYS_MOST * DIM];
    const struct ha_shape *s = &w.shape;
    const size_t stride = ha_kv_longest(s), rows = s->q_heads * s->q_len, all = BATCH * rows * stride;
    float *q = malloc(BATCH * rows * DIM * sizeof *q), *got = malloc(all * sizeof *got),
          *q_there = memory_of(HA_MEM_DEVICE, BATCH * rows * DIM * sizeof *q),
          *there = memory_of(HA_MEM_DEVICE, all * sizeof *got);
    const struct ha_step step = { .layer = l, .q_len = s->q_len, .q = q_there };
    for (size_t i = 0; i < BATCH * rows * DIM; i++) q[i] = ha_rng_normal(4, l, i);
    for (size_t i = 0; i < all; i++) got[i] = NAN;
    move(q_there, q, BATCH * rows * DIM * sizeof *q, HA_H2D);
    move(there, got, all * sizeof *got, HA_H2D);
    for (size_t b = 0; b < BATCH; b++) w.of[b] = &w.seq[l][b];
    ok(ha_coded_ask(&w.coded, &step));
    ok(ha_coded_score(&w.coded, &step, w.of, keys, first, heads, there, stride));
    move(got, there, all * sizeof *got, HA_D2H);
    const bool exact = w.coded.as == HA_KEYS_EXACT;
    const double near = w.coded.table_type == HA_F16 && !exact ? 1e-2 : 1e-5;
    for (size_t i = 0; i < BATCH * rows; i++) {
        const size_t b = i / rows, head = i % rows / s->q_len, t = i % s->q_len, kv = head / GROUP;
        const bool asked = exact ? first == 0 : kv >= first && kv < first + heads;
        const float *query = q + ((b * s->q_len + t) * s->q_heads + head) * DIM;
        ok(ha_coded_read(&w.coded, l, w.of[b], kv, keys[b], key, &why));
        for (size_t j = 0; j < stride; j++) {
            double want = 0;
            for (size_t d = 0; d < DIM && j < keys[b]; d++) want += 0.25 * (double)query[d] * (double)key[j * DIM + d];
            if (!asked || j >= keys[b] ? !isnan(got[i * stride + j])
                                       : !(fabs((double)got[i * stride + j] - want) <= near))
                fail_msg("seq %zu head %zu token %zu key %zu: %g, not %g", b, head, t, j, (double)got[i * stride + j],
                         want);
        }
    }
    free(q);
    free(got);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static const struct book books[] = {
    { HA_KEYS_CODES, 4, 16, HA_BOOKS_SHARED, false, HA_F32 },
    { HA_KEYS_CODES, 4, 16, HA_BOOKS_SEPARATE, true, HA_F16 },
    { HA_KEYS_CODES, 8, 512, HA_BOOKS_SHARED, true, HA_F32 },
    { HA_KEYS_CODES, 1, 2, HA_BOOKS_SEPARATE, true, HA_F16 },
    { HA_KEYS_CODES, 2, 8192, HA_BOOKS_SHARED, true, HA_F32 },
    { HA_KEYS_CODES, 4, 8192, HA_BOOKS_SEPARATE, true, HA_F16 },
    { HA_KEYS_CODES, 4, 512, HA_BOOKS_SHARED, false, HA_F32 },
    { HA_KEYS_EXACT, 4, 16, HA_BOOKS_SHARED, false, HA_F16 },
};

/* Contexts that end before, at and behind the end of a block of codes; new tokens one by one and at once, up to the
 * last for which there is room; their codes change no other. */
TEST(every_key_has_its_nearest_centroid)
{
    static const size_t ctx[][BATCH] = { { 0, 1 }, { 31, 32 }, { 33, 60 } };
    for (size_t i = 0; i < COUNT(books) * COUNT(ctx); i++) {
        const size_t *of = ctx[i % COUNT(ctx)], q_len = 1 + i % 3;
        begin(&books[i / COUNT(ctx)], (enum ha_dtype)(i % 3), 2, q_len, of);
        for (size_t l = 0; l < LAYERS; l++)
            for (size_t b = 0; b < BATCH; b++) expect_keys(l, b, of[b], EACH);
        for (size_t at = 0; at < STEPS * q_len; at += i % 2 ? 1 : q_len)
            for (size_t b = 0; b < BATCH; b++) {
                put(1, b, of[b] + at, i % 2 ? 1 : q_len);
                expect_keys(1, b, of[b] + at + (i % 2 ? 1 : q_len), EACH);
            }
        put(1, 0, of[0], 0);
        expect_keys(0, 1, of[1], EACH);
        end();
    }
}

TEST(scores_are_those_of_what_stands_for_keys)
{
    static const size_t ctx[] = { 70, 33 }, keys[][BATCH] = { { 70, 33 }, { 0, 1 }, { 64, 0 }, { 65, 32 } };
    for (size_t i = 0; i < COUNT(books); i++) {
        begin(&books[i], (enum ha_dtype)(i % 3), 3, 1 + i % 3, ctx);
        for (size_t j = 0; j < COUNT(keys); j++) {
            expect_scores(j % 2, keys[j], 0, 3);
            expect_scores(j % 2, keys[j], 1, 1);
            expect_scores(j % 2, keys[j], 2, 1);
        }
        expect_scores(1, keys[0], 0, 1);
        end();
    }
}

/* More than comes to the device at once, and a book of as many centroids as keys: each key stands for itself. */
TEST(prefills_come_in_pieces)
{
    static const struct book by[] = { { HA_KEYS_CODES, 4, 16, HA_BOOKS_SHARED, false, HA_F32 },
                                      { HA_KEYS_EXACT, 4, 16, HA_BOOKS_SHARED, false, HA_F32 } };
    static const size_t ctx[][BATCH] = { { 4096, 4097 }, { 4095, 8193 } };
    for (size_t i = 0; i < COUNT(by) * COUNT(ctx); i++) {
        begin(&by[i / 2], HA_F16, 1, 1, ctx[i % 2]);
        for (size_t b = 0; b < BATCH; b++) expect_keys(0, b, ctx[i % 2][b], 61);
        for (size_t t = 4094; t < 4099 && t < ctx[i % 2][1]; t++) expect_keys(0, 1, t, 4096);
        end();
    }
}

TEST(with_a_centroid_for_each_key_codes_are_exact)
{
    static const struct book by = { HA_KEYS_CODES, 8, 64, HA_BOOKS_SEPARATE, true, HA_F32 };
    static const size_t ctx[] = { 40, 24 };
    static float got[64 * DIM];
    begin(&by, HA_BF16, 2, 1, ctx);
    for (size_t i = 0; i < LAYERS * BATCH * 2; i++) {
        const size_t l = i / 4, b = i / 2 % 2, head = i % 2;
        ok(ha_coded_read(&w.coded, l, &w.seq[l][b], head, ctx[b], got, &why));
        for (size_t j = 0; j < ctx[b] * DIM; j++) assert_true(got[j] == key_at(l, b, head, j / DIM, j % DIM));
    }
    end();
}

/* A device may write anything: of 13 bits, of a whole byte, in the last block and its last key. */
TEST(codes_that_are_none)
{
    static const struct book by[] = { { HA_KEYS_CODES, 4, 16, HA_BOOKS_SHARED, false, HA_F32 },
                                      { HA_KEYS_CODES, 4, 4097, HA_BOOKS_SHARED, true, HA_F32 } };
    static const char *const words[] = { "code 255 of key 33, of 16 centroids",
                                         "code 8191 of key 33, of 4097 centroids" };
    static const size_t ctx[] = { 34, 0 };
    static float got[34 * DIM];
    for (size_t i = 0; i < COUNT(by); i++) {
        begin(&by[i], HA_F32, 2, 1, ctx);
        const struct ha_pq *pq = &w.coded.books.pq;
        unsigned char block[2 * 4 * HA_PQ_BITS_MAX];
        unsigned char *at = w.seq[0][0].codes + w.seq[0][0].head_bytes + ha_pq_block_bytes(pq);
        assert_true(ha_pq_block_bytes(pq) <= sizeof block);
        move(block, at, ha_pq_block_bytes(pq), HA_D2H);
        ha_pq_put(block + ha_pq_group_bytes(pq), pq->bits, 33 - HA_PQ_KEYS, (1u << pq->bits) - 1);
        move(at, block, ha_pq_block_bytes(pq), HA_H2D);
        ok(ha_coded_read(&w.coded, 0, &w.seq[0][0], 0, 34, got, &why));
        ok(ha_coded_read(&w.coded, 0, &w.seq[0][0], 1, 33, got, &why));
        assert_int_equal(ha_coded_read(&w.coded, 0, &w.seq[0][0], 1, 34, got, &why), HA_ERROR);
        if (!strstr(why.text, words[i])) fail_msg("\"%s\" does not say \"%s\"", why.text, words[i]);
        end();
    }
}

/* Products of a group's dimensions, then entries of the groups, of the table's type; keys as they are claim one lane.
 */
TEST(what_scores_claim)
{
    static const size_t ctx[] = { 3, 1 };
    static const unsigned extra[] = { 5, 5, 8, 8, 5, 5, 5, 0 };
    for (size_t i = 0; i < COUNT(books); i++) {
        begin(&books[i], HA_F16, 1, 1, ctx);
        struct ha_profile claims = { .sum_lanes = 9 };
        ha_coded_claim(&w.coded, &claims);
        const bool exact = books[i].as == HA_KEYS_EXACT;
        assert_int_equal(claims.dot_lanes, exact ? 1 : DIM);
        assert_int_equal(claims.dot_extra, extra[i]);
        assert_true(claims.score_type == (exact ? HA_F32 : books[i].table) && claims.sum_lanes == 9);
        end();
    }
}
