/* The products of a layer around its attention: what is enqueued, where, on what, and when; that results stay what they
 * are. */

#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "harness/base/thread.h"
#include "harness/report/row.h"
#include "suites/variants/fill.h"
#include "suites/variants/test_session.h"

#include <stdatomic.h>
#include <sys/mman.h>

/* ---- on a device that writes down what it is asked for ------------------------------------------ */

enum { CALLS = 64 };
static struct ha_device_product call[CALLS];
static size_t calls, refused_at, copied;
static const char *device_memory;
static size_t device_bytes;
static float drawn_least, drawn_most;

static enum ha_status mem_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                struct ha_why *why)
{
    /* gigabytes of device memory are asked for, which nobody touches */
    *ptr = mmap(NULL, bytes, kind == HA_MEM_DEVICE ? PROT_NONE : PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(*ptr != MAP_FAILED);
    if (kind == HA_MEM_DEVICE && bytes > device_bytes) device_memory = *ptr, device_bytes = bytes;
    return HA_OK;
}
static void mem_free(struct ha_device *dev, enum ha_memory kind, void *ptr) { (void)dev, (void)kind, (void)ptr; }
static enum ha_status copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    assert_int_equal(dir, HA_H2D);
    copied += bytes;
    for (size_t i = 0; i < 1000 && i < bytes / 2; i++) {
        const float x = ha_load(src, i, HA_F16);
        drawn_least = fminf(drawn_least, x);
        drawn_most = fmaxf(drawn_most, x);
        assert_true(isfinite(x));
    }
    return HA_OK;
}
static enum ha_status sync(struct ha_stream *stream) { return HA_OK; }
static enum ha_status product(struct ha_stream *stream, const struct ha_device_product *args)
{
    assert_true(calls < CALLS);
    call[calls++] = *args;
    return calls == refused_at ? HA_ERROR : HA_OK;
}
static const struct ha_device_api noting = {
    .mem_alloc = mem_alloc, .mem_free = mem_free, .copy = copy, .stream_sync = sync, .product = product
};

static struct ha_load create(const struct ha_model *model, size_t layers, size_t batch, size_t q_len,
                             struct ha_device_arena **arena)
{
    const struct ha_shape shape = { .layers = layers, .steps = 2, .batch = batch, .q_len = q_len, .dtype = HA_F16 };
    struct ha_load load;
    calls = refused_at = copied = device_bytes = 0;
    drawn_least = drawn_most = 0;
    assert_ok(ha_device_arena_create(arena, &noting, NULL, &reason));
    assert_ok(ha_load_create(&load, model, &shape, &noting, NULL, *arena, &reason));
    return load;
}

