#define _GNU_SOURCE /* memrchr */
#include "harness/base/array.h"
#include "harness/base/file.h"
#include "harness/base/why.h"
#include "harness/report/folder_parts.h"
#include "harness/report/row.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* No text that is written holds a line break (ha_text_clean), so that a line of the file is a line of the table. */

/* Cuts a line without an end off; *there: something is left. What is empty is removed. */
static enum ha_status cut_torn(struct ha_folder *folder, const char *path, bool *there, struct ha_why *why)
{
    char tail[4096];
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    *there = false;
    if (fd < 0 && errno == ENOENT) return HA_OK;
    if (fd < 0) return ha_why(why, HA_ERROR, "%s: cannot open: %s", path, strerror(errno));
    const off_t bytes = lseek(fd, 0, SEEK_END);
    off_t keep = bytes;
    bool good = bytes >= 0, found = false;
    while (good && keep > 0 && !found) {
        const off_t from = keep > (off_t)sizeof tail ? keep - (off_t)sizeof tail : 0;
        const ssize_t n = pread(fd, tail, (size_t)(keep - from), from);
        good = n == keep - from;
        const char *end = good ? memrchr(tail, '\n', (size_t)n) : NULL;
        found = end != NULL;
        keep = found ? from + (end - tail) + 1 : from;
    }
    if (good && keep < bytes) {
        good = ftruncate(fd, keep) == 0;
        folder->found.dropped++;
    }
    const int error = errno;
    close(fd);
    *there = keep > 0;
    if (good && keep == 0) good = unlink(path) == 0;
    return good ? HA_OK : ha_why(why, HA_ERROR, "%s: cannot read: %s", path, strerror(error));
}

/* A file that is read: once to see what stays, and again to write that, where it is not everything. */
struct reader {
    struct ha_folder *folder;
    struct ha_folder_suite *suite; /* whose rows they are (file[0]); else NULL */
    const struct ha_folder_file *file;
    size_t id, process; /* columns */
    void *row;          /* room for one */
    size_t lines, dropped;
    bool *drop; /* [lines] */
    size_t room;
    struct ha_csv *out; /* the second time */
    struct ha_why *why;
};

static enum ha_status damaged(struct reader *r, size_t line, const char *what)
{
    return ha_why(r->why, HA_ERROR, "%s:%zu: %s; the file is damaged: mend or remove this line", r->file->path, line,
                  what);
}

/* "out/cases.csv: its columns are not those of this program" */
static enum ha_status check_columns(struct reader *r, char **name, size_t count)
{
    const struct ha_columns *c = &r->file->columns;
    size_t i = 0;
    while (i < count && i < c->count && !strcmp(name[i], c->at[i].name)) i++;
    if (i == count && i == c->count) return HA_OK;
    return ha_why(
        r->why, HA_FAIL,
        "%s: its columns are not those of this program (column %zu is '%.60s', here '%.60s'); give another name",
        r->file->path, i + 1, i < count ? name[i] : "", i < c->count ? c->at[i].name : "");
}

static bool parse_size(const char *text, size_t *out)
{
    if (!*text || text[strspn(text, "0123456789")]) return false;
    errno = 0;
    *out = strtoull(text, NULL, 10);
    return !errno;
}

/* The value of a column that the folder writes for every suite. */
static const char *head_value(const struct reader *r, char **field, const char *name)
{
    return field[ha_columns_find(&r->file->columns, name)];
}

/* A row of file[0] becomes an entry, unless its case is to be tried again. */
static enum ha_status take_row(struct reader *r, size_t line, char **field, size_t process, bool *drop)
{
    struct ha_result *head = r->row;
    const struct ha_suite *suite = r->suite->suite;
    const char *class_value = "", *reason = head_value(r, field, "reason");
    struct ha_why why;
    ha_fields_clear(suite, r->row);
    head->verdict = ha_verdict_of(head_value(r, field, "verdict"));
    if (head->verdict == HA_NOT_RUN) return damaged(r, line, "no verdict");
    if (strlen(reason) >= sizeof head->reason) return damaged(r, line, "the reason is too long");
    strcpy(head->reason, reason);
    if (!ha_csv_number_parse(head_value(r, field, "samples"), &head->samples))
        return damaged(r, line, "'samples' is no number");
    if (!ha_csv_number_parse(head_value(r, field, "p_value"), &head->p))
        return damaged(r, line, "'p_value' is no number");
    for (size_t i = 0; i < r->file->columns.count; i++) {
        const struct ha_column *c = &r->file->columns.at[i];
        if (c->field && ha_field_parse(c->field, r->row, field[i], &why) != HA_OK) return damaged(r, line, why.text);
        if (suite->class_key && !strcmp(c->name, suite->class_key)) class_value = field[i];
    }
    if (head->verdict == HA_VERDICT_ERROR) {
        r->folder->found.again++;
        *drop = true;
        return HA_OK;
    }
    const struct ha_folder_case of = {
        .suite = suite, .id = field[r->id], .from = head_value(r, field, "suite"), .process = process
    };
    struct ha_folder_entry *entry = ha_folder_entry_make(&of, class_value, r->row, true);
    if (!entry) return ha_why(r->why, HA_ERROR, "out of memory for the rows");
    const enum ha_status status = ha_folder_add(r->folder, entry, r->why);
    if (status != HA_OK) ha_folder_entry_free(entry);
    r->folder->found.kept += status == HA_OK;
    return status;
}

