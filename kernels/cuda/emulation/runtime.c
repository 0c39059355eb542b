#include "kernels/cuda/emulation/runtime_inside.h"

#include <string.h>
#include <unistd.h>

/* Calls: what each needs before it begins, which faults it is given, and the thread's last error. */

struct call {
    const char *name;
    enum ha_runtime_needs needs;
    uint64_t count;
};
#define ROW(name, needs) { #name, needs, 0 },
static struct call calls[HA_CALLS] = { HA_EMULATED_CALLS(ROW) };

struct fault {
    enum ha_runtime_call call;
    uint64_t at; /* the call's count then; 0: no fault */
    cudaError_t error;
    enum ha_emulated_fault how;
};
static struct fault faults[HA_EMULATED_FAULTS_MAX];
static uint64_t lose_in; /* kernels; 0: never */

static _Thread_local struct {
    cudaError_t last;
    bool in_host_fn;
} own;

static const struct {
    cudaError_t number;
    const char *name, *text;
} errors[] = {
#define ERROR(name, number, text) { name, #name, text },
    HA_EMULATED_ERRORS(ERROR)
};
enum { ERRORS = sizeof errors / sizeof *errors };

/* All below this line is under the lock where it does not say otherwise. */

static cudaError_t fault_of(enum ha_runtime_call call)
{
    uint64_t count = ++calls[call].count;
    for (size_t i = 0; i < HA_EMULATED_FAULTS_MAX; i++) {
        struct fault *f = &faults[i];
        if (!f->at || f->call != call || count < f->at) continue;
        if (f->how == HA_EMULATED_STICKY) ha_runtime_lose_now(f->error);
        f->at = 0;
        return f->error;
    }
    return cudaSuccess;
}

static cudaError_t device_absent(void)
{
    const struct ha_emulated_settings *s = &ha_runtime.settings;
    if (s->devices < 0 || s->driver_version / 1000 < s->runtime_version / 1000) return cudaErrorInsufficientDriver;
    return s->devices ? cudaSuccess : cudaErrorNoDevice;
}

/* without the lock */
cudaError_t ha_runtime_enter(enum ha_runtime_call call)
{
    bool readable = ha_runtime_environment();
    ha_runtime_lock();
    const struct call *c = &calls[call];
    if (!readable) return cudaErrorInitializationError;
    if (own.in_host_fn) return cudaErrorNotPermitted;
    cudaError_t error = c->needs >= HA_NEEDS_DEVICE ? device_absent() : cudaSuccess;
    if (!error && c->needs == HA_NEEDS_CONTEXT) error = ha_runtime_lost();
    return error ? error : fault_of(call);
}

cudaError_t ha_runtime_leave(cudaError_t error)
{
    ha_runtime_unlock();
    if (error) own.last = error;
    return error;
}

void ha_runtime_in_host_fn(bool in) { own.in_host_fn = in; }

cudaError_t ha_runtime_lost(void) { return __atomic_load_n(&ha_runtime.lost, __ATOMIC_ACQUIRE); }

void ha_runtime_lose_now(cudaError_t error)
{
    __atomic_store_n(&ha_runtime.lost, error, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&ha_runtime.moved);
}

bool ha_runtime_kernel_loses(void) { return lose_in && --lose_in == 0; }

bool ha_runtime_may_release(cudaError_t error) { return !error || error == ha_runtime_lost(); }

/* ---- from here on without the lock: the API's own functions about errors, and the knobs */

cudaError_t cudaGetLastError(void)
{
    cudaError_t lost = ha_runtime_lost(), last = lost ? lost : own.last;
    own.last = cudaSuccess;
    return last;
}

const char *cudaGetErrorName(cudaError_t error)
{
    for (unsigned i = 0; i < ERRORS; i++)
        if (errors[i].number == error) return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (unsigned i = 0; i < ERRORS; i++)
        if (errors[i].number == error) return errors[i].text;
    return "unrecognized error code";
}

void ha_emulated_set(const struct ha_emulated_settings *settings)
{
    (void)ha_runtime_environment();
    const struct ha_emulated_settings wanted = settings ? *settings : ha_emulated_defaults();
    ha_runtime_lock();
    ha_runtime.settings = wanted;
    memset(faults, 0, sizeof faults);
    lose_in = 0;
    ha_runtime_unlock();
    own.last = cudaSuccess;
}

/* HA_CALLS: unknown */
static enum ha_runtime_call call_named(const char *name)
{
    for (unsigned i = 0; i < HA_CALLS; i++)
        if (strcmp(calls[i].name, name) == 0) return (enum ha_runtime_call)i;
    return HA_CALLS;
}

bool ha_emulated_fail(const char *function, unsigned nth, cudaError_t error, enum ha_emulated_fault how)
{
    enum ha_runtime_call call = call_named(function);
    if (call == HA_CALLS || !nth || !error) return false;
    bool room = false;
    ha_runtime_lock();
    for (size_t i = 0; i < HA_EMULATED_FAULTS_MAX && !room; i++) {
        if (faults[i].at) continue;
        faults[i] = (struct fault){ call, calls[call].count + nth, error, how };
        room = true;
    }
    ha_runtime_unlock();
    return room;
}

void ha_emulated_lose(uint64_t nth)
{
    ha_runtime_lock();
    lose_in = nth;
    ha_runtime_unlock();
}

uint64_t ha_emulated_calls(const char *function)
{
    enum ha_runtime_call call = call_named(function);
    if (call == HA_CALLS) return 0;
    ha_runtime_lock();
    uint64_t count = calls[call].count;
    ha_runtime_unlock();
    return count;
}

/* At the end of the program, or when the plugin is unloaded: no thread may run on in code that is gone. Memory that the
 * program has not freed is left, for leak checkers to see. */
__attribute__((destructor)) static void unload(void)
{
    ha_runtime_lock();
    bool mine = true;
    for (const struct ha_runtime_stream *s = ha_runtime_streams; s; s = s->next)
        mine = mine && s->process == getpid() && !pthread_equal(s->thread, pthread_self());
    if (mine) {
        ha_runtime_lose_now(cudaErrorCudartUnloading);
        ha_runtime_streams_finish();
    }
    ha_runtime_regions_free();
    ha_runtime_handles_free();
    ha_runtime_unlock();
}
