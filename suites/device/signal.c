/* What a stream says to the CPU and the CPU to a stream: flags and host functions. */

#include "suites/device/path.h"

#include "harness/base/clock.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <string.h>

enum { POLL_NS = 20000 };
static const uint64_t patience_ns = 20000000000;

/* ---- flags ------------------------------------------------------------------------------------------------------- */

static void flag_store(uint32_t *flag, uint32_t value) { __atomic_store_n(flag, value, __ATOMIC_RELEASE); }

/* The CPU polls until the flag, which was 0, has that value. */
static enum ha_status flag_await(struct ha_op_stage *s, const uint32_t *flag, uint32_t value)
{
    const uint64_t begin = ha_now_ns();
    for (uint32_t seen; (seen = __atomic_load_n(flag, __ATOMIC_ACQUIRE)) != value; ha_sleep_ns(POLL_NS)) {
        if (s->api->failure(s->device)) return ha_op_failed(s, "flag_write", HA_ERROR);
        if (seen || ha_now_ns() - begin > patience_ns)
            return ha_op_wrong(s, "flag_write of %u: the flag is %u%s", value, seen, seen ? "" : " after 20 s");
    }
    return HA_OK;
}

/* Values of every width, over each other, of one of many flags that lie side by side. */
static enum ha_status write_every_bit(struct ha_op_stage *s)
{
    enum { FLAGS = 64, WRITES = 96 };
    struct ha_op_block *flags = ha_op_block(s, HA_OP_MAPPED, FLAGS * sizeof(uint32_t));
    if (!flags) return HA_ERROR;
    HA_TRY(ha_op_fill(s, flags, 0, flags->bytes));
    for (size_t i = 0; i < WRITES; i++) {
        const size_t at = ha_op_draw(s, FLAGS);
        uint32_t *const flag = (uint32_t *)(void *)flags->at + at;
        const uint32_t bit = (uint32_t)1 << i / 3, value = i % 3 == 0 ? bit - 1 : i % 3 == 1 ? bit : bit | 5;
        HA_OP(s, flag_write, s->stream[i % 2], flag, value);
        HA_OP(s, stream_sync, s->stream[i % 2]);
        const uint32_t seen = __atomic_load_n(flag, __ATOMIC_ACQUIRE);
        s->cases++;
        if (seen != value) return ha_op_wrong(s, "flag_write of %u: the flag is %u behind stream_sync", value, seen);
        memcpy(flags->image + at * sizeof value, &value, sizeof value);
        HA_TRY(ha_op_judge(s, flags, 0, flags->bytes, "flag_write of %u to flag %zu of %d that lie side by side", value,
                           at, FLAGS));
    }
    ha_op_clear(s);
    return HA_OK;
}

/* A host function that takes a while, and then looks at the flag that is written behind it. */
struct look {
    const uint32_t *flag;
    uint32_t seen;
};
static void look_late(void *arg)
{
    enum { TAKES_NS = 2000000 };
    struct look *look = arg;
    ha_sleep_ns(TAKES_NS);
    look->seen = __atomic_load_n(look->flag, __ATOMIC_ACQUIRE);
}

static enum ha_status judge_flag_write(struct ha_op_stage *s)
{
    static struct look look; /* a device that forgets to wait calls later */

    static const uint32_t values[HA_OP_ROUNDS] = { 1, 2, 77, 65536, 3, 4000000000 };
    for (size_t round = 0; round < s->rounds; round++) {
        const uint32_t value = s->of ? (uint32_t)s->of->value : values[round];
        struct ha_op_path p;
        uint32_t *flag;
        ha_op_round(s, round);
        HA_TRY(ha_op_path_large(s, &p));
        HA_TRY(ha_op_flag_make(s, &flag));
        HA_TRY(ha_op_shut(s, s->stream[0]));
        HA_TRY(ha_op_path_up(s, &p, s->stream[0]));
        HA_TRY(ha_op_path_down(s, &p, s->stream[0]));
        look = (struct look){ flag, 0 };
        if (s->api->host_fn) HA_OP(s, host_fn, s->stream[0], look_late, &look);
        HA_OP(s, flag_write, s->stream[0], flag, value);
        HA_TRY(ha_op_hold(s));
        if (__atomic_load_n(flag, __ATOMIC_ACQUIRE))
            return ha_op_wrong(s, "flag_write of %u: it is seen while the copies before it are held up", value);
        ha_op_open(s);
        HA_TRY(flag_await(s, flag, value));
        HA_TRY(ha_op_path_judge(s, &p, "what was copied back before flag_write, when the CPU sees the flag"));
        HA_OP(s, stream_sync, s->stream[0]);
        if (look.seen)
            return ha_op_wrong(s, "flag_write of %u: a host function before it, which takes 2 ms, sees it", value);
        HA_OP(s, flag_write, s->stream[0], flag, 0);
        HA_OP(s, stream_sync, s->stream[0]);
        const uint32_t left = __atomic_load_n(flag, __ATOMIC_ACQUIRE);
        if (left) return ha_op_wrong(s, "flag_write of 0: the flag is %u behind stream_sync", left);
        ha_op_clear(s);
    }
    return s->of ? HA_OK : write_every_bit(s);
}
const struct ha_op ha_op_flag_write = {
    .name = "flag_write",
    .doc = "is seen behind the bytes of the work before it",
    .needs = { HA_OP_ENTRY(flag_write) },
    .judge = judge_flag_write,
    .keys = "size times value",
    .held_ms = 4,
};

