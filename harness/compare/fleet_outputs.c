#include "harness/compare/fleet_parts.h"

#include "harness/base/array.h"
#include "harness/base/why.h"

#include <stdlib.h>

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "out of memory"); }

/* What a machine has of a case, beside others that are alike. */
struct held {
    size_t alike, machine;
    struct ha_fleet_digest digest;
};

static int by_case(const void *a, const void *b)
{
    const struct held *x = a, *y = b;
    if (x->alike != y->alike) return x->alike < y->alike ? -1 : 1;
    if (x->digest.of != y->digest.of) return x->digest.of < y->digest.of ? -1 : 1;
    if (x->digest.mixed != y->digest.mixed) return x->digest.mixed ? 1 : -1;
    if (x->digest.digest != y->digest.digest) return x->digest.digest < y->digest.digest ? -1 : 1;
    return (x->machine > y->machine) - (x->machine < y->machine);
}

/* of one case: [count], by digest, of machines that agree with themselves. How many have the one that most have. */
static size_t most_of(const struct held *h, size_t count, uint64_t *most)
{
    size_t best = 0;
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i; end < count && h[end].digest.digest == h[i].digest.digest;) end++;
        if (end - i <= best) continue;
        best = end - i;
        *most = h[i].digest.digest;
    }
    return best;
}

/* A machine whose own processes disagree is wrong, whatever the others have, and has no say. Of the rest more than half
 * of three or more say who is; else all of them disagree. */
static enum ha_status judge_case(struct ha_fleet *f, const struct held *h, size_t count, struct ha_why *why)
{
    struct ha_fleet_disagreement d = { .group = f->machine[h->machine].group, .of = h->digest.of };
    size_t steady = 0;
    while (steady < count && !h[steady].digest.mixed) steady++;
    d.agree = most_of(h, steady, &d.most);
    if (d.agree == count) return HA_OK;
    d.others = count - d.agree;
    d.known = steady > 0 && (d.agree == steady || (steady >= 3 && 2 * d.agree > steady));
    for (size_t i = 0; i < count; i++)
        if (!d.known || h[i].digest.mixed || h[i].digest.digest != d.most) f->machine[h[i].machine].disagrees++;
    if (!ha_array_room(&f->disagreement, &f->disagreements_room, f->disagreements + 1, sizeof d)) return no_memory(why);
    f->disagreement[f->disagreements++] = d;
    return HA_OK;
}

enum ha_status ha_fleet_outputs(struct ha_fleet *f, struct ha_why *why)
{
    size_t count = 0, k = 0;
    for (size_t i = 0; i < f->count; i++) count += f->machine[i].record ? f->machine[i].digests : 0;
    if (!count) return HA_OK;
    struct held *held = malloc(count * sizeof *held);
    if (!held) return no_memory(why);
    for (size_t i = 0; i < f->count; i++)
        for (size_t d = 0; d < f->machine[i].digests && f->machine[i].record; d++)
            held[k++] = (struct held){ f->machine[i].alike, i, f->machine[i].digest[d] };
    qsort(held, count, sizeof *held, by_case);
    enum ha_status status = HA_OK;
    for (size_t i = 0, end; i < count && status == HA_OK; i = end) {
        for (end = i; end < count && held[end].alike == held[i].alike && held[end].digest.of == held[i].digest.of;)
            end++;
        status = judge_case(f, held + i, end - i, why);
    }
    free(held);
    return status;
}
