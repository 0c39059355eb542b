/* Host functions, as the runtime calls them from a stream or a graph. */

#include "kernels/cuda/cuda.h"

#include <stdlib.h>

/* What the runtime calls with. A stream's is used again once it ran; a graph's is called at every launch. */
struct ha_cuda_call {
    struct ha_cuda_call *next, *next_spare;
    struct ha_device *device;
    void (*fn)(void *arg);
    void *arg;
    bool kept;
};

void ha_cuda_call_run(void *arg)
{
    struct ha_cuda_call *c = arg;
    struct ha_device *dev = c->device;
    if (!ha_cuda_failed(dev)) c->fn(c->arg);
    if (c->kept) return;
    pthread_mutex_lock(&dev->lock);
    c->next_spare = dev->spare_calls;
    dev->spare_calls = c;
    pthread_mutex_unlock(&dev->lock);
}

struct ha_cuda_call *ha_cuda_call_take(struct ha_stream *s, void (*fn)(void *arg), void *arg)
{
    struct ha_device *dev = s->device;
    pthread_mutex_lock(&dev->lock);
    struct ha_cuda_call *c = s->graph ? NULL : dev->spare_calls;
    if (c) dev->spare_calls = c->next_spare;
    else if ((c = calloc(1, sizeof *c))) {
        struct ha_cuda_call **list = s->graph ? &s->graph->calls : &dev->calls;
        c->next = *list;
        *list = c;
    }
    pthread_mutex_unlock(&dev->lock);
    if (!c) return NULL;
    c->device = dev;
    c->fn = fn;
    c->arg = arg;
    c->kept = s->graph != NULL;
    return c;
}

void ha_cuda_calls_free(struct ha_cuda_call *calls)
{
    for (struct ha_cuda_call *c = calls, *next; c; c = next) {
        next = c->next;
        free(c);
    }
}
