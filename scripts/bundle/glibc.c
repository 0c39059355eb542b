/* Lets a program that is linked here run where glibc is older, from 2.31 on: what the linker would bind to a younger
 * version of glibc's symbols is bound to the oldest that does the same, and what is younger altogether is written
 * out. Linked into the bundle's program and plugin only; scripts/bundle.sh checks that no younger version is left. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if !defined __x86_64__
#error "the oldest versions of glibc's symbols differ by machine: this file knows those of x86-64"
#endif

#define HIDDEN __attribute__((visibility("hidden")))

/* `name` here is what the linker finds first; it calls version `version` of the one in glibc. */
#define OLD(result, name, version, parameters, arguments)       \
    __asm__(".symver old_" #name ", " #name "@GLIBC_" version); \
    extern result old_##name parameters;                        \
    HIDDEN result name parameters { return old_##name arguments; }

OLD(int, pthread_create, "2.2.5", (pthread_t * t, const pthread_attr_t *a, void *(*f)(void *), void *x), (t, a, f, x))
OLD(int, pthread_join, "2.2.5", (pthread_t t, void **x), (t, x))
OLD(int, pthread_detach, "2.2.5", (pthread_t t), (t))
OLD(int, pthread_once, "2.2.5", (pthread_once_t * o, void (*f)(void)), (o, f))
OLD(int, pthread_key_create, "2.2.5", (pthread_key_t * k, void (*f)(void *)), (k, f))
OLD(int, pthread_key_delete, "2.2.5", (pthread_key_t k), (k))
OLD(int, pthread_setspecific, "2.2.5", (pthread_key_t k, const void *x), (k, x))
OLD(void *, pthread_getspecific, "2.2.5", (pthread_key_t k), (k))
OLD(int, pthread_sigmask, "2.2.5", (int how, const sigset_t *set, sigset_t *old), (how, set, old))
OLD(int, pthread_attr_getstacksize, "2.2.5", (const pthread_attr_t *a, size_t *n), (a, n))
OLD(int, pthread_attr_setstacksize, "2.2.5", (pthread_attr_t * a, size_t n), (a, n))
OLD(int, pthread_attr_setaffinity_np, "2.3.4", (pthread_attr_t * a, size_t n, const cpu_set_t *c), (a, n, c))
OLD(int, pthread_getaffinity_np, "2.3.4", (pthread_t t, size_t n, cpu_set_t *c), (t, n, c))
OLD(int, pthread_setaffinity_np, "2.3.4", (pthread_t t, size_t n, const cpu_set_t *c), (t, n, c))
OLD(int, pthread_kill, "2.2.5", (pthread_t t, int s), (t, s))
OLD(int, pthread_mutex_trylock, "2.2.5", (pthread_mutex_t * m), (m))
OLD(int, pthread_rwlock_rdlock, "2.2.5", (pthread_rwlock_t * l), (l))
OLD(int, pthread_rwlock_wrlock, "2.2.5", (pthread_rwlock_t * l), (l))
OLD(int, pthread_rwlock_unlock, "2.2.5", (pthread_rwlock_t * l), (l))
OLD(int, pthread_mutexattr_settype, "2.2.5", (pthread_mutexattr_t * a, int t), (a, t))
OLD(int, sem_init, "2.2.5", (sem_t * s, int shared, unsigned n), (s, shared, n))
OLD(int, sem_destroy, "2.2.5", (sem_t * s), (s))
OLD(int, sem_wait, "2.2.5", (sem_t * s), (s))
OLD(int, sem_timedwait, "2.2.5", (sem_t * s, const struct timespec *t), (s, t))
OLD(int, sem_post, "2.2.5", (sem_t * s), (s))
OLD(void *, dlopen, "2.2.5", (const char *path, int flags), (path, flags))
OLD(void *, dlsym, "2.2.5", (void *so, const char *name), (so, name))
OLD(void *, dlvsym, "2.2.5", (void *so, const char *name, const char *version), (so, name, version))
OLD(int, dlclose, "2.2.5", (void *so), (so))
OLD(char *, dlerror, "2.2.5", (void), ())
OLD(int, dladdr, "2.2.5", (const void *at, Dl_info *info), (at, info))
OLD(void *, dlmopen, "2.3.4", (Lmid_t space, const char *path, int flags), (space, path, flags))
OLD(int, dlinfo, "2.3.3", (void *so, int request, void *to), (so, request, to))

/* of the CUDA runtime */
OLD(int, pthread_condattr_setclock, "2.3.3", (pthread_condattr_t * a, clockid_t c), (a, c))
OLD(int, pthread_condattr_setpshared, "2.2.5", (pthread_condattr_t * a, int s), (a, s))
OLD(int, pthread_mutexattr_init, "2.2.5", (pthread_mutexattr_t * a), (a))
OLD(int, pthread_mutexattr_destroy, "2.2.5", (pthread_mutexattr_t * a), (a))
OLD(int, pthread_mutexattr_setpshared, "2.2.5", (pthread_mutexattr_t * a, int s), (a, s))
OLD(int, pthread_rwlock_init, "2.2.5", (pthread_rwlock_t * l, const pthread_rwlockattr_t *a), (l, a))
OLD(int, pthread_rwlock_destroy, "2.2.5", (pthread_rwlock_t * l), (l))
OLD(int, pthread_rwlock_tryrdlock, "2.2.5", (pthread_rwlock_t * l), (l))
OLD(int, pthread_rwlock_trywrlock, "2.2.5", (pthread_rwlock_t * l), (l))
OLD(int, pthread_rwlock_timedrdlock, "2.2.5", (pthread_rwlock_t * l, const struct timespec *t), (l, t))
OLD(int, pthread_rwlock_timedwrlock, "2.2.5", (pthread_rwlock_t * l, const struct timespec *t), (l, t))
OLD(int, pthread_rwlockattr_init, "2.2.5", (pthread_rwlockattr_t * a), (a))
OLD(int, pthread_rwlockattr_destroy, "2.2.5", (pthread_rwlockattr_t * a), (a))
OLD(int, pthread_rwlockattr_setpshared, "2.2.5", (pthread_rwlockattr_t * a, int s), (a, s))
OLD(int, pthread_spin_init, "2.2.5", (pthread_spinlock_t * l, int s), (l, s))
OLD(int, pthread_spin_destroy, "2.2.5", (pthread_spinlock_t * l), (l))
OLD(int, pthread_spin_lock, "2.2.5", (pthread_spinlock_t * l), (l))
OLD(int, pthread_spin_trylock, "2.2.5", (pthread_spinlock_t * l), (l))
OLD(int, pthread_spin_unlock, "2.2.5", (pthread_spinlock_t * l), (l))
OLD(int, sem_trywait, "2.2.5", (sem_t * s), (s))
OLD(int, shm_open, "2.2.5", (const char *name, int flags, mode_t mode), (name, flags, mode))
OLD(int, shm_unlink, "2.2.5", (const char *name), (name))

/* Before 2.33 a program called stat and its kin by other names, with the version of the struct. */
extern int __xstat(int version, const char *path, struct stat *st);
extern int __lxstat(int version, const char *path, struct stat *st);
extern int __fxstat(int version, int fd, struct stat *st);
extern int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags);
enum { STAT_VERSION = 1 };
HIDDEN int stat(const char *path, struct stat *st) { return __xstat(STAT_VERSION, path, st); }
HIDDEN int lstat(const char *path, struct stat *st) { return __lxstat(STAT_VERSION, path, st); }
HIDDEN int fstat(int fd, struct stat *st) { return __fxstat(STAT_VERSION, fd, st); }
HIDDEN int fstatat(int dir, const char *path, struct stat *st, int flags)
{
    return __fxstatat(STAT_VERSION, dir, path, st, flags);
}

HIDDEN int close_range(unsigned first, unsigned last, int flags)
{
    return (int)syscall(SYS_close_range, first, last, flags);
}

/* The short name of a signal, "SEGV". */
HIDDEN const char *sigabbrev_np(int signal)
{
    static const struct {
        int signal;
        const char *name;
    } known[] = {
        { SIGABRT, "ABRT" }, { SIGALRM, "ALRM" }, { SIGBUS, "BUS" },   { SIGCHLD, "CHLD" }, { SIGFPE, "FPE" },
        { SIGHUP, "HUP" },   { SIGILL, "ILL" },   { SIGINT, "INT" },   { SIGKILL, "KILL" }, { SIGPIPE, "PIPE" },
        { SIGQUIT, "QUIT" }, { SIGSEGV, "SEGV" }, { SIGSYS, "SYS" },   { SIGTERM, "TERM" }, { SIGTRAP, "TRAP" },
        { SIGUSR1, "USR1" }, { SIGUSR2, "USR2" }, { SIGXCPU, "XCPU" },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].signal == signal) return known[i].name;
    return NULL;
}

