#include "suites/merge/point.h"

#include "harness/api/shape.h"
#include "harness/base/registry.h"
#include "harness/base/why.h"
#include "harness/engine/machine.h"
#include "harness/engine/plugin.h"
#include "harness/engine/point.h"
#include "suites/merge/attention.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS_MAX = 64, NAMES_MAX = 192 };

/* ---- words ------------------------------------------------------------------------------------------------------ */

/* random last, because it can go on for hours */
static const char *case_word(size_t i)
{
    static const char *const behind[] = { "gallery", "attention", "random", NULL };
    return i < HA_MERGE_CASES ? ha_merge_cases[i].name : behind[i - HA_MERGE_CASES];
}
static const char *defect_word(size_t i) { return i < HA_MERGE_DEFECTS ? ha_merge_defects[i].name : NULL; }
static const char *problem_word(size_t i) { return i < ha_attention_cases_count ? ha_attention_cases[i].name : NULL; }
static const char *kind_word(size_t i) { return i < HA_MERGE_KINDS ? ha_merge_kinds[i].name : NULL; }
static const char *form_word(size_t i) { return ha_form_words[i]; }
static const char *any_word(size_t i) { return i ? NULL : "any"; }

const char *ha_merge_ours(size_t i)
{
    for (size_t k = 0; k < ha_kernels_count; k++)
        if (ha_kernels_all[k]->merge && i-- == 0) return ha_kernels_all[k]->name;
    return i ? NULL : ha_devices_all[0]->name;
}

bool ha_merge_is_ours(const char *by)
{
    const char *ours;
    for (size_t i = 0; (ours = ha_merge_ours(i)); i++)
        if (!strcmp(ours, by)) return true;
    return false;
}

