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
    size_t line;  /* of the section */
    bool foreign; /* the section is of another suite than [default], whose keys it need not have */
    const struct ha_override *override;
    size_t overrides;
    const struct ha_draw *draw; /* NULL, or what stands in place of defaults */
    /* in place of the cross product a covering list: every two values meet, or every value is there */
    enum ha_covered { HA_ALL_PRODUCTS, HA_COVERS_PAIRS, HA_COVERS_VALUES } cover;
    double most;   /* what a case of that list may cost (suite->cost); 0: as much as a draw */
    uint64_t seed; /* of HA_COVERS_VALUES: what stands beside what */
};

/* With a line, LEAST..MOST and LEAST..MOST:STEP among the values are the numbers of that range. HA_ERROR: the key is
 * there already, a range has more than HA_RANGE_MOST numbers, or there is no memory; then a is of no use but to be
 * freed. */
enum { HA_RANGE_MOST = 4096 };
enum ha_status ha_assign(struct ha_assignments *a, const char *name, const char *values, size_t line,
                         struct ha_why *why);
void ha_assignments_free(struct ha_assignments *a);

/* HA_ERROR: a key that no point of the suite has, or that nobody can set; why says its line. */
enum ha_status ha_assignments_check(const struct ha_suite *suite, const struct ha_assignments *a, struct ha_why *why);

typedef enum ha_status ha_take(void *arg, const struct ha_suite *suite, void *point, struct ha_why *why);
/* The cross product, in the order of the keys of the suite, the last one fastest. A key that no point has is an
 * error; so is one of the section itself that none of its points uses. */
enum ha_status ha_expand(const struct ha_suite *suite, struct ha_assignments *a, ha_take *each, void *arg,
                         struct ha_why *why);
/* what the command line says of this key, or NULL */
const struct ha_override *ha_override_of(const struct ha_assignments *a, const struct ha_key *key);

/* ---- covering lists (covering.c) --------------------------------------------------------------------------------- */

/* The axes of a section with `cover = pairs` or `cover = values`: its keys of two values or more. `heads = 1 2 5 / 1 8`
 * is two axes, how many times the second number of a pair its first is, and the second. The first value of each axis is
 * its cheapest. */
struct ha_covering;

/* suite and a outlive it. */
enum ha_status ha_covering_create(struct ha_covering **pairs, const struct ha_suite *suite,
                                  const struct ha_assignments *a, struct ha_why *why);
void ha_covering_destroy(struct ha_covering *pairs);
/* Few points in which every two values of two axes meet, or every value is, if some case of the suite that costs no
 * more than allowed has them. HA_ERROR: also where a value is in none. */
enum ha_status ha_covering_expand(struct ha_covering *pairs, ha_take *each, void *arg, struct ha_why *why);

/* How many pairs, or values, of a covering list the points have that were given to ha_covering_note. */
struct ha_coverage {
    size_t points, axes, values, pairs, met; /* of a list that covers values a pair is a value alone */
    size_t excluded;                         /* there is no such case, or it costs too much */
    size_t missing;                          /* of neither kind */
};
void ha_covering_note(struct ha_covering *pairs, const void *point);
/* out: NULL, or where the axes go, and which pairs are not met, and why */
struct ha_coverage ha_covering_count(struct ha_covering *pairs, FILE *out);
/* The same of all sections of a suite file that are such lists, together: by name, as ha_suite_find, or from memory.
 * HA_ERROR: it cannot be read. (coverage.c) */
enum ha_status ha_coverage_of(const char *word, FILE *out, struct ha_coverage *all, struct ha_why *why);
enum ha_status ha_coverage_parse(const char *name, const char *text, FILE *out, struct ha_coverage *all,
                                 struct ha_why *why);

/* ---- suite files: finds them, and reads one, a section at a time ------------------------------------------------- */

struct ha_file_section {
    char suite[64], axis[64];                                       /* "": not said */
    uint64_t time_ns;                                               /* of measuring a case, at most; 0: not said */
    size_t suite_line, axis_line, time_line, cover_line, cost_line; /* 0: not said */
    struct ha_assignments keys;                                     /* all others */
};

/* each is called when a section is complete; what it returns ends the reading unless HA_OK. */
enum ha_status ha_suite_file_parse(const char *name, const char *text,
                                   enum ha_status (*each)(void *arg, const struct ha_file_section *section,
                                                          struct ha_why *why),
                                   void *arg, struct ha_why *why);
/* The text of a file; the caller frees it. */
enum ha_status ha_suite_file_load(const char *path, char **text, struct ha_why *why);

enum { HA_SUITE_PATH_MAX = 4096 };
/* "smoke" -> the path of smoke.suite, "gpu_day" -> that of gpu_day.steps: as given, or in suites/ or suites/FAMILY/ of
 * the source tree or the installation that the program is of. HA_ERROR: there is none; why
 * says which suite is near. */
enum ha_status ha_suite_find(const char *name, char path[HA_SUITE_PATH_MAX], struct ha_why *why);
/* HA_ERROR; names: of all suite files, suites and variants, of which why says the nearest, or how to list them */
enum ha_status ha_unknown_head(struct ha_why *why, const char *name, const char *const *names);
/* Is it a file of steps, each a command, rather than of cases? */
#define HA_STEPS_ENDING ".steps"
bool ha_suite_has_steps(const char *path);
/* A line for each suite file that ha_suite_find would find by name: name, path; then for each suite without a file:
 * name, what it is. */
void ha_suite_list(FILE *out);

#endif
