/* Memory that is handed out, and windows into it. */

#include "suites/device/stage.h"

#include "harness/base/sanitizer.h"
#include "harness/base/why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- alloc ------------------------------------------------------------------------------------------------------- */

static const size_t sizes[] = { 1, 3, 63, 64, 65, 200, 4095, 4096, 4097, 65536, 65537, 300000, 1 << 20, (2 << 20) + 1 };
enum { SIZES = sizeof sizes / sizeof *sizes, KINDS = 3 };

static enum ha_status aligned(struct ha_op_stage *s, const struct ha_op_block *b)
{
    s->cases++;
    if (!b->at)
        return ha_op_wrong(s, "mem_alloc of %zu bytes of %s memory gave NULL", b->bytes, ha_op_place_name(b->place));
    if ((uintptr_t)b->at % 64 == 0) return HA_OK;
    return ha_op_wrong(s, "mem_alloc of %zu bytes of %s memory gave %p, which is not aligned to 64 bytes", b->bytes,
                       ha_op_place_name(b->place), (void *)b->at);
}

static enum ha_status apart(struct ha_op_stage *s, const struct ha_op_block *blocks)
{
    for (const struct ha_op_block *a = blocks; a; a = a->next)
        for (const struct ha_op_block *b = a->next; b; b = b->next)
            if ((uintptr_t)a->at < (uintptr_t)b->at + b->bytes && (uintptr_t)b->at < (uintptr_t)a->at + a->bytes)
                return ha_op_wrong(s, "mem_alloc: %zu bytes of %s memory at %p and %zu of %s memory at %p overlap",
                                   a->bytes, ha_op_place_name(a->place), (void *)a->at, b->bytes,
                                   ha_op_place_name(b->place), (void *)b->at);
    return HA_OK;
}

/* Each keeps its own bytes while the others are written. */
static enum ha_status keep(struct ha_op_stage *s)
{
    for (struct ha_op_block *b = s->blocks; b; b = b->next) HA_TRY(ha_op_fill(s, b, 0, b->bytes));
    for (const struct ha_op_block *b = s->blocks; b; b = b->next)
        HA_TRY(ha_op_judge(s, b, 0, b->bytes, "mem_alloc: %zu bytes of %s memory, after others were written", b->bytes,
                           ha_op_place_name(b->place)));
    return HA_OK;
}

/* A refusal has words, and ends nothing. */
static enum ha_status refused(struct ha_op_stage *s, enum ha_op_place place, size_t bytes, const struct ha_why *why)
{
    s->cases++;
    if (!*why->text)
        return ha_op_wrong(s, "mem_alloc refused %zu bytes of %s memory and does not say why", bytes,
                           ha_op_place_name(place));
    if (s->api->failure(s->device))
        return ha_op_wrong(s, "mem_alloc refused %zu bytes of %s memory, and the device failed with it", bytes,
                           ha_op_place_name(place));
    return HA_OK;
}

static enum ha_status too_much(struct ha_op_stage *s, enum ha_op_place place, size_t bytes)
{
    struct ha_why why = { "" };
    void *at = NULL;
    if (s->api->mem_alloc(s->device, (enum ha_memory)place, bytes, &at, &why) != HA_OK)
        return refused(s, place, bytes, &why);
    s->api->mem_free(s->device, (enum ha_memory)place, at);
    return ha_op_wrong(s, "mem_alloc of %zu bytes of %s memory, which the device does not have, succeeded", bytes,
                       ha_op_place_name(place));
}

/* ---- all there is ------------------------------------------------------------------------------------------------ */

enum { BLOCKS_MOST = 1024, EDGE = 64 };
static const size_t largest = (size_t)8 << 30, least = 64 << 10, room = 64 << 20;

/* Blocks until the least is refused. */
struct all {
    struct ha_op_block block[BLOCKS_MOST]; /* without images */
    size_t count, bytes;
};

