#ifndef HA_SIGNALS_H
#define HA_SIGNALS_H

/* SIGINT and SIGTERM set ha_stop (harness/base/stop.h) to the signal's number; the second one ends the process at once.
 */
void ha_signals_catch(void);

#endif
