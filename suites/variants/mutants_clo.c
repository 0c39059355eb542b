/* Planted in clo: in look-ups and their labels, in codes and choices, and in what the engine and the device tell each
 * other. The embedded device's memory is the host's, so that what an operation leaves can be changed behind it. */

#include "suites/variants/planted.h"

#include "harness/base/flag.h"
#include "harness/base/why.h"
#include "suites/variants/case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- look-ups ---------------------------------------------------------------------------------------------------- */

enum label { ON_MISS, ALWAYS, NEVER };
enum group { HARMONIC, LARGEST, MEAN };
struct flaw {
    enum label label;
    enum group group;
    size_t threshold; /* of the KV head so many further on */
    bool equal;       /* all query heads count alike */
};

struct look_up {
    struct ha_device_similarity args;
    struct ha_device_similarity_seq seq[HA_BATCH_MAX];
    struct flaw flaw;
};

static float cosine(const float *a, const float *b, size_t dim)
{
    float product = 0, of_a = 0, of_b = 0;
    for (size_t d = 0; d < dim; d++) {
        product += a[d] * b[d];
        of_a += a[d] * a[d];
        of_b += b[d] * b[d];
    }
    return product / sqrtf(of_a * of_b);
}

/* of one query token */
static float similarity(const struct look_up *l, const struct ha_device_similarity_seq *seq, size_t head)
{
    const size_t group = l->args.q_heads / l->args.kv_heads, dim = l->args.head_dim;
    float most = -2, sum = 0, weights = 0, weighted = 0, least = 2;
    for (size_t m = head * group; m < (head + 1) * group; m++) {
        const float of = cosine(seq->q + m * dim, seq->label + m * dim, dim),
                    weight = l->flaw.equal ? 1 : l->args.importance[m];
        most = fmaxf(most, of);
        least = isnan(of) ? of : fminf(least, of);
        sum += of;
        weights += weight;
        weighted += weight / of;
    }
    if (isnan(least)) return least;
    if (l->flaw.group == LARGEST) return most;
    if (l->flaw.group == MEAN) return sum / (float)group;
    return least > 0 ? weights / weighted : least;
}

static void look_up_now(void *arg)
{
    struct look_up *l = arg;
    const struct ha_device_similarity *a = &l->args;
    const size_t group = a->q_heads / a->kv_heads;
    for (size_t i = 0; i < a->batch * a->kv_heads; i++) {
        const struct ha_device_similarity_seq *seq = &l->seq[i / a->kv_heads];
        const size_t h = i % a->kv_heads;
        const float of = similarity(l, seq, h), threshold = a->threshold[(h + l->flaw.threshold) % a->kv_heads];
        const bool hit = a->threshold[h] < -1 || (of >= threshold && of > 0);
        seq->similarity[h] = of;
        seq->missed[h] = !hit;
        if (l->flaw.label == ALWAYS || (l->flaw.label == ON_MISS && !hit) || isnan(of))
            memcpy(seq->label + h * group * a->head_dim, seq->q + h * group * a->head_dim,
                   group * a->head_dim * sizeof(float));
    }
    free(l);
}

static enum ha_status look_up(struct ha_stream *stream, const struct ha_device_similarity *args, struct flaw flaw)
{
    struct look_up *l = malloc(sizeof *l);
    if (!l) abort();
    *l = (struct look_up){ .args = *args, .flaw = flaw };
    memcpy(l->seq, args->seqs, args->batch * sizeof *l->seq);
    return ha_planted_device()->host_fn(stream, look_up_now, l);
}

#define LOOK_UP(name, ...)                                                                        \
    static enum ha_status name(struct ha_stream *stream, const struct ha_device_similarity *args) \
    {                                                                                             \
        return look_up(stream, args, (struct flaw){ __VA_ARGS__ });                               \
    }
