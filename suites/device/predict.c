/* What predicts budgets: features of query heads, and a net, within the bound of sums of binary32 in any order, which
 * the net's layers hand on; a NaN or an infinity where binary64 has one, and nowhere else; and nothing is written
 * beside the results. */

#include "suites/device/stage.h"

#include "harness/base/why.h"

#include <math.h>
#include <string.h>

enum { F = sizeof(float) };

static float *floats(char *at) { return (float *)(void *)at; }

/* ---- features ---------------------------------------------------------------------------------------------------- */

/* Where the arrays of a sequence lie in their blocks: what the step has made, what is known. */
struct places {
    size_t q, o[2], lse[2], known, anchor, mean_k, x;
};

static struct ha_device_features_seq seq_at(const struct places *p, char *made, char *step, char *kept)
{
    return (struct ha_device_features_seq){ .q = floats(step + p->q),
                                            .known = floats(kept + p->known),
                                            .anchor = floats(kept + p->anchor),
                                            .mean_k = floats(kept + p->mean_k),
                                            .o = { floats(step + p->o[0]), floats(step + p->o[1]) },
                                            .lse = { floats(step + p->lse[0]), floats(step + p->lse[1]) },
                                            .x = floats(made + p->x) };
}

/* Numbers of a sequence, in the images. Of features that change with the query nothing is known, and where a state has
 * no keys its o is nothing. */
static void draw_heads(struct ha_op_stage *s, const struct ha_op_case *c, const struct places *p, char *step,
                       char *kept, bool empty)
{
    const size_t heads = c->kv_heads * c->group, row = c->head_dim;
    float *known = floats(kept + p->known);
    ha_op_numbers(s, step + p->q, heads * row, HA_F32);
    ha_op_numbers(s, kept + p->anchor, heads * row, HA_F32);
    ha_op_numbers(s, kept + p->mean_k, c->kv_heads * row, HA_F32);
    ha_op_numbers(s, kept + p->known, heads * HA_FEATURES, HA_F32);
    for (size_t i = 0; i < heads * HA_FEATURES; i++) known[i] = ha_feature_online(i % HA_FEATURES) ? NAN : known[i];
    const size_t host_keys = 128 * ha_op_draw(s, 1000);
    for (size_t h = 0; h < heads; h++) {
        known[h * HA_FEATURES + HA_FEATURE_HOST_KEYS] = (float)host_keys;
        known[h * HA_FEATURES + HA_FEATURE_ANCHOR_SCORE_VARIANCE] *=
            known[h * HA_FEATURES + HA_FEATURE_ANCHOR_SCORE_VARIANCE];
    }
    /* of no length are some queries, some anchors, some both; of a NaN and nothing a cosine is not said */
    for (size_t h = 0; h < heads && c->special != HA_OP_NAN_QUERY; h++) {
        const size_t none = ha_op_draw(s, 8);
        if (none == 1 || none == 2) memset(step + p->q + h * row * F, 0, row * F);
        if (none == 2 || none == 3) memset(kept + p->anchor + h * row * F, 0, row * F);
    }
    const size_t large = ha_op_draw(s, heads); /* whose norm is the largest, wherever it stands */
    const float offsets[] = { 5, 5, 200, -200 }, offset = offsets[ha_op_draw(s, sizeof offsets / sizeof *offsets)];
    for (size_t i = 0; i < 2; i++) {
        float *lse = floats(step + p->lse[i]), *o = floats(step + p->o[i]);
        ha_op_numbers(s, lse, heads, HA_F32);
        ha_op_numbers(s, o, heads * row, HA_F32);
        for (size_t d = 0; d < row; d++) o[large * row + d] *= 2;
        for (size_t h = 0; h < heads; h++) {
            lse[h] = 4 * lse[h] + offset;
            if (!empty || (h % 3 != i && h % 3 != 2)) continue;
            lse[h] = -INFINITY;
            for (size_t d = 0; d < row; d++) o[h * row + d] = NAN;
        }
    }
}

