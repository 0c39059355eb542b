#define _GNU_SOURCE /* close_range */
#include "harness/engine/child.h"

#include "harness/base/clock.h"
#include "harness/base/own_files.h"
#include "harness/base/stop.h"
#include "harness/base/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the child is asked for; the room begins with it. */
enum deed {
    ANSWER,
    FAIL,
    WAIVE,
    NO_STATUS,
    SAY,
    COUNT,
    WRITE_AT,
    READ_AT,
    EXIT,
    ABORT,
    KILL,
    HANG,
    CLOSE_ALL,
    CLOSE_AND_HANG,
    FORK_TWO,
    FORK_STAY,
    RAISE_SEGV,
    TEAM,
    PRINT,
    SPOIL_WHY,
    RECURSE,
    INTERRUPT_PARENT,
    EXCEED_FILE,
    IS_OPEN,
    IS_TOOLS_OPEN,
    FORK_FAULTS,
};
struct wish {
    enum deed deed;
    volatile unsigned char *at;
    int number; /* given, and answered */
    pid_t pid;
};
enum { PAGE = 4096, ROOM = 64 * PAGE, SECOND = 1000000000 };

/* As a sanitizer's or profiler's library, loaded before ours, does. */
static int tools = -1;
static void connect_tool(void) { tools = open("/dev/null", O_WRONLY); }

static volatile int deepest;
__attribute__((noinline, no_sanitize("address", "undefined"))) static int recurse(int n)
{
    unsigned char pad[512];
    memset(pad, n, sizeof pad);
    deepest = pad[n % 512];
    return n < 0 ? 0 : recurse(n + 1) + pad[n % 512];
}

__attribute__((noreturn)) static void sleep_on(void)
{
    for (;;) pause();
}

static enum ha_status serve(void *self, void *arg, struct ha_why *why)
{
    static int calls;
    struct wish *w = arg;
    switch (w->deed) {
    case ANSWER:
        w->number++;
        w->pid = getpid();
        return HA_OK;
    case FAIL: snprintf(why->text, sizeof why->text, "no"); return HA_FAIL;
    case WAIVE: return HA_WAIVED;
    case NO_STATUS: return (enum ha_status)77;
    case SAY: snprintf(why->text, sizeof why->text, "%s", (const char *)self); return HA_ERROR;
    case COUNT: w->number = ++calls; return HA_OK;
    case WRITE_AT: *w->at = 1; return HA_OK;
    case READ_AT: w->number = *w->at; return HA_OK;
    case EXIT: exit(3);
    case ABORT: abort();
    case KILL: raise(SIGKILL); return HA_OK;
    case HANG: sleep_on();
    case CLOSE_ALL: close_range(3, ~0u, 0); return HA_OK;
    case CLOSE_AND_HANG: close_range(3, ~0u, 0); sleep_on();
    case FORK_TWO: fork(); return HA_OK;
    case FORK_STAY:
        if ((w->pid = fork()) == 0) sleep_on();
        return HA_OK;
    case RAISE_SEGV: raise(SIGSEGV); return HA_OK;
    case TEAM: {
        int threads = 0;
#pragma omp parallel num_threads(2) reduction(+ : threads)
        threads++;
        w->number = threads;
        return HA_OK;
    }
    case PRINT:
        puts("noise");
        fflush(stdout);
        return HA_OK;
    case SPOIL_WHY: memset(why, 'x', sizeof *why); return HA_FAIL;
    case RECURSE: return recurse(0) ? HA_OK : HA_FAIL;
    case INTERRUPT_PARENT: raise(SIGINT); return HA_OK;
    case EXCEED_FILE: raise(SIGXFSZ); return HA_OK;
    case IS_OPEN: return fcntl(w->number, F_GETFD) >= 0 ? HA_OK : HA_WAIVED;
    case IS_TOOLS_OPEN: return tools >= 0 && fcntl(tools, F_GETFD) >= 0 ? HA_OK : HA_WAIVED;
    case FORK_FAULTS:
        if ((w->pid = fork()) == 0) *w->at = 1;
        waitpid(w->pid, NULL, 0);
        exit(3);
    }
    return HA_ERROR;
}

static struct ha_child *child;
static struct wish *wish;
static struct ha_why why;

