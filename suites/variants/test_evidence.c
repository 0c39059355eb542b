/* What is said of passes, by what they showed beside their times. */

#include "harness/base/clock.h"
#include "harness/base/thread.h"
#include "suites/variants/evidence.h"
#include "suites/variants/test_session.h"

enum { PASSES = 12 };
#define MS 1e6
static const double pass_ns = 10 * MS, alone_ns = 0.6 * MS;

/* of each pass the same; 0 where there is none */
struct shown {
    double read_first, read_again, upload, inputs_back, first_step, unexplained, pace, pace_between, cpu_after;
    size_t contradicted;
    bool busy_host;
    const char *says; /* NULL: they are believed */
};
static const struct shown honest = { .read_first = 0.2 * MS,
                                     .read_again = 0.2 * MS,
                                     .upload = 0.3 * MS,
                                     .inputs_back = 0.3 * MS,
                                     .first_step = 0.7 * MS,
                                     .unexplained = 0.1,
                                     .pace = 2.4,
                                     .pace_between = 2.4,
                                     .cpu_after = 0.2 };

static void add(struct ha_series *s, double x)
{
    for (size_t i = 0; i < PASSES && x != 0; i++) assert_ok(ha_series_add(s, x, &reason));
}

static void judge(const struct shown *of)
{
    struct ha_evidence e = {
        .contradicted = of->contradicted, .traced = PASSES, .busy_host = of->busy_host, .link = { 5, 5, 0.1 * MS }
    };
    add(&e.read_first, of->read_first), add(&e.read_again, of->read_again);
    add(&e.upload, of->upload), add(&e.inputs_back, of->inputs_back);
    add(&e.first_step, of->first_step), add(&e.unexplained, of->unexplained);
    add(&e.pace, of->pace), add(&e.pace_between, of->pace_between);
    add(&e.cpu_after, of->cpu_after);
    strcpy(e.contradiction.text, "a kernel has no span");
    struct ha_why why = { "" };
    const enum ha_status status = ha_evidence_judge(&e, &session, "the case", pass_ns, alone_ns, &why);
    ha_evidence_free(&e);
    if (of->says) assert_contains(why.text, of->says);
    assert_int_equal(status, of->says ? HA_FAIL : HA_OK);
}

TEST(passes_are_believed_or_not)
{
    open_session("resident:ctx=20,heads=4/2,head_dim=64,layers=1,steps=3,threads=1");
#define WITH(member, value, text)                    \
    do {                                             \
        struct shown other = honest;                 \
        other.member = (value), other.says = (text); \
        judge(&other);                               \
    } while (0)
    judge(&honest);
    /* twice as long, a tenth of a pass and 0.4 ms are noise */
    WITH(read_first, 1.7 * MS, NULL);
    WITH(read_first, 1.9 * MS, "its work was put off until the outputs were read");
    /* each reading is as slow: 5 launches, a tenth of a pass and 0.4 ms is the most */
    struct shown slow = honest;
    slow.read_first = slow.read_again = 1.85 * MS;
    judge(&slow);
    slow.read_first = slow.read_again = 2 * MS, slow.says = "reading its outputs takes 2 ms";
    judge(&slow);
    WITH(upload, 1.85 * MS, NULL);
    WITH(upload, 2.1 * MS, "when inputs were uploaded");
    WITH(first_step, 1.3 * MS, NULL);
    WITH(first_step, 1.5 * MS, "the clock is held up");
    WITH(unexplained, 0.39, NULL);
    WITH(unexplained, 0.41, "by them the device does nothing for 41% of the time");
    /* on a busy host anything may take long, but neither is a span left out nor does the clock change */
    struct shown busy = { .read_first = 90 * MS,
                          .read_again = 1,
                          .upload = 90 * MS,
                          .inputs_back = 1,
                          .first_step = 90 * MS,
                          .unexplained = 0.9,
                          .cpu_after = 0.9,
                          .busy_host = true };
    judge(&busy);
    busy.contradicted = PASSES, busy.says = "a kernel has no span";
    judge(&busy);
    busy.contradicted = 0, busy.pace = 3, busy.pace_between = 2.4, busy.says = "in passes the clock takes 0.8";
    judge(&busy);
    WITH(contradicted, PASSES / 2, NULL);
    WITH(contradicted, PASSES / 2 + 1, "spans are not to be believed: a kernel has no span");
    WITH(pace, 2.4 * 1.019, NULL);
    WITH(pace, 2.4 * 1.25, "in passes the clock takes 0.8 of the time");
    WITH(pace, 2.4 * 0.975, "the clock takes 1.03 of the time");
    WITH(cpu_after, 0.9, "0.9 cores go on working, 0"); /* this process is asleep when all is over */
    WITH(pace_between, 0, NULL);                        /* this CPU has no such counter */
    close_session();
}

static bool is_over;
static void *never_sleep(void *nothing)
{
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) continue;
    return nothing;
}

/* A device that polls works between passes, and when all is over as well. */
TEST(a_process_that_never_sleeps_is_believed)
{
    pthread_t thread;
    open_session("resident:ctx=20,heads=4/2,head_dim=64,layers=1,steps=3,threads=1");
    struct shown polls = honest;
    polls.cpu_after = 0.3; /* more than it may be without such a thread, little enough for a thread on a busy host */
    assert_int_equal(ha_thread_start(&thread, never_sleep, NULL), 0);
    judge(&polls);
    __atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    polls.cpu_after = 0.9; /* a look that is held up may show some of a core where nothing works */
    polls.says = "0.9 cores go on working";
    judge(&polls);
    close_session();
}

/* What of the process goes into a row. */
TEST(a_process_has_a_footprint)
{
    open_session("resident:ctx=20,heads=4/2,head_dim=64,layers=1,steps=3,threads=1");
    struct ha_evidence e = { .traced = 1, .busy_host = true };
    ha_evidence_begin(&e, &session);
    for (size_t i = 0; i < PASSES; i++) {
        assert_ok(ha_evidence_pass_begin(&e, &reason));
        ha_sleep_ns(1500000);
        assert_ok(ha_evidence_pass_end(&e, &reason));
        assert_ok(ha_evidence_rest(&e, &reason));
    }
    const size_t bytes = (size_t)64 << 20;
    char *const more = malloc(bytes);
    assert_non_null(more);
    memset(more, 1, bytes);
    const struct ha_footprint seen = ha_evidence_footprint(&e, &session);
    free(more);
    assert_true(seen.process_threads >= 1);
    assert_true(seen.process_cpu >= 0 && seen.process_cpu_after >= 0); /* asleep, of which nothing can be sure */
    assert_true(seen.memory_grown_bytes > (double)bytes / 2);
    assert_float_equal(seen.judged_by_time, 0, 0);
    e.busy_host = false;
    assert_float_equal(ha_evidence_footprint(&e, &session).judged_by_time, 1, 0);
    assert_int_equal(e.cpu.count, PASSES);
    assert_int_equal(e.cpu_after.count, 5);                                            /* a few passes wait */
    assert_true(!ha_ticks() || (e.pace.count == PASSES && e.pace_between.count >= 5)); /* of what is long enough */
    ha_evidence_free(&e);
    close_session();
}