static enum ha_status features_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct places *const place = s->scratch;
    struct ha_device_features_seq *const there = (void *)(place + HA_OP_BATCH), *const here = there + HA_OP_BATCH,
                                         *const seqs = here + HA_OP_BATCH;
    HA_OP_FITS(3 * HA_OP_BATCH * sizeof *there + HA_OP_BATCH * sizeof *place);
    const size_t heads = c->kv_heads * c->group, row = c->head_dim * F;
    size_t step = 0, kept = 0, out = 0;
    const size_t mean = ha_op_room(&kept, HA_FEATURES * F, c->q_at / F * F),
                 inv = ha_op_room(&kept, HA_FEATURES * F, 0);
    for (size_t b = 0; b < c->batch; b++) {
        struct places *p = &place[b];
        p->q = ha_op_room(&step, heads * row, c->src_at / F * F);
        for (size_t i = 0; i < 2; i++) {
            p->o[i] = ha_op_room(&step, heads * row, c->src_at / F * F);
            p->lse[i] = ha_op_room(&step, heads * F, c->src_at / F * F);
        }
        p->known = ha_op_room(&kept, heads * HA_FEATURES * F, c->q_at / F * F);
        p->anchor = ha_op_room(&kept, heads * row, c->q_at / F * F);
        p->mean_k = ha_op_room(&kept, c->kv_heads * row, c->q_at / F * F);
        p->x = ha_op_room(&out, heads * HA_FEATURES * F, c->dst_at / F * F);
    }
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, (enum ha_op_place)c->dst, out), *blocks[2];
    blocks[0] = made ? ha_op_block(s, (enum ha_op_place)c->src, step) : NULL;
    blocks[1] = blocks[0] ? ha_op_block(s, ha_op_any_place(s), kept) : NULL;
    if (!blocks[1]) return HA_ERROR;
    memset(blocks[0]->image, 0xFF, step);
    memset(blocks[1]->image, 0xFF, kept);
    float *means = floats(blocks[1]->image + mean), *invs = floats(blocks[1]->image + inv);
    ha_op_numbers(s, means, HA_FEATURES, HA_F32);
    ha_op_numbers(s, invs, HA_FEATURES, HA_F32);
    for (size_t i = 0; i < HA_FEATURES; i++) invs[i] = 0.25f * fabsf(invs[i]); /* few are clamped */
    /* some are constant, those that are infinite without keys, too */
    const size_t keys_most = (size_t)1 << ha_op_draw(s, 20), constant = ha_op_draw(s, HA_FEATURES);
    for (size_t i = 0; i < HA_FEATURES; i++) invs[i] = i == constant || ha_op_draw(s, 8) == 0 ? 0 : invs[i];
    if (c->empty) invs[ha_op_draw(s, 2) ? HA_FEATURE_LSE_SINK : HA_FEATURE_LSE_LOCAL] = 0;
    invs[HA_FEATURE_DEVICE_KEYS] /= (float)keys_most;
    for (size_t b = 0; b < c->batch; b++) {
        draw_heads(s, c, &place[b], blocks[0]->image, blocks[1]->image, c->empty && b + 1 == c->batch);
        there[b] = seq_at(&place[b], made->at, blocks[0]->at, blocks[1]->at);
        here[b] = seq_at(&place[b], made->image, blocks[0]->image, blocks[1]->image);
        there[b].device_keys = here[b].device_keys = 1 + ha_op_draw(s, 20 * keys_most);
    }
    const size_t odd = ha_op_draw(s, c->batch), at = ha_op_draw(s, heads * c->head_dim);
    if (c->special == HA_OP_NAN_QUERY) floats(blocks[0]->image + place[odd].q)[at] = ha_op_odd(s, c);
    if (c->special == HA_OP_NAN_KEY)
        floats(blocks[1]->image + place[odd].mean_k)[at % (c->kv_heads * c->head_dim)] = ha_op_odd(s, c);
    if (c->special == HA_OP_NAN_VALUE) floats(blocks[0]->image + place[odd].o[at % 2])[at] = ha_op_odd(s, c);
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    memcpy(seqs, there, c->batch * sizeof *seqs);
    struct ha_device_features args = { .batch = c->batch,
                                       .q_heads = heads,
                                       .kv_heads = c->kv_heads,
                                       .head_dim = c->head_dim,
                                       .scale = (float)c->scale / sqrtf((float)c->head_dim),
                                       .mean = floats(blocks[1]->at + mean),
                                       .inv = floats(blocks[1]->at + inv),
                                       .seqs = seqs },
                              kept_args = args;
    kept_args.mean = means;
    kept_args.inv = invs;
    kept_args.seqs = here;
    HA_TRY(ha_op_arrive(s, blocks, 2, made));
    const enum ha_status asked = s->api->features(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "features", asked, made, &before));
    for (size_t b = 0; b < c->batch; b++) {
        size_t head = 0, feature = 0;
        s->cases++;
        const double ratio = ha_ref_judge_features(&kept_args, b, &head, &feature);
        if (!(ratio <= 1))
            return ha_op_wrong(s, "features of %zu heads of %zu: sequence %zu, head %zu: %s is %g, error/bound %.3g",
                               heads, c->head_dim, b, head, ha_feature_name(feature),
                               (double)here[b].x[head * HA_FEATURES + feature], ratio);
        ha_op_put_back(made, before, here[b].x, heads * HA_FEATURES * F);
    }
    return ha_op_beside(s, "features", before, made);
}

static enum ha_status judge_features(struct ha_op_stage *s)
{
    for (size_t empty = 0; empty < 2; empty++)
        HA_TRY(
            features_once(s, &(struct ha_op_case){
                                 .batch = 4, .kv_heads = 8, .group = 8, .head_dim = 128, .empty = empty, .scale = 1 }));
    return HA_OK;
}

