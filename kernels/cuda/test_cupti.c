/* CUPTI's records: read from buffers in any order, on our clock, by queue and time, with the names that nvcc makes. */

#include "harness/base/clock.h"
#include "harness/base/test_beside.h"
#include "kernels/cuda/fake_cupti.h"
#include "kernels/cuda/trace.h"

#include <unistd.h>

static uint64_t now; /* moves when a test says so */
uint64_t ha_now_ns(void) { return now; }

static struct ha_why why;
static struct fake_cupti *fake;
static struct ha_cupti *cupti;

static int open_fake(void **state)
{
    setenv("HABENCH_CUPTI", beside("fake_cupti.so"), 1);
    fake = beside_symbol("fake_cupti.so", FAKE_CUPTI_SYMBOL);
    fake->reset();
    if (ha_cupti_open(&cupti, &why) != HA_OK) fail_msg("%s", why.text);
    return 0;
}

static int close_fake(void **state)
{
    ha_cupti_close(cupti);
    cupti = NULL;
    return 0;
}

static size_t count; /* of the last stop */
static uint64_t lost;

static void start(void)
{
    now = 1000;
    if (ha_cupti_start(cupti, &why) != HA_OK) fail_msg("%s", why.text);
}

static const struct ha_cupti_record *stop_at(uint64_t ns)
{
    now = ns;
    return ha_cupti_stop(cupti, &count, &lost);
}
static const struct ha_cupti_record *stop(void) { return stop_at(UINT64_C(1000000000)); }

#define FMA                   \
    "_ZN46_GLOBAL__N__59d543" \
    "8a_13_attend_fma_cu_f0126e9d10attend_fmaIL8ha_dtype0ELj2ELj1EEEv12ha_cuda_call"
#define COMBINE "_ZN50_GLOBAL__N__7b0f3c51_17_attend_combine_cu_4d00c1a914attend_combineENS_7joiningE"

TEST_WITH(the_clock_is_ours_and_kernels_stay_concurrent, open_fake, close_fake)
{
    static const unsigned wanted[] = { 1, 2, 10 }; /* not those of calls, nor the kernels' that serialises */
    uint64_t all = 0;
    start();
    assert_false(fake->kinds_before_clock);
    assert_true(fake->now == ha_now_ns);
    for (size_t i = 0; i < COUNT(wanted); i++) all |= UINT64_C(1) << wanted[i];
    assert_true(fake->enabled == all);
    stop();
    assert_true(fake->enabled == 0 && fake->ever == all);
    assert_true(count == 0 && lost == 0);
}

/* CUPTI stamps the first records by another clock, once the clock has been registered again. */
TEST_WITH(the_clock_is_registered_once, open_fake, close_fake)
{
    for (int i = 0; i < 3; i++) {
        for (int pass = 0; pass < 3; pass++) {
            start();
            fake->kernel(FMA, 7, 2000, 3000);
            stop();
            assert_int_equal(count, 1);
            assert_int_equal(lost, 0);
        }
        close_fake(NULL);
        open_fake(NULL);
    }
}

TEST_WITH(records_come_by_queue_and_time, open_fake, close_fake)
{
    for (size_t in_buffer = 0; in_buffer < 6; in_buffer++) {
        fake->records_in_buffer = in_buffer;
        start();
        fake->graph = 3;
        fake->kernel(FMA, 9, 5000, 5500);
        fake->copy(1, 9, 8, 5600, 5700);
        fake->set(9, 8, 5750, 5800);
        fake->graph = 0;
        fake->set(8, 16, 2400, 2500);
        fake->copy(8, 8, 32, 2200, 2300);
        fake->copy(2, 8, 64, 2000, 2100);
        fake->copy(1, 8, 4096, 1000, 1200);
        fake->kernel(COMBINE, 7, 3600, 3700);
        fake->kernel(FMA, 7, 3000, 3500);
        const struct ha_cupti_record *r = stop();
        const uint64_t a = ha_cupti_stream(cupti, fake_cupti_handle(7)),
                       b = ha_cupti_stream(cupti, fake_cupti_handle(8)),
                       g = ha_cupti_graph(cupti, fake_cupti_handle(3));
        const struct ha_cupti_record want[] = {
            { 3000, 3500, 0, a, HA_CUPTI_KERNEL, HA_SPAN_KERNEL, "attend" },
            { 3600, 3700, 0, a, HA_CUPTI_KERNEL, HA_SPAN_KERNEL, "attend" },
            { 1000, 1200, 4096, b, HA_CUPTI_COPY, HA_SPAN_H2D, NULL },
            { 2000, 2100, 64, b, HA_CUPTI_COPY, HA_SPAN_D2H, NULL },
            { 2200, 2300, 32, b, HA_CUPTI_COPY, HA_SPAN_D2D, NULL },
            { 2400, 2500, 0, b, HA_CUPTI_SET, HA_SPAN_D2D, NULL },
            { 5000, 5500, 0, g, HA_CUPTI_KERNEL, HA_SPAN_KERNEL, "attend" },
            { 5600, 5700, 8, g, HA_CUPTI_COPY, HA_SPAN_H2D, NULL },
            { 5750, 5800, 0, g, HA_CUPTI_SET, HA_SPAN_D2D, NULL },
        };
        assert_int_equal(count, COUNT(want));
        assert_int_equal(lost, 0);
        for (size_t i = 0; i < count; i++) {
            assert_true(r[i].begin_ns == want[i].begin_ns && r[i].end_ns == want[i].end_ns);
            assert_true(r[i].bytes == want[i].bytes && r[i].queue == want[i].queue);
            assert_true(r[i].what == want[i].what && r[i].kind == want[i].kind);
            if (want[i].operation) assert_string_equal(r[i].operation, want[i].operation);
            else assert_null(r[i].operation);
        }
        if (in_buffer) assert_true(fake->buffers > 1);
    }
    assert_true(ha_cupti_stream(cupti, NULL) == 0 && ha_cupti_graph(cupti, NULL) == 0);
}

