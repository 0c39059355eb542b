/* The CPU stores where map_device says; the launching thread of sync=device never waits; devices that fail and
 * instances that end are errors and hang nothing; and the history of the process sees a wait that is left out. Which
 * keys come, and where, `habench check` judges, of clo. */

#include "suites/parts/test_instance.h"

#include "harness/base/rng.h"
#include "harness/base/stores.h"
#include "suites/similarity_cache/transfer.h"

enum { WAYS = HA_FETCH_STORES + 1, LAYERS = 2, SEQS = 2, HEADS = 3, UNITS = SEQS * HEADS, DIM = 8, HEAD = DIM * 4 };
enum { ROW = HEADS * HEAD, TOKENS = 48, ROWS_MAX = 12, VECTORS = HEADS * ROWS_MAX, REQUESTS = 4, BLANK = 0x55 };
/* the last tokens of a store, which nothing lists and which are written meanwhile */
enum { NEW = 4, LISTED = TOKENS - NEW };
enum { NOBODY = UNITS - 1 }; /* a head that is never moved */

static const struct ha_shape shape = { .batch = SEQS,
                                       .q_len = 1,
                                       .layers = LAYERS,
                                       .q_heads = HEADS,
                                       .kv_heads = HEADS,
                                       .head_dim = DIM,
                                       .dtype = HA_F32,
                                       .scale = 1,
                                       .ctx = { TOKENS, TOKENS },
                                       .steps = 1 };

/* A request, as the device knows it before anyone asks, and the destinations as the main stream finds them behind the
 * wait. */
struct request {
    uint32_t missed[UNITS], count[UNITS], index[UNITS * ROWS_MAX];
    uint32_t *missed_device, *count_device, *index_device;
    unsigned char *seen[SEQS][2]; /* pinned */
};

static struct {
    enum ha_fetch_way way;
    enum ha_transfer_sync sync;
    size_t threads, unit;
    struct ha_transfer t;
    struct ha_layer *first;
    struct ha_kv from[LAYERS][SEQS], to[LAYERS][SEQS];
    unsigned char is[LAYERS][SEQS][2][VECTORS * HEAD]; /* what is in the destinations */
    struct request request[REQUESTS][LAYERS];
    unsigned char *fresh; /* pageable: of new tokens */
    void *fresh_device;
    double moved[LAYERS], bytes[LAYERS];
} w;

static enum ha_status share(struct ha_layer *first, struct ha_why *because)
{
    w.first = first;
    return ha_transfer_create(&w.t, first, w.way, w.sync, w.threads, w.unit, ROWS_MAX / w.unit, because);
}
static enum ha_status drain(struct ha_layer *first, struct ha_why *because)
{
    assert_ptr_equal(first, w.first);
    return ha_transfer_drain(&w.t, because);
}
static void end(struct ha_layer *first)
{
    ha_transfer_end(&w.t);
    ha_transfer_end(&w.t); /* of what is ended, too */
}
static const struct ha_rule rule = { .share = share, .drain = drain, .end = end };

/* ---- what is moved ----------------------------------------------------------------------------------------------- */

static unsigned char *half(const struct ha_kv *kv, int v) { return v ? kv->v : kv->k; }

static void fill_layer(size_t layer)
{
    static unsigned char blank[VECTORS * HEAD];
    memset(blank, BLANK, sizeof blank);
    for (size_t b = 0; b < SEQS; b++) {
        struct ha_kv *from = &w.from[layer][b], *to = &w.to[layer][b];
        ok(ha_kv_create(&mine.ctx, ha_fetch_memory(w.way), TOKENS, from, &why));
        *to = (struct ha_kv){ .memory = HA_MEM_DEVICE,
                              .k = memory_of(HA_MEM_DEVICE, VECTORS * HEAD),
                              .v = memory_of(HA_MEM_DEVICE, VECTORS * HEAD),
                              .cap = VECTORS };
        for (int v = 0; v < 2; v++) {
            for (size_t i = 0; i < TOKENS * ROW; i++)
                half(from, v)[i] = (unsigned char)ha_rng_bits(7, (layer * SEQS + b) * 2 + (size_t)v, i);
            /* which lists may name */
            ha_order_thread_names(half(from, v), &(struct ha_range){ half(from, v), 1, 0, LISTED * ROW });
            move(half(to, v), blank, sizeof blank, HA_H2D);
            memset(w.is[layer][b][v], BLANK, sizeof blank);
        }
        for (size_t h = 0; h < HEADS; h++)
            w.t.layer[layer].place[b * HEADS + h] = (struct ha_transfer_place){
                .from = b * HEADS + h == NOBODY ? NULL : from, .to = to, .at = h * ROWS_MAX
            };
        ok(ha_transfer_reach(&w.t, layer, to, &why));
    }
}

