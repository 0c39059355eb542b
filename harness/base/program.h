#ifndef HA_BASE_PROGRAM_H
#define HA_BASE_PROGRAM_H

#include "harness/api/base.h"

/* The folder that this program was started from, without a slash at its end; false, and "": it cannot be told, or has
 * no room. */
bool ha_program_folder(char *out, size_t bytes);

#endif
