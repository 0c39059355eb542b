#ifndef HA_VERSION_H
#define HA_VERSION_H

/* What `git describe` said at the build, or "unknown". */
const char *ha_version(void);

#endif
