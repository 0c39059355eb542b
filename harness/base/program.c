#include "harness/base/program.h"

#include <string.h>
#include <unistd.h>

bool ha_program_folder(char *out, size_t bytes)
{
    const ssize_t length = readlink("/proc/self/exe", out, bytes);
    const bool whole = length > 0 && (size_t)length < bytes;
    out[whole ? length : 0] = 0;
    if (whole) *strrchr(out, '/') = 0;
    return whole;
}
