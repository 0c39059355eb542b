#include "harness/base/json_line.h"
#include "harness/compare/print.h"
#include "harness/compare/side_by_side.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 64, KEY = 1024 };

static const char *const speed_words[HA_SPEED_WORDS] = {
    [HA_SPEED_FASTER] = "faster",   [HA_SPEED_EVEN] = "even",   [HA_SPEED_SLOWER] = "slower",
    [HA_SPEED_FEW] = "too few",     [HA_SPEED_WRONG] = "wrong", [HA_SPEED_DISTURBED] = "disturbed",
    [HA_SPEED_NO_TIME] = "no time",
};

static const char *ratio_text(char out[WORD], struct ha_speed_ratio r)
{
    if (isnan(r.size)) snprintf(out, WORD, "-");
    else if (isnan(r.lo)) snprintf(out, WORD, "%.3g (-)", exp(r.size));
    else snprintf(out, WORD, "%.3g (%.3g to %.3g)", exp(r.size), exp(r.lo), exp(r.hi));
    return out;
}

/* ---- quantities of a case on a machine --------------------------------------------------------------------------- */

static double tokens_per_s(const struct ha_side_by_side *s, size_t i, const struct ha_recorded_case *c)
{
    return ha_side_figure(s, i, c, "tokens_per_s");
}

static double energy_of_token(const struct ha_side_by_side *s, size_t i, const struct ha_recorded_case *c)
{
    const double step_s = ha_side_figure(s, i, c, "step_ns") / 1e9;
    return ha_side_figure(s, i, c, "energy_step_J") / (tokens_per_s(s, i, c) * step_s);
}

static double price_of_tokens(const struct ha_side_by_side *s, size_t i, const struct ha_recorded_case *c)
{
    return s->machine[i].price / 3600 / tokens_per_s(s, i, c) * 1e6;
}

static const struct {
    const char *member, *title;
    bool by_shape; /* means of the cases of a batch and a context */
    double (*of)(const struct ha_side_by_side *s, size_t machine, const struct ha_recorded_case *of);
} quantities[] = {
    { "tokens_per_s", "tokens/s, geometric means of the cases of a batch and a context", true, tokens_per_s },
    { "token_J", "J of a token", false, energy_of_token },
    { "price", "price of 10^6 tokens, through the layers of the case alone", false, price_of_tokens },
};
enum { QUANTITIES = sizeof quantities / sizeof *quantities };

/* The value of a key of an id, or what it is where the id does not say. */
static const char *key_text(char out[WORD], const char *id, const char *key, const char *without)
{
    const size_t length = strlen(key);
    for (const char *at = strpbrk(id, ":,"); at; at = strpbrk(at + 1, ","))
        if (!strncmp(at + 1, key, length) && at[1 + length] == '=') {
            const char *value = at + length + 2;
            snprintf(out, WORD, "%.*s", (int)strcspn(value, ","), value);
            return out;
        }
    snprintf(out, WORD, "%s", without);
    return out;
}

/* Cases of which the text is the same are one line of the table. */
static const char *group_text(char out[KEY], size_t q, const char *id)
{
    char batch[WORD], ctx[WORD];
    if (!quantities[q].by_shape) snprintf(out, KEY, "%s", id);
    else snprintf(out, KEY, "batch=%s,ctx=%s", key_text(batch, id, "batch", "1"), key_text(ctx, id, "ctx", "?"));
    return out;
}

/* Is it known of a row on every machine? */
static bool has_quantity(const struct ha_side_by_side *s, size_t q, const struct ha_side_case *row)
{
    for (size_t i = 0; i < s->machines; i++)
        if (row[i].word > HA_SPEED_FEW || !(quantities[q].of(s, i, row[i].of) > 0)) return false;
    return true;
}

static void print_machines(FILE *out, const struct ha_side_by_side *s, const char *title, int width)
{
    fprintf(out, "\n%s\n", title);
    for (size_t i = 0; i < s->machines; i++) fprintf(out, "%*s ", width, s->machine[i].name);
}

static void print_quantity(FILE *out, const struct ha_side_by_side *s, size_t q)
{
    char first[KEY], other[KEY];
    bool *done = calloc(s->rows + 1, sizeof *done), any = false;
    for (size_t r = 0; done && r < s->rows; r++) {
        size_t cases = 0;
        if (done[r] || !has_quantity(s, q, &s->cell[r * s->machines])) continue;
        if (!any) print_machines(out, s, quantities[q].title, 12);
        if (!any) fputs("cases\n", out);
        any = true;
        group_text(first, q, s->cell[r * s->machines].of->id);
        for (size_t i = 0; i < s->machines; i++) {
            double sum = 0;
            cases = 0;
            for (size_t k = r; k < s->rows; k++) {
                const struct ha_side_case *row = &s->cell[k * s->machines];
                if (strcmp(first, group_text(other, q, row->of->id)) != 0 || !has_quantity(s, q, row)) continue;
                sum += log(quantities[q].of(s, i, row[i].of));
                cases++;
                done[k] = true;
            }
            fprintf(out, "%12.4g ", exp(sum / (double)cases));
        }
        fprintf(out, "%5zu  %s\n", cases, first);
    }
    free(done);
}

