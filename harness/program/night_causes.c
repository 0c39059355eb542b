#include "harness/program/night_causes.h"

#include "harness/api/suite.h"
#include "harness/base/csv.h"
#include "harness/base/registry.h"
#include "harness/base/text.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SHOWN = 3 };

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* /proc/PID/stat, proc(5): 2 is the name in brackets, 14 and 15 its time, 22 when it started, 39 its core. */
static bool read_program(const char *root, const char *pid, const bool mine[HA_CORES_MOST],
                         struct ha_night_program *out)
{
    char path[512], line[2048];
    unsigned long user, system;
    unsigned long long started;
    int core;
    snprintf(path, sizeof path, "%s/proc/%.20s/stat", root, pid);
    ha_text_line(path, "", line, sizeof line);
    const char *open = strchr(line, '('), *close = strrchr(line, ')');
    if (!open || !close
        || sscanf(close + 1,
                  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d %*d %llu %*u %*d %*u %*u "
                  "%*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*d %d",
                  &user, &system, &started, &core)
               != 4
        || core < 0 || core >= HA_CORES_MOST || !mine[core])
        return false;
    *out = (struct ha_night_program){ strtol(pid, NULL, 10), (double)started,
                                      (double)(user + system) * 1e9 / (double)sysconf(_SC_CLK_TCK), "" };
    snprintf(out->name, sizeof out->name, "%.*s", (int)(close - open - 1), open + 1);
    ha_text_clean(out->name);
    return true;
}

static void read_programs(const char *root, struct ha_night_programs *out)
{
    char path[512];
    bool mine[HA_CORES_MOST];
    out->count = 0;
    snprintf(path, sizeof path, "%s/proc", root);
    DIR *all = ha_cores_mine(mine) ? opendir(path) : NULL;
    for (struct dirent *e; all && (e = readdir(all)) && out->count < HA_NIGHT_PROGRAMS;)
        if (isdigit((unsigned char)e->d_name[0]) && strtol(e->d_name, NULL, 10) != getpid()
            && read_program(root, e->d_name, mine, &out->of[out->count]))
            out->count++;
    if (all) closedir(all);
}

static double before(const struct ha_night_programs *first, const struct ha_night_program *now)
{
    for (size_t i = 0; i < first->count; i++)
        if (first->of[i].pid == now->pid && first->of[i].started == now->started) return first->of[i].cpu_ns;
    return 0; /* it began meanwhile */
}

static void add_by_name(struct ha_night_programs *to, const struct ha_night_program *of, double ns)
{
    size_t i = 0;
    while (i < to->count && strcmp(to->of[i].name, of->name) != 0) i++;
    if (i == HA_NIGHT_PROGRAMS) return;
    if (i == to->count) {
        to->of[to->count] = *of;
        to->of[to->count++].cpu_ns = 0;
    }
    to->of[i].cpu_ns += ns;
}

/* ---- the watch --------------------------------------------------------------------------------------------------- */

/* Of this process and of all that it has waited for. */
static double own_ns(void)
{
    double ns = 0;
    static const int who[] = { RUSAGE_SELF, RUSAGE_CHILDREN };
    for (size_t i = 0; i < 2; i++) {
        struct rusage u;
        if (getrusage(who[i], &u) != 0) continue;
        ns += 1e9 * (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec);
        ns += 1e3 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    }
    return ns;
}

void ha_night_watch_begin(struct ha_night_watch *w)
{
    read_programs(w->root, &w->first);
    w->own_before_ns = own_ns();
    ha_core_counts_read(w->root, &w->before);
}

void ha_night_watch_end(struct ha_night_watch *w)
{
    struct ha_core_counts after;
    static struct ha_night_programs now;
    ha_core_counts_read(w->root, &after);
    const double own = own_ns() - w->own_before_ns, others = after.busy_ns - w->before.busy_ns - own;
    read_programs(w->root, &now);
    for (size_t i = 0; i < now.count; i++)
        add_by_name(&w->by_name, &now.of[i], fmax(0, now.of[i].cpu_ns - before(&w->first, &now.of[i])));
    w->span_ns += (after.wall_ns - w->before.wall_ns) * after.cores;
    w->others_ns += fmax(0, others);
    w->steal_ns += after.steal_ns - w->before.steal_ns;
    if (!isnan(after.throttled)) w->throttled += after.throttled - w->before.throttled;
}

/* ---- the causes ------------------------------------------------------------------------------------------------ */

static double percent(const struct ha_night_watch *w, double ns) { return 100 * ns / w->span_ns; }

static int by_time(const void *a, const void *b)
{
    const struct ha_night_program *x = a, *y = b;
    return (x->cpu_ns < y->cpu_ns) - (x->cpu_ns > y->cpu_ns);
}

