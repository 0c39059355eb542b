/* What a fault does to the arguments of a call, to what it reads and to what it has written. */

#include "suites/defects/spell.h"

#include "harness/base/numeric.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BASE (*ha_wrong_base)

/* ---- arguments --------------------------------------------------------------------------------------------------- */

/* Where an attention has lists, they are of heads, and an index. */
static bool has_lists(const struct ha_spell *s)
{
    const struct ha_argument *lists = ha_argument_of(ha_drawn_fault.op, "lists");
    return lists && lists->flags & HA_ARGUMENT_FIXED && ha_argument_value(lists, s->args, NULL);
}

/* Query heads go with the KV heads. */
static void put_count(const struct ha_spell *s, size_t b, size_t value)
{
    const struct ha_argument *heads = ha_argument_of(ha_drawn_fault.op, "q_heads"), *a = ha_drawn_fault.of;
    if (!heads) heads = ha_argument_of(ha_drawn_fault.op, "heads");
    if (!strcmp(a->name, "kv_heads") && heads) {
        const size_t was = ha_argument_value(a, s->args, NULL), of = ha_argument_value(heads, s->args, NULL);
        if (!value || has_lists(s)) return;
        ha_spell_put(s, heads, 0, of / was * value);
    }
    ha_spell_put(s, a, b, value);
}

/* The other sequence has all that this one has, and more. */
static bool is_as_large(const struct ha_spell *s, size_t other, size_t b)
{
    for (size_t i = 0; i < ha_drawn_fault.op->arguments; i++) {
        const struct ha_argument *a = &ha_drawn_fault.op->argument[i];
        if (a->of_seq && (a->kind == HA_ARGUMENT_COUNT || a->kind == HA_ARGUMENT_STRIDE)
            && ha_argument_value(a, s->args, ha_spell_seq(s, other))
                   < ha_argument_value(a, s->args, ha_spell_seq(s, b)))
            return false;
    }
    return true;
}

static void put_real(const struct ha_spell *s, size_t b, double x)
{
    const struct ha_argument *a = ha_drawn_fault.of;
    const float small = (float)x;
    memcpy(ha_spell_place(s, a, b), a->bytes == sizeof x ? (const void *)&x : &small, a->bytes);
}
static double real_of(const struct ha_spell *s, size_t b)
{
    double large;
    float small;
    const char *const at = ha_spell_place(s, ha_drawn_fault.of, b);
    if (ha_drawn_fault.of->bytes == sizeof small) return memcpy(&small, at, sizeof small), (double)small;
    return memcpy(&large, at, sizeof large), large;
}

static void leave_out(const struct ha_spell *s, size_t b)
{
    const struct ha_argument *a = ha_drawn_fault.of, *dim = ha_argument_of(ha_drawn_fault.op, "head_dim");
    if (a->flags & HA_ARGUMENT_INDEX && has_lists(s)) return;
    const size_t dims = dim ? ha_argument_value(dim, s->args, NULL) : 1;
    if (a->kind == HA_ARGUMENT_REAL) put_real(s, b, isnan(a->neutral) ? 1 / sqrt((double)dims) : a->neutral);
    else memset(ha_spell_place(s, a, b), 0, a->bytes);
}

static void change_argument(const struct ha_spell *s, size_t b, size_t other)
{
    const struct ha_argument *a = ha_drawn_fault.of;
    const size_t was = ha_argument_value(a, s->args, ha_spell_seq(s, b));
    switch (ha_drawn_fault.effect) {
    case HA_FAULT_FEWER:
    case HA_FAULT_ROUNDED:
    case HA_FAULT_CAPPED:
    case HA_FAULT_BITS:
        if (ha_fault_count(&ha_drawn_fault, was) != was) put_count(s, b, ha_fault_count(&ha_drawn_fault, was));
        return;
    case HA_FAULT_IGNORED: leave_out(s, b); return;
    case HA_FAULT_TAKEN: {
        const size_t as = ha_argument_value(ha_drawn_fault.as, s->args, ha_spell_seq(s, b));
        if (as < was) ha_spell_put(s, a, b, as);
        return;
    }
    case HA_FAULT_WORD: ha_spell_put(s, a, b, ha_drawn_fault.x); return;
    case HA_FAULT_REAL: put_real(s, b, ha_drawn_fault.real); return;
    case HA_FAULT_SCALED: put_real(s, b, real_of(s, b) * ha_drawn_fault.real); return;
    case HA_FAULT_STRIDE: ha_spell_put(s, a, b, was / ha_drawn_fault.x * ha_drawn_fault.x); return;
    case HA_FAULT_FIRST_SEQ:
    case HA_FAULT_SEQ_BEFORE:
        if (ha_spell_pointer(s, a, b) && ha_spell_pointer(s, a, other) && is_as_large(s, other, b))
            memcpy(ha_spell_place(s, a, b), ha_spell_place(s, a, other), sizeof(void *));
        return;
    default: ha_spell_put(s, a, b, was / ha_drawn_fault.x * ha_drawn_fault.x);
    }
}

