#ifndef HA_ENGINE_SERVE_H
#define HA_ENGINE_SERVE_H

/* The child's side of the loop: opens devices, checks and measures, and says rows to the parent. */

#include "harness/engine/loop.h"
#include "harness/measure/paired.h"
#include "harness/report/env.h"

/* In the room that both share. */
struct ha_job {
    uint64_t cap_ns, deadline_ns;
    uint64_t window; /* of ranks that measure at once (struct ha_at_once) */
    size_t count;
    size_t entry[]; /* [count] of the plan: points of one suite, which belong together */
};

/* What the child says. */
enum ha_said {
    HA_SAID_ROW,      /* struct ha_said_head, then the row */
    HA_SAID_LINE,     /* the same, of a further file */
    HA_SAID_TRACE,    /* the head, then the text */
    HA_SAID_DEVICE,   /* struct ha_env_device */
    HA_SAID_PROGRESS, /* struct ha_said_progress */
};
struct ha_said_head {
    size_t entry; /* of the plan */
    size_t file;
};
struct ha_said_progress {
    size_t done, of;
    char what[64];
};

/* What the child is given when it is forked. */
struct ha_serve {
    const struct ha_plan *plan;
    const struct ha_run_options *options;
    struct ha_results (*before)(void *arg, const struct ha_suite *suite); /* rows of this suite that are there */
    void *arg;
    struct ha_paired_memory *memory; /* for readings beside what is measured, or NULL */
    struct server *server;           /* NULL before the first order */
};

/* For ha_child_work: self is a struct ha_serve, arg a struct ha_job. */
enum ha_status ha_serve(void *self, void *arg, struct ha_why *why);
/* The suite ends and the device is closed. */
void ha_serve_end(void *self);

#endif
