#include "kernels/cuda/emulation/test_runtime.h"

/* Memory and copies. */

enum { N = 4096 };

TEST_WITH(memory_begins_as_nan, fresh, spent)
{
    float *device = device_new(4 * sizeof *device), *pinned = pinned_new(4 * sizeof *pinned);
    assert_true(device[3] != device[3]);
    assert_true(pinned[3] != pinned[3]);
    assert_int_equal((uintptr_t)device % 256, 0);
    void *nothing = &device;
    ok(cudaMalloc(&nothing, 0));
    assert_null(nothing);
    ok(cudaFree(NULL));
    ok(cudaFreeHost(NULL));
    gives(cudaErrorInvalidValue, cudaMalloc(NULL, 1));
    gives(cudaErrorInvalidValue, cudaHostAlloc(&nothing, 1, 8));
}

TEST_WITH(memory_is_counted, fresh, spent)
{
    struct ha_emulated_settings settings = ha_emulated_defaults();
    settings.memory_bytes = 1000;
    ha_emulated_set(&settings);
    size_t free_bytes, total;
    void *first = device_new(600), *second = &first;
    ok(cudaMemGetInfo(&free_bytes, &total));
    assert_int_equal(free_bytes, 400);
    assert_int_equal(total, 1000);
    gives(cudaErrorMemoryAllocation, cudaMalloc(&second, 401));
    assert_null(second);
    gives(cudaErrorMemoryAllocation, cudaMalloc(&second, SIZE_MAX));
    ok(cudaMalloc(&second, 400));
    assert_int_equal(ha_emulated_alive().device_bytes, 1000);
    ok(cudaFree(first));
    ok(cudaMemGetInfo(&free_bytes, &total));
    assert_int_equal(free_bytes, 600);
    ok(cudaFree(second));
    pinned_new(2000); /* is not the device's */
    ok(cudaMemGetInfo(&free_bytes, &total));
    assert_int_equal(free_bytes, 1000);
}

TEST_WITH(wrong_frees_are_refused, fresh, spent)
{
    char *device = device_new(64), *pinned = pinned_new(64), *pageable = malloc(64);
    gives(cudaErrorInvalidValue, cudaFree(device + 1));
    gives(cudaErrorInvalidValue, cudaFree(pinned));
    gives(cudaErrorInvalidValue, cudaFree(pageable));
    gives(cudaErrorInvalidValue, cudaFreeHost(device));
    ok(cudaFree(device));
    gives(cudaErrorInvalidValue, cudaFree(device));
    ok(cudaFreeHost(pinned));
    gives(cudaErrorInvalidValue, cudaFreeHost(pinned));
    free(pageable);
}

TEST_WITH(host_memory_is_registered, fresh, spent)
{
    char *memory = malloc(N), *other = malloc(N);
    ok(cudaHostRegister(memory, N / 2, cudaHostRegisterPortable | cudaHostRegisterMapped));
    gives(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(memory, N, 0));
    gives(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(memory + 8, 8, 0));
    gives(cudaErrorInvalidValue, cudaHostRegister(NULL, 8, 0));
    ok(cudaMemsetAsync(memory, 7, N / 2, NULL)); /* the device may use it, and no more */
    gives(cudaErrorInvalidValue, cudaMemsetAsync(memory + N / 2, 7, 1, NULL));
    ok(cudaDeviceSynchronize());
    assert_int_equal(memory[N / 2 - 1], 7);
    gives(cudaErrorInvalidValue, cudaFreeHost(memory));
    gives(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(other));
    ok(cudaHostUnregister(memory));
    gives(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(memory));
    free(memory);
    free(other);
}

TEST_WITH(copies_know_their_direction, fresh, spent)
{
    cudaStream_t stream = stream_new();
    char *memory[3] = { device_new(64), pinned_new(64), malloc(64) };
    memset(memory[2], 0, 64);
    for (size_t to = 0; to < 3; to++)
        for (size_t from = 0; from < 3; from++) {
            enum cudaMemcpyKind right = from ? to ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice
                                        : to ? cudaMemcpyDeviceToHost
                                             : cudaMemcpyDeviceToDevice;
            for (int kind = 0; kind < 4; kind++) {
                bool good = (enum cudaMemcpyKind)kind == right;
                gives(good ? cudaSuccess : cudaErrorInvalidValue,
                      cudaMemcpyAsync(memory[to], memory[from] + 32, 32, (enum cudaMemcpyKind)kind, stream));
            }
            ok(cudaMemcpyAsync(memory[to], memory[from] + 32, 32, cudaMemcpyDefault, stream));
        }
    gives(cudaErrorInvalidMemcpyDirection, cudaMemcpyAsync(memory[0], memory[1], 8, (enum cudaMemcpyKind)5, stream));
    ok(cudaStreamSynchronize(stream));
    free(memory[2]);
}