LOOK_UP(label_on_hit, .label = ALWAYS)
LOOK_UP(label_once, .label = NEVER)
LOOK_UP(group_by_largest, .group = LARGEST)
LOOK_UP(group_by_mean, .group = MEAN)
LOOK_UP(threshold_of_next, .threshold = 1)
LOOK_UP(importance_ignored, .equal = true)

/* ---- the label of the true query --------------------------------------------------------------------------------- */

enum { LAYERS = 4 }; /* of the case */
static struct {
    struct look_up of[LAYERS]; /* of the last look-up for each */
    size_t look_ups, attends;
} seen;
static void forget_seen(void) { memset(&seen, 0, sizeof seen); }

static enum ha_status look_up_and_see(struct ha_stream *stream, const struct ha_device_similarity *args)
{
    struct look_up *l = &seen.of[1 + seen.look_ups++ % (LAYERS - 1)];
    l->args = *args;
    memcpy(l->seq, args->seqs, args->batch * sizeof *l->seq);
    return ha_planted_device()->similarity(stream, args);
}

struct relabel {
    struct look_up *l;
    const float *q;
};
static void relabel(void *arg)
{
    struct relabel *r = arg;
    const struct ha_device_similarity *a = &r->l->args;
    const size_t each = a->q_heads / a->kv_heads * a->head_dim;
    for (size_t h = 0; h < a->kv_heads; h++)
        if (r->l->seq[0].missed[h]) memcpy(r->l->seq[0].label + h * each, r->q + h * each, each * sizeof(float));
    free(r);
}

/* of one sequence */
static enum ha_status attend_and_relabel(struct ha_stream *stream, const struct ha_device_attend *args)
{
    const size_t layer = seen.attends++ % LAYERS;
    HA_TRY(ha_planted_device()->attend(stream, args));
    if (layer == 0) return HA_OK;
    struct relabel *r = malloc(sizeof *r);
    if (!r) abort();
    *r = (struct relabel){ &seen.of[layer], args->seqs[0].q };
    return ha_planted_device()->host_fn(stream, relabel, r);
}

/* ---- of several query tokens ------------------------------------------------------------------------------------- */

static enum ha_status look_up_last_token(struct ha_stream *stream, const struct ha_device_similarity *args)
{
    struct ha_device_similarity one = *args;
    struct ha_device_similarity_seq seq[HA_BATCH_MAX];
    memcpy(seq, args->seqs, args->batch * sizeof *seq);
    for (size_t b = 0; b < args->batch; b++) seq[b].q += (args->q_len - 1) * args->q_heads * args->head_dim;
    one.q_len = 1;
    one.seqs = seq;
    return ha_planted_device()->similarity(stream, &one);
}

/* of one sequence */
static enum ha_status label_by_first_token(struct ha_stream *stream, const struct ha_device_similarity *args)
{
    HA_TRY(look_up_and_see(stream, args));
    struct relabel *r = malloc(sizeof *r);
    if (!r) abort();
    *r = (struct relabel){ &seen.of[1 + (seen.look_ups - 1) % (LAYERS - 1)], args->seqs[0].q };
    return ha_planted_device()->host_fn(stream, relabel, r);
}

/* ---- codes and choices ------------------------------------------------------------------------------------------- */

struct norms {
    struct ha_device_hash args;
    struct ha_device_hash_seq seq[HA_BATCH_MAX];
};
static void drop_norms(void *arg)
{
    struct norms *n = arg;
    const size_t words = n->args.bits / 32, block = (words + 1) * HA_CODE_KEYS;
    for (size_t i = 0; i < n->args.batch * n->args.kv_heads; i++) {
        const struct ha_device_hash_seq *seq = &n->seq[i / n->args.kv_heads];
        float *codes = (float *)(void *)((char *)seq->codes + i % n->args.kv_heads * seq->code_head_bytes);
        for (size_t row = seq->first; row < seq->first + seq->tokens; row++)
            codes[row / HA_CODE_KEYS * block + words * HA_CODE_KEYS + row % HA_CODE_KEYS] = 1;
    }
    free(n);
}

