#define _GNU_SOURCE /* pipe2, asprintf */
#include "suites/merge/subject.h"

#include "harness/base/claims.h"
#include "harness/base/clock.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "harness/engine/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The shell's own: what it says of a command that it cannot run. */
enum { NOT_EXECUTABLE = 126, NOT_FOUND = 127, KILLED = 128 /* + the signal */ };
enum { LINE_MAX_CHARS = 200, NS_PER_MS = 1000000 };
/* What one call may print, and write to its second file beyond four times the results. */
enum { PRINTED_MAX = 1 << 20, ANSWER_SPARE = 1 << 20 };

/* A stream that a command prints to, read through a pipe. */
struct printed {
    int fd; /* -1: closed */
    size_t used;
    char text[PRINTED_MAX + 2]; /* ends with 0 once the command has ended */
};

struct command {
    char *text; /* what sh runs, with the arguments behind it */
    uint64_t limit_ns;
    size_t answer_max; /* bytes of the file `out` */
    char folder[256], in[272], out[272];
    /* of the run at hand, or the last */
    struct printed stream[2]; /* stdout, stderr */
    bool passed;              /* what it prints goes on to our own errors */
    siginfo_t how;            /* it ended */
};

/* ---- one run of the command -------------------------------------------------------------- */

/* Reads what is there, up to one byte more than may be. */
static void listen_to(struct printed *p, bool passed)
{
    while (p->fd >= 0 && p->used <= PRINTED_MAX) {
        char *data = p->text + p->used;
        const ssize_t got = read(p->fd, data, PRINTED_MAX + 1 - p->used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (got <= 0) {
            close(p->fd);
            p->fd = -1;
            return;
        }
        for (ssize_t at = 0, wrote = 1; passed && at < got && wrote > 0; at += wrote)
            wrote = write(STDERR_FILENO, data + at, (size_t)(got - at));
        p->used += (size_t)got;
    }
}

/* The start of the last line that is not empty. */
static bool breaks(char c) { return c == '\n' || c == '\r'; }
static void last_line(const struct printed *p, char out[LINE_MAX_CHARS + 1])
{
    size_t end = p->used, first, n = 0;
    while (end && breaks(p->text[end - 1])) end--;
    for (first = end; first && !breaks(p->text[first - 1]);) first--;
    for (; first + n < end && n < LINE_MAX_CHARS; n++)
        out[n] = (unsigned char)p->text[first + n] < ' ' ? ' ' : p->text[first + n];
    out[n] = '\0';
}

/* Did it print or write more than it may? */
static enum ha_status bounded(const struct command *c, struct ha_why *why)
{
    struct stat file;
    for (int i = 0; i < 2; i++)
        if (c->stream[i].used > PRINTED_MAX)
            return ha_why(why, HA_ERROR, "printed more than %d MiB to %s and was stopped", PRINTED_MAX >> 20,
                          i ? "stderr" : "stdout");
    if (stat(c->out, &file) == 0 && (uint64_t)file.st_size > c->answer_max)
        return ha_why(why, HA_ERROR,
                      "wrote more than %zu bytes to the file that its second argument names and was stopped",
                      c->answer_max);
    return HA_OK;
}

/* Waits until it has ended; HA_ERROR where it takes too long, prints or writes too much, or Ctrl-C was pressed. */
static enum ha_status await(struct command *c, pid_t pid, struct ha_why *why)
{
    const uint64_t begun = ha_now_ns();
    for (;;) {
        const bool gone = ha_process_gone(pid, &c->how);
        for (int i = 0; i < 2; i++) listen_to(&c->stream[i], c->passed);
        HA_TRY(bounded(c, why));
        if (gone) return HA_OK;
        if (ha_stop) return ha_why(why, HA_ERROR, "interrupted");
        const uint64_t spent = ha_now_ns() - begun;
        if (spent >= c->limit_ns) return ha_why(why, HA_ERROR, "no answer in %.3g s", (double)c->limit_ns * 1e-9);
        const uint64_t left = (c->limit_ns - spent) / NS_PER_MS + 1;
        const bool open = c->stream[0].fd >= 0 || c->stream[1].fd >= 0;
        struct pollfd ready[] = { { .fd = c->stream[0].fd, .events = POLLIN },
                                  { .fd = c->stream[1].fd, .events = POLLIN } };
        poll(ready, 2, (int)(left < HA_PROCESS_SLICE_MS ? left : open ? HA_PROCESS_SLICE_MS : 1));
    }
}

/* A pipe for the stream; returns the end that is written to, or -1. */
static int pipe_of(struct printed *p)
{
    int fd[2];
    p->fd = -1;
    p->used = 0;
    if (pipe2(fd, O_CLOEXEC) != 0) return -1;
    fcntl(fd[0], F_SETFL, O_NONBLOCK);
    p->fd = fd[0];
    return fd[1];
}

static enum ha_status run_command(struct command *c, char *first, char *second, struct ha_why *why)
{
    char sh[] = "sh", flag[] = "-c", name[] = "habench";
    char *const argv[] = { sh, flag, c->text, name, first, second, NULL };
    const int out = pipe_of(&c->stream[0]), err = pipe_of(&c->stream[1]);
    const pid_t parent = getpid(), pid = out < 0 || err < 0 ? -1 : fork();
    if (pid == 0) { /* only what is async-signal-safe: other threads may have held any lock */
        ha_process_settle(parent);
        ha_process_keep();
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        execv("/bin/sh", argv);
        _exit(NOT_FOUND);
    }
    enum ha_status st = pid > 0 ? HA_OK : ha_why(why, HA_ERROR, "no process for it: %s", strerror(errno));
    if (out >= 0) close(out);
    if (err >= 0) close(err);
    if (pid > 0) {
        setpgid(pid, pid);
        st = await(c, pid, why);
        ha_process_end_kept(pid);
        if (st == HA_OK && c->how.si_code == CLD_EXITED && c->how.si_status > KILLED) {
            c->how.si_code = CLD_KILLED;
            c->how.si_status -= KILLED;
        }
    }
    for (int i = 0; i < 2; i++) {
        if (c->stream[i].fd >= 0) close(c->stream[i].fd);
        c->stream[i].text[c->stream[i].used] = 0;
    }
    return st;
}

static bool succeeded(const struct command *c) { return c->how.si_code == CLD_EXITED && c->how.si_status == 0; }
/* as the shell says it */
static bool no_command(const struct command *c)
{
    const int status = c->how.si_status;
    return c->how.si_code == CLD_EXITED && (status == NOT_FOUND || status == NOT_EXECUTABLE);
}

/* ---- the subject ------------------------------------------------------------------------- */

static enum ha_status run_exec(struct ha_subject *x, struct ha_batch *batch, struct ha_why *why)
{
    struct command *c = x->own;
    unlink(c->out);
    c->answer_max = ANSWER_SPARE;
    for (int i = HA_OUT_O; i <= HA_OUT_SUM; i++) c->answer_max += 4 * batch->piece[i].bytes;
    HA_TRY(ha_replay_write(c->in, batch, false, NULL, why));
    c->passed = true;
    HA_TRY(run_command(c, c->in, c->out, why));
    char said[LINE_MAX_CHARS + 1];
    last_line(&c->stream[1], said);
    const char *colon = *said ? ": " : "";
    const struct ha_process_text text = ha_process_text(&c->how);
    if (no_command(c)) return ha_why(why, HA_ERROR, "the shell cannot run it (%s)%s%s", text.text, colon, said);
    if (!succeeded(c)) return ha_why(why, HA_ERROR, "%s%s%s", text.text, colon, said);
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

/* Asks the command what it can do; one that does not know the question, and exits with whatever, does everything with
 * two-pass binary32. */
static enum ha_status ask_traits(struct ha_subject *x, struct ha_why *why)
{
    struct command *c = x->own;
    char traits[] = "--traits";
    enum ha_status st = run_command(c, traits, NULL, why);
    if (st == HA_OK && no_command(c))
        return ha_why(why, HA_ERROR, "--exec: the shell cannot run '%.*s' (%s)", (int)strlen(c->text) - 5, c->text,
                      ha_process_text(&c->how).text);
    if (st == HA_OK && c->how.si_code == CLD_EXITED && c->how.si_status != 0) return HA_OK;
    if (st == HA_OK && !succeeded(c)) st = ha_why(why, HA_ERROR, "%s", ha_process_text(&c->how).text);
    char *rest = c->stream[0].text;
    for (const char *line; st == HA_OK && (line = strsep(&rest, "\n")) != NULL;)
        if (*line) st = ha_traits_parse(line, &x->traits, x->name, why);
    if (st == HA_OK) st = ha_traits_check(&x->traits, why);
    return st == HA_OK ? HA_OK : ha_why_prefix(why, st, "--exec, asked for --traits");
}

static enum ha_status folder_make(struct command *c, struct ha_why *why)
{
    const char *where = getenv("TMPDIR");
    char folder[sizeof c->folder];
    if (!where || !*where) where = "/tmp";
    if (snprintf(folder, sizeof folder, "%s/habench-XXXXXX", where) >= (int)sizeof folder)
        return ha_why(why, HA_ERROR, "--exec: TMPDIR is longer than %zu bytes", sizeof folder);
    if (!mkdtemp(folder)) return ha_why(why, HA_ERROR, "--exec: no folder %s: %s", folder, strerror(errno));
    memcpy(c->folder, folder, sizeof folder); /* which close removes */
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
    out->layouts = out->traits.lse_order == HA_LSE_HEADS_TOKENS ? 1u << HA_LAYOUT_HEADS_FIRST : 1u << HA_LAYOUT_PACKED;
    if (st != HA_OK) ha_subject_close(out);
    return st;
}
