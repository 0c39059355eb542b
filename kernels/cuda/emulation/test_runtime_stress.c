#include "kernels/cuda/emulation/test_runtime.h"

#include "harness/base/rng.h"

/* Random graphs of operations over several streams, ordered by events wherever two of them touch the same buffer,
 * against the same operations run one after the other. Some are captured, launched, and some of those twice.
 * argv[1]: all or small. */

struct dice {
    uint64_t seed, thrown;
};
static size_t throw(struct dice * d, size_t sides) { return (size_t)ha_rng_below(d->seed, 77, d->thrown++, sides); }

enum { STREAMS = 4, BUFFERS = 6, WORDS = 96, OPS = 300 };

static size_t rounds = 60;

enum what { UP, DOWN, ACROSS, ROWS_UP, BATCH_UP, SET, KERNEL, CALL, WHAT_COUNT };

/* Buffers 0 .. BUFFERS-1: on the device; the same again in pinned memory. */
struct world {
    uint32_t *device[BUFFERS], *host[BUFFERS];
};
struct step {
    enum what what;
    size_t stream, to, from;
    uint32_t value;
    unsigned graph_launches; /* 0: enqueued directly */
    uint32_t *call_y;
};

static void call(void *arg)
{
    struct step *s = arg;
    for (size_t i = 0; i < WORDS; i++) s->call_y[i] = s->call_y[i] * 3 + s->value;
}

struct blend {
    uint32_t *y, *x, value;
};
static void blend(const void *args)
{
    const struct blend *b = args;
    for (size_t i = 0; i < WORDS; i++) b->y[i] = b->y[i] * 5 + b->x[i] + b->value;
}

static void rows(uint32_t *y, const uint32_t *x)
{
    for (size_t r = 0; r < 4; r++) memcpy(y + 24 * r, x + 20 * r, 16 * sizeof *y);
}

static void run_plain(struct world *w, struct step *s)
{
    uint32_t *y = w->device[s->to], *x = w->device[s->from];
    switch (s->what) {
    case BATCH_UP:
    case UP: memcpy(y, w->host[s->from], WORDS * sizeof *y); break;
    case DOWN: memcpy(w->host[s->to], x, WORDS * sizeof *y); break;
    case ACROSS: memmove(y, x, WORDS * sizeof *y); break;
    case ROWS_UP: rows(y, w->host[s->from]); break;
    case SET: memset(y, (int)s->value & 0xFF, WORDS * sizeof *y); break;
    case KERNEL: blend(&(struct blend){ y, x, s->value }); break;
    case CALL:
        s->call_y = w->host[s->to];
        call(s);
        break;
    case WHAT_COUNT: break;
    }
}

static void batch_up(uint32_t *y, const uint32_t *x, cudaStream_t stream)
{
    enum { PIECES = 8, EACH = WORDS / PIECES };
    void *dst[PIECES];
    const void *src[PIECES];
    size_t bytes[PIECES], first = 0;
    struct cudaMemcpyAttributes attributes = { .srcAccessOrder = cudaMemcpySrcAccessOrderStream };
    for (size_t i = 0; i < PIECES; i++) {
        dst[i] = y + EACH * i;
        src[i] = x + EACH * i;
        bytes[i] = EACH * sizeof *y;
    }
    ok(cudaMemcpyBatchAsync(dst, src, bytes, PIECES, &attributes, &first, 1, stream));
}

static void enqueue_one(struct world *w, struct step *s, cudaStream_t stream)
{
    uint32_t *y = w->device[s->to], *x = w->device[s->from];
    const size_t bytes = WORDS * sizeof *y;
    struct blend b = { y, x, s->value };
    switch (s->what) {
    case UP: ok(cudaMemcpyAsync(y, w->host[s->from], bytes, cudaMemcpyHostToDevice, stream)); break;
    case DOWN: ok(cudaMemcpyAsync(w->host[s->to], x, bytes, cudaMemcpyDeviceToHost, stream)); break;
    case ACROSS: ok(cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice, stream)); break;
    case ROWS_UP:
        ok(cudaMemcpy2DAsync(y, 24 * sizeof *y, w->host[s->from], 20 * sizeof *y, 16 * sizeof *y, 4, cudaMemcpyDefault,
                             stream));
        break;
    case BATCH_UP: batch_up(y, w->host[s->from], stream); break;
    case SET: ok(cudaMemsetAsync(y, (int)s->value & 0xFF, bytes, stream)); break;
    case KERNEL:
        ok(ha_emulated_launch("blend", blend, &b, sizeof b, (dim3){ 1, 1, 1 }, (dim3){ 1, 1, 1 }, stream));
        break;
    case CALL:
        s->call_y = w->host[s->to];
        ok(cudaLaunchHostFunc(stream, call, s));
        break;
    case WHAT_COUNT: break;
    }
}

static void enqueue(struct world *w, struct step *s, cudaStream_t stream)
{
    if (!s->graph_launches) {
        enqueue_one(w, s, stream);
        return;
    }
    ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    enqueue_one(w, s, stream);
    cudaGraphExec_t exec = instantiate(stream);
    for (unsigned i = 0; i < s->graph_launches; i++) ok(cudaGraphLaunch(exec, stream));
    ok(cudaGraphExecDestroy(exec));
}

