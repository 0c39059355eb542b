#include "harness/base/order_api.h"
#include "suites/variants/check.h"
#include "suites/variants/movement.h"
#include "suites/variants/test_session.h"

/* The verdict on a variant with a defect, or without. */
static enum ha_status judge(const char *id, const struct ha_movement *movement, bool order)
{
    const struct ha_mutant mutant = { .name = "", .movement = movement };
    struct test_session *t = &opened;
    *t = (struct test_session){ 0 };
    assert_ok(ha_case_parse(id, &t->c, &reason));
    assert_ok(ha_machine_create(&t->machine, NULL, &reason));
    assert_ok(ha_shared_open(&t->shared, t->machine, false, &reason));
    t->shared.order = order;
    assert_ok(ha_session_open(&session, &t->shared, &t->c, movement ? &mutant : NULL, &reason));
    struct ha_check check = { .session = &session, .id = id };
    const enum ha_status status = ha_check_run(&check, &reason);
    ha_check_free(&check);
    close_session();
    return status;
}

enum { ROUNDS = HA_SANITIZED ? 1 : 5 };

static const struct ha_mutant *find(const char *name)
{
    const struct ha_mutant *m = ha_mutant_find(name);
    if (!m) fail_msg("no mutant %s", name);
    return m;
}

/* ---- defects ----------------------------------------------------------------------------------------------------- */

/* By one run each, whatever the time. */
TEST(each_defect_of_movement_is_seen_every_time)
{
    if (HA_TSAN) skip(); /* which reports what is planted */
    size_t seen = 0;
    const struct ha_mutant *m;
    for (size_t i = 0; (m = ha_mutant_at(i)); i++) {
        for (size_t round = 0; m->movement && round < ROUNDS; round++, seen++) {
            if (judge(m->id, m->movement, m->order) != HA_FAIL || !strstr(reason.text, m->shown))
                fail_msg("%s, round %zu: %s", m->name, round, reason.text);
        }
    }
    assert_int_equal(seen, 31 * ROUNDS);
}

/* Two copies of the same bytes: whatever comes last, the output is right. */
TEST(right_bytes_do_not_excuse_a_conflict)
{
    if (HA_TSAN) skip(); /* which reports what is planted */
    const struct ha_mutant *m = find("one_place_twice");
    assert_int_equal(judge(m->id, m->movement, false), HA_OK);
    assert_int_equal(judge(m->id, m->movement, true), HA_FAIL);
    assert_non_null(strstr(reason.text, "order: write of destination by copy on post (step 23 layer 0), write of "
                                        "destination by copy on main (step 23 layer 0): nothing orders them"));
}

TEST(nothing_is_watched_unless_it_is_asked_for)
{
    assert_int_equal(judge(find("load_over_attention")->id, NULL, false), HA_OK);
    assert_null(ha_order_now());
    assert_int_equal(judge(find("load_over_attention")->id, NULL, true), HA_OK);
    assert_null(ha_order_now());
}

/* ---- every wait -------------------------------------------------------------------------------------------------- */

/* Two layers, and a block of each that leaves the ring of hgca, or the tail of hybrid_fixed. A check runs all steps
 * twice: with a wait of the host between two of them, and without. */
#define OFFLOAD "offload:ctx=60,heads=4/2,head_dim=64,layers=2,steps=4,seed=5"
#define HGCA    "hgca:ctx=60,heads=4/2,head_dim=64,layers=2,steps=6,seed=5,blk_size=4,blk_num=15,beta=-1"
#define HYBRID  "hybrid_fixed:ctx=70,heads=4/2,head_dim=64,layers=2,steps=6,seed=5,sink=8,recent=0,budget=0.5"
#define FLUXION                                                                                                   \
    "fluxion:ctx=200,heads=6/6,head_dim=64,layers=2,steps=3,seed=5,threads=1,sink=16,recent=32,schedule=uniform," \
    "predict=fixed,budget=0.3,fetch="

