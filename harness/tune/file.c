#include "harness/tune/file.h"

#include "harness/base/csv.h"
#include "harness/base/file.h"
#include "harness/base/program.h"
#include "harness/base/registry.h"
#include "harness/base/version.h"
#include "harness/base/why.h"
#include "harness/tune/make.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- rows -------------------------------------------------------------------------------------------------------- */

enum { SCHEMA = 1, PATH_BYTES = 4096 };
enum column {
    AT_SCHEMA,
    AT_CPU,
    AT_BUILD,
    AT_THREADS,
    AT_DTYPE,
    AT_PATTERN,
    AT_ISA,
    AT_KIND,
    AT_BYTES,
    AT_TAKEN,
    AT_RATIO,
    AT_LO,
    AT_HI,
    AT_CONSTANTS,
    COLUMNS
};
static const char *const header[COLUMNS] = {
    [AT_SCHEMA] = "schema_version",
    [AT_CPU] = "cpu",
    [AT_BUILD] = "build",
    [AT_THREADS] = "threads",
    [AT_DTYPE] = "dtype",
    [AT_PATTERN] = "pattern",
    [AT_ISA] = "isa",
    [AT_KIND] = "ahead_kind",
    [AT_BYTES] = "ahead_bytes",
    [AT_TAKEN] = "taken",
    [AT_RATIO] = "ratio",
    [AT_LO] = "ratio_lo",
    [AT_HI] = "ratio_hi",
    [AT_CONSTANTS] = "ratio_constants",
};

struct reading {
    struct ha_tuning *out;
    const char *path;
    char mine[160], other[160]; /* this CPU; one that the file has */
    bool begun;
    struct ha_why *why;
};

static enum ha_status bad(const struct reading *r, size_t line, enum column at, const char *value, const char *wanted)
{
    return ha_why(r->why, HA_ERROR, "plan %.300s:%zu: %s '%.60s' is not %s; `habench plan -o FILE` writes a plan",
                  r->path, line, header[at], value, wanted);
}

static bool whole(const char *text, double most, double *out)
{
    return ha_csv_number_parse(text, out) && *out >= 0 && *out <= most && *out == floor(*out);
}

static bool is_isa(const char *name)
{
    for (size_t i = 0; i < ha_kernels_count; i++)
        if (!strcmp(ha_kernels_all[i]->name, name)) return true;
    return false;
}

static size_t word(const char *const *words, size_t count, const char *text)
{
    size_t i = 0;
    while (i < count && strcmp(words[i], text) != 0) i++;
    return i;
}

/* shares of what memory gives: above 1 where something stays in a cache */
static bool share(const char *text, double *out)
{
    return ha_csv_number_parse(text, out) && !isnan(*out) && *out >= 0 && *out < 100;
}

