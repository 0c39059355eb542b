#ifndef HA_ENGINE_SUITE_FILE_H
#define HA_ENGINE_SUITE_FILE_H

/* Finds suite files (harness/engine/plan.h), and reads one, a section at a time. */

#include "harness/engine/expand.h"

struct ha_file_section {
    const char *file, *name;
    const char *suite, *axis; /* NULL: not said */
    size_t suite_line, axis_line;
    uint64_t time_ns; /* of measuring a case, at most; 0: not said */
    struct ha_assignments *assignments;
};

/* each is called when a section is complete; what it returns ends the reading unless HA_OK. */
enum ha_status ha_suite_file_parse(const char *name, const char *text,
                                   enum ha_status (*each)(void *arg, const struct ha_file_section *section,
                                                          struct ha_why *why),
                                   void *arg, struct ha_why *why);
/* The text of a file; the caller frees it. */
enum ha_status ha_suite_file_load(const char *path, char **text, struct ha_why *why);

enum { HA_SUITE_PATH_MAX = 4096 };
/* "smoke" -> the path of smoke.suite: as given, or in suites/ or suites/FAMILY/ of the current folder, or of the source
 * tree or the installation that the program is of. HA_ERROR: there is none; why says which suite is near. */
enum ha_status ha_suite_find(const char *name, char path[HA_SUITE_PATH_MAX], struct ha_why *why);
/* A line for each suite file that ha_suite_find would find by name: name, path; then for each suite without a file:
 * name, what it is. */
void ha_suite_list(FILE *out);

#endif
