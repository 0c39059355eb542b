/* The definition of CLO against a plain simulation: it accepts that one, with every option, and sees its mistakes. */

#include "reference/test_clo_world.h"

#include "reference/definitions.h"
#include "reference/test_says.h"

#include "harness/base/fit.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"

#include <math.h>

extern const struct ha_definition ha_definition_clo;

static struct ha_test_clo *const w = &ha_test_clo;
static struct ha_why why;
static table right, other;

static const struct {
    const char *name, *text; /* what the reason says, one of those between bars */
} MISTAKE[MISTAKES] = {
    [SINK_MISSING] = { "a key of the sink missing", "is missing: it is of the sink|is missing: it is new" },
    [RECENT_MISSING] = { "a recent key missing", "is missing: it is recent|is missing: it is of the sink" },
    [NEW_MISSING] = { "a new key missing", "is missing: it is new" },
    [SINK_TWICE] = { "a key of the sink in the buffer, too", "key 0 is used twice|keys, of 3 tokens" },
    [RECENT_TWICE] = { "a recent key in the buffer, too", "is used twice|keys, of 3 tokens" },
    [ON_HOST] = { "keys on the host", "is on the host" },
    [TWO_PARTS] = { "two parts", "is in a second part" },
    [OWN_QUERY] = { "another query", "is not weighed by the step's query" },
    [PADDED] = { "padding", "nothing is padded" },
    [GAP_USED] = { "a key of a block that is not whole", "its block is not whole" },
    [NO_PERSISTENT_NOTE] = { "no note persistent", "note persistent is" },
    [NO_HIT_NOTE] = { "no note hit", "note hit is" },
    [NO_SIMILARITY_NOTE] = { "no note similarity", "note similarity is missing" },
    [HIT_NOTE] = { "the other note hit", "note hit is" },
    [SIMILARITY_NOTE] = { "a similarity a little off", "note similarity is" },
    [HIT_IS_2] = { "a hit that is 2", "note hit is 2, neither 0 nor 1" },
    [PERSISTENT_IS_2] = { "persistent that is 2", "note persistent is 2, neither 0 nor 1" },
    [HIT_OF_HEAD] = { "a note hit for one head", "they have one buffer" },
    [SIMILARITY_OF_HEAD] = { "a similarity for one head", "they have one buffer" },
    [FIRST_IS_A_HIT] = { "a hit without a label", "note hit is 1, and there is no label" },
    [LABEL_ON_HIT] = { "a label updated on a hit", "note similarity is" },
    [LABEL_KEPT] = { "a label not updated on a miss", "note similarity is" },
    [LABEL_OF_FIRST_TOKEN] = { "the first token's label", "note similarity is" },
    [LABEL_OF_OWN_QUERY] = { "a label of the true query", "note similarity is" },
    [OWN_LOOK_UP] = { "a look-up by the true query", "note similarity is" },
    [LAYER_AFTER_NEXT] = { "the query of the layer after next", "note similarity is|was chosen, candidate" },
    [POSITION] = { "a query of the next position", "note similarity is|was chosen, candidate" },
    [OTHER_HEADS_QUERY] = { "another head's query", "note similarity is|was chosen, candidate" },
    [BY_MAX] = { "the largest of the group", "note similarity is" },
    [ARITHMETIC] = { "the arithmetic mean", "note similarity is" },
    [NO_WEIGHTS] = { "a mean without importance", "note similarity is" },
    [LAST_TOKEN] = { "the last token's similarity", "note similarity is" },
    [OTHER_TAU] = { "another threshold", "the threshold" },
    [NO_POWER] = { "importance itself for its power", "the threshold" },
    [BELOW_IS_A_HIT] = { "a hit below the threshold", "is below the threshold|is not positive" },
    [K_MORE] = { "a key more", "is one too many" },
    [K_LESS] = { "a key less", "is missing" },
    [SWAPPED] = { "the next best key", "was chosen, candidate|is one too many" },
    [OTHER_BUFFER] = { "another head's buffer", "was chosen, candidate|buffer of step" },
    [EACH_HEAD] = { "a choice of each head", "was chosen, candidate|they have one choice|buffer of step" },
    [CHOICE_BY_OWN] = { "a choice by the true query", "was chosen, candidate" },
    [CHOICE_BY_LAST] = { "a choice by the last token", "was chosen, candidate" },
    [NO_NORM] = { "a score without the norm", "was chosen, candidate" },
    [A_BIT_FEWER] = { "codes of a bit fewer", "was chosen, candidate" },
    [OTHER_MATRIX] = { "another head's matrix", "was chosen, candidate" },
    [OTHER_DIGEST] = { "the other digest", "was chosen, candidate" },
    [REUSED_ON_MISS] = { "a buffer reused on a miss", "was chosen, candidate|is missing|is one too many" },
    [CHOSEN_ON_HIT] = { "a buffer chosen again on a hit", "the buffer of step" },
    [LEFT_ADDED] = { "a key that has left added to the buffer", "has left the window since the buffer of step" },
    [KEY_LOST] = { "a key of the buffer lost", "is missing: it is in the buffer of step" },
    [STALE_PERSISTENT] = { "a persistent head's choice reused", "was chosen, candidate|is missing" },
    [PREDICTED_PERSISTENT] = { "a persistent head's choice by q'", "was chosen, candidate" },
    [PART_OF_PERSISTENT] = { "a key less of a persistent head", "is missing" },
    [NOT_PERSISTENT] = { "a head not persistent", "note persistent is 0: difficulty" },
    [FIRST_LAYER_OFFLOADED] = { "the first layer offloaded", "note persistent is 0: all heads of the first layer" },
    [OTHER_PERSISTENT] = { "the other heads persistent", "note persistent is" },
    [ALL_PERSISTENT] = { "what can be prefetched persistent", "note persistent is 1: difficulty" },
    [NO_BUDGET] = { "more than the budget", "note persistent is 1: the budget has room for" },
    [PERSISTENT_LATER] = { "persistent from some step on", "and was" },
};

