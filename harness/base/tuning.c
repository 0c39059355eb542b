#include "harness/base/tuning.h"

#include "harness/base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

const char *const ha_reach_words[HA_REACH_KINDS + 1] = {
    [HA_REACH_L2] = "l2",       [HA_REACH_L1] = "l1",   [HA_REACH_STREAMS] = "streams",
    [HA_REACH_TWICE] = "twice", [HA_REACH_ONE] = "one", [HA_REACH_NONE] = "none"
};
const char *const ha_pattern_words[HA_CHOICE_PATTERNS + 1] = { [HA_PATTERN_LINEAR] = "linear",
                                                               [HA_PATTERN_LIST] = "list",
                                                               [HA_PATTERN_PASSES] = "passes",
                                                               [HA_CHOICE_ROWS] = "rows" };

static const struct ha_tuning constants = { .name = "constants", .from = "built in" };
static struct ha_tuning current = { .name = "constants", .from = "built in" };

const struct ha_tuning *ha_tuning(void) { return &current; }
void ha_tuning_set(const struct ha_tuning *tuning) { current = tuning ? *tuning : constants; }

/* FNV-1a */
static void mix(uint32_t *hash, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) *hash = (*hash ^ ((const unsigned char *)bytes)[i]) * 16777619u;
}

void ha_tuning_name(struct ha_tuning *t, const char *from)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < t->choices; i++) {
        const struct ha_choice *c = &t->choice[i];
        const uint32_t number[] = { (uint32_t)c->threads,    (uint32_t)c->dtype, c->pattern,
                                    (uint32_t)c->reach.kind, c->reach.bytes,     c->taken };
        mix(&hash, number, sizeof number);
        mix(&hash, c->isa, strlen(c->isa));
    }
    snprintf(t->name, sizeof t->name, "%08x", (unsigned)hash);
    snprintf(t->from, sizeof t->from, "%s", from);
}

void ha_choice_text(char out[80], const struct ha_choice *c)
{
    snprintf(out, 80, "%zu %s %s %s %s %u%s", c->threads, ha_dtype_name(c->dtype), ha_pattern_words[c->pattern], c->isa,
             ha_reach_words[c->reach.kind], (unsigned)c->reach.bytes, c->taken ? " taken" : "");
}

/* the number of threads whose choices count */
static size_t threads_of(const struct ha_tuning *t, size_t threads)
{
    size_t below = 0, least = 0;
    for (size_t i = 0; i < t->choices; i++) {
        const size_t has = t->choice[i].threads;
        if ((threads == 0 || has <= threads) && has > below) below = has;
        if (!least || has < least) least = has;
    }
    return below ? below : least;
}

const struct ha_choice *ha_tuning_find(const struct ha_tuning *t, size_t threads, enum ha_dtype dtype, unsigned pattern,
                                       const char *isa)
{
    const size_t of = threads_of(t, threads);
    for (size_t i = 0; i < t->choices; i++) {
        const struct ha_choice *c = &t->choice[i];
        if (c->threads == of && c->dtype == dtype && c->pattern == pattern && !strcmp(c->isa, isa)) return c;
    }
    return NULL;
}

const struct ha_choice *ha_tuning_taken(const struct ha_tuning *t, size_t threads, enum ha_dtype dtype,
                                        unsigned pattern)
{
    const size_t of = threads_of(t, threads);
    for (size_t i = 0; i < t->choices; i++) {
        const struct ha_choice *c = &t->choice[i];
        if (c->threads == of && c->dtype == dtype && c->pattern == pattern && c->taken) return c;
    }
    return NULL;
}

void ha_tuning_cpu(char out[160])
{
    static const char info[] = "/proc/cpuinfo";
    char name[96], family[16], model[16];
    ha_text_line(info, "model name", name, sizeof name);
    ha_text_line(info, "cpu family", family, sizeof family);
    ha_text_line(info, "model\t", model, sizeof model);
    snprintf(out, 160, "%s, family %s model %s", *name ? name : "unknown", *family ? family : "?",
             *model ? model : "?");
    ha_text_clean(out);
}
