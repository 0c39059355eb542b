#include "kernels/cuda/cuda.h"
#include "kernels/cuda/emulation/test_runtime.h"

/* driver.c over the emulation, compiled for the toolkit that CUDART_VERSION says: 12.1 (no batches), 12.8, 13.0. */

enum { PIECES = 40, BYTES = 100 };
static const bool has_batches = CUDART_VERSION >= 12080;

static struct {
    cudaStream_t stream;
    char *device, *pinned;
    void *dst[PIECES];
    const void *src[PIECES];
    size_t bytes[PIECES];
    struct ha_device_pieces pieces;
} w;

static void toolkit(int driver_version)
{
    struct ha_emulated_settings settings = ha_emulated_defaults();
    settings.runtime_version = CUDART_VERSION;
    settings.driver_version = driver_version;
    ha_emulated_set(&settings);
}

static void pieces_up(void)
{
    for (size_t i = 0; i < PIECES; i++) {
        w.dst[i] = w.device + BYTES * i;
        w.src[i] = w.pinned + BYTES * (PIECES - 1 - i);
        w.bytes[i] = BYTES - i;
    }
    w.pieces = (struct ha_device_pieces){ w.dst, w.src, w.bytes, PIECES };
}

static int begin(void **state)
{
    const int wrong = fresh(state);
    toolkit(13000);
    w.stream = stream_new();
    w.device = device_new(PIECES * BYTES);
    w.pinned = pinned_new(PIECES * BYTES);
    for (size_t i = 0; i < PIECES * BYTES; i++) w.pinned[i] = (char)(i * 11 + i / 100);
    pieces_up();
    return wrong;
}

/* copies, and says by how many calls; the device's memory is as it should be, before and behind each piece too */
static void copied(cudaStream_t stream, size_t batches, size_t singles)
{
    char back[PIECES * BYTES], clear[BYTES] = { 0 };
    const uint64_t batches_before = ha_emulated_calls("cudaMemcpyBatchAsync"),
                   singles_before = ha_emulated_calls("cudaMemcpyAsync");
    ok(cudaMemsetAsync(w.device, 0, PIECES * BYTES, stream));
    ok(ha_cuda_copy_pieces(stream, &w.pieces, HA_H2D));
    assert_int_equal(ha_emulated_calls("cudaMemcpyBatchAsync") - batches_before, batches);
    assert_int_equal(ha_emulated_calls("cudaMemcpyAsync") - singles_before, singles);
    ok(cudaMemcpyAsync(back, w.device, sizeof back, cudaMemcpyDeviceToHost, stream));
    for (size_t i = 0; i < PIECES; i++) {
        size_t bytes = i < w.pieces.count ? w.bytes[i] : 0;
        assert_memory_equal(back + BYTES * i, w.src[i], bytes);
        assert_memory_equal(back + BYTES * i + bytes, clear, BYTES - bytes);
    }
}

TEST_WITH(pieces_are_one_call, begin, spent)
{
    copied(w.stream, has_batches, has_batches ? 0 : PIECES);
    w.pieces.count = 2;
    copied(w.stream, has_batches, has_batches ? 0 : 2);
    w.pieces.count = 1;
    copied(w.stream, 0, 1);
    w.pieces.count = 0;
    copied(w.stream, 0, 0);
}

TEST_WITH(what_a_batch_does_not_take_goes_one_by_one, begin, spent)
{
    w.bytes[7] = 0;
    copied(w.stream, 0, PIECES);
    pieces_up();
    copied(NULL, 0, PIECES); /* the default stream */
    ok(cudaGetLastError());
}

TEST_WITH(drivers_without_batches_are_no_failure, begin, spent)
{
    if (CUDART_VERSION < 13000) {
        toolkit(12040);
        copied(w.stream, 0, PIECES);
    }
    toolkit(13000);
    ha_emulated_fail("cudaMemcpyBatchAsync", 1, cudaErrorNotSupported, HA_EMULATED_ONCE);
    copied(w.stream, has_batches, PIECES);
    ok(cudaGetLastError());
    toolkit(13000);
    ha_emulated_fail("cudaMemcpyBatchAsync", 1, cudaErrorCallRequiresNewerDriver, HA_EMULATED_ONCE);
    copied(w.stream, has_batches, PIECES);
}

