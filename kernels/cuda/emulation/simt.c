#include "kernels/cuda/emulation/simt_crew.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

__thread unsigned ha_cuda_launched;
__thread struct ha_emulated_place ha_emulated __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* ---- crews that have nothing to do, and the order */

static struct {
    pthread_mutex_t lock;
    struct ha_crew *idle;
    struct ha_crew_order order;
    bool order_known;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool order_parse(const char *text, struct ha_crew_order *order)
{
    if (!strcmp(text, "forward")) *order = (struct ha_crew_order){ .kind = HA_CREW_FORWARD };
    else if (!strcmp(text, "backward")) *order = (struct ha_crew_order){ .kind = HA_CREW_BACKWARD };
    else {
        char *end;
        errno = 0;
        const unsigned long long seed = strtoull(text, &end, 10);
        if (*text < '0' || *text > '9' || *end || errno) return false;
        *order = (struct ha_crew_order){ .kind = HA_CREW_SHUFFLED, .seed = seed };
    }
    return true;
}

bool ha_emulated_order(const char *text)
{
    struct ha_crew_order order;
    if (!order_parse(text, &order)) return false;
    pthread_mutex_lock(&all.lock);
    all.order = order;
    all.order_known = true;
    pthread_mutex_unlock(&all.lock);
    return true;
}

/* Under the lock: the environment's order, unless there is one. NULL, or the text that is not understood. */
static const char *order_read(void)
{
    const char *text = all.order_known ? NULL : getenv("HA_EMULATION_ORDER");
    if (text && !order_parse(text, &all.order)) return text;
    all.order_known = true;
    return NULL;
}

const char *ha_emulated_order_wrong(void)
{
    pthread_mutex_lock(&all.lock);
    const char *wrong = order_read();
    pthread_mutex_unlock(&all.lock);
    return wrong;
}

static struct ha_crew *crew_take(void)
{
    pthread_mutex_lock(&all.lock);
    const char *wrong = order_read();
    if (wrong) {
        fprintf(stderr, "emulated CUDA: HA_EMULATION_ORDER=%s: " HA_EMULATED_ORDERS "\n", wrong);
        abort();
    }
    const struct ha_crew_order order = all.order;
    struct ha_crew *crew = all.idle;
    if (crew) all.idle = crew->next;
    pthread_mutex_unlock(&all.lock);
    if (!crew && !(crew = calloc(1, sizeof *crew))) {
        fprintf(stderr, "emulated CUDA: no memory for a block\n");
        abort();
    }
    crew->order = order;
    return crew;
}

static void crew_give_back(struct ha_crew *crew)
{
    pthread_mutex_lock(&all.lock);
    crew->next = all.idle;
    all.idle = crew;
    pthread_mutex_unlock(&all.lock);
}

/* For libraries that are unloaded: a checker of leaks counts from then on. */
__attribute__((destructor)) static void crews_destroy(void)
{
    pthread_mutex_lock(&all.lock);
    struct ha_crew *crew = all.idle;
    all.idle = NULL;
    pthread_mutex_unlock(&all.lock);
    while (crew) {
        struct ha_crew *next = crew->next;
        for (unsigned i = 0; i < HA_EMULATED_BLOCK_MAX; i++)
            if (crew->fibers[i].map) ha_fiber_destroy(&crew->fibers[i]);
        for (unsigned i = 0; i < HA_EMULATED_BLOCK_MAX; i++) free(crew->threads[i].copies.list);
        free(crew);
        crew = next;
    }
}

/* ---- turns */

static uint64_t next_random(struct ha_crew *crew)
{
    /* splitmix64 */
    uint64_t z = crew->order.seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint16_t *runnable_at(struct ha_crew *crew, unsigned i)
{
    return &crew->runnable[(crew->runnable_first + i) % HA_EMULATED_BLOCK_MAX];
}

void ha_crew_release(struct ha_crew *crew, unsigned first, unsigned mask)
{
    const bool backward = crew->order.kind == HA_CREW_BACKWARD;
    while (mask) {
        const unsigned lane = backward ? (unsigned)__builtin_ctz(mask) : 31u - (unsigned)__builtin_clz(mask);
        mask &= ~(1u << lane);
        *runnable_at(crew, crew->runnable_count++) = (uint16_t)(first + lane);
        crew->threads[first + lane].wait = NULL;
    }
}

static unsigned lanes_of_warp(const struct ha_crew *crew, unsigned first)
{
    const unsigned rest = crew->threads_count - first;
    return rest >= HA_EMULATED_WARP ? 0xffffffffu : (1u << rest) - 1;
}

static void release_all(struct ha_crew *crew)
{
    const unsigned warps = (crew->threads_count + HA_EMULATED_WARP - 1) / HA_EMULATED_WARP;
    for (unsigned i = 0; i < warps; i++) {
        const unsigned first = (crew->order.kind == HA_CREW_BACKWARD ? i : warps - 1 - i) * HA_EMULATED_WARP;
        ha_crew_release(crew, first, lanes_of_warp(crew, first));
    }
}

/* makes the next runnable thread the current one */
static struct ha_crew_thread *turn(struct ha_crew *crew)
{
    if (!crew->runnable_count) ha_crew_stop(crew, NULL, "every thread waits, and none of them for one that could come");
    uint16_t *top = runnable_at(crew, --crew->runnable_count);
    if (crew->order.kind == HA_CREW_SHUFFLED) {
        uint16_t *other = runnable_at(crew, (unsigned)(next_random(crew) % (crew->runnable_count + 1)));
        const uint16_t swapped = *other;
        *other = *top;
        *top = swapped;
    }
    crew->current = *top;
    crew->place->thread = crew->flat ? (uint3){ .x = *top } : ha_crew_index(crew, *top);
    return &crew->threads[*top];
}

static void fiber_entry(void);

/* for the current thread, which begins: the one used last, or, for ThreadSanitizer, to which two threads on one fiber
 * cannot race, its own */
static struct ha_fiber *fiber_take(struct ha_crew *crew)
{
    if (!crew->watched && crew->idle_count) return crew->idle[--crew->idle_count];
    const unsigned i = crew->watched ? crew->current : crew->fibers_count;
    struct ha_fiber *fiber = &crew->fibers[i];
    if (fiber->map) return fiber;
    if (!ha_fiber_make(fiber, i, fiber_entry)) ha_crew_stop(crew, NULL, "no memory for its stack");
    crew->fibers_count++;
    return fiber;
}

static struct ha_fiber *fiber_of(struct ha_crew *crew, struct ha_crew_thread *thread)
{
    if (!thread->fiber) thread->fiber = fiber_take(crew);
    return thread->fiber;
}

void ha_crew_step(struct ha_crew *crew)
{
    struct ha_fiber *self = crew->threads[crew->current].fiber, *to = fiber_of(crew, turn(crew));
    if (to != self) ha_fiber_switch(self, to);
}

static void check_return(struct ha_crew *crew)
{
    const unsigned lane = 1u << crew->current % HA_EMULATED_WARP;
    struct ha_crew_warp *warp = &crew->warps[crew->current / HA_EMULATED_WARP];
    struct ha_crew_copies *copies = &crew->threads[crew->current].copies;
    if (crew->waiting) ha_crew_stop(crew, NULL, "it returned, and others wait for it");
    if (copies->count) ha_crew_stop(crew, NULL, "it returned, and %u of its copies have not landed", copies->count);
    copies->groups = 0;
    for (unsigned i = 0; i < warp->meetings_count; i++)
        if (warp->meetings[i].mask & lane) ha_crew_stop(crew, NULL, "it returned, and others of its warp wait for it");
    warp->absent |= lane;
}

/* A fiber runs thread after thread, as long as the next one begins; what it keeps from one launch to the next, maybe on
 * another thread of the host, is the crew. */
static void fiber_entry(void)
{
    struct ha_crew *crew = ha_emulated.crew;
    struct ha_fiber *self = crew->threads[crew->current].fiber;
    ha_fiber_entered(self);
    for (;;) {
        ha_fiber_acquire(&crew->args);
        crew->kernel.run(crew->args);
        ha_fiber_release(&crew->returned);
        check_return(crew);
        crew->threads[crew->current].fiber = NULL;
        struct ha_fiber *to = &crew->host;
        if (++crew->returned < crew->threads_count) {
            struct ha_crew_thread *next = turn(crew);
            if (!next->fiber && !crew->watched) next->fiber = self;
            to = fiber_of(crew, next);
        }
        if (to == self) continue;
        if (!crew->watched) crew->idle[crew->idle_count++] = self;
        ha_fiber_switch(self, to);
    }
}

/* ---- launches */

static void block_run(struct ha_crew *crew)
{
    crew->returned = crew->pauses = 0;
    for (unsigned first = 0; first < crew->threads_count; first += HA_EMULATED_WARP)
        crew->warps[first / HA_EMULATED_WARP].absent = ~lanes_of_warp(crew, first);
    release_all(crew);
    ha_fiber_release(&crew->args);
    ha_fiber_switch(&crew->host, fiber_of(crew, turn(crew)));
    ha_fiber_acquire(&crew->returned);
    free(crew->shared);
    crew->shared = NULL;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void ha_emulated_run(const struct ha_emulated_kernel *kernel, const void *args, const unsigned grid[3],
                     const unsigned block[3])
{
    struct ha_crew *crew = crew_take();
    struct ha_emulated_place *place = crew->place = &ha_emulated;
    *place = (struct ha_emulated_place){ .block_dim = { block[0], block[1], block[2] },
                                         .grid_dim = { grid[0], grid[1], grid[2] },
                                         .crew = crew };
    crew->kernel = *kernel;
    crew->args = args;
    crew->watched = ha_fiber_watched();
    crew->flat = block[1] == 1 && block[2] == 1;
    crew->threads_count = block[0] * block[1] * block[2];
    ha_fiber_thread(&crew->host);

    /* every step-th block, around and around: all of them, since step and count have no common divisor */
    const uint64_t count = (uint64_t)grid[0] * grid[1] * grid[2];
    uint64_t at = 0, step = 1;
    if (crew->order.kind == HA_CREW_BACKWARD) at = step = count - 1;
    if (crew->order.kind == HA_CREW_SHUFFLED) {
        at = next_random(crew) % count;
        do step = 1 + next_random(crew) % count;
        while (common_divisor(step, count) != 1);
    }
    for (uint64_t i = 0; i < count; i++) {
        place->block = (uint3){ (unsigned)(at % grid[0]), (unsigned)(at / grid[0] % grid[1]),
                                (unsigned)(at / grid[0] / grid[1]) };
        block_run(crew);
        at = (at + step) % count;
    }
    crew_give_back(crew);
}

/* ---- what concerns a block */

static inline struct ha_crew *here(void) { return ha_emulated.crew; }

unsigned ha_emulated_barrier(const struct ha_emulated_site *site, bool vote)
{
    struct ha_crew *crew = here();
    const struct ha_crew_wait wait = { .site = site };
    if (crew->returned)
        ha_crew_stop(crew, site, "it waits for threads of the block that have returned (%u)", crew->returned);
    if (!crew->waiting) crew->barrier = site;
    else if (!ha_crew_same_site(site, crew->barrier)) ha_crew_stop(crew, site, "others wait for it at another barrier");
    void *const passed = &crew->passed[crew->barriers % 2];
    ha_fiber_release(passed);
    crew->threads[crew->current].wait = &wait;
    crew->yes += vote;
    if (++crew->waiting == crew->threads_count) {
        crew->votes = crew->yes;
        crew->waiting = crew->yes = 0;
        crew->barriers++;
        release_all(crew);
    }
    ha_crew_step(crew);
    ha_fiber_acquire(passed);
    return crew->votes;
}

void *ha_emulated_shared(const struct ha_emulated_site *site, size_t bytes, size_t alignment, bool dynamic)
{
    struct ha_crew *crew = here();
    if (!crew->shared) {
        if (dynamic && bytes != crew->kernel.shared_bytes)
            ha_crew_stop(crew, site, "%zu bytes, and the launch says %zu", bytes, crew->kernel.shared_bytes);
        if (!dynamic && bytes > 48 << 10) ha_crew_stop(crew, site, "%zu bytes: a block has 48 KB", bytes);
        if (posix_memalign(&crew->shared, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes))
            ha_crew_stop(crew, site, "no memory for %zu bytes", bytes);
        memset(crew->shared, 0xFF, bytes);
        crew->shared_where = *site;
        crew->shared_bytes = bytes;
        ha_fiber_release(&crew->shared);
    } else if (bytes != crew->shared_bytes || !ha_crew_same_site(site, &crew->shared_where)) {
        ha_crew_stop(crew, site, "the block has %s:%d already", crew->shared_where.file, crew->shared_where.line);
    }
    ha_fiber_acquire(&crew->shared);
    return crew->shared;
}

void ha_emulated_pause(void)
{
    enum { YIELDS = 64, NAP_NS = 20000 };
    struct ha_crew *crew = here();
    if (++crew->pauses % YIELDS) sched_yield();
    else nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
    crew->runnable_first--;
    crew->runnable_count++;
    *runnable_at(crew, 0) = (uint16_t)crew->current;
    ha_crew_step(crew);
}

void ha_emulated_stop(const struct ha_emulated_site *site, const char *why) { ha_crew_stop(here(), site, "%s", why); }
