#include "harness/program/night_step.h"

#include "harness/base/clock.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "harness/engine/child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const uint64_t grace_ns = UINT64_C(60000000000), stuck_ns = UINT64_C(30000000000);

/* A night that is killed leaves nothing that runs on beside the next night. */
static void die_with(pid_t parent, bool shell)
{
    if (shell) {
        ha_process_settle(parent);
        ha_process_keep();
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(126);
}

/* In the child. */
static void become(const struct ha_night_step *s, const char *path, pid_t parent)
{
    char *argv[HA_STEP_WORDS + 3] = { (char *)(uintptr_t)(s->shell ? "sh" : "habench"), (char *)(uintptr_t) "-c" };
    const size_t before = s->shell ? 2 : 1;
    die_with(parent, s->shell);
    const int out = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0666);
    if (out < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0) _exit(126);
    for (size_t i = 0; i < s->words; i++) argv[before + i] = (char *)(uintptr_t)s->word[i];
    argv[before + s->words] = NULL;
    for (size_t i = 0; s->env && s->env[i]; i++) putenv((char *)(uintptr_t)s->env[i]);
    execv(s->shell ? "/bin/sh" : "/proc/self/exe", argv);
    _exit(127);
}

static void nap(void)
{
    const struct timespec t = { 0, 20000000 };
    nanosleep(&t, NULL);
}

/* STUCK: killed, and yet there: it, or what a shell has begun, waits in the kernel for hardware that does not answer.
 */
enum end { BY_ITSELF, LATE, STUCK };

/* What keeps a shell ends all of it at the first SIGTERM. */
static enum end wait_for(pid_t child, const struct ha_night_step *s, int *status)
{
    const uint64_t begin = ha_now_ns();
    bool told = false;
    enum end end = BY_ITSELF;
    uint64_t told_at = 0, killed_at = 0; /* 0: it is not yet */
    while (waitpid(child, status, WNOHANG) == 0) {
        const uint64_t now = ha_now_ns();
        const bool late = s->limit_ns && now - begin > s->limit_ns;
        if (!told && (ha_stop || late)) {
            kill(child, ha_stop && !s->shell ? (int)ha_stop : SIGTERM);
            told = true;
            if (late && !ha_stop) end = LATE;
            told_at = now;
        }
        const bool over = ha_stop_now || (told && (s->shell || now - told_at > grace_ns));
        if (over && !s->shell) kill(child, SIGKILL);
        if (over && !killed_at) killed_at = now;
        if (killed_at && now - killed_at > stuck_ns) return STUCK;
        nap();
    }
    return end;
}

enum ha_status ha_night_step(const struct ha_night_step *s, int *code, struct ha_why *why)
{
    char path[4096];
    int status = 0;
    if ((size_t)snprintf(path, sizeof path, "%s/%s.txt", s->folder, s->name) >= sizeof path || s->words > HA_STEP_WORDS)
        return ha_why(why, HA_ERROR, "%s: the path, or the command, is too long", s->name);
    const pid_t parent = getpid(), child = fork();
    if (child < 0) return ha_why(why, HA_ERROR, "%s: no process: %s", s->name, strerror(errno));
    if (!child) become(s, path, parent);
    const enum end end = wait_for(child, s, &status);
    if (end == STUCK) {
        *code = 128 + SIGKILL;
        return ha_why(why, HA_FAIL, "%s: does not end, though it was killed (process %d): left behind", s->name,
                      (int)child);
    }
    *code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (!s->shell && (*code == 126 || *code == 127))
        return ha_why(why, HA_ERROR, "%s: cannot be begun, or %s not written", s->name, path);
    if (end == LATE) return ha_why(why, HA_FAIL, "%s: still running at its limit, and was ended", s->name);
    return HA_OK;
}
