#include "kernels/cuda/fake.h"
#include "kernels/cuda/fake_cupti.h"

#include <pthread.h>
#include <string.h>

enum { SUCCESS = 0, ERROR_LIMIT = 12, ERROR_STREAM = 20, ERROR_PRIVILEGES = 35 };
enum { KIND_MEMCPY = 1, KIND_MEMSET = 2, KIND_KERNEL = 10 };

/* sizes of CUpti_ActivityKernel10, Memcpy6 and Memset4 */
static size_t bytes_of(uint32_t kind) { return kind == KIND_KERNEL ? 216 : kind == KIND_MEMCPY ? 96 : 88; }

extern EXPORT struct fake_cupti fake_cupti;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*buffer_requested)(uint8_t **, size_t *, size_t *);
static void (*buffer_completed)(void *, uint32_t, uint8_t *, size_t, size_t);
static uint8_t *buffer;
static size_t buffer_bytes, used, in_buffer;
static size_t dropped;
static uint32_t correlation = 1u << 30;
static size_t registrations, spoilt; /* of the clock; records to come that are stamped by another one */

static void cost(uint64_t ns)
{
    if (fake_cupti.pass) fake_cupti.pass(ns);
}

/* ---- records ------------------------------------------------------------------------------- */

static void complete(void)
{
    uint8_t *full = buffer;
    buffer = NULL;
    if (!full) return;
    fake_cupti.buffers++;
    buffer_completed(NULL, 0, full, buffer_bytes, used);
}

static void put(const void *record, size_t bytes)
{
    size_t most = fake_cupti.records_in_buffer;
    if (buffer && (used + bytes > buffer_bytes || (most && in_buffer >= most))) complete();
    if (!buffer && !fake_cupti.no_room) {
        size_t max_records = 1;
        cost(fake_cupti.buffer_ns);
        buffer_requested(&buffer, &buffer_bytes, &max_records);
        used = in_buffer = 0;
    }
    if (!buffer) {
        dropped++;
        return;
    }
    memcpy(buffer + used, record, bytes);
    used += bytes;
    in_buffer++;
}

static void put32(uint8_t *record, size_t at, uint32_t value) { memcpy(record + at, &value, sizeof value); }
static void put64(uint8_t *record, size_t at, uint64_t value) { memcpy(record + at, &value, sizeof value); }
static bool on(uint32_t kind) { return fake_cupti.enabled >> kind & 1; }

/* What CUPTI does once the clock was registered again: as many of the first kernels of a session are stamped by its own
 * clock (pytorch/pytorch#192021). */
static uint64_t by_clock(uint64_t ns) { return spoilt ? ns + UINT64_C(1700000000000000000) : ns; }

static void finish(uint32_t kind, const uint8_t *record)
{
    if (!on(kind)) return;
    if (fake_cupti.lose && fake_cupti.lose-- == 1) return;
    put(record, bytes_of(kind));
}

static void kernel(const char *function, uint32_t stream, uint64_t begin_ns, uint64_t end_ns)
{
    uint8_t record[216] = { 0 };
    pthread_mutex_lock(&lock);
    put32(record, 0, KIND_KERNEL);
    put64(record, 16, by_clock(begin_ns));
    put64(record, 24, by_clock(end_ns));
    put32(record, 48, stream);
    put32(record, 92, ++correlation);
    put64(record, 104, (uint64_t)(uintptr_t)function);
    put64(record, 144, (uint64_t)fake_cupti.graph << 32 | fake_cupti.graph);
    put32(record, 156, fake_cupti.graph);
    finish(KIND_KERNEL, record);
    if (spoilt && on(KIND_KERNEL)) spoilt--;
    pthread_mutex_unlock(&lock);
}

static void memory(uint32_t kind, unsigned copy_kind, uint32_t stream, uint64_t bytes, uint64_t begin_ns,
                   uint64_t end_ns)
{
    uint8_t record[96] = { 0 };
    pthread_mutex_lock(&lock);
    put32(record, 0, kind);
    record[4] = (uint8_t)copy_kind;
    put64(record, 8, bytes);
    put64(record, 16, begin_ns);
    put64(record, 24, end_ns);
    put32(record, 40, stream);
    put32(record, 44, ++correlation);
    put64(record, 64, (uint64_t)fake_cupti.graph << 32 | fake_cupti.graph);
    put32(record, 72, fake_cupti.graph);
    finish(kind, record);
    pthread_mutex_unlock(&lock);
}

