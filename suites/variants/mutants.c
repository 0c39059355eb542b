#include "suites/variants/mutants.h"

#include "harness/base/registry.h"
#include "harness/base/sanitizer.h"
#include "harness/base/why.h"
#include "harness/report/row.h"
#include "suites/variants/check.h"
#include "suites/variants/planted.h"

#include <stdlib.h>
#include <string.h>

static const struct ha_mutants *const groups[] = { &ha_mutants_attention, &ha_mutants_blocks,    &ha_mutants_counts,
                                                   &ha_mutants_fluxion,   &ha_mutants_infinigen, &ha_mutants_scout,
                                                   &ha_mutants_lru,       &ha_mutants_clo,       &ha_mutants_recency,
                                                   &ha_mutants_pq };

const struct ha_mutant *ha_mutant_at(size_t i)
{
    for (size_t group = 0; group < sizeof groups / sizeof *groups; group++) {
        if (i < groups[group]->count) return &groups[group]->of[i];
        i -= groups[group]->count;
    }
    return NULL;
}

const struct ha_mutant *ha_mutant_find(const char *name)
{
    const struct ha_mutant *m = NULL;
    for (size_t i = 0; (m = ha_mutant_at(i)) && strcmp(m->name, name) != 0; i++) continue;
    return m;
}

/* ---- the suite: each must be seen by the check of the case that is there for it ---------------------------------- */

struct mutant_point {
    size_t mutant, isa;
    char device[256];
};
struct mutant_row {
    struct ha_result head;
    char breaks[160], seen_as[512];
};

static const char *mutant_word(size_t i)
{
    const struct ha_mutant *m = ha_mutant_at(i);
    return m ? m->name : NULL;
}

static const struct ha_key keys[] = {
    { "mutant", "*", "a defect that is planted", HA_KEY_WORD, offsetof(struct mutant_point, mutant),
      .word = mutant_word, .always = true, .column = true },
    { "device", "host", "a name, or the path of a plugin", HA_KEY_NAME, offsetof(struct mutant_point, device),
      .max = sizeof((struct mutant_point *)0)->device, .device = true, .column = true },
    { "isa", "best", "CPU kernels", HA_KEY_WORD, offsetof(struct mutant_point, isa), .word = ha_isa_word },
};

static const struct ha_field fields[] = {
    { "breaks", "", HA_FIELD_TEXT, HA_IN(struct mutant_row, breaks), 1, "what the defect does" },
    { "seen_as", "", HA_FIELD_TEXT, HA_IN(struct mutant_row, seen_as), 1, "how the check that saw it failed" },
};

/* The verdict of a check: HA_OK, HA_FAIL, HA_WAIVED, HA_ERROR. */
static enum ha_status mutants_judge(struct ha_shared *shared, const struct mutant_point *p,
                                    const struct ha_mutant *mutant, const char *id, bool order, struct ha_why *why)
{
    struct ha_session session;
    struct ha_case c;
    HA_TRY(ha_case_parse(id, &c, why));
    c.isa = p->isa;
    memcpy(c.device, p->device, sizeof p->device);
    shared->order = order;
    HA_TRY(ha_session_open(&session, shared, &c, mutant, why));
    struct ha_check check = { .session = &session, .id = id };
    const enum ha_status status = ha_check_run(&check, why);
    ha_check_free(&check);
    ha_session_close(&session);
    return status;
}

/* HA_OK: the defect was seen, and why says as what. */
static enum ha_status hunt(struct ha_shared *shared, const struct mutant_point *p, struct ha_why *why)
{
    const struct ha_mutant *m = ha_mutant_at(p->mutant);
    struct ha_why reason = { "" };
    if (HA_TSAN && m->order)
        return ha_why(why, HA_WAIVED, "ThreadSanitizer ends a run in which what is planted happens");
    const enum ha_status sound = mutants_judge(shared, p, NULL, m->id, m->order, &reason);
    if (sound == HA_WAIVED) return ha_why(why, HA_WAIVED, "%s", reason.text);
    if (sound != HA_OK) return ha_why(why, HA_FAIL, "its case does not pass without it: %.400s", reason.text);
    const enum ha_status broken = mutants_judge(shared, p, m, m->id, m->order, &reason);
    if (broken == HA_OK) return ha_why(why, HA_FAIL, "SURVIVED: '%s' passes with it", m->id);
    if (broken != HA_FAIL)
        return ha_why(why, HA_FAIL, "ended as %s and not as a failed check: %.400s",
                      broken == HA_WAIVED ? "waived" : "an error", reason.text);
    if (m->shown && !strstr(reason.text, m->shown))
        return ha_why(why, HA_FAIL, "was not seen as %s: %.400s", m->shown, reason.text);
    return ha_why(why, HA_OK, "%s", reason.text);
}

static enum ha_status begin(void **run, const struct ha_suite_config *config, const struct ha_results *before,
                            struct ha_why *why)
{
    struct ha_shared *shared = *run = calloc(1, sizeof *shared);
    if (!shared) return ha_why(why, HA_ERROR, "out of memory");
    return ha_shared_open(shared, config->machine, false, why);
}

static void end(void *run)
{
    ha_shared_close(run);
    free(run);
}

static enum ha_status check(void *run, struct ha_group *g, struct ha_why *why)
{
    const struct mutant_point *p = g->point[0];
    struct mutant_row *row = g->row[0];
    const struct ha_mutant *m = ha_mutant_at(p->mutant);
    snprintf(row->breaks, sizeof row->breaks, "%s", m->breaks);
    HA_TRY(hunt(run, p, why));
    snprintf(row->seen_as, sizeof row->seen_as, "%s", why->text);
    g->right[0] = true;
    return HA_OK;
}

static void print(FILE *out, const struct ha_results *r)
{
    putc('\n', out);
    for (size_t i = 0; i < r->entries; i++) {
        const struct mutant_point *p = r->entry[i].point;
        const struct mutant_row *row = r->entry[i].row;
        if (!row) continue;
        const struct ha_mutant *m = ha_mutant_at(p->mutant);
        ha_planted_print(out, &row->head, m->name, m->breaks, "killed", "ALIVE", "", row->seen_as);
    }
}

static void print_defects(FILE *out)
{
    const struct ha_mutant *m;
    for (size_t i = 0; (m = ha_mutant_at(i)); i++) {
        if (!m->movement) continue;
        fprintf(out, "%-22s %s\n%22s found by check %s'%s'%s%s\n", m->name, m->breaks, "", m->order ? "--order " : "",
                m->id, *m->seen ? "; seen: " : "", m->seen);
    }
}
static const struct ha_list defects = { "defects", print_defects };

const struct ha_suite ha_suite_mutants = {
    .name = "mutants",
    .attends = true,
    .doc = "planted defects, each of which a check must see",
    .key = keys,
    .keys = sizeof keys / sizeof *keys,
    .class_key = "mutant",
    .field = fields,
    .fields = sizeof fields / sizeof *fields,
    .file = { "mutants.csv" },
    .list = &defects,
    .lists = 1,
    .point_bytes = sizeof(struct mutant_point),
    .row_bytes = sizeof(struct mutant_row),
    .begin = begin,
    .check = check,
    .end = end,
    .print = print,
};
