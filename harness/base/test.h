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

/* The tests of a file list themselves before main, in its order. Weak: one list for all files of a test program. */
struct test_entry {
    const char *file;
    struct CMUnitTest test;
};
__attribute__((weak)) struct test_entry test_list[1024];
__attribute__((weak)) size_t test_list_count;
static inline void test_add(const char *file, struct CMUnitTest test)
{
    if (test_list_count == COUNT(test_list)) abort(); /* make it longer */
    test_list[test_list_count++] = (struct test_entry){ file, test };
}
#define TEST_WITH(name, setup, teardown)                                               \
    static void name(void **state);                                                    \
    __attribute__((constructor)) static void list_##name(void)                         \
    {                                                                                  \
        test_add(__FILE__, (struct CMUnitTest){ #name, name, setup, teardown, NULL }); \
    }                                                                                  \
    static void name(void **state)
#define TEST(name) TEST_WITH(name, NULL, NULL)

/* The file whose tests run in this process: test_main.c chooses it. */
__attribute__((weak)) const char *test_file;

/* Runs the tests of test_file between a setup and a teardown of the group, or NULL. Returns the number of failures; a
 * file without a test is one. */
static inline int test_all(const char *group, CMFixtureFunction setup, CMFixtureFunction teardown)
{
    static struct CMUnitTest chosen[COUNT(test_list)];
    size_t count = 0;
    for (size_t i = 0; i < test_list_count; i++)
        if (!strcmp(test_list[i].file, test_file)) chosen[count++] = test_list[i].test;
    return count == 0 || _cmocka_run_group_tests(group, chosen, count, setup, teardown);
}

/* A file that needs more than its tests defines TEST_MAIN { ... } in place of main: argv holds what follows the file's
 * name on the command line, behind the program's. It returns 0 if all is right. */
typedef int test_main_function(int argc, char **argv);
__attribute__((weak)) struct {
    const char *file;
    test_main_function *main;
} test_mains[64];
__attribute__((weak)) size_t test_mains_count;
#define TEST_MAIN                                                \
    static int test_main_of_file(int argc, char **argv);         \
    __attribute__((constructor)) static void list_main(void)     \
    {                                                            \
        if (test_mains_count == COUNT(test_mains)) abort();      \
        test_mains[test_mains_count].file = __FILE__;            \
        test_mains[test_mains_count++].main = test_main_of_file; \
    }                                                            \
    static int test_main_of_file(int argc, char **argv)

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

/* The largest number of n independent events of probability p that is exceeded with a probability of 10^-6 at most: the
 * limit of a test that counts rare mistakes of a right program. */
static inline size_t test_binomial_limit(size_t n, double p)
{
    double of = 1, above = 1; /* the probability of exactly k events, and of more than k */
    for (size_t i = 0; i < n; i++) of *= 1 - p;
    size_t k = 0;
    for (above -= of; k < n && above > 1e-6; k++) {
        of *= (double)(n - k) / (double)(k + 1) * p / (1 - p);
        above -= of;
    }
    return k;
}

/* <math.h>; written so that a NaN fails */
#define assert_near(a, b, tolerance) assert_true(fabs((a) - (b)) <= (tolerance))

/* Of a program that is run as "PROGRAM FILE small": the same code over fewer numbers; each test says what it leaves
 * out. */
__attribute__((weak)) bool test_small;

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

#define assert_contains(text, part)                                         \
    do {                                                                    \
        const char *const said_ = (text);                                   \
        if (!strstr(said_, part)) fail_msg("lacks '%s':\n%s", part, said_); \
    } while (0)

#endif
