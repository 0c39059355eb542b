/* A libFuzzer target: any bytes as a fit, whose books a case takes. Of a file that has any, keys are coded and scored
 * by them; a case of another shape is refused. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/fit.h"
#include "harness/base/pool.h"
#include "harness/base/registry.h"
#include "suites/parts/coded_keys.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { KEYS = 33, STEPS = 2, HEADS_MOST = 4, DIM_MOST = 128 };

static struct ha_context ctx;
static struct ha_why why;

static void must(bool is)
{
    if (!is) abort();
}

static void open_once(void)
{
    const struct ha_device_config config = { .kernels = ha_kernels_all[0], .wait_limit_ns = UINT64_MAX };
    if (ctx.api) return;
    ctx = (struct ha_context){ .kernels = ha_kernels_all[0], .api = ha_devices_all[0], .record_selection = true };
    must(ctx.api->open(&ctx.device, &config, &why) == HA_OK);
    must(ctx.api->stream_create(ctx.device, "main", &ctx.stream, &why) == HA_OK);
    must(ha_pool_create(&ctx.pool, HA_TEAM_DEFAULT, 1, &why) == HA_OK);
}

/* The shape and books of a case that this tensor is of, or false. */
static bool of_tensor(const struct ha_tensor *t, struct ha_shape *shape, struct ha_codebook_rule *rule)
{
    if (!t || t->type != HA_T_F32 || t->dims != 5 || !t->bytes || t->dim[1] > HEADS_MOST || t->dim[3] > DIM_MOST
        || t->dim[4] > 1 << HA_PQ_BITS_MAX || t->dim[4] < 2)
        return false;
    const size_t groups = t->dim[2] == 1 ? 2 : t->dim[2];
    *rule = (struct ha_codebook_rule){ .dims = t->dim[3],
                                       .count = t->dim[4],
                                       .books = t->dim[2] == 1 ? HA_BOOKS_SHARED : HA_BOOKS_SEPARATE,
                                       .pack = t->bytes / 4 % 2 };
    *shape = (struct ha_shape){ .layers = t->dim[0],
                                .batch = 1,
                                .q_heads = t->dim[1],
                                .kv_heads = t->dim[1],
                                .head_dim = groups * t->dim[3],
                                .ctx = { KEYS },
                                .q_len = 1,
                                .steps = STEPS,
                                .scale = 1 };
    return shape->head_dim <= DIM_MOST;
}

static float *device_floats(size_t count)
{
    float *at = ha_device_alloc(ctx.device_arena, HA_MEM_DEVICE, count * sizeof *at, HA_TAG_SCRATCH, &why);
    must(at != NULL);
    return at;
}

/* Keys are the book's own numbers, as far as they go. */
static void code(const struct ha_tensor *t, const struct ha_codebook_rule *rule)
{
    const struct ha_shape *s = ctx.shape;
    static float k[HEADS_MOST * KEYS * DIM_MOST], got[KEYS * DIM_MOST];
    const void *in[] = { k };
    struct ha_coded coded;
    struct ha_coded_seq seq;
    const struct ha_coded_seq *of[] = { &seq };
    const size_t keys = KEYS, layer = s->layers - 1;
    for (size_t i = 0; i < s->kv_heads * KEYS * s->head_dim; i++)
        memcpy(&k[i], (const char *)t->data + i * 4 % t->bytes, sizeof *k);
    must(ha_coded_create(&coded, &ctx, HA_KEYS_CODES, rule, HA_F32, 1, &why) == HA_OK);
    must(ha_coded_open(&coded, 0, &seq, &why) == HA_OK);
    must(ha_coded_prefill(&coded, layer, 0, &(struct ha_prefill){ .k = in, .cap = KEYS }, &seq, &why) == HA_OK);
    for (size_t head = 0; head < s->kv_heads; head++)
        must(ha_coded_read(&coded, layer, &seq, head, KEYS, got, &why) == HA_OK);
    float *q = device_floats(s->q_heads * s->head_dim), *scores = device_floats(s->q_heads * KEYS);
    const struct ha_step step = { .layer = layer, .q_len = 1, .q = q };
    must(ctx.api->copy(ctx.stream, q, k, s->q_heads * s->head_dim * sizeof *q, HA_H2D) == HA_OK);
    must(ha_coded_ask(&coded, &step) == HA_OK);
    must(ha_coded_score(&coded, &step, of, &keys, 0, s->kv_heads, scores, KEYS) == HA_OK);
    must(ctx.api->stream_sync(ctx.stream) == HA_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ha_safetensors *file;
    struct ha_fit *fit = NULL;
    struct ha_shape shape;
    struct ha_codebook_rule rule;
    struct ha_codebooks books;
    if (ha_safetensors_parse(&file, "input", data, bytes, &why) != HA_OK) return 0;
    const struct ha_tensor *t = ha_safetensors_find(file, "centroids");
    if (ha_fit_parse(&fit, "input", data, bytes, &why) == HA_OK && of_tensor(t, &shape, &rule)) {
        open_once();
        ctx.shape = &shape;
        ctx.fit = fit;
        must(ha_arena_create(&ctx.arena, true, &why) == HA_OK);
        must(ha_device_arena_create(&ctx.device_arena, ctx.api, ctx.device, &why) == HA_OK);
        code(t, &rule);
        rule.count *= 2;
        must(ha_codebooks_create(&books, &ctx, &rule, &why) == HA_ERROR);
        ha_device_arena_destroy(ctx.device_arena);
        must(ha_arena_check(ctx.arena, &why) == HA_OK);
        ha_arena_destroy(ctx.arena);
    }
    ha_fit_close(fit);
    ha_safetensors_close(file);
    return 0;
}
