/* The device that is around a sound one and does one thing wrong: HA_DEFECT names it (defects.def), or is drawn:SEED or
 * a fault in words (fault.h); HA_DEFECT_OF names the sound device, a path of a plugin; without it, it is the embedded
 * device. Both are read when the device is opened. */

#include "suites/defects/drawn.h"
#include "suites/defects/wrong.h"

#include "harness/base/claims.h"
#include "harness/base/why.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const struct ha_device_api ha_wrong_host; /* the embedded device, by the name that the build gives it here */

__attribute__((visibility("default"))) extern struct ha_device_api ha_device_api;
struct ha_device_api ha_device_api;

enum ha_wrong ha_wrong;
const struct ha_device_api *ha_wrong_base = &ha_wrong_host;
struct ha_device *ha_wrong_device;

static struct ha_stream *beside;
static struct ha_wrong_later *kept;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of these, and of `behind` */
static bool refused;
static unsigned spans, said;
static bool faulty;
static struct ha_fault fault;

static const char *const names[] = {
#define OPERATION(name, class, op, what)         #name,
#define FAULT(name, class, op, fault)            #name,
#define ATTENTION(name, class, where, what, ...) #name,
#define CLAIM(name, where, what, field, ...)     #name,
#define PLANT(name, what, field, ...)            #name,
#include "suites/defects/defects.def"
};

static const char *const faults[WRONG_COUNT] = {
#define OPERATION(name, class, op, what)
#define FAULT(name, class, op, fault) [WRONG_##name] = fault,
#define ATTENTION(name, class, where, what, ...)
#define CLAIM(name, where, what, field, ...)
#define PLANT(name, what, field, ...)
#include "suites/defects/defects.def"
};

/* ---- later ------------------------------------------------------------------------------------------------------- */

struct ha_stream *ha_wrong_stream(void)
{
    struct ha_why why;
    pthread_mutex_lock(&lock);
    if (!beside && ha_wrong_base->stream_create(ha_wrong_device, "wrong", &beside, &why) != HA_OK) abort();
    pthread_mutex_unlock(&lock);
    return beside;
}

static struct ha_event *behind;
static bool aside; /* something was enqueued there that nothing waits for */

static void nap(void *arg) { nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL); }

struct ha_stream *ha_wrong_early(struct ha_stream *stream)
{
    return ha_wrong_captures(stream) ? stream : ha_wrong_stream();
}
struct ha_stream *ha_wrong_aside(struct ha_stream *stream)
{
    struct ha_why why;
    struct ha_stream *const to = ha_wrong_early(stream);
    if (to == stream) return stream;
    pthread_mutex_lock(&lock);
    if (!behind && ha_wrong_base->event_create(ha_wrong_device, &behind, &why) != HA_OK) abort();
    aside = true;
    pthread_mutex_unlock(&lock);
    return ha_wrong_base->event_record(behind, stream) == HA_OK && ha_wrong_base->stream_wait(to, behind) == HA_OK
                   && ha_wrong_base->host_fn(to, nap, NULL) == HA_OK
               ? to
               : stream;
}
enum ha_status ha_wrong_over(struct ha_stream *stream, enum ha_status enqueued)
{
    return !ha_wrong_captures(stream) && enqueued == HA_OK ? ha_wrong_base->stream_sync(ha_wrong_stream()) : enqueued;
}

enum { HEAD = (sizeof(struct ha_wrong_later) + 63) / 64 * 64 };
struct ha_wrong_later *ha_wrong_later(void (*run)(struct ha_wrong_later *later), const void *copy, size_t bytes)
{
    struct ha_wrong_later *l = aligned_alloc(64, HEAD + (bytes + 63) / 64 * 64);
    if (!l) abort();
    memset(l, 0, HEAD);
    l->run = run;
    if (bytes) memcpy(ha_wrong_copy(l), copy, bytes);
    return l;
}
void *ha_wrong_copy(struct ha_wrong_later *l) { return (char *)l + HEAD; }

