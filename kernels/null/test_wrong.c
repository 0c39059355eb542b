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

extern const struct ha_device_api ha_device_null; /* kernels/null/null.c under another name */

__attribute__((visibility("default"))) extern struct ha_device_api ha_device_api;
struct ha_device_api ha_device_api;

static enum ha_status no_open(struct ha_device **dev, const struct ha_device_config *config, struct ha_why *why)
{
    why->text[0] = '\0';
    return HA_WAIVED;
}

__attribute__((constructor)) static void fill_in(void)
{
    ha_device_api = ha_device_null;
    ha_device_api.open = no_open;
    ha_device_api.trace = NULL;
#if defined WRONG_ABI
    ha_device_api.abi += 41;
#elif defined WRONG_SIZE
    ha_device_api.struct_bytes = offsetof(struct ha_device_api, event_sync);
#elif defined WRONG_ENTRY
    ha_device_api.mem_free = NULL;
#elif defined OLDER
    ha_device_api.struct_bytes = offsetof(struct ha_device_api,
                                          merge); /* what lies beyond is not the program's to read */
#endif
}
#endif
