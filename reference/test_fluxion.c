/* The definition of Fluxion against a plain simulation: it accepts that one, with every option, and sees its mistakes.
 */

#include "reference/test_fluxion_world.h"
#include "reference/test_says.h"

#include "harness/base/fit.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"

#include <math.h>

extern const struct ha_definition ha_definition_fluxion;

static struct ha_test_fluxion *const w = &ha_test_fluxion;
static struct ha_why why;
static table right, other;

static const struct {
    const char *name, *text; /* what the reason says, one of those between bars */
} MISTAKE[MISTAKES] = {
    [SINK_MISSING] = { "a key of the sink missing", "is missing: it is of the sink" },
    [LOCAL_MISSING] = { "a recent key missing", "is missing: it is recent or new" },
    [NEW_MISSING] = { "a new key missing", "is missing: it is recent or new" },
    [SINK_ON_HOST] = { "the sink on the host", "is not the host's: it is of the sink" },
    [LOCAL_EITHER] = { "recent keys on either side", "is not the host's: it is recent or new" },
    [HOST_ON_DEVICE] = { "the host's keys on the device", "is no longer on the device" },
    [ONE_DEVICE_STATE] = { "sink and recent keys in one state", "is in one state with key" },
    [HOST_KEY_IN_LOCAL] = { "a key of the host among recent ones", "is in one state with key" },
    [TWO_TASKS] = { "two states of the host's keys", "is in a second state" },
    [OWN_QUERY] = { "another query", "is not weighed by the step's query, itself" },
    [NO_VALUES] = { "no values", "is not weighed by the step's query, itself" },
    [OTHER_CLAIMS] = { "other claims", "is not weighed by the step's query, itself" },
    [NO_NOTE] = { "a note less", "note k is nan" },
    [STREAMING_NOTE] = { "the other note streaming", "note streaming is" },
    [BGT0_OF_HEAD] = { "bgt0 of another head", "note bgt0 is" },
    [K_OF_HEAD] = { "k of another head", "note k is" },
    [S_OF_HEAD] = { "s of another head", "note s is" },
    [BGT0_OFF] = { "bgt0 a little off", "note bgt0 is" },
    [K_OFF] = { "k a little off", "note k is" },
    [S_OFF] = { "s a little off", "note s is" },
    [NEGATIVE_S] = { "s with the other sign", "note s is" },
    [OTHER_BUDGET] = { "another budget", "note bgt0 is" },
    [OTHER_CRITERION] = { "labels by another criterion", "note |feature anchor_budget" },
    [OTHER_TAU] = { "labels with another tau", "note |feature anchor_budget" },
    [OTHER_DIGEST_LABELS] = { "labels by the other digest", "note |feature anchor_budget" },
    [OWN_NORM] = { "the contribution to the head itself", "note |feature anchor_budget" },
    [FREE_LINE] = { "a line that is not through bgt0", "note k is" },
    [FIRST_QUERY] = { "predicted of the first token", "note " },
    [QUERY_OF_HEAD] = { "predicted of another head's query", "note " },
    [NO_BIAS] = { "a bias left out", "note " },
    [NO_RELU] = { "relu left out", "note " },
    [NO_LAST_INPUT] = { "the last input left out", "note " },
    [NEXT_INV] = { "inv of the next feature", "note " },
    [NO_MEAN] = { "a mean left out", "note " },
    [NO_CLAMP] = { "no clamp", "note " },
    [MEAN_OF_KV_HEAD] = { "the mean key of another KV head", "note " },
    [NEW_KEYS_LEFT_OUT] = { "features without the new keys", "note " },
    [NOTHING_LEARNT] = { "nothing learnt", "0 numbers were learnt, not 41 features" },
    [LEARNT_ONLINE] = { "a feature learnt that changes", "was learnt, and changes with the query" },
    [LEARNT_AGAIN] = { "a feature that changes with the step", "and was" },
    [LEARNT_HEAD] = { "the features of another head", "feature head is" },
    [ANCHOR_BEFORE] = { "the anchor of the token before", "feature anchor_" },
    [BUDGET_MORE] = { "a block more for the anchor", "feature anchor_budget" },
    [BUDGET_LESS] = { "a block less for the anchor", "feature anchor_budget" },
    [BUDGET_BETWEEN] = { "half a block more for the anchor", "feature anchor_budget" },
    [SAMPLE_VARIANCE] = { "the variance of a sample", "feature k_norm_variance is" },
    [EXCESS_KURTOSIS] = { "the excess kurtosis", "feature k_norm_kurtosis is" },
    [OTHER_BLOCK] = { "another block", "where V is" },
    [BLOCK_OF_HEAD] = { "a block for one head", "they have one" },
    [NEVER_SCHEDULED] = { "nothing read", "note block is 0, not" },
    [ALWAYS_SCHEDULED] = { "a block where all heads stream", "no head of the group retrieves|nothing on the host" },
    [NO_METADATA] = { "V without digests", "where V is" },
    [SUM_NOT_CLAMPED] = { "a sum above 1", "where V is" },
    [BUDGETS_NOT_CLAMPED] = { "budgets below 0", "where V is" },
    [STREAMING_COUNTS] = { "budgets of heads that stream", "where V is" },
    [NATURAL_LOG] = { "a line over the natural logarithm", "where V is|and a budget of" },
    [BLOCKS_MORE] = { "a block more", "note blocks is" },
    [BLOCKS_LESS] = { "a block less", "note blocks is" },
    [BLOCKS_NOTE] = { "a note blocks of one more", "note blocks is" },
    [STREAMS_AND_READS] = { "a head that streams reads", "the head streams|nothing on the host|the head has none" },
    [READS_NOTHING] = { "a head that does not reads nothing", "chosen, the rule chooses|is missing|not read and by" },
    [SWAPPED] = { "the next best block", "was chosen, block|has one choice|is read and not by|not read and by|best" },
    [KEY_MISSING] = { "a key of a block missing", "is used in part" },
    [STRAY_KEY] = { "a key of another block", "is used in part|the head streams" },
    [OTHER_DIGEST] = { "the other digest", "was chosen, block|best of" },
    [OTHER_HEAD] = { "the blocks of another head", "" },
    [OTHER_KV_HEAD] = { "the blocks of another KV head", "" },
    [BY_LAST_QUERY] = { "the blocks of the last token", "was chosen, block|best of" },
    [OTHER_UNION] = { "the other union", "the rule chooses|what one of them chose|is missing" },
    [UNION_LESS] = { "a union that is not all", "is missing: it is among|may be the|is missing: all" },
    [UNION_OF_HEAD] = { "what all read and none chose", "best of any head|has no place" },
};

