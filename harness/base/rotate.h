#ifndef HA_BASE_ROTATE_H
#define HA_BASE_ROTATE_H

#include "harness/api/dataset.h"
#include "harness/api/device.h"

/* What ha_device_rotate asks for, of tokens [first, first + count), by the CPU. */
void ha_rotate(const struct ha_device_rotate *r, size_t first, size_t count);

/* One token's row of the table of turns, [rotary/2][2], for a position: in binary64, rounded. */
void ha_rotate_turn(const struct ha_projection *p, size_t position, float *turn);
/* Undoes what such a row does to one head's dimensions, the scale too. */
void ha_rotate_back(const struct ha_projection *p, const float *turn, float *x);

#endif
