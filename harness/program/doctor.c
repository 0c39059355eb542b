#include "harness/program/commands.h"

#include "harness/base/clock.h"
#include "harness/base/pool.h"
#include "harness/base/stop.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/doctor/doctor.h"
#include "harness/engine/machine.h"
#include "harness/measure/speed.h"
#include "harness/program/apart.h"

#include <stdio.h>
#include <string.h>

enum { HOST_S = 60, DEVICE_S = 300 };

/* ---- in processes of their own: a file or a driver that never answers is a row ----------------------------------- */

static void run_cores(void *arg, struct ha_doctor_load *load)
{
    static double best[HA_POOL_THREADS_MAX];
    const uint64_t warm_ns = 100000000, end_ns = 1000000000;
    const double least = 0.85; /* as while a case is measured */
    const uint64_t begin = ha_now_ns();
    struct ha_pool *pool = arg;
    for (uint64_t ns = 0; ns < end_ns && !ha_stop; ns = ha_now_ns() - begin) {
        const bool slow = ha_speed_least(pool, best) < least;
        load->looks += ns > warm_ns;
        load->slow += ns > warm_ns && slow;
    }
}

struct answer {
    struct ha_finding of[HA_DOCTOR_CHECKS_MOST];
    char device[256]; /* name and driver */
};

static enum ha_status look_at_host(void *arg, void *room, struct ha_why *why)
{
    static struct ha_doctor_load load;
    struct answer *answer = room;
    struct ha_doctor_seen seen = { .root = "", .load = &load };
    struct ha_pool *pool;
    HA_TRY(ha_pool_create(&pool, HA_TEAM_OWN, 0, why));
    ha_cores_mine(seen.mine);
    ha_doctor_load(seen.root, run_cores, pool, &load);
    ha_pool_destroy(pool);
    ha_doctor_look(&seen, true, answer->of);
    return HA_OK;
}

static enum ha_status look_at_device(void *arg, void *room, struct ha_why *why)
{
    static struct ha_doctor_device seen_device;
    static const struct ha_doctor_load none;
    struct answer *answer = room;
    struct ha_doctor_seen seen = { .root = "", .load = &none, .device = &seen_device };
    const struct ha_device_api *api;
    struct ha_device *device;
    struct ha_machine *machine;
    HA_TRY(ha_machine_create(&machine, NULL, why));
    enum ha_status status = ha_machine_device(machine, arg, NULL, &api, &device, why);
    if (status == HA_OK) {
        ha_cores_mine(seen.mine);
        status = ha_doctor_device_look(seen.root, api, device, &seen_device, why);
        snprintf(answer->device, sizeof answer->device, "%.95s%s%.63s", seen_device.info.name,
                 *seen_device.info.driver ? ", " : "", seen_device.info.driver);
        ha_doctor_look(&seen, false, answer->of);
    }
    ha_machine_destroy(machine);
    return status;
}

/* ---- the rows ---------------------------------------------------------------------------------------------------- */

struct rows {
    struct ha_doctor_row row[HA_DOCTOR_CHECKS_MOST + 1];
    size_t count;
};

static void add(struct rows *rows, const char *check, const char *why, const struct ha_finding *finding)
{
    rows->row[rows->count++] = (struct ha_doctor_row){ check, why, *finding };
}

static void add_host(struct rows *rows, struct answer *answer, enum ha_status status, const struct ha_why *why)
{
    for (size_t i = 0; i < ha_doctor_checks_count; i++) {
        const struct ha_doctor_check *c = &ha_doctor_checks[i];
        struct ha_finding *f = &answer->of[i];
        if (c->of != HA_OF_HOST) continue;
        if (f->verdict == HA_NOT_LOOKED)
            snprintf(f->found, sizeof f->found, "%.200s", status == HA_OK ? "not asked" : why->text);
        add(rows, c->name, c->why, f);
    }
}

static void add_device(struct rows *rows, const char *name, struct answer *answer, enum ha_status status,
                       const struct ha_why *why)
{
    struct ha_finding device = { status == HA_OK ? HA_FIT : HA_UNFIT, "", "" };
    snprintf(device.found, sizeof device.found, "%.230s", status == HA_OK ? answer->device : why->text);
    if (status != HA_OK) snprintf(device.mend, sizeof device.mend, "habench list devices; docs/cuda.md");
    ha_text_clean(device.found);
    add(rows, "device", "nothing can be measured on a device that does not answer", &device);
    for (size_t i = 0; i < ha_doctor_checks_count; i++)
        if (ha_doctor_checks[i].of != HA_OF_HOST && answer->of[i].verdict != HA_NOT_LOOKED)
            add(rows, ha_doctor_checks[i].name, ha_doctor_checks[i].why, &answer->of[i]);
}

enum ha_exit ha_command_doctor(const struct ha_options *o, struct ha_why *why)
{
    static struct answer host, device;
    static struct rows rows;
    const uint64_t second_ns = UINT64_C(1000000000);
    char of[320] = "this host (--device NAME asks a device, too)";
    struct ha_why reason = { "" };
    if (o->device) {
        const enum ha_exit found = ha_look_for_device(o->device, why);
        if (found != HA_EXIT_OK) return found;
        snprintf(of, sizeof of, "this host and device %.256s", o->device);
    }
    /* a device computes on the host while it is looked at: the host is looked at before */
    enum ha_status status = ha_apart_fill(look_at_host, NULL, &host, sizeof host, HOST_S * second_ns, &reason);
    add_host(&rows, &host, status, &reason);
    if (o->device && !ha_stop) {
        char name[256];
        snprintf(name, sizeof name, "%s", o->device);
        status = ha_apart_fill(look_at_device, name, &device, sizeof device, DEVICE_S * second_ns, &reason);
        add_device(&rows, o->device, &device, status, &reason);
    }
    if (ha_stop) return HA_EXIT_MISSING;
    ha_doctor_sort(rows.row, rows.count);
    if (o->json) ha_doctor_print_json(stdout, rows.row, rows.count);
    else ha_doctor_print(stdout, of, rows.row, rows.count);
    return ha_doctor_verdict(rows.row, rows.count) == HA_FIT ? HA_EXIT_OK : HA_EXIT_ENVIRONMENT;
}
