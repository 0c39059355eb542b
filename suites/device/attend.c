/* Attention: within the bound that follows from what the device claims of itself, NaN where a NaN or an infinity
 * belongs and nowhere else, and nothing is written beside the results. What it reads arrives on its stream when it is
 * enqueued already, and what follows it there must see what it wrote. */

#include "suites/device/stage.h"

#include "harness/base/numeric.h"
#include "harness/base/seq_attend.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOW_MOST = 8300, LOW_MANY = 1000 };
static const float WIDE = 32768, FAR_BELOW = -20000, BELOW = -300, FAR_QUERY = 64; /* BELOW: of products of 16 bits */

/* One array of inputs and one of outputs, laid out by offsets that hold for the device and the image alike. */
struct problem {
    const struct ha_op_case *of;
    enum ha_dtype dtype;
    float scale;
    bool products; /* queries are exact in the type; heads and runs begin at multiples of 16 bytes */
    struct ha_op_block *in, *out;
    struct ha_device_seq *there, *here; /* [batch]: in the device's memory, in the images */
    struct ha_device_attend args;
    size_t in_bytes, out_bytes, keys[HA_OP_BATCH];
    /* Where the number is that is none, or is infinite. The image holds what the reference sees in its place. */
    size_t special, seq, head, key, token, member, dim;
    char *number;
    char *low[LOW_MOST]; /* of those keys of infinite scores below 0 that are the first of all */
    size_t lows;
    bool faint;                   /* the special value is that of a key of weight 0 */
    bool wide, far_below, shared; /* scores before the scale beyond half precision; all of them at FAR_BELOW; K and V
                                   * that a sequence has in common with the one before it */
    bool latent;                  /* V is K */
    bool shortest_first;          /* the sequences lie in another order */
    size_t k_step, v_step;        /* of every second run such a row follows the one before it: its stride is other */
};

/* K or V of a sequence: its rows, those of all runs one behind the other, token by token or head by head. */
struct side {
    size_t row, stride, head_bytes, bytes, at;
    bool by_head;
};
static struct side side_of(const struct problem *p, size_t rows, bool by_head, size_t pad)
{
    const struct ha_op_case *c = p->of;
    const size_t e = ha_dtype_bytes(p->dtype), row = c->head_dim * e,
                 stride = (by_head ? 1 : c->kv_heads) * row + pad / e * e, head = by_head ? rows * stride : row;
    return (struct side){ row, stride, head, by_head ? c->kv_heads * head : rows * stride, 0, by_head };
}

static size_t k_step_of(const struct problem *p, size_t run) { return run % 2 && !p->of->block ? p->k_step : 1; }
static size_t v_step_of(const struct problem *p, size_t run) { return run % 2 && !p->of->block ? p->v_step : 1; }

static void fill_row(struct ha_op_stage *s, const struct problem *p, const struct side *x, size_t row)
{
    char *const at = p->in->image + x->at + row * x->stride;
    const size_t heads = p->of->kv_heads, dim = p->of->head_dim;
    for (size_t h = 0; h < (x->by_head ? heads : 1); h++)
        ha_op_numbers(s, at + h * x->head_bytes, x->by_head ? dim : heads * dim, p->dtype);
}

/* Bell-shaped numbers of key i become what the case has of scores, those of V too. */
static void shape_row(const struct problem *p, const struct side *x, size_t row, size_t i, size_t keys, bool is_k)
{
    const struct ha_op_case *c = p->of;
    char *const at = p->in->image + x->at + row * x->stride;
    const float root = sqrtf((float)c->head_dim), rise = (40 * (float)i / (float)keys - 20) / root,
                small = p->dtype == HA_F16 ? 1e-6f : 1e-38f, least = p->dtype == HA_F16 ? 1e-3f : 1e-30f;
    for (size_t h = 0; h < c->kv_heads && c->scores; h++)
        for (size_t d = 0; d < c->head_dim; d++) {
            char *const to = at + h * (x->by_head ? x->head_bytes : x->row);
            float z = ha_load(to, d, p->dtype);
            switch (c->scores) {
            case HA_OP_EQUAL: z = is_k ? 1.1f : 0.1f; break;
            case HA_OP_RISING: z = is_k ? rise + 0.1f * z : z; break;
            case HA_OP_FALLING: z = is_k ? 0.1f * z - rise : z; break;
            case HA_OP_DOMINANT: z = !is_k ? z : i == keys / 2 ? 40 / root : 0.1f * z; break;
            case HA_OP_OFFSET: z = is_k ? 10 / root + 0.001f * z : z; break;
            case HA_OP_CANCELLING: z = is_k ? (d % 2 ? -3 : 3) + 0.01f * z : z; break;
            case HA_OP_FINE: z = !is_k ? z : d % 2 ? ha_load(to, d - 1, p->dtype) : z < 0 ? 1 : 0.5f; break;
            case HA_OP_LIGHT: z = is_k ? z : small * z; break;
            case HA_OP_STRETCHED: z = is_k ? least * z : z; break;
            default: break;
            }
            ha_store(to, d, p->dtype, z);
        }
}

/* Queries and o lie token by token, or head by head: of how many rows each of these is, and where row r begins. In a
 * matrix that holds more than the queries, the gap is behind these and not behind each row. */
static bool by_head(const struct ha_op_case *c)
{
    return c->q_layout == HA_OP_Q_HEADS || c->q_layout == HA_OP_Q_FUSED_HEADS;
}
static size_t rows_within(const struct ha_op_case *c) { return by_head(c) ? c->q_len : c->kv_heads * c->group; }
static size_t query_at(const struct ha_op_case *c, size_t r)
{
    const size_t gaps = c->q_layout >= HA_OP_Q_FUSED ? r / rows_within(c) : r;
    return r * c->head_dim + gaps * c->q_gap;
}

/* of a token's head */
static size_t place_of(const struct ha_op_case *c, size_t token, size_t head)
{
    return query_at(c, by_head(c) ? head * c->q_len + token : token * c->kv_heads * c->group + head);
}

/* Queries of a sequence are numbers of the type of K, or none is, or some are, or all lie halfway between two of
 * bfloat16: a kernel may take another way for each. */
