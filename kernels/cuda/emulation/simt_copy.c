/* Copies to shared memory that a thread asks for and waits for. They are carried out as late as is allowed, when it
 * waits; the bytes are written by the caller, so that the sanitizers see it in the kernel. */

#include "kernels/cuda/emulation/simt_crew.h"

#include <stdlib.h>

enum { PIECE = 16 };

static struct ha_crew_copies *copies_of(struct ha_crew *crew) { return &crew->threads[crew->current].copies; }

static bool in_shared(const struct ha_crew *crew, const void *to)
{
    const uintptr_t at = (uintptr_t)to - (uintptr_t)crew->shared;
    return crew->shared && at < crew->shared_bytes && crew->shared_bytes - at >= PIECE;
}

void ha_emulated_copy_ask(const struct ha_emulated_site *site, void *to, const void *from, bool real)
{
    struct ha_crew *crew = ha_emulated.crew;
    struct ha_crew_copies *c = copies_of(crew);
    if ((uintptr_t)to % PIECE || (uintptr_t)from % PIECE)
        ha_crew_stop(crew, site, "an address is not a multiple of %d", PIECE);
    if (!in_shared(crew, to)) ha_crew_stop(crew, site, "it goes elsewhere than the block's shared memory");
    if (c->first + c->count == c->room) {
        c->room += 64;
        c->list = realloc(c->list, c->room * sizeof *c->list);
        if (!c->list) ha_crew_stop(crew, site, "no memory for its copies");
    }
    c->list[c->first + c->count++] = (struct ha_crew_copy){ { to, real ? from : NULL }, c->groups };
}

void ha_emulated_copy_commit(void) { copies_of(ha_emulated.crew)->groups++; }

bool ha_emulated_copy_land(unsigned groups, struct ha_emulated_copy *copy)
{
    struct ha_crew_copies *c = copies_of(ha_emulated.crew);
    if (c->count == 0) c->first = 0;
    if (c->count == 0 || c->list[c->first].group + groups >= c->groups) return false;
    *copy = c->list[c->first].copy;
    c->first++;
    c->count--;
    return true;
}
