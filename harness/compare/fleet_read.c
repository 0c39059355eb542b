#include "harness/compare/fleet.h"

#include "harness/base/array.h"
#include "harness/base/text.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, THREADS_MOST = 16, NAME_MOST = 200 };
static const char rank_ending[] = ".rank.json";

/* Letters, digits and `-_.`: nothing else reaches a path. */
static bool safe(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return *name && *name != '.' && strlen(name) <= NAME_MOST && !name[strspn(name, allowed)];
}

static bool is_file(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    struct stat about;
    return (size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path && stat(path, &about) == 0
           && S_ISREG(about.st_mode);
}

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* ---- expected, and ranks ----------------------------------------------------------------------------------------- */

struct names {
    char **at;
    size_t count, room;
};

static void names_free(struct names *n)
{
    for (size_t i = 0; i < n->count; i++) free(n->at[i]);
    free(n->at);
}

static enum ha_status read_expected(struct names *expected, const char *folder, struct ha_why *why)
{
    char path[PATH_BYTES], *line = NULL;
    size_t room = 0;
    enum ha_status status = HA_OK;
    if (!is_file(folder, "expected")) return HA_OK;
    snprintf(path, sizeof path, "%.4000s/expected", folder);
    FILE *in = fopen(path, "re");
    if (!in) return ha_why(why, HA_ERROR, "%s: cannot be read", path);
    for (size_t number = 1; status == HA_OK && getline(&line, &room, in) > 0; number++) {
        char *name = line + strspn(line, " \t");
        name[strcspn(name, " \t\r\n#")] = 0;
        if (!*name) continue;
        if (!safe(name)) status = ha_why(why, HA_ERROR, "%s:%zu: '%.60s' is no name of a machine", path, number, name);
        else if (!ha_array_room(&expected->at, &expected->room, expected->count + 1, sizeof *expected->at)
                 || !(expected->at[expected->count] = strdup(name)))
            status = ha_why(why, HA_ERROR, "out of memory");
        else expected->count++;
    }
    free(line);
    fclose(in);
    if (status != HA_OK) ha_text_clean(why->text);
    return status;
}

static const char *text_of(const json_t *of, const char *name)
{
    const char *text = json_string_value(json_object_get(of, name));
    return text ? text : "";
}

/* What became of a rank that left no record, or one that it did not end well. */
static void judge_rank(struct ha_fleet *f, struct ha_fleet_machine *m, const json_t *rank)
{
    char text[300];
    const json_t *exit = json_object_get(rank, "exit"), *signal = json_object_get(rank, "signal");
    const json_int_t code = json_integer_value(exit);
    const char *host = text_of(rank, "host");
    text[0] = 0;
    if (*host) m->host = ha_fleet_keep(f, host);
    if (json_is_integer(signal))
        snprintf(text, sizeof text, "ended by signal %lld at %.40s", json_integer_value(signal),
                 text_of(rank, "ended_utc"));
    else if (json_is_integer(exit) && (code >= HA_EXIT_USAGE && code != HA_EXIT_WAIVED))
        snprintf(text, sizeof text, "ended with exit code %lld at %.40s", code, text_of(rank, "ended_utc"));
    if (*text) m->state = HA_FLEET_DIED;
    else if (!json_is_string(json_object_get(rank, "ended_utc")) && !json_is_integer(exit)) {
        m->state = HA_FLEET_DID_NOT_END;
        snprintf(text, sizeof text, "began %.40s, and has not ended", text_of(rank, "begun_utc"));
    } else return;
    m->said = ha_fleet_keep(f, text);
}

struct ranks {
    size_t files, most; /* files there are, and ranks that they speak of */
    size_t records;     /* folders that have the file of a record, whole or not */
};

static enum ha_status read_rank(struct ha_fleet *f, struct ranks *ranks, const char *folder, const char *file,
                                struct ha_why *why)
{
    char path[PATH_BYTES], name[NAME_MOST + 1], line[PATH_BYTES + 64];
    const size_t length = strlen(file) - strlen(rank_ending);
    snprintf(path, sizeof path, "%.3000s/%.300s", folder, file);
    snprintf(name, sizeof name, "%.*s", (int)(length < NAME_MOST ? length : NAME_MOST), file);
    if (!safe(name) || !is_file(folder, file)) return HA_OK;
    struct ha_fleet_machine *m = ha_fleet_machine(f, name);
    if (!m) return ha_why(why, HA_ERROR, "out of memory");
    json_t *rank = json_load_file(path, 0, NULL);
    ranks->files++;
    m->ranked = true;
    if (json_is_object(rank)) {
        const json_int_t all = json_integer_value(json_object_get(rank, "ranks"));
        if (all > 0 && all < 10000000 && (size_t)all > ranks->most) ranks->most = (size_t)all;
        judge_rank(f, m, rank);
    } else {
        m->state = HA_FLEET_DIED;
        m->said = "its rank file is damaged";
        snprintf(line, sizeof line, "%s: no rank file, or a damaged one", path);
        ha_fleet_note(f, line);
    }
    json_decref(rank);
    return m->said && m->host ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
}

/* ---- folders ----------------------------------------------------------------------------------------------------- */

static int visible(const struct dirent *e) { return e->d_name[0] != '.'; }

static bool is_rank(const char *name)
{
    const size_t n = strlen(name), ending = strlen(rank_ending);
    return n > ending && !strcmp(name + n - ending, rank_ending);
}

/* What a way of running it left (docs/fleet.md): no machine's. */
static bool is_way(const char *name)
{
    return !strcmp(name, "alone") || !strcmp(name, "together") || !strcmp(name, "pairs");
}

static enum ha_status take_entry(struct ha_fleet *f, struct ranks *ranks, const char *folder, const char *name,
                                 bool records, struct ha_why *why)
{
    char path[PATH_BYTES], line[PATH_BYTES + 64];
    if (is_rank(name)) return read_rank(f, ranks, folder, name, why);
    if (!records || (size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path || !is_folder(path))
        return HA_OK;
    const bool record = is_file(path, "env.json") || is_file(path, "night.json");
    if (is_way(name) && !record) return HA_OK;
    ranks->records += record;
    if (!safe(name)) {
        snprintf(line, sizeof line, "%s: a folder whose name is none of a machine: left out", path);
        ha_fleet_note(f, line);
        return HA_OK;
    }
    struct ha_fleet_machine *m = ha_fleet_machine(f, name);
    if (!m) return ha_why(why, HA_ERROR, "out of memory");
    m->record = true; /* to be read */
    return HA_OK;
}

static enum ha_status list(struct ha_fleet *f, struct ranks *ranks, const char *folder, bool records,
                           struct ha_why *why)
{
    struct dirent **found;
    const int count = scandir(folder, &found, visible, alphasort);
    if (count < 0) return ha_why(why, HA_ERROR, "%s: there is no such folder", folder);
    enum ha_status status = HA_OK;
    for (int i = 0; i < count; i++) {
        if (status == HA_OK) status = take_entry(f, ranks, folder, found[i]->d_name, records, why);
        free(found[i]);
    }
    free(found);
    return status;
}

/* ---- records, by several threads --------------------------------------------------------------------------------- */

struct readers {
    struct ha_fleet *fleet;
    pthread_mutex_t lock; /* of what follows, and of the fleet */
    size_t next;
    enum ha_status status;
    struct ha_why why;
};

static void damaged(struct ha_fleet *f, struct ha_fleet_machine *m, const char *why)
{
    m->record = false;
    m->state = HA_FLEET_DIED;
    m->said = ha_fleet_keep(f, why);
    if (!m->said) m->said = "its record cannot be read";
    ha_fleet_note(f, why);
}

static void take(struct readers *r, size_t i, enum ha_status read, const struct ha_record *record,
                 const struct ha_why *why)
{
    struct ha_fleet_machine *m = &r->fleet->machine[i];
    m->record = false;
    if (read != HA_OK) damaged(r->fleet, m, why->text);
    else if (r->status == HA_OK) {
        if (*record->notes) ha_fleet_note(r->fleet, record->notes);
        r->status = ha_fleet_take(r->fleet, m, record, &r->why);
    }
}

static void *read_records(void *arg)
{
    struct readers *r = arg;
    pthread_mutex_lock(&r->lock);
    while (r->next < r->fleet->count && r->status == HA_OK) {
        char path[PATH_BYTES];
        struct ha_record record;
        struct ha_why why = { "" };
        const size_t i = r->next++;
        if (!r->fleet->machine[i].record) continue;
        snprintf(path, sizeof path, "%.3800s/%s", r->fleet->path, r->fleet->machine[i].name);
        pthread_mutex_unlock(&r->lock);
        const enum ha_status status = ha_record_read(&record, path, &why);
        pthread_mutex_lock(&r->lock);
        take(r, i, status, &record, &why);
        pthread_mutex_unlock(&r->lock);
        ha_record_free(&record);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static enum ha_status read_all(struct ha_fleet *f, struct ha_why *why)
{
    struct readers r = { .fleet = f, .lock = PTHREAD_MUTEX_INITIALIZER, .status = HA_OK };
    pthread_t thread[THREADS_MOST];
    size_t started = 0;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    while ((long)started + 1 < cores && started < THREADS_MOST && started + 1 < f->count
           && ha_thread_start(&thread[started], read_records, &r) == 0)
        started++;
    read_records(&r);
    for (size_t i = 0; i < started; i++) pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&r.lock);
    if (r.status != HA_OK) *why = r.why;
    return r.status;
}

/* ---- who is not there -------------------------------------------------------------------------------------------- */

/* `node07` is there, too, where its devices are, as node07.0, node07.1, ... */
static bool answers(const struct ha_fleet_machine *m, const char *name)
{
    const size_t n = strlen(name);
    if (!strcmp(m->name, name) || !strcmp(m->host, name)) return true;
    return !strncmp(m->name, name, n) && m->name[n] == '.' && m->name[n + 1]
           && !m->name[n + 1 + strspn(m->name + n + 1, "0123456789")];
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ha_fleet_machine *)a)->name, ((const struct ha_fleet_machine *)b)->name);
}

