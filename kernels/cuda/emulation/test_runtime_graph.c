#include "kernels/cuda/emulation/test_runtime.h"

/* Capture and graphs. */

static enum cudaStreamCaptureStatus status_of(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status;
    ok(cudaStreamIsCapturing(stream, &status));
    return status;
}

static void add_five(void *arg) { *(uint32_t *)arg += 5; }

TEST_WITH(graphs_run_when_launched, fresh, spent)
{
    cudaStream_t a = stream_new(), b = stream_new();
    uint32_t *word = word_new(1), *device = device_new(sizeof *device), *out = word_new(0), pageable = 100;
    assert_int_equal(status_of(a), cudaStreamCaptureStatusNone);
    ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    assert_int_equal(status_of(a), cudaStreamCaptureStatusActive);
    ok(mix(word, 2, 3, a));
    ok(cudaLaunchHostFunc(a, add_five, word));
    ok(cudaFree(device_new(8))); /* a relaxed capture minds nothing that is not of its stream */
    ok(cudaMemcpyAsync(device, word, sizeof *word, cudaMemcpyHostToDevice, a));
    ok(mix(device, 10, 0, a));
    ok(cudaMemcpyAsync(out, device, sizeof *word, cudaMemcpyDeviceToHost, a));
    ok(cudaMemcpyAsync(device, &pageable, sizeof *word, cudaMemcpyHostToDevice, a));
    cudaGraphExec_t exec = instantiate(a);
    ok(cudaStreamSynchronize(a));
    assert_int_equal(*word, 1); /* kept and not run */
    pageable = 200;             /* read when launched */
    ok(cudaGraphLaunch(exec, a));
    ok(cudaStreamSynchronize(a));
    assert_int_equal(*out, 100);
    ok(cudaGraphLaunch(exec, a));
    ok(cudaGraphLaunch(exec, b));
    ok(cudaDeviceSynchronize());
    assert_int_equal(*word, 2 * (2 * (10) + 8) + 8);
    assert_int_equal(*out, 10 * *word);
    ok(cudaMemcpy(out, device, sizeof *out, cudaMemcpyDeviceToHost));
    assert_int_equal(*out, 200);
    ok(cudaGraphExecDestroy(exec));
    gives(cudaErrorInvalidValue, cudaGraphExecDestroy(exec));
    gives(cudaErrorInvalidValue, cudaGraphLaunch(exec, a));
}

static struct ha_emulated_ran ran[16];
static size_t ran_count; /* atomic */

static void take(const struct ha_emulated_ran *r)
{
    const size_t at = __atomic_fetch_add(&ran_count, 1, __ATOMIC_ACQ_REL);
    if (at < COUNT(ran)) ran[at] = *r;
}

/* What a graph holds, and what of it runs on the device, with and without a graph. */
TEST_WITH(what_runs_is_told, fresh, spent)
{
    static const enum cudaGraphNodeType want[] = { cudaGraphNodeTypeKernel, cudaGraphNodeTypeHost,
                                                   cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeMemset,
                                                   cudaGraphNodeTypeMemcpy };
    cudaStream_t a = stream_new();
    uint32_t *word = word_new(1), *device = device_new(sizeof *device);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaGraphNode_t node[8];
    enum cudaGraphNodeType type;
    size_t count = 0;
    for (int captured = 0; captured < 2; captured++) {
        ran_count = 0;
        ha_emulated_tell(take);
        if (captured) ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
        ok(mix(word, 2, 3, a));
        ok(cudaLaunchHostFunc(a, add_five, word));
        ok(cudaMemcpyAsync(device, word, sizeof *word, cudaMemcpyHostToDevice, a));
        ok(cudaMemsetAsync(device, 0, 3, a));
        ok(cudaMemcpyAsync(word, device, sizeof *word, cudaMemcpyDeviceToHost, a));
        if (captured) {
            ok(cudaStreamEndCapture(a, &graph));
            ok(cudaGraphGetNodes(graph, NULL, &count));
            assert_int_equal(count, COUNT(want));
            ok(cudaGraphGetNodes(graph, node, &count));
            for (size_t i = 0; i < COUNT(want); i++) {
                ok(cudaGraphNodeGetType(node[i], &type));
                assert_int_equal(type, want[i]);
            }
            ok(cudaGraphInstantiateWithFlags(&exec, graph, 0));
            ok(cudaGraphLaunch(exec, a));
        }
        ok(cudaDeviceSynchronize());
        ha_emulated_tell(NULL);
        assert_int_equal(ran_count, 4);
        for (size_t i = 0; i < 4; i++)
            assert_true(ran[i].stream == a && ran[i].graph == exec && ran[i].begin_ns <= ran[i].end_ns
                        && (i == 0 || ran[i].begin_ns >= ran[i - 1].end_ns));
        assert_true(ran[0].what == HA_EMULATED_KERNEL && !strcmp(ran[0].kernel, "mix"));
        assert_true(ran[1].what == HA_EMULATED_COPY && ran[1].from_host && !ran[1].to_host && ran[1].bytes == 4);
        assert_true(ran[2].what == HA_EMULATED_SET && ran[2].bytes == 3);
        assert_true(ran[3].what == HA_EMULATED_COPY && !ran[3].from_host && ran[3].to_host && ran[3].bytes == 4);
    }
    ok(cudaDeviceSynchronize());
    assert_int_equal(ran_count, 4);
    gives(cudaErrorInvalidValue, cudaGraphGetNodes(NULL, NULL, &count));
    gives(cudaErrorInvalidValue, cudaGraphNodeGetType(NULL, &type));
    ok(cudaGraphExecDestroy(exec));
    ok(cudaGraphDestroy(graph));
}