/* Half of the heads miss; what a head that does not has in the lists is for nobody to read. */
static void draw(struct request *r, uint64_t seed)
{
    const size_t entries = ROWS_MAX / w.unit;
    for (size_t u = 0; u < UNITS; u++) {
        r->missed[u] = u == NOBODY || (uint32_t)(ha_rng_bits(seed, 1, u) % 2);
        const bool hit = !r->missed[u] || u == NOBODY;
        r->count[u] = hit ? UINT32_MAX : (uint32_t)(ha_rng_bits(seed, 2, u) % (entries + 1) * w.unit);
        for (size_t i = 0; i < entries; i++)
            r->index[u * entries + i] = hit ? UINT32_MAX : (uint32_t)(ha_rng_bits(seed, u, i) % (LISTED / w.unit));
    }
    r->missed_device = memory_of(HA_MEM_DEVICE, sizeof r->missed);
    r->count_device = memory_of(HA_MEM_DEVICE, sizeof r->count);
    r->index_device = memory_of(HA_MEM_DEVICE, sizeof r->index);
    move(r->missed_device, r->missed, sizeof r->missed, HA_H2D);
    move(r->count_device, r->count, sizeof r->count, HA_H2D);
    move(r->index_device, r->index, UNITS * entries * sizeof *r->index, HA_H2D);
    for (size_t b = 0; b < SEQS; b++)
        for (int v = 0; v < 2; v++) r->seen[b][v] = memory_of(HA_MEM_PINNED, VECTORS * HEAD);
}

/* Vector by vector, as the header says it. */
static void expect(const struct request *r, size_t layer)
{
    for (size_t u = 0; u < UNITS; u++) {
        const size_t b = u / HEADS, h = u % HEADS;
        if (!r->missed[u] || u == NOBODY) continue;
        for (size_t i = 0; i < r->count[u]; i++)
            for (int v = 0; v < 2; v++) {
                const size_t token = r->index[u * (ROWS_MAX / w.unit) + i / w.unit] * w.unit + i % w.unit;
                memcpy(w.is[layer][b][v] + (h * ROWS_MAX + i) * HEAD,
                       half(&w.from[layer][b], v) + token * ROW + h * HEAD, HEAD);
            }
        w.moved[layer]++;
        w.bytes[layer] += 2.0 * r->count[u] * HEAD;
    }
}

static const struct ha_device_api *api_of = &ha_device_host;
static void open_transfer(enum ha_fetch_way way, enum ha_transfer_sync sync, size_t threads, size_t unit)
{
    memset(&w, 0, sizeof w);
    w.way = way;
    w.sync = sync;
    w.threads = threads;
    w.unit = unit;
    open_context(api_of, &shape, &rule);
    ok(make_instance());
    for (size_t i = 0; i < LAYERS; i++) fill_layer(i);
    for (size_t r = 0; r < REQUESTS; r++)
        for (size_t i = 0; i < LAYERS; i++) draw(&w.request[r][i], 10 * r + i);
    w.fresh = memory_of(HA_MEM_PINNED, NEW * ROW);
    w.fresh_device = memory_of(HA_MEM_DEVICE, NEW * ROW);
    memset(w.fresh, 1, NEW * ROW);
    move(w.fresh_device, w.fresh, NEW * ROW, HA_H2D);
    ha_stores_take();
}

