#include "harness/compare/side_by_side.h"

#include "harness/base/stats.h"
#include "harness/base/why.h"
#include "harness/compare/blame.h"
#include "harness/compare/fleet_spread.h"
#include "harness/compare/sides.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double one_side = 0.025, z_interval = 1.96; /* of a 95% interval */

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "out of memory"); }

/* In the order of ha_parts_of_machine. */
const char *ha_part_word(size_t part)
{
    static const char *const word[HA_PARTS] = { "clock", "memory1", "memory", "device", "h2d", "d2h", "launch" };
    return word[part];
}

/* ---- the ratio of two sides -------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The difference of that rank, from 1, of all a - b; both are sorted. */
static double difference(const struct ha_side *a, const struct ha_side *b, double rank)
{
    double lo = a->x[0] - b->x[b->count - 1], hi = a->x[a->count - 1] - b->x[0];
    for (int i = 0; i < 60; i++) {
        const double middle = lo + (hi - lo) / 2;
        double below = 0;
        for (size_t k = 0, j = 0; k < a->count; k++) {
            while (j < b->count && a->x[k] - b->x[j] > middle) j++;
            below += (double)(b->count - j);
        }
        if (below < rank) lo = middle;
        else hi = middle;
    }
    return hi;
}

/* How many differences lie outside the interval at each end, which holds for any distribution (Hodges & Lehmann, Annals
 * of Mathematical Statistics 34, 1963); -1: there are too few processes. */
static double outside(size_t n, size_t m)
{
    const double pairs = (double)n * (double)m;
    double lo = -1, hi = ceil(pairs / 2);
    while (hi - lo > 1) {
        const double middle = floor((lo + hi) / 2);
        if (ha_mann_whitney(n, m, pairs - middle) <= one_side) lo = middle;
        else hi = middle;
    }
    return lo;
}

/* What all cases of a machine have in common. */
static double error_of_nights(const struct ha_side_machine *m) { return m->spread / sqrt((double)m->nights); }

/* The sides are of logarithms in which more is slower, and are put in order. nights: the error of both sides that
 * comes with their nights. */
static struct ha_speed_ratio ratio_of(struct ha_side *a, struct ha_side *b, double nights)
{
    struct ha_speed_ratio r = { (double)NAN, (double)NAN, (double)NAN };
    if (!a->count || !b->count) return r;
    const double pairs = (double)a->count * (double)b->count, out = outside(a->count, b->count);
    qsort(a->x, a->count, sizeof *a->x, by_size);
    qsort(b->x, b->count, sizeof *b->x, by_size);
    r.size = (difference(a, b, floor((pairs + 1) / 2)) + difference(a, b, ceil((pairs + 1) / 2))) / 2;
    if (out < 0) return r;
    r.lo = r.size - hypot(r.size - difference(a, b, out + 1), z_interval * nights);
    r.hi = r.size + hypot(difference(a, b, pairs - out) - r.size, z_interval * nights);
    return r;
}

/* Of a figure, or of one over another, process by process. */
static enum ha_status ratio_of_figures(struct ha_speed_ratio *out, const struct ha_side_machine *const of[2],
                                       const struct ha_recorded_figure *const f[2],
                                       const struct ha_recorded_figure *const *over, struct ha_why *why)
{
    struct ha_side side[2] = { 0 };
    enum ha_status status = HA_OK;
    double variance = 0;
    for (size_t i = 0; i < 2 && status == HA_OK; i++) {
        status = over ? ha_side_over(&side[i], f[i], over[i], of[i]->counts, why)
                      : ha_side_make(&side[i], f[i], of[i]->counts, why);
        variance += of[i]->spread * of[i]->spread / fmax(1, (double)side[i].nights);
    }
    if (status == HA_OK) *out = ratio_of(&side[0], &side[1], sqrt(variance));
    for (size_t i = 0; i < 2; i++) ha_side_free(&side[i]);
    return status;
}

/* ---- which part of the machine ----------------------------------------------------------------------------------- */

