/* The null device, and the skeleton of every other: copy this file, keep its order, and put a device behind
 * each function. It needs harness/api/{base,kernels,merge,device}.h and a C (or C++) compiler, nothing else:
 *
 *     cc -std=c17 -O2 -fPIC -shared -I <habench> mine.c -o ha_mine.so
 *     habench check --device ./ha_mine.so          or, with the file beside the program:  --device mine
 *
 * As it stands it accepts all work, does none of it, and says at once that it is done: what a run on it takes
 * is what the harness and the CPU side take. Its results are whatever the memory held, and nothing moves: by its
 * kind, "null", the program knows that no output of it is to be judged and no bandwidth of it is a ceiling. Call
 * yours what it is ("hip", "npu").
 *
 * A library that only merges, or only attends, is no device and far shorter: null_info and null_merge (or
 * null_attend) of this file, and every other entry NULL. It is called with dev and stream NULL on ordinary host
 * memory, and is done when it returns; docs/merging.md.
 *
 * For all functions:
 * - Threads. Any thread may call; calls for one stream or one event come from one thread at a time, calls for
 *   different ones may be concurrent. A runtime with a "current device" must set it in each call.
 * - Enqueueing (everything that takes a stream and is not a sync) returns without waiting for earlier work,
 *   and copies its argument struct and the arrays behind it: the caller reuses them on return. The memory
 *   that the operation works on stays the caller's and stays valid until the operation is done.
 * - Errors. A call that can explain itself fills why: one line that names the cause and the fix. An enqueue
 *   that fails returns HA_ERROR and makes failure() say why. A failure found later, while work runs, is
 *   sticky: failure() keeps the first one, every later sync returns HA_ERROR, and nothing may hang: work still
 *   queued is dropped. Never print, never exit.
 * - Ownership. What a create function gave belongs to the caller until the destroy function of the same name.
 * - Nothing is retried, rounded or replaced silently: an operation that the device cannot do well is left
 *   NULL in the table, and the cases that need it are WAIVED with its name. */

#include "harness/api/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Hardly any function here uses what it is given; yours do. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* The four handles are the device's own; the program only passes them back. */
struct ha_device {
    uint64_t allocated_bytes;
    const char *failure;
};
struct ha_stream {
    struct ha_device *device;
    struct ha_graph *graph; /* begun and not ended, or NULL */
};
struct ha_event {
    struct ha_device *device;
};

/* What of a graph does something here. */
struct kept {
    uint32_t *flag;
    uint32_t value;
    void (*fn)(void *arg); /* instead of a flag, or NULL */
    void *arg;
};
struct ha_graph {
    struct kept *kept;
    size_t count;
};

static enum ha_status no_memory(struct ha_why *why, const char *what)
{
    snprintf(why->text, sizeof why->text, "null device: no host memory for %s", what);
    return HA_ERROR;
}

/* ---- the device -----------------------------------------------------------------------------------------
 * open: HA_WAIVED with a reason where the machine has no such device or no driver ("libcuda.so.1 is not
 * installed"); HA_ERROR where it is there and does not work. config is valid during the call only; a device
 * that computes on the host copies the kernel table. config->wait_limit_ns bounds every flag wait (below). */
static enum ha_status null_open(struct ha_device **dev, const struct ha_device_config *config, struct ha_why *why)
{
    *dev = calloc(1, sizeof **dev);
    return *dev ? HA_OK : no_memory(why, "the device");
}

/* Streams, events and memory are gone by now. */
static void null_close(struct ha_device *dev) { free(dev); }

/* What the reports print and what the error bounds are computed from. name: the product's name, as the driver
 * says it. memory_free_bytes: now. profile: how attend sums, see struct ha_profile: claim the true depth, a
 * flat n hides real defects. merge: what merge promises (which forms, types, strides and aliases it takes; what
 * it does not promise it is not asked for) and how it rounds, see struct ha_merge_traits; here one plain loop over
 * the states. eps: the relative error of the device's exp on [-104, 0] and of its log, measured over all floats
 * there, not taken from a manual. varies, in profile and merge: the same input may give other bits another time;
 * without it other bits are a failure. products: how attend_products sums, the same; no_products: why there are none on
 * this machine, although the table has the entries. head_dim_max: the longest heads that attend takes, 0 for any.
 * spans: what stamps them. May be called at any time after open. */