static char said[] = "said";
static const struct ha_child_work work = { .serve = serve, .self = said, .limit_ns = 10 * (uint64_t)SECOND };

static int open_child(void **state)
{
    why.text[0] = '\0';
    assert_int_equal(ha_child_create(&child, &work, ROOM, &why), HA_OK);
    wish = (void *)ha_child_room(child).base;
    return 0;
}
static int close_child(void **state)
{
    ha_child_destroy(child);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left, and no zombie */
    assert_int_equal(errno, ECHILD);
    return 0;
}

static enum ha_status ask(enum deed deed)
{
    wish->deed = deed;
    return ha_child_call(child, wish, NULL, NULL, 0, &why);
}

static char exited[sizeof why.text]; /* what was said of the latest death */

static void dies(enum deed deed, const char *words)
{
    assert_int_equal(ask(deed), HA_ERROR);
    assert_contains(why.text, words);
    strcpy(exited, why.text);
    wish->number = 5;
    assert_int_equal(ask(ANSWER), HA_OK); /* and the next one serves */
    assert_int_equal(wish->number, 6);
}

TEST_WITH(answers, open_child, close_child)
{
    wish->number = 41;
    assert_int_equal(ask(ANSWER), HA_OK);
    assert_int_equal(wish->number, 42);
    assert_true(wish->pid != getpid());
    assert_int_equal(ask(FAIL), HA_FAIL);
    assert_string_equal(why.text, "no");
    assert_int_equal(ask(WAIVE), HA_WAIVED);
    assert_int_equal(ask(SAY), HA_ERROR);
    assert_string_equal(why.text, "said");
    assert_int_equal(ask(NO_STATUS), HA_ERROR);
    assert_contains(why.text, "77, which is no status");
    assert_int_equal(ask(SPOIL_WHY), HA_FAIL);
    assert_true(strlen(why.text) < sizeof why.text);
    assert_int_equal(ask(EXCEED_FILE), HA_OK); /* a write that fails is no reason to die */
    /* all of that was one process */
    assert_int_equal(ask(COUNT), HA_OK);
    assert_int_equal(ask(COUNT), HA_OK);
    assert_int_equal(wish->number, 2);
    ha_child_end(child);
    assert_int_equal(ask(COUNT), HA_OK);
    assert_int_equal(wish->number, 1);
}

TEST_WITH(dies_and_comes_again, open_child, close_child)
{
    dies(EXIT, "exited with 3");
    dies(ABORT, "killed by SIGABRT");
    dies(KILL, "killed by SIGKILL");
    dies(RAISE_SEGV, "killed by SIGSEGV");
    dies(CLOSE_ALL, "exited with 0");
    dies(INTERRUPT_PARENT, "killed by SIGINT");
    wish->at = (unsigned char *)16;
    dies(FORK_FAULTS, "exited with 3");
    assert_null(strstr(exited, "pointer")); /* that was not the child's own */
    dies(WRITE_AT, "killed by SIGSEGV: wrote through a NULL pointer (address 0x10)");
    dies(READ_AT, "killed by SIGSEGV: read through a NULL pointer (address 0x10)");
}

TEST_WITH(a_stack_that_is_full, open_child, close_child)
{
    if (HA_TSAN) skip(); /* its shadow of the call stack is full first */
    dies(RECURSE, "killed by SIGSEGV: wrote address 0x");
}

/* Files of the program are not the stranger's to write to; those of a tool that watches this process are the tool's. */
TEST_WITH(inherits_no_file, open_child, close_child)
{
    int file[3];
    for (int i = 0; i < 3; i++) assert_true((file[i] = open("/dev/null", O_WRONLY)) > 2);
    ha_own_file(file[0]), ha_own_file(file[2]);
    assert_int_equal(ask(ANSWER), HA_OK); /* its connection is a file above these */
    for (int i = 0; i < 3; i++) {
        wish->number = file[i];
        assert_int_equal(ask(IS_OPEN), i == 1 ? HA_OK : HA_WAIVED);
    }
    assert_int_equal(ask(IS_TOOLS_OPEN), HA_OK);
    close(file[1]);
    ha_own_file_close(file[0]), ha_own_file_close(file[2]);
}

/* ---- its end --------------------------------------------------------------------------------------------------- */

