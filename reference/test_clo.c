/* Look-ups of CLO by hand: no key has left the window, so that all are used, and notes alone are judged. What else its
 * definition refuses is in suites/variants/test_spoiled.c. */

#include "reference/definitions.h"

#include "harness/base/test.h"

#include <math.h>

extern const struct ha_definition ha_definition_clo;

enum { LAYERS = 2, HEADS = 2, DIM = 2, CTX = 4, STEPS = 3, HARMONIC = 0, MIN = 1, NONE = -2 };
enum { K, SINK, RECENT, ETA, P, THRESHOLD, GROUP, PREFETCH, RETRIEVE, BITS, HASH, MB = 15, HARD = 17, PARAMS = 19 };
enum { FIXED = 1, EXACT = 2 };
static struct ha_why why;

struct step {
    float q[HEADS][DIM];
    double similarity, hit;
};

/* layer 0 is persistent */
struct asked {
    const struct step *step;
    size_t layer, tokens;
};

static void reported(void *arg, size_t seq, size_t head, struct ha_selection *out)
{
    static const uint32_t all[] = { 0, 1, 2, 3, 4, 5, 6 };
    const struct asked *a = arg;
    out->parts = 1;
    out->part[0] = (struct ha_part){ .token = all, .count = a->tokens, .on_device = true };
    out->note[0] = (struct ha_note){ "persistent", a->layer == 0 };
    out->note[1] = (struct ha_note){ "hit", a->step->hit };
    out->note[2] = (struct ha_note){ "similarity", a->step->similarity };
    out->notes = a->layer == 0 ? 1 : 3;
}

static enum ha_status judge(const double *param, const struct step *step, size_t steps, const struct step *last)
{
    static const float k[(CTX + STEPS) * DIM], seen[DIM];
    const struct ha_shape shape = { .layers = LAYERS,
                                    .batch = 1,
                                    .q_heads = HEADS,
                                    .kv_heads = 1,
                                    .head_dim = DIM,
                                    .dtype = HA_F32,
                                    .scale = 1,
                                    .ctx = { CTX },
                                    .q_len = 1,
                                    .steps = STEPS };
    const struct ha_definition *d = &ha_definition_clo;
    const void *const rows[] = { k };
    const float *const none[] = { seen };
    struct ha_def *def = NULL;
    why = (struct ha_why){ "" };
    enum ha_status status = d->create(&def, &shape, param, NULL, &why);
    for (size_t i = 0; i < (steps + 1) * LAYERS && status == HA_OK; i++) {
        const size_t n = i / LAYERS;
        struct asked a = { n == 0 ? NULL : n == steps ? last : &step[n - 1], i % LAYERS, CTX + n };
        const struct ha_def_step in = { .layer = a.layer,
                                        .q_len = 1,
                                        .q = n ? a.step->q[0] : NULL,
                                        .k = rows,
                                        .tokens = &a.tokens,
                                        .kv_cap = CTX + STEPS };
        if (n) status = ha_definition_step(d, def, &shape, &in, reported, &a, &why);
        else if (d->prefill) status = ha_definition_prefill(d, def, &shape, &in, none, &why);
    }
    if (def) d->destroy(def);
    return status;
}

#define X    \
    {        \
        1, 0 \
    }
#define SLANT      \
    {              \
        0.6f, 0.8f \
    }
#define BACK  \
    {         \
        -1, 0 \
    }
#define ZERO \
    {        \
        0, 0 \
    }
#define BOTH(q) \
    {           \
        q, q    \
    }
static const struct step first = { BOTH(X), NONE, 0 };

