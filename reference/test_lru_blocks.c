/* The definition of lru_blocks against a plain simulation with lists of its own: it accepts that one, with every
 * option, and sees its mistakes. */

#include "reference/definitions.h"
#include "reference/test_says.h"

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"

#include <math.h>

extern const struct ha_definition ha_definition_lru_blocks;

enum { LAYERS = 2, BATCH = 2, Q_HEADS = 4, KV_HEADS = 2, GROUP = Q_HEADS / KV_HEADS, DIM = 8 };
enum { STEPS = 24, ROWS = 2, CAP = 400, BLOCKS = CAP / 8, SEED = 7, FROM = 1 };
enum { BLOCK, BUDGET, CAPACITY, SINK, RECENT, POLICY, LOOKUP, DIGEST, FETCH, PARAMS };
enum { LRU, LFU };

static struct {
    double param[PARAMS];
    struct ha_shape shape;
    size_t q_len;
    float k[LAYERS][BATCH][KV_HEADS][CAP][DIM], q[STEPS][LAYERS][BATCH][ROWS][Q_HEADS][DIM];
    char stored[LAYERS][BATCH][KV_HEADS * CAP * DIM * sizeof(float)];
} world, *const w = &world;
static struct ha_why why;

enum mistake {
    NO_MISTAKE,
    SINK_MISSING,
    RECENT_MISSING,
    NEW_MISSING,
    SINK_TWICE,
    RECENT_TWICE,
    GAP_USED,
    ON_HOST,
    TWO_PARTS,
    HALF_A_BLOCK,
    BLOCK_MORE,
    BLOCK_LESS,
    SWAPPED,
    OTHER_HEAD,
    EACH_HEAD,
    OTHER_DIGEST,
    LAST_TOKEN,
    WHOLE_BLOCKS_OF_ALL,
    NO_HITS_NOTE,
    NO_REPLACED_NOTE,
    HITS_OF_HEAD,
    REPLACED_OF_HEAD,
    HITS_MORE,
    HITS_LESS,
    HITS_AFTER,
    REPLACED_MORE,
    VICTIM_NEXT,
    VICTIM_NEWEST,
    VICTIM_CHOSEN,
    FALLING_ORDER,
    MISSED_FIRST,
    NOT_PROMOTED,
    OTHER_POLICY,
    COUNT_KEPT,
    SLOT_MORE,
    SLOT_LESS,
    CACHE_OF_HEAD,
    MISTAKES
};
static const struct {
    const char *name, *text;
} MISTAKE[MISTAKES] = {
    [SINK_MISSING] = { "a key of the sink missing", "is missing: it is of the sink" },
    [RECENT_MISSING] = { "a recent key missing", "is missing: it is recent" },
    [NEW_MISSING] = { "a new key missing", "is missing: it is new" },
    [SINK_TWICE] = { "a key of the sink in the cache, too", "is used twice" },
    [RECENT_TWICE] = { "a recent key in the cache, too", "is used twice" },
    [GAP_USED] = { "a key of a block that is not whole", "its block is not whole" },
    [ON_HOST] = { "keys on the host", "is on the host" },
    [TWO_PARTS] = { "two parts", "is in a second part" },
    [HALF_A_BLOCK] = { "half a block", "is used in part" },
    [BLOCK_MORE] = { "a block more", "is one too many" },
    [BLOCK_LESS] = { "a block less", "is missing" },
    [SWAPPED] = { "the next best block", "was chosen, block" },
    [OTHER_HEAD] = { "another head's blocks", "was chosen, block" },
    [EACH_HEAD] = { "a choice of each head", "was chosen, block|they have one choice" },
    [OTHER_DIGEST] = { "the other digest", "was chosen, block" },
    [LAST_TOKEN] = { "a choice by the last token", "was chosen, block" },
    [WHOLE_BLOCKS_OF_ALL] = { "a share of all blocks", "is one too many" },
    [NO_HITS_NOTE] = { "no note hits", "note hits is nan" },
    [NO_REPLACED_NOTE] = { "no note replaced", "note replaced is nan" },
    [HITS_OF_HEAD] = { "hits of one head", "note hits is" },
    [REPLACED_OF_HEAD] = { "replaced of one head", "note replaced is" },
    [HITS_MORE] = { "a hit more", "note hits is" },
    [HITS_LESS] = { "a hit less", "note hits is" },
    [HITS_AFTER] = { "hits counted after the update", "note hits is" },
    [REPLACED_MORE] = { "a victim more", "note replaced is" },
    [VICTIM_NEXT] = { "the victim next to the last", "note hits is|note replaced is" },
    [VICTIM_NEWEST] = { "the victim at the other end", "note hits is|note replaced is" },
    [VICTIM_CHOSEN] = { "a victim that the step has chosen", "note hits is|note replaced is" },
    [FALLING_ORDER] = { "chosen blocks in falling order", "note hits is|note replaced is" },
    [MISSED_FIRST] = { "found blocks after those that were not", "note hits is|note replaced is" },
    [NOT_PROMOTED] = { "found blocks where they were", "note hits is|note replaced is" },
    [OTHER_POLICY] = { "the other policy", "note hits is|note replaced is" },
    [COUNT_KEPT] = { "a count kept after the eviction", "note hits is|note replaced is" },
    [SLOT_MORE] = { "a slot more", "note hits is|note replaced is" },
    [SLOT_LESS] = { "a slot less", "note hits is|note replaced is" },
    [CACHE_OF_HEAD] = { "another head's cache", "note hits is|note replaced is" },
};