#define LRU                                                                                                            \
    "lru_blocks:dataset=iid,ctx=100,heads=4/2,head_dim=64,layers=2,steps=4,seed=5,block=8,sink=4,recent=8,budget=0.3," \
    "capacity=1.4,lookup="

#define PQCACHE                                                                                  \
    "pqcache:dataset=iid,ctx=100,heads=4/2,head_dim=64,layers=2,steps=4,seed=5,c=16,budget=0.3," \
    "capacity=1.4,lookup="

/* Each wait is left out by itself: for each event how many of its waits there are, and which of them another path of
 * order stands for: "4: 1 2". The others are seen. Under a sanitizer the first wait of each event alone. */
static void assert_redundant(const char *id, const char *const *expected)
{
    const struct ha_movement none = { .left_out = SIZE_MAX };
    size_t count[32], events = 0;
    assert_int_equal(judge(id, &none, true), HA_OK);
    while (ha_movement_waits(events) != SIZE_MAX) {
        count[events] = ha_movement_waits(events);
        events++;
    }
    for (size_t event = 0; event < events; event++) {
        char list[128];
        snprintf(list, sizeof list, "%zu:", count[event]);
        for (size_t i = 1; i <= count[event] && !(HA_SANITIZED && i > 1); i++) {
            const struct ha_movement without = { .left_out = i, .for_event = event };
            const enum ha_status status = judge(id, &without, true);
            assert_true(status == HA_OK || (status == HA_FAIL && !strncmp(reason.text, "order: ", 7)));
            if (status == HA_OK) snprintf(list + strlen(list), sizeof list - strlen(list), " %zu", i);
        }
        assert_non_null(expected[event]);
        if (HA_SANITIZED) assert_memory_equal(list, expected[event], strlen(list));
        else assert_string_equal(list, expected[event]);
    }
    assert_null(expected[events]);
}

TEST(each_wait_of_offload_is_needed_or_listed)
{
    if (HA_TSAN) skip(); /* which reports what is planted */
    /* stored, of each layer: the wait for the buffer's last use covers it, but where there is one layer alone
     * (load_before_store of the gallery); loaded; used, of each buffer: the first wait of a pass finds nothing
     * recorded, and those of the second buffer are covered by the host's wait between two steps, where it waits */
    const char *const expected[] = {
        "10: 1 2 3 4 5 6 7 8 9 10", "8: 1 2 3 4 5 6 7 8", "8:", "10: 1 6", "8:", "8: 1 2 3 4 5", NULL
    };
    assert_redundant(OFFLOAD, expected);
}

TEST(each_wait_of_hgca_is_needed_or_listed)
{
    if (HA_TSAN) skip(); /* which reports what is planted */
    /* attended; settled, of each layer: the first wait of a pass finds nothing recorded, and behind an eviction the
     * host has waited for the background, which had waited for the event; arrived */
    const char *const expected[] = { "12:", "14: 1 6 8 13", "12:", "14: 1 6 8 13", "24:", NULL };
    assert_redundant(HGCA, expected);
}

TEST(each_wait_of_hybrid_fixed_is_needed_or_listed)
{
    if (HA_TSAN) skip(); /* which reports what is planted */
    /* attended, of each layer: needed where a block leaves, in the second step of a pass; settled: there the background
     * waits for it, and the layer's next step for the background; arrived */
    const char *const attended = "12: 1 3 4 5 6 7 9 10 11 12", *const left = "14: 1 2 4 5 6 7 8 9 11 12 13 14",
                      *const expected[] = { attended, left, attended, left, "24:", NULL };
    assert_redundant(HYBRID, expected);
}

/* A layer's first and third of three tasks of the device have one lane, the second has the other; in the next layer
 * they change. The host waits for a lane before it is used again, and finds no task left for the other one; then the
 * main stream waits for each. Of two waits behind the last task of a lane either is enough. */
