/* The kernels that ceilings are measured with: read looks at every byte and at none past the end, flops does what it
 * says. */

#include "harness/base/clock.h"
#include "harness/base/fastest_read.h"
#include "kernels/test_data.h"

#include <math.h>

static void counts_every_byte(ha_read *read, unsigned char *p, size_t bytes, uint64_t want)
{
    assert_true(read(p, bytes) == want);
    /* lines of the first page, each place in a line, and the end */
    for (size_t j = 0; j < bytes; j += j < 4096 ? 65 : bytes - 4096) {
        p[j] ^= 0x10;
        assert_true(read(p, bytes) != want);
        p[j] ^= 0x10;
    }
    p[bytes - 1] ^= 0x10;
    assert_true(read(p, bytes) != want);
    p[bytes - 1] ^= 0x10;
    assert_true(read(p, 0) == 0);
}

TEST(every_byte_counts)
{
    static const size_t pages[] = { 1, 3, 8, 19 };
    for (size_t i = 0; i < COUNT(pages); i++) {
        const size_t bytes = pages[i] * 4096;
        unsigned char *p = ha_guard_alloc(bytes);
        uint64_t want = 0, word;
        for (size_t j = 0; j < bytes; j++) p[j] = (unsigned char)(j * 167 + j / 251);
        for (size_t j = 0; j < bytes; j += sizeof word) want += (memcpy(&word, p + j, sizeof word), word);
        for (size_t t = 0; t < ha_test_tables_count; t++) {
            const struct ha_kernels *k = &ha_test_tables[t];
            counts_every_byte(k->read, p, bytes, want);
            counts_every_byte(k->read_streams, p, bytes, want);
        }
        ha_guard_free(p);
    }
}

/* What was left out would have taken no time: no core does so many operations in a nanosecond. */
TEST(operations_are_done)
{
    enum { ROUNDS = 5000, TRIES = 20 };
    const double most_in_a_ns = 20000;
    for (size_t i = 0; i < 2 * ha_test_tables_count; i++) {
        const struct ha_kernels *k = &ha_test_tables[i / 2];
        double (*const flops)(size_t rounds) = i % 2 ? k->flops_bf16 : k->flops;
        const double one = flops(1), none = flops(0);
        assert_true(one >= 2 && !(none > 0));
        double least_ns = HUGE_VAL;
        for (int j = 0; j < TRIES; j++) {
            const uint64_t begin_ns = ha_now_ns();
            const double all = flops(ROUNDS);
            least_ns = fmin(least_ns, (double)(ha_now_ns() - begin_ns));
            assert_true(all >= ROUNDS * one && all <= ROUNDS * one);
        }
        assert_true(ROUNDS * one / least_ns < most_in_a_ns);
    }
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, NULL); }
