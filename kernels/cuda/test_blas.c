/* blas.c over the emulated device and a stand-in for the library (fake_cublas.c, HABENCH_CUBLAS): what it computes,
 * what it asks the library for, what it refuses. Called below the checks of operands, on memory of malloc. Compiled a
 * second time with HA_CUDA_SCORES_BYTES so small that everything is done in pieces. */

#include "harness/base/test_beside.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/test_launch.h"
#include "kernels/host/test_fixture.h"
#include "kernels/test_products.h"

static void begin(void)
{
    device_begin(NULL);
    dev->eps[HA_CUDA_EXP] = dev->eps[HA_CUDA_LOG] = 0x1p-22; /* test_accuracy.cu */
}

static void done(enum ha_status status)
{
    if (status != HA_OK || api->stream_sync(stream) != HA_OK) fail_msg("%s", api->failure(dev));
}

static void fails_with(enum ha_status status, const char *words)
{
    assert_int_equal(status, HA_ERROR);
    device_close(dev, words);
}

/* a variable of the stand-in */
static void *of_fake(const char *name) { return beside_symbol("fake_cublas.so", name); }
static unsigned count_of(const char *name) { return *(unsigned *)of_fake(name); }

/* ---- products */

TEST(multiplies)
{
    static const size_t shapes[][3] = { { 1, 1, 1 }, { 1, 40, 64 }, { 5, 7, 33 }, { 16, 96, 24 },
                                        { 3, 4, 0 }, { 0, 4, 8 },   { 4, 0, 8 } };
    begin();
    for (size_t i = 0; i < COUNT(shapes) * HA_DTYPE_COUNT; i++) {
        const size_t *shape = shapes[i / HA_DTYPE_COUNT], m = shape[0], n = shape[1], k = shape[2];
        const enum ha_dtype dtype = (enum ha_dtype)(i % HA_DTYPE_COUNT);
        void *x = test_draw(&ha_test_heap, m * k, dtype, 1), *w = test_draw(&ha_test_heap, n * k, dtype, 2), *y;
        assert_int_equal(cudaMalloc(&y, m * n * ha_dtype_bytes(dtype) + 1), cudaSuccess); /* bytes of 0xff */
        const struct ha_device_product p = { .y = y, .x = x, .w = w, .m = m, .n = n, .k = k, .dtype = dtype };
        done(ha_cuda_product(stream, &p));
        test_product_check(&p);
        free(x), free(w);
        assert_int_equal(cudaFree(y), cudaSuccess);
    }
    const struct ha_device_product huge = { .m = 1, .n = (size_t)1 << 31, .k = 1 };
    fails_with(ha_cuda_product(stream, &huge), "beyond 32 bits");
}

/* The halves of a sum are 1.2e5 and -1.2e5, which 16 bits cannot hold. */
TEST(partial_sums_stay_in_binary32)
{
    enum { K = 24 };
    float x[K], w[K];
    uint16_t stored[2][K];
    void *y;
    begin();
    for (size_t i = 0; i < K; i++) x[i] = 100, w[i] = i < K / 2 ? 100 : -100;
    x[0] += 1;
    ha_store_row(stored[0], K, HA_F16, x);
    ha_store_row(stored[1], K, HA_F16, w);
    assert_int_equal(cudaMalloc(&y, 64), cudaSuccess);
    done(ha_cuda_product(stream, &(struct ha_device_product){ y, stored[0], stored[1], 1, 1, K, HA_F16 }));
    assert_true(ha_load(y, 0, HA_F16) == 100.0f);
    assert_int_equal(cudaFree(y), cudaSuccess);
    device_close(dev, NULL);
}

/* Nor does the environment make TF32 of binary32. */
TEST(binary32_is_all_of_it)
{
    const float x = 1 + 0x1p-20f, w = 1;
    void *y;
    begin();
    setenv("NVIDIA_TF32_OVERRIDE", "1", 1);
    assert_int_equal(cudaMalloc(&y, 64), cudaSuccess);
    done(ha_cuda_product(stream, &(struct ha_device_product){ y, &x, &w, 1, 1, 1, HA_F32 }));
    unsetenv("NVIDIA_TF32_OVERRIDE");
    assert_true(*(float *)y == x);
    assert_int_equal(cudaFree(y), cudaSuccess);
    device_close(dev, NULL);
}

