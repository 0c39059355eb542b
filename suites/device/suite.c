/* Every operation of a device, alone: a row for each, with its own oracle. */

#include "suites/device/point.h"
#include "suites/device/timed.h"

#include "harness/api/suite.h"
#include "harness/base/fingerprint.h"
#include "harness/base/registry.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "harness/engine/machine.h"
#include "harness/report/row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct ha_suite ha_suite_device;

struct row {
    struct ha_result head;
    char device_kind[16], device_name[96];
    double cases, rows, bias, rms;
    char repeated[16];
    struct ha_estimate call_ns;
    double call_bytes, GBps;
};

#define IN(member) HA_IN(struct row, member)
static const struct ha_field fields[] = {
    { "device_kind", "", HA_FIELD_TEXT, IN(device_kind), 1,
      "host and emulated: its memory is this host's; null: it moves nothing" },
    { "device_name", "", HA_FIELD_TEXT, IN(device_name), 1, "what the device calls itself" },
    { "comparisons", "", HA_FIELD_NUMBER, IN(cases), 1, "that were made of what the operation left with what it must" },
    { "bias", "", HA_FIELD_NUMBER, IN(bias), 1,
      "of what is computed, in the call whose errors are the least likely: mean error of the LSE over what independent "
      "roundings make of it; column p_value has how likely it is that errors are roundings",
      HA_NEITHER },
    { "rms", "", HA_FIELD_NUMBER, IN(rms), 1,
      "there: root mean square of what errors have beyond what may have one sign, over the same, of the LSE or o (or "
      "weights, or products); up to 1 all is explained",
      HA_NEITHER },
    { "repeated_rows", "", HA_FIELD_NUMBER, IN(rows), 1, "that were computed again over the same input" },
    { "repeated", "", HA_FIELD_TEXT, IN(repeated), 1,
      "their bits: same; differs, which is a failure; may vary, varies: the same and other bits, which the device does "
      "not promise to be the same" },
    { "call_ns", "ns", HA_FIELD_NUMBER, IN(call_ns.median), 1,
      "of a call of this case, of as many as take a millisecond, one behind the other: median of the samples", HA_LESS,
      .lo = offsetof(struct row, call_ns.lo), .hi = offsetof(struct row, call_ns.hi) },
    { "call_ns_lo", "ns", HA_FIELD_NUMBER, IN(call_ns.lo), 1, "95% interval of the median: lower end" },
    { "call_ns_hi", "ns", HA_FIELD_NUMBER, IN(call_ns.hi), 1, "upper end" },
    { "call_bytes", "bytes", HA_FIELD_NUMBER, IN(call_bytes), 1,
      "of its operands, in place once; empty: an index in device memory says which" },
    { "call_GBps", "GB/s", HA_FIELD_NUMBER, IN(GBps), 1, "call_bytes over call_ns; small operands lie in caches",
      HA_MORE },
};

struct run {
    struct ha_suite_config config;
};

static enum ha_status begin(void **out, const struct ha_suite_config *config, const struct ha_results *before,
                            struct ha_why *why)
{
    struct run *run = *out = calloc(1, sizeof *run);
    if (!run) return ha_why(why, HA_ERROR, "out of memory");
    run->config = *config;
    return HA_OK;
}

static bool lacks(const struct ha_device_api *api, size_t offset)
{
    void (*entry)(void);
    memcpy(&entry, (const char *)api + offset, sizeof entry);
    return !entry;
}

/* HA_WAIVED, where the operation is not offered */
static enum ha_status offered(const struct ha_op *op, const struct ha_device_api *api, struct ha_why *why)
{
    for (size_t i = 0; i < HA_OP_NEEDS && op->needs[i].name; i++)
        if (lacks(api, op->needs[i].offset))
            return ha_why(why, HA_WAIVED, "the device does not offer %s", op->needs[i].name);
    return HA_OK;
}

static bool promises(const struct ha_device_info *info)
{
    bool varies = info->merge.varies;
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) varies |= info->profile[t].varies || info->products[t].varies;
    return !varies;
}

