/* dataset=model decodes with the attention that it is given: full attention, written here, loses nothing; a head less
 * does. */

#include "datasets/model/capture.h"
#include "datasets/model/fake_gguf.h"
#include "harness/api/dataset.h"
#include "harness/base/numeric.h"
#include "harness/base/test_folder.h"

#include <math.h>

extern const struct ha_dataset ha_dataset_model;

enum { CTX = 30, STEPS = 5, DIM = FAKE_HEAD_DIM, Q = FAKE_Q_HEADS * DIM };

static struct ha_why why;
static const char text[] =
    "then in the thin air the other, another; 12 er \303\251\n\nthe theory is there and in it he erred; "
    "and there the rest of it is, in the end, as ever, the same text without an end to it all in the air\n";

static int begin(void **state)
{
    static char path[TEST_PATH_MAX];
    struct fake_gguf g;
    if (test_folder_make(state) != 0) return -1;
    fake_model(&g, &(struct fake_model){ .type = 1, .head = true });
    test_write("m.gguf", g.bytes, g.count);
    test_write("t.txt", text, strlen(text));
    free(g.bytes);
    snprintf(path, sizeof path, "%s", test_path("m.gguf"));
    return setenv("HABENCH_MODEL", path, 1);
}

static int end(void **state)
{
    unsetenv("HABENCH_MODEL");
    return test_folder_remove(state);
}

static struct ha_source *open_source(struct ha_shape *shape, enum ha_dtype dtype, size_t batch, size_t q_len)
{
    struct ha_source *s;
    *shape = (struct ha_shape){ .batch = batch, .dtype = dtype, .q_len = q_len, .steps = STEPS, .observed = 8 };
    for (size_t b = 0; b < batch; b++) shape->ctx[b] = CTX - 7 * b;
    if (ha_dataset_model.open(&ha_dataset_model, &s, shape, CTX + STEPS * q_len, 1, test_path("t.txt"), &why) != HA_OK
        || ha_dataset_model.prepare(s, &why) != HA_OK)
        fail_msg("%s", why.text);
    assert_true(shape->follows && shape->layers == FAKE_LAYERS && shape->q_heads == FAKE_Q_HEADS);
    return s;
}

/* Full attention of one query head in binary64, over what the dataset says of keys and values. */
static void attend(struct ha_source *s, const struct ha_shape *shape, size_t seq, size_t layer, size_t head,
                   size_t token, float *o)
{
    static float k[CTX + 64][DIM], v[CTX + 64][DIM];
    static char stored[2][(CTX + 64) * DIM * 4];
    const size_t kv = head / (FAKE_Q_HEADS / FAKE_KV_HEADS), n = token + 1;
    float q[DIM];
    double e[CTX + 64], sum = 0;
    ha_dataset_model.query(s, seq, layer, head, token, q);
    ha_dataset_model.kv(s, seq, layer, kv, 0, n, stored[0], stored[1]);
    ha_load_row(stored[0], n * DIM, shape->dtype, k[0]);
    ha_load_row(stored[1], n * DIM, shape->dtype, v[0]);
    for (size_t t = 0; t < n; t++) {
        double score = 0;
        for (size_t i = 0; i < DIM; i++) score += (double)q[i] * (double)k[t][i];
        sum += e[t] = exp(score * (double)shape->scale);
    }
    for (size_t i = 0; i < DIM; i++) {
        double out = 0;
        for (size_t t = 0; t < n; t++) out += e[t] / sum * (double)v[t][i];
        o[i] = (float)out;
    }
}

/* Decodes all steps; of head `without` the output is 0. */
static struct ha_followed decode(struct ha_source *s, const struct ha_shape *shape, size_t without)
{
    static float o[64 * Q];
    struct ha_followed f;
    for (size_t step = 0; step < STEPS; step++)
        for (size_t layer = 0; layer < FAKE_LAYERS; layer++)
            for (size_t b = 0; b < shape->batch; b++) {
                memset(o, 0, sizeof o);
                for (size_t r = 0; r < shape->q_len; r++)
                    for (size_t h = 0; h < FAKE_Q_HEADS; h++)
                        if (h != without)
                            attend(s, shape, b, layer, h, shape->ctx[b] + step * shape->q_len + r,
                                   o + (r * FAKE_Q_HEADS + h) * DIM);
                ha_dataset_model.follow(s, b, layer, step, o);
            }
    ha_dataset_model.followed(s, &f);
    return f;
}

