#include "datasets/trace.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A libFuzzer target: any bytes as a safetensors file, and what passes as a trace. The case takes its
 * length from the metadata, so that a whole trace is read back through the dataset. */

extern const struct ha_dataset ha_dataset_trace;
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static volatile unsigned char seen;

static void touch(const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) seen = (unsigned char)(seen ^ ((const unsigned char *)data)[i]);
}

static size_t meta_size(const struct ha_safetensors *file, const char *key)
{
    const char *text = ha_safetensors_meta(file, key);
    return text ? strtoul(text, NULL, 10) : 0;
}

static void read_all(struct ha_source *src, const struct ha_shape *s, size_t first_query, size_t tokens)
{
    float q[4096];
    void *k = malloc(tokens * s->head_dim * 4);
    for (size_t layer = 0; layer < s->layers; layer++) {
        for (size_t head = 0; head < s->kv_heads; head++) {
            ha_dataset_trace.kv(src, 0, layer, head, 0, tokens, k, NULL);
            ha_dataset_trace.kv(src, 0, layer, head, 0, tokens, NULL, k);
        }
        for (size_t token = first_query; token < tokens; token++) {
            for (size_t head = 0; head < s->q_heads && s->head_dim <= 4096; head++)
                ha_dataset_trace.query(src, 0, layer, head, token, q);
            if (s->model_dim && s->model_dim <= 4096) ha_dataset_trace.input(src, 0, layer, token, q);
        }
        const struct ha_projection p = ha_dataset_trace.projection(src, layer);
        const size_t width = s->q_heads * s->head_dim;
        if ((p.wq != NULL) != (s->model_dim != 0)) abort();
        touch(p.wq, width * s->model_dim * sizeof *p.wq);
        if (p.bias) touch(p.bias, width * sizeof *p.bias);
        if (p.norm) touch(p.norm, s->head_dim * sizeof *p.norm);
        if (p.wo) touch(p.wo, s->model_dim * width * sizeof *p.wo);
        if (p.inv_freq) touch(p.inv_freq, p.rotary / 2 * sizeof *p.inv_freq);
    }
    free(k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ha_safetensors *file;
    struct ha_source *src;
    struct ha_why why;
    if (ha_safetensors_parse(&file, "input", data, bytes, &why) != HA_OK) return 0;
    for (size_t i = 0; i < ha_safetensors_count(file); i++) {
        const struct ha_tensor *t = ha_safetensors_at(file, i);
        if (ha_safetensors_find(file, t->name) != t) abort();
        touch(t->data, t->bytes);
    }
    size_t tokens = meta_size(file, "tokens"), first_query = meta_size(file, "q_first");
    struct ha_shape shape = { .batch = 1, .dtype = (enum ha_dtype)(bytes % HA_DTYPE_COUNT), .q_len = 1 };
    shape.ctx[0] = tokens;
    shape.observed = tokens - first_query;
    if (ha_trace_open(&src, &shape, "input", file, &why) != HA_OK) return 0;
    read_all(src, &shape, first_query, tokens);
    ha_dataset_trace.close(src);
    return 0;
}