static enum ha_status read_choice(struct reading *r, size_t line, char **f)
{
    const char *const types[] = { ha_dtype_name(HA_F32), ha_dtype_name(HA_F16), ha_dtype_name(HA_BF16) };
    struct ha_choice c = { 0 };
    double threads, bytes = 0, taken;
    if (!whole(f[AT_THREADS], 65536, &threads) || threads < 1)
        return bad(r, line, AT_THREADS, f[AT_THREADS], "a number of threads");
    const size_t type = word(types, HA_DTYPE_COUNT, f[AT_DTYPE]),
                 pattern = word(ha_pattern_words, HA_CHOICE_PATTERNS, f[AT_PATTERN]),
                 kind = word(ha_reach_words, HA_REACH_KINDS, f[AT_KIND]);
    if (type == HA_DTYPE_COUNT) return bad(r, line, AT_DTYPE, f[AT_DTYPE], "f32, f16 or bf16");
    if (pattern == HA_CHOICE_PATTERNS) return bad(r, line, AT_PATTERN, f[AT_PATTERN], "linear, list, passes or rows");
    if (!is_isa(f[AT_ISA])) return bad(r, line, AT_ISA, f[AT_ISA], "a table of `habench list kernels`");
    if (kind == HA_REACH_KINDS) return bad(r, line, AT_KIND, f[AT_KIND], "l2, l1, streams, twice, one or none");
    if (!whole(f[AT_BYTES], HA_REACH_MOST, &bytes))
        return bad(r, line, AT_BYTES, f[AT_BYTES], "a number of bytes up to 1048576");
    if (!whole(f[AT_TAKEN], 1, &taken)) return bad(r, line, AT_TAKEN, f[AT_TAKEN], "0 or 1");
    if (!share(f[AT_RATIO], &c.ratio)) return bad(r, line, AT_RATIO, f[AT_RATIO], "a share");
    if (!share(f[AT_LO], &c.lo)) return bad(r, line, AT_LO, f[AT_LO], "a share");
    if (!share(f[AT_HI], &c.hi)) return bad(r, line, AT_HI, f[AT_HI], "a share");
    if (!share(f[AT_CONSTANTS], &c.constants)) return bad(r, line, AT_CONSTANTS, f[AT_CONSTANTS], "a share");
    c.threads = (size_t)threads;
    c.dtype = (enum ha_dtype)type;
    c.pattern = (unsigned)pattern;
    c.reach = (struct ha_reach){ (enum ha_reach_kind)kind, (uint32_t)bytes };
    c.taken = taken > 0;
    snprintf(c.isa, sizeof c.isa, "%s", f[AT_ISA]);
    for (size_t i = 0; i < r->out->choices; i++) {
        const struct ha_choice *x = &r->out->choice[i];
        if (x->threads == c.threads && x->dtype == c.dtype && x->pattern == c.pattern
            && (!strcmp(x->isa, c.isa) || (x->taken && c.taken)))
            return ha_why(r->why, HA_ERROR, "plan %.300s:%zu: a second choice of what another row chooses", r->path,
                          line);
    }
    if (r->out->choices == HA_CHOICES_MOST)
        return ha_why(r->why, HA_ERROR, "plan %.300s:%zu: more than %d rows of one CPU", r->path, line,
                      HA_CHOICES_MOST);
    r->out->choice[r->out->choices++] = c;
    return HA_OK;
}

static enum ha_status read_row(void *arg, size_t line, char **f, size_t count)
{
    struct reading *r = arg;
    bool same = count == COLUMNS;
    for (size_t i = 0; i < COLUMNS && same && !r->begun; i++) same = !strcmp(f[i], header[i]);
    if (!same)
        return ha_why(r->why, HA_ERROR, "plan %.300s:%zu: this is no plan; `habench plan -o FILE` writes one", r->path,
                      line);
    if (!r->begun) {
        r->begun = true;
        return HA_OK;
    }
    double schema;
    if (!whole(f[AT_SCHEMA], SCHEMA, &schema) || schema < SCHEMA)
        return bad(r, line, AT_SCHEMA, f[AT_SCHEMA], "1, which this version reads");
    if (strcmp(f[AT_CPU], r->mine) != 0) {
        snprintf(r->other, sizeof r->other, "%s", f[AT_CPU]);
        return HA_OK;
    }
    snprintf(r->out->build, sizeof r->out->build, "%s", f[AT_BUILD]);
    return read_choice(r, line, f);
}

