#include "suites/variants/planted.h"

#include "harness/api/features.h"
#include "harness/base/why.h"

#include <math.h>
#include <string.h>

/* ---- what the net is asked, and what it says --------------------------------------------------------------------- */

/* Each row gets the answer of the row behind it, the last one that of the first. */
static enum ha_status net_of_next(struct ha_stream *stream, const struct ha_net *args)
{
    struct ha_net rest = *args, last = *args;
    rest.rows--;
    rest.x += args->width[0];
    last.rows = 1;
    last.y += rest.rows * args->width[args->layers];
    HA_TRY(ha_planted_device()->net(stream, &rest));
    return ha_planted_device()->net(stream, &last);
}

/* A net in plain loops, of which a step is left out: where the host reads the device's memory. A graph may keep it. */
static struct {
    struct ha_net net;
    bool bias, relu;
} plain;

static void answer_row(const float *x, float *y)
{
    const struct ha_net *n = &plain.net;
    float a[HA_NET_WIDTH_MAX], next[HA_NET_WIDTH_MAX];
    const float *w = n->w;
    memcpy(a, x, n->width[0] * sizeof *a);
    for (size_t i = 0; i < n->layers; i++) {
        const size_t in = n->width[i], out = n->width[i + 1];
        for (size_t o = 0; o < out; o++) {
            next[o] = plain.bias ? w[in * out + o] : 0;
            for (size_t j = 0; j < in; j++) next[o] += a[j] * w[j * out + o];
            if (plain.relu && i + 1 < n->layers) next[o] = fmaxf(next[o], 0);
        }
        memcpy(a, next, out * sizeof *a);
        w += (in + 1) * out;
    }
    memcpy(y, a, n->width[n->layers] * sizeof *y);
}

static void answer(void *arg)
{
    const struct ha_net *n = &plain.net;
    for (size_t i = 0; i < n->rows; i++) answer_row(n->x + i * n->width[0], n->y + i * n->width[n->layers]);
}

static enum ha_status net_without_bias(struct ha_stream *stream, const struct ha_net *args)
{
    plain.net = *args;
    plain.bias = false;
    plain.relu = true;
    return ha_planted_device()->host_fn(stream, answer, NULL);
}

static enum ha_status net_without_relu(struct ha_stream *stream, const struct ha_net *args)
{
    plain.net = *args;
    plain.bias = true;
    plain.relu = false;
    return ha_planted_device()->host_fn(stream, answer, NULL);
}

static enum ha_status features_once(struct ha_stream *stream, const struct ha_device_features *args)
{
    return ha_planted_step() > 0 ? HA_OK : ha_planted_device()->features(stream, args);
}

static enum ha_status features_of(struct ha_stream *stream, const struct ha_device_features *args,
                                  void (*change)(struct ha_device_features_seq *seq,
                                                 const struct ha_device_features *args, size_t b))
{
    struct ha_device_features f = *args;
    struct ha_device_features_seq seqs[HA_BATCH_MAX];
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++) change(&seqs[b], args, b);
    f.seqs = seqs;
    return ha_planted_device()->features(stream, &f);
}

static void known_of_next(struct ha_device_features_seq *seq, const struct ha_device_features *args, size_t b)
{
    seq->known = args->seqs[(b + 1) % args->batch].known;
}
static enum ha_status features_of_next(struct ha_stream *stream, const struct ha_device_features *args)
{
    return features_of(stream, args, known_of_next);
}

static void swap_states(struct ha_device_features_seq *seq, const struct ha_device_features *args, size_t b)
{
    const struct ha_device_features_seq *was = &args->seqs[b];
    for (int i = 0; i < 2; i++) seq->o[i] = was->o[1 - i], seq->lse[i] = was->lse[1 - i];
}
static enum ha_status sink_for_local(struct ha_stream *stream, const struct ha_device_features *args)
{
    return features_of(stream, args, swap_states);
}

/* of each of 8 heads of 64 dimensions that of the head before it */
static enum ha_status other_anchor(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                   enum ha_direction dir)
{
    enum { HEAD_BYTES = 64 * sizeof(float), ANCHOR_BYTES = 8 * HEAD_BYTES, REST_BYTES = ANCHOR_BYTES - HEAD_BYTES };
    const struct ha_device_api *api = ha_planted_device();
    if (dir != HA_H2D || bytes != ANCHOR_BYTES) return api->copy(stream, dst, src, bytes, dir);
    HA_TRY(api->copy(stream, (char *)dst + HEAD_BYTES, src, REST_BYTES, dir));
    return api->copy(stream, dst, (const char *)src + REST_BYTES, HEAD_BYTES, dir);
}

/* The means of the features, then what they are multiplied with: zeros and ones. */
static bool has_means;

static void forget_means(void) { has_means = false; }

