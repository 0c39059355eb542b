#include "harness/base/cpu.h"
#include "harness/base/pool.h"
#include "harness/base/span_source.h"
#include "harness/base/stop.h"
#include "harness/base/text.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"
#include "harness/program/commands.h"
#include "harness/program/fleet.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first signal asks for an end (ha_stop), the second gives up what is begun; the third ends the process at once. */
static void stop(int number)
{
    if (ha_stop_now) _exit(128 + number);
    if (ha_stop) ha_stop_now = number;
    else ha_stop = number;
}

static void catch_signals(void)
{
    struct sigaction action = { .sa_handler = stop, .sa_flags = SA_RESTART };
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (signal(SIGHUP, SIG_IGN) != SIG_IGN) sigaction(SIGHUP, &action, NULL); /* nohup has it ignored */
    signal(SIGXFSZ, SIG_IGN); /* a limit of the size of files is a full disk */
}

/* What is opened later is not to stand where stdin, stdout or stderr are closed: reading or writing there fails. */
static void hold_closed_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* At every end of the program, also where argp ends it. */
static void close_stdout(int status, void *unused)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return;
    fprintf(stderr, "habench: stdout: %s\n", errno ? strerror(errno) : "not all of it was written");
    if (status == HA_EXIT_OK) _exit(HA_EXIT_ENVIRONMENT);
}

/* Not in main, whose own frame would not fit a stack that is too small. */
__attribute__((noinline)) static int run(int argc, char **argv)
{
    static enum ha_exit (*const command[])(const struct ha_options *o, struct ha_why *why) = {
        [HA_CMD_RUN] = ha_command_run,         [HA_CMD_CHECK] = ha_command_run,
        [HA_CMD_LIST] = ha_command_list,       [HA_CMD_PROBE] = ha_command_probe,
        [HA_CMD_FIT] = ha_command_fit,         [HA_CMD_CAPACITY] = ha_command_capacity,
        [HA_CMD_COMPARE] = ha_command_compare, [HA_CMD_DOCTOR] = ha_command_doctor,
        [HA_CMD_REPORT] = ha_command_report,   [HA_CMD_NIGHTLY] = ha_command_nightly,
        [HA_CMD_HISTORY] = ha_command_history, [HA_CMD_PLAN] = ha_command_plan,
        [HA_CMD_CAPTURE] = ha_command_capture,
    };
    struct ha_options o;
    struct ha_why why = { "" };
    enum ha_span_source spans;
    ha_options_parse(argc, argv, &o);
    catch_signals();
    /* whatever device and CPU there are, and whether anyone asks for them or not */
    const char *unknown = ha_cpu_unknown();
    if (unknown) ha_why(&why, HA_ERROR, "HABENCH_WITHOUT: '%.40s' is no instruction set that can be masked", unknown);
    const bool right = !unknown && ha_span_source(&spans, &why) == HA_OK;
    const enum ha_exit code = !right                  ? HA_EXIT_USAGE
                              : o.fleet && !o.dry_run ? ha_program_fleet(&o, command[o.command], &why)
                                                      : command[o.command](&o, &why);
    if ((ha_stop || code != HA_EXIT_OK) && why.text[0]) {
        fflush(stdout); /* both may go into one file */
        fputs("habench: ", stderr);
        ha_text_print(stderr, why.text);
        fputc('\n', stderr);
    }
    return ha_stop ? 128 + ha_stop : (int)code;
}

int main(int argc, char **argv)
{
    static struct ha_why why;
    hold_closed_files();
    on_exit(close_stdout, NULL);
    ha_pool_environment();
    if (ha_stack_check(&why) == HA_OK) return run(argc, argv);
    fprintf(stderr, "habench: %s\n", why.text);
    return HA_EXIT_ENVIRONMENT;
}
