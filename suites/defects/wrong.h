#ifndef HA_DEFECTS_WRONG_H
#define HA_DEFECTS_WRONG_H

/* A device that does one thing wrong: what it is, the sound device that it is put around, and the entries that can be
 * wrong. All of a plugin, which is open once at a time. */

#include "suites/defects/attention.h"

#include "harness/base/operands.h"

/* WRONG_name, in the order of the table; WRONG_control: nothing is */
enum ha_wrong {
#define OPERATION(name, class, op, what)         WRONG_##name,
#define FAULT(name, class, op, fault)            WRONG_##name,
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
        struct ha_device_product product;
        struct ha_device_pieces pieces;
        struct ha_wrong_job attend;
        struct {
            void *scratch, *y;
        } shared;
    } u;
};
/* NULL never; copy: bytes behind it that it may point to */
struct ha_wrong_later *ha_wrong_later(void (*run)(struct ha_wrong_later *later), const void *copy, size_t bytes);
void *ha_wrong_copy(struct ha_wrong_later *later);
enum ha_status ha_wrong_on(struct ha_stream *stream, struct ha_wrong_later *later);
/* a stream of the plugin's own, made when it is needed */
struct ha_stream *ha_wrong_stream(void);
/* Where an operation runs that is enqueued on it and not on `stream`: early, before what that was given first, and
 * ha_wrong_over waits for it; or aside, behind that and in a while, and nothing of the stream waits for it. What a
 * stream captures stays on it. */
struct ha_stream *ha_wrong_early(struct ha_stream *stream);
struct ha_stream *ha_wrong_aside(struct ha_stream *stream);
enum ha_status ha_wrong_over(struct ha_stream *stream, enum ha_status enqueued);

/* Each file puts its entries into the table, and begins anew with each device. */
void ha_wrong_order(struct ha_device_api *api);
void ha_wrong_compute(struct ha_device_api *api);
void ha_wrong_order_begin(void);
void ha_wrong_order_end(void); /* before the device is closed */

/* Does the stream capture a graph? Streams of several threads may. */
bool ha_wrong_captures(const struct ha_stream *stream);
/* Waits for the streams that the plugin has destroyed and the sound device has not. */
void ha_wrong_await_gone(void);

#endif
