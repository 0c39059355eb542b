/* What the CUDA device does beside the tests that it shares with the embedded one: what it says of itself, memory with
 * huge pages, workspaces, and the thread that watches waits. */

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/emulation/runtime.h"
#include "kernels/host/test_fixture.h"

#include "harness/base/clock.h"

static uint32_t *flag; /* two, 0 */

static void open_all(uint64_t wait_limit_ns)
{
    dev = device_open(wait_limit_ns);
    stream = device_stream(dev, "main");
    flag = device_alloc(dev, HA_MEM_MAPPED, 2 * sizeof *flag);
    flag[0] = flag[1] = 0;
}

static void raise_flag(uint32_t *which, uint32_t value) { __atomic_store_n(which, value, __ATOMIC_RELEASE); }

TEST(it_says_what_it_is)
{
    dev = device_open(0);
    struct ha_device_info info;
    api->info(dev, &info);
    assert_string_equal(api->name, "cuda_emulated");
    assert_string_equal(api->kind, "emulated");
    assert_non_null(strstr(info.name, "emulated"));
    assert_non_null(strstr(info.driver, "emulated"));
    assert_true(info.memory_bytes >= info.memory_free_bytes && info.memory_free_bytes > 0);
    assert_int_equal(info.compute_threads, 1);
    /* measured, and no worse than a few ulp */
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
        const struct ha_profile *p = &info.profile[t];
        assert_true(p->dot_lanes > 0 && p->sum_lanes > 0);
        assert_true(p->exp_eps > 1e-8 && p->exp_eps < 1e-6 && p->log_eps > 1e-8 && p->log_eps < 1e-6);
    }
    assert_true(info.merge.exp_eps > 1e-8 && info.merge.exp_eps < 1e-6 && info.merge.states_max == HA_CUDA_STATES_MAX);
    struct ha_stream *a = device_stream(dev, "same"), *b = device_stream(dev, "same"), *c = device_stream(dev, "other");
    api->info(dev, &info);
    assert_int_equal(info.compute_threads, 3);
    assert_string_equal(a->lane, "stream same");
    assert_string_equal(b->lane, "stream same 2");
    assert_string_equal(c->lane, "stream other");
    device_release(b);
    assert_ptr_equal(device_stream(dev, "same"), b); /* its lane lives on */
    device_close(dev, NULL);
}

/* Where binary64 is slow every 61st of the floats that are looked at elsewhere, which are every 16384th here, and an
 * eighth more is claimed. */
TEST(the_error_of_exp_and_log_is_measured)
{
    static const struct {
        int ratio;
        uint32_t step;
        double margin;
    } each[] = { { 2, 16384, 1 }, { 8, 16384, 1 }, { 32, 61 * 16384, 1.125 }, { 64, 61 * 16384, 1.125 } };
    for (size_t i = 0; i < COUNT(each); i++) {
        struct ha_emulated_settings settings = ha_emulated_defaults();
        settings.double_ratio = each[i].ratio;
        ha_emulated_set(&settings);
        dev = device_open(0);
        double worst[HA_CUDA_FUNCTIONS] = { 0 };
        assert_int_equal(ha_cuda_accuracy(dev->multiprocessors, NULL, each[i].step, worst), cudaSuccess);
        assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
        for (int f = 0; f < HA_CUDA_FUNCTIONS; f++) assert_true(dev->eps[f] == worst[f] * each[i].margin);
        device_close(dev, NULL);
    }
    ha_emulated_set(NULL);
}