static struct wish *at_end; /* what it does then, in memory that both share */
static void end_with(void *self) { serve(self, at_end, &why); }

static enum ha_status close_with(enum deed deed)
{
    const struct ha_child_work ends = {
        .serve = serve, .end = end_with, .self = said, .limit_ns = 10 * (uint64_t)SECOND
    };
    struct ha_child *own;
    assert_int_equal(ha_child_create(&own, &ends, ROOM, &why), HA_OK);
    assert_int_equal(ha_child_close(own, &why), HA_OK); /* none has begun */
    struct wish *w = (void *)ha_child_room(own).base;
    at_end = w + 1;
    *at_end = (struct wish){ .deed = deed };
    w->deed = ANSWER;
    assert_int_equal(ha_child_call(own, w, NULL, NULL, 0, &why), HA_OK);
    const pid_t pid = w->pid;
    const uint64_t begun = ha_now_ns();
    const enum ha_status status = ha_child_close(own, &why);
    if (ha_now_ns() - begun > 5 * (uint64_t)SECOND)
        fail_msg("%d: %g s", (int)deed, (double)(ha_now_ns() - begun) / 1e9);
    if (deed == ANSWER) assert_int_equal(at_end->pid, pid);
    if (deed == ANSWER) assert_int_equal(at_end->number, 1);
    assert_int_equal(ha_child_call(own, w, NULL, NULL, 0, &why), HA_OK); /* and a new one serves */
    assert_true(w->pid != pid);
    ha_child_destroy(own);
    return status;
}

TEST_WITH(ends_in_order, open_child, close_child)
{
    assert_int_equal(close_with(ANSWER), HA_OK);
    assert_int_equal(close_with(FORK_STAY), HA_OK); /* what it has left goes with it */
    assert_int_equal(close_with(CLOSE_ALL), HA_OK);
}

TEST_WITH(dies_at_its_end, open_child, close_child)
{
    assert_int_equal(close_with(EXIT), HA_ERROR);
    assert_string_equal(why.text, "exited with 3, at its end");
    assert_int_equal(close_with(ABORT), HA_ERROR);
    assert_string_equal(why.text, "killed by SIGABRT, at its end");
    assert_int_equal(close_with(HANG), HA_FAIL);
    assert_contains(why.text, "had not ended 2000 ms after its last answer");
    assert_int_equal(close_with(CLOSE_AND_HANG), HA_FAIL);
}

TEST_WITH(hangs, open_child, close_child)
{
    ha_child_limit(child, SECOND, 0);
    dies(HANG, "no answer in 1 s");
}

TEST_WITH(hangs_up, open_child, close_child)
{
    const uint64_t begun = ha_now_ns();
    dies(CLOSE_AND_HANG, "closed its connection to the program and lives on");
    assert_true(ha_now_ns() - begun < 5 * (uint64_t)SECOND);
}

TEST_WITH(interrupted, open_child, close_child)
{
    ha_stop = SIGINT;
    assert_int_equal(ask(HANG), HA_ERROR);
    ha_stop = 0;
    assert_contains(why.text, "interrupted");
    assert_int_equal(ask(ANSWER), HA_OK);
}

TEST_WITH(many_deaths, open_child, close_child)
{
    for (int i = 0; i < 50; i++) {
        assert_int_equal(ask(EXIT), HA_ERROR);
        assert_string_equal(why.text, "exited with 3");
    }
    assert_int_equal(ask(ANSWER), HA_OK);
}

