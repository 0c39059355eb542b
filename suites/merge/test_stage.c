/* Streams, graphs, flags: the embedded device passes; devices that lose the order, or hide poison, fail. */

#include "suites/merge/test_stage.h"

#include "harness/base/clock.h"

#include <math.h>

/* ---- streams ----------------------------------------------------------------------------- */

TEST(streams_pass)
{
    struct ha_subject s = on(&ha_device_host, NULL);
    expect_all(&s, HA_STAGE_STREAM, HA_OK, "");
    s.traits.lse_order = HA_LSE_HEADS_TOKENS;
    s.layouts = 1u << HA_LAYOUT_HEADS_FIRST;
    expect_plain(&s, HA_STAGE_STREAM, HA_OK, "");
    close_device(&s, &ha_device_host);
}

/* four sets of rows: one stream, two streams, two launches */
TEST(streams_judge_every_part)
{
    struct ha_judgement j;
    struct ha_why why;
    struct ha_subject s = on(&ha_device_host, NULL);
    const uint64_t begin = ha_now_ns();
    assert_int_equal(run(&s, HA_STAGE_STREAM, HA_FORM_NATURAL, HA_F32, &j, &why), HA_OK);
    /* two of the producers are late */
    assert_true(ha_now_ns() - begin > 2 * UINT64_C(20000000));
    assert_int_equal(j.rows, 4 * 12);
    assert_string_equal(why.text, "");
    close_device(&s, &ha_device_host);
}

/* in the streams of the embedded device */
TEST(a_function_passes)
{
    struct ha_subject s = direct(&ha_kernels_c.traits, ha_kernels_c.merge);
    expect_all(&s, HA_STAGE_STREAM, HA_OK, "");
    expect_all(&s, HA_STAGE_FLAG, HA_OK, "");
    s.merge = NULL; /* as of a command */
    expect_plain(&s, HA_STAGE_STREAM, HA_WAIVED, "needs streams");
    expect_plain(&s, HA_STAGE_FLAG, HA_WAIVED, "needs streams");
    ha_subject_close(&s);
}

TEST(streams_are_waived)
{
    struct ha_device_api api = ha_device_host;
    struct ha_subject s = on(&api, NULL);
    api.graph_begin = NULL;
    expect_plain(&s, HA_STAGE_STREAM, HA_OK, "does not offer graph_begin");
    api.host_fn = NULL;
    expect_plain(&s, HA_STAGE_STREAM, HA_WAIVED, "does not offer host_fn");
    expect_plain(&s, HA_STAGE_FLAG, HA_OK, "does not offer graph_begin");
    api.graph_begin = ha_device_host.graph_begin;
    api.flag_write = NULL;
    expect_plain(&s, HA_STAGE_FLAG, HA_OK, "does not offer flag_write");
    api.flag_wait = NULL;
    expect_plain(&s, HA_STAGE_FLAG, HA_WAIVED, "does not offer flag_wait");
    s.traits.forms = 1u << HA_FORM_BASE2;
    expect_plain(&s, HA_STAGE_STREAM, HA_WAIVED, "form");
    close_device(&s, &api);
}

/* The stream's order is lost: the merge runs while it is enqueued. */
static enum ha_status merge_at_once(struct ha_stream *stream, const struct ha_merge *args)
{
    ha_kernels_c.merge(args);
    return HA_OK;
}

/* so are the waits between streams */
static enum ha_status no_wait(struct ha_stream *stream, struct ha_event *event) { return HA_OK; }

/* A graph that keeps the first inputs: what is launched is a copy of the result of the first launch. */
static size_t launched;
static void *kept_to;
static const void *kept_from;
static size_t kept_bytes;
static unsigned char *kept;

static enum ha_status copy_and_note(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                    enum ha_direction dir)
{
    if (dir == HA_D2H) {
        kept_to = dst;
        kept_from = src;
        kept_bytes = bytes;
    }
    return ha_device_host.copy(stream, dst, src, bytes, dir);
}

static enum ha_status launch_stale(struct ha_graph *graph, struct ha_stream *stream)
{
    if (launched++) {
        memcpy(kept_to, kept, kept_bytes);
        return HA_OK;
    }
    enum ha_status st = ha_device_host.graph_launch(graph, stream);
    if (st == HA_OK) st = ha_device_host.stream_sync(stream);
    kept = malloc(kept_bytes);
    assert_non_null(kept);
    memcpy(kept, kept_from, kept_bytes);
    return st;
}

