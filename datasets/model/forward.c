#include "datasets/model/forward.h"

#include "datasets/model/tokenizer.h"
#include "harness/base/file.h"
#include "harness/base/pool.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { ROWS = 128 }; /* tokens of a task */

/* The tokens of a task. */
struct rows {
    size_t first, count;
};
static struct rows rows_of(const struct ha_forward *f, size_t task)
{
    const size_t first = task * ROWS, left = f->tokens - first;
    return (struct rows){ first, left < ROWS ? left : ROWS };
}
static size_t tasks(const struct ha_forward *f) { return (f->tokens + ROWS - 1) / ROWS; }

static void before(void *arg, size_t task, size_t worker)
{
    const struct ha_forward *f = arg;
    const struct ha_transformer_sizes *s = &f->model->sizes;
    const struct rows r = rows_of(f, task);
    const size_t q = r.first * s->q_heads * s->head_dim, kv = r.first * s->kv_heads * s->head_dim;
    ha_transformer_before(f->model, f->layer, f->x + r.first * s->model_dim, f->position + r.first, r.count, f->q + q,
                          f->k + kv, f->v + kv, f->scratch + worker * f->scratch_size);
}

static void attend(void *arg, size_t task, size_t worker)
{
    const struct ha_forward *f = arg;
    const struct rows r = rows_of(f, tasks(f) - 1 - task); /* those that see most first */
    const size_t q = r.first * f->model->sizes.q_heads * f->model->sizes.head_dim;
    ha_transformer_attend(f->model, f->q + q, f->k, f->v, r.first, r.count, f->o + q,
                          f->scratch + worker * f->scratch_size);
}

static void behind(void *arg, size_t task, size_t worker)
{
    const struct ha_forward *f = arg;
    const struct ha_transformer_sizes *s = &f->model->sizes;
    const struct rows r = rows_of(f, task);
    ha_transformer_behind(f->model, f->layer, f->o + r.first * s->q_heads * s->head_dim, r.count,
                          f->x + r.first * s->model_dim, f->scratch + worker * f->scratch_size);
}

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

static enum ha_status make_room(struct ha_forward *f, struct ha_why *why)
{
    const struct ha_transformer_sizes *s = &f->model->sizes;
    const size_t n = f->tokens, of_q = s->q_heads * s->head_dim, of_kv = s->kv_heads * s->head_dim;
    HA_TRY(ha_pool_create(&f->pool, HA_TEAM_DEFAULT, 0, why));
    f->scratch_size = ROWS * most(most(n, s->model_dim + s->vocabulary), s->model_dim + 2 * s->feed_forward);
    f->position = calloc(n, sizeof *f->position);
    f->x = malloc(n * s->model_dim * sizeof *f->x);
    f->q = malloc(n * of_q * sizeof *f->q);
    f->k = malloc(n * of_kv * sizeof *f->k);
    f->v = malloc(n * of_kv * sizeof *f->v);
    f->o = malloc(n * of_q * sizeof *f->o);
    f->loss = calloc(n, sizeof *f->loss);
    f->scratch = malloc(ha_pool_threads(f->pool) * f->scratch_size * sizeof *f->scratch);
    if (!f->position || !f->x || !f->q || !f->k || !f->v || !f->o || !f->loss || !f->scratch)
        return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < n; i++) f->position[i] = i;
    return HA_OK;
}

void ha_forward_free(struct ha_forward *f)
{
    void *const all[] = { f->position, f->x, f->q, f->k, f->v, f->o, f->loss, f->scratch };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    if (f->pool) ha_pool_destroy(f->pool);
    *f = (struct ha_forward){ 0 };
}

enum ha_status ha_forward_run(struct ha_forward *f, struct ha_why *why)
{
    HA_TRY(make_room(f, why));
    ha_transformer_embed(f->model, f->token, f->tokens, f->x);
    for (f->layer = 0; f->layer < f->model->sizes.layers && !ha_stop; f->layer++) {
        if (f->progress) fprintf(f->progress, "\rlayer %zu of %zu", f->layer + 1, f->model->sizes.layers);
        ha_pool_run(f->pool, "before attention", tasks(f), before, f);
        if (f->made) HA_TRY(f->made(f->arg, f, why));
        ha_pool_run(f->pool, "attention", tasks(f), attend, f);
        ha_pool_run(f->pool, "behind attention", tasks(f), behind, f);
    }
    if (f->progress) fputs("\n", f->progress);
    return ha_stop ? ha_why(why, HA_ERROR, "interrupted") : HA_OK;
}

/* ---- loss -------------------------------------------------------------------------------------------------------- */

double ha_forward_log_sum(const float *logits, size_t count)
{
    float largest = logits[0];
    double sum = 0;
    for (size_t t = 1; t < count; t++) largest = fmaxf(largest, logits[t]);
    for (size_t t = 0; t < count; t++) sum += exp((double)logits[t] - (double)largest);
    return log(sum) + (double)largest;
}

/* -log p of each token that follows one of these */
static void lose(void *arg, size_t task, size_t worker)
{
    const struct ha_forward *f = arg;
    const struct ha_transformer_sizes *s = &f->model->sizes;
    const struct rows r = rows_of(f, task);
    float *const scratch = f->scratch + worker * f->scratch_size, *const logits = scratch + ROWS * s->model_dim;
    ha_transformer_logits(f->model, f->x + r.first * s->model_dim, r.count, logits, scratch);
    for (size_t i = 0; i < r.count && r.first + i + 1 < f->tokens; i++) {
        const float *const row = logits + i * s->vocabulary;
        f->loss[r.first + i] = (float)(ha_forward_log_sum(row, s->vocabulary) - (double)row[f->token[r.first + i + 1]]);
    }
}

void ha_forward_lose(struct ha_forward *f) { ha_pool_run(f->pool, "loss", tasks(f), lose, f); }

double ha_forward_loss(const struct ha_forward *f, size_t first)
{
    double sum = 0;
    for (size_t t = first; t + 1 < f->tokens; t++) sum += (double)f->loss[t];
    return sum / (double)(f->tokens - 1 - first);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static enum ha_status encode(uint32_t *token, size_t count, const struct ha_transformer *model,
                             const struct ha_gguf *file, const char *path, struct ha_why *why)
{
    struct ha_tokenizer *tokenizer;
    void *text;
    size_t bytes, found = 0;
    HA_TRY(ha_tokenizer_open(&tokenizer, file, why));
    enum ha_status status = ha_file_map(path, &text, &bytes, why);
    if (status == HA_OK) {
        status = ha_tokenizer_encode(tokenizer, text, bytes, token, count, &found, why);
        munmap(text, bytes);
    }
    if (status == HA_OK && found < count)
        status = ha_why(why, HA_ERROR, "has %zu tokens, of %zu that are asked for", found, count);
    for (size_t i = 0; status == HA_OK && i < found; i++)
        if (token[i] >= model->sizes.vocabulary)
            status = ha_why(why, HA_ERROR, "token %u is beyond the model's table of %zu", token[i],
                            model->sizes.vocabulary);
    ha_tokenizer_close(tokenizer);
    return status;
}

enum ha_status ha_forward_tokens(uint32_t **token, size_t count, const struct ha_transformer *model,
                                 const struct ha_gguf *file, const char *path, struct ha_why *why)
{
    *token = calloc(count, sizeof **token);
    if (!*token) return ha_why(why, HA_ERROR, "out of memory");
    const enum ha_status status = encode(*token, count, model, file, path, why);
    if (status == HA_OK) return HA_OK;
    free(*token);
    *token = NULL;
    return ha_why_prefix(why, status, "%s", path);
}