TEST_WITH(full_attention_loses_nothing_and_a_head_less_does, begin, end)
{
    for (enum ha_dtype dtype = HA_F32; dtype <= HA_BF16; dtype++)
        for (size_t batch = 1; batch <= 2; batch++)
            for (size_t q_len = 1; q_len <= 3; q_len += 2) {
                struct ha_shape shape;
                struct ha_source *s = open_source(&shape, dtype, batch, q_len);
                const struct ha_followed full = decode(s, &shape, SIZE_MAX);
                assert_int_equal(full.tokens, STEPS * batch * q_len);
                assert_true(full.full_loss > 1 && fabs(full.loss_change - (full.loss - full.full_loss)) < 1e-9);
                /* what is rounded to 8 bits may fall to the other side */
                assert_true(fabs(full.loss_change) < (dtype == HA_BF16 ? 2e-2 : 1e-3));
                assert_true(full.kl >= -1e-9 && full.kl < (dtype == HA_BF16 ? 1e-3 : 1e-5));
                assert_true(full.top1 == 1 || dtype == HA_BF16);
                const struct ha_followed less = decode(s, &shape, 2);
                assert_true(less.full_loss == full.full_loss && less.kl > 1e-3 && fabs(less.loss_change) > 1e-3);
                assert_true(less.loss_change_se > 0);
                /* what came of it is asked for again; and a new beginning forgets it */
                float q[DIM], again[DIM], before[DIM];
                ha_dataset_model.query(s, 0, 1, 0, CTX + STEPS * q_len - 1, before);
                for (size_t i = 0; i < DIM; i++) assert_true(before[i] == ha_round(before[i], dtype));
                const struct ha_followed same = decode(s, &shape, SIZE_MAX);
                assert_true(same.loss == full.loss && same.kl == full.kl && same.tokens == full.tokens);
                ha_dataset_model.query(s, 0, 1, 0, CTX + STEPS * q_len - 1, q);
                ha_dataset_model.query(s, 0, 1, 0, CTX + STEPS * q_len - 1, again);
                assert_memory_equal(q, again, sizeof q);
                assert_memory_not_equal(q, before, sizeof q);
                ha_dataset_model.close(s);
            }
}

TEST_WITH(the_loss_of_full_attention_is_that_of_the_text, begin, end)
{
    enum { BEFORE = 27, ROWS = 3, ALL = BEFORE + 3 * ROWS + 1 }; /* the last quarter of ALL are those that follow */
    struct ha_shape shape = { .batch = 1, .dtype = HA_F32, .q_len = ROWS, .steps = 3, .ctx = { BEFORE } };
    struct ha_source *s;
    struct ha_captured captured;
    struct ha_followed f;
    char out[TEST_PATH_MAX], text_path[TEST_PATH_MAX];
    strcpy(text_path, test_path("t.txt"));
    const struct ha_capture c = { .model = getenv("HABENCH_MODEL"),
                                  .text = text_path,
                                  .out = strcpy(out, test_path("x")),
                                  .tokens = ALL,
                                  .queries = 1 };
    assert_int_equal(ha_capture(&c, &captured, &why), HA_OK);
    assert_int_equal(ha_dataset_model.open(&ha_dataset_model, &s, &shape, ALL - 1, 1, text_path, &why), HA_OK);
    assert_int_equal(ha_dataset_model.prepare(s, &why), HA_OK);
    float o[ROWS * Q] = { 0 }, q[DIM], zero[DIM] = { 0 };
    ha_dataset_model.query(s, 0, 1, 0, BEFORE, q);
    assert_memory_equal(q, zero, sizeof q); /* nobody knows it before it is made */
    for (size_t i = 0; i < 3 * FAKE_LAYERS; i++) ha_dataset_model.follow(s, 0, i % FAKE_LAYERS, i / FAKE_LAYERS, o);
    ha_dataset_model.followed(s, &f);
    assert_true(fabs(f.full_loss - captured.last_loss) < 1e-5 * f.full_loss);
    ha_dataset_model.close(s);
}

TEST_WITH(what_the_model_does_not_have_is_refused, begin, end)
{
    struct ha_source *s;
    struct ha_shape shape = { .batch = 1, .dtype = HA_F16, .q_len = 1, .steps = 1, .ctx = { 8 }, .layers = 3 };
    assert_int_equal(ha_dataset_model.open(&ha_dataset_model, &s, &shape, 9, 1, test_path("t.txt"), &why), HA_ERROR);
    assert_contains(why.text, "layers=3, but the model has 2");
    shape.layers = 0;
    assert_int_equal(ha_dataset_model.open(&ha_dataset_model, &s, &shape, 96, 1, test_path("t.txt"), &why), HA_ERROR);
    assert_contains(why.text, "the model takes 96");
    assert_int_equal(ha_dataset_model.find("nosuch", &why), HA_ERROR);
    assert_contains(why.text, "datasets/texts/nosuch.txt");
    assert_int_equal(ha_dataset_model.find("house", &why), HA_OK);
    setenv("HABENCH_MODEL", "/nosuch.gguf", 1);
    assert_int_equal(ha_dataset_model.open(&ha_dataset_model, &s, &shape, 9, 1, test_path("t.txt"), &why), HA_ERROR);
    assert_contains(why.text, "/nosuch.gguf: cannot open");
}
