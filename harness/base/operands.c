#include "harness/base/operands.h"

#include "harness/base/seq_attend.h"

struct visit {
    ha_operand_fn *fn;
    void *arg;
};

static void whole(struct visit v, const char *role, enum ha_access access, const void *at)
{
    if (at) v.fn(v.arg, role, access, (struct ha_range){ at, 1, 0, SIZE_MAX });
}

static void rows(struct visit v, const char *role, enum ha_access access, const void *at, size_t count, size_t stride,
                 size_t bytes)
{
    if (at && count && bytes) v.fn(v.arg, role, access, (struct ha_range){ at, count, stride, bytes });
}

/* [outer][inner] pieces of bytes, in as few ranges as their strides allow */
static void grid(struct visit v, const char *role, enum ha_access access, const void *at, size_t outer,
                 size_t outer_stride, size_t inner, size_t inner_stride, size_t bytes)
{
    if (outer > 1 && inner > 1 && outer_stride < inner_stride) {
        grid(v, role, access, at, inner, inner_stride, outer, outer_stride, bytes);
        return;
    }
    if (inner > 1 && inner_stride == bytes) {
        bytes *= inner;
        inner = 1;
    }
    if (inner <= 1) {
        if (inner) rows(v, role, access, at, outer, outer_stride, bytes);
        return;
    }
    for (size_t i = 0; i < outer; i++)
        rows(v, role, access, (const char *)at + i * outer_stride, inner, inner_stride, bytes);
}

void ha_operands_copy(const struct ha_device_pieces *p, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    for (size_t i = 0; i < p->count; i++) {
        rows(v, "source", HA_READ, p->src[i], 1, 0, p->bytes[i]);
        rows(v, "destination", HA_WRITE, p->dst[i], 1, 0, p->bytes[i]);
    }
}

void ha_operands_copy_2d(void *dst, size_t dst_stride, const void *src, size_t src_stride, size_t row_bytes,
                         size_t count, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    rows(v, "source", HA_READ, src, count, src_stride, row_bytes);
    rows(v, "destination", HA_WRITE, dst, count, dst_stride, row_bytes);
}

/* One of K and V, of all heads that are head_bytes apart. */
static void keys(struct visit v, const char *role, const struct ha_rows *r, const void *at, size_t stride, size_t heads,
                 size_t head_bytes, size_t bytes)
{
    if (!r->keys) return;
    if (r->index) whole(v, role, HA_READ, at);
    else grid(v, role, HA_READ, at, heads, head_bytes, r->keys, stride, bytes);
}

void ha_operands_device_attend(const struct ha_device_attend *a, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t f = sizeof(float), key = a->head_dim * ha_dtype_bytes(a->dtype), lse = a->q_len * a->q_heads * f,
                 block = a->block ? a->block : 1;
    for (size_t b = 0; b < a->batch; b++) {
        const struct ha_device_seq *s = &a->seqs[b];
        size_t count = 0;
        grid(v, "q", HA_READ, s->q, a->q_len, ha_seq_token_stride(a) * f, a->q_heads, ha_seq_head_stride(a) * f,
             a->head_dim * f);
        rows(v, "list_keys", HA_READ, s->list_keys, 1, 0, a->lists * sizeof(uint32_t));
        for (size_t i = 0; i < s->runs_count && i < HA_RUNS_MAX; i++) {
            const struct ha_rows *r = &s->runs[i];
            keys(v, "K", r, r->k, r->k_stride_bytes, a->kv_heads, s->k_head_bytes, key);
            keys(v, "V", r, r->v, r->v_stride_bytes, a->kv_heads, s->v_head_bytes, key);
            if (r->index)
                rows(v, "index", HA_READ, r->index, i == 0 && a->lists ? a->lists : 1,
                     s->list_stride * sizeof(uint32_t), (r->keys + block - 1) / block * sizeof(uint32_t));
            count += r->keys;
        }
        grid(v, "o", HA_WRITE, s->o, a->q_len, ha_seq_token_stride(a) * f, a->q_heads, ha_seq_head_stride(a) * f,
             a->head_dim * f);
        rows(v, "lse", HA_WRITE, s->lse, 1, 0, lse);
        rows(v, "weights", HA_WRITE, s->weights, a->q_heads, s->weights_stride * f, count * f);
    }
}

