/* What a rule with a sink, `ask` and `work` is given: both states of the device behind `ask`, the queries in `work`,
 * states of no keys to begin with in each step, and the merge of all four. A made-up rule has its middle tokens read by
 * either side, or by none. */

#include "harness/base/rng.h"
#include "harness/base/why.h"
#include "suites/parts/test_instance.h"

#include <math.h>

enum { SEQS = 2, Q_HEADS = 4, KV_HEADS = 2, GROUP = 2, DIM = 8, Q_LEN = 2, STEPS = 4, CAP = 48, MIDDLE = 8 };
enum { ROWS = SEQS * Q_LEN * Q_HEADS };
static struct ha_shape shape = { .batch = SEQS,
                                 .q_len = Q_LEN,
                                 .layers = 1,
                                 .q_heads = Q_HEADS,
                                 .kv_heads = KV_HEADS,
                                 .head_dim = DIM,
                                 .dtype = HA_F32,
                                 .scale = 0.5f,
                                 .steps = STEPS,
                                 .ctx = { 30, 17 } };

/* Who reads the middle tokens of a query head. */
enum reader { NOBODY, HOST, DEVICE };
static enum reader reader_of(size_t step, size_t b, size_t q_head)
{
    return (enum reader)(step == STEPS - 1 ? NOBODY : (step + b + q_head) % 3);
}

struct sequence {
    struct ha_kv device, middle; /* sink, then local tokens; mapped memory */
};

static struct {
    size_t sink; /* tokens */
    float k[SEQS][KV_HEADS][CAP][DIM], v[SEQS][KV_HEADS][CAP][DIM];
    float q[STEPS][SEQS][Q_LEN][Q_HEADS][DIM];
    struct ha_state down[HA_FRAME_STATES], device; /* pinned */
    const float *q_device;
    size_t asked, worked;
} w;

static double number(uint64_t stream, uint64_t i) { return (double)ha_rng_below(3, stream, i, 2001) / 1000 - 1; }

/* ---- attention in binary64 --------------------------------------------------------------------------------------- */

struct attended {
    double sum, o[DIM];
};

static void add(struct attended *a, size_t step, size_t row, size_t first, size_t end)
{
    const size_t b = row / (Q_LEN * Q_HEADS), t = row / Q_HEADS % Q_LEN, head = row % Q_HEADS;
    for (size_t j = first; j < end; j++) {
        double score = 0;
        for (size_t d = 0; d < DIM; d++) score += (double)w.q[step][b][t][head][d] * (double)w.k[b][head / GROUP][j][d];
        const double weight = exp((double)shape.scale * score);
        a->sum += weight;
        for (size_t d = 0; d < DIM; d++) a->o[d] += weight * (double)w.v[b][head / GROUP][j][d];
    }
}

static void check(const struct attended *a, const float *o, float lse)
{
    if (a->sum > 0) assert_near((double)lse, log(a->sum), 1e-5);
    else assert_true(lse == -INFINITY);
    for (size_t d = 0; d < DIM && a->sum > 0; d++) assert_near((double)o[d], a->o[d] / a->sum, 1e-5);
}

static void add_local(struct attended *a, size_t step, size_t row)
{
    const size_t b = row / (Q_LEN * Q_HEADS), t = row / Q_HEADS % Q_LEN;
    add(a, step, row, w.sink + MIDDLE, shape.ctx[b] + step * Q_LEN + t + 1);
}

/* ---- the rule ---------------------------------------------------------------------------------------------------- */

static struct sequence *sequence(const struct ha_layer *l, size_t b) { return (struct sequence *)l->own + b; }

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *because)
{
    HA_TRY(ha_kv_create(l->ctx, HA_MEM_DEVICE, CAP, &sequence(l, b)->device, because));
    return ha_kv_create(l->ctx, HA_MEM_MAPPED, MIDDLE, &sequence(l, b)->middle, because);
}
static enum ha_status prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *because)
{
    const struct sequence *seq = sequence(l, b);
    const size_t last = w.sink + MIDDLE;
    HA_TRY(ha_kv_load(l->ctx, &seq->device, 0, in, b, 0, w.sink));
    HA_TRY(ha_kv_load(l->ctx, &seq->device, w.sink, in, b, last, shape.ctx[b] - last));
    return ha_kv_load(l->ctx, &seq->middle, 0, in, b, w.sink, MIDDLE);
}
static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    return ha_kv_copy(l->ctx, l->ctx->stream, &sequence(l, b)->device, l->tokens[b] - MIDDLE, fresh, 0, Q_LEN);
}
static void sink(struct ha_layer *l, size_t b, struct ha_device_seq *d)
{
    d->runs[d->runs_count++] = ha_kv_rows(&shape, &sequence(l, b)->device, 0, 0, w.sink);
}
static void local(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    d->runs[d->runs_count++] = ha_kv_rows(&shape, &sequence(l, b)->device, 0, w.sink,
                                          l->tokens[b] + Q_LEN - MIDDLE - w.sink);
}

