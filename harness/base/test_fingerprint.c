#include "harness/base/fingerprint.h"
#include "harness/base/test.h"

#include <math.h>

static uint64_t of_bytes(const void *at, size_t bytes) { return ha_fingerprint_bytes(HA_FINGERPRINT_BEGIN, at, bytes); }
static uint64_t of_floats(const float *x, size_t n) { return ha_fingerprint_floats(HA_FINGERPRINT_BEGIN, x, n); }

/* As the header defines it, word by word. */
TEST(the_words_are_mixed_as_the_header_says)
{
    static const unsigned char bytes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    static const uint64_t words[] = { 0x0807060504030201, 9, 9 }; /* the last: how many bytes */
    uint64_t h = 1;
    for (size_t i = 0; i < COUNT(words); i++) {
        h = (h ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    char text[HA_FINGERPRINT_TEXT];
    assert_true(of_bytes(bytes, sizeof bytes) == h);
    assert_int_equal(strlen(ha_fingerprint_print(h, text)), 16);
    assert_string_equal(ha_fingerprint_print(0xab, text), "00000000000000ab");
}

TEST(every_bit_counts)
{
    unsigned char bytes[37];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(17 * i);
    const uint64_t was = of_bytes(bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_true(of_bytes(bytes, sizeof bytes) != was);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_true(of_bytes(bytes, sizeof bytes) == was);
    assert_true(of_bytes("\0\0", 1) != of_bytes("\0\0", 2)); /* how many there are counts, too */
}

TEST(where_it_lies_does_not)
{
    unsigned char room[64];
    for (size_t at = 0; at < 16; at++) {
        memset(room, (int)at, sizeof room);
        memcpy(room + at, "some bytes, no whole words", 26);
        assert_true(of_bytes(room + at, 26) == of_bytes("some bytes, no whole words", 26));
    }
}

TEST(floats_are_their_bytes_and_a_nan_is_a_nan)
{
    static const uint32_t nans[] = { 0x7fc00000, 0xffc00000, 0x7fc00001, 0xff800001, 0x7fffffff };
    float x[5] = { 1, -0.0f, INFINITY, -INFINITY, 1e-40f };
    assert_true(of_floats(x, 5) == of_bytes(x, sizeof x));
    const uint64_t was = of_floats(x, 5);
    x[1] = 0;
    assert_true(of_floats(x, 5) != was); /* the sign of a zero is a bit of the result */
    x[1] = (float)NAN;
    const uint64_t nan = of_floats(x, 5);
    for (size_t i = 0; i < COUNT(nans); i++) {
        memcpy(&x[1], &nans[i], sizeof x[1]);
        assert_true(of_floats(x, 5) == nan);
    }
}
