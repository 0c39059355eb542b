#include "suites/link/suite.h"

#include "harness/base/clock.h"
#include "harness/base/order_api.h"
#include "harness/base/registry.h"
#include "harness/base/stats.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "harness/engine/machine.h"
#include "harness/measure/ceilings.h"
#include "harness/measure/paired.h"
#include "harness/measure/sampling.h"
#include "harness/report/row.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- keys ------------------------------------------------------------------------------------------------------ */

/* Powers of 4, and the 4 KB and 128 KB of the papers. */
const size_t ha_link_pieces[HA_LINK_PIECES] = {
    256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20,
};
static const char *const pieces[HA_LINK_PIECES + 1] = {
    "256", "1K", "4K", "16K", "64K", "128K", "256K", "1M", "4M", "16M", NULL,
};

const char *ha_link_piece_name(size_t piece) { return pieces[piece]; }
HA_WORDS(layout_word, "contiguous", "scattered")
static const char *method_word(size_t i) { return i < ha_link_methods_count ? ha_link_methods[i].name : NULL; }

/* as a word, or in bytes */
static enum ha_status set_piece(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    struct ha_link_point *p = point;
    for (size_t i = 0; i < HA_LINK_PIECES; i++) {
        char bytes[32];
        snprintf(bytes, sizeof bytes, "%zu", ha_link_pieces[i]);
        if (strcmp(value, pieces[i]) != 0 && strcmp(value, bytes) != 0) continue;
        p->piece = i;
        return HA_OK;
    }
    return ha_unknown(why, key->name, value, pieces);
}

#define AT(member) .offset = offsetof(struct ha_link_point, member)
static const struct ha_key keys[] = {
    { "layout", "*", "where the pieces lie on the host: next to each other, or in random order over the whole source",
      HA_KEY_WORD, AT(scattered), .word = layout_word, .always = true, .column = true, .draw = "*" },
    { "piece", "*", "the size of a piece: 4K or 4096", HA_KEY_WORD, AT(piece), .word = ha_link_piece_name,
      .set = set_piece, .always = true, .draw = "*" },
    { "method", "*", "how they are moved", HA_KEY_WORD, AT(method), .word = method_word, .always = true, .column = true,
      .draw = "*" },
    { "device", "host", "a name, or the path of a plugin", HA_KEY_NAME, AT(device),
      .max = sizeof((struct ha_link_point *)0)->device, .device = true, .column = true },
    { "isa", "best", "instruction set of the kernels that the device may compute with", HA_KEY_WORD, AT(isa),
      .word = ha_isa_word, .column = true },
    { "seed", "1", "of the random order", HA_KEY_NUMBER, AT(seed), .max = UINT64_MAX, .column = true,
      .draw = "1..1000000:1" },
};

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* clang-format off */
#define IN(member) HA_IN(struct ha_link_row, member)
#define TEXT(name, member, doc) { name, "", HA_FIELD_TEXT, IN(member), 1, doc }
#define NUMBER(name, unit, member, ...) { name, unit, HA_FIELD_NUMBER, IN(member), 1, __VA_ARGS__ }
static const struct ha_field fields[] = {
    TEXT("direction", direction, "h2d: to the device; d2h: back"),
    NUMBER("piece_bytes", "bytes", piece_bytes, "of a piece"),
    NUMBER("threads", "", threads, "of the CPU that move the bytes; empty where none does"),
    NUMBER("cores", "", cores, "that this process may use"),
    TEXT("device_kind", device_kind, "host and emulated: its memory is this host's; null: it moves nothing"),
    TEXT("device_name", device_name, "what the device calls itself"),
    NUMBER("pieces", "", pieces, "of one move"),
    NUMBER("moved_bytes", "bytes", moved_bytes, "by one move"),
    NUMBER("source_bytes", "bytes", source_bytes, "of each kind of host memory, through which moves go"),
    NUMBER("verified_bytes", "bytes", verified_bytes, "that were compared with where they came from"),
    NUMBER("GBps", "GB/s", GBps, "10^9 bytes a second: median of all samples", HA_MORE,
           offsetof(struct ha_link_row, lo), offsetof(struct ha_link_row, hi)),
    NUMBER("GBps_lo", "GB/s", lo, "95% interval of the median: lower end"),
    NUMBER("GBps_hi", "GB/s", hi, "upper end"),
    NUMBER("GBps_least", "GB/s", least, "the slowest sample"),
    NUMBER("GBps_most", "GB/s", most, "the fastest sample"),
    NUMBER("ceiling_GBps", "GB/s", ceiling_GBps, "large pinned copies that way, in this run", HA_NEITHER),
    NUMBER("link_share", "", share, "GBps over ceiling_GBps; empty where there is no link", HA_MORE),
    TEXT("disturbed", disturbed, "what else used the cores meanwhile: load, steal, throttled; empty: nothing was seen"),
};
/* clang-format on */

