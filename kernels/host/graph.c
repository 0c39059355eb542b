#include "kernels/host/host.h"

#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

static void kept_free(struct ha_graph *g)
{
    for (struct ha_host_kept *k = g->head, *next; k; k = next) {
        next = k->next;
        free(k->array);
        free(k);
    }
    g->head = NULL;
}

enum ha_status ha_host_graph_begin(struct ha_stream *s)
{
    if (ha_host_failed(s->device)) return HA_ERROR;
    if (s->capture) return ha_host_fail(s->device, "graph_begin on %s: begun already, and not ended", s->lane);
    struct ha_graph *g = calloc(1, sizeof *g);
    if (!g) return ha_host_fail(s->device, "graph_begin on %s: no memory for a graph", s->lane);
    g->device = s->device;
    g->tail = &g->head;
    s->capture = g;
    return HA_OK;
}

enum ha_status ha_host_graph_keep(struct ha_stream *s, const struct ha_host_op *op)
{
    struct ha_host_kept *k = calloc(1, sizeof *k);
    void *copy = k && op->array_bytes ? malloc(op->array_bytes) : NULL;
    if (!k || (op->array_bytes && !copy)) {
        free(k);
        return ha_host_fail(s->device, "%s on %s: no memory to keep it in a graph", op->verb->name, s->lane);
    }
    if (copy) memcpy(copy, op->array, op->array_bytes);
    *k = (struct ha_host_kept){ .op = *op, .array = copy };
    k->op.array = copy;
    *s->capture->tail = k;
    s->capture->tail = &k->next;
    return HA_OK;
}

void ha_host_graph_drop(struct ha_stream *s)
{
    if (!s->capture) return;
    kept_free(s->capture);
    free(s->capture);
    s->capture = NULL;
}

enum ha_status ha_host_graph_end(struct ha_stream *s, struct ha_graph **graph, struct ha_why *why)
{
    struct ha_device *dev = s->device;
    struct ha_graph *g = s->capture;
    if (!g) return ha_why(why, HA_ERROR, "graph_end on %s: there was no graph_begin", s->lane);
    if (ha_host_failed(dev)) {
        ha_host_graph_drop(s);
        return ha_why(why, HA_ERROR, "graph_end on %s: %.400s", s->lane, dev->failure);
    }
    s->capture = NULL;
    g->live = true;
    pthread_mutex_lock(&dev->lock);
    g->next = dev->graphs;
    dev->graphs = g;
    pthread_mutex_unlock(&dev->lock);
    *graph = g;
    return HA_OK;
}

void ha_host_graph_destroy(struct ha_graph *g)
{
    if (!g) return;
    if (!__atomic_exchange_n(&g->live, false, __ATOMIC_ACQ_REL)) {
        ha_host_fail(g->device, "graph_destroy: the graph was destroyed before");
        return;
    }
    kept_free(g);
}

void ha_host_graphs_free(struct ha_device *dev)
{
    for (struct ha_graph *g = dev->graphs, *next; g; g = next) {
        next = g->next;
        kept_free(g);
        free(g);
    }
}
