#ifndef HA_BASE_TEST_FOLDER_H
#define HA_BASE_TEST_FOLDER_H

/* A folder for the files of a test: setup and teardown, and what lies in it. */

#include "harness/base/test.h"

#include <dirent.h>
#include <unistd.h>

static char test_folder[64];

/* the path of a file in it, until the next call */
static inline const char *test_path(const char *name)
{
    static char path[sizeof test_folder + 264];
    snprintf(path, sizeof path, "%s/%.260s", test_folder, name);
    return path;
}

/* in memory, if possible: a run waits for the disk a few times */
static inline int test_folder_make(void **state)
{
    snprintf(test_folder, sizeof test_folder, "%s/ha-test-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : test_place());
    return mkdtemp(test_folder) == NULL;
}

static inline int test_folder_remove(void **state)
{
    DIR *d = opendir(test_folder);
    struct dirent *e;
    while (d && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) unlink(test_path(e->d_name));
    if (d) closedir(d);
    return rmdir(test_folder);
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
