#ifndef HA_ENGINE_MACHINE_H
#define HA_ENGINE_MACHINE_H

/* Devices, and what they and this host can reach at most: they outlive a case, and every suite finds them here. */

#include "harness/engine/plugin.h"
#include "harness/measure/beside.h"
#include "harness/measure/ceilings.h"
#include "harness/measure/eps.h"

struct ha_machine;

/* Told once for each device, and once more when its ceilings are known (NULL before). */
typedef void ha_machine_seen(const char *asked, const struct ha_device_api *api, const struct ha_device_info *info,
                             const struct ha_eps *eps, const struct ha_ceilings *ceilings);

enum ha_status ha_machine_create(struct ha_machine **machine, ha_machine_seen *seen, struct ha_why *why);
void ha_machine_destroy(struct ha_machine *machine);

/* Opened once and kept; one that has failed is opened anew. isa: of the CPU kernels that it may compute with, NULL: the
 * best. HA_ERROR also: it claims what cannot be. HA_WAIVED: the machine has no such
 * device, or it is a library without memory and streams. */
enum ha_status ha_machine_device(struct ha_machine *machine, const char *name, const char *isa,
                                 const struct ha_device_api **api, struct ha_device **device, struct ha_why *why);
/* Has a device failed, also while it was opened? why says how. A failure may outlive the device, as that of a CUDA
 * context does: only another process is rid of it. */
bool ha_machine_failed(struct ha_machine *machine, struct ha_why *why);
/* Puts back what the device that was opened last has changed around it (harness/base/surroundings.h). */
void ha_machine_restore(const struct ha_machine *machine);
/* Of the device that was opened last, measured when it was. */
const struct ha_eps *ha_machine_eps(const struct ha_machine *machine);
/* Of the device that was opened last: measured at the first call. */
enum ha_status ha_machine_ceilings(struct ha_machine *machine, const struct ha_ceilings **ceilings, struct ha_why *why);
/* The memory that ha_machine_beside reads, which outlives the machine; NULL: it reads none. */
void ha_machine_memory(struct ha_machine *machine, struct ha_paired_memory *memory);
/* What this host and the device that is open, if one is, can do right now (harness/measure/beside.h). Buffers on the
 * device stay until ha_machine_beside_end, or until it is closed. */
void ha_machine_beside(struct ha_machine *machine, uint64_t deadline_ns, double reading[HA_BESIDE_READINGS]);
void ha_machine_beside_end(struct ha_machine *machine);
/* For tests: this is the device of that name, and these are its ceilings (NULL: to be measured), also those of
 * ha_machine_beside. */
void ha_machine_give(struct ha_machine *machine, const char *name, const struct ha_device_api *api,
                     const struct ha_ceilings *ceilings);

#endif
