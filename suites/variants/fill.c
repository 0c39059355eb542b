#include "suites/variants/fill.h"

#include "harness/base/array.h"
#include "harness/base/pool.h"
#include "harness/base/registry.h"
#include "harness/measure/cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fill_shape(struct ha_row *row, const struct ha_shape *s)
{
    row->layers = (double)s->layers;
    row->batch = (double)s->batch;
    row->q_len = (double)s->q_len;
    row->steps = (double)s->steps;
    row->q_heads = (double)s->q_heads;
    row->kv_heads = (double)s->kv_heads;
    row->head_dim = (double)s->head_dim;
    ha_ctx_print(s, row->ctx_len, sizeof row->ctx_len);
    snprintf(row->kv_dtype, sizeof row->kv_dtype, "%s", ha_dtype_name(s->dtype));
}

void ha_fill_case(struct ha_row *row, const struct ha_case *c)
{
    const struct ha_model *model = ha_case_model(c);
    const struct ha_variant *v = ha_variant_find(c->variant);
    size_t n = 0;
    snprintf(row->variant, sizeof row->variant, "%s", c->variant);
    snprintf(row->device, sizeof row->device, "%s", c->device);
    snprintf(row->dataset, sizeof row->dataset, "%s", c->dataset);
    if (ha_case_has_fit(c)) snprintf(row->fit, sizeof row->fit, "%s", c->fit);
    snprintf(row->acc_dtype, sizeof row->acc_dtype, "f32");
    row->seed = c->seed;
    snprintf(row->load, sizeof row->load, "%s", c->load == HA_LOAD_LAYER ? "layer" : "attention");
    snprintf(row->model, sizeof row->model, "%s", model ? model->name : "");
    row->threads = (double)c->threads;
    snprintf(row->team, sizeof row->team, "%s", ha_team_name((enum ha_team)c->team));
    row->graph = (double)c->graph;
    fill_shape(row, &c->shape);
    snprintf(row->family, sizeof row->family, "%s", v->family);
    snprintf(row->contract, sizeof row->contract, "%s", ha_contract_word(v));
    for (size_t i = 0; i < v->params_count && n < sizeof row->params; i++) {
        if (!(c->param[i] < v->params[i].value || c->param[i] > v->params[i].value)) continue;
        char value[HA_VALUE_MAX];
        ha_param_print(&v->params[i], c->param[i], value);
        n += (size_t)snprintf(row->params + n, sizeof row->params - n, "%s%s=%s", n ? "," : "", v->params[i].name,
                              value);
    }
}

const char *ha_contract_word(const struct ha_variant *v)
{
    static const char *const word[] = {
        [HA_EXACT] = "exact", [HA_BOUNDED] = "bounded", [HA_STATISTICAL] = "statistical"
    };
    return v->checked ? word[v->contract] : "unchecked";
}

void ha_fill_session(struct ha_row *row, const struct ha_session *s)
{
    fill_shape(row, &s->workload->shape);
    snprintf(row->device_kind, sizeof row->device_kind, "%s", s->api->kind);
    if (!ha_session_checked(s)) snprintf(row->contract, sizeof row->contract, "unchecked");
    snprintf(row->device_name, sizeof row->device_name, "%s", s->info.name);
    snprintf(row->isa, sizeof row->isa, "%s", s->kernels.name);
    row->threads = (double)ha_pool_threads(s->pool);
    if (s->fit) snprintf(row->fit_text, sizeof row->fit_text, "%s", s->fit_own ? "own" : "other");
    const struct ha_eps *eps = ha_machine_eps(s->shared->machine);
    row->exp_eps = eps->exp[s->workload->shape.dtype].worst;
    row->log_eps = eps->log[s->workload->shape.dtype].worst;
}

static double mean(double sum, size_t count) { return count ? sum / (double)count : (double)NAN; }

