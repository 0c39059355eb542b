#ifndef HA_DATASETS_MODEL_FAKE_GGUF_H
#define HA_DATASETS_MODEL_FAKE_GGUF_H

/* GGUF files for tests: written piece by piece, and a whole small model. */

#include "harness/api/base.h"

struct fake_gguf {
    unsigned char *bytes; /* on the heap */
    size_t count, room;
    size_t data;           /* bytes of tensors so far */
    unsigned char *tensor; /* their data, which fake_gguf_end appends */
    size_t tensor_room;
};

/* The header; then all keys, then all tensors, then the end. */
void fake_gguf_begin(struct fake_gguf *g, uint64_t tensors, uint64_t keys);
void fake_gguf_text(struct fake_gguf *g, const char *key, const char *value);
void fake_gguf_u32(struct fake_gguf *g, const char *key, uint32_t value);
void fake_gguf_f32(struct fake_gguf *g, const char *key, float value);
void fake_gguf_texts(struct fake_gguf *g, const char *key, const char *const *value, size_t count);
/* of a type with this id in GGUF; `data`, `bytes` long, may be NULL: zeros */
void fake_gguf_tensor(struct fake_gguf *g, const char *name, size_t rows, size_t columns, uint32_t type,
                      const void *data, size_t bytes);
void fake_gguf_end(struct fake_gguf *g);

/* A model of 2 layers with weights from a generator, its vocabulary of bytes and a few merges. */
struct fake_model {
    const char *architecture;     /* "llama" where NULL */
    bool bias, norm, head, first; /* of queries; norms of heads; an output table of its own; a first token */
    uint32_t type;                /* of the weights: 0 F32, 1 F16, 2 Q4_0, 8 Q8_0 */
    uint32_t window;              /* of attention; 0: none */
    bool scaled;                  /* rotary frequencies are */
};
enum {
    FAKE_LAYERS = 2,
    FAKE_Q_HEADS = 4,
    FAKE_KV_HEADS = 2,
    FAKE_HEAD_DIM = 16,
    FAKE_MODEL_DIM = 64,
    FAKE_FEED = 96,
    FAKE_CONTEXT = 96
};
void fake_model(struct fake_gguf *out, const struct fake_model *of);

#endif
