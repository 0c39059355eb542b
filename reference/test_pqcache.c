/* The definition of PQCache against a plain simulation in binary32. */

#include "reference/definitions.h"

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"

#include <math.h>

extern const struct ha_definition ha_definition_pqcache;

enum { Q_HEADS = 4, KV_HEADS = 2, GROUP = Q_HEADS / KV_HEADS, DIM = 8, CAP = 80, CTX = 60, STEPS = 12, SUB = 2, C = 8 };
enum mistake {
    NO_MISTAKE,
    RECENT_MISSING,
    NEW_MISSING,
    ON_HOST,
    A_KEY_MORE,
    A_KEY_LESS,
    BY_KEYS,
    BY_ONE_BOOK,
    OF_ONE_HEAD,
    OTHER_BUDGET,
    HITS_MORE,
    HITS_OF_HEAD,
    REPLACED_LESS,
    OTHER_POLICY,
    MISTAKES
};
static const char *const SAYS[MISTAKES] = {
    [RECENT_MISSING] = "is missing: it is recent",
    [NEW_MISSING] = "is missing: it is new",
    [ON_HOST] = "is on the host",
    [A_KEY_MORE] = "is one too many",
    [A_KEY_LESS] = "is missing",
    [BY_KEYS] = "was chosen, key",
    [BY_ONE_BOOK] = "was chosen, key",
    [OF_ONE_HEAD] = "was chosen, key",
    [OTHER_BUDGET] = "is missing: it is recent",
    [HITS_MORE] = "note hits is",
    [HITS_OF_HEAD] = "note hits is nan",
    [REPLACED_LESS] = "note replaced is",
    [OTHER_POLICY] = "note hits is",
};

static const double param[] = { SUB, C, 0.2, 1, 0 }; /* the cache by LRU, of what is chosen */
static float k[KV_HEADS][CAP][DIM], q[STEPS][Q_HEADS][DIM];
static const struct ha_shape shape = { .layers = 1,
                                       .batch = 1,
                                       .q_heads = Q_HEADS,
                                       .kv_heads = KV_HEADS,
                                       .head_dim = DIM,
                                       .q_len = 1,
                                       .steps = STEPS,
                                       .dtype = HA_F32,
                                       .scale = 0.35355339f,
                                       .ctx = { CTX } };
static struct ha_why why;

struct asked {
    enum mistake of;
    size_t step;
    uint32_t token[CAP];
    size_t last[KV_HEADS][CAP], uses[KV_HEADS][CAP], clock; /* last: 0, it is not in the cache */
    double hits, replaced;
};

static void stand_in(const struct asked *a, size_t kv, size_t token, float *out)
{
    const size_t dims = DIM / SUB;
    for (size_t g = 0; g < SUB; g++) {
        float least = INFINITY;
        const size_t from = a->of == BY_ONE_BOOK ? 0 : g;
        for (size_t j = 0; j < C; j++) {
            const float *x = k[kv][j * CTX / C] + from * dims;
            float sum = 0;
            for (size_t d = 0; d < dims; d++) sum += powf(k[kv][token][g * dims + d] - x[d], 2);
            if (!(sum < least)) continue;
            least = sum;
            memcpy(out + g * dims, x, dims * sizeof *x);
        }
    }
}

static void choose(const struct asked *a, size_t head, size_t keys, size_t count, bool *taken)
{
    const size_t kv = head / GROUP;
    float best[CAP];
    for (size_t j = 0; j < keys; j++) {
        float x[DIM];
        stand_in(a, kv, j, x);
        best[j] = -INFINITY;
        for (size_t h = kv * GROUP; h < (kv + 1) * GROUP; h++) {
            float sum = 0;
            for (size_t d = 0; d < DIM; d++) sum += q[a->step][h][d] * (a->of == BY_KEYS ? k[kv][j][d] : x[d]);
            if (a->of != OF_ONE_HEAD || h == head) best[j] = fmaxf(best[j], sum);
        }
        taken[j] = false;
    }
    for (size_t i = 0; i < count && i < keys; i++) {
        size_t at = keys;
        for (size_t j = 0; j < keys; j++)
            if (!taken[j] && (at == keys || best[j] > best[at])) at = j;
        taken[at] = true;
    }
}

static size_t share(double budget, size_t n) { return (size_t)ceil(budget * (double)n - 1e-9); }