static enum ha_status ask(struct ha_layer *l, const struct ha_step *step, struct ha_why *because)
{
    w.asked++;
    for (size_t i = 0; i < HA_FRAME_STATES; i++) {
        const struct ha_state state = ha_frame_state(l, i);
        HA_TRY(l->ctx->api->copy(l->ctx->stream, w.down[i].o, state.o, ROWS * DIM * sizeof(float), HA_D2H));
        HA_TRY(l->ctx->api->copy(l->ctx->stream, w.down[i].lse, state.lse, ROWS * sizeof(float), HA_D2H));
    }
    return HA_OK;
}

static void read_by_host(struct ha_layer *l, size_t b, size_t head, const float *q, const struct ha_state *to)
{
    const struct ha_rows run = ha_kv_rows(&shape, &sequence(l, b)->middle, head / GROUP, 0, MIDDLE);
    const size_t row = b * Q_LEN * Q_HEADS;
    static _Alignas(64) unsigned char scratch[1 << 16];
    struct ha_attend a = ha_cpu_attend_unit(&shape, head, 1, Q_LEN, false, q + row * DIM, to->o + row * DIM,
                                            to->lse + row, &run);
    assert_true(ha_kernels_c.attend_scratch_bytes(&a) <= sizeof scratch);
    a.scratch = scratch;
    ha_kernels_c.attend(&ha_kernels_c, &a);
}

static enum ha_status read_by_device(struct ha_layer *l, size_t b, size_t head, const struct ha_state *to)
{
    for (size_t t = 0; t < Q_LEN; t++) {
        const size_t row = (b * Q_LEN + t) * Q_HEADS + head;
        const struct ha_device_seq seq = { .q = w.q_device + row * DIM,
                                           .runs = { ha_kv_rows(&shape, &sequence(l, b)->middle, head / GROUP, 0,
                                                                MIDDLE) },
                                           .runs_count = 1,
                                           .o = to->o + row * DIM,
                                           .lse = to->lse + row };
        HA_TRY(l->ctx->api->attend(l->ctx->stream, &(struct ha_device_attend){ .batch = 1,
                                                                               .q_len = 1,
                                                                               .q_heads = 1,
                                                                               .kv_heads = 1,
                                                                               .head_dim = DIM,
                                                                               .dtype = HA_F32,
                                                                               .scale = shape.scale,
                                                                               .seqs = &seq }));
    }
    return HA_OK;
}

/* What was enqueued before it is done; nobody has read anything yet. */
static enum ha_status work(struct ha_layer *l, const struct ha_step *step, const float *q, const struct ha_state *host,
                           const struct ha_state *device, struct ha_why *because)
{
    size_t keys[2] = { 0, 0 };
    w.worked++;
    assert_memory_equal(q, w.q[step->step], sizeof w.q[0]);
    move(w.device.lse, device->lse, ROWS * sizeof(float), HA_D2H);
    for (size_t row = 0; row < ROWS; row++) {
        struct attended of[HA_FRAME_STATES] = { { 0 } };
        add(&of[HA_FRAME_SINK], step->step, row, 0, w.sink);
        add_local(&of[HA_FRAME_DEVICE], step->step, row);
        for (size_t i = 0; i < HA_FRAME_STATES; i++) check(&of[i], w.down[i].o + row * DIM, w.down[i].lse[row]);
        assert_true(host->lse[row] == -INFINITY && w.device.lse[row] == -INFINITY);
    }
    for (size_t i = 0; i < SEQS * Q_HEADS; i++) {
        const enum reader reader = reader_of(step->step, i / Q_HEADS, i % Q_HEADS);
        if (reader == NOBODY) continue;
        keys[reader == DEVICE] += MIDDLE;
        if (reader == HOST) read_by_host(l, i / Q_HEADS, i % Q_HEADS, q, host);
        else HA_TRY(read_by_device(l, i / Q_HEADS, i % Q_HEADS, device));
    }
    ha_frame_worked(l, keys[0], keys[1]);
    return HA_OK;
}

static const struct ha_rule rule = { .seq_bytes = sizeof(struct sequence),
                                     .open = open,
                                     .prefill = prefill,
                                     .append = append,
                                     .device = local,
                                     .sink = sink,
                                     .ask = ask,
                                     .work = work };

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static float *device_memory; /* [ROWS][DIM] q, then new K and V, then o and LSE */
enum { NEW = SEQS * Q_LEN * KV_HEADS * DIM, Q = ROWS * DIM, ALL = 2 * Q + 2 * NEW + ROWS };

