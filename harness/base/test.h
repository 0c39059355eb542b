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

#define assert_contains(text, part)                                                       \
    do {                                                                                  \
        if (!strstr(text, part)) fail_msg("lacks '%s':\n%s", part, (const char *)(text)); \
    } while (0)

#endif
