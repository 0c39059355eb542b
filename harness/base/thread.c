#include "harness/base/thread.h"

#include "harness/base/why.h"

#include <signal.h>
#include <sys/resource.h>
#include <errno.h>
#include <time.h>

int ha_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error) return error;
    error = pthread_attr_setstacksize(&attributes, HA_THREAD_STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (!error) error = pthread_create(thread, &attributes, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

enum ha_status ha_stack_check(struct ha_why *why)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= HA_STACK_LEAST_BYTES) return HA_OK;
    return ha_why(why, HA_ERROR, "the stack is limited to %llu KiB, and habench needs %d: run `ulimit -s 8192` before",
                  (unsigned long long)limit.rlim_cur / 1024, HA_STACK_LEAST_BYTES / 1024);
}

void ha_sleep_ns(uint64_t ns)
{
    struct timespec left = { .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) };
    while (ns && nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}
