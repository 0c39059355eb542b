/* What no device suite asks of kernels: rows that lie further apart than 32 bits count, merges that are exact, and how
 * attention is split over a GPU. */

#include "harness/base/numeric.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/test_launch.h"

#include <math.h>

/* ---- rows far apart: of two rows, and of a state or a key each, in address space of which few pages are touched */

enum { DIM = 8, ROWS = 2, STATES_MAX = 9 };

TEST(far_rows_are_moved)
{
    enum { COUNT_ = 3, BYTES = 32 };
    static const uint32_t back[COUNT_] = { 2, 1, 0 };
    const size_t stride = ((size_t)5 << 30) + 16, bytes = COUNT_ * stride;
    char *dst = test_sparse(bytes), *src = test_sparse(bytes);
    for (size_t i = 0; i < COUNT_ * BYTES; i++) src[i / BYTES * stride + i % BYTES] = (char)(i + 1);
    for (size_t i = 0; i < 2; i++) { /* there, and back */
        const struct ha_device_move m = { .dst = i ? src : dst,
                                          .src = i ? dst : src,
                                          .dst_index = i ? NULL : back,
                                          .src_index = i ? back : NULL,
                                          .rows = COUNT_,
                                          .row_bytes = BYTES,
                                          .dst_stride_bytes = stride,
                                          .src_stride_bytes = stride };
        test_done(ha_cuda_move(1, NULL, &m));
        for (size_t r = 0; r < COUNT_; r++) assert_memory_equal(dst + back[r] * stride, src + r * stride, BYTES);
    }
    munmap(dst, bytes);
    munmap(src, bytes);
}

TEST(far_rows_are_merged)
{
    static const size_t of[] = { 2, STATES_MAX };
    const size_t stride = ((size_t)1 << 32) + DIM, lse_stride = ((size_t)1 << 32) + 1, bytes = stride * 2 + 4096,
                 lse_bytes = lse_stride * 4 + 4096;
    uint16_t *o = test_sparse(bytes);
    float *lse = test_sparse(lse_bytes);
    for (size_t n = 0; n < 2 * COUNT(of); n++) {
        const bool heads = n % 2;
        const size_t count = of[n / 2];
        struct ha_merge_state s[STATES_MAX + 1]; /* the last is the output */
        for (size_t i = 0; i <= STATES_MAX; i++) {
            s[i] = (struct ha_merge_state){ .o = o + 2 * DIM * i, .lse = lse + 2 * i };
            *(heads ? &s[i].o_head_stride : &s[i].o_token_stride) = stride;
            *(heads ? &s[i].lse_head_stride : &s[i].lse_token_stride) = lse_stride;
            for (size_t r = 0; r < ROWS; r++) {
                s[i].lse[r * lse_stride] = (float)r;
                for (size_t d = 0; d < DIM; d++) ha_store(s[i].o, r * stride + d, HA_F16, (float)(20 * r + d + i));
            }
        }
        const struct ha_merge m = { .form = HA_FORM_BASE2,
                                    .dtype = HA_F16,
                                    .states = s,
                                    .states_count = count,
                                    .tokens = heads ? 1 : ROWS,
                                    .heads = heads ? ROWS : 1,
                                    .dim = DIM,
                                    .out = s[STATES_MAX] };
        test_done(ha_cuda_merge(NULL, &m));
        for (size_t r = 0; r < ROWS; r++) {
            assert_true(s[STATES_MAX].lse[r * lse_stride] == (float)r + log2f((float)count));
            for (size_t d = 0; d < DIM; d++)
                assert_true(ha_load(s[STATES_MAX].o, r * stride + d, HA_F16)
                            == (float)(20 * r + d) + (float)(count - 1) / 2);
        }
    }
    munmap(o, bytes);
    munmap(lse, lse_bytes);
}

