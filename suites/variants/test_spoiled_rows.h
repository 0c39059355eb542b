#ifndef HA_TEST_SPOILED_ROWS_H
#define HA_TEST_SPOILED_ROWS_H

/* What is spoiled of each case, by how suites/variants/test_spoiled.c can do it, and what the reason says. */

#define ONE_PART                                                                                \
    { "is on the host", side, .part = 0 }, { "is in a second part", split, .part = 0 },         \
        { "is not weighed by the step's query, itself and its value", other_query, .part = 0 }, \
        { "is not weighed by the step's query, itself and its value", other_keys, .part = 0 },  \
        { "is not weighed by the step's query, itself and its value", alone, .part = 0 },       \
        { "nothing is padded", padded, .part = 0 }, { "is used twice", twice, .count = 1 },     \
        { "is missing: it is new", drop, .at = -1, .count = 1 },                                \
    {                                                                                           \
        "", other_head, .count = 2                                                              \
    }

static const struct spoil topk[] = {
    ONE_PART,
    { "keys chosen, the rule chooses 5: key ", drop, .count = 1 },
    { "is one too many", add, .count = 1 },
    { "was chosen, key", swap, .count = 1 },
    { "was chosen, key", other_head, .count = 1 },
    { "is one too many", .name = "k", .by = 4 },
    { "is missing", .name = "k", .by = 6 },
    { "is missing: all ", .name = "k", .by = 1000 },
};
static const struct spoil topk_max[] = {
    { "they have one choice", swap, .count = 1 },         { "they have one choice", drop, .count = 1 },
    { "is missing", drop, .count = 1, .all = true },      { "is one too many", add, .count = 1, .all = true },
    { "was chosen, key", swap, .count = 1, .all = true },
};
static const struct spoil topk_union[] = {
    { "they have one choice|and chosen by head", drop, .count = 1 },
    { "is missing: it is among the 5 best", drop, .count = 1, .all = true },
    { "is not among the 5 best of any head|has no place", add, .count = 1, .all = true },
    { "is missing: it is among the 5 best|is not among", swap, .count = 1, .all = true },
};
static const struct spoil quest[] = {
    ONE_PART,
    { "blocks chosen, the rule chooses 2: block ", drop, .count = 8 },
    { "is one too many", add, .count = 8 },
    { "was chosen, block", swap, .count = 8 },
    { "is used in part", drop, .at = 3, .count = 1 },
    { "is used in part", add, .count = 1 },
    { "it is behind the last full block", drop, .at = -2, .count = 1 },
    { "the layer is dense", drop, .count = 8, .layer = -1 },
    { "is missing: all ", .name = "budget", .by = 1000 },
    { "", .name = "digest", .by = 1 },
};

/* Blocks of 8, of which 4 are chosen; 2 are resident, or 8. Layer 1 has predicted queries. */
static const struct spoil scout[] = {
    { "one too many|is on the host, |chooses", add, .to = 1, .count = 8 },
    { "is missing|is not on the host|chooses", drop, .part = 1, .count = 8 },
    { "is on the host, |is used, |is missing", swap, .part = 1, .to = 1, .count = 8 },
    { "one too many|is on the device", add, .count = 8 },
    { "missing|is not on the device|chooses", drop, .count = 8 },
    { "is on the host, and resident", move, .to = 1, .count = 8 },
    { "is on the device: ", move, .part = 1, .count = 8 },
    { "is on both sides", move, .to = 1, .at = 2, .count = 1 },
    { "is used in part", drop, .part = 1, .at = 1, .count = 1 },
    { "is used in part", add, .count = 1 },
    { "is missing: it is behind the last whole block", drop, .at = -2, .count = 1 },
    { "is missing: it is new", drop, .at = -1, .count = 1 },
    { "is on the host: it is new", move, .to = 1, .at = -1, .count = 1 },
    { "", other_head, .count = 1 },
    { "", other_head, .count = 2 },
    { "is used twice", twice, .to = 1, .count = 1 },
    { "nothing is padded", padded, .part = 0 },
    { "not weighed by a predicted query", no_query, .part = 1 },
    { "is predicted", other_query, .part = 1 },
    { "is predicted", query_off, .part = 1, .by = 1e-3 },
    { "is on the device, and not weighed by the step's query", other_query, .part = 0 },
    { "is on the host, and not weighed by the step's query", other_query, .part = 1, .layer = -1 },
    { "in a second part of the device", split, .part = 0 },
    { "in a second part of the host", split, .part = 1 },
    { "not weighed by itself and its value", other_keys, .part = 0 },
    { "not weighed by itself and its value", alone, .part = 1 },
    { "is not that of head 0", note_not, .name = "recall" },
    { "is not that of head 0", note_not, .name = "landed" },
    { "neither 0 nor 1", note_is, .name = "recall", .by = 2, .head = -3 },
    { "and none was under way|has not landed", note_not, .name = "landed", .head = -3 },
    { "no recall was issued in step|the interval is", note_not, .name = "recall", .head = -3 },
    { "", .name = "digest", .by = 1 },
    { "", .name = "group", .by = 1 },
    { "", .name = "budget", .by = 24 },
    { "", .name = "cache", .by = 24 },
    { "is missing: it is resident|is on the device|one too many", .name = "resident", .by = 1 },
    { "the interval is", .name = "interval", .by = 3 },
    { "no recall was issued in step", .name = "interval", .by = 1 },
    { "a recall was issued, and recall is off", .name = "recall", .by = 0 },
    { "is on the host, and not weighed by the step's query", .name = "precompute", .by = 0 },
};
static const struct spoil scout_max[] = {
    { "they have one choice", add, .to = 1, .count = 8 },
    { "they have one choice", drop, .count = 8 },
    { "missing|is not on the device|chooses", drop, .count = 8, .all = true },
};