/* pages: 0 the wish, 1-2 input of 5000 bytes, 3 guard, 4 output of 128 bytes, 5 guard */
TEST_WITH(guards, open_child, close_child)
{
    unsigned char *base = ha_child_room(child).base;
    const struct ha_piece pieces[] = {
        { .guard = base + 3 * PAGE, .at = base + 3 * PAGE - 5056, .bytes = 5000 },
        { .guard = base + 5 * PAGE, .at = base + 5 * PAGE - 128, .bytes = 128, .written = true },
        { .bytes = 0 }
    };
    static const char *const names[] = { "the input", "the output", "nothing" };
    const struct {
        size_t at;
        bool write;
        const char *words; /* NULL: allowed */
    } access[] = {
        { 5 * PAGE - 128, true, NULL },
        { 5 * PAGE - 1, true, NULL },
        { 3 * PAGE, false, "read byte 57 past the end of the input" },
        { 3 * PAGE + 8, true, "wrote byte 65 past the end of the input" },
        { 5 * PAGE, true, "wrote byte 1 past the end of the output" },
        { 5 * PAGE + 99, false, "read byte 100 past the end of the output" },
        { 4 * PAGE - 1, false, "read 3969 bytes before the start of the output" },
        { 3 * PAGE - 5056 + 7, true, "wrote byte 7 of the input, which is not to be written" },
        { 64, true, "bytes away from the input, the nearest of its buffers" }, /* the wish itself */
        { 7 * PAGE, true, "wrote 8193 bytes away from the output, the nearest of its buffers" },
        { 5 * PAGE - 128, true, NULL },
    };
    for (size_t i = 0; i < COUNT(access); i++) {
        wish->deed = access[i].write ? WRITE_AT : READ_AT;
        wish->at = base + access[i].at;
        const enum ha_status st = ha_child_call(child, wish, pieces, names, 3, &why);
        if (access[i].words) {
            assert_int_equal(st, HA_ERROR);
            assert_contains(why.text, "killed by SIGSEGV: ");
            assert_contains(why.text, access[i].words);
        } else if (st != HA_OK) fail_msg("%zu: %s", i, why.text);
    }
    wish->at = base + 3 * PAGE; /* nothing holds in a call of the same process without pieces */
    assert_int_equal(ask(WRITE_AT), HA_OK);
    assert_int_equal(ask(READ_AT), HA_OK);
    assert_int_equal(wish->number, 1);
    wish->at = (unsigned char *)(uintptr_t)0x123456789000;
    dies(WRITE_AT, "wrote address 0x123456789000, in none of its buffers");
    struct ha_piece many[17] = { { .bytes = 0 } };
    assert_int_equal(ha_child_call(child, wish, many, names, 17, &why), HA_ERROR);
    assert_contains(why.text, "17 buffers");
}

/* in three seconds */
static bool is_soon_dead(pid_t pid)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    for (int i = 0; i < 300; i++, usleep(10000)) {
        FILE *f = fopen(path, "r");
        const bool alive = f && fgets(line, sizeof line, f)
                           && !strstr(line, ") Z"); /* to be reaped by who has it now */
        if (f) fclose(f);
        if (!alive) return true;
    }
    return false;
}

TEST_WITH(forks, open_child, close_child)
{
    assert_int_equal(ask(FORK_TWO), HA_OK); /* two processes answer, and one is heard */
    for (int i = 0; i < 20; i++) {
        assert_int_equal(ask(COUNT), HA_OK);
        assert_int_equal(wish->number, i + 1);
    }
    assert_int_equal(ask(FORK_STAY), HA_OK);
    const pid_t stays = wish->pid;
    assert_int_equal(kill(stays, 0), 0);
    dies(EXIT, "exited with 3"); /* at once, though the other holds the connection open, and it goes with it */
    assert_true(is_soon_dead(stays));
}

TEST_WITH(teams, open_child, close_child)
{
    if (HA_TSAN) skip(); /* it makes no threads in the child of a process that has some */
    int threads = 0;
#pragma omp parallel num_threads(2) reduction(+ : threads)
    threads++;
    assert_int_equal(threads, 2);
    assert_int_equal(ask(TEAM), HA_OK);
    assert_int_equal(wish->number, 2);
}

