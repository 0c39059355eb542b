#include "suites/variants/session.h"

#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>

/* PIECE: elements that are drawn; longer arrays repeat them */
enum { SEED = 1, STREAM = 0x10AD, PIECE = 1 << 20, ALIGN = 64, FIRST = 0, ATTENDED = 1, WIDENED = 2, LAST = 3 };
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

/* Elements [first, first + n) of an array, in its type; work: [n]. */
static void draw(uint64_t seed, size_t first, size_t n, enum ha_dtype dtype, float *work, void *out)
{
    for (size_t at = 0; at < n;) {
        const size_t from = (first + at) % PIECE, part = smaller(n - at, PIECE - from);
        ha_rng_normals(seed, STREAM, from, part, work + at);
        at += part;
    }
    for (size_t i = 0; i < n; i++) work[i] *= deviation;
    ha_store_row(out, n, dtype, work);
}

/* The array of so many elements that is drawn from the seed, copied to the device. */
static enum ha_status upload(const struct ha_load *load, const struct ha_device_api *api, struct ha_stream *stream,
                             uint64_t seed, char *to, size_t elements, uint64_t *ns)
{
    const size_t n = smaller(elements, PIECE), e = ha_dtype_bytes(load->product->dtype);
    float *work = calloc(n, sizeof *work);
    if (!work) return HA_ERROR;
    draw(seed, 0, n, load->product->dtype, work, load->piece);
    free(work);
    const uint64_t begin_ns = ha_now_ns();
    HA_TRY(fill(api, stream, load->piece, n * e, to, elements * e));
    const enum ha_status status = api->stream_sync(stream);
    *ns += ha_now_ns() - begin_ns;
    return status;
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
    size_t widest_x = 0, at[HA_LOAD_PRODUCTS];

    *load = (struct ha_load){ .products = HA_LOAD_PRODUCTS, .layers = s->layers };
    for (size_t i = 0; i < HA_LOAD_PRODUCTS; i++) {
        at[i] = load->layer_bytes;
        load->y_at[i] = load->y_bytes;
        load->layer_bytes += product[i].n * product[i].k * bytes;
        load->y_bytes += (rows * product[i].n * bytes + ALIGN - 1) / ALIGN * ALIGN;
        widest_x = product[i].k > widest_x ? product[i].k : widest_x;
    }
    load->kept = smaller(s->layers, load->layer_bytes < HA_LOAD_BYTES ? HA_LOAD_BYTES / load->layer_bytes : 1);
    load->slots = smaller(s->layers * s->steps,
                          2 * load->y_bytes < HA_OUTPUTS_BYTES ? HA_OUTPUTS_BYTES / load->y_bytes : 2);
    load->read_bytes = load->y_bytes + rows * m->hidden * bytes;
    load->x_elements = rows * widest_x + s->layers * s->steps * ALIGN;
    const size_t piece = smaller(PIECE, load->kept * load->layer_bytes / bytes) * bytes;
    load->piece = ha_device_alloc(
        arena, HA_MEM_PINNED, piece > load->x_elements * bytes ? piece : load->x_elements * bytes, HA_TAG_SCRATCH, why);
    char *w = load->piece ? ha_device_alloc(arena, HA_MEM_DEVICE, load->kept * load->layer_bytes, HA_TAG_SCRATCH, why)
                          : NULL;
    load->x = w ? ha_device_alloc(arena, HA_MEM_DEVICE, load->x_elements * bytes, HA_TAG_SCRATCH, why) : NULL;
    load->y = load->x ? ha_device_alloc(arena, HA_MEM_DEVICE, load->slots * load->y_bytes, HA_TAG_SCRATCH, why) : NULL;
    if (!load->y) return HA_ERROR;
    for (size_t i = 0; i < HA_LOAD_PRODUCTS; i++)
        load->product[i] = (struct ha_device_product){ .y = load->y + load->y_at[i],
                                                       .x = load->x,
                                                       .w = w + at[i],
                                                       .m = rows,
                                                       .n = product[i].n,
                                                       .k = product[i].k,
                                                       .dtype = s->dtype };
    uint64_t ns = 0;
    enum ha_status status = upload(load, api, stream, SEED, w, load->kept * load->layer_bytes / bytes, &ns);
    if (status == HA_OK) status = ha_load_turn(load, api, stream, 0, &ns);
    return status == HA_OK ? HA_OK : ha_why(why, HA_ERROR, "the weights of a layer cannot be copied to the device");
}

enum ha_status ha_load_turn(const struct ha_load *load, const struct ha_device_api *api, struct ha_stream *stream,
                            uint64_t turn, uint64_t *ns)
{
    return upload(load, api, stream, SEED + 1 + turn, load->x, load->x_elements, ns);
}

enum ha_status ha_load_back(const struct ha_load *load, const struct ha_device_api *api, struct ha_stream *stream,
                            uint64_t *ns)
{
    const uint64_t begin_ns = ha_now_ns();
    HA_TRY(api->copy(stream, load->piece, load->x, load->x_elements * ha_dtype_bytes(load->product->dtype), HA_D2H));
    const enum ha_status status = api->stream_sync(stream);
    *ns += ha_now_ns() - begin_ns;
    return status;
}

/* of the outputs of a step's layer */
static size_t slot(const struct ha_load *load, size_t step, size_t layer)
{
    return (step * load->layers + layer) % load->slots;
}

/* Where the inputs of a step's layer that are drawn begin, in elements: no two have the same. */
static size_t drawn_at(const struct ha_load *load, size_t step, size_t layer)
{
    return (step * load->layers + layer) * ALIGN;
}