void ha_fill_accuracy(struct ha_row *row, const struct ha_accuracy *a)
{
    double nan = (double)NAN;
    if (!a->queries) return;
    row->err_over_bound = a->err_over_bound;
    row->rel_l2 = ha_accuracy_rel_l2(a);
    row->rel_l2_wo = ha_accuracy_rel_l2_wo(a);
    row->rel_l2_head_max = a->rel_count ? a->rel_l2_head_max : nan;
    row->heads_off = ha_accuracy_heads_off(a);
    row->mass_min = a->mass_count ? a->mass_min : nan;
    row->mass_mean = mean(a->mass_sum, a->mass_count);
    row->cert_slack = a->slack_count ? a->cert_slack : nan;
    row->recall = mean(a->recall_sum, a->recall_count);
    row->score_error = ha_accuracy_score_error(a);
    row->keys_mean = mean(a->keys_sum, a->queries);
    row->bias = ha_chances_bias(&a->chances);
    row->rms = ha_chances_rms(&a->chances);
}

static void fill_counters(struct ha_row *row, const struct ha_counters *c, double steps)
{
    row->counters = *c;
    row->counters.select_ns /= steps;
    row->counters.manage_ns /= steps;
}

/* The columns that are counters, over the layers that count them. */
static const struct counter_column {
    const char *counter;
    enum { LEAST, MOST, MEAN, FIRST } of;
    size_t at;
} counter_columns[] = {
    { "kept_least", LEAST, offsetof(struct ha_row, kept_least) },
    { "kept_most", MOST, offsetof(struct ha_row, kept_most) },
    { "cosine", MEAN, offsetof(struct ha_row, cosine) },
    { "cosine", LEAST, offsetof(struct ha_row, cosine_least) },
    { "changed", MEAN, offsetof(struct ha_row, changed) },
    { "cpu_of_budget", MEAN, offsetof(struct ha_row, cpu_of_budget) },
    { "recall_interval", MEAN, offsetof(struct ha_row, recall_interval) },
    { "streaming_heads", MEAN, offsetof(struct ha_row, streaming) },
    { "groups_scheduled", MEAN, offsetof(struct ha_row, scheduled) },
    { "budget_mean", MEAN, offsetof(struct ha_row, budget_read) },
    { "block_mean", MEAN, offsetof(struct ha_row, block_mean) },
    { "line_r2", MEAN, offsetof(struct ha_row, line_r2) },
    { "similarity", MEAN, offsetof(struct ha_row, similar) },
    { "overlap_low", MEAN, offsetof(struct ha_row, overlap_low) },
    { "overlap_high", MEAN, offsetof(struct ha_row, overlap_high) },
    { "kept_share", MEAN, offsetof(struct ha_row, kept_share) },
    { "kept_share", FIRST, offsetof(struct ha_row, kept_first) },
};

static double over_layers(const struct ha_counted *c, const struct counter_column *column)
{
    double least = (double)NAN, most = (double)NAN, first = (double)NAN, sum = 0;
    size_t layers = 0;
    for (size_t i = 0; i < c->count; i++) {
        if (strcmp(c->of[i].name, column->counter) != 0 || isnan(c->of[i].value)) continue;
        least = fmin(least, c->of[i].value);
        most = fmax(most, c->of[i].value);
        if (c->of[i].layer == 0) first = c->of[i].value;
        sum += c->of[i].value;
        layers++;
    }
    const double figure[] = { [LEAST] = least, [MOST] = most, [MEAN] = mean(sum, layers), [FIRST] = first };
    return figure[column->of];
}

void ha_fill_counted(struct ha_row *row, const struct ha_counted *c)
{
    for (size_t i = 0; i < sizeof counter_columns / sizeof *counter_columns; i++) {
        const struct counter_column *of = &counter_columns[i];
        *(double *)(void *)((char *)row + of->at) = over_layers(c, of);
    }
}

