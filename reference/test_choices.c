/* The definitions of top-k, Quest and what has Quest's choice: by hand where scores are close, and against a plain
 * implementation in binary32 whose mistakes must be seen. */

#include "reference/definitions.h"
#include "reference/test_world.h"

#include "harness/base/numeric.h"
#include "harness/base/rng.h"

static struct ha_why why;

/* ---- a world of several layers, sequences and heads ------------------------------------- */

enum { LAYERS = 3, BATCH = 2, Q_HEADS = 4, KV_HEADS = 2, GROUP = Q_HEADS / KV_HEADS, DIM = 16, MODEL = 24 };
enum { CAP = 80, STEPS = 2, ROWS = 3, PARAMS = 5, SEED = 5 };
static const size_t CTX[BATCH] = { 42, 61 };

enum { K, QUERY, TOPK_GROUP };
enum { BLOCK, BUDGET, DENSE_LAYERS, DIGEST, QUEST_GROUP };
enum { HEAD, MAX, UNION };

struct world {
    bool quest;
    double param[PARAMS];
    struct ha_shape shape;
    float k[LAYERS][BATCH][KV_HEADS][CAP][DIM]; /* as they are stored, too */
    char stored[LAYERS][BATCH][KV_HEADS * CAP * DIM * sizeof(float)];
    /* [batch][q_len][q_heads][head_dim], of which `ahead` is predicted; [batch][q_len][model_dim] */
    float q[STEPS][LAYERS][BATCH * ROWS * Q_HEADS * DIM], ahead[STEPS][LAYERS][BATCH * ROWS * Q_HEADS * DIM];
    float x[STEPS][LAYERS][BATCH * ROWS * MODEL], wq[LAYERS][Q_HEADS * DIM * MODEL], bias[LAYERS][Q_HEADS * DIM];
    struct ha_projection projection[LAYERS];
};
static struct world w;

/* what is used without a mistake, as far as it has been asked */
static struct {
    bool known, used[CAP];
} right[STEPS][LAYERS][BATCH][Q_HEADS];

static void keys_store(void)
{
    memset(right, 0, sizeof right);
    for (size_t i = 0; i < (size_t)LAYERS * BATCH; i++)
        ha_store_row(w.stored[i / BATCH][i % BATCH], KV_HEADS * CAP * DIM, w.shape.dtype,
                     (const float *)w.k[i / BATCH][i % BATCH]);
}

/* the queries of a layer from the inputs of the one before, in binary32 */
static void predict(size_t step, size_t layer)
{
    const struct ha_projection *p = &w.projection[layer];
    for (size_t row = 0; row < BATCH * w.shape.q_len; row++) {
        const float *x = w.x[step][layer - 1] + row * MODEL;
        float *q = w.ahead[step][layer] + row * Q_HEADS * DIM;
        const size_t token = CTX[row / w.shape.q_len] + step * w.shape.q_len + row % w.shape.q_len;
        for (size_t i = 0; i < (size_t)Q_HEADS * DIM; i++) {
            q[i] = p->bias[i];
            for (size_t j = 0; j < MODEL; j++) q[i] += p->wq[i * MODEL + j] * x[j];
        }
        for (size_t i = 0; i < (size_t)Q_HEADS * DIM; i += DIM)
            for (size_t j = 0; j < p->rotary / 2; j++) {
                const double angle = (double)token * (double)p->inv_freq[j];
                float *a = q + i + j, *b = a + p->rotary / 2;
                const float c = (float)cos(angle), s = (float)sin(angle), before = *a;
                *a = before * c - *b * s;
                *b = *b * c + before * s;
            }
    }
}

static void world_make(bool quest, const double *param, size_t q_len, enum ha_dtype dtype)
{
    static const float freq[] = { 1, 0.3f, 0.1f, 0.01f };
    w.quest = quest;
    memcpy(w.param, param, sizeof w.param);
    w.shape = (struct ha_shape){ .layers = LAYERS,
                                 .batch = BATCH,
                                 .q_heads = Q_HEADS,
                                 .kv_heads = KV_HEADS,
                                 .head_dim = DIM,
                                 .model_dim = MODEL,
                                 .dtype = dtype,
                                 .scale = 0.25f,
                                 .ctx = { CTX[0], CTX[1] },
                                 .q_len = q_len,
                                 .steps = STEPS };
    ha_rng_normals(SEED, 1, 0, sizeof w.k / sizeof(float), (float *)w.k);
    ha_rng_normals(SEED, 2, 0, sizeof w.q / sizeof(float), (float *)w.q);
    ha_rng_normals(SEED, 3, 0, sizeof w.x / sizeof(float), (float *)w.x);
    ha_rng_normals(SEED, 4, 0, sizeof w.wq / sizeof(float), (float *)w.wq);
    ha_rng_normals(SEED, 5, 0, sizeof w.bias / sizeof(float), (float *)w.bias);
    /* the last head's predictions, and what they may be off by, are of another size */
    for (size_t i = 0, last = (Q_HEADS - 1) * DIM * MODEL; i < LAYERS * (size_t)DIM * MODEL; i++)
        w.wq[i / (DIM * MODEL)][last + i % (DIM * MODEL)] *= 16;
    float *k = (float *)w.k;
    for (size_t i = 0; i < sizeof w.k / sizeof *k; i++) k[i] = ha_round(k[i], dtype);
    keys_store();
    for (size_t l = 0; l < LAYERS; l++)
        w.projection[l] = (struct ha_projection){
            .wq = w.wq[l], .bias = w.bias[l], .inv_freq = freq, .rotary = 2 * COUNT(freq), .rope_scale = 1
        };
    for (size_t s = 0; s < STEPS; s++)
        for (size_t l = 1; l < LAYERS; l++) predict(s, l);
}