static void shape_queries(struct ha_op_stage *s, const struct problem *p, float *q, size_t n)
{
    const struct ha_op_case *c = p->of;
    const size_t way = p->products ? 1 : ha_op_draw(s, 4);
    for (size_t i = 0; i < n; i++) {
        switch (c->scores) {
        case HA_OP_PEAKED: q[i] *= 12; break;
        case HA_OP_EQUAL: q[i] = 0.7f; break;
        case HA_OP_RISING:
        case HA_OP_FALLING:
        case HA_OP_DOMINANT: q[i] = 1 + 0.1f * q[i]; break;
        case HA_OP_OFFSET: q[i] = 100 + q[i]; break;
        case HA_OP_HUGE: q[i] *= 1e4f; break;
        case HA_OP_CANCELLING: q[i] = 50 + 0.01f * q[i]; break;
        case HA_OP_FINE: q[i] = (i % c->head_dim % 2 ? -1024 : 1024) + 0.2f * q[i]; break;
        case HA_OP_STRETCHED: q[i] *= p->dtype == HA_F16 ? 1e3f : 1e30f; break;
        default: break;
        }
        if (way == 1 || (way == 2 && i / c->head_dim % 3 != 1)) q[i] = ha_round(q[i], p->dtype);
        if (way == 3) q[i] = ha_f32_of_bits((ha_f32_bits(q[i]) & 0xffff0000u) | 0x8000u);
    }
}

static float *query_of(const struct problem *p, const struct ha_device_seq *m, size_t token, size_t member)
{
    const struct ha_op_case *c = p->of;
    return (float *)(uintptr_t)m->q /* of an image */ + place_of(c, token, p->head * c->group + member) + p->dim;
}

/* units that have lists of their own, or 0 */
static size_t lists_of(const struct ha_op_case *c)
{
    const size_t lists[] = {
        [HA_OP_NO_LISTS] = 0, [HA_OP_KV_LISTS] = c->kv_heads, [HA_OP_Q_LISTS] = c->kv_heads * c->group
    };
    return lists[c->lists];
}

/* of so many keys those of one list; the first of the sequence in the middle has all */
static size_t listed(const struct ha_op_case *c, size_t b, size_t list, size_t keys)
{
    const size_t of[] = { keys, 0, keys / 2, keys > 0 };
    return c->list_keys ? of[(4 * c->batch + b - c->batch / 2 + list) % 4] : keys;
}

/* Which number is special; a sequence without keys has none. row: of the key, in its side. */
static void choose(struct ha_op_stage *s, struct problem *p, size_t b)
{
    const struct ha_op_case *c = p->of;
    const size_t keys = p->keys[b], last = keys < c->q_len ? keys : c->q_len;
    if (!p->special || b != p->seq) return;
    const size_t least = keys - (c->causal && keys ? c->q_len - 1 : 0); /* of what a token sees */
    p->head = ha_op_draw(s, c->kv_heads);
    p->member = ha_op_draw(s, c->group);
    p->token = ha_op_draw(s, c->q_len);
    p->dim = ha_op_draw(s, c->head_dim);
    p->key = keys && ha_op_draw(s, 2) && p->special != HA_OP_INF_QUERY ? keys - 1 - ha_op_draw(s, last)
                                                                       : 0; /* one of the last, or the first */
    if (!keys || (p->special == HA_OP_LOW_KEY && least < 2)) p->special = HA_OP_NO_SPECIAL;
    /* of many keys nearly all, so that a part which a kernel takes by itself has none but these */
    const size_t most = least <= LOW_MOST ? least - 1 : LOW_MOST;
    const bool many = p->special == HA_OP_LOW_KEY && keys > LOW_MANY && ha_op_draw(s, 2);
    if (many) p->key = 0;
    p->faint = (p->special == HA_OP_NAN_VALUE || p->special == HA_OP_INF_VALUE) && least > 1 && ha_op_draw(s, 2);
    p->lows = p->special == HA_OP_LOW_KEY && p->key == 0 ? 1 + (many || ha_op_draw(s, 2)) * (most - 1) : 0;
}

/* An infinite score: of one sign for all queries. */
static void make_special(struct problem *p, const struct ha_device_seq *m, char *k, char *v)
{
    const size_t special = p->special;
    const bool of_query = special == HA_OP_NAN_QUERY || special == HA_OP_INF_QUERY,
               of_value = special == HA_OP_NAN_VALUE || special == HA_OP_INF_VALUE,
               one_sign = special == HA_OP_LOW_KEY || special == HA_OP_HIGH_KEY || special == HA_OP_MASKED || p->faint;
    p->number = of_query ? (char *)query_of(p, m, p->token, p->member) : of_value ? v : k;
    if (special == HA_OP_LOW_KEY || p->faint) ha_store(k, 0, p->dtype, -60000);
    if (special == HA_OP_INF_QUERY) ha_store(k, 0, p->dtype, 0.5f); /* its score is infinite, above 0 */
    for (size_t t = 0; t < p->of->q_len && one_sign; t++)
        for (size_t g = 0; g < p->of->group; g++) {
            float *q = query_of(p, m, t, g);
            *q = ha_round(fabsf(*q) + 0.5f, p->products ? p->dtype : HA_F32);
        }
}

/* List l of a run names blocks, or rows, of twice as many: falling ones, rising ones, some one behind the other, or
 * where none holds a special number any of them. */
static void name_blocks(struct ha_op_stage *s, const struct problem *p, uint32_t *list, size_t l, size_t blocks)
{
    const size_t first = 2 * l * blocks;
    if (p->special) {
        for (size_t i = 0; i < blocks; i++) list[i] = (uint32_t)(2 * (l * blocks + blocks - 1 - i) + ha_op_draw(s, 2));
        return;
    }
    ha_op_index(s, list, blocks);
    for (size_t i = 0; i < blocks; i++) list[i] += (uint32_t)first;
}