/* ---- what is reported -------------------------------------------------------------------------------------------- */

struct reporter {
    struct told (*of)[Q_HEADS]; /* [batch] */
    uint32_t token[2 * CAP];
};

static void report(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    static const float some[ROWS * DIM];
    struct reporter *r = arg;
    const struct told *t = &r->of[seq][q_head];
    const struct ha_note note[] = { { "persistent", t->persistent },
                                    { "hit", t->hit },
                                    { "similarity", t->similarity } };
    size_t count = 0;
    for (size_t j = CAP; j-- > 0;)
        for (size_t i = 0; i < t->part[j]; i++) r->token[count++] = (uint32_t)j;
    out->parts = 1;
    out->part[0] = (struct ha_part){ .token = r->token, .count = count, .on_device = true };
    if (t->of == ON_HOST) out->part[0].on_device = false;
    if (t->of == OWN_QUERY) out->part[0].q = some;
    if (t->of == PADDED) out->part[0].padding = 1;
    if (t->of == TWO_PARTS && count > 1) {
        out->part[1] = (struct ha_part){ .token = r->token + count - 1, .count = 1, .on_device = true };
        out->part[0].count--;
        out->parts = 2;
    }
    for (size_t i = 0; i < COUNT(note); i++)
        if (!isnan(note[i].value)) out->note[out->notes++] = note[i];
}

/* What differs shows. */
static bool differs(enum mistake m)
{
    for (size_t i = 0; i < sizeof right / sizeof(struct told); i++) {
        struct told a = ((struct told *)right)[i], b = ((struct told *)other)[i];
        if (b.of != NO_MISTAKE && (m == ON_HOST || m == TWO_PARTS || m == OWN_QUERY || m == PADDED)) return true;
        a.of = b.of = NO_MISTAKE;
        a.left_out = b.left_out = 0;
        if (memcmp(&a, &b, sizeof a) != 0) return true;
    }
    return false;
}

/* ---- what the definition says of it ------------------------------------------------------------------------------ */

static const struct ha_fit *fit;