void ha_fill_check(struct ha_row *row, const struct ha_check *c)
{
    if (ha_session_checked(c->session)) {
        ha_fill_accuracy(row, &c->total);
        if (c->followed.tokens) row->followed = c->followed;
        row->score_rise = ha_accuracy_score_error(&c->half[1]) / ha_accuracy_score_error(&c->half[0]);
        struct ha_suspect suspect = { .groups = 0 };
        ha_suspect_add(&suspect, &c->total.chances, "%s", "");
        ha_suspect_tell(&suspect, &row->head, &row->bias, &row->rms);
    }
    if (c->question) row->question = c->question;
    row->sensitivity = c->sensitivity.o;
    row->sensitivity_lse = c->sensitivity.lse;
    row->sensitivity_times = c->sensitivity.times;
    snprintf(row->repeat, sizeof row->repeat, "%s", ha_repeat_word(c->repeat));
    row->kv_gpu_bytes = c->kv_device_bytes;
    row->kv_cpu_bytes = c->kv_host_bytes;
    row->meta_gpu_bytes = c->meta_device_bytes;
    row->meta_cpu_bytes = c->meta_host_bytes;
    if (c->steps_done) fill_counters(row, &c->counters, (double)c->steps_done);
}

double ha_floor_ns(const struct ha_ceilings *c, bool in_host, double device_bytes, double host_bytes, double h2d_bytes,
                   double d2h_bytes)
{
    /* bytes over 10^9 bytes/s are nanoseconds; a copy inside the device reads and writes; what was not measured is NaN,
     * and fmax then gives the other. Of the device's memory the median: the best sample met a part in the cache. */
    double read = c->of[HA_CEIL_READ_ALL].hi,
           inside = fmax(c->of[HA_CEIL_DEVICE_READ].median, 2 * c->of[HA_CEIL_D2D].median);
    double up = fmax(c->of[HA_CEIL_H2D].hi, c->of[HA_CEIL_KERNEL_H2D].hi),
           down = fmax(c->of[HA_CEIL_D2H].hi, c->of[HA_CEIL_KERNEL_D2H].hi);
    double floor_ns = in_host ? (device_bytes + host_bytes) / read : fmax(device_bytes / inside, host_bytes / read);

    return fmax(floor_ns, fmax(h2d_bytes / up, d2h_bytes / down));
}

double ha_floor_fetched(double bytes, double cache_bytes) { return bytes > cache_bytes ? bytes : 0; }

static double floor_of(const struct ha_row *row, const struct ha_session *s, const struct ha_check *check,
                       const struct ha_ceilings *ceilings, double zero_copy)
{
    const bool in_host = s->info.compute_threads > 0; /* then device memory is host memory, too */
    const double weights = (double)(s->load.layer_bytes * s->workload->shape.layers), cache = ha_cache_own_bytes();
    double device = check->device_key_bytes + weights, host = check->host_key_bytes;
    /* an arm that reads no keys of its own has no floor */
    if (ha_floor_fetched(in_host ? device + host : host, cache) <= 0) {
        host = 0;
        if (in_host) device = 0;
    }
    if (!in_host) device = ha_floor_fetched(device, ceilings->device_cache_bytes);
    if (device + host <= 0) return (double)NAN;
    return ha_floor_ns(ceilings, in_host, device, host, row->h2d_bytes + (isnan(zero_copy) ? 0 : zero_copy),
                       row->d2h_bytes);
}

/* What selecting takes, of the step and of what the CPU's threads compute in it, and what upkeep does. The second only
 * where they select in the step: there is upkeep in the background then, and else it is the background that selects. */
static void fill_selection(struct ha_row *row)
{
    const double select_ns = row->counters.select_ns, computes = (1 - row->ratios.cpu_idle) * row->step_ns;
    row->select_share = select_ns / row->step_ns;
    row->manage_share = row->counters.manage_ns / row->step_ns;
    row->choice_share = computes > 0 && !isnan(row->counters.manage_ns) ? select_ns / computes : (double)NAN;
}

