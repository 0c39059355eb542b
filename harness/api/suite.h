#ifndef HA_API_SUITE_H
#define HA_API_SUITE_H

/* A suite: what can be asked (points, by their keys), and what is answered (rows, by their fields). The engine reads
 * ids and suite files, runs the points in a process of their own, writes every file, prints verdicts and totals; a
 * suite checks, measures, and prints its own tables. A further one is a folder and a line of the registry. */

#include "harness/api/base.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- points ------------------------------------------------------------------------------------------------- */

enum { HA_VALUE_MAX = 4096, HA_ID_MAX = 4096 }; /* bytes of a value, of an id, as text */

/* How a value reads and prints. Whatever is not one of these has functions of its own. */
enum ha_key_kind {
    HA_KEY_WORD,   /* size_t: the index of a word */
    HA_KEY_NUMBER, /* uint64_t from min to max; words, where there are some, stand for 0, 1, ... */
    HA_KEY_PAIR,   /* two uint64_t side by side: 32/8 */
    HA_KEY_REAL,   /* double from least to most; or words alone, that stand for 0, 1, ... */
    HA_KEY_NAME,   /* char[max]: no blank, no comma, nothing that does not print */
    HA_KEY_FACT,   /* follows from the others: printed and filtered, never set; word: what it can be, NULL: anything */
};

struct ha_key {
    const char *name;
    const char *value; /* the default; "*": every word, each a point of its own */
    const char *doc;
    enum ha_key_kind kind;
    size_t offset; /* in the point */
    uint64_t min, max;
    double least, most;
    bool whole;                    /* a HA_KEY_REAL without a fraction */
    bool power_of_2;               /* a HA_KEY_REAL that is 1, 2, 4, ... */
    const char *(*word)(size_t i); /* NULL behind the last */
    const char *options; /* options of the command line that set it, between blanks: " device isa "; NULL: the one of
                            its name */
    bool device;         /* names a device: whether there is one is asked before anything runs */
    bool always;         /* printed at its default, too */
    bool column;         /* a column of the suite's files */
    enum ha_status (*set)(void *point, const struct ha_key *key, const char *value, struct ha_why *why);
    void (*print)(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX]);
    /* its default where that depends on the keys before it; NULL: value */
    const char *(*standard)(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX]);
    /* What `check --random` draws: values between blanks, each as likely as another; LEAST..MOST in a value is a
     * number, LEAST..MOST:STEP one of so many steps from LEAST, and a value "*" any word. The first number of a
     * HA_KEY_PAIR is how many times the second it is. NULL: the default. */
    const char *draw;
};

/* ---- rows --------------------------------------------------------------------------------------------------- */

enum ha_verdict {
    HA_NOT_RUN,
    HA_PASS,
    HA_VERDICT_FAIL,
    HA_VERDICT_WAIVED,
    HA_VERDICT_ERROR,
    HA_UNCHECKED, /* the output is not what could be checked: never counted as passed */
    HA_SUSPECT,   /* a pass with a warning: said by the engine alone, from struct ha_result's p */
};
enum { HA_VERDICTS = HA_SUSPECT + 1 };
static inline bool ha_passed(enum ha_verdict verdict) { return verdict == HA_PASS || verdict == HA_SUSPECT; }

/* What this host, and the device that was open, could do at the moment of a case: each read right before and right
 * after its group was measured. */
enum ha_beside_reading {
    HA_BESIDE_READ,
    HA_BESIDE_READ_1, /* host memory, GB/s, all threads and one */
    HA_BESIDE_FLOPS,  /* multiply-adds of one thread, GFLOP/s */
    HA_BESIDE_H2D,
    HA_BESIDE_D2H,    /* the link, GB/s */
    HA_BESIDE_DEVICE, /* device memory, GB/s */
    HA_BESIDE_LAUNCH, /* launch and synchronise, ns */
    HA_BESIDE_APART,  /* no reading: the largest difference of one between before and after, as a share of its mean */
};
enum { HA_BESIDES = HA_BESIDE_APART + 1 };