/* What the stream has captured, as a graph that is not instantiated. */
static cudaGraph_t captured(cudaStream_t stream)
{
    cudaGraph_t graph;
    ok(cudaStreamEndCapture(stream, &graph));
    return graph;
}

/* An update takes all parameters, of launches to come; other nodes are refused, and nothing changes. */
TEST_WITH(graphs_are_updated, fresh, spent)
{
    cudaStream_t a = stream_new();
    struct gate gate = { 0 };
    uint32_t *word = word_new(1), *other = word_new(1), *device = device_new(sizeof *device);
    cudaGraphExecUpdateResultInfo info;
    ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    ok(mix(word, 2, 3, a));
    ok(cudaMemcpyAsync(device, word, sizeof *word, cudaMemcpyHostToDevice, a));
    cudaGraphExec_t exec = instantiate(a);
    ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    ok(mix(other, 10, 7, a));
    ok(cudaMemcpyAsync(device, other, sizeof *other, cudaMemcpyHostToDevice, a));
    cudaGraph_t graph = captured(a);
    ok(gate_enqueue(&gate, a));
    ok(cudaGraphLaunch(exec, a)); /* not affected, though it has not begun */
    ok(cudaGraphExecUpdate(exec, graph, &info));
    assert_int_equal(info.result, cudaGraphExecUpdateSuccess);
    ok(cudaGraphDestroy(graph));
    ok(cudaGraphLaunch(exec, a));
    gate_open(&gate);
    ok(cudaStreamSynchronize(a));
    assert_true(*word == 5 && *other == 17);
    for (int i = 0; i < 3; i++) { /* one node less, another kind, another direction */
        ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
        ok(mix(word, 2, 3, a));
        if (i == 1) ok(cudaMemsetAsync(device, 0, sizeof *device, a));
        if (i == 2) ok(cudaMemcpyAsync(word, device, sizeof *word, cudaMemcpyDeviceToHost, a));
        graph = captured(a);
        gives(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(exec, graph, &info));
        assert_int_equal(info.result, cudaGraphExecUpdateErrorTopologyChanged);
        ok(cudaGraphDestroy(graph));
    }
    (void)cudaGetLastError();
    ok(cudaGraphLaunch(exec, a));
    ok(cudaStreamSynchronize(a));
    assert_true(*word == 5 && *other == 177);
    gives(cudaErrorInvalidValue, cudaGraphExecUpdate(exec, graph, &info));
    gives(cudaErrorInvalidValue, cudaGraphExecUpdate(NULL, NULL, NULL));
    ok(cudaGraphExecDestroy(exec));
}

/* two launches of one graph do not run side by side, whatever their streams */
TEST_WITH(launches_of_a_graph_take_turns, fresh, spent)
{
    cudaStream_t a = stream_new(), b = stream_new();
    struct gate gate = { 0 };
    uint32_t *word = word_new(1);
    ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    ok(mix(word, 2, 3, a));
    cudaGraphExec_t exec = instantiate(a);
    ok(gate_enqueue(&gate, a));
    ok(cudaGraphLaunch(exec, a));
    ok(cudaGraphLaunch(exec, b));
    gate_await(&gate);
    gives(cudaErrorNotReady, cudaStreamQuery(b));
    ok(cudaGraphExecDestroy(exec)); /* launches that are queued go on */
    gate_open(&gate);
    ok(cudaStreamSynchronize(b));
    assert_int_equal(*word, 13);
}

