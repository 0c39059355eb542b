#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/pool.h"
#include "harness/base/sanitizer.h"
#include "harness/base/worker.h"
#include "suites/variants/check.h"
#include "suites/variants/faults.h"
#include "suites/variants/movement.h"
#include "suites/variants/test_session.h"

/* ---- results ----------------------------------------------------------------------------------------------------- */

static uint64_t bits; /* of all outputs of the last check, a hash */

static void add_bits(void *arg, size_t step, size_t layer, const struct ha_accuracy *accuracy)
{
    const unsigned char *out = session.host_out + layer * session.io.out_bytes;
    for (size_t i = 0; i < session.io.out_bytes; i++) bits = (bits ^ out[i]) * UINT64_C(1099511628211);
}

/* The verdict, of results alone. movement: NULL, or a defect; faults: NULL, or the seed. Two passes, each with delays
 * of its own. */
static enum ha_status judge(const char *id, const struct ha_movement *movement, const uint64_t *faults)
{
    const struct ha_mutant mutant = { .name = "", .movement = movement };
    struct test_session *t = &opened;
    *t = (struct test_session){ 0 };
    assert_ok(ha_case_parse(id, &t->c, &reason));
    assert_ok(ha_machine_create(&t->machine, NULL, &reason));
    assert_ok(ha_shared_open(&t->shared, t->machine, false, &reason));
    t->shared.faults = faults;
    assert_ok(ha_session_open(&session, &t->shared, &t->c, movement ? &mutant : NULL, &reason));
    struct ha_check check = { .session = &session, .id = id, .layer_done = add_bits, .repeats = 1 };
    bits = 0;
    const enum ha_status status = ha_check_run(&check, &reason);
    ha_check_free(&check);
    close_session();
    return status;
}

enum { SEEDS = HA_SANITIZED ? 1 : 2 };

TEST(delays_change_no_result)
{
    static const char *const id[] = {
        "resident:ctx=40,heads=4/2,head_dim=64,layers=2,steps=3,seed=5",
        "offload:ctx=60,heads=4/2,head_dim=64,layers=2,steps=3,seed=5",
        "cpu:ctx=40,heads=4/2,head_dim=64,layers=2,steps=3,seed=5",
        "hgca:ctx=60,heads=4/2,head_dim=64,layers=2,steps=6,seed=5,blk_size=4,blk_num=15,beta=-1",
        "hgca:ctx=40,batch=2,heads=4/2,head_dim=64,layers=1,steps=9,seed=5,blk_size=16,blk_num=4,team=own",
        "hybrid_fixed:ctx=90,heads=4/2,head_dim=64,layers=2,steps=6,seed=5,sink=8,recent=16,budget=0.5",
        "fluxion:ctx=200,heads=6/6,head_dim=64,layers=2,steps=3,seed=5,threads=1,sink=8,recent=16,predict=fixed,"
        "schedule=uniform,fetch=move",
        "fluxion:dataset=walk,ctx=200,heads=4/2,head_dim=64,layers=2,steps=3,seed=5,sink=8,recent=16,predict=oracle,"
        "schedule=length",
        "streaming:ctx=40,heads=4/2,head_dim=64,layers=2,steps=3,seed=5",
        "clo:dataset=walk,ctx=100+60,heads=4/2,head_dim=64,layers=3,steps=6,seed=5,recent=8,budget=0.3,eta=0.95",
        "clo:dataset=walk,ctx=100+60,heads=4/2,head_dim=64,layers=3,steps=6,seed=5,recent=8,budget=0.3,eta=0.95,"
        "transfer=gather,retrieve=quest,predict=cpu",
        "clo:dataset=walk,ctx=100+60,heads=4/2,head_dim=64,layers=3,steps=6,seed=5,recent=8,budget=0.3,eta=0.95,"
        "transfer=kernel,prefetch=0",
        "clo:dataset=walk,ctx=100+60,heads=4/2,head_dim=64,layers=3,steps=6,seed=5,recent=8,budget=0.3,eta=0.95,"
        "transfer=pieces,sync=cpu",
    };
    for (size_t i = 0; i < COUNT(id); i++) {
        assert_int_equal(judge(id[i], NULL, NULL), HA_OK);
        const uint64_t without = bits;
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            if (judge(id[i], NULL, &seed) != HA_OK) fail_msg("%s, seed %zu: %s", id[i], (size_t)seed, reason.text);
            assert_true(bits == without);
        }
    }
}

