/* Planted in tova and duo: in what a choice goes by, in what moves when tokens are dropped, and in the lists of heads.
 * The embedded device's memory is the host's, so that weights can be changed behind the attention that made them. */

#include "suites/variants/planted.h"

#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

/* ---- tova: the weights that a choice goes by --------------------------------------------------------------------- */

struct weighed {
    float *weights; /* [q_heads][stride] of a sequence */
    size_t q_heads, stride, keys, q_len;
};

static enum ha_status then(struct ha_stream *stream, const struct ha_device_attend *args, void (*change)(void *weighed))
{
    HA_TRY(ha_planted_device()->attend(stream, args));
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_seq *seq = &args->seqs[b];
        struct weighed *w = malloc(sizeof *w);
        if (!w) abort();
        *w = (struct weighed){ seq->weights, args->q_heads, seq->weights_stride, seq->runs[0].keys, args->q_len };
        HA_TRY(ha_planted_device()->host_fn(stream, change, w));
    }
    return HA_OK;
}

static void forget_other_heads(void *weighed)
{
    const struct weighed *w = weighed;
    for (size_t i = w->stride; i < w->q_heads * w->stride; i++) w->weights[i] = 0;
    free(weighed);
}
static void largest_of_heads(void *weighed)
{
    const struct weighed *w = weighed;
    for (size_t i = w->stride; i < w->q_heads * w->stride; i++) {
        float *first = &w->weights[i % w->stride];
        if (i % w->stride < w->keys && w->weights[i] > *first) *first = w->weights[i];
        w->weights[i] = 0;
    }
    free(weighed);
}
static void negate(void *weighed)
{
    const struct weighed *w = weighed;
    for (size_t i = 0; i < w->q_heads * w->stride; i++) w->weights[i] = -w->weights[i];
    free(weighed);
}
static void keep_newest(void *weighed)
{
    const struct weighed *w = weighed;
    for (size_t i = w->keys - w->q_len; i < w->keys; i++) w->weights[i] = 1e6f;
    free(weighed);
}

#define THEN(name, change)                                                                    \
    static enum ha_status name(struct ha_stream *stream, const struct ha_device_attend *args) \
    {                                                                                         \
        return then(stream, args, change);                                                    \
    }
THEN(weights_of_first_head, forget_other_heads)
THEN(weights_of_largest_head, largest_of_heads)
THEN(heaviest_dropped, negate)
THEN(newest_kept, keep_newest)

/* Later steps leave the weights as they are. */
static enum ha_status weigh_once(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_seq seqs[HA_BATCH_MAX];
    struct ha_device_attend a = *args;
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch && ha_planted_step() > 0; b++) seqs[b].weights = NULL;
    a.seqs = seqs;
    return ha_planted_device()->attend(stream, &a);
}

/* Of a single token, which is what moves into a hole; a step has two. */
enum { TOKEN_BYTES = 2 * 64 * 2 };
static enum ha_status holes_stay(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                 enum ha_direction dir)
{
    return dir == HA_D2D && bytes == TOKEN_BYTES ? HA_OK : ha_planted_device()->copy(stream, dst, src, bytes, dir);
}

/* ---- duo --------------------------------------------------------------------------------------------------------- */

/* How many rows heads have: those of the first step. */
static enum ha_status count_once(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_seq seqs[HA_BATCH_MAX];
    struct ha_device_attend a = *args;
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++) seqs[b].list_keys -= ha_planted_step() * args->kv_heads;
    a.seqs = seqs;
    return ha_planted_device()->attend(stream, &a);
}

#define TOVA "tova:ctx=300,heads=4/2,head_dim=64,layers=2,steps=4,seed=5,q_len=2,budget=0.3"
#define ROOM "tova:ctx=300,heads=4/2,head_dim=64,layers=2,steps=4,seed=5,budget=1.2"
/* new tokens are among the lightest */
#define NEW "tova:dataset=iid,ctx=300,heads=4/2,head_dim=64,layers=2,steps=4,seed=5,q_len=2,budget=0.9"
#define DUO "duo:ctx=300,heads=4/2,head_dim=64,layers=2,steps=4,seed=5,sink=5,recent=20"

static const struct ha_mutant table[] = {
    { "room_of_less", "fewer tokens are kept than the budget says", ROOM, .shown = "question 2", .one_less = "budget" },
    { "dropped_by_first_head", "the first query head alone says which tokens are dropped", TOVA, .shown = "question 2",
      .device_attend = weights_of_first_head },
    { "dropped_by_largest", "the largest weight of all heads counts in place of their mean", TOVA,
      .shown = "question 2", .device_attend = weights_of_largest_head },
    { "heaviest_dropped", "the tokens of largest weight are dropped", TOVA, .shown = "question 2",
      .device_attend = heaviest_dropped },
    { "newest_kept", "a step's own tokens are never dropped", NEW, .shown = "question 2",
      .device_attend = newest_kept },
    { "weighed_once", "later steps drop tokens by the weights of the first", TOVA, .shown = "question 2",
      .device_attend = weigh_once },
    { "holes_not_filled", "a token that moves to the place of a dropped one leaves its key and value behind", TOVA,
      .shown = "question 1", .copy = holes_stay },
    { "all_heads_stream", "no head is a retrieval head", DUO, .shown = "question 2", .one_less = "retrieval" },
    { "stream_recent_one_less", "a streaming head keeps a recent token less", DUO, .shown = "question 2",
      .one_less = "recent" },
    { "stream_sink_one_more", "a streaming head keeps a token more from the front", DUO, .shown = "question 2",
      .one_more = "sink" },
    { "rows_of_first_head", "every head reads the rows of the first one", DUO, .shown = "question 1",
      .device_attend = ha_planted_first_list },
    { "rows_counted_once", "later steps read as many rows as the first one", DUO, .shown = "question 1",
      .device_attend = count_once },
    { "streaming_counted_more", "the streaming heads of the last layer are counted 1% too many", DUO,
      .shown = "streaming_heads", .wrong_count = "streaming_heads" },
};
const struct ha_mutants ha_mutants_recency = { table, sizeof table / sizeof *table };
