/* What goes wrong on machines: no driver, no GPU, calls that fail, memory that runs out, a GPU that is lost. Each is
 * said with the operation, the call, the code and its text; nothing hangs, nothing leaks, and the next open works. */

#include "kernels/cuda/emulation/runtime.h"
#include "kernels/host/test_support.h"

#include "harness/base/clock.h"

enum { FLOATS = 64 };

/* A device with something of everything. */
struct fixture {
    struct ha_device *dev;
    struct ha_stream *stream;
    struct ha_event *event;
    struct ha_graph *graph;
    float *device, *pinned;
    uint32_t *flag;
    int calls;
};

static void call(void *arg) { ++*(int *)arg; }

static enum ha_status blend(struct fixture *f)
{
    const struct ha_device_blend b = { f->device, f->device + FLOATS, 1, FLOATS, FLOATS, FLOATS, .b = 2 };
    return api->blend(f->stream, &b);
}

static enum ha_status attend(struct fixture *f)
{
    float *x = f->device;
    struct ha_device_seq seq = {
        .q = x, .runs = { { x, x, 32, 32, NULL, 4 } }, .runs_count = 1, .o = x + FLOATS, .lse = x + FLOATS + 8
    };
    return api->attend(
        f->stream, &(struct ha_device_attend){
                       .batch = 1, .q_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 8, .scale = 1, .seqs = &seq });
}

static void fixture_open(struct fixture *f, uint64_t wait_limit_ns)
{
    *f = (struct fixture){ .dev = device_open(wait_limit_ns) };
    f->stream = device_stream(f->dev, "main");
    f->event = device_event(f->dev);
    f->device = device_alloc(f->dev, HA_MEM_DEVICE, 2 * FLOATS * sizeof(float));
    f->pinned = device_alloc(f->dev, HA_MEM_PINNED, 2 * FLOATS * sizeof(float));
    f->flag = device_alloc(f->dev, HA_MEM_MAPPED, sizeof *f->flag);
    *f->flag = 0;
    for (size_t i = 0; i < 2 * FLOATS; i++) f->pinned[i] = (float)i;
    ok(api->graph_begin(f->stream));
    ok(api->copy(f->stream, f->device, f->pinned, 2 * FLOATS * sizeof(float), HA_H2D));
    ok(blend(f));
    ok(api->host_fn(f->stream, call, &f->calls));
    ok(attend(f));
    ok(api->graph_end(f->stream, &f->graph, &why));
}

static void assert_nothing_left(void)
{
    const struct ha_emulated_alive left = ha_emulated_alive();
    if (left.device_blocks + left.host_blocks + left.streams + left.events + left.graphs)
        fail_msg("left: %zu blocks of device memory, %zu of the host, %zu streams, %zu events, %zu graphs",
                 left.device_blocks, left.host_blocks, left.streams, left.events, left.graphs);
}

/* The device has failed with these words, or not at all; nothing of it is left. */
static void fixture_close(struct fixture *f, const char *failure)
{
    api->graph_destroy(f->graph);
    device_close(f->dev, failure);
    assert_nothing_left();
}

static int nothing_left(void **state)
{
    assert_nothing_left();
    ha_emulated_set(NULL);
    return 0;
}

/* It computes, as if nothing had been. */
static void assert_works(void)
{
    struct fixture f;
    fixture_open(&f, 0);
    ok(api->graph_launch(f.graph, f.stream));
    ok(api->copy(f.stream, f.pinned, f.device, FLOATS * sizeof(float), HA_D2H));
    if (api->stream_sync(f.stream) != HA_OK) fail_msg("%s", api->failure(f.dev));
    assert_true(f.pinned[3] == 2 * (float)(FLOATS + 3));
    assert_int_equal(f.calls, 1);
    fixture_close(&f, NULL);
}