void ha_operands_device_attend_products(const struct ha_device_attend *a, ha_operand_fn *fn, void *arg)
{
    ha_operands_device_attend(a, fn, arg);
}

static void state(struct visit v, const struct ha_merge *m, const struct ha_merge_state *s, enum ha_access access)
{
    const size_t e = ha_merge_o_bytes(m, access == HA_WRITE), f = sizeof(float);
    grid(v, access == HA_READ ? "o of a state" : "o", access, s->o, m->tokens, s->o_token_stride * e, m->heads,
         s->o_head_stride * e, m->dim * e);
    grid(v, access == HA_READ ? "lse of a state" : "lse", access, s->lse, m->tokens, s->lse_token_stride * f, m->heads,
         s->lse_head_stride * f, f);
    if (m->form == HA_FORM_MAX_SUM)
        grid(v, access == HA_READ ? "sum of a state" : "sum", access, s->sum, m->tokens, s->lse_token_stride * f,
             m->heads, s->lse_head_stride * f, f);
}

void ha_operands_device_merge(const struct ha_merge *m, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    for (size_t i = 0; i < m->states_count; i++) state(v, m, &m->states[i], HA_READ);
    state(v, m, &m->out, HA_WRITE);
}

void ha_operands_device_blend(const struct ha_device_blend *b, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t f = sizeof(float);
    rows(v, "x", HA_READ, b->x, b->rows, b->x_stride * f, b->cols * f);
    rows(v, "y", HA_WRITE, b->y, b->rows, b->y_stride * f, b->cols * f);
}

void ha_operands_device_move(const struct ha_device_move *m, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    rows(v, "index", HA_READ, m->src_index, 1, 0, m->rows * sizeof *m->src_index);
    rows(v, "index", HA_READ, m->dst_index, 1, 0, m->rows * sizeof *m->dst_index);
    if (m->src_index) whole(v, "source", HA_READ, m->src);
    else rows(v, "source", HA_READ, m->src, m->rows, m->src_stride_bytes, m->row_bytes);
    /* two moves may write to different rows of one allocation: what is not known is not claimed */
    if (!m->dst_index) rows(v, "destination", HA_WRITE, m->dst, m->rows, m->dst_stride_bytes, m->row_bytes);
}

void ha_operands_device_product(const struct ha_device_product *p, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t e = ha_dtype_bytes(p->dtype);
    rows(v, "x", HA_READ, p->x, 1, 0, p->m * p->k * e);
    rows(v, "w", HA_READ, p->w, 1, 0, p->n * p->k * e);
    rows(v, "y", HA_WRITE, p->y, 1, 0, p->m * p->n * e);
}

void ha_operands_device_digest(const struct ha_device_digest *d, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t key = d->head_dim * ha_dtype_bytes(d->dtype);
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_digest_seq *s = &d->seqs[b];
        /* of the group of `first` some dimensions' other blocks lie between: what is claimed is from that group on */
        const size_t before = ha_digest_bytes(s->first / HA_PACK_KEYS * HA_PACK_KEYS, d->head_dim, d->dtype);
        keys(v, "K", &s->rows, s->rows.k, s->rows.k_stride_bytes, d->kv_heads, s->k_head_bytes, key);
        rows(v, "index", HA_READ, s->rows.index, 1, 0, s->rows.keys * sizeof(uint32_t));
        rows(v, "digests", HA_WRITE, (char *)s->digests + before, d->kv_heads, s->head_bytes,
             ha_digest_bytes(s->first + s->blocks, d->head_dim, d->dtype) - before);
    }
}

