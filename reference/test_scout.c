/* The definition of ScoutAttention against a plain simulation in binary32: it accepts that one, whatever is recalled
 * when, and sees its mistakes; and by hand where scores are equal. */

#include "reference/definitions.h"
#include "reference/test_says.h"
#include "reference/test_world.h"

#include "harness/base/fit.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"

static struct ha_why why;

/* ---- a world of several layers, sequences and heads ------------------------------------- */

enum { LAYERS = 3, BATCH = 2, Q_HEADS = 4, KV_HEADS = 2, GROUP = Q_HEADS / KV_HEADS, DIM = 8, MODEL = 12 };
enum { STEPS = 10, ROWS = 2, SEEN_MOST = 3, SIZE = 4, CAP = 64, BLOCKS = CAP / SIZE, SEED = 11 };
static const size_t CTX[BATCH] = { 26, 41 };

enum { BLOCK, BUDGET, CACHE, DIGEST, GROUP_RULE, PRECOMPUTE, PREDICT, RESIDENT, RECALL, INTERVAL, PARAMS };
enum kind { OWN, AHEAD, OBSERVED, KINDS };

static struct {
    double param[PARAMS];
    struct ha_shape shape;
    size_t q_len, observed;
    bool ties; /* the blocks come in equal pairs, of which each choice takes some other one first */
    float k[LAYERS][BATCH][KV_HEADS][CAP][DIM];
    char stored[LAYERS][BATCH][KV_HEADS * CAP * DIM * sizeof(float)];
    float q[KINDS][STEPS][LAYERS][BATCH][ROWS][Q_HEADS][DIM], seen[LAYERS][BATCH][SEEN_MOST][Q_HEADS][DIM];
    float x[STEPS][LAYERS][BATCH][ROWS][MODEL], wq[LAYERS][Q_HEADS * DIM * MODEL], bias[LAYERS][Q_HEADS * DIM];
    struct ha_projection projection[LAYERS];
    float score[KINDS][STEPS][LAYERS][BATCH][Q_HEADS][BLOCKS]; /* NaN: not asked for yet */
} w;

/* [batch][q_len][...] of what has room for ROWS tokens */
static void pack(float *to, const float *from, size_t row)
{
    for (size_t b = 0; b < BATCH; b++)
        memcpy(to + b * w.q_len * row, from + b * ROWS * row, w.q_len * row * sizeof *to);
}

static void keys_store(void)
{
    for (size_t i = 0; i < (size_t)LAYERS * BATCH; i++)
        ha_store_row(w.stored[i / BATCH][i % BATCH], KV_HEADS * CAP * DIM, w.shape.dtype,
                     (float *)w.k[i / BATCH][i % BATCH]);
    for (size_t i = 0; i < sizeof w.score / sizeof(float); i++) ((float *)w.score)[i] = NAN;
}

/* the queries of a layer from the inputs of the one before */
static void predict(void)
{
    for (size_t i = 0; i < (size_t)STEPS * LAYERS * BATCH * ROWS; i++) {
        const size_t s = i / ROWS / BATCH / LAYERS, l = i / ROWS / BATCH % LAYERS, b = i / ROWS % BATCH, t = i % ROWS;
        for (size_t n = 0; n < (size_t)Q_HEADS * DIM && l > 0; n++) {
            float sum = w.bias[l][n];
            for (size_t j = 0; j < MODEL; j++) sum += w.wq[l][n * MODEL + j] * w.x[s][l - 1][b][t][j];
            w.q[AHEAD][s][l][b][t][n / DIM][n % DIM] = sum;
        }
    }
}

static void world_make(const double *param, size_t q_len, size_t observed, enum ha_dtype dtype, bool ties, bool still)
{
    memcpy(w.param, param, sizeof w.param);
    w.q_len = q_len;
    w.observed = observed;
    w.ties = ties;
    w.shape = (struct ha_shape){ .layers = LAYERS,
                                 .batch = BATCH,
                                 .q_heads = Q_HEADS,
                                 .kv_heads = KV_HEADS,
                                 .head_dim = DIM,
                                 .model_dim = MODEL,
                                 .dtype = dtype,
                                 .scale = 0.35f,
                                 .ctx = { CTX[0], CTX[1] },
                                 .observed = observed,
                                 .q_len = q_len,
                                 .steps = STEPS };
    ha_rng_normals(SEED, 1, 0, sizeof w.k / sizeof(float), (float *)w.k);
    ha_rng_normals(SEED, 2, 0, sizeof w.q[OWN] / sizeof(float), (float *)w.q[OWN]);
    ha_rng_normals(SEED, 3, 0, sizeof w.seen / sizeof(float), (float *)w.seen);
    ha_rng_normals(SEED, 4, 0, sizeof w.x / sizeof(float), (float *)w.x);
    ha_rng_normals(SEED, 5, 0, sizeof w.wq / sizeof(float), (float *)w.wq);
    ha_rng_normals(SEED, 6, 0, sizeof w.bias / sizeof(float), (float *)w.bias);
    float *k = (float *)w.k;
    for (size_t i = 0; i < sizeof w.k / sizeof *k; i++) k[i] = ha_round(k[i], dtype);
    for (size_t i = 0; i < LAYERS * BATCH * KV_HEADS; i++)
        for (size_t b = 1; b < BLOCKS && ties; b += 2)
            memcpy(k + (i * CAP + b * SIZE) * DIM, k + (i * CAP + (b - 1) * SIZE) * DIM, SIZE * DIM * sizeof *k);
    keys_store();
    /* the queries hardly move: nothing new is wanted, and what the prefill saw was the same */
    for (size_t s = 1; s < STEPS && still; s++) memcpy(w.q[OWN][s], w.q[OWN][0], sizeof w.q[OWN][0]);
    for (size_t i = 0; i < (size_t)LAYERS * BATCH * SEEN_MOST && still; i++)
        memcpy(w.seen[i / SEEN_MOST / BATCH][i / SEEN_MOST % BATCH][i % SEEN_MOST],
               w.q[OWN][0][i / SEEN_MOST / BATCH][i / SEEN_MOST % BATCH][0], sizeof w.seen[0][0][0]);
    for (size_t l = 0; l < LAYERS; l++) w.projection[l] = (struct ha_projection){ .wq = w.wq[l], .bias = w.bias[l] };
    predict();
}

/* ---- what a variant does, and what it can get wrong --------------------------------------- */

