#ifndef HA_PROGRAM_NIGHT_H
#define HA_PROGRAM_NIGHT_H

/* What a night (`habench nightly`) and a day (`habench run gpu_day`) are made of: steps, and night.json, which says
 * what they were and how each ended. */

#include "harness/api/base.h"
#include "harness/api/exit.h"
#include "harness/base/json_line.h"
#include "harness/program/night_step.h"

struct ha_night_log {
    const char *folder; /* the caller's */
    bool quiet;         /* steps are not said on stderr when they begin */
    json_t *said;       /* night.json */
    char *notes;        /* lines: what did not fit, what could not be run; NULL: none */
};

/* night.json without a step, not yet written. HA_ERROR: no memory. */
enum ha_status ha_night_log_begin(struct ha_night_log *log, const char *folder, bool quiet, struct ha_why *why);
void ha_night_log_free(struct ha_night_log *log);
void ha_night_log_note(struct ha_night_log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
enum ha_status ha_night_log_write(const struct ha_night_log *log, struct ha_why *why);
/* Runs it (its folder is the night's), and puts it at the end of "steps". false: as ha_night_step, with a note; *code
 * is what it ended with. */
bool ha_night_log_run(struct ha_night_log *log, const struct ha_night_step *step, int *code);

/* The folder, made and empty, with the codes and the words of `habench run -o`; whose: "a night", in the reason. */
enum ha_exit ha_night_take_folder(const char *path, const char *whose, struct ha_why *why);

/* The words of a command of this program; numbers and the folder are kept here. */
struct ha_words {
    const char *word[HA_STEP_WORDS];
    size_t words, numbers;
    char number[4][32], folder[4096];
};
void ha_words_add(struct ha_words *words, const char *word);
void ha_words_add_number(struct ha_words *words, const char *option, uint64_t number, const char *unit);
/* -o FOLDER/NAME */
void ha_words_add_folder(struct ha_words *words, const char *folder, const char *name);

#endif