/* ---- what is reported ------------------------------------------------------------------------------------------ */

struct reporter {
    struct told (*of)[Q_HEADS]; /* [batch] */
    uint32_t token[3][CAP];
};

static void report(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    static const float some[CAP * DIM];
    static const struct ha_profile claims;
    struct reporter *r = arg;
    const struct told *t = &r->of[seq][q_head];
    const struct ha_note note[] = { { "bgt0", t->bgt0 },   { t->of == NO_NOTE ? "key" : "k", t->k },
                                    { "s", t->s },         { "streaming", t->streaming },
                                    { "block", t->block }, { "blocks", t->blocks } };
    size_t count[3] = { 0 };
    for (size_t j = 0; j < CAP; j++)
        if (t->part[j]) r->token[t->part[j] - 1][count[t->part[j] - 1]++] = (uint32_t)j;
    if (t->of == HOST_KEY_IN_LOCAL && count[2]) r->token[1][count[1]++] = r->token[2][--count[2]];
    out->parts = 3;
    for (size_t p = 0; p < 3; p++)
        out->part[p] = (struct ha_part){
            .token = r->token[p], .count = count[p], .on_device = p < 2 || (seq + q_head) % 2, .either_side = p == 2
        };
    if (t->of == SINK_ON_HOST) out->part[0].on_device = false;
    if (t->of == LOCAL_EITHER) out->part[1].either_side = true;
    if (t->of == HOST_ON_DEVICE) out->part[2].on_device = true, out->part[2].either_side = false;
    if (t->of == OWN_QUERY) out->part[2].q = some;
    if (t->of == NO_VALUES) out->part[1].weight_only = true;
    if (t->of == OTHER_CLAIMS) out->part[0].profile = &claims;
    if (t->of == TWO_TASKS && count[2]) {
        out->part[3] = out->part[2];
        out->part[2].count = 16;
        out->part[3].token += 16;
        out->part[3].count -= 16;
        out->parts = count[2] > 16 ? 4 : 3;
        if (out->parts == 3) out->part[2].count = count[2];
    }
    memcpy(out->note, note, sizeof note);
    out->notes = COUNT(note);
    out->learnt = t->learnt;
    out->learnt_count = w->param[PREDICT] > NET || t->of == NOTHING_LEARNT ? 0 : F;
}

