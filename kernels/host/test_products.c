/* attend_products and product of the embedded device, by whichever BLAS this machine has: what is said without one,
 * when it is loaded, graphs, and what is refused. The suite device has shapes, types and special numbers. */

#include "kernels/host/host.h"
#include "kernels/host/test_fixture.h"
#include "kernels/test_products.h"

#include <sys/wait.h>

static void *on_device(void *self, size_t bytes) { return (void)self, device_alloc(dev, HA_MEM_DEVICE, bytes); }
static void off_device(void *self, void *ptr) { (void)self, device_release(ptr); }
static const struct ha_test_memory memory = { NULL, on_device, off_device };

static void needs_a_blas(void)
{
    if (ha_host_products_absent()) skip();
}

/* In a process of its own, where no library has been loaded yet. */
TEST(absence_is_explained)
{
    static const char *const named[] = { "./no such library.so", "libm.so.6" };
    for (size_t i = 0; i < 2; i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            char text[160];
            struct ha_device_info info;
            setenv("HABENCH_BLAS", named[i], 1);
            snprintf(text, sizeof text, "no CBLAS in HABENCH_BLAS=%s", named[i]);
            struct ha_device_config config = { &test_kernels, 0 };
            if (api->open(&dev, &config, &why) != HA_OK) _exit(1);
            api->info(dev, &info);
            if (strcmp(info.no_products, text)) _exit(2);
            stream = device_stream(dev, "main");
            const struct ha_device_product product = { .m = 0 };
            if (api->product(stream, &product) != HA_ERROR || !strstr(api->failure(dev), text)) _exit(3);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static bool blas_is_loaded(void)
{
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) found = found || strstr(line, "blas");
    fclose(maps);
    return found;
}

static size_t threads(void)
{
    char line[128];
    size_t count = 0;
    FILE *status = fopen("/proc/self/status", "r");
    assert_non_null(status);
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "Threads:", 8)) count = strtoul(line + 8, NULL, 10);
    fclose(status);
    return count;
}

/* Opened and asked, a device has not loaded a library; with the first product it has, and that started no thread. It
 * stands before the tests that multiply. */
DEVICE_TEST(loaded_with_the_first_product)
{
    struct ha_device_info info;
    const struct ha_device_product product = { .m = 0 };
    setenv("OPENBLAS_NUM_THREADS", "7", 1);
    api->info(dev, &info);
    if (!*info.no_products) {
        assert_false(blas_is_loaded());
        const size_t before = threads();
        ok(api->product(stream, &product));
        assert_true(blas_is_loaded());
        assert_int_equal(threads(), before);
    }
    assert_string_equal(getenv("OPENBLAS_NUM_THREADS"), "7");
    unsetenv("OPENBLAS_NUM_THREADS");
}

DEVICE_TEST(graphs_hold_them)
{
    needs_a_blas();
    const struct ha_profile profile = ha_host_products_profile();
    struct ha_test_device_problem *p = test_problem_make(&test_recipes[5], HA_BF16, &memory);
    void *x = test_draw(&memory, 8, HA_F16, 1), *y = device_alloc(dev, HA_MEM_DEVICE, 2);
    const struct ha_device_product product = { .y = y, .x = x, .w = x, .m = 1, .n = 1, .k = 8, .dtype = HA_F16 };
    ok(api->graph_begin(stream));
    ok(api->attend_products(stream, &p->args));
    ok(api->product(stream, &product));
    struct ha_graph *graph = graph_of(stream);
    for (uint64_t i = 0; i < 2; i++) {
        for (size_t b = 0; b < p->ask.batch; b++) ha_test_device_query(p, b, 7000 + 10 * i + b);
        memset(y, 0xff, 2);
        ok(api->graph_launch(graph, stream));
        ok(api->stream_sync(stream));
        ha_test_device_check(p, &profile);
        test_product_check(&product);
    }
    api->graph_destroy(graph);
    test_problem_free(p);
}

TEST(refuses)
{
    needs_a_blas();
    static const char *const words[] = { "an index",      "gives no weights",       "attend_products",
                                         "beyond a BLAS", "product on stream main", "takes no lists" };
    for (size_t i = 0; i < COUNT(words); i++) {
        device_begin(state);
        struct ha_test_device_problem *p = test_problem_make(&test_recipes[2], HA_F32, &memory);
        struct ha_device_product product = { .m = 1, .n = 1, .k = 1 };
        uint32_t *index = device_alloc(dev, HA_MEM_DEVICE, 64 * sizeof *index);
        float *weights = device_alloc(dev, HA_MEM_DEVICE, 6 * 64 * sizeof *weights), here = 0;
        memset(index, 0, 64 * sizeof *index);
        if (i == 0) p->seq[0].runs[0].index = index;
        if (i == 1) p->seq[0].weights = weights, p->seq[0].weights_stride = 64;
        if (i == 2) p->seq[0].o = &here;
        if (i == 3) product.k = (size_t)1 << 31;
        if (i == 4) product.y = &here;
        if (i == 5) p->args.lists = p->args.kv_heads;
        assert_int_equal(i < 3 || i == 5 ? api->attend_products(stream, &p->args) : api->product(stream, &product),
                         HA_ERROR);
        test_problem_free(p);
        failure = words[i];
        device_end(state);
    }
}

DEVICE_TEST(info_has_the_profile)
{
    struct ha_device_info info;
    api->info(dev, &info);
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++)
        assert_true(info.products[t].dot_lanes == 1 && info.products[t].sum_lanes == 1
                    && info.products[t].weight_type == HA_F32);
    assert_int_equal(*info.no_products != 0, ha_host_products_absent() != NULL);
}
