#include "suites/kernels/plan.h"

#include "harness/base/try.h"
#include "harness/base/why.h"
#include "harness/base/words.h"

#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 4096, FILE_BYTES = 1 << 16, VALUES_MAX = 64, POINTS_MAX = 10000 };
static const char blanks[] = " \t\v\f\r";

/* the values of one key, and the line that names them; 0: none does */
struct axis {
    char word[VALUES_MAX][HA_CPU_VALUE_MAX];
    size_t count, line, at;
};

struct reader {
    const char *name, *rest;   /* of the text; rest: not yet read */
    size_t line, section_line; /* section_line: of the latest "[...", 0: none yet */
    size_t open_line;          /* of the section that is being read */
    size_t empty_line;         /* of one without a key, of which inih tells nothing */
    bool too_long;
    struct axis key[HA_CPU_KEYS], standard[HA_CPU_KEYS];
    enum ha_cpu_key axis;
    size_t axis_line;
    char section[64];
    struct ha_cpu_plan *plan;
    enum ha_status status;
    struct ha_why *why;
};

static enum ha_status out_of_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "out of memory"); }

/* ---- sections and points -------------------------------------------------------------------------- */

static enum ha_status add_section(struct ha_cpu_plan *plan, const char *name, enum ha_cpu_key axis, struct ha_why *why)
{
    struct ha_cpu_section *grown = realloc(plan->section, (plan->sections + 1) * sizeof *grown);
    if (!grown) return out_of_memory(why);
    plan->section = grown;
    grown[plan->sections] = (struct ha_cpu_section){ .axis = axis };
    snprintf(grown[plan->sections++].name, sizeof grown->name, "%s", name);
    return HA_OK;
}

static bool holds(const struct ha_cpu_section *s, const struct ha_cpu_point *point)
{
    for (size_t i = 0; i < s->count; i++)
        if (!memcmp(&s->point[i], point, sizeof *point)) return true;
    return false;
}

enum ha_status ha_cpu_plan_add(struct ha_cpu_plan *plan, const struct ha_cpu_point *point, struct ha_why *why)
{
    if (!plan->sections) HA_TRY(add_section(plan, "", HA_CPU_KEYS, why));
    struct ha_cpu_section *s = &plan->section[plan->sections - 1];
    if (holds(s, point)) return HA_OK;
    struct ha_cpu_point *grown = realloc(s->point, (s->count + 1) * sizeof *grown);
    if (!grown) return out_of_memory(why);
    s->point = grown;
    s->point[s->count++] = *point;
    return HA_OK;
}

static size_t result_of(struct ha_cpu_plan *plan, const struct ha_cpu_section *s, const struct ha_cpu_point *point)
{
    size_t i = 0;
    while (i < plan->results && memcmp(&plan->result[i].point, point, sizeof *point)) i++;
    if (i < plan->results) return i;
    ha_cpu_result_clear(&plan->result[i]);
    plan->result[i].point = *point;
    plan->result[i].section = s->name;
    return plan->results++;
}

enum ha_status ha_cpu_plan_close(struct ha_cpu_plan *plan, bool (*keep)(const void *arg, struct ha_cpu_point *point),
                                 const void *arg, struct ha_why *why)
{
    size_t points = 0;
    for (size_t i = 0; i < plan->sections; i++) {
        struct ha_cpu_section *s = &plan->section[i];
        const size_t count = s->count;
        s->count = 0;
        for (size_t j = 0; j < count; j++) {
            struct ha_cpu_point p = s->point[j];
            if (keep(arg, &p) && !holds(s, &p)) s->point[s->count++] = p;
        }
        points += s->count;
        s->result = calloc(s->count + 1, sizeof *s->result);
        if (!s->result) return out_of_memory(why);
    }
    plan->result = calloc(points + 1, sizeof *plan->result);
    if (!plan->result) return out_of_memory(why);
    for (size_t i = 0; i < plan->sections; i++)
        for (size_t j = 0; j < plan->section[i].count; j++)
            plan->section[i].result[j] = result_of(plan, &plan->section[i], &plan->section[i].point[j]);
    return HA_OK;
}

