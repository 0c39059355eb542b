#include "suites/link/suite.h"

#include "harness/api/kernels.h"
#include "harness/base/registry.h"
#include "harness/base/try.h"
#include "harness/base/why.h"
#include "harness/base/words.h"
#include "harness/engine/machine.h"
#include "suites/link/group.h"
#include "suites/link/tables.h"

#include <stdio.h>
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
static const char *layout_word(size_t i) { return i == 0 ? "contiguous" : i == 1 ? "scattered" : NULL; }
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

#define AT(member) offsetof(struct ha_link_point, member)
static const struct ha_key keys[] = {
    { .name = "layout",
      .value = "*",
      .doc = "where the pieces lie on the host: next to each other, or in random order over the whole source",
      .kind = HA_KEY_WORD,
      .offset = AT(scattered),
      .word = layout_word,
      .always = true,
      .column = true },
    { .name = "piece",
      .value = "*",
      .doc = "the size of a piece: 4K or 4096",
      .kind = HA_KEY_WORD,
      .offset = AT(piece),
      .word = ha_link_piece_name,
      .set = set_piece,
      .always = true },
    { .name = "method",
      .value = "*",
      .doc = "how they are moved",
      .kind = HA_KEY_WORD,
      .offset = AT(method),
      .word = method_word,
      .always = true,
      .column = true },
    { .name = "device",
      .value = "host",
      .doc = "a name, or the path of a plugin",
      .kind = HA_KEY_NAME,
      .offset = AT(device),
      .max = sizeof((struct ha_link_point *)0)->device,
      .device = true,
      .column = true },
    { .name = "isa",
      .value = "best",
      .doc = "instruction set of the kernels that the device may compute with",
      .kind = HA_KEY_WORD,
      .offset = AT(isa),
      .word = ha_isa_word,
      .column = true },
    { .name = "seed",
      .value = "1",
      .doc = "of the random order",
      .kind = HA_KEY_NUMBER,
      .offset = AT(seed),
      .max = UINT64_MAX,
      .column = true },
};
#undef AT

/* ---- columns ----------------------------------------------------------------------------------------------------- */

#define ROW(member) offsetof(struct ha_link_row, member)
#define TEXT(name, member, doc)                                                                                   \
    {                                                                                                             \
        name, "", HA_FIELD_TEXT, ROW(member), sizeof((struct ha_link_row *)0)->member, 1, HA_NO_FIGURE, 0, 0, doc \
    }
#define NUMBER(name, unit, member, better, doc)                           \
    {                                                                     \
        name, unit, HA_FIELD_NUMBER, ROW(member), 0, 1, better, 0, 0, doc \
    }
#define MEDIAN(name, unit, member, lo, hi, how, doc)                               \
    {                                                                              \
        name, unit, HA_FIELD_NUMBER, ROW(member), 0, 1, how, ROW(lo), ROW(hi), doc \
    }
static const struct ha_field fields[] = {
    TEXT("direction", direction, "h2d: to the device; d2h: back"),
    NUMBER("piece_bytes", "bytes", piece_bytes, HA_NO_FIGURE, "of a piece"),
    NUMBER("threads", "", threads, HA_NO_FIGURE, "of the CPU that move the bytes; empty where none does"),
    NUMBER("cores", "", cores, HA_NO_FIGURE, "that this process may use"),
    TEXT("device_kind", device_kind, "host and emulated: its memory is this host's; null: it moves nothing"),
    TEXT("device_name", device_name, "what the device calls itself"),
    NUMBER("pieces", "", pieces, HA_NO_FIGURE, "of one move"),
    NUMBER("moved_bytes", "bytes", moved_bytes, HA_NO_FIGURE, "by one move"),
    NUMBER("source_bytes", "bytes", source_bytes, HA_NO_FIGURE, "of each kind of host memory, through which moves go"),
    NUMBER("verified_bytes", "bytes", verified_bytes, HA_NO_FIGURE, "that were compared with where they came from"),
    MEDIAN("GBps", "GB/s", GBps, lo, hi, HA_MORE, "10^9 bytes a second: median of all samples"),
    NUMBER("GBps_lo", "GB/s", lo, HA_NO_FIGURE, "95% interval of the median: lower end"),
    NUMBER("GBps_hi", "GB/s", hi, HA_NO_FIGURE, "upper end"),
    NUMBER("GBps_least", "GB/s", least, HA_NO_FIGURE, "the slowest sample"),
    NUMBER("GBps_most", "GB/s", most, HA_NO_FIGURE, "the fastest sample"),
    NUMBER("ceiling_GBps", "GB/s", ceiling_GBps, HA_NEITHER, "large pinned copies that way, in this run"),
    NUMBER("link_share", "", share, HA_MORE, "GBps over ceiling_GBps; empty where there is no link"),
};

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
static enum ha_direction direction(const struct ha_link_point *p) { return ha_link_methods[p->method].dir; }

