/* Random graphs of operations over several streams, ordered by events and flags wherever two of them touch the
 * same buffer, against the same operations run one after the other. argv[1]: all or small. */

#include "kernels/host/test_support.h"

#include "harness/base/rng.h"

enum { STREAMS = 4, BUFFERS = 6, FLOATS = 96, OPS = 400 };
enum what { UP, DOWN, ACROSS, ROWS_UP, PIECES_UP, BLEND, CALL, WHAT_COUNT };

/* Buffers 0 .. BUFFERS-1: on the device; the same again in pinned memory. */
struct world {
    float *device[BUFFERS], *host[BUFFERS];
};

struct step {
    enum what what;
    size_t stream, to, from;
    float a, b;
    float *call_y;
    unsigned launches; /* of a graph that holds it; 0: it is enqueued itself */
    struct ha_graph *graph;
};

static void call(void *arg)
{
    struct step *s = arg;
    for (size_t i = 0; i < FLOATS; i++) s->call_y[i] = s->a * s->call_y[i] + s->b;
}

static void copy_rows(float *y, const float *x)
{
    for (size_t r = 0; r < 4; r++) memcpy(y + 24 * r, x + 20 * r, 16 * sizeof *y);
}

static void run_plain(struct world *w, struct step *s)
{
    float *y = w->device[s->to], *x = w->device[s->from];
    switch (s->what) {
    case PIECES_UP:
    case UP: memcpy(y, w->host[s->from], FLOATS * sizeof *y); break;
    case DOWN: memcpy(w->host[s->to], x, FLOATS * sizeof *y); break;
    case ACROSS: memcpy(y, x, FLOATS * sizeof *y); break;
    case ROWS_UP: copy_rows(y, w->host[s->from]); break;
    case BLEND:
        for (size_t i = 0; i < FLOATS; i++) y[i] = s->a * y[i] + s->b * x[i];
        break;
    case CALL:
        s->call_y = w->host[s->to];
        call(s);
        break;
    case WHAT_COUNT: break;
    }
}

static void pieces_up(struct ha_stream *stream, float *y, const float *x)
{
    enum { PIECES = 8, EACH = FLOATS / PIECES };
    void *dst[PIECES];
    const void *src[PIECES];
    size_t bytes[PIECES];
    for (size_t i = 0; i < PIECES; i++) {
        dst[i] = y + EACH * i;
        src[i] = x + EACH * i;
        bytes[i] = EACH * sizeof *y;
    }
    ok(api->copy_pieces(stream, &(struct ha_device_pieces){ dst, src, bytes, PIECES }, HA_H2D));
}

static void enqueue_one(struct ha_stream *stream, struct world *w, struct step *s)
{
    float *y = w->device[s->to], *x = w->device[s->from];
    const size_t bytes = FLOATS * sizeof *y;
    switch (s->what) {
    case UP: ok(api->copy(stream, y, w->host[s->from], bytes, HA_H2D)); break;
    case DOWN: ok(api->copy(stream, w->host[s->to], x, bytes, HA_D2H)); break;
    case ACROSS: ok(api->copy(stream, y, x, bytes, HA_D2D)); break;
    case ROWS_UP:
        ok(api->copy_2d(stream, y, 24 * sizeof *y, w->host[s->from], 20 * sizeof *y, 16 * sizeof *y, 4, HA_H2D));
        break;
    case PIECES_UP: pieces_up(stream, y, w->host[s->from]); break;
    case BLEND: ok(api->blend(stream, &(struct ha_device_blend){ y, x, 1, FLOATS, FLOATS, FLOATS, s->a, s->b })); break;
    case CALL:
        s->call_y = w->host[s->to];
        ok(api->host_fn(stream, call, s));
        break;
    case WHAT_COUNT: break;
    }
}

static void enqueue(struct ha_stream *stream, struct world *w, struct step *s)
{
    if (s->launches) ok(api->graph_begin(stream));
    enqueue_one(stream, w, s);
    if (s->launches) ok(api->graph_end(stream, &s->graph, &why));
    for (unsigned i = 0; i < s->launches; i++) ok(api->graph_launch(s->graph, stream));
}

/* the buffers that a step touches, host ones counted from BUFFERS on */
static void touches(const struct step *s, size_t buffer[2])
{
    bool to_host = s->what == DOWN || s->what == CALL,
         from_host = s->what == UP || s->what == ROWS_UP || s->what == PIECES_UP;
    buffer[0] = s->to + (to_host ? BUFFERS : 0);
    buffer[1] = s->what == CALL ? buffer[0] : s->from + (from_host ? BUFFERS : 0);
}

struct crew {
    struct ha_device *dev;
    struct ha_stream *stream[STREAMS];
    struct ha_event *event;
    uint32_t *flag, value; /* [STREAMS] */
};