size_t ha_merge_defect_index(const char *name)
{
    for (size_t i = 0; i < HA_MERGE_DEFECTS; i++)
        if (!strcmp(ha_merge_defects[i].name, name)) return i;
    return SIZE_MAX;
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

/* An axis: "any" is 0, its words are 1, 2, ... */
static enum ha_status set_axis(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    const char *names[NAMES_MAX] = { "any" };
    size_t i = 0;
    while ((names[i + 1] = key->word(i))) i++;
    HA_TRY(ha_word_find(key->name, value, names, &i, why));
    memcpy((char *)point + key->offset, &i, sizeof i);
    return HA_OK;
}

static void print_axis(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    uint64_t i;
    memcpy(&i, (const char *)point + key->offset, sizeof i);
    snprintf(out, HA_VALUE_MAX, "%s", i ? key->word(i - 1) : "any");
}

/* tokens, x, heads */
static enum ha_status set_rows(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    struct ha_merge_axes *a = &((struct ha_merge_point *)point)->axes;
    uint64_t x[2] = { 0, 0 };
    const char *p = value;
    const bool any = !strcmp(value, "any"),
               pair = !any && ha_whole_parse(p, &x[0], &p) && *p == 'x' && ha_whole_parse(p + 1, &x[1], &p) && !*p;
    if (!any && !(pair && x[0] >= 1 && x[0] <= ROWS_MAX && x[1] >= 1 && x[1] <= ROWS_MAX))
        return ha_why(why, HA_ERROR, "%s: '%.40s' is not 'any' or TOKENSxHEADS as 3x4, each from 1 to %d", key->name,
                      value, ROWS_MAX);
    a->tokens = x[0];
    a->heads = x[1];
    return HA_OK;
}

static void print_rows(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    const struct ha_merge_axes *a = &((const struct ha_merge_point *)point)->axes;
    if (!a->tokens) snprintf(out, HA_VALUE_MAX, "any");
    else snprintf(out, HA_VALUE_MAX, "%" PRIu64 "x%" PRIu64, a->tokens, a->heads);
}

static enum ha_status set_row(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    uint64_t x = HA_ROW_ANY;
    const char *end = value;
    if (strcmp(value, "any") != 0 && !(ha_whole_parse(value, &x, &end) && !*end && x < ROWS_MAX * ROWS_MAX))
        return ha_why(why, HA_ERROR, "%s: '%.40s' is not 'any' or a whole number from 0 to %d", key->name, value,
                      ROWS_MAX * ROWS_MAX - 1);
    ((struct ha_merge_point *)point)->axes.row = x;
    return HA_OK;
}

static void print_row(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    const uint64_t x = ((const struct ha_merge_point *)point)->axes.row;
    if (x == HA_ROW_ANY) snprintf(out, HA_VALUE_MAX, "any");
    else snprintf(out, HA_VALUE_MAX, "%" PRIu64, x);
}

/* A name of ours, a path, or a plugin beside the program. */
static enum ha_status set_by(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    const char *names[NAMES_MAX] = { "exec", "cuda" };
    char path[HA_PLUGIN_PATH_MAX];
    struct ha_why none;
    size_t n = 2;
    bool known = false;
    for (size_t i = 0; i < ha_kernels_count; i++) names[n++] = ha_kernels_all[i]->name;
    for (size_t i = 0; i < ha_devices_count; i++) names[n++] = ha_devices_all[i]->name;
    for (size_t i = 0; i < HA_MERGE_DEFECTS; i++) names[n++] = ha_merge_defects[i].name;
    for (size_t i = 0; i < n; i++) known |= !strcmp(names[i], value);
    struct ha_key plain = *key;
    plain.set = NULL;
    plain.word = NULL;
    if (known || !*value || ha_plugin_find(value, path, &none) == HA_OK) return ha_point_set(point, &plain, value, why);
    return ha_unknown(why, key->name, value, names);
}

/* ---- keys ------------------------------------------------------------------------------------------------------- */

/* the gallery's traits are those of kernels/c */
static const char *standard_by(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    return ha_merge_part(point) == HA_PART_GALLERY ? ha_kernels_all[0]->name : key->value;
}

/* random merges are of one type of o */
static const char *standard_dtype(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    return ha_merge_part(point) == HA_PART_RANDOM ? "*" : key->value;
}

/* in the point; more: further members of the key */
#define KEY(name_, value_, kind_, member, word_, more, doc_)                                                \
    {                                                                                                       \
        .name = name_, .value = value_, .doc = doc_, .kind = HA_KEY_##kind_, .word = word_, .column = true, \
        .offset = offsetof(struct ha_merge_point, member), more                                             \
    }
#define LIMITS(least_, most_) .min = least_, .max = most_
#define READ(what)            .set = set_##what, .print = print_##what
#define DRAW(values)          .draw = values
#define TYPE                  READ(axis), .standard = standard_dtype, DRAW("*")
#define BY                    .set = set_by, .standard = standard_by, .max = HA_MERGE_NAME_MAX, OPTIONS, DRAW("*")
#define SEED                  LIMITS(0, UINT64_MAX), DRAW("1..1000000000:1")
#define OPTIONS               .options = " device isa exec "

/* of the problem `one`, which takes dtype, too */
#define SHAPE(name_, value_, kind_, member, least_, most_, draws, doc_)                                               \
    {                                                                                                                 \
        .name = name_, .value = value_, .doc = doc_, .kind = HA_KEY_##kind_, .min = least_, .max = most_,             \
        .draw = draws, .offset = offsetof(struct ha_merge_point, shape) + offsetof(struct ha_attention_shape, member) \
    }
#define FLAG(name, member, doc) SHAPE(name, "0", NUMBER, member, 0, 1, "0 1", doc)

enum { REPLAY, CASE, DEFECT, PROBLEM, BY_WHOM, KIND, SHAPES = 16 };
const struct ha_key ha_merge_key[HA_MERGE_KEYS] = {
    [REPLAY] = KEY("replay", "", NAME, replay, NULL, LIMITS(0, HA_MERGE_NAME_MAX), "a file that holds a merge"),
    [CASE] = KEY(
        "case", "*", WORD, item, case_word, DRAW("random random attention"),
        "a case; gallery: is a known defect found; attention: is its own (o, LSE) right; random: random merges"),
    [DEFECT] = KEY("defect", "*", WORD, defect, defect_word, LIMITS(0, 0), "of the gallery: what must be found"),
    [PROBLEM] = KEY("problem", "*", WORD, problem, problem_word, DRAW("one"), "of attention: what is attended"),
    [BY_WHOM] = KEY("by", "*", NAME, by, ha_merge_ours, BY,
                    "who merges: a table of CPU kernels, a device, a defect, a plugin's path, exec (what --exec says)"),
    [KIND] = KEY("kind", "*", WORD, kind, kind_word, DRAW("*"), "of random merges: a form flat, a chain, in place"),
    KEY("form", "any", WORD, axes.form, form_word, READ(axis), "what a state is"),
    KEY("dtype", "any", WORD, axes.dtype, ha_dtype_word, TYPE, "the type of o"),
    KEY("head_dim", "any", NUMBER, axes.head_dim, any_word, LIMITS(1, 1024), "elements of a row of o"),
    KEY("states", "any", NUMBER, axes.states, any_word, LIMITS(1, 4096), "how many are merged into one"),
    KEY("order", "any", WORD, axes.order, ha_order_name, READ(axis), "all at once, or two at a time"),
    KEY("alias", "any", WORD, axes.alias, ha_alias_name, READ(axis), "the state that the output overwrites"),
    KEY("layout", "any", WORD, axes.layout, ha_layout_name, READ(axis), "how rows lie in memory"),
    KEY("rows", "any", WORD, axes.tokens, any_word, READ(rows), "tokens x heads of a batch"),
    KEY("seed", "1", NUMBER, axes.seed, NULL, SEED,
        "of a batch, where all from form to rows is named; else what the seed of every batch follows from"),
    KEY("row", "any", WORD, axes.row, any_word, READ(row), "the only row of a batch that is judged"),
    [SHAPES] = SHAPE("heads", "8/2", PAIR, q_heads, 1, 1024, "1..16:1/1..8 1..16:1/1 1..8/1..128",
                     "of problem=one, as are those behind it: query heads and KV heads"),
    SHAPE("dim", "64", NUMBER, dim, 8, 1024, "8..576:8", "elements of a head, a multiple of 8"),
    SHAPE("batch", "1", NUMBER, batch, 1, HA_BATCH_MAX, "1 1..256", "sequences"),
    SHAPE("q_len", "1", NUMBER, q_len, 1, 4096, "1 1..300", "query tokens"),
    SHAPE("ctx", "100", NUMBER, ctx, 0, 1 << 24, "0..131072", "keys of a sequence; with a mask q_len more"),
    SHAPE("runs", "1", NUMBER, runs, 1, HA_RUNS_MAX, "1..4:1", "that the keys are cut into, anywhere"),
    FLAG("causal", causal, "1: query tokens are the last keys, and none sees a later one"),
    FLAG("weights", weights, "1: the weights of keys are wanted"),
    FLAG("padded", padded, "1: gaps behind rows"),
    FLAG("indexed", indexed, "1: rows anywhere in a larger pool; not of a library"),
    FLAG("ragged", ragged, "1: sequences of different lengths"),
    FLAG("shifted", shifted, "1: everything begins 16 bytes behind where it is aligned"),
};

enum ha_merge_part ha_merge_part(const struct ha_merge_point *p)
{
    static const enum ha_merge_part part[] = { HA_PART_GALLERY, HA_PART_ATTENTION, HA_PART_RANDOM };
    if (p->replay[0]) return HA_PART_REPLAY;
    return p->item < HA_MERGE_CASES ? HA_PART_CASES : part[p->item - HA_MERGE_CASES];
}

const char *ha_merge_item_name(const struct ha_merge_point *p) { return case_word(p->item); }

/* whether the point is attention of one shape */
static bool is_one(const struct ha_merge_point *p)
{
    return ha_merge_part(p) == HA_PART_ATTENTION && ha_attention_cases[p->problem].list == HA_ATTENTION_ONE;
}

bool ha_merge_uses(const void *point, size_t key)
{
    const enum ha_merge_part part = ha_merge_part(point);
    if (key >= SHAPES) return is_one(point);
    if (part == HA_PART_REPLAY || key == REPLAY) return key == REPLAY;
    return key == DEFECT    ? part == HA_PART_GALLERY
           : key == PROBLEM ? part == HA_PART_ATTENTION
                            : key != KIND || part == HA_PART_RANDOM;
}

/* ---- hooks ------------------------------------------------------------------------------------------------------ */

static enum ha_status case_has_batches(const struct ha_merge_point *p, struct ha_why *why)
{
    struct ha_merge_tasks tasks = { 0 };
    const enum ha_status st = ha_merge_tasks_of_case(&tasks, p->item, &p->axes, why);
    const bool any = tasks.count > 0;
    ha_merge_tasks_free(&tasks);
    return st == HA_OK && !any ? HA_WAIVED : st;
}

/* neither a command nor a defect */
static bool may_attend(const struct ha_merge_point *p)
{
    return strcmp(p->by, "exec") != 0 && ha_merge_defect_index(p->by) == SIZE_MAX;
}

static enum ha_status settle_attention(struct ha_merge_point *p, struct ha_why *why)
{
    struct ha_merge_axes a = p->axes;
    struct ha_attention_shape *s = &p->shape;
    s->dtype = a.dtype ? a.dtype - 1 : HA_F16;
    if (is_one(p)) a.dtype = 0;
    if (!ha_merge_axes_any(&a) || !may_attend(p)) return HA_WAIVED;
    if (s->q_heads % s->kv_heads)
        return ha_why(why, HA_ERROR, "heads=%zu/%zu: a KV head has no whole number of query heads", s->q_heads,
                      s->kv_heads);
    return s->dim % 8 ? ha_why(why, HA_ERROR, "dim=%zu: it is a multiple of 8", s->dim) : HA_OK;
}

double ha_merge_cost(const void *point)
{
    static const double merges = 0x1p-5; /* 20,000 of a kind and type take a tenth of a second */
    return is_one(point) ? ha_attention_cost(&((const struct ha_merge_point *)point)->shape) : merges;
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
    case HA_PART_RANDOM:
        if (!a->dtype) return ha_why(why, HA_ERROR, "dtype: random merges are of one type; dtype=* is each of them");
        return ha_merge_random_fits(p->kind * HA_DTYPE_COUNT + a->dtype - 1, a) ? HA_OK : HA_WAIVED;
    case HA_PART_GALLERY: /* of ours alone: by=c stands for it */
        return ha_merge_axes_any(a) && !strcmp(p->by, ha_kernels_all[0]->name) ? HA_OK : HA_WAIVED;
    case HA_PART_ATTENTION: return settle_attention(point, why);
    case HA_PART_REPLAY: return HA_OK;
    }
    return HA_ERROR;
}

