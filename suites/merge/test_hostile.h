#ifndef HA_MERGE_TEST_HOSTILE_H
#define HA_MERGE_TEST_HOSTILE_H

/* What the hostile plugin does. In a merge: where the first number of o of the first state is HOSTILE_CODE and more; in
 * attention: the first of q. In info(), when it is loaded, in the traits, and where its exp and log are looked at:
 * what the variable HOSTILE_VARIABLE says. */
enum { HOSTILE_CODE = 7000 };
enum hostile {
    BEHAVES,
    NULL_WRITE,
    HANGS,
    PAST_END,
    BEFORE_START,
    FAR_BEFORE_START,
    WRITES_INPUT,
    READS_PAST_END,
    WRITES_ARGUMENTS,
    BAD_STATUS,
    REFUSES,
    WAIVES,
    EXITS,
    ABORTS,
    CLOSES_ALL,
    KILLS_ITSELF,
    LEAVES_A_GRANDCHILD,
    ANSWERS_TWICE,
    TRAPS,
    WRONG_ANSWER,
    ROUNDS, /* from here on to zero */
    HOSTILES,
};
#define HOSTILE_VARIABLE "HA_TEST_HOSTILE"

#endif
