#ifndef HA_ENV_H
#define HA_ENV_H

/* Where a run ran: an allow-list, never the whole environment. */

#include "harness/api/device.h"
#include "harness/base/clock.h"
#include "harness/base/fingerprint.h"
#include "harness/measure/ceilings.h"
#include "harness/measure/eps.h"

#include <stdio.h>

struct ha_env {
    char isa[32]; /* CPU kernels: the best here, unless the caller was told of another */
    char cpu[128], kernel[160], governor[32], huge_pages[16], date[HA_DATE_UTC], libc[32];
    char bios[96], microcode[32];            /* empty: not to be read here */
    const struct ha_tuning *plan;            /* of the CPU kernels; NULL as without choices */
    size_t cores, sockets, numa_nodes, gpus; /* gpus: on the bus, whoever may use them */
    uint64_t memory_bytes;
    double cpu_clock_max_MHz; /* that the governor allows; 0: not to be read here */
    int numa_node;            /* that this process is held to, or -1 */
    /* Which machine this is: digests of what no boot changes, with the salt $HABENCH_SALT (docs/compare.md); empty: not
     * to be read here. board: serial and identifier of the board, which root alone may read. */
    char board[9], machine_id[9], host[9];
};
void ha_env_read(struct ha_env *env);

/* A device of a run, without a pointer: it may cross from one process to another. */
struct ha_env_device {
    char asked[256], driver[64], kind[32], built_with[128]; /* asked: the name in the cases' ids */
    struct ha_device_info info;
    bool asked_eps; /* eps is known */
    struct ha_eps eps;
    bool probed; /* ceilings are known */
    struct ha_ceilings ceilings;
};
/* From what a device says of itself; eps and ceilings may be NULL. */
void ha_env_device(struct ha_env_device *out, const char *asked, const struct ha_device_api *api,
                   const struct ha_device_info *info, const struct ha_eps *eps, const struct ha_ceilings *ceilings);

/* Of one whose bytes came from elsewhere: every text ends and can be printed. */
void ha_env_device_mend(struct ha_env_device *device);

/* one or two lines for the end of a report; device may be NULL */
void ha_env_print(FILE *out, const struct ha_env *env, const struct ha_env_device *device);

/* ---- env.json (env_file.c): the machine, the build, the devices, and every run that wrote to the folder.
 * results/schema/env.schema.json says what may stand in it. */

/* A suite file that a run has read, and the fingerprint of its bytes. */
struct ha_env_suite {
    char *path, digest[HA_FINGERPRINT_TEXT];
};
/* A run, as env.json has it. */
struct ha_env_run {
    const char *run_id, *mode, *build, *options;
    const char *command;              /* NULL: this process's */
    const struct ha_env_suite *suite; /* [suites] */
    size_t suites;
};

struct ha_env_file;

/* NULL: no memory */
struct ha_env_file *ha_env_file_create(const struct ha_env *env, const struct ha_env_run *run);
void ha_env_file_destroy(struct ha_env_file *file);
/* Goes on with the runs and devices of the file at path. HA_FAIL: it is of a run that differs from this one, or of
 * none; HA_ERROR: it cannot be read. why then says what differs, without the path. */
enum ha_status ha_env_file_resume(struct ha_env_file *file, const char *path, struct ha_why *why);
/* Says that every case of the folder has its row. A file that goes on with another does not. */
void ha_env_file_complete(struct ha_env_file *file);
/* What env.json says that the folder has. HA_RECORD_RUN: a run that did not end, or a file that cannot be read. */
enum ha_env_record { HA_RECORD_NONE, HA_RECORD_PROBE, HA_RECORD_RUN, HA_RECORD_COMPLETE };
enum ha_env_record ha_env_file_record(const char *folder);
/* in place of one of the same asked name */
enum ha_status ha_env_file_device(struct ha_env_file *file, const struct ha_env_device *device, struct ha_why *why);
/* FOLDER/env.json, whole or not at all */
enum ha_status ha_env_file_write(const struct ha_env_file *file, const char *folder, struct ha_why *why);
/* The same for a folder of no run. asked: for the device, by this name. ceilings may be NULL. */
enum ha_status ha_env_write(const char *folder, const struct ha_env *env, const char *asked,
                            const struct ha_device_api *api, const struct ha_device_info *info,
                            const struct ha_ceilings *ceilings, struct ha_why *why);

#endif
