/* One state comes from a CPU thread into mapped memory and is announced by a flag. Flag before data is a mistake
 * then made on purpose, and must be seen: a check that misses the planted one would miss a real one too. */

#include "suites/merge/stage_parts.h"

#include "harness/base/try.h"
#include "harness/base/why.h"

#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

enum { LINE = 64, POISON = 0xFF };

struct writer {
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
    uint32_t *flag;
    bool flag_first;
    sem_t merged; /* where the flag comes first: posted after the merge, and the data is written only then */
};

static void *write_state(void *arg)
{
    struct writer *w = arg;
    if (w->flag_first) {
        __atomic_store_n(w->flag, 1, __ATOMIC_RELEASE);
        while (sem_wait(&w->merged) != 0) continue;
    } else ha_stage_sleep();
    memcpy(w->to, w->from, w->bytes);
    if (!w->flag_first) __atomic_store_n(w->flag, 1, __ATOMIC_RELEASE);
    return NULL;
}

static enum ha_status enqueue(struct ha_stage_device *d, const uint32_t *flag, unsigned char *mapped)
{
    HA_TRY(ha_stage_device_send(d, d->stream));
    HA_TRY(ha_stage_did(d->s, d->api->flag_wait(d->stream, flag, 1), "flag_wait"));
    HA_TRY(ha_stage_device_merge(d, d->s->shape.states - 1, mapped));
    return ha_stage_device_fetch(d);
}

/* The result lies in the batch. mapped: a block and the flag behind it. */
static enum ha_status merge_announced(struct ha_stage_device *d, unsigned char *mapped, bool flag_first)
{
    struct ha_stage_run *s = d->s;
    const char *what = flag_first ? "flag before data" : "data before flag";
    struct writer w = { .to = mapped, .from = s->batch->snapshot, .bytes = d->bytes, .flag_first = flag_first };
    pthread_t thread;
    w.flag = (uint32_t *)(void *)(mapped + (d->bytes + LINE - 1) / LINE * LINE);
    HA_TRY(ha_stage_device_poison(d));
    memset(mapped, POISON, d->bytes);
    __atomic_store_n(w.flag, 0, __ATOMIC_RELEASE);
    memcpy(d->in, s->batch->snapshot, d->bytes);
    sem_init(&w.merged, 0, 0);
    if (pthread_create(&thread, NULL, write_state, &w) != 0) {
        sem_destroy(&w.merged);
        return ha_why(s->why, HA_ERROR, "no thread for the CPU's state");
    }
    const enum ha_status st = enqueue(d, w.flag, mapped), end = d->api->stream_sync(d->stream);
    sem_post(&w.merged);
    pthread_join(thread, NULL);
    sem_destroy(&w.merged);
    HA_TRY(st);
    HA_TRY(ha_stage_did(s, end, what));
    return ha_stage_device_finish(d, what);
}

/* A poisoned state holds nothing but NaN, so every element of every merged row must be NaN. */
static enum ha_status poison_seen(struct ha_stage_run *s)
{
    struct ha_judgement j = { .status = HA_OK };
    float o[HA_STAGE_DIM], lse, sum;
    for (size_t r = 0; r < s->rows.count; r++) {
        ha_judge_row(&j, s->batch, &s->rows, r, s->c->must, &s->subject->traits);
        ha_batch_get(s->batch, HA_RESULT, r, o, &lse, &sum);
        size_t i = 0;
        while (i < s->shape.dim && isnan(o[i])) i++;
        if (i == s->shape.dim && isnan(lse)) continue;
        const double got = i < s->shape.dim ? (double)o[i] : (double)lse;
        *s->j = (struct ha_judgement){ .status = HA_FAIL,
                                       .ratio = HUGE_VAL,
                                       .row = r,
                                       .element = i,
                                       .got = got,
                                       .want = (double)NAN,
                                       .against = "NaN, which the buffer was poisoned with",
                                       .rows = s->j->rows,
                                       .exact = s->j->exact };
        return ha_why(s->why, HA_FAIL,
                      "flag before data: the poisoned buffer was not seen: row %zu, element %zu is %.9g, not NaN", r, i,
                      got);
    }
    if (j.status == HA_FAIL) return ha_batch_intact(s->batch, s->why);
    return ha_why(s->why, HA_FAIL, "flag before data: the poisoned buffer was not seen: the result was judged right");
}

static enum ha_status both_orders(struct ha_stage_device *d, unsigned char *mapped)
{
    HA_TRY(merge_announced(d, mapped, false));
    HA_TRY(ha_stage_judge(d->s, "data before flag"));
    HA_TRY(merge_announced(d, mapped, true));
    return poison_seen(d->s);
}

static enum ha_status flag(struct ha_stage_device *d)
{
    struct ha_why why = { "" };
    void *mapped;
    if (!d->api->flag_wait) return ha_why(d->s->why, HA_WAIVED, "the device does not offer flag_wait");
    if (d->api->mem_alloc(d->device, HA_MEM_MAPPED, d->bytes + 2 * LINE, &mapped, &why) != HA_OK)
        return ha_why(d->s->why, HA_WAIVED, "needs mapped memory: %.400s", why.text);
    const enum ha_status st = both_orders(d, mapped);
    d->api->mem_free(d->device, HA_MEM_MAPPED, mapped);
    return st;
}

enum ha_status ha_stage_flag(struct ha_stage_run *s) { return ha_stage_on_device(s, flag); }
