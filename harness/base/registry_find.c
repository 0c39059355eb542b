#include "harness/base/registry.h"

#include "harness/base/cpu.h"
#include "harness/base/tuning.h"
#include "harness/base/why.h"

#include <stddef.h>
#include <stdio.h>
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

const char *ha_kernels_lack(const struct ha_kernels *k)
{
    if (k->absent) return k->absent;
    if (k->cpu_bit & ha_cpu_bits()) return NULL;
    return k->cpu_bit & ha_cpu_detected() ? "masked by --without" : "this CPU lacks it";
}

/* a pointer of the table, and what goes with it when tables are joined */
static const struct part {
    const char *name;
    size_t at, with_at, with_bytes;
} parts[] = {
#define COMPANION_none    0, 0
#define COMPANION_profile offsetof(struct ha_kernels, profile), sizeof(struct ha_profile)
#define COMPANION_traits  offsetof(struct ha_kernels, traits), sizeof(struct ha_merge_traits)
#define PART(isa, result, name, arguments, companion) \
    { #name, offsetof(struct ha_kernels, name), COMPANION_##companion },
#define PART_OF(name, type, t, companion)                                                              \
    { #name " " type, offsetof(struct ha_kernels, name[t]), offsetof(struct ha_kernels, companion[t]), \
      sizeof((struct ha_kernels *)0)->companion[t] },
#define PARTS_OF(isa, result, name, arguments, companion) \
    PART_OF(name, "f32", HA_F32, companion)               \
    PART_OF(name, "f16", HA_F16, companion) PART_OF(name, "bf16", HA_BF16, companion)
    HA_KERNELS_OF_ALL(PART, PARTS_OF, )
};
enum { PARTS = sizeof parts / sizeof *parts };

/* pointers to functions have one size here, and NULL is zeros */
typedef void (*function)(void);
_Static_assert(sizeof(function) == sizeof((struct ha_kernels *)0)->attend && HA_DTYPE_COUNT == 3,
               "the list of parts is about another table");

static function pointer(const struct ha_kernels *k, size_t part)
{
    function f;
    memcpy(&f, (const char *)k + parts[part].at, sizeof f);
    return f;
}

static bool has(const struct ha_kernels *k, size_t part) { return pointer(k, part) != NULL; }

/* gaps of *out are filled from `below` */
static void fill(struct ha_kernels *out, const struct ha_kernels *below)
{
    for (size_t i = 0; i < PARTS; i++) {
        if (has(out, i)) continue;
        memcpy((char *)out + parts[i].at, (const char *)below + parts[i].at, sizeof(function));
        memcpy((char *)out + parts[i].with_at, (const char *)below + parts[i].with_at, parts[i].with_bytes);
    }
}

const struct ha_kernels *ha_kernels_origin_of(const struct ha_kernels *k, const char *kernel, enum ha_dtype t)
{
    char typed[40];
    size_t part = 0;
    snprintf(typed, sizeof typed, "%s %s", kernel, ha_dtype_name(t));
    while (part < PARTS && strcmp(parts[part].name, kernel) != 0 && strcmp(parts[part].name, typed) != 0) part++;
    for (size_t i = 0; i < ha_kernels_count && part < PARTS; i++)
        if (pointer(ha_kernels_all[i], part) == pointer(k, part)) return ha_kernels_all[i];
    return NULL;
}

const char *ha_kernels_part(size_t part) { return part < PARTS ? parts[part].name : NULL; }

const char *ha_isa_word(size_t isa)
{
    return isa == 0 ? "best" : isa <= ha_kernels_count ? ha_kernels_all[isa - 1]->name : NULL;
}

static size_t index_of(const char *isa)
{
    size_t i = 0;
    while (i < ha_kernels_count && strcmp(ha_kernels_all[i]->name, isa) != 0) i++;
    return i;
}

const struct ha_kernels *ha_kernels_origin(const char *isa, size_t part)
{
    const size_t top = index_of(isa);
    for (size_t i = top < ha_kernels_count ? top + 1 : 0; i-- > 0;)
        if (!ha_kernels_lack(ha_kernels_all[i]) && has(ha_kernels_all[i], part)) return ha_kernels_all[i];
    return NULL;
}

static enum ha_status unknown_isa(const char *isa, struct ha_why *why)
{
    const char *names[16] = { NULL };
    for (size_t i = 0; i < ha_kernels_count && i + 1 < sizeof names / sizeof *names; i++)
        names[i] = ha_kernels_all[i]->name;
    return ha_unknown(why, "instruction set", isa, names);
}

enum ha_status ha_kernels_mask(const char *list, struct ha_why *why)
{
    unsigned bits = 0;
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, ","), p);
        const size_t i = index_of(name);
        if (i == ha_kernels_count) return unknown_isa(name, why);
        if (ha_kernels_all[i]->cpu_bit == HA_CPU_C)
            return ha_why(why, HA_ERROR, "%s needs no extension and cannot be masked", name);
        bits |= ha_kernels_all[i]->cpu_bit;
    }
    ha_cpu_mask(bits);
    return HA_OK;
}

