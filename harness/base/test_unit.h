#ifndef HA_BASE_TEST_UNIT_H
#define HA_BASE_TEST_UNIT_H

/* cmocka, and what it wants included before it. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* a test that takes no state */
#define TEST(name) static void name(__attribute__((unused)) void **state)

#define COUNT(array) (sizeof(array) / sizeof *(array))

#endif
