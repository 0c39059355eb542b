#ifndef HA_SUITE_FIND_H
#define HA_SUITE_FIND_H

#include "harness/case/suite.h"

#include <stdio.h>

/* one line for each suite file that ha_suite_find would find by name: name, path */
enum ha_status ha_suite_list(FILE *out, struct ha_why *why);

#endif