struct told {
    uint8_t part[CAP];
    double hits, replaced;
    enum mistake of;
};
typedef struct told table[STEPS][LAYERS][BATCH][Q_HEADS];
static table right, other;

/* ---- the simulation ---------------------------------------------------------------------------------------------- */

/* Blocks in the order of their use, the oldest first. */
struct list {
    size_t block[BLOCKS], count;
    double uses[BLOCKS]; /* of each block */
};

static size_t size_of(void) { return (size_t)w->param[BLOCK]; }
static size_t blocks_of(double n)
{
    const double left = n - w->param[SINK] - w->param[RECENT];
    return left < 0 ? 0 : (size_t)left / size_of();
}

static void take(struct list *l, size_t at)
{
    memmove(&l->block[at], &l->block[at + 1], (l->count - at - 1) * sizeof *l->block);
    l->count--;
}

static size_t place(const struct list *l, size_t block)
{
    size_t at = 0;
    while (at < l->count && l->block[at] != block) at++;
    return at;
}

/* where the victim is; chosen: those that must stay */
static size_t victim(enum mistake m, const struct list *l, const bool *chosen)
{
    const bool lfu = (w->param[POLICY] > LRU) != (m == OTHER_POLICY);
    size_t first = l->count, second = l->count;
    for (size_t i = 0; i < l->count; i++) {
        const size_t at = m == VICTIM_NEWEST ? l->count - 1 - i : i;
        if (chosen[l->block[at]] && m != VICTIM_CHOSEN) continue;
        if (first == l->count || (lfu && l->uses[l->block[at]] < l->uses[l->block[first]])) second = first, first = at;
        else if (second == l->count) second = at;
    }
    return m == VICTIM_NEXT && second < l->count ? second : first;
}

static void update(enum mistake m, struct list *l, const bool *chosen, size_t count, size_t slots, struct told *t)
{
    bool found[BLOCKS] = { false };
    if (m == SLOT_MORE) slots++;
    if (m == SLOT_LESS) slots--;
    for (size_t b = 0; b < count; b++) {
        found[b] = chosen[b] && place(l, b) < l->count;
        t->hits += found[b];
    }
    for (size_t b = 0; b < count; b++) {
        if (!chosen[b] || found[b]) continue;
        if (l->count >= slots) {
            const size_t at = victim(m, l, chosen);
            if (at == l->count) continue;
            if (m != COUNT_KEPT) l->uses[l->block[at]] = 0;
            take(l, at);
            t->replaced++;
        }
        if (m == HITS_AFTER && l->count + 1 == slots) t->hits++;
        l->block[l->count++] = b;
    }
    for (size_t i = 0; i < 2 * count; i++) {
        const size_t b = m == FALLING_ORDER ? count - 1 - i % count : i % count;
        const bool now = m == MISSED_FIRST ? found[b] == (i >= count) : i < count;
        if (!chosen[b] || !now || place(l, b) == l->count) continue;
        l->uses[b]++;
        if (m == NOT_PROMOTED && found[b]) continue;
        take(l, place(l, b));
        l->block[l->count++] = b;
    }
}

