#include "harness/report/env.h"

#include "harness/base/file.h"
#include "harness/base/text.h"
#include "harness/base/tuning.h"
#include "harness/base/version.h"
#include "harness/base/why.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SCHEMA = 2 };

struct ha_env_file {
    json_t *all;
};

/* This program's arguments, which the user typed, joined by blanks; NULL: no memory */
static char *command_line(void)
{
    char *text = NULL, *word = NULL;
    size_t size, room = 0;
    FILE *out = open_memstream(&text, &size), *f = fopen("/proc/self/cmdline", "re");
    for (const char *blank = ""; out && f && getdelim(&word, &room, 0, f) > 0; blank = " ")
        fprintf(out, "%s%s", blank, word);
    if (f) fclose(f);
    if (out) fclose(out);
    free(word);
    return text;
}

/* empty: null */
static json_t *text_json(const char *text)
{
    char *clean = strdup(text);
    json_t *s = clean && *clean ? json_string(ha_text_clean(clean)) : NULL;
    free(clean);
    return s ? s : json_null();
}

static json_t *number_json(double x) { return isfinite(x) ? json_real(x) : json_null(); }
static json_t *bytes_json(uint64_t x) { return json_integer(x > INT64_MAX ? INT64_MAX : (json_int_t)x); }

static json_t *ceilings_json(const struct ha_ceilings *c)
{
    json_t *all = json_object();
    for (int i = 0; i < HA_CEILINGS; i++) {
        const struct ha_reading *r = &c->of[i];
        if (isnan(r->median)) continue;
        json_object_set_new(all, ha_ceiling_name((enum ha_ceiling)i),
                            json_pack("{s:o, s:o, s:o, s:I, s:s}", "median", number_json(r->median), "lo",
                                      number_json(r->lo), "hi", number_json(r->hi), "samples", (json_int_t)r->samples,
                                      "unit", ha_ceiling_unit((enum ha_ceiling)i)));
    }
    return all;
}

/* what a device does not offer is left out */
static json_t *eps_json(const struct ha_eps *eps, const struct ha_device_info *info)
{
    json_t *all = json_object();
    const struct ha_profile *p = info->profile;
    const struct {
        const char *name;
        double claimed;
        const struct ha_eps_seen *seen;
    } each[] = {
        { "merge, exp", info->merge.exp_eps, &eps->merge_exp },
        { "merge, log", info->merge.log_eps, &eps->merge_log },
        { "attend f32, exp", p[HA_F32].exp_eps, &eps->exp[HA_F32] },
        { "attend f32, log", p[HA_F32].log_eps, &eps->log[HA_F32] },
        { "attend f16, exp", p[HA_F16].exp_eps, &eps->exp[HA_F16] },
        { "attend f16, log", p[HA_F16].log_eps, &eps->log[HA_F16] },
        { "attend bf16, exp", p[HA_BF16].exp_eps, &eps->exp[HA_BF16] },
        { "attend bf16, log", p[HA_BF16].log_eps, &eps->log[HA_BF16] },
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (!isnan(each[i].seen->least))
            json_object_set_new(all, each[i].name,
                                json_pack("{s:o, s:o, s:o}", "claimed", number_json(each[i].claimed), "worst",
                                          number_json(each[i].seen->worst), "least", number_json(each[i].seen->least)));
    return all;
}

/* what was not readable is left out */
static json_t *meters_json(const struct ha_device_meters *m)
{
    const struct {
        const char *name;
        double value;
    } number[] = {
        { "sm_clock_MHz", m->sm_clock_MHz },
        { "sm_clock_max_MHz", m->sm_clock_max_MHz },
        { "memory_clock_MHz", m->memory_clock_MHz },
        { "memory_clock_max_MHz", m->memory_clock_max_MHz },
        { "temperature_C", m->temperature_C },
        { "power_W", m->power_W },
        { "link_gen", m->link_gen },
        { "link_gen_max", m->link_gen_max },
        { "link_width", m->link_width },
        { "link_width_max", m->link_width_max },
    };
    const struct {
        const char *name, *value;
    } text[] = { { "throttle", m->throttle }, { "bus_id", m->bus_id } };
    json_t *all = json_object();

    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (isfinite(number[i].value)) json_object_set_new(all, number[i].name, json_real(number[i].value));
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        if (*text[i].value) json_object_set_new(all, text[i].name, text_json(text[i].value));
    return all;
}

static json_t *device_json(const struct ha_env_device *d)
{
    json_t *j = json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o}", "asked", text_json(d->asked), "driver",
                          text_json(d->driver), "kind", text_json(d->kind), "name", text_json(d->info.name),
                          "memory_bytes", bytes_json(d->info.memory_bytes), "compute_threads",
                          (json_int_t)d->info.compute_threads, "built_with", text_json(d->built_with), "driver_version",
                          text_json(d->info.driver), "spans", text_json(d->info.spans));
    if (j && d->asked_eps) json_object_set_new(j, "eps", eps_json(&d->eps, &d->info));
    if (j && d->probed) {
        json_object_set_new(j, "ceilings", ceilings_json(&d->ceilings));
        json_object_set_new(j, "meters", meters_json(&d->ceilings.meters));
    }
    return j;
}

