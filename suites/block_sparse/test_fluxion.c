/* fluxion does what its options say, of which the outputs say nothing: the device, the pool and the CPU's kernels are
 * asked for other things. A timed pass may
 * have other bits, where whoever is free takes a task, but not other keys. */

#include "harness/base/pool.h"
#include "suites/variants/check.h"
#include "suites/variants/test_shim.h"

#include <stdlib.h>

static struct ha_kernels kernels;

/* In steps, of which an id is short: two layers and three steps make 6 of them. */
static struct counted {
    size_t features, nets, labels; /* calls */
    size_t sink, local;            /* keys of each that the device read last */
    size_t tasks, keys;            /* of the device, and the longest list that it reads */
    unsigned sizes;                /* of blocks that it reads, or-ed */
    atomic_size_t heads;           /* that the CPU attends for */
    atomic_size_t digests[2];      /* in the prefill, by kind */
} counted;

void __real_ha_pool_run(struct ha_pool *pool, const char *name, size_t tasks,
                        void (*fn)(void *arg, size_t task, size_t worker), void *arg);
void __wrap_ha_pool_run(struct ha_pool *pool, const char *name, size_t tasks,
                        void (*fn)(void *arg, size_t task, size_t worker), void *arg);
void __wrap_ha_pool_run(struct ha_pool *pool, const char *name, size_t tasks,
                        void (*fn)(void *arg, size_t task, size_t worker), void *arg)
{
    counted.labels += !strcmp(name, "labels");
    __real_ha_pool_run(pool, name, tasks, fn, arg);
}

static enum ha_status features(struct ha_stream *stream, const struct ha_device_features *args)
{
    counted.features++;
    return real->features(stream, args);
}
static enum ha_status net(struct ha_stream *stream, const struct ha_net *args)
{
    counted.nets++;
    return real->net(stream, args);
}
static enum ha_status graph_launch(struct ha_graph *graph, struct ha_stream *stream)
{
    counted.nets++;
    return real->graph_launch(graph, stream);
}

/* the sink, then the local tokens, then tasks, of which each query token is a sequence */
static enum ha_status attend(struct ha_stream *stream, const struct ha_device_attend *args)
{
    if (!args->lists) *(args->causal ? &counted.local : &counted.sink) = args->seqs[0].runs[0].keys;
    else counted.tasks++, counted.sizes |= (unsigned)args->block;
    for (size_t h = 0; h < args->lists; h++)
        if (args->seqs[0].list_keys[h] > counted.keys) counted.keys = args->seqs[0].list_keys[h];
    return real->attend(stream, args);
}

static void attend_on_host(const struct ha_kernels *self, const struct ha_attend *args)
{
    atomic_fetch_add(&counted.heads, args->group);
    kernels.attend(self, args);
}
static void digest(const struct ha_digest *args)
{
    atomic_fetch_add(&counted.digests[args->kind], 1);
    kernels.digest(args);
}

/* a session whose variant sees the shims */
static void open_counted(const char *id)
{
    open_shim(id);
    shim.copy_pieces = count_pieces;
    shim.move = count_moves;
    shim.features = features;
    shim.net = net;
    shim.graph_launch = graph_launch;
    shim.attend = attend;
    kernels = session.cpu;
    session.cpu.attend = attend_on_host;
    session.cpu.digest = digest;
    memset(&counted, 0, sizeof counted);
    nothing_came();
}

static void run(struct ha_pass *p)
{
    for (size_t step = 0; step < opened.c.shape.steps; step++) assert_ok(ha_pass_step(p, step, &reason));
}

static void count(const char *id)
{
    struct ha_pass p;
    open_counted(id);
    begin_pass(&p, false);
    counted.labels = counted.nets = 0; /* the prefill makes labels, and a graph the net */
    run(&p);
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
}

