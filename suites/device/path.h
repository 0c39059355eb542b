#ifndef HA_DEVICE_SUITE_PATH_H
#define HA_DEVICE_SUITE_PATH_H

/* What shows whether two operations were in order: x of the host is copied up to `there` of the device, and that down
 * to out. What ran too early has the bytes of before. */

#include "suites/device/stage.h"

enum { HA_OP_PATH_SMALL = 4096 };

struct ha_op_path {
    struct ha_op_block *x, *there, *out;
    size_t bytes;
};

/* Filled, too; ha_op_path_fill fills it with other bytes. */
enum ha_status ha_op_path_make(struct ha_op_stage *stage, struct ha_op_path *path, size_t bytes);
/* of copies that take a while */
enum ha_status ha_op_path_large(struct ha_op_stage *stage, struct ha_op_path *path);
enum ha_status ha_op_path_fill(struct ha_op_stage *stage, struct ha_op_path *path);
/* These enqueue a copy, and do it in the images. */
enum ha_status ha_op_path_up(struct ha_op_stage *stage, struct ha_op_path *path, struct ha_stream *on);
enum ha_status ha_op_path_down(struct ha_op_stage *stage, struct ha_op_path *path, struct ha_stream *on);
/* Up and down on one stream, to its end, and out is its image. */
enum ha_status ha_op_path_round(struct ha_op_stage *stage, struct ha_op_path *path, struct ha_stream *on,
                                const char *what);
/* Stream 0, which a gate holds up, copies up; `order` enqueues what stream 1 has to wait for that by, and 1 copies
 * down. What ran too early is the bytes of before. */
enum ha_status ha_op_path_across(struct ha_op_stage *stage,
                                 enum ha_status (*order)(struct ha_op_stage *stage, void *arg), void *arg,
                                 const char *what);
/* out is its image */
enum ha_status ha_op_path_judge(struct ha_op_stage *stage, const struct ha_op_path *path, const char *what);

/* a flag of 0, in mapped memory */
enum ha_status ha_op_flag_make(struct ha_op_stage *stage, uint32_t **flag);

/* Of many calls each (often.c): none for a single case, fewer for small copies. What the CPU waits for must not be over
 * before a host function that takes a while, where the device has these; what a stream waits for, before a copy. */
size_t ha_op_often(const struct ha_op_stage *stage);
enum ha_status ha_op_sync_often(struct ha_op_stage *stage);
enum ha_status ha_op_event_often(struct ha_op_stage *stage, bool wait); /* stream_wait; else event_sync */
enum ha_status ha_op_flag_often(struct ha_op_stage *stage);
enum ha_status ha_op_call_often(struct ha_op_stage *stage);
enum ha_status ha_op_spin_often(struct ha_op_stage *stage);
/* by two threads at once (feed.c) */
enum ha_status ha_op_feed_often(struct ha_op_stage *stage);

#endif
