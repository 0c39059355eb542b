#include "harness/program/commands.h"

#include "harness/base/why.h"
#include "harness/program/apart.h"

struct asked {
    const struct ha_plan_entry *entry;
    const char *path;
};

static enum ha_status fit_apart(void *arg, FILE *out, struct ha_why *why)
{
    const struct asked *a = arg;
    return a->entry->suite->fit(a->entry->point, a->entry->id, a->path, out, why);
}

static enum ha_exit fit(const struct ha_plan *plan, const struct ha_options *o, struct ha_why *why)
{
    static const enum ha_exit code[] = {
        [HA_OK] = HA_EXIT_OK, [HA_FAIL] = HA_EXIT_USAGE, [HA_WAIVED] = HA_EXIT_WAIVED, [HA_ERROR] = HA_EXIT_ENVIRONMENT
    };
    const struct ha_plan_entry *e = plan->entry;
    if (plan->entries != 1) {
        ha_why(why, HA_ERROR, "%.80s: %zu cases; one is learnt from, of which `habench list cases` prints the ids",
               o->words[0], plan->entries);
        return HA_EXIT_USAGE;
    }
    if (!e->suite->fit) {
        ha_why(why, HA_ERROR, "%s learns nothing: a case of a variant is needed", e->suite->name);
        return HA_EXIT_USAGE;
    }
    const enum ha_status looked = e->suite->look ? e->suite->look(e->point, why) : HA_OK;
    if (looked != HA_OK) return looked == HA_FAIL ? HA_EXIT_MISSING : HA_EXIT_USAGE;
    struct asked asked = { e, o->out_dir };
    return code[ha_apart(fit_apart, &asked, UINT64_MAX, why)];
}

enum ha_exit ha_command_fit(const struct ha_options *o, struct ha_why *why)
{
    struct ha_plan plan = { 0 };
    enum ha_exit code = HA_EXIT_USAGE;
    if (ha_program_plan(&plan, o, o->words, o->words_count, false, why) == HA_OK) code = fit(&plan, o, why);
    ha_plan_free(&plan);
    return code;
}