TEST(a_layer_is_four_products)
{
    static const struct {
        const char *model;
        size_t n[4], k[4], kept; /* by hand, from the models' descriptions; kept: in 2 GiB */
    } wanted[] = {
        { "llama-3-8b", { 6144, 4096, 28672, 4096 }, { 4096, 4096, 4096, 14336 }, 4 },
        { "llama-3.1-8b", { 6144, 4096, 28672, 4096 }, { 4096, 4096, 4096, 14336 }, 4 },
        { "llama-3.1-70b", { 10240, 8192, 57344, 8192 }, { 8192, 8192, 8192, 28672 }, 1 },
        { "mistral-7b-v0.3", { 6144, 4096, 28672, 4096 }, { 4096, 4096, 4096, 14336 }, 4 },
        { "qwen2.5-7b", { 4608, 3584, 37888, 3584 }, { 3584, 3584, 3584, 18944 }, 4 },
        { "qwen3-8b", { 6144, 4096, 24576, 4096 }, { 4096, 4096, 4096, 12288 }, 5 },
        { "qwen3-14b", { 7168, 5120, 34816, 5120 }, { 5120, 5120, 5120, 17408 }, 3 },
        { "qwen3-32b", { 10240, 5120, 51200, 5120 }, { 5120, 8192, 5120, 25600 }, 2 },
        { "opt-6.7b", { 12288, 4096, 16384, 4096 }, { 4096, 4096, 4096, 16384 }, 5 },
        { "small", { 768, 256, 1408, 256 }, { 256, 512, 256, 704 }, 6 },
    };
    assert_int_equal(COUNT(wanted), HA_MODELS_COUNT);
    for (size_t i = 0; i < COUNT(wanted); i++) {
        struct ha_device_arena *arena;
        const struct ha_load load = create(&ha_models[i], 6, 3, 5, &arena);
        assert_string_equal(ha_models[i].name, wanted[i].model);
        size_t weights = 0;
        for (size_t p = 0; p < 4; p++) weights += 2 * wanted[i].n[p] * wanted[i].k[p];
        assert_int_equal(load.layer_bytes, weights);
        assert_int_equal(load.kept, wanted[i].kept);
        assert_true(device_bytes == load.kept * weights && copied >= device_bytes);
        assert_true(drawn_least < -0.04f && drawn_most > 0.04f && drawn_most < 0.2f);
        const void *fed = NULL, *drawn = NULL;
        for (size_t layer = 0; layer < 6; layer++) {
            calls = 0;
            assert_int_equal(ha_load_enqueue(&load, &noting, NULL, 1, layer, 0, HA_LOAD_BEFORE), HA_OK);
            assert_int_equal(calls, 1);
            assert_int_equal(ha_load_enqueue(&load, &noting, NULL, 1, layer, HA_LOAD_BEFORE, HA_LOAD_PRODUCTS), HA_OK);
            assert_int_equal(calls, 4);
            const char *w = device_memory + layer % load.kept * weights;
            for (size_t p = 0; p < 4; p++) {
                assert_true(call[p].m == 15 && call[p].n == wanted[i].n[p] && call[p].k == wanted[i].k[p]
                            && call[p].dtype == HA_F16);
                assert_ptr_equal(call[p].w, w); /* one after the other, each layer its own */
                w += 2 * call[p].n * call[p].k;
                assert_true(call[p].x != call[p].y && call[p].x != call[p].w);
            }
            /* what the fourth of the layer before gave, and what the second gave, is read */
            assert_true(layer == 0 || call[0].x == fed);
            assert_ptr_equal(call[2].x, call[1].y);
            assert_true(call[1].x == call[3].x && call[1].x != drawn);
            fed = call[3].y;
            drawn = call[3].x;
        }
        ha_device_arena_destroy(arena);
    }
}

TEST(a_refusal_is_passed_on)
{
    struct ha_device_arena *arena;
    const struct ha_load load = create(&ha_models[HA_MODELS_COUNT - 1], 2, 1, 1, &arena);
    refused_at = 3;
    assert_int_equal(ha_load_enqueue(&load, &noting, NULL, 0, 0, 0, HA_LOAD_BEFORE), HA_OK);
    assert_int_equal(ha_load_enqueue(&load, &noting, NULL, 0, 0, HA_LOAD_BEFORE, HA_LOAD_PRODUCTS), HA_ERROR);
    assert_int_equal(calls, 3);
    ha_device_arena_destroy(arena);
    /* attention alone */
    const struct ha_load none = { 0 };
    calls = 0;
    assert_int_equal(ha_load_enqueue(&none, &noting, NULL, 0, 7, 0, HA_LOAD_BEFORE), HA_OK);
    assert_int_equal(ha_load_enqueue(&none, &noting, NULL, 0, 7, HA_LOAD_BEFORE, HA_LOAD_PRODUCTS), HA_OK);
    assert_int_equal(calls, 0);
}

TEST(devices_without_products_say_so)
{
    struct ha_device_info info = { .no_products = "no BLAS on the moon" };
    assert_string_equal(ha_load_unsupported(&noting, &info), "no BLAS on the moon");
    *info.no_products = 0;
    assert_null(ha_load_unsupported(&noting, &info));
    assert_non_null(
        strstr(ha_load_unsupported(&(struct ha_device_api){ .name = "bare" }, &info), "no operation product"));
}