enum mistake {
    NO_MISTAKE,
    /* in what is used */
    HOST_EXTRA,
    HOST_LESS,
    HOST_SWAPPED,
    DEVICE_EXTRA,
    DEVICE_LESS,
    RESIDENT_ON_HOST,
    ABSENT_ON_DEVICE,
    BOTH_SIDES,
    KEY_MISSING,
    STRAY_KEY,
    TAIL_MISSING,
    NEW_MISSING,
    TAIL_ON_HOST,
    OTHER_HEAD,
    ALONE,
    OTHER_KV_HEAD,
    OTHER_GROUP,
    OTHER_DIGEST,
    LAST_QUERY,
    OTHER_RESIDENT,
    /* in the query of the host's part */
    NO_QUERY,
    NEEDLESS_QUERY,
    QUERY_OF_LAYER,
    QUERY_OF_STEP,
    QUERY_OF_HEAD,
    QUERY_OFF,
    TRUE_QUERY,
    HOST_BY_OWN,
    DEVICE_BY_AHEAD,
    /* in the parts */
    TWO_DEVICE_PARTS,
    TWO_HOST_PARTS,
    OWN_KEYS,
    WEIGHT_ONLY,
    DEVICE_QUERY,
    /* in what is resident */
    PREFILL_LAST,
    PREFILL_ONE_QUERY,
    PREFILL_ONE_HEAD,
    STALE,
    NO_DROP,
    DROPS_AT_ONCE,
    EARLY,
    LATE,
    TOO_MANY,
    NEW_RESIDENT,
    WANTED_AHEAD,
    WANTED_BY_ONE,
    WANTED_TOO_NEW,
    /* in the notes */
    NOT_ISSUED,
    ISSUED_EARLY,
    ISSUED_TWICE,
    LANDED_FROM_NOTHING,
    NOTE_OF_ONE_HEAD,
    NOTE_OF_TWO,
    MISTAKES
};
static const struct {
    const char *name, *text; /* what the reason says, one of those between bars */
} MISTAKE[MISTAKES] = {
    [HOST_EXTRA] = { "one more on the host", "one too many|is on the host|chooses" },
    [HOST_LESS] = { "one less on the host", "is missing|is not on the host|chooses" },
    [HOST_SWAPPED] = { "the next best on the host", "is on the host, |is used, |is missing" },
    [DEVICE_EXTRA] = { "a resident that was not chosen", "one too many|is on the device, |is used, |best of" },
    [DEVICE_LESS] = { "a resident less", "missing|is not on the device|chooses" },
    [RESIDENT_ON_HOST] = { "a resident on the host", "is on the host, and resident" },
    [ABSENT_ON_DEVICE] = { "no resident on the device", "is on the device: " },
    [BOTH_SIDES] = { "a block on both sides", "is on both sides" },
    [KEY_MISSING] = { "a key of a block missing", "is used in part" },
    [STRAY_KEY] = { "a key of another block", "is used in part" },
    [TAIL_MISSING] = { "a key behind the last block missing", "is missing: it is behind the last whole block" },
    [NEW_MISSING] = { "a new key missing", "is missing: it is new" },
    [TAIL_ON_HOST] = { "a new key on the host", "is on the host: it is new" },
    [OTHER_HEAD] = { "the list of another head", "" },
    [ALONE] = { "a list for one head", "they have one choice" },
    [OTHER_KV_HEAD] = { "the choice of another KV head", "" },
    [OTHER_GROUP] = { "the other group", "" },
    [OTHER_DIGEST] = { "the other digest", "" },
    [LAST_QUERY] = { "chosen by the last token", "" },
    [OTHER_RESIDENT] = { "the other of all and topk", "is missing: it is resident|is on the device|one too many" },
    [NO_QUERY] = { "the step's query on the host", "not weighed by a predicted query" },
    [NEEDLESS_QUERY] = { "a query of its own", "is on the host, and not weighed by the step's query" },
    [QUERY_OF_LAYER] = { "the query of another layer", "is predicted" },
    [QUERY_OF_STEP] = { "the query of another step", "is predicted" },
    [QUERY_OF_HEAD] = { "the query of another head", "is predicted" },
    [QUERY_OFF] = { "a query that is slightly off", "is predicted" },
    [TRUE_QUERY] = { "the true query as the predicted one", "is predicted" },
    [HOST_BY_OWN] = { "the host's blocks by the true query", "of the part's query|part's query chooses" },
    [DEVICE_BY_AHEAD] = { "the device's blocks by the predicted query", "step's query" },
    [TWO_DEVICE_PARTS] = { "two parts on the device", "in a second part of the device" },
    [TWO_HOST_PARTS] = { "two parts on the host", "in a second part of the host" },
    [OWN_KEYS] = { "other keys", "not weighed by itself and its value" },
    [WEIGHT_ONLY] = { "no values", "not weighed by itself and its value" },
    [DEVICE_QUERY] = { "another query on the device", "is on the device, and not weighed by the step's query" },
    [PREFILL_LAST] = { "the last blocks at first", "" },
    [PREFILL_ONE_QUERY] = { "the first blocks by the last query", "" },
    [PREFILL_ONE_HEAD] = { "the first blocks by one head", "" },
    [STALE] = { "a recall that does nothing", "" },
    [NO_DROP] = { "what is not wanted stays until it lands", "the last recall did not want it|" },
    [DROPS_AT_ONCE] = { "what is not wanted goes in the step of the recall", "" },
    [EARLY] = { "what is recalled is there a step early", "it has not been recalled yet|part's query chooses" },
    [LATE] = { "what is recalled is there a step late", "is on the host, and resident|missing|is resident|best" },
    [TOO_MANY] = { "more residents than slots", "it is not resident|did not want|not been recalled|is missing" },
    [NEW_RESIDENT] = { "a new block is resident", "is on the device: it is not resident" },
    [WANTED_AHEAD] = { "wanted by the predicted query", "" },
    [WANTED_BY_ONE] = { "wanted by one head", "" },
    [WANTED_TOO_NEW] = { "wanted that this step completes", "" },
    [NOT_ISSUED] = { "no recall", "no recall was issued in step" },
    [ISSUED_EARLY] = { "a recall before its time", "the interval is" },
    [ISSUED_TWICE] = { "a recall while one is under way", "has not landed" },
    [LANDED_FROM_NOTHING] = { "one landed that was not issued", "and none was under way" },
    [NOTE_OF_ONE_HEAD] = { "a note of one head", "is not that of head 0" },
    [NOTE_OF_TWO] = { "a note of 2", "neither 0 nor 1" },
};

/* what one head reports of one step */
struct told {
    uint8_t side[CAP]; /* of each token */
    float q[ROWS][DIM];
    bool own_q;
    int note[2]; /* recall, landed */
    enum mistake parts;
};
typedef struct told table[STEPS][LAYERS][BATCH][Q_HEADS];
static table right, other;

/* Mistakes are made from step FROM on, in the second sequence and KV head of the last layer; some elsewhere. */
enum { FROM = 4, WHERE = LAYERS - 1 };

