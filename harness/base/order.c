#include "harness/base/order.h"

#include "harness/base/array.h"
#include "harness/base/why.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 24, READS = 4, VALUES = 64, CHAINS = 256 };

/* at[a]: of actor a everything up to this epoch is ordered before */
struct clock {
    uint64_t at[HA_ORDER_ACTORS];
};

struct actor {
    char name[NAME];
    bool is_thread, is_unknown, is_free;
    struct clock clock;
};

/* One access to some bytes; op 0: none. */
struct touch {
    uint64_t epoch;
    uint32_t op, actor;
};

/* Bytes with one past. Reads: those since the write that no later one follows. */
struct span {
    uintptr_t begin, end;
    struct touch write, read[READS];
};

struct region {
    uintptr_t begin, end;
    const char *kind;
    struct span *span; /* disjoint, ascending */
    size_t spans, room;
    struct ha_range *named; /* what an index into it may name, where that is known */
    size_t names, names_room;
    bool is_named;
};

/* what the words of a conflict need */
struct op {
    const char *name, *role;
    char actor[NAME];
    bool is_thread;
    size_t step, layer;
};

struct value {
    uint64_t value;
    struct clock clock;
};

struct mark {
    struct mark *next;
    const void *key;
    struct value *value; /* the last VALUES, oldest first */
    size_t values, room;
};

struct ha_order {
    pthread_mutex_t lock;
    uint64_t number;        /* of this history in the process */
    _Atomic size_t threads; /* that were seen */
    struct actor actor[HA_ORDER_ACTORS];
    size_t actors;
    struct mark *mark[CHAINS];
    struct region *region; /* ascending */
    size_t regions, regions_room;
    struct op *op; /* op[0] is none */
    size_t ops, ops_room;
    struct span *scratch;
    size_t scratch_count, scratch_room;
    size_t step, layer;
    bool no_memory, too_many;
    char conflict[HA_ORDER_TEXT];
};

static _Atomic uint64_t histories;

static void free_region(struct region *r)
{
    free(r->span);
    free(r->named);
}

enum ha_status ha_order_create(struct ha_order **order, struct ha_why *why)
{
    struct ha_order *o = *order = calloc(1, sizeof *o);
    if (!o) return ha_why(why, HA_ERROR, "order: out of memory");
    pthread_mutex_init(&o->lock, NULL);
    o->number = atomic_fetch_add(&histories, UINT64_C(1)) + 1;
    o->ops = 1;
    o->step = o->layer = SIZE_MAX;
    return HA_OK;
}

static void free_mark(struct mark *m)
{
    free(m->value);
    free(m);
}

void ha_order_destroy(struct ha_order *o)
{
    if (!o) return;
    for (size_t c = 0; c < CHAINS; c++)
        for (struct mark *m = o->mark[c], *next; m; m = next) {
            next = m->next;
            free_mark(m);
        }
    for (size_t i = 0; i < o->regions; i++) free_region(&o->region[i]);
    free(o->region);
    free(o->op);
    free(o->scratch);
    pthread_mutex_destroy(&o->lock);
    free(o);
}

/* ---- clocks ------------------------------------------------------------------------------------------------------ */

static void join(struct clock *to, const struct clock *from)
{
    for (size_t a = 0; a < HA_ORDER_ACTORS; a++)
        if (from->at[a] > to->at[a]) to->at[a] = from->at[a];
}

static void meet(struct clock *to, const struct clock *from)
{
    for (size_t a = 0; a < HA_ORDER_ACTORS; a++)
        if (from->at[a] < to->at[a]) to->at[a] = from->at[a];
}

/* What the actor does from now on is later than what others have seen of it. */
static void tick(struct ha_order *o, size_t actor) { o->actor[actor].clock.at[actor]++; }

static void follow(struct ha_order *o, size_t actor, size_t other)
{
    if (actor == other || actor >= o->actors || other >= o->actors) return;
    join(&o->actor[actor].clock, &o->actor[other].clock);
    tick(o, other);
}

