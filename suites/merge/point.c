#include "suites/merge/point.h"

#include "harness/base/registry.h"
#include "harness/base/try.h"
#include "harness/base/why.h"
#include "harness/base/words.h"
#include "harness/engine/machine.h"
#include "harness/engine/plugin.h"
#include "harness/engine/point.h"
#include "suites/merge/attention.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROWS_MAX = 64, NAMES_MAX = 192 };
static const struct ha_merge_suite *const suite = &ha_merge_suite;

/* ---- words ------------------------------------------------------------------------------------------------------ */

/* the items behind the cases */
static const char *const behind[] = { "random", "gallery", "attention", NULL };

static const char *item_word(size_t i)
{
    return i < suite->cases_count ? suite->cases[i].name : behind[i - suite->cases_count];
}
/* what "*" stands for: the gallery and attention are asked for by name */
static const char *case_word(size_t i) { return i <= suite->cases_count ? item_word(i) : NULL; }
static const char *defect_word(size_t i) { return i < suite->defects_count ? suite->defects[i].name : NULL; }
static const char *problem_word(size_t i) { return i < ha_attention_cases_count ? ha_attention_cases[i].name : NULL; }
static const char *kind_word(size_t i) { return i < HA_MERGE_KINDS ? ha_merge_kinds[i].name : NULL; }
static const char *form_word(size_t i) { return i < HA_FORM_COUNT ? ha_form_name((enum ha_form)i) : NULL; }
static const char *dtype_word(size_t i) { return i < HA_DTYPE_COUNT ? ha_dtype_name((enum ha_dtype)i) : NULL; }
static const char *order_word(size_t i) { return i < HA_ORDER_COUNT ? ha_order_name((enum ha_order)i) : NULL; }
static const char *alias_word(size_t i) { return i < HA_ALIAS_COUNT ? ha_alias_name((enum ha_alias)i) : NULL; }
static const char *layout_word(size_t i) { return i < HA_LAYOUT_COUNT ? ha_layout_name((enum ha_layout)i) : NULL; }
static const char *any_word(size_t i) { return i ? NULL : "any"; }

const char *ha_merge_ours(size_t i)
{
    for (size_t k = 0; k < ha_kernels_count; k++)
        if (ha_kernels_all[k]->merge && i-- == 0) return ha_kernels_all[k]->name;
    return i ? NULL : ha_devices_all[0]->name;
}

