#ifndef HA_APART_H
#define HA_APART_H

/* Commands that run a plugin without a run: in a process of their own, so that its end is a line and not ours. */

#include "harness/api/base.h"

#include <stdio.h>

/* work writes to `out`, which is printed to stdout line by line, with what a terminal must not see as '?'. HA_ERROR,
 * and why, if the process dies ("killed by SIGSEGV") or takes longer than limit_ns; else what work returns. */
enum ha_status ha_apart(enum ha_status (*work)(void *arg, FILE *out, struct ha_why *why), void *arg, uint64_t limit_ns,
                        struct ha_why *why);
/* The same of work that prints nothing and fills a block of memory, [bytes], which it finds zeroed: out is what it had
 * filled by its end, whatever that was. */
enum ha_status ha_apart_fill(enum ha_status (*work)(void *arg, void *room, struct ha_why *why), void *arg, void *out,
                             size_t bytes, uint64_t limit_ns, struct ha_why *why);

#endif