/* Work enqueued on `after` from now on waits for what `before` holds, by an event or by a flag. */
static void order(struct crew *c, size_t before, size_t after, bool by_flag)
{
    if (by_flag) {
        /* a stream's values rise, so that a later write never undoes a release */
        c->value++;
        ok(api->flag_write(c->stream[before], &c->flag[before], c->value));
        ok(api->flag_wait(c->stream[after], &c->flag[before], c->value));
    } else {
        ok(api->event_record(c->event, c->stream[before]));
        ok(api->stream_wait(c->stream[after], c->event));
    }
}

struct dice {
    uint64_t seed, thrown;
};

static size_t throw(struct dice * d, size_t sides) { return (size_t)ha_rng_below(d->seed, 99, d->thrown++, sides); }

static struct step step_make(struct dice *d)
{
    struct step s = { .a = 0.5f };
    s.what = (enum what) throw(d, WHAT_COUNT);
    s.stream = throw(d, STREAMS);
    s.to = throw(d, BUFFERS);
    s.from = throw(d, BUFFERS);
    s.b = 0.25f * (float) throw(d, 4);
    if (s.what == ACROSS && s.to == s.from) s.from = (s.to + 1) % BUFFERS;
    if (throw(d, 4) == 0) s.launches = 1 + (unsigned) throw(d, 2);
    return s;
}

static void run_graph(struct crew *c, struct world *w, struct world *plain, uint64_t graph)
{
    static struct step steps[OPS];
    struct dice dice = { graph, 0 };
    size_t last[2 * BUFFERS]; /* stream that touched a buffer last */
    for (size_t i = 0; i < 2 * BUFFERS; i++) last[i] = STREAMS;
    for (size_t i = 0; i < BUFFERS; i++) {
        ha_rng_normals(graph, i, 0, FLOATS, plain->device[i]);
        ha_rng_normals(graph, i + BUFFERS, 0, FLOATS, plain->host[i]);
        memcpy(w->device[i], plain->device[i], FLOATS * sizeof(float));
        memcpy(w->host[i], plain->host[i], FLOATS * sizeof(float));
    }
    for (size_t i = 0; i < OPS; i++) {
        struct step *s = &steps[i];
        size_t buffer[2];
        *s = step_make(&dice);
        touches(s, buffer);
        for (size_t j = 0; j < 2; j++)
            if (last[buffer[j]] != STREAMS && last[buffer[j]] != s->stream)
                order(c, last[buffer[j]], s->stream, throw(&dice, 2));
        last[buffer[0]] = last[buffer[1]] = s->stream;
        enqueue(c->stream[s->stream], w, s);
        if (throw(&dice, 100) == 0) ok(api->stream_sync(c->stream[throw(&dice, STREAMS)]));
    }
    for (size_t i = 0; i < STREAMS; i++) ok(api->stream_sync(c->stream[i]));
    for (size_t i = 0; i < OPS; i++) {
        struct step s = steps[i];
        api->graph_destroy(s.graph);
        for (unsigned n = 0; n < (s.launches ? s.launches : 1); n++) run_plain(plain, &s);
    }
    for (size_t i = 0; i < BUFFERS; i++) {
        if (memcmp(w->device[i], plain->device[i], FLOATS * sizeof(float))
            || memcmp(w->host[i], plain->host[i], FLOATS * sizeof(float)))
            fail_msg("graph %llu: buffer %zu differs", (unsigned long long)graph, i);
    }
}

TEST(random_graphs_equal_sequential_execution)
{
    static const char *const name[STREAMS] = { "a", "b", "c", "d" };
    static float plain_memory[2][BUFFERS][FLOATS];
    struct crew c = { .dev = device_open(0) };
    struct world w, plain;
    for (size_t i = 0; i < BUFFERS; i++) {
        w.device[i] = device_alloc(c.dev, HA_MEM_DEVICE, FLOATS * sizeof(float));
        w.host[i] = device_alloc(c.dev, HA_MEM_PINNED, FLOATS * sizeof(float));
        plain.device[i] = plain_memory[0][i];
        plain.host[i] = plain_memory[1][i];
    }
    c.flag = device_alloc(c.dev, HA_MEM_MAPPED, STREAMS * sizeof *c.flag);
    memset(c.flag, 0, STREAMS * sizeof *c.flag);
    c.event = device_event(c.dev);
    for (uint64_t graph = 0; graph < (test_small ? 10 : 60); graph++) {
        /* new streams for some, so that they come and go while their past is still waited for */
        if (graph % 8 == 0)
            for (size_t i = 0; i < STREAMS; i++) {
                if (graph > 0) device_release(c.stream[i]);
                c.stream[i] = device_stream(c.dev, name[i]);
            }
        run_graph(&c, &w, &plain, graph);
    }
    device_close(c.dev, NULL);
}
