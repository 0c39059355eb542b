#include "harness/base/safetensors.h"
#include "harness/base/test_folder.h"

#include <sys/stat.h>

static struct ha_why why;

/* Length, header, then `data_bytes` bytes 0, 1, 2, ...; the block is exactly as long, so that
 * AddressSanitizer sees a read past its end. */
static unsigned char *image(const char *header, size_t data_bytes, size_t *bytes)
{
    uint64_t length = strlen(header);
    *bytes = sizeof length + (size_t)length + data_bytes;
    unsigned char *p = malloc(*bytes);
    assert_non_null(p);
    memcpy(p, &length, sizeof length);
    memcpy(p + sizeof length, header, (size_t)length);
    for (size_t i = 0; i < data_bytes; i++) p[sizeof length + (size_t)length + i] = (unsigned char)i;
    return p;
}

static void expect_reason(const char *reason)
{
    assert_contains(why.text, reason);
    assert_null(strchr(why.text, '\n'));
}

static void expect_refused(const void *data, size_t bytes, const char *reason)
{
    struct ha_safetensors *f;
    *why.text = 0;
    assert_int_equal(ha_safetensors_parse(&f, "x.safetensors", data, bytes, &why), HA_ERROR);
    assert_null(f);
    assert_ptr_equal(strstr(why.text, "x.safetensors: "), why.text);
    expect_reason(reason);
}

#define T(name, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

TEST(test_hostile_headers)
{
    static const struct {
        const char *header;
        size_t data;
        const char *reason;
    } bad[] = {
        { "", 0, "not JSON" },
        { "{", 0, "not JSON" },
        { "{} x", 0, "not JSON" },
        { "{\"a\":1,\"a\":2}", 0, "not JSON" },
        { "{\"\xff\":1}", 0, "not JSON" },
        { "{\"a\\u0000b\":1}", 0, "not JSON" },
        { "[]", 0, "not a JSON object" },
        { "{\"a\":[]}", 0, "tensor 'a' is not described" },
        { "{\"a\\nb\":[]}", 0, "tensor 'a?b' is not described" },
        { "{\"a\":{}}", 0, "'a': dtype is missing" },
        { "{\"a\":{\"dtype\":4,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "dtype is missing" },
        { "{\"a\":{\"dtype\":\"F33\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "unknown dtype 'F33'" },
        { "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape is missing" },
        { "{" T("a", "4", "0", "4") "}", 4, "shape is missing" },
        { "{" T("a", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "at most 8" },
        { "{" T("a", "[-1]", "0", "4") "}", 4, "shape[0] is not" },
        { "{" T("a", "[1,1.0]", "0", "4") "}", 4, "shape[1] is not" },
        { "{" T("a", "[18446744073709551616]", "0", "4") "}", 4, "not JSON" },
        { "{" T("a", "[4611686018427387904]", "0", "0") "}", 4, "more than 2^64" },
        { "{" T("a", "[4294967296,4294967296]", "0", "0") "}", 4, "more than 2^64" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, "data_offsets is missing" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0]}}", 4, "data_offsets is missing" },
        { "{" T("a", "[1]", "-4", "0") "}", 4, "two integers >= 0" },
        { "{" T("a", "[1]", "0", "4.0") "}", 4, "two integers >= 0" },
        { "{" T("a", "[1]", "4", "0") "}", 4, "backwards" },
        { "{" T("a", "[2]", "0", "8") "}", 4, "past the end of the data (4 bytes)" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]}}", 4, "past the end of the data (4 bytes)" },
        { "{" T("a", "[1]", "9223372036854775803", "9223372036854775807") "}", 4, "past the end" },
        { "{" T("a", "[2]", "0", "4") "}", 4, "need 8 bytes, data_offsets hold 4" },
        { "{" T("a", "[1]", "0", "8") "}", 8, "need 4 bytes, data_offsets hold 8" },
        { "{" T("a", "[1]", "0", "4") "," T("b", "[1]", "0", "4") "}", 4, "'a' and 'b' overlap" },
        { "{" T("a", "[2]", "0", "8") "," T("b", "[2]", "4", "12") "}", 12, "'a' and 'b' overlap" },
        { "{" T("a", "[3]", "0", "12") "," T("b", "[1]", "4", "8") "}", 12, "'a' and 'b' overlap" },
        { "{" T("a", "[1]", "0", "4") "," T("b", "[1]", "8", "12") "}", 12, "4 bytes before tensor 'b'" },
        { "{" T("a", "[1]", "4", "8") "}", 8, "4 bytes before tensor 'a'" },
        { "{" T("a", "[1]", "0", "4") "}", 5, "1 bytes at the end" },
        { "{}", 1, "1 bytes at the end" },
        { "{\"__metadata__\":[]}", 0, "__metadata__ is not" },
        { "{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ 'a' is not a string" },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        size_t bytes;
        unsigned char *p = image(bad[i].header, bad[i].data, &bytes);
        expect_refused(p, bytes, bad[i].reason);
        free(p);
    }
}

