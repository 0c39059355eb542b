#include "harness/base/file.h"
#include "harness/base/own_files.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/report/folder_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An event is a line. The first of a case names its process by the case, and says whose the following are. */
static const char head[] = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", tail[] = "\n]}\n";
enum { HEAD_BYTES = sizeof head - 1, TAIL_BYTES = sizeof tail - 1 };

/* ---- events ---------------------------------------------------------------------------------------------------- */

/* What is handed over, made text of JSON: it may come from a process that went wrong. */
static json_t *read_events(const char *events, size_t bytes, struct ha_why *why)
{
    json_error_t error;
    char *text = malloc(bytes + 3);
    if (!text) return NULL;
    text[0] = '[';
    for (size_t i = 0; i < bytes; i++)
        text[i + 1] = !events[i] ? '?' : events[i] == '\n' || events[i] == '\r' || events[i] == '\t' ? ' ' : events[i];
    text[bytes + 1] = ']';
    text[bytes + 2] = 0;
    json_t *all = json_loads(ha_text_clean(text), 0, &error);
    if (!all) ha_why(why, HA_FAIL, "trace: no JSON: %s", error.text);
    free(text);
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!json_is_object(json_array_get(all, i))) {
            ha_why(why, HA_FAIL, "trace: an event is no object");
            json_decref(all);
            return NULL;
        }
    return all;
}

static bool names_process(const json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "name"));
    return name && !strcmp(name, "process_name");
}

