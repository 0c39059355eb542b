/* Books: samples by the rule as it is written, what a fit has, and what a fit learns, of which the error is that of the
 * nearest centroids, one key after the other. */

#include "suites/parts/codebook_fit.h"
#include "suites/parts/test_instance.h"

#include "harness/base/fit.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/rotate.h"
#include "harness/base/test_folder.h"

#include <math.h>

enum { LAYERS = 2, BATCH = 2, KV_HEADS = 2, DIM = 16, CAP = 300, KEYS = 290 + 117, COUNT_MAX = 512 };

static const struct ha_rule nothing = { .seq_bytes = 0 };

static struct {
    struct ha_shape shape;
    struct ha_prefill layer[LAYERS];
    unsigned char *k[LAYERS][BATCH];
    const void *k_in[LAYERS][BATCH];
    struct ha_projection projection[LAYERS];
    struct ha_fit_input in;
    struct ha_codebook_learning how;
    struct ha_fit_writer out;
    struct ha_fit *fit;
    struct ha_codebooks books;
} w;

static const float inv_freq[] = { 1, 0.3f, 0.1f, 0.01f, 0.001f };

static void begin(size_t count, size_t dims, enum ha_books books, enum ha_dtype type)
{
    memset(&w, 0, sizeof w);
    w.shape = (struct ha_shape){ .layers = LAYERS,
                                 .batch = BATCH,
                                 .q_heads = KV_HEADS,
                                 .kv_heads = KV_HEADS,
                                 .head_dim = DIM,
                                 .dtype = type,
                                 .ctx = { 290, 117 },
                                 .q_len = 1,
                                 .steps = 1 };
    for (size_t l = 0; l < LAYERS; l++) {
        for (size_t b = 0; b < BATCH; b++) {
            w.k_in[l][b] = w.k[l][b] = malloc(KV_HEADS * CAP * DIM * ha_dtype_bytes(type));
            for (size_t i = 0; i < KV_HEADS * CAP * DIM; i++) {
                const float x = ha_rng_normal(7, l * BATCH + b, i) + 2 * ha_rng_normal(8, l, i % DIM);
                ha_store(w.k[l][b], i, type, i / DIM % CAP < w.shape.ctx[b] ? x : NAN);
            }
        }
        w.layer[l] = (struct ha_prefill){ .k = w.k_in[l], .v = w.k_in[l], .cap = CAP };
        w.projection[l] = (struct ha_projection){
            .inv_freq = inv_freq, .rotary = 10, .adjacent = l > 0, .rope_scale = 1.25f
        };
    }
    open_context(&ha_device_host, &w.shape, &nothing);
    w.in = (struct ha_fit_input){ .shape = &w.shape,
                                  .seed = 3,
                                  .layer = w.layer,
                                  .kernels = &ha_kernels_c,
                                  .arena = mine.ctx.arena,
                                  .pool = mine.ctx.pool };
    w.how = (struct ha_codebook_learning){ .rule = { .dims = dims, .count = count, .books = books }, .iterations = 20 };
}

static void end(void)
{
    ha_fit_writer_free(&w.out);
    close_instance();
    ha_fit_close(w.fit);
    for (size_t i = 0; i < LAYERS * BATCH; i++) free(w.k[i / BATCH][i % BATCH]);
}

static float number(size_t l, size_t b, size_t head, size_t token, size_t d)
{
    return ha_load(w.k[l][b], (head * CAP + token) * DIM + d, w.shape.dtype);
}

/* key i of all sequences, as it is coded */
static void key_of(size_t l, size_t head, size_t i, double key[DIM])
{
    const size_t b = i >= w.shape.ctx[0], token = b ? i - w.shape.ctx[0] : i;
    const struct ha_projection *p = &w.projection[l];
    for (size_t d = 0; d < DIM; d++) key[d] = (double)number(l, b, head, token, d);
    for (size_t j = 0; j < p->rotary / 2 && w.how.rule.rotary == HA_ROTARY_BEFORE; j++) {
        const size_t one = p->adjacent ? 2 * j : j, two = p->adjacent ? 2 * j + 1 : j + p->rotary / 2;
        const double angle = (double)token * (double)inv_freq[j], x = key[one], y = key[two];
        key[one] = (x * cos(angle) + y * sin(angle)) / (double)p->rope_scale;
        key[two] = (y * cos(angle) - x * sin(angle)) / (double)p->rope_scale;
    }
}

