#include "harness/base/array.h"
#include "harness/base/cover.h"
#include "harness/base/why.h"
#include "harness/engine/point.h"
#include "harness/engine/suite_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- axes -------------------------------------------------------------------------------------------------------- */

enum { AXES_MAX = 32 };
enum part { WHOLE, TIMES, SECOND }; /* of a pair: 40/8 is 5 times 8 */

struct axis {
    const struct ha_assignment *of;
    enum part part;
    size_t count, room;
    char **value;
};

struct ha_covering {
    const struct ha_suite *suite;
    const struct ha_assignments *a;
    struct axis axis[AXES_MAX];
    size_t axes, first[AXES_MAX + 1]; /* first: the number of each axis' value 0 among all values */
    unsigned char *met;               /* [all values][all values] */
    size_t points;                    /* that were noted */
    bool *used;                       /* [a->count] by any point that was made */
};

static enum ha_status at_line(const struct ha_covering *p, size_t line, enum ha_status status, struct ha_why *why)
{
    return p->a->file ? ha_why_prefix(why, status, "%s:%zu", p->a->file, line) : status;
}

static enum ha_status add_value(struct axis *axis, const char *text, size_t bytes, struct ha_why *why)
{
    char *copy = strndup(text, bytes);
    if (!copy || !ha_array_room(&axis->value, &axis->room, axis->count + 1, sizeof *axis->value)) {
        free(copy);
        return ha_why(why, HA_ERROR, "out of memory");
    }
    for (size_t i = 0; i < axis->count; i++)
        if (!strcmp(axis->value[i], copy)) {
            free(copy);
            return ha_why(why, HA_ERROR, "%s: '%.*s' is there twice", axis->of->name, (int)bytes, text);
        }
    axis->value[axis->count++] = copy;
    return HA_OK;
}

static enum ha_status add_words(struct axis *axis, const struct ha_suite *s, struct ha_why *why)
{
    const struct ha_key *key = NULL;
    for (size_t i = 0; i < s->keys; i++)
        if (!strcmp(s->key[i].name, axis->of->name)) key = &s->key[i];
    if (!key || !key->word)
        return ha_why(why, HA_ERROR, "%s: '*' is every word of a key, and this one has none", axis->of->name);
    for (size_t i = 0; key->word(i); i++) HA_TRY(add_value(axis, key->word(i), strlen(key->word(i)), why));
    return HA_OK;
}

/* One axis, or with a '/' by itself two; none where there is but one value. */
static enum ha_status read_axes(struct ha_covering *p, const struct ha_assignment *of, struct ha_why *why)
{
    const size_t begin = p->axes;
    struct axis *axis = &p->axis[p->axes];
    *axis = (struct axis){ .of = of };
    p->axes++;
    for (const char *v = of->values + strspn(of->values, ha_blanks); *v; v += strspn(v, ha_blanks)) {
        const size_t n = strcspn(v, ha_blanks);
        if (p->axes >= AXES_MAX) return ha_why(why, HA_ERROR, "more than %d axes", AXES_MAX - 1);
        if (n == 1 && *v == '/' && axis->part == WHOLE) {
            axis->part = TIMES;
            axis = &p->axis[p->axes++];
            *axis = (struct axis){ .of = of, .part = SECOND };
        } else if (n == 1 && *v == '*') HA_TRY(add_words(axis, p->suite, why));
        else HA_TRY(add_value(axis, v, n, why));
        v += n;
    }
    if (axis->part == SECOND && (!axis->count || !axis[-1].count))
        return ha_why(why, HA_ERROR, "%s: numbers stand on both sides of the '/'", of->name);
    if (axis->part == WHOLE && axis->count == 1) {
        free(axis->value[0]);
        free(axis->value);
        p->axes = begin;
    }
    return HA_OK;
}

static const struct ha_override *overridden(const struct ha_covering *p, const struct ha_assignment *of)
{
    for (size_t i = 0; i < p->suite->keys; i++)
        if (!strcmp(p->suite->key[i].name, of->name)) return ha_override_of(p->a, &p->suite->key[i]);
    return NULL;
}

