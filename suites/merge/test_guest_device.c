/* The embedded device as a plugin, so that a whole device can be judged in a process of its own. HA_GUEST says what of
 * it is wrong: "copy" does not wait for what the stream has before it, "merge" loses a state, "input" counts up a byte
 * of q behind an attention that has read it. */

#include "harness/api/device.h"

#include <stdlib.h>
#include <string.h>

extern const struct ha_device_api ha_device_host;

__attribute__((visibility("default"))) extern struct ha_device_api ha_device_api;
struct ha_device_api ha_device_api;

static enum ha_status copy_at_once(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                   enum ha_direction dir)
{
    memcpy(dst, src, bytes);
    return HA_OK;
}

static enum ha_status merge_fewer(struct ha_stream *stream, const struct ha_merge *args)
{
    struct ha_merge m = *args;
    m.states_count -= m.states_count > 1;
    return ha_device_host.merge(stream, &m);
}

static void count_up(void *at) { ++*(unsigned char *)at; }

static enum ha_status attend_and_write(struct ha_stream *stream, const struct ha_device_attend *args)
{
    const enum ha_status status = ha_device_host.attend(stream, args);
    return status == HA_OK ? ha_device_host.host_fn(stream, count_up, (void *)(uintptr_t)args->seqs[0].q) : status;
}

__attribute__((constructor)) static void fill_in(void)
{
    ha_device_api = ha_device_host;
    ha_device_api.name = "guest";
    ha_device_api.kind = "plugin";
    const char *wrong = getenv("HA_GUEST");
    if (wrong && !strcmp(wrong, "copy")) ha_device_api.copy = copy_at_once;
    if (wrong && !strcmp(wrong, "merge")) ha_device_api.merge = merge_fewer;
    if (wrong && !strcmp(wrong, "input")) ha_device_api.attend = attend_and_write;
}