/* What every row begins with. */
struct ha_result {
    enum ha_verdict verdict;
    char reason[512]; /* of anything but pass */
    double samples;   /* behind the figures; NaN: nothing was measured */
    double p;         /* how likely what was found is by chance, where nothing is wrong; NaN: nobody knows. The engine
                       * multiplies it by how often the run asks, and calls a pass SUSPECT below HA_SUSPECT_P */
    char suspicion[256]; /* then the reason */
    /* of enum ha_beside_reading, the mean of before and after: the engine's to write; NaN: not read */
    double beside[HA_BESIDES];
    /* Of ranks that measured this case at once: how many did, of how many that there are, how far apart they began, and
     * what this one kept of its speed alone. The engine's; NaN: nobody asked for it, or nobody knows. */
    double together, together_of, apart_us, kept;
    char plan[16]; /* of the CPU kernels (harness/base/tuning.h), where the suite attends on the CPU: the engine's */
    /* 16 hexadecimal digits that stand for all bits of the outputs that were judged (harness/base/fingerprint.h), where
     * these must be the same each time; else "". The engine keeps it of what passed alone */
    char outputs[17];
};
#define HA_SUSPECT_P 1e-9

enum ha_field_kind { HA_FIELD_NUMBER, HA_FIELD_WHOLE, HA_FIELD_TEXT }; /* double, uint64_t, char[] */
enum ha_better { HA_NO_FIGURE, HA_NEITHER, HA_LESS, HA_MORE };

/* A column. Numbers that were not measured are NaN, texts empty; both are written as an empty field, never as 0. */
struct ha_field {
    const char *name, *unit;
    enum ha_field_kind kind;
    size_t offset, bytes; /* in the row: HA_IN(struct of_the_row, member) */
    unsigned files;       /* bits: in which of the suite's files */
    const char *doc;
    enum ha_better better;
    size_t lo, hi; /* offsets of the ends of its interval; 0: it has none */
};
#define HA_IN(row, member) .offset = offsetof(row, member), .bytes = sizeof(((row *)0)->member)

/* ---- a run -------------------------------------------------------------------------------------------------- */

struct ha_device_api;
struct ha_machine; /* harness/engine/machine.h: devices and their ceilings, which outlive a case */

/* What a suite may tell the engine while it works; from the thread that called it. */
struct ha_engine {
    void *arg;
    /* a line of a further file of the suite: samples, accuracies. A failure is said by the return of the engine. */
    void (*line)(void *arg, size_t file, const void *row);
    /* text for trace.json: events, complete JSON objects joined by commas */
    void (*trace)(void *arg, const char *events, size_t bytes);
    /* how far it is with the points at hand */
    void (*progress)(void *arg, size_t done, size_t of, const char *what);
};

struct ha_suite_config {
    struct ha_machine *machine;
    struct ha_engine engine;
    bool measure;           /* run; else check */
    uint64_t seed;          /* that --seed gave, or 1: for what no point names */
    const char *dump_dir;   /* NULL, or where the inputs and outputs of each case go */
    const char *exec;       /* NULL, or the command that is asked instead of ours */
    const char *out_dir;    /* NULL, or the folder of the run, for files of the suite's own */
    bool exhaustive;        /* as much as time allows */
    bool order;             /* is what moves ordered, too? */
    const uint64_t *faults; /* NULL, or the seed of delays that results must not depend on */
};

/* Other processes that are to measure the same case at once (`run --together`): the engine's. A suite that measures
 * calls ha_meeting_begin when it is warm, right before the first sample that counts, and goes on taking samples as long
 * as ha_meeting_goes_on says. */
struct ha_meeting {
    void *arg;
    uint64_t (*begin)(void *arg);
    bool (*goes_on)(void *arg);
};
/* Returns when the others are ready, too; what that took, ns, which is nobody's time. meeting NULL: at once. */
static inline uint64_t ha_meeting_begin(const struct ha_meeting *meeting)
{
    return meeting ? meeting->begin(meeting->arg) : 0;
}
/* enough: this case has its samples. Is another to be taken all the same, which may count or not, because others still
 * measure beside it? */
static inline bool ha_meeting_goes_on(const struct ha_meeting *meeting, bool enough)
{
    return !enough || (meeting && meeting->goes_on(meeting->arg));
}

/* Points that belong together, and what they came to. */
struct ha_group {
    size_t count;
    const void *const *point;         /* [count] */
    void *const *row;                 /* [count], cleared; the head's verdict is HA_NOT_RUN */
    const char *const *id;            /* [count] */
    bool *right;                      /* [count] false; check says true of what it found right */
    uint64_t cap_ns;                  /* of measuring them all */
    uint64_t deadline_ns;             /* of ha_now_ns; 0: none */
    const struct ha_meeting *meeting; /* of measuring them; NULL: nobody else measures */
};

/* All rows of a run, for a suite's tables: its own, in the order of the plan. */
struct ha_section {
    char name[64];
    size_t axis;   /* of the keys, or SIZE_MAX: none */
    size_t *entry; /* [count] of ha_results */
    size_t count;
};
struct ha_entry {
    const void *point;
    const void *row; /* NULL: not run */
    const char *id;
};
struct ha_results {
    const struct ha_entry *entry;
    size_t entries;
    const struct ha_section *section; /* a point may stand in several */
    size_t sections;
    bool measured;
};