TEST_WITH(a_machine_without_is_waived, NULL, nothing_left)
{
    static const struct {
        int devices, driver, runtime, shared_bytes;
        const char *words;
    } machine[] = {
        { -1, 13000, 13000, 232448, "no NVIDIA driver" },
        { 0, 13000, 13000, 232448, "no GPU that CUDA can use" },
        { 1, 12040, 13000, 232448, "driver here is of CUDA 12.4, and this plugin needs CUDA 13.0" },
        { 1, 12000, 12090, 232448, "driver here is of CUDA 12.0, and this plugin needs CUDA 12.1" },
        { 1, 13000, 13000, 65536, "bytes of shared memory, and this GPU gives a block 65536" },
    };
    for (size_t i = 0; i < COUNT(machine); i++) {
        struct ha_emulated_settings settings = ha_emulated_defaults();
        struct ha_device *dev = NULL;
        *why.text = 0;
        settings.devices = machine[i].devices;
        settings.driver_version = machine[i].driver;
        settings.runtime_version = machine[i].runtime;
        settings.shared_bytes = machine[i].shared_bytes;
        ha_emulated_set(&settings);
        assert_int_equal(api->open(&dev, &(struct ha_device_config){ &test_kernels, 0 }, &why), HA_WAIVED);
        if (!strstr(why.text, machine[i].words)) fail_msg("'%s' lacks '%s'", why.text, machine[i].words);
        assert_null(dev);
        assert_nothing_left();
    }
    ha_emulated_set(NULL);
    assert_works();
}

/* Before CUDA is called at all; what the user has said stands. */
TEST_WITH(streams_have_queues_of_their_own, NULL, nothing_left)
{
    static const char variable[] = "CUDA_DEVICE_MAX_CONNECTIONS";
    struct ha_emulated_settings settings = ha_emulated_defaults();
    struct ha_device *dev = NULL;
    settings.devices = -1;
    ha_emulated_set(&settings);
    unsetenv(variable);
    const uint64_t called = ha_emulated_calls("cudaDriverGetVersion");
    assert_int_equal(api->open(&dev, &(struct ha_device_config){ &test_kernels, 0 }, &why), HA_WAIVED);
    assert_int_equal(ha_emulated_calls("cudaDriverGetVersion"), called);
    assert_string_equal(getenv(variable) ? getenv(variable) : "", "32");
    ha_emulated_set(NULL);
    setenv(variable, "4", 1);
    assert_works();
    assert_string_equal(getenv(variable), "4");
    unsetenv(variable);
}

/* Every call of a good open fails once. What is asked of the driver for the report alone may. */
TEST_WITH(an_open_that_fails_leaves_nothing, NULL, nothing_left)
{
    static const char *const function[] = { "cudaGetDeviceCount",
                                            "cudaSetDevice",
                                            "cudaGetDeviceProperties",
                                            "cudaDeviceGetPCIBusId",
                                            "cudaDeviceGetAttribute",
                                            "cudaFuncGetAttributes",
                                            "cudaFuncSetAttribute",
                                            "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
                                            "cudaMalloc",
                                            "cudaMemset",
                                            "cudaLaunchKernel",
                                            "cudaMemcpy",
                                            "cudaHostAlloc" };
    for (size_t i = 0; i < COUNT(function); i++) {
        const uint64_t before = ha_emulated_calls(function[i]);
        struct ha_device *dev = device_open(0);
        const uint64_t calls = ha_emulated_calls(function[i]) - before;
        api->close(dev);
        assert_true(calls > 0);
        for (unsigned n = 1; n <= calls; n++) {
            *why.text = 0;
            assert_true(ha_emulated_fail(function[i], n, cudaErrorUnknown, HA_EMULATED_ONCE));
            const enum ha_status status = api->open(&dev, &(struct ha_device_config){ &test_kernels, 0 }, &why);
            if (status == HA_OK && !strcmp(function[i], "cudaSetDevice")) api->close(dev); /* the next one finds it */
            else {
                assert_int_equal(status, HA_ERROR);
                if (!strstr(why.text, "error 999 (cudaErrorUnknown): unknown error")
                    || strncmp(why.text, "cuda device: ", 13) != 0)
                    fail_msg("%s: '%s'", function[i], why.text);
            }
            assert_nothing_left();
            ha_emulated_set(NULL);
        }
    }
    assert_works();
}

/* ---- each operation, with the runtime's call for it failing */

