#include "datasets/test_file.h"

#include "harness/base/numeric.h"
#include "harness/base/rng.h"

struct test_trace trace;

const char *path(void) { return test_path("t.safetensors"); }

static enum ha_dtype dtype_of(enum ha_tensor_type type)
{
    return type == HA_T_F16 ? HA_F16 : type == HA_T_BF16 ? HA_BF16 : HA_F32;
}

static void tensor_make(const char *name, enum ha_tensor_type type, size_t dims, const size_t *dim)
{
    const size_t i = trace.tensors++;
    struct ha_tensor *x = &trace.tensor[i];
    size_t n = 1;
    strcpy(trace.name[i], name);
    *x = (struct ha_tensor){ .name = trace.name[i], .type = type, .dims = dims, .data = trace.stored[i] };
    for (size_t j = 0; j < dims; j++) n *= x->dim[j] = dim[j];
    x->bytes = n * ha_dtype_bytes(dtype_of(type));
    ha_rng_normals(1, i, 0, n, trace.value[i]);
    for (size_t j = 0; j < n; j++) trace.value[i][j] = ha_round(trace.value[i][j], dtype_of(type));
}

void trace_make(enum ha_tensor_type type, unsigned has)
{
    const bool second = (has & ~(unsigned)TEST_X) != 0;
    const struct {
        const char *key, *text;
        bool left_out;
    } meta[META_MAX] = {
        { "format", "habench-trace", false },
        { "version", second ? "2" : "1", false },
        { "model", "none", false },
        { "source", "noise", false },
        { "tokens", "40", false },
        { "q_first", "24", false },
        { "layers", "2", false },
        { "q_heads", "4", false },
        { "kv_heads", "2", false },
        { "head_dim", "30", false },
        { "model_dim", "10", false },
        { "rope_theta", "10000.0", false },
        { "norm_eps", "1e-05", false },
        { "scale", "0.25", false },
        { "licence", "none", false },
        { "q_norm_eps", "0.125", !(has & TEST_NORM) },
        { "rope_pairing", "half", !(has & TEST_ROPE) },
        { "rope_scale", "1.25", !(has & TEST_ROPE) },
    };
    static const struct {
        const char *part;
        unsigned of;
        size_t dims, dim[3];
    } parts[] = {
        { "k", TEST_NONE, 3, { KV_HEADS, TOKENS, HEAD_DIM } },   { "v", TEST_NONE, 3, { KV_HEADS, TOKENS, HEAD_DIM } },
        { "q", TEST_NONE, 3, { Q_HEADS, ROWS, HEAD_DIM } },      { "x", TEST_X, 2, { ROWS, MODEL_DIM } },
        { "wq", TEST_X, 2, { Q_HEADS * HEAD_DIM, MODEL_DIM } },  { "norm", TEST_X, 1, { MODEL_DIM } },
        { "q_bias", TEST_BIAS, 1, { Q_HEADS * HEAD_DIM } },      { "q_norm", TEST_NORM, 1, { HEAD_DIM } },
        { "wo", TEST_WO, 2, { MODEL_DIM, Q_HEADS * HEAD_DIM } },
    };
    memset(&trace, 0, sizeof trace);
    for (size_t i = 0; i < META_MAX; i++) {
        if (meta[i].left_out) continue;
        strcpy(trace.key[trace.keys], meta[i].key);
        strcpy(trace.text[trace.keys++], meta[i].text);
    }
    for (size_t layer = 0; layer < LAYERS; layer++)
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            char name[24];
            snprintf(name, sizeof name, "layers.%zu.%s", layer, parts[p].part);
            if (!parts[p].of || has & parts[p].of) tensor_make(name, type, parts[p].dims, parts[p].dim);
        }
    if (!(has & TEST_ROPE)) return;
    tensor_make("rope.inv_freq", HA_T_F32, 1, &(size_t){ 6 });
    for (size_t i = 0; i < 6; i++) trace.value[trace.tensors - 1][i] = 1.5f / (float)(i + 1);
}

void trace_write(void)
{
    const char *meta[2 * META_MAX + 1] = { NULL };
    for (size_t i = 0; i < trace.keys; i++) {
        meta[2 * i] = trace.key[i];
        meta[2 * i + 1] = trace.text[i];
    }
    for (size_t i = 0; i < trace.tensors; i++) {
        const struct ha_tensor *x = &trace.tensor[i];
        ha_store_row(trace.stored[i], x->bytes / ha_dtype_bytes(dtype_of(x->type)), dtype_of(x->type), trace.value[i]);
    }
    struct ha_why why;
    if (ha_safetensors_write(path(), trace.tensor, trace.tensors, meta, &why) != HA_OK) fail_msg("%s", why.text);
}

void trace_meta(const char *key, const char *text)
{
    for (size_t i = 0; i < trace.keys; i++)
        if (strcmp(trace.key[i], key) == 0) {
            strcpy(trace.text[i], text);
            return;
        }
    fail_msg("no key %s", key);
}

size_t trace_index(int layer, const char *part)
{
    char name[24] = "rope.inv_freq";
    if (layer >= 0) snprintf(name, sizeof name, "layers.%d.%s", layer, part);
    for (size_t i = 0; i < trace.tensors; i++)
        if (strcmp(trace.name[i], name) == 0) return i;
    fail_msg("no tensor %s", name);
    return 0;
}

float *trace_value(int layer, const char *part) { return trace.value[trace_index(layer, part)]; }