TEST(host_memory_may_have_huge_pages)
{
    const size_t huge = (size_t)2 << 20;
    assert_int_equal(setenv("HABENCH_HUGE_PAGES", "1", 1), 0);
    open_all(0);
    unsetenv("HABENCH_HUGE_PAGES");
    char *device = device_alloc(dev, HA_MEM_DEVICE, 3 * huge);
    const uint64_t registered = ha_emulated_calls("cudaHostRegister");
    for (int kind = HA_MEM_PINNED; kind <= HA_MEM_MAPPED; kind++) {
        char *large = device_alloc(dev, (enum ha_memory)kind, 2 * huge + 1),
             *small = device_alloc(dev, (enum ha_memory)kind, 100);
        assert_int_equal((uintptr_t)large % huge, 0);
        memset(large, 7, 2 * huge + 1);
        ok(api->copy(stream, device, large, 2 * huge + 1, HA_H2D));
        ok(api->stream_sync(stream));
        memset(large, 0, 2 * huge + 1);
        ok(api->copy(stream, large, device, 2 * huge + 1, HA_D2H));
        ok(api->stream_sync(stream));
        assert_int_equal(large[0] + large[2 * huge], 14);
        device_release(large);
        device_release(small);
    }
    assert_int_equal(ha_emulated_calls("cudaHostRegister") - registered, 2);
    /* the allocation ends where it was asked to, not where its last page does */
    char *large = device_alloc(dev, HA_MEM_PINNED, 2 * huge - 1);
    assert_int_equal(api->copy(stream, device, large, 2 * huge, HA_H2D), HA_ERROR);
    assert_failure_has(dev, "leaves the allocation of pinned memory");
    api->stream_destroy(stream);
    api->close(dev); /* frees the rest */
    assert_int_equal(ha_emulated_alive().host_blocks, 0);
}

TEST(workspaces_outlive_who_used_them)
{
    enum { MIB = 1 << 20 };
    dev = device_open(0);
    struct ha_stream *a = device_stream(dev, "a"), *b = device_stream(dev, "b");
    char *small = ha_cuda_workspace(a, 1), *again = ha_cuda_workspace(a, 8 * MIB);
    assert_true(small && small == again);
    char *large = ha_cuda_workspace(a, 8 * MIB + 1);
    assert_true(large && large != small);
    memset(small, 1, 8 * MIB);  /* what is enqueued may still use it */
    memset(large, 1, 16 * MIB); /* doubled */
    assert_ptr_equal(ha_cuda_workspace(a, 3), large);
    char *of_b = ha_cuda_workspace(b, 1);
    assert_true(of_b && of_b != small && of_b != large);
    const uint64_t allocated = ha_emulated_calls("cudaMalloc"), freed = ha_emulated_calls("cudaFree");
    api->stream_destroy(a);
    struct ha_stream *c = device_stream(dev, "c");
    assert_ptr_equal(ha_cuda_workspace(c, 9 * MIB), large); /* the smallest that serves */
    struct ha_stream *d = device_stream(dev, "d");
    assert_ptr_equal(ha_cuda_workspace(d, 9), small);
    ok(api->graph_begin(d));
    char *of_graph = ha_cuda_workspace(d, 1);
    assert_true(of_graph && of_graph != small && of_graph != of_b && of_graph != large);
    struct ha_graph *graph = graph_of(d);
    assert_ptr_equal(ha_cuda_workspace(d, 1), small);
    api->graph_destroy(graph);
    assert_int_equal(ha_emulated_calls("cudaMalloc") - allocated, 1);
    assert_int_equal(ha_emulated_calls("cudaFree"), freed);
    api->stream_destroy(b);
    api->stream_destroy(c);
    api->stream_destroy(d);
    assert_true(ha_cuda_workspaces_free(dev));
    assert_false(ha_cuda_workspaces_free(dev));
    assert_int_equal(ha_emulated_alive().device_blocks, 0);
    api->close(dev);
}

/* A device of 20 MiB, of which a workspace that nobody uses may have 8: only where memory is short is it freed and the
 * call repeated. */
