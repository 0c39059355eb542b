#include "suites/variants/fit.h"

#include "harness/base/arena.h"
#include "harness/base/file.h"
#include "harness/base/pool.h"
#include "harness/base/registry.h"
#include "harness/base/version.h"
#include "harness/base/why.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- what a fit is of -------------------------------------------------------------------------------------------- */

static void fill_params(struct ha_fit_of *out, const struct ha_case *c)
{
    const struct ha_variant *v = ha_variant_find(c->variant);
    char value[HA_VALUE_MAX];
    size_t n = 0;
    for (size_t i = 0; i < v->params_count && n < sizeof out->params; i++) {
        if (!v->params[i].fitted) continue;
        ha_param_print(&v->params[i], c->param[i], value);
        n += (size_t)snprintf(out->params + n, sizeof out->params - n, "%s%s=%s", n ? "," : "", v->params[i].name,
                              value);
    }
}

/* A dataset without provenance is a model of its own, with one text for each seed. */
static void fill_origin(struct ha_fit_of *out, const struct ha_case *c, const struct ha_workload *w)
{
    snprintf(out->dataset, sizeof out->dataset, "%s", w->dataset->name);
    snprintf(out->text, sizeof out->text, "%s seed %" PRIu64, c->dataset, c->seed);
    out->origin[0] = (struct ha_provenance){ .model = out->dataset, .text = out->text };
    size_t n = 0;
    if (w->dataset->provenance)
        while (n < HA_BATCH_MAX && w->dataset->provenance(w->source, n, &out->origin[n])) n++;
    out->about.origin = out->origin;
    out->about.origins = n ? n : 1;
    out->about.value[HA_FIT_MODEL] = out->origin[0].model;
}

void ha_fit_of_case(struct ha_fit_of *out, const struct ha_case *c, const struct ha_workload *w)
{
    *out = (struct ha_fit_of){ .about.value = { [HA_FIT_VARIANT] = c->variant,
                                                [HA_FIT_PARAMS] = out->params,
                                                [HA_FIT_DATASET] = c->dataset,
                                                [HA_FIT_SEED] = out->number[HA_FIT_SEED],
                                                [HA_FIT_HABENCH] = ha_version() } };
    fill_params(out, c);
    snprintf(out->number[HA_FIT_SEED], sizeof *out->number, "%" PRIu64, c->seed);
    if (!w) return;
    const struct ha_shape *s = &w->shape;
    const struct {
        enum ha_fit_key key;
        size_t value;
    } sizes[] = { { HA_FIT_LAYERS, s->layers },
                  { HA_FIT_Q_HEADS, s->q_heads },
                  { HA_FIT_KV_HEADS, s->kv_heads },
                  { HA_FIT_HEAD_DIM, s->head_dim },
                  { HA_FIT_MODEL_DIM, s->model_dim } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(out->number[sizes[i].key], sizeof *out->number, "%zu", sizes[i].value);
        out->about.value[sizes[i].key] = out->number[sizes[i].key];
    }
    fill_origin(out, c, w);
}

enum ha_status ha_fit_of_name(struct ha_fit **fit, const struct ha_case *c, const struct ha_workload *w,
                              struct ha_why *why)
{
    char path[4096];
    struct ha_fit_of of;
    *fit = NULL;
    if (!ha_case_has_fit(c)) return HA_OK;
    HA_TRY(ha_fit_path(path, c->fit, why));
    if (ha_fit_open(fit, path, why) != HA_OK) return HA_FAIL;
    ha_fit_of_case(&of, c, w);
    const enum ha_status status = ha_fit_check(*fit, &of.about, why);
    if (status == HA_OK) return HA_OK;
    ha_fit_close(*fit);
    *fit = NULL;
    return status;
}

/* ---- learning ---------------------------------------------------------------------------------------------------- */

struct inputs {
    const struct ha_workload *w;
    float **x;
};

/* of one layer of one sequence */
static void inputs_task(void *arg, size_t i, size_t worker)
{
    const struct inputs *in = arg;
    const struct ha_workload *w = in->w;
    const size_t seq = i % w->shape.batch, count = ha_workload_observed(w, seq), dim = w->shape.model_dim;
    for (size_t t = 0; t < count; t++)
        w->dataset->input(w->source, seq, i / w->shape.batch, w->shape.ctx[seq] - count + t, in->x[i] + t * dim);
}

