/* The attention kernels, on the emulation, against the binary64 reference and its bound. */

#include "harness/base/seq_attend.h"
#include "kernels/cuda/emulation/simt.h"
#include "kernels/cuda/launch.h"
#include "kernels/test_device.h"

#include <math.h>

/* ---- the kernels, without streams */

static bool only_counted;
static unsigned counted;

/* A launch runs at once. */
cudaError_t ha_emulated_launch(const struct ha_emulated_kernel *kernel, const void *args, size_t bytes, dim3 grid,
                               dim3 block, cudaStream_t stream)
{
    if (only_counted) {
        if (strstr(kernel->name, "mma") || strstr(kernel->name, "fma")) counted = grid.x;
        return cudaSuccess;
    }
    ha_emulated_run(kernel, args, (unsigned[]){ grid.x, grid.y, grid.z }, (unsigned[]){ block.x, block.y, block.z });
    return cudaSuccess;
}

/* what the device's functions are measured to be, and more */
static const double EPS = 0x1p-22;

enum { PATH_FMA, PATH_MMA, PATHS };
static double worst[PATHS][HA_DTYPE_COUNT], worst_weight;
static size_t judged, judged_weights;

/* Runs the kernels on it, all outputs NaN before; the order of threads is ha_emulated_order's. */
static void problem_attend(const struct ha_test_device_problem *run, unsigned splits)
{
    const unsigned multiprocessors = run->ask.multiprocessors ? run->ask.multiprocessors : 132;
    ha_test_device_poison(run);
    const size_t bytes = ha_cuda_attend_workspace(multiprocessors, &run->args);
    void *workspace = aligned_alloc(256, bytes + (bytes ? 0 : 256));
    assert_non_null(workspace);
    memset(workspace, 0xFF, bytes);
    assert_int_equal(ha_cuda_attend(multiprocessors, NULL, &run->args, workspace, splits), cudaSuccess);
    free(workspace);
}

/* Blocks of the attention kernel for such a call, nothing being run; no row is read. */
static unsigned problem_blocks(unsigned multiprocessors, const struct ha_device_attend *args)
{
    char workspace[1];
    only_counted = true;
    assert_int_equal(ha_cuda_attend(multiprocessors, NULL, args, workspace, 0), cudaSuccess);
    only_counted = false;
    return counted;
}

/* ---- the answers */

static int path_of(const struct ha_test_device_ask *p)
{
    const bool aligned = p->layout == HA_TEST_HEADS || p->layout == HA_TEST_TOKENS;
    const size_t units = p->lists ? p->lists : p->kv_heads;
    return p->dtype != HA_F32 && aligned && p->q_len * p->group * p->kv_heads > units ? PATH_MMA : PATH_FMA;
}

static void judge_error(const struct ha_test_device_ask *p, const char *what, size_t b, size_t head,
                        const struct ha_answer_error *e, double *most)
{
    *most = fmax(*most, e->ratio);
    if (e->ratio <= 1) return;
    printf(
        "%s %s d=%zu kv_heads=%zu group=%zu q_len=%zu batch=%zu keys=%zu runs=%zu block=%zu indexed=%u causal=%d "
        "layout=%d family=%d "
        "splits=%u lists=%zu list_keys=%d q_gap=%zu seed=%lu: %s of sequence %zu, unit %zu, row %zu, %zu: ratio %g\n",
        path_of(p) == PATH_MMA ? "mma" : "fma", ha_dtype_name(p->dtype), p->dim, p->kv_heads, p->group, p->q_len,
        p->batch, p->keys[b], p->runs, p->block, p->indexed, p->causal, (int)p->layout, (int)p->family, p->splits,
        p->lists, p->list_keys, p->q_gap, (unsigned long)p->seed, what, b, head, e->row, e->at, e->ratio);
    fail();
}

/* Every output against the reference; ends the test at the first that is wrong. */
static void problem_judge(const struct ha_test_device_problem *run)
{
    const struct ha_test_device_ask *p = &run->ask;
    struct ha_profile profile = ha_cuda_attend_profile(p->dtype);
    profile.exp_eps = profile.log_eps = EPS;
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; h < ha_seq_units(&run->args); h++) {
            const struct ha_test_device_error e = ha_test_device_judge(run, &profile, p->runs, b, h);
            judge_error(p, "output", b, h, &e.output, &worst[path_of(p)][p->dtype]);
            judge_error(p, "weight", b, h, &e.weight, &worst_weight);
            judged += e.outputs;
            judged_weights += e.weights;
        }
}

