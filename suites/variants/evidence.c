#include "suites/variants/evidence.h"

#include "harness/base/clock.h"
#include "harness/base/stats.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* ---- what is noted ----------------------------------------------------------------------------------------------- */

/* The clock between two readings of the counter that are close to each other: on a busy host this thread may lose its
 * core between them, and the closest of some tries counts. */
static struct ha_moment now(void)
{
    enum { TRIES = 5 };
    struct timespec cpu = { 0, 0 };
    struct ha_moment m = { 0 };
    uint64_t apart = UINT64_MAX;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    for (size_t i = 0; i < TRIES; i++) {
        const uint64_t before = ha_ticks(), ns = ha_now_ns(), after = ha_ticks();
        if (after - before >= apart) continue;
        apart = after - before;
        m.ns = ns, m.ticks = before + apart / 2;
    }
    m.cpu_ns = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec;
    return m;
}

static double memory_bytes(const struct ha_session *session)
{
    struct ha_device_info info = { .name = "" };
    unsigned long all, resident = 0;
    session->api->info(session->device, &info);
    if (!info.compute_threads) return (double)info.memory_bytes - (double)info.memory_free_bytes;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%lu %lu", &all, &resident) != 2) resident = 0;
    if (f) fclose(f);
    return resident ? (double)resident * (double)sysconf(_SC_PAGESIZE) : (double)NAN;
}

static double threads(void)
{
    size_t count = 0;
    DIR *const d = opendir("/proc/self/task");
    if (!d) return (double)NAN;
    for (const struct dirent *e; (e = readdir(d));) count += *e->d_name != '.';
    closedir(d);
    return (double)count;
}

void ha_evidence_begin(struct ha_evidence *e, const struct ha_session *session)
{
    e->memory_bytes = memory_bytes(session);
    e->at = now();
}

/* Time, ticks and CPU time since the last call. Of less than a millisecond no rate is noted: the clock and the counter
 * are read one behind the other. */
static enum ha_status note(struct ha_evidence *e, struct ha_series *pace, struct ha_moment *since, struct ha_why *why)
{
    enum { PACE_LEAST_NS = 1000000 };
    const struct ha_moment end = now();
    *since = (struct ha_moment){ end.ns - e->at.ns, end.ticks - e->at.ticks, end.cpu_ns - e->at.cpu_ns };
    e->at = end;
    return since->ns >= PACE_LEAST_NS && since->ticks
               ? ha_series_add(pace, (double)since->ticks / (double)since->ns, why)
               : HA_OK;
}

enum ha_status ha_evidence_pass_begin(struct ha_evidence *e, struct ha_why *why)
{
    struct ha_moment since;
    return note(e, &e->pace_between, &since, why);
}

enum ha_status ha_evidence_pass_end(struct ha_evidence *e, struct ha_why *why)
{
    struct ha_moment since;
    HA_TRY(note(e, &e->pace, &since, why));
    return since.ns ? ha_series_add(&e->cpu, (double)since.cpu_ns / (double)since.ns, why) : HA_OK;
}

/* Cores in use while this thread sleeps. Threads of a pool are awake for a moment after they have worked. */
static double cores_at_rest(void)
{
    enum { AWAKE_NS = 3000000, REST_NS = 2000000 };
    ha_sleep_ns(AWAKE_NS);
    const struct ha_moment begin = now();
    ha_sleep_ns(REST_NS);
    const struct ha_moment end = now();
    return end.ns > begin.ns ? (double)(end.cpu_ns - begin.cpu_ns) / (double)(end.ns - begin.ns) : 0;
}

enum ha_status ha_evidence_rest(struct ha_evidence *e, struct ha_why *why)
{
    enum { PASSES = 5 };
    return e->cpu_after.count < PASSES ? ha_series_add(&e->cpu_after, cores_at_rest(), why) : HA_OK;
}

static double median(const struct ha_series *s) { return s->count ? ha_median(s->x, s->count) : (double)NAN; }

struct ha_footprint ha_evidence_footprint(const struct ha_evidence *e, const struct ha_session *session)
{
    return (struct ha_footprint){ .process_threads = threads(),
                                  .process_cpu = median(&e->cpu),
                                  .process_cpu_after = median(&e->cpu_after),
                                  .memory_grown_bytes = memory_bytes(session) - e->memory_bytes,
                                  .judged_by_time = !e->busy_host };
}

