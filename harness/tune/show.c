#include "harness/tune/show.h"

#include "harness/base/registry.h"

#include <string.h>

/* ---- a plan ------------------------------------------------------------------------------------------------------ */

enum { CELL = 32, REMARK = 160 };

/* Does the plan change nothing for these threads and this type? What it does not know stays as it is built in. */
static bool as_built_in(const struct ha_tuning *t, const struct ha_choice *taken)
{
    struct ha_kernels planned, built_in;
    struct ha_why why;
    const enum ha_dtype type = taken->dtype;
    if (ha_kernels_resolve_by(t, NULL, taken->threads, &planned, &why) != HA_OK
        || ha_kernels_resolve_by(NULL, NULL, taken->threads, &built_in, &why) != HA_OK)
        return false;
    bool same = planned.attend_packed[type] == built_in.attend_packed[type] && !planned.rows_faster[type];
    for (unsigned p = 0; p < HA_PATTERNS; p++)
        same = same && planned.reach[type][p].kind == built_in.reach[type][p].kind
               && planned.reach[type][p].bytes == built_in.reach[type][p].bytes;
    return same;
}

static void remark(char out[REMARK], const struct ha_tuning *t, const struct ha_choice *taken)
{
    const bool built_in = as_built_in(t, taken);
    size_t n = (size_t)snprintf(out, REMARK, "%s", built_in ? ", as built in" : "");
    const char *between = built_in ? "; as good: " : ", as good: ";
    for (size_t i = 0; i < t->choices && n < REMARK; i++) {
        const struct ha_choice *c = &t->choice[i];
        if (c == taken || c->threads != taken->threads || c->dtype != taken->dtype || c->pattern != HA_PATTERN_LINEAR
            || c->ratio < ha_tune_alike * taken->ratio)
            continue;
        n += (size_t)snprintf(out + n, REMARK - n, "%s%s", between, c->isa);
        between = ", ";
    }
}

void ha_tune_print(FILE *out, const struct ha_tuning *t)
{
    fprintf(out, "%-7s  %-5s  %-12s  %-9s  %-9s  %-9s  %7s  %9s  %s\n", "threads", "type", "kernels", "in order",
            "lists", "passes", "share", "constants", "layout");
    for (size_t i = 0; i < t->choices; i++) {
        const struct ha_choice *c = &t->choice[i];
        char reach[HA_PATTERNS][CELL], text[REMARK];
        if (c->pattern != HA_PATTERN_LINEAR || !c->taken) continue;
        for (unsigned p = 0; p < HA_PATTERNS; p++) {
            const struct ha_choice *of = ha_tuning_find(t, c->threads, c->dtype, p, c->isa);
            snprintf(reach[p], CELL, "not known");
            if (of) snprintf(reach[p], CELL, "%s %u", ha_reach_words[of->reach.kind], (unsigned)of->reach.bytes);
        }
        remark(text, t, c);
        const bool rows = ha_tuning_taken(t, c->threads, c->dtype, HA_CHOICE_ROWS);
        fprintf(out, "%-7zu  %-5s  %-12s  %-9s  %-9s  %-9s  %7.3f  %9.3f  %s%s\n", c->threads, ha_dtype_name(c->dtype),
                c->isa, reach[0], reach[1], reach[2], c->ratio, c->constants, rows ? "rows" : "packed", text);
    }
    fprintf(out,
            "\nshare: of what the same threads read from memory, in pairs; constants: the same as built in; as good: "
            "within %.0f%% in order\n",
            100 * (1 - ha_tune_alike));
}

/* ---- what is open ------------------------------------------------------------------------------------------------ */

void ha_tune_open_text(char out[HA_TUNE_OPEN_BYTES], const struct ha_tune_doubt *d, const char *one, const char *many)
{
    enum { ROOM = HA_TUNE_OPEN_BYTES - 32 }; /* for how many more */
    const size_t all = d->disturbed + d->late;
    size_t named = 0, n = 0;
    *out = 0;
    if (all == 0) return;
    n = (size_t)snprintf(out, ROOM, "%zu choice%s %s (", all, all > 1 ? "s" : "", all > 1 ? many : one);
    for (; named < all && named < HA_CHOICES_MOST; named++) {
        const struct ha_tune_open *x = &d->open[named];
        char text[80], rows[32] = "";
        if (x->pattern == HA_PATTERN_PASSES) snprintf(rows, sizeof rows, " of %zu rows", x->rows);
        const int length = snprintf(text, sizeof text, "%s%zu thread%s %s %s%s %s", named ? ", " : "", x->threads,
                                    x->threads > 1 ? "s" : "", ha_dtype_name(x->dtype), ha_pattern_words[x->pattern],
                                    rows, x->isa);
        if (n + (size_t)length >= ROOM) break;
        memcpy(out + n, text, (size_t)length + 1);
        n += (size_t)length;
    }
    if (named < all) n += (size_t)snprintf(out + n, HA_TUNE_OPEN_BYTES - n, " and %zu more", all - named);
    snprintf(out + n, HA_TUNE_OPEN_BYTES - n, ")");
}
