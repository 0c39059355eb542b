/* Tasks of a layer that the pool's workers and the launch thread take: each once, by a side that may, with the blocks
 * of largest score and the attention over them, whatever stalls. 10,000 random layers, over all that there is to ask.
 */

#include "harness/base/delays.h"
#include "harness/base/rng.h"
#include "harness/base/thread.h"
#include "suites/block_sparse/schedule.h"
#include "suites/block_sparse/selector.h"
#include "suites/parts/test_instance.h"

#include <math.h>
#include <stdatomic.h>

enum { SEQS = 3, Q_HEADS = 6, KV_HEADS = 3, GROUP = 2, DIM = 8, Q_LEN = 2, TOKENS_MAX = 384, SIZES = 4 };
enum { ROWS = SEQS * Q_LEN * Q_HEADS, LISTS = SEQS * Q_HEADS, TASKS = SEQS * KV_HEADS, WORKERS = 2 };
static const size_t tokens_of[SEQS] = { 384, 128, 256 };
static const struct ha_shape shape = { .batch = SEQS,
                                       .q_len = Q_LEN,
                                       .layers = 1,
                                       .q_heads = Q_HEADS,
                                       .kv_heads = KV_HEADS,
                                       .head_dim = DIM,
                                       .dtype = HA_F32,
                                       .scale = 0.25f,
                                       .steps = 1,
                                       .ctx = { 384, 128, 256 } };

static struct {
    struct ha_schedule schedule;
    struct ha_layer *layer;
    enum ha_schedule_by by;
    enum ha_schedule_fetch fetch;
    bool united;
    struct ha_kernels kernels; /* the c kernels, whose attention is counted */
    struct ha_device_api api;  /* the embedded device, the same */
    struct ha_kv store[SEQS];
    struct ha_digests digests[SEQS][SIZES];
    struct ha_state host, device;
    float *q, *q_device;                  /* in host memory; device memory */
    float o[2][ROWS * DIM], lse[2][ROWS]; /* what either side has made */
    _Atomic size_t asked[2][ROWS];
    struct ha_delays stalls;
} w;

/* ---- what is counted, and stalled -------------------------------------------------------------------------------- */

static void stall(void)
{
    if (w.stalls.one_in) ha_sleep_ns(ha_delays_next(&w.stalls));
}

static void attend(const struct ha_kernels *self, const struct ha_attend *a)
{
    const size_t row = (size_t)(a->lse - w.host.lse);
    for (size_t t = 0; t < a->q_len; t++)
        for (size_t g = 0; g < a->group; g++) w.asked[0][row + t * Q_HEADS + g]++;
    stall();
    ha_kernels_c.attend(&ha_kernels_c, a);
}

static enum ha_status attend_on_device(struct ha_stream *stream, const struct ha_device_attend *args)
{
    for (size_t b = 0; b < args->batch; b++)
        for (size_t g = 0; g < args->q_heads; g++) w.asked[1][(size_t)(args->seqs[b].lse - w.device.lse) + g]++;
    stall();
    return ha_device_host.attend(stream, args);
}

/* ---- an instance with stores ------------------------------------------------------------------------------------- */

static enum ha_status share(struct ha_layer *first, struct ha_why *because)
{
    w.layer = first;
    return ha_schedule_create(&w.schedule, first, w.by, w.fetch, w.united, TOKENS_MAX, HA_GRANULARITY_LEAST, because);
}
static enum ha_status no_work(struct ha_layer *l, const struct ha_step *step, const float *q,
                              const struct ha_state *host, const struct ha_state *device, struct ha_why *because)
{
    return HA_OK;
}
static const struct ha_rule rule = { .share = share, .work = no_work };

static float number(uint64_t stream, uint64_t i) { return (float)ha_rng_below(11, stream, i, 2001) / 1000 - 1; }

