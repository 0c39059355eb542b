#include "suites/defects/fault.h"

#include "harness/base/rng.h"

#include <math.h>
#include <string.h>

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

struct draws {
    uint64_t seed, i;
};
static size_t pick(struct draws *d, size_t n) { return (size_t)ha_rng_below(d->seed, 0xfa017, d->i++, n); }
static bool seldom(struct draws *d, size_t one_in) { return pick(d, one_in) == 0; }

static size_t within(size_t x, const struct ha_argument *a)
{
    const size_t least = a->least ? a->least : 1;
    x = x / a->step * a->step;
    return x < least ? least : x > a->most ? a->most : x;
}

/* A value of a count: small, around a power of two, a multiple of what tiles are; or, not named, any, as often small as
 * large. */
static size_t value(struct draws *d, const struct ha_argument *a, bool named)
{
    static const size_t tiles[] = { 8, 16, 32, 48, 64, 80, 96, 97, 128, 160, 192, 256 };
    const unsigned bits = 64 - (unsigned)__builtin_clzll(a->most);
    const size_t power = (size_t)1 << pick(d, bits);
    size_t x;
    switch (pick(d, named ? 3 : 5)) {
    case 0: x = 1 + pick(d, 9); break;
    case 1: x = power - 1 + pick(d, 3); break;
    case 2: x = tiles[pick(d, sizeof tiles / sizeof *tiles)] * (seldom(d, 3) ? 1 + pick(d, 6) : 1); break;
    case 3: x = power + pick(d, power); break;
    default: x = 1 + pick(d, a->most); break;
    }
    if (!strcmp(a->name, "head_dim") && !seldom(d, 4)) x = (x + 7) / 8 * 8; /* as models have it */
    return within(x, a);
}

size_t ha_fault_count(const struct ha_fault *f, size_t x)
{
    switch (f->effect) {
    case HA_FAULT_FEWER: return x > f->of->least ? x - 1 : x;
    case HA_FAULT_ROUNDED: return x > f->x ? x / f->x * f->x : x;
    case HA_FAULT_CAPPED: return x > f->x ? f->x : x;
    case HA_FAULT_BITS: {
        const size_t low = x & (((size_t)1 << f->x) - 1);
        return low < f->of->least ? x : low;
    }
    case HA_FAULT_IGNORED: return f->of->least;
    default: return x;
    }
}

bool ha_condition_of_count(const struct ha_condition *w, size_t x)
{
    return w->kind == HA_WHEN_EQUAL   ? x == w->x
           : w->kind == HA_WHEN_OVER  ? x > w->x
           : w->kind == HA_WHEN_UNDER ? x < w->x
                                      : x % w->x == w->y;
}

/* ---- conditions -------------------------------------------------------------------------------------------------- */

static bool is_counted(const struct ha_argument *a) { return a->kind <= HA_ARGUMENT_RATIO; }
static bool is_asked(const struct ha_argument *a) { return a->kind <= HA_ARGUMENT_WORD || a->kind == HA_ARGUMENT_FLAG; }
static bool is_pointer(const struct ha_argument *a) { return a->kind >= HA_ARGUMENT_IN; }

/* One of the arguments that fit, or NULL. */
static const struct ha_argument *any(struct draws *d, const struct ha_operation *op,
                                     bool (*fits)(const struct ha_argument *a))
{
    size_t n = 0;
    for (size_t i = 0; i < op->arguments; i++) n += fits(&op->argument[i]);
    if (!n) return NULL;
    n = pick(d, n);
    for (size_t i = 0;; i++)
        if (fits(&op->argument[i]) && n-- == 0) return &op->argument[i];
}

static size_t alignment(const struct ha_argument *a)
{
    return a->flags & HA_ARGUMENT_ALIGNED ? 64 : a->element == HA_ELEMENT_BYTES ? 1 : 4;
}

static bool draw_by_call(struct draws *d, struct ha_condition *w)
{
    static const enum ha_condition_kind kinds[] = { HA_WHEN_FIRST, HA_WHEN_EACH,   HA_WHEN_EACH, HA_WHEN_FROM,
                                                    HA_WHEN_AGAIN, HA_WHEN_THREAD, HA_WHEN_ANEW };
    static const struct ha_argument calls = { .least = 2, .most = 1500, .step = 1, .name = "" },
                                    few = { .least = 2, .most = 100, .step = 1, .name = "" };
    w->kind = kinds[pick(d, sizeof kinds / sizeof *kinds)];
    w->x = value(d, w->kind == HA_WHEN_ANEW ? &few : &calls, false);
    return true;
}