TEST_WITH(prints_elsewhere, open_child, close_child)
{
    char path[200];
    const int file = mkstemp(test_template(path, sizeof path, "")), old = dup(STDOUT_FILENO),
              error = dup(STDERR_FILENO), nothing = open("/dev/null", O_WRONLY);
    assert_true(file >= 0 && old >= 0 && nothing >= 0);
    fflush(stdout);
    dup2(file, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
    fputs("kept", stdout); /* not yet written when the child begins */
    const enum ha_status st = ask(PRINT), end = ask(EXIT);
    fflush(stdout);
    dup2(old, STDOUT_FILENO);
    dup2(error, STDERR_FILENO);
    char text[64] = "";
    const ssize_t got = pread(file, text, sizeof text - 1, 0);
    unlink(path);
    close(file), close(old), close(error), close(nothing);
    assert_int_equal(st, HA_OK);
    assert_int_equal(end, HA_ERROR);
    assert_int_equal(got, 4);
    assert_string_equal(text, "kept");
}

TEST_WITH(dies_between_calls, open_child, close_child)
{
    siginfo_t how;
    assert_int_equal(ask(ANSWER), HA_OK);
    kill(wish->pid, SIGTERM);
    while (!ha_process_gone(wish->pid, &how)) usleep(1000);
    assert_int_equal(ask(ANSWER), HA_ERROR);
    assert_contains(why.text, "killed by SIGTERM, after the answer to the last call");
    assert_int_equal(ask(ANSWER), HA_OK);
}

/* A process that has a child and is killed: the child goes, too. */
TEST_WITH(dies_with_its_parent, open_child, close_child)
{
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    const pid_t parent = fork();
    if (parent == 0) {
        struct ha_child *own;
        if (ha_child_create(&own, &work, ROOM, &why) != HA_OK) _exit(1);
        struct wish *w = (void *)ha_child_room(own).base;
        w->deed = ANSWER;
        if (ha_child_call(own, w, NULL, NULL, 0, &why) != HA_OK) _exit(1);
        if (write(fd[1], &w->pid, sizeof w->pid) != sizeof w->pid) _exit(1);
        sleep_on();
    }
    pid_t its;
    assert_int_equal(read(fd[0], &its, sizeof its), sizeof its);
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    close(fd[0]), close(fd[1]);
    assert_true(is_soon_dead(its));
}

/* Several at a time, from threads, as a job has them. gcc's AddressSanitizer hands a fork the locks of its allocator as
 * they are: where another thread has one, the child waits for ever. There one thread takes its turn. */
enum { AT_ONCE = HA_ASAN ? 1 : 3 };
static void *one_of_several(void *arg)
{
    struct ha_child *own;
    struct ha_why own_why;
    int *bad = arg;
    if (ha_child_create(&own, &work, ROOM, &own_why) != HA_OK) return NULL;
    struct wish *w = (void *)ha_child_room(own).base;
    *bad = 0;
    for (int i = 0; i < 50; i++) {
        w->deed = i % 10 == 9 ? EXIT : ANSWER;
        const bool wrong = ha_child_call(own, w, NULL, NULL, 0, &own_why) != (w->deed == EXIT ? HA_ERROR : HA_OK);
        if (wrong) fprintf(stderr, "call %d: %s\n", i, own_why.text);
        *bad += wrong;
    }
    *bad += w->number != 45;
    ha_child_destroy(own);
    return NULL;
}
TEST_WITH(several, open_child, close_child)
{
    pthread_t thread[AT_ONCE];
    int bad[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) {
        bad[i] = 1;
        assert_int_equal(pthread_create(&thread[i], NULL, one_of_several, &bad[i]), 0);
    }
    for (int i = 0; i < AT_ONCE; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < AT_ONCE; i++) assert_int_equal(bad[i], 0);
}

TEST_WITH(a_large_room, open_child, close_child)
{
    struct ha_child *large;
    if (ha_child_create(&large, &work, (size_t)16 << 30, &why) != HA_OK) skip(); /* a limit on addresses */
    unsigned char *base = ha_child_room(large).base;
    struct wish *w = (void *)base;
    const struct ha_piece piece = {
        .at = base + ((size_t)15 << 30), .guard = base + ((size_t)15 << 30) + PAGE, .bytes = PAGE, .written = true
    };
    static const char *const names[] = { "far" };
    *w = (struct wish){ .deed = WRITE_AT, .at = piece.at };
    assert_int_equal(ha_child_call(large, w, &piece, names, 1, &why), HA_OK);
    assert_int_equal(*piece.at, 1);
    ha_child_destroy(large);
    assert_int_equal(ha_child_create(&large, &work, SIZE_MAX / 2, &why), HA_ERROR);
    assert_contains(why.text, "to share with a process");
}

/* ---- messages and patience ------------------------------------------------------------------------------------- */

/* LONG_MESSAGE: three packets, and a byte. HUGE_MESSAGE: more than a connection holds. */
enum {
    WAIT_FOR_STOP = 101,
    NEVER_STOP,
    FORK_SAYS,
    SAY_HUGE,
    SAY_LATE, /* what is asked has been asked, and the wait for the answer begun */
    LONG_MESSAGE = 3 * (32 << 10) + 1,
    HUGE_MESSAGE = 8 << 20
};
struct heard {
    size_t count, bytes[8];
    unsigned kind[8];
    bool right;
    bool kill;     /* the child, in the middle of the message behind the third */
    int stop, now; /* signals that come with the third message */
};
static struct wish *told;

static enum ha_status tell(void *self, void *arg, struct ha_why *out)
{
    static unsigned char text[LONG_MESSAGE], huge[HUGE_MESSAGE];
    struct wish *w = arg;
    w->pid = getpid();
    for (size_t i = 0; i < sizeof text; i++) text[i] = (unsigned char)(i * 7 + i / 251);
    if (w->number == SAY_LATE) usleep(2000);
    ha_child_say(1, text, sizeof text);
    ha_child_say(2, "", 0);
    ha_child_say(3, text, 5);
    if (w->number == SIGKILL) raise(SIGKILL);
    if (w->number == FORK_SAYS && fork() == 0) {
        ha_child_say(4, text, 5);
        _exit(0);
    }
    if (w->number == FORK_SAYS) wait(NULL);
    if (w->number == SAY_HUGE) ha_child_say(5, huge, sizeof huge);
    while (w->number == NEVER_STOP) usleep(1000);
    while (w->number == WAIT_FOR_STOP && !ha_stop) usleep(1000);
    if (w->number == WAIT_FOR_STOP) snprintf(out->text, sizeof out->text, "stopped by %d", (int)ha_stop);
    return w->number == WAIT_FOR_STOP ? HA_WAIVED : HA_OK;
}

static void hear(void *arg, unsigned kind, const void *bytes, size_t size)
{
    struct heard *h = arg;
    const unsigned char *text = bytes;
    if (h->count == 8) return;
    /* the child cannot end its next message, as nobody takes it in the meantime */
    if (h->kill && kind == 3) {
        usleep(50000);
        kill(told->pid, SIGKILL);
    }
    if (h->stop && kind == 3) {
        ha_stop = h->stop;
        ha_stop_now = h->now;
    }
    h->kind[h->count] = kind;
    h->bytes[h->count++] = size;
    for (size_t i = 0; i < size; i++) h->right = h->right && text[i] == (unsigned char)(i * 7 + i / 251);
}

static struct ha_child *open_teller(struct heard *h)
{
    const struct ha_child_work teller = {
        .serve = tell, .limit_ns = 10 * (uint64_t)SECOND, .hear = hear, .arg = h, .ours = true
    };
    struct ha_child *own;
    assert_int_equal(ha_child_create(&own, &teller, ROOM, &why), HA_OK);
    return own;
}

static enum ha_status ask_teller(struct ha_child *own, int number, struct heard *h)
{
    told = (void *)ha_child_room(own).base;
    *told = (struct wish){ .number = number };
    h->count = 0;
    h->right = true;
    h->kill = number == SAY_HUGE;
    return ha_child_call(own, told, NULL, NULL, 0, &why);
}

static enum ha_status call_teller(int number, uint64_t stop_ns, struct heard *h)
{
    struct ha_child *own = open_teller(h);
    ha_child_limit(own, 10 * (uint64_t)SECOND, stop_ns);
    const enum ha_status status = ask_teller(own, number, h);
    ha_child_destroy(own);
    return status;
}

TEST(messages_arrive_whole_and_in_order)
{
    static const int then[] = { 0, FORK_SAYS, SIGKILL };
    for (size_t i = 0; i < 3; i++) {
        struct heard h = { .count = 0 };
        assert_int_equal(call_teller(then[i], 0, &h), then[i] == SIGKILL ? HA_ERROR : HA_OK);
        assert_int_equal(h.count, 3);
        assert_true(h.right);
        for (size_t k = 0; k < 3; k++) assert_int_equal(h.kind[k], k + 1);
        assert_int_equal(h.bytes[0], LONG_MESSAGE);
        assert_int_equal(h.bytes[1], 0);
        assert_int_equal(h.bytes[2], 5);
    }
    assert_contains(why.text, "SIGKILL");
}

TEST(half_a_message_is_no_part_of_the_next)
{
    struct heard h = { .count = 0 };
    struct ha_child *own = open_teller(&h);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(ask_teller(own, SAY_HUGE, &h), HA_ERROR);
        assert_contains(why.text, "SIGKILL");
        assert_int_equal(h.count, 3);
    }
    if (ask_teller(own, 0, &h) != HA_OK) fail_msg("%s", why.text);
    assert_true(h.count == 3 && h.right);
    ha_child_destroy(own);
}