#define F(name) static enum ha_status name(struct fixture *f)
F(copy_up) { return api->copy(f->stream, f->device, f->pinned, 8, HA_H2D); }
F(copy_rows) { return api->copy_2d(f->stream, f->device, 32, f->pinned, 16, 8, 2, HA_H2D); }
F(record) { return api->event_record(f->event, f->stream); }
F(wait)
{
    ok(api->event_record(f->event, f->stream));
    return api->stream_wait(f->stream, f->event);
}
F(await) { return api->event_sync(f->event); }
F(sync_stream) { return api->stream_sync(f->stream); }
F(call_host) { return api->host_fn(f->stream, call, &f->calls); }
F(read_all) { return api->read(f->stream, f->device, 64, (uint32_t *)(void *)f->device); }
F(spin) { return api->spin(f->stream, 10); }
F(move)
{
    return api->move(f->stream, &(struct ha_device_move){ .dst = f->device,
                                                          .src = f->flag,
                                                          .rows = 1,
                                                          .row_bytes = 4,
                                                          .dst_stride_bytes = 4,
                                                          .src_stride_bytes = 4 });
}
F(launch) { return api->graph_launch(f->graph, f->stream); }
F(begin) { return api->graph_begin(f->stream); }
F(pieces)
{
    void *dst[2] = { f->device, f->device + 8 };
    const void *src[2] = { f->pinned, f->pinned + 8 };
    return api->copy_pieces(f->stream, &(struct ha_device_pieces){ dst, src, (size_t[2]){ 8, 8 }, 2 }, HA_H2D);
}

TEST_WITH(a_call_that_fails_is_named, NULL, nothing_left)
{
    static const struct {
        enum ha_status (*enqueue)(struct fixture *f);
        const char *function, *words;
    } cases[] = {
        { copy_up, "cudaMemcpyAsync",
          "copy H2D on stream main: cudaMemcpyAsync: error 715 (cudaErrorIllegalInstruction): the device met" },
        { copy_rows, "cudaMemcpy2DAsync", "copy_2d H2D on stream main: cudaMemcpy2DAsync: error 715" },
        { pieces, "cudaMemcpyBatchAsync", "copy_pieces H2D on stream main: ha_cuda_copy_pieces: error 715" },
        { record, "cudaEventRecord", "event_record on stream main: cudaEventRecord: error 715" },
        { wait, "cudaStreamWaitEvent", "stream_wait on stream main: cudaStreamWaitEvent: error 715" },
        { await, "cudaEventSynchronize", "event_sync: cudaEventSynchronize: error 715" },
        { sync_stream, "cudaStreamSynchronize", "stream_sync on stream main: cudaStreamSynchronize: error 715" },
        { call_host, "cudaLaunchHostFunc", "host_fn on stream main: cudaLaunchHostFunc: error 715" },
        { blend, "cudaLaunchKernel", "blend on stream main: ha_cuda_blend: error 715" },
        { attend, "cudaLaunchKernel", "attend on stream main: ha_cuda_attend: error 715" },
        { move, "cudaLaunchKernel", "move on stream main: ha_cuda_move: error 715" },
        { read_all, "cudaLaunchKernel", "read on stream main: ha_cuda_read: error 715" },
        { spin, "cudaLaunchKernel", "spin on stream main: ha_cuda_spin: error 715" },
        { begin, "cudaStreamBeginCapture", "graph_begin on stream main: cudaStreamBeginCapture: error 715" },
        { launch, "cudaGraphLaunch", "graph_launch on stream main: cudaGraphLaunch: error 715" },
    };
    static const enum ha_emulated_fault how[] = { HA_EMULATED_ONCE, HA_EMULATED_STICKY };
    for (size_t h = 0; h < COUNT(how); h++)
        for (size_t i = 0; i < COUNT(cases); i++) {
            struct fixture f;
            fixture_open(&f, 0);
            assert_true(ha_emulated_fail(cases[i].function, 1, cudaErrorIllegalInstruction, how[h]));
            assert_int_equal(cases[i].enqueue(&f), HA_ERROR);
            assert_failure_has(f.dev, cases[i].words);
            assert_null(strchr(api->failure(f.dev), '\n'));
            /* sticky on our side, whatever it was on theirs: the first failure stays and nothing runs */
            const uint64_t begin_ns = ha_now_ns();
            for (size_t j = 0; j < COUNT(cases); j++)
                if (cases[j].enqueue != wait) assert_int_equal(cases[j].enqueue(&f), HA_ERROR);
            assert_true(ha_now_ns() - begin_ns < 5 * SECOND);
            assert_int_equal(f.calls, 0);
            fixture_close(&f, cases[i].words);
            ha_emulated_set(NULL);
        }
    assert_works();
}

