#include "kernels/cuda/cuda.h"

#include "harness/base/why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *ha_cuda_begin(struct ha_stream *s, const struct ha_cuda_span *span)
{
    ha_cuda_enter();
    if (!s->graph) return ha_cuda_span_begin(s, span);
    s->graph->zero_copy_bytes += span->zero_copy_bytes;
    return NULL;
}

enum ha_status ha_cuda_end(struct ha_stream *s, void *ticket, cudaError_t error, const char *call,
                           const struct ha_cuda_span *span)
{
    if (ticket) ha_cuda_span_end(s, ticket);
    return ha_cuda_check_on(s, error, call, span->name);
}

/* A stream of this name that is not live any more, or a new one in the device's list. */
static struct ha_stream *stream_take(struct ha_device *dev, const char *name)
{
    size_t alike = 0;
    for (struct ha_stream *s = dev->streams; s; s = s->next) {
        if (strncmp(s->name, name, sizeof s->name - 1) != 0) continue;
        if (!s->live) return s;
        alike++;
    }
    struct ha_stream *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    snprintf(s->name, sizeof s->name, "%s", name);
    if (alike) snprintf(s->lane, sizeof s->lane, "stream %s %zu", s->name, alike + 1);
    else snprintf(s->lane, sizeof s->lane, "stream %s", s->name);
    s->device = dev;
    s->waits.stream = s;
    s->next = dev->streams;
    dev->streams = s;
    return s;
}

enum ha_status ha_cuda_stream_create(struct ha_device *dev, const char *name, struct ha_stream **stream,
                                     struct ha_why *why)
{
    cudaStream_t cuda;
    if (ha_cuda_failed(dev)) return ha_why(why, HA_ERROR, "cuda device: it has failed before: %.400s", dev->failure);
    ha_cuda_enter();
    /* non-blocking: whoever uses the default stream in this process does not order ours */
    cudaError_t error = cudaStreamCreateWithFlags(&cuda, cudaStreamNonBlocking);
    if (error != cudaSuccess) return ha_cuda_why(why, error, "cudaStreamCreateWithFlags", name);
    pthread_mutex_lock(&dev->lock);
    struct ha_stream *s = stream_take(dev, name);
    if (s) {
        s->cuda = cuda;
        s->behind = NULL;
        s->queue = 0;
        s->live = true;
    }
    pthread_mutex_unlock(&dev->lock);
    if (!s) {
        cudaStreamDestroy(cuda);
        return ha_why(why, HA_ERROR, "cuda device: no host memory for stream '%s'", name);
    }
    *stream = s;
    return HA_OK;
}

enum ha_status ha_cuda_stream_sync(struct ha_stream *s)
{
    struct ha_device *dev = s->device;
    if (s->graph) return ha_cuda_fail_on(s, "stream_sync", "between graph_begin and graph_end");
    ha_cuda_enter();
    /* after a failure too: what was enqueued before it may still use memory that the caller is about to free */
    ha_cuda_check_on(s, cudaStreamSynchronize(s->cuda), "cudaStreamSynchronize", "stream_sync");
    return ha_cuda_failed(dev) ? HA_ERROR : HA_OK;
}

void ha_cuda_stream_destroy(struct ha_stream *s)
{
    if (!s) return;
    struct ha_device *dev = s->device;
    ha_cuda_graph_drop(s);
    ha_cuda_enter();
    ha_cuda_check_on(s, cudaStreamSynchronize(s->cuda), "cudaStreamSynchronize", "stream_destroy");
    ha_cuda_waits_end(dev, &s->waits);
    ha_cuda_workspace_give(dev, &s->rooms);
    pthread_mutex_lock(&dev->lock);
    cudaStream_t cuda = s->cuda;
    s->cuda = NULL;
    s->live = false;
    pthread_mutex_unlock(&dev->lock);
    ha_cuda_check_on(s, cudaStreamDestroy(cuda), "cudaStreamDestroy", "stream_destroy");
}

void ha_cuda_streams_free(struct ha_device *dev)
{
    for (struct ha_stream *s = dev->streams, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    dev->streams = NULL;
}
