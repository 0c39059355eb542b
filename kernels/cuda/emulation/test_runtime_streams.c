#include "kernels/cuda/emulation/test_runtime.h"

#include <time.h>

/* Streams, events, host functions and flags. */

TEST_WITH(arguments_are_copied, fresh, spent)
{
    cudaStream_t stream = stream_new();
    struct gate gate = { 0 };
    uint32_t *word = word_new(1), other = 0;
    ok(gate_enqueue(&gate, stream));
    struct mix m = { word, 2, 3 };
    ok(ha_emulated_launch(&mix_kernel, &m, sizeof m, (dim3){ 1, 1, 1 }, (dim3){ 1, 1, 1 }, stream));
    m = (struct mix){ &other, 9, 9 };
    gate_open(&gate);
    ok(cudaStreamSynchronize(stream));
    assert_int_equal(*word, 5);
    assert_int_equal(other, 0);
}

TEST_WITH(the_default_stream_runs_too, fresh, spent)
{
    uint32_t *word = word_new(1);
    ok(mix(word, 2, 3, NULL));
    ok(cudaStreamSynchronize(NULL));
    assert_int_equal(*word, 5);
    assert_int_equal(ha_emulated_alive().streams, 0);
}

TEST_WITH(flags_are_compared_cyclically, fresh, spent)
{
    struct driver driver = driver_load();
    static const struct {
        uint32_t flag, value;
        bool holds;
    } table[] = {
        { 5, 5, true },           { 4, 5, false }, { 6, 5, true }, { 2, UINT32_MAX, true }, /* cyclic */
        { UINT32_MAX, 2, false },
    };
    uint32_t *flag = pinned_new(2 * sizeof *flag);
    cudaStream_t stream = stream_new();
    for (size_t i = 0; i < COUNT(table); i++) {
        __atomic_store_n(flag, table[i].flag, __ATOMIC_RELEASE);
        ok(driver.wait(stream, address(flag), table[i].value, CU_STREAM_WAIT_VALUE_GEQ));
        if (!table[i].holds) {
            nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
            gives(cudaErrorNotReady, cudaStreamQuery(stream));
            __atomic_store_n(flag, table[i].value, __ATOMIC_RELEASE);
        }
        ok(cudaStreamSynchronize(stream));
    }
    static uint32_t pageable;
    gives(CUDA_ERROR_INVALID_VALUE, driver.wait(stream, address(&pageable), 1, CU_STREAM_WAIT_VALUE_GEQ));
    gives(CUDA_ERROR_INVALID_VALUE, driver.write(stream, address(&pageable), 1, 0));
    gives(CUDA_ERROR_INVALID_VALUE, driver.write(stream, address(flag) + 1, 1, 0));
    gives(CUDA_ERROR_INVALID_VALUE, driver.write(stream, address(flag) + 8, 1, 0));
    gives(CUDA_ERROR_INVALID_VALUE, driver.wait(stream, address(flag), 1, 1));
    gives(CUDA_ERROR_INVALID_VALUE, driver.write(stream, address(flag), 1, 1));
    ok(cudaStreamDestroy(stream));
    gives(CUDA_ERROR_INVALID_HANDLE, driver.wait(stream, address(flag), 0, 0));
}

TEST_WITH(an_event_that_was_never_recorded_holds_nobody, fresh, spent)
{
    cudaStream_t stream = stream_new();
    cudaEvent_t event = event_new();
    ok(cudaStreamWaitEvent(stream, event, 0));
    ok(cudaStreamSynchronize(stream));
    ok(cudaEventSynchronize(event));
}

TEST_WITH(events_have_the_time, fresh, spent)
{
    cudaStream_t stream = stream_new();
    cudaEvent_t start = event_new(), end = event_new(), mute;
    struct gate gate = { 0 };
    float ms = -1;
    ok(cudaEventCreateWithFlags(&mute, cudaEventDisableTiming));
    gives(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, start, end));
    ok(cudaEventRecord(start, stream));
    ok(gate_enqueue(&gate, stream));
    ok(cudaEventRecord(end, stream));
    ok(cudaEventRecord(mute, stream));
    gate_await(&gate);
    gives(cudaErrorNotReady, cudaEventElapsedTime(&ms, start, end));
    nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    gate_open(&gate);
    ok(cudaEventSynchronize(end));
    ok(cudaEventElapsedTime(&ms, start, end));
    assert_true(ms >= 5.0f && ms < 5000.0f);
    ok(cudaEventElapsedTime(&ms, end, start));
    assert_true(ms <= -5.0f);
    ok(cudaEventSynchronize(mute));
    gives(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, start, mute));
    gives(cudaErrorInvalidValue, cudaEventElapsedTime(NULL, start, end));
}