/* Memory that is this process's has an end that is near: so much more than it has now. */
static struct rlimit near_end(const struct rlimit *now)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%lu", &pages) != 1) pages = 0;
    if (f) fclose(f);
    struct rlimit end = *now;
    const rlim_t at = pages * (rlim_t)sysconf(_SC_PAGESIZE) + room;
    if (pages && at < end.rlim_cur) end.rlim_cur = at;
    return end;
}

static enum ha_status take(struct ha_op_stage *s, struct all *all, enum ha_op_place place, size_t bytes, bool *given,
                           const struct rlimit *now, const struct rlimit *end)
{
    struct ha_why why = { "" };
    void *at = NULL;
    setrlimit(RLIMIT_AS, end);
    *given = s->api->mem_alloc(s->device, (enum ha_memory)place, bytes, &at, &why) == HA_OK;
    setrlimit(RLIMIT_AS, now);
    if (!*given) return refused(s, place, bytes, &why);
    const struct ha_op_block b = { .place = place, .bytes = bytes, .at = at };
    all->block[all->count++] = b;
    all->bytes += bytes;
    return aligned(s, &b);
}

/* Its first and last bytes are put there, or are there. */
static enum ha_status edges(struct ha_op_stage *s, const struct all *all, size_t i, bool put)
{
    const struct ha_op_block *b = &all->block[i];
    const size_t at[2] = { 0, b->bytes - EDGE };
    for (size_t e = 0; e < 2; e++) {
        char want[EDGE], got[EDGE];
        struct ha_op_block here = { .place = b->place, .bytes = EDGE, .at = b->at + at[e], .image = want };
        for (size_t k = 0; k < EDGE; k++) want[k] = (char)(i * 7 + k + 31 * e);
        if (put) HA_TRY(ha_op_put(s, &here, 0, EDGE));
        else HA_TRY(ha_op_get(s, &here, 0, EDGE, got));
        if (!put && memcmp(got, want, EDGE) != 0)
            return ha_op_wrong(s, "mem_alloc: block %zu of %zu that are all of %s memory does not keep its bytes", i,
                               all->count, ha_op_place_name(b->place));
    }
    return HA_OK;
}

static enum ha_status take_all(struct ha_op_stage *s, struct all *all, enum ha_op_place place, uint64_t most,
                               const struct rlimit *now, const struct rlimit *end)
{
    for (size_t bytes = largest; bytes >= least && all->count < BLOCKS_MOST;) {
        bool given;
        HA_TRY(take(s, all, place, bytes, &given, now, end));
        if (!given) bytes /= 2;
    }
    if (all->count == BLOCKS_MOST || (most && all->bytes > most))
        return ha_op_wrong(s, "mem_alloc: %zu blocks of %s memory, %zu bytes in all, and there is no end", all->count,
                           ha_op_place_name(place), all->bytes);
    for (size_t i = 0; i < all->count; i++) all->block[i].next = i + 1 < all->count ? &all->block[i + 1] : NULL;
    HA_TRY(apart(s, all->count ? all->block : NULL));
    for (size_t i = 0; i < all->count; i++) HA_TRY(edges(s, all, i, true));
    for (size_t i = 0; i < all->count; i++) HA_TRY(edges(s, all, i, false));
    return HA_OK;
}

/* Twice: what is given back can be had again. A sanitizer's own memory must not end. */
static enum ha_status exhaust(struct ha_op_stage *s, enum ha_op_place place, uint64_t most)
{
    static struct all all;
    struct rlimit now;
    size_t first = 0;
    if (HA_SANITIZED || getrlimit(RLIMIT_AS, &now) != 0) return HA_OK;
    const struct rlimit end = near_end(&now);
    for (int turn = 0; turn < 2; turn++) {
        all.count = all.bytes = 0;
        const enum ha_status status = take_all(s, &all, place, most, &now, &end);
        if (status != HA_OK) return status; /* a device that lies about its memory is not asked to take it back */
        for (size_t i = 0; i < all.count; i++) s->api->mem_free(s->device, (enum ha_memory)place, all.block[i].at);
        if (all.bytes < first - first / 4)
            return ha_op_wrong(s, "mem_alloc: %zu bytes of %s memory, and %zu after all was given back", first,
                               ha_op_place_name(place), all.bytes);
        first = all.bytes;
    }
    return HA_OK;
}

