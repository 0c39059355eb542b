#ifndef HA_BASE_TEST_FOLDER_H
#define HA_BASE_TEST_FOLDER_H

/* A folder for the files of a test: setup and teardown, and what lies in it. */

#include "harness/base/test.h"

#include <ftw.h>
#include <unistd.h>

/* one of all files that a test is of */
__attribute__((weak)) char test_folder[64];
enum { TEST_PATH_MAX = sizeof test_folder + 264 };

/* the path of a file in it, until the next call */
static inline const char *test_path(const char *name)
{
    static char path[TEST_PATH_MAX];
    snprintf(path, sizeof path, "%s/%.260s", test_folder, name);
    return path;
}

/* in memory, if possible: what is tested waits for the disk a few times */
static inline int test_folder_make(void **state)
{
    snprintf(test_folder, sizeof test_folder, "%s/ha-test-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : test_place());
    return mkdtemp(test_folder) == NULL;
}

static inline int test_remove(const char *path, const struct stat *at, int type, struct FTW *of)
{
    return remove(path);
}
static inline int test_folder_remove(void **state) { return nftw(test_folder, test_remove, 16, FTW_DEPTH | FTW_PHYS); }

/* makes a file in it of these bytes */
static inline void test_write(const char *name, const void *bytes, size_t count)
{
    FILE *f = fopen(test_path(name), "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

/* the whole file, until the next call; "" where there is none */
static inline const char *test_text(const char *name)
{
    static char text[1 << 20];
    FILE *f = fopen(test_path(name), "r");
    text[f ? fread(text, 1, sizeof text - 1, f) : 0] = 0;
    if (f) fclose(f);
    return text;
}

#endif