TEST_WITH(destroyed_handles_are_known_as_such, fresh, spent)
{
    cudaStream_t stream = stream_new(), same;
    cudaEvent_t event = event_new(), other = event_new();
    ok(cudaStreamDestroy(stream));
    ok(cudaEventDestroy(event));
    same = stream_new();
    assert_ptr_not_equal(stream, same);
    gives(cudaErrorInvalidResourceHandle, cudaStreamDestroy(stream));
    gives(cudaErrorInvalidResourceHandle, cudaStreamSynchronize(stream));
    gives(cudaErrorInvalidResourceHandle, cudaStreamQuery(stream));
    gives(cudaErrorInvalidResourceHandle, cudaEventRecord(other, stream));
    gives(cudaErrorInvalidResourceHandle, mix(NULL, 0, 0, stream));
    gives(cudaErrorInvalidResourceHandle, cudaEventDestroy(event));
    gives(cudaErrorInvalidResourceHandle, cudaEventRecord(event, same));
    gives(cudaErrorInvalidResourceHandle, cudaStreamWaitEvent(same, event, 0));
    gives(cudaErrorInvalidResourceHandle, cudaEventSynchronize(event));
    gives(cudaErrorInvalidResourceHandle, cudaStreamSynchronize((cudaStream_t)(void *)other));
    gives(cudaErrorInvalidResourceHandle, cudaStreamDestroy(NULL));
}

/* as on a GPU: destroying a stream does not wait, and does not drop its work */
TEST_WITH(a_destroyed_stream_ends_its_work, fresh, spent)
{
    cudaStream_t stream = stream_new(), other = stream_new();
    cudaEvent_t event = event_new();
    struct gate gate = { 0 };
    uint32_t *word = word_new(1);
    ok(gate_enqueue(&gate, stream));
    ok(mix(word, 2, 3, stream));
    ok(cudaEventRecord(event, stream));
    ok(cudaStreamWaitEvent(other, event, 0));
    ok(cudaStreamDestroy(stream));
    gives(cudaErrorNotReady, cudaStreamQuery(other));
    gate_open(&gate);
    ok(cudaDeviceSynchronize());
    ok(cudaStreamQuery(other));
    assert_int_equal(*word, 5);
}

/* a wait for the device includes the work of streams that have been destroyed */
TEST_WITH(work_of_a_stream_that_is_gone_is_seen, fresh_sharp, spent)
{
    cudaStream_t stream = stream_new();
    uint32_t *word = word_new(1);
    ok(mix(word, 2, 3, stream));
    ok(cudaStreamDestroy(stream));
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    stream_new(); /* what has ended is cleared away */
    ok(cudaDeviceSynchronize());
    assert_int_equal(*word, 5);
}

static cudaError_t from_inside;
static void calls_back(void *arg) { from_inside = cudaStreamQuery(arg); }

TEST_WITH(host_functions_must_not_call_back, fresh, spent)
{
    cudaStream_t stream = stream_new();
    ok(cudaLaunchHostFunc(stream, calls_back, stream));
    ok(cudaStreamSynchronize(stream));
    assert_int_equal(from_inside, cudaErrorNotPermitted);
    gives(cudaErrorInvalidValue, cudaLaunchHostFunc(stream, NULL, NULL));
}

TEST_WITH(wrong_arguments_are_refused, fresh, spent)
{
    cudaStream_t stream = stream_new();
    cudaEvent_t event = event_new();
    gives(cudaErrorInvalidValue, cudaStreamCreateWithFlags(NULL, 0));
    gives(cudaErrorInvalidValue, cudaStreamCreateWithFlags(&stream, 2));
    gives(cudaErrorInvalidValue, cudaEventCreateWithFlags(NULL, 0));
    gives(cudaErrorInvalidValue, cudaEventCreateWithFlags(&event, 8));
    gives(cudaErrorInvalidValue, cudaStreamWaitEvent(stream, event, 1));
}

/* Threads that make, use and destroy things of their own at the same time. */
enum { THREADS = 4, ROUNDS = 20 };

static size_t use(uint32_t times)
{
    cudaStream_t stream;
    cudaEvent_t event;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    void *device = NULL;
    uint32_t back = 0, expected = 0;
    size_t wrong = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) || cudaEventCreateWithFlags(&event, 0)
                   || cudaMalloc(&device, sizeof back) || cudaMemsetAsync(device, 0, sizeof back, stream);
    for (uint32_t k = 0; k < times; k++) {
        wrong += mix(device, 7, k, stream) != cudaSuccess;
        expected = expected * 7 + k;
    }
    wrong += cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) || mix(device, 3, 1, stream)
             || cudaStreamEndCapture(stream, &graph) || cudaGraphInstantiateWithFlags(&exec, graph, 0)
             || cudaGraphLaunch(exec, stream) || cudaGraphLaunch(exec, stream);
    expected = 3 * (3 * expected + 1) + 1;
    wrong += cudaMemcpyAsync(&back, device, sizeof back, cudaMemcpyDeviceToHost, stream)
             || cudaEventRecord(event, stream) || back != expected;
    wrong += cudaEventSynchronize(event) || cudaGraphExecDestroy(exec) || cudaGraphDestroy(graph) || cudaFree(device)
             || cudaEventDestroy(event) || cudaStreamDestroy(stream);
    return wrong;
}

static void *user(void *arg)
{
    size_t wrong = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) wrong += use(1 + i * ((uint32_t)(uintptr_t)arg + 1) % 20);
    return (void *)(uintptr_t)wrong;
}

TEST_WITH(threads_do_not_disturb_each_other, fresh, spent)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, user, (void *)i), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}
TEST_WITH(threads_are_ordered_as_cuda_orders_them, fresh_sharp, spent) { threads_do_not_disturb_each_other(state); }