/* A value that no case can have, of a key of all points: said before any case is tried. */
static enum ha_status check_value(const struct ha_suite *s, void *point, const struct ha_assignment *of,
                                  const char *value, struct ha_why *why)
{
    ha_point_clear(s, point);
    for (size_t i = 0; i < s->keys; i++)
        if (!strcmp(s->key[i].name, of->name)) return ha_point_set(point, &s->key[i], value, why);
    return HA_OK;
}

static enum ha_status check_values(const struct ha_suite *s, const struct ha_assignment *of, struct ha_why *why)
{
    enum ha_status status = HA_OK;
    char *values = strdup(of->values), *rest = NULL;
    void *point = malloc(s->point_bytes);
    if (!values || !point) status = ha_why(why, HA_ERROR, "out of memory");
    for (char *v = status == HA_OK ? strtok_r(values, ha_blanks, &rest) : NULL; v && status == HA_OK;
         v = strtok_r(NULL, ha_blanks, &rest))
        if (strcmp(v, "*") != 0) status = check_value(s, point, of, v, why);
    free(values);
    free(point);
    return status;
}

enum ha_status ha_covering_create(struct ha_covering **out, const struct ha_suite *s, const struct ha_assignments *a,
                                  struct ha_why *why)
{
    HA_TRY(ha_assignments_check(s, a, why)); /* before any case is tried: each would fail */
    struct ha_covering *p = calloc(1, sizeof *p);
    if (!p) return ha_why(why, HA_ERROR, "out of memory");
    p->suite = s;
    p->a = a;
    enum ha_status status = HA_OK;
    for (size_t i = 0; i < a->count && status == HA_OK; i++) {
        if (overridden(p, &a->of[i]) || (!a->of[i].own && a->of[i].line && !strpbrk(a->of[i].values, ha_blanks)))
            continue;
        status = strchr(a->of[i].values, '/') ? HA_OK : check_values(s, &a->of[i], why);
        if (status == HA_OK) status = read_axes(p, &a->of[i], why);
        if (status != HA_OK) at_line(p, a->of[i].line, status, why);
    }
    for (size_t i = 0; i < p->axes; i++) p->first[i + 1] = p->first[i] + p->axis[i].count;
    const size_t all = p->first[p->axes];
    p->met = calloc(all + 1, all + 1);
    p->used = calloc(a->count + 1, sizeof *p->used);
    if ((!p->met || !p->used) && status == HA_OK) status = ha_why(why, HA_ERROR, "out of memory");
    if (status == HA_OK) *out = p;
    else ha_covering_destroy(p);
    return status;
}

void ha_covering_destroy(struct ha_covering *p)
{
    for (size_t i = 0; i < p->axes; i++) {
        for (size_t v = 0; v < p->axis[i].count; v++) free(p->axis[i].value[v]);
        free(p->axis[i].value);
    }
    free(p->met);
    free(p->used);
    free(p);
}

/* ---- the point of a row ------------------------------------------------------------------------------------------ */

static bool whole_pair(const char *times, const char *second, char out[HA_VALUE_MAX])
{
    uint64_t x, y;
    const char *end;
    if (!ha_whole_parse(times, &x, &end) || *end || !ha_whole_parse(second, &y, &end) || *end) return false;
    snprintf(out, HA_VALUE_MAX, "%" PRIu64 "/%" PRIu64, x * y, y);
    return true;
}

/* the value of this axis in a point as text; false: it has none */
static bool value_in(const struct ha_covering *p, const struct axis *axis, const void *point, char out[HA_VALUE_MAX])
{
    uint64_t x, y;
    const char *end;
    if (!ha_point_get(p->suite, point, axis->of->name, out)) return false;
    if (axis->part == WHOLE) return true;
    if (!ha_whole_parse(out, &x, &end) || *end != '/' || !ha_whole_parse(end + 1, &y, &end) || *end || !y) return false;
    snprintf(out, HA_VALUE_MAX, "%" PRIu64, axis->part == TIMES ? x / y : y);
    return true;
}

