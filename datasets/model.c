/* A model that decodes a text, with whatever attention the case has. The context is read with full attention, whose
 * keys and values are rounded as the case keeps them; so is what it is held against, full attention to the end. */

#include "datasets/model/forward.h"
#include "harness/api/dataset.h"
#include "harness/base/numeric.h"
#include "harness/base/program.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "SmolLM2-135M-Instruct.Q4_1"

/* A sequence: a piece of the text. */
struct sequence {
    uint32_t *token;           /* [tokens + 1]: of the last one the next is asked for, too */
    size_t ctx, tokens, first; /* first: of those that queries and x are kept of */
    float *k, *v;              /* [layers][tokens][kv_heads][head_dim] */
    float *q, *x;              /* [layers][tokens - first][q_heads][head_dim], [model_dim] */
    float *full;               /* [tokens - ctx][model_dim]: of full attention the last layer's output */
    float *now;                /* [q_len][model_dim]: the input of the layer at hand */
    size_t *position;          /* [q_len] */
};

struct ha_source {
    struct ha_shape shape;
    struct ha_gguf *file;
    struct ha_transformer model;
    char text[HA_PATH_BYTES];
    struct ha_projection *projection; /* [layers] */
    float *wq;                        /* [layers][q_heads * head_dim][model_dim], times the norm before it */
    struct sequence *sequence;        /* [batch]; NULL until the text has been read */
    float *scratch, *logits[2];       /* [q_len][vocabulary] */
    struct ha_followed sum;           /* while it is followed: sums; loss_change_se: of squares */
};

static size_t of_q(const struct ha_source *s) { return s->shape.q_heads * s->shape.head_dim; }
static size_t of_kv(const struct ha_source *s) { return s->shape.kv_heads * s->shape.head_dim; }
static float *q_at(const struct ha_source *s, size_t seq, size_t layer, size_t token)
{
    const struct sequence *n = &s->sequence[seq];
    return n->q + (layer * (n->tokens - n->first) + token - n->first) * of_q(s);
}
static float *x_at(const struct ha_source *s, size_t seq, size_t layer, size_t token)
{
    const struct sequence *n = &s->sequence[seq];
    return n->x + (layer * (n->tokens - n->first) + token - n->first) * s->shape.model_dim;
}
static float *kv_at(const struct ha_source *s, float *of, size_t seq, size_t layer, size_t token)
{
    return of + (layer * s->sequence[seq].tokens + token) * of_kv(s);
}

