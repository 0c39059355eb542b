/* A fault in words: one walk through a pattern says it, and reads it back. */

#include "suites/defects/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* %a: the argument, %o: the one it is taken for, %n, %m: numbers, %r: a real, %t: a type, %w: a word of the argument,
 * %c: the counts that are computed side by side, %p: where in an operand */
static const char *const conditions[] = {
    [HA_WHEN_EQUAL] = "%a is %w",
    [HA_WHEN_OVER] = "%a > %n",
    [HA_WHEN_UNDER] = "%a < %n",
    [HA_WHEN_RESIDUE] = "%a % %n is %m",
    [HA_WHEN_PRODUCT] = "%c > %n",
    [HA_WHEN_ADDRESS] = "the address of %a % %n is %m",
    [HA_WHEN_ASKEW] = "the address of %a is no multiple of %n",
    [HA_WHEN_BIT] = "the address of %a has bit %n",
    [HA_WHEN_MAPPED] = "%a is in mapped memory",
    [HA_WHEN_GIVEN] = "%a is given",
    [HA_WHEN_FIRST] = "it is the first call",
    [HA_WHEN_EACH] = "it is each %n-th call",
    [HA_WHEN_FROM] = "it is the %n-th call or a later one",
    [HA_WHEN_AGAIN] = "the arguments are those of the call before",
    [HA_WHEN_THREAD] = "another thread calls than at first",
    [HA_WHEN_ANEW] = "it is the first on a stream made after %n calls",
    [HA_WHEN_CAPTURED] = "a graph captures it",
};
static const char *const effects[HA_FAULT_EFFECTS] = {
    [HA_FAULT_DROPPED] = "dropped",
    [HA_FAULT_TWICE] = "done twice",
    [HA_FAULT_EARLY] = "runs when it is enqueued",
    [HA_FAULT_ASIDE] = "what follows does not wait for it",
    [HA_FAULT_UNREAD] = "its arguments are read when it runs",
    [HA_FAULT_FEWER] = "one fewer of %a",
    [HA_FAULT_ROUNDED] = "%a rounded down to a multiple of %n",
    [HA_FAULT_CAPPED] = "%a is at most %n",
    [HA_FAULT_BITS] = "%a has %n bits",
    [HA_FAULT_IGNORED] = "%a is ignored",
    [HA_FAULT_TAKEN] = "%a is taken for %o",
    [HA_FAULT_STRIDE] = "%a is rounded down to a multiple of %n",
    [HA_FAULT_WORD] = "%a is always %w",
    [HA_FAULT_REAL] = "%a is %r",
    [HA_FAULT_SCALED] = "%a times %r",
    [HA_FAULT_FIRST_SEQ] = "%a of the first sequence for those of others",
    [HA_FAULT_SEQ_BEFORE] = "%a of the sequence before",
    [HA_FAULT_ALIGNED] = "the address of %a is rounded down to a multiple of %n",
    [HA_FAULT_READ_EARLY] = "%a is read when the call is enqueued",
    [HA_FAULT_CACHED] = "%a is what was at its address in the first call",
    [HA_FAULT_SPOILED] = "a byte of %a becomes another behind it",
    [HA_FAULT_STALE] = "%p: keeps what was there",
    [HA_FAULT_BESIDE] = "%p: the number behind it is written",
    [HA_FAULT_SWAPPED] = "%p: swapped with the next",
    [HA_FAULT_NARROW] = "%p: rounded to %t",
    [HA_FAULT_NO_NAN] = "%p: 0 for a NaN",
    [HA_FAULT_NAN_INF] = "%p: infinity for a NaN",
    [HA_FAULT_NO_INF] = "%p: the largest number for an infinity",
    [HA_FAULT_MOST] = "%p: at most %r",
    [HA_FAULT_LEAST] = "%p: at least %r",
    [HA_FAULT_NO_ZERO] = "%p: the number next to it for a 0",
    [HA_FAULT_OFF] = "%p: off by 2^-6, or by one",
    [HA_FAULT_NEARER] = "%p: nearer to 0 by a bit",
    [HA_FAULT_TIMES] = "%p: times %r",
    [HA_FAULT_LOW] = "%p: the lower %n bits",
    [HA_FAULT_TIED] = "%p: of equal neighbours the second is another",
    [HA_FAULT_REVERSED] = "%p: in the opposite order",
    [HA_FAULT_NEXT_ROW] = "%p: what the next row has",
    [HA_FAULT_FIRST_ROW] = "%p: what the first row has",
    [HA_FAULT_GIVES_UP] = "returns after %n ms",
    [HA_FAULT_EXACT] = "waits until the flag is that, and not more",
};
enum { CONDITIONS = sizeof conditions / sizeof *conditions };
static const char *const rows[] = { "each row", "the first row", "the last row", "the row in the middle" },
                         *const numbers[] = { "", "the first", "the last", "the middle" };

