#include "kernels/cuda/library.h"
#include "kernels/cuda/trace.h"

#include "harness/base/array.h"
#include "harness/base/clock.h"
#include "harness/base/why.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- the interface, as far as it is used ---------------------------------------------------- */

enum kind { MEMCPY = 1, MEMSET = 2, DRIVER = 4, RUNTIME = 5, CONCURRENT_KERNEL = 10, EXTERNAL_CORRELATION = 39 };
enum { SUCCESS = 0, EXTERNAL_CUSTOM = 3, FLUSH_FORCED = 1 };
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
};
struct copy_record { /* and of a memset, which has no copy_kind */
    uint32_t kind;
    uint8_t copy_kind, places_and_flags[3];
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
};
struct external_record {
    uint32_t kind, external_kind;
    uint64_t id;
    uint32_t correlation, reserved;
};

typedef void buffer_requested(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_bytes);

#define ENTRIES(X)                                                                                           \
    X(register_callbacks, "cuptiActivityRegisterCallbacks", int, (buffer_requested *, buffer_completed *))   \
    X(register_timestamp, "cuptiActivityRegisterTimestampCallback", int, (uint64_t(*now)(void)))             \
    X(enable, "cuptiActivityEnable", int, (uint32_t kind))                                                   \
    X(disable, "cuptiActivityDisable", int, (uint32_t kind))                                                 \
    X(flush, "cuptiActivityFlushAll", int, (uint32_t flag))                                                  \
    X(next_record, "cuptiActivityGetNextRecord", int, (uint8_t * buffer, size_t valid_bytes, void **record)) \
    X(dropped, "cuptiActivityGetNumDroppedRecords", int, (void *context, uint32_t stream, size_t *dropped))  \
    X(push, "cuptiActivityPushExternalCorrelationId", int, (uint32_t external_kind, uint64_t id))            \
    X(pop, "cuptiActivityPopExternalCorrelationId", int, (uint32_t external_kind, uint64_t * last))          \
    X(stream_id, "cuptiGetStreamIdEx", int, (void *context, void *stream, uint8_t per_thread, uint32_t *id)) \
    X(text, "cuptiGetResultString", int, (int result, const char **text))
struct entries {
    ENTRIES(HA_CUDA_MEMBER)
};
static const struct ha_cuda_symbol symbols[] = { ENTRIES(HA_CUDA_SYMBOL) };
enum { SYMBOLS = sizeof symbols / sizeof *symbols };