void ha_cpu_plan_free(struct ha_cpu_plan *plan)
{
    for (size_t i = 0; i < plan->sections; i++) {
        free(plan->section[i].point);
        free(plan->section[i].result);
    }
    free(plan->section);
    free(plan->result);
    *plan = (struct ha_cpu_plan){ 0 };
}

/* ---- the cross product ------------------------------------------------------------------------------ */

static bool advance(struct axis key[HA_CPU_KEYS])
{
    for (size_t k = HA_CPU_KEYS; k-- > 0;) {
        if (!key[k].count) continue;
        if (++key[k].at < key[k].count) return true;
        key[k].at = 0;
    }
    return false;
}

/* The point where the axes stand. `used`: keys that a kernel of the section has. */
static enum ha_status emit(struct reader *r, unsigned *used)
{
    struct ha_cpu_point p;
    ha_cpu_point_default(&p);
    for (int k = 0; k < HA_CPU_KEYS; k++) {
        const struct axis *a = &r->key[k];
        if (!a->count) continue;
        const enum ha_status st = ha_cpu_point_set(&p, (enum ha_cpu_key)k, a->word[a->at], r->why);
        if (st != HA_OK) return ha_why_prefix(r->why, st, "%s:%zu", r->name, a->line);
    }
    for (int k = 0; k < HA_CPU_KEYS; k++) *used |= (unsigned)ha_cpu_key_used(&p, (enum ha_cpu_key)k) << k;
    enum ha_status st = ha_cpu_point_settle(&p, r->why);
    if (st != HA_OK) return ha_why_prefix(r->why, st, "%s:%zu", r->name, r->open_line);
    const struct ha_cpu_section *s = &r->plan->section[r->plan->sections - 1];
    if (s->count >= POINTS_MAX)
        return ha_why(r->why, HA_ERROR, "%s:%zu: more than %d points", r->name, r->open_line, POINTS_MAX);
    return ha_cpu_plan_add(r->plan, &p, r->why);
}

static enum ha_status check_used(const struct reader *r, unsigned used)
{
    for (int k = 0; k < HA_CPU_KEYS; k++)
        if (r->key[k].line > r->open_line && !(used >> k & 1u))
            return ha_why(r->why, HA_ERROR, "%s:%zu: no kernel of [%s] has a key '%s'", r->name, r->key[k].line,
                          r->section, ha_cpu_key_name((enum ha_cpu_key)k));
    if (r->axis != HA_CPU_KEYS && r->key[r->axis].count < 2)
        return ha_why(r->why, HA_ERROR, "%s:%zu: [%s] has fewer than two values of its axis '%s'", r->name,
                      r->axis_line, r->section, ha_cpu_key_name(r->axis));
    return HA_OK;
}

static enum ha_status close_section(struct reader *r)
{
    unsigned used = 0;
    if (!r->open_line) return HA_OK;
    if (!strcmp(r->section, "default")) {
        memcpy(r->standard, r->key, sizeof r->standard);
        return HA_OK;
    }
    HA_TRY(add_section(r->plan, r->section, r->axis, r->why));
    do HA_TRY(emit(r, &used));
    while (advance(r->key));
    return check_used(r, used);
}

/* ---- reading ------------------------------------------------------------------------------------------ */

static enum ha_status split(struct axis *a, const char *value, size_t line, struct ha_why *why)
{
    *a = (struct axis){ .line = line };
    for (const char *w = value + strspn(value, blanks); *w; w += strspn(w, blanks)) {
        const size_t n = strcspn(w, blanks);
        if (a->count == VALUES_MAX) return ha_why(why, HA_ERROR, "more than %d values", VALUES_MAX);
        if (n >= HA_CPU_VALUE_MAX) return ha_why(why, HA_ERROR, "'%.80s' is too long for a value", w);
        memcpy(a->word[a->count++], w, n);
        w += n;
    }
    return a->count ? HA_OK : ha_why(why, HA_ERROR, "no value");
}

