#include "kernels/cuda/library.h"
#include "kernels/cuda/trace.h"

#include "harness/base/array.h"
#include "harness/base/clock.h"
#include "harness/base/why.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- the interface, as far as it is used ---------------------------------------------------- */

enum kind { MEMCPY = 1, MEMSET = 2, CONCURRENT_KERNEL = 10 };
enum { SUCCESS = 0, FLUSH_FORCED = 1 };
enum copy_kind { HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2 };

struct kernel_record {
    uint32_t kind;
    uint8_t cache_to_registers[12];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    uint8_t grid_to_local_memory[40];
    uint32_t correlation;
    uint64_t grid;
    const char *name;
    uint8_t reserved_to_shared_memory[32];
    uint64_t graph_node;
    uint32_t shared_memory_limit, graph;
};
struct memory_record { /* of a copy or a memset, which has no copy_kind */
    uint32_t kind;
    uint8_t copy_kind, places_and_flags[3];
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
    uint8_t runtime_correlation_to_reserved[16];
    uint64_t graph_node;
    uint32_t graph;
};

typedef void buffer_requested(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_bytes);

#define ENTRIES(X)                                                                                         \
    X(register_callbacks, cuptiActivityRegisterCallbacks, int, (buffer_requested *, buffer_completed *))   \
    X(register_timestamp, cuptiActivityRegisterTimestampCallback, int, (uint64_t(*now)(void)))             \
    X(enable, cuptiActivityEnable, int, (uint32_t kind))                                                   \
    X(disable, cuptiActivityDisable, int, (uint32_t kind))                                                 \
    X(flush, cuptiActivityFlushAll, int, (uint32_t flag))                                                  \
    X(next_record, cuptiActivityGetNextRecord, int, (uint8_t * buffer, size_t valid_bytes, void **record)) \
    X(dropped, cuptiActivityGetNumDroppedRecords, int, (void *context, uint32_t stream, size_t *dropped))  \
    X(stream_id, cuptiGetStreamIdEx, int, (void *context, void *stream, uint8_t per_thread, uint32_t *id)) \
    X(text, cuptiGetResultString, int, (int result, const char **text))
/* since CUDA 12.3, whose CUPTI calls itself 21 */
#define LATER_ENTRIES(X) X(graph_id, cuptiGetGraphExecId, int, (void *graph, uint32_t *id))
struct entries {
    ENTRIES(HA_CUDA_MEMBER)
    LATER_ENTRIES(HA_CUDA_MEMBER)
};
static const struct ha_cuda_symbol symbols[] = { ENTRIES(HA_CUDA_SYMBOL) LATER_ENTRIES(HA_CUDA_SYMBOL) };
enum { SYMBOLS = sizeof symbols / sizeof *symbols, NEEDED = SYMBOLS - 1 };