static void problem_check(const struct ha_test_device_ask *p)
{
    struct ha_test_device_problem run;
    ha_test_device_make(&run, p, &ha_test_heap);
    problem_attend(&run, p->splits);
    problem_judge(&run);
    ha_test_device_free(&run);
}

/* ---- tests */

/* one query token of one head */
static const struct ha_test_device_ask one = {
    .dim = 64, .kv_heads = 1, .group = 1, .q_len = 1, .batch = 1, .runs = 1, .layout = HA_TEST_TOKENS
};

static const struct {
    size_t group, q_len;
} asks[] = {
    { 1, 1 }, { 4, 1 }, { 8, 1 }, { 16, 1 }, { 2, 2 },  { 5, 1 }, { 4, 5 },
    { 1, 2 }, { 2, 1 }, { 1, 5 }, { 8, 5 },  { 2, 16 }, { 5, 5 },
};

static struct ha_test_device_ask problem_of(size_t id)
{
    static const unsigned splits[] = { 0, 1, 2, 7, 64 };
    static const size_t blocks[] = { 0, 16, 1, 5, 64 };
    struct ha_test_device_ask p = {
        .dtype = (enum ha_dtype)(id % HA_DTYPE_COUNT),
        .dim = 64,
        .kv_heads = 1 + id / 2 % 2,
        .group = asks[id % COUNT(asks)].group,
        .q_len = asks[id % COUNT(asks)].q_len,
        .batch = 1,
        .keys = { 100 },
        .runs = 1 + id / 3 % HA_RUNS_MAX,
        .block = blocks[id / 4 % 5],
        .indexed = (unsigned)(id % 3 == 0 ? 0 : id),
        .weights = id % 5 < 2,
        .empty_run = id % 7 == 0,
        .layout = (enum ha_test_device_layout)(id / 5 % 7 < HA_TEST_DEVICE_LAYOUTS ? id / 5 % 7 : id % 2),
        .family = (enum ha_test_family)(id / 2 % HA_TEST_ALL_FAMILIES),
        .seed = id + 1,
        .splits = splits[id / 3 % 5],
    };
    return p;
}

/* a query token is a key, too */
static void causal_where_it_can_be(struct ha_test_device_ask *p, size_t id)
{
    p->causal = id % 3 != 0;
    for (size_t b = 0; b < p->batch; b++) p->causal = p->causal && p->keys[b] >= p->q_len;
}

TEST(every_length_dimension_and_type)
{
    static const size_t dims[] = { 8, 64, 80, 96, 128, 192, 256 }, keys[] = { 0, 1, 7, 8, 9, 31, 33, 100, 300 };
    size_t id = 0;
    for (size_t d = 0; d < COUNT(dims); d++)
        for (size_t n = 0; n < COUNT(keys); n++)
            for (size_t i = 0; i < (test_small ? 1 : 3); i++, id++) {
                if (HA_SANITIZED && d % 3 != n % 3)
                    continue; /* each dimension, length and type, but not with each other */
                struct ha_test_device_ask p = problem_of(id);
                p.dtype = (enum ha_dtype)((n + d + i) % HA_DTYPE_COUNT);
                p.dim = dims[d];
                p.keys[0] = keys[n];
                causal_where_it_can_be(&p, id);
                problem_check(&p);
            }
}

/* Every number of rows of a head, with and without tensor cores, in tiles that are full and not. */
TEST(every_number_of_rows)
{
    for (size_t rows = 1; rows <= 36; rows += test_small ? 7 : 1)
        for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++) {
            if (HA_SANITIZED && (rows + (size_t)dtype) % 2) continue; /* a type has every second one */
            struct ha_test_device_ask p = problem_of(rows);
            p.family = HA_TEST_NORMAL;
            p.dtype = (enum ha_dtype)dtype;
            p.layout = (enum ha_test_device_layout)(rows % 3);
            p.group = rows % 2 ? rows : 1;
            p.q_len = rows / p.group;
            p.keys[0] = 45;
            p.causal = true;
            p.dim = rows % 4 == 1 ? 200 : 72;
            problem_check(&p);
        }
}

