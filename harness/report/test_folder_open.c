#include "harness/report/test_folder_open.h"

#include <signal.h>

struct ha_folder *f;
struct ha_why why;
struct fake_case c;

bool there(const char *name) { return access(test_path(name), F_OK) == 0; }

size_t lines(const char *name) { return test_count(test_text(name), "\n"); }

void append(const char *name, const char *text)
{
    FILE *file = fopen(test_path(name), "a");
    fputs(text, file);
    fclose(file);
}

void open_with(const struct ha_folder_options *options)
{
    if (ha_folder_open(&f, options, &why) != HA_EXIT_OK) fail_msg("%s", why.text);
}
void open_it(bool resume)
{
    const struct ha_folder_options options = fake_options(test_folder, resume);
    open_with(&options);
}
void close_it(void)
{
    if (ha_folder_close(f, &why) != HA_OK) fail_msg("%s", why.text);
}
void write_it(size_t n, enum ha_verdict verdict)
{
    if (fake_write(f, n, verdict, &why) != HA_OK) fail_msg("%s", why.text);
}

int open_new(void **state)
{
    const int failed = test_folder_make(state);
    if (!failed) open_it(false);
    return failed;
}

void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}
