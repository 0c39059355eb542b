#ifndef HA_SUITE_FIND_H
#define HA_SUITE_FIND_H

#include "harness/api/base.h"

#include <stdio.h>

/* "smoke" -> the path of smoke.suite: as given, in suites/, in suites/FAMILY/, of the source tree beside the
 * program or the current folder */
enum ha_status ha_suite_find(const char *name, char path[4096], struct ha_why *why);

/* one line for each suite file that ha_suite_find would find by name: name, path */
void ha_suite_list(FILE *out);

#endif
