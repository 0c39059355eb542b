#include "harness/engine/suite_file.h"

#include "harness/base/file.h"
#include "harness/base/program.h"
#include "harness/base/registry.h"
#include "harness/base/why.h"
#include "harness/engine/point.h"

#include <dirent.h>
#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_BYTES = 16384, FILE_BYTES = 1 << 18, SECTIONS_MAX = 256, FOUND_MAX = HA_NAMES_MAX };

struct reader {
    const char *name, *rest; /* of the text; rest: not yet read */
    size_t line;
    size_t section_line; /* of the latest "[...", 0: none yet */
    size_t open_line;    /* of the section that is being read, 0: none */
    size_t empty_line;   /* of one without a key, of which inih tells nothing */
    bool too_long;
    char section[64];
    struct ha_file_section standard, own; /* standard: of [default] */
    char names[SECTIONS_MAX][64];
    size_t lines[SECTIONS_MAX], sections, made;
    enum ha_status (*each)(void *arg, const struct ha_file_section *section, struct ha_why *why);
    void *arg;
    enum ha_status status;
    struct ha_why *why;
};

/* ---- sections ---------------------------------------------------------------------------------------------------- */

static bool is_default(const struct reader *r) { return !strcmp(r->section, "default"); }

static enum ha_status copy_standard(struct reader *r)
{
    ha_assignments_free(&r->own.keys);
    r->own = r->standard;
    r->own.keys = (struct ha_assignments){ .file = r->name, .section = r->section, .line = r->open_line };
    r->own.keys.cover = r->standard.keys.cover;
    r->own.keys.most = r->standard.keys.most;
    for (size_t i = 0; i < r->standard.keys.count; i++) {
        const struct ha_assignment *s = &r->standard.keys.of[i];
        HA_TRY(ha_assign(&r->own.keys, s->name, s->values, s->line, r->why));
        r->own.keys.of[r->own.keys.count - 1].own = false;
    }
    return HA_OK;
}

static enum ha_status close_section(struct reader *r)
{
    if (!r->open_line || is_default(r)) return HA_OK;
    r->made++;
    return r->each(r->arg, &r->own, r->why);
}

static enum ha_status open_section(struct reader *r, const char *name)
{
    if (r->sections == SECTIONS_MAX)
        return ha_why(r->why, HA_ERROR, "%s:%zu: more than %d sections", r->name, r->section_line, SECTIONS_MAX);
    for (size_t i = 0; i < r->sections; i++)
        if (!strcmp(r->names[i], name))
            return ha_why(r->why, HA_ERROR, "%s:%zu: section [%s] is there twice; first in line %zu", r->name,
                          r->section_line, name, r->lines[i]);
    if (!strcmp(name, "default") && r->sections)
        return ha_why(r->why, HA_ERROR, "%s:%zu: [default] is the first section, or there is none", r->name,
                      r->section_line);
    snprintf(r->names[r->sections], sizeof *r->names, "%s", name);
    r->lines[r->sections++] = r->section_line;
    snprintf(r->section, sizeof r->section, "%s", name);
    r->open_line = r->section_line;
    return copy_standard(r);
}

static enum ha_status set_word(char out[64], const char *key, const char *value, struct ha_why *why)
{
    if (strlen(value) >= 64 || value[strcspn(value, ha_blanks)])
        return ha_why(why, HA_ERROR, "%s: '%.60s' is not one word", key, value);
    snprintf(out, 64, "%s", value);
    return HA_OK;
}

static enum ha_status set_cover(struct ha_file_section *s, const char *value, struct ha_why *why)
{
    static const char *const words[] = { "pairs", "values", NULL };
    size_t i;
    HA_TRY(ha_word_find("cover", value, words, &i, why));
    s->keys.cover = i ? HA_COVERS_VALUES : HA_COVERS_PAIRS;
    return HA_OK;
}

static enum ha_status set_cost(struct ha_file_section *s, const char *value, struct ha_why *why)
{
    char *end;
    s->keys.most = strtod(value, &end);
    if (!*end && s->keys.most > 0 && s->keys.most <= 1) return HA_OK;
    return ha_why(why, HA_ERROR, "cost: '%.40s' is not a number above 0, at most 1", value);
}

/* *line: where the section has said it, 0: nowhere yet; what [default] says, a section may say otherwise */
static enum ha_status set_head(struct reader *r, struct ha_file_section *s, size_t *line, const char *key,
                               const char *value)
{
    if (*line > r->open_line) return ha_why(r->why, HA_ERROR, "key '%s' is there twice; first in line %zu", key, *line);
    *line = r->line;
    if (line == &s->time_line) return ha_duration_parse(value, &s->time_ns, r->why);
    if (line == &s->cover_line) return set_cover(s, value, r->why);
    if (line == &s->cost_line) return set_cost(s, value, r->why);
    return set_word(line == &s->suite_line ? s->suite : s->axis, key, value, r->why);
}

