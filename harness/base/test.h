#ifndef HA_BASE_TEST_H
#define HA_BASE_TEST_H

/* What a test begins with: cmocka and the headers that it asks for, and those that nearly every test needs. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* cmocka gives every test a state, and what stands in for a function has all of its parameters: few use them. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#endif