TEST(a_workspace_takes_the_room_of_spare_ones)
{
    enum { MIB = 1 << 20 };
    static const struct {
        bool spare;        /* there is one */
        size_t bytes;      /* asked for */
        cudaError_t error; /* of the call, but for what memory there is */
        unsigned calls, freed;
        const char *failure; /* or NULL */
    } each[] = {
        { true, 16 * MIB, cudaSuccess, 2, 1, NULL },
        { true, 12 * MIB, cudaSuccess, 1, 0, NULL }, /* there is room for both */
        { true, 32 * MIB, cudaSuccess, 2, 1, "workspace of 33554432 bytes on stream b: cudaMalloc: error 2 (" },
        { false, 32 * MIB, cudaSuccess, 1, 0, "workspace of 33554432 bytes on stream b: cudaMalloc: error 2 (" },
        { true, 12 * MIB, cudaErrorInvalidValue, 1, 0,
          "workspace of 12582912 bytes on stream b: cudaMalloc: error 1 (" },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        struct ha_emulated_settings settings = ha_emulated_defaults();
        settings.memory_bytes = 20 * MIB;
        ha_emulated_set(&settings);
        dev = device_open(0);
        struct ha_stream *a = device_stream(dev, "a"), *b = device_stream(dev, "b");
        if (each[i].spare) assert_non_null(ha_cuda_workspace(a, 1));
        device_release(a);
        const uint64_t calls = ha_emulated_calls("cudaMalloc"), freed = ha_emulated_calls("cudaFree");
        if (each[i].error) assert_true(ha_emulated_fail("cudaMalloc", 1, each[i].error, HA_EMULATED_ONCE));
        char *got = ha_cuda_workspace(b, each[i].bytes);
        assert_int_equal(got == NULL, each[i].failure != NULL);
        assert_int_equal(ha_emulated_calls("cudaMalloc") - calls, each[i].calls);
        assert_int_equal(ha_emulated_calls("cudaFree") - freed, each[i].freed);
        assert_int_equal(cudaGetLastError(), cudaSuccess); /* nobody finds what has been dealt with */
        if (got) memset(got, 1, each[i].bytes);
        if (got) assert_ptr_equal(ha_cuda_workspace(b, each[i].bytes), got);
        assert_int_equal(ha_cuda_workspaces_free(dev), each[i].spare && !each[i].freed);
        device_close(dev, each[i].failure);
        assert_int_equal(ha_emulated_alive().device_blocks, 0);
    }
    ha_emulated_set(NULL);
}

static void add_one(void *arg) { ++*(int *)arg; }

/* What a graph calls stays its own, whatever the stream calls between its launches. */
TEST(calls_of_graphs_and_streams_are_apart)
{
    open_all(0);
    int of_graph = 0, of_stream = 0;
    ok(api->graph_begin(stream));
    ok(api->host_fn(stream, add_one, &of_graph));
    struct ha_graph *graph = graph_of(stream);
    for (int i = 1; i <= 5; i++) {
        ok(api->graph_launch(graph, stream));
        ok(api->stream_sync(stream));
        ok(api->host_fn(stream, add_one, &of_stream));
        ok(api->host_fn(stream, add_one, &of_stream));
        ok(api->stream_sync(stream));
        assert_int_equal(of_graph, i);
        assert_int_equal(of_stream, 2 * i);
    }
    api->graph_destroy(graph);
    ok(api->host_fn(stream, add_one, &of_stream));
    ok(api->stream_sync(stream));
    assert_int_equal(of_stream, 11);
    device_close(dev, NULL);
}

/* As a decode step is: captured again and again, with other arguments, of two graphs the one while the other runs. What
 * launches it is made twice and updated then; of a step with other nodes it is made anew, and where an update is
 * refused for a reason of its own. */
TEST(a_graph_that_is_captured_again_is_updated)
{
    enum { STEPS = 20, ODD = 11, REFUSED = 15 };
    open_all(0);
    uint32_t *in = device_alloc(dev, HA_MEM_PINNED, STEPS * sizeof *in),
             *out = device_alloc(dev, HA_MEM_PINNED, STEPS * sizeof *out),
             *middle = device_alloc(dev, HA_MEM_DEVICE, 2 * sizeof *middle);
    struct ha_graph *graph[2] = { NULL, NULL };
    struct ha_event *done[2];
    const uint64_t made = ha_emulated_calls("cudaGraphInstantiateWithFlags"),
                   updated = ha_emulated_calls("cudaGraphExecUpdate");
    for (int i = 0; i < 2; i++) ok(api->event_create(dev, &done[i], &why));
    for (uint32_t i = 0; i < STEPS; i++) {
        in[i] = 100 + i;
        out[i] = 0;
        if (graph[i % 2]) {
            ok(api->event_sync(done[i % 2]));
            api->graph_destroy(graph[i % 2]);
        }
        ok(api->graph_begin(stream));
        ok(api->copy(stream, middle, &in[i], sizeof *in, HA_H2D));
        if (i == ODD) ok(api->copy(stream, middle + 1, middle, sizeof *in, HA_D2D));
        ok(api->copy(stream, &out[i], middle, sizeof *in, HA_D2H));
        if (i == REFUSED) ha_emulated_fail("cudaGraphExecUpdate", 1, cudaErrorNotSupported, HA_EMULATED_ONCE);
        graph[i % 2] = graph_of(stream);
        assert_int_equal(cudaGetLastError(), cudaSuccess);
        ok(api->graph_launch(graph[i % 2], stream));
        ok(api->event_record(done[i % 2], stream));
    }
    ok(api->stream_sync(stream));
    for (uint32_t i = 0; i < STEPS; i++) assert_int_equal(out[i], 100 + i);
    assert_int_equal(ha_emulated_calls("cudaGraphInstantiateWithFlags") - made, 4);
    assert_int_equal(ha_emulated_calls("cudaGraphExecUpdate") - updated, STEPS - 3);
    for (int i = 0; i < 2; i++) {
        api->graph_destroy(graph[i]);
        api->event_destroy(done[i]);
    }
    device_close(dev, NULL);
    assert_int_equal(ha_emulated_alive().graphs, 0);
}

