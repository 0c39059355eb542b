#include "harness/fleet/rank_file.h"

#include "harness/base/file.h"
#include "harness/base/json_line.h"
#include "harness/base/why.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { SCHEMA = 1 };
#define ENDING ".rank.json"

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void set(json_t *row, const char *name, json_t *value) { json_object_set_new(row, name, value); }

static void set_number(json_t *row, const char *name, int number)
{
    set(row, name, number == HA_RANK_NONE ? json_null() : json_integer(number));
}

static void set_text(json_t *row, const char *name, const char *text)
{
    ha_json_set_text(row, name, *text ? text : NULL);
}

static json_t *said(const struct ha_rank_file *f)
{
    json_t *row = json_object();
    set(row, "schema_version", json_integer(SCHEMA));
    set_text(row, "machine", f->of.machine);
    set_text(row, "host", f->of.host);
    set_number(row, "device", f->device);
    set_text(row, "launcher", f->of.launcher);
    set_text(row, "job", f->of.job);
    set(row, "rank", json_integer((json_int_t)f->of.rank));
    set(row, "ranks", f->of.ranks ? json_integer((json_int_t)f->of.ranks) : json_null());
    set(row, "restarts", json_integer((json_int_t)f->of.restarts));
    set(row, "attempts", json_integer((json_int_t)f->attempts));
    set_text(row, "begun_utc", f->begun);
    set_text(row, "ended_utc", f->ended);
    set_number(row, "exit", f->exit);
    set_number(row, "signal", f->signal);
    set(row, "seconds", f->seconds < 0 ? json_null() : json_real(rint(f->seconds * 1e3) / 1e3));
    set_text(row, "where", f->where);
    return row;
}

/* PART takes the name PATH if nothing has it. A file system without hard links has O_EXCL. */
static enum ha_status take_free_name(const char *part, const char *path, struct ha_why *why)
{
    int error = link(part, path) == 0 ? 0 : errno;
    if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS) {
        const int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        if (fd >= 0) {
            close(fd);
            const enum ha_status status = ha_file_take_name(part, path, why);
            if (status != HA_OK) unlink(path); /* the name is free again */
            return status;
        }
        error = errno;
    }
    unlink(part);
    if (error == EEXIST) return HA_WAIVED;
    return error ? ha_why(why, HA_ERROR, "%s: cannot write: %s", path, strerror(error)) : HA_OK;
}

/* Two machines may write beside one name at once: each has a part of its own. */
static enum ha_status open_part(struct ha_whole_file *out, const struct ha_rank_file *f, const char *fleet,
                                struct ha_why *why)
{
    char name[3 * HA_RANK_NAME], host[HA_RANK_NAME];
    strcpy(host, f->of.host);
    ha_rank_safe(host);
    snprintf(name, sizeof name, ".%s.%s.%ld.rank", f->of.machine, host, (long)getpid());
    HA_TRY(ha_whole_file_open(out, fleet, name, why));
    return ha_file_path(out->path, fleet, f->of.machine, ENDING, why);
}

enum ha_status ha_rank_file_write(const struct ha_rank_file *f, const char *fleet, bool first, struct ha_why *why)
{
    struct ha_whole_file out;
    json_t *row = said(f);
    enum ha_status status = open_part(&out, f, fleet, why);
    if (status == HA_OK) {
        bool good = json_dumpf(row, out.file, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15)) == 0;
        good = putc('\n', out.file) != EOF && fflush(out.file) == 0 && fsync(fileno(out.file)) == 0 && good;
        const int error = errno;
        if (!good) {
            ha_whole_file_drop(&out);
            status = ha_why(why, HA_ERROR, "%s: cannot write: %s", out.path, strerror(error));
        } else if (!first) status = ha_whole_file_close(&out, why);
        else if (fclose(out.file) == 0) status = take_free_name(out.part, out.path, why);
        else {
            status = ha_why(why, HA_ERROR, "%s: cannot write: %s", out.path, strerror(errno));
            unlink(out.part);
        }
    }
    json_decref(row);
    return status;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void get_text(const json_t *row, const char *name, char *out, size_t bytes)
{
    const char *text = json_string_value(json_object_get(row, name));
    snprintf(out, bytes, "%s", text ? text : "");
}

static int get_number(const json_t *row, const char *name)
{
    const json_t *value = json_object_get(row, name);
    return json_is_integer(value) ? (int)json_integer_value(value) : HA_RANK_NONE;
}

static uint64_t get_count(const json_t *row, const char *name)
{
    const json_int_t value = json_integer_value(json_object_get(row, name));
    return value < 0 ? 0 : (uint64_t)value;
}

static bool take_row(struct ha_rank_file *f, const json_t *row)
{
    *f = (struct ha_rank_file){ .device = get_number(row, "device"),
                                .exit = get_number(row, "exit"),
                                .signal = get_number(row, "signal"),
                                .attempts = get_count(row, "attempts"),
                                .seconds = -1 };
    f->of.rank = get_count(row, "rank");
    f->of.ranks = get_count(row, "ranks");
    f->of.restarts = get_count(row, "restarts");
    get_text(row, "job", f->of.job, sizeof f->of.job);
    get_text(row, "host", f->of.host, sizeof f->of.host);
    get_text(row, "machine", f->of.machine, sizeof f->of.machine);
    get_text(row, "begun_utc", f->begun, sizeof f->begun);
    get_text(row, "ended_utc", f->ended, sizeof f->ended);
    get_text(row, "where", f->where, sizeof f->where);
    return json_integer_value(json_object_get(row, "schema_version")) == SCHEMA
           && json_is_integer(json_object_get(row, "rank")) && *f->begun;
}

enum ha_status ha_rank_file_read(struct ha_rank_file *f, const char *fleet, const char *machine, struct ha_why *why)
{
    char path[HA_RANK_PATH];
    HA_TRY(ha_file_path(path, fleet, machine, ENDING, why));
    FILE *file = fopen(path, "re");
    if (!file && errno == ENOENT) return HA_WAIVED;
    if (!file) return ha_why(why, HA_ERROR, "%s: cannot read: %s", path, strerror(errno));
    json_t *row = json_loadf(file, 0, NULL);
    fclose(file);
    const bool good = take_row(f, row);
    json_decref(row);
    return good ? HA_OK : ha_why(why, HA_ERROR, "%s: it is none of a rank: remove it", path);
}

bool ha_rank_same_job(const struct ha_rank *a, const struct ha_rank *b) { return !strcmp(a->job, b->job); }

bool ha_rank_file_elsewhere(struct ha_rank_file *found, const char *fleet, const struct ha_rank *r)
{
    const size_t ending = sizeof ENDING - 1;
    bool is = false;
    DIR *d = opendir(fleet);
    for (const struct dirent *e; d && !is && (e = readdir(d));) {
        char machine[256];
        struct ha_why why;
        const size_t n = strlen(e->d_name);
        if (*e->d_name == '.' || n <= ending || n >= sizeof machine || strcmp(e->d_name + n - ending, ENDING)) continue;
        snprintf(machine, sizeof machine, "%.*s", (int)(n - ending), e->d_name);
        is = strcmp(machine, r->machine) && ha_rank_file_read(found, fleet, machine, &why) == HA_OK
             && ha_rank_same_job(&found->of, r) && found->of.rank == r->rank;
    }
    if (d) closedir(d);
    return is;
}
