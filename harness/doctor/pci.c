/* Where a device is plugged in. */

#include "harness/doctor/checks.h"

#include "harness/doctor/files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES "/sys/bus/pci/devices"

static bool has_place(const struct ha_doctor_seen *s, struct ha_finding *f)
{
    if (*s->device->bus_id) return true;
    ha_found(f, HA_UNKNOWN, "the device does not say where it is plugged in");
    return false;
}

/* The generation of "16.0 GT/s PCIe", or of "8 GT/s" as older kernels have it; 0: none that is known */
static double generation(const char *speed)
{
    static const double rates[] = { 2.5, 5, 8, 16, 32, 64 };
    char *end;
    const double rate = strtod(speed, &end);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (rate == rates[i] && !strncmp(end, " GT/s", 5)) return (double)i + 1;
    return 0;
}

struct link {
    double gen, width; /* 0: not to be read */
};

/* of the device, or `up` ports towards the processor */
static struct link link_most(const struct ha_doctor_seen *s, const char *up)
{
    struct link l = { 0, 0 };
    char speed[64];
    if (ha_file_word(speed, sizeof speed, s->root, DEVICES "/%s%s/max_link_speed", s->device->bus_id, up))
        l.gen = generation(speed);
    if (!ha_file_number(&l.width, s->root, DEVICES "/%s%s/max_link_width", s->device->bus_id, up)) l.width = 0;
    return l;
}

static double either(double a, double b) { return a > 0 ? a : b > 0 ? b : 0; }

/* What the driver says, or else the system. */
void ha_look_link(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const struct ha_doctor_device *d = s->device;
    const struct link device = link_most(s, ""), slot = link_most(s, "/..");
    const struct link most = { slot.gen > 0 ? fmin(device.gen, slot.gen) : device.gen,
                               slot.width > 0 ? fmin(device.width, slot.width) : device.width };
    const double gen = either(d->condition.link_gen, generation(d->link_speed)),
                 width = either(d->condition.link_width, d->link_width),
                 gen_most = either(d->meters.link_gen_max, most.gen),
                 width_most = either(d->meters.link_width_max, most.width);
    const double absurd = 64; /* lanes; there are no more */
    if (!(gen > 0 && width > 0 && gen_most > 0 && width_most > 0) || width > absurd || width_most > absurd
        || gen > absurd || gen_most > absurd)
        ha_found(f, HA_UNKNOWN, "neither driver nor system says");
    else
        ha_found(f, gen < gen_most || width < width_most ? HA_UNFIT : HA_FIT,
                 "generation %.0f, %.0f lanes%s; device and slot can do %.0f, %.0f", gen, width,
                 d->copied > 0 ? " while copies ran" : ", without load", gen_most, width_most);
}

void ha_look_slot(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    if (!has_place(s, f)) return;
    const struct link device = link_most(s, ""), slot = link_most(s, "/..");
    if (!(device.gen > 0 && device.width > 0 && slot.gen > 0 && slot.width > 0))
        ha_found(f, HA_UNKNOWN, "the system does not say what device and slot can do");
    else
        ha_found(f, slot.gen < device.gen || slot.width < device.width ? HA_WARNING : HA_FIT,
                 "the device can do generation %.0f, %.0f lanes, its slot %.0f, %.0f", device.gen, device.width,
                 slot.gen, slot.width);
}

void ha_look_iommu(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    char type[32];
    if (!has_place(s, f)) return;
    if (!ha_file_there(s->root, DEVICES "/%s", s->device->bus_id))
        ha_found(f, HA_UNKNOWN, "the system does not show the device");
    else if (!ha_file_there(s->root, DEVICES "/%s/iommu_group", s->device->bus_id))
        ha_found(f, HA_FIT, "none before this device");
    else if (!ha_file_word(type, sizeof type, s->root, DEVICES "/%s/iommu_group/type", s->device->bus_id))
        ha_found(f, HA_UNKNOWN, "there is one, and the system does not say what it does");
    else if (!strcmp(type, "identity")) ha_found(f, HA_FIT, "it passes addresses through");
    else if (!strncmp(type, "DMA", 3)) ha_found(f, HA_WARNING, "it translates addresses (%s)", type);
    else ha_found(f, HA_UNKNOWN, "'%s' is nothing that is known here", type);
}