enum { HA_SUITE_FILES = 5 };

/* What `habench list NAME` prints of a suite's own. */
struct ha_list {
    const char *name;
    void (*print)(FILE *out);
};

struct ha_suite {
    const char *name, *doc;
    const struct ha_key *key; /* in the order in which they are set and printed */
    size_t keys;
    const char *head; /* the name of the key whose value an id begins with; NULL: it begins with the suite's name */
    const char *class_key; /* the key by whose value JUnit groups cases */
    bool attends;          /* on the CPU: its rows depend on the plan of the CPU kernels */
    const struct ha_field *field;
    size_t fields;
    const char *file[HA_SUITE_FILES]; /* names in the folder: [0] a row for each case; [1] lines (engine.line); ... */
    unsigned summary;                 /* bits: files that take the same row as [0] */
    size_t point_bytes, row_bytes;
    const struct ha_list *list; /* [lists] */
    size_t lists;
    const char *options; /* of a run that it heeds (struct ha_suite_config), between blanks: " dump "; or NULL */
    /* It makes processes of its own, and a fork has neither CUDA's threads nor OpenMP's: none of its cases runs in a
     * process in which another suite did. */
    bool forks;

    /* keys beyond the table, of this point: option i; false: there is none. NULL: there are none */
    bool (*more)(const void *point, size_t i, struct ha_key *out);
    /* whether any point has a key of this name besides the table's; NULL: none */
    const char *(*more_name)(size_t i);
    bool (*uses)(const void *point, size_t key); /* NULL: every key of the table */
    /* What a point without any key set is; NULL: zeros, then every key at its default. */
    void (*clear)(void *point);
    /* Are the keys possible together? May set what follows from others. HA_WAIVED: there is no such point, and a
     * product of values goes on without it. */
    enum ha_status (*settle)(void *point, struct ha_why *why);
    /* Of a point that was drawn: what it takes to judge it, as a share of what is too much, which is never drawn; NULL:
     * nothing to speak of. */
    double (*cost)(const void *point);
    /* Makes a point of a suite file small, where nothing is timed; NULL: as it is. */
    void (*shrink)(void *point);
    /* Before anything runs: is what the point names there (files)? HA_ERROR: no. HA_FAIL: it is, and is damaged:
     * the point is not run. HA_WAIVED: it is ours, and was not built. NULL: nothing to ask. */
    enum ha_status (*look)(const void *point, struct ha_why *why);
    /* `habench fit`: what is learnt offline from what the point has, to the file `path`, and a line to out. HA_FAIL:
     * it is no point to learn from, or path no place. NULL: nothing learns. */
    enum ha_status (*fit)(const void *point, const char *id, const char *path, FILE *out, struct ha_why *why);
    /* Points next to each other that are run at once, in turns; NULL: none are. */
    bool (*together)(const void *a, const void *b);

    /* Once in a process. `before`: rows that are there already. end follows a failed begin, too, with what begin has
     * left in *run, unless that is NULL. */
    enum ha_status (*begin)(void **run, const struct ha_suite_config *config, const struct ha_results *before,
                            struct ha_why *why);
    /* For each group: open, check, measure, close; close follows a failed open, too. check leaves rows that it found
     * right (group->right) without a verdict, or says HA_UNCHECKED: those alone are what measure is given, and the
     * engine says HA_PASS of the first. A status that is not HA_OK goes for every row that has no verdict of its own
     * (ha_result_set). One without a verdict but with a reason was not run to its end, as where the time is over, and
     * has no row; one with neither, which is not right either, was forgotten, and is an error. */
    enum ha_status (*open)(void *run, struct ha_group *group, struct ha_why *why);
    enum ha_status (*check)(void *run, struct ha_group *group, struct ha_why *why);
    enum ha_status (*measure)(void *run, struct ha_group *group, struct ha_why *why); /* NULL: judged, not measured */
    void (*close)(void *run, struct ha_group *group);
    void (*end)(void *run);

    void (*print)(FILE *out, const struct ha_results *results); /* the tables */
    bool says_waived; /* of a run that measures, print says which cases were waived and why */
    /* What follows from all rows: goals, claims. Returns false where a verdict of the whole is wrong; why says so. */
    bool (*conclude)(FILE *out, const struct ha_results *results, struct ha_why *why);
};

#ifdef __cplusplus
}
#endif
#endif
