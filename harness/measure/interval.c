#include "harness/measure/interval.h"

#include <stdlib.h>

static int by_begin(const void *a, const void *b)
{
    const struct ha_interval *x = a, *y = b;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

size_t ha_interval_union(struct ha_interval *x, size_t count)
{
    size_t kept = 0;
    if (count > 1) qsort(x, count, sizeof *x, by_begin);
    for (size_t i = 0; i < count; i++) {
        if (x[i].end_ns <= x[i].begin_ns) continue;
        if (kept > 0 && x[i].begin_ns <= x[kept - 1].end_ns) {
            if (x[i].end_ns > x[kept - 1].end_ns) x[kept - 1].end_ns = x[i].end_ns;
        } else {
            x[kept++] = x[i];
        }
    }
    return kept;
}

uint64_t ha_interval_length(const struct ha_interval *x, size_t count)
{
    uint64_t length = 0;
    for (size_t i = 0; i < count; i++) length += x[i].end_ns - x[i].begin_ns;
    return length;
}

uint64_t ha_interval_common(const struct ha_interval *a, size_t a_count, const struct ha_interval *b, size_t b_count)
{
    uint64_t length = 0;
    for (size_t i = 0, j = 0; i < a_count && j < b_count;) {
        uint64_t begin = a[i].begin_ns > b[j].begin_ns ? a[i].begin_ns : b[j].begin_ns;
        uint64_t end = a[i].end_ns < b[j].end_ns ? a[i].end_ns : b[j].end_ns;
        if (end > begin) length += end - begin;
        if (a[i].end_ns < b[j].end_ns) i++;
        else j++;
    }
    return length;
}
