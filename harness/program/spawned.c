#define _GNU_SOURCE /* pipe2 */
#include "harness/program/spawned.h"

#include "harness/base/stop.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/engine/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The last line that is not empty, of what comes in pieces. */
struct last_line {
    char now[HA_SPAWNED_LINE], whole[HA_SPAWNED_LINE];
    size_t used;
};

static const char advice[] = "Try `"; /* argp's last line, behind the reason */

static void take_bytes(struct last_line *l, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const bool ends = bytes[i] == '\n' || bytes[i] == '\r' || !bytes[i];
        if (!ends && l->used + 1 < sizeof l->now) l->now[l->used++] = bytes[i];
        if (!ends || !l->used) continue;
        l->now[l->used] = 0;
        if (strncmp(l->now, advice, sizeof advice - 1) != 0) memcpy(l->whole, l->now, l->used + 1);
        l->used = 0;
    }
}

/* Until the other end is closed or nothing is there. false: closed */
static bool take_errors(int fd, struct last_line *l)
{
    char bytes[4096];
    for (;;) {
        const ssize_t got = read(fd, bytes, sizeof bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        take_bytes(l, bytes, (size_t)got);
    }
}

/* false: interrupted */
static bool await(pid_t pid, int errors, struct last_line *l, siginfo_t *how)
{
    for (;;) {
        const bool gone = ha_process_gone(pid, how);
        if (errors >= 0 && !take_errors(errors, l)) errors = -1;
        if (gone) return true;
        if (ha_stop) return false;
        poll(&(struct pollfd){ .fd = errors, .events = POLLIN }, 1, HA_PROCESS_SLICE_MS);
    }
}

enum ha_status ha_spawned_run(char *const *argv, int out, int *code, char last[HA_SPAWNED_LINE], struct ha_why *why)
{
    struct last_line line = { 0 };
    siginfo_t how;
    int errors[2];
    *last = 0;
    *code = HA_SPAWNED_NOT_FOUND;
    if (pipe2(errors, O_CLOEXEC) != 0) return ha_why(why, HA_ERROR, "no pipe for %s: %s", argv[0], strerror(errno));
    fcntl(errors[0], F_SETFL, O_NONBLOCK);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) { /* only what is async-signal-safe */
        ha_process_settle(parent);
        const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(out >= 0 ? out : nowhere, STDOUT_FILENO);
        dup2(errors[1], STDERR_FILENO);
        execvp(argv[0], argv);
        _exit(HA_SPAWNED_NOT_FOUND);
    }
    close(errors[1]);
    enum ha_status status = pid > 0 ? HA_OK : ha_why(why, HA_ERROR, "no process for %s: %s", argv[0], strerror(errno));
    if (pid > 0) {
        if (!await(pid, errors[0], &line, &how)) status = ha_why(why, HA_ERROR, "interrupted");
        else *code = how.si_code == CLD_EXITED ? how.si_status : 128 + how.si_status;
        ha_process_end(pid);
    }
    close(errors[0]);
    take_bytes(&line, "\n", 1);
    snprintf(last, HA_SPAWNED_LINE, "%s", line.whole);
    ha_text_clean(last);
    return status;
}