static enum ha_status hash_without_norm(struct ha_stream *stream, const struct ha_device_hash *args)
{
    struct norms *n = malloc(sizeof *n);
    if (!n) abort();
    n->args = *args;
    memcpy(n->seq, args->seqs, args->batch * sizeof *n->seq);
    HA_TRY(ha_planted_device()->hash(stream, args));
    return ha_planted_device()->host_fn(stream, drop_norms, n);
}

/* keys have another type than queries */
static enum ha_status no_new_codes(struct ha_stream *stream, const struct ha_device_hash *args)
{
    return args->dtype != HA_F32 && ha_planted_step() > 0 ? HA_OK : ha_planted_device()->hash(stream, args);
}

static enum ha_status hash_by_first_matrix(struct ha_stream *stream, const struct ha_device_hash *args)
{
    struct ha_device_hash one = *args;
    struct ha_device_hash_seq seq[HA_BATCH_MAX];
    for (size_t h = 0; h < args->kv_heads; h++) {
        memcpy(seq, args->seqs, args->batch * sizeof *seq);
        for (size_t b = 0; b < args->batch; b++) {
            seq[b].x = (const char *)seq[b].x + h * args->group * args->head_dim * ha_dtype_bytes(args->dtype);
            seq[b].codes = (char *)seq[b].codes + h * seq[b].code_head_bytes;
        }
        one.kv_heads = 1;
        one.seqs = seq;
        HA_TRY(ha_planted_device()->hash(stream, &one));
    }
    return HA_OK;
}

static enum ha_status choose_for_hits(struct ha_stream *stream, const struct ha_device_topk *args)
{
    struct ha_device_topk all = *args;
    struct ha_device_topk_seq *seqs = malloc(args->batch * sizeof *seqs);
    if (!seqs) abort();
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++) seqs[b].only = NULL;
    all.seqs = seqs;
    const enum ha_status status = ha_planted_device()->topk(stream, &all);
    free(seqs);
    return status;
}

static enum ha_status choose_otherwise(struct ha_stream *stream, const struct ha_device_topk *args, bool one_less)
{
    struct ha_device_topk other = *args;
    struct ha_device_topk_seq *seqs = malloc(args->batch * sizeof *seqs);
    if (!seqs) abort();
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++) {
        if (one_less) seqs[b].k -= seqs[b].k > 1;
        else if (ha_planted_step() > 0) seqs[b].keys = NULL;
    }
    other.seqs = seqs;
    const enum ha_status status = ha_planted_device()->topk(stream, &other);
    free(seqs);
    return status;
}
static enum ha_status choose_one_less(struct ha_stream *stream, const struct ha_device_topk *args)
{
    return choose_otherwise(stream, args, true);
}
static enum ha_status count_once(struct ha_stream *stream, const struct ha_device_topk *args)
{
    return choose_otherwise(stream, args, false);
}

/* the first of the tokens that are kept, as a run of its own besides */
static enum ha_status sink_twice(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_seq seqs[HA_BATCH_MAX];
    struct ha_device_attend a = *args;
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++) {
        struct ha_device_seq *d = &seqs[b];
        memmove(d->runs + 2, d->runs + 1, (d->runs_count++ - 1) * sizeof *d->runs);
        d->runs[1].keys = 1;
    }
    a.seqs = seqs;
    return ha_planted_device()->attend(stream, &a);
}

/* ---- what is kept, and for how long ------------------------------------------------------------------------------ */

enum { TOKEN_BYTES = 2 * 64 * 2 }; /* of the cases: K or V */

static enum ha_status keep_none(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                enum ha_direction dir)
{
    return dir == HA_D2D && ha_planted_step() > 0 ? HA_OK : ha_planted_device()->copy(stream, dst, src, bytes, dir);
}
static enum ha_status store_none(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                 enum ha_direction dir)
{
    return dir == HA_D2H && bytes == TOKEN_BYTES ? HA_OK : ha_planted_device()->copy(stream, dst, src, bytes, dir);
}
/* ---- what the engine and the device tell each other -------------------------------------------------------------- */

