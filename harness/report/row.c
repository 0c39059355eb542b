#include "harness/report/row.h"

#include "harness/base/csv.h"
#include "harness/base/text.h"
#include "harness/base/why.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

static const char *const names[HA_VERDICTS] = {
    [HA_NOT_RUN] = "not run",       [HA_PASS] = "pass",           [HA_VERDICT_FAIL] = "fail",
    [HA_VERDICT_WAIVED] = "waived", [HA_VERDICT_ERROR] = "error", [HA_UNCHECKED] = "unchecked",
    [HA_SUSPECT] = "suspect",
};

const char *ha_verdict_name(enum ha_verdict verdict) { return names[verdict]; }

const char *ha_verdict_shown(enum ha_verdict verdict)
{
    return verdict == HA_VERDICT_FAIL    ? "FAIL"
           : verdict == HA_VERDICT_ERROR ? "ERROR"
           : verdict == HA_SUSPECT       ? "SUSPECT"
                                         : names[verdict];
}

enum ha_verdict ha_verdict_of(const char *name)
{
    for (int v = 0; v < HA_VERDICTS; v++)
        if (!strcmp(names[v], name)) return (enum ha_verdict)v;
    return HA_NOT_RUN;
}

void ha_result_suspect(struct ha_result *r, double asked)
{
    if (!(r->p >= 0)) r->p = (double)NAN;
    r->p = r->p * asked > 1 ? 1 : r->p * asked;
    if (r->verdict != HA_PASS || !(r->p < HA_SUSPECT_P)) return;
    r->verdict = HA_SUSPECT;
    snprintf(r->reason, sizeof r->reason, "%s", r->suspicion);
}

double ha_result_asked(size_t before)
{
    const double k = (double)before + 1, log_k = log(k);
    return 2 * k * (1 + log_k) * (1 + log_k);
}

