#include "harness/tune/make.h"

#include "harness/base/clock.h"
#include "harness/base/registry.h"
#include "harness/base/stop.h"
#include "harness/base/version.h"
#include "harness/base/why.h"
#include "harness/tune/bench.h"
#include "harness/tune/race.h"

#include <math.h>
#include <string.h>

/* ---- candidates -------------------------------------------------------------------------------------------------- */

/* How far ahead each kind may ask, near ones first, 0 behind them; a kind that has no distance has one candidate. */
enum { DISTANCES = 6 };
static const uint32_t distances[HA_REACH_KINDS][DISTANCES] = {
    [HA_REACH_L2] = { 512, 1024, 2048, 3072, 6144, 9216 },
    [HA_REACH_L1] = { 512, 1024, 2048, 3072, 6144, 9216 },
    [HA_REACH_STREAMS] = { 16384, 32768, 65536 }, /* it takes a block at once */
    [HA_REACH_TWICE] = { 2048, 3072, 4096, 6144 },
    [HA_REACH_ONE] = { 512, 1024 },
    [HA_REACH_NONE] = { 0 },
};
/* what tables are compared by, and all that a quick choice knows: what was best somewhere */
static const struct ha_reach few[] = { { HA_REACH_L2, 3072 },       { HA_REACH_L2, 6144 },    { HA_REACH_L1, 2048 },
                                       { HA_REACH_STREAMS, 16384 }, { HA_REACH_TWICE, 4096 }, { HA_REACH_ONE, 512 },
                                       { HA_REACH_NONE, 0 } };
/* Which kinds a pattern knows, and whether a distance means something to it (struct ha_reach). */
static const struct {
    size_t rows, kinds;
    bool distance;
} patterns[] = { [HA_PATTERN_LINEAR] = { 4, HA_REACH_KINDS, true },
                 [HA_PATTERN_LIST] = { 4, 3, false },
                 [HA_PATTERN_PASSES] = { 8, 3, true } };
enum { TABLES_MOST = 8, GO_ON = 3, MANY_ROWS = 32, FEW_SAMPLES = 10, FINAL_SAMPLES = 24 };

static const double near = 0.9;    /* a table that is slower than this share of the best one is no candidate */
const double ha_tune_alike = 0.97; /* for one token; many query rows decide then */

/* One race: candidates that differ in what they ask ahead, or in whose kernel they are. */
struct entry {
    struct ha_kernels *kernels;
    struct ha_reach reach;
    unsigned pattern;
};
struct contest {
    struct maker *maker;
    struct ha_tune_subject subject;
    struct entry entry[HA_CANDIDATES_MOST];
    struct ha_race_share share[HA_CANDIDATES_MOST]; /* of each, after the race */
    size_t entries;
};

struct maker {
    const struct ha_tune_options *options;
    struct ha_tune_doubt *doubt;
    struct ha_tune_bench *bench;
    struct ha_tuning *out;
    struct ha_kernels table[TABLES_MOST]; /* that have an attend_packed of the type */
    size_t tables, threads;
    uint64_t end_ns, seed;
};

static bool late(void *arg)
{
    const struct contest *c = arg;
    return ha_stop || ha_now_ns() > c->maker->end_ns;
}

static double sample(void *arg, size_t candidate)
{
    const struct contest *c = arg;
    const struct entry *e = &c->entry[candidate];
    struct ha_tune_subject s = c->subject;
    if (e->pattern < HA_PATTERNS) e->kernels->reach[s.dtype][e->pattern] = e->reach;
    s.kernels = e->kernels;
    s.pattern = e->pattern;
    return ha_tune_bench_sample(c->maker->bench, &s);
}

static void add(struct contest *c, struct ha_kernels *kernels, struct ha_reach reach)
{
    if (c->entries < HA_CANDIDATES_MOST) c->entry[c->entries++] = (struct entry){ kernels, reach, c->subject.pattern };
}

static struct contest contest_of(struct maker *m, enum ha_dtype dtype, unsigned pattern, size_t rows)
{
    return (struct contest){ .maker = m, .subject = { .dtype = dtype, .pattern = pattern, .rows = rows } };
}

/* what the table itself says first, then all that this pattern knows, near ones first */
static void add_all(struct contest *c, struct ha_kernels *k, struct ha_reach own)
{
    const unsigned p = c->subject.pattern;
    add(c, k, own);
    for (size_t i = 0; i < DISTANCES; i++)
        for (size_t kind = 0; kind < patterns[p].kinds; kind++) {
            const uint32_t bytes = patterns[p].distance ? distances[kind][i] : 0;
            if (bytes == 0 && i > 0) continue;
            if (kind != own.kind || bytes != own.bytes) add(c, k, (struct ha_reach){ (enum ha_reach_kind)kind, bytes });
        }
}