/* Half of what is wanted: K, and no V of it. */
static enum ha_status keys_alone(struct ha_stream *stream, const struct ha_device_pieces *pieces, enum ha_direction dir)
{
    struct ha_device_pieces half = *pieces;
    if (ha_planted_step() > 0) half.count /= 2;
    return ha_planted_device()->copy_pieces(stream, &half, dir);
}

/* Of the last two keys of a request each has the value of the other. */
static enum ha_status values_swapped(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                     enum ha_direction dir)
{
    struct ha_device_pieces other = *pieces;
    const size_t n = pieces->count;
    if (n < 4) return ha_planted_device()->copy_pieces(stream, pieces, dir);
    void **dst = malloc(n * sizeof *dst);
    if (!dst) abort();
    memcpy(dst, pieces->dst, n * sizeof *dst);
    dst[n - 1] = pieces->dst[n - 2];
    dst[n - 2] = pieces->dst[n - 1];
    other.dst = dst;
    const enum ha_status status = ha_planted_device()->copy_pieces(stream, &other, dir);
    free(dst);
    return status;
}

/* The flag is there before the stream has come to it; in the first step there would be no list at all. */
static enum ha_status flag_at_once(struct ha_stream *stream, uint32_t *flag, uint32_t value)
{
    if (ha_planted_step() == 0) return ha_planted_device()->flag_write(stream, flag, value);
    __atomic_store_n(flag, value, __ATOMIC_RELEASE);
    return HA_OK;
}
static enum ha_status flag_unwaited(struct ha_stream *stream, const uint32_t *flag, uint32_t at_least) { return HA_OK; }

/* What the engine copies comes behind the flag that says it has. */
static struct {
    struct ha_stream *stream;
    struct ha_device_pieces pieces;
} held;
static void forget_held(void) { held.stream = NULL; }
static void *copy_of(const void *from, size_t bytes)
{
    void *to = malloc(bytes);
    if (!to) abort();
    return memcpy(to, from, bytes);
}
static enum ha_status hold_pieces(struct ha_stream *stream, const struct ha_device_pieces *p, enum ha_direction dir)
{
    held.stream = stream;
    held.pieces = (struct ha_device_pieces){ copy_of(p->dst, p->count * sizeof *p->dst),
                                             copy_of(p->src, p->count * sizeof *p->src),
                                             copy_of(p->bytes, p->count * sizeof *p->bytes), p->count };
    return HA_OK;
}
static enum ha_status flag_before_pieces(struct ha_stream *stream, uint32_t *flag, uint32_t value)
{
    HA_TRY(ha_planted_device()->flag_write(stream, flag, value));
    if (held.stream != stream) return HA_OK;
    held.stream = NULL;
    const enum ha_status status = ha_planted_device()->copy_pieces(stream, &held.pieces, HA_H2D);
    free((void *)(uintptr_t)held.pieces.dst);
    free((void *)(uintptr_t)held.pieces.src);
    free((void *)(uintptr_t)held.pieces.bytes);
    return status;
}

/* What a request has brought is brought once more with the next one, which is another layer's: that one attends. In a
 * pass's first step nothing is, as the memory may be another instance's. */
static struct ha_device_pieces last;
static void forget_last(void)
{
    if (last.count) {
        free((void *)(uintptr_t)last.dst);
        free((void *)(uintptr_t)last.src);
        free((void *)(uintptr_t)last.bytes);
    }
    last.count = 0;
}
static enum ha_status bring_again(struct ha_stream *stream, const struct ha_device_pieces *p, enum ha_direction dir)
{
    HA_TRY(ha_planted_device()->copy_pieces(stream, p, dir));
    if (last.count && ha_planted_step() > 0) HA_TRY(ha_planted_device()->copy_pieces(stream, &last, dir));
    forget_last();
    last = (struct ha_device_pieces){ copy_of(p->dst, p->count * sizeof *p->dst),
                                      copy_of(p->src, p->count * sizeof *p->src),
                                      copy_of(p->bytes, p->count * sizeof *p->bytes), p->count };
    return HA_OK;
}