#define CODES                                                                                                       \
    { "is missing: it is fresh", drop, .count = 1 }, { "is missing: it is new", drop, .at = -1, .count = 1 },       \
        { "is on the host: it is fresh", side, .part = 0 }, { "is not attended by the device", either, .part = 0 }, \
        { "it has left the fresh window", move, .part = 1, .count = 1 }, { "is summed by the", side, .part = 1 },   \
        { "is in a second part of its kind", split, .part = 1 }, { "nothing is padded", padded, .part = 1 },        \
        { "is used twice", twice, .part = 1, .count = 1 },                                                          \
        { "is not weighed by the step's query", other_query, .part = 1 },                                           \
        { "with codes and no profile|is in a second part", no_claims, .part = 1 },                                  \
        { "score_type is bf16", score_type, .part = 1 }, { "weight_type is bf16", weight_type, .part = 1 },         \
        { "sum_least is 0", sum_least, .part = 1, .by = 0 }, { "note kept is", no_note, .name = "kept" },           \
        { "note kept is", note_off, .name = "kept", .by = 1 }, { "note mass is", no_note, .name = "mass" },         \
        { "note mass is", note_off, .name = "mass", .by = 0.01 },                                                   \
        { "note mass is", note_is, .name = "mass", .by = 1 }, { "at most, and tau is", .name = "tau", .by = 0.97 }, \
    {                                                                                                               \
        "without the least of them", .name = "tau", .by = 0.5                                                       \
    }
static const struct spoil codes[] = {
    CODES,
    { "is missing: it is coded, and weighs", drop, .part = 2, .count = 1 },
    { "is not behind that of the chosen keys", exchange, .part = 1, .to = 2 },
    { "is in a part without codes", no_keys, .part = 1 },
    { "is not its nearest centroid|is not what it was before", key_off, .part = 2, .by = 1e-4 },
    { "is not its nearest centroid", key_off, .part = 2, .by = 1e-4, .step = -2, .head = -1 },
    { "sum_least is", sum_least, .part = 1, .by = 0.4 },
};
static const struct spoil renormalised[] = {
    CODES,
    { "has a weight alone", alone, .part = 1 },
    { "at most, and tau is|no coded key is chosen", drop, .part = 1, .at = -1, .count = 1 },
    { "sum_least is", sum_least, .part = 1, .by = 0.4 },
    { "add up to", sum_least, .part = 1, .by = 1.02 },
};
/* of two tokens no more is claimed than the weights of either add up to */
static const struct spoil several[] = { { "add up to", sum_least, .part = 1, .by = 1.02 } };
static const struct spoil exact_keys[] = {
    { "and keys are exact", other_keys, .part = 1 },
    { "is in a part with codes: it is fresh", move, .to = 1, .count = 1 },
    { "no coded key is chosen", empty, .part = 1 },
    { "was chosen, key", swap, .part = 1, .to = 1, .count = 1 },
};
static const struct spoil anchored[] = {
    { "key 0 is missing: it is in the anchor block", drop, .count = 1 },
    { "key 4 is missing: it is in the anchor block", drop, .at = 4, .count = 1 },
    { "key 5 is attended: it is neither in the anchor block nor new", add, .count = 1 },
    { "is missing: it is new", drop, .at = -1, .count = 1 },
    { "is on the host", side, .part = 0 },
    { "note kept is 1", note_is, .name = "kept", .by = 1 },
    { "note mass is 0.5", note_is, .name = "mass", .by = 0.5 },
};