struct ask {
    enum mistake of;
    size_t step, layer, seq, kv;
};

static double score(const struct ask *a, const float *q, size_t block)
{
    const bool by_mean = (w->param[DIGEST] > 0) != (a->of == OTHER_DIGEST);
    float(*k)[DIM] = w->k[a->layer][a->seq][a->kv] + (size_t)w->param[SINK] + block * size_of();
    double sum = 0;
    for (size_t d = 0; d < DIM; d++) {
        float least = INFINITY, most = -INFINITY, mean = 0;
        for (size_t j = 0; j < size_of(); j++) {
            least = fminf(least, k[j][d]);
            most = fmaxf(most, k[j][d]);
            mean += k[j][d];
        }
        mean = ha_round(mean / (float)size_of(), w->shape.dtype);
        sum += by_mean ? (double)(q[d] * mean) : fmax((double)(q[d] * least), (double)(q[d] * most));
    }
    return (double)w->shape.scale * sum;
}

/* each: this query head alone; GROUP: all */
static void choose(const struct ask *a, size_t count, size_t each, size_t want, bool *chosen)
{
    double best[BLOCKS];
    const size_t kv = a->of == OTHER_HEAD ? 0 : a->kv;
    for (size_t b = 0; b < count; b++) {
        best[b] = -HUGE_VAL;
        chosen[b] = false;
        for (size_t row = a->of == LAST_TOKEN ? w->q_len - 1 : 0; row < w->q_len; row++)
            for (size_t g = 0; g < GROUP; g++)
                if (each == GROUP || each == g)
                    best[b] = fmax(best[b], score(a, w->q[a->step][a->layer][a->seq][row][kv * GROUP + g], b));
    }
    size_t last = count;
    for (size_t i = 0; i < want + (a->of == SWAPPED) && i < count; i++) {
        size_t at = count;
        for (size_t b = 0; b < count; b++)
            if (!chosen[b] && (at == count || best[b] > best[at])) at = b;
        chosen[at] = true;
        if (i + 1 == want && want < count) last = at;
    }
    if (a->of == SWAPPED && last < count) chosen[last] = false;
}

static void part_of(const struct ask *a, const bool *chosen, size_t count, struct told *t)
{
    const size_t n = w->shape.ctx[a->seq] + a->step * w->q_len, sink = (size_t)w->param[SINK], size = size_of();
    const double recent = (double)n - w->param[RECENT];
    for (size_t j = 0; j < n + w->q_len; j++)
        t->part[j] = j < sink || (double)j >= recent || ((j - sink) / size < count && chosen[(j - sink) / size]);
    const size_t gap = sink + count * size;
    if (a->of == SINK_MISSING && sink && n > sink) t->part[sink - 1] = 0;
    if (a->of == RECENT_MISSING && n > sink && w->param[RECENT] > 0) t->part[n - 1] = 0;
    if (a->of == NEW_MISSING && n >= sink) t->part[n] = 0;
    if (a->of == SINK_TWICE && sink && n > sink) t->part[0] = 2;
    if (a->of == RECENT_TWICE) t->part[n - 1] = 2;
    if (a->of == GAP_USED && (double)gap < recent) t->part[gap] = 1;
    for (size_t b = 0; b < count && a->of == HALF_A_BLOCK; b++)
        if (chosen[b]) memset(t->part + sink + b * size, 0, size / 2);
}

static size_t k_of(size_t seq, bool all)
{
    const double n = (double)(all ? w->shape.ctx[seq] / size_of() : blocks_of((double)w->shape.ctx[seq]));
    const double k = ceil(w->param[BUDGET] * n - 1e-9);
    return k < 1 ? 1 : (size_t)k;
}

