/* CUPTI's records: read from buffers in any order, on our clock, each with the id pushed around its enqueue. */

#include "harness/base/clock.h"
#include "harness/base/test_beside.h"
#include "kernels/cuda/fake_cupti.h"
#include "kernels/cuda/trace.h"

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
    if (ha_cupti_start(cupti, &why) != HA_OK) fail_msg("%s", why.text);
}

static const struct ha_cupti_record *stop(void) { return ha_cupti_stop(cupti, &count, &lost); }

TEST_WITH(the_clock_is_ours_and_kernels_stay_concurrent, open_fake, close_fake)
{
    enum { SERIALISING_KERNEL = 3 };
    static const unsigned wanted[] = { 1, 2, 10, 39 };
    start();
    assert_false(fake->kinds_before_clock);
    assert_true(fake->now == ha_now_ns);
    for (size_t i = 0; i < COUNT(wanted); i++) assert_true(fake->enabled >> wanted[i] & 1);
    stop();
    assert_true(fake->enabled == 0);
    assert_false(fake->ever >> SERIALISING_KERNEL & 1);
    assert_true(count == 0 && lost == 0);
}

TEST_WITH(records_carry_what_was_pushed, open_fake, close_fake)
{
    for (size_t in_buffer = 0; in_buffer < 6; in_buffer++) {
        fake->records_in_buffer = in_buffer;
        fake->backwards = in_buffer % 2;
        start();
        ha_cupti_push(cupti, 41);
        fake->kernel("_Z13ha_attend_fmaILi4EEv12ha_cuda_call", 7, 3000, 3500);
        fake->kernel("_Z17ha_attend_combine7joining", 7, 3600, 3700);
        ha_cupti_pop(cupti);
        ha_cupti_push(cupti, 42);
        fake->copy(1, 8, 4096, 1000, 1200);
        ha_cupti_pop(cupti);
        fake->copy(2, 8, 64, 2000, 2100);
        fake->copy(8, 8, 32, 2200, 2300);
        fake->set(8, 16, 2400, 2500);
        const struct ha_cupti_record *r = stop();
        static const struct ha_cupti_record want[] = {
            { .begin_ns = 1000, .end_ns = 1200, .bytes = 4096, .id = 42, .kind = HA_SPAN_H2D, .stream = 8 },
            { .begin_ns = 2000, .end_ns = 2100, .bytes = 64, .kind = HA_SPAN_D2H, .stream = 8 },
            { .begin_ns = 2200, .end_ns = 2300, .bytes = 32, .kind = HA_SPAN_D2D, .stream = 8 },
            { .begin_ns = 2400, .end_ns = 2500, .bytes = 0, .kind = HA_SPAN_D2D, .stream = 8 },
            { .begin_ns = 3000, .end_ns = 3500, .id = 41, .kind = HA_SPAN_KERNEL, .stream = 7, .name = "attend" },
            { .begin_ns = 3600, .end_ns = 3700, .id = 41, .kind = HA_SPAN_KERNEL, .stream = 7, .name = "attend" },
        };
        assert_int_equal(count, 6);
        assert_int_equal(lost, 0);
        for (size_t i = 0; i < count; i++) {
            assert_true(r[i].begin_ns == want[i].begin_ns && r[i].end_ns == want[i].end_ns
                        && r[i].bytes == want[i].bytes);
            assert_true(r[i].id == want[i].id && r[i].kind == want[i].kind && r[i].stream == want[i].stream);
            if (want[i].name) assert_string_equal(r[i].name, want[i].name);
            else assert_null(r[i].name);
        }
        if (in_buffer) assert_true(fake->buffers > 1);
    }
    assert_int_equal(fake->depth, 0);
}

