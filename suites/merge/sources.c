#include "suites/merge/sources.h"

#include "harness/base/try.h"
#include "harness/base/why.h"
#include "harness/base/registry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const uint64_t STRANGER_LIMIT_NS = 20000000000u;

struct wanted {
    const struct ha_merge_id *only;
    size_t ids;
};

/* by_default: also where no id names it */
static bool wants(const struct wanted *w, const char *name, bool by_default)
{
    for (size_t i = 0; i < w->ids; i++)
        if (w->only[i].by[0] ? !strcmp(w->only[i].by, name) : by_default) return true;
    return false;
}

static struct ha_merge_source *add(struct ha_merge_sources *all, const char *name)
{
    struct ha_merge_source *s = &all->source[all->count++];
    *s = (struct ha_merge_source){ .limit_ns = STRANGER_LIMIT_NS };
    snprintf(s->name, sizeof s->name, "%s", name);
    return s;
}

static enum ha_status add_kernels(struct ha_merge_sources *all, const char *isa, const struct wanted *w,
                                  struct ha_merge_results *results, struct ha_why *why)
{
    for (size_t i = 0; i < ha_kernels_count; i++) {
        const char *name = ha_kernels_all[i]->name;
        /* a table with no merge of its own has that of another, which is judged as the other's */
        const bool own = ha_kernels_all[i]->merge || isa;
        struct ha_kernels k;
        if (!wants(w, name, own) || (isa && strcmp(isa, name))) continue;
        const enum ha_status st = ha_kernels_resolve(name, &k, why);
        if (st == HA_WAIVED)
            HA_TRY(ha_merge_results_add(results, "subject", name, name, st, (double)NAN, why->text, why));
        if (st != HA_OK) continue;
        all->kernels[all->count] = k;
        struct ha_merge_source *s = add(all, name);
        s->kind = HA_FROM_FUNCTION;
        s->merge = k.merge;
        s->traits = k.traits;
    }
    return HA_OK;
}

static enum ha_status add_device(struct ha_merge_sources *all, const struct ha_device_api *api, const char *isa,
                                 struct ha_why *why)
{
    struct ha_kernels k;
    HA_TRY(ha_kernels_resolve(isa, &k, why));
    HA_TRY(api->open(&all->device, &(struct ha_device_config){ .kernels = &k }, why));
    all->api = api;
    struct ha_merge_source *s = add(all, api->name);
    s->kind = HA_FROM_DEVICE;
    s->api = api;
    s->device = all->device;
    return HA_OK;
}

static void describe_defect(struct ha_merge_source *s, const struct ha_merge_defect *d)
{
    s->kind = HA_FROM_FUNCTION;
    s->merge = d->merge;
    s->traits = ha_kernels_all[0]->traits; /* what a right merge of this kind would have */
    if (d->forms) s->traits.forms = d->forms;
    if (d->dtypes) s->traits.dtypes = d->dtypes;
}

void ha_merge_sources_defects(const struct ha_merge_suite *suite, struct ha_merge_source *source)
{
    for (size_t i = 0; i < suite->defects_count; i++) {
        source[i] = (struct ha_merge_source){ .limit_ns = STRANGER_LIMIT_NS };
        snprintf(source[i].name, sizeof source[i].name, "%s", suite->defects[i].name);
        describe_defect(&source[i], &suite->defects[i]);
    }
}

static enum ha_status add_stranger(struct ha_merge_sources *all, const struct ha_merge_options *o, struct ha_why *why)
{
    struct ha_merge_source *s = add(all, "stranger");
    struct ha_subject probe;
    all->stranger = true;
    s->kind = o->exec ? HA_FROM_EXEC : HA_FROM_PLUGIN;
    s->text = o->exec ? o->exec : o->device;
    HA_TRY(ha_merge_source_open(s, &probe, why)); /* says at once what is wrong with it */
    snprintf(s->name, sizeof s->name, "%s", probe.name);
    s->traits = probe.traits;
    ha_subject_close(&probe);
    return HA_OK;
}

static const struct ha_device_api *built_in(const char *name)
{
    for (size_t i = 0; i < ha_devices_count; i++)
        if (!strcmp(ha_devices_all[i]->name, name)) return ha_devices_all[i];
    return NULL;
}

enum ha_status ha_merge_sources_open(struct ha_merge_sources *all, const struct ha_merge_options *o,
                                     const struct ha_merge_suite *suite, const struct ha_merge_id *only, size_t ids,
                                     struct ha_merge_results *results, struct ha_why *why)
{
    const struct ha_device_api *device = o->device ? built_in(o->device) : NULL;
    const struct wanted w = { only, ids };
    *all = (struct ha_merge_sources){ 0 };
    if (o->exec || (o->device && !device)) return add_stranger(all, o, why);
    if (device) return add_device(all, device, o->isa, why);
    HA_TRY(add_kernels(all, o->isa, &w, results, why));
    if (wants(&w, ha_devices_all[0]->name, true)) HA_TRY(add_device(all, ha_devices_all[0], o->isa, why));
    for (size_t i = 0; i < suite->defects_count && all->count < HA_SOURCES_MAX; i++)
        if (wants(&w, suite->defects[i].name, false))
            describe_defect(add(all, suite->defects[i].name), &suite->defects[i]);
    if (!all->count) return ha_why(why, HA_ERROR, "by=%s: there is no such kernel, device or defect", only[0].by);
    return HA_OK;
}

void ha_merge_sources_close(struct ha_merge_sources *all)
{
    if (all->device) all->api->close(all->device);
    *all = (struct ha_merge_sources){ 0 };
}
