#include "harness/registry.h"

#include "harness/base/why.h"
#include "harness/cpu.h"
#include "harness/case/words.h"

#include <string.h>

const struct ha_variant *ha_variant_find(const char *name)
{
    for (size_t i = 0; i < ha_variants_count; i++)
        if (!strcmp(ha_variants_all[i]->name, name)) return ha_variants_all[i];
    return NULL;
}

const struct ha_definition *ha_definition_find(const char *variant)
{
    for (size_t i = 0; i < ha_definitions_count; i++)
        if (!strcmp(ha_definitions_all[i]->variant, variant)) return ha_definitions_all[i];
    return NULL;
}

const struct ha_dataset *ha_dataset_find(const char *name, size_t name_length)
{
    for (size_t i = 0; i < ha_datasets_count; i++) {
        const char *known = ha_datasets_all[i]->name;
        if (strlen(known) == name_length && !memcmp(known, name, name_length)) return ha_datasets_all[i];
    }
    return NULL;
}

static bool usable(const struct ha_kernels *k) { return !k->absent && (k->cpu_bit & ha_cpu_bits()); }

/* gaps of *out are filled from `below` */
static void fill(struct ha_kernels *out, const struct ha_kernels *below)
{
    if (!out->attend_chunk) {
        out->attend_chunk = below->attend_chunk;
        out->profile = below->profile;
    }
    if (!out->merge) {
        out->merge = below->merge;
        out->traits = below->traits;
    }
    if (!out->score) out->score = below->score;
    if (!out->attend) out->attend = below->attend;
    if (!out->attend_scratch_bytes) out->attend_scratch_bytes = below->attend_scratch_bytes;
}

static enum ha_status unknown_isa(const char *isa, struct ha_why *why)
{
    const char *names[16] = { NULL };
    for (size_t i = 0; i < ha_kernels_count && i + 1 < sizeof names / sizeof *names; i++) names[i] = ha_kernels_all[i]->name;
    return ha_unknown(why, "instruction set", isa, names);
}

enum ha_status ha_kernels_resolve(const char *isa, struct ha_kernels *out, struct ha_why *why)
{
    size_t top = ha_kernels_count;
    if (isa) {
        for (size_t i = 0; i < ha_kernels_count; i++)
            if (!strcmp(ha_kernels_all[i]->name, isa)) top = i;
        if (top == ha_kernels_count) return unknown_isa(isa, why);
        const struct ha_kernels *k = ha_kernels_all[top];
        if (k->absent) return ha_why(why, HA_WAIVED, "instruction set %s: %s", isa, k->absent);
        if (!usable(k)) return ha_why(why, HA_WAIVED, "instruction set %s: this CPU lacks it", isa);
    } else {
        for (size_t i = 0; i < ha_kernels_count; i++)
            if (usable(ha_kernels_all[i])) top = i;
        if (top == ha_kernels_count) return ha_why(why, HA_ERROR, "no kernels for this CPU");
    }

    *out = *ha_kernels_all[top];
    for (size_t i = top; i-- > 0;)
        if (usable(ha_kernels_all[i])) fill(out, ha_kernels_all[i]);
    return HA_OK;
}
