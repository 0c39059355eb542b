#ifndef HA_REFERENCE_TEST_CLO_WORLD_H
#define HA_REFERENCE_TEST_CLO_WORLD_H

/* A world of several layers, sequences and heads, whose queries drift, and a plain simulation of CLO in it, in binary32
 * and binary64; and the mistakes that it can make. */

#include "harness/api/reference.h"

struct ha_fit;

enum { LAYERS = 3, BATCH = 2, Q_HEADS = 4, KV_HEADS = 2, GROUP = Q_HEADS / KV_HEADS, DIM = 16, MODEL = 24 };
enum { STEPS = 7, ROWS = 2, CAP = 256, BITS = 64, SEED = 7 };

enum {
    K,
    SINK,
    RECENT,
    ETA,
    P,
    THRESHOLD,
    GROUP_RULE,
    PREFETCH,
    RETRIEVE,
    BITS_PARAM,
    HASH,
    TRANSFER,
    STORES,
    SYNC,
    EPS,
    BUDGET_MB,
    PERSISTENT,
    HARD,
    PREDICT,
    PARAMS
};
enum { ADAPTIVE, FIXED };
enum { HARMONIC, MIN };
enum { HATA, QUEST, EXACT };
enum { RANDOM, LEARNED };
enum { DEVICE, CPU, ORACLE };

/* which tensors the fit has: bits */
enum { HAS_IMPORTANCE = 1, HAS_SIMILARITY = 2, HAS_PACE = 4, HAS_HASH = 8 };

extern struct ha_test_clo {
    double param[PARAMS];
    struct ha_shape shape;
    size_t q_len;
    unsigned has; /* 0: there is no fit */
    float k[LAYERS][BATCH][KV_HEADS][CAP][DIM];
    char stored[LAYERS][BATCH][KV_HEADS * CAP * DIM * sizeof(float)];
    float x[STEPS][LAYERS][BATCH][ROWS][MODEL], wq[LAYERS][Q_HEADS * DIM][MODEL], bias[Q_HEADS * DIM],
        inv_freq[DIM / 2];
    float q[STEPS][LAYERS][BATCH][ROWS][Q_HEADS][DIM];
    struct {
        float importance_q[LAYERS][Q_HEADS], importance_kv[LAYERS][KV_HEADS], similarity[LAYERS][KV_HEADS], pace[2];
        float hash[LAYERS][KV_HEADS][BITS][DIM];
    } fit;
    struct ha_projection projection[LAYERS];
} ha_test_clo;

enum mistake {
    NO_MISTAKE,
    /* in places */
    SINK_MISSING,
    RECENT_MISSING,
    NEW_MISSING,
    SINK_TWICE,
    RECENT_TWICE,
    ON_HOST,
    TWO_PARTS,
    OWN_QUERY,
    PADDED,
    GAP_USED,
    /* in notes */
    NO_PERSISTENT_NOTE,
    NO_HIT_NOTE,
    NO_SIMILARITY_NOTE,
    HIT_NOTE,
    SIMILARITY_NOTE,
    HIT_IS_2,
    PERSISTENT_IS_2,
    HIT_OF_HEAD,
    SIMILARITY_OF_HEAD,
    FIRST_IS_A_HIT,
    /* in look-up */
    LABEL_ON_HIT,
    LABEL_KEPT,
    LABEL_OF_FIRST_TOKEN,
    LABEL_OF_OWN_QUERY,
    OWN_LOOK_UP,
    LAYER_AFTER_NEXT,
    POSITION,
    OTHER_HEADS_QUERY,
    BY_MAX,
    ARITHMETIC,
    NO_WEIGHTS,
    LAST_TOKEN,
    OTHER_TAU,
    NO_POWER,
    BELOW_IS_A_HIT,
    /* in the choice */
    K_MORE,
    K_LESS,
    SWAPPED,
    OTHER_BUFFER,
    EACH_HEAD,
    CHOICE_BY_OWN,
    CHOICE_BY_LAST,
    NO_NORM,
    A_BIT_FEWER,
    OTHER_MATRIX,
    OTHER_DIGEST,
    REUSED_ON_MISS,
    CHOSEN_ON_HIT,
    LEFT_ADDED,
    KEY_LOST,
    /* in persistent heads */
    STALE_PERSISTENT,
    PREDICTED_PERSISTENT,
    PART_OF_PERSISTENT,
    NOT_PERSISTENT,
    FIRST_LAYER_OFFLOADED,
    OTHER_PERSISTENT,
    ALL_PERSISTENT,
    NO_BUDGET,
    PERSISTENT_LATER,
    MISTAKES
};

/* what one head reports of one step */
enum { ONCE = 1, TWICE = 2 };
struct told {
    uint8_t part[CAP]; /* how often each token is used */
    double persistent, hit, similarity, left_out;
    enum mistake of;
};
typedef struct told table[STEPS][LAYERS][BATCH][Q_HEADS];

/* ctx: of both sequences */
void ha_test_clo_make(const double *param, const size_t *ctx, size_t q_len, enum ha_dtype dtype, unsigned has);
/* Its tensors as a fit, the caller's; NULL where it has none. */
struct ha_fit *ha_test_clo_fit(void);
/* Those of all layers, by the mistake. */
void ha_test_clo_persistent(enum mistake m, bool out[LAYERS][KV_HEADS]);
/* What is reported of all steps; with a mistake only where it may change. One is made in the first sequence of a layer
 * (ha_test_clo_layer), of its last KV head, from step 1 on, but for those of persistent heads, which are made
 * throughout. */
void ha_test_clo_simulate(enum mistake m, table out);
size_t ha_test_clo_layer(enum mistake m);
double ha_test_clo_threshold(enum mistake m, size_t layer, size_t kv);

#endif