static void null_info(struct ha_device *dev, struct ha_device_info *info)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "null (does nothing)");
    info->memory_bytes = page * (uint64_t)sysconf(_SC_PHYS_PAGES);
    info->memory_free_bytes = info->memory_bytes > dev->allocated_bytes ? info->memory_bytes - dev->allocated_bytes : 0;
    info->compute_threads = 0;
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++)
        info->profile[t] = info->products[t] = (struct ha_profile){ .dot_lanes = 1, .sum_lanes = 1 };
    info->merge = (struct ha_merge_traits){
        .forms = 1u << HA_FORM_NATURAL,
        .dtypes = 1u << HA_F32,
        .aliases = 1u << HA_ALIAS_NONE,
        .states_max = 0,
        .lse_order = HA_LSE_TOKENS_HEADS,
        .o_strides = false,
        .plus_inf = false,
        .commutes = false,
        .varies = false,
        .exp_eps = 0x1p-23,
        .log_eps = 0x1p-23,
        .depth_extra = 0,
        .rescales = 0,
    };
}

/* The first asynchronous failure, as one line that names the operation and the stream; it lives as long as the
 * device. NULL: none. Called from any thread, often. */
static const char *null_failure(struct ha_device *dev) { return __atomic_load_n(&dev->failure, __ATOMIC_ACQUIRE); }

/* For calls that cannot explain themselves. The first one stays. */
static enum ha_status fail(struct ha_device *dev, const char *text)
{
    const char *none = NULL;
    __atomic_compare_exchange_n(&dev->failure, &none, text, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return HA_ERROR;
}

/* Optional. From this call on every operation enqueued gives one span to sink, before the sync that waits for
 * it returns. Times are CLOCK_MONOTONIC_RAW nanoseconds, so a device's own clock is converted. A lane is what
 * does one thing at a time: "stream NAME" for kernels, waits (HA_SPAN_WAIT: time in which a stream only
 * polls) and host functions, "link H2D" and "link D2H" for the copy engines. Spans of one lane do not overlap.
 * bytes and zero_copy_bytes count what really moved; enqueue_ns is when the host had enqueued it, or 0 where the
 * device cannot tell. sink == NULL: wait until the last span has been delivered, then forget the old sink. Here
 * nothing takes time, so there is no span to deliver. */
static void null_trace(struct ha_device *dev, const struct ha_span_sink *sink) {}

/* ---- memory ---------------------------------------------------------------------------------------------
 * DEVICE: fast for kernels; the host only passes such pointers on. PINNED: host memory that the copy engines
 * reach at full speed, and MAPPED: host memory that kernels read and write in place; both are addressed by the
 * same pointer from host and device. At least 256-byte aligned is kind to kernels; 64 is what is relied on.
 * Contents are undefined (here zero, so that a CPU side which reads results that nobody wrote stays in
 * bounds). bytes = 0 is valid and gives a pointer that can be freed. Too little memory is HA_ERROR, with the
 * bytes asked for and the bytes free. mem_free gets the kind that was allocated, or NULL as ptr; work that uses
 * the memory is done. */
static enum ha_status null_mem_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                     struct ha_why *why)
{
    size_t room = 64 + (bytes + 63) / 64 * 64;
    char *block = bytes < SIZE_MAX / 2 ? aligned_alloc(64, room) : NULL;
    if (!block) {
        snprintf(why->text, sizeof why->text, "null device: no memory for %zu bytes", bytes);
        return HA_ERROR;
    }
    memset(block, 0, room);
    memcpy(block, &room, sizeof room);
    __atomic_fetch_add(&dev->allocated_bytes, room, __ATOMIC_RELAXED);
    *ptr = block + 64;
    return HA_OK;
}

static void null_mem_free(struct ha_device *dev, enum ha_memory kind, void *ptr)
{
    if (!ptr) return;
    char *block = (char *)ptr - 64;
    size_t room;
    memcpy(&room, block, sizeof room);
    __atomic_fetch_sub(&dev->allocated_bytes, room, __ATOMIC_RELAXED);
    free(block);
}

/* ---- streams --------------------------------------------------------------------------------------------
 * An in-order queue. Different streams must make progress independently: habench runs work in one stream
 * that waits, by flag, for work in another, so streams that share a hardware queue deadlock. name is for the
 * trace ("stream NAME") and for messages; copy it, it lives as long as the device. */
