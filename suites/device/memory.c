/* Memory that is handed out, and windows into it. */

#include "suites/device/stage.h"

#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

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

static enum ha_status apart(struct ha_op_stage *s)
{
    for (const struct ha_op_block *a = s->blocks; a; a = a->next)
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

/* More than there is: refused, with words, and nothing is lost. */
static enum ha_status too_much(struct ha_op_stage *s, enum ha_op_place place, size_t bytes)
{
    struct ha_why why = { "" };
    void *at = NULL;
    s->cases++;
    const enum ha_status status = s->api->mem_alloc(s->device, (enum ha_memory)place, bytes, &at, &why);
    if (status == HA_OK) s->api->mem_free(s->device, (enum ha_memory)place, at);
    if (status == HA_OK)
        return ha_op_wrong(s, "mem_alloc of %zu bytes of %s memory, which the device does not have, succeeded", bytes,
                           ha_op_place_name(place));
    if (!*why.text)
        return ha_op_wrong(s, "mem_alloc refused %zu bytes of %s memory and does not say why", bytes,
                           ha_op_place_name(place));
    if (s->api->failure(s->device))
        return ha_op_wrong(s, "mem_alloc refused %zu bytes of %s memory, and the device failed with it", bytes,
                           ha_op_place_name(place));
    return HA_OK;
}

static enum ha_status judge_alloc(struct ha_op_stage *s)
{
    static const enum ha_op_place places[KINDS] = { HA_OP_DEVICE, HA_OP_PINNED, HA_OP_MAPPED };
    struct ha_device_info info;
    memset(&info, 0, sizeof info);
    s->api->info(s->device, &info);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < SIZES; i++)
            for (size_t k = 0; k < KINDS; k++)
                if (sizes[i] <= s->most) {
                    const struct ha_op_block *b = ha_op_block(s, places[k], sizes[i]);
                    if (!b) return HA_ERROR;
                    HA_TRY(aligned(s, b));
                }
        HA_TRY(apart(s));
        HA_TRY(keep(s));
        /* in the order of their making or the other way round: what is free is used again */
        if (round == 1) {
            struct ha_op_block *turned = NULL;
            for (struct ha_op_block *b = s->blocks, *next; b; b = next) {
                next = b->next;
                b->next = turned;
                turned = b;
            }
            s->blocks = turned;
        }
        ha_op_clear(s);
        for (size_t k = 0; k < KINDS; k++) {
            void *empty = NULL;
            HA_OP(s, mem_alloc, s->device, (enum ha_memory)places[k], 0, &empty, s->why);
            s->api->mem_free(s->device, (enum ha_memory)places[k], empty);
            HA_TRY(too_much(s, places[k], SIZE_MAX / 4));
        }
        if (info.memory_bytes) HA_TRY(too_much(s, HA_OP_DEVICE, (size_t)info.memory_bytes * 4));
    }
    return HA_OK;
}
const struct ha_op ha_op_alloc = {
    "alloc", "aligned, apart, its own bytes; too much is refused with words", { { 0 } }, judge_alloc
};

/* ---- map_device -------------------------------------------------------------------------------------------------- */

static enum ha_status judge_map_device(struct ha_op_stage *s)
{
    static const size_t windows[][2] = { { 0, 64 }, { 64, 4096 }, { 4096, 65536 }, { 65536, 100000 } };
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        const size_t first = windows[i][0], bytes = windows[i][1];
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
        const enum ha_status judged = ha_op_judge(s, b, 0, b->bytes,
                                                  "%zu bytes stored through map_device from byte %zu on", bytes, first);
        s->api->unmap_device(s->device, window);
        HA_TRY(judged);
        HA_TRY(ha_op_judge(s, b, 0, b->bytes, "%zu bytes stored through map_device, after unmap_device", bytes));
        ha_op_clear(s);
    }
    return HA_OK;
}
const struct ha_op ha_op_map_device = { "map_device",
                                        "stores of the CPU arrive in device memory",
                                        { HA_OP_ENTRY(map_device), HA_OP_ENTRY(unmap_device) },
                                        judge_map_device };