#ifdef PROGRAM
/* From 2.34 on the loader runs the constructors of a program; before, the program hands a function that does. */
extern void (*const __preinit_array_start[])(int, char **, char **) HIDDEN;
extern void (*const __preinit_array_end[])(int, char **, char **) HIDDEN;
extern void (*const __init_array_start[])(int, char **, char **) HIDDEN;
extern void (*const __init_array_end[])(int, char **, char **) HIDDEN;

static void constructors(int argc, char **argv, char **env)
{
    for (void (*const *f)(int, char **, char **) = __preinit_array_start; f < __preinit_array_end; f++)
        (*f)(argc, argv, env);
    for (void (*const *f)(int, char **, char **) = __init_array_start; f < __init_array_end; f++) (*f)(argc, argv, env);
}

typedef int program(int argc, char **argv, char **env);
__asm__(".symver old_libc_start_main, __libc_start_main@GLIBC_2.2.5");
extern int old_libc_start_main(program *main, int argc, char **argv, void (*init)(int, char **, char **),
                               void (*fini)(void), void (*loader_fini)(void), void *stack_end);
HIDDEN int __libc_start_main(program *main, int argc, char **argv, void (*init)(int, char **, char **),
                             void (*fini)(void), void (*loader_fini)(void), void *stack_end)
{
    return old_libc_start_main(main, argc, argv, constructors, NULL, loader_fini, stack_end);
}
#endif
