#include "kernels/cuda/cuda.h"

#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

enum ha_status ha_cuda_graph_begin(struct ha_stream *s)
{
    struct ha_device *dev = s->device;
    if (ha_cuda_failed(dev)) return HA_ERROR;
    if (s->graph) return ha_cuda_fail_on(s, "graph_begin", "begun already, and not ended");
    struct ha_graph *g = calloc(1, sizeof *g);
    if (!g) return ha_cuda_fail_on(s, "graph_begin", "no host memory for a graph");
    g->device = dev;
    g->waits.kept = true;
    ha_cuda_enter();
    /* relaxed: other threads, and the workspace of this graph, may allocate meanwhile */
    cudaError_t error = cudaStreamBeginCapture(s->cuda, cudaStreamCaptureModeRelaxed);
    if (error != cudaSuccess) {
        free(g);
        return ha_cuda_check_on(s, error, "cudaStreamBeginCapture", "graph_begin");
    }
    s->graph = g;
    return HA_OK;
}

/* ---- executables that stand spare: a graph that is captured again and again, as of a decode step, is made once --- */

static void exec_free(struct ha_device *dev, cudaGraphExec_t exec)
{
    if (exec) ha_cuda_check(dev, cudaGraphExecDestroy(exec), "cudaGraphExecDestroy", "graph_destroy");
}

/* The oldest of them makes room. */
static void spare_give(struct ha_device *dev, cudaGraphExec_t exec, uint32_t nodes)
{
    pthread_mutex_lock(&dev->lock);
    const cudaGraphExec_t oldest = dev->spare[HA_CUDA_SPARES - 1].exec;
    memmove(dev->spare + 1, dev->spare, (HA_CUDA_SPARES - 1) * sizeof *dev->spare);
    dev->spare[0] = (struct ha_cuda_spare){ exec, nodes };
    pthread_mutex_unlock(&dev->lock);
    exec_free(dev, oldest);
}

static cudaGraphExec_t spare_take(struct ha_device *dev, uint32_t nodes)
{
    cudaGraphExec_t exec = NULL;
    pthread_mutex_lock(&dev->lock);
    for (size_t i = 0; i < HA_CUDA_SPARES && !exec; i++) {
        if (!dev->spare[i].exec || dev->spare[i].nodes != nodes) continue;
        exec = dev->spare[i].exec;
        memmove(dev->spare + i, dev->spare + i + 1, (HA_CUDA_SPARES - 1 - i) * sizeof *dev->spare);
        dev->spare[HA_CUDA_SPARES - 1].exec = NULL;
    }
    pthread_mutex_unlock(&dev->lock);
    return exec;
}

/* One that stands spare, where it takes the parameters of what was captured, or a new one. What an update refuses grows
 * with CUDA's versions, and so do the errors that it says so with: whichever it is, a new one is tried. */
static cudaError_t exec_make(struct ha_graph *g, cudaGraph_t captured)
{
    const cudaGraphExec_t spare = spare_take(g->device, g->nodes);
    cudaGraphExecUpdateResultInfo info;
    if (spare && cudaGraphExecUpdate(spare, captured, &info) == cudaSuccess) {
        g->exec = spare;
        return cudaSuccess;
    }
    (void)cudaGetLastError(); /* nobody is to find it: other nodes are no mistake */
    exec_free(g->device, spare);
    return cudaGraphInstantiateWithFlags(&g->exec, captured, 0);
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

static void contents_free(struct ha_graph *g)
{
    struct ha_device *dev = g->device;
    ha_cuda_enter();
    if (g->exec) spare_give(dev, g->exec, g->nodes);
    g->exec = NULL;
    ha_cuda_workspace_give(dev, &g->rooms);
    ha_cuda_waits_end(dev, &g->waits);
    ha_cuda_calls_free(g->calls);
    g->calls = NULL;
}

/* Of what was captured, too, by whatever library. */
static cudaError_t count_nodes(cudaGraph_t captured, uint32_t *count)
{
    size_t all = 0;
    cudaError_t error = cudaGraphGetNodes(captured, NULL, &all);
    cudaGraphNode_t *node = all ? malloc(all * sizeof *node) : NULL;
    if (error == cudaSuccess && all) error = node ? cudaGraphGetNodes(captured, node, &all) : cudaErrorMemoryAllocation;
    for (size_t i = 0; i < all && error == cudaSuccess; i++) {
        enum cudaGraphNodeType type;
        error = cudaGraphNodeGetType(node[i], &type);
        *count += error == cudaSuccess
                  && (type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemcpy
                      || type == cudaGraphNodeTypeMemset);
    }
    free(node);
    return error;
}

/* The capture is over; what it gave, or NULL. */
static cudaGraph_t capture_end(struct ha_stream *s, struct ha_graph **g, cudaError_t *error)
{
    cudaGraph_t captured = NULL;
    ha_cuda_enter();
    *error = cudaStreamEndCapture(s->cuda, &captured);
    *g = s->graph;
    s->graph = NULL;
    return captured;
}

void ha_cuda_graph_drop(struct ha_stream *s)
{
    struct ha_graph *g;
    cudaError_t error;
    if (!s->graph) return;
    cudaGraph_t captured = capture_end(s, &g, &error);
    if (captured) cudaGraphDestroy(captured);
    if (error != cudaSuccess) (void)cudaGetLastError(); /* nobody wanted it */
    contents_free(g);
    free(g);
}

enum ha_status ha_cuda_graph_end(struct ha_stream *s, struct ha_graph **graph, struct ha_why *why)
{
    struct ha_device *dev = s->device;
    struct ha_graph *g;
    cudaError_t error;
    const char *call = "cudaStreamEndCapture";
    if (!s->graph) return ha_why(why, HA_ERROR, "graph_end on %s: there was no graph_begin", s->lane);
    if (ha_cuda_failed(dev)) {
        ha_cuda_graph_drop(s);
        return ha_why(why, HA_ERROR, "graph_end on %s: %.400s", s->lane, dev->failure);
    }
    cudaGraph_t captured = capture_end(s, &g, &error);
    if (error == cudaSuccess) {
        call = "cudaGraphGetNodes";
        error = count_nodes(captured, &g->nodes);
    }
    if (error == cudaSuccess) {
        call = "cudaGraphInstantiateWithFlags";
        error = exec_make(g, captured);
    }
    if (captured) cudaGraphDestroy(captured);
    if (error != cudaSuccess) {
        g->exec = NULL;
        contents_free(g);
        free(g);
        return ha_cuda_why(why, error, call, "graph_end");
    }
    __atomic_store_n(&g->live, true, __ATOMIC_RELEASE);
    pthread_mutex_lock(&dev->lock);
    g->next = dev->graphs;
    dev->graphs = g;
    pthread_mutex_unlock(&dev->lock);
    *graph = g;
    return HA_OK;
}

void ha_cuda_graph_destroy(struct ha_graph *g)
{
    if (!g) return;
    if (!__atomic_exchange_n(&g->live, false, __ATOMIC_ACQ_REL)) {
        ha_cuda_fail(g->device, "graph_destroy: the graph was destroyed before");
        return;
    }
    contents_free(g);
}

void ha_cuda_graphs_free(struct ha_device *dev)
{
    for (struct ha_graph *g = dev->graphs, *next; g; g = next) {
        next = g->next;
        contents_free(g);
        free(g);
    }
    dev->graphs = NULL;
    for (size_t i = 0; i < HA_CUDA_SPARES; i++) exec_free(dev, dev->spare[i].exec);
}
