#include "harness/report/record.h"

#include "harness/base/csv.h"
#include "harness/base/why.h"
#include "harness/base/try.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind { NUMBER, TEXT };
enum {
    C = 1 << HA_FILE_CASES,
    S = 1 << HA_FILE_SAMPLES,
    A = 1 << HA_FILE_ACCURACY,
    Y = 1 << HA_FILE_SUMMARY,
    ALL = C | S | A | Y
};

/* Columns are only ever appended. */
static const struct field {
    const char *name, *unit;
    enum kind kind;
    size_t offset;
    unsigned files;
    const char *doc;
} fields[] = {
#define NUM(name, unit, files, doc) { #name, unit, NUMBER, offsetof(struct ha_row, name), files, doc },
#define TXT(name, files, doc)       { #name, "", TEXT, offsetof(struct ha_row, name), files, doc },
    /* clang-format off */
    NUM(schema_version, "", ALL, "of this table")
    TXT(run_id, ALL, "when the run began (UTC) and its process")
    TXT(case_id, ALL, "what `habench run` takes back")
    NUM(process, "", ALL, "processes that wrote to this folder before (--resume)")
    NUM(block, "", S, "pass: one run over the context from the first step to the last")
    NUM(iter, "", S, "step within the pass, of role step; empty: the whole pass")
    NUM(step, "", A, "")
    NUM(layer, "", A, "")
    TXT(role, S,
        "of a pass: measure, warmup, traced, or full: the resident companion; step: a single step of a "
        "measured pass")
    TXT(suite, C | Y, "as named on the command line")
    TXT(family, C | Y, "")
    TXT(variant, ALL, "")
    TXT(params, C | Y, "the variant's options that differ from their defaults")
    TXT(contract, C | Y, "exact, bounded, statistical; unchecked: a bracketing arm whose output is not attention")
    TXT(device, C | Y, "as asked for")
    TXT(device_kind, ALL,
        "host, null, cuda, emulated or plugin; host, emulated: stand-ins in host memory, their times are this"
        " host's")
    TXT(device_name, C, "as the device says")
    TXT(isa, C | Y, "CPU kernel table")
    NUM(layers, "", C | Y, "")
    NUM(batch, "", C | Y, "")
    NUM(q_len, "tokens", C | Y, "")
    TXT(ctx_len, C | Y, "tokens before the first step; lengths of a batch joined by +")
    NUM(q_heads, "", C | Y, "")
    NUM(kv_heads, "", C | Y, "")
    NUM(head_dim, "", C | Y, "")
    TXT(kv_dtype, C | Y, "")
    TXT(acc_dtype, C, "what sums are kept in")
    TXT(dataset, C | Y, "")
    NUM(seed, "", C, "")
    NUM(threads, "", C | Y, "of the CPU side")
    NUM(numa_node, "", C, "that the process is held to; empty: not held, or only one")
    TXT(host_mem, C, "transparent huge pages: always, madvise, never")
    TXT(verdict, C | Y, "pass, fail, waived, error")
    TXT(reason, C, "of anything but pass")
    NUM(question, "", C, "that failed: 1 arithmetic, 2 definition")
    NUM(err_over_bound, "", C | A | Y, "largest error / bound over all elements, at most 1; binary64 reference")
    NUM(rel_l2, "", C | A | Y, "against full attention; binary64 reference")
    NUM(rel_l2_head_max, "", C | A, "the same by head, divided by the largest head norm")
    NUM(mass_min, "", C | A | Y, "least full-attention mass on the keys used")
    NUM(mass_mean, "", C | A | Y, "")
    NUM(cert_slack, "", C | A, "observed deviation / certificate, at most 1")
    NUM(recall, "", C | A | Y, "share of the true top-k among the k keys used")
    NUM(keys_mean, "tokens", C | A, "keys used by a query head")
    NUM(step_ns, "ns", C | S | Y,
        "steps follow one another: from the second step's begin to the last one's end over their number, "
        "untraced, CLOCK_MONOTONIC_RAW; median of passes, or the pass. Of a single step (role step): from the"
        " end of the step before to its own, as the device completed it where it is in host memory, else as "
        "the host had submitted it")
    NUM(step_lo_ns, "ns", C | Y, "95% interval of the median, order statistics; empty of fewer than 6 passes")
    NUM(step_hi_ns, "ns", C | Y, "")
    NUM(layer_ns, "ns", C, "step_ns / layers")
    NUM(samples, "", C | Y, "passes behind the median")
    NUM(warmup_samples, "", C, "passes before the slope test was met")
    NUM(warm, "", C, "1: the slope test was met before the time was up")
    NUM(vs_full, "", C | Y, "step_ns / full_step_ns")
    NUM(full_step_ns, "ns", C, "the same of `resident` over the same data in this run")
    NUM(context_switches, "", C | S,
        "involuntary, of the process during a pass, its first step included; their sum over the passes; "
        "getrusage")
    NUM(page_faults, "", C | S, "minor and major, the same way")
    NUM(gpu_kernel_idle, "", C | Y, "1 - |K| / W, W from the second step of a traced pass to its last; spans")
    NUM(gpu_idle, "", C | Y, "1 - |K u C| / W; spans")
    NUM(cpu_idle, "", C | Y, "1 - compute time of the pool / (threads x W); stamped inside the parallel regions")
    NUM(overlap, "", C | Y, "|P n (K u C)| / min(|P|, |K u C|); spans")
    NUM(overlap_eff, "", C,
        "slowest arm run alone / step, at most 1; needs the family's *_only arms of the same shape earlier in"
        " the run")
    NUM(perturb, "", C,
        "traced / untraced - 1; beyond 0.05 either way the span ratios are those of other steps than were "
        "timed, and marked ~ in the table")
    NUM(spans_dropped, "", C, "lost by what stamps them, or for want of memory; above 0 the span ratios are empty")
    TXT(source, C, "what the device's spans are stamped by: CUPTI, CUDA events (within so many us), the device itself")
    NUM(h2d_bytes, "bytes", C | Y, "of a step over the link, counted at every copy")
    NUM(d2h_bytes, "bytes", C | Y, "")
    NUM(zero_copy_bytes, "bytes", C, "of a step, read by kernels from mapped memory; the device's own count")
    NUM(h2d_link_GBps, "10^9 bytes/s", C | Y, "bytes / time in which such copies ran; spans")
    NUM(d2h_link_GBps, "10^9 bytes/s", C, "")
    NUM(h2d_eff_GBps, "10^9 bytes/s", C, "h2d_bytes / step_ns")
    NUM(d2h_eff_GBps, "10^9 bytes/s", C, "")
    NUM(link_share, "", C, "h2d_link_GBps / the ceiling probed in this run, the best reading")
    NUM(floor_ns, "ns", C,
        "slowest of bytes / probed ceiling: keys and values (and weights, with load=layer) read by each side "
        "at least once, copies each way; empty where they are not more than the caches hold that this process"
        " has a share of")
    NUM(floor_ratio, "", C | Y, "floor_ns / step_ns; above 1: the probe was disturbed")
    NUM(kv_gpu_bytes, "bytes", C | Y, "K and V on the device, peak, counted by the arenas")
    NUM(kv_cpu_bytes, "bytes", C | Y, "the same in host memory")
    NUM(meta_gpu_bytes, "bytes", C, "what the variant keeps beside K and V")
    NUM(meta_cpu_bytes, "bytes", C, "")
    NUM(hit_ratio, "", C, "the variant's own count, as are the next")
    NUM(cpu_ratio, "", C, "")
    NUM(recalls, "", C, "")
    NUM(select_ns, "ns", C, "of a step")
    NUM(manage_ns, "ns", C, "of a step, off the critical path")
    NUM(cpu_tokens, "tokens", C, "keys read by the CPU side, per query head and step")
    TXT(load, C | Y, "attention; layer: with the products of each layer around it, in every time of this row")
    TXT(model, C | Y, "whose shape it is; empty: none was named")
    NUM(sm_clock_MHz, "MHz", C,
        "of the device's meters, as are the next: read right after the last timed step of each untraced pass;"
        " the least")
    NUM(memory_clock_MHz, "MHz", C, "the least")
    NUM(temperature_C, "C", C, "the most")
    NUM(power_W, "W", C, "mean of those readings")
    NUM(energy_step_J, "J", C, "of an untraced pass / its steps; empty unless the counter moved in every pass")
    NUM(link_gen, "", C, "PCIe generation, under load; the least")
    NUM(link_width, "lanes", C, "the least")
    TXT(throttle, C | Y, "why clocks were held down at any of those readings; none")
    TXT(disturbed, C | Y,
        "what else used the cores while passes were measured: load, steal, throttled, shared (a core was at "
        "half its speed); empty: nothing was seen")
/* clang-format on */
#undef NUM
#undef TXT
};
enum { FIELDS = sizeof fields / sizeof *fields };