static enum ha_status null_stream_create(struct ha_device *dev, const char *name, struct ha_stream **stream,
                                         struct ha_why *why)
{
    *stream = calloc(1, sizeof **stream);
    if (!*stream) return no_memory(why, "a stream");
    (*stream)->device = dev;
    return HA_OK;
}

/* Waits for the work in the stream, then frees it, with a graph that was begun and not ended. NULL is allowed,
 * here and in event_destroy and graph_destroy. */
static void null_graph_destroy(struct ha_graph *graph);
static void null_stream_destroy(struct ha_stream *stream)
{
    if (stream) null_graph_destroy(stream->graph);
    free(stream);
}

/* Returns when all work enqueued before the call is done and its memory effects are visible to the caller;
 * HA_ERROR if the device has failed, even if this stream has no work. */
static enum ha_status null_stream_sync(struct ha_stream *stream)
{
    return null_failure(stream->device) ? HA_ERROR : HA_OK;
}

/* ---- events: a point in a stream, to wait for. Timing is not asked of them. ------------------------------ */
static enum ha_status null_event_create(struct ha_device *dev, struct ha_event **event, struct ha_why *why)
{
    *event = malloc(sizeof **event);
    if (!*event) return no_memory(why, "an event");
    (*event)->device = dev;
    return HA_OK;
}

static void null_event_destroy(struct ha_event *event) { free(event); }

/* Marks the end of what the stream holds now. A second record replaces the first for later waits, but not for
 * those already enqueued. */
static enum ha_status null_event_record(struct ha_event *event, struct ha_stream *stream) { return HA_OK; }

/* Later work of the stream starts after the latest record before this call; without one there is no wait. */
static enum ha_status null_stream_wait(struct ha_stream *stream, struct ha_event *event) { return HA_OK; }

/* The same for the calling host thread. */
static enum ha_status null_event_sync(struct ha_event *event) { return null_failure(event->device) ? HA_ERROR : HA_OK; }

/* ---- copies ---------------------------------------------------------------------------------------------
 * H2D: dst is device memory, src pinned, mapped or pageable host memory (pageable may be slow, but not wrong:
 * if the runtime stages it, it still must not block the caller); D2H the reverse; D2D both device. Each
 * direction of the link has its own engine, in which copies of all streams queue up, beside running kernels.
 * copy is mandatory. copy_2d is optional: rows of row_bytes, both strides at least that. */
static enum ha_status null_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                enum ha_direction dir)
{
    return HA_OK;
}

static enum ha_status null_copy_2d(struct ha_stream *stream, void *dst, size_t dst_stride, const void *src,
                                   size_t src_stride, size_t row_bytes, size_t rows, enum ha_direction dir)
{
    return HA_OK;
}

/* ---- flags and host functions: all optional -----------------------------------------------------------------
 * A flag is an aligned 32-bit word of mapped memory. flag_write has release order: what the stream did before
 * is visible, on both sides, to whoever reads the value with acquire order. flag_wait has acquire order, holds
 * the stream (never the caller) until flag >= at_least, unsigned, and reads the word over the link each time:
 * the host writes it with plain atomic stores and signals nothing. A wait longer than wait_limit_ns is a failure
 * of the device whose text lists every waiting operation: stream, operation, value seen, value wanted; a hang
 * says nothing to anybody.
 * This device must write the flags, because the CPU side waits for them, and waits for none. */
/* Runs it, or keeps it in the graph that the stream captures. */
static enum ha_status enqueue(struct ha_stream *stream, struct kept what)
{
    struct ha_graph *g = stream->graph;
    if (!g) {
        if (what.fn) what.fn(what.arg);
        else __atomic_store_n(what.flag, what.value, __ATOMIC_RELEASE);
        return HA_OK;
    }
    struct kept *kept = realloc(g->kept, (g->count + 1) * sizeof *kept);
    if (!kept) return fail(stream->device, "null device: no host memory to keep an operation in a graph");
    g->kept = kept;
    g->kept[g->count++] = what;
    return HA_OK;
}

static enum ha_status null_flag_write(struct ha_stream *stream, uint32_t *flag, uint32_t value)
{
    return enqueue(stream, (struct kept){ .flag = flag, .value = value });
}

static enum ha_status null_flag_wait(struct ha_stream *stream, const uint32_t *flag, uint32_t at_least)
{
    return HA_OK;
}