enum ha_status ha_tune_read(struct ha_tuning *out, const char *path, const char *from, struct ha_why *why)
{
    struct reading r = { .out = out, .path = path, .why = why };
    struct stat file;
    memset(out, 0, sizeof *out);
    ha_tuning_cpu(r.mine);
    if (stat(path, &file) != 0) return ha_why(why, HA_ERROR, "plan %.300s: %s", path, strerror(errno));
    if (file.st_size > 1 << 20) return ha_why(why, HA_ERROR, "plan %.300s: larger than a plan can be", path);
    const enum ha_status status = ha_csv_read(path, read_row, &r, why);
    if (status != HA_OK && strncmp(why->text, "plan ", 5) != 0) ha_why_prefix(why, status, "plan");
    HA_TRY(status);
    if (!r.begun) return ha_why(why, HA_ERROR, "plan %.300s: it is empty; `habench plan -o FILE` writes a plan", path);
    if (out->choices == 0)
        return ha_why(why, HA_FAIL, "plan %.300s is of '%.100s', this CPU is '%.100s'; `habench plan` measures it",
                      path, *r.other ? r.other : "none", r.mine);
    snprintf(out->cpu, sizeof out->cpu, "%s", r.mine);
    ha_tuning_name(out, from);
    return HA_OK;
}

static enum ha_status write_rows(struct ha_csv *csv, const struct ha_tuning *t, struct ha_why *why)
{
    HA_TRY(ha_csv_row(csv, header, COLUMNS, why));
    for (size_t i = 0; i < t->choices; i++) {
        const struct ha_choice *c = &t->choice[i];
        char threads[32], bytes[32], number[4][32];
        const double x[4] = { c->ratio, c->lo, c->hi, c->constants };
        snprintf(threads, sizeof threads, "%zu", c->threads);
        snprintf(bytes, sizeof bytes, "%u", (unsigned)c->reach.bytes);
        for (size_t j = 0; j < 4; j++) snprintf(number[j], sizeof number[j], "%.4f", x[j]);
        const char *const row[COLUMNS] = {
            [AT_SCHEMA] = "1",
            [AT_CPU] = t->cpu,
            [AT_BUILD] = t->build,
            [AT_THREADS] = threads,
            [AT_DTYPE] = ha_dtype_name(c->dtype),
            [AT_PATTERN] = ha_pattern_words[c->pattern],
            [AT_ISA] = c->isa,
            [AT_KIND] = ha_reach_words[c->reach.kind],
            [AT_BYTES] = bytes,
            [AT_TAKEN] = c->taken ? "1" : "0",
            [AT_RATIO] = number[0],
            [AT_LO] = number[1],
            [AT_HI] = number[2],
            [AT_CONSTANTS] = number[3],
        };
        HA_TRY(ha_csv_row(csv, row, COLUMNS, why));
    }
    return HA_OK;
}

/* The plan is written whole; *csv: into `part`. */
static enum ha_status open_part(struct ha_csv **csv, char part[PATH_BYTES], char to[PATH_BYTES], const char *path,
                                struct ha_why *why)
{
    HA_TRY(ha_file_place(part, to, path, why));
    ha_file_drop(part, to); /* of a process that was killed and had this number */
    return ha_csv_open(csv, part, false, why);
}

enum ha_status ha_tune_writable(const char *path, struct ha_why *why)
{
    char part[PATH_BYTES], to[PATH_BYTES];
    struct ha_csv *csv;
    HA_TRY(ha_file_place(part, to, path, why));
    if (!strcmp(part, to)) return HA_OK; /* a pipe waits for who reads it */
    HA_TRY(open_part(&csv, part, to, path, why));
    ha_file_drop(part, to);
    return ha_csv_close(csv, why);
}

enum ha_status ha_tune_write(const struct ha_tuning *t, const char *path, struct ha_why *why)
{
    char part[PATH_BYTES], to[PATH_BYTES];
    struct ha_csv *csv;
    HA_TRY(open_part(&csv, part, to, path, why));
    const enum ha_status written = write_rows(csv, t, why), closed = ha_csv_close(csv, written == HA_OK ? why : NULL);
    if (written == HA_OK && closed == HA_OK) return ha_file_take_name(part, to, why);
    ha_file_drop(part, to);
    return HA_ERROR;
}

/* ---- which plan -------------------------------------------------------------------------------------------------- */

