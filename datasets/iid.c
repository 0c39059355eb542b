#include "datasets/source.h"

/* Every value independent: scores are normal with variance 1, the softmax is flat, no key is better
 * than its neighbours. */

static enum ha_status iid_open(struct ha_source **src, struct ha_shape *shape, size_t total_tokens, uint64_t seed,
                               const char *file, struct ha_why *why)
{
    return ha_source_open(src, sizeof **src, "iid", shape, total_tokens, seed, file, why);
}

static void iid_query(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    ha_noise_row(src, ha_stream(HA_FOR_QUERY, seq, layer, head), token, q);
    ha_row_round(src, q);
}

const struct ha_dataset ha_dataset_iid = {
    .name = "iid",
    .doc = "independent normal values: flat softmax, no structure",
    .open = iid_open,
    .close = ha_source_close,
    .kv = ha_noise_kv,
    .query = iid_query,
};
