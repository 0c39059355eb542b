#ifndef HA_REFERENCE_TEST_FLUXION_WORLD_H
#define HA_REFERENCE_TEST_FLUXION_WORLD_H

/* A world of several layers, sequences and heads, and a plain simulation of Fluxion in it, in binary32 and binary64,
 * with features, labels and a net of its own; and the mistakes that it can make. */

#include "harness/api/features.h"
#include "harness/api/reference.h"

struct ha_fit;

enum { LAYERS = 2, BATCH = 2, Q_HEADS = 4, KV_HEADS = 2, GROUP = Q_HEADS / KV_HEADS, DIM = 8 };
enum { STEPS = 2, ROWS = 2, SEEN = 2, CAP = 320, UNITS = 312, SEED = 7, F = HA_FEATURES };
static const size_t CTX[BATCH] = { 173, 300 };

enum {
    SINK,
    RECENT,
    DIGEST,
    PREDICT,
    BUDGET,
    CRITERION,
    TAU,
    GRANULARITY,
    SKIP_STREAMING,
    UNION,
    SCHEDULE,
    FETCH,
    PARAMS
};
enum { NET, ORACLE, FIXED };
enum { CONTRIBUTION, OUTPUT, SCORE };
enum { SIZES = 5 };
static const size_t size_of[SIZES] = { 1, 16, 32, 64, 128 };

extern struct ha_test_fluxion {
    double param[PARAMS];
    struct ha_shape shape;
    size_t q_len;
    float k[LAYERS][BATCH][KV_HEADS][CAP][DIM], v[LAYERS][BATCH][KV_HEADS][CAP][DIM];
    char stored[2][LAYERS][BATCH][KV_HEADS * CAP * DIM * sizeof(float)];
    float q[STEPS][LAYERS][BATCH][ROWS][Q_HEADS][DIM], seen[LAYERS][BATCH][SEEN][Q_HEADS][DIM];
    struct {
        float mean[F], inv[F], w0[F][UNITS], b0[UNITS], w1[UNITS][UNITS], b1[UNITS], w2[UNITS][3], b2[3];
    } net;
} ha_test_fluxion;

enum mistake {
    NO_MISTAKE,
    /* in places */
    SINK_MISSING,
    LOCAL_MISSING,
    NEW_MISSING,
    SINK_ON_HOST,
    LOCAL_EITHER,
    HOST_ON_DEVICE,
    ONE_DEVICE_STATE,
    HOST_KEY_IN_LOCAL,
    TWO_TASKS,
    OWN_QUERY,
    NO_VALUES,
    OTHER_CLAIMS,
    /* in notes */
    NO_NOTE,
    STREAMING_NOTE,
    BGT0_OF_HEAD,
    K_OF_HEAD,
    S_OF_HEAD,
    BGT0_OFF,
    K_OFF,
    S_OFF,
    NEGATIVE_S,
    /* in what is predicted */
    OTHER_BUDGET,
    OTHER_CRITERION,
    OTHER_TAU,
    OTHER_DIGEST_LABELS,
    OWN_NORM,
    FREE_LINE,
    FIRST_QUERY,
    QUERY_OF_HEAD,
    NO_BIAS,
    NO_RELU,
    NO_LAST_INPUT,
    NEXT_INV,
    NO_MEAN,
    NO_CLAMP,
    MEAN_OF_KV_HEAD,
    NEW_KEYS_LEFT_OUT,
    /* in what is learnt */
    NOTHING_LEARNT,
    LEARNT_ONLINE,
    LEARNT_AGAIN,
    LEARNT_HEAD,
    ANCHOR_BEFORE,
    BUDGET_MORE,
    BUDGET_LESS,
    BUDGET_BETWEEN,
    SAMPLE_VARIANCE,
    EXCESS_KURTOSIS,
    /* in the block and the number of blocks */
    OTHER_BLOCK,
    BLOCK_OF_HEAD,
    NEVER_SCHEDULED,
    ALWAYS_SCHEDULED,
    NO_METADATA,
    SUM_NOT_CLAMPED,
    BUDGETS_NOT_CLAMPED,
    STREAMING_COUNTS,
    NATURAL_LOG,
    BLOCKS_MORE,
    BLOCKS_LESS,
    BLOCKS_NOTE,
    /* in the choice */
    STREAMS_AND_READS,
    READS_NOTHING,
    SWAPPED,
    KEY_MISSING,
    STRAY_KEY,
    OTHER_DIGEST,
    OTHER_HEAD,
    OTHER_KV_HEAD,
    BY_LAST_QUERY,
    OTHER_UNION,
    UNION_LESS,
    UNION_OF_HEAD,
    MISTAKES
};

/* what one head reports of one step */
enum { NOWHERE, IN_SINK, IN_LOCAL, IN_TASK };
struct told {
    uint8_t part[CAP]; /* of each token */
    double learnt[F], bgt0, k, s, streaming, block, blocks;
    enum mistake of;
};
typedef struct told table[STEPS][LAYERS][BATCH][Q_HEADS];

/* Mistakes are made in the second sequence of the last layer, from step FROM on; what is learnt from the first. */
enum { FROM = 1 };

struct ask {
    enum mistake of;
    size_t step, layer, seq;
};

/* A world of so many layers, with weights as a net begins with, and means and deviations of the features in it. */
void ha_test_fluxion_make(const double *param, size_t layers, size_t q_len, enum ha_dtype dtype);
/* Its net as a fit, the caller's. */
struct ha_fit *ha_test_fluxion_fit(void);
size_t ha_test_fluxion_host(size_t seq); /* keys of the host */

/* What is reported of all steps of a layer and sequence, of all layers and sequences, and with these blocks by the
 * heads of a group. */
void ha_test_fluxion_simulate(enum mistake mistake, size_t layer, size_t seq, table out);
void ha_test_fluxion_simulate_all(enum mistake mistake, table out);
void ha_test_fluxion_choose(const struct ask *a, size_t first, struct told *t);

#endif