struct ask {
    enum mistake mistake; /* that is made here */
    size_t step, layer, seq, queries;
};

static float score_now(const struct ask *a, enum kind kind, size_t head, size_t b)
{
    const bool mean = (w.param[DIGEST] > 0) != (a->mistake == OTHER_DIGEST), last = a->mistake == LAST_QUERY;
    float(*k)[DIM] = w.k[a->layer][a->seq][head / GROUP] + b * SIZE, most = -HUGE_VALF;
    for (size_t t = last || a->mistake == PREFILL_ONE_QUERY ? a->queries - 1 : 0; t < a->queries; t++) {
        const float *q = kind == OBSERVED ? w.seen[a->layer][a->seq][t][head]
                                          : w.q[kind][a->step][a->layer][a->seq][t][head];
        float sum = 0;
        for (size_t d = 0; d < DIM; d++) {
            float low = k[0][d], high = low, all = low;
            for (size_t i = 1; i < SIZE; i++) {
                low = fminf(low, k[i][d]);
                high = fmaxf(high, k[i][d]);
                all += k[i][d];
            }
            sum += mean ? q[d] * ha_round(all / SIZE, w.shape.dtype) : fmaxf(q[d] * low, q[d] * high);
        }
        most = fmaxf(most, w.shape.scale * sum);
    }
    return most;
}

static float score_of(const struct ask *a, enum kind kind, size_t head, size_t b)
{
    const bool strange = a->mistake == OTHER_DIGEST || a->mistake == LAST_QUERY || a->mistake == PREFILL_ONE_QUERY;
    float *known = &w.score[kind][a->step][a->layer][a->seq][head][b];
    if (strange) return score_now(a, kind, head, b);
    if (isnan(*known)) *known = score_now(a, kind, head, b);
    return *known;
}

/* The `want` best of blocks [0, count) for heads [first, end) together. order: [count], best first */
static void choose(const struct ask *a, enum kind kind, size_t first, size_t end, size_t count, size_t want, bool *in,
                   size_t *order)
{
    float score[BLOCKS];
    const size_t list = (((kind * STEPS + a->step) * LAYERS + a->layer) * BATCH + a->seq) * Q_HEADS + first;
    const bool upper = w.ties && ha_rng_below(SEED, 9, list * Q_HEADS + end, 2);
    for (size_t b = 0; b < count; b++) {
        score[b] = -HUGE_VALF;
        for (size_t h = first; h < end; h++) score[b] = fmaxf(score[b], score_of(a, kind, h, b));
        size_t at = b;
        for (; at > 0 && (score[order[at - 1]] < score[b] || (upper && score[order[at - 1]] == score[b])); at--)
            order[at] = order[at - 1];
        order[at] = b;
    }
    memset(in, 0, BLOCKS * sizeof *in);
    for (size_t i = 0; i < want && i < count; i++) in[order[i]] = true;
}

struct state {
    bool held[KV_HEADS][BLOCKS], want[KV_HEADS][BLOCKS], before[KV_HEADS][BLOCKS];
    bool under_way;
    size_t issued, lands;
};

static size_t slots(void)
{
    if (w.param[CACHE] > 0) return (size_t)fmax(1, floor(w.param[CACHE] / SIZE));
    const size_t k = (size_t)fmax(1, floor(w.param[BUDGET] / SIZE));
    return w.param[GROUP_RULE] > 0 ? k : k * GROUP;
}

static bool is_ahead(size_t layer) { return w.param[PRECOMPUTE] > 0 && w.param[PREDICT] <= 0 && layer > 0; }

static void begin(enum mistake m, size_t layer, size_t seq, struct state *s)
{
    size_t order[BLOCKS];
    const bool wrong = layer == WHERE && seq == 1;
    const struct ask a = { wrong ? m : NO_MISTAKE, 0, layer, seq, w.observed };
    const size_t count = CTX[seq] / SIZE;
    memset(s, 0, sizeof *s);
    for (size_t kv = 0; kv < KV_HEADS; kv++) {
        const bool last = w.observed == 0 || (a.mistake == PREFILL_LAST && kv == 1);
        const size_t end = (kv + 1) * GROUP - (a.mistake == PREFILL_ONE_HEAD && kv == 1 ? 1 : 0);
        if (!last) choose(&a, OBSERVED, kv * GROUP, end, count, slots(), s->held[kv], order);
        for (size_t b = 0; b < count && last; b++) s->held[kv][b] = b + slots() >= count;
    }
}

/* the first block of the order, or the last, that is in `a` and not in `b`; `count`: none */
static size_t pick(const size_t *order, size_t count, const bool *a, const bool *b, bool last)
{
    size_t found = BLOCKS;
    for (size_t i = 0; i < count; i++)
        if (a[order[i]] && !b[order[i]] && (last || found == BLOCKS)) found = order[i];
    return found;
}

/* What a query head uses. held: what is resident */
static void use(struct ask a, size_t head, size_t count, const bool *held, struct told *t)
{
    static const bool none[BLOCKS];
    const size_t want = (size_t)fmax(1, floor(w.param[BUDGET] / SIZE)), before = CTX[a.seq] + a.step * w.q_len;
    const enum mistake m = a.mistake;
    bool own[BLOCKS], ahead[BLOCKS], device[BLOCKS], host[BLOCKS], rest[BLOCKS];
    bool max = w.param[GROUP_RULE] > 0;
    size_t own_order[BLOCKS], order[BLOCKS];
    const enum kind kind = is_ahead(a.layer) ? AHEAD : OWN;
    const bool all = (w.param[RESIDENT] > 0) != (m == OTHER_RESIDENT);
    if (m == OTHER_HEAD) head ^= 1;
    if (m == OTHER_KV_HEAD) head -= GROUP;
    if (m == OTHER_GROUP || (m == ALONE && max && head % GROUP)) max = !max;
    const size_t first = max ? head - head % GROUP : head, end = max ? first + GROUP : head + 1;
    choose(&a, OWN, first, end, count, want, own, own_order);
    memcpy(ahead, own, sizeof ahead);
    memcpy(order, own_order, sizeof order);
    if (kind == AHEAD && m != HOST_BY_OWN) choose(&a, AHEAD, first, end, count, want, ahead, order);
    for (size_t b = 0; b < count; b++) {
        device[b] = held[b] && (all || (m == DEVICE_BY_AHEAD ? ahead : own)[b]);
        host[b] = !held[b] && ahead[b];
        rest[b] = !held[b];
    }
    const size_t weakest_host = pick(order, count, host, none, true), next_host = pick(order, count, rest, host, false);
    const size_t resident = pick(own_order, count, held, none, false),
                 more = pick(own_order, count, held, device, true),
                 weakest = pick(own_order, count, device, none, true);
    if ((m == HOST_LESS || m == HOST_SWAPPED) && weakest_host < BLOCKS) host[weakest_host] = false;
    if ((m == HOST_EXTRA || (m == HOST_SWAPPED && weakest_host < BLOCKS)) && next_host < BLOCKS) host[next_host] = true;
    if (m == DEVICE_EXTRA && more < BLOCKS) device[more] = true;
    if (m == DEVICE_LESS && weakest < BLOCKS) device[weakest] = false;
    if (m == RESIDENT_ON_HOST && resident < BLOCKS) device[resident] = false, host[resident] = true;
    if (m == ABSENT_ON_DEVICE && weakest_host < BLOCKS) host[weakest_host] = false, device[weakest_host] = true;
    for (size_t j = 0; j < before + w.q_len; j++) {
        const size_t b = j / SIZE;
        t->side[j] = b >= count || device[b] ? HA_MARK_DEVICE : host[b] ? HA_MARK_HOST : HA_MARK_NONE;
        const bool used = b < count && t->side[j] != HA_MARK_NONE;
        if (m == BOTH_SIDES && used && j % SIZE == 2 && b == weakest) t->side[j] = HA_MARK_HOST;
        if (m == KEY_MISSING && used && j % SIZE == 1 && (b == weakest || b == weakest_host)) t->side[j] = HA_MARK_NONE;
        if (m == STRAY_KEY && b < count && !used && j % SIZE == 3) t->side[j] = HA_MARK_DEVICE;
        if (m == TAIL_MISSING && b == count && j + 1 == before) t->side[j] = HA_MARK_NONE;
        if (m == NEW_MISSING && j == before) t->side[j] = HA_MARK_NONE;
        if (m == TAIL_ON_HOST && j == before) t->side[j] = HA_MARK_HOST;
    }
}