/* fn runs on a thread of the host, in stream order, and may take as long as it likes without holding up other
 * streams. It does not call the device. A runtime without such a thing keeps a thread for each stream. */
static enum ha_status null_host_fn(struct ha_stream *stream, void (*fn)(void *arg), void *arg)
{
    return enqueue(stream, (struct kept){ .fn = fn, .arg = arg });
}

/* ---- kernels: all optional ------------------------------------------------------------------------------
 * The layouts are those of the structs in device.h and merge.h; the mathematics, and what an empty set of keys
 * and an empty state give, those of ha_attend in kernels.h and of ha_merge in merge.h. Operands lie in device or
 * mapped memory. Sums are binary32 or better; the LSE of attend is the natural logarithm of scaled scores, that of
 * merge what the form says. Sequences of a batch differ in length, and runs may be empty. The array behind `seqs`
 * and behind `states` is host memory that dies on return. Indices are 64 bits wide: operands of more than 2^32
 * elements occur. merge gets only what info promises. */
static enum ha_status null_attend(struct ha_stream *stream, const struct ha_device_attend *args) { return HA_OK; }

static enum ha_status null_merge(struct ha_stream *stream, const struct ha_merge *args) { return HA_OK; }

static enum ha_status null_blend(struct ha_stream *stream, const struct ha_device_blend *args) { return HA_OK; }

/* Attention as batched matrix products with a softmax between, and one product y = x w^T, both by the library that the
 * vendor ships: what attend is compared with, and what fills the time between attentions where a whole layer is run.
 * A library that is not on this machine is no reason to leave them NULL: info says so in no_products, and a call fails
 * with that reason. */
static enum ha_status null_attend_products(struct ha_stream *stream, const struct ha_device_attend *args)
{
    return HA_OK;
}

static enum ha_status null_product(struct ha_stream *stream, const struct ha_device_product *args) { return HA_OK; }

/* Rows gathered, scattered or both, by a kernel: each side is device or mapped memory, and so is each index, which is
 * read when the kernel runs. Rows of any size at any alignment occur, 256 bytes at multiples of 256 above
 * all; enough loads must be under way to cover the link's latency. Where a side is mapped its bytes count as
 * zero_copy_bytes of the span. */
static enum ha_status null_move(struct ha_stream *stream, const struct ha_device_move *args) { return HA_OK; }

/* Many copies in one call, of one direction, each as copy would do it: what a runtime charges for a call is paid once.
 * The three arrays are host memory that dies on return; empty pieces are allowed, and pieces do not overlap. One span
 * for all. Leave it NULL where each piece would be a call of its own. */
static enum ha_status null_copy_pieces(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                       enum ha_direction dir)
{
    return HA_OK;
}

/* ---- for measuring: all optional --------------------------------------------------------------------------
 * read: every byte of device or mapped memory once, in whatever order is fastest, and the wrapping sum of its 32-bit
 * words added to *sum, in device or mapped memory, which the caller has set: the sum proves that nothing was skipped.
 * It gives the read ceiling that kernels are held against. bytes and ptr are multiples of 4. */
static enum ha_status null_read(struct ha_stream *stream, const void *ptr, size_t bytes, uint32_t *sum)
{
    return HA_OK;
}

/* A kernel that is busy for so long and does nothing: known duty cycles to calibrate the spans with. */
static enum ha_status null_spin(struct ha_stream *stream, uint64_t ns) { return HA_OK; }

/* Called between measurements, from any thread; it must not disturb work in the streams. What cannot be read is NaN,
 * and a text that cannot be read is empty: a zero is a measurement. */
static void null_meters(struct ha_device *dev, struct ha_device_meters *out)
{
    *out = ha_device_meters_none(out->want_link_GBps);
}

/* Modes, errors, limits and other users of the device, by the names that struct ha_device_fact lists, for `habench
 * doctor`. Optional, as all of them are: here the one that says that nobody else is busy on it. */
static size_t null_facts(struct ha_device *dev, struct ha_device_fact *facts, size_t room)
{
    if (room) facts[0] = (struct ha_device_fact){ "busy_percent", "0" };
    return room ? 1 : 0;
}

/* ---- CPU stores into device memory: optional, both or neither -------------------------------------------------
 * A window through which the CPU writes device memory in place (GDRCopy, a large BAR, a coherent link). Such memory may
 * be write-combining: reads through it are slow, and a thread that stored ends with a store fence. Work enqueued after
 * that sees the stores. [ptr, ptr+bytes) lies within one mem_alloc; *host is ptr's own counterpart, also where the
 * window has larger pages. HA_WAIVED where the machine cannot, with what is missing, as here. */