/* ---- attention */

static void check(const struct ha_test_device_problem *p)
{
    const struct ha_profile profile = ha_cuda_products_profile(dev, p->args.dtype);
    ha_test_device_check(p, &profile);
}

TEST(attends)
{
    begin();
    for (size_t i = 0; i < TEST_RECIPES * HA_DTYPE_COUNT; i++) {
        test_order(i);
        struct ha_test_device_problem *p = test_problem_make(&test_recipes[i / HA_DTYPE_COUNT],
                                                             (enum ha_dtype)(i % HA_DTYPE_COUNT), &ha_test_heap);
        done(ha_cuda_attend_products(stream, &p->args));
        check(p);
        test_problem_free(p);
        /* the next one's workspace is new, and as large as it asks for */
        device_release(stream);
        ha_cuda_workspaces_free(dev);
        stream = device_stream(dev, "main");
    }
    device_close(dev, NULL);
    test_order(0);
}

/* Sequences alike share a call of the library, and no more is asked of it than is needed. */
TEST(batches)
{
#ifdef HA_CUDA_SCORES_BYTES
    /* pieces of one problem: recipe 5 has 5 sequences of 2 heads with 2 or 1 runs of keys, and 2 tokens */
    const unsigned calls = 2 * 2 * 2 * (2 + 2 + 2 + 1 + 1), problems = calls;
#else
    const unsigned calls = 2 * (2 + 2 + 1), problems = 2 * 2 * (2 * 2 + 2 + 2);
#endif
    begin();
    struct ha_test_device_problem *p = test_problem_make(&test_recipes[5], HA_F16, &ha_test_heap);
    done(ha_cuda_attend_products(stream, &p->args)); /* loads the library */
    const unsigned calls_before = count_of("fake_cublas_gemm_batched"), before = count_of("fake_cublas_problems");
    done(ha_cuda_attend_products(stream, &p->args));
    assert_int_equal(count_of("fake_cublas_gemm_batched") - calls_before, calls);
    assert_int_equal(count_of("fake_cublas_problems") - before, problems);
    test_problem_free(p);
    device_close(dev, NULL);
}

/* ---- a graph holds it: nothing of the call is needed later */

TEST(is_captured)
{
    begin();
    struct ha_graph *graph;
    struct ha_test_device_problem *p = test_problem_make(&test_recipes[2], HA_BF16, &ha_test_heap);
    struct ha_device_seq *seq = test_alloc(sizeof *seq);
    struct ha_device_attend *a = test_alloc(sizeof *a);
    *seq = p->seq[0], *a = p->args, a->seqs = seq;
    /* the first call of all comes while capturing: the handle, which could not be made then, is there */
    assert_int_equal(*(int *)of_fake("fake_cublas_handles"), 1);
    ok(api->graph_begin(stream));
    ok(ha_cuda_attend_products(stream, a));
    ok(api->graph_end(stream, &graph, &why));
    free(a), free(seq);
    assert_true(isnan(p->seq[0].lse[0]));
    for (uint64_t i = 0; i < 2; i++) {
        ha_test_device_query(p, 0, 7000 + i);
        done(api->graph_launch(graph, stream));
        check(p);
    }
    api->graph_destroy(graph);
    test_problem_free(p);
    device_close(dev, NULL);
}

/* ---- two streams, two threads, one handle */

struct feeder {
    struct ha_stream *stream;
    struct ha_test_device_problem *p;
    enum ha_status status;
};

static void *feed(void *arg)
{
    struct feeder *f = arg;
    for (int i = 0; i < 8 && f->status == HA_OK; i++) f->status = ha_cuda_attend_products(f->stream, &f->p->args);
    return NULL;
}

