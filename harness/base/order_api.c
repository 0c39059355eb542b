#include "harness/base/order_api.h"

#include "harness/base/array.h"
#include "harness/base/operands.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What a graph keeps of a captured stream, for each launch. */
enum kept_as { ACCESS, FLAG_WRITE, FLAG_WAIT, RECORD, WAIT };
struct kept {
    enum kept_as as;
    const char *name, *role;
    enum ha_access access;
    struct ha_range range;
    const void *key;
    uint64_t value;
};
struct graph {
    struct ha_graph *graph;
    struct kept *kept;
    size_t count, room;
};
struct stream {
    struct ha_stream *stream;
    size_t actor;
    bool captures;
    struct graph capture;
};

static const struct ha_device_api *real;
static struct ha_device_api shim;
static struct ha_kernels real_cpu;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the lists */
static struct stream *streams;
static size_t streams_count, streams_room;
static struct graph *graphs;
static size_t graphs_count, graphs_room;

/* ---- streams and graphs ------------------------------------------------------------------------------------------ */

static struct stream *find_stream(struct ha_stream *s)
{
    for (size_t i = 0; i < streams_count; i++)
        if (streams[i].stream == s) return &streams[i];
    return NULL;
}

static size_t actor_of(struct ha_stream *s)
{
    pthread_mutex_lock(&lock);
    const struct stream *known = find_stream(s);
    const size_t actor = known ? known->actor : HA_ORDER_NONE;
    pthread_mutex_unlock(&lock);
    return actor;
}

static void apply(size_t actor, const struct kept *k)
{
    struct ha_order *o = ha_order_now();
    switch (k->as) {
    case ACCESS: ha_order_access(o, actor, k->name, k->role, k->access, k->range); return;
    case FLAG_WRITE: ha_order_signal(o, actor, k->key, k->value); return;
    case RECORD: ha_order_signal(o, actor, k->key, 0); return;
    case WAIT: ha_order_await(o, actor, k->key, 0); return;
    case FLAG_WAIT:
        if (ha_order_await(o, actor, k->key, k->value)) return;
        /* the host may have written the flag, by a plain store, or may do so later */
        ha_order_follow_threads(o, actor);
        ha_order_unknown(o, actor, true);
        return;
    }
}

/* The calling thread hands this over to a stream: it is done, or kept where the stream captures. */
static void enqueue(struct ha_stream *s, const struct kept *k)
{
    pthread_mutex_lock(&lock);
    struct stream *known = find_stream(s);
    const size_t actor = known ? known->actor : HA_ORDER_NONE;
    const bool captures = known && known->captures;
    struct graph *g = captures ? &known->capture : NULL;
    if (g && ha_array_room(&g->kept, &g->room, g->count + 1, sizeof *g->kept)) g->kept[g->count++] = *k;
    pthread_mutex_unlock(&lock);
    if (!captures) apply(actor, k);
}

/* What the stream does next is behind what the calling thread has done. */
static void hand_over(struct ha_stream *s)
{
    struct ha_order *o = ha_order_now();
    ha_order_follow(o, actor_of(s), ha_order_self(o));
}

struct call {
    struct ha_stream *stream;
    const char *name;
};

static void operand(void *arg, const char *role, enum ha_access access, struct ha_range range)
{
    const struct call *c = arg;
    enqueue(c->stream, &(struct kept){ .as = ACCESS, .name = c->name, .role = role, .access = access, .range = range });
}

void ha_order_moves_to(struct ha_stream *stream, const char *role, const void *at, size_t bytes)
{
    hand_over(stream);
    operand(&(struct call){ stream, "move" }, role, HA_WRITE, (struct ha_range){ at, 1, 0, bytes });
}

static enum ha_status stream_create(struct ha_device *dev, const char *name, struct ha_stream **s, struct ha_why *why)
{
    const enum ha_status status = real->stream_create(dev, name, s, why);
    if (status != HA_OK) return status;
    const size_t actor = ha_order_actor(ha_order_now(), name, false);
    pthread_mutex_lock(&lock);
    if (ha_array_room(&streams, &streams_room, streams_count + 1, sizeof *streams))
        streams[streams_count++] = (struct stream){ .stream = *s, .actor = actor };
    pthread_mutex_unlock(&lock);
    hand_over(*s);
    return HA_OK;
}

static void stream_destroy(struct ha_stream *s)
{
    struct ha_order *o = ha_order_now();
    const size_t actor = actor_of(s);
    real->stream_destroy(s);
    ha_order_retire(o, actor, ha_order_self(o));
    pthread_mutex_lock(&lock);
    struct stream *known = find_stream(s);
    if (known) {
        free(known->capture.kept);
        *known = streams[--streams_count];
    }
    pthread_mutex_unlock(&lock);
}

