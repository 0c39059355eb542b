#include "kernels/cuda/emulation/test_runtime.h"

#include "harness/base/clock.h"

#include <sched.h>
#include <unistd.h>

void ha_emulated_run(const struct ha_emulated_kernel *kernel, const void *args, const unsigned grid[3],
                     const unsigned block[3])
{
    kernel->run(args);
}

void mix_run(const void *args)
{
    const struct mix *m = args;
    *m->word = *m->word * m->times + m->plus;
}

const struct ha_emulated_kernel mix_kernel = { .name = "mix", .run = mix_run };

cudaError_t mix(uint32_t *word, uint32_t times, uint32_t plus, cudaStream_t stream)
{
    const struct mix m = { word, times, plus };
    return ha_emulated_launch(&mix_kernel, &m, sizeof m, (dim3){ 1, 1, 1 }, (dim3){ 1, 1, 1 }, stream);
}

static void gate_stand(void *arg)
{
    struct gate *gate = arg;
    __atomic_add_fetch(&gate->reached, 1, __ATOMIC_RELEASE);
    /* a test that has failed opens no gate */
    uint64_t limit = ha_now_ns() + 20000000000u;
    while (!__atomic_load_n(&gate->open, __ATOMIC_ACQUIRE) && ha_now_ns() < limit) sched_yield();
}

cudaError_t gate_enqueue(struct gate *gate, cudaStream_t stream)
{
    return cudaLaunchHostFunc(stream, gate_stand, gate);
}

void gate_await(struct gate *gate)
{
    while (!__atomic_load_n(&gate->reached, __ATOMIC_ACQUIRE)) sched_yield();
}

void gate_open(struct gate *gate) { __atomic_store_n(&gate->open, 1, __ATOMIC_RELEASE); }

struct driver driver_load(void)
{
    struct driver driver;
    void *library = ha_emulated_dlopen("libcuda.so.1", 2);
    assert_non_null(library);
    void *wait = ha_emulated_dlsym(library, "cuStreamWaitValue32_v2"),
         *write = ha_emulated_dlsym(library, "cuStreamWriteValue32_v2");
    assert_true(wait && write);
    memcpy(&driver.wait, &wait, sizeof wait);
    memcpy(&driver.write, &write, sizeof write);
    return driver;
}

CUdeviceptr address(const uint32_t *flag) { return (CUdeviceptr)(uintptr_t)flag; }

cudaStream_t stream_new(void)
{
    cudaStream_t stream = NULL;
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

cudaEvent_t event_new(void)
{
    cudaEvent_t event = NULL;
    ok(cudaEventCreateWithFlags(&event, cudaEventDefault));
    return event;
}

void *device_new(size_t bytes)
{
    void *ptr = NULL;
    ok(cudaMalloc(&ptr, bytes));
    return ptr;
}

void *pinned_new(size_t bytes)
{
    void *ptr = NULL;
    ok(cudaHostAlloc(&ptr, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
    return ptr;
}

uint32_t *word_new(uint32_t value)
{
    uint32_t *word = pinned_new(sizeof *word);
    *word = value;
    return word;
}

cudaGraphExec_t instantiate(cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    ok(cudaStreamEndCapture(stream, &graph));
    ok(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    ok(cudaGraphDestroy(graph));
    return exec;
}

void assert_nothing_alive(void)
{
    const struct ha_emulated_alive none = { 0 }, alive = ha_emulated_alive();
    assert_memory_equal(&alive, &none, sizeof none);
}

int fresh(void **state)
{
    alarm(300); /* a runtime that hangs is a failed test, not a stopped build */
    ha_runtime_show_lock(true);
    ha_emulated_set(NULL);
    return 0;
}

int fresh_sharp(void **state)
{
    int wrong = fresh(state);
    ha_runtime_show_lock(false);
    return wrong;
}

int spent(void **state)
{
    ha_emulated_set(NULL);
    ok(cudaDeviceReset());
    assert_nothing_alive();
    return 0;
}