static enum ha_status unstandardised(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                     enum ha_direction dir)
{
    static float with[2][HA_FEATURES];
    const bool is = dir == HA_H2D && bytes == sizeof *with;
    for (size_t i = 0; i < HA_FEATURES; i++) with[1][i] = 1;
    if (is) src = with[has_means];
    has_means ^= is;
    return ha_planted_device()->copy(stream, dst, src, bytes, dir);
}

/* ---- what is chosen ---------------------------------------------------------------------------------------------- */

/* of blocks of the smallest size */
static void digest_smallest(const struct ha_digest *args)
{
    struct ha_digest d = *args;
    d.unit = 16;
    ha_planted_cpu()->digest(&d);
}

/* Of two KV heads, which one thread summarises one after the other, both have those of the first. */
static const void *first_rows[4]; /* by block size */

static void forget_rows(void) { memset(first_rows, 0, sizeof first_rows); }

static void digest_first_head(const struct ha_digest *args)
{
    struct ha_digest d = *args;
    const void **first = &first_rows[d.unit / 32 > 2 ? 3 : d.unit / 32];
    if (*first) d.rows.k = *first;
    *first = *first ? NULL : d.rows.k;
    ha_planted_cpu()->digest(&d);
}

/* of several query tokens the first stands for all */
static void score_first_token(const struct ha_digest_score *args)
{
    struct ha_digest_score s = *args;
    s.q_stride = 0;
    ha_planted_cpu()->digest_score(&s);
}

/* ---- what is attended over, and merged --------------------------------------------------------------------------- */

static void lose_lse(const struct ha_attend *a)
{
    for (size_t t = 0; t < a->q_len; t++)
        for (size_t h = 0; h < a->group; h++) a->lse[t * a->lse_token_stride + h * a->lse_head_stride] = -INFINITY;
}

enum { SINK, LOCAL, HOST, DEVICE, STATES }; /* as they are merged */

static enum ha_status merge_without(struct ha_stream *stream, const struct ha_merge *args, size_t state)
{
    struct ha_merge_state states[STATES];
    struct ha_merge m = *args;
    if (args->states_count != STATES) return HA_ERROR;
    memcpy(states, args->states, sizeof states);
    states[state] = states[STATES - 1];
    m.states = states;
    m.states_count--;
    return ha_planted_device()->merge(stream, &m);
}
static enum ha_status merge_without_sink(struct ha_stream *stream, const struct ha_merge *args)
{
    return merge_without(stream, args, SINK);
}
static enum ha_status merge_without_device(struct ha_stream *stream, const struct ha_merge *args)
{
    return merge_without(stream, args, DEVICE);
}

static enum ha_status merge_tasks_twice(struct ha_stream *stream, const struct ha_merge *args)
{
    struct ha_merge_state states[STATES + 1];
    struct ha_merge m = *args;
    if (args->states_count != STATES) return HA_ERROR;
    memcpy(states, args->states, STATES * sizeof *states);
    states[STATES] = states[HOST];
    m.states = states;
    m.states_count++;
    return ha_planted_device()->merge(stream, &m);
}

/* Of the task of the first KV head, which the device gets where tasks are dealt to a worker and to it. */
static enum ha_status other_blocks(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_seq seqs[HA_BATCH_MAX];
    struct ha_device_attend a = *args;
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch && args->lists; b++) {
        seqs[b].runs[0].k = (const char *)seqs[b].runs[0].k + seqs[b].k_head_bytes;
        seqs[b].runs[0].v = (const char *)seqs[b].runs[0].v + seqs[b].v_head_bytes;
    }
    a.seqs = seqs;
    return ha_planted_device()->attend(stream, &a);
}

#define SHAPE "heads=4/2,head_dim=64,seed=5,threads=1,"
/* of 640 tokens in host memory each head reads a fifth; one of two tasks is the device's */
#define FIXED_OF "fluxion:" SHAPE "layers=1,steps=3,sink=16,recent=32,schedule=uniform,predict=fixed,budget=0.2"
/* what the least budgets are, and who needs none */
#define ORACLE "fluxion:dataset=walk,ctx=700," SHAPE "layers=2,steps=2,sink=16,recent=32,schedule=none,predict=oracle"
#define FIXED  FIXED_OF ",ctx=700"
#define NET    "fluxion:dataset=walk,ctx=700+600,heads=8/2,layers=4,steps=2,seed=5,schedule=none,fit=walk"
#define ASKED(name, breaks, ...)                              \
    {                                                         \
        name, breaks, NET, .shown = "by the net", __VA_ARGS__ \
    }
/* of 6 tasks the device does 3, two at a time */
#define MOVES                                                                                                      \
    "fluxion:ctx=700,heads=12/6,head_dim=64,layers=1,steps=3,seed=5,threads=1,sink=16,recent=32,schedule=uniform," \
    "fetch=move,predict=fixed,budget=0.2"