/* A mistake is made in the first sequence of the last layer, of its last KV head, from step FROM on. */
static void simulate(enum mistake m, table out)
{
    for (size_t i = 0; i < LAYERS * BATCH; i++) {
        static struct list list[KV_HEADS];
        memset(list, 0, sizeof list);
        for (size_t step = 0; step < STEPS; step++)
            for (size_t kv = 0; kv < KV_HEADS; kv++) {
                const bool here = i == (LAYERS - 1) * BATCH && kv == KV_HEADS - 1 && step >= FROM;
                const struct ask a = { here ? m : NO_MISTAKE, step, i / BATCH, i % BATCH, kv };
                const size_t count = blocks_of((double)(w->shape.ctx[a.seq] + step * w->q_len)), k = k_of(a.seq, false);
                size_t want = k_of(a.seq, a.of == WHOLE_BLOCKS_OF_ALL);
                if (a.of == BLOCK_MORE) want++;
                if (a.of == BLOCK_LESS) want--;
                struct told one = { .of = a.of };
                bool chosen[BLOCKS];
                struct list first = list[0], *l = a.of == CACHE_OF_HEAD ? &first : &list[kv];
                choose(&a, count, GROUP, want, chosen);
                update(a.of, l, chosen, count, (size_t)(w->param[CAPACITY] * (double)k), &one);
                if (a.of == HITS_MORE) one.hits++;
                if (a.of == HITS_LESS) one.hits--;
                if (a.of == REPLACED_MORE) one.replaced++;
                if (a.of == NO_HITS_NOTE) one.hits = (double)NAN;
                if (a.of == NO_REPLACED_NOTE) one.replaced = (double)NAN;
                for (size_t g = 0; g < GROUP; g++) {
                    struct told *t = &out[step][a.layer][a.seq][kv * GROUP + g];
                    if (a.of == EACH_HEAD) choose(&a, count, g, want, chosen);
                    *t = one;
                    if (a.of == HITS_OF_HEAD) t->hits += (double)g;
                    if (a.of == REPLACED_OF_HEAD) t->replaced += (double)g;
                    part_of(&a, chosen, count, t);
                }
            }
    }
}

static void make(const double *param, const size_t *ctx, size_t q_len, enum ha_dtype dtype)
{
    memcpy(w->param, param, sizeof w->param);
    w->q_len = q_len;
    w->shape = (struct ha_shape){ .layers = LAYERS,
                                  .batch = BATCH,
                                  .q_heads = Q_HEADS,
                                  .kv_heads = KV_HEADS,
                                  .head_dim = DIM,
                                  .dtype = dtype,
                                  .scale = 0.35f,
                                  .ctx = { ctx[0], ctx[1] },
                                  .q_len = q_len,
                                  .steps = STEPS };
    ha_rng_normals(SEED, 1, 0, sizeof w->k / sizeof(float), (float *)w->k);
    ha_rng_normals(SEED, 2, 0, sizeof w->q / sizeof(float), (float *)w->q);
    for (size_t l = 0; l < LAYERS * BATCH; l++) {
        float *of = (float *)w->k[l / BATCH][l % BATCH];
        for (size_t j = 0; j < KV_HEADS * CAP * DIM; j++) of[j] = ha_round(of[j], dtype);
        ha_store_row(w->stored[l / BATCH][l % BATCH], KV_HEADS * CAP * DIM, dtype, of);
    }
    /* Queries drift, and come back to where they were. */
    for (size_t step = 1; step < STEPS; step++)
        for (size_t i = 0; i < sizeof w->q[0] / sizeof(float); i++) {
            float *now = (float *)w->q[step] + i;
            *now = 0.85f * ((float *)w->q[step % 5 == 4 ? step / 2 : step - 1])[i] + 0.5f * *now;
        }
}

/* ---- what the definition says of it ------------------------------------------------------------------------------ */

struct reporter {
    struct told (*of)[Q_HEADS];
    uint32_t token[2 * CAP];
};