/* ---- what the main stream does ----------------------------------------------------------------------------------- */

static void enqueue(enum ha_status status)
{
    if (status != HA_OK) fail_msg("%s", mine.ctx.api->failure(mine.ctx.device));
}
static void down(void *to, const void *from, size_t bytes)
{
    enqueue(mine.ctx.api->copy(mine.ctx.stream, to, from, bytes, HA_D2H));
}
static void look_up(const struct request *r, size_t layer)
{
    const struct ha_transfer_layer *l = &w.t.layer[layer];
    down(l->missed, r->missed_device, sizeof r->missed);
    down(l->count, r->count_device, sizeof r->count);
    down(l->index, r->index_device, UNITS * (ROWS_MAX / w.unit) * sizeof *r->index);
}
static void look(const struct request *r, size_t layer)
{
    for (size_t b = 0; b < SEQS; b++)
        for (int v = 0; v < 2; v++) down(r->seen[b][v], half(&w.to[layer][b], v), VECTORS * HEAD);
}
static void add_tokens(size_t layer)
{
    for (size_t b = 0; b < SEQS; b++)
        for (int v = 0; v < 2; v++) down(half(&w.from[layer][b], v) + LISTED * ROW, w.fresh_device, NEW * ROW);
}
static enum ha_status ask(size_t layer) { return ha_transfer_ask(&w.t, &w.first[layer], &why); }
static enum ha_status wait(size_t layer) { return ha_transfer_wait(&w.t, &w.first[layer], &why); }

/* each layer's keys are asked for while the one before it goes on */
static void run_requests(void)
{
    for (size_t r = 0; r < REQUESTS; r++)
        for (size_t i = 0; i < LAYERS + 1; i++) {
            if (i < LAYERS) look_up(&w.request[r][i], i);
            if (i < LAYERS) ok(ask(i));
            if (i < LAYERS) add_tokens(i);
            if (i > 0) ok(wait(i - 1));
            if (i > 0) look(&w.request[r][i - 1], i - 1);
        }
}

static void assert_moved(void)
{
    double stored = 0;
    ok(ha_frame_drain(mine.frame, &why));
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
    for (size_t i = 0; i < LAYERS; i++) {
        for (size_t r = 0; r < REQUESTS; r++) {
            const struct request *q = &w.request[r][i];
            expect(q, i);
            for (size_t b = 0; b < SEQS; b++)
                for (int v = 0; v < 2; v++)
                    for (size_t x = 0; x < VECTORS * HEAD; x++)
                        if (q->seen[b][v][x] != w.is[i][b][v][x])
                            fail_msg(
                                "fetch way %d, sync=%s, %zu threads: request %zu of layer %zu, %s of sequence %zu, "
                                "vector %zu",
                                (int)w.way, ha_transfer_sync_word(w.sync), w.threads, r, i, v ? "V" : "K", b, x / HEAD);
        }
        assert_true(w.t.layer[i].moved == w.moved[i] && w.t.layer[i].bytes == w.bytes[i]);
        assert_true(w.moved[i] > 0);
        assert_int_equal(w.t.layer[i].asked, REQUESTS);
        stored += w.bytes[i];
    }
    assert_true((double)ha_stores_take() == (w.way == HA_FETCH_STORES ? stored : 0));
}

/* CPU stores go where map_device says that the CPU reaches the destination, and nowhere else; each mapping ends. */
enum { WINDOWS = 2 * LAYERS * SEQS };
static struct {
    unsigned char *of, at[VECTORS * HEAD];
} window[WINDOWS];
static size_t windows, unmapped;
static enum ha_status map_elsewhere(struct ha_device *dev, void *ptr, size_t bytes, void **host, struct ha_why *because)
{
    assert_true(windows < WINDOWS && bytes == VECTORS * HEAD);
    window[windows].of = ptr;
    *host = memset(window[windows++].at, BLANK, bytes);
    return HA_OK;
}
static void unmap(struct ha_device *dev, void *host)
{
    for (size_t i = 0; i < windows; i++) unmapped += host == window[i].at;
}

