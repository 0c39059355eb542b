#include "kernels/cuda/emulation/runtime_inside.h"

#include "harness/base/sanitizer.h"

/* The lock, and what ThreadSanitizer is told of it. A GPU orders only what the program orders: by the stream, by
 * events, by waiting. Here all calls and streams take turns at one lock, which orders nearly everything, and hides the
 * program's races. So the lock, and what is done under it, is kept from ThreadSanitizer, and it is told of the orders
 * that CUDA gives. Tests of the runtime itself want it the other way (ha_runtime_show_lock). */

struct ha_runtime ha_runtime = { .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER };

#if HA_TSAN
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
void __tsan_acquire(void *address);
void __tsan_release(void *address);

static bool shown; /* atomic */

void ha_runtime_show_lock(bool show) { __atomic_store_n(&shown, show, __ATOMIC_RELAXED); }

static void look_away(void)
{
    if (__atomic_load_n(&shown, __ATOMIC_RELAXED)) return;
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
}

static void look_again(void)
{
    if (__atomic_load_n(&shown, __ATOMIC_RELAXED)) return;
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

void ha_runtime_publish(const void *what)
{
    look_again();
    __tsan_release((void *)(uintptr_t)what);
    look_away();
}

void ha_runtime_see(const void *what)
{
    look_again();
    __tsan_acquire((void *)(uintptr_t)what);
    look_away();
}
#else
void ha_runtime_show_lock(bool show) { (void)show; }

static void look_away(void) {}

static void look_again(void) {}

void ha_runtime_publish(const void *what) { (void)what; }

void ha_runtime_see(const void *what) { (void)what; }
#endif

void ha_runtime_lock(void)
{
    look_away();
    pthread_mutex_lock(&ha_runtime.lock);
}

void ha_runtime_unlock(void)
{
    pthread_mutex_unlock(&ha_runtime.lock);
    look_again();
}
