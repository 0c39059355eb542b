#include "suites/block_sparse/divide.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/order.h"
#include "harness/base/why.h"
#include "suites/parts/listed.h"

static size_t lists(const struct ha_divide *d) { return d->choice->ctx->shape->batch * d->choice->lists; }
static const struct ha_missing *missing_of(const struct ha_divide *d, size_t layer) { return &d->missing[layer % 2]; }

static uint32_t *numbers(const struct ha_divide *d, enum ha_memory memory, size_t count, struct ha_why *why)
{
    return ha_device_alloc(d->choice->ctx->device_arena, memory, count * sizeof(uint32_t), HA_TAG_SCRATCH, why);
}

enum ha_status ha_divide_create(struct ha_divide *d, const struct ha_device_choice *choice,
                                const struct ha_recall *recall, size_t budget, struct ha_why *why)
{
    *d = (struct ha_divide){ .choice = choice, .recall = recall, .budget = budget };
    const size_t entries = lists(d) * choice->list_max;
    d->here = numbers(d, HA_MEM_DEVICE, entries, why);
    d->here_keys = numbers(d, HA_MEM_DEVICE, lists(d), why);
    d->here_known = numbers(d, HA_MEM_PINNED, entries, why);
    d->here_keys_known = numbers(d, HA_MEM_PINNED, lists(d), why);
    if (!d->here || !d->here_keys || !d->here_known || !d->here_keys_known) return HA_ERROR;
    for (int i = 0; i < 2; i++) {
        d->missing[i].block = numbers(d, HA_MEM_MAPPED, entries, why);
        d->missing[i].count = numbers(d, HA_MEM_MAPPED, lists(d), why);
        if (!d->missing[i].block || !d->missing[i].count) return HA_ERROR;
    }
    d->split = ha_alloc(choice->ctx->arena, choice->ctx->shape->batch * sizeof *d->split, HA_TAG_SCRATCH, why);
    const size_t sums = choice->ctx->shape->layers * sizeof *d->steps;
    d->cpu_tokens = d->split ? ha_alloc(choice->ctx->arena, sums, HA_TAG_SCRATCH, why) : NULL;
    d->steps = d->cpu_tokens ? ha_alloc(choice->ctx->arena, sums, HA_TAG_SCRATCH, why) : NULL;
    return d->steps ? HA_OK : HA_ERROR;
}

enum ha_status ha_divide_run(const struct ha_divide *d, size_t layer, bool missing)
{
    const struct ha_device_choice *c = d->choice;
    const struct ha_shape *s = c->ctx->shape;
    const struct ha_missing *to = missing_of(d, layer);
    const size_t room = d->recall->blocks_max;
    d->steps[layer] += missing;
    for (size_t b = 0; b < s->batch; b++) {
        const size_t list = b * c->lists, at = list * c->list_max;
        d->split[b] = (struct ha_device_split_seq){ .index = c->index + at,
                                                    .count = c->most[b].k,
                                                    .index_stride = c->list_max,
                                                    .slot = d->recall->layer[layer].slot_device
                                                            + b * s->kv_heads * room,
                                                    .blocks = room,
                                                    .slot_stride = room,
                                                    .here = d->here + at,
                                                    .here_count = d->here_keys + list,
                                                    .missing = missing ? to->block + at : NULL,
                                                    .missing_count = missing ? to->count + list : NULL,
                                                    .out_stride = c->list_max,
                                                    .here_unit = c->unit };
    }
    return c->ctx->api->split(
        c->ctx->stream,
        &(struct ha_device_split){ .batch = s->batch, .lists = c->lists, .tables = s->kv_heads, .seqs = d->split });
}

enum ha_status ha_divide_down(const struct ha_divide *d)
{
    const struct ha_context *ctx = d->choice->ctx;
    const size_t keys = lists(d) * sizeof *d->here_keys, entries = keys * d->choice->list_max;
    if (entries) HA_TRY(ctx->api->copy(ctx->stream, d->here_known, d->here, entries, HA_D2H));
    HA_TRY(ctx->api->copy(ctx->stream, d->here_keys_known, d->here_keys, keys, HA_D2H));
    return ctx->api->stream_sync(ctx->stream);
}

