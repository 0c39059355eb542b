#include "harness/report/whole_file.h"

#include "harness/base/why.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
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

enum ha_status ha_file_take_name(const char *part, const char *path, struct ha_why *why)
{
    const int fd = open(part, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0) close(fd);
    if (good && rename(part, path) == 0) return HA_OK;
    if (good) error = errno;
    unlink(part);
    return ha_why(why, HA_ERROR, "%s: cannot write: %s", path, strerror(error));
}

enum ha_status ha_whole_file_open(struct ha_whole_file *out, const char *folder, const char *name, struct ha_why *why)
{
    out->file = NULL;
    HA_TRY(ha_file_path(out->part, folder, name, HA_PART, why));
    HA_TRY(ha_file_path(out->path, folder, name, "", why));
    out->file = fopen(out->part, "we");
    if (out->file) return HA_OK;
    return ha_why(why, HA_ERROR, "%s: cannot write: %s", out->path, strerror(errno));
}

enum ha_status ha_whole_file_close(struct ha_whole_file *out, struct ha_why *why)
{
    const bool flushed = !ferror(out->file) && fflush(out->file) == 0;
    const int error = errno; /* of the write that failed, which may have been long before */
    if (fclose(out->file) == 0 && flushed) return ha_file_take_name(out->part, out->path, why);
    unlink(out->part);
    return ha_why(why, HA_ERROR, "%s: cannot write: %s", out->path, strerror(flushed ? errno : error));
}

void ha_whole_file_drop(struct ha_whole_file *out)
{
    fclose(out->file);
    unlink(out->part);
}
