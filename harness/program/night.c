#define _GNU_SOURCE /* asprintf */
#include "harness/program/night.h"

#include "harness/base/clock.h"
#include "harness/base/file.h"
#include "harness/base/own_files.h"
#include "harness/base/text.h"
#include "harness/base/version.h"
#include "harness/base/why.h"
#include "harness/report/folder_take.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA = 1 };

void ha_night_log_note(struct ha_night_log *n, const char *format, ...)
{
    char line[4096], *all = NULL;
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (asprintf(&all, "%s%s\n", n->notes ? n->notes : "", ha_text_clean(line)) < 0) return;
    free(n->notes);
    n->notes = all;
}

void ha_night_log_free(struct ha_night_log *n)
{
    json_decref(n->said);
    free(n->notes);
    *n = (struct ha_night_log){ 0 };
}

/* ---- night.json -------------------------------------------------------------------------------------------------- */

enum ha_status ha_night_log_begin(struct ha_night_log *n, const char *folder, bool quiet, struct ha_why *why)
{
    char date[HA_DATE_UTC];
    ha_date_utc(date);
    *n = (struct ha_night_log){ .folder = folder, .quiet = quiet, .notes = n->notes };
    n->said = json_pack("{s:i, s:s, s:s, s:[]}", "schema_version", SCHEMA, "date_utc", date, "build", ha_version(),
                        "steps");
    return n->said ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
}

enum ha_status ha_night_log_write(const struct ha_night_log *n, struct ha_why *why)
{
    struct ha_whole_file out;
    HA_TRY(ha_whole_file_open(&out, n->folder, "night.json", why));
    if (json_dumpf(n->said, out.file, JSON_INDENT(2) | JSON_PRESERVE_ORDER) == 0) putc('\n', out.file);
    return ha_whole_file_close(&out, why);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static json_t *texts(const struct ha_night_step *s)
{
    json_t *all = s->shell ? json_pack("[s, s]", "sh", "-c") : json_array();
    for (size_t i = 0; i < s->words; i++) json_array_append_new(all, ha_json_text(s->word[i]));
    return all;
}

static void say(const struct ha_night_step *s)
{
    fprintf(stderr, "%s: %s", s->name, s->shell ? "sh -c" : "habench");
    for (size_t i = 0; i < s->words; i++) {
        putc(' ', stderr);
        ha_text_quote(stderr, s->word[i]);
    }
    putc('\n', stderr);
}

bool ha_night_log_run(struct ha_night_log *n, const struct ha_night_step *step, int *code)
{
    struct ha_night_step s = *step;
    struct ha_why why = { "" };
    const uint64_t begin = ha_now_ns();
    s.folder = n->folder;
    *code = 0;
    if (!n->quiet) say(&s);
    const enum ha_status status = ha_night_step(&s, code, &why);
    json_array_append_new(json_object_get(n->said, "steps"),
                          json_pack("{s:o, s:o, s:i, s:f}", "name", ha_json_text(s.name), "command", texts(&s), "exit",
                                    *code, "seconds", (double)(ha_now_ns() - begin) / 1e9));
    if (status != HA_OK) ha_night_log_note(n, "%s", why.text);
    return status == HA_OK;
}

/* ---- its folder -------------------------------------------------------------------------------------------------- */

enum ha_exit ha_night_take_folder(const char *path, const char *whose, struct ha_why *why)
{
    struct ha_taken taken;
    const enum ha_exit code = ha_folder_take(&taken, path, HA_TAKE_NEW, why);
    if (code == HA_EXIT_OK) ha_own_file_close(taken.fd); /* its steps have folders of their own */
    else if (code == HA_EXIT_USAGE && strstr(why->text, "not empty"))
        ha_why(why, HA_ERROR, "-o %s: the folder is not empty; %s has one of its own", path, whose);
    return code;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

void ha_words_add(struct ha_words *w, const char *word)
{
    if (w->words < HA_STEP_WORDS) w->word[w->words++] = word;
}

void ha_words_add_number(struct ha_words *w, const char *option, uint64_t number, const char *unit)
{
    char *text = w->number[w->numbers++];
    snprintf(text, sizeof w->number[0], "%" PRIu64 "%s", number, unit);
    ha_words_add(w, option);
    ha_words_add(w, text);
}

void ha_words_add_folder(struct ha_words *w, const char *folder, const char *name)
{
    snprintf(w->folder, sizeof w->folder, "%.3900s/%s", folder, name);
    ha_words_add(w, "-o");
    ha_words_add(w, w->folder);
}
