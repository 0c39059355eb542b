#ifndef HA_MERGE_SUBJECT_H
#define HA_MERGE_SUBJECT_H

/* What is asked to merge: our kernels, a device, a defect of the gallery, a foreign plugin or command. A subject is
 * used by one thread at a time; several may be opened on the same device. */

#include "harness/api/device.h"
#include "suites/merge/judge.h"

struct ha_subject {
    char name[64];
    struct ha_merge_traits traits;
    unsigned orders;  /* bits of enum ha_order that it can be driven in */
    unsigned layouts; /* bits of enum ha_layout */
    bool elsewhere;   /* run copies the batch: a state cannot lie outside of [begin, end) */
    bool null;        /* a device of the kind "null": what it leaves is no result */
    /* Memory for a batch, the subject's, valid until its next call or close; NULL: any memory will do. */
    enum ha_status (*room)(struct ha_subject *self, size_t bytes, struct ha_room *room, struct ha_why *why);
    /* Merges in place of the batch's pieces. HA_FAIL: it refused (an answer). HA_WAIVED: it does not do such a
     * batch. HA_ERROR: it crashed, hung, or answered what is no answer; the next run starts afresh. */
    enum ha_status (*run)(struct ha_subject *self, struct ha_batch *batch, struct ha_why *why);
    /* A case that is more than one call (stage.h) and needs streams, of who merges in another process; NULL: what it
     * needs, if it has that, is api or merge. */
    enum ha_status (*stage)(struct ha_subject *self, const struct ha_merge_case *c, enum ha_form form,
                            enum ha_dtype dtype, uint64_t seed, struct ha_judgement *j, struct ha_why *why);
    void (*close)(struct ha_subject *self);
    void *own;                              /* the implementation's */
    void (*merge)(const struct ha_merge *); /* of one that is called directly */
    const struct ha_device_api *api;        /* with an open device: for the stages that need streams; else NULL */
    struct ha_device *device;
};

/* Why this subject cannot be asked for this shape, or NULL. */
const char *ha_subject_unfit(const struct ha_subject *subject, const struct ha_merge_shape *shape);
void ha_subject_close(struct ha_subject *subject);
/* Rows and a batch of this shape, in the subject's memory where it wants that. */
enum ha_status ha_subject_trial(struct ha_subject *subject, struct ha_merge_trial *trial,
                                const struct ha_merge_shape *shape, struct ha_why *why);
/* Sets name and traits, and the orders and layouts that the traits leave; the rest is 0. */
void ha_subject_describe(struct ha_subject *out, const char *name, const struct ha_merge_traits *traits);

/* A merge in host memory, called directly. */
void ha_subject_direct(struct ha_subject *out, const char *name, const struct ha_merge_traits *traits,
                       void (*merge)(const struct ha_merge *));
/* A device that is open; the subject does not close it. */
enum ha_status ha_subject_device(struct ha_subject *out, const char *name, const struct ha_device_api *api,
                                 struct ha_device *device, struct ha_why *why);
/* The function as the kernel of an embedded device of its own, which has the streams and flags that a stage needs. */
enum ha_status ha_subject_embedded(struct ha_subject *out, const struct ha_subject *function, struct ha_why *why);
/* A state of the batch as it lies in another block, at the same offset in the same bytes. */
struct ha_merge_state ha_subject_there(const struct ha_batch *batch, unsigned char *block, struct ha_merge_state state);
/* A shared object, loaded and called in a child process. limit_ns: for one run. */
enum ha_status ha_subject_plugin(struct ha_subject *out, const char *path, uint64_t limit_ns, struct ha_why *why);
/* The attention of a plugin, be it a library or a device: a table whose info, attend and merge (NULL: it has none) are
 * called with dev and stream NULL and host memory, and ask the plugin in its child process; failure(NULL) says why the
 * last of them did not return HA_OK. plugin: what ha_subject_plugin opened, and stays open. One at a time. NULL: it
 * offers no attend. */
const struct ha_device_api *ha_plugin_attend(struct ha_subject *plugin);
/* `sh -c "COMMAND IN OUT"` for each batch: it reads the safetensors IN and writes OUT (docs/merging.md). */
enum ha_status ha_subject_exec(struct ha_subject *out, const char *command, uint64_t limit_ns, struct ha_why *why);

/* ---- traits.c: what a foreign merge (a command, a file) declares of itself in words ---------------------- */

/* One line key=value of those that a command may print: name, forms, dtypes, fp8, commutes, plus_inf, states_max,
 * lse_order, varies, exp_eps, log_eps, depth_extra, rescales. */
enum ha_status ha_traits_parse(const char *line, struct ha_merge_traits *traits, char name[64], struct ha_why *why);
/* a number in [0, max] */
enum ha_status ha_number_parse(const char *key, const char *value, double max, double *out, struct ha_why *why);
/* Turns a name into one that can stand in an id: anything but letters, digits, _ . and - becomes _. */
void ha_subject_name(const char *from, char out[64]);

#endif
