#ifndef HA_REPORT_WHOLE_FILE_H
#define HA_REPORT_WHOLE_FILE_H

/* A file of a folder that is there whole, as it was or as it is to be, whenever the process is killed: it is written
 * beside its name, and takes it at the end. */

#include "harness/api/base.h"

#include <stdio.h>

#define HA_PART ".part" /* how a name ends until then */

struct ha_whole_file {
    FILE *file;
    char part[4096], path[4096];
};

enum ha_status ha_whole_file_open(struct ha_whole_file *out, const char *folder, const char *name, struct ha_why *why);
/* What was written takes the name, unless something failed: then it is removed. */
enum ha_status ha_whole_file_close(struct ha_whole_file *out, struct ha_why *why);

/* It stays as it was. */
void ha_whole_file_drop(struct ha_whole_file *out);

/* Makes the folder where there is none, and those above it. */
enum ha_status ha_file_folder(const char *path, struct ha_why *why);
/* "FOLDER/NAMEending", or HA_ERROR: too long */
enum ha_status ha_file_path(char path[4096], const char *folder, const char *name, const char *ending,
                            struct ha_why *why);
/* PATH.part, which is closed, takes the name PATH, once it is on the disk. */
enum ha_status ha_file_take_name(const char *part, const char *path, struct ha_why *why);

#endif
