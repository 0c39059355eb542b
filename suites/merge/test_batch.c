/* Rows come back as they were stored, in every shape; a write outside of the results is seen, and restored. */

#include "suites/merge/test_trial.h"

#include "kernels/states.h"

#include <math.h>

enum { PAGE = 4096 };
static const struct ha_merge_traits two_pass = { .exp_eps = 0x1p-22, .log_eps = 0x1p-22 };

static struct ha_merge_trial on;

static struct ha_merge_shape shape_of(size_t states, size_t dim)
{
    return (struct ha_merge_shape){ .states = states, .tokens = 3, .heads = 4, .dim = dim };
}

static void wrong(const struct ha_merge_shape *s, const char *what)
{
    fail_msg("%zu states of %zu, %s, %s, %s, %s, %s%s: %s", s->states, s->dim, ha_form_name(s->form),
             ha_dtype_name(s->dtype), ha_order_name(s->order), ha_alias_name(s->alias), ha_layout_name(s->layout),
             s->plus_inf ? ", +inf" : "", what);
}

/* ---- right everywhere ---------------------------------------------------------------------- */

static void check_right(const struct ha_merge_shape *s)
{
    float before[16], after[16], lse[2], sum[2];
    on = trial_open(NULL, s, some_empty);
    for (size_t i = 0; i < on.batch->calls_count && s->alias != HA_ALIAS_NONE; i++) {
        const struct ha_merge *call = &on.batch->calls[i];
        const struct ha_merge_state *same = &call->states[s->alias == HA_ALIAS_FIRST ? 0 : call->states_count - 1];
        if (memcmp(same, &call->out, sizeof *same)) wrong(s, "the output is not that state");
    }
    for (size_t again = 0; again < 2; again++) {
        trial_merge(&on);
        if (ha_batch_intact(on.batch, &why) != HA_OK) wrong(s, why.text);
        const struct ha_judgement j = ha_merge_trial_judge(&on, HA_MUST_BOUND, &two_pass);
        if (j.status != HA_OK || j.rows != on.rows.count) wrong(s, j.against);
        /* what was handed over is still known */
        struct ha_merge_trial fresh = trial_open(NULL, s, some_empty);
        for (size_t r = 0; r < on.rows.count; r++)
            for (size_t m = 0; m < s->states; m++) {
                ha_batch_get(on.batch, m, r, after, &lse[0], &sum[0]);
                ha_batch_get(fresh.batch, m, r, before, &lse[1], &sum[1]);
                if (memcmp(before, after, s->dim * sizeof *after) || memcmp(&lse[0], &lse[1], sizeof *lse)
                    || memcmp(&sum[0], &sum[1], sizeof *sum)) /* the sum of no keys may be NaN */
                    wrong(s, "a state as handed over is lost");
            }
        ha_merge_trial_close(&fresh);
        ha_batch_restore(on.batch, again > 0);
    }
    ha_merge_trial_close(&on);
}

TEST(right_results_pass_in_every_shape)
{
    static const size_t sizes[][2] = { { 1, 8 }, { 2, 1 }, { 3, 13 }, { 6, 8 } };
    for (size_t i = 0; i < 4; i++) {
        struct ha_merge_shape s = shape_of(sizes[i][0], sizes[i][1]);
        s.plus_inf = i % 2;
        each_shape(s, check_right);
    }
}

/* ---- nothing else is written ----------------------------------------------------------------- */

/* Bytes that are a result's, by the strides of the calls alone. */
static bool is_result(const unsigned char *at)
{
    const struct ha_merge_shape *s = &on.batch->shape;
    for (size_t i = 0; i < on.batch->calls_count; i++)
        for (size_t r = 0; r < s->tokens * s->heads; r++) {
            const struct ha_merge *call = &on.batch->calls[i];
            const size_t t = r / s->heads, h = r % s->heads, l = ha_merge_at(&call->out, t, h);
            const unsigned char *o = ha_merge_o(call, &call->out, t, h, 0), *lse = (const void *)(call->out.lse + l);
            const unsigned char *sum = call->out.sum ? (const void *)(call->out.sum + l) : lse;
            if ((at >= o && at < o + s->dim * ha_dtype_bytes(s->dtype)) || (at >= lse && at < lse + 4)
                || (at >= sum && at < sum + 4))
                return true;
        }
    return false;
}

