/* Where a sequence's tokens are: each length around every border against a plain count, with the digests of what is in
 * host memory, and tokens that come in steps, more than once. Each number says which token it is of. */

#include "suites/block_sparse/segments.h"
#include "suites/parts/test_instance.h"

#include <math.h>

enum { KV_HEADS = 2, DIM = 8, CAP = 720, Q_LEN = 2, STEPS = 3, ROW = KV_HEADS * DIM };

static struct {
    struct ha_shape shape;
    struct ha_segments segments;
    float k[KV_HEADS][CAP][DIM], v[KV_HEADS][CAP][DIM]; /* of a prefill */
    struct ha_kv fresh;                                 /* device: [Q_LEN] */
    size_t sinks, host;                                 /* as they are to be */
} w;

static const struct ha_rule rule = { .seq_bytes = 0 };

/* Rising with the token; a dimension is worth less than a head, and a head less than a token. */
static float number(size_t token, size_t head, size_t d) { return (float)(token * 64 + head * 16 + d); }

/* Whole blocks of the largest size, one after another, as long as none has a recent token. */
static void expect(size_t tokens, size_t sink, size_t recent)
{
    w.sinks = w.host = 0;
    while (w.sinks < sink && w.sinks < tokens) w.sinks++;
    while (w.sinks + w.host + 128 + recent <= tokens) w.host += 128;
}