/* ---- on the embedded device ------------------------------------------------------------------------ */

static unsigned products_seen;
static void on_span(void *self, const struct ha_span *span)
{
    if (!strcmp(span->name, "product") && span->kind == HA_SPAN_KERNEL)
        __atomic_add_fetch(&products_seen, 1, __ATOMIC_RELAXED);
}

/* false: there is no BLAS */
static bool open_loaded(const char *id)
{
    if (try_session(id, NULL) == HA_OK) return true;
    close_session();
    if (!strstr(reason.text, "BLAS")) fail_msg("%s", reason.text);
    return false;
}

/* The outputs of a step, and how many products were traced in it. */
static void *step(const char *id, size_t *bytes)
{
    const struct ha_span_sink sink = { .span = on_span };
    struct ha_pass pass;
    products_seen = 0;
    if (!open_loaded(id)) return NULL;
    begin_pass(&pass, true);
    session.api->trace(session.device, &sink);
    assert_ok(ha_pass_step(&pass, 0, &reason));
    session.api->trace(session.device, NULL);
    *bytes = session.workload->shape.layers * session.io.out_bytes;
    void *out = malloc(*bytes);
    assert_non_null(out);
    memcpy(out, session.host_out, *bytes);
    assert_ok(ha_pass_end(&pass, HA_OK, &reason));
    close_session();
    return out;
}

/* Products of a step and a layer, by the turn of their inputs; a column that is off, or inputs of another turn, are
 * seen. */
TEST(products_are_judged)
{
    if (!open_loaded("resident:model=small,load=layer,layers=3,steps=3,ctx=60")) skip();
    const struct ha_load *l = &session.load;
    unsigned char *y = malloc(l->read_bytes);
    assert_non_null(y);
    assert_int_equal(l->slots, 9);
    for (uint64_t turn = 0; turn < 2; turn++) {
        struct ha_pass pass;
        if (turn) assert_ok(ha_session_turn(&session, turn, &reason));
        begin_pass(&pass, true);
        for (size_t i = 0; i < 3; i++) assert_ok(ha_pass_step(&pass, i, &reason));
        for (size_t i = 0; i < 9; i++) {
            assert_ok(ha_load_read(l, session.api, session.stream, i / 3, i % 3, y));
            assert_ok(ha_load_judge(l, turn, i / 3, i % 3, y, i, &reason));
            assert_int_equal(ha_load_judge(l, turn + 1, i / 3, i % 3, y, i, &reason), HA_FAIL);
            assert_int_equal(ha_load_judge(l, turn, i / 3, (i + 1) % 3, y, i, &reason), HA_FAIL);
            assert_contains(reason.text, "product 1 of layer");
            assert_int_equal(ha_load_judge(l, turn, (i / 3 + 1) % 3, i % 3, y, i, &reason), HA_FAIL);
            assert_contains(reason.text, i % 3 ? "product 2 of layer" : "product 1 of layer");
        }
        /* the last one of each product is always asked for */
        for (size_t i = 0; i < HA_LOAD_PRODUCTS; i++) {
            char *const of = (char *)y + l->y_at[i];
            const size_t last = l->product[i].m * l->product[i].n - 1;
            const float right = ha_load(of, last, l->product[i].dtype);
            ha_store(of, last, l->product[i].dtype, right + 1);
            assert_int_equal(ha_load_judge(l, turn, 2, 2, y, 5, &reason), HA_FAIL);
            ha_store(of, last, l->product[i].dtype, right);
        }
        assert_ok(ha_load_judge(l, turn, 2, 2, y, 5, &reason));
        assert_ok(ha_pass_end(&pass, HA_OK, &reason));
    }
    free(y);
    close_session();
}