static const struct ha_tensor *tensor(const char *name)
{
    for (size_t i = 0; i < w.out.count; i++)
        if (!strcmp(w.out.tensor[i].name, name)) return &w.out.tensor[i];
    fail_msg("there is no tensor %s", name);
    return NULL;
}

/* The squared distance of a key to the nearest centroids joined. centroid: [books][dims][count] of the head */
static double off(const float *centroid, const double *key)
{
    const size_t dims = w.how.rule.dims, count = w.how.rule.count;
    double sum = 0;
    for (size_t g = 0; g < DIM / dims; g++) {
        const float *book = centroid + (w.how.rule.books == HA_BOOKS_SHARED ? 0 : g) * dims * count;
        double least = HUGE_VAL;
        for (size_t j = 0; j < count; j++) {
            double square = 0;
            for (size_t d = 0; d < dims; d++) square += pow(key[g * dims + d] - (double)book[d * count + j], 2);
            least = fmin(least, square);
        }
        sum += least;
    }
    return sum;
}

/* ---- what a fit learns ------------------------------------------------------------------------------------------- */

static void expect_figures(double explained_least)
{
    const size_t books = w.how.rule.books == HA_BOOKS_SHARED ? 1 : DIM / w.how.rule.dims,
                 floats = books * w.how.rule.dims * w.how.rule.count;
    const struct ha_tensor *t = tensor("centroids"), *error = tensor("quant_error"), *explained = tensor("explained");
    const size_t dim[] = { LAYERS, KV_HEADS, books, w.how.rule.dims, w.how.rule.count };
    assert_true(t->type == HA_T_F32 && t->dims == 5 && error->dims == 2 && explained->dims == 2);
    for (size_t i = 0; i < 5; i++) assert_int_equal(t->dim[i], dim[i]);
    for (size_t at = 0; at < LAYERS * KV_HEADS; at++) {
        static double key[KEYS][DIM];
        double mean[DIM] = { 0 }, errors = 0, squares = 0, variance = 0;
        for (size_t i = 0; i < KEYS; i++) {
            key_of(at / KV_HEADS, at % KV_HEADS, i, key[i]);
            errors += off((const float *)t->data + at * floats, key[i]);
            for (size_t d = 0; d < DIM; d++) mean[d] += key[i][d] / KEYS;
        }
        for (size_t i = 0; i < KEYS * DIM; i++) {
            squares += pow(key[i / DIM][i % DIM], 2);
            variance += pow(key[i / DIM][i % DIM] - mean[i % DIM], 2);
        }
        const double of_error = (double)((const float *)error->data)[at],
                     of_variance = (double)((const float *)explained->data)[at];
        if (!(fabs(of_error - errors / squares) <= 1e-4 * errors / squares))
            fail_msg("quant_error %g, and it is %g", of_error, errors / squares);
        if (!(fabs(of_variance - (1 - errors / variance)) <= 1e-4))
            fail_msg("explained %g, and it is %g", of_variance, 1 - errors / variance);
        assert_true(of_variance > explained_least);
    }
}

TEST(a_fit_learns_what_it_says)
{
    static const struct {
        size_t count, dims;
        enum ha_books books;
        enum ha_rotary rotary;
        enum ha_kmeans_way kmeans;
        double explained_least;
    } cases[] = {
        { 16, 4, HA_BOOKS_SHARED, HA_ROTARY_AFTER, HA_KMEANS_MINIBATCH, 0.1 },
        { 16, 2, HA_BOOKS_SEPARATE, HA_ROTARY_AFTER, HA_KMEANS_LLOYD, 0.8 },
        { 32, 2, HA_BOOKS_SHARED, HA_ROTARY_BEFORE, HA_KMEANS_LLOYD, 0.7 },
        { 16, 16, HA_BOOKS_SEPARATE, HA_ROTARY_BEFORE, HA_KMEANS_MINIBATCH, 0.2 },
        { 2, 1, HA_BOOKS_SEPARATE, HA_ROTARY_AFTER, HA_KMEANS_LLOYD, 0.5 },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        begin(cases[i].count, cases[i].dims, cases[i].books, (enum ha_dtype)(i % 3));
        w.how.rule.rotary = cases[i].rotary;
        w.how.kmeans = cases[i].kmeans;
        w.in.projection = cases[i].rotary == HA_ROTARY_BEFORE ? w.projection : NULL;
        ok(ha_codebook_fit(&w.in, &w.out, &w.how, &why));
        expect_figures(cases[i].explained_least);
        end();
    }
}

