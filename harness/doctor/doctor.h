#ifndef HA_DOCTOR_H
#define HA_DOCTOR_H

/* What makes figures of this machine worthless, and how to mend it: a table of checks, each of which looks at files of
 * the system, at a second of our own load, or at a device. docs/doctor.md says why and from where on. */

#include "harness/api/device.h"
#include "harness/measure/condition.h"
#include "harness/measure/disturbed.h"

#include <stdio.h>

/* In the order in which they are printed. UNKNOWN: it cannot be read here. */
enum ha_fitness { HA_NOT_LOOKED, HA_UNFIT, HA_WARNING, HA_UNKNOWN, HA_FIT };
const char *ha_fitness_name(enum ha_fitness verdict); /* "unfit"; of HA_NOT_LOOKED "unknown" */

struct ha_finding {
    enum ha_fitness verdict;
    char found[240], mend[240]; /* mend: a command; empty where nothing is to be mended */
};

/* ---- what is looked at ---- */

/* Around a second of our own load, and of it. */
struct ha_doctor_load {
    struct ha_core_counts before, after;                   /* of our cores */
    struct ha_core_counts siblings_before, siblings_after; /* of cores that share theirs and are not ours */
    double swapped_before, swapped_after;                  /* pages, of the whole system; NaN: cannot be read */
    size_t slow, looks;                                    /* speed.h */
};
/* run works for about a second on all cores of this process and counts its looks. */
void ha_doctor_load(const char *root, void (*run)(void *arg, struct ha_doctor_load *load), void *arg,
                    struct ha_doctor_load *out);

struct ha_doctor_device {
    char kind[32], bus_id[32]; /* bus_id as in /sys/bus/pci/devices; empty: none */
    struct ha_device_info info;
    struct ha_device_fact fact[HA_DEVICE_FACTS_MOST]; /* before any load */
    size_t facts;
    struct ha_device_meters meters; /* while copies and reads ran, as the next */
    struct ha_condition condition;
    char link_speed[32]; /* the system's own word for the link then, "16.0 GT/s PCIe"; empty: none */
    double link_width;   /* NaN: none */
    double copied;       /* how many of our copies were done; 0: it cannot copy, and was without load */
};
/* Opened by the caller. Takes about two seconds; HA_ERROR: the device failed meanwhile. */
enum ha_status ha_doctor_device_look(const char *root, const struct ha_device_api *api, struct ha_device *device,
                                     struct ha_doctor_device *out, struct ha_why *why);

struct ha_doctor_seen {
    const char *root; /* "", or for tests a folder with proc and sys */
    const struct ha_doctor_load *load;
    const struct ha_doctor_device *device; /* NULL: none is asked about */
    bool mine[HA_CORES_MOST];              /* the cores that this process may run on */
};

/* ---- the checks ---- */

enum ha_doctor_of { HA_OF_HOST, HA_OF_DEVICE, HA_OF_GPU }; /* GPU: of a device that has a link or a bus id */

struct ha_doctor_check {
    const char *name;
    enum ha_doctor_of of;
    const char *why;  /* it matters */
    const char *mend; /* what look does not say more exactly */
    void (*look)(const struct ha_doctor_check *check, const struct ha_doctor_seen *seen, struct ha_finding *finding);
    const void *arg;
};
extern const struct ha_doctor_check ha_doctor_checks[];
extern const size_t ha_doctor_checks_count;
enum { HA_DOCTOR_CHECKS_MOST = 64 };

/* Is the check one for this device (NULL: none)? */
bool ha_doctor_asks(const struct ha_doctor_check *check, const struct ha_doctor_device *device);
/* Of all checks of the host, or of all that are not, those that are asked: finding i is of check i. What cannot be read
 * is HA_UNKNOWN; the others stay as they are. */
void ha_doctor_look(const struct ha_doctor_seen *seen, bool host, struct ha_finding *findings);

/* ---- what is said ---- */

/* A row of the end: of a check, or of something that is none, as a device that cannot be opened. */
struct ha_doctor_row {
    const char *check, *why;
    struct ha_finding finding;
};
/* Unfit first, else in the order they have: sorts them. */
void ha_doctor_sort(struct ha_doctor_row *rows, size_t count);
enum ha_fitness ha_doctor_verdict(const struct ha_doctor_row *rows, size_t count); /* HA_UNFIT or HA_FIT */
/* of: what was asked about, as "this host and device cuda" */
void ha_doctor_print(FILE *out, const char *of, const struct ha_doctor_row *rows, size_t count);
void ha_doctor_print_json(FILE *out, const struct ha_doctor_row *rows, size_t count);

#endif