enum ha_status ha_merge_look(const void *point, struct ha_why *why)
{
    const struct ha_merge_point *p = point;
    struct ha_merge_shape shape;
    struct ha_judgement judgement;
    if (ha_merge_part(p) == HA_PART_REPLAY) {
        if (access(p->replay, F_OK) != 0) return ha_why(why, HA_ERROR, "%.400s: %s", p->replay, strerror(errno));
        return ha_replay_judge(p->replay, &shape, &judgement, why) == HA_ERROR ? HA_FAIL : HA_OK;
    }
    for (size_t i = 0; i < ha_kernels_count; i++)
        if (!strcmp(ha_kernels_all[i]->name, p->by)) return HA_OK;
    return may_attend(p) ? ha_device_look(p->by, why) : HA_OK;
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

/* ---- who merges ------------------------------------------------------------------------------------------------- */

static const uint64_t STRANGER_LIMIT_NS = 20000000000u;

/* Opened once, which says at once what is wrong with it. */
static enum ha_status take_stranger(struct ha_merge_member *m, const char *exec)
{
    struct ha_merge_source *s = &m->source;
    struct ha_subject probe;
    const bool command = !strcmp(m->by, "exec");
    if (!command && ha_device_look(m->by, &m->why) != HA_OK) return HA_ERROR;
    if (command && !exec) return ha_why(&m->why, HA_ERROR, "by=exec: is the command of --exec, which was not given");
    s->kind = command ? HA_FROM_EXEC : HA_FROM_PLUGIN;
    s->text = command ? exec : m->by;
    s->limit_ns = STRANGER_LIMIT_NS;
    HA_TRY(ha_merge_source_open(s, &probe, &m->why));
    snprintf(s->name, sizeof s->name, "%s", probe.name);
    s->traits = probe.traits;
    m->null = probe.null;
    ha_subject_close(&probe);
    return HA_OK;
}

/* Opened once more, to look at its exp and log. */
static enum ha_status look(struct ha_merge_member *m, struct ha_why *why)
{
    struct ha_subject subject;
    HA_TRY(ha_merge_source_patience(&m->source, why));
    HA_TRY(ha_merge_source_open(&m->source, &subject, why));
    ha_merge_source_look(&m->source, &subject);
    ha_subject_close(&subject);
    m->looked = true;
    return HA_OK;
}

static enum ha_status take(struct ha_merge_member *m, const struct ha_suite_config *config)
{
    struct ha_merge_source *s = &m->source;
    const size_t defect = ha_merge_defect_index(m->by);
    for (size_t i = 0; i < ha_kernels_count; i++) {
        if (strcmp(ha_kernels_all[i]->name, m->by) != 0) continue;
        HA_TRY(ha_kernels_resolve(m->by, &m->kernels, &m->why));
        s->merge = m->kernels.merge;
        s->traits = m->kernels.traits;
        s->kernels = &m->kernels;
        return HA_OK;
    }
    for (size_t i = 0; i < ha_devices_count; i++) {
        if (strcmp(ha_devices_all[i]->name, m->by) != 0) continue;
        s->kind = HA_FROM_DEVICE;
        HA_TRY(ha_machine_device(config->machine, m->by, NULL, &s->api, &s->device, &m->why));
        s->eps = *ha_machine_eps(config->machine);
        m->null = !strcmp(s->api->kind, "null");
        return HA_OK;
    }
    if (defect == SIZE_MAX) return take_stranger(m, config->exec);
    const struct ha_merge_defect *d = &ha_merge_defects[defect];
    s->merge = d->merge;
    s->traits = ha_kernels_all[0]->traits; /* what a right merge of this kind would have */
    if (d->forms) s->traits.forms = d->forms;
    if (d->dtypes) s->traits.dtypes = d->dtypes;
    return HA_OK;
}

struct ha_merge_member *ha_merge_party_find(struct ha_merge_party *party, const char *by)
{
    struct ha_merge_member **end = &party->first;
    for (; *end; end = &(*end)->next)
        if (!strcmp((*end)->by, by)) break;
    struct ha_merge_member *m = *end;
    const bool found = m;
    if (!m) m = *end = calloc(1, sizeof *m);
    if (!m) return NULL;
    if (!found) snprintf(m->by, sizeof m->by, "%s", by);
    if (!found) snprintf(m->source.name, sizeof m->source.name, "%s", by);
    /* of a device another may have been open since */
    if (!found || (m->status == HA_OK && m->source.kind == HA_FROM_DEVICE)) m->status = take(m, party->config);
    if (m->status == HA_OK && !m->looked) m->status = look(m, &m->why);
    return m;
}

void ha_merge_party_again(struct ha_merge_party *party)
{
    for (struct ha_merge_member *m = party->first; m; m = m->next) m->looked &= m->source.looked != HA_ERROR;
}

void ha_merge_party_free(struct ha_merge_party *party)
{
    for (struct ha_merge_member *m = party->first, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    party->first = NULL;
}