/* One byte at a time, in and around each piece, to the end of its guard: a step that meets every kind of place. */
static void check_strays(const struct ha_merge_shape *s)
{
    size_t strays = 0, results = 0;
    on = trial_open(NULL, s, some_empty);
    trial_merge(&on);
    for (size_t i = 0; i < HA_PIECES; i++) {
        const struct ha_piece *p = &on.batch->piece[i];
        if (!p->bytes) continue;
        assert_int_equal((uintptr_t)p->at % 64, 0);
        assert_int_equal((uintptr_t)p->guard % PAGE, 0);
        assert_in_range(p->guard - p->at - (ptrdiff_t)p->bytes, 0, 63);
        unsigned char *const around[] = { p->at - 1,    p->at,    p->at + p->bytes - 1, p->at + p->bytes,
                                          p->guard - 1, p->guard, p->guard + PAGE - 1 };
        for (size_t k = 0; k < p->bytes / 7 + 7; k++) {
            unsigned char *at = k < 7 ? around[k] : p->at + 7 * (k - 7);
            if (at < on.batch->begin) continue;
            const bool may = is_result(at);
            *at ^= 0x10;
            if ((ha_batch_intact(on.batch, &why) == HA_OK) != may)
                wrong(s, may ? "a result is taken for astray" : "a stray byte is not seen");
            *at ^= 0x10;
            strays += !may;
            results += may;
        }
    }
    assert_true(strays > 20 && results > 20);
    assert_int_equal(ha_batch_intact(on.batch, &why), HA_OK);
    ha_merge_trial_close(&on);
}

static void check_strays_of_some(const struct ha_merge_shape *s)
{
    if (s->form == HA_FORM_MAX_SUM || (s->form == HA_FORM_NATURAL && s->dtype == HA_F16)) check_strays(s);
}

TEST(a_stray_byte_is_seen) { each_shape(shape_of(3, 12), check_strays_of_some); }

/* ---- memory is put back ------------------------------------------------------------------------ */

static void check_restored(const struct ha_merge_shape *s)
{
    on = trial_open(NULL, s, some_empty);
    const size_t bytes = (size_t)(on.batch->end - on.batch->begin);
    unsigned char *sealed = malloc(bytes);
    assert_non_null(sealed);
    memcpy(sealed, on.batch->begin, bytes);
    for (int all = 0; all < 2; all++) {
        trial_merge(&on);
        assert_memory_not_equal(sealed, on.batch->begin, bytes);
        for (size_t i = 0; i < HA_PIECES && all; i++)
            if (on.batch->piece[i].bytes) memset(on.batch->piece[i].at, 0x33, on.batch->piece[i].bytes);
        ha_batch_restore(on.batch, all);
        if (memcmp(sealed, on.batch->begin, bytes)) wrong(s, "not all is put back");
    }
    /* an output that is no input holds NaN before the merge */
    for (size_t r = 0; r < on.rows.count && s->alias == HA_ALIAS_NONE; r++) {
        float o[16], lse, sum;
        ha_batch_get(on.batch, HA_RESULT, r, o, &lse, &sum);
        for (size_t i = 0; i < s->dim; i++) assert_true(isnan(o[i]));
        assert_true(isnan(lse) && (s->form != HA_FORM_MAX_SUM || isnan(sum)));
    }
    free(sealed);
    ha_merge_trial_close(&on);
}

TEST(memory_is_put_back) { each_shape(shape_of(4, 8), check_restored); }

/* ---- layouts, orders, forms --------------------------------------------------------------------- */