/* ---- alloc ------------------------------------------------------------------------------------------------------- */

static void turn_round(struct ha_op_stage *s)
{
    struct ha_op_block *turned = NULL;
    for (struct ha_op_block *b = s->blocks, *next; b; b = next) {
        next = b->next;
        b->next = turned;
        turned = b;
    }
    s->blocks = turned;
}

static enum ha_status blocks(struct ha_op_stage *s, enum ha_op_place place, size_t count, size_t bytes)
{
    for (size_t i = 0; i < count; i++) {
        const struct ha_op_block *b = ha_op_block(s, place, bytes);
        if (!b) return HA_ERROR;
        HA_TRY(aligned(s, b));
    }
    return HA_OK;
}

static enum ha_status alloc_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    const size_t bytes = c->size ? c->size : 1;
    for (int turn = 0; turn < 2; turn++) {
        HA_TRY(blocks(s, (enum ha_op_place)c->dst, c->pieces ? c->pieces : 1, bytes));
        HA_TRY(apart(s, s->blocks));
        HA_TRY(keep(s));
        if (turn == 0) turn_round(s);
        ha_op_clear(s);
    }
    return HA_OK;
}
static const char *unfit_alloc(const struct ha_op_case *c)
{
    return c->dst == HA_OP_PAGEABLE ? "pageable memory is no device's" : NULL;
}

/* Many small ones at once, of each kind. */
static enum ha_status many_blocks(struct ha_op_stage *s)
{
    enum { MANY = 600, SMALL = 200 };
    for (size_t i = 0; i < MANY * KINDS && s->most >= 1 << 20; i++)
        HA_TRY(blocks(s, (enum ha_op_place)(i % KINDS), 1, 1 + ha_op_draw(s, SMALL)));
    HA_TRY(apart(s, s->blocks));
    HA_TRY(keep(s));
    ha_op_clear(s);
    return HA_OK;
}

static enum ha_status judge_alloc(struct ha_op_stage *s)
{
    static const enum ha_op_place places[KINDS] = { HA_OP_DEVICE, HA_OP_PINNED, HA_OP_MAPPED };
    struct ha_device_info info;
    memset(&info, 0, sizeof info);
    s->api->info(s->device, &info);
    s->cases++;
    if (info.memory_free_bytes > info.memory_bytes)
        return ha_op_wrong(s, "info: of %llu bytes of memory %llu are free", (unsigned long long)info.memory_bytes,
                           (unsigned long long)info.memory_free_bytes);
    HA_TRY(many_blocks(s));
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < SIZES; i++)
            for (size_t k = 0; k < KINDS; k++)
                if (sizes[i] <= s->most) HA_TRY(blocks(s, places[k], 1, sizes[i]));
        HA_TRY(apart(s, s->blocks));
        HA_TRY(keep(s));
        /* in the order of their making or the other way round: what is free is used again */
        if (round == 1) turn_round(s);
        ha_op_clear(s);
        for (size_t k = 0; k < KINDS; k++) {
            void *empty = NULL;
            HA_OP(s, mem_alloc, s->device, (enum ha_memory)places[k], 0, &empty, s->why);
            s->api->mem_free(s->device, (enum ha_memory)places[k], empty);
            HA_TRY(too_much(s, places[k], SIZE_MAX / 4));
            for (size_t less = 1; less && !round; less *= 2) /* with what a device adds it would be next to nothing */
                if (less <= 1 << 20) HA_TRY(too_much(s, places[k], SIZE_MAX - less + 1));
            if (round == 1) HA_TRY(exhaust(s, places[k], k ? 0 : info.memory_bytes));
        }
        if (info.memory_bytes) HA_TRY(too_much(s, HA_OP_DEVICE, (size_t)info.memory_bytes * 4));
    }
    return HA_OK;
}
const struct ha_op ha_op_alloc = {
    .name = "alloc",
    .doc = "aligned, apart, its own bytes, to the last; too much is refused with words",
    .judge = judge_alloc,
    .keys = "dst size pieces",
    .once = alloc_case,
    .unfit = unfit_alloc,
};

