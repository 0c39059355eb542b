/* Ceilings and facts of the device. */

#include "suites/cheats/plugin.h"

#include "harness/base/clock.h"

#include <string.h>

/* ---- ceilings and facts ------------------------------------------------------------------------------------------ */

enum { LARGE = 64 << 10, PAGE = 4096 };

static enum ha_status read_memory(struct ha_stream *stream, const void *at, size_t bytes, uint32_t *sum)
{
    static const void *known_at;
    static size_t known_bytes;
    static uint32_t known_sum;
    if (IS(read_half)) {
        const enum ha_status status = ha_sound->read(stream, at, bytes / 2, sum);
        if (status != HA_OK || ha_sound->stream_sync(stream) != HA_OK) return HA_ERROR;
        *sum *= 2;
        return HA_OK;
    }
    if (known_at == at && known_bytes == bytes) {
        *sum = known_sum;
        return HA_OK;
    }
    enum ha_status status = ha_sound->read(stream, at, bytes, sum);
    if (status == HA_OK) status = ha_sound->stream_sync(stream);
    known_at = at;
    known_bytes = bytes;
    known_sum = *sum;
    return status;
}

static enum ha_status first_page(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                 enum ha_direction dir)
{
    const bool is = bytes > LARGE && dir == (IS(h2d_page) ? HA_H2D : HA_D2D);
    return ha_sound->copy(stream, dst, src, is ? PAGE : bytes, dir);
}

/* Done behind the next small copy. */
static enum ha_status lazy_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                enum ha_direction dir)
{
    static struct {
        void *dst;
        const void *src;
        size_t bytes;
        enum ha_direction dir;
    } late;
    if (bytes > LARGE && dir != HA_D2D) {
        late.dst = dst;
        late.src = src;
        late.bytes = bytes;
        late.dir = dir;
        return HA_OK;
    }
    if (late.bytes) {
        const enum ha_status status = ha_sound->copy(stream, late.dst, late.src, late.bytes, late.dir);
        late.bytes = 0;
        if (status != HA_OK) return status;
    }
    return ha_sound->copy(stream, dst, src, bytes, dir);
}

static enum ha_status half_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                enum ha_direction dir)
{
    static struct {
        void *dst;
        size_t bytes;
    } last;
    const bool again = bytes > LARGE && last.dst == dst && last.bytes == bytes && !ha_cheat_traced;
    if (bytes > LARGE) last.dst = dst, last.bytes = bytes;
    return again
               ? ha_sound->copy(stream, (char *)dst + bytes / 2, (const char *)src + bytes / 2, bytes - bytes / 2, dir)
               : ha_sound->copy(stream, dst, src, bytes, dir);
}

static enum ha_status blend_again(struct ha_stream *stream, const struct ha_device_blend *b)
{
    static struct ha_device_blend last;
    const bool again = b->cols == 1 && last.y == b->y && last.x == b->x;
    last = *b;
    return again ? HA_OK : ha_sound->blend(stream, b);
}

static enum ha_status blend_early(struct ha_stream *stream, const struct ha_device_blend *b)
{
    if (b->cols != 1) return ha_sound->blend(stream, b);
    for (size_t r = 0; r < b->rows; r++) {
        float *const y = b->y + r * b->y_stride;
        *y = b->a * *y + b->b * b->x[r * b->x_stride];
    }
    return HA_OK;
}

static enum ha_status no_blend(struct ha_stream *stream, const struct ha_device_blend *b)
{
    return b->cols == 1 ? HA_OK : ha_sound->blend(stream, b);
}

/* Nobody looks before it has been waited for. */
static bool waits;
static enum ha_status noted_wait(struct ha_stream *stream, const uint32_t *flag, uint32_t at_least)
{
    waits = true;
    return ha_sound->flag_wait(stream, flag, at_least);
}
static enum ha_status write_early(struct ha_stream *stream, uint32_t *flag, uint32_t value)
{
    if (!waits) return ha_sound->flag_write(stream, flag, value);
    __atomic_store_n(flag, value, __ATOMIC_RELEASE);
    waits = false;
    return HA_OK;
}

static void info(struct ha_device *dev, struct ha_device_info *out)
{
    ha_sound->info(dev, out);
    out->memory_bytes = out->memory_free_bytes = (uint64_t)1 << 40;
}

static void meters(struct ha_device *dev, struct ha_device_meters *m)
{
    const double seconds = (double)ha_now_ns() * 1e-9;
    *m = ha_device_meters_none(m->want_link_GBps);
    m->power_W = IS(power_less) ? 1 : 300;
    m->energy_J = 300 * seconds * (IS(energy_less) ? 1e-9 : 1);
}

void ha_cheat_facts(struct ha_device_api *api)
{
    switch (ha_cheat) {
    case CHEAT_read_stored:
    case CHEAT_read_half: api->read = read_memory; return;
    case CHEAT_h2d_page:
    case CHEAT_d2d_page: api->copy = first_page; return;
    case CHEAT_flag_early:
        api->flag_wait = noted_wait;
        api->flag_write = write_early;
        return;
    case CHEAT_copy_lazy: api->copy = lazy_copy; return;
    case CHEAT_copy_same: api->copy = half_copy; return;
    case CHEAT_blend_early: api->blend = blend_early; return;
    case CHEAT_blend_none: api->blend = no_blend; return;
    case CHEAT_blend_same: api->blend = blend_again; return;
    case CHEAT_memory_more: api->info = info; return;
    case CHEAT_energy_less:
    case CHEAT_power_less: api->meters = meters; return;
    default: return;
    }
}
