/* The same twice: a batch is merged again, and must give the same bits. */

#include "suites/merge/work.h"

#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

/* Of a row: o, LSE, sum. */
static size_t each(const struct ha_batch *b) { return b->shape.dim + 2; }
static void get(const struct ha_batch *b, size_t r, float *out)
{
    ha_batch_get(b, HA_RESULT, r, out, out + b->shape.dim, out + b->shape.dim + 1);
}

static enum ha_status run_again(struct ha_subject *subject, struct ha_batch *b, float *was, struct ha_merge_again *out,
                                struct ha_why *why)
{
    const size_t rows = b->shape.tokens * b->shape.heads, n = each(b), dim = b->shape.dim;
    float *const is = was + rows * n;
    for (size_t r = 0; r < rows; r++) get(b, r, was + r * n);
    ha_batch_restore(b, true);
    const enum ha_status st = subject->run(subject, b, why);
    if (st != HA_OK)
        return st == HA_FAIL ? ha_why_prefix(why, HA_FAIL, "the same states are refused the second time") : st;
    HA_TRY(ha_batch_intact(b, why));
    for (size_t r = 0; r < rows && out->row == SIZE_MAX; r++) {
        size_t i = 0;
        get(b, r, is);
        while (i < n && !memcmp(was + r * n + i, is + i, sizeof *is)) i++;
        if (i == n) continue;
        char element[32];
        snprintf(element, sizeof element, "%s", i == dim ? "LSE" : "sum");
        if (i < dim) snprintf(element, sizeof element, "o[%zu]", i);
        out->row = r;
        ha_why(&out->where, HA_FAIL,
               "the same states gave other bits the second time: row %zu, %s was %.9g (%a), is %.9g (%a); a merge that "
               "does not promise the same says varies",
               r, element, (double)was[r * n + i], (double)was[r * n + i], (double)is[i], (double)is[i]);
    }
    return HA_OK;
}

enum ha_status ha_merge_run_again(struct ha_subject *subject, struct ha_batch *batch, struct ha_merge_again *again,
                                  struct ha_why *why)
{
    const size_t rows = batch->shape.tokens * batch->shape.heads;
    float *was = calloc((rows + 1) * each(batch), sizeof *was);
    *again = (struct ha_merge_again){ .row = SIZE_MAX };
    if (!was) return ha_why(why, HA_ERROR, "no memory for the results of a batch");
    const enum ha_status st = run_again(subject, batch, was, again, why);
    free(was);
    return st;
}