static const char *const file_name[HA_FILE_COUNT] = { "cases.csv", "samples.csv", "accuracy.csv", "summary.csv" };

/* ---- the table --------------------------------------------------------------------------- */

static const struct field *nth(enum ha_file file, size_t i)
{
    for (size_t f = 0; f < FIELDS; f++)
        if (fields[f].files >> file & 1 && i-- == 0) return &fields[f];
    return NULL;
}

size_t ha_record_fields(enum ha_file file)
{
    size_t n = 0;

    for (size_t f = 0; f < FIELDS; f++) n += fields[f].files >> file & 1;
    return n;
}

const char *ha_record_field_name(enum ha_file file, size_t i) { return nth(file, i)->name; }

static const char *text_of(const struct field *f, const struct ha_row *row, char text[32])
{
    const char *at = (const char *)row + f->offset;
    double x;

    if (f->kind == TEXT) return *at ? at : NULL;
    memcpy(&x, at, sizeof x);
    if (isnan(x)) return NULL;
    ha_csv_number(text, x);
    return text;
}

const char *ha_record_field_text(enum ha_file file, size_t i, const struct ha_row *row, char text[32])
{
    return text_of(nth(file, i), row, text);
}

void ha_row_clear(struct ha_row *row)
{
    double nan = (double)NAN;

    memset(row, 0, sizeof *row);
    for (size_t f = 0; f < FIELDS; f++)
        if (fields[f].kind == NUMBER) memcpy((char *)row + fields[f].offset, &nan, sizeof nan);
    row->schema_version = HA_SCHEMA_VERSION;
}