/* in: what differs shows */
static bool differs(enum mistake m)
{
    bool is = false;
    for (size_t i = 0; i < sizeof right / sizeof(struct told); i++) {
        struct told a = ((struct told *)right)[i], b = ((struct told *)other)[i];
        size_t read = 0, sinks = 0;
        for (size_t j = 0; j < CAP; j++) read += b.part[j] == IN_TASK, sinks += b.part[j] == IN_SINK;
        if (b.of != NO_MISTAKE) {
            is |= m == LOCAL_EITHER || m == NO_VALUES || m == NO_NOTE;
            is |= (m == SINK_ON_HOST || m == OTHER_CLAIMS) && sinks;
            is |= (m == HOST_ON_DEVICE || m == HOST_KEY_IN_LOCAL || m == OWN_QUERY) && read;
            is |= m == TWO_TASKS && read > 16;
            is |= m == NOTHING_LEARNT && w->param[PREDICT] <= NET;
        }
        a.of = b.of = NO_MISTAKE;
        is |= memcmp(&a, &b, sizeof a) != 0;
    }
    return is;
}

/* ---- what the definition says of it ---------------------------------------------------------------------------- */

static const struct ha_fit *fit;

struct counts {
    double streaming[LAYERS], scheduled[LAYERS], block[LAYERS], budget[LAYERS];
    bool said[LAYERS][4];
};

static void say(void *arg, const char *name, size_t layer, double least, double most)
{
    struct counts *c = arg;
    const struct {
        const char *name;
        double is;
    } of[] = { { "streaming_heads", c->streaming[layer] },
               { "groups_scheduled", c->scheduled[layer] },
               { "block_mean", c->block[layer] },
               { "budget_mean", c->budget[layer] } };
    for (size_t i = 0; i < COUNT(of); i++) {
        if (strcmp(of[i].name, name) != 0) continue;
        c->said[layer][i] = true;
        if (!(fabs(least - of[i].is) < 1e-12 && fabs(most - of[i].is) < 1e-12))
            fail_msg("%s of layer %zu: %g to %g, not %g", name, layer, least, most, of[i].is);
    }
}

/* What is counted, from a table. */
static void judge_counts(const struct ha_def *def, table t)
{
    struct counts c = { 0 };
    for (size_t layer = 0; layer < w->shape.layers; layer++) {
        double heads = 0, streaming = 0, groups = 0, block = 0, readers = 0, share = 0;
        for (size_t i = 0; i < (size_t)STEPS * BATCH * Q_HEADS; i++) {
            const size_t seq = i / Q_HEADS % BATCH;
            const struct told *x = &t[i / Q_HEADS / BATCH][layer][seq][i % Q_HEADS];
            heads++;
            streaming += x->streaming;
            if (i % GROUP == 0) groups += x->block > 0, block += x->block;
            if (x->blocks > 0) readers++, share += x->blocks * x->block / (double)ha_test_fluxion_host(seq);
        }
        c.streaming[layer] = streaming / heads;
        c.scheduled[layer] = groups / (heads / GROUP);
        c.block[layer] = block / groups;
        c.budget[layer] = share / readers;
        c.said[layer][2] = c.said[layer][3] = groups <= 0; /* of nothing nothing is said */
    }
    ha_definition_fluxion.count(def, say, &c);
    for (size_t i = 0; i < w->shape.layers * 4; i++)
        if (!c.said[i / 4][i % 4]) fail_msg("number %zu of layer %zu is not counted", i % 4, i / 4);
}

