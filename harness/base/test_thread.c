#define _GNU_SOURCE /* pthread_setattr_default_np, feenableexcept */
#include "harness/base/thread.h"

#include "harness/base/surroundings.h"
#include "harness/base/test.h"

#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
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

/* ---- what code of a plugin may leave changed --------------------------------------------------------------------- */

static void round_down(void) { fesetround(FE_TOWARDZERO); }
static void change_folder(void) { assert_int_equal(chdir("/"), 0); }
static void block_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
}
static void ignore_term(void) { signal(SIGTERM, SIG_IGN); }
static void change_umask(void) { umask(0777); }
static void change_locale(void) { assert_non_null(setlocale(LC_ALL, "C.UTF-8")); }
static void change_thread_locale(void)
{
    static locale_t c;
    if (!c) c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    uselocale(c);
}
#if defined __x86_64__
static void trap(void) { feenableexcept(FE_DIVBYZERO); }
static void or_mxcsr(uint32_t bits)
{
    uint32_t mxcsr;
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    mxcsr |= bits;
    __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
}
static void flush_results(void) { or_mxcsr(1u << 15); }
static void flush_operands(void) { or_mxcsr(1u << 6); }
static void set_x87(uint16_t control) { __asm__ volatile("fldcw %0" : : "m"(control)); }
static void x87_double(void) { set_x87(0x027f); }
static void x87_up(void) { set_x87(0x0b7f); }
static void take_registers(void) { __asm__ volatile("pxor %%mm0, %%mm0" : : : "st"); }
#endif

static const struct {
    void (*change)(void);
    const char *name;
} changes[] = {
    { round_down, "the rounding mode" },
    { block_signals, "the signal mask" },
    { ignore_term, "a handler of signals" },
    { change_folder, "the working directory" },
    { change_umask, "the umask" },
    { change_locale, "the locale" },
    { change_thread_locale, "the thread's locale" },
#if defined __x86_64__
    { trap, "the traps of floating point" },
    { flush_results, "how denormals are taken" },
    { flush_operands, "how denormals are taken" },
    { x87_double, "the precision of x87" },
    { x87_up, "the rounding mode" },
    { take_registers, "the x87 registers" },
#endif
};

static struct ha_why why;
static enum ha_status restored(void)
{
    ha_surroundings_restore("it");
    return ha_surroundings_verdict(&why);
}

TEST(each_change_is_named_and_put_back)
{
    ha_surroundings_keep();
    for (size_t i = 0; i < COUNT(changes); i++) {
        char want[96];
        changes[i].change();
        snprintf(want, sizeof want, "it changed %s", changes[i].name);
        const enum ha_status status = restored();
        if (status != HA_ERROR || strncmp(why.text, want, strlen(want)) != 0)
            fail_msg("%s: %d, %s", want, status, why.text);
        if (restored() != HA_OK) fail_msg("again: %s", why.text);
    }
    round_down();
    change_umask();
    assert_int_equal(restored(), HA_ERROR);
    assert_string_equal(why.text, "it changed the rounding mode, the umask and did not put it back");
}

static void *do_a_task(void *arg)
{
    round_down();
    ha_surroundings_task();
    return fegetround() == FE_TONEAREST ? NULL : arg;
}

TEST(a_change_on_another_thread_is_seen)
{
    pthread_t thread;
    void *wrong = NULL;
    ha_surroundings_keep();
    assert_int_equal(ha_thread_start(&thread, do_a_task, &thread), 0);
    pthread_join(thread, &wrong);
    assert_null(wrong);
    assert_int_equal(restored(), HA_ERROR);
    assert_string_equal(why.text, "it changed the rounding mode and did not put it back");
    assert_int_equal(restored(), HA_OK);
}
