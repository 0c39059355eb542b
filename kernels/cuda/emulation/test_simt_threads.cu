/* Several threads of the host run kernels at the same time, each with its own results. */

#include "kernels/cuda/emulation/test_simt.h"

#include <pthread.h>

static const unsigned FULL = 0xffffffffu;

struct work {
    const unsigned *in;    /* [1024] */
    unsigned *out;         /* [blocks] */
    unsigned *total, *hot; /* hot: shared by all threads of the host */
    unsigned rounds;
};
struct work_shared {
    unsigned warp[32], sum;
};

/* the sum of the block's numbers, `rounds` times over */
__global__ void sum_kernel(HA_ARGS(struct work) a)
{
    HA_SHARED(struct work_shared, s);
    const unsigned t = threadIdx.x;
    unsigned mine = a.in[t] + blockIdx.x;
    for (unsigned round = 0; round < a.rounds; round++) {
        unsigned x = mine;
        for (int i = 16; i; i /= 2) x += __shfl_xor_sync(FULL, x, i);
        if (t % 32 == 0) s.warp[t / 32] = x;
        __syncthreads();
        if (t == 0) {
            s.sum = 0;
            for (unsigned i = 0; i < blockDim.x / 32; i++) s.sum += s.warp[i];
        }
        __syncthreads();
        mine += s.sum;
    }
    if (t == 0) {
        a.out[blockIdx.x] = mine;
        atomicAdd(a.total, mine);
        atomicAdd(a.hot, 1u);
    }
}

/* no thread waits */
__global__ void square_kernel(const struct work a)
{
    a.out[threadIdx.x] = a.in[threadIdx.x] * a.in[threadIdx.x];
    atomicAdd(a.hot, 1u);
}

enum { HOSTS = 4, LAUNCHES = 10, BLOCKS = 3 };
static unsigned hot;

static void *host(void *arg)
{
    const unsigned id = unsigned(reinterpret_cast<uintptr_t>(arg)), threads = 32u << id;
    unsigned in[1024], out[1024], errors = 0;
    for (unsigned launch = 0; launch < LAUNCHES; launch++) {
        unsigned total = 0, want_total = 0;
        for (unsigned i = 0; i < 1024; i++) in[i] = i * (id + 3) + launch;
        const struct work a = { in, out, &total, &hot, launch };
        errors += ha_launch(sum_kernel, dim3(BLOCKS), dim3(threads), NULL, a) != cudaSuccess;
        for (unsigned block = 0; block < BLOCKS; block++) {
            unsigned sum = 0, first = in[0] + block;
            for (unsigned i = 0; i < threads; i++) sum += in[i] + block;
            for (unsigned round = 0; round < launch; round++) {
                first += sum;
                sum += threads * sum;
            }
            errors += out[block] != first;
            want_total += first;
        }
        errors += total != want_total;
        errors += ha_launch(square_kernel, dim3(1), dim3(threads), NULL, a) != cudaSuccess;
        for (unsigned i = 0; i < threads; i++) errors += out[i] != in[i] * in[i];
    }
    return reinterpret_cast<void *>(uintptr_t(errors));
}

static void hosts_at_once(void **)
{
    FOR_EACH_ORDER
    {
        hot = 0;
        unsigned want_hot = 0;
        pthread_t threads[HOSTS];
        for (uintptr_t i = 0; i < HOSTS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, host, reinterpret_cast<void *>(i)), 0);
            want_hot += LAUNCHES * (BLOCKS + (32u << i));
        }
        for (pthread_t thread : threads) {
            void *errors;
            assert_int_equal(pthread_join(thread, &errors), 0);
            assert_null(errors);
        }
        assert_int_equal(hot, want_hot);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(hosts_at_once) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
