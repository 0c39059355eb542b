/* A step that ends by itself, at its limit, or not at all, as what waits in the kernel for hardware that is gone: time
 * goes faster here, and whoever is not to end is said to be there still. */

#include "harness/program/night_step.h"

#include "harness/base/clock.h"
#include "harness/base/stop.h"
#include "harness/base/test_folder.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t second_ns = UINT64_C(1000000000);

static bool stuck;         /* nobody is ever gone */
static pid_t waited;       /* the latest that was waited for */
static uint64_t faster_ns; /* at each look at the clock */
static uint64_t passed_ns; /* by that */

pid_t __real_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);
pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
    waited = pid;
    return stuck ? 0 : __real_waitpid(pid, status, options);
}

uint64_t __real_ha_now_ns(void);
uint64_t __wrap_ha_now_ns(void);
uint64_t __wrap_ha_now_ns(void) { return __real_ha_now_ns() + (passed_ns += faster_ns); }

static struct ha_why why;

static enum ha_status step(const char *line, uint64_t limit_ns, int *code)
{
    const struct ha_night_step s = {
        .word = &line, .words = 1, .shell = true, .folder = test_folder, .name = "a", .limit_ns = limit_ns
    };
    why.text[0] = 0;
    passed_ns = 0;
    return ha_night_step(&s, code, &why);
}

TEST_WITH(ends, test_folder_make, test_folder_remove)
{
    int code;
    assert_int_equal(step("exit 3", 0, &code), HA_OK);
    assert_int_equal(code, 3);
    assert_int_equal(step("echo done; exec sleep 1000", second_ns / 10, &code), HA_FAIL);
    assert_contains(why.text, "a: still running at its limit, and was ended");
    assert_true(code >= 128);
}

/* also where nothing but a signal ends the wait */
TEST_WITH(does_not_end, test_folder_make, test_folder_remove)
{
    for (int stop = 0; stop <= SIGINT; stop += SIGINT) {
        int code = 0, status;
        stuck = true;
        faster_ns = second_ns;
        ha_stop = stop;
        const uint64_t begun = __real_ha_now_ns();
        assert_int_equal(step("exec sleep 1000", stop ? 0 : 5 * second_ns, &code), HA_FAIL);
        ha_stop = 0;
        faster_ns = 0;
        stuck = false;
        assert_contains(why.text, "a: does not end, though it was killed");
        assert_int_equal(code, 128 + SIGKILL);
        assert_true(passed_ns > 30 * second_ns && passed_ns < 60 * second_ns);
        assert_true(__real_ha_now_ns() - begun < 30 * second_ns);
        assert_int_equal(__real_waitpid(waited, &status, 0), waited); /* it was killed nevertheless */
    }
}