/* A session of one CPU thread with delays, or without. */
static void open_delayed(const uint64_t *faults)
{
    opened = (struct test_session){ 0 };
    assert_ok(ha_case_parse("offload:ctx=9,heads=1/1,head_dim=64,layers=1,steps=1,threads=1", &opened.c, &reason));
    assert_ok(ha_machine_create(&opened.machine, NULL, &reason));
    assert_ok(ha_shared_open(&opened.shared, opened.machine, false, &reason));
    opened.shared.faults = faults;
    assert_ok(ha_session_open(&session, &opened.shared, &opened.c, NULL, &reason));
}

/* That of the first pass NaN, that of those that repeat it large numbers. */
TEST(memory_of_every_kind_is_filled)
{
    static const enum ha_memory kind[] = { HA_MEM_DEVICE, HA_MEM_PINNED, HA_MEM_MAPPED };
    const uint64_t seed = 1;
    struct ha_pass pass;
    open_delayed(&seed);
    for (size_t again = 0; again < 2; again++) {
        if (again) assert_ok(ha_pass_again(&pass, &session, session.variant, session.param, NULL, false, &reason));
        else begin_pass(&pass, true);
        for (size_t i = 0; i < COUNT(kind); i++) {
            const unsigned char *held = ha_device_alloc(pass.device_arena, kind[i], 1000, HA_TAG_SCRATCH, &reason);
            assert_non_null(held);
            for (size_t b = 0; b < 1000; b++) assert_int_equal(held[b], again ? HA_HELD_NUMBERS : HA_HELD_NAN);
        }
        assert_ok(ha_pass_end(&pass, HA_OK, &reason));
    }
    close_session();
}

static void nothing(void *arg, size_t task, size_t worker) { (void)arg, (void)task, (void)worker; }
static void no_job(void *arg) { (void)arg; }

/* Of 2000 tasks some 125 sleep for 180 us on average, of 200 jobs some 50. */
TEST(operations_tasks_and_jobs_of_a_session_are_delayed)
{
    enum { TASKS = 2000, JOBS = 200, LEAST_NS = 2000000 };
    const uint64_t seed = 0;
    uint64_t ticket = 0;
    open_delayed(NULL);
    assert_ptr_equal(session.variant_api->flag_wait, session.api->flag_wait);
    close_session();
    open_delayed(&seed);
    assert_ptr_not_equal(session.variant_api->flag_wait, session.api->flag_wait);
    const uint64_t begin_ns = ha_now_ns();
    ha_pool_run(session.pool, "nothing", TASKS, nothing, NULL);
    const uint64_t tasks_ns = ha_now_ns();
    for (size_t i = 0; i < JOBS; i++) ticket = ha_worker_submit(session.worker, "nothing", no_job, NULL);
    ha_worker_wait(session.worker, ticket);
    assert_true(tasks_ns - begin_ns >= LEAST_NS && ha_now_ns() - tasks_ns >= LEAST_NS);
    close_session();
}

/* ---- what luck hides --------------------------------------------------------------------------------------------- */

/* Whether the results of a defect can be wrong at all: not where the same bytes come twice, or are loaded over
 * themselves; nor where what is recorded of a step is waited for, and so is what the defect does not wait for. */
static bool shows(const struct ha_mutant *m)
{
    static const char *const hidden[] = { "load_over_attention", "wait_on_main", "one_place_twice",
                                          "precompute_before_choice", "recall_before_choice" };
    for (size_t i = 0; i < COUNT(hidden); i++)
        if (!strcmp(m->name, hidden[i])) return false;
    return m->movement && m->order;
}

/* By results alone, no matter how busy the host is: luck holds once, and not with all of so many seeds. */
TEST(each_defect_of_movement_that_shows_is_seen_by_some_seed)
{
    enum { SEEDS_MAX = 60 };
    if (HA_SANITIZED) skip();
    size_t with = 0, without = 0, runs = 0;
    const struct ha_mutant *m;
    for (size_t i = 0; (m = ha_mutant_at(i)); i++) {
        uint64_t seed = 1;
        if (!shows(m)) continue;
        while (seed <= SEEDS_MAX && judge(m->id, m->movement, &seed) != HA_FAIL) seed++;
        if (seed > SEEDS_MAX) fail_msg("%s: right %d times", m->name, SEEDS_MAX);
        with++;
        for (uint64_t k = 0; k < seed; k++, runs++) without += judge(m->id, m->movement, NULL) == HA_FAIL;
    }
    assert_int_equal(with, 24);
    print_message("wrong in %zu runs: %zu with delays, %zu without\n", runs, with, without);
}

