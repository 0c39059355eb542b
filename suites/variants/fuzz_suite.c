/* libFuzzer on suite files, ids and filters, over fake_registry.c and fake_suites.c: whatever is read as a case prints
 * as an id that is read as the same case, and is chosen by a filter that asks for its keys. A text
 * that begins with ':' is an id, one with '-' a filter. */
#include "harness/base/pool.h"
#include "harness/base/registry.h"
#include "harness/engine/plan.h"
#include "harness/engine/point.h"
#include "suites/variants/case.h"

#include <stdlib.h>
#include <string.h>

/* of harness/base/pool.c, without its threads */
const char *ha_team_name(size_t team) { return team == 0 ? "openmp" : team == 1 ? "own" : NULL; }

enum { COMPARED_MAX = 200 }; /* of a large cross product the first will do */

/* "key=value,..." of every key, the facts too */
static void filter_of(const struct ha_case *c, char *out, size_t size)
{
    const struct ha_suite *s = ha_suites_all[0];
    struct ha_key room;
    const struct ha_key *key;
    char value[HA_VALUE_MAX];
    size_t n = 0;
    for (size_t i = 0; n < size && (key = ha_point_key(s, c, i, &room)); i++) {
        ha_point_value(c, key, value);
        n += (size_t)snprintf(out + n, size - n, "%s=%s,", key->name, value);
    }
}

static void compare(const struct ha_case *c, const char *id)
{
    char again[HA_ID_MAX], filter[2 * HA_ID_MAX];
    struct ha_case back;
    struct ha_filter *f;
    struct ha_why why;
    if (ha_case_parse(id, &back, &why) != HA_OK || memcmp(&back, c, sizeof back)) abort();
    if (ha_point_print(ha_suites_all[0], &back, again, sizeof again) >= sizeof again || strcmp(again, id)) abort();
    filter_of(c, filter, sizeof filter);
    if (ha_filter_create(&f, filter, &why) != HA_OK) abort();
    if (!ha_filter_fits(f, ha_suites_all[0], c, id) || ha_filter_check(f, &why) != HA_OK) abort();
    ha_filter_destroy(f);
}

static void choose(const char *text, bool small)
{
    const struct ha_plan_options o = { .small = small };
    struct ha_plan plan = { 0 };
    struct ha_why why;
    if (ha_plan_parse(&plan, &o, "fuzz.suite", text, &why) == HA_OK)
        for (size_t i = 0; i < plan.entries && i < COMPARED_MAX; i++) compare(plan.entry[i].point, plan.entry[i].id);
    ha_plan_free(&plan);
}

static void one(const char *text)
{
    struct ha_case c;
    struct ha_why why;
    char id[HA_ID_MAX];
    if (ha_case_parse(text, &c, &why) != HA_OK) return;
    if (ha_point_print(ha_suites_all[0], &c, id, sizeof id) < sizeof id) compare(&c, id);
}

static void sieve(char *text)
{
    static char word[] = "plain", other[] = "ring:ctx=1+2";
    char *words[] = { word, other };
    const struct ha_plan_options o = { .words = words, .words_count = 2, .filter = text };
    struct ha_plan plan = { 0 };
    struct ha_why why;
    if (ha_plan_make(&plan, &o, &why) == HA_OK && !plan.entries) abort();
    ha_plan_free(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    const char what = text[0];
    if (what == '-') sieve(text + 1);
    else if (what == ':') one(text + 1);
    else choose(text, size % 2);
    free(text);
    return 0;
}