/* The part over which least is left of the ratio, where that is less than half of it beyond doubt. Where over each part
 * more than half is left beyond doubt, it is none of them. */
static enum ha_status find_part(struct ha_side_case *b, const struct ha_side_case *a,
                                const struct ha_side_machine *const of[2], struct ha_why *why)
{
    const double half = fabs(b->ratio.size) / 2;
    const bool called = b->word == HA_SPEED_FASTER || b->word == HA_SPEED_SLOWER;
    const bool link = ha_moves_bytes(a->of) || ha_moves_bytes(b->of);
    double nearest = (double)INFINITY;
    bool asked = false, none = true;
    const char *name = NULL;
    for (size_t i = 0; ha_parts_of_machine[i].figure; i++) {
        const struct ha_part_of_machine *p = &ha_parts_of_machine[i];
        const struct ha_recorded_figure *const part[2] = { ha_record_figure(a->of, p->figure),
                                                           ha_record_figure(b->of, p->figure) },
                                               *const time[2] = { a->time, b->time };
        struct ha_speed_ratio moved, rest;
        if (!part[0] || !part[1]) continue;
        HA_TRY(ratio_of_figures(&moved, of, part, NULL, why));
        HA_TRY(ratio_of_figures(&rest, of, time, part, why));
        b->part[i] = moved.size;
        if (isnan(rest.size) || (p->link && !link)) continue;
        asked = true;
        none = none && (rest.lo > half || rest.hi < -half);
        if (!(rest.lo > -half && rest.hi < half && fabs(rest.size) < nearest)) continue;
        nearest = fabs(rest.size);
        name = ha_part_word(i);
    }
    if (called) b->by = name ? name : !asked ? "not read" : none ? "kernels" : "unclear";
    return HA_OK;
}

/* ---- one case ---------------------------------------------------------------------------------------------------- */

double ha_side_figure(const struct ha_side_by_side *s, size_t machine, const struct ha_recorded_case *of,
                      const char *figure)
{
    const struct ha_recorded_figure *f = ha_record_figure(of, figure);
    double *values = NULL;
    const size_t n = f ? ha_values_of(f, s->machine[machine].counts, &values) : 0;
    const double median = values ? ha_median(values, n) : (double)NAN;
    free(values);
    return median;
}

static bool all_have(const struct ha_side_by_side *s, const struct ha_side_case *row, const char *figure)
{
    for (size_t i = 0; i < s->machines; i++)
        if (isnan(ha_side_figure(s, i, row[i].of, figure))) return false;
    return true;
}

static const char *time_of(const struct ha_side_by_side *s, const struct ha_side_case *row)
{
    if (all_have(s, row, "step_ns")) return "step_ns";
    for (size_t i = 0; i < row->of->figures; i++) {
        const struct ha_recorded_figure *f = &row->of->figure[i];
        if (f->better == HA_NEITHER || !ha_figure_is_speed(f) || ha_figure_beside(f->name)) continue;
        if (all_have(s, row, f->name)) return f->name;
    }
    return NULL;
}

static void find_times(const struct ha_side_by_side *s, struct ha_side_case *row)
{
    const char *name = time_of(s, row);
    for (size_t i = 0; i < s->machines; i++) {
        struct ha_side_case *c = &row[i];
        double *values = NULL;
        c->time = name ? ha_record_figure(c->of, name) : NULL;
        c->median = name ? ha_side_figure(s, i, c->of, name) : (double)NAN;
        c->processes = c->time ? ha_values_of(c->time, s->machine[i].counts, &values) : 0;
        c->ratio = (struct ha_speed_ratio){ (double)NAN, (double)NAN, (double)NAN };
        c->by = "";
        for (size_t k = 0; k < HA_PARTS; k++) c->part[k] = (double)NAN;
        free(values);
    }
}

bool ha_side_case_right(const struct ha_recorded_case *c)
{
    return c->verdict != HA_VERDICT_FAIL && c->verdict != HA_VERDICT_ERROR;
}

