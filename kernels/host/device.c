#include "kernels/host/host.h"

#include "harness/base/why.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

static enum ha_status no_kernels(const struct ha_kernels *k, struct ha_why *why)
{
    const char *missing = !k                         ? "kernel table"
                          : !k->attend               ? "attend"
                          : !k->attend_chunk         ? "attend_chunk"
                          : !k->attend_scratch_bytes ? "attend_scratch_bytes"
                          : !k->merge                ? "merge"
                                                     : NULL;
    return missing ? ha_why(why, HA_ERROR, "host device: computes with the CPU's kernels and was given no %s", missing)
                   : HA_OK;
}

static enum ha_status host_open(struct ha_device **out, const struct ha_device_config *config, struct ha_why *why)
{
    static const char *const lane[] = { [HA_H2D] = "link H2D", [HA_D2H] = "link D2H" };
    HA_TRY(no_kernels(config->kernels, why));
    struct ha_device *dev = calloc(1, sizeof *dev);
    if (!dev) return ha_why(why, HA_ERROR, "host device: no memory");
    /* with checks: device memory starts as NaN in every type, as undefined as a GPU's */
    enum ha_status status = ha_arena_create(&dev->memory.arena, true, why);
    if (status != HA_OK) {
        free(dev);
        return status;
    }
    dev->kernels = *config->kernels;
    dev->wait_limit_ns = config->wait_limit_ns ? config->wait_limit_ns : UINT64_C(30000000000);
    const char *policy = getenv("OMP_WAIT_POLICY");
    dev->spin_ns = policy && !strcasecmp(policy, "passive") ? 0 : HA_HOST_SPIN_NS;
    pthread_mutex_init(&dev->lock, NULL);
    pthread_cond_init(&dev->spans_done, NULL);
    ha_regions_init(&dev->memory.regions);
    for (size_t i = 0; i < 2; i++) {
        pthread_mutex_init(&dev->link[i].lock, NULL);
        pthread_cond_init(&dev->link[i].turn, NULL);
        dev->link[i].lane = lane[i];
    }
    *out = dev;
    return HA_OK;
}

static void host_close(struct ha_device *dev)
{
    for (struct ha_stream *s = dev->streams, *next; s; s = next) {
        next = s->next;
        ha_host_stream_free(s);
    }
    for (size_t i = 0; i < 2; i++) {
        pthread_mutex_destroy(&dev->link[i].lock);
        pthread_cond_destroy(&dev->link[i].turn);
    }
    ha_regions_end(&dev->memory.regions);
    pthread_cond_destroy(&dev->spans_done);
    pthread_mutex_destroy(&dev->lock);
    ha_host_graphs_free(dev);
    ha_arena_destroy(dev->memory.arena);
    free(dev);
}

static void host_info(struct ha_device *dev, struct ha_device_info *info)
{
    *info = (struct ha_device_info){ .merge = dev->kernels.traits, .spans = "the device" };
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
        info->profile[t] = dev->kernels.profile;
        info->products[t] = ha_host_products_profile();
    }
    if (ha_host_products_absent())
        snprintf(info->no_products, sizeof info->no_products, "%s", ha_host_products_absent());
    if (info->merge.states_max == 0 || info->merge.states_max > HA_HOST_STATES_MAX)
        info->merge.states_max = HA_HOST_STATES_MAX;
    snprintf(info->name, sizeof info->name, "host memory, %s kernels", dev->kernels.name);
    const struct ha_memory_size memory = ha_memory_size("");
    info->memory_bytes = memory.total_bytes;
    info->memory_free_bytes = memory.available_bytes;
    pthread_mutex_lock(&dev->lock);
    for (const struct ha_stream *s = dev->streams; s; s = s->next) info->compute_threads += s->live;
    pthread_mutex_unlock(&dev->lock);
    if (info->compute_threads == 0) info->compute_threads = 1;
}

static const char *host_failure(struct ha_device *dev) { return ha_host_failed(dev) ? dev->failure : NULL; }

static void host_trace(struct ha_device *dev, const struct ha_span_sink *sink)
{
    pthread_mutex_lock(&dev->lock);
    __atomic_store_n(&dev->sink, sink, __ATOMIC_RELEASE);
    while (!sink && dev->spans_due) pthread_cond_wait(&dev->spans_done, &dev->lock);
    pthread_mutex_unlock(&dev->lock);
}

const struct ha_device_api ha_device_host = {
    .abi = HA_DEVICE_ABI,
    .struct_bytes = sizeof(struct ha_device_api),
    .name = "host",
    .kind = "host",
    .built_with = HA_COMPILER,
    .open = host_open,
    .close = host_close,
    .info = host_info,
    .failure = host_failure,
    .trace = host_trace,
    .mem_alloc = ha_host_mem_alloc,
    .mem_free = ha_host_mem_free,
    .stream_create = ha_host_stream_create,
    .stream_destroy = ha_host_stream_destroy,
    .stream_sync = ha_host_stream_sync,
    .event_create = ha_host_event_create,
    .event_destroy = ha_host_event_destroy,
    .event_record = ha_host_event_record,
    .stream_wait = ha_host_stream_wait,
    .event_sync = ha_host_event_sync,
    .copy = ha_host_copy,
    .copy_2d = ha_host_copy_2d,
    .flag_write = ha_host_flag_write,
    .flag_wait = ha_host_flag_wait,
    .host_fn = ha_host_fn,
/* clang-format off */
#define ENTRY(name, type) .name = ha_host_##name,
    HA_DEVICE_OPERATIONS(ENTRY)
#undef ENTRY
        /* clang-format on */
        .graph_begin = ha_host_graph_begin,
    .graph_end = ha_host_graph_end,
    .graph_launch = ha_host_graph_launch,
    .graph_destroy = ha_host_graph_destroy,
    .copy_pieces = ha_host_copy_pieces,
    .read = ha_host_read,
    .spin = ha_host_spin,
    .map_device = ha_host_map_device,
    .unmap_device = ha_host_unmap_device,
};
