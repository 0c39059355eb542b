#ifndef HA_BASE_ARENA_H
#define HA_BASE_ARENA_H

#include "harness/api/base.h"

/* Host memory with one owner: every block lives until ha_arena_destroy. Blocks are 64-byte
 * aligned, zeroed (poisoned when checks are on: 0xFF bytes, a NaN in every type), and have guard
 * words at both ends that ha_free and ha_arena_check verify (with AddressSanitizer, touching one
 * stops the program). Blocks of 2 MiB and more ask for huge pages, which the first thread to
 * write them places. Thread-safe. */

enum ha_tag { HA_TAG_KV, HA_TAG_META, HA_TAG_SCRATCH };
enum { HA_TAG_COUNT = 3 };

struct ha_arena;

enum ha_status ha_arena_create(struct ha_arena **arena, bool checks, struct ha_why *why);
/* With checks: what blocks hold from now on in place of 0xFF. */
void ha_arena_poison(struct ha_arena *arena, unsigned char byte);
/* NULL, with why filled in, when there is no memory; bytes = 0 gives a valid pointer */
void *ha_alloc(struct ha_arena *arena, size_t bytes, enum ha_tag tag, struct ha_why *why);
/* Grows a block to at least `bytes`, keeping its first `keep` bytes; may move it. ptr may be NULL. */
void *ha_grow(struct ha_arena *arena, void *ptr, size_t keep, size_t bytes, enum ha_tag tag, struct ha_why *why);
/* gives one block back early; ptr may be NULL */
void ha_free(struct ha_arena *arena, void *ptr);
/* HA_FAIL with which block was overrun, on which side; blocks already freed included */
enum ha_status ha_arena_check(struct ha_arena *arena, struct ha_why *why);
size_t ha_arena_peak_bytes(struct ha_arena *arena, enum ha_tag tag);
void ha_arena_destroy(struct ha_arena *arena);

/* What the system has, and what it can still give: MemAvailable, or what the control group leaves of it, to which pages
 * of files that are not in use count as free; 1 where nothing is left. 0: unknown. root: "", or for tests a folder with
 * proc and sys. */
struct ha_memory_size {
    uint64_t total_bytes, available_bytes;
};
struct ha_memory_size ha_memory_size(const char *root);
/* HABENCH_MEMORY=unchecked: unknown, on machines whose system gives more as it is asked for (what refuses names it). */
#define HA_MEMORY_UNCHECKED "HABENCH_MEMORY=unchecked"
uint64_t ha_memory_available(void);
/* HA_ERROR "needs X GiB of WHERE memory, has Y GiB: lower WHAT"; have 0: unknown. */
enum ha_status ha_memory_fits(const char *where, double need, uint64_t have, const char *lower, struct ha_why *why);

#endif
