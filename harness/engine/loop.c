#include "harness/engine/loop.h"

#include "harness/base/clock.h"
#include "harness/base/file.h"
#include "harness/base/registry.h"
#include "harness/base/rng.h"
#include "harness/base/span_source.h"
#include "harness/base/stop.h"
#include "harness/base/text.h"
#include "harness/base/tuning.h"
#include "harness/base/version.h"
#include "harness/base/why.h"
#include "harness/engine/child.h"
#include "harness/engine/fair.h"
#include "harness/engine/point.h"
#include "harness/engine/serve.h"
#include "harness/engine/summary.h"
#include "harness/engine/trial.h"
#include "harness/report/folder.h"
#include "harness/report/progress.h"
#include "harness/report/row.h"
#include "harness/tune/file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t CASE_TIME_NS = 600000000000;
enum { VALUES_MAX = 64 };

/* A case as the folder takes it, and the texts that it points to. */
struct described {
    struct ha_folder_case of;
    const char *value[VALUES_MAX];
    char text[VALUES_MAX][128];
};

struct loop {
    const struct ha_plan *plan;
    struct ha_run_options own;
    const struct ha_run_options *options; /* own, with the folder that was taken */
    bool moved;                           /* it is not the one that was asked for */
    struct ha_folder *folder;
    char run_id[64];
    struct ha_env env;
    struct ha_env_device device; /* the first one, for the end of the report; asked "" if there is none */
    struct ha_child *child;
    const struct ha_suite *ran; /* in the child, at last */
    struct ha_serve serve;
    struct ha_paired_memory *memory; /* that the child reads, or NULL */
    struct ha_job *order;            /* in the room */
    uint64_t ordered_ns;             /* when */
    const size_t *ordered;           /* what it says, where the child cannot write: [ordered_count] of the plan */
    size_t ordered_count;
    struct described described; /* the case described last */
    struct ha_progress progress;
    struct ha_summary summary;
    uint64_t begin_ns;
    size_t process, processes; /* which of how many */
    size_t groups, groups_done;
    struct ha_fair_case *fair; /* [entries] of the plan; of a group the first counts. NULL: no group is left out */
    double level_s;            /* how much time each group may have */
    uint64_t place;       /* of the group at hand, among those of all rounds, also those with nothing left to run */
    const char *not_run;  /* why the first case that was not run was not; NULL: there is none */
    size_t shrunk;        /* failures that were made smaller */
    bool warned;          /* that HABENCH_TRACE is not heeded */
    struct ha_why broken; /* why nothing more can be written, or "" */
    struct ha_why died;   /* what became of the worker process that no row says, the first time; or "" */
};

/* ---- cases ------------------------------------------------------------------------------------------------------- */

static bool done(const struct loop *l, size_t entry, size_t process)
{
    return ha_folder_find(l->folder, l->plan->entry[entry].id, process) != NULL;
}

static bool in_error(const struct loop *l, size_t entry)
{
    const struct ha_folder_entry *e = ha_folder_find(l->folder, l->plan->entry[entry].id, l->process);
    return e && ha_result_in(e->row)->verdict == HA_VERDICT_ERROR;
}

static struct ha_folder_case *describe(struct loop *l, size_t entry)
{
    const struct ha_plan_entry *e = &l->plan->entry[entry];
    struct described *d = &l->described;
    char value[HA_VALUE_MAX];
    for (size_t k = 0; k < e->suite->keys && k < VALUES_MAX; k++) {
        const struct ha_key *key = &e->suite->key[k];
        *d->text[k] = 0;
        if (ha_point_uses(e->suite, e->point, k)) {
            ha_point_value(e->point, key, value);
            snprintf(d->text[k], sizeof d->text[k], "%.127s", value);
        }
        d->value[k] = d->text[k];
    }
    d->of = (struct ha_folder_case){
        .suite = e->suite, .id = e->id, .from = e->from, .process = l->process, .key_value = d->value
    };
    return &d->of;
}

/* Ends the run: the child is to stop, too. */
static void broken(struct loop *l, enum ha_status status, const struct ha_why *why)
{
    if (status != HA_ERROR || *l->broken.text) return;
    l->broken = *why;
    ha_child_limit(l->child, 0, 1);
}

