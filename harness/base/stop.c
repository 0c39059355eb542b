#include "harness/base/stop.h"

volatile sig_atomic_t ha_stop, ha_stop_now;
