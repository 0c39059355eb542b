/* The operations of a warp: the lanes that the mask names meet, and the last one does the work for all. */

#include "kernels/cuda/emulation/simt_crew.h"

static struct ha_crew_meeting *meeting_of(struct ha_crew_warp *warp, const struct ha_emulated_site *site, unsigned mask)
{
    for (unsigned i = 0; i < warp->meetings_count; i++) {
        struct ha_crew_meeting *m = &warp->meetings[i];
        if (m->mask == mask && ha_crew_same_site(m->site, site)) return m;
    }
    /* one for each lane that waits, at most */
    struct ha_crew_meeting *m = &warp->meetings[warp->meetings_count++];
    *m = (struct ha_crew_meeting){ .site = site, .mask = mask };
    return m;
}

static void meet(const struct ha_emulated_site *site, unsigned mask, void *record, ha_crew_join *work)
{
    struct ha_crew *crew = ha_emulated.crew;
    const unsigned lane = crew->current % HA_EMULATED_WARP, first = crew->current - lane;
    struct ha_crew_warp *warp = &crew->warps[crew->current / HA_EMULATED_WARP];
    if (!(mask >> lane & 1)) ha_crew_stop(crew, site, "its mask 0x%08x is without its own lane, %u", mask, lane);
    if (mask & warp->absent)
        ha_crew_stop(crew, site, "its mask 0x%08x names lanes that have returned or do not exist: 0x%08x", mask,
                     mask & warp->absent);
    const struct ha_crew_wait wait = { .site = site, .mask = mask };
    struct ha_crew_meeting *meeting = meeting_of(warp, site, mask);
    meeting->arrived |= 1u << lane;
    crew->threads[crew->current].record = record;
    crew->threads[crew->current].wait = &wait;
    if (meeting->arrived == mask) {
        *meeting = warp->meetings[--warp->meetings_count];
        if (work) {
            void *records[HA_EMULATED_WARP];
            for (unsigned i = 0; i < HA_EMULATED_WARP; i++) records[i] = crew->threads[first + i].record;
            work(crew, site, mask, records);
        }
        ha_crew_release(crew, first, mask);
    }
    ha_crew_step(crew);
}

/* What a lane comes with and goes on from; each has its own, since one may be at the next meeting before others go on.
 */
struct sync {
    char before, after;
};

static void join_sync(const struct ha_crew *crew, const struct ha_emulated_site *site, unsigned mask,
                      void *const records[])
{
    for (unsigned lane = 0; lane < HA_EMULATED_WARP && crew->watched; lane++)
        if (mask >> lane & 1) ha_fiber_acquire(&((struct sync *)records[lane])->before);
    for (unsigned lane = 0; lane < HA_EMULATED_WARP && crew->watched; lane++)
        if (mask >> lane & 1) ha_fiber_release(&((struct sync *)records[lane])->after);
}

void ha_emulated_sync_warp(const struct ha_emulated_site *site, unsigned mask)
{
    struct sync sync;
    ha_fiber_release(&sync.before);
    meet(site, mask, &sync, join_sync);
    ha_fiber_acquire(&sync.after);
}

/* ---- shuffles and votes */

struct exchange {
    uint64_t value;
    unsigned source;
};

static void join_exchange(const struct ha_crew *crew, const struct ha_emulated_site *site, unsigned mask,
                          void *const records[])
{
    uint64_t values[HA_EMULATED_WARP];
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(rest);
        const struct exchange *e = records[lane];
        if (!(mask >> e->source & 1))
            ha_crew_stop(crew, site, "lane %u reads lane %u, which is not in the mask 0x%08x", lane, e->source, mask);
        values[lane] = e->value;
    }
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        struct exchange *e = records[__builtin_ctz(rest)];
        e->value = values[e->source];
    }
}

uint64_t ha_emulated_shuffle(const struct ha_emulated_site *site, unsigned mask, uint64_t value, unsigned source_lane)
{
    struct exchange e = { .value = value, .source = source_lane % HA_EMULATED_WARP };
    meet(site, mask, &e, join_exchange);
    return e.value;
}

static void join_votes(const struct ha_crew *crew, const struct ha_emulated_site *site, unsigned mask,
                       void *const records[])
{
    unsigned votes = 0;
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(rest), *vote = records[lane];
        votes |= *vote << lane;
    }
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        unsigned *vote = records[__builtin_ctz(rest)];
        *vote = votes;
    }
}

unsigned ha_emulated_ballot(const struct ha_emulated_site *site, unsigned mask, bool vote)
{
    unsigned votes = vote;
    meet(site, mask, &votes, join_votes);
    return votes;
}

void ha_emulated_mma(const struct ha_emulated_site *site, float *c, const float *a, const float *b)
{
    struct ha_crew_fragments f = { .c = c, .a = a, .b = b };
    meet(site, 0xffffffffu, &f, ha_crew_mma);
}
