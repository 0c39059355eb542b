#define _GNU_SOURCE /* pipe2, REG_ERR */
#include "harness/engine/child.h"

#include "harness/base/clock.h"
#include "harness/base/own_files.h"
#include "harness/base/sanitizer.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <ucontext.h>
#include <unistd.h>

enum {
    PIECES_MAX = 16,
    PAGE = HA_ROOM_PAGE,
    LINGER_MS = 2000, /* between the end of its connection and its death, on a busy host, too */
    FAULT_STACK = 64 << 10,
    SAID_BYTES = 32 << 10,  /* of a message in one packet */
    PATIENT_SLICE_MS = 200, /* what is measured is not to be woken beside it */
    GRACE_MS = 2000,        /* from being asked to stop, or to end, to being killed */
    PACKETS_AT_ONCE = 1000, /* then it is looked whether the time is over */
    PRINTED_MAX = 16 << 20, /* in one call */
};
static const size_t SAID_MOST = (size_t)1 << 30;

/* Messages, one packet each. */
struct call {
    void *arg;
    size_t count;
    struct ha_piece piece[PIECES_MAX];
};
enum access { ACCESS_READ, ACCESS_WRITE, ACCESS_EITHER };
struct fault {
    bool known;
    enum access access;
    uintptr_t address;
};
enum what { ANSWER, FAULT, MESSAGE };
/* Every packet of the child begins so. The token differs from process to process: what does not bear it was written by
 * code that took the connection for a file of its own. */
struct head {
    uint64_t token;
    uint32_t what; /* enum what */
};
struct reply {
    struct head head; /* FAULT: it is about to die of that */
    int status;
    struct fault fault;
    struct ha_why why;
};
enum { BEGUN = INT_MAX }; /* a kind: that a call is served from now on, for its clock */
/* A piece of a message: `bytes` of it from `at`, of `size` in all. */
struct said {
    struct head head;
    unsigned kind;
    uint64_t since_ns; /* of its call, by the clock of the child */
    size_t size, at, bytes;
    unsigned char of[SAID_BYTES];
};
union packet {
    struct head head;
    struct reply reply;
    struct said said;
};

struct ha_child {
    struct ha_child_work work;
    struct ha_room room;
    pid_t pid; /* 0: none */
    int socket;
    int printed;          /* the end that is read of a pipe: its stdout and stderr */
    size_t printed_bytes; /* during the call */
    uint64_t begun_ns;    /* the call */
    uint64_t deaf_ns;     /* since then: what is beyond the time that it waits for a message at most */
    struct ha_child_clocks clocks;
    uint64_t token;
    uint64_t stop_ns;     /* 0: never */
    unsigned char *heard; /* of a message that is not complete: [heard_room] */
    size_t heard_room, heard_bytes;
    union packet packet; /* the one that was received last */
};

/* ---- in the child ------------------------------------------------------------------------ */

static struct {
    const struct ha_child *child;
    int socket;
    pid_t pid, parent;
    uint64_t begun_ns; /* the call that is served */
} server;

static enum access access_of(const void *context)
{
#if defined __x86_64__
    const ucontext_t *at = context;
    return at->uc_mcontext.gregs[REG_ERR] & 2 ? ACCESS_WRITE : ACCESS_READ;
#else
    return ACCESS_EITHER;
#endif
}

/* Async-signal-safe. The signal comes again, and nobody catches it. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    static struct reply reply;
    const bool raised = info->si_code <= 0;
    reply.head = (struct head){ server.child->token, FAULT };
    reply.fault.known = !raised && info->si_code != SI_KERNEL;
    reply.fault.access = access_of(context);
    reply.fault.address = (uintptr_t)info->si_addr;
    if (getpid() == server.pid) send(server.socket, &reply, sizeof reply, MSG_NOSIGNAL);
    signal(number, SIG_DFL);
    if (raised) raise(number);
}

/* exit() in a stranger's code: what the parent registered for its own end does not happen here */
static void leave(int status, void *unused) { _exit(status); }