static enum ha_status open_section(struct reader *r, const char *name)
{
    const bool standard = !strcmp(name, "default");
    for (size_t i = 0; i < r->plan->sections; i++)
        if (!strcmp(r->plan->section[i].name, name))
            return ha_why(r->why, HA_ERROR, "section [%s] is there twice", name);
    if (standard && r->open_line) return ha_why(r->why, HA_ERROR, "[default] is the first section, or there is none");
    snprintf(r->section, sizeof r->section, "%s", name);
    r->open_line = r->section_line;
    r->axis = HA_CPU_KEYS;
    memcpy(r->key, r->standard, sizeof r->key);
    return HA_OK;
}

static enum ha_status add_entry(struct reader *r, const char *section, const char *name, const char *value)
{
    enum ha_cpu_key key;
    if (!r->section_line) return ha_why(r->why, HA_ERROR, "key '%.60s' stands before the first [section]", name);
    if (r->open_line != r->section_line) HA_TRY(open_section(r, section));
    if (!strcmp(name, "suite")) return HA_OK; /* it is this one */
    if (!strcmp(name, "axis")) {
        r->axis_line = r->line;
        return ha_cpu_key_find(value, &r->axis, r->why);
    }
    HA_TRY(ha_cpu_key_find(name, &key, r->why));
    if (r->key[key].line > r->open_line)
        return ha_why(r->why, HA_ERROR, "key '%s' is there twice; first in line %zu", name, r->key[key].line);
    const enum ha_status st = split(&r->key[key], value, r->line, r->why);
    return st == HA_OK ? st : ha_why_prefix(r->why, st, "key '%s'", name);
}

/* inih's handler: 0 stops. What closes a section names its own line. */
static int on_entry(void *user, const char *section, const char *name, const char *value)
{
    struct reader *r = user;
    if (r->open_line && r->open_line != r->section_line) {
        r->status = close_section(r);
        if (r->status != HA_OK) return 0;
    }
    r->status = add_entry(r, section, name, value);
    if (r->status != HA_OK) ha_why_prefix(r->why, r->status, "%s:%zu", r->name, r->line);
    return r->status == HA_OK;
}

static void note_empty(struct reader *r)
{
    if (r->open_line != r->section_line && !r->empty_line) r->empty_line = r->section_line;
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
    if (out[strspn(out, blanks)] != '[') return out;
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
    if (bad < 0) return out_of_memory(r->why);
    note_empty(r);
    if (r->empty_line) return ha_why(r->why, HA_ERROR, "%s:%zu: the section has no key", r->name, r->empty_line);
    HA_TRY(close_section(r));
    return r->plan->sections ? HA_OK : ha_why(r->why, HA_ERROR, "%s: no point", r->name);
}

enum ha_status ha_cpu_plan_parse(const char *name, const char *text, struct ha_cpu_plan *plan, struct ha_why *why)
{
    struct reader *r = calloc(1, sizeof *r);
    if (!r) return out_of_memory(why);
    *r = (struct reader){ .name = name, .rest = text, .plan = plan, .axis = HA_CPU_KEYS, .why = why };
    const enum ha_status st = parse(r);
    free(r);
    return st;
}

enum ha_status ha_cpu_plan_read(const char *path, struct ha_cpu_plan *plan, struct ha_why *why)
{
    char *text = calloc(1, FILE_BYTES + 2);
    FILE *f = text ? fopen(path, "rbe") : NULL;
    enum ha_status st = HA_OK;
    if (!text) st = out_of_memory(why);
    else if (!f) st = ha_why(why, HA_ERROR, "%s: %s", path, strerror(errno));
    const size_t n = f ? fread(text, 1, FILE_BYTES + 1, f) : 0;
    if (st == HA_OK && ferror(f)) st = ha_why(why, HA_ERROR, "%s: %s", path, strerror(errno));
    else if (st == HA_OK && n > FILE_BYTES) st = ha_why(why, HA_ERROR, "%s: larger than %d bytes", path, FILE_BYTES);
    else if (st == HA_OK && memchr(text, 0, n)) st = ha_why(why, HA_ERROR, "%s: not a text file", path);
    if (st == HA_OK) st = ha_cpu_plan_parse(path, text, plan, why);
    if (f) fclose(f);
    free(text);
    return st;
}