struct judging {
    const struct ha_op *op;
    struct ha_op_stage *stage;
};
static enum ha_status judge_it(void *arg)
{
    const struct judging *j = arg;
    return j->op->judge(j->stage);
}

/* The listed cases. What orders is judged once more by another thread; what has a covering list is there. */
static enum ha_status judge_listed(const struct ha_op *op, struct ha_op_stage *s)
{
    enum { AGAIN = 2 };
    struct judging j = { op, s };
    HA_TRY(op->judge(s));
    if (!(op->held_ms > 0) || op->values) return HA_OK;
    ha_op_clear(s);
    s->once_more = true;
    s->rounds = AGAIN;
    return ha_op_elsewhere(s, judge_it, &j);
}

/* A stage on the device of the point. */
static enum ha_status begin_stage(const struct run *run, const struct ha_op_point *p, struct ha_op_stage *stage,
                                  struct ha_why *why)
{
    *stage = (struct ha_op_stage){ .name = p->device,
                                   .isa = p->isa ? ha_isa_word(p->isa) : NULL,
                                   .of = p->one ? &p->of : NULL,
                                   .most = (size_t)p->bytes,
                                   .rounds = HA_OP_ROUNDS,
                                   .seed = p->seed,
                                   .again = p->repeat };
    if (stage->of) {
        stage->most = p->of.size > 0 ? p->of.size : 1;
        stage->rounds = p->of.times;
    }
    HA_TRY(ha_machine_device(run->config.machine, p->device, stage->isa, &stage->api, &stage->device, why));
    return ha_op_stage_begin(stage, why);
}

static enum ha_status judge_one(const struct ha_op *op, struct ha_op_stage *s)
{
    return op->once ? op->once(s, s->of) : op->judge(s);
}

static enum ha_status open_group(void *arg, struct ha_group *g, struct ha_why *why)
{
    const struct run *run = arg;
    const struct ha_op_point *p = g->point[0];
    struct row *row = g->row[0];
    const struct ha_device_api *api;
    struct ha_device *device;
    struct ha_device_info info = { .name = "" };
    HA_TRY(ha_machine_device(run->config.machine, p->device, p->isa ? ha_isa_word(p->isa) : NULL, &api, &device, why));
    api->info(device, &info);
    snprintf(row->device_kind, sizeof row->device_kind, "%s", api->kind);
    snprintf(row->device_name, sizeof row->device_name, "%.*s", (int)sizeof info.name - 1, info.name);
    return offered(ha_ops[p->op], api, why);
}

static enum ha_status check(void *arg, struct ha_group *g, struct ha_why *why)
{
    const struct ha_op_point *p = g->point[0];
    const struct ha_op *op = ha_ops[p->op];
    struct row *row = g->row[0];
    struct ha_op_stage stage;
    struct ha_device_info info = { .name = "" };
    if (!strcmp(row->device_kind, "null")) {
        row->head.verdict = HA_UNCHECKED;
        strcpy(row->head.reason, "the device does nothing");
        return HA_OK;
    }
    HA_TRY(begin_stage(arg, p, &stage, why));
    stage.api->info(stage.device, &info);
    enum ha_status status = stage.of ? judge_one(op, &stage) : judge_listed(op, &stage);
    if (status == HA_OK && !stage.of) status = ha_op_cover(&stage, &ha_suite_device, p, why);
    const char *failure = stage.api->failure(stage.device);
    if (status == HA_OK && failure) status = ha_why(why, HA_ERROR, "the device failed: %.400s", failure);
    ha_op_stage_end(&stage);
    row->cases = (double)stage.cases;
    if (stage.outputs != HA_FINGERPRINT_BEGIN && promises(&info))
        ha_fingerprint_print(stage.outputs, row->head.outputs);
    ha_suspect_tell(&stage.suspect, &row->head, &row->bias, &row->rms);
    if (stage.repeated) {
        row->rows = (double)stage.repeated;
        strcpy(row->repeated, stage.unpromised ? stage.differed ? "varies" : "may vary"
                              : stage.differed ? "differs"
                                               : "same");
    }
    g->right[0] = status == HA_OK;
    return status;
}

static const uint64_t cap_most_ns = 500000000; /* of timing a case */

