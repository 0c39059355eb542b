#include "harness/base/fastest_read.h"

#include "harness/base/stats.h"

enum { ROUNDS = 7 };

ha_read *ha_fastest_read(const struct ha_kernels *kernels, double (*reading)(void *arg, ha_read *read), void *arg)
{
    double line[ROUNDS], streams[ROUNDS];
    if (!kernels->read_streams) return kernels->read;
    for (size_t i = 0; i < ROUNDS; i++) {
        line[i] = reading(arg, kernels->read);
        streams[i] = reading(arg, kernels->read_streams);
    }
    return ha_median(streams, ROUNDS) > ha_median(line, ROUNDS) ? kernels->read_streams : kernels->read;
}