/* Of 128 and of 640 tokens in host memory; four tasks of two heads each. */
#define OF     "fluxion:dataset=walk,ctx=260+700,heads=4/2,head_dim=16,layers=2,steps=3,threads=2"
#define SHAPE  OF ",sink=16,recent=32"
#define FIXED  SHAPE ",predict=fixed,budget=0.25"
#define ORACLE SHAPE ",predict=oracle"
#define NET    "fluxion:dataset=walk,ctx=700,heads=8/2,layers=4,steps=3,threads=2,fit=walk"
enum { RUNS = 6, HEADS = 8, BLOCKS = 40 }; /* layers times steps; query heads; smallest blocks of the longer */

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* Of three threads, the launch thread being one, it gets each third task; of lengths 128, 128, 640 and 640 two. */
TEST(tasks_go_to_whom_the_schedule_says)
{
    static const struct {
        const char *id;
        size_t tasks, calls; /* of the device, in a layer; of its way of fetching, for each */
    } of[] = {
        { FIXED ",schedule=none", 0, 0 },
        { FIXED ",schedule=uniform", 1, 0 },
        { FIXED ",schedule=uniform,fetch=move", 1, 2 },
        { FIXED ",schedule=uniform,fetch=pieces", 1, 1 },
        { FIXED ",schedule=length", 2, 0 },
        { FIXED ",schedule=length,fetch=move", 2, 2 },
        { FIXED ",schedule=length,fetch=pieces", 2, 1 },
    };
    for (size_t i = 0; i < COUNT(of); i++) {
        count(of[i].id);
        const bool moves = strstr(of[i].id, "move"), pieces = strstr(of[i].id, "pieces");
        const size_t tasks = RUNS * of[i].tasks, calls = tasks * of[i].calls;
        if (counted.tasks != tasks || counted.heads != RUNS * HEADS - 2 * tasks || came.moves != (moves ? calls : 0)
            || came.pieces != (pieces ? calls : 0))
            fail_msg("%s: %zu tasks of the device, %zu heads of the host, %zu moves, %zu pieces", of[i].id,
                     counted.tasks, (size_t)counted.heads, came.moves, came.pieces);
    }
}

TEST(whoever_is_free_takes_a_task)
{
    count(FIXED);
    assert_int_equal(counted.heads + 2 * counted.tasks, RUNS * HEADS);
}

TEST(properties_are_asked_of_whom_predict_says)
{
    count(FIXED);
    assert_int_equal(counted.labels + counted.features + counted.nets, 0);
    count(ORACLE);
    assert_int_equal(counted.labels, 2 * RUNS); /* the largest output, then the budgets */
    assert_int_equal(counted.features + counted.nets, 0);
    count(NET ",schedule=none");
    assert_int_equal(counted.labels, 0);
    assert_int_equal(counted.features, 12);
    assert_int_equal(counted.nets, 12);
}

/* the longest list that the device reads: a quarter of its blocks, or more where others choose, too */
TEST(blocks_are_as_large_as_granularity_says)
{
    static const struct {
        const char *of;
        unsigned size;
    } sizes[] = { { "dynamic", 128 }, { "16", 16 }, { "32", 32 }, { "64", 64 }, { "128", 128 } };
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char id[256];
        snprintf(id, sizeof id, FIXED ",schedule=length,granularity=%s", sizes[i].of);
        count(id);
        assert_int_equal(counted.sizes, sizes[i].size);
        assert_int_equal(counted.keys, (640 / sizes[i].size + 3) / 4 * sizes[i].size);
    }
    count(FIXED ",schedule=length,granularity=16,union=1");
    assert_in_range(counted.keys, (BLOCKS / 4 + 1) * 16, 2 * BLOCKS / 4 * 16);
}

TEST(heads_that_stream_read_nothing_unless_they_have_to)
{
    size_t loose, tight;
    count(ORACLE ",criterion=output,tau=1,schedule=none");
    loose = counted.heads;
    count(ORACLE ",criterion=output,tau=0.001,schedule=none");
    tight = counted.heads;
    assert_true(0 < loose && loose < tight && tight <= RUNS * HEADS);
    count(ORACLE ",criterion=output,tau=1,schedule=none,skip_streaming=0");
    assert_int_equal(counted.heads, RUNS * HEADS);
    count(ORACLE ",criterion=contribution,tau=1,schedule=none"); /* more than its own output */
    assert_true(counted.heads < loose);
    count(ORACLE ",criterion=score,tau=1,schedule=none"); /* which does not read tau */
    assert_true(counted.heads > loose);
}