/* said at once; the reason stands under the tables */
static void announce(const struct loop *l, size_t entry, enum ha_verdict verdict)
{
    if (verdict != HA_VERDICT_FAIL && verdict != HA_VERDICT_ERROR) return;
    fprintf(stderr, "%s: ", ha_verdict_name(verdict));
    ha_text_print(stderr, l->plan->entry[entry].id);
    fputc('\n', stderr);
}

/* What the p of a case is multiplied by, so that one in the whole run is below x no more often than x: how many cases
 * the plan has; where they are drawn and nobody knows how many there will be, what follows from how many came before.
 */
static double asked(const struct loop *l, size_t entry)
{
    const double of = l->options->random ? ha_result_asked(l->plan->gones + entry) : (double)l->plan->entries;
    return of * (double)l->processes;
}

static void take_row(struct loop *l, size_t entry, void *row)
{
    struct ha_why why = { "" };
    if (done(l, entry, l->process) || *l->broken.text) return;
    struct ha_folder_case *of = describe(l, entry);
    /* cases that run in turns come at the end of all: a share each */
    if (l->ordered_count) of->seconds = (double)(ha_now_ns() - l->ordered_ns) / 1e9 / (double)l->ordered_count;
    ha_at_once_kept(l->options->at_once, l->process, entry, l->plan->entry[entry].suite, row);
    ha_result_suspect(ha_result_of(row), asked(l, entry));
    broken(l, ha_folder_row(l->folder, of, row, &why), &why);
    if (l->options->json) ha_folder_json(l->folder, stdout, of, row, &why);
    if (l->options->json) fflush(stdout);
    announce(l, entry, ha_result_in(row)->verdict);
}

/* ---- what the child says -------------------------------------------------------------------------------------------
 * A stranger's code may have written into its memory: nothing of what it says is taken on trust. */

static void hear_device(struct loop *l, const void *bytes)
{
    struct ha_env_device *device = malloc(sizeof *device);
    struct ha_why why = { "" };
    if (!device) return;
    memcpy(device, bytes, sizeof *device);
    ha_env_device_mend(device);
    if (!*l->device.asked || !strcmp(l->device.asked, device->asked)) l->device = *device;
    l->warned = l->warned || ha_span_source_warn(device->asked, device->info.spans);
    if (l->options->at_once) ha_meet_tell_device(l->options->at_once->meet, device->ceilings.meters.bus_id);
    broken(l, ha_folder_device(l->folder, device, &why), &why);
    free(device);
}

static void hear_progress(struct loop *l, const void *bytes)
{
    struct ha_said_progress p;
    char text[128];
    memcpy(&p, bytes, sizeof p);
    snprintf(text, sizeof text, "%.*s, %zu of %zu", (int)sizeof p.what - 1, p.what, p.done, p.of);
    ha_progress_case(&l->progress, text);
}

static bool ordered(const struct loop *l, size_t entry)
{
    for (size_t i = 0; i < l->ordered_count; i++)
        if (l->ordered[i] == entry) return true;
    return false;
}

/* The clock that times a case is of a process in which a device's own code runs: what it shows is what ours does. */
static void believe(const struct loop *l, const struct ha_suite *suite, void *row)
{
    enum { FEW = 4 };
    static const double share_most = 0.1, late_most_ns = 300e6, early_most_ns = 20e6, lag_share = 0.04, lag_ns = 50e6;
    const struct ha_child_clocks c = ha_child_clocks(l->child);
    const double its = (double)c.its_ns, ours = (double)c.ours_ns;
    struct ha_result *r = ha_result_of(row);
    if (r->verdict != HA_PASS || !l->options->measure) return;
    const bool slow = (double)c.lag.last_ns - (double)c.deaf_ns > share_most * ours + late_most_ns
                      || (c.lag.periods >= FEW && (double)c.lag.usual_ns > lag_share * ours + lag_ns);
    if (!slow && its - ours < share_most * ours + early_most_ns) return;
    ha_fields_clear(suite, row);
    r->verdict = HA_VERDICT_FAIL;
    snprintf(r->reason, sizeof r->reason,
             "the clock of the process in which the device runs is wrong: it showed %.3g s where this program's showed "
             "%.3g s; its times are not believed",
             its * 1e-9, ours * 1e-9);
}

