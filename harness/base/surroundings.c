#define _GNU_SOURCE /* uselocale */
#include "harness/base/surroundings.h"

#include "harness/base/why.h"

#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- floating-point control -------------------------------------------------------------------------------------- */

/* Bits of one word that a change is named by; the flags that every operation may raise are none of them. */
struct control_bits {
    uint64_t bits;
    const char *name;
};

#if defined __x86_64__

/* MXCSR, and above it the control word of the x87 unit */
enum { X87 = 16, MXCSR_FLAGS = 0x3f };
static const struct control_bits control_bits[] = {
    { UINT64_C(0x6000) | UINT64_C(0x0c00) << X87, "the rounding mode" },
    { UINT64_C(0x8040), "how denormals are taken (FTZ, DAZ: linked with -ffast-math?)" },
    { UINT64_C(0x0300) << X87, "the precision of x87" },
    { UINT64_C(0x1f80) | UINT64_C(0x003f) << X87, "the traps of floating point" },
};

static uint64_t control_read(void)
{
    uint32_t mxcsr;
    uint16_t x87;
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return (mxcsr & ~(uint32_t)MXCSR_FLAGS) | (uint64_t)x87 << X87;
}

static void control_write(uint64_t control)
{
    const uint32_t mxcsr = (uint32_t)control & 0xffff;
    const uint16_t x87 = (uint16_t)(control >> X87);
    __asm__ volatile("fnclex\n\tfldcw %0" : : "m"(x87));
    __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
}

/* MMX code without emms leaves the x87 registers taken, and long double is NaN from then on. */
static bool registers_taken(void)
{
    struct {
        uint32_t control, status, tag, rest[4];
    } x87;
    __asm__ volatile("fnstenv %0\n\tfldenv %0" : "+m"(x87));
    if ((x87.tag & 0xffff) == 0xffff) return false;
    __asm__ volatile("emms");
    return true;
}

#elif defined __aarch64__

static const struct control_bits control_bits[] = {
    { UINT64_C(3) << 22, "the rounding mode" },
    { UINT64_C(1) << 24 | UINT64_C(1) << 19, "how denormals are taken (FZ)" },
    { UINT64_C(0x9f00), "the traps of floating point" },
    { UINT64_C(1) << 25, "how NaN are made (DN)" },
};

static uint64_t control_read(void)
{
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
}

static void control_write(uint64_t control) { __asm__ volatile("msr fpcr, %0" : : "r"(control)); }

static bool registers_taken(void) { return false; }

#else

static const struct control_bits control_bits[] = { { UINT64_MAX, "the rounding mode" } };
static uint64_t control_read(void) { return (uint64_t)fegetround(); }
static void control_write(uint64_t control) { fesetround((int)control); }
static bool registers_taken(void) { return false; }

#endif

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

/* Signals by which the program is stopped, says how a process died, or waits for one. */
static const int handled[] = { SIGINT, SIGTERM, SIGHUP, SIGSEGV, SIGBUS, SIGXFSZ, SIGCHLD };
enum { HANDLED = sizeof handled / sizeof *handled };

static struct {
    bool is;
    uint64_t control;
    sigset_t mask;
    struct sigaction action[HANDLED];
    char folder[4096]; /* or "" */
    struct stat at;
    mode_t umask;
    char *locale;
    locale_t thread_locale;
} kept;

static uint64_t changed;    /* bits of control that tasks left otherwise */
static struct ha_why first; /* or "" */

void ha_surroundings_keep(void)
{
    kept.control = control_read();
    pthread_sigmask(SIG_SETMASK, NULL, &kept.mask);
    for (size_t i = 0; i < HANDLED; i++) sigaction(handled[i], NULL, &kept.action[i]);
    if (!getcwd(kept.folder, sizeof kept.folder) || stat(".", &kept.at) != 0) *kept.folder = 0;
    kept.umask = umask(0);
    umask(kept.umask);
    free(kept.locale);
    kept.locale = strdup(setlocale(LC_ALL, NULL));
    kept.thread_locale = uselocale((locale_t)0);
    __atomic_store_n(&changed, 0, __ATOMIC_RELAXED);
    *first.text = 0;
    kept.is = true;
}

void ha_surroundings_task(void)
{
    if (!kept.is) return;
    const uint64_t differs = control_read() ^ kept.control;
    if (!differs) return;
    __atomic_fetch_or(&changed, differs, __ATOMIC_RELAXED);
    control_write(kept.control);
}

static bool mask_differs(const sigset_t *now)
{
    for (int s = 1; s < NSIG; s++)
        if (sigismember(now, s) != sigismember(&kept.mask, s)) return true;
    return false;
}

/* What is not as it was, put back: its name for each, NULL at the end. */
static size_t restore_all(const char *name[])
{
    size_t n = 0;
    struct stat at;
    sigset_t mask;
    ha_surroundings_task();
    const uint64_t differs = __atomic_exchange_n(&changed, 0, __ATOMIC_RELAXED);
    for (size_t i = 0; i < sizeof control_bits / sizeof *control_bits; i++)
        if (differs & control_bits[i].bits) name[n++] = control_bits[i].name;
    if (registers_taken()) name[n++] = "the x87 registers (MMX without emms)";
    pthread_sigmask(SIG_SETMASK, &kept.mask, &mask);
    if (mask_differs(&mask)) name[n++] = "the signal mask";
    bool handlers = false;
    for (size_t i = 0; i < HANDLED; i++) {
        struct sigaction now;
        sigaction(handled[i], NULL, &now);
        if (now.sa_sigaction == kept.action[i].sa_sigaction) continue;
        handlers = true;
        sigaction(handled[i], &kept.action[i], NULL);
    }
    if (handlers) name[n++] = "a handler of signals";
    if (*kept.folder && (stat(".", &at) != 0 || at.st_dev != kept.at.st_dev || at.st_ino != kept.at.st_ino))
        name[n++] = chdir(kept.folder) == 0 ? "the working directory" : "the working directory, for good";
    if (umask(kept.umask) != kept.umask) name[n++] = "the umask";
    if (kept.locale && strcmp(setlocale(LC_ALL, NULL), kept.locale) != 0) {
        setlocale(LC_ALL, kept.locale);
        name[n++] = "the locale";
    }
    if (uselocale(kept.thread_locale) != kept.thread_locale) name[n++] = "the thread's locale";
    return n;
}

void ha_surroundings_restore(const char *who)
{
    const char *name[16];
    char text[400] = "";
    if (!kept.is) return;
    const size_t n = restore_all(name);
    for (size_t i = 0, used = 0; i < n && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? ", " : "", name[i]);
    if (n && !*first.text) ha_why(&first, HA_ERROR, "%.200s changed %s and did not put it back", who, text);
}

enum ha_status ha_surroundings_verdict(struct ha_why *why)
{
    if (!*first.text) return HA_OK;
    *why = first;
    *first.text = 0;
    return HA_ERROR;
}