static enum ha_status read_line(void *arg, size_t line, char **field, size_t count)
{
    struct reader *r = arg;
    size_t process;
    if (!ha_array_room(&r->drop, &r->room, r->lines + 1, sizeof *r->drop))
        return ha_why(r->why, HA_ERROR, "%s: out of memory", r->file->path);
    bool *drop = &r->drop[r->lines++];
    *drop = false;
    if (r->lines == 1) return check_columns(r, field, count);
    if (count != r->file->columns.count) return damaged(r, line, "too many or too few columns");
    if (!parse_size(field[r->process], &process)) return damaged(r, line, "'process' is no number");
    const bool known = ha_folder_find(r->folder, field[r->id], process);
    if (!r->suite) *drop = !known;
    else if (known) return damaged(r, line, "a second row of this case");
    else {
        enum ha_status status = take_row(r, line, field, process, drop);
        if (status != HA_OK) return status;
    }
    r->dropped += *drop;
    return HA_OK;
}

static enum ha_status write_line(void *arg, size_t line, char **field, size_t count)
{
    struct reader *r = arg;
    if (r->drop[r->lines++]) return HA_OK;
    const char **kept = malloc(count * sizeof *kept);
    if (!kept) return ha_why(r->why, HA_ERROR, "%s: out of memory", r->file->path);
    for (size_t i = 0; i < count; i++) kept[i] = field[i];
    const enum ha_status status = ha_csv_row(r->out, kept, count, r->why);
    free(kept);
    return status;
}

static enum ha_status rewrite(struct reader *r, struct ha_why *why)
{
    char part[4096];
    HA_TRY(ha_file_path(part, r->folder->path, r->file->name, HA_PART, why));
    unlink(part); /* of a run that was killed */
    HA_TRY(ha_csv_open(&r->out, part, true, why));
    r->lines = 0;
    enum ha_status status = ha_csv_read(r->file->path, write_line, r, why);
    const enum ha_status closed = ha_csv_close(r->out, status == HA_OK ? why : NULL);
    if (status == HA_OK) status = closed;
    if (status == HA_OK) return ha_file_take_name(part, r->file->path, why);
    unlink(part);
    return status;
}

/* suite: whose file[0] it is, or NULL: lines that belong to rows of any file[0]. */
static enum ha_status read_file(struct ha_folder *folder, struct ha_folder_suite *suite, struct ha_folder_file *file,
                                struct ha_why *why)
{
    struct reader r = { .folder = folder, .suite = suite, .file = file, .why = why };
    if (!file->name) return HA_OK;
    HA_TRY(cut_torn(folder, file->path, &file->there, why));
    if (!file->there) return HA_OK;
    r.id = ha_columns_find(&file->columns, "case_id");
    r.process = ha_columns_find(&file->columns, "process");
    r.row = suite ? malloc(suite->suite->row_bytes) : NULL;
    enum ha_status status = suite && !r.row ? ha_why(why, HA_ERROR, "out of memory")
                                            : ha_csv_read(file->path, read_line, &r, why);
    if (status == HA_OK && r.dropped) {
        if (!suite) folder->found.dropped += r.dropped;
        status = rewrite(&r, why);
    }
    free(r.row);
    free(r.drop);
    return status;
}

enum ha_status ha_folder_resume(struct ha_folder *folder, struct ha_why *why)
{
    /* Every file[0] first: what stays there says what stays elsewhere. */
    for (size_t i = 0; i < folder->suites; i++)
        HA_TRY(read_file(folder, &folder->suite[i], &folder->suite[i].file[0], why));
    for (size_t i = 0; i < folder->suites; i++)
        for (size_t f = 1; f < HA_SUITE_FILES; f++) HA_TRY(read_file(folder, NULL, &folder->suite[i].file[f], why));
    return read_file(folder, NULL, &folder->figures, why);
}
