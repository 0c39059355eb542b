#ifndef HA_SIMILARITY_CACHE_LOOK_UPS_H
#define HA_SIMILARITY_CACHE_LOOK_UPS_H

/* What look-ups of labels (query_labels.h) have found, as counters of a variant: how often what was chosen served, how
 * similar queries were to labels, how many keys had left the window since the choice and were in nobody's list; and
 * where choices are compared how many of a new choice's units the one before it had, at high and at low similarity of
 * the queries that they were made by (CLO, figure 6). For one thread at a time. */

#include "harness/api/variant.h"

struct ha_look_ups_layer {
    double hits, left_out;
    double similarity, labels; /* sum of a look-up's where there was a label; how many */
    struct ha_look_ups_share {
        double units, of;
    } low, high;       /* from 0.4 on and below 0.6, from 0.8 on: units that the choice before had; all */
    size_t *chosen_at; /* [batch][kv_heads] tokens that there were when the choice was made */
    uint32_t *choice;  /* NULL, or [batch][kv_heads][1 + list_max] the last one, behind how many units it has */
};

struct ha_look_ups {
    size_t lists, list_max, sink, recent;
    bool *had; /* [units] of the choice before */
    struct ha_look_ups_layer *layer;
};

/* units: every unit of a choice is below; compares: choices are compared. Arrays are the arena's. */
enum ha_status ha_look_ups_create(struct ha_look_ups *u, const struct ha_context *ctx, size_t sink, size_t recent,
                                  size_t list_max, size_t units, bool compares, struct ha_why *why);
/* Counters of a layer are 0. */
void ha_look_ups_clear(const struct ha_look_ups *u, size_t layer);
/* One of a KV head, list = b * kv_heads + head, when its sequence had so many tokens. similarity: not finite where
 * there was no label. now, units: where it missed what is chosen. */
void ha_look_ups_add(const struct ha_look_ups *u, size_t layer, size_t list, size_t tokens, bool missed,
                     float similarity, const uint32_t *now, size_t units);
/* similarity, overlap_low and overlap_high: means of which there is anything */
void ha_look_ups_count(const struct ha_look_ups *u, size_t layer, ha_count *say, void *arg);

#endif