TEST(results_stay_what_they_are)
{
    static const char *const with[] = { "resident:model=small,load=layer,layers=3,ctx=90,q_len=2",
                                        "offload:model=small,load=layer,layers=3,ctx=90,q_len=2" };
    static const char *const without[] = { "resident:model=small,layers=3,ctx=90,q_len=2",
                                           "offload:model=small,layers=3,ctx=90,q_len=2" };
    for (size_t i = 0; i < 2; i++) {
        size_t bytes, again;
        void *loaded = step(with[i], &again);
        if (!loaded) skip();
        assert_int_equal(products_seen, 3 * 4);
        void *plain = step(without[i], &bytes);
        assert_int_equal(products_seen, 0);
        assert_int_equal(bytes, again);
        assert_memory_equal(plain, loaded, bytes);
        free(plain), free(loaded);
    }
}

TEST(a_trace_of_another_model_is_refused)
{
    assert_int_equal(try_session("resident:model=opt-6.7b,dataset=trace/english,ctx=1900,steps=2", NULL), HA_ERROR);
    assert_string_equal(reason.text, "model opt-6.7b has heads 32/32 of 128, the data 8/2 of 64");
    close_session();
    open_session("resident:model=small,dataset=trace/english,ctx=1900,steps=2");
    close_session();
}

/* ---- while the CPU works a layer ahead ---------------------------------------------------------------- */

/* A variant whose CPU side is a layer ahead. In a layer's attend it begins tasks of the next layer, each of which ends
 * when all products between the two attentions have been enqueued; in the next attend it waits for them. */
enum { AHEAD_TASKS = 3, AHEAD_LAYERS = 3, AHEAD_STEPS = 2 };
static struct {
    const struct ha_device_api *real;
    struct ha_pool *pool;
    void (*begin)(struct ha_pool *pool, const char *name, size_t tasks,
                  void (*fn)(void *arg, size_t task, size_t worker), void *arg);
    uint64_t patience_ns, end_ns;
    size_t wanted;                 /* products, for the tasks that were begun last */
    atomic_size_t enqueued, ended; /* products; tasks that had what they wanted */
    atomic_size_t late;            /* products that a task had which waited in vain; or 0 */
} ahead;

static enum ha_status counted_product(struct ha_stream *stream, const struct ha_device_product *args)
{
    const enum ha_status status = ahead.real->product(stream, args);
    atomic_fetch_add(&ahead.enqueued, 1);
    return status;
}

static void await_products(void *arg, size_t task, size_t worker)
{
    while (atomic_load(&ahead.enqueued) < ahead.wanted && ha_now_ns() < ahead.end_ns) ha_sleep_ns(100000);
    const size_t enqueued = atomic_load(&ahead.enqueued);
    if (enqueued < ahead.wanted) atomic_store(&ahead.late, enqueued);
    else atomic_fetch_add(&ahead.ended, 1);
}

static enum ha_status ahead_create(struct ha_instance **self, const struct ha_context *ctx, struct ha_why *why)
{
    *self = (struct ha_instance *)(void *)&ahead;
    ahead.pool = ctx->pool;
    return ha_pool_background(ctx->pool, why);
}

static enum ha_status ahead_attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    ha_pool_wait(ahead.pool);
    if (!atomic_load(&ahead.late) && step->layer + 1 < AHEAD_LAYERS) {
        const size_t layers = step->step * AHEAD_LAYERS + step->layer + 1;
        ahead.wanted = layers * HA_LOAD_PRODUCTS + HA_LOAD_BEFORE;
        ahead.end_ns = ha_now_ns() + ahead.patience_ns;
        ahead.begin(ahead.pool, "ahead", AHEAD_TASKS, await_products, NULL);
    }
    if (!atomic_load(&ahead.late)) return HA_OK;
    return ha_why(why, HA_ERROR, "the CPU waited for %g s, in which %zu of %zu products were enqueued",
                  (double)ahead.patience_ns * 1e-9, atomic_load(&ahead.late), ahead.wanted);
}