/* ---- a run ------------------------------------------------------------------------------------------------------- */

struct link_run {
    struct ha_suite_config config;
    struct ha_link_limits limits;
    struct ha_link_bench bench; /* open from the first group to the last, while their device is the same */
    char device[sizeof((struct ha_link_point *)0)->device];
    size_t isa;
    const struct ha_ceilings *ceilings; /* the machine's; NULL: nothing is measured */
    const struct ha_link_point *point;  /* of the group: how the bench is laid out */
};

static const struct ha_link_point *point_of(const struct ha_group *g, size_t i) { return g->point[i]; }
static const struct ha_link_method *method_of(const struct ha_group *g, size_t i)
{
    return &ha_link_methods[point_of(g, i)->method];
}
static enum ha_direction direction(const struct ha_link_point *p) { return ha_link_methods[p->method].dir; }

static bool together(const void *x, const void *y)
{
    const struct ha_link_point *a = x, *b = y;
    return direction(a) == direction(b) && a->scattered == b->scattered && a->piece == b->piece && a->isa == b->isa
           && a->seed == b->seed && !strcmp(a->device, b->device);
}

/* A source larger than the caches: what a move reads is in none of them when its turn comes. */
static size_t source_here(void)
{
    const size_t least = (size_t)256 << 20, most = (size_t)1 << 30;
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t source = least;
    while (cache > 0 && source < (size_t)cache && source < most) source *= 2;
    return ha_measure_share(source);
}

static enum ha_status begin(void **out, const struct ha_suite_config *config, const struct ha_results *before,
                            struct ha_why *why)
{
    struct link_run *run = *out = calloc(1, sizeof *run);
    if (!run) return ha_why(why, HA_ERROR, "out of memory");
    const bool m = config->measure;
    const size_t move = (size_t)(m ? 32 : 16) << 20, source = m ? source_here() : (size_t)64 << 20;
    run->config = *config;
    run->limits = (struct ha_link_limits){ .source_bytes = source > move ? source : move,
                                           .move_bytes = move,
                                           .pieces = m ? 32768 : 4096 };
    return HA_OK;
}

void ha_link_run_limit(void *arg, const struct ha_link_limits *l)
{
    struct link_run *run = arg;
    if (l->source_bytes) run->limits.source_bytes = l->source_bytes;
    if (l->move_bytes) run->limits.move_bytes = l->move_bytes;
    if (l->pieces) run->limits.pieces = l->pieces;
    if (l->cores) run->limits.cores = l->cores;
}

static void close_bench(struct link_run *run)
{
    if (run->bench.api) ha_link_bench_close(&run->bench);
    if (run->config.order) ha_order_end();
}

/* The bench on the device of the point, laid out for it. What lies on a device goes before the device does. */
static enum ha_status ready(struct link_run *run, struct ha_why *why)
{
    const struct ha_link_point *p = run->point;
    const struct ha_device_api *api;
    struct ha_device *device;
    const bool fits = run->bench.api && !strcmp(run->device, p->device) && run->isa == p->isa
                      && !run->bench.api->failure(run->bench.device);
    if (!fits) close_bench(run);
    HA_TRY(ha_machine_device(run->config.machine, p->device, p->isa ? ha_isa_word(p->isa) : NULL, &api, &device, why));
    if (run->config.measure) HA_TRY(ha_machine_ceilings(run->config.machine, &run->ceilings, why));
    if (!run->bench.api && run->config.order) {
        HA_TRY(ha_order_begin(why));
        api = ha_order_wrap(api);
    }
    if (!run->bench.api) HA_TRY(ha_link_bench_open(&run->bench, api, device, &run->limits, why));
    snprintf(run->device, sizeof run->device, "%s", p->device);
    run->isa = p->isa;
    return ha_link_bench_lay(&run->bench, ha_link_pieces[p->piece], p->scattered, p->seed, why);
}

