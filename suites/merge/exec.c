#include "suites/merge/subject.h"

#include "harness/base/clock.h"
#include "harness/base/stop.h"
#include "harness/base/try.h"
#include "harness/base/why.h"
#include "harness/base/words.h"
#include "harness/engine/process.h"
#include "suites/merge/replay.h"
#include "suites/merge/traits.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The shell's own: what it says of a command that it cannot run. */
enum { NOT_EXECUTABLE = 126, NOT_FOUND = 127, KILLED = 128 /* + the signal */ };
enum { TEXT_MAX = 4096, LINE_MAX_CHARS = 200, NS_PER_MS = 1000000 };

struct command {
    char *text; /* what sh runs, with the arguments behind it */
    uint64_t limit_ns;
    char folder[256], in[272], out[272];
};

/* What a command printed: all of it, as far as it fits, or its last line. */
struct printed {
    char text[TEXT_MAX];
    size_t used;
    char line[LINE_MAX_CHARS + 1], last[LINE_MAX_CHARS + 1];
    size_t line_used;
};

/* ---- one run of the command -------------------------------------------------------------- */

/* fd: its end of the pipe, which takes its errors, or what it prints, the errors going nowhere. Only what is
 * async-signal-safe: other threads may have held any lock. */
static _Noreturn void become(char *const *argv, int fd, bool errors, pid_t parent)
{
    ha_process_settle(parent);
    if (errors) {
        dup2(fd, STDERR_FILENO);
    } else {
        const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(fd, STDOUT_FILENO);
        if (nothing >= 0) dup2(nothing, STDERR_FILENO);
    }
    execv("/bin/sh", argv);
    _exit(NOT_FOUND);
}

static void keep_lines(struct printed *p, const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] == '\n' || data[i] == '\r') {
            p->line[p->line_used] = '\0';
            if (p->line_used) memcpy(p->last, p->line, p->line_used + 1);
            p->line_used = 0;
        } else if (p->line_used < LINE_MAX_CHARS)
            p->line[p->line_used++] = (unsigned char)data[i] < ' ' ? ' ' : data[i];
    }
}

/* false: nobody can print any more */
static bool listen_to(int fd, bool errors, struct printed *p)
{
    char data[1024];
    for (;;) {
        const ssize_t got = read(fd, data, sizeof data);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
        if (got == 0) return false;
        if (errors) {
            for (ssize_t at = 0, wrote; at < got && (wrote = write(STDERR_FILENO, data + at, (size_t)(got - at))) > 0;)
                at += wrote;
            keep_lines(p, data, (size_t)got);
            continue;
        }
        const size_t room = sizeof p->text - 1 - p->used, take = (size_t)got < room ? (size_t)got : room;
        memcpy(p->text + p->used, data, take);
        p->used += take;
    }
}

/* Waits until it has ended, and kills it where it takes too long. */
static enum ha_status await(const struct command *c, pid_t pid, int fd, bool errors, struct printed *p, siginfo_t *how,
                            struct ha_why *why)
{
    const uint64_t begun = ha_now_ns();
    bool open = true;
    for (;;) {
        const bool gone = ha_process_gone(pid, how);
        if (open) open = listen_to(fd, errors, p);
        if (gone) return HA_OK;
        if (ha_stop) return ha_why(why, HA_ERROR, "interrupted");
        const uint64_t spent = ha_now_ns() - begun;
        if (spent >= c->limit_ns) return ha_why(why, HA_ERROR, "no answer in %.3g s", (double)c->limit_ns * 1e-9);
        const uint64_t left = (c->limit_ns - spent) / NS_PER_MS + 1;
        struct pollfd ready = { .fd = open ? fd : -1, .events = POLLIN };
        poll(&ready, 1, (int)(left < HA_PROCESS_SLICE_MS ? left : open ? HA_PROCESS_SLICE_MS : 1));
    }
}

static enum ha_status run_command(const struct command *c, const char *first, const char *second, bool errors,
                                  struct printed *p, siginfo_t *how, struct ha_why *why)
{
    char sh[] = "sh", flag[] = "-c", name[] = "habench";
    char one[sizeof c->in], two[sizeof c->out];
    char *argv[] = { sh, flag, c->text, name, one, second ? two : NULL, NULL };
    int fd[2];
    snprintf(one, sizeof one, "%s", first);
    snprintf(two, sizeof two, "%s", second ? second : "");
    if (pipe2(fd, O_CLOEXEC) != 0) return ha_why(why, HA_ERROR, "no pipe: %s", strerror(errno));
    fcntl(fd[0], F_SETFL, O_NONBLOCK);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) become(argv, fd[1], errors, parent);
    const int cause = errno;
    close(fd[1]);
    enum ha_status st = pid > 0 ? HA_OK : ha_why(why, HA_ERROR, "no process for it: %s", strerror(cause));
    if (pid > 0) {
        setpgid(pid, pid);
        st = await(c, pid, fd[0], errors, p, how, why);
        ha_process_end(pid);
        if (st == HA_OK && how->si_code == CLD_EXITED && how->si_status > KILLED) {
            how->si_code = CLD_KILLED;
            how->si_status -= KILLED;
        }
    }
    close(fd[0]);
    keep_lines(p, "\n", 1);
    return st;
}