size_t ha_order_actor(struct ha_order *o, const char *name, bool is_thread)
{
    pthread_mutex_lock(&o->lock);
    size_t i = 0;
    while (i < o->actors && !o->actor[i].is_free) i++;
    if (i == HA_ORDER_ACTORS) {
        o->too_many = true;
        i = HA_ORDER_NONE;
    } else {
        /* an actor that takes the place of another goes on with its clock */
        o->actors = i == o->actors ? i + 1 : o->actors;
        o->actor[i].is_free = o->actor[i].is_unknown = false;
        o->actor[i].is_thread = is_thread;
        snprintf(o->actor[i].name, NAME, "%s", name);
        tick(o, i);
    }
    pthread_mutex_unlock(&o->lock);
    return i;
}

void ha_order_retire(struct ha_order *o, size_t actor, size_t by)
{
    pthread_mutex_lock(&o->lock);
    follow(o, by, actor);
    if (actor < o->actors) o->actor[actor].is_free = true;
    pthread_mutex_unlock(&o->lock);
}

void ha_order_follow(struct ha_order *o, size_t actor, size_t other)
{
    pthread_mutex_lock(&o->lock);
    follow(o, actor, other);
    pthread_mutex_unlock(&o->lock);
}

void ha_order_follow_threads(struct ha_order *o, size_t actor)
{
    pthread_mutex_lock(&o->lock);
    for (size_t i = 0; i < o->actors; i++)
        if (o->actor[i].is_thread) follow(o, actor, i);
    pthread_mutex_unlock(&o->lock);
}

void ha_order_unknown(struct ha_order *o, size_t actor, bool unknown)
{
    pthread_mutex_lock(&o->lock);
    if (actor < o->actors) o->actor[actor].is_unknown = unknown;
    pthread_mutex_unlock(&o->lock);
}

static struct mark **find_mark(struct ha_order *o, const void *key)
{
    struct mark **m = &o->mark[((uintptr_t)key >> 4) % CHAINS];
    while (*m && (*m)->key != key) m = &(*m)->next;
    return m;
}

void ha_order_signal(struct ha_order *o, size_t actor, const void *key, uint64_t value)
{
    if (actor >= HA_ORDER_ACTORS) return;
    pthread_mutex_lock(&o->lock);
    struct mark **at = find_mark(o, key), *m = *at ? *at : (*at = calloc(1, sizeof *m));
    if (!m) o->no_memory = true;
    else {
        m->key = key;
        if (!value) m->values = 0;
        if (m->values == VALUES) memmove(m->value, m->value + 1, --m->values * sizeof *m->value);
        if (ha_array_room(&m->value, &m->room, m->values + 1, sizeof *m->value))
            m->value[m->values++] = (struct value){ value, o->actor[actor].clock };
        else o->no_memory = true;
        tick(o, actor);
    }
    pthread_mutex_unlock(&o->lock);
}

bool ha_order_await(struct ha_order *o, size_t actor, const void *key, uint64_t value)
{
    bool found = false;
    if (actor >= HA_ORDER_ACTORS) return false;
    pthread_mutex_lock(&o->lock);
    const struct mark *m = *find_mark(o, key);
    struct clock common;
    for (size_t i = 0; m && i < m->values; i++) {
        if (m->value[i].value < value) continue;
        if (found) meet(&common, &m->value[i].clock);
        else common = m->value[i].clock;
        found = true;
    }
    if (found) join(&o->actor[actor].clock, &common);
    pthread_mutex_unlock(&o->lock);
    return found;
}

void ha_order_drop(struct ha_order *o, const void *key)
{
    pthread_mutex_lock(&o->lock);
    struct mark **at = find_mark(o, key), *m = *at;
    if (m) {
        *at = m->next;
        free_mark(m);
    }
    pthread_mutex_unlock(&o->lock);
}