/* What explains itself is no failure of the device. */
TEST_WITH(what_cannot_be_made_is_no_failure, NULL, nothing_left)
{
    struct fixture f;
    struct ha_stream *stream = NULL;
    struct ha_event *event = NULL;
    struct ha_graph *graph = NULL;
    void *ptr = NULL;
    fixture_open(&f, 0);
    assert_true(ha_emulated_fail("cudaMalloc", 1, cudaErrorMemoryAllocation, HA_EMULATED_ONCE));
    assert_int_equal(api->mem_alloc(f.dev, HA_MEM_DEVICE, 100, &ptr, &why), HA_ERROR);
    assert_string_equal(
        why.text, "cuda device: 100 bytes of device memory asked for: cudaMalloc: error 2 (cudaErrorMemoryAllocation): "
                  "out of memory");
    assert_true(ha_emulated_fail("cudaHostAlloc", 1, cudaErrorMemoryAllocation, HA_EMULATED_ONCE));
    assert_int_equal(api->mem_alloc(f.dev, HA_MEM_MAPPED, 100, &ptr, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "100 bytes of mapped memory asked for: cudaHostAlloc: error 2"));
    assert_null(ptr);
    assert_true(ha_emulated_fail("cudaStreamCreateWithFlags", 1, cudaErrorMemoryAllocation, HA_EMULATED_ONCE));
    assert_int_equal(api->stream_create(f.dev, "more", &stream, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "more: cudaStreamCreateWithFlags: error 2"));
    assert_true(ha_emulated_fail("cudaEventCreateWithFlags", 1, cudaErrorMemoryAllocation, HA_EMULATED_ONCE));
    assert_int_equal(api->event_create(f.dev, &event, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "cudaEventCreateWithFlags: error 2"));
    /* the last: the runtime that did not end it still captures, and there is no stream to go on with */
    static const char *const ends[] = { "cudaGraphInstantiateWithFlags", "cudaGraphGetNodes", "cudaStreamEndCapture" };
    for (size_t i = 0; i < COUNT(ends); i++) {
        ok(api->graph_begin(f.stream));
        ok(attend(&f));
        assert_true(ha_emulated_fail(ends[i], 1, cudaErrorNotSupported, HA_EMULATED_ONCE));
        assert_int_equal(api->graph_end(f.stream, &graph, &why), HA_ERROR);
        assert_non_null(strstr(why.text, ends[i]));
        assert_true(!stream && !event && !graph);
    }
    assert_no_failure(f.dev);
    fixture_close(&f, "stream_destroy on stream main: cudaStreamSynchronize: error 900");
}

/* An update that is refused is no failure; one that finds the device lost is. */
TEST_WITH(a_device_is_lost_in_an_update, NULL, nothing_left)
{
    struct fixture f;
    struct ha_graph *graph = NULL;
    fixture_open(&f, 0);
    ok(api->graph_begin(f.stream));
    ok(copy_up(&f));
    ok(api->graph_end(f.stream, &graph, &why));
    api->graph_destroy(graph);
    ok(api->graph_begin(f.stream));
    ok(copy_up(&f));
    assert_true(ha_emulated_fail("cudaGraphExecUpdate", 1, cudaErrorIllegalAddress, HA_EMULATED_STICKY));
    graph = NULL;
    assert_int_equal(api->graph_end(f.stream, &graph, &why), HA_ERROR);
    assert_null(graph);
    assert_non_null(strstr(why.text, "graph_end: cudaGraphInstantiateWithFlags: error 700 ("));
    fixture_close(&f, "error 700 (cudaErrorIllegalAddress)");
}