/* the query of the host's part */
static void weigh(const struct ask *a, size_t head, struct told *t)
{
    const enum mistake m = a->mistake;
    size_t host = 0;
    for (size_t j = 0; j < CAP; j++) host += t->side[j] == HA_MARK_HOST;
    t->own_q = host > 0 && (is_ahead(a->layer) ? m != NO_QUERY : m == NEEDLESS_QUERY);
    for (size_t r = 0; r < w.q_len && t->own_q; r++) {
        const size_t step = a->step - (m == QUERY_OF_STEP), layer = a->layer - (m == QUERY_OF_LAYER);
        const enum kind kind = m == TRUE_QUERY ? OWN : AHEAD;
        memcpy(t->q[r], w.q[kind][step][layer][a->seq][r][head ^ (m == QUERY_OF_HEAD)], sizeof t->q[r]);
        if (m == QUERY_OFF) t->q[r][DIM - 1] *= 1 + 3e-4f;
    }
}

/* A recall is issued: what is wanted. Returns whether it changes anything. */
static bool issue(const struct ask *a, size_t count, struct state *s)
{
    size_t order[BLOCKS];
    bool changes = false;
    for (size_t kv = 0; kv < KV_HEADS; kv++) {
        const enum mistake m = kv == 1 ? a->mistake : NO_MISTAKE;
        const struct ask of = { m, a->step, a->layer, a->seq, a->queries };
        const size_t end = (kv + 1) * GROUP - (m == WANTED_BY_ONE ? 1 : 0);
        const size_t among = m == WANTED_TOO_NEW ? (CTX[a->seq] + (a->step + 1) * w.q_len) / SIZE : count;
        memcpy(s->before[kv], s->held[kv], sizeof s->held[kv]);
        choose(&of, m == WANTED_AHEAD ? AHEAD : OWN, kv * GROUP, end, among, slots(), s->want[kv], order);
        if (m == STALE) memcpy(s->want[kv], s->held[kv], sizeof s->held[kv]);
        for (size_t b = 0; b < BLOCKS; b++) changes |= s->want[kv][b] && !s->held[kv][b];
    }
    return changes;
}

/* All steps of a layer and sequence. delay: of a recall, in steps; silent: one that changes nothing does not land */
static void simulate(enum mistake mistake, size_t layer, size_t seq, size_t delay, bool silent, table out)
{
    static struct state s;
    begin(mistake, layer, seq, &s);
    for (size_t step = 0; step < STEPS; step++) {
        const size_t where = mistake == NEEDLESS_QUERY && is_ahead(1) ? 0 : WHERE;
        const enum mistake m = layer == where && seq == 1 && step >= FROM ? mistake : NO_MISTAKE;
        struct ask a = { m, step, layer, seq, w.q_len };
        const size_t count = (CTX[seq] + step * w.q_len) / SIZE, interval = (size_t)w.param[INTERVAL];
        const bool landed = s.under_way && step >= s.lands && m != ISSUED_TWICE;
        if (landed) {
            if (m != LATE) memcpy(s.held, s.want, sizeof s.held);
            if (m == TOO_MANY)
                for (size_t b = 0; b < BLOCKS; b++) s.held[1][b] |= s.before[1][b];
            s.under_way = false;
        }
        const bool due = w.param[RECALL] > 0 && step + 1 >= s.issued + interval - (m == ISSUED_EARLY);
        const bool issues = due && (!s.under_way || m == ISSUED_TWICE) && m != NOT_ISSUED;
        bool changes = false;
        for (size_t kv = 0; kv < KV_HEADS && step > 0 && m == NEW_RESIDENT; kv++)
            if (count > (CTX[seq] + (step - 1) * w.q_len) / SIZE) s.held[1][count - 1] = true;
        if (issues && m == DROPS_AT_ONCE) issue(&a, count, &s);
        for (size_t head = 0; head < Q_HEADS; head++) {
            struct told *t = &out[step][layer][seq][head];
            const size_t kv = head / GROUP;
            bool held[BLOCKS];
            a.mistake = kv == 1 ? m : NO_MISTAKE;
            for (size_t b = 0; b < BLOCKS; b++) {
                const bool early = a.mistake == EARLY && s.under_way && step + 1 >= s.lands,
                           dropped = a.mistake == DROPS_AT_ONCE && issues && !s.want[kv][b];
                held[b] = !dropped && (s.held[kv][b] || (early && s.want[kv][b]));
            }
            memset(t, 0, sizeof *t);
            use(a, head, count, held, t);
            weigh(&a, head, t);
            t->parts = a.mistake;
            t->note[0] = issues;
            t->note[1] = landed || (m == LANDED_FROM_NOTHING && !s.under_way);
            if (a.mistake == NOTE_OF_ONE_HEAD) t->note[head % 2] ^= 1;
            if (m == NOTE_OF_TWO) t->note[0] = 2;
        }
        a.mistake = m;
        if (landed && m == LATE) memcpy(s.held, s.want, sizeof s.held);
        if (!issues) continue;
        changes = issue(&a, count, &s);
        s.issued = step + 1;
        s.under_way = changes || !silent;
        s.lands = step + 1 + ha_rng_below(SEED, 8, (step * LAYERS + layer) * BATCH + seq, delay + 1);
        for (size_t kv = 0; kv < KV_HEADS; kv++)
            for (size_t b = 0; b < BLOCKS; b++)
                if (!(kv == 1 && (m == NO_DROP || m == TOO_MANY))) s.held[kv][b] &= s.want[kv][b];
    }
}

