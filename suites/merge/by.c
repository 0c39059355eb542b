#include "suites/merge/point.h"

#include "harness/base/registry.h"
#include "harness/base/why.h"
#include "harness/engine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t STRANGER_LIMIT_NS = 20000000000u;

/* Opened once, which says at once what is wrong with it. */
static enum ha_status take_stranger(struct ha_merge_member *m, const char *exec)
{
    struct ha_merge_source *s = &m->source;
    struct ha_subject probe;
    const bool command = !strcmp(m->by, "exec");
    if (!command && ha_device_look(m->by, &m->why) != HA_OK) return HA_ERROR;
    if (command && !exec) return ha_why(&m->why, HA_ERROR, "by=exec: is the command of --exec, which was not given");
    s->kind = command ? HA_FROM_EXEC : HA_FROM_PLUGIN;
    s->text = command ? exec : m->by;
    s->limit_ns = STRANGER_LIMIT_NS;
    HA_TRY(ha_merge_source_open(s, &probe, &m->why));
    snprintf(s->name, sizeof s->name, "%s", probe.name);
    s->traits = probe.traits;
    m->null = probe.null;
    ha_subject_close(&probe);
    return HA_OK;
}

static enum ha_status take(struct ha_merge_member *m, const struct ha_suite_config *config)
{
    struct ha_merge_source *s = &m->source;
    const size_t defect = ha_merge_defect_index(m->by);
    for (size_t i = 0; i < ha_kernels_count; i++) {
        if (strcmp(ha_kernels_all[i]->name, m->by) != 0) continue;
        HA_TRY(ha_kernels_resolve(m->by, &m->kernels, &m->why));
        s->merge = m->kernels.merge;
        s->traits = m->kernels.traits;
        s->kernels = &m->kernels;
        return HA_OK;
    }
    for (size_t i = 0; i < ha_devices_count; i++) {
        if (strcmp(ha_devices_all[i]->name, m->by) != 0) continue;
        s->kind = HA_FROM_DEVICE;
        HA_TRY(ha_machine_device(config->machine, m->by, NULL, &s->api, &s->device, &m->why));
        m->null = !strcmp(s->api->kind, "null");
        return HA_OK;
    }
    if (defect == SIZE_MAX) return take_stranger(m, config->exec);
    const struct ha_merge_defect *d = &ha_merge_defects[defect];
    s->merge = d->merge;
    s->traits = ha_kernels_all[0]->traits; /* what a right merge of this kind would have */
    if (d->forms) s->traits.forms = d->forms;
    if (d->dtypes) s->traits.dtypes = d->dtypes;
    return HA_OK;
}

struct ha_merge_member *ha_merge_party_find(struct ha_merge_party *party, const char *by)
{
    struct ha_merge_member **end = &party->first;
    for (; *end; end = &(*end)->next)
        if (!strcmp((*end)->by, by)) break;
    struct ha_merge_member *m = *end;
    /* of a device another may have been open since */
    if (m && (m->status != HA_OK || m->source.kind != HA_FROM_DEVICE)) return m;
    if (!m) m = *end = calloc(1, sizeof *m);
    if (!m) return NULL;
    snprintf(m->by, sizeof m->by, "%s", by);
    snprintf(m->source.name, sizeof m->source.name, "%s", by);
    m->status = take(m, party->config);
    return m;
}

void ha_merge_party_free(struct ha_merge_party *party)
{
    for (struct ha_merge_member *m = party->first, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    party->first = NULL;
}