void ha_fill_bench(struct ha_row *row, const struct ha_bench *b, const struct ha_ceilings *ceilings,
                   double slowest_arm_ns)
{
    const struct ha_session *s = b->session;
    double steps = (double)b->moved_steps, zero_copy = mean(b->usage.zero_copy_bytes, b->traced_steps);
    bool whole = !isnan(b->perturb) && b->dropped == 0;
    row->step_ns = b->step_ns;
    row->step_lo_ns = b->lo_ns;
    row->step_hi_ns = b->hi_ns;
    row->layer_ns = b->step_ns / row->layers;
    row->tokens_per_s = row->batch * row->q_len / b->step_ns * 1e9;
    row->head.samples = (double)b->samples;
    row->warmup_samples = (double)b->warmup_samples;
    row->warm = b->warm;
    row->full_step_ns = b->full_ns;
    row->vs_full = b->step_ns / b->full_ns;
    row->context_switches = b->context_switches;
    row->page_faults = b->page_faults;
    row->footprint = b->footprint;
    row->perturb = b->perturb;
    row->spans_dropped = (double)b->dropped;
    row->outputs_kept = (double)s->slots;
    snprintf(row->source, sizeof row->source, "%s", *b->source ? b->source : s->api->kind);
    row->h2d_bytes = (double)b->moved.h2d_bytes / steps;
    row->d2h_bytes = (double)b->moved.d2h_bytes / steps;
    row->zero_copy_bytes = zero_copy;
    row->h2d_eff_GBps = row->h2d_bytes / b->step_ns;
    row->d2h_eff_GBps = row->d2h_bytes / b->step_ns;
    if (whole) {
        row->ratios = b->ratios;
        row->link_share = b->ratios.h2d_link_GBps / ceilings->of[HA_CEIL_H2D].hi;
    }
    row->overlap_eff = isnan(slowest_arm_ns) ? slowest_arm_ns : fmin(1, slowest_arm_ns / b->step_ns);
    row->floor_ns = floor_of(row, s, b->check, ceilings, zero_copy);
    row->floor_ratio = row->floor_ns / b->step_ns;
    fill_counters(row, &b->counters, (double)s->workload->shape.steps);
    fill_selection(row);
    row->condition = b->condition;
    snprintf(row->disturbed, sizeof row->disturbed, "%s", b->disturbed);
    row->load_share = b->shares.load;
    row->steal_share = b->shares.steal;
    row->slow_share = b->shares.slow;
}

/* ---- known step times -------------------------------------------------------------------------------------------- */

enum { KEY = 1536 };

struct ha_known_step {
    char variant[48], family[32], workload[KEY];
    double step_ns;
};

static void key_of(const struct ha_row *r, char out[KEY])
{
    snprintf(out, KEY, "%s|%s|%g|%g|%g|%g|%g|%g|%g|%s|%s|%llu|%s|%s|%s|%s", r->device, r->isa, r->layers, r->batch,
             r->q_len, r->q_heads, r->kv_heads, r->head_dim, r->threads, r->kv_dtype, r->dataset,
             (unsigned long long)r->seed, r->ctx_len, r->load, r->model, r->team);
}

void ha_known_add(struct ha_known *k, const struct ha_row *row, const char *variant, const char *family, double step_ns)
{
    if (!ha_array_room(&k->step, &k->capacity, k->count + 1, sizeof *k->step)) return; /* then it is measured again */
    struct ha_known_step *s = &k->step[k->count++];
    snprintf(s->variant, sizeof s->variant, "%s", variant);
    snprintf(s->family, sizeof s->family, "%s", family);
    key_of(row, s->workload);
    s->step_ns = step_ns;
}

double ha_known_step(const struct ha_known *k, const struct ha_row *row, const char *variant, const char *family)
{
    char key[KEY];
    key_of(row, key);
    for (size_t i = k->count; i-- > 0;)
        if (!strcmp(k->step[i].variant, variant) && (!family || !strcmp(k->step[i].family, family))
            && !strcmp(k->step[i].workload, key))
            return k->step[i].step_ns;
    return (double)NAN;
}

double ha_known_slowest_arm(const struct ha_known *k, const struct ha_row *row, const struct ha_usage *u)
{
    const struct {
        const char *variant;
        bool part;
    } arms[] = { { "copy_only", u->copy_ns > 0 }, { "device_only", u->kernel_ns > 0 }, { "cpu_only", u->pool_ns > 0 } };
    double slowest = (double)NAN;

    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++)
        if (arms[i].part)
            slowest = fmax(slowest, ha_known_step(k, row, arms[i].variant, row->family)); /* fmax drops the NaN */
    return slowest;
}

void ha_known_free(struct ha_known *k) { free(k->step); }
