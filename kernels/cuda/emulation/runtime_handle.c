#include "harness/base/array.h"
#include "kernels/cuda/emulation/runtime_inside.h"

#include <stdlib.h>

/* kind, generation and slot in one number that is no address: whoever follows it, crashes */
enum { SLOT_BITS = 24, KIND_SHIFT = 56 };

static struct slot {
    void *object; /* NULL: free */
    uint32_t generation;
    enum ha_runtime_kind kind;
} * slots;
static size_t count, capacity, free_from; /* below free_from none is free */

static void *handle_of(size_t i)
{
    return (void *)((uintptr_t)slots[i].kind << KIND_SHIFT | (uintptr_t)slots[i].generation << SLOT_BITS
                    | (uintptr_t)i);
}

static struct slot *slot_of(const void *handle)
{
    size_t i = (uintptr_t)handle & (((size_t)1 << SLOT_BITS) - 1);
    return handle && i < count && slots[i].object && handle_of(i) == handle ? &slots[i] : NULL;
}

void *ha_runtime_handle_make(enum ha_runtime_kind kind, void *object)
{
    size_t i = free_from;
    while (i < count && slots[i].object) i++;
    if (i >> SLOT_BITS) return NULL;
    if (!ha_array_room(&slots, &capacity, i + 1, sizeof *slots)) return NULL;
    if (i == count) slots[count++].generation = 0;
    free_from = i + 1;
    slots[i] = (struct slot){ .object = object, .generation = slots[i].generation + 1, .kind = kind };
    return handle_of(i);
}

void *ha_runtime_handle_find(enum ha_runtime_kind kind, const void *handle)
{
    const struct slot *s = slot_of(handle);
    return s && s->kind == kind ? s->object : NULL;
}

void ha_runtime_handle_drop(const void *handle)
{
    struct slot *s = slot_of(handle);
    if (!s) return;
    s->object = NULL;
    if ((size_t)(s - slots) < free_from) free_from = (size_t)(s - slots);
}

void *ha_runtime_handle_next(size_t *at, enum ha_runtime_kind *kind)
{
    for (; *at < count; ++*at) {
        if (!slots[*at].object) continue;
        *kind = slots[*at].kind;
        return handle_of((*at)++);
    }
    return NULL;
}

void ha_runtime_handles_free(void)
{
    free(slots);
    slots = NULL;
    count = capacity = free_from = 0;
}
