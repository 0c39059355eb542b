#include "datasets/model/fake_gguf.h"
#include "datasets/model/gguf.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/test_folder.h"

#include <math.h>

static struct ha_why why;

/* Exactly as long as the file, so that AddressSanitizer sees a read behind its end. */
static enum ha_status parse(struct ha_gguf **file, const unsigned char *bytes, size_t count, unsigned char **copy)
{
    *copy = malloc(count ? count : 1);
    assert_non_null(*copy);
    memcpy(*copy, bytes, count);
    *why.text = 0;
    return ha_gguf_parse(file, "x.gguf", *copy, count, &why);
}

static void refused(const struct fake_gguf *g, const char *reason)
{
    struct ha_gguf *file;
    unsigned char *copy;
    assert_int_equal(parse(&file, g->bytes, g->count, &copy), HA_ERROR);
    assert_null(file);
    assert_ptr_equal(strstr(why.text, "x.gguf: "), why.text);
    assert_contains(why.text, reason);
    free(copy);
    free(g->bytes);
}

TEST(metadata_is_found_by_key_and_type)
{
    static const char *const words[] = { "one", "", "three" };
    struct fake_gguf g;
    struct ha_gguf *file;
    unsigned char *copy;
    struct ha_gguf_text text;
    size_t count;
    double x;
    fake_gguf_begin(&g, 0, 4);
    fake_gguf_u32(&g, "a.number", 4000000000);
    fake_gguf_text(&g, "a", "text");
    fake_gguf_f32(&g, "b", 0.5F);
    fake_gguf_texts(&g, "list", words, COUNT(words));
    fake_gguf_end(&g);
    assert_int_equal(parse(&file, g.bytes, g.count, &copy), HA_OK);
    assert_true(ha_gguf_number(file, "a.number", &x) && x == 4e9);
    assert_true(ha_gguf_number(file, "b", &x) && x == 0.5);
    assert_true(ha_gguf_text(file, "a", &text) && text.length == 4 && !memcmp(text.text, "text", 4));
    assert_false(ha_gguf_number(file, "a", &x) || ha_gguf_text(file, "b", &text) || ha_gguf_number(file, "a.numbe", &x)
                 || ha_gguf_number(file, "list", &x));
    struct ha_gguf_text *list = ha_gguf_texts(file, "list", &count);
    assert_int_equal(count, 3);
    assert_true(list[0].length == 3 && list[1].length == 0 && !memcmp(list[2].text, "three", 5));
    assert_null(ha_gguf_texts(file, "a", &count));
    free(list);
    ha_gguf_close(file);
    free(copy);
    free(g.bytes);
}

/* ---- blocks: what the format says of element i, one at a time, of random bytes ----------------------------------- */

static double f16(const unsigned char *at) { return (double)ha_load(at, 0, HA_F16); }

static double q4(const unsigned char *q, size_t i) { return i < 16 ? q[i] % 16 : q[i - 16] / 16; }
static double of_q4_0(const unsigned char *b, size_t i) { return f16(b) * (q4(b + 2, i) - 8); }
static double of_q4_1(const unsigned char *b, size_t i) { return f16(b) * q4(b + 4, i) + f16(b + 2); }
static double of_q8_0(const unsigned char *b, size_t i) { return f16(b) * (signed char)b[2 + i]; }
static double of_f32(const unsigned char *b, size_t i)
{
    float x;
    memcpy(&x, b + 4 * i, sizeof x);
    return (double)x;
}
static double of_f16(const unsigned char *b, size_t i) { return f16(b + 2 * i); }
static double of_bf16(const unsigned char *b, size_t i) { return (double)ha_load(b, i, HA_BF16); }

/* As ggml-quants.c walks: of each half l, l + 32, l + 64 and l + 96 in turn. */
static double of_q6_k(const unsigned char *b, size_t i)
{
    const size_t half = i / 128, l = i % 32;
    const unsigned char *ql = b + 64 * half, *qh = b + 128 + 32 * half, *scale = b + 192 + 8 * half;
    const unsigned part = i % 128 / 32;
    const unsigned q = part == 0   ? (ql[l] & 15u) | (qh[l] & 3u) << 4
                       : part == 1 ? (ql[l + 32] & 15u) | (qh[l] >> 2 & 3u) << 4
                       : part == 2 ? ql[l] >> 4 | (qh[l] >> 4 & 3u) << 4
                                   : ql[l + 32] >> 4 | (qh[l] >> 6 & 3u) << 4;
    return f16(b + 208) * (signed char)scale[l / 16 + 2 * part] * ((int)q - 32);
}

/* Of the first 32 numbers: a sum of two is as exact as the larger one. */
static double largest(double (*of)(const unsigned char *block, size_t i), const unsigned char *block)
{
    double most = 0;
    for (size_t i = 0; i < 32; i++) most = fmax(most, fabs(of(block, i)));
    return most;
}