/* the table whose code it is about; of natural rows, which come last, theirs */
static const char *isa_of(const struct contest *c)
{
    const bool rows = c->subject.pattern == HA_CHOICE_ROWS;
    const struct entry *e = &c->entry[rows ? c->entries - 1 : 0];
    return ha_kernels_origin_of(e->kernels, rows ? "attend_chunk" : "attend_packed", c->subject.dtype)->name;
}

static void say(const struct contest *c, const struct ha_race_result *r, const char *what)
{
    FILE *out = c->maker->options->progress;
    if (!out) return;
    fprintf(out, "%zu thread%s  %-4s  %-6s  %-12s  ", c->maker->threads, c->maker->threads > 1 ? "s" : " ",
            ha_dtype_name(c->subject.dtype), ha_pattern_words[c->subject.pattern], isa_of(c));
    if (r->end == HA_RACE_SURE)
        fprintf(out, "%-12s  %.3f (%.3f-%.3f), by the constants %.3f\n", what, r->median, r->lo, r->hi, r->first);
    else
        fprintf(out, "%-12s  %s\n", "as it is",
                r->end == HA_RACE_LATE ? "there was no time" : "not known: something else uses this machine");
    fflush(out);
}

static enum ha_status run_race(struct contest *c, size_t final, struct ha_race_result *r, struct ha_why *why)
{
    struct maker *m = c->maker;
    const struct ha_race of = { .sample = sample,
                                .late = late,
                                .arg = c,
                                .candidates = c->entries,
                                .final = final,
                                .seed = m->seed++,
                                .each = c->share };
    return ha_race(&of, r, why);
}

/* without an answer, which is missed */
static void leave_open(const struct contest *c, enum ha_race_end end)
{
    struct ha_tune_doubt *d = c->maker->doubt;
    const size_t at = d->disturbed + d->late;
    if (end == HA_RACE_SURE) return;
    d->disturbed += end == HA_RACE_DISTURBED;
    d->late += end == HA_RACE_LATE;
    if (at == HA_CHOICES_MOST) return;
    struct ha_tune_open *x = &d->open[at];
    *x = (struct ha_tune_open){
        .threads = c->maker->threads, .rows = c->subject.rows, .dtype = c->subject.dtype, .pattern = c->subject.pattern
    };
    snprintf(x->isa, sizeof x->isa, "%s", isa_of(c));
}