TEST_WITH(memory_runs_out, NULL, nothing_left)
{
    struct ha_emulated_settings settings = ha_emulated_defaults();
    struct fixture f;
    void *most, *more = NULL;
    settings.memory_bytes = (size_t)12 << 20; /* a workspace and a little */
    ha_emulated_set(&settings);
    fixture_open(&f, 0);
    assert_int_equal(api->mem_alloc(f.dev, HA_MEM_DEVICE, (size_t)8 << 20, &more, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "8388608 bytes of device memory asked for, "));
    assert_non_null(strstr(why.text, "free; use a smaller case"));
    /* the workspace of a graph that is gone is free for an allocation */
    api->graph_destroy(f.graph);
    ok(api->mem_alloc(f.dev, HA_MEM_DEVICE, (size_t)8 << 20, &most, &why));
    ok(copy_up(&f));
    ok(api->stream_sync(f.stream));
    /* and where there is nothing to give back, the device says what it wanted it for */
    assert_int_equal(attend(&f), HA_ERROR);
    api->mem_free(f.dev, HA_MEM_DEVICE, most);
    f.graph = NULL;
    fixture_close(&f, "a workspace of 8388608 bytes on stream main: cudaMalloc: error 2 (cudaErrorMemoryAllocation)");
}

TEST_WITH(a_lost_device_is_left_behind, NULL, nothing_left)
{
    for (int in_graph = 0; in_graph < 2; in_graph++) {
        struct fixture f;
        void *ptr;
        *why.text = 0;
        fixture_open(&f, 0);
        ha_emulated_lose(1);
        ok(api->flag_wait(f.stream, f.flag, 1)); /* all is enqueued before any of it runs */
        if (in_graph) ok(launch(&f));
        else ok(blend(&f));
        ok(call_host(&f));
        __atomic_store_n(f.flag, 1, __ATOMIC_RELEASE);
        assert_int_equal(api->stream_sync(f.stream), HA_ERROR);
        assert_int_equal(f.calls, 0);
        const uint64_t begin_ns = ha_now_ns();
        struct ha_stream *stream;
        assert_int_equal(copy_up(&f), HA_ERROR);
        assert_int_equal(launch(&f), HA_ERROR);
        assert_int_equal(api->event_sync(f.event), HA_ERROR);
        assert_int_equal(api->flag_wait(f.stream, f.flag, 1), HA_ERROR);
        assert_int_equal(api->mem_alloc(f.dev, HA_MEM_DEVICE, 8, &ptr, &why), HA_ERROR);
        assert_non_null(strstr(why.text, "error 719"));
        assert_int_equal(api->stream_create(f.dev, "more", &stream, &why), HA_ERROR);
        assert_non_null(strstr(why.text, "error 719"));
        /* which operation met it first varies */
        fixture_close(&f, ": error 719 (cudaErrorLaunchFailure): the device failed");
        assert_true(ha_now_ns() - begin_ns < 5 * SECOND);
        assert_works();
    }
}

/* A stream waits for a flag, and the device fails otherwise: nothing waits on. */
TEST_WITH(a_failure_ends_waits, NULL, nothing_left)
{
    for (int by_driver = 0; by_driver < 2; by_driver++) {
        struct ha_emulated_settings settings = ha_emulated_defaults();
        struct fixture f;
        settings.memory_operations = by_driver;
        ha_emulated_set(&settings);
        fixture_open(&f, 100 * SECOND);
        const uint64_t begin_ns = ha_now_ns();
        ok(api->flag_wait(f.stream, f.flag, 1));
        ok(call_host(&f));
        ok(api->flag_wait(f.stream, f.flag, 2)); /* the end of the one leads into the other */
        assert_int_equal(api->copy(f.stream, f.pinned, f.pinned, 8, HA_H2D), HA_ERROR);
        assert_int_equal(api->stream_sync(f.stream), HA_ERROR);
        assert_true(ha_now_ns() - begin_ns < 5 * SECOND);
        assert_int_equal(f.calls, 0);
        fixture_close(&f, "copy H2D on stream main: destination");
    }
}
