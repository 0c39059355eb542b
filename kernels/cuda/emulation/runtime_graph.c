#include "kernels/cuda/emulation/runtime_inside.h"

#include <stdlib.h>

static struct ha_runtime_graph *graph_new(void)
{
    struct ha_runtime_graph *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->tail = &g->head;
    return g;
}

static void ops_free(struct ha_runtime_op *op)
{
    for (struct ha_runtime_op *next; op; op = next) {
        next = op->next;
        ha_runtime_op_free(op);
    }
}

void ha_runtime_graph_free(struct ha_runtime_graph *g)
{
    ops_free(g->head);
    ha_runtime_mark_drop(g->last);
    free(g);
}

/* Appends copies of all operations; false: no memory, and some may be there. */
static bool ops_copy(const struct ha_runtime_op *op, struct ha_runtime_op ***tail)
{
    for (; op; op = op->next) {
        struct ha_runtime_op *copy = ha_runtime_op_new(op, op->data);
        if (!copy) return false;
        **tail = copy;
        *tail = &copy->next;
    }
    return true;
}

/* ---- capture */

void ha_runtime_capture_drop(struct ha_runtime_stream *s)
{
    if (!s->capture) return;
    ha_runtime_graph_free(s->capture->graph);
    free(s->capture);
    s->capture = NULL;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaStreamBeginCapture);
    if (!error && mode != cudaStreamCaptureModeRelaxed) error = cudaErrorNotSupported;
    if (!error && !stream) error = cudaErrorStreamCaptureUnsupported;
    struct ha_runtime_stream *s = ha_runtime_stream_find(stream, &error);
    if (s && s->capture) error = cudaErrorIllegalState;
    if (error) return ha_runtime_leave(error);
    struct ha_runtime_capture *c = calloc(1, sizeof *c);
    struct ha_runtime_graph *g = c ? graph_new() : NULL;
    if (!g) {
        free(c);
        return ha_runtime_leave(cudaErrorMemoryAllocation);
    }
    c->graph = g;
    s->capture = c;
    return ha_runtime_leave(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaStreamEndCapture);
    if (!error && !graph) error = cudaErrorInvalidValue;
    struct ha_runtime_stream *s = ha_runtime_stream_find(stream, &error);
    if (s && !s->capture) error = cudaErrorIllegalState;
    struct ha_runtime_capture *c = s ? s->capture : NULL;
    if (error) return ha_runtime_leave(error);
    *graph = NULL;
    if (c->invalid) error = cudaErrorStreamCaptureInvalidated;
    else if (!(*graph = ha_runtime_handle_make(HA_HANDLE_GRAPH, c->graph))) error = cudaErrorMemoryAllocation;
    else c->graph = NULL;
    if (c->graph) ha_runtime_graph_free(c->graph);
    free(c);
    s->capture = NULL;
    return ha_runtime_leave(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaStreamIsCapturing);
    if (!error && !status) error = cudaErrorInvalidValue;
    const struct ha_runtime_stream *s = ha_runtime_stream_find(stream, &error);
    if (s && !s->capture) *status = cudaStreamCaptureStatusNone;
    else if (s) *status = s->capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return ha_runtime_leave(error);
}

/* ---- graphs */

/* A node is its operation, as long as the graph is there. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaGraphGetNodes);
    const struct ha_runtime_graph *g = ha_runtime_handle_find(HA_HANDLE_GRAPH, graph);
    size_t n = 0;
    if (!error && (!g || !count)) error = cudaErrorInvalidValue;
    if (error) return ha_runtime_leave(error);
    for (struct ha_runtime_op *op = g->head; op; op = op->next, n++)
        if (nodes && n < *count) nodes[n] = (cudaGraphNode_t)op;
    if (!nodes || n < *count) *count = n;
    return ha_runtime_leave(cudaSuccess);
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    static const enum cudaGraphNodeType of[] = { [HA_EMULATED_HOST] = cudaGraphNodeTypeHost,
                                                 [HA_EMULATED_KERNEL] = cudaGraphNodeTypeKernel,
                                                 [HA_EMULATED_COPY] = cudaGraphNodeTypeMemcpy,
                                                 [HA_EMULATED_SET] = cudaGraphNodeTypeMemset };
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaGraphNodeGetType);
    if (!error && (!node || !type)) error = cudaErrorInvalidValue;
    if (!error) *type = of[((const struct ha_runtime_op *)node)->what];
    return ha_runtime_leave(error);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaGraphInstantiateWithFlags);
    const struct ha_runtime_graph *g = ha_runtime_handle_find(HA_HANDLE_GRAPH, graph);
    if (!error && (!exec || !g || flags)) error = cudaErrorInvalidValue;
    if (error) return ha_runtime_leave(error);
    struct ha_runtime_graph *x = graph_new();
    void *handle = x && ops_copy(g->head, &x->tail) ? ha_runtime_handle_make(HA_HANDLE_EXEC, x) : NULL;
    if (handle) *exec = handle;
    else {
        if (x) ha_runtime_graph_free(x);
        error = cudaErrorMemoryAllocation;
    }
    return ha_runtime_leave(error);
}

/* Whether one node may become the other by its parameters. */
static bool alike(const struct ha_runtime_op *a, const struct ha_runtime_op *b)
{
    struct ha_emulated_ran x = { 0 }, y = { 0 };
    if (a->what != b->what) return false;
    if (a->what != HA_EMULATED_COPY) return true;
    ha_runtime_copy_ran(a, &x);
    ha_runtime_copy_ran(b, &y);
    return x.from_host == y.from_host && x.to_host == y.to_host;
}

