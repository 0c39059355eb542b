/* Which record is of which operation. A stream runs what was enqueued in order, and so do the launches of a graph: the
 * records of a queue are cut into what each operation has enqueued. */

#include "kernels/cuda/trace.h"

#include <stdlib.h>
#include <string.h>

static const size_t not_its_own = SIZE_MAX;

static bool is_product(const struct ha_cuda_enqueued *x) { return x->span->library && x->kernels == 0; }

/* Waits for events, host functions and the driver's own writes and waits leave no record. */
static bool leaves_records(const struct ha_cuda_enqueued *x)
{
    return x->kernels > 0 || x->span->bytes > 0 || x->span->library;
}

static bool of_library(const struct ha_cupti_record *r)
{
    return r->what == HA_CUPTI_SET || (r->what == HA_CUPTI_KERNEL && !r->operation);
}

/* A wait for a flag is a write, a wait and a write. */
static bool is_kernel_of(const struct ha_cupti_record *r, const struct ha_cuda_span *span)
{
    if (r->what != HA_CUPTI_KERNEL || !r->operation) return false;
    return span->kind == HA_SPAN_WAIT ? r->kind == HA_SPAN_WAIT : !strcmp(r->operation, span->name);
}

/* One record for a copy, or several: of pieces CUPTI may join some. */
static size_t take_copy(const struct ha_cuda_span *span, const struct ha_cupti_record *r, size_t count)
{
    uint64_t bytes = 0;
    size_t n = 0;
    while (bytes < span->bytes && n < count && r[n].what == HA_CUPTI_COPY && r[n].kind == span->kind)
        bytes += r[n++].bytes;
    return bytes == span->bytes ? n : not_its_own;
}

/* So many kernels of ours; beside them, until the last of them, any number of a library's. */
static size_t take_kernels(const struct ha_cuda_enqueued *x, const struct ha_cupti_record *r, size_t count)
{
    size_t n = 0;
    for (uint32_t own = 0; own < x->kernels; n++) {
        if (n == count) return not_its_own;
        if (is_kernel_of(&r[n], x->span)) own++;
        else if (!x->span->library || !of_library(&r[n])) return not_its_own;
    }
    return n;
}

/* Nobody knows how many kernels a library launches for a product; at least one. Where several products follow one
 * another and there are more kernels than products, the first has all of them. */
static size_t take_products(struct ha_cuda_enqueued *x, const struct ha_cuda_enqueued *end,
                            const struct ha_cupti_record *r, size_t count)
{
    size_t products = 0, records = 0;
    for (struct ha_cuda_enqueued *y = x; y < end && (is_product(y) || !leaves_records(y)); y++)
        products += is_product(y);
    while (records < count && of_library(&r[records])) records++;
    if (records < products) return not_its_own;
    if (records == products) return 1;
    x->shared = products > 1;
    return records;
}

/* A copy, a kernel or a memset of a graph may be run as something else: any record is one of its nodes. */
static size_t take(struct ha_cuda_enqueued *x, const struct ha_cuda_enqueued *end, const struct ha_cupti_record *r,
                   size_t count)
{
    if (x->span->graph) return x->kernels <= count ? x->kernels : not_its_own;
    if (is_product(x)) return take_products(x, end, r, count);
    if (x->span->bytes) return take_copy(x->span, r, count);
    return take_kernels(x, r, count);
}

/* What began after the end of the trace may have been enqueued after it. */
static uint64_t match_queue(struct ha_cuda_enqueued *x, const struct ha_cuda_enqueued *end,
                            const struct ha_cupti_record *records, size_t first, size_t last, uint64_t ended_ns)
{
    uint64_t owed = 0;
    bool shared = false; /* by the products at hand, which have their records */
    for (; x < end; x++) {
        if (!leaves_records(x) || (shared && is_product(x))) continue;
        const size_t n = take(x, end, records + first, last - first);
        if (n == not_its_own) break;
        x->first = first;
        x->count = n;
        shared = x->shared;
        first += n;
    }
    while (x == end && last > first && records[last - 1].begin_ns >= ended_ns) last--;
    for (; x < end; x++) owed += x->kernels ? x->kernels : leaves_records(x);
    return owed > last - first ? owed : last - first;
}

static int by_queue(const void *a, const void *b)
{
    const struct ha_cuda_enqueued *x = a, *y = b;
    if (x->queue != y->queue) return x->queue < y->queue ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

uint64_t ha_cuda_match(struct ha_cuda_enqueued *operations, size_t count, const struct ha_cupti_record *records,
                       size_t records_count, uint64_t ended_ns)
{
    uint64_t lost = 0;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) operations[i].order = i;
    if (count) qsort(operations, count, sizeof *operations, by_queue);
    for (struct ha_cuda_enqueued *x = operations, *end = x, *all = x + count; x < all; x = end) {
        while (end < all && end->queue == x->queue) end++;
        while (at < records_count && records[at].queue < x->queue) at++;
        size_t last = at;
        while (last < records_count && records[last].queue == x->queue) last++;
        lost += match_queue(x, end, records, at, last, ended_ns);
        at = last;
    }
    return lost;
}
