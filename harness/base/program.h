#ifndef HA_BASE_PROGRAM_H
#define HA_BASE_PROGRAM_H

#include "harness/api/base.h"

/* The folder that this program was started from, without a slash at its end; false, and "": it cannot be told, or has
 * no room. */
bool ha_program_folder(char *out, size_t bytes);

/* A file or folder beside the program: in the source tree, or in the prefix where it is installed. */
bool ha_program_beside(char *path, size_t bytes, const char *in_tree, const char *installed);

/* The path of the file that a case calls `name`: that file itself, or NAME of `below` ("datasets/traces") with
 * this ending (".safetensors") in the current folder, in the program's folder or in any folder above that. what: what
 * it is, in the reason. HA_ERROR: there is none. */
enum { HA_PATH_BYTES = 4096 };
enum ha_status ha_program_find(char path[HA_PATH_BYTES], const char *what, const char *below, const char *name,
                               const char *ending, struct ha_why *why);

#endif