/* 10 keys of the buffer, 4 of the sink, 11 recent and new ones; layer 0 is persistent. */
static const struct spoil clo[] = {
    ONE_PART,
    { "is missing: it is of the sink", drop, .at = 10, .count = 1 },
    { "is missing: it is recent", drop, .at = -2, .count = 1 },
    { "note persistent is", no_note, .name = "persistent" },
    { "note hit is", no_note, .name = "hit", .all = true },
    { "note similarity is missing", no_note, .name = "similarity", .all = true },
    { "note hit is", note_not, .name = "hit", .all = true },
    { "note similarity is", note_off, .name = "similarity", .by = 1e-4, .all = true },
    { "note similarity is", note_off, .name = "similarity", .by = -1e-4, .all = true },
    { "note hit is 2, neither 0 nor 1", note_is, .name = "hit", .by = 2, .all = true },
    { "note persistent is 2, neither 0 nor 1", note_is, .name = "persistent", .by = 2, .all = true },
    { "they have one buffer", note_not, .name = "hit" },
    { "they have one buffer", note_off, .name = "similarity", .by = 1e-4 },
    { "note hit is 1, and there is no label", note_is, .name = "hit", .by = 1, .step = -4, .all = true },
    { "is one too many", add, .at = 4, .count = 1, .all = true, .step = -4 },
    { "is missing", drop, .count = 1, .all = true, .step = -4 },
    { "was chosen, candidate", swap, .at = 4, .count = 1, .all = true, .step = -4 },
    { "they have one choice", swap, .at = 4, .count = 1, .step = -4 },
    { "is missing", drop, .count = 1, .all = true, .layer = -2 },
    { "was chosen, candidate", swap, .at = 4, .count = 1, .all = true, .layer = -2 },
    { "all heads of the first layer", note_is, .name = "persistent", .by = 0, .all = true, .step = -4, .layer = -2 },
    { "note persistent is 1", note_is, .name = "persistent", .by = 1, .all = true, .step = -4 },
    { "and was", note_is, .name = "persistent", .by = 1, .all = true },
    { "note similarity is", .name = "group", .by = 1 },
    { "the threshold", .name = "eta", .by = 0.99 },
    { "was chosen, candidate", .name = "bits", .by = 32 },
    { "was chosen, candidate", .name = "retrieve", .by = 2 },
    { "is missing|is one too many", .name = "budget", .by = 0.3 },
};
static const struct spoil clo_reused[] = {
    { "the buffer of step", swap, .at = 4, .count = 1, .all = true },
    { "is missing: it is in the buffer of step", drop, .count = 1, .all = true },
};

