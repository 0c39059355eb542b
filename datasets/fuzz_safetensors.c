#include "datasets/trace.h"
#include "harness/base/fit.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A libFuzzer target: any bytes as a safetensors file, and what passes as a trace or as a fit. The case takes its
 * length from the metadata, so that a whole trace is read back through the dataset; as two sequences that join
 * it with itself, too. */

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

static void read_all(struct ha_source *src, const struct ha_shape *s, size_t seq, size_t first_query, size_t tokens)
{
    float q[4096];
    void *k = malloc(tokens * s->head_dim * 4);
    for (size_t layer = 0; layer < s->layers; layer++) {
        for (size_t head = 0; head < s->kv_heads; head++) {
            ha_dataset_trace.kv(src, seq, layer, head, 0, tokens, k, NULL);
            ha_dataset_trace.kv(src, seq, layer, head, 0, tokens, NULL, k);
        }
        for (size_t token = first_query; token < tokens; token++) {
            for (size_t head = 0; head < s->q_heads && s->head_dim <= 4096; head++)
                ha_dataset_trace.query(src, seq, layer, head, token, q);
            if (s->model_dim && s->model_dim <= 4096) ha_dataset_trace.input(src, seq, layer, token, q);
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

/* Every tensor is there as the file describes it, F16 and BF16 as F32, aligned, and not as something else. */
static void read_fit(const uint8_t *data, size_t bytes, const struct ha_safetensors *file)
{
    static const struct ha_provenance origin = { .text = "a text", .hash = 1 };
    const struct ha_fit_about of = { .value = { "a variant", "" }, .origin = &origin, .origins = 1 };
    struct ha_fit *fit;
    struct ha_why why;
    if (ha_fit_parse(&fit, "input", data, bytes, &why) != HA_OK) return;
    for (size_t i = 0; i < ha_safetensors_count(file); i++) {
        struct ha_tensor t = *ha_safetensors_at(file, i);
        t.data = NULL;
        if (t.type != HA_T_I32) t.type = HA_T_F32;
        if (ha_fit_get(fit, &t, &why) != HA_OK || (uintptr_t)t.data % 64) abort();
        touch(t.data, t.bytes);
        t.dim[0]++;
        t.dims += !t.dims;
        if (ha_fit_get(fit, &t, &why) != HA_ERROR) abort();
    }
    if (ha_fit_check(fit, &of, &why) == HA_OK && ha_fit_shares(fit, &of)) seen = 1;
    ha_fit_close(fit);
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
    read_fit(data, bytes, file);
    size_t tokens = meta_size(file, "tokens"), first_query = meta_size(file, "q_first"), files = 1 + bytes / 3 % 2;
    struct ha_shape shape = { .batch = files, .dtype = (enum ha_dtype)(bytes % HA_DTYPE_COUNT), .q_len = 1 };
    struct ha_trace trace[2] = { { .name = "input", .file = file }, { .name = "again" } };
    if (files == 2 && ha_safetensors_parse(&trace[1].file, "again", data, bytes, &why) != HA_OK) abort();
    shape.ctx[0] = shape.ctx[1] = tokens;
    shape.observed = tokens - first_query;
    if (ha_trace_open(&src, &shape, trace, files, &why) != HA_OK) return 0;
    for (size_t b = 0; b < files; b++) read_all(src, &shape, b, first_query, tokens);
    ha_dataset_trace.close(src);
    return 0;
}