static enum ha_status set_key(struct reader *r, const char *key, const char *value)
{
    struct ha_file_section *s = is_default(r) ? &r->standard : &r->own;
    if (!value[strspn(value, ha_blanks)]) return ha_why(r->why, HA_ERROR, "key '%s' has no value", key);
    if (!strcmp(key, "suite")) return set_head(r, s, &s->suite_line, key, value);
    if (!strcmp(key, "axis")) return set_head(r, s, &s->axis_line, key, value);
    if (!strcmp(key, "time")) return set_head(r, s, &s->time_line, key, value);
    if (!strcmp(key, "cover")) return set_head(r, s, &s->cover_line, key, value);
    if (!strcmp(key, "cost")) return set_head(r, s, &s->cost_line, key, value);
    return ha_assign(&s->keys, key, value, r->line, r->why);
}

static enum ha_status add_entry(struct reader *r, const char *section, const char *key, const char *value)
{
    if (!r->section_line)
        return ha_why(r->why, HA_ERROR, "%s:%zu: key '%.60s' stands before the first [section]", r->name, r->line, key);
    if (r->open_line != r->section_line) {
        HA_TRY(close_section(r));
        HA_TRY(open_section(r, section));
    }
    const enum ha_status status = set_key(r, key, value);
    return status == HA_OK ? HA_OK : ha_why_prefix(r->why, status, "%s:%zu", r->name, r->line);
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* inih's handler: 0 stops */
static int on_entry(void *user, const char *section, const char *key, const char *value)
{
    struct reader *r = user;
    r->status = add_entry(r, section, key, value);
    return r->status == HA_OK;
}

static void note_empty(struct reader *r)
{
    if (r->section_line && r->open_line != r->section_line && !r->empty_line) r->empty_line = r->section_line;
}

/* fgets from memory for inih, which does not tell its handler the line */
static char *next_line(char *out, int size, void *stream)
{
    struct reader *r = stream;
    const size_t n = strcspn(r->rest, "\n");
    if (!*r->rest || r->too_long) return NULL;
    r->line++;
    r->too_long = n + 2 > (size_t)size;
    if (r->too_long) return NULL;
    memcpy(out, r->rest, n);
    out[n] = '\n';
    out[n + 1] = 0;
    r->rest += r->rest[n] ? n + 1 : n;
    if (out[strspn(out, ha_blanks)] != '[') return out;
    note_empty(r);
    r->section_line = r->line;
    return out;
}

static enum ha_status parse(struct reader *r)
{
    static char comment_starts[] = ";#";
    ini_use_stack = ini_allow_realloc = ini_allow_multiline = ini_allow_bom = false;
    ini_max_line = ini_initial_alloc = LINE_BYTES;
    ini_stop_on_first_error = true;
    ini_inline_comment_prefixes = comment_starts;
    const int bad = ini_parse_stream(next_line, r, on_entry, r);
    if (r->status != HA_OK) return r->status;
    if (r->too_long)
        return ha_why(r->why, HA_ERROR, "%s:%zu: the line is longer than %d bytes", r->name, r->line, LINE_BYTES - 2);
    if (bad > 0) return ha_why(r->why, HA_ERROR, "%s:%d: neither [section] nor key = value", r->name, bad);
    if (bad < 0) return ha_why(r->why, HA_ERROR, "out of memory");
    note_empty(r);
    if (r->empty_line) return ha_why(r->why, HA_ERROR, "%s:%zu: the section has no key", r->name, r->empty_line);
    HA_TRY(close_section(r));
    return r->made ? HA_OK : ha_why(r->why, HA_ERROR, "%s: no case", r->name);
}

enum ha_status ha_suite_file_parse(const char *name, const char *text,
                                   enum ha_status (*each)(void *arg, const struct ha_file_section *section,
                                                          struct ha_why *why),
                                   void *arg, struct ha_why *why)
{
    struct reader *r = calloc(1, sizeof *r);
    if (!r) return ha_why(why, HA_ERROR, "out of memory");
    r->name = name;
    r->rest = text;
    r->each = each;
    r->arg = arg;
    r->why = why;
    const enum ha_status status = parse(r);
    ha_assignments_free(&r->standard.keys);
    ha_assignments_free(&r->own.keys);
    free(r);
    return status;
}

enum ha_status ha_suite_file_load(const char *path, char **out, struct ha_why *why)
{
    char *text = calloc(1, FILE_BYTES + 2);
    FILE *f = text ? ha_file_read(path, why) : NULL;
    enum ha_status status = f ? HA_OK : HA_ERROR;
    if (!text) ha_why(why, HA_ERROR, "out of memory");
    const size_t n = f ? fread(text, 1, FILE_BYTES + 1, f) : 0;
    if (status == HA_OK && ferror(f)) status = ha_why(why, HA_ERROR, "%s: %s", path, strerror(errno));
    if (status == HA_OK && n > FILE_BYTES) status = ha_why(why, HA_ERROR, "%s: larger than %d bytes", path, FILE_BYTES);
    if (status == HA_OK && memchr(text, 0, n)) status = ha_why(why, HA_ERROR, "%s: not a text file", path);
    if (f) fclose(f);
    if (n && !strncmp(text, "\xef\xbb\xbf", 3)) memmove(text, text + 3, n - 2); /* the mark of UTF-8 */
    if (status == HA_OK) *out = text;
    else free(text);
    return status;
}

/* ---- by name ----------------------------------------------------------------------------------------------------- */

/* Suite files, by the name without folder and ending; of two with one name the first. */
struct found {
    struct {
        char *name, *path;
    } of[FOUND_MAX];
    size_t count;
};

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* How long the name is without its ending; 0: it is no file of cases or steps. */
static size_t stem_of(const char *name)
{
    static const char *const endings[] = { ".suite", HA_STEPS_ENDING };
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t ending = strlen(endings[i]);
        if (n > ending && !strcmp(name + n - ending, endings[i])) return n - ending;
    }
    return 0;
}