/* Of so many times that a copy has 900 us before another one reads what it wrote, and nothing orders them, how often
 * the other one is first. */
static size_t too_early(const struct ha_device_api *api, struct ha_device *device, size_t times, size_t enough)
{
    struct ha_stream *a, *b;
    void *x, *y, *z;
    size_t n = 0;
    assert_ok(api->stream_create(device, "a", &a, &reason));
    assert_ok(api->stream_create(device, "b", &b, &reason));
    assert_ok(api->mem_alloc(device, HA_MEM_PINNED, sizeof(uint32_t), &x, &reason));
    assert_ok(api->mem_alloc(device, HA_MEM_DEVICE, sizeof(uint32_t), &y, &reason));
    assert_ok(api->mem_alloc(device, HA_MEM_PINNED, sizeof(uint32_t), &z, &reason));
    for (uint32_t i = 1; i <= times && n < enough; i++) {
        memcpy(x, &i, sizeof i);
        assert_int_equal(api->copy(a, y, x, sizeof i, HA_H2D), HA_OK);
        assert_int_equal(api->spin(b, 900000), HA_OK);
        assert_int_equal(api->copy(b, z, y, sizeof i, HA_D2H), HA_OK);
        assert_int_equal(api->stream_sync(b), HA_OK);
        assert_int_equal(api->stream_sync(a), HA_OK);
        n += memcmp(x, z, sizeof i) != 0;
    }
    api->stream_destroy(a);
    api->stream_destroy(b);
    api->mem_free(device, HA_MEM_PINNED, x);
    api->mem_free(device, HA_MEM_DEVICE, y);
    api->mem_free(device, HA_MEM_PINNED, z);
    return n;
}

TEST(a_pause_lasts_longer_than_luck)
{
    const struct ha_device_api *api;
    struct ha_device *device;
    if (HA_TSAN) skip(); /* which reports what is planted */
    opened = (struct test_session){ 0 };
    assert_ok(ha_machine_create(&opened.machine, NULL, &reason));
    assert_ok(ha_machine_device(opened.machine, "host", NULL, &api, &device, &reason));
    const size_t without = too_early(api, device, 20, 20);
    assert_int_equal(too_early(ha_faults_wrap(api, 1), device, 2000, 1), 1);
    print_message("without delays too early %zu times of 20\n", without);
    ha_machine_destroy(opened.machine);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* What a table that does nothing is asked for, in order. */
enum { ASKED_MAX = 4096, OPERATION = 1 }; /* OPERATION: that of the variant; else the length of a pause, in ns */
static struct {
    uint64_t of[ASKED_MAX];
    size_t count;
} asked;

static enum ha_status ask(uint64_t what)
{
    assert_true(asked.count < ASKED_MAX);
    asked.of[asked.count++] = what;
    return HA_OK;
}

static enum ha_status spin(struct ha_stream *s, uint64_t ns) { return ask(ns); }
static enum ha_status host_fn(struct ha_stream *s, void (*fn)(void *arg), void *arg)
{
    return ask(fn ? (uintptr_t)arg : OPERATION); /* the variant's own here is NULL */
}
static enum ha_status event(struct ha_event *e, struct ha_stream *s) { return ask(OPERATION); }
static enum ha_status await(struct ha_stream *s, struct ha_event *e) { return ask(OPERATION); }
static enum ha_status copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    return ask(OPERATION);
}
static enum ha_status copy_2d(struct ha_stream *s, void *dst, size_t dst_stride, const void *src, size_t src_stride,
                              size_t row_bytes, size_t rows, enum ha_direction dir)
{
    return ask(OPERATION);
}
static enum ha_status pieces(struct ha_stream *s, const struct ha_device_pieces *p, enum ha_direction dir)
{
    return ask(OPERATION);
}
static enum ha_status flag(struct ha_stream *s, uint32_t *at, uint32_t value) { return ask(OPERATION); }
static enum ha_status await_flag(struct ha_stream *s, const uint32_t *at, uint32_t value) { return ask(OPERATION); }
static enum ha_status attend(struct ha_stream *s, const struct ha_device_attend *args) { return ask(OPERATION); }
static enum ha_status merge(struct ha_stream *s, const struct ha_merge *args) { return ask(OPERATION); }
static enum ha_status blend(struct ha_stream *s, const struct ha_device_blend *args) { return ask(OPERATION); }
static enum ha_status product(struct ha_stream *s, const struct ha_device_product *args) { return ask(OPERATION); }
static enum ha_status move(struct ha_stream *s, const struct ha_device_move *args) { return ask(OPERATION); }
static enum ha_status sum(struct ha_stream *s, const void *ptr, size_t bytes, uint32_t *to) { return ask(OPERATION); }
static enum ha_status launch(struct ha_graph *g, struct ha_stream *s) { return ask(OPERATION); }

