#include "harness/engine/machine.h"

#include "harness/base/claims.h"
#include "harness/base/registry.h"
#include "harness/base/surroundings.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 4096, ISA_BYTES = 32 };

struct ha_machine {
    ha_machine_seen *seen;                 /* or NULL */
    char name[NAME_BYTES], isa[ISA_BYTES]; /* of the device that is open */
    const struct ha_device_api *api;
    struct ha_device *device;  /* NULL: none is open */
    struct ha_kernels kernels; /* an open device points here */
    struct ha_eps eps;         /* of the device that is open */
    struct ha_ceilings ceilings;
    struct ha_why failure; /* the first one of a device, which may outlive it; or "" */
    bool measured;         /* the ceilings are those of the device called `name` */
    char given_name[NAME_BYTES];
    const struct ha_device_api *given;
    struct ha_ceilings given_ceilings;
    bool has_given_ceilings;
    struct ha_paired_memory *memory; /* not the machine's; or NULL */
    struct ha_beside *beside;        /* NULL before the first reading */
    struct ha_kernels best;          /* beside points here */
    bool beside_device;              /* it has buffers on the device that is open */
};

enum ha_status ha_machine_create(struct ha_machine **machine, ha_machine_seen *seen, struct ha_why *why)
{
    struct ha_machine *m = *machine = calloc(1, sizeof *m);
    if (!m) return ha_why(why, HA_ERROR, "out of memory");
    m->seen = seen;
    return HA_OK;
}

static void note_failure(struct ha_machine *m)
{
    const char *failure = m->device ? m->api->failure(m->device) : NULL;
    if (failure && !*m->failure.text) ha_why(&m->failure, HA_ERROR, "device %.80s: %s", m->name, failure);
}

void ha_machine_restore(const struct ha_machine *m)
{
    char who[NAME_BYTES + 8];
    snprintf(who, sizeof who, "device %s", m->name);
    ha_surroundings_restore(who);
}

static void close_device(struct ha_machine *m)
{
    ha_machine_beside_end(m);
    note_failure(m);
    if (m->device) m->api->close(m->device);
    if (m->device) ha_machine_restore(m);
    m->device = NULL;
}

void ha_machine_destroy(struct ha_machine *m)
{
    if (!m) return;
    close_device(m);
    ha_beside_destroy(m->beside);
    free(m);
}

void ha_machine_give(struct ha_machine *m, const char *name, const struct ha_device_api *api,
                     const struct ha_ceilings *ceilings)
{
    snprintf(m->given_name, sizeof m->given_name, "%s", name);
    m->given = api;
    m->has_given_ceilings = ceilings != NULL;
    if (ceilings) m->given_ceilings = *ceilings;
}

/* Passes on what the device says of itself, if that can be. */
static enum ha_status tell(const struct ha_machine *m, const struct ha_ceilings *ceilings, struct ha_why *why)
{
    struct ha_device_info info;
    HA_TRY(ha_device_claims(m->api, m->device, &info, why));
    if (m->seen) m->seen(m->name, m->api, &info, &m->eps, ceilings);
    return HA_OK;
}

static enum ha_status know(struct ha_machine *m, struct ha_why *why)
{
    struct ha_device_info info;
    HA_TRY(ha_device_claims(m->api, m->device, &info, why));
    HA_TRY(ha_eps_measure(&m->eps, m->api, m->device, why));
    return tell(m, m->measured ? &m->ceilings : NULL, why);
}