static void describe(const struct link_run *run, struct ha_group *g)
{
    const struct ha_link_bench *b = &run->bench;
    struct ha_device_info info;
    b->api->info(b->device, &info);
    const struct ha_link_plan plan = ha_link_bench_plan(b, HA_LINK_PINNED, 0);
    for (size_t i = 0; i < g->count; i++) {
        struct ha_link_row *r = g->row[i];
        const struct ha_link_method *m = method_of(g, i);
        if (m->threads) r->threads = m->threads == HA_LINK_ALL ? (double)b->cores : (double)m->threads;
        snprintf(r->device_kind, sizeof r->device_kind, "%s", b->api->kind);
        snprintf(r->device_name, sizeof r->device_name, "%s", info.name);
        r->cores = (double)b->cores;
        r->source_bytes = (double)b->limits.source_bytes;
        r->pieces = (double)plan.pieces;
        r->moved_bytes = (double)(plan.pieces * plan.piece_bytes);
        if (run->ceilings) r->ceiling_GBps = run->ceilings->of[m->dir == HA_H2D ? HA_CEIL_H2D : HA_CEIL_D2H].hi;
    }
}

static enum ha_status open_group(void *arg, struct ha_group *g, struct ha_why *why)
{
    struct link_run *run = arg;
    run->point = point_of(g, 0);
    for (size_t i = 0; i < g->count; i++) {
        struct ha_link_row *r = g->row[i];
        strcpy(r->direction, direction(run->point) == HA_H2D ? "h2d" : "d2h");
        r->piece_bytes = (double)ha_link_pieces[run->point->piece];
    }
    HA_TRY(ready(run, why));
    describe(run, g);
    return HA_OK;
}