struct probe {
    const struct ha_covering *covering;
    const size_t *row;
    double cost; /* infinite: the row is no point */
    ha_take *each;
    void *arg;
};

static enum ha_status on_point(void *arg, const struct ha_suite *s, void *point, struct ha_why *why)
{
    struct probe *probe = arg;
    const struct ha_covering *p = probe->covering;
    char text[HA_VALUE_MAX];
    for (size_t i = 0; i < p->axes; i++) {
        const char *said = p->axis[i].value[probe->row[i]];
        if (!value_in(p, &p->axis[i], point, text))
            return ha_why(why, HA_ERROR, "a point has no key '%s'", p->axis[i].of->name);
        if (strcmp(text, said) != 0)
            return ha_why(why, HA_ERROR, "%s=%s is the same as %s", p->axis[i].of->name, said, text);
    }
    probe->cost = s->cost ? s->cost(point) : 0;
    return probe->each ? probe->each(probe->arg, s, point, why) : HA_OK;
}

/* Expands a section with one value of each axis. */
static enum ha_status expand_row(struct probe *probe, struct ha_why *why)
{
    const struct ha_covering *p = probe->covering;
    struct ha_assignments one = *p->a;
    char pair[AXES_MAX][64], text[HA_VALUE_MAX];
    one.cover = HA_ALL_PRODUCTS;
    if (!probe->each) one.file = NULL; /* a reason without its line */
    one.of = malloc((one.count + 1) * sizeof *one.of);
    if (!one.of) return ha_why(why, HA_ERROR, "out of memory");
    memcpy(one.of, p->a->of, one.count * sizeof *one.of);
    /* of one value: some points may lack the key */
    for (size_t i = 0; i < one.count; i++) one.of[i].own = false;
    enum ha_status status = HA_OK;
    for (size_t i = 0; i < p->axes; i++) {
        const struct axis *axis = &p->axis[i];
        struct ha_assignment *to = &one.of[axis->of - p->a->of];
        to->own = true;
        to->values = axis->value[probe->row[i]];
        if (axis->part != TIMES) continue;
        if (!whole_pair(to->values, axis[1].value[probe->row[i + 1]], text))
            status = ha_why(why, HA_ERROR, "%s: '%.40s' and '%.40s' are no pair of whole numbers", axis->of->name,
                            to->values, axis[1].value[probe->row[i + 1]]);
        snprintf(pair[i++], sizeof *pair, "%.63s", text);
        to->values = pair[i - 1];
    }
    if (status == HA_OK) status = ha_expand(p->suite, &one, on_point, probe, why);
    for (size_t i = 0; i < one.count && status == HA_OK; i++) p->used[i] |= one.of[i].used;
    free(one.of);
    return status;
}

/* why: of an infinite cost */
static double cost_of(const struct ha_covering *p, const size_t *row, struct ha_why *why)
{
    struct probe probe = { .covering = p, .row = row, .cost = HUGE_VAL };
    why->text[0] = 0;
    return expand_row(&probe, why) == HA_OK ? probe.cost : HUGE_VAL;
}

static double ask(void *arg, const size_t *row)
{
    struct ha_why unused;
    return cost_of(arg, row, &unused);
}

/* What any case costs, as a share of what is too much: some milliseconds of some seconds. */
static const double FIXED = 0.002;

static struct ha_cover cover_of(struct ha_covering *p, size_t values[AXES_MAX])
{
    for (size_t i = 0; i < p->axes; i++) values[i] = p->axis[i].count;
    return (struct ha_cover){ .axes = p->axes,
                              .values = values,
                              .cost = ask,
                              .arg = p,
                              .most = p->a->most > 0 ? p->a->most : 1,
                              .fixed = FIXED };
}

