#include "reference/test_inputs.h"

/* ---- memory ---------------------------------------------------------------------------- */

static struct block {
    struct block *next;
    max_align_t data[];
} * blocks;

static void *take(size_t bytes)
{
    struct block *b = calloc(1, sizeof *b + bytes);
    if (!b) abort();
    b->next = blocks;
    blocks = b;
    return b->data;
}

void ha_test_release(void)
{
    while (blocks) {
        struct block *next = blocks->next;
        free(blocks);
        blocks = next;
    }
}

/* ---- the families ------------------------------------------------------------------------ */

enum stream { Q, K, V, EXTRA };

static float normal(const struct ha_test_input *in, enum stream s, size_t i) { return ha_rng_normal(in->seed, s, i); }
static float uniform(const struct ha_test_input *in, size_t i) { return ha_rng_uniform(in->seed, EXTRA, i); }
static bool half(const struct ha_test_input *in) { return in->dtype == HA_F16; }

/* key j along q, so that its score is about `score` */
static void aim(struct ha_test_input *in, size_t j, double score)
{
    double qq = 0;
    for (size_t i = 0; i < in->dim; i++) qq += (double)in->q[i] * (double)in->q[i];
    const double t = score / (qq * (double)in->scale);
    for (size_t i = 0; i < in->dim; i++) in->k[j * in->dim + i] = (float)(t * (double)in->q[i]);
}

static void aim_value(struct ha_test_input *in, size_t j, float v)
{
    for (size_t i = 0; i < in->dim; i++) in->v[j * in->dim + i] = v;
}

static void stretch_query(struct ha_test_input *in, float by)
{
    for (size_t i = 0; i < in->dim; i++) in->q[i] *= by;
}

static void iid(struct ha_test_input *in) { (void)in; }
static void huge_scores(struct ha_test_input *in) { stretch_query(in, half(in) ? 3e2f : 1e4f); }
static void extreme_scores(struct ha_test_input *in) { stretch_query(in, half(in) ? 3e3f : 1e5f); }

static void offset_scores(struct ha_test_input *in)
{
    for (size_t j = 0; j < in->keys; j++) aim(in, j, (half(in) ? 1e3 : 1e4) + (double)normal(in, EXTRA, j));
}

static void ties(struct ha_test_input *in)
{
    for (size_t j = 1; j < in->keys; j++) memcpy(in->k + j * in->dim, in->k, in->dim * sizeof *in->k);
}

static void ties_of_one_value(struct ha_test_input *in)
{
    ties(in);
    for (size_t j = 0; j < in->keys; j++) aim_value(in, j, 0.1f);
}

static void cancelling_values(struct ha_test_input *in)
{
    for (size_t j = 0; j + 1 < in->keys; j += 2) {
        memcpy(in->k + (j + 1) * in->dim, in->k + j * in->dim, in->dim * sizeof *in->k);
        for (size_t i = 0; i < in->dim; i++) {
            const float big = ha_round(1000 * in->v[j * in->dim + i], in->dtype);
            in->v[j * in->dim + i] = big;
            in->v[(j + 1) * in->dim + i] = -big + 1e-3f * in->v[(j + 1) * in->dim + i];
        }
    }
}

static void dominant_key(struct ha_test_input *in) { aim(in, in->keys / 2, 25); }

static void dominant_small_value(struct ha_test_input *in)
{
    aim(in, in->keys / 2, 105);
    aim_value(in, in->keys / 2, 1e-3f);
}

static void increasing(struct ha_test_input *in)
{
    for (size_t j = 0; j < in->keys; j++) aim(in, j, -20 + 40.0 * (double)j / (double)in->keys);
}

static void decreasing(struct ha_test_input *in)
{
    for (size_t j = 0; j < in->keys; j++) aim(in, j, 20 - 40.0 * (double)j / (double)in->keys);
}

static void two_levels(struct ha_test_input *in)
{
    for (size_t j = 0; j < in->keys; j++)
        aim(in, j, (uniform(in, j) < 0.5f ? 0 : -8) + 1e-2 * (double)normal(in, EXTRA, j));
}

static void wide_values(struct ha_test_input *in)
{
    const double decades = half(in) ? 6 : 30;
    for (size_t x = 0; x < in->keys * in->dim; x++)
        in->v[x] *= (float)pow(10, decades * ((double)uniform(in, x) - 0.5));
}

static void underflowing_weights(struct ha_test_input *in)
{
    const float small = half(in) ? 1e-4f : 1e-30f, large = half(in) ? 1e3f : 1e30f;
    for (size_t j = 0; j < in->keys; j++) {
        aim(in, j, j == 0 ? 60 : -80 + 40 * (double)uniform(in, j));
        for (size_t i = 0; i < in->dim; i++) in->v[j * in->dim + i] *= j == 0 ? small : large;
    }
}

