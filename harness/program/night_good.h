#ifndef HA_PROGRAM_NIGHT_GOOD_H
#define HA_PROGRAM_NIGHT_GOOD_H

/* The program of the last night that found nothing, kept in the folder of the nights as last_good/habench: where a
 * machine is never quiet its times say nothing, and old and new in turns do. */

#include "harness/api/base.h"

/* There is one, of another build than this. program: its path; version: of its build. */
bool ha_night_good(const char *nights, char program[4096], char version[128]);
/* Keeps this program there. A folder that is a night itself keeps none. HA_ERROR: it cannot be written. */
enum ha_status ha_night_good_keep(const char *nights, struct ha_why *why);

#endif