TEST_WITH(copies_stay_within_allocations, fresh, spent)
{
    cudaStream_t stream = stream_new();
    char *device = device_new(64), *pinned = pinned_new(64);
    gives(cudaErrorInvalidValue, cudaMemcpyAsync(device, pinned, 65, cudaMemcpyHostToDevice, stream));
    gives(cudaErrorInvalidValue, cudaMemcpyAsync(device + 1, pinned, 64, cudaMemcpyHostToDevice, stream));
    gives(cudaErrorInvalidValue, cudaMemcpyAsync(pinned + 60, device, 8, cudaMemcpyDeviceToHost, stream));
    gives(cudaErrorInvalidValue, cudaMemcpyAsync(device, NULL, 8, cudaMemcpyHostToDevice, stream));
    gives(cudaErrorInvalidValue, cudaMemcpyAsync(device - 8, pinned, 16, cudaMemcpyDefault, stream));
    gives(cudaErrorInvalidValue, cudaMemsetAsync(device + 32, 0, 33, stream));
    gives(cudaErrorInvalidValue, cudaMemsetAsync(&pinned, 0, 1, stream));
    ok(cudaMemsetAsync(device + 32, 0, 32, stream));
    ok(cudaFree(device));
    gives(cudaErrorInvalidValue, cudaMemcpyAsync(device, pinned, 8, cudaMemcpyHostToDevice, stream)); /* after free */
}

TEST_WITH(copies_of_rows_stay_within_allocations, fresh, spent)
{
    cudaStream_t stream = stream_new();
    unsigned char *device = device_new(5 * 32 + 16), *host = pinned_new(4 * 20 + 16);
    ok(cudaMemcpy2DAsync(device, 32, host, 20, 16, 5, cudaMemcpyHostToDevice, stream));
    gives(cudaErrorInvalidPitchValue, cudaMemcpy2DAsync(device, 15, host, 20, 16, 2, cudaMemcpyHostToDevice, stream));
    gives(cudaErrorInvalidPitchValue, cudaMemcpy2DAsync(device, 32, host, 15, 16, 2, cudaMemcpyHostToDevice, stream));
    gives(cudaErrorInvalidValue, cudaMemcpy2DAsync(device, 32, host, 20, 16, 6, cudaMemcpyHostToDevice, stream));
    gives(cudaErrorInvalidValue,
          cudaMemcpy2DAsync(device, SIZE_MAX / 2, host, 20, 16, 5, cudaMemcpyHostToDevice, stream));
    ok(cudaMemcpy2DAsync(device, 32, host, 20, 0, 5, cudaMemcpyHostToDevice, stream));
    ok(cudaMemcpy2DAsync(device, 32, host, 20, 16, 0, cudaMemcpyHostToDevice, stream));
}

/* A pageable source is the caller's again when the call returns; a pinned one when the copy has run. */
TEST_WITH(pageable_sources_are_staged, fresh, spent)
{
    cudaStream_t stream = stream_new();
    struct gate gate = { 0 };
    char *device = device_new(16), *pinned = pinned_new(8), pageable[7] = "before", back[16];
    strcpy(pinned, "before");
    ok(gate_enqueue(&gate, stream));
    ok(cudaMemcpyAsync(device, pageable, 7, cudaMemcpyHostToDevice, stream));
    ok(cudaMemcpyAsync(device + 8, pinned, 8, cudaMemcpyHostToDevice, stream));
    strcpy(pageable, "after");
    strcpy(pinned, "after");
    gate_open(&gate);
    ok(cudaMemcpyAsync(back, device, 16, cudaMemcpyDeviceToHost, stream)); /* has run when it returns */
    assert_string_equal(back, "before");
    assert_string_equal(back + 8, "after");
}