#if !defined HA_CUDA_EMULATED && __has_include(<cupti.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <cupti.h>
#pragma GCC diagnostic pop
#define SAME(type, field, own, own_field) \
    _Static_assert(offsetof(type, field) == offsetof(struct own, own_field), #type "." #field " has moved")
#define SAME_KERNEL(type)                                  \
    SAME(type, start, kernel_record, start);               \
    SAME(type, end, kernel_record, end);                   \
    SAME(type, streamId, kernel_record, stream);           \
    SAME(type, correlationId, kernel_record, correlation); \
    SAME(type, name, kernel_record, name)
#define SAME_MEMORY(type)                      \
    SAME(type, start, copy_record, start);     \
    SAME(type, end, copy_record, end);         \
    SAME(type, bytes, copy_record, bytes);     \
    SAME(type, streamId, copy_record, stream); \
    SAME(type, correlationId, copy_record, correlation)
SAME_KERNEL(CUpti_ActivityKernel9);
SAME_MEMORY(CUpti_ActivityMemcpy5);
SAME(CUpti_ActivityMemcpy5, copyKind, copy_record, copy_kind);
SAME_MEMORY(CUpti_ActivityMemset4);
#if CUPTI_API_VERSION >= 130000
SAME_KERNEL(CUpti_ActivityKernel10);
SAME_MEMORY(CUpti_ActivityMemcpy6);
SAME(CUpti_ActivityMemcpy6, copyKind, copy_record, copy_kind);
#endif
SAME(CUpti_ActivityExternalCorrelation, externalId, external_record, id);
SAME(CUpti_ActivityExternalCorrelation, correlationId, external_record, correlation);
_Static_assert(MEMCPY == (int)CUPTI_ACTIVITY_KIND_MEMCPY && MEMSET == (int)CUPTI_ACTIVITY_KIND_MEMSET
                   && DRIVER == (int)CUPTI_ACTIVITY_KIND_DRIVER && RUNTIME == (int)CUPTI_ACTIVITY_KIND_RUNTIME
                   && CONCURRENT_KERNEL == (int)CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
                   && EXTERNAL_CORRELATION == (int)CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION
                   && EXTERNAL_CUSTOM == (int)CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0
                   && FLUSH_FORCED == (int)CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
                   && HOST_TO_DEVICE == (int)CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                   && DEVICE_TO_HOST == (int)CUPTI_ACTIVITY_MEMCPY_KIND_DTOH,
               "an enumeration has moved");
#endif

/* Records of external ids are made beside records of calls alone, so the calls have to be recorded too. */
static const enum kind wanted[] = { EXTERNAL_CORRELATION, RUNTIME, DRIVER, MEMCPY, MEMSET, CONCURRENT_KERNEL };
enum { WANTED = sizeof wanted / sizeof *wanted };

/* ---- what was recorded ---------------------------------------------------------------------- */

enum { BUFFER_BYTES = 1 << 20 };

struct link {
    uint32_t correlation;
    uint64_t id;
};

struct ha_cupti {
    void *library;
    struct entries at;
    size_t users;
    bool tracing;
    /* written by CUPTI's threads, under the lock */
    struct ha_cupti_record *records;
    size_t count, capacity;
    struct link *links;
    size_t links_count, links_capacity;
    uint64_t lost;
};
static struct ha_cupti the_cupti;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Our kernels, by how their names begin, and the operation each belongs to: what a graph launches is known by that
 * alone. */
static const struct {
    const char *word, *operation;
    enum ha_span_kind kind;
} kernels[] = {
    { "ha_attend", "attend", HA_SPAN_KERNEL },
    { "softmax", "softmax", HA_SPAN_KERNEL },
    { "merge", "merge", HA_SPAN_KERNEL },
    { "move_rows", "move", HA_SPAN_KERNEL },
    { "blend_rows", "blend", HA_SPAN_KERNEL },
    { "read_words", "read", HA_SPAN_KERNEL },
    { "features_of_heads", "features", HA_SPAN_KERNEL },
    { "net_of_rows", "net", HA_SPAN_KERNEL },
    { "hash_rows", "hash", HA_SPAN_KERNEL },
    { "hamming_of_keys", "hamming", HA_SPAN_KERNEL },
    { "similarity_of_head", "similarity", HA_SPAN_KERNEL },
    { "pq_encode_keys", "pq_encode", HA_SPAN_KERNEL },
    { "pq_table_rows", "pq_table", HA_SPAN_KERNEL },
    { "pq_score_keys", "pq_score", HA_SPAN_KERNEL },
    { "topp_list", "topp", HA_SPAN_KERNEL },
    { "weighted_sum_of_list", "weighted_sum", HA_SPAN_KERNEL },
    { "spin", "spin", HA_SPAN_KERNEL },
    { "flag_wait", "flag_wait", HA_SPAN_WAIT },
    { "flag_write", "flag_write", HA_SPAN_WAIT },
};

/* function: as the object file has it, _Z, the length of the name, and the name */
static void name_kernel(struct ha_cupti_record *r, const char *function)
{
    if (!function || strncmp(function, "_Z", 2) || function[2] < '1' || function[2] > '9') return;
    const char *name = function + 2 + strspn(function + 2, "0123456789");
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        if (strncmp(name, kernels[i].word, strlen(kernels[i].word))) continue;
        r->name = kernels[i].operation;
        r->kind = kernels[i].kind;
        return;
    }
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
        struct ha_cupti_record r = { .begin_ns = k->start,
                                     .end_ns = k->end,
                                     .kind = HA_SPAN_KERNEL,
                                     .stream = k->stream,
                                     .correlation = k->correlation };
        name_kernel(&r, k->name);
        keep(c, &r);
    } else if (kind == MEMCPY || kind == MEMSET) {
        const struct copy_record *m = record;
        bool copy = kind == MEMCPY;
        keep(c, &(struct ha_cupti_record){ .begin_ns = m->start,
                                           .end_ns = m->end,
                                           .bytes = copy ? m->bytes : 0,
                                           .stream = m->stream,
                                           .kind = copy && m->copy_kind == HOST_TO_DEVICE   ? HA_SPAN_H2D
                                                   : copy && m->copy_kind == DEVICE_TO_HOST ? HA_SPAN_D2H
                                                                                            : HA_SPAN_D2D,
                                           .correlation = m->correlation });
    } else if (kind == EXTERNAL_CORRELATION) {
        const struct external_record *e = record;
        if (e->external_kind == EXTERNAL_CUSTOM
            && ha_array_room(&c->links, &c->links_capacity, c->links_count + 1, sizeof *c->links))
            c->links[c->links_count++] = (struct link){ e->correlation, e->id };
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
    /* before any kind is enabled: later stamps would be on two clocks */
    int result = c->at.register_timestamp(ha_now_ns);
    if (result != SUCCESS) return failed(c, why, "cuptiActivityRegisterTimestampCallback", result);
    result = c->at.register_callbacks(requested, completed);
    if (result != SUCCESS) return failed(c, why, "cuptiActivityRegisterCallbacks", result);
    for (size_t i = 0; i < WANTED; i++) {
        char call[64];
        result = c->at.enable(wanted[i]);
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
    if (!busy) c->count = c->links_count = c->lost = 0;
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

static int by_correlation(const void *a, const void *b)
{
    const struct link *x = a, *y = b;
    return (x->correlation > y->correlation) - (x->correlation < y->correlation);
}

static int by_time(const void *a, const void *b)
{
    const struct ha_cupti_record *x = a, *y = b;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
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
    if (c->links_count) qsort(c->links, c->links_count, sizeof *c->links, by_correlation);
    for (size_t i = 0; i < c->count && c->links_count; i++) {
        const struct link *of = bsearch(&(struct link){ .correlation = c->records[i].correlation }, c->links,
                                        c->links_count, sizeof *c->links, by_correlation);
        if (of) c->records[i].id = of->id;
    }
    if (c->count) qsort(c->records, c->count, sizeof *c->records, by_time);
    *count = c->count;
    *lost = c->lost;
    c->tracing = false;
    pthread_mutex_unlock(&lock);
    return c->records;
}

void ha_cupti_push(struct ha_cupti *c, uint64_t id) { c->at.push(EXTERNAL_CUSTOM, id); }

void ha_cupti_pop(struct ha_cupti *c)
{
    uint64_t last;
    c->at.pop(EXTERNAL_CUSTOM, &last);
}

uint32_t ha_cupti_stream(struct ha_cupti *c, cudaStream_t stream)
{
    uint32_t id;
    return c->at.stream_id(NULL, stream, 0, &id) == SUCCESS ? id : UINT32_MAX;
}

/* ---- open and close ------------------------------------------------------------------------- */

static void *load_named(const char *path, char *error, size_t size)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library) snprintf(error, size, "%s", dlerror());
    return library;
}

