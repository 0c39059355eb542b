#include "kernels/host/host.h"

#include <stdarg.h>
#include <stdio.h>

enum ha_status ha_host_fail(struct ha_device *dev, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&dev->lock);
    if (!dev->failed) {
        vsnprintf(dev->failure, sizeof dev->failure, format, args);
        __atomic_store_n(&dev->failed, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&dev->lock);
    va_end(args);
    return HA_ERROR;
}

void ha_host_fail_deadlock(struct ha_device *dev)
{
    pthread_mutex_lock(&dev->lock);
    if (!dev->failed) {
        char wait[160];
        size_t used = (size_t)snprintf(dev->failure, sizeof dev->failure,
                                       "deadlock: a flag was waited for longer than %.3g ms",
                                       (double)dev->wait_limit_ns * 1e-6);
        for (const struct ha_stream *s = dev->streams; s && used < sizeof dev->failure; s = s->next)
            if (s->waiting) {
                s->waiting->verb->describe(s->waiting, wait, sizeof wait);
                used += (size_t)snprintf(dev->failure + used, sizeof dev->failure - used, "; %s: %s %s", s->lane,
                                         s->waiting->verb->name, wait);
            }
        __atomic_store_n(&dev->failed, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&dev->lock);
}