static void report(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    struct reporter *r = arg;
    const struct told *t = &r->of[seq][q_head];
    size_t count = 0;
    for (size_t j = CAP; j-- > 0;)
        for (size_t i = 0; i < t->part[j]; i++) r->token[count++] = (uint32_t)j;
    out->parts = 1;
    out->part[0] = (struct ha_part){ .token = r->token, .count = count, .on_device = t->of != ON_HOST };
    if (t->of == TWO_PARTS) {
        out->part[0].count--;
        out->part[out->parts++] = (struct ha_part){ .token = r->token + count - 1, .count = 1, .on_device = true };
    }
    if (!isnan(t->hits)) out->note[out->notes++] = (struct ha_note){ "hits", t->hits };
    if (!isnan(t->replaced)) out->note[out->notes++] = (struct ha_note){ "replaced", t->replaced };
}

static double met[2][3]; /* by policy: hits, misses, replaced */

struct counts {
    double is[LAYERS][3];
    size_t said;
};

static void say(void *arg, const char *name, size_t layer, double least, double most)
{
    static const char *const names[] = { "hits", "misses", "replaced" };
    struct counts *c = arg;
    for (size_t i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        c->said++;
        met[(size_t)w->param[POLICY]][i] += c->is[layer][i];
        if (!(least == c->is[layer][i] && most == c->is[layer][i]))
            fail_msg("%s of layer %zu: %g to %g, not %g", name, layer, least, most, c->is[layer][i]);
    }
}

static void judge_counts(const struct ha_def *def, table t)
{
    struct counts c = { .said = 0 };
    for (size_t i = 0; i < STEPS * LAYERS * BATCH * KV_HEADS; i++) {
        const size_t kv = i % KV_HEADS, b = i / KV_HEADS % BATCH, l = i / KV_HEADS / BATCH % LAYERS,
                     step = i / KV_HEADS / BATCH / LAYERS,
                     count = blocks_of((double)(w->shape.ctx[b] + step * w->q_len)), k = k_of(b, false);
        const struct told *x = &t[step][l][b][kv * GROUP];
        c.is[l][0] += x->hits;
        c.is[l][1] += (double)(k < count ? k : count) - x->hits;
        c.is[l][2] += x->replaced;
    }
    ha_definition_lru_blocks.count(def, say, &c);
    assert_int_equal(c.said, 3 * LAYERS);
}

static enum ha_status judge(table t)
{
    static float q[BATCH * ROWS * Q_HEADS * DIM];
    const struct ha_definition *d = &ha_definition_lru_blocks;
    const size_t rows = w->q_len;
    struct ha_def *def = NULL;
    struct reporter r;
    why = (struct ha_why){ "" };
    enum ha_status status = d->create(&def, &w->shape, w->param, NULL, &why);
    for (size_t i = 0; i < STEPS * LAYERS && status == HA_OK; i++) {
        const size_t step = i / LAYERS, layer = i % LAYERS, done = (step + 1) * rows;
        const void *const k[BATCH] = { w->stored[layer][0], w->stored[layer][1] };
        const size_t tokens[BATCH] = { w->shape.ctx[0] + done, w->shape.ctx[1] + done };
        for (size_t b = 0; b < BATCH; b++)
            memcpy(q + b * rows * Q_HEADS * DIM, w->q[step][layer][b], rows * Q_HEADS * DIM * sizeof *q);
        const struct ha_def_step in = {
            .layer = layer, .q_len = rows, .q = q, .k = k, .tokens = tokens, .kv_cap = CAP
        };
        r.of = t[step][layer];
        status = ha_definition_step(d, def, &w->shape, &in, report, &r, &why);
    }
    if (status == HA_OK) judge_counts(def, t);
    if (def) d->destroy(def);
    return status;
}

static bool differs(enum mistake m)
{
    for (size_t i = 0; i < sizeof right / sizeof(struct told); i++) {
        struct told a = ((struct told *)right)[i], b = ((struct told *)other)[i];
        if (b.of != NO_MISTAKE && (m == ON_HOST || m == TWO_PARTS)) return true;
        a.of = b.of = NO_MISTAKE;
        if (memcmp(&a, &b, sizeof a) != 0) return true;
    }
    return false;
}