/* What the variant is handed besides what it has in a case: memory is the arena's. */
static enum ha_status fill_input(struct ha_fit_input *in, const struct ha_workload *w, struct ha_why *why)
{
    const struct ha_shape *s = &w->shape;
    struct ha_prefill *layer = ha_alloc(in->arena, s->layers * sizeof *layer, HA_TAG_META, why);
    if (!layer) return HA_ERROR;
    for (size_t i = 0; i < s->layers; i++) layer[i] = ha_workload_prefill(w, i);
    in->layer = layer;
    if (!w->projection) return HA_OK;
    struct inputs inputs = { w, ha_alloc(in->arena, s->layers * s->batch * sizeof(float *), HA_TAG_META, why) };
    if (!inputs.x) return HA_ERROR;
    for (size_t i = 0; i < s->layers * s->batch; i++) {
        const size_t bytes = ha_workload_observed(w, i % s->batch) * s->model_dim * sizeof(float);
        if (!(inputs.x[i] = ha_alloc(in->arena, bytes, HA_TAG_META, why))) return HA_ERROR;
    }
    ha_pool_run(in->pool, "inputs", s->layers * s->batch, inputs_task, &inputs);
    in->x = (const float *const *)inputs.x;
    return HA_OK;
}

/* One pass, the session being open: nanoseconds of a layer. */
static enum ha_status time_layer(struct ha_session *s, double *ns, struct ha_why *why)
{
    struct ha_pass p;
    HA_TRY(ha_pass_begin(&p, s, s->variant, s->param, false, why));
    const enum ha_status status = ha_pass_run(&p, false, why);
    if (status == HA_OK)
        *ns = (double)(p.window.end_ns - p.window.begin_ns) / (double)(p.steps * s->workload->shape.layers);
    return ha_pass_end(&p, status, why);
}

static enum ha_status measure_pace(const struct ha_case *c, struct ha_shared *shared, double pace[2],
                                   struct ha_why *why)
{
    const struct ha_device_api *api;
    struct ha_device *device;
    const struct ha_ceilings *ceilings;
    struct ha_session session;
    HA_TRY(ha_machine_device(shared->machine, c->device, ha_case_isa(c), &api, &device, why));
    if (!ha_has_link(api->kind)) return ha_why(why, HA_WAIVED, "device %s has no link", c->device);
    HA_TRY(ha_session_open(&session, shared, c, NULL, why));
    const enum ha_status status = time_layer(&session, &pace[0], why);
    ha_session_close(&session);
    HA_TRY(status);
    HA_TRY(ha_machine_ceilings(shared->machine, &ceilings, why));
    pace[1] = ceilings->of[HA_CEIL_H2D].median;
    return isfinite(pace[1]) ? HA_OK : ha_why(why, HA_WAIVED, "the link of device %s cannot be measured", c->device);
}

enum ha_status ha_fit_pace(const struct ha_case *c, struct ha_machine *machine, double pace[2], struct ha_why *why)
{
    struct ha_shared shared;
    HA_TRY(ha_shared_open(&shared, machine, true, why));
    const enum ha_status status = measure_pace(c, &shared, pace, why);
    ha_shared_close(&shared);
    return status;
}

/* A line to out says what it is, or why there is none, which is no failure. *known: whether there is. */
static enum ha_status ask_pace(const struct ha_case *c, double pace[2], bool *known, FILE *out, struct ha_why *why)
{
    const struct ha_variant *v = ha_variant_find(c->variant);
    struct ha_machine *machine;
    *known = false;
    if (!v->pace_param) return HA_OK;
    HA_TRY(ha_machine_create(&machine, NULL, why));
    struct ha_case unhindered = *c;
    v->pace_param(unhindered.param);
    const enum ha_status status = ha_fit_pace(&unhindered, machine, pace, why);
    ha_machine_destroy(machine);
    *known = status == HA_OK;
    if (*known)
        fprintf(out, "pace, measured once, and another the next time: %.0f ns a layer, %.1f GB/s over the link\n",
                pace[0], pace[1]);
    else fprintf(out, "no pace is measured: %s\n", why->text);
    why->text[0] = 0;
    return HA_OK;
}

