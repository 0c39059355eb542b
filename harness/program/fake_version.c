#include "harness/base/version.h"

const char *ha_version(void) { return "of a test"; }