static void begin(size_t tokens, size_t sink, size_t recent, enum ha_digest_kind kind)
{
    const void *k = w.k, *v = w.v;
    const struct ha_prefill in = { .k = &k, .v = &v, .cap = CAP };
    w.shape = (struct ha_shape){ .layers = 1,
                                 .batch = 1,
                                 .q_heads = 2 * KV_HEADS,
                                 .kv_heads = KV_HEADS,
                                 .head_dim = DIM,
                                 .dtype = HA_F32,
                                 .scale = 1,
                                 .ctx = { tokens },
                                 .q_len = Q_LEN,
                                 .steps = STEPS };
    for (size_t i = 0; i < CAP * KV_HEADS * DIM; i++) {
        const size_t token = i / DIM % CAP, head = i / DIM / CAP;
        w.k[head][token][i % DIM] = token < tokens ? number(token, head, i % DIM) : (float)NAN;
        w.v[head][token][i % DIM] = -w.k[head][token][i % DIM];
    }
    expect(tokens, sink, recent);
    w.segments = (struct ha_segments){ .sinks = 0 };
    open_instance(&w.shape, &rule);
    const size_t rows = ha_segments_rows(&w.shape, 0, sink, recent);
    ok(ha_kv_create(&mine.ctx, HA_MEM_DEVICE, rows, &w.segments.device, &why));
    ok(ha_segments_open(&mine.ctx, 0, sink, recent, HA_MEM_PINNED, &w.segments, &why));
    ok(ha_segments_prefill(&mine.ctx, 0, &in, kind, &w.segments, &why));
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
    ok(ha_kv_create(&mine.ctx, HA_MEM_DEVICE, Q_LEN, &w.fresh, &why));
    assert_int_equal(w.segments.sinks, w.sinks);
    assert_int_equal(w.segments.host, w.host);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void check_row(const float *k, const float *v, size_t token)
{
    for (size_t i = 0; i < ROW; i++) {
        assert_true(k[i] == number(token, i / DIM, i % DIM));
        assert_true(v[i] == -k[i]);
    }
}

/* All tokens so far, each where it belongs, and in order. */
static void check_rows(size_t tokens)
{
    const size_t on_device = tokens - w.host, bytes = on_device * ROW * sizeof(float);
    float *k = malloc(bytes + 1), *v = malloc(bytes + 1);
    size_t at = 0;
    const struct ha_rows sink = ha_segments_sink(&w.shape, &w.segments),
                         local = ha_segments_local(&w.shape, &w.segments, tokens);
    if (bytes) move(k, w.segments.device.k, bytes, HA_D2H);
    if (bytes) move(v, w.segments.device.v, bytes, HA_D2H);
    for (size_t token = 0; token < tokens; token++) {
        const size_t row = token - w.sinks;
        if (token >= w.sinks && row < w.host)
            check_row((const float *)(const void *)w.segments.store.k + row * ROW,
                      (const float *)(const void *)w.segments.store.v + row * ROW, token);
        else check_row(k + at * ROW, v + at * ROW, token), at++;
    }
    assert_int_equal(sink.keys, w.sinks);
    assert_int_equal(sink.keys + local.keys, at);
    assert_ptr_equal(sink.k, w.segments.device.k);
    assert_ptr_equal(local.k, w.segments.device.k + w.sinks * ROW * sizeof(float));
    assert_ptr_equal(local.v, w.segments.device.v + w.sinks * ROW * sizeof(float));
    free(k);
    free(v);
}

static void check_positions(size_t tokens)
{
    static const uint32_t index[] = { 1, 3 };
    struct ha_positions device = { NULL, 0, 0 }, host = { NULL, 0, 0 };
    size_t at = 0;
    ok(ha_segments_use(&mine.ctx, &w.segments, tokens, &device, &why));
    for (size_t token = 0; token < tokens; token++)
        if (token < w.sinks || token >= w.sinks + w.host) assert_int_equal(device.token[at++], token);
    assert_int_equal(device.count, at);
    if (!w.host) return;
    ok(ha_segments_use_blocks(&mine.ctx, &w.segments, 16, index, COUNT(index), &host, &why));
    assert_int_equal(host.count, 2 * 16);
    for (size_t i = 0; i < host.count; i++) assert_int_equal(host.token[i], w.sinks + (i < 16 ? 16u : 48u) + i % 16);
}

/* Numbers rise: the least is that of a block's first token, the mean halfway to its last. */
static void check_digests(enum ha_digest_kind kind)
{
    for (size_t size = 0; size < HA_GRANULARITIES; size++) {
        const struct ha_digests *d = &w.segments.digests[size];
        assert_int_equal(d->unit, (size_t)16 << size);
        assert_int_equal(d->blocks, w.host / d->unit);
        for (size_t i = 0; i < d->blocks * ROW; i++) {
            const size_t block = i / ROW, head = i / DIM % KV_HEADS, first = w.sinks + block * d->unit,
                         last = first + d->unit - 1;
            const float *x = (const float *)(const void *)(d->bytes + head * d->head_bytes),
                        least = number(first, head, i % DIM), most = number(last, head, i % DIM),
                        mean = (least + most) / 2;
            assert_true(x[digest_at(block, i % DIM, DIM, false)] == (kind == HA_DIGEST_MEAN ? mean : least));
            assert_true(x[digest_at(block, i % DIM, DIM, true)] == (kind == HA_DIGEST_MEAN ? mean : most));
        }
    }
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void append(size_t tokens)
{
    float k[Q_LEN * ROW], v[Q_LEN * ROW];
    for (size_t i = 0; i < Q_LEN * ROW; i++) {
        k[i] = number(tokens + i / ROW, i / DIM % KV_HEADS, i % DIM);
        v[i] = -k[i];
    }
    move(w.fresh.k, k, sizeof k, HA_H2D);
    move(w.fresh.v, v, sizeof v, HA_H2D);
    ok(ha_segments_append(&mine.ctx, &w.segments, tokens, &w.fresh));
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
}

/* What is in host memory is what the prefill has put there; the steps are done twice. */
static void check_sequence(size_t tokens, size_t sink, size_t recent)
{
    const enum ha_digest_kind kind = tokens % 2 ? HA_DIGEST_MEAN : HA_DIGEST_RANGE;
    begin(tokens, sink, recent, kind);
    check_rows(tokens);
    for (int again = 0; again < 2; again++)
        for (size_t step = 0; step < STEPS; step++) {
            append(tokens + step * Q_LEN);
            check_rows(tokens + (step + 1) * Q_LEN);
            check_positions(tokens + (step + 1) * Q_LEN);
        }
    check_digests(kind);
    close_instance();
}

TEST(each_length_around_every_border)
{
    static const size_t of[][2] = { { 4, 20 }, { 0, 0 }, { 64, 256 }, { 0, 100 }, { 130, 0 }, { 1000, 8 } };
    for (size_t i = 0; i < COUNT(of); i++) {
        const size_t sink = of[i][0], recent = of[i][1],
                     border[] = { 0, sink, sink + recent, sink + recent + 128, sink + recent + 256 };
        for (size_t b = 0; b < COUNT(border); b++)
            for (size_t tokens = border[b] > 2 ? border[b] - 2 : 0; tokens <= border[b] + 2; tokens++)
                if (tokens + Q_LEN * STEPS <= CAP) check_sequence(tokens, sink, recent);
    }
}

/* by hand */
TEST(what_is_in_host_memory)
{
    static const struct {
        size_t tokens, sink, recent, sinks, host;
    } of[] = { { 100, 200, 0, 100, 0 }, { 420, 4, 32, 4, 384 }, { 420, 4, 33, 4, 256 }, { 420, 0, 1000, 0, 0 } };
    for (size_t i = 0; i < COUNT(of); i++) {
        begin(of[i].tokens, of[i].sink, of[i].recent, HA_DIGEST_RANGE);
        assert_int_equal(w.segments.sinks, of[i].sinks);
        assert_int_equal(w.segments.host, of[i].host);
        close_instance();
    }
}
