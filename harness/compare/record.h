#ifndef HA_COMPARE_RECORD_H
#define HA_COMPARE_RECORD_H

/* What folders of runs hold, for who compares them: cases with their verdicts, figures by night and process. A record
 * is a folder with env.json, as `habench run -o` leaves it; a night one with night.json and records in it (`habench
 * nightly`); a folder of nights has nights or records in it. Each record outside a night is a night of its own. */

#include "harness/api/suite.h"

/* A value of a figure, of one process of one night. */
struct ha_observation {
    size_t night;   /* index */
    size_t process; /* of all records: what one process left has one number; for pairing */
    double value;
};

struct ha_recorded_figure {
    const char *name, *unit;
    enum ha_better better;
    struct ha_observation *at; /* [count], in the order in which they were read: night by night */
    size_t count, room;
    bool unordered; /* processes do not ascend */
};

/* The worst verdict of a case in one night. */
struct ha_verdict_of_night {
    size_t night, processes;
    enum ha_verdict verdict;
};

/* A process in which something else used the cores while the case was measured. */
struct ha_disturbed {
    size_t night, process;
};

/* All bits of the outputs that a process judged (column `outputs`), and the plan of the CPU kernels that it had. */
struct ha_recorded_outputs {
    size_t night, process;
    char digest[17], plan[16];
};

/* A case in one mode, "run" or "check", over all nights. */
struct ha_recorded_case {
    const char *id, *mode, *suite;
    enum ha_verdict verdict;              /* the worst of the last night */
    const char *reason;                   /* of that verdict; "" */
    size_t processes;                     /* that left a row */
    size_t last_night;                    /* in which it stands */
    struct ha_verdict_of_night *by_night; /* [nights] in which it has a row */
    size_t nights, nights_room;
    struct ha_disturbed *disturbed; /* [disturbances], their processes ascending */
    size_t disturbances, disturbances_room;
    struct ha_recorded_outputs *outputs; /* [outputs_count], in the order in which they were read: night by night */
    size_t outputs_count, outputs_room;
    struct ha_recorded_figure *figure; /* [figures] */
    size_t figures, room;
};

/* A fact of the machine or its software, from env.json: "cpu", "kernel", "device host: name", ... (facts.h says which
 * is which) */
struct ha_fact {
    const char *name, *value;
};

struct ha_night {
    const char *name, *path;  /* path: as it was given, for who opens it; all other texts here can be printed */
    char date[40], build[64]; /* of its first run; "": env.json has none */
    struct ha_fact *fact;     /* [facts] */
    size_t facts, facts_room;
    size_t verdicts[HA_VERDICTS]; /* rows of cases */
};

struct ha_record {
    const char *path;
    struct ha_night *night; /* [nights], the earliest first */
    size_t nights, nights_room;
    struct ha_recorded_case **cases; /* [count], in the order in which they were met */
    size_t count, room;
    size_t processes; /* numbers of them, over all nights */
    char *notes;      /* lines: what was left out, and why; "" */
    size_t noted;     /* how many there are, of which notes has the first */
    /* inside */
    void *tree;  /* of cases by mode and id (tsearch) */
    char **text; /* [texts] owned */
    size_t texts, texts_room;
};

/* A part of the machine, by the reading of it that stands beside every measured case (harness/measure/beside.h). */
struct ha_part_of_machine {
    const char *figure, *name;
    bool link; /* looked at where a case uses the link */
};
extern const struct ha_part_of_machine ha_parts_of_machine[]; /* figure NULL behind the last */
/* The case, of mode "run", whose figures are these, the median of all cases' readings in each process. */
#define HA_MACHINE_CASE "machine"

/* HA_ERROR: there is no record, or one that cannot be read; why says which file and line. Rows that cannot be (a torn
 * line, a time below zero, a second row of one process) are left out, and notes says so. To be freed after a failure,
 * too. */
enum ha_status ha_record_read(struct ha_record *record, const char *path, struct ha_why *why);
void ha_record_free(struct ha_record *record);

/* ---- how a record is made: begin, a night, its facts, its cases, the next night, ..., end ------------------------ */

enum ha_status ha_record_begin(struct ha_record *record, const char *path, struct ha_why *why);
/* The nights come in their order, and what follows is of the last. */
enum ha_status ha_record_add_night(struct ha_record *record, const char *path, struct ha_why *why);
/* The first value of a name stays. */
enum ha_status ha_record_add_fact(struct ha_record *record, const char *name, const char *value, struct ha_why *why);
/* The case of that name, a new one where there is none; NULL: no memory. */
struct ha_recorded_case *ha_record_add_case(struct ha_record *record, const char *mode, const char *id);
enum ha_status ha_record_add_verdict(struct ha_record *record, struct ha_recorded_case *of, const char *suite,
                                     enum ha_verdict verdict, const char *reason, struct ha_why *why);
/* From here on what that process says of time is left out, of this case. */
enum ha_status ha_record_add_disturbed(struct ha_record *record, struct ha_recorded_case *of, size_t process,
                                       struct ha_why *why);
/* of its process, in the last night */
enum ha_status ha_record_add_outputs(struct ha_record *record, struct ha_recorded_case *of, size_t process,
                                     const char *digest, const char *plan, struct ha_why *why);
/* like: name, unit, better. HA_FAIL: it cannot be, and is left out; why says what it is. */
enum ha_status ha_record_add_value(struct ha_record *record, struct ha_recorded_case *of,
                                   const struct ha_recorded_figure *like, struct ha_observation at, struct ha_why *why);
/* A line for notes, unless there are many. */
void ha_record_note(struct ha_record *record, const char *line);
/* A copy of a text that lives as long as the record, and can be printed; NULL: no memory. */
const char *ha_record_keep(struct ha_record *record, const char *text);
/* Adds a figure to the case "machine": of each process the median of what the cases of a record read, each times its
 * scale ([of->count]; NULL: as it is; NaN: it is left out). Nothing where none read it. */
enum ha_status ha_record_add_readings(struct ha_record *record, const struct ha_record *of, const char *figure,
                                      const double *scale, struct ha_why *why);
/* Adds the case "machine", of the readings as they are. */
enum ha_status ha_record_end(struct ha_record *record, struct ha_why *why);

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

/* NULL: there is none */
const struct ha_recorded_case *ha_record_case(const struct ha_record *record, const char *mode, const char *id);
const struct ha_recorded_figure *ha_record_figure(const struct ha_recorded_case *of, const char *name);
/* NULL: it does not say */
const char *ha_night_fact(const struct ha_night *night, const char *name);

#endif