/* Equal weights of numbers that are exact: in every order the same, -0 and the largest number, too. */
TEST(equal_weights_are_exact)
{
    static const size_t of[] = { 2, 4, 16, 128 };
    static const float x[4] = { 0x1.fep127f, -0x1.fep127f, -0.0f, 3 };
    for (size_t n = 0; n < COUNT(of) * HA_DTYPE_COUNT; n++) {
        enum { MOST = 128, WIDTH = 16 };
        static float o[MOST + 1][WIDTH], lse[MOST + 1], sum[MOST + 1];
        struct ha_merge_state s[MOST + 1];
        const enum ha_dtype dtype = (enum ha_dtype)(n % HA_DTYPE_COUNT);
        const float by = dtype == HA_F16 ? 0x1p-112f : 1;
        for (size_t i = 0; i <= MOST; i++) {
            s[i] = (struct ha_merge_state){ .o = o[i], .lse = &lse[i], .sum = &sum[i] };
            lse[i] = 3;
            for (size_t d = 0; d < WIDTH; d++) ha_store(o[i], d, dtype, by * x[d % 4]);
        }
        memset(o[MOST], 0xff, sizeof o[MOST]);
        const struct ha_merge m = { .form = HA_FORM_NATURAL,
                                    .dtype = dtype,
                                    .states = s,
                                    .states_count = of[n / HA_DTYPE_COUNT],
                                    .tokens = 1,
                                    .heads = 1,
                                    .dim = WIDTH,
                                    .out = s[MOST] };
        test_done(ha_cuda_merge(NULL, &m));
        assert_memory_equal(o[MOST], o[0], WIDTH * ha_dtype_bytes(dtype));
    }
}

/* The form that does not divide: where L is coarse the weights do not add up to 1, and stay so. */
TEST(direct_weights_are_taken_as_they_are)
{
    static const size_t of[] = { 2, 6, 20 };
    for (size_t n = 0; n < COUNT(of); n++) {
        enum { MOST = 20 };
        float o = 1, lse = 3e5f, out, out_lse;
        struct ha_merge_state s[MOST];
        for (size_t i = 0; i < MOST; i++) s[i] = (struct ha_merge_state){ .o = &o, .lse = &lse };
        const struct ha_merge m = { .form = HA_FORM_DIRECT,
                                    .dtype = HA_F32,
                                    .states = s,
                                    .states_count = of[n],
                                    .tokens = 1,
                                    .heads = 1,
                                    .dim = 1,
                                    .out = { .o = &out, .lse = &out_lse } };
        test_done(ha_cuda_merge(NULL, &m));
        const double all = (double)of[n] * exp(3e5 - (double)out_lse);
        assert_true(fabs(all - 1) > 1e-3 && fabs((double)out - all) < 1e-5);
    }
}

/* The last of 16 sequences of 128K tokens in one pool, a row of its own for each key: all keys are alike, and o is the
 * mean of V. By all three kernels, and the weights. */
TEST(far_rows_are_attended_to)
{
    enum { KEYS = 2 };
    static const struct {
        enum ha_dtype dtype;
        size_t q_len;
    } each[] = { { HA_F32, 1 }, { HA_F16, 1 }, { HA_F16, 3 }, { HA_BF16, 2 } };
    static const uint32_t index[KEYS] = { 1, 0 };
    const size_t stride = ((size_t)5 << 30) + 256, bytes = KEYS * stride;
    char *k = test_sparse(bytes), *v = test_sparse(bytes);
    char *const workspace = test_alloc((size_t)1 << 24);
    for (size_t n = 0; n < 2 * COUNT(each); n++) {
        float q[3 * DIM], o[3 * DIM], lse[3], weights[KEYS];
        for (size_t i = 0; i < KEYS; i++)
            for (size_t d = 0; d < DIM; d++) {
                ha_store(k + i * stride, d, each[n / 2].dtype, 1);
                ha_store(v + i * stride, d, each[n / 2].dtype, (float)(10 * i + d));
            }
        for (size_t d = 0; d < 3 * DIM; d++) q[d] = 1;
        struct ha_device_seq seq = { .q = q,
                                     .runs = { { k, v, stride, stride, n % 2 ? index : NULL, KEYS } },
                                     .runs_count = 1,
                                     .o = o,
                                     .lse = lse,
                                     .weights = weights,
                                     .weights_stride = KEYS };
        const struct ha_device_attend a = { .batch = 1,
                                            .q_len = each[n / 2].q_len,
                                            .q_heads = 1,
                                            .kv_heads = 1,
                                            .head_dim = DIM,
                                            .dtype = each[n / 2].dtype,
                                            .scale = 1,
                                            .seqs = &seq };
        assert_true(ha_cuda_attend_workspace(1, &a) <= (size_t)1 << 24);
        test_done(ha_cuda_attend(1, NULL, &a, workspace, 0));
        for (size_t d = 0; d < a.q_len * DIM; d++) assert_true(fabsf(o[d] - 5 - (float)(d % DIM)) < 1e-4f);
        assert_true(fabsf(lse[0] - 8 - logf(KEYS)) < 1e-5f && fabsf(weights[1] - 0.5f) < 1e-6f);
    }
    free(workspace);
    munmap(k, bytes);
    munmap(v, bytes);
}

