#include "suites/variants/memory.h"

#include "harness/base/arena.h"
#include "suites/variants/session.h"

/* page tables and padding come on top of the bytes that are asked for */
static const double slack = 1.05;
static const char lower[] = "ctx or batch or layers or steps, or take a smaller dtype";

struct ha_memory_need ha_memory_estimate(const struct ha_shape *s)
{
    uint64_t tokens = 0, cap = 0, row = 2 * s->kv_heads * s->head_dim * ha_dtype_bytes(s->dtype);
    uint64_t rows = s->layers * s->batch * s->q_len, outs = rows * (s->q_heads * (s->head_dim + 1)),
             slots = ha_session_slots(s->steps),
             in_bytes = rows * ((s->q_heads * s->head_dim + s->model_dim) * sizeof(float) + row);

    for (size_t b = 0; b < s->batch; b++) {
        uint64_t all = s->ctx[b] + s->steps * s->q_len;
        tokens += all;
        if (all > cap) cap = all;
    }
    return (struct ha_memory_need){
        .data_bytes = s->layers * s->batch * cap * row
                      + s->batch * s->observed * s->q_heads * s->head_dim * sizeof(float),
        .variant_bytes = s->layers * tokens * row,
        .device_io_bytes = s->steps * in_bytes + slots * outs * sizeof(float),
        .host_io_bytes = in_bytes + outs * sizeof(float) + slots * outs * 2 * sizeof(double),
    };
}

enum ha_status ha_memory_check(const struct ha_shape *shape, bool filled, bool in_host, bool all_on_device,
                               uint64_t host_free, uint64_t device_free, struct ha_why *why)
{
    struct ha_memory_need need = ha_memory_estimate(shape);
    double data = filled ? 0 : (double)need.data_bytes, variant = (double)need.variant_bytes,
           io = (double)need.host_io_bytes, device_io = (double)need.device_io_bytes;
    enum ha_status status;

    if (in_host) return ha_memory_fits("host", slack * (data + variant + io + device_io), host_free, lower, why);
    status = ha_memory_fits("host", slack * (data + (all_on_device ? 0 : variant) + io), host_free, lower, why);
    /* how much the others keep on the device is theirs to know; their allocations say when it is too much */
    if (status != HA_OK) return status;
    return ha_memory_fits("device", slack * ((all_on_device ? variant : 0) + device_io), device_free, lower, why);
}
