#ifndef HA_SIGNALS_H
#define HA_SIGNALS_H

/* SIGINT and SIGTERM set ha_stop (harness/base/stop.h) to the signal's number, a second one ha_stop_now; the third ends
 * the process at once. A write beyond a limit of the size of files fails like others (SIGXFSZ is ignored). */
void ha_signals_catch(void);

#endif
