#ifndef HA_MERGE_PLUGIN_H
#define HA_MERGE_PLUGIN_H

/* The attention of a foreign plugin. */

#include "suites/merge/subject.h"

/* A table whose info and attend are called with dev and stream NULL and host memory, and ask the plugin in its child
 * process, be it a library or a device; failure(NULL) says why the last attend did not return HA_OK. plugin: what
 * ha_subject_plugin opened, and stays open. One at a time. NULL: this plugin offers no attend. */
const struct ha_device_api *ha_plugin_attend(struct ha_subject *plugin);

#endif