struct counts {
    double hits, misses, left_out, persistent;
    size_t said;
};

static void say(void *arg, const char *name, size_t layer, double least, double most)
{
    struct counts *c = (struct counts *)arg + layer;
    const struct {
        const char *name;
        double is;
    } of[] = {
        { "hits", c->hits }, { "misses", c->misses }, { "left_out", c->left_out }, { "persistent", c->persistent }
    };
    for (size_t i = 0; i < COUNT(of); i++) {
        if (strcmp(of[i].name, name) != 0) continue;
        c->said++;
        if (!(least == of[i].is && most == of[i].is))
            fail_msg("%s of layer %zu: %g to %g, not %g", name, layer, least, most, of[i].is);
    }
}

/* what was met in all that is right */
static struct counts met[3]; /* by the way to retrieve */

static void judge_counts(const struct ha_def *def, table t)
{
    struct counts c[LAYERS] = { { .said = 0 } };
    for (size_t i = 0; i < STEPS * LAYERS * BATCH * KV_HEADS; i++) {
        const size_t kv = i % KV_HEADS, b = i / KV_HEADS % BATCH, l = i / KV_HEADS / BATCH % LAYERS,
                     step = i / KV_HEADS / BATCH / LAYERS;
        const struct told *x = &t[step][l][b][kv * GROUP];
        struct counts *of = &met[(size_t)w->param[RETRIEVE]];
        if (x->persistent > 0) {
            if (step == 0 && b == 0) c[l].persistent++;
            if (l > 0) of->persistent++;
            continue;
        }
        *(x->hit > 0 ? &c[l].hits : &c[l].misses) += 1;
        *(x->hit > 0 ? &of->hits : &of->misses) += step > 0;
        c[l].left_out += x->left_out;
        of->left_out += x->left_out;
    }
    ha_definition_clo.count(def, say, c);
    for (size_t l = 0; l < LAYERS; l++) assert_int_equal(c[l].said, 4);
}

static enum ha_status judge(table t)
{
    static float q[BATCH * ROWS * Q_HEADS * DIM], x[BATCH * ROWS * MODEL];
    const struct ha_definition *d = &ha_definition_clo;
    const size_t rows = w->q_len;
    struct ha_def *def = NULL;
    struct reporter r;
    why = (struct ha_why){ "" };
    enum ha_status status = d->create(&def, &w->shape, w->param, fit, &why);
    for (size_t i = 0; i < STEPS * LAYERS && status == HA_OK; i++) {
        const size_t step = i / LAYERS, layer = i % LAYERS, done = (step + 1) * rows;
        const void *const k[BATCH] = { w->stored[layer][0], w->stored[layer][1] };
        const size_t tokens[BATCH] = { w->shape.ctx[0] + done, w->shape.ctx[1] + done };
        for (size_t b = 0; b < BATCH; b++) {
            memcpy(q + b * rows * Q_HEADS * DIM, w->q[step][layer][b], rows * Q_HEADS * DIM * sizeof *q);
            memcpy(x + b * rows * MODEL, w->x[step][layer][b], rows * MODEL * sizeof *x);
        }
        const struct ha_def_step in = { .layer = layer,
                                        .q_len = rows,
                                        .q = q,
                                        .x = x,
                                        .projection = w->projection,
                                        .k = k,
                                        .tokens = tokens,
                                        .kv_cap = CAP };
        r.of = t[step][layer];
        status = ha_definition_step(d, def, &w->shape, &in, report, &r, &why);
    }
    if (status == HA_OK) judge_counts(def, t);
    if (def) d->destroy(def);
    return status;
}

static size_t refused[MISTAKES];