static enum ha_status judge(table t)
{
    static float q[BATCH * ROWS * Q_HEADS * DIM], seen[BATCH][SEEN * Q_HEADS * DIM];
    static const struct ha_profile observer = {
        .dot_lanes = 1, .sum_lanes = 1, .exp_eps = 0x1p-22, .log_eps = 0x1p-22
    };
    const struct ha_definition *d = &ha_definition_fluxion;
    struct ha_def *def = NULL;
    struct reporter r;
    why = (struct ha_why){ "" };
    enum ha_status status = d->create(&def, &w->shape, w->param, fit, &why);
    for (size_t step = 0; step <= STEPS && status == HA_OK; step++)
        for (size_t layer = 0; layer < w->shape.layers && status == HA_OK; layer++) {
            const void *const k[BATCH] = { w->stored[0][layer][0], w->stored[0][layer][1] }, *const v[BATCH] = {
                w->stored[1][layer][0], w->stored[1][layer][1]
            };
            const size_t done = step * w->q_len, tokens[BATCH] = { CTX[0] + done, CTX[1] + done };
            struct ha_def_step in = { .layer = layer,
                                      .q_len = w->q_len,
                                      .q = q,
                                      .k = k,
                                      .v = v,
                                      .tokens = tokens,
                                      .kv_cap = CAP,
                                      .observer = &observer };
            if (step == 0) {
                for (size_t b = 0; b < BATCH; b++) memcpy(seen[b], w->seen[layer][b], sizeof seen[b]);
                const float *const observed[BATCH] = { seen[0], seen[1] };
                status = ha_definition_prefill(d, def, &w->shape, &in, observed, &why);
                continue;
            }
            for (size_t b = 0; b < BATCH; b++)
                memcpy(q + b * w->q_len * Q_HEADS * DIM, w->q[step - 1][layer][b],
                       w->q_len * Q_HEADS * DIM * sizeof(float));
            r.of = t[step - 1][layer];
            status = ha_definition_step(d, def, &w->shape, &in, report, &r, &why);
        }
    if (status == HA_OK) judge_counts(def, t);
    if (def) d->destroy(def);
    return status;
}

static size_t refused[MISTAKES];
static struct {
    size_t streaming, retrieving, unscheduled, of_block[SIZES];
} met[3]; /* by each way to predict */

static void meet(void)
{
    for (size_t i = 0; i < sizeof right / sizeof(struct told); i++) {
        const struct told *t = (struct told *)right + i;
        const size_t p = (size_t)w->param[PREDICT];
        if (i / Q_HEADS / BATCH % LAYERS >= w->shape.layers || ha_test_fluxion_host(i / Q_HEADS % BATCH) == 0) continue;
        *(t->s > 0 ? &met[p].streaming : &met[p].retrieving) += 1;
        met[p].unscheduled += t->block <= 0;
        for (size_t b = 1; b < SIZES; b++) met[p].of_block[b] += (size_t)t->block == size_of[b];
    }
}

/* every `stride`th mistake, from `first` on */
static void try_all(const char *what, enum mistake first, size_t stride)
{
    ha_test_fluxion_simulate_all(NO_MISTAKE, right);
    if (judge(right) != HA_OK) fail_msg("%s, right: %s", what, why.text);
    meet();
    for (enum mistake m = first; m < MISTAKES; m += stride) {
        memcpy(other, right, sizeof other);
        ha_test_fluxion_simulate(m, w->shape.layers - 1, 1, other);
        if (!differs(m)) continue;
        if (judge(other) != HA_FAIL) fail_msg("%s: not refused: %s %s", what, MISTAKE[m].name, why.text);
        if (!ha_test_says(why.text, MISTAKE[m].text))
            fail_msg("%s, %s: \"%s\" does not say \"%s\"", what, MISTAKE[m].name, why.text, MISTAKE[m].text);
        if (!strstr(why.text, "seq 1 head ") || !strstr(why.text, w->shape.layers > 1 ? "layer 1 " : "layer 0 "))
            fail_msg("%s, %s: \"%s\" names another", what, MISTAKE[m].name, why.text);
        refused[m]++;
    }
}