/* what the plan takes, where it may be used; and what it asks ahead, else what its own table says */
static void plan_packed(struct ha_kernels *out, const struct ha_tuning *plan, enum ha_dtype t, bool any, size_t threads)
{
    const struct ha_choice *taken = any && plan ? ha_tuning_taken(plan, threads, t, HA_PATTERN_LINEAR) : NULL;
    const size_t i = taken ? index_of(taken->isa) : ha_kernels_count;
    if (i < ha_kernels_count && !ha_kernels_lack(ha_kernels_all[i]) && ha_kernels_all[i]->attend_packed[t]) {
        out->attend_packed[t] = ha_kernels_all[i]->attend_packed[t];
        out->packed_profile[t] = ha_kernels_all[i]->packed_profile[t];
    }
    const struct ha_kernels *origin = ha_kernels_origin_of(out, "attend_packed", t);
    for (unsigned p = 0; origin && p < HA_PATTERNS; p++) {
        const struct ha_choice *c = plan ? ha_tuning_find(plan, threads, t, p, origin->name) : NULL;
        out->reach[t][p] = c ? c->reach : origin->reach[t][p];
    }
    out->rows_faster[t] = plan && ha_tuning_taken(plan, threads, t, HA_CHOICE_ROWS);
}

enum ha_status ha_kernels_resolve(const char *isa, struct ha_kernels *out, struct ha_why *why)
{
    return ha_kernels_resolve_for(isa, 0, out, why);
}

enum ha_status ha_kernels_resolve_for(const char *isa, size_t threads, struct ha_kernels *out, struct ha_why *why)
{
    return ha_kernels_resolve_by(ha_tuning(), isa, threads, out, why);
}

enum ha_status ha_kernels_resolve_by(const struct ha_tuning *plan, const char *isa, size_t threads,
                                     struct ha_kernels *out, struct ha_why *why)
{
    size_t top = ha_kernels_count;
    if (isa) {
        top = index_of(isa);
        if (top == ha_kernels_count) return unknown_isa(isa, why);
        const char *lack = ha_kernels_lack(ha_kernels_all[top]);
        if (lack) return ha_why(why, HA_WAIVED, "instruction set %s: %s", isa, lack);
    } else {
        for (size_t i = 0; i < ha_kernels_count; i++)
            if (!ha_kernels_lack(ha_kernels_all[i])) top = i;
        if (top == ha_kernels_count) return ha_why(why, HA_ERROR, "no kernels for this CPU");
    }

    *out = *ha_kernels_all[top];
    for (size_t i = top; i-- > 0;)
        if (!ha_kernels_lack(ha_kernels_all[i])) fill(out, ha_kernels_all[i]);
    for (int t = 0; t < HA_DTYPE_COUNT; t++) plan_packed(out, plan, (enum ha_dtype)t, !isa, threads);
    return HA_OK;
}
