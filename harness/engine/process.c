#include "harness/engine/child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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

struct ha_process_text ha_process_text(const siginfo_t *how)
{
    struct ha_process_text t;
    const char *name = how->si_code == CLD_EXITED ? NULL : sigabbrev_np(how->si_status);
    if (how->si_code == CLD_EXITED) snprintf(t.text, sizeof t.text, "exited with %d", how->si_status);
    else if (name) snprintf(t.text, sizeof t.text, "killed by SIG%s", name);
    else snprintf(t.text, sizeof t.text, "killed by signal %d", how->si_status);
    return t;
}