void ha_operands_device_digest_score(const struct ha_device_digest_score *d, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t f = sizeof(float), n = d->q_len * d->q_heads;
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_score_seq *s = &d->seqs[b];
        rows(v, "q", HA_READ, s->q, 1, 0, n * d->head_dim * f);
        rows(v, "digests", HA_READ, s->digests, d->kv_heads, s->head_bytes,
             ha_digest_bytes(s->blocks, d->head_dim, d->dtype));
        rows(v, "scores", HA_WRITE, s->s, n, s->s_stride * f, s->blocks * f);
    }
}

void ha_operands_device_topk(const struct ha_device_topk *t, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    for (size_t b = 0; b < t->batch; b++) {
        const struct ha_device_topk_seq *s = &t->seqs[b];
        rows(v, "x", HA_READ, s->x, t->lists * t->rows, s->stride * sizeof *s->x, s->n * sizeof *s->x);
        rows(v, "index", HA_WRITE, s->index, t->lists, s->index_stride * sizeof *s->index,
             (s->k < s->n ? s->k : s->n) * sizeof *s->index);
        rows(v, "keys", HA_WRITE, s->keys, 1, 0, t->lists * sizeof *s->keys);
        rows(v, "only", HA_READ, s->only, 1, 0, t->lists * sizeof *s->only);
    }
}

void ha_operands_device_split(const struct ha_device_split *d, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t w = sizeof(uint32_t);
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_split_seq *s = &d->seqs[b];
        rows(v, "index", HA_READ, s->index, d->lists, s->index_stride * w, s->count * w);
        if (s->count) rows(v, "slot", HA_READ, s->slot, d->tables, s->slot_stride * w, s->blocks * w);
        rows(v, "here", HA_WRITE, s->here, d->lists, s->out_stride * w, s->count * w);
        rows(v, "here_count", HA_WRITE, s->here_count, 1, 0, d->lists * w);
        rows(v, "missing", HA_WRITE, s->missing, d->lists, s->out_stride * w, s->count * w);
        rows(v, "missing_count", HA_WRITE, s->missing_count, 1, 0, d->lists * w);
    }
}

void ha_operands_device_rotate(const struct ha_device_rotate *r, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t row = r->heads * r->head_dim * sizeof(float);
    rows(v, "bias", HA_READ, r->bias, 1, 0, row);
    rows(v, "norm", HA_READ, r->norm, 1, 0, r->head_dim * sizeof(float));
    rows(v, "turn", HA_READ, r->turn, r->tokens, r->rotary * sizeof(float), r->rotary * sizeof(float));
    rows(v, "q", HA_WRITE, r->q, r->tokens, row, row);
}

void ha_operands_device_columns(const struct ha_device_columns *c, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t e = ha_dtype_bytes(c->y_type), x = c->heads * c->head_dim * ha_dtype_bytes(c->x_type);
    rows(v, "a", HA_READ, c->a, 1, 0, c->kv_heads * c->columns * c->head_dim * sizeof *c->a);
    for (size_t b = 0; b < c->batch; b++) {
        const struct ha_device_columns_seq *s = &c->seqs[b];
        rows(v, "x", HA_READ, s->x, 1, 0, s->tokens * x);
        grid(v, "y", HA_WRITE, s->y, s->tokens, s->y_token_stride * e, c->heads, s->y_head_stride * e, c->columns * e);
    }
}

void ha_operands_device_score(const struct ha_device_score *d, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t f = sizeof(float), n = d->q_len * d->q_heads, key = d->head_dim * ha_dtype_bytes(d->dtype);
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_rows_seq *s = &d->seqs[b];
        rows(v, "q", HA_READ, s->q, 1, 0, n * d->head_dim * f);
        keys(v, "K", &s->rows, s->rows.k, s->rows.k_stride_bytes, d->kv_heads, s->k_head_bytes, key);
        rows(v, "index", HA_READ, s->rows.index, 1, 0, s->rows.keys * sizeof(uint32_t));
        rows(v, "scores", HA_WRITE, s->s, n, s->s_stride * f, s->rows.keys * f);
    }
}