/* As in a comparison of one machine: what is left of most of its processes says nothing. */
static bool is_disturbed(const struct ha_side_machine *m, const struct ha_recorded_case *c)
{
    size_t processes = 0, disturbed = 0;
    for (size_t i = 0; i < c->nights; i++)
        if (m->counts[c->by_night[i].night]) processes += c->by_night[i].processes;
    for (size_t i = 0; i < c->disturbances; i++) disturbed += m->counts[c->disturbed[i].night];
    return 2 * disturbed > processes;
}

static enum ha_speed_word word_of(const struct ha_side_case *a, const struct ha_side_case *b,
                                  const struct ha_side_machine *const of[2])
{
    if (!ha_side_case_right(a->of) || !ha_side_case_right(b->of)) return HA_SPEED_WRONG;
    if (is_disturbed(of[0], a->of) || is_disturbed(of[1], b->of)) return HA_SPEED_DISTURBED;
    if (isnan(b->ratio.size)) return a->of->disturbances + b->of->disturbances ? HA_SPEED_DISTURBED : HA_SPEED_NO_TIME;
    if (isnan(b->ratio.lo)) return HA_SPEED_FEW;
    return b->ratio.lo > 0 ? HA_SPEED_FASTER : b->ratio.hi < 0 ? HA_SPEED_SLOWER : HA_SPEED_EVEN;
}