static bool draw_by_address(struct draws *d, const struct ha_operation *op, struct ha_condition *w)
{
    w->of = any(d, op, is_pointer);
    if (!w->of) return false;
    const size_t by = alignment(w->of), part[] = { 16, 32, 64, 128, 256, 4096 };
    if (seldom(d, 4)) {
        w->kind = HA_WHEN_MAPPED;
        return !(w->of->flags & HA_ARGUMENT_DEVICE) && op->seq_bytes;
    }
    if (seldom(d, 3)) {
        w->kind = HA_WHEN_BIT;
        w->x = 12 + pick(d, 9);
        return true;
    }
    w->kind = seldom(d, 2) ? HA_WHEN_ADDRESS : HA_WHEN_ASKEW;
    w->x = part[pick(d, sizeof part / sizeof *part)];
    w->y = w->kind == HA_WHEN_ASKEW ? 0 : pick(d, 8) * (w->x / 8) / by * by;
    return w->x > by;
}

static bool draw_by_count(struct draws *d, const struct ha_operation *op, struct ha_condition *w)
{
    static const size_t tiles[] = { 2, 3, 4, 8, 16, 32, 48, 64, 96, 128 };
    w->of = any(d, op, is_asked);
    if (!w->of) return false;
    w->kind = HA_WHEN_EQUAL;
    if (w->of->kind == HA_ARGUMENT_FLAG) w->x = 1;
    if (w->of->kind == HA_ARGUMENT_WORD)
        for (size_t n = 0; w->of->word[n]; n++) w->x = pick(d, n + 1) ? w->x : n;
    if (!is_counted(w->of)) return true;
    const bool outer = w->of->flags & HA_ARGUMENT_OUTER && op->seq_bytes;
    switch (pick(d, outer ? 4 : 3)) {
    case 0: w->x = value(d, w->of, true); return true;
    case 1:
        w->kind = HA_WHEN_OVER;
        w->x = value(d, w->of, false);
        return w->x < w->of->most;
    case 2:
        w->kind = HA_WHEN_RESIDUE;
        w->x = tiles[pick(d, sizeof tiles / sizeof *tiles)];
        w->y = seldom(d, 2) ? 0 : pick(d, w->x);
        for (size_t x = w->of->least; x <= w->of->most && x < w->of->least + 1000; x += w->of->step)
            if (x % w->x == w->y) return true;
        return false;
    default:
        w->kind = HA_WHEN_PRODUCT;
        w->of = NULL;
        w->x = ((size_t)1 << (3 + pick(d, 14))) - seldom(d, 2);
        return true;
    }
}

static bool draw_condition(struct draws *d, const struct ha_operation *op, struct ha_condition *w)
{
    *w = (struct ha_condition){ .of = NULL };
    const size_t way = op->arguments ? pick(d, 10) : 0;
    return way < 2 ? draw_by_call(d, w) : way < 4 ? draw_by_address(d, op, w) : draw_by_count(d, op, w);
}

/* ---- effects ----------------------------------------------------------------------------------------------------- */

static bool is_changed(const struct ha_argument *a)
{
    return a->kind == HA_ARGUMENT_COUNT && !(a->flags & HA_ARGUMENT_FIXED);
}
static bool is_left_out(const struct ha_argument *a)
{
    return a->kind == HA_ARGUMENT_FLAG || a->kind == HA_ARGUMENT_REAL || a->flags & HA_ARGUMENT_OPTIONAL;
}
static bool is_stride(const struct ha_argument *a) { return a->kind == HA_ARGUMENT_STRIDE; }
static bool is_dense(const struct ha_argument *a) { return a->kind == HA_ARGUMENT_STRIDE && a->dense; }
static bool is_real(const struct ha_argument *a) { return a->kind == HA_ARGUMENT_REAL; }
static bool is_of_seq(const struct ha_argument *a)
{
    return is_pointer(a) && a->of_seq && !(a->flags & HA_ARGUMENT_INDEX);
}
static bool is_input(const struct ha_argument *a) { return a->kind == HA_ARGUMENT_IN; }
static bool is_data(const struct ha_argument *a) { return is_input(a) && !(a->flags & HA_ARGUMENT_INDEX); }
static bool is_output(const struct ha_argument *a) { return a->kind == HA_ARGUMENT_OUT; }
static bool is_numbers(const struct ha_argument *a)
{
    return is_data(a) && a->element == HA_ELEMENT_FLOATS && !(a->flags & HA_ARGUMENT_EXACT);
}
static bool is_float(const struct ha_argument *a) { return is_output(a) && a->element >= HA_ELEMENT_FLOATS; }
static bool is_coded(const struct ha_argument *a)
{
    return is_output(a) && (!strcmp(a->name, "index") || !strcmp(a->name, "codes") || !strcmp(a->name, "here"));
}
static bool is_unaligned(const struct ha_argument *a)
{
    return is_pointer(a) && !(a->flags & (HA_ARGUMENT_INDEX | HA_ARGUMENT_ALIGNED));
}

