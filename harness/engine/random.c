#include "harness/engine/random.h"

#include "harness/base/rng.h"
#include "harness/engine/point.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Random numbers of a draw: those of key i begin at i * EACH. */
enum { EACH = 1 << 12, OF_COST = 1 << 30 };
/* A cheap point costs at most 2^-CHEAP of what is too much; about as much is what any point takes besides. */
enum { CHEAP = 12 };

struct dice {
    const struct ha_draw *draw;
    uint64_t at;
};

static uint64_t below(struct dice *d, uint64_t n) { return ha_rng_below(d->draw->seed, d->draw->point, d->at++, n); }

/* Of what cases cost together about half is for dear ones, which may cost anything up to too much. The others are
 * cheap, and their numbers small. */
static bool is_dear(const struct ha_draw *draw) { return draw->balance > 0; }

static uint64_t number(struct dice *d, uint64_t least, uint64_t most, uint64_t step)
{
    if (step) return least + step * below(d, (most - least) / step + 1);
    uint64_t bits = 0;
    while (bits < 64 && most >> bits) bits++;
    uint64_t k = below(d, bits + 1);
    const uint64_t other = below(d, bits + 1);
    if (!is_dear(d->draw) && other < k) k = other;
    const uint64_t power = k ? (uint64_t)1 << (k - 1) : 0;
    const bool near = below(d, 2);
    uint64_t x = near ? power + below(d, 3) : power + 1 + below(d, power ? power : 1);
    x -= x > 0;
    return x < least ? least : x > most ? most : x;
}

/* the n-th of the items between blanks */
static const char *item(const char *list, size_t n, size_t *bytes)
{
    list += strspn(list, " ");
    for (;; list += *bytes, list += strspn(list, " ")) {
        *bytes = strcspn(list, " ");
        if (!*bytes || n-- == 0) return list;
    }
}

static size_t count_items(const char *list)
{
    size_t n = 0, bytes;
    while (item(list, n, &bytes), bytes) n++;
    return n;
}

/* The item with a number in place of each range. */
static void fill(struct dice *d, const char *p, const char *end, char out[HA_VALUE_MAX])
{
    size_t n = 0;
    while (p < end && n + 24 < HA_VALUE_MAX) {
        uint64_t least, most, step = 0;
        const char *dots, *behind;
        if (!ha_whole_parse(p, &least, &dots) || strncmp(dots, "..", 2) || !ha_whole_parse(dots + 2, &most, &behind)) {
            const size_t plain = *p >= '0' && *p <= '9' ? strspn(p, "0123456789") : 1;
            memcpy(out + n, p, plain);
            n += plain;
            p += plain;
            continue;
        }
        p = behind;
        if (*p == ':') ha_whole_parse(p + 1, &step, &p);
        n += (size_t)snprintf(out + n, HA_VALUE_MAX - n, "%" PRIu64, number(d, least, most, step));
    }
    out[n] = 0;
}

void ha_draw_value(const struct ha_draw *draw, size_t i, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    struct dice d = { draw, i * EACH };
    size_t bytes, words = 0;
    const char *text = item(key->draw, below(&d, count_items(key->draw)), &bytes), *end;
    if (bytes == 1 && *text == '*' && key->word) {
        while (key->word(words)) words++;
        snprintf(out, HA_VALUE_MAX, "%s", key->word(below(&d, words)));
        return;
    }
    fill(&d, text, text + bytes, out);
    uint64_t times, of;
    if (key->kind == HA_KEY_PAIR && ha_whole_parse(out, &times, &end) && *end == '/'
        && ha_whole_parse(end + 1, &of, &end))
        snprintf(out, HA_VALUE_MAX, "%" PRIu64 "/%" PRIu64, times * of, of);
}

bool ha_draw_affords(const struct ha_draw *draw, const struct ha_suite *s, const void *point)
{
    enum { DOUBLINGS = 18 };
    if (!s->cost) return true;
    const double down = (double)ha_rng_uniform(draw->seed, draw->point, OF_COST);
    const int least = is_dear(draw) ? 0 : CHEAP;
    return s->cost(point) <= exp2(-least - (DOUBLINGS - least) * down);
}

void ha_draw_given(struct ha_draw *draw, const struct ha_suite *s, const void *point)
{
    const double cost = s->cost ? s->cost(point) : 0;
    draw->given++;
    if (is_dear(draw)) draw->balance -= cost;
    else draw->balance += fmax(cost, exp2(-CHEAP));
}