static json_t *plan_json(const struct ha_tuning *plan)
{
    json_t *j = json_pack("{s:o, s:o, s:[]}", "from", text_json(plan ? plan->from : ""), "build",
                          text_json(plan ? plan->build : ""), "choices");
    for (size_t i = 0; j && plan && i < plan->choices; i++) {
        char text[80];
        ha_choice_text(text, &plan->choice[i]);
        json_array_append_new(json_object_get(j, "choices"), text_json(text));
    }
    return j ? j : json_null();
}

static json_t *suites_json(const struct ha_env_run *run)
{
    json_t *all = json_array();
    for (size_t i = 0; i < run->suites; i++)
        json_array_append_new(
            all, json_pack("{s:o, s:s}", "path", text_json(run->suite[i].path), "digest", run->suite[i].digest));
    return all;
}

/* What is known of the hardware alone, and which one it is */
static void add_machine(json_t *all, const struct ha_env *env)
{
    json_object_set_new(all, "sockets", json_integer((json_int_t)env->sockets));
    json_object_set_new(all, "gpus", json_integer((json_int_t)env->gpus));
    json_object_set_new(all, "cpu_clock_max_MHz",
                        env->cpu_clock_max_MHz > 0 ? json_real(env->cpu_clock_max_MHz) : json_null());
    json_object_set_new(all, "identity",
                        json_pack("{s:o, s:o, s:o}", "board", text_json(env->board), "machine_id",
                                  text_json(env->machine_id), "host", text_json(env->host)));
}

struct ha_env_file *ha_env_file_create(const struct ha_env *env, const struct ha_env_run *run)
{
    struct ha_env_file *file = calloc(1, sizeof *file);
    if (!file) return NULL;
    char *own = run->command ? NULL : command_line();
    const char *command = run->command ? run->command : own ? own : "";
    file->all = json_pack(
        "{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:[], "
        "s:[{s:o, s:o, s:o, s:o}]}",
        "schema_version", SCHEMA, "mode", text_json(run->mode), "build", text_json(run->build), "options",
        text_json(run->options), "cpu", text_json(env->cpu), "isa", text_json(env->isa), "plan",
        text_json(env->plan ? env->plan->name : ""), "plan_of", plan_json(env->plan), "cores", (json_int_t)env->cores,
        "memory_bytes", bytes_json(env->memory_bytes), "numa_nodes", (json_int_t)env->numa_nodes, "numa_node",
        env->numa_node < 0 ? json_null() : json_integer(env->numa_node), "kernel", text_json(env->kernel), "libc",
        text_json(env->libc), "governor", text_json(env->governor), "huge_pages", text_json(env->huge_pages),
        "compiler", text_json(HA_COMPILER), "bios", text_json(env->bios), "microcode", text_json(env->microcode),
        "devices", "runs", "run_id", text_json(run->run_id), "date_utc", text_json(env->date), "command",
        text_json(command), "suites", suites_json(run));
    free(own);
    add_machine(file->all, env);
    if (file->all) return file;
    free(file);
    return NULL;
}

void ha_env_file_destroy(struct ha_env_file *file)
{
    if (!file) return;
    json_decref(file->all);
    free(file);
}

static const char *text_of(const json_t *j)
{
    const char *s = json_string_value(j);
    return s ? s : "";
}

/* What must be the same where a run goes on, and how people call it. */
static const struct {
    const char *name, *word;
} same[] = { { "mode", "mode" },
             { "build", "build" },
             { "options", "options" },
             { "cpu", "CPU" },
             { "plan", "plan of the CPU kernels" } };