static const struct {
    double param[PARAMS];
    size_t layers, q_len;
    enum ha_dtype dtype;
} CASE[] = {
    /* sink recent digest predict budget criterion tau granularity skip_streaming union */
    { { 5, 20, 0, NET, 0.05, CONTRIBUTION, 0.1, 0, 1, 0 }, 2, 1, HA_F32 },
    { { 0, 30, 1, NET, 0.05, OUTPUT, 0.3, 0, 1, 1 }, 1, 2, HA_F16 },
    { { 5, 20, 0, NET, 0.05, SCORE, 0.1, 0, 0, 1 }, 1, 1, HA_BF16 },
    { { 5, 20, 0, NET, 0.05, CONTRIBUTION, 0.2, 3, 1, 0 }, 1, 2, HA_F32 },
    { { 5, 20, 0, ORACLE, 0.05, CONTRIBUTION, 0.5, 0, 1, 0 }, 1, 1, HA_F32 },
    { { 5, 20, 1, ORACLE, 0.05, OUTPUT, 0.2, 0, 1, 1 }, 2, 2, HA_F16 },
    { { 5, 20, 0, ORACLE, 0.05, SCORE, 0.1, 0, 0, 0 }, 1, 1, HA_BF16 },
    { { 5, 20, 0, FIXED, 0.05, CONTRIBUTION, 0.1, 0, 1, 0 }, 1, 1, HA_F16 },
    { { 5, 20, 1, FIXED, 0.3, CONTRIBUTION, 0.1, 1, 1, 1 }, 1, 2, HA_BF16 },
    { { 5, 400, 0, NET, 0.05, CONTRIBUTION, 0.1, 0, 0, 0 }, 1, 1, HA_F32 },
    { { 5, 400, 0, ORACLE, 0.05, CONTRIBUTION, 0.1, 0, 1, 0 }, 1, 1, HA_F32 },
};

/* each mistake in every second case; under a sanitizer in one */
TEST(test_simulated)
{
    for (size_t i = 0; i < COUNT(CASE); i++) {
        char what[32];
        snprintf(what, sizeof what, "case %zu", i);
        ha_test_fluxion_make(CASE[i].param, CASE[i].layers, CASE[i].q_len, CASE[i].dtype);
        struct ha_fit *of = ha_test_fluxion_fit();
        fit = of;
        try_all(what, (enum mistake)(1 + (HA_SANITIZED ? i : i % 2)), HA_SANITIZED ? COUNT(CASE) : 2);
        fit = NULL;
        ha_fit_close(of);
    }
    for (enum mistake m = 1; m < MISTAKES && !HA_SANITIZED; m++)
        if (refused[m] == 0) fail_msg("%s: never made", MISTAKE[m].name);
    for (size_t p = NET; p < FIXED; p++)
        if (!met[p].streaming || !met[p].retrieving || !met[p].unscheduled)
            fail_msg("predict %zu: %zu heads stream, %zu do not, %zu of groups that read nothing", p, met[p].streaming,
                     met[p].retrieving, met[p].unscheduled);
    for (size_t b = 1; b < SIZES; b++)
        if (!met[NET].of_block[b]) fail_msg("blocks of %zu: never", size_of[b]);
}

/* ---- features, one by one -------------------------------------------------------------------------------------- */

/* head 3 of the last sequence and layer has another one in all steps */
static void refuse_feature(size_t i, double value, const char *what)
{
    char text[64];
    memcpy(other, right, sizeof other);
    for (size_t step = 0; step < STEPS; step++) other[step][1][1][3].learnt[i] = value;
    snprintf(text, sizeof text, "layer 1 seq 1 head 3: feature %s is", ha_feature_name(i));
    if (judge(other) != HA_FAIL || !strstr(why.text, text))
        fail_msg("%s %s: \"%s\"", ha_feature_name(i), what, why.text);
}

