#include "suites/variants/claims.h"

#include "harness/base/registry.h"
#include "harness/measure/ceilings.h"
#include "harness/report/row.h"
#include "suites/variants/fill.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *ha_claim_verdict_name(enum ha_claim_verdict verdict)
{
    static const char *const name[] = { [HA_CLAIM_HOLDS] = "holds",
                                        [HA_CLAIM_IN_SHAPE] = "in shape",
                                        [HA_CLAIM_REFUTED] = "refuted",
                                        [HA_CLAIM_NOT_APPLICABLE] = "not applicable" };
    return name[verdict];
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* The value that an option has in a row, as text: what the row says, or the default; "": there is none. */
static void option_text(const struct ha_row *r, const char *name, char out[256])
{
    const struct ha_variant *v = ha_variant_find(r->variant);
    const size_t length = strlen(name);
    char value[HA_VALUE_MAX] = "";
    for (size_t i = 0; v && i < v->params_count; i++)
        if (!strcmp(v->params[i].name, name)) ha_param_print(&v->params[i], v->params[i].value, value);
    snprintf(out, 256, "%.255s", value);
    for (const char *at = r->params; *out && *at; at += strcspn(at, ","), at += *at == ',')
        if (!strncmp(at, name, length) && at[length] == '=')
            snprintf(out, 256, "%.*s", (int)strcspn(at + length + 1, ","), at + length + 1);
}

/* An option of the row's variant, or else a column, as text; "": there is none, or nothing was measured. */
static void column_text(const struct ha_row *r, const char *name, char out[256])
{
    *out = 0;
    if (name) option_text(r, name, out);
    for (size_t i = 0; name && !*out && i < ha_suite_variants.fields; i++)
        if (!strcmp(ha_suite_variants.field[i].name, name)) ha_field_print(&ha_suite_variants.field[i], r, out, 256);
}

/* Has the row these options, "key=value,key=value"? NULL: it has. */
static bool has(const struct ha_row *r, const char *with)
{
    char name[64], value[256];
    for (const char *at = with; at && *at; at += strcspn(at, ","), at += *at == ',') {
        const size_t key = strcspn(at, "="), length = strcspn(at + key + 1, ",");
        snprintf(name, sizeof name, "%.*s", (int)key, at);
        option_text(r, name, value);
        if (strlen(value) != length || strncmp(value, at + key + 1, length) != 0) return false;
    }
    return true;
}

/* NaN: nothing was measured, or it is no number. */
static double column(const struct ha_row *r, const char *name)
{
    char text[256], *end;
    column_text(r, name, text);
    const double x = strtod(text, &end);
    return end == text || *end ? (double)NAN : x;
}

/* Appends; what does not fit is cut off. */
__attribute__((format(printf, 3, 4))) static void add(char *out, size_t size, const char *format, ...)
{
    const size_t used = strlen(out);
    va_list args;
    va_start(args, format);
    vsnprintf(out + used, size - used, format, args);
    va_end(args);
}
#define SAY(text, ...) add(text, sizeof(text), __VA_ARGS__)

static void say_value(const struct ha_claim *c, const struct ha_row *r, double value, struct ha_judgement *out)
{
    SAY(out->figures, "%s%.3g%s", *out->figures ? ", " : "", value * c->scale, c->unit);
    for (size_t i = 0; i < 2 && c->axis[i]; i++)
        SAY(out->figures, "%s%s %g", i ? ", " : " (", c->axis[i], column(r, c->axis[i]));
    if (c->axis[0]) SAY(out->figures, ")");
}

static const struct ha_claim_point *least(const struct ha_claim_point *p, size_t count)
{
    const struct ha_claim_point *at = p;
    for (size_t i = 1; i < count; i++)
        if (p[i].value < at->value) at = &p[i];
    return at;
}
static const struct ha_claim_point *most(const struct ha_claim_point *p, size_t count)
{
    const struct ha_claim_point *at = p;
    for (size_t i = 1; i < count; i++)
        if (p[i].value > at->value) at = &p[i];
    return at;
}

/* ---- forms ------------------------------------------------------------------------------------------------------- */

/* Does b lie further along one axis than a, where values fall less far, and like a on the other? */
static bool further(const struct ha_claim *c, const struct ha_claim_point *a, const struct ha_claim_point *b)
{
    size_t ahead = 0, apart = 0;
    for (size_t i = 0; i < 2 && c->axis[i]; i++) {
        const double x = column(a->row, c->axis[i]), y = column(b->row, c->axis[i]);
        ahead += y > x;
        apart += y < x || y > x;
    }
    return c->falls ? !ahead && apart == 1 : ahead == 1 && apart == 1;
}

enum ha_claim_verdict ha_claim_grows(const struct ha_claim *c, const struct ha_claim_point *p, size_t count,
                                     struct ha_judgement *out)
{
    const struct ha_claim_point *first = p, *last = p;
    size_t pairs = 0, up = 0;
    for (size_t i = 0; i < count; i++) {
        say_value(c, p[i].row, p[i].value, out);
        for (size_t j = 0; j < count; j++) {
            const bool is_further = further(c, &p[i], &p[j]);
            pairs += is_further;
            up += is_further && p[j].value > p[i].value;
        }
    }
    for (bool moved = true; moved;) { /* along one axis after the other */
        moved = false;
        for (size_t i = 0; i < count; i++) {
            if (further(c, &p[i], first)) first = &p[i], moved = true;
            if (further(c, last, &p[i])) last = &p[i], moved = true;
        }
    }
    SAY(out->figures, "; %s in %zu of %zu pairs", c->falls ? "falls" : "grows", up, pairs);
    SAY(out->rule,
        "holds: above %g%s everywhere, and %s in every pair; in shape: at the %s end above %g%s and above the "
        "%s one",
        c->holds[0] * c->scale, c->unit, c->falls ? "falling" : "growing", c->falls ? "near" : "far",
        c->in_shape[0] * c->scale, c->unit, c->falls ? "far" : "near");
    if (pairs && up == pairs && least(p, count)->value > c->holds[0]) return HA_CLAIM_HOLDS;
    return last->value > c->in_shape[0] && last->value > first->value ? HA_CLAIM_IN_SHAPE : HA_CLAIM_REFUTED;
}

enum ha_claim_verdict ha_claim_most(const struct ha_claim *c, const struct ha_claim_point *p, size_t count,
                                    struct ha_judgement *out)
{
    const double x = most(p, count)->value;
    SAY(out->figures, "%.3g%s to %.3g%s", least(p, count)->value * c->scale, c->unit, x * c->scale, c->unit);
    SAY(out->rule, "holds: at most %g%s; in shape: at most %g%s", c->holds[0] * c->scale, c->unit,
        c->in_shape[0] * c->scale, c->unit);
    return x <= c->holds[0] ? HA_CLAIM_HOLDS : x <= c->in_shape[0] ? HA_CLAIM_IN_SHAPE : HA_CLAIM_REFUTED;
}

enum ha_claim_verdict ha_claim_least(const struct ha_claim *c, const struct ha_claim_point *p, size_t count,
                                     struct ha_judgement *out)
{
    const double x = least(p, count)->value;
    SAY(out->figures, "%.3g%s to %.3g%s", x * c->scale, c->unit, most(p, count)->value * c->scale, c->unit);
    SAY(out->rule, "holds: at least %g%s; in shape: at least %g%s", c->holds[0] * c->scale, c->unit,
        c->in_shape[0] * c->scale, c->unit);
    return x >= c->holds[0] ? HA_CLAIM_HOLDS : x >= c->in_shape[0] ? HA_CLAIM_IN_SHAPE : HA_CLAIM_REFUTED;
}

enum ha_claim_verdict ha_claim_within(const struct ha_claim *c, const struct ha_claim_point *p, size_t count,
                                      struct ha_judgement *out)
{
    const double low = least(p, count)->value, high = most(p, count)->value;
    SAY(out->figures, "%.3g%s to %.3g%s", low * c->scale, c->unit, high * c->scale, c->unit);
    SAY(out->rule, "holds: from %g%s to %g%s; in shape: from %g%s to %g%s", c->holds[0] * c->scale, c->unit,
        c->holds[1] * c->scale, c->unit, c->in_shape[0] * c->scale, c->unit, c->in_shape[1] * c->scale, c->unit);
    if (low >= c->holds[0] && high <= c->holds[1]) return HA_CLAIM_HOLDS;
    return low >= c->in_shape[0] && high <= c->in_shape[1] ? HA_CLAIM_IN_SHAPE : HA_CLAIM_REFUTED;
}

/* The point that lies next along the axis; NULL: none. */
static const struct ha_claim_point *next(const struct ha_claim *c, const struct ha_claim_point *p, size_t count,
                                         const struct ha_claim_point *of)
{
    const struct ha_claim_point *at = NULL;
    for (size_t i = 0; i < count; i++)
        if ((!of || further(c, of, &p[i])) && (!at || further(c, &p[i], at))) at = &p[i];
    return at;
}

enum ha_claim_verdict ha_claim_crosses(const struct ha_claim *c, const struct ha_claim_point *p, size_t count,
                                       struct ha_judgement *out)
{
    double from = (double)NAN, to = (double)NAN, first = (double)NAN, last = (double)NAN, at = (double)NAN;
    for (const struct ha_claim_point *x = next(c, p, count, NULL); x; x = next(c, p, count, x)) {
        say_value(c, x->row, x->value, out);
        const double along = column(x->row, c->axis[0]);
        if (isnan(first)) first = x->value;
        /* between two points straight in logarithms */
        if (isnan(at) && last >= 1 && x->value < 1) at = from * pow(along / from, log(last) / log(last / x->value));
        from = along;
        last = x->value;
    }
    to = from;
    if (isnan(at)) SAY(out->figures, "; %s 1 up to %s %g", last >= 1 ? "at or above" : "below", c->axis[0], to);
    else SAY(out->figures, "; passes 1 at %s %.3g", c->axis[0], at);
    SAY(out->rule,
        "holds: above 1 at first, below it at last, and passing it between %g and %g; in shape: between %g and %g",
        c->holds[0], c->holds[1], c->in_shape[0], c->in_shape[1]);
    if (!(first > 1 && last < 1)) return HA_CLAIM_REFUTED;
    if (at >= c->holds[0] && at <= c->holds[1]) return HA_CLAIM_HOLDS;
    return at >= c->in_shape[0] && at <= c->in_shape[1] ? HA_CLAIM_IN_SHAPE : HA_CLAIM_REFUTED;
}

enum ha_claim_verdict ha_claim_range(const struct ha_claim *c, const struct ha_claim_point *p, size_t count,
                                     struct ha_judgement *out)
{
    const double low = least(p, count)->value;
    double high = -(double)INFINITY;
    for (size_t i = 0; i < count; i++) high = fmax(high, column(p[i].row, c->other));
    SAY(out->figures, "%.3g%s to %.3g%s", low * c->scale, c->unit, high * c->scale, c->unit);
    SAY(out->rule,
        "holds: the least at most %g%s, the most within a factor of two of %g%s; in shape: the most at least %g times "
        "the least",
        c->holds[0] * c->scale, c->unit, c->holds[1] * c->scale, c->unit, c->in_shape[0]);
    if (low <= c->holds[0] && high >= c->holds[1] / 2 && high <= c->holds[1] * 2) return HA_CLAIM_HOLDS;
    return high > 0 && high >= c->in_shape[0] * low ? HA_CLAIM_IN_SHAPE : HA_CLAIM_REFUTED;
}

enum ha_claim_verdict ha_claim_spread(const struct ha_claim *c, const struct ha_claim_point *p, size_t count,
                                      struct ha_judgement *out)
{
    double widest = 0;
    for (size_t i = 0; i < count; i++) {
        char group[256], other[256];
        bool seen = false;
        double low = p[i].value, high = low;
        column_text(p[i].row, c->group, group);
        for (size_t j = 0; j < count; j++) {
            column_text(p[j].row, c->group, other);
            if (strcmp(group, other) != 0) continue;
            seen |= j < i;
            low = fmin(low, p[j].value);
            high = fmax(high, p[j].value);
        }
        if (seen) continue;
        widest = fmax(widest, high - low);
        SAY(out->figures, "%s%s%s%.3g%s to %.3g%s", *out->figures ? "; " : "", group, *group ? " " : "", low * c->scale,
            c->unit, high * c->scale, c->unit);
    }
    SAY(out->rule, "holds: the largest at most %g%s above the least; in shape: at most %g%s", c->holds[0] * c->scale,
        c->unit, c->in_shape[0] * c->scale, c->unit);
    return widest <= c->holds[0] ? HA_CLAIM_HOLDS : widest <= c->in_shape[0] ? HA_CLAIM_IN_SHAPE : HA_CLAIM_REFUTED;
}

/* ---- from results to verdicts ------------------------------------------------------------------------------------ */

static const struct ha_section *section_of(const char *name, const struct ha_results *results)
{
    for (size_t i = 0; i < results->sections; i++)
        if (!strcmp(results->section[i].name, name)) return &results->section[i];
    return NULL;
}

/* Row i of the section, if it passed and is of that variant and device; or NULL. */
static const struct ha_row *row_of(const struct ha_results *results, const struct ha_section *section, size_t i,
                                   const char *variant, const char *device)
{
    const struct ha_row *r = results->entry[section->entry[i]].row;
    return r && ha_passed(r->head.verdict) && !strcmp(r->variant, variant) && !strcmp(r->device, device) ? r : NULL;
}

/* The column of the other variant over the same workload. NaN: it was not measured. */
static double beside(const struct ha_claim *c, const struct ha_results *results, const struct ha_row *of)
{
    double value = (double)NAN;
    const struct ha_section *section = section_of(c->over_section ? c->over_section : c->section, results);
    char *text = section ? ha_row_workload(of) : NULL;
    for (size_t i = 0; text && i < section->count; i++) {
        const struct ha_row *r = row_of(results, section, i, c->over, of->device);
        char *other = r ? ha_row_workload(r) : NULL;
        if (other && !strcmp(text, other) && has(r, c->over_with))
            value = column(r, c->over_column ? c->over_column : c->column);
        free(other);
    }
    free(text);
    return value;
}

void ha_claim_judge(const struct ha_claim *c, const struct ha_results *results, const char *device,
                    struct ha_judgement *out)
{
    const struct ha_section *section = section_of(c->section, results);
    struct ha_claim_point *p = section ? calloc(section->count + 1, sizeof *p) : NULL;
    size_t count = 0;
    *out = (struct ha_judgement){ .verdict = HA_CLAIM_NOT_APPLICABLE };
    for (size_t i = 0; p && i < section->count; i++) {
        const struct ha_row *r = row_of(results, section, i, c->variant, device);
        if (!r || !has(r, c->with)) continue;
        const double x = column(r, c->column), value = c->over ? beside(c, results, r) / x : x;
        if (!isnan(value) && !(c->other && isnan(column(r, c->other))))
            p[count++] = (struct ha_claim_point){ r, value };
    }
    if (count < c->cases || !count) {
        SAY(out->reason, "%zu of the %zu cases of section %s%s%s that it takes were measured and passed", count,
            c->cases, c->section, c->over_section ? ", beside " : "", c->over_section ? c->over_section : "");
    } else {
        const enum ha_claim_verdict verdict = c->form(c, p, count, out);
        const char *kind = p->row->device_kind;
        if (c->needs_link && !ha_has_link(kind))
            SAY(out->reason, "there is no PCIe link here: the device's memory is this host's (device kind %s)", kind);
        else out->verdict = verdict;
    }
    free(p);
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

/* Whether any case of the claim's section was in the run. */
static bool is_asked(const struct ha_claim *c, const struct ha_results *results)
{
    const struct ha_section *section = section_of(c->section, results);
    for (size_t i = 0; section && i < section->count; i++)
        if (results->entry[section->entry[i]].row) return true;
    return false;
}

static void print_device(FILE *out, const struct ha_results *results, const char *device)
{
    size_t unasked = 0;
    fprintf(out, "\nclaims of the papers, device %s:\n", device);
    for (size_t i = 0; i < ha_claims_count; i++) {
        const struct ha_claim *c = &ha_claims[i];
        struct ha_judgement j;
        if (!is_asked(c, results)) {
            unasked++;
            continue;
        }
        ha_claim_judge(c, results, device, &j);
        fprintf(out, "\n%s: \"%s\" (%s)\n  condition: %s\n  paper:     %s\n", c->system, c->text, c->source,
                c->condition, c->paper);
        fprintf(out, "  here:      %s\n", *j.figures ? j.figures : "-");
        fprintf(out, "  verdict:   %s%s%s\n", ha_claim_verdict_name(j.verdict), *j.reason ? ": " : "", j.reason);
        if (j.verdict != HA_CLAIM_NOT_APPLICABLE) fprintf(out, "  (%s)\n", j.rule);
    }
    if (unasked) fprintf(out, "\n%zu more claims are not asked: no case of their sections is in this run\n", unasked);
}

static const char *device_of(const struct ha_results *results, size_t i)
{
    const struct ha_case *c = results->entry[i].point;
    return c->device;
}

void ha_claims_print(FILE *out, const struct ha_results *results)
{
    bool any = false;
    for (size_t i = 0; i < ha_claims_count; i++) any = any || section_of(ha_claims[i].section, results);
    for (size_t i = 0; results->measured && any && i < results->entries; i++) {
        size_t before = 0;
        while (strcmp(device_of(results, before), device_of(results, i)) != 0) before++;
        if (before == i) print_device(out, results, device_of(results, i));
    }
}
