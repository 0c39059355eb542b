#define _GNU_SOURCE /* strtod_l */
#include "harness/base/csv.h"
#include "harness/base/array.h"
#include "harness/base/file.h"
#include "harness/base/own_files.h"
#include "harness/base/why.h"

#include <csv.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ha_csv {
    int fd;
    char *path, *line;
    size_t line_bytes;     /* of the buffer */
    off_t end;             /* of a regular file: its size; else -1 */
    enum ha_status status; /* the first failure ... */
    struct ha_why failure; /* ... and its reason */
};

enum ha_status ha_csv_open(struct ha_csv **out, const char *path, bool exclusive, struct ha_why *why)
{
    *out = NULL;
    struct ha_csv *csv = calloc(1, sizeof *csv);
    char *name = strdup(path);
    if (!csv || !name) {
        free(csv);
        free(name);
        return ha_why(why, HA_ERROR, "%s: out of memory", path);
    }
    csv->path = name;
    csv->fd = ha_own_file(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (exclusive ? O_EXCL : 0), 0666));
    if (csv->fd < 0) {
        if (errno == EEXIST) ha_why(why, HA_ERROR, "%s: it is there, and is not this run's: who has made it?", path);
        else ha_why(why, HA_ERROR, "%s: cannot open for writing: %s", path, strerror(errno));
        free(name);
        free(csv);
        return HA_ERROR;
    }
    struct stat file;
    csv->end = fstat(csv->fd, &file) == 0 && S_ISREG(file.st_mode) ? file.st_size : -1;
    *out = csv;
    return HA_OK;
}

/* Is the file as the last row left it? */
static const char *disturbed(const struct ha_csv *csv)
{
    struct stat file;
    if (csv->end < 0 || fstat(csv->fd, &file) != 0) return NULL;
    return file.st_nlink == 0 ? "it was removed" : file.st_size != csv->end ? "another program wrote into it" : NULL;
}

/* All or nothing, where the file allows it: a row that did not fit on the disk is taken back. */
static bool write_row(int fd, const char *line, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = write(fd, line + done, bytes - done);
        if (n < 0 && errno != EINTR) break;
        done += n > 0 ? (size_t)n : 0;
    }
    if (done == bytes) return true;
    int error = errno;
    struct stat file;
    if (done && fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && ftruncate(fd, file.st_size - (off_t)done) != 0)
        error = errno;
    errno = error;
    return false;
}

enum ha_status ha_csv_row(struct ha_csv *csv, const char *const *fields, size_t count, struct ha_why *why)
{
    if (csv->status != HA_OK) return ha_why(why, csv->status, "%s", csv->failure.text);
    size_t need = 2;
    for (size_t i = 0; i < count; i++) need += 2 * strlen(fields[i] ? fields[i] : "") + 3;
    if (!ha_array_room(&csv->line, &csv->line_bytes, need, 1)) {
        csv->status = ha_why(&csv->failure, HA_ERROR, "%s: out of memory for a row of %zu bytes", csv->path, need);
        return ha_why(why, csv->status, "%s", csv->failure.text);
    }
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        const char *field = fields[i] ? fields[i] : "";
        if (i) csv->line[used++] = ',';
        /* a single empty field is quoted, or the row would be an empty line */
        if (*field || count == 1) used += csv_write(csv->line + used, csv->line_bytes - used, field, strlen(field));
    }
    csv->line[used++] = '\r';
    csv->line[used++] = '\n';
    const char *strange = disturbed(csv);
    if (!strange && write_row(csv->fd, csv->line, used)) {
        if (csv->end >= 0) csv->end += (off_t)used;
        return HA_OK;
    }
    csv->status = ha_why(&csv->failure, HA_ERROR, "%s: cannot write a row: %s", csv->path,
                         strange ? strange : strerror(errno));
    return ha_why(why, csv->status, "%s", csv->failure.text);
}

enum ha_status ha_csv_close(struct ha_csv *csv, struct ha_why *why)
{
    if (!csv) return HA_OK;
    /* some file systems report a full disk only here */
    if (ha_own_file_close(csv->fd) != 0 && csv->status == HA_OK)
        csv->status = ha_why(&csv->failure, HA_ERROR, "%s: cannot close: %s", csv->path, strerror(errno));
    enum ha_status status = csv->status;
    if (status != HA_OK) ha_why(why, status, "%s", csv->failure.text);
    free(csv->line);
    free(csv->path);
    free(csv);
    return status;
}

