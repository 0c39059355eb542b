#include "harness/engine/fake_suites.h"

#include "harness/base/registry.h"
#include "harness/base/why.h"

/* ---- shapes ----------------------------------------------------------------------------------------------------- */

enum { CIRCLE, SQUARE, SIDE = 11, SHAPE_KEYS, SMALL = 3 };

static const char *kind_word(size_t i) { return i == CIRCLE ? "circle" : i == SQUARE ? "square" : NULL; }
static const char *class_word(size_t i) { return i == 0 ? "small" : i == 1 ? "large" : NULL; }
static const char *color_word(size_t i) { return i == 0 ? "red" : i == 1 ? "green" : i == 2 ? "blue" : NULL; }
static const char *all_word(size_t i) { return i == 0 ? "all" : NULL; }

static void print_class(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    const struct fake_point *p = point;
    snprintf(out, HA_VALUE_MAX, "%s", class_word(p->size >= 10));
}

static const char *side_standard(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    const struct fake_point *p = point;
    snprintf(out, HA_VALUE_MAX, "%zu", (size_t)p->size);
    return out;
}

#define AT(member) .offset = offsetof(struct fake_point, member)
static const struct ha_key shape_keys[SHAPE_KEYS] = {
    { "kind", "circle", "of the shape", HA_KEY_WORD, AT(kind), .word = kind_word },
    { "class", "", "by its size", HA_KEY_FACT, .word = class_word, .print = print_class },
    { "size", "10", "from 1 to 100", HA_KEY_NUMBER, AT(size), .min = 1, .max = 100, .always = true },
    { "count", "1", "as large as there are numbers", HA_KEY_NUMBER, AT(count), .max = UINT64_MAX, .options = " seed " },
    { "grid", "4/2", "rows/columns", HA_KEY_PAIR, AT(grid), .min = 1, .max = 64 },
    { "ratio", "0.5", "a number", HA_KEY_REAL, AT(ratio), .least = -1, .most = 1e300 },
    { "steps", "8", "a whole number", HA_KEY_REAL, AT(steps), .least = 0, .most = 1e6, .whole = true },
    { "color", "red", "a word", HA_KEY_WORD, AT(color), .word = color_word },
    { "name", "none", "a name", HA_KEY_NAME, AT(name), .max = sizeof((struct fake_point *)0)->name },
    { "device", "host", "one that there is", HA_KEY_NAME, AT(device), .max = sizeof((struct fake_point *)0)->device,
      .device = true },
    { "threads", "all", "a number, or all", HA_KEY_NUMBER, AT(threads), .min = 1, .max = 1024, .word = all_word },
    [SIDE] = { "side", "", "of a square", HA_KEY_NUMBER, AT(side), .max = 1000, .standard = side_standard },
};

static bool shape_uses(const void *point, size_t key)
{
    return key != SIDE || ((const struct fake_point *)point)->kind == SQUARE;
}

static const char *edge_word(size_t i) { return i < 2 ? (const char *[]){ "sharp", "round" }[i] : NULL; }

static bool shape_more(const void *point, size_t i, struct ha_key *out)
{
    static const struct ha_key radius = { "radius", "1", "", HA_KEY_REAL, AT(param[0]), .least = 0, .most = 100 };
    static const struct ha_key corner = { "corner",     "0",        "",        HA_KEY_REAL,
                                          AT(param[1]), .least = 0, .most = 9, .whole = true };
    static const struct ha_key edge = { "edge", "sharp", "", HA_KEY_REAL, AT(param[2]), .word = edge_word };
    const bool circle = ((const struct fake_point *)point)->kind == CIRCLE;
    *out = circle ? radius : i == 0 ? corner : edge;
    return i == 0 || (!circle && i == 1);
}

static const char *shape_more_name(size_t i)
{
    return i < 3 ? (const char *[]){ "radius", "corner", "edge" }[i] : NULL;
}

static enum ha_status shape_settle(void *point, struct ha_why *why)
{
    const struct fake_point *p = point;
    if (p->count == 13) return ha_why(why, HA_ERROR, "count: 13 of them are too many");
    return p->kind == SQUARE && p->size > 90 ? HA_WAIVED : HA_OK;
}

static void shape_shrink(void *point)
{
    struct fake_point *p = point;
    if (p->size > SMALL) p->size = SMALL;
}

const struct ha_suite fake_shapes = {
    .name = "shapes",
    .doc = "a key of each kind",
    .key = shape_keys,
    .keys = SHAPE_KEYS,
    .head = "kind",
    .class_key = "kind",
    .point_bytes = sizeof(struct fake_point),
    .more = shape_more,
    .more_name = shape_more_name,
    .uses = shape_uses,
    .settle = shape_settle,
    .shrink = shape_shrink,
};

/* ---- moves ------------------------------------------------------------------------------------------------------ */

struct move {
    size_t way, piece;
    uint64_t seed;
    char note[2200], memo[2200];
    uint64_t fast;
};
enum { FAST = 5, MOVE_KEYS };

static const char *way_word(size_t i) { return i == 0 ? "up" : i == 1 ? "down" : NULL; }
static const char *piece_word(size_t i) { return i == 0 ? "4K" : i == 1 ? "64K" : NULL; }
static bool move_uses(const void *point, size_t key) { return key != FAST || ((const struct move *)point)->way == 0; }

#undef AT
#define AT(member) .offset = offsetof(struct move, member)
static const struct ha_key move_keys[MOVE_KEYS] = {
    { "way", "*", "where to", HA_KEY_WORD, AT(way), .word = way_word, .always = true },
    { "piece", "4K", "how much", HA_KEY_WORD, AT(piece), .word = piece_word, .always = true },
    { "seed", "1", "of the order", HA_KEY_NUMBER, AT(seed), .max = UINT64_MAX },
    { "note", "-", "long", HA_KEY_NAME, AT(note), .max = sizeof((struct move *)0)->note },
    { "memo", "-", "long, too", HA_KEY_NAME, AT(memo), .max = sizeof((struct move *)0)->memo },
    [FAST] = { "fast", "0", "of those that go up", HA_KEY_NUMBER, AT(fast), .max = 9 },
};

const struct ha_suite fake_moves = {
    .name = "moves",
    .doc = "every word by default",
    .key = move_keys,
    .keys = MOVE_KEYS,
    .class_key = "way",
    .point_bytes = sizeof(struct move),
    .uses = move_uses,
};

const struct ha_suite *const ha_suites_all[] = { &fake_shapes, &fake_moves, NULL };
const size_t ha_suites_count = 2;
