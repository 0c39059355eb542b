#ifndef HA_DEFECTS_SPELL_H
#define HA_DEFECTS_SPELL_H

/* A call of an operation that has a fault (fault.h): its arguments, and in which of its sequences it is wrong. */

#include "suites/defects/fault.h"
#include "suites/defects/wrong.h"

#include "harness/base/operands.h"

extern struct ha_fault ha_drawn_fault;

/* Memory that was handed out. */
struct ha_block {
    struct ha_block *next;
    char *at;
    size_t bytes;
    enum ha_memory kind;
};
/* the one that has this address; at is NULL: none */
struct ha_block ha_block_of(const void *at);

struct ha_way {
    enum ha_status (*call)(struct ha_stream *stream, const void *args);
    void (*visit)(const void *args, ha_operand_fn *fn, void *arg); /* NULL: it has no operands */
};

enum { HA_SPELL_INPUTS = 8 };
/* Arguments with sequences and states of their own, as the caller's may be gone when the call runs; hit: the sequences
 * in which it is wrong; saved: what was in the outputs; input: copies of blocks that it reads in their place. */
struct ha_spell {
    struct ha_spell *next; /* of those that a graph keeps */
    const struct ha_way *way;
    char *args, *seqs, *states; /* states: of a merge */
    size_t batch;
    bool *hit, kept, captured;
    size_t calls_before; /* how many there had been when its stream was made; 0: it is not the first one there */
    const void *given;   /* the caller's sequences */
    char *saved;
    struct {
        struct ha_block of;
        char *at;
        bool fill, cached;
    } input[HA_SPELL_INPUTS];
    size_t inputs;
};

void ha_spell_begin(void);
void ha_spell_end(void);
struct ha_spell *ha_spell_new(const struct ha_way *way, const void *args);
void ha_spell_free(struct ha_spell *spell);
/* A graph may run it again: it stays until the end. */
void ha_spell_keep(struct ha_spell *spell);
/* Of a host function: it is over, unless it is kept. ha_spell_sweep frees those that are. */
void ha_spell_over(void *spell);
void ha_spell_sweep(void);
void ha_spell_stream_made(const struct ha_stream *stream);
/* Counts the call. Is it wrong in any sequence? captured: by a graph */
bool ha_spell_hits(struct ha_spell *spell, const struct ha_stream *stream, bool captured);

/* of sequence b; NULL: the operation has none */
char *ha_spell_seq(const struct ha_spell *spell, size_t b);
/* where the argument lies, of that sequence or of the call; what pointer it is; it becomes another number */
char *ha_spell_place(const struct ha_spell *spell, const struct ha_argument *argument, size_t b);
void *ha_spell_pointer(const struct ha_spell *spell, const struct ha_argument *argument, size_t b);
void ha_spell_put(const struct ha_spell *spell, const struct ha_argument *argument, size_t b, size_t value);
void *ha_spell_room(size_t bytes); /* zeros; never NULL */

/* What the fault does to it (change.c). */
void ha_change_arguments(const struct ha_spell *spell);
void ha_change_inputs(struct ha_spell *spell); /* then ha_fill_inputs before the call */
void ha_change_end(void);
/* host functions of a spell */
void ha_fill_inputs(void *spell);
void ha_save_outputs(void *spell);
void ha_change_outputs(void *spell); /* it is over then, here and below */
void ha_spoil_inputs(void *spell);

#endif