/* Whether a feature's value counts does not matter: all known ones are read. */
void ha_operands_device_features(const struct ha_device_features *f, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t e = sizeof(float), row = f->head_dim * e, features = HA_FEATURES * e;
    rows(v, "mean", HA_READ, f->mean, 1, 0, features);
    rows(v, "inv", HA_READ, f->inv, 1, 0, features);
    for (size_t b = 0; b < f->batch; b++) {
        const struct ha_device_features_seq *s = &f->seqs[b];
        rows(v, "q", HA_READ, s->q, 1, 0, f->q_heads * row);
        rows(v, "known", HA_READ, s->known, 1, 0, f->q_heads * features);
        rows(v, "anchor", HA_READ, s->anchor, 1, 0, f->q_heads * row);
        rows(v, "mean of K", HA_READ, s->mean_k, 1, 0, f->kv_heads * row);
        for (size_t i = 0; i < 2; i++) {
            rows(v, "o", HA_READ, s->o[i], 1, 0, f->q_heads * row);
            rows(v, "lse", HA_READ, s->lse[i], 1, 0, f->q_heads * e);
        }
        rows(v, "x", HA_WRITE, s->x, 1, 0, f->q_heads * features);
    }
}

/* Words 0 to words - 1 of the codes of rows [first, first + count), of all heads that are head_bytes apart: of the
 * blocks that are not whole a few bytes of each word. */
static void codes(struct visit v, const char *role, enum ha_access access, const void *at, size_t heads,
                  size_t head_bytes, size_t first, size_t count, size_t words, size_t bits)
{
    const size_t word = HA_CODE_KEYS * sizeof(uint32_t), block = (bits / 32 + 1) * word;
    for (size_t n; count; first += n, count -= n) {
        const size_t skip = first % HA_CODE_KEYS, whole = count / HA_CODE_KEYS;
        const char *from = (const char *)at + first / HA_CODE_KEYS * block + skip * sizeof(uint32_t);
        n = skip == 0 && whole ? whole * HA_CODE_KEYS : HA_CODE_KEYS - skip < count ? HA_CODE_KEYS - skip : count;
        for (size_t h = 0; h < heads; h++)
            if (n >= HA_CODE_KEYS) rows(v, role, access, from + h * head_bytes, n / HA_CODE_KEYS, block, words * word);
            else rows(v, role, access, from + h * head_bytes, words, word, n * sizeof(uint32_t));
    }
}

void ha_operands_device_hash(const struct ha_device_hash *h, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t e = ha_dtype_bytes(h->dtype), words = h->bits / 32 + 1;
    rows(v, "a", HA_READ, h->a, 1, 0, h->kv_heads * h->bits * h->head_dim * sizeof *h->a);
    for (size_t b = 0; b < h->batch; b++) {
        const struct ha_device_hash_seq *s = &h->seqs[b];
        rows(v, "x", HA_READ, s->x, s->tokens, s->token_stride * e, h->kv_heads * h->group * h->head_dim * e);
        codes(v, "codes", HA_WRITE, s->codes, h->kv_heads, s->code_head_bytes, s->first, s->tokens * h->group, words,
              h->bits);
    }
}

/* Which heads `only` names is known to the device alone: all of them are claimed, here and of topk. */
void ha_operands_device_hamming(const struct ha_device_hamming *h, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t words = h->bits / 32;
    for (size_t b = 0; b < h->batch; b++) {
        const struct ha_device_hamming_seq *s = &h->seqs[b];
        codes(v, "q", HA_READ, s->q, h->kv_heads, s->q_head_bytes, 0, h->rows, words, h->bits);
        codes(v, "codes", HA_READ, s->codes, h->kv_heads, s->code_head_bytes, 0, s->keys, words + 1, h->bits);
        rows(v, "only", HA_READ, s->only, 1, 0, h->kv_heads * sizeof *s->only);
        rows(v, "scores", HA_WRITE, s->s, h->kv_heads * h->rows, s->s_stride * sizeof *s->s, s->keys * sizeof *s->s);
    }
}

