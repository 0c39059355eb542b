#include "kernels/cuda/emulation/test_runtime.h"

#include <sys/wait.h>
#include <unistd.h>

/* Devices, launch limits, errors that stay, and the knobs that make faults. */

TEST_WITH(errors_have_names, fresh, spent)
{
    assert_string_equal(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
    assert_string_equal(cudaGetErrorName(cudaErrorStreamCaptureUnsupported), "cudaErrorStreamCaptureUnsupported");
    assert_string_equal(cudaGetErrorString(cudaSuccess), "no error");
    assert_string_equal(cudaGetErrorName((cudaError_t)12345), "unrecognized error code");
    assert_string_equal(cudaGetErrorString((cudaError_t)12345), "unrecognized error code");
}

TEST_WITH(the_last_error_is_kept, fresh, spent)
{
    void *ptr;
    ok(cudaGetLastError());
    gives(cudaErrorInvalidValue, cudaMalloc(NULL, 1));
    ok(cudaMalloc(&ptr, 1));
    gives(cudaErrorInvalidValue, cudaGetLastError());
    ok(cudaGetLastError());
}

TEST_WITH(the_device_says_what_it_is, fresh, spent)
{
    struct cudaDeviceProp properties;
    int count, value, version;
    char bus[16], tight[8];
    ok(cudaGetDeviceCount(&count));
    assert_int_equal(count, 1);
    ok(cudaGetDeviceProperties(&properties, 0));
    assert_string_equal(properties.name, "CUDA kernels on this CPU (emulated)");
    ok(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    assert_int_equal(value, 4);
    ok(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
    assert_int_equal(value, 9);
    gives(cudaErrorInvalidValue, cudaDeviceGetAttribute(&value, (enum cudaDeviceAttr)9999, 0));
    gives(cudaErrorInvalidDevice, cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 1));
    gives(cudaErrorInvalidDevice, cudaGetDeviceProperties(&properties, 1));
    gives(cudaErrorInvalidDevice, cudaSetDevice(-1));
    gives(cudaErrorInvalidDevice, cudaSetDevice(1));
    ok(cudaSetDevice(0));
    gives(cudaErrorInvalidDevice, cudaDeviceGetPCIBusId(bus, sizeof bus, 1));
    ok(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
    assert_string_equal(bus, "ffff:00:00.0");
    gives(cudaErrorInvalidValue, cudaDeviceGetPCIBusId(tight, sizeof tight, 0));
    ok(cudaDriverGetVersion(&version));
    assert_int_equal(version, 13000);
    ok(cudaRuntimeGetVersion(&version));
    assert_int_equal(version, CUDART_VERSION);
}

TEST_WITH(devices_may_be_absent, fresh, spent)
{
    struct ha_emulated_settings settings = ha_emulated_defaults();
    int count, version = -1;
    void *ptr;
    settings.devices = 0;
    ha_emulated_set(&settings);
    gives(cudaErrorNoDevice, cudaGetDeviceCount(&count));
    gives(cudaErrorNoDevice, cudaMalloc(&ptr, 1));
    settings.devices = -1;
    ha_emulated_set(&settings);
    gives(cudaErrorInsufficientDriver, cudaGetDeviceCount(&count));
    ok(cudaDriverGetVersion(&version));
    assert_int_equal(version, 0);
    settings.devices = 1;
    settings.driver_version = 12090;
    ha_emulated_set(&settings);
    gives(cudaErrorInsufficientDriver, cudaGetDeviceCount(&count));
}

TEST_WITH(launches_have_limits, fresh, spent)
{
    cudaStream_t stream = stream_new();
    uint32_t word = 0;
    struct mix m = { &word, 1, 1 };
    static const struct {
        dim3 grid, block;
        bool good;
    } table[] = {
        { { INT32_MAX, 1, 1 }, { 1024, 1, 1 }, true }, { { (unsigned)INT32_MAX + 1, 1, 1 }, { 1, 1, 1 }, false },
        { { 1, 65535, 65535 }, { 1, 1, 1 }, true },    { { 1, 65536, 1 }, { 1, 1, 1 }, false },
        { { 1, 1, 65536 }, { 1, 1, 1 }, false },       { { 1, 1, 1 }, { 1025, 1, 1 }, false },
        { { 1, 1, 1 }, { 32, 33, 1 }, false },         { { 1, 1, 1 }, { 16, 1, 64 }, true },
        { { 1, 1, 1 }, { 1, 1, 65 }, false },          { { 0, 1, 1 }, { 1, 1, 1 }, false },
        { { 1, 1, 1 }, { 1, 0, 1 }, false },           { { 1, 1, 1 }, { 65536, 65536, 1 }, false },
    };
    uint32_t expected = 0;
    for (size_t i = 0; i < COUNT(table); i++) {
        gives(table[i].good ? cudaSuccess : cudaErrorInvalidConfiguration,
              ha_emulated_launch(&mix_kernel, &m, sizeof m, table[i].grid, table[i].block, stream));
        expected += table[i].good;
    }
    ok(cudaStreamSynchronize(stream));
    assert_int_equal(word, expected);
    gives(cudaErrorInvalidValue,
          ha_emulated_launch(&mix_kernel, &m, 32765, (dim3){ 1, 1, 1 }, (dim3){ 1, 1, 1 }, stream));
    gives(cudaErrorInvalidValue,
          ha_emulated_launch(&mix_kernel, NULL, 8, (dim3){ 1, 1, 1 }, (dim3){ 1, 1, 1 }, stream));
}

/* What a kernel is launched with has to be asked for, and what is not loaded is not launched. */
TEST_WITH(kernels_are_asked_about, fresh, spent)
{
    cudaStream_t stream = stream_new();
    uint32_t word = 0;
    struct mix m = { &word, 1, 1 };
    struct ha_emulated_kernel k = { .name = "mix, 1", .run = mix_run, .function = &word };
    struct cudaFuncAttributes attributes;
    const dim3 one = { 1, 1, 1 };
    int blocks;
    gives(cudaErrorInvalidDeviceFunction, ha_emulated_launch(&k, &m, sizeof m, one, one, stream));
    gives(cudaErrorInvalidDeviceFunction, cudaFuncGetAttributes(&attributes, NULL));
    ok(cudaFuncGetAttributes(&attributes, k.function));
    ok(ha_emulated_launch(&k, &m, sizeof m, one, one, stream));
    k.shared_bytes = (48 << 10) + 1;
    gives(cudaErrorInvalidValue, ha_emulated_launch(&k, &m, sizeof m, one, one, stream));
    ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, k.function, 128, k.shared_bytes));
    assert_int_equal(blocks, 0);
    gives(cudaErrorInvalidValue,
          cudaFuncSetAttribute(k.function, cudaFuncAttributeMaxDynamicSharedMemorySize, (227 << 10) + 1));
    ok(cudaFuncSetAttribute(k.function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)k.shared_bytes));
    ok(ha_emulated_launch(&k, &m, sizeof m, one, one, stream));
    ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, k.function, 128, k.shared_bytes));
    assert_int_equal(blocks, 4);
    ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, k.function, 256, 0));
    assert_int_equal(blocks, 2);
    ok(cudaStreamSynchronize(stream));
    assert_int_equal(word, 2);
    ok(cudaDeviceReset()); /* which unloads it */
    stream = stream_new();
    gives(cudaErrorInvalidDeviceFunction, ha_emulated_launch(&k, &m, sizeof m, one, one, stream));
}

