#include "harness/doctor/checks.h"

#include <stdarg.h>
#include <stdio.h>

void ha_found(struct ha_finding *f, enum ha_fitness verdict, const char *format, ...)
{
    va_list args;
    f->verdict = verdict;
    va_start(args, format);
    vsnprintf(f->found, sizeof f->found, format, args);
    va_end(args);
}

void ha_mend(struct ha_finding *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->mend, sizeof f->mend, format, args);
    va_end(args);
}
