#ifndef HA_REFERENCE_TEST_SAYS_H
#define HA_REFERENCE_TEST_SAYS_H

#include "harness/base/test.h"

#include <string.h>

/* One of the texts between bars is in it. */
static inline bool ha_test_says(const char *text, const char *any)
{
    char part[96];
    for (const char *end = any; end; any = end + 1) {
        end = strchr(any, '|');
        snprintf(part, sizeof part, "%.*s", (int)(end ? end - any : (long)strlen(any)), any);
        if (strstr(text, part)) return true;
        if (!end) break;
    }
    return false;
}

#endif