static enum ha_status compare_case(const struct ha_side_by_side *s, struct ha_side_case *row, struct ha_why *why)
{
    for (size_t i = 0; i < s->machines; i++) {
        const struct ha_side_machine *const of[2] = { &s->machine[0], &s->machine[i] };
        const struct ha_recorded_figure *const time[2] = { row->time, row[i].time };
        if (row->time) HA_TRY(ratio_of_figures(&row[i].ratio, of, time, NULL, why));
        row[i].word = word_of(row, &row[i], of);
        if (i && row->time) HA_TRY(find_part(&row[i], row, of, why));
    }
    return HA_OK;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* The nights of a record that are of its machine: that of its last night, or where the record of A has nights of
 * another machine that it stands beside, too, of the last that is not. */
static enum ha_status find_nights(struct ha_side_by_side *s, size_t i, struct ha_why *why)
{
    struct ha_side_machine *m = &s->machine[i];
    const struct ha_record *r = m->record;
    const char *fact;
    size_t last = r->nights - 1;
    if (!(m->counts = calloc(r->nights, sizeof *m->counts))) return no_memory(why);
    for (size_t k = i ? 0 : r->nights; k--;) {
        bool other = true;
        for (size_t n = 1; n < s->machines; n++) {
            const struct ha_record *now = s->machine[n].record;
            other = other && !ha_night_same_machine(&r->night[k], &now->night[now->nights - 1], &fact);
        }
        if (!other) continue;
        last = k;
        break;
    }
    for (size_t k = 0; k < r->nights; k++) {
        m->counts[k] = ha_night_same_machine(&r->night[k], &r->night[last], &fact);
        m->nights += m->counts[k];
    }
    return HA_OK;
}

static enum ha_status find_spread(struct ha_side_by_side *s, size_t i, struct ha_why *why)
{
    struct ha_side_machine *m = &s->machine[i];
    double *square = malloc((s->rows + 1) * sizeof *square);
    enum ha_status status = square ? HA_OK : no_memory(why);
    size_t n = 0;
    m->assumed = true;
    for (size_t k = 0; k < s->rows && status == HA_OK; k++) {
        const struct ha_recorded_figure *time = s->cell[k * s->machines + i].time;
        struct ha_side side = { 0 };
        if (!time) continue;
        status = ha_side_make(&side, time, m->counts, why);
        square[n] = status == HA_OK ? ha_shift_nights_squared(&side) : (double)NAN;
        m->assumed = m->assumed && isnan(square[n++]);
        ha_side_free(&side);
    }
    if (status == HA_OK) m->spread = ha_shift_nights(square, n, m->nights);
    free(square);
    return status;
}

static bool has_row(const struct ha_side_machine *m, const struct ha_recorded_case *c)
{
    for (size_t i = 0; c && i < c->nights; i++)
        if (m->counts[c->by_night[i].night]) return true;
    return false;
}

/* The case of the first machine on machine i; NULL: it has none */
static const struct ha_recorded_case *on_machine(const struct ha_side_by_side *s, size_t i,
                                                 const struct ha_recorded_case *c)
{
    const struct ha_recorded_case *found = i ? ha_comparison_counterpart(&s->all[i - 1], s->all[i - 1].now, c) : c;
    return has_row(&s->machine[i], found) ? found : NULL;
}

static void add_row(struct ha_side_by_side *s, const struct ha_recorded_case *c)
{
    struct ha_side_case *row = &s->cell[s->rows * s->machines];
    for (size_t i = 0; i < s->machines; i++)
        if (!(row[i].of = on_machine(s, i, c))) return;
    find_times(s, row);
    s->rows++;
}

enum ha_status ha_side_by_side(struct ha_side_by_side *s, const struct ha_comparison *all, size_t count,
                               struct ha_why *why)
{
    const struct ha_record *base = all->base;
    *s = (struct ha_side_by_side){ .all = all, .machines = count + 1 };
    s->machine = calloc(s->machines, sizeof *s->machine);
    s->cell = calloc((base->count + 1) * s->machines, sizeof *s->cell);
    if (!s->machine || !s->cell) return no_memory(why);
    for (size_t i = 0; i < s->machines; i++) {
        struct ha_side_machine *m = &s->machine[i];
        m->record = i ? all[i - 1].now : base;
        m->path = m->record->path;
        m->price = (double)NAN;
        if (i < 26) snprintf(m->name, sizeof m->name, "%c", (char)('A' + i));
        else snprintf(m->name, sizeof m->name, "M%zu", i + 1);
    }
    for (size_t i = 0; i < s->machines; i++) HA_TRY(find_nights(s, i, why));
    for (size_t i = 0; i < base->count; i++)
        if (!strcmp(base->cases[i]->mode, "run")) add_row(s, base->cases[i]);
    for (size_t i = 0; i < s->machines; i++) HA_TRY(find_spread(s, i, why));
    for (size_t i = 0; i < s->rows; i++) HA_TRY(compare_case(s, &s->cell[i * s->machines], why));
    return HA_OK;
}

void ha_side_by_side_free(struct ha_side_by_side *s)
{
    for (size_t i = 0; s->machine && i < s->machines; i++) free(s->machine[i].counts);
    free(s->machine);
    free(s->cell);
    *s = (struct ha_side_by_side){ 0 };
}

/* ---- what all come to -------------------------------------------------------------------------------------------- */

static bool of_head(const struct ha_recorded_case *c, const char *head)
{
    const size_t n = head ? strcspn(head, ":") : 0;
    return !head || (strcspn(c->id, ":") == n && !strncmp(c->id, head, n));
}

/* Every machine has it right, and with a time. */
static bool is_known(const struct ha_side_by_side *s, const struct ha_side_case *row)
{
    for (size_t i = 0; i < s->machines; i++)
        if (row[i].word > HA_SPEED_FEW) return false;
    return true;
}

struct ha_speed_mean ha_side_by_side_mean(const struct ha_side_by_side *s, size_t a, size_t b, const char *head)
{
    struct ha_speed_mean m = { { (double)NAN, (double)NAN, (double)NAN }, 0, { 0 } };
    double mean = 0, squares = 0; /* of what differs from the mean */
    for (size_t i = 0; i < s->rows; i++) {
        const struct ha_side_case *row = &s->cell[i * s->machines];
        if (!of_head(row->of, head)) continue;
        m.word[row[b].word]++;
        if (!is_known(s, row)) continue;
        const double x = row[b].ratio.size - row[a].ratio.size, from = x - mean;
        mean += from / (double)++m.cases;
        squares += from * (x - mean);
    }
    if (!m.cases) return m;
    m.ratio.size = mean;
    if (m.cases < 2) return m;
    const double n = (double)m.cases, of_cases = sqrt(squares / (n - 1) / n) * ha_t_quantile(one_side, n - 1);
    const double error = hypot(of_cases,
                               z_interval * hypot(error_of_nights(&s->machine[a]), error_of_nights(&s->machine[b])));
    m.ratio.lo = mean - error;
    m.ratio.hi = mean + error;
    return m;
}

void ha_side_by_side_rank(const struct ha_side_by_side *s, size_t *order, size_t *place)
{
    for (size_t i = 0; i < s->machines; i++) {
        size_t to = i;
        for (; to && ha_side_by_side_mean(s, order[to - 1], i, NULL).ratio.size > 0; to--) order[to] = order[to - 1];
        order[to] = i;
    }
    for (size_t i = 0, first = 0; i < s->machines; i++) {
        if (i && ha_side_by_side_mean(s, order[first], order[i], NULL).ratio.hi < 0) first = i;
        place[order[i]] = first + 1;
    }
}

static enum ha_exit exit_of(const struct ha_side_machine *m, const struct ha_recorded_case *c,
                            const struct ha_side_machine *other, const struct ha_recorded_case *of_other)
{
    if (!has_row(m, c)) return HA_EXIT_OK;
    if (c->verdict == HA_VERDICT_FAIL) return HA_EXIT_WRONG;
    if (c->verdict == HA_VERDICT_ERROR || !has_row(other, of_other)) return HA_EXIT_MISSING;
    return (c->verdict == HA_VERDICT_WAIVED) == (of_other->verdict == HA_VERDICT_WAIVED) ? HA_EXIT_OK : HA_EXIT_MISSING;
}

enum ha_exit ha_side_by_side_exit(const struct ha_side_by_side *s, size_t b)
{
    const struct ha_comparison *c = &s->all[b - 1];
    const struct ha_record *const of[2] = { c->base, c->now };
    const struct ha_side_machine *const machine[2] = { &s->machine[0], &s->machine[b] };
    enum ha_exit exit = HA_EXIT_OK;
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < of[i]->count; k++) {
            const struct ha_recorded_case *other = ha_comparison_counterpart(c, of[!i], of[i]->cases[k]);
            exit = ha_night_worse(exit, exit_of(machine[i], of[i]->cases[k], machine[!i], other));
        }
    return exit;
}