/* Names as nvcc 13 makes them, and of libraries. */
TEST(names_are_those_of_our_kernels_alone)
{
    static const struct {
        const char *function, *operation;
    } of[] = {
        { FMA, "attend" },
        { COMBINE, "attend" },
        { "_ZN50_GLOBAL__N__f9e95cc2_17_attend_mma_f16_cu_c9eca02310attend_mmaIL8ha_dtype1ELj4ELb0EEEv12ha_cuda_"
          "call",
          "attend" },
        { "_ZN44_GLOBAL__N__88458efb_11_products_cu_e513060122attend_products_gatherENS_3jobE", "attend_products" },
        { "_ZN12_GLOBAL__N_122attend_products_gatherENS_3jobE", "attend_products" },
        { "_Z23attend_products_softmaxILi128EL8ha_dtype0EEv14ha_cuda_scores", "attend_products" },
        { "_Z16softmax_in_placeILi128EEv12softmax_args", "softmax" },
        { "_Z9flag_wait9flag_args", "flag_wait" },
        { "_Z10merge_manyILi512EL8ha_dtype0ELb0EEv10merge_argsIXT_EE", "merge" },
        { "_Z20weighted_sum_of_listIL8ha_dtype1EL8ha_dtype0ELj1EEv8sum_args", "weighted_sum" },
        { "ampere_sgemm_128x64_tn", NULL },
        { "_ZN7cutlass7Kernel2I59cutlass_80_tensorop_f16_s16816gemm_relu_f16_64x64_64x6_tn_align8EEvNT_6ParamsE",
          NULL },
        { "_ZN4move4spinE9spin_args", NULL },
        { "_ZN4spin5outerEv", NULL },
        { "_ZN12_GLOBAL__N_14spin5outerEv", NULL },
        { "_ZN5outer4spinEv", NULL },
        { "_Z15thread_and_spinv", NULL },
        { "_Z5spins9spin_args", NULL },
        { "_Z4spi", NULL },
        { "_Z99spin", NULL },
        { "_Z99999999999999999999spin", NULL },
        { "_ZN12_GLOBAL__N_1", NULL },
        { "_ZN46_GLOBAL__N_", NULL },
        { "spin", NULL },
        { "_Z", NULL },
        { "", NULL },
        { NULL, NULL },
    };
    for (size_t i = 0; i < COUNT(of); i++) {
        const char *operation = ha_cupti_operation(of[i].function);
        if (of[i].operation ? !operation || strcmp(operation, of[i].operation) != 0 : operation != NULL)
            fail_msg("%s: %s", of[i].function ? of[i].function : "NULL", operation ? operation : "NULL");
    }
}