static void put_load(FILE *out, const struct ha_night_watch *w)
{
    static struct ha_night_programs sorted;
    double shown = 0;
    fprintf(out, "other programs used %.0f%% of our cores' time", percent(w, w->others_ns));
    sorted = w->by_name;
    qsort(sorted.of, sorted.count, sizeof *sorted.of, by_time);
    for (size_t i = 0; i < sorted.count && i < SHOWN && percent(w, sorted.of[i].cpu_ns) >= 1; i++) {
        shown += sorted.of[i].cpu_ns;
        fprintf(out, "%s'%s' %.0f%%", i ? ", " : ": ", sorted.of[i].name, percent(w, sorted.of[i].cpu_ns));
    }
    if (percent(w, w->others_ns - shown) >= 5)
        fprintf(out, "%s%.0f%% by programs that have ended or that /proc does not show", shown > 0 ? ", " : ": ",
                percent(w, w->others_ns - shown));
}

static void put_steal(FILE *out, const struct ha_night_watch *w)
{
    fprintf(out, "the host gave %.1f%% of our cores' time to other guests", percent(w, w->steal_ns));
}

static void put_shared(FILE *out, const struct ha_night_watch *w)
{
    fputs("a core took instructions at less than 0.85 of its best", out);
}

static void put_throttled(FILE *out, const struct ha_night_watch *w)
{
    fprintf(out, "cores or the device were slowed down, cores %.0f times", w->throttled);
}

static const struct {
    const char *word; /* of column `disturbed` */
    bool others;      /* comes from beside the machine */
    void (*put)(FILE *out, const struct ha_night_watch *watch);
    double seen_from; /* percent of our cores' time that says so without a row */
    const char *help;
} causes[] = {
    { "load", true, put_load, 5,
      "stop other programs for the night, or give it cores of its own (taskset, a cpuset); more time does not help" },
    { "steal", true, put_steal, 2,
      "give this guest cores of its own: pinned CPUs, a dedicated host; more time does not help" },
    { "shared", true, put_shared, (double)INFINITY,
      "give the night whole cores: no hardware thread, cache or memory that a neighbour uses; without neighbours, a "
      "clock that is held" },
    { "throttled", false, put_throttled, (double)INFINITY,
      "cool the machine, or hold a lower clock: `habench doctor` says which" },
};
enum { CAUSES = sizeof causes / sizeof *causes };

/* ---- rows -------------------------------------------------------------------------------------------------------- */

struct rows {
    size_t column, columns, all, with[CAUSES];
};

static enum ha_status take_row(void *arg, size_t line, char **field, size_t count)
{
    struct rows *r = arg;
    if (!r->columns) {
        r->columns = count;
        for (r->column = 0; r->column < count && strcmp(field[r->column], "disturbed") != 0; r->column++) continue;
        return HA_OK;
    }
    if (count != r->columns || r->column == count) return HA_OK;
    r->all++;
    for (size_t i = 0; i < CAUSES; i++) r->with[i] += strstr(field[r->column], causes[i].word) != NULL;
    return HA_OK;
}

static bool measures(const char *step) { return !strncmp(step, "run", 3) || !strncmp(step, "again", 5); }

static void read_rows(const struct ha_night_log *log, struct rows *r)
{
    json_t *steps = json_object_get(log->said, "steps");
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const char *step = json_string_value(json_object_get(json_array_get(steps, i), "name"));
        for (size_t s = 0; step && measures(step) && s < ha_suites_count; s++) {
            char path[4096];
            struct ha_why why;
            const char *file = ha_suites_all[s]->file[0] ? ha_suites_all[s]->file[0] : "";
            if ((size_t)snprintf(path, sizeof path, "%s/%s/%s", log->folder, step, file) >= sizeof path) continue;
            r->columns = 0;
            if (access(path, R_OK) == 0) ha_csv_read(path, take_row, r, &why);
        }
    }
}

bool ha_night_causes_note(struct ha_night_log *log, const struct ha_night_watch *w)
{
    struct rows r = { 0 };
    bool others = false;
    read_rows(log, &r);
    for (size_t i = 0; i < CAUSES; i++) {
        char *text = NULL, rows[64] = "";
        size_t size;
        const double seen = w->span_ns > 0 ? percent(w, i ? w->steal_ns : w->others_ns) : 0;
        if ((!r.with[i] || 10 * r.with[i] < r.all) && !(seen >= causes[i].seen_from)) continue;
        FILE *out = open_memstream(&text, &size);
        if (!out) continue;
        causes[i].put(out, w);
        fclose(out);
        if (r.with[i]) snprintf(rows, sizeof rows, ", in %zu of %zu rows", r.with[i], r.all);
        ha_night_log_note(log, "%s%s: %s; %s", causes[i].word, rows, text, causes[i].help);
        others = others || causes[i].others;
        free(text);
    }
    return others;
}
