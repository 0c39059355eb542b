#define _GNU_SOURCE /* tdestroy */

#include "harness/compare/fleet.h"

#include "harness/base/array.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/compare/facts.h"
#include "harness/compare/sides.h"

#include <float.h>
#include <math.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "out of memory"); }

enum ha_status ha_fleet_begin(struct ha_fleet *f, const char *path, struct ha_why *why)
{
    *f = (struct ha_fleet){ .notes = calloc(1, 1) };
    f->path = ha_fleet_keep(f, path);
    return f->path && f->notes ? HA_OK : no_memory(why);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* A text, or the number of what it names. */
struct name {
    size_t number;
    char text[];
};

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

/* The one of that text; *new: it has no number yet. NULL: no memory. */
static struct name *name_of(struct ha_fleet *f, const char *text, bool *new)
{
    struct name *n = malloc(sizeof *n + strlen(text) + 1);
    if (!n) return NULL;
    n->number = SIZE_MAX;
    strcpy(n->text, text);
    struct name **found = tsearch(n, &f->names, by_text);
    *new = found &&*found == n;
    if (!*new) free(n);
    return found ? *found : NULL;
}

const char *ha_fleet_keep(struct ha_fleet *f, const char *text)
{
    bool new;
    char *clean = strdup(text);
    struct name *n = clean ? name_of(f, ha_text_clean(clean), &new) : NULL;
    free(clean);
    return n ? n->text : NULL;
}

enum { KEY_BYTES = 2048 };

/* false: too long */
static bool key_of(char key[KEY_BYTES], const char *kind, const char *a, const char *b, const char *c)
{
    return (size_t)snprintf(key, KEY_BYTES, "\001%s\001%s\001%s\001%s", kind, a, b, c) < KEY_BYTES;
}

/* The number that belongs to these texts, of things of one kind: SIZE_MAX where they are new. */
static size_t *number_of(struct ha_fleet *f, const char *kind, const char *a, const char *b, const char *c)
{
    char key[KEY_BYTES];
    bool new;
    if (!key_of(key, kind, a, b, c)) return NULL;
    struct name *n = name_of(f, key, &new);
    return n ? &n->number : NULL;
}

size_t ha_fleet_figure(struct ha_fleet *f, const struct ha_fleet_figure *like)
{
    size_t *number = number_of(f, "figure", like->mode, like->case_id, like->name);
    if (!number || *number != SIZE_MAX) return number ? *number : SIZE_MAX;
    struct ha_fleet_figure *new = malloc(sizeof *new);
    if (!new || !ha_array_room(&f->figure, &f->figures_room, f->figures + 1, sizeof *f->figure)) {
        free(new);
        return SIZE_MAX;
    }
    *new = (struct ha_fleet_figure){ .case_id = ha_fleet_keep(f, like->case_id),
                                     .mode = ha_fleet_keep(f, like->mode),
                                     .suite = ha_fleet_keep(f, like->suite),
                                     .name = ha_fleet_keep(f, like->name),
                                     .unit = ha_fleet_keep(f, like->unit),
                                     .better = like->better };
    new->speed = !strcmp(like->unit, "ns") || strstr(like->unit, "/s");
    for (const struct ha_part_of_machine *p = ha_parts_of_machine; p->figure; p++)
        if (!strcmp(p->figure, like->name)) new->part = p;
    if (!new->case_id || !new->mode || !new->suite || !new->name || !new->unit) {
        free(new);
        return SIZE_MAX;
    }
    f->figure[f->figures] = new;
    return *number = f->figures++;
}

size_t ha_fleet_find(const struct ha_fleet *f, const struct ha_fleet_figure *like)
{
    char room[sizeof(struct name) + KEY_BYTES];
    struct name *key = (struct name *)(void *)room;
    if (!key_of(key->text, "figure", like->mode, like->case_id, like->name)) return SIZE_MAX;
    struct name *const *found = tfind(key, &f->names, by_text);
    return found ? (*found)->number : SIZE_MAX;
}

size_t ha_fleet_fact(struct ha_fleet *f, const char *name, bool of_kind)
{
    size_t *number = number_of(f, "fact", name, "", ""), room = f->facts_room;
    if (!number || *number != SIZE_MAX) return number ? *number : SIZE_MAX;
    if (!ha_array_room(&f->fact, &room, f->facts + 1, sizeof *f->fact)) return SIZE_MAX;
    f->facts_room = room;
    if (!ha_array_room(&f->fact_of_kind, &f->kinds_room, f->facts + 1, sizeof *f->fact_of_kind)) return SIZE_MAX;
    f->fact[f->facts] = ha_fleet_keep(f, name);
    f->fact_of_kind[f->facts] = of_kind;
    return f->fact[f->facts] ? (*number = f->facts++) : SIZE_MAX;
}

size_t ha_fleet_case(struct ha_fleet *f, const char *mode, const char *id, const char *plan)
{
    size_t *number = number_of(f, "case", mode, id, plan);
    if (!number || *number != SIZE_MAX) return number ? *number : SIZE_MAX;
    if (!ha_array_room(&f->of, &f->ofs_room, f->ofs + 1, sizeof *f->of)) return SIZE_MAX;
    f->of[f->ofs] = (struct ha_fleet_case){ ha_fleet_keep(f, mode), ha_fleet_keep(f, id), ha_fleet_keep(f, plan) };
    if (!f->of[f->ofs].mode || !f->of[f->ofs].id || !f->of[f->ofs].plan) return SIZE_MAX;
    return *number = f->ofs++;
}

struct ha_fleet_machine *ha_fleet_machine(struct ha_fleet *f, const char *name)
{
    size_t *number = number_of(f, "machine", name, "", "");
    if (!number) return NULL;
    if (*number != SIZE_MAX) return &f->machine[*number];
    if (!ha_array_room(&f->machine, &f->room, f->count + 1, sizeof *f->machine)) return NULL;
    struct ha_fleet_machine *m = &f->machine[f->count];
    *m = (struct ha_fleet_machine){
        .name = ha_fleet_keep(f, name), .said = "", .date = "", .build = "", .group = SIZE_MAX, .threshold = -1
    };
    m->host = m->name;
    if (!m->name) return NULL;
    *number = f->count++;
    return m;
}

void ha_fleet_note(struct ha_fleet *f, const char *line)
{
    const size_t have = strlen(f->notes), more = strlen(line), most = 4096;
    char *notes = have + more < most ? realloc(f->notes, have + more + 2) : NULL;
    if (!notes) return;
    memcpy(notes + have, line, more + 1);
    ha_text_clean(notes + have);
    memcpy(notes + have + more, "\n", 2);
    f->notes = notes;
}

/* ---- what a record says ------------------------------------------------------------------------------------------ */

static int by_number(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* false: there is nothing to be compared. x: room for all of them */
static bool value_of(const struct ha_recorded_figure *f, double *x, struct ha_fleet_value *v)
{
    for (size_t i = 0; i < f->count; i++) {
        x[i] = ha_figure_logarithm(f, f->at[i].value == 0 ? DBL_MIN : f->at[i].value);
        if (isnan(x[i])) return false;
    }
    if (!f->count) return false;
    qsort(x, f->count, sizeof *x, by_number);
    v->processes = (uint32_t)f->count;
    v->best = x[0];
    v->x = (x[(f->count - 1) / 2] + x[f->count / 2]) / 2;
    return true;
}

/* Most machines have the same figures in the same order: what stood there of the last one is looked at first. */
static size_t figure_number(struct ha_fleet *f, const struct ha_recorded_case *c, const struct ha_recorded_figure *r,
                            size_t guess)
{
    const struct ha_fleet_figure like = { c->id, c->mode, c->suite, r->name, r->unit, r->better, false, NULL },
                                 *g = guess < f->figures ? f->figure[guess] : NULL;
    if (g && !strcmp(g->name, like.name) && !strcmp(g->case_id, like.case_id) && !strcmp(g->mode, like.mode))
        return guess;
    return ha_fleet_figure(f, &like);
}

static int by_figure(const void *a, const void *b)
{
    const struct ha_fleet_value *x = a, *y = b;
    return (x->figure > y->figure) - (x->figure < y->figure);
}

static enum ha_status take_values(struct ha_fleet *f, struct ha_fleet_machine *m, const struct ha_record *r,
                                  struct ha_why *why)
{
    size_t all = 0, most = 1, guess = 0;
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < r->cases[i]->figures; k++, all++)
            if (r->cases[i]->figure[k].count > most) most = r->cases[i]->figure[k].count;
    double *x = malloc(most * sizeof *x);
    m->value = malloc((all + 1) * sizeof *m->value);
    enum ha_status status = x && m->value ? HA_OK : no_memory(why);
    for (size_t i = 0; i < r->count && status == HA_OK; i++) {
        const struct ha_recorded_case *c = r->cases[i];
        /* the machine's own case is made of the readings beside all others, which are here, too */
        if (strcmp(c->mode, "run") != 0 || !strcmp(c->id, HA_MACHINE_CASE)) continue;
        if (2 * c->disturbances > c->processes) continue;
        for (size_t k = 0; k < c->figures && status == HA_OK; k++) {
            struct ha_fleet_value v;
            if (c->figure[k].better == HA_NEITHER || !value_of(&c->figure[k], x, &v)) continue;
            const size_t number = figure_number(f, c, &c->figure[k], guess);
            if (number == SIZE_MAX) status = no_memory(why);
            guess = number + 1;
            v.figure = (uint32_t)number;
            if (status == HA_OK) m->value[m->values++] = v;
        }
    }
    free(x);
    if (m->values) qsort(m->value, m->values, sizeof *m->value, by_figure);
    struct ha_fleet_value *less = realloc(m->value, (m->values + 1) * sizeof *m->value);
    if (less) m->value = less;
    return status;
}

/* 16 hexadecimal digits */
static bool digest_of(const char *text, uint64_t *digest)
{
    if (strlen(text) != 16 || text[strspn(text, "0123456789abcdef")]) return false;
    *digest = strtoull(text, NULL, 16);
    return true;
}

static enum ha_status take_digests(struct ha_fleet *f, struct ha_fleet_machine *m, const struct ha_recorded_case *c,
                                   size_t *room, struct ha_why *why)
{
    const size_t first = m->digests;
    for (size_t i = 0; i < c->outputs_count; i++) {
        struct ha_fleet_digest d = { 0 };
        if (!digest_of(c->outputs[i].digest, &d.digest)) continue;
        const size_t of = ha_fleet_case(f, c->mode, c->id, c->outputs[i].plan);
        if (of == SIZE_MAX) return no_memory(why);
        d.of = (uint32_t)of;
        size_t k = first;
        while (k < m->digests && m->digest[k].of != d.of) k++;
        if (k < m->digests) {
            m->digest[k].mixed |= m->digest[k].digest != d.digest;
            continue;
        }
        if (!ha_array_room(&m->digest, room, m->digests + 1, sizeof *m->digest)) return no_memory(why);
        m->digest[m->digests++] = d;
    }
    return HA_OK;
}

static int by_whole(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static enum ha_status say(struct ha_fleet *f, struct ha_fleet_machine *m, const char *what,
                          const struct ha_recorded_case *c, struct ha_why *why)
{
    char text[600];
    snprintf(text, sizeof text, "%s %.200s (%s)%s%.300s", what, c->id, c->mode, *c->reason ? ": " : "", c->reason);
    m->said = ha_fleet_keep(f, text);
    return m->said ? HA_OK : no_memory(why);
}

static enum ha_status take_cases(struct ha_fleet *f, struct ha_fleet_machine *m, const struct ha_record *r,
                                 struct ha_why *why)
{
    size_t room = 0;
    m->cases = malloc((r->count + 1) * sizeof *m->cases);
    if (!m->cases) return no_memory(why);
    for (size_t i = 0; i < r->count; i++) {
        const struct ha_recorded_case *c = r->cases[i];
        if (!strcmp(c->id, HA_MACHINE_CASE)) continue;
        const size_t of = ha_fleet_case(f, c->mode, c->id, "");
        if (of == SIZE_MAX) return no_memory(why);
        m->cases[m->cases_count++] = (uint32_t)of;
        m->disturbed += 2 * c->disturbances > c->processes;
        const enum ha_verdict v = c->verdict;
        if (v == HA_VERDICT_FAIL && !m->failed++) HA_TRY(say(f, m, "wrong", c, why));
        if (v == HA_VERDICT_ERROR && !m->errors++ && !m->failed) HA_TRY(say(f, m, "not judged", c, why));
        HA_TRY(take_digests(f, m, c, &room, why));
    }
    qsort(m->cases, m->cases_count, sizeof *m->cases, by_whole);
    return HA_OK;
}

/* Is it of a kind of machine? Which one it is, and how a device was asked for, is none. */
static bool of_kind(const char *fact) { return ha_fact_kind(fact) >= HA_FACT_HARDWARE; }
static bool is_own(const char *fact)
{
    const size_t n = strlen(fact);
    return !strncmp(fact, "identity: ", 10) || (n > 7 && !strcmp(fact + n - 7, ": asked"));
}

/* Where firmware and memory are not read alike is a fact of a kind. */
static enum ha_status take_facts(struct ha_fleet *f, struct ha_fleet_machine *m, const struct ha_night *n,
                                 struct ha_why *why)
{
    for (size_t i = 0; i < n->facts; i++) {
        const char *name = n->fact[i].name;
        if (is_own(name)) continue;
        if (ha_fleet_fact(f, name, of_kind(name)) == SIZE_MAX) return no_memory(why);
    }
    if (ha_fleet_fact(f, "build", true) == SIZE_MAX) return no_memory(why);
    m->fact = calloc(f->facts + 1, sizeof *m->fact);
    if (!m->fact) return no_memory(why);
    m->facts = f->facts;
    for (size_t i = 0; i < f->facts; i++) {
        const char *value = strcmp(f->fact[i], "build") ? ha_night_fact(n, f->fact[i]) : n->build;
        m->fact[i] = ha_fleet_keep(f, value ? value : "");
        if (!m->fact[i]) return no_memory(why);
    }
    m->date = ha_fleet_keep(f, n->date);
    m->build = ha_fleet_keep(f, n->build);
    return m->date && m->build ? HA_OK : no_memory(why);
}

enum ha_status ha_fleet_take(struct ha_fleet *f, struct ha_fleet_machine *m, const struct ha_record *r,
                             struct ha_why *why)
{
    HA_TRY(take_facts(f, m, &r->night[r->nights - 1], why));
    HA_TRY(take_cases(f, m, r, why));
    HA_TRY(take_values(f, m, r, why));
    m->record = true;
    return HA_OK;
}

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

static const struct {
    const char *word, *many; /* of one machine and of several */
    enum ha_exit exit;
} states[HA_FLEET_STATES] = {
    [HA_FLEET_FITS] = { "fits", "fits", HA_EXIT_OK },
    [HA_FLEET_TOO_FEW] = { "not judged", "not judged", HA_EXIT_ENVIRONMENT },
    [HA_FLEET_DISTURBED] = { "disturbed", "disturbed", HA_EXIT_ENVIRONMENT },
    [HA_FLEET_MISSING] = { "missing", "missing", HA_EXIT_MISSING },
    [HA_FLEET_NEVER_ANSWERED] = { "never answered", "never answered", HA_EXIT_MISSING },
    [HA_FLEET_DID_NOT_END] = { "did not end", "did not end", HA_EXIT_MISSING },
    [HA_FLEET_DIED] = { "died", "died", HA_EXIT_MISSING },
    [HA_FLEET_STANDS_OUT] = { "stands out", "stand out", HA_EXIT_REGRESSION },
    [HA_FLEET_DISAGREES] = { "disagrees", "disagree", HA_EXIT_WRONG },
    [HA_FLEET_WRONG] = { "wrong", "wrong", HA_EXIT_WRONG },
};

const char *ha_fleet_state_word(enum ha_fleet_state state) { return states[state].word; }
const char *ha_fleet_state_of(enum ha_fleet_state state, size_t machines)
{
    return machines == 1 ? states[state].word : states[state].many;
}
enum ha_exit ha_fleet_state_exit(enum ha_fleet_state state) { return states[state].exit; }

double ha_fleet_value_of(const struct ha_fleet_figure *f, double x)
{
    const struct ha_recorded_figure like = { .unit = f->unit, .better = f->better };
    return ha_figure_of_logarithm(&like, x);
}

static void forget(void *name) { free(name); }

void ha_fleet_free(struct ha_fleet *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->machine[i].fact);
        free(f->machine[i].value);
        free(f->machine[i].digest);
        free(f->machine[i].cases);
    }
    for (size_t i = 0; i < f->figures; i++) free(f->figure[i]);
    for (size_t i = 0; i < f->groups; i++) {
        for (size_t k = 0; k < f->group[i].tracks; k++) free(f->group[i].track[k].x);
        free(f->group[i].machine);
        free(f->group[i].column);
        free(f->group[i].column_of);
        free(f->group[i].track);
    }
    free(f->machine);
    free(f->figure);
    free(f->fact);
    free(f->fact_of_kind);
    free(f->of);
    free(f->group);
    free(f->disagreement);
    free(f->notes);
    tdestroy(f->names, forget);
    *f = (struct ha_fleet){ 0 };
}