/* Twice: without blocks for the sizes, then with them. */
static void lay(struct ha_op_stage *s, struct problem *p)
{
    const struct ha_op_case *c = p->of;
    const size_t heads = c->kv_heads * c->group, e = ha_dtype_bytes(p->dtype), f = sizeof(float),
                 block = c->block ? c->block : 1, whole = p->products ? 16 : 1;
    const bool k_heads = c->layout == HA_OP_HEADS || c->layout == HA_OP_K_HEADS,
               v_heads = c->layout == HA_OP_HEADS || c->layout == HA_OP_V_HEADS;
    const size_t lists = lists_of(c), q_count = query_at(c, c->q_len * heads - 1) + c->head_dim;
    size_t in = 0, out = 0;
    for (size_t b = 0; b < c->batch; b++) {
        struct ha_device_seq *t = &p->there[b], *m = &p->here[b];
        const bool none = c->empty && b + 1 == c->batch;
        const size_t least = c->causal ? c->q_len : 1, less = ha_op_fewer(c, p->shortest_first ? c->batch - 1 - b : b),
                     keys = none                     ? 0
                            : c->keys > less + least ? c->keys - less
                                                     : least;
        size_t first[HA_RUNS_MAX], n[HA_RUNS_MAX], rows = 0, key = 0;
        const size_t runs = c->runs > (c->lists && c->causal ? 2 : 1) && c->batch > 1 && (b + c->batch) % 3 == 1
                                ? c->runs - 1
                                : c->runs; /* some have fewer */
        p->keys[b] = keys;
        for (size_t r = 0, left = keys; r < runs; r++) {
            n[r] = r + 1 == runs ? left : (left - (c->causal ? c->q_len : 0)) / 2;
            left -= n[r];
            first[r] = rows;
            const size_t blocks = (n[r] + block - 1) / block;
            const size_t steps = k_step_of(p, r) > v_step_of(p, r) ? k_step_of(p, r) : v_step_of(p, r);
            rows = (rows + (c->block ? 2 * blocks * block * (lists && r == 0 ? lists : 1) : n[r] * steps) + whole)
                   / whole * whole; /* one more than there are */
        }
        const size_t list_stride = lists ? (n[0] + block - 1) / block + 1 : 0;
        struct side k = side_of(p, rows, k_heads, c->pad), v = side_of(p, rows, v_heads, c->v_pad);
        const size_t q = ha_op_room(&in, q_count * f, c->q_at / f * f);
        k.at = ha_op_room(&in, k.bytes, c->src_at / e * e);
        v.at = ha_op_room(&in, v.bytes, c->v_at / e * e);
        if (p->latent) v = k;
        const size_t index = ha_op_room(
                         &in, c->block ? (lists * list_stride + keys / block + c->runs) * sizeof(uint32_t) : 0,
                         c->q_at / f * f),
                     counts = c->list_keys ? ha_op_room(&in, lists * sizeof(uint32_t), c->q_at / f * f) : 0,
                     o = ha_op_room(&out, q_count * f, c->dst_at / f * f),
                     lse = ha_op_room(&out, c->q_len * heads * f, c->dst_at / f * f),
                     weights_stride = keys + c->dst_gap,
                     weights = c->weights ? ha_op_room(&out, heads * weights_stride * f, c->dst_at / f * f) : 0;
        if (!p->in) continue;
        *t = (struct ha_device_seq){
            .q = (const float *)(const void *)(p->in->at + q),
            .runs_count = runs,
            .k_head_bytes = k.head_bytes,
            .v_head_bytes = v.head_bytes,
            .o = (float *)(void *)(p->out->at + o),
            .lse = (float *)(void *)(p->out->at + lse),
            .weights = c->weights ? (float *)(void *)(p->out->at + weights) : NULL,
            .weights_stride = weights_stride,
            .list_stride = list_stride,
            .list_keys = c->list_keys ? (const uint32_t *)(const void *)(p->in->at + counts) : NULL,
        };
        /* behind its runs there is anything */
        for (size_t r = runs; r < HA_RUNS_MAX; r++)
            t->runs[r] = (struct ha_rows){ p->in->at + k.at, p->in->at + v.at, k.stride, v.stride, NULL, c->keys };
        *m = *t;
        m->q = (const float *)(const void *)(p->in->image + q);
        m->o = (float *)(void *)(p->out->image + o);
        m->lse = (float *)(void *)(p->out->image + lse);
        if (c->weights) m->weights = (float *)(void *)(p->out->image + weights);
        float *queries = (float *)(void *)(p->in->image + q);
        ha_op_numbers(s, queries, q_count, HA_F32);
        shape_queries(s, p, queries, q_count);
        for (size_t i = 0; p->wide && i < q_count; i++) queries[i] *= WIDE;
        for (size_t r = 0; p->far_below && r < c->q_len * heads; r++) queries[query_at(c, r)] = FAR_QUERY;
        /* NaN where no key is; zeros where an index may have entries of the call before, which name other rows */
        const int no_key = s->pairs ? 0 : 0xFF;
        memset(p->in->image + k.at, no_key, k.bytes);
        memset(p->in->image + v.at, no_key, v.bytes);
        choose(s, p, b);
        uint32_t *list = (uint32_t *)(void *)(p->in->image + index);
        if (c->list_keys) {
            uint32_t *count = (uint32_t *)(void *)(p->in->image + counts);
            for (size_t l = 0; l < lists; l++) count[l] = (uint32_t)listed(c, b, l, n[0]);
            m->list_keys = count;
        }
        for (size_t r = 0; r < runs; r++) {
            const size_t blocks = c->block ? (n[r] + block - 1) / block : 0, k_at = k.at + first[r] * k.stride,
                         v_at = v.at + first[r] * v.stride;
            t->runs[r] = m->runs[r] = (struct ha_rows){ .k_stride_bytes = k.stride * k_step_of(p, r),
                                                        .v_stride_bytes = v.stride * v_step_of(p, r),
                                                        .keys = n[r] };
            t->runs[r].k = p->in->at + k_at;
            t->runs[r].v = p->in->at + v_at;
            m->runs[r].k = p->in->image + k_at;
            m->runs[r].v = p->in->image + v_at;
            const bool shared = p->shared && b && r == 0 && n[0] && n[0] <= p->here[b - 1].runs[0].keys;
            if (shared) {
                t->runs[0] = p->there[b - 1].runs[0];
                m->runs[0] = p->here[b - 1].runs[0];
                t->runs[0].keys = m->runs[0].keys = n[0];
                key += n[0];
                continue;
            }
            const size_t of_run = lists && r == 0 ? lists : 1;
            if (blocks || (lists && r == 0)) {
                t->runs[r].index = (const uint32_t *)(const void *)(p->in->at + ((char *)list - p->in->image));
                m->runs[r].index = list;
            }
            for (size_t l = 0; l < of_run; l++, list += lists && r == 0 ? list_stride : blocks) {
                name_blocks(s, p, list, l, blocks);
                for (size_t i = 0; i < (lists && r == 0 ? listed(c, b, l, n[r]) : n[r]); i++, key++) {
                    const size_t at = c->block ? list[i / block] * block + i % block : i,
                                 row = first[r] + at * k_step_of(p, r), v_row = first[r] + at * v_step_of(p, r);
                    fill_row(s, p, &k, row);
                    shape_row(p, &k, row, key, keys, true);
                    if (!p->latent) {
                        fill_row(s, p, &v, v_row);
                        shape_row(p, &v, v_row, key, keys, false);
                    }
                    char *const number = p->in->image + k.at + row * k.stride + p->head * k.head_bytes + p->dim * e;
                    if (p->special && b == p->seq && key == p->key)
                        make_special(p, m, number,
                                     p->in->image + v.at + v_row * v.stride + p->head * v.head_bytes + p->dim * e);
                    if (p->special == HA_OP_MASKED && b == p->seq) ha_store(number, 0, p->dtype, -INFINITY);
                    if (key < p->lows && b == p->seq) {
                        p->low[key] = number;
                        ha_store(number, 0, p->dtype, -60000);
                    }
                    for (size_t h = 0; h < c->kv_heads && p->far_below; h++)
                        ha_store(p->in->image + k.at + row * k.stride + h * k.head_bytes, 0, p->dtype,
                                 (p->products ? BELOW : FAR_BELOW) / (FAR_QUERY * p->scale));
                }
            }
        }
    }
    p->in_bytes = in;
    p->out_bytes = out;
}