size_t ha_merge_defect_index(const char *name)
{
    for (size_t i = 0; i < suite->defects_count; i++)
        if (!strcmp(suite->defects[i].name, name)) return i;
    return SIZE_MAX;
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

static void *at(void *point, const struct ha_key *key) { return (char *)point + key->offset; }
static uint64_t number_at(const void *point, const struct ha_key *key)
{
    uint64_t x;
    memcpy(&x, (const char *)point + key->offset, sizeof x);
    return x;
}

static enum ha_status set_case(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    const char *names[NAMES_MAX] = { NULL };
    for (size_t i = 0; (names[i] = item_word(i)); i++)
        if (!strcmp(names[i], value)) return memcpy(at(point, key), &i, sizeof i), HA_OK;
    return ha_unknown(why, key->name, value, names);
}

static void print_case(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    snprintf(out, HA_VALUE_MAX, "%s", item_word(number_at(point, key)));
}

/* An axis: "any" is 0, its words are 1, 2, ... */
static enum ha_status set_axis(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    const char *names[NAMES_MAX] = { "any" };
    uint64_t i = 0;
    while (strcmp(names[i], value) != 0) {
        names[i + 1] = key->word(i);
        if (!names[++i]) return ha_unknown(why, key->name, value, names);
    }
    memcpy(at(point, key), &i, sizeof i);
    return HA_OK;
}

static void print_axis(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    const uint64_t i = number_at(point, key);
    snprintf(out, HA_VALUE_MAX, "%s", i ? key->word(i - 1) : "any");
}

/* tokens, x, heads */
static enum ha_status set_rows(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    uint64_t x[2] = { 0, 0 };
    const char *p = value;
    const bool any = !strcmp(value, "any"),
               pair = !any && ha_whole_parse(p, &x[0], &p) && *p == 'x' && ha_whole_parse(p + 1, &x[1], &p) && !*p;
    if (!any && !(pair && x[0] >= 1 && x[0] <= ROWS_MAX && x[1] >= 1 && x[1] <= ROWS_MAX))
        return ha_why(why, HA_ERROR, "%s: '%.40s' is not 'any' or TOKENSxHEADS as 3x4, each from 1 to %d", key->name,
                      value, ROWS_MAX);
    memcpy(at(point, key), x, sizeof x);
    return HA_OK;
}
_Static_assert(offsetof(struct ha_merge_axes, heads) == offsetof(struct ha_merge_axes, tokens) + sizeof(uint64_t),
               "rows are two numbers side by side");

static void print_rows(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    uint64_t x[2];
    memcpy(x, (const char *)point + key->offset, sizeof x);
    if (!x[0]) snprintf(out, HA_VALUE_MAX, "any");
    else snprintf(out, HA_VALUE_MAX, "%" PRIu64 "x%" PRIu64, x[0], x[1]);
}

static enum ha_status set_row(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    uint64_t x = HA_ROW_ANY;
    const char *end = value;
    if (strcmp(value, "any") != 0 && !(ha_whole_parse(value, &x, &end) && !*end && x <= key->max))
        return ha_why(why, HA_ERROR, "%s: '%.40s' is not 'any' or a whole number from 0 to %" PRIu64, key->name, value,
                      key->max);
    memcpy(at(point, key), &x, sizeof x);
    return HA_OK;
}

static void print_row(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    const uint64_t x = number_at(point, key);
    if (x == HA_ROW_ANY) snprintf(out, HA_VALUE_MAX, "any");
    else snprintf(out, HA_VALUE_MAX, "%" PRIu64, x);
}

static bool is_path(const char *value)
{
    const size_t n = strlen(value);
    return strchr(value, '/') || (n > 3 && !strcmp(value + n - 3, ".so"));
}

/* A name of ours, or whatever the engine's reader of names takes and a plugin is called. */
static enum ha_status set_by(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    const char *names[NAMES_MAX] = { "exec", "cuda" };
    char path[HA_PLUGIN_PATH_MAX];
    struct ha_why none;
    size_t n = 2;
    bool known = false;
    for (size_t i = 0; i < ha_kernels_count; i++) names[n++] = ha_kernels_all[i]->name;
    for (size_t i = 0; i < ha_devices_count; i++) names[n++] = ha_devices_all[i]->name;
    for (size_t i = 0; i < suite->defects_count; i++) names[n++] = suite->defects[i].name;
    for (size_t i = 0; i < n; i++) known |= !strcmp(names[i], value);
    struct ha_key plain = *key;
    plain.set = NULL;
    plain.word = NULL;
    if (known || is_path(value) || !*value || ha_plugin_find(value, path, &none) == HA_OK)
        return ha_point_set(point, &plain, value, why);
    return ha_unknown(why, key->name, value, names);
}

/* ---- keys ------------------------------------------------------------------------------------------------------- */

/* the gallery's traits are those of kernels/c */
static const char *standard_by(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    (void)out;
    return ha_merge_part(point) == HA_PART_GALLERY ? ha_kernels_all[0]->name : key->value;
}

/* random merges are of one type of o */
static const char *standard_dtype(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    (void)out;
    return ha_merge_part(point) == HA_PART_RANDOM ? "*" : key->value;
}

#define AT(member) .offset = offsetof(struct ha_merge_point, member)
#define AXIS(name_, member, word_, doc_)                                                                 \
    {                                                                                                    \
        .name = name_, .value = "any", .doc = doc_, .kind = HA_KEY_WORD, AT(axes.member), .word = word_, \
        .column = true, .set = set_axis, .print = print_axis                                             \
    }
enum key {
    REPLAY,
    CASE,
    DEFECT,
    PROBLEM,
    BY,
    KIND,
    FORM,
    DTYPE,
    HEAD_DIM,
    STATES,
    ORDER,
    ALIAS,
    LAYOUT,
    ROWS,
    SEED,
    ROW
};

const struct ha_key ha_merge_key[HA_MERGE_KEYS] = {
    [REPLAY] = { .name = "replay",
                 .value = "",
                 .doc = "a file that holds a merge, to be judged (docs/merging.md)",
                 .kind = HA_KEY_NAME,
                 AT(replay),
                 .max = HA_MERGE_NAME_MAX,
                 .column = true },
    [CASE] = { .name = "case",
               .value = "*",
               .doc = "a case; random: random merges; gallery: is each known defect found; "
                      "attention: is attention's own (o, LSE) right",
               .kind = HA_KEY_WORD,
               AT(item),
               .word = case_word,
               .column = true,
               .set = set_case,
               .print = print_case },
    [DEFECT] = { .name = "defect",
                 .value = "*",
                 .doc = "of the gallery: what must be found",
                 .kind = HA_KEY_WORD,
                 AT(defect),
                 .word = defect_word,
                 .column = true },
    [PROBLEM] = { .name = "problem",
                  .value = "*",
                  .doc = "of attention: what is attended",
                  .kind = HA_KEY_WORD,
                  AT(problem),
                  .word = problem_word,
                  .column = true },
    [BY] = { .name = "by",
             .value = "*",
             .doc = "who merges: a table of CPU kernels, a device, a defect, the path of a "
                    "plugin, exec (the command of --exec)",
             .kind = HA_KEY_NAME,
             AT(by),
             .max = HA_MERGE_NAME_MAX,
             .word = ha_merge_ours,
             .options = " device isa exec ",
             .column = true,
             .set = set_by,
             .standard = standard_by },
    [KIND] = { .name = "kind",
               .value = "*",
               .doc = "of random merges: a form flat, a chain, in place",
               .kind = HA_KEY_WORD,
               AT(kind),
               .word = kind_word,
               .column = true },
    [FORM] = AXIS("form", form, form_word, "what a state is"),
    [DTYPE] = { .name = "dtype",
                .value = "any",
                .doc = "the type of o",
                .kind = HA_KEY_WORD,
                AT(axes.dtype),
                .word = dtype_word,
                .column = true,
                .set = set_axis,
                .print = print_axis,
                .standard = standard_dtype },
    [HEAD_DIM] = { .name = "head_dim",
                   .value = "any",
                   .doc = "elements of a row of o",
                   .kind = HA_KEY_NUMBER,
                   AT(axes.head_dim),
                   .min = 1,
                   .max = 1024,
                   .word = any_word,
                   .column = true },
    [STATES] = { .name = "states",
                 .value = "any",
                 .doc = "how many states are merged into one",
                 .kind = HA_KEY_NUMBER,
                 AT(axes.states),
                 .min = 1,
                 .max = 4096,
                 .word = any_word,
                 .column = true },
    [ORDER] = AXIS("order", order, order_word, "all at once, or two at a time"),
    [ALIAS] = AXIS("alias", alias, alias_word, "the state that the output overwrites"),
    [LAYOUT] = AXIS("layout", layout, layout_word, "how rows lie in memory"),
    [ROWS] = { .name = "rows",
               .value = "any",
               .doc = "tokens x heads of a batch",
               .kind = HA_KEY_WORD,
               AT(axes.tokens),
               .word = any_word,
               .column = true,
               .set = set_rows,
               .print = print_rows },
    [SEED] = { .name = "seed",
               .value = "1",
               .doc = "of a batch, where all from form to rows is named; else the seed "
                      "that every batch's own follows from",
               .kind = HA_KEY_NUMBER,
               AT(axes.seed),
               .max = UINT64_MAX,
               .column = true },
    [ROW] = { .name = "row",
              .value = "any",
              .doc = "the only row of a batch that is judged",
              .kind = HA_KEY_WORD,
              AT(axes.row),
              .max = (uint64_t)ROWS_MAX * ROWS_MAX - 1,
              .word = any_word,
              .column = true,
              .set = set_row,
              .print = print_row },
};

enum ha_merge_part ha_merge_part(const struct ha_merge_point *p)
{
    static const enum ha_merge_part part[] = { HA_PART_RANDOM, HA_PART_GALLERY, HA_PART_ATTENTION };
    if (p->replay[0]) return HA_PART_REPLAY;
    return p->item < suite->cases_count ? HA_PART_CASES : part[p->item - suite->cases_count];
}

const char *ha_merge_item_name(const struct ha_merge_point *p) { return item_word(p->item); }

bool ha_merge_uses(const void *point, size_t key)
{
    enum { C = 1u << HA_PART_CASES, R = 1u << HA_PART_RANDOM, G = 1u << HA_PART_GALLERY, A = 1u << HA_PART_ATTENTION };
    static const unsigned by[HA_MERGE_KEYS] = {
        [CASE] = C | R | G | A, [DEFECT] = G, [PROBLEM] = A, [BY] = C | R | G | A, [KIND] = R, [SEED] = C | R | G | A
    };
    return key == REPLAY || (by[key] ? by[key] : C | R) >> ha_merge_part(point) & 1u;
}

/* ---- hooks ------------------------------------------------------------------------------------------------------ */

static enum ha_status case_has_batches(const struct ha_merge_point *p, struct ha_why *why)
{
    struct ha_merge_tasks tasks = { 0 };
    enum ha_status st = ha_merge_tasks_of_case(&tasks, suite, p->item, &p->axes, why);
    if (st == HA_OK && !tasks.count)
        st = ha_why(why, HA_WAIVED, "case=%s has no such batch", suite->cases[p->item].name);
    ha_merge_tasks_free(&tasks);
    return st;
}

static enum ha_status random_has_batches(const struct ha_merge_point *p, struct ha_why *why)
{
    if (!p->axes.dtype) return ha_why(why, HA_ERROR, "dtype: random merges are of one type; dtype=* is each of them");
    return ha_merge_random_fits(p->kind, (enum ha_dtype)(p->axes.dtype - 1), &p->axes)
               ? HA_OK
               : ha_why(why, HA_WAIVED, "random merges in the form and order %s are not like that",
                        ha_merge_kinds[p->kind].name);
}

enum ha_status ha_merge_settle(void *point, struct ha_why *why)
{
    const struct ha_merge_point *p = point;
    const struct ha_merge_axes *a = &p->axes;
    if (a->tokens && a->row != HA_ROW_ANY && a->row >= a->tokens * a->heads)
        return ha_why(why, HA_ERROR, "row: %" PRIu64 " of %" PRIu64 " rows, which are counted from 0", a->row,
                      a->tokens * a->heads);
    switch (ha_merge_part(p)) {
    case HA_PART_CASES: return case_has_batches(p, why);
    case HA_PART_RANDOM: return random_has_batches(p, why);
    case HA_PART_GALLERY:
        return !strcmp(p->by, ha_kernels_all[0]->name)
                   ? HA_OK
                   : ha_why(why, HA_WAIVED, "the gallery is merged by the defects, and by nobody else");
    case HA_PART_ATTENTION:
        return strcmp(p->by, "exec") != 0 && ha_merge_defect_index(p->by) == SIZE_MAX
                   ? HA_OK
                   : ha_why(why, HA_WAIVED, "%s does not attend", p->by);
    case HA_PART_REPLAY: return HA_OK;
    }
    return HA_ERROR;
}

enum ha_status ha_merge_look(const void *point, struct ha_why *why)
{
    const struct ha_merge_point *p = point;
    const bool replay = ha_merge_part(p) == HA_PART_REPLAY;
    const char *path = replay ? p->replay : p->by;
    if ((replay || is_path(path)) && access(path, R_OK) != 0)
        return ha_why(why, replay ? HA_FAIL : HA_WAIVED, "%.400s: %s", path, strerror(errno));
    return !replay && !strcmp(p->by, "cuda") ? ha_device_look(p->by, why) : HA_OK;
}

/* Inputs and the reference are computed once for all who merge them. Random merges are one group, so that a run that
 * ends by the clock has as many of each kind; so is all that a command is asked, which gets many cases in one file. */
bool ha_merge_together(const void *a, const void *b)
{
    const struct ha_merge_point *p = a, *q = b;
    const enum ha_merge_part part = ha_merge_part(p);
    struct ha_merge_axes x = p->axes, y = q->axes;
    if (part != ha_merge_part(q) || part == HA_PART_REPLAY) return false;
    if (part == HA_PART_RANDOM) x.dtype = y.dtype;
    const bool by_command = part == HA_PART_CASES && !strcmp(p->by, "exec") && !strcmp(q->by, "exec");
    if (part == HA_PART_CASES && p->item != q->item && !by_command) return false;
    if (part == HA_PART_ATTENTION && p->problem != q->problem) return false;
    return !memcmp(&x, &y, sizeof x);
}
