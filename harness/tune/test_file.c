/* Plans as files: what is written is read again; what is no plan, or not of this CPU, is one clear line; and which plan
 * a run has. */

#include "harness/base/registry.h"
#include "harness/base/test.h"
#include "harness/base/test_folder.h"
#include "harness/base/why.h"
#include "harness/tune/file.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[TEST_PATH_MAX];

static int make_folder(void **state)
{
    if (test_folder_make(state) != 0) return -1;
    strcpy(path, test_path("plan.csv"));
    setenv("XDG_CACHE_HOME", test_folder, 1);
    unsetenv("HABENCH_PLAN");
    return 0;
}

static int remove_folder(void **state)
{
    ha_tuning_set(NULL);
    return test_folder_remove(state);
}

static struct ha_choice some(size_t threads, enum ha_dtype dtype, unsigned pattern, const char *isa)
{
    struct ha_choice c = { .threads = threads,
                           .dtype = dtype,
                           .pattern = pattern,
                           .reach = { HA_REACH_L1, 2048 },
                           .taken = pattern == HA_PATTERN_LINEAR,
                           .ratio = 0.9,
                           .lo = 0.89,
                           .hi = 0.92,
                           .constants = 0.6 };
    snprintf(c.isa, sizeof c.isa, "%s", isa);
    return c;
}

static struct ha_tuning plan(void)
{
    struct ha_tuning t = { .build = "v1", .choices = 3 };
    ha_tuning_cpu(t.cpu);
    t.choice[0] = some(1, HA_F16, HA_PATTERN_LINEAR, "c");
    t.choice[1] = some(1, HA_F16, HA_PATTERN_LIST, "c");
    t.choice[2] = some(2, HA_BF16, HA_CHOICE_ROWS, "c");
    ha_tuning_name(&t, "measured");
    return t;
}

static void write_text(const char *text) { test_write("plan.csv", text, strlen(text)); }

#define HEADER                                                                                                 \
    "schema_version,cpu,build,threads,dtype,pattern,isa,ahead_kind,ahead_bytes,taken,ratio,ratio_lo,ratio_hi," \
    "ratio_constants\r\n"

/* a row of this CPU, with what stands between its build and its end */
static void write_row(const char *rest)
{
    char text[1024], cpu[160];
    ha_tuning_cpu(cpu);
    snprintf(text, sizeof text, HEADER "1,\"%s\",v1,%s\r\n", cpu, rest);
    write_text(text);
}

static void refused(const char *says)
{
    struct ha_tuning t;
    struct ha_why why = { "" };
    assert_int_not_equal(ha_tune_read(&t, path, "file", &why), HA_OK);
    if (!strstr(why.text, says)) fail_msg("'%s' does not say '%s'", why.text, says);
    assert_non_null(strstr(why.text, path));
    assert_null(strchr(why.text, '\n'));
}

TEST_WITH(what_is_written_is_read, make_folder, remove_folder)
{
    const struct ha_tuning out = plan();
    struct ha_tuning in;
    struct ha_why why;
    assert_int_equal(ha_tune_write(&out, path, &why), HA_OK);
    assert_int_equal(ha_tune_read(&in, path, "file", &why), HA_OK);
    assert_int_equal(in.choices, out.choices);
    assert_string_equal(in.name, out.name);
    assert_string_equal(in.from, "file");
    assert_string_equal(in.build, "v1");
    for (size_t i = 0; i < out.choices; i++) {
        char a[80], b[80];
        ha_choice_text(a, &out.choice[i]);
        ha_choice_text(b, &in.choice[i]);
        assert_string_equal(a, b);
        assert_true(fabs(in.choice[i].ratio - 0.9) < 1e-12 && fabs(in.choice[i].constants - 0.6) < 1e-12);
    }
    /* another choice has another name */
    struct ha_tuning other = out;
    other.choice[1].reach.bytes = 4096;
    ha_tuning_name(&other, "measured");
    assert_string_not_equal(other.name, out.name);
}

TEST_WITH(a_link_and_a_device_stay_and_are_written, make_folder, remove_folder)
{
    const struct ha_tuning out = plan();
    struct ha_tuning in;
    struct ha_why why;
    struct stat at;
    char link[TEST_PATH_MAX];
    strcpy(link, test_path("link"));
    assert_int_equal(symlink("behind", link), 0);
    assert_int_equal(ha_tune_writable(link, &why), HA_OK);
    assert_int_equal(ha_tune_write(&out, link, &why), HA_OK);
    assert_true(lstat(link, &at) == 0 && S_ISLNK(at.st_mode));
    assert_int_equal(ha_tune_read(&in, test_path("behind"), "file", &why), HA_OK);
    assert_int_equal(remove(link), 0);
    assert_int_equal(mkfifo(link, 0666), 0);
    const int end = open(link, O_RDWR | O_NONBLOCK);
    assert_int_equal(ha_tune_writable(link, &why), HA_OK);
    assert_int_equal(ha_tune_write(&out, link, &why), HA_OK);
    assert_true(lstat(link, &at) == 0 && S_ISFIFO(at.st_mode) && read(end, &at, 1) == 1);
    close(end);
}