void ha_order_at(struct ha_order *o, size_t step, size_t layer)
{
    pthread_mutex_lock(&o->lock);
    o->step = step;
    o->layer = layer;
    pthread_mutex_unlock(&o->lock);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* The number of an operation: those that read the same in words are one. */
static uint32_t op_number(struct ha_order *o, size_t actor, const char *name, const char *role)
{
    enum { BACK = 64 };
    struct op new = {
        .name = name, .role = role, .is_thread = o->actor[actor].is_thread, .step = o->step, .layer = o->layer
    };
    memcpy(new.actor, o->actor[actor].name, NAME);
    for (size_t i = o->ops; i > 1 && i + BACK > o->ops; i--) {
        const struct op *p = &o->op[i - 1];
        if (p->name == name && p->role == role && p->step == new.step && p->layer == new.layer
            && p->is_thread == new.is_thread && !strcmp(p->actor, new.actor))
            return (uint32_t)(i - 1);
    }
    if (!ha_array_room(&o->op, &o->ops_room, o->ops + 1, sizeof *o->op)) {
        o->no_memory = true;
        return 0;
    }
    o->op[o->ops] = new;
    return (uint32_t)o->ops++;
}

/* "write of o by merge on main (step 1 layer 0)" */
static void say_op(char *out, size_t size, const struct op *op, enum ha_access access)
{
    const char *verb = access == HA_WRITE ? "write" : "read";
    size_t n = (size_t)snprintf(out, size, "%s of %s by %s on %s%s", verb, op->role, op->name,
                                op->is_thread ? "thread " : "", op->actor);
    if (op->step != SIZE_MAX && n < size) snprintf(out + n, size - n, " (step %zu layer %zu)", op->step, op->layer);
}

static void say_conflict(struct ha_order *o, const struct region *r, const struct span *s, const struct touch *before,
                         enum ha_access then, const struct op *now, enum ha_access access)
{
    char one[112], other[112], edge[128];
    const struct op *p = &o->op[before->op];
    if (*o->conflict) return;
    say_op(one, sizeof one, p, then);
    if (now) say_op(other, sizeof other, now, access);
    else snprintf(other, sizeof other, "the end of that memory");
    if (!p->is_thread && now && !now->is_thread)
        snprintf(edge, sizeof edge, "event_record on %s behind the one, stream_wait on %s before the other", p->actor,
                 now->actor);
    else if (!p->is_thread)
        snprintf(edge, sizeof edge, "event_record on %s behind the one, event_sync before the other", p->actor);
    else snprintf(edge, sizeof edge, "the thread that enqueues or does the other has to wait for the one");
    snprintf(o->conflict, sizeof o->conflict,
             "order: %s, %s: nothing orders them; bytes [%zu, %zu) of %zu, %s memory; %s", one, other,
             (size_t)(s->begin - r->begin), (size_t)(s->end - r->begin), (size_t)(r->end - r->begin), r->kind, edge);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Of n ascending structs, each with an end at this offset, the first that ends behind at. */
static size_t find(const void *first, size_t n, size_t bytes, size_t offset, uintptr_t at)
{
    size_t low = 0, high = n;
    while (low < high) {
        const size_t mid = (low + high) / 2;
        uintptr_t end;
        memcpy(&end, (const char *)first + mid * bytes + offset, sizeof end);
        if (end > at) high = mid;
        else low = mid + 1;
    }
    return low;
}

static size_t find_region(const struct ha_order *o, uintptr_t at)
{
    return find(o->region, o->regions, sizeof *o->region, offsetof(struct region, end), at);
}

static void remove_region(struct ha_order *o, size_t i)
{
    free_region(&o->region[i]);
    memmove(o->region + i, o->region + i + 1, (--o->regions - i) * sizeof *o->region);
}

/* Flags that were there before. */
static void forget_marks(struct ha_order *o, uintptr_t begin, size_t bytes)
{
    for (size_t i = 0; i < CHAINS; i++)
        for (struct mark **at = &o->mark[i], *m; (m = *at);) {
            if ((uintptr_t)m->key - begin >= bytes) {
                at = &m->next;
                continue;
            }
            *at = m->next;
            free_mark(m);
        }
}

void ha_order_memory(struct ha_order *o, const char *kind, const void *ptr, size_t bytes)
{
    const uintptr_t begin = (uintptr_t)ptr;
    if (!bytes) return;
    pthread_mutex_lock(&o->lock);
    forget_marks(o, begin, bytes);
    size_t i = find_region(o, begin);
    /* what was given back without a word */
    while (i < o->regions && o->region[i].begin < begin + bytes) remove_region(o, i);
    if (ha_array_room(&o->region, &o->regions_room, o->regions + 1, sizeof *o->region)) {
        memmove(o->region + i + 1, o->region + i, (o->regions++ - i) * sizeof *o->region);
        o->region[i] = (struct region){ .begin = begin, .end = begin + bytes, .kind = kind };
    } else o->no_memory = true;
    pthread_mutex_unlock(&o->lock);
}

static bool is_before(const struct touch *t, size_t actor, const struct clock *clock)
{
    return !t->op || t->actor == actor || clock->at[t->actor] >= t->epoch;
}

/* What is not ordered before an access, if anything is; *then is what it did. */
static const struct touch *conflict_of(const struct span *s, size_t actor, const struct clock *clock,
                                       enum ha_access access, enum ha_access *then)
{
    *then = HA_WRITE;
    if (!is_before(&s->write, actor, clock)) return &s->write;
    *then = HA_READ;
    for (size_t i = 0; i < READS && access == HA_WRITE; i++)
        if (!is_before(&s->read[i], actor, clock)) return &s->read[i];
    return NULL;
}

void ha_order_freed(struct ha_order *o, size_t actor, const void *ptr)
{
    pthread_mutex_lock(&o->lock);
    const size_t i = find_region(o, (uintptr_t)ptr);
    if (i < o->regions && o->region[i].begin == (uintptr_t)ptr) {
        const struct region *r = &o->region[i];
        enum ha_access then;
        for (size_t k = 0; k < r->spans && actor < o->actors; k++) {
            const struct touch *t = conflict_of(&r->span[k], actor, &o->actor[actor].clock, HA_WRITE, &then);
            if (t) say_conflict(o, r, &r->span[k], t, then, NULL, HA_WRITE);
        }
        remove_region(o, i);
    }
    pthread_mutex_unlock(&o->lock);
}

/* An access, while it is entered into a region. */
struct entry {
    struct ha_order *order;
    const struct region *region;
    struct touch touch;
    enum ha_access access;
};

static void push(struct ha_order *o, struct span s)
{
    struct span *last = o->scratch_count ? &o->scratch[o->scratch_count - 1] : NULL;
    if (last && last->end == s.begin && !memcmp(&last->write, &s.write, sizeof s.write)
        && !memcmp(last->read, s.read, sizeof s.read))
        last->end = s.end;
    else o->scratch[o->scratch_count++] = s;
}

/* These bytes are accessed. */
static void enter(const struct entry *e, struct span s)
{
    struct ha_order *o = e->order;
    const struct clock *clock = &o->actor[e->touch.actor].clock;
    enum ha_access then;
    const struct touch *t = conflict_of(&s, e->touch.actor, clock, e->access, &then);
    if (t) say_conflict(o, e->region, &s, t, then, &o->op[e->touch.op], e->access);
    size_t kept = 0;
    /* whoever is ordered behind this access is behind those, too */
    for (size_t i = 0; i < READS && e->access == HA_READ; i++)
        if (!is_before(&s.read[i], e->touch.actor, clock)) s.read[kept++] = s.read[i];
    if (e->access == HA_WRITE) s.write = e->touch;
    else s.read[kept < READS ? kept++ : 0] = e->touch;
    memset(s.read + kept, 0, (READS - kept) * sizeof *s.read);
    push(o, s);
}

/* The spans [first, end) of the region anew, with rows that are accessed: both are ascending. */
static void enter_rows(const struct entry *e, const struct region *r, size_t first, size_t end, struct ha_range rows)
{
    struct ha_order *o = e->order;
    size_t i = first;
    struct span s = { 0 };
    if (i < end) s = r->span[i];
    o->scratch_count = 0;
    for (size_t row = 0; row < rows.rows; row++) {
        uintptr_t at = (uintptr_t)rows.at + row * rows.stride, stop = at + rows.bytes;
        while (i < end && s.end <= at) {
            push(o, s);
            if (++i < end) s = r->span[i];
        }
        if (i < end && s.begin < at) {
            struct span head = s;
            head.end = s.begin = at;
            push(o, head);
        }
        while (at < stop) {
            struct span piece = { at, i < end && s.begin < stop ? s.begin : stop, { 0 }, { { 0 } } };
            if (i < end && s.begin == at) {
                piece = s;
                piece.end = s.end < stop ? s.end : stop;
                s.begin = piece.end;
                if (s.begin == s.end && ++i < end) s = r->span[i];
            }
            at = piece.end;
            enter(e, piece);
        }
    }
    for (; i < end; s = ++i < end ? r->span[i] : s) push(o, s);
}

/* As far as it lies in the region, in rows that do not overlap. */
static struct ha_range clip(struct ha_range range, const struct region *r)
{
    const uintptr_t at = (uintptr_t)range.at;
    if (range.bytes == SIZE_MAX) return (struct ha_range){ (const void *)r->begin, 1, 0, r->end - r->begin };
    if (range.rows > 1 && range.stride <= range.bytes) {
        range.bytes += (range.rows - 1) * range.stride;
        range.rows = 1;
    }
    if (range.bytes > r->end - at) range.bytes = r->end - at;
    if (range.rows > 1) {
        const size_t most = (r->end - at - range.bytes) / range.stride + 1;
        range.rows = range.rows < most ? range.rows : most;
    }
    return range;
}

static void touch_region(struct ha_order *o, struct region *r, const struct entry *e, struct ha_range rows)
{
    const uintptr_t begin = (uintptr_t)rows.at, stop = begin + (rows.rows - 1) * rows.stride + rows.bytes;
    size_t first = find(r->span, r->spans, sizeof *r->span, offsetof(struct span, end), begin), end = first;
    while (end < r->spans && r->span[end].begin < stop) end++;
    /* a neighbour may become one with what is entered */
    first -= first > 0;
    end += end < r->spans;
    if (!ha_array_room(&o->scratch, &o->scratch_room, 2 * (end - first) + 2 * rows.rows + 1, sizeof *o->scratch)) {
        o->no_memory = true;
        return;
    }
    enter_rows(e, r, first, end, rows);
    const size_t spans = r->spans - (end - first) + o->scratch_count;
    if (!ha_array_room(&r->span, &r->room, spans, sizeof *r->span)) {
        o->no_memory = true;
        return;
    }
    memmove(r->span + first + o->scratch_count, r->span + end, (r->spans - end) * sizeof *r->span);
    memcpy(r->span + first, o->scratch, o->scratch_count * sizeof *r->span);
    r->spans = spans;
}

void ha_order_access(struct ha_order *o, size_t actor, const char *name, const char *role, enum ha_access access,
                     struct ha_range range)
{
    const uintptr_t at = (uintptr_t)range.at;
    if (!range.rows || !range.bytes || actor >= HA_ORDER_ACTORS) return;
    pthread_mutex_lock(&o->lock);
    const size_t i = find_region(o, at);
    const uint32_t op = op_number(o, actor, name, role);
    if (op && !o->actor[actor].is_unknown && i < o->regions && o->region[i].begin <= at) {
        struct region *r = &o->region[i];
        const struct entry e = { o, r, { o->actor[actor].clock.at[actor], op, (uint32_t)actor }, access };
        if (range.bytes < SIZE_MAX || access == HA_WRITE || !r->is_named) touch_region(o, r, &e, clip(range, r));
        else
            for (size_t n = 0; n < r->names; n++) touch_region(o, r, &e, clip(r->named[n], r));
    }
    pthread_mutex_unlock(&o->lock);
}

void ha_order_names(struct ha_order *o, const void *memory, const struct ha_range *range)
{
    pthread_mutex_lock(&o->lock);
    const size_t i = find_region(o, (uintptr_t)memory);
    struct region *r = i < o->regions && o->region[i].begin <= (uintptr_t)memory ? &o->region[i] : NULL;
    if (r && !range) r->names = 0;
    if (r) r->is_named = true;
    if (range && (!range->rows || !range->bytes)) r = NULL; /* of it nothing may be read */
    if (r && range && !ha_array_room(&r->named, &r->names_room, r->names + 1, sizeof *r->named)) o->no_memory = true;
    else if (r && range) r->named[r->names++] = *range;
    pthread_mutex_unlock(&o->lock);
}

enum ha_status ha_order_verdict(struct ha_order *o, struct ha_why *why)
{
    pthread_mutex_lock(&o->lock);
    enum ha_status status = HA_OK;
    if (*o->conflict) status = ha_why(why, HA_FAIL, "%s", o->conflict);
    else if (o->no_memory) status = ha_why(why, HA_ERROR, "order: out of memory");
    else if (o->too_many)
        status = ha_why(why, HA_ERROR, "order: more than %d streams and threads at a time", HA_ORDER_ACTORS);
    pthread_mutex_unlock(&o->lock);
    return status;
}

/* ---- of this process --------------------------------------------------------------------------------------------- */

static _Atomic(struct ha_order *) now;
static _Thread_local struct ha_order_identity self;

enum ha_status ha_order_begin(struct ha_why *why)
{
    struct ha_order *o;
    HA_TRY(ha_order_create(&o, why));
    atomic_store(&now, o);
    return HA_OK;
}

void ha_order_end(void)
{
    struct ha_order *o = ha_order_now();
    atomic_store(&now, NULL);
    ha_order_destroy(o);
}

struct ha_order *ha_order_now(void) { return atomic_load_explicit(&now, memory_order_acquire); }

size_t ha_order_self(struct ha_order *o)
{
    if (self.history != o->number) {
        char name[NAME];
        snprintf(name, sizeof name, "%zu", atomic_fetch_add(&o->threads, (size_t)1));
        self = (struct ha_order_identity){ o->number, ha_order_actor(o, name, true) };
    }
    return self.actor;
}

struct ha_order_identity ha_order_identity(void)
{
    struct ha_order *o = ha_order_now();
    if (o) ha_order_self(o);
    return self;
}

struct ha_order_identity ha_order_stand_for(struct ha_order_identity who)
{
    const struct ha_order_identity before = self;
    self = who;
    return before;
}

void ha_order_thread_signal(const void *key, uint64_t value)
{
    struct ha_order *o = ha_order_now();
    if (o) ha_order_signal(o, ha_order_self(o), key, value);
}

void ha_order_thread_await(const void *key, uint64_t value)
{
    struct ha_order *o = ha_order_now();
    if (o) ha_order_await(o, ha_order_self(o), key, value);
}

void ha_order_thread_memory(const void *ptr, size_t bytes)
{
    struct ha_order *o = ha_order_now();
    if (o) ha_order_memory(o, "host", ptr, bytes);
}

void ha_order_thread_freed(const void *ptr)
{
    struct ha_order *o = ha_order_now();
    if (o) ha_order_freed(o, ha_order_self(o), ptr);
}

void ha_order_thread_names(const void *memory, const struct ha_range *range)
{
    struct ha_order *o = ha_order_now();
    if (o) ha_order_names(o, memory, range);
}

void ha_order_thread_access(const char *name, const char *role, enum ha_access access, const void *at, size_t rows,
                            size_t stride, size_t bytes)
{
    struct ha_order *o = ha_order_now();
    if (o) ha_order_access(o, ha_order_self(o), name, role, access, (struct ha_range){ at, rows, stride, bytes });
}
