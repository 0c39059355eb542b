/* read, spin and flags. */

#include "harness/base/clock.h"
#include "harness/base/rng.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/test_stream.h"

#include <pthread.h>
#include <unistd.h>

static bool small;

static void read_at(const uint32_t *word, size_t words, unsigned multiprocessors)
{
    const struct ha_cuda_gpu gpu = { .multiprocessors = multiprocessors };
    uint32_t *sum = test_alloc(sizeof *sum), want = *sum = 0xfffffff0u; /* it is added to */
    for (size_t i = 0; i < words; i++) want += word[i];
    test_done(ha_cuda_read(&gpu, test_stream, word, words * sizeof *word, sum));
    assert_int_equal(*sum, want);
    free(sum);
}

/* any offset from a 16-byte boundary, any length, on fewer blocks than there are stretches and on more */
static void read_sums_every_word(void **state)
{
    (void)state;
    enum { STRETCH = 256 * 8 * 4 };
    static const size_t around[] = { 0, 1024, STRETCH, 5 * STRETCH, 9 * STRETCH, 40 * STRETCH };
    for (size_t a = 0; a < sizeof around / sizeof *around - small; a++)
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

static void spin_lasts(void **state)
{
    (void)state;
    for (uint64_t ns = 0; ns < 2000000; ns = 2 * ns + 100000)
        for (int again = 0; again < 5; again++) { /* some of them on time */
            const uint64_t begin = ha_now_ns();
            test_done(ha_cuda_spin(test_stream, ns));
            assert_true(ha_now_ns() - begin >= ns);
        }
}

static void flag_is_written(void **state)
{
    (void)state;
    uint32_t *flag = test_alloc(sizeof *flag);
    for (uint32_t value = 0; value < 3; value++) {
        test_done(ha_cuda_flag_write(test_stream, flag, value));
        assert_int_equal(*flag, value);
    }
    free(flag);
}

struct flags {
    uint32_t flag, give_up, data;
};

static void a_flag_that_is_up_is_not_waited_for(void **state)
{
    (void)state;
    struct flags f = { .flag = 7 };
    test_done(ha_cuda_flag_wait(test_stream, &f.flag, 7, &f.give_up));
    test_done(ha_cuda_flag_wait(test_stream, &f.flag, 6, &f.give_up));
    test_done(ha_cuda_flag_wait(test_stream, &f.flag, 0, &f.give_up));
    f.flag = 0x80000001u; /* not a negative number */
    test_done(ha_cuda_flag_wait(test_stream, &f.flag, 1, &f.give_up));
}

/* the host writes data, then the flag; the device waits for the flag and reads the data. Below the value it goes on
 * waiting. */
static void the_host_raises_a_flag(void **state)
{
    (void)state;
    struct flags *f = calloc(1, sizeof *f);
    uint32_t *sum = calloc(1, sizeof *sum);
    assert_true(f && sum);
    const struct ha_cuda_gpu gpu = { .multiprocessors = 1 };
    assert_int_equal(ha_cuda_flag_wait(test_stream, &f->flag, 2, &f->give_up), cudaSuccess);
    assert_int_equal(ha_cuda_read(&gpu, test_stream, &f->data, sizeof f->data, sum), cudaSuccess);
    __atomic_store_n(&f->flag, 1, __ATOMIC_RELEASE);
    usleep(5000);
    assert_int_equal(cudaStreamQuery(test_stream), cudaErrorNotReady);
    f->data = 99;
    __atomic_store_n(&f->flag, 2, __ATOMIC_RELEASE);
    test_done(cudaSuccess);
    assert_int_equal(*sum, 99);
    free(f), free(sum);
}

/* the device writes data, then the flag; the host polls the flag */
static void the_device_raises_a_flag(void **state)
{
    (void)state;
    struct flags *f = calloc(1, sizeof *f);
    assert_non_null(f);
    const uint32_t value = 5;
    const struct ha_device_move m = { .dst = &f->data, .src = &value, .rows = 1, .row_bytes = sizeof value };
    const struct ha_cuda_gpu gpu = { .multiprocessors = 1 };
    assert_int_equal(ha_cuda_move(&gpu, test_stream, &m), cudaSuccess);
    assert_int_equal(ha_cuda_flag_write(test_stream, &f->flag, 1), cudaSuccess);
    while (__atomic_load_n(&f->flag, __ATOMIC_ACQUIRE) == 0) usleep(100);
    assert_int_equal(f->data, value);
    test_done(cudaSuccess);
    free(f);
}

static void a_wait_gives_up(void **state)
{
    (void)state;
    struct flags *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(ha_cuda_flag_wait(test_stream, &f->flag, 1, &f->give_up), cudaSuccess);
    usleep(5000);
    assert_int_equal(cudaStreamQuery(test_stream), cudaErrorNotReady);
    __atomic_store_n(&f->give_up, 1, __ATOMIC_RELEASE);
    test_done(cudaSuccess);
    free(f);
}

int main(int argc, char **argv)
{
    small = argc > 1 && strcmp(argv[1], "small") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_sums_every_word),   cmocka_unit_test(spin_lasts),
        cmocka_unit_test(flag_is_written),        cmocka_unit_test(a_flag_that_is_up_is_not_waited_for),
        cmocka_unit_test(the_host_raises_a_flag), cmocka_unit_test(the_device_raises_a_flag),
        cmocka_unit_test(a_wait_gives_up),
    };
    return cmocka_run_group_tests(tests, test_stream_open, test_stream_close);
}