TEST(each_type_is_read_as_the_format_has_it)
{
    static const struct {
        uint32_t id;
        const char *name;
        size_t elements, bytes;
        double (*of)(const unsigned char *block, size_t i);
    } types[] = {
        { 0, "F32", 32, 128, of_f32 },     { 1, "F16", 32, 64, of_f16 },   { 30, "BF16", 32, 64, of_bf16 },
        { 2, "Q4_0", 32, 18, of_q4_0 },    { 3, "Q4_1", 32, 20, of_q4_1 }, { 8, "Q8_0", 32, 34, of_q8_0 },
        { 14, "Q6_K", 256, 210, of_q6_k },
    };
    enum { ROWS = 3, BLOCKS = 2 };
    for (size_t t = 0; t < COUNT(types); t++) {
        unsigned char data[ROWS * BLOCKS * 256], *copy;
        float row[BLOCKS * 256];
        struct fake_gguf g;
        struct ha_gguf *file;
        const size_t block = types[t].bytes, columns = BLOCKS * types[t].elements;
        for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)ha_rng_bits(6, t, i);
        fake_gguf_begin(&g, 2, 0);
        fake_gguf_tensor(&g, "before", 0, 3, 0, NULL, 12);
        fake_gguf_tensor(&g, "it", ROWS, columns, types[t].id, data, ROWS * BLOCKS * block);
        fake_gguf_end(&g);
        assert_int_equal(parse(&file, g.bytes, g.count, &copy), HA_OK);
        const struct ha_gguf_tensor *it = ha_gguf_find(file, "it");
        assert_true(it->dims == 2 && it->dim[0] == columns && it->dim[1] == ROWS && it->dim[2] == 1);
        for (size_t r = 0; r < ROWS; r++) {
            ha_gguf_row(it, r, row);
            for (size_t i = 0; i < columns; i++) {
                const unsigned char *of = data + (r * BLOCKS + i / types[t].elements) * block;
                const double want = types[t].of(of, i % types[t].elements), got = (double)row[i];
                if (isnan(want) ? !isnan(got)
                                : want != got && !(fabs(got - want) <= 0x1p-22 * largest(types[t].of, of)))
                    fail_msg("%s, row %zu, column %zu: %g, want %g", types[t].name, r, i, got, want);
            }
        }
        ha_gguf_close(file);
        free(copy);
        free(g.bytes);
    }
}

/* ---- hostile files ----------------------------------------------------------------------------------------------- */

TEST(what_is_no_file_of_the_format_is_refused_with_its_cause)
{
    struct fake_gguf g;
    fake_gguf_begin(&g, 0, 0);
    g.bytes[0] = 'g';
    refused(&g, "no GGUF file");
    fake_gguf_begin(&g, 0, 0);
    g.bytes[4] = 1;
    refused(&g, "GGUF version 1; 2 and 3");
    fake_gguf_begin(&g, 0, UINT64_MAX);
    refused(&g, "truncated");
    fake_gguf_begin(&g, UINT64_MAX / 2, 0);
    refused(&g, "truncated");
    fake_gguf_begin(&g, 0, 2);
    fake_gguf_u32(&g, "twice", 1);
    fake_gguf_u32(&g, "twice", 2);
    refused(&g, "key 'twice' is there twice");
    fake_gguf_begin(&g, 1, 0);
    fake_gguf_tensor(&g, "t", 1, 33, 2, NULL, 36);
    fake_gguf_end(&g);
    refused(&g, "tensor 't': 33 numbers in a row of Q4_0");
    fake_gguf_begin(&g, 1, 0);
    fake_gguf_tensor(&g, "t", 1, 32, 7, NULL, 64);
    fake_gguf_end(&g);
    refused(&g, "type 7; F32, F16");
    fake_gguf_begin(&g, 1, 0);
    fake_gguf_tensor(&g, "t", 4, 32, 0, NULL, 64);
    fake_gguf_end(&g);
    refused(&g, "tensor 't': its data ends behind the end of the file");
    fake_gguf_begin(&g, 1, 0);
    fake_gguf_tensor(&g, "t", SIZE_MAX / 2, 32, 0, NULL, 64);
    fake_gguf_end(&g);
    refused(&g, "or no or too many numbers");
}

/* Wherever it is cut, and whatever byte of its header is another, nothing is read that is not there. */
TEST(a_damaged_file_is_refused_or_is_another)
{
    struct fake_gguf g;
    fake_model(&g, &(struct fake_model){ .bias = true, .type = 2 });
    for (size_t cut = 0; cut < g.count; cut += cut < 600 ? 1 : 997) {
        struct ha_gguf *file;
        unsigned char *copy;
        assert_int_equal(parse(&file, g.bytes, cut, &copy), HA_ERROR);
        free(copy);
    }
    for (size_t i = 0; i < (HA_SANITIZED ? 2000 : 20000); i++) {
        struct ha_gguf *file;
        unsigned char *copy;
        const size_t at = (size_t)ha_rng_below(7, 1, i, 12000);
        const unsigned char before = g.bytes[at];
        g.bytes[at] = (unsigned char)ha_rng_bits(7, 2, i);
        if (parse(&file, g.bytes, g.count, &copy) == HA_OK) {
            float row[1024];
            const struct ha_gguf_tensor *t = ha_gguf_find(file, "token_embd.weight");
            if (t && t->dim[0] <= COUNT(row)) ha_gguf_row(t, t->dim[1] - 1, row);
            ha_gguf_close(file);
        }
        g.bytes[at] = before;
        free(copy);
    }
    free(g.bytes);
}