struct reporter {
    struct told (*of)[Q_HEADS]; /* [batch] */
    uint32_t token[3][CAP];
    float q[ROWS * DIM];
    bool own_keys;
};

static void report(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    static const float some[CAP * DIM];
    struct reporter *r = arg;
    const struct told *t = &r->of[seq][q_head];
    size_t count[2] = { 0, 0 };
    for (size_t j = 0; j < CAP; j++)
        if (t->side[j]) r->token[t->side[j] == HA_MARK_HOST][count[t->side[j] == HA_MARK_HOST]++] = (uint32_t)j;
    out->parts = 2;
    for (size_t p = 0; p < 2; p++)
        out->part[p] = (struct ha_part){ .token = r->token[p], .count = count[p], .on_device = p == 0 };
    memcpy(r->q, t->q, sizeof r->q);
    if (t->own_q) out->part[1].q = r->q;
    if (t->parts == DEVICE_QUERY) out->part[0].q = some;
    if (t->parts == OWN_KEYS) out->part[0].k = some;
    if (t->parts == WEIGHT_ONLY) out->part[0].weight_only = true;
    const size_t split = t->parts == TWO_HOST_PARTS;
    if ((split || t->parts == TWO_DEVICE_PARTS) && count[split] > 1) {
        out->part[2] = out->part[split];
        out->part[split].count = 1;
        out->part[2].token++;
        out->part[2].count--;
        out->parts = 3;
    }
    out->note[0] = (struct ha_note){ "recall", t->note[0] };
    out->note[1] = (struct ha_note){ "landed", t->note[1] };
    out->notes = 2;
    if (t->note[0] == 0 && t->note[1] == 0) out->notes = 0; /* nothing said is nothing done */
}

static const struct ha_fit *fit;

/* What the definition says of a table. */
static enum ha_status judge(table t)
{
    static float q[BATCH * ROWS * Q_HEADS * DIM], x[BATCH * ROWS * MODEL], seen[BATCH][SEEN_MOST * Q_HEADS * DIM];
    const struct ha_definition *d = &ha_definition_scout;
    struct ha_def *def = NULL;
    struct reporter r;
    why = (struct ha_why){ "" };
    enum ha_status status = d->create(&def, &w.shape, w.param, fit, &why);
    for (size_t step = 0; step <= STEPS && status == HA_OK; step++)
        for (size_t layer = 0; layer < LAYERS && status == HA_OK; layer++) {
            const void *const k[BATCH] = { w.stored[layer][0], w.stored[layer][1] };
            const size_t done = step * w.q_len, tokens[BATCH] = { CTX[0] + done, CTX[1] + done };
            struct ha_def_step in = { .layer = layer,
                                      .q_len = w.q_len,
                                      .q = q,
                                      .x = x,
                                      .projection = w.projection,
                                      .k = k,
                                      .tokens = tokens,
                                      .kv_cap = CAP };
            if (step == 0) {
                for (size_t b = 0; b < BATCH; b++) memcpy(seen[b], w.seen[layer][b], sizeof seen[b]);
                const float *const observed[BATCH] = { seen[0], seen[1] };
                status = ha_definition_prefill(d, def, &w.shape, &in, observed, &why);
                continue;
            }
            pack(q, (float *)w.q[OWN][step - 1][layer], Q_HEADS * DIM);
            pack(x, (float *)w.x[step - 1][layer], MODEL);
            r.of = t[step - 1][layer];
            status = ha_definition_step(d, def, &w.shape, &in, report, &r, &why);
        }
    if (def) d->destroy(def);
    return status;
}

static void simulate_all(enum mistake m, size_t delay, bool silent, table out)
{
    for (size_t i = 0; i < LAYERS * BATCH; i++) simulate(m, i / BATCH, i % BATCH, delay, silent, out);
}

static size_t refused[MISTAKES];

/* in: what differs shows */
static bool differs(enum mistake m)
{
    if (m == TWO_DEVICE_PARTS || m == OWN_KEYS || m == WEIGHT_ONLY || m == DEVICE_QUERY) return true;
    bool is = false;
    for (size_t i = 0; i < sizeof right / sizeof(struct told); i++) {
        const struct told *a = (struct told *)right + i, *b = (struct told *)other + i;
        size_t host = 0;
        for (size_t j = 0; j < CAP; j++) host += b->side[j] == HA_MARK_HOST;
        is |= memcmp(a->side, b->side, sizeof a->side) || memcmp(a->q, b->q, sizeof a->q) || a->own_q != b->own_q
              || memcmp(a->note, b->note, sizeof a->note) || (b->parts == TWO_HOST_PARTS && host > 1);
    }
    return is;
}

/* every `stride`th mistake, from `first` on */
static void try_all(const char *what, size_t delay, bool silent, enum mistake first, size_t stride)
{
    simulate_all(NO_MISTAKE, delay, silent, right);
    if (judge(right) != HA_OK) fail_msg("%s, right: %s", what, why.text);
    for (enum mistake m = first; m < MISTAKES; m += stride) {
        memcpy(other, right, sizeof other);
        simulate(m, m == NEEDLESS_QUERY && is_ahead(1) ? 0 : WHERE, 1, delay, silent, other);
        if (!differs(m)) continue;
        if (judge(other) != HA_FAIL) fail_msg("%s: not refused: %s %s", what, MISTAKE[m].name, why.text);
        if (!ha_test_says(why.text, MISTAKE[m].text))
            fail_msg("%s, %s: \"%s\" does not say \"%s\"", what, MISTAKE[m].name, why.text, MISTAKE[m].text);
        const char *layer = m == NEEDLESS_QUERY && is_ahead(1) ? "layer 0 seq 1 head " : "layer 2 seq 1 head ";
        if (!strstr(why.text, layer)) fail_msg("%s, %s: \"%s\" names another", what, MISTAKE[m].name, why.text);
        refused[m]++;
    }
}