TEST_WITH(names_are_those_of_our_kernels_alone, open_fake, close_fake)
{
    static const struct {
        const char *function, *name;
        enum ha_span_kind kind;
    } of[] = {
        { "_Z9flag_wait9flag_args", "flag_wait", HA_SPAN_WAIT },
        { "_Z10merge_manyILi512EL8ha_dtype0ELb0EEv10merge_argsIXT_EE", "merge", HA_SPAN_KERNEL },
        { "_Z4spin9spin_args", "spin", HA_SPAN_KERNEL },
        { "_Z10read_words9read_args", "read", HA_SPAN_KERNEL },
        { "_Z17features_of_heads13features_args", "features", HA_SPAN_KERNEL },
        { "_Z11net_of_rows6ha_net", "net", HA_SPAN_KERNEL },
        { "_Z9hash_rowsIL8ha_dtype2ELj8ELj2EEv9hash_args", "hash", HA_SPAN_KERNEL },
        { "_Z15hamming_of_keys12hamming_args", "hamming", HA_SPAN_KERNEL },
        { "_Z18similarity_of_head15similarity_args", "similarity", HA_SPAN_KERNEL },
        { "_Z14pq_encode_keysIL8ha_dtype1ELj4EEv11encode_args", "pq_encode", HA_SPAN_KERNEL },
        { "_Z13pq_table_rowsIL8ha_dtype0EEv10table_args", "pq_table", HA_SPAN_KERNEL },
        { "_Z13pq_score_keysIL8ha_dtype0ELb1ELj8EEv10score_args", "pq_score", HA_SPAN_KERNEL },
        { "_Z16softmax_in_placeILi128EEv12softmax_args", "softmax", HA_SPAN_KERNEL },
        { "_Z9topp_listILi1024EL8ha_dtype0EEv9topp_args", "topp", HA_SPAN_KERNEL },
        { "_Z20weighted_sum_of_listIL8ha_dtype1EL8ha_dtype0ELj1EEv8sum_args", "weighted_sum", HA_SPAN_KERNEL },
        { "ampere_sgemm_128x64_tn", NULL, HA_SPAN_KERNEL },
        { "_Z15thread_and_spinv", NULL, HA_SPAN_KERNEL },
        { "_ZN4spin5outerEv", NULL, HA_SPAN_KERNEL },
        { "spin", NULL, HA_SPAN_KERNEL },
        { "_Z", NULL, HA_SPAN_KERNEL },
        { "", NULL, HA_SPAN_KERNEL },
        { NULL, NULL, HA_SPAN_KERNEL },
    };
    enum { COUNT = COUNT(of) };
    start();
    for (uint64_t i = 0; i < COUNT; i++) fake->kernel(of[i].function, 7, 100 * i + 1, 100 * i + 50);
    const struct ha_cupti_record *r = stop();
    assert_int_equal(count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(r[i].kind, of[i].kind);
        if (of[i].name) assert_string_equal(r[i].name, of[i].name);
        else assert_null(r[i].name);
    }
}

TEST_WITH(what_is_lost_is_counted, open_fake, close_fake)
{
    start();
    fake->kernel("_Z1av", 7, 0, 0); /* not stamped */
    fake->kernel("_Z1av", 7, 500, 400);
    fake->kernel("_Z1av", 7, 500, 600);
    stop();
    assert_int_equal(count, 1);
    assert_int_equal(lost, 2);
    start();
    fake->kernel("_Z1av", 7, 500, 600); /* a call's record and a kernel's */
    fake->no_room = true;
    fake->records_in_buffer = 2;
    fake->kernel("_Z1av", 7, 700, 800);
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
    for (uint64_t i = 0; i < MANY; i++) {
        ha_cupti_push(cupti, i + 1);
        fake->kernel("_Z1av", 7, 1000 * (MANY - i), 1000 * (MANY - i) + 500);
        ha_cupti_pop(cupti);
    }
    const struct ha_cupti_record *r = stop();
    assert_int_equal(count, MANY);
    assert_int_equal(lost, 0);
    for (uint64_t i = 0; i < MANY; i++) assert_true(r[i].begin_ns == 1000 * (i + 1) && r[i].id == MANY - i);
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
        { "fake_cupti_old.so", "too old: it has no cuptiActivityPopExternalCorrelationId", HA_ERROR },
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