/* ---- contexts within a limit ------------------------------------------------------------------------------------- */

/* Of cases that differ in their context alone: the longest on a machine whose step is within the limit. */
struct within {
    const struct ha_recorded_case *of;
    double tokens, most, step_ns; /* tokens of its context; of the longest that was measured */
};

/* The tokens of lengths that are joined by + */
static double tokens_of(const char *id)
{
    char text[WORD];
    double sum = 0;
    key_text(text, id, "ctx", "");
    for (char *at = text, *end; *at; at = *end ? end + 1 : end) sum += strtod(at, &end);
    return sum;
}

/* The id without its context. */
static void without_ctx(char out[KEY], const char *id)
{
    size_t n = (size_t)snprintf(out, KEY, "%.*s", (int)strcspn(id, ":"), id);
    char between = ':';
    for (const char *at = strpbrk(id, ":,"); at && n < KEY; at = strpbrk(at + 1, ",")) {
        if (!strncmp(at + 1, "ctx=", 4)) continue;
        n += (size_t)snprintf(out + n, KEY - n, "%c%.*s", between, (int)strcspn(at + 1, ","), at + 1);
        between = ',';
    }
}

static struct within longest(const struct ha_side_by_side *s, size_t i, const char *key, uint64_t limit_ns)
{
    struct within w = { 0 };
    for (size_t k = 0; k < s->machine[i].record->count; k++) {
        const struct ha_recorded_case *c = s->machine[i].record->cases[k];
        const double tokens = tokens_of(c->id), step_ns = ha_side_figure(s, i, c, "step_ns");
        char its[KEY];
        without_ctx(its, c->id);
        if (strcmp(its, key) != 0 || !ha_side_case_right(c) || strcmp(c->mode, "run") != 0 || isnan(step_ns)) continue;
        w.most = fmax(w.most, tokens);
        if (step_ns >= (double)limit_ns || tokens <= w.tokens) continue;
        w = (struct within){ c, tokens, w.most, step_ns };
    }
    return w;
}

/* The key of a case, where no case before it has the same. */
static bool first_of_key(char key[KEY], const struct ha_side_by_side *s, size_t machine, size_t at)
{
    char other[KEY];
    without_ctx(key, s->machine[machine].record->cases[at]->id);
    for (size_t i = 0; i <= machine; i++)
        for (size_t k = 0; k < (i < machine ? s->machine[i].record->count : at); k++) {
            without_ctx(other, s->machine[i].record->cases[k]->id);
            if (!strcmp(key, other)) return false;
        }
    return true;
}

/* What K, V and what the variant keeps beside them leave of the memory of the one device; NaN: it is not said. */
static double left_GiB(const struct ha_side_by_side *s, size_t i, const struct ha_recorded_case *c)
{
    const struct ha_record *r = s->machine[i].record;
    const struct ha_night *n = &r->night[r->nights - 1];
    double memory_GiB = (double)NAN;
    for (size_t k = 0; k < n->facts; k++) {
        const char *end = strstr(n->fact[k].name, ": memory_bytes");
        if (strncmp(n->fact[k].name, "device ", 7) != 0 || !end) continue;
        if (!isnan(memory_GiB)) return (double)NAN; /* of which device it is, nobody says */
        memory_GiB = strtod(n->fact[k].value, NULL);
    }
    const double beside = ha_side_figure(s, i, c, "meta_gpu_bytes");
    const double used = ha_side_figure(s, i, c, "kv_gpu_bytes") + (isnan(beside) ? 0 : beside);
    return memory_GiB - used / 0x1p30;
}

/* Calls for each key of which a machine has measured a context: within[] is of the machines. */
static void each_limit(FILE *out, const struct ha_side_by_side *s, uint64_t limit_ns,
                       void (*put)(FILE *out, const struct ha_side_by_side *s, const char *key,
                                   const struct within *within, uint64_t limit_ns))
{
    struct within *within = calloc(s->machines, sizeof *within);
    for (size_t m = 0; within && m < s->machines; m++)
        for (size_t k = 0; k < s->machine[m].record->count; k++) {
            char key[KEY];
            double most = 0;
            if (!first_of_key(key, s, m, k)) continue;
            for (size_t i = 0; i < s->machines; i++) {
                within[i] = longest(s, i, key, limit_ns);
                most = fmax(most, within[i].most);
            }
            if (most > 0) put(out, s, key, within, limit_ns);
        }
    free(within);
}