void ha_evidence_free(struct ha_evidence *e)
{
    struct ha_series *const all[] = { &e->read_first, &e->read_again,  &e->upload, &e->inputs_back,
                                      &e->first_step, &e->unexplained, &e->pace,   &e->pace_between,
                                      &e->cpu,        &e->cpu_after };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ha_series_free(all[i]);
}

/* ---- what it is worth -------------------------------------------------------------------------------------------- */

struct judged {
    const struct ha_evidence *e;
    const struct ha_session *session;
    const char *id;
    double pass_ns, alone_ns;
};

/* Few of them are less: on a host that is busy most wait longer than they take. */
static double usual_least(const struct ha_series *s) { return ha_quantile(s->x, s->count, 0.1); }

/* Does something take longer than the same a second time, and a tenth of a pass more? */
static bool takes_too_long(const struct judged *j, const struct ha_series *one, double again_ns)
{
    enum { FEW = 4 };
    static const double share_most = 0.1, again_most = 2, noise_ns = 400e3, noise_of_few_ns = 100e6;
    const double noise = one->count < FEW ? noise_of_few_ns : noise_ns;
    return usual_least(one) > again_most * again_ns + share_most * j->pass_ns + noise;
}

/* To read the outputs once more, or as many bytes of the inputs, if that is quicker: a device may be slow on purpose
 * with what it knows. */
static double reading_ns(const struct judged *j)
{
    const double out = (double)(j->session->slots * j->session->io.out_bytes),
                 in = (double)(j->session->workload->shape.steps * j->session->io.in_bytes);
    return fmin(usual_least(&j->e->read_again), usual_least(&j->e->inputs_back) * fmax(1, out / in));
}

/* Does a copy of so many bytes take much longer than at the ceiling of the link? A device that slows each reading to
 * hide one is found so. */
static bool is_beyond_link(const struct judged *j, const struct ha_series *took, double bytes, double GBps)
{
    enum { FEW = 10 };
    static const double times_most = 5, share_most = 0.1, noise_ns = 400e3;
    const double link_ns = bytes / GBps + j->e->link.launch_ns;
    return GBps > 0 && took->count >= FEW
           && usual_least(took) > times_most * link_ns + share_most * j->pass_ns + noise_ns;
}

static enum ha_status link_is_as_fast(const struct judged *j, struct ha_why *why)
{
    const struct ha_session *s = j->session;
    const struct ha_shape *shape = &s->workload->shape;
    const struct {
        const char *what;
        const struct ha_series *took;
        double bytes, GBps;
    } way[] = { { "reading its outputs", &j->e->read_first,
                  (double)(s->slots * shape->layers * s->io.out_bytes + s->load.read_bytes), j->e->link.down_GBps },
                { "uploading its inputs", &j->e->upload, (double)(shape->steps * shape->layers * s->io.in_bytes),
                  j->e->link.up_GBps } };
    for (size_t i = 0; i < 2; i++)
        if (is_beyond_link(j, way[i].took, way[i].bytes, way[i].GBps))
            return ha_why(
                why, HA_FAIL,
                "timed pass: %s takes %.3g ms, %.3g MB at %.3g GB/s: work is done outside of the pass; habench "
                "run '%s'",
                way[i].what, usual_least(way[i].took) / 1e6, way[i].bytes / 1e6, way[i].GBps, j->id);
    return HA_OK;
}

/* Outputs are there when a pass ends, and nothing of them before it begins: in a tenth of the passes at least reading
 * them takes what it does once more, and to upload the inputs takes what it does to read them back. */
static enum ha_status work_is_in_the_pass(const struct judged *j, struct ha_why *why)
{
    const struct ha_evidence *e = j->e;
    if (takes_too_long(j, &e->read_first, reading_ns(j)))
        return ha_why(why, HA_FAIL,
                      "timed pass: its work was put off until the outputs were read: a pass takes %.3g ms, then "
                      "reading them %.3g ms, and once more %.3g ms; habench run '%s'",
                      j->pass_ns / 1e6, usual_least(&e->read_first) / 1e6, reading_ns(j) / 1e6, j->id);
    if (takes_too_long(j, &e->upload, usual_least(&e->inputs_back)))
        return ha_why(why, HA_FAIL,
                      "timed pass: its work was done before the clock ran, when inputs were uploaded: a pass takes "
                      "%.3g ms, to upload its inputs %.3g ms, and to read them back %.3g ms; habench run '%s'",
                      j->pass_ns / 1e6, usual_least(&e->upload) / 1e6, usual_least(&e->inputs_back) / 1e6, j->id);
    return HA_OK;
}