#if !defined HA_CUDA_EMULATED && __has_include(<cupti.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <cupti.h>
#pragma GCC diagnostic pop
static inline void same(void)
{
    ENTRIES(HA_CUDA_SAME)
#if CUPTI_API_VERSION >= 21
    LATER_ENTRIES(HA_CUDA_SAME)
#endif
}
#define SAME(type, field, own, own_field)                                                   \
    _Static_assert(offsetof(type, field) == offsetof(struct own, own_field)                 \
                       && sizeof((type){ 0 }.field) == sizeof((struct own){ 0 }.own_field), \
                   #type "." #field " has moved")
#define SAME_KERNEL(type)                                  \
    SAME(type, kind, kernel_record, kind);                 \
    SAME(type, start, kernel_record, start);               \
    SAME(type, end, kernel_record, end);                   \
    SAME(type, streamId, kernel_record, stream);           \
    SAME(type, correlationId, kernel_record, correlation); \
    SAME(type, name, kernel_record, name);                 \
    SAME(type, graphNodeId, kernel_record, graph_node);    \
    SAME(type, graphId, kernel_record, graph)
#define SAME_MEMORY(type)                                  \
    SAME(type, kind, memory_record, kind);                 \
    SAME(type, start, memory_record, start);               \
    SAME(type, end, memory_record, end);                   \
    SAME(type, bytes, memory_record, bytes);               \
    SAME(type, streamId, memory_record, stream);           \
    SAME(type, correlationId, memory_record, correlation); \
    SAME(type, graphNodeId, memory_record, graph_node);    \
    SAME(type, graphId, memory_record, graph)
SAME_KERNEL(CUpti_ActivityKernel9);
SAME_MEMORY(CUpti_ActivityMemcpy5);
SAME(CUpti_ActivityMemcpy5, copyKind, memory_record, copy_kind);
SAME_MEMORY(CUpti_ActivityMemset4);
#if CUPTI_API_VERSION >= 130000
SAME_KERNEL(CUpti_ActivityKernel10);
SAME_MEMORY(CUpti_ActivityMemcpy6);
SAME(CUpti_ActivityMemcpy6, copyKind, memory_record, copy_kind);
#endif
_Static_assert(MEMCPY == (int)CUPTI_ACTIVITY_KIND_MEMCPY && MEMSET == (int)CUPTI_ACTIVITY_KIND_MEMSET
                   && CONCURRENT_KERNEL == (int)CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
                   && FLUSH_FORCED == (int)CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
                   && HOST_TO_DEVICE == (int)CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                   && DEVICE_TO_HOST == (int)CUPTI_ACTIVITY_MEMCPY_KIND_DTOH,
               "an enumeration has moved");
#endif

/* What runs on the GPU, and nothing that a call of the host leaves: records of calls, and ids that are pushed around
 * them, cost every enqueue of a traced pass microseconds. */
static const enum kind wanted[] = { MEMCPY, MEMSET, CONCURRENT_KERNEL };
enum { WANTED = sizeof wanted / sizeof *wanted };

/* ---- what was recorded ---------------------------------------------------------------------- */

enum { BUFFER_BYTES = 1 << 20 };

struct ha_cupti {
    void *library;
    struct entries at;
    size_t users;
    bool tracing;
    uint64_t from_ns; /* of the trace */
    /* written by CUPTI's threads, under the lock */
    struct ha_cupti_record *records;
    size_t count, capacity;
    uint64_t lost;
};
static struct ha_cupti the_cupti;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The name of a kernel of ours begins with its operation's. */
static const char *const operations[] = {
    "accuracy", "attend", "attend_products", "flag_wait", "flag_write", "move", "read", "spin",
#define HA_CUDA_FILE(file)
#define HA_CUDA_OPERATION(name, arguments) #name,
#include "kernels/cuda/operations.def"
};

/* of a name of that length: the longest that is all of it, or stands before a _; or NULL */
static const char *operation_of(const char *name, size_t length)
{
    const char *longest = NULL;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const size_t own = strlen(operations[i]);
        const bool fits = own <= length && !strncmp(name, operations[i], own) && (own == length || name[own] == '_');
        if (fits && (!longest || own > strlen(longest))) longest = operations[i];
    }
    return longest;
}

/* The number that stands before a part of a mangled name, and where the part begins; NULL: there is none. */
static const char *part_of(const char *at, size_t *length)
{
    for (*length = 0; *at >= '0' && *at <= '9' && *length < 1000; at++) *length = 10 * *length + (size_t)(*at - '0');
    return *length && strnlen(at, *length) == *length ? at : NULL;
}

/* function: as the object file has it: _Z, the length of the name, and the name; or, of what stands in an unnamed
 * namespace, _ZN, a part that nvcc makes of the file's name and a hash, and the same. */
const char *ha_cupti_operation(const char *function)
{
    static const char unnamed[] = "_GLOBAL__N_";
    size_t length;
    if (!function || strncmp(function, "_Z", 2) != 0) return NULL;
    const bool nested = function[2] == 'N';
    const char *name = part_of(function + 2 + nested, &length);
    if (nested && name) name = !strncmp(name, unnamed, sizeof unnamed - 1) ? part_of(name + length, &length) : NULL;
    return name && (!nested || strchr("EI", name[length])) ? operation_of(name, length) : NULL;
}

static uint64_t queue_of(uint32_t stream, uint32_t graph)
{
    return graph ? UINT64_C(2) << 32 | graph : UINT64_C(1) << 32 | stream;
}

static void keep(struct ha_cupti *c, const struct ha_cupti_record *r)
{
    if (r->begin_ns && r->end_ns >= r->begin_ns
        && ha_array_room(&c->records, &c->capacity, c->count + 1, sizeof *c->records))
        c->records[c->count++] = *r;
    else c->lost++;
}