/* Of many graphs that are gone some are kept, and the update of one that has as many nodes and others is refused. */
TEST(graphs_that_are_gone_are_not_all_kept)
{
    enum { N = 3 * HA_CUDA_SPARES };
    open_all(0);
    struct ha_graph *graph[N];
    uint32_t *word = device_alloc(dev, HA_MEM_DEVICE, 8);
    for (int i = 0; i < N; i++) {
        ok(api->graph_begin(stream));
        ok(api->copy(stream, word, word + 1, 4, HA_D2D));
        graph[i] = graph_of(stream);
    }
    for (int i = 0; i < N; i++) api->graph_destroy(graph[i]);
    assert_int_equal(ha_emulated_alive().graphs, HA_CUDA_SPARES);
    ok(api->graph_begin(stream));
    ok(api->copy(stream, flag, word, 4, HA_D2H));
    api->graph_destroy(graph_of(stream));
    assert_int_equal(ha_emulated_alive().graphs, HA_CUDA_SPARES);
    assert_null(api->failure(dev));
    device_close(dev, NULL);
}

/* ---- waits */

/* Many waits, each far shorter than the limit, together far longer: none is too long. by_graph: always the same one. */
static void short_waits(bool by_graph, bool by_driver)
{
    struct ha_emulated_settings settings = ha_emulated_defaults();
    enum { ROUNDS = 60 };
    settings.memory_operations = by_driver;
    ha_emulated_set(&settings);
    open_all(120000000);
    ok(api->graph_begin(stream));
    ok(api->flag_write(stream, &flag[1], 1));
    ok(api->flag_wait(stream, &flag[0], 1));
    struct ha_graph *graph = graph_of(stream);
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        const uint32_t value = by_graph ? 1 : i;
        if (by_graph) ok(api->graph_launch(graph, stream));
        else {
            ok(api->flag_write(stream, &flag[1], value));
            ok(api->flag_wait(stream, &flag[0], value));
        }
        while (__atomic_load_n(&flag[1], __ATOMIC_ACQUIRE) != value) nap(1000);
        nap(8000000);
        raise_flag(&flag[0], value);
        if (api->stream_sync(stream) != HA_OK) fail_msg("round %u: %s", i, api->failure(dev));
        for (size_t n = 0; by_graph && n < 2; n++) raise_flag(&flag[n], 0);
    }
    api->graph_destroy(graph);
    device_close(dev, NULL);
    ha_emulated_set(NULL);
}

TEST(many_short_waits_are_no_deadlock)
{
    short_waits(false, true);
    short_waits(false, false);
    short_waits(true, true);
}

/* Each call costs the host a microsecond, and the device a fence: a wait and what the watch is told are one. */
TEST(a_wait_is_one_call)
{
    open_all(0);
    const uint64_t batches = ha_emulated_calls("cuStreamBatchMemOp_v2"),
                   writes = ha_emulated_calls("cuStreamWriteValue32_v2");
    ok(api->flag_wait(stream, &flag[0], 1));
    ok(api->flag_write(stream, &flag[1], 1));
    assert_int_equal(ha_emulated_calls("cuStreamBatchMemOp_v2") - batches, 1);
    assert_int_equal(ha_emulated_calls("cuStreamWriteValue32_v2") - writes, 1);
    raise_flag(&flag[0], 1);
    ok(api->stream_sync(stream));
    assert_int_equal(flag[1], 1);
    device_close(dev, NULL);
}

