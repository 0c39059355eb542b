#include "harness/report/fake_suite.h"

#include "harness/base/csv.h"
#include "harness/base/rng.h"
#include "harness/base/sanitizer.h"
#include "harness/base/test_folder.h"

#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

/* A run is killed again and again, after so many rows or at any time from its begin on, and goes on each time. No row
 * that was said to be written may be lost, and at the end every line is there once. Each time reads what is there: with
 * a sanitizer fewer kills take the same paths. */

enum { KILLS = HA_SANITIZED ? 60 : 200, FEW_ROWS = 12, CASES = KILLS * FEW_ROWS + 100 };

/* What the case comes to, this time: every seventh ends with an error at first. */
static enum ha_verdict verdict_of(size_t n, size_t attempt) { return (n + attempt) % 7 ? HA_PASS : HA_VERDICT_ERROR; }

/* The run: what has no row, in order. Each row that is written is said through the pipe: its case, or its complement
 * where it is an error, which the next run drops. */
static void write_all(size_t attempt, bool last, int pipe)
{
    const struct ha_folder_options options = fake_options(test_folder, true);
    struct ha_folder *f;
    struct ha_why why;
    if (ha_folder_open(&f, &options, &why) != HA_EXIT_OK) {
        fprintf(stderr, "%s\n", why.text);
        _exit(2);
    }
    for (size_t n = 0, written = 0; n < CASES; n++) {
        struct fake_case c;
        fake_case(&c, n, 0);
        if (ha_folder_find(f, c.id, 0)) continue;
        while (!last && written == FEW_ROWS) pause(); /* until it is killed, however slow that is */
        written++;
        const enum ha_verdict verdict = last ? HA_PASS : verdict_of(n, attempt);
        if (fake_write(f, n, verdict, &why) != HA_OK) {
            fprintf(stderr, "%s\n", why.text);
            _exit(3);
        }
        const uint32_t said = verdict == HA_PASS ? (uint32_t)n : ~(uint32_t)n;
        if (write(pipe, &said, sizeof said) != sizeof said) _exit(4);
    }
    if (ha_folder_close(f, &why) != HA_OK) _exit(5);
    _exit(0);
}

/* what was said so far */
static bool done[CASES];

static void take(uint32_t said)
{
    if (said < CASES) done[said] = true;
}

static void kill_once(size_t attempt)
{
    const uint64_t bits = ha_rng_bits(13, 1, attempt);
    int up[2], status;
    uint32_t said;
    assert_int_equal(pipe(up), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* where the test fails */
        close(up[0]);
        write_all(attempt, false, up[1]);
    }
    close(up[1]);
    if (bits % 2)
        for (size_t i = 0; i < bits / 2 % FEW_ROWS && read(up[0], &said, sizeof said) == sizeof said; i++) take(said);
    const struct timespec pause = { 0, (long)(bits / 64 % (bits % 2 ? 500000 : 6000000)) };
    nanosleep(&pause, NULL);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status)) fail_msg("attempt %zu: the run ended with %d", attempt, WEXITSTATUS(status));
    while (read(up[0], &said, sizeof said) == sizeof said) take(said);
    close(up[0]);
}

/* Every line of a file by the number of its case. */
static size_t seen[CASES];
static enum ha_status see(void *arg, size_t line, char **field, size_t count)
{
    const size_t *id = arg;
    const char *n = strstr(field[*id], "n=");
    if (line > 1) seen[strtoul(n + 2, NULL, 10)]++;
    return HA_OK;
}

static void is_complete(const char *name, size_t id, size_t each, bool samples)
{
    struct ha_why why = { "" };
    memset(seen, 0, sizeof seen);
    if (ha_csv_read(test_path(name), see, &id, &why) != HA_OK) fail_msg("%s", why.text);
    for (size_t n = 0; n < CASES; n++)
        if (seen[n] != (samples ? fake_lines(n) : each)) fail_msg("%s: case %zu has %zu lines", name, n, seen[n]);
}

TEST_WITH(no_row_is_lost_torn_or_doubled, test_folder_make, test_folder_remove)
{
    size_t rows = 0;
    struct fake_case c;
    for (size_t attempt = 0; attempt < KILLS; attempt++) {
        kill_once(attempt);
        if (attempt % 4) continue; /* three kills in a row, without a run that ended well in between */
        const struct ha_folder_options options = fake_options(test_folder, true);
        struct ha_folder *f;
        struct ha_why why = { "" };
        if (ha_folder_open(&f, &options, &why) != HA_EXIT_OK) fail_msg("attempt %zu: %s", attempt, why.text);
        for (size_t n = 0; n < CASES; n++) {
            fake_case(&c, n, 0);
            const struct ha_folder_entry *e = ha_folder_find(f, c.id, 0);
            if (done[n] && !e) fail_msg("attempt %zu: case %zu is lost", attempt, n);
            if (!e) continue;
            const struct fake_row right = fake_row(n, HA_PASS), *row = e->row;
            assert_true(row->big == right.big && row->time_ns == right.time_ns);
            assert_string_equal(row->text, right.text);
        }
        rows = ha_folder_entries(f);
        assert_int_equal(ha_folder_close(f, &why), HA_OK);
    }
    assert_true(rows > KILLS / 4 && rows < CASES); /* else nothing was killed while it wrote */

    int up[2], status;
    assert_int_equal(pipe(up), 0);
    const pid_t pid = fork();
    if (pid == 0) write_all(0, true, up[1]);
    close(up[1]);
    uint32_t said;
    while (read(up[0], &said, sizeof said) == sizeof said) {
    }
    close(up[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    is_complete("fake.csv", 2, 1, false);
    is_complete("fake_samples.csv", 2, 0, true);
    is_complete("fake_summary.csv", 2, 1, false);
    is_complete("figures.csv", 2, FAKE_FIGURES, false);

    json_error_t error;
    json_t *trace = json_load_file(test_path("trace.json"), 0, &error);
    if (!trace) fail_msg("%s", error.text);
    assert_int_equal(json_array_size(json_object_get(trace, "traceEvents")), 3 * CASES);
    json_decref(trace);
    DIR *d = opendir(test_folder);
    struct dirent *e;
    while ((e = readdir(d)))
        if (strstr(e->d_name, ".part")) fail_msg("%s is left", e->d_name);
    closedir(d);
    printf("%d kills, the last left %zu of %d rows\n", KILLS, rows, CASES);
}
