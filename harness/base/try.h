#ifndef HA_BASE_TRY_H
#define HA_BASE_TRY_H

#include "harness/api/base.h"

/* Passes a failure on; only where nothing has to be unwound. */
#define HA_TRY(call)                                  \
    do {                                              \
        enum ha_status try_status_ = (call);          \
        if (try_status_ != HA_OK) return try_status_; \
    } while (0)

#endif