/* ---- what a variant does, and what it can get wrong --------------------------------------- */

enum mistake {
    NO_MISTAKE,
    SWAPPED,
    ONE_LESS,
    ONE_MORE,
    NEW_MISSING,
    OTHER_HEAD,
    ONE_HEAD_ALONE,
    OTHER_KV_HEAD,
    OTHER_LAYER,
    OTHER_QUERY,
    OTHER_GROUP,
    LAST_QUERY,
    ON_HOST,
    TWO_PARTS,
    WEIGHED_OTHERWISE,
    HALF_BLOCK,
    STRAY_KEY,
    EARLY_DIGEST,
    OTHER_DIGEST,
    REST_MISSING,
    NOT_DENSE,
    MISTAKES
};
#define BOTH(text)       \
    {                    \
        text, text, text \
    }
static const struct {
    const char *name;
    const char *text[3]; /* what the reason says, by group; NULL: it cannot be made */
} MISTAKE[MISTAKES] = {
    [SWAPPED] = { "the next best for the last", { "was chosen, ", "was chosen, ", "is missing: it is among the" } },
    [ONE_LESS] = { "one less", { "is missing", "is missing", "is missing: it is among the" } },
    [ONE_MORE] = { "one more", { "is one too many", "is one too many", "is not among the" } },
    [NEW_MISSING] = { "a new token missing", BOTH("is missing: it is new") },
    [OTHER_HEAD] = { "the list of another head", { "was chosen, ", NULL, NULL } },
    [ONE_HEAD_ALONE] = { "a list for one head",
                         { NULL, "head 2: they have one choice", "head 2: they have one choice" } },
    [OTHER_KV_HEAD] = { "the list of another KV head", BOTH("") },
    [OTHER_LAYER] = { "the list of another layer", BOTH("") },
    [OTHER_QUERY] = { "the other query", BOTH("") },
    [OTHER_GROUP] = { "chosen by other heads", BOTH("") },
    [LAST_QUERY] = { "chosen by the last query token", BOTH("") },
    [ON_HOST] = { "on the host", BOTH("is on the host") },
    [TWO_PARTS] = { "two parts", BOTH("is in a second part") },
    [WEIGHED_OTHERWISE] = { "another query in the attention", BOTH("is not weighed by") },
    [HALF_BLOCK] = { "half a block", BOTH("is used in part") },
    [STRAY_KEY] = { "a key of another block", BOTH("is used in part") },
    [EARLY_DIGEST] = { "digests before the last key", BOTH("was chosen, ") },
    [OTHER_DIGEST] = { "the other digest", BOTH("was chosen, ") },
    [REST_MISSING] = { "a key behind the last block missing", BOTH("it is behind the last full block") },
    [NOT_DENSE] = { "a dense layer that is not", BOTH("the layer is dense") },
};

struct ask {
    size_t step, layer, seq, head;
    enum mistake mistake;
};

/* The score of keys [first, first + count) for a head: of one key, or by a digest. */
static float score_of(const struct ask *a, const double *param, size_t head, size_t first, size_t count)
{
    const bool ahead = !w.quest && param[QUERY] > 0 && a->layer > 0, mean = w.quest && param[DIGEST] > 0;
    float(*k)[DIM] = w.k[a->layer][a->seq][head / GROUP] + first;
    const size_t of = count > 1 && a->mistake == EARLY_DIGEST ? count - 1 : count;
    float most = -HUGE_VALF;
    for (size_t t = a->mistake == LAST_QUERY ? w.shape.q_len - 1 : 0; t < w.shape.q_len; t++) {
        const float *q = (ahead ? w.ahead : w.q)[a->step][a->layer];
        q += ((a->seq * w.shape.q_len + t) * Q_HEADS + head) * DIM;
        float sum = 0;
        for (size_t d = 0; d < DIM; d++) {
            float low = k[0][d], high = low, all = low;
            for (size_t i = 1; i < of; i++) {
                low = fminf(low, k[i][d]);
                high = fmaxf(high, k[i][d]);
                all += k[i][d];
            }
            sum += mean ? q[d] * ha_round(all / (float)of, w.shape.dtype) : fmaxf(q[d] * low, q[d] * high);
        }
        most = fmaxf(most, w.shape.scale * sum);
    }
    return most;
}

