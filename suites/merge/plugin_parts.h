#ifndef HA_MERGE_PLUGIN_PARTS_H
#define HA_MERGE_PLUGIN_PARTS_H

/* What the two sides of a foreign plugin share: the program, and the child process that has loaded it. */

#include "harness/engine/child.h"
#include "harness/engine/plugin.h"
#include "suites/merge/subject.h"

enum ha_plugin_op { HA_PLUGIN_ASK, HA_PLUGIN_MERGE, HA_PLUGIN_ATTEND };
enum { HA_PLUGIN_REQUEST_BYTES = 4096 }; /* the first of the room; the batch follows */

/* What a plugin says of itself. */
struct ha_plugin_answer {
    bool library, merges, attends, null; /* null: a device of that kind */
    char name[64];
    struct ha_device_info info;
};

/* Lies in the room. */
struct ha_plugin_request {
    enum ha_plugin_op op;
    struct ha_plugin_answer answer; /* of ASK */
    struct ha_batch *batch;         /* of MERGE */
    /* ATTEND: all that args point to lies in [begin, end), in one piece; what is written, from `out` on */
    struct ha_device_attend attend;
    unsigned char *begin, *out, *end;
};

struct ha_plugin {
    char path[HA_PLUGIN_PATH_MAX];
    uint64_t limit_ns;
    struct ha_child *child;
    struct ha_plugin_request *request;
    struct ha_room room; /* behind the request */
    size_t used;         /* of it, by the last batch */
    struct ha_plugin_answer is;
    /* in the child alone */
    const struct ha_device_api *api;
    struct ha_device *device;
    struct ha_subject merger; /* of the device */
};

/* Each array that seqs, those of args, point to becomes what `move` makes of it: those that are read (in order: of a
 * sequence q, then k and v of each run), or those that are written (o, LSE, and weights where they are asked for). */
void ha_plugin_arrays(const struct ha_device_attend *args, struct ha_device_seq *seqs, bool written,
                      void *(*move)(void *arg, const void *array, size_t bytes), void *arg);

/* Serves a request, in the child. self: the plugin. */
enum ha_status ha_plugin_serve(void *self, void *request, struct ha_why *why);

#endif
