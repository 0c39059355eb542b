/* Keeps launches of the emulated device for the interpreter of PTX: what a kernel was given, and what the emulation
 * made of it. Linked into the device (ptx.ninja), where it stands in for some of its functions by --wrap. Of each
 * kernel some launches that are small become files of the folder HA_PTX_RECORDS, which records.py reads. */

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/emulation/runtime_inside.h"
#include "kernels/cuda/operand.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANGES_MAX = 16384, BYTES_MAX = 1 << 23, THREADS_MAX = 16384, KERNELS_MAX = 1024 };

/* A function of the device, and what stands in for it. */
#define WRAP(type, name, ...)        \
    type __real_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__)

/* ---- what memory an operation may use: what is read, what is written before it is read, and a workspace, of which a
 * kernel reads what kernels before it in the same operation have written */

enum kind { READ, WRITTEN, WORKSPACE };
struct range {
    char *at;
    size_t bytes;
    enum kind kind;
};
static __thread struct range *noted; /* [RANGES_MAX]: too large for a library that is loaded late */
static __thread size_t noted_count;
static __thread bool launched; /* the next note is another operation's */

static void note(const void *at, size_t bytes, enum kind kind)
{
    if (launched) noted_count = 0;
    launched = false;
    if (!noted) noted = calloc(RANGES_MAX, sizeof *noted);
    if (bytes && noted && noted_count < RANGES_MAX)
        noted[noted_count++] = (struct range){ (char *)(uintptr_t)at, bytes, kind };
}

/* A sum is added to; codes and digests of other keys lie beside those that are made. */
WRAP(void, ha_cuda_takes, struct ha_cuda_check *c, const char *role, const void *ptr, size_t bytes, size_t read_bytes)
{
    const bool kept = !strcmp(role, "sum") || !strcmp(role, "codes") || !strcmp(role, "digests");
    note(ptr, bytes, read_bytes || kept ? READ : WRITTEN);
    __real_ha_cuda_takes(c, role, ptr, bytes, read_bytes);
}

/* By an index, any row of the allocation. */
WRAP(void, ha_cuda_takes_rows, struct ha_cuda_check *c, const char *role, const void *ptr, bool indexed, size_t bytes,
     size_t read_bytes)
{
    note(ptr, indexed ? ha_regions_room(&c->stream->device->memory.regions, ptr, NULL) : bytes, READ);
    __real_ha_cuda_takes_rows(c, role, ptr, indexed, bytes, read_bytes);
}

/* Of the workspace of products the first part is the library's (blas.c). */
enum { LIBRARY = 32 << 20 };
WRAP(void *, ha_cuda_workspace, struct ha_stream *stream, size_t bytes)
{
    const size_t first = bytes > LIBRARY ? LIBRARY : 0;
    char *ptr = __real_ha_cuda_workspace(stream, bytes);
    if (ptr) note(ptr + first, bytes - first, WORKSPACE);
    return ptr;
}

/* ---- a launch */

/* Of each kernel the smallest launches are kept: so many, unless HA_PTX_EACH says otherwise. */
enum { EACH = 2, EACH_MAX = 64 };
static struct known {
    const void *function;
    struct slot {
        size_t threads;
        char path[256]; /* or empty, until it has run */
    } slot[EACH_MAX];
} known[KERNELS_MAX];

/* Under the lock: the place of a launch that is to be kept, or NULL: there are as many that are hardly larger. */
static struct slot *slot_for(const void *function, size_t threads)
{
    const char *text = getenv("HA_PTX_EACH");
    const size_t each = text ? strtoul(text, NULL, 10) : EACH;
    struct known *k = known;
    while (k->function && k->function != function) k++;
    if (k == known + KERNELS_MAX - 1 || each > EACH_MAX) abort();
    k->function = function;
    struct slot *largest = k->slot;
    for (size_t i = 0; i < each; i++) {
        if (!k->slot[i].threads) largest = &k->slot[i];
        if (largest->threads && k->slot[i].threads > largest->threads) largest = &k->slot[i];
    }
    if (largest->threads && threads > largest->threads / 2) return NULL;
    largest->threads = threads;
    return largest;
}

/* In place of the kernel's name, by which the launch is known when it runs. It stays: a trace may ask for the name. */
struct ticket {
    char name[128];
    struct ticket *next;
    struct slot *slot;
    bool ran, first; /* first: of its operation */
    size_t args_bytes, count;
    struct range range[];
};
static struct ticket *tickets; /* under the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool place_fits(const void *at, size_t bytes)
{
    const enum ha_runtime_place place = ha_runtime_place(at, bytes);
    return place == HA_PLACE_DEVICE || place == HA_PLACE_HOST;
}

/* What the device enqueues for itself says nothing of its operands: a word wherever a pointer leads, or of accuracy.cu,
 * whose kernels stand in a table, a double. */
static void note_pointers(const char *name, const void *args, size_t bytes)
{
    const bool accuracy = !strncmp(name, "function[", 9);
    if (strncmp(name, "flag_", 5) && strncmp(name, "spin", 4) && !accuracy) return;
    launched = true;
    note(NULL, 0, READ);
    ha_runtime_lock();
    for (size_t at = sizeof(void *); at + sizeof(void *) <= bytes; at += sizeof(void *)) {
        void *p;
        memcpy(&p, (const char *)args + at, sizeof p);
        if (place_fits(p, 4)) note(p, accuracy ? sizeof(double) : sizeof(uint32_t), READ);
    }
    ha_runtime_unlock();
}

