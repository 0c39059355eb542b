#ifndef HA_ENGINE_TEST_RUN_H
#define HA_ENGINE_TEST_RUN_H

/* For tests of ha_run over suites of their own, in place of the program's (--wrap). */

#include "harness/base/csv.h"
#include "harness/base/registry.h"
#include "harness/base/test_folder.h"
#include "harness/engine/loop.h"

#include <fcntl.h>

/* The members that every such suite has, and then others. */
#define TEST_SUITE(NAME, POINT, ROW, ...)                                                                        \
    {                                                                                                            \
        .name = NAME, .doc = "of this test", .point_bytes = sizeof(POINT), .row_bytes = sizeof(ROW), __VA_ARGS__ \
    }

/* TEST_SUITES(&one, &other): they are the program's. */
#define TEST_SUITES(...)                                                   \
    extern const struct ha_suite *const __wrap_ha_suites_all[];            \
    extern const size_t __wrap_ha_suites_count;                            \
    const struct ha_suite *const __wrap_ha_suites_all[] = { __VA_ARGS__ }; \
    const size_t __wrap_ha_suites_count = COUNT(__wrap_ha_suites_all)

/* stdout and stderr of this process go to two files, until test_print_back. err NULL: both to `out`. */
static int test_shown[2];
static inline void test_print_to(const char *out, const char *err)
{
    fflush(stdout);
    for (int fd = 1; fd <= 2; fd++) {
        const int file = fd == 2 && !err ? dup(1) : open(fd == 1 ? out : err, O_RDWR | O_CREAT | O_TRUNC, 0666);
        test_shown[fd - 1] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        dup2(file, fd);
        close(file);
    }
}
static inline void test_print_back(void)
{
    fflush(stdout);
    for (int fd = 1; fd <= 2; fd++) {
        dup2(test_shown[fd - 1], fd);
        close(test_shown[fd - 1]);
    }
}

/* Runs cases 0, 1, ... of these suites, of which a point begins with its number; time_ns: of each, or NULL. */
static inline enum ha_exit test_run(const struct ha_suite *const *suites, size_t count, const uint64_t *time_ns,
                                    const struct ha_run_options *options, struct ha_why *why)
{
    enum { MOST = 32, NUMBERS = 8 };
    static char from[] = "";
    char id[MOST][32];
    uint64_t point[MOST][NUMBERS] = { { 0 } };
    struct ha_plan_entry entry[MOST];
    const struct ha_plan plan = { .entry = entry, .entries = count };
    assert_true(count <= MOST);
    for (size_t n = 0; n < count; n++) {
        point[n][0] = n;
        snprintf(id[n], sizeof id[n], "%s:n=%zu", suites[n]->name, n);
        entry[n] = (struct ha_plan_entry){ .suite = suites[n], .point = point[n], .id = id[n], .from = from };
        if (time_ns) entry[n].time_ns = time_ns[n];
    }
    return ha_run(&plan, options, why);
}

#endif