/* Labels are read, and written where a head misses. */
void ha_operands_device_similarity(const struct ha_device_similarity *d, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t f = sizeof(float), label = d->q_heads * d->head_dim * f;
    if (d->group == HA_SIMILAR_HARMONIC) rows(v, "importance", HA_READ, d->importance, 1, 0, d->q_heads * f);
    rows(v, "threshold", HA_READ, d->threshold, 1, 0, d->kv_heads * f);
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_similarity_seq *s = &d->seqs[b];
        rows(v, "q", HA_READ, s->q, 1, 0, d->q_len * label);
        rows(v, "label", HA_WRITE, s->label, 1, 0, label);
        rows(v, "similarity", HA_WRITE, s->similarity, 1, 0, d->kv_heads * f);
        rows(v, "missed", HA_WRITE, s->missed, 1, 0, d->kv_heads * sizeof *s->missed);
    }
}

/* Codes of keys [first, first + count) by product quantisation, of all heads that are head_bytes apart: of the blocks
 * that are not whole a few bytes of each group, which a code may share with its neighbours. */
static void pq_codes(struct visit v, enum ha_access access, const void *at, size_t heads, size_t head_bytes,
                     const struct ha_pq *pq, size_t first, size_t count)
{
    const size_t block = ha_pq_block_bytes(pq), of_group = block / pq->groups;
    for (size_t n; count; first += n, count -= n) {
        const size_t skip = first % HA_PQ_KEYS, left = HA_PQ_KEYS - skip, from = skip * pq->bits / 8;
        const char *const begin = (const char *)at + first / HA_PQ_KEYS * block;
        n = skip == 0 && count >= HA_PQ_KEYS ? count / HA_PQ_KEYS * HA_PQ_KEYS : left < count ? left : count;
        if (n >= HA_PQ_KEYS) rows(v, "codes", access, begin, heads, head_bytes, n / HA_PQ_KEYS * block);
        else
            grid(v, "codes", access, begin + from, heads, head_bytes, pq->groups, of_group,
                 ((skip + n) * pq->bits + 7) / 8 - from);
    }
}

static size_t book_bytes(const struct ha_pq *pq) { return ha_pq_book_floats(pq) * sizeof *pq->centroid; }

void ha_operands_device_pq_encode(const struct ha_device_pq_encode *e, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t key = e->pq.groups * e->pq.dims * ha_dtype_bytes(e->dtype);
    rows(v, "centroids", HA_READ, e->pq.centroid, 1, 0, e->kv_heads * book_bytes(&e->pq));
    for (size_t b = 0; b < e->batch; b++) {
        const struct ha_device_pq_encode_seq *s = &e->seqs[b];
        keys(v, "K", &s->rows, s->rows.k, s->rows.k_stride_bytes, e->kv_heads, s->k_head_bytes, key);
        rows(v, "index", HA_READ, s->rows.index, 1, 0, s->rows.keys * sizeof(uint32_t));
        pq_codes(v, HA_WRITE, s->codes, e->kv_heads, s->code_head_bytes, &e->pq, s->first, s->rows.keys);
    }
}

void ha_operands_device_pq_table(const struct ha_device_pq_table *t, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t heads = t->q_len * t->q_heads;
    rows(v, "centroids", HA_READ, t->pq.centroid, 1, 0, t->kv_heads * book_bytes(&t->pq));
    for (size_t b = 0; b < t->batch; b++) {
        const struct ha_device_pq_table_seq *s = &t->seqs[b];
        rows(v, "q", HA_READ, s->q, 1, 0, heads * t->pq.groups * t->pq.dims * sizeof *s->q);
        rows(v, "table", HA_WRITE, s->table, t->kv_heads, s->table_head_bytes,
             ha_pq_table_bytes(&t->pq, heads / t->kv_heads, t->type));
    }
}

void ha_operands_device_pq_score(const struct ha_device_pq_score *d, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t table = ha_pq_table_bytes(&d->pq, d->rows, d->type);
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_pq_score_seq *s = &d->seqs[b];
        rows(v, "table", HA_READ, s->table, d->kv_heads, s->table_head_bytes, table);
        pq_codes(v, HA_READ, s->codes, d->kv_heads, s->code_head_bytes, &d->pq, 0, s->keys);
        rows(v, "scores", HA_WRITE, s->s, d->kv_heads * d->rows, s->s_stride * sizeof *s->s, s->keys * sizeof *s->s);
    }
}

