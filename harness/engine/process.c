#define _GNU_SOURCE /* sigabbrev_np */
#include "harness/engine/child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

void ha_process_settle(pid_t parent)
{
    sigset_t none;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0); /* it died before that */
    for (int number = 1; number < 32; number++) signal(number, SIG_DFL);
    signal(SIGTTOU, SIG_IGN); /* a group in the background may write to the terminal */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
}

/* Whoever loses its parent becomes a child of this process, which has no others. */
static void end_descendants(void)
{
    char list[4096];
    bool any;
    do {
        const int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
        const ssize_t got = fd < 0 ? 0 : read(fd, list, sizeof list - 1);
        if (fd >= 0) close(fd);
        list[got > 0 ? got : 0] = 0;
        any = false;
        char *end, *at = list;
        /* a blank behind each: without it the number is cut */
        for (long pid; (pid = strtol(at, &end, 10)) > 0 && *end == ' '; at = end)
            any |= kill((pid_t)pid, SIGKILL) == 0; /* nobody waits for what may not be killed */
    } while (any && (waitpid(-1, NULL, 0) > 0 || errno == EINTR));
}

void ha_process_keep(void)
{
    enum { CANNOT_RUN = 126, KILLED = 128 }; /* as a shell has it */
    const pid_t keeper = getpid();
    siginfo_t how, got = { 0 };
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    const pid_t pid = fork();
    if (pid == 0) {
        ha_process_settle(keeper);
        return;
    }
    if (pid < 0) _exit(CANNOT_RUN);
    while (got.si_signo != SIGTERM && !ha_process_gone(pid, &how)) sigwaitinfo(&set, &got);
    kill(-pid, SIGKILL);
    end_descendants();
    _exit(how.si_code == CLD_EXITED ? how.si_status : KILLED + how.si_status);
}

bool ha_process_gone(pid_t pid, siginfo_t *how)
{
    memset(how, 0, sizeof *how);
    int got;
    do got = waitid(P_PID, (id_t)pid, how, WEXITED | WNOHANG | WNOWAIT);
    while (got != 0 && errno == EINTR);
    return got == 0 && how->si_pid == pid;
}

void ha_process_end(pid_t pid)
{
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL); /* it may not have made its group yet */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
}

void ha_process_end_kept(pid_t pid)
{
    kill(pid, SIGTERM);
    kill(pid, SIGCONT); /* what it keeps may have stopped it */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
}

struct ha_process_text ha_process_text(const siginfo_t *how)
{
    struct ha_process_text t;
    const char *name = how->si_code == CLD_EXITED ? NULL : sigabbrev_np(how->si_status);
    if (how->si_code == CLD_EXITED) snprintf(t.text, sizeof t.text, "exited with %d", how->si_status);
    else if (name) snprintf(t.text, sizeof t.text, "killed by SIG%s", name);
    else snprintf(t.text, sizeof t.text, "killed by signal %d", how->si_status);
    return t;
}