TEST_WITH(hostile_files_are_one_line, make_folder, remove_folder)
{
    static const struct {
        const char *row, *says;
    } rows[] = {
        { "0,f16,linear,c,l1,2048,1,.9,.8,1,.6", "threads '0'" },
        { "1e300,f16,linear,c,l1,2048,1,.9,.8,1,.6", "threads '1e300'" },
        { "1,f8,linear,c,l1,2048,1,.9,.8,1,.6", "dtype 'f8'" },
        { "1,f16,spiral,c,l1,2048,1,.9,.8,1,.6", "pattern 'spiral'" },
        { "1,f16,linear,abacus,l1,2048,1,.9,.8,1,.6", "isa 'abacus'" },
        { "1,f16,linear,c,l9,2048,1,.9,.8,1,.6", "ahead_kind 'l9'" },
        { "1,f16,linear,c,l1,1099511627776,1,.9,.8,1,.6", "ahead_bytes '1099511627776'" },
        { "1,f16,linear,c,l1,-64,1,.9,.8,1,.6", "ahead_bytes '-64'" },
        { "1,f16,linear,c,l1,12.5,1,.9,.8,1,.6", "ahead_bytes '12.5'" },
        { "1,f16,linear,c,l1,,1,.9,.8,1,.6", "ahead_bytes ''" },
        { "1,f16,linear,c,l1,2048,2,.9,.8,1,.6", "taken '2'" },
        { "1,f16,linear,c,l1,2048,1,nan,.8,1,.6", "ratio 'nan'" },
        { "1,f16,linear,c,l1,2048,1,-1,.8,1,.6", "ratio '-1'" },
        { "1,f16,linear,c,l1,2048,1,.9", "this is no plan" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        write_row(rows[i].row);
        refused(rows[i].says);
    }
    write_text("");
    refused("empty");
    write_text("\x7f"
               "ELF\1\2\3, garbage \xff\xfe\r\n\"");
    refused("");
    write_text("a,b\r\n1,2\r\n");
    refused("this is no plan");
    write_text(HEADER "2,x,v1,1,f16,linear,c,l1,2048,1,.9,.8,1,.6\r\n");
    refused("schema_version '2'");
    write_text(HEADER "1,\"VAX-11/780, family 1 model 1\",v1,1,f16,linear,c,l1,2048,1,.9,.8,1,.6\r\n");
    refused("VAX-11/780");
    remove(path);
    refused("No such file");
}

TEST_WITH(a_choice_stands_once, make_folder, remove_folder)
{
    char row[512], cpu[160];
    ha_tuning_cpu(cpu);
    snprintf(row, sizeof row, "1,f16,linear,c,l1,2048,1,.9,.8,1,.6\r\n1,\"%s\",v1,1,f16,linear,c,l2,512,0,.9,.8,1,.6",
             cpu);
    write_row(row);
    refused(":3: a second choice");
    snprintf(row, sizeof row,
             "1,f16,linear,c,l1,2048,1,.9,.8,1,.6\r\n1,\"%s\",v1,1,f16,linear,avx2,l2,512,1,.9,.8,1,.6", cpu);
    write_row(row);
    refused(":3: a second choice");
}

/* What is asked for, $HABENCH_PLAN, the user's own, the shipped one. */
TEST_WITH(the_nearest_plan_counts, make_folder, remove_folder)
{
    struct ha_tuning t = plan();
    struct ha_why why;
    char own[4096], shipped[TEST_PATH_MAX];
    strcpy(shipped, test_path("shipped"));
    assert_int_equal(ha_tune_find_in(shipped, NULL, false, &why), HA_OK);
    assert_string_equal(ha_tuning()->name, "constants");

    assert_int_equal(mkdir(shipped, 0777), 0);
    assert_int_equal(ha_tune_write(&t, test_path("shipped/here.csv"), &why), HA_OK);
    assert_int_equal(ha_tune_find_in(shipped, NULL, false, &why), HA_OK);
    assert_string_equal(ha_tuning()->from, "shipped");

    assert_int_equal(ha_tune_cache_path(own, &why), HA_OK);
    assert_int_equal(ha_tune_write(&t, own, &why), HA_OK);
    assert_int_equal(ha_tune_find_in(shipped, NULL, false, &why), HA_OK);
    assert_string_equal(ha_tuning()->from, "measured");

    assert_int_equal(ha_tune_write(&t, path, &why), HA_OK);
    setenv("HABENCH_PLAN", path, 1);
    assert_int_equal(ha_tune_find_in(shipped, NULL, false, &why), HA_OK);
    assert_string_equal(ha_tuning()->from, "file");
    assert_int_equal(ha_tune_find_in(shipped, "constants", false, &why), HA_OK);
    assert_string_equal(ha_tuning()->name, "constants");

    /* asked for, and not to be had */
    setenv("HABENCH_PLAN", "/nowhere/plan.csv", 1);
    assert_int_equal(ha_tune_find_in(shipped, NULL, false, &why), HA_ERROR);
    assert_contains(why.text, "/nowhere/plan.csv");
    unsetenv("HABENCH_PLAN");

    /* the user's own is damaged: the shipped one */
    assert_int_equal(truncate(own, 40), 0);
    assert_int_equal(ha_tune_find_in(shipped, NULL, false, &why), HA_OK);
    assert_string_equal(ha_tuning()->from, "shipped");
}

/* the file with this CPU in the place of the one that it is of; its rows, and whether they were of this CPU */
static size_t as_of_this_cpu(const char *from, bool *own)
{
    static char in[1 << 16], out[1 << 17], cpu[160], quoted[164];
    size_t n = 0, rows = 0;
    FILE *f = fopen(from, "re");
    if (!f) fail_msg("%s is not there", from);
    in[fread(in, 1, sizeof in - 1, f)] = 0;
    fclose(f);
    ha_tuning_cpu(cpu);
    snprintf(quoted, sizeof quoted, "\"%s\"", cpu);
    *own = strstr(in, quoted) != NULL;
    for (char *line = in, *end; (end = strchr(line, '\n')); line = end + 1, rows++) {
        char *name = strstr(line, "\",\"") + 3, *behind = strstr(name, "\",\"");
        assert_true(name < behind && behind < end);
        n += (size_t)snprintf(out + n, sizeof out - n, "%.*s%s%.*s", (int)(name - line), line, rows ? cpu : "cpu",
                              (int)(end + 1 - behind), behind);
        assert_true(n < sizeof out);
    }
    write_text(out);
    return rows - 1;
}

/* Each that is shipped is whole, and is found on its CPU where the user has none. */
TEST_WITH(shipped_plans_are_found, make_folder, remove_folder)
{
    static const char *const files[] = { "kernels/plans/amd-epyc-zen4-2core.csv",
                                         "kernels/plans/intel-xeon-amx-2core.csv" };
    struct ha_tuning t;
    struct ha_why why;
    bool any = false;
    for (size_t i = 0; i < COUNT(files); i++) {
        bool own;
        const size_t rows = as_of_this_cpu(files[i], &own);
        if (ha_tune_read(&t, path, "shipped", &why) != HA_OK) fail_msg("%s: %s", files[i], why.text);
        assert_int_equal(t.choices, rows);
        for (size_t threads = 1; threads < 3; threads++)
            for (int type = 0; type < HA_DTYPE_COUNT; type++)
                assert_non_null(ha_tuning_taken(&t, threads, (enum ha_dtype)type, HA_PATTERN_LINEAR));
        any = any || own;
    }
    assert_int_equal(ha_tune_find_in("kernels/plans", NULL, false, &why), HA_OK);
    assert_string_equal(ha_tuning()->from, any ? "shipped" : "built in");
}

/* Resolved tables do as the plan says, for the threads that it is about. */
TEST_WITH(tables_follow_the_plan, make_folder, remove_folder)
{
    struct ha_tuning t = plan();
    struct ha_kernels k, built_in;
    struct ha_why why;
    assert_int_equal(ha_kernels_resolve_by(NULL, NULL, 1, &built_in, &why), HA_OK);
    assert_int_equal(ha_kernels_resolve_by(&t, NULL, 1, &k, &why), HA_OK);
    assert_string_equal(ha_kernels_origin_of(&k, "attend_packed", HA_F16)->name, "c");
    assert_int_equal(k.reach[HA_F16][HA_PATTERN_LINEAR].kind, HA_REACH_L1);
    assert_int_equal(k.reach[HA_F16][HA_PATTERN_LINEAR].bytes, 2048);
    assert_memory_equal(&k.packed_profile[HA_F16], &ha_kernels_all[0]->packed_profile[HA_F16],
                        sizeof(struct ha_profile));
    /* what it says nothing of stays */
    assert_ptr_equal(k.attend_packed[HA_F32], built_in.attend_packed[HA_F32]);
    assert_memory_equal(k.reach[HA_F32], built_in.reach[HA_F32], sizeof k.reach[HA_F32]);
    assert_false(k.rows_faster[HA_F16]);
    /* a table that is asked for by its name is that table: the plan takes none then */
    assert_int_equal(ha_kernels_resolve_by(&t, built_in.name, 1, &k, &why), HA_OK);
    assert_ptr_equal(k.attend_packed[HA_F16], built_in.attend_packed[HA_F16]);
    /* of 2 threads and more: natural rows of bf16, nothing of f16 */
    t.choice[2].taken = true;
    for (size_t threads = 2; threads < 5; threads++) {
        assert_int_equal(ha_kernels_resolve_by(&t, NULL, threads, &k, &why), HA_OK);
        assert_true(k.rows_faster[HA_BF16]);
        assert_ptr_equal(k.attend_packed[HA_F16], built_in.attend_packed[HA_F16]);
    }
    /* a table that is not there, by a plan of another build */
    strcpy(t.choice[0].isa, "gone");
    assert_int_equal(ha_kernels_resolve_by(&t, NULL, 1, &k, &why), HA_OK);
    assert_ptr_equal(k.attend_packed[HA_F16], built_in.attend_packed[HA_F16]);
}