static bool together(const void *x, const void *y)
{
    const struct ha_link_point *a = x, *b = y;
    return direction(a) == direction(b) && a->scattered == b->scattered && a->piece == b->piece && a->isa == b->isa
           && a->seed == b->seed && !strcmp(a->device, b->device);
}

bool ha_link_is_link(const char *kind)
{
    return strcmp(kind, "host") != 0 && strcmp(kind, "emulated") != 0 && strcmp(kind, "null") != 0;
}

/* What is read in turn is in no cache when all of it is larger; the kinds of memory take turns besides. */
static size_t source_here(void)
{
    const size_t least = (size_t)256 << 20, most = (size_t)1 << 30;
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t source = least;
    while (cache > 0 && source < (size_t)cache && source < most) source *= 2;
    return source;
}

static enum ha_status begin(void **out, const struct ha_suite_config *config, const struct ha_results *before,
                            struct ha_why *why)
{
    struct link_run *run = *out = calloc(1, sizeof *run);
    (void)before;
    if (!run) return ha_why(why, HA_ERROR, "out of memory");
    const bool m = config->measure;
    run->config = *config;
    run->limits = (struct ha_link_limits){ .source_bytes = m ? source_here() : (size_t)64 << 20,
                                           .move_bytes = (size_t)(m ? 32 : 16) << 20,
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
}

/* The bench on the device of the point, laid out for it. What lies on a device goes before the device does. */
static enum ha_status ready(struct link_run *run, const struct ha_link_point *p, struct ha_why *why)
{
    const struct ha_device_api *api;
    struct ha_device *device;
    const bool fits = run->bench.api && !strcmp(run->device, p->device) && run->isa == p->isa
                      && !run->bench.api->failure(run->bench.device);
    if (!fits) close_bench(run);
    HA_TRY(ha_machine_device(run->config.machine, p->device, p->isa ? ha_isa_word(p->isa) : NULL, &api, &device, why));
    if (run->config.measure) HA_TRY(ha_machine_ceilings(run->config.machine, &run->ceilings, why));
    if (!run->bench.api) HA_TRY(ha_link_bench_open(&run->bench, api, device, &run->limits, why));
    snprintf(run->device, sizeof run->device, "%s", p->device);
    run->isa = p->isa;
    return ha_link_bench_lay(&run->bench, ha_link_pieces[p->piece], p->scattered, p->seed, why);
}

static enum ha_status reopen(void *arg, struct ha_why *why)
{
    struct link_run *run = arg;
    return ready(run, run->point, why);
}

static void describe(const struct link_run *run, struct ha_group *g)
{
    const struct ha_link_bench *b = &run->bench;
    struct ha_device_info info;
    b->api->info(b->device, &info);
    const struct ha_link_plan plan = ha_link_bench_plan(b, HA_LINK_PINNED, 0);
    for (size_t i = 0; i < g->count; i++) {
        struct ha_link_row *r = g->row[i];
        const struct ha_link_method *m = &ha_link_methods[point_of(g, i)->method];
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
    HA_TRY(ready(run, run->point, why));
    describe(run, g);
    return HA_OK;
}

static enum ha_status check(void *arg, struct ha_group *g, struct ha_why *why)
{
    struct link_run *run = arg;
    return ha_link_group_check(&(struct ha_link_turns){ &run->bench, reopen, run }, g, why);
}

static enum ha_status measure(void *arg, struct ha_group *g, struct ha_why *why)
{
    struct link_run *run = arg;
    return ha_link_group_measure(&(struct ha_link_turns){ &run->bench, reopen, run }, g, why);
}

static void close_group(void *arg, struct ha_group *g) { (void)arg, (void)g; }

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
    .together = together,
    .begin = begin,
    .open = open_group,
    .check = check,
    .measure = measure,
    .close = close_group,
    .end = end,
    .print = ha_link_print,
    .conclude = ha_link_conclude,
};