/* Released by the CPU, which changes what is copied until then; less than asked for releases nothing. */
static enum ha_status wait_for_cpu(struct ha_op_stage *s, uint32_t at_least, uint32_t less, uint32_t enough)
{
    struct ha_op_path p;
    uint32_t *flag;
    HA_TRY(ha_op_path_make(s, &p, HA_OP_PATH_SMALL));
    HA_TRY(ha_op_flag_make(s, &flag));
    HA_OP(s, flag_wait, s->stream[0], flag, at_least);
    HA_OP(s, copy, s->stream[0], p.there->at, p.x->at, p.bytes, HA_H2D);
    HA_OP(s, copy, s->stream[0], p.out->at, p.there->at, p.bytes, HA_D2H);
    enum ha_status status = ha_op_hold(s);
    flag_store(flag, less);
    if (status == HA_OK) status = ha_op_hold(s);
    if (status == HA_OK) status = ha_op_fill(s, p.x, 0, p.bytes);
    flag_store(flag, enough);
    HA_TRY(status);
    HA_OP(s, stream_sync, s->stream[0]);
    memcpy(p.out->image, p.x->image, p.bytes);
    return ha_op_judge(s, p.out, 0, p.bytes,
                       "what was copied behind flag_wait for at least %u, which was %u and then %u", at_least, less,
                       enough);
}
/* Released by another stream, behind a copy of it. */
static enum ha_status write_and_wait(struct ha_op_stage *s, void *flag)
{
    HA_OP(s, flag_write, s->stream[0], flag, 1);
    HA_OP(s, flag_wait, s->stream[1], flag, 1);
    return HA_OK;
}
static enum ha_status wait_for_stream(struct ha_op_stage *s)
{
    uint32_t *flag;
    HA_TRY(ha_op_flag_make(s, &flag));
    HA_TRY(ha_op_path_across(s, write_and_wait, flag,
                             "what a stream copied behind flag_wait for a flag that another writes behind a copy"));
    HA_OP(s, stream_sync, s->stream[0]);
    return HA_OK;
}
static const char *unfit_flag(const struct ha_op_case *c)
{
    return c->value > INT32_MAX ? "a flag that is waited for is less than 2^31" : NULL;
}
/* A flag of 0 is at least 0. */
static enum ha_status wait_for_nothing(struct ha_op_stage *s)
{
    struct ha_op_path p;
    uint32_t *flag;
    HA_TRY(ha_op_path_make(s, &p, HA_OP_PATH_SMALL));
    HA_TRY(ha_op_flag_make(s, &flag));
    HA_OP(s, flag_wait, s->stream[0], flag, 0);
    return ha_op_path_round(s, &p, s->stream[0], "what was copied behind flag_wait of a flag of 0 for at least 0");
}

static enum ha_status judge_flag_wait(struct ha_op_stage *s)
{
    if (!s->of) HA_TRY(wait_for_nothing(s));
    static const uint32_t values[HA_OP_ROUNDS][3] = { { 1, 0, 1 },      { 5, 4, 5 },         { 5, 1, 900 },
                                                      { 300, 44, 300 }, { 65537, 1, 65537 }, { 70000, 69999, 80000 } };
    for (size_t round = 0; round < s->rounds; round++) {
        ha_op_round(s, round);
        const uint32_t of = s->of ? (uint32_t)s->of->value : 0,
                       enough = of + (uint32_t)ha_op_draw(s, (size_t)INT32_MAX - of + 1);
        const uint32_t one[] = { of,
                                 of && ha_op_draw(s, 2) ? of - 1
                                 : of                   ? (uint32_t)ha_op_draw(s, of)
                                                        : 0,
                                 enough },
                       *value = of ? one : values[round];
        HA_TRY(wait_for_cpu(s, value[0], value[1], value[2]));
        ha_op_clear(s);
        if (s->api->flag_write) HA_TRY(wait_for_stream(s));
        ha_op_clear(s);
    }
    s->slow = false;
    for (size_t k = 3; k < 31 && !s->of; k++) { /* of every width, and what has its lower bits alone is less */
        const uint32_t at_least = ((uint32_t)1 << k) + 5, less = ((uint32_t)1 << k) - (k % 2 ? 1 : 2);
        HA_TRY(wait_for_cpu(s, at_least, less, at_least + (uint32_t)ha_op_draw(s, (size_t)INT32_MAX - at_least + 1)));
        ha_op_clear(s);
    }
    return s->of ? HA_OK : ha_op_flag_often(s);
}
const struct ha_op ha_op_flag_wait = {
    .name = "flag_wait",
    .doc = "what follows it waits until the flag is large enough",
    .needs = { HA_OP_ENTRY(flag_wait) },
    .judge = judge_flag_wait,
    .keys = "size times value",
    .unfit = unfit_flag,
    .held_ms = 10,
};