static enum ha_status null_map_device(struct ha_device *dev, void *ptr, size_t bytes, void **host, struct ha_why *why)
{
    *host = NULL;
    snprintf(why->text, sizeof why->text, "null device: its memory has no window for CPU stores");
    return HA_WAIVED;
}

static void null_unmap_device(struct ha_device *dev, void *host) {}

/* ---- what selects keys: all optional -------------------------------------------------------------------------
 * Digests and their scores as harness/api/kernels.h says, layout and the zeros behind the last block included, rounding
 * aside. topk: exactly those that struct ha_topk names, rising, however many are equal; where `keys` is asked for,
 * those that are near the largest, and how many, times keys_unit; nothing is written of a list whose `only` is 0, which
 * is in device memory and known when the kernel runs. split keeps the order of a list. rotate works in place. */
static enum ha_status null_digest(struct ha_stream *stream, const struct ha_device_digest *args) { return HA_OK; }

static enum ha_status null_digest_score(struct ha_stream *stream, const struct ha_device_digest_score *args)
{
    return HA_OK;
}

static enum ha_status null_topk(struct ha_stream *stream, const struct ha_device_topk *args) { return HA_OK; }

static enum ha_status null_split(struct ha_stream *stream, const struct ha_device_split *args) { return HA_OK; }

static enum ha_status null_rotate(struct ha_stream *stream, const struct ha_device_rotate *args) { return HA_OK; }

/* The sums of columns and score are in binary32, in whatever order; only y of columns is rounded to another type. */
static enum ha_status null_columns(struct ha_stream *stream, const struct ha_device_columns *args) { return HA_OK; }

static enum ha_status null_score(struct ha_stream *stream, const struct ha_device_score *args) { return HA_OK; }

/* ---- what predicts budgets: optional, both or neither ----------------------------------------------------------
 * features: what harness/api/features.h says of the ones that change with the query, beside those that are given, all
 * standardised. net: the layers in order, sums in binary32 in whatever order; its scratch is not to be used. */
static enum ha_status null_features(struct ha_stream *stream, const struct ha_device_features *args) { return HA_OK; }

static enum ha_status null_net(struct ha_stream *stream, const struct ha_net *args) { return HA_OK; }

/* ---- what finds keys by codes, and a cache that is labelled with queries: hash and hamming are optional, both or
 * neither, and so is similarity ------------------------------------------------------------------------------------
 * hash: codes and norms in the layout of harness/api/kernels.h, of rows `first` on, and nothing of others, in the same
 * block neither; a bit whose sum is near 0 may be either. hamming: an integer times the norm, rounded once. similarity:
 * one order of sums for all three of a cosine, and a root that is exact where it can be, so that a query equal to its
 * label has exactly 1; labels are written where a KV head misses, and are not touched where it hits. */
static enum ha_status null_hash(struct ha_stream *stream, const struct ha_device_hash *args) { return HA_OK; }

static enum ha_status null_hamming(struct ha_stream *stream, const struct ha_device_hamming *args) { return HA_OK; }

static enum ha_status null_similarity(struct ha_stream *stream, const struct ha_device_similarity *args)
{
    return HA_OK;
}

/* ---- attention over keys that are codes: optional, all six or none ---------------------------------------------
 * pq_encode: codes in the layout of harness/api/kernels.h, of keys `first` on; bits of others are kept, in the same
 * byte too. pq_table: rows that are not there are zeros. softmax works in place. topp: sums of integers, so that the
 * choice is exact whatever the order; how many there are is known when the kernel runs, and weighted_sum reads it then,
 * as it does the lists. */
static enum ha_status null_pq_encode(struct ha_stream *stream, const struct ha_device_pq_encode *args) { return HA_OK; }

static enum ha_status null_pq_table(struct ha_stream *stream, const struct ha_device_pq_table *args) { return HA_OK; }

static enum ha_status null_pq_score(struct ha_stream *stream, const struct ha_device_pq_score *args) { return HA_OK; }

static enum ha_status null_softmax(struct ha_stream *stream, const struct ha_device_softmax *args) { return HA_OK; }

static enum ha_status null_topp(struct ha_stream *stream, const struct ha_device_topp *args) { return HA_OK; }