/* a line of a file, or the row itself */
static void hear_row(struct loop *l, unsigned kind, const struct ha_said_head *head, const void *bytes)
{
    const struct ha_suite *suite = l->plan->entry[head->entry].suite;
    struct ha_why why = { "" };
    void *row = malloc(suite->row_bytes);
    if (!row) return;
    memcpy(row, bytes, suite->row_bytes);
    const bool has_verdict = ha_fields_mend(suite, row);
    if (kind == HA_SAID_ROW && has_verdict) {
        believe(l, suite, row);
        take_row(l, head->entry, row);
    }
    if (kind == HA_SAID_LINE && head->file > 0 && head->file < HA_SUITE_FILES && suite->file[head->file])
        broken(l, ha_folder_line(l->folder, describe(l, head->entry), head->file, row, &why), &why);
    free(row);
}

static void hear(void *arg, unsigned kind, const void *bytes, size_t size)
{
    struct loop *l = arg;
    struct ha_said_head head;
    struct ha_why why = { "" };
    if (kind == HA_SAID_DEVICE && size == sizeof(struct ha_env_device)) hear_device(l, bytes);
    if (kind == HA_SAID_PROGRESS && size == sizeof(struct ha_said_progress)) hear_progress(l, bytes);
    if (kind == HA_SAID_DEVICE || kind == HA_SAID_PROGRESS || size < sizeof head) return;
    memcpy(&head, bytes, sizeof head);
    if (!ordered(l, head.entry)) return;
    const char *rest = (const char *)bytes + sizeof head;
    if (kind == HA_SAID_TRACE)
        broken(l, ha_folder_trace(l->folder, describe(l, head.entry), rest, size - sizeof head, &why), &why);
    else if (size - sizeof head == l->plan->entry[head.entry].suite->row_bytes) hear_row(l, kind, &head, rest);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static bool belong(const struct loop *l, size_t a, size_t b)
{
    const struct ha_plan_entry *x = &l->plan->entry[a], *y = &l->plan->entry[b];
    return x->suite == y->suite && x->suite->together && x->suite->together(x->point, y->point);
}

/* The entries from `first` on that are run at once, neither damaged nor done; returns where the next group begins. */
static size_t next_group(const struct loop *l, size_t first, size_t *entry, size_t *count)
{
    size_t end = first;
    *count = 0;
    do {
        if (!l->plan->entry[end].damaged && !done(l, end, l->process)) entry[(*count)++] = end;
        end++;
    } while (end < l->plan->entries && belong(l, first, end));
    return end;
}

static size_t count_groups(const struct loop *l, size_t *scratch)
{
    size_t groups = 0;
    for (size_t first = 0, count; first < l->plan->entries;) {
        first = next_group(l, first, scratch, &count);
        groups += count > 0;
    }
    return groups;
}

static bool over(const struct loop *l)
{
    return ha_stop || *l->broken.text
           || (l->options->max_time_ns && ha_now_ns() - l->begin_ns >= l->options->max_time_ns);
}

/* All rows that it was asked for had come: they stay, and the run is no success. */
static void died_late(struct loop *l, const struct ha_why *how)
{
    fputs("error: the worker process: ", stderr);
    ha_text_print(stderr, how->text);
    fputc('\n', stderr);
    if (!*l->died.text) ha_why(&l->died, HA_ERROR, "the worker process: %.400s", how->text);
}

static void end_child(struct loop *l)
{
    struct ha_why how;
    switch (ha_child_close(l->child, &how)) {
    case HA_ERROR: died_late(l, &how); break;
    case HA_FAIL: fprintf(stderr, "warning: the worker process: %s\n", how.text); break;
    default: break;
    }
}

/* What --max-time leaves is shared by the groups to come, and half of it is for checking. */
static uint64_t cap(const struct loop *l, size_t entry)
{
    const uint64_t most = l->options->max_time_ns, used = ha_now_ns() - l->begin_ns;
    const uint64_t own = l->plan->entry[entry].time_ns ? l->plan->entry[entry].time_ns : UINT64_MAX;
    if (!most) return own;
    const struct ha_at_once *at_once = l->options->at_once;
    const uint64_t turns = at_once && at_once->turns ? ha_meet_ranks(at_once->meet) : 1;
    const uint64_t share = (most > used ? most - used : 0) / (l->groups - l->groups_done) / 2 / turns;
    return share < own ? share : own;
}

static void error_row(struct loop *l, size_t entry, const struct ha_why *why)
{
    const struct ha_suite *suite = l->plan->entry[entry].suite;
    void *row = malloc(suite->row_bytes);
    if (!row) return;
    ha_fields_clear(suite, row);
    struct ha_result *r = ha_result_of(row);
    r->verdict = HA_VERDICT_ERROR;
    memcpy(r->reason, why->text, sizeof r->reason);
    ha_text_clean(r->reason);
    take_row(l, entry, row);
    free(row);
}

static uint64_t case_time(const struct loop *l)
{
    return l->options->case_time_ns ? l->options->case_time_ns : CASE_TIME_NS;
}

static enum ha_status order(struct loop *l, const size_t *entry, size_t count, struct ha_why *why)
{
    const uint64_t limit = case_time(l);
    const uint64_t until = l->options->max_time_ns ? l->begin_ns + l->options->max_time_ns : 0;
    const struct ha_at_once *at_once = l->options->at_once;
    const bool endless = l->options->exhaustive && !l->options->case_time_ns;
    l->order->cap_ns = cap(l, entry[0]);
    l->order->deadline_ns = until;
    l->order->window = ha_at_once_window(at_once, l->place);
    l->order->count = count;
    memcpy(l->order->entry, entry, count * sizeof *entry);
    l->ordered = entry;
    l->ordered_ns = ha_now_ns();
    l->ordered_count = count;
    /* it may wait for others twice: before it measures, and while they do */
    const uint64_t waits = at_once ? 2 * ha_meet_wait_ns(at_once->meet) : 0;
    ha_child_limit(l->child, endless || limit > UINT64_MAX / 2 / count ? UINT64_MAX : limit * count + waits, until);
    if (ha_child_died(l->child, why)) died_late(l, why);
    const enum ha_status status = ha_child_call(l->child, l->order, NULL, NULL, 0, why);
    l->ordered_count = 0;
    if (status != HA_OK) ha_child_end(l->child);
    for (size_t i = 0; i < count && status == HA_OK && !over(l); i++) {
        if (done(l, entry[i], l->process)) continue;
        ha_child_end(l->child);
        return ha_why(why, HA_ERROR, "its process answered without a row for it");
    }
    return status;
}

/* Of this round, from what the groups have taken so far. Ranks that run at once leave nothing out: they would not meet.
 */
static void begin_fair_round(struct loop *l)
{
    const uint64_t used = ha_now_ns() - l->begin_ns, most = l->options->max_time_ns;
    const double left_s = (double)(most > used ? most - used : 0) / 1e9;
    l->level_s = ha_fair_level(l->fair, l->plan->entries, l->processes, left_s);
}

/* A case that is left out of a round is left out of the later ones, so that no process before its last is missing. */
static bool has_time(struct loop *l, size_t first)
{
    if (!l->fair) return true;
    struct ha_fair_case *c = &l->fair[first];
    c->left_out = c->left_out || !ha_fair_goes_on(c, l->level_s);
    return !c->left_out;
}

/* Points of a group in which the child died, or its device failed, are run again, each alone, but for those whose rows
 * had come. A death costs a row, whoever may be to blame: where none of them dies alone, the last one has it, and is
 * not tried, as its row would be an error however that ends. */
static void run_group(struct loop *l, const size_t *entry, size_t count)
{
    struct ha_why why = { "" };
    const struct ha_suite *suite = l->plan->entry[entry[0]].suite;
    const uint64_t begin_ns = ha_now_ns();
    if (suite->forks && l->ran && l->ran != suite) end_child(l);
    l->ran = suite;
    ha_progress_case(&l->progress, l->plan->entry[entry[0]].id);
    ha_at_once_await(l->options->at_once, l->place, 2 * case_time(l) * (count + 1));
    bool explained = order(l, entry, count, &why) == HA_OK;
    size_t left = 0;
    for (size_t i = 0; i < count && !explained; i++) left += !done(l, entry[i], l->process);
    for (size_t i = 0; i < count && left && !over(l); i++) {
        struct ha_why alone = why;
        if (done(l, entry[i], l->process)) continue;
        const bool last = --left == 0 && !explained;
        if (count > 1 && last)
            ha_why(&alone, HA_ERROR, "%.400s, among %zu that ran in turns; none of the others does so alone", why.text,
                   count);
        else if (count > 1 && order(l, &entry[i], 1, &alone) == HA_OK) continue;
        if (over(l)) continue;
        if (!done(l, entry[i], l->process)) error_row(l, entry[i], &alone);
        explained = in_error(l, entry[i]);
    }
    for (size_t i = 0; i < count && !explained; i++) explained = in_error(l, entry[i]);
    if (!explained && !over(l)) died_late(l, &why);
    if (l->options->processes) end_child(l);
    ha_progress_done(&l->progress);
    l->groups_done++;
    if (!l->fair) return;
    struct ha_fair_case *c = &l->fair[entry[0]];
    const double took_s = (double)(ha_now_ns() - begin_ns) / 1e9;
    if (!c->ran++ || took_s < c->least_s) c->least_s = took_s;
}

/* ---- random points ----------------------------------------------------------------------------------------------- */

static bool goes_on(const struct loop *l)
{
    const struct ha_random *r = l->options->random;
    return !over(l) && (!r || ha_now_ns() - l->begin_ns < r->time_ns);
}

/* the points of the largest group that there can be */
static size_t group_most(const struct loop *l)
{
    return l->plan->entries > HA_DRAWN_AT_ONCE ? l->plan->entries : HA_DRAWN_AT_ONCE;
}

static bool is_known(void *arg, const struct ha_plan_entry *e)
{
    const struct loop *l = arg;
    return ha_folder_find(l->folder, e->id, l->process) != NULL;
}

/* Points behind those that were run, of which only what is worth telling is kept where no folder is written: there may
 * be millions. *next: the first of the new ones. The process that serves has the plan as it was. */
static bool draw_more(struct loop *l, size_t *next)
{
    struct ha_random *r = l->options->random;
    struct ha_why why;
    if (r && !l->options->out_dir) {
        end_child(l);
        ha_folder_forget(l->folder);
        ha_plan_forget(r->plan, is_known, l);
        *next = r->plan->entries;
    }
    if (!r || !goes_on(l)) return false;
    if (ha_plan_draw(r->plan, &r->from, &r->draw, HA_DRAWN_AT_ONCE, &why) != HA_OK) {
        fprintf(stderr, "warning: --random ends before its time: %s\n", why.text);
        return false;
    }
    l->groups += HA_DRAWN_AT_ONCE;
    end_child(l);
    return true;
}

struct failure {
    const struct loop *loop;
    const struct ha_suite *suite;
    enum ha_verdict verdict;
    uint64_t until_ns;
};

static bool fails_too(void *arg, const void *point)
{
    const struct failure *f = arg;
    const uint64_t now = ha_now_ns();
    return !over(f->loop) && now < f->until_ns
           && ha_trial(&f->loop->serve, f->suite, point, f->until_ns - now) == f->verdict;
}

/* The smallest point that fails like this one, as a case of its own. */
static void shrink(struct loop *l, size_t entry)
{
    enum { TRIES = 400, SECONDS = 30, SHRUNK_MAX = 8 };
    const struct ha_folder_entry *found = ha_folder_find(l->folder, l->plan->entry[entry].id, l->process);
    const enum ha_verdict v = found ? ha_result_in(found->row)->verdict : HA_NOT_RUN;
    const struct ha_suite *suite = l->plan->entry[entry].suite;
    struct ha_why why;
    size_t smallest;
    if ((v != HA_VERDICT_FAIL && v != HA_VERDICT_ERROR) || l->shrunk == SHRUNK_MAX || over(l)) return;
    void *point = malloc(suite->point_bytes);
    if (!point) return;
    memcpy(point, l->plan->entry[entry].point, suite->point_bytes);
    l->shrunk++;
    struct failure f = { l, suite, v, ha_now_ns() + SECONDS * (uint64_t)1000000000 };
    const bool smaller = ha_shrink(suite, point, TRIES, fails_too, &f);
    if (smaller && ha_plan_add(l->options->random->plan, suite, point, &smallest, &why) == HA_OK) {
        fprintf(stderr, "smallest: ");
        ha_text_print(stderr, l->plan->entry[smallest].id);
        fputc('\n', stderr);
        end_child(l);
        if (!done(l, smallest, l->process)) run_group(l, &smallest, 1);
    }
    free(point);
}

/* ---- the order --------------------------------------------------------------------------------------------------- */

/* Where each group of the plan begins, whether there is anything left to run in it or not, in the order of this round
 * (Fisher and Yates). Same seed, same order, also where a run goes on. */
static size_t shuffled(const struct loop *l, size_t *first)
{
    size_t groups = 0;
    for (size_t i = 0; i < l->plan->entries; i++)
        if (!groups || !belong(l, first[groups - 1], i)) first[groups++] = i;
    for (size_t i = groups; i-- > 1;) {
        const size_t j = ha_rng_below(*l->options->shuffle, l->process, i, i + 1), moved = first[i];
        first[i] = first[j];
        first[j] = moved;
    }
    return groups;
}

static enum ha_status run_round_shuffled(struct loop *l, size_t *entry, struct ha_why *why)
{
    size_t *first = calloc(l->plan->entries, sizeof *first), count;
    if (!first) return ha_why(why, HA_ERROR, "out of memory");
    const size_t groups = shuffled(l, first);
    for (size_t i = 0; i < groups && !over(l); i++) {
        next_group(l, first[i], entry, &count);
        if (count && has_time(l, entry[0])) run_group(l, entry, count);
        ha_at_once_pass(l->options->at_once, ++l->place);
    }
    free(first);
    return HA_OK;
}

static void run_round(struct loop *l, size_t *entry)
{
    for (size_t first = 0, count; (first < l->plan->entries || draw_more(l, &first)) && goes_on(l);) {
        first = next_group(l, first, entry, &count);
        if (count && has_time(l, entry[0])) run_group(l, entry, count);
        ha_at_once_pass(l->options->at_once, ++l->place);
        for (size_t i = 0; i < count && l->options->random; i++) shrink(l, entry[i]);
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static enum ha_status run_rounds(struct loop *l, size_t *entry, struct ha_why *why)
{
    enum ha_status status = HA_OK;
    for (l->process = 0; l->process < l->processes && status == HA_OK && !over(l); l->process++) {
        if (l->fair) begin_fair_round(l);
        if (l->options->shuffle) status = run_round_shuffled(l, entry, why);
        else run_round(l, entry);
    }
    return status;
}

static enum ha_status run_all(struct loop *l, struct ha_why *why)
{
    const bool cut = l->options->max_time_ns && l->processes > 1 && !l->options->at_once && !l->options->random;
    size_t *entry = calloc(group_most(l), sizeof *entry);
    if (!entry) return ha_why(why, HA_ERROR, "out of memory");
    if (cut) l->fair = calloc(l->plan->entries + 1, sizeof *l->fair);
    ha_at_once_pass(l->options->at_once, 0);
    for (l->process = 0; l->process < l->processes; l->process++) l->groups += count_groups(l, entry);
    ha_progress_start(&l->progress, !l->options->quiet, l->groups);
    enum ha_status status = run_rounds(l, entry, why);
    free(l->fair);
    l->fair = NULL;
    if (cut && status == HA_OK) status = run_rounds(l, entry, why); /* what was left out, while there is time */
    ha_progress_end(&l->progress);
    free(entry);
    return status;
}

/* How fast each case is by itself, for what is measured beside others later. */
static void keep_alone(struct loop *l)
{
    for (l->process = 0; l->process < l->processes; l->process++)
        for (size_t i = 0; i < l->plan->entries; i++) {
            const struct ha_plan_entry *e = &l->plan->entry[i];
            const struct ha_folder_entry *found = ha_folder_find(l->folder, e->id, l->process);
            if (found) ha_at_once_alone(l->options->at_once, l->process, i, e->suite, found->row);
        }
}

static void note_not_run(struct loop *l)
{
    struct ha_why why = { "" };
    const char *common = *l->broken.text ? "the results cannot be written"
                         : ha_stop       ? "interrupted"
                         : over(l)       ? "--max-time is over"
                                         : "what it needs is in error";
    for (l->process = 0; l->process < l->processes; l->process++)
        for (size_t i = 0; i < l->plan->entries; i++) {
            const char *damaged = l->plan->entry[i].damaged, *reason = damaged ? damaged : common;
            if (done(l, i, l->process)) continue;
            if (!l->not_run) l->not_run = reason;
            ha_folder_not_run(l->folder, describe(l, i), reason, &why);
        }
}

/* How evenly they were run. */
static void print_processes(FILE *out, const struct loop *l)
{
    size_t *cases = l->not_run && l->processes > 1 ? calloc(l->processes + 1, sizeof *cases) : NULL;
    for (size_t i = 0; cases && i < l->plan->entries; i++) {
        size_t ran = 0;
        for (size_t k = 0; k < l->processes; k++) ran += done(l, i, k);
        cases[ran]++;
    }
    if (!cases) return;
    fprintf(out, "%s: ", l->not_run);
    ha_fair_print(out, cases, l->processes);
    putc('\n', out);
    free(cases);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static struct ha_results before(void *arg, const struct ha_suite *suite)
{
    struct loop *l = arg;
    return ha_summary_results(&l->summary, suite);
}

/* Without it a run goes on, and says less of the machine. */
static void open_memory(struct loop *l)
{
    struct ha_why why;
    bool measures = false;
    for (size_t i = 0; i < l->plan->entries; i++) measures = measures || l->plan->entry[i].suite->measure;
    if (!l->options->measure || !measures) return;
    if (ha_paired_memory_create(&l->memory, &why) != HA_OK)
        fprintf(stderr, "warning: beside_read_GBps is not measured: %s\n", why.text);
}

static enum ha_status open_child(struct loop *l, struct ha_why *why)
{
    const struct ha_child_work work = { .serve = ha_serve,
                                        .end = ha_serve_end,
                                        .self = &l->serve,
                                        .limit_ns = CASE_TIME_NS,
                                        .hear = hear,
                                        .arg = l,
                                        .ours = true };
    l->serve = (struct ha_serve){
        .plan = l->plan, .options = l->options, .before = before, .arg = l, .memory = l->memory
    };
    HA_TRY(ha_child_create(&l->child, &work, sizeof *l->order + group_most(l) * sizeof *l->order->entry, why));
    l->order = (struct ha_job *)(void *)ha_child_room(l->child).base;
    return HA_OK;
}

/* beside its rows, so that they can be made again, and the run can go on */
static enum ha_exit keep_plan(const struct loop *l, struct ha_why *why)
{
    char path[4096];
    if (!l->options->out_dir || ha_tuning()->choices == 0) return HA_EXIT_OK;
    if (ha_file_path(path, l->options->out_dir, HA_PLAN_FILE, "", why) != HA_OK
        || (access(path, F_OK) != 0 && ha_tune_write(ha_tuning(), path, why) != HA_OK))
        return HA_EXIT_ENVIRONMENT;
    return HA_EXIT_OK;
}

static enum ha_exit open_folder(struct loop *l, struct ha_why *why)
{
    ha_env_read(&l->env);
    snprintf(l->run_id, sizeof l->run_id, "%.31s.%ld", l->env.date, (long)getpid());
    const struct ha_folder_options o = { .path = l->options->out_dir,
                                         .resume = l->options->resume,
                                         .next = l->options->named,
                                         .mode = l->options->measure ? "run" : "check",
                                         .build = ha_version(),
                                         .options = l->options->options ? l->options->options : "",
                                         .exec = l->options->exec,
                                         .run_id = l->run_id,
                                         .suite_file = l->plan->suite_file,
                                         .suite_files = l->plan->suite_files,
                                         .suites = ha_suites_all,
                                         .suites_count = ha_suites_count,
                                         .env = &l->env };
    const enum ha_exit code = ha_folder_open(&l->folder, &o, why);
    if (code == HA_EXIT_OK) l->own.out_dir = ha_folder_path(l->folder);
    if (code == HA_EXIT_OK && o.path && strcmp(o.path, l->own.out_dir) != 0) {
        fputs("-o ", stderr);
        ha_text_print(stderr, o.path);
        fputs(": it is another run's; this one writes to ", stderr);
        ha_text_print(stderr, l->own.out_dir);
        fputc('\n', stderr);
        l->moved = true;
    }
    if (code == HA_EXIT_OK && o.resume && ha_folder_found(l->folder)->nothing)
        fputs("warning: --resume: nothing is in the folder yet; the run begins\n", stderr);
    return code == HA_EXIT_OK ? keep_plan(l, why) : code;
}

static void print_page_command(FILE *out, const char *folder)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-";
    fputs("a page of it: habench report ", out);
    if (folder[strspn(folder, plain)]) ha_text_quote(out, folder);
    else fputs(folder, out);
    fputs(" -o report.html\n", out);
}

static enum ha_exit finish(struct loop *l, struct ha_why *why)
{
    struct ha_why wrong = { "" }, closing = { "" };
    FILE *out = l->options->json ? stderr : stdout;
    if (!l->options->random) note_not_run(l);
    if (l->options->at_once) keep_alone(l);
    const bool right = l->options->json || ha_summary_print(out, &l->summary, &wrong);
    const struct ha_folder_totals t = ha_folder_totals(l->folder);
    if (!l->options->json) {
        fputc('\n', out);
        ha_env_print(out, &l->env, *l->device.asked ? &l->device : NULL);
    }
    if (l->options->named && l->options->out_dir) print_page_command(out, l->options->out_dir);
    print_processes(out, l);
    const size_t lost = ha_summary_lost(l->options->json ? NULL : out, &l->summary);
    ha_summary_print_totals(out, &t, l->moved ? l->options->out_dir : NULL);
    ha_folder_end(l->folder);
    const enum ha_status closed = ha_folder_close(l->folder, &closing);
    l->folder = NULL;
    enum ha_exit code = ha_summary_exit(&t, right, l->not_run, why);
    if (code == HA_EXIT_OK && lost) {
        ha_why(why, HA_ERROR, "%zu times or rates have no value in some processes", lost);
        code = HA_EXIT_MISSING;
    }
    if (!right) ha_why(why, HA_FAIL, "%s", wrong.text);
    if (!*l->broken.text && closed != HA_OK) l->broken = closing;
    if (!*l->broken.text && code != HA_EXIT_ENVIRONMENT) l->broken = l->died;
    if (!*l->broken.text) return code;
    ha_why(why, HA_ERROR, "%s", l->broken.text);
    return code == HA_EXIT_WRONG ? code : HA_EXIT_ENVIRONMENT;
}

static enum ha_exit run(struct loop *l, struct ha_why *why)
{
    enum ha_exit code = open_folder(l, why);
    if (code != HA_EXIT_OK) return code;
    l->summary = (struct ha_summary){ .plan = l->plan,
                                      .folder = l->folder,
                                      .measured = l->options->measure,
                                      .exec = l->options->exec,
                                      .random = l->options->random != NULL };
    open_memory(l);
    if (open_child(l, why) != HA_OK || run_all(l, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    end_child(l);
    return finish(l, why);
}

enum ha_exit ha_run(const struct ha_plan *plan, const struct ha_run_options *options, struct ha_why *why)
{
    struct loop *l = calloc(1, sizeof *l);
    if (!l) {
        ha_why(why, HA_ERROR, "out of memory");
        return HA_EXIT_ENVIRONMENT;
    }
    l->plan = plan;
    l->own = *options;
    l->options = &l->own;
    l->begin_ns = ha_now_ns();
    l->processes = options->processes ? options->processes : 1;
    const enum ha_exit code = run(l, why);
    ha_at_once_end(options->at_once, l->processes);
    ha_child_destroy(l->child);
    if (l->folder) ha_folder_close(l->folder, NULL);
    ha_summary_free(&l->summary);
    ha_paired_memory_destroy(l->memory);
    free(l);
    return code;
}
