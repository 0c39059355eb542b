#include "suites/device/captured.h"

#include "harness/base/why.h"

#include <string.h>

enum { GRAPHS = 16 };
static const struct ha_device_api *real;
static _Thread_local struct ha_graph *graph[GRAPHS];
static _Thread_local size_t graphs, launched;

/* Whatever comes of it, the stream does not capture any more. A graph of a call that was refused is empty. */
static enum ha_status end(struct ha_stream *stream, enum ha_status kept)
{
    const enum ha_status ended = real->graph_end(stream, &graph[graphs], NULL);
    graphs += ended == HA_OK;
    return kept != HA_OK ? kept : ended;
}

#define CAPTURED(entry, type)                                                                         \
    static enum ha_status captured_##entry(struct ha_stream *stream, const struct type *args)         \
    {                                                                                                 \
        if (graphs == GRAPHS || real->graph_begin(stream) != HA_OK) return real->entry(stream, args); \
        return end(stream, real->entry(stream, args));                                                \
    }
HA_DEVICE_OPERATIONS(CAPTURED)

bool ha_calls_library(const char *entry) { return !strcmp(entry, "product") || !strcmp(entry, "attend_products"); }

const struct ha_device_api *ha_captured(const struct ha_device_api *api, const char *name)
{
    static struct ha_device_api captured;
    if (!api->graph_begin || !api->graph_end || !api->graph_launch || !api->graph_destroy || !name
        || ha_calls_library(name))
        return NULL;
    real = api;
    captured = *api;
#define INSTEAD(entry, type) \
    if (api->entry && !strcmp(name, #entry)) captured.entry = captured_##entry;
    HA_DEVICE_OPERATIONS(INSTEAD)
    return &captured;
}

enum ha_status ha_captured_launch(struct ha_stream *stream)
{
    for (; launched < graphs; launched++) HA_TRY(real->graph_launch(graph[launched], stream));
    return HA_OK;
}

bool ha_captured_any(void) { return launched < graphs; }

enum ha_status ha_captured_again(struct ha_stream *stream)
{
    for (size_t i = 0; i < graphs; i++) HA_TRY(real->graph_launch(graph[i], stream));
    return HA_OK;
}

void ha_captured_clear(void)
{
    while (graphs) real->graph_destroy(graph[--graphs]);
    launched = 0;
}
