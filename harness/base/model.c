#include "harness/base/model.h"

/* From the config.json of each: num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim (or hidden_size
 * over the heads), hidden_size, intermediate_size (ffn_dim); parameters are the sum of the tensors of its weights. */
const struct ha_model ha_models[] = {
    { "llama-3-8b", 32, 32, 8, 128, 4096, 14336, true, 8030261248, "huggingface.co/meta-llama/Meta-Llama-3-8B" },
    { "llama-3.1-8b", 32, 32, 8, 128, 4096, 14336, true, 8030261248, "huggingface.co/meta-llama/Llama-3.1-8B" },
    { "llama-3.1-70b", 80, 64, 8, 128, 8192, 28672, true, 70553706496, "huggingface.co/meta-llama/Llama-3.1-70B" },
    { "mistral-7b-v0.3", 32, 32, 8, 128, 4096, 14336, true, 7248023552, "huggingface.co/mistralai/Mistral-7B-v0.3" },
    { "qwen2.5-7b", 28, 28, 4, 128, 3584, 18944, true, 7615616512, "huggingface.co/Qwen/Qwen2.5-7B" },
    { "qwen3-8b", 36, 32, 8, 128, 4096, 12288, true, 8190735360, "huggingface.co/Qwen/Qwen3-8B" },
    { "qwen3-14b", 40, 40, 8, 128, 5120, 17408, true, 14768307200, "huggingface.co/Qwen/Qwen3-14B" },
    { "qwen3-32b", 64, 64, 8, 128, 5120, 25600, true, 32762123264, "huggingface.co/Qwen/Qwen3-32B" },
    { "opt-6.7b", 32, 32, 32, 128, 4096, 16384, false, 6658473984, "huggingface.co/facebook/opt-6.7b" },
    { "small", 4, 8, 2, 64, 256, 704, true, 4524288, "datasets/model, the model behind the traces" },
};
_Static_assert(sizeof ha_models / sizeof *ha_models == HA_MODELS_COUNT, "HA_MODELS_COUNT");
