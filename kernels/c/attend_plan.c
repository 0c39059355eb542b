#include "kernels/c/attend.h"
#include "kernels/rows.h"

enum { ALIGN = 64 };

struct ha_attend_plan ha_attend_plan(const struct ha_attend *a)
{
    struct ha_attend_plan p = { .packed = a->packed.keys > 0 ? ha_packed_listed(&a->packed) : 0 };
    p.keys = p.packed;
    for (size_t i = 0; i < a->runs_count; i++) p.keys += a->runs[i].keys;
    p.pieces = p.keys / HA_CHUNK_KEYS + HA_RUNS_MAX + 1;
    p.direct = a->weights && a->q_len == 1;
    p.keep = a->weights && !p.direct;
    p.weights_stride = p.direct ? a->weights_stride : (p.keep ? p.keys : HA_CHUNK_KEYS) + HA_ATTEND_PAD;
    p.rows = ha_least(HA_CHUNK_ROWS, a->q_len * a->group);
    if (p.keep && p.rows * p.weights_stride > HA_ATTEND_KEPT)
        p.rows = HA_ATTEND_KEPT / p.weights_stride > 0 ? HA_ATTEND_KEPT / p.weights_stride : 1;
    return p;
}

void *ha_attend_carve(char *memory, size_t *bytes, size_t count, size_t size)
{
    void *at = memory ? memory + *bytes : NULL;
    *bytes += (count * size + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

struct ha_attend_state ha_attend_state(const struct ha_attend *a, const struct ha_attend_plan *p, size_t rows,
                                       char *memory, size_t *bytes)
{
    const size_t f = sizeof(float);
    struct ha_attend_state s = { .rows = rows };
    s.level = ha_attend_carve(memory, bytes, rows, f);
    s.sum = ha_attend_carve(memory, bytes, rows, f);
    s.acc = ha_attend_carve(memory, bytes, rows * a->head_dim, f);
    if (a->weights) s.pieces = ha_attend_carve(memory, bytes, p->pieces * rows, f);
    return s;
}

struct ha_attend_state ha_attend_state_from(const struct ha_attend *a, const struct ha_attend_state *s, size_t r)
{
    return (struct ha_attend_state){
        .level = s->level + r,
        .sum = s->sum + r,
        .acc = s->acc + r * a->head_dim,
        .pieces = s->pieces ? s->pieces + r : NULL,
        .rows = s->rows,
    };
}

bool ha_attend_next(const struct ha_attend *a, const struct ha_attend_plan *p, size_t end, struct ha_attend_piece *x)
{
    x->first += x->keys;
    if (x->first >= end) return false;
    if (x->first < p->packed) {
        x->at = x->first;
        x->keys = ha_least(HA_CHUNK_KEYS, ha_least(p->packed, end) - x->first);
        return true;
    }
    size_t base = p->packed;
    for (x->run = a->runs; x->first - base >= x->run->keys; x->run++) base += x->run->keys;
    x->at = x->first - base;
    x->keys = ha_least(HA_CHUNK_KEYS, ha_least(x->run->keys - x->at, end - x->first));
    return true;
}