static enum ha_status ahead_drain(struct ha_instance *self, struct ha_why *why)
{
    ha_pool_wait(ahead.pool);
    return HA_OK;
}

static const struct ha_variant ahead_variant = { .name = "ahead",
                                                 .create = ahead_create,
                                                 .prefill = no_prefill,
                                                 .attend = ahead_attend,
                                                 .drain = ahead_drain,
                                                 .destroy = no_destroy };

/* All steps of a pass, as they are checked, or as they are timed. */
static enum ha_status pass_ahead(bool checks)
{
    struct ha_device_api mine = *session.api;
    struct ha_pass pass;
    enum ha_status status = HA_OK;
    ahead.real = session.api;
    mine.product = counted_product;
    session.api = &mine;
    atomic_store(&ahead.enqueued, 0);
    atomic_store(&ahead.ended, 0);
    atomic_store(&ahead.late, 0);
    assert_ok(ha_pass_begin(&pass, &session, &ahead_variant, NULL, checks, &reason));
    if (!checks) status = ha_pass_run(&pass, false, &reason);
    for (size_t i = 0; checks && i < AHEAD_STEPS && status == HA_OK; i++) status = ha_pass_step(&pass, i, &reason);
    status = ha_pass_end(&pass, status, &reason);
    session.api = ahead.real;
    return status;
}

/* The products behind a layer's attention are not held up by what the variant has started, and so are neither those
 * ahead of the next one. Where it is called instead, they are: that is seen, however little patience there is. */
TEST(products_are_enqueued_while_the_cpu_works_ahead)
{
    static const char *const ids[] = { "resident:model=small,load=layer,layers=3,ctx=9,steps=2,threads=2,team=openmp",
                                       "resident:model=small,load=layer,layers=3,ctx=9,steps=2,threads=2,team=own" };
    for (size_t i = 0; i < 2 * COUNT(ids); i++) {
        const bool checks = i % 2;
        if (!open_loaded(ids[i / 2])) skip();
        ahead.begin = ha_pool_start;
        ahead.patience_ns = UINT64_C(60000000000);
        assert_ok(pass_ahead(checks));
        assert_int_equal(atomic_load(&ahead.enqueued), AHEAD_STEPS * AHEAD_LAYERS * HA_LOAD_PRODUCTS);
        assert_int_equal(atomic_load(&ahead.ended), AHEAD_STEPS * (AHEAD_LAYERS - 1) * AHEAD_TASKS);
        ahead.begin = ha_pool_run;
        ahead.patience_ns = 1000000;
        assert_int_equal(pass_ahead(checks), HA_ERROR);
        assert_contains(reason.text, "1 of 5 products were enqueued");
        close_session();
    }
}

/* ---- rows -------------------------------------------------------------------------------------------- */

TEST(rows_of_another_load_are_other_rows)
{
    static const char *const ids[] = { "resident:layers=4,model=small", "resident:layers=4,model=small,load=layer",
                                       "resident:layers=4", "resident:layers=4,team=own" };
    static const char *const load[] = { "attention", "layer", "attention", "attention" }, *const name[] = { "small",
                                                                                                            "small", "",
                                                                                                            "" };
    struct ha_known known = { 0 };
    struct ha_row row[4];
    struct ha_case c;
    for (size_t i = 0; i < 4; i++) {
        ha_fields_clear(&ha_suite_variants, &row[i]);
        assert_ok(ha_case_parse(ids[i], &c, &reason));
        ha_fill_case(&row[i], &c);
        assert_string_equal(row[i].load, load[i]);
        assert_string_equal(row[i].model, name[i]);
        for (size_t j = 0; j < i; j++) assert_true(isnan(ha_known_step(&known, &row[i], "resident", NULL)));
        ha_known_add(&known, &row[i], "resident", "full", 100.0 + (double)i);
    }
    for (size_t i = 0; i < 4; i++) assert_true(ha_known_step(&known, &row[i], "resident", NULL) == 100.0 + (double)i);
    ha_known_free(&known);
}