/* in NULL: it is said into out, of HA_FAULT_TEXT bytes; else read */
struct text {
    char *out;
    const char *in;
};

static bool literal(struct text *t, const char *words)
{
    const size_t n = strlen(words), said = t->in ? 0 : strlen(t->out);
    if (!t->in) return snprintf(t->out + said, HA_FAULT_TEXT - said, "%s", words) >= 0;
    if (strncmp(t->in, words, n) != 0) return false;
    t->in += n;
    return true;
}
static bool real(struct text *t, double *x)
{
    char said[40], *end;
    snprintf(said, sizeof said, "%.9g", *x);
    if (!t->in) return literal(t, said);
    *x = strtod(t->in, &end);
    const bool any = end != t->in;
    t->in = end;
    return any;
}
static bool number(struct text *t, size_t *x)
{
    char said[40], *end;
    snprintf(said, sizeof said, "%zu", *x);
    if (!t->in) return literal(t, said);
    if (*t->in < '0' || *t->in > '9') return false;
    *x = strtoull(t->in, &end, 10);
    t->in = end;
    return true;
}
/* the longest name that fits */
static bool name(struct text *t, const struct ha_operation *op, const struct ha_argument **a)
{
    const struct ha_argument *best = NULL;
    if (!t->in) return literal(t, (*a)->name);
    for (size_t i = 0; i < op->arguments; i++) {
        const size_t n = strlen(op->argument[i].name);
        if (!strncmp(t->in, op->argument[i].name, n) && (!best || n > strlen(best->name))) best = &op->argument[i];
    }
    *a = best;
    return best && literal(t, best->name);
}
static bool word(struct text *t, const struct ha_argument *a, size_t *x)
{
    if (a->kind == HA_ARGUMENT_FLAG) return *x = 1, literal(t, "set");
    if (a->kind != HA_ARGUMENT_WORD) return number(t, x);
    if (!t->in) return literal(t, a->word[*x]);
    for (*x = 0; a->word[*x]; ++*x)
        if (literal(t, a->word[*x])) return true;
    return false;
}
static bool type(struct text *t, size_t *x)
{
    if (!t->in) return literal(t, *x == HA_F16 ? "f16" : "bf16");
    *x = !strncmp(t->in, "f16", 3) ? HA_F16 : HA_BF16;
    return literal(t, *x == HA_F16 ? "f16" : "bf16");
}
static bool outer_counts(struct text *t, const struct ha_operation *op)
{
    bool any = false;
    for (size_t i = 0; i < op->arguments; i++) {
        if (!(op->argument[i].flags & HA_ARGUMENT_OUTER)) continue;
        if ((any && !literal(t, " * ")) || !literal(t, op->argument[i].name)) return false;
        any = true;
    }
    return any;
}