static void cancelling_products(struct ha_test_input *in)
{
    for (size_t i = 0; i < in->dim; i++) in->q[i] = 1;
    for (size_t j = 0; j < in->keys; j++)
        for (size_t i = 0; i + 1 < in->dim; i += 2) {
            float *pair = in->k + j * in->dim + i;
            pair[0] = ha_round(50 * pair[0], in->dtype);
            pair[1] = -pair[0] + 0.05f * pair[1];
        }
}

static void exact_offset(struct ha_test_input *in)
{
    memset(in->q, 0, in->dim * sizeof *in->q);
    memset(in->k, 0, in->keys * in->dim * sizeof *in->k);
    in->q[0] = 1;
    if (in->dim > 1) in->q[1] = 1;
    for (size_t j = 0; j < in->keys; j++) {
        in->k[j * in->dim] = 32768;
        if (in->dim > 1) in->k[j * in->dim + 1] = floorf(uniform(in, j) * 64) / 4;
    }
}

/* equal weights that are not a power of 2, equal values: every rounding has one sign */
static void biased(struct ha_test_input *in)
{
    aim(in, 0, 0);
    for (size_t j = 1; j < in->keys; j++) aim(in, j, -0.3137);
    for (size_t j = 0; j < in->keys; j++) aim_value(in, j, 0.7133f);
}

static const struct {
    const char *name;
    void (*shape)(struct ha_test_input *in);
} family[] = {
    { "iid", iid },
    { "huge scores", huge_scores },
    { "extreme scores", extreme_scores },
    { "offset scores", offset_scores },
    { "ties", ties },
    { "ties of one value", ties_of_one_value },
    { "cancelling values", cancelling_values },
    { "dominant key", dominant_key },
    { "dominant key of small value", dominant_small_value },
    { "increasing", increasing },
    { "decreasing", decreasing },
    { "two levels", two_levels },
    { "wide values", wide_values },
    { "underflowing weights", underflowing_weights },
    { "cancelling products", cancelling_products },
    { "exact offset", exact_offset },
    { "biased", biased },
};

const size_t ha_test_families = sizeof family / sizeof family[0];

const char *ha_test_family_name(size_t i) { return family[i].name; }

const char *ha_test_input_says(const struct ha_test_input *in)
{
    static char text[128];
    snprintf(text, sizeof text, "%s, n = %zu, d = %zu, %s, seed %llu", in->family, in->keys, in->dim,
             ha_dtype_name(in->dtype), (unsigned long long)in->seed);
    return text;
}

/* ---- inputs and states --------------------------------------------------------------------- */

void ha_test_input_store(struct ha_test_input *in)
{
    const size_t n = in->keys * in->dim;
    ha_store_row(in->k_stored, n, in->dtype, in->k);
    ha_load_row(in->k_stored, n, in->dtype, in->k);
    ha_store_row(in->v_stored, n, in->dtype, in->v);
    ha_load_row(in->v_stored, n, in->dtype, in->v);
}

struct ha_test_input ha_test_input(size_t which, size_t keys, size_t dim, enum ha_dtype dtype, uint64_t seed)
{
    const size_t n = keys * dim, row = dim * ha_dtype_bytes(dtype);
    struct ha_test_input in = {
        .family = family[which].name,
        .keys = keys,
        .dim = dim,
        .dtype = dtype,
        .scale = (float)(1 / sqrt((double)dim)),
        .seed = seed,
        .q = take(dim * sizeof(float)),
        .k = take(n * sizeof(float)),
        .v = take(n * sizeof(float)),
        .k_stored = take(keys * row),
        .v_stored = take(keys * row),
    };
    in.rows = (struct ha_rows){
        .k = in.k_stored, .v = in.v_stored, .k_stride_bytes = row, .v_stride_bytes = row, .keys = keys
    };
    ha_rng_normals(seed, Q, 0, dim, in.q);
    ha_rng_normals(seed, K, 0, n, in.k);
    ha_rng_normals(seed, V, 0, n, in.v);
    for (size_t i = 0; i < dim; i++) in.q[i] = ha_round(in.q[i], dtype);
    family[which].shape(&in);
    for (size_t i = 0; i < dim; i++) in.q[i] = ha_round(in.q[i], dtype);
    ha_test_input_store(&in);
    return in;
}

struct ha_ref_state ha_test_state(size_t dim)
{
    double *x = take(4 * dim * sizeof *x);
    return (struct ha_ref_state){ .o = x, .bound = x + dim, .v_min = x + 2 * dim, .v_max = x + 3 * dim, .dim = dim };
}

struct ha_ref_state ha_test_attend(const struct ha_test_input *in, const struct ha_rows *rows, const struct ha_bound *b)
{
    struct ha_ref_state out = ha_test_state(in->dim);
    ha_ref_attend(in->q, in->dim, (double)in->scale, rows, in->dtype, b, take(2 * rows->keys * sizeof(double)), &out);
    return out;
}
