/* Sessions: whose data they have, what stays of one that could not be opened, how many threads. Linked with ha_alloc
 * wrapped, so that there may be no memory. */

#define _GNU_SOURCE /* sched_getaffinity */
#include "harness/base/arena.h"
#include "harness/base/pool.h"
#include "harness/base/test_beside.h"
#include "suites/variants/check.h"
#include "suites/variants/test_session.h"

#include <sched.h>

#define SMALL "cpu:ctx=20,heads=4/2,head_dim=64,layers=1,steps=2,threads=1"

/* ---- the data ------------------------------------------------------------------------------ */

/* Every key, value and query that a variant is handed is the dataset's, the new tokens' too. */
TEST(inputs_are_those_of_the_dataset)
{
    struct ha_workload *w;
    size_t row = 64 * 2;
    uint16_t k[64], v[64];
    float q[64];
    open_session("cpu:ctx=70+3+0,heads=4/2,head_dim=64,layers=2,steps=2,q_len=2,observed=4,dtype=bf16,dataset=iid");
    w = session.workload;
    assert_int_equal(w->cap, 74);
    unsigned char *blocks = calloc(2, session.io.in_bytes);
    for (size_t layer = 0; layer < 2; layer++) {
        const struct ha_prefill in = ha_workload_prefill(w, layer);
        for (size_t b = 0; b < 3; b++)
            for (size_t h = 0; h < 2; h++)
                for (size_t t = 0; t < w->shape.ctx[b] + 4; t++) {
                    w->dataset->kv(w->source, b, layer, h, t, 1, k, v);
                    assert_memory_equal((unsigned char *)w->k[layer * 3 + b] + (h * w->cap + t) * row, k, row);
                    assert_memory_equal((unsigned char *)w->v[layer * 3 + b] + (h * w->cap + t) * row, v, row);
                    if (t < w->shape.ctx[b]) {
                        assert_memory_equal((const unsigned char *)in.k[b] + (h * in.cap + t) * row, k, row);
                        assert_memory_equal((const unsigned char *)in.v[b] + (h * in.cap + t) * row, v, row);
                    } else {
                        size_t step = (t - w->shape.ctx[b]) / 2, at = b * 2 + (t - w->shape.ctx[b]) % 2;
                        const unsigned char *block = blocks + layer * session.io.in_bytes;
                        ha_workload_step(w, step, session.pool, &session.io, blocks);
                        assert_memory_equal(block + session.io.k + (at * 2 + h) * row, k, row);
                        assert_memory_equal(block + session.io.v + (at * 2 + h) * row, v, row);
                        w->dataset->query(w->source, b, layer, 2 * h + 1, t, q);
                        assert_memory_equal(block + session.io.q + (at * 4 + 2 * h + 1) * 256, q, 256);
                    }
                }
        for (size_t b = 0; b < 3; b++) {
            const size_t ctx = w->shape.ctx[b], seen = ctx < 4 ? ctx : 4; /* the last 4, where there are as many */
            for (size_t i = 0; i < seen * 4; i++) {
                w->dataset->query(w->source, b, layer, i % 4, ctx - seen + i / 4, q);
                assert_memory_equal(in.q[b] + i * 64, q, sizeof q);
            }
        }
    }
    free(blocks);
    close_session();
}

/* The data of the last cases are kept for whoever asks for the same. */
TEST(data_serve_the_cases_that_ask_for_them)
{
    static const struct {
        const char *id;
        int same_as; /* the case before whose data they are, or -1 */
    } cases[] = {
        { "cpu:ctx=70,layers=1,seed=3", -1 },
        { "resident:ctx=70,layers=1,seed=4", -1 },
        { "resident:ctx=70,layers=1,seed=3", 0 },
        { "cpu:ctx=70,layers=1,seed=3,dataset=iid", -1 },
        { "cpu:ctx=70,layers=1,seed=3,steps=7", -1 },
        { "cpu:ctx=69,layers=1,seed=3", -1 },
        { "hgca:ctx=70,layers=1,seed=4,beta=3", 1 },
        { "cpu:ctx=70,layers=1,seed=3,dtype=bf16", -1 },
        { "cpu:ctx=1900,steps=1,dataset=trace/english", -1 },
        { "hgca:ctx=1900,steps=1,dataset=trace/english", 8 },
    };
    const struct ha_workload *data[COUNT(cases)];
    open_session("cpu:ctx=5");
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ha_case c;
        ha_session_close(&session);
        assert_ok(ha_case_parse(cases[i].id, &c, &reason));
        assert_ok(ha_session_open(&session, &opened.shared, &c, NULL, &reason));
        data[i] = session.workload;
        for (size_t j = 0; j < i; j++)
            if ((data[i] == data[j]) != ((int)j == cases[i].same_as)) fail_msg("%s and %s", cases[i].id, cases[j].id);
    }
    close_session();
}

