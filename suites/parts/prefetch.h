#ifndef HA_PARTS_PREFETCH_H
#define HA_PARTS_PREFETCH_H

/* Chosen keys of a layer on their way to the device, while those of the layer before are in use: into two buffers, by
 * turns, over a stream of their own. The device attends over them and the step's new tokens. */

#include "suites/parts/choose.h"
#include "suites/parts/fetch.h"
#include "suites/parts/frame.h"

enum { HA_PREFETCH_BUFFERS = 2 };
struct ha_prefetch_buffer {
    struct ha_kv *kv;        /* [batch], device: of each KV head its lists one after the other, then the new tokens */
    struct ha_kv rows;       /* all of them */
    uint32_t *index, *count; /* what is to come: pinned [batch][kv_heads][lists][list_max]; mapped: without list_max */
    struct ha_event *loaded;
};

struct ha_prefetch {
    size_t lists, list_max; /* of a KV head; entries of one at most */
    bool varies;            /* lists have a count each, else as many as the first of their sequence */
    struct ha_fetch fetch;
    struct ha_fetch_list *list; /* [batch][kv_heads][lists] */
    struct ha_prefetch_buffer buffer[HA_PREFETCH_BUFFERS];
    struct ha_stream *link;
    uint32_t *row; /* device: which rows of a buffer the list of each query head is, or that of a KV head */
};

/* From a rule's share. lists: of a KV head its query heads, or 1. HA_WAIVED: what the way of fetching needs is missing.
 */
enum ha_status ha_prefetch_create(struct ha_prefetch *p, struct ha_layer *first, enum ha_fetch_way way, size_t lists,
                                  size_t list_max, bool varies, struct ha_why *why);
/* where the keys of layer l arrive: what is chosen goes to its index and count */
struct ha_prefetch_buffer *ha_prefetch_of(struct ha_prefetch *p, const struct ha_layer *l);
/* Enqueues on the link what is chosen for layer l, out of its stores, stride bytes from one sequence's to the next's.
 * What the host has waited for is behind the attention that read the buffer last. */
enum ha_status ha_prefetch_run(struct ha_prefetch *p, const struct ha_layer *l, const struct ha_kv *store,
                               size_t stride, struct ha_why *why);

/* for `before` of the layer's own step */
enum ha_status ha_prefetch_wait(struct ha_prefetch *p, struct ha_layer *l);
/* Hooks of a rule whose `shared` begins with a struct ha_prefetch: the new keys go behind the lists, what is read, and
 * which keys that were, of a list. */
#define HA_PREFETCH_HOOKS \
    .append = ha_prefetch_append, .place = ha_prefetch_place, .use = ha_prefetch_use, .device = ha_prefetch_device
enum ha_status ha_prefetch_append(struct ha_layer *l, size_t b, const struct ha_kv *fresh);
const unsigned char *ha_prefetch_place(const struct ha_layer *l, size_t b, size_t position);
void ha_prefetch_device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d);
enum ha_status ha_prefetch_use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used,
                               struct ha_why *why);

#endif
