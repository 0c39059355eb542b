/* The embedded device as a plugin that misbehaves once, for tests of the program from outside: HA_HOSTILE=HOOK:DEED
 * says how, HA_HOSTILE_ONCE names a file that is made when it is done, so that no later process does it again. HOOK is
 * an entry of struct ha_device_api, or "load": while it is loaded. HA_HOSTILE_SEEN names a file to which every entry
 * that is called is written. HA_HOSTILE_NAMES: its names and reasons are such as a terminal must not see. */

#include "harness/api/device.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern const struct ha_device_api ha_device_host;

__attribute__((visibility("default"))) extern struct ha_device_api ha_device_api;
struct ha_device_api ha_device_api;

#define EVIL "evil\x1b[31m\xff\xc3(\x07"

/* ---- deeds ------------------------------------------------------------------------------- */

static int *volatile nowhere;
/* the sanitizers are not to see it first */
__attribute__((no_sanitize("undefined"), no_sanitize("address"), no_sanitize("thread"))) static void crash(void)
{
    *nowhere = 1;
}
static void hang(void)
{
    for (;;) pause();
}
/* and so does a copy */
static void fork_and_hang(void)
{
    (void)!fork();
    hang();
}
static void exit_0(void) { exit(0); }
static void exit_3(void) { exit(3); }
static void copy_goes_on(void) { (void)!fork(); }

/* the copy goes on in place of the process */
static void replaced(void)
{
    if (fork() > 0) exit(0);
}

/* until there is no more; some 256 MiB, so that the machine is not harmed */
static void memory(void)
{
    char text[64] = "";
    const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0) abort();
    const rlim_t most = strtoull(text, NULL, 10) * 4096 + (256 << 20);
    setrlimit(RLIMIT_AS, &(struct rlimit){ most, most });
    for (;;) {
        char *more = malloc(8 << 20);
        if (!more) raise(SIGKILL); /* as the kernel does */
        memset(more, 1, 8 << 20);
    }
}

static void close_all(void) { close_range(0, ~0u, 0); }

static void write_garbage(void)
{
    static unsigned char garbage[40000];
    static const size_t bytes[] = { 1, 8, 64, 560, sizeof garbage };
    for (size_t i = 0; i < sizeof garbage; i++) garbage[i] = (unsigned char)(i * i >> 3);
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        for (int fd = 3; fd <= 20; fd++) {
            struct stat at;
            if (fstat(fd, &at) == 0 && S_ISSOCK(at.st_mode)) (void)!write(fd, garbage, bytes[i]);
        }
}

/* a message as a worker says it, of no bytes, but for the token */
static void forge(void)
{
    static const struct {
        uint64_t token;
        uint32_t what, kind;
        uint64_t padding, size, at, bytes;
    } message = { .what = 2 };
    for (int fd = 3; fd <= 20; fd++) {
        struct stat at;
        if (fstat(fd, &at) == 0 && S_ISSOCK(at.st_mode)) (void)!write(fd, &message, sizeof message);
    }
}

static void terminate(void) { raise(SIGTERM); }
static void interrupt(void) { raise(SIGINT); }
static void die(void) { raise(SIGKILL); }

static void print_on(void)
{
    static char line[4096];
    memset(line, 'x', sizeof line);
    for (;;) {
        if (write(1, line, sizeof line) < 0 || write(2, line, sizeof line) < 0) break;
        usleep(1000); /* so that no disk is filled before the time is over */
    }
}

static const struct {
    const char *name;
    void (*act)(void);
} deeds[] = {
    { "crash", crash },
    { "hang", hang },
    { "fork_and_hang", fork_and_hang },
    { "exit_0", exit_0 },
    { "exit_3", exit_3 },
    { "abort", abort },
    { "fork", copy_goes_on },
    { "replaced", replaced },
    { "memory", memory },
    { "close", close_all },
    { "garbage", write_garbage },
    { "forge", forge },
    { "term", terminate },
    { "int", interrupt },
    { "kill", die },
    { "print", print_on },
};

static void note(const char *hook)
{
    const char *path = getenv("HA_HOSTILE_SEEN");
    char line[64];
    const int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd < 0) return;
    (void)!write(fd, line, (size_t)snprintf(line, sizeof line, "%s\n", hook));
    close(fd);
}

static void strike(const char *hook)
{
    const char *what = getenv("HA_HOSTILE"), *once = getenv("HA_HOSTILE_ONCE");
    const size_t n = strlen(hook);
    note(hook);
    if (!what || !once || strncmp(what, hook, n) != 0 || what[n] != ':') return;
    const int fd = open(once, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return;
    close(fd);
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++)
        if (!strcmp(deeds[i].name, what + n + 1)) deeds[i].act();
}

/* ---- the table --------------------------------------------------------------------------- */