/* In a window, and with padding, what is not merged holds the fill. */
TEST(what_is_not_merged_is_masked)
{
    const struct ha_merge_shape s = { .states = 2, .tokens = 2, .heads = 3, .dim = 8, .layout = HA_LAYOUT_WINDOW };
    on = trial_open(NULL, &s, some_empty);
    assert_int_equal(on.batch->piece[HA_OUT_O].bytes, (size_t)(2 + 2) * 3 * 8 * 4);
    assert_ptr_equal(on.batch->out.o, on.batch->piece[HA_OUT_O].at + 3 * 8 * 4);
    for (size_t i = 0; i < (size_t)3 * 8 * 4; i++) {
        assert_int_equal(on.batch->piece[HA_OUT_O].at[i], HA_ROOM_FILL);
        assert_int_equal(on.batch->piece[HA_OUT_O].at[on.batch->piece[HA_OUT_O].bytes - 1 - i], HA_ROOM_FILL);
    }
    ha_merge_trial_close(&on);
}

TEST(layouts_differ_as_they_say)
{
    struct ha_merge_shape s = { .states = 3, .tokens = 2, .heads = 4, .dim = 8, .layout = HA_LAYOUT_PADDED };
    on = trial_open(NULL, &s, some_empty);
    const struct ha_merge_state *in = on.batch->in;
    assert_true(in[0].o_head_stride >= 12 && in[0].o_token_stride >= 4 * in[0].o_head_stride);
    assert_true(in[0].o_token_stride != in[1].o_token_stride && in[0].o_head_stride != in[1].o_head_stride);
    assert_true(in[0].lse_head_stride != in[1].lse_head_stride);
    ha_merge_trial_close(&on);
    s.heads = 3; /* of an odd number of heads LSEs lie side by side, and tokens apart */
    on = trial_open(NULL, &s, some_empty);
    assert_true(on.batch->in[0].lse_head_stride == 1 && on.batch->in[0].lse_token_stride > 3);
    ha_merge_trial_close(&on);
    s.layout = HA_LAYOUT_HEADS_FIRST;
    on = trial_open(NULL, &s, some_empty);
    assert_true(on.batch->in[0].lse_token_stride == 1 && on.batch->in[0].lse_head_stride == 2);
    ha_merge_trial_close(&on);
}

TEST(every_state_is_merged_once)
{
    for (unsigned order = HA_ORDER_CHAIN; order < HA_ORDER_COUNT; order++)
        for (size_t states = 2; states <= 512; states = states * 3 / 2 + 1) {
            size_t used[1024] = { 0 }, depth[1024] = { 0 };
            for (size_t i = 0; i + 1 < states; i++) {
                const struct ha_pair pair = ha_order_pair((enum ha_order)order, states, i);
                assert_true(pair.a != pair.b && pair.a < states + i && pair.b < states + i);
                used[pair.a]++;
                used[pair.b]++;
                depth[states + i] = 1 + (depth[pair.a] > depth[pair.b] ? depth[pair.a] : depth[pair.b]);
            }
            for (size_t i = 0; i + 2 < 2 * states; i++) assert_int_equal(used[i], 1);
            assert_int_equal(depth[2 * states - 2],
                             order == HA_ORDER_CHAIN ? states - 1 : (size_t)ceil(log2((double)states)));
        }
}

TEST(forms_hold_what_they_can)
{
    for (unsigned form = 0; form < HA_FORM_COUNT; form++) {
        const enum ha_form f = (enum ha_form)form;
        for (double lse = -1e4; lse < 1e4; lse += 1234.5) {
            const double back = ha_form_decode(f, ha_form_encode(f, lse, 5), 5);
            assert_true(fabs(back - lse) <= 0x1p-23 * fabs(lse));
        }
        assert_true(ha_form_encode(f, -HUGE_VAL, 1) == -INFINITY && ha_form_decode(f, -INFINITY, 0) == -HUGE_VAL);
        assert_true(isfinite(ha_form_encode(f, 3.4e38, 1)) && isfinite(ha_form_encode(f, -3.4e38, 1)));
        assert_true(isnan(ha_form_encode(f, (double)NAN, 1)) && isnan(ha_form_decode(f, (float)NAN, 1)));
    }
    assert_true(ha_form_decode(HA_FORM_BASE2, 1, 0) == 0.693147180559945309417);
}
