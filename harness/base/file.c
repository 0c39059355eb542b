#include "harness/base/file.h"
#include "harness/base/why.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum ha_status ha_file_path(char path[4096], const char *folder, const char *name, const char *ending,
                            struct ha_why *why)
{
    if (snprintf(path, 4096, "%s/%s%s", folder, name, ending) < 4096) return HA_OK;
    return ha_why(why, HA_ERROR, "%.200s: the path is too long", folder);
}

enum ha_status ha_file_folder(const char *path, struct ha_why *why)
{
    char part[4096];
    size_t bytes = strlen(path);
    if (bytes >= sizeof part) return ha_why(why, HA_ERROR, "%.200s: the path is too long", path);
    for (size_t end = 1; end <= bytes; end++) {
        if (end < bytes && path[end] != '/') continue;
        snprintf(part, sizeof part, "%.*s", (int)end, path);
        if (mkdir(part, 0777) != 0 && errno != EEXIST && (end == bytes || (errno != EROFS && errno != EACCES)))
            return ha_why(why, HA_ERROR, "%s: cannot make the folder: %s", part, strerror(errno));
    }
    return HA_OK;
}

int ha_file_open(const char *path, struct ha_why *why)
{
    struct stat at;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &at) == 0 && S_ISREG(at.st_mode)) return fd;
    if (fd < 0) ha_why(why, HA_ERROR, "cannot open: %s", strerror(errno));
    else if (S_ISDIR(at.st_mode)) ha_why(why, HA_ERROR, "is a directory; give the path of a file");
    else ha_why(why, HA_ERROR, "is a pipe or a device, not a regular file; give the path of a file");
    if (fd >= 0) close(fd);
    return -1;
}

FILE *ha_file_read(const char *path, struct ha_why *why)
{
    const int fd = ha_file_open(path, why);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    if (fd < 0) ha_why_prefix(why, HA_ERROR, "%s", path);
    else if (!file) {
        ha_why(why, HA_ERROR, "%s: cannot open: %s", path, strerror(errno));
        close(fd);
    }
    return file;
}

enum ha_status ha_file_map(const char *path, void **map, size_t *bytes, struct ha_why *why)
{
    struct stat at;
    enum ha_status status = HA_OK;
    const int fd = ha_file_open(path, why);
    if (fd < 0) return HA_ERROR;
    if (fstat(fd, &at) != 0) status = ha_why(why, HA_ERROR, "%s", strerror(errno));
    else if (at.st_size == 0) status = ha_why(why, HA_ERROR, "empty file");
    else {
        *bytes = (size_t)at.st_size;
        *map = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (*map == MAP_FAILED) status = ha_why(why, HA_ERROR, "cannot map: %s", strerror(errno));
    }
    close(fd);
    return status;
}

/* ---- where a file goes ------------------------------------------------------------------------------------------- */

static bool is_direct(const char *part, const char *path) { return !strcmp(part, path); }

/* An open file of this process, by its number, or -1. */
static int own_fd(const char *path)
{
    static const char *const folders[] = { "/proc/self/fd/", "/dev/fd/" };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const size_t n = strlen(folders[i]);
        if (!strncmp(path, folders[i], n) && isdigit((unsigned char)path[n])) return atoi(path + n);
    }
    return -1;
}

/* The path behind the links that `path` may be, which need not be there; false: it is too long. */
static bool follow(char path[4096])
{
    enum { LINKS_MOST = 40 }; /* as the kernel */
    char to[4096];
    for (int i = 0; i < LINKS_MOST && own_fd(path) < 0; i++) {
        const ssize_t n = readlink(path, to, sizeof to - 1);
        if (n < 0) return true;
        to[n] = 0;
        char *slash = strrchr(path, '/'), *name = *to == '/' ? path : slash ? slash + 1 : path;
        const size_t room = 4096 - (size_t)(name - path);
        if ((size_t)snprintf(name, room, "%s", to) >= room) return false;
    }
    return true;
}

