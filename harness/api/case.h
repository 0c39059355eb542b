#ifndef HA_API_CASE_H
#define HA_API_CASE_H

/* One case, one string: `variant:key=value,...`. What the string leaves out has its default;
 * ha_case_print writes every key that differs from it, so that the id runs again anywhere. */

#include "harness/api/base.h"
#include "harness/api/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HA_PARAMS_MAX = 16, HA_CASE_ID_MAX = 512 };

struct ha_case {
    char variant[48], device[256], dataset[256];
    struct ha_shape shape;
    uint64_t seed;
    size_t threads;                 /* of the CPU side; 0: the cores that the device leaves free */
    double param[HA_PARAMS_MAX];    /* of the variant, in its order */
};

#ifdef __cplusplus
}
#endif
#endif