/* "the last 4 numbers of each 3-th row of o" */
static bool numbers_of(struct text *t, struct ha_fault *f)
{
    for (size_t i = HA_NUMBERS_FIRST; i <= HA_NUMBERS_MIDDLE; i++) {
        const char *const from = t->in;
        if (!from && i != f->numbers) continue;
        f->numbers = (enum ha_numbers_chosen)i;
        if (from) f->count = 1;
        if (literal(t, numbers[i]) && literal(t, " ")
            && ((f->count == 1 && literal(t, "number of ")) || (number(t, &f->count) && literal(t, " numbers of "))))
            return true;
        t->in = from;
    }
    if (t->in) f->numbers = HA_NUMBERS_ALL;
    return !f->numbers;
}
static bool place(struct text *t, struct ha_fault *f)
{
    if (t->in) f->before = !strncmp(t->in, "before", 6);
    if ((f->before && !literal(t, "before the call, ")) || !numbers_of(t, f)) return false;
    for (size_t i = t->in ? 0 : f->rows; i < sizeof rows / sizeof *rows && (t->in || i == f->rows); i++) {
        if (!literal(t, rows[i])) continue;
        f->rows = (enum ha_rows_chosen)i;
        return literal(t, " of ") && name(t, f->op, &f->of);
    }
    if (t->in) f->rows = *t->in == 'e' ? HA_ROWS_EACH : HA_ROWS_ONE_IN;
    const bool each = f->rows == HA_ROWS_EACH;
    return literal(t, each ? "each " : "one in ") && number(t, &f->each)
           && literal(t, each ? "-th row of " : " rows of ") && name(t, f->op, &f->of);
}

/* of: a condition's, or the effect's */
static bool walk(struct text *t, const char *pattern, struct ha_fault *f, const struct ha_argument **of, size_t *x,
                 size_t *y)
{
    for (; *pattern; pattern++) {
        bool fits;
        if (*pattern != '%' || pattern[1] == ' ') {
            fits = literal(t, (char[]){ *pattern, 0 });
        } else switch (*++pattern) {
            case 'a': fits = name(t, f->op, of); break;
            case 'o': fits = name(t, f->op, &f->as); break;
            case 'n': fits = number(t, x); break;
            case 'm': fits = number(t, y); break;
            case 'r': fits = real(t, &f->real); break;
            case 't': fits = type(t, x); break;
            case 'w': fits = word(t, *of, x); break;
            case 'c': fits = outer_counts(t, f->op); break;
            default: fits = place(t, f);
            }
        if (!fits) return false;
    }
    return true;
}

static bool condition(struct text *t, struct ha_fault *f, size_t kind, struct ha_condition *w)
{
    w->kind = (enum ha_condition_kind)kind;
    return walk(t, conditions[kind], f, &w->of, &w->x, &w->y);
}
static bool effect(struct text *t, struct ha_fault *f, size_t kind)
{
    f->effect = (enum ha_effect)kind;
    return walk(t, effects[kind], f, &f->of, &f->x, NULL);
}

void ha_fault_text(const struct ha_fault *fault, char out[HA_FAULT_TEXT])
{
    struct ha_fault f = *fault;
    struct text t = { .out = out };
    *out = 0;
    literal(&t, f.op->name);
    for (size_t i = 0; i < f.whens; i++) {
        literal(&t, i ? " and " : ": where ");
        condition(&t, &f, f.when[i].kind, &f.when[i]);
    }
    literal(&t, ": ");
    effect(&t, &f, f.effect);
}

bool ha_fault_read(const char *text, struct ha_fault *f)
{
    struct text t;
    const size_t n = strcspn(text, ":");
    *f = (struct ha_fault){ .op = NULL };
    for (size_t i = 0; i < ha_operations_count; i++)
        if (strlen(ha_operations[i].name) == n && !memcmp(text, ha_operations[i].name, n)) f->op = &ha_operations[i];
    const char *at = text + n;
    while (f->op && !strncmp(at, f->whens ? " and " : ": where ", f->whens ? 5 : 8) && f->whens < HA_FAULT_CONDITIONS) {
        size_t kind = 0;
        at += f->whens ? 5 : 8;
        do t = (struct text){ .in = at };
        while (!(condition(&t, f, kind, &f->when[f->whens]) && (*t.in == ':' || *t.in == ' ')) && ++kind < CONDITIONS);
        if (kind == CONDITIONS) return false;
        at = t.in;
        f->whens++;
    }
    for (size_t kind = 0; f->op && !strncmp(at, ": ", 2) && kind < HA_FAULT_EFFECTS; kind++) {
        t.in = at + 2;
        if (effect(&t, f, kind) && !*t.in) return true;
    }
    return false;
}
