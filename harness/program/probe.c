#include "harness/program/commands.h"

#include "harness/base/csv.h"
#include "harness/base/file.h"
#include "harness/base/own_files.h"
#include "harness/base/span_source.h"
#include "harness/base/surroundings.h"
#include "harness/base/why.h"
#include "harness/measure/ceilings.h"
#include "harness/base/registry.h"
#include "harness/report/env.h"
#include "harness/report/folder_take.h"
#include "harness/measure/calibrate.h"
#include "harness/engine/machine.h"
#include "harness/program/apart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LIMIT_S = 900 };

/* ---- what is written ----------------------------------------------------------------------- */

static void print(FILE *out, const struct ha_ceilings *c)
{
    fprintf(out, "%-36s %12s %12s %12s  %s\n", "ceiling", "median", "least", "most", "unit");
    for (int i = 0; i < HA_CEILINGS; i++) {
        const struct ha_reading *r = &c->of[i];
        const char *name = ha_ceiling_name((enum ha_ceiling)i), *unit = ha_ceiling_unit((enum ha_ceiling)i);
        if (isnan(r->median)) fprintf(out, "%-36s %12s\n", name, "-");
        else fprintf(out, "%-36s %12.1f %12.1f %12.1f  %s\n", name, r->median, r->lo, r->hi, unit);
    }
}

static enum ha_status write_rows(struct ha_csv *csv, const struct ha_ceilings *c, struct ha_why *why)
{
    static const char *const header[] = { "schema_version", "ceiling", "unit", "median", "lo", "hi", "samples" };
    enum { FIELDS = sizeof header / sizeof *header };
    HA_TRY(ha_csv_row(csv, header, FIELDS, why));
    for (int i = 0; i < HA_CEILINGS; i++) {
        char number[4][32];
        const double x[4] = { c->of[i].median, c->of[i].lo, c->of[i].hi, (double)c->of[i].samples };
        for (int j = 0; j < 4; j++) ha_csv_number(number[j], x[j]);
        const char *const row[FIELDS] = { "1",
                                          ha_ceiling_name((enum ha_ceiling)i),
                                          ha_ceiling_unit((enum ha_ceiling)i),
                                          number[0],
                                          number[1],
                                          number[2],
                                          number[3] };
        HA_TRY(ha_csv_row(csv, row, FIELDS, why));
    }
    return HA_OK;
}

static enum ha_status write_csv(const char *folder, const struct ha_ceilings *c, struct ha_why *why)
{
    char path[4096];
    struct ha_csv *csv;
    HA_TRY(ha_file_path(path, folder, "probe", ".csv", why));
    /* a probe says how the machine is now */
    remove(path);
    HA_TRY(ha_csv_open(&csv, path, true, why));
    enum ha_status status = write_rows(csv, c, why), closed = ha_csv_close(csv, status == HA_OK ? why : NULL);
    return status == HA_OK ? closed : status;
}

static enum ha_status probe(struct ha_machine *machine, const char *device, const char *out_dir, FILE *out,
                            struct ha_why *why)
{
    struct ha_device_info info;
    struct ha_ceilings ceilings;
    struct ha_kernels kernels;
    const struct ha_device_api *api;
    struct ha_device *dev;
    struct ha_env env;
    HA_TRY(ha_machine_device(machine, device, NULL, &api, &dev, why));
    api->info(dev, &info);
    ha_env_read(&env);
    HA_TRY(ha_kernels_resolve(NULL, &kernels, why));
    HA_TRY(ha_ceilings_measure(&ceilings, api, dev, &kernels, NULL, false, why));
    struct ha_env_device seen;
    ha_env_device(&seen, device, api, &info, ha_machine_eps(machine), &ceilings);
    ha_span_source_warn(seen.asked, seen.info.spans);
    seen.probed = false;
    ha_env_print(out, &env, &seen);
    fputc('\n', out);
    print(out, &ceilings);
    enum ha_status status = ha_calibrate(out, api, dev, &ceilings, why);
    ha_machine_restore(machine);
    HA_TRY(ha_surroundings_verdict(why));
    if (!out_dir) return status;
    HA_TRY(ha_env_write(out_dir, &env, device, api, &info, &ceilings, why));
    HA_TRY(write_csv(out_dir, &ceilings, why));
    return status;
}

struct asked {
    const char *device, *out_dir;
};

static enum ha_status probe_apart(void *arg, FILE *out, struct ha_why *why)
{
    const struct asked *a = arg;
    struct ha_machine *machine;
    ha_surroundings_keep();
    HA_TRY(ha_machine_create(&machine, NULL, why));
    const enum ha_status status = probe(machine, a->device, a->out_dir, out, why);
    ha_machine_destroy(machine);
    return status;
}

enum ha_exit ha_command_probe(const struct ha_options *o, struct ha_why *why)
{
    static const enum ha_exit code[] = { [HA_OK] = HA_EXIT_OK,
                                         [HA_FAIL] = HA_EXIT_ENVIRONMENT,
                                         [HA_WAIVED] = HA_EXIT_WAIVED,
                                         [HA_ERROR] = HA_EXIT_ENVIRONMENT };
    const char *device = o->device ? o->device : ha_devices_all[0]->name;
    struct asked asked = { device, o->out_dir };
    struct ha_taken taken = { .fd = -1 };
    enum ha_exit found = ha_look_for_device(device, why);
    if (found == HA_EXIT_OK && o->out_dir) found = ha_folder_take(&taken, o->out_dir, HA_TAKE_PROBE, why);
    if (found != HA_EXIT_OK) return found;
    const enum ha_status status = ha_apart(probe_apart, &asked, LIMIT_S * UINT64_C(1000000000), why);
    if (taken.fd >= 0) ha_own_file_close(taken.fd);
    if (strncmp(why->text, "device ", 7) && !strstr(why->text, device))
        ha_why_prefix(why, status, "device %.200s", device);
    return code[status];
}
