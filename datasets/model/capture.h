#ifndef HA_DATASETS_MODEL_CAPTURE_H
#define HA_DATASETS_MODEL_CAPTURE_H

/* A trace (datasets/README.md) of a real model: what attention of each layer sees over the first tokens of a text. */

#include "harness/api/base.h"

#include <stdio.h>

struct ha_capture {
    const char *model, *text, *out; /* files: GGUF, UTF-8, and the trace to write */
    size_t tokens, queries;         /* the trace has the queries and inputs of the last `queries` tokens */
    size_t first_layer, layers;     /* the layers to write; layers 0: all behind the first */
    enum ha_dtype dtype;            /* of the trace */
    FILE *progress;                 /* NULL: none */
};

/* The loss of the text, which other programs print, too. */
struct ha_captured {
    double loss,
        last_loss; /* mean of -log p(token | those before), in nats: over all tokens, and over the last quarter */
};

/* Runs the model on all cores, 4 bytes a parameter and some 20 kB a token. HA_ERROR: a file that cannot be read or
 * written, a text of fewer tokens, a number that the dtype cannot hold. Nothing is left of a trace that was not written
 * whole. */
enum ha_status ha_capture(const struct ha_capture *capture, struct ha_captured *out, struct ha_why *why);

#endif