/* The stamp behind the first step, from which on is timed, comes when that step is over: by the host's clock it takes
 * no longer than the same step by itself. */
static enum ha_status first_step_is_stamped(const struct judged *j, struct ha_why *why)
{
    enum { FEW = 10 };
    static const double times_most = 2, noise_ns = 200e3, noise_of_few_ns = 100e6;
    const double first_ns = usual_least(&j->e->first_step),
                 noise = j->e->first_step.count < FEW ? noise_of_few_ns : noise_ns;
    if (j->session->graph || j->session->workload->shape.steps < 2 || !(j->alone_ns > 0)
        || !(first_ns > times_most * j->alone_ns + noise))
        return HA_OK;
    return ha_why(why, HA_FAIL,
                  "timed pass: its first step is said to end after %.3g ms, and takes %.3g ms by itself: the clock is "
                  "held up; habench run '%s'",
                  first_ns / 1e6, j->alone_ns / 1e6, j->id);
}

/* The clock goes in passes as it goes between them, by a counter of the CPU, which runs at one rate. How it goes over
 * all of the measurement the process that holds the record knows. */
static enum ha_status clock_is_even(const struct judged *j, struct ha_why *why)
{
    static const double apart_most = 0.02;
    const double in = median(&j->e->pace), between = median(&j->e->pace_between);
    if (!(fabs(in / between - 1) > apart_most)) return HA_OK;
    return ha_why(
        why, HA_FAIL,
        "timed pass: in passes the clock takes %.3g of the time that it takes between them, by the counter of "
        "the CPU: it was changed; habench run '%s'",
        between / in, j->id);
}

/* When a pass is over the process does not go on working, unless it always does: on a busy host a thread that never
 * sleeps is not on a core at each look. */
static enum ha_status work_is_over(const struct judged *j, struct ha_why *why)
{
    enum { OVER_NS = 100000000, LOOKS = 100 };
    static const double cores_most = 0.25;
    const double after = median(&j->e->cpu_after);
    double always = 0;
    if (!(after > cores_most)) return HA_OK;
    ha_sleep_ns(OVER_NS);
    for (size_t i = 0; i < LOOKS && after >= always + cores_most; i++) always = fmax(always, cores_at_rest());
    if (after < always + cores_most) return HA_OK;
    return ha_why(
        why, HA_FAIL,
        "timed pass: its outputs have been read, and %.2g cores go on working, %.2g when all is over; habench "
        "run '%s'",
        after, always, j->id);
}

/* Spans are refused where those of most traced passes contradict the calls. */
static enum ha_status spans_agree(const struct judged *j, struct ha_why *why)
{
    const struct ha_evidence *e = j->e;
    return 2 * e->contradicted > e->traced ? ha_why(why, HA_FAIL, "spans are not to be believed: %s; habench run '%s'",
                                                    e->contradiction.text, j->id)
                                           : HA_OK;
}

/* Nor where in three of four passes the device has idle gaps while it has work, so that one step of a clock is not
 * taken for a cheat. */
static enum ha_status spans_are_long(const struct judged *j, struct ha_why *why)
{
    enum { PASSES_TO_TELL = 3 };
    static const double unexplained_most = 0.4;
    const struct ha_series *s = &j->e->unexplained;
    const double unexplained = ha_quantile(s->x, s->count, 0.25);
    if (s->count < PASSES_TO_TELL || !(unexplained > unexplained_most)) return HA_OK;
    return ha_why(
        why, HA_FAIL,
        "spans are not to be believed: by them the device does nothing for %.0f%% of the time in which it has "
        "work; habench run '%s'",
        100 * unexplained, j->id);
}

enum ha_status ha_evidence_judge(const struct ha_evidence *e, const struct ha_session *session, const char *id,
                                 double pass_ns, double alone_ns, struct ha_why *why)
{
    static const struct {
        enum ha_status (*holds)(const struct judged *, struct ha_why *);
        bool alone; /* on a busy host any device's threads wait for a core, and nothing is seen by how long they take */
    } question[] = { { work_is_in_the_pass, true }, { link_is_as_fast, true }, { first_step_is_stamped, true },
                     { clock_is_even, false },      { work_is_over, true },    { spans_agree, false },
                     { spans_are_long, true } };
    const struct judged j = { e, session, id, pass_ns, alone_ns };
    for (size_t i = 0; i < sizeof question / sizeof *question; i++)
        if (!question[i].alone || !e->busy_host) HA_TRY(question[i].holds(&j, why));
    return HA_OK;
}
