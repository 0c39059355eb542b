#ifndef HA_BASE_ARRAY_H
#define HA_BASE_ARRAY_H

/* Arrays on the heap that grow as elements come, and the n largest of an array without sorting it. */

#include "harness/api/base.h"

/* Room for `need` elements of `size` bytes in *array (its address: &list, of whatever type), which has *room of them;
 * where it has less, both grow, to twice as much at least. false: no memory, and nothing has changed. */
bool ha_array_room(void *array, size_t *room, size_t need, size_t size);

/* The number that `before` of the n are in front of where they descend; before < n. x is put into another order. With a
 * NaN among them it is one of them, which one is not said. */
double ha_array_largest(double *x, size_t n, size_t before);

#endif