/* Where x of a product comes from: the last product of the layer before, the second product of the same layer, or it is
 * drawn. */
static bool is_fed_by_layer(size_t i, size_t layer) { return i == FIRST && layer > 0; }
static bool is_fed(size_t i) { return i == WIDENED; }

static struct ha_device_product product_of(const struct ha_load *load, size_t step, size_t layer, size_t i)
{
    struct ha_device_product p = load->product[i];
    char *const y = load->y + slot(load, step, layer) * load->y_bytes;
    p.w = (const char *)p.w + layer % load->kept * load->layer_bytes;
    p.y = y + load->y_at[i];
    if (is_fed_by_layer(i, layer)) p.x = load->y + slot(load, step, layer - 1) * load->y_bytes + load->y_at[LAST];
    else if (is_fed(i)) p.x = y + load->y_at[ATTENDED];
    else p.x = load->x + drawn_at(load, step, layer) * ha_dtype_bytes(p.dtype);
    return p;
}

enum ha_status ha_load_enqueue(const struct ha_load *load, const struct ha_device_api *api, struct ha_stream *stream,
                               size_t step, size_t layer, size_t first, size_t end)
{
    for (size_t i = first; i < end && i < load->products; i++) {
        const struct ha_device_product product = product_of(load, step, layer, i);
        HA_TRY(api->product(stream, &product));
    }
    return HA_OK;
}

enum ha_status ha_load_read(const struct ha_load *load, const struct ha_device_api *api, struct ha_stream *stream,
                            size_t step, size_t layer, void *y)
{
    const size_t fed = load->read_bytes - load->y_bytes;
    HA_TRY(api->copy(stream, y, load->y + slot(load, step, layer) * load->y_bytes, load->y_bytes, HA_D2H));
    if (layer > 0)
        HA_TRY(api->copy(stream, (char *)y + load->y_bytes, product_of(load, step, layer, FIRST).x, fed, HA_D2H));
    return api->stream_sync(stream);
}

/* Row `row` of the inputs of product i. */
static void read_x(const struct ha_load *load, uint64_t turn, size_t step, size_t layer, size_t i, size_t row,
                   const char *y, void *stored, float *x)
{
    const struct ha_device_product *p = &load->product[i];
    const size_t first = row * p->k, bytes = ha_dtype_bytes(p->dtype);
    if (is_fed_by_layer(i, layer)) ha_load_row(y + load->y_bytes + first * bytes, p->k, p->dtype, x);
    else if (is_fed(i)) ha_load_row(y + load->y_at[ATTENDED] + first * bytes, p->k, p->dtype, x);
    else {
        draw(SEED + 1 + turn, drawn_at(load, step, layer) + first, p->k, p->dtype, x, stored);
        ha_load_row(stored, p->k, p->dtype, x);
    }
}

/* Element (row, column) of product i, where x was drawn from the turn; work: [3][k]. */
static enum ha_status judge_element(const struct ha_load *load, uint64_t turn, size_t step, size_t layer, size_t i,
                                    size_t row, size_t column, const char *y, float *work, struct ha_why *why)
{
    const struct ha_device_product *p = &load->product[i];
    const size_t e = ha_dtype_bytes(p->dtype), k = p->k,
                 first = (size_t)((const char *)p->w - (const char *)load->product->w) / e;
    float *const x = work, *const w = work + k, *const stored = work + 2 * k;
    double want = 0, size = 0;
    read_x(load, turn, step, layer, i, row, y, stored, x);
    draw(SEED, layer % load->kept * load->layer_bytes / e + first + column * k, k, p->dtype, w, stored);
    ha_load_row(stored, k, p->dtype, w);
    for (size_t l = 0; l < k; l++) {
        want += (double)x[l] * (double)w[l];
        size += fabs((double)x[l] * (double)w[l]);
    }
    const double got = (double)ha_load(y + load->y_at[i], row * p->n + column, p->dtype),
                 bound = (ha_dtype_unit(p->dtype) + 2 * (double)(k + 1) * 0x1p-24) * size + ha_dtype_eta(p->dtype);
    if (fabs(got - want) <= bound) return HA_OK;
    return ha_why(why, HA_FAIL, "product %zu of layer %zu, %zu x %zu x %zu: (%zu, %zu) is %.6g, want %.6g, bound %.2g",
                  i + 1, layer, p->m, p->n, k, row, column, got, want, bound);
}

enum ha_status ha_load_judge(const struct ha_load *load, uint64_t turn, size_t step, size_t layer, const void *y,
                             uint64_t seed, struct ha_why *why)
{
    enum { ELEMENTS = 32 };
    size_t longest = 0;
    for (size_t i = 0; i < load->products; i++) longest = load->product[i].k > longest ? load->product[i].k : longest;
    float *work = calloc(3 * longest + 1, sizeof *work);
    enum ha_status status = work ? HA_OK : ha_why(why, HA_ERROR, "no memory to judge products");
    for (size_t i = 0; i < load->products && status == HA_OK; i++)
        for (size_t n = 0; n < ELEMENTS && status == HA_OK; n++) {
            const struct ha_device_product *p = &load->product[i];
            /* the last column of the last row is one of them */
            const size_t row = n ? ha_rng_below(seed, i, 2 * n, p->m) : p->m - 1,
                         column = n ? ha_rng_below(seed, i, 2 * n + 1, p->n) : p->n - 1;
            status = judge_element(load, turn, step, layer, i, row, column, y, work, why);
        }
    free(work);
    return status;
}