static void run_later(void *arg)
{
    struct ha_wrong_later *l = arg;
    const bool stays = l->kept;
    l->run(l);
    if (!stays) free(l);
}
enum ha_status ha_wrong_on(struct ha_stream *stream, struct ha_wrong_later *l)
{
    l->kept = ha_wrong_captures(stream);
    if (l->kept) {
        pthread_mutex_lock(&lock);
        l->next = kept;
        kept = l;
        pthread_mutex_unlock(&lock);
    }
    return ha_wrong_base->host_fn(stream, run_later, l);
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

static enum ha_status choose(struct ha_why *why)
{
    const char *defect = getenv("HA_DEFECT"), *of = getenv("HA_DEFECT_OF");
    size_t i = 0;
    char *end;
    static const char draws[] = "drawn:";
    if (!defect || !*defect) defect = "control";
    const bool drawn = !strncmp(defect, draws, sizeof draws - 1), said_so = !drawn && strchr(defect, ':');
    const uint64_t seed = drawn ? strtoull(defect + sizeof draws - 1, &end, 10) : 0;
    if (drawn && (*end || !seed)) return ha_why(why, HA_ERROR, "HA_DEFECT=%.80s: drawn:SEED, from 1 on", defect);
    while (i < WRONG_COUNT && strcmp(names[i], drawn || said_so ? "control" : defect)) i++;
    if (i == WRONG_COUNT)
        return ha_why(why, HA_ERROR, "HA_DEFECT=%.80s: `habench list defects` has none of this name", defect);
    ha_wrong = (enum ha_wrong)i;
    const char *const words = said_so ? defect : faults[i];
    faulty = drawn || words;
    if (drawn) fault = ha_fault_draw(seed);
    else if (words && !ha_fault_read(words, &fault))
        return ha_why(why, HA_ERROR, "HA_DEFECT=%.80s: '%.200s' is no fault", defect, words);
    ha_wrong_base = &ha_wrong_host;
    if (!of || !*of) return HA_OK;
    void *library = dlopen(of, RTLD_NOW | RTLD_LOCAL);
    const struct ha_device_api *api = library ? dlsym(library, HA_DEVICE_SYMBOL) : NULL;
    if (!api || api->abi != HA_DEVICE_ABI || api->struct_bytes != sizeof *api)
        return ha_why(why, HA_ERROR, "HA_DEFECT_OF=%.200s: not a device of this program's ABI", of);
    ha_wrong_base = api;
    return HA_OK;
}

/* HA_WAIVED: there is nothing to plant it in. */
static enum ha_status has_place(struct ha_device *dev, struct ha_why *why)
{
    struct ha_device_info info;
    memset(&info, 0, sizeof info);
    ha_wrong_base->info(dev, &info);
    const size_t most = info.merge.states_max;
    return IS(merge_states) && most && most <= 1024
               ? ha_why(why, HA_WAIVED, "cannot be planted: the device merges %zu states at most", most)
               : HA_OK;
}

static enum ha_status wrong_open(struct ha_device **dev, const struct ha_device_config *config, struct ha_why *why)
{
    struct ha_device_config mine = *config;
    HA_TRY(choose(why));
    if (IS(stream_serial) || IS(event_sync_stream)) mine.wait_limit_ns = 300000000;
    if (faulty) mine.wait_limit_ns = 3000000000;
    HA_TRY(ha_wrong_base->open(dev, &mine, why));
    const enum ha_status placed = has_place(*dev, why);
    if (placed != HA_OK) ha_wrong_base->close(*dev);
    HA_TRY(placed);
    ha_wrong_device = *dev;
    beside = NULL;
    behind = NULL;
    aside = false;
    refused = false;
    spans = said = 0;
    ha_wrong_order_begin();
    ha_wrong_attend_begin();
    ha_drawn_begin(faulty ? &fault : NULL);
    return HA_OK;
}

static void wrong_close(struct ha_device *dev)
{
    if (dev == ha_wrong_device && beside) ha_wrong_base->stream_destroy(beside);
    if (dev == ha_wrong_device && behind) ha_wrong_base->event_destroy(behind);
    if (dev == ha_wrong_device) {
        beside = NULL;
        behind = NULL;
    }
    ha_wrong_order_end();
    ha_drawn_end();
    ha_wrong_base->close(dev);
    for (struct ha_wrong_later *next; kept; kept = next) {
        next = kept->next;
        free(kept);
    }
}

/* What no claim is made of stands as the sound device has it. */
static void wrong_info(struct ha_device *dev, struct ha_device_info *info)
{
    ha_wrong_base->info(dev, info);
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
        if (*info->no_products) info->products[t] = info->profile[t];
#define PROFILE  info->profile[t]
#define PRODUCTS info->products[t]
#define MERGE    info->merge
#define OPERATION(name, class, op, what)
#define FAULT(name, class, op, fault)
#define ATTENTION(name, class, where, what, ...)
#define CLAIM(name, where, what, field, ...) \
    if (IS(name)) field;
#define PLANT(name, what, field, ...) \
    if (IS(name)) field;
#include "suites/defects/defects.def"
    }
    *info->no_products = 0; /* ours are plain loops */
}

static const char *wrong_failure(struct ha_device *dev)
{
    const char *text = ha_wrong_base->failure(dev);
    if (IS(alloc_fails_device) && refused) return "out of memory";
    if (text && IS(failure_forgotten) && said++) return NULL;
    if (text && IS(failure_words)) return "unspecified error";
    return text;
}