static void try_all(const char *what, enum mistake first, size_t stride)
{
    ha_test_clo_simulate(NO_MISTAKE, right);
    if (judge(right) != HA_OK) fail_msg("%s, right: %s", what, why.text);
    for (enum mistake m = first; m < MISTAKES; m += stride) {
        if (m == LAYER_AFTER_NEXT && !(w->param[PREFETCH] > 0 && w->param[PREDICT] < ORACLE)) continue;
        memcpy(other, right, sizeof other);
        ha_test_clo_simulate(m, other);
        if (!differs(m)) continue;
        if (judge(other) != HA_FAIL) fail_msg("%s: not refused: %s %s", what, MISTAKE[m].name, why.text);
        if (!ha_test_says(why.text, MISTAKE[m].text))
            fail_msg("%s, %s: \"%s\" does not say \"%s\"", what, MISTAKE[m].name, why.text, MISTAKE[m].text);
        if (m < STALE_PERSISTENT && !strstr(why.text, "clo layer 2 seq 0 head 2: ")
            && !strstr(why.text, "clo layer 2 seq 0 head 3: "))
            fail_msg("%s, %s: \"%s\" names another", what, MISTAKE[m].name, why.text);
        refused[m]++;
    }
}

enum { NONE, ALL = HAS_IMPORTANCE | HAS_SIMILARITY | HAS_PACE | HAS_HASH };
static const struct {
    double param[PARAMS];
    size_t ctx[BATCH], q_len;
    enum ha_dtype dtype;
    unsigned has;
} CASE[] = {
/* k, sink, recent, eta, p, threshold, group, prefetch, retrieve, bits, hash */
#define OF(...)     \
    {               \
        __VA_ARGS__ \
    }
#define END(budget, persistent, hard, predict) 0, 4, 0, 0.1, budget, persistent, hard, predict
    { OF(0.1, 4, 10, 0.8, 3, ADAPTIVE, HARMONIC, 1, HATA, BITS, RANDOM, END(0, 0, 1, DEVICE)),
      { 150, 9 },
      1,
      HA_F32,
      0 },
    { OF(0.1, 4, 10, 0.95, 3, ADAPTIVE, HARMONIC, 1, HATA, BITS, LEARNED, END(0, 0, 1, CPU)),
      { 150, 40 },
      2,
      HA_F16,
      ALL },
    { OF(0.3, 4, 10, 0.75, 3, FIXED, MIN, 1, QUEST, BITS, RANDOM, END(0, 0, 1, DEVICE)), { 140, 60 }, 1, HA_BF16, 0 },
    { OF(0.05, 0, 20, 0.95, 2, ADAPTIVE, HARMONIC, 0, EXACT, BITS, RANDOM, END(0, 0, 0, DEVICE)),
      { 150, 30 },
      1,
      HA_F32,
      ALL },
    { OF(0.1, 4, 10, 0.95, 3, ADAPTIVE, HARMONIC, 1, HATA, BITS, RANDOM, END(0.15, 1, 1, DEVICE)),
      { 150, 100 },
      1,
      HA_F32,
      HAS_IMPORTANCE | HAS_SIMILARITY },
    { OF(0.2, 2, 0, 0.8, 3, FIXED, MIN, 1, EXACT, BITS, RANDOM, END(0, 0, 1, ORACLE)), { 100, 1 }, 2, HA_BF16, 0 },
    { OF(0.3, 2, 5, 0.95, 1, ADAPTIVE, HARMONIC, 1, QUEST, BITS, RANDOM, END(0, 0, 1, DEVICE)),
      { 150, 7 },
      2,
      HA_F16,
      HAS_IMPORTANCE | HAS_SIMILARITY | HAS_PACE },
    { OF(0.1, 4, 10, 0.95, 3, ADAPTIVE, MIN, 1, HATA, BITS, RANDOM, 0, 4, 0, 0, 0.15, 1, 1, DEVICE),
      { 150, 100 },
      1,
      HA_F32,
      HAS_IMPORTANCE | HAS_SIMILARITY },
    { OF(1, 4, 3, 0.5, 3, FIXED, HARMONIC, 1, HATA, BITS, RANDOM, END(0, 0, 1, DEVICE)), { 1, 0 }, 1, HA_F32, 0 },
};