void ha_operands_device_softmax(const struct ha_device_softmax *d, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t f = sizeof(float);
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_softmax_seq *s = &d->seqs[b];
        rows(v, "x", HA_WRITE, s->x, d->heads * d->q_len, s->stride * f, s->n * f);
        rows(v, "lse", HA_WRITE, s->lse, d->q_len, s->lse_stride * f, d->heads * f);
    }
}

/* How many of a list are chosen is known to the device alone: all of it is claimed, and read by weighted_sum. */
void ha_operands_device_topp(const struct ha_device_topp *t, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t w = ha_dtype_bytes(t->w_type), f = sizeof(float), index = sizeof(uint32_t);
    for (size_t b = 0; b < t->batch; b++) {
        const struct ha_device_topp_seq *s = &t->seqs[b];
        rows(v, "x", HA_READ, s->x, t->lists * t->rows, s->stride * f, s->n * f);
        rows(v, "keys", HA_WRITE, s->keys, 1, 0, t->lists * sizeof *s->keys);
        rows(v, "index", HA_WRITE, s->index, t->lists, s->index_stride * index, s->n * index);
        rows(v, "weights", HA_WRITE, s->w, t->lists * t->rows, s->w_stride * w, s->n * w);
    }
}

void ha_operands_device_weighted_sum(const struct ha_device_weighted_sum *d, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t n = d->q_len * d->q_heads;
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_weighted_sum_seq *s = &d->seqs[b];
        whole(v, "V", HA_READ, s->v);
        rows(v, "keys", HA_READ, s->keys, 1, 0, d->q_heads * sizeof *s->keys);
        rows(v, "index", HA_READ, s->index, 1, 0, d->q_heads * s->index_stride * sizeof *s->index);
        rows(v, "weights", HA_READ, s->w, 1, 0, n * s->w_stride * ha_dtype_bytes(d->w_type));
        rows(v, "o", HA_WRITE, s->o, 1, 0, n * d->head_dim * sizeof *s->o);
    }
}

/* ---- the CPU's kernels ------------------------------------------------------------------------------------------- */

/* Its index is in host memory: read. */
static void listed(struct visit v, const char *role, const struct ha_rows *r, const void *at, size_t stride,
                   size_t bytes, size_t block)
{
    if (!r->index) rows(v, role, HA_READ, at, r->keys, stride, bytes);
    for (size_t i = 0; r->index && i < r->keys; i += block) {
        const size_t left = r->keys - i;
        rows(v, role, HA_READ, (const char *)at + r->index[i / block] * block * stride, left < block ? left : block,
             stride, bytes);
    }
}

static size_t packed_bytes(size_t count, size_t head_dim, enum ha_dtype t)
{
    return (count + HA_PACK_KEYS - 1) / HA_PACK_KEYS * ha_packed_block_bytes(head_dim, t);
}

void ha_operands_attend(const struct ha_attend *a, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t f = sizeof(float), key = a->head_dim * ha_dtype_bytes(a->dtype), block = a->block ? a->block : 1;
    size_t count = ha_packed_listed(&a->packed);
    grid(v, "q", HA_READ, a->q, a->q_len, a->q_token_stride * f, a->group, a->q_head_stride * f, a->head_dim * f);
    if (a->packed.keys)
        rows(v, "packed keys", HA_READ, a->packed.blocks, 1, 0, packed_bytes(a->packed.keys, a->head_dim, a->dtype));
    for (size_t i = 0; i < a->runs_count; i++) {
        listed(v, "K", &a->runs[i], a->runs[i].k, a->runs[i].k_stride_bytes, key, block);
        listed(v, "V", &a->runs[i], a->runs[i].v, a->runs[i].v_stride_bytes, key, block);
        count += a->runs[i].keys;
    }
    grid(v, "o", HA_WRITE, a->o, a->q_len, a->q_token_stride * f, a->group, a->q_head_stride * f, a->head_dim * f);
    grid(v, "lse", HA_WRITE, a->lse, a->q_len, a->lse_token_stride * f, a->group, a->lse_head_stride * f, f);
    rows(v, "weights", HA_WRITE, a->weights, a->group, a->weights_stride * f, count * f);
}

