#include "harness/report/env.h"

#include "harness/base/test_folder.h"
#include "harness/report/test_schema.h"

#include <math.h>
#include <sys/wait.h>

static json_t *load_env(void) { return test_schema_load(test_path("env.json")); }

/* nothing else is left there */
static int remove_folder(void **state)
{
    unlink(test_path("env.json"));
    return rmdir(test_folder);
}

static struct ha_env machine(void)
{
    return (
        struct ha_env){ .cpu = "a CPU", .isa = "avx2", .cores = 2, .numa_node = -1, .memory_bytes = UINT64_C(1) << 40 };
}

static const struct ha_device_api host = { .name = "host", .kind = "host", .built_with = "gcc" };
static const struct ha_device_api evil = { .name = "\033[2Jevil\xff", .kind = "plugin" };

static struct ha_ceilings ceilings(double read)
{
    struct ha_ceilings c;
    memset(&c, 0, sizeof c);
    for (int i = 0; i < HA_CEILINGS; i++) c.of[i].median = (double)NAN;
    c.of[HA_CEIL_READ_ALL] = (struct ha_reading){ read, read, (double)INFINITY, 5 };
    c.meters = (struct ha_device_meters){ .sm_clock_MHz = 1755, .power_W = (double)NAN, .throttle = "none" };
    return c;
}

static struct ha_env_file *two_devices(void)
{
    const struct ha_env env = machine();
    char path[] = "suites/all\033.suite";
    const struct ha_env_suite suite = { path, "0123456789abcdef" };
    const struct ha_env_run run = { "r1", "run", "b", "device=host", "habench run all\033", &suite, 1 };
    const struct ha_device_info info = { .name = "memory", .memory_bytes = UINT64_MAX, .compute_threads = 1 };
    struct ha_env_file *file = ha_env_file_create(&env, &run);
    struct ha_env_device device;
    struct ha_why why;
    const struct ha_ceilings c = ceilings(50);
    ha_env_device(&device, "host", &host, &info, NULL, NULL);
    assert_int_equal(ha_env_file_device(file, &device, &why), HA_OK);
    ha_env_device(&device, "./evil.so", &evil, &info, NULL, NULL);
    assert_int_equal(ha_env_file_device(file, &device, &why), HA_OK);
    ha_env_device(&device, "host", &host, &info, NULL, &c); /* again, now that its ceilings are known */
    assert_int_equal(ha_env_file_device(file, &device, &why), HA_OK);
    assert_int_equal(ha_env_file_write(file, test_folder, &why), HA_OK);
    return file;
}

TEST_WITH(what_is_written_fits_the_schema, test_folder_make, remove_folder)
{
    char where[256] = "";
    json_t *schema = test_schema_load("results/schema/env.schema.json");
    ha_env_file_destroy(two_devices());
    json_t *j = load_env();
    if (!test_schema_fits(j, schema, where)) fail_msg("%s", where);
    const json_t *devices = json_object_get(j, "devices"), *first = json_array_get(devices, 0);
    assert_int_equal(json_array_size(devices), 2);
    const json_t *read = json_object_get(json_object_get(first, "ceilings"), ha_ceiling_name(HA_CEIL_READ_ALL));
    assert_true(json_real_value(json_object_get(read, "median")) == 50);
    assert_true(json_is_null(json_object_get(read, "hi"))); /* JSON has no infinity */
    assert_int_equal(json_object_size(json_object_get(first, "ceilings")), 1);
    assert_int_equal(json_integer_value(json_object_get(first, "memory_bytes")), INT64_MAX); /* of UINT64_MAX */
    assert_null(json_object_get(json_object_get(first, "meters"), "power_W"));
    assert_string_equal(json_string_value(json_object_get(json_array_get(devices, 1), "driver")), "?[2Jevil?");
    assert_null(json_object_get(json_array_get(devices, 1), "ceilings"));
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(j, "runs"), 0), "command")),
                        "habench run all?");
    const json_t *suite = json_array_get(json_object_get(json_array_get(json_object_get(j, "runs"), 0), "suites"), 0);
    assert_string_equal(json_string_value(json_object_get(suite, "path")), "suites/all?.suite");
    assert_string_equal(json_string_value(json_object_get(suite, "digest")), "0123456789abcdef");
    json_decref(j);

    struct ha_env env; /* of this machine, by the callers that know no run */
    struct ha_why why = { "" };
    const struct ha_device_info info = { .name = "memory" };
    ha_env_read(&env);
    assert_int_equal(ha_env_write(test_folder, &env, "./h.so", &host, &info, NULL, &why), HA_OK);
    j = load_env();
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(j, "devices"), 0), "asked")),
                        "./h.so");
    if (!test_schema_fits(j, schema, where)) fail_msg("%s", where);
    json_decref(j);
    json_decref(schema);
}

static void is_noticed(json_t *schema, json_t *changed, const char *says)
{
    char where[256] = "";
    if (test_schema_fits(changed, schema, where)) fail_msg("not noticed: %s", says);
    assert_string_equal(where, says);
    json_decref(changed);
}

