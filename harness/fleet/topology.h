#ifndef HA_FLEET_TOPOLOGY_H
#define HA_FLEET_TOPOLOGY_H

/* What ranks of one host share, by hwloc: the memory and the socket that their cores or their devices belong to, and
 * the bridges between the devices and them. */

#include "harness/fleet/meet.h"

/* Tells the others which memory and socket the cores belong to that this process may use, if it is one each. */
void ha_topology_tell(struct ha_meet *meet);
/* FOLDER/topology.json, of what ranks have told (ha_topology_tell, ha_meet_tell_device): for this one and each other
 * one of the meeting, which is of one host. */
enum ha_status ha_topology_write(const struct ha_meet *meet, const char *folder, struct ha_why *why);

#endif