static cudaError_t update(struct ha_runtime_graph *x, const struct ha_runtime_graph *g)
{
    const struct ha_runtime_op *a = x->head, *b = g->head;
    for (; a && b && alike(a, b); a = a->next) b = b->next;
    if (a || b) return cudaErrorGraphExecUpdateFailure;
    if (!ha_runtime.settings.updates) return cudaSuccess;
    struct ha_runtime_op *ops = NULL, **tail = &ops;
    if (!ops_copy(g->head, &tail)) {
        ops_free(ops);
        return cudaErrorMemoryAllocation;
    }
    ops_free(x->head);
    x->head = ops;
    x->tail = tail == &ops ? &x->head : tail;
    return cudaSuccess;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *info)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaGraphExecUpdate);
    struct ha_runtime_graph *x = ha_runtime_handle_find(HA_HANDLE_EXEC, exec);
    const struct ha_runtime_graph *g = ha_runtime_handle_find(HA_HANDLE_GRAPH, graph);
    if (!error && (!x || !g || !info)) error = cudaErrorInvalidValue;
    if (error) return ha_runtime_leave(error);
    error = update(x, g);
    *info = (cudaGraphExecUpdateResultInfo){ error ? cudaGraphExecUpdateErrorTopologyChanged
                                                   : cudaGraphExecUpdateSuccess,
                                             NULL, NULL };
    return ha_runtime_leave(error);
}

/* The graph's operations between a wait for its launch before and what completes this one. */
static cudaError_t launch(struct ha_runtime_graph *x, cudaGraphExec_t exec, struct ha_runtime_stream *s)
{
    struct ha_runtime_op *ops = NULL, **tail = &ops;
    struct ha_runtime_mark *mark = ha_runtime_mark_new();
    bool good = mark;
    if (good && x->last) good = (ops = ha_runtime_mark_op(x->last, true)) != NULL;
    if (ops) tail = &ops->next;
    good = good && ops_copy(x->head, &tail) && (*tail = ha_runtime_mark_op(mark, false)) != NULL;
    if (!good) {
        ops_free(ops);
        ha_runtime_mark_drop(mark);
        return cudaErrorMemoryAllocation;
    }
    for (struct ha_runtime_op *op = ops, *next; op; op = next) {
        next = op->next;
        op->next = NULL;
        op->graph = exec;
        ha_runtime_submit(s, op); /* to a stream that does not capture: always taken */
    }
    ha_runtime_mark_drop(x->last);
    x->last = mark;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaGraphLaunch);
    struct ha_runtime_graph *x = ha_runtime_handle_find(HA_HANDLE_EXEC, exec);
    struct ha_runtime_stream *s = ha_runtime_stream_uncaptured(stream, &error);
    if (s) error = x ? launch(x, exec, s) : cudaErrorInvalidValue;
    return ha_runtime_leave(error);
}

static cudaError_t destroy(cudaError_t error, enum ha_runtime_kind kind, const void *handle)
{
    if (!ha_runtime_may_release(error)) return error;
    struct ha_runtime_graph *g = ha_runtime_handle_find(kind, handle);
    if (!g) return error ? error : cudaErrorInvalidValue;
    ha_runtime_handle_drop(handle);
    ha_runtime_graph_free(g);
    return error;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaGraphExecDestroy);
    return ha_runtime_leave(destroy(error, HA_HANDLE_EXEC, exec));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    cudaError_t error = ha_runtime_enter(HA_CALL_cudaGraphDestroy);
    return ha_runtime_leave(destroy(error, HA_HANDLE_GRAPH, graph));
}