/* events as they are made: of the two lanes, each before that of its fetch, and of the queries */
enum { DONE = 1 << 0 | 1 << 2, CAME = 1 << 4 };

static const struct ha_mutant table[] = {
    ASKED("answer_of_next_head", "each query head has the budget of the next one", .device_net = net_of_next),
    ASKED("net_without_bias", "the net leaves its biases out", .device_net = net_without_bias),
    ASKED("net_without_relu", "the net leaves relu out", .device_net = net_without_relu),
    ASKED("features_of_step_before", "the net is asked by the features of an earlier step",
          .device_features = features_once),
    ASKED("known_of_other_sequence", "what is known of another sequence's context is taken",
          .device_features = features_of_next),
    ASKED("anchor_of_other_head", "another head's last query of the context is taken", .copy = other_anchor),
    ASKED("sink_for_local", "features of the sink and of the local tokens change places",
          .device_features = sink_for_local),
    ASKED("unstandardised", "features are not standardised", .copy = unstandardised, .forget = forget_means),
    { "streaming_scheduled", "heads that stream read blocks all the same", ORACLE, .shown = "question 2",
      .one_less = "skip_streaming" },
    { "budget_of_other_criterion", "a budget is measured by the layer's largest output and not by the head's own",
      ORACLE ",criterion=output", .shown = "step's query needs", .one_less = "criterion" },
    { "other_block_size", "blocks are half as large as they are to be", FIXED ",granularity=64", .shown = "note block",
      .one_less = "granularity" },
    { "union_for_own", "heads read what others of the KV head have chosen", FIXED, .shown = "question 2",
      .one_more = "union" },
    { "own_for_union", "heads read their own choice alone", FIXED ",union=1", .shown = "question 2",
      .one_less = "union" },
    { "host_takes_sink", "the last token of the sink is the host's", FIXED, .shown = "question 2", .one_less = "sink" },
    { "host_takes_recent", "a token that is recent is the host's", FIXED_OF ",ctx=687", .shown = "question 2",
      .one_less = "recent" },
    { "digest_of_other_kind", "blocks are chosen by ranges where they should be by means", FIXED ",digest=mean",
      .shown = "question 2", .one_less = "digest" },
    { "digest_of_other_size", "all digests are of blocks of 16 tokens", FIXED ",granularity=32", .shown = "question 2",
      .digest = digest_smallest },
    { "digest_of_first_head", "all KV heads have the digests of the first", FIXED, .shown = "question 2",
      .digest = digest_first_head, .forget = forget_rows },
    { "first_token_chooses", "the first of several query tokens chooses for all", FIXED ",q_len=3",
      .shown = "question 2", .digest_score = score_first_token },
    { "task_one_off", "the blocks before those of largest score are read", FIXED, .shown = "question 2",
      .topk = ha_planted_topk_one_off },
    { "task_of_step_before", "a task reads the blocks that an earlier step has chosen", FIXED, .shown = "question 2",
      .topk = ha_planted_topk_once },
    { "lse_of_task_lost", "the LSE of what the CPU has made is lost", FIXED, .shown = "question 1",
      .answer = lose_lse },
    { "device_tasks_lost", "what the device has made of its tasks is left out of the merge", FIXED,
      .shown = "question 1", .merge = merge_without_device },
    { "sink_state_lost", "the sink is left out of the merge", FIXED, .shown = "question 1",
      .merge = merge_without_sink },
    { "task_twice", "what the CPU has made of its tasks is merged twice", FIXED, .shown = "question 1",
      .merge = merge_tasks_twice },
    { "device_token_twice", "the device counts the last sink and the last local token twice", FIXED,
      .shown = "question 1", .device_attend = ha_planted_counts_twice },
    { "task_of_first_head", "on the device all heads of a task read the blocks of the first", FIXED,
      .shown = "question 1", .device_attend = ha_planted_first_list },
    { "task_of_other_head", "on the device a task reads the blocks of another KV head", FIXED, .shown = "question 1",
      .device_attend = other_blocks },
    { "task_fetched_once", "the blocks of later tasks do not arrive", FIXED ",fetch=pieces", .shown = "question 1",
      .copy_pieces = ha_planted_fetch_once },
    HA_MOVES("tasks_before_query", "the CPU chooses blocks by queries that have not come down", MOVES, "",
             .unsynced = CAME),
    HA_MOVES("merge_before_task", "what the device makes of its tasks is merged before it is made", MOVES, "",
             .unwaited = DONE),
    HA_MOVES("task_over_task",
             "a task is told where its blocks are while the one before it still reads that of its own", MOVES, "",
             .unsynced = DONE),
};
const struct ha_mutants ha_mutants_fluxion = { table, sizeof table / sizeof *table };