/* The one of the toolkit that this was built with goes first: a driver may be too old for a newer one. */
static void *load_any(char *error, size_t size)
{
#ifdef HA_CUDA_EMULATED
    snprintf(error, size, "an emulated device has none");
    return NULL;
#else
    static const char *const folder[] = { "", "extras/CUPTI/lib64/", "lib64/", "lib/" };
    const char *const root[] = { NULL, getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda" };
    char name[3][32], path[4096];
    snprintf(name[0], sizeof name[0], "libcupti.so.%d", CUDART_VERSION / 1000);
    snprintf(name[1], sizeof name[1], "libcupti.so.%d", CUDART_VERSION / 1000 == 12 ? 13 : 12);
    snprintf(name[2], sizeof name[2], "libcupti.so");
    for (size_t r = 0; r < sizeof root / sizeof *root; r++)
        for (size_t f = 0; f < sizeof folder / sizeof *folder; f++)
            for (size_t n = 0; n < 3; n++) {
                if ((r == 0) != (f == 0) || (r && !(root[r] && *root[r]))) continue;
                snprintf(path, sizeof path, "%s%s%s%s", r ? root[r] : "", r ? "/" : "", folder[f], name[n]);
                void *library = load_named(path, error, size);
                if (library) return library;
            }
    snprintf(error, size, "no libcupti.so; name one with HABENCH_CUPTI=PATH");
    return NULL;
#endif
}

static enum ha_status open_library(struct ha_cupti *c, struct ha_why *why)
{
    const char *path = getenv("HABENCH_CUPTI");
    char error[256] = "";
    if (path && !strcmp(path, "off")) return ha_why(why, HA_WAIVED, "CUPTI: off (HABENCH_CUPTI)");
    bool named = path && *path;
    void *library = named ? load_named(path, error, sizeof error) : load_any(error, sizeof error);
    if (!library) return ha_why(why, named ? HA_ERROR : HA_WAIVED, "CUPTI: %s", error);
    const char *lacks = ha_cuda_look_up(library, &c->at, symbols, SYMBOLS, SYMBOLS);
    if (lacks) {
        dlclose(library);
        return ha_why(why, named ? HA_ERROR : HA_WAIVED, "CUPTI: too old: it has no %s", lacks);
    }
    c->library = library;
    return HA_OK;
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
        free(c->links);
        *c = (struct ha_cupti){ 0 };
    }
    pthread_mutex_unlock(&lock);
}