static unsigned char *first_page(const struct ha_piece *p) { return p->guard - (p->bytes + PAGE - 1) / PAGE * PAGE; }

static bool protect(const struct ha_room *room, const struct call *c)
{
    if (!c->count) return true;
    bool done = mprotect(room->base, room->bytes, PROT_READ) == 0;
    for (size_t i = 0; i < c->count; i++) {
        const struct ha_piece *p = &c->piece[i];
        if (!p->bytes) continue;
        done = done && mprotect(p->guard, PAGE, PROT_NONE) == 0;
        if (p->written)
            done = done && mprotect(first_page(p), (size_t)(p->guard - first_page(p)), PROT_READ | PROT_WRITE) == 0;
    }
    return done;
}

static void *serve_calls(void *unused)
{
    static unsigned char stack[FAULT_STACK];
    const struct ha_child *child = server.child;
    sigaltstack(&(stack_t){ .ss_sp = stack, .ss_size = sizeof stack }, NULL);
    for (;;) {
        struct call call;
        const ssize_t got = recv(server.socket, &call, sizeof call, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0 && child->work.end) child->work.end(child->work.self);
        if (got != sizeof call) _exit(0);
        server.begun_ns = ha_now_ns();
        struct reply reply = { .head = { child->token, ANSWER } };
        if (child->work.hear) ha_child_say(BEGUN, NULL, 0);
        if (protect(&child->room, &call)) reply.status = (int)child->work.serve(child->work.self, call.arg, &reply.why);
        else reply.status = (int)ha_why(&reply.why, HA_ERROR, "cannot protect the buffers: %s", strerror(errno));
        if (getpid() != server.pid) _exit(0); /* a fork of the stranger's came back from its code */
        if (call.count) mprotect(child->room.base, child->room.bytes, PROT_READ | PROT_WRITE);
        if (send(server.socket, &reply, sizeof reply, MSG_NOSIGNAL) != sizeof reply) _exit(0);
    }
    return NULL;
}

void ha_child_say(unsigned kind, const void *bytes, size_t size)
{
    static struct said said;
    ssize_t sent;
    if (getpid() != server.pid) return; /* a fork of the stranger's */
    said.head = (struct head){ server.child->token, MESSAGE };
    said.kind = kind;
    said.since_ns = ha_now_ns() - server.begun_ns;
    said.size = size;
    said.at = 0;
    do {
        said.bytes = size - said.at < SAID_BYTES ? size - said.at : SAID_BYTES;
        if (said.bytes) memcpy(said.of, (const char *)bytes + said.at, said.bytes);
        do sent = send(server.socket, &said, offsetof(struct said, of) + said.bytes, MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR);
        if (sent < 0) _exit(0); /* the parent is gone; a packet is sent whole or not at all */
        said.at += said.bytes;
    } while (said.at < size);
}

/* The parent asks for an end; a signal from anyone else kills. */
static void on_stop(int number, siginfo_t *info, void *unused)
{
    if (info->si_pid == server.parent) {
        ha_stop = number;
        return;
    }
    signal(number, SIG_DFL);
    raise(number);
}

/* what the stranger forks ends with this process */
static void on_fork(void) { prctl(PR_SET_PDEATHSIG, SIGKILL); }

static _Noreturn void serve_process(const struct ha_child *child, int socket, pid_t parent)
{
    ha_process_settle(parent);
    ha_own_files_leave(socket);
    on_exit(leave, NULL);
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* what it prints is seen before it dies */

    struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);

    server.child = child;
    server.socket = socket;
    server.pid = getpid();
    server.parent = parent;
    action.sa_sigaction = on_stop;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    if (child->work.ours) sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a limit of the size of files is a failure like others */
    pthread_atfork(NULL, NULL, on_fork);
    /* the thread sanitizer's runtime ends a process that makes a thread after a fork */
    if (HA_TSAN || child->work.ours) serve_calls(NULL);
    /* The thread that forked may lead an OpenMP team whose other threads are not here, and would wait for them. */
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve_calls, NULL) == 0) pthread_join(thread, NULL);
    _exit(0);
}