/* a graph that does not run what it kept */
static enum ha_status launch_nothing(struct ha_graph *graph, struct ha_stream *stream) { return HA_OK; }

/* What is captured runs at once, over what lies there then, and a launch does nothing more. */
static enum ha_status begin_nothing(struct ha_stream *stream) { return HA_OK; }
static enum ha_status end_nothing(struct ha_stream *stream, struct ha_graph **graph, struct ha_why *why)
{
    *graph = NULL;
    return ha_device_host.stream_sync(stream);
}

TEST(streams_find_lost_order)
{
    if (HA_TSAN) skip(); /* which finds the data races before the stage does */
    struct ha_device_api api = ha_device_host;
    struct ha_subject s = on(&api, NULL);
    api.merge = merge_at_once;
    expect_all(&s, HA_STAGE_STREAM, HA_FAIL, "late producer on the same stream: row 0");
    api = ha_device_host;
    api.stream_wait = no_wait;
    expect(&s, HA_STAGE_STREAM, HA_FORM_NATURAL, HA_F16, HA_FAIL, "late producer on another stream: row 0");
    api = ha_device_host;
    api.copy = copy_and_note;
    api.graph_launch = launch_stale;
    expect_plain(&s, HA_STAGE_STREAM, HA_FAIL, "graph, second launch, other inputs in the same memory: row");
    free(kept);
    api = ha_device_host;
    api.graph_launch = launch_nothing;
    expect_plain(&s, HA_STAGE_STREAM, HA_FAIL, "graph, first launch");
    api.graph_begin = begin_nothing;
    api.graph_end = end_nothing;
    expect(&s, HA_STAGE_STREAM, HA_FORM_BASE2, HA_F32, HA_FAIL, "graph, first launch");
    api = ha_device_host;
    close_device(&s, &api);
}

static enum ha_status refuse(struct ha_stream *stream, const struct ha_merge *args) { return HA_ERROR; }

TEST(a_refusal_is_an_error)
{
    struct ha_device_api api = ha_device_host;
    struct ha_subject s = on(&api, NULL);
    api.merge = refuse;
    expect_plain(&s, HA_STAGE_STREAM, HA_ERROR, "merge: the device gives no reason");
    expect_plain(&s, HA_STAGE_FLAG, HA_ERROR, "merge: the device gives no reason");
    close_device(&s, &api);
}

/* ---- splits ------------------------------------------------------------------------------ */

static const enum ha_form split_forms[] = { HA_FORM_NATURAL, HA_FORM_DIRECT, HA_FORM_MAX_SUM };

static void expect_splits(struct ha_subject *s, enum ha_status want, const char *says)
{
    for (size_t i = 0; i < sizeof split_forms / sizeof *split_forms; i++)
        expect(s, HA_STAGE_SPLIT, split_forms[i], HA_F32, want, says);
}

/* three types of K and V in two rounds on streams and two launches */
TEST(splits_pass)
{
    struct ha_judgement j;
    struct ha_why why;
    struct ha_device_api api = ha_device_host;
    struct ha_subject s = on(&api, NULL);
    expect_splits(&s, HA_OK, "");
    assert_int_equal(run(&s, HA_STAGE_SPLIT, HA_FORM_NATURAL, HA_F32, &j, &why), HA_OK);
    assert_int_equal(j.rows, 3 * 4 * 8);
    assert_true(j.ratio > 0x1p-10);
    api.graph_launch = NULL;
    assert_int_equal(run(&s, HA_STAGE_SPLIT, HA_FORM_NATURAL, HA_F32, &j, &why), HA_OK);
    assert_int_equal(j.rows, 3 * 2 * 8);
    assert_non_null(strstr(why.text, "does not offer graph_begin"));
    api.host_fn = NULL;
    expect_plain(&s, HA_STAGE_SPLIT, HA_WAIVED, "does not offer host_fn");
    api = ha_device_host;
    api.attend = NULL;
    expect_plain(&s, HA_STAGE_SPLIT, HA_WAIVED, "attend is not offered");
    api = ha_device_host;
    close_device(&s, &api);

    s = direct(&ha_kernels_c.traits, ha_kernels_c.merge);
    expect_splits(&s, HA_OK, "");
    s.traits.states_max = 2;
    expect_splits(&s, HA_OK, "");
    s.traits.lse_order = HA_LSE_HEADS_TOKENS;
    s.layouts = 1u << HA_LAYOUT_HEADS_FIRST;
    expect_plain(&s, HA_STAGE_SPLIT, HA_WAIVED, "attention writes [tokens][heads]");
    ha_subject_close(&s);
}

