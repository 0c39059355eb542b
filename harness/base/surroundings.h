#ifndef HA_BASE_SURROUNDINGS_H
#define HA_BASE_SURROUNDINGS_H

/* The state of a thread and its process that code of a plugin shares with this program: floating-point control
 * (rounding, denormals, x87 precision, traps), signal mask and handlers, working directory, locale, umask. A plugin
 * that leaves any of it changed would change the inputs, references and files of later cases. */

#include "harness/api/base.h"

/* Keeps the state of the calling thread and of the process, for ha_surroundings_restore. To be called before a plugin
 * is loaded; a second call replaces what the first kept. */
void ha_surroundings_keep(void);
/* Puts back all state that differs from what was kept, or that differed behind a task (ha_surroundings_task). `who` is
 * the plugin that the message names. To be called by the thread that called ha_surroundings_keep. */
void ha_surroundings_restore(const char *who);
/* HA_ERROR, once: something has differed since this was asked last; why says who changed what first. Without
 * ha_surroundings_keep: HA_OK. */
enum ha_status ha_surroundings_verdict(struct ha_why *why);
/* The floating-point control alone, of the calling thread: behind each task of a pool. Takes some ns. */
void ha_surroundings_task(void);

#endif
