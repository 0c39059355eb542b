#ifndef HA_DEFECTS_WRONG_H
#define HA_DEFECTS_WRONG_H

/* A device that does one thing wrong: what it is, the sound device that it is put around, and the entries that can be
 * wrong. All of a plugin, which is open once at a time. */

#include "suites/defects/attention.h"

/* WRONG_name, in the order of the table; WRONG_control: nothing is */
enum ha_wrong {
#define OPERATION(name, class, op, what)         WRONG_##name,
#define ATTENTION(name, class, where, what, ...) WRONG_##name,
#define CLAIM(name, where, what, field, ...)     WRONG_##name,
#define PLANT(name, what, field, ...)            WRONG_##name,
#include "suites/defects/defects.def"
    WRONG_COUNT
};
extern enum ha_wrong ha_wrong;
#define IS(name) (ha_wrong == WRONG_##name)

extern const struct ha_device_api *ha_wrong_base; /* the sound device's table */
extern struct ha_device *ha_wrong_device;         /* which is open */

/* What is to run on a stream later. It is given back by what ran it, or, of a graph, with the device. */
struct ha_wrong_later {
    void (*run)(struct ha_wrong_later *later);
    struct ha_wrong_later *next; /* of those that are kept */
    bool kept;
    union {
        struct ha_device_blend blend;
        struct ha_device_move move;
        struct ha_device_product product;
        struct ha_device_pieces pieces;
        struct ha_device_digest digest;
        struct ha_device_digest_score digest_score;
        struct ha_device_topk topk;
        struct ha_device_split split;
        struct ha_device_rotate rotate;
        struct ha_device_columns columns;
        struct ha_device_score score;
        struct ha_device_features features;
        struct ha_net net;
        struct ha_device_hash hash;
        struct ha_device_hamming hamming;
        struct ha_device_similarity similarity;
        struct ha_device_pq_encode pq_encode;
        struct ha_device_pq_table pq_table;
        struct ha_device_pq_score pq_score;
        struct ha_device_softmax softmax;
        struct ha_device_topp topp;
        struct ha_device_weighted_sum weighted_sum;
        struct ha_wrong_job attend;
        struct {
            float *x;
            size_t n;
            double scale; /* 0: rounded to dtype */
            enum ha_dtype dtype;
        } array;
        uint32_t *word;
    } u;
};
/* what so many words are now, for a while; of NULL NULL */
const uint32_t *ha_wrong_words(const uint32_t *words, size_t count);
/* NULL never; copy: bytes behind it that it may point to */
struct ha_wrong_later *ha_wrong_later(void (*run)(struct ha_wrong_later *later), const void *copy, size_t bytes);
void *ha_wrong_copy(struct ha_wrong_later *later);
enum ha_status ha_wrong_on(struct ha_stream *stream, struct ha_wrong_later *later);
/* That byte is counted up behind what the stream was given. */
enum ha_status ha_wrong_count_up(struct ha_stream *stream, const void *at);
/* a stream of the plugin's own, made when it is needed */
struct ha_stream *ha_wrong_stream(void);
/* Where an operation runs that is enqueued on it and not on `stream`: early, before what that was given first, and
 * ha_wrong_over waits for it; or aside, behind that and in a while, and nothing of the stream waits for it. What a
 * stream captures stays on it. */
struct ha_stream *ha_wrong_early(bool is, struct ha_stream *stream);
struct ha_stream *ha_wrong_aside(bool is, struct ha_stream *stream);
enum ha_status ha_wrong_over(bool is, enum ha_status enqueued);

/* Each file puts its entries into the table, and begins anew with each device. */
void ha_wrong_moves(struct ha_device_api *api);
void ha_wrong_order(struct ha_device_api *api);
void ha_wrong_compute(struct ha_device_api *api);
void ha_wrong_select(struct ha_device_api *api);
void ha_wrong_columns(struct ha_device_api *api);
void ha_wrong_predict(struct ha_device_api *api);
void ha_wrong_codes(struct ha_device_api *api);
void ha_wrong_pq(struct ha_device_api *api);
void ha_wrong_weights(struct ha_device_api *api);
void ha_wrong_inputs(struct ha_device_api *api); /* behind all others, of whose entries it makes use */
void ha_wrong_moves_begin(void);
void ha_wrong_order_begin(void);
void ha_wrong_order_end(void); /* before the device is closed */

/* What they share: the stream that captures, or NULL; streams whose end is still awaited. */
struct ha_stream *ha_wrong_capturing(void);
void ha_wrong_await_gone(void);
const void *ha_wrong_gate(void); /* the first word in mapped memory: the suite's gate, which must hold */

#endif
