/* Device memory that kernels of a stream or of a graph use for themselves. */

#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>

/* a decode step's splits, and room for what most cases ask for, so that nothing grows while it is timed */
static const size_t room_least_bytes = (size_t)8 << 20;

/* One of those that nobody uses, or new memory. */
static struct ha_cuda_room *room_take(struct ha_stream *s, size_t bytes)
{
    struct ha_device *dev = s->device;
    pthread_mutex_lock(&dev->lock);
    struct ha_cuda_room **link = &dev->spare_rooms;
    while (*link && (*link)->bytes < bytes) link = &(*link)->next;
    struct ha_cuda_room *room = *link;
    if (room) *link = room->next;
    pthread_mutex_unlock(&dev->lock);
    if (room) return room;

    char what[64];
    snprintf(what, sizeof what, "a workspace of %zu bytes", bytes);
    room = calloc(1, sizeof *room);
    if (!room) {
        ha_cuda_fail_on(s, what, "no host memory");
        return NULL;
    }
    cudaError_t error = cudaMalloc(&room->ptr, bytes);
    if (error == cudaErrorMemoryAllocation && ha_cuda_workspaces_free(dev)) {
        (void)cudaGetLastError(); /* or whoever asks next for the thread's last error would find it */
        error = cudaMalloc(&room->ptr, bytes);
    }
    if (error != cudaSuccess) {
        ha_cuda_check_on(s, error, "cudaMalloc", what);
        free(room);
        return NULL;
    }
    room->bytes = bytes;
    return room;
}

void *ha_cuda_workspace(struct ha_stream *s, size_t bytes)
{
    struct ha_cuda_room **rooms = s->graph ? &s->graph->rooms : &s->rooms, *largest = *rooms;
    if (largest && bytes <= largest->bytes) return largest->ptr;
    /* doubling: the outgrown ones together are no larger than the last */
    size_t size = largest ? 2 * largest->bytes : room_least_bytes;
    struct ha_cuda_room *room = room_take(s, size > bytes ? size : bytes);
    if (!room) return NULL;
    room->next = largest;
    *rooms = room;
    return room->ptr;
}

void ha_cuda_workspace_give(struct ha_device *dev, struct ha_cuda_room **rooms)
{
    pthread_mutex_lock(&dev->lock);
    for (struct ha_cuda_room *room; (room = *rooms);) {
        *rooms = room->next;
        struct ha_cuda_room **link = &dev->spare_rooms; /* the smallest first */
        while (*link && (*link)->bytes < room->bytes) link = &(*link)->next;
        room->next = *link;
        *link = room;
    }
    pthread_mutex_unlock(&dev->lock);
}

bool ha_cuda_workspaces_free(struct ha_device *dev)
{
    pthread_mutex_lock(&dev->lock);
    struct ha_cuda_room *rooms = dev->spare_rooms, *next;
    dev->spare_rooms = NULL;
    pthread_mutex_unlock(&dev->lock);
    const bool some = rooms;
    for (; rooms; rooms = next) {
        next = rooms->next;
        ha_cuda_check(dev, cudaFree(rooms->ptr), "cudaFree", "a workspace");
        free(rooms);
    }
    return some;
}