TEST(test_simulated)
{
    for (size_t i = 0; i < COUNT(CASE); i++) {
        char what[32];
        snprintf(what, sizeof what, "case %zu", i);
        ha_test_clo_make(CASE[i].param, CASE[i].ctx, CASE[i].q_len, CASE[i].dtype, CASE[i].has);
        struct ha_fit *of = ha_test_clo_fit();
        fit = of;
        try_all(what, (enum mistake)(1 + (HA_SANITIZED ? i : 0)), HA_SANITIZED ? COUNT(CASE) : 1);
        fit = NULL;
        ha_fit_close(of);
    }
    for (enum mistake m = 1; m < MISTAKES && !HA_SANITIZED; m++)
        if (refused[m] == 0) fail_msg("%s: never made", MISTAKE[m].name);
    for (size_t i = 0; i < COUNT(met); i++)
        if (!(met[i].hits > 5 && met[i].misses > 5 && met[i].left_out > 0))
            fail_msg("retrieve %zu: %g hits, %g misses, %g left out", i, met[i].hits, met[i].misses, met[i].left_out);
    if (!(met[HATA].persistent > 0)) fail_msg("no head behind the first layer is persistent");
}

/* ---- ties -------------------------------------------------------------------------------------------------------- */

static const size_t ONE[BATCH] = { 150, 30 };
static void make(const double *param, unsigned has) { ha_test_clo_make(param, ONE, 1, HA_F32, has); }

static size_t candidates(size_t step) { return ONE[0] + step - (size_t)w->param[SINK] - (size_t)w->param[RECENT]; }

/* Of keys that are all alike any may be chosen; the ones that were are in the buffer from then on. */
TEST(test_tied_keys)
{
    const size_t sink = 4;
    make(CASE[0].param, 0);
    for (size_t j = 0; j < CAP; j++) memcpy(w->k[2][0][1][j], w->k[2][0][1][0], sizeof *w->k[2][0][1]);
    memcpy(w->stored[2][0], w->k[2][0], sizeof w->k[2][0]);
    ha_test_clo_simulate(NO_MISTAKE, right);
    memcpy(other, right, sizeof other);
    size_t hit = STEPS;
    for (size_t step = 0; step < STEPS; step++)
        for (size_t head = 2; head < Q_HEADS; head++) {
            uint8_t *to = other[step][2][0][head].part + sink;
            const uint8_t *was = right[step][2][0][head].part + sink;
            const bool reused = other[step][2][0][head].hit > 0;
            if (reused) memcpy(to, other[step - 1][2][0][head].part + sink, candidates(step - 1));
            for (size_t j = 0; j < candidates(step) && !reused; j++) to[j] = was[candidates(step) - 1 - j];
            if (reused && hit == STEPS) hit = step;
        }
    assert_true(hit < STEPS);
    if (judge(other) != HA_OK) fail_msg("the last of keys that are alike: %s", why.text);
    memcpy(other[hit][2][0], right[hit][2][0], sizeof right[hit][2][0]);
    if (judge(other) != HA_FAIL || !strstr(why.text, "buffer of step")) fail_msg("not refused: %s", why.text);
}

/* A query that is the label, and a threshold of 1: as near as binary32 can tell it may be a hit or a miss, and the
 * similarity that is reported has to say the same. */
