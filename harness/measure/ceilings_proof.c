/* Whether what was timed was done: sources hold what nobody has seen before, and what arrives is compared. */

#include "harness/base/clock.h"
#include "harness/base/rng.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"
#include "harness/measure/ceilings_parts.h"
#include "harness/measure/timeline.h"

#include <math.h>
#include <string.h>
#include <sys/random.h>

enum { TAG = HA_CEILING_TAG };

/* ---- words of device memory -------------------------------------------------------------------------------------- */

static bool put(struct ha_ceiling_bench *b, void *at, bool on_device, const void *tag, size_t bytes)
{
    memcpy(on_device ? b->bounce : at, tag, bytes);
    return !on_device
           || (b->api->copy(b->stream[0], at, b->bounce, bytes, HA_H2D) == HA_OK
               && b->api->stream_sync(b->stream[0]) == HA_OK);
}

static bool get(struct ha_ceiling_bench *b, const void *at, bool on_device, void *tag, size_t bytes)
{
    if (on_device
        && (b->api->copy(b->stream[0], b->bounce, at, bytes, HA_D2H) != HA_OK
            || b->api->stream_sync(b->stream[0]) != HA_OK))
        return false;
    memcpy(tag, on_device ? b->bounce : at, bytes);
    return true;
}

static void draw(struct ha_ceiling_bench *b, void *out, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++) {
        const uint64_t bits = ha_rng_bits(b->secret, 0, b->drawn++);
        memcpy((char *)out + i * sizeof bits, &bits, sizeof bits);
    }
}