static enum ha_status race(struct contest *c, struct ha_race_result *r, struct ha_why *why)
{
    HA_TRY(run_race(c, FINAL_SAMPLES, r, why));
    leave_open(c, r->end);
    return HA_OK;
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static struct ha_choice *choice(struct maker *m, const struct contest *c, const struct ha_race_result *r,
                                struct ha_reach reach)
{
    if (m->out->choices == HA_CHOICES_MOST) return NULL;
    struct ha_choice *x = &m->out->choice[m->out->choices++];
    *x = (struct ha_choice){ .threads = m->threads,
                             .dtype = c->subject.dtype,
                             .pattern = c->subject.pattern,
                             .reach = reach,
                             .ratio = r->median,
                             .lo = r->lo,
                             .hi = r->hi,
                             .constants = r->first };
    snprintf(x->isa, sizeof x->isa, "%s", isa_of(c));
    return x;
}

static const char *reach_text(char text[32], struct ha_reach r)
{
    snprintf(text, 32, "%s %u", ha_reach_words[r.kind], (unsigned)r.bytes);
    return text;
}

/* What a table asks ahead, of one pattern. */
static enum ha_status choose_reach(struct maker *m, struct ha_kernels *k, enum ha_dtype t, unsigned pattern,
                                   struct ha_why *why)
{
    struct contest c = contest_of(m, t, pattern, patterns[pattern].rows);
    struct ha_race_result r;
    char text[32];
    const struct ha_reach own = k->reach[t][pattern];
    add_all(&c, k, own);
    HA_TRY(race(&c, &r, why));
    const struct ha_reach best = c.entry[r.winner].reach;
    k->reach[t][pattern] = best;
    say(&c, &r, reach_text(text, best));
    if (r.end == HA_RACE_SURE) choice(m, &c, &r, best);
    return HA_OK;
}

/* The few tables that are worth looking at, by a few candidates of each. */
static enum ha_status choose_tables(struct maker *m, enum ha_dtype t, bool in[TABLES_MOST], struct ha_why *why)
{
    double best = 0, of[TABLES_MOST];
    for (size_t i = 0; i < m->tables; i++) {
        struct contest c = contest_of(m, t, HA_PATTERN_LINEAR, patterns[HA_PATTERN_LINEAR].rows);
        struct ha_race_result r;
        char text[32];
        struct ha_kernels *k = &m->table[i];
        const struct ha_reach own = k->reach[t][HA_PATTERN_LINEAR];
        add(&c, k, own);
        for (size_t f = 0; f < sizeof few / sizeof *few; f++)
            if (memcmp(&few[f], &own, sizeof own) != 0) add(&c, k, few[f]);
        HA_TRY(run_race(&c, FEW_SAMPLES, &r, why));
        k->reach[t][HA_PATTERN_LINEAR] = own;
        of[i] = r.best;
        if (r.end == HA_RACE_LATE) leave_open(&c, r.end);
        best = fmax(best, of[i]);
        if (!m->options->quick || r.end != HA_RACE_SURE) continue;
        k->reach[t][HA_PATTERN_LINEAR] = c.entry[r.winner].reach;
        say(&c, &r, reach_text(text, c.entry[r.winner].reach));
        choice(m, &c, &r, c.entry[r.winner].reach);
    }
    in[0] = best > 0; /* what is built in goes on, however it did in its moment */
    for (size_t go_on = in[0]; go_on < GO_ON; go_on++) {
        size_t next = m->tables;
        for (size_t i = 0; i < m->tables; i++)
            if (!in[i] && of[i] >= near * best && (next == m->tables || of[i] > of[next])) next = i;
        if (next < m->tables) in[next] = true;
    }
    return HA_OK;
}

static struct ha_choice *choice_of(struct maker *m, enum ha_dtype t, const struct ha_kernels *k)
{
    for (size_t i = 0; i < m->out->choices; i++) {
        struct ha_choice *x = &m->out->choice[i];
        if (x->threads == m->threads && x->dtype == t && x->pattern == HA_PATTERN_LINEAR && !strcmp(x->isa, k->name))
            return x;
    }
    return NULL;
}

/* Tables in one contest, the one that is built in first; *best: the winner, or that one where nobody knows. */
static enum ha_status race_tables(struct contest *c, struct ha_kernels **best, struct ha_why *why)
{
    struct maker *m = c->maker;
    struct ha_race_result r;
    *best = c->entry[0].kernels;
    if (c->entries == 1) return HA_OK;
    HA_TRY(run_race(c, m->options->quick ? FEW_SAMPLES : FINAL_SAMPLES, &r, why));
    leave_open(c, r.end);
    *best = c->entry[r.winner].kernels;
    say(c, &r, (*best)->name);
    return HA_OK;
}

/* Which table is called. Those that are alike for one token are told apart by many query rows. What is not known well
 * enough to be in the plan is no candidate, but for what is built in. */
static enum ha_status choose_best(struct maker *m, enum ha_dtype t, const bool in[TABLES_MOST], struct ha_why *why)
{
    struct contest c = contest_of(m, t, HA_PATTERN_LINEAR, patterns[HA_PATTERN_LINEAR].rows),
                   many = contest_of(m, t, HA_PATTERN_PASSES, MANY_ROWS);
    struct ha_kernels *best;
    double most = 0;
    for (size_t i = 0; i < m->tables; i++)
        if (in[i] && (i == 0 || choice_of(m, t, &m->table[i])))
            add(&c, &m->table[i], m->table[i].reach[t][HA_PATTERN_LINEAR]);
    if (c.entries == 0) return HA_OK;
    const size_t open = m->doubt->disturbed + m->doubt->late;
    HA_TRY(race_tables(&c, &best, why));
    const bool sure = open == m->doubt->disturbed + m->doubt->late;
    for (size_t i = 0; i < c.entries; i++) most = fmax(most, c.share[i].median);
    for (size_t i = 0; i < c.entries && sure && c.entries > 1 && !m->options->quick; i++)
        if (c.share[i].median >= ha_tune_alike * most)
            add(&many, c.entry[i].kernels, c.entry[i].kernels->reach[t][HA_PATTERN_PASSES]);
    if (many.entries > 0) HA_TRY(race_tables(&many, &best, why));
    struct ha_choice *x = choice_of(m, t, best);
    if (x) x->taken = true;
    return HA_OK;
}

/* Packed keys, by the table that is called and what it asks ahead (built in, where that is not known), or natural rows:
 * both in one contest, as what memory gives and what else runs differ from one moment to the next. */
static enum ha_status choose_layout(struct maker *m, enum ha_dtype t, struct ha_why *why)
{
    const struct ha_choice *taken = ha_tuning_taken(m->out, m->threads, t, HA_PATTERN_LINEAR);
    struct contest c = contest_of(m, t, HA_CHOICE_ROWS, patterns[HA_PATTERN_LINEAR].rows);
    struct ha_kernels packed, natural;
    struct ha_race_result r;
    HA_TRY(ha_kernels_resolve(taken ? taken->isa : m->table[0].name, &packed, why));
    HA_TRY(ha_kernels_resolve(NULL, &natural, why));
    add(&c, &packed, taken ? taken->reach : packed.reach[t][HA_PATTERN_LINEAR]);
    c.entry[0].pattern = HA_PATTERN_LINEAR;
    add(&c, &natural, (struct ha_reach){ HA_REACH_NONE, 0 });
    HA_TRY(race(&c, &r, why));
    say(&c, &r, r.winner ? "rows" : "packed");
    if (r.end != HA_RACE_SURE) return HA_OK;
    r.median = c.share[1].median;
    r.lo = c.share[1].lo;
    r.hi = c.share[1].hi;
    struct ha_choice *x = choice(m, &c, &r, (struct ha_reach){ HA_REACH_NONE, 0 });
    if (x) x->taken = r.winner > 0;
    return HA_OK;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Tables with an attend_packed of their own of this type; plain C only where there is nothing else. */
static enum ha_status find_tables(struct maker *m, enum ha_dtype t, struct ha_why *why)
{
    m->tables = 0;
    for (size_t i = ha_kernels_count; i-- > 0 && m->tables < TABLES_MOST;) {
        const struct ha_kernels *k = ha_kernels_all[i];
        if (ha_kernels_lack(k) || !k->attend_packed[t] || (k->cpu_bit == HA_CPU_C && m->tables > 0)) continue;
        HA_TRY(ha_kernels_resolve(k->name, &m->table[m->tables++], why));
    }
    return HA_OK;
}

static enum ha_status make_type(struct maker *m, enum ha_dtype t, struct ha_why *why)
{
    bool in[TABLES_MOST] = { false };
    HA_TRY(find_tables(m, t, why));
    HA_TRY(choose_tables(m, t, in, why));
    for (size_t i = 0; i < m->tables && !m->options->quick; i++)
        for (unsigned p = 0; p < HA_PATTERNS; p++)
            if (in[i]) HA_TRY(choose_reach(m, &m->table[i], t, p, why));
    HA_TRY(choose_best(m, t, in, why));
    return m->options->quick ? HA_OK : choose_layout(m, t, why);
}

static enum ha_status make_threads(struct maker *m, size_t threads, struct ha_why *why)
{
    struct ha_kernels best;
    HA_TRY(ha_kernels_resolve(NULL, &best, why));
    HA_TRY(ha_tune_bench_threads(m->bench, threads, &best, why));
    m->threads = ha_tune_bench_thread_count(m->bench);
    for (size_t i = 0; i < m->out->choices; i++)
        if (m->out->choice[i].threads == m->threads) return HA_OK; /* all cores are one */
    for (int t = 0; t < HA_DTYPE_COUNT; t++) HA_TRY(make_type(m, (enum ha_dtype)t, why));
    return HA_OK;
}

enum ha_status ha_tune_make(struct ha_tuning *out, const struct ha_tune_options *o, struct ha_tune_doubt *doubt,
                            struct ha_why *why)
{
    const struct ha_tuning in_use = *ha_tuning();
    struct maker m = { .options = o, .doubt = doubt, .out = out, .end_ns = ha_now_ns() + o->limit_ns, .seed = 1 };
    memset(out, 0, sizeof *out);
    *doubt = (struct ha_tune_doubt){ 0 };
    ha_tuning_cpu(out->cpu);
    snprintf(out->build, sizeof out->build, "%s", ha_version());
    ha_tuning_set(NULL);
    enum ha_status status = ha_tune_bench_create(&m.bench, ha_tune_bench_bytes(o->quick), why);
    const size_t counts = o->quick ? 1 : o->counts;
    for (size_t i = 0; i < counts && status == HA_OK; i++) status = make_threads(&m, o->quick ? 0 : o->threads[i], why);
    ha_tune_bench_destroy(m.bench);
    ha_tuning_set(&in_use);
    ha_tuning_name(out, o->quick ? "quick" : "measured");
    return status;
}