/* ---- splits */

/* Blocks of the attention kernel for such a call, nothing being run; no row is read. */
static unsigned blocks_of(unsigned multiprocessors, const struct ha_device_attend *args)
{
    char workspace[1];
    test_launch_counts = true;
    test_done(ha_cuda_attend(multiprocessors, NULL, args, workspace, 0));
    test_launch_counts = false;
    return test_launch_blocks;
}

/* Splits are chosen so that no round of blocks is nearly empty: of 132 multiprocessors with 2 blocks each, a tenth idle
 * at most, a fifth where contexts are short; and a long sequence does not keep them waiting for it alone. */
TEST(splits_fill_the_machine)
{
    enum { SLOTS = 264 };
    static const size_t heads[] = { 8, 1 }; /* one alone fills it from 32768 keys on */
    static const size_t batch[] = { 1, 2, 3, 4, 7, 16, 33, 64 }, keys[] = { 8192, 32768, 100000, 131072, 1000000 };
    static char row[16] __attribute__((aligned(16)));
    struct ha_device_seq seq[64] = { 0 };
    struct ha_device_attend args = { .q_len = 1, .head_dim = 128, .dtype = HA_F16, .scale = 1, .seqs = seq };
    for (size_t n = 0; n < COUNT(keys) * COUNT(heads); n++)
        for (size_t i = 0; i < COUNT(batch); i++) {
            const size_t h = heads[n / COUNT(keys)];
            args.batch = batch[i];
            args.q_heads = 4 * h;
            args.kv_heads = h;
            if (h == 1 && keys[n % COUNT(keys)] < 32768) continue;
            for (size_t b = 0; b < batch[i]; b++) {
                seq[b].runs_count = 1;
                seq[b].runs[0] = (struct ha_rows){
                    .k = row, .v = row, .k_stride_bytes = 256, .v_stride_bytes = 256, .keys = keys[n % COUNT(keys)]
                };
            }
            const unsigned blocks = blocks_of(SLOTS / 2, &args), rounds = (blocks + SLOTS - 1) / SLOTS;
            if (!(blocks >= (keys[n % COUNT(keys)] < 10000 ? 0.8 : 0.9) * rounds * SLOTS))
                fail_msg("%zu heads, %zu sequences of %zu keys: %u blocks", h, batch[i], keys[n % COUNT(keys)], blocks);
        }
    args.batch = 64;
    args.q_heads = 4 * heads[0];
    args.kv_heads = heads[0];
    for (size_t b = 1; b < 64; b++) seq[b].runs[0].keys = 500;
    assert_true(blocks_of(SLOTS / 2, &args) >= 63 * heads[0] + SLOTS / 2);
}

/* as a driver would say: a multiprocessor holds two blocks of each kernel */
static int begin(void **state)
{
    const struct ha_cuda_kernels *const files[] = { &ha_cuda_kernels_attend_mma_f16, &ha_cuda_kernels_attend_mma_bf16,
                                                    &ha_cuda_kernels_attend_fma };
    for (size_t f = 0; f < COUNT(files); f++)
        for (size_t i = 0; i < files[f]->count; i++) files[f]->list[i].resident = 2;
    return test_begin(state);
}

TEST_MAIN { return test_all("tests", begin, NULL); }