/* ... and with a seed, whose every bit counts. */
TEST(threads_change_no_bit)
{
    static float first[LAYERS * KV_HEADS * 4 * 4 * 16];
    for (size_t threads = 1; threads <= 4; threads++) {
        struct ha_pool *pool;
        begin(16, 4, HA_BOOKS_SEPARATE, HA_F16);
        ok(ha_pool_create(&pool, HA_TEAM_DEFAULT, threads % 4 + (threads == 4), &why));
        w.in.pool = pool;
        w.in.seed = threads == 4 ? UINT64_C(1) << 63 | 3 : 3;
        ok(ha_codebook_fit(&w.in, &w.out, &w.how, &why));
        const struct ha_tensor *t = tensor("centroids");
        assert_int_equal(t->bytes, sizeof first);
        if (threads == 1) memcpy(first, t->data, sizeof first);
        assert_true(!memcmp(first, t->data, sizeof first) == (threads < 4));
        ha_pool_destroy(pool);
        end();
    }
}

/* Each book is drawn for with numbers of its own: equal keys in two heads have different books. */
TEST(books_are_drawn_apart)
{
    begin(16, 4, HA_BOOKS_SHARED, HA_F32);
    for (size_t b = 0; b < BATCH; b++)
        memcpy(w.k[0][b] + CAP * DIM * sizeof(float), w.k[0][b], CAP * DIM * sizeof(float));
    ok(ha_codebook_fit(&w.in, &w.out, &w.how, &why));
    const float *t = tensor("centroids")->data;
    assert_true(memcmp(t, t + 4 * 16, 4 * 16 * sizeof *t) != 0);
    end();
}

TEST(equal_keys_are_explained)
{
    begin(16, 4, HA_BOOKS_SHARED, HA_F32);
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t i = 0; i < KV_HEADS * CAP * DIM * BATCH; i++)
            ha_store(w.k[l][i % BATCH], i / BATCH, HA_F32, l ? 0 : 3);
    ok(ha_codebook_fit(&w.in, &w.out, &w.how, &why));
    for (size_t i = 0; i < LAYERS * KV_HEADS; i++) {
        assert_true(((const float *)tensor("quant_error")->data)[i] == 0);
        assert_true(((const float *)tensor("explained")->data)[i] == 1);
    }
    end();
}

static void refused(enum ha_status wanted, const char *words)
{
    assert_int_equal(ha_codebook_fit(&w.in, &w.out, &w.how, &why), wanted);
    if (!strstr(why.text, words)) fail_msg("\"%s\" does not say \"%s\"", why.text, words);
    assert_int_equal(w.out.count, 0);
    end();
}

TEST(what_a_fit_refuses)
{
    begin(128, 4, HA_BOOKS_SEPARATE, HA_F16);
    refused(HA_ERROR, "c=128 takes 2048 keys at least, 16 vectors for each centroid, and there are 407");
    begin(512, 4, HA_BOOKS_SHARED, HA_F16);
    refused(HA_ERROR, "c=512 takes 2048 keys at least");
    begin(16, 32, HA_BOOKS_SHARED, HA_F16);
    refused(HA_ERROR, "dims=32 does not divide head_dim=16");
    begin(16, 4, HA_BOOKS_SHARED, HA_F16);
    w.how.rule.rotary = HA_ROTARY_BEFORE;
    refused(HA_WAIVED, "rotary=before needs");
    begin(16, 4, HA_BOOKS_SEPARATE, HA_F16);
    ha_store(w.k[1][1], (1 * CAP + 3) * DIM + 9, HA_F16, NAN);
    refused(HA_ERROR, "layer 1, KV head 1, book 2: k-means: vector 293 has nan in dimension 1");
}