/* Why the cheapest case with both values is none, or too dear; false: it is a case. */
static bool excluded(struct ha_covering *p, size_t a, size_t x, size_t b, size_t y, struct ha_why *why)
{
    size_t values[AXES_MAX], row[AXES_MAX];
    const struct ha_cover c = cover_of(p, values);
    const double cost = ha_cover_cheapest(&c, a, x, b, y, row);
    if (cost <= c.most) return false;
    if (isfinite(cost)) {
        ha_why(why, HA_OK, "costs %.2g, and at most %.2g is allowed", cost, c.most);
        return true;
    }
    memset(row, 0, sizeof row);
    row[a] = x;
    row[b] = y;
    cost_of(p, row, why);
    if (!why->text[0]) ha_why(why, HA_OK, "there is no such case");
    return true;
}

static enum ha_status every_value_is_there(struct ha_covering *p, const size_t *rows, size_t count, struct ha_why *why)
{
    for (size_t i = 0; i < p->axes; i++)
        for (size_t v = 0; v < p->axis[i].count; v++) {
            size_t r = 0;
            struct ha_why reason = { "" };
            while (r < count && rows[r * p->axes + i] != v) r++;
            if (r < count) continue;
            if (!excluded(p, i, v, i, v, &reason)) continue;
            ha_why(why, HA_ERROR, "%s: no case has the value '%.80s': %.300s", p->axis[i].of->name, p->axis[i].value[v],
                   reason.text);
            return at_line(p, p->axis[i].of->line, HA_ERROR, why);
        }
    return HA_OK;
}

/* The key of one value that a reason is about, or NULL: "NAME: ..." or "unknown NAME ...". */
static const struct ha_assignment *named(const struct ha_covering *p, const char *reason)
{
    static const char unknown[] = "unknown ";
    const bool word = !strncmp(reason, unknown, strlen(unknown));
    if (word) reason += strlen(unknown);
    for (size_t i = 0; i < p->a->count; i++) {
        const struct ha_assignment *of = &p->a->of[i];
        const size_t n = strlen(of->name);
        if (!strpbrk(of->values, ha_blanks) && !strncmp(reason, of->name, n) && reason[n] == (word ? ' ' : ':'))
            return of;
    }
    return NULL;
}

/* HA_ERROR: cases with each value fail for the very same reason, a key that has one value. Said before all pairs of the
 * other keys are tried, each of which would fail. */
static enum ha_status one_value_is_wrong(struct ha_covering *p, struct ha_why *why)
{
    size_t row[AXES_MAX] = { 0 };
    struct ha_why reason, first = { "" };
    const struct ha_assignment *wrong = NULL;
    for (size_t i = 0; i < p->axes; i++)
        for (size_t v = 0; v < p->axis[i].count; v++) {
            row[i] = v;
            if (isfinite(cost_of(p, row, &reason))) return HA_OK;
            row[i] = 0;
            if (!wrong) {
                wrong = named(p, reason.text);
                first = reason;
            }
            if (!wrong || strcmp(reason.text, first.text) != 0) return HA_OK;
        }
    return at_line(p, wrong->line, ha_why(why, HA_ERROR, "%s", first.text), why);
}

enum ha_status ha_covering_expand(struct ha_covering *p, ha_take *each, void *arg, struct ha_why *why)
{
    size_t values[AXES_MAX], *rows, count;
    const struct ha_cover c = cover_of(p, values);
    const bool pairs = p->a->cover == HA_COVERS_PAIRS;
    if (p->axes < 1 + (size_t)pairs)
        return at_line(p, p->a->line,
                       pairs ? ha_why(why, HA_ERROR, "pairs take two keys that have two values or more")
                             : ha_why(why, HA_ERROR, "no key has two values or more"),
                       why);
    HA_TRY(one_value_is_wrong(p, why));
    if ((pairs ? ha_cover_make(&c, &rows, &count) : ha_cover_values(&c, p->a->seed, &rows, &count)) != HA_OK)
        return ha_why(why, HA_ERROR, "out of memory");
    enum ha_status status = every_value_is_there(p, rows, count, why);
    for (size_t r = 0; r < count && status == HA_OK; r++) {
        struct probe probe = { .covering = p, .row = rows + r * p->axes, .each = each, .arg = arg };
        status = expand_row(&probe, why);
    }
    free(rows);
    for (size_t i = 0; i < p->a->count && status == HA_OK; i++)
        if (p->a->of[i].own && !p->used[i])
            return at_line(
                p, p->a->of[i].line,
                ha_why(why, HA_ERROR, "key '%s' belongs to none of the cases of [%s]", p->a->of[i].name, p->a->section),
                why);
    return status;
}