static void copy(unsigned kind, uint32_t stream, uint64_t bytes, uint64_t begin_ns, uint64_t end_ns)
{
    memory(KIND_MEMCPY, kind, stream, bytes, begin_ns, end_ns);
}
static void set(uint32_t stream, uint64_t bytes, uint64_t begin_ns, uint64_t end_ns)
{
    memory(KIND_MEMSET, 0, stream, bytes, begin_ns, end_ns);
}

static void launch(void)
{
    pthread_mutex_lock(&lock);
    if (fake_cupti.enabled) cost(fake_cupti.launch_ns);
    pthread_mutex_unlock(&lock);
}

/* The clock stays registered: the process is the same. */
static void reset(void)
{
    uint64_t (*const now)(void) = fake_cupti.now;
    fake_cupti = (struct fake_cupti){
        .reset = reset, .launch = launch, .kernel = kernel, .copy = copy, .set = set, .now = now
    };
    spoilt = 0;
}
struct fake_cupti fake_cupti = { .reset = reset, .launch = launch, .kernel = kernel, .copy = copy, .set = set };

/* ---- CUPTI's entries ------------------------------------------------------------------------ */

ENTRY(cuptiActivityRegisterCallbacks, void (*requested)(uint8_t **, size_t *, size_t *),
      void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t))
{
    buffer_requested = requested;
    buffer_completed = completed;
    return SUCCESS;
}

ENTRY(cuptiActivityRegisterTimestampCallback, uint64_t (*now)(void))
{
    fake_cupti.now = now;
    registrations++;
    return SUCCESS;
}

ENTRY(cuptiActivityEnable, uint32_t kind)
{
    if (kind == fake_cupti.fail_kind) return ERROR_PRIVILEGES;
    pthread_mutex_lock(&lock);
    if (!fake_cupti.now) fake_cupti.kinds_before_clock = true;
    if (kind == KIND_KERNEL && !on(kind) && !(fake_cupti.ever >> kind & 1)) cost(fake_cupti.code_ns);
    if (!fake_cupti.enabled && registrations) spoilt = registrations - 1;
    fake_cupti.enabled |= UINT64_C(1) << kind;
    fake_cupti.ever |= UINT64_C(1) << kind;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

ENTRY(cuptiActivityDisable, uint32_t kind)
{
    pthread_mutex_lock(&lock);
    fake_cupti.enabled &= ~(UINT64_C(1) << kind);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static void *flusher(void *arg)
{
    complete();
    return NULL;
}

/* on a thread of its own, as CUPTI does where it likes */
ENTRY(cuptiActivityFlushAll, uint32_t flag)
{
    pthread_t thread;
    pthread_mutex_lock(&lock);
    if (pthread_create(&thread, NULL, flusher, NULL) == 0) pthread_join(thread, NULL);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

ENTRY(cuptiActivityGetNextRecord, uint8_t *from, size_t valid_bytes, void **record)
{
    uint8_t *next = from;
    uint32_t kind;
    if (*record) {
        memcpy(&kind, *record, sizeof kind);
        next = (uint8_t *)*record + bytes_of(kind);
    }
    if (next >= from + valid_bytes) return ERROR_LIMIT;
    *record = next;
    return SUCCESS;
}

ENTRY(cuptiActivityGetNumDroppedRecords, void *context, uint32_t stream, size_t *count)
{
    *count = dropped;
    dropped = 0;
    return SUCCESS;
}

ENTRY(cuptiGetStreamIdEx, void *context, void *stream, uint8_t per_thread, uint32_t *id)
{
    if ((uintptr_t)stream < 0x1000) return ERROR_STREAM;
    *id = (uint32_t)((uintptr_t)stream - 0x1000);
    return SUCCESS;
}

#ifndef FAKE_CUPTI_12
ENTRY(cuptiGetGraphExecId, void *graph, uint32_t *id)
{
    if ((uintptr_t)graph < 0x1000) return ERROR_STREAM;
    *id = (uint32_t)((uintptr_t)graph - 0x1000);
    return SUCCESS;
}
#endif

#ifndef FAKE_CUPTI_OLD
ENTRY(cuptiGetResultString, int result, const char **text)
{
    if (result != ERROR_PRIVILEGES) return 1;
    *text = "insufficient privileges";
    return SUCCESS;
}
#endif
