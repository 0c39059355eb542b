#ifndef HA_BASE_TEST_BESIDE_H
#define HA_BASE_TEST_BESIDE_H

#include "harness/base/program.h"
#include "harness/base/test.h"

#include <dlfcn.h>
#include <unistd.h>

/* The path of a file beside the test, where the build puts what it loads; until the next call. */
static inline const char *beside(const char *name)
{
    static char path[4096 + 64];
    char folder[4096];
    assert_true(ha_program_folder(folder, sizeof folder));
    snprintf(path, sizeof path, "%s/%.63s", folder, name);
    return path;
}

/* The same as the value of a key, which has no blank: relative to the current folder where that is above it. */
static inline const char *beside_as_value(const char *name)
{
    const char *path = beside(name);
    char current[4096];
    assert_non_null(getcwd(current, sizeof current));
    const size_t n = strlen(current);
    return !strncmp(path, current, n) && path[n] == '/' ? path + n + 1 : path;
}

/* What a library beside the test calls so. */
static inline void *beside_symbol(const char *library, const char *symbol)
{
    void *loaded = dlopen(beside(library), RTLD_NOW), *found = loaded ? dlsym(loaded, symbol) : NULL;
    if (!found) fail_msg("%s", dlerror());
    return found;
}

#endif
