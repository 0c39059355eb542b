#include "datasets/source.h"

/* Every value independent: scores are normal with variance 1, the softmax is flat, no key is better
 * than its neighbours. */

static void iid_query(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    ha_noise_row(src, ha_stream(HA_FOR_QUERY, seq, layer, head), token, q);
    ha_row_round(src, q);
}

const struct ha_dataset ha_dataset_iid = {
    .name = "iid",
    .doc = "independent normal values: flat softmax, no structure",
    .open = ha_source_open,
    .close = ha_source_close,
    .kv = ha_noise_kv,
    .query = iid_query,
};
