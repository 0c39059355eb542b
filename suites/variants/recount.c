#include "suites/variants/recount.h"

#include "harness/base/why.h"
#include "suites/variants/check.h"

#include <math.h>
#include <string.h>

void ha_recount_add(struct ha_recount *r, size_t step, size_t layer, const struct ha_selection *s)
{
    r->heads++;
    for (size_t i = 0; i < s->parts; i++) {
        *(s->part[i].on_device ? &r->device : &r->host) += (double)s->part[i].count;
        r->unsettled |= s->part[i].either_side;
    }
    for (size_t i = 0; i < s->notes; i++) {
        const bool again = r->recalled && r->step == step && r->layer == layer;
        if (strcmp(s->note[i].name, "recall") != 0 || !(s->note[i].value > 0) || again) continue;
        r->recalls++;
        r->recalled = true;
        r->step = step;
        r->layer = layer;
    }
}

/* Sums of whole numbers, divided in another order. */
static bool agree(double a, double b) { return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)); }

static enum ha_status compare(const struct ha_counters *want, const char *by, const struct ha_counters *c,
                              struct ha_why *why)
{
    const struct {
        const char *name;
        double is, want;
    } of[] = { { "cpu_tokens", c->cpu_tokens, want->cpu_tokens },
               { "cpu_ratio", c->cpu_ratio, want->cpu_ratio },
               { "recalls", c->recalls, want->recalls } };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (!isnan(of[i].is) && !isnan(of[i].want) && !agree(of[i].is, of[i].want))
            return ha_why(why, HA_FAIL, "%s is %.9g, %s %.9g", of[i].name, of[i].is, by, of[i].want);
    return HA_OK;
}

static void fill(const struct ha_counters *from, struct ha_counters *c)
{
    if (isnan(c->cpu_ratio) && !isnan(c->cpu_tokens)) c->cpu_ratio = from->cpu_ratio;
}

enum ha_status ha_recount_judge(const struct ha_recount *r, struct ha_counters *c, struct ha_why *why)
{
    const double none = (double)NAN;
    const bool sides = !r->unsettled && r->heads > 0;
    const struct ha_counters want = {
        .cpu_tokens = sides ? r->host / r->heads : none,
        .cpu_ratio = sides ? r->host / (r->host + r->device) : none,
        .recalls = r->recalls,
    };
    HA_TRY(compare(&want, "and what is reported of each step makes it", c, why));
    fill(&want, c);
    return HA_OK;
}

/* ---- what is counted by name and layer --------------------------------------------------------------------------- */

struct asking {
    const struct ha_counted *counted;
    enum ha_status status;
    struct ha_why *why;
};

static size_t find(const struct ha_counted *c, const char *name, size_t layer)
{
    size_t i = 0;
    while (i < c->count && (c->of[i].layer != layer || strcmp(c->of[i].name, name) != 0)) i++;
    return i;
}

static void ask(void *arg, const char *name, size_t layer, double least, double most)
{
    struct asking *a = arg;
    const struct ha_counted *c = a->counted;
    if (a->status != HA_OK) return;
    const size_t i = find(c, name, layer);
    if (i == c->count) a->status = ha_why(a->why, HA_FAIL, "%s of layer %zu is not counted", name, layer);
    if (i == c->count) return;
    const double is = c->of[i].value;
    const bool ok = least <= most && ((is >= least && is <= most) || agree(is, least) || agree(is, most));
    if (!ok)
        a->status = ha_why(a->why, HA_FAIL, "%s of layer %zu is %.9g, and the steps make it %.9g to %.9g", name, layer,
                           is, least, most);
}

enum ha_status ha_recount_counted(const struct ha_definition *definition, const struct ha_def *def,
                                  const struct ha_counted *counted, struct ha_why *why)
{
    struct asking a = { .counted = counted, .status = HA_OK, .why = why };
    if (definition->count) definition->count(def, ask, &a);
    return a.status;
}

/* ---- another pass ------------------------------------------------------------------------------------------------ */

static bool is_time(const char *name)
{
    const size_t n = strlen(name);
    return n > 3 && !strcmp(name + n - 3, "_ns");
}

enum ha_status ha_recount_again(const struct ha_check *checked, bool varies, struct ha_counters *c,
                                const struct ha_counted *counted, struct ha_why *why)
{
    const struct ha_counted *want = &checked->counted;
    if (!varies) HA_TRY(compare(&checked->counters, "and was in the pass that was checked", c, why));
    for (size_t i = 0; i < counted->count && !varies; i++) {
        const size_t at = find(want, counted->of[i].name, counted->of[i].layer);
        if (at == want->count || is_time(counted->of[i].name) || isnan(want->of[at].value)) continue;
        const double is = counted->of[i].value, was = want->of[at].value;
        const bool ok = agree(is, was);
        if (!ok)
            return ha_why(why, HA_FAIL, "%s of layer %zu is %.9g, and was in the pass that was checked %.9g",
                          counted->of[i].name, counted->of[i].layer, is, was);
    }
    fill(&checked->counters, c);
    return HA_OK;
}

void ha_recount_of_case(const struct ha_check *checked, bool varies, struct ha_counters *c, struct ha_counted *counted)
{
    const double select_ns = c->select_ns, manage_ns = c->manage_ns;
    if (varies) {
        fill(&checked->counters, c);
        return;
    }
    *c = checked->counters;
    c->select_ns = select_ns;
    c->manage_ns = manage_ns;
    for (size_t i = 0; i < counted->count; i++) {
        const size_t at = find(&checked->counted, counted->of[i].name, counted->of[i].layer);
        if (at < checked->counted.count && !is_time(counted->of[i].name))
            counted->of[i].value = checked->counted.of[at].value;
    }
}
