#ifndef HA_SESSION_H
#define HA_SESSION_H

/* What a case runs on (device, streams, threads, data), and a pass: one instance of a variant
 * from create over prefill through its steps. Several passes, also of other variants, run one
 * after another over the same data and the same buffers. */

#include "harness/api/case.h"
#include "harness/api/device.h"
#include "harness/api/variant.h"
#include "harness/measure/interval.h"
#include "harness/measure/meter.h"
#include "suites/variants/load.h"
#include "suites/variants/workload.h"

/* The engine has functions of these names (harness/engine/machine.h), which are to take their place. */
#define ha_machine_create  ha_session_machine_create
#define ha_machine_destroy ha_session_machine_destroy
#define ha_machine_device  ha_session_machine_device

struct ha_machine; /* devices and data that outlive a case */

enum ha_status ha_machine_create(struct ha_machine **machine, struct ha_why *why);
void ha_machine_destroy(struct ha_machine *machine);
/* The device of that name, opened once and kept; the machine's. isa: of the kernels it may compute with. */
enum ha_status ha_machine_device(struct ha_machine *machine, const char *name, const char *isa,
                                 const struct ha_device_api **api, struct ha_device **device, struct ha_why *why);

struct ha_session {
    struct ha_machine *machine;
    const struct ha_variant *variant;
    const double *param;
    struct ha_kernels kernels;               /* resolved; what the device computes with if it uses the host */
    struct ha_kernels cpu;                   /* what the variant computes with: the same unless a defect is planted */
    const struct ha_device_api *api;         /* the device's own table */
    const struct ha_device_api *variant_api; /* metered */
    struct ha_device *device;
    struct ha_device_info info;
    struct ha_workload *workload;
    struct ha_pool *pool;   /* the case's threads */
    struct ha_pool *judges; /* a thread for each core, for what is not timed; the machine's */
    struct ha_worker *worker;
    struct ha_stream *stream;
    struct ha_device_arena *arena;     /* the buffers below */
    struct ha_io io;                   /* of one layer */
    unsigned char *in, *out;           /* device: [layers][in_bytes], [layers][out_bytes] */
    unsigned char *host_in, *host_out; /* pinned, the same */
    struct ha_load load;               /* what runs around the attention of each layer */
};

/* HA_WAIVED where the machine or the variant cannot do it, HA_ERROR where it does not fit. mutant: NULL, or
 * the planted defect. On failure the session is closed. */
enum ha_status ha_session_open(struct ha_session *session, struct ha_machine *machine, const struct ha_case *c,
                               const struct ha_variant *variant, const char *isa, const char *mutant,
                               struct ha_why *why);
void ha_session_close(struct ha_session *session);
/* Whether the output is attention: not of a bracketing arm, nor on a device of the kind "null", which
 * computes nothing and only shows what the harness itself costs. */
bool ha_session_checked(const struct ha_session *session);

struct ha_pass {
    struct ha_session *session;
    const struct ha_variant *variant;
    struct ha_arena *arena;
    struct ha_device_arena *device_arena;
    struct ha_instance *instance;
    struct ha_context context; /* what create was given; stays for the pass */
    bool checks;
    struct ha_interval window;   /* W of the last step */
    struct ha_meter_count moved; /* by the last step, and by background work since the one before */
};

/* create and prefill. checks: guards, poison and a recorded selection. */
enum ha_status ha_pass_begin(struct ha_pass *pass, struct ha_session *session, const struct ha_variant *variant,
                             const double *param, bool checks, struct ha_why *why);
/* One step of all layers: inputs up (not timed), the variant's attends, until its stream is done. With checks
 * the outputs are poisoned before, downloaded after, and the arena's guards are verified. */
enum ha_status ha_pass_step(struct ha_pass *pass, size_t step, struct ha_why *why);
/* the outputs of the last step to host_out */
enum ha_status ha_pass_download(struct ha_pass *pass, struct ha_why *why);
/* Ends what create began, good or bad. */
enum ha_status ha_pass_end(struct ha_pass *pass, struct ha_why *why);

const float *ha_session_q(const struct ha_session *session, size_t layer); /* host side of the last step's */
const float *ha_session_o(const struct ha_session *session, size_t layer);
const float *ha_session_lse(const struct ha_session *session, size_t layer);

#endif
