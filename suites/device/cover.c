/* The covering lists of an operation: sections as a suite file has them, of which every case is judged on one stage. In
 * one each two values of classes meet; in the other every value of each key is, of all that is cheap, and some beside
 * each power of two up to what the contract allows. */

#include "suites/device/captured.h"
#include "suites/device/point.h"

#include "harness/base/array.h"
#include "harness/base/cover.h"
#include "harness/base/fingerprint.h"
#include "harness/base/sanitizer.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"
#include "harness/engine/point.h"
#include "harness/engine/suite_file.h"

#include <stdio.h>
#include <stdlib.h>
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
    { "k", SIZES " 5000 8193 11008" },
    { "states", "2 1 3..130 255..257 511..513 1023..1025 2047..2049 4095 4096" },
    { "batch", "1..130 145 160 177 192 208 225 241 255..257 512 1025" },
    { "q_len", "1..130 192 255..257 300 511..513 1025 2049 4096" },
    { "kv_heads", "1..130 192 255..257 511..513 1024" },
    { "group", "1..130 255..257 512 1024" },
    { "head_dim", "8 1..7 9..130 136..576:8 191 193 255 257 319 321 511 513 575 640 768 1000 1024" },
    /* all residues of 32, 64, 96, 97, 128 and 192, twice */
    { "keys", "1..200 207..1600:7 255 257 511..513 1023..1025 2047..2049 4095..4097 8191..8193 16385 32769 "
              "65535..65537 131073" },
    { "runs", "1..4" },
    { "block", "1..130 192 255..257 511..513 1023..1025 2047..2049 4095 4096" },
    { "pad", "0..70 96 100 128 256 1024 32768 65536" },
    { "v_pad", "0..70 96 100 128 256 1024 65536" },
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
    { "groups", "1..70 96 97 127..129 255..257" },
    { "dims", "1..40 63..65 127..129" },
    { "centroids", "1..40 63..65 100 127..129 255..257 511..513 1024 4096" },
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

/* Two threads judge, each on a stage of its own: what a call does to another one that runs at the same time is seen,
 * too. */
enum { STAGES = 2 };
struct covering {
    size_t stages; /* 1 of what calls a library, which may wait in its first call for all that is enqueued */
    struct ha_op_stage *stage[STAGES];    /* the second one is made for this */
    const struct ha_device_api *captured; /* or NULL */
    const struct ha_suite *suite;
    const struct ha_op_point *asked;
    bool values;                   /* of which values there are; else pairs */
    struct ha_op_point *of, small; /* of a section; small: the cheapest one that has something to do */
    double least;                  /* what that costs */
    size_t count, room;
    size_t failed;  /* atomic: the first that is wrong, or more than there are */
    uint64_t calls; /* of a stage, at least */
};
/* As many calls has each operation at least; and what a case may cost that is called again and again. */
enum { CALLS = HA_SANITIZED ? 300 : 4200, KEPT = 8, ANEW = HA_SANITIZED ? 200 : 13 };
static const double COST_SMALL = 5e-5, COST_TWICE = 5e-4, COST_MIXED = 4e-4;

/* Its id, which runs it again, goes before what is wrong. */
static enum ha_status judge_case(const struct covering *c, struct ha_op_stage *s, const struct ha_op_point *p)
{
    struct ha_why *why = s->why;
    char id[HA_ID_MAX];
    s->of = &p->of;
    const enum ha_status status = ha_ops[p->op]->once(s, s->of);
    s->of = NULL;
    if (status == HA_OK || status == HA_WAIVED) return HA_OK; /* the device has no such head_dim, type, ... */
    ha_point_print(c->suite, p, id, sizeof id);
    return ha_why_prefix(why, status, "'%.300s'", id);
}

/* The call in a graph of its own. One that is launched once is captured by a stream of both stages, so that two graphs
 * of one stream run at a time on two others. */
static enum ha_status judge_captured(const struct covering *c, struct ha_op_stage *s, const struct ha_op_point *p,
                                     bool launches_twice)
{
    const struct ha_device_api *const api = s->api;
    s->api = c->captured;
    s->captures = true;
    s->launches_twice = launches_twice;
    ha_captured_by(launches_twice ? NULL : c->stage[0]->stream[1]);
    const enum ha_status status = judge_case(c, s, p);
    s->api = api;
    s->launches_twice = s->captures = false;
    ha_captured_clear();
    return status == HA_OK ? status : ha_why_prefix(s->why, status, "captured as a graph and launched");
}

struct call {
    const struct covering *c;
    struct ha_op_stage *s;
    const struct ha_op_point *p;
};
static enum ha_status judge_call(void *arg)
{
    const struct call *call = arg;
    return judge_case(call->c, call->s, call->p);
}