TEST_WITH(calls_fail_on_demand, fresh, spent)
{
    void *ptr;
    int version;
    assert_true(ha_emulated_fail("cudaMalloc", 3, cudaErrorMemoryAllocation, HA_EMULATED_ONCE));
    ok(cudaMalloc(&ptr, 1));
    ok(cudaMalloc(&ptr, 1));
    uint64_t before = ha_emulated_calls("cudaMalloc");
    gives(cudaErrorMemoryAllocation, cudaMalloc(&ptr, 1));
    assert_int_equal(ha_emulated_calls("cudaMalloc"), before + 1);
    assert_int_equal(ha_emulated_alive().device_blocks, 2);
    ok(cudaMalloc(&ptr, 1));

    assert_true(ha_emulated_fail("cudaDriverGetVersion", 1, cudaErrorUnknown, HA_EMULATED_ONCE));
    ha_emulated_set(NULL); /* forgets it */
    ok(cudaDriverGetVersion(&version));

    assert_false(ha_emulated_fail("cudaMaloc", 1, cudaErrorUnknown, HA_EMULATED_ONCE));
    assert_false(ha_emulated_fail("cudaMalloc", 0, cudaErrorUnknown, HA_EMULATED_ONCE));
    assert_false(ha_emulated_fail("cudaMalloc", 1, cudaSuccess, HA_EMULATED_ONCE));
    for (size_t i = 0; i < HA_EMULATED_FAULTS_MAX; i++)
        assert_true(ha_emulated_fail("cudaFree", 1000, cudaErrorUnknown, HA_EMULATED_ONCE));
    assert_false(ha_emulated_fail("cudaFree", 1000, cudaErrorUnknown, HA_EMULATED_ONCE));
    ha_emulated_set(NULL);

    cudaStream_t stream = stream_new();
    assert_true(ha_emulated_fail("cudaLaunchKernel", 1, cudaErrorLaunchOutOfResources, HA_EMULATED_ONCE));
    gives(cudaErrorLaunchOutOfResources, mix(NULL, 0, 0, stream));
    assert_int_equal(ha_emulated_calls("no such call"), 0);
}

