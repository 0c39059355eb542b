#ifndef HA_DATASETS_MODEL_FORWARD_H
#define HA_DATASETS_MODEL_FORWARD_H

/* A model over a text with full attention: one layer of all tokens, then the next, on all cores. */

#include "datasets/model/transformer.h"

#include <stdio.h>

struct ha_pool;

struct ha_forward {
    /* in */
    const struct ha_transformer *model;
    const uint32_t *token; /* [tokens] */
    size_t tokens;
    /* NULL, or: x is the input of `layer`, q, k and v are made of it; what it writes to these is attended over */
    enum ha_status (*made)(void *arg, struct ha_forward *forward, struct ha_why *why);
    void *arg;
    FILE *progress; /* NULL: none */
    /* in `made`, and out */
    size_t layer;
    float *x, *q, *k, *v; /* [tokens][model_dim], [tokens][heads][head_dim]; x at last of the last layer's output */
    /* its own */
    float *o, *scratch, *loss;
    size_t *position, scratch_size;
    struct ha_pool *pool;
};

/* To the end of the last layer. HA_ERROR: no memory, or a signal asked for an end. ha_forward_free in every case. */
enum ha_status ha_forward_run(struct ha_forward *forward, struct ha_why *why);
/* After that: computes -log p of each token, given those before it. */
void ha_forward_lose(struct ha_forward *forward);
/* Its mean over the tokens behind token `first`, in nats. */
double ha_forward_loss(const struct ha_forward *forward, size_t first);
void ha_forward_free(struct ha_forward *forward);

/* The first `count` tokens of a text file, on the heap. HA_ERROR: it has fewer. */
enum ha_status ha_forward_tokens(uint32_t **token, size_t count, const struct ha_transformer *model,
                                 const struct ha_gguf *file, const char *path, struct ha_why *why);

/* log of the sum of exp of a row of logits */
double ha_forward_log_sum(const float *logits, size_t count);

#endif