static const struct ha_device_api table = {
    .struct_bytes = sizeof table,
    .event_record = event,
    .stream_wait = await,
    .copy = copy,
    .copy_2d = copy_2d,
    .copy_pieces = pieces,
    .flag_write = flag,
    .flag_wait = await_flag,
    .host_fn = host_fn,
    .attend = attend,
    .attend_products = attend,
    .merge = merge,
    .blend = blend,
    .product = product,
    .move = move,
    .read = sum,
    .graph_launch = launch,
    .spin = spin,
};

/* Each operation that there is, once, on one stream. */
static size_t ask_all(const struct ha_device_api *api)
{
    uint32_t word;
    struct ha_stream *s = (struct ha_stream *)(void *)&word;
    api->event_record(NULL, s);
    api->stream_wait(s, NULL);
    api->copy(s, NULL, NULL, 0, HA_H2D);
    api->copy_2d(s, NULL, 0, NULL, 0, 0, 0, HA_H2D);
    api->copy_pieces(s, NULL, HA_H2D);
    api->flag_write(s, NULL, 0);
    api->flag_wait(s, NULL, 0);
    api->host_fn(s, NULL, NULL);
    api->attend(s, NULL);
    api->attend_products(s, NULL);
    api->merge(s, NULL);
    api->blend(s, NULL);
    api->product(s, NULL);
    api->move(s, NULL);
    api->read(s, NULL, 0, NULL);
    api->graph_launch(NULL, s);
    return 16;
}

/* The only stream is always the slow one. */
TEST(each_operation_has_a_pause_before_it)
{
    asked.count = 0;
    const size_t operations = ask_all(ha_faults_wrap(&table, 7));
    assert_int_equal(asked.count, 2 * operations);
    for (size_t i = 0; i < asked.count; i += 2) {
        assert_in_range(asked.of[i], 1000, 4000000);
        assert_int_equal(asked.of[i + 1], OPERATION);
    }
    assert_null(ha_faults_wrap(&(struct ha_device_api){ .struct_bytes = sizeof table }, 7)->copy);
}

TEST(without_spin_and_host_functions_nothing_pauses)
{
    struct ha_device_api bare = table;
    bare.spin = NULL;
    asked.count = 0;
    for (size_t i = 0; i < 2; i++) {
        const struct ha_device_api *api = ha_faults_wrap(&bare, 7);
        assert_int_equal(api->copy((struct ha_stream *)(void *)&bare, NULL, NULL, 0, HA_H2D), HA_OK);
        assert_int_equal(asked.count, i ? 3 : 2);
        bare.host_fn = NULL;
    }
}

/* Copies on three streams in turns. */
static uint64_t sequence(uint64_t seed)
{
    const struct ha_device_api *api = ha_faults_wrap(&table, seed);
    static uint32_t stream[3];
    uint64_t hash = 0;
    asked.count = 0;
    for (size_t i = 0; i < 600; i++) api->copy((struct ha_stream *)(void *)&stream[i % 3], NULL, NULL, 0, HA_H2D);
    assert_in_range(asked.count, 700, 900); /* of 600 copies a third pauses: 800 */
    for (size_t i = 0; i < asked.count; i++) hash = (hash ^ asked.of[i]) * UINT64_C(1099511628211);
    return hash;
}

TEST(a_seed_is_its_delays)
{
    const uint64_t first = sequence(1);
    assert_true(sequence(1) == first);
    assert_true(sequence(2) != first && sequence(UINT64_MAX) != first);
}