/* ---- judged ------------------------------------------------------------------------------------------------------ */

/* Rows that see a number that is none must say so; for the rest of the judgement they then hold what the reference
 * does.
 */
static enum ha_status judge_special(struct ha_op_stage *s, const struct problem *p, const struct ha_answer *want,
                                    const struct ha_profile *profile)
{
    static const char *const what[] = { [HA_OP_NAN_QUERY] = "a NaN in the query",
                                        [HA_OP_NAN_KEY] = "a NaN in a key that it sees",
                                        [HA_OP_NAN_VALUE] = "a NaN in a value that it sees",
                                        [HA_OP_HIGH_KEY] = "an infinite score",
                                        [HA_OP_INF_QUERY] = "an infinity in the query",
                                        [HA_OP_INF_VALUE] = "an infinity in a value that it sees" };
    const struct ha_op_case *c = p->of;
    const struct ha_device_seq *m = &p->here[p->seq];
    const size_t heads = c->kv_heads * c->group, dim = c->head_dim;
    for (size_t t = 0; t < c->q_len; t++)
        for (size_t g = 0; g < c->group; g++) {
            const size_t seen = p->keys[p->seq] - (c->causal ? c->q_len - 1 - t : 0),
                         row = t * heads + p->head * c->group + g;
            const struct ha_ref_state *state = &want->state[t * c->group + g];
            const bool of_query = p->special == HA_OP_NAN_QUERY || p->special == HA_OP_INF_QUERY,
                       infinite = p->special == HA_OP_INF_VALUE, one = p->special == HA_OP_NAN_VALUE || infinite;
            if ((of_query && (t != p->token || g != p->member)) || (p->special != HA_OP_NAN_QUERY && p->key >= seen))
                continue;
            float *o = m->o + place_of(c, t, p->head * c->group + g), *lse = m->lse + row;
            for (size_t d = one ? p->dim : 0; d < (one ? p->dim + 1 : dim); d++) {
                if (infinite ? isfinite(o[d]) || o[d] == -INFINITY : !isnan(o[d]))
                    return ha_op_wrong(s,
                                       "row %zu of KV head %zu of sequence %zu has %s, and element %zu of its o is "
                                       "%.9g, want %sNaN",
                                       t * c->group + g, p->head, p->seq, what[p->special], d, (double)o[d],
                                       infinite ? "inf or " : "");
                o[d] = ha_round((float)state->o[d], profile->out_type);
            }
            if (one) continue;
            if (!isnan(*lse))
                return ha_op_wrong(s, "row %zu of KV head %zu of sequence %zu has %s, and its LSE is %.9g, want NaN",
                                   t * c->group + g, p->head, p->seq, what[p->special], (double)*lse);
            *lse = ha_round((float)state->lse, profile->lse_type);
        }
    return HA_OK;
}

/* of o and LSE, and of weights */
struct held {
    struct ha_chances rows, weights;
};
/* numbers of K that those rows of a KV head are of which are held against chance, if more than two */
enum { HELD_NUMBERS = 1 << 18 };

/* All scores of a KV head are -inf: each weight of its query heads is 0. */
static enum ha_status judge_no_weights(struct ha_op_stage *s, const struct problem *p)
{
    const struct ha_device_seq *m = &p->here[p->seq];
    for (size_t g = 0; g < p->of->group; g++)
        for (size_t i = 0; i < p->keys[p->seq]; i++) {
            const float got = m->weights[(p->head * p->of->group + g) * m->weights_stride + i];
            if (got < 0 || got > 0 || isnan(got))
                return ha_op_wrong(s,
                                   "sequence %zu, KV head %zu: all scores are -inf, and the weight of key %zu is %.9g",
                                   p->seq, p->head, i, (double)got);
        }
    return HA_OK;
}