void ha_operands_pack(const struct ha_pack *p, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t key = p->head_dim * ha_dtype_bytes(p->dtype), first = p->at / HA_PACK_KEYS * HA_PACK_KEYS,
                 before = packed_bytes(first, p->head_dim, p->dtype);
    listed(v, "K", &p->rows, p->rows.k, p->rows.k_stride_bytes, key, 1);
    listed(v, "V", &p->rows, p->rows.v, p->rows.v_stride_bytes, key, 1);
    if (p->rows.keys)
        rows(v, "packed keys", HA_WRITE, (char *)p->blocks + before, 1, 0,
             packed_bytes(p->at + p->rows.keys, p->head_dim, p->dtype) - before);
}

void ha_operands_unpack(const struct ha_unpack *u, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t key = u->head_dim * ha_dtype_bytes(u->dtype),
                 before = packed_bytes(u->first / HA_PACK_KEYS * HA_PACK_KEYS, u->head_dim, u->dtype);
    if (u->index) whole(v, "packed keys", HA_READ, u->blocks);
    else
        rows(v, "packed keys", HA_READ, (const char *)u->blocks + before, 1, 0,
             packed_bytes(u->first + u->keys, u->head_dim, u->dtype) - before);
    rows(v, "k", HA_WRITE, u->k, u->keys, u->k_stride_bytes, key);
    rows(v, "v", HA_WRITE, u->v, u->keys, u->v_stride_bytes, key);
}

void ha_operands_digest(const struct ha_digest *d, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t key = d->head_dim * ha_dtype_bytes(d->dtype),
                 before = ha_digest_bytes(d->first / HA_PACK_KEYS * HA_PACK_KEYS, d->head_dim, d->dtype);
    listed(v, "K", &d->rows, d->rows.k, d->rows.k_stride_bytes, key, 1);
    rows(v, "digests", HA_WRITE, (char *)d->digests + before, 1, 0,
         ha_digest_bytes(d->first + d->blocks, d->head_dim, d->dtype) - before);
}

void ha_operands_score(const struct ha_score *s, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    rows(v, "q", HA_READ, s->q, 1, 0, s->head_dim * sizeof *s->q);
    listed(v, "K", &s->rows, s->rows.k, s->rows.k_stride_bytes, s->head_dim * ha_dtype_bytes(s->dtype), 1);
    rows(v, "scores", HA_WRITE, s->s, 1, 0, s->rows.keys * sizeof *s->s);
}

void ha_operands_digest_score(const struct ha_digest_score *s, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    rows(v, "q", HA_READ, s->q, s->q_rows, s->q_stride * sizeof *s->q, s->head_dim * sizeof *s->q);
    rows(v, "digests", HA_READ, s->digests, 1, 0, ha_digest_bytes(s->blocks, s->head_dim, s->dtype));
    rows(v, "scores", HA_WRITE, s->s, s->q_rows, s->s_stride * sizeof *s->s, s->blocks * sizeof *s->s);
}

void ha_operands_hash(const struct ha_hash *h, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    rows(v, "a", HA_READ, h->a, 1, 0, h->bits * h->head_dim * sizeof *h->a);
    listed(v, "x", &h->rows, h->rows.k, h->rows.k_stride_bytes, h->head_dim * ha_dtype_bytes(h->dtype), 1);
    codes(v, "codes", HA_WRITE, h->codes, 1, 0, h->first, h->rows.keys, h->bits / 32 + 1, h->bits);
}