static void begin(size_t sinks)
{
    const void *k[SEQS] = { w.k[0], w.k[1] }, *v[SEQS] = { w.v[0], w.v[1] };
    memset(&w, 0, sizeof w);
    w.sink = sinks;
    for (size_t i = 0; i < sizeof w.k / sizeof(float); i++) {
        ((float *)w.k)[i] = (float)number(1, i);
        ((float *)w.v)[i] = (float)number(2, i);
    }
    for (size_t i = 0; i < sizeof w.q / sizeof(float); i++) ((float *)w.q)[i] = (float)(3 * number(3, i));
    open_instance(&shape, &rule);
    device_memory = memory_of(HA_MEM_DEVICE, ALL * sizeof(float));
    w.q_device = device_memory;
    w.device.lse = memory_of(HA_MEM_PINNED, ROWS * sizeof(float));
    for (size_t i = 0; i < HA_FRAME_STATES; i++) {
        w.down[i].o = memory_of(HA_MEM_PINNED, ROWS * DIM * sizeof(float));
        w.down[i].lse = memory_of(HA_MEM_PINNED, ROWS * sizeof(float));
    }
    ok(ha_frame_prefill(mine.frame, 0, &(struct ha_prefill){ .k = k, .v = v, .cap = CAP }, &why));
}

static void run_step(size_t at)
{
    float fresh[2][NEW], o[Q], lse[ROWS];
    for (size_t i = 0; i < NEW; i++) {
        const size_t d = i % DIM, head = i / DIM % KV_HEADS, t = i / DIM / KV_HEADS % Q_LEN, b = i / (NEW / SEQS),
                     token = shape.ctx[b] + at * Q_LEN + t;
        fresh[0][i] = w.k[b][head][token][d];
        fresh[1][i] = w.v[b][head][token][d];
    }
    move(device_memory, w.q[at], sizeof w.q[at], HA_H2D);
    move(device_memory + Q, fresh, sizeof fresh, HA_H2D);
    ok(ha_frame_attend(mine.frame,
                       &(struct ha_step){ .step = at,
                                          .q_len = Q_LEN,
                                          .q = device_memory,
                                          .k = device_memory + Q,
                                          .v = device_memory + Q + NEW,
                                          .o = device_memory + Q + 2 * NEW,
                                          .lse = device_memory + 2 * Q + 2 * NEW },
                       &why));
    move(o, device_memory + Q + 2 * NEW, sizeof o, HA_D2H);
    move(lse, device_memory + 2 * Q + 2 * NEW, sizeof lse, HA_D2H);
    for (size_t row = 0; row < ROWS; row++) {
        struct attended all = { 0 };
        add(&all, at, row, 0, w.sink);
        add_local(&all, at, row);
        if (reader_of(at, row / (Q_LEN * Q_HEADS), row % Q_HEADS) != NOBODY)
            add(&all, at, row, w.sink, w.sink + MIDDLE);
        check(&all, o + row * DIM, lse[row]);
    }
}

/* Keys of a query head and step that the CPU has read, and their share of all. */
static void check_counters(void)
{
    struct ha_counters c;
    double by[2] = { 0, 0 };
    for (size_t at = 0; at < STEPS; at++)
        for (size_t i = 0; i < SEQS * Q_HEADS; i++) {
            const enum reader reader = reader_of(at, i / Q_HEADS, i % Q_HEADS);
            by[1] += (double)(shape.ctx[i / Q_HEADS] + (at + 1) * Q_LEN - MIDDLE);
            if (reader != NOBODY) by[reader == DEVICE] += MIDDLE;
        }
    ha_frame_counters(mine.frame, &c);
    assert_near(c.cpu_tokens, by[0] / (STEPS * SEQS * Q_HEADS), 1e-12);
    assert_near(c.cpu_ratio, by[0] / (by[0] + by[1]), 1e-12);
}

/* and back to the prefill, once more */
static void run_all(size_t sinks)
{
    begin(sinks);
    for (int again = 0; again < 2; again++) {
        for (size_t at = 0; at < STEPS; at++) run_step(at);
        assert_int_equal(w.asked, (size_t)(again + 1) * STEPS);
        assert_int_equal(w.worked, w.asked);
        check_counters();
        ok(ha_frame_drain(mine.frame, &why));
        ok(ha_frame_rewind(mine.frame, &why));
    }
    close_instance();
}

TEST(a_sink_and_work_of_either_side) { run_all(3); }
TEST(no_sink) { run_all(0); }

/* A hook that fails ends the step. */
static enum ha_status no_ask(struct ha_layer *l, const struct ha_step *step, struct ha_why *because)
{
    return ha_why(because, HA_ERROR, "nobody asks");
}
TEST(what_a_hook_says_is_said)
{
    static const struct ha_rule refuses = { .device = local, .sink = sink, .ask = no_ask, .work = work };
    struct ha_rule broken = refuses;
    broken.seq_bytes = rule.seq_bytes;
    broken.open = open;
    broken.prefill = prefill;
    begin(3);
    mine.variant.rule = &broken;
    struct ha_instance *frame = mine.frame;
    ok(ha_frame_create(&mine.frame, &mine.ctx, &why));
    const struct ha_step step = { .q_len = Q_LEN, .q = device_memory };
    assert_int_equal(ha_frame_attend(mine.frame, &step, &why), HA_ERROR);
    assert_string_equal(why.text, "nobody asks");
    assert_int_equal(w.worked, 0);
    ha_frame_destroy(mine.frame);
    mine.frame = frame;
    close_instance();
}