static enum ha_status judge_unit(struct ha_op_stage *s, struct problem *p, const char *name,
                                 const struct ha_profile *profile, size_t b, size_t unit, struct held *held)
{
    const struct ha_op_case *c = p->of;
    struct ha_rows runs[HA_RUNS_MAX];
    struct ha_answer want;
    struct ha_attend a = ha_seq_attend(&p->args, &p->here[b], unit, runs);
    const bool odd = b == p->seq && unit == p->head, masked = odd && p->special == HA_OP_MASKED;
    a.block = p->args.block;
    if (masked) { /* as if there were no keys */
        a.runs_count = 0;
        a.causal = false;
    }
    void *memory = malloc(2 * p->keys[b] * c->head_dim * ha_dtype_bytes(p->dtype) + 1);
    if (!memory) return ha_why(s->why, HA_ERROR, "out of memory");
    const struct ha_rows rows = ha_ref_plain_rows(&a, memory);
    a.runs_count = HA_RUNS_MAX; /* the device joins its parts as it likes */
    enum ha_status status = ha_answer_make(&want, &a, &rows, profile, 0, s->why);
    if (status != HA_OK) {
        free(memory);
        return status;
    }
    const bool special = odd && p->special && p->special != HA_OP_LOW_KEY && !masked;
    if (special) status = judge_special(s, p, &want, profile);
    const struct ha_answer_error e = ha_answer_judge(&want, &a);
    struct ha_answer_error w = { .ratio = 0 };
    if (c->weights && !masked && (!special || p->special == HA_OP_NAN_VALUE || p->special == HA_OP_INF_VALUE))
        w = ha_answer_judge_weights(&want, &a);
    const bool right = e.ratio <= 1 && w.ratio <= 1;
    if (status == HA_OK && masked && c->weights) status = judge_no_weights(s, p);
    /* others have roundings of one sign */
    if (right && !special && !masked && !p->far_below && c->scores <= HA_OP_PEAKED)
        status = ha_answer_hold(&want, &a, &rows, HELD_NUMBERS / (rows.keys * c->head_dim + 1) + 2, &held->rows,
                                &held->weights, s->why);
    free(memory);
    ha_answer_free(&want);
    HA_TRY(status);
    s->cases++;
    if (right) return HA_OK;
    const struct ha_answer_error *bad = e.ratio <= 1 ? &w : &e;
    return ha_op_wrong(s,
                       "%s of %s, %zu sequences, %zu queries, %zu KV heads of %zu, head_dim %zu, %zu keys: sequence "
                       "%zu, %s %zu, row %zu, %s %zu is %.9g, want %.9g, bound %.3g%s%s",
                       name, ha_dtype_name(p->dtype), c->batch, c->q_len, c->kv_heads, c->group, c->head_dim, c->keys,
                       b, c->lists ? "list" : "KV head", unit, bad->row,
                       bad == &w                ? "weight"
                       : bad->at == c->head_dim ? "LSE, element"
                                                : "element of o",
                       bad->at, bad->got, bad->want, bad->bound, bad->type ? ", and no number of type " : "",
                       bad->type ? bad->type : "");
}

/* Of many sequences with many heads: all heads of a few sequences, and a few heads of all. */
enum { ALL_JUDGED = 300 };
static bool is_judged(const struct ha_op_case *c, size_t i, size_t drawn, size_t count)
{
    return c->batch * c->kv_heads * (c->lists == HA_OP_Q_LISTS ? c->group : 1) <= ALL_JUDGED || i == 0 || i == drawn
           || i + 1 == count;
}

typedef enum ha_status attend_fn(struct ha_stream *stream, const struct ha_device_attend *args);

/* All lists of a sequence are its first one, all KV heads have the keys of the first, or its values. */
static void share(struct ha_op_stage *s, struct problem *p)
{
    for (size_t b = 0; b < p->of->batch; b++)
        for (size_t i = 0; i < 3; i++) {
            if (ha_op_draw(s, 16) || (i == 0 && p->of->list_keys)) continue;
            for (int image = 0; image < 2; image++) {
                struct ha_device_seq *m = image ? &p->here[b] : &p->there[b];
                *(i == 0 ? &m->list_stride : i == 1 ? &m->k_head_bytes : &m->v_head_bytes) = 0;
            }
        }
}

/* The operation's name, its entry, and whether it is attend_products. */
struct way {
    const char *name;
    attend_fn *attend;
    bool products;
    bool refused; /* out: the call itself */
};

/* A library loads kernels for a shape in its first call, which may wait for all that is enqueued: not behind the gate.
 */
static enum ha_status load(struct ha_op_stage *s, struct way *way, const struct ha_device_attend *args)
{
    const enum ha_status asked = way->attend(s->stream[0], args);
    way->refused = asked != HA_OK;
    HA_TRY(ha_op_failed(s, way->name, asked));
    HA_OP(s, stream_sync, s->stream[0]);
    return HA_OK;
}