/* What a stream does before it comes to its wait is no part of the wait. */
TEST(work_before_a_wait_does_not_count)
{
    open_all(60000000);
    ok(api->spin(stream, 300000000));
    ok(api->flag_wait(stream, flag, 1));
    nap(250000000);
    raise_flag(flag, 1);
    device_close(dev, NULL);
}

/* The same, between two launches of a graph that were enqueued at once: to the watch, one state. */
TEST(work_between_launches_does_not_count)
{
    open_all(200000000);
    ok(api->graph_begin(stream));
    ok(api->flag_wait(stream, flag, 1));
    ok(api->spin(stream, 120000000));
    struct ha_graph *graph = graph_of(stream);
    for (int i = 0; i < 2; i++) ok(api->graph_launch(graph, stream));
    for (int i = 0; i < 2; i++) {
        nap(130000000);
        raise_flag(flag, 1);
        nap(60000000);
        raise_flag(flag, 0);
        nap(40000000);
    }
    if (api->stream_sync(stream) != HA_OK) fail_msg("%s", api->failure(dev));
    api->graph_destroy(graph);
    device_close(dev, NULL);
}

TEST(a_deadlock_in_a_graph_is_named)
{
    open_all(40000000);
    struct ha_stream *other = device_stream(dev, "other");
    *flag = 3;
    ok(api->graph_begin(stream));
    ok(api->flag_wait(stream, flag, 2));
    ok(api->flag_wait(stream, flag, 4));
    struct ha_graph *graph = graph_of(stream);
    ok(api->graph_launch(graph, other));
    assert_int_equal(api->stream_sync(other), HA_ERROR);
    assert_failure_has(dev, "deadlock: a flag was waited for longer than 40 ms; stream other: flag_wait for flag 0x");
    api->graph_destroy(graph);
    device_close(dev, "to be at least 4, which is 3");
}

/* More waits than any ring holds at first, all enqueued before the first is over. */
TEST(waits_are_queued_without_end)
{
    enum { N = 1000 };
    open_all(0);
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t i = 1; i <= N; i++) ok(api->flag_wait(stream, &flag[0], turn * N + i));
        ok(api->flag_write(stream, &flag[1], turn + 1));
        for (uint32_t i = 1; i <= N; i++) {
            assert_int_equal(__atomic_load_n(&flag[1], __ATOMIC_ACQUIRE), turn);
            raise_flag(&flag[0], turn * N + i);
        }
        ok(api->stream_sync(stream));
        assert_int_equal(flag[1], turn + 1);
    }
    device_close(dev, NULL);
}

/* Words of mapped memory come back: streams and graphs with waits may come and go more often than there are words. */
TEST(waits_come_and_go)
{
    enum { N = 1500 };
    open_all(0);
    *flag = 1;
    for (int i = 0; i < N; i++) {
        ok(api->graph_begin(stream));
        ok(api->flag_wait(stream, flag, 1));
        struct ha_graph *graph = graph_of(stream);
        if (i % 100 == 0) {
            ok(api->graph_launch(graph, stream));
            ok(api->stream_sync(stream));
        }
        api->graph_destroy(graph);
        if (i % 50) continue;
        device_release(stream);
        stream = device_stream(dev, "main");
        ok(api->flag_wait(stream, flag, 1));
    }
    device_close(dev, NULL);
}

/* A wait that is over is not looked at again: its flag may be freed at once. On a busy machine a round may take longer
 * than the limit, and goes on with another device. */
TEST(flags_are_freed_behind_the_watch)
{
    enum { LIMIT_NS = 8000000 }; /* looked at every millisecond */
    open_all(LIMIT_NS);
    size_t good = 0;
    for (uint64_t end = ha_now_ns() + SECOND / 3; ha_now_ns() < end;) {
        uint32_t *freed = device_alloc(dev, HA_MEM_MAPPED, sizeof *freed);
        *freed = 0;
        ok(api->flag_wait(stream, freed, 1));
        nap(500000);
        raise_flag(freed, 1);
        const bool in_time = api->stream_sync(stream) == HA_OK;
        device_release(freed);
        good += in_time;
        if (in_time) continue;
        device_close(dev, "deadlock: a flag was waited for longer than 8 ms");
        open_all(LIMIT_NS);
    }
    assert_true(good > 0);
    device_close(dev, NULL);
}
