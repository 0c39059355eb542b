/* The covering lists of an operation: sections as a suite file has them, of which every case is judged on one stage. In
 * one each two values of classes meet; in the other every value of each key is, of all that is cheap, and some beside
 * each power of two up to what the contract allows. */

#include "suites/device/point.h"

#include "harness/base/cover.h"
#include "harness/base/why.h"
#include "harness/engine/point.h"
#include "harness/engine/suite_file.h"

#include <stdio.h>
#include <string.h>

#define COST_MOST 0.003 /* of a case */
enum { WHOLE_BYTES = 1 << 20, FEW_BYTES = 1 << 16 };

/* Every value of a key of numbers; a key of words has those of the pairs. An operation may have others (ha_op.values).
 */
static const struct {
    const char *key, *values;
} every[] = {
#define OFFSETS "0..256:4 66 260 516 1028 2052 4100 8196"
#define GAPS    "0..70 96 127..129"
#define SIZES   "1..130 192 255..257 511..513 1023..1025 2047..2049 4095..4097"
    { "dst_at", OFFSETS },
    { "src_at", OFFSETS },
    { "v_at", OFFSETS },
    { "q_at", OFFSETS },
    { "rows", SIZES " 8191..8193 16385 32769 65535..65537 131073" },
    { "width", SIZES },
    { "dst_gap", GAPS },
    { "src_gap", GAPS },
    { "spread", "1..17 33 64" },
    { "m", SIZES " 65536" },
    { "n", SIZES " 65536" },
    { "k", SIZES " 8193" },
    { "states", "1..130 255..257 511..513 1023..1025 2047..2049 4095 4096" },
    { "batch", "1..130 145 160 177 192 208 225 241 255 256" },
    { "q_len", "1..130 192 255..257 300 511..513 1025 2049 4096" },
    { "kv_heads", "1..130 192 255..257 511..513 1024" },
    { "group", "1..130 255..257 512 1024" },
    { "head_dim", "8 1..7 9..130 136..576:8 191 193 255 257 319 321 511 513 575 640 768 1000 1024" },
    /* all residues of 32, 64, 96, 97, 128 and 192, twice */
    { "keys", "1..200 207..1600:7 255 257 511..513 1023..1025 2047..2049 4095..4097 8191..8193 16385 32769 "
              "65535..65537 131073" },
    { "runs", "1..4" },
    { "block", "1..130 192 255..257 511..513 1023..1025 2047..2049 4095 4096" },
    { "pad", "0..70 96 100 128 256 1024" },
    { "v_pad", "0..70 96 100 128 256 1024" },
    { "q_gap", GAPS },
    { "scale", "1 0.25 3 0.0625 10" },
    { "a", "0 1 -1 0.5 0.3 -2.75 1000" },
    { "b", "0 1 -1 0.5 0.7 3.25 0.001" },
    { "first", "0..130 192 1000" },
    { "chosen", "0..130 192 255..257 511..513 1000 1023..1025 2047..2049 4095..4097 8193 40000" },
    { "rotary", "0..130:2 192 256" },
    { "eps", "0 1e-06 0.5" },
    { "layers", "1..4" },
    { "hidden", "1..130 255..257 511..513 1023 1024" },
    { "bits", "32..256:32" },
    { "groups", "1..130 255..257" },
    { "dims", "1..70 96 127..129" },
    { "centroids", "1..130 255..257 511..513 1024 4096" },
    { "code_bits", "1..16" },
    { "p", "1 0.9 0.5 0.99 0.001 1e-09 1e-17" },
};