TEST(test_tied_threshold)
{
    static const struct {
        double similarity, hit;
        const char *says; /* NULL: it is right */
    } each[] = {
        { 1, 1, NULL },
        { 1, 0, "note hit is 0, and similarity 1 is not below the threshold, 1" },
        { 1 - 0x1p-24, 0, NULL },
        { 1 - 0x1p-24, 1, "is below the threshold, 1" },
        { 1 + 0x1p-20, 1, NULL },
        { 1 - 1e-4, 0, "note similarity is 0.9999, not 1" },
        { 1 + 1e-4, 1, "note similarity is 1.0001, not 1" },
        { (double)NAN, 1, "note similarity is missing" },
        { -2, 0, "note similarity is -2, not 1" },
    };
    double param[PARAMS];
    memcpy(param, CASE[5].param, sizeof param);
    param[K] = param[ETA] = 1;
    param[RECENT] = 64;
    make(param, 0);
    for (size_t step = 1; step < STEPS; step++) memcpy(w->q[step], w->q[0], sizeof w->q[0]);
    ha_test_clo_simulate(NO_MISTAKE, right);
    for (size_t i = 0; i < COUNT(each); i++) {
        memcpy(other, right, sizeof other);
        for (size_t head = 2; head < Q_HEADS; head++) {
            struct told *t = &other[STEPS - 1][2][0][head];
            t->similarity = each[i].similarity;
            t->hit = each[i].hit;
            memcpy(t->part, other[STEPS - 2][2][0][head].part, sizeof t->part);
            memset(t->part, ONCE, t->hit > 0 ? 0 : ONE[0] + STEPS);
            if (t->hit > 0) t->part[ONE[0] + STEPS - 1 - 64 - 1] = 0; /* it has left */
            t->part[ONE[0] + STEPS - 1] = ONCE;
            const struct told *before = &other[STEPS - 2][2][0][head];
            t->left_out = t->hit > 0 ? before->left_out + 1 : 0;
        }
        const enum ha_status status = judge(other);
        if (status != (each[i].says ? HA_FAIL : HA_OK) || (each[i].says && !strstr(why.text, each[i].says)))
            fail_msg("%.9g, hit %g: %d: %s", each[i].similarity, each[i].hit, (int)status, why.text);
    }
}

/* With a threshold of -1 all hit but those that the harmonic mean does not let. */
TEST(test_negative)
{
    double param[PARAMS];
    memcpy(param, CASE[5].param, sizeof param);
    param[ETA] = -1;
    for (int group = HARMONIC; group <= MIN; group++) {
        size_t negative = 0, hits = 0;
        param[GROUP_RULE] = group;
        make(param, 0);
        ha_rng_normals(SEED, 50, 0, sizeof w->q / sizeof(float), (float *)w->q);
        ha_test_clo_simulate(NO_MISTAKE, right);
        if (judge(right) != HA_OK) fail_msg("group %d: %s", group, why.text);
        for (size_t step = 1; step < STEPS; step++)
            for (size_t layer = 1; layer < LAYERS; layer++) {
                struct told *t = right[step][layer][0];
                hits += t->hit > 0;
                if (t->similarity > 0) continue;
                negative++;
                memcpy(other, right, sizeof other);
                for (size_t g = 0; g < GROUP; g++) other[step][layer][0][g].hit = group == MIN ? 0 : 1;
                if (judge(other) != HA_FAIL
                    || !strstr(why.text, group == MIN ? "is not below the threshold" : "is not positive"))
                    fail_msg("group %d: not refused: %s", group, why.text);
            }
        assert_true(negative > 3 && (group == MIN ? hits == (STEPS - 1) * (LAYERS - 1) : hits > 0));
    }
}

/* of a predicted query in binary64, and the angle that it may be off by */
static double predicted(size_t step, size_t head, double *q)
{
    double all[Q_HEADS * DIM], off[Q_HEADS * DIM], square = 0, error = 0;
    ha_projection_query(&w->projection[2], Q_HEADS, DIM, MODEL, w->x[step][1][0][0], ONE[0] + step, all, off);
    for (size_t d = 0; d < DIM; d++) {
        q[d] = all[head * DIM + d];
        square += q[d] * q[d];
        error += off[head * DIM + d] * off[head * DIM + d];
    }
    return asin(sqrt(error / square));
}

