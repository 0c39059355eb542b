#ifndef HA_TUNING_H
#define HA_TUNING_H

/* A plan: what measuring chose for a CPU where no kernel can know what is best (docs/kernels.md#plans). For each type
 * and number of threads: which table's attend_packed is called, what it asks for ahead, and whether natural rows would
 * be faster. Made by harness/tune; looked up where tables are resolved (registry.h). */

#include "harness/api/kernels.h"

enum { HA_CHOICES_MOST = 160, HA_ISA_BYTES = 24 };

/* Where a choice is about natural rows, which ask ahead as they always do. */
enum { HA_CHOICE_ROWS = HA_PATTERNS, HA_CHOICE_PATTERNS };

struct ha_choice {
    size_t threads; /* that read at once */
    enum ha_dtype dtype;
    unsigned pattern; /* enum ha_pattern, or HA_CHOICE_ROWS */
    char isa[HA_ISA_BYTES];
    struct ha_reach reach;
    bool taken;           /* HA_PATTERN_LINEAR: of all tables, this one's attend_packed is called for the type;
                           * HA_CHOICE_ROWS: natural rows are faster than packed keys */
    double ratio, lo, hi; /* share of what these threads read from memory, in pairs: median and its interval */
    double constants;     /* the same with what the table itself says, in the same race; HA_CHOICE_ROWS: packed keys */
};

struct ha_tuning {
    char name[16], from[16];  /* "constants", or a digest of its choices; "shipped", "measured", "quick", "file" */
    char cpu[160], build[64]; /* that it was measured on and with */
    struct ha_choice choice[HA_CHOICES_MOST];
    size_t choices;
};

/* Of this process; without choices, by the name "constants", until it is set. */
const struct ha_tuning *ha_tuning(void);
/* Copied. Before any thread asks, and before processes are forked that shall have it. NULL: constants again. */
void ha_tuning_set(const struct ha_tuning *tuning);
/* gives it its digest */
void ha_tuning_name(struct ha_tuning *tuning, const char *from);
/* "2 f16 linear avx512 l1 2048 taken" */
void ha_choice_text(char out[80], const struct ha_choice *choice);

/* Choices are of the largest number of threads up to this one that the plan has, or else of the least; 0: the largest.
 * NULL: it says nothing of that. */
const struct ha_choice *ha_tuning_find(const struct ha_tuning *tuning, size_t threads, enum ha_dtype dtype,
                                       unsigned pattern, const char *isa);
/* the one that is taken for this type; pattern: HA_PATTERN_LINEAR or HA_CHOICE_ROWS */
const struct ha_choice *ha_tuning_taken(const struct ha_tuning *tuning, size_t threads, enum ha_dtype dtype,
                                        unsigned pattern);

extern const char *const ha_reach_words[HA_REACH_KINDS + 1], *const ha_pattern_words[HA_CHOICE_PATTERNS + 1];

/* what a plan calls this CPU: model name, family and model */
void ha_tuning_cpu(char out[160]);

#endif
