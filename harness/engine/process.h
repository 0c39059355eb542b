#ifndef HA_ENGINE_PROCESS_H
#define HA_ENGINE_PROCESS_H

/* Processes that run what is not ours: each leads a group of its own, so that what it starts ends with it. That is for
 * ha_process_end to do: where the program itself is killed (SIGKILL) the kernel ends such a process, as its parent is
 * gone, and nobody is left to end what that has started in turn. */

#include "harness/api/base.h"

#include <signal.h>
#include <sys/types.h>

enum { HA_PROCESS_SLICE_MS = 20 }; /* how often one that waits looks up: is it dead, is it time, was Ctrl-C pressed? */

/* First of all in the child: it leads its group, dies with its parent, takes signals as any program does, reads nothing
 * and prints where the errors go. Async-signal-safe. */
void ha_process_settle(pid_t parent);
/* Has it ended? It stays to be reaped by ha_process_end. */
bool ha_process_gone(pid_t pid, siginfo_t *how);
/* Kills what is left of the group and reaps its leader. */
void ha_process_end(pid_t pid);
/* "exited with 3", "killed by SIGSEGV" */
struct ha_process_text {
    char text[64];
};
struct ha_process_text ha_process_text(const siginfo_t *how);

#endif