static const char *unfit_features(const struct ha_op_case *c)
{
    if (c->special == HA_OP_LOW_KEY || c->special == HA_OP_HIGH_KEY) return "a mean of keys is finite";
    return ha_op_unfit_kernel(c);
}
const struct ha_op ha_op_features = {
    .name = "features",
    .doc = "features of query heads",
    .needs = { HA_OP_ENTRY(features) },
    .judge = judge_features,
    .keys = "dst src dst_at src_at q_at batch kv_heads group head_dim empty scale special",
    .pairs = "dst = device mapped\nsrc = device mapped\ndst_at = 0 4 24\nsrc_at = 0 4 40\nq_at = 0 4 40\n"
             "batch = 1 3 33\nkv_heads = 1..4 7 8\ngroup = 1..8 16\nhead_dim = 8 33 64 80 96 112 128 192 256\nempty = "
             "no yes\n"
             "scale = 1 0.25 3\nspecial = none nan_query nan_key nan_value\n",
    .once = features_once,
    .unfit = unfit_features,
};

/* ---- net --------------------------------------------------------------------------------------------------------- */

static enum ha_status net_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct ha_net args = { .rows = c->m, .layers = c->layers };
    for (size_t i = 0; i <= c->layers; i++) args.width[i] = i == 0 ? c->k : i == c->layers ? c->n : c->hidden;
    size_t in = 0, weights = 0, out = 0;
    const size_t count = ha_net_weights(&args), w = ha_op_room(&weights, count * F, c->q_at / F * F),
                 x = ha_op_room(&in, c->m * c->k * F, c->src_at / F * F),
                 y = ha_op_room(&out, c->m * c->n * F, c->dst_at / F * F);
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, (enum ha_op_place)c->dst, out), *blocks[2];
    blocks[0] = made ? ha_op_block(s, (enum ha_op_place)c->src, in) : NULL;
    blocks[1] = blocks[0] ? ha_op_block(s, ha_op_any_place(s), weights) : NULL;
    if (!blocks[1]) return HA_ERROR;
    memset(blocks[0]->image, 0xFF, in);
    memset(blocks[1]->image, 0xFF, weights);
    ha_op_numbers(s, blocks[0]->image + x, c->m * c->k, HA_F32);
    ha_op_numbers(s, blocks[1]->image + w, count, HA_F32);
    const size_t odd = ha_op_draw(s, c->m * c->k);
    if (c->special) floats(blocks[0]->image + x)[odd] = ha_op_odd(s, c);
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    struct ha_net kept = args;
    args.w = floats(blocks[1]->at + w);
    args.x = floats(blocks[0]->at + x);
    args.y = floats(made->at + y);
    kept.w = floats(blocks[1]->image + w);
    kept.x = floats(blocks[0]->image + x);
    kept.y = floats(made->image + y);
    HA_TRY(ha_op_arrive(s, blocks, 2, made));
    const enum ha_status asked = s->api->net(s->stream[0], &args);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "net", asked, made, &before));
    for (size_t r = 0; r < c->m; r++) {
        s->cases++;
        const double ratio = ha_ref_judge_net(&kept, r);
        if (!(ratio <= 1))
            return ha_op_wrong(s, "net of %zu layers, %zu to %zu numbers: row %zu of %zu: error/bound %.3g", c->layers,
                               c->k, c->n, r, c->m, ratio);
    }
    ha_op_put_back(made, before, kept.y, c->m * c->n * F);
    return ha_op_beside(s, "net", before, made);
}

static enum ha_status judge_net(struct ha_op_stage *s)
{
    for (size_t rows = 8; rows <= 32; rows *= 4)
        HA_TRY(net_once(s, &(struct ha_op_case){ .m = rows, .k = HA_FEATURES, .hidden = 312, .n = 3, .layers = 3 }));
    return HA_OK;
}

static const char *unfit_net(const struct ha_op_case *c)
{
    if (c->special == HA_OP_NAN_QUERY || c->special == HA_OP_NAN_VALUE) return "a net is of rows x";
    if (c->n > HA_NET_WIDTH_MAX || c->k > HA_NET_WIDTH_MAX) return "no layer of a net has more than 1024 numbers";
    return ha_op_unfit_kernel(c);
}
const struct ha_op ha_op_net = {
    .name = "net",
    .doc = "rows through a feed-forward net",
    .needs = { HA_OP_ENTRY(net) },
    .judge = judge_net,
    .keys = "dst src dst_at src_at q_at m k n layers hidden special",
    .pairs = "dst = device mapped\nsrc = device mapped\ndst_at = 0 4 24\nsrc_at = 0 4 40\nq_at = 0 4 40\n"
             "m = 1 2 5 9\nk = 1 8 41 130\nn = 1 3 32 65\nlayers = 1 2 3 4\nhidden = 1 31 100 312 1024\n"
             "special = none nan_key low_key high_key\n",
#define WIDTHS "1..70 96 97 127..129 192 255..257 511..513 1023 1024\n"
    .values = "k = " WIDTHS "n = " WIDTHS,
    .once = net_once,
    .unfit = unfit_net,
};
