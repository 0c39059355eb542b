#ifndef HA_BASE_ARRAY_H
#define HA_BASE_ARRAY_H

/* Arrays on the heap that grow as elements come. */

#include "harness/api/base.h"

/* Room for `need` elements of `size` bytes in *array (its address: &list, of whatever type), which has *room of them;
 * where it has less, both grow, to twice as much at least. false: no memory, and nothing has changed. */
bool ha_array_room(void *array, size_t *room, size_t need, size_t size);

#endif