TEST(segments_and_digests_are_as_their_options_say)
{
    count(FIXED ",schedule=none");
    assert_int_equal(counted.sink, 16);
    assert_int_equal(counted.local, 260 - 16 - 128 + 3);               /* those of all steps among them */
    assert_int_equal(counted.digests[HA_DIGEST_RANGE], 2 * 2 * 2 * 4); /* layers, sequences, KV heads, sizes */
    assert_int_equal(counted.digests[HA_DIGEST_MEAN], 0);
    count(OF ",sink=0,recent=100,digest=mean,predict=fixed,schedule=none");
    assert_int_equal(counted.sink, 0);
    assert_int_equal(counted.local, 260 - 128 + 3);
    assert_int_equal(counted.digests[HA_DIGEST_RANGE], 0);
    assert_int_equal(counted.digests[HA_DIGEST_MEAN], 2 * 2 * 2 * 4);
}

/* ---- a timed pass ------------------------------------------------------------------------------------------------ */

/* Of one with this budget, all outputs that much larger: whether each step is taken for one of the pass that was
 * checked. */
static bool is_taken(const struct ha_check *c, double budget, float by)
{
    double param[32];
    bool taken = true;
    struct ha_pass p;
    memcpy(param, session.param, session.variant->params_count * sizeof *param);
    for (size_t i = 0; i < session.variant->params_count; i++)
        if (!strcmp(session.variant->params[i].name, "budget")) param[i] = budget;
    assert_ok(ha_pass_begin(&p, &session, session.variant, param, false, &reason));
    assert_ok(ha_pass_run(&p, false, &reason));
    for (size_t step = 0; step < opened.c.shape.steps; step++) {
        assert_ok(ha_pass_download(&p, step, &reason));
        float *o = (float *)(void *)(session.host_out + session.io.o);
        for (size_t i = 0; i < 2 * 4 * 16; i++) o[i] *= by;
        taken = taken && ha_check_again(c, step, &reason) == HA_OK;
    }
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    return taken;
}

/* Who took a task shows in the last bits, where the two sides differ. */
TEST(a_timed_pass_may_have_other_bits_and_no_other_keys)
{
    struct ha_check c = { .session = &session, .id = "the case", .keep_expected = true };
    open_session(FIXED);
    struct ha_variant other = *session.variant;
    assert_ok(ha_check_run(&c, &reason));
    assert_true(session.variant->varies(session.param) && session.variant->keeps_keys);
    assert_true(is_taken(&c, 0.25, 1));
    assert_true(is_taken(&c, 0.25, 1 + 0x1p-23f));
    assert_false(is_taken(&c, 0.25, 1.01f));
    assert_false(is_taken(&c, 0.5, 1));
    assert_false(is_taken(&c, 0.1, 1));
    /* behind the first step nothing would be known of the keys of a variant that does not keep them */
    other.keeps_keys = false;
    session.variant = &other;
    assert_false(is_taken(&c, 0.1, 1));
    assert_non_null(strstr(reason.text, "timed pass: step 0 "));
    ha_check_free(&c);
    close_session();
}

/* ---- what is lacking --------------------------------------------------------------------------------------------- */

/* Without graphs the net is called. */
TEST(without_graphs_the_net_is_the_same)
{
    struct ha_pass p;
    unsigned char *first = NULL;
    for (int without = 0; without < 2; without++) {
        open_counted(NET ",schedule=none");
        const size_t bytes = session.workload->shape.layers * session.io.out_bytes;
        if (!first) first = malloc(bytes);
        if (without) shim.graph_begin = NULL, shim.graph_launch = NULL;
        begin_pass(&p, false);
        run(&p);
        assert_int_equal(counted.nets, 12 + !without); /* what is kept is asked for once more */
        assert_ok(ha_pass_download(&p, 2, &reason));
        if (without) assert_memory_equal(first, session.host_out, bytes);
        else memcpy(first, session.host_out, bytes);
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
    free(first);
}
