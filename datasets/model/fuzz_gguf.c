#include "datasets/model/tokenizer.h"
#include "datasets/model/transformer.h"

#include <stdint.h>

/* A libFuzzer target: any bytes as a model's file, of which the vocabulary, the sizes and the weights are taken. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ha_gguf *file;
    struct ha_tokenizer *tokenizer;
    struct ha_transformer model;
    struct ha_why why;
    uint32_t token[64];
    size_t count;
    if (ha_gguf_parse(&file, "x.gguf", data, bytes, &why) != HA_OK) return 0;
    if (ha_tokenizer_open(&tokenizer, file, &why) == HA_OK) {
        ha_tokenizer_encode(tokenizer, "then in the 12 air", 18, token, 64, &count, &why);
        ha_tokenizer_close(tokenizer);
    }
    if (ha_transformer_open(&model, file, &why) == HA_OK) ha_transformer_close(&model);
    ha_gguf_close(file);
    return 0;
}
