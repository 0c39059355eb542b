/* A gallery that cannot fail shows nothing: over a plugin whose defects are swapped (test_swapped.c), with few cases in
 * place of those of `check`. */

#include "harness/base/operands.h"
#include "harness/base/registry.h"
#include "harness/base/test_folder.h"
#include "harness/engine/test_drive.h"
#include "harness/report/row.h"

#include <sys/stat.h>
#include <unistd.h>

static const char *const where[] = {
#define OPERATION(name, class, op, what)         "op=" #op,
#define FAULT(name, class, op, fault)            "op=" #op,
#define ATTENTION(name, class, where, what, ...) where,
#define CLAIM(name, where, what, field, ...)     where,
#define PLANT(name, what, field, ...)
#include "suites/defects/defects.def"
};

TEST(every_operation_has_something_planted)
{
    static const char *const ops[] = {
#define HA_OP_LINE(name) "op=" #name,
#include "suites/device/ops.def"
    };
    for (size_t i = 0; i < COUNT(ops); i++) {
        size_t planted = 0;
        for (size_t w = 0; w < COUNT(where); w++) planted += !strcmp(where[w], ops[i]);
        if (!planted) fail_msg("nothing is planted with %s", ops[i]);
    }
}

static void run(const char *words)
{
    ha_driven_free(&driven);
    if (ha_drive(&(struct ha_drive){ .words = words }, &driven, &why) != HA_OK) fail_msg("%s", why.text);
    assert_int_equal(driven.results.entries, 1);
}
static const struct ha_result *result(void) { return ha_result_in(entry(0)->row); }

TEST_WITH(what_nothing_sees_is_a_failure, NULL, driven_end)
{
    run("defects:defect=attend_mean");
    assert_int_equal(result()->verdict, HA_VERDICT_FAIL);
    assert_contains(result()->reason, "SURVIVED: 3 cases");
    says("attend_mean            ALIVE");
}

TEST_WITH(a_plugin_that_fails_with_nothing_planted_is_a_failure, NULL, driven_end)
{
    run("defects:defect=control");
    assert_int_equal(result()->verdict, HA_VERDICT_FAIL);
    assert_contains(result()->reason, "with nothing planted 'resident:");
    says("control                FAILS");
}

TEST_WITH(a_case_that_fails_without_the_defect_shows_nothing, NULL, driven_end)
{
    run("defects:defect=attend_first_key");
    assert_int_equal(result()->verdict, HA_VERDICT_FAIL);
    assert_contains(result()->reason, "does not pass without it");
}

TEST_WITH(what_is_seen_says_by_what, NULL, driven_end)
{
    run("defects:defect=claims_exp_2");
    assert_int_equal(result()->verdict, HA_PASS);
    assert_string_equal(ha_driven_text(&driven, entry(0), "caught_by"), "claims");
    assert_contains(ha_driven_text(&driven, entry(0), "seen_as"), "exp_eps is 2");
    run("defects:defect=copy_odd_tail");
    assert_int_equal(result()->verdict, HA_PASS);
    assert_string_equal(ha_driven_text(&driven, entry(0), "caught_by"), "operation");
    assert_contains(ha_driven_text(&driven, entry(0), "seen_in"), "device:op=copy");
    says("operations         1       1         0         1");
}

/* Cases of `check` that see nothing, or little; then those that are drawn do. */
TEST_WITH(random_cases_follow, NULL, driven_end)
{
    if (HA_SANITIZED) skip(); /* random cases are drawn elsewhere, too */
    run("defects:defect=attend_dim_8,random=120");
    assert_int_equal(result()->verdict, HA_VERDICT_FAIL); /* what sees it does not pass without it, either */
    assert_contains(result()->reason, "does not pass without it");
    if (!(number(0, "tried") > 3))
        fail_msg("%.0f: %s", number(0, "tried"), ha_driven_text(&driven, entry(0), "seen_in"));
}

/* The program's folder, by which it finds suites and the gallery's plugin: the folder of this test. */
bool __wrap_ha_program_folder(char *out, size_t bytes);
bool __wrap_ha_program_folder(char *out, size_t bytes)
{
    return (size_t)snprintf(out, bytes, "%s", test_folder) < bytes;
}

static const char *gallery(void)
{
    static char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof "defects.so");
    if (length < 0) return "";
    path[length] = 0;
    strcpy(strrchr(path, '/') + 1, "defects.so");
    return path;
}

static int in_a_folder(void **state)
{
    FILE *out;
    if (test_folder_make(state) || chdir(test_folder) || mkdir("suites", 0700)) return -1;
    if (symlink(gallery(), "defects.so") || !(out = fopen("suites/check.suite", "w"))) return -1;
    fputs("[default]\nvariant=resident\nheads=4/2\nlayers=1\nsteps=1\n[operations]\nsuite=device\nop=alloc copy\n"
          "bytes=65536\n[a]\nctx=20\n",
          out);
    return fclose(out);
}

TEST_MAIN { return test_all("tests", in_a_folder, test_folder_remove); }