enum ha_status ha_env_file_resume(struct ha_env_file *file, const char *path, struct ha_why *why)
{
    json_error_t error;
    FILE *in = ha_file_read(path, why);
    if (!in) return HA_ERROR;
    json_t *old = json_loadf(in, 0, &error);
    fclose(in);
    if (!old) return ha_why(why, HA_FAIL, "env.json is damaged: line %d: %s", error.line, error.text);
    enum ha_status status = HA_OK;
    if (json_integer_value(json_object_get(old, "schema_version")) != SCHEMA)
        status = ha_why(why, HA_FAIL, "another version of habench wrote it (env.json has another schema_version)");
    struct ha_why differs = { "" };
    for (size_t i = 0; i < sizeof same / sizeof *same && status == HA_OK; i++) {
        const char *is = text_of(json_object_get(file->all, same[i].name)),
                   *was = text_of(json_object_get(old, same[i].name));
        if (!strcmp(is, was)) continue;
        const struct ha_why before = differs;
        ha_why(&differs, HA_FAIL, "%s%s%s: there '%.100s', here '%.100s'", before.text, *before.text ? "; " : "",
               same[i].word, was, is);
    }
    if (status == HA_OK && *differs.text) status = ha_why(why, HA_FAIL, "%s", differs.text);
    json_t *runs = json_object_get(old, "runs"), *devices = json_object_get(old, "devices");
    if (status == HA_OK) {
        json_t *mine = json_array_get(json_object_get(file->all, "runs"), 0);
        if (!json_is_array(runs) || !json_is_array(devices) || json_array_append(runs, mine) != 0
            || json_object_set(file->all, "runs", runs) != 0 || json_object_set(file->all, "devices", devices) != 0)
            status = ha_why(why, HA_FAIL, "env.json is damaged: it has no runs or no devices");
    }
    json_decref(old);
    return status;
}

void ha_env_file_complete(struct ha_env_file *file) { json_object_set_new(file->all, "complete", json_true()); }

enum ha_env_record ha_env_file_record(const char *folder)
{
    char path[4096];
    struct ha_why why;
    if (ha_file_path(path, folder, "env.json", "", &why) != HA_OK || access(path, F_OK) != 0) return HA_RECORD_NONE;
    json_t *all = json_load_file(path, 0, NULL);
    const enum ha_env_record is = all && json_is_null(json_object_get(all, "mode")) ? HA_RECORD_PROBE
                                  : json_is_true(json_object_get(all, "complete"))  ? HA_RECORD_COMPLETE
                                                                                    : HA_RECORD_RUN;
    json_decref(all);
    return is;
}

enum ha_status ha_env_file_device(struct ha_env_file *file, const struct ha_env_device *device, struct ha_why *why)
{
    json_t *all = json_object_get(file->all, "devices"), *j = device_json(device);
    size_t i = 0;
    if (!j) return ha_why(why, HA_ERROR, "env.json: out of memory");
    while (i < json_array_size(all)
           && strcmp(text_of(json_object_get(json_array_get(all, i), "asked")), text_of(json_object_get(j, "asked"))))
        i++;
    if ((i < json_array_size(all) ? json_array_set_new(all, i, j) : json_array_append_new(all, j)) != 0)
        return ha_why(why, HA_ERROR, "env.json: out of memory");
    return HA_OK;
}

enum ha_status ha_env_file_write(const struct ha_env_file *file, const char *folder, struct ha_why *why)
{
    char *text = json_dumps(file->all, JSON_INDENT(2));
    if (!text) return ha_why(why, HA_ERROR, "%s/env.json: out of memory", folder);
    struct ha_whole_file out;
    enum ha_status status = ha_whole_file_open(&out, folder, "env.json", why);
    if (status == HA_OK) {
        fprintf(out.file, "%s\n", text);
        status = ha_whole_file_close(&out, why);
    }
    free(text);
    return status;
}

enum ha_status ha_env_write(const char *folder, const struct ha_env *env, const char *asked,
                            const struct ha_device_api *api, const struct ha_device_info *info,
                            const struct ha_ceilings *ceilings, struct ha_why *why)
{
    const struct ha_env_run run = { .run_id = "", .mode = "", .build = ha_version(), .options = "" };
    struct ha_env_file *file = ha_env_file_create(env, &run);
    if (!file) return ha_why(why, HA_ERROR, "%s/env.json: out of memory", folder);
    struct ha_env_device device;
    ha_env_device(&device, asked, api, info, NULL, ceilings);
    enum ha_status status = ha_env_file_device(file, &device, why);
    if (status == HA_OK) status = ha_env_file_write(file, folder, why);
    ha_env_file_destroy(file);
    return status;
}