/* the buffers that a step touches, host ones counted from BUFFERS on */
static void touches(const struct step *s, size_t buffer[2])
{
    bool to_host = s->what == DOWN || s->what == CALL,
         from_host = s->what == UP || s->what == ROWS_UP || s->what == BATCH_UP;
    buffer[0] = s->to + (to_host ? BUFFERS : 0);
    buffer[1] = s->what == CALL || s->what == SET ? buffer[0] : s->from + (from_host ? BUFFERS : 0);
}

static void one_round(uint64_t seed)
{
    struct dice dice = { seed, 0 };
    struct world real, plain;
    static struct step steps[OPS];
    cudaStream_t streams[STREAMS];
    cudaEvent_t events[2 * BUFFERS];
    bool touched[2 * BUFFERS] = { false };
    for (size_t i = 0; i < STREAMS; i++) streams[i] = stream_new();
    for (size_t i = 0; i < 2 * BUFFERS; i++) events[i] = event_new();
    for (size_t i = 0; i < BUFFERS; i++) {
        const size_t bytes = WORDS * sizeof(uint32_t);
        real.device[i] = device_new(bytes);
        real.host[i] = pinned_new(bytes);
        plain.device[i] = malloc(bytes);
        plain.host[i] = malloc(bytes);
        memset(plain.device[i], 0xFF, bytes);
        memset(plain.host[i], 0xFF, bytes);
    }
    for (size_t i = 0; i < OPS; i++) {
        struct step *s = &steps[i];
        *s = (struct step){ .what = (enum what) throw(&dice, WHAT_COUNT),
                            .stream = throw(&dice, STREAMS),
                            .to = throw(&dice, BUFFERS),
                            .from = throw(&dice, BUFFERS),
                            .value = (uint32_t) throw(&dice, 1u << 30) };
        if (s->what != BATCH_UP && throw(&dice, 4) == 0) s->graph_launches = 1 + (unsigned) throw(&dice, 2);
        size_t buffer[2];
        touches(s, buffer);
        for (size_t k = 0; k < 2; k++)
            if (touched[buffer[k]]) ok(cudaStreamWaitEvent(streams[s->stream], events[buffer[k]], 0));
        enqueue(&real, s, streams[s->stream]);
        for (size_t k = 0; k < 2; k++) {
            ok(cudaEventRecord(events[buffer[k]], streams[s->stream]));
            touched[buffer[k]] = true;
        }
    }
    ok(cudaDeviceSynchronize());
    for (size_t i = 0; i < OPS; i++) {
        struct step s = steps[i];
        for (unsigned n = 0; n < (s.graph_launches ? s.graph_launches : 1); n++) run_plain(&plain, &s);
    }
    for (size_t i = 0; i < BUFFERS; i++) {
        uint32_t back[WORDS];
        ok(cudaMemcpy(back, real.device[i], sizeof back, cudaMemcpyDeviceToHost));
        assert_memory_equal(back, plain.device[i], sizeof back);
        assert_memory_equal(real.host[i], plain.host[i], sizeof back);
        ok(cudaFree(real.device[i]));
        ok(cudaFreeHost(real.host[i]));
        free(plain.device[i]);
        free(plain.host[i]);
    }
    for (size_t i = 0; i < STREAMS; i++) ok(cudaStreamDestroy(streams[i]));
    for (size_t i = 0; i < 2 * BUFFERS; i++) ok(cudaEventDestroy(events[i]));
}

static void random_operations_agree_with_one_after_the_other(void **state)
{
    (void)state;
    for (size_t i = 0; i < rounds; i++) one_round(i);
    assert_nothing_alive();
}

/* threads that make, use and destroy things of their own at the same time */
static void *user(void *arg)
{
    struct dice dice = { 1000 + (uint64_t)(uintptr_t)arg, 0 };
    size_t wrong = 0;
    for (size_t i = 0; i < rounds; i++) {
        cudaStream_t stream;
        cudaEvent_t event;
        void *device = NULL;
        uint32_t back = 0, times = 1 + (uint32_t) throw(&dice, 20), expected = 0;
        wrong += cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) || cudaEventCreateWithFlags(&event, 0);
        wrong += cudaMalloc(&device, sizeof back) || cudaMemsetAsync(device, 0, sizeof back, stream);
        for (uint32_t k = 0; k < times; k++) {
            wrong += mix(device, 7, k, stream) != cudaSuccess;
            expected = expected * 7 + k;
        }
        wrong += cudaMemcpyAsync(&back, device, sizeof back, cudaMemcpyDeviceToHost, stream)
                 || cudaEventRecord(event, stream);
        wrong += back != expected;
        wrong += cudaEventSynchronize(event) || cudaFree(device) || cudaEventDestroy(event)
                 || cudaStreamDestroy(stream);
    }
    return (void *)(uintptr_t)wrong;
}

static void threads_do_not_disturb_each_other(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, user, (void *)i), 0);
    for (size_t i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "small") == 0) rounds = 8;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_operations_agree_with_one_after_the_other, fresh, spent),
        cmocka_unit_test_setup_teardown(random_operations_agree_with_one_after_the_other, fresh_sharp, spent),
        cmocka_unit_test_setup_teardown(threads_do_not_disturb_each_other, fresh_sharp, spent),
        cmocka_unit_test_setup_teardown(threads_do_not_disturb_each_other, fresh, spent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