static void make_store(size_t b)
{
    ok(ha_kv_create(&mine.ctx, ha_schedule_memory(w.by, w.fetch), tokens_of[b], &w.store[b], &why));
    for (size_t i = 0; i < tokens_of[b] * KV_HEADS * DIM; i++) {
        ((float *)(void *)w.store[b].k)[i] = number(2 * b, i);
        ((float *)(void *)w.store[b].v)[i] = number(2 * b + 1, i);
    }
    for (size_t s = 0; s < SIZES; s++) {
        struct ha_digests *d = &w.digests[b][s];
        ok(ha_digests_create(&mine.ctx, HA_MEM_PINNED, (size_t)16 << s, b, d, &why));
        const struct ha_device_digest_seq due = ha_digests_due(&shape, d, &w.store[b], tokens_of[b]);
        for (size_t h = 0; h < KV_HEADS; h++) ha_digests_make(&mine.ctx, HA_DIGEST_RANGE, d, &due, h);
    }
}

static void open_all(enum ha_schedule_by by, enum ha_schedule_fetch fetch, bool united)
{
    memset(&w, 0, sizeof w);
    w.by = by;
    w.fetch = fetch;
    w.united = united;
    w.kernels = ha_kernels_c;
    w.kernels.attend = attend;
    w.api = ha_device_host;
    w.api.attend = attend_on_device;
    open_context(&w.api, &shape, &rule);
    mine.ctx.kernels = &w.kernels;
    ok(make_instance());
    for (size_t b = 0; b < SEQS; b++) make_store(b);
    w.host = (struct ha_state){ memory_of(HA_MEM_MAPPED, ROWS * DIM * 4), memory_of(HA_MEM_MAPPED, ROWS * 4) };
    w.device = (struct ha_state){ memory_of(HA_MEM_DEVICE, ROWS * DIM * 4), memory_of(HA_MEM_DEVICE, ROWS * 4) };
    w.q = memory_of(HA_MEM_PINNED, ROWS * DIM * 4);
    w.q_device = memory_of(HA_MEM_DEVICE, ROWS * DIM * 4);
}

/* ---- one layer --------------------------------------------------------------------------------------------------- */

struct asked {
    size_t block[TASKS], want[LISTS]; /* 0: no task */
};

static struct asked draw(uint64_t run)
{
    struct asked a = { 0 };
    for (size_t i = 0; i < TASKS; i++) {
        const size_t b = i / KV_HEADS, block = (size_t)16 << ha_rng_below(run, 1, i, SIZES), all = tokens_of[b] / block;
        if (ha_rng_below(run, 2, i, 4) == 0) continue;
        a.block[i] = block;
        for (size_t g = 0; g < GROUP; g++)
            a.want[i * GROUP + g] = ha_rng_below(run, 3, i * GROUP + g, 4)
                                        ? ha_rng_below(run, 4, i * GROUP + g, all) + 1
                                        : 0;
    }
    return a;
}

static void run_layer(uint64_t run, const struct asked *a)
{
    const struct ha_step step = { .q_len = Q_LEN, .q = w.q_device };
    for (size_t i = 0; i < ROWS * DIM; i++) w.q[i] = number(100 + run, i);
    for (size_t i = 0; i < ROWS; i++) w.host.lse[i] = w.lse[1][i] = -INFINITY;
    move(w.q_device, w.q, ROWS * DIM * 4, HA_H2D);
    memset(w.asked, 0, sizeof w.asked);
    move(w.device.lse, w.lse[1], ROWS * 4, HA_H2D);
    ha_schedule_begin(&w.schedule);
    memcpy(w.schedule.want, a->want, sizeof a->want);
    for (size_t i = 0; i < TASKS; i++) {
        const size_t b = i / KV_HEADS;
        for (size_t s = 0; s < SIZES && a->block[i]; s++)
            if (w.digests[b][s].unit == a->block[i])
                ha_schedule_add(&w.schedule, &(struct ha_schedule_task){ b, i % KV_HEADS, &w.store[b], &w.digests[b][s],
                                                                         (double)ha_rng_below(run, 5, i, 1000) });
    }
    ok(ha_schedule_run(&w.schedule, w.layer, &step, w.q, &w.host, &w.device, &why));
    move(w.lse[1], w.device.lse, ROWS * 4, HA_D2H);
    move(w.o[1], w.device.o, ROWS * DIM * 4, HA_D2H);
    memcpy(w.lse[0], w.host.lse, ROWS * 4);
    memcpy(w.o[0], w.host.o, ROWS * DIM * 4);
}

/* ---- what it must have made -------------------------------------------------------------------------------------- */

static const float *row_of(const unsigned char *rows, size_t token, size_t head)
{
    return (const float *)(const void *)rows + (token * KV_HEADS + head) * DIM;
}

