#include "suites/variants/session.h"

#include "harness/base/device_arena.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <stdlib.h>

enum { SEED = 1, STREAM = 0x10AD, PIECE = 1 << 20 }; /* elements that are drawn; longer arrays repeat them */
/* sums of 20000 products stay far below the largest binary16 */
static const float deviation = 0.02f;

const char *ha_load_unsupported(const struct ha_device_api *api, const struct ha_device_info *info)
{
    if (!api->product) return "the device has no operation product, which load=layer needs";
    return *info->no_products ? info->no_products : NULL;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* The pattern, again and again. */
static enum ha_status fill(const struct ha_device_api *api, struct ha_stream *stream, const void *piece,
                           size_t piece_bytes, char *to, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += piece_bytes)
        HA_TRY(api->copy(stream, to + at, piece, smaller(piece_bytes, bytes - at), HA_H2D));
    return HA_OK;
}

static void *draw_piece(struct ha_device_arena *arena, enum ha_dtype dtype, struct ha_why *why)
{
    float *x = malloc(PIECE * sizeof *x);
    void *piece = x ? ha_device_alloc(arena, HA_MEM_PINNED, PIECE * ha_dtype_bytes(dtype), HA_TAG_SCRATCH, why) : NULL;
    if (!x) ha_why(why, HA_ERROR, "no memory for the weights of a layer");
    if (piece) {
        ha_rng_normals(SEED, STREAM, 0, PIECE, x);
        for (size_t i = 0; i < PIECE; i++) x[i] *= deviation;
        ha_store_row(piece, PIECE, dtype, x);
    }
    free(x);
    return piece;
}

enum ha_status ha_load_create(struct ha_load *load, const struct ha_model *m, const struct ha_shape *s,
                              const struct ha_device_api *api, struct ha_stream *stream, struct ha_device_arena *arena,
                              struct ha_why *why)
{
    const size_t rows = s->batch * s->q_len, bytes = ha_dtype_bytes(s->dtype);
    const struct {
        size_t n, k;
    } product[HA_LOAD_PRODUCTS] = {
        { (m->q_heads + 2 * m->kv_heads) * m->head_dim, m->hidden },
        { m->hidden, m->q_heads * m->head_dim },
        { (m->gated ? 2 : 1) * m->feed_forward, m->hidden },
        { m->hidden, m->feed_forward },
    };
    size_t widest_x = 0, widest_y = 0, at[HA_LOAD_PRODUCTS];

    *load = (struct ha_load){ .products = HA_LOAD_PRODUCTS };
    for (size_t i = 0; i < HA_LOAD_PRODUCTS; i++) {
        at[i] = load->layer_bytes;
        load->layer_bytes += product[i].n * product[i].k * bytes;
        widest_x = product[i].k > widest_x ? product[i].k : widest_x;
        widest_y = product[i].n > widest_y ? product[i].n : widest_y;
    }
    load->kept = smaller(s->layers, load->layer_bytes < HA_LOAD_BYTES ? HA_LOAD_BYTES / load->layer_bytes : 1);
    void *piece = draw_piece(arena, s->dtype, why);
    char *w = piece ? ha_device_alloc(arena, HA_MEM_DEVICE, load->kept * load->layer_bytes, HA_TAG_SCRATCH, why) : NULL;
    char *x = w ? ha_device_alloc(arena, HA_MEM_DEVICE, rows * widest_x * bytes, HA_TAG_SCRATCH, why) : NULL;
    void *y = x ? ha_device_alloc(arena, HA_MEM_DEVICE, rows * widest_y * bytes, HA_TAG_SCRATCH, why) : NULL;
    if (!y) return HA_ERROR;
    for (size_t i = 0; i < HA_LOAD_PRODUCTS; i++)
        load->product[i] = (struct ha_device_product){
            .y = y, .x = x, .w = w + at[i], .m = rows, .n = product[i].n, .k = product[i].k, .dtype = s->dtype
        };
    enum ha_status status = fill(api, stream, piece, PIECE * bytes, w, load->kept * load->layer_bytes);
    if (status == HA_OK) status = fill(api, stream, piece, PIECE * bytes, x, rows * widest_x * bytes);
    if (status == HA_OK) status = api->stream_sync(stream);
    ha_device_free(arena, piece);
    return status == HA_OK ? HA_OK : ha_why(why, HA_ERROR, "the weights of a layer cannot be copied to the device");
}

enum ha_status ha_load_enqueue(const struct ha_load *load, const struct ha_device_api *api, struct ha_stream *stream,
                               size_t layer, size_t first, size_t end)
{
    for (size_t i = first; i < end && i < load->products; i++) {
        struct ha_device_product product = load->product[i];
        product.w = (const char *)product.w + layer % load->kept * load->layer_bytes;
        HA_TRY(api->product(stream, &product));
    }
    return HA_OK;
}