struct freeing {
    void *ptr;
    struct gate *gate;
    uint32_t done;
};
static void *frees(void *arg)
{
    struct freeing *f = arg;
    gate_await(f->gate);
    cudaError_t error = cudaFree(f->ptr);
    __atomic_store_n(&f->done, error ? 2 : 1, __ATOMIC_RELEASE);
    return NULL;
}

TEST_WITH(freeing_waits_for_the_device, fresh, spent)
{
    cudaStream_t stream = stream_new();
    struct gate gate = { 0 };
    uint32_t *word = device_new(sizeof *word);
    struct freeing f = { device_new(8), &gate, 0 };
    pthread_t thread;
    ok(gate_enqueue(&gate, stream));
    ok(mix(word, 0, 1, stream));
    assert_int_equal(pthread_create(&thread, NULL, frees, &f), 0);
    while (!ha_emulated_calls("cudaFree")) continue;
    gives(cudaErrorNotReady, cudaStreamQuery(stream));
    assert_int_equal(__atomic_load_n(&f.done, __ATOMIC_ACQUIRE), 0);
    gate_open(&gate);
    pthread_join(thread, NULL);
    assert_int_equal(f.done, 1);
    ok(cudaStreamQuery(stream));
}

/* ---- batches */

static cudaError_t batch(void *const *dst, const void *const *src, const size_t *bytes, size_t count,
                         cudaStream_t stream)
{
    struct cudaMemcpyAttributes attributes = { .srcAccessOrder = cudaMemcpySrcAccessOrderStream };
    size_t first = 0;
    return cudaMemcpyBatchAsync(dst, src, bytes, count, &attributes, &first, 1, stream);
}

TEST_WITH(batches_have_no_order, fresh, spent)
{
    cudaStream_t stream = stream_new();
    unsigned char *device = device_new(2), *host = pinned_new(1), back[2];
    ok(cudaMemsetAsync(device, 0, 2, stream));
    host[0] = 7;
    ok(batch((void *[]){ device, device + 1 }, (const void *[]){ host, device }, (size_t[]){ 1, 1 }, 2, stream));
    ok(cudaMemcpyAsync(back, device, 2, cudaMemcpyDeviceToHost, stream));
    assert_int_equal(back[0], 7);
    assert_int_equal(back[1], 0);
}

TEST_WITH(wrong_batches_are_refused, fresh, spent)
{
    cudaStream_t stream = stream_new();
    char *device = device_new(64), *host = pinned_new(64);
    void *dst[2] = { device, device + 32 };
    const void *src[2] = { host, host + 32 };
    size_t bytes[2] = { 32, 33 }, first[2] = { 0, 0 }, failed = 0;
    struct cudaMemcpyAttributes attributes[2] = { { .srcAccessOrder = cudaMemcpySrcAccessOrderStream } };
    gives(cudaErrorInvalidValue, batch(dst, src, bytes, 2, stream));
    gives(cudaErrorInvalidValue, ha_emulated_memcpy_batch_12(dst, (void *[]){ host, host + 32 }, bytes, 2, attributes,
                                                             first, 1, &failed, stream));
    assert_int_equal(failed, 1);
    bytes[1] = 0;
    gives(cudaErrorInvalidValue, batch(dst, src, bytes, 2, stream));
    bytes[1] = 32;
    ok(batch(dst, src, bytes, 2, stream));
    gives(cudaErrorInvalidValue, batch(dst, src, bytes, 2, NULL));
    gives(cudaErrorInvalidValue, batch(dst, src, bytes, 0, stream));
    gives(cudaErrorInvalidValue,
          cudaMemcpyBatchAsync(dst, src, bytes, 2, attributes, first, 2, stream)); /* both from 0 */
    first[1] = 1;
    gives(cudaErrorInvalidValue, cudaMemcpyBatchAsync(dst, src, bytes, 2, attributes, first, 2, stream)); /* no order */
    attributes[1].srcAccessOrder = cudaMemcpySrcAccessOrderAny;
    ok(cudaMemcpyBatchAsync(dst, src, bytes, 2, attributes, first, 2, stream));
    ok(cudaStreamSynchronize(stream));
    struct ha_emulated_settings settings = ha_emulated_defaults();
    settings.runtime_version = settings.driver_version = 12040;
    ha_emulated_set(&settings);
    gives(cudaErrorCallRequiresNewerDriver, batch(dst, src, bytes, 2, stream));
}