static bool draw_signal(struct draws *d, struct ha_fault *f)
{
    const char *const name = f->op->name;
    const bool flag = f->op->arguments && strcmp(name, "copy_pieces") != 0;
    if (!strcmp(name, "stream_sync") && seldom(d, 2)) {
        f->effect = HA_FAULT_GIVES_UP;
        f->x = 1 + pick(d, 20);
        return true;
    }
    if (!strcmp(name, "flag_wait") && seldom(d, 3)) return f->effect = HA_FAULT_EXACT, true;
    if (f->op->arguments && seldom(d, 2)) {
        f->of = f->op->argument;
        f->effect = flag ? HA_FAULT_BITS : seldom(d, 2) ? HA_FAULT_FEWER : HA_FAULT_CAPPED;
        f->x = flag ? 8 + pick(d, 24) : value(d, f->of, false);
        return true;
    }
    const bool early = !strcmp(name, "flag_write") || !strcmp(name, "host_fn") || !strcmp(name, "copy_pieces")
                       || !strcmp(name, "graph_launch");
    f->effect = early && seldom(d, 3)                      ? HA_FAULT_EARLY
                : !strcmp(name, "host_fn") && seldom(d, 2) ? HA_FAULT_TWICE
                                                           : HA_FAULT_DROPPED;
    return f->effect != HA_FAULT_DROPPED || f->whens;
}

static bool draw_call(struct draws *d, struct ha_fault *f)
{
    static const enum ha_effect effects[] = { HA_FAULT_DROPPED, HA_FAULT_EARLY, HA_FAULT_ASIDE, HA_FAULT_UNREAD,
                                              HA_FAULT_TWICE };
    f->effect = effects[pick(d, sizeof effects / sizeof *effects)];
    return (f->effect != HA_FAULT_TWICE || f->op->in_place) && (f->effect != HA_FAULT_UNREAD || f->op->seq_bytes);
}

static bool draw_argument(struct draws *d, struct ha_fault *f)
{
    static const size_t tiles[] = { 2, 4, 8, 16, 32, 64, 128, 256, 4096 };
    const size_t tile = tiles[pick(d, sizeof tiles / sizeof *tiles)];
    switch (pick(d, 8)) {
    case 0:
    case 1:
    case 2:
        f->of = any(d, f->op, is_changed);
        f->effect = (enum ha_effect)(HA_FAULT_FEWER + pick(d, 4));
        if (!f->of) return false;
        f->x = f->effect == HA_FAULT_BITS      ? 4 + pick(d, 13)
               : f->effect == HA_FAULT_ROUNDED ? tile
                                               : value(d, f->of, false);
        return f->effect == HA_FAULT_FEWER || (f->effect == HA_FAULT_BITS ? f->of->most >> f->x : f->of->most > f->x);
    case 3: f->of = any(d, f->op, is_left_out); return f->effect = HA_FAULT_IGNORED, f->of != NULL;
    case 4:
        f->effect = seldom(d, 3) ? HA_FAULT_SCALED : HA_FAULT_TAKEN;
        f->of = any(d, f->op, f->effect == HA_FAULT_SCALED ? is_real : is_dense);
        f->as = f->of && f->of->dense ? ha_argument_of(f->op, f->of->dense) : NULL;
        f->real = seldom(d, 2) ? 2 : 0.5;
        if (f->of && !strcmp(f->of->name, "p")) f->real = 0.5; /* a share */
        return f->as || f->effect == HA_FAULT_SCALED ? f->of != NULL : false;
    case 5:
        f->of = any(d, f->op, is_stride);
        f->effect = HA_FAULT_STRIDE;
        f->x = f->of && strstr(f->of->name, "bytes") ? (size_t)8 << pick(d, 4) : (size_t)2 << pick(d, 4);
        return f->of && !strstr(f->of->name, "head_bytes");
    case 6:
        f->of = any(d, f->op, is_of_seq);
        f->effect = seldom(d, 2) ? HA_FAULT_FIRST_SEQ : HA_FAULT_SEQ_BEFORE;
        return f->of != NULL;
    default:
        f->of = any(d, f->op, is_unaligned);
        f->effect = HA_FAULT_ALIGNED;
        f->x = (size_t)8 << pick(d, 4);
        return f->of != NULL;
    }
}

