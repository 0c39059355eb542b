#ifndef HA_KERNELS_STREAMS_H
#define HA_KERNELS_STREAMS_H

/* What is asked for as HA_REACH_STREAMS says: several pages are read at once. */

#include <stddef.h>

/* Of so many bytes from `first` on, the line that is asked for as the i-th: of the four quarters in turns. */
static inline const char *ha_line_in_streams(const char *first, size_t bytes, size_t i)
{
    enum { STREAMS_AT_ONCE = 4, STREAM_LINE = 64 };
    return first + i % STREAMS_AT_ONCE * (bytes / STREAMS_AT_ONCE) + i / STREAMS_AT_ONCE * STREAM_LINE;
}

#endif
