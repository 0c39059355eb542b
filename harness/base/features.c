#include "harness/api/features.h"

enum when { KNOWN, ONLINE };
#define NAME_OF(NAME, name, when) #name,
#define WHEN_OF(NAME, name, when) when,
static const char *const names[] = { HA_FEATURES_ALL(NAME_OF) };
static const enum when whens[] = { HA_FEATURES_ALL(WHEN_OF) };

const char *ha_feature_name(size_t i) { return names[i]; }
bool ha_feature_online(size_t i) { return whens[i] == ONLINE; }