static enum ha_status stream_sync(struct ha_stream *s)
{
    struct ha_order *o = ha_order_now();
    const size_t actor = actor_of(s);
    ha_order_follow(o, ha_order_self(o), actor);
    const enum ha_status status = real->stream_sync(s);
    ha_order_unknown(o, actor, false);
    return status;
}

static enum ha_status graph_begin(struct ha_stream *s)
{
    pthread_mutex_lock(&lock);
    struct stream *known = find_stream(s);
    if (known) {
        known->captures = true;
        known->capture = (struct graph){ .graph = NULL };
    }
    pthread_mutex_unlock(&lock);
    return real->graph_begin(s);
}

static enum ha_status graph_end(struct ha_stream *s, struct ha_graph **graph, struct ha_why *why)
{
    const enum ha_status status = real->graph_end(s, graph, why);
    pthread_mutex_lock(&lock);
    struct stream *known = find_stream(s);
    if (known && known->captures) {
        known->captures = false;
        if (status == HA_OK && ha_array_room(&graphs, &graphs_room, graphs_count + 1, sizeof *graphs)) {
            known->capture.graph = *graph;
            graphs[graphs_count++] = known->capture;
        } else free(known->capture.kept);
        known->capture = (struct graph){ .graph = NULL };
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static enum ha_status graph_launch(struct ha_graph *graph, struct ha_stream *s)
{
    hand_over(s);
    for (size_t i = 0; i < graphs_count; i++)
        for (size_t k = 0; graphs[i].graph == graph && k < graphs[i].count; k++) enqueue(s, &graphs[i].kept[k]);
    return real->graph_launch(graph, s);
}

static void graph_destroy(struct ha_graph *graph)
{
    pthread_mutex_lock(&lock);
    for (size_t i = graphs_count; i-- > 0;)
        if (graphs[i].graph == graph) {
            free(graphs[i].kept);
            graphs[i] = graphs[--graphs_count];
        }
    pthread_mutex_unlock(&lock);
    real->graph_destroy(graph);
}

/* ---- events and flags -------------------------------------------------------------------------------------------- */

static enum ha_status event_record(struct ha_event *event, struct ha_stream *s)
{
    hand_over(s);
    enqueue(s, &(struct kept){ .as = RECORD, .key = event });
    return real->event_record(event, s);
}

static enum ha_status stream_wait(struct ha_stream *s, struct ha_event *event)
{
    hand_over(s);
    enqueue(s, &(struct kept){ .as = WAIT, .key = event });
    return real->stream_wait(s, event);
}

static enum ha_status event_sync(struct ha_event *event)
{
    ha_order_thread_await(event, 0);
    return real->event_sync(event);
}

static void event_destroy(struct ha_event *event)
{
    ha_order_drop(ha_order_now(), event);
    real->event_destroy(event);
}

static enum ha_status flag_write(struct ha_stream *s, uint32_t *flag, uint32_t value)
{
    hand_over(s);
    enqueue(s, &(struct kept){ .as = FLAG_WRITE, .key = flag, .value = value });
    return real->flag_write(s, flag, value);
}

static enum ha_status flag_wait(struct ha_stream *s, const uint32_t *flag, uint32_t at_least)
{
    hand_over(s);
    enqueue(s, &(struct kept){ .as = FLAG_WAIT, .key = flag, .value = at_least });
    return real->flag_wait(s, flag, at_least);
}

static enum ha_status host_fn(struct ha_stream *s, void (*fn)(void *arg), void *arg)
{
    hand_over(s);
    return real->host_fn(s, fn, arg);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static enum ha_status mem_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                struct ha_why *why)
{
    static const char *const name[] = { "device", "pinned", "mapped" };
    const enum ha_status status = real->mem_alloc(dev, kind, bytes, ptr, why);
    if (status == HA_OK && *ptr) ha_order_memory(ha_order_now(), name[kind], *ptr, bytes);
    return status;
}

static void mem_free(struct ha_device *dev, enum ha_memory kind, void *ptr)
{
    ha_order_thread_freed(ptr);
    real->mem_free(dev, kind, ptr);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static enum ha_status copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    hand_over(s);
    ha_operands_copy(&(struct ha_device_pieces){ &dst, &src, &bytes, 1 }, operand, &(struct call){ s, "copy" });
    return real->copy(s, dst, src, bytes, dir);
}

static enum ha_status copy_2d(struct ha_stream *s, void *dst, size_t dst_stride, const void *src, size_t src_stride,
                              size_t row_bytes, size_t rows, enum ha_direction dir)
{
    hand_over(s);
    ha_operands_copy_2d(dst, dst_stride, src, src_stride, row_bytes, rows, operand, &(struct call){ s, "copy_2d" });
    return real->copy_2d(s, dst, dst_stride, src, src_stride, row_bytes, rows, dir);
}

static enum ha_status copy_pieces(struct ha_stream *s, const struct ha_device_pieces *pieces, enum ha_direction dir)
{
    hand_over(s);
    ha_operands_copy(pieces, operand, &(struct call){ s, "copy_pieces" });
    return real->copy_pieces(s, pieces, dir);
}

static enum ha_status read_all(struct ha_stream *s, const void *ptr, size_t bytes, uint32_t *sum)
{
    struct call c = { s, "read" };
    hand_over(s);
    if (bytes) operand(&c, "memory", HA_READ, (struct ha_range){ ptr, 1, 0, bytes });
    operand(&c, "sum", HA_WRITE, (struct ha_range){ sum, 1, 0, sizeof *sum });
    return real->read(s, ptr, bytes, sum);
}

#define OPERATION(name, type)                                                 \
    static enum ha_status name(struct ha_stream *s, const struct type *args)  \
    {                                                                         \
        hand_over(s);                                                         \
        ha_operands_device_##name(args, operand, &(struct call){ s, #name }); \
        return real->name(s, args);                                           \
    }
HA_DEVICE_OPERATIONS(OPERATION)

const struct ha_device_api *ha_order_wrap(const struct ha_device_api *api)
{
    memset(&shim, 0, sizeof shim);
    memcpy(&shim, api, api->struct_bytes < sizeof shim ? api->struct_bytes : sizeof shim);
    real = api;
    streams_count = graphs_count = 0;
    /* what the device does not offer stays NULL */
#define WRAP(entry, by) shim.entry = shim.entry ? by : NULL
    WRAP(mem_alloc, mem_alloc);
    WRAP(mem_free, mem_free);
    WRAP(stream_create, stream_create);
    WRAP(stream_destroy, stream_destroy);
    WRAP(stream_sync, stream_sync);
    WRAP(event_destroy, event_destroy);
    WRAP(event_record, event_record);
    WRAP(stream_wait, stream_wait);
    WRAP(event_sync, event_sync);
    WRAP(copy, copy);
    WRAP(copy_2d, copy_2d);
    WRAP(copy_pieces, copy_pieces);
    WRAP(flag_write, flag_write);
    WRAP(flag_wait, flag_wait);
    WRAP(host_fn, host_fn);
#define WRAP_OPERATION(name, type) WRAP(name, name);
    HA_DEVICE_OPERATIONS(WRAP_OPERATION)
    WRAP(read, read_all);
    WRAP(graph_begin, graph_begin);
    WRAP(graph_end, graph_end);
    WRAP(graph_launch, graph_launch);
    WRAP(graph_destroy, graph_destroy);
#undef WRAP
    return &shim;
}

/* ---- the CPU's kernels ------------------------------------------------------------------------------------------- */

static void cpu_operand(void *arg, const char *role, enum ha_access access, struct ha_range range)
{
    struct ha_order *o = ha_order_now();
    ha_order_access(o, ha_order_self(o), arg, role, access, range);
}

static char attend_name[] = "attend";

static void cpu_attend(const struct ha_kernels *self, const struct ha_attend *a)
{
    ha_operands_attend(a, cpu_operand, attend_name);
    real_cpu.attend(&real_cpu, a);
}

static void cpu_attend_all(const struct ha_kernels *self, const struct ha_attend_all *all)
{
    for (size_t i = 0; i < all->count; i++) ha_operands_attend(&all->units[i], cpu_operand, attend_name);
    real_cpu.attend_all(&real_cpu, all);
}

/* Those whose arguments are one struct. */
#define KERNEL(name)                                     \
    static void cpu_##name(const struct ha_##name *args) \
    {                                                    \
        static char called[] = #name;                    \
        ha_operands_##name(args, cpu_operand, called);   \
        real_cpu.name(args);                             \
    }
HA_KERNELS_OF_OPERANDS(KERNEL)

void ha_order_wrap_cpu(struct ha_kernels *kernels)
{
    real_cpu = *kernels;
    kernels->attend = cpu_attend;
    kernels->attend_all = cpu_attend_all;
#define WRAP(name) kernels->name = cpu_##name;
    HA_KERNELS_OF_OPERANDS(WRAP)
#undef WRAP
}