TEST(test_stores_are_reached)
{
    struct ha_device_api api = ha_device_host;
    api.map_device = map_elsewhere;
    api.unmap_device = unmap;
    unwatched = true;
    api_of = &api;
    windows = unmapped = 0;
    open_transfer(HA_FETCH_STORES, HA_SYNC_DEVICE, 2, 1);
    api_of = &ha_device_host;
    assert_int_equal(windows, WINDOWS);
    run_requests();
    ok(ha_frame_drain(mine.frame, &why));
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
    for (size_t i = 0; i < LAYERS; i++) {
        for (size_t r = 0; r < REQUESTS; r++) expect(&w.request[r][i], i);
        for (size_t n = 0; n < 2 * SEQS; n++) {
            const unsigned char *of = half(&w.to[i][n / 2], (int)(n % 2));
            for (size_t x = 0; x < VECTORS * HEAD; x++) assert_int_equal(of[x], BLANK);
            for (size_t x = 0; x < WINDOWS; x++)
                if (window[x].of == of) assert_memory_equal(window[x].at, w.is[i][n / 2][n % 2], VECTORS * HEAD);
        }
    }
    close_instance();
    assert_int_equal(unmapped, WINDOWS);
    unwatched = false;
}

/* All is enqueued before the device begins, and the background sleeps between jobs. */
TEST(test_nothing_is_awaited)
{
    unwatched = true;
    for (int way = 0; way < WAYS; way++) {
        open_transfer((enum ha_fetch_way)way, HA_SYNC_DEVICE, 1, 1);
        uint32_t *gate = memory_of(HA_MEM_MAPPED, sizeof *gate);
        __atomic_store_n(gate, 0, __ATOMIC_RELEASE);
        assert_null(ha_order_now()); /* which would have the launching thread wait */
        enqueue(mine.ctx.api->flag_wait(mine.ctx.stream, gate, 1));
        run_requests();
        assert_int_equal(__atomic_load_n(&w.t.layer[0].served, __ATOMIC_ACQUIRE), 0);
        assert_true(w.request[0][0].seen[0][0][0] != BLANK || w.is[0][0][0][0] == BLANK);
        __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
        assert_moved();
        close_instance();
    }
    unwatched = false;
}

/* The main stream stands still. What ends the engine's wait for it: the device fails, or the instance is over. */
TEST(test_nothing_hangs)
{
    unwatched = true;
    for (int n = 0; n < 2 * WAYS; n++) {
        const bool fails = n % 2;
        open_transfer((enum ha_fetch_way)(n / 2), HA_SYNC_DEVICE, 2, 1);
        uint32_t *gate = memory_of(HA_MEM_MAPPED, sizeof *gate);
        __atomic_store_n(gate, 0, __ATOMIC_RELEASE);
        assert_null(ha_order_now()); /* which would have the launching thread wait */
        enqueue(mine.ctx.api->flag_wait(mine.ctx.stream, gate, 1));
        look_up(&w.request[0][0], 0);
        ok(ask(0));
        ok(wait(0));
        if (fails) {
            assert_int_equal(mine.ctx.api->copy(mine.ctx.stream, NULL, gate, 1, HA_H2D), HA_ERROR);
            assert_int_equal(ha_frame_drain(mine.frame, &why), HA_ERROR);
            if (!strstr(why.text, "copy H2D on ")) fail_msg("%s", why.text);
            assert_int_equal(wait(0), HA_ERROR);
            assert_int_equal(ask(1), HA_ERROR);
        } else ha_transfer_end(&w.t);
        assert_int_equal(w.t.layer[0].served, 1);
        __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
        end_instance();
    }
    unwatched = false;
}

/* Neither what is there before the wait nor what is asked for before it is known may be used: the history says so, but
 * of what a move writes through an index (docs/order.md). */
