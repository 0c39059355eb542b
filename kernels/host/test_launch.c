/* Launches that the suites device and lse_merge do not have: attention behind attention that has less scratch, lists
 * that are refused, merges of no rows and of as many states as there may be. */

#include "kernels/host/test_fixture.h"

#include <math.h>

static void assert_close(float got, double want)
{
    if (!(fabs((double)got - want) <= 1e-5 * (1 + fabs(want)))) fail_msg("got %.9g, want %.9g", (double)got, want);
}

/* ---- attention */

static enum ha_status attend_lists(size_t lists, size_t runs, bool causal, bool index, bool weights)
{
    float *all = device_alloc(dev, HA_MEM_DEVICE, 4096);
    const uint32_t *list = device_alloc(dev, HA_MEM_DEVICE, 4096);
    const struct ha_rows run = { .k = all, .v = all, .k_stride_bytes = 64, .v_stride_bytes = 64, .keys = 2 };
    struct ha_device_seq seq = { .q = all, .o = all, .lse = all, .runs = { run, run }, .runs_count = runs };
    if (index) seq.runs[0].index = list;
    if (weights) seq.weights = all, seq.weights_stride = 8, seq.list_keys = list;
    return api->attend(stream, &(struct ha_device_attend){ .batch = 1,
                                                           .q_len = 1,
                                                           .q_heads = 4,
                                                           .kv_heads = 2,
                                                           .head_dim = 16,
                                                           .causal = causal,
                                                           .seqs = &seq,
                                                           .lists = lists });
}

#define WRONG(name, words) WRONG_USE(name, words, device_begin, device_end, refused)
WRONG_CALL(number_of_lists, "3 lists, for 2 KV heads and 4 query heads", attend_lists(3, 2, true, true, false))
WRONG_CALL(lists_of_no_index, "lists, and the first run has no index", attend_lists(2, 2, true, false, false))
WRONG_CALL(lists_that_are_last, "lists, and the first run is the last, or none", attend_lists(2, 1, true, true, false))
WRONG_CALL(lists_of_no_run, "lists, and the first run is the last, or none", attend_lists(4, 0, false, true, false))
WRONG_CALL(weights_of_counted_lists, "no weights where list_keys", attend_lists(2, 2, true, true, true))

/* Scratch grows with the query tokens while earlier work, which has the smaller one, is still queued. All scores are 0,
 * and so o is the mean of V: of 0, 1, 2, ... */
DEVICE_TEST(attends_with_growing_scratch)
{
    enum { N = 12, DIM = 8, HEADS = 6 };
    float *o[N], *lse[N];
    for (size_t i = 0; i < N; i++) {
        const size_t keys = 3 * i + 3, rows = (1 + i) * HEADS;
        float *q = device_alloc(dev, HA_MEM_DEVICE, rows * DIM * sizeof *q),
              *v = device_alloc(dev, HA_MEM_MAPPED, 2 * keys * DIM * sizeof *v);
        o[i] = device_alloc(dev, HA_MEM_DEVICE, rows * DIM * sizeof **o);
        lse[i] = device_alloc(dev, HA_MEM_MAPPED, rows * sizeof **lse);
        memset(q, 0, rows * DIM * sizeof *q);
        for (size_t k = 0; k < 2 * keys * DIM; k++) v[k] = (float)(k / 2 / DIM);
        const struct ha_device_seq seq = {
            .q = q,
            .o = o[i],
            .lse = lse[i],
            .runs_count = 1,
            .runs = { { .k = v, .v = v, .k_stride_bytes = 2 * DIM * 4, .v_stride_bytes = 2 * DIM * 4, .keys = keys } },
            .k_head_bytes = DIM * 4,
            .v_head_bytes = DIM * 4
        };
        ok(api->attend(stream, &(struct ha_device_attend){ .batch = 1,
                                                           .q_len = 1 + i,
                                                           .q_heads = HEADS,
                                                           .kv_heads = 2,
                                                           .head_dim = DIM,
                                                           .dtype = HA_F32,
                                                           .scale = 1,
                                                           .seqs = &seq }));
    }
    /* an empty batch */
    ok(api->attend(stream, &(struct ha_device_attend){ .q_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = DIM }));
    ok(api->stream_sync(stream));
    for (size_t i = 0; i < N; i++)
        for (size_t r = 0; r < (1 + i) * HEADS; r++) {
            assert_close(lse[i][r], log((double)(3 * i + 3)));
            for (size_t d = 0; d < DIM; d++) assert_close(o[i][r * DIM + d], (double)(3 * i + 2) / 2);
        }
}

/* ---- merges */

/* no operand is looked at */
DEVICE_TEST(merges_no_rows)
{
    ok(api->merge(
        stream,
        &(struct ha_merge){ .states = (struct ha_merge_state[1]){ { 0 } }, .states_count = 1, .tokens = 4, .dim = 8 }));
    ok(api->stream_sync(stream));
}

DEVICE_TEST(merges_as_many_states_as_it_says)
{
    struct ha_device_info info;
    api->info(dev, &info);
    const size_t most = info.merge.states_max;
    assert_true(most > 0);
    float *o = device_alloc(dev, HA_MEM_DEVICE, most * sizeof *o),
          *lse = device_alloc(dev, HA_MEM_DEVICE, most * sizeof *lse);
    struct ha_merge_state *s = calloc(most, sizeof *s);
    for (size_t i = 0; i < most; i++) {
        s[i] = (struct ha_merge_state){ .o = o + i,
                                        .lse = lse + i,
                                        .o_token_stride = 1,
                                        .o_head_stride = 1,
                                        .lse_token_stride = 1,
                                        .lse_head_stride = 1 };
        o[i] = (float)i;
        lse[i] = 0;
    }
    ok(api->merge(stream, &(struct ha_merge){
                              .states = s, .states_count = most, .tokens = 1, .heads = 1, .dim = 1, .out = s[0] }));
    free(s);
    ok(api->stream_sync(stream));
    assert_close(o[0], (double)(most - 1) / 2);
    assert_close(lse[0], log((double)most));
}