/* From the last sequence on: those that others take from are as they were. */
void ha_change_arguments(const struct ha_spell *s)
{
    for (size_t b = ha_drawn_fault.of->of_seq ? s->batch : 1; b-- > 0;) {
        bool hit = s->hit[b];
        for (size_t i = 0; i < s->batch && !ha_drawn_fault.of->of_seq; i++) hit |= s->hit[i];
        if (hit) change_argument(s, b, ha_drawn_fault.effect == HA_FAULT_SEQ_BEFORE && b ? b - 1 : 0);
    }
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

/* What a device that keeps inputs by their address has. */
static struct {
    const void *key;
    struct ha_block of;
    char *at;
} cache[64];
static size_t cached;

/* What of a block the operand is, of all sequences. */
struct extent {
    struct ha_block of;
    char *from, *to;
};
static void widen(void *arg, const char *role, enum ha_access access, struct ha_range range)
{
    struct extent *x = arg;
    char *const end = x->of.at + x->of.bytes, *at = (char *)(uintptr_t)range.at;
    if (access != HA_READ || strcmp(role, ha_drawn_fault.of->name) != 0 || at < x->of.at || at >= end) return;
    const bool all = range.bytes == SIZE_MAX;
    char *const to = all ? end : at + (range.rows - 1) * range.stride + range.bytes;
    if (all) at = x->of.at;
    if (!x->from || at < x->from) x->from = at;
    if (to > x->to) x->to = to;
}
static struct ha_block part_of(const struct ha_spell *s, const void *at)
{
    struct extent x = { .of = ha_block_of(at) };
    if (x.of.at) s->way->visit(s->args, widen, &x);
    if (!x.from) return x.of;
    char *const from = x.from - (uintptr_t)x.from % 64 < x.of.at ? x.of.at : x.from - (uintptr_t)x.from % 64;
    char *const end = x.of.at + x.of.bytes;
    x.to = end - x.to < 4096 ? end : x.to + 4096; /* blocks of codes that are not whole are allocated whole */
    return (struct ha_block){ .at = from, .bytes = (size_t)(x.to - from), .kind = x.of.kind };
}

static char *input_in_place(struct ha_spell *s, const void *at)
{
    struct ha_why why;
    for (size_t i = 0; i < s->inputs; i++)
        if ((const char *)at >= s->input[i].of.at && (const char *)at < s->input[i].of.at + s->input[i].of.bytes)
            return s->input[i].at + ((const char *)at - s->input[i].of.at);
    const struct ha_block of = part_of(s, at);
    if (!of.at || (const char *)at < of.at) return NULL;
    const size_t offset = (size_t)((const char *)at - of.at);
    if (s->inputs == HA_SPELL_INPUTS) return NULL;
    for (size_t i = 0; i < cached && ha_drawn_fault.effect == HA_FAULT_CACHED; i++) {
        const size_t was = (size_t)((const char *)at - cache[i].of.at); /* in a block that may be gone */
        if (cache[i].key == at && cache[i].of.bytes - was >= of.bytes - offset) return cache[i].at + was;
    }
    void *to;
    if (BASE.mem_alloc(ha_wrong_device, of.kind, of.bytes, &to, &why) != HA_OK) return NULL;
    const bool early = ha_drawn_fault.effect == HA_FAULT_READ_EARLY;
    if (early) memcpy(to, of.at, of.bytes);
    s->input[s->inputs].of = of;
    s->input[s->inputs].at = to;
    s->input[s->inputs].fill = !early;
    if (ha_drawn_fault.effect == HA_FAULT_CACHED && cached < sizeof cache / sizeof *cache) {
        s->input[s->inputs].cached = true;
        cache[cached].key = at;
        cache[cached].of = of;
        cache[cached++].at = to;
    }
    s->inputs++;
    return (char *)to + offset;
}

void ha_change_inputs(struct ha_spell *s)
{
    for (size_t b = 0; b < (ha_drawn_fault.of->of_seq ? s->batch : 1); b++) {
        void *const at = s->hit[b] ? ha_spell_pointer(s, ha_drawn_fault.of, b) : NULL, *const other =
                                                                                           at ? input_in_place(s, at)
                                                                                              : NULL;
        if (other) memcpy(ha_spell_place(s, ha_drawn_fault.of, b), &other, sizeof other);
    }
}

void ha_change_end(void)
{
    for (size_t i = 0; i < cached; i++) BASE.mem_free(ha_wrong_device, cache[i].of.kind, cache[i].at);
    cached = 0;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

struct rows {
    const struct ha_spell *spell;
    bool all; /* outputs; else the fault's alone */
    struct row {
        char *at;
        size_t bytes;
    } * row;
    size_t count, room, row_bytes;
};

static void add_row(struct rows *r, char *at, size_t bytes)
{
    if (r->count == r->room) {
        r->room = 2 * r->room + 64;
        r->row = realloc(r->row, r->room * sizeof *r->row);
        if (!r->row) abort();
    }
    r->row[r->count++] = (struct row){ at, bytes };
}
/* The name of an operand ends with its role: src_index is an index. */
static bool is_operand(const char *role)
{
    const size_t n = strlen(ha_drawn_fault.of->name), m = strlen(role);
    return n >= m && !strcmp(ha_drawn_fault.of->name + n - m, role);
}
/* An input that is read in place stays as it is. */
static bool is_copied(const struct ha_spell *s, const char *at)
{
    for (size_t i = 0; i < s->inputs; i++)
        if (at >= s->input[i].at && at < s->input[i].at + s->input[i].of.bytes) return true;
    return false;
}
static void add_rows(void *arg, const char *role, enum ha_access access, struct ha_range range)
{
    struct rows *r = arg;
    const bool reads = !r->all && ha_drawn_fault.of->kind == HA_ARGUMENT_IN;
    if (access != (reads ? HA_READ : HA_WRITE) || (!r->all && !is_operand(role))) return;
    if (reads && (range.bytes == SIZE_MAX || !is_copied(r->spell, range.at))) return;
    const size_t part = !r->all && r->row_bytes && range.bytes % r->row_bytes == 0 ? r->row_bytes : range.bytes;
    for (size_t i = 0; i < range.rows; i++)
        for (size_t at = 0; at < range.bytes; at += part)
            add_row(r, (char *)(uintptr_t)range.at + i * range.stride + at, part);
}

/* Where a move writes is known when it runs. */
static void visit(const struct ha_way *way, const void *args, struct rows *r)
{
    const struct ha_device_move *m = args;
    const bool moves = !strcmp(ha_drawn_fault.op->name, "move") && m->dst_index;
    way->visit(args, add_rows, r);
    for (size_t i = 0; moves && ha_drawn_fault.of->kind == HA_ARGUMENT_OUT && i < m->rows; i++)
        add_row(r, (char *)m->dst + m->dst_index[i] * m->dst_stride_bytes, m->row_bytes);
}

/* The rows of the operand that the fault has, of the sequences in which it is wrong: of an input heads, where their
 * dimensions are known. */
static struct rows rows_of(const struct ha_spell *s)
{
    const struct ha_operation *op = ha_drawn_fault.op;
    const struct ha_argument *const of = ha_drawn_fault.of, *in = NULL;
    struct rows r = { .spell = s, .all = ha_drawn_fault.effect == HA_FAULT_UNREAD };
    enum ha_dtype type;
    if (!r.all && of->row) in = ha_argument_of(op, of->row);
    else if (!r.all && of->kind == HA_ARGUMENT_IN && of->element >= HA_ELEMENT_FLOATS)
        in = ha_argument_of(op, "head_dim");
    for (size_t b = 0; b < s->batch; b++) {
        if (!s->hit[b]) continue;
        if (in)
            r.row_bytes = ha_argument_value(in, s->args, ha_spell_seq(s, b))
                          * ha_argument_element(op, of, s->args, &type);
        if (!s->seqs) {
            visit(s->way, s->args, &r);
            continue;
        }
        char *one = ha_spell_room(op->bytes);
        const char *const seq = ha_spell_seq(s, b);
        const size_t single = 1, before = r.count;
        memcpy(one, s->args, op->bytes);
        memcpy(one + op->batch, &single, sizeof single);
        memcpy(one + op->seqs, &seq, sizeof seq);
        visit(s->way, one, &r);
        free(one);
        if (!r.all && !of->of_seq && r.count > before) break; /* one for all of them */
    }
    return r;
}

static bool is_chosen(size_t i, size_t count, size_t before)
{
    switch (ha_drawn_fault.rows) {
    case HA_ROWS_FIRST: return i == 0;
    case HA_ROWS_LAST: return i + 1 == count;
    case HA_ROWS_MIDDLE: return i == count / 2;
    case HA_ROWS_EACH: return i % ha_drawn_fault.each == 0;
    case HA_ROWS_ONE_IN: return (before + i) % ha_drawn_fault.each == ha_drawn_fault.each - 1;
    case HA_ROWS_ALL: break;
    }
    return true;
}

static void swap(char *a, char *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const char c = a[i];
        a[i] = b[i];
        b[i] = c;
    }
}

static void change_float(char *at, enum ha_dtype type)
{
    const struct ha_fault *const f = &ha_drawn_fault;
    const float x = ha_load(at, 0, type), most = type == HA_F16 ? 65504 : type == HA_F32 ? FLT_MAX : 3e38f;
    if (isnan(x) && f->effect != HA_FAULT_NO_NAN && f->effect != HA_FAULT_NAN_INF) return;
    switch (f->effect) {
    case HA_FAULT_NARROW:
        if (type == HA_F32 || (type == HA_F16 && f->x == HA_BF16))
            ha_store(at, 0, type, ha_round(x, (enum ha_dtype)f->x));
        return;
    case HA_FAULT_NO_NAN:
    case HA_FAULT_NAN_INF:
        if (isnan(x)) ha_store(at, 0, type, f->effect == HA_FAULT_NO_NAN ? 0 : INFINITY);
        return;
    case HA_FAULT_NO_INF:
        if (isinf(x)) ha_store(at, 0, type, copysignf(most, x));
        return;
    case HA_FAULT_MOST:
    case HA_FAULT_LEAST:
        if (f->effect == HA_FAULT_MOST ? (double)x > f->real : (double)x < f->real)
            ha_store(at, 0, type, (float)f->real);
        return;
    case HA_FAULT_NO_ZERO: *at = (char)(*at | (x == 0)); return; /* little-endian */
    case HA_FAULT_NEARER:
        if (x != 0 && isfinite(x) && type == HA_F32) ha_store(at, 0, type, nextafterf(x, 0));
        else if (x != 0 && isfinite(x)) --*(uint16_t *)(void *)at;
        return;
    case HA_FAULT_TIMES: ha_store(at, 0, type, f->real != 0 ? (float)((double)x * f->real) : 0); return;
    default: ha_store(at, 0, type, x * (1 + 0x1p-6f) + (x == 0 ? 0x1p-6f : 0));
    }
}
static void change_whole(char *at, size_t bytes)
{
    const struct ha_fault *const f = &ha_drawn_fault;
    uint32_t x = 0;
    memcpy(&x, at, bytes);
    switch (f->effect) {
    case HA_FAULT_NO_ZERO: x = x ? x : UINT32_MAX; break;
    case HA_FAULT_TIMES: x = (uint32_t)(int64_t)(f->real * (double)x); break;
    case HA_FAULT_LOW: x &= (1u << f->x) - 1; break;
    case HA_FAULT_OFF: *at = (char)(*at + (bytes == 1 ? 16 : 1)); return;
    default: return;
    }
    memcpy(at, &x, bytes);
}
/* Of equals in a row each second one. */
static void untie(char *at, size_t n, size_t bytes, enum ha_dtype type)
{
    for (size_t i = 1; i < n; i++) {
        char *const x = at + i * bytes;
        if (memcmp(x, x - bytes, bytes) != 0) continue;
        if ((size_t)type < HA_DTYPE_COUNT) ha_store(x, 0, type, nextafterf(ha_load(x, 0, type), INFINITY));
        else if (*x) --*x;
    }
}

static void change_row(const struct rows *r, size_t i, const char *was)
{
    enum ha_dtype type;
    const struct row *const row = &r->row[i];
    const size_t e = ha_argument_element(ha_drawn_fault.op, ha_drawn_fault.of, r->spell->args, &type),
                 n = row->bytes / e,
                 count = ha_drawn_fault.numbers == HA_NUMBERS_ALL || ha_drawn_fault.count > n ? n
                                                                                              : ha_drawn_fault.count,
                 from = ha_drawn_fault.numbers == HA_NUMBERS_LAST     ? n - count
                        : ha_drawn_fault.numbers == HA_NUMBERS_MIDDLE ? (n - count) / 2
                                                                      : 0;
    char *const at = row->at + from * e;
    const bool whole = count == n && i + 1 < r->count && r->row[i + 1].bytes == row->bytes;
    switch (ha_drawn_fault.effect) {
    case HA_FAULT_STALE: memcpy(at, was + from * e, count * e); return;
    case HA_FAULT_BESIDE: {
        const struct ha_block of = ha_block_of(row->at);
        char *const beside = row->at + row->bytes;
        for (size_t k = 0; k < e && of.at && beside + e <= of.at + of.bytes; k++) beside[k] = (char)~beside[k];
        return;
    }
    case HA_FAULT_NEXT_ROW: /* one after the other, so that the first row goes to the end */
    case HA_FAULT_SWAPPED:
        if (whole) swap(row->at, row[1].at, row->bytes);
        else if (n > 1 && (r->count == 1 || ha_drawn_fault.effect == HA_FAULT_SWAPPED))
            for (size_t k = from; k < (r->count == 1 && count == n ? n - 1 : from + 1); k++)
                swap(row->at + (k + 1 < n ? k : k - 1) * e, row->at + (k + 1 < n ? k + 1 : k) * e, e);
        return;
    case HA_FAULT_FIRST_ROW:
        if (row->bytes == r->row->bytes && i) memcpy(at, r->row->at + from * e, count * e);
        for (size_t k = 1; k < n && r->count == 1; k++) memcpy(row->at + k * e, row->at, e);
        return;
    case HA_FAULT_REVERSED:
        for (size_t k = 0; k < count / 2; k++) swap(at + k * e, at + (count - 1 - k) * e, e);
        return;
    case HA_FAULT_TIED: untie(at, count, e, type); return;
    default:
        for (size_t k = 0; k < count; k++)
            if ((size_t)type < HA_DTYPE_COUNT) change_float(at + k * e, type);
            else change_whole(at + k * e, e);
    }
}

static void change_rows(const struct ha_spell *s, const char *was)
{
    static size_t before;
    struct rows r = rows_of(s);
    const bool unread = ha_drawn_fault.effect == HA_FAULT_UNREAD,
               same = unread && !memcmp(s->given, s->seqs, s->batch * ha_drawn_fault.op->seq_bytes);
    for (size_t i = 0; i < r.count && !same; i++) {
        if (unread) memcpy(r.row[i].at, was, r.row[i].bytes);
        else if (is_chosen(i, r.count, before)) change_row(&r, i, was);
        if (was) was += r.row[i].bytes;
    }
    __atomic_fetch_add(&before, r.count, __ATOMIC_RELAXED);
    free(r.row);
}

/* ---- before the call and behind it ------------------------------------------------------------------------------- */

void ha_fill_inputs(void *arg)
{
    struct ha_spell *s = arg;
    for (size_t i = 0; i < s->inputs; i++)
        if (s->input[i].fill) memcpy(s->input[i].at, s->input[i].of.at, s->input[i].of.bytes);
    if (ha_drawn_fault.effect >= HA_FAULT_STALE) change_rows(s, NULL);
}

void ha_save_outputs(void *arg)
{
    struct ha_spell *s = arg;
    struct rows r = rows_of(s);
    size_t bytes = 0;
    for (size_t i = 0; i < r.count; i++) bytes += r.row[i].bytes;
    free(s->saved);
    s->saved = ha_spell_room(bytes);
    bytes = 0;
    for (size_t i = 0; i < r.count; bytes += r.row[i++].bytes) memcpy(s->saved + bytes, r.row[i].at, r.row[i].bytes);
    free(r.row);
    if (ha_drawn_fault.before) change_rows(s, NULL);
}

void ha_change_outputs(void *arg)
{
    struct ha_spell *s = arg;
    if (!ha_drawn_fault.before) change_rows(s, s->saved);
    ha_spell_over(s);
}
void ha_spoil_inputs(void *arg)
{
    struct ha_spell *s = arg;
    for (size_t b = 0; b < (ha_drawn_fault.of->of_seq ? s->batch : 1); b++) {
        unsigned char *const at = s->hit[b] ? ha_spell_pointer(s, ha_drawn_fault.of, b) : NULL;
        if (at) ++*at;
    }
    ha_spell_over(s);
}
