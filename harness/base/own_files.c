#include "harness/base/own_files.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

enum { MOST = 4096 }; /* one above it is closed nowhere, which costs no more than that */
static atomic_bool marked[MOST];

int ha_own_file(int fd)
{
    if (fd >= 0 && fd < MOST) atomic_store(&marked[fd], true);
    return fd;
}

int ha_own_file_close(int fd)
{
    if (fd >= 0 && fd < MOST) atomic_store(&marked[fd], false);
    return close(fd);
}

void ha_own_files_leave(int keep)
{
    for (int fd = 0; fd < MOST; fd++)
        if (fd != keep && atomic_load(&marked[fd])) ha_own_file_close(fd);
}