/* What becomes of the numbers of an operand, of which and to what. */
static void draw_change(struct draws *d, struct ha_fault *f, enum ha_effect from, enum ha_effect to)
{
    static const double by[] = { 0, -1, 2, 0.5, 1.44269504 };
    f->effect = (enum ha_effect)(from + pick(d, (size_t)(to - from) + 1));
    f->x = f->effect == HA_FAULT_LOW ? 1 + pick(d, 6) : HA_F16 + pick(d, 2);
    f->real = by[pick(d, from == HA_FAULT_STALE ? sizeof by / sizeof *by : 2)]; /* of an input that may be normalised */
    f->rows = (enum ha_rows_chosen)pick(d, HA_ROWS_EACH + 1);
    f->each = 2 + pick(d, 6);
    f->numbers = (enum ha_numbers_chosen)pick(d, 4);
    if (f->effect == HA_FAULT_OFF && f->numbers == HA_NUMBERS_ALL) f->numbers = HA_NUMBERS_MIDDLE;
    if (f->effect == HA_FAULT_BESIDE) f->numbers = HA_NUMBERS_ALL;
    if (f->effect == HA_FAULT_MOST || f->effect == HA_FAULT_LEAST) f->real = 0;
    if (f->effect == HA_FAULT_NO_NAN || f->effect == HA_FAULT_NAN_INF || f->effect == HA_FAULT_NO_INF) {
        f->rows = HA_ROWS_ALL; /* seldom enough where they are */
        f->numbers = HA_NUMBERS_ALL;
    }
}

static bool draw_input(struct draws *d, struct ha_fault *f)
{
    const size_t way = pick(d, 5);
    f->effect = (enum ha_effect)(HA_FAULT_READ_EARLY + way);
    if (way > 2) draw_change(d, f, HA_FAULT_NARROW, HA_FAULT_NEXT_ROW);
    f->of = any(d, f->op, way == 0 ? is_input : way < 3 ? is_data : is_numbers);
    f->count = 1;
    return f->of && f->effect != HA_FAULT_NEARER && f->effect != HA_FAULT_LOW && f->effect != HA_FAULT_MOST
           && f->effect != HA_FAULT_LEAST
           && (f->effect != HA_FAULT_TIED || !strncmp(f->op->name, "top", 3)); /* others need not see it */
}

/* Of both signs, so that no number is above 0, or below. */
static bool is_signed(const struct ha_argument *a)
{
    return !strcmp(a->name, "scores") || !strcmp(a->name, "y") || !strcmp(a->name, "o");
}

/* Can the output hold a NaN, an infinity; has it two numbers? */
static bool has_such(const struct ha_fault *f)
{
    static const char *const finite[] = { "o", "x", "similarity", "weights" };
    if (f->effect == HA_FAULT_MOST || f->effect == HA_FAULT_LEAST) return is_signed(f->of);
    if (f->effect == HA_FAULT_NO_ZERO || f->effect == HA_FAULT_TIED || f->effect == HA_FAULT_NEARER) return false;
    const bool no_inf = f->effect == HA_FAULT_NO_INF;
    for (size_t i = 0; no_inf && i < sizeof finite / sizeof *finite; i++)
        if (!strcmp(f->of->name, finite[i])) return false;
    if (f->effect == HA_FAULT_NO_NAN) return strcmp(f->of->name, "weights") != 0; /* nothing says that they are */
    return f->effect != HA_FAULT_SWAPPED || strcmp(f->op->name, "read") != 0;
}

static bool draw_output(struct draws *d, struct ha_fault *f)
{
    draw_change(d, f, HA_FAULT_STALE, HA_FAULT_FIRST_ROW);
    const bool floats = f->effect >= HA_FAULT_NARROW && f->effect <= HA_FAULT_LEAST;
    f->of = any(d, f->op, floats ? is_float : f->effect == HA_FAULT_LOW ? is_coded : is_output);
    f->count = seldom(d, 2) ? 1 : (size_t)1 << pick(d, f->of && f->of->element == HA_ELEMENT_BYTES ? 13 : 6);
    return f->of && has_such(f);
}

