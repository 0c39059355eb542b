/* What runs on the emulated device, recorded by the library that stands in for CUPTI: how the tests see that operations
 * enqueue what they say. Names are made as nvcc makes them. */

#include "kernels/cuda/emulation/runtime.h"
#include "kernels/cuda/fake_cupti.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct fake_cupti *recorder;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the graph's number, and of the names */

/* Records point to names: they stay. */
static const char *name_of(const char *kernel)
{
    static char *name[256];
    char text[256];
    if (!kernel) return "ampere_sgemm_128x64_tn";
    const int length = (int)strcspn(kernel, "<,");
    snprintf(text, sizeof text, "_ZN46_GLOBAL__N__59d5438a_13_attend_fma_cu_f0126e9d%d%.*sILi1EEEv4args", length,
             length, kernel);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        if (!name[i]) name[i] = strdup(text);
        if (!name[i] || !strcmp(name[i], text)) return name[i];
    }
    return NULL;
}

static uint32_t number_of(const void *handle) { return (uint32_t)((uintptr_t)handle - 0x1000); }

static void record(const struct ha_emulated_ran *r)
{
    const uint32_t stream = number_of(r->stream);
    const unsigned kind = r->from_host && !r->to_host ? 1 : r->to_host && !r->from_host ? 2 : 8;
    pthread_mutex_lock(&lock);
    recorder->graph = r->graph ? number_of(r->graph) : 0;
    if (r->what == HA_EMULATED_KERNEL) recorder->kernel(name_of(r->kernel), stream, r->begin_ns, r->end_ns);
    if (r->what == HA_EMULATED_COPY) recorder->copy(kind, stream, r->bytes, r->begin_ns, r->end_ns);
    if (r->what == HA_EMULATED_SET) recorder->set(stream, r->bytes, r->begin_ns, r->end_ns);
    pthread_mutex_unlock(&lock);
}

bool ha_emulated_record(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    recorder = library ? dlsym(library, FAKE_CUPTI_SYMBOL) : NULL;
    if (recorder) ha_emulated_tell(record);
    return recorder;
}