/* ---- in the parent ----------------------------------------------------------------------- */

static enum ha_status begin(struct ha_child *c, struct ha_why *why)
{
    int pair[2] = { -1, -1 }, printed[2];
    if (pipe2(printed, O_CLOEXEC) != 0)
        return ha_why(why, HA_ERROR, "no pipe from a process of its own: %s", strerror(errno));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        ha_why(why, HA_ERROR, "no connection to a process of its own: %s", strerror(errno));
        close(printed[0]), close(printed[1]);
        return HA_ERROR;
    }
    for (int end = 0; end < 2; end++) ha_own_file(printed[end]), ha_own_file(pair[end]);
    fcntl(printed[0], F_SETFL, O_NONBLOCK);
    const pid_t parent = getpid();
    if (getrandom(&c->token, sizeof c->token, GRND_NONBLOCK) != sizeof c->token) c->token = ha_now_ns();
    fflush(NULL); /* or the child has it to write, too */
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(printed[1], STDERR_FILENO); /* and then it is its stdout, too */
        serve_process(c, pair[1], parent);
    }
    const int cause = errno;
    ha_own_file_close(pair[1]), ha_own_file_close(printed[1]);
    if (pid < 0) {
        ha_own_file_close(pair[0]), ha_own_file_close(printed[0]);
        return ha_why(why, HA_ERROR, "no process for it: %s", strerror(cause));
    }
    setpgid(pid, pid); /* as the child does; whoever comes first */
    c->pid = pid;
    c->socket = pair[0];
    c->printed = printed[0];
    return HA_OK;
}

/* What it has printed goes to our stderr. false: it prints without end. */
static bool pass_on(struct ha_child *c)
{
    char text[8192];
    ssize_t got = -1;
    while (c->printed_bytes <= PRINTED_MAX && (got = read(c->printed, text, sizeof text)) > 0) {
        for (ssize_t at = 0, wrote = 1; at < got && wrote > 0; at += wrote)
            wrote = write(STDERR_FILENO, text + at, (size_t)(got - at));
        c->printed_bytes += (size_t)got;
    }
    if (got == 0) { /* it has closed both; poll is not to say so again and again */
        ha_own_file_close(c->printed);
        c->printed = -1;
    }
    return c->printed_bytes <= PRINTED_MAX;
}

void ha_child_end(struct ha_child *c)
{
    if (!c->pid) return;
    ha_process_end(c->pid);
    pass_on(c);
    if (c->printed >= 0) ha_own_file_close(c->printed);
    ha_own_file_close(c->socket);
    c->pid = 0;
    c->heard_bytes = 0;
}

struct place {
    char text[128];
};

/* An address in the room, by the piece that it is nearest to. */
static struct place nearest(uintptr_t at, const struct call *call, const char *const *names)
{
    struct place place = { "touched memory that it shares with the program" };
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < call->count; i++) {
        const struct ha_piece *p = &call->piece[i];
        const uintptr_t begin = (uintptr_t)p->at, end = begin + p->bytes;
        if (!p->bytes) continue;
        const size_t away = at < begin ? begin - at : at < end ? 0 : at - end + 1;
        if (away >= least) continue;
        least = away;
        if (at >= begin && at < end)
            snprintf(place.text, sizeof place.text, "byte %zu of %s, which is not to be written", (size_t)(at - begin),
                     names[i]);
        else if (away > PAGE)
            snprintf(place.text, sizeof place.text, "%zu bytes away from %s, the nearest of its buffers", away,
                     names[i]);
        else if (at < begin)
            snprintf(place.text, sizeof place.text, "%zu bytes before the start of %s", away, names[i]);
        else snprintf(place.text, sizeof place.text, "byte %zu past the end of %s", away, names[i]);
    }
    return place;
}

