#include "harness/report/folder_take.h"

#include "harness/base/own_files.h"
#include "harness/base/why.h"
#include "harness/report/env.h"
#include "harness/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { PATH_MOST = 4000 }; /* of the folder: that of each file in it then fits */
enum { NEXT_MOST = 9999 };

/* The process that holds the lock, or 0. */
static long holder(int fd)
{
    struct stat at;
    char line[256];
    long found = 0;
    FILE *locks = fopen("/proc/locks", "re");
    while (locks && fstat(fd, &at) == 0 && fgets(line, sizeof line, locks)) {
        long pid;
        unsigned long inode;
        unsigned major, minor;
        /* 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF */
        if (sscanf(line, "%*d: FLOCK %*s %*s %ld %x:%x:%lu", &pid, &major, &minor, &inode) == 4 && inode == at.st_ino
            && pid > 0)
            found = pid;
    }
    if (locks) fclose(locks);
    return found;
}

/* Counts what is in the folder, but for what a killed run left half written. */
static bool is_empty(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;
    bool any = false;
    while (d && (e = readdir(d)))
        any = any || (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, "env.json" HA_PART));
    if (d) closedir(d);
    return !any;
}

/* *busy: another process has the lock. */
static enum ha_exit lock(struct ha_taken *t, bool *busy, struct ha_why *why)
{
    *busy = false;
    if (ha_file_folder(t->path, why) != HA_OK) return ha_why_prefix(why, HA_ERROR, "-o"), HA_EXIT_ENVIRONMENT;
    t->fd = ha_own_file(open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (t->fd < 0 && errno == ENOTDIR)
        return ha_why(why, HA_ERROR, "-o %s: it is no folder; give another name", t->path), HA_EXIT_USAGE;
    if (t->fd < 0)
        return ha_why(why, HA_ERROR, "-o %s: cannot open the folder: %s", t->path, strerror(errno)),
               HA_EXIT_ENVIRONMENT;
    if (flock(t->fd, LOCK_EX | LOCK_NB) == 0) return HA_EXIT_OK;
    *busy = errno == EWOULDBLOCK;
    if (!*busy)
        return ha_why(why, HA_ERROR, "-o %s: cannot lock the folder: %s", t->path, strerror(errno)),
               HA_EXIT_ENVIRONMENT;
    const long pid = holder(t->fd);
    char who[48] = "another run";
    if (pid) snprintf(who, sizeof who, "another run (process %ld)", pid);
    ha_why(why, HA_ERROR, "-o %s: %s writes to this folder; give another name, or wait for its end", t->path, who);
    return HA_EXIT_USAGE;
}

/* Whether what is in the folder, which is locked, is for this command. *next: it is a complete record. */
static enum ha_exit look(struct ha_taken *t, enum ha_take how, bool *next, struct ha_why *why)
{
    const enum ha_env_record is = ha_env_file_record(t->path);
    t->nothing = is_empty(t->path);
    if (t->nothing || how == HA_TAKE_RUN || (how == HA_TAKE_PROBE && is == HA_RECORD_PROBE)) return HA_EXIT_OK;
    *next = is == HA_RECORD_PROBE || is == HA_RECORD_COMPLETE;
    if (is == HA_RECORD_RUN && how != HA_TAKE_PROBE)
        ha_why(why, HA_ERROR,
               "-o %s: the folder is not empty, it has a run that did not end; add --resume to go on there, or give "
               "another name",
               t->path);
    else ha_why(why, HA_ERROR, "-o %s: the folder is not empty; give another name", t->path);
    return HA_EXIT_USAGE;
}

static enum ha_exit take(struct ha_taken *t, enum ha_take how, bool *next, struct ha_why *why)
{
    enum ha_exit code = lock(t, next, why);
    if (code == HA_EXIT_OK) code = look(t, how, next, why);
    if (code == HA_EXIT_OK || t->fd < 0) return code;
    ha_own_file_close(t->fd);
    t->fd = -1;
    return code;
}

enum ha_exit ha_folder_take(struct ha_taken *out, const char *path, enum ha_take how, struct ha_why *why)
{
    size_t bytes = strlen(path);
    *out = (struct ha_taken){ .fd = -1 };
    if (bytes > PATH_MOST)
        return ha_why(why, HA_ERROR, "-o %.200s...: the path is longer than %d bytes", path, PATH_MOST), HA_EXIT_USAGE;
    snprintf(out->path, sizeof out->path, "%s", path);
    while (bytes > 1 && path[bytes - 1] == '/') bytes--;
    for (int n = 2;; n++) {
        bool next = false;
        const enum ha_exit code = take(out, how, &next, why);
        if (code == HA_EXIT_OK || how != HA_TAKE_NEXT || !next || n > NEXT_MOST || path[bytes - 1] == '/'
            || path[bytes - 1] == '.')
            return code;
        snprintf(out->path, sizeof out->path, "%.*s-%d", (int)bytes, path, n);
    }
}