TEST_WITH(failures_are_passed_on, begin, spent)
{
    w.bytes[20] = PIECES * BYTES; /* leaves its allocation */
    gives(cudaErrorInvalidValue, ha_cuda_copy_pieces(w.stream, &w.pieces, HA_H2D));
    pieces_up();
    ha_emulated_fail(has_batches ? "cudaMemcpyBatchAsync" : "cudaMemcpyAsync", 1, cudaErrorUnknown, HA_EMULATED_ONCE);
    gives(cudaErrorUnknown, ha_cuda_copy_pieces(w.stream, &w.pieces, HA_H2D));
    w.pieces.count = 1;
    gives(cudaErrorInvalidValue, ha_cuda_copy_pieces(w.stream, &w.pieces, HA_D2H)); /* the wrong way round */
}

TEST_WITH(pieces_are_captured, begin, spent)
{
    char back[PIECES * BYTES];
    ok(cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed));
    ok(ha_cuda_copy_pieces(w.stream, &w.pieces, HA_H2D));
    ok(cudaGraphLaunch(instantiate(w.stream), w.stream));
    ok(cudaMemcpyAsync(back, w.device, sizeof back, cudaMemcpyDeviceToHost, w.stream));
    for (size_t i = 0; i < PIECES; i++) assert_memory_equal(back + BYTES * i, w.src[i], w.bytes[i]);
}

TEST_WITH(pieces_go_every_way, begin, spent)
{
    char *other = device_new(PIECES * BYTES), *back = pinned_new(PIECES * BYTES);
    ok(cudaMemcpyAsync(w.device, w.pinned, PIECES * BYTES, cudaMemcpyHostToDevice, w.stream));
    for (size_t i = 0; i < PIECES; i++) {
        w.src[i] = w.device + BYTES * i;
        w.dst[i] = other + BYTES * i;
    }
    ok(ha_cuda_copy_pieces(w.stream, &w.pieces, HA_D2D));
    for (size_t i = 0; i < PIECES; i++) {
        w.src[i] = other + BYTES * i;
        w.dst[i] = back + BYTES * i;
    }
    ok(ha_cuda_copy_pieces(w.stream, &w.pieces, HA_D2H));
    ok(cudaStreamSynchronize(w.stream));
    for (size_t i = 0; i < PIECES; i++) assert_memory_equal(back + BYTES * i, w.pinned + BYTES * i, w.bytes[i]);
}

TEST_WITH(the_driver_is_loaded, fresh, spent)
{
    struct ha_cuda_driver driver;
    struct ha_why why;
    toolkit(13000);
    assert_int_equal(ha_cuda_driver_load(&driver, &why), HA_OK);
    assert_true(driver.batch && driver.write_value);
    cudaStream_t stream = stream_new();
    uint32_t *flag = word_new(0);
    CUstreamBatchMemOpParams each[2] = { { .operation = CU_STREAM_MEM_OP_WAIT_VALUE_32 },
                                         { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32 } };
    each[0].waitValue.address = each[1].writeValue.address = address(flag);
    each[0].waitValue.value = 3;
    each[1].writeValue.value = 4;
    ok(driver.write_value(stream, address(flag), 3, CU_STREAM_WRITE_VALUE_DEFAULT));
    ok(driver.batch(stream, 2, each, 0));
    ok(cudaStreamSynchronize(stream));
    assert_int_equal(*flag, 4);
    each[1].writeValue.address = 0; /* then neither of them is enqueued */
    each[0].waitValue.value = 5;
    gives(cudaErrorInvalidValue, driver.batch(stream, 2, each, 0));
    gives(cudaErrorInvalidValue, driver.batch(stream, 2, each, 1));
    gives(cudaErrorInvalidValue, driver.batch(stream, 0, each, 0));
    ok(cudaStreamSynchronize(stream));

    struct ha_emulated_settings settings = ha_emulated_defaults();
    settings.memory_operations = false;
    ha_emulated_set(&settings);
    assert_int_equal(ha_cuda_driver_load(&driver, &why), HA_OK);
    assert_true(!driver.batch && !driver.write_value);
    settings.devices = 0;
    ha_emulated_set(&settings);
    assert_int_equal(ha_cuda_driver_load(&driver, &why), HA_OK); /* a driver may have no device */
    settings.devices = -1;
    ha_emulated_set(&settings);
    assert_int_equal(ha_cuda_driver_load(&driver, &why), HA_WAIVED);
    assert_non_null(strstr(why.text, "no NVIDIA driver: libcuda.so.1: "));
}
