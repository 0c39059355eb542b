#include "harness/fleet/move.h"

#include "harness/base/file.h"
#include "harness/base/why.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ------------------------------------------------------------------------------------------------------- */

static enum ha_status cannot(struct ha_why *why, const char *path, const char *what, int error)
{
    return ha_why(why, HA_ERROR, "%.600s: cannot %s: %s", path, what, strerror(error));
}

static bool write_all(int fd, const char *bytes, size_t count)
{
    while (count) {
        const ssize_t wrote = write(fd, bytes, count);
        if (wrote < 0 && errno != EINTR) return false;
        if (wrote > 0) bytes += wrote, count -= (size_t)wrote;
    }
    return true;
}

static enum ha_status copy_bytes(int in, const char *from, int out, const char *to, struct ha_why *why)
{
    enum { PIECE = 1 << 18 };
    char *piece = malloc(PIECE);
    enum ha_status status = piece ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
    for (ssize_t got = 1; status == HA_OK && got;) {
        got = read(in, piece, PIECE);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = cannot(why, from, "read", errno);
        else if (!write_all(out, piece, (size_t)got)) status = cannot(why, to, "write", errno);
    }
    free(piece);
    if (status == HA_OK && fsync(out) != 0) status = cannot(why, to, "write", errno);
    return status;
}

static enum ha_status copy_file(const char *from, const char *to, struct ha_why *why)
{
    const int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (in < 0) return cannot(why, from, "read", errno);
    const int out = open(to, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    enum ha_status status = out < 0 ? cannot(why, to, "write", errno) : copy_bytes(in, from, out, to, why);
    if (out >= 0 && close(out) != 0 && status == HA_OK) status = cannot(why, to, "write", errno);
    close(in);
    return status;
}

static enum ha_status sync_folder(const char *path, struct ha_why *why)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool good = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL); /* some file systems have no such thing */
    const int error = errno;
    if (fd >= 0) close(fd);
    return good ? HA_OK : cannot(why, path, "write", error);
}

/* ---- folders ----------------------------------------------------------------------------------------------------- */

static enum ha_status copy_folder(const char *from, const char *to, int depth, struct ha_why *why);

static enum ha_status copy_entry(const char *from, const char *to, const char *name, int depth, struct ha_why *why)
{
    enum { DEEPEST = 32 };
    char a[4096], b[4096];
    struct stat at;
    HA_TRY(ha_file_path(a, from, name, "", why));
    HA_TRY(ha_file_path(b, to, name, "", why));
    if (lstat(a, &at) != 0) return cannot(why, a, "read", errno);
    if (S_ISREG(at.st_mode)) return copy_file(a, b, why);
    if (S_ISDIR(at.st_mode) && depth < DEEPEST) return copy_folder(a, b, depth + 1, why);
    return ha_why(why, HA_ERROR, "%.600s: it is neither a file nor a folder", a);
}

static enum ha_status copy_folder(const char *from, const char *to, int depth, struct ha_why *why)
{
    if (mkdir(to, 0777) != 0) return cannot(why, to, "make the folder", errno);
    DIR *d = opendir(from);
    if (!d) return cannot(why, from, "read", errno);
    enum ha_status status = HA_OK;
    const struct dirent *e;
    errno = 0;
    while (status == HA_OK && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            status = copy_entry(from, to, e->d_name, depth, why), errno = 0;
    if (status == HA_OK && errno) status = cannot(why, from, "read", errno);
    closedir(d);
    return status == HA_OK ? sync_folder(to, why) : status;
}

static int remove_one(const char *path, const struct stat *at, int type, struct FTW *of) { return remove(path); }

enum ha_status ha_move_remove(const char *path, struct ha_why *why)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return HA_OK;
    return cannot(why, path, "remove", errno);
}

enum ha_status ha_move_copy(const char *from, const char *into, const char *name, struct ha_why *why)
{
    char part[4096], path[4096], hidden[256];
    struct ha_why ignored;
    snprintf(hidden, sizeof hidden, ".%.200s", name);
    HA_TRY(ha_file_path(part, into, hidden, HA_PART, why));
    HA_TRY(ha_file_path(path, into, name, "", why));
    HA_TRY(ha_move_remove(part, why)); /* of an attempt that was killed */
    enum ha_status status = copy_folder(from, part, 0, why);
    if (status == HA_OK && rename(part, path) != 0) {
        const bool there = errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR;
        status = there ? ha_why(why, HA_ERROR, "%.600s: another record is there already", path)
                       : cannot(why, path, "write", errno);
    }
    if (status == HA_OK) return sync_folder(into, why);
    ha_move_remove(part, &ignored);
    return status;
}
