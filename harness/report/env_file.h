#ifndef HA_REPORT_ENV_FILE_H
#define HA_REPORT_ENV_FILE_H

/* env.json: the machine, the build, the devices, and every run that wrote to the folder. results/schema/env.schema.json
 * says what may stand in it. */

#include "harness/report/env.h"

/* A run, as env.json has it. */
struct ha_env_run {
    const char *run_id, *mode, *build, *options;
    const char *command; /* NULL: this process's */
};

struct ha_env_file;

/* NULL: no memory */
struct ha_env_file *ha_env_file_create(const struct ha_env *env, const struct ha_env_run *run);
void ha_env_file_destroy(struct ha_env_file *file);
/* Goes on with the runs and devices of the file at path. HA_FAIL: it is of a run that differs from this one, or of
 * none; HA_ERROR: it cannot be read. why then says what differs, without the path. */
enum ha_status ha_env_file_resume(struct ha_env_file *file, const char *path, struct ha_why *why);
/* in place of one of the same asked name */
enum ha_status ha_env_file_device(struct ha_env_file *file, const struct ha_env_device *device, struct ha_why *why);
/* FOLDER/env.json, whole or not at all */
enum ha_status ha_env_file_write(const struct ha_env_file *file, const char *folder, struct ha_why *why);

#endif