/* A device that failed stays so: the next method gets a fresh one. */
static enum ha_status after_error(struct link_run *run, struct ha_group *g, size_t i, const struct ha_why *because,
                                  struct ha_why *why)
{
    ha_result_of(g->row[i])->verdict = HA_NOT_RUN;
    ha_result_set(g, i, HA_ERROR, because);
    return run->bench.api->failure(run->bench.device) ? ready(run, why) : HA_OK;
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

static enum ha_status check_one(struct link_run *run, struct ha_group *g, size_t i, struct ha_why *why)
{
    struct ha_link_row *r = g->row[i];
    struct ha_why because = { "" };
    size_t verified = 0;
    char text[512];
    const char *lacks = ha_link_method_lacks(method_of(g, i), &run->bench, text);
    if (lacks) {
        ha_result_set(g, i, ha_why(&because, HA_WAIVED, "%s", lacks), &because);
        return HA_OK;
    }
    if (!strcmp(run->bench.api->kind, "null")) {
        r->head.verdict = HA_UNCHECKED;
        strcpy(r->head.reason, "the device moves nothing");
        return HA_OK;
    }
    enum ha_status status = ha_link_bench_verify(&run->bench, method_of(g, i), 0, &verified, &because);
    if (run->config.order && status != HA_ERROR && ha_order_verdict(ha_order_now(), &because) == HA_FAIL) {
        ha_result_set(g, i, HA_FAIL, &because);
        close_bench(run); /* the next method has a history of its own */
        return ready(run, why);
    }
    g->right[i] = status == HA_OK;
    if (status == HA_OK) r->verified_bytes = (double)verified;
    else if (status == HA_FAIL) ha_result_set(g, i, status, &because);
    else return after_error(run, g, i, &because, why);
    return HA_OK;
}

static enum ha_status check(void *run, struct ha_group *g, struct ha_why *why)
{
    for (size_t i = 0; i < g->count; i++) {
        if (ha_stop) return ha_why(why, HA_WAIVED, "stopped");
        HA_TRY(check_one(run, g, i, why));
    }
    return HA_OK;
}

/* ---- measure ----------------------------------------------------------------------------------------------------- */

static const struct ha_sampling rule = { .least = 7, .most = 60, .interval = 0.02 };
static const uint64_t cap_most_ns = 600000000; /* of measuring a group */

static bool runs(const struct ha_group *g, size_t i) { return ha_result_of(g->row[i])->verdict == HA_NOT_RUN; }

/* A round: one sample of each method, in another order in each round. */
static enum ha_status measure_round(struct link_run *run, struct ha_group *g, struct ha_series *series, size_t round,
                                    struct ha_why *why)
{
    for (size_t k = 0; k < g->count; k++) {
        const size_t i = (k + round) % g->count;
        struct ha_why because = { "" };
        double GBps;
        const bool full = series[i].count == rule.most;
        if (!runs(g, i) || (full && !g->meeting)) continue;
        if (ha_stop) return ha_why(why, HA_WAIVED, "stopped");
        const enum ha_status status = ha_link_bench_time(&run->bench, method_of(g, i), 1 + round * g->count + k, &GBps,
                                                         &because);
        if (status != HA_OK) HA_TRY(after_error(run, g, i, &because, why));
        else if (!full) HA_TRY(ha_series_add(&series[i], GBps, why));
    }
    return HA_OK;
}

/* cap_ns ends it only after the least number of rounds, unless four times as long is over, or the deadline. */
static bool enough(const struct ha_group *g, const struct ha_series *series, size_t rounds, uint64_t took_ns)
{
    const uint64_t cap_ns = g->cap_ns < cap_most_ns ? g->cap_ns : cap_most_ns;
    if (took_ns >= 4 * cap_ns || (g->deadline_ns && ha_now_ns() >= g->deadline_ns)) return true;
    if (rounds >= rule.least && took_ns >= cap_ns) return true;
    for (size_t i = 0; i < g->count; i++)
        if (runs(g, i) && !ha_sampling_enough(&rule, series[i].x, series[i].count)) return false;
    return true;
}

static void conclude(struct ha_link_row *r, const struct ha_series *s, const char *disturbed)
{
    const struct ha_estimate e = ha_estimate(s->x, s->count);
    snprintf(r->disturbed, sizeof r->disturbed, "%s", disturbed);
    r->head.samples = (double)s->count;
    r->GBps = e.median;
    r->lo = e.lo;
    r->hi = e.hi;
    r->least = ha_quantile(s->x, s->count, 0);
    r->most = ha_quantile(s->x, s->count, 1);
    if (ha_has_link(r->device_kind)) r->share = r->GBps / r->ceiling_GBps;
}

static enum ha_status measure_all(struct link_run *run, struct ha_group *g, struct ha_series *series,
                                  struct ha_why *why)
{
    struct ha_core_counts before, after;
    char disturbed[HA_DISTURBED_MAX];
    size_t rounds = 0;
    ha_meeting_begin(g->meeting);
    ha_core_counts_read("", &before);
    const uint64_t begin = ha_now_ns();
    do HA_TRY(measure_round(run, g, series, rounds++, why));
    while (ha_meeting_goes_on(g->meeting, enough(g, series, rounds, ha_now_ns() - begin)));
    if (ha_stop) return ha_why(why, HA_WAIVED, "stopped");
    ha_core_counts_read("", &after);
    ha_disturbed_judge(&before, &after, 0, 0, "", disturbed);
    for (size_t i = 0; i < g->count; i++)
        if (runs(g, i)) conclude(g->row[i], &series[i], disturbed);
    return HA_OK;
}

static enum ha_status measure(void *run, struct ha_group *g, struct ha_why *why)
{
    struct ha_series *series = calloc(g->count, sizeof *series);
    if (!series) return ha_why(why, HA_ERROR, "out of memory");
    const enum ha_status status = measure_all(run, g, series, why);
    for (size_t i = 0; i < g->count; i++) ha_series_free(&series[i]);
    free(series);
    return status;
}

static void end(void *arg)
{
    close_bench(arg);
    free(arg);
}

const struct ha_suite ha_suite_link = {
    .name = "link",
    .doc = "every way to move bytes to the device and back",
    .key = keys,
    .keys = sizeof keys / sizeof *keys,
    .class_key = "method",
    .field = fields,
    .fields = sizeof fields / sizeof *fields,
    .file = { "link.csv" },
    .point_bytes = sizeof(struct ha_link_point),
    .row_bytes = sizeof(struct ha_link_row),
    .options = " order ",
    .together = together,
    .begin = begin,
    .open = open_group,
    .check = check,
    .measure = measure,
    .end = end,
    .print = ha_link_print,
    .conclude = ha_link_conclude,
};