static enum ha_status attend_once(struct ha_op_stage *s, struct way *way, const struct ha_op_case *c)
{
    struct problem *const p = s->scratch;
    struct ha_device_seq *const there = (void *)(p + 1), *const here = there + HA_OP_BATCH,
                                *const seqs = here + HA_OP_BATCH;
    HA_OP_FITS(sizeof *p + 3 * HA_OP_BATCH * sizeof *there);
    const char *const name = way->name;
    struct ha_device_info info;
    memset(&info, 0, sizeof info);
    s->api->info(s->device, &info);
    if (info.head_dim_max && c->head_dim > info.head_dim_max)
        return ha_why(s->why, HA_WAIVED, "head_dim is %zu at most", info.head_dim_max);
    *p = (struct problem){ .of = c,
                           .there = there,
                           .here = here,
                           .dtype = (enum ha_dtype)c->dtype,
                           .products = way->products,
                           .special = c->special };
    p->shortest_first = ha_op_draw(s, 2);
    p->k_step = 1 + (ha_op_draw(s, 4) == 0);
    p->v_step = 1 + (ha_op_draw(s, 4) == 0);
    const struct ha_profile *profile = way->products ? &info.products[p->dtype] : &info.profile[p->dtype];
    ha_op_clear(s);
    lay(s, p);
    p->in = ha_op_block(s, (enum ha_op_place)c->src, p->in_bytes);
    p->out = p->in ? ha_op_block(s, (enum ha_op_place)c->dst, p->out_bytes) : NULL;
    if (!p->out) return HA_ERROR;
    memset(p->in->image, 0, p->in->bytes);
    p->seq = p->special ? ha_op_draw(s, c->batch) : 0;
    /* without a special number plain scores may be large before the scale, or far below 0, and sequences may have a
     * prefix in common */
    const size_t kind = p->special || c->scores || s->pairs ? 0 : ha_op_draw(s, 4);
    p->wide = kind == 2 && !p->products;
    /* a large scale, since half precision has no such key else; few keys, since it is not held against chance */
    p->far_below = kind == 3 && c->scale >= 0.25 && c->keys < 1000;
    p->shared = !p->special && !c->block && c->layout == HA_OP_TOKENS && ha_op_draw(s, 2);
    p->latent = !p->special && !c->scores && !p->far_below && p->k_step == p->v_step && ha_op_draw(s, 8) == 0;
    p->scale = (float)c->scale / sqrtf((float)c->head_dim) / (p->wide ? WIDE : 1);
    lay(s, p);
    if (!p->special && !p->products) share(s, p);
    memcpy(seqs, there, c->batch * sizeof *seqs);
    p->args = (struct ha_device_attend){ .batch = c->batch,
                                         .q_len = c->q_len,
                                         .q_heads = c->kv_heads * c->group,
                                         .kv_heads = c->kv_heads,
                                         .head_dim = c->head_dim,
                                         .dtype = p->dtype,
                                         .scale = p->scale,
                                         .causal = c->causal,
                                         .seqs = seqs,
                                         .block = c->block,
                                         .lists = lists_of(c) };
    const size_t units = ha_seq_units(&p->args), inner = query_at(c, 1), outer = query_at(c, rows_within(c));
    if (c->q_layout || c->q_gap) {
        p->args.q_token_stride = by_head(c) ? inner : outer;
        p->args.q_head_stride = by_head(c) ? outer : inner;
        /* what is dense may be given as 0, each by itself */
        if (p->args.q_token_stride == p->args.q_heads * c->head_dim && ha_op_draw(s, 2)) p->args.q_token_stride = 0;
        if (p->args.q_head_stride == c->head_dim && ha_op_draw(s, 2)) p->args.q_head_stride = 0;
    }
    struct ha_device_attend args = p->args;
    if (way->products) HA_TRY(load(s, way, &args));
    HA_TRY(ha_op_fill(s, p->out, 0, p->out->bytes));
    char clean[sizeof(float)];
    const enum ha_dtype type = p->special == HA_OP_NAN_QUERY || p->special == HA_OP_INF_QUERY ? HA_F32 : p->dtype;
    if (p->special) {
        memcpy(clean, p->number, ha_dtype_bytes(type));
        ha_store(p->number, 0, type, ha_op_odd(s, c));
    }
    for (size_t i = 0; i < p->lows; i++) ha_store(p->low[i], 0, p->dtype, -INFINITY);
    HA_TRY(ha_op_arrive(s, &p->in, 1, p->out));
    for (size_t i = 0; i < p->lows; i++) ha_store(p->low[i], 0, p->dtype, -60000);
    if (p->special) memcpy(p->number, clean, ha_dtype_bytes(type));
    const enum ha_status asked = way->attend(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    way->refused = asked != HA_OK;
    const char *before;
    HA_TRY(ha_op_follow(s, name, asked, p->out, &before));
    const size_t b0 = ha_op_draw(s, c->batch), h0 = ha_op_draw(s, units);
    struct held held = { .rows = { 0 } };
    for (size_t b = 0; b < c->batch; b++)
        for (size_t unit = 0; unit < units; unit++)
            if (is_judged(c, b, b0, c->batch) || is_judged(c, unit, h0, units))
                HA_TRY(judge_unit(s, p, name, profile, b, unit, &held));
    ha_suspect_add(&s->suspect, &held.rows, "%s of %s, head_dim %zu, %zu keys", name, ha_dtype_name(p->dtype),
                   c->head_dim, c->keys);
    ha_suspect_add(&s->suspect, &held.weights, "weights of %s of %s, head_dim %zu, %zu keys", name,
                   ha_dtype_name(p->dtype), c->head_dim, c->keys);
    /* with the results put back to what was there before, all is as it was */
    const size_t heads = c->kv_heads * c->group, rows = c->q_len * heads;
    for (size_t b = 0; b < c->batch; b++) {
        struct ha_device_seq *m = &p->here[b];
        for (size_t r = 0; r < rows; r++) { /* tokens and heads, in either order */
            char *at = (char *)(m->o + query_at(c, r));
            memcpy(at, before + (at - p->out->image), c->head_dim * sizeof(float));
        }
        memcpy(m->lse, before + ((char *)m->lse - p->out->image), rows * sizeof(float));
        for (size_t g = 0; m->weights && g < heads; g++) {
            char *at = (char *)(m->weights + g * m->weights_stride);
            memcpy(at, before + (at - p->out->image), p->keys[b] * sizeof(float));
        }
    }
    if (memcmp(before, p->out->image, p->out->bytes) != 0)
        return ha_op_wrong(s, "%s of %s, head_dim %zu, %zu keys: wrote where no result belongs", name,
                           ha_dtype_name(p->dtype), c->head_dim, c->keys);
    return HA_OK;
}

/* ---- the operations ---------------------------------------------------------------------------------------------- */

/* What is too large for a covering list: lengths, and many sequences and heads of some length. */
#define SHAPE(b, t, h, g, d, n, r, ...)                                                                     \
    {                                                                                                       \
        .batch = b, .q_len = t, .kv_heads = h, .group = g, .head_dim = d, .keys = n, .runs = r, .scale = 1, \
        __VA_ARGS__                                                                                         \
    }
static const struct ha_op_case large[] = {
    SHAPE(1, 1, 1, 1, 8, 140000, 1, .weights = 1),
    SHAPE(1, 1, 1, 2, 64, 4200, 2, .weights = 1, .dst_gap = 3),
    SHAPE(1, 1, 1, 7, 128, 1025, 1, .pad = 16),
    SHAPE(1, 1, 2, 8, 256, 257, 4, .weights = 1, .causal = 1),
    SHAPE(1, 17, 1, 2, 96, 64, 1, .pad = 16, .causal = 1),
    SHAPE(256, 1, 1, 2, 8, 70, 2, .v_pad = 8, .weights = 1),
    SHAPE(3, 1, 128, 1, 8, 70, 2, .layout = HA_OP_V_HEADS, .weights = 1),
    SHAPE(1, 2049, 1, 33, 8, 3, 1, .q_at = 4), /* more than 65,536 rows, in each dimension */
    SHAPE(130, 1, 512, 1, 8, 2, 1, .weights = 1),
    SHAPE(65, 16, 64, 1, 8, 3, 1, .dst_at = 4),
    SHAPE(1, 1, 1, 2, 64, 4300, 1, .special = HA_OP_LOW_KEY),
    SHAPE(1, 2, 2, 1, 24, 8500, 2, .special = HA_OP_LOW_KEY, .causal = 1),
    SHAPE(1, 2, 1, 2, 512, 70, 1, .special = HA_OP_NAN_VALUE, .causal = 1),
    SHAPE(1, 3, 1, 2, 8, 5, 1, .q_layout = HA_OP_Q_FUSED, .q_gap = 65536), /* queries 256 KiB apart */
    SHAPE(1, 3, 2, 2, 8, 5, 1, .q_layout = HA_OP_Q_FUSED_HEADS, .q_gap = 65536),
    SHAPE(1, 3, 2, 2, 8, 5, 1, .q_gap = 32768),
    SHAPE(1, 1, 3, 2, 8, 300, 1, .pad = 65536, .layout = HA_OP_K_HEADS), /* heads more than 16 MiB apart */
    SHAPE(1, 1, 3, 2, 8, 300, 1, .v_pad = 65536, .layout = HA_OP_V_HEADS),
};
static const struct ha_op_case indexed[] = {
    SHAPE(1, 1, 1, 1, 8, 70000, 1, .block = 1),
    SHAPE(1, 1, 1, 2, 16, 40000, 1, .block = 32, .weights = 1),
    SHAPE(1, 1, 1, 7, 64, 4200, 1, .block = 64, .weights = 1, .dst_gap = 3),
};
static const struct ha_op_case listed_cases[] = {
    SHAPE(1, 1, 1, 2, 64, 40000, 1, .block = 32, .lists = HA_OP_Q_LISTS),
    SHAPE(2, 1, 2, 4, 128, 4200, 2, .block = 16, .causal = 1, .lists = HA_OP_KV_LISTS, .list_keys = 1),
    SHAPE(1, 3, 2, 4, 64, 2100, 2, .block = 1, .causal = 1, .lists = HA_OP_Q_LISTS, .list_keys = 1, .q_gap = 8),
    SHAPE(1, 2049, 1, 33, 8, 3, 1, .block = 1, .lists = HA_OP_Q_LISTS, .list_keys = 1), /* more than 65,536 lists */
    SHAPE(65, 16, 64, 1, 8, 3, 1, .block = 1, .lists = HA_OP_KV_LISTS),
    SHAPE(2, 1, 2, 4, 64, 300, 1, .block = 32, .lists = HA_OP_Q_LISTS, .list_keys = 1),
};
static const struct ha_op_case plain[] = { SHAPE(5, 1, 2, 2, 128, 300, 2, .empty = 1),
                                           SHAPE(1, 3, 2, 2, 64, 2100, 2, .causal = 1) };

/* K of one sequence is of at most this many times the bytes of the largest copy: who asks for small copies gets all
 * shapes, the longest of them with fewer keys. */
enum { COPIES_OF_K = 4, MANY_ROWS = 1 << 16, MANY_BYTES = 1 << 20 };

static enum ha_status attend_all(struct ha_op_stage *s, struct way *way, const struct ha_op_case *of, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
            struct ha_op_case c = of[i];
            if (c.batch * c.q_len * c.kv_heads * c.group > MANY_ROWS && s->most < MANY_BYTES) continue;
            c.dtype = t;
            const size_t most = COPIES_OF_K * s->most / (c.kv_heads * c.head_dim * ha_dtype_bytes((enum ha_dtype)t));
            if (c.keys > most && most > c.q_len) c.keys = most;
            HA_TRY(attend_once(s, way, &c));
        }
    return HA_OK;
}