/* ---- what is none ------------------------------------------------------------------------------------------------ */

/* Is there a count at which the call is wrong? */
static bool has_count(const struct ha_fault *f)
{
    if (!f->of || f->of->kind != HA_ARGUMENT_COUNT) return true;
    for (size_t x = f->of->least; x <= f->of->most; x += x < 70000 ? 1 : 1 + x / 1000) {
        bool holds = ha_fault_count(f, x) != x;
        for (size_t i = 0; i < f->whens && holds; i++)
            holds = f->when[i].of != f->of || ha_condition_of_count(&f->when[i], x);
        if (holds) return true;
    }
    return false;
}

static bool is_genuine(const struct ha_fault *f)
{
    const bool narrows = f->effect == HA_FAULT_NARROW;
    for (size_t i = 0; i < f->whens; i++) {
        const struct ha_condition *w = &f->when[i];
        const bool asks_batch = w->of && !strcmp(w->of->name, "batch");
        if (w->kind == HA_WHEN_FIRST && f->effect == HA_FAULT_CACHED) return false;
        if (narrows && w->of && w->of->kind == HA_ARGUMENT_WORD) return false;
        if ((f->effect == HA_FAULT_FIRST_SEQ || f->effect == HA_FAULT_SEQ_BEFORE) && asks_batch
            && w->kind == HA_WHEN_EQUAL && w->x == 1)
            return false;
        /* what is left out, or rounded, is asked for itself */
        if (f->of && w->of == f->of && f->of->kind != HA_ARGUMENT_COUNT) return false;
        if (i && w->of == f->when[0].of) return false;
        if (i && !w->of) return false;
    }
    return has_count(f);
}

static bool draw(struct draws *d, struct ha_fault *f)
{
    static const char *const much[] = { "attend", "attend", "attend", "merge", "move", "copy" };
    const size_t n = pick(d, ha_operations_count + sizeof much / sizeof *much);
    *f = (struct ha_fault){ .op = &ha_operations[n < ha_operations_count ? n : 0] };
    while (n >= ha_operations_count && strcmp(f->op->name, much[n - ha_operations_count]) != 0) f->op++;
    const size_t whens = seldom(d, 6) ? 0 : seldom(d, 12) ? 2 : 1;
    for (; f->whens < whens; f->whens++)
        if (!draw_condition(d, f->op, &f->when[f->whens])) return false;
    if (f->op->bare) return seldom(d, strcmp(f->op->name, "spin") != 0 ? 2 : 8) && draw_signal(d, f) && is_genuine(f);
    const size_t way = pick(d, 10);
    const bool drawn = way < 2   ? draw_call(d, f)
                       : way < 5 ? draw_argument(d, f)
                       : way < 7 ? draw_input(d, f)
                                 : draw_output(d, f);
    return drawn && is_genuine(f);
}

struct ha_fault ha_fault_draw(uint64_t seed)
{
    struct draws d = { seed, 0 };
    struct ha_fault f;
    while (!draw(&d, &f)) continue;
    return f;
}

/* ---- classes ---------------------------------------------------------------------------------------------------- */

const char *const ha_fault_classes[] = { "moves", "signals", "order", "numbers", "state", "outputs", "shapes", NULL };
const char *ha_fault_class(const struct ha_fault *f)
{
    enum { MOVES, SIGNALS, ORDER, NUMBERS, STATE, OUTPUTS, SHAPES };
    const enum ha_effect e = f->effect;
    bool state = e == HA_FAULT_CACHED;
    for (size_t i = 0; i < f->whens; i++) state |= f->when[i].kind >= HA_WHEN_FIRST;
    const bool numbers = e >= HA_FAULT_NARROW && e <= HA_FAULT_TIMES;
    return ha_fault_classes[f->op - ha_operations < 5                                                   ? MOVES
                            : f->op->bare                                                               ? SIGNALS
                            : (e >= HA_FAULT_EARLY && e <= HA_FAULT_UNREAD) || e == HA_FAULT_READ_EARLY ? ORDER
                            : state                                                                     ? STATE
                            : numbers                                                                   ? NUMBERS
                            : e >= HA_FAULT_STALE                                                       ? OUTPUTS
                                                                                                        : SHAPES];
}
