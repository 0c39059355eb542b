#ifndef HA_BASE_TEST_H
#define HA_BASE_TEST_H

/* What every test needs: cmocka, and the headers that have to stand before it. cmocka hands each test and fixture a
 * state, of which few have one. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The tests of a file list themselves before main, in its order. */
static struct CMUnitTest test_list[64];
static size_t test_count;
static inline void test_add(struct CMUnitTest test)
{
    if (test_count == COUNT(test_list)) abort(); /* make it longer */
    test_list[test_count++] = test;
}
#define TEST_WITH(name, setup, teardown)                                     \
    static void name(void **state);                                          \
    __attribute__((constructor)) static void list_##name(void)               \
    {                                                                        \
        test_add((struct CMUnitTest){ #name, name, setup, teardown, NULL }); \
    }                                                                        \
    static void name(void **state)
#define TEST(name) TEST_WITH(name, NULL, NULL)

/* Runs them all between a setup and a teardown of the group, or NULL. The number of failures. */
static inline int test_all(const char *group, CMFixtureFunction setup, CMFixtureFunction teardown)
{
    return _cmocka_run_group_tests(group, test_list, test_count, setup, teardown);
}

static inline const char *test_place(void)
{
    const char *asked = getenv("TMPDIR");
    return asked && *asked ? asked : P_tmpdir;
}
/* what mkdtemp and mkstemps take, into path[size]; returns path */
static inline char *test_template(char *path, size_t size, const char *ending)
{
    snprintf(path, size, "%s/habench-XXXXXX%s", test_place(), ending);
    return path;
}

#define assert_contains(text, part)                                                       \
    do {                                                                                  \
        if (!strstr(text, part)) fail_msg("lacks '%s':\n%s", part, (const char *)(text)); \
    } while (0)

#endif
