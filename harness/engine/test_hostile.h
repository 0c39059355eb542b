#ifndef HA_ENGINE_TEST_HOSTILE_H
#define HA_ENGINE_TEST_HOSTILE_H

/* The entries of a device that misbehaves (test_hostile_device.c), by what they return, with parameters and arguments;
 * OWN: written by hand there. */
#define HA_HOSTILE_ENTRIES(STATUS, VOID, OWN)                                                                          \
    OWN(open)                                                                                                          \
    VOID(close, (struct ha_device * dev), (dev))                                                                       \
    OWN(info)                                                                                                          \
    OWN(failure)                                                                                                       \
    VOID(trace, (struct ha_device * dev, const struct ha_span_sink *sink), (dev, sink))                                \
    STATUS(mem_alloc, (struct ha_device * dev, enum ha_memory kind, size_t bytes, void **ptr, struct ha_why *why),     \
           (dev, kind, bytes, ptr, why))                                                                               \
    VOID(mem_free, (struct ha_device * dev, enum ha_memory kind, void *ptr), (dev, kind, ptr))                         \
    STATUS(stream_create, (struct ha_device * dev, const char *name, struct ha_stream **stream, struct ha_why *why),   \
           (dev, name, stream, why))                                                                                   \
    VOID(stream_destroy, (struct ha_stream * stream), (stream))                                                        \
    STATUS(stream_sync, (struct ha_stream * stream), (stream))                                                         \
    STATUS(event_create, (struct ha_device * dev, struct ha_event * *event, struct ha_why * why), (dev, event, why))   \
    VOID(event_destroy, (struct ha_event * event), (event))                                                            \
    STATUS(event_record, (struct ha_event * event, struct ha_stream * stream), (event, stream))                        \
    STATUS(stream_wait, (struct ha_stream * stream, struct ha_event * event), (stream, event))                         \
    STATUS(event_sync, (struct ha_event * event), (event))                                                             \
    STATUS(copy, (struct ha_stream * stream, void *dst, const void *src, size_t bytes, enum ha_direction dir),         \
           (stream, dst, src, bytes, dir))                                                                             \
    STATUS(copy_2d,                                                                                                    \
           (struct ha_stream * stream, void *dst, size_t dst_stride, const void *src, size_t src_stride,               \
            size_t row_bytes, size_t rows, enum ha_direction dir),                                                     \
           (stream, dst, dst_stride, src, src_stride, row_bytes, rows, dir))                                           \
    STATUS(flag_write, (struct ha_stream * stream, uint32_t * flag, uint32_t value), (stream, flag, value))            \
    STATUS(flag_wait, (struct ha_stream * stream, const uint32_t *flag, uint32_t at_least), (stream, flag, at_least))  \
    STATUS(host_fn, (struct ha_stream * stream, void (*fn)(void *arg), void *arg), (stream, fn, arg))                  \
    STATUS(attend, (struct ha_stream * stream, const struct ha_device_attend *args), (stream, args))                   \
    STATUS(merge, (struct ha_stream * stream, const struct ha_merge *args), (stream, args))                            \
    STATUS(blend, (struct ha_stream * stream, const struct ha_device_blend *args), (stream, args))                     \
    STATUS(graph_begin, (struct ha_stream * stream), (stream))                                                         \
    STATUS(graph_end, (struct ha_stream * stream, struct ha_graph * *graph, struct ha_why * why),                      \
           (stream, graph, why))                                                                                       \
    STATUS(graph_launch, (struct ha_graph * graph, struct ha_stream * stream), (graph, stream))                        \
    VOID(graph_destroy, (struct ha_graph * graph), (graph))                                                            \
    STATUS(attend_products, (struct ha_stream * stream, const struct ha_device_attend *args), (stream, args))          \
    STATUS(product, (struct ha_stream * stream, const struct ha_device_product *args), (stream, args))                 \
    STATUS(move, (struct ha_stream * stream, const struct ha_device_move *args), (stream, args))                       \
    STATUS(copy_pieces, (struct ha_stream * stream, const struct ha_device_pieces *pieces, enum ha_direction dir),     \
           (stream, pieces, dir))                                                                                      \
    STATUS(read, (struct ha_stream * stream, const void *ptr, size_t bytes, uint32_t *sum), (stream, ptr, bytes, sum)) \
    STATUS(spin, (struct ha_stream * stream, uint64_t ns), (stream, ns))                                               \
    OWN(meters)                                                                                                        \
    STATUS(map_device, (struct ha_device * dev, void *ptr, size_t bytes, void **host, struct ha_why *why),             \
           (dev, ptr, bytes, host, why))                                                                               \
    VOID(unmap_device, (struct ha_device * dev, void *host), (dev, host))

#endif