static void put_event(struct ha_folder_trace *trace, FILE *out, const json_t *event)
{
    char *text = json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (text) {
        fprintf(out, "%s%s", trace->any ? ",\n" : "\n", text);
        trace->any = true;
    }
    free(text);
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

static bool write_at(int fd, const char *text, size_t bytes, uint64_t at)
{
    while (bytes) {
        const ssize_t n = pwrite(fd, text, bytes, (off_t)at);
        if (n < 0 && errno != EINTR) return false;
        if (n <= 0) continue;
        text += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return true;
}

static enum ha_status open_trace(struct ha_folder *folder, struct ha_why *why)
{
    struct ha_folder_trace *t = &folder->trace;
    if (t->fd >= 0) return HA_OK;
    HA_TRY(ha_file_path(t->path, folder->path, "trace.json", "", why));
    t->fd = ha_own_file(open(t->path, O_RDWR | O_CLOEXEC | (t->end ? 0 : O_CREAT | O_EXCL), 0666));
    if (t->fd < 0 && errno == EEXIST)
        return ha_why(why, HA_ERROR, "%s: it is there, and is not this run's: who has made it?", t->path);
    if (t->fd < 0) return ha_why(why, HA_ERROR, "%s: cannot open for writing: %s", t->path, strerror(errno));
    if (t->end) return HA_OK; /* it was there */
    t->end = HEAD_BYTES;
    char text[HEAD_BYTES + TAIL_BYTES + 1];
    snprintf(text, sizeof text, "%s%s", head, tail);
    if (write_at(t->fd, text, HEAD_BYTES + TAIL_BYTES, 0)) return HA_OK;
    return ha_why(why, HA_ERROR, "%s: cannot write: %s", t->path, strerror(errno));
}

static enum ha_status append(struct ha_folder_trace *t, const char *text, size_t bytes, struct ha_why *why)
{
    struct stat at;
    if (fstat(t->fd, &at) == 0 && (at.st_nlink == 0 || at.st_size != (off_t)t->end + TAIL_BYTES))
        return ha_why(why, HA_ERROR, "%s: another program wrote into it, or removed it", t->path);
    if (write_at(t->fd, text, bytes, t->end)) {
        t->end += bytes - TAIL_BYTES;
        return HA_OK;
    }
    ha_why(why, HA_ERROR, "%s: cannot write: %s", t->path, strerror(errno));
    /* as it was: the file is complete without these events */
    if (write_at(t->fd, tail, TAIL_BYTES, t->end) && ftruncate(t->fd, (off_t)t->end + TAIL_BYTES) != 0)
        ha_why(why, HA_ERROR, "%s: cannot write: %s", t->path, strerror(errno));
    return HA_ERROR;
}

enum ha_status ha_folder_trace(struct ha_folder *folder, const struct ha_folder_case *of, const char *events,
                               size_t bytes, struct ha_why *why)
{
    struct ha_folder_trace *t = &folder->trace;
    if (folder->status != HA_OK) return ha_why(why, folder->status, "%s", folder->failure.text);
    if (!folder->path) return HA_OK;
    json_t *all = read_events(events, bytes, why);
    if (!all) return HA_FAIL;
    if (open_trace(folder, why) != HA_OK) {
        json_decref(all);
        return ha_folder_fail(folder, why);
    }

    const bool first = !t->last_id || strcmp(t->last_id, of->id) || t->last_process != of->process;
    const size_t number = t->cases + first;
    char *text = NULL, id[HA_ID_MAX];
    size_t text_bytes = 0;
    snprintf(id, sizeof id, "%s", of->id);
    ha_text_clean(id);
    FILE *out = open_memstream(&text, &text_bytes);
    if (first && out) {
        json_t *name = json_pack("{s:s, s:I, s:i, s:s, s:{s:s, s:I}}", "ph", "M", "pid", (json_int_t)number, "tid", 0,
                                 "name", "process_name", "args", "name", id, "process", (json_int_t)of->process);
        put_event(t, out, name);
        json_decref(name);
    }
    for (size_t i = 0; out && i < json_array_size(all); i++) {
        json_t *event = json_array_get(all, i);
        if (names_process(event)) continue;
        json_object_set_new(event, "pid", json_integer((json_int_t)number));
        put_event(t, out, event);
    }
    json_decref(all);
    enum ha_status status = HA_OK;
    if (out) fputs(tail, out);
    if (!out || fclose(out) != 0) status = ha_why(why, HA_ERROR, "%s: out of memory", t->path);
    if (status == HA_OK) status = append(t, text, text_bytes, why);
    if (status == HA_OK) {
        t->cases = number;
        free(t->last_id);
        t->last_id = strdup(of->id);
        t->last_process = of->process;
    }
    free(text);
    return status == HA_OK ? HA_OK : ha_folder_fail(folder, why);
}

void ha_folder_trace_close(struct ha_folder *folder)
{
    struct ha_folder_trace *t = &folder->trace;
    struct ha_why why;
    if (t->fd >= 0 && ha_own_file_close(t->fd) != 0) {
        ha_why(&why, HA_ERROR, "%s: cannot close: %s", t->path, strerror(errno));
        ha_folder_fail(folder, &why);
    }
    t->fd = -1;
}

/* ---- resume ---------------------------------------------------------------------------------------------------- */

/* The events of a case follow one another: where they stand in the file, and whether the case has its row. */
struct place {
    json_int_t pid;
    bool stays;
};

/* false: it is no event, but torn */
static bool read_event(const struct ha_folder *folder, struct place *at, const char *line)
{
    json_t *event = json_loads(line, 0, NULL);
    if (!json_is_object(event)) {
        json_decref(event);
        return false;
    }
    const json_int_t pid = json_integer_value(json_object_get(event, "pid"));
    if (names_process(event)) {
        const json_t *args = json_object_get(event, "args");
        const char *id = json_string_value(json_object_get(args, "name"));
        const json_int_t process = json_integer_value(json_object_get(args, "process"));
        at->stays = id && ha_folder_find(folder, id, (size_t)process);
    } else if (pid != at->pid) at->stays = false;
    at->pid = pid;
    json_decref(event);
    return true;
}

/* Copies what stays; returns whether the copy differs. */
static bool copy_events(struct ha_folder *folder, FILE *in, FILE *out)
{
    struct ha_folder_trace *t = &folder->trace;
    struct place at = { 0 };
    char *line = NULL;
    size_t room = 0;
    ssize_t n = getline(&line, &room, in);
    bool whole = n == HEAD_BYTES + 1 && !memcmp(line, head, HEAD_BYTES), ended = false, dropped = false;
    t->end = HEAD_BYTES;
    fputs(head, out);
    while (whole && !ended && (n = getline(&line, &room, in)) > 0) {
        ended = !strcmp(line, "]}\n");
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == ',')) line[--n] = 0;
        if (ended || !(whole = read_event(folder, &at, line))) break;
        if (at.pid > 0 && (size_t)at.pid > t->cases) t->cases = (size_t)at.pid;
        if (!at.stays) {
            folder->found.dropped++;
            dropped = true;
            continue;
        }
        t->end += (uint64_t)fprintf(out, "%s%s", t->any ? ",\n" : "\n", line);
        t->any = true;
    }
    fputs(tail, out);
    free(line);
    folder->found.dropped += !ended;
    return !ended || dropped;
}

enum ha_status ha_folder_trace_resume(struct ha_folder *folder, struct ha_why *why)
{
    struct ha_whole_file out;
    char path[4096];
    HA_TRY(ha_file_path(path, folder->path, "trace.json", "", why));
    FILE *in = fopen(path, "re");
    if (!in) return errno == ENOENT ? HA_OK : ha_why(why, HA_ERROR, "%s: cannot open: %s", path, strerror(errno));
    enum ha_status status = ha_whole_file_open(&out, folder->path, "trace.json", why);
    if (status == HA_OK) {
        const bool differs = copy_events(folder, in, out.file);
        if (ferror(in)) {
            ha_whole_file_drop(&out);
            status = ha_why(why, HA_ERROR, "%s: cannot read: %s", path, strerror(errno));
        } else if (differs) status = ha_whole_file_close(&out, why);
        else ha_whole_file_drop(&out);
    }
    fclose(in);
    return status;
}