/* As many vectors as are wanted are enough, and one key less is not. */
TEST(enough_keys)
{
    for (size_t less = 0; less < 2; less++) {
        begin(64, 4, HA_BOOKS_SHARED, HA_F16);
        w.shape.ctx[1] = 117;
        w.shape.ctx[0] = 256 - 117 - less;
        w.how.iterations = 1;
        if (less) {
            refused(HA_ERROR, "takes 256 keys at least, 16 vectors for each centroid, and there are 255");
            continue;
        }
        ok(ha_codebook_fit(&w.in, &w.out, &w.how, &why));
        end();
    }
}

/* ---- what a case has --------------------------------------------------------------------------------------------- */

/* Of every layer and KV head, on the device and here. want: [layers][kv_heads][books][dims][count] */
static void expect_books(const float *want)
{
    static float there[KV_HEADS * COUNT_MAX * DIM];
    const size_t floats = ha_pq_book_floats(&w.books.pq);
    for (size_t l = 0; l < LAYERS; l++) {
        const struct ha_pq pq = ha_codebooks_there(&w.books, l);
        move(there, pq.centroid, KV_HEADS * floats * sizeof *there, HA_D2H);
        assert_memory_equal(there, want + l * KV_HEADS * floats, KV_HEADS * floats * sizeof *there);
        for (size_t h = 0; h < KV_HEADS; h++)
            assert_memory_equal(ha_codebooks_here(&w.books, l, h).centroid, want + (l * KV_HEADS + h) * floats,
                                floats * sizeof *want);
    }
}

static void sample(float *want)
{
    const size_t count = w.how.rule.count, dims = w.how.rule.dims, groups = DIM / dims,
                 books = w.how.rule.books == HA_BOOKS_SHARED ? 1 : groups;
    size_t keys = w.shape.ctx[0] + w.shape.ctx[1];
    for (size_t i = 0; i < LAYERS * KV_HEADS * books * dims * count; i++) {
        const size_t j = i % count, d = i / count % dims, book = i / count / dims % books,
                     at = i / count / dims / books, part = books > 1 ? book : j * keys * groups / count % groups,
                     key = books > 1 ? j * keys / count : j * keys * groups / count / groups;
        double x[DIM] = { 0 };
        if (keys) key_of(at / KV_HEADS, at % KV_HEADS, key, x);
        want[i] = (float)x[part * dims + d];
    }
}

TEST(samples_are_taken_evenly)
{
    static float want[LAYERS * KV_HEADS * COUNT_MAX * DIM];
    for (size_t i = 0; i < 8; i++) {
        begin(i % 4 > 1 ? COUNT_MAX : 16, i % 2 ? 4 : 8, i < 4 ? HA_BOOKS_SHARED : HA_BOOKS_SEPARATE,
              (enum ha_dtype)(i % 3));
        if (i == 3 || i == 7) w.shape.ctx[0] = 0;
        if (i == 5) w.shape.ctx[0] = w.shape.ctx[1] = 0;
        ok(ha_codebooks_create(&w.books, &mine.ctx, &w.how.rule, &why));
        for (size_t l = 0; l < LAYERS; l++) ok(ha_codebooks_prefill(&w.books, l, &w.layer[l], &why));
        sample(want);
        expect_books(want);
        end();
    }
}

