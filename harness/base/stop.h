#ifndef HA_BASE_STOP_H
#define HA_BASE_STOP_H

#include <signal.h>

/* Set by SIGINT, SIGTERM and SIGHUP to the signal: finish what is begun, write what is complete, end. */
extern volatile sig_atomic_t ha_stop;
/* Set by a second signal: give up what is begun. */
extern volatile sig_atomic_t ha_stop_now;

#endif
