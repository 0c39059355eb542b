#include "harness/program/list.h"

#include "suites/variants/keys.h"
#include "harness/program/list_devices.h"
#include "harness/program/list_kernels.h"
#include "harness/report/folder.h"
#include "harness/base/registry.h"
#include "harness/program/run.h"
#include "harness/engine/point.h"
#include "harness/engine/suite_find.h"
#include "harness/base/words.h"

#include <stdio.h>
#include <string.h>

static enum ha_exit list_cases(const struct ha_options *o, struct ha_why *why)
{
    struct ha_plan plan = { 0 };
    const enum ha_status status = ha_program_plan(&plan, o, o->words + 1, o->words_count - 1, false, why);
    for (size_t i = 0; status == HA_OK && i < plan.entries; i++) puts(plan.entry[i].id);
    ha_plan_free(&plan);
    return status == HA_OK ? HA_EXIT_OK : HA_EXIT_USAGE;
}

static enum ha_exit list_defects(const struct ha_options *o, struct ha_why *why)
{
    (void)o, (void)why;
    for (size_t i = 0; i < ha_merge_suite.defects_count; i++) {
        const struct ha_merge_defect *d = &ha_merge_suite.defects[i];
        printf("%-22s %s\n%22s found by %s%s%s\n", d->name, d->does, "", d->finder, d->seen[0] ? "; seen: " : "",
               d->seen);
    }
    return HA_EXIT_OK;
}

static enum ha_exit list_suites(const struct ha_options *o, struct ha_why *why)
{
    (void)o;
    return ha_suite_list(stdout, why) == HA_OK ? HA_EXIT_OK : HA_EXIT_MISSING;
}

static enum ha_exit list_variants(const struct ha_options *o, struct ha_why *why)
{
    static const char *const contracts[] = {
        [HA_EXACT] = "exact", [HA_BOUNDED] = "bounded", [HA_STATISTICAL] = "statistical"
    };
    (void)o, (void)why;
    for (size_t i = 0; i < ha_variants_count; i++) {
        const struct ha_variant *v = ha_variants_all[i];
        printf("%-12s %-14s %-11s %s (%s)\n", v->name, v->family, v->checked ? contracts[v->contract] : "unchecked",
               v->doc, v->source);
        for (size_t p = 0; p < v->params_count; p++) {
            char value[HA_VALUE_MAX], min[HA_VALUE_MAX], max[HA_VALUE_MAX];
            ha_number_print(v->params[p].value, value);
            ha_number_print(v->params[p].min, min);
            ha_number_print(v->params[p].max, max);
            printf("    %-14s %-6s %s (%s to %s)\n", v->params[p].name, value, v->params[p].doc, min, max);
        }
    }
    return HA_EXIT_OK;
}

static enum ha_exit list_keys(const struct ha_options *o, struct ha_why *why)
{
    (void)o, (void)why;
    for (size_t i = 0; i < ha_suites_count; i++) {
        const struct ha_suite *suite = ha_suites_all[i];
        printf("%s: %s\n", suite->name, suite->doc);
        for (size_t k = 0; k < suite->keys; k++)
            printf("    %-10s %-6s %s\n", suite->key[k].name, suite->key[k].value, suite->key[k].doc);
    }
    return HA_EXIT_OK;
}

static enum ha_exit list_models(const struct ha_options *o, struct ha_why *why)
{
    (void)o, (void)why;
    for (size_t i = 0; i < HA_MODELS_COUNT; i++) {
        const struct ha_model *m = &ha_models[i];
        printf("%-13s %2zu layers, heads %zu/%zu x %zu, hidden %zu, feed-forward %zu%s (%s)\n", m->name, m->layers,
               m->q_heads, m->kv_heads, m->head_dim, m->hidden, m->feed_forward, m->gated ? " gated" : "", m->source);
    }
    return HA_EXIT_OK;
}

static enum ha_exit list_datasets(const struct ha_options *o, struct ha_why *why)
{
    (void)o, (void)why;
    for (size_t i = 0; i < ha_datasets_count; i++) {
        const struct ha_dataset *d = ha_datasets_all[i];
        printf("%-12s %s%s%s\n", d->name, d->doc, d->needs_file ? "; needs a file: " : "",
               d->needs_file ? d->needs_file : "");
    }
    return HA_EXIT_OK;
}

static enum ha_exit list_metrics(const struct ha_options *o, struct ha_why *why)
{
    (void)o, (void)why;
    ha_folder_print_fields(stdout, ha_suites_all, ha_suites_count);
    return HA_EXIT_OK;
}

static const struct topic {
    const char *name;
    bool takes_words;
    enum ha_exit (*list)(const struct ha_options *o, struct ha_why *why);
} topics[] = {
    { "cases", true, list_cases },        { "suites", false, list_suites },      { "variants", false, list_variants },
    { "keys", false, list_keys },         { "devices", false, ha_list_devices }, { "kernels", false, ha_list_kernels },
    { "datasets", false, list_datasets }, { "metrics", false, list_metrics },    { "defects", false, list_defects },
    { "models", false, list_models },
};
enum { TOPICS_COUNT = sizeof topics / sizeof *topics };

enum ha_exit ha_list(const struct ha_options *o, struct ha_why *why)
{
    const char *names[TOPICS_COUNT + 1] = { NULL };
    for (size_t i = 0; i < TOPICS_COUNT; i++) {
        names[i] = topics[i].name;
        if (strcmp(o->words[0], names[i])) continue;
        if (topics[i].takes_words == (o->words_count > 1)) return topics[i].list(o, why);
        snprintf(why->text, sizeof why->text,
                 topics[i].takes_words ? "list %s: of which SUITE or CASE?" : "list %s takes no further word",
                 names[i]);
        return HA_EXIT_USAGE;
    }
    ha_unknown(why, "list", o->words[0], names);
    return HA_EXIT_USAGE;
}