/* Case i of a stage. It draws what the same case alone does. A cheap one is judged twice, with other numbers at the
 * same addresses, and so are of each 16 others 8, one behind the other: what a device remembers of an address is wrong
 * then. Each second 16 are called for by threads of their own, and of the other ones each second is captured as a
 * graph. Each 13th is the first call on its stream; where
 * a thread is dear, few are. */
static enum ha_status judge_point(const struct covering *c, struct ha_op_stage *s, const struct ha_op_point *p,
                                  size_t i)
{
    const bool elsewhere = i / (2 * KEPT) % 2, captured = c->captured && !elsewhere && i % 2,
               twice = ha_op_cost(p) < COST_TWICE && s->most >= WHOLE_BYTES;
    struct call call = { c, s, p };
    if (i % ANEW == ANEW - 1) HA_TRY(ha_op_anew(s));
    s->drawn = 0;
    s->keeps = i / KEPT % 2 || twice;
    s->pairs = twice && i / 2 % 2 && !ha_ops[p->op]->whole && !p->of.special && !p->of.edge;
    if (twice) HA_TRY(judge_case(c, s, p));
    s->splices = s->pairs;
    const enum ha_status status = captured    ? judge_captured(c, s, p, i / 2 % 2)
                                  : elsewhere ? ha_op_elsewhere(s, judge_call, &call)
                                              : judge_call(&call);
    s->pairs = s->splices = false;
    return status;
}

static enum ha_status take_point(void *arg, const struct ha_suite *suite, void *point, struct ha_why *why)
{
    struct covering *c = arg;
    struct ha_op_point *p = point;
    const struct ha_op_stage *s = c->stage[0];
    const double cost = ha_op_cost(p);
    /* who asks for small copies gets the cheaper cases, and of the many those that cost next to nothing */
    const size_t most = c->values && s->most > FEW_BYTES ? FEW_BYTES : s->most;
    if (s->most < WHOLE_BYTES && cost > COST_MOST * (double)most / WHOLE_BYTES) return HA_OK;
    memcpy(p->device, c->asked->device, sizeof p->device);
    p->isa = c->asked->isa;
    p->seed = c->asked->seed;
    if (cost < c->least && !p->of.empty && !p->of.special) {
        c->least = cost;
        c->small = *p;
    }
    if (!ha_array_room(&c->of, &c->room, c->count + 1, sizeof *c->of)) return ha_why(why, HA_ERROR, "out of memory");
    c->of[c->count++] = *p;
    return HA_OK;
}

/* ---- two at once ------------------------------------------------------------------------------------------------- */

struct judging {
    struct covering *c;
    size_t stage;
    enum ha_status status;
    size_t at; /* the case that is wrong */
};