/* ha_alloc, which has no memory at one of its calls. */
static size_t allocs_left = SIZE_MAX;
void *__real_ha_alloc(struct ha_arena *arena, size_t bytes, enum ha_tag tag, struct ha_why *why);
void *__wrap_ha_alloc(struct ha_arena *arena, size_t bytes, enum ha_tag tag, struct ha_why *why);
void *__wrap_ha_alloc(struct ha_arena *arena, size_t bytes, enum ha_tag tag, struct ha_why *why)
{
    if (__atomic_fetch_sub(&allocs_left, 1, __ATOMIC_RELAXED) > 0) return __real_ha_alloc(arena, bytes, tag, why);
    ha_why(why, HA_ERROR, "no memory");
    return NULL;
}

static void checks_out(void)
{
    struct ha_check c = { .session = &session, .id = "the case" };
    assert_ok(ha_check_run(&c, &reason));
    ha_check_free(&c);
}

/* A session that could not be opened is closed, the next one gets all of its data, and others' data stay. */
TEST(half_filled_data_serve_nobody)
{
    struct ha_case c;
    size_t failed = 0;
    open_session(SMALL);
    const struct ha_workload *small = session.workload;
    assert_ok(ha_case_parse("cpu:ctx=70+3,layers=2,steps=2,heads=4/2,head_dim=64,observed=4", &c, &reason));
    for (;; failed++) {
        ha_session_close(&session);
        allocs_left = failed;
        *reason.text = 0;
        const enum ha_status status = ha_session_open(&session, &opened.shared, &c, NULL, &reason);
        allocs_left = SIZE_MAX;
        if (status == HA_OK) break;
        assert_contains(reason.text, "no memory");
        assert_true(!session.workload && !session.pool && !session.worker && !session.stream && !session.arena);
        ha_session_close(&session); /* which is nothing */
        assert_ok(ha_session_open(&session, &opened.shared, &c, NULL, &reason));
        checks_out();
        ha_session_close(&session);
        assert_ptr_equal(opened.shared.workload[failed + 1], small);
        c.seed++; /* the next time they are filled anew */
    }
    checks_out();
    assert_true(failed >= 3 + 3 * 2 * 2); /* lists, and K, V and queries of two layers of two sequences */
    close_session();
}

/* As many as are kept, and one more: it has its own, in place of the oldest. */
TEST(data_are_kept_for_so_many)
{
    struct ha_case c;
    open_session("cpu:ctx=5,heads=1/1,head_dim=8,layers=1,steps=1,seed=0");
    for (uint64_t seed = 1; seed <= HA_WORKLOADS_KEPT; seed++) {
        c = opened.c;
        c.seed = seed;
        ha_session_close(&session);
        assert_ok(ha_session_open(&session, &opened.shared, &c, NULL, &reason));
        assert_int_equal(session.workload->seed, seed);
    }
    for (size_t i = 0; i < HA_WORKLOADS_KEPT; i++)
        assert_int_equal(opened.shared.workload[i]->seed, HA_WORKLOADS_KEPT - i);
    close_session();
}

/* What would fill the memory is not kept beside others, whether it could be opened or not. */
TEST(large_data_are_kept_alone)
{
    struct ha_case c;
    open_session(SMALL);
    ha_session_close(&session);
    assert_ok(ha_case_parse("cpu:ctx=4000000000,layers=1000", &c, &reason));
    assert_int_equal(ha_session_open(&session, &opened.shared, &c, NULL, &reason), HA_ERROR);
    assert_contains(reason.text, "needs ");
    assert_non_null(opened.shared.workload[0]);
    assert_null(opened.shared.workload[1]);
    close_session();
}

/* A device that computes on the host keeps one core. */
TEST(threads_leave_a_core_to_the_device)
{
    cpu_set_t allowed;
    char id[4200];
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    const size_t cores = (size_t)CPU_COUNT(&allowed);
    open_session("cpu:ctx=5,layers=1");
    assert_true(session.info.compute_threads > 0);
    assert_int_equal(ha_pool_threads(session.pool), cores > 1 ? cores - 1 : 1);
    close_session();
    snprintf(id, sizeof id, "cpu:ctx=5,layers=1,device=%s", beside_as_value("../ha_null.so"));
    open_session(id);
    assert_int_equal(session.info.compute_threads, 0);
    assert_int_equal(ha_pool_threads(session.pool), cores);
    close_session();
    open_session("cpu:ctx=5,layers=1,threads=3");
    assert_int_equal(ha_pool_threads(session.pool), 3);
    close_session();
}