/* ---- access control services: a capability in the extended configuration of a port ------------------------------- */

enum { FOR_ALL = 64, EXTENDED = 256, CONFIG = 4096, ACS_ID = 0x000d, ACS_CONTROL = 6 };
enum { REQUEST_REDIRECT = 1 << 2, COMPLETION_REDIRECT = 1 << 3 };

static unsigned word_at(const unsigned char *config, size_t at) { return config[at] | (unsigned)config[at + 1] << 8; }

/* -1: no such capability */
static int acs_control(const unsigned char config[CONFIG])
{
    size_t at = EXTENDED;
    for (int i = 0; i < CONFIG / 8 && at >= EXTENDED && at + 8 <= CONFIG; i++) {
        if (word_at(config, at) == ACS_ID) return (int)word_at(config, at + ACS_CONTROL);
        at = word_at(config, at + 2) >> 4 & ~3u; /* 0 behind the last */
    }
    return -1;
}

void ha_look_acs(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    enum { PORTS_MOST = 16 };
    char up[3 * PORTS_MOST + 1] = "", path[HA_FILES_PATH];
    size_t ports = 0, redirects = 0;
    if (!has_place(s, f)) return;
    for (int i = 0; i < PORTS_MOST; i++) {
        unsigned char config[CONFIG];
        strcat(up, "/..");
        snprintf(path, sizeof path, "%s" DEVICES "/%s%s/config", s->root, s->device->bus_id, up);
        FILE *file = fopen(path, "re");
        if (!file) break;
        const size_t got = fread(config, 1, sizeof config, file);
        fclose(file);
        if (got < EXTENDED) {
            ha_found(f, HA_UNKNOWN,
                     got == FOR_ALL ? "root alone may read it of the ports above the device"
                                    : "the configuration of a port above the device is cut short");
            return;
        }
        memset(config + got, 0, sizeof config - got);
        const int control = acs_control(config);
        ports++;
        redirects += control >= 0 && (control & (REQUEST_REDIRECT | COMPLETION_REDIRECT));
    }
    if (!ports) ha_found(f, HA_UNKNOWN, "the system does not show the ports above the device");
    else
        ha_found(f, redirects ? HA_WARNING : HA_FIT,
                 "%zu of %zu ports above the device send all peers' traffic upwards", redirects, ports);
}

void ha_look_device_node(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    bool ours[HA_CORES_MOST];
    char list[64];
    size_t nodes;
    double node;
    if (!has_place(s, f)) return;
    if (!ha_nodes_of(s->root, s->mine, ours, &nodes)
        || !ha_file_number(&node, s->root, DEVICES "/%s/numa_node", s->device->bus_id) || node < -1
        || node >= HA_CORES_MOST) {
        ha_found(f, HA_UNKNOWN, "the system does not say of which node the device or our cores are");
        return;
    }
    ha_list_text(list, sizeof list, ours);
    ha_mend(f, "numactl --cpunodebind=%.0f --membind=%.0f habench ...", node, node);
    if (nodes == 1) ha_found(f, HA_FIT, "there is one node");
    else if (node < 0) ha_found(f, HA_UNKNOWN, "the firmware does not say of which of %zu nodes the device is", nodes);
    else
        ha_found(f,
                 !ours[(size_t)node]       ? HA_UNFIT
                 : ha_list_count(ours) > 1 ? HA_WARNING
                                           : HA_FIT,
                 "the device is at node %.0f, our cores are of %s", node, list);
}