/* Where such a launch is to be kept, or NULL. */
static struct slot *slot_of(const void *function, const dim3 *grid, const dim3 *block)
{
    const size_t threads = (size_t)grid->x * grid->y * grid->z * block->x * block->y * block->z;
    size_t bytes = 0;
    for (size_t i = 0; i < noted_count; i++) bytes += noted[i].bytes;
    return getenv("HA_PTX_RECORDS") && bytes <= BYTES_MAX && threads <= THREADS_MAX ? slot_for(function, threads)
                                                                                    : NULL;
}

WRAP(cudaError_t, ha_emulated_launch, const struct ha_emulated_kernel *kernel, const void *args, size_t bytes,
     dim3 grid, dim3 block, cudaStream_t stream)
{
    struct ha_emulated_kernel named = *kernel;
    struct ticket *t = NULL;
    note_pointers(kernel->name, args, bytes);
    pthread_mutex_lock(&lock);
    struct slot *slot = slot_of(kernel->function, &grid, &block);
    if (slot) t = calloc(1, sizeof *t + noted_count * sizeof *noted);
    if (t) {
        t->slot = slot;
        snprintf(t->name, sizeof t->name, "%.*s", ha_emulated_name_length(kernel->name), kernel->name);
        t->first = !launched;
        t->args_bytes = bytes;
        t->count = noted_count;
        memcpy(t->range, noted, noted_count * sizeof *noted);
        t->next = tickets;
        tickets = t;
        named.name = t->name;
    }
    launched = true;
    pthread_mutex_unlock(&lock);
    return __real_ha_emulated_launch(&named, args, bytes, grid, block, stream);
}

/* Where it runs for the first time, and all of its memory is there. */
static struct ticket *ticket_of(const struct ha_emulated_kernel *kernel)
{
    pthread_mutex_lock(&lock);
    struct ticket *t = tickets;
    while (t && t->name != kernel->name) t = t->next;
    if (t && t->ran) t = NULL;
    if (t) t->ran = true;
    pthread_mutex_unlock(&lock);
    ha_runtime_lock();
    for (size_t i = 0; t && i < t->count; i++)
        if (!place_fits(t->range[i].at, t->range[i].bytes)) t = NULL;
    ha_runtime_unlock();
    return t;
}

enum { NOTHING = 0xFB }; /* of a workspace, what no kernel of the operation has written */

/* bytes of a range that are kept: of a workspace all to the last that was written */
static size_t kept(const struct range *r)
{
    size_t bytes = r->bytes;
    while (r->kind == WORKSPACE && bytes && (unsigned char)r->at[bytes - 1] == NOTHING) bytes--;
    return bytes;
}

/* All ranges, one after another. */
static char *contents(const struct ticket *t)
{
    size_t bytes = 0;
    for (size_t i = 0; i < t->count; i++) bytes += t->range[i].bytes;
    char *copy = malloc(bytes + 1), *to = copy;
    for (size_t i = 0; copy && i < t->count; to += t->range[i++].bytes) memcpy(to, t->range[i].at, t->range[i].bytes);
    return copy;
}

/* Lines of text: the kernel's place in the library; grid, block, dynamic shared memory, bytes of the arguments, ranges;
 * of each range where it is, how long, how much of it is kept, its kind. Then the arguments, and what was kept of the
 * ranges before and after. */
static void keep(const struct ticket *t, const struct ha_emulated_kernel *kernel, const void *args,
                 const unsigned grid[3], const unsigned block[3], const char *before)
{
    char path[256];
    Dl_info library;
    snprintf(path, sizeof path, "%s/XXXXXX", getenv("HA_PTX_RECORDS"));
    const int descriptor = mkstemp(path);
    FILE *file = descriptor < 0 || !dladdr(&tickets, &library) ? NULL : fdopen(descriptor, "w");
    if (!file) abort();
    fprintf(file, "%zu\n%u %u %u %u %u %u %zu %zu %zu\n",
            (size_t)((uintptr_t)kernel->function - (uintptr_t)library.dli_fbase), grid[0], grid[1], grid[2], block[0],
            block[1], block[2], kernel->shared_bytes, t->args_bytes, t->count);
    for (size_t i = 0; i < t->count; i++) {
        const struct range *r = &t->range[i];
        fprintf(file, "%zu %zu %zu %d\n", (size_t)(uintptr_t)r->at, r->bytes, kept(r), (int)r->kind);
    }
    fwrite(args, 1, t->args_bytes, file);
    for (size_t i = 0; i < t->count; before += t->range[i++].bytes) fwrite(before, 1, kept(&t->range[i]), file);
    for (size_t i = 0; i < t->count; i++) fwrite(t->range[i].at, 1, kept(&t->range[i]), file);
    if (fclose(file) != 0) abort();
    pthread_mutex_lock(&lock);
    if (*t->slot->path) unlink(t->slot->path);
    snprintf(t->slot->path, sizeof t->slot->path, "%s", path);
    pthread_mutex_unlock(&lock);
}

/* Whether all ranges hold what they did. */
static bool is_unchanged(const struct ticket *t, const char *before)
{
    size_t i = 0;
    for (; i < t->count && memcmp(before, t->range[i].at, t->range[i].bytes) == 0; i++) before += t->range[i].bytes;
    return i == t->count;
}

/* A wait whose flag was raised meanwhile is not kept: again it would last for ever. */
WRAP(void, ha_emulated_run, const struct ha_emulated_kernel *kernel, const void *args, const unsigned grid[3],
     const unsigned block[3])
{
    const struct ticket *t = ticket_of(kernel);
    for (size_t i = 0; t && t->first && i < t->count; i++)
        if (t->range[i].kind == WORKSPACE) memset(t->range[i].at, NOTHING, t->range[i].bytes);
    char *before = t ? contents(t) : NULL;
    __real_ha_emulated_run(kernel, args, grid, block);
    if (before && (strncmp(t->name, "flag_wait", 9) || is_unchanged(t, before)))
        keep(t, kernel, args, grid, block, before);
    free(before);
}