/* ---- the subject ------------------------------------------------------------------------- */

static enum ha_status run_exec(struct ha_subject *x, struct ha_batch *batch, struct ha_why *why)
{
    const struct command *c = x->own;
    struct printed printed = { .used = 0 };
    siginfo_t how;
    unlink(c->out);
    HA_TRY(ha_replay_write(c->in, batch, false, NULL, why));
    HA_TRY(run_command(c, c->in, c->out, true, &printed, &how, why));
    const char *said = printed.last, *colon = *said ? ": " : "";
    const struct ha_process_text text = ha_process_text(&how);
    if (how.si_code != CLD_EXITED) return ha_why(why, HA_ERROR, "%s%s%s", text.text, colon, said);
    if (how.si_status == NOT_FOUND || how.si_status == NOT_EXECUTABLE)
        return ha_why(why, HA_ERROR, "the shell cannot run it (%s)%s%s", text.text, colon, said);
    if (how.si_status != 0) return ha_why(why, HA_FAIL, "refused: %s%s%s", text.text, colon, said);
    if (access(c->out, F_OK) != 0)
        return ha_why(why, HA_ERROR, "%s, and did not write the file that its second argument names", text.text);
    return ha_replay_read_answer(c->out, batch, why);
}

static void close_exec(struct ha_subject *x)
{
    struct command *c = x->own;
    if (*c->folder) {
        unlink(c->in);
        unlink(c->out);
        rmdir(c->folder);
    }
    free(c->text);
    free(c);
}

/* Asks the command what it can do; one that does not know the question does everything with two-pass binary32. */
static enum ha_status ask_traits(struct ha_subject *x, struct ha_why *why)
{
    const struct command *c = x->own;
    struct printed printed = { .used = 0 };
    siginfo_t how;
    const enum ha_status st = run_command(c, "--traits", NULL, false, &printed, &how, why);
    if (st != HA_OK) return ha_why_prefix(why, st, "--exec, asked for --traits");
    if (how.si_code == CLD_EXITED && (how.si_status == NOT_FOUND || how.si_status == NOT_EXECUTABLE))
        return ha_why(why, HA_ERROR, "--exec: the shell cannot run '%.*s' (%s)", (int)strlen(c->text) - 5, c->text,
                      ha_process_text(&how).text);
    if (how.si_code != CLD_EXITED || how.si_status != 0) return HA_OK;
    char *rest = printed.text;
    for (const char *line; (line = strsep(&rest, "\n")) != NULL;)
        if (*line && ha_traits_parse(line, &x->traits, x->name, why) != HA_OK)
            return ha_why_prefix(why, HA_ERROR, "--exec, asked for --traits");
    if (ha_traits_check(&x->traits, why) != HA_OK) return ha_why_prefix(why, HA_ERROR, "--exec, asked for --traits");
    return HA_OK;
}

static enum ha_status folder_make(struct command *c, struct ha_why *why)
{
    const char *where = getenv("TMPDIR");
    char folder[sizeof c->folder];
    if (!where || !*where) where = "/tmp";
    if (snprintf(folder, sizeof folder, "%s/habench-XXXXXX", where) >= (int)sizeof folder)
        return ha_why(why, HA_ERROR, "--exec: TMPDIR is longer than %zu bytes", sizeof folder);
    if (!mkdtemp(folder)) return ha_why(why, HA_ERROR, "--exec: no folder %s: %s", folder, strerror(errno));
    memcpy(c->folder, folder, sizeof folder);
    snprintf(c->in, sizeof c->in, "%s/in.safetensors", folder);
    snprintf(c->out, sizeof c->out, "%s/out.safetensors", folder);
    return HA_OK;
}

enum ha_status ha_subject_exec(struct ha_subject *out, const char *command, uint64_t limit_ns, struct ha_why *why)
{
    struct command *c = calloc(1, sizeof *c);
    *out = (struct ha_subject){
        .name = "exec",
        .traits = { .forms = 1u << HA_FORM_NATURAL,
                    .dtypes = 7u,
                    .aliases = 1u << HA_ALIAS_NONE,
                    .exp_eps = 0x1p-23,
                    .log_eps = 0x1p-23 },
        .orders = 1u << HA_ORDER_FLAT,
        .run = run_exec,
        .close = close_exec,
        .own = c,
    };
    if (!c || asprintf(&c->text, "%s \"$@\"", command) < 0) {
        free(c);
        *out = (struct ha_subject){ 0 };
        return ha_why(why, HA_ERROR, "--exec: out of memory");
    }
    c->limit_ns = limit_ns;
    enum ha_status st = folder_make(c, why);
    if (st == HA_OK) st = ask_traits(out, why);
    if (st != HA_OK) {
        ha_subject_close(out);
        return st;
    }
    out->layouts = out->traits.lse_order == HA_LSE_HEADS_TOKENS ? 1u << HA_LAYOUT_HEADS_FIRST : 1u << HA_LAYOUT_PACKED;
    return HA_OK;
}