static enum ha_status wrong_sync(struct ha_stream *s)
{
    const enum ha_status status = ha_wrong_base->stream_sync(s);
    return IS(failure_sync) && status != HA_OK && said++ ? HA_OK : status;
}

static const struct ha_span_sink *sink;
static void lose_spans(void *self, const struct ha_span *span)
{
    struct ha_span mine = *span;
    if (IS(trace_lost) && __atomic_add_fetch(&spans, 1, __ATOMIC_ACQ_REL) % 5 == 0) return;
    if (IS(trace_bytes)) mine.bytes = 0;
    if (IS(trace_enqueue)) mine.enqueue_ns /= 2;
    sink->span(sink->self, &mine);
}
static void wrong_trace(struct ha_device *dev, const struct ha_span_sink *to)
{
    static const struct ha_span_sink mine = { NULL, lose_spans };
    if (to) sink = to;
    ha_wrong_base->trace(dev, to ? &mine : NULL);
}

static void wrong_meters(struct ha_device *dev, struct ha_device_meters *out)
{
    *out = ha_device_meters_none(out->want_link_GBps);
    if (IS(meters_nonsense)) out->power_W = -1;
}

/* ---- memory: what is handed out ---------------------------------------------------------------------------------- */

static char *large, *within;

static enum ha_status wrong_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                  struct ha_why *why)
{
    const bool much = bytes > (size_t)1 << 40;
    if (IS(alloc_overlap) && kind == HA_MEM_DEVICE && bytes == 4097 && large) {
        *ptr = within = large + 64;
        return HA_OK;
    }
    const size_t more = IS(alloc_too_much) && much ? 64 : much ? bytes : bytes + 64;
    const enum ha_status status = ha_wrong_base->mem_alloc(dev, kind, more, ptr, why);
    if (status == HA_OK) ha_drawn_allocated(kind, *ptr, bytes);
    refused |= status != HA_OK;
    if (status != HA_OK && IS(alloc_silent)) *why->text = 0;
    if (status == HA_OK && IS(alloc_misaligned) && bytes == 200) *ptr = (char *)*ptr + 32;
    if (status == HA_OK && kind == HA_MEM_DEVICE && bytes == 4096) large = *ptr;
    return status;
}
static void wrong_free(struct ha_device *dev, enum ha_memory kind, void *ptr)
{
    if (ptr && ptr == within) {
        within = NULL;
        return;
    }
    if (ptr && ptr == large) large = NULL;
    ha_drawn_freed(ptr);
    ha_wrong_await_gone(); /* it is to be wrong, not to crash */
    if (aside && beside) ha_wrong_base->stream_sync(beside);
    ha_wrong_base->mem_free(dev, kind, (char *)ptr - (uintptr_t)ptr % 64);
}

static enum ha_status wrong_map(struct ha_device *dev, void *ptr, size_t bytes, void **host, struct ha_why *why)
{
    if (!IS(map_elsewhere)) return ha_wrong_base->map_device(dev, ptr, bytes, host, why);
    *host = malloc(bytes);
    return *host ? HA_OK : HA_ERROR;
}
static void wrong_unmap(struct ha_device *dev, void *host)
{
    if (IS(map_elsewhere)) free(host);
    else ha_wrong_base->unmap_device(dev, host);
}

/* ---- entries that are as they are -------------------------------------------------------------------------------- */

static enum ha_status event_create(struct ha_device *dev, struct ha_event **event, struct ha_why *why)
{
    return ha_wrong_base->event_create(dev, event, why);
}
static void graph_destroy(struct ha_graph *graph) { ha_wrong_base->graph_destroy(graph); }

__attribute__((constructor)) static void fill_in(void)
{
    ha_device_api = (struct ha_device_api){
        .abi = HA_DEVICE_ABI,
        .struct_bytes = sizeof ha_device_api,
        .name = "wrong",
        .kind = "plugin",
        .built_with = HA_COMPILER,
        .open = wrong_open,
        .close = wrong_close,
        .info = wrong_info,
        .failure = wrong_failure,
        .trace = wrong_trace,
        .meters = wrong_meters,
        .mem_alloc = wrong_alloc,
        .mem_free = wrong_free,
        .map_device = wrong_map,
        .unmap_device = wrong_unmap,
        .stream_sync = wrong_sync,
        .event_create = event_create,
        .graph_destroy = graph_destroy,
    };
    ha_wrong_order(&ha_device_api);
    ha_wrong_compute(&ha_device_api);
    ha_drawn_wrap(&ha_device_api);
}
