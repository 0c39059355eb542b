#include "suites/merge/by.h"

#include "harness/base/registry.h"
#include "harness/base/try.h"
#include "harness/base/why.h"
#include "harness/engine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t STRANGER_LIMIT_NS = 20000000000u;

bool ha_merge_source_is_strange(const struct ha_merge_source *s)
{
    return s->kind == HA_FROM_PLUGIN || s->kind == HA_FROM_EXEC;
}

static void name_it(struct ha_merge_source *s, const char *name) { snprintf(s->name, sizeof s->name, "%s", name); }

struct ha_merge_source ha_merge_source_defect(const struct ha_merge_defect *d)
{
    struct ha_merge_source s = { .kind = HA_FROM_FUNCTION, .merge = d->merge };
    name_it(&s, d->name);
    s.traits = ha_kernels_all[0]->traits; /* what a right merge of this kind would have */
    if (d->forms) s.traits.forms = d->forms;
    if (d->dtypes) s.traits.dtypes = d->dtypes;
    return s;
}

static enum ha_status take_kernels(struct ha_merge_member *m, struct ha_why *why)
{
    m->kernels = malloc(sizeof *m->kernels);
    if (!m->kernels) return ha_why(why, HA_ERROR, "out of memory");
    HA_TRY(ha_kernels_resolve(m->by, m->kernels, why));
    m->source = (struct ha_merge_source){
        .kind = HA_FROM_FUNCTION, .merge = m->kernels->merge, .traits = m->kernels->traits, .kernels = m->kernels
    };
    name_it(&m->source, m->by);
    return HA_OK;
}

static enum ha_status take_device(struct ha_merge_member *m, struct ha_machine *machine, struct ha_why *why)
{
    struct ha_merge_source *s = &m->source;
    HA_TRY(ha_machine_device(machine, m->by, NULL, &s->api, &s->device, why));
    s->kind = HA_FROM_DEVICE;
    name_it(s, m->by);
    return HA_OK;
}

/* Opened once, which says at once what is wrong with it. */
static enum ha_status take_stranger(struct ha_merge_member *m, const char *exec, struct ha_why *why)
{
    struct ha_merge_source *s = &m->source;
    struct ha_subject probe;
    const bool command = !strcmp(m->by, "exec");
    if (!command && ha_device_look(m->by, why) != HA_OK) return HA_ERROR;
    if (command && !exec) return ha_why(why, HA_ERROR, "by=exec: is the command of --exec, which was not given");
    s->kind = command ? HA_FROM_EXEC : HA_FROM_PLUGIN;
    s->text = command ? exec : m->by;
    s->limit_ns = STRANGER_LIMIT_NS;
    HA_TRY(ha_merge_source_open(s, &probe, why));
    name_it(s, probe.name);
    s->traits = probe.traits;
    ha_subject_close(&probe);
    return HA_OK;
}

static enum ha_status take(struct ha_merge_party *party, struct ha_merge_member *m, struct ha_why *why)
{
    const size_t defect = ha_merge_defect_index(m->by);
    for (size_t i = 0; i < ha_kernels_count; i++)
        if (!strcmp(ha_kernels_all[i]->name, m->by)) return take_kernels(m, why);
    for (size_t i = 0; i < ha_devices_count; i++)
        if (!strcmp(ha_devices_all[i]->name, m->by)) return take_device(m, party->config->machine, why);
    if (defect == SIZE_MAX) return take_stranger(m, party->config->exec, why);
    m->source = ha_merge_source_defect(&ha_merge_suite.defects[defect]);
    return HA_OK;
}

enum ha_status ha_merge_party_find(struct ha_merge_party *party, const char *by, size_t *i, struct ha_why *why)
{
    for (*i = 0; *i < party->count; ++*i) {
        struct ha_merge_member *m = &party->member[*i];
        if (strcmp(m->by, by) != 0) continue;
        if (m->status == HA_OK && m->source.kind == HA_FROM_DEVICE)
            return take_device(m, party->config->machine, why); /* another may have been open since */
        *why = m->why;
        return m->status;
    }
    struct ha_merge_member *grown = realloc(party->member, (party->count + 1) * sizeof *grown);
    char *copy = strdup(by);
    if (grown) party->member = grown;
    if (!grown || !copy) {
        free(copy);
        return ha_why(why, HA_ERROR, "out of memory");
    }
    struct ha_merge_member *m = &grown[party->count++];
    *m = (struct ha_merge_member){ .by = copy };
    m->status = take(party, m, &m->why);
    *why = m->why;
    return m->status;
}

void ha_merge_party_free(struct ha_merge_party *party)
{
    for (size_t i = 0; i < party->count; i++) {
        free(party->member[i].by);
        free(party->member[i].kernels);
    }
    free(party->member);
    *party = (struct ha_merge_party){ 0 };
}