TEST_WITH(what_does_not_fit_is_noticed, test_folder_make, remove_folder)
{
    json_t *schema = test_schema_load("results/schema/env.schema.json"), *j;
    ha_env_file_destroy(two_devices());
    json_object_set_new(j = load_env(), "hostname", json_string("secret"));
    is_noticed(schema, j, "/hostname is unknown");
    json_object_set_new(json_array_get(json_object_get(j = load_env(), "devices"), 1), "color", json_integer(1));
    is_noticed(schema, j, "/devices/1/color is unknown");
    json_object_del(j = load_env(), "cpu");
    is_noticed(schema, j, " lacks cpu");
    json_object_set_new(j = load_env(), "cores", json_string("2"));
    is_noticed(schema, j, "/cores has another type");
    json_object_set_new(j = load_env(), "schema_version", json_integer(1));
    is_noticed(schema, j, "/schema_version has another value");
    json_object_set_new(json_object_get(json_array_get(json_object_get(j = load_env(), "devices"), 0), "ceilings"), "x",
                        json_real(1));
    is_noticed(schema, j, "/devices/0/ceilings/x has another type");
    json_decref(schema);
}

TEST_WITH(runs_and_devices_of_before_stay, test_folder_make, remove_folder)
{
    const struct ha_env env = machine();
    const struct ha_env_run next = { "r2", "run", "b", "device=host", "habench run all --resume", NULL, 0 },
                            differs = { "r3", "check", "b", "device=host", "", NULL, 0 };
    struct ha_why why = { "" };
    ha_env_file_destroy(two_devices());
    struct ha_env_file *file = ha_env_file_create(&env, &next);
    if (ha_env_file_resume(file, test_path("env.json"), &why) != HA_OK) fail_msg("%s", why.text);
    assert_int_equal(ha_env_file_write(file, test_folder, &why), HA_OK);
    ha_env_file_destroy(file);
    json_t *j = load_env(), *runs = json_object_get(j, "runs");
    assert_int_equal(json_array_size(runs), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(runs, 0), "run_id")), "r1");
    assert_string_equal(json_string_value(json_object_get(json_array_get(runs, 1), "run_id")), "r2");
    const json_t *devices = json_object_get(j, "devices");
    assert_int_equal(json_array_size(devices), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(devices, 0), "asked")), "host");
    json_decref(j);
    file = ha_env_file_create(&env, &differs);
    assert_int_equal(ha_env_file_resume(file, test_path("env.json"), &why), HA_FAIL);
    assert_string_equal(why.text, "mode: there 'run', here 'check'");
    assert_int_equal(ha_env_file_resume(file, "/nowhere/env.json", &why), HA_ERROR);
    ha_env_file_destroy(file);
}

/* This program as a run: FOLDER, then what else the user typed. */
static int as_run(char **argv)
{
    const struct ha_env env = machine();
    const struct ha_env_run run = { "r1", "run", "b", "device=host", NULL, NULL, 0 };
    struct ha_why why = { "" };
    struct ha_env_file *file = ha_env_file_create(&env, &run);
    const enum ha_status status = ha_env_file_write(file, argv[1], &why);
    ha_env_file_destroy(file);
    return status != HA_OK;
}

/* However long it is: names of cases, one after the other, come to more than a page. */
TEST_WITH(the_command_is_whole, test_folder_make, remove_folder)
{
    static char many[20001], whole[sizeof many + sizeof test_folder + 32];
    memset(many, 'x', sizeof many - 1);
    const pid_t run = fork();
    if (run == 0) {
        execl("/proc/self/exe", "habench", test_folder, many, "", "-q", (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(run, &status, 0), run);
    assert_int_equal(status, 0);
    json_t *j = load_env();
    snprintf(whole, sizeof whole, "habench %s %s  -q", test_folder, many);
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(j, "runs"), 0), "command")),
                        whole);
    json_decref(j);
}

/* It is the same each time, another with another salt, and no text that was read stands in it. */
TEST(a_machine_says_which_one_it_is)
{
    struct ha_env a, b;
    char own[64] = "";
    setenv("HABENCH_SALT", "one", 1);
    ha_env_read(&a), ha_env_read(&b);
    assert_string_equal(a.machine_id, b.machine_id), assert_string_equal(a.host, b.host);
    setenv("HABENCH_SALT", "two", 1);
    ha_env_read(&b);
    gethostname(own, sizeof own - 1);
    const bool named = strncmp(own, "localhost", 9) != 0;
    assert_int_equal(strlen(a.host), named ? 8 : 0);
    if (named) assert_string_not_equal(a.host, b.host);
    if (*a.machine_id) assert_string_not_equal(a.machine_id, b.machine_id);
    unsetenv("HABENCH_SALT");
}

TEST_MAIN { return argc > 1 ? as_run(argv) : test_all("tests", NULL, NULL); }