/* on a stream of its own, which waits for nothing */
static struct ha_stream *elsewhere;
static enum ha_status merge_elsewhere(struct ha_stream *stream, const struct ha_merge *args)
{
    return ha_device_host.merge(elsewhere, args);
}

/* the waits for one of the two streams are lost */
static size_t waits, lost;
static enum ha_status wait_for_one(struct ha_stream *stream, struct ha_event *event)
{
    return waits++ % 2 == lost ? HA_OK : ha_device_host.stream_wait(stream, event);
}

/* a split is left out */
static enum ha_status merge_without_last(struct ha_stream *stream, const struct ha_merge *args)
{
    struct ha_merge m = *args;
    m.states_count--;
    return ha_device_host.merge(stream, &m);
}
/* a split too many */
static enum ha_status merge_second_again(struct ha_stream *stream, const struct ha_merge *args)
{
    struct ha_merge_state states[9];
    struct ha_merge m = *args;
    assert_true(m.states_count > 1 && m.states_count < 9);
    memcpy(states, args->states, args->states_count * sizeof *states);
    states[m.states_count++] = states[1];
    m.states = states;
    return ha_device_host.merge(stream, &m);
}
/* the last in place of the first */
static enum ha_status merge_last_for_first(struct ha_stream *stream, const struct ha_merge *args)
{
    struct ha_merge_state states[8];
    struct ha_merge m = *args;
    assert_true(m.states_count <= 8);
    memcpy(states, args->states, args->states_count * sizeof *states);
    states[0] = states[m.states_count - 1];
    m.states = states;
    return ha_device_host.merge(stream, &m);
}

TEST(splits_find_what_is_lost)
{
    enum ha_status (*const wrong[])(
        struct ha_stream *, const struct ha_merge *) = { merge_without_last, merge_second_again, merge_last_for_first };
    struct ha_device_api api = ha_device_host;
    struct ha_subject s = on(&api, NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        api.merge = wrong[i];
        expect_splits(&s, HA_FAIL, "runs merged");
    }
    api = ha_device_host;
    close_device(&s, &api);
}

TEST(splits_find_lost_order)
{
    struct ha_why why;
    if (HA_TSAN) skip(); /* which finds the data races before the stage does */
    struct ha_device_api api = ha_device_host;
    struct ha_subject s = on(&api, NULL);
    assert_int_equal(api.stream_create(device, "elsewhere", &elsewhere, &why), HA_OK);
    api.merge = merge_elsewhere;
    expect_splits(&s, HA_FAIL, "runs merged");
    api.stream_destroy(elsewhere);
    api.merge = ha_device_host.merge;
    api.stream_wait = wait_for_one;
    for (lost = 0; lost < 2; lost++) {
        waits = 0;
        expect_plain(&s, HA_STAGE_SPLIT, HA_FAIL, "runs merged");
    }
    api = ha_device_host;
    api.graph_launch = launch_nothing;
    expect_plain(&s, HA_STAGE_SPLIT, HA_FAIL, "from a graph");
    api = ha_device_host;
    close_device(&s, &api);
}

/* ---- flags ------------------------------------------------------------------------------- */

TEST(flags_pass)
{
    struct ha_subject s = on(&ha_device_host, NULL);
    expect_all(&s, HA_STAGE_FLAG, HA_OK, "");
    close_device(&s, &ha_device_host);
}

static enum ha_status no_flag_wait(struct ha_stream *stream, const uint32_t *flag, uint32_t at_least) { return HA_OK; }