/* A block's score by its digest: the largest over the step's tokens. */
static double score_of(size_t b, size_t q_head, size_t block, size_t at)
{
    double best = -(double)INFINITY;
    for (size_t t = 0; t < Q_LEN; t++) {
        const float *q = w.q + ((b * Q_LEN + t) * Q_HEADS + q_head) * DIM;
        double sum = 0;
        for (size_t d = 0; d < DIM; d++) {
            double least = (double)INFINITY, most = -(double)INFINITY;
            for (size_t i = at * block; i < (at + 1) * block; i++) {
                const double k = (double)row_of(w.store[b].k, i, q_head / GROUP)[d];
                least = fmin(least, k);
                most = fmax(most, k);
            }
            sum += fmax((double)q[d] * least, (double)q[d] * most);
        }
        best = fmax(best, sum);
    }
    return best;
}

/* The blocks that a query head chooses, as marks. */
static void choose(size_t b, size_t q_head, size_t block, size_t want, bool *taken)
{
    const size_t all = tokens_of[b] / block;
    double score[TOKENS_MAX / 16];
    for (size_t i = 0; i < all; i++) score[i] = score_of(b, q_head, block, i);
    for (size_t i = 0; i < all; i++) {
        size_t before = 0;
        for (size_t j = 0; j < all; j++) before += score[j] > score[i] || (score[j] == score[i] && j < i);
        taken[i] = taken[i] || before < want;
    }
}

static void check_row(size_t b, size_t t, size_t q_head, size_t block, const bool *taken, const float *o, float lse)
{
    const float *q = w.q + ((b * Q_LEN + t) * Q_HEADS + q_head) * DIM;
    double sum = 0, want[DIM] = { 0 };
    for (size_t i = 0; i < tokens_of[b]; i++) {
        double s = 0;
        if (!taken[i / block]) continue;
        for (size_t d = 0; d < DIM; d++) s += (double)q[d] * (double)row_of(w.store[b].k, i, q_head / GROUP)[d];
        const double weight = exp(0.25 * s);
        sum += weight;
        for (size_t d = 0; d < DIM; d++) want[d] += weight * (double)row_of(w.store[b].v, i, q_head / GROUP)[d];
    }
    assert_near((double)lse, log(sum), 1e-4);
    for (size_t d = 0; d < DIM; d++) assert_near((double)o[d], want[d] / sum, 1e-4);
}