TEST(test_deep_nesting_is_refused)
{
    enum { DEPTH = 100000 };
    char *header = malloc(DEPTH + 1);
    assert_non_null(header);
    memset(header, '[', DEPTH);
    header[DEPTH] = '\0';
    size_t bytes;
    unsigned char *p = image(header, 0, &bytes);
    expect_refused(p, bytes, "not JSON");
    free(p);
    free(header);
}

TEST(test_lengths)
{
    const unsigned char seven[7] = { 0 };
    expect_refused(seven, 0, "empty file");
    expect_refused(seven, 7, "truncated: 7 bytes");
    size_t bytes;
    unsigned char *p = image("{}", 0, &bytes);
    const struct {
        uint64_t length;
        const char *reason;
    } bad[] = {
        { 0, "not JSON" },
        { 3, "truncated: the header has 3 bytes" },
        { (uint64_t)100 << 20, "truncated" },
        { ((uint64_t)100 << 20) + 1, "over the limit" },
        { UINT64_MAX, "over the limit" },
        { UINT64_MAX - 7, "over the limit" },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        memcpy(p, &bad[i].length, sizeof bad[i].length);
        expect_refused(p, bytes, bad[i].reason);
    }
    free(p);
}

/* Every truncation of a good file is refused. */
TEST(test_truncations)
{
    size_t bytes;
    unsigned char *p = image("{" T("a", "[2,3]", "0", "24") "}  ", 24, &bytes);
    struct ha_safetensors *f;
    assert_int_equal(ha_safetensors_parse(&f, "x.safetensors", p, bytes, &why), HA_OK);
    ha_safetensors_close(f);
    for (size_t n = 0; n < bytes; n++) {
        unsigned char *cut = malloc(n + 1);
        assert_non_null(cut);
        memcpy(cut, p, n);
        expect_refused(cut, n, "x.safetensors: ");
        free(cut);
    }
    free(p);
}

TEST(test_good_header)
{
    size_t bytes;
    unsigned char *p = image("{" T("later", "[2,3]", "4", "28") "," T("scalar", "[]", "0", "4") "," T(
                                 "none", "[0,7]", "28", "28") ",\"bytes\":{\"dtype\":\"U8\",\"shape\":[3],\"data_"
                                                              "offsets\":[28,31]},\"__metadata__\":{\"k\":\"v\"}}   ",
                             31, &bytes);
    struct ha_safetensors *f;
    if (ha_safetensors_parse(&f, "x", p, bytes, &why) != HA_OK) fail_msg("%s", why.text);
    assert_int_equal(ha_safetensors_count(f), 4);
    static const char *const order[] = { "scalar", "later", "none", "bytes" };
    for (size_t i = 0; i < 4; i++) assert_string_equal(ha_safetensors_at(f, i)->name, order[i]);
    const struct ha_tensor *t = ha_safetensors_find(f, "later");
    assert_int_equal(t->type, HA_T_F32);
    assert_int_equal(t->dims, 2);
    assert_int_equal(t->dim[0], 2);
    assert_int_equal(t->dim[1], 3);
    assert_int_equal(t->bytes, 24);
    assert_int_equal(*(const unsigned char *)t->data, 4);
    assert_int_equal(*(const unsigned char *)ha_safetensors_find(f, "bytes")->data, 28);
    assert_int_equal(ha_safetensors_find(f, "scalar")->dims, 0);
    assert_null(ha_safetensors_find(f, "absent"));
    assert_null(ha_safetensors_find(f, "__metadata__"));
    assert_string_equal(ha_safetensors_meta(f, "k"), "v");
    assert_null(ha_safetensors_meta(f, "absent"));
    ha_safetensors_close(f);
    free(p);

    p = image("{}", 0, &bytes);
    assert_int_equal(ha_safetensors_parse(&f, "x", p, bytes, &why), HA_OK);
    assert_int_equal(ha_safetensors_count(f), 0);
    assert_null(ha_safetensors_meta(f, "k"));
    ha_safetensors_close(f);
    free(p);
}

/* ---- files ---------------------------------------------------------------------------- */

static const char name[] = "t.safetensors";

static void expect_cannot_open(const char *path, const char *reason)
{
    struct ha_safetensors *f;
    *why.text = 0;
    assert_int_equal(ha_safetensors_open(&f, path, &why), HA_ERROR);
    assert_null(f);
    expect_reason(reason);
}

TEST(test_not_a_file)
{
    expect_cannot_open("/no/such/file", "/no/such/file: cannot open: No such file");
    expect_cannot_open(test_folder, "is a directory");
    expect_cannot_open("/dev/null", "not a regular file");
    test_write(name, "", 0);
    expect_cannot_open(test_path(name), "empty file");
    test_write(name, "not of that format", 18);
    expect_cannot_open(test_path(name), "not a safetensors file");
    test_write(name, "version https://git-lfs.github.com/spec/v1\n", 43);
    expect_cannot_open(test_path(name), "a pointer of Git LFS in place of the file: git lfs pull fetches it");
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r"); /* a file that was refused is not left mapped */
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) assert_null(strstr(line, test_path(name)));
    fclose(maps);
    char longer[3000];
    memset(longer, 'x', sizeof longer - 1);
    strcpy(longer + sizeof longer - 8, "end.bin");
    expect_cannot_open(longer, "xxend.bin: cannot open: File name too long");
    snprintf(longer, sizeof longer, "/no%0290d.bin", 0); /* a usual path is whole */
    expect_cannot_open(longer, longer);
}