/* One case, whose call is repeated; what the last of them left is judged, too. */
static enum ha_status measure(void *arg, struct ha_group *g, struct ha_why *why)
{
    const struct ha_op_point *p = g->point[0];
    const struct ha_op *op = ha_ops[p->op];
    struct row *row = g->row[0];
    struct ha_op_stage stage;
    struct ha_op_timing timing = { .cap_ns = g->cap_ns < cap_most_ns ? g->cap_ns : cap_most_ns };
    if (!p->one) return HA_OK;
    HA_TRY(begin_stage(arg, p, &stage, why));
    const struct ha_device_api *api = stage.api, *timed = ha_timed(&stage, op->needs[0].name, &timing);
    enum ha_status status = HA_OK;
    if (timed) {
        stage.api = timed;
        status = judge_one(op, &stage);
        stage.api = api;
    }
    ha_op_stage_end(&stage);
    if (timing.ns.count) {
        row->head.samples = (double)timing.ns.count;
        row->call_ns = ha_estimate(timing.ns.x, timing.ns.count);
        row->call_bytes = timing.bytes;
        row->GBps = timing.bytes / row->call_ns.median;
    }
    ha_series_free(&timing.ns);
    return status == HA_FAIL && op->in_place ? HA_OK : status;
}

static void end(void *run) { free(run); }

static void print_ops(FILE *out)
{
    for (size_t i = 0; i < ha_ops_count; i++) {
        const char *keys = ha_ops[i]->keys;
        fprintf(out, "%-16s %s%s%s\n", ha_ops[i]->name, ha_ops[i]->doc, keys ? "; one case: " : "", keys ? keys : "");
    }
}
static const struct ha_list lists[] = { { "operations", print_ops } };

/* A line for each operation, with what was wrong, or why it was not judged. */
static void print(FILE *out, const struct ha_results *results)
{
    const struct ha_op_point *last = NULL;
    for (size_t i = 0; i < results->entries; i++) {
        const struct ha_op_point *p = results->entry[i].point;
        const struct row *row = results->entry[i].row;
        if (!row) continue;
        char sizes[96] = "", called[104] = "";
        if (*row->device_name) snprintf(called, sizeof called, " (%s)", row->device_name);
        if (!p->one)
            snprintf(sizes, sizeof sizes, ", copies to %llu bytes, %llu rows again", (unsigned long long)p->bytes,
                     (unsigned long long)p->repeat);
        if (!last || strcmp(last->device, p->device) != 0 || last->isa != p->isa || last->seed != p->seed
            || last->bytes != p->bytes || last->repeat != p->repeat || last->one != p->one)
            fprintf(out, "%sdevice %s%s%s, seed %llu\n", last ? "\n" : "", p->device, called, sizes,
                    (unsigned long long)p->seed);
        last = p;
        fprintf(out, "%-16s %-9s %8.0f comparisons  %s%s", p->one ? results->entry[i].id : ha_ops[p->op]->name,
                ha_verdict_shown(row->head.verdict), row->cases > 0 ? row->cases : 0, row->head.reason,
                *row->head.reason && *row->repeated ? "; " : "");
        if (row->head.samples > 0) fprintf(out, "%.4g us a call", row->call_ns.median * 1e-3);
        if (row->GBps > 0) fprintf(out, ", %.3g GB/s", row->GBps);
        if (*row->repeated) fprintf(out, "%.0f rows again: %s", row->rows, row->repeated);
        putc('\n', out);
    }
}

const struct ha_suite ha_suite_device = {
    .name = "device",
    .doc = "every operation of a device, alone, each with its oracle",
    .key = ha_op_keys,
    .keys = HA_OP_KEYS,
    .class_key = "op",
    .field = fields,
    .fields = sizeof fields / sizeof *fields,
    .file = { "device.csv" },
    .point_bytes = sizeof(struct ha_op_point),
    .row_bytes = sizeof(struct row),
    .list = lists,
    .lists = 1,
    .uses = ha_op_uses,
    .settle = ha_op_settle,
    .cost = ha_op_cost,
    .begin = begin,
    .open = open_group,
    .check = check,
    .measure = measure,
    .end = end,
    .print = print,
};
