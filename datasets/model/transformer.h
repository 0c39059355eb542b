#ifndef HA_DATASETS_MODEL_TRANSFORMER_H
#define HA_DATASETS_MODEL_TRANSFORMER_H

/* A decoder of the llama family (Llama, SmolLM2, Qwen2.5, Qwen3), read from a GGUF file, in binary32: root-mean-square
 * norms, rotary position embedding, grouped query heads, a gated feed-forward part. Attention itself is left to who
 * calls: a layer is what comes before it and what comes behind it, for rows that are tokens of any positions.
 * Everything here runs on the thread that calls, and several may at once. Source: Touvron et al., LLaMA, 2023,
 * section 2.2; Su et al., RoFormer, 2021; Yang et al., Qwen3, 2025, section 2. */

#include "datasets/model/gguf.h"

struct ha_transformer_sizes {
    char name[64], licence[64], architecture[16]; /* "unknown": the file does not say */
    size_t layers, q_heads, kv_heads, head_dim, model_dim, feed_forward, vocabulary, context;
    double norm_eps, rope_theta;
    size_t rotary;       /* dimensions of a head that are turned */
    bool adjacent;       /* pairs are (2j, 2j + 1), or (j, j + rotary / 2) */
    bool q_bias, q_norm; /* queries have one; keys then too */
};

/* As the file has them, in binary32. */
struct ha_transformer_layer {
    const float *attn_norm, *ffn_norm;     /* [model_dim] */
    const float *wq, *wk, *wv;             /* [heads * head_dim][model_dim] */
    const float *q_bias, *k_bias, *v_bias; /* [heads * head_dim], or NULL */
    const float *q_norm, *k_norm;          /* [head_dim], or NULL */
    const float *wo;                       /* [model_dim][q_heads * head_dim] */
    const float *gate, *up;                /* [feed_forward][model_dim] */
    const float *down;                     /* [model_dim][feed_forward] */
};

struct ha_transformer {
    struct ha_transformer_sizes sizes;
    struct ha_transformer_layer *layer;
    const float *embedding, *norm, *head; /* [vocabulary][model_dim], [model_dim], as embedding, which it may be */
    float *inv_freq;                      /* [rotary / 2]: radians that a token turns each pair by */
    void *numbers;                        /* all weights */
};

/* Reads all weights: 4 bytes a parameter. HA_ERROR: no BLAS, an architecture that is not known here, or a file that
 * lacks a tensor or has one of another shape. */
enum ha_status ha_transformer_open(struct ha_transformer *model, const struct ha_gguf *file, struct ha_why *why);
void ha_transformer_close(struct ha_transformer *model);

/* x: [rows][model_dim] of the tokens. */
void ha_transformer_embed(const struct ha_transformer *model, const uint32_t *token, size_t rows, float *x);
/* Of x, a layer's input, the queries, keys and values of rows that are the tokens `position`: [rows][heads][head_dim].
 * scratch: [rows][model_dim]. */
void ha_transformer_before(const struct ha_transformer *model, size_t layer, const float *x, const size_t *position,
                           size_t rows, float *q, float *k, float *v, float *scratch);
/* x becomes the layer's output; o: [rows][q_heads][head_dim], of attention. scratch: [rows][model_dim + 2
 * feed_forward]. */
void ha_transformer_behind(const struct ha_transformer *model, size_t layer, const float *o, size_t rows, float *x,
                           float *scratch);
/* logits: [rows][vocabulary], of x, the output of the last layer. scratch: [rows][model_dim]. */
void ha_transformer_logits(const struct ha_transformer *model, const float *x, size_t rows, float *logits,
                           float *scratch);

/* Causal softmax attention of the tokens first to first + rows: q: [rows][q_heads][head_dim]; k, v:
 * [tokens][kv_heads][head_dim] from token 0 on; scores are scaled by 1 / sqrt(head_dim). o: as q. scratch: [rows][first
 * + rows]. */
void ha_transformer_attend(const struct ha_transformer *model, const float *q, const float *k, const float *v,
                           size_t first, size_t rows, float *o, float *scratch);

#endif
