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
