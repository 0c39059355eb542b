/* Plugins that a loader must refuse, each wrong in the one way that its macro names; and those that it must
 * take: OLDER, from a time before the last fields, and the libraries MERGER and ATTENDER, which are no devices. */

#include "harness/api/device.h"

#if defined WRONG_LIBRARY
extern int ha_test_nowhere(void);
int (*ha_test_use(void))(void);
__attribute__((visibility("default"))) int (*ha_test_use(void))(void) { return ha_test_nowhere; }
#elif defined WRONG_SYMBOL
extern const int ha_device_apis;
__attribute__((visibility("default"))) const int ha_device_apis = 1;
#elif defined MERGER || defined ATTENDER || defined WRONG_MERGER || defined WRONG_NOTHING

#ifndef WRONG_MERGER
static void its_info(struct ha_device *dev, struct ha_device_info *info)
{
    *info = (struct ha_device_info){ .name = "the first state",
                                     .memory_bytes = dev != NULL,
                                     .merge = { .forms = 1u << HA_FORM_NATURAL } };
}
#endif
#if defined MERGER || defined WRONG_MERGER
static enum ha_status its_merge(struct ha_stream *stream, const struct ha_merge *args)
{
    *args->out.lse = *args->states->lse;
    return stream ? HA_ERROR : HA_OK;
}
#endif
#ifdef ATTENDER
static enum ha_status its_attend(struct ha_stream *stream, const struct ha_device_attend *args)
{
    return (void)args, stream ? HA_ERROR : HA_OK;
}
#endif

__attribute__((visibility("default"))) extern const struct ha_device_api ha_device_api;
const struct ha_device_api ha_device_api = {
    .abi = HA_DEVICE_ABI,
    .struct_bytes = sizeof(struct ha_device_api),
#ifndef WRONG_MERGER
    .info = its_info,
#endif
#if defined MERGER || defined WRONG_MERGER
    .merge = its_merge,
#endif
#ifdef ATTENDER
    .name = "attender",
    .kind = "plugin",
    .built_with = __VERSION__,
    .attend = its_attend,
#endif
};
#else

static enum ha_status no_open(struct ha_device **dev, const struct ha_device_config *config, struct ha_why *why)
{
    (void)dev, (void)config;
    why->text[0] = '\0';
    return HA_WAIVED;
}
static void no_close(struct ha_device *dev) { (void)dev; }
static void no_info(struct ha_device *dev, struct ha_device_info *info) { (void)dev, (void)info; }
static const char *no_failure(struct ha_device *dev) { return (void)dev, NULL; }
static enum ha_status no_mem_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                   struct ha_why *why)
{
    (void)dev, (void)kind, (void)bytes, (void)ptr, (void)why;
    return HA_ERROR;
}
#ifndef WRONG_ENTRY
static void no_mem_free(struct ha_device *dev, enum ha_memory kind, void *ptr) { (void)dev, (void)kind, (void)ptr; }
#endif
static enum ha_status no_stream_create(struct ha_device *dev, const char *name, struct ha_stream **stream,
                                       struct ha_why *why)
{
    (void)dev, (void)name, (void)stream, (void)why;
    return HA_ERROR;
}
static void no_stream_destroy(struct ha_stream *stream) { (void)stream; }
static enum ha_status no_stream_sync(struct ha_stream *stream) { return (void)stream, HA_ERROR; }
static enum ha_status no_event_create(struct ha_device *dev, struct ha_event **event, struct ha_why *why)
{
    (void)dev, (void)event, (void)why;
    return HA_ERROR;
}
static void no_event_destroy(struct ha_event *event) { (void)event; }
static enum ha_status no_event_record(struct ha_event *event, struct ha_stream *stream)
{
    return (void)event, (void)stream, HA_ERROR;
}
static enum ha_status no_stream_wait(struct ha_stream *stream, struct ha_event *event)
{
    return (void)event, (void)stream, HA_ERROR;
}
static enum ha_status no_event_sync(struct ha_event *event) { return (void)event, HA_ERROR; }
static enum ha_status no_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    (void)stream, (void)dst, (void)src, (void)bytes, (void)dir;
    return HA_ERROR;
}
static enum ha_status no_merge(struct ha_stream *stream, const struct ha_merge *args)
{
    return (void)stream, (void)args, HA_ERROR;
}

__attribute__((visibility("default"))) extern const struct ha_device_api ha_device_api;
const struct ha_device_api ha_device_api = {
#ifdef WRONG_ABI
    .abi = HA_DEVICE_ABI + 41,
#else
    .abi = HA_DEVICE_ABI,
#endif
#if defined WRONG_SIZE
    .struct_bytes = offsetof(struct ha_device_api, event_sync),
#elif defined OLDER
    .struct_bytes = offsetof(struct ha_device_api, merge), /* what lies beyond is not the program's to read */
#else
    .struct_bytes = sizeof(struct ha_device_api),
#endif
    .name = "wrong",
    .kind = "plugin",
    .built_with = __VERSION__,
    .open = no_open,
    .close = no_close,
    .info = no_info,
    .failure = no_failure,
    .mem_alloc = no_mem_alloc,
#ifndef WRONG_ENTRY
    .mem_free = no_mem_free,
#endif
    .stream_create = no_stream_create,
    .stream_destroy = no_stream_destroy,
    .stream_sync = no_stream_sync,
    .event_create = no_event_create,
    .event_destroy = no_event_destroy,
    .event_record = no_event_record,
    .stream_wait = no_stream_wait,
    .event_sync = no_event_sync,
    .copy = no_copy,
    .merge = no_merge,
};
#endif