/* 3 blocks of 8 from 4 on, 4 of the sink, 11 recent and new ones */
static const struct spoil lists[] = {
    ONE_PART,
    { "is missing: it is of the sink", drop, .at = 24, .count = 1 },
    { "is missing: it is recent", drop, .at = -2, .count = 1 },
    { "its block is not whole", add, .at = 92, .count = 1 },
    { "is used in part", drop, .at = 1, .count = 1 },
    { "is missing", drop, .count = 8, .all = true },
    { "they have one choice", drop, .count = 8 },
    { "note hits is nan", no_note, .name = "hits" },
    { "note replaced is nan", no_note, .name = "replaced" },
    { "note hits is", note_off, .name = "hits", .by = 1 },
    { "note hits is", note_off, .name = "hits", .by = -1 },
    { "note replaced is", note_off, .name = "replaced", .by = 1 },
    { "note hits is|note replaced is", note_off, .name = "hits", .by = 1, .all = true },
    { "note replaced is", note_off, .name = "replaced", .by = -1, .all = true },
    { "note hits is|note replaced is", .name = "policy", .by = 1 },
    { "note hits is|note replaced is", .name = "capacity", .by = 1.7 },
    { "was chosen, block", .name = "digest", .by = 1 },
    { "is missing", .name = "budget", .by = 0.4 },
};
static const struct spoil tokens_by_codes[] = {
    ONE_PART,
    { "is missing", drop, .count = 1, .all = true },
    { "they have one choice", drop, .count = 1 },
    { "was chosen", swap, .count = 1, .all = true },
    { "is one too many", add, .count = 1, .all = true },
    { "note hits is", note_off, .name = "hits", .by = 1, .all = true },
    { "note replaced is", note_off, .name = "replaced", .by = 1, .all = true },
    { "note hits is|note replaced is", .name = "policy", .by = 0 },
    { "note hits is|note replaced is", .name = "capacity", .by = 1 },
};

/* A sink of 5, 11 recent tokens, the host's in blocks. Of the last KV head the first query head reads. */
#define FLUXION                                                                                                        \
    { "is missing: it is of the sink", drop, .count = 1 },                                                             \
        { "is missing: it is recent or new", drop, .part = 1, .count = 1 },                                            \
        { "is missing: it is recent or new", drop, .part = 1, .at = -1, .count = 1 },                                  \
        { "is not the host's: it is of the sink", side, .part = 0 },                                                   \
        { "is not the host's: it is recent or new", either, .part = 1 },                                               \
        { "is in one state with key", move, .to = 1, .count = 1 }, { "is in a second state", split, .part = 1 },       \
        { "is not weighed by the step's query, itself", other_query, .part = 1 },                                      \
        { "is not weighed by the step's query, itself", alone, .part = 1 }, { "note k is nan", no_note, .name = "k" }, \
        { "note streaming is", note_not, .name = "streaming" },                                                        \
    {                                                                                                                  \
        "note bgt0 is", note_off, .name = "bgt0", .by = 0.05                                                           \
    }
static const struct spoil oracle[] = {
    FLUXION,
    { "note k is", note_off, .name = "k", .by = 0.01, .head = -1 },
    { "they have one", note_is, .name = "block", .by = 128 },
    { "where V is|note block is", note_is, .name = "block", .by = 128, .all = true },
    { "note block is 0, not", note_is, .name = "block", .all = true },
    { "note blocks is", note_off, .name = "blocks", .by = 1, .head = -1 },
    { "note blocks is", note_off, .name = "blocks", .by = -1, .head = -1 },
    { "is no longer on the device", settled, .part = 2, .head = -1 },
    { "the head streams", add, .to = 2, .at = 5, .count = 16 },
    { "is used in part", drop, .part = 2, .at = 1, .count = 1, .head = -1 },
    { "is missing|the rule chooses", drop, .part = 2, .count = 16, .head = -1 },
    { "", .name = "criterion", .by = 1 },
    { "", .name = "tau", .by = 0.8 },
    { "", .name = "digest", .by = 1 },
    { "", .name = "union", .by = 1 },
};
static const struct spoil fixed[] = {
    { "note bgt0 is nan", no_note, .name = "bgt0" },
    { "note k is nan", no_note, .name = "k" },
    { "note s is nan", no_note, .name = "s" },
    { "note blocks is nan", no_note, .name = "blocks" },
    { "is no longer on the device", settled, .part = 2 },
    { "where V is", note_is, .by = 64, .name = "block", .all = true },
};
static const struct spoil all_stream[] = {
    { "no head of the group retrieves", note_is, .by = 16, .name = "block", .all = true },
    { "the head streams", add, .to = 2, .at = 16, .count = 16 },
};
static const struct spoil net[] = {
    { "was learnt, and changes with the query", learnt_off, .at = HA_FEATURE_Q_NORM, .by = 1, .step = -1 },
    { "note k is", note_off, .name = "k", .by = 1e-3 },
    { "note s is", note_off, .name = "s", .by = 1e-2 },
    { "note bgt0 is", note_off, .name = "bgt0", .by = 1e-3 },
    { "0 numbers were learnt, not 41 features", nothing_learnt, .part = 0 },
    { "and was", learnt_off, .at = 20, .by = 1e-3 },
    { "feature host_keys is", learnt_off, .at = HA_FEATURE_HOST_KEYS, .by = 1e-3, .step = -1 },
    { "feature k_norm_mean is", learnt_off, .at = HA_FEATURE_K_NORM_MEAN, .by = 1e-3, .step = -1 },
    { "feature anchor_lse_host is", learnt_off, .at = HA_FEATURE_ANCHOR_LSE_HOST, .by = 1e-3, .step = -1 },
    { "feature anchor_o_norm_max is", learnt_off, .at = HA_FEATURE_ANCHOR_O_NORM_MAX, .by = 1e-3, .step = -1 },
    { "feature anchor_budget_", learnt_off, .at = HA_FEATURE_ANCHOR_BUDGET_16, .by = 0.5, .step = -1 },
};

