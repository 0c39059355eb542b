#include "kernels/cuda/cuda.h"

#include "harness/base/why.h"

#include <stdlib.h>

struct ha_event {
    struct ha_device *device;
    cudaEvent_t cuda;
    const char *lane; /* of the stream of the latest record, or NULL */
};

enum ha_status ha_cuda_event_create(struct ha_device *dev, struct ha_event **event, struct ha_why *why)
{
    struct ha_event *e = calloc(1, sizeof *e);
    if (!e) return ha_why(why, HA_ERROR, "cuda device: no host memory for an event");
    ha_cuda_enter();
    cudaError_t error = cudaEventCreateWithFlags(&e->cuda, cudaEventDisableTiming);
    if (error != cudaSuccess) {
        free(e);
        return ha_cuda_why(why, error, "cudaEventCreateWithFlags", "event_create");
    }
    e->device = dev;
    *event = e;
    return HA_OK;
}

/* Waits that are enqueued go on. */
void ha_cuda_event_destroy(struct ha_event *e)
{
    if (!e) return;
    ha_cuda_enter();
    ha_cuda_check(e->device, cudaEventDestroy(e->cuda), "cudaEventDestroy", "event_destroy");
    free(e);
}

static enum ha_status not_in_a_graph(struct ha_stream *s, const char *operation)
{
    return ha_cuda_fail_on(s, operation,
                           "between graph_begin and graph_end, and a graph of this device holds no events");
}

enum ha_status ha_cuda_event_record(struct ha_event *e, struct ha_stream *s)
{
    if (ha_cuda_failed(e->device)) return HA_ERROR;
    if (s->graph) return not_in_a_graph(s, "event_record");
    ha_cuda_enter();
    e->lane = s->lane;
    return ha_cuda_check_on(s, cudaEventRecord(e->cuda, s->cuda), "cudaEventRecord", "event_record");
}

enum ha_status ha_cuda_stream_wait(struct ha_stream *s, struct ha_event *e)
{
    static const struct ha_cuda_span span = { .kind = HA_SPAN_WAIT, .name = "stream_wait" };
    if (ha_cuda_failed(e->device)) return HA_ERROR;
    if (s->graph) return not_in_a_graph(s, span.name);
    if (!e->lane) return HA_OK;
    __atomic_store_n(&s->behind, e->lane, __ATOMIC_RELAXED);
    HA_CUDA_ENQUEUE(s, &span, cudaStreamWaitEvent(s->cuda, e->cuda, 0));
}

enum ha_status ha_cuda_event_sync(struct ha_event *e)
{
    ha_cuda_enter();
    ha_cuda_check(e->device, cudaEventSynchronize(e->cuda), "cudaEventSynchronize", "event_sync");
    return ha_cuda_failed(e->device) ? HA_ERROR : HA_OK;
}
