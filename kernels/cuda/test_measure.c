/* read, spin and waits by kernels. */

#include "harness/base/clock.h"
#include "harness/base/rng.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/test_stream.h"

static bool small;

static void read_at(const uint32_t *word, size_t words, unsigned multiprocessors)
{
    uint32_t *sum = test_alloc(sizeof *sum), want = *sum = 0xfffffff0u; /* it is added to */
    for (size_t i = 0; i < words; i++) want += word[i];
    test_done(ha_cuda_read(multiprocessors, test_stream, word, words * sizeof *word, sum));
    assert_int_equal(*sum, want);
    free(sum);
}

/* any offset from a 16-byte boundary, any length, on fewer blocks than there are stretches and on more */
TEST(read_sums_every_word)
{
    enum { STRETCH = 256 * 8 * 4 };
    static const size_t around[] = { 0, 1024, STRETCH, 5 * STRETCH, 9 * STRETCH, 40 * STRETCH };
    for (size_t a = 0; a < COUNT(around) - small; a++)
        for (size_t shift = 0; shift < 4; shift++)
            for (size_t more = a ? 2 : 0; more < (a ? 8 : 40); more++) {
                const size_t words = around[a] + more - (a ? 4 : 0);
                uint32_t *memory = test_alloc((shift + words) * sizeof *memory);
                for (size_t i = 0; i < words; i++) memory[shift + i] = (uint32_t)ha_rng_bits(a, shift, i);
                test_order(more);
                read_at(memory + shift, words, more % 2 ? 1 : 132);
                free(memory);
            }
}

TEST(spin_lasts)
{
    for (uint64_t ns = 0; ns < 2000000; ns = 2 * ns + 100000)
        for (int again = 0; again < 5; again++) { /* some of them on time */
            const uint64_t begin = ha_now_ns();
            test_done(ha_cuda_spin(test_stream, ns));
            assert_true(ha_now_ns() - begin >= ns);
        }
}

/* That others are, and how such a wait ends, is tested with the streams (kernels/host/test_streams.c, run with waits by
 * kernels in cuda_device_memops). */
TEST(a_flag_that_is_up_is_not_waited_for)
{
    static const uint32_t give_up,
        up[][2] = { { 7, 7 }, { 7, 6 }, { 7, 0 }, { 0x80000001u, 1 } /* no negative number */ };
    for (size_t i = 0; i < COUNT(up); i++) test_done(ha_cuda_flag_wait(test_stream, &up[i][0], up[i][1], &give_up));
}

int main(int argc, char **argv)
{
    small = argc > 1 && strcmp(argv[1], "small") == 0;
    return test_all("tests", test_stream_open, test_stream_close);
}