TEST(look_ups)
{
    static const struct {
        double eta;
        int group;
        struct step last;
        const char *says; /* NULL: it is right */
    } each[] = {
        /* a query that is the label, and a threshold of 1: a hit or a miss, and the similarity has to say the same */
        { 1, MIN, { BOTH(X), 1, 1 }, NULL },
        { 1, MIN, { BOTH(X), 1, 0 }, "note hit is 0, and similarity 1 is not below the threshold, 1" },
        { 1, MIN, { BOTH(X), 1 - 0x1p-24, 0 }, NULL },
        { 1, MIN, { BOTH(X), 1 - 0x1p-24, 1 }, "is below the threshold, 1" },
        { 1, MIN, { BOTH(X), 1 + 0x1p-22, 1 }, NULL },
        { 1, MIN, { BOTH(X), 1 - 1e-4, 0 }, "note similarity is 0.9999, not 1" },
        { 1, MIN, { BOTH(X), 1 + 1e-4, 1 }, "note similarity is 1.0001, not 1" },
        { 1, MIN, { BOTH(X), (double)NAN, 1 }, "note similarity is missing" },
        { 1, MIN, { BOTH(X), NONE, 0 }, "note similarity is -2, not 1" },
        { 1, MIN, { BOTH(X), 1, 2 }, "note hit is 2, neither 0 nor 1" },
        /* the least of 0.6 and 1, and their harmonic mean */
        { 0.7, MIN, { { SLANT, X }, 0.6, 0 }, NULL },
        { 0.5, MIN, { { SLANT, X }, 0.6, 1 }, NULL },
        { 0.7, MIN, { { X, SLANT }, 0.75, 1 }, "note similarity is 0.75, not 0.6" },
        { 0.7, HARMONIC, { { SLANT, X }, 0.75, 1 }, NULL },
        { 0.7, HARMONIC, { { SLANT, X }, 0.75, 0 }, "is not below the threshold, 0.69" },
        { 0.8, HARMONIC, { { SLANT, X }, 0.75, 0 }, NULL },
        { 0.7, HARMONIC, { { SLANT, X }, 0.8, 1 }, "note similarity is 0.8, not 0.75" },
        /* with a threshold of -1 all hit but those that the harmonic mean does not let */
        { -1, MIN, { BOTH(BACK), -1, 1 }, NULL },
        { -1, MIN, { { BACK, X }, -1, 0 }, "is not below the threshold" },
        { -1, HARMONIC, { BOTH(BACK), -1, 0 }, NULL },
        { -1, HARMONIC, { BOTH(BACK), -1, 1 }, "note hit is 1, and similarity -1 is not positive" },
        /* queries of zeros have no similarity, and never hit */
        { -1, MIN, { BOTH(ZERO), NONE, 0 }, NULL },
        { -1, MIN, { BOTH(ZERO), 0, 0 }, "note similarity is 0, not -2: a label or a query is 0" },
        { -1, MIN, { { X, ZERO }, NONE, 1 }, "note hit is 1, and a label or a query is 0" },
    };
    double param[PARAMS] = { 1, 0, 64, 0, 1, FIXED, 0, 0, EXACT, 64, [HARD] = 1 };
    for (size_t i = 0; i < COUNT(each); i++) {
        param[ETA] = each[i].eta;
        param[GROUP] = each[i].group;
        const enum ha_status status = judge(param, &first, 2, &each[i].last);
        if (status != (each[i].says ? HA_FAIL : HA_OK) || (each[i].says && !strstr(why.text, each[i].says)))
            fail_msg("row %zu: %s", i, why.text);
    }
}

/* A miss makes the query the label, a hit does not. */
TEST(labels)
{
    static const struct step hit[] = { { BOTH(X), NONE, 0 }, { BOTH(SLANT), 0.6, 1 } },
                             miss[] = { { BOTH(X), NONE, 0 }, { BOTH(SLANT), 0.6, 0 } }, same = { BOTH(X), 1, 1 },
                             other = { BOTH(X), 0.6, 1 }, now = { BOTH(SLANT), 1, 1 },
                             none[] = { { BOTH(X), NONE, 1 }, { BOTH(X), 0.5, 0 } };
    double param[PARAMS] = { 1, 0, 64, 0.5, 1, FIXED, MIN, 0, EXACT, 64, [HARD] = 1 };
    if (judge(param, hit, 3, &same) != HA_OK) fail_msg("%s", why.text);
    assert_int_equal(judge(param, hit, 3, &other), HA_FAIL);
    param[ETA] = 0.9;
    if (judge(param, miss, 3, &now) != HA_OK) fail_msg("%s", why.text);
    assert_int_equal(judge(param, miss, 3, &same), HA_FAIL);
    assert_int_equal(judge(param, NULL, 1, &none[0]), HA_FAIL);
    assert_non_null(strstr(why.text, "note hit is 1, and there is no label"));
    assert_int_equal(judge(param, NULL, 1, &none[1]), HA_FAIL);
    assert_non_null(strstr(why.text, "not -2: there is no label yet"));
}

TEST(not_made)
{
    double param[PARAMS] = { 1, 0, 64, 0.5, 1, FIXED, MIN, 0, EXACT, 64, [HARD] = 1 };
    param[PREFETCH] = 1;
    assert_int_equal(judge(param, NULL, 1, &first), HA_ERROR);
    assert_non_null(strstr(why.text, "prefetch=1 needs layer inputs"));
    param[PREFETCH] = 0;
    param[RETRIEVE] = 0;
    param[HASH] = 1;
    assert_int_equal(judge(param, NULL, 1, &first), HA_WAIVED);
    assert_non_null(strstr(why.text, "needs a fit, for tensor hash"));
    param[HASH] = 0;
    param[MB] = 1e-6;
    assert_int_equal(judge(param, NULL, 1, &first), HA_ERROR);
    assert_non_null(strstr(why.text, "the first layer's 1 heads alone take"));
}
