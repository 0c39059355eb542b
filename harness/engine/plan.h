#ifndef HA_ENGINE_PLAN_H
#define HA_ENGINE_PLAN_H

/* What is to be run: points, from ids, suites and suite files.
 *
 * An id is HEAD:KEY=VALUE,...; HEAD is a suite, or a value of the key that stands for it (a variant). A value "*" is
 * every word of its key, each a point of its own; what is left out has its default, which may be "*".
 *
 * A suite file is INI (inih). Each [section] is the cross product of its keys' values, e.g. `ctx = 1024 4096`; keys of
 * a section [default], the first, apply to all that do not say otherwise. `suite = NAME` says whose points they are
 * (the first suite of the registry where nothing does; keys of [default] that another suite than its own lacks are left
 * out there), `time = 500ms` how long a case is measured at most, `axis =
 * KEY` makes the section a line of a scaling table: the key has two values or more. Errors name the file, the line and
 * the nearest valid word. */

#include "harness/api/suite.h"
#include "harness/engine/random.h"
#include "harness/report/env.h"

enum { HA_POINTS_MAX = 100000 }; /* of a plan */

struct ha_plan_entry {
    const struct ha_suite *suite;
    void *point;      /* the plan's */
    char *id;         /* the plan's */
    char *from;       /* the suite file that it is from, without folder and ending; "" of an id */
    uint64_t time_ns; /* of measuring it, at most; 0: the suite's own */
    char *damaged;    /* the plan's: what is wrong with a file that it reads, so that it is not run; NULL: nothing */
};

struct ha_plan_section {
    const struct ha_suite *suite;
    char file[64];
    char *path; /* the plan's, of the file; NULL: of ids */
    size_t line;
    struct ha_key_line {
        char *name;
        size_t line;
    } * key; /* [keys] the plan's: where the section, or [default], sets it */
    size_t keys;
    struct ha_section of; /* entries of the plan */
    size_t room;          /* of of.entry */
};

struct ha_plan {
    struct ha_plan_entry *entry; /* in the order in which they run; no two have the same id */
    size_t entries;
    size_t *slot, slots; /* finds an entry by its id */
    struct ha_plan_section *section;
    size_t sections;
    struct ha_env_suite *suite_file; /* [suite_files], in the order in which they were read */
    size_t suite_files, suite_file_room;
    uint64_t *gone; /* hashes of the ids that were forgotten; half of [gone_room] are 0 */
    size_t gones, gone_room;
};

/* An option of the command line that sets a key of every point that has it. */
struct ha_override {
    const char *option, *value; /* value NULL: not given */
};

struct ha_plan_options {
    char *const *words; /* SUITE, CASE, or the path of a suite file */
    size_t words_count;
    const char *filter; /* -f, or NULL */
    const struct ha_override *override;
    size_t overrides;
    bool small;                 /* points of suite files are made small: nothing is timed */
    bool measured;              /* sections with `cover`, which are judged alone, are left out */
    const struct ha_draw *draw; /* NULL, or what stands in place of the defaults of ids (harness/engine/random.h) */
};

/* Adds to an empty plan. HA_ERROR: nothing fits, or something is wrong; the plan is to be freed all the same. */
enum ha_status ha_plan_make(struct ha_plan *plan, const struct ha_plan_options *options, struct ha_why *why);
/* The same, of a suite file from memory before the words, for tests and fuzzing; name stands in messages. text NULL:
 * the words alone. */
enum ha_status ha_plan_parse(struct ha_plan *plan, const struct ha_plan_options *options, const char *name,
                             const char *text, struct ha_why *why);
/* Adds about so many points that are drawn, those of the words in turns; `draw` goes on from where it is. HA_ERROR: no
 * draw gives a point, and why says of the last what is wrong. */
enum { HA_DRAWN_AT_ONCE = 1024 };
enum ha_status ha_plan_draw(struct ha_plan *plan, const struct ha_plan_options *options, struct ha_draw *draw,
                            size_t count, struct ha_why *why);
/* *entry: where this point stands, which is added if need be */
enum ha_status ha_plan_add(struct ha_plan *plan, const struct ha_suite *suite, void *point, size_t *entry,
                           struct ha_why *why);
/* Lets go of the entries of which `keep` says no; they are not drawn again. */
void ha_plan_forget(struct ha_plan *plan, bool (*keep)(void *arg, const struct ha_plan_entry *entry), void *arg);
/* Puts before the reason for which an entry cannot run the suite file, the line of the key whose value the reason has,
 * or else of the section, and the entry's head: "FILE:LINE: [SECTION] HEAD: ". Nothing of an id. Returns status. */
enum ha_status ha_plan_blame(const struct ha_plan *plan, size_t entry, enum ha_status status, struct ha_why *why);
void ha_plan_free(struct ha_plan *plan);

/* One id that names one point. point: [suite->point_bytes] */
enum ha_status ha_id_parse(const char *id, const struct ha_suite **suite, void *point, size_t point_bytes,
                           struct ha_why *why);

/* ---- filters ----------------------------------------------------------------------------------------------------- */

/* What -f says: terms joined by commas, all of which a point must fit: key=value, key!=value, or a part of the id. A
 * point without the key fits no key=value and every key!=value. The key `suite` is every point's. */
struct ha_filter;

/* HA_ERROR: there is no suite with such a key; why names the nearest of all suites. */
enum ha_status ha_filter_create(struct ha_filter **filter, const char *text, struct ha_why *why);
bool ha_filter_fits(struct ha_filter *filter, const struct ha_suite *suite, const void *point, const char *id);
/* Once every point was asked for: HA_ERROR where a value is one that the key does not take, neither in any of those
 * points nor in any suite that has it. */
enum ha_status ha_filter_check(const struct ha_filter *filter, struct ha_why *why);
void ha_filter_destroy(struct ha_filter *filter);

#endif