static void print_within(FILE *out, const struct ha_side_by_side *s, const char *key, const struct within *within,
                         uint64_t limit_ns)
{
    for (size_t i = 0; i < s->machines; i++) {
        const struct within *w = &within[i];
        const double left = w->of ? left_GiB(s, i, w->of) : (double)NAN;
        char text[2 * WORD], ctx[WORD];
        size_t n = (size_t)snprintf(text, sizeof text, "%s%s", w->of && w->tokens == w->most ? ">= " : "",
                                    w->of         ? key_text(ctx, w->of->id, "ctx", "")
                                    : w->most > 0 ? "none"
                                                  : "-");
        if (!isnan(left)) snprintf(text + n, sizeof text - n, ", %.4g GiB", left);
        fprintf(out, "%24s ", text);
    }
    fprintf(out, " %s\n", key);
}

static void print_limit(FILE *out, const struct ha_side_by_side *s, uint64_t limit_ns)
{
    char title[4 * WORD], limit[HA_AMOUNT];
    snprintf(title, sizeof title, "the longest ctx measured below %s a step (>=: none longer was measured)%s",
             ha_amount(limit, (double)limit_ns, "ns"), ", and memory of the device left beside its K and V");
    print_machines(out, s, title, 24);
    fputs(" case\n", out);
    each_limit(out, s, limit_ns, print_within);
}

/* ---- for a reader ------------------------------------------------------------------------------------------------ */

static size_t left_out(const struct ha_speed_mean *m)
{
    return m->word[HA_SPEED_WRONG] + m->word[HA_SPEED_DISTURBED] + m->word[HA_SPEED_NO_TIME];
}

static void put_words(FILE *out, const struct ha_speed_mean *m)
{
    fprintf(out, "faster in %zu, even in %zu, slower in %zu", m->word[HA_SPEED_FASTER], m->word[HA_SPEED_EVEN],
            m->word[HA_SPEED_SLOWER]);
    if (m->word[HA_SPEED_FEW]) fprintf(out, ", %zu of too few processes to say", m->word[HA_SPEED_FEW]);
    for (int w = HA_SPEED_WRONG, n = 0; w < HA_SPEED_WORDS; w++)
        if (m->word[w]) fprintf(out, "%s %zu %s", n++ ? "," : "; left out:", m->word[w], speed_words[w]);
}

static void put_summary(FILE *out, const struct ha_side_by_side *s, size_t a, size_t b)
{
    const struct ha_speed_mean m = ha_side_by_side_mean(s, a, b, NULL);
    const char *x = s->machine[a].name, *y = s->machine[b].name;
    if (!m.cases) {
        fprintf(out, "%s and %s: no case is right on both and has a time on both", x, y);
        return;
    }
    fprintf(out, "%s is %.3g times as fast as %s", y, exp(m.ratio.size), x);
    if (!isnan(m.ratio.lo)) fprintf(out, " (%.3g to %.3g)", exp(m.ratio.lo), exp(m.ratio.hi));
    fprintf(out, " over %zu case%s", m.cases, m.cases == 1 ? "" : "s");
    if (a) return;
    fputs(": ", out);
    put_words(out, &m);
}

static bool is_first_of_head(const struct ha_side_by_side *s, size_t r)
{
    const char *id = s->cell[r * s->machines].of->id;
    const size_t n = strcspn(id, ":");
    for (size_t k = 0; k < r; k++) {
        const char *other = s->cell[k * s->machines].of->id;
        if (strcspn(other, ":") == n && !strncmp(other, id, n)) return false;
    }
    return true;
}

/* The geometric mean of a part's ratio over the cases that read it on both; NaN: none. */
static double mean_part(const struct ha_side_by_side *s, size_t b, size_t part)
{
    double sum = 0;
    size_t n = 0;
    for (size_t r = 0; r < s->rows; r++) {
        const double x = s->cell[r * s->machines + b].part[part];
        if (isnan(x)) continue;
        sum += x;
        n++;
    }
    return n ? sum / (double)n : (double)NAN;
}