void ha_record_print_fields(FILE *out)
{
    fprintf(out, "%-18s %-13s %-36s %s\n", "column", "unit", "files", "meaning");
    for (size_t f = 0; f < FIELDS; f++) {
        char files[64] = "";
        size_t n = 0;
        for (int i = 0; i < HA_FILE_COUNT; i++)
            if (fields[f].files >> i & 1)
                n += (size_t)snprintf(files + n, sizeof files - n, "%s%.*s", n ? " " : "",
                                      (int)strcspn(file_name[i], "."), file_name[i]);
        fprintf(out, "%-18s %-13s %-36s %s\n", fields[f].name, fields[f].unit, files, fields[f].doc);
    }
}

/* ---- the files --------------------------------------------------------------------------- */

struct done {
    char *case_id, *verdict;
};

struct ha_record {
    struct ha_csv *csv[HA_FILE_COUNT];
    struct done *done;
    size_t count, capacity;
    double process;
    /* while reading a folder again */
    enum ha_file file;
    const char *path;
    size_t id_column, verdict_column, process_column;
    struct ha_why *why;
};

static size_t column(enum ha_file file, const char *name)
{
    size_t i = 0;

    while (strcmp(nth(file, i)->name, name)) i++;
    return i;
}

static enum ha_status read_row(void *arg, size_t line, char **field, size_t count)
{
    struct ha_record *r = arg;
    size_t expected = ha_record_fields(r->file);

    if (count != expected)
        return ha_why(r->why, HA_ERROR, "%s:%zu: %zu columns, this program writes %zu: choose another folder", r->path,
                      line, count, expected);
    if (line == 1) {
        for (size_t i = 0; i < count; i++)
            if (strcmp(field[i], ha_record_field_name(r->file, i)))
                return ha_why(r->why, HA_ERROR, "%s: column '%s' where this program writes '%s': choose another folder",
                              r->path, field[i], ha_record_field_name(r->file, i));
        return HA_OK;
    }
    double process = strtod(field[r->process_column], NULL);
    if (process >= r->process) r->process = process + 1;
    if (r->file != HA_FILE_CASES) return HA_OK;
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 64;
        struct done *grown = realloc(r->done, capacity * sizeof *grown);
        if (!grown) return ha_why(r->why, HA_ERROR, "no memory");
        r->done = grown;
        r->capacity = capacity;
    }
    struct done d = { strdup(field[r->id_column]), strdup(field[r->verdict_column]) };
    r->done[r->count++] = d;
    return d.case_id && d.verdict ? HA_OK : ha_why(r->why, HA_ERROR, "no memory");
}