#define ON  1
#define OFF 0
static const struct {
    double param[PARAMS];
    size_t q_len, observed, delay;
    enum ha_dtype dtype;
    bool silent;
} CASE[] = {
    /* block budget cache digest group precompute predict resident recall interval */
    { { SIZE, 12, 0, 0, 0, ON, 0, 0, ON, 2 }, 1, 2, 0, HA_F32, false },
    { { SIZE, 12, 16, 0, 1, ON, 0, 0, ON, 1 }, 1, 3, 1, HA_F16, true },
    { { SIZE, 12, 20, 1, 0, ON, 0, 1, ON, 2 }, 2, 3, 2, HA_BF16, false },
    { { SIZE, 17, 20, 0, 1, ON, 0, 1, ON, 3 }, 1, 1, 0, HA_F32, true },
    { { SIZE, 12, 20, 0, 0, OFF, 0, 0, ON, 2 }, 2, 2, 1, HA_F32, false },
    { { SIZE, 12, 0, 1, 1, ON, 1, 0, ON, 2 }, 1, 0, 0, HA_F16, true },
    { { SIZE, 3, 8, 0, 0, OFF, 0, 1, ON, 1 }, 1, 2, 2, HA_F32, false },
    { { SIZE, 12, 12, 0, 0, ON, 0, 0, OFF, 2 }, 2, 2, 0, HA_BF16, false },
    { { SIZE, 1000, 16, 0, 0, ON, 0, 0, ON, 3 }, 1, 2, 1, HA_F32, false },
    { { SIZE, 12, 1000, 0, 1, ON, 0, 0, ON, 2 }, 1, 2, 0, HA_F32, false },
};

/* each mistake in all cases; under a sanitizer in one */
TEST(test_simulated)
{
    for (size_t i = 0; i < COUNT(CASE); i++) {
        char what[32];
        snprintf(what, sizeof what, "case %zu", i);
        world_make(CASE[i].param, CASE[i].q_len, CASE[i].observed, CASE[i].dtype, false, false);
        try_all(what, CASE[i].delay, CASE[i].silent, HA_SANITIZED ? (enum mistake)(1 + i) : 1,
                HA_SANITIZED ? COUNT(CASE) : 1);
    }
    for (enum mistake m = 1; m < MISTAKES && !HA_SANITIZED; m++)
        if (refused[m] == 0) fail_msg("%s: never made", MISTAKE[m].name);
}

/* ---- recalls that change nothing ------------------------------------------------------------ */

/* What is wanted is resident from the prefill on: a recall may land, late or not at all; it goes on all the same. */
TEST(test_nothing_to_recall)
{
    static const double param[PARAMS] = { SIZE, 12, 24, 0, 0, ON, 0, 0, ON, 2 };
    for (size_t i = 0; i < 4; i++) {
        world_make(param, 1, 1, HA_F32, false, true);
        /* nor are blocks that become whole wanted */
        for (size_t n = 0; n < LAYERS * BATCH * KV_HEADS; n++)
            for (size_t j = CTX[n / KV_HEADS % BATCH] / SIZE * SIZE; j < CAP; j++)
                for (size_t d = 0; d < DIM; d++) {
                    const size_t b = n / KV_HEADS;
                    const float *q = w.q[OWN][0][b / BATCH][b % BATCH][0][n % KV_HEADS * GROUP];
                    w.k[b / BATCH][b % BATCH][n % KV_HEADS][j][d] = -0.1f * q[d];
                }
        keys_store();
        simulate_all(NO_MISTAKE, i % 2 * 3, i / 2, right);
        if (judge(right) != HA_OK) fail_msg("delay %zu, %s: %s", i % 2 * 3, i / 2 ? "silent" : "told", why.text);
        size_t landed = 0, issued = 0;
        for (size_t n = 0; n < sizeof right / sizeof(struct told); n++) {
            issued += ((struct told *)right)[n].note[0] == 1;
            landed += ((struct told *)right)[n].note[1] == 1;
        }
        if (issued == 0 || (landed > 0) != (i / 2 == 0)) fail_msg("%zu issued, %zu landed", issued, landed);
        simulate_all(NOT_ISSUED, i % 2 * 3, i / 2, other);
        if (i == 0 && judge(other) != HA_FAIL) fail_msg("no recall is not refused");
    }
}

/* ---- recalls that are waited for ------------------------------------------------------------- */

/* What may come whenever it does has to be there in the next step where that waits. */
TEST(test_waited_for)
{
    enum { WAIT = 2 };
    static const double param[PARAMS] = { SIZE, 12, 0, 0, 0, ON, 0, 0, WAIT, 2 };
    world_make(param, 1, 2, HA_F32, false, false);
    simulate_all(NO_MISTAKE, 0, false, right);
    if (judge(right) != HA_OK) fail_msg("in the next step: %s", why.text);
    simulate_all(NO_MISTAKE, 3, false, other);
    if (judge(other) != HA_FAIL || !ha_test_says(why.text, "has not landed in step")) fail_msg("later: %s", why.text);
    w.param[RECALL] = ON;
    if (judge(other) != HA_OK) fail_msg("later, and not waited for: %s", why.text);
}

/* ---- ties ----------------------------------------------------------------------------------- */

/* Each block has one that is its equal: whichever is taken in each step, for each list and each recall. */
TEST(test_ties)
{
    for (size_t i = 0; i < COUNT(CASE); i++)
        for (size_t q_len = 1; q_len <= (HA_SANITIZED ? 1 : 2); q_len++) {
            world_make(CASE[i].param, q_len, CASE[i].observed, CASE[i].dtype, true, false);
            simulate_all(NO_MISTAKE, CASE[i].delay, CASE[i].silent, right);
            if (judge(right) != HA_OK) fail_msg("case %zu, %zu tokens: %s", i, q_len, why.text);
        }
}

