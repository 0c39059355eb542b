#ifndef HA_MERGE_STAGE_PARTS_H
#define HA_MERGE_STAGE_PARTS_H

/* What the stages share. Each has the batch in ordinary memory, brings what it holds to where it is merged, brings
 * the result back, and has it judged there. */

#include "suites/merge/stage.h"

enum { HA_STAGE_STATES_MAX = 8, HA_STAGE_DIM = 64, HA_STAGE_LATE_NS = 20000000 };

struct ha_stage_run {
    const struct ha_merge_case *c;
    struct ha_subject *subject;
    struct ha_merge_shape shape;
    uint64_t seed;
    struct ha_room room;
    bool own_room;
    struct ha_batch *batch;
    struct ha_merge_rows rows;
    struct ha_judgement *j;
    struct ha_why *why;
};

/* The batch of s->shape in room (NULL: in memory of its own), filled by the case. To be closed after a failure, too. */
enum ha_status ha_stage_open(struct ha_stage_run *s, const struct ha_room *room);
void ha_stage_close(struct ha_stage_run *s);
/* other rows in the same batch */
void ha_stage_fill(struct ha_stage_run *s, uint64_t seed);
/* Judges the result that lies in the batch, and then whether all else there is as it was. HA_FAIL: "WHAT: row 3,
 * element 5: got ..., want ... within ... (against what)". */
enum ha_status ha_stage_judge(struct ha_stage_run *s, const char *what);

/* the stages; why is empty when they begin */
enum ha_status ha_stage_huge(struct ha_stage_run *s);
enum ha_status ha_stage_stream(struct ha_stage_run *s);
enum ha_status ha_stage_flag(struct ha_stage_run *s);

/* ---- stage_device.c: all pieces of the batch lie in blocks laid out as [batch->begin, batch->end) */

struct ha_stage_device {
    struct ha_stage_run *s;
    const struct ha_device_api *api;
    struct ha_device *device;
    struct ha_stream *stream;
    size_t bytes;            /* of a block */
    void *in, *there, *back; /* pinned: what is sent; in device memory; pinned: what came back */
};
/* Opens the batch and the device, runs the stage, and closes both. HA_WAIVED: there is no device, or it does not offer
 * what is asked for. */
enum ha_status ha_stage_on_device(struct ha_stage_run *s, enum ha_status (*stage)(struct ha_stage_device *d));
/* Poisons all three blocks, and returns when that is done. */
enum ha_status ha_stage_device_poison(struct ha_stage_device *d);
/* Enqueues the merge; state `apart` is read from `block` (SIZE_MAX: none is apart). */
enum ha_status ha_stage_device_merge(struct ha_stage_device *d, size_t apart, unsigned char *block);
/* enqueues the way there, and the way back */
enum ha_status ha_stage_device_send(struct ha_stage_device *d, struct ha_stream *stream);
enum ha_status ha_stage_device_fetch(struct ha_stage_device *d);
/* Waits for the stream and puts all that came back into the batch. */
enum ha_status ha_stage_device_finish(struct ha_stage_device *d, const char *what);
/* HA_ERROR with what was being done and the device's own reason, unless status is HA_OK */
enum ha_status ha_stage_did(struct ha_stage_run *s, enum ha_status status, const char *what);
void ha_stage_sleep(void); /* HA_STAGE_LATE_NS */

#endif
