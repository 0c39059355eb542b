#ifndef HA_BASE_TEST_H
#define HA_BASE_TEST_H

/* What every test needs: cmocka, the headers that have to stand before it, and those of C that nearly every test uses,
 * which no test includes itself. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/base/sanitizer.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The tests of a file list themselves before main, in its order. Weak: one list of all files that a test is of. */
__attribute__((weak)) struct CMUnitTest test_list[64];
__attribute__((weak)) size_t test_list_count;
static inline void test_add(struct CMUnitTest test)
{
    if (test_list_count == COUNT(test_list)) abort(); /* make it longer */
    test_list[test_list_count++] = test;
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
    return _cmocka_run_group_tests(group, test_list, test_list_count, setup, teardown);
}

/* What is printed to the stream of test_print, as test_printed closes it; until the next test_print. */
static char *test_print_text;
static size_t test_print_bytes;
static FILE *test_print_stream;
static inline FILE *test_print(void)
{
    free(test_print_text);
    test_print_text = NULL;
    return test_print_stream = open_memstream(&test_print_text, &test_print_bytes);
}
static inline char *test_printed(void)
{
    fclose(test_print_stream);
    return test_print_text;
}

static inline size_t test_count(const char *text, const char *part)
{
    size_t n = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) n++;
    return n;
}

/* <math.h>; written so that a NaN fails */
#define assert_near(a, b, tolerance) assert_true(fabs((a) - (b)) <= (tolerance))

/* The same for a program that is run as "NAME small": the same code over fewer numbers; each test says what it leaves
 * out. A test without a main has that of test_main.c, with neither setup nor teardown. */
__attribute__((weak)) bool test_small;
static inline int test_main(int argc, char **argv, CMFixtureFunction setup, CMFixtureFunction teardown)
{
    test_small = argc > 1 && !strcmp(argv[1], "small");
    return test_all("tests", setup, teardown);
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