/* ---- coverage ---------------------------------------------------------------------------------------------------- */

static unsigned char *met(struct ha_covering *p, size_t a, size_t x, size_t b, size_t y)
{
    return &p->met[(p->first[a] + x) * p->first[p->axes] + p->first[b] + y];
}

void ha_covering_note(struct ha_covering *p, const void *point)
{
    size_t at[AXES_MAX];
    char text[HA_VALUE_MAX];
    p->points++;
    for (size_t i = 0; i < p->axes; i++) {
        const bool has = value_in(p, &p->axis[i], point, text);
        for (at[i] = 0; at[i] < p->axis[i].count; at[i]++)
            if (has && !strcmp(text, p->axis[i].value[at[i]])) break;
        for (size_t k = 0; k <= i; k++)
            if (at[i] < p->axis[i].count && at[k] < p->axis[k].count) *met(p, k, at[k], i, at[i]) = 1;
    }
}

static void print_axis(const struct axis *axis, FILE *out)
{
    static const char *const part[] = { "", " (times)", " (second)" };
    fprintf(out, "    %s%s:", axis->of->name, part[axis->part]);
    for (size_t v = 0; v < axis->count; v++) fprintf(out, " %s", axis->value[v]);
    putc('\n', out);
}

/* The pairs of value x of an axis with those of another, or value x itself. A line for those that are excluded, with
 * the reason of the first, and one for those that are missing. */
static void count_value(struct ha_covering *p, size_t a, size_t x, size_t b, struct ha_coverage *c, FILE *out)
{
    const struct axis *of = &p->axis[a], *with = &p->axis[b];
    char values[2][HA_VALUE_MAX] = { "", "" };
    struct ha_why reason = { "" };
    for (size_t y = a == b ? x : 0; y < (a == b ? x + 1 : with->count); y++) {
        struct ha_why why = { "" };
        c->pairs++;
        if (*met(p, a, x, b, y)) {
            c->met++;
            continue;
        }
        const bool missing = !excluded(p, a, x, b, y, &why);
        c->excluded += !missing;
        c->missing += missing;
        char *list = values[missing];
        if (!missing && !*list) reason = why;
        snprintf(list + strlen(list), HA_VALUE_MAX - strlen(list), " %s", with->value[y]);
    }
    const char *const part[] = { "", "times:", "second:" };
    for (int missing = 0; out && missing < 2; missing++)
        if (*values[missing])
            fprintf(out, "    %s %s=%s%s with %s=%s%s%s%s\n", missing ? "MISSING" : "excluded", of->of->name,
                    part[of->part], of->value[x], with->of->name, part[with->part], values[missing] + 1,
                    missing ? "" : ": ", missing ? "" : reason.text);
}

struct ha_coverage ha_covering_count(struct ha_covering *p, FILE *out)
{
    struct ha_coverage c = { .points = p->points, .axes = p->axes, .values = p->first[p->axes] };
    for (size_t i = 0; i < p->axes; i++) {
        const bool pairs = p->a->cover == HA_COVERS_PAIRS;
        if (out) print_axis(&p->axis[i], out);
        for (size_t k = pairs ? 0 : i; k < (pairs ? i : i + 1); k++)
            for (size_t x = 0; x < p->axis[k].count; x++) count_value(p, k, x, i, &c, out);
    }
    return c;
}
