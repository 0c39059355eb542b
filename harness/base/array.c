#include "harness/base/array.h"

#include <stdlib.h>
#include <string.h>

bool ha_array_room(void *array, size_t *room, size_t need, size_t size)
{
    enum { FIRST = 64 };
    if (need <= *room) return true;
    const size_t twice = *room ? 2 * *room : FIRST, more = need > twice ? need : twice;
    void *list; /* its type is not known here */
    memcpy(&list, array, sizeof list);
    list = more <= SIZE_MAX / size ? realloc(list, more * size) : NULL;
    if (!list) return false;
    memcpy(array, &list, sizeof list);
    *room = more;
    return true;
}

/* Hoare's selection: a part that cannot hold the answer is left as it is. Both scans stop at what equals the pivot and
 * at NaN, and so inside the part. */
double ha_array_largest(double *x, size_t n, size_t before)
{
    size_t first = 0, end = n; /* it is in there */
    while (end - first > 1) {
        const double pivot = x[first + (end - first) / 2];
        size_t left = first,
               right = end; /* all before left are no smaller than the pivot, all from right on no larger */
        while (left < right) {
            while (x[left] > pivot) left++;
            while (x[right - 1] < pivot) right--;
            if (left >= right) break;
            const double swap = x[left];
            x[left++] = x[--right];
            x[right] = swap;
        }
        if (before < right) end = right;
        else if (before >= left) first = left;
        else break;
    }
    return x[before];
}
