#ifndef HA_API_DATASET_H
#define HA_API_DATASET_H

/* Where queries, keys and values come from. A dataset answers for any token of any layer of
 * any sequence, in any order, from its seed alone: the same bits on every machine. */

#include "harness/api/base.h"
#include "harness/api/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ha_source;

/* How the query of a layer comes from its input x: W_Q x, plus the bias; each head divided by its root mean square and
 * multiplied by the norm; then turned by the rotary position. What is NULL is left out. A norm ahead of W_Q is in x and
 * in W_Q already. */
struct ha_projection {
    const float *wq;       /* [q_heads*head_dim][model_dim]; NULL: the dataset has no inputs */
    const float *bias;     /* [q_heads*head_dim] */
    const float *norm;     /* [head_dim] */
    float norm_eps;        /* added to the mean square of a head */
    const float *inv_freq; /* [rotary/2]: token t turns pair j by t * inv_freq[j], in radians: (a, b) becomes
                            * (a cos - b sin, b cos + a sin) */
    size_t rotary;         /* the first so many dimensions of each head are turned */
    bool adjacent;         /* pairs are (2j, 2j + 1), not (j, j + rotary/2) */
    float rope_scale;      /* what is turned is multiplied by that */
    const float *wo;       /* [model_dim][q_heads*head_dim]: of the output projection */
};

/* Whose queries, keys and values a dataset has: what is learnt from it is good for that model, and no evidence on that
 * text. */
struct ha_provenance {
    const char *model;
    const char *text;
    uint64_t hash; /* of the keys of its first tokens: the same text under another name; 0: not known */
};

/* The loss of a model that decodes with the attention of a case, beside its loss with full attention, over the tokens
 * of all steps, in nats. The loss is -log p of the token that follows. */
struct ha_followed {
    size_t tokens;                      /* of all sequences */
    double loss, full_loss;             /* means */
    double loss_change, loss_change_se; /* of loss - full_loss: mean, and its standard error over tokens */
    double kl;   /* mean Kullback-Leibler divergence of the next token's distribution from full attention's */
    double top1; /* share of the tokens whose likeliest next token is full attention's */
};

struct ha_dataset {
    const char *name;
    const char *doc;        /* one line */
    const char *needs_file; /* NULL, or what the text after "name/" in `dataset=name/FILE` names */
    /* The file also fixes batch, ctx, q_len and steps, and has no queries to observe: in the shape that open is given
     * they are 0 unless the case asks for them, and then they must agree. */
    bool fixes_lengths;
    /* Is there such a file? HA_ERROR: no. What is in it is for open to say. NULL where needs_file is. */
    enum ha_status (*find)(const char *file, struct ha_why *why);
    /* shape is complete except where the dataset fixes it (a trace): then it must agree or be 0
     * in the input, and is filled in. file: text after the slash, or NULL. total_tokens: the
     * longest sequence, new tokens included. The source keeps a copy of shape. */
    enum ha_status (*open)(const struct ha_dataset *self, struct ha_source **src, struct ha_shape *shape,
                           size_t total_tokens, uint64_t seed, const char *file, struct ha_why *why);
    void (*close)(struct ha_source *src);
    /* K and V of tokens [first, first+count) of KV head `head`, stored as shape.dtype:
     * [count][head_dim] each; k or v may be NULL. Thread-safe, as are query and input. */
    void (*kv)(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count, void *k,
               void *v);
    /* the query of token `token`, query head `head`: [head_dim]; values are exact in shape.dtype */
    void (*query)(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float *q);
    /* the layer's input for a token: [model_dim]; NULL where the dataset has none */
    void (*input)(struct ha_source *src, size_t seq, size_t layer, size_t token, float *x);
    /* how that layer's query comes from input; the arrays are the source's. NULL where input is. */
    struct ha_projection (*projection)(struct ha_source *src, size_t layer);
    /* of its text i; false behind the last. The words are the source's. NULL: the dataset is the model, and has one
     * text for each seed. */
    bool (*provenance)(struct ha_source *src, size_t i, struct ha_provenance *out);
    /* Work that takes long, done once, before the first number is asked for. NULL: there is none. */
    enum ha_status (*prepare)(struct ha_source *src, struct ha_why *why);
    /* NULL, or: the source is a model that decodes. Queries, keys, values and x of the tokens from ctx on depend on
     * attention: of layer 0 they are there, of the next layer when `follow` was given what attention made of this one,
     * o: [q_len][q_heads] [head_dim] of the tokens ctx + step * q_len and on; behind the last layer it counts their
     * loss. Step 0 begins anew. What was followed last can be asked for again, in any order. One call at a time for a
     * sequence. */
    void (*follow)(struct ha_source *src, size_t seq, size_t layer, size_t step, const float *o);
    void (*followed)(struct ha_source *src, struct ha_followed *out); /* when the last step is over */
};

#ifdef __cplusplus
}
#endif
#endif