/* An answer ends the wait for it: that for time or a signal, looked at five times a second, would delay each; a busy
 * host delays some. */
TEST(answers_are_not_waited_for)
{
    struct heard h = { .count = 0 };
    struct ha_child *own = open_teller(&h);
    uint64_t least_ns = UINT64_MAX;
    for (int i = 0; i < 30; i++) {
        const uint64_t begun = ha_now_ns();
        assert_int_equal(ask_teller(own, SAY_LATE, &h), HA_OK);
        const uint64_t took_ns = ha_now_ns() - begun;
        least_ns = took_ns < least_ns ? took_ns : least_ns;
    }
    assert_true(least_ns < SECOND / 10);
    ha_child_destroy(own);
}

/* whoever does not, is ended: after a grace, or at once where that is asked for */
TEST(is_asked_to_stop_in_time)
{
    static const struct {
        int number;
        bool in_time;
        int stop, now;
        enum ha_status status;
        const char *says;
    } each[] = {
        { WAIT_FOR_STOP, true, 0, 0, HA_WAIVED, "stopped by 15" },
        { WAIT_FOR_STOP, false, SIGINT, 0, HA_WAIVED, "stopped by 15" },
        { NEVER_STOP, true, 0, 0, HA_ERROR, "stopped: the time is over" },
        { NEVER_STOP, false, SIGINT, SIGINT, HA_ERROR, "interrupted" },
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        struct heard h = { .stop = each[i].stop, .now = each[i].now };
        const uint64_t begun = ha_now_ns();
        const enum ha_status status = call_teller(each[i].number, each[i].in_time ? begun + SECOND / 20 : 0, &h);
        ha_stop = ha_stop_now = 0;
        const double seconds = (double)(ha_now_ns() - begun) / 1e9;
        assert_int_equal(status, each[i].status);
        assert_contains(why.text, each[i].says);
        assert_int_equal(h.count, 3);
        if (seconds > (each[i].now ? 1.5 : 8)) fail_msg("%zu: %g s", i, seconds);
    }
}