/* What is hard on the arithmetic, for each type, with and without tensor cores. */
TEST(every_family)
{
    static const size_t keys[] = { 200, 17, 1 };
    for (int family = 0; family < HA_TEST_ALL_FAMILIES; family++)
        for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
            for (size_t rows = 1; rows <= 4; rows += 3)
                for (size_t n = 0; n < (test_small ? 1 : 3); n++) {
                    if (HA_SANITIZED && (family + dtype + (int)rows / 3) % 3) continue; /* families take turns */
                    struct ha_test_device_ask p = one;
                    p.dtype = (enum ha_dtype)dtype;
                    p.dim = 128;
                    p.group = rows;
                    p.keys[0] = keys[n];
                    p.weights = true;
                    p.family = (enum ha_test_family)family;
                    p.seed = 50 + n;
                    p.splits = n == 0 ? 1 : 0;
                    problem_check(&p);
                }
}

TEST(long_contexts)
{
    static const struct ha_test_device_ask set[] = {
        { HA_F16, 128, 1, 4, 1, 1, { 1000 }, .family = HA_TEST_TIES, .splits = 1 },
        { HA_BF16, 64, 1, 8, 1, 1, { 1000 }, .family = HA_TEST_INCREASING, .splits = 2 },
        { HA_F32, 64, 1, 4, 1, 1, { 1000 }, .family = HA_TEST_TIES, .splits = 1 },
        { HA_F16, 64, 1, 2, 1, 1, { 5000 }, .family = HA_TEST_TIES, .splits = 1 },
        { HA_BF16, 128, 1, 4, 1, 1, { 5000 }, .family = HA_TEST_NORMAL, .splits = 0 },
        { HA_F32, 128, 1, 1, 1, 1, { 5000 }, .family = HA_TEST_TIES, .splits = 1 },
        { HA_F16, 256, 1, 2, 1, 1, { 3000 }, .family = HA_TEST_TIES, .splits = 1 },
        { HA_F32, 256, 1, 4, 1, 1, { 3000 }, .family = HA_TEST_TIES, .splits = 1 },
        { HA_F16, 128, 1, 1, 1, 1, { 5000 }, .family = HA_TEST_TIES, .splits = 1 },
        { HA_BF16, 8, 1, 3, 1, 1, { 40000 }, .family = HA_TEST_TIES, .splits = 1 },
        { HA_F32, 8, 1, 2, 1, 1, { 40000 }, .family = HA_TEST_TIES, .splits = 1 },
        { HA_F16, 8, 1, 24, 1, 1, { 20000 }, .family = HA_TEST_TIES, .splits = 1 },
    };
    for (size_t i = 0; i < (test_small ? 3 : COUNT(set)); i++) {
        struct ha_test_device_ask p = set[i];
        p.runs = 1 + i % 2;
        p.layout = HA_TEST_TOKENS;
        p.seed = 300 + i;
        problem_check(&p);
    }
}

TEST(appends)
{
    static const struct ha_test_device_ask set[] = {
        { HA_F16, 64, 1, 2, 64, 1, { 64 }, .runs = 1 },   { HA_BF16, 128, 2, 4, 16, 1, { 150 }, .runs = 3 },
        { HA_F32, 64, 1, 1, 64, 1, { 100 }, .runs = 2 },  { HA_F16, 256, 2, 2, 20, 1, { 70 }, .runs = 2 },
        { HA_BF16, 80, 1, 1, 64, 1, { 300 }, .runs = 4 }, { HA_F32, 200, 2, 2, 40, 1, { 40 }, .runs = 1 },
    };
    for (size_t i = 0; i < (test_small ? 3 : COUNT(set)); i++)
        for (unsigned splits = 0; splits <= 3; splits += 3) {
            if (HA_SANITIZED && (i + splits) % 2) continue; /* split, or not */
            struct ha_test_device_ask p = set[i];
            p.layout = HA_TEST_TOKENS;
            p.causal = true;
            p.weights = i % 2 == 0;
            p.seed = 400 + i;
            p.splits = splits;
            p.indexed = (unsigned)i;
            problem_check(&p);
        }
}