static enum ha_status learn(const struct ha_case *c, struct ha_workload *w, const double *pace,
                            struct ha_fit_writer *out, struct ha_why *why)
{
    const struct ha_variant *v = ha_variant_find(c->variant);
    struct ha_kernels kernels;
    struct ha_fit_input in = {
        .shape = &w->shape,
        .param = c->param,
        .seed = c->seed,
        .projection = w->projection,
        .pace = pace,
        .kernels = &kernels,
    };
    HA_TRY(ha_kernels_resolve(ha_case_isa(c), &kernels, why));
    HA_TRY(ha_pool_create(&in.pool, (enum ha_team)c->team, c->threads, why));
    enum ha_status status = ha_arena_create(&in.arena, false, why);
    if (status == HA_OK) status = ha_workload_fill(w, in.pool, why);
    if (status == HA_OK) status = fill_input(&in, w, why);
    if (status == HA_OK && (status = v->fit(&in, out, why)) != HA_OK) ha_why_prefix(why, status, "%s", v->name);
    ha_arena_destroy(in.arena);
    ha_pool_destroy(in.pool);
    return status;
}

/* Before minutes are spent on learning: no file is at `named`, and one can be made there. */
static enum ha_status ask_place(const char *named, char part[4096], char path[4096], struct ha_why *why)
{
    if (ha_file_place(part, path, named, why) != HA_OK) return ha_why_prefix(why, HA_FAIL, "-o");
    if (!strcmp(part, path)) return HA_OK; /* written directly */
    if (access(path, F_OK) == 0)
        return ha_why(why, HA_FAIL, "-o %.400s: it is there already; remove it, or give another name", named);
    const int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return ha_why(why, HA_ERROR, "-o %.400s: cannot write: %s", named, strerror(errno));
    close(fd);
    unlink(part); /* a hook that crashes leaves nothing */
    return HA_OK;
}

static enum ha_status ask_memory(const struct ha_workload *w, struct ha_why *why)
{
    const struct ha_shape *s = &w->shape;
    const double x = (double)(s->layers * s->batch * s->observed * s->model_dim * sizeof(float)),
                 need = (double)ha_memory_estimate(s).data_bytes + (w->projection ? x : 0);
    return ha_memory_fits("host", need, ha_memory_available(), "ctx or batch or layers or observed", why);
}

static enum ha_status learn_and_write(const struct ha_case *c, struct ha_workload *w, const double *pace,
                                      const char *id, const char *part, struct ha_fit_writer *out, struct ha_why *why)
{
    struct ha_fit_of of;
    HA_TRY(ask_memory(w, why));
    HA_TRY(learn(c, w, pace, out, why));
    ha_fit_of_case(&of, c, w);
    of.about.value[HA_FIT_CASE] = id;
    return ha_fit_write(out, part, &of.about, why);
}

enum ha_status ha_fit_learn(const struct ha_case *c, const char *id, const char *named, FILE *out, struct ha_why *why)
{
    char part[4096], path[4096];
    struct ha_workload *w = NULL;
    struct ha_fit_writer writer = { .tensor = NULL };
    double pace[2];
    bool known = false;
    if (ha_case_reads_fit(c, why) != HA_OK) return HA_FAIL;
    if (ha_case_has_fit(c)) return ha_why(why, HA_FAIL, "fit: a case to learn from has none: leave fit=%s out", c->fit);
    HA_TRY(ask_place(named, part, path, why));
    enum ha_status status = ask_pace(c, pace, &known, out, why);
    if (status == HA_OK) status = ha_workload_open(&w, c, why);
    if (status == HA_OK) status = learn_and_write(c, w, known ? pace : NULL, id, part, &writer, why);
    if (status == HA_OK && strcmp(part, path) != 0 && access(path, F_OK) == 0)
        status = ha_why(why, HA_FAIL, "-o %.400s: somebody else has made it meanwhile", named);
    if (status == HA_OK) status = ha_file_take_name(part, path, why);
    else ha_file_drop(part, path);
    size_t bytes = 0;
    for (size_t i = 0; i < writer.count; i++) bytes += writer.tensor[i].bytes;
    if (status == HA_OK)
        fprintf(out, "%s: %zu tensor%s, %zu bytes, for %s of %s\n", named, writer.count, writer.count > 1 ? "s" : "",
                bytes, c->variant, c->dataset);
    ha_fit_writer_free(&writer);
    ha_workload_close(w);
    return status;
}