static void take(struct ha_cupti *c, const void *record)
{
    uint32_t kind;
    memcpy(&kind, record, sizeof kind);
    if (kind == CONCURRENT_KERNEL) {
        const struct kernel_record *k = record;
        const char *operation = ha_cupti_operation(k->name);
        const bool waits = operation && !strncmp(operation, "flag_", 5);
        keep(c, &(struct ha_cupti_record){ .what = HA_CUPTI_KERNEL,
                                           .begin_ns = k->start,
                                           .end_ns = k->end,
                                           .kind = waits ? HA_SPAN_WAIT : HA_SPAN_KERNEL,
                                           .queue = queue_of(k->stream, k->graph),
                                           .operation = operation });
    } else if (kind == MEMCPY || kind == MEMSET) {
        const struct memory_record *m = record;
        const bool copy = kind == MEMCPY;
        keep(c, &(struct ha_cupti_record){ .what = copy ? HA_CUPTI_COPY : HA_CUPTI_SET,
                                           .begin_ns = m->start,
                                           .end_ns = m->end,
                                           .bytes = copy ? m->bytes : 0,
                                           .queue = queue_of(m->stream, m->graph),
                                           .kind = copy && m->copy_kind == HOST_TO_DEVICE   ? HA_SPAN_H2D
                                                   : copy && m->copy_kind == DEVICE_TO_HOST ? HA_SPAN_D2H
                                                                                            : HA_SPAN_D2D });
    }
}

static void requested(uint8_t **buffer, size_t *size, size_t *max_records)
{
    *buffer = malloc(BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *max_records = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_bytes)
{
    struct ha_cupti *c = &the_cupti;
    void *record = NULL;
    pthread_mutex_lock(&lock);
    while (valid_bytes && c->at.next_record(buffer, valid_bytes, &record) == SUCCESS) take(c, record);
    pthread_mutex_unlock(&lock);
    free(buffer);
}

/* ---- start and stop ------------------------------------------------------------------------- */

static enum ha_status failed(const struct ha_cupti *c, struct ha_why *why, const char *call, int result)
{
    const char *text = NULL;
    if (c->at.text(result, &text) != SUCCESS || !text) text = "no text";
    return ha_why(why, HA_ERROR, "CUPTI: %s: error %d, %s", call, result, text);
}

static void disable(struct ha_cupti *c, size_t count)
{
    while (count) c->at.disable(wanted[--count]);
}

/* Not under the lock: what is enabled may ask for a buffer. */
static enum ha_status enable(struct ha_cupti *c, struct ha_why *why)
{
    for (size_t i = 0; i < WANTED; i++) {
        char call[64];
        const int result = c->at.enable(wanted[i]);
        if (result == SUCCESS) continue;
        disable(c, i);
        snprintf(call, sizeof call, "cuptiActivityEnable(%d)", (int)wanted[i]);
        return failed(c, why, call, result);
    }
    return HA_OK;
}

enum ha_status ha_cupti_start(struct ha_cupti *c, struct ha_why *why)
{
    pthread_mutex_lock(&lock);
    bool busy = c->tracing;
    c->tracing = true;
    if (!busy) {
        c->count = c->lost = 0;
        c->from_ns = ha_now_ns();
    }
    pthread_mutex_unlock(&lock);
    if (busy) return ha_why(why, HA_ERROR, "CUPTI: it traces another device of this process already");
    enum ha_status status = enable(c, why);
    if (status != HA_OK) {
        pthread_mutex_lock(&lock);
        c->tracing = false;
        pthread_mutex_unlock(&lock);
    }
    return status;
}

static int by_queue_and_time(const void *a, const void *b)
{
    const struct ha_cupti_record *x = a, *y = b;
    if (x->queue != y->queue) return x->queue < y->queue ? -1 : 1;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    return (x->end_ns > y->end_ns) - (x->end_ns < y->end_ns);
}

/* A record of another time than the trace's was stamped by another clock. */
static void drop_outside(struct ha_cupti *c, uint64_t until_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->count; i++) {
        const struct ha_cupti_record *r = &c->records[i];
        if (r->begin_ns >= c->from_ns && r->end_ns <= until_ns) c->records[kept++] = *r;
        else c->lost++;
    }
    c->count = kept;
}