/* Each known feature is refused by name where it is that of a head of another sequence and KV head. */
TEST(test_features)
{
    size_t tried = 0;
    ha_test_fluxion_make(CASE[0].param, LAYERS, 1, HA_F16);
    struct ha_fit *of = ha_test_fluxion_fit();
    fit = of;
    ha_test_fluxion_simulate_all(NO_MISTAKE, right);
    for (size_t i = 0; i < F; i++) {
        const double is = right[0][1][1][3].learnt[i], was = right[0][0][0][0].learnt[i];
        const double off = (double)(float)(is * (1 - 1e-3));
        if (ha_feature_online(i)) assert_true(is == 0 && was == 0);
        if (is < 0 || is > 0) refuse_feature(i, off, "off by 0.001 of itself");
        if (fabs(is - was) <= 1e-6 * fabs(is)) continue;
        refuse_feature(i, was, "of another head");
        tried++;
    }
    fit = NULL;
    ha_fit_close(of);
    if (tried < 29) fail_msg("%zu features differ", tried);
}

/* ---- the net --------------------------------------------------------------------------------------------------- */

/* What binary32 makes of it, its sums forwards, backwards and by halves, is within the bounds; these are narrow, and a
 * weight that is another is seen. */
static float sum_of(const float *x, size_t n, size_t stride, int order)
{
    float sum = 0;
    if (order == 2 && n > 1)
        return sum_of(x, n / 2, stride, order) + sum_of(x + n / 2 * stride, n - n / 2, stride, order);
    for (size_t i = 0; i < n; i++) sum += x[(order == 1 ? n - 1 - i : i) * stride];
    return sum;
}

static void forward(const float *const *weight, const float *const *bias, const float x[F], int order, float y[3])
{
    static const size_t width[] = { F, UNITS, UNITS, 3 };
    float in[UNITS], out[UNITS], term[UNITS + 1];
    memcpy(in, x, F * sizeof *in);
    for (size_t l = 0; l < 3; l++) {
        for (size_t j = 0; j < width[l + 1]; j++) {
            for (size_t i = 0; i < width[l]; i++)
                term[i] = (l && in[i] < 0 ? 0 : in[i]) * weight[l][i * width[l + 1] + j];
            term[width[l]] = bias[l][j];
            out[j] = sum_of(term, width[l] + 1, 1, order);
        }
        memcpy(in, out, sizeof in);
    }
    memcpy(y, in, 3 * sizeof *y);
}

TEST(test_net)
{
    const float *const weight[] = { (float *)w->net.w0, (float *)w->net.w1, (float *)w->net.w2 }, *const bias[] = {
        w->net.b0, w->net.b1, w->net.b2
    };
    const struct ha_net of = { .layers = 3, .width = { F, UNITS, UNITS, 3 }, .w = weight[0] };
    const double narrow[] = { 3e-4, 1e-4, 3e-3 };
    ha_test_fluxion_make(CASE[0].param, LAYERS, 1, HA_F32);
    for (size_t n = 0; n < (HA_SANITIZED ? 3 : 30); n++) {
        float x[F], y[3];
        double in[F], in_off[F], out[3], off[3];
        bool outside = false;
        ha_rng_normals(SEED, 20, n * F, F, x);
        for (size_t i = 0; i < F; i++) {
            in[i] = (double)x[i];
            in_off[i] = n % 3 ? 0 : 1e-5;
            if (n % 3 == 0) x[i] = (float)(in[i] + (i % 2 ? 0.99 : -0.99) * in_off[i]);
        }
        ha_ref_net(&of, in, in_off, out, off);
        for (int order = 0; order < 3; order++) {
            forward(weight, bias, x, order, y);
            for (size_t j = 0; j < 3; j++)
                if (!(fabs((double)y[j] - out[j]) <= off[j]))
                    fail_msg("output %zu: %.9g, not %.9g within %.2g", j, (double)y[j], out[j], off[j]);
        }
        for (size_t j = 0; j < 3; j++)
            if (!(off[j] < narrow[j])) fail_msg("output %zu: %.9g within %.2g", j, out[j], off[j]);
        x[n % F] += 0.25f;
        forward(weight, bias, x, 0, y);
        for (size_t j = 0; j < 3; j++) outside |= !(fabs((double)y[j] - out[j]) <= off[j]);
        if (!outside) fail_msg("input %zu is another, and is not seen", n % F);
    }
}