TEST(test_order_is_seen)
{
    static const char *const by[] = { "copy_pieces", "move", "copy", "store" };
    for (int n = 0; n < 2 * WAYS * 2; n++) {
        const bool too_late = n % 2 && n / 2 % 2 == HA_SYNC_DEVICE;
        if (n / 4 == HA_FETCH_MOVE && !too_late) continue;
        open_transfer((enum ha_fetch_way)(n / 4), (enum ha_transfer_sync)(n / 2 % 2), 2, 1);
        const struct request *r = &w.request[0][0];
        look_up(r, 0);
        ok(ask(0));
        if (too_late) look_up(r, 0); /* the lists change while they are read */
        if (too_late) ok(wait(0));
        else look(r, 0);
        ok(ha_frame_drain(mine.frame, &why));
        if (ha_order_verdict(ha_order_now(), &why) != HA_FAIL || !strstr(why.text, too_late ? "transfer" : by[w.way]))
            fail_msg("fetch way %d, sync=%s, too late %d: %s", (int)w.way, ha_transfer_sync_word(w.sync), too_late,
                     why.text);
        ok(mine.ctx.api->stream_sync(mine.ctx.stream));
        end_instance();
    }
}

/* ---- devices that fail ------------------------------------------------------------------------------------------- */

static struct ha_device_api failing;
static struct ha_stream *fails_on; /* each operation of these, on that stream */
static enum ha_status no_flag(struct ha_stream *s, uint32_t *flag, uint32_t value)
{
    return s == fails_on ? HA_ERROR : ha_device_host.flag_write(s, flag, value);
}
static enum ha_status no_move(struct ha_stream *s, const struct ha_device_move *m) { return HA_ERROR; }
static enum ha_status no_pieces(struct ha_stream *s, const struct ha_device_pieces *p, enum ha_direction dir)
{
    return HA_ERROR;
}
static enum ha_status no_copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    return s == fails_on ? HA_ERROR : ha_device_host.copy(s, dst, src, bytes, dir);
}

/* The main stream goes on behind its wait, and what failed is said. */
TEST(test_failures_leave_nobody_waiting)
{
    unwatched = true;
    for (int n = 0; n < 4 * WAYS; n++) {
        const enum ha_fetch_way way = (enum ha_fetch_way)(n / 4);
        const bool no_copies = n % 2;
        if (way == HA_FETCH_STORES) continue; /* the device does nothing */
        failing = ha_device_host;
        fails_on = NULL;
        failing.flag_write = no_copies ? failing.flag_write : no_flag;
        failing.move = no_copies ? no_move : failing.move;
        failing.copy_pieces = no_copies ? no_pieces : failing.copy_pieces;
        failing.copy = no_copies ? no_copy : failing.copy;
        api_of = &failing;
        open_transfer(way, (enum ha_transfer_sync)(n / 2 % 2), 2, 1);
        api_of = &ha_device_host;
        fails_on = w.t.stream;
        look_up(&w.request[0][0], 0);
        ok(ask(0));
        wait(0); /* may know of it already */
        look(&w.request[0][0], 0);
        ok(mine.ctx.api->stream_sync(mine.ctx.stream));
        memset(&why, 0, sizeof why);
        assert_int_equal(ha_frame_drain(mine.frame, &why), HA_ERROR);
        assert_string_equal(why.text, no_copies ? "transfer: the device has not moved the keys of layer 0"
                                                : "transfer: flag_write");
        end_instance();
    }
    unwatched = false;
}

TEST(test_words)
{
    static const enum ha_fetch_way way[] = { HA_FETCH_STORES, HA_FETCH_MOVE, HA_FETCH_GATHER, HA_FETCH_PIECES };
    static const char *const word[] = { "stores", "kernel", "gather", "pieces", NULL };
    static const struct ha_param option = HA_TRANSFER_WAY;
    assert_string_equal(ha_transfer_word((size_t)option.value), "stores");
    for (size_t i = 0; i < COUNT(way); i++) {
        assert_string_equal(ha_transfer_word(i), word[i]);
        assert_int_equal(ha_transfer_way(i), way[i]);
    }
    assert_null(ha_transfer_word(COUNT(way)));
}