/* ---- host functions ---------------------------------------------------------------------------------------------- */

enum { CALLS = 20 };
struct calls {
    struct ha_op_path p;
    char next[HA_OP_PATH_SMALL]; /* what the first call puts into x */
    uint32_t count;              /* atomic */
    uint32_t order[CALLS];
    bool arrived;
};
struct call {
    struct calls *of;
    uint32_t number;
};

static void called(void *arg)
{
    const struct call *c = arg;
    struct calls *all = c->of;
    const uint32_t n = __atomic_load_n(&all->count, __ATOMIC_ACQUIRE);
    if (n == 0) {
        all->arrived = !memcmp(all->p.out->at, all->p.out->image, all->p.bytes);
        memcpy(all->p.x->at, all->next, all->p.bytes);
    }
    if (n < CALLS) all->order[n] = c->number;
    __atomic_store_n(&all->count, n + 1, __ATOMIC_RELEASE);
}

static uint32_t called_with_nothing; /* atomic */
static void called_with(void *arg) { __atomic_fetch_add(&called_with_nothing, !arg, __ATOMIC_ACQ_REL); }

static enum ha_status call_once(struct ha_op_stage *s, struct calls *all, struct call call[CALLS])
{
    struct ha_op_path *p = &all->p;
    HA_TRY(ha_op_path_make(s, p, HA_OP_PATH_SMALL));
    memcpy(all->next, p->x->image, p->bytes);
    for (size_t i = 0; i < p->bytes; i++) all->next[i] ^= 0x5a;
    HA_TRY(ha_op_shut(s, s->stream[0]));
    HA_TRY(ha_op_path_up(s, p, s->stream[0]));
    HA_TRY(ha_op_path_down(s, p, s->stream[0]));
    for (uint32_t i = 0; i < CALLS; i++) {
        call[i] = (struct call){ all, i };
        HA_OP(s, host_fn, s->stream[0], called, &call[i]);
    }
    __atomic_store_n(&called_with_nothing, 0, __ATOMIC_RELEASE);
    HA_OP(s, host_fn, s->stream[0], called_with, NULL);
    HA_OP(s, copy, s->stream[0], p->there->at, p->x->at, p->bytes, HA_H2D);
    HA_TRY(ha_op_hold(s));
    const bool early = __atomic_load_n(&all->count, __ATOMIC_ACQUIRE) > 0;
    ha_op_open(s);
    HA_OP(s, stream_sync, s->stream[0]);
    if (early) return ha_op_wrong(s, "host_fn: called while the copies before it were held up");
    if (!all->arrived) return ha_op_wrong(s, "host_fn: called before what was copied back before it had arrived");
    if (all->count != CALLS)
        return ha_op_wrong(s, "host_fn: %u calls were made of %d that were enqueued", all->count, CALLS);
    if (__atomic_load_n(&called_with_nothing, __ATOMIC_ACQUIRE) != 1)
        return ha_op_wrong(s, "host_fn: a function whose argument is NULL was called %u times", called_with_nothing);
    for (uint32_t i = 0; i < CALLS; i++)
        if (all->order[i] != i) return ha_op_wrong(s, "host_fn: call %u was of function %u", i, all->order[i]);
    memcpy(p->there->image, all->next, p->bytes);
    return ha_op_judge(s, p->there, 0, p->bytes, "what was copied up behind a host function that wrote it");
}

static enum ha_status judge_host_fn(struct ha_op_stage *s)
{
    static struct calls all; /* not on the stack: a device that forgets to wait calls later */
    static struct call call[CALLS];
    for (size_t round = 0; round < s->rounds; round++) {
        ha_op_round(s, round);
        memset(&all, 0, sizeof all);
        HA_TRY(call_once(s, &all, call));
        ha_op_clear(s);
    }
    return ha_op_call_often(s);
}
const struct ha_op ha_op_host_fn = {
    .name = "host_fn",
    .doc = "is called once, in stream order, with the bytes of before",
    .needs = { HA_OP_ENTRY(host_fn) },
    .judge = judge_host_fn,
    .keys = "times",
    .held_ms = 4,
};