static enum ha_status open_device(struct ha_machine *m, const char *name, const char *isa, struct ha_why *why)
{
    if (m->device && !strcmp(m->name, name) && !strcmp(m->isa, isa) && !m->api->failure(m->device)) return HA_OK;
    close_device(m);
    HA_TRY(ha_kernels_resolve(*isa ? isa : NULL, &m->kernels, why));
    if (m->given && !strcmp(m->given_name, name)) m->api = m->given;
    else HA_TRY(ha_device_find(name, &m->api, why));
    if (ha_plugin_merges_only(m->api))
        return ha_why(why, HA_WAIVED,
                      "device %s is a library of kernels, without memory and streams; `habench check lse_merge "
                      "--device %s` judges its merge",
                      name, name);
    if (strcmp(m->name, name) != 0) m->measured = false;
    snprintf(m->name, sizeof m->name, "%s", name);
    snprintf(m->isa, sizeof m->isa, "%s", isa);
    struct ha_why said = { "" };
    const enum ha_status opened = m->api->open(&m->device, &(struct ha_device_config){ .kernels = &m->kernels }, &said);
    if (opened != HA_OK) {
        m->device = NULL; /* whatever it left there */
        if (!*said.text) ha_why(&said, opened, "device %.80s cannot be opened, and says no more", name);
        if (opened == HA_ERROR && !*m->failure.text) m->failure = said;
        *why = said;
        return opened;
    }
    const enum ha_status known = know(m, why);
    if (known != HA_OK) {
        ha_why_prefix(why, known, "device %.80s", name);
        close_device(m);
    }
    return known;
}

enum ha_status ha_machine_device(struct ha_machine *m, const char *name, const char *isa,
                                 const struct ha_device_api **api, struct ha_device **device, struct ha_why *why)
{
    HA_TRY(open_device(m, name, isa ? isa : "", why));
    *api = m->api;
    *device = m->device;
    return HA_OK;
}

const struct ha_eps *ha_machine_eps(const struct ha_machine *m) { return &m->eps; }

bool ha_machine_failed(struct ha_machine *m, struct ha_why *why)
{
    note_failure(m);
    if (*m->failure.text) *why = m->failure;
    return *m->failure.text;
}

enum ha_status ha_machine_ceilings(struct ha_machine *m, const struct ha_ceilings **ceilings, struct ha_why *why)
{
    struct ha_kernels best; /* whatever a case is held to */
    const char *doubt = ha_beside_doubt(m->beside);
    *ceilings = &m->ceilings;
    if (doubt) return ha_why(why, HA_FAIL, "%s", doubt);
    if (m->measured) return HA_OK;
    if (!m->device) return ha_why(why, HA_ERROR, "no device is open");
    if (m->has_given_ceilings && !strcmp(m->given_name, m->name)) m->ceilings = m->given_ceilings;
    else {
        HA_TRY(ha_kernels_resolve(NULL, &best, why));
        HA_TRY(ha_ceilings_measure(&m->ceilings, m->api, m->device, &best, m->memory, true, why));
    }
    m->measured = true;
    return tell(m, &m->ceilings, why);
}

void ha_machine_memory(struct ha_machine *m, struct ha_paired_memory *memory) { m->memory = memory; }

static bool open_beside(struct ha_machine *m)
{
    struct ha_why why;
    if (!m->beside
        && (ha_kernels_resolve(NULL, &m->best, &why) != HA_OK
            || ha_beside_create(&m->beside, m->memory, &m->best, &why) != HA_OK))
        return false;
    if (!m->beside_device && m->device && !m->api->failure(m->device)) {
        ha_beside_device(m->beside, m->api, m->device);
        m->beside_device = true;
    }
    return true;
}

void ha_machine_beside(struct ha_machine *m, uint64_t deadline_ns, double reading[HA_BESIDE_READINGS])
{
    const bool given = m->device && m->has_given_ceilings && !strcmp(m->given_name, m->name);
    if (given) ha_beside_of(&m->given_ceilings, reading);
    else if (open_beside(m)) ha_beside_read(m->beside, deadline_ns, reading);
    else
        for (size_t i = 0; i < HA_BESIDE_READINGS; i++) reading[i] = (double)NAN;
}

void ha_machine_beside_end(struct ha_machine *m)
{
    if (m->beside_device) ha_beside_device(m->beside, NULL, NULL);
    m->beside_device = false;
}