static struct place place_of(const struct ha_child *c, const struct fault *f, const struct call *call,
                             const char *const *names)
{
    static const char *const verb[3] = {
        [ACCESS_READ] = "read", [ACCESS_WRITE] = "wrote", [ACCESS_EITHER] = "touched"
    };
    struct place place = { "" };
    const uintptr_t room = (uintptr_t)c->room.base;
    if (!f->known || (unsigned)f->access >= sizeof verb / sizeof *verb) return place;
    if (f->address < PAGE)
        snprintf(place.text, sizeof place.text, ": %s through a NULL pointer (address %#zx)", verb[f->access],
                 (size_t)f->address);
    else if (call->count && f->address >= room && f->address - room < c->room.bytes)
        snprintf(place.text, sizeof place.text, ": %s %.100s", verb[f->access], nearest(f->address, call, names).text);
    else
        snprintf(place.text, sizeof place.text, ": %s address %#zx, in none of its buffers", verb[f->access],
                 (size_t)f->address);
    return place;
}

void ha_lag_add(struct ha_lag *lag, uint64_t its_ns, uint64_t ours_ns)
{
    const uint64_t period = ours_ns / HA_LAG_PERIOD_NS + 1, ns = ours_ns > its_ns ? ours_ns - its_ns : 0;
    const size_t at = period % HA_LAG_PERIODS;
    uint64_t usual_ns = ns;
    if (!lag->least_ns || ns + 1 < lag->least_ns) lag->least_ns = ns + 1;
    if (lag->of[at].period != period || ns < lag->of[at].ns) lag->of[at].ns = ns;
    lag->of[at].period = period;
    lag->periods = 0;
    for (size_t i = 0; i < HA_LAG_PERIODS; i++) {
        if (!lag->of[i].period || lag->of[i].period + HA_LAG_PERIODS <= period) continue;
        if (lag->of[i].ns < usual_ns) usual_ns = lag->of[i].ns;
        lag->periods++;
    }
    lag->last_ns = ns + 1 - lag->least_ns;
    lag->usual_ns = usual_ns + 1 - lag->least_ns;
}

/* A piece of a message; the last one completes it. false: no child of ours says this. */
static bool hear(struct ha_child *c, const struct said *said, size_t got)
{
    const size_t head = offsetof(struct said, of);
    if (got < head || got != head + said->bytes || said->at != c->heard_bytes || said->size > SAID_MOST
        || said->bytes > said->size - said->at)
        return false;
    if (said->size > c->heard_room) {
        unsigned char *grown = realloc(c->heard, said->size);
        if (!grown) return false;
        c->heard = grown;
        c->heard_room = said->size;
    }
    if (said->bytes) memcpy(c->heard + said->at, said->of, said->bytes);
    c->heard_bytes += said->bytes;
    if (c->heard_bytes < said->size) return true;
    c->heard_bytes = 0;
    const uint64_t ours_ns = ha_now_ns() - c->begun_ns;
    ha_lag_add(&c->clocks.lag, said->since_ns, ours_ns);
    c->clocks.its_ns = said->since_ns;
    c->clocks.ours_ns = ours_ns;
    c->clocks.deaf_ns = c->deaf_ns;
    if (c->work.hear && said->kind != BEGUN) c->work.hear(c->work.arg, said->kind, c->heard, said->size);
    return true;
}

/* What came from the child. */
struct heard {
    struct reply reply; /* where take returned true */
    struct fault fault;
    bool hung_up, foreign; /* foreign: something else has written to its connection */
};

