#include "suites/merge/test_strangers.h"

#include "harness/base/numeric.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static double drawn(uint64_t *x)
{
    *x = *x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*x >> 11) * 0x1p-52 - 1;
}

static void fill(struct ha_merge_row *row)
{
    uint64_t x = row->seed * 1000003 + row->index + 1;
    for (int i = 0; i < 4; i++) drawn(&x);
    for (size_t m = 0; m < row->states; m++) {
        for (size_t d = 0; d < row->dim; d++) row->o[m * row->dim + d] = drawn(&x);
        const bool empty = row->states > 1 && (row->index + m) % 5 == 4;
        const double lse = 20 * drawn(&x);
        row->lse[m] = empty ? -HUGE_VAL : lse;
        row->sum[m] = 1 + 7 * fabs(drawn(&x));
    }
}

void rows_open(struct rows_made *made, struct ha_subject *subject, const struct ha_merge_shape *shape)
{
    struct ha_room room;
    struct ha_why why = { "" };
    *made = (struct rows_made){ .batch = NULL };
    if (subject && subject->room) {
        if (subject->room(subject, ha_batch_bytes(shape), &room, &why) != HA_OK) fail_msg("%s", why.text);
    } else {
        if (ha_room_map(ha_batch_bytes(shape), &made->own, &why) != HA_OK) fail_msg("%s", why.text);
        room = made->own;
    }
    made->batch = ha_batch_make(&room, shape);
    assert_non_null(made->batch);
    assert_int_equal(ha_merge_rows_make(&made->rows, shape, &why), HA_OK);
    ha_merge_rows_fill(&made->rows, made->batch, 1, fill, NULL);
}

void rows_close(struct rows_made *made)
{
    ha_merge_rows_free(&made->rows);
    ha_batch_free(made->batch);
    if (made->own.base) ha_room_unmap(&made->own);
}

void rows_answer(const struct rows_made *made)
{
    const struct ha_merge_shape *s = &made->batch->shape;
    const struct ha_merge_state *out = &made->batch->out;
    float *o = malloc(s->states * s->dim * sizeof *o);
    double *lse = malloc(s->states * sizeof *lse);
    assert_true(o && lse);
    for (size_t r = 0; r < s->tokens * s->heads; r++) {
        double max = -HUGE_VAL, total = 0, max_raw = -HUGE_VAL, sum_raw = 0;
        for (size_t m = 0; m < s->states; m++) {
            float raw, sum;
            ha_batch_get(made->batch, m, r, o + m * s->dim, &raw, &sum);
            lse[m] = s->plus_inf && raw == INFINITY ? -HUGE_VAL : ha_form_decode(s->form, raw, sum);
            max = fmax(max, lse[m]);
            if (lse[m] != -HUGE_VAL) max_raw = fmax(max_raw, (double)raw);
        }
        for (size_t m = 0; m < s->states; m++) sum_raw += lse[m] == -HUGE_VAL ? 0 : exp(lse[m] - max_raw);
        for (size_t m = 0; m < s->states; m++) total += lse[m] == -HUGE_VAL ? 0 : exp(lse[m] - max);
        char *to = (char *)out->o
                   + (r / s->heads * out->o_token_stride + r % s->heads * out->o_head_stride)
                         * ha_dtype_bytes(s->dtype);
        for (size_t d = 0; d < s->dim; d++) {
            double x = 0;
            for (size_t m = 0; m < s->states; m++)
                if (lse[m] != -HUGE_VAL) x += exp(lse[m] - max) / total * (double)o[m * s->dim + d];
            ha_store(to, d, s->dtype, (float)x);
        }
        const size_t at = r / s->heads * out->lse_token_stride + r % s->heads * out->lse_head_stride;
        const double merged = total > 0 ? max + log(total) : -HUGE_VAL;
        out->lse[at] = out->sum ? (float)max_raw : ha_form_encode(s->form, merged, 1);
        if (out->sum) out->sum[at] = (float)sum_raw;
    }
    free(o);
    free(lse);
}

struct ha_judgement rows_judge(struct rows_made *made, const struct ha_merge_traits *traits)
{
    struct ha_judgement j = { .status = HA_OK };
    for (size_t r = 0; r < made->rows.count; r++) ha_judge_row(&j, made->batch, &made->rows, r, HA_MUST_BOUND, traits);
    if (j.status != HA_OK)
        fail_msg("row %zu element %zu: got %g, want %g, bound %g", j.row, j.element, j.got, j.want, j.bound);
    return j;
}

void says(const struct ha_why *why, const char *words)
{
    if (!strstr(why->text, words) || strchr(why->text, '\n'))
        fail_msg("'%s' lacks '%s', or is not one line", why->text, words);
}
