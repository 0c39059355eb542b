/* Threads, blocks, barriers, warps and shared memory of the emulation, in every order; what every kernel relies on is
 * the device suite's: shuffles, votes, atomics. */

#include "kernels/cuda/emulation/test_simt.h"

#include <pthread.h>

enum { ALL = 1024 };
static const unsigned FULL = 0xffffffffu;

/* ---- who is who */

struct places {
    unsigned *seen;  /* [blocks][threads] */
    unsigned *order; /* threads and blocks as they ran */
    unsigned *ran;
};

__global__ void __launch_bounds__(24) places_kernel(HA_ARGS(struct places) a)
{
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z, at = block * threads + thread;
    const bool inside = threadIdx.x < blockDim.x && threadIdx.y < blockDim.y && threadIdx.z < blockDim.z
                        && blockIdx.x < gridDim.x && blockIdx.y < gridDim.y && blockIdx.z < gridDim.z;
    const unsigned sizes = gridDim.x * 100 + gridDim.y * 10 + gridDim.z + blockDim.x * 100000 + blockDim.y * 10000
                           + blockDim.z * 1000;
    if (inside) atomicAdd(&a.seen[at], 1 + sizes);
    a.order[atomicAdd(a.ran, 1u)] = at;
}

enum { PLACES_BLOCKS = 3 * 2 * 5, PLACES_THREADS = 4 * 3 * 2, PLACES = PLACES_BLOCKS * PLACES_THREADS };

static void run_places(unsigned seen[PLACES], unsigned order[PLACES])
{
    unsigned ran = 0;
    memset(seen, 0, PLACES * sizeof *seen);
    const struct places a = { seen, order, &ran };
    assert_int_equal(ha_launch(places_kernel, dim3(3, 2, 5), dim3(4, 3, 2), NULL, a), cudaSuccess);
    assert_int_equal(ran, PLACES);
}

TEST(every_thread_once)
{
    static unsigned seen[PLACES], order[PLACES];
    FOR_EACH_ORDER
    {
        run_places(seen, order);
        for (unsigned i = 0; i < PLACES; i++) assert_int_equal(seen[i], 1 + 325 + 432000);
    }
}

TEST(orders)
{
    static unsigned seen[PLACES], order[PLACES], again[PLACES];
    assert_true(ha_emulated_order("forward"));
    run_places(seen, order);
    for (unsigned i = 0; i < PLACES; i++) assert_int_equal(order[i], i);
    assert_true(ha_emulated_order("backward"));
    run_places(seen, order);
    for (unsigned i = 0; i < PLACES; i++) assert_int_equal(order[i], PLACES - 1 - i);
    assert_true(ha_emulated_order("7"));
    run_places(seen, order);
    assert_true(ha_emulated_order("7"));
    run_places(seen, again);
    assert_memory_equal(order, again, sizeof order);
    assert_true(ha_emulated_order("8"));
    run_places(seen, again);
    assert_memory_not_equal(order, again, sizeof order);
    unsigned threads_moved = 0, blocks_moved = 0;
    for (unsigned i = 0; i < PLACES; i++) {
        threads_moved += order[i] % PLACES_THREADS != i % PLACES_THREADS;
        blocks_moved += order[i] / PLACES_THREADS != i / PLACES_THREADS;
    }
    assert_true(threads_moved > PLACES / 2 && blocks_moved > PLACES / 2);

    static const char *const wrong[] = { "", "forwards", "7 ", "-1", "0x7", "99999999999999999999999" };
    for (const char *text : wrong) assert_false(ha_emulated_order(text));
}

/* ---- lanes that part and meet again */

struct words {
    unsigned *out;
    unsigned n;
};

__global__ void parted_kernel(HA_ARGS(struct words) a)
{
    const unsigned lane = threadIdx.x % 32;
    unsigned x = threadIdx.x + 1;
    /* even lanes among themselves, as often as odd ones do another thing thrice */
    if (lane % 2 == 0) {
        for (unsigned i = 0; i < 3; i++) x = __shfl_sync(0x55555555u, x, int((lane + 2) % 32));
    } else {
        for (unsigned i = 0; i < 9; i++) x += unsigned(__builtin_popcount(__ballot_sync(0xaaaaaaaau, lane < i)));
    }
    /* nested: the first 16, the first 8 of them, then all */
    if (lane < 16) {
        x += __shfl_xor_sync(0xffffu, x, 8);
        if (lane < 8) x += __shfl_xor_sync(0xffu, x, 4);
    }
    a.out[threadIdx.x] = x + __shfl_xor_sync(FULL, x, 16);
    __syncwarp();
}