static void round_all(const struct ha_source *s, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = ha_round(x[i], s->shape.dtype);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static enum ha_status model_find(const char *file, struct ha_why *why)
{
    char path[HA_PATH_BYTES];
    if (!file || !*file) return ha_why(why, HA_ERROR, "dataset model needs a text: dataset=model/NAME or model/PATH");
    return ha_program_find(path, "text", "datasets/texts", file, ".txt", why);
}

static enum ha_status open_model(struct ha_source *s, struct ha_why *why)
{
    char path[HA_PATH_BYTES];
    const char *own = getenv("HABENCH_MODEL");
    if (own && *own) snprintf(path, sizeof path, "%.4000s", own);
    else if (ha_program_find(path, "model", "build/model", MODEL, ".gguf", why) != HA_OK)
        return ha_why(why, HA_WAIVED,
                      "no model is here: scripts/setup.sh --model fetches one, or HABENCH_MODEL=FILE.gguf names it");
    HA_TRY(ha_gguf_open(&s->file, path, why));
    const enum ha_status status = ha_transformer_open(&s->model, s->file, why);
    return status == HA_OK ? HA_OK : ha_why_prefix(why, status, "%s", path);
}

/* Takes a size from the model. The case must leave it out, or name the same. */
static enum ha_status take_size(size_t *of, size_t is, const char *key, struct ha_why *why)
{
    if (*of && *of != is)
        return ha_why(why, HA_ERROR, "dataset model: %s=%zu, but the model has %zu: leave it out", key, *of, is);
    *of = is;
    return HA_OK;
}

static enum ha_status take_shape(struct ha_shape *shape, const struct ha_transformer_sizes *m, size_t total,
                                 struct ha_why *why)
{
    HA_TRY(take_size(&shape->layers, m->layers, "layers", why));
    HA_TRY(take_size(&shape->q_heads, m->q_heads, "heads", why));
    HA_TRY(take_size(&shape->kv_heads, m->kv_heads, "KV heads", why));
    HA_TRY(take_size(&shape->head_dim, m->head_dim, "head_dim", why));
    if (total + 1 > m->context)
        return ha_why(why, HA_ERROR, "dataset model: %zu tokens and the one behind them; the model takes %zu", total,
                      m->context);
    shape->model_dim = m->model_dim;
    shape->scale = (float)(1 / sqrt((double)m->head_dim));
    shape->follows = true;
    return HA_OK;
}

/* Frees the room that make_room took. */
static void drop_room(struct ha_source *s)
{
    for (size_t b = 0; s->sequence && b < s->shape.batch; b++) {
        struct sequence *n = &s->sequence[b];
        void *const all[] = { n->token, n->k, n->v, n->q, n->x, n->full, n->now, n->position };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    }
    free(s->sequence);
    free(s->scratch);
    for (size_t i = 0; i < 2; i++) free(s->logits[i]);
    s->sequence = NULL;
    s->scratch = s->logits[0] = s->logits[1] = NULL;
}

static void model_close(struct ha_source *s)
{
    drop_room(s);
    free(s->projection);
    free(s->wq);
    ha_transformer_close(&s->model);
    ha_gguf_close(s->file);
    free(s);
}

/* The norm's weight is in W_Q, and x comes over its root mean square. */
static enum ha_status make_projection(struct ha_source *s, struct ha_why *why)
{
    const size_t each = of_q(s) * s->shape.model_dim;
    s->projection = calloc(s->shape.layers, sizeof *s->projection);
    s->wq = malloc(s->shape.layers * each * sizeof *s->wq);
    if (!s->projection || !s->wq) return ha_why(why, HA_ERROR, "dataset model: out of memory");
    for (size_t l = 0; l < s->shape.layers; l++) {
        const struct ha_transformer_layer *of = &s->model.layer[l];
        for (size_t i = 0; i < each; i++) s->wq[l * each + i] = of->wq[i] * of->attn_norm[i % s->shape.model_dim];
        s->projection[l] = (struct ha_projection){ .wq = s->wq + l * each,
                                                   .bias = of->q_bias,
                                                   .norm = of->q_norm,
                                                   .norm_eps = (float)s->model.sizes.norm_eps,
                                                   .inv_freq = s->model.inv_freq,
                                                   .rotary = s->model.sizes.rotary,
                                                   .adjacent = s->model.sizes.adjacent,
                                                   .rope_scale = 1,
                                                   .wo = of->wo };
    }
    return HA_OK;
}

static enum ha_status make_sequence(struct ha_source *s, size_t b, struct ha_why *why)
{
    struct sequence *n = &s->sequence[b];
    const struct ha_shape *shape = &s->shape;
    n->ctx = shape->ctx[b];
    n->tokens = n->ctx + shape->steps * shape->q_len;
    n->first = n->ctx - (shape->observed < n->ctx ? shape->observed : n->ctx);
    const size_t kept = shape->layers * (n->tokens - n->first), all = shape->layers * n->tokens;
    n->token = calloc(n->tokens + 1, sizeof *n->token);
    n->k = calloc(all * of_kv(s), sizeof *n->k);
    n->v = calloc(all * of_kv(s), sizeof *n->v);
    n->q = calloc(kept * of_q(s), sizeof *n->q);
    n->x = calloc(kept * shape->model_dim, sizeof *n->x);
    n->full = calloc((n->tokens - n->ctx) * shape->model_dim, sizeof *n->full);
    n->now = calloc(shape->q_len * shape->model_dim, sizeof *n->now);
    n->position = calloc(shape->q_len, sizeof *n->position);
    if (!n->token || !n->k || !n->v || !n->q || !n->x || !n->full || !n->now || !n->position)
        return ha_why(why, HA_ERROR, "dataset model: out of memory");
    return HA_OK;
}

static enum ha_status model_open(const struct ha_dataset *self, struct ha_source **src, struct ha_shape *shape,
                                 size_t total, uint64_t seed, const char *file, struct ha_why *why)
{
    struct ha_source *s = *src = NULL;
    HA_TRY(model_find(file, why));
    s = calloc(1, sizeof *s);
    if (!s) return ha_why(why, HA_ERROR, "dataset model: out of memory");
    enum ha_status status = ha_program_find(s->text, "text", "datasets/texts", file, ".txt", why);
    if (status == HA_OK) status = open_model(s, why);
    if (status == HA_OK) status = take_shape(shape, &s->model.sizes, total, why);
    if (status == HA_OK) {
        s->shape = *shape;
        status = make_projection(s, why);
    }
    if (status == HA_OK) *src = s;
    else model_close(s);
    return status;
}

/* ---- the context, and full attention ----------------------------------------------------------------------------- */

struct recorder {
    struct ha_source *s;
    size_t seq;
};

/* Full attention sees keys, values and queries as the case has them. Layer 0 is the same whatever attention makes. */
static enum ha_status record(void *arg, struct ha_forward *f, struct ha_why *why)
{
    const struct recorder *r = arg;
    const struct ha_source *s = r->s;
    const struct sequence *n = &s->sequence[r->seq];
    const size_t end = f->layer ? n->ctx : n->tokens;
    round_all(s, f->q, n->tokens * of_q(s));
    round_all(s, f->k, n->tokens * of_kv(s));
    round_all(s, f->v, n->tokens * of_kv(s));
    memcpy(kv_at(s, n->k, r->seq, f->layer, 0), f->k, end * of_kv(s) * sizeof *f->k);
    memcpy(kv_at(s, n->v, r->seq, f->layer, 0), f->v, end * of_kv(s) * sizeof *f->v);
    if (end == n->first) return HA_OK;
    memcpy(q_at(s, r->seq, f->layer, n->first), f->q + n->first * of_q(s), (end - n->first) * of_q(s) * sizeof *f->q);
    memcpy(x_at(s, r->seq, f->layer, n->first), f->x + n->first * s->shape.model_dim,
           (end - n->first) * s->shape.model_dim * sizeof *f->x);
    return HA_OK;
}

static enum ha_status read_sequence(struct ha_source *s, size_t b, struct ha_why *why)
{
    struct sequence *n = &s->sequence[b];
    struct recorder r = { s, b };
    struct ha_forward f = { .model = &s->model, .token = n->token, .tokens = n->tokens, .made = record, .arg = &r };
    const enum ha_status status = ha_forward_run(&f, why);
    if (status == HA_OK)
        memcpy(n->full, f.x + n->ctx * s->shape.model_dim, (n->tokens - n->ctx) * s->shape.model_dim * sizeof *f.x);
    ha_forward_free(&f);
    return status;
}

static enum ha_status make_room(struct ha_source *s, struct ha_why *why)
{
    const struct ha_transformer_sizes *m = &s->model.sizes;
    const size_t rows = s->shape.q_len;
    s->sequence = calloc(s->shape.batch, sizeof *s->sequence);
    s->scratch = malloc(rows * (m->model_dim + 2 * m->feed_forward) * sizeof *s->scratch);
    for (size_t i = 0; i < 2; i++) s->logits[i] = malloc(rows * m->vocabulary * sizeof *s->logits[i]);
    if (!s->sequence || !s->scratch || !s->logits[0] || !s->logits[1])
        return ha_why(why, HA_ERROR, "dataset model: out of memory");
    for (size_t b = 0; b < s->shape.batch; b++) HA_TRY(make_sequence(s, b, why));
    return HA_OK;
}

/* Sequences read the text one behind the other. */
static enum ha_status read_text(struct ha_source *s, struct ha_why *why)
{
    uint32_t *token;
    size_t all = 0, at = 0;
    HA_TRY(make_room(s, why));
    for (size_t b = 0; b < s->shape.batch; b++) all += s->sequence[b].tokens + 1;
    HA_TRY(ha_forward_tokens(&token, all, &s->model, s->file, s->text, why));
    for (size_t b = 0; b < s->shape.batch; at += s->sequence[b++].tokens + 1)
        memcpy(s->sequence[b].token, token + at, (s->sequence[b].tokens + 1) * sizeof *token);
    free(token);
    for (size_t b = 0; b < s->shape.batch; b++) HA_TRY(read_sequence(s, b, why));
    return HA_OK;
}

static enum ha_status model_prepare(struct ha_source *s, struct ha_why *why)
{
    const enum ha_status status = s->sequence ? HA_OK : read_text(s, why);
    if (status != HA_OK) drop_room(s);
    return status;
}

/* ---- what is asked of it ----------------------------------------------------------------------------------------- */

static void model_kv(struct ha_source *s, size_t seq, size_t layer, size_t head, size_t first, size_t count, void *k,
                     void *v)
{
    const struct sequence *n = &s->sequence[seq];
    const size_t d = s->shape.head_dim, bytes = d * ha_dtype_bytes(s->shape.dtype);
    for (size_t t = 0; t < count; t++) {
        if (k) ha_store_row((char *)k + t * bytes, d, s->shape.dtype, kv_at(s, n->k, seq, layer, first + t) + head * d);
        if (v) ha_store_row((char *)v + t * bytes, d, s->shape.dtype, kv_at(s, n->v, seq, layer, first + t) + head * d);
    }
}

static void model_query(struct ha_source *s, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    memcpy(q, q_at(s, seq, layer, token) + head * s->shape.head_dim, s->shape.head_dim * sizeof *q);
}

static void model_input(struct ha_source *s, size_t seq, size_t layer, size_t token, float *x)
{
    memcpy(x, x_at(s, seq, layer, token), s->shape.model_dim * sizeof *x);
    ha_over_root_mean_square(x, s->shape.model_dim, s->model.sizes.norm_eps);
}

static struct ha_projection model_projection(struct ha_source *s, size_t layer) { return s->projection[layer]; }

static bool model_provenance(struct ha_source *s, size_t i, struct ha_provenance *out)
{
    if (i) return false;
    *out = (struct ha_provenance){ .model = s->model.sizes.name, .text = s->text };
    return true;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

static size_t likeliest(const float *logits, size_t count)
{
    size_t best = 0;
    for (size_t t = 1; t < count; t++)
        if (logits[t] > logits[best]) best = t;
    return best;
}

/* One token: its logits, and those of full attention. */
static void count_token(struct ha_source *s, const float *logits, const float *full, uint32_t next)
{
    const size_t words = s->model.sizes.vocabulary;
    const double sum = ha_forward_log_sum(logits, words), full_sum = ha_forward_log_sum(full, words);
    const double loss = sum - (double)logits[next], full_loss = full_sum - (double)full[next];
    double divergence = 0;
    for (size_t t = 0; t < words; t++) {
        const double log_p = (double)full[t] - full_sum;
        divergence += exp(log_p) * (log_p - ((double)logits[t] - sum));
    }
    s->sum.tokens++;
    s->sum.loss += loss;
    s->sum.full_loss += full_loss;
    s->sum.loss_change += loss - full_loss;
    s->sum.loss_change_se += (loss - full_loss) * (loss - full_loss);
    s->sum.kl += divergence;
    s->sum.top1 += likeliest(logits, words) == likeliest(full, words);
}

static void count_step(struct ha_source *s, size_t seq, size_t first)
{
    const struct sequence *n = &s->sequence[seq];
    const size_t rows = s->shape.q_len, words = s->model.sizes.vocabulary;
    ha_transformer_logits(&s->model, n->now, rows, s->logits[0], s->scratch);
    ha_transformer_logits(&s->model, n->full + (first - n->ctx) * s->shape.model_dim, rows, s->logits[1], s->scratch);
    for (size_t r = 0; r < rows; r++)
        count_token(s, s->logits[0] + r * words, s->logits[1] + r * words, n->token[first + r + 1]);
}

static void model_follow(struct ha_source *s, size_t seq, size_t layer, size_t step, const float *o)
{
    const struct sequence *n = &s->sequence[seq];
    const size_t rows = s->shape.q_len, first = n->ctx + step * rows, next = layer + 1;
    if (step == 0 && layer == 0 && seq == 0) s->sum = (struct ha_followed){ 0 };
    if (layer == 0) memcpy(n->now, x_at(s, seq, 0, first), rows * s->shape.model_dim * sizeof *n->now);
    ha_transformer_behind(&s->model, layer, o, rows, n->now, s->scratch);
    if (next == s->shape.layers) {
        count_step(s, seq, first);
        return;
    }
    for (size_t r = 0; r < rows; r++) n->position[r] = first + r;
    float *const q = q_at(s, seq, next, first), *const k = kv_at(s, n->k, seq, next, first),
                 *const v = kv_at(s, n->v, seq, next, first);
    memcpy(x_at(s, seq, next, first), n->now, rows * s->shape.model_dim * sizeof *n->now);
    ha_transformer_before(&s->model, next, n->now, n->position, rows, q, k, v, s->scratch);
    round_all(s, q, rows * of_q(s));
}

static void model_followed(struct ha_source *s, struct ha_followed *out)
{
    const double n = (double)s->sum.tokens;
    *out = s->sum;
    out->loss /= n;
    out->full_loss /= n;
    out->loss_change /= n;
    out->loss_change_se = sqrt(fmax(0, s->sum.loss_change_se / n - out->loss_change * out->loss_change) / (n - 1));
    out->kl /= n;
    out->top1 /= n;
}

const struct ha_dataset ha_dataset_model = {
    .name = "model",
    .doc = "a real model that decodes a text with the case's attention (HABENCH_MODEL, or build/model); it fixes "
           "layers, heads and head_dim",
    .needs_file = "a text: a path, or a name of datasets/texts",
    .find = model_find,
    .open = model_open,
    .close = model_close,
    .kv = model_kv,
    .query = model_query,
    .input = model_input,
    .projection = model_projection,
    .provenance = model_provenance,
    .prepare = model_prepare,
    .follow = model_follow,
    .followed = model_followed,
};
