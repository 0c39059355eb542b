/* What disturbed a night is told by name, and no more time is asked for where that would not help. */

#include "harness/program/night_causes.h"

#include "harness/api/suite.h"
#include "harness/base/registry.h"
#include "harness/base/test_folder.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

static void put(const char *name, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    test_write(name, text, (size_t)n);
}

static int core; /* one of ours */

static int make_folder(void **state)
{
    static const char *const each[] = { "proc", "proc/20", "proc/30" };
    bool mine[HA_CORES_MOST];
    if (test_folder_make(state) != 0 || !ha_cores_mine(mine)) return 1;
    while (!mine[core]) core++;
    for (size_t i = 0; i < COUNT(each); i++)
        if (mkdir(test_path(each[i]), 0777) != 0) return 1;
    return 0;
}

/* Of a process on that core, in ticks of a hundredth of a second. */
static void put_program(int pid, const char *name, int ticks)
{
    char path[64];
    snprintf(path, sizeof path, "proc/%d/stat", pid);
    put(path, "%d (%s) R 1 1 1 0 -1 0 0 0 0 0 %d 0 0 0 20 0 1 0 77 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 %d 0 0 0\n", pid,
        name, ticks, core);
}

/* A night of one step, half of whose rows have this cause. */
static char *notes_of(const char *cause, bool *others)
{
    static struct ha_night_watch w;
    char path[64], folder[TEST_PATH_MAX];
    snprintf(folder, sizeof folder, "%s", test_path(cause));
    struct ha_night_log log = { .folder = folder };
    assert_int_equal(mkdir(folder, 0777), 0);
    snprintf(path, sizeof path, "%s/run", cause);
    assert_int_equal(mkdir(test_path(path), 0777), 0);
    log.said = json_pack("{s:[{s:s}]}", "steps", "name", "run");
    snprintf(path, sizeof path, "%s/run/%s", cause, ha_suites_all[0]->file[0]);
    put(path, "case_id,disturbed\r\na,%s\r\nb,\r\n", cause);
    w = (struct ha_night_watch){ .root = test_folder };
    put("proc/stat", "cpu%d 100 0 0 0 0 0 0 0 0 0\n", core);
    put_program(20, "a) b", 5);
    put_program(30, "make", 90000);
    ha_night_watch_begin(&w);
    put("proc/stat", "cpu%d 50100 0 0 0 0 0 0 900 0 0\n", core);
    put_program(20, "a) b", 40005);
    put_program(30, "make", 90000);
    ha_night_watch_end(&w);
    w.span_ns = 1000e9; /* what passed, whatever the clock says */
    *others = ha_night_causes_note(&log, &w);
    json_decref(log.said);
    return log.notes;
}

TEST_WITH(each_cause_has_its_words, make_folder, test_folder_remove)
{
    static const struct {
        const char *cause, *says;
        bool others;
    } table[] = {
        { "load", "load, in 1 of 2 rows: other programs used 50% of our cores' time: 'a) b' 40%, 10% by programs that",
          true },
        { "steal", "steal, in 1 of 2 rows: the host gave 0.9% of our cores' time to other guests; give this guest",
          true },
        { "shared", "shared, in 1 of 2 rows: a core took", true },
        { "throttled", "throttled, in 1 of 2 rows: ", true }, /* and load, which the watch has seen */
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        bool others;
        char *notes = notes_of(table[i].cause, &others);
        if (!strstr(notes, table[i].says)) fail_msg("%s", notes);
        assert_true(others == table[i].others);
        assert_null(strstr(notes, "--max-time"));
        assert_null(strstr(notes, "make"));
        free(notes);
    }
}