bool ha_ceiling_doubt(struct ha_ceiling_bench *b, enum ha_ceiling which, const char *what)
{
    if (!*b->doubt.text)
        ha_why(&b->doubt, HA_FAIL, "ceiling '%s' of the device is not to be believed: %s", ha_ceiling_name(which),
               what);
    return false;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* The last bytes are among them. */
static size_t place(struct ha_ceiling_bench *b, size_t bytes, size_t i)
{
    const size_t tags = bytes / TAG;
    return (i ? ha_rng_below(b->secret, 1, b->drawn++, tags) : tags - 1) * TAG;
}

static void begin_elsewhere(struct ha_ceiling_bench *b)
{
    enum { PAGE = 4096, PLACES = HA_CEILING_SLACK / PAGE };
    /* by no whole pages, which a device could put there by its tables alone */
    b->from = (b->from / PAGE + 1 + ha_rng_below(b->secret, 3, b->drawn++, PLACES - 2)) % (PLACES - 1) * PAGE + TAG;
}

/* Sources begin elsewhere, so that all that is to be written differs from what is there, and have words that nobody has
 * seen. */
static bool change_sources(struct ha_ceiling_bench *b, enum ha_ceiling which, size_t bytes)
{
    struct ha_ceiling_way way[2];
    begin_elsewhere(b);
    const size_t ways = ha_ceiling_ways(b, which, way);
    for (size_t w = 0; w < ways; w++)
        for (size_t i = 0; i < HA_CEILING_TAGS; i++) {
            struct ha_ceiling_tag *t = &b->tag[w][i];
            t->at = place(b, bytes, i);
            draw(b, t->bytes, TAG);
            if (!put(b, way[w].src + t->at, way[w].dir != HA_H2D, t->bytes, TAG)) return false;
        }
    return true;
}

static bool has_arrived(struct ha_ceiling_bench *b, enum ha_ceiling which)
{
    struct ha_ceiling_way way[2];
    unsigned char found[TAG];
    const size_t ways = ha_ceiling_ways(b, which, way);
    for (size_t w = 0; w < ways; w++)
        for (size_t i = 0; i < HA_CEILING_TAGS; i++) {
            /* of two tags at one place the later one stands */
            const struct ha_ceiling_tag *t = &b->tag[w][i];
            bool covered = false;
            for (size_t j = i + 1; j < HA_CEILING_TAGS; j++) covered |= b->tag[w][j].at == t->at;
            if (!covered && get(b, way[w].dst + t->at, way[w].dir != HA_D2H, found, TAG)
                && memcmp(found, t->bytes, TAG) != 0)
                return ha_ceiling_doubt(b, which, "what was to be copied while the clock ran has not arrived");
        }
    return true;
}

/* ---- the read ---------------------------------------------------------------------------------------------------- */

static uint32_t add_words(const void *at, size_t bytes)
{
    uint32_t sum = 0, word;
    for (size_t i = 0; i < bytes; i += sizeof word) {
        memcpy(&word, (const char *)at + i, sizeof word);
        sum += word;
    }
    return sum;
}

void ha_ceiling_draw(struct ha_ceiling_bench *b)
{
    const size_t bytes = 2 * (b->link_bytes + HA_CEILING_SLACK);
    if (getrandom(&b->secret, sizeof b->secret, 0) != sizeof b->secret) b->secret = ha_now_ns();
    draw(b, b->pinned, bytes);
    if (b->mapped) memcpy(b->mapped, b->pinned, bytes);
}

/* All of the memory that is read has other words now, whose sum is known: those of the host from another place on, and
 * from yet another one for each part. */
static bool change_words(struct ha_ceiling_bench *b, size_t bytes)
{
    uint32_t sum = 0, sum_of_part = 0;
    size_t summed_from = 0, summed = 0;
    for (size_t at = 0, part; at < bytes; at += part) {
        part = bytes - at < b->link_bytes ? bytes - at : b->link_bytes;
        begin_elsewhere(b);
        const unsigned char *const from = b->pinned + b->from, *const before = b->pinned + summed_from;
        if (b->api->copy(b->stream[0], b->memory + at, from, part, HA_H2D) != HA_OK) return false;
        if (part != summed) sum_of_part = add_words(from, part);
        else if (b->from > summed_from)
            sum_of_part += add_words(before + part, b->from - summed_from) - add_words(before, b->from - summed_from);
        else sum_of_part += add_words(from, summed_from - b->from) - add_words(from + part, summed_from - b->from);
        summed_from = b->from;
        summed = part;
        sum += sum_of_part;
    }
    b->read_sum = sum;
    return b->api->stream_sync(b->stream[0]) == HA_OK && get(b, b->sum, true, &b->sum_before, sizeof b->sum_before);
}

static bool was_read(struct ha_ceiling_bench *b, size_t times)
{
    uint32_t sum;
    return !get(b, b->sum, true, &sum, sizeof sum) || sum == b->sum_before + b->read_sum * (uint32_t)times
           || ha_ceiling_doubt(b, HA_CEIL_DEVICE_READ, "the sum of the words is not that of what the memory held");
}

/* ---- around a sample --------------------------------------------------------------------------------------------- */

static double look(struct ha_ceiling_bench *b, const void *at)
{
    uint32_t found;
    const uint64_t begin_ns = ha_now_ns();
    get(b, at, true, &found, sizeof found);
    return (double)(ha_now_ns() - begin_ns);
}

void ha_ceiling_proof_new(struct ha_ceiling_bench *b)
{
    enum { LOOKS = 3 };
    b->first_ns = b->again_ns = b->least_ns = (double)INFINITY;
    if (b->idle_ns > 0) return;
    b->idle_ns = look(b, b->memory);
    for (size_t i = 1; i < LOOKS; i++) b->idle_ns = fmin(b->idle_ns, look(b, b->memory));
}

bool ha_ceiling_proof_begin(struct ha_ceiling_bench *b, enum ha_ceiling which, const struct ha_ceiling_load *load)
{
    return which == HA_CEIL_DEVICE_READ ? change_words(b, load->bytes) : change_sources(b, which, load->bytes);
}

/* The first look at what was made takes no longer than the next one, or one before all copies, unless the work was put
 * off until it. */
static void look_twice(struct ha_ceiling_bench *b, enum ha_ceiling which, double sample_ns)
{
    struct ha_ceiling_way way[2];
    const bool copies = ha_ceiling_ways(b, which, way) > 0;
    const void *const at = copies ? (const void *)way[0].dst : b->sum;
    if (copies && way[0].dir == HA_D2H) return; /* it is the host's memory, and what is there is there */
    b->least_ns = fmin(b->least_ns, sample_ns);
    b->first_ns = fmin(b->first_ns, look(b, at));
    b->again_ns = fmin(b->again_ns, look(b, at));
}

void ha_ceiling_proof_end(struct ha_ceiling_bench *b, enum ha_ceiling which, const struct ha_ceiling_load *load,
                          double sample_ns)
{
    look_twice(b, which, sample_ns);
    if (which == HA_CEIL_DEVICE_READ) was_read(b, load->times);
    else has_arrived(b, which);
}

static bool seems_late(const struct ha_ceiling_bench *b)
{
    static const double again_most = 2, share_most = 0.1, noise_ns = 5e6; /* a thread that has to wake up */
    const double again_ns = fmin(b->again_ns, b->idle_ns);
    return isfinite(b->least_ns) && b->first_ns > again_most * again_ns + share_most * b->least_ns + noise_ns;
}

/* On a busy host a thread that has just worked waits for its core at each look: there are more samples then. */
void ha_ceiling_proof_close(struct ha_ceiling_bench *b, enum ha_ceiling which, const struct ha_ceiling_load *load)
{
    enum { MORE = 40, NAP_NS = 20000000 };
    for (size_t i = 0; i < MORE && load && seems_late(b); i++) {
        ha_sleep_ns(NAP_NS);
        ha_ceiling_proven_rate(b, which, load);
    }
    if (seems_late(b)) ha_ceiling_doubt(b, which, "its work was put off until somebody looked");
}

/* ---- a launch ---------------------------------------------------------------------------------------------------- */

bool ha_ceiling_launch_begin(struct ha_ceiling_bench *b)
{
    const float x[2] = { 0, 1 + (float)ha_rng_below(b->secret, 2, b->drawn++, 1 << 12) }; /* sums of 200 are exact */
    b->launch_n = 100 + ha_rng_below(b->secret, 4, b->drawn++, 4000);
    b->launch_x = x[1];
    b->launches = 0;
    return put(b, b->memory, true, &x[0], sizeof *x) && put(b, b->memory + HA_CEILING_SLACK, true, &x[1], sizeof *x);
}

/* A blend that is enqueued behind a flag_wait may not run before the flag is set. */
static void launch_waits(struct ha_ceiling_bench *b, enum ha_ceiling which)
{
    enum { GATE = 8 }; /* of the flags, one that ha_ceiling_flag does not use */
    const struct ha_device_api *api = b->api;
    float before, now = 0;
    if (!api->flag_wait || !b->flag || !get(b, b->memory, true, &before, sizeof before)) return;
    const uint32_t next = b->flag[GATE] + 1;
    bool ok = api->flag_wait(b->stream[0], &b->flag[GATE], next) == HA_OK;
    ok = ha_ceiling_blend(b) && ok;
    ok = ok && api->copy(b->stream[1], b->bounce, b->memory, sizeof now, HA_D2H) == HA_OK
         && api->stream_sync(b->stream[1]) == HA_OK;
    memcpy(&now, b->bounce, sizeof now);
    __atomic_store_n(&b->flag[GATE], next, __ATOMIC_RELEASE);
    if (api->stream_sync(b->stream[0]) == HA_OK && ok && now != before)
        ha_ceiling_doubt(b, which, "what was launched behind a wait did not wait");
}

void ha_ceiling_launch_end(struct ha_ceiling_bench *b, enum ha_ceiling which)
{
    float y;
    launch_waits(b, which);
    if (get(b, b->memory, true, &y, sizeof y) && y != b->launch_x * (float)b->launches)
        ha_ceiling_doubt(b, which, "what was launched was not computed");
}

/* ---- spans ------------------------------------------------------------------------------------------------------- */

static void stamp(void *ns) { *(uint64_t *)ns = ha_now_ns(); }

struct gate {
    bool open; /* when all of the work is enqueued */
    uint64_t ns;
};

/* A device may call it in host_fn itself, where nobody opens the gate meanwhile. */
static void stamp_behind_gate(void *arg)
{
    enum { PATIENCE_NS = 100000000, NAP_NS = 20000 };
    struct gate *const g = arg;
    const uint64_t begin_ns = ha_now_ns();
    while (!__atomic_load_n(&g->open, __ATOMIC_ACQUIRE) && ha_now_ns() - begin_ns < PATIENCE_NS) ha_sleep_ns(NAP_NS);
    g->ns = ha_now_ns();
}

/* How long the work takes between two functions of the host on its stream, the first of which ends when all is
 * enqueued: neither waking up nor coming back is part of it, nor that this thread loses its core on a busy host. NaN:
 * the device cannot. */
static double stamped(struct ha_ceiling_bench *b, const struct ha_ceiling_load *load)
{
    struct gate begin = { false, 0 };
    uint64_t end_ns = 0;
    bool ok = b->api->host_fn && b->api->host_fn(b->stream[0], stamp_behind_gate, &begin) == HA_OK;
    for (size_t i = 0; i < load->times && ok; i++) ok = load->work(b, load->bytes);
    ok = ok && b->api->host_fn(b->stream[0], stamp, &end_ns) == HA_OK;
    __atomic_store_n(&begin.open, true, __ATOMIC_RELEASE);
    return b->api->stream_sync(b->stream[0]) == HA_OK && ok ? (double)(end_ns - begin.ns) : (double)NAN;
}

/* The part of the time in which by its spans the device works, of work that is enqueued back to back: of several tries,
 * as on a host that is busy its threads lose their cores, the best or the first that is enough. Each try waits longer
 * for its turn, and every fourth has half of the work. */
static double traced_share(struct ha_ceiling_bench *b, struct ha_timeline *t, enum ha_span_kind kind,
                           const struct ha_ceiling_load *load, double enough, bool *bytes_right)
{
    enum { TRIES = 24, HALVED_EACH = 4, TIMES = 4, SPANS = 4096, NAP_NS = 3000000 };
    static struct ha_interval x[SPANS];
    double best = (double)NAN;
    for (size_t i = 0; i < TRIES && !(best >= enough); i++) {
        struct ha_ceiling_load more = *load;
        size_t n = 0;
        uint64_t bytes = 0;
        more.times *= TIMES;
        for (size_t k = i / HALVED_EACH; k && more.times > TIMES; k--) more.times /= 2;
        ha_sleep_ns(i * NAP_NS);
        ha_timeline_clear(t);
        b->api->trace(b->device, ha_timeline_sink(t, HA_FROM_DEVICE));
        const double ns = stamped(b, &more);
        b->api->trace(b->device, NULL);
        for (size_t s = 0; s < ha_timeline_count(t); s++) {
            const struct ha_span *span = &ha_timeline_at(t, s)->span;
            if (span->kind != kind) continue;
            bytes += span->bytes;
            if (n < SPANS) x[n++] = (struct ha_interval){ span->begin_ns, span->end_ns };
        }
        n = ha_interval_union(x, n);
        best = fmax(best, (double)ha_interval_length(x, n) / ns); /* drops a NaN */
        *bytes_right = kind == HA_SPAN_KERNEL || bytes == (uint64_t)more.bytes * more.times;
    }
    return best;
}

void ha_ceiling_spans(struct ha_ceiling_bench *b)
{
    static const struct {
        enum ha_ceiling which;
        enum ha_span_kind kind;
        ha_ceiling_work *work;
    } each[] = { { HA_CEIL_H2D, HA_SPAN_H2D, ha_ceiling_h2d },
                 { HA_CEIL_D2H, HA_SPAN_D2H, ha_ceiling_d2h },
                 { HA_CEIL_DEVICE_READ, HA_SPAN_KERNEL, ha_ceiling_device_read } };
    static const double share_least[] = { [HA_SPAN_KERNEL] = 0.5, [HA_SPAN_H2D] = 0.75, [HA_SPAN_D2H] = 0.75 };
    struct ha_timeline *t;
    struct ha_device_info info = { .name = "" };
    struct ha_why why;
    const bool means_nothing = !strcmp(b->api->kind, "null") || !strcmp(b->api->kind, "emulated");
    if (!b->api->trace || means_nothing || ha_timeline_create(&t, &why) != HA_OK) return;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        struct ha_ceiling_load load;
        bool bytes_right = true;
        if (!ha_ceiling_fit(b, each[i].work, b->link_bytes / 4, &load)) continue;
        b->api->info(b->device, &info);
        const uint64_t lost = info.spans_lost;
        const double share = traced_share(b, t, each[i].kind, &load, share_least[each[i].kind], &bytes_right);
        b->api->info(b->device, &info);
        if (info.spans_lost != lost) continue; /* the device says that it lost some */
        if (share < share_least[each[i].kind])
            ha_ceiling_doubt(b, each[i].which, "by its spans the device does it in far less time than it takes");
        else if (!bytes_right) ha_ceiling_doubt(b, each[i].which, "its spans say other bytes than were copied");
    }
    ha_timeline_destroy(t);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Others may use the device, too: what they take between the question and the allocation is asked for again. */
static bool gives_half(struct ha_ceiling_bench *b, struct ha_device_info *info, struct ha_why *why)
{
    enum { TRIES = 5, NAP_NS = 20000000 };
    void *half;
    for (size_t i = 0; i < TRIES; i++) {
        if (i) ha_sleep_ns(NAP_NS);
        b->api->info(b->device, info);
        if (info->memory_free_bytes < 2) return true;
        if (b->api->mem_alloc(b->device, HA_MEM_DEVICE, info->memory_free_bytes / 2, &half, why) != HA_OK) continue;
        b->api->mem_free(b->device, HA_MEM_DEVICE, half);
        return true;
    }
    return false;
}

void ha_ceiling_memory(struct ha_ceiling_bench *b, uint64_t host_bytes)
{
    struct ha_device_info info = { .name = "" };
    struct ha_why why = { "" };
    b->api->info(b->device, &info);
    const uint64_t most = info.compute_threads && host_bytes ? host_bytes : UINT64_MAX;
    if (*b->doubt.text) return;
    if (info.memory_bytes > most || info.memory_free_bytes > info.memory_bytes)
        ha_why(&b->doubt, HA_FAIL,
               "the device says that it has %.4g GiB of memory, %.4g of them free; this host has %.4g GiB",
               (double)info.memory_bytes * 0x1p-30, (double)info.memory_free_bytes * 0x1p-30,
               (double)host_bytes * 0x1p-30);
    else if (!info.compute_threads && !gives_half(b, &info, &why))
        ha_why(&b->doubt, HA_FAIL,
               "the device says that %.4g GiB of its memory are free, and cannot give half of them: %.200s",
               (double)info.memory_free_bytes * 0x1p-30, why.text);
}