/* Mixed lengths; more sequences than the arguments hold, than one launch takes; few multiprocessors, many splits. */
TEST(batches)
{
    static const struct {
        size_t batch, most;
        unsigned multiprocessors;
    } set[] = { { 3, 400, 132 }, { 17, 70, 4 }, { 70, 30, 16 }, { 150, 9, 1 } };
    for (size_t i = 0; i < COUNT(set); i++)
        for (int dtype = 0; dtype < (test_small ? 2 : HA_DTYPE_COUNT); dtype++) {
            if (HA_SANITIZED && (i + (size_t)dtype) % 2) continue; /* each batch in one type */
            struct ha_test_device_ask p = problem_of(3 * i + (size_t)dtype);
            p.family = HA_TEST_NORMAL;
            p.dtype = (enum ha_dtype)dtype;
            p.dim = 32;
            p.group = 2;
            p.q_len = 1 + i % 2;
            p.batch = set[i].batch;
            p.multiprocessors = set[i].multiprocessors;
            p.splits = i % 2 ? 0 : p.splits;
            for (size_t b = 0; b < p.batch; b++) p.keys[b] = 2 + (b * b * 37 + b) % set[i].most;
            if (!(i % 2)) p.keys[1] = 0;
            causal_where_it_can_be(&p, i + 1);
            problem_check(&p);
        }
}

/* The same bits in every order of threads and blocks. */
TEST(orders)
{
    static const char *const order[] = { "forward", "backward", "7" };
    for (size_t id = 0; id < (HA_SANITIZED ? 3 : test_small ? 6 : 18); id++) {
        struct ha_test_device_ask p = problem_of(id);
        p.dim = id % 2 ? 128 : 160;
        p.keys[0] = 90;
        p.batch = 2;
        p.keys[1] = 33;
        p.splits = 1 + (unsigned)id % 4;
        p.weights = true;
        causal_where_it_can_be(&p, id);
        struct ha_test_device_problem run;
        ha_test_device_make(&run, &p, &ha_test_heap);
        const size_t heads = p.kv_heads * p.group, bytes = p.q_len * heads * p.dim * sizeof(float);
        char *first = malloc(p.batch * bytes);
        assert_non_null(first);
        for (size_t i = 0; i < COUNT(order); i++) {
            assert_true(ha_emulated_order(order[i]));
            problem_attend(&run, p.splits);
            for (size_t b = 0; b < p.batch; b++) {
                if (i == 0) memcpy(first + b * bytes, run.seq[b].o, bytes);
                assert_memory_equal(first + b * bytes, run.seq[b].o, bytes);
            }
        }
        assert_true(ha_emulated_order("forward"));
        problem_judge(&run);
        free(first);
        ha_test_device_free(&run);
    }
}

/* However the keys are split, each result is within the bound of the one that is right. */
TEST(splits_agree)
{
    for (size_t id = 0; id < (test_small ? 3 : 9); id++) {
        static const unsigned splits[] = { 0, 1, 2, 7, 64, 1000 };
        struct ha_test_device_ask p = problem_of(id);
        p.dim = 128;
        p.family = HA_TEST_PEAKED;
        p.keys[0] = 500;
        p.multiprocessors = id % 2 ? 132 : 1; /* of one, many splits fill the workspace */
        p.weights = false;
        causal_where_it_can_be(&p, id);
        struct ha_test_device_problem run;
        ha_test_device_make(&run, &p, &ha_test_heap);
        for (size_t i = 0; i < COUNT(splits); i++) {
            p.splits = splits[i];
            problem_attend(&run, splits[i]);
            problem_judge(&run);
        }
        ha_test_device_free(&run);
    }
}

/* Each head's own keys: of KV heads and of query heads, as many as are there or fewer, a run of all heads behind them.
 */
TEST(lists)
{
    static const size_t dims[] = { 64, 128, 80 }, blocks[] = { 1, 16, 32 }, gaps[] = { 0, 4, 3 };
    static const unsigned splits[] = { 0, 3 };
    static const char *const order[] = { "forward", "backward", "7" };
    for (size_t id = 0; id < (HA_SANITIZED ? 18 : test_small ? 12 : 72); id++) {
        const size_t q_len = id / 6 % 2 ? 3 : 1;
        struct ha_test_device_ask p = {
            .dtype = (enum ha_dtype)(id % HA_DTYPE_COUNT),
            .dim = dims[id / 3 % 3],
            .kv_heads = 2,
            .group = 2 + id % 2,
            .q_len = q_len,
            .batch = id == 5 ? 18 : 3,
            .keys = { 150 + q_len, 1 + q_len, 40 + q_len },
            .runs = 1u + (id / 2 % 4 > 0) + (id % 5 == 0),
            .block = blocks[id / 5 % 3],
            .empty_run = id % 11 == 10,
            .list_keys = id / 4 % 2,
            .q_gap = gaps[id / 7 % 3],
            .layout = (enum ha_test_device_layout)(id / 2 % HA_TEST_DEVICE_LAYOUTS),
            .family = (enum ha_test_family)(id % 2 ? HA_TEST_NORMAL : HA_TEST_PEAKED),
            .seed = 700 + id,
            .splits = splits[id / 2 % 2],
            .multiprocessors = id % 2 ? 132 : 2,
        };
        p.lists = id / 3 % 2 ? p.kv_heads : p.kv_heads * p.group;
        p.causal = p.runs > 1;
        p.weights = !p.list_keys;
        for (size_t b = 3; b < p.batch; b++) p.keys[b] = q_len + b;
        assert_true(ha_emulated_order(order[id % 3]));
        problem_check(&p);
    }
    assert_true(ha_emulated_order("forward"));
}

