#define _GNU_SOURCE /* RTLD_DI_SERINFO */
#include "harness/base/blas.h"

#include "harness/api/kernels.h"
#include "harness/base/cpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct ha_blas blas;
static bool found;
static pthread_once_t loaded = PTHREAD_ONCE_INIT, looked_for = PTHREAD_ONCE_INIT;

/* OpenBLAS has LAPACK's functions, too; others keep them in a library of their own. */
static const char *const usual[] = { "libopenblas.so.0", "libblas.so.3" }, *const lapack = "liblapack.so.3";

static const char *named(void)
{
    const char *name = getenv("HABENCH_BLAS");
    return name && *name ? name : NULL;
}

/* what a pointer to an object is, C does not turn into one to a function */
static void look_up(void *library, const char *name, void *fn)
{
    void *symbol = dlsym(library, name);
    memcpy(fn, &symbol, sizeof symbol);
}

static const char core_type[] = "OPENBLAS_CORETYPE";

/* OpenBLAS takes its kernels by the CPU's model, and of models that are newer than itself those of the Pentium 4, at a
 * third of the speed. The kernels that this CPU's instructions ask for; NULL: it has chosen well, or the user has. */
static const char *better_kernels(void *library)
{
    char *(*chosen)(void);
    look_up(library, "openblas_get_corename", &chosen);
    if (!chosen || getenv(core_type) || strcmp(chosen(), "Prescott") != 0) return NULL;
    const unsigned cpu = ha_cpu_bits();
    return cpu & HA_CPU_AVX512 ? "SkylakeX" : cpu & HA_CPU_AVX2 ? "Haswell" : NULL;
}

static void *open_library(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *kernels = library ? better_kernels(library) : NULL;
    if (!kernels) return library;
    dlclose(library);
    setenv(core_type, kernels, 1);
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL); /* it looks at the CPU again */
    unsetenv(core_type);
    return library;
}

/* What is still missing, from this library; one that has none of it is closed. */
static void try_library(const char *name)
{
    void (*set_threads)(int);
    bool used = false;
    void *library = open_library(name);
    if (!library) return;
    if (!blas.sgemm) {
        look_up(library, "cblas_sgemm", &blas.sgemm);
        used |= blas.sgemm != NULL;
    }
    if (!blas.dgesdd) {
        look_up(library, "dgesdd_", &blas.dgesdd);
        used |= blas.dgesdd != NULL;
    }
    look_up(library, "openblas_set_num_threads", &set_threads);
    if (used && set_threads) set_threads(1);
    if (!used) dlclose(library);
}

static void load(void)
{
    static const char threads[] = "OPENBLAS_NUM_THREADS";
    /* A stream is one thread: more would take the CPU side's cores. OpenBLAS is told so before it is loaded, because it
     * starts its threads then, and one that could not start those waits for them at exit. */
    const char *set = getenv(threads);
    char *before = set ? strdup(set) : NULL;
    setenv(threads, "1", 1);
    if (named()) try_library(named());
    else {
        for (size_t i = 0; i < sizeof usual / sizeof *usual && !blas.sgemm; i++) try_library(usual[i]);
        if (!blas.dgesdd) try_library(lapack);
    }
    if (before) setenv(threads, before, 1);
    else unsetenv(threads);
    free(before);
    if (named()) {
        snprintf(blas.no_blas, sizeof blas.no_blas, "no CBLAS in HABENCH_BLAS=%.100s", named());
        snprintf(blas.no_lapack, sizeof blas.no_lapack, "no LAPACK in HABENCH_BLAS=%.100s", named());
        return;
    }
    snprintf(blas.no_blas, sizeof blas.no_blas,
             "no BLAS: neither libopenblas.so.0 nor libblas.so.3; install libopenblas0-pthread");
    snprintf(blas.no_lapack, sizeof blas.no_lapack,
             "no LAPACK: neither libopenblas.so.0 nor liblapack.so.3 has dgesdd; install libopenblas0-pthread");
}

const struct ha_blas *ha_blas(void)
{
    pthread_once(&loaded, load);
    return &blas;
}

/* One of the usual libraries lies where the loader looks. */
static void look_for(void)
{
    Dl_serinfo head, *paths = NULL;
    void *self = named() ? NULL : dlopen(NULL, RTLD_LAZY);
    if (self && dlinfo(self, RTLD_DI_SERINFOSIZE, &head) == 0 && (paths = calloc(1, head.dls_size))
        && dlinfo(self, RTLD_DI_SERINFOSIZE, paths) == 0 && dlinfo(self, RTLD_DI_SERINFO, paths) == 0)
        for (unsigned i = 0; i < paths->dls_cnt * 2 && !found; i++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", paths->dls_serpath[i / 2].dls_name, usual[i % 2]);
            found = access(path, R_OK) == 0;
        }
    free(paths);
    if (self) dlclose(self);
}

const char *ha_blas_absent(void)
{
    pthread_once(&looked_for, look_for);
    return found || ha_blas()->sgemm ? NULL : blas.no_blas;
}
