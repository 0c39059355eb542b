/* What kernels must not do, each in a child that has to die of it, with a text that says what and where. */

#include "kernels/cuda/emulation/test_simt.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const unsigned FULL = 0xffffffffu;

/* how a child ends */
enum ending { ABORTS = 1, ADDRESS = 2, RACE = 4, FAULT = 8 };

/* The child runs in that order, and its stderr contains the texts (up to NULL) in their order. */
static void expect_end(unsigned endings, const char *order, void (*run)(void), const char *const texts[])
{
    static char said[1 << 16];
    int out[2];
    assert_int_equal(pipe(out), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(out[0]);
        dup2(out[1], 2);
        if (!ha_emulated_order(order)) _exit(1);
        run();
        _exit(0);
    }
    close(out[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(out[0], said + n, sizeof said - 1 - n)) > 0;) n += size_t(got);
    close(out[0]);
    said[n] = 0;
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    const bool signalled = WIFSIGNALED(status);
    unsigned ending = 0;
    if (signalled && WTERMSIG(status) == SIGABRT) ending = ABORTS;
    if (signalled && WTERMSIG(status) == SIGSEGV) ending = FAULT;
    if (!signalled && WEXITSTATUS(status) != 0 && strstr(said, "AddressSanitizer")) ending = ADDRESS;
    if (!signalled && WEXITSTATUS(status) != 0 && strstr(said, "ThreadSanitizer"))
        ending = strstr(said, "data race") ? RACE : ADDRESS;
    const char *at = ending & endings ? said : NULL;
    for (; at && *texts; texts++) {
        at = strstr(at, *texts);
        if (at) at += strlen(*texts);
        else print_message("missing: %s\n", *texts);
    }
    if (!at) fail_msg("order %s, status 0x%x, stderr:\n%s", order, unsigned(status), said);
}

#define TEXTS(...) ((const char *const[]){ __VA_ARGS__, NULL })

struct words {
    unsigned *out;
    unsigned n;
};
alignas(16) static unsigned out[256];

/* Children of 64 threads in two blocks, given KERNEL(name) { ... } of `a`. */
#define KERNEL(name)                                 \
    __global__ void name(HA_ARGS(struct words) a);   \
    static void name##_run(void)                     \
    {                                                \
        const struct words a = { out, 5 };           \
        ha_launch(name, dim3(2), dim3(64), NULL, a); \
    }                                                \
    __global__ void name(__attribute__((unused)) HA_ARGS(struct words) a)