/* ---- prices ------------------------------------------------------------------------------------------------------ */

static bool is_named(const struct ha_side_machine *m, const char *name)
{
    size_t end = strlen(m->path), begin;
    while (end > 1 && m->path[end - 1] == '/') end--;
    for (begin = end; begin && m->path[begin - 1] != '/';) begin--;
    return !strcmp(name, m->path) || (strlen(name) == end - begin && !strncmp(name, m->path + begin, end - begin));
}

static struct ha_side_machine *machine_of(const struct ha_side_by_side *s, const char *name)
{
    for (size_t i = 0; i < s->machines; i++)
        if (is_named(&s->machine[i], name)) return &s->machine[i];
    for (size_t i = 0; i < s->machines; i++)
        if (!strcmp(s->machine[i].name, name)) return &s->machine[i];
    return NULL;
}

enum ha_status ha_side_by_side_price(struct ha_side_by_side *s, const char *text, struct ha_why *why)
{
    char words[4096], *rest = words, *word;
    if ((size_t)snprintf(words, sizeof words, "%s", text) >= sizeof words)
        return ha_why(why, HA_ERROR, "--price: '%.80s...' is too long", text);
    while ((word = strsep(&rest, ","))) {
        char *value = strrchr(word, '='), *end = NULL;
        if (value) *value++ = 0;
        const double price = value ? strtod(value, &end) : 0;
        struct ha_side_machine *m = machine_of(s, word);
        if (!value || end == value || strcmp(end, "/h") != 0 || !(price > 0 && isfinite(price)))
            return ha_why(why, HA_ERROR, "--price: '%.200s' is not a machine's price an hour, as A=2.1/h", word);
        if (!m) return ha_why(why, HA_ERROR, "--price: '%.200s' is none of these folders, nor A, B, ...", word);
        m->price = price;
    }
    return HA_OK;
}