TEST(test_round_trip)
{
    static const float a[6] = { 1, -2, 3.5f, 0, 1e-40f, -0.0f };
    static const uint16_t b[5] = { 1, 2, 3, 0x7c00, 0xffff };
    static const struct ha_tensor out[] = {
        { "layers.0.a", HA_T_F32, 2, { 2, 3 }, a, sizeof a },
        { "h\xc3\xa9\"\\", HA_T_F16, 1, { 5 }, b, sizeof b },
        { "empty", HA_T_BF16, 2, { 4, 0 }, NULL, 0 },
        { "one", HA_T_U8, 0, { 0 }, b, 1 },
    };
    static const char *const meta[] = { "format", "x", "text", "two\nlines", NULL };
    /* header lengths of every remainder: the data begins at a multiple of 64 bytes */
    for (size_t pad = 0; pad < 66; pad++) {
        char filler[80] = "";
        memset(filler, 'p', pad);
        const char *const padded[] = { "format", "x", "text", meta[3], "filler", filler, NULL };
        if (ha_safetensors_write(test_path(name), out, 4, padded, &why) != HA_OK) fail_msg("%s", why.text);
        struct stat st;
        assert_int_equal(stat(test_path(name), &st), 0);
        assert_int_equal((size_t)st.st_size % 64, (sizeof a + sizeof b + 1) % 64);
        struct ha_safetensors *f;
        if (ha_safetensors_open(&f, test_path(name), &why) != HA_OK) fail_msg("%s", why.text);
        assert_int_equal(ha_safetensors_count(f), 4);
        for (size_t i = 0; i < 4; i++) {
            const struct ha_tensor *t = ha_safetensors_find(f, out[i].name);
            assert_non_null(t);
            assert_int_equal(t->type, out[i].type);
            assert_int_equal(t->dims, out[i].dims);
            assert_memory_equal(t->dim, out[i].dim, sizeof t->dim);
            assert_int_equal(t->bytes, out[i].bytes);
            if (t->bytes) assert_memory_equal(t->data, out[i].data, t->bytes);
        }
        assert_int_equal((uintptr_t)ha_safetensors_find(f, "layers.0.a")->data % 64, 0);
        assert_string_equal(ha_safetensors_meta(f, "text"), "two\nlines");
        assert_string_equal(ha_safetensors_meta(f, "filler"), filler);
        ha_safetensors_close(f);
    }
}

static void expect_not_written(const char *where, const struct ha_tensor *t, size_t count, const char *const *meta,
                               const char *reason)
{
    *why.text = 0;
    assert_int_equal(ha_safetensors_write(where, t, count, meta, &why), HA_ERROR);
    expect_reason(reason);
}

TEST(test_write_errors)
{
    static const float a[1] = { 1 };
    const struct ha_tensor good[] = { { "a", HA_T_F32, 1, { 1 }, a, 4 }, { "a", HA_T_F32, 1, { 1 }, a, 4 } };
    expect_not_written(test_path(name), good, 2, NULL, "tensor 'a': the name is taken");
    const struct ha_tensor bad[] = {
        { "__metadata__", HA_T_F32, 1, { 1 }, a, 4 },
        { "a", HA_T_F32, 1, { 2 }, a, 4 },
        { "a", HA_T_F32, 2, { SIZE_MAX / 2, 8 }, a, 4 },
        { "a", HA_T_OTHER, 1, { 1 }, a, 4 },
        { "\xff", HA_T_F32, 1, { 1 }, a, 4 },
    };
    static const char *const reason[] = { "taken", "does not make 4", "does not make 4", "cannot be written", "UTF-8" };
    for (size_t i = 0; i < COUNT(bad); i++) expect_not_written(test_path(name), &bad[i], 1, NULL, reason[i]);
    const char *const meta[] = { "k", "\xff", NULL };
    expect_not_written(test_path(name), good, 1, meta, "UTF-8");
    expect_not_written("/no/such/folder/t", good, 1, NULL, "cannot create: No such file");
    expect_not_written("/dev/full", good, 1, NULL, "/dev/full: cannot write: No space left");
    size_t n = (size_t)1 << 20;
    void *big = calloc(n, 1);
    const struct ha_tensor large = { "a", HA_T_U8, 1, { n }, big, n };
    expect_not_written("/dev/full", &large, 1, NULL, "/dev/full: cannot write: No space left");
    free(big);
}

TEST_MAIN { return test_all("tests", test_folder_make, test_folder_remove); }