/* Machines whose name is that, or that and a dot, stand together where they are sorted. */
static bool is_there(const struct ha_fleet *f, size_t known, const char *name)
{
    size_t lo = 0, hi = known;
    while (lo < hi) {
        const size_t middle = (lo + hi) / 2;
        if (strcmp(f->machine[middle].name, name) < 0) lo = middle + 1;
        else hi = middle;
    }
    bool found = false;
    for (size_t i = lo; i < known && !strncmp(f->machine[i].name, name, strlen(name)); i++)
        if (answers(&f->machine[i], name)) f->machine[i].expected = found = true;
    for (size_t i = 0; i < known && !found; i++)
        if (!strcmp(f->machine[i].host, name)) f->machine[i].expected = found = true;
    return found;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* A name that is said several times, as a list of slots has it, is one machine. */
static enum ha_status look_for(struct ha_fleet *f, const struct names *expected, bool ranks, struct ha_why *why)
{
    const size_t known = f->count;
    if (known) qsort(f->machine, known, sizeof *f->machine, by_name);
    if (expected->count) qsort(expected->at, expected->count, sizeof *expected->at, by_text);
    for (size_t i = 0; i < expected->count; i++) {
        if (i > 0 && !strcmp(expected->at[i], expected->at[i - 1])) continue;
        f->expected++;
        if (is_there(f, known, expected->at[i])) continue;
        struct ha_fleet_machine m = { .name = ha_fleet_keep(f, expected->at[i]),
                                      .date = "",
                                      .build = "",
                                      .group = SIZE_MAX,
                                      .threshold = -1,
                                      .expected = true };
        m.host = m.name;
        m.state = ranks ? HA_FLEET_NEVER_ANSWERED : HA_FLEET_MISSING;
        m.said = ranks ? "expected, and no rank has answered there" : "expected, and there is no record of it";
        if (!m.name || !ha_array_room(&f->machine, &f->room, f->count + 1, sizeof *f->machine))
            return ha_why(why, HA_ERROR, "out of memory");
        f->machine[f->count++] = m;
    }
    if (f->count) qsort(f->machine, f->count, sizeof *f->machine, by_name);
    for (size_t i = 0; i < f->count; i++) {
        struct ha_fleet_machine *m = &f->machine[i];
        if (m->record || m->state != HA_FLEET_FITS) continue;
        m->state = HA_FLEET_DIED;
        m->said = "its rank ended, and left no record";
    }
    return HA_OK;
}

/* FLEET/alone and FLEET/together have their ranks and who is expected in FLEET. */
static enum ha_status read_parent(struct ha_fleet *f, struct ranks *ranks, struct names *expected, struct ha_why *why)
{
    char path[PATH_BYTES];
    size_t n = strlen(f->path);
    while (n && f->path[n - 1] == '/') n--;
    if (n >= sizeof path - 4) return HA_OK;
    snprintf(path, sizeof path, "%.*s", (int)n, f->path);
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (!is_way(name)) return HA_OK;
    strcat(path, "/..");
    if (!expected->count) HA_TRY(read_expected(expected, path, why));
    return list(f, ranks, path, false, why);
}

static bool has_record(const struct ha_fleet *f)
{
    size_t i = 0;
    while (i < f->count && !f->machine[i].record) i++;
    return i < f->count;
}

enum ha_status ha_fleet_read(struct ha_fleet *f, const char *path, struct ha_why *why)
{
    struct ranks ranks = { 0 };
    struct names expected = { 0 };
    HA_TRY(ha_fleet_begin(f, path, why));
    enum ha_status status = list(f, &ranks, path, true, why);
    if (status == HA_OK) status = read_expected(&expected, path, why);
    if (status == HA_OK) status = read_parent(f, &ranks, &expected, why);
    if (status == HA_OK) status = read_all(f, why);
    if (status == HA_OK) status = look_for(f, &expected, ranks.files > 0, why);
    size_t known = ranks.files; /* those that are expected, and did not answer, have a line of their own */
    for (size_t i = 0; i < f->count; i++) known += f->machine[i].state == HA_FLEET_NEVER_ANSWERED;
    f->never_began = ranks.most > known ? ranks.most - known : 0;
    names_free(&expected);
    const bool fleet = ranks.files || ranks.records || f->expected || has_record(f);
    if (status == HA_OK && !fleet)
        return ha_why(
            why, HA_ERROR,
            "%s: no machine in it: neither a record nor a rank file, nor is one expected: name the folder that "
            "was given to habench run, check or nightly --fleet, or one with a record of each machine",
            path);
    return status;
}