bool ha_suite_has_steps(const char *path)
{
    const size_t n = stem_of(path);
    return n && !strcmp(path + n, HA_STEPS_ENDING);
}

static const char *path_of(const struct found *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (!strcmp(f->of[i].name, name)) return f->of[i].path;
    return NULL;
}

static void add_found(struct found *f, const char *path, const char *file)
{
    if (!stem_of(file) || !is_file(path) || f->count == FOUND_MAX) return;
    char *name = strndup(file, stem_of(file)), *copy = strdup(path);
    if (name && copy && !path_of(f, name)) {
        f->of[f->count].name = name;
        f->of[f->count++].path = copy;
        return;
    }
    free(name);
    free(copy);
}

static void scan(struct found *f, const char *dir, int depth)
{
    struct dirent **entries;
    const int n = scandir(dir, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char path[HA_SUITE_PATH_MAX];
        const char *file = entries[i]->d_name;
        if (file[0] != '.' && (size_t)snprintf(path, sizeof path, "%s/%s", dir, file) < sizeof path) {
            add_found(f, path, file);
            if (depth > 0) scan(f, path, depth - 1);
        }
        free(entries[i]);
    }
    if (n >= 0) free(entries);
}

/* Those that come with the program: suites/ and suites/FAMILY/ of its source tree, where it is build/PROFILE/habench,
 * or of where it is installed, as PREFIX/bin/habench: PREFIX/share/habench/suites. A suite of the current folder goes
 * by its path, and never in place of one of these. */
static void scan_all(struct found *f)
{
    char exe[HA_SUITE_PATH_MAX], dir[HA_SUITE_PATH_MAX + 32];
    char *slash = ha_program_folder(exe, sizeof exe) ? exe + strlen(exe) : NULL;
    while (slash && !f->count) {
        *slash = 0;
        snprintf(dir, sizeof dir, "%s/suites", exe);
        scan(f, dir, 1);
        snprintf(dir, sizeof dir, "%s/share/habench/suites", exe);
        scan(f, dir, 1);
        slash = strrchr(exe, '/');
    }
}

static void release(struct found *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->of[i].name);
        free(f->of[i].path);
    }
}

enum ha_status ha_unknown_head(struct ha_why *why, const char *name, const char *const *names)
{
    if (ha_nearest(name, names)) return ha_unknown(why, "variant or suite", name, names);
    return ha_why(why, HA_ERROR,
                  "unknown variant or suite '%.80s'; `habench list suites` and `habench list variants` print all",
                  name);
}

/* suite files, and what needs none: suites and variants */
static void unknown(const struct found *f, const char *name, struct ha_why *why)
{
    const char *names[HA_NAMES_MAX + 1] = { NULL };
    size_t n = 0;
    for (; n < f->count; n++) names[n] = f->of[n].name;
    ha_heads(names, n);
    for (size_t i = n; names[i]; i++)
        if (!strcmp(names[i], name)) {
            ha_why(why, HA_ERROR, "there is no suite file of '%s' (`habench list suites` prints those that are there)",
                   name);
            return;
        }
    ha_unknown_head(why, name, names);
}

enum ha_status ha_suite_find(const char *name, char path[HA_SUITE_PATH_MAX], struct ha_why *why)
{
    if (strlen(name) >= HA_SUITE_PATH_MAX) return ha_why(why, HA_ERROR, "the suite's name is too long");
    if (strchr(name, '/') || stem_of(name)) {
        if (access(name, F_OK) != 0) return ha_why(why, HA_ERROR, "%.400s: there is no such suite file", name);
        memcpy(path, name, strlen(name) + 1);
        return HA_OK;
    }

    struct found f = { 0 };
    scan_all(&f);
    const char *known = path_of(&f, name);
    if (known) snprintf(path, HA_SUITE_PATH_MAX, "%s", known);
    else unknown(&f, name, why);
    release(&f);
    return known ? HA_OK : HA_ERROR;
}

void ha_suite_list(FILE *out)
{
    struct found f = { 0 };
    scan_all(&f);
    for (size_t i = 0; i < f.count; i++) fprintf(out, "%-16s %s\n", f.of[i].name, f.of[i].path);
    for (size_t i = 0; i < ha_suites_count; i++)
        if (!ha_suites_all[i]->head && !path_of(&f, ha_suites_all[i]->name))
            fprintf(out, "%-16s %s\n", ha_suites_all[i]->name, ha_suites_all[i]->doc);
    release(&f);
}
