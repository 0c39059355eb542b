#define _GNU_SOURCE /* pthread_setattr_default_np */
#include "harness/base/thread.h"

#include "harness/base/test.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static bool limit_stack(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    limit.rlim_cur = bytes;
    return setrlimit(RLIMIT_STACK, &limit) == 0;
}

struct seen {
    size_t stack_bytes;
    bool takes_signals;
};

static void *look(void *arg)
{
    struct seen *seen = arg;
    pthread_attr_t attributes;
    sigset_t mask;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstacksize(&attributes, &seen->stack_bytes);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    seen->takes_signals = !sigismember(&mask, SIGTERM);
    return NULL;
}

/* In a child. A program that was started under a small limit has the small default that is set here. */
static int thread_under_a_small_limit(void)
{
    struct seen seen = { 0 };
    pthread_attr_t small;
    pthread_t thread;
    sigset_t mask;
    if (pthread_attr_init(&small) || pthread_attr_setstacksize(&small, 64 << 10) || pthread_setattr_default_np(&small))
        return 1;
    if (ha_thread_start(&thread, look, &seen) != 0) return 1;
    pthread_join(thread, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    return seen.stack_bytes < HA_THREAD_STACK_BYTES || seen.takes_signals || sigismember(&mask, SIGTERM);
}

static int check_under_limits(void)
{
    struct ha_why why;
    if (!limit_stack(HA_STACK_LEAST_BYTES) || ha_stack_check(&why) != HA_OK) return 1;
    if (!limit_stack(HA_STACK_LEAST_BYTES - 4096) || ha_stack_check(&why) != HA_ERROR) return 2;
    return !strstr(why.text, "limited to 252 KiB") || !strstr(why.text, "ulimit -s");
}

static int in_a_child(int (*body)(void))
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) _exit(body());
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(a_thread_has_its_stack) { assert_int_equal(in_a_child(thread_under_a_small_limit), 0); }

TEST(a_small_stack_is_refused) { assert_int_equal(in_a_child(check_under_limits), 0); }