/* Blocks of a token, all equal, two of which are resident, and two chosen. */
TEST(test_adopted)
{
    static const double all[] = { 1, 2, 2, 0, 0, OFF, 0, 1, OFF, 0 }, topk[] = { 1, 2, 2, 0, 0, OFF, 0, 0, OFF, 0 };
    static const struct ha_test_step resident[] = { { 1, { 1 }, { DEVICE(1, 3, 4) } },
                                                    { 1, { 1 }, { SPLIT(KEYS(1, 3, 5), KEYS(0, 2)) } } };
    struct ha_test_world one = ha_test_world(&ha_definition_scout, all, 4, EVEN, NULL);
    ha_test_accept(&one, resident, 2);
    ha_test_reject(&one, resident, 2, REPORTS(DEVICE(0, 1, 5)), "block 0 is on the device: it is not resident");
    ha_test_reject(&one, resident, 2, REPORTS(DEVICE(1, 5)), "block 3 is missing: it is resident");
    ha_test_reject(&one, resident, 1, REPORTS(DEVICE(0, 1, 3, 4)), "block 3 is one resident too many: there are 2");
    ha_test_reject(&one, resident, 1, REPORTS(DEVICE(1, 4)), "1 blocks may be resident, and there are 2 that are");
    /* 1 is resident and 2 is not; then 0 is not, and so 3 is */
    static const struct ha_test_step learnt[] = { { 1, { 1 }, { SPLIT(KEYS(1, 4), KEYS(2)) } },
                                                  { 1, { 1 }, { SPLIT(KEYS(1, 5), KEYS(0)) } },
                                                  { 1, { 1 }, { DEVICE(1, 3, 6) } } };
    one.param = topk;
    ha_test_accept(&one, learnt, 3);
    ha_test_reject(&one, learnt, 2, REPORTS(SPLIT(KEYS(2, 5), KEYS(0))),
                   "block 2 is on the device: it is not resident");
    ha_test_reject(&one, learnt, 3, REPORTS(SPLIT(KEYS(1, 6), KEYS(3))), "block 3 is on the host, and resident");
    ha_test_reject(&one, learnt, 3, REPORTS(SPLIT(KEYS(1, 6), KEYS(0, 2))), "3 blocks are used");
    ha_test_reject(&one, learnt, 3, REPORTS(DEVICE(1, 6)), "1 blocks may be chosen, the step's query chooses 2");
}

/* Of three equal blocks two are resident, and on one side all three are chosen for certain: those that are not used
 * there are on the other. */
TEST(test_learnt)
{
    static const double param[PARAMS] = { SIZE, 12, 8, 0, 0, ON, 0, 0, OFF, 2 };
    for (int ahead = 0; ahead < 2; ahead++) {
        world_make(param, 1, 1, HA_F32, false, false);
        memset(w.wq[WHERE], 0, sizeof w.wq[WHERE]);
        memset(w.q[OWN][0][WHERE], 0, sizeof w.q[OWN][0][WHERE]);
        for (size_t i = 0; i < (size_t)CAP * DIM; i++) {
            const size_t b = i / DIM / SIZE;
            w.k[WHERE][1][1][i / DIM][i % DIM] = i % DIM ? 0 : b < 3 ? 1 : -0.5f - 0.01f * (float)b;
        }
        for (size_t head = 0; head < Q_HEADS; head++) {
            memset(w.bias[WHERE] + head * DIM, 0, DIM * sizeof(float));
            memset(w.seen[WHERE][1][0][head], 0, sizeof w.seen[0][0][0][0]);
            w.seen[WHERE][1][0][head][0] = 1;
            w.q[OWN][0][WHERE][1][0][head][0] = ahead ? -1 : 1;
            w.bias[WHERE][head * DIM] = ahead ? 1 : -1;
        }
        keys_store();
        predict();
        simulate_all(NO_MISTAKE, 0, false, right);
        if (judge(right) != HA_OK) fail_msg("%s", why.text);
        /* of each head one on the device less, or one on the host more */
        for (size_t head = GROUP; head < Q_HEADS; head++) {
            uint8_t *side = right[0][WHERE][1][head].side;
            size_t b = 0;
            while (b < 3 && side[b * SIZE] != (ahead ? HA_MARK_NONE : HA_MARK_DEVICE)) b++;
            assert_in_range(b, 0, 2);
            memset(side + b * SIZE, ahead ? HA_MARK_HOST : HA_MARK_NONE, SIZE);
        }
        assert_int_equal(judge(right), HA_FAIL);
        assert_non_null(strstr(why.text, "1 blocks may be resident, and there are 2 that are"));
    }
}

/* ---- what rounding leaves open --------------------------------------------------------------- */

/* A query that is known to be off by no more than a bound moves a score by no more than is said, and by as much. */
TEST(test_uncertain_query)
{
    const struct ha_shape shape = { .head_dim = DIM, .scale = 0.5f, .dtype = HA_F32 };
    float x[4 * DIM];
    for (uint64_t n = 0; n < 40; n++) {
        const struct ha_def_blocks blocks = { .size = 1, .count = 1, .mean = n % 2 };
        struct ha_def_digest digest;
        double q[DIM], off[DIM], from = 0, to = 0;
        ha_rng_normals(SEED, 10, n * COUNT(x), COUNT(x), x);
        for (size_t d = 0; d < DIM; d++) {
            const double a = (double)x[2 * DIM + d], b = blocks.mean ? a : (double)x[3 * DIM + d];
            double most = -HUGE_VAL, least = HUGE_VAL;
            q[d] = (double)x[d];
            off[d] = 0.1 * fabs((double)x[DIM + d]);
            digest.least[d] = fmin(a, b);
            digest.most[d] = fmax(a, b);
            for (int i = -1; i <= 1; i++) {
                const double is = 0.5 * fmax((q[d] + i * off[d]) * a, (q[d] + i * off[d]) * b);
                most = fmax(most, is);
                least = fmin(least, is);
            }
            from += least;
            to += most;
        }
        const struct ha_ref_score s = ha_def_digest_score(&shape, &blocks, &digest, q, off);
        if (!(s.low <= from && s.high >= to)) fail_msg("%g to %g, not %g to %g", from, to, s.low, s.high);
        if (!(s.high - s.low < 4 * (to - from))) fail_msg("%g to %g for %g to %g", s.low, s.high, from, to);
        off[0] = 3e38;
        digest.most[0] = 2;
        const struct ha_ref_score unknown = ha_def_digest_score(&shape, &blocks, &digest, q, off);
        assert_true(unknown.low == -HUGE_VAL && unknown.high == HUGE_VAL);
    }
}

/* Scores that a prediction leaves open are known by the query that the part says it had: of the last block that is
 * chosen on the host and the next, which is smaller by `gap` of it. */
static enum ha_status swap_close(double gap)
{
    static const double param[PARAMS] = { SIZE, 12, 4, 0, 0, ON, 0, 0, OFF, 2 };
    const size_t head = Q_HEADS - 1, count = (CTX[1] + FROM) / SIZE, resident = CTX[1] / SIZE - 1;
    const struct ask a = { NO_MISTAKE, FROM, WHERE, 1, 1 };
    size_t order[BLOCKS], last = 0, next = 0;
    bool in[BLOCKS];
    world_make(param, 1, 0, HA_F32, false, false);
    /* what is predicted there is small beside its terms */
    for (size_t n = head * DIM; n < (size_t)Q_HEADS * DIM; n++) {
        w.bias[WHERE][n] = 0;
        for (size_t j = 0; j < MODEL; j++)
            w.bias[WHERE][n] -= 0.99f * w.wq[WHERE][n * MODEL + j] * w.x[FROM][WHERE - 1][1][0][j];
    }
    predict();
    choose(&a, AHEAD, head, head + 1, count, 3, in, order);
    for (size_t i = count; i-- > 0;)
        if (order[i] != resident && !in[order[i]]) next = order[i];
    for (size_t i = 0; i < 3; i++)
        if (order[i] != resident) last = order[i];
    float(*k)[DIM] = w.k[WHERE][1][head / GROUP];
    for (size_t i = 0; i < (size_t)SIZE * DIM; i++)
        k[next * SIZE + i / DIM][i % DIM] = (float)((double)k[last * SIZE + i / DIM][i % DIM] * (1 - gap));
    keys_store();
    simulate_all(NO_MISTAKE, 0, false, right);
    if (judge(right) != HA_OK) fail_msg("a gap of %g: %s", gap, why.text);
    uint8_t *side = right[FROM][WHERE][1][head].side;
    assert_true(side[last * SIZE] == HA_MARK_HOST && side[next * SIZE] == HA_MARK_NONE);
    memset(side + last * SIZE, HA_MARK_NONE, SIZE);
    memset(side + next * SIZE, HA_MARK_HOST, SIZE);
    return judge(right);
}