/* By messages every 10 ms, of which each is late but for one in ten, which comes after 1 ms: three seconds of a clock
 * that is right, and of one that is slow by a share. */
static struct ha_lag lag_after(double share, uint64_t seconds_ns, uint64_t each_ns)
{
    struct ha_lag lag = { 0 };
    for (uint64_t sent_ns = 0; sent_ns < seconds_ns; sent_ns += each_ns) {
        /* the process took two seconds to begin */
        const uint64_t late = UINT64_C(2000000000) + (sent_ns / each_ns % 10 ? UINT64_C(200000000) : 1000000);
        ha_lag_add(&lag, (uint64_t)((double)sent_ns * (1 - share)), sent_ns + late);
    }
    return lag;
}
TEST(a_clock_that_lags_is_told_from_messages_that_are_late)
{
    const uint64_t ms = 1000000, second = 1000 * ms;
    const struct ha_lag right = lag_after(0, 3 * second, 10 * ms), slow = lag_after(0.125, 3 * second, 10 * ms),
                        few = lag_after(0.125, 3 * second, 1500 * ms);
    assert_int_equal(right.usual_ns, 0);
    assert_int_equal(right.last_ns, 199 * ms);                         /* held up */
    assert_true(slow.usual_ns > 125 * ms && slow.usual_ns < 380 * ms); /* the lag of two seconds ago, at least */
    assert_int_equal(few.last_ns, 1500 * ms / 8 + 199 * ms);
    assert_int_equal(few.periods, 2);
}

TEST_MAIN
{
    pthread_atfork(NULL, NULL, connect_tool);
    return test_all("child", NULL, NULL);
}