/* The same, and a test that in each of these orders it is stopped with these texts. */
static const char *const forward[] = { "forward" }, *const any[] = { "forward", "backward", "3" };
#define STOPPED(name, orders, ...)                                                                  \
    static void name##_run(void);                                                                   \
    TEST(name##_is_stopped)                                                                         \
    {                                                                                               \
        for (const char *order : orders) expect_end(ABORTS, order, name##_run, TEXTS(__VA_ARGS__)); \
    }                                                                                               \
    KERNEL(name)

/* ---- barriers */

KERNEL(returns)
{
    if (threadIdx.x == a.n) return;
    __syncthreads();
}
TEST(thread_returns_early)
{
    expect_end(ABORTS, "forward", returns_run,
               TEXTS("kernel returns, block (0, 0, 0), thread (5, 0, 0): ", "returned, and others wait",
                     "\n  thread (0, 0, 0) and 4 more wait at __syncthreads, ", "test_simt_errors.cu:"));
    expect_end(ABORTS, "backward", returns_run,
               TEXTS("kernel returns, block (1, 0, 0), thread (5, 0, 0): ", "returned",
                     "\n  thread (6, 0, 0) and 57 more wait at __syncthreads, "));
}

STOPPED(returned, forward, "block (0, 0, 0), thread (5, 0, 0): __syncthreads, ", "returned (5)")
{
    if (threadIdx.x < a.n) return;
    __syncthreads();
}

KERNEL(two_barriers)
{
    if (threadIdx.x < a.n) __syncthreads_count(1);
    else __syncthreads();
}
TEST(two_barriers_at_once)
{
    expect_end(ABORTS, "forward", two_barriers_run,
               TEXTS("thread (5, 0, 0): __syncthreads, ", "another barrier",
                     "\n  thread (0, 0, 0) and 4 more wait at __syncthreads_count, "));
    expect_end(ABORTS, "backward", two_barriers_run,
               TEXTS("thread (4, 0, 0): __syncthreads_count, ", "another barrier",
                     "\n  thread (5, 0, 0) and 58 more wait at __syncthreads, "));
}

/* ---- warps */

STOPPED(without_itself, forward, "thread (7, 0, 0): __shfl_sync, ", "0xffffff7f is without its own lane, 7")
{
    __shfl_sync(threadIdx.x == 7 ? 0xffffff7fu : FULL, a.n, 0);
}

STOPPED(names_returned, forward, "thread (4, 0, 0): __syncwarp, ", "do not exist: 0x0000000f")
{
    if (threadIdx.x <= 3) return;
    __syncwarp();
}

STOPPED(returns_in_warp, forward, "thread (3, 0, 0): it returned, and others of its warp wait",
        "(0, 0, 0) and 2 more wait at __any_sync of lanes 0xffffffff, ")
{
    if (threadIdx.x != 3) __any_sync(FULL, 1);
}

__global__ void part_kernel(HA_ARGS(struct words) a) { a.out[threadIdx.x] = __ballot_sync(FULL, 1); }
static void part_run(void)
{
    const struct words a = { out, 0 };
    ha_launch(part_kernel, dim3(1), dim3(48), NULL, a);
}
TEST(part_of_a_warp)
{
    expect_end(ABORTS, "forward", part_run, TEXTS("thread (32, 0, 0): __ballot_sync, ", "do not exist: 0xffff0000"));
}

STOPPED(reads_outside, forward, ": __shfl_xor_sync, ", "lane 0 reads lane 1, which is not in the mask 0x55555555")
{
    if (threadIdx.x < 32 && threadIdx.x % 2 == 0) __shfl_xor_sync(0x55555555u, a.n, 1);
}

STOPPED(masks_differ, any, "every thread waits",
        "thread (32, 0, 0) and 23 more wait at __shfl_sync of lanes 0xffffffff, ",
        "thread (40, 0, 0) and 7 more wait at __shfl_sync of lanes 0xffffff00, ")
{
    const unsigned t = threadIdx.x;
    __shfl_sync(t < 40 || t >= 48 ? FULL : 0xffffff00u, a.n, int(t % 32));
}

STOPPED(operations_differ, any, "every thread waits",
        "thread (32, 0, 0) and 7 more wait at __any_sync of lanes 0xffffffff, ",
        "thread (40, 0, 0) and 23 more wait at __any_sync of lanes 0xffffffff, ")
{
    const unsigned t = threadIdx.x;
    if (t < 40) __any_sync(FULL, 1);
    else __any_sync(FULL, 0);
}

STOPPED(crossed, any, "every thread waits", "(0, 0, 0) and 31 more wait at __syncthreads, ",
        "(16, 0, 0) and 31 more wait at __syncwarp of lanes 0xffffffff, ")
{
    if (threadIdx.x % 32 < 16) __syncthreads();
    else __syncwarp();
}

/* ---- memory */

struct small_shared {
    unsigned x[64];
};
struct large_shared {
    char x[(48 << 10) + 1];
};

STOPPED(shares_twice, forward, "HA_SHARED(struct small_shared, u), ", "has ", "test_simt_errors.cu:")
{
    HA_SHARED(struct small_shared, s);
    HA_SHARED(struct small_shared, u);
    s.x[threadIdx.x] = u.x[0] = 1;
}
STOPPED(shares_much, forward, "HA_SHARED(struct large_shared, s), ", "49153 bytes: a block has 48 KB")
{
    HA_SHARED(struct large_shared, s);
    s.x[threadIdx.x] = 1;
}
STOPPED(misaligned, forward, "kernel misaligned, ", "thread (0, 0, 0): ha_load16, ", "not a multiple")
{
    a.out[0] = ha_load16(a.out + 2).x;
}
STOPPED(misaligned_at, forward, "kernel misaligned_at, ", "thread (0, 0, 0): ha_at, ", "not a multiple")
{
    a.out[0] = ha_at<const uint2>(a.out + 1).x;
}

/* copies to shared memory */
struct copied_shared {
    uint4 x[64];
};
STOPPED(copies_misaligned, forward, "kernel copies_misaligned, ", "ha_copy16, ", "not a multiple of 16")
{
    HA_SHARED(struct copied_shared, s);
    ha_copy16<false>(&s.x[0], a.out + 2, true);
}
STOPPED(copies_elsewhere, forward, "ha_copy16, ", "elsewhere than the block's shared memory")
{
    HA_SHARED(struct copied_shared, s);
    ha_copy16<false>(&s.x[64], a.out, true);
}
STOPPED(returns_meanwhile, any, "it returned, and 1 of its copies have not landed")
{
    HA_SHARED(struct copied_shared, s);
    ha_copy16<false>(&s.x[threadIdx.x], a.out, true);
    ha_copy_commit();
}
STOPPED(waits_before_it_commits, any, "it returned, and 1 of its copies have not landed")
{
    HA_SHARED(struct copied_shared, s);
    ha_copy16<false>(&s.x[threadIdx.x], a.out, true);
    ha_copy_wait<0>();
    ha_copy_commit();
}
STOPPED(launched_with_less, forward, "HA_SHARED_DYNAMIC(struct copied_shared, s), ",
        "1024 bytes, and the launch says 0")
{
    HA_SHARED_DYNAMIC(struct copied_shared, s);
    s.x[threadIdx.x].x = a.n;
}

struct short_args {
    unsigned *out;
    const unsigned *in;
    unsigned table[10];
};
static volatile unsigned one = 1; /* what the compiler cannot foresee */
__global__ void past_arguments(HA_ARGS(struct short_args) a)
{
    const unsigned *table = a.table;
    a.out[threadIdx.x] = table[10 * one + threadIdx.x];
}
__global__ void past_buffer(HA_ARGS(struct short_args) a) { a.out[threadIdx.x] = a.in[threadIdx.x * one]; }
__global__ void past_shared(HA_ARGS(struct short_args) a)
{
    HA_SHARED(struct small_shared, s);
    unsigned *x = s.x;
    x[threadIdx.x + one] = 1;
    __syncthreads();
    a.out[threadIdx.x] = x[threadIdx.x];
}
template <void (*kernel)(const struct short_args &)> static void past_run(void)
{
    unsigned *in = static_cast<unsigned *>(calloc(63, sizeof *in));
    struct short_args a = { out, in, {} };
    ha_launch(kernel, dim3(1), dim3(64), NULL, a);
    free(in);
}
TEST(out_of_bounds)
{
    if (!HA_ASAN) skip();
    expect_end(ADDRESS, "forward", past_run<past_arguments>,
               TEXTS("heap-buffer-overflow", "READ of size 4", "past_arguments"));
    expect_end(ADDRESS, "forward", past_run<past_buffer>,
               TEXTS("heap-buffer-overflow", "READ of size 4", "past_buffer"));
    expect_end(ADDRESS, "forward", past_run<past_shared>,
               TEXTS("heap-buffer-overflow", "WRITE of size 4", "past_shared"));
}

static __device__ __attribute__((noinline)) unsigned deep(unsigned n)
{
    volatile char frame[1000];
    frame[n % 1000] = 1;
    return n ? deep(n - 1) + unsigned(frame[n % 1000]) : 0;
}
KERNEL(deep_kernel) { a.out[threadIdx.x] = deep(one * 10000 + a.n); }
TEST(stack_overflow) { expect_end(FAULT | ADDRESS, "forward", deep_kernel_run, TEXTS("")); }

/* ---- races: ThreadSanitizer knows the threads of a block apart */

KERNEL(races)
{
    HA_SHARED(struct small_shared, s);
    s.x[threadIdx.x] = threadIdx.x;
    __shfl_sync(FULL, a.n, 0); /* orders nothing */
    a.out[threadIdx.x] = s.x[threadIdx.x ^ 1];
}
KERNEL(races_after_barrier)
{
    HA_SHARED(struct small_shared, s);
    s.x[threadIdx.x] = threadIdx.x;
    __syncthreads();
    const unsigned x = s.x[threadIdx.x ^ 32];
    s.x[threadIdx.x] = x + a.n;
}
/* the first thread is at the next barrier before the last one has read what it overwrote */
KERNEL(races_around_a_loop)
{
    HA_SHARED(struct small_shared, s);
    for (unsigned i = 0; i < 2; i++) {
        s.x[threadIdx.x] = i;
        __syncthreads();
        a.out[threadIdx.x] = s.x[(threadIdx.x + 1) % 64];
    }
}
KERNEL(warp_races_around_a_loop)
{
    HA_SHARED(struct small_shared, s);
    for (unsigned i = 0; i < 2; i++) {
        s.x[threadIdx.x] = i;
        __syncwarp();
        a.out[threadIdx.x] = s.x[threadIdx.x ^ 1];
    }
}
KERNEL(races_outside) { a.out[threadIdx.x / 2] = threadIdx.x; }
TEST(races_are_seen)
{
    if (!HA_TSAN) skip();
    expect_end(RACE, "forward", races_run, TEXTS("data race", "races"));
    expect_end(RACE, "backward", races_after_barrier_run, TEXTS("data race", "races_after_barrier"));
    expect_end(RACE, "forward", races_outside_run, TEXTS("data race", "races_outside"));
    for (const char *order : any) {
        expect_end(RACE, order, races_around_a_loop_run, TEXTS("data race", "races_around_a_loop"));
        expect_end(RACE, order, warp_races_around_a_loop_run, TEXTS("data race", "warp_races_around_a_loop"));
    }
}

/* ---- the environment */

KERNEL(nothing) { a.out[threadIdx.x] = 1; }
TEST(order_not_understood)
{
    /* in a process of its own, before any launch */
    static char said[4096];
    FILE *child = popen("HA_EMULATION_ORDER=sideways \"$HA_TEST_SIMT\" test_simt_errors nothing 2>&1", "r");
    assert_non_null(child);
    said[fread(said, 1, sizeof said - 1, child)] = 0;
    assert_int_not_equal(pclose(child), 0);
    assert_non_null(strstr(said, "HA_EMULATION_ORDER=sideways: "));
    child = popen("HA_EMULATION_ORDER=42 \"$HA_TEST_SIMT\" test_simt_errors nothing 2>&1", "r");
    assert_non_null(child);
    assert_int_equal(pclose(child), 0);
}

TEST_MAIN
{
    if (argc > 1) {
        nothing_run();
        return 0;
    }
    setenv("HA_TEST_SIMT", argv[0], 1);
    return test_all("tests", NULL, NULL);
}