#define SHAPE  "clo:dataset=walk,ctx=300,heads=4/2,head_dim=64,layers=4,seed=5,dtype=bf16,recent=16,threshold=fixed"
#define CLO    SHAPE ",steps=12,budget=0.2,eta=0.94"
#define PIECES CLO ",transfer=pieces"
#define NO_RECENT                                                                                         \
    "clo:dataset=walk,ctx=100,heads=4/2,head_dim=64,layers=3,seed=5,dtype=bf16,recent=0,threshold=fixed," \
    "steps=12,budget=0.3,eta=1"
#define CLO_FIT                                      \
    "clo:dataset=walk,fit=clo_walk,ctx=500,heads=8/" \
    "2,head_dim=64,layers=4,seed=5,dtype=bf16,steps=8,eta=1,p=0.2,hard=0"
#define TOKENS    SHAPE ",steps=12,budget=0.2,eta=0.8,q_len=3"
#define FEW       "clo:dataset=walk,ctx=30,heads=4/2,head_dim=64,layers=3,seed=5,recent=16,steps=8,budget=1,eta=1"
#define CLO_TRACE "clo:dataset=trace/english,ctx=1900,layers=3,steps=6,eta=0.6,threshold=fixed"

/* the first event that is made where the CPU stores: that lists are down */
enum { CAME = 1 << 0 };