static enum ha_status null_weighted_sum(struct ha_stream *stream, const struct ha_device_weighted_sum *args)
{
    return HA_OK;
}

/* ---- graphs: all optional, and all four or none ----------------------------------------------------------
 * Between begin and end the stream runs nothing: what is enqueued on it is kept, with copies of the argument
 * structs and the arrays behind them, but not of the memory that they work on. An operation that a graph of this
 * device cannot hold fails there; event_record and stream_wait are not asked for. end: HA_ERROR with the reason
 * where nothing was begun or something kept has failed; the capture is over then, too. launch enqueues all of it
 * in the order of the capture, on any stream, while earlier launches may still be running: those of the same graph
 * are waited for, and scratch that kernels share is the launching stream's, or the graph's. A destroyed stream drops
 * what it was capturing. */
static enum ha_status null_graph_begin(struct ha_stream *stream)
{
    if (stream->graph) return fail(stream->device, "null device: graph_begin on a stream that has begun one already");
    stream->graph = calloc(1, sizeof *stream->graph);
    return stream->graph ? HA_OK : fail(stream->device, "null device: no host memory for a graph");
}

static enum ha_status null_graph_end(struct ha_stream *stream, struct ha_graph **graph, struct ha_why *why)
{
    if (!stream->graph) {
        snprintf(why->text, sizeof why->text, "null device: graph_end without graph_begin");
        return HA_ERROR;
    }
    *graph = stream->graph;
    stream->graph = NULL;
    return HA_OK;
}

static enum ha_status null_graph_launch(struct ha_graph *graph, struct ha_stream *stream)
{
    for (size_t i = 0; i < graph->count; i++)
        if (enqueue(stream, graph->kept[i]) != HA_OK) return HA_ERROR;
    return HA_OK;
}

/* Its launches are done. */
static void null_graph_destroy(struct ha_graph *graph)
{
    if (graph) free(graph->kept);
    free(graph);
}

/* The one symbol. The program finds it by this name with dlopen and dlsym and never unloads the library. A
 * plugin's `kind` is "plugin". The order of initialisers is free; abi and struct_bytes are as here, always. C++
 * puts extern "C" around it. */
__attribute__((visibility("default"))) extern const struct ha_device_api ha_device_api;
const struct ha_device_api ha_device_api = {
    .abi = HA_DEVICE_ABI,
    .struct_bytes = sizeof(struct ha_device_api),
    .name = "null",
    .kind = "null",
    .built_with = HA_COMPILER,
    .open = null_open,
    .close = null_close,
    .info = null_info,
    .failure = null_failure,
    .trace = null_trace,
    .mem_alloc = null_mem_alloc,
    .mem_free = null_mem_free,
    .stream_create = null_stream_create,
    .stream_destroy = null_stream_destroy,
    .stream_sync = null_stream_sync,
    .event_create = null_event_create,
    .event_destroy = null_event_destroy,
    .event_record = null_event_record,
    .stream_wait = null_stream_wait,
    .event_sync = null_event_sync,
    .copy = null_copy,
    .copy_2d = null_copy_2d,
    .flag_write = null_flag_write,
    .flag_wait = null_flag_wait,
    .host_fn = null_host_fn,
    .attend = null_attend,
    .merge = null_merge,
    .blend = null_blend,
    .graph_begin = null_graph_begin,
    .graph_end = null_graph_end,
    .graph_launch = null_graph_launch,
    .graph_destroy = null_graph_destroy,
    .attend_products = null_attend_products,
    .product = null_product,
    .move = null_move,
    .copy_pieces = null_copy_pieces,
    .read = null_read,
    .spin = null_spin,
    .meters = null_meters,
    .map_device = null_map_device,
    .unmap_device = null_unmap_device,
    .digest = null_digest,
    .digest_score = null_digest_score,
    .topk = null_topk,
    .split = null_split,
    .rotate = null_rotate,
    .columns = null_columns,
    .score = null_score,
    .features = null_features,
    .net = null_net,
    .hash = null_hash,
    .hamming = null_hamming,
    .similarity = null_similarity,
    .pq_encode = null_pq_encode,
    .pq_table = null_pq_table,
    .pq_score = null_pq_score,
    .softmax = null_softmax,
    .topp = null_topp,
    .weighted_sum = null_weighted_sum,
    .facts = null_facts,
};