/* The line of a key in such a list, or NULL. */
static const char *line_of(const char *lines, const char *key)
{
    const size_t n = strlen(key);
    for (const char *p = lines; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
        if (!strncmp(p, key, n) && p[n] == ' ') return p;
    return NULL;
}

static void print_values(FILE *f, const struct ha_op *op)
{
    fprintf(f, "[values]\nsuite = device\ncover = values\ncost = %g\nop = %s\ncases = one\n",
            COST_MOST * HA_COVER_MIXED, op->name);
    for (const char *p = op->keys; *p; p += strspn(p, " ")) {
        char key[32];
        size_t i = 0;
        const size_t n = strcspn(p, " ");
        snprintf(key, sizeof key, "%.*s", (int)n, p);
        p += n;
        while (i < sizeof every / sizeof *every && strcmp(every[i].key, key) != 0) i++;
        const char *own = line_of(op->values, key);
        if (!own && i < sizeof every / sizeof *every) fprintf(f, "%s = %s\n", key, every[i].values);
        else if (own || (own = line_of(op->pairs, key))) fprintf(f, "%.*s\n", (int)strcspn(own, "\n"), own);
    }
}

bool ha_op_section(const struct ha_op *op, char *out, size_t size)
{
    FILE *f = op->pairs || op->values ? fmemopen(out, size, "w") : NULL;
    if (!f) return false;
    if (op->pairs)
        fprintf(f, "[pairs]\nsuite = device\ncover = pairs\ncost = %g\nop = %s\ncases = one\n%s", COST_MOST, op->name,
                op->pairs);
    print_values(f, op);
    const bool fits = !ferror(f) && ftell(f) < (long)size;
    return fclose(f) == 0 && fits;
}

struct covering {
    struct ha_op_stage *stage;
    const struct ha_suite *suite;
    const struct ha_op_point *asked;
    bool values; /* of which values there are; else pairs */
    uint64_t cases;
    struct ha_op_point small; /* the last one that is cheap, and has something to do */
};
/* As many calls has each operation at least; and what a case may cost that is called again and again. */
enum { CALLS = 1700, KEPT = 8 };
static const double COST_SMALL = 5e-5, COST_TWICE = 5e-4;

/* Its id, which runs it again, goes before what is wrong. */
static enum ha_status judge_case(const struct covering *c, const struct ha_op_point *p, struct ha_why *why)
{
    struct ha_op_stage *s = c->stage;
    char id[HA_ID_MAX];
    s->of = &p->of;
    const enum ha_status status = ha_ops[p->op]->once(s, s->of);
    s->of = NULL;
    if (status == HA_OK || status == HA_WAIVED) return HA_OK; /* the device has no such head_dim, type, ... */
    ha_point_print(c->suite, p, id, sizeof id);
    return ha_why_prefix(why, status, "'%.300s'", id);
}

struct call {
    const struct covering *c;
    const struct ha_op_point *p;
    struct ha_why *why;
};
static enum ha_status judge_call(void *arg)
{
    const struct call *call = arg;
    return judge_case(call->c, call->p, call->why);
}

/* It draws what the same case alone does. A cheap one is judged twice, with other numbers at the same addresses, and so
 * are of each 16 others 8, one behind the other: what a device remembers of an address is wrong then. Each second 16
 * are called for by threads of their own. */
static enum ha_status judge_point(void *arg, const struct ha_suite *suite, void *point, struct ha_why *why)
{
    struct covering *c = arg;
    struct ha_op_stage *s = c->stage;
    struct ha_op_point *p = point;
    const double cost = ha_op_cost(p);
    /* who asks for small copies gets the cheaper cases, and of the many those that cost next to nothing */
    const size_t most = c->values && s->most > FEW_BYTES ? FEW_BYTES : s->most;
    if (s->most < WHOLE_BYTES && cost > COST_MOST * (double)most / WHOLE_BYTES) return HA_OK;
    memcpy(p->device, c->asked->device, sizeof p->device);
    p->isa = c->asked->isa;
    p->seed = c->asked->seed;
    s->drawn = 0;
    s->keeps = c->cases / KEPT % 2;
    if (cost < COST_SMALL && !p->of.empty && !p->of.special) c->small = *p;
    const bool elsewhere = c->cases++ / (2 * KEPT) % 2, twice = cost < COST_TWICE && s->most >= WHOLE_BYTES;
    struct call call = { c, p, why };
    s->keeps |= twice;
    if (twice) HA_TRY(judge_case(c, p, why));
    return elsewhere ? ha_op_elsewhere(s, judge_call, &call) : judge_call(&call);
}

/* What only one call of many does. */
static enum ha_status judge_often(const struct covering *c, struct ha_why *why)
{
    struct ha_op_stage *s = c->stage;
    enum ha_status status = HA_OK;
    s->keeps = true;
    while (c->small.one && s->most >= WHOLE_BYTES && s->calls && s->calls < CALLS && status == HA_OK) {
        status = judge_case(c, &c->small, why);
        if (status != HA_OK) ha_why_prefix(why, status, "call %llu", (unsigned long long)s->calls);
    }
    s->keeps = false;
    return status;
}

static enum ha_status judge_section(void *arg, const struct ha_file_section *f, struct ha_why *why)
{
    struct covering *c = arg;
    struct ha_covering *covering;
    struct ha_assignments keys = f->keys;
    keys.seed = c->asked->seed;
    c->values = keys.cover == HA_COVERS_VALUES;
    HA_TRY(ha_covering_create(&covering, c->suite, &keys, why));
    const enum ha_status status = ha_covering_expand(covering, judge_point, arg, why);
    ha_covering_destroy(covering);
    return status;
}

enum ha_status ha_op_cover(struct ha_op_stage *stage, const struct ha_suite *suite, const struct ha_op_point *asked,
                           struct ha_why *why)
{
    char text[HA_OP_SECTION_MAX];
    struct covering c = { .stage = stage, .suite = suite, .asked = asked };
    if (!ha_op_section(ha_ops[asked->op], text, sizeof text)) return HA_OK;
    HA_TRY(ha_suite_file_parse(ha_ops[asked->op]->name, text, judge_section, &c, why));
    return judge_often(&c, why);
}