static void *judge_points(void *arg)
{
    struct judging *j = arg;
    struct covering *c = j->c;
    for (size_t i = j->stage; i < __atomic_load_n(&c->failed, __ATOMIC_ACQUIRE) && j->status == HA_OK; i += c->stages) {
        j->status = judge_point(c, c->stage[j->stage], &c->of[i], i / c->stages);
        j->at = i;
    }
    ha_captured_alone(true);
    size_t first = __atomic_load_n(&c->failed, __ATOMIC_ACQUIRE);
    while (j->status != HA_OK && j->at < first
           && !__atomic_compare_exchange_n(&c->failed, &first, j->at, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    }
    return NULL;
}

/* Another case of values that cases have: *p with one value of a second one, or a mixture of two. false: there is no
 * such case, or it is too dear. */
static bool cross(const struct covering *c, struct ha_op_stage *s, struct ha_op_point *p)
{
    struct ha_why unfit;
    struct ha_op_point mixed = ha_op_draw(s, 2) ? *p : c->of[ha_op_draw(s, c->count)];
    const struct ha_op_point *const other = &c->of[ha_op_draw(s, c->count)];
    const bool one = ha_op_draw(s, 2);
    for (size_t i = 0; i < (one ? 1 : HA_OP_KEYS); i++) {
        const size_t key = one ? ha_op_draw(s, HA_OP_KEYS) : i, at = ha_op_keys[key].offset;
        if (at < offsetof(struct ha_op_point, of) || !ha_op_uses(&mixed, key) || (!one && ha_op_draw(s, 2))) continue;
        memcpy((char *)&mixed + at, (const char *)other + at, sizeof(size_t));
    }
    if (ha_op_settle(&mixed, &unfit) != HA_OK || ha_op_cost(&mixed) > COST_MIXED) return false;
    *p = mixed;
    return true;
}

/* Cheap cases until the stage has made c->calls calls, at the same addresses: a fault of the n-th call alone is seen,
 * what is remembered of a call before, and what takes several values at once. It ends where the device waives the
 * cases. */
static void *judge_often(void *arg)
{
    enum { WAIVED_MOST = 100, TRIES = 8 };
    struct judging *j = arg;
    struct ha_op_stage *s = j->c->stage[j->stage];
    struct ha_op_point p = j->c->small;
    uint64_t draws = 0, before;
    s->keeps = true;
    for (size_t waived = 0; j->status == HA_OK && s->calls < j->c->calls && waived < WAIVED_MOST;) {
        before = s->calls;
        s->drawn = ++draws << 40;
        for (size_t tries = 0; tries < TRIES && !cross(j->c, s, &p); tries++) continue;
        s->drawn = 0;
        j->status = judge_case(j->c, s, &p);
        waived = s->calls == before ? waived + 1 : 0;
    }
    s->keeps = false;
    if (j->status != HA_OK) ha_why_prefix(s->why, j->status, "call %llu", (unsigned long long)s->calls);
    return NULL;
}

/* By both stages, to the end of both. Of two that are wrong the first case is said. */
static enum ha_status by_two(struct covering *c, void *(*judge)(void *arg))
{
    struct judging j[STAGES] = { { c, 0, HA_OK, SIZE_MAX }, { c, 1, HA_OK, SIZE_MAX } };
    pthread_t thread;
    const bool two = c->stages > 1, starts = two && ha_thread_start(&thread, judge, &j[1]) == 0;
    judge(&j[0]);
    if (!two) return j[0].status;
    if (!starts) return ha_why(c->stage[0]->why, HA_ERROR, "no thread to be had");
    pthread_join(thread, NULL);
    if (j[1].status == HA_OK || (j[0].status != HA_OK && j[0].at <= j[1].at)) return j[0].status;
    return ha_why(c->stage[0]->why, j[1].status, "%s", c->stage[1]->why->text);
}

static enum ha_status judge_section(void *arg, const struct ha_file_section *f, struct ha_why *why)
{
    struct covering *c = arg;
    struct ha_covering *covering;
    struct ha_assignments keys = f->keys;
    keys.seed = c->asked->seed;
    c->values = keys.cover == HA_COVERS_VALUES;
    c->count = 0;
    HA_TRY(ha_covering_create(&covering, c->suite, &keys, why));
    const enum ha_status status = ha_covering_expand(covering, take_point, arg, why);
    ha_covering_destroy(covering);
    HA_TRY(status);
    c->failed = c->count;
    ha_captured_alone(c->stages == 1);
    return by_two(c, judge_points);
}

static enum ha_status judge_sections(struct covering *c, const char *text, struct ha_why *why)
{
    const struct ha_op_stage *s = c->stage[0];
    HA_TRY(ha_suite_file_parse(ha_ops[c->asked->op]->name, text, judge_section, c, why));
    c->calls = CALLS / c->stages;
    return c->small.one && s->most >= WHOLE_BYTES && s->calls ? by_two(c, judge_often) : HA_OK;
}

enum ha_status ha_op_cover(struct ha_op_stage *stage, const struct ha_suite *suite, const struct ha_op_point *asked,
                           struct ha_why *why)
{
    char text[HA_OP_SECTION_MAX];
    struct ha_why reason = { "" };
    const char *const entry = ha_ops[asked->op]->needs[0].name;
    struct ha_op_stage beside = { .api = stage->api,
                                  .device = stage->device,
                                  .name = stage->name,
                                  .isa = stage->isa,
                                  .most = stage->most,
                                  .rounds = stage->rounds,
                                  .seed = stage->seed,
                                  .once_more = stage->once_more };
    struct covering c = { .stage = { stage, &beside },
                          .suite = suite,
                          .asked = asked,
                          .least = COST_SMALL,
                          .stages = entry && ha_calls_library(entry) ? 1 : STAGES,
                          .captured = ha_captured(stage->api, entry) };
    if (!ha_op_section(ha_ops[asked->op], text, sizeof text)) return HA_OK;
    if (ha_op_stage_begin(&beside, &reason) != HA_OK) return ha_why(why, HA_ERROR, "%s", reason.text);
    const enum ha_status status = judge_sections(&c, text, why);
    ha_op_stage_end(&beside);
    free(c.of);
    stage->cases += beside.cases;
    if (beside.calls) stage->outputs = ha_fingerprint_bytes(stage->outputs, &beside.outputs, sizeof beside.outputs);
    ha_suspect_join(&stage->suspect, &beside.suspect);
    return status;
}
