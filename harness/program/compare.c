#include "harness/base/why.h"
#include "harness/compare/fleet_print.h"
#include "harness/compare/print.h"
#include "harness/compare/side_by_side.h"
#include "harness/program/commands.h"

#include <stdlib.h>

struct compared {
    struct ha_record base, *now;
    struct ha_comparison *all;
    size_t count;                 /* of now and of all, that are to be freed */
    struct ha_side_by_side sides; /* of machines; none: they are of one */
};

static enum ha_exit worst(const struct compared *c)
{
    enum ha_exit exit = HA_EXIT_OK;
    for (size_t i = 0; i < c->count; i++) exit = ha_night_worse(exit, ha_comparison_exit(&c->all[i]));
    return exit;
}

static enum ha_status set_side_by_side(struct compared *c, const struct ha_options *o, struct ha_why *why)
{
    bool other = false;
    for (size_t i = 0; i < c->count; i++) other = other || c->all[i].other_machine;
    if (!other && (o->price || o->limit_ns))
        return ha_why(why, HA_ERROR, "--price and --limit are of several machines, and these folders are of one");
    if (!other) return HA_OK;
    HA_TRY(ha_side_by_side(&c->sides, c->all, c->count, why));
    if (o->price) HA_TRY(ha_side_by_side_price(&c->sides, o->price, why));
    for (size_t i = 0; i < c->count; i++)
        if (c->all[i].other_machine) c->all[i].besides = ha_side_by_side_exit(&c->sides, i + 1);
    return HA_OK;
}

static enum ha_status compare(struct compared *c, const struct ha_options *o, struct ha_why *why)
{
    HA_TRY(ha_record_read(&c->base, o->words[0], why));
    for (size_t i = 0; i + 1 < o->words_count; i++) {
        c->count++;
        HA_TRY(ha_record_read(&c->now[i], o->words[i + 1], why));
        HA_TRY(ha_compare(&c->all[i], &c->base, &c->now[i], why));
    }
    HA_TRY(set_side_by_side(c, o, why));
    return o->junit ? ha_compare_junit(o->junit, c->all, c->count, worst(c), NULL, why) : HA_OK;
}

static void print(const struct compared *c, const struct ha_options *o)
{
    if (c->sides.machines && !o->json) ha_side_by_side_print_table(stdout, &c->sides, o->limit_ns);
    for (size_t i = 0; i < c->count; i++) {
        if (i && !o->json) putchar('\n');
        if (o->json) ha_compare_print_json(stdout, &c->all[i], i + 1);
        else ha_compare_print_table(stdout, &c->all[i]);
    }
    if (c->sides.machines && o->json) ha_side_by_side_print_json(stdout, &c->sides, o->limit_ns);
}

static enum ha_status read_fleet(struct ha_fleet *f, const char *path, struct ha_why *why)
{
    HA_TRY(ha_fleet_read(f, path, why));
    return ha_fleet_judge(f, why);
}

static enum ha_status compare_fleets(struct ha_fleet *now, struct ha_fleet *before, struct ha_fleet_shift *shift,
                                     const struct ha_options *o, struct ha_why *why)
{
    HA_TRY(read_fleet(now, o->machines, why));
    if (o->against) {
        HA_TRY(read_fleet(before, o->against, why));
        HA_TRY(ha_fleet_shift(shift, before, now, why));
    }
    return o->junit ? ha_fleet_junit(o->junit, now, why) : HA_OK;
}

static enum ha_exit compare_fleet(const struct ha_options *o, struct ha_why *why)
{
    struct ha_fleet now = { 0 }, before = { 0 };
    struct ha_fleet_shift shift = { 0 };
    enum ha_exit code = HA_EXIT_USAGE;
    if (compare_fleets(&now, &before, &shift, o, why) == HA_OK) {
        (o->json ? ha_fleet_print_json : ha_fleet_print_table)(stdout, &now);
        if (o->against) (o->json ? ha_fleet_shift_print_json : ha_fleet_shift_print_table)(stdout, &shift);
        code = ha_fleet_exit(&now);
        if (o->against) code = ha_night_worse(code, ha_fleet_shift_exit(&shift));
    }
    ha_fleet_shift_free(&shift);
    ha_fleet_free(&before);
    ha_fleet_free(&now);
    return code;
}

enum ha_exit ha_command_compare(const struct ha_options *o, struct ha_why *why)
{
    if (o->in_turns) return ha_command_turns(o, why);
    if (o->machines) return compare_fleet(o, why);
    struct compared c = { .now = calloc(o->words_count, sizeof *c.now), .all = calloc(o->words_count, sizeof *c.all) };
    const enum ha_status status = c.now && c.all ? compare(&c, o, why) : ha_why(why, HA_ERROR, "out of memory");
    enum ha_exit code = HA_EXIT_USAGE;
    if (status == HA_OK) {
        print(&c, o);
        code = worst(&c);
    }
    ha_side_by_side_free(&c.sides);
    for (size_t i = 0; i < c.count; i++) {
        ha_comparison_free(&c.all[i]);
        ha_record_free(&c.now[i]);
    }
    ha_record_free(&c.base);
    free(c.now);
    free(c.all);
    return code;
}