enum ha_status ha_file_place(char part[4096], char path[4096], const char *named, struct ha_why *why)
{
    struct stat at;
    if (snprintf(path, 4096, "%s", named) >= 4096 || !follow(path))
        return ha_why(why, HA_ERROR, "%.200s: the path is too long", named);
    const bool there = stat(path, &at) == 0;
    if (!there && errno != ENOENT) return ha_why(why, HA_ERROR, "%s: cannot write: %s", named, strerror(errno));
    if (there && S_ISDIR(at.st_mode))
        return ha_why(why, HA_ERROR, "%s: cannot write: it is a folder; give the name of a file", named);
    /* of this process, for what it starts, too */
    if (own_fd(path) >= 0) snprintf(path, 4096, "/proc/%ld/fd/%d", (long)getpid(), own_fd(path));
    else if (!there || S_ISREG(at.st_mode)) {
        if (snprintf(part, 4096, "%s.%ld" HA_PART, path, (long)getpid()) < 4096) return HA_OK;
        return ha_why(why, HA_ERROR, "%.200s: the path is too long", named);
    }
    strcpy(part, path);
    return HA_OK;
}

enum ha_status ha_file_take_name(const char *part, const char *path, struct ha_why *why)
{
    if (is_direct(part, path)) return HA_OK;
    const int fd = open(part, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0) close(fd);
    if (good && rename(part, path) == 0) return HA_OK;
    if (good) error = errno;
    unlink(part);
    return ha_why(why, HA_ERROR, "%s: cannot write: %s", path, strerror(error));
}

void ha_file_drop(const char *part, const char *path)
{
    if (!is_direct(part, path)) unlink(part);
}

/* ---- whole files ------------------------------------------------------------------------------------------------- */

static enum ha_status open_part(struct ha_whole_file *out, const char *mode, struct ha_why *why)
{
    out->file = fopen(out->part, mode);
    if (out->file) return HA_OK;
    return ha_why(why, HA_ERROR, "%s: cannot write: %s", out->path, strerror(errno));
}

enum ha_status ha_whole_file_open(struct ha_whole_file *out, const char *folder, const char *name, struct ha_why *why)
{
    out->file = NULL;
    HA_TRY(ha_file_path(out->part, folder, name, HA_PART, why));
    HA_TRY(ha_file_path(out->path, folder, name, "", why));
    return open_part(out, "we", why);
}

enum ha_status ha_whole_file_named(struct ha_whole_file *out, const char *path, struct ha_why *why)
{
    long pid;
    int fd;
    out->file = NULL;
    HA_TRY(ha_file_place(out->part, out->path, path, why));
    if (sscanf(out->part, "/proc/%ld/fd/%d", &pid, &fd) != 2 || pid != (long)getpid())
        return open_part(out, is_direct(out->part, out->path) ? "ae" : "we", why);
    fflush(NULL); /* what was printed before stands before it */
    fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    out->file = fd < 0 ? NULL : fdopen(fd, "w");
    if (out->file) return HA_OK;
    const int error = errno;
    if (fd >= 0) close(fd);
    return ha_why(why, HA_ERROR, "%s: cannot write: %s", path, strerror(error));
}

enum ha_status ha_whole_file_close(struct ha_whole_file *out, struct ha_why *why)
{
    const bool flushed = !ferror(out->file) && fflush(out->file) == 0;
    const int error = errno; /* of the write that failed, which may have been long before */
    if (fclose(out->file) == 0 && flushed) return ha_file_take_name(out->part, out->path, why);
    ha_file_drop(out->part, out->path);
    return ha_why(why, HA_ERROR, "%s: cannot write: %s", out->path, strerror(flushed ? errno : error));
}

void ha_whole_file_drop(struct ha_whole_file *out)
{
    fclose(out->file);
    ha_file_drop(out->part, out->path);
}
