#include "suites/variants/planted.h"

#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum ha_status columns_of_first_head(struct ha_stream *stream, const struct ha_device_columns *args)
{
    struct ha_device_columns c = *args;
    c.kv_heads = 1;
    return ha_planted_device()->columns(stream, &c);
}

/* of the prefill and of the first step, which comes next, alone */
static enum ha_status no_new_columns(struct ha_stream *stream, const struct ha_device_columns *args)
{
    return args->x_type != HA_F32 && ha_planted_step() > 0 ? HA_OK : ha_planted_device()->columns(stream, args);
}

/* Of each list, so far the longest that it may be, those not below the largest element of the next one less within. */
struct cut {
    struct ha_device_topk args;
    struct ha_device_topk_seq seqs[HA_BATCH_MAX];
};

static void cut_by_next(void *arg)
{
    struct cut *cut = arg;
    for (size_t i = 0; i < cut->args.batch * cut->args.lists; i++) {
        const struct ha_device_topk_seq *seq = &cut->seqs[i / cut->args.lists];
        const size_t list = i % cut->args.lists;
        const float *x = seq->x + list * seq->stride, *next = seq->x + (list + 1) % cut->args.lists * seq->stride;
        uint32_t *index = seq->index + list * seq->index_stride, kept = 0;
        float most = next[0];
        for (size_t j = 1; j < seq->n; j++) most = fmaxf(most, next[j]);
        for (size_t j = 0; j < seq->keys[list]; j++)
            if (x[index[j]] >= most - seq->within) index[kept++] = index[j];
        seq->keys[list] = kept;
    }
    free(cut);
}

/* where lists have a row each, and the host reads the device's memory */
static enum ha_status threshold_of_next(struct ha_stream *stream, const struct ha_device_topk *args)
{
    struct ha_device_topk all = *args;
    struct ha_device_topk_seq seqs[HA_BATCH_MAX];
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++) seqs[b].within = HUGE_VALF;
    all.seqs = seqs;
    HA_TRY(ha_planted_device()->topk(stream, &all));
    struct cut *cut = malloc(sizeof *cut);
    if (!cut) abort();
    cut->args = *args;
    memcpy(cut->seqs, args->seqs, args->batch * sizeof *seqs);
    return ha_planted_device()->host_fn(stream, cut_by_next, cut);
}

/* What the layers of the first step are given, in their order; later ones that of the layer behind theirs. */
enum { RING_MAX = 16 };
static struct ring {
    const void *of[RING_MAX];
    size_t count;
} ring_w, ring_a, ring_k;

static void forget_rings(void) { ring_w.count = ring_a.count = ring_k.count = 0; }
void ha_planted_forget_products(void) { ring_w.count = 0; }

/* from: the first layer that is told another */
static const void *of_layer_behind(struct ring *r, const void *own, size_t from)
{
    size_t i = 0;
    while (i < r->count && r->of[i] != own) i++;
    if (i == r->count && r->count < RING_MAX) r->of[r->count++] = own;
    return ha_planted_step() == 0 || i < from || i + 1 >= r->count ? own : r->of[i + 1];
}

enum ha_status ha_planted_product_behind(struct ha_stream *stream, const struct ha_device_product *args)
{
    struct ha_device_product p = *args;
    p.w = of_layer_behind(&ring_w, args->w, 0);
    return ha_planted_device()->product(stream, &p);
}

static enum ha_status columns_behind(struct ha_stream *stream, const struct ha_device_columns *args)
{
    struct ha_device_columns c = *args;
    if (args->x_type == HA_F32) c.a = of_layer_behind(&ring_a, args->a, 1);
    return ha_planted_device()->columns(stream, &c);
}

static enum ha_status score_behind(struct ha_stream *stream, const struct ha_device_score *args)
{
    struct ha_device_rows_seq one = args->seqs[0];
    struct ha_device_score s = *args;
    one.rows.k = of_layer_behind(&ring_k, one.rows.k, 1);
    s.seqs = &one;
    return ha_planted_device()->score(stream, &s);
}

#define INFINIGEN       "infinigen:dataset=walk,ctx=300,heads=4/2,head_dim=64,layers=4,steps=3,seed=5,dtype=bf16"
#define INFINIGEN_TRACE "infinigen:dataset=trace/english,ctx=1900,layers=3,steps=2"
/* behind the two events of a prediction and the four of its fetches */
enum { CHOSEN = 1 << 6 };

static const struct ha_mutant table[] = {
    { "prefetch_unrotated", "keys are sent for by a query without its rotary position", INFINIGEN_TRACE,
      .shown = "question 2", .device_rotate = ha_planted_unrotated },
    { "prefetch_unnormed", "keys are sent for by an input without the norm of the next layer", INFINIGEN,
      .shown = "question 2", .device_product = ha_planted_unnormed },
    { "columns_of_other_head", "queries and keys of every head are turned as those of the first", INFINIGEN,
      .shown = "question 2", .device_columns = columns_of_first_head },
    { "new_keys_without_columns", "tokens of steps have no partial keys", INFINIGEN, .shown = "question 2",
      .device_columns = no_new_columns },
    { "threshold_of_other_list", "a list of keys ends where the threshold of another one cuts that", INFINIGEN,
      .shown = "question 2", .device_topk = threshold_of_next },
    { "alpha_one_less", "the threshold is too close to the largest score", INFINIGEN, .shown = "question 2",
      .one_less = "alpha" },
    { "prefetch_layer_after_next", "the keys that are sent for are those of the layer after the next", INFINIGEN,
      .shown = "question 2", .device_product = ha_planted_product_behind, .device_columns = columns_behind,
      .device_score = score_behind, .forget = forget_rings },
    /* of a first step that does not wait, lists would be of any length */
    HA_MOVES("fetch_before_choice", "from the second step on keys are sent for before it is known which", INFINIGEN, "",
             .unsynced = CHOSEN, .from_step = 1),
};
const struct ha_mutants ha_mutants_infinigen = { table, sizeof table / sizeof *table };
