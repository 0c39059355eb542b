#ifndef HA_REPORT_FOLDER_TAKE_H
#define HA_REPORT_FOLDER_TAKE_H

/* The folder behind -o: made with the folders above it, and locked, so that each has one writer. Every command that
 * makes a folder does it here. */

#include "harness/api/exit.h"
#include "harness/api/suite.h"

enum ha_take {
    HA_TAKE_NEW,   /* one that is empty, or is not there yet */
    HA_TAKE_NEXT,  /* the same; where PATH has a complete record, or another run writes to it: PATH-2, PATH-3, ... */
    HA_TAKE_RUN,   /* PATH itself, whatever is in it: --resume */
    HA_TAKE_PROBE, /* PATH itself, where it is empty or has the record of a probe, which is written anew */
};

struct ha_taken {
    char path[4096]; /* that was taken; of HA_TAKE_NEXT it may be another than was asked for */
    int fd;          /* of the folder, locked (ha_own_file_close); -1: none */
    bool nothing;    /* it is empty */
};

/* HA_EXIT_USAGE: it is not for this command, or another run writes to it. HA_EXIT_ENVIRONMENT: it cannot be made, read
 * or locked. why then says what to do, in one line, and nothing is locked. */
enum ha_exit ha_folder_take(struct ha_taken *out, const char *path, enum ha_take how, struct ha_why *why);

#endif