void ha_result_set(const struct ha_group *group, size_t i, enum ha_status status, const struct ha_why *why)
{
    static const enum ha_verdict verdict[] = { [HA_OK] = HA_NOT_RUN,
                                               [HA_FAIL] = HA_VERDICT_FAIL,
                                               [HA_WAIVED] = HA_VERDICT_WAIVED,
                                               [HA_ERROR] = HA_VERDICT_ERROR };
    struct ha_result *r = group->row[i];
    if (status == HA_OK || r->verdict != HA_NOT_RUN) return;
    r->verdict = verdict[status];
    memcpy(r->reason, why->text, sizeof r->reason);
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static double number_at(const void *row, size_t offset)
{
    double x;
    memcpy(&x, (const char *)row + offset, sizeof x);
    return x;
}

static void put_number(void *row, size_t offset, double x) { memcpy((char *)row + offset, &x, sizeof x); }

static uint64_t whole_at(const void *row, size_t offset)
{
    uint64_t x;
    memcpy(&x, (const char *)row + offset, sizeof x);
    return x;
}

void ha_planted_print(FILE *out, const struct ha_result *head, const char *name, const char *what, const char *seen,
                      const char *alive, const char *where, const char *said)
{
    const bool passed = head->verdict == HA_PASS, failed = head->verdict == HA_VERDICT_FAIL;
    const char *const why = passed ? said : head->reason;
    fprintf(out, "%-22s %-9s %s\n", name, passed ? seen : failed ? alive : ha_verdict_name(head->verdict), what);
    if (passed && *where) fprintf(out, "%33s'%s'\n", "", where);
    if (*why) fprintf(out, "%33s%.300s\n", "", why);
}

#define BESIDE(i) HA_IN(struct ha_result, beside[i]), .files = 1
static const struct ha_field common[] = {
    { "beside_read_GBps", "GB/s", HA_FIELD_NUMBER, BESIDE(HA_BESIDE_READ), .better = HA_MORE,
      .doc = "host memory read by all threads, right before and after the case was measured: the mean" },
    { "beside_read_1_GBps", "GB/s", HA_FIELD_NUMBER, BESIDE(HA_BESIDE_READ_1), .better = HA_MORE,
      .doc = "the same by one thread" },
    { "beside_flops_GFLOPps", "GFLOP/s", HA_FIELD_NUMBER, BESIDE(HA_BESIDE_FLOPS), .better = HA_MORE,
      .doc = "multiply-adds of one thread then: the clock of a core" },
    { "beside_h2d_GBps", "GB/s", HA_FIELD_NUMBER, BESIDE(HA_BESIDE_H2D), .better = HA_MORE,
      .doc = "the link then, host to device" },
    { "beside_d2h_GBps", "GB/s", HA_FIELD_NUMBER, BESIDE(HA_BESIDE_D2H), .better = HA_MORE,
      .doc = "the link then, device to host" },
    { "beside_device_GBps", "GB/s", HA_FIELD_NUMBER, BESIDE(HA_BESIDE_DEVICE), .better = HA_MORE,
      .doc = "device memory then, read by a kernel; empty where it is the host's" },
    { "beside_launch_ns", "ns", HA_FIELD_NUMBER, BESIDE(HA_BESIDE_LAUNCH), .better = HA_LESS,
      .doc = "launch and synchronise then" },
    { "beside_apart", "", HA_FIELD_NUMBER, BESIDE(HA_BESIDE_APART), .better = HA_NEITHER,
      .doc = "the largest difference between before and after among those, as a share of the mean" },
    { "together", "", HA_FIELD_NUMBER, HA_IN(struct ha_result, together), .files = 1,
      .doc =
          "ranks that measured this case at once, this one too, from its first sample until all had theirs; 1: alone" },
    { "together_of", "", HA_FIELD_NUMBER, HA_IN(struct ha_result, together_of), .files = 1,
      .doc = "ranks that were asked for" },
    { "apart_us", "us", HA_FIELD_NUMBER, HA_IN(struct ha_result, apart_us), .files = 1,
      .doc = "how far apart the first and the last of them began, at most; empty where clocks cannot be compared" },
    { "kept", "", HA_FIELD_NUMBER, HA_IN(struct ha_result, kept), .files = 1, .better = HA_MORE,
      .doc = "the case's first time or rate alone over that together, or the other way round of a rate: 1 is no loss" },
    { "plan", "", HA_FIELD_TEXT, HA_IN(struct ha_result, plan), .files = 1,
      .doc =
          "what the CPU kernels ask ahead and whose they are: a digest, whose choices env.json has, or `constants`" },
    { "outputs", "", HA_FIELD_TEXT, HA_IN(struct ha_result, outputs), .files = 1,
      .doc = "16 hexadecimal digits for all bits of the outputs that were judged: machines of one kind with one build, "
             "plan and seed have the same; empty: not passed, none seen, or what computes does not promise the same "
             "bits (docs/measurement.md)" },
};
#undef BESIDE

size_t ha_fields_all(const struct ha_suite *suite) { return suite->fields + sizeof common / sizeof *common; }

const struct ha_field *ha_field_at(const struct ha_suite *suite, size_t i)
{
    return i < suite->fields ? &suite->field[i] : &common[i - suite->fields];
}

void ha_fields_clear(const struct ha_suite *suite, void *row)
{
    memset(row, 0, suite->row_bytes);
    for (size_t i = 0; i < ha_fields_all(suite); i++) {
        const struct ha_field *f = ha_field_at(suite, i);
        if (f->kind == HA_FIELD_NUMBER) put_number(row, f->offset, (double)NAN);
        if (f->lo) put_number(row, f->lo, (double)NAN);
        if (f->hi) put_number(row, f->hi, (double)NAN);
    }
    ha_result_of(row)->samples = ha_result_of(row)->p = (double)NAN;
}

bool ha_fields_mend(const struct ha_suite *suite, void *row)
{
    struct ha_result *head = ha_result_of(row);
    uint32_t verdict;
    memcpy(&verdict, &head->verdict, sizeof verdict);
    if (verdict >= HA_VERDICTS) head->verdict = HA_NOT_RUN;
    head->reason[sizeof head->reason - 1] = 0;
    ha_text_clean(head->reason);
    head->suspicion[sizeof head->suspicion - 1] = 0;
    ha_text_clean(head->suspicion);
    for (size_t i = 0; i < ha_fields_all(suite); i++) {
        const struct ha_field *f = ha_field_at(suite, i);
        if (f->kind != HA_FIELD_TEXT || !f->bytes) continue;
        char *text = (char *)row + f->offset;
        text[f->bytes - 1] = 0;
        ha_text_clean(text);
    }
    return head->verdict != HA_NOT_RUN;
}

size_t ha_field_print(const struct ha_field *field, const void *row, char *out, size_t size)
{
    char number[32];
    switch (field->kind) {
    case HA_FIELD_NUMBER:
        ha_csv_number(number, number_at(row, field->offset));
        return (size_t)snprintf(out, size, "%s", number);
    case HA_FIELD_WHOLE: return (size_t)snprintf(out, size, "%llu", (unsigned long long)whole_at(row, field->offset));
    case HA_FIELD_TEXT: break;
    }
    const char *text = (const char *)row + field->offset;
    const size_t bytes = strnlen(text, field->bytes ? field->bytes - 1 : 0);
    snprintf(out, size, "%.*s", (int)bytes, text);
    if (size) ha_text_clean(out);
    return bytes;
}

static enum ha_status parse_number(const struct ha_field *f, void *row, const char *text, struct ha_why *why)
{
    double x;
    if (!ha_csv_number_parse(text, &x)) return ha_why(why, HA_ERROR, "%s: '%.40s' is no number", f->name, text);
    put_number(row, f->offset, x);
    return HA_OK;
}

static enum ha_status parse_whole(const struct ha_field *f, void *row, const char *text, struct ha_why *why)
{
    uint64_t x = 0;
    if (text[strspn(text, "0123456789")]) return ha_why(why, HA_ERROR, "%s: '%.40s' is no whole number", f->name, text);
    errno = 0;
    if (*text) x = strtoull(text, NULL, 10);
    if (errno) return ha_why(why, HA_ERROR, "%s: '%.40s' is above 18446744073709551615", f->name, text);
    memcpy((char *)row + f->offset, &x, sizeof x);
    return HA_OK;
}

enum ha_status ha_field_parse(const struct ha_field *field, void *row, const char *text, struct ha_why *why)
{
    if (field->kind == HA_FIELD_NUMBER) return parse_number(field, row, text, why);
    if (field->kind == HA_FIELD_WHOLE) return parse_whole(field, row, text, why);
    const size_t bytes = strlen(text);
    if (bytes >= field->bytes)
        return ha_why(why, HA_ERROR, "%s: %zu bytes, and there is room for %zu", field->name, bytes, field->bytes - 1);
    char *out = (char *)row + field->offset;
    memset(out, 0, field->bytes);
    memcpy(out, text, bytes);
    return HA_OK;
}

double ha_field_value(const struct ha_field *field, const void *row)
{
    return field->kind == HA_FIELD_NUMBER  ? number_at(row, field->offset)
           : field->kind == HA_FIELD_WHOLE ? (double)whole_at(row, field->offset)
                                           : (double)NAN;
}

double ha_field_end(size_t end, const void *row) { return end ? number_at(row, end) : (double)NAN; }

bool ha_field_figure(const struct ha_field *field, const void *row)
{
    return field->better != HA_NO_FIGURE && (field->files & 1u) && !isnan(ha_field_value(field, row));
}

double ha_fields_speed(const struct ha_suite *suite, const void *row)
{
    for (size_t i = 0; i < suite->fields; i++) {
        const struct ha_field *f = &suite->field[i];
        if (!ha_field_figure(f, row) || !f->unit || f->better == HA_NEITHER) continue;
        if (!strcmp(f->unit, "ns")) return ha_field_value(f, row);
        if (strstr(f->unit, "/s")) return -ha_field_value(f, row);
    }
    return (double)NAN;
}

const char *ha_better_name(enum ha_better better)
{
    static const char *const name[] = {
        [HA_NO_FIGURE] = "", [HA_NEITHER] = "neither", [HA_LESS] = "less", [HA_MORE] = "more"
    };
    return name[better];
}