/* A state whose LSE is NaN is taken for empty. */
static void merge_nan_as_empty(const struct ha_merge *m)
{
    enum { STATES = 8, ROWS = 16 };
    const size_t rows = m->tokens * m->heads;
    struct ha_merge_state x[STATES];
    float lse[STATES][ROWS];
    struct ha_merge changed = *m;
    assert_true(m->states_count <= STATES && rows <= ROWS);
    for (size_t i = 0; i < m->states_count; i++) {
        x[i] = m->states[i];
        assert_true(x[i].lse_head_stride == 1 && x[i].lse_token_stride == m->heads);
        for (size_t r = 0; r < rows; r++) lse[i][r] = isnan(x[i].lse[r]) ? -INFINITY : x[i].lse[r];
        x[i].lse = lse[i];
    }
    changed.states = x;
    ha_kernels_c.merge(&changed);
}

static struct ha_kernels lenient;

/* NaN in o becomes 0, on the way in */
static void merge_o_only(const struct ha_merge *m)
{
    ha_kernels_c.merge(m);
    if (m->dtype != HA_F32) return;
    for (size_t t = 0; t < m->tokens; t++)
        for (size_t h = 0; h < m->heads; h++) {
            float *o = (float *)m->out.o + t * m->out.o_token_stride + h * m->out.o_head_stride;
            for (size_t d = 0; d < m->dim; d++)
                if (isnan(o[d])) o[d] = 0;
        }
}

/* a device with a merge of this test */
static struct ha_subject on_merge(void (*merge)(const struct ha_merge *))
{
    lenient = ha_kernels_c;
    lenient.merge = merge;
    return on(&ha_device_host, &lenient);
}

TEST(stray_writes_are_found)
{
    struct ha_subject s = on_merge(merge_over_input);
    overwritten = 0;
    expect_plain(&s, HA_STAGE_STREAM, HA_FAIL, "late producer on the same stream: wrote where no result goes");
    expect_plain(&s, HA_STAGE_FLAG, HA_FAIL, "data before flag: wrote where no result goes");
    overwritten = 1; /* in mapped memory */
    expect_plain(&s, HA_STAGE_FLAG, HA_FAIL, "data before flag: wrote over the CPU's state");
    close_device(&s, &ha_device_host);
}

TEST(flags_find_who_hides_poison)
{
    struct ha_judgement j;
    struct ha_why why;
    void (*const hiders[])(const struct ha_merge *) = { merge_nan_as_empty, merge_o_only };
    for (size_t i = 0; i < 2; i++) {
        struct ha_subject s = on_merge(hiders[i]);
        expect_plain(&s, HA_STAGE_FLAG, HA_FAIL,
                     "flag before data: the poisoned buffer was not seen: row 0, element 0");
        assert_int_equal(run(&s, HA_STAGE_FLAG, HA_FORM_MAX_SUM, HA_F32, &j, &why), HA_FAIL);
        assert_true(j.status == HA_FAIL && isnan(j.want) && !isnan(j.got) && j.rows == 12);
        /* it is right in all else */
        expect_plain(&s, HA_STAGE_STREAM, HA_OK, "");
        close_device(&s, &ha_device_host);
        s = direct(&ha_kernels_c.traits, hiders[i]);
        expect_plain(&s, HA_STAGE_FLAG, HA_FAIL,
                     "flag before data: the poisoned buffer was not seen: row 0, element 0");
        ha_subject_close(&s);
    }
}

/* the flag of the first launch stays up, and the second one does not wait for its own */
static enum ha_status no_reset(struct ha_stream *stream, uint32_t *flag, uint32_t value)
{
    return value ? ha_device_host.flag_write(stream, flag, value) : HA_OK;
}

TEST(flags_find_who_does_not_wait)
{
    if (HA_TSAN) skip(); /* which finds the data races before the stage does */
    struct ha_device_api api = ha_device_host;
    struct ha_subject s = on(&api, NULL);
    api.flag_wait = no_flag_wait;
    expect_plain(&s, HA_STAGE_FLAG, HA_FAIL, "data before flag: row 0");
    api = ha_device_host;
    api.flag_write = no_reset;
    expect_all(&s, HA_STAGE_FLAG, HA_FAIL, "graph behind a flag that it resets, second launch: row 0");
    api = ha_device_host;
    close_device(&s, &api);
}