/* Takes packets until the answer; what else comes is said, or announces a death. false: it is not there yet. */
static bool take(struct ha_child *c, struct heard *h, bool gone)
{
    for (int packets = 0; gone || packets < PACKETS_AT_ONCE; packets++) {
        const ssize_t got = recv(c->socket, &c->packet, sizeof c->packet, MSG_DONTWAIT | MSG_TRUNC);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
        if (got <= 0) {
            h->hung_up = true;
            return false;
        }
        const size_t bytes = (size_t)got;
        const uint32_t what = c->packet.head.what;
        if (bytes < sizeof c->packet.head || bytes > sizeof c->packet || c->packet.head.token != c->token
            || (what == MESSAGE ? !hear(c, &c->packet.said, bytes) : bytes != sizeof h->reply)) {
            h->foreign = true;
            return false;
        }
        if (what == MESSAGE) continue;
        h->reply = c->packet.reply;
        if (what == ANSWER) return true;
        h->fault = h->reply.fault;
    }
    return false;
}

static enum ha_status answer(const struct reply *reply, struct ha_why *why)
{
    if (reply->status < HA_OK || reply->status > HA_ERROR)
        return ha_why(why, HA_ERROR, "answered with %d, which is no status", reply->status);
    if (reply->status != HA_OK) ha_why(why, HA_OK, "%.*s", (int)sizeof reply->why.text - 1, reply->why.text);
    return (enum ha_status)reply->status;
}

/* *answered: it did; else it is to be ended. */
static enum ha_status await(struct ha_child *c, const struct call *call, const char *const *names, bool *answered,
                            struct ha_why *why)
{
    const uint64_t limit = c->work.limit_ns, begun = ha_now_ns();
    struct heard h = { .hung_up = false };
    bool asked = false;
    uint64_t end = limit, listened = begun;
    for (;;) {
        siginfo_t how;
        const uint64_t silent = ha_now_ns() - listened, longest = PATIENT_SLICE_MS * UINT64_C(1000000);
        if (silent > longest) c->deaf_ns += silent - longest;
        listened += silent;
        const bool gone = ha_process_gone(c->pid, &how); /* asked before the last packets are taken */
        *answered = take(c, &h, gone);
        if (!pass_on(c)) return ha_why(why, HA_ERROR, "printed more than %d MiB and was stopped", PRINTED_MAX >> 20);
        if (*answered) return answer(&h.reply, why);
        if (h.foreign) return ha_why(why, HA_ERROR, "wrote into its connection to the program");
        if (gone)
            return ha_why(why, HA_ERROR, "%s%s", ha_process_text(&how).text, place_of(c, &h.fault, call, names).text);
        const uint64_t now = ha_now_ns(), spent = now - begun;
        const bool late = c->stop_ns && now >= c->stop_ns;
        if (c->work.ours && !asked && (ha_stop || late)) {
            kill(c->pid, SIGTERM);
            asked = true;
            if (end > spent + GRACE_MS * UINT64_C(1000000)) end = spent + GRACE_MS * UINT64_C(1000000);
        }
        if ((ha_stop && !c->work.ours) || (asked && (spent >= end || ha_stop_now)))
            return ha_why(why, HA_ERROR, ha_stop ? "interrupted" : "stopped: the time is over");
        if (h.hung_up && end == limit && end > spent + LINGER_MS * UINT64_C(1000000))
            end = spent + LINGER_MS * UINT64_C(1000000);
        if (spent >= end && h.hung_up)
            return ha_why(why, HA_ERROR, "closed its connection to the program and lives on");
        if (spent >= end) return ha_why(why, HA_ERROR, "no answer in %.3g s", (double)limit * 1e-9);
        const uint64_t left_ms = (end - spent) / 1000000 + 1,
                       slice_ms = c->work.ours ? PATIENT_SLICE_MS : HA_PROCESS_SLICE_MS;
        struct pollfd ready[] = { { .fd = h.hung_up ? -1 : c->socket, .events = POLLIN },
                                  { .fd = h.hung_up ? -1 : c->printed, .events = POLLIN } };
        poll(ready, 2, (int)(h.hung_up ? 1 : left_ms < slice_ms ? left_ms : slice_ms));
    }
}