/* every call of the context gives the error that lost it, frees included; and they free */
TEST_WITH(a_lost_device_stays_lost, fresh, spent)
{
    void *device = device_new(8), *pinned = pinned_new(8), *ptr;
    cudaStream_t stream = stream_new(), other;
    cudaEvent_t event = event_new();
    cudaGraph_t graph;
    size_t a, b;
    ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    ok(cudaStreamEndCapture(stream, &graph));
    assert_true(ha_emulated_fail("cudaStreamQuery", 1, cudaErrorIllegalAddress, HA_EMULATED_STICKY));
    gives(cudaErrorIllegalAddress, cudaStreamQuery(stream));
    gives(cudaErrorIllegalAddress, cudaStreamQuery(stream));
    gives(cudaErrorIllegalAddress, cudaMalloc(&ptr, 1));
    gives(cudaErrorIllegalAddress, cudaMemGetInfo(&a, &b));
    gives(cudaErrorIllegalAddress, mix(device, 0, 0, stream));
    gives(cudaErrorIllegalAddress, cudaDeviceSynchronize());
    gives(cudaErrorIllegalAddress, cudaStreamCreateWithFlags(&other, 0));
    gives(cudaErrorIllegalAddress, cudaEventRecord(event, stream));
    gives(cudaErrorIllegalAddress, cudaGetLastError());
    gives(cudaErrorIllegalAddress, cudaGetLastError()); /* does not go away */
    gives(cudaErrorIllegalAddress, cudaFree(device));
    gives(cudaErrorIllegalAddress, cudaFreeHost(pinned));
    gives(cudaErrorIllegalAddress, cudaStreamDestroy(stream));
    gives(cudaErrorIllegalAddress, cudaEventDestroy(event));
    gives(cudaErrorIllegalAddress, cudaGraphDestroy(graph));
    assert_nothing_alive();
    int count;
    ok(cudaGetDeviceCount(&count));
    ok(cudaDeviceReset());
    ok(cudaGetLastError());
    ok(cudaMalloc(&ptr, 1));
}

TEST_WITH(a_device_is_lost_in_a_kernel, fresh, spent)
{
    cudaStream_t stream = stream_new(), other = stream_new();
    struct gate gate = { 0 };
    uint32_t *word = word_new(1);
    ha_emulated_lose(3);
    ok(gate_enqueue(&gate, stream));
    for (size_t i = 0; i < 5; i++) ok(mix(word, 2, 0, stream));
    gate_open(&gate);
    gives(cudaErrorLaunchFailure, cudaStreamSynchronize(stream));
    gives(cudaErrorLaunchFailure, cudaStreamSynchronize(other));
    assert_int_equal(*word, 4); /* the third did not run, and none behind it */
}