struct reader {
    enum ha_status (*row)(void *arg, size_t line, char **fields, size_t count);
    void *arg;
    size_t line, row_line; /* being parsed, and where its row began; from 1 */
    char **fields;
    size_t count, capacity;
    enum ha_status status;
    bool out_of_memory;
};

static void end_field(void *text, size_t bytes, void *self)
{
    struct reader *r = self;
    if (r->status != HA_OK || r->out_of_memory) return;
    char *copy = ha_array_room(&r->fields, &r->capacity, r->count + 1, sizeof *r->fields) ? malloc(bytes + 1) : NULL;
    if (!copy) {
        r->out_of_memory = true;
        return;
    }
    if (bytes) memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    r->fields[r->count++] = copy;
}

static void drop_fields(struct reader *r)
{
    for (size_t i = 0; i < r->count; i++) free(r->fields[i]);
    r->count = 0;
}

static void end_row(int terminator, void *self)
{
    struct reader *r = self;
    if (r->status == HA_OK && !r->out_of_memory) r->status = r->row(r->arg, r->row_line, r->fields, r->count);
    drop_fields(r);
    r->row_line = r->line + 1;
}

/* One line, or the last part of one, at a time, so that a row knows its line. */
static enum ha_status read_lines(struct reader *r, struct csv_parser *parser, FILE *file, const char *path,
                                 struct ha_why *why)
{
    char *text = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    enum ha_status status = HA_OK;
    r->line = r->row_line = 1;
    while (status == HA_OK && (bytes = getline(&text, &capacity, file)) > 0) {
        if (memchr(text, '\0', (size_t)bytes))
            status = ha_why(why, HA_ERROR, "%s:%zu: a zero byte: mend or remove this line", path, r->line);
        else if (csv_parse(parser, text, (size_t)bytes, end_field, end_row, r) != (size_t)bytes)
            status = csv_error(parser) == CSV_EPARSE
                         ? ha_why(why, HA_ERROR, "%s:%zu: a quote inside a field: mend or remove this line", path,
                                  r->row_line) /* where a quote before it may be lost */
                         : ha_why(why, HA_ERROR, "%s:%zu: %s", path, r->line, csv_strerror(csv_error(parser)));
        else if (r->out_of_memory) status = ha_why(why, HA_ERROR, "%s:%zu: out of memory", path, r->line);
        else status = r->status;
        /* an empty line is no row */
        if (r->row_line == r->line && !r->count && (text[0] == '\n' || text[0] == '\r')) r->row_line++;
        r->line++;
    }
    if (status == HA_OK && ferror(file)) status = ha_why(why, HA_ERROR, "%s: cannot read: %s", path, strerror(errno));
    if (status == HA_OK && csv_fini(parser, end_field, end_row, r) != 0)
        status = ha_why(why, HA_ERROR, "%s:%zu: a quoted field does not end: mend or remove this line", path,
                        r->row_line);
    free(text);
    return status == HA_OK ? r->status : status;
}

enum ha_status ha_csv_read(const char *path, enum ha_status (*row)(void *arg, size_t line, char **fields, size_t count),
                           void *arg, struct ha_why *why)
{
    FILE *file = ha_file_read(path, why);
    if (!file) return HA_ERROR;
    struct csv_parser parser;
    csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI);
    struct reader r = { .row = row, .arg = arg };
    enum ha_status status = read_lines(&r, &parser, file, path, why);
    drop_fields(&r);
    free(r.fields);
    csv_free(&parser);
    fclose(file);
    return status;
}

static locale_t c_locale;

static void make_c_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

static pthread_once_t once = PTHREAD_ONCE_INIT;

void ha_csv_number(char out[32], double x)
{
    pthread_once(&once, make_c_locale);
    out[0] = '\0';
    if (isnan(x)) return;
    if (isinf(x)) {
        strcpy(out, x < 0 ? "-1e999" : "1e999"); /* a number to every reader, which reads it as infinite */
        return;
    }
    locale_t before = uselocale(c_locale);
    snprintf(out, 32, "%.17g", x);
    uselocale(before);
}

bool ha_csv_number_parse(const char *text, double *x)
{
    char *end;
    pthread_once(&once, make_c_locale);
    *x = (double)NAN;
    if (!*text) return true;
    if (text[strspn(text, "+-.0123456789einf")]) return false; /* no blank, no hexadecimal, no "nan" */
    *x = strtod_l(text, &end, c_locale);
    return !*end;
}
