#ifndef HA_CHEATS_PLUGIN_H
#define HA_CHEATS_PLUGIN_H

/* Declarations for the files of the gallery of cheats (cheats.def). Memory of the sound device is read and written by
 * the host. */

#include "harness/api/device.h"

enum ha_cheat {
#define CHEAT(name, kind, by, what) CHEAT_##name,
#include "suites/cheats/cheats.def"
#undef CHEAT
    CHEATS
};
extern enum ha_cheat ha_cheat;               /* that is planted */
extern const struct ha_device_api *ha_sound; /* the device that it stands around */
extern bool ha_cheat_traced;                 /* as the device was told; of cheats that replace `trace` */
#define IS(name) (ha_cheat == CHEAT_##name)

/* A call that is kept: its arguments and, once it has been computed, its result. */
struct ha_call {
    struct ha_device_attend args;
    struct ha_device_seq *seqs;
    struct ha_stream *stream;
    float *result;
    uint64_t key;
    struct ha_call *next;
};
struct ha_call *ha_call_keep(struct ha_stream *stream, const struct ha_device_attend *a);
void ha_call_drop(struct ha_call *c);

/* Each replaces the entries that its cheats need. */
void ha_cheat_results(struct ha_device_api *api); /* cache, skip, precision, what is recognised */
void ha_cheat_late(struct ha_device_api *api);    /* defer */
void ha_cheat_clocks(struct ha_device_api *api);  /* timer, spans; and sound devices whose times vary */
void ha_cheat_facts(struct ha_device_api *api);   /* ceilings, facts */

#endif