static void print_summary(FILE *out, const struct ha_side_by_side *s, size_t b)
{
    char text[WORD];
    put_summary(out, s, 0, b);
    putc('\n', out);
    for (size_t r = 0; r < s->rows; r++) {
        const char *id = s->cell[r * s->machines].of->id;
        if (!is_first_of_head(s, r)) continue;
        const struct ha_speed_mean m = ha_side_by_side_mean(s, 0, b, id);
        fprintf(out, "  %-16.*s %-22s %3zu case%s ", (int)strcspn(id, ":"), id, ratio_text(text, m.ratio), m.cases,
                m.cases == 1 ? ": " : "s:");
        put_words(out, &m);
        putc('\n', out);
    }
    const char *before = "  what the machine could do beside them: ";
    for (size_t part = 0; part < HA_PARTS; part++) {
        const double x = mean_part(s, b, part);
        if (isnan(x)) continue;
        fprintf(out, "%s%s %.3g", before, ha_part_word(part), exp(x));
        before = "; ";
    }
    if (*before == ';') putc('\n', out);
}

static void print_cases(FILE *out, const struct ha_side_by_side *s, size_t b)
{
    char x[HA_AMOUNT], y[HA_AMOUNT], ratio[WORD];
    const char *base = s->machine[0].name, *name = s->machine[b].name;
    fprintf(out, "\n%12s %12s  %s over %-18s %-10s %-16s case and figure\n", base, name, name, base, "faster", "by");
    for (size_t r = 0; r < s->rows; r++) {
        const struct ha_side_case *row = &s->cell[r * s->machines], *c = &row[b];
        const char *unit = c->time ? c->time->unit : "";
        const bool counts = c->word <= HA_SPEED_FEW;
        const char *faster = c->word == HA_SPEED_FASTER   ? name
                             : c->word == HA_SPEED_SLOWER ? base
                                                          : speed_words[c->word];
        fprintf(out, "%12s %12s  %-25s %-10s %-16s %s %s\n", counts ? ha_amount(x, row->median, unit) : "-",
                counts ? ha_amount(y, c->median, unit) : "-", counts ? ratio_text(ratio, c->ratio) : "-", faster, c->by,
                c->of->id, c->time ? c->time->name : "");
    }
}

static void print_matrix(FILE *out, const struct ha_side_by_side *s)
{
    char text[WORD];
    size_t *order = calloc(2 * s->machines, sizeof *order), *place = order + s->machines;
    if (!order) return;
    ha_side_by_side_rank(s, order, place);
    print_machines(out, s, "times as fast as the machine of the row", 24);
    fputs(" over\n", out);
    for (size_t a = 0; a < s->machines; a++) {
        for (size_t b = 0; b < s->machines; b++)
            fprintf(out, "%24s ", a == b ? "1" : ratio_text(text, ha_side_by_side_mean(s, a, b, NULL).ratio));
        fprintf(out, " %s\n", s->machine[a].name);
    }
    fputs("rank:", out);
    for (size_t i = 0; i < s->machines; i++)
        fprintf(out, " %zu %s%s", place[order[i]], s->machine[order[i]].name, i + 1 < s->machines ? "," : "\n");
    free(order);
}

void ha_side_by_side_print_table(FILE *out, const struct ha_side_by_side *s, uint64_t limit_ns)
{
    for (size_t i = 0; i < s->machines; i++) {
        const struct ha_side_machine *m = &s->machine[i];
        const struct ha_night *n = &m->record->night[m->record->nights - 1];
        const char *cpu = ha_night_fact(n, "cpu");
        fprintf(out, "%s  %s: %s; %zu night%s, spread %.1f%%%s\n", m->name, m->path, cpu ? cpu : "", m->nights,
                m->nights == 1 ? "" : "s", 100 * m->spread, m->assumed ? ", assumed" : "");
    }
    putc('\n', out);
    for (size_t b = 1; b < s->machines; b++) print_summary(out, s, b);
    fputs("95% in brackets: of a case by its processes and nights; of a geometric mean by Student's t over its cases, "
          "and "
          "nights\n",
          out);
    if (s->machines > 2) print_matrix(out, s);
    for (size_t b = 1; b < s->machines; b++) print_cases(out, s, b);
    for (size_t q = 0; q < QUANTITIES; q++) print_quantity(out, s, q);
    if (limit_ns) print_limit(out, s, limit_ns);
    putc('\n', out);
}

/* ---- for a program ----------------------------------------------------------------------------------------------- */

static void set_ratio(json_t *row, struct ha_speed_ratio r)
{
    ha_json_set_number(row, "ratio", exp(r.size));
    ha_json_set_number(row, "lo", exp(r.lo));
    ha_json_set_number(row, "hi", exp(r.hi));
}