bool ha_child_died(struct ha_child *c, struct ha_why *how)
{
    siginfo_t end;
    if (!c->pid || !ha_process_gone(c->pid, &end)) return false;
    ha_child_end(c);
    ha_why(how, HA_ERROR, "%s, after the answer to the last call", ha_process_text(&end).text);
    return true;
}

enum ha_status ha_child_close(struct ha_child *c, struct ha_why *how)
{
    siginfo_t end;
    if (!c->pid) return HA_OK;
    if (ha_child_died(c, how)) return HA_ERROR;
    const uint64_t until = ha_now_ns() + GRACE_MS * UINT64_C(1000000);
    bool gone = false, prints = true;
    c->printed_bytes = 0;
    shutdown(c->socket, SHUT_WR);
    while (!(gone = ha_process_gone(c->pid, &end)) && (prints = pass_on(c)) && ha_now_ns() < until && !ha_stop_now) {
        struct pollfd ready = { .fd = c->printed, .events = POLLIN };
        poll(&ready, 1, c->printed < 0 ? 1 : HA_PROCESS_SLICE_MS); /* its end is that of what it prints, too */
    }
    ha_child_end(c);
    if (!prints) return ha_why(how, HA_ERROR, "printed more than %d MiB at its end", PRINTED_MAX >> 20);
    if (!gone) return ha_why(how, HA_FAIL, "had not ended %d ms after its last answer, and was killed", GRACE_MS);
    if (end.si_code == CLD_EXITED && end.si_status == 0) return HA_OK;
    return ha_why(how, HA_ERROR, "%s, at its end", ha_process_text(&end).text);
}

enum ha_status ha_child_call(struct ha_child *c, void *arg, const struct ha_piece *pieces, const char *const *names,
                             size_t count, struct ha_why *why)
{
    struct call call = { .arg = arg, .count = pieces ? count : 0 };
    bool answered = false;
    if (call.count > PIECES_MAX) return ha_why(why, HA_ERROR, "%zu buffers, and %d can be guarded", count, PIECES_MAX);
    if (call.count) memcpy(call.piece, pieces, count * sizeof *pieces);
    if (ha_child_died(c, why)) return HA_ERROR;
    if (!c->pid) HA_TRY(begin(c, why));
    c->printed_bytes = 0;
    c->begun_ns = ha_now_ns();
    c->deaf_ns = 0;
    c->clocks = (struct ha_child_clocks){ 0 };
    /* where this fails the process is about to be gone, and await says how */
    while (send(c->socket, &call, sizeof call, MSG_NOSIGNAL) < 0 && errno == EINTR) continue;
    const enum ha_status status = await(c, &call, names, &answered, why);
    if (!answered) ha_child_end(c);
    return status;
}

enum ha_status ha_child_create(struct ha_child **child, const struct ha_child_work *work, size_t room_bytes,
                               struct ha_why *why)
{
    struct ha_child *c = *child = calloc(1, sizeof *c);
    if (!c) return ha_why(why, HA_ERROR, "out of memory");
    void *p = mmap(NULL, room_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        free(c);
        *child = NULL;
        return ha_why(why, HA_ERROR, "no %zu bytes to share with a process: %s", room_bytes, strerror(errno));
    }
    madvise(p, room_bytes, MADV_DONTDUMP);
    c->work = *work;
    c->room = (struct ha_room){ p, room_bytes };
    return HA_OK;
}

struct ha_child_clocks ha_child_clocks(const struct ha_child *c) { return c->clocks; }

void ha_child_limit(struct ha_child *c, uint64_t limit_ns, uint64_t stop_ns)
{
    c->work.limit_ns = limit_ns;
    c->stop_ns = stop_ns;
}

struct ha_room ha_child_room(const struct ha_child *c) { return c->room; }

void ha_child_destroy(struct ha_child *c)
{
    if (!c) return;
    ha_child_end(c);
    munmap(c->room.base, c->room.bytes);
    free(c->heard);
    free(c);
}
