/* The embedded device as a plugin that misbehaves once, for tests of the program from outside: HA_HOSTILE=HOOK:DEED
 * says how, HA_HOSTILE_ONCE names a file that is made when it is done, so that no later process does it again. HOOK is
 * an entry of struct ha_device_api, or "load": while it is loaded. HA_HOSTILE_AFTER: how many calls of it are right
 * before, in the process that does it. HA_HOSTILE_NAMES: its names and reasons are such as
 * a terminal must not see. */

#define _GNU_SOURCE /* close_range */
#include "harness/api/device.h"
#include "harness/engine/test_hostile.h"

#include "harness/base/why.h"

#include <fcntl.h>
#include <fenv.h>
#include <signal.h>
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

/* until there is no more; some 32 MiB, so that the machine is not harmed */
static void memory(void)
{
    char text[64] = "";
    const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0) abort();
    const rlim_t most = strtoull(text, NULL, 10) * 4096 + (32 << 20);
    setrlimit(RLIMIT_AS, &(struct rlimit){ most, most });
    for (;;) {
        char *more = malloc(8 << 20);
        if (!more) raise(SIGKILL); /* as the kernel does */
        memset(more, 1, 8 << 20);
    }
}

static void close_all(void) { close_range(0, ~0u, 0); }

static void write_into_sockets(const void *bytes, size_t count)
{
    for (int fd = 3; fd <= 20; fd++) {
        struct stat at;
        if (fstat(fd, &at) == 0 && S_ISSOCK(at.st_mode)) (void)!write(fd, bytes, count);
    }
}

static void write_garbage(void)
{
    static unsigned char garbage[40000];
    static const size_t bytes[] = { 1, 8, 64, 560, sizeof garbage };
    for (size_t i = 0; i < sizeof garbage; i++) garbage[i] = (unsigned char)(i * i >> 3);
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) write_into_sockets(garbage, bytes[i]);
}

/* a message as a worker says it, of no bytes, but for the token */
static void forge(void)
{
    static const struct {
        uint64_t token;
        uint32_t what, kind;
        uint64_t padding, size, at, bytes;
    } message = { .what = 2 };
    write_into_sockets(&message, sizeof message);
}

static void terminate(void) { raise(SIGTERM); }
static void interrupt(void) { raise(SIGINT); }
static void die(void) { raise(SIGKILL); }

static void print_on(void)
{
    static char line[4096];
    memset(line, 'x', sizeof line);
    while (write(1, line, sizeof line) >= 0 && write(2, line, sizeof line) >= 0) continue;
}

static const char failed[] = "an illegal memory access was encountered";
static bool poisoned;
static void poison(void) { poisoned = true; }

static void round_to_zero(void) { fesetround(FE_TOWARDZERO); }

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
    { "poison", poison },
    { "round", round_to_zero },
};

static void strike(const char *hook)
{
    static unsigned long calls;
    const char *after = getenv("HA_HOSTILE_AFTER");
    const char *what = getenv("HA_HOSTILE"), *once = getenv("HA_HOSTILE_ONCE");
    const size_t n = strlen(hook);
    if (!what || !once || strncmp(what, hook, n) != 0 || what[n] != ':') return;
    if (after && __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) != strtoul(after, NULL, 10)) return;
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
        if (poisoned) return HA_ERROR;              \
        return ha_device_host.name arguments;       \
    }
#define HOOK_VOID(name, parameters, arguments) \
    static void hostile_##name parameters      \
    {                                          \
        strike(#name);                         \
        ha_device_host.name arguments;         \
    }

#define NOTHING(name)
HA_HOSTILE_ENTRIES(HOOK, HOOK_VOID, NOTHING)

static enum ha_status hostile_open(struct ha_device **dev, const struct ha_device_config *config, struct ha_why *why)
{
    strike("open");
    if (poisoned) return ha_why(why, HA_ERROR, "%s", failed);
    return ha_device_host.open(dev, config, why);
}

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
    return poisoned ? failed : ha_device_host.failure(dev);
}

/* the embedded device has none */
static void hostile_meters(struct ha_device *dev, struct ha_device_meters *out)
{
    strike("meters");
    out->sm_clock_MHz = 1;
    if (getenv("HA_HOSTILE_NAMES")) memset(out->throttle, '\x1b', sizeof out->throttle);
}

#define USE(name)                             .name = hostile_##name,
#define USE_HOOK(name, parameters, arguments) USE(name)
__attribute__((constructor)) static void fill_in(void)
{
    const bool evil = getenv("HA_HOSTILE_NAMES");
    ha_device_api = (struct ha_device_api){ .abi = HA_DEVICE_ABI,
                                            .struct_bytes = sizeof ha_device_api,
                                            .name = evil ? EVIL : "hostile",
                                            .kind = evil ? EVIL : "plugin",
                                            .built_with = evil ? EVIL : "test",
                                            HA_HOSTILE_ENTRIES(USE_HOOK, USE_HOOK, USE) };
    strike("load");
}