TEST(streams_share_the_handle)
{
    begin();
    struct feeder f[2] = { { .p = test_problem_make(&test_recipes[2], HA_F32, &ha_test_heap) },
                           { .p = test_problem_make(&test_recipes[5], HA_F16, &ha_test_heap) } };
    pthread_t thread[2];
    for (size_t i = 0; i < 2; i++) f[i].stream = device_stream(dev, i ? "one" : "other");
    for (size_t i = 0; i < 2; i++) assert_int_equal(pthread_create(&thread[i], NULL, feed, &f[i]), 0);
    for (size_t i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        done(f[i].status);
    }
    for (size_t i = 0; i < 2; i++) {
        device_release(f[i].stream);
        check(f[i].p);
        test_problem_free(f[i].p);
    }
    assert_int_equal(*(int *)of_fake("fake_cublas_handles"), 1);
    device_close(dev, NULL);
    assert_int_equal(*(int *)of_fake("fake_cublas_handles"), 0);
}

/* ---- what it does not do */

TEST(refuses)
{
    static const char *const words[] = {
        "multiples of 16 bytes",     "multiples of 16 bytes", "scale is not positive", "an index",
        "weights are not given",     "whole elements",        "rows overlap",          "more than 32 bits apart",
        "more than 32 bits of keys", "there are lists"
    };
    for (size_t i = 0; i < COUNT(words); i++) {
        begin();
        struct ha_test_device_problem *p = test_problem_make(&test_recipes[2], HA_F16, &ha_test_heap);
        struct ha_device_seq *seq = &p->seq[0];
        const uint32_t index[64] = { 0 };
        float weight;
        if (i == 0) seq->runs[0].v = (const char *)seq->runs[0].v + 2;
        if (i == 1) seq->k_head_bytes += 8;
        if (i == 2) p->args.scale = 0;
        if (i == 3) seq->runs[0].index = index;
        if (i == 4) seq->weights = &weight;
        if (i == 5) seq->runs[0].v_stride_bytes++;
        if (i == 6) seq->runs[0].k_stride_bytes = 46;
        if (i == 7) seq->runs[0].k_stride_bytes = (size_t)1 << 33;
        if (i == 8) seq->runs[0].keys = INT32_MAX;
        if (i == 9) p->args.lists = p->args.kv_heads;
        fails_with(ha_cuda_attend_products(stream, &p->args), words[i]);
        test_problem_free(p);
    }
}

TEST(errors_are_named)
{
    static const struct {
        const char *fails, *words;
    } cases[] = {
        { "cublasCreate:1",
          "attend_products on stream main: cublasCreate (the library may be too new for the driver, or no "
          "memory be left): CUBLAS_STATUS_NOT_INITIALIZED (1)" },
        { "cublasSetMathMode:15", "cublasSetMathMode: CUBLAS_STATUS_NOT_SUPPORTED (15)" },
        { "cublasSetStream:13", "cublasSetStream: CUBLAS_STATUS_EXECUTION_FAILED (13)" },
        { "cublasSetWorkspace:7", "cublasSetWorkspace: CUBLAS_STATUS_INVALID_VALUE (7)" },
        { "cublasGemmBatchedEx:15", "cublasGemmBatchedEx: CUBLAS_STATUS_NOT_SUPPORTED (15)" },
        { "cublasGemmEx:13", "product on stream main: cublasGemmEx: CUBLAS_STATUS_EXECUTION_FAILED (13)" },
    };
    float x[4] = { 0 };
    const struct ha_device_product product = { .y = x, .x = x + 1, .w = x + 2, .m = 1, .n = 1, .k = 1 };
    for (size_t i = 0; i < COUNT(cases); i++) {
        setenv("HA_FAKE_CUBLAS_FAIL", cases[i].fails, 1);
        begin(); /* the device is opened all the same: not everybody multiplies */
        struct ha_test_device_problem *p = test_problem_make(&test_recipes[0], HA_F16, &ha_test_heap);
        const bool attention = !strstr(cases[i].words, "product on");
        const enum ha_status status = attention ? ha_cuda_attend_products(stream, &p->args)
                                                : ha_cuda_product(stream, &product);
        unsetenv("HA_FAKE_CUBLAS_FAIL");
        fails_with(status, cases[i].words);
        test_problem_free(p);
    }
    assert_int_equal(*(int *)of_fake("fake_cublas_handles"), 0);
}

