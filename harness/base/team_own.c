#include "harness/base/clock.h"
#include "harness/base/team.h"

#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- waiting --------------------------------------------------------------------------------- */

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* `yield` takes no time on most cores */
#endif
}

/* Polls the word until it is `want`; false: it was not within patience_ns. */
static bool spin(struct gate *g, unsigned want, uint64_t patience_ns)
{
    enum { LOOKS = 64 };
    for (uint64_t end_ns = 0, now_ns = 0; now_ns <= end_ns && patience_ns;) {
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(&g->word, memory_order_acquire) == want) return true;
            relax();
        }
        now_ns = ha_now_ns();
        if (!end_ns) end_ns = now_ns + patience_ns;
    }
    return false;
}

/* No wake-up is lost. Who waits counts itself asleep and then looks at the word; who moves the word does so and then
 * looks at the count. All four are sequentially consistent: in their one order either the count comes before its look,
 * and it wakes, or the look at the count comes before the count, and so the moved word before the look at it. Between
 * that look and sleep the kernel compares the word once more, under the lock that a wake-up takes. */
static void await(struct gate *g, unsigned want, uint64_t patience_ns)
{
    if (spin(g, want, patience_ns)) return;
    atomic_fetch_add(&g->asleep, 1u);
    for (unsigned now; (now = atomic_load(&g->word)) != want;)
        syscall(SYS_futex, &g->word, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
    atomic_fetch_sub(&g->asleep, 1u);
}

static void wake(struct gate *g)
{
    if (atomic_load(&g->asleep)) syscall(SYS_futex, &g->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- the team -------------------------------------------------------------------------------- */

static void *worker_main(void *arg)
{
    struct worker *self = arg;
    struct ha_pool *pool = self->pool;
    ha_team_place(pool, self->index);
    for (unsigned run = 1;; run++) {
        await(&pool->start, run, ha_team_awake(pool, self->index) ? HA_POOL_AWAKE_NS : 0);
        if (pool->ending) return NULL;
        ha_team_work(pool, self->index);
        /* with this the caller may go on, even to the next run: a wake-up that comes late then does no harm */
        if (atomic_fetch_sub(&pool->done.word, 1u) == 1) wake(&pool->done);
    }
}

static enum ha_status own_start(struct ha_pool *pool, struct ha_why *why)
{
    for (size_t w = 1; w < pool->threads; w++) {
        const int error = ha_thread_start(&pool->worker[w].thread, worker_main, &pool->worker[w]);
        if (error)
            return ha_why(why, HA_ERROR, "thread pool: cannot start thread %zu of %zu: %s", w + 1, pool->threads,
                          strerror(error));
        pool->started++;
    }
    return HA_OK;
}

static void own_run(struct ha_pool *pool)
{
    atomic_store_explicit(&pool->done.word, (unsigned)pool->started, memory_order_relaxed);
    atomic_fetch_add(&pool->start.word, 1u);
    wake(&pool->start);
    ha_team_work(pool, 0);
    await(&pool->done, 0, ha_team_awake(pool, 0) ? HA_POOL_AWAKE_NS : 0);
}

static void own_end(struct ha_pool *pool)
{
    pool->ending = true;
    atomic_fetch_add(&pool->start.word, 1u);
    wake(&pool->start);
    for (size_t w = 1; w <= pool->started; w++) pthread_join(pool->worker[w].thread, NULL);
}

const struct ha_team_kind ha_team_own = { .name = "own", .start = own_start, .run = own_run, .end = own_end };