/* A similarity of predicted queries may be off by what both queries may turn by, and by rounding: no less, no more. */
TEST(test_turned)
{
    double param[PARAMS], q[2][DIM];
    memcpy(param, CASE[0].param, sizeof param);
    param[GROUP_RULE] = MIN;
    param[ETA] = -1;
    make(param, 0);
    /* sums whose terms cancel are known the less */
    for (size_t i = 0; i < Q_HEADS * DIM; i++) w->wq[2][i][0] += 300, w->bias[i] -= 300;
    for (size_t step = 0; step < STEPS; step++) w->x[step][1][0][0][0] = 1;
    ha_test_clo_simulate(NO_MISTAKE, right);
    if (judge(right) != HA_OK) fail_msg("%s", why.text);
    double low = 2, high = 2, slack = 2 * 0x1p-24 * (DIM + 10), narrow = 2;
    for (size_t head = 2; head < Q_HEADS; head++) {
        double sum[3] = { 0 };
        const double turn = predicted(0, head, q[0]) + predicted(STEPS - 1, head, q[1]);
        for (size_t d = 0; d < DIM; d++) {
            sum[0] += q[0][d] * q[1][d];
            sum[1] += q[0][d] * q[0][d];
            sum[2] += q[1][d] * q[1][d];
        }
        const double angle = acos(sum[0] / sqrt(sum[1] * sum[2]));
        low = fmin(low, cos(angle + turn) - slack);
        high = fmin(high, cos(angle - turn) + slack);
        narrow = fmin(narrow, sin(angle) * turn);
    }
    assert_true(narrow > 50 * slack);
    for (int i = 0; i < 4; i++) {
        const double edge = i % 2 ? high : low, by = (i < 2 ? -1 : 1) * (i % 2 ? 1 : -1) * 0.02 * (high - low);
        for (size_t head = 2; head < Q_HEADS; head++) right[STEPS - 1][2][0][head].similarity = edge + by;
        if (judge(right) != (i < 2 ? HA_OK : HA_FAIL)) fail_msg("%g to %g, by %g: %s", low, high, by, why.text);
    }
}

/* Queries of zeros have no similarity, and never hit. */
TEST(test_zeros)
{
    make(CASE[5].param, 0);
    memset(w->q, 0, sizeof w->q);
    ha_test_clo_simulate(NO_MISTAKE, right);
    if (judge(right) != HA_OK) fail_msg("%s", why.text);
    right[3][1][0][0].similarity = right[3][1][0][1].similarity = 0;
    if (judge(right) != HA_FAIL || !strstr(why.text, "a label or a query is 0")) fail_msg("%s", why.text);
    right[3][1][0][0].similarity = right[3][1][0][1].similarity = -2;
    right[3][1][0][0].hit = right[3][1][0][1].hit = 1;
    if (judge(right) != HA_FAIL || !strstr(why.text, "note hit is 1, and a label")) fail_msg("%s", why.text);
}

/* ---- what is not there ------------------------------------------------------------------------------------------- */

static void not_made(const char *what, enum ha_status status, const char *says)
{
    struct ha_fit *of = ha_test_clo_fit();
    fit = of;
    const enum ha_status is = judge(right);
    fit = NULL;
    ha_fit_close(of);
    if (is != status || !strstr(why.text, says)) fail_msg("%s: %d: %s", what, (int)is, why.text);
}

TEST(test_not_made)
{
    double param[PARAMS];
    make(CASE[0].param, 0);
    ha_test_clo_simulate(NO_MISTAKE, right);
    w->shape.model_dim = 0;
    not_made("no inputs", HA_ERROR, "prefetch=1 needs layer inputs");
    make(CASE[0].param, 0);
    w->projection[1].wq = NULL;
    not_made("no projection", HA_ERROR, "prefetch=1 needs layer inputs");
    make(CASE[1].param, 0);
    not_made("learned codes without a fit", HA_WAIVED, "needs a fit, for tensor hash");
    make(CASE[1].param, HAS_PACE);
    not_made("learned codes, and the fit has none", HA_ERROR, "tensor hash is missing");
    make(CASE[1].param, ALL);
    w->fit.importance_kv[1][1] = 1.5f;
    not_made("an importance", HA_ERROR, "importance_kv of layer 1 head 1 is 1.5, not in [0, 1]");
    make(CASE[1].param, ALL);
    w->fit.importance_q[2][3] = -0.5f;
    not_made("an importance", HA_ERROR, "importance_q of layer 2 head 3 is -0.5, not in [0, 1]");
    memcpy(param, CASE[0].param, sizeof param);
    param[BUDGET_MB] = 0.001;
    make(param, 0);
    not_made("no room", HA_ERROR, "the first layer's 2 heads alone take");
}
