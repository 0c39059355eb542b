#ifndef HA_REPORT_TEST_FOLDER_OPEN_H
#define HA_REPORT_TEST_FOLDER_OPEN_H

/* For tests of the folder of a run: one that is open, into which the cases of a suite that is none are written. */

#include "harness/base/test_folder.h"
#include "harness/report/fake_suite.h"

#include <signal.h>
#include <sys/resource.h>

static inline bool there(const char *name) { return access(test_path(name), F_OK) == 0; }

static inline size_t lines(const char *name) { return test_count(test_text(name), "\n"); }

static inline void append(const char *name, const char *text)
{
    FILE *f = fopen(test_path(name), "a");
    fputs(text, f);
    fclose(f);
}

static struct ha_folder *f; /* the one that is open */
static struct ha_why why;
static struct fake_case c;

static inline void open_with(const struct ha_folder_options *options)
{
    if (ha_folder_open(&f, options, &why) != HA_EXIT_OK) fail_msg("%s", why.text);
}
static inline void open_it(bool resume)
{
    const struct ha_folder_options options = fake_options(test_folder, resume);
    open_with(&options);
}
static inline void close_it(void)
{
    if (ha_folder_close(f, &why) != HA_OK) fail_msg("%s", why.text);
}
static inline void write_it(size_t n, enum ha_verdict verdict)
{
    if (fake_write(f, n, verdict, &why) != HA_OK) fail_msg("%s", why.text);
}

static inline int open_new(void **state)
{
    const int failed = test_folder_make(state);
    if (!failed) open_it(false);
    return failed;
}

/* From now on no file becomes larger. */
static inline void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

#endif