/* ---- map_device -------------------------------------------------------------------------------------------------- */

static enum ha_status map_once(struct ha_op_stage *s, size_t first, size_t bytes)
{
    struct ha_op_block *b = ha_op_block(s, HA_OP_DEVICE, first + bytes + 64);
    struct ha_why why = { "" };
    void *window = NULL;
    if (!b) return HA_ERROR;
    HA_TRY(ha_op_fill(s, b, 0, b->bytes));
    const enum ha_status status = s->api->map_device(s->device, b->at + first, bytes, &window, &why);
    if (status != HA_OK)
        return ha_why(s->why, status == HA_WAIVED ? HA_WAIVED : HA_ERROR, "map_device: %.400s",
                      *why.text ? why.text : "the device does not say why");
    for (size_t at = 0; at < bytes; at++) b->image[first + at] ^= 0x3c;
    memcpy(window, b->image + first, bytes);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    const enum ha_status judged = ha_op_judge(s, b, 0, b->bytes, "%zu bytes stored through map_device from byte %zu on",
                                              bytes, first);
    s->api->unmap_device(s->device, window);
    HA_TRY(judged);
    HA_TRY(ha_op_judge(s, b, 0, b->bytes, "%zu bytes stored through map_device, after unmap_device", bytes));
    ha_op_clear(s);
    return HA_OK;
}

/* Two windows at a time, of one block or of two; the first one, or the second, is closed first. */
static enum ha_status map_two(struct ha_op_stage *s)
{
    enum { BYTES = 8192, FAR = 131072 };
    for (size_t turn = 0; turn < 4; turn++) {
        struct ha_op_block *b[2] = { ha_op_block(s, HA_OP_DEVICE, FAR + BYTES), NULL };
        void *window[2] = { NULL, NULL };
        b[1] = turn / 2 ? b[0] : ha_op_block(s, HA_OP_DEVICE, FAR + BYTES);
        if (!b[0] || !b[1]) return HA_ERROR;
        for (size_t i = 0; i < 2; i++) HA_TRY(ha_op_fill(s, b[i], 0, b[i]->bytes));
        for (size_t i = 0; i < 2; i++)
            HA_TRY(s->api->map_device(s->device, b[i]->at + i * FAR, BYTES, &window[i], s->why));
        for (size_t i = 0; i < 2; i++) {
            const size_t k = (turn + i) % 2;
            for (size_t at = 0; at < BYTES; at++) b[k]->image[k * FAR + at] ^= 0x3c;
            memcpy(window[k], b[k]->image + k * FAR, BYTES);
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
            HA_TRY(ha_op_judge(s, b[k], 0, b[k]->bytes,
                               "what was stored through window %zu of two, with %zu of them open", k + 1, 2 - i));
            s->api->unmap_device(s->device, window[k]);
        }
        ha_op_clear(s);
    }
    return HA_OK;
}

static enum ha_status map_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    return map_once(s, c->dst_at / 64 * 64, c->size ? c->size : 1);
}

static enum ha_status judge_map_device(struct ha_op_stage *s)
{
    static const size_t windows[][2] = { { 0, 64 },         { 64, 4096 },    { 4096, 65536 },
                                         { 65536, 100000 }, { 70016, 5000 }, { (1 << 20) + 64, 4096 } };
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) HA_TRY(map_once(s, windows[i][0], windows[i][1]));
    return map_two(s);
}
const struct ha_op ha_op_map_device = {
    .name = "map_device",
    .doc = "stores of the CPU arrive in device memory",
    .needs = { HA_OP_ENTRY(map_device), HA_OP_ENTRY(unmap_device) },
    .judge = judge_map_device,
    .keys = "size dst_at",
    .once = map_case,
};
