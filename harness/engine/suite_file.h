#ifndef HA_ENGINE_SUITE_FILE_H
#define HA_ENGINE_SUITE_FILE_H

#include "harness/engine/plan.h"

/* ---- keys with their values, and every point that they make (expand.c) ------------------------------------------- */

extern const char ha_blanks[]; /* between values */

struct ha_assignment {
    char *name, *values; /* values: between blanks */
    size_t line;         /* of the file; 0: of an id */
    bool own;            /* of the section itself, not of [default] */
    bool used;
};
struct ha_assignments {
    struct ha_assignment *of;
    size_t count;
    const char *file; /* NULL: an id */
    const char *section;
    size_t line; /* of the section */
    const struct ha_override *override;
    size_t overrides;
    const struct ha_draw *draw; /* NULL, or what stands in place of defaults */
};

/* HA_ERROR: the key is there already, or there is no memory; then a is of no use but to be freed. */
enum ha_status ha_assign(struct ha_assignments *a, const char *name, const char *values, size_t line,
                         struct ha_why *why);
void ha_assignments_free(struct ha_assignments *a);

typedef enum ha_status ha_take(void *arg, const struct ha_suite *suite, void *point, struct ha_why *why);
/* The cross product, in the order of the keys of the suite, the last one fastest. A key that no point has is an
 * error; so is one of the section itself that none of its points uses. */
enum ha_status ha_expand(const struct ha_suite *suite, struct ha_assignments *a, ha_take *each, void *arg,
                         struct ha_why *why);

/* ---- suite files: finds them, and reads one, a section at a time ------------------------------------------------- */

struct ha_file_section {
    char suite[64], axis[64];                /* "": not said */
    uint64_t time_ns;                        /* of measuring a case, at most; 0: not said */
    size_t suite_line, axis_line, time_line; /* 0: not said */
    struct ha_assignments keys;              /* all others */
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
