#include "kernels/cuda/emulation/test_runtime.h"

#include "harness/base/clock.h"

#include <sched.h>

void ha_emulated_run(const char *name, void (*run)(const void *args), const void *args, const unsigned grid[3],
                     const unsigned block[3])
{
    (void)name;
    (void)grid;
    (void)block;
    run(args);
}

void mix_run(const void *args)
{
    const struct mix *m = args;
    *m->word = *m->word * m->times + m->plus;
}

cudaError_t mix(uint32_t *word, uint32_t times, uint32_t plus, cudaStream_t stream)
{
    const struct mix m = { word, times, plus };
    return ha_emulated_launch("mix", mix_run, &m, sizeof m, (dim3){ 1, 1, 1 }, (dim3){ 1, 1, 1 }, stream);
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

int fresh(void **state)
{
    (void)state;
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
    (void)state;
    struct ha_emulated_settings settings = ha_emulated_defaults();
    settings.devices = HA_EMULATED_DEVICES_MAX;
    ha_emulated_set(&settings);
    for (int i = 0; i < settings.devices; i++)
        if (cudaSetDevice(i) || cudaDeviceReset()) return 1;
    struct ha_emulated_alive alive = ha_emulated_alive();
    return (int)(alive.device_blocks + alive.device_bytes + alive.host_blocks + alive.streams + alive.events
                 + alive.graphs);
}
