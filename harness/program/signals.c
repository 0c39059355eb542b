#include "harness/program/signals.h"

#include "harness/base/stop.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static void stop(int number)
{
    if (ha_stop) _exit(128 + number);
    ha_stop = number;
}

void ha_signals_catch(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = stop;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a limit of the size of files is a write that fails, as on a full disk */
}