TEST_WITH(what_is_lost_is_counted, open_fake, close_fake)
{
    start();
    fake->kernel(FMA, 7, 0, 0); /* not stamped */
    fake->kernel(FMA, 7, 2500, 2400);
    fake->kernel(FMA, 7, 2500, 2600);
    fake->kernel(FMA, 7, 999, 1100); /* by another clock: before the trace, and after it */
    fake->kernel(FMA, 7, 2900, 3001);
    fake->copy(1, 7, 64, 1700000000000002000, 1700000000000003000);
    fake->kernel(FMA, 7, 1000, 3000);
    stop_at(3000);
    assert_int_equal(count, 2);
    assert_int_equal(lost, 5);
    start();
    fake->kernel(FMA, 7, 2500, 2600);
    fake->no_room = true;
    fake->records_in_buffer = 1;
    fake->kernel(FMA, 7, 2700, 2800);
    stop();
    assert_int_equal(count, 1);
    assert_true(lost >= 1);

    fake->no_room = false;
    start(); /* what was lost before is not lost again */
    stop();
    assert_true(count == 0 && lost == 0);
}

TEST_WITH(many_records, open_fake, close_fake)
{
    enum { MANY = 30000 };
    start();
    for (uint64_t i = 0; i < MANY; i++) fake->kernel(FMA, 7, 1000 * (MANY - i), 1000 * (MANY - i) + 500);
    const struct ha_cupti_record *r = stop();
    assert_int_equal(count, MANY);
    assert_int_equal(lost, 0);
    for (uint64_t i = 0; i < MANY; i++) assert_true(r[i].begin_ns == 1000 * (i + 1));
    assert_true(fake->buffers > 1);
}

TEST_WITH(one_device_at_a_time, open_fake, close_fake)
{
    struct ha_cupti *again;
    assert_int_equal(ha_cupti_open(&again, &why), HA_OK);
    start();
    assert_int_equal(ha_cupti_start(again, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "another device"));
    stop();
    assert_int_equal(ha_cupti_start(again, &why), HA_OK);
    ha_cupti_stop(again, &count, &lost);
    ha_cupti_close(again);
}

TEST_WITH(a_kind_that_is_refused, open_fake, close_fake)
{
    fake->fail_kind = 10;
    assert_int_equal(ha_cupti_start(cupti, &why), HA_ERROR);
    assert_string_equal(why.text, "CUPTI: cuptiActivityEnable(10): error 35, insufficient privileges");
    assert_true(fake->enabled == 0);
    fake->fail_kind = 0;
    start();
    stop();
}

TEST(what_cannot_be_opened)
{
    static const struct {
        const char *path, *says;
        enum ha_status status;
    } cases[] = {
        { "off", "off (HABENCH_CUPTI)", HA_WAIVED },
        { "/nowhere/libcupti.so", "No such file", HA_ERROR },
        { "fake_cupti_old.so", "too old: it has no cuptiGetResultString", HA_ERROR },
#ifdef HA_CUDA_EMULATED
        { "", "an emulated device has none", HA_WAIVED },
#endif
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ha_cupti *none = NULL;
        *why.text = 0;
        setenv("HABENCH_CUPTI", strncmp(cases[i].path, "fake", 4) ? cases[i].path : beside(cases[i].path), 1);
        assert_int_equal(ha_cupti_open(&none, &why), cases[i].status);
        if (!strstr(why.text, cases[i].says)) fail_msg("'%s' lacks '%s'", why.text, cases[i].says);
    }
}

/* The plugin that nvcc built, where it is there, has the names of its kernels as strings. */
TEST(every_kernel_of_the_plugin_has_an_operation)
{
    char command[4200], line[4096];
    size_t kernels = 0;
    if (access(beside("../ha_cuda.so"), R_OK) != 0) skip();
    snprintf(command, sizeof command, "readelf -p .rodata '%s'", beside("../ha_cuda.so"));
    FILE *out = popen(command, "r");
    assert_non_null(out);
    while (fgets(line, sizeof line, out)) {
        char *name = strstr(line, "]  _Z");
        if (!name || (name[5] != 'N' && !(name[5] >= '1' && name[5] <= '9'))) continue;
        name += 3;
        name[strcspn(name, "\n")] = 0;
        if (!ha_cupti_operation(name)) fail_msg("%s: no operation's, for cupti.c", name);
        kernels++;
    }
    assert_int_equal(pclose(out), 0);
    assert_true(kernels > 30);
}

/* Not every CUPTI 12 gives the number of a graph that can be launched. The last test: from here on the clock is
 * registered with another library. */
TEST(a_library_without_numbers_of_graphs)
{
    setenv("HABENCH_CUPTI", beside("fake_cupti_12.so"), 1);
    assert_int_equal(ha_cupti_open(&cupti, &why), HA_OK);
    assert_true(ha_cupti_stream(cupti, fake_cupti_handle(3)) != 0 && ha_cupti_graph(cupti, fake_cupti_handle(3)) == 0);
    close_fake(NULL);
}