#define HOOK(name, parameters, arguments)           \
    static enum ha_status hostile_##name parameters \
    {                                               \
        strike(#name);                              \
        return ha_device_host.name arguments;       \
    }
#define HOOK_VOID(name, parameters, arguments) \
    static void hostile_##name parameters      \
    {                                          \
        strike(#name);                         \
        ha_device_host.name arguments;         \
    }

HOOK(open, (struct ha_device * *dev, const struct ha_device_config *config, struct ha_why *why), (dev, config, why))
HOOK_VOID(close, (struct ha_device * dev), (dev))
HOOK_VOID(trace, (struct ha_device * dev, const struct ha_span_sink *sink), (dev, sink))
HOOK(mem_alloc, (struct ha_device * dev, enum ha_memory kind, size_t bytes, void **ptr, struct ha_why *why),
     (dev, kind, bytes, ptr, why))
HOOK_VOID(mem_free, (struct ha_device * dev, enum ha_memory kind, void *ptr), (dev, kind, ptr))
HOOK(stream_create, (struct ha_device * dev, const char *name, struct ha_stream **stream, struct ha_why *why),
     (dev, name, stream, why))
HOOK_VOID(stream_destroy, (struct ha_stream * stream), (stream))
HOOK(stream_sync, (struct ha_stream * stream), (stream))
HOOK(event_create, (struct ha_device * dev, struct ha_event **event, struct ha_why *why), (dev, event, why))
HOOK_VOID(event_destroy, (struct ha_event * event), (event))
HOOK(event_record, (struct ha_event * event, struct ha_stream *stream), (event, stream))
HOOK(stream_wait, (struct ha_stream * stream, struct ha_event *event), (stream, event))
HOOK(event_sync, (struct ha_event * event), (event))
HOOK(copy, (struct ha_stream * stream, void *dst, const void *src, size_t bytes, enum ha_direction dir),
     (stream, dst, src, bytes, dir))
HOOK(copy_2d,
     (struct ha_stream * stream, void *dst, size_t dst_stride, const void *src, size_t src_stride, size_t row_bytes,
      size_t rows, enum ha_direction dir),
     (stream, dst, dst_stride, src, src_stride, row_bytes, rows, dir))
HOOK(flag_write, (struct ha_stream * stream, uint32_t *flag, uint32_t value), (stream, flag, value))
HOOK(flag_wait, (struct ha_stream * stream, const uint32_t *flag, uint32_t at_least), (stream, flag, at_least))
HOOK(host_fn, (struct ha_stream * stream, void (*fn)(void *arg), void *arg), (stream, fn, arg))
HOOK(attend, (struct ha_stream * stream, const struct ha_device_attend *args), (stream, args))
HOOK(merge, (struct ha_stream * stream, const struct ha_merge *args), (stream, args))
HOOK(blend, (struct ha_stream * stream, const struct ha_device_blend *args), (stream, args))
HOOK(graph_begin, (struct ha_stream * stream), (stream))
HOOK(graph_end, (struct ha_stream * stream, struct ha_graph **graph, struct ha_why *why), (stream, graph, why))
HOOK(graph_launch, (struct ha_graph * graph, struct ha_stream *stream), (graph, stream))
HOOK_VOID(graph_destroy, (struct ha_graph * graph), (graph))
HOOK(attend_products, (struct ha_stream * stream, const struct ha_device_attend *args), (stream, args))
HOOK(product, (struct ha_stream * stream, const struct ha_device_product *args), (stream, args))
HOOK(move, (struct ha_stream * stream, const struct ha_device_move *args), (stream, args))
HOOK(copy_pieces, (struct ha_stream * stream, const struct ha_device_pieces *pieces, enum ha_direction dir),
     (stream, pieces, dir))
HOOK(read, (struct ha_stream * stream, const void *ptr, size_t bytes, uint32_t *sum), (stream, ptr, bytes, sum))
HOOK(spin, (struct ha_stream * stream, uint64_t ns), (stream, ns))
HOOK(map_device, (struct ha_device * dev, void *ptr, size_t bytes, void **host, struct ha_why *why),
     (dev, ptr, bytes, host, why))
HOOK_VOID(unmap_device, (struct ha_device * dev, void *host), (dev, host))

static void hostile_info(struct ha_device *dev, struct ha_device_info *info)
{
    strike("info");
    ha_device_host.info(dev, info);
    if (!getenv("HA_HOSTILE_NAMES")) return;
    memset(info->name, '\x9b', sizeof info->name); /* and no end */
    memcpy(info->name, EVIL, sizeof EVIL - 1);
    strcpy(info->driver, EVIL);
}

static const char *hostile_failure(struct ha_device *dev)
{
    strike("failure");
    return ha_device_host.failure(dev);
}

/* the embedded device has none */
static void hostile_meters(struct ha_device *dev, struct ha_device_meters *out)
{
    (void)dev;
    strike("meters");
    out->sm_clock_MHz = 1;
    if (getenv("HA_HOSTILE_NAMES")) memset(out->throttle, '\x1b', sizeof out->throttle);
}

__attribute__((constructor)) static void fill_in(void)
{
    ha_device_api = (struct ha_device_api){
        .abi = HA_DEVICE_ABI,
        .struct_bytes = sizeof ha_device_api,
        .name = getenv("HA_HOSTILE_NAMES") ? EVIL : "hostile",
        .kind = getenv("HA_HOSTILE_NAMES") ? EVIL : "plugin",
        .built_with = getenv("HA_HOSTILE_NAMES") ? EVIL : "test",
#define USE(name) .name = hostile_##name
        USE(open),
        USE(close),
        USE(info),
        USE(failure),
        USE(trace),
        USE(mem_alloc),
        USE(mem_free),
        USE(stream_create),
        USE(stream_destroy),
        USE(stream_sync),
        USE(event_create),
        USE(event_destroy),
        USE(event_record),
        USE(stream_wait),
        USE(event_sync),
        USE(copy),
        USE(copy_2d),
        USE(flag_write),
        USE(flag_wait),
        USE(host_fn),
        USE(attend),
        USE(merge),
        USE(blend),
        USE(graph_begin),
        USE(graph_end),
        USE(graph_launch),
        USE(graph_destroy),
        USE(attend_products),
        USE(product),
        USE(move),
        USE(copy_pieces),
        USE(read),
        USE(spin),
        USE(meters),
        USE(map_device),
        USE(unmap_device),
#undef USE
    };
    strike("load");
}