/* A key that an operation has not stands at its default. */
static enum ha_status without_index(struct ha_op_stage *s, struct way *way, const struct ha_op_case *of)
{
    struct ha_op_case c = *of;
    c.block = 0;
    return attend_once(s, way, &c);
}

static const char *unfit(const struct ha_op_case *c)
{
    if (c->causal && c->empty) return "the query tokens are the last keys of every sequence, and one has none";
    if (c->lists && c->causal && c->runs == 1) return "with causal, the last run is no list";
    if (c->head_dim % 8) return "a head has a multiple of 8 numbers";
    if (c->special && c->scores) return "special numbers stand among bell-shaped ones";
    if (c->list_keys && (!c->lists || c->weights)) return "list_keys is of lists, without weights";
    struct ha_op_case any = *c;
    any.special = HA_OP_NO_SPECIAL; /* it has all of them */
    return ha_op_unfit_kernel(&any);
}

#define KEYS                                                                                                \
    "dst src dst_at src_at v_at q_at dtype batch q_len kv_heads group head_dim keys runs pad v_pad layout " \
    "causal empty scale"
/* What all of them are varied in; values are classes and no tiles of ours. Of all that an attention is made of attend
 * has the most values: the others share what does not find keys. */
#define PAIRS                                    \
    "dtype = f32 f16 bf16\n"                     \
    "dst = device mapped\nsrc = device mapped\n" \
    "dst_at = 0 4 24 60\nq_at = 0 4 40\n"        \
    "runs = 1 2 3 4\n"                           \
    "layout = tokens heads k_heads v_heads\n"    \
    "causal = no yes\nempty = no yes\n"          \
    "scale = 1 0.25 3\n"
#define VALUES "head_dim = 8..576:8 640 768 1024\n"
#define PAIRS_OF_PLACES                           \
    PAIRS "src_at = 0 2 8 36\nv_at = 0 6 16 40\n" \
          "pad = 0 6 16 100\nv_pad = 0 2 32 64\n" \
          "weights = no yes\ndst_gap = 0 3 29\n"
#define PAIRS_OF_Q "q_layout = tokens heads fused fused_heads\nq_gap = 0 3 8\n"
#define PAIRS_OF_ROWS                                                                          \
    PAIRS_OF_PLACES                                                                            \
    "special = none nan_query nan_key nan_value low_key high_key inf_query inf_value masked\n" \
    "scores = plain peaked equal rising falling dominant offset huge cancelling fine light stretched\n"