/* what waits for a flag, for an event, or for a stream, comes back when the device is lost or reset */
static void *gives_up_later(void *arg)
{
    size_t free_bytes, total;
    gate_await(arg);
    ha_emulated_fail("cudaMemGetInfo", 1, cudaErrorLaunchTimeout, HA_EMULATED_STICKY);
    cudaMemGetInfo(&free_bytes, &total);
    return NULL;
}

TEST_WITH(waits_end_with_the_device, fresh, spent)
{
    const struct driver driver = driver_load();
    for (size_t round = 0; round < 2; round++) {
        cudaStream_t a = stream_new(), b = stream_new();
        cudaEvent_t event = event_new();
        struct gate reached = { .open = 1 };
        uint32_t *flag = word_new(0);
        ok(gate_enqueue(&reached, a));
        ok(driver.wait(a, address(flag), 1, CU_STREAM_WAIT_VALUE_GEQ));
        ok(cudaEventRecord(event, a));
        ok(cudaStreamWaitEvent(b, event, 0));
        if (round == 0) {
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, gives_up_later, &reached), 0);
            gives(cudaErrorLaunchTimeout, cudaEventSynchronize(event));
            gives(cudaErrorLaunchTimeout, cudaStreamSynchronize(b));
            pthread_join(thread, NULL);
        }
        ok(cudaDeviceReset());
        gives(cudaErrorInvalidResourceHandle, cudaStreamSynchronize(a));
        gives(cudaErrorInvalidResourceHandle, cudaEventSynchronize(event));
        gives(cudaErrorInvalidValue, cudaFreeHost(flag));
    }
}

/* ---- the environment: read once, so in a program of its own */

static const char *const environment[][3] = {
    /* what is set, and what the child then looks for; "wrong": it cannot be read */
    { "HA_EMULATED_DEVICES", "none", "no driver" },
    { "HA_EMULATED_DEVICES", "0", "no device" },
    { "HA_EMULATED_MEMORY", "4096", "little memory" },
    { "HA_EMULATED_MEMOPS", "0", "no operations" },
    { "HA_EMULATED_LOSE", "1", "lost" },
    { "HA_EMULATED_DRIVER", "12080", "old driver" },
    { "HA_EMULATED_FAIL", "cudaMalloc:2:2", "second malloc" },
    { "HA_EMULATED_FAIL", "cudaFree:9:1,cudaMalloc:1:719:sticky", "sticky" },
    { "HA_EMULATED_FAIL", "cudaMalloc:1:2:once,cudaMalloc:3:2", "first and third malloc" },
    { "HA_EMULATED_DEVICES", "many", "wrong" },
    { "HA_EMULATED_DEVICES", "2", "wrong" },
    { "HA_EMULATED_MEMORY", "-1", "wrong" },
    { "HA_EMULATED_FAIL", "cudaMaloc:1:2", "wrong" },
    { "HA_EMULATED_FAIL", "cudaMalloc:1", "wrong" },
    { "HA_EMULATED_FAIL", "cudaMalloc:1:2:often", "wrong" },
    { "HA_EMULATED_MEMOPS", "2", "wrong" },
    { "HA_EMULATED_UPDATES", "yes", "wrong" },
    { "HA_EMULATED_DRIVER", "new", "wrong" },
    { "HA_EMULATED_LOSE", "", "wrong" },
    { "HA_EMULATED_RECORDER", "/nowhere/fake_cupti.so", "wrong" },
    { "HA_EMULATED_GDR", "there", "wrong" },
    { "HA_EMULATED_UPDATE", "0", "wrong" }, /* there is none of that name */
    { "HA_EMULATED_DEVICES", "1", "work is left" },
};

/* main returns while a stream waits for a flag that nobody writes */
static int leave_work(void)
{
    static uint32_t *flag;
    flag = word_new(0);
    return driver_load().wait(stream_new(), address(flag), 1, CU_STREAM_WAIT_VALUE_GEQ) ? 3 : 0;
}

/* the kernel and the program write the same word, and nothing orders them */
static int race(void)
{
    cudaStream_t stream = stream_new();
    uint32_t *word = word_new(1);
    ok(mix(word, 2, 1, stream));
    *word = 5;
    ok(cudaStreamSynchronize(stream));
    ok(cudaFreeHost(word));
    return 0;
}