TEST(test_reported_query)
{
    if (swap_close(1e-7) != HA_OK) fail_msg("%s", why.text);
    assert_int_equal(swap_close(1e-5), HA_FAIL);
    assert_non_null(strstr(why.text, "the part's query chooses"));
}

/* ---- what is fitted, and what is not there --------------------------------------------------- */

TEST(test_fit)
{
    static const double param[PARAMS] = { SIZE, 12, 0, 0, 0, ON, 0, 0, ON, 0 };
    static char file[4096];
    const float interval[LAYERS] = { 2, 3, 2 };
    uint64_t header = 0;
    struct ha_fit *of = NULL;
    header = (uint64_t)snprintf(
        file + 8, sizeof file - 8,
        "{\"__metadata__\":{\"format\":\"habench-fit\",\"version\":\"1\",\"variant\":\"scout\",\"params\":\"\","
        "\"model\":\"m\","
        "\"layers\":\"3\",\"q_heads\":\"4\",\"kv_heads\":\"2\",\"head_dim\":\"8\",\"model_dim\":\"12\",\"dataset\":"
        "\"d\","
        "\"seed\":\"1\",\"case\":\"c\",\"habench\":\"h\"},\"interval\":{\"dtype\":\"F32\",\"shape\":[%d],"
        "\"data_offsets\":[0,%zu]}}",
        LAYERS, sizeof interval);
    memcpy(file, &header, sizeof header);
    memcpy(file + 8 + header, interval, sizeof interval);
    if (ha_fit_parse(&of, "test", file, 8 + header + sizeof interval, &why) != HA_OK) fail_msg("%s", why.text);
    world_make(param, 1, 2, HA_F32, false, false);
    enum ha_status status[2];
    for (size_t i = 0; i < 2; i++) {
        for (size_t n = 0; n < LAYERS * BATCH; n++) {
            w.param[INTERVAL] = i ? 2 : (double)interval[n / BATCH];
            simulate(NO_MISTAKE, n / BATCH, n % BATCH, 0, false, right);
        }
        w.param[INTERVAL] = 0;
        fit = of;
        status[i] = judge(right);
        fit = NULL;
        if (i == 0 && status[i] != HA_OK) fail_msg("%s", why.text);
    }
    assert_int_equal(status[1], HA_FAIL);
    assert_non_null(strstr(why.text, "layer 1 seq 0 head 0: a recall was issued in step 2"));
    assert_int_equal(judge(right), HA_WAIVED);
    assert_non_null(strstr(why.text, "needs a fit"));
    ha_fit_close(of);
}

TEST(test_no_input)
{
    world_make(CASE[0].param, 1, 2, HA_F32, false, false);
    simulate_all(NO_MISTAKE, 0, false, right);
    w.projection[1].wq = NULL;
    assert_int_equal(judge(right), HA_ERROR);
    assert_non_null(strstr(why.text, "predict=ahead needs layer inputs"));
    w.shape.model_dim = 0;
    assert_int_equal(judge(right), HA_ERROR);
    assert_non_null(strstr(why.text, "predict=ahead needs layer inputs"));
}

/* ---- a choice that is seen in part ----------------------------------------------------------- */

/* Of all that may be known of five candidates: a choice is there if one of those that there are agrees. */
TEST(test_partial)
{
    enum { COUNT_OF = 5, TIMES = HA_SANITIZED ? 6 : 40 };
    for (uint64_t n = 0; n < TIMES; n++) {
        struct ha_ref_score score[COUNT_OF];
        float x[2 * COUNT_OF];
        ha_rng_normals(SEED, 7, n * COUNT(x), COUNT(x), x);
        for (size_t i = 0; i < COUNT_OF; i++) {
            const double low = floor(3 * (double)x[2 * i]);
            score[i] = (struct ha_ref_score){ low, low, low + (n % 2 ? floor(fabs(3 * (double)x[2 * i + 1])) : 0) };
            if (n % 4 == 3 && i % 2) score[i] = (struct ha_ref_score){ 0, -HUGE_VAL, HUGE_VAL }; /* not known */
        }
        const size_t want = n % (COUNT_OF + 2);
        for (size_t known = 0; known < 243; known++) {
            uint8_t is[COUNT_OF];
            bool any = false, may[2][COUNT_OF] = { { false } };
            for (size_t i = 0, rest = known; i < COUNT_OF; i++, rest /= 3) is[i] = (uint8_t)(rest % 3);
            for (unsigned in = 0; in < 1U << COUNT_OF; in++) {
                bool right_one = (size_t)__builtin_popcount(in) == (want < COUNT_OF ? want : COUNT_OF);
                for (size_t i = 0; i < COUNT_OF; i++) {
                    right_one &= is[i] == HA_DEF_MAYBE || is[i] == (in >> i & 1);
                    for (size_t j = 0; j < COUNT_OF; j++)
                        right_one &= !(in >> i & 1) || in >> j & 1 || score[i].high >= score[j].low;
                }
                any |= right_one;
                for (size_t i = 0; i < COUNT_OF; i++) may[in >> i & 1][i] |= right_one;
            }
            struct ha_def_partial p;
            assert_int_equal(ha_def_partial_begin(&p, score, is, COUNT_OF, want, &why), HA_OK);
            if (ha_def_partial_is(&p) != any) fail_msg("case %zu, known %zu", (size_t)n, known);
            for (size_t i = 0; i < COUNT_OF; i++)
                for (size_t in = 0; in < 2 && is[i] == HA_DEF_MAYBE; in++)
                    if (ha_def_partial_may(&p, i, in ? HA_DEF_IN : HA_DEF_OUT) != may[in][i])
                        fail_msg("case %zu, known %zu: %zu", (size_t)n, known, i);
            ha_def_partial_end(&p);
        }
    }
}
