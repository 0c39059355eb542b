#ifndef HA_PAIRED_H
#define HA_PAIRED_H

/* What the machine reads from memory right now: taken next to every sample of a kernel, because two threads' ceiling
 * changes with where a hypervisor puts their cores, also within a run. */

#include "harness/api/kernels.h"
#include "harness/base/pool.h"

struct ha_paired;

struct ha_paired_sample {
    double GBps;   /* all workers of the pool together */
    double GBps_1; /* the caller alone */
    double scale;  /* GBps / (threads x GBps_1); of one thread 1 */
};

/* What readings read: filled once, before processes are forked that share it, so that none of them pays for that. Parts
 * are read in turns by all of them together: before a part is read again, others of twice the last cache have been (in
 * a build with a sanitizer, whose figures mean nothing, one other part). */
struct ha_paired_memory;
/* A part has some 64 MiB, and at least 8 MiB for each worker; one thread reads half as much. Threads of this call's own
 * place the pages, and end with it. HA_WAIVED: it would be more than a quarter of the memory that is left. */
enum ha_status ha_paired_memory_create(struct ha_paired_memory **memory, struct ha_why *why);
void ha_paired_memory_destroy(struct ha_paired_memory *memory); /* NULL: nothing */

/* A buffer on huge pages that the workers of this pool fill, each what it will read: at least 256 MiB, 16 MiB for each
 * worker and, but in a build with a sanitizer, whose figures mean nothing, four times the last cache. Uses
 * kernels->read or read_streams, whichever is faster (fastest_read.h). The pool outlives it. */
enum ha_status ha_paired_create(struct ha_paired **paired, struct ha_pool *pool, const struct ha_kernels *kernels,
                                struct ha_why *why);
/* The same on memory that is there, which outlives it; of a pool with one thread for each core. */
enum ha_status ha_paired_create_on(struct ha_paired **paired, struct ha_pool *pool, const struct ha_kernels *kernels,
                                   struct ha_paired_memory *memory, struct ha_why *why);
/* Reads at least 128 MiB, or a part of the memory that it was given, others than the last reading; not while the pool
 * runs. With several workers, one reading by all and one by the caller alone. */
void ha_paired_read(struct ha_paired *paired, struct ha_paired_sample *sample);
/* One reading, GB/s. */
double ha_paired_read_all(struct ha_paired *paired);
double ha_paired_read_alone(struct ha_paired *paired);
void ha_paired_destroy(struct ha_paired *paired); /* NULL: nothing */

/* Of so many bytes, what this program measures on: all of them, or in a rehearsal, whose figures mean nothing, a part.
 * harness/program/rehearsal.c is linked into the program that tests call, and nowhere else. */
size_t ha_measure_share(size_t bytes);

#endif