static cudaEvent_t event;
static cudaGraphExec_t inner;

static cudaError_t synchronize_all(cudaStream_t stream) { return cudaDeviceSynchronize(); }
static cudaError_t record(cudaStream_t stream) { return cudaEventRecord(event, stream); }
static cudaError_t wait(cudaStream_t stream) { return cudaStreamWaitEvent(stream, event, 0); }
static cudaError_t launch(cudaStream_t stream) { return cudaGraphLaunch(inner, stream); }

/* nobody waits for a stream that captures, and what this runtime does not capture ends it */
TEST_WITH(what_a_capture_does_not_take, fresh, spent)
{
    cudaStream_t a = stream_new();
    cudaGraph_t graph;
    cudaError_t (*const calls[])(
        cudaStream_t) = { cudaStreamSynchronize, cudaStreamQuery, synchronize_all, record, wait, launch };
    event = event_new();
    ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    inner = instantiate(a);
    for (size_t i = 0; i < COUNT(calls); i++) {
        ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
        gives(cudaErrorStreamCaptureUnsupported, calls[i](a));
        assert_int_equal(status_of(a), cudaStreamCaptureStatusInvalidated);
        gives(cudaErrorStreamCaptureInvalidated, mix(NULL, 0, 0, a));
        gives(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(a, &graph));
        assert_null(graph);
        assert_int_equal(status_of(a), cudaStreamCaptureStatusNone);
    }
    /* a batch of copies is refused, and the capture goes on */
    char *device = device_new(8), *host = pinned_new(8);
    struct cudaMemcpyAttributes attributes = { .srcAccessOrder = cudaMemcpySrcAccessOrderStream };
    ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    gives(cudaErrorStreamCaptureUnsupported,
          cudaMemcpyBatchAsync((void *[]){ device }, (const void *[]){ host }, (size_t[]){ 8 }, 1, &attributes,
                               (size_t[]){ 0 }, 1, a));
    ok(cudaStreamEndCapture(a, &graph));
}

TEST_WITH(wrong_uses_are_refused, fresh, spent)
{
    cudaStream_t a = stream_new();
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    gives(cudaErrorStreamCaptureUnsupported, cudaStreamBeginCapture(NULL, cudaStreamCaptureModeRelaxed));
    gives(cudaErrorNotSupported, cudaStreamBeginCapture(a, (enum cudaStreamCaptureMode)0));
    gives(cudaErrorIllegalState, cudaStreamEndCapture(a, &graph));
    ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    gives(cudaErrorIllegalState, cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    gives(cudaErrorInvalidValue, cudaStreamEndCapture(a, NULL));
    ok(cudaStreamEndCapture(a, &graph));
    gives(cudaErrorInvalidValue, cudaGraphInstantiateWithFlags(NULL, graph, 0));
    gives(cudaErrorInvalidValue, cudaGraphInstantiateWithFlags(&exec, graph, 64));
    gives(cudaErrorInvalidValue, cudaGraphInstantiateWithFlags(&exec, NULL, 0));
    ok(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    ok(cudaGraphLaunch(exec, a)); /* of nothing */
    ok(cudaStreamSynchronize(a));
    gives(cudaErrorInvalidValue, cudaGraphLaunch(NULL, a));
    gives(cudaErrorInvalidValue, cudaGraphDestroy((cudaGraph_t)(void *)exec));
    assert_int_equal(ha_emulated_alive().graphs, 2);
    ok(cudaGraphDestroy(graph));
    gives(cudaErrorInvalidValue, cudaGraphDestroy(graph));
    ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    ok(cudaStreamDestroy(a)); /* with its capture */
}

/* memory that a graph names has to be there when it is launched */
TEST_WITH(freed_memory_is_an_illegal_address, fresh, spent)
{
    cudaStream_t a = stream_new();
    char *device = device_new(8), *host = pinned_new(8);
    ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    ok(cudaMemcpyAsync(device, host, 8, cudaMemcpyHostToDevice, a));
    cudaGraphExec_t exec = instantiate(a);
    ok(cudaFree(device));
    ok(cudaGraphLaunch(exec, a));
    gives(cudaErrorIllegalAddress, cudaStreamSynchronize(a));
    gives(cudaErrorIllegalAddress, cudaGraphLaunch(exec, a));
}