static enum ha_status judge_attend(struct ha_op_stage *s)
{
    struct way way = { "attend", s->api->attend, false, false };
    /* keys enough that what is largest changes several times */
    struct ha_op_case hard[HA_OP_STRETCHED] = { SHAPE(1, 1, 2, 3, 64, 700, 1, .weights = 1) };
    for (size_t i = 0; i < HA_OP_STRETCHED; i++) {
        hard[i] = hard[0];
        hard[i].scores = i + 1;
        hard[i].q_len = 1 + i % 3;
        hard[i].head_dim = 40 + i % 4 * 16;
        hard[i].runs = 1 + i % 2;
    }
    HA_TRY(attend_all(s, &way, hard, HA_OP_STRETCHED));
    return attend_all(s, &way, large, sizeof large / sizeof *large);
}
static enum ha_status attend_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct way way = { "attend", s->api->attend, false, false };
    return without_index(s, &way, c);
}
const struct ha_op ha_op_attend = {
    .name = "attend",
    .doc = "o, LSE and weights of batches, against binary64",
    .needs = { HA_OP_ENTRY(attend) },
    .judge = judge_attend,
    .keys = KEYS " special scores weights dst_gap q_layout q_gap",
    .pairs = PAIRS_OF_ROWS PAIRS_OF_Q "batch = 1 2 3 17 65 256\n"
                                      "q_len = 1..8 13 16 17 33 64\n"
                                      "kv_heads = 1..8 20 33 65 128\n"
                                      "group = 1..8 12 16\n"
                                      "head_dim = 8 24 40 64 80 96 112 128 160 192 200 256 320 512\n"
                                      "keys = 1 2 31 64 65 130 257 1025 2100\n",
    .values = VALUES,
    .once = attend_case,
    .unfit = unfit,
};

/* A device that refuses an index, or lists, in the call, and says so, is not wrong. */
static enum ha_status unless_refused(struct ha_op_stage *s, enum ha_status status, const struct way *way,
                                     const char *what)
{
    return way->refused ? ha_why(s->why, HA_WAIVED, "the device refuses %s: %.400s", what, s->api->failure(s->device))
                        : status;
}
static enum ha_status judge_attend_index(struct ha_op_stage *s)
{
    struct way way = { "attend", s->api->attend, false, false };
    return unless_refused(s, attend_all(s, &way, indexed, sizeof indexed / sizeof *indexed), &way, "an index");
}
static enum ha_status attend_index_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct way way = { "attend", s->api->attend, false, false };
    return unless_refused(s, attend_once(s, &way, c), &way, "an index");
}
const struct ha_op ha_op_attend_index = {
    .name = "attend_index",
    .doc = "the same of keys that an index names, by rows and blocks",
    .needs = { HA_OP_ENTRY(attend) },
    .judge = judge_attend_index,
    .keys = KEYS " special scores weights dst_gap block",
    .pairs = PAIRS_OF_ROWS "batch = 1 3 65\nq_len = 1 2 5 8\nkv_heads = 1 2 3 8 33\ngroup = 1..5 7 8 16\nhead_dim = 8 "
                           "64 80 96 112 128 192 256 512\n"
                           "keys = 1 3 31 65 130 300 1025\nblock = 1 2 7 16 32 64 100\n",
    .values = VALUES,
    .once = attend_index_case,
    .unfit = unfit,
};

static enum ha_status judge_attend_lists(struct ha_op_stage *s)
{
    struct way way = { "attend", s->api->attend, false, false };
    return unless_refused(s, attend_all(s, &way, listed_cases, sizeof listed_cases / sizeof *listed_cases), &way,
                          "lists");
}
static enum ha_status attend_lists_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct way way = { "attend", s->api->attend, false, false };
    return unless_refused(s, attend_once(s, &way, c), &way, "lists");
}
const struct ha_op ha_op_attend_lists = {
    .name = "attend_lists",
    .doc = "the same of lists of each head's own, counted when the kernel runs, and of queries at strides",
    .needs = { HA_OP_ENTRY(attend) },
    .judge = judge_attend_lists,
    .keys = KEYS " weights dst_gap block lists list_keys q_layout q_gap",
    .pairs = PAIRS_OF_PLACES
    "batch = 1 3 17\nq_len = 1 2 5 8\nkv_heads = 1..4 7..9\ngroup = 1..8 16\nhead_dim = 8 64 80 96 112 128 192 256\n"
    "keys = 1 3 31 65 130 300\nblock = 1 7 16 32\nlists = none kv_heads q_heads\n"
    "list_keys = no yes\n" PAIRS_OF_Q,
    .values = VALUES "keys = 1..200 207..1600:7 255 257 511..513 1023..1025 2047..2049 4095..4097 8193 16385\n",
    .once = attend_lists_case,
    .unfit = unfit,
};

static enum ha_status judge_attend_products(struct ha_op_stage *s)
{
    struct way way = { "attend_products", s->api->attend_products, true, false };
    HA_TRY(ha_op_no_products(s));
    return attend_all(s, &way, plain, sizeof plain / sizeof *plain);
}
static enum ha_status attend_products_case(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct way way = { "attend_products", s->api->attend_products, true, false };
    HA_TRY(ha_op_no_products(s));
    return without_index(s, &way, c);
}
const struct ha_op ha_op_attend_products = {
    .name = "attend_products",
    .doc = "o and LSE by products of a library",
    .needs = { HA_OP_ENTRY(attend_products) },
    .judge = judge_attend_products,
    .keys = KEYS " special q_layout q_gap",
    .pairs = PAIRS PAIRS_OF_Q
    "src_at = 0 16 48\nv_at = 0 16 32\npad = 0 16 96\nv_pad = 0 32 64\n"
    "batch = 1 3 65\nq_len = 1 2 8 17\nkv_heads = 1 2 3 8 33\ngroup = 1 2 3 5 7 8 16\nhead_dim = 8 40 64 80 "
    "96 112 128 192 256\n"
    "keys = 1 3 64 130 257\nspecial = none nan_query nan_key low_key high_key inf_query masked\n",
    .values = VALUES "dst_at = 0..64:16 4112\nsrc_at = 0..64:16 4112\nv_at = 0..64:16 4112\n"
                     "pad = 0..64:16 96 128 1024\nv_pad = 0..64:16 96 128 1024\n",
    .once = attend_products_case,
    .unfit = unfit,
};
