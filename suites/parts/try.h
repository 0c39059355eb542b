#ifndef HA_PARTS_TRY_H
#define HA_PARTS_TRY_H

#include "harness/api/base.h"

/* For calls in a row that each may fail; nothing to unwind, since the arenas own the memory. */
#define HA_TRY(call)                                  \
    do {                                              \
        enum ha_status try_status_ = (call);          \
        if (try_status_ != HA_OK) return try_status_; \
    } while (0)

#endif