static unsigned parted_want(unsigned thread)
{
    unsigned x[32], y[32];
    for (unsigned lane = 0; lane < 32; lane++) {
        x[lane] = thread / 32 * 32 + lane + 1;
        if (lane % 2)
            for (unsigned i = 0; i < 9; i++) x[lane] += i / 2;
    }
    for (unsigned lane = 0; lane < 32; lane++) y[lane] = lane % 2 ? x[lane] : x[(lane + 6) % 32];
    memcpy(x, y, sizeof x);
    for (unsigned lane = 0; lane < 16; lane++) y[lane] = x[lane] + x[lane ^ 8];
    memcpy(x, y, sizeof x);
    for (unsigned lane = 0; lane < 8; lane++) y[lane] = x[lane] + x[lane ^ 4];
    const unsigned lane = thread % 32;
    return y[lane] + y[lane ^ 16];
}

TEST(parted_lanes)
{
    static unsigned out[256];
    FOR_EACH_ORDER
    {
        memset(out, 0, sizeof out);
        const struct words a = { out, 0 };
        assert_int_equal(ha_launch(parted_kernel, dim3(1), dim3(256), NULL, a), cudaSuccess);
        for (unsigned t = 0; t < 256; t++) assert_int_equal(out[t], parted_want(t));
    }
}

/* ---- barriers, with work of different length between them */

struct scan {
    const unsigned *in;
    unsigned *out; /* [blocks][1024] */
    unsigned *ran; /* blocks */
};
struct scan_shared {
    unsigned x[ALL];
};

template <bool BARRIER> __global__ void scan_kernel(HA_ARGS(struct scan) a)
{
    HA_SHARED(struct scan_shared, s);
    const unsigned t = threadIdx.x;
    s.x[t] = a.in[t] + blockIdx.x;
    for (unsigned by = 1; by < blockDim.x; by *= 2) {
        if (BARRIER) __syncthreads();
        unsigned add = 0;
        if (t >= by) add = s.x[t - by];
        /* nothing but a different way for each thread and warp */
        for (unsigned i = 0; i < t % 5; i++) add += i - i;
        for (unsigned i = 0; i < t / 32 % 3; i++) add += __shfl_sync(FULL, i, 0) - i;
        __syncthreads();
        s.x[t] += add;
    }
    a.out[blockIdx.x * ALL + t] = s.x[t];
    if (t == 0) atomicAdd(a.ran, 1u);
}

static unsigned scans; /* blocks of all of them so far */

static unsigned scan_errors(bool barrier, unsigned threads)
{
    unsigned in[ALL], out[3 * ALL];
    for (unsigned i = 0; i < threads; i++) in[i] = i * i % 101;
    memset(out, 0, sizeof out);
    const struct scan a = { in, out, &scans };
    assert_int_equal(barrier ? ha_launch(scan_kernel<true>, dim3(3), dim3(threads), NULL, a)
                             : ha_launch(scan_kernel<false>, dim3(3), dim3(threads), NULL, a),
                     cudaSuccess);
    unsigned errors = 0;
    for (unsigned block = 0; block < 3; block++)
        for (unsigned i = 0, sum = 0; i < threads; i++) {
            sum += in[i] + block;
            errors += out[block * ALL + i] != sum;
        }
    return errors;
}

TEST(barriers)
{
    FOR_EACH_ORDER
    for (unsigned threads = 32; threads <= ALL; threads *= 2) assert_int_equal(scan_errors(true, threads), 0);
}

/* several threads of the host, each with its own results */
enum { HOSTS = 4, LAUNCHES = 10 };

static void *host(void *arg)
{
    unsigned errors = 0;
    for (unsigned i = 0; i < LAUNCHES; i++) errors += scan_errors(true, 32u << reinterpret_cast<uintptr_t>(arg));
    return reinterpret_cast<void *>(uintptr_t(errors));
}

TEST(hosts_at_once)
{
    FOR_EACH_ORDER
    {
        scans = 0;
        pthread_t threads[HOSTS];
        for (uintptr_t i = 0; i < HOSTS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, host, reinterpret_cast<void *>(i)), 0);
        for (pthread_t thread : threads) {
            void *errors;
            assert_int_equal(pthread_join(thread, &errors), 0);
            assert_null(errors);
        }
        assert_int_equal(scans, HOSTS * LAUNCHES * 3);
    }
}