static const struct {
    double param[PARAMS];
    size_t ctx[BATCH], q_len;
    enum ha_dtype dtype;
} CASE[] = {
    /* block, budget, capacity, sink, recent, policy, lookup, digest, fetch */
    { { 8, 0.1, 3, 4, 20, LRU, 0, 0, 0 }, { 300, 30 }, 1, HA_F32 },
    { { 8, 0.15, 2, 4, 20, LFU, 0, 1, 0 }, { 300, 100 }, 1, HA_BF16 },
    { { 16, 0.3, 1, 0, 5, LRU, 1, 1, 0 }, { 200, 0 }, 2, HA_F16 },
    { { 8, 0.07, 3, 2, 64, LFU, 1, 0, 0 }, { 340, 10 }, 2, HA_F32 },
    { { 8, 0.25, 1.5, 4, 20, LRU, 0, 0, 0 }, { 320, 50 }, 1, HA_F32 },
    { { 8, 1, 1, 4, 3, LFU, 0, 0, 0 }, { 120, 1 }, 1, HA_F32 },
};
static size_t refused[MISTAKES];

static void try_all(size_t of, enum mistake first, size_t stride)
{
    simulate(NO_MISTAKE, right);
    if (judge(right) != HA_OK) fail_msg("case %zu, right: %s", of, why.text);
    for (enum mistake m = first; m < MISTAKES; m += stride) {
        simulate(m, other);
        if (!differs(m)) continue;
        if (judge(other) != HA_FAIL) fail_msg("case %zu: not refused: %s %s", of, MISTAKE[m].name, why.text);
        if (!ha_test_says(why.text, MISTAKE[m].text))
            fail_msg("case %zu, %s: \"%s\" does not say \"%s\"", of, MISTAKE[m].name, why.text, MISTAKE[m].text);
        if (!strstr(why.text, "lru_blocks layer 1 seq 0 head 2: ")
            && !strstr(why.text, "lru_blocks layer 1 seq 0 head 3: "))
            fail_msg("case %zu, %s: \"%s\" names another", of, MISTAKE[m].name, why.text);
        refused[m]++;
    }
}

TEST(test_simulated)
{
    for (size_t i = 0; i < COUNT(CASE); i++) {
        make(CASE[i].param, CASE[i].ctx, CASE[i].q_len, CASE[i].dtype);
        try_all(i, (enum mistake)(1 + (HA_SANITIZED ? i : 0)), HA_SANITIZED ? COUNT(CASE) : 1);
    }
    for (enum mistake m = 1; m < MISTAKES && !HA_SANITIZED; m++)
        if (refused[m] == 0) fail_msg("%s: never made", MISTAKE[m].name);
    for (size_t i = 0; i < 2; i++)
        for (size_t n = 0; n < 3; n++)
            if (!(met[i][n] > 50)) fail_msg("policy %zu: %g of number %zu", i, met[i][n], n);
}

/* Of blocks that are alike any may be chosen; it is the chosen ones that the cache then has. */
TEST(test_ties)
{
    const size_t sink = 4, size = 8;
    make(CASE[0].param, CASE[0].ctx, 1, HA_F32);
    for (size_t j = 0; j < CAP; j++) memcpy(w->k[1][0][1][j], w->k[1][0][1][0], sizeof *w->k[1][0][1]);
    memcpy(w->stored[1][0], w->k[1][0], sizeof w->k[1][0]);
    simulate(NO_MISTAKE, right);
    const size_t k = k_of(0, false);
    assert_true(right[1][1][0][2].hits == (double)k);
    /* in step 1 those behind the first ones, which are not there yet; in step 2 the first ones again */
    memcpy(other, right, sizeof other);
    for (size_t head = 2; head < Q_HEADS; head++) {
        struct told *t = &other[1][1][0][head];
        memset(t->part + sink, 0, k * size);
        memset(t->part + sink + k * size, 1, k * size);
    }
    assert_int_equal(judge(other), HA_FAIL);
    assert_non_null(strstr(why.text, "note hits is"));
    other[1][1][0][2].hits = other[1][1][0][3].hits = 0;
    if (judge(other) != HA_OK) fail_msg("%s", why.text);
}