static const struct ha_mutant table[] = {
    { "label_on_hit", "a query that hits becomes the label, too", CLO, .shown = "question 2",
      .device_similarity = label_on_hit },
    { "label_not_on_miss", "a query that misses does not become the label", CLO, .shown = "question 2",
      .device_similarity = label_once },
    { "label_of_true_query", "the label of a miss is the layer's own query, and not the predicted one", CLO,
      .shown = "question 2", .device_similarity = look_up_and_see, .device_attend = attend_and_relabel,
      .forget = forget_seen },
    { "group_by_largest", "a KV head is as similar as the most similar of its query heads", CLO, .shown = "question 2",
      .device_similarity = group_by_largest },
    { "group_by_mean", "the similarity of a KV head is the arithmetic mean", CLO, .shown = "question 2",
      .device_similarity = group_by_mean },
    { "threshold_of_next", "a KV head is judged by the threshold of the next one", CLO_FIT, .shown = "question 2",
      .device_similarity = threshold_of_next },
    { "importance_ignored", "the query heads of a KV head count alike in its mean", CLO_FIT, .shown = "question 2",
      .device_similarity = importance_ignored },
    { "eta_one_less", "the threshold is too low", CLO, .shown = "question 2", .one_less = "eta" },
    { "label_unrotated", "labels are queries without their rotary position", CLO_TRACE, .shown = "question 2",
      .device_rotate = ha_planted_unrotated },
    { "look_up_layer_after_next", "a layer is looked up by the query of the one behind it", CLO, .shown = "question 2",
      .device_product = ha_planted_product_behind, .forget = ha_planted_forget_products },
    { "code_without_norm", "keys are scored by their codes alone", CLO, .shown = "question 2",
      .device_hash = hash_without_norm },
    { "code_of_first_matrix", "the codes of every KV head are made with the matrix of the first", CLO,
      .shown = "question 2", .device_hash = hash_by_first_matrix },
    { "new_keys_without_code", "tokens of steps have no codes", NO_RECENT, .shown = "question 2",
      .device_hash = no_new_codes },
    { "labelled_choice_once", "later steps read what the first one has chosen", CLO, .shown = "question 2",
      .device_topk = ha_planted_choose_once },
    { "hits_choose_too", "what a head that hits is said to have is a new choice", CLO, .device_topk = choose_for_hits },
    { "buffer_of_first_head", "every head reads by the list of the first", CLO, .shown = "question 1",
      .device_attend = ha_planted_first_list },
    { "sink_in_buffer", "a sink token is read once more", CLO, .shown = "question 1", .device_attend = sink_twice },
    { "sink_one_less", "a token that is a sink may be chosen", CLO, .shown = "question 2", .one_less = "sink" },
    { "window_one_less", "a token that is recent may be chosen", CLO, .shown = "question 2", .one_less = "recent" },
    { "keys_without_values", "the values of what misses do not arrive", PIECES, .shown = "question 1",
      .copy_pieces = keys_alone },
    { "missed_fetched_once", "what misses in later steps does not arrive", PIECES, .shown = "question 1",
      .copy_pieces = ha_planted_fetch_once },
    { "label_of_first_token", "the label of a miss is the query of the step's first token", TOKENS,
      .shown = "question 2", .device_similarity = label_by_first_token, .forget = forget_seen },
    { "look_up_last_token", "the query of the step's last token alone is looked up", TOKENS, .shown = "question 2",
      .device_similarity = look_up_last_token },
    { "looked_up_by_own_query", "labels are looked up by the layer's own query, not the predicted one", CLO,
      .shown = "question 2", .one_less = "prefetch" },
    { "group_of_other_rule", "the least of a group counts where it should be the mean", CLO, .shown = "question 2",
      .one_more = "group" },
    { "retrieve_of_other", "keys are chosen by digests where it should be codes", CLO, .shown = "question 2",
      .one_more = "retrieve" },
    { "persistent_reads_all", "a persistent head reads all keys where it should choose", CLO, .shown = "question 2",
      .one_more = "persistent" },
    { "buffer_one_less", "a key less than the budget has is chosen", CLO, .shown = "question 2",
      .device_topk = choose_one_less },
    { "keys_counted_once", "later steps read as many keys as the first one has chosen", FEW, .shown = "question 2",
      .device_topk = count_once },
    { "recent_not_kept", "tokens of later steps are not kept on the device", CLO, .shown = "question 1",
      .copy = keep_none },
    { "new_keys_not_stored", "tokens of steps do not come to host memory", NO_RECENT, .shown = "question 1",
      .copy = store_none },
    { "values_of_other_key", "two keys of a buffer have each other's values", PIECES, .shown = "question 1",
      .copy_pieces = values_swapped },
    { "label_hits_counted_more", "hits of the last layer are counted 1% too many", CLO, .shown = "hits",
      .wrong_count = "hits" },
    { "label_misses_counted_more", "misses of the last layer are counted 1% too many", CLO, .shown = "misses",
      .wrong_count = "misses" },
    { "left_out_not_counted", "keys that a stale buffer leaves out are not counted", CLO, .shown = "left_out",
      .no_count = "left_out" },
    { "asked_before_choice", "the engine is told of a choice that is not made yet, and writes to buffers that are read",
      CLO, .order = true, .flag_write = flag_at_once },
    { "keys_unwaited", "attention does not wait for the keys that missed", CLO, .shown = "order: ", .order = true,
      .flag_wait = flag_unwaited },
    { "flag_before_keys", "the flag that says that keys have come is set before they have", PIECES, .shown = "order: ",
      .order = true, .copy_pieces = hold_pieces, .flag_write = flag_before_pieces, .forget = forget_held },
    { "keys_over_attention", "the keys of a layer are written to their buffer again while it attends",
      SHAPE ",steps=6,budget=0.2,eta=1,transfer=pieces", .shown = "order: ", .order = true, .copy_pieces = bring_again,
      .forget = forget_last },
    HA_MOVES("engine_before_choice", "the engine begins before it is known what it is to move", CLO ",sync=cpu", "",
             .unsynced = CAME, .from_step = 1),
};
const struct ha_mutants ha_mutants_clo = { table, sizeof table / sizeof *table };
