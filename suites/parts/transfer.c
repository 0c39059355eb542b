
#include "suites/parts/transfer.h"
#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include <string.h>
HA_SHARED_WORDS(ha_transfer_word, "stores", "kernel", "gather", "pieces")
HA_SHARED_WORDS(ha_transfer_sync_word, "device", "cpu")
enum ha_fetch_way ha_transfer_way(size_t i) { return HA_FETCH_PIECES; }
enum ha_status ha_transfer_create(struct ha_transfer *t, const struct ha_layer *first, enum ha_fetch_way way,
                                  enum ha_transfer_sync sync, size_t threads, size_t unit, size_t list_max,
                                  struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx; const struct ha_shape *s = ctx->shape; size_t n = s->batch * s->kv_heads;
    *t = (struct ha_transfer){ .ctx = ctx, .unit = unit, .list_max = list_max };
    HA_TRY(ha_frame_stream(first, "transfer", &t->stream, why));
    t->layer = ha_alloc(ctx->arena, s->layers * sizeof *t->layer, HA_TAG_META, why);
    memset(t->layer, 0, s->layers * sizeof *t->layer);
    for (size_t i = 0; i < s->layers; i++) {
        t->layer[i].missed = ha_device_alloc(ctx->device_arena, HA_MEM_MAPPED, n * 4, HA_TAG_META, why);
        t->layer[i].count = ha_device_alloc(ctx->device_arena, HA_MEM_MAPPED, n * 4, HA_TAG_META, why);
        t->layer[i].index = ha_device_alloc(ctx->device_arena, HA_MEM_MAPPED, n * list_max * 4, HA_TAG_META, why);
        t->layer[i].place = ha_alloc(ctx->arena, n * sizeof *t->layer[i].place, HA_TAG_META, why);
    }
    return ha_device_event(ctx->device_arena, &t->came, why);
}
enum ha_status ha_transfer_reach(struct ha_transfer *t, const struct ha_kv *to, struct ha_why *why) { return HA_OK; }
enum ha_status ha_transfer_ask(struct ha_transfer *t, const struct ha_layer *l, struct ha_why *why) {
    const struct ha_shape *s = t->ctx->shape; size_t n = s->batch * s->kv_heads;
    struct ha_transfer_layer *a = &t->layer[l->layer]; a->asked++;
    HA_TRY(t->ctx->api->stream_sync(t->ctx->stream));
    t->answered(t->arg, l->layer, a->asked);
    for (size_t i = 0; i < n; i++) if (a->missed[i]) {
        size_t each = ha_kv_head_bytes(s), tok = ha_kv_token_bytes(s), h = i % s->kv_heads;
        a->moved++; 
        for (size_t j = 0; j < a->count[i]; j++) {
            size_t from = (a->index[i * t->list_max + j / t->unit] * t->unit + j % t->unit) * tok + h * each, to = (a->place[i].at + j) * each;
            HA_TRY(t->ctx->api->copy(t->ctx->stream, a->place[i].to->k + to, a->place[i].from->k + from, each, HA_H2D));
            HA_TRY(t->ctx->api->copy(t->ctx->stream, a->place[i].to->v + to, a->place[i].from->v + from, each, HA_H2D));
        }
    }
    return HA_OK;
}
enum ha_status ha_transfer_wait(struct ha_transfer *t, const struct ha_layer *l, struct ha_why *why) { return HA_OK; }
void ha_transfer_end(struct ha_transfer *t) {}