const struct ha_cupti_record *ha_cupti_stop(struct ha_cupti *c, size_t *count, uint64_t *lost)
{
    size_t dropped = 0;
    c->at.flush(0);
    disable(c, WANTED);
    c->at.flush(FLUSH_FORCED);
    if (c->at.dropped(NULL, 0, &dropped) != SUCCESS) dropped = 1; /* nobody knows how many */
    pthread_mutex_lock(&lock);
    c->lost += dropped;
    drop_outside(c, ha_now_ns());
    if (c->count) qsort(c->records, c->count, sizeof *c->records, by_queue_and_time);
    *count = c->count;
    *lost = c->lost;
    c->tracing = false;
    pthread_mutex_unlock(&lock);
    return c->records;
}

uint64_t ha_cupti_stream(struct ha_cupti *c, cudaStream_t stream)
{
    uint32_t id;
    return c->at.stream_id(NULL, stream, 0, &id) == SUCCESS ? queue_of(id, 0) : 0;
}

uint64_t ha_cupti_graph(struct ha_cupti *c, cudaGraphExec_t graph)
{
    uint32_t id;
    return c->at.graph_id && c->at.graph_id(graph, &id) == SUCCESS && id ? queue_of(0, id) : 0;
}

/* ---- open and close ------------------------------------------------------------------------- */

static void *load_named(const char *path, char *error, size_t size)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library) snprintf(error, size, "%s", dlerror());
    return library;
}

static void *load_any(char *error, size_t size)
{
#ifdef HA_CUDA_EMULATED
    snprintf(error, size, "an emulated device has none");
    return NULL;
#else
    static const char *const names[] = { HA_CUDA_NAMES("libcupti.so"), "libcupti.so", NULL };
    void *library = ha_cuda_library_next(names, &(size_t){ 0 });
    if (!library) snprintf(error, size, "no libcupti.so; name one with HABENCH_CUPTI=PATH");
    return library;
#endif
}

/* Before any kind is enabled, else records are stamped by two clocks; and once for the process, however often it is
 * opened: after a second time CUPTI stamps the first records by its own clock (pytorch/pytorch#192021). */
static enum ha_status register_once(const struct ha_cupti *c, struct ha_why *why)
{
    static void *registered; /* the library, which stays */
    if (registered == c->library) return HA_OK;
    int result = c->at.register_timestamp(ha_now_ns);
    if (result != SUCCESS) return failed(c, why, "cuptiActivityRegisterTimestampCallback", result);
    result = c->at.register_callbacks(requested, completed);
    if (result != SUCCESS) return failed(c, why, "cuptiActivityRegisterCallbacks", result);
    registered = c->library;
    return HA_OK;
}

static enum ha_status open_library(struct ha_cupti *c, struct ha_why *why)
{
    const char *path = getenv("HABENCH_CUPTI");
    char error[256] = "";
    if (path && !strcmp(path, "off")) return ha_why(why, HA_WAIVED, "CUPTI: off (HABENCH_CUPTI)");
    bool named = path && *path;
    void *library = named ? load_named(path, error, sizeof error) : load_any(error, sizeof error);
    if (!library) return ha_why(why, named ? HA_ERROR : HA_WAIVED, "CUPTI: %s", error);
    const char *lacks = ha_cuda_look_up(library, &c->at, symbols, SYMBOLS, NEEDED);
    if (lacks) {
        dlclose(library);
        return ha_why(why, named ? HA_ERROR : HA_WAIVED, "CUPTI: too old: it has no %s", lacks);
    }
    c->library = library;
    return register_once(c, why);
}

enum ha_status ha_cupti_open(struct ha_cupti **cupti, struct ha_why *why)
{
    pthread_mutex_lock(&lock);
    enum ha_status status = the_cupti.users ? HA_OK : open_library(&the_cupti, why);
    if (status == HA_OK) {
        the_cupti.users++;
        *cupti = &the_cupti;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* The library stays: it has threads, and hooks in the driver. */
void ha_cupti_close(struct ha_cupti *c)
{
    if (!c) return;
    pthread_mutex_lock(&lock);
    if (--c->users == 0) {
        free(c->records);
        *c = (struct ha_cupti){ 0 };
    }
    pthread_mutex_unlock(&lock);
}