/* The cache of a KV head after a step: of 7 places, as many tokens as the last step could choose. */
static void use(struct asked *a, size_t kv, const bool *taken, size_t keys)
{
    const size_t used = share(0.2, CTX + STEPS), places = used - used / 2;
    size_t *last = a->last[kv], *uses = a->uses[kv], in = 0;
    a->hits = a->replaced = 0;
    for (size_t j = 0; j < keys; j++) {
        in += last[j] > 0;
        a->hits += taken[j] && last[j];
    }
    for (size_t j = 0; j < keys; j++) {
        if (!taken[j]) continue;
        if (!last[j] && in++ == places) {
            size_t out = CAP;
            for (size_t i = 0; i < keys; i++) {
                const bool may = last[i] && !taken[i],
                           by_uses = may && out < CAP && a->of == OTHER_POLICY && uses[i] != uses[out];
                if (may && (out == CAP || (by_uses ? uses[i] < uses[out] : last[i] < last[out]))) out = i;
            }
            last[out] = uses[out] = 0;
            a->replaced++;
            in--;
        }
        last[j] = ++a->clock;
        uses[j]++;
    }
}

static void report(void *arg, size_t seq, size_t head, struct ha_selection *out)
{
    struct asked *a = arg;
    const size_t n = CTX + a->step, used = share(a->of == OTHER_BUDGET ? 0.15 : 0.2, n), recent = used / 2,
                 keys = n - recent, from = keys + (a->of == RECENT_MISSING), to = n + (a->of != NEW_MISSING);
    bool taken[CAP];
    size_t count = 0;
    choose(a, head, keys, used - recent + (a->of == A_KEY_MORE) - (a->of == A_KEY_LESS), taken);
    if (head % GROUP == 0) use(a, head / GROUP, taken, keys);
    for (uint32_t j = 0; j < keys; j++)
        if (taken[j]) a->token[count++] = j;
    for (uint32_t j = (uint32_t)from; j < to; j++) a->token[count++] = j;
    out->parts = 1;
    out->part[0] = (struct ha_part){ .token = a->token, .count = count, .on_device = a->of != ON_HOST };
    if (a->of != HITS_OF_HEAD || head % GROUP == 0)
        out->note[out->notes++] = (struct ha_note){ "hits", a->hits + (a->of == HITS_MORE) };
    out->note[out->notes++] = (struct ha_note){ "replaced", a->replaced - (a->of == REPLACED_LESS) };
}

static enum ha_status judge(enum mistake m)
{
    const struct ha_definition *d = &ha_definition_pqcache;
    struct ha_def *def = NULL;
    struct asked a = { .of = m };
    const void *const rows[] = { k };
    const float *const none[] = { q[0][0] };
    const size_t ctx = CTX;
    struct ha_def_step in = { .q_len = 1, .k = rows, .tokens = &ctx, .kv_cap = CAP };
    enum ha_status status = d->create(&def, &shape, param, NULL, &why);
    if (status == HA_OK) status = ha_definition_prefill(d, def, &shape, &in, none, &why);
    for (; a.step < STEPS && status == HA_OK; a.step++) {
        const size_t tokens = CTX + a.step + 1;
        in.q = q[a.step][0];
        in.tokens = &tokens;
        status = ha_definition_step(d, def, &shape, &in, report, &a, &why);
    }
    d->destroy(def);
    return status;
}

TEST(test_simulated)
{
    for (size_t i = 0; i < sizeof k / sizeof(float); i++) ((float *)k)[i] = ha_rng_normal(1, 0, i);
    for (size_t i = 0; i < sizeof q / sizeof(float); i++) ((float *)q)[i] = ha_rng_normal(2, 0, i);
    if (judge(NO_MISTAKE) != HA_OK) fail_msg("%s", why.text);
    for (enum mistake m = 1; m < MISTAKES; m++) {
        if (judge(m) != HA_FAIL) fail_msg("mistake %d is not refused", (int)m);
        if (!strstr(why.text, SAYS[m])) fail_msg("mistake %d: \"%s\" does not say \"%s\"", (int)m, why.text, SAYS[m]);
    }
}

TEST(test_vectors_that_do_not_divide)
{
    const double other[] = { 16, C, 0.2, 1, 0 };
    struct ha_def *def = NULL;
    assert_int_equal(ha_definition_pqcache.create(&def, &shape, other, NULL, &why), HA_ERROR);
    assert_string_equal(why.text, "pqcache: parts=16 do not divide head_dim=8");
    ha_definition_pqcache.destroy(def);
}
