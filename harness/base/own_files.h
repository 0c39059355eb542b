#ifndef HA_BASE_OWN_FILES_H
#define HA_BASE_OWN_FILES_H

/* The descriptors that the program keeps open while it forks: a process that runs what is not ours is not to have them.
 * Those of others stay open in it, as a sanitizer or profiler talks to its process through one. */

/* Marks it and returns it; one below 0 is none. */
int ha_own_file(int fd);
/* As close. */
int ha_own_file_close(int fd);
/* In the child: closes all that are marked, but for one. Async-signal-safe. */
void ha_own_files_leave(int keep);

#endif
