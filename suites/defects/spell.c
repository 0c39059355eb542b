#include "suites/defects/spell.h"

#include "suites/defects/drawn.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BASE (*ha_wrong_base)

struct ha_fault ha_drawn_fault;
static size_t calls;

/* ---- memory that was handed out ---------------------------------------------------------------------------------- */

static struct ha_block *blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void ha_drawn_allocated(enum ha_memory kind, void *at, size_t bytes)
{
    struct ha_block *b = malloc(sizeof *b);
    if (!b) abort();
    pthread_mutex_lock(&lock);
    *b = (struct ha_block){ blocks, at, bytes, kind };
    blocks = b;
    pthread_mutex_unlock(&lock);
}
void ha_drawn_freed(const void *at)
{
    pthread_mutex_lock(&lock);
    for (struct ha_block **b = &blocks; *b; b = &(*b)->next)
        if ((*b)->at == at) {
            struct ha_block *gone = *b;
            *b = gone->next;
            free(gone);
            break;
        }
    pthread_mutex_unlock(&lock);
}
struct ha_block ha_block_of(const void *at)
{
    struct ha_block found = { .at = NULL };
    pthread_mutex_lock(&lock);
    for (struct ha_block *b = blocks; b && !found.at; b = b->next)
        if ((const char *)at >= b->at && (const char *)at < b->at + b->bytes) found = *b;
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- a call that is wrong ---------------------------------------------------------------------------------------- */

static struct ha_spell *kept, *gone; /* gone: a host function may not give memory back */

void *ha_spell_room(size_t bytes)
{
    void *at = calloc(1, bytes + 1);
    if (!at) abort();
    return at;
}

void ha_spell_free(struct ha_spell *s)
{
    for (size_t i = 0; i < s->inputs; i++)
        if (!s->input[i].cached) BASE.mem_free(ha_wrong_device, s->input[i].of.kind, s->input[i].at);
    free(s->args);
    free(s->seqs);
    free(s->states);
    free(s->hit);
    free(s->saved);
    free(s);
}

struct ha_spell *ha_spell_new(const struct ha_way *way, const void *args)
{
    const struct ha_operation *op = ha_drawn_fault.op;
    struct ha_spell *s = ha_spell_room(sizeof *s);
    s->way = way;
    s->args = ha_spell_room(op->bytes);
    memcpy(s->args, args, op->bytes);
    s->batch = 1;
    if (op->seq_bytes) {
        memcpy(&s->batch, s->args + op->batch, sizeof s->batch);
        memcpy(&s->given, s->args + op->seqs, sizeof s->given);
        s->seqs = ha_spell_room(s->batch * op->seq_bytes);
        memcpy(s->seqs, s->given, s->batch * op->seq_bytes);
        memcpy(s->args + op->seqs, &s->seqs, sizeof s->seqs);
    }
    if (!strcmp(op->name, "merge")) {
        struct ha_merge *m = (void *)s->args;
        s->states = ha_spell_room(m->states_count * sizeof *m->states);
        memcpy(s->states, m->states, m->states_count * sizeof *m->states);
        m->states = (const void *)s->states;
    }
    s->hit = ha_spell_room(s->batch);
    return s;
}

char *ha_spell_seq(const struct ha_spell *s, size_t b)
{
    return s->seqs ? s->seqs + b * ha_drawn_fault.op->seq_bytes : NULL;
}

/* Where the argument lies: of sequence b, or of the call. */
char *ha_spell_place(const struct ha_spell *s, const struct ha_argument *a, size_t b)
{
    return (a->of_seq ? ha_spell_seq(s, b) : s->args) + a->offset;
}
void *ha_spell_pointer(const struct ha_spell *s, const struct ha_argument *a, size_t b)
{
    void *at;
    memcpy(&at, ha_spell_place(s, a, b), sizeof at);
    return at;
}
void ha_spell_put(const struct ha_spell *s, const struct ha_argument *a, size_t b, size_t value)
{
    const uint32_t word = (uint32_t)value;
    memcpy(ha_spell_place(s, a, b), a->bytes == sizeof value ? (const void *)&value : &word, a->bytes);
}

void ha_spell_over(void *arg)
{
    struct ha_spell *s = arg;
    if (s->kept) return;
    pthread_mutex_lock(&lock);
    s->next = gone;
    gone = s;
    pthread_mutex_unlock(&lock);
}
void ha_spell_sweep(void)
{
    pthread_mutex_lock(&lock);
    struct ha_spell *s = gone;
    gone = NULL;
    pthread_mutex_unlock(&lock);
    for (struct ha_spell *next; s; s = next) {
        next = s->next;
        ha_spell_free(s);
    }
}

void ha_spell_keep(struct ha_spell *s)
{
    s->kept = true;
    s->next = kept;
    kept = s;
}

/* ---- when -------------------------------------------------------------------------------------------------------- */

static pthread_t thread;
static char last[4096];
static size_t last_bytes;

/* Are the arguments those of the call before? */
static bool is_again(const struct ha_spell *s)
{
    const size_t n = ha_drawn_fault.op->bytes, all = n + s->batch * ha_drawn_fault.op->seq_bytes;
    char now[sizeof last];
    if (all > sizeof now) return last_bytes = 0, false;
    memcpy(now, s->args, n);
    if (s->seqs) {
        memset(now + ha_drawn_fault.op->seqs, 0, sizeof(void *));
        memcpy(now + n, s->seqs, all - n);
    }
    const bool again = last_bytes == all && memcmp(now, last, all) == 0;
    memcpy(last, now, all);
    last_bytes = all;
    return again;
}

/* Streams that nothing was called on, and how many calls there had been when they were made. */
static struct {
    const struct ha_stream *stream;
    size_t calls;
} unused[64];
enum { UNUSED = sizeof unused / sizeof *unused };

static size_t used(const struct ha_stream *stream)
{
    size_t made = 0;
    for (size_t i = 0; i < UNUSED && stream; i++) {
        if (unused[i].stream != stream) continue;
        unused[i].stream = NULL;
        made = unused[i].calls;
    }
    return made;
}
void ha_spell_stream_made(const struct ha_stream *stream)
{
    static size_t next;
    pthread_mutex_lock(&lock);
    used(stream); /* one that was destroyed may have had this address */
    unused[next % UNUSED].stream = stream;
    unused[next++ % UNUSED].calls = __atomic_load_n(&calls, __ATOMIC_ACQUIRE);
    pthread_mutex_unlock(&lock);
}

static bool holds(const struct ha_condition *w, const struct ha_spell *s, size_t b, size_t call, bool again)
{
    const struct ha_argument *const a = w->of;
    const uintptr_t at = a && a->kind >= HA_ARGUMENT_IN ? (uintptr_t)ha_spell_pointer(s, a, b) : 0;
    size_t product = 1;
    switch (w->kind) {
    case HA_WHEN_EQUAL:
    case HA_WHEN_OVER:
    case HA_WHEN_UNDER:
    case HA_WHEN_RESIDUE: return ha_condition_of_count(w, ha_argument_value(a, s->args, ha_spell_seq(s, b)));
    case HA_WHEN_PRODUCT:
        for (size_t i = 0; i < ha_drawn_fault.op->arguments; i++)
            if (ha_drawn_fault.op->argument[i].flags & HA_ARGUMENT_OUTER)
                product *= ha_argument_value(&ha_drawn_fault.op->argument[i], s->args, NULL);
        return product > w->x;
    case HA_WHEN_ADDRESS: return at && at % w->x == w->y;
    case HA_WHEN_ASKEW: return at % w->x != 0;
    case HA_WHEN_BIT: return at >> w->x & 1;
    case HA_WHEN_MAPPED: {
        const struct ha_block found = ha_block_of((const void *)at);
        return found.at && found.kind == HA_MEM_MAPPED;
    }
    case HA_WHEN_GIVEN: return at;
    case HA_WHEN_FIRST: return call == 1;
    case HA_WHEN_EACH: return call % w->x == 0;
    case HA_WHEN_FROM: return call >= w->x;
    case HA_WHEN_AGAIN: return again;
    case HA_WHEN_THREAD: return !pthread_equal(thread, pthread_self());
    case HA_WHEN_ANEW: return s->calls_before >= w->x;
    case HA_WHEN_CAPTURED: return s->captured;
    }
    return false;
}

/* Is it wrong in any sequence? */
bool ha_spell_hits(struct ha_spell *s, const struct ha_stream *stream, bool captured)
{
    s->captured = captured;
    const size_t call = __atomic_add_fetch(&calls, 1, __ATOMIC_ACQ_REL);
    if (call == 1) thread = pthread_self();
    pthread_mutex_lock(&lock);
    const bool again = is_again(s);
    s->calls_before = used(stream);
    pthread_mutex_unlock(&lock);
    bool any = false;
    for (size_t b = 0; b < s->batch; b++) {
        s->hit[b] = true;
        for (size_t i = 0; i < ha_drawn_fault.whens; i++)
            s->hit[b] = s->hit[b] && holds(&ha_drawn_fault.when[i], s, b, call, again);
        any |= s->hit[b];
    }
    return any;
}

void ha_spell_begin(void)
{
    calls = last_bytes = 0;
    memset(unused, 0, sizeof unused);
}
void ha_spell_end(void)
{
    ha_spell_sweep();
    for (struct ha_spell *next; kept; kept = next) {
        next = kept->next;
        ha_spell_free(kept);
    }
}