/* candidates best first, ties to the lower */
static void rank(const float *score, size_t count, size_t *order)
{
    for (size_t i = 0; i < count; i++) {
        size_t at = i;
        for (; at > 0 && score[order[at - 1]] < score[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
}

struct candidates {
    size_t count, size, want, order[CAP]; /* size: keys of each; order: of the last head, or of all together */
    bool taken[CAP];
};

static void choose(const struct ask *a, const double *param, struct candidates *c)
{
    const int group = (int)param[w.quest ? QUEST_GROUP : TOPK_GROUP];
    const size_t before = CTX[a->seq] + a->step * w.shape.q_len, first = a->head / GROUP * GROUP;
    float score[CAP], most[CAP];
    c->size = w.quest ? (size_t)param[BLOCK] : 1;
    c->count = before / c->size;
    c->want = w.quest ? (size_t)fmax(1, floor(param[BUDGET] / param[BLOCK])) : (size_t)param[K];
    if (c->want > c->count) c->want = c->count;
    memset(c->taken, 0, sizeof c->taken);
    for (size_t i = 0; i < c->count; i++) most[i] = -HUGE_VALF;
    for (size_t head = first; head < first + GROUP; head++) {
        if (group == HEAD && head != a->head) continue;
        for (size_t i = 0; i < c->count; i++) {
            score[i] = score_of(a, param, head, i * c->size, c->size);
            most[i] = fmaxf(most[i], score[i]);
        }
        rank(group == MAX ? most : score, c->count, c->order);
        if (group == MAX && head + 1 < first + GROUP) continue;
        for (size_t i = 0; i < c->want; i++) c->taken[c->order[i]] = true;
    }
}

/* The best that is not taken. */
static size_t next_best(const struct candidates *c)
{
    size_t i = 0;
    while (i < c->count && c->taken[c->order[i]]) i++;
    return i < c->count ? c->order[i] : c->order[0];
}

/* Mistakes are made in the last step, in the second sequence and KV head. */
static size_t first_wrong = GROUP; /* head */
static bool is_made(const struct ask *a)
{
    return a->step + 1 == STEPS && a->seq == 1 && a->head >= first_wrong
           && a->layer == (a->mistake == NOT_DENSE ? 0 : LAYERS - 1);
}

/* used: [tokens] */
static void used_by(struct ask a, bool *used)
{
    const size_t before = CTX[a.seq] + a.step * w.shape.q_len, tokens = before + w.shape.q_len;
    struct candidates c;
    double param[PARAMS];
    memcpy(param, w.param, sizeof param);
    if (!is_made(&a)) a.mistake = NO_MISTAKE;
    if (a.mistake == ONE_HEAD_ALONE && a.head % GROUP) param[w.quest ? QUEST_GROUP : TOPK_GROUP] = HEAD;
    if (a.mistake == OTHER_GROUP)
        param[w.quest ? QUEST_GROUP : TOPK_GROUP] = w.param[w.quest ? QUEST_GROUP : TOPK_GROUP] == MAX ? HEAD : MAX;
    if (a.mistake == OTHER_QUERY && !w.quest) param[QUERY] = 1 - param[QUERY];
    if (a.mistake == OTHER_DIGEST && w.quest) param[DIGEST] = 1 - param[DIGEST];
    const size_t layer = a.layer;
    if (a.mistake == OTHER_LAYER) a.layer--;
    if (a.mistake == OTHER_HEAD) a.head ^= 1;
    if (a.mistake == OTHER_KV_HEAD) a.head -= GROUP;
    choose(&a, param, &c);
    const size_t last = c.order[c.want - 1], next = next_best(&c);
    if (a.mistake == SWAPPED || a.mistake == ONE_LESS) c.taken[last] = false;
    if (a.mistake == SWAPPED || a.mistake == ONE_MORE) c.taken[next] = true;
    const bool dense = w.quest && (double)layer < param[DENSE_LAYERS] && a.mistake != NOT_DENSE;
    for (size_t j = 0; j < tokens; j++) {
        const size_t i = j / c.size;
        used[j] = dense || i >= c.count || j >= before || c.taken[i];
        if (a.mistake == HALF_BLOCK && c.size > 1 && j == last * c.size + 3) used[j] = false;
        if (a.mistake == STRAY_KEY && c.size > 1 && j == next * c.size + 3) used[j] = true;
        if (a.mistake == REST_MISSING && w.quest && i == c.count && j + 1 == before) used[j] = false;
        if (a.mistake == NEW_MISSING && j + 1 == tokens) used[j] = false;
    }
}

struct reporter {
    struct ask ask;
    bool wrong; /* something other than the rule has been reported */
    uint32_t token[CAP];
};

static const bool *right_of(struct ask a)
{
    a.mistake = NO_MISTAKE;
    bool *used = right[a.step][a.layer][a.seq][a.head].used, *known = &right[a.step][a.layer][a.seq][a.head].known;
    if (!*known) used_by(a, used);
    *known = true;
    return used;
}

static void report(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    static const float other[ROWS * DIM];
    struct reporter *r = arg;
    bool made[CAP];
    r->ask.seq = seq;
    r->ask.head = q_head;
    const enum mistake m = is_made(&r->ask) ? r->ask.mistake : NO_MISTAKE;
    const size_t tokens = CTX[seq] + (r->ask.step + 1) * w.shape.q_len;
    const bool *used = right_of(r->ask);
    if (m != NO_MISTAKE) {
        used_by(r->ask, made);
        r->wrong |= memcmp(made, used, tokens * sizeof *made) || m == ON_HOST || m == TWO_PARTS
                    || m == WEIGHED_OTHERWISE;
        used = made;
    }
    size_t count = 0;
    for (size_t j = 0; j < tokens; j++)
        if (used[j]) r->token[count++] = (uint32_t)j;
    out->parts = m == TWO_PARTS ? 2 : 1;
    out->part[0] = (struct ha_part){ .token = r->token, .count = count, .on_device = m != ON_HOST };
    if (m == WEIGHED_OTHERWISE) out->part[0].q = other;
    if (m != TWO_PARTS) return;
    out->part[1] = (struct ha_part){ .token = r->token + 1, .count = count - 1, .on_device = true };
    out->part[0].count = 1;
}

/* All steps with the mistake; *wrong: it shows in what is used. */
static enum ha_status run(enum mistake mistake, bool *wrong)
{
    const struct ha_definition *d = w.quest ? &ha_definition_quest : &ha_definition_topk;
    struct ha_def *def = NULL;
    struct reporter r = { .ask.mistake = mistake };
    why = (struct ha_why){ "" };
    enum ha_status status = d->create(&def, &w.shape, w.param, NULL, &why);
    for (size_t step = 0; step < STEPS; step++)
        for (size_t layer = 0; layer < LAYERS && status == HA_OK; layer++) {
            const void *const k[BATCH] = { w.stored[layer][0], w.stored[layer][1] };
            const size_t done = (step + 1) * w.shape.q_len, tokens[BATCH] = { CTX[0] + done, CTX[1] + done };
            const struct ha_def_step in = { .layer = layer,
                                            .q_len = w.shape.q_len,
                                            .q = w.q[step][layer],
                                            .x = w.x[step][layer],
                                            .projection = w.projection,
                                            .k = k,
                                            .tokens = tokens,
                                            .kv_cap = CAP };
            r.ask.step = step;
            r.ask.layer = layer;
            status = ha_definition_step(d, def, &w.shape, &in, report, &r, &why);
        }
    d->destroy(def);
    *wrong = r.wrong;
    return status;
}

static size_t seen[MISTAKES]; /* how often each has been refused */

static void try_all(const char *what)
{
    const int group = (int)w.param[w.quest ? QUEST_GROUP : TOPK_GROUP];
    bool wrong;
    for (enum mistake m = 0; m < MISTAKES; m++) {
        const char *text = m ? MISTAKE[m].text[group] : NULL;
        if (m && !text) continue;
        if ((m == SWAPPED || m == ONE_LESS) && w.param[w.quest ? BUDGET : K] > CAP) text = "is missing: all ";
        const enum ha_status status = run(m, &wrong);
        if (!wrong && status != HA_OK) fail_msg("%s, right: %s", what, why.text);
        if (!wrong) continue;
        if (status != HA_FAIL) fail_msg("%s: not refused: %s", what, MISTAKE[m].name);
        if (!strstr(why.text, text))
            fail_msg("%s, %s: \"%s\" does not say \"%s\"", what, MISTAKE[m].name, why.text, text);
        if (!strstr(why.text, "seq 1 head 2:") && !strstr(why.text, "seq 1 head 3:"))
            fail_msg("%s, %s: \"%s\" names another head", what, MISTAKE[m].name, why.text);
        seen[m]++;
    }
}

static void all_seen(enum mistake first, enum mistake end)
{
    for (enum mistake m = first; m < end; m++)
        if (seen[m] == 0) fail_msg("%s: never made", MISTAKE[m].name);
    memset(seen, 0, sizeof seen);
}

TEST(test_topk)
{
    static const double k[] = { 9, 9, 1, 1000 };
    for (size_t i = 0; i < (HA_SANITIZED ? 12 : 24); i++) {
        const double param[PARAMS] = { k[i / 6], (double)(i % 2), (double)(i / 2 % 3) };
        char what[96];
        world_make(false, param, i / 6 % 2 ? 3 : 1, (enum ha_dtype)(i % 3));
        snprintf(what, sizeof what, "k %g, query %g, group %g, q_len %zu, %s", param[K], param[QUERY],
                 param[TOPK_GROUP], w.shape.q_len, ha_dtype_name(w.shape.dtype));
        try_all(what);
    }
    all_seen(SWAPPED, HALF_BLOCK);
}

TEST(test_quest)
{
    static const double budget[] = { 17, 1, 1000 };
    for (size_t i = 0; i < (HA_SANITIZED ? 8 : 24); i++) {
        const double param[PARAMS] = { 8, budget[i / 8], 1, (double)(i % 2), (double)(i / 2 % 2) };
        char what[96];
        world_make(true, param, i / 4 % 2 ? 3 : 1, (enum ha_dtype)(i % 3));
        snprintf(what, sizeof what, "budget %g, digest %g, group %g, q_len %zu, %s", param[BUDGET], param[DIGEST],
                 param[QUEST_GROUP], w.shape.q_len, ha_dtype_name(w.shape.dtype));
        try_all(what);
    }
    seen[OTHER_QUERY] = 1; /* it has none */
    all_seen(SWAPPED, MISTAKES);
}

/* ---- a share of the blocks ------------------------------------------------------------------- */

#define BLOCK_0 0, 1, 2, 3, 4, 5, 6, 7
#define BLOCK_1 8, 9, 10, 11, 12, 13, 14, 15
#define BLOCK_2 16, 17, 18, 19, 20, 21, 22, 23

/* Three blocks of 8 keys: of weight 1; the largest among small ones; of weight 2. Three keys and a new one behind them.
 */
TEST(test_share)
{
    static const struct {
        double budget, mean;
        struct ha_test_report right, wrong;
        const char *text;
    } cases[] = {
        { 1e-6, 0, DEVICE(BLOCK_1, 24, 25, 26, 27), DEVICE(24, 25, 26, 27), "0 blocks chosen, the rule chooses 1" },
        { 0.33, 0, DEVICE(BLOCK_1, 24, 25, 26, 27), DEVICE(BLOCK_2, 24, 25, 26, 27), "block 1 (score 1.609" },
        { 1 / 3., 0, DEVICE(BLOCK_1, 24, 25, 26, 27), DEVICE(BLOCK_1, BLOCK_2, 24, 25, 26, 27),
          "2 blocks chosen, the rule chooses 1" },
        { 0.34, 0, DEVICE(BLOCK_1, BLOCK_2, 24, 25, 26, 27), DEVICE(BLOCK_1, 24, 25, 26, 27),
          "1 blocks chosen, the rule chooses 2: block 2" },
        { 0.67, 0, DEVICE(BLOCK_0, BLOCK_1, BLOCK_2, 24, 25, 26, 27), DEVICE(BLOCK_1, BLOCK_2, 24, 25, 26, 27),
          "block 0 is missing: all 3" },
        { 0.33, 1, DEVICE(BLOCK_2, 24, 25, 26, 27), DEVICE(BLOCK_1, 24, 25, 26, 27), "block 2 (score 0.693" },
        { 0.33, 0, DEVICE(BLOCK_1, 24, 25, 26, 27), DEVICE(BLOCK_1, 24, 26, 27),
          "key 25 is missing: it is behind the last full block" },
        { 0.33, 0, DEVICE(BLOCK_1, 24, 25, 26, 27), DEVICE(BLOCK_1, 24, 25, 26), "key 27 is missing: it is new" },
        { 0.33, 0, DEVICE(BLOCK_1, 24, 25, 26, 27), DEVICE(BLOCK_1, 17, 24, 25, 26, 27), "block 2 is used in part" },
        { 0.33, 0, DEVICE(BLOCK_1, 24, 25, 26, 27), SPLIT(KEYS(24, 25, 26, 27), KEYS(BLOCK_1)), "is on the host" },
    };
    double weight[24];
    for (size_t j = 0; j < 24; j++) weight[j] = j < 8 ? 1 : j == 11 ? 5 : j < 16 ? 0.01 : 2;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const double param[] = { 8, cases[i].budget, cases[i].mean, HEAD };
        const struct ha_test_step step = { 1, { 1 }, { cases[i].right } };
        struct ha_test_world one = ha_test_world(&ha_definition_gpu_only, param, 27, WEIGHTS(weight), NULL);
        ha_test_accept(&one, &step, 1);
        ha_test_reject(&one, &step, 1, &cases[i].wrong, cases[i].text);
    }
    static const double together[] = { 8, 0.33, 0, MAX };
    const struct ha_test_step two = { 1, { 1, 0.5f }, { cases[1].right, cases[1].right } };
    struct ha_test_world group = ha_test_world(&ha_definition_gpu_only, together, 27, WEIGHTS(weight), NULL);
    group.shape.q_heads = 2;
    ha_test_accept(&group, &two, 1);
    ha_test_reject(&group, &two, 1, REPORTS(cases[1].right, cases[1].wrong), "they have one choice");
}

/* ---- ties ---------------------------------------------------------------------------------- */

/* How much smaller a candidate may be than the last that is chosen, so that it may still be taken in its place. The
 * own query is the predicted one, and the keys of a block are the same, so that it makes no difference to a score by
 * which the choice is made. */
static double tie_up_to(bool quest, const double *param)
{
    const enum ha_dtype dtype = HA_F32;
    struct candidates c;
    bool wrong;
    world_make(quest, param, 1, dtype);
    const struct ask a = { .step = STEPS - 1, .layer = LAYERS - 1, .seq = 1, .head = Q_HEADS - 1 };
    memcpy(w.q[a.step][a.layer], w.ahead[a.step][a.layer], sizeof w.q[a.step][a.layer]);
    for (size_t j = 0; quest && j < CAP; j++)
        memcpy(w.k[a.layer][a.seq][a.head / GROUP][j], w.k[a.layer][a.seq][a.head / GROUP][j / 8 * 8],
               sizeof w.k[0][0][0][0]);
    choose(&a, w.param, &c);
    float(*k)[DIM] = w.k[a.layer][a.seq][a.head / GROUP];
    const size_t from = c.order[c.want - 1] * c.size, to = c.order[c.want] * c.size;
    double gap = 1e-9;
    for (; gap < 0.1; gap *= 1.2) {
        for (size_t i = 0; i < c.size * DIM; i++)
            k[to + i / DIM][i % DIM] = ha_round((float)((double)k[from + i / DIM][i % DIM] * (1 - gap)), dtype);
        keys_store();
        first_wrong = a.head;
        if (run(SWAPPED, &wrong) != HA_OK) break;
    }
    first_wrong = GROUP;
    if (!strstr(why.text, "was chosen, ")) fail_msg("%s", why.text);
    return gap;
}

/* As far as binary32 may err, and no farther: further where a prediction or a mean errs, too. */
TEST(test_rounding)
{
    static const double own[PARAMS] = { 9, 0, HEAD }, ahead[PARAMS] = { 9, 1, HEAD };
    static const double range[PARAMS] = { 8, 16, 0, 0, HEAD }, mean[PARAMS] = { 8, 16, 0, 1, HEAD };
    const double key = tie_up_to(false, own), predicted = tie_up_to(false, ahead), block = tie_up_to(true, range),
                 average = tie_up_to(true, mean);
    if (!(key > 1e-6 && key < 3e-5 && predicted > 2 * key && predicted < 1e-3))
        fail_msg("ties up to %g by the query, %g by its prediction", key, predicted);
    if (!(block > 1e-6 && block < 3e-5 && average > 1.3 * block && average < 1e-3))
        fail_msg("ties up to %g by the range, %g by the mean", block, average);
}

/* A mean halfway between two numbers of bf16 may be either of them. */
TEST(test_mean_rounded)
{
    static const double param[PARAMS] = { 8, 8, 0, 1, HEAD };
    static const float near[] = { 1, 1 + 0x1p-7f };
    const struct ask a = { .step = STEPS - 1, .layer = LAYERS - 1, .seq = 1, .head = Q_HEADS - 1 };
    for (int other = 0; other < 2; other++)
        for (enum mistake m = NO_MISTAKE; m <= SWAPPED; m++) {
            bool wrong;
            world_make(true, param, 1, HA_BF16);
            const float *q = w.q[a.step][a.layer] + (a.seq * Q_HEADS + a.head) * DIM;
            float(*k)[DIM] = w.k[a.layer][a.seq][a.head / GROUP];
            for (size_t i = 0; i < (size_t)8 * DIM; i++) {
                const float sign = q[i % DIM] < 0 ? -1 : 1;
                k[16 + i / DIM][i % DIM] = sign * near[i / DIM % 2];
                k[32 + i / DIM][i % DIM] = sign * near[other];
            }
            keys_store();
            first_wrong = a.head;
            const enum ha_status status = run(m, &wrong);
            first_wrong = GROUP;
            if (status != HA_OK || wrong != (m == SWAPPED)) fail_msg("beside %g: %s", (double)near[other], why.text);
        }
}

/* Equal scores: either is right. */
TEST(test_equal)
{
    static const double param[] = { 2, 0, HEAD };
    static const double weight[6] = { 1, 3, 2, 1, 2, 1 };
    static const struct ha_test_step step = { 1, { 1 }, { DEVICE(1, 2, 6) } };
    struct ha_test_world one = ha_test_world(&ha_definition_topk, param, 6, WEIGHTS(weight), NULL);
    ha_test_accept(&one, &step, 1);
    assert_int_equal(ha_test_other(&one, &step, 1, REPORTS(DEVICE(1, 4, 6)), &why), HA_OK);
    ha_test_reject(&one, &step, 1, REPORTS(DEVICE(2, 4, 6)),
                   "key 4 (score 0.693147182) was chosen, key 1 (score 1.09861231) was not");
    ha_test_reject(&one, &step, 1, REPORTS(DEVICE(1, 2, 4, 6)), "3 keys chosen, the rule chooses 2: key 4");
    ha_test_reject(&one, &step, 1, REPORTS(DEVICE(1, 6)), "1 keys chosen, the rule chooses 2: key 2");
}

/* Three scores so close that rounding may swap neighbours, not the first with the third. */
TEST(test_near)
{
    static const double param[] = { 2, 0, HEAD };
    static const struct ha_test_step step = { 1, { 1 }, { DEVICE(2, 3, 6) } };
    bool found = false;
    for (double gap = 1e-8; gap < 1e-3 && !found; gap *= 1.1) {
        struct ha_test_world one = ha_test_world(&ha_definition_topk, param, 6, EVEN, NULL);
        for (int j = 0; j < 3; j++) one.key[0][0][2 + j] = (float)(1 - gap * j);
        found = ha_test_other(&one, &step, 1, REPORTS(DEVICE(2, 4, 6)), &why) == HA_OK
                && ha_test_other(&one, &step, 1, REPORTS(DEVICE(3, 4, 6)), &why) == HA_FAIL;
    }
    assert_true(found);
}

/* One key for each of two heads, whose queries have opposite signs; then three that are as good as each other. */
TEST(test_union)
{
    static const double param[] = { 1, 0, UNION };
    static const double weight[6] = { 1, 3, 1, 0.1, 1, 1 }, ties[6] = { 3, 3, 3, 1, 1, 1 };
    static const struct ha_test_step apart = { 1, { 1, -1 }, { DEVICE(1, 3, 6), DEVICE(1, 3, 6) } },
                                     alike = { 1, { 1, 1 }, { DEVICE(0, 1, 6), DEVICE(0, 1, 6) } };
    struct ha_test_world two = ha_test_world(&ha_definition_topk, param, 6, WEIGHTS(weight), NULL);
    two.shape.q_heads = 2;
    ha_test_accept(&two, &apart, 1);
    ha_test_reject(&two, &apart, 1, REPORTS(DEVICE(1, 6), DEVICE(1, 6)),
                   "key 3 is missing: it is among the 1 best of head 1");
    ha_test_reject(&two, &apart, 1, REPORTS(DEVICE(1, 3, 4, 6), DEVICE(1, 3, 4, 6)),
                   "key 4 is not among the 1 best of any");
    ha_test_reject(&two, &apart, 1, REPORTS(DEVICE(1, 3, 6), DEVICE(1, 6)),
                   "head 1: key 3 is missing and chosen by head 0");
    two = ha_test_world(&ha_definition_topk, param, 6, WEIGHTS(ties), NULL);
    two.shape.q_heads = 2;
    ha_test_accept(&two, &alike, 1);
    assert_int_equal(ha_test_other(&two, &alike, 1, REPORTS(DEVICE(2, 6), DEVICE(2, 6)), &why), HA_OK);
    ha_test_reject(&two, &alike, 1, REPORTS(DEVICE(0, 1, 2, 6), DEVICE(0, 1, 2, 6)),
                   "key 2 has no place among the 1 of each head");
    ha_test_reject(&two, &alike, 1, REPORTS(DEVICE(6), DEVICE(6)), "0 keys may be the 1 best of head 0");
}

/* ---- a choice by intervals ------------------------------------------------------------------ */

enum { FEW = 8 };
#define AT(x) BETWEEN(x, x)
#define BETWEEN(a, b)                                      \
    {                                                      \
        .value = ((a) + (b)) / 2., .low = (a), .high = (b) \
    }

/* taken: as bits */
static enum ha_status judge_taken(enum ha_def_group group, size_t heads, size_t count, size_t want,
                                  struct ha_ref_score score[][FEW], unsigned taken)
{
    const struct ha_def_head h = { .variant = "test" };
    struct ha_def_choice c = { .what = "key", .group = group };
    why = (struct ha_why){ "" };
    assert_int_equal(ha_def_choice_begin(&c, heads, count, &why), HA_OK);
    for (size_t head = 0; head < heads; head++)
        for (size_t i = 0; i < count; i++) ha_def_choice_score(&c, head, i, score[head][i]);
    for (size_t i = 0; i < count; i++) c.taken[i] = taken >> i & 1;
    const enum ha_status status = ha_def_choice_judge(&c, &h, want, &why);
    ha_def_choice_end(&c);
    return status;
}

static void refuse_union(size_t heads, size_t count, size_t want, struct ha_ref_score score[][FEW], unsigned taken,
                         const char *text)
{
    assert_int_equal(judge_taken(HA_DEF_UNION, heads, count, want, score, taken), HA_FAIL);
    if (!strstr(why.text, text)) fail_msg("\"%s\" does not say \"%s\"", why.text, text);
}

/* Two that only the first head may have, which has one slot; the second has two that it does not need. */
TEST(test_slots)
{
    struct ha_ref_score score[4][FEW] = {
        { AT(9), AT(5), AT(5), AT(5), AT(1), AT(1) },
        { AT(5), AT(1), AT(1), AT(1), AT(5), AT(5) },
        { AT(5), AT(1), AT(1), AT(1), AT(5), AT(5) },
    };
    refuse_union(2, 6, 2, score, 0x17, "key 2 has no place among the 2 of each head");
    refuse_union(3, 6, 2, score, 0x37, "key 2 has no place among the 2 of each head");
    assert_int_equal(judge_taken(HA_DEF_UNION, 2, 6, 2, score, 0x33), HA_OK);
    assert_int_equal(judge_taken(HA_DEF_UNION, 3, 6, 2, score, 0x33), HA_OK);
    /* key 2 has only head 0, from which key 0 moves to head 1, and from there key 1 to head 2 */
    struct ha_ref_score chain[4][FEW] = {
        { AT(5), AT(1), AT(5), AT(1), AT(1) },
        { AT(5), AT(5), AT(1), AT(1), AT(1) },
        { AT(1), AT(5), AT(1), AT(5), AT(1) },
        { AT(1), AT(1), AT(1), AT(5), AT(5) },
    };
    assert_int_equal(judge_taken(HA_DEF_UNION, 4, 5, 1, chain, 0x0f), HA_OK);
    refuse_union(3, 5, 1, chain, 0x0f, "has no place among the 1 of each head");
    refuse_union(4, 5, 1, chain, 0x1f, "has no place among the 1 of each head");
    /* key 3 moves keys 0 and 1 to heads 1 and 2; key 5 then moves key 0 from head 1 to 3, and key 2 to head 4 */
    struct ha_ref_score twice[6][FEW] = {
        { AT(5), AT(1), AT(1), AT(5), AT(1), AT(1) }, { AT(5), AT(5), AT(1), AT(1), AT(1), AT(5) },
        { AT(1), AT(5), AT(1), AT(1), AT(5), AT(1) }, { AT(5), AT(1), AT(5), AT(1), AT(1), AT(1) },
        { AT(1), AT(1), AT(5), AT(1), AT(5), AT(1) }, { AT(1), AT(1), AT(1), AT(1), AT(9), AT(1) },
    };
    assert_int_equal(judge_taken(HA_DEF_UNION, 6, 6, 1, twice, 0x3f), HA_OK);
}

/* The first is smaller than the second for certain, and is not taken without it. */
TEST(test_pairs)
{
    struct ha_ref_score score[1][FEW] = { { AT(5), BETWEEN(6, 6.5), BETWEEN(1, 7), BETWEEN(1, 7) } };
    refuse_union(1, 4, 2, score, 0x5, "1 keys may be the 2 best of head 0");
    assert_int_equal(judge_taken(HA_DEF_HEAD, 1, 4, 2, score, 0x5), HA_FAIL);
    assert_int_equal(judge_taken(HA_DEF_UNION, 1, 4, 2, score, 0x3), HA_OK);
    assert_int_equal(judge_taken(HA_DEF_UNION, 1, 4, 2, score, 0xc), HA_OK);
    struct ha_ref_score two[2][FEW] = { { AT(5), BETWEEN(6, 6.5), BETWEEN(1, 7), BETWEEN(1, 7) },
                                        { AT(1), AT(1), AT(5), AT(5) } };
    refuse_union(2, 4, 2, two, 0xd, "key 0 has no place among the 2 of each head");
}

/* Whether `heads` choices of `want`, each with all that are larger for certain, are the taken ones together. */
static bool is_union(size_t heads, size_t count, size_t want, struct ha_ref_score score[][FEW], unsigned taken,
                     unsigned have)
{
    if (heads == 0) return have == taken;
    const struct ha_ref_score *of = score[heads - 1];
    for (unsigned own = 0; own < 1U << count; own++) {
        bool may = !(own & ~taken) && (size_t)__builtin_popcount(own) == want;
        for (size_t i = 0; i < count && may; i++)
            for (size_t j = 0; j < count && may; j++) may = !(own >> i & 1) || own >> j & 1 || of[i].high >= of[j].low;
        if (may && is_union(heads - 1, count, want, score, taken, have | own)) return true;
    }
    return false;
}

/* Of all that may be taken: what some choices of the heads explain is accepted, and nothing else where one head chooses
 * or scores are known, as they are in every other case. */
TEST(test_every_union)
{
    enum { TIMES = HA_SANITIZED ? 4 : 60, CANDIDATES = 5 };
    size_t more = 0, unions = 0;
    for (uint64_t n = 0; n < TIMES; n++)
        for (size_t heads = 1; heads <= 3; heads++) {
            struct ha_ref_score score[3][FEW];
            float x[2 * 3 * FEW];
            ha_rng_normals(SEED, 6, n * COUNT(x), COUNT(x), x);
            for (size_t i = 0; i < (size_t)3 * FEW; i++) {
                const double low = floor((n % 2 ? 2 : 1) * (double)x[2 * i]),
                             wide = n % 2 ? floor(fabs(2 * (double)x[2 * i + 1])) : 0;
                score[i / FEW][i % FEW] = (struct ha_ref_score){ low, low, low + wide };
            }
            const size_t want = 1 + n % 3;
            for (unsigned taken = 0; taken < 1U << CANDIDATES; taken++) {
                const bool is = is_union(heads, CANDIDATES, want, score, taken, 0),
                           said = judge_taken(HA_DEF_UNION, heads, CANDIDATES, want, score, taken) == HA_OK;
                if (is ? !said : said && (heads == 1 || n % 2 == 0))
                    fail_msg("case %zu, %zu heads, taken %#x: %s %s", (size_t)n, heads, taken,
                             is ? "refused:" : "accepted", why.text);
                unions += is;
                more += said && !is;
                const bool list = judge_taken(HA_DEF_HEAD, 1, CANDIDATES, want, score, taken) == HA_OK;
                if (heads == 1 && list != is) fail_msg("case %zu, a list, taken %#x", (size_t)n, taken);
            }
        }
    if (more * 50 > unions) fail_msg("%zu accepted that are none, beside %zu that are", more, unions);
}

/* ---- what cannot be judged ------------------------------------------------------------------ */

TEST(test_no_input)
{
    static const double ahead[PARAMS] = { 9, 1, HEAD };
    bool wrong;
    world_make(false, ahead, 1, HA_F32);
    w.shape.model_dim = 0;
    struct ha_def *def = NULL;
    assert_int_equal(ha_definition_topk.create(&def, &w.shape, w.param, NULL, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "query=ahead needs layer inputs"));
    assert_null(def);
    world_make(false, ahead, 1, HA_F32);
    w.projection[1].wq = NULL;
    assert_int_equal(run(NO_MISTAKE, &wrong), HA_ERROR);
    assert_non_null(strstr(why.text, "query=ahead needs layer inputs"));
}

/* Scores that may overflow say nothing: every choice of the right number is right. */
TEST(test_huge)
{
    static const double param[] = { 1, 0, HEAD };
    static const struct ha_test_step step = { 1, { 2 }, { DEVICE(1, 4) } };
    struct ha_test_world one = ha_test_world(&ha_definition_topk, param, 4, EVEN, NULL);
    for (size_t j = 0; j < 5; j++) one.key[0][0][j] = j == 1 ? 3e38f : 2e38f;
    ha_test_accept(&one, &step, 1);
    assert_int_equal(ha_test_other(&one, &step, 1, REPORTS(DEVICE(2, 4)), &why), HA_OK);
    ha_test_reject(&one, &step, 1, REPORTS(DEVICE(1, 2, 4)), "2 keys chosen");
}

/* Nor does a mean whose sum may overflow: of 6e37, not of 1e37 or 2e37. */
TEST(test_huge_mean)
{
    static const double param[] = { 8, 8, 0, 1, HEAD };
    static const float of[] = { 6e37f, 1e37f, 2e37f };
    static const struct ha_test_step step = { 1, { 1 }, { DEVICE(0, 1, 2, 3, 4, 5, 6, 7, 24) } };
    struct ha_test_world one = ha_test_world(&ha_definition_quest, param, 24, EVEN, NULL);
    for (size_t j = 0; j < 24; j++) one.key[0][0][j] = of[j / 8];
    ha_test_accept(&one, &step, 1);
    assert_int_equal(ha_test_other(&one, &step, 1, REPORTS(DEVICE(16, 17, 18, 19, 20, 21, 22, 23, 24)), &why), HA_OK);
    ha_test_reject(&one, &step, 1, REPORTS(DEVICE(8, 9, 10, 11, 12, 13, 14, 15, 24)),
                   "block 1 (score 9.99999993e+36) was chosen");
}