void ha_operands_hamming(const struct ha_hamming *h, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    codes(v, "q", HA_READ, h->q, 1, 0, 0, h->q_rows, h->bits / 32, h->bits);
    codes(v, "codes", HA_READ, h->codes, 1, 0, 0, h->keys, h->bits / 32 + 1, h->bits);
    rows(v, "scores", HA_WRITE, h->s, h->q_rows, h->s_stride * sizeof *h->s, h->keys * sizeof *h->s);
}

void ha_operands_pq_encode(const struct ha_pq_encode *e, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    rows(v, "centroids", HA_READ, e->pq.centroid, 1, 0, book_bytes(&e->pq));
    listed(v, "K", &e->rows, e->rows.k, e->rows.k_stride_bytes, e->pq.groups * e->pq.dims * ha_dtype_bytes(e->dtype),
           1);
    pq_codes(v, HA_WRITE, e->codes, 1, 0, &e->pq, e->first, e->rows.keys);
}

void ha_operands_pq_table(const struct ha_pq_table *t, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t f = sizeof *t->q;
    rows(v, "centroids", HA_READ, t->pq.centroid, 1, 0, book_bytes(&t->pq));
    grid(v, "q", HA_READ, t->q, t->q_len, t->q_token_stride * f, t->group, t->q_head_stride * f,
         t->pq.groups * t->pq.dims * f);
    rows(v, "table", HA_WRITE, t->table, 1, 0, ha_pq_table_bytes(&t->pq, t->q_len * t->group, t->type));
}

void ha_operands_pq_score(const struct ha_pq_score *s, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    rows(v, "table", HA_READ, s->table, 1, 0, ha_pq_table_bytes(&s->pq, s->rows, s->type));
    pq_codes(v, HA_READ, s->codes, 1, 0, &s->pq, 0, s->keys);
    rows(v, "scores", HA_WRITE, s->s, s->rows, s->s_stride * sizeof *s->s, s->keys * sizeof *s->s);
}

void ha_operands_softmax(const struct ha_softmax *s, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    rows(v, "x", HA_WRITE, s->x, s->rows, s->stride * sizeof *s->x, s->n * sizeof *s->x);
    rows(v, "lse", HA_WRITE, s->lse, 1, 0, s->rows * sizeof *s->lse);
}

void ha_operands_topp(const struct ha_topp *t, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t w = ha_dtype_bytes(t->w_type), f = sizeof *t->x;
    rows(v, "x", HA_READ, t->x, t->rows, t->stride * f, t->n * f);
    rows(v, "keys", HA_WRITE, t->keys, 1, 0, sizeof *t->keys);
    rows(v, "index", HA_WRITE, t->index, 1, 0, t->n * sizeof *t->index);
    rows(v, "weights", HA_WRITE, t->w, t->rows, t->w_stride * w, t->n * w);
}

void ha_operands_weighted_sum(const struct ha_weighted_sum *s, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t w = ha_dtype_bytes(s->w_type), f = sizeof *s->o;
    rows(v, "index", HA_READ, s->rows.index, 1, 0, s->rows.keys * sizeof *s->rows.index);
    listed(v, "V", &s->rows, s->rows.v, s->rows.v_stride_bytes, s->head_dim * ha_dtype_bytes(s->dtype), 1);
    rows(v, "weights", HA_READ, s->w, s->q_rows, s->w_stride * w, s->rows.keys * w);
    rows(v, "o", HA_WRITE, s->o, s->q_rows, s->o_stride * f, s->head_dim * f);
}

void ha_operands_net(const struct ha_net *n, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    rows(v, "scratch", HA_WRITE, n->scratch, 1, 0, ha_net_scratch(n) * sizeof(float));
    ha_operands_device_net(n, fn, arg);
}

void ha_operands_device_net(const struct ha_net *n, ha_operand_fn *fn, void *arg)
{
    const struct visit v = { fn, arg };
    const size_t e = sizeof(float);
    rows(v, "w", HA_READ, n->w, 1, 0, ha_net_weights(n) * e);
    rows(v, "x", HA_READ, n->x, 1, 0, n->rows * n->width[0] * e);
    rows(v, "y", HA_WRITE, n->y, 1, 0, n->rows * n->width[n->layers] * e);
}
