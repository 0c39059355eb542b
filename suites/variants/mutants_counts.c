/* What a variant counts wrong. */

#include "suites/variants/planted.h"

#define SHAPE  ":ctx=330,heads=4/2,head_dim=64,layers=2,steps=6,seed=5,block=8,budget=32"
#define SCOUT  "scout" SHAPE ",dataset=walk,interval=2,recall=wait"
#define HGCA   "hgca:ctx=300,heads=4/2,head_dim=64,layers=2,steps=3,seed=5,blk_size=16,blk_num=4"
#define HYBRID "hybrid_fixed:ctx=300+40,heads=4/2,head_dim=64,layers=2,steps=40,seed=5,sink=16,recent=32,block=16"
#define FLUXION                             \
    "fluxion:dataset=walk,ctx=700,heads=4/" \
    "2,head_dim=64,layers=2,steps=2,seed=5,sink=16,recent=32,predict=oracle,tau=0.3"

#define COLUMN(column, id)                                                                          \
    {                                                                                               \
        "column_" column, "the column is 1% too large", id, .shown = column, .wrong_column = column \
    }
#define COUNT_OF(count, id)                                                                                         \
    {                                                                                                               \
        "count_of_" count, "the number of the last layer is 1% too large", id, .shown = count, .wrong_count = count \
    }

static const struct ha_mutant table[] = {
    COLUMN("cpu_tokens", HGCA),
    COLUMN("cpu_ratio", SCOUT ",group=head"),
    COLUMN("recalls", SCOUT),
    COUNT_OF("recall_interval", SCOUT),
    COUNT_OF("recalls", SCOUT),
    COUNT_OF("recalled_blocks", SCOUT),
    COUNT_OF("cpu_of_budget", SCOUT),
    COUNT_OF("cosine", SCOUT),
    COUNT_OF("changed", SCOUT),
    COUNT_OF("host_blocks", HYBRID),
    COUNT_OF("streaming_heads", FLUXION),
    COUNT_OF("groups_scheduled", FLUXION),
    COUNT_OF("block_mean", FLUXION),
    COUNT_OF("budget_mean", FLUXION),
    { "uncounted", "a number of the last layer is not counted", SCOUT, .shown = "not counted", .no_count = "cosine" },
};
const struct ha_mutants ha_mutants_counts = { table, sizeof table / sizeof *table };