static enum ha_status cache_path(char path[PATH_BYTES], const char *what, struct ha_why *why)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[PATH_BYTES / 2], cpu[160], name[256];
    int n = -1;
    if (cache && *cache == '/') n = snprintf(folder, sizeof folder, "%s", cache);
    else if (home && *home == '/') n = snprintf(folder, sizeof folder, "%s/.cache", home);
    if (n < 0 || (size_t)n >= sizeof folder)
        return ha_why(why, HA_WAIVED, "neither XDG_CACHE_HOME nor HOME names a folder for plans");
    ha_tuning_cpu(cpu);
    snprintf(name, sizeof name, "%s-%s-%.60s", what, cpu, ha_version());
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '-';
    mkdir(folder, 0777);
    snprintf(path, PATH_BYTES, "%s/habench", folder);
    mkdir(path, 0777);
    snprintf(path, PATH_BYTES, "%s/habench/%s.csv", folder, name);
    return HA_OK;
}

enum ha_status ha_tune_cache_path(char path[PATH_BYTES], struct ha_why *why) { return cache_path(path, "plan", why); }

/* a plan for this CPU among the files of a folder */
static bool find_shipped(struct ha_tuning *out, const char *folder)
{
    struct dirent **entry;
    const int count = scandir(folder, &entry, NULL, alphasort);
    bool found = false;
    for (int i = 0; i < count; i++) {
        const char *name = entry[i]->d_name, *end = strrchr(name, '.');
        char path[PATH_BYTES];
        struct ha_why why;
        const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
        if (!found && end && !strcmp(end, ".csv") && n > 0 && (size_t)n < sizeof path) {
            const enum ha_status status = ha_tune_read(out, path, "shipped", &why);
            found = status == HA_OK;
            if (status == HA_ERROR) fprintf(stderr, "warning: %s\n", why.text);
        }
        free(entry[i]);
    }
    if (count >= 0) free(entry);
    return found;
}

static bool find_own(struct ha_tuning *out, const char *what, const char *from)
{
    char path[PATH_BYTES];
    struct ha_why why;
    if (cache_path(path, what, &why) != HA_OK || access(path, F_OK) != 0) return false;
    if (ha_tune_read(out, path, from, &why) == HA_OK) return true;
    fprintf(stderr, "warning: %s; it is not used\n", why.text);
    return false;
}

/* Kept, so that runs of one machine can be compared. */
static bool choose_quickly(struct ha_tuning *out)
{
    static const uint64_t limit_ns = 900000000;
    struct ha_tune_doubt doubt;
    struct ha_why why;
    char path[PATH_BYTES];
    const struct ha_tune_options o = { .quick = true, .limit_ns = limit_ns };
    if (ha_tune_make(out, &o, &doubt, &why) != HA_OK || out->choices == 0) return false;
    if (cache_path(path, "quick", &why) == HA_OK) ha_tune_write(out, path, &why);
    return true;
}

enum ha_status ha_tune_find_in(const char *shipped, const char *asked, bool measures, struct ha_why *why)
{
    struct ha_tuning t;
    const char *named = asked ? asked : getenv("HABENCH_PLAN");
    ha_tuning_set(NULL);
    if (named && *named) {
        if (!strcmp(named, "constants")) return HA_OK;
        if (ha_tune_read(&t, named, "file", why) != HA_OK) return HA_ERROR;
        ha_tuning_set(&t);
    } else if (find_own(&t, "plan", "measured") || (shipped && find_shipped(&t, shipped))
               || find_own(&t, "quick", "quick") || (measures && choose_quickly(&t)))
        ha_tuning_set(&t);
    return HA_OK;
}

enum ha_status ha_tune_find(const char *asked, bool measures, struct ha_why *why)
{
    char shipped[PATH_BYTES];
    const bool found = ha_program_beside(shipped, sizeof shipped, "kernels/plans", "share/habench/kernels/plans");
    return ha_tune_find_in(found ? shipped : NULL, asked, measures, why);
}
