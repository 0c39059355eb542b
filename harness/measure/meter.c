#include "harness/measure/meter.h"

#include "harness/base/array.h"
#include "harness/base/stores.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static struct ha_device_api metered, inner; /* inner: what is counted more of than that it is called */
static const struct ha_device_api *real;
static atomic_uint_fast64_t counted[3], calls[3], copies, zero_copy, attends, merges, products, called,
    ever; /* since ha_meter_wrap */

static void count(enum ha_direction dir, size_t bytes)
{
    atomic_fetch_add_explicit(&counted[dir], bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&copies, 1, memory_order_relaxed);
}

static enum ha_status copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    count(dir, bytes);
    if (bytes) atomic_fetch_add_explicit(&calls[dir], 1, memory_order_relaxed);
    return real->copy(stream, dst, src, bytes, dir);
}

static enum ha_status copy_2d(struct ha_stream *stream, void *dst, size_t dst_stride, const void *src,
                              size_t src_stride, size_t row_bytes, size_t rows, enum ha_direction dir)
{
    count(dir, row_bytes * rows);
    return real->copy_2d(stream, dst, dst_stride, src, src_stride, row_bytes, rows, dir);
}

static enum ha_status copy_pieces(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                  enum ha_direction dir)
{
    for (size_t i = 0; i < pieces->count; i++) count(dir, pieces->bytes[i]);
    return real->copy_pieces(stream, pieces, dir);
}

/* ---- mapped memory: a pointer does not say what it points to */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region {
    uintptr_t begin;
    size_t bytes;
} * regions;
static size_t regions_count, regions_room;

static void remember(const void *ptr, size_t bytes)
{
    pthread_mutex_lock(&lock);
    if (ha_array_room(&regions, &regions_room, regions_count + 1, sizeof *regions))
        regions[regions_count++] = (struct region){ (uintptr_t)ptr, bytes };
    pthread_mutex_unlock(&lock);
}

static void forget(const void *ptr)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < regions_count; i++)
        if (regions[i].begin == (uintptr_t)ptr) regions[i] = regions[--regions_count];
    pthread_mutex_unlock(&lock);
}

static bool is_mapped(const void *ptr)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < regions_count && !found; i++) found = (uintptr_t)ptr - regions[i].begin < regions[i].bytes;
    pthread_mutex_unlock(&lock);
    return found;
}

static enum ha_status mem_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                struct ha_why *why)
{
    const enum ha_status status = real->mem_alloc(dev, kind, bytes, ptr, why);
    if (status == HA_OK && kind == HA_MEM_MAPPED && bytes) remember(*ptr, bytes);
    return status;
}

static void mem_free(struct ha_device *dev, enum ha_memory kind, void *ptr)
{
    if (kind == HA_MEM_MAPPED) forget(ptr);
    real->mem_free(dev, kind, ptr);
}

static enum ha_status move(struct ha_stream *stream, const struct ha_device_move *args)
{
    const size_t sides = (size_t)is_mapped(args->src) + (size_t)is_mapped(args->dst);
    atomic_fetch_add_explicit(&zero_copy, sides * args->rows * args->row_bytes, memory_order_relaxed);
    return real->move(stream, args);
}

#define CALLS(entry, type, n, works)                                               \
    static enum ha_status entry(struct ha_stream *stream, const struct type *args) \
    {                                                                              \
        if (works) atomic_fetch_add_explicit(&(n), 1, memory_order_relaxed);       \
        return real->entry(stream, args);                                          \
    }
CALLS(attend, ha_device_attend, attends, args->batch && args->q_len && args->q_heads)
CALLS(merge, ha_merge, merges, args->tokens && args->heads && args->dim)
CALLS(product, ha_device_product, products, args->m && args->n && args->k)

static void note_call(uint64_t bit)
{
    atomic_fetch_or_explicit(&called, bit, memory_order_relaxed);
    atomic_fetch_or_explicit(&ever, bit, memory_order_relaxed);
}
/* A graph runs operations that were called when it was captured. */
static enum ha_status graph_launch(struct ha_graph *graph, struct ha_stream *stream)
{
    atomic_fetch_or_explicit(&called, atomic_load_explicit(&ever, memory_order_relaxed), memory_order_relaxed);
    return real->graph_launch(graph, stream);
}

#define OPERATION(entry, type)                                                              \
    static enum ha_status called_##entry(struct ha_stream *stream, const struct type *args) \
    {                                                                                       \
        note_call(UINT64_C(1) << HA_OPERATION_##entry);                                     \
        return inner.entry(stream, args);                                                   \
    }
HA_DEVICE_OPERATIONS(OPERATION)
#undef OPERATION

const struct ha_device_api *ha_meter_wrap(const struct ha_device_api *api)
{
    memset(&metered, 0, sizeof metered);
    memcpy(&metered, api, api->struct_bytes < sizeof metered ? api->struct_bytes : sizeof metered);
    real = api;
    regions_count = 0;
    if (metered.copy) metered.copy = copy;
    if (metered.copy_2d) metered.copy_2d = copy_2d;
    if (metered.copy_pieces) metered.copy_pieces = copy_pieces;
    if (metered.move) metered.move = move;
    if (metered.attend) metered.attend = attend;
    if (metered.merge) metered.merge = merge;
    if (metered.product) metered.product = product;
    if (metered.mem_alloc) metered.mem_alloc = mem_alloc;
    if (metered.mem_free) metered.mem_free = mem_free;
    if (metered.graph_launch) metered.graph_launch = graph_launch;
    atomic_store(&ever, 0);
    inner = metered;
#define OPERATION(entry, type) \
    if (metered.entry) metered.entry = called_##entry;
    HA_DEVICE_OPERATIONS(OPERATION)
#undef OPERATION
    return &metered;
}

struct ha_meter_count ha_meter_take(void)
{
    const uint64_t stored = ha_stores_take();
    return (struct ha_meter_count){ .h2d_bytes = atomic_exchange(&counted[HA_H2D], 0) + stored,
                                    .d2h_bytes = atomic_exchange(&counted[HA_D2H], 0),
                                    .copies = atomic_exchange(&copies, 0),
                                    .zero_copy_bytes = atomic_exchange(&zero_copy, 0),
                                    .stored_bytes = stored,
                                    .attend = atomic_exchange(&attends, 0),
                                    .merge = atomic_exchange(&merges, 0),
                                    .product = atomic_exchange(&products, 0),
                                    .called = atomic_exchange(&called, 0),
                                    .up = atomic_exchange(&calls[HA_H2D], 0),
                                    .down = atomic_exchange(&calls[HA_D2H], 0) };
}
