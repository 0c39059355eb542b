#include "suites/variants/list.h"

#include "harness/base/registry.h"
#include "harness/engine/point.h"
#include "suites/variants/keys.h"

static void print_param(FILE *out, const struct ha_param *p)
{
    char value[HA_VALUE_MAX], min[HA_VALUE_MAX], max[HA_VALUE_MAX];
    ha_number_print(p->value, value);
    ha_number_print(p->min, min);
    ha_number_print(p->max, max);
    fprintf(out, "    %-14s %-6s %s (%s to %s)\n", p->name, value, p->doc, min, max);
}

static void print_variants(FILE *out)
{
    static const char *const contracts[] = {
        [HA_EXACT] = "exact", [HA_BOUNDED] = "bounded", [HA_STATISTICAL] = "statistical"
    };
    for (size_t i = 0; i < ha_variants_count; i++) {
        const struct ha_variant *v = ha_variants_all[i];
        fprintf(out, "%-12s %-14s %-11s %s (%s)\n", v->name, v->family,
                v->checked ? contracts[v->contract] : "unchecked", v->doc, v->source);
        for (size_t p = 0; p < v->params_count; p++) print_param(out, &v->params[p]);
    }
}

static void print_models(FILE *out)
{
    for (size_t i = 0; i < HA_MODELS_COUNT; i++) {
        const struct ha_model *m = &ha_models[i];
        fprintf(out, "%-13s %2zu layers, heads %zu/%zu x %zu, hidden %zu, feed-forward %zu%s (%s)\n", m->name,
                m->layers, m->q_heads, m->kv_heads, m->head_dim, m->hidden, m->feed_forward, m->gated ? " gated" : "",
                m->source);
    }
}

const struct ha_list ha_case_list[HA_CASE_LISTS] = { { "variants", print_variants }, { "models", print_models } };