/* Each head once, on one side, and that is the one that is said; its list; with `rows` its output, too. */
static void check_layer(const struct asked *a, bool rows)
{
    for (size_t list = 0; list < LISTS; list++) {
        const size_t b = list / Q_HEADS, q_head = list % Q_HEADS, block = a->block[list / GROUP],
                     first = list / GROUP * GROUP;
        const bool device = ha_schedule_on_device(&w.schedule, b, q_head / GROUP);
        bool taken[TOKENS_MAX / 16] = { false };
        size_t count, want = 0;
        const uint32_t *index = ha_schedule_list(&w.schedule, b, q_head, block, &count);
        for (size_t g = w.united ? first : list; rows && g < (w.united ? first + GROUP : list + 1); g++)
            if (a->want[list]) choose(b, g % Q_HEADS, block ? block : 16, a->want[g], taken);
        for (size_t i = 0; i < TOKENS_MAX / 16; i++) want += taken[i];
        if (rows) assert_int_equal(count, want);
        for (size_t i = 0; rows && i < count; i++) assert_true(taken[index[i]] && (!i || index[i - 1] < index[i]));
        if (!w.united) assert_int_equal(count, a->want[list]);
        for (size_t t = 0; t < Q_LEN; t++) {
            const size_t row = (b * Q_LEN + t) * Q_HEADS + q_head;
            /* the device is asked for all heads of a task: those that read nothing have no keys there */
            assert_int_equal(w.asked[0][row], !device && a->want[list] > 0);
            assert_int_equal(w.asked[1][row], device && block > 0);
            assert_true((a->want[list] > 0 && !device) == (w.lse[0][row] > -INFINITY));
            assert_true((a->want[list] > 0 && device) == (w.lse[1][row] > -INFINITY));
            if (rows && a->want[list])
                check_row(b, t, q_head, block, taken, w.o[device] + row * DIM, w.lse[device][row]);
        }
    }
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

TEST(what_is_made)
{
    for (int by = HA_SCHEDULE_PRIORITY; by <= HA_SCHEDULE_NONE; by++)
        for (int fetch = HA_SCHEDULE_ZERO_COPY; fetch <= HA_SCHEDULE_PIECES; fetch++)
            for (int united = 0; united < 2; united++) {
                open_all((enum ha_schedule_by)by, (enum ha_schedule_fetch)fetch, united);
                for (uint64_t run = 0; run < (HA_SANITIZED ? 2 : 8); run++) {
                    const struct asked a = draw(run);
                    run_layer(run, &a);
                    check_layer(&a, true);
                }
                close_instance();
            }
}

/* Of both sides some take tasks. */
TEST(random_schedules_with_stalls)
{
    const uint64_t runs = HA_SANITIZED || test_small ? 500 : 10000;
    size_t sides[2] = { 0 };
    open_all(HA_SCHEDULE_PRIORITY, HA_SCHEDULE_ZERO_COPY, false);
    w.stalls = (struct ha_delays){ .seed = 5, .one_in = 8 };
    for (uint64_t run = 0; run < runs; run++) {
        const struct asked a = draw(run);
        run_layer(run, &a);
        check_layer(&a, run % 256 == 0);
        for (size_t i = 0; i < TASKS; i++)
            if (a.block[i]) sides[ha_schedule_on_device(&w.schedule, i / KV_HEADS, i % KV_HEADS)]++;
    }
    assert_true(sides[0] > 0 && sides[1] > 0);
    close_instance();
}

/* Where tasks are dealt the launch thread has its share of them, of one in three takers, or of their tokens. */
static void check_deal(enum ha_schedule_by by)
{
    struct asked a = { 0 };
    double all = 0, device = 0, largest = 0;
    open_all(by, HA_SCHEDULE_ZERO_COPY, false);
    for (size_t i = 0; i < TASKS; i++) a.block[i] = 64;
    for (size_t i = 0; i < LISTS; i++) a.want[i] = 1;
    run_layer(1, &a);
    for (size_t i = 0; i < TASKS; i++) {
        const double size = by == HA_SCHEDULE_LENGTH ? (double)tokens_of[i / KV_HEADS] : 1;
        all += size;
        largest = fmax(largest, size);
        device += ha_schedule_on_device(&w.schedule, i / KV_HEADS, i % KV_HEADS) ? size : 0;
    }
    if (by == HA_SCHEDULE_NONE) assert_near(device, 0, 0);
    else assert_near(device, all / (WORKERS + 1), largest / 2);
    close_instance();
}
TEST(dealt)
{
    check_deal(HA_SCHEDULE_LENGTH);
    check_deal(HA_SCHEDULE_UNIFORM);
    check_deal(HA_SCHEDULE_NONE);
}

/* With volumes that rise the last task is the first that is taken, whoever takes it. */
TEST(the_largest_first)
{
    struct asked a = { 0 };
    open_all(HA_SCHEDULE_PRIORITY, HA_SCHEDULE_ZERO_COPY, false);
    a.block[0] = a.block[TASKS - 1] = 64;
    a.want[0] = a.want[LISTS - 1] = 1;
    run_layer(1, &a);
    for (size_t i = 0; i + 1 < w.schedule.count; i++)
        assert_true(w.schedule.volume[w.schedule.tasks.line[i]] >= w.schedule.volume[w.schedule.tasks.line[i + 1]]);
    assert_int_equal(w.schedule.count, 2);
    close_instance();
}

/* A device without the operation of a way to fetch. */
TEST(what_the_device_lacks_is_said)
{
    const struct {
        enum ha_schedule_fetch fetch;
        const char *lacks;
    } way[] = { { HA_SCHEDULE_MOVE, "move" }, { HA_SCHEDULE_PIECES, "copy_pieces" } };
    for (size_t i = 0; i < COUNT(way); i++) {
        memset(&w, 0, sizeof w);
        w.fetch = way[i].fetch;
        w.api = ha_device_host;
        w.api.move = NULL;
        w.api.copy_pieces = NULL;
        open_context(&w.api, &shape, &rule);
        assert_int_equal(make_instance(), HA_WAIVED);
        assert_contains(why.text, way[i].lacks);
        close_instance();
    }
}
