#ifndef HA_BASE_FILE_H
#define HA_BASE_FILE_H

/* Files by their paths: one that is written whole, and one that a user names. */

#include "harness/api/base.h"

#include <stdio.h>

#define HA_PART ".part" /* how a name ends until then */

/* A file that is there whole, as it was or as it is to be, whenever the process is killed: it is written beside its
 * name, `part`, and takes the name, `path`, at the end. The same text in both: it is written directly. */
struct ha_whole_file {
    FILE *file;
    char part[4096], path[4096];
};

/* A file of a folder that is the program's own */
enum ha_status ha_whole_file_open(struct ha_whole_file *out, const char *folder, const char *name, struct ha_why *why);
/* A file that the user names, by -o or --junit. A link stays, and the file that it leads to is written. A pipe, a
 * device and /dev/stdout are written directly. HA_ERROR: it cannot be written; why names it. */
enum ha_status ha_whole_file_named(struct ha_whole_file *out, const char *path, struct ha_why *why);
/* The file takes its name. Where a write failed, it is removed. */
enum ha_status ha_whole_file_close(struct ha_whole_file *out, struct ha_why *why);

/* It stays as it was. */
void ha_whole_file_drop(struct ha_whole_file *out);

/* The two paths of ha_whole_file_named, for who writes `part` by path; nothing is opened. */
enum ha_status ha_file_place(char part[4096], char path[4096], const char *named, struct ha_why *why);
/* `part`, which is closed, takes the name `path`, once it is on the disk. */
enum ha_status ha_file_take_name(const char *part, const char *path, struct ha_why *why);
/* Removes `part` of these two. */
void ha_file_drop(const char *part, const char *path);

/* Opens a file that the user names, to read it; never waits for the other end of a pipe. -1: it cannot be, or is no
 * regular file; why says it, without the path. */
int ha_file_open(const char *path, struct ha_why *why);
/* The same as a stream; NULL: why begins with the path. */
FILE *ha_file_read(const char *path, struct ha_why *why);
/* Its bytes in memory, to be read, until munmap. HA_ERROR: it cannot be mapped, or is empty; why says it, without the
 * path. */
enum ha_status ha_file_map(const char *path, void **map, size_t *bytes, struct ha_why *why);

/* Makes the folder where there is none, and those above it. */
enum ha_status ha_file_folder(const char *path, struct ha_why *why);
/* "FOLDER/NAMEending", or HA_ERROR: too long */
enum ha_status ha_file_path(char path[4096], const char *folder, const char *name, const char *ending,
                            struct ha_why *why);

#endif