TEST(each_wait_of_fluxion_is_needed_or_listed)
{
    if (HA_TSAN) skip(); /* which reports what is planted */
    /* done, of a lane; copied, in it, which done stands for; arrived */
    const char *const copied = "18: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18", *const moves[] = {
        "24: 3 4 7 8 11 12 15 16 19 20 23 24", copied, "24: 1 2 5 6 9 10 13 14 17 18 21 22", copied, "12:", NULL
    };
    assert_redundant(FLUXION "move", moves);
    /* nothing of a lane is written again: what the host waits for is that it may take a task */
    const char *const reads[] = { "24: 1 3 4 5 7 8 9 11 12 13 15 16 17 19 20 21 23 24",
                                  "24: 1 2 3 5 6 7 9 10 11 13 14 15 17 18 19 21 22 23", "12:", NULL };
    assert_redundant(FLUXION "zero_copy", reads);
}

TEST(each_wait_of_lru_blocks_is_needed_or_listed)
{
    if (HA_TSAN) skip(); /* which reports what is planted */
    /* two of fetches, which pieces do not wait for; merged: nothing follows the last one of a pass; came and attended,
     * of each layer; two that time the choice, in front of that for the list; of a choice that comes down by itself */
    const char *const timed = "16: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16", *const expected[] = {
        "0:", "0:", "16: 8 16", "8:", "8:", "8:", "8:", timed, timed, "0:", NULL
    };
    assert_redundant(LRU "cpu", expected);
    assert_redundant(LRU "device", expected);
}