static const struct spoil hybrid[] = {
    { "", drop, .count = 1 },
    { "", drop, .at = -1, .count = 1 },
    { "is used in part", drop, .part = 1, .at = 1, .count = 1 },
    { "blocks chosen|is missing", drop, .part = 1, .count = 16 },
};
static const struct spoil columns[] = {
    ONE_PART,
    { "", drop, .count = 1 },
    { "", add, .count = 1 },
    { "", .name = "alpha", .by = 8 },
};

#define OF    ",heads=4/2,head_dim=16,layers=2,dtype=f32"
#define SCOUT "scout:dataset=walk,ctx=67+133,steps=6,block=8,budget=32,interval=2,recall=wait" OF
#define CLO \
    "clo:dataset=walk,steps=5,layers=3,observed=30,budget=0.2,recent=10,bits=64,heads=4/2,head_dim=16,dtype=f32,ctx="
#define CODED "hcattention:ctx=30+34,steps=3,dims=4,c=16,tau=0.9,fresh=6" OF
#define TABLE(id, spoil)        \
    {                           \
        id, spoil, COUNT(spoil) \
    }
static const struct {
    const char *id;
    const struct spoil *spoil;
    size_t count;
} CASE[] = {
    TABLE("topk:ctx=60+30,steps=2,k=5,group=head" OF, topk),
    TABLE("topk:ctx=60+30,steps=2,k=5,group=max" OF, topk_max),
    TABLE("topk:ctx=60+30,steps=2,k=5,group=union" OF, topk_union),
    TABLE("quest:ctx=60+43,steps=2,block=8,budget=17,dense_layers=1,group=head" OF, quest),
    TABLE(SCOUT ",group=head,cache=16", scout),
    TABLE(SCOUT ",group=max,resident=all", scout_max),
    TABLE(CODED, codes),
    TABLE(CODED ",renorm=1,values=host", renormalised),
    TABLE(CODED ",keys=exact,renorm=1", exact_keys),
    TABLE(CODED ",q_len=2,renorm=1,values=host", several),
    TABLE(CODED ",q_len=2,prefill=anchor,anchor=5", anchored),
    TABLE(CLO "50,eta=0.94", clo),
    TABLE(CLO "100+50,eta=0.9", clo_reused),
    TABLE("lru_blocks:ctx=100+93,steps=14,block=8,budget=0.3,capacity=2,sink=4,recent=10" OF, lists),
    TABLE("pqcache:dataset=walk,ctx=100+60,steps=6,parts=2,c=16,budget=0.2,capacity=1.3" OF, tokens_by_codes),
    TABLE("fluxion:ctx=300,steps=2,sink=5,recent=11,budget=0.05,predict=oracle,tau=0.3" OF, oracle),
    TABLE("fluxion:ctx=300,steps=2,sink=5,recent=11,budget=0.3,predict=fixed" OF, fixed),
    TABLE("fluxion:ctx=300,steps=2,sink=5,recent=11,predict=oracle,tau=1" OF, all_stream),
    TABLE("fluxion:fit=walk,dataset=walk,ctx=460,heads=8/2,head_dim=64,layers=4,steps=2,budget=0.05,dtype=f32", net),
    TABLE("hybrid_fixed:ctx=100,steps=2,sink=5,recent=11,budget=0.3,group=head" OF, hybrid),
    TABLE("infinigen:dataset=residual,ctx=60,steps=2,observed=20,alpha=2,group=head" OF, columns),
};

#endif