/* NaN in a key or a value comes out; it is not taken for a key that is not there. */
TEST(nan_stays)
{
    for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
        for (size_t keys = 1; keys <= 200; keys += 199)
            for (int in_v = 0; in_v < 2; in_v++) {
                struct ha_test_device_ask p = one;
                p.dtype = (enum ha_dtype)dtype;
                p.group = 3;
                p.keys[0] = keys;
                p.layout = HA_TEST_HEADS;
                p.seed = 9;
                p.splits = 2;
                struct ha_test_device_problem run;
                ha_test_device_make(&run, &p, &ha_test_heap);
                union {
                    const void *from;
                    char *to;
                } at = { .from = in_v ? run.seq[0].runs[0].v : run.seq[0].runs[0].k };
                memset(at.to + (keys - 1) * run.seq[0].runs[0].k_stride_bytes, 0xFF, ha_dtype_bytes(p.dtype));
                problem_attend(&run, p.splits);
                for (size_t h = 0; h < p.group; h++) {
                    assert_true(isnan(run.seq[0].o[h * p.dim]));
                    assert_true(in_v || isnan(run.seq[0].lse[h]));
                }
                ha_test_device_free(&run);
            }
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
            const unsigned blocks = problem_blocks(SLOTS / 2, &args), rounds = (blocks + SLOTS - 1) / SLOTS;
            if (!(blocks >= (keys[n % COUNT(keys)] < 10000 ? 0.8 : 0.9) * rounds * SLOTS)) {
                printf("%zu heads, %zu sequences of %zu keys: %u blocks\n", h, batch[i], keys[n % COUNT(keys)], blocks);
                fail();
            }
        }
    args.batch = 64;
    args.q_heads = 4 * heads[0];
    args.kv_heads = heads[0];
    for (size_t b = 1; b < 64; b++) seq[b].runs[0].keys = 500;
    assert_true(problem_blocks(SLOTS / 2, &args) >= 63 * heads[0] + SLOTS / 2);
}

TEST(wrong_sizes_are_refused)
{
    const struct ha_device_attend args[] = {
        { .q_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 12, .batch = 1 },
        { .q_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 264, .batch = 1 },
        { .q_len = 1, .q_heads = 3, .kv_heads = 2, .head_dim = 64, .batch = 1 },
        { .q_len = 1, .q_heads = 1, .kv_heads = 0, .head_dim = 64, .batch = 1 },
        { .q_len = 1, .q_heads = 8, .kv_heads = 2, .head_dim = 64, .batch = 1, .lists = 4 },
    };
    for (size_t i = 0; i < COUNT(args); i++) {
        assert_int_equal(ha_cuda_attend_workspace(1, &args[i]), 0);
        assert_int_equal(ha_cuda_attend(1, NULL, &args[i], NULL, 0), cudaErrorInvalidValue);
    }
}

static int report(void **state)
{
    static const char *const name[PATHS] = { "fma", "mma" };
    for (int path = 0; path < PATHS; path++)
        printf("%s: worst error / bound: f32 %.3f, f16 %.3f, bf16 %.3f\n", name[path], worst[path][HA_F32],
               worst[path][HA_F16], worst[path][HA_BF16]);
    printf("%zu outputs; %zu weights, worst / bound: %.3f\n", judged, judged_weights, worst_weight);
    return 0;
}

/* as a driver would say: a multiprocessor holds two blocks of each kernel */
static int begin(void **state)
{
    const struct ha_cuda_kernels *const files[] = { &ha_cuda_kernels_attend_mma_f16, &ha_cuda_kernels_attend_mma_bf16,
                                                    &ha_cuda_kernels_attend_fma };
    for (size_t f = 0; f < COUNT(files); f++)
        for (size_t i = 0; i < files[f]->count; i++) files[f]->list[i].resident = 2;
    return 0;
}

TEST_MAIN { return test_all("tests", begin, report); }
