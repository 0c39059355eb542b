/* Of the program that tests call, of tests that measure in their own process, and of no other: what is measured is
 * measured on a sixteenth of the memory, and beside whatever else runs: other tests do. Its figures mean nothing, and
 * no test asks what they are. */

#include "harness/measure/disturbed.h"
#include "harness/measure/paired.h"

size_t ha_measure_share(size_t bytes) { return bytes / 16; }

void ha_disturbed_judge(const struct ha_core_counts *before, const struct ha_core_counts *after, size_t slow,
                        size_t looks, const char *device_throttle, char out[HA_DISTURBED_MAX])
{
    out[0] = 0;
}
