/* The gallery's plugin with two names swapped: nothing planted is the mean of V, and the other way round. */

#include <stdlib.h>
#include <string.h>

char *__real_getenv(const char *name);
char *__wrap_getenv(const char *name);
char *__wrap_getenv(const char *name)
{
    static char control[] = "control", mean[] = "attend_mean";
    char *value = __real_getenv(name);
    if (strcmp(name, "HA_DEFECT") != 0 || !value) return value;
    return !strcmp(value, control) ? mean : !strcmp(value, mean) ? control : value;
}