TEST(missing_barrier_changes_results)
{
    if (HA_TSAN) skip(); /* which ends the process: test_simt_errors.cu */
    /* each thread reads what threads before it have written: forward is the one order that hides it */
    FOR_EACH_ORDER
    if (order_ > 0) assert_true(scan_errors(false, 256) > 0);
}

/* ---- shared memory */

struct guarded {
    uint64_t words[100];
    char odd[3];
};
__global__ void shared_kernel(HA_ARGS(struct words) a)
{
    HA_SHARED(struct guarded, s);
    bool poisoned = true;
    for (unsigned i = 0; i < 100; i++) poisoned = poisoned && s.words[i] == ~uint64_t(0);
    for (unsigned i = 0; i < 3; i++) poisoned = poisoned && s.odd[i] == char(0xFF);
    __syncthreads();
    s.words[threadIdx.x] = s.odd[threadIdx.x % 3] = 0;
    if (!poisoned) atomicAdd(a.out, 1u);
}

TEST(shared_memory_is_fresh)
{
    unsigned clean = 0;
    const struct words a = { &clean, 0 };
    assert_int_equal(ha_launch(shared_kernel, dim3(10), dim3(3), NULL, a), cudaSuccess);
    assert_int_equal(clean, 0);
}

/* ---- copies to shared memory: piece i of a thread is asked for two pieces ahead of its use */

enum { COPIED = 5, STAGES = 2 };
struct copies {
    const uint4 *from;
    uint4 *to;
};
struct copied_shared {
    uint4 ring[STAGES][2048]; /* 64 KB: more than a block has unless it is dynamic */
};

template <int LATEST> __global__ void copied_kernel(HA_ARGS(struct copies) a)
{
    HA_SHARED_DYNAMIC(struct copied_shared, s);
    const unsigned t = threadIdx.x, n = blockDim.x;
    for (unsigned i = 0; i < STAGES; i++) {
        ha_copy16<false>(&s.ring[i][t], a.from + i * n + t, true);
        ha_copy_commit();
    }
    for (unsigned i = 0; i < COPIED; i++) {
        ha_copy_wait<LATEST>();
        a.to[i * n + t] = s.ring[i % STAGES][t];
        const bool more = i + STAGES < COPIED;
        ha_copy16<false>(&s.ring[i % STAGES][t], a.from + (more ? (i + STAGES) * n + t : 0), more);
        ha_copy_commit();
    }
    ha_copy_wait<0>();
    a.to[COPIED * n + t] = s.ring[COPIED % STAGES][t];
}

TEST(copies_land_when_they_are_waited_for)
{
    enum { THREADS = 64 };
    static uint4 from[COPIED * THREADS], to[(COPIED + 1) * THREADS];
    for (unsigned i = 0; i < COPIED * THREADS; i++) from[i] = make_uint4(i, i + 1, i + 2, i + 3);
    const struct copies a = { from, to };
    FOR_EACH_ORDER
    {
        memset(to, 0, sizeof to);
        assert_int_equal(
            ha_launch_dynamic(sizeof(struct copied_shared), copied_kernel<STAGES - 1>, dim3(2), dim3(THREADS), NULL, a),
            cudaSuccess);
        assert_memory_equal(to, from, sizeof from);
        assert_int_equal(to[COPIED * THREADS].w, 0); /* a copy that is not real */
        /* waits that are a group short: nothing has landed, or what was there before */
        assert_int_equal(
            ha_launch_dynamic(sizeof(struct copied_shared), copied_kernel<STAGES>, dim3(2), dim3(THREADS), NULL, a),
            cudaSuccess);
        for (unsigned i = 0; i < COPIED * THREADS; i++) assert_int_not_equal(to[i].x, from[i].x);
    }
}

/* ---- waiting for a flag */

__global__ void pause_kernel(HA_ARGS(struct words) a)
{
    if (threadIdx.x == a.n) ha_store_system(a.out, 1u);
    while (ha_load_system(a.out) == 0) ha_pause();
    atomicAdd(a.out + 1, 1u);
}

TEST(pauses)
{
    FOR_EACH_ORDER
    for (unsigned who = 0; who < 64; who += 21) {
        unsigned out[2] = {};
        const struct words a = { out, who };
        assert_int_equal(ha_launch(pause_kernel, dim3(1), dim3(64), NULL, a), cudaSuccess);
        assert_int_equal(out[1], 64);
    }
}
