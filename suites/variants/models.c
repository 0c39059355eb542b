#include "suites/variants/keys.h"

/* From the config.json of each: num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim (or hidden_size
 * over the heads), hidden_size, intermediate_size (ffn_dim). */
const struct ha_model ha_models[] = {
    { "llama-3.1-8b", 32, 32, 8, 128, 4096, 14336, true, "huggingface.co/meta-llama/Llama-3.1-8B" },
    { "qwen2.5-7b", 28, 28, 4, 128, 3584, 18944, true, "huggingface.co/Qwen/Qwen2.5-7B" },
    { "qwen3-14b", 40, 40, 8, 128, 5120, 17408, true, "huggingface.co/Qwen/Qwen3-14B" },
    { "opt-6.7b", 32, 32, 32, 128, 4096, 16384, false, "huggingface.co/facebook/opt-6.7b" },
    { "small", 4, 8, 2, 64, 256, 704, true, "datasets/model, the model behind the traces" },
};
_Static_assert(sizeof ha_models / sizeof *ha_models == HA_MODELS_COUNT, "HA_MODELS_COUNT");