/* With lists of all residents the KV heads have them; else the lists of the choice. */
void ha_divide_device(const struct ha_divide *d, size_t layer, size_t b, size_t blocks, struct ha_device_seq *seq)
{
    const struct ha_device_choice *c = d->choice;
    const struct ha_shape *s = c->ctx->shape;
    const struct ha_recall *r = d->recall;
    const struct ha_recall_layer *l = &r->layer[layer];
    const bool all = r->lists_all;
    const size_t most = all ? ha_recall_held(r, blocks) : ha_least(c->list_max, blocks),
                 list = b * (all ? s->kv_heads : c->lists);
    seq->list_stride = all ? r->slots : c->list_max;
    seq->list_keys = (all ? l->all_keys_device : d->here_keys) + list;
    seq->runs[seq->runs_count] = ha_kv_rows(s, &l->cache[b], 0, 0, most * r->unit);
    seq->runs[seq->runs_count++].index = (all ? l->all_device : d->here) + list * seq->list_stride;
}

void ha_divide_cpu(const struct ha_divide *d, size_t layer, size_t b, size_t u, struct ha_rows *run)
{
    const struct ha_device_choice *c = d->choice;
    const struct ha_shape *s = c->ctx->shape;
    const struct ha_missing *missing = missing_of(d, layer);
    const size_t list = b * c->lists + u;
    ha_order_thread_access("attend", "missing", HA_READ, missing->count + list, 1, 0, sizeof *missing->count);
    *run = ha_kv_rows(s, &d->recall->layer[layer].store[b], u * s->kv_heads / c->lists, 0,
                      missing->count[list] * c->unit);
    run->index = missing->block + list * c->list_max;
    d->cpu_tokens[layer] += (double)run->keys;
}

enum ha_status ha_divide_use(const struct ha_divide *d, size_t layer, size_t b, size_t q_head, struct ha_used *used,
                             struct ha_why *why)
{
    const struct ha_device_choice *c = d->choice;
    const struct ha_shape *s = c->ctx->shape;
    const struct ha_missing *missing = missing_of(d, layer);
    const struct ha_resident_set now = ha_residency_now(&d->recall->resident, layer, b, q_head / ha_shape_group(s));
    const size_t list = b * c->lists + q_head * c->lists / s->q_heads, at = list * c->list_max;
    const bool all = d->recall->lists_all;
    const size_t here = all ? *now.count : d->here_keys_known[list] / c->unit;
    if (!all && here > c->list_max)
        return ha_list_refuse(c->ctx, why, "blocks of the cache: a list of %zu, of which there are at most %zu", here,
                              c->list_max);
    for (size_t i = 0; i < here; i++) {
        const uint32_t block = all ? now.entry[i].block : ha_resident_block(now, d->here_known[at + i]);
        if (block == HA_BLOCK_NONE)
            return ha_list_refuse(c->ctx, why, "blocks of the cache: slot %u has none",
                                  (unsigned)d->here_known[at + i]);
        HA_TRY(ha_positions_add_blocks(c->ctx, &used->device, 0, c->unit, &block, 1, why));
    }
    return ha_positions_add_blocks(c->ctx, &used->host, 0, c->unit, missing->block + at, missing->count[list], why);
}

void ha_divide_reset(const struct ha_divide *d, size_t layer) { d->cpu_tokens[layer] = d->steps[layer] = 0; }

void ha_divide_count(const struct ha_divide *d, size_t layer, ha_count *say, void *arg)
{
    const double most = d->steps[layer] * (double)(lists(d) * d->budget);
    if (most > 0) say(arg, "cpu_of_budget", layer, d->cpu_tokens[layer] / most);
}