static void put_case(FILE *out, const struct ha_side_by_side *s, size_t r, size_t b)
{
    const struct ha_side_case *row = &s->cell[r * s->machines], *c = &row[b];
    json_t *j = json_object(), *parts = json_object();
    ha_json_set_text(j, "row", "side");
    ha_json_set_count(j, "new", b);
    ha_json_set_text(j, "case_id", c->of->id);
    ha_json_set_text(j, "suite", c->of->suite);
    ha_json_set_text(j, "speed", speed_words[c->word]);
    ha_json_set_text(j, "by", c->by);
    ha_json_set_count(j, "base_processes", row->processes);
    ha_json_set_count(j, "new_processes", c->processes);
    for (size_t part = 0; part < HA_PARTS; part++) ha_json_set_number(parts, ha_part_word(part), exp(c->part[part]));
    json_object_set_new(j, "parts", parts);
    if (c->time && c->word <= HA_SPEED_FEW) {
        char base[WORD];
        ha_json_set_text(j, "figure", c->time->name);
        ha_json_set_text(j, "unit", c->time->unit);
        ha_json_set_number(j, "base", row->median);
        ha_json_set_number(j, "value", c->median);
        set_ratio(j, c->ratio);
        for (size_t q = 0; q < QUANTITIES; q++) {
            snprintf(base, sizeof base, "base_%s", quantities[q].member);
            ha_json_set_number(j, base, quantities[q].of(s, 0, row->of));
            ha_json_set_number(j, quantities[q].member, quantities[q].of(s, b, c->of));
        }
    }
    ha_json_put_line(out, j);
}

/* head: an id that has it, or NULL: of all cases */
static void put_mean(FILE *out, const struct ha_side_by_side *s, size_t a, size_t b, const char *head, size_t place)
{
    const struct ha_speed_mean m = ha_side_by_side_mean(s, a, b, head);
    char *line = NULL, name[WORD] = "";
    size_t size;
    json_t *j = json_object();
    if (head) snprintf(name, sizeof name, "%.*s", (int)strcspn(head, ":"), head);
    ha_json_set_text(j, "row", "faster");
    ha_json_set_count(j, "index", a);
    ha_json_set_count(j, "new", b);
    ha_json_set_text(j, "of", name);
    ha_json_set_count(j, "cases", m.cases);
    set_ratio(j, m.ratio);
    if (place) ha_json_set_count(j, "place", place);
    for (int w = 0; w < HA_SPEED_FEW && !a; w++) ha_json_set_count(j, speed_words[w], m.word[w]);
    if (!a) ha_json_set_count(j, "too_few", m.word[HA_SPEED_FEW]);
    if (!a) ha_json_set_count(j, "left_out", left_out(&m));
    FILE *f = head ? NULL : open_memstream(&line, &size);
    if (f) {
        put_summary(f, s, a, b);
        fclose(f);
        ha_json_set_text(j, "line", line);
    }
    ha_json_put_line(out, j);
    free(line);
}

static void put_within(FILE *out, const struct ha_side_by_side *s, const char *key, const struct within *within,
                       uint64_t limit_ns)
{
    for (size_t i = 0; i < s->machines; i++) {
        const struct within *w = &within[i];
        json_t *j = w->most > 0 ? json_object() : NULL;
        if (!j) continue;
        ha_json_set_text(j, "row", "limit");
        ha_json_set_count(j, "index", i);
        ha_json_set_text(j, "of", key);
        ha_json_set_count(j, "limit_ns", limit_ns);
        ha_json_set_text(j, "case_id", w->of ? w->of->id : NULL);
        json_object_set_new(j, "longest", json_boolean(w->of && w->tokens == w->most));
        ha_json_set_number(j, "step_ns", w->of ? w->step_ns : (double)NAN);
        ha_json_set_number(j, "left_GiB", w->of ? left_GiB(s, i, w->of) : (double)NAN);
        ha_json_put_line(out, j);
    }
}

void ha_side_by_side_print_json(FILE *out, const struct ha_side_by_side *s, uint64_t limit_ns)
{
    size_t *order = calloc(2 * s->machines, sizeof *order), *place = order + s->machines;
    if (!order) return;
    ha_side_by_side_rank(s, order, place);
    for (size_t b = 1; b < s->machines; b++) {
        for (size_t r = 0; r < s->rows; r++) put_case(out, s, r, b);
        for (size_t r = 0; r < s->rows; r++)
            if (is_first_of_head(s, r)) put_mean(out, s, 0, b, s->cell[r * s->machines].of->id, 0);
        for (size_t a = 0; a < b; a++) put_mean(out, s, a, b, NULL, place[b]);
    }
    if (limit_ns) each_limit(out, s, limit_ns, put_within);
    free(order);
}