/* A run that was killed may have left half a line. */
static enum ha_status drop_half_line(const char *path, struct ha_why *why)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END), end = size;
    char byte = 0;

    while (end > 0 && pread(fd, &byte, 1, end - 1) == 1 && byte != '\n') end--;
    bool ok = fd >= 0 && (end == size || ftruncate(fd, end) == 0);
    if (!ok) ha_why(why, HA_ERROR, "%s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return ok ? HA_OK : HA_ERROR;
}

static enum ha_status open_file(struct ha_record *r, enum ha_file file, const char *folder, bool resume,
                                struct ha_why *why)
{
    const char *header[FIELDS];
    struct stat st;
    char path[4096];

    if (snprintf(path, sizeof path, "%s/%s", folder, file_name[file]) >= (int)sizeof path)
        return ha_why(why, HA_ERROR, "%s: the path is too long", folder);
    bool exists = stat(path, &st) == 0 && st.st_size > 0;
    if (exists && !resume)
        return ha_why(why, HA_ERROR, "%s holds results: go on with --resume, or choose another folder", path);
    if (exists) {
        r->file = file;
        r->path = path;
        r->why = why;
        r->process_column = column(file, "process");
        if (file == HA_FILE_CASES) {
            r->id_column = column(file, "case_id");
            r->verdict_column = column(file, "verdict");
        }
        HA_TRY(drop_half_line(path, why));
        HA_TRY(ha_csv_read(path, read_row, r, why));
    }
    HA_TRY(ha_csv_open(&r->csv[file], path, why));
    if (exists && stat(path, &st) == 0 && st.st_size > 0) return HA_OK;
    for (size_t i = 0; i < ha_record_fields(file); i++) header[i] = ha_record_field_name(file, i);
    return ha_csv_row(r->csv[file], header, ha_record_fields(file), why);
}

enum ha_status ha_record_open(struct ha_record **record, const char *folder, bool resume, struct ha_why *why)
{
    struct ha_record *r = calloc(1, sizeof *r);
    enum ha_status status = r ? HA_OK : ha_why(why, HA_ERROR, "no memory");

    if (status == HA_OK && mkdir(folder, 0777) && errno != EEXIST)
        status = ha_why(why, HA_ERROR, "%s: cannot make the folder: %s", folder, strerror(errno));
    for (int f = 0; f < HA_FILE_COUNT && status == HA_OK; f++)
        status = open_file(r, (enum ha_file)f, folder, resume, why);
    if (status != HA_OK) {
        ha_record_close(r, NULL);
        return status;
    }
    *record = r;
    return HA_OK;
}

enum ha_status ha_record_row(struct ha_record *r, enum ha_file file, const struct ha_row *row, struct ha_why *why)
{
    const char *text[FIELDS];
    char number[FIELDS][32];
    size_t n = 0;

    for (size_t f = 0; f < FIELDS; f++)
        if (fields[f].files >> file & 1) {
            text[n] = text_of(&fields[f], row, number[n]);
            n++;
        }
    return ha_csv_row(r->csv[file], text, n, why);
}

const char *ha_record_verdict(const struct ha_record *r, const char *case_id)
{
    const char *verdict = "";

    for (size_t i = 0; i < r->count; i++)
        if (!strcmp(r->done[i].case_id, case_id)) verdict = r->done[i].verdict;
    return verdict;
}

double ha_record_process(const struct ha_record *r) { return r->process; }

enum ha_status ha_record_close(struct ha_record *r, struct ha_why *why)
{
    enum ha_status status = HA_OK;

    if (!r) return HA_OK;
    for (int f = 0; f < HA_FILE_COUNT; f++)
        if (r->csv[f]) {
            enum ha_status closed = ha_csv_close(r->csv[f], why);
            if (status == HA_OK) status = closed;
        }
    for (size_t i = 0; i < r->count; i++) {
        free(r->done[i].case_id);
        free(r->done[i].verdict);
    }
    free(r->done);
    free(r);
    return status;
}