/* Before 11.4 the library has no names of them. */
TEST(errors_have_numbers)
{
    float x[4] = { 0 };
    char *fake = strdup(getenv("HABENCH_CUBLAS"));
    setenv("HABENCH_CUBLAS", beside("fake_cublas_old.so"), 1);
    begin();
    setenv("HA_FAKE_CUBLAS_FAIL", "cublasGemmEx:13", 1);
    const struct ha_device_product product = { .y = x, .x = x + 1, .w = x + 2, .m = 1, .n = 1, .k = 1 };
    const enum ha_status status = ha_cuda_product(stream, &product);
    unsetenv("HA_FAKE_CUBLAS_FAIL");
    fails_with(status, "product on stream main: cublasGemmEx: cuBLAS status (13)");
    setenv("HABENCH_CUBLAS", fake, 1);
    free(fake);
}

TEST(absence_is_explained)
{
    char *fake = strdup(getenv("HABENCH_CUBLAS"));
    const struct {
        const char *named, *words;
    } cases[] = {
        { NULL, "an emulated GPU has no cuBLAS" },
        { "./no such library.so", "HABENCH_CUBLAS=./no such library.so: cannot open" },
        { beside("fake_cublas_unbound.so"), "undefined symbol: cublasLt_of_another_version" },
        { "libm.so.6", "the library has no cublasCreate_v2" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct ha_device_product product = { .m = 1, .n = 1, .k = 1 };
        if (cases[i].named) setenv("HABENCH_CUBLAS", cases[i].named, 1);
        else unsetenv("HABENCH_CUBLAS");
        begin();
        assert_non_null(strstr(ha_cuda_blas_absent(dev), cases[i].words));
        assert_ptr_equal(ha_cuda_blas_absent(dev), ha_cuda_blas_absent(dev));
        fails_with(ha_cuda_product(stream, &product), cases[i].words);
    }
    setenv("HABENCH_CUBLAS", fake, 1);
    free(fake);
    static const char *const garbage[] = { "cublasGemmEx", "cublasGemmEx:", "cublasGemmEx:0", "cublasGemm:13", "" };
    for (size_t i = 0; i < COUNT(garbage); i++) {
        setenv("HA_FAKE_CUBLAS_FAIL", garbage[i], 1);
        begin();
        assert_contains(ha_cuda_blas_absent(dev), "not an entry that fails and its status");
        unsetenv("HA_FAKE_CUBLAS_FAIL");
        device_close(dev, NULL);
    }
    begin();
    assert_null(ha_cuda_blas_absent(dev));
    device_close(dev, NULL);
}

TEST(the_profile_says_what_is_rounded)
{
    const struct ha_device measured = { .eps = { [HA_CUDA_EXP] = 1e-7, [HA_CUDA_LOG] = 2e-7 } };
    for (int t = 0; t < HA_DTYPE_COUNT; t++) {
        const struct ha_profile p = ha_cuda_products_profile(&measured, (enum ha_dtype)t);
        assert_true(p.dot_lanes == 1 && p.sum_lanes == 1 && p.truncates == (t != HA_F32));
        assert_true(p.weight_type == (enum ha_dtype)t && p.exp_eps == 1e-7 && p.log_eps == 2e-7);
        const struct ha_bound bound = ha_bound_attend(&p, 128, 100000, 1);
        assert_true(bound.h_dot >= (t ? 256 : 128) && bound.h_sum >= (t ? 200000 : 100000) && bound.rescales == 0);
    }
}

static int with_fake(void **state) { return setenv("HABENCH_CUBLAS", beside("fake_cublas.so"), 1); }

TEST_MAIN { return test_all("tests", with_fake, NULL); }
