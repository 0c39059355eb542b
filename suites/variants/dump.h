#ifndef HA_DUMP_H
#define HA_DUMP_H

/* The dump of a case: one safetensors file with all that went in and came out, so that every verdict can be audited
 * without this program. docs/audit.md has the format, and what is to be recomputed from it; scripts/audit.py does. */

#include "suites/variants/check.h"

struct ha_dump {
    const struct ha_session *session;
    char path[4096];
    struct ha_tensor *tensor; /* [layers][batch][of a sequence]; all but K and V are filled step by step */
    size_t count;
    uint64_t bytes;             /* of the file, nearly */
    struct ha_tensor *note;     /* [layers][batch][name] that was reported: [steps][q_heads] */
    struct ha_profile *profile; /* that a part claims for itself, each once */
    size_t notes, notes_room, profiles, profiles_room;
    enum ha_status status; /* HA_ERROR: there was no memory for what states have of their own */
    struct ha_why why;
};

/* Names folder/ID.safetensors, in which every byte of the id that is not a letter, digit, '.', '-' or '_' is '_', and
 * makes room for all steps; says on stderr how large the file becomes. HA_ERROR where memory or the disk is too small
 * for it. The session outlives the dump. */
enum ha_status ha_dump_open(struct ha_dump *dump, const struct ha_session *session, const char *folder, const char *id,
                            struct ha_why *why);
/* Where the dump has what the outputs of a step must be: the oracle's to write. */
struct ha_expected ha_dump_expected(const struct ha_dump *dump, size_t step, size_t layer, size_t seq);
/* The rest of a layer of a sequence of the step that the pass has just run, by the selection that it was judged by,
 * when it has been judged. Where there is no memory for it, ha_dump_write says so. */
void ha_dump_step(struct ha_dump *dump, const struct ha_chosen *chosen, size_t step, size_t layer, size_t seq,
                  const struct ha_judged *judged);
/* The file, whole or not at all. */
enum ha_status ha_dump_write(const struct ha_dump *dump, const char *id, struct ha_why *why);
void ha_dump_free(struct ha_dump *dump); /* nothing where it is zeroed */

#endif