TEST(each_wait_of_pqcache_is_needed_or_listed)
{
    if (HA_TSAN) skip(); /* which reports what is planted */
    /* those of lru_blocks, but for a choice that comes down by itself */
    const char *const timed = "16: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16", *const expected[] = {
        "0:", "0:", "16: 8 16", "8:", "8:", "8:", "8:", timed, timed, NULL
    };
    assert_redundant(PQCACHE "cpu", expected);
    assert_redundant(PQCACHE "device", expected);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* What each test starts with: two streams of the embedded device, and memory that both use. */
static const struct ha_device_api *api;
static struct ha_device *device;
static struct ha_stream *a, *b;
static float *x, *y;
static uint32_t *word;

static void *memory_of(enum ha_memory kind, size_t bytes)
{
    void *ptr = NULL;
    assert_ok(api->mem_alloc(device, kind, bytes, &ptr, &reason));
    return memset(ptr, 0, bytes);
}

static int start(void **state)
{
    opened = (struct test_session){ 0 };
    assert_ok(ha_machine_create(&opened.machine, NULL, &reason));
    assert_ok(ha_machine_device(opened.machine, "host", NULL, &api, &device, &reason));
    assert_ok(ha_order_begin(&reason));
    api = ha_order_wrap(api);
    assert_ok(api->stream_create(device, "a", &a, &reason));
    assert_ok(api->stream_create(device, "b", &b, &reason));
    x = memory_of(HA_MEM_DEVICE, 1024);
    y = memory_of(HA_MEM_DEVICE, 1024);
    word = memory_of(HA_MEM_MAPPED, 64);
    return 0;
}

static int finish(void **state)
{
    api->stream_destroy(a);
    api->stream_destroy(b);
    api->mem_free(device, HA_MEM_DEVICE, x);
    api->mem_free(device, HA_MEM_DEVICE, y);
    api->mem_free(device, HA_MEM_MAPPED, word);
    ha_order_end();
    ha_machine_destroy(opened.machine);
    return 0;
}

static enum ha_status verdict(void) { return ha_order_verdict(ha_order_now(), &reason); }
static void enqueue(enum ha_status status) { assert_int_equal(status, HA_OK); }

/* y = x, in each way that there is */
static enum ha_status by_copy(struct ha_stream *s) { return api->copy(s, y, x, 64, HA_D2D); }
static enum ha_status by_copy_2d(struct ha_stream *s) { return api->copy_2d(s, y, 32, x, 32, 16, 4, HA_D2D); }
static enum ha_status by_pieces(struct ha_stream *s)
{
    void *const dst[] = { y, y + 8 };
    const void *const src[] = { x, x + 8 };
    const size_t bytes[] = { 16, 16 };
    return api->copy_pieces(s, &(struct ha_device_pieces){ dst, src, bytes, 2 }, HA_D2D);
}
static enum ha_status by_move(struct ha_stream *s)
{
    return api->move(
        s, &(struct ha_device_move){
               .dst = y, .src = x, .rows = 4, .row_bytes = 16, .dst_stride_bytes = 16, .src_stride_bytes = 16 });
}
static enum ha_status by_blend(struct ha_stream *s)
{
    return api->blend(s, &(struct ha_device_blend){ .y = y, .x = x, .rows = 1, .cols = 8, .b = 1 });
}
static enum ha_status by_merge(struct ha_stream *s)
{
    const struct ha_merge_state in = { x, x + 16, NULL, 8, 8, 1, 1 }, out = { y, y + 16, NULL, 8, 8, 1, 1 };
    return api->merge(s, &(struct ha_merge){ .form = HA_FORM_NATURAL,
                                             .dtype = HA_F32,
                                             .states = &in,
                                             .states_count = 1,
                                             .tokens = 1,
                                             .heads = 1,
                                             .dim = 8,
                                             .out = out });
}
static enum ha_status by_attention(struct ha_stream *s)
{
    const struct ha_device_seq seq = {
        .q = x, .o = y, .lse = y + 16, .runs_count = 1, .runs = { { x + 16, x + 32, 32, 32, NULL, 1 } }
    };
    return api->attend(s, &(struct ha_device_attend){ .batch = 1,
                                                      .q_len = 1,
                                                      .q_heads = 1,
                                                      .kv_heads = 1,
                                                      .head_dim = 8,
                                                      .dtype = HA_F32,
                                                      .scale = 1,
                                                      .seqs = &seq });
}
static enum ha_status by_read(struct ha_stream *s) { return api->read(s, x, 64, (uint32_t *)(void *)y); }

static enum ha_status (*const moves[])(struct ha_stream *) = { by_copy,  by_copy_2d, by_pieces,    by_move,
                                                               by_blend, by_merge,   by_attention, by_read };

TEST(each_operation_says_what_it_reads_and_writes)
{
    if (HA_TSAN) skip(); /* which reports what is planted */
    for (size_t i = 0; i < COUNT(moves); i++)
        for (size_t way = 0; way < 3; way++) {
            start(NULL);
            enqueue(moves[i](a));
            if (way == 2) enqueue(api->stream_sync(a));
            enqueue(way ? api->copy(b, x, word, 64, HA_H2D) : api->copy(b, word, y, 64, HA_D2H));
            assert_int_equal(verdict(), way == 2 ? HA_OK : HA_FAIL);
            assert_true(way == 2 || strstr(reason.text, way ? "read of " : "write of "));
            finish(NULL);
        }
}

/* The CPU's kernels do nothing here; what they would do is said all the same. */
static void attend_all_of(const struct ha_kernels *self, const struct ha_attend_all *all) { (void)self, (void)all; }
static void attend_of(const struct ha_kernels *self, const struct ha_attend *args) { (void)self, (void)args; }
static void pack_of(const struct ha_pack *p) { (void)p; }
static void unpack_of(const struct ha_unpack *u) { (void)u; }
static void digest_of(const struct ha_digest *d) { (void)d; }

TEST(the_kernels_of_the_cpu_say_it_too)
{
    static float blocks[4096];
    for (size_t i = 0; i < 5; i++) {
        start(NULL);
        struct ha_kernels k = {
            .attend_all = attend_all_of, .attend = attend_of, .pack = pack_of, .unpack = unpack_of, .digest = digest_of
        };
        ha_order_wrap_cpu(&k);
        const struct ha_attend attend = { .q = y, .q_len = 1, .group = 1, .head_dim = 8, .o = blocks, .lse = blocks };
        const struct ha_rows rows = { y, y + 8, 32, 32, NULL, 1 };
        enqueue(api->copy(a, y, x, 64, HA_D2D));
        if (i == 0) k.attend(&k, &attend);
        if (i == 1) k.attend_all(&k, &(struct ha_attend_all){ .units = &attend, .count = 1 });
        if (i == 2) k.pack(&(struct ha_pack){ .blocks = blocks, .rows = rows, .head_dim = 8 });
        if (i == 3) k.unpack(&(struct ha_unpack){ .blocks = blocks, .keys = 1, .head_dim = 8, .k = y, .v = y + 8 });
        if (i == 4)
            k.digest(&(struct ha_digest){ .digests = blocks, .blocks = 1, .unit = 16, .rows = rows, .head_dim = 8 });
        assert_int_equal(verdict(), HA_FAIL);
        finish(NULL);
    }
}

TEST_WITH(events_order_streams_and_the_host, start, finish)
{
    struct ha_event *event;
    assert_ok(api->event_create(device, &event, &reason));
    enqueue(by_copy(a));
    enqueue(api->event_record(event, a));
    enqueue(api->stream_wait(b, event));
    enqueue(by_copy(b));
    enqueue(api->event_record(event, b));
    enqueue(api->event_sync(event));
    ha_order_thread_access("read", "y", HA_READ, y, 1, 0, 64);
    assert_int_equal(verdict(), HA_OK);
    api->event_destroy(event);
}

TEST_WITH(a_flag_orders_what_is_behind_it, start, finish)
{
    enqueue(by_copy(a));
    enqueue(api->flag_write(a, word, 1));
    enqueue(api->flag_wait(b, word, 1));
    enqueue(by_copy(b));
    assert_int_equal(verdict(), HA_OK);
}

/* The host's store is not seen: nothing is claimed of the stream until somebody waits for it. */
TEST_WITH(of_a_flag_that_the_host_writes_nothing_is_claimed, start, finish)
{
    enqueue(api->flag_wait(b, word, 1));
    enqueue(by_copy(b));
    enqueue(by_copy(a));
    enqueue(api->stream_sync(a));
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    enqueue(api->stream_sync(b));
    assert_int_equal(verdict(), HA_OK);
    enqueue(by_copy(b));
    ha_order_thread_access("read", "y", HA_READ, y, 1, 0, 64);
    assert_int_equal(verdict(), HA_FAIL);
}

TEST_WITH(a_graph_counts_where_it_is_launched, start, finish)
{
    struct ha_graph *graph;
    enqueue(api->graph_begin(a));
    enqueue(by_copy(a));
    assert_ok(api->graph_end(a, &graph, &reason));
    ha_order_thread_access("read", "y", HA_READ, y, 1, 0, 64);
    assert_int_equal(verdict(), HA_OK); /* nothing was done */
    enqueue(api->graph_launch(graph, b));
    ha_order_thread_access("read", "y", HA_READ, y, 1, 0, 64);
    assert_int_equal(verdict(), HA_FAIL);
    assert_non_null(strstr(reason.text, "write of destination by copy on b"));
    enqueue(api->stream_sync(b));
    api->graph_destroy(graph);
}

TEST_WITH(memory_is_not_freed_under_a_copy, start, finish)
{
    void *z = memory_of(HA_MEM_DEVICE, 64);
    enqueue(api->copy(a, y, z, 64, HA_D2D));
    ha_order_freed(ha_order_now(), ha_order_self(ha_order_now()), z); /* mem_free says so before it frees */
    assert_int_equal(verdict(), HA_FAIL);
    enqueue(api->stream_sync(a));
    api->mem_free(device, HA_MEM_DEVICE, z);
}