/* By hand: a unit whose sum is 0 before relu and may be off by 1 either way may be off by 2 behind a weight of 2, one
 * that is far from 0 by as much through relu, or not at all; and a sum in which 2^24 comes first loses all ones but the
 * last. */
TEST(test_net_by_hand)
{
    static const struct {
        float bias;
        double value, off;
    } unit[] = { { 0, 0, 2 }, { 8, 16, 2 }, { -8, 0, 0 } };
    const double one = 1, slack = 4e-3;
    double y, off;
    for (size_t i = 0; i < COUNT(unit); i++) {
        const float weights[] = { 1, unit[i].bias, 2, 0 };
        ha_ref_net(&(struct ha_net){ .layers = 2, .width = { 1, 1, 1 }, .w = weights }, (const double[]){ 0 }, &one, &y,
                   &off);
        if (!(y == unit[i].value && off >= unit[i].off && off <= unit[i].off + slack))
            fail_msg("unit %zu: %g within %g", i, y, off);
    }
    float weights[65] = { 0 }, sum = 0;
    double x[64];
    for (size_t i = 0; i < 64; i++) {
        weights[i] = 1;
        x[i] = i == 0 ? 0x1p24 : i == 63 ? -0x1p24 : 1;
        sum += (float)x[i];
    }
    ha_ref_net(&(struct ha_net){ .layers = 1, .width = { 64, 1 }, .w = weights }, x, NULL, &y, &off);
    assert_true(sum == 0 && y == 62);
    if (!(off >= 62 && off < 200)) fail_msg("%g within %g", y, off);
}

/* ---- ties, and what is not there ------------------------------------------------------------------------------- */

/* Of two sizes at which V is the same either is right; a net of nothing but its last bias has them to the bit. */
TEST(test_ties)
{
    ha_test_fluxion_make(CASE[0].param, LAYERS, 1, HA_F32);
    memset(w->net.w2, 0, sizeof w->net.w2);
    memcpy(w->net.b2, (const float[]){ 0, 0x1p-6f, -1 }, sizeof w->net.b2);
    struct ha_fit *of = ha_test_fluxion_fit();
    fit = of;
    ha_test_fluxion_simulate_all(NO_MISTAKE, right);
    assert_true(right[0][0][0][0].block < 17);
    for (size_t i = 2; i < SIZES; i++) {
        const struct ask a = { NO_MISTAKE, 1, 1, 1 };
        memcpy(other, right, sizeof other);
        struct told *t = other[1][1][1];
        for (size_t g = 0; g < GROUP; g++) {
            for (size_t j = 0; j < CAP; j++) t[g].part[j] = t[g].part[j] == IN_TASK ? NOWHERE : t[g].part[j];
            t[g].block = (double)size_of[i];
        }
        ha_test_fluxion_choose(&a, 0, t);
        if (judge(other) != (i == 2 ? HA_OK : HA_FAIL)) fail_msg("blocks of %zu: %s", size_of[i], why.text);
        if (i > 2 && !strstr(why.text, "not 16, where V is")) fail_msg("blocks of %zu: %s", size_of[i], why.text);
    }
    fit = NULL;
    ha_fit_close(of);
}

TEST(test_not_there)
{
    ha_test_fluxion_make(CASE[0].param, LAYERS, 1, HA_F32);
    ha_test_fluxion_simulate_all(NO_MISTAKE, right);
    assert_int_equal(judge(right), HA_WAIVED);
    assert_non_null(strstr(why.text, "needs a fit"));
    struct ha_fit *of = ha_test_fluxion_fit();
    fit = of;
    w->shape.observed = 0;
    assert_int_equal(judge(right), HA_ERROR);
    assert_non_null(strstr(why.text, "observed=1"));
    fit = NULL;
    ha_fit_close(of);
}