/* the variable that is set, with its value, and why */
static bool is_named(void)
{
    const char *wrong = ha_emulated_environment_wrong(), *name = getenv("TEST_VARIABLE");
    char begin[128];
    snprintf(begin, sizeof begin, "%s=%s: ", name, getenv(name));
    return wrong && !strncmp(wrong, begin, strlen(begin)) && strlen(wrong) > strlen(begin);
}

static int child(const char *look)
{
    if (strcmp(look, "race") == 0) return race();
    if (strcmp(look, "work is left") == 0) return leave_work();
    int count = 0, version = 0;
    cudaError_t counted = cudaGetDeviceCount(&count);
    void *ptr = NULL, *library = ha_emulated_dlopen("libcuda.so.1", 2);
    uint32_t word = 0;
    cudaError_t first = cudaMalloc(&ptr, 4097), second = cudaMalloc(&ptr, 1), third = cudaMalloc(&ptr, 1);
    cudaError_t launched = mix(&word, 0, 0, NULL), synced = cudaStreamSynchronize(NULL);
    cudaDriverGetVersion(&version);
    const struct {
        const char *look;
        bool seen;
    } table[] = {
        { "no driver", counted == cudaErrorInsufficientDriver && !library },
        { "no device", counted == cudaErrorNoDevice },
        { "little memory", first == cudaErrorMemoryAllocation && !second && !third },
        { "no operations", !synced && library && !ha_emulated_dlsym(library, "cuStreamWriteValue32_v2") },
        { "lost", !launched && synced == cudaErrorLaunchFailure },
        { "old driver", version == 12080 && counted == cudaErrorInsufficientDriver },
        { "second malloc", !first && second == cudaErrorMemoryAllocation && !third },
        { "sticky", first == cudaErrorLaunchFailure && synced == cudaErrorLaunchFailure },
        { "first and third malloc",
          first == cudaErrorMemoryAllocation && !second && third == cudaErrorMemoryAllocation },
        { "wrong", counted == cudaErrorInitializationError && launched == cudaErrorInitializationError && is_named() },
    };
    cudaDeviceReset();
    for (size_t i = 0; i < COUNT(table); i++)
        if (strcmp(table[i].look, look) == 0) return table[i].seen ? 0 : 3;
    return 4;
}

/* how the child ends that looks for that, with the variable set */
static int child_status(const char *variable, const char *value, const char *look, bool quiet)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        setenv(variable, value, 1);
        setenv("TEST_VARIABLE", variable, 1);
        if (quiet && !freopen("/dev/null", "w", stderr)) _exit(6);
        execl("/proc/self/exe", "test", "test_runtime_faults", look, (char *)NULL);
        _exit(5);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* The mark of the first process is looked at where there is a fault. */
TEST_WITH(a_mark_that_cannot_be_made_is_refused, fresh, spent)
{
    setenv("HA_EMULATED_LOSE", "1", 1);
    assert_int_equal(child_status("HA_EMULATED_FIRST", "/nowhere/first", "wrong", false), 0);
    unsetenv("HA_EMULATED_LOSE");
}

TEST_WITH(the_environment_is_read, fresh, spent)
{
    for (size_t i = 0; i < COUNT(environment); i++) {
        const char *const *row = environment[i];
        int status = child_status(row[0], row[1], row[2], strcmp(row[2], "wrong") == 0);
        if (status) fail_msg("%s=%s: the child ends with status %d", row[0], row[1], status);
    }
}

/* The runtime's own lock does not hide the races of the program. */
TEST_WITH(races_are_seen_by_thread_sanitizer, fresh, spent)
{
#if HA_TSAN
    assert_int_equal(child_status("HA_EMULATED_DEVICES", "1", "race", true), 66);
#else
    assert_int_equal(child_status("HA_EMULATED_DEVICES", "1", "race", true), 0);
#endif
}

TEST_MAIN
{
    if (argc == 2) return child(argv[1]);
    return test_all("tests", NULL, NULL);
}
