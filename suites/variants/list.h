#ifndef HA_VARIANTS_LIST_H
#define HA_VARIANTS_LIST_H

#include "harness/api/suite.h"

/* `habench list variants`, `habench list models` */
enum { HA_CASE_LISTS = 2 };
extern const struct ha_list ha_case_list[];

#endif