TEST(samples_of_keys_before_they_are_turned)
{
    static float want[LAYERS * KV_HEADS * COUNT_MAX * DIM];
    for (size_t i = 0; i < 4; i++) {
        begin(64, 4, i % 2 ? HA_BOOKS_SEPARATE : HA_BOOKS_SHARED, (enum ha_dtype)(i % 3));
        w.how.rule.rotary = HA_ROTARY_BEFORE;
        mine.ctx.projection = w.projection;
        ok(ha_codebooks_create(&w.books, &mine.ctx, &w.how.rule, &why));
        for (size_t l = 0; l < LAYERS; l++) ok(ha_codebooks_prefill(&w.books, l, &w.layer[l], &why));
        sample(want);
        const size_t floats = ha_pq_book_floats(&w.books.pq);
        for (size_t at = 0; at < LAYERS * KV_HEADS * floats; at++) {
            const size_t head = at / floats;
            const float is = ha_codebooks_here(&w.books, head / KV_HEADS, head % KV_HEADS).centroid[at % floats];
            if (!(fabsf(is - want[at]) <= 4e-6f)) fail_msg("%zu: %.9g, not %.9g", at, (double)is, (double)want[at]);
        }
        end();
    }
    begin(64, 4, HA_BOOKS_SHARED, HA_F32);
    w.how.rule.rotary = HA_ROTARY_BEFORE;
    assert_int_equal(ha_codebooks_create(&w.books, &mine.ctx, &w.how.rule, &why), HA_WAIVED);
    w.projection[1].inv_freq = NULL;
    mine.ctx.projection = w.projection;
    assert_int_equal(ha_codebooks_create(&w.books, &mine.ctx, &w.how.rule, &why), HA_WAIVED);
    assert_non_null(strstr(why.text, "rotary=before needs a dataset that says how its keys were turned"));
    end();
}

TEST(bits_of_codes)
{
    static const struct {
        size_t count;
        bool pack;
        size_t bits;
    } cases[] = { { 2, false, 8 }, { 256, false, 8 }, { 512, false, 16 }, { 65536, false, 16 }, { 2, true, 1 },
                  { 16, true, 4 }, { 256, true, 8 },  { 512, true, 9 },   { 65536, true, 16 } };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ha_pq pq;
        const struct ha_shape shape = { .head_dim = DIM };
        const struct ha_codebook_rule rule = { .dims = 4, .count = cases[i].count, .pack = cases[i].pack };
        ok(ha_codebooks_pq(&rule, &shape, &pq, &why));
        assert_int_equal(pq.bits, cases[i].bits);
        assert_true(pq.groups == 4 && pq.books == 1 && pq.count == cases[i].count);
    }
}

static void read_fit(const char *name, size_t books, const float *data)
{
    static const struct ha_provenance text = { "m", "t", 1 };
    static const struct ha_fit_about about = { .value = { "hcattention", "", "m", "2", "2", "2", "16", "0", "iid", "1",
                                                          "hcattention", "v1" },
                                               .origin = &text,
                                               .origins = 1 };
    const struct ha_tensor t = { .name = name,
                                 .type = HA_T_F32,
                                 .dims = 5,
                                 .dim = { LAYERS, KV_HEADS, books, w.how.rule.dims, w.how.rule.count },
                                 .data = data };
    ok(ha_fit_put(&w.out, &t, &why));
    ok(ha_fit_write(&w.out, test_path("fit"), &about, &why));
    ok(ha_fit_open(&w.fit, test_path("fit"), &why));
    mine.ctx.fit = w.fit;
}

TEST(books_of_a_fit_are_taken_as_they_are)
{
    static float centroid[LAYERS * KV_HEADS * 4 * 4 * 16];
    for (size_t i = 0; i < COUNT(centroid); i++) centroid[i] = ha_rng_normal(1, 2, i);
    begin(16, 4, HA_BOOKS_SEPARATE, HA_F16);
    read_fit("centroids", 4, centroid);
    ok(ha_codebooks_create(&w.books, &mine.ctx, &w.how.rule, &why));
    for (size_t l = 0; l < LAYERS; l++) ok(ha_codebooks_prefill(&w.books, l, &w.layer[l], &why));
    expect_books(centroid);
    end();
}

TEST(fits_that_do_not_go_with_a_case)
{
    static float centroid[LAYERS * KV_HEADS * 4 * 4 * 16];
    begin(16, 4, HA_BOOKS_SEPARATE, HA_F16);
    read_fit("centroids", 1, centroid);
    assert_int_equal(ha_codebooks_create(&w.books, &mine.ctx, &w.how.rule, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "centroids"));
    end();
    begin(16, 4, HA_BOOKS_SHARED, HA_F16);
    read_fit("books", 1, centroid);
    assert_int_equal(ha_codebooks_create(&w.books, &mine.ctx, &w.how.rule, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "centroids"));
    end();
}

TEST_MAIN { return test_all("codebooks", test_folder_make, test_folder_remove); }
